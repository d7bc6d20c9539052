use super::*;
use crate::deploy::testing::{Case, key};
use crate::object::Key;
use crate::plan::Precondition;
use pawl_api::deploy::{annotations, deploy_item, labels, types};
use pawl_api::k8s::NAMESPACE;
use pawl_api::pawl::labels::ALLOW_FROM;
use serde_json::json;
use std::collections::BTreeMap;

/// An item `i` that deploys these.
#[expect(clippy::needless_pass_by_value, reason = "it is written in place, as json!")]
fn item(config: Value) -> Case {
    let mut case = Case::empty();
    case.cluster.put(json!({"kind": "Namespace", "metadata": {"name": "other"}}));
    case.cluster.put(json!({"kind": "DeployItem", "metadata": {"name": "i"},
        "spec": {"type": types::MANIFEST, "config": config}}));
    case.settle();
    case
}

fn run(case: &mut Case) -> Value {
    let operation = json!({"metadata": {"annotations": {annotations::OPERATION: "reconcile"}}});
    case.cluster.edit(&deploy_item::KIND, &key("i"), &operation);
    case.settle();
    status(case)
}

fn status(case: &Case) -> Value {
    case.cluster.get(&deploy_item::KIND, &key("i")).unwrap()["status"].clone()
}

fn set(case: &mut Case, config: &Value) {
    case.cluster.edit(&deploy_item::KIND, &key("i"), &json!({"spec": {"config": null}}));
    case.cluster.edit(&deploy_item::KIND, &key("i"), &json!({"spec": {"config": config}}));
}

fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": value}})
}

fn manifests(list: Vec<(&str, Value)>) -> Value {
    let entries: Vec<Value> =
        list.into_iter().map(|(policy, manifest)| json!({"policy": policy, "manifest": manifest})).collect();
    json!({"apiVersion": "manifest.deployer.landscaper.gardener.cloud/v1alpha2", "kind": "ProviderConfiguration",
        "manifests": entries})
}

fn found(case: &Case, name: &str) -> Option<Value> {
    case.cluster.get(&CONFIG_MAP, &key(name))
}

fn delete(case: &mut Case) {
    case.cluster.delete(&deploy_item::KIND, &key("i"), "Background");
    case.settle();
}

#[test]
fn objects_are_applied_changed_and_taken_down() {
    let mut case = item(manifests(vec![("manage", config_map("a", "1")), ("manage", config_map("b", "1"))]));
    assert_eq!(run(&mut case)["phase"], "Succeeded");
    assert_eq!(found(&case, "a").unwrap()["data"]["k"], "1");
    assert_eq!(found(&case, "a").unwrap()["metadata"]["labels"][labels::DEPLOY_ITEM], "i");
    set(&mut case, &manifests(vec![("manage", config_map("a", "2"))]));
    let after = run(&mut case);
    assert_eq!(after["phase"], "Succeeded");
    assert_eq!(found(&case, "a").unwrap()["data"]["k"], "2");
    assert!(found(&case, "b").is_none(), "what left the list is deleted");
    assert_eq!(after["providerStatus"]["managedResources"].as_array().unwrap().len(), 1);
    delete(&mut case);
    assert!(found(&case, "a").is_none());
    assert!(case.cluster.get(&deploy_item::KIND, &key("i")).is_none());
}

#[test]
fn i4_what_will_be_made_is_written_down_before_it_is_made() {
    let mut case = item(manifests(vec![("manage", config_map("a", "1"))]));
    let operation = json!({"metadata": {"annotations": {annotations::OPERATION: "reconcile"}}});
    case.cluster.edit(&deploy_item::KIND, &key("i"), &operation);
    let machine = case.machines[1].clone();
    while found(&case, "a").is_none() {
        let before = status(&case)["providerStatus"]["managedResources"].clone();
        case.cluster.step(&machine, &deploy_item::KIND, &key("i"));
        if found(&case, "a").is_some() {
            assert_eq!(before[0]["name"], "a");
        }
    }
}

#[test]
fn policies_say_what_may_be_done_with_an_object() {
    let list = |value: &str| {
        manifests(vec![
            ("keep", config_map("kept", value)),
            ("ignore", config_map("ignored", value)),
            ("immutable", config_map("immutable", value)),
            ("fallback", config_map("theirs", value)),
            ("fallback", config_map("fallback", value)),
        ])
    };
    let mut case = item(list("1"));
    case.cluster.put(json!({"kind": "ConfigMap", "metadata": {"name": "theirs"}, "data": {"k": "0"}}));
    assert_eq!(run(&mut case)["phase"], "Succeeded");
    set(&mut case, &list("2"));
    assert_eq!(run(&mut case)["phase"], "Succeeded");
    let value =
        |name: &str| found(&case, name).map(|object| object["data"]["k"].as_str().unwrap().to_owned());
    let values: BTreeMap<&str, Option<String>> =
        ["kept", "ignored", "immutable", "theirs", "fallback"].map(|name| (name, value(name))).into();
    let expect = [
        ("kept", Some("2")),
        ("ignored", None),
        ("immutable", Some("1")),
        ("theirs", Some("0")),
        ("fallback", Some("2")),
    ];
    assert_eq!(values, expect.map(|(name, value)| (name, value.map(str::to_owned))).into());
    delete(&mut case);
    assert!(
        found(&case, "kept").is_some()
            && found(&case, "immutable").is_none()
            && found(&case, "fallback").is_none()
    );
}

#[test]
fn an_item_is_deployed_when_its_workloads_are_ready() {
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let mut case = item(manifests(vec![("manage", deployment)]));
    assert_eq!(run(&mut case)["phase"], "Progressing");
    let ready = json!({"status": {"observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": 2}});
    case.cluster.edit(&DEPLOYMENT, &key("web"), &ready);
    case.settle();
    assert_eq!(status(&case)["phase"], "Succeeded");
}

#[test]
fn custom_checks_and_exports_look_at_what_is_there() {
    let mut config = manifests(vec![("manage", config_map("a", "1"))]);
    let place = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a"});
    config["readinessChecks"] = json!({"custom": [{"name": "set", "resourceSelector": [place],
        "requirements": [{"jsonPath": ".data.state", "operator": "==", "values": [{"value": "done"}]}]}]});
    config["exports"] = json!({"exports": [{"key": "value", "jsonPath": ".data.k", "fromResource": place}]});
    let mut case = item(config);
    assert_eq!(run(&mut case)["phase"], "Progressing");
    case.cluster.edit(&CONFIG_MAP, &key("a"), &json!({"data": {"state": "done"}}));
    case.settle();
    let ended = status(&case);
    assert_eq!(ended["phase"], "Succeeded");
    assert!(ended["exportRef"]["name"].is_string());
}

#[test]
fn bad_input_is_told_all_at_once_and_hinders_no_removal() {
    let list = vec![
        ("manage", json!({"kind": "ConfigMap"})),
        ("manage", json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}})),
    ];
    let mut case = item(manifests(list));
    let ended = run(&mut case);
    assert_eq!(ended["phase"], "Failed");
    assert_eq!(
        ended["lastError"]["message"],
        "spec.config.manifests[0]: apiVersion, kind and metadata.name are needed; \
         spec.config.manifests[1]: the kind Widget of example.com/v1 is not known there"
    );
    delete(&mut case);
    assert!(case.cluster.get(&deploy_item::KIND, &key("i")).is_none());
}

#[test]
fn whose_power_an_item_acts_in_its_own_namespace_unless_another_allows_it() {
    let elsewhere =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "other"}});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}});
    let mut case = item(manifests(vec![("manage", elsewhere.clone()), ("manage", role)]));
    let ended = run(&mut case);
    assert_eq!(ended["lastError"]["reason"], "NamespaceNotAllowed");
    let message = ended["lastError"]["message"].as_str().unwrap();
    assert!(
        message.contains("not labelled pawl.dev/allow-from: n") && message.contains("ClusterRole"),
        "{message}"
    );
    case.cluster.edit(
        &NAMESPACE,
        &Key::new(None, "other"),
        &json!({"metadata": {"labels": {ALLOW_FROM: "n"}}}),
    );
    set(&mut case, &manifests(vec![("manage", elsewhere)]));
    assert_eq!(run(&mut case)["phase"], "Succeeded");
}

#[test]
fn what_somebody_else_made_is_never_taken_down_by_a_fallback() {
    let mut case = item(manifests(vec![("fallback", config_map("theirs", "1"))]));
    case.cluster.put(json!({"kind": "ConfigMap", "metadata": {"name": "theirs"}, "data": {"k": "0"}}));
    assert_eq!(run(&mut case)["phase"], "Succeeded");
    delete(&mut case);
    assert_eq!(found(&case, "theirs").unwrap()["data"]["k"], "0");
}

#[test]
fn an_immutable_object_that_joins_later_is_made_too() {
    let mut case = item(manifests(vec![("manage", config_map("a", "1"))]));
    assert_eq!(run(&mut case)["phase"], "Succeeded");
    set(&mut case, &manifests(vec![("manage", config_map("a", "1")), ("immutable", config_map("b", "1"))]));
    assert_eq!(run(&mut case)["phase"], "Succeeded");
    assert_eq!(found(&case, "b").unwrap()["data"]["k"], "1");
}

#[test]
fn update_strategies_differ_in_whose_word_counts() {
    for (strategy, expect) in [("update", "2"), ("patch", "2"), ("mergeOverwrite", "2"), ("merge", "theirs")]
    {
        let mut config = manifests(vec![(
            "manage",
            json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a"}, "data": {"k": "2", "new": "1"}}),
        )]);
        config["updateStrategy"] = strategy.into();
        let mut case = item(config);
        case.cluster.put(
            json!({"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "theirs", "own": "1"}}),
        );
        assert_eq!(run(&mut case)["phase"], "Succeeded", "{strategy}");
        let data = found(&case, "a").unwrap()["data"].clone();
        assert_eq!(
            (&data["k"], &data["new"], &data["own"]),
            (&json!(expect), &json!("1"), &json!("1")),
            "{strategy}"
        );
    }
}

/// Which objects were written, in order, as the requests say.
fn order(case: &Case) -> Vec<String> {
    use crate::view::View as _;
    let kinds = [pawl_api::k8s::CUSTOM_RESOURCE_DEFINITION, pawl_api::k8s::CLUSTER_ROLE, CONFIG_MAP];
    let mut all: Vec<(u64, String)> = kinds
        .iter()
        .flat_map(|kind| case.cluster.world.list(kind, None))
        .map(|object| (object.resource_version().parse().unwrap(), object.name().to_owned()))
        .collect();
    all.sort();
    all.into_iter().map(|(_, name)| name).collect()
}

#[test]
fn definitions_come_first_then_what_has_no_namespace_then_the_rest() {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "role"}});
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets"}, "versions": [{"name": "v1", "served": true,
                "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let mut case = Case::empty();
    case.cluster.put(json!({"kind": "Namespace", "metadata": {"name": "pawl-system"}}));
    let list = vec![("manage", config_map("map", "1")), ("manage", role), ("manage", crd)];
    case.cluster.put(json!({"kind": "DeployItem", "metadata": {"name": "i", "namespace": "pawl-system",
        "annotations": {annotations::OPERATION: "reconcile"}},
        "spec": {"type": types::MANIFEST, "config": manifests(list)}}));
    case.settle();
    assert_eq!(order(&case), ["widgets.example.com", "role", "map"]);
    let kept = case.cluster.get(&deploy_item::KIND, &Key::new(Some("pawl-system"), "i")).unwrap();
    let kept = Kept::of(kept["status"]["providerStatus"].as_object().unwrap());
    let down = steps::take_down(&kept.managed_resources.iter().collect::<Vec<_>>());
    let told = |step: &Step| match step {
        Step::Delete { target, .. } => format!("delete {}", target.key.name),
        Step::Confirm(Precondition::Gone(target)) => format!("gone {}", target.key.name),
        other @ Step::Create { .. }
        | other @ Step::Patch { .. }
        | other @ Step::Apply { .. }
        | other @ Step::Confirm(_)
        | other @ Step::Finalizer(_) => panic!("{other:?}"),
    };
    assert_eq!(
        down.iter().map(told).collect::<Vec<_>>(),
        [
            "delete map",
            "gone map",
            "delete role",
            "gone role",
            "delete widgets.example.com",
            "gone widgets.example.com"
        ]
    );
}

#[test]
fn a_check_selects_by_labels_among_what_the_item_deployed() {
    let labelled = |name: &str, app: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app": app}}, "data": {"k": "1"}})
    };
    let mut config = manifests(vec![("manage", labelled("a", "x")), ("manage", labelled("b", "y"))]);
    config["readinessChecks"] = json!({"custom": [{"name": "c",
        "labelSelector": {"apiVersion": "v1", "kind": "ConfigMap", "matchLabels": {"app": "x"}},
        "requirements": [{"jsonPath": ".data.ok", "operator": "exists"}]}]});
    let mut case = item(config);
    assert_eq!(run(&mut case)["phase"], "Progressing");
    case.cluster.edit(&CONFIG_MAP, &key("b"), &json!({"data": {"ok": "1"}}));
    case.settle();
    assert_eq!(status(&case)["phase"], "Progressing", "b is not selected");
    case.cluster.edit(&CONFIG_MAP, &key("a"), &json!({"data": {"ok": "1"}}));
    case.settle();
    assert_eq!(status(&case)["phase"], "Succeeded");
}

#[test]
fn an_export_may_lead_over_an_object_that_names_another() {
    let mut config = manifests(vec![(
        "manage",
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s"}}),
    )]);
    config["exports"] = json!({"exports": [{"key": "password", "jsonPath": ".metadata",
        "fromResource": {"apiVersion": "v1", "kind": "ConfigMap", "name": "s"},
        "fromObjectRef": {"apiVersion": "v1", "kind": "Secret", "jsonPath": ".data.p"}}]});
    let mut case = item(config);
    assert_eq!(run(&mut case)["phase"], "Progressing");
    case.cluster.put(json!({"kind": "Secret", "metadata": {"name": "s",
        "labels": {labels::DEPLOY_ITEM: "i", labels::DEPLOY_ITEM_NAMESPACE: "n"}}, "data": {"p": "eA=="}}));
    case.settle();
    assert_eq!(status(&case)["phase"], "Succeeded", "{:#}", status(&case));
}

#[test]
fn whose_power_nothing_is_exported_from_a_namespace_that_does_not_allow_it() {
    let mut config = manifests(vec![("manage", config_map("a", "1"))]);
    config["exports"] = json!({"exports": [{"key": "k", "jsonPath": ".data.p",
        "fromResource": {"apiVersion": "v1", "kind": "Secret", "name": "s", "namespace": "other"}}]});
    let mut case = item(config);
    case.cluster.put(
        json!({"kind": "Secret", "metadata": {"name": "s", "namespace": "other"}, "data": {"p": "eA=="}}),
    );
    run(&mut case);
    assert_eq!(status(&case)["phase"], "Progressing");
    assert!(status(&case).get("exportRef").is_none());
}

#[test]
fn the_objects_that_an_item_applies_are_locked() {
    use crate::view::View as _;
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let mut case = item(manifests(vec![("manage", deployment)]));
    run(&mut case);
    let held: Vec<String> = case
        .cluster
        .world
        .list(&crate::lock::LEASE, None)
        .iter()
        .map(|lease| lease.annotation(crate::lock::TARGET).unwrap().to_owned())
        .collect();
    assert!(held.iter().any(|target| target == "n/deployment/web"), "{held:?}");
    assert!(held.iter().any(|target| target == "item:n/none/i"), "{held:?}");
}

#[test]
fn what_is_deployed_does_not_move_to_another_cluster_by_itself() {
    let mut case = item(manifests(vec![("manage", config_map("a", "1"))]));
    assert_eq!(run(&mut case)["phase"], "Succeeded");
    case.cluster.put(json!({"kind": "Target", "metadata": {"name": "t"},
        "spec": {"type": types::KUBERNETES_CLUSTER, "config": {"kubeconfig": "x"}}}));
    case.cluster.edit(&deploy_item::KIND, &key("i"), &json!({"spec": {"target": {"name": "t"}}}));
    let ended = run(&mut case);
    assert_eq!(ended["lastError"]["reason"], "TargetInvalid");
    assert!(
        ended["lastError"]["message"].as_str().unwrap().contains("was deployed to this cluster"),
        "{ended}"
    );
}

#[test]
fn a_failure_elsewhere_that_passes_is_told_once_and_one_for_good_ends_the_job() {
    use crate::failure::Failure;
    let mut case = item(manifests(vec![("manage", config_map("a", "1"))]));
    case.cluster.put(json!({"kind": "Target", "metadata": {"name": "t"},
        "spec": {"type": types::KUBERNETES_CLUSTER, "config": {"kubeconfig": "x"}}}));
    case.cluster.edit(&deploy_item::KIND, &key("i"), &json!({"spec": {"target": {"name": "t"}}}));
    case.cluster.outside = |call| Err(Failure::unanswered(call.to_string(), "nobody is there"));
    let waiting = run(&mut case);
    assert_eq!(waiting["phase"], "Progressing");
    assert!(waiting["lastError"]["message"].as_str().unwrap().contains("nobody is there"), "{waiting}");
    let writes = case.cluster.statuses.len();
    case.settle();
    assert_eq!(case.cluster.statuses.len(), writes, "it is said once");
    case.cluster.outside = |call| {
        let status = br#"{"kind":"Status","reason":"Forbidden","message":"no"}"#;
        Err(Failure::answered(call.to_string(), 403, None, status))
    };
    case.settle();
    assert_eq!(
        (&status(&case)["phase"], &status(&case)["lastError"]["reason"]),
        (&json!("Failed"), &json!("Forbidden"))
    );
}
