//! PipelineRuns of the embedded control plane: each task in its turn, each attempt once.

use std::collections::BTreeMap;

use pawl_api::k8s::{PERSISTENT_VOLUME_CLAIM, POD};
use pawl_api::meta::Kind;
use pawl_api::tekton::{PIPELINE_RUN, TASK_RUN};
use pawl_machines::cluster;
use pawl_machines::cluster::garbage::Garbage;
use pawl_machines::machine::AnyMachine;
use serde_json::{Value, json};

use crate::ground::Ground;
use crate::mutant::Guards;
use crate::scenario::{Deed, Scenario};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "pipeline",
            about: "a diamond of tasks, one of which is tried twice, and one at the end: each attempt has one Pod",
            own_kinds: true,
            timed: false,
            stalls: true,
            alone: false,
            github: None,
            machines,
            script: || vec![pipeline(diamond())],
            ends_with: |ground| {
                ended(ground, &PIPELINE_RUN, "Failed")?;
                once(ground, &TASK_RUN, &["run-a", "run-b", "run-c", "run-d", "run-z"])?;
                let pods =
                    ["run-a-pod", "run-b-pod", "run-c-pod", "run-d-pod", "run-d-pod-retry1", "run-z-pod"];
                once(ground, &POD, &pods)?;
                made(ground, &PERSISTENT_VOLUME_CLAIM)
                    .len()
                    .eq(&1)
                    .then_some(())
                    .ok_or_else(|| "one claim".to_owned())
            },
        },
        Scenario {
            name: "pipeline-cancel",
            about: "a PipelineRun cancelled while a step hangs ends it, and still runs what comes at the end",
            own_kinds: true,
            timed: false,
            stalls: false,
            alone: false,
            github: None,
            machines,
            script: || {
                vec![
                    pipeline(
                        json!({"tasks": [task("a", &["hang"], json!({}))], "finally": [task("z", &["exit", "0"], json!({}))]}),
                    ),
                    Deed::patch(
                        PIPELINE_RUN,
                        Some("default"),
                        "run",
                        json!({"spec": {"status": "CancelledRunFinally"}}),
                    )
                    .when(|ground| {
                        ground.all(&POD).any(|pod| pod.status().get("phase") == Some(&json!("Running")))
                    }),
                ]
            },
            ends_with: |ground| {
                ended(ground, &PIPELINE_RUN, "Cancelled")?;
                once(ground, &TASK_RUN, &["run-a", "run-z"])?;
                once(ground, &POD, &["run-a-pod", "run-z-pod"])
            },
        },
        Scenario {
            name: "taskrun-timeout",
            about: "a TaskRun that hangs is stopped when its time is over, and takes its claim along when it is deleted",
            own_kinds: true,
            timed: true,
            stalls: false,
            alone: false,
            github: None,
            machines,
            script: || {
                let steps = json!([{"name": "s", "image": "sim", "command": ["hang"]}]);
                let claim = json!([{"name": "w", "volumeClaimTemplate": {"spec": {}}}]);
                let spec = json!({"timeout": "10m", "workspaces": claim, "taskSpec": {"steps": steps}});
                vec![Deed::create(
                    TASK_RUN,
                    json!({"metadata": {"name": "run", "namespace": "default"}, "spec": spec}),
                )]
            },
            ends_with: |ground| ended(ground, &TASK_RUN, "TaskRunTimeout"),
        },
    ]
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

#[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
fn pipeline(spec: Value) -> Deed {
    // Clocks that jump are for those who wait for a time: these do not.
    let mut run = json!({"pipelineSpec": spec, "timeouts": {"pipeline": "0s"}});
    if run.pointer("/pipelineSpec/workspaces").is_some()
        && let Some(run) = run.as_object_mut()
    {
        run.insert("workspaces".to_owned(), json!([{"name": "w", "volumeClaimTemplate": {"spec": {}}}]));
    }
    Deed::create(PIPELINE_RUN, json!({"metadata": {"name": "run", "namespace": "default"}, "spec": run}))
}

/// A task of two steps, of which the second does what it is told.
fn task(name: &str, command: &[&str], more: Value) -> Value {
    let steps = json!([
        {"name": "first", "image": "sim", "command": ["exit", "0"]},
        {"name": "second", "image": "sim", "command": command},
    ]);
    let mut task = json!({"name": name, "timeout": "0s", "taskSpec": {"workspaces": more.get("workspaces").cloned().unwrap_or(json!([])), "steps": steps}});
    if let (Some(task), Value::Object(more)) = (task.as_object_mut(), more) {
        task.extend(more);
    }
    task
}

fn ended(ground: &Ground, kind: &Kind, reason: &str) -> Result<(), String> {
    let status = ground.get(kind, "default", "run").map(|run| run.status().clone()).unwrap_or_default();
    let said = status.pointer("/conditions/0/reason").and_then(Value::as_str);
    if said == Some(reason) { Ok(()) } else { Err(format!("the run is not {reason}: {status}")) }
}

/// How often an object of each name was ever made.
fn made(ground: &Ground, kind: &Kind) -> BTreeMap<String, usize> {
    let mut made = BTreeMap::new();
    let all = ground.history.iter().filter(|happened| happened.object.kind() == kind);
    for happened in all.filter(|happened| happened.what == pawl_apiserver::ChangeType::Added) {
        let count: &mut usize = made.entry(happened.object.name().to_owned()).or_default();
        *count += 1;
    }
    made
}

fn once(ground: &Ground, kind: &Kind, names: &[&str]) -> Result<(), String> {
    let expected: BTreeMap<String, usize> = names.iter().map(|&name| (name.to_owned(), 1)).collect();
    let made = made(ground, kind);
    if made == expected {
        Ok(())
    } else {
        Err(format!("{kind}s that were made: {made:?}, expected: {names:?}"))
    }
}
