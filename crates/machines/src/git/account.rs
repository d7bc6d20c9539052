//! On whose behalf is GitHub asked: which credentials does a Repository use, and may it?

use std::sync::Arc;

use pawl_api::git::repository::{self, GITHUB_API, Repository};
use pawl_api::pawl::labels::ALLOW_SECRET_REFS;

use super::github::Account;
use crate::cluster::namespace::NAMESPACE;
use crate::object::{Key, Object};
use crate::view::View;

/// A value of `pawl.dev/allow-secret-refs` that lends to every namespace. No namespace can be called that, and `*` is no
/// value of a label.
pub const ANY: &str = "Any";

/// Why there are no credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAccount {
    #[error("{0}")]
    Malformed(String),
    #[error(
        "spec.githubSecretRef.namespace: namespace {theirs} does not lend its Secrets to {ours}; label it \
         {ALLOW_SECRET_REFS}={ours} (or {ANY}) to allow it"
    )]
    NotAllowed { theirs: String, ours: String },
}

/// The account of a Repository. Whoever calls this watches namespaces.
///
/// # Errors
/// When the Repository is malformed, or its Secret is in a namespace that does not lend it.
pub fn of(view: &dyn View, object: &Object) -> Result<Arc<Account>, NoAccount> {
    let repository =
        object.parse::<Repository>().map_err(|malformed| NoAccount::Malformed(malformed.to_string()))?;
    let spec = &repository.spec;
    let ours = object.namespace().unwrap_or_default();
    let theirs = spec.github_secret_ref.namespace.as_deref().unwrap_or(ours);
    if theirs != ours && !lends(view, theirs, ours) {
        return Err(NoAccount::NotAllowed { theirs: theirs.to_owned(), ours: ours.to_owned() });
    }
    let api_url = spec.api_url.as_deref().unwrap_or(GITHUB_API).trim_end_matches('/');
    Ok(Arc::new(Account {
        uid: object.uid().to_owned(),
        api_url: api_url.to_owned(),
        owner: spec.owner.clone(),
        name: spec.name.clone(),
        secret: Key::new(Some(theirs), &spec.github_secret_ref.name),
    }))
}

/// The Repository that a Branch belongs to, if it is (still) that one.
pub fn repository_of(view: &dyn View, branch: &Object) -> Option<Arc<Object>> {
    let owner = branch.owners().iter().find(|owner| owner.kind == repository::KIND.kind)?;
    let found = view.get(&repository::KIND, &Key::new(branch.namespace(), &owner.name))?;
    (found.uid() == owner.uid).then_some(found)
}

/// The label's value is the namespace it lends to, several of them joined by dots (which no name of a namespace holds),
/// or [`ANY`].
fn lends(view: &dyn View, theirs: &str, ours: &str) -> bool {
    let home = view.get(&NAMESPACE, &Key::new(None, theirs));
    let label = home.as_ref().and_then(|home| home.label(ALLOW_SECRET_REFS)).unwrap_or_default();
    label == ANY || label == "*" || label.split('.').any(|name| name == ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Cluster;

    fn check(label: &str, namespace: &str, expect: Result<(&str, &str), &str>) {
        let yaml = format!(
            "
kind: Namespace
metadata: {{name: vault, labels: {{pawl.dev/allow-secret-refs: {label:?}}}}}
---
kind: Repository
metadata: {{name: r}}
spec: {{owner: acme, name: infra, apiUrl: 'https://ghe.example.com/api/v3/',
  githubSecretRef: {{name: s, namespace: {namespace:?}}}}}
"
        );
        let cluster = Cluster::of(&[NAMESPACE, repository::KIND], &yaml);
        let object = cluster.world.get(&repository::KIND, &Key::new(Some("n"), "r")).unwrap();
        let got = of(&cluster.world, &object);
        let got = got.map(|account| (account.secret.to_string(), account.api_url.clone()));
        match expect {
            Ok((secret, api_url)) => assert_eq!(got.unwrap(), (secret.to_owned(), api_url.to_owned())),
            Err(part) => assert!(got.unwrap_err().to_string().contains(part), "{label} {namespace}"),
        }
    }

    #[test]
    fn a_secret_of_another_namespace_is_used_only_if_that_namespace_lends_it_to_ours() {
        let api = "https://ghe.example.com/api/v3";
        check("", "n", Ok(("n/s", api)));
        check("n", "vault", Ok(("vault/s", api)));
        check("m.n", "vault", Ok(("vault/s", api)));
        check("Any", "vault", Ok(("vault/s", api)));
        check("", "vault", Err("namespace vault does not lend its Secrets to n"));
        check("m", "vault", Err("label it pawl.dev/allow-secret-refs=n"));
        check("true", "vault", Err("does not lend"));
        check("n", "elsewhere", Err("namespace elsewhere"));
    }
}
