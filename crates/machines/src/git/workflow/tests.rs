use super::end::CLEANUP_LIMIT;
use super::report::QUIET;
use super::*;
use crate::cluster::garbage::Garbage;
use crate::cluster::job::Jobs;
use crate::cluster::job::orphans::OrphanPods;
use crate::cluster::namespace::NAMESPACE;
use crate::machine::AnyMachine;
use crate::plan::Precondition;
use crate::testing::Cluster;
use pawl_api::git::workflow::JOB_STATUS;
use serde_json::{Value, json};

mod freeze;
mod github;
mod order;

const KINDS: [Kind; 9] = [
    NAMESPACE,
    repository::KIND,
    branch::KIND,
    workflow_template::KIND,
    workflow::KIND,
    JOB,
    POD,
    LEASE,
    pawl_api::pawl::freeze::KIND,
];

const SHA: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn yaml(text: &str) -> String {
    text.replace("SHA", SHA)
}

const BRANCH: &str = "
kind: Branch
metadata: {name: b}
spec: {owner: acme, repository: infra, name: feature/x, sha: SHA}
---";
const TEMPLATE: &str = "
kind: WorkflowTemplate
metadata: {name: plan}
spec: {displayName: Plan, match: {paths: ['**']}, job: {template: {spec: {containers: [{name: main, image: i}]}}}}
---";
const WORKFLOW: &str = "
kind: Workflow
metadata: {name: w, finalizers: [terrakojo.io/cleanup-checkrun]}
spec: {owner: acme, repository: infra, branch: b, sha: SHA, template: plan, path: envs/prod}
---";
const FINISHED: &str = "
kind: Workflow
metadata: {name: w, finalizers: [terrakojo.io/cleanup-checkrun]}
spec: {owner: acme, repository: infra, branch: b, sha: SHA, template: plan, path: envs/prod}
status: {phase: Succeeded, reason: JobSucceeded, jobRef: {name: w, uid: job-w}}
---";

fn job(owner: &str, status: &str) -> String {
    format!(
        "
kind: Job
metadata:
  name: w
  ownerReferences: [{{apiVersion: terrakojo.io/v1alpha1, kind: Workflow, name: w, uid: {owner}, controller: true, blockOwnerDeletion: true}}]
spec: {{backoffLimit: 2, completions: 1, parallelism: 1, template: {{spec: {{restartPolicy: Never, containers: [{{name: main, image: i}}]}}}}}}
status: {status}
---"
    )
}

fn key() -> Key {
    Key::new(Some("n"), "w")
}

struct Case {
    cluster: Cluster,
    machine: AnyMachine,
}

impl Case {
    fn new(documents: &[&str]) -> Self {
        let cluster = Cluster::of(&KINDS, &yaml(&documents.concat()));
        Self { cluster, machine: AnyMachine::new(Workflows::default()) }
    }

    /// Looks at the Workflow until nothing changes any more.
    fn settle(mut self) -> Self {
        self.cluster.settle(&[self.machine.clone()]);
        self
    }

    fn workflow(&self) -> Option<Value> {
        self.cluster.get(&workflow::KIND, &key())
    }

    fn job(&self) -> Option<Value> {
        self.cluster.get(&JOB, &key())
    }

    /// Phase and reason.
    fn says(&self) -> (String, String) {
        let workflow = self.workflow().unwrap();
        let text = |field: &str| workflow["status"][field].as_str().unwrap_or_default().to_owned();
        (text("phase"), text("reason"))
    }

    fn message(&self) -> String {
        self.workflow().unwrap()["status"]["message"].as_str().unwrap().to_owned()
    }

    fn condition(&self, type_: &str) -> Value {
        let workflow = self.workflow().unwrap();
        let conditions = workflow["status"]["conditions"].as_array().unwrap();
        conditions.iter().find(|one| one["type"] == type_).cloned().unwrap_or_default()
    }
}

/// Settles a cluster of these documents and says how the Workflow stands.
fn check(documents: &[&str], expect: (&str, &str)) -> Case {
    let case = Case::new(documents).settle();
    let (phase, reason) = case.says();
    assert_eq!((phase.as_str(), reason.as_str()), expect, "{:?}", case.workflow().unwrap()["status"]);
    case
}

#[test]
fn the_finalizer_comes_before_anything_is_made() {
    let bare = WORKFLOW.replace(", finalizers: [terrakojo.io/cleanup-checkrun]", "");
    let mut case = Case::new(&[BRANCH, TEMPLATE, &bare]);
    case.cluster.step(&case.machine.clone(), &workflow::KIND, &key());
    assert!(case.job().is_none());
    assert_eq!(case.workflow().unwrap()["metadata"]["finalizers"], json!([finalizers::WORKFLOW]));
}

#[test]
fn i1_the_job_has_the_workflows_name_and_is_controlled_by_it() {
    let case = check(&[BRANCH, TEMPLATE, WORKFLOW], ("Pending", "JobCreated"));
    let job = case.job().unwrap();
    assert_eq!(job["metadata"]["ownerReferences"][0]["uid"], "workflow-w");
    assert_eq!(
        case.workflow().unwrap()["status"]["jobRef"],
        json!({"name": "w", "uid": job["metadata"]["uid"]})
    );
    assert_eq!(case.condition(TEMPLATE_FOUND)["status"], "True");
    assert_eq!(case.workflow().unwrap()["status"]["gates"][0]["verdict"], "Passed");
    let created = ("Normal".to_owned(), "JobCreated".to_owned(), "Created Job for Workflow".to_owned());
    assert_eq!(case.cluster.events, [created]);
}

#[test]
fn a_workflow_without_its_branch_is_deleted() {
    let case = Case::new(&[TEMPLATE, WORKFLOW]).settle();
    assert!(case.workflow().is_none() && case.job().is_none());
    assert_eq!(case.cluster.events[0].2, "Branch not found for Workflow, skipping processing");
}

#[test]
fn a_branch_that_the_cache_has_not_seen_is_confirmed_before_the_workflow_goes() {
    let case = Case::new(&[TEMPLATE, WORKFLOW]);
    let me = case.cluster.world.get(&workflow::KIND, &key()).unwrap();
    let plan = case.cluster.plan(&case.machine, &me);
    assert!(
        matches!(plan.steps.as_slice(), [Step::Confirm(Precondition::Gone(branch)), Step::Delete { .. }] if branch.uid.is_empty())
    );
}

#[test]
fn a_missing_template_is_waited_for() {
    let mut case = check(&[BRANCH, WORKFLOW], ("Pending", "TemplateNotFound"));
    assert_eq!(case.condition(TEMPLATE_FOUND)["status"], "False");
    assert!(case.job().is_none());
    case.cluster.put(serde_saphyr::from_multiple::<Value>(TEMPLATE).unwrap().remove(0));
    let case = case.settle();
    assert!(case.job().is_some());
    assert_eq!(case.condition(TEMPLATE_FOUND)["status"], "True");
}

#[test]
fn the_phase_follows_the_jobs_conditions_before_its_counters() {
    let condition = |type_: &str, reason: &str| {
        format!(
            "{{failed: 1, active: 1, conditions: [{{type: {type_}, status: 'True', reason: {reason}, message: m}}]}}"
        )
    };
    for (status, expect) in [
        ("{}".to_owned(), ("Pending", "Pending")),
        ("{active: 1}".to_owned(), ("Running", "Running")),
        ("{active: 1, failed: 1}".to_owned(), ("Running", "Running")),
        ("{failed: 1}".to_owned(), ("Pending", "Pending")),
        (condition("Complete", "CompletionsReached"), ("Succeeded", "JobSucceeded")),
        (condition("SuccessCriteriaMet", "CompletionsReached"), ("Running", "Running")),
        (condition("Failed", "BackoffLimitExceeded"), ("Failed", "JobFailed")),
        (condition("FailureTarget", "DeadlineExceeded"), ("Running", "Running")),
        (condition("Failed", "DeadlineExceeded"), ("Failed", "JobDeadlineExceeded")),
        (condition("Suspended", "JobSuspended"), ("Pending", "Suspended")),
    ] {
        let case = check(&[BRANCH, TEMPLATE, WORKFLOW, &job("workflow-w", &status)], expect);
        assert_eq!(case.condition(JOB_STATUS)["reason"], expect.0, "JobStatus has the phase as reason");
    }
}

#[test]
fn i2_a_finished_workflow_stays_finished_whatever_becomes_of_its_job() {
    let failed = "{conditions: [{type: Failed, status: 'True'}]}";
    for jobs in [String::new(), job("workflow-w", "{active: 1}"), job("workflow-w", failed)] {
        let case = check(&[BRANCH, TEMPLATE, FINISHED, &jobs], ("Succeeded", "JobSucceeded"));
        assert_eq!(case.job().is_some(), !jobs.is_empty(), "no Job is made");
        assert!(
            case.cluster.statuses.is_empty() && case.cluster.events.is_empty(),
            "I12: nothing is written"
        );
    }
}

#[test]
fn i2_a_job_that_vanished_before_its_result_is_a_failure_of_its_own() {
    let mut case = Case::new(&[BRANCH, TEMPLATE, WORKFLOW]).settle();
    case.cluster.delete(&JOB, &key(), "Background");
    let case = case.settle();
    assert_eq!(case.says(), ("Failed".into(), "JobVanished".into()));
    assert!(case.job().is_none(), "it is not run again");
}

#[test]
fn i2_another_job_in_the_place_of_the_one_that_was_made_is_not_taken_for_it() {
    let made = WORKFLOW.replace("---", "status: {phase: Running, jobRef: {name: w, uid: first}}\n---");
    check(&[BRANCH, TEMPLATE, &made, &job("workflow-w", "{active: 1}")], ("Failed", "JobVanished"));
}

#[test]
fn somebody_elses_job_of_that_name_is_an_ownership_mismatch() {
    let case =
        check(&[BRANCH, TEMPLATE, WORKFLOW, &job("someone", "{active: 1}")], ("Failed", "OwnershipMismatch"));
    assert!(case.message().ends_with("exists and belongs to somebody else"), "{}", case.message());
    assert_eq!(case.job().unwrap()["metadata"]["ownerReferences"][0]["uid"], "someone");
}

#[test]
fn what_the_api_server_refuses_for_good_fails_in_its_own_words() {
    for (code, word, reason) in [
        (422, "Invalid", "JobInvalid"),
        (403, "Forbidden", "JobForbidden"),
        (413, "RequestEntityTooLarge", "JobCreationFailed"),
    ] {
        let mut case = Case::new(&[BRANCH, TEMPLATE, WORKFLOW]);
        let body = json!({"kind": "Status", "reason": word, "message": "spec: no, thanks"});
        case.cluster.refuse_create = Some((JOB, code, body));
        let case = case.settle();
        assert_eq!(case.says(), ("Failed".into(), reason.into()));
        assert_eq!(case.message(), "spec: no, thanks");
    }
}

#[test]
fn a_quota_is_waited_for_where_all_can_see_it() {
    let mut case = Case::new(&[BRANCH, TEMPLATE, WORKFLOW]);
    let body = json!({"kind": "Status", "reason": "Forbidden", "message": "exceeded quota: jobs"});
    case.cluster.refuse_create = Some((JOB, 403, body));
    case.cluster.step(&case.machine.clone(), &workflow::KIND, &key());
    case.cluster.step(&case.machine.clone(), &workflow::KIND, &key());
    assert_eq!(case.says(), ("Pending".into(), "QuotaExceeded".into()));
    case.cluster.refuse_create = None;
    let case = case.settle();
    assert!(case.job().is_some());
}

#[test]
fn power_over_the_node_needs_a_label_on_the_namespace() {
    let strong = TEMPLATE.replace("containers:", "hostPID: true, containers:");
    let space = |labels: &str| format!("\nkind: Namespace\nmetadata: {{name: 'n', labels: {labels}}}\n---");
    let refused = check(&[&space("{}"), BRANCH, &strong, WORKFLOW], ("Failed", "PodSecurityRefused"));
    assert!(refused.message().starts_with("hostPID is not allowed here"), "{}", refused.message());
    assert_eq!(refused.workflow().unwrap()["status"]["gates"][0]["verdict"], "Stopped");
    let allowed = check(
        &[&space("{pawl.dev/allow-privileged: 'true'}"), BRANCH, &strong, WORKFLOW],
        ("Pending", "JobCreated"),
    );
    assert_eq!(allowed.job().unwrap()["spec"]["template"]["spec"]["hostPID"], true);
}

#[test]
fn a_template_whose_job_is_none_fails_the_run_and_says_why() {
    let bad = TEMPLATE.replace("containers: [{name: main, image: i}]", "containers: []");
    let mut case = Case::new(&[BRANCH, WORKFLOW]);
    case.cluster.relax(&workflow_template::KIND);
    case.cluster.put(serde_saphyr::from_str(bad.trim_end_matches("---")).unwrap());
    let case = case.settle();
    assert_eq!(case.says(), ("Failed".into(), "TemplateInvalid".into()));
    assert!(case.message().contains("containers"), "{}", case.message());
}

#[test]
fn a_container_that_cannot_start_is_said_at_once_and_fails_the_run_after_ten_minutes() {
    let pod = "
kind: Pod
metadata:
  name: p
  ownerReferences: [{apiVersion: batch/v1, kind: Job, name: w, uid: job-w, controller: true}]
spec: {containers: [{name: main, image: i}]}
status: {phase: Pending, containerStatuses: [{name: main, image: i, imageID: '', ready: false, restartCount: 0,
  state: {waiting: {reason: ImagePullBackOff, message: no such image}}}]}
---";
    let mut case = check(
        &[BRANCH, TEMPLATE, WORKFLOW, &job("workflow-w", "{active: 1}"), pod],
        ("Running", "ContainerCannotStart"),
    );
    assert!(case.message().ends_with("cannot start: ImagePullBackOff: no such image"), "{}", case.message());
    case.cluster.advance(START_LIMIT);
    let case = case.settle();
    assert_eq!(case.says(), ("Failed".into(), "ContainerCannotStart".into()));
    assert!(case.job().unwrap()["metadata"]["deletionTimestamp"].is_string(), "the Job is stopped");
}

#[test]
fn a_deleted_workflow_stops_its_job_and_waits_until_it_is_gone() {
    let mut case = Case::new(&[BRANCH, TEMPLATE, WORKFLOW, &job("workflow-w", "{active: 1}")]).settle();
    case.cluster.delete(&workflow::KIND, &key(), "Background");
    let mut case = case.settle();
    assert_eq!(case.says(), ("Cancelled".into(), "Cancelled".into()));
    assert_eq!(case.job().unwrap()["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    let machines =
        [AnyMachine::new(Garbage), AnyMachine::new(Jobs), AnyMachine::new(OrphanPods), case.machine.clone()];
    case.cluster.settle(&machines);
    assert!(case.job().is_none() && case.workflow().is_none());
}

#[test]
fn i5_a_job_that_never_goes_does_not_keep_the_workflow_for_ever() {
    let mut case = Case::new(&[BRANCH, TEMPLATE, WORKFLOW, &job("workflow-w", "{active: 1}")]).settle();
    case.cluster.edit(&JOB, &key(), &json!({"metadata": {"finalizers": ["example.com/stuck"]}}));
    case.cluster.delete(&workflow::KIND, &key(), "Background");
    let mut case = case.settle();
    assert!(case.workflow().is_some());
    case.cluster.advance(CLEANUP_LIMIT);
    let case = case.settle();
    assert!(case.workflow().is_none());
    assert_eq!(case.cluster.events.last().unwrap().1, "CleanupIncomplete");
}

#[test]
fn a_deleted_workflow_goes_at_once_when_nothing_of_its_own_runs() {
    let done = job("workflow-w", "{conditions: [{type: Complete, status: 'True'}]}");
    let theirs = job("someone", "{active: 1}");
    for jobs in [String::new(), done, theirs] {
        let mut case = Case::new(&[BRANCH, TEMPLATE, FINISHED, &jobs]);
        case.cluster.delete(&workflow::KIND, &key(), "Background");
        let case = case.settle();
        assert!(case.workflow().is_none(), "{jobs}");
        assert_eq!(case.job().is_some(), !jobs.is_empty());
    }
}

#[test]
fn a_job_that_fails_once_and_then_succeeds_is_a_success() {
    let mut case = Case::new(&[
        BRANCH,
        &TEMPLATE.replace("job: {", "job: {backoffLimit: 2, completions: 1, parallelism: 1, "),
        WORKFLOW,
    ]);
    let machines =
        [AnyMachine::new(Garbage), AnyMachine::new(Jobs), AnyMachine::new(OrphanPods), case.machine.clone()];
    for outcome in ["Failed", "Succeeded"] {
        case.cluster.settle(&machines);
        case.cluster.advance(RUNNING_AFTER);
        case.cluster.settle(&machines);
        assert_eq!(case.says().0, "Running");
        let pods = case.cluster.world.list(&POD, None);
        let pod = pods.iter().find(|pod| pod.status()["phase"] == "Pending").unwrap().key();
        case.cluster.edit(&POD, &pod, &json!({"status": {"phase": outcome}}));
        case.cluster.settle(&machines);
        case.cluster.advance(Duration::from_mins(1));
    }
    assert_eq!(case.says(), ("Succeeded".into(), "JobSucceeded".into()));
    assert_eq!(case.job().unwrap()["status"]["failed"], 1);
}
