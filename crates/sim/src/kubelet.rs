//! The node of a simulated world: pods start, run, and end as their command says.
//!
//! `["exit", "3"]` ends with 3, `["hang"]` never ends by itself; so do the images `exit:3` and `hang` without a command. The node is no subject of the simulation: its writes
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
        _ => is_held(pod),
    })
}

/// What the node does with a pod.
pub fn step(ground: &Ground, pod: &Object) -> Request<Vec<u8>> {
    let status = match phase(pod) {
        "Running" if pod.is_deleting() => ended(ground, pod, 143),
        "Running" => ended(ground, pod, exit_code(pod).unwrap_or_default()),
        _ if is_held(pod) => return release(pod),
        _ => json!({"phase": "Running", "startTime": ground.now().to_string(),
            "conditions": [{"type": "Ready", "status": "True"}]}),
    };
    let path = format!("{}/status", POD.path(pod.namespace(), Some(pod.name())));
    request(Method::PATCH, &path, "application/merge-patch+json", &json!({"status": status}))
}

/// Whether a pod that was bound to a node waits for the node to say that nothing of it runs any more.
fn is_held(pod: &Object) -> bool {
    let over = matches!(phase(pod), "Succeeded" | "Failed");
    over && pod.meta().deletion_grace_period_seconds.is_some_and(|grace| grace > 0)
}

fn release(pod: &Object) -> Request<Vec<u8>> {
    let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
        "preconditions": {"uid": pod.uid()}});
    request(Method::DELETE, &POD.path(pod.namespace(), Some(pod.name())), "application/json", &body)
}

fn phase(pod: &Object) -> &str {
    pod.status().get("phase").and_then(Value::as_str).unwrap_or("Pending")
}

fn exit_code(pod: &Object) -> Option<i64> {
    let container = pod.raw().pointer("/spec/containers/0")?;
    let Some(command) = container.get("command").and_then(Value::as_array) else {
        return container.get("image")?.as_str()?.strip_prefix("exit:")?.parse().ok();
    };
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
