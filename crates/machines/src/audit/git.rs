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
//! | `git.repository.configured`, `git.workflowtemplate.configured` | `observedGeneration` is the object's | version of its spec |
//! | `git.repository.synced` | `synced` | Repository |
//! | `git.repository.suspended`, `refused` | `Ready` is false, for a reason that somebody has to take away | reason, and since when |
//! | `git.workflowtemplate.refused` | `Valid` is false | version of its spec, and what is wrong |
//!
//! What was configured decides what runs, so its digest is told; that of before stands in the row before.

use pawl_api::git::branch::{BranchResult, ResultState};
use pawl_api::git::repository::READY;
use pawl_api::git::workflow_template::VALID;
use pawl_api::git::{Branch, Repository, Workflow, WorkflowPhase, WorkflowTemplate};
use pawl_api::meta::{Reason, condition, names};
use serde_json::{Value, json};

use super::unit::Teller;
use super::{Actor, Entry, Outcome};

/// Why a Repository is not followed until somebody does something. What passes by itself (a limit, an outage) is no
/// decision, and no row.
const REFUSED: [Reason; 8] = [
    Reason::CredentialsInvalid,
    Reason::CredentialsMissing,
    Reason::DefaultBranchMissing,
    Reason::DuplicateRepository,
    Reason::Forbidden,
    Reason::RepositoryNotFound,
    Reason::SecretRefNotAllowed,
    Reason::Unauthorized,
];

pub(crate) fn repository(tell: &Teller<'_>, repository: &Repository) -> Vec<Entry> {
    let Some(status) = &repository.status else { return Vec::new() };
    let spec = &repository.spec;
    let of_it = |entry: Entry| entry.with("repository", format!("{}/{}", spec.owner, spec.name));
    let mut entries = Vec::new();
    if let Some(entry) = configured(tell, status.observed_generation) {
        let entry = of_it(entry)
            .with("githubSecretRef", json!(spec.github_secret_ref))
            .with("forks", json!(spec.forks))
            .with("drafts", json!(spec.drafts))
            .with("suspend", spec.suspend);
        entries.push(entry);
    }
    if status.synced {
        entries.push(of_it(tell.entry("synced", "", status.last_sync_at.as_ref())));
    }
    if let Some(ready) = condition::get(&status.conditions, READY).filter(|it| it.status == "False") {
        let is = |reason: &Reason| reason.as_str() == ready.reason;
        let told = match () {
            () if is(&Reason::Suspended) => Some(("suspended", Outcome::Skipped)),
            () if REFUSED.iter().any(is) => Some(("refused", Outcome::Denied)),
            () => None,
        };
        entries.extend(told.map(|(event, outcome)| {
            let since = &ready.last_transition_time;
            let entry = tell.entry(event, &format!("{}/{}", ready.reason, since.0), Some(since));
            let entry = of_it(entry.outcome(outcome)).with("reason", ready.reason.as_str());
            entry.with("message", ready.message.as_str())
        }));
    }
    entries
}

pub(crate) fn workflow_template(tell: &Teller<'_>, template: &WorkflowTemplate) -> Vec<Entry> {
    let Some(status) = &template.status else { return Vec::new() };
    let spec = &template.spec;
    let Some(entry) = configured(tell, status.observed_generation) else { return Vec::new() };
    let pod = spec.job.parse().ok().and_then(|job| job.template.spec);
    let containers = pod.into_iter().flat_map(|pod| pod.containers);
    let images: Vec<String> = containers.filter_map(|container| container.image).collect();
    let entry = entry
        .with("displayName", spec.display_name.as_str())
        .with("match", json!(spec.match_))
        .with("on", json!(spec.on))
        .with("dependsOn", json!(spec.depends_on))
        .with("images", images);
    let mut entries = vec![entry];
    if let Some(valid) = condition::get(&status.conditions, VALID).filter(|it| it.status == "False") {
        let what = names::hash(&[&valid.reason, &valid.message], 16);
        let occasion = format!("{}/{what}", status.observed_generation.unwrap_or_default());
        let entry = tell.entry("refused", &occasion, None).outcome(Outcome::Denied);
        entries.push(entry.with("reason", valid.reason.as_str()).with("message", valid.message.as_str()));
    }
    entries
}

/// That a version of what a person wrote was taken up.
fn configured(tell: &Teller<'_>, observed: Option<i64>) -> Option<Entry> {
    let meta = tell.me.meta();
    let generation = meta.generation.filter(|generation| Some(*generation) == observed)?;
    let digest = names::hash(&[&tell.me.raw().get("spec").unwrap_or(&Value::Null).to_string()], 64);
    // Of the first it is known when it came to be.
    let at = meta.creation_timestamp.as_ref().filter(|_| generation == 1);
    let entry = tell.entry("configured", &format!("{generation}/{digest}"), at);
    Some(entry.with("generation", generation).with("specDigest", digest))
}

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
        let machine = AnyMachine::new(crate::git::branch::Branches);
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

    fn repository_entries(generation: i64, observed: i64, ready: &Value) -> Vec<Entry> {
        let object = json!({
            "metadata": {"name": "infra", "namespace": "team", "uid": "u", "generation": generation,
                "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"owner": "acme", "name": "infra", "type": "github", "defaultBranch": "main",
                "githubSecretRef": {"name": "token"}, "suspend": generation > 1},
            "status": {"observedGeneration": observed, "synced": true, "lastSyncAt": "2026-01-01T00:05:00Z",
                "conditions": [ready]},
        });
        let machine = AnyMachine::new(crate::git::repository::Repositories);
        told(&machine, pawl_api::git::repository::KIND, object, 99)
    }

    fn ready(status: &str, reason: &str, minute: u8) -> Value {
        json!({"type": "Ready", "status": status, "reason": reason, "message": "so it is",
            "lastTransitionTime": format!("2026-01-01T00:{minute:02}:00Z")})
    }

    #[test]
    fn a_repository_tells_each_version_of_its_settings_its_first_sync_and_who_is_not_let_in() {
        let fine = repository_entries(1, 1, &ready("True", "Synced", 1));
        let all =
            [("git.repository.configured", Outcome::Success), ("git.repository.synced", Outcome::Success)];
        assert_eq!(events(&fine), all);
        assert_eq!(fine[0].at.to_string(), "2026-01-01T00:00:00Z");
        assert_eq!(fine[0].payload["repository"], "acme/infra");
        assert_eq!(fine[0].payload["specDigest"].as_str().unwrap().len(), 64);
        let ids = |entries: &[Entry]| entries.iter().map(|entry| entry.id).collect::<Vec<_>>();
        assert_eq!(
            ids(&repository_entries(1, 1, &ready("True", "Synced", 9))),
            ids(&fine),
            "each poll, no row"
        );

        let edited = repository_entries(2, 1, &ready("True", "Synced", 1));
        assert_eq!(ids(&edited), ids(&fine)[1..], "not before it is taken up");
        let suspended = repository_entries(2, 2, &ready("False", "Suspended", 7));
        assert_eq!(suspended[2].event, "git.repository.suspended");
        assert_ne!(suspended[0].payload["specDigest"], fine[0].payload["specDigest"]);
        assert_eq!(suspended[0].payload["suspend"], true);

        let refused = |minute| repository_entries(1, 1, &ready("False", "Unauthorized", minute)).remove(2);
        assert_eq!(
            (refused(3).event.as_str(), refused(3).outcome),
            ("git.repository.refused", Outcome::Denied)
        );
        assert_eq!(refused(3).id, refused(3).id);
        assert_ne!(refused(3).id, refused(4).id, "it was let in between");
        assert_eq!(
            repository_entries(1, 1, &ready("False", "RateLimited", 3)).len(),
            2,
            "this passes by itself"
        );
    }

    #[test]
    fn a_template_tells_each_version_of_what_it_runs_and_what_is_wrong_with_it() {
        let entries = |generation: i64, image: &str, valid: &str, message: &str| {
            let job = json!({"template": {"spec": {"containers": [{"name": "c", "image": image}]}}});
            let object = json!({"metadata": {"name": "plan", "namespace": "team", "uid": "u", "generation": generation},
                "spec": {"displayName": "plan", "match": {"paths": ["**"]}, "job": job},
                "status": {"observedGeneration": generation, "conditions": [{"type": "Valid", "status": valid,
                    "reason": "BadGlob", "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
            let machine = AnyMachine::new(crate::git::workflow_template::Templates);
            told(&machine, pawl_api::git::workflow_template::KIND, object, 1)
        };
        let first = entries(1, "busybox:1", "True", "");
        assert_eq!(events(&first), [("git.workflowtemplate.configured", Outcome::Success)]);
        assert_eq!(first[0].payload["images"], json!(["busybox:1"]));
        assert_eq!(first[0].payload["match"]["paths"], json!(["**"]));
        assert_eq!(entries(1, "busybox:1", "True", "")[0].id, first[0].id);
        assert_ne!(entries(2, "busybox:2", "True", "")[0].id, first[0].id);
        assert_ne!(
            entries(3, "busybox:1", "True", "")[0].id,
            first[0].id,
            "back to what it was is a change too"
        );
        let bad = entries(1, "busybox:1", "False", "paths[0]: {");
        assert_eq!(events(&bad)[1], ("git.workflowtemplate.refused", Outcome::Denied));
        assert_ne!(bad[1].id, entries(1, "busybox:1", "False", "a cycle")[1].id);
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
            asks: vec![],
            wake: Wake::OnChange,
        };
        let world = World::default();
        let said = |plan: &BoundPlan, me: &Arc<Object>| {
            machine.teller(&world, me, Timestamp::UNIX_EPOCH).last_words(plan)
        };
        assert_eq!(said(&plan, &me), None);
        plan.steps.push(Step::remove_finalizer(&finalizer));
        let entry = said(&plan, &me).unwrap();
        assert_eq!((entry.event.as_str(), entry.outcome), ("git.workflow.deleted", Outcome::Lost));
        assert_eq!(entry.payload["told"][0]["reason"], "CheckRunLost");
        plan.notes.clear();
        assert_eq!(said(&plan, &me).unwrap().outcome, Outcome::Success);
    }
}
