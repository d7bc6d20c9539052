use super::*;
use crate::deploy::testing::{Case, key};
use crate::object::Key;
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
        "spec": {"replicas": 2}});
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
