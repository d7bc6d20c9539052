//! Starts a Workflow that has no Job: its gates in order, then its check run, then its Job.
//!
//! ```text
//! Branch and template exist ▸ the template makes a valid Job ▸ its targets can be locked ▸ no Freeze holds
//! ▸ dependencies ▸ earlier commits ▸ a slot of the Repository ▸ its targets are free ─▶ check run ─▶ Job, suspended
//! ```
//! Many Workflows wait at the same time, and each is reconciled whenever it may be its turn. So the check run and the Job,
//! which only the one that starts needs, come after the gates.

use std::time::Duration;

use pawl_api::git::workflow::TEMPLATE_FOUND;
use pawl_api::git::{Branch, WorkflowPhase, WorkflowStatus, WorkflowTemplate};
use pawl_api::meta::{Gate, GateName, NewCondition, Reason, condition};
use pawl_api::pawl::conditions::{FROZEN, TARGET_LOCKED};

use super::report::Report;
use super::{Facts, Found, confirmed, foreign_job, validated};
use crate::cluster::job::JOB;
use crate::failure::Failure;
use crate::git::check_run::workflow::CheckReport;
use crate::git::job_template::{self, BuildError, Ingredients};
use crate::git::schedule::Blocked;
use crate::lock::{Busy, LockResult};
use crate::plan::{Note, Plan};
use crate::time::later;

/// How long until a Job that a quota kept out is created again: nothing tells when a quota frees up.
const QUOTA_RETRY: Duration = Duration::from_secs(30);

/// The next step of a Workflow that has no Job.
pub(super) fn start(facts: &Facts<'_>, report: Report<'_>) -> Plan<WorkflowStatus> {
    if let Some(failure) = facts.cx.refused(&JOB) {
        return refused(report, failure);
    }
    let (mut report, branch, template) = match branch_and_template(report) {
        Ok(found) => found,
        Err(plan) => return *plan,
    };
    report.template_found();
    if let Err(error) = job_template::check(&template.spec.job, facts.allow_privileged) {
        return unbuildable(facts, report, &error);
    }
    if let Some(problem) = &facts.target_problem {
        let gate =
            Gate::stopped(GateName::Lock, Reason::TargetInvalid, problem, "a target that can be locked");
        return report.ends(WorkflowPhase::Failed, Reason::TargetInvalid, problem).gate(gate);
    }
    if facts.freezes.standing(facts.cx.now).hold().is_some() {
        return frozen(facts, report);
    }
    condition::remove(&mut report.status.conditions, FROZEN);
    if let Some(Blocked { gate, reason, message }) = facts.schedule.dependency_failed() {
        return report.ends(WorkflowPhase::Cancelled, reason, message).gate(gate);
    }
    if let Some(blocked) = facts.schedule.waits() {
        return report.waits(blocked);
    }
    // The locks are acquired once the Job exists, so that they name it. Until then nothing acts on the target.
    match facts.acquire_locks() {
        LockResult::Busy(busy) => return locked(report, *busy),
        LockResult::Reap(steps) => return Plan::steps(steps),
        LockResult::Acquired | LockResult::Acquire(_) => {}
    }
    create_job(facts, report, branch, template)
}

/// Creates the check run, and then the Job.
fn create_job(
    facts: &Facts<'_>,
    mut report: Report<'_>,
    branch: &Branch,
    template: &WorkflowTemplate,
) -> Plan<WorkflowStatus> {
    let check = facts.check();
    let failed = |failure: &Failure| format!("Failed to create GitHub CheckRun for workflow: {failure}");
    let note = match check.report_queued(&mut report.status) {
        CheckReport::Calls(calls) => return Plan { asks: calls, ..Plan::rest() },
        CheckReport::Unreachable(failure) => {
            return report.pending(Reason::CheckRunCreateFailed, failed(&failure));
        }
        CheckReport::Missing(failure) | CheckReport::Refused(failure) => {
            Some(Note::warning(Reason::CheckRunCreateFailed, failed(&failure)))
        }
        CheckReport::Reported | CheckReport::Unchanged | CheckReport::NoAccount(_) => None,
    };
    let built = job_template::build(Ingredients {
        workflow: facts.cx.object,
        spec: &facts.cx.typed.spec,
        branch: &branch.spec,
        job: &template.spec.job,
        allow_privileged: facts.allow_privileged,
        check_run: check.id(&report.status),
        repository_uid: facts.repository.as_ref().map(|repository| repository.uid()),
    });
    let manifest = match built {
        Ok(manifest) => manifest,
        Err(error) => return unbuildable(facts, report, &error),
    };
    let steps = facts.schedule.confirm();
    let mut plan = Plan::steps(steps).then(facts.job.create(manifest)).note(job_created(facts));
    plan.notes.extend(note);
    plan
}

/// A commit creates many Jobs at a time: one Event of its Branch names them all.
fn job_created(facts: &Facts<'_>) -> Note {
    let note = Note::normal(Reason::JobCreated, "Created Job for Workflow");
    match facts.branch.object() {
        Some(branch) => note.together(branch.reference()),
        None => note,
    }
}

/// Finds the Branch and the template, or plans what follows from their absence.
fn branch_and_template<'a>(
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
            return stop(confirmed(plan, object));
        }
        Found::There { .. } | Found::Missing => {
            return stop(report.pending(Reason::Pending, "the Branch is being deleted"));
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
            stop(report.pending(Reason::TemplateNotFound, message))
        }
    }
}

/// Another unit holds the lock on a target.
pub(super) fn locked(mut report: Report<'_>, busy: Busy) -> Plan<WorkflowStatus> {
    // The label changes the version that a status is compared with, so it is written alone.
    if let Some(step) = report.facts.label_waiter(&busy) {
        return Plan::steps(busy.give_back).then(step);
    }
    report.condition(busy.condition());
    let blocked = Blocked { gate: busy.gate(), reason: Reason::TargetLocked, message: busy.message() };
    let mut plan = report.waits(blocked);
    plan.steps.splice(0..0, busy.give_back);
    plan
}

/// A Freeze holds: the Workflow waits for its end.
fn frozen(facts: &Facts<'_>, mut report: Report<'_>) -> Plan<WorkflowStatus> {
    let standing = facts.freezes.standing(facts.cx.now);
    let Some(hold) = standing.hold() else { return Plan::rest() };
    report.condition(standing.condition());
    condition::remove(&mut report.status.conditions, TARGET_LOCKED);
    report.status.target = facts.target().map(ToString::to_string);
    let mut plan = report.goes_on(WorkflowPhase::Pending, Reason::Frozen, hold.to_string());
    plan.gates.extend(standing.gate());
    // The end may be far away: others may have the lock until then.
    plan.steps.extend(facts.release_locks());
    hold.waits(plan)
}

fn unbuildable(facts: &Facts<'_>, mut report: Report<'_>, error: &BuildError) -> Plan<WorkflowStatus> {
    facts.check().report_queued(&mut report.status);
    let (reason, change) = match error {
        BuildError::NotAJob(_) => (Reason::TemplateInvalid, "a well-formed job, and a new attempt"),
        BuildError::TooPowerful(_) => {
            (Reason::PodSecurityRefused, "the label on the namespace or less power, and a new attempt")
        }
    };
    let gate = Gate::stopped(GateName::Validate, reason, validated(facts), change);
    report.ends(WorkflowPhase::Failed, reason, error.to_string()).gate(gate)
}

/// The API server refused the Job: for good, or until a quota frees up.
fn refused(mut report: Report<'_>, failure: &Failure) -> Plan<WorkflowStatus> {
    if failure.is_quota() {
        let at = later(report.facts.cx.now, QUOTA_RETRY);
        let plan = report.goes_on(WorkflowPhase::Pending, Reason::QuotaExceeded, failure.message.clone());
        return plan.wake_at(at);
    }
    let reason = match failure.reason.as_str() {
        "OwnershipMismatch" => {
            condition::remove(&mut report.status.conditions, TEMPLATE_FOUND);
            let message = foreign_job(report.facts);
            return report.ends(WorkflowPhase::Failed, Reason::OwnershipMismatch, message);
        }
        "Forbidden" => Reason::JobForbidden,
        "Invalid" | "BadRequest" => Reason::JobInvalid,
        _ => Reason::JobCreationFailed,
    };
    report.ends(WorkflowPhase::Failed, reason, failure.message.clone())
}
