//! Reconciles a Workflow: one run of one WorkflowTemplate for one path of one commit.
//!
//! ```text
//! Branch missing      ─▶ delete the Workflow
//! terminal phase      ─▶ keep it, whatever happens to the Job (I2)
//! cancel requested    ─▶ delete the Job
//! no Job              ─▶ gates: template, permissions, Freeze, dependencies, earlier commits, slot, lock
//!                        ─▶ create the check run ─▶ create the Job suspended, with the Workflow's name (I1)
//! suspended Job       ─▶ acquire the target's lock for this Job ─▶ record its UID in the status ─▶ start it
//! started Job         ─▶ phase from the Job's conditions ─▶ update the check run
//! Job disappeared     ─▶ Failed, reason JobVanished
//! being deleted       ─▶ delete a running Job in the foreground, conclude the check run ─▶ remove the finalizer
//! ```
//! The Job is created suspended and started only after its UID is recorded. A replica that stalls and creates a Job late
//! therefore never runs it: the late Job is not the recorded one, stays suspended, and is deleted.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::git::workflow::TEMPLATE_FOUND;
use pawl_api::git::{Branch, Workflow, WorkflowPhase, WorkflowStatus, WorkflowTemplate};
use pawl_api::git::{annotations, finalizers, labels};
use pawl_api::git::{branch, repository, workflow, workflow_template};
use pawl_api::meta::{Gate, GateName, Kind, Phase, Reason, Target, condition};
use pawl_api::pawl::SYSTEM_NAMESPACE;
use pawl_api::pawl::conditions::{FROZEN, TARGET_LOCKED};
use pawl_api::pawl::freeze::Door;

use super::check_run::workflow::WorkflowCheck;
use super::schedule::{self, Schedule, wakes};
use super::{account, job_template, targets};
use crate::audit::{self, Entry, Teller};
use crate::cluster::job::followed::Followed;
use crate::cluster::job::{JOB, POD};
use crate::freeze::Selecting;
use crate::held_run::{self, HeldRun, RunState, is_held};
use crate::lifecycle::{self, Lifecycle};
use crate::lock::{Busy, LEASE, LockResult, Locks};
use crate::machine::{Description, Machine, Write};
use crate::object::{Key, Object, Reference};
use crate::plan::{Adopt, Note, Plan, Step};
use crate::pods;
use crate::time::later;
use crate::view::{Context, View};

mod end;
pub(super) mod job;
mod report;
mod start;
#[cfg(test)]
mod tests;

use report::Report;

/// How long a container may fail to start before the run fails: longer than a registry's hiccup.
const START_LIMIT: Duration = Duration::from_mins(10);

/// How long a Job must have run before the Workflow is Running: a shorter run goes straight to its result, which saves a
/// write and a call to GitHub. Jobs start at whole seconds, so this is at least one second.
const RUNNING_AFTER: Duration = Duration::from_secs(2);

/// The controller of Workflows.
#[derive(Clone, Debug)]
pub struct Workflows {
    /// The namespace of the locks.
    pub system_namespace: String,
    /// The base of the links of check runs, if there is a dashboard.
    pub dashboard_url: Option<String>,
}

impl Default for Workflows {
    fn default() -> Self {
        Self { system_namespace: SYSTEM_NAMESPACE.to_owned(), dashboard_url: None }
    }
}

/// A Workflow and everything that its next step depends on.
#[derive(Debug)]
struct Facts<'a> {
    cx: &'a Context<'a, Workflow>,
    branch: Found<Branch>,
    template: Found<WorkflowTemplate>,
    /// A template that comes earlier by name has the same display name.
    shares_display_name: bool,
    repository: Option<Arc<Object>>,
    /// The Job, which has the Workflow's name.
    job: HeldRun,
    pods: Vec<Arc<Object>>,
    allow_privileged: bool,
    locks: Locks,
    /// The problem with one of its targets, if there is one.
    target_problem: Option<String>,
    /// The Freezes that select it, until its Job is recorded.
    freezes: Selecting,
    schedule: Schedule,
    dashboard_url: Option<&'a str>,
}

#[derive(Debug)]
enum Found<K> {
    Missing,
    /// It exists and cannot be parsed.
    Malformed(String),
    There {
        object: Arc<Object>,
        typed: Arc<K>,
    },
}

impl Machine for Workflows {
    type Kind = Workflow;
    type Status = WorkflowStatus;

    fn description(&self) -> Description {
        Description {
            watches: wakes::watches(),
            finalizer: Some(finalizers::WORKFLOW),
            writes: vec![
                Write::main(workflow::KIND, &["delete", "patch"]),
                Write::status(workflow::KIND),
                Write::finalizers(workflow::KIND),
                Write::main(JOB, &["create", "delete", "patch"]),
                Write::main(LEASE, &["create", "delete", "patch"]),
            ],
            ..Description::new("workflow", workflow::KIND)
        }
    }

    fn audit(&self, tell: &Teller<'_>, workflow: &Workflow) -> Option<Vec<Entry>> {
        Some(audit::git::workflow(tell, workflow))
    }

    fn reconcile(&self, cx: &Context<'_, Workflow>) -> Plan<WorkflowStatus> {
        match lifecycle::of(cx.object, finalizers::WORKFLOW) {
            Lifecycle::Add => Plan::step(Step::add_finalizer(finalizers::WORKFLOW)),
            Lifecycle::Run => run(&self.facts(cx)),
            Lifecycle::CleanUp => end::clean_up(&self.facts(cx)),
            Lifecycle::Nothing => Plan::rest(),
        }
    }
}

impl Workflows {
    fn facts<'a>(&'a self, cx: &'a Context<'a, Workflow>) -> Facts<'a> {
        let workflow = cx.typed;
        let (view, me, spec) = (cx.view, cx.object, &workflow.spec);
        let beside = |name: &str| Key::new(me.namespace(), name);
        let branch: Found<Branch> = find(view, &branch::KIND, &beside(&spec.branch));
        let template: Found<WorkflowTemplate> = find(view, &workflow_template::KIND, &beside(&spec.template));
        let repository = match branch.object() {
            Some(branch) => account::repository_of(view, branch),
            // The Branch is gone; the label still names the Repository to report to.
            None => me.label(labels::REPO_UID).and_then(|uid| view.by_uid(&repository::KIND, uid)),
        };
        let found = view.get(&JOB, &me.key());
        let pods = found.as_ref().map(|job| view.owned(&POD, job.uid())).unwrap_or_default();
        let branch_spec = branch.typed().map(|branch| &branch.spec);
        let targets = branch_spec.map_or(Ok(vec![]), |branch| {
            targets::of_workflow(me, spec, branch, template.object().map(AsRef::as_ref), repository.as_ref())
        });
        let (targets, target_problem) = match targets {
            Ok(targets) => (targets, None),
            Err(problem) => (vec![], Some(problem)),
        };
        let locks = Locks::observe(view, &self.system_namespace, me, targets);
        let starting = !me.is_deleting() && schedule::has_not_started(workflow);
        let freezes = if starting {
            Selecting::observe(view, me, Door::Git, locks.targets())
        } else {
            Selecting::default()
        };
        let recorded = workflow.status.as_ref().and_then(|status| status.job_ref.as_ref());
        let recorded = recorded.map(|job| job.uid.clone()).filter(|uid| !uid.is_empty());
        let owner = Adopt::ControlledBy(me.uid().to_owned());
        Facts {
            schedule: Schedule::observe(
                cx,
                branch.object(),
                template.typed().map(AsRef::as_ref),
                repository.as_ref(),
                locks.held(),
            ),
            job: HeldRun::new(JOB, me.key(), owner, found, recorded),
            shares_display_name: starting && shares_display_name(view, me, template.typed()),
            allow_privileged: job_template::allows_privileged(view, me.namespace()),
            dashboard_url: self.dashboard_url.as_deref(),
            freezes,
            branch,
            template,
            repository,
            pods,
            target_problem,
            locks,
            cx,
        }
    }
}

impl Facts<'_> {
    /// The Workflow's own target.
    fn target(&self) -> Option<&Target> {
        self.locks.targets().first()
    }

    fn check(&self) -> WorkflowCheck<'_> {
        WorkflowCheck {
            cx: self.cx,
            repository: self.repository.as_ref(),
            template: self.template.typed(),
            shares_display_name: self.shares_display_name,
            job: &self.job,
            pods: &self.pods,
            dashboard_url: self.dashboard_url,
        }
    }

    /// Acquires the locks on all targets, or names who holds one. The Leases carry the Repository, so that its slots are
    /// counted.
    fn acquire_locks(&self) -> LockResult {
        let repository = self.repository.as_ref().map(|repository| repository.uid().to_owned());
        let marks = repository.into_iter().map(|uid| (labels::REPO_UID, uid)).collect();
        self.locks.acquire(self.cx.object, Some(self.job.current()), &marks, self.cx.now)
    }

    /// Releases all locks once the Job can do nothing more; empty while it may.
    fn release_locks(&self) -> Vec<Step> {
        let release = self.locks.release();
        if release.is_empty() {
            return release;
        }
        match (self.job.own(), self.job.found()) {
            (Some(job), _) if !held_run::is_finished(job) => Vec::new(),
            // It is finished, or its name belongs to another owner: there is no run, and there will be none.
            (_, Some(_)) => release,
            (_, None) => std::iter::once(self.job.confirm_gone()).chain(release).collect(),
        }
    }

    /// Labels a Workflow that waits for a lock, so that its release wakes it. A holder of its own target in the same
    /// Repository wakes it without.
    fn label_waiter(&self, busy: &Busy) -> Option<Step> {
        let repository = self.repository.as_ref().map(|repository| repository.uid());
        let holders = busy.lease.as_ref().and_then(|lease| lease.label(labels::REPO_UID));
        let found = holders.is_some() && holders == repository && Some(&busy.target) == self.target();
        if found { None } else { busy.label_waiter(self.cx.object) }
    }
}

fn run(facts: &Facts<'_>) -> Plan<WorkflowStatus> {
    let mut report = Report::new(facts);
    if let Found::Missing = facts.branch {
        return without_branch(facts);
    }
    if report.is_finished() {
        return end::finished(facts, report);
    }
    let running = facts.job.found().is_none_or(|job| !held_run::is_finished(job));
    if let Some(by) = facts.cx.object.annotation(annotations::CANCEL).filter(|_| running) {
        return end::cancelled(facts, report, by);
    }
    match facts.job.state() {
        RunState::Absent => start::start(facts, report),
        RunState::Foreign(job) => {
            condition::remove(&mut report.status.conditions, TEMPLATE_FOUND);
            let message = foreign_job(facts);
            confirmed(report.ends(WorkflowPhase::Failed, Reason::OwnershipMismatch, message), job)
        }
        RunState::Vanished => vanished(facts, report),
        RunState::Late(job) => Plan::steps(HeldRun::delete_late(job)),
        RunState::Unrecorded(job) if is_held(job) && !job.is_deleting() => record(facts, report, job),
        RunState::Held(job) => start_job(facts, report, job),
        RunState::Unrecorded(job) | RunState::Started(job) => follow(facts, report, job),
    }
}

/// The Job was created: its UID is recorded, by compare-and-swap, before it starts.
fn record(facts: &Facts<'_>, mut report: Report<'_>, job: &Object) -> Plan<WorkflowStatus> {
    report.template_found();
    report.record_job(job);
    condition::remove(&mut report.status.conditions, TARGET_LOCKED);
    condition::remove(&mut report.status.conditions, FROZEN);
    let mut plan = report.pending(Reason::JobCreated, "the Job was made");
    // Locks that are free are acquired in the same plan; others are waited for once the UID is recorded.
    if let (LockResult::Acquire(steps), None) = (facts.acquire_locks(), facts.schedule.waits_to_start_job()) {
        plan.steps = steps;
    }
    gates_passed(facts, plan)
}

/// The Job is recorded: it starts while the locks on the targets name it and the Workflow has a slot of the Repository.
fn start_job(facts: &Facts<'_>, mut report: Report<'_>, job: &Object) -> Plan<WorkflowStatus> {
    report.template_found();
    if let Some(blocked) = facts.schedule.waits_to_start_job() {
        return report.waits(blocked);
    }
    match facts.acquire_locks() {
        LockResult::Acquired => Plan::steps(held_run::start(job)),
        // The order of the locks decides which Workflow has a slot: it is read once they are in the cache.
        LockResult::Acquire(steps) | LockResult::Reap(steps) => Plan::steps(steps),
        LockResult::Busy(busy) => start::locked(report, *busy),
    }
}

/// The gates that a Workflow with a Job has passed, whether or not a status that said so was lost.
fn gates_passed(facts: &Facts<'_>, plan: Plan<WorkflowStatus>) -> Plan<WorkflowStatus> {
    let target = facts.target().map(ToString::to_string).unwrap_or_default();
    let mut plan = plan.gate(Gate::passed(GateName::Validate, Reason::Valid, validated(facts)));
    plan.gates.extend(facts.freezes.standing(facts.cx.now).passed());
    plan.gates.extend(facts.schedule.passed());
    plan.gate(Gate::passed(GateName::Lock, Reason::LockAcquired, target))
}

/// Ends a Workflow because of another object only if the API server still has it as the cache shows it.
fn confirmed(mut plan: Plan<WorkflowStatus>, object: &Arc<Object>) -> Plan<WorkflowStatus> {
    plan.steps.insert(0, Step::confirm_unchanged(object));
    plan
}

fn foreign_job(facts: &Facts<'_>) -> String {
    format!("Job {} exists and belongs to somebody else", facts.cx.object.key())
}

fn validated(facts: &Facts<'_>) -> String {
    format!("the job of WorkflowTemplate {}", facts.cx.typed.spec.template)
}

/// A Workflow without its Branch has no purpose, as in Terrakojo. The API server must confirm that the Branch is gone.
fn without_branch(facts: &Facts<'_>) -> Plan<WorkflowStatus> {
    let key = Key::new(facts.cx.object.namespace(), &facts.cx.typed.spec.branch);
    let branch = Reference { kind: branch::KIND, key, uid: String::new() };
    let note = "Branch not found for Workflow, skipping processing";
    Plan::rest()
        .then(Step::confirm_gone(branch))
        .then(Step::delete(facts.cx.object))
        .note(Note::warning(Reason::BranchNotFound, note))
}

/// The Job disappeared before its result was recorded: a failure of its own, never a silent second run (I2).
fn vanished(facts: &Facts<'_>, report: Report<'_>) -> Plan<WorkflowStatus> {
    let message = format!("Job {} was gone before its result was recorded", facts.cx.object.key());
    let mut plan = report.ends(WorkflowPhase::Failed, Reason::JobVanished, message);
    plan.steps.insert(0, facts.job.confirm_gone());
    plan
}

fn follow(facts: &Facts<'_>, mut report: Report<'_>, object: &Object) -> Plan<WorkflowStatus> {
    let Ok(job) = object.parse::<Followed>() else { return Plan::rest() };
    let (phase, reason, message) = job::phase_of(&job);
    let status = job.status.as_ref();
    // A Job was created from it, whether or not this cache shows the template, or the status that said so was lost.
    report.template_found();
    report.record_job(object);
    report.status.start_time = status.and_then(|status| status.start_time.clone());
    if phase.is_terminal() {
        report.status.completion_time = status.and_then(|status| status.completion_time.clone());
        return gates_passed(facts, report.ends(phase, reason, message));
    }
    let Some(problem) = pods::start_problem(&facts.pods) else {
        report.status.start_deadline = None;
        let running_at = report.status.start_time.as_ref().map(|at| later(at.0, RUNNING_AFTER));
        if let Some(at) = running_at.filter(|at| phase == WorkflowPhase::Running && facts.cx.now < *at) {
            return Plan::rest().wake_at(at);
        }
        if job::has_not_begun(&job, &report.status) {
            return Plan::rest();
        }
        return gates_passed(facts, report.goes_on(phase, reason, message));
    };
    // A Job with a deadline of its own says how long to try.
    let own_deadline = job.spec.as_ref().is_some_and(|spec| spec.active_deadline_seconds.is_some());
    let deadline =
        report.status.start_deadline.clone().map_or_else(|| later(facts.cx.now, START_LIMIT), |time| time.0);
    if own_deadline {
        return gates_passed(facts, report.goes_on(phase, Reason::ContainerCannotStart, problem));
    }
    if deadline <= facts.cx.now {
        let mut plan = report.ends(WorkflowPhase::Failed, Reason::ContainerCannotStart, problem);
        // The check run is reported first, while the Pods exist.
        if plan.asks.is_empty() {
            plan.steps.push(held_run::delete(object));
        }
        return gates_passed(facts, plan);
    }
    report.status.start_deadline = Some(Time(deadline));
    let plan = report.goes_on(phase, Reason::ContainerCannotStart, problem).wake_at(deadline);
    gates_passed(facts, plan)
}

impl<K> Found<K> {
    fn object(&self) -> Option<&Arc<Object>> {
        match self {
            Self::There { object, .. } => Some(object),
            Self::Missing | Self::Malformed(_) => None,
        }
    }

    fn typed(&self) -> Option<&Arc<K>> {
        match self {
            Self::There { typed, .. } => Some(typed),
            Self::Missing | Self::Malformed(_) => None,
        }
    }
}

fn find<K: serde::de::DeserializeOwned + Send + Sync + 'static>(
    view: &dyn View,
    kind: &Kind,
    key: &Key,
) -> Found<K> {
    match view.get(kind, key) {
        None => Found::Missing,
        Some(object) => match object.parse::<K>() {
            Ok(typed) => Found::There { object, typed },
            Err(malformed) => Found::Malformed(malformed.to_string()),
        },
    }
}

/// Whether a template that comes earlier by name has the same display name: that one keeps the plain name on GitHub.
fn shares_display_name(view: &dyn View, me: &Object, template: Option<&Arc<WorkflowTemplate>>) -> bool {
    let Some(template) = template else { return false };
    let mine = template.metadata.name.as_deref().unwrap_or_default();
    view.list(&workflow_template::KIND, me.namespace()).iter().any(|other| {
        other.name() < mine
            && other
                .parse::<WorkflowTemplate>()
                .is_ok_and(|other| other.spec.display_name == template.spec.display_name)
    })
}
