//! The first slice of the git door: WorkflowTemplate and Workflow, a Job, a phase.

use pawl_api::git;
use pawl_api::k8s::{JOB, LEASE, POD};
use pawl_api::meta::target::GitRef;
use pawl_api::meta::{Kind, Target};
use pawl_api::pawl::SYSTEM_NAMESPACE;
use pawl_machines::git::workflow::Workflows;
use pawl_machines::git::workflow_template::Templates;
use pawl_machines::lock::{self, reaper::Reaper};
use pawl_machines::machine::AnyMachine;
use pawl_machines::object::Object;
use serde_json::{Value, json};

use super::expect::{self, has_condition, jobs_ran, none_left};
use super::jobs::template;
use super::{home, merged};
use crate::ground::Ground;
use crate::mutant::Guards;
use crate::oracle;
use crate::scenario::{Deed, Scenario, phase_is};

const WORKFLOW: Kind = git::workflow::KIND;
const TEMPLATE: Kind = git::workflow_template::KIND;
const BRANCH: Kind = git::branch::KIND;
const REPOSITORY: Kind = git::repository::KIND;

/// How long a deletion waits for its Job.
const LIMIT: jiff::SignedDuration = jiff::SignedDuration::from_mins(10);

pub(super) fn all() -> Vec<Scenario> {
    vec![
        scenario("workflow", "a Workflow runs its Job once and succeeds")
            .script(|| one_workflow(&["exit", "0"], []))
            .ends_with(|ground| jobs_ran(ground, 1).and_then(|()| ends_as(ground, "Succeeded"))),
        scenario("workflow-fails", "a failing Job fails its Workflow, and is not run again")
            .script(|| one_workflow(&["exit", "1"], []))
            .ends_with(|ground| jobs_ran(ground, 1).and_then(|()| ends_as(ground, "Failed"))),
        scenario("workflow-late-template", "a Workflow waits for its template")
            .script(|| vec![home(), branch(), workflow(), workflow_template(&["exit", "0"]).when(waits)])
            .ends_with(|ground| jobs_ran(ground, 1).and_then(|()| ends_as(ground, "Succeeded"))),
        scenario("workflow-foreign-job", "a Job of that name that is somebody else's is left alone")
            .alone()
            .script(|| {
                let theirs = json!({"suspend": true, "template": template(&["exit", "0"])});
                let theirs = Deed::create_with_spec(JOB, "w", theirs);
                vec![home(), branch(), workflow_template(&["exit", "0"]), theirs, workflow()]
            })
            .ends_with(|ground| ends_as(ground, "Failed")),
        scenario("workflow-job-removed", "a finished Workflow stays finished when its Job is removed")
            .script(|| {
                let remove = Deed::delete(JOB, "w").when(phase_is(WORKFLOW, "w", "Succeeded"));
                one_workflow(&["exit", "0"], [remove])
            })
            .ends_with(|ground| jobs_ran(ground, 1).and_then(|()| ends_as(ground, "Succeeded"))),
        scenario("workflow-delete", "a Workflow deleted while it runs stops its Job before it goes")
            .timed()
            .script(|| one_workflow(&["hang"], [delete_while_it_runs()]))
            .ends_with(|ground| {
                none_left(ground, &[JOB, WORKFLOW])?;
                let gone =
                    |kind: &Kind| ground.history.iter().rposition(|happened| happened.object.kind() == kind);
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
            }),
        scenario("workflow-namesake", "a Workflow made anew under the same name keeps its own Job")
            .timed()
            .script(|| {
                let again = workflow().when(|ground| none_left(ground, &[WORKFLOW, JOB]).is_ok());
                one_workflow(&["hang"], [delete_while_it_runs(), again])
            })
            .ends_with(|ground| ends_as(ground, "Running")),
        scenario("workflow-branch-gone", "a Workflow without its Branch goes away")
            .script(|| vec![home(), workflow_template(&["exit", "0"]), workflow()])
            .ends_with(|ground| none_left(ground, &[WORKFLOW, JOB])),
        scenario("workflow-kept-lock", "a lock that carries something else is taken and freed, and keeps it")
            .script(|| vec![home(), kept_lock(), branch(), workflow_template(&["exit", "0"]), workflow()])
            .ends_with(|ground| {
                jobs_ran(ground, 1).and_then(|()| ends_as(ground, "Succeeded"))?;
                let kept =
                    ground.all(&LEASE).find(|lease| lease.annotation("pawl.dev/last-success").is_some());
                match kept {
                    Some(lease) if holder(lease).is_none() => Ok(()),
                    other => Err(format!("the lock is {:?}", other.map(|lease| lease.raw()))),
                }
            }),
        scenario(
            "workflow-commits",
            "two commits of the default branch run one after the other, in their order",
        )
        .timed()
        .script(|| {
            let evaluated =
                json!({"metadata": {"annotations": {git::annotations::LAST_SHA: "1".repeat(40)}}});
            vec![
                home(),
                repository(),
                commit("first", 1, false),
                commit("second", 2, true),
                workflow_template(&["exit", "0"]),
                of_commit("second", 2),
                of_commit("first", 1),
                Deed::patch(BRANCH, "first", evaluated),
            ]
        })
        .ends_with(|ground| {
            for name in [work_name(ground, "first", 1)?, work_name(ground, "second", 2)?] {
                expect::phase(ground, &WORKFLOW, &name, "Succeeded")?;
            }
            in_order(ground)
        }),
        scenario("lock-left", "locks of units that are gone are freed")
            .alone()
            .script(|| {
                vec![home(), left_lock("0", json!({})), left_lock("1", json!({"pawl.dev/last-success": "t"}))]
            })
            .ends_with(|ground| {
                let holders: Vec<_> = ground.all(&LEASE).map(|lease| holder(lease)).collect();
                expect::equal("holders of the locks left", holders, [None])
            }),
    ]
}

fn scenario(name: &'static str, about: &'static str) -> Scenario {
    Scenario::new(name, about).machines(machines)
}

fn machines(guards: Guards) -> Vec<AnyMachine> {
    let workflows = Workflows::default();
    super::jobs::machines(guards)
        .into_iter()
        .chain([AnyMachine::new(workflows), AnyMachine::new(Templates), AnyMachine::new(Reaper)])
        .collect()
}

/// A Workflow of a template that runs this command, and what is done then.
fn one_workflow<const N: usize>(command: &[&str], then: [Deed; N]) -> Vec<Deed> {
    [home(), branch(), workflow_template(command), workflow()].into_iter().chain(then).collect()
}

fn delete_while_it_runs() -> Deed {
    Deed::delete(WORKFLOW, "w").when(phase_is(WORKFLOW, "w", "Running"))
}

fn branch() -> Deed {
    let spec = json!({"owner": "acme", "repository": "infra", "name": "feature", "sha": "a".repeat(40)});
    Deed::create_with_spec(BRANCH, "b", spec)
}

fn workflow_template(command: &[&str]) -> Deed {
    let spec =
        json!({"displayName": "Plan", "match": {"paths": ["**"]}, "job": {"template": template(command)}});
    Deed::create_with_spec(TEMPLATE, "plan", spec)
}

fn workflow() -> Deed {
    let spec = json!({"owner": "acme", "repository": "infra", "branch": "b", "sha": "a".repeat(40),
        "template": "plan", "path": "envs/prod", "parameters": {"isDefaultBranch": "false"}});
    Deed::create_with_spec(WORKFLOW, "w", spec)
}

fn repository() -> Deed {
    let spec = json!({"owner": "acme", "name": "infra", "githubSecretRef": {"name": "none"}});
    Deed::create_with_spec(REPOSITORY, "r", spec)
}

/// A commit of the default branch: evaluated, or not yet.
fn commit(name: &'static str, sequence: u32, evaluated: bool) -> Deed {
    Deed::create_from(BRANCH, move |ground| {
        let sha = sequence.to_string().repeat(40);
        let last_sha = if evaluated { sha.clone() } else { String::new() };
        let spec =
            json!({"owner": "acme", "repository": "infra", "name": "main", "sha": sha, "sequence": sequence});
        let annotations = json!({git::annotations::LAST_SHA: last_sha});
        json!({"metadata": {"name": name, "annotations": annotations,
            "ownerReferences": owners(ground, &REPOSITORY, "r")}, "spec": spec})
    })
}

/// The Workflow of a commit, under the name that its Branch gives it.
fn of_commit(branch: &'static str, sequence: u32) -> Deed {
    Deed::create_from(WORKFLOW, move |ground| {
        let sha = sequence.to_string().repeat(40);
        let name = work_name(ground, branch, sequence).unwrap_or_default();
        let spec = json!({"owner": "acme", "repository": "infra", "branch": branch, "sha": sha,
            "template": "plan", "path": "envs/prod", "parameters": {"isDefaultBranch": "true"}});
        json!({"metadata": {"name": name, "finalizers": [git::finalizers::WORKFLOW],
            "ownerReferences": owners(ground, &BRANCH, branch)}, "spec": spec})
    })
}

fn work_name(ground: &Ground, branch: &str, sequence: u32) -> Result<String, String> {
    let found = ground.get(&BRANCH, "default", branch).ok_or_else(|| format!("no Branch {branch}"))?;
    Ok(git::workflow::name(found.uid(), &sequence.to_string().repeat(40), "plan", "envs/prod", 1))
}

fn owners(ground: &Ground, kind: &Kind, name: &str) -> Value {
    ground.get(kind, "default", name).map(|owner| json!([owner.controller_reference()])).unwrap_or_default()
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
    let unit = json!({"unit": {"group": WORKFLOW.group, "version": WORKFLOW.version, "kind": WORKFLOW.kind,
        "plural": WORKFLOW.plural, "namespaced": true, "namespace": "default", "name": "gone", "uid": "gone"}});
    let annotations = merged(annotations, json!({lock::HOLDER: unit.to_string()}));
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
    let over = jobs(first, |job| has_condition(job, "Complete", "True"));
    let begun = jobs(second, oracle::has_run);
    if over.is_some() && over < begun {
        Ok(())
    } else {
        Err("the second commit did not wait for the first".to_owned())
    }
}

fn waits(ground: &Ground) -> bool {
    let workflow = ground.get(&WORKFLOW, "default", "w");
    workflow.is_some_and(|workflow| has_condition(workflow, "TemplateFound", "False"))
}

fn ends_as(ground: &Ground, phase: &str) -> Result<(), String> {
    expect::phase(ground, &WORKFLOW, "w", phase)
}
