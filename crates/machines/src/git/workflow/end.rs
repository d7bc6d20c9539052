//! A Workflow that is finished, cancelled or being deleted: its Job stops, its check concludes, its locks are released.

use std::time::Duration;

use jiff::Timestamp;
use pawl_api::git::{WorkflowPhase, WorkflowStatus, finalizers};
use pawl_api::meta::Reason;

use super::Facts;
use super::report::Report;
use crate::failure::Failure;
use crate::git::check_run::workflow::CheckReport;
use crate::held_run;
use crate::object::Object;
use crate::plan::{Note, Plan, Step};
use crate::time::later;

/// How long a deleted Workflow waits for its Job to go and for GitHub to take the report (I5): twenty times the default
/// grace period of a Pod.
pub(super) const CLEANUP_LIMIT: Duration = Duration::from_mins(10);

/// How often, and for how long, a result is reported while credentials are missing: a Secret that is replaced by deleting
/// it first is back within minutes, and one that was deleted for good is not.
const REPORT_EVERY: Duration = Duration::from_mins(1);
const REPORT_FOR: Duration = Duration::from_hours(1);

/// A finished Workflow stays finished, whatever becomes of its Job (I2). It reports its result and releases its locks.
pub(super) fn finished(facts: &Facts<'_>, mut report: Report<'_>) -> Plan<WorkflowStatus> {
    // A replica that stalled until the end may have created a Job late. It never started.
    if let Some(job) = facts.job.late() {
        return Plan::step(held_run::delete(job));
    }
    let steps = facts.release_locks();
    let mut plan = match facts.check().report(&mut report.status) {
        CheckReport::Calls(calls) => Plan { asks: calls, ..Plan::rest() },
        CheckReport::Reported => Plan::rest().status(report.status),
        CheckReport::Missing(failure) => report_again(report, &failure),
        CheckReport::Refused(failure) => report.gives_up(&failure),
        CheckReport::Unchanged | CheckReport::NoAccount(_) | CheckReport::Unreachable(_) => Plan::rest(),
    };
    plan.steps = steps;
    plan
}

fn report_again(report: Report<'_>, failure: &Failure) -> Plan<WorkflowStatus> {
    let ended_at = report.status.completion_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |at| at.0);
    if report.facts.cx.now < later(ended_at, REPORT_FOR) {
        return Plan::rest().wake_at(later(report.facts.cx.now, REPORT_EVERY));
    }
    report.gives_up(failure)
}

/// A person asked for it to stop.
pub(super) fn cancelled(facts: &Facts<'_>, report: Report<'_>, by: &str) -> Plan<WorkflowStatus> {
    let message =
        if by.trim().is_empty() { "cancelled".to_owned() } else { format!("cancelled: {}", by.trim()) };
    let recorded = report.status.job_ref.is_some();
    let mut plan = report.ends(WorkflowPhase::Cancelled, Reason::Cancelled, message);
    match facts.job.own() {
        Some(job) if !job.is_deleting() => plan.steps.insert(0, held_run::delete(job)),
        // A recorded Job that the cache does not show must be gone on the API server too.
        None if recorded => plan.steps.insert(0, facts.job.confirm_gone()),
        Some(_) | None => {}
    }
    plan
}

/// Stops the Job, concludes the check, releases the locks, and only then removes the finalizer.
pub(super) fn clean_up(facts: &Facts<'_>) -> Plan<WorkflowStatus> {
    let mut report = Report::new(facts);
    let asked_at = facts.cx.object.meta().deletion_timestamp.as_ref().map_or(facts.cx.now, |time| time.0);
    let limit = later(asked_at, CLEANUP_LIMIT);
    let running = facts.job.own().filter(|job| !held_run::is_finished(job));
    if let Some(job) = running.filter(|_| facts.cx.now < limit) {
        return stop_and_wait(facts, report, job).wake_at(limit);
    }
    let was_finished = report.is_finished();
    let mut plan = match facts.check().conclude(&mut report.status) {
        CheckReport::Calls(calls) => return Plan { asks: calls, ..Plan::rest() },
        CheckReport::Unreachable(_) if facts.cx.now < limit => return Plan::rest().wake_at(limit),
        CheckReport::Reported if was_finished => Plan::rest(),
        CheckReport::Reported => Plan::rest().note(check_run_cancelled()),
        CheckReport::Unreachable(failure) | CheckReport::Missing(failure) | CheckReport::Refused(failure) => {
            Plan::rest().note(check_run_left(&failure.to_string()))
        }
        CheckReport::NoAccount(problem) => Plan::rest().note(check_run_left(&problem)),
        CheckReport::Unchanged => Plan::rest(),
    };
    match (running, facts.job.found()) {
        // The Job keeps its lock, which is released when the Job ends.
        (Some(job), _) => {
            let message = format!("Job {} is still there; the Workflow goes without it", job.key());
            plan = plan.note(Note::warning(Reason::CleanupIncomplete, message));
        }
        // A Job that the cache does not show yet may be ours; one of another owner is in nobody's way.
        (None, None) => {
            plan.steps.push(facts.job.confirm_gone());
            plan.steps.extend(facts.release_locks());
        }
        (None, Some(_)) => plan.steps.extend(facts.release_locks()),
    }
    plan.then(Step::remove_finalizer(finalizers::WORKFLOW))
}

fn stop_and_wait(facts: &Facts<'_>, report: Report<'_>, job: &Object) -> Plan<WorkflowStatus> {
    let mut plan = if report.is_finished() {
        finished(facts, report)
    } else {
        let before = report.status.check_run_reported.clone();
        let message = "the Workflow was deleted while its Job was running";
        let plan = report.ends(WorkflowPhase::Cancelled, Reason::Cancelled, message);
        let after = plan.status.as_ref().and_then(|status| status.check_run_reported.clone());
        if plan.status.is_some() && after != before { plan.note(check_run_cancelled()) } else { plan }
    };
    let stops = |step: &Step| matches!(step, Step::Delete { target, .. } if target.uid == job.uid());
    if !job.is_deleting() && !plan.steps.iter().any(stops) {
        plan.steps.push(held_run::delete(job));
    }
    plan
}

fn check_run_cancelled() -> Note {
    Note::normal(Reason::CheckRunCancelled, "Cancelled GitHub CheckRun before workflow deletion")
}

fn check_run_left(problem: &str) -> Note {
    let message = format!("the check run on GitHub stays as it is: {problem}");
    Note::warning(Reason::CleanupIncomplete, message)
}
