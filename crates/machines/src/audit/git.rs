//! What has happened in the git door?
//!
//! | entry | implied by | once per |
//! |---|---|---|
//! | `git.workflow.started` | `startTime` | Workflow (it runs once: I1, I2) |
//! | `git.workflow.completed`, `failed`, `cancelled` | the terminal phase | Workflow |
//! | `git.branch.evaluated` | `evaluations` | commit, and what was made of it |
//! | `git.branch.approved` | `approved` (`/ok-to-test`) | commit and member |
//! | `git.branch.retest`, `cancel` | the request that was answered | request |
//! | `git.branch.finished` | `result`, once it is over | commit and result |

use pawl_api::git::branch::{BranchResult, ResultState};
use pawl_api::git::{Branch, Workflow, WorkflowPhase};
use pawl_api::meta::names;
use serde_json::{Value, json};

use super::unit::Teller;
use super::{Actor, Entry, Outcome};

pub(crate) fn workflow(tell: &Teller<'_>, workflow: &Workflow) -> Vec<Entry> {
    let Some(status) = &workflow.status else { return Vec::new() };
    let spec = &workflow.spec;
    let of_the_run = |entry: Entry| {
        entry
            .with("repository", format!("{}/{}", spec.owner, spec.repository))
            .with("branch", spec.branch.as_str())
            .with("sha", spec.sha.as_str())
            .with("template", spec.template.as_str())
            .with("path", spec.path.as_str())
            .with("attempt", spec.attempt)
            .with("job", status.job_ref.as_ref().map(|job| json!({"name": job.name, "uid": job.uid})))
    };
    let mut entries = Vec::new();
    if let Some(time) = &status.start_time {
        entries.push(of_the_run(tell.entry("started", "", Some(time)).outcome(Outcome::Pending)));
    }
    let (event, outcome) = match status.phase {
        Some(WorkflowPhase::Succeeded) => ("completed", Outcome::Success),
        Some(WorkflowPhase::Failed) => ("failed", Outcome::Failure),
        Some(WorkflowPhase::Cancelled) => ("cancelled", Outcome::Cancelled),
        Some(WorkflowPhase::Pending | WorkflowPhase::Running) | None => return entries,
    };
    let ended = tell.entry(event, "", status.completion_time.as_ref()).outcome(outcome);
    entries.push(
        of_the_run(ended)
            .with("reason", status.reason.as_deref())
            .with("message", status.message.as_deref())
            .with("checkRunID", status.check_run_id.filter(|id| *id != 0)),
    );
    entries
}

pub(crate) fn branch(tell: &Teller<'_>, branch: &Branch) -> Vec<Entry> {
    let Some(status) = &branch.status else { return Vec::new() };
    let spec = &branch.spec;
    let of_the_ref = |entry: Entry, sha: &str| {
        let repository = format!("{}/{}", spec.owner, spec.repository);
        entry.with("repository", repository).with("ref", spec.name.as_str()).with("sha", sha)
    };
    let mut entries = Vec::new();
    if let Some(sha) = status.evaluated_sha.as_deref().filter(|_| !status.evaluations.is_empty()) {
        let made: Vec<Value> = status
            .evaluations
            .iter()
            .map(|it| json!({"template": it.template, "workflows": it.workflows, "reason": it.reason}))
            .collect();
        let made = Value::from(made);
        let occasion = format!("{sha}/{}", names::hash(&[&made.to_string()], 16));
        let entry = of_the_ref(tell.entry("evaluated", &occasion, None), sha);
        entries.push(entry.with("changedFiles", status.changed_file_count).with("evaluations", made));
    }
    if let Some(approved) = &status.approved {
        let mut entry = tell.entry("approved", &format!("{}/{}", approved.sha, approved.by), None);
        entry.actor = Actor::User(approved.by.clone());
        entries.push(of_the_ref(entry, &approved.sha));
    }
    for (event, request) in [("retest", &status.handled_retest), ("cancel", &status.handled_cancel)] {
        if let Some(request) = request {
            entries.push(
                of_the_ref(tell.entry(event, request, None), &spec.sha).with("request", request.as_str()),
            );
        }
    }
    if let Some(BranchResult { sha, state, message }) = status.result.as_ref().filter(|it| it.state.is_over())
    {
        let again = status.handled_retest.as_deref().unwrap_or_default();
        let entry = tell.entry("finished", &format!("{sha}/{}/{again}", state.as_str()), None);
        let entry = of_the_ref(entry.outcome(outcome(*state)), sha);
        entries.push(entry.with("result", state.as_str()).with("message", message.as_str()));
    }
    entries
}

fn outcome(state: ResultState) -> Outcome {
    match state {
        ResultState::Running | ResultState::ActionRequired => Outcome::Pending,
        ResultState::Succeeded => Outcome::Success,
        ResultState::Failed => Outcome::Failure,
        ResultState::Cancelled => Outcome::Cancelled,
        ResultState::Skipped => Outcome::Skipped,
        ResultState::Denied => Outcome::Denied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::id;
    use crate::cache::World;
    use crate::machine::AnyMachine;
    use crate::object::Object;
    use jiff::Timestamp;
    use pawl_api::git::{branch, workflow};
    use std::sync::Arc;

    const SHA: &str = "0123456789abcdef0123456789abcdef01234567";

    fn told(machine: &AnyMachine, kind: pawl_api::meta::Kind, object: Value, second: i64) -> Vec<Entry> {
        let me = Object::new(kind, object).unwrap();
        machine.audit(&World::default(), &me, Timestamp::from_second(second).unwrap()).unwrap()
    }

    fn workflow_entries(status: &Value, second: i64) -> Vec<Entry> {
        let owner = json!({"apiVersion": "terrakojo.io/v1alpha1", "kind": "Branch", "name": "b", "uid": "branch-uid",
            "controller": true});
        let object = json!({
            "metadata": {"name": "plan-1", "namespace": "team", "uid": "u", "ownerReferences": [owner]},
            "spec": {"owner": "acme", "repository": "infra", "branch": "b", "sha": SHA, "template": "plan", "path": ".",
                "attempt": 2},
            "status": status,
        });
        let machine = AnyMachine::new(crate::git::workflow::Workflows::default());
        told(&machine, workflow::KIND, object, second)
    }

    fn events(entries: &[Entry]) -> Vec<(&str, Outcome)> {
        entries.iter().map(|entry| (entry.event.as_str(), entry.outcome)).collect()
    }

    #[test]
    fn a_finished_workflow_tells_its_whole_story_and_the_same_one_each_time() {
        let ended = json!({"phase": "Failed", "reason": "JobFailed", "message": "exit code 1", "target": "git:x",
            "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:01:00Z",
            "jobRef": {"name": "plan-1", "uid": "job-uid"},
            "gates": [{"gate": "Lock", "verdict": "Passed", "reason": "Free", "lookedAt": "lease"}]});
        let entries = workflow_entries(&ended, 7);
        assert_eq!(
            events(&entries),
            [
                ("git.workflow.started", Outcome::Pending),
                ("git.workflow.failed", Outcome::Failure),
                ("git.workflow.lock.evaluated", Outcome::Success),
                ("git.workflow.lock.taken", Outcome::Success),
                ("git.workflow.lock.released", Outcome::Success),
            ]
        );
        let failed = &entries[1];
        assert_eq!(failed.at.to_string(), "2026-01-01T00:01:00Z");
        assert_eq!((failed.target.as_str(), failed.correlation.as_str()), ("git:x", "branch-uid"));
        assert_eq!((&failed.payload["reason"], &failed.payload["attempt"]), (&json!("JobFailed"), &json!(2)));
        let ids = |entries: &[Entry]| entries.iter().map(|entry| entry.id).collect::<Vec<_>>();
        assert_eq!(ids(&workflow_entries(&ended, 99)), ids(&entries), "whenever it is looked at");
        // A state seen earlier says a part of the same.
        let running = json!({"phase": "Running", "startTime": "2026-01-01T00:00:00Z"});
        assert_eq!(ids(&workflow_entries(&running, 5)), [id("u", "git.workflow.started", "")]);
        assert!(workflow_entries(&json!({"phase": "Pending"}), 1).is_empty());
    }

    #[test]
    fn every_change_of_a_gate_is_told_once() {
        let with = |verdict: &str, looked_at: &str| {
            let gate =
                json!({"gate": "Lock", "verdict": verdict, "reason": "TargetLocked", "lookedAt": looked_at});
            workflow_entries(&json!({"phase": "Pending", "gates": [gate]}), 1).remove(0)
        };
        let first = with("Waiting", "held by a");
        assert_eq!((first.event.as_str(), first.outcome), ("git.workflow.lock.evaluated", Outcome::Pending));
        assert_eq!(with("Waiting", "held by a").id, first.id);
        assert_ne!(with("Waiting", "held by b").id, first.id);
        assert_ne!(with("Passed", "held by a").id, first.id);
        assert_eq!(with("Stopped", "x").outcome, Outcome::Denied);
    }

    #[test]
    fn a_branch_tells_what_was_made_of_each_commit_and_who_allowed_it() {
        let machine = AnyMachine::new(crate::git::branch::Branches::default());
        let status = |workflows: i64| {
            json!({"evaluatedSha": SHA, "changedFileCount": 3, "handledRetest": "comment-7",
                "evaluations": [{"template": "plan", "workflows": workflows, "reason": "Matched"}],
                "approved": {"sha": SHA, "by": "octocat"}, "result": {"sha": SHA, "state": "Succeeded"}})
        };
        let object = |workflows| {
            json!({"metadata": {"name": "b", "namespace": "team", "uid": "u"}, "status": status(workflows),
                "spec": {"owner": "acme", "repository": "infra", "name": "main", "sha": SHA}})
        };
        let entries = told(&machine, branch::KIND, object(1), 1);
        assert_eq!(
            events(&entries),
            [
                ("git.branch.evaluated", Outcome::Success),
                ("git.branch.approved", Outcome::Success),
                ("git.branch.retest", Outcome::Success),
                ("git.branch.finished", Outcome::Success),
            ]
        );
        assert_eq!(entries[1].actor, Actor::User("octocat".to_owned()));
        assert_eq!(entries[0].payload["evaluations"][0]["reason"], "Matched");
        // Evaluated anew with another result (a template came): another entry.
        assert_ne!(told(&machine, branch::KIND, object(2), 1)[0].id, entries[0].id);
    }

    #[test]
    fn i5_what_is_lost_when_an_object_is_let_go_is_its_last_word() {
        use crate::machine::BoundPlan;
        use crate::plan::{Note, Step, Wake};
        let machine = AnyMachine::new(crate::git::workflow::Workflows::default());
        let object = json!({"metadata": {"name": "w", "namespace": "team", "uid": "u",
            "deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Running"}});
        let me = Object::new(workflow::KIND, object).unwrap();
        let finalizer = machine.description().finalizer.unwrap().to_owned();
        let mut plan = BoundPlan {
            machine: "workflow",
            basis: me.reference(),
            resource_version: "1".to_owned(),
            fenced: false,
            in_any_order: false,
            steps: vec![],
            notes: vec![Note::warning("CheckRunLost", "no credentials")],
            status: None,
            waiting: vec![],
            asks: vec![],
            wake: Wake::OnChange,
        };
        let world = World::default();
        let said = |plan: &BoundPlan, me: &Arc<Object>| {
            machine.teller(&world, me, Timestamp::UNIX_EPOCH).last_words(plan)
        };
        assert_eq!(said(&plan, &me), None);
        plan.steps.push(Step::RemoveFinalizer(finalizer));
        let entry = said(&plan, &me).unwrap();
        assert_eq!((entry.event.as_str(), entry.outcome), ("git.workflow.deleted", Outcome::Lost));
        assert_eq!(entry.payload["told"][0]["reason"], "CheckRunLost");
        plan.notes.clear();
        assert_eq!(said(&plan, &me).unwrap().outcome, Outcome::Success);
    }
}
