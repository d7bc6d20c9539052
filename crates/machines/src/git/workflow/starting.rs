//! May a Workflow that has no Job yet start, and if not, for what does it wait?
//!
//! ```text
//! template and Branch there ▸ a Job can be made of them ▸ its targets can be locked ▸ no Freeze holds ▸ dependencies
//! ▸ earlier commits ▸ a place of the Repository ▸ its targets are free ▸ GitHub has a check run ─▶ the Job is made
//! ```
//! Many wait at the same time, and each looks again whenever it may be its turn: so what is only needed by the one that
//! starts (the check run, the Job itself) is made after everything that others have to be asked for.

use std::time::Duration;

use pawl_api::git::workflow::TEMPLATE_FOUND;
use pawl_api::git::{Branch, WorkflowPhase, WorkflowStatus, WorkflowTemplate};
use pawl_api::meta::{Gate, GateName, NewCondition, Reason, condition};
use pawl_api::pawl::conditions::{FROZEN, TARGET_LOCKED};

use super::locking::{self, Places};
use super::report::Report;
use super::telling::{self, Told};
use super::{Facts, Found, later, looked_at, not_ours, still_so};
use crate::cluster::job::JOB;
use crate::failure::Failure;
use crate::freeze::Standing;
use crate::git::github::CheckState;
use crate::git::job_template::{self, BuildError, Ingredients};
use crate::git::matching::{self, Dependencies};
use crate::lock::{Busy, LockResult};
use crate::plan::{Note, Plan, Step};

/// How long until a Job that a quota kept out is tried again: nothing tells us when a quota frees up.
const QUOTA_RETRY: Duration = Duration::from_secs(30);

/// The next step of a Workflow that has no Job.
pub(super) fn start(facts: &Facts<'_>, report: Report<'_>) -> Plan<WorkflowStatus> {
    if let Some(failure) = facts.cx.refused(&JOB) {
        return refused(report, failure);
    }
    let (mut report, branch, template) = match ingredients(report) {
        Ok(found) => found,
        Err(plan) => return *plan,
    };
    report.template_found();
    // What cannot be built ends before anybody is waited for, or told of it.
    if let Err(error) = job_template::check(&template.spec.job, facts.allow_privileged) {
        return unbuildable(facts, report, &error);
    }
    if let Some(problem) = &facts.target_problem {
        let gate =
            Gate::stopped(GateName::Lock, Reason::TargetInvalid, problem, "a target that can be locked");
        return report.ends(WorkflowPhase::Failed, Reason::TargetInvalid, problem).gate(gate);
    }
    let standing = facts.freezes.standing(facts.cx.now);
    if standing.hold().is_some() {
        return frozen(facts, report, &standing);
    }
    condition::remove(&mut report.status.conditions, FROZEN);
    let report = match held_up(facts, report) {
        Ok(report) => report,
        Err(plan) => return *plan,
    };
    // It is taken once the Job is there, so that it names it. Until then nothing acts on the target.
    match locking::acquire(facts) {
        LockResult::Busy(busy) => return locked(report, *busy),
        LockResult::Reap(steps) => return Plan::steps(steps),
        LockResult::Acquired | LockResult::Acquire(_) => {}
    }
    make(facts, report, branch, template)
}

/// It is its turn: GitHub hears of it, and the Job is made.
fn make(
    facts: &Facts<'_>,
    report: Report<'_>,
    branch: &Branch,
    template: &WorkflowTemplate,
) -> Plan<WorkflowStatus> {
    let told = telling::tell(facts, &report.status, CheckState::Queued);
    let known = || telling::check_run_id(facts, &report.status);
    let (check_run, note) = match told {
        Told::Ask(calls) => return Plan { asks: calls, ..Plan::rest() },
        Told::Later(failure) if !telling::is_missing(&failure) => {
            let message = format!("Failed to create GitHub CheckRun for workflow: {failure}");
            return report.stays(WorkflowPhase::Pending, Reason::CheckRunCreateFailed, message);
        }
        // It runs all the same; its result may still find a way.
        Told::Later(failure) | Told::Never(failure) => {
            let message = format!("Failed to create GitHub CheckRun for workflow: {failure}");
            (None, Some(Note::warning(Reason::CheckRunCreateFailed, message)))
        }
        Told::Now { id, .. } => (id, None),
        Told::Already | Told::Nobody(_) => (known(), None),
    };
    let built = job_template::build(Ingredients {
        workflow: facts.cx.object,
        spec: &facts.cx.typed.spec,
        branch: &branch.spec,
        job: &template.spec.job,
        allow_privileged: facts.allow_privileged,
        check_run,
        repository_uid: facts.repository.as_ref().map(|repository| repository.uid()),
    });
    let manifest = match built {
        Ok(manifest) => manifest,
        Err(error) => return unbuildable(facts, report, &error),
    };
    let steps: Vec<Step> = facts.ahead.absent.iter().cloned().map(Step::confirm_gone).collect();
    let mut plan = Plan::steps(steps).then(facts.job.create(manifest)).note(job_created(facts));
    plan.notes.extend(note);
    plan
}

/// A commit makes many Jobs at a time: then its Branch tells of all of them.
fn job_created(facts: &Facts<'_>) -> Note {
    let note = Note::normal(Reason::JobCreated, "Created Job for Workflow");
    match facts.branch.object() {
        Some(branch) => note.together(branch.reference()),
        None => note,
    }
}

/// Finds the Branch and the template of the Job, or plans the wait for them.
fn ingredients<'a>(
    mut report: Report<'a>,
) -> Result<(Report<'a>, &'a Branch, &'a WorkflowTemplate), Box<Plan<WorkflowStatus>>> {
    let (facts, spec) = (report.facts, &report.facts.cx.typed.spec);
    let stop = |plan| Err(Box::new(plan));
    let branch = match &facts.branch {
        Found::There { object, typed } if !object.is_deleting() && typed.spec.sha == spec.sha => {
            typed.as_ref()
        }
        Found::There { object, .. } if !object.is_deleting() => {
            let message = format!("Branch {} has moved on to another commit", spec.branch);
            let plan = report.ends(WorkflowPhase::Cancelled, Reason::Superseded, message);
            return stop(still_so(plan, object));
        }
        Found::There { .. } | Found::Missing => {
            let message = "the Branch is being deleted";
            return stop(report.stays(WorkflowPhase::Pending, Reason::Pending, message));
        }
        Found::Malformed(problem) => {
            let message = format!("Branch {}: {problem}", spec.branch);
            return stop(report.ends(WorkflowPhase::Failed, Reason::Invalid, message));
        }
    };
    match &facts.template {
        Found::There { typed, .. } => Ok((report, branch, typed.as_ref())),
        Found::Malformed(problem) => {
            report.condition(NewCondition::yes(TEMPLATE_FOUND, Reason::TemplateInvalid, problem.clone()));
            stop(report.ends(WorkflowPhase::Failed, Reason::TemplateInvalid, problem))
        }
        Found::Missing => {
            let message = format!("WorkflowTemplate {} is not there", spec.template);
            report.condition(NewCondition::no(TEMPLATE_FOUND, Reason::TemplateNotFound, message.clone()));
            stop(report.stays(WorkflowPhase::Pending, Reason::TemplateNotFound, message))
        }
    }
}

/// Whoever goes first: what it depends on, earlier commits, and those that fill the Repository's places.
fn held_up<'a>(facts: &Facts<'_>, report: Report<'a>) -> Result<Report<'a>, Box<Plan<WorkflowStatus>>> {
    let ahead = &facts.ahead;
    if !ahead.dependencies.is_empty() && ahead.unevaluated {
        let branch = &facts.cx.typed.spec.branch;
        let message = format!("waits until Branch {branch} is evaluated: what it depends on may be made yet");
        let gate =
            Gate::waiting(GateName::Preconditions, Reason::WaitingForDependency, &message, "the evaluation");
        return Err(Box::new(report.waits(gate, Reason::WaitingForDependency, message)));
    }
    let names = ahead.dependencies.iter().map(|dependency| dependency.template.clone()).collect::<Vec<_>>();
    match matching::dependencies(&names, |template| ahead.phase_of(template)) {
        Dependencies::Met => {}
        Dependencies::Failed(template) => {
            let name = ahead.name_of(template);
            let message = format!("Workflow {name} of template {template} did not succeed");
            let gate =
                Gate::stopped(GateName::Preconditions, Reason::DependencyFailed, &message, "a new attempt");
            let plan = report.ends(WorkflowPhase::Cancelled, Reason::DependencyFailed, message).gate(gate);
            return Err(Box::new(plan));
        }
        Dependencies::Waiting(template) => {
            let name = ahead.name_of(template);
            let message = format!("waits for Workflow {name} of template {template}");
            let gate =
                Gate::waiting(GateName::Preconditions, Reason::WaitingForDependency, &message, "its success");
            return Err(Box::new(report.waits(gate, Reason::WaitingForDependency, message)));
        }
    }
    if let Some(earlier) = &ahead.earlier {
        let gate = Gate::waiting(GateName::Lock, Reason::WaitingForEarlierCommit, earlier, "its end");
        let message = format!("waits for an earlier commit: {earlier}");
        return Err(Box::new(report.waits(gate, Reason::WaitingForEarlierCommit, message)));
    }
    let Places { others, before, .. } = facts.places;
    let running = if facts.locks.held().is_empty() { others } else { before };
    match ahead.limit.filter(|limit| running >= *limit) {
        Some(limit) => Err(Box::new(queued(facts, report, limit))),
        None => Ok(report),
    }
}

/// All places of the Repository are taken. The place in the queue is said once: to keep it true for all who wait would
/// be a write for each of them whenever one starts.
pub(super) fn queued(facts: &Facts<'_>, report: Report<'_>, limit: usize) -> Plan<WorkflowStatus> {
    let said = report.status.message.clone().filter(|_| telling::reason(&report.status) == Reason::Queued);
    let message = said.unwrap_or_else(|| {
        let number = facts.ahead.place.max(1);
        format!("queued as number {number}: at most {limit} Workflows of the Repository run at a time")
    });
    let looked_at = format!("the {limit} places of the Repository");
    let gate = Gate::waiting(GateName::Lock, Reason::Queued, looked_at, "the end of another");
    report.waits(gate, Reason::Queued, message)
}

/// Somebody else holds a target.
pub(super) fn locked(mut report: Report<'_>, busy: Busy) -> Plan<WorkflowStatus> {
    // The label moves the version that a status is compared with, so it goes alone.
    if let Some(step) = locking::label_waiter(report.facts, &busy) {
        return Plan::steps(busy.give_back).then(step);
    }
    report.condition(busy.condition());
    let mut plan = report.waits(busy.gate(), Reason::TargetLocked, busy.message());
    plan.steps.splice(0..0, busy.give_back);
    plan
}

/// A Freeze holds: it waits for its end.
fn frozen(facts: &Facts<'_>, mut report: Report<'_>, standing: &Standing) -> Plan<WorkflowStatus> {
    let Some(hold) = standing.hold() else { return Plan::rest() };
    report.condition(standing.condition());
    condition::remove(&mut report.status.conditions, TARGET_LOCKED);
    report.status.target = facts.target().map(ToString::to_string);
    let mut plan = report.goes_on(WorkflowPhase::Pending, Reason::Frozen, hold.to_string());
    plan.gates.extend(standing.gate());
    // What it waits for may be far away: a lock that it had is for others.
    plan.steps.extend(locking::release(facts));
    hold.waits(plan)
}

fn unbuildable(facts: &Facts<'_>, mut report: Report<'_>, error: &BuildError) -> Plan<WorkflowStatus> {
    report.remember(&telling::tell(facts, &report.status, CheckState::Queued));
    let (reason, change) = match error {
        BuildError::NotAJob(_) => (Reason::TemplateInvalid, "a well-formed job, and a new attempt"),
        BuildError::TooPowerful(_) => {
            (Reason::PodSecurityRefused, "the label on the namespace or less power, and a new attempt")
        }
    };
    let gate = Gate::stopped(GateName::Validate, reason, looked_at(facts), change);
    report.ends(WorkflowPhase::Failed, reason, error.to_string()).gate(gate)
}

/// The API server did not want the Job: for good, or until a quota frees up.
fn refused(report: Report<'_>, failure: &Failure) -> Plan<WorkflowStatus> {
    if failure.is_quota() {
        let at = later(report.facts.cx.now, QUOTA_RETRY);
        let plan = report.goes_on(WorkflowPhase::Pending, Reason::QuotaExceeded, failure.message.clone());
        return plan.wake_at(at);
    }
    let mut report = report;
    let reason = match failure.reason.as_str() {
        "OwnershipMismatch" => {
            condition::remove(&mut report.status.conditions, TEMPLATE_FOUND);
            let message = not_ours(report.facts);
            return report.ends(WorkflowPhase::Failed, Reason::OwnershipMismatch, message);
        }
        "Forbidden" => Reason::JobForbidden,
        "Invalid" | "BadRequest" => Reason::JobInvalid,
        _ => Reason::JobCreationFailed,
    };
    report.ends(WorkflowPhase::Failed, reason, failure.message.clone())
}
