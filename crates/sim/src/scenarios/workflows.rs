//! The first slice of the git door: WorkflowTemplate and Workflow, a Job, a phase.

use pawl_api::git;
use pawl_api::k8s::{JOB, NAMESPACE};
use pawl_machines::git::workflow::Workflows;
use pawl_machines::git::workflow_template::Templates;
use pawl_machines::lock::reaper::Reaper;
use pawl_machines::machine::AnyMachine;
use serde_json::{Value, json};

use super::jobs::template;
use crate::ground::Ground;
use crate::mutant::Guards;
use crate::oracle;
use crate::scenario::{Deed, Scenario, phase_is};

const WORKFLOW: pawl_api::meta::Kind = git::workflow::KIND;
const TEMPLATE: pawl_api::meta::Kind = git::workflow_template::KIND;
const BRANCH: pawl_api::meta::Kind = git::branch::KIND;

/// How long a deletion waits for its Job.
const LIMIT: jiff::SignedDuration = jiff::SignedDuration::from_mins(10);

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "workflow",
            about: "a Workflow runs its Job once and succeeds",
            own_kinds: true,
            timed: false,
            stalls: true,
            alone: false,
            machines,
            script: || vec![home(), branch(), workflow_template(&["exit", "0"]), workflow()],
            ends_with: |ground| one_job(ground).and_then(|()| ends_as(ground, "Succeeded")),
        },
        Scenario {
            name: "workflow-fails",
            about: "a failing Job fails its Workflow, and is not run again",
            own_kinds: true,
            timed: false,
            stalls: true,
            alone: false,
            machines,
            script: || vec![home(), branch(), workflow_template(&["exit", "1"]), workflow()],
            ends_with: |ground| one_job(ground).and_then(|()| ends_as(ground, "Failed")),
        },
        Scenario {
            name: "workflow-late-template",
            about: "a Workflow waits for its template",
            own_kinds: true,
            timed: false,
            stalls: true,
            alone: false,
            machines,
            script: || vec![home(), branch(), workflow(), workflow_template(&["exit", "0"]).when(waits)],
            ends_with: |ground| one_job(ground).and_then(|()| ends_as(ground, "Succeeded")),
        },
        Scenario {
            name: "workflow-foreign-job",
            about: "a Job of that name that is somebody else's is left alone",
            own_kinds: true,
            timed: false,
            stalls: true,
            alone: true,
            machines,
            script: || {
                let theirs = json!({"metadata": {"name": "w", "namespace": "default"},
                    "spec": {"suspend": true, "template": template(&["exit", "0"])}});
                vec![
                    home(),
                    branch(),
                    workflow_template(&["exit", "0"]),
                    Deed::create(JOB, theirs),
                    workflow(),
                ]
            },
            ends_with: |ground| ends_as(ground, "Failed"),
        },
        Scenario {
            name: "workflow-job-removed",
            about: "a finished Workflow stays finished when its Job is removed",
            own_kinds: true,
            timed: false,
            stalls: true,
            alone: false,
            machines,
            script: || {
                vec![
                    home(),
                    branch(),
                    workflow_template(&["exit", "0"]),
                    workflow(),
                    Deed::delete(JOB, Some("default"), "w", "Background").when(phase_is(
                        WORKFLOW,
                        "w",
                        "Succeeded",
                    )),
                ]
            },
            ends_with: |ground| one_job(ground).and_then(|()| ends_as(ground, "Succeeded")),
        },
        Scenario {
            name: "workflow-delete",
            about: "a Workflow deleted while it runs stops its Job before it goes",
            own_kinds: true,
            timed: true,
            stalls: true,
            alone: false,
            machines,
            script: || {
                vec![
                    home(),
                    branch(),
                    workflow_template(&["hang"]),
                    workflow(),
                    Deed::delete(WORKFLOW, Some("default"), "w", "Background")
                        .when(phase_is(WORKFLOW, "w", "Running")),
                ]
            },
            ends_with: |ground| {
                let left = ground.all(&JOB).count() + ground.all(&WORKFLOW).count();
                if left > 0 {
                    return Err(format!("{left} objects are left"));
                }
                let gone = |kind: &pawl_api::meta::Kind| {
                    ground.history.iter().rposition(|happened| happened.object.kind() == kind)
                };
                // I5: after its limit a deletion goes on without the Job; a clock that jumps makes that pass.
                let asked_at = ground.history.iter().rev().find_map(|happened| {
                    let deletion = happened.object.meta().deletion_timestamp.as_ref();
                    deletion.filter(|_| *happened.object.kind() == WORKFLOW).map(|at| at.0)
                });
                let in_time = asked_at.is_some_and(|at| ground.now().duration_since(at) < LIMIT);
                if gone(&WORKFLOW) > gone(&JOB) || !in_time {
                    Ok(())
                } else {
                    Err("the Workflow went before its Job".into())
                }
            },
        },
        Scenario {
            name: "workflow-namesake",
            about: "a Workflow made anew under the same name keeps its own Job",
            own_kinds: true,
            timed: true,
            stalls: true,
            alone: false,
            machines,
            script: || {
                vec![
                    home(),
                    branch(),
                    workflow_template(&["hang"]),
                    workflow(),
                    Deed::delete(WORKFLOW, Some("default"), "w", "Background")
                        .when(phase_is(WORKFLOW, "w", "Running")),
                    workflow().when(|ground| ground.all(&WORKFLOW).count() + ground.all(&JOB).count() == 0),
                ]
            },
            ends_with: |ground| ends_as(ground, "Running"),
        },
        Scenario {
            name: "workflow-branch-gone",
            about: "a Workflow without its Branch goes away",
            own_kinds: true,
            timed: false,
            stalls: true,
            alone: false,
            machines,
            script: || vec![home(), workflow_template(&["exit", "0"]), workflow()],
            ends_with: |ground| match ground.all(&WORKFLOW).count() + ground.all(&JOB).count() {
                0 => Ok(()),
                left => Err(format!("{left} objects are left")),
            },
        },
    ]
}

fn machines(guards: Guards) -> Vec<AnyMachine> {
    let workflows = Workflows { finalizer_order: guards.finalizer_order, ..Workflows::default() };
    super::jobs::machines(guards)
        .into_iter()
        .chain([AnyMachine::new(workflows), AnyMachine::new(Templates), AnyMachine::new(Reaper)])
        .collect()
}

/// Where the locks are.
fn home() -> Deed {
    Deed::create(NAMESPACE, json!({"metadata": {"name": pawl_api::pawl::SYSTEM_NAMESPACE}}))
}

fn branch() -> Deed {
    let spec = json!({"owner": "acme", "repository": "infra", "name": "feature", "sha": "a".repeat(40)});
    Deed::create(BRANCH, json!({"metadata": {"name": "b", "namespace": "default"}, "spec": spec}))
}

fn workflow_template(command: &[&str]) -> Deed {
    let spec =
        json!({"displayName": "Plan", "match": {"paths": ["**"]}, "job": {"template": template(command)}});
    Deed::create(TEMPLATE, json!({"metadata": {"name": "plan", "namespace": "default"}, "spec": spec}))
}

fn workflow() -> Deed {
    let spec = json!({"owner": "acme", "repository": "infra", "branch": "b", "sha": "a".repeat(40),
        "template": "plan", "path": "envs/prod", "parameters": {"isDefaultBranch": "false"}});
    Deed::create(WORKFLOW, json!({"metadata": {"name": "w", "namespace": "default"}, "spec": spec}))
}

fn waits(ground: &Ground) -> bool {
    ground.get(&WORKFLOW, "default", "w").is_some_and(|workflow| {
        workflow.status().get("conditions").and_then(Value::as_array).into_iter().flatten().any(|condition| {
            condition.get("type").and_then(Value::as_str) == Some("TemplateFound")
                && condition.get("status").and_then(Value::as_str) == Some("False")
        })
    })
}

/// A Job that was made too late by somebody who stalled is never let go, and so is no run.
fn one_job(ground: &Ground) -> Result<(), String> {
    let jobs = ground.history.iter().map(|happened| &happened.object).filter(|object| *object.kind() == JOB);
    let ran: std::collections::BTreeSet<&str> =
        jobs.filter(|job| oracle::has_run(job)).map(|job| job.uid()).collect();
    if ran.len() == 1 { Ok(()) } else { Err(format!("{} Jobs ran", ran.len())) }
}

fn ends_as(ground: &Ground, phase: &str) -> Result<(), String> {
    let status = ground.get(&WORKFLOW, "default", "w").map(|workflow| workflow.status().clone());
    let found = status.as_ref().and_then(|status| status.get("phase")).and_then(Value::as_str);
    if found == Some(phase) { Ok(()) } else { Err(format!("the Workflow is not {phase}: {status:?}")) }
}
