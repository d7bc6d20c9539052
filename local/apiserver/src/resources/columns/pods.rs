//! How is a Pod, in one word?

#![expect(clippy::indexing_slicing, reason = "reading a Value by key never panics: what is absent is null")]

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{items, since};

/// Ready containers of all that should be.
pub(super) fn ready(pod: &Value) -> Value {
    let sidecars: Vec<&Value> =
        items(&pod["spec"]["initContainers"]).iter().filter(|c| c["restartPolicy"] == "Always").collect();
    let total = items(&pod["spec"]["containers"]).len() + sidecars.len();
    let is_sidecar = |status: &&Value| sidecars.iter().any(|c| c["name"] == status["name"]);
    let beside = items(&pod["status"]["initContainerStatuses"]).iter().filter(is_sidecar);
    let main = items(&pod["status"]["containerStatuses"]).iter();
    let ready =
        main.chain(beside).filter(|s| s["ready"] == true && s["state"]["running"].is_object()).count();
    json!(format!("{ready}/{total}"))
}

/// Why it is as it is: the first init container that has not done its work, or the last container with a reason.
pub(super) fn status(pod: &Value) -> Value {
    let status = &pod["status"];
    let phase = status["phase"].as_str().unwrap_or_default();
    let mut said = status["reason"].as_str().filter(|r| !r.is_empty()).unwrap_or(phase).to_owned();
    let condition = |kind: &str| items(&status["conditions"]).iter().find(|c| c["type"] == kind);
    let holds = |kind: &str| condition(kind).is_some_and(|c| c["status"] == "True");
    if condition("PodScheduled").is_some_and(|c| c["reason"] == "SchedulingGated") {
        "SchedulingGated".clone_into(&mut said);
    }
    let initializing = initializing(pod);
    match initializing {
        Some(initializing) if !holds("Initialized") => said = initializing,
        _ => {
            let mut running = false;
            for container in items(&status["containerStatuses"]).iter().rev() {
                if let Some(why) = reason(&container["state"]) {
                    said = why;
                } else if container["ready"] == true && container["state"]["running"].is_object() {
                    running = true;
                }
            }
            if said == "Completed" && running {
                said = if holds("Ready") { "Running" } else { "NotReady" }.to_owned();
            }
        }
    }
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        if status["reason"] == "NodeLost" {
            "Unknown".clone_into(&mut said);
        } else if !matches!(phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut said);
        }
    }
    json!(said)
}

/// How often containers were started again, and how long ago the last time was.
pub(super) fn restarts(pod: &Value, now: Timestamp) -> Value {
    let statuses = ["containerStatuses", "initContainerStatuses"];
    let statuses: Vec<&Value> = statuses.iter().flat_map(|key| items(&pod["status"][*key])).collect();
    let count: i64 = statuses.iter().filter_map(|c| c["restartCount"].as_i64()).sum();
    let ended = statuses.iter().filter_map(|c| c["lastState"]["terminated"]["finishedAt"].as_str());
    match ended.max().filter(|_| count > 0) {
        Some(last) => json!(format!("{count} ({} ago)", since(last, now))),
        None => json!(count.to_string()),
    }
}

pub(super) fn readiness_gates(pod: &Value) -> Value {
    let gates = items(&pod["spec"]["readinessGates"]);
    if gates.is_empty() {
        return json!("<none>");
    }
    let conditions = items(&pod["status"]["conditions"]);
    let passed = |gate: &&Value| {
        conditions.iter().any(|c| c["type"] == gate["conditionType"] && c["status"] == "True")
    };
    json!(format!("{}/{}", gates.iter().filter(passed).count(), gates.len()))
}

/// Which init container holds it up, if one does.
fn initializing(pod: &Value) -> Option<String> {
    let all = items(&pod["spec"]["initContainers"]);
    for (at, container) in items(&pod["status"]["initContainerStatuses"]).iter().enumerate() {
        let state = &container["state"];
        let sidecar = all.iter().any(|c| c["name"] == container["name"] && c["restartPolicy"] == "Always");
        if state["terminated"]["exitCode"] == 0 || (sidecar && container["started"] == true) {
            continue;
        }
        let waits = state["waiting"]["reason"].as_str();
        if state["terminated"].is_object() || waits.is_some_and(|r| !r.is_empty() && r != "PodInitializing") {
            return reason(state).map(|why| format!("Init:{why}"));
        }
        return Some(format!("Init:{at}/{}", all.len()));
    }
    None
}

/// Why a container waits or has ended.
fn reason(state: &Value) -> Option<String> {
    let said = |key: &str| state[key]["reason"].as_str().filter(|r| !r.is_empty()).map(str::to_owned);
    if let Some(why) = said("waiting").or_else(|| said("terminated")) {
        return Some(why);
    }
    let ended = &state["terminated"];
    match (ended["signal"].as_i64().filter(|s| *s != 0), ended["exitCode"].as_i64()) {
        _ if !ended.is_object() => None,
        (Some(signal), _) => Some(format!("Signal:{signal}")),
        (None, code) => Some(format!("ExitCode:{}", code.unwrap_or(0))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(status: &Value) -> Value {
        json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]},
            "status": status})
    }

    #[test]
    fn a_pod_is_in_one_word_what_holds_it_up() {
        let running = json!({"ready": true, "state": {"running": {}}});
        let done = json!({"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
        for (want, status) in [
            ("Pending", json!({"phase": "Pending"})),
            ("Evicted", json!({"phase": "Failed", "reason": "Evicted"})),
            ("Running", json!({"phase": "Running", "containerStatuses": [running, running]})),
            (
                "CrashLoopBackOff",
                json!({"phase": "Running", "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}, running]}),
            ),
            (
                "ExitCode:3",
                json!({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]}),
            ),
            (
                "Signal:9",
                json!({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 137, "signal": 9}}}]}),
            ),
            ("NotReady", json!({"phase": "Running", "containerStatuses": [done, running]})),
            ("Init:0/1", json!({"phase": "Pending", "initContainerStatuses": [{"state": {"running": {}}}]})),
            (
                "Init:Error",
                json!({"phase": "Pending", "initContainerStatuses": [{"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}),
            ),
            (
                "Completed",
                json!({"phase": "Succeeded", "initContainerStatuses": [done], "containerStatuses": [done, done]}),
            ),
        ] {
            assert_eq!(self::status(&pod(&status)), want, "{status}");
        }
        let mut going = pod(&json!({"phase": "Running"}));
        going["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(status(&going), "Terminating");
    }

    #[test]
    fn restarts_say_when_the_last_was() {
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let ended = json!({"terminated": {"finishedAt": "2026-01-01T00:00:00Z"}});
        let status =
            json!({"containerStatuses": [{"restartCount": 2, "lastState": ended}, {"restartCount": 0}]});
        assert_eq!(restarts(&pod(&status), now), "2 (60s ago)");
        assert_eq!(restarts(&pod(&json!({})), now), "0");
        assert_eq!(
            ready(&pod(&json!({"containerStatuses": [{"ready": true, "state": {"running": {}}}]}))),
            "1/2"
        );
    }
}
