//! What has happened to a WorkflowExecution or a RemediationRequest, as their states say it.

use pawl_api::remedy::workflow_execution::Outcome as Ended;
use pawl_api::remedy::{
    RemediationPhase, RemediationRequest, WorkflowExecution, WorkflowExecutionPhase, annotations,
};
use serde_json::json;

use super::unit::Teller;
use super::{Actor, Entry, Outcome};

pub(crate) fn workflow_execution(tell: &Teller<'_>, execution: &WorkflowExecution) -> Vec<Entry> {
    let Some(status) = &execution.status else { return Vec::new() };
    let spec = &execution.spec;
    let of_the_run = |entry: Entry| {
        entry
            .with("workflowId", spec.workflow_ref.workflow_id.as_str())
            .with("version", spec.workflow_ref.version.as_deref())
            .with("image", spec.workflow_ref.container_image.as_str())
            .with(
                "run",
                status
                    .pipeline_run_ref
                    .as_ref()
                    .map(|run| json!({"name": run.name, "namespace": run.namespace})),
            )
    };
    let mut entries = Vec::new();
    if status.pipeline_run_uid.is_some() {
        let started = tell.entry("execution.started", "", status.start_time.as_ref());
        entries.push(of_the_run(started.outcome(Outcome::Pending)));
    }
    entries.extend(cancelled_by(tell));
    let (event, outcome) = match status.phase {
        Some(WorkflowExecutionPhase::Completed) => ("execution.completed", Outcome::Success),
        Some(WorkflowExecutionPhase::Failed) => {
            let cancelled = status.reason.as_deref() == Some("Cancelled");
            ("execution.failed", if cancelled { Outcome::Cancelled } else { Outcome::Failure })
        }
        Some(WorkflowExecutionPhase::Skipped) => ("execution.skipped", Outcome::Skipped),
        Some(WorkflowExecutionPhase::Pending | WorkflowExecutionPhase::Running) | None => return entries,
    };
    let ended = tell.entry(event, "", status.completion_time.as_ref()).outcome(outcome);
    let details = status.failure_details.as_ref();
    entries.push(
        of_the_run(ended)
            .with("reason", status.reason.as_deref())
            .with("message", status.message.as_deref())
            .with("timedOut", (status.outcome == Some(Ended::Timeout)).then_some(true))
            .with("wasExecutionFailure", details.map(|details| details.was_execution_failure))
            .with("exitCode", details.and_then(|details| details.exit_code)),
    );
    entries
}

/// That somebody asked for it to be stopped, as `pawl cancel` writes it down: who, and why if they said so.
fn cancelled_by(tell: &Teller<'_>) -> Option<Entry> {
    let said = tell.me.annotation(annotations::CANCEL)?;
    let (who, why) = said.split_once(": ").map_or((said, None), |(who, why)| (who, Some(why)));
    let asked = tell.entry("cancel.requested", "", None);
    Some(Entry { actor: Actor::User(who.to_owned()), ..asked }.with("reason", why))
}

pub(crate) fn remediation_request(tell: &Teller<'_>, request: &RemediationRequest) -> Vec<Entry> {
    let Some(status) = &request.status else { return Vec::new() };
    let signal = request.spec.signal.as_ref();
    let of_the_signal = |entry: Entry| {
        entry
            .with("signal", signal.map(|signal| signal.name.as_str()))
            .with("fingerprint", signal.map(|signal| signal.fingerprint.as_str()))
            .with("requestedBy", request.spec.requested_by.as_deref())
    };
    let mut entries: Vec<Entry> = cancelled_by(tell).into_iter().collect();
    if let Some(time) = &status.start_time {
        entries.push(of_the_signal(tell.entry("started", "", Some(time)).outcome(Outcome::Pending)));
    }
    for step in status.steps.iter().filter(|step| step.attempt > 0) {
        let occasion = format!("{}/{}", step.name, step.attempt);
        let started =
            tell.entry("step.started", &occasion, step.started_at.as_ref()).outcome(Outcome::Pending);
        let child = step.child_ref.as_ref().map(|child| child.name.as_str());
        entries.push(
            started.with("step", step.name.as_str()).with("attempt", step.attempt).with("child", child),
        );
    }
    let (event, outcome) = match status.overall_phase {
        Some(RemediationPhase::Completed) => ("completed", Outcome::Success),
        Some(RemediationPhase::Failed) => ("failed", Outcome::Failure),
        Some(RemediationPhase::TimedOut) => ("timedout", Outcome::Failure),
        Some(RemediationPhase::Skipped) => ("skipped", Outcome::Skipped),
        Some(RemediationPhase::Cancelled) => ("cancelled", Outcome::Cancelled),
        Some(
            RemediationPhase::Pending
            | RemediationPhase::Executing
            | RemediationPhase::AwaitingApproval
            | RemediationPhase::Blocked
            | RemediationPhase::Verifying,
        )
        | None => return entries,
    };
    let ended = tell.entry(event, "", status.completion_time.as_ref()).outcome(outcome);
    entries.push(
        of_the_signal(ended)
            .with("reason", status.reason.as_deref())
            .with("message", status.message.as_deref())
            .with("cancelledBy", tell.me.annotation(annotations::CANCEL))
            .with("requiresManualReview", status.requires_manual_review.then_some(true)),
    );
    entries
}
