//! What is left to do for an execution that is finished, is to be cancelled, or is being deleted?

use std::time::Duration;

use pawl_api::meta::Reason;
use pawl_api::remedy::{WorkflowExecutionStatus, finalizers};

use super::failure_details::Failure;
use super::report::Report;
use super::{Facts, later, locking};
use crate::held_run;
use crate::object::Object;
use crate::plan::{Note, Plan, Step};
use crate::remedy;

/// How long a deleted execution waits for its run to end (I5): ten times what a Pod gets to end in by default, and more.
pub(super) const CLEANUP_LIMIT: Duration = Duration::from_mins(10);

/// A finished execution stays finished, whatever becomes of its run (I2). It holds nothing, or lets go as soon as its run
/// can do nothing more.
pub(super) fn finished(facts: &Facts<'_>, report: Report<'_>) -> Plan<WorkflowExecutionStatus> {
    // A process that stalled until all was over may still have made a run. It was made, and never let go.
    if let Some(run) = facts.run.late() {
        return Plan::step(held_run::delete(run));
    }
    if !facts.locks.held().is_empty() {
        let steps = report.release();
        if !steps.is_empty() {
            let target = report.status.target.clone().unwrap_or_default();
            let note = Note::normal(Reason::LockReleased, format!("{target} is free"));
            return Plan { steps, ..Plan::rest() }.note(note);
        }
        // It was asked to stop when this ended; where that was lost, it is asked again.
        let going = facts.run.own().filter(|run| !held_run::is_finished(run));
        return Plan::steps(going.and_then(|run| held_run::stop(run)));
    }
    report.cleared().unwrap_or_else(Plan::rest)
}

/// Somebody asked for it to stop.
pub(super) fn cancelled(facts: &Facts<'_>, report: Report<'_>, by: &str) -> Plan<WorkflowExecutionStatus> {
    stopped(facts, report, &remedy::cancelled(by))
}

/// Ends it now. Whether it had begun is known only of a run that was let go.
fn stopped(facts: &Facts<'_>, report: Report<'_>, message: &str) -> Plan<WorkflowExecutionStatus> {
    let held = facts.run.own().is_some_and(|run| held_run::is_held(run));
    let begun = report.status.pipeline_run_uid.is_some() && !held;
    let mut plan = report.fails(&Failure::plain(Reason::Cancelled, message, begun));
    match facts.run.own() {
        Some(run) => plan.steps.splice(0..0, held_run::stop(run)),
        // A run that no cache shows is no proof that there is none: it would be let go later.
        None => plan.steps.splice(0..0, confirmed(facts)),
    };
    plan
}

fn confirmed(facts: &Facts<'_>) -> Option<Step> {
    facts.run.found().is_none().then(|| facts.run.confirm_gone())
}

/// Stops what runs, lets go, and only then gives the object up.
pub(super) fn clean_up(facts: &Facts<'_>, report: Report<'_>) -> Plan<WorkflowExecutionStatus> {
    let now = report.now;
    let asked_at = facts.cx.object.meta().deletion_timestamp.as_ref().map_or(now, |at| at.0);
    let limit = later(asked_at, CLEANUP_LIMIT);
    let going = facts.run.own().filter(|run| !held_run::is_finished(run));
    if let Some(run) = going.filter(|_| now < limit) {
        let over = report.is_over();
        let plan = if over {
            Plan::steps(held_run::stop(run))
        } else {
            stopped(facts, report, "the execution was deleted while its run was going on")
        };
        return plan.wake_at(limit);
    }
    if facts.left_behind && going.is_none() && facts.run.found().is_none() && now < limit {
        return Plan::rest().wake_at(limit);
    }
    let name = facts.cx.object.key();
    let mut plan =
        Plan::rest().note(Note::normal(Reason::WorkflowExecutionDeleted, format!("{name} is deleted")));
    match going {
        // Its lock stays with it: whoever sees the run end frees it. What is remembered is written now.
        Some(run) => {
            let message = format!("{} is still there; the execution goes without it", run.reference());
            plan = plan.note(Note::warning(Reason::CleanupIncomplete, message));
            plan.steps
                .extend(report.remembered().and_then(|memory| locking::remember(&facts.locks, &memory)));
        }
        None => {
            let steps = report.release();
            if steps.is_empty() {
                plan.steps.extend(confirmed(facts));
            }
            plan.steps.extend(steps);
            plan.steps.extend(far_away(facts).map(held_run::delete));
        }
    }
    plan.then(Step::remove_finalizer(finalizers::WORKFLOW_EXECUTION))
}

/// A run in another namespace, which no owner reference takes along.
fn far_away<'a>(facts: &'a Facts<'a>) -> Option<&'a Object> {
    let run = facts.run.own()?;
    (run.namespace() != facts.cx.object.namespace() && !run.is_deleting()).then_some(run)
}
