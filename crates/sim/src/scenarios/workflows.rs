//! The first slice of the git door: WorkflowTemplate and Workflow, a Job, a phase.

use pawl_api::git;
use pawl_api::k8s::{JOB, LEASE, POD};
use pawl_api::meta::Target;
use pawl_api::meta::target::GitRef;
use pawl_api::pawl::SYSTEM_NAMESPACE;
use pawl_machines::git::workflow::Workflows;
use pawl_machines::git::workflow_template::Templates;
use pawl_machines::lock::{self, reaper::Reaper};
use pawl_machines::machine::AnyMachine;
use pawl_machines::object::Object;
use serde_json::{Value, json};

use super::home;
use super::jobs::template;
use crate::ground::Ground;
use crate::mutant::Guards;
use crate::oracle;
use crate::scenario::{Deed, Scenario, phase_is};

const WORKFLOW: pawl_api::meta::Kind = git::workflow::KIND;
const TEMPLATE: pawl_api::meta::Kind = git::workflow_template::KIND;
const BRANCH: pawl_api::meta::Kind = git::branch::KIND;
const REPOSITORY: pawl_api::meta::Kind = git::repository::KIND;

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
            github: None,
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
            github: None,
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
            github: None,
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
            github: None,
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
            github: None,
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
            github: None,
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
                    let deletion = happened.object.meta().deletion_timestamp;
                    deletion.filter(|_| *happened.object.kind() == WORKFLOW).map(|at| at.0)
                });
                let in_time = asked_at.is_some_and(|at| ground.now().duration_since(at) < LIMIT);
                if gone(&WORKFLOW) > gone(&JOB).max(gone(&POD)) || !in_time {
                    Ok(())
                } else {
                    Err("the Workflow went before its Job and all its Pods".into())
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
            github: None,
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
            github: None,
            machines,
            script: || vec![home(), workflow_template(&["exit", "0"]), workflow()],
            ends_with: |ground| match ground.all(&WORKFLOW).count() + ground.all(&JOB).count() {
                0 => Ok(()),
                left => Err(format!("{left} objects are left")),
            },
        },
        Scenario {
            name: "workflow-kept-lock",
            about: "a lock that carries something else is taken and freed, and keeps it",
            own_kinds: true,
            timed: false,
            stalls: true,
            alone: false,
            github: None,
            machines,
            script: || vec![home(), kept_lock(), branch(), workflow_template(&["exit", "0"]), workflow()],
            ends_with: |ground| {
                one_job(ground).and_then(|()| ends_as(ground, "Succeeded"))?;
                let kept =
                    ground.all(&LEASE).find(|lease| lease.annotation("pawl.dev/last-success").is_some());
                match kept {
                    Some(lease) if holder(lease).is_none() => Ok(()),
                    other => Err(format!("the lock is {:?}", other.map(|lease| lease.raw()))),
                }
            },
        },
        Scenario {
            name: "workflow-commits",
            about: "two commits of the default branch run one after the other, in their order",
            own_kinds: true,
            timed: true,
            stalls: true,
            alone: false,
            github: None,
            machines,
            script: || {
                vec![
                    home(),
                    repository(),
                    commit("first", 1, false),
                    commit("second", 2, true),
                    workflow_template(&["exit", "0"]),
                    of_commit("second", 2),
                    of_commit("first", 1),
                    Deed::patch(
                        BRANCH,
                        Some("default"),
                        "first",
                        json!({"metadata": {"annotations": {git::annotations::LAST_SHA: "1".repeat(40)}}}),
                    ),
                ]
            },
            ends_with: |ground| {
                for name in [work_name(ground, "first", 1), work_name(ground, "second", 2)] {
                    let found =
                        ground.get(&WORKFLOW, "default", &name?).map(|workflow| workflow.status().clone());
                    let phase = found.as_ref().and_then(|status| status.get("phase")).and_then(Value::as_str);
                    if phase != Some("Succeeded") {
                        return Err(format!("a Workflow did not succeed: {found:?}"));
                    }
                }
                in_order(ground)
            },
        },
        Scenario {
            name: "lock-left",
            about: "locks of units that are gone are freed",
            own_kinds: true,
            timed: false,
            stalls: true,
            alone: true,
            github: None,
            machines,
            script: || {
                vec![home(), left_lock("0", json!({})), left_lock("1", json!({"pawl.dev/last-success": "t"}))]
            },
            ends_with: |ground| match ground
                .all(&LEASE)
                .map(|lease| holder(lease))
                .collect::<Vec<_>>()
                .as_slice()
            {
                [None] => Ok(()),
                other => Err(format!("locks are left: {other:?}")),
            },
        },
    ]
}

fn machines(guards: Guards) -> Vec<AnyMachine> {
    let workflows = Workflows::default();
    super::jobs::machines(guards)
        .into_iter()
        .chain([AnyMachine::new(workflows), AnyMachine::new(Templates), AnyMachine::new(Reaper)])
        .collect()
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

fn repository() -> Deed {
    let spec = json!({"owner": "acme", "name": "infra", "githubSecretRef": {"name": "none"}});
    Deed::create(REPOSITORY, json!({"metadata": {"name": "r", "namespace": "default"}, "spec": spec}))
}

/// A commit of the default branch: evaluated, or not yet.
fn commit(name: &'static str, sequence: u32, evaluated: bool) -> Deed {
    made_with(BRANCH, move |ground| {
        let sha = sequence.to_string().repeat(40);
        let last_sha = if evaluated { sha.clone() } else { String::new() };
        let spec =
            json!({"owner": "acme", "repository": "infra", "name": "main", "sha": sha, "sequence": sequence});
        json!({"metadata": {"name": name, "namespace": "default", "annotations": {git::annotations::LAST_SHA: last_sha},
            "ownerReferences": owners(ground, &REPOSITORY, "r")}, "spec": spec})
    })
}

/// The Workflow of a commit, under the name that its Branch gives it.
fn of_commit(branch: &'static str, sequence: u32) -> Deed {
    made_with(WORKFLOW, move |ground| {
        let spec = json!({"owner": "acme", "repository": "infra", "branch": branch, "sha": sequence.to_string().repeat(40),
            "template": "plan", "path": "envs/prod", "parameters": {"isDefaultBranch": "true"}});
        json!({"metadata": {"name": work_name(ground, branch, sequence).unwrap_or_default(), "namespace": "default",
            "finalizers": [git::finalizers::WORKFLOW], "ownerReferences": owners(ground, &BRANCH, branch)}, "spec": spec})
    })
}

fn work_name(ground: &Ground, branch: &str, sequence: u32) -> Result<String, String> {
    let found = ground.get(&BRANCH, "default", branch).ok_or_else(|| format!("no Branch {branch}"))?;
    Ok(git::workflow::name(found.uid(), &sequence.to_string().repeat(40), "plan", "envs/prod", 1))
}

fn owners(ground: &Ground, kind: &pawl_api::meta::Kind, name: &str) -> Value {
    ground.get(kind, "default", name).map(|owner| json!([owner.controller_reference()])).unwrap_or_default()
}

/// An object that names others by what the world gave them.
fn made_with(kind: pawl_api::meta::Kind, manifest: impl Fn(&Ground) -> Value + 'static) -> Deed {
    Deed::create_from(kind, manifest)
}

/// The lock of the one Workflow's target, free, as something that must be remembered has left it.
fn kept_lock() -> Deed {
    let reference = GitRef::Named("feature".to_owned());
    let target = Target::git("github.com", "acme", "infra", "envs/prod", "plan", reference);
    let name = target.map(|target| target.lock_name()).unwrap_or_default();
    Deed::create(
        LEASE,
        json!({"metadata": {"name": name, "namespace": SYSTEM_NAMESPACE,
        "annotations": {"pawl.dev/last-success": "monday"}}, "spec": {}}),
    )
}

/// A lock whose unit is gone.
fn left_lock(hash: &str, annotations: Value) -> Deed {
    let mut annotations = annotations;
    let unit = json!({"unit": {"group": WORKFLOW.group, "version": WORKFLOW.version, "kind": WORKFLOW.kind,
        "plural": WORKFLOW.plural, "namespaced": true, "namespace": "default", "name": "gone", "uid": "gone"}});
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(lock::HOLDER.to_owned(), unit.to_string().into());
    }
    Deed::create(
        LEASE,
        json!({"metadata": {"name": format!("{}{hash}", lock::PREFIX), "namespace": SYSTEM_NAMESPACE,
        "labels": {lock::UNIT: "gone"}, "annotations": annotations}, "spec": {"holderIdentity": "gone"}}),
    )
}

fn holder(lease: &Object) -> Option<String> {
    lease.raw().pointer("/spec/holderIdentity").and_then(Value::as_str).map(str::to_owned)
}

/// The second commit's Job is let go after the first's is over.
fn in_order(ground: &Ground) -> Result<(), String> {
    let (first, second) = (work_name(ground, "first", 1)?, work_name(ground, "second", 2)?);
    let jobs = |name: String, wanted: fn(&Object) -> bool| {
        ground.history.iter().position(move |happened| {
            let object = &happened.object;
            *object.kind() == JOB && object.name() == name && wanted(object)
        })
    };
    let over = jobs(first, |job| {
        let conditions = job.status().get("conditions").and_then(Value::as_array);
        conditions.into_iter().flatten().any(|one| one.get("type") == Some(&"Complete".into()))
    });
    let begun = jobs(second, oracle::has_run);
    if over.is_some() && over < begun {
        Ok(())
    } else {
        Err("the second commit did not wait for the first".to_owned())
    }
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
