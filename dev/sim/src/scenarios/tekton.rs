//! PipelineRuns of the embedded control plane: each task in its turn, each attempt once.

use std::collections::BTreeSet;

use pawl_api::k8s::{PERSISTENT_VOLUME_CLAIM, POD};
use pawl_api::meta::Kind;
use pawl_api::tekton::{PIPELINE_RUN, TASK_RUN};
use pawl_apiserver::ChangeType;
use pawl_machines::cluster;
use pawl_machines::cluster::garbage::Garbage;
use pawl_machines::machine::AnyMachine;
use serde_json::{Value, json};

use super::expect::{self, names_of};
use super::merged;
use crate::ground::Ground;
use crate::mutant::Guards;
use crate::scenario::{Deed, Scenario};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        scenario(
            "pipeline",
            "a diamond of tasks, one tried twice, and one at the end: each attempt has one Pod",
        )
        .script(|| vec![pipeline(diamond())])
        .ends_with(|ground| {
            ended(ground, &PIPELINE_RUN, "Failed")?;
            once(ground, &TASK_RUN, &["run-a", "run-b", "run-c", "run-d", "run-z"])?;
            let pods = ["run-a-pod", "run-b-pod", "run-c-pod", "run-d-pod", "run-d-pod-retry1", "run-z-pod"];
            once(ground, &POD, &pods)?;
            let claims: BTreeSet<&str> =
                names_of(ground, &PERSISTENT_VOLUME_CLAIM, ChangeType::Added).into_iter().collect();
            expect::equal("claims made", claims.len(), 1)
        }),
        scenario(
            "pipeline-cancel",
            "a PipelineRun cancelled while a step hangs ends it, and still runs what comes at the end",
        )
        .without_stalls()
        .script(|| {
            let hangs = json!({"tasks": [task("a", &["hang"], json!({}))],
                "finally": [task("z", &["exit", "0"], json!({}))]});
            let cancel = json!({"spec": {"status": "CancelledRunFinally"}});
            let is_running = |ground: &Ground| {
                ground.all(&POD).any(|pod| pod.status().get("phase") == Some(&json!("Running")))
            };
            vec![pipeline(hangs), Deed::patch(PIPELINE_RUN, "run", cancel).when(is_running)]
        })
        .ends_with(|ground| {
            ended(ground, &PIPELINE_RUN, "Cancelled")?;
            once(ground, &TASK_RUN, &["run-a", "run-z"])?;
            once(ground, &POD, &["run-a-pod", "run-z-pod"])
        }),
        scenario(
            "taskrun-timeout",
            "a TaskRun that hangs is stopped at its timeout, and takes its claim along when it is deleted",
        )
        .timed()
        .without_stalls()
        .script(|| {
            let steps = json!([{"name": "s", "image": "sim", "command": ["hang"]}]);
            let claim = json!([{"name": "w", "volumeClaimTemplate": {"spec": {}}}]);
            let spec = json!({"timeout": "10m", "workspaces": claim, "taskSpec": {"steps": steps}});
            vec![Deed::create_with_spec(TASK_RUN, "run", spec)]
        })
        .ends_with(|ground| ended(ground, &TASK_RUN, "TaskRunTimeout")),
    ]
}

fn scenario(name: &'static str, about: &'static str) -> Scenario {
    Scenario::new(name, about).machines(machines)
}

fn machines(_: Guards) -> Vec<AnyMachine> {
    std::iter::once(AnyMachine::new(Garbage)).chain(cluster::tekton_machines()).collect()
}

fn diamond() -> Value {
    let fine = ["exit", "0"];
    json!({
        "workspaces": [{"name": "w"}],
        "tasks": [
            task("a", &fine, json!({"workspaces": [{"name": "w"}]})),
            task("b", &fine, json!({"runAfter": ["a"]})),
            task("c", &fine, json!({"runAfter": ["a"]})),
            task("d", &["exit", "1"], json!({"runAfter": ["b", "c"], "retries": 1})),
        ],
        "finally": [task("z", &fine, json!({}))],
    })
}

fn pipeline(spec: Value) -> Deed {
    // Clocks that jump are for those who wait for a time: these do not.
    let wanted = spec.get("workspaces").is_some();
    let claim = json!({"workspaces": [{"name": "w", "volumeClaimTemplate": {"spec": {}}}]});
    let run = json!({"timeouts": {"pipeline": "0s"}, "pipelineSpec": spec});
    Deed::create_with_spec(PIPELINE_RUN, "run", if wanted { merged(run, claim) } else { run })
}

/// A task of two steps, of which the second does what it is told.
fn task(name: &str, command: &[&str], more: Value) -> Value {
    let steps = json!([
        {"name": "first", "image": "sim", "command": ["exit", "0"]},
        {"name": "second", "image": "sim", "command": command},
    ]);
    let workspaces = more.get("workspaces").cloned().unwrap_or(json!([]));
    let task = json!({"name": name, "timeout": "0s", "taskSpec": {"workspaces": workspaces, "steps": steps}});
    merged(task, more)
}

fn ended(ground: &Ground, kind: &Kind, reason: &str) -> Result<(), String> {
    expect::says(ground, kind, "run", "/conditions/0/reason", reason)
}

/// Objects of these names were created, each once, and no others.
fn once(ground: &Ground, kind: &Kind, names: &[&str]) -> Result<(), String> {
    let mut made = names_of(ground, kind, ChangeType::Added);
    made.sort_unstable();
    expect::equal(&format!("{kind}s made"), made, names)
}
