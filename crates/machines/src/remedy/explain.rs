//! Why did a remediation run, or why not? The answer in words, from what stands in the objects (I3).

use pawl_api::meta::reference::ObjectRef;
use pawl_api::meta::{Phase, text};
use pawl_api::remedy::kubernetes_execution::{
    ConditionResult, CountedApproval, ExecutionResults, RollbackInformation, ValidationResults,
};
use pawl_api::remedy::remediation_request::StepStatus;
use pawl_api::remedy::workflow_execution::{ConflictingWorkflow, SkipDetails};
use pawl_api::remedy::{
    AffectedResource, KubernetesExecution, KubernetesExecutionPhase, RemediationRequest, WorkflowExecution,
    annotations, kubernetes_execution,
};

use super::memory::Memory;
use crate::story::{Happened, Story, counted, of_groups};

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
    story.phase(status.phase.map(Phase::as_str), status.reason.as_deref(), status.message.as_deref());
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

/// What of a diff is told: the status has the rest.
const MAX_DIFF_CHARS: usize = 2_000;

/// The story of one KubernetesExecution: what was asked, what each gate said, what was changed, and how to undo it.
pub fn action(name: &str, execution: &KubernetesExecution, happened: &[Happened]) -> String {
    let (spec, status) = (&execution.spec, execution.status.clone().unwrap_or_default());
    let mut story = Story::default();
    let target = status.target.as_deref().unwrap_or("no target");
    let by = spec.requested_by.as_deref().map(|who| format!(", asked for by {who}")).unwrap_or_default();
    story.line(format_args!("KubernetesExecution {name}: {} on {target}{by}", spec.action));
    let undoes = execution.metadata.annotations.as_ref().and_then(|all| all.get(annotations::ROLLBACK_OF));
    if let Some(first) = undoes {
        story.line(format_args!("it takes back ke/{first}"));
    }
    story.phase(status.phase.map(Phase::as_str), status.reason.as_deref(), status.message.as_deref());
    if let (Some(KubernetesExecutionPhase::WaitingApproval), Some(until)) =
        (status.phase, &status.approval_deadline)
    {
        let digest = status.approval_digest.as_deref().unwrap_or_default();
        story.line(format_args!(
            "it may be approved until {:.0}; what is approved has the digest {digest}",
            until.0
        ));
    }
    story.gates(&status.gates);
    if let Some(results) = &status.validation_results {
        policy(&mut story, results);
        dry_run(&mut story, results);
        held(&mut story, "preconditions", &results.pre_condition_results);
    }
    approvals(&mut story, &status.approvals);
    if let Some(results) = &status.execution_results {
        changed(&mut story, results);
    }
    if let Some(results) = &status.validation_results {
        held(&mut story, "postconditions", &results.post_condition_results);
    }
    if let Some(information) = &status.rollback_information {
        let place = execution.metadata.namespace.as_deref().unwrap_or_default();
        undo(&mut story, &format!("-n {place} ke/{name}"), status.phase, information);
    }
    story.conditions(&status.conditions);
    story.happened(happened);
    story.text
}

fn policy(story: &mut Story, results: &ValidationResults) {
    let Some(policy) = &results.policy_validation else { return };
    story.heading("policy");
    let allowed = if policy.allowed { "allows it" } else { "does not allow it" };
    let risk = policy.risk.as_deref().map(|risk| format!(", risk {risk}")).unwrap_or_default();
    let dry_run = if policy.required_dry_run { ", after a dry run" } else { "" };
    let approval = if policy.required_approval {
        let people = counted(policy.approver_count.unwrap_or(1), "person approves", "people approve");
        format!(", once {people}{}", of_groups(&policy.approver_groups))
    } else {
        String::new()
    };
    story.item(&policy.policy_name, &format!("{allowed}{risk}{dry_run}{approval}"));
    for violation in &policy.violations {
        story.item("objects", violation);
    }
}

fn dry_run(story: &mut Story, results: &ValidationResults) {
    let Some(tried) = &results.dry_run_results else { return };
    story.heading("dry run");
    if let Some(impact) = &tried.estimated_impact {
        let replicas = impact
            .replicas_changed
            .as_deref()
            .map(|change| format!(", replicas {change}"))
            .unwrap_or_default();
        let objects = counted(impact.resources_affected, "object", "objects");
        story.item("impact", &format!("{} ({objects}{replicas})", impact.description));
    }
    for (name, lines) in [("warns", &tried.warnings), ("fails", &tried.errors)] {
        for line in lines {
            story.item(name, line);
        }
    }
    if !tried.diff.is_empty() {
        let diff = text::head(tried.diff.as_str(), MAX_DIFF_CHARS);
        for line in diff.lines() {
            story.line(format_args!("    {line}"));
        }
    }
}

fn held(story: &mut Story, heading: &str, results: &[ConditionResult]) {
    if results.is_empty() {
        return;
    }
    story.heading(heading);
    for one in results {
        let verdict = if one.passed { "holds" } else { "does not hold" };
        let required = if one.required { "" } else { " (optional)" };
        let message = if one.message.is_empty() { String::new() } else { format!(": {}", one.message) };
        story.item(&one.type_, &format!("{verdict}{required}{message}"));
    }
}

fn approvals(story: &mut Story, approvals: &[CountedApproval]) {
    if approvals.is_empty() {
        return;
    }
    story.heading("approvals");
    for one in approvals {
        let who = if one.approver.is_empty() { "somebody without a name" } else { &one.approver };
        let counts =
            if one.counts { "counts".to_owned() } else { format!("does not count: {}", one.message) };
        story.item(who, &format!("{}, {counts}", one.decision));
    }
}

fn changed(story: &mut Story, results: &ExecutionResults) {
    story.heading("what changed");
    if results.resources_affected.is_empty() {
        story.line(format_args!("  nothing that is known"));
    }
    for AffectedResource { kind, namespace, name, action, before, after } in &results.resources_affected {
        let place = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        let after = if after.is_empty() { "?" } else { after };
        story.item(&format!("{kind} {place}{name}"), &format!("{action}: {before} → {after}"));
    }
    if let Some(job) = &results.job_name {
        let took = results.duration.as_deref().map(|took| format!(", took {took}")).unwrap_or_default();
        let retries = if results.retries_attempted > 0 {
            format!(", after {} failed attempts", results.retries_attempted)
        } else {
            String::new()
        };
        story.item("by Job", &format!("{job}{took}{retries}"));
    }
    if !results.error_message.is_empty() {
        story.item("error", &results.error_message);
    }
}

fn undo(
    story: &mut Story,
    what: &str,
    phase: Option<KubernetesExecutionPhase>,
    information: &RollbackInformation,
) {
    story.heading("how to undo it");
    if let Some(by) = &information.rolled_back_by {
        story.line(format_args!("  ke/{by} takes it back, or did"));
    }
    let over = phase.is_some_and(KubernetesExecutionPhase::is_terminal);
    match information.rollback_action.filter(|_| information.available) {
        Some(action) if over => {
            let parameters = serde_json::Value::Object(information.rollback_parameters.clone());
            story.line(format_args!("  pawl rollback {what}, which does {action} {parameters}"));
        }
        Some(action) => story.line(format_args!("  {action}, once it is over")),
        None => {
            let why = if information.unavailable_reason.is_empty() {
                "nobody knows how"
            } else {
                &information.unavailable_reason
            };
            story.line(format_args!("  it cannot be undone: {why}"));
        }
    }
    if let Some(kept) = &information.undo_ref {
        story.item("kept in", &format!("Secret {}/{}, sha256 {}", kept.namespace, kept.name, kept.sha256));
    }
}

/// The story of one RemediationRequest. `actions` are the KubernetesExecutions that came of it.
pub fn request(
    name: &str,
    request: &RemediationRequest,
    actions: &[KubernetesExecution],
    happened: &[Happened],
) -> String {
    let status = request.status.clone().unwrap_or_default();
    let mut story = Story::default();
    let target = &request.spec.target_resource;
    let place = target.namespace.as_deref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    let signal = request.spec.signal.as_ref().map(|signal| format!(", because of {}", signal.name));
    let by = request.spec.requested_by.as_deref().map(|who| format!(", asked for by {who}"));
    story.line(format_args!(
        "RemediationRequest {name}: mends {place}{}/{}{}{}",
        target.kind,
        target.name,
        signal.unwrap_or_default(),
        by.unwrap_or_default()
    ));
    story.phase(status.overall_phase.map(Phase::as_str), None, status.message.as_deref());
    if let (Some(reason), Some(until)) = (&status.block_reason, &status.blocked_until) {
        story.line(format_args!("it is blocked ({reason}), and tried again at {:.0} at the latest", until.0));
    }
    if status.requires_manual_review {
        story.line(format_args!("a person must look at the target"));
    }
    if !status.steps.is_empty() {
        story.heading("steps");
        for step in &status.steps {
            stepped(&mut story, step, actions);
        }
    }
    next(&mut story, actions);
    story.conditions(&status.conditions);
    story.happened(happened);
    story.text
}

/// One step: what came of it, and of what takes it back.
fn stepped(story: &mut Story, step: &StepStatus, actions: &[KubernetesExecution]) {
    let reason = if step.reason.is_empty() { String::new() } else { format!(" ({})", step.reason) };
    let short = |child: &ObjectRef| {
        let action = child.kind.as_deref() == Some(&kubernetes_execution::KIND.kind);
        format!("{}/{}", if action { "ke" } else { "wfe" }, child.name)
    };
    let child = step.child_ref.as_ref().map(|child| format!(", {}", short(child))).unwrap_or_default();
    story.item(&step.name, &format!("{}{reason}, attempt {}{child}", step.phase, step.attempt));
    let status_of = |child: &ObjectRef| {
        let found = actions.iter().find(|one| one.metadata.name.as_ref() == Some(&child.name))?;
        found.status.as_ref()
    };
    let did = step.child_ref.as_ref().and_then(status_of);
    // What was taken back is told by what did so.
    let did = did.filter(|_| {
        step.rollback_ref.is_none() || step.phase != KubernetesExecutionPhase::Completed.as_str()
    });
    if let Some(message) = did.and_then(|status| status.message.as_deref()) {
        story.line(format_args!("    {message}"));
    }
    if let Some(back) = &step.rollback_ref {
        let status = status_of(back);
        let phase = status.and_then(|status| status.phase).map(|phase| format!(", {}", phase.as_str()));
        let message = status.and_then(|status| status.message.as_deref()).map(|said| format!(": {said}"));
        story.line(format_args!(
            "    taken back by {}{}{}",
            short(back),
            phase.unwrap_or_default(),
            message.unwrap_or_default()
        ));
    }
}

/// What only a person can do now.
fn next(story: &mut Story, actions: &[KubernetesExecution]) {
    let waiting: Vec<&KubernetesExecution> = actions
        .iter()
        .filter(|one| {
            one.status.as_ref().and_then(|status| status.phase)
                == Some(KubernetesExecutionPhase::WaitingApproval)
        })
        .collect();
    if waiting.is_empty() {
        return;
    }
    story.heading("what to do next");
    for one in waiting {
        let (name, namespace) = (&one.metadata.name, &one.metadata.namespace);
        let place = namespace.as_deref().map(|namespace| format!("-n {namespace} ")).unwrap_or_default();
        story.line(format_args!("  pawl approve {place}ke/{}", name.as_deref().unwrap_or_default()));
    }
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
        let told = request("r", &typed, &[], &[]);
        assert!(told.contains("tried again at 2026-01-01T00:05:00Z"), "{told}");
        assert!(told.contains("a  Skipped (RecentlyRemediated), attempt 1, wfe/r-a-1"), "{told}");
    }

    #[test]
    fn i3_a_request_that_waits_for_people_says_what_they_type_and_what_each_step_came_to() {
        let typed: RemediationRequest = serde_json::from_value(json!({"apiVersion": "x/v1", "kind": "RemediationRequest",
            "metadata": {"name": "r"}, "spec": {"requestedBy": "pawl:alerts", "signal": {"name": "Down"},
                "targetResource": {"kind": "Deployment", "name": "web", "namespace": "n"}, "plan": {"steps": []}},
            "status": {"overallPhase": "AwaitingApproval", "message": "it is taken back", "steps": [{"name": "scale",
                "phase": "rollback_ready", "attempt": 1, "childRef": {"kind": "KubernetesExecution", "name": "k"},
                "rollbackRef": {"kind": "KubernetesExecution", "name": "back"}}]}}))
        .unwrap();
        let action = |name: &str, phase: &str| -> KubernetesExecution {
            serde_json::from_value(json!({"apiVersion": "x/v1", "kind": "KubernetesExecution",
                "metadata": {"name": name, "namespace": "n"}, "spec": {"action": "scale_deployment", "parameters":
                    {"scaleDeployment": {"deployment": "web", "namespace": "n", "replicas": 5}}},
                "status": {"phase": phase, "message": format!("{name} says so")}}))
            .unwrap()
        };
        let told =
            request("r", &typed, &[action("k", "rollback_ready"), action("back", "waiting_approval")], &[]);
        for part in [
            "because of Down, asked for by pawl:alerts",
            "scale  rollback_ready, attempt 1, ke/k\n    k says so",
            "taken back by ke/back, waiting_approval: back says so",
            "what to do next\n  pawl approve -n n ke/back",
        ] {
            assert!(told.contains(part), "{part} in {told}");
        }
    }
}
