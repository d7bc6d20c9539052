//! What is the next thing to do for a RemediationRequest: the steps that shall mend a target?
//!
//! ```text
//! finalizer ─▶ over?         ─yes─▶ what still runs is cancelled; after its retention it is deleted
//!              duplicate?    ─yes─▶ Skipped: an earlier request is about the same alert, and not over
//!              plan wrong?   ─yes─▶ Failed before anything runs
//!              cancelled, too late ▶ what runs is cancelled
//!              each step     ─────▶ after all it depends on: a WorkflowExecution or KubernetesExecution of a name that
//!                                   follows from request, step and attempt (I1)
//!              skipped child ─────▶ Blocked; attempt n+1 at the stated time, or when the target's lock is free and no
//!                                   earlier request waits for it
//!              failed child  ─────▶ nothing more is started; once nothing runs, finished actions are taken back in reverse,
//!                                   if it asks for that; then Failed
//!              all done      ─────▶ offers of a rollback end; Completed
//! deleted   ─▶ the children are deleted and waited for ─▶ the finalizer goes
//! ```

#![expect(clippy::indexing_slicing, reason = "the objects whose keys are written here are made right here")]

use std::sync::Arc;
use std::time::Duration;

use pawl_api::meta::{Phase, Reason, Target, names};
use pawl_api::pawl::labels::TARGET_HASH;
use pawl_api::pawl::{SYSTEM_NAMESPACE, annotations as pawl};
use pawl_api::remedy::remediation_request::{self, ActionStep, Step as PlanStep, WorkflowStep, child_name};
use pawl_api::remedy::{
    RemediationPhase, RemediationRequest, RemediationRequestStatus, annotations, finalizers,
    kubernetes_execution, labels, workflow_execution,
};
use serde_json::json;

use crate::audit::{self, Entry, Teller};
use crate::dag::{self, Node};
use crate::lifecycle::{self, Lifecycle};
use crate::lock::LEASE;
use crate::machine::{Description, Machine, Watch, Write};
use crate::object::{Key, Object};
use crate::plan::{Note, Plan, Step};
use crate::remedy::action::definition;
use crate::time::later;
use crate::view::{Context, View};

mod ending;
mod report;
mod rollback;
mod steps;
#[cfg(test)]
mod tests;

use report::Report;
use rollback::Rollback;
use steps::{Standing, Steps};

/// How long a step that found its target taken waits at most before it tries again, doubling up to the longest: the
/// lock's release usually comes first, and tells.
const BUSY_RETRY: Duration = Duration::from_mins(1);
const LONGEST_BUSY_RETRY: Duration = Duration::from_mins(10);

/// Carries out RemediationRequests.
#[derive(Clone, Debug)]
pub struct RemediationRequests {
    /// Where the locks are.
    pub system_namespace: String,
}

impl Default for RemediationRequests {
    fn default() -> Self {
        Self { system_namespace: SYSTEM_NAMESPACE.to_owned() }
    }
}

/// A RemediationRequest and all that its next step depends on.
#[derive(Debug)]
struct Facts<'a> {
    cx: &'a Context<'a, RemediationRequest>,
    /// What it is about, or what is wrong with that.
    target: Result<Target, String>,
    steps: Steps,
    /// What is to be taken back, the newest first; none while nothing has failed, or where nobody asks for it.
    rollbacks: Vec<Rollback>,
    /// With `rollbackStrategy: manual`: the executions that offer a rollback, the newest first.
    offers: Vec<String>,
    /// An earlier request that is about the same alert and not over.
    duplicate_of: Option<Arc<Object>>,
    /// What the API server did not want.
    refused: Option<String>,
}

impl Machine for RemediationRequests {
    type Kind = RemediationRequest;
    type Status = RemediationRequestStatus;

    fn description(&self) -> Description {
        Description {
            watches: vec![
                Watch::owned(workflow_execution::KIND).by_labels(&[TARGET_HASH]),
                Watch::owned(kubernetes_execution::KIND),
                Watch::other(remediation_request::KIND, |_, _| Vec::new()).by_labels(&[labels::FINGERPRINT]),
                Watch::other(LEASE, steps::who_waits),
            ],
            finalizer: Some(finalizers::REMEDIATION_REQUEST),
            writes: vec![
                Write::main(remediation_request::KIND, &["delete", "patch"]),
                Write::status(remediation_request::KIND),
                Write::finalizers(remediation_request::KIND),
                Write::main(workflow_execution::KIND, &["create", "delete", "patch"]),
                Write::main(kubernetes_execution::KIND, &["create", "delete", "patch"]),
            ],
            ..Description::new("remediationrequest", remediation_request::KIND)
        }
    }

    fn audit(&self, tell: &Teller<'_>, request: &RemediationRequest) -> Option<Vec<Entry>> {
        Some(audit::remedy::remediation_request(tell, request))
    }

    fn reconcile(&self, cx: &Context<'_, RemediationRequest>) -> Plan<RemediationRequestStatus> {
        let facts = self.facts(cx);
        match lifecycle::of(facts.cx.object, finalizers::REMEDIATION_REQUEST) {
            Lifecycle::Add => Plan::step(mark(&facts)),
            Lifecycle::Run => run(&facts, Report::of(&facts)),
            Lifecycle::CleanUp => ending::clean_up(&facts),
            Lifecycle::Nothing => Plan::rest(),
        }
    }
}

impl RemediationRequests {
    fn facts<'a>(&self, cx: &'a Context<'a, RemediationRequest>) -> Facts<'a> {
        let (view, me, request) = (cx.view, cx.object, cx.typed);
        let target = request.spec.target_resource.target().map_err(|error| error.to_string());
        let over = phase_of(request).is_some_and(RemediationPhase::is_terminal);
        let steps = Steps::observe(view, &self.system_namespace, me, request, target.as_ref().ok());
        Facts {
            rollbacks: rollback::observe(view, me, request, &steps),
            offers: rollback::offers(view, me, request, &steps),
            steps,
            duplicate_of: if over { None } else { duplicate_of(view, me, request) },
            refused: cx.refusals.first().map(|one| one.failure.to_string()),
            target,
            cx,
        }
    }
}

fn run(facts: &Facts<'_>, mut report: Report<'_>) -> Plan<RemediationRequestStatus> {
    if report.is_over() {
        return ending::finished(facts, report);
    }
    if let Some(by) = facts.cx.object.annotation(annotations::CANCEL) {
        let message = super::cancelled(by);
        return ending::stop(facts, report, RemediationPhase::Cancelled, Reason::Cancelled, &message);
    }
    let target = match &facts.target {
        Ok(target) => target,
        Err(problem) => {
            return report.fails(Reason::ValidationError, &format!("spec.targetResource: {problem}"));
        }
    };
    report.status.target = Some(target.to_string());
    if facts.steps.none_started() {
        if let Some(refusal) = unfit(&facts.cx.typed.spec.plan) {
            return report.fails(refusal.0, &refusal.1);
        }
        if let Some(other) = &facts.duplicate_of {
            let message = format!("RemediationRequest {} is about the same alert, and not over", other.key());
            let mut plan = report.skips(Reason::DuplicateAlert, &message);
            plan.steps.push(Step::confirm_unchanged(other));
            return plan;
        }
        let acts = facts.cx.typed.spec.plan.steps.iter().any(|step| step.action.is_some());
        if facts.cx.typed.spec.dry_run && !acts {
            return report.dry_run();
        }
    }
    if let Some(problem) = &facts.refused {
        return report.fails(Reason::StepFailed, problem);
    }
    report.begins();
    // What takes something back has its own deadlines: it is not cut off halfway.
    let rolling = facts.rollbacks.iter().any(Rollback::is_begun);
    if let Some((what, at)) = report.overdue().filter(|_| !rolling) {
        let message = format!("{what} was not over at {at:.0}; what runs is cancelled");
        return ending::stop(facts, report, RemediationPhase::TimedOut, Reason::Timeout, &message);
    }
    go_on(facts, report)
}

/// Starts what may be started, and says where everything is.
fn go_on(facts: &Facts<'_>, mut report: Report<'_>) -> Plan<RemediationRequestStatus> {
    let now = report.now;
    let mut plan = Plan::rest();
    let failed = facts.steps.iter().any(|step| step.failed().is_some());
    for (at, step) in facts.steps.iter().enumerate() {
        let attempt = match &step.standing {
            _ if failed => continue,
            Standing::Ready => 1,
            Standing::Blocked(_) if step.may_retry(now) => step.attempt.saturating_add(1),
            Standing::Waiting
            | Standing::Going
            | Standing::Approving
            | Standing::Done
            | Standing::Blocked(_)
            | Standing::Failed(_) => continue,
        };
        let Some((create, target)) = child(facts, &step.step, attempt) else { continue };
        let told = format!("step {} is started on {target}, attempt {attempt}", step.step.name);
        plan = plan.then(create).note(Note::normal(Reason::StepStarted, told));
        report.started(at, facts, attempt);
    }
    report.stands(plan)
}

/// Why a plan cannot be carried out at all.
pub(super) fn unfit(plan: &remediation_request::Plan) -> Option<(Reason, String)> {
    if plan.steps.is_empty() {
        return Some((Reason::ValidationError, "spec.plan.steps: there is none".to_owned()));
    }
    let nodes: Vec<Node<'_>> = plan
        .steps
        .iter()
        .map(|step| Node::new(&step.name, step.depends_on.iter().map(String::as_str)))
        .collect();
    if let Err(problems) = dag::classes(&nodes) {
        return Some((Reason::ValidationError, format!("spec.plan.steps: {problems}")));
    }
    let neither = plan.steps.iter().find(|step| step.workflow.is_none() == step.action.is_none());
    neither.map(|step| {
        let message =
            format!("spec.plan.steps: step {} has either workflow or action, not both or none", step.name);
        (Reason::ValidationError, message)
    })
}

/// The execution of a step, and what it is about. `None` for a step without one.
fn child(facts: &Facts<'_>, step: &PlanStep, attempt: i32) -> Option<(Step, String)> {
    match (&step.workflow, &step.action) {
        (Some(workflow), _) => workflow_child(facts, step, workflow, attempt),
        (None, Some(action)) => Some(action_child(facts, step, action, attempt)),
        (None, None) => None,
    }
}

fn action_child(facts: &Facts<'_>, step: &PlanStep, action: &ActionStep, attempt: i32) -> (Step, String) {
    let me = facts.cx.object;
    let request = &facts.cx.typed.spec;
    let target = definition(action.action).target(&action.parameters).and_then(Result::ok);
    let told = target.map_or_else(|| action.action.to_string(), |target| target.to_string());
    let ActionStep { action, parameters, max_retries, timeout, pre_conditions, post_conditions } = action;
    let mut spec = json!({
        "remediationRequestRef": reference(me), "action": action, "parameters": parameters, "maxRetries": max_retries,
        "preConditions": pre_conditions, "postConditions": post_conditions, "dryRun": request.dry_run,
    });
    if let Some(timeout) = timeout {
        spec["timeout"] = json!(timeout);
    }
    if let Some(requested_by) = &request.requested_by {
        spec["requestedBy"] = json!(requested_by);
    }
    let manifest = json!({
        "metadata": {
            "name": child_name(me.name(), me.uid(), &step.name, attempt),
            "labels": marks(me, &step.name),
        },
        "spec": spec,
    });
    (Step::create_child(me, kubernetes_execution::KIND, manifest), told)
}

/// How a child names the request that it is a step of.
/// The labels of what is done for a step.
fn marks(me: &Object, step: &str) -> serde_json::Value {
    json!({labels::REMEDIATION_REQUEST: names::label_value(me.name()), labels::STEP: names::label_value(step)})
}

fn reference(me: &Object) -> serde_json::Value {
    let kind = me.kind();
    json!({"apiVersion": kind.api_version(), "kind": kind.kind, "namespace": me.namespace(), "name": me.name(),
        "uid": me.uid()})
}

fn workflow_child(
    facts: &Facts<'_>,
    step: &PlanStep,
    workflow: &WorkflowStep,
    attempt: i32,
) -> Option<(Step, String)> {
    let me = facts.cx.object;
    let target = target_of(workflow, facts.target.as_ref().ok());
    let raw = workflow.target_resource.clone().or_else(|| target.as_ref().map(ToString::to_string))?;
    let mut marks = marks(me, &step.name);
    if let Some(target) = &target {
        marks[TARGET_HASH] = json!(target.short_hash());
    }
    let WorkflowStep { workflow_ref, target_resource: _, parameters, engine, execution_config, cooldown } =
        workflow;
    let manifest = json!({
        "metadata": {
            "name": child_name(me.name(), me.uid(), &step.name, attempt),
            "labels": marks,
            "annotations": {pawl::TARGET: raw},
            "finalizers": [finalizers::WORKFLOW_EXECUTION],
        },
        "spec": {
            "remediationRequestRef": reference(me),
            "workflowRef": workflow_ref, "targetResource": raw, "parameters": parameters, "engine": engine,
            "executionConfig": execution_config, "cooldown": cooldown,
        },
    });
    Some((Step::create_child(me, workflow_execution::KIND, manifest), raw))
}

/// What a step works on; `None` when that is malformed, which its execution will say.
fn target_of(workflow: &WorkflowStep, of_request: Option<&Target>) -> Option<Target> {
    match &workflow.target_resource {
        Some(raw) => raw.trim().parse().ok(),
        None => of_request.cloned(),
    }
}

/// The first write: its finalizer, and by what it is found.
fn mark(facts: &Facts<'_>) -> Step {
    let me = facts.cx.object;
    let mut finalizers = me.finalizers().to_vec();
    finalizers.push(finalizers::REMEDIATION_REQUEST.to_owned());
    let mut marks = json!({});
    if let Ok(target) = &facts.target {
        marks[TARGET_HASH] = json!(target.short_hash());
    }
    let signal = facts.cx.typed.spec.signal.as_ref();
    if let Some(signal) = signal.filter(|signal| !signal.fingerprint.is_empty()) {
        marks[labels::FINGERPRINT] = json!(names::label_value(&signal.fingerprint));
    }
    Step::patch_unchanged(me, json!({"metadata": {"finalizers": finalizers, "labels": marks}}))
}

/// Another request with the same fingerprint that goes first: it has begun, or it is earlier, by age and then by UID. Ages
/// are whole seconds, so of two that came in one of them, the UID alone could choose the one that came later.
fn duplicate_of(view: &dyn View, me: &Object, request: &RemediationRequest) -> Option<Arc<Object>> {
    let fingerprint = &request.spec.signal.as_ref()?.fingerprint;
    if fingerprint.is_empty() {
        return None;
    }
    let place = |object: &Object| (object.created_at(), object.uid().to_owned());
    let same =
        view.labelled(&remediation_request::KIND, labels::FINGERPRINT, &names::label_value(fingerprint));
    same.into_iter().find(|other| {
        let beside = other.namespace() == me.namespace() && other.uid() != me.uid() && !other.is_deleting();
        beside
            && other.parse::<RemediationRequest>().is_ok_and(|typed| {
                let theirs = typed.spec.signal.as_ref().map(|signal| &signal.fingerprint);
                let begun = typed.status.as_ref().is_some_and(|status| status.start_time.is_some());
                theirs == Some(fingerprint)
                    && !phase_of(&typed).is_some_and(RemediationPhase::is_terminal)
                    && (begun || place(other) < place(me))
            })
    })
}

fn phase_of(request: &RemediationRequest) -> Option<RemediationPhase> {
    request.status.as_ref().and_then(|status| status.overall_phase)
}

/// Where an object of a name is, in the request's namespace.
fn beside(me: &Object, name: &str) -> Key {
    Key::new(me.namespace(), name)
}
