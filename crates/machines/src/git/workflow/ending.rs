//! What is left to do for a Workflow that is finished, is to be cancelled, or is being deleted?

use std::time::Duration;

use jiff::Timestamp;
use pawl_api::git::{WorkflowPhase, WorkflowStatus, finalizers};
use pawl_api::meta::Reason;

use super::report::Report;
use super::telling::{self, Told};
use super::{Facts, later, locking};
use crate::failure::Failure;
use crate::git::check_run;
use crate::held_run;
use crate::object::Object;
use crate::plan::{Note, Plan, Step};

/// How long a deleted Workflow waits for its Job to go and for GitHub to hear of it (I5): ten times what a Pod gets to
/// end in by default, and more.
pub(super) const CLEANUP_LIMIT: Duration = Duration::from_mins(10);

/// How often a result is offered to a GitHub whose credentials are gone, and for how long: somebody who replaces a Secret
/// by deleting it first is back within minutes, and whoever took it away for good is not.
const OFFER_EVERY: Duration = Duration::from_mins(1);
const OFFER_FOR: Duration = Duration::from_hours(1);

/// A finished Workflow stays finished, whatever becomes of its Job (I2). It has told GitHub and holds nothing, or does so
/// now.
pub(super) fn finished(facts: &Facts<'_>, mut report: Report<'_>) -> Plan<WorkflowStatus> {
    // A process that stalled until all was over may still have made a Job. It was made, and never started.
    if let Some(job) = facts.job.late() {
        return Plan::step(held_run::delete(job));
    }
    let phase = report.status.phase.unwrap_or(WorkflowPhase::Failed);
    let state = check_run::state(phase, telling::reason(&report.status));
    let steps = locking::release(facts);
    let told = telling::tell(facts, &report.status, state);
    let mut plan = match &told {
        Told::Ask(calls) => Plan { asks: calls.clone(), ..Plan::rest() },
        Told::Now { .. } => {
            report.remember(&told);
            Plan::rest().status(report.status)
        }
        Told::Later(failure) if telling::is_missing(failure) => offer_again(report, failure),
        Told::Never(failure) => report.gives_up(state, failure),
        Told::Already | Told::Nobody(_) | Told::Later(_) => Plan::rest(),
    };
    plan.steps = steps;
    plan
}

fn offer_again(report: Report<'_>, failure: &Failure) -> Plan<WorkflowStatus> {
    let ended_at = report.status.completion_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |at| at.0);
    if report.facts.cx.now < later(ended_at, OFFER_FOR) {
        return Plan::rest().wake_at(later(report.facts.cx.now, OFFER_EVERY));
    }
    let phase = report.status.phase.unwrap_or(WorkflowPhase::Failed);
    let state = check_run::state(phase, telling::reason(&report.status));
    report.gives_up(state, failure)
}

/// Somebody asked for it to stop.
pub(super) fn cancelled(facts: &Facts<'_>, report: Report<'_>, by: &str) -> Plan<WorkflowStatus> {
    let message =
        if by.trim().is_empty() { "cancelled".to_owned() } else { format!("cancelled: {}", by.trim()) };
    let recorded = report.status.job_ref.is_some();
    let mut plan = report.ends(WorkflowPhase::Cancelled, Reason::Cancelled, message);
    match facts.job.own() {
        Some(job) if !job.is_deleting() => plan.steps.insert(0, held_run::delete(job)),
        // One that was made and is not seen must be gone: a cache is no proof of it.
        None if recorded => plan.steps.insert(0, facts.job.confirm_gone()),
        Some(_) | None => {}
    }
    plan
}

/// Stops what runs, tells GitHub, lets go, and only then gives the object up.
pub(super) fn clean_up(facts: &Facts<'_>) -> Plan<WorkflowStatus> {
    let report = Report::of(facts);
    let asked_at = facts.cx.object.meta().deletion_timestamp.as_ref().map_or(facts.cx.now, |time| time.0);
    let limit = later(asked_at, CLEANUP_LIMIT);
    let going = facts.job.own().filter(|job| !held_run::is_finished(job) && facts.guards.finalizer_order);
    if let Some(job) = going.filter(|_| facts.cx.now < limit) {
        return stop_and_wait(facts, report, job).wake_at(limit);
    }
    let told = if report.is_over() {
        let phase = report.status.phase.unwrap_or(WorkflowPhase::Cancelled);
        let state = check_run::state(phase, telling::reason(&report.status));
        telling::tell(facts, &report.status, state)
    } else {
        telling::tell_end(facts, &report.status)
    };
    let mut plan = match told {
        Told::Ask(calls) => return Plan { asks: calls, ..Plan::rest() },
        Told::Later(failure) if facts.cx.now < limit && !telling::is_missing(&failure) => {
            return Plan::rest().wake_at(limit);
        }
        Told::Now { .. } if report.is_over() => Plan::rest(),
        Told::Now { .. } => Plan::rest().note(check_run_cancelled()),
        Told::Later(failure) | Told::Never(failure) => Plan::rest().note(untold(&failure.to_string())),
        Told::Nobody(problem) => Plan::rest().note(untold(&problem)),
        Told::Already => Plan::rest(),
    };
    match (going, facts.job.found()) {
        // Its lock stays with it: whoever sees the run end frees it.
        (Some(job), _) => {
            let message = format!("Job {} is still there; the Workflow goes without it", job.key());
            plan = plan.note(Note::warning(Reason::CleanupIncomplete, message));
        }
        // Somebody else's Job of that name is in nobody's way; one that the cache has not seen yet may be ours.
        (None, None) => {
            plan.steps.push(facts.job.confirm_gone());
            plan.steps.extend(locking::release(facts));
        }
        (None, Some(_)) => plan.steps.extend(locking::release(facts)),
    }
    plan.then(Step::remove_finalizer(finalizers::WORKFLOW))
}

fn stop_and_wait(facts: &Facts<'_>, report: Report<'_>, job: &Object) -> Plan<WorkflowStatus> {
    let mut plan = if report.is_over() {
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

fn untold(problem: &str) -> Note {
    let message = format!("the check run on GitHub stays as it is: {problem}");
    Note::warning(Reason::CleanupIncomplete, message)
}
