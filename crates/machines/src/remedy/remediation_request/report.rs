//! The status in the making: what people read on the request, as Events say the same.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::meta::reference::ObjectRef;
use pawl_api::meta::{NewCondition, Phase, Reason, condition, text};
use pawl_api::remedy::remediation_request::{
    NOT_STARTED, ROLLBACK_AVAILABLE, RollbackStrategy, SUCCEEDED, Step as PlanStep, StepStatus, child_name,
};
use pawl_api::remedy::{
    KubernetesExecutionPhase, RemediationPhase, RemediationRequestStatus, WorkflowExecutionPhase,
    kubernetes_execution,
};

use super::rollback::{self, Course};
use super::steps::{Child, Failed, Standing, Stepped, Typed, kind_of};
use super::{Facts, beside, later};
use crate::object::Reference;
use crate::plan::{Note, Plan, Step};
use crate::remedy::action::definition;

/// What fits `status.message`.
const MAX_MESSAGE_CHARS: usize = 32_768;

/// The status in the making.
pub(super) struct Report<'a> {
    pub(super) facts: &'a Facts<'a>,
    pub(super) now: Timestamp,
    pub(super) status: RemediationRequestStatus,
}

impl<'a> Report<'a> {
    pub(super) fn of(facts: &'a Facts<'a>) -> Self {
        let mut status = facts.cx.typed.status.clone().unwrap_or_default();
        status.observed_generation = facts.cx.object.meta().generation;
        let over = status.overall_phase.is_some_and(RemediationPhase::is_terminal);
        let before = std::mem::take(&mut status.steps);
        let steps = facts.steps.iter().filter_map(|step| {
            let known = before.iter().find(|known| known.name == step.step.name);
            // What was cancelled ends after the request did: that is told still. Nothing else is told anew.
            let offered = KubernetesExecutionPhase::RollbackReady.as_str();
            let settled = step.child.is_none()
                || known.is_some_and(|known| known.completed_at.is_some() && known.phase != offered);
            if over && settled { known.cloned() } else { Some(told(facts, step, &before)) }
        });
        status.steps = steps.collect();
        Self { facts, now: facts.cx.now, status }
    }

    pub(super) fn is_over(&self) -> bool {
        self.status.overall_phase.is_some_and(RemediationPhase::is_terminal)
    }

    /// Sets when it began and when it is given up, once.
    pub(super) fn begins(&mut self) {
        let begun = self.status.start_time.get_or_insert(Time(self.now)).0;
        let limit = self.facts.cx.typed.spec.timeouts.global;
        self.status.deadline.get_or_insert(Time(later(begun, limit.get())));
    }

    /// What should be over by now, and since when.
    pub(super) fn overdue(&self) -> Option<(String, Timestamp)> {
        let whole = self.status.deadline.as_ref().map(|at| ("the request".to_owned(), at.0));
        let going = self.facts.steps.iter().zip(&self.status.steps);
        let steps = going.filter(|(step, _)| step.is_going()).filter_map(|(step, status)| {
            status.deadline.as_ref().map(|at| (format!("step {}", step.step.name), at.0))
        });
        whole.into_iter().chain(steps).find(|(_, at)| *at <= self.now)
    }

    /// A step's execution is made in this plan.
    pub(super) fn started(&mut self, at: usize, facts: &Facts<'_>, attempt: i32) {
        let Some(step) = facts.steps.iter().nth(at) else { return };
        let limit = later(self.now, patience(facts, &step.step));
        let me = facts.cx.object;
        let Some(status) = self.status.steps.get_mut(at) else { return };
        let child = child_name(me.name(), me.uid(), &status.name, attempt);
        let phase = if step.step.action.is_some() {
            KubernetesExecutionPhase::Validating.as_str()
        } else {
            WorkflowExecutionPhase::Pending.as_str()
        };
        *status = StepStatus {
            name: status.name.clone(),
            child_ref: Some(ObjectRef::new(&kind_of(&step.step), me.namespace(), &child)),
            phase: phase.to_owned(),
            attempt,
            started_at: Some(Time(self.now)),
            deadline: Some(Time(limit)),
            ..StepStatus::default()
        };
    }

    /// Where the request is, given where its steps are and what is started now.
    pub(super) fn stands(
        mut self,
        mut plan: Plan<RemediationRequestStatus>,
    ) -> Plan<RemediationRequestStatus> {
        let facts = self.facts;
        let starting = !plan.steps.is_empty();
        let any = |wanted: fn(&Standing) -> bool| facts.steps.iter().any(|step| wanted(&step.standing));
        let approving = any(|standing| *standing == Standing::Approving);
        let verifying =
            !starting && facts.steps.iter().all(|one| one.standing == Standing::Done || one.is_verifying());
        let going = starting || approving || any(|standing| *standing == Standing::Going);
        let failed = facts.steps.iter().find_map(|step| Some((step, step.failed()?)));
        if let Some((step, Failed { reason, message, review })) = failed.filter(|_| !going) {
            let told = format!("step {}: {reason}: {message}", step.step.name);
            let gone = confirm_gone(facts, step);
            let mut plan = self.takes_back(&told, *review);
            plan.steps.splice(0..0, gone);
            return plan;
        }
        if facts.steps.iter().all(|step| step.standing == Standing::Done) {
            return self.completes();
        }
        let blocked = facts.steps.iter().filter_map(|step| {
            let (blocked, until) = (step.blocked()?, step.retried_at()?);
            Some((until, blocked.reason.clone(), format!("step {}: {}", step.step.name, blocked.message)))
        });
        let next = blocked.min();
        self.status.block_reason = None;
        self.status.blocked_until = None;
        for deadline in self.deadlines() {
            plan = plan.wake_at(deadline);
        }
        if let Some((until, ..)) = &next {
            plan = plan.wake_at(*until);
        }
        match next.filter(|_| !going) {
            Some((until, reason, message)) => {
                self.status.block_reason = Some(reason.clone());
                self.status.blocked_until = Some(Time(until));
                let first = self.status.overall_phase != Some(RemediationPhase::Blocked);
                self.says(RemediationPhase::Blocked, Reason::StepBlocked, &message);
                if first {
                    plan = plan.note(Note::normal(Reason::StepBlocked, format!("{reason}: {message}")));
                }
                plan.status(self.status)
            }
            None => {
                if self.status.overall_phase.is_none() {
                    let target = self.status.target.clone().unwrap_or_default();
                    plan = plan.note(Note::normal(Reason::RemediationCreated, format!("mends {target}")));
                }
                let done = facts.steps.iter().filter(|step| step.standing == Standing::Done).count();
                let message = format!("{done} of {} steps are done", facts.steps.iter().count());
                // The first word is that it executes; a step that waits for people has been started.
                if approving && self.status.overall_phase.is_some() {
                    let waiting: Vec<String> = facts
                        .steps
                        .iter()
                        .filter(|step| step.standing == Standing::Approving)
                        .filter_map(|step| Some(format!("ke/{}", step.child.as_ref()?.object.name())))
                        .collect();
                    let message = format!("{message}; waits for approval of {}", waiting.join(", "));
                    self.says(RemediationPhase::AwaitingApproval, Reason::ApprovalRequired, &message);
                } else if verifying && self.status.overall_phase.is_some() {
                    let message = format!("{message}; the postconditions of the others are awaited");
                    self.says(RemediationPhase::Verifying, Reason::Progressing, &message);
                } else {
                    self.says(RemediationPhase::Executing, Reason::Progressing, &message);
                }
                plan.status(self.status)
            }
        }
    }

    fn completes(mut self) -> Plan<RemediationRequestStatus> {
        if self.facts.cx.typed.spec.dry_run {
            return self.dry_run();
        }
        self.status.outcome = Some("Success".to_owned());
        let target = self.status.target.clone().unwrap_or_default();
        let message = format!("all steps on {target} are done");
        let finalize = rollback::finalize(self.facts);
        let mut plan = self
            .ends(RemediationPhase::Completed, Reason::Completed, &message)
            .note(Note::normal(Reason::RemediationCompleted, message));
        plan.steps = finalize;
        plan
    }

    /// A step failed and nothing runs: what was done is taken back first, where that is asked for.
    fn takes_back(mut self, why: &str, review: bool) -> Plan<RemediationRequestStatus> {
        // Also what was made in a look whose last word was lost is told of.
        for rollback in &self.facts.rollbacks {
            if let Some(object) = rollback.object() {
                self.rolls_back(&rollback.step, object.name());
            }
        }
        match rollback::course(self.facts) {
            Course::Over => {
                let undone: Vec<&str> = self
                    .facts
                    .rollbacks
                    .iter()
                    .filter(|rollback| rollback.is_begun())
                    .map(|rollback| rollback.step.as_str())
                    .collect();
                // What was taken back as a whole needs nobody's look.
                self.status.requires_manual_review |= review && undone.is_empty();
                let told = if undone.is_empty() {
                    String::new()
                } else {
                    format!("; taken back: {}", undone.join(", "))
                };
                self.fails(Reason::StepFailed, &format!("{why}{told}"))
            }
            Course::Stuck(problem) => {
                self.status.requires_manual_review = true;
                let message = format!("{why}; {problem}");
                self.fails(Reason::RollbackFailed, &message)
                    .note(Note::warning(Reason::RollbackFailed, problem))
            }
            Course::Next { create, step, name } => {
                self.rolls_back(&step, &name);
                self.says(
                    RemediationPhase::Executing,
                    Reason::RollbackStarted,
                    &format!("{why}; step {step} is taken back"),
                );
                Plan::step(*create).note(rollback::note(&step)).status(self.status)
            }
            Course::Going { approving } => {
                let (phase, reason) = if approving {
                    (RemediationPhase::AwaitingApproval, Reason::ApprovalRequired)
                } else {
                    (RemediationPhase::Executing, Reason::RollbackStarted)
                };
                self.says(phase, reason, &format!("{why}; what was done is being taken back"));
                Plan::rest().status(self.status)
            }
        }
    }

    fn rolls_back(&mut self, step: &str, name: &str) {
        if let Some(status) = self.status.steps.iter_mut().find(|status| status.name == step) {
            let namespace = self.facts.cx.object.namespace();
            status.rollback_ref = Some(ObjectRef::new(&kubernetes_execution::KIND, namespace, name));
        }
    }

    pub(super) fn dry_run(mut self) -> Plan<RemediationRequestStatus> {
        self.begins();
        self.status.outcome = Some(Reason::DryRun.into());
        let steps: Vec<String> = self.facts.cx.typed.spec.plan.steps.iter().map(would_run).collect();
        let message = format!("nothing was done; it would run: {}", steps.join("; "));
        self.ends(RemediationPhase::Completed, Reason::DryRun, &message)
            .note(Note::normal(Reason::RemediationCompleted, message))
    }

    pub(super) fn skips(mut self, reason: Reason, message: &str) -> Plan<RemediationRequestStatus> {
        self.status.outcome = Some(reason.into());
        self.ends(RemediationPhase::Skipped, reason, message).note(Note::normal(reason, message))
    }

    pub(super) fn fails(mut self, reason: Reason, message: &str) -> Plan<RemediationRequestStatus> {
        self.status.outcome = Some("Failed".to_owned());
        let mut message = message.to_owned();
        let done: Vec<&str> = self
            .facts
            .steps
            .iter()
            .filter(|step| step.standing == Standing::Done && step.step.workflow.is_some())
            .map(|step| step.step.name.as_str())
            .collect();
        let mut plan = Plan::rest();
        if self.facts.cx.typed.spec.rollback_strategy == RollbackStrategy::Automatic && !done.is_empty() {
            // What a workflow did only another workflow can undo, and nobody said which.
            let told = format!("a workflow has no undo: what {} did stays done", done.join(", "));
            plan = plan.note(Note::warning(Reason::NothingToRollBack, told.clone()));
            message = format!("{message}; {told}");
            self.status.requires_manual_review = true;
        }
        plan.notes.extend(self.offers_rollback());
        plan = plan.note(Note::warning(Reason::RemediationFailed, message.clone()));
        if self.status.requires_manual_review {
            plan = plan.note(Note::warning(Reason::EscalatedToManualReview, message.clone()));
        }
        let ended = self.ends(RemediationPhase::Failed, reason, &message);
        Plan { status: ended.status, wake: ended.wake, ..plan }
    }

    /// With `rollbackStrategy: manual` a person decides what is taken back: the condition says which executions offer it,
    /// and how it is started. The Event is for the time when it is said first.
    pub(super) fn offers_rollback(&mut self) -> Option<Note> {
        if self.status.overall_phase == Some(RemediationPhase::Completed) {
            return None;
        }
        let said = condition::get(&self.status.conditions, ROLLBACK_AVAILABLE).is_some();
        let namespace = self.facts.cx.object.namespace().unwrap_or_default();
        let commands: Vec<String> =
            self.facts.offers.iter().map(|name| format!("pawl rollback -n {namespace} ke/{name}")).collect();
        self.status.requires_manual_review |= !commands.is_empty();
        let message = format!(
            "rollbackStrategy is manual: to roll back, run these commands, newest step first: {}",
            commands.join("; ")
        );
        let new = match (commands.is_empty(), said) {
            (true, false) => return None,
            (true, true) => {
                NewCondition::no(ROLLBACK_AVAILABLE, Reason::NothingToRollBack, "no step offers a rollback")
            }
            (false, _) => NewCondition::yes(ROLLBACK_AVAILABLE, Reason::RollbackPrepared, message.clone()),
        };
        condition::set(&mut self.status.conditions, new, self.facts.cx.object.meta().generation, self.now);
        (!said).then(|| Note::normal(Reason::RollbackPrepared, message))
    }

    /// The last word.
    pub(super) fn ends(
        mut self,
        phase: RemediationPhase,
        reason: Reason,
        message: &str,
    ) -> Plan<RemediationRequestStatus> {
        self.status.completion_time = Some(Time(self.now));
        self.status.block_reason = None;
        self.status.blocked_until = None;
        self.says(phase, reason, message);
        let kept = later(self.now, self.facts.cx.typed.spec.retention.get());
        Plan::rest().status(self.status).wake_at(kept)
    }

    fn deadlines(&self) -> impl Iterator<Item = Timestamp> + use<> {
        let steps = self.status.steps.iter().zip(self.facts.steps.iter());
        let going = steps.filter(|(status, step)| step.is_going() || status.attempt > step.attempt);
        let all: Vec<Timestamp> = going
            .filter_map(|(status, _)| status.deadline.as_ref())
            .chain(&self.status.deadline)
            .map(|at| at.0)
            .collect();
        all.into_iter()
    }

    fn says(&mut self, phase: RemediationPhase, reason: Reason, message: &str) {
        let new = match phase {
            RemediationPhase::Completed => NewCondition::yes(SUCCEEDED, reason, message),
            RemediationPhase::Failed
            | RemediationPhase::TimedOut
            | RemediationPhase::Skipped
            | RemediationPhase::Cancelled => NewCondition::no(SUCCEEDED, reason, message),
            RemediationPhase::Pending
            | RemediationPhase::Executing
            | RemediationPhase::AwaitingApproval
            | RemediationPhase::Blocked
            | RemediationPhase::Verifying => NewCondition::unknown(SUCCEEDED, reason, message),
        };
        condition::set(&mut self.status.conditions, new, self.facts.cx.object.meta().generation, self.now);
        self.status.overall_phase = Some(phase);
        self.status.reason = Some(reason.into());
        self.status.message = Some(text::head(message, MAX_MESSAGE_CHARS));
    }
}

/// An execution that this cache has not seen is no failure: the server is asked before that is believed.
fn confirm_gone(facts: &Facts<'_>, step: &Stepped) -> Option<Step> {
    let me = facts.cx.object;
    let name = child_name(me.name(), me.uid(), &step.step.name, step.attempt);
    let gone = Reference { kind: kind_of(&step.step), key: beside(me, &name), uid: String::new() };
    step.child.is_none().then_some(Step::confirm_gone(gone))
}

/// One step as its execution shows it; what is known only here stays as it was.
fn told(facts: &Facts<'_>, step: &Stepped, before: &[StepStatus]) -> StepStatus {
    let known = before.iter().find(|known| known.name == step.step.name && known.attempt == step.attempt);
    let mut status = known.cloned().unwrap_or_else(|| StepStatus {
        name: step.step.name.clone(),
        attempt: step.attempt,
        ..StepStatus::default()
    });
    let Some(Child { object, typed }) = &step.child else {
        let phase = if let Some(failed) = step.failed() {
            status.reason.clone_from(&failed.reason);
            "Gone"
        } else {
            NOT_STARTED
        };
        return StepStatus { phase: phase.to_owned(), ..status };
    };
    status.child_ref = Some(object.object_ref());
    let (phase, reason, completed_at) = match typed {
        Typed::Workflow(child) => {
            let child = child.status.clone().unwrap_or_default();
            let phase = child.phase.unwrap_or(WorkflowExecutionPhase::Pending).as_str();
            (phase, child.reason, child.completion_time)
        }
        Typed::Action(child) => {
            let child = child.status.clone().unwrap_or_default();
            let phase = child.phase.unwrap_or(KubernetesExecutionPhase::Validating).as_str();
            (phase, child.reason, child.completion_time)
        }
        Typed::Malformed => ("Malformed", None, None),
    };
    status.phase = phase.to_owned();
    status.reason = reason.unwrap_or_default();
    status.completed_at = completed_at;
    let made = object.created_at();
    if let (None, Some(made)) = (&status.started_at, made) {
        status.started_at = Some(Time(made));
        status.deadline = Some(Time(later(made, patience(facts, &step.step))));
    }
    status
}

/// How long a step may take. What people are asked about may wait for them first.
fn patience(facts: &Facts<'_>, step: &PlanStep) -> std::time::Duration {
    let timeouts = &facts.cx.typed.spec.timeouts;
    let approval = if step.action.is_some() { timeouts.approval.get() } else { std::time::Duration::ZERO };
    timeouts.executing.get().saturating_add(approval)
}

fn would_run(step: &PlanStep) -> String {
    match (&step.workflow, &step.action) {
        (Some(workflow), _) => format!("{}: workflow {}", step.name, workflow.workflow_ref.workflow_id),
        (None, Some(action)) => {
            let target = definition(action.action).target(&action.parameters).and_then(Result::ok);
            let on = target.map(|target| format!(" on {target}")).unwrap_or_default();
            format!("{}: {}{on}", step.name, action.action)
        }
        (None, None) => format!("{}: nothing", step.name),
    }
}
