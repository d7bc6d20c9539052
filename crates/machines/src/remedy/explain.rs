//! Why did a remediation run, or why not? The answer in words, from what stands in the objects (I3).

use pawl_api::remedy::workflow_execution::{ConflictingWorkflow, SkipDetails};
use pawl_api::remedy::{RemediationRequest, WorkflowExecution};

use super::memory::Memory;
use crate::story::{Happened, Story};

/// The story of one WorkflowExecution. `memory` is what its target remembers, where that is known.
pub fn execution(
    name: &str,
    execution: &WorkflowExecution,
    memory: Option<&Memory>,
    happened: &[Happened],
) -> String {
    let (spec, status) = (&execution.spec, execution.status.clone().unwrap_or_default());
    let id = &spec.workflow_ref.workflow_id;
    let mut story = Story::default();
    story.line(format_args!("WorkflowExecution {name}: workflow {id} on {}", spec.target_resource));
    match status.phase {
        None => story.line(format_args!("has not been looked at yet")),
        Some(phase) => {
            let reason = status.reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
            let message = status.message.as_deref().map(|said| format!(": {said}")).unwrap_or_default();
            story.line(format_args!("is {phase:?}{reason}{message}"));
        }
    }
    if let Some(details) = &status.failure_details {
        story.line(format_args!("{}", details.natural_language_summary));
    }
    if let Some(details) = &status.skip_details {
        skipped(&mut story, details);
    }
    if let Some(at) = &status.next_allowed_execution {
        story.line(format_args!("it may be tried again after {:.0}", at.0));
    }
    story.gates(&status.gates);
    story.conditions(&status.conditions);
    if let Some(run) = &status.pipeline_run_ref {
        story.heading("what it is tied to");
        let kind = format!("{:?} run", spec.engine);
        story.item(&kind, &format!("{}/{}", run.namespace.as_deref().unwrap_or_default(), run.name));
        if let Some(run) = &status.pipeline_run_status {
            let said = run.message.as_deref().or(run.reason.as_deref()).unwrap_or_default();
            story.item("says", &format!("{} of {} tasks, {said}", run.completed_tasks, run.total_tasks));
        }
    }
    if let Some(memory) = memory {
        remembered(&mut story, memory);
    }
    if let Some(clearance) = &status.block_clearance {
        story.line(format_args!("\nits block was cleared by {}: {}", clearance.cleared_by, clearance.reason));
    }
    story.happened(happened);
    story.text
}

/// The story of one RemediationRequest.
pub fn request(name: &str, request: &RemediationRequest, happened: &[Happened]) -> String {
    let status = request.status.clone().unwrap_or_default();
    let mut story = Story::default();
    let target = &request.spec.target_resource;
    let place = target.namespace.as_deref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    let signal = request.spec.signal.as_ref().map(|signal| format!(", because of {}", signal.name));
    story.line(format_args!(
        "RemediationRequest {name}: mends {place}{}/{}{}",
        target.kind,
        target.name,
        signal.unwrap_or_default()
    ));
    match status.overall_phase {
        None => story.line(format_args!("has not been looked at yet")),
        Some(phase) => {
            let message = status.message.as_deref().map(|said| format!(": {said}")).unwrap_or_default();
            story.line(format_args!("is {phase:?}{message}"));
        }
    }
    if let (Some(reason), Some(until)) = (&status.block_reason, &status.blocked_until) {
        story.line(format_args!("it is blocked ({reason}), and tried again at {:.0} at the latest", until.0));
    }
    if status.requires_manual_review {
        story.line(format_args!("a person must look at the target"));
    }
    if !status.steps.is_empty() {
        story.heading("steps");
        for step in &status.steps {
            let child =
                step.child_ref.as_ref().map(|child| format!(", wfe/{}", child.name)).unwrap_or_default();
            let reason = if step.reason.is_empty() { String::new() } else { format!(" ({})", step.reason) };
            story.item(&step.name, &format!("{}{reason}, attempt {}{child}", step.phase, step.attempt));
        }
    }
    story.conditions(&status.conditions);
    story.happened(happened);
    story.text
}

fn skipped(story: &mut Story, details: &SkipDetails) {
    if let Some(ConflictingWorkflow { kind, namespace, name, workflow_id, started_at }) =
        &details.conflicting_workflow
    {
        let id = workflow_id.as_deref().map(|id| format!(", workflow {id}")).unwrap_or_default();
        let since = started_at.as_ref().map(|at| format!(", since {:.0}", at.0)).unwrap_or_default();
        story.line(format_args!("the target was held by {kind} {namespace}/{name}{id}{since}"));
    }
    if let Some(remaining) = &details.cooldown_remaining {
        story.line(format_args!("the cooldown had {remaining} to go"));
    }
}

fn remembered(story: &mut Story, memory: &Memory) {
    let mut first = true;
    for (id, one) in memory.workflows() {
        if std::mem::take(&mut first) {
            story.heading("what the target remembers");
        }
        if let Some(block) = &one.block {
            story.item(
                id,
                &format!("is blocked: {}/{} failed with {}", block.namespace, block.name, block.reason),
            );
        }
        if one.failures > 0 {
            let next = one.next_allowed().map(|at| format!(", next after {at:.0}")).unwrap_or_default();
            story.item(id, &format!("could not be started {} times in a row{next}", one.failures));
        }
        if let Some(last) = &one.last_success {
            let (at, cooldown) = (last.completed_at.0, last.cooldown);
            story.item(
                id,
                &format!("succeeded at {at:.0} ({}/{}), cooldown {cooldown}", last.namespace, last.name),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn i3_a_skipped_execution_says_who_held_its_target_and_what_would_change_that() {
        let typed: WorkflowExecution = serde_json::from_value(json!({"apiVersion": "x/v1", "kind": "WorkflowExecution",
            "metadata": {"name": "w"}, "spec": {"targetResource": "n/deployment/web",
                "workflowRef": {"workflowId": "mend", "containerImage": "i"}},
            "status": {"phase": "Skipped", "reason": "ResourceBusy", "message": "held",
                "skipDetails": {"reason": "ResourceBusy", "message": "held", "conflictingWorkflow":
                    {"kind": "WorkflowExecution", "namespace": "n", "name": "v", "workflowId": "other"}},
                "gates": [{"gate": "Lock", "verdict": "Stopped", "reason": "ResourceBusy", "lookedAt": "the lease",
                    "wouldChange": "the holder lets go"}]}}))
        .unwrap();
        let told = execution("w", &typed, None, &[]);
        assert!(told.contains("held by WorkflowExecution n/v, workflow other"), "{told}");
        assert!(told.contains("it would go on with the holder lets go"), "{told}");
    }

    #[test]
    fn a_blocked_request_says_until_when() {
        let typed: RemediationRequest = serde_json::from_value(json!({"apiVersion": "x/v1", "kind": "RemediationRequest",
            "metadata": {"name": "r"}, "spec": {"targetResource": {"kind": "Deployment", "name": "web", "namespace": "n"},
                "plan": {"steps": []}},
            "status": {"overallPhase": "Blocked", "blockReason": "RecentlyRemediated",
                "blockedUntil": "2026-01-01T00:05:00Z", "steps": [{"name": "a", "phase": "Skipped",
                    "reason": "RecentlyRemediated", "attempt": 1, "childRef": {"name": "r-a-1"}}]}}))
        .unwrap();
        let told = request("r", &typed, &[]);
        assert!(told.contains("tried again at 2026-01-01T00:05:00Z"), "{told}");
        assert!(told.contains("a  Skipped (RecentlyRemediated), attempt 1, wfe/r-a-1"), "{told}");
    }
}
