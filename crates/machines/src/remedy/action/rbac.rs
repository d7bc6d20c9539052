//! What must a cluster be given so that actions can be carried out, each with its own rights and no others?
//!
//! ```text
//! Namespace kubernaut-executor
//! per action   ServiceAccount ◀── binding ──▶ ClusterRole with the verbs that its registry entry names
//! ```
//! A role is bound everywhere, or, for actions on namespaced objects, in the namespaces that are named and nowhere else.
//! None has rights on Pawl's own kinds, on rights, or on Secrets (but `update_secret`).

use pawl_api::remedy::Action;
use serde_json::{Value, json};

use super::definition;
use super::executor::Executor;

const RBAC: &str = "rbac.authorization.k8s.io";

/// All manifests, in the order in which they must be applied. Without namespaces, actions may be done in all of them.
pub fn manifests(executor: &Executor, namespaces: &[String]) -> Vec<Value> {
    let mut manifests = vec![namespace(executor)];
    for action in Action::ALL {
        manifests.extend(of(*action, executor, namespaces));
    }
    manifests
}

/// What a controller reads to look at what actions work on: group, resource and verb.
pub fn looking() -> Vec<(&'static str, &'static str, &'static str)> {
    let mut looking = vec![("", "namespaces", "get"), ("", "nodes", "list"), ("", "pods", "list")];
    for action in Action::ALL {
        for rule in definition(*action).rules() {
            let verbs = rule.verbs.iter().filter(|verb| matches!(**verb, "get" | "list"));
            let each =
                verbs.flat_map(|verb| rule.resources.iter().map(|resource| (rule.group, *resource, *verb)));
            looking.extend(each);
        }
    }
    looking.sort_unstable();
    looking.dedup();
    looking
}

/// What a controller does where actions are carried out, and nowhere else: it tries them with tokens of their accounts.
pub fn controlling(executor: &Executor, controller: &Value) -> [Value; 2] {
    let metadata = json!({"name": "pawl", "namespace": executor.namespace,
        "labels": {"app.kubernetes.io/part-of": "pawl"}});
    let rules = json!([{"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]}]);
    [
        json!({"apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": metadata, "rules": rules}),
        json!({"apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "pawl"}, "subjects": [controller]}),
    ]
}

/// The namespace in which actions are carried out.
pub fn namespace(executor: &Executor) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": executor.namespace, "labels": {
        "app.kubernetes.io/part-of": "pawl",
        "pod-security.kubernetes.io/enforce": "restricted",
    }}})
}

/// The ServiceAccount of one action, what it may do, and where.
fn of(action: Action, executor: &Executor, namespaces: &[String]) -> Vec<Value> {
    let definition = definition(action);
    let name = action.service_account(&executor.service_account_prefix);
    let labels =
        json!({"app.kubernetes.io/part-of": "pawl", pawl_api::remedy::labels::ACTION: action.as_str()});
    let rule = |rule: &super::Rule| json!({"apiGroups": [rule.group], "resources": rule.resources, "verbs": rule.verbs});
    let rules: Vec<Value> = definition.rules().iter().map(rule).collect();
    let role_ref = json!({"apiGroup": RBAC, "kind": "ClusterRole", "name": name});
    let subjects = json!([{"kind": "ServiceAccount", "name": name, "namespace": executor.namespace}]);
    let mut manifests = vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": executor.namespace, "labels": labels}}),
        json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole",
            "metadata": {"name": name, "labels": labels}, "rules": rules}),
    ];
    if definition.is_cluster_scoped() || namespaces.is_empty() {
        manifests.push(json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {"name": name, "labels": labels}, "roleRef": role_ref, "subjects": subjects}));
        return manifests;
    }
    manifests.extend(namespaces.iter().map(|namespace| {
        json!({"apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "roleRef": role_ref, "subjects": subjects})
    }));
    manifests
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(manifests: &[Value], kind: &str) -> usize {
        manifests.iter().filter(|manifest| manifest["kind"] == kind).count()
    }

    #[test]
    fn every_action_has_an_account_and_a_role_of_its_own() {
        let all = manifests(&Executor::default(), &[]);
        for kind in ["ServiceAccount", "ClusterRole", "ClusterRoleBinding"] {
            assert_eq!(count(&all, kind), Action::ALL.len(), "{kind}");
        }
        assert_eq!(all[1]["metadata"]["name"], "kubernaut-action-scale-deployment");
    }

    #[test]
    fn with_namespaces_only_actions_on_nodes_are_bound_everywhere() {
        let some = manifests(&Executor::default(), &["shop".to_owned(), "ops".to_owned()]);
        let everywhere = some.iter().filter(|manifest| manifest["kind"] == "ClusterRoleBinding");
        let everywhere: Vec<&str> = everywhere.filter_map(|one| one["metadata"]["name"].as_str()).collect();
        let nodes = ["cordon-node", "uncordon-node", "drain-node", "taint-node", "untaint-node"];
        assert_eq!(everywhere, nodes.map(|action| format!("kubernaut-action-{action}")));
        assert_eq!(count(&some, "RoleBinding"), 2 * (Action::ALL.len() - nodes.len()));
    }
}
