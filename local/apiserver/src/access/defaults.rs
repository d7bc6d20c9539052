//! Which roles does every cluster begin with, and which Service?
//!
//! Kubernetes' own, as far as they are about what is served here. They are made when they are absent, and then belong
//! to whoever may change them.

use serde_json::{Value, json};

use super::identity::{AUTHENTICATED, MASTERS, UNAUTHENTICATED};
use super::policy::GROUP;

const READ: &str = "get list watch";
const WRITE: &str = "create delete deletecollection patch update";
const ALL: &str = "create delete deletecollection get list patch update watch";
/// The group without a name.
const CORE: &str = "";
const MONITORING: &str = "system:monitoring";

/// Where each is posted, and what: roles before the bindings that name them.
pub(crate) fn objects() -> Vec<(&'static str, Value)> {
    const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let roles = plain_roles().into_iter().chain(aggregated_roles()).map(|role| (ROLES, role));
    let bindings = bindings().into_iter().map(|binding| (BINDINGS, binding));
    roles.chain(bindings).chain([("/api/v1/namespaces/default/services", own_service())]).collect()
}

/// The server's own name in the cluster. Clients look for it as a sign of life; nothing forwards packets to it here.
fn own_service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443, "targetPort": 6_443}]},
    })
}

fn plain_roles() -> Vec<Value> {
    const ALIVE: &str = "/healthz /livez /readyz /version /version/";
    let discovery = format!("/api /api/* /apis /apis/* /openapi /openapi/* {ALIVE}");
    let health = "/healthz /healthz/* /livez /livez/* /metrics /readyz /readyz/*";
    let own_rights = "selfsubjectaccessreviews selfsubjectrulesreviews";
    vec![
        role("cluster-admin", &[rule("*", "*", "*"), urls("*", "*")]),
        role("system:discovery", &[urls("get", &discovery)]),
        role("system:public-info-viewer", &[urls("get", ALIVE)]),
        role("system:monitoring", &[urls("get", health)]),
        role(
            "system:basic-user",
            &[
                rule("create", "authorization.k8s.io", own_rights),
                rule("create", "authentication.k8s.io", "selfsubjectreviews"),
            ],
        ),
        role(
            "system:auth-delegator",
            &[
                rule("create", "authentication.k8s.io", "tokenreviews"),
                rule("create", "authorization.k8s.io", "subjectaccessreviews"),
            ],
        ),
    ]
}

/// `admin`, `edit` and `view` are whatever carries their labels: here the rules for built-in kinds, later what others
/// add for theirs. Their stored rules are for people; what counts is what the labels select.
fn aggregated_roles() -> Vec<Value> {
    let (view, edit, admin) = (view_rules(), edit_rules(), admin_rules());
    let parts = [
        ("system:aggregate-to-view", "view", &view),
        ("system:aggregate-to-edit", "edit", &edit),
        ("system:aggregate-to-admin", "admin", &admin),
    ];
    let parts = parts.map(|(name, to, rules)| labelled(role(name, rules), to));
    let edits = [edit, view.clone()].concat();
    let wholes = [
        ("view", Some("edit"), view),
        ("edit", Some("admin"), edits.clone()),
        ("admin", None, [admin, edits].concat()),
    ];
    let wholes = wholes.map(|(name, into, rules)| {
        let mut whole = role(name, &rules);
        let label = aggregate_label(name);
        if let Some(whole) = whole.as_object_mut() {
            let selectors = json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
            whole.insert("aggregationRule".into(), selectors);
        }
        match into {
            Some(into) => labelled(whole, into),
            None => whole,
        }
    });
    parts.into_iter().chain(wholes).collect()
}

fn view_rules() -> Vec<Value> {
    let core = "configmaps endpoints events namespaces namespaces/status persistentvolumeclaims \
        persistentvolumeclaims/status pods pods/log pods/status serviceaccounts services services/status";
    let apps = "controllerrevisions daemonsets daemonsets/status deployments deployments/scale \
        deployments/status replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale \
        statefulsets/status";
    vec![
        rule(READ, CORE, core),
        rule(READ, "apps", apps),
        rule(READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
        rule(READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
        rule(READ, "events.k8s.io", "events"),
        rule(READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
    ]
}

fn edit_rules() -> Vec<Value> {
    let core = "configmaps events persistentvolumeclaims pods secrets serviceaccounts services";
    let apps = "daemonsets deployments deployments/scale replicasets replicasets/scale statefulsets \
        statefulsets/scale";
    vec![
        rule(READ, CORE, "secrets"),
        rule("impersonate", CORE, "serviceaccounts"),
        rule(WRITE, CORE, core),
        rule("create", CORE, "serviceaccounts/token"),
        rule(WRITE, "apps", apps),
        rule(WRITE, "autoscaling", "horizontalpodautoscalers"),
        rule(WRITE, "batch", "cronjobs jobs"),
        rule(ALL, "coordination.k8s.io", "leases"),
        rule(WRITE, "policy", "poddisruptionbudgets"),
    ]
}

fn admin_rules() -> Vec<Value> {
    vec![
        rule("create", "authorization.k8s.io", "localsubjectaccessreviews"),
        rule(ALL, GROUP, "rolebindings roles"),
    ]
}

fn bindings() -> Vec<Value> {
    let bound: [(&str, &[&str]); 5] = [
        ("cluster-admin", &[MASTERS]),
        ("system:basic-user", &[AUTHENTICATED]),
        ("system:discovery", &[AUTHENTICATED]),
        ("system:monitoring", &[MONITORING]),
        ("system:public-info-viewer", &[AUTHENTICATED, UNAUTHENTICATED]),
    ];
    let bound = bound.into_iter().map(|(role, groups)| {
        let subjects: Vec<Value> =
            groups.iter().map(|group| json!({"apiGroup": GROUP, "kind": "Group", "name": group})).collect();
        json!({
            "metadata": metadata(role),
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
            "subjects": subjects,
        })
    });
    bound.collect()
}

fn role(name: &str, rules: &[Value]) -> Value {
    let metadata = metadata(name);
    json!({"metadata": metadata, "rules": rules})
}

fn metadata(name: &str) -> Value {
    json!({
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    })
}

fn labelled(mut role: Value, to: &str) -> Value {
    if let Some(labels) = role.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.insert(aggregate_label(to), "true".into());
    }
    role
}

fn aggregate_label(to: &str) -> String {
    format!("rbac.authorization.k8s.io/aggregate-to-{to}")
}

/// Of one API group; verbs and resources are words with spaces between them.
fn rule(verbs: &str, group: &str, resources: &str) -> Value {
    json!({"apiGroups": [group], "resources": words(resources), "verbs": words(verbs)})
}

fn urls(verbs: &str, urls: &str) -> Value {
    json!({"nonResourceURLs": words(urls), "verbs": words(verbs)})
}

fn words(words: &str) -> Vec<&str> {
    words.split_whitespace().collect()
}

#[cfg(test)]
mod tests {
    use crate::access::identity::Identity;
    use crate::access::rules::Attributes;
    use crate::access::tests::{guarded, post};
    use serde_json::json;

    fn asked(verb: &str, resource: &str) -> Attributes {
        let (group, resource) = resource.split_once(':').unwrap_or(("", resource));
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Attributes::Resource {
            verb: verb.into(),
            group: group.into(),
            resource: resource.into(),
            subresource: subresource.into(),
            namespace: "default".into(),
            name: "x".into(),
        }
    }

    #[test]
    fn the_roles_of_people_include_each_other_and_stop_where_kubernetes_stops() {
        let server = guarded();
        for role in ["view", "edit", "admin", "cluster-admin"] {
            let binding = json!({"metadata": {"name": role}, "roleRef": {"kind": "ClusterRole", "name": role},
                                 "subjects": [{"kind": "User", "name": role}]});
            let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
            assert_eq!(post(&server, path, &binding).0, 201);
        }
        let policy = server.core().policy();
        for (verb, resource, least) in [
            ("list", "pods", 0),
            ("get", "pods/log", 0),
            ("watch", "apps:deployments", 0),
            ("get", "secrets", 1),
            ("create", "pods", 1),
            ("patch", "apps:deployments/scale", 1),
            ("create", "serviceaccounts/token", 1),
            ("create", "rbac.authorization.k8s.io:rolebindings", 2),
            ("update", "pods/status", 3),
            ("escalate", "rbac.authorization.k8s.io:roles", 3),
            ("create", "example.com:widgets", 3),
        ] {
            for (at, name) in ["view", "edit", "admin", "cluster-admin"].into_iter().enumerate() {
                let who = Identity { name: name.into(), ..Identity::default() };
                let allowed = policy.allows(&who, &asked(verb, resource)).is_some();
                assert_eq!(allowed, at >= least, "{name}: {verb} {resource}");
            }
        }
    }

    #[test]
    fn the_stored_rules_of_an_aggregated_role_are_what_it_comes_to() {
        let server = guarded();
        let policy = server.core().policy();
        for name in ["view", "edit", "admin"] {
            let stored = server.core().store.get("clusterroles.rbac.authorization.k8s.io", name).unwrap();
            let stored = crate::access::policy::rules(&stored.value());
            let effective = policy.role_rules(true, "", name).unwrap();
            assert_eq!(stored.len(), effective.len(), "{name}");
            assert!(stored.iter().all(|rule| effective.contains(rule)), "{name}");
        }
    }

    #[test]
    fn a_default_role_that_was_changed_stays_as_it_is() {
        let server = guarded();
        let before = server.revision();
        let again = super::objects();
        assert!(again.iter().all(|(path, object)| post(&server, path, object).0 == 409));
        assert_eq!(server.revision(), before);
    }
}
