//! What has happened to an execution or a RemediationRequest, as their states say it.

use pawl_api::meta::Reason;
use pawl_api::remedy::kubernetes_execution::{ActionOutcome, CountedApproval};
use pawl_api::remedy::workflow_execution::Outcome as Ended;
use pawl_api::remedy::{
    KubernetesExecution, KubernetesExecutionPhase, KubernetesExecutionStatus, RemediationPhase,
    RemediationRequest, WorkflowExecution, WorkflowExecutionPhase, annotations,
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

/// What policy, the lock and the other gates said is told of every unit alike: `….policy.evaluated`.
pub(crate) fn kubernetes_execution(tell: &Teller<'_>, execution: &KubernetesExecution) -> Vec<Entry> {
    let Some(status) = &execution.status else { return Vec::new() };
    let spec = &execution.spec;
    let of_the_action = |entry: Entry| {
        entry
            .with("action", spec.action.as_str())
            .with("requestedBy", spec.requested_by.as_deref())
            .with("request", spec.remediation_request_ref.as_ref().map(|request| request.name.as_str()))
    };
    let mut entries = Vec::new();
    if status.phase.is_some() {
        let made = tell.me.meta().creation_timestamp;
        let asked = of_the_action(tell.entry("requested", "", made.as_ref())).outcome(Outcome::Pending);
        let by = spec.requested_by.clone().map_or_else(|| asked.actor.clone(), Actor::User);
        entries.push(
            Entry { actor: by, ..asked }.with("rollbackOf", tell.me.annotation(annotations::ROLLBACK_OF)),
        );
    }
    entries.extend(status.approvals.iter().map(|one| of_approval(tell, status, one)));
    if let Some(undo) =
        status.rollback_information.as_ref().and_then(|information| information.undo_ref.as_ref())
    {
        let stored = tell.entry("undo.stored", &undo.sha256, None);
        entries.push(
            stored
                .with("secret", format!("{}/{}", undo.namespace, undo.name))
                .with("sha256", undo.sha256.as_str()),
        );
    }
    if let Some(job) = &status.job_ref {
        let started = status.execution_results.as_ref().and_then(|results| results.start_time.as_ref());
        let started = tell.entry("execution.started", &job.name, started).outcome(Outcome::Pending);
        entries.push(of_the_action(started).with("job", job.name.as_str()).with("attempt", status.attempt));
    }
    entries.extend(ended(tell, status).map(of_the_action));
    let undoable =
        status.rollback_information.as_ref().is_some_and(|information| information.rollback_action.is_some());
    if status.phase == Some(KubernetesExecutionPhase::Completed) && undoable {
        let finalized = tell.entry("finalized", "", None).with("message", status.message.as_deref());
        let by = status
            .rollback_information
            .as_ref()
            .and_then(|information| information.rolled_back_by.as_deref());
        entries
            .push(finalized.with("rolledBackBy", by).with("by", tell.me.annotation(annotations::FINALIZE)));
    }
    entries
}

fn of_approval(tell: &Teller<'_>, status: &KubernetesExecutionStatus, one: &CountedApproval) -> Entry {
    let event = if one.decision == "reject" { "approval.rejected" } else { "approval.granted" };
    let outcome = match (one.counts, one.decision.as_str()) {
        (false, _) => Outcome::Skipped,
        (true, "reject") => Outcome::Denied,
        (true, _) => Outcome::Success,
    };
    let occasion = format!("{}/{}/{}", one.name, one.approver, one.counts);
    let entry = tell.entry(event, &occasion, None).outcome(outcome);
    let actor = if one.approver.is_empty() { "anonymous".to_owned() } else { one.approver.clone() };
    Entry { actor: Actor::User(actor), ..entry }
        .with("approval", one.name.as_str())
        .with("counts", one.counts)
        .with("why", (!one.message.is_empty()).then_some(one.message.as_str()))
        .with("digest", status.approval_digest.as_deref())
}

/// The end of the work: what came of it, once.
fn ended(tell: &Teller<'_>, status: &KubernetesExecutionStatus) -> Option<Entry> {
    let (event, outcome) = match status.phase? {
        KubernetesExecutionPhase::Validating
        | KubernetesExecutionPhase::Validated
        | KubernetesExecutionPhase::WaitingApproval
        | KubernetesExecutionPhase::Executing => return None,
        KubernetesExecutionPhase::RollbackReady | KubernetesExecutionPhase::Completed => {
            ("execution.completed", Outcome::Success)
        }
        KubernetesExecutionPhase::Failed => ("execution.failed", of_failure(status.reason.as_deref())),
    };
    let results = status.execution_results.as_ref();
    let changed: Vec<serde_json::Value> = results
        .map(|results| results.resources_affected.as_slice())
        .unwrap_or_default()
        .iter()
        .map(|one| {
            json!({"kind": one.kind, "namespace": one.namespace, "name": one.name, "action": one.action,
            "before": one.before, "after": one.after})
        })
        .collect();
    let failed = status.phase == Some(KubernetesExecutionPhase::Failed);
    Some(
        tell.entry(event, "", status.completion_time.as_ref())
            .outcome(outcome)
            .with("reason", status.reason.as_deref().filter(|_| failed))
            .with("message", status.message.as_deref().filter(|_| failed))
            .with("partial", (status.outcome == Some(ActionOutcome::PartialSuccess)).then_some(true))
            .with("job", results.and_then(|results| results.job_name.as_deref()))
            .with("retries", results.map(|results| results.retries_attempted).filter(|retries| *retries > 0))
            .with("changed", (!changed.is_empty()).then_some(changed)),
    )
}

fn of_failure(reason: Option<&str>) -> Outcome {
    let is = |wanted: Reason| reason == Some(wanted.as_str());
    if is(Reason::KeCancelled) {
        Outcome::Cancelled
    } else if is(Reason::KePolicyDenied) || is(Reason::KeApprovalRejected) || is(Reason::RbacDenied) {
        Outcome::Denied
    } else if is(Reason::ResultUnknown) {
        Outcome::Lost
    } else {
        Outcome::Failure
    }
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
        if let Some(rollback) = &step.rollback_ref {
            let rolled = tell.entry("step.rollback", &rollback.name, None).outcome(Outcome::Pending);
            entries.push(rolled.with("step", step.name.as_str()).with("child", rollback.name.as_str()));
        }
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
