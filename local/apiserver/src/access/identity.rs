//! Who is it?

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde::Serialize;

/// Members may do everything; no role takes that away.
pub(super) const MASTERS: &str = "system:masters";
/// Everybody who said who they are.
pub(super) const AUTHENTICATED: &str = "system:authenticated";
/// Everybody who did not.
pub(super) const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of those who did not.
pub(super) const ANONYMOUS: &str = "system:anonymous";
/// Every ServiceAccount; those of one namespace are in a group with its name after a colon.
const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// A caller, as authenticated or impersonated; serialized, it is an `authentication.k8s.io/v1 UserInfo`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Identity {
    /// The name roles are bound to.
    #[serde(rename = "username", skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    /// Tells two of one name apart over time.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
    /// What else roles may be bound to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) groups: Vec<String>,
    /// What the way of authentication adds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

static SERVER: LazyLock<Arc<Identity>> =
    LazyLock::new(|| Arc::new(Identity::named("system:apiserver", &[MASTERS, AUTHENTICATED])));
static ADMIN: LazyLock<Arc<Identity>> =
    LazyLock::new(|| Arc::new(Identity::named("pawl:admin", &[MASTERS, AUTHENTICATED])));
static NOBODY: LazyLock<Arc<Identity>> =
    LazyLock::new(|| Arc::new(Identity::named(ANONYMOUS, &[UNAUTHENTICATED])));

impl Identity {
    /// The server itself: whoever asks in process.
    pub(crate) fn server() -> Arc<Identity> {
        SERVER.clone()
    }

    /// Whether it is the server itself.
    pub(crate) fn is_server(&self) -> bool {
        *self == **SERVER
    }

    /// The owner of the admin token.
    pub(super) fn admin() -> Arc<Identity> {
        ADMIN.clone()
    }

    /// Whoever shows nothing.
    pub(super) fn anonymous() -> Arc<Identity> {
        NOBODY.clone()
    }

    fn named(name: &str, groups: &[&str]) -> Identity {
        let groups = groups.iter().map(|&g| g.to_owned()).collect();
        Identity { name: name.to_owned(), groups, ..Identity::default() }
    }

    /// Whether no role needs to be asked.
    pub(crate) fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }
}

/// The user name of a ServiceAccount.
pub(super) fn account_name(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}")
}

/// The namespace and name of the ServiceAccount behind a user name.
pub(super) fn account_of(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

/// The groups every ServiceAccount of a namespace is in.
pub(super) fn account_groups(namespace: &str) -> Vec<String> {
    vec![SERVICE_ACCOUNTS.to_owned(), format!("{SERVICE_ACCOUNTS}:{namespace}")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_account_is_recognized_by_its_whole_name() {
        assert_eq!(account_of(&account_name("ns", "bot")), Some(("ns", "bot")));
        for not in
            ["", "bot", "system:serviceaccount:", "system:serviceaccount:ns", "system:serviceaccount::b"]
        {
            assert_eq!(account_of(not), None, "{not:?}");
        }
        assert_eq!(account_of("system:serviceaccount:ns:"), None);
        assert_eq!(account_of("system:serviceaccount:ns:a:b"), None);
    }
}
