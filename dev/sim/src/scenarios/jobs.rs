//! Jobs of the embedded control plane: pods as often as asked for, retried as often as allowed.

use pawl_api::k8s::{JOB, POD};
use pawl_apiserver::ChangeType;
use pawl_machines::cluster::garbage::Garbage;
use pawl_machines::cluster::job::Jobs;
use pawl_machines::cluster::job::orphans::OrphanPods;
use pawl_machines::machine::AnyMachine;
use serde_json::{Value, json};

use super::expect::{self, has_condition, names_of, none_left};
use super::merged;
use crate::ground::Ground;
use crate::mutant::Guards;
use crate::scenario::{Deed, Scenario};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        scenario("job", "three completions, two at a time")
            .script(|| vec![job(json!({"completions": 3, "parallelism": 2}), &["exit", "0"])])
            .ends_with(|ground| ended(ground, "Complete").and_then(|()| pods_made(ground, 3))),
        scenario("job-retry", "a failing pod is replaced as often as backoffLimit allows, no oftener")
            .script(|| vec![job(json!({"backoffLimit": 2}), &["exit", "1"])])
            .ends_with(|ground| ended(ground, "Failed").and_then(|()| pods_made(ground, 3))),
        scenario("job-deadline", "a hanging pod is stopped at activeDeadlineSeconds")
            .timed()
            .script(|| vec![job(json!({"activeDeadlineSeconds": 600}), &["hang"])])
            .ends_with(|ground| ended(ground, "Failed")),
        scenario("job-suspend", "a suspended Job starts nothing until it is resumed")
            .script(|| {
                vec![
                    job(json!({"suspend": true}), &["exit", "0"]),
                    Deed::patch(JOB, "work", json!({"spec": {"suspend": false}}))
                        .when(|ground| ended(ground, "Suspended").is_ok()),
                ]
            })
            .ends_with(|ground| ended(ground, "Complete").and_then(|()| pods_made(ground, 1))),
        scenario("job-ttl", "a finished Job goes after its time, with its pods")
            .script(|| vec![job(json!({"ttlSecondsAfterFinished": 60}), &["exit", "0"])])
            .ends_with(|ground| none_left(ground, &[JOB, POD]).and_then(|()| pods_made(ground, 1))),
        scenario("job-delete", "a Job deleted while it runs takes its pods along")
            .script(|| {
                vec![
                    job(json!({}), &["hang"]),
                    Deed::delete(JOB, "work")
                        .when(|ground| ground.all(&POD).any(|pod| pod.status().get("phase").is_some())),
                ]
            })
            .ends_with(|ground| none_left(ground, &[JOB, POD])),
    ]
}

fn scenario(name: &'static str, about: &'static str) -> Scenario {
    Scenario::new(name, about).without_own_kinds().machines(machines)
}

pub(super) fn machines(_: Guards) -> Vec<AnyMachine> {
    vec![AnyMachine::new(Garbage), AnyMachine::new(Jobs), AnyMachine::new(OrphanPods)]
}

fn job(spec: Value, command: &[&str]) -> Deed {
    Deed::create_with_spec(JOB, "work", merged(spec, json!({"template": template(command)})))
}

pub(super) fn template(command: &[&str]) -> Value {
    json!({"spec": {"restartPolicy": "Never",
        "containers": [{"name": "main", "image": "sim", "command": command}]}})
}

fn ended(ground: &Ground, how: &str) -> Result<(), String> {
    match ground.get(&JOB, "default", "work") {
        Some(job) if has_condition(job, how, "True") => Ok(()),
        other => Err(format!("the Job is not {how}: {:?}", other.map(|job| job.status()))),
    }
}

fn pods_made(ground: &Ground, expected: usize) -> Result<(), String> {
    expect::equal("pods made", names_of(ground, &POD, ChangeType::Added).len(), expected)
}
