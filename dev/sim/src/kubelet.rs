//! The node of a simulated world: pods start, run, and end as their command says.
//!
//! `["exit", "3"]` ends with 3, `["hang"]` never ends by itself; so do the images `exit:3` and `hang` without a command.
//! Of several containers each waits for the one before it, and a failure is the end: no world here has Pods whose
//! containers run together. Executors of actions do what their orders say ([`crate::acting`]). The node is no subject of the simulation: its writes meet no faults.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, Request};
use pawl_api::k8s::{POD, SECRET};
use pawl_machines::object::Object;
use serde_json::{Value, json};

use crate::acting::{Move, next_move};
use crate::ground::{Ground, request};

/// The pods with which the node would do something next, in pod order.
pub fn movable(ground: &Ground) -> impl Iterator<Item = &Arc<Object>> {
    ground.all(&POD).filter(|pod| match phase(pod) {
        "Pending" => true,
        "Running" => pod.is_deleting() || exit_code(pod).is_some() || next_move(ground, pod).is_some(),
        _ => is_held(pod),
    })
}

/// What the node does with a pod.
pub fn step(ground: &Ground, pod: &Object) -> Request<Vec<u8>> {
    let status = match phase(pod) {
        "Running" if pod.is_deleting() => ended(ground, pod, 143, ""),
        "Running" if brings_out(ground, pod).is_some() => {
            return brings_out(ground, pod).unwrap_or_default();
        }
        "Running" => match next_move(ground, pod) {
            Some(Move::Write(request)) => return *request,
            Some(Move::End { code, message }) => ended(ground, pod, code, &message),
            None => ended(ground, pod, exit_code(pod).unwrap_or_default(), ""),
        },
        _ if is_held(pod) => return release(pod),
        _ => json!({"phase": "Running", "startTime": ground.now().to_string(),
            "conditions": [{"type": "Ready", "status": "True"}]}),
    };
    let path = format!("{}/status", POD.path(pod.namespace(), Some(pod.name())));
    request(Method::PATCH, &path, "application/merge-patch+json", &json!({"status": status}))
}

/// What the sidecar of a container item does before its pod ends: it says which job's output it brought out.
fn brings_out(ground: &Ground, pod: &Object) -> Option<Request<Vec<u8>>> {
    let inits = pod.raw().pointer("/spec/initContainers")?.as_array()?;
    let collect = inits.iter().find(|one| one.get("name").and_then(Value::as_str) == Some("collect"))?;
    let args: Vec<&str> = collect.get("args")?.as_array()?.iter().filter_map(Value::as_str).collect();
    let after = |flag: &str| args.iter().skip_while(|arg| **arg != flag).nth(1).copied();
    let (secret, job) = (after("--secret")?, STANDARD.encode(after("--job")?));
    let found = ground.get(&SECRET, pod.namespace()?, secret)?;
    if found.raw().pointer("/data/job").and_then(Value::as_str) == Some(&job) {
        return None;
    }
    let path = SECRET.path(pod.namespace(), Some(secret));
    Some(request(Method::PATCH, &path, "application/merge-patch+json", &json!({"data": {"job": job}})))
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

/// With what a pod ends by itself; `None` if one of its containers hangs.
fn exit_code(pod: &Object) -> Option<i64> {
    let codes = containers(pod).iter().map(own_code);
    // Whatever ends well lets the next one begin.
    let mut last = None;
    for code in codes {
        last = Some(code?);
        if last != Some(0) {
            break;
        }
    }
    last
}

fn containers(pod: &Object) -> &[Value] {
    pod.raw().pointer("/spec/containers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn own_code(container: &Value) -> Option<i64> {
    let Some(command) = container.get("command").and_then(Value::as_array) else {
        return container.get("image")?.as_str()?.strip_prefix("exit:")?.parse().ok();
    };
    match command.iter().filter_map(Value::as_str).collect::<Vec<_>>().as_slice() {
        ["exit", code] => code.parse().ok(),
        _ => None,
    }
}

fn ended(ground: &Ground, pod: &Object, code: i64, message: &str) -> Value {
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    let all = containers(pod);
    // The first that does not end well by itself is the one that ended with this code.
    let last = all
        .iter()
        .position(|container| own_code(container) != Some(0))
        .unwrap_or(all.len().saturating_sub(1));
    let statuses: Vec<Value> = all
        .iter()
        .take(last.saturating_add(1))
        .enumerate()
        .map(|(at, container)| {
            let code = if at == last { code } else { 0 };
            let reason = if code == 0 { "Completed" } else { "Error" };
            json!({"name": container.get("name"), "ready": false, "restartCount": 0, "image": "sim", "imageID": "sim",
                "state": {"terminated": {"exitCode": code, "reason": reason, "message": message,
                    "finishedAt": ground.now().to_string()}}})
        })
        .collect();
    json!({"phase": phase, "conditions": [{"type": "Ready", "status": "False"}], "containerStatuses": statuses})
}
