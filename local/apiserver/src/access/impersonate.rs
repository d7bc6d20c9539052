//! As whom does a caller want to act, and may they?

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;

use super::identity::{ANONYMOUS, AUTHENTICATED, Identity, UNAUTHENTICATED, account_groups, account_of};
use super::rules::Attributes;
use crate::http::decode;
use crate::status::Status;
use crate::verbs::Core;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
/// The group of what only impersonation knows as resources.
const AUTHENTICATION: &str = "authentication.k8s.io";
/// Each value is a permission to ask for: as many as a person is in groups, with room.
const MAX_VALUES: usize = 256;

/// Who the request acts as: the caller, unless headers say otherwise and the caller may do as they say.
///
/// # Errors
/// 403 for a part of the identity that the caller may not take, 400 for headers that make no identity.
pub(super) fn apply(
    core: &Core,
    caller: Arc<Identity>,
    headers: &HeaderMap,
) -> Result<Arc<Identity>, Status> {
    let Some(wanted) = wanted(headers)? else { return Ok(caller) };
    for asked in permissions(&wanted) {
        super::authorize(core, &caller, &asked)?;
    }
    Ok(Arc::new(complete(wanted)))
}

/// The identity in the headers, if there is one.
fn wanted(headers: &HeaderMap) -> Result<Option<Identity>, Status> {
    let text = |value: &http::HeaderValue| {
        let text = value.to_str().map(str::to_owned);
        text.map_err(|_| Status::bad_request("an impersonation header is not printable text"))
    };
    let all = |name: &str| headers.get_all(name).iter().map(text).collect::<Result<Vec<String>, Status>>();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            extra.entry(decode(key, false)?.to_lowercase()).or_default().push(text(value)?);
        }
    }
    let one = |name: &str| Ok::<_, Status>(all(name)?.into_iter().next().unwrap_or_default());
    let wanted = Identity { name: one(USER)?, uid: one(UID)?, groups: all(GROUP)?, extra };
    if wanted == Identity::default() {
        return Ok(None);
    }
    if wanted.name.is_empty() {
        return Err(Status::bad_request("impersonating groups, a uid or extras needs a user to impersonate"));
    }
    let values = wanted.groups.len() + wanted.extra.values().map(Vec::len).sum::<usize>();
    if values > MAX_VALUES {
        let message =
            format!("{values} groups and extras to impersonate, more than the {MAX_VALUES} that are read");
        return Err(Status::bad_request(message));
    }
    Ok(Some(wanted))
}

/// What the caller must be allowed to do.
fn permissions(wanted: &Identity) -> Vec<Attributes> {
    let part =
        |group: &str, resource: &str, subresource: &str, namespace: &str, name: &str| Attributes::Resource {
            verb: "impersonate".into(),
            group: group.into(),
            resource: resource.into(),
            subresource: subresource.into(),
            namespace: namespace.into(),
            name: name.into(),
        };
    let mut asked = vec![match account_of(&wanted.name) {
        Some((namespace, name)) => part("", "serviceaccounts", "", namespace, name),
        None => part("", "users", "", "", &wanted.name),
    }];
    asked.extend(wanted.groups.iter().map(|group| part("", "groups", "", "", group)));
    if !wanted.uid.is_empty() {
        asked.push(part(AUTHENTICATION, "uids", "", "", &wanted.uid));
    }
    for (key, values) in &wanted.extra {
        asked.extend(values.iter().map(|value| part(AUTHENTICATION, "userextras", key, "", value)));
    }
    asked
}

/// Adds the groups that go without saying.
fn complete(mut wanted: Identity) -> Identity {
    if let Some((namespace, _)) = account_of(&wanted.name)
        && wanted.groups.is_empty()
    {
        wanted.groups = account_groups(namespace);
    }
    let implied = if wanted.name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
    let said = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
    if !wanted.groups.iter().any(said) {
        wanted.groups.push(implied.to_owned());
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::tests::{guarded, post};
    use http::{HeaderName, HeaderValue};
    use serde_json::json;

    fn headers(pairs: &[(&str, &[u8])]) -> HeaderMap {
        let pair = |(name, value): &(&str, &[u8])| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_bytes(value).unwrap())
        };
        let mut map = HeaderMap::new();
        for (name, value) in pairs.iter().map(pair) {
            map.append(name, value);
        }
        map
    }

    fn act(caller: &Arc<Identity>, pairs: &[(&str, &[u8])]) -> Result<Identity, Status> {
        let server = guarded();
        let rules = json!([
            {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["ann"]},
            {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["groups"], "resourceNames": ["devs"]},
            {"verbs": ["impersonate"], "apiGroups": ["authentication.k8s.io"], "resources": ["userextras/scopes"]},
        ]);
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let role = json!({"metadata": {"name": "actor"}, "rules": rules});
        assert_eq!(post(&server, &format!("{rbac}/clusterroles"), &role).0, 201);
        let binding = json!({"metadata": {"name": "actor"}, "roleRef": {"kind": "ClusterRole", "name": "actor"},
                             "subjects": [{"kind": "User", "name": "bot"}]});
        assert_eq!(post(&server, &format!("{rbac}/clusterrolebindings"), &binding).0, 201);
        apply(server.core(), caller.clone(), &headers(pairs)).map(|who| (*who).clone())
    }

    fn bot() -> Arc<Identity> {
        Arc::new(Identity { name: "bot".into(), ..Identity::default() })
    }

    #[test]
    fn a_caller_becomes_who_they_may_be_and_nobody_else() {
        let ann =
            act(&bot(), &[(USER, b"ann"), (GROUP, b"devs"), ("Impersonate-Extra-Scopes", b"read")]).unwrap();
        assert_eq!(
            (ann.name.as_str(), &*ann.groups),
            ("ann", &["devs".to_owned(), AUTHENTICATED.to_owned()][..])
        );
        assert_eq!(ann.extra["scopes"], ["read"]);
        for refused in [
            &[(USER, &b"bea"[..])][..],
            &[(USER, b"ann"), (GROUP, b"system:masters")],
            &[(USER, b"ann"), (UID, b"1")],
            &[(USER, b"ann"), ("Impersonate-Extra-other", b"x")],
            &[(USER, b"system:serviceaccount:default:x")],
        ] {
            assert_eq!(act(&bot(), refused).unwrap_err().code, 403, "{refused:?}");
        }
        assert_eq!(act(&Identity::anonymous(), &[(USER, b"ann")]).unwrap_err().code, 403);
        let status = act(&bot(), &[(USER, b"bea")]).unwrap_err();
        assert_eq!(
            status.message,
            "users \"bea\" is forbidden: User \"bot\" cannot impersonate resource \"users\" in API group \"\" at the \
             cluster scope"
        );
    }

    #[test]
    fn the_groups_that_go_without_saying_are_added() {
        let admin = Identity::admin();
        let groups = |pairs: &[(&str, &[u8])]| act(&admin, pairs).unwrap().groups;
        assert_eq!(groups(&[(USER, b"x")]), [AUTHENTICATED]);
        assert_eq!(groups(&[(USER, ANONYMOUS.as_bytes())]), [UNAUTHENTICATED]);
        assert_eq!(
            groups(&[(USER, b"system:serviceaccount:a:b")]),
            ["system:serviceaccounts", "system:serviceaccounts:a", AUTHENTICATED]
        );
        assert!(!act(&admin, &[(USER, b"x")]).unwrap().is_master(), "rights are left behind");
    }

    #[test]
    fn headers_that_make_no_identity_are_refused() {
        let many: Vec<(&str, &[u8])> = std::iter::repeat_n((GROUP, &b"g"[..]), MAX_VALUES + 1).collect();
        for bad in [
            &[(GROUP, &b"devs"[..])][..],
            &[(UID, b"1")],
            &[("impersonate-extra-a", b"x")],
            &[(USER, b"\xff\xfe")],
            &[(USER, b"a"), ("impersonate-extra-%zz", b"x")],
            &[&[(USER, &b"a"[..])][..], &many].concat(),
        ] {
            assert_eq!(act(&Identity::admin(), bad).unwrap_err().code, 400, "{:?}", bad.first());
        }
        assert_eq!(act(&bot(), &[]).unwrap().name, "bot");
    }
}
