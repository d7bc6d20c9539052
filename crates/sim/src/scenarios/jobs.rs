//! Jobs of the embedded control plane: pods as often as asked for, retried as often as allowed.

use pawl_api::k8s::{JOB, POD};
use pawl_machines::cluster::garbage::Garbage;
use pawl_machines::cluster::job::Jobs;
use pawl_machines::cluster::job::orphans::OrphanPods;
use pawl_machines::machine::AnyMachine;
use serde_json::{Value, json};

use crate::ground::Ground;
use crate::mutant::Guards;
use crate::scenario::{Deed, Scenario};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "job",
            about: "three completions, two at a time",
            own_kinds: false,
            timed: false,
            stalls: true,
            alone: false,
            github: None,
            machines,
            script: || vec![job(json!({"completions": 3, "parallelism": 2}), &["exit", "0"])],
            ends_with: |ground| {
                ended(ground, "Complete")?;
                pods_made(ground, 3)
            },
        },
        Scenario {
            name: "job-retry",
            about: "a failing pod is replaced as often as backoffLimit allows, no oftener",
            own_kinds: false,
            timed: false,
            stalls: true,
            alone: false,
            github: None,
            machines,
            script: || vec![job(json!({"backoffLimit": 2}), &["exit", "1"])],
            ends_with: |ground| {
                ended(ground, "Failed")?;
                pods_made(ground, 3)
            },
        },
        Scenario {
            name: "job-deadline",
            about: "a hanging pod is stopped at activeDeadlineSeconds",
            own_kinds: false,
            timed: true,
            stalls: true,
            alone: false,
            github: None,
            machines,
            script: || vec![job(json!({"activeDeadlineSeconds": 600}), &["hang"])],
            ends_with: |ground| ended(ground, "Failed"),
        },
        Scenario {
            name: "job-suspend",
            about: "a suspended Job starts nothing until it is resumed",
            own_kinds: false,
            timed: false,
            stalls: true,
            alone: false,
            github: None,
            machines,
            script: || {
                vec![
                    job(json!({"suspend": true}), &["exit", "0"]),
                    Deed::patch(JOB, Some("default"), "work", json!({"spec": {"suspend": false}}))
                        .when(|ground| condition(ground, "Suspended")),
                ]
            },
            ends_with: |ground| {
                ended(ground, "Complete")?;
                pods_made(ground, 1)
            },
        },
        Scenario {
            name: "job-ttl",
            about: "a finished Job goes after its time, with its pods",
            own_kinds: false,
            timed: false,
            stalls: true,
            alone: false,
            github: None,
            machines,
            script: || vec![job(json!({"ttlSecondsAfterFinished": 60}), &["exit", "0"])],
            ends_with: |ground| {
                let left = ground.all(&JOB).count() + ground.all(&POD).count();
                if left == 0 { pods_made(ground, 1) } else { Err(format!("{left} objects are left")) }
            },
        },
        Scenario {
            name: "job-delete",
            about: "a Job deleted while it runs takes its pods along",
            own_kinds: false,
            timed: false,
            stalls: true,
            alone: false,
            github: None,
            machines,
            script: || {
                vec![
                    job(json!({}), &["hang"]),
                    Deed::delete(JOB, Some("default"), "work", "Background")
                        .when(|ground| ground.all(&POD).any(|pod| pod.status().get("phase").is_some())),
                ]
            },
            ends_with: |ground| {
                let left = ground.all(&JOB).count() + ground.all(&POD).count();
                if left == 0 { Ok(()) } else { Err(format!("{left} objects are left")) }
            },
        },
    ]
}

pub(super) fn machines(_: Guards) -> Vec<AnyMachine> {
    vec![AnyMachine::new(Garbage), AnyMachine::new(Jobs), AnyMachine::new(OrphanPods)]
}

fn job(mut spec: Value, command: &[&str]) -> Deed {
    if let Some(spec) = spec.as_object_mut() {
        spec.insert("template".to_owned(), template(command));
    }
    Deed::create(JOB, json!({"metadata": {"name": "work", "namespace": "default"}, "spec": spec}))
}

pub(super) fn template(command: &[&str]) -> Value {
    json!({"spec": {"restartPolicy": "Never",
        "containers": [{"name": "main", "image": "sim", "command": command}]}})
}

fn condition(ground: &Ground, wanted: &str) -> bool {
    let conditions =
        ground.get(&JOB, "default", "work").and_then(|job| job.status().get("conditions").cloned());
    conditions.as_ref().and_then(Value::as_array).into_iter().flatten().any(|condition| {
        condition.get("type").and_then(Value::as_str) == Some(wanted)
            && condition.get("status").and_then(Value::as_str) == Some("True")
    })
}

fn ended(ground: &Ground, how: &str) -> Result<(), String> {
    if condition(ground, how) {
        return Ok(());
    }
    let status = ground.get(&JOB, "default", "work").map(|job| job.status().to_string());
    Err(format!("the Job is not {how}: {status:?}"))
}

fn pods_made(ground: &Ground, expected: usize) -> Result<(), String> {
    let made = ground
        .history
        .iter()
        .filter(|happened| {
            *happened.object.kind() == POD && happened.what == pawl_apiserver::ChangeType::Added
        })
        .count();
    if made == expected { Ok(()) } else { Err(format!("{made} pods were made, expected {expected}")) }
}
