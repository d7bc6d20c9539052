//! What GitHub is told, when, and how often.

use super::*;
use crate::external::{Call, Reply};
use crate::failure::Failure;
use crate::git::github::{
    self, Access, Ask, CheckRun, CheckRunRef, CheckState, Conclusion, Identity, Reply as Said, StatusState,
};
use crate::logs::Logs;

const REPOSITORY: &str = "
kind: Repository
metadata: {name: r}
spec: {owner: acme, name: infra, githubSecretRef: {name: s}}
---";
const OWNED_BRANCH: &str = "
kind: Branch
metadata:
  name: b
  annotations: {terrakojo.io/last-sha: SHA}
  ownerReferences: [{apiVersion: terrakojo.io/v1alpha1, kind: Repository, name: r, uid: repository-r, controller: true}]
spec: {owner: acme, repository: infra, name: feature/x, sha: SHA}
---";
const TOLD: &str = "
kind: Workflow
metadata: {name: w, finalizers: [terrakojo.io/cleanup-checkrun]}
spec: {owner: acme, repository: infra, branch: b, sha: SHA, template: plan, path: envs/prod}
status: {phase: Succeeded, reason: JobSucceeded, jobRef: {name: w, uid: job-w}, checkRunID: 7,
  checkRunName: Plan(envs/prod), checkRunReported: completed/success}
---";

const COMPLETE: &str =
    "{startTime: '2026-01-01T00:00:00Z', completionTime: '2026-01-01T00:00:01Z', succeeded: 1,
  conditions: [{type: Complete, status: 'True'}]}";
const FAILED: &str = "{startTime: '2026-01-01T00:00:00Z', failed: 1,
  conditions: [{type: Failed, status: 'True', reason: BackoffLimitExceeded, message: it failed,
    lastTransitionTime: '2026-01-01T00:00:03Z'}]}";

type Answer = Result<Reply, Failure>;

fn ask(call: &Call) -> Option<&Ask> {
    call.request::<github::Call>().map(|call| &call.ask)
}

fn said(reply: Said) -> Answer {
    Ok(Reply::new::<github::Call>(reply))
}

/// A GitHub that knows us as an App and does all that it is asked.
fn app(call: &Call) -> Answer {
    said(match ask(call) {
        None => return Ok(Reply::new::<Logs>("the end of the log".to_owned())),
        Some(Ask::Access) => access(Identity::App),
        Some(Ask::CreateCheckRun(run)) => Said::CheckRun(Some(CheckRunRef { id: 7, state: run.state })),
        Some(Ask::FindCheckRun { .. }) => Said::CheckRun(None),
        Some(_) => Said::Done,
    })
}

fn access(identity: Identity) -> Said {
    Said::Access(Access { identity, rate_limit: None, requests: 0, unchanged: 0 })
}

fn token(call: &Call) -> Answer {
    match ask(call) {
        Some(Ask::Access) => said(access(Identity::Token)),
        Some(Ask::SetStatus(_)) => said(Said::Done),
        Some(_) => Err(refusal(call)),
        None => app(call),
    }
}

fn refusal(call: &Call) -> Failure {
    let category = crate::failure::Category::Permanent;
    let (reason, message) = ("Forbidden".to_owned(), "not for you".to_owned());
    Failure { attempt: call.to_string(), category, reason, message, retry_after: None }
}

fn down(call: &Call) -> Answer {
    Err(Failure::unanswered(call.to_string(), "nobody is there"))
}

/// Knows us, and wants nothing from us.
fn forbids(call: &Call) -> Answer {
    match ask(call) {
        Some(Ask::Access) => app(call),
        Some(_) | None => Err(refusal(call)),
    }
}

/// Has made the check run before, and lost the answer.
fn made_it_before(call: &Call) -> Answer {
    let queued = Some(CheckRunRef { id: 9, state: CheckState::Queued });
    match ask(call) {
        Some(Ask::CreateCheckRun(_) | Ask::FindCheckRun { .. }) => said(Said::CheckRun(queued)),
        Some(_) | None => app(call),
    }
}

fn case(outside: fn(&Call) -> Answer, documents: &[&str]) -> Case {
    let mut case = Case::new(&[&[REPOSITORY, OWNED_BRANCH, TEMPLATE], documents].concat());
    case.cluster.outside = outside;
    case
}

impl Case {
    /// Everything that was written at GitHub: what, and in which state.
    fn told(&self) -> Vec<String> {
        let told = self.cluster.calls.iter().filter(|call| call.is_write()).filter_map(ask);
        told.map(|ask| {
            if let Ask::CreateCheckRun(run) = ask {
                format!("create {}", run.state)
            } else if let Ask::UpdateCheckRun { id, run } = ask {
                format!("update {id} {}", run.state)
            } else if let Ask::SetStatus(status) = ask {
                format!("status {:?}", status.state)
            } else {
                panic!("{ask:?}")
            }
        })
        .collect()
    }

    fn last_run(&self) -> CheckRun {
        let runs = self.cluster.calls.iter().rev().filter_map(ask).find_map(|ask| {
            let (Ask::CreateCheckRun(run) | Ask::UpdateCheckRun { run, .. }) = ask else { return None };
            Some(run.clone())
        });
        runs.unwrap()
    }

    fn status(&self, field: &str) -> Value {
        self.workflow().unwrap()["status"][field].clone()
    }

    /// What the Job says from now on.
    fn job_says(mut self, status: &str) -> Self {
        let status: Value = serde_saphyr::from_str(status).unwrap();
        self.cluster.edit(&JOB, &key(), &json!({"status": status}));
        self.settle()
    }
}

#[test]
fn the_check_run_is_queued_before_the_job_exists_and_recorded_with_it() {
    let mut case = case(app, &[WORKFLOW]);
    case.cluster.step(&case.machine.clone(), &workflow::KIND, &key());
    assert_eq!(case.told(), ["create queued"]);
    assert!(case.job().is_some() && case.cluster.statuses.is_empty());
    let case = case.settle();
    let run = case.last_run();
    assert_eq!((run.name.as_str(), run.external_id.as_str()), ("Plan(envs/prod)", "workflow-w/1"));
    assert_eq!(case.cluster.statuses.len(), 1, "one write records the Job and the check run");
    let recorded = json!([7, "Plan(envs/prod)", "queued", case.job().unwrap()["metadata"]["uid"]]);
    let status = |field| case.status(field);
    assert_eq!(
        json!([
            status("checkRunID"),
            status("checkRunName"),
            status("checkRunReported"),
            status("jobRef")["uid"]
        ]),
        recorded
    );
}

#[test]
fn a_short_job_costs_two_calls_two_statuses_and_one_event() {
    let case = case(app, &[WORKFLOW]).settle().job_says("{startTime: '2026-01-01T00:00:00Z', active: 1}");
    let case = case.job_says(COMPLETE);
    assert_eq!(case.says(), ("Succeeded".into(), "JobSucceeded".into()));
    assert_eq!(case.told(), ["create queued", "update 7 completed/success"]);
    assert_eq!((case.cluster.statuses.len(), case.cluster.events.len()), (2, 1));
    assert!(case.cluster.world.list(&LEASE, None).is_empty(), "the lock is gone");
    let run = case.last_run();
    let at = |text: &str| Some(text.parse::<jiff::Timestamp>().unwrap());
    assert_eq!((run.started_at, run.completed_at), (at("2026-01-01T00:00:00Z"), at("2026-01-01T00:00:01Z")));
}

#[test]
fn a_job_that_runs_on_is_said_to_run_once() {
    let mut case = case(app, &[WORKFLOW]).settle().job_says("{startTime: '2026-01-01T00:00:00Z', active: 1}");
    assert_eq!(case.says().0, "Pending");
    case.cluster.advance(RUNNING_AFTER);
    let case = case.settle().settle();
    assert_eq!(case.says().0, "Running");
    assert_eq!(case.told(), ["create queued", "update 7 in_progress"]);
}

#[test]
fn i6_a_failure_shows_the_containers_and_the_masked_end_of_the_log() {
    let template = TEMPLATE.replace("image: i", "image: i, envFrom: [{secretRef: {name: cloud}}]");
    let mut case = Case::new(&[REPOSITORY, OWNED_BRANCH, &template, WORKFLOW]);
    case.cluster.outside = app;
    let mut case = case.settle();
    let uid = case.job().unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    let pod = format!(
        "{{kind: Pod, metadata: {{name: p, ownerReferences: [{{apiVersion: batch/v1, kind: Job, name: w, uid: {uid}, controller: true}}]}},
  spec: {{containers: [{{name: main, image: i}}]}}, status: {{phase: Failed, containerStatuses: [{{name: main, image: i, imageID: '', ready: false, restartCount: 0,
    state: {{terminated: {{exitCode: 3, startedAt: '2026-01-01T00:00:01Z', finishedAt: '2026-01-01T00:00:03Z'}}}}}}]}}}}"
    );
    case.cluster.put(serde_saphyr::from_str(&pod).unwrap());
    let case = case.job_says(FAILED);
    assert_eq!(case.says(), ("Failed".into(), "JobFailed".into()));
    let logs = case.cluster.calls.iter().find_map(|call| call.request::<Logs>()).unwrap();
    assert_eq!((logs.pod.to_string().as_str(), logs.container.as_str()), ("n/p", "main"));
    assert_eq!(logs.mask, [Key::new(Some("n"), "cloud")]);
    let run = case.last_run();
    assert_eq!(
        (run.state, run.title.as_str()),
        (CheckState::Completed(Conclusion::Failure), "Failed: it failed")
    );
    assert!(run.summary.contains("| main | 3 | 2 s |"), "{}", run.summary);
    assert!(run.text.contains("the end of the log"), "{}", run.text);
}

#[test]
fn i12_a_restart_tells_nothing_of_what_is_finished() {
    let done = job("workflow-w", COMPLETE).replace("name: w\n", "name: w\n  uid: job-w\n");
    for jobs in ["", done.as_str()] {
        let case = case(down, &[TOLD, jobs]).settle();
        assert!(
            case.cluster.calls.is_empty() && case.cluster.statuses.is_empty(),
            "{:?}",
            case.cluster.calls
        );
    }
}

#[test]
fn a_github_that_is_down_keeps_the_run_queued_and_holds_up_no_result() {
    let mut case = case(down, &[WORKFLOW]).settle();
    assert_eq!(case.says(), ("Pending".into(), "CheckRunCreateFailed".into()));
    assert!(case.job().is_none());
    case.cluster.outside = app;
    let mut case = case.settle();
    assert!(case.job().is_some());
    case.cluster.outside = down;
    let mut case = case.job_says(COMPLETE);
    assert_eq!(case.says().0, "Succeeded");
    assert_eq!(case.status("checkRunReported"), "queued");
    assert!(case.cluster.world.list(&LEASE, None).is_empty(), "the next one need not wait for GitHub");
    case.cluster.outside = app;
    case.cluster.calls.clear();
    let case = case.settle().settle();
    assert_eq!(case.told(), ["update 7 completed/success"], "the report follows, once");
    assert_eq!(case.status("checkRunReported"), "completed/success");
}

#[test]
fn a_github_that_refuses_for_good_is_asked_no_more_and_people_are_told() {
    let case = case(forbids, &[WORKFLOW]).settle();
    assert!(case.job().is_some(), "the run goes on without a check run");
    assert!(
        case.cluster.events.iter().any(|event| event.1 == "CheckRunCreateFailed"),
        "{:?}",
        case.cluster.events
    );
    let mut case = case.job_says(COMPLETE);
    assert_eq!(case.says().0, "Succeeded");
    assert!(case.cluster.events.iter().any(|event| event.1 == "CheckRunUpdateFailed"));
    case.cluster.calls.clear();
    assert!(case.settle().cluster.calls.is_empty());
}

/// The Secret is not there.
fn unlocked(call: &Call) -> Answer {
    Err(Failure::answered(call.to_string(), 404, None, b""))
}

#[test]
fn a_result_waits_for_credentials_that_are_being_replaced_but_not_for_ever() {
    let finished = || {
        let mut case = case(app, &[WORKFLOW]).settle();
        case.cluster.outside = unlocked;
        case.job_says(COMPLETE)
    };
    let mut back = finished();
    assert_eq!((back.says().0.as_str(), back.status("checkRunReported")), ("Succeeded", json!("queued")));
    let me = back.cluster.world.get(&workflow::KIND, &key()).unwrap();
    back.cluster.outside = app;
    assert!(!back.cluster.plan(&back.machine, &me).asks.is_empty());
    assert_eq!(back.settle().status("checkRunReported"), "completed/success");
    let mut gone = finished();
    gone.cluster.advance(Duration::from_hours(2));
    let gone = gone.settle();
    assert_eq!(gone.status("checkRunReported"), "completed/success");
    assert!(gone.cluster.events.iter().any(|event| event.1 == "CheckRunUpdateFailed"));
}

#[test]
fn i5_without_its_secret_a_workflow_goes_at_once() {
    let mut case = case(app, &[WORKFLOW]).settle();
    case.cluster.outside = unlocked;
    case.cluster.delete(&JOB, &key(), "Background");
    case.cluster.delete(&workflow::KIND, &key(), "Background");
    assert!(case.settle().workflow().is_none());
}

#[test]
fn i7_a_check_run_whose_answer_was_lost_is_found_again_and_brought_up_to_date() {
    let case = case(made_it_before, &[WORKFLOW]).settle();
    assert_eq!((case.told(), case.status("checkRunID")), (vec!["create queued".to_owned()], json!(9)));
    let refused = {
        let mut case = super::github::case(made_it_before, &[WORKFLOW]);
        case.cluster.refuse_create =
            Some((JOB, 422, json!({"kind": "Status", "reason": "Invalid", "message": "no"})));
        case.settle()
    };
    assert_eq!(refused.says(), ("Failed".into(), "JobInvalid".into()));
    assert_eq!(refused.told().last().unwrap(), "update 9 completed/failure");
    assert!(refused.cluster.world.list(&LEASE, None).is_empty());
}

#[test]
fn with_a_token_commit_statuses_are_set_instead() {
    let mut case =
        case(token, &[WORKFLOW]).settle().job_says("{startTime: '2026-01-01T00:00:00Z', active: 1}");
    case.cluster.advance(RUNNING_AFTER);
    let case = case.settle().job_says(FAILED);
    assert_eq!(case.told(), ["status Pending", "status Failure"]);
    let status = case.cluster.calls.iter().rev().filter_map(ask).find_map(|ask| {
        let Ask::SetStatus(status) = ask else { return None };
        Some(status.clone())
    });
    let status = status.unwrap();
    assert_eq!((status.context.as_str(), status.state), ("Plan(envs/prod)", StatusState::Failure));
    assert_eq!(status.description, "Failed: it failed");
    assert!(case.status("checkRunID").is_null());
}

#[test]
fn two_templates_of_one_display_name_have_checks_of_two_names() {
    let twin = TEMPLATE.replace("name: plan", "name: a-twin");
    for (twin, expect) in [(twin.as_str(), "Plan(envs/prod) [plan]"), ("", "Plan(envs/prod)")] {
        assert_eq!(case(app, &[WORKFLOW, twin]).settle().last_run().name, expect);
    }
}

#[test]
fn a_deleted_run_is_cancelled_on_github_and_its_job_goes_first() {
    let mut case = case(app, &[WORKFLOW]).settle().job_says("{active: 1}");
    case.cluster.delete(&workflow::KIND, &key(), "Background");
    let mut case = case.settle();
    assert_eq!(case.told().last().unwrap(), "update 7 completed/cancelled");
    assert_eq!(case.cluster.events.last().unwrap().2, "Cancelled GitHub CheckRun before workflow deletion");
    assert!(
        case.workflow().is_some() && !case.cluster.world.list(&LEASE, None).is_empty(),
        "its Job is still there"
    );
    let machines =
        [AnyMachine::new(Garbage), AnyMachine::new(Jobs), AnyMachine::new(OrphanPods), case.machine.clone()];
    case.cluster.settle(&machines);
    assert!(
        case.job().is_none() && case.workflow().is_none() && case.cluster.world.list(&LEASE, None).is_empty()
    );
    assert_eq!(case.told().iter().filter(|told| told.contains("cancelled")).count(), 1);
}

#[test]
fn a_deleted_workflow_without_a_job_still_closes_its_check_run() {
    let open = WORKFLOW.replace(
        "---",
        "status: {phase: Pending, reason: Queued, checkRunID: 7, checkRunReported: queued}\n---",
    );
    for (outside, workflow, expect) in [
        (app as fn(&Call) -> Answer, open.as_str(), vec!["update 7 completed/cancelled"]),
        (made_it_before, WORKFLOW, vec!["update 9 completed/cancelled"]),
        (app, WORKFLOW, vec![]),
        (token, WORKFLOW, vec!["status Error"]),
    ] {
        let mut case = case(outside, &[workflow]);
        case.cluster.delete(&workflow::KIND, &key(), "Background");
        let case = case.settle();
        assert!(case.workflow().is_none());
        assert_eq!(case.told(), expect);
    }
}

#[test]
fn i5_a_github_that_does_not_answer_keeps_no_workflow_for_ever() {
    let mut case = case(app, &[WORKFLOW]).settle().job_says(COMPLETE.replace("Complete", "Other").as_str());
    case.cluster.delete(&JOB, &key(), "Background");
    case.cluster.outside = down;
    case.cluster.delete(&workflow::KIND, &key(), "Background");
    let mut case = case.settle();
    assert!(case.workflow().is_some());
    case.cluster.advance(CLEANUP_LIMIT);
    let case = case.settle();
    assert!(case.workflow().is_none());
    let event = case.cluster.events.last().unwrap();
    assert_eq!(event.1, "CleanupIncomplete");
    assert!(event.2.starts_with("the check run on GitHub stays as it is"), "{}", event.2);
}

#[test]
fn i5_without_its_repository_a_workflow_goes_and_says_what_it_leaves() {
    let open =
        WORKFLOW.replace("---", "status: {phase: Pending, checkRunID: 7, checkRunReported: queued}\n---");
    let mut case = Case::new(&[OWNED_BRANCH, TEMPLATE, &open]);
    case.cluster.delete(&workflow::KIND, &key(), "Background");
    let case = case.settle();
    assert!(case.workflow().is_none() && case.cluster.calls.is_empty());
    assert_eq!(case.cluster.events.last().unwrap().1, "CleanupIncomplete");
}

#[test]
fn a_cancelled_run_is_told_and_keeps_its_target_until_its_job_is_gone() {
    let mut case = case(app, &[WORKFLOW]).settle().job_says("{active: 1}");
    case.cluster.edit(
        &workflow::KIND,
        &key(),
        &json!({"metadata": {"annotations": {annotations::CANCEL: "by ann"}}}),
    );
    let mut case = case.settle();
    assert_eq!(
        (case.says(), case.message()),
        (("Cancelled".into(), "Cancelled".into()), "cancelled: by ann".into())
    );
    assert_eq!(case.told().last().unwrap(), "update 7 completed/cancelled");
    assert_eq!(case.job().unwrap()["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert_eq!(case.cluster.world.list(&LEASE, None).len(), 1);
    let machines =
        [AnyMachine::new(Garbage), AnyMachine::new(Jobs), AnyMachine::new(OrphanPods), case.machine.clone()];
    case.cluster.settle(&machines);
    assert!(
        case.job().is_none() && case.workflow().is_some() && case.cluster.world.list(&LEASE, None).is_empty()
    );
}

#[test]
fn a_result_that_is_there_is_not_cancelled_any_more() {
    let mut case = case(app, &[WORKFLOW]).settle();
    case.cluster.edit(
        &workflow::KIND,
        &key(),
        &json!({"metadata": {"annotations": {annotations::CANCEL: ""}}}),
    );
    assert_eq!(case.job_says(COMPLETE).says().0, "Succeeded");
}

#[test]
fn a_port_that_answers_something_else_is_no_reason_to_panic() {
    let case = case(|_| said(Said::Done), &[WORKFLOW]).settle();
    assert!(case.job().is_some());
}
