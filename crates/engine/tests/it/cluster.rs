//! The loop with machines that look at every kind: garbage and namespaces.

use pawl_machines::cluster::garbage::Garbage;
use pawl_machines::cluster::namespace::Namespaces;
use pawl_machines::machine::AnyMachine;
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use crate::lab::{Lab, eventually};

fn caretakers() -> [AnyMachine; 2] {
    [AnyMachine::new(Garbage), AnyMachine::new(Namespaces)]
}

fn owned_secret(name: &str, owner: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true}]}})
}

#[tokio::test(start_paused = true)]
async fn what_nothing_owns_any_more_goes_in_the_background_and_in_the_foreground() {
    let lab = Lab::new();
    let engine = lab.engine(caretakers()).build().unwrap();
    let running = lab.run(&engine);
    engine.ready().await;
    for policy in ["Background", "Foreground"] {
        let owner = lab.config_map("owner", json!({}));
        let kept = lab.config_map("kept", json!({}));
        lab.call("POST", "/api/v1/namespaces/default/secrets", &owned_secret("goes", &owner));
        lab.call("POST", "/api/v1/namespaces/default/secrets", &owned_secret("stays", &kept));
        sleep(Duration::from_secs(5)).await;
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy});
        lab.call("DELETE", "/api/v1/namespaces/default/configmaps/owner", &options);
        eventually("the dependent's end", || lab.secrets() == ["stays"]).await;
        eventually("the owner's end", || lab.names("/api/v1/namespaces/default/configmaps") == ["kept"])
            .await;
        lab.call("DELETE", "/api/v1/namespaces/default/configmaps/kept", &Value::Null);
        eventually("everything's end", || lab.secrets().is_empty()).await;
    }
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_when_all_that_was_in_it_is_gone() {
    let lab = Lab::new();
    let engine = lab.engine(caretakers()).build().unwrap();
    let running = lab.run(&engine);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "old"}});
    lab.call("POST", "/api/v1/namespaces", &namespace);
    for name in ["a", "b"] {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        lab.call("POST", "/api/v1/namespaces/old/configmaps", &map);
    }
    engine.ready().await;
    lab.call("DELETE", "/api/v1/namespaces/old", &Value::Null);
    eventually("its end", || !lab.names("/api/v1/namespaces").contains(&"old".to_owned())).await;
    sleep(Duration::from_secs(30)).await;
    let writes = lab.writes().len();
    sleep(Duration::from_hours(2)).await;
    assert_eq!(lab.writes().len(), writes, "{:?}", lab.writes());
    running.stop().await;
}
