//! Why did a run fail? Read from the TaskRun or Pod that failed and from its steps, not from the run's own summary
//! alone.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::meta::{Duration, Reason, text};
use pawl_api::remedy::workflow_execution::{FailureDetails, WorkflowRef};
use pawl_api::tekton::{PipelineRun, StepState, TaskRun};

use super::run::Run;
use crate::cluster::job::followed::Followed;
use crate::object::Object;
use crate::pods;

/// What fits `failureDetails.message`.
const MAX_MESSAGE_CHARS: usize = 32_768;
/// What fits `failureDetails.naturalLanguageSummary`.
const MAX_SUMMARY_CHARS: usize = 8_192;
/// What of a message is told in the summary: a few sentences.
const MAX_QUOTE_CHARS: usize = 600;

/// What went wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// The task, and its place in the pipeline.
    pub(super) task: Option<(String, Option<i32>)>,
    pub(super) step: Option<String>,
    pub(super) reason: Reason,
    pub(super) message: String,
    pub(super) exit_code: Option<i32>,
    /// Whether it had begun to execute, so that the target may have been changed.
    pub(super) executed: bool,
}

/// What the story of a failure is told with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting<'a> {
    pub(super) workflow: &'a WorkflowRef,
    pub(super) target: &'a str,
    pub(super) started_at: Option<Timestamp>,
    pub(super) failed_at: Timestamp,
}

impl Failure {
    /// A failure that is not about a task.
    pub(super) fn plain(reason: Reason, message: impl Into<String>, executed: bool) -> Self {
        Self { task: None, step: None, reason, message: message.into(), exit_code: None, executed }
    }

    pub(super) fn details(&self, setting: Setting<'_>) -> FailureDetails {
        let took = setting.started_at.map(|at| took(at, setting.failed_at));
        FailureDetails {
            failed_task_name: self.task.as_ref().map(|(name, _)| name.clone()),
            failed_task_index: self.task.as_ref().and_then(|(_, place)| *place),
            failed_step_name: self.step.clone(),
            reason: self.reason.into(),
            message: text::head(self.message.as_str(), MAX_MESSAGE_CHARS),
            exit_code: self.exit_code,
            failed_at: Some(Time(setting.failed_at)),
            execution_time_before_failure: took.map(|took| took.to_string()),
            natural_language_summary: text::head(self.told(setting, took), MAX_SUMMARY_CHARS),
            was_execution_failure: self.executed,
            requires_manual_review: self.executed,
        }
    }

    /// What happened, in a few sentences.
    fn told(&self, setting: Setting<'_>, took: Option<Duration>) -> String {
        let version = setting.workflow.version.as_ref().map(|version| format!(" (version {version})"));
        let mut told = format!(
            "Workflow {}{} on {} ",
            setting.workflow.workflow_id,
            version.unwrap_or_default(),
            setting.target
        );
        match took.filter(|_| self.executed) {
            Some(took) => told.push_str(&format!("failed {took} after its start. ")),
            None if self.executed => told.push_str("failed while it was running. "),
            None => told.push_str("failed before anything was executed. "),
        }
        if let Some((task, place)) = &self.task {
            let place = place.map(|place| format!(" (number {} of the pipeline)", place.saturating_add(1)));
            let step = self.step.as_ref().map(|step| format!(", step {step},")).unwrap_or_default();
            let exit = self.exit_code.map(|code| format!(" with exit code {code}")).unwrap_or_default();
            told.push_str(&format!("Task {task}{}{step} ended{exit}. ", place.unwrap_or_default()));
        }
        told.push_str(hint(self.reason));
        if !self.message.is_empty() {
            let quoted = text::head(self.message.as_str(), MAX_QUOTE_CHARS);
            told.push_str(&format!(" It was said: {quoted:?}."));
        }
        told.push_str(if self.executed {
            " The target may have been changed: a person must look at it before this workflow is run on it again."
        } else {
            " The target was not touched."
        });
        told
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "most reasons are not about runs")]
fn hint(reason: Reason) -> &'static str {
    match reason {
        Reason::OomKilled => "It needed more memory than it may use.",
        Reason::DeadlineExceeded => "A task took longer than it may.",
        Reason::Timeout => "It took longer than the execution may.",
        Reason::Forbidden => {
            "It is not allowed to do that: look at the permissions of its ServiceAccount and namespace."
        }
        Reason::ResourceExhausted => "The cluster or a quota had no room for it.",
        Reason::ImagePullBackOff => {
            "Its image could not be pulled: look at the reference and at the credentials."
        }
        Reason::ConfigurationError => {
            "It is not set up in a way that can be run: look at the bundle and its parameters."
        }
        Reason::PipelineRunCreationFailed => "Its run could not be made.",
        Reason::PipelineRunDeleted => "Its run was deleted by somebody before its result was known.",
        Reason::ValidationError => "What was asked for is not valid.",
        Reason::UnsupportedEngine => "What should run it is not installed.",
        Reason::Cancelled => "Somebody stopped it.",
        _ => "A step did not succeed.",
    }
}

/// Why a run failed; `None` while what would say so has not been seen yet, though it must be there.
pub(super) fn of(run: &Run, tasks: &[Arc<TaskRun>], pods: &[Arc<Object>]) -> Option<Failure> {
    match run {
        Run::Pipeline(_, run) => of_pipeline(run, tasks),
        Run::Job(_, job) => of_job(job, pods),
        Run::Malformed(object) => {
            let message = format!("{} does not have the shape of its kind", object.reference());
            Some(Failure::plain(Reason::Unknown, message, true))
        }
    }
}

/// The same from what is known, where no more will be.
pub(super) fn at_least(run: &Run, tasks: &[Arc<TaskRun>]) -> Failure {
    let condition = match run {
        Run::Pipeline(_, run) => run.succeeded().map(|condition| condition.message.clone()),
        Run::Job(_, job) => failed(job).and_then(|(_, message)| message),
        Run::Malformed(_) => None,
    };
    let executed = tasks.is_empty() || tasks.iter().any(|task| has_begun(task));
    Failure::plain(Reason::TaskRunFailed, condition.unwrap_or_else(|| "the run failed".to_owned()), executed)
}

fn of_pipeline(run: &PipelineRun, tasks: &[Arc<TaskRun>]) -> Option<Failure> {
    let condition = run.succeeded()?;
    let executed = tasks.iter().any(|task| has_begun(task));
    let children = run.status.as_ref().map(|status| status.child_references.as_slice()).unwrap_or_default();
    let ended = |task: &TaskRun| task.succeeded().is_some_and(|condition| condition.status != "Unknown");
    let all_seen = children.iter().filter(|child| child.kind == "TaskRun").all(|child| {
        tasks.iter().any(|task| task.metadata.name.as_deref() == Some(&child.name) && ended(task))
    });
    if !all_seen {
        return None;
    }
    let whole = |reason| Some(Failure::plain(reason, condition.message.clone(), executed));
    match condition.reason.as_str() {
        "PipelineRunTimeout" => {
            let culprit = culprit(run, tasks).map(|task| of_task(run, task));
            let place = culprit.map(|failure| (failure.task, failure.step)).unwrap_or_default();
            let failure = Failure::plain(Reason::Timeout, condition.message.clone(), executed);
            Some(Failure { task: place.0, step: place.1, ..failure })
        }
        "Cancelled" | "CancelledRunningFinally" | "StoppedRunningFinally" => whole(Reason::Cancelled),
        _ => match culprit(run, tasks) {
            Some(task) => Some(Failure { executed, ..of_task(run, task) }),
            None if executed => whole(Reason::TaskRunFailed),
            // Nothing was started: the run itself could not be understood.
            None => whole(if says_forbidden(&condition.message) {
                Reason::Forbidden
            } else {
                Reason::ConfigurationError
            }),
        },
    }
}

/// The TaskRun whose failure explains the run's: the first that failed by itself, or else the first that was stopped.
fn culprit<'a>(run: &PipelineRun, tasks: &'a [Arc<TaskRun>]) -> Option<&'a TaskRun> {
    let failed = tasks.iter().filter(|task| task.succeeded().is_some_and(|one| one.status == "False"));
    let ended = |task: &TaskRun| {
        let at = task.status.as_ref().and_then(|status| status.completion_time.as_ref()).map(|at| at.0);
        (is_cancelled(task), at.unwrap_or(Timestamp::MAX), place(run, task_name(task)))
    };
    failed.min_by_key(|task| ended(task)).map(AsRef::as_ref)
}

fn of_task(run: &PipelineRun, task: &TaskRun) -> Failure {
    let (reason, message) =
        task.succeeded().map(|one| (one.reason.as_str(), one.message.as_str())).unwrap_or_default();
    let steps = task.status.as_ref().map(|status| status.steps.as_slice()).unwrap_or_default();
    let step = steps.iter().find(|step| did_fail(step));
    let ended = step.and_then(|step| step.terminated.as_ref());
    let oom = ended.is_some_and(|ended| ended.reason == "OOMKilled")
        || step.is_some_and(|step| step.termination_reason == "OOMKilled");
    let reason = match reason {
        _ if oom => Reason::OomKilled,
        "StepOOM" => Reason::OomKilled,
        "TaskRunTimeout" => Reason::DeadlineExceeded,
        "TaskRunCancelled" => Reason::Cancelled,
        "TaskRunImagePullFailed" => Reason::ImagePullBackOff,
        "ExceededResourceQuota" | "ExceededNodeResources" => Reason::ResourceExhausted,
        _ if says_forbidden(message) && ended.is_none() => Reason::Forbidden,
        "PodCreationFailed" if message.contains("exceeded quota") => Reason::ResourceExhausted,
        "PodCreationFailed"
        | "CreateContainerConfigError"
        | "CouldntGetTask"
        | "TaskRunResolutionFailed"
        | "TaskRunValidationFailed"
        | "TaskValidationFailed"
        | "PodAdmissionFailed"
        | "ResourceVerificationFailed"
        | "ReferencedTaskValidationFailed" => Reason::ConfigurationError,
        _ => Reason::TaskRunFailed,
    };
    let name = task_name(task).to_owned();
    let place = place(run, &name);
    Failure {
        task: Some((name, place)),
        step: step.map(|step| step.name.clone()),
        reason,
        message: message.to_owned(),
        exit_code: ended.map(|ended| ended.exit_code).filter(|_| began(step)),
        executed: has_begun(task),
    }
}

fn began(step: Option<&StepState>) -> bool {
    step.is_some_and(step_has_begun)
}

/// A step that failed and was not allowed to.
fn did_fail(step: &StepState) -> bool {
    let failed = step.terminated.as_ref().is_some_and(|ended| ended.exit_code != 0);
    failed && step.termination_reason != "Continued"
}

/// Whether any step of a task was started. Tekton gives a step whose image never came a made-up end.
fn has_begun(task: &TaskRun) -> bool {
    let steps = task.status.as_ref().map(|status| status.steps.as_slice()).unwrap_or_default();
    steps.iter().any(step_has_begun)
}

fn step_has_begun(step: &StepState) -> bool {
    const NEVER_STARTED: [&str; 3] =
        ["TaskRunImagePullFailed", "ImagePullBackOff", "CreateContainerConfigError"];
    let ended = step.terminated.as_ref();
    step.running.is_some() || ended.is_some_and(|ended| !NEVER_STARTED.contains(&ended.reason.as_str()))
}

fn is_cancelled(task: &TaskRun) -> bool {
    task.succeeded().is_some_and(|condition| condition.reason == "TaskRunCancelled")
}

/// What the pipeline calls a TaskRun.
fn task_name(task: &TaskRun) -> &str {
    let label =
        task.metadata.labels.as_ref().and_then(|labels| labels.get(pawl_api::tekton::labels::PIPELINE_TASK));
    label.or(task.metadata.name.as_ref()).map(String::as_str).unwrap_or_default()
}

/// A task's place in the pipeline; where the pipeline is not known, among those that were started.
fn place(run: &PipelineRun, task: &str) -> Option<i32> {
    let resolved = run.status.as_ref().and_then(|status| status.pipeline_spec.as_ref());
    let spec = resolved.or(run.spec.pipeline_spec.as_ref());
    let known = spec.and_then(|spec| spec.tasks.iter().chain(&spec.finally).position(|one| one.name == task));
    let children = run.status.as_ref().map(|status| status.child_references.as_slice()).unwrap_or_default();
    let place = known.or_else(|| children.iter().position(|child| child.pipeline_task_name == task));
    place.and_then(|place| i32::try_from(place).ok())
}

fn says_forbidden(message: &str) -> bool {
    message.contains("is forbidden") || message.contains("Forbidden") || message.contains("forbidden:")
}

fn of_job(job: &Followed, pods: &[Arc<Object>]) -> Option<Failure> {
    let (reason, message) = failed(job)?;
    let message = message.unwrap_or_else(|| "the Job failed".to_owned());
    if reason == "DeadlineExceeded" {
        return Some(Failure::plain(Reason::Timeout, message, true));
    }
    if let Some((pod, told)) = pods.iter().find_map(evicted) {
        return Some(Failure {
            task: Some((pod, None)),
            ..Failure::plain(Reason::ResourceExhausted, told, true)
        });
    }
    let containers = pods::containers(pods);
    let culprit = pods::failed_container(&containers)?;
    // What a runtime says of a process that it could not start; the other containers may have run.
    let could_not_start = |reason: &str| matches!(reason, "ContainerCannotRun" | "StartError");
    let reason = match culprit.reason.as_str() {
        "OOMKilled" => Reason::OomKilled,
        other if could_not_start(other) => Reason::ConfigurationError,
        _ => Reason::TaskRunFailed,
    };
    Some(Failure {
        task: Some((culprit.pod.clone(), None)),
        step: Some(culprit.name.clone()),
        reason,
        message,
        exit_code: culprit.exit_code,
        executed: !containers.iter().all(|one| could_not_start(&one.reason)),
    })
}

/// A Pod that its node threw out.
fn evicted(pod: &Arc<Object>) -> Option<(String, String)> {
    let typed = pod.parse::<Pod>().ok()?;
    let status = typed.status.as_ref()?;
    (status.reason.as_deref() == Some("Evicted")).then(|| {
        let message = status.message.clone().unwrap_or_default();
        (pod.name().to_owned(), format!("Pod {} was evicted: {message}", pod.name()))
    })
}

/// Why a container of a Job that still waits cannot start, if it has tried for long enough.
pub(super) fn cannot_start(pods: &[Arc<Object>]) -> Option<Failure> {
    let problem = pods::start_problem(pods)?;
    let pull = ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"];
    let reason = if pull.iter().any(|word| problem.contains(word)) {
        Reason::ImagePullBackOff
    } else {
        Reason::ConfigurationError
    };
    Some(Failure::plain(reason, problem, false))
}

fn failed(job: &Followed) -> Option<(String, Option<String>)> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let failed = conditions.iter().find(|one| one.type_ == "Failed" && one.status == "True")?;
    let message = failed.message.clone().filter(|message| !message.is_empty());
    Some((failed.reason.clone().unwrap_or_default(), message))
}

/// How long something took, in whole seconds, as people write it.
pub(super) fn took(from: Timestamp, to: Timestamp) -> Duration {
    let took: SignedDuration = to.duration_since(from);
    Duration::from_secs(u64::try_from(took.as_secs()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pawl_api::tekton::PIPELINE_RUN;
    use serde_json::{Value, json};

    /// Thirteen runs as a Tekton controller of version 1.15 left them.
    const OBSERVED: &str = include_str!("tekton-observed.json");

    fn recorded(name: &str) -> (Run, Vec<Arc<TaskRun>>) {
        let text = OBSERVED.replace("<time>", "2026-01-01T00:00:00Z").replace("<uid>", "run-uid");
        let all: Value = serde_json::from_str(&text).unwrap();
        let one = &all[name];
        let raw = json!({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
            "metadata": {"name": name, "namespace": "n", "uid": "run-uid"}, "spec": one["spec"],
            "status": one["final_status"]});
        let run = Run::read(&Object::new(PIPELINE_RUN, raw).unwrap());
        let tasks = one["taskruns"].as_object().unwrap().iter().map(|(name, task)| {
            let raw = json!({"apiVersion": "tekton.dev/v1", "kind": "TaskRun",
                "metadata": {"name": name, "namespace": "n", "labels": task["labels"]},
                "spec": {}, "status": task["status"]});
            Arc::new(serde_json::from_value(raw).unwrap())
        });
        let tasks = tasks.collect();
        (run, tasks)
    }

    #[test]
    fn the_recorded_failures_of_tekton_are_told_apart() {
        use Reason::{Cancelled, ConfigurationError, ImagePullBackOff, OomKilled, TaskRunFailed, Timeout};
        type Row =
            (&'static str, Reason, Option<(&'static str, i32)>, Option<&'static str>, Option<i32>, bool);
        let table: [Row; 10] = [
            ("fail-first", TaskRunFailed, Some(("fail-a", 0)), Some("s1"), Some(1), true),
            ("fail-parallel", TaskRunFailed, Some(("fail-a", 0)), Some("s1"), Some(1), true),
            ("oom", OomKilled, Some(("oom-a", 0)), Some("s1"), Some(137), true),
            ("finally-after-failure", TaskRunFailed, Some(("fail-a", 0)), Some("s1"), Some(1), true),
            ("timeout", Timeout, Some(("hang-a", 0)), Some("s1"), None, true),
            ("cancelled", Cancelled, None, None, None, true),
            ("cancelled-run-finally", Cancelled, None, None, None, true),
            ("missing-pipeline", ConfigurationError, None, None, None, false),
            ("missing-param", ConfigurationError, None, None, None, false),
            ("image-pull", ImagePullBackOff, Some(("pull-a", 0)), Some("s1"), None, false),
        ];
        for (name, reason, task, step, exit_code, executed) in table {
            let (run, tasks) = recorded(name);
            let failure = of(&run, &tasks, &[]).unwrap();
            let found = failure.task.as_ref().map(|(task, place)| (task.as_str(), place.unwrap()));
            let found = (failure.reason, found, failure.step.as_deref(), failure.exit_code, failure.executed);
            assert_eq!(found, (reason, task, step, exit_code, executed), "{name}");
            assert!(!failure.message.is_empty(), "{name}");
        }
    }

    #[test]
    fn the_recorded_successes_of_tekton_are_successes() {
        use super::super::run::Standing;
        for (name, completed, total) in [("success-two", 2, 2), ("when-skips", 2, 3), ("retries", 1, 1)] {
            let Standing::Succeeded(summary) = recorded(name).0.standing() else { panic!("{name}") };
            assert_eq!((summary.completed_tasks, summary.total_tasks), (completed, total), "{name}");
        }
    }

    #[test]
    fn a_failure_whose_task_has_not_been_seen_is_waited_for() {
        let (run, tasks) = recorded("oom");
        assert_eq!(of(&run, &[], &[]), None);
        let mut running = TaskRun::clone(&tasks[0]);
        running.status.as_mut().unwrap().conditions[0].status = "Unknown".to_owned();
        assert_eq!(of(&run, &[Arc::new(running)], &[]), None);
        assert_eq!(at_least(&run, &[]).reason, Reason::TaskRunFailed);
    }

    /// A task that failed before its step ran, as Tekton words it.
    fn check_task(reason: &str, message: &str, expect: Reason) {
        let (Run::Pipeline(object, run), tasks) = recorded("fail-first") else { panic!() };
        let mut task = TaskRun::clone(&tasks[0]);
        let status = task.status.as_mut().unwrap();
        status.conditions[0].reason = reason.to_owned();
        status.conditions[0].message = message.to_owned();
        status.steps.clear();
        let failure = of(&Run::Pipeline(object, run), &[Arc::new(task)], &[]).unwrap();
        assert_eq!((failure.reason, failure.executed), (expect, false), "{reason} {message}");
    }

    #[test]
    fn tasks_that_could_not_begin_say_why() {
        check_task("PodCreationFailed", "pods \"x\" is forbidden: cannot use", Reason::Forbidden);
        check_task("ExceededResourceQuota", "exceeded quota", Reason::ResourceExhausted);
        check_task("PodCreationFailed", "exceeded quota: q", Reason::ResourceExhausted);
        check_task("TaskRunTimeout", "failed to finish within 5s", Reason::DeadlineExceeded);
        check_task("CouldntGetTask", "no such task", Reason::ConfigurationError);
        check_task("TaskRunResolutionFailed", "the bundle is not there", Reason::ConfigurationError);
    }

    #[test]
    fn a_failure_that_nobody_explains_is_unknown() {
        let raw = json!({"metadata": {"name": "r", "namespace": "n", "uid": "r"}, "spec": 7});
        let failure = of(&Run::read(&Object::new(PIPELINE_RUN, raw).unwrap()), &[], &[]).unwrap();
        assert_eq!((failure.reason, failure.executed), (Reason::Unknown, true));
        assert!(failure.message.contains("does not have the shape of its kind"), "{}", failure.message);
    }

    fn job(reason: &str) -> Run {
        let raw = json!({"metadata": {"name": "j", "namespace": "n", "uid": "j"}, "spec": {"template": {}},
            "status": {"conditions": [{"type": "Failed", "status": "True", "reason": reason, "message": "no"}]}});
        Run::read(&Object::new(crate::cluster::job::JOB, raw).unwrap())
    }

    fn pod(state: &Value) -> Arc<Object> {
        let raw = json!({"metadata": {"name": "j-1", "namespace": "n"}, "status": {"containerStatuses":
            [{"name": "workflow", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state}]}});
        Object::new(crate::cluster::job::POD, raw).unwrap()
    }

    #[test]
    fn a_failed_job_is_explained_by_its_container() {
        let oom = pod(&json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}));
        let failure = of(&job("BackoffLimitExceeded"), &[], &[oom]).unwrap();
        assert_eq!((failure.reason, failure.exit_code), (Reason::OomKilled, Some(137)));
        let never = pod(&json!({"terminated": {"exitCode": 128, "reason": "ContainerCannotRun"}}));
        let failure = of(&job("BackoffLimitExceeded"), &[], &[never]).unwrap();
        assert_eq!((failure.reason, failure.executed), (Reason::ConfigurationError, false));
        let three = pod(&json!({"terminated": {"exitCode": 3, "reason": "Error"}}));
        let failure = of(&job("BackoffLimitExceeded"), &[], &[three]).unwrap();
        assert_eq!((failure.reason, failure.exit_code), (Reason::TaskRunFailed, Some(3)));
        assert_eq!(failure.step.as_deref(), Some("workflow"));
        assert_eq!(of(&job("DeadlineExceeded"), &[], &[]).unwrap().reason, Reason::Timeout);
        assert_eq!(of(&job("BackoffLimitExceeded"), &[], &[]), None);
        let pull = pod(&json!({"waiting": {"reason": "ImagePullBackOff", "message": "back-off"}}));
        let failure = cannot_start(&[pull]).unwrap();
        assert_eq!((failure.reason, failure.executed), (Reason::ImagePullBackOff, false));
    }

    #[test]
    fn the_summary_tells_a_stranger_what_happened() {
        let (run, tasks) = recorded("oom");
        let workflow = WorkflowRef {
            workflow_id: "increase-memory".to_owned(),
            version: Some("1.2".to_owned()),
            container_image: "i".to_owned(),
            container_digest: None,
        };
        let at: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let setting = Setting {
            workflow: &workflow,
            target: "prod/deployment/web",
            started_at: Some(at),
            failed_at: at.checked_add(SignedDuration::from_secs(63)).unwrap(),
        };
        let details = of(&run, &tasks, &[]).unwrap().details(setting);
        assert_eq!(
            details.natural_language_summary,
            "Workflow increase-memory (version 1.2) on prod/deployment/web failed 1m3s after its start. Task oom-a \
             (number 1 of the pipeline), step s1, ended with exit code 137. It needed more memory than it may use. It \
             was said: \"\\\"step-s1\\\" exited with code 137: OOMKilled\". The target may have been changed: a person \
             must look at it before this workflow is run on it again."
        );
        assert!(details.was_execution_failure && details.requires_manual_review);
        assert_eq!(details.execution_time_before_failure.as_deref(), Some("1m3s"));
    }
}
