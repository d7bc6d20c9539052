//! Each ServiceAccount can do its action, and nothing else.

use pawl_api::k8s::{CLUSTER_ROLE, SERVICE_ACCOUNT};
use pawl_api::remedy::Action;
use pawl_machines::remedy::action::{definition, report::Outcome};
use serde_json::{Value, json};

use crate::world::{World, order};

/// What nobody who carries out an action may do: verb, group, resource.
const NEVER: [(&str, &str, &str); 40] = [
    ("create", "", "pods"),
    ("create", "", "pods/exec"),
    ("create", "", "pods/attach"),
    ("create", "", "pods/portforward"),
    ("get", "", "pods/log"),
    ("deletecollection", "", "pods"),
    ("update", "", "pods"),
    ("list", "", "secrets"),
    ("watch", "", "secrets"),
    ("create", "", "secrets"),
    ("delete", "", "secrets"),
    ("create", "", "serviceaccounts"),
    ("create", "", "serviceaccounts/token"),
    ("impersonate", "", "serviceaccounts"),
    ("impersonate", "", "users"),
    ("impersonate", "", "groups"),
    ("create", "", "namespaces"),
    ("delete", "", "namespaces"),
    ("create", "", "nodes"),
    ("delete", "", "nodes"),
    ("update", "", "nodes"),
    ("get", "", "nodes/proxy"),
    ("delete", "", "persistentvolumes"),
    ("list", "", "configmaps"),
    ("deletecollection", "apps", "deployments"),
    ("update", "apps", "deployments"),
    ("patch", "apps", "replicasets"),
    ("patch", "apps", "deployments/status"),
    ("create", "rbac.authorization.k8s.io", "roles"),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    ("bind", "rbac.authorization.k8s.io", "clusterroles"),
    ("escalate", "rbac.authorization.k8s.io", "clusterroles"),
    ("create", "admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("delete", "admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("create", "apiextensions.k8s.io", "customresourcedefinitions"),
    ("get", "kubernetesexecution.kubernaut.ai", "kubernetesexecutions"),
    ("create", "kubernetesexecution.kubernaut.ai", "kubernetesexecutions"),
    ("create", "pawl.dev", "approvals"),
    ("patch", "coordination.k8s.io", "leases"),
    ("create", "authorization.k8s.io", "subjectaccessreviews"),
];

fn allowed(world: &World, action: Action, (verb, group, resource): (&str, &str, &str)) -> bool {
    let namespace = &world.executor.namespace;
    let name = action.service_account(&world.executor.service_account_prefix);
    let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
        "user": format!("system:serviceaccount:{namespace}:{name}"),
        "groups": ["system:serviceaccounts", format!("system:serviceaccounts:{namespace}"), "system:authenticated"],
        "resourceAttributes": {"verb": verb, "group": group, "resource": resource, "subresource": part,
            "namespace": "shop", "name": "x"}}});
    let (code, answer) = world.send("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", &review);
    assert_eq!(code, 201, "{answer}");
    answer["status"]["allowed"] == true
}

/// Everything that some action may do.
fn all_rights(action: Action) -> Vec<(&'static str, &'static str, &'static str)> {
    let mut each = Vec::new();
    for rule in definition(action).rules() {
        let verbs = rule.verbs.iter();
        each.extend(
            verbs.flat_map(|verb| rule.resources.iter().map(|resource| (*verb, rule.group, *resource))),
        );
    }
    each
}

#[tokio::test]
async fn each_account_may_do_its_action_and_neither_the_forty_others_nor_what_other_actions_do() {
    let world = World::new();
    let everybody: Vec<_> = Action::ALL.iter().flat_map(|action| all_rights(*action)).collect();
    for action in Action::ALL {
        let own = all_rights(*action);
        for right in &own {
            assert!(allowed(&world, *action, *right), "{action} may not {right:?}");
        }
        for right in NEVER {
            assert!(!everybody.contains(&right), "{right:?} is needed by somebody");
            assert!(!allowed(&world, *action, right), "{action} may {right:?}");
        }
        for right in everybody.iter().filter(|right| !own.contains(right)) {
            assert!(!allowed(&world, *action, *right), "{action} may {right:?}");
        }
    }
}

#[tokio::test]
async fn a_missing_account_and_each_missing_verb_are_told() {
    let world = World::new();
    let scale =
        order("scale_deployment", json!({"deployment": "web", "namespace": "shop", "replicas": 1}), 1);
    assert!(world.access(&scale).await.missing.is_empty());
    let name = "kubernaut-action-scale-deployment";
    let rules = json!({"rules": [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]}]});
    world.patch(&CLUSTER_ROLE, name, "", &rules);
    let access = world.access(&scale).await;
    assert!(access.exists);
    assert_eq!(access.missing, ["patch deployments.apps in shop"]);
    world.send("DELETE", &SERVICE_ACCOUNT.path(Some(&world.executor.namespace), Some(name)), &Value::Null);
    assert!(!world.access(&scale).await.exists);
}

#[tokio::test]
async fn an_account_without_the_right_fails_and_says_what_it_may_not() {
    let world = World::new();
    world.put(&pawl_api::k8s::NODE, json!({"metadata": {"name": "n"}}));
    let cordon = order("cordon_node", json!({"node": "n"}), 1);
    let rules = json!({"rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]});
    world.patch(&CLUSTER_ROLE, "kubernaut-action-cordon-node", "", &rules);
    let tried = world.try_out(&cordon).await;
    assert!(!tried.success && tried.errors[0].contains("cannot patch"), "{tried:?}");
    let report = world.act(&cordon).await;
    assert_eq!(report.outcome, Outcome::Failed);
    assert!(report.message.contains("cannot patch resource \"nodes\""), "{report:?}");
}
