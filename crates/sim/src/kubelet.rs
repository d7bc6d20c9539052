//! The node of a simulated world: pods start, run, and end as their command says.
//!
//! `["exit", "3"]` ends with 3, `["hang"]` never ends by itself. The node is no subject of the simulation: its writes
//! meet no faults.

use std::sync::Arc;

use http::{Method, Request};
use pawl_api::k8s::POD;
use pawl_machines::object::Object;
use serde_json::{Value, json};

use crate::ground::{Ground, request};

/// The pods with which the node would do something next, in pod order.
pub fn movable(ground: &Ground) -> impl Iterator<Item = &Arc<Object>> {
    ground.all(&POD).filter(|pod| match phase(pod) {
        "Pending" => true,
        "Running" => pod.is_deleting() || exit_code(pod).is_some(),
        _ => false,
    })
}

/// What the node does with a pod.
pub fn step(ground: &Ground, pod: &Object) -> Request<Vec<u8>> {
    let status = match phase(pod) {
        "Running" if pod.is_deleting() => ended(ground, pod, 143),
        "Running" => ended(ground, pod, exit_code(pod).unwrap_or_default()),
        _ => json!({"phase": "Running", "startTime": ground.now().to_string(),
            "conditions": [{"type": "Ready", "status": "True"}]}),
    };
    let path = format!("{}/status", POD.path(pod.namespace(), Some(pod.name())));
    request(Method::PATCH, &path, "application/merge-patch+json", &json!({"status": status}))
}

fn phase(pod: &Object) -> &str {
    pod.status().get("phase").and_then(Value::as_str).unwrap_or("Pending")
}

fn exit_code(pod: &Object) -> Option<i64> {
    let command = pod.raw().pointer("/spec/containers/0/command")?.as_array()?;
    match command.iter().filter_map(Value::as_str).collect::<Vec<_>>().as_slice() {
        ["exit", code] => code.parse().ok(),
        _ => None,
    }
}

fn ended(ground: &Ground, pod: &Object, code: i64) -> Value {
    let name = pod.raw().pointer("/spec/containers/0/name").cloned().unwrap_or_default();
    let (phase, reason) = if code == 0 { ("Succeeded", "Completed") } else { ("Failed", "Error") };
    json!({"phase": phase, "conditions": [{"type": "Ready", "status": "False"}], "containerStatuses": [{
        "name": name, "ready": false, "restartCount": 0, "image": "sim", "imageID": "sim",
        "state": {"terminated": {"exitCode": code, "reason": reason, "finishedAt": ground.now().to_string()}},
    }]})
}
