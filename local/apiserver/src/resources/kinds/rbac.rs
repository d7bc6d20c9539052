//! What does Kubernetes fill into roles and bindings, and what does it refuse?

use serde_json::{Value, json};

use super::{Hooks, NONE, fill, items};
use crate::validation::FieldError;

const GROUP: &str = "rbac.authorization.k8s.io";

pub(crate) const ROLE: Hooks = Hooks { validate: |object, _| rules(object, true), ..NONE };

pub(crate) const CLUSTER_ROLE: Hooks = Hooks { validate: |object, _| rules(object, false), ..NONE };

pub(crate) const BINDING: Hooks =
    Hooks { default, validate: |object, old| binding(object, old, &["ClusterRole", "Role"]), ..NONE };

pub(crate) const CLUSTER_BINDING: Hooks =
    Hooks { default, validate: |object, old| binding(object, old, &["ClusterRole"]), ..NONE };

fn default(object: &mut Value) {
    if let Some(role) = object.get_mut("roleRef") {
        fill(role, "apiGroup", json!(GROUP));
    }
    for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        if matches!(subject["kind"].as_str(), Some("User" | "Group")) {
            fill(subject, "apiGroup", json!(GROUP));
        }
    }
}

fn rules(role: &Value, namespaced: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (at, rule) in items(role, "rules").iter().enumerate() {
        let field = |key: &str| format!("rules[{at}].{key}");
        let lacks = |key: &str| items(rule, key).is_empty();
        if lacks("verbs") {
            errors.push(FieldError::required(field("verbs"), "verbs must contain at least one value"));
        }
        if !lacks("nonResourceURLs") {
            let (urls, key) = (&rule["nonResourceURLs"], field("nonResourceURLs"));
            if namespaced {
                let why = "namespaced rules cannot apply to non-resource URLs";
                errors.push(FieldError::invalid(&key, urls, why));
            }
            if !(lacks("apiGroups") && lacks("resources") && lacks("resourceNames")) {
                let why = "rules cannot apply to both regular resources and non-resource URLs";
                errors.push(FieldError::invalid(&key, urls, why));
            }
            continue;
        }
        if lacks("apiGroups") {
            let why = "resource rules must supply at least one api group";
            errors.push(FieldError::required(field("apiGroups"), why));
        }
        if lacks("resources") {
            errors.push(FieldError::required(
                field("resources"),
                "resource rules must supply at least one resource",
            ));
        }
    }
    errors
}

fn binding(object: &Value, old: Option<&Value>, kinds: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let role = &object["roleRef"];
    if role["apiGroup"] != GROUP {
        errors.push(FieldError::not_supported("roleRef.apiGroup", &role["apiGroup"], &[GROUP]));
    }
    if !kinds.iter().any(|kind| role["kind"] == *kind) {
        errors.push(FieldError::not_supported("roleRef.kind", &role["kind"], kinds));
    }
    let name = role["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    } else if name.contains(['/', '%']) || matches!(name, "." | "..") {
        errors.push(FieldError::invalid("roleRef.name", &role["name"], "must be the name of a role"));
    }
    for (at, subject) in items(object, "subjects").iter().enumerate() {
        errors.extend(subject_errors(subject, &format!("subjects[{at}]"), kinds.len() == 1));
    }
    if old.is_some_and(|old| old["roleRef"] != object["roleRef"]) {
        errors.push(FieldError::invalid("roleRef", &object["roleRef"], "cannot change roleRef"));
    }
    errors
}

fn subject_errors(subject: &Value, field: &str, cluster: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let empty = |key: &str| subject[key].as_str().unwrap_or_default().is_empty();
    if empty("name") {
        errors.push(FieldError::required(format!("{field}.name"), ""));
    }
    let other_group =
        |group: &str| FieldError::not_supported(format!("{field}.apiGroup"), &subject["apiGroup"], &[group]);
    match subject["kind"].as_str().unwrap_or_default() {
        "ServiceAccount" => {
            if !empty("apiGroup") {
                errors.push(other_group(""));
            }
            if cluster && empty("namespace") {
                errors.push(FieldError::required(format!("{field}.namespace"), ""));
            }
        }
        "User" | "Group" if subject["apiGroup"] != GROUP => errors.push(other_group(GROUP)),
        "User" | "Group" => {}
        _ => {
            let kinds = ["Group", "ServiceAccount", "User"];
            errors.push(FieldError::not_supported(format!("{field}.kind"), &subject["kind"], &kinds));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(hooks: &Hooks, mut object: Value) -> Vec<String> {
        (hooks.default)(&mut object);
        (hooks.validate)(&object, None).into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn a_rule_that_says_nothing_is_refused() {
        let whole = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        let urls = json!({"verbs": ["get"], "nonResourceURLs": ["/x"]});
        for (rule, namespaced, everywhere) in [
            (whole, &[][..], &[][..]),
            (json!({}), &["verbs", "apiGroups", "resources"], &["verbs", "apiGroups", "resources"]),
            (json!({"verbs": ["get"], "apiGroups": [""]}), &["resources"], &["resources"]),
            (urls, &["nonResourceURLs"], &[]),
            (
                json!({"verbs": ["get"], "resources": ["pods"], "nonResourceURLs": ["/x"]}),
                &["nonResourceURLs", "nonResourceURLs"],
                &["nonResourceURLs"],
            ),
        ] {
            let role = json!({"rules": [rule]});
            let named = |keys: &[&str]| keys.iter().map(|key| format!("rules[0].{key}")).collect::<Vec<_>>();
            assert_eq!(wrong(&ROLE, role.clone()), named(namespaced), "{role}");
            assert_eq!(wrong(&CLUSTER_ROLE, role.clone()), named(everywhere), "{role}");
        }
    }

    #[test]
    fn a_binding_names_a_role_and_subjects_of_known_kinds() {
        let bind = |role: Value, subject: Value| json!({"roleRef": role, "subjects": [subject]});
        let user = json!({"kind": "User", "name": "a"});
        let account = json!({"kind": "ServiceAccount", "name": "a"});
        let role = json!({"kind": "Role", "name": "r"});
        let cluster_role = json!({"kind": "ClusterRole", "name": "r"});
        for (object, local, everywhere) in [
            (bind(role.clone(), user.clone()), &[][..], &["roleRef.kind"][..]),
            (bind(cluster_role.clone(), account), &[], &["subjects[0].namespace"]),
            (
                bind(json!({"kind": "Role", "name": "a/b"}), user.clone()),
                &["roleRef.name"],
                &["roleRef.kind", "roleRef.name"],
            ),
            (bind(json!({"kind": "ClusterRole"}), user.clone()), &["roleRef.name"], &["roleRef.name"]),
            (bind(json!({"kind": "Pod", "name": "r"}), user), &["roleRef.kind"], &["roleRef.kind"]),
            (
                bind(cluster_role.clone(), json!({"kind": "Robot", "name": "x"})),
                &["subjects[0].kind"],
                &["subjects[0].kind"],
            ),
            (bind(cluster_role, json!({"kind": "Group"})), &["subjects[0].name"], &["subjects[0].name"]),
        ] {
            assert_eq!(wrong(&BINDING, object.clone()), local, "{object}");
            assert_eq!(wrong(&CLUSTER_BINDING, object.clone()), everywhere, "{object}");
        }
    }
}
