//! What is the next thing to do for a Workflow: one template's run of one path of one commit?
//!
//! ```text
//! finalizer ─▶ Branch there? ─no─▶ the Workflow is deleted
//!              finished?     ─yes─▶ it stays finished, whatever becomes of its Job (I2)
//!              Job there?    ─yes─▶ phase from the Job's conditions
//!              made before?  ─yes─▶ Failed, JobVanished
//!              template, power, quota ─▶ the Job is made, of the Workflow's name (I1)
//! deleted   ─▶ a running Job is deleted in the foreground and waited for ─▶ finalizer goes
//! ```

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::git::workflow::{JOB_STATUS, JobRef, TEMPLATE_FOUND};
use pawl_api::git::{Branch, Workflow, WorkflowPhase, WorkflowStatus, WorkflowTemplate, finalizers};
use pawl_api::git::{branch, workflow, workflow_template};
use pawl_api::meta::phase::Table;
use pawl_api::meta::{Gate, GateName, Kind, NewCondition, Phase, Reason, condition};

use super::job_template::{self, BuildError, Ingredients};
use crate::cluster::job::{JOB, POD};
use crate::cluster::namespace::{NAMESPACE, is_yes};
use crate::failure::Failure;
use crate::lifecycle::{self, Lifecycle};
use crate::machine::{Depth, Description, Machine, Primary, Watch, Write};
use crate::object::{Key, Object, Reference};
use crate::plan::{Adopt, Note, Plan, Propagation, Step, Waiting};
use crate::view::{Input, View};

/// A namespace with this label may run Pods that are as good as root on their node.
pub const ALLOW_PRIVILEGED: &str = "pawl.dev/allow-privileged";

/// How long a container may fail to start before the run fails: longer than a registry's hiccup.
const START_LIMIT: Duration = Duration::from_mins(10);

/// How long a deleted Workflow waits for its Job to go (I5): ten times what a Pod gets to end in by default, and more.
const CLEANUP_LIMIT: Duration = Duration::from_mins(10);

/// How long until a Job that a quota kept out is tried again: nothing tells us when a quota frees up.
const QUOTA_RETRY: Duration = Duration::from_secs(30);

/// Runs Workflows.
#[derive(Clone, Copy, Debug)]
pub struct Workflows {
    /// A guard that can be taken away in a simulation, to see that the simulation notices: the finalizer goes only
    /// after the Job.
    pub finalizer_order: bool,
}

impl Default for Workflows {
    fn default() -> Self {
        Self { finalizer_order: true }
    }
}

/// A Workflow and all that its next step depends on.
#[derive(Debug)]
pub struct Observed {
    me: Arc<Object>,
    workflow: Arc<Workflow>,
    branch: Found<Branch>,
    template: Found<WorkflowTemplate>,
    /// The Job of the Workflow's name, whoever made it.
    job: Option<(Arc<Object>, Arc<Job>)>,
    /// What keeps a container of the Job from starting.
    cannot_start: Option<String>,
    allow_privileged: bool,
    refused: Option<Failure>,
    finalizer_order: bool,
}

#[derive(Debug)]
enum Found<K> {
    Missing,
    /// It is there, but does not have the shape of its kind.
    Malformed(String),
    There {
        typed: Arc<K>,
        deleting: bool,
    },
}

impl Machine for Workflows {
    type Kind = Workflow;
    type Observed = Observed;
    type Status = WorkflowStatus;

    fn description(&self) -> Description {
        Description {
            name: "workflow",
            primary: Primary::One(workflow::KIND),
            depth: Depth::Full,
            watches: vec![
                Watch::owned(JOB),
                Watch::other(POD, of_the_pods_job),
                Watch::other(workflow_template::KIND, naming_the_template),
                Watch::other(branch::KIND, naming_the_branch),
                Watch::other(NAMESPACE, |_, _| Vec::new()).metadata_only(),
            ],
            finalizer: Some(finalizers::WORKFLOW),
            phases: Some(Table::of::<WorkflowPhase>(workflow::KIND, ["status", "phase"])),
            writes: vec![
                Write::main(workflow::KIND, &["delete", "patch"]),
                Write::status(workflow::KIND),
                Write::finalizers(workflow::KIND),
                Write::main(JOB, &["create", "delete"]),
            ],
        }
    }

    fn observe(&self, input: &Input<'_>, workflow: &Arc<Workflow>) -> Observed {
        let (view, me) = (input.view, Arc::clone(input.me));
        let beside = |name: &str| Key::new(me.namespace(), name);
        let job = view.get(&JOB, &me.key()).and_then(|job| Some((Arc::clone(&job), job.parse().ok()?)));
        let cannot_start = job.as_ref().and_then(|(job, _)| cannot_start(&view.owned(&POD, job.uid())));
        let home = view.get(&NAMESPACE, &Key::new(None, me.namespace().unwrap_or_default()));
        Observed {
            branch: find(view, &branch::KIND, &beside(&workflow.spec.branch)),
            template: find(view, &workflow_template::KIND, &beside(&workflow.spec.template)),
            job,
            cannot_start,
            allow_privileged: home.is_some_and(|home| is_yes(home.label(ALLOW_PRIVILEGED))),
            refused: input.refusals.iter().find(|one| one.kind == JOB).map(|one| one.failure.clone()),
            finalizer_order: self.finalizer_order,
            workflow: Arc::clone(workflow),
            me,
        }
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Plan<WorkflowStatus> {
        match lifecycle::of(&observed.me, finalizers::WORKFLOW) {
            Lifecycle::Add => Plan::step(Step::AddFinalizer(finalizers::WORKFLOW.to_owned())),
            Lifecycle::Run => run(observed, now),
            Lifecycle::CleanUp => clean_up(observed, now),
            Lifecycle::Nothing => Plan::rest(),
        }
    }
}

fn run(observed: &Observed, now: Timestamp) -> Plan<WorkflowStatus> {
    if let Found::Missing = observed.branch {
        return without_branch(observed);
    }
    let mut report = Report::of(observed, now);
    if report.status.phase.is_some_and(WorkflowPhase::is_terminal) {
        return Plan::rest();
    }
    match (&observed.job, report.status.job_ref.clone()) {
        (Some((job, _)), _) if !is_ours(observed, job) => {
            // Whether the template is there no longer matters, and nobody will look again.
            condition::remove(&mut report.status.conditions, TEMPLATE_FOUND);
            still_so(report.ends(WorkflowPhase::Failed, Reason::OwnershipMismatch, not_ours(observed)), job)
        }
        (Some((job, _)), Some(made)) if !made.uid.is_empty() && made.uid != job.uid() => {
            let message = format!("Job {} is not the one that was made ({})", job.key(), made.uid);
            still_so(report.ends(WorkflowPhase::Failed, Reason::JobVanished, message), job)
        }
        // What made the Job had passed the gate, whether or not the status that said so was lost.
        (Some((object, job)), _) => follow(observed, report, object, job, now).gate(valid(observed)),
        (None, Some(made)) => vanished(observed, report, made),
        (None, None) => start(observed, report, now),
    }
}

/// An end that follows from a Job as it was seen: a cache that shows one that is gone by now must not end anything.
fn still_so(mut plan: Plan<WorkflowStatus>, job: &Arc<Object>) -> Plan<WorkflowStatus> {
    let resource_version = job.resource_version().to_owned();
    plan.steps.insert(0, Step::ConfirmUnchanged { target: job.reference(), resource_version });
    plan
}

fn not_ours(observed: &Observed) -> String {
    format!("Job {} exists and belongs to somebody else", observed.me.key())
}

/// The seed's rule: a Workflow without its Branch has no purpose. A cache is no proof that there is none.
fn without_branch(observed: &Observed) -> Plan<WorkflowStatus> {
    let key = Key::new(observed.me.namespace(), &observed.workflow.spec.branch);
    let branch = Reference { kind: branch::KIND, key, uid: String::new() };
    let note = "Branch not found for Workflow, skipping processing";
    Plan::rest()
        .then(Step::ConfirmGone(branch))
        .then(Step::Delete {
            target: observed.me.reference(),
            resource_version: None,
            propagation: Propagation::Background,
            only_if_gone: vec![],
        })
        .note(Note::warning(Reason::BranchNotFound, note))
}

/// Its result was never recorded, so nobody knows it: a failure of its own, never a silent second run (I2).
fn vanished(observed: &Observed, report: Report<'_>, made: JobRef) -> Plan<WorkflowStatus> {
    let job = Reference { kind: JOB, key: Key::new(observed.me.namespace(), &made.name), uid: made.uid };
    let message = format!("Job {} was gone before its result was recorded", job.key);
    let mut plan = report.ends(WorkflowPhase::Failed, Reason::JobVanished, message);
    plan.steps.insert(0, Step::ConfirmGone(job));
    plan
}

fn follow(
    observed: &Observed,
    mut report: Report<'_>,
    object: &Arc<Object>,
    job: &Job,
    now: Timestamp,
) -> Plan<WorkflowStatus> {
    let (phase, reason, message) = phase_of(job);
    let status = job.status.as_ref();
    // A Job was made from it, whether or not this cache has seen the template, or the status that said so was lost.
    report.template_found();
    report.status.job_ref = Some(JobRef { name: object.name().to_owned(), uid: object.uid().to_owned() });
    report.status.start_time = status.and_then(|status| status.start_time.clone());
    if phase.is_terminal() {
        report.status.completion_time = status.and_then(|status| status.completion_time.clone());
        return report.ends(phase, reason, message);
    }
    let Some(problem) = &observed.cannot_start else {
        report.status.start_deadline = None;
        return report.goes_on(phase, reason, message);
    };
    // A Job with a deadline of its own has been told how long to try.
    let own_deadline = job.spec.as_ref().is_some_and(|spec| spec.active_deadline_seconds.is_some());
    let deadline =
        report.status.start_deadline.clone().map_or_else(|| later(now, START_LIMIT), |time| time.0);
    if own_deadline {
        return report.goes_on(phase, Reason::ContainerCannotStart, problem.clone());
    }
    if deadline <= now {
        let mut plan = report.ends(WorkflowPhase::Failed, Reason::ContainerCannotStart, problem.clone());
        plan.steps.push(stop(object));
        return plan;
    }
    report.status.start_deadline = Some(Time(deadline));
    report.goes_on(phase, Reason::ContainerCannotStart, problem.clone()).wake_at(deadline)
}

fn start(observed: &Observed, mut report: Report<'_>, now: Timestamp) -> Plan<WorkflowStatus> {
    let spec = &observed.workflow.spec;
    if let Some(failure) = &observed.refused {
        return refused(report, failure, now);
    }
    let branch = match &observed.branch {
        Found::There { typed, deleting: false } => typed,
        Found::There { deleting: true, .. } | Found::Missing => {
            return report.goes_on(WorkflowPhase::Pending, Reason::Pending, "the Branch is being deleted");
        }
        Found::Malformed(problem) => {
            let message = format!("Branch {}: {problem}", spec.branch);
            return report.ends(WorkflowPhase::Failed, Reason::Invalid, message);
        }
    };
    let template = match &observed.template {
        Found::There { typed, .. } => typed,
        Found::Malformed(problem) => {
            report.condition(NewCondition::yes(TEMPLATE_FOUND, Reason::TemplateInvalid, problem.clone()));
            return report.ends(WorkflowPhase::Failed, Reason::TemplateInvalid, problem.clone());
        }
        Found::Missing => {
            let message = format!("WorkflowTemplate {} is not there", spec.template);
            report.condition(NewCondition::no(TEMPLATE_FOUND, Reason::TemplateNotFound, message.clone()));
            let key = Key::new(observed.me.namespace(), &spec.template);
            let until = "it is created".to_owned();
            let waiting = Waiting::Object { kind: workflow_template::KIND, key, until };
            return report
                .goes_on(WorkflowPhase::Pending, Reason::TemplateNotFound, message)
                .waiting(waiting);
        }
    };
    report.template_found();
    let built = job_template::build(Ingredients {
        workflow: &observed.me,
        spec,
        branch: &branch.spec,
        job: &template.spec.job,
        allow_privileged: observed.allow_privileged,
    });
    match built {
        Ok(manifest) => {
            report.status.job_ref = Some(JobRef { name: observed.me.name().to_owned(), uid: String::new() });
            report
                .goes_on(WorkflowPhase::Pending, Reason::JobCreated, "the Job was made")
                .gate(valid(observed))
                .then(Step::Create {
                    kind: JOB,
                    manifest,
                    adopt: Adopt::ControlledBy(observed.me.uid().to_owned()),
                })
                .note(Note::normal(Reason::JobCreated, "Created Job for Workflow"))
        }
        Err(error) => {
            let (reason, change) = match &error {
                BuildError::NotAJob(_) => (Reason::TemplateInvalid, "a well-formed job, and a new attempt"),
                BuildError::TooPowerful(_) => (
                    Reason::PodSecurityRefused,
                    "the label on the namespace or less power, and a new attempt",
                ),
            };
            report.ends(WorkflowPhase::Failed, reason, error.to_string()).gate(Gate::stopped(
                GateName::Validate,
                reason,
                looked_at(observed),
                change,
            ))
        }
    }
}

fn valid(observed: &Observed) -> Gate {
    Gate::passed(GateName::Validate, Reason::Valid, looked_at(observed))
}

fn looked_at(observed: &Observed) -> String {
    format!("the job of WorkflowTemplate {}", observed.workflow.spec.template)
}

/// The API server did not want the Job: for good, or until a quota frees up.
fn refused(report: Report<'_>, failure: &Failure, now: Timestamp) -> Plan<WorkflowStatus> {
    if failure.is_quota() {
        let at = later(now, QUOTA_RETRY);
        let why = failure.message.clone();
        let plan = report.goes_on(WorkflowPhase::Pending, Reason::QuotaExceeded, failure.message.clone());
        return plan.waiting(Waiting::Time { at, why }).wake_at(at);
    }
    let mut report = report;
    let reason = match failure.reason.as_str() {
        "OwnershipMismatch" => {
            condition::remove(&mut report.status.conditions, TEMPLATE_FOUND);
            let message = not_ours(report.observed);
            return report.ends(WorkflowPhase::Failed, Reason::OwnershipMismatch, message);
        }
        "Forbidden" => Reason::JobForbidden,
        "Invalid" | "BadRequest" => Reason::JobInvalid,
        _ => Reason::JobCreationFailed,
    };
    report.ends(WorkflowPhase::Failed, reason, failure.message.clone())
}

fn clean_up(observed: &Observed, now: Timestamp) -> Plan<WorkflowStatus> {
    let release = Step::RemoveFinalizer(finalizers::WORKFLOW.to_owned());
    let ours = observed.job.as_ref().filter(|(job, _)| is_ours(observed, job));
    let Some((object, job)) = ours else {
        // Somebody else's Job of that name is in nobody's way; one that the cache has not seen yet may be ours.
        let unseen = observed.job.is_none().then(|| {
            let made = observed.workflow.status.as_ref().and_then(|status| status.job_ref.as_ref());
            let uid = made.map(|made| made.uid.clone()).unwrap_or_default();
            Step::ConfirmGone(Reference { kind: JOB, key: observed.me.key(), uid })
        });
        return Plan { steps: unseen.into_iter().chain([release]).collect(), ..Plan::rest() };
    };
    if is_finished(job) || !observed.finalizer_order {
        return Plan::step(release);
    }
    let asked_at = observed.me.meta().deletion_timestamp.as_ref().map_or(now, |time| time.0);
    let limit = later(asked_at, CLEANUP_LIMIT);
    if limit <= now {
        let message = format!("Job {} is still there; the Workflow goes without it", object.key());
        return Plan::step(release).note(Note::warning(Reason::CleanupIncomplete, message));
    }
    let key = object.key();
    let report = Report::of(observed, now);
    let mut plan = if report.status.phase.is_some_and(WorkflowPhase::is_terminal) {
        Plan::rest()
    } else {
        let message = "the Workflow was deleted while its Job was running";
        report.ends(WorkflowPhase::Cancelled, Reason::Cancelled, message)
    };
    if !object.is_deleting() {
        plan.steps.push(stop(object));
    }
    plan.waiting(Waiting::Object { kind: JOB, key, until: "it is gone".to_owned() }).wake_at(limit)
}

/// Ends a Job and its Pods: its name is free, and its target at peace, only when they are gone.
fn stop(job: &Arc<Object>) -> Step {
    Step::Delete {
        target: job.reference(),
        resource_version: None,
        propagation: Propagation::Foreground,
        only_if_gone: vec![],
    }
}

/// The status in the making.
struct Report<'a> {
    observed: &'a Observed,
    now: Timestamp,
    status: WorkflowStatus,
}

impl<'a> Report<'a> {
    fn of(observed: &'a Observed, now: Timestamp) -> Self {
        let mut status = observed.workflow.status.clone().unwrap_or_default();
        status.observed_generation = observed.me.meta().generation;
        Self { observed, now, status }
    }

    fn template_found(&mut self) {
        let message = format!("WorkflowTemplate {} is there", self.observed.workflow.spec.template);
        self.condition(NewCondition::yes(TEMPLATE_FOUND, Reason::TemplateFound, message));
    }

    fn condition(&mut self, new: NewCondition) {
        condition::set(&mut self.status.conditions, new, self.observed.me.meta().generation, self.now);
    }

    fn goes_on(
        mut self,
        phase: WorkflowPhase,
        reason: Reason,
        message: impl Into<String>,
    ) -> Plan<WorkflowStatus> {
        self.says(phase, reason, message.into());
        Plan::rest().status(self.status)
    }

    /// The last word on this run, told to people too.
    fn ends(
        mut self,
        phase: WorkflowPhase,
        reason: Reason,
        message: impl Into<String>,
    ) -> Plan<WorkflowStatus> {
        let message = message.into();
        self.status.completion_time = self.status.completion_time.or(Some(Time(self.now)));
        self.status.start_deadline = None;
        self.says(phase, reason, message.clone());
        let note = match phase {
            WorkflowPhase::Failed => Note::warning(reason, message),
            WorkflowPhase::Succeeded
            | WorkflowPhase::Cancelled
            | WorkflowPhase::Pending
            | WorkflowPhase::Running => Note::normal(reason, message),
        };
        Plan::rest().status(self.status).note(note)
    }

    fn says(&mut self, phase: WorkflowPhase, reason: Reason, message: String) {
        let (word, told) = (JOB_STATUS, message.clone());
        self.condition(match phase {
            WorkflowPhase::Pending => NewCondition::unknown(word, Reason::Pending, told),
            WorkflowPhase::Running => NewCondition::unknown(word, Reason::Running, told),
            WorkflowPhase::Succeeded => NewCondition::yes(word, Reason::Succeeded, told),
            WorkflowPhase::Failed => NewCondition::no(word, Reason::Failed, told),
            WorkflowPhase::Cancelled => NewCondition::no(word, Reason::Cancelled, told),
        });
        self.status.phase = Some(phase);
        self.status.reason = Some(reason.into());
        self.status.message = Some(message);
    }
}

/// Conditions first: a Job that failed once and tries again has not failed.
fn phase_of(job: &Job) -> (WorkflowPhase, Reason, String) {
    let status = job.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let holds = |type_: &str| conditions.iter().find(|one| one.type_ == type_ && one.status == "True");
    let told = |message: &Option<String>, otherwise: &str| {
        message.clone().filter(|text| !text.is_empty()).unwrap_or_else(|| otherwise.to_owned())
    };
    if let Some(found) = holds("Complete").or_else(|| holds("SuccessCriteriaMet")) {
        let message = told(&found.message, "the Job succeeded");
        return (WorkflowPhase::Succeeded, Reason::JobSucceeded, message);
    }
    if let Some(found) = holds("Failed").or_else(|| holds("FailureTarget")) {
        let reason = match found.reason.as_deref() {
            Some("DeadlineExceeded") => Reason::JobDeadlineExceeded,
            _ => Reason::JobFailed,
        };
        return (WorkflowPhase::Failed, reason, told(&found.message, "the Job failed"));
    }
    if let Some(found) = holds("Suspended") {
        return (WorkflowPhase::Pending, Reason::Suspended, told(&found.message, "the Job is suspended"));
    }
    if status.active.unwrap_or_default() > 0 {
        return (WorkflowPhase::Running, Reason::Running, "the Job is running".to_owned());
    }
    (WorkflowPhase::Pending, Reason::Pending, "the Job has no running Pod".to_owned())
}

fn is_finished(job: &Job) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|one| one.status == "True" && (one.type_ == "Complete" || one.type_ == "Failed"))
}

fn is_ours(observed: &Observed, job: &Object) -> bool {
    job.controller().is_some_and(|owner| owner.uid == observed.me.uid())
}

/// What a kubelet says of a container that it cannot get to run.
fn cannot_start(pods: &[Arc<Object>]) -> Option<String> {
    const STUCK: [&str; 7] = [
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    ];
    pods.iter().filter(|pod| !pod.is_deleting()).find_map(|pod| {
        let typed = pod.parse::<Pod>().ok()?;
        let status = typed.status.as_ref()?;
        let init = status.init_container_statuses.iter().flatten();
        init.chain(status.container_statuses.iter().flatten()).find_map(|container| {
            let waiting = container.state.as_ref()?.waiting.as_ref()?;
            let reason = waiting.reason.as_deref().filter(|reason| STUCK.contains(reason))?;
            let message = waiting.message.as_deref().unwrap_or_default();
            Some(format!(
                "container {} of Pod {} cannot start: {reason}: {message}",
                container.name,
                pod.name()
            ))
        })
    })
}

fn find<K: serde::de::DeserializeOwned + Send + Sync + 'static>(
    view: &dyn View,
    kind: &Kind,
    key: &Key,
) -> Found<K> {
    match view.get(kind, key) {
        None => Found::Missing,
        Some(object) => match object.parse::<K>() {
            Ok(typed) => Found::There { typed, deleting: object.is_deleting() },
            Err(malformed) => Found::Malformed(malformed.to_string()),
        },
    }
}

fn later(at: Timestamp, by: Duration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// A Job has its Workflow's name, and a Pod names its Job.
fn of_the_pods_job(pod: &Object, _: &dyn View) -> Vec<Key> {
    let job = pod.controller().filter(|owner| owner.kind == JOB.kind);
    job.map(|job| Key::new(pod.namespace(), &job.name)).into_iter().collect()
}

fn naming_the_template(template: &Object, view: &dyn View) -> Vec<Key> {
    workflows_that(template, view, |spec, name| spec.template == name)
}

fn naming_the_branch(branch: &Object, view: &dyn View) -> Vec<Key> {
    workflows_that(branch, view, |spec, name| spec.branch == name)
}

fn workflows_that(
    other: &Object,
    view: &dyn View,
    name_it: fn(&pawl_api::git::WorkflowSpec, &str) -> bool,
) -> Vec<Key> {
    let beside = view.list(&workflow::KIND, other.namespace());
    let named = beside.iter().filter(|object| {
        object.parse::<Workflow>().is_ok_and(|workflow| name_it(&workflow.spec, other.name()))
    });
    named.map(|object| object.key()).collect()
}

#[cfg(test)]
mod tests;
