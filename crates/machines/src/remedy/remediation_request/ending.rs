//! What is left to do for a request that is over, is to stop, or is being deleted?

use std::time::Duration;

use pawl_api::meta::{Reason, names};
use pawl_api::remedy::{
    RemediationPhase, RemediationRequestStatus, annotations, finalizers, kubernetes_execution, labels,
    workflow_execution,
};
use serde_json::json;

use super::report::Report;
use super::rollback::{self, Rollback};
use super::steps::Stepped;
use super::{Facts, later};
use crate::plan::{Note, Plan, Precondition, Step};

/// How long a deleted request waits for its executions to go (I5): what each of them waits for its run, and a little.
const CLEANUP_LIMIT: Duration = Duration::from_mins(12);

/// It stays as it ended. What was still running is cancelled, also where that was lost, and its end is told; after its
/// retention it goes.
pub(super) fn finished(facts: &Facts<'_>, mut report: Report<'_>) -> Plan<RemediationRequestStatus> {
    let mut stop = cancel(facts, "the RemediationRequest is over");
    if report.status.overall_phase == Some(RemediationPhase::Completed) {
        stop.extend(rollback::finalize(facts));
    }
    if !stop.is_empty() {
        return Plan { steps: stop, ..Plan::rest() };
    }
    report.offers_rollback();
    let ended = report.status.completion_time.as_ref().map_or(report.now, |at| at.0);
    let kept = later(ended, facts.cx.typed.spec.retention.get());
    if report.now < kept {
        return Plan::rest().status(report.status).wake_at(kept);
    }
    Plan::step(Step::delete_unchanged(facts.cx.object))
}

/// Ends it before its steps are done.
pub(super) fn stop(
    facts: &Facts<'_>,
    mut report: Report<'_>,
    phase: RemediationPhase,
    reason: Reason,
    message: &str,
) -> Plan<RemediationRequestStatus> {
    let word = match phase {
        RemediationPhase::TimedOut => Reason::RemediationTimeout,
        RemediationPhase::Pending
        | RemediationPhase::Executing
        | RemediationPhase::AwaitingApproval
        | RemediationPhase::Blocked
        | RemediationPhase::Verifying
        | RemediationPhase::Completed
        | RemediationPhase::Failed
        | RemediationPhase::Skipped
        | RemediationPhase::Cancelled => reason,
    };
    let steps = cancel(facts, message);
    // What is cut off in the middle may have changed its target.
    report.status.requires_manual_review |= facts.steps.iter().any(Stepped::needs_review);
    report.status.outcome = Some(reason.into());
    let offer = report.offers_rollback();
    let mut plan = report.ends(phase, reason, message).note(Note::warning(word, message));
    plan.notes.extend(offer);
    plan.steps = steps;
    plan
}

/// Deletes the executions, each of which stops its run first, and waits for them.
pub(super) fn clean_up(facts: &Facts<'_>) -> Plan<RemediationRequestStatus> {
    let asked_at = facts.cx.object.meta().deletion_timestamp.as_ref().map_or(facts.cx.now, |at| at.0);
    let limit = later(asked_at, CLEANUP_LIMIT);
    let mut plan = Plan::rest();
    let children = &facts.steps.children;
    if !children.is_empty() && facts.cx.now < limit {
        let going = children.iter().filter(|child| !child.is_deleting());
        plan.steps = going.map(|child| Step::delete(child)).collect();
        return plan.wake_at(limit);
    }
    if children.is_empty() {
        // A cache is no proof that there is none.
        for kind in [workflow_execution::KIND, kubernetes_execution::KIND] {
            plan = plan.then(Step::Confirm(Precondition::NoneLabelled {
                kind,
                namespace: facts.cx.object.namespace().map(str::to_owned),
                label: labels::REMEDIATION_REQUEST,
                value: names::label_value(facts.cx.object.name()),
            }));
        }
    } else {
        let message = format!("{} executions are still there; the request goes without them", children.len());
        plan = plan.note(Note::warning(Reason::CleanupIncomplete, message));
    }
    plan.then(Step::remove_finalizer(finalizers::REMEDIATION_REQUEST))
}

/// Asks what runs to stop, once, if it is still as it was seen: the cache of executions may lag behind the request's own.
fn cancel(facts: &Facts<'_>, why: &str) -> Vec<Step> {
    let going = facts.steps.iter().filter(|step| step.is_going());
    let children = going.filter_map(|step| step.child.as_ref()).map(|child| &child.object);
    let rollbacks =
        facts.rollbacks.iter().filter(|rollback| rollback.is_going()).filter_map(Rollback::object);
    children
        .chain(rollbacks)
        .filter(|child| child.annotation(annotations::CANCEL).is_none() && !child.is_deleting())
        .map(|child| {
            Step::patch_unchanged(child, json!({"metadata": {"annotations": {annotations::CANCEL: why}}}))
        })
        .collect()
}
