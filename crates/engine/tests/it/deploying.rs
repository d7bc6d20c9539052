//! The deploy door on the loop and the in-process server: the examples, as people apply them.

use std::path::PathBuf;

use pawl_machines::cluster::garbage::Garbage;
use pawl_machines::deploy;
use pawl_machines::machine::AnyMachine;
use serde_json::{Value, json};

use crate::lab::{Lab, eventually};

const GROUP: &str = "/apis/landscaper.gardener.cloud/v1alpha1/namespaces/example";

fn example(name: &str) -> Vec<Value> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "examples", "deploy", name].iter().collect();
    let text = std::fs::read_to_string(&path).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

/// As `kubectl apply` does it: what the server does not know is refused.
fn apply(lab: &Lab, manifest: &Value) {
    let plural = match manifest["kind"].as_str().unwrap() {
        "Namespace" => return drop(lab.call("POST", "/api/v1/namespaces?fieldValidation=Strict", manifest)),
        "ConfigMap" => "/api/v1/namespaces/example/configmaps".to_owned(),
        "Secret" => "/api/v1/namespaces/example/secrets".to_owned(),
        kind => format!("{GROUP}/{}s", kind.to_lowercase()),
    };
    lab.call("POST", &format!("{plural}?fieldValidation=Strict"), manifest);
}

fn installations(lab: &Lab) -> Vec<Value> {
    lab.call("GET", &format!("{GROUP}/installations"), &Value::Null)["items"].as_array().unwrap().clone()
}

/// Applies an example, waits for its Installations to succeed, lets `look` look, and takes everything down.
async fn run(name: &str, look: impl FnOnce(&Lab)) {
    let lab = Lab::new();
    for crd in pawl_api::crds::all() {
        let crd = serde_json::to_value(crd).unwrap();
        lab.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd);
    }
    // Where the locks are.
    lab.call("POST", "/api/v1/namespaces", &json!({"metadata": {"name": "pawl-system"}}));
    let machines = deploy::machines("pawl-system").into_iter().chain([AnyMachine::new(Garbage)]);
    let engine = lab.engine(machines).build().unwrap();
    let running = lab.run(&engine);
    engine.ready().await;
    let manifests = example(name);
    manifests.iter().for_each(|manifest| apply(&lab, manifest));
    let roots: Vec<&str> = manifests
        .iter()
        .filter(|manifest| manifest["kind"] == "Installation")
        .map(|manifest| manifest["metadata"]["name"].as_str().unwrap())
        .collect();
    let phase = |wanted: &str| {
        let all = installations(&lab);
        all.len() >= roots.len() && all.iter().all(|one| one["status"]["phase"] == wanted)
    };
    eventually(&format!("{name}: success; {:#?}", roots), || {
        let failed = installations(&lab).into_iter().find(|one| one["status"]["phase"] == "Failed");
        assert!(failed.is_none(), "{:#}", failed.unwrap()["status"]);
        phase("Succeeded")
    })
    .await;
    let counted = engine.metrics().exposition();
    assert!(
        counted.contains("pawl_phase_changes_total{kind=\"Installation\",phase=\"Succeeded\"}"),
        "{counted}"
    );
    look(&lab);
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
    for root in &roots {
        lab.call("DELETE", &format!("{GROUP}/installations/{root}"), &options);
    }
    let gone = || {
        let of = |plural: &str| lab.names(&format!("{GROUP}/{plural}"));
        installations(&lab).is_empty() && of("executions").is_empty() && of("deployitems").is_empty()
    };
    eventually(&format!("{name}: everything's end"), gone).await;
    running.stop().await;
}

fn data(lab: &Lab, name: &str) -> Value {
    lab.call("GET", &format!("{GROUP}/dataobjects/{name}"), &Value::Null)["data"].clone()
}

fn config_map(lab: &Lab, name: &str) -> Value {
    lab.call("GET", &format!("/api/v1/namespaces/example/configmaps/{name}"), &Value::Null)
}

#[tokio::test(start_paused = true)]
async fn an_installation_written_for_landscaper_applies_and_runs_unchanged() {
    run("hello.yaml", |lab| {
        assert_eq!(config_map(lab, "greeting")["data"]["text"], "hello");
        let status = installations(lab)[0]["status"].clone();
        let told = status["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "KeysIgnored");
        assert_eq!(told.unwrap()["message"], "blueprint.yaml: jsonSchema: is not known, and passed over");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn keys_that_only_landscaper_knows_are_taken_and_told() {
    run("items.yaml", |lab| {
        assert_eq!(lab.names(&format!("{GROUP}/deployitems")).len(), 4);
        let conditions = installations(lab)[0]["status"]["conditions"].to_string();
        assert!(conditions.contains("spec.componentDescriptor: is not known"), "{conditions}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn data_flows_from_objects_through_one_installation_to_another() {
    run("imports-exports.yaml", |lab| {
        assert_eq!(data(lab, "backend-address"), "backend:8080");
        let backend = config_map(lab, "backend");
        assert_eq!(
            (&backend["data"]["replicas"], &backend["metadata"]["labels"]["team"]),
            (&json!("3"), &json!("green"))
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn sub_installations_hand_data_on_and_their_parent_exports_it() {
    run("subinstallations.yaml", |lab| {
        assert_eq!(data(lab, "chain-names"), json!(["link", "link-x", "link-x-x"]));
        assert_eq!(installations(lab).len(), 4);
        config_map(lab, "link-x");
    })
    .await;
}
