//! The status in the making: what people and parents read on the execution, as Events say the same.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::meta::reference::NamedRef;
use pawl_api::meta::{Gate, GateName, NewCondition, Phase, Reason, condition, text};
use pawl_api::pawl::conditions::TARGET_LOCKED;
use pawl_api::remedy::workflow_execution::{BlockClearance, Outcome, SUCCEEDED, SkipDetails, TIMEOUT_GRACE};
use pawl_api::remedy::{WorkflowExecutionPhase, WorkflowExecutionStatus};

use super::failure_details::{Failure, Setting, took};
use super::run::Run;
use super::{Facts, later, locking};
use crate::plan::{Note, Plan, Step};
use crate::remedy::memory::{Ended, Memory, Unit};

/// What fits `status.message`.
const MAX_MESSAGE_CHARS: usize = 32_768;

/// The status in the making.
pub(super) struct Report<'a> {
    pub(super) facts: &'a Facts<'a>,
    pub(super) now: Timestamp,
    pub(super) status: WorkflowExecutionStatus,
}

impl<'a> Report<'a> {
    pub(super) fn of(facts: &'a Facts<'a>) -> Self {
        let mut status = facts.cx.typed.status.clone().unwrap_or_default();
        status.observed_generation = facts.cx.object.meta().generation;
        Self { facts, now: facts.cx.now, status }
    }

    pub(super) fn is_over(&self) -> bool {
        self.status.phase.is_some_and(WorkflowExecutionPhase::is_terminal)
    }

    /// When the run is stopped. Absolute once it has begun (I8).
    pub(super) fn deadline(&self) -> Timestamp {
        let begun = self.status.start_time.as_ref().map_or(self.now, |at| at.0);
        let otherwise =
            later(later(begun, self.facts.cx.typed.spec.execution_config.timeout.get()), TIMEOUT_GRACE.get());
        self.status.deadline.as_ref().map_or(otherwise, |at| at.0)
    }

    pub(super) fn target_locked(&mut self, message: &str) {
        self.condition(NewCondition::yes(TARGET_LOCKED, Reason::ResourceBusy, message));
    }

    /// Writes down which run it is, and since when.
    pub(super) fn made(&mut self, run: &Run) {
        let object = run.object();
        self.status.pipeline_run_ref = Some(NamedRef {
            name: object.name().to_owned(),
            namespace: object.namespace().map(str::to_owned),
        });
        self.status.pipeline_run_uid = Some(object.uid().to_owned());
        let target = self.facts.targets.as_ref().ok().and_then(|targets| targets.first());
        self.status.target = target.map(ToString::to_string).or(self.status.target.take());
        let begun = run.started_at().unwrap_or(self.now);
        self.status.start_time.get_or_insert(Time(begun));
        self.status.deadline = Some(Time(self.deadline()));
        condition::remove(&mut self.status.conditions, TARGET_LOCKED);
    }

    /// Pending, because of something that somebody must change.
    pub(super) fn waits(mut self, reason: Reason, message: &str) -> Plan<WorkflowExecutionStatus> {
        let gate = Gate::waiting(GateName::Lock, reason, message, "what it says");
        self.says(WorkflowExecutionPhase::Pending, reason, message);
        Plan::rest().status(self.status).gate(gate)
    }

    /// Running; as the run says, where one is given.
    pub(super) fn runs(mut self, run: Option<&Run>) -> Plan<WorkflowExecutionStatus> {
        self.summarizes(run);
        let first = self.status.phase != Some(WorkflowExecutionPhase::Running);
        self.says(WorkflowExecutionPhase::Running, Reason::Running, "the run has begun");
        let mut plan = Plan::rest();
        if first {
            let target = self.status.target.clone().unwrap_or_default();
            let told = format!("runs {} on {target}", self.facts.cx.typed.spec.workflow_ref.workflow_id);
            plan = self.passed(plan).note(Note::normal(Reason::PhaseTransition, told));
        }
        plan.status(self.status)
    }

    pub(super) fn completes(mut self, run: &Run) -> Plan<WorkflowExecutionStatus> {
        let at = run.ended_at().unwrap_or(self.now).min(self.now);
        self.summarizes(Some(run));
        self.status.outcome = Some(Outcome::Success);
        self.status.completion_time = Some(Time(at));
        self.status.duration = self.status.start_time.as_ref().map(|from| took(from.0, at).to_string());
        self.status.consecutive_failures = None;
        self.status.next_allowed_execution = None;
        let spec = &self.facts.cx.typed.spec;
        let message = format!(
            "{} succeeded on {}",
            spec.workflow_ref.workflow_id,
            self.status.target.as_deref().unwrap_or("?")
        );
        self.says(WorkflowExecutionPhase::Completed, Reason::Completed, &message);
        self.ends(Note::normal(Reason::WorkflowCompleted, message))
    }

    pub(super) fn fails(mut self, failure: &Failure) -> Plan<WorkflowExecutionStatus> {
        let spec = &self.facts.cx.typed.spec;
        let ended = self.facts.ours().and_then(|run| run.ended_at());
        let at = ended.unwrap_or(self.now).min(self.now);
        let target = self.status.target.clone().unwrap_or_else(|| spec.target_resource.clone());
        let started_at = self.status.start_time.as_ref().map(|at| at.0);
        let setting = Setting { workflow: &spec.workflow_ref, target: &target, started_at, failed_at: at };
        let timed_out = failure.reason == Reason::Timeout;
        self.status.outcome = Some(if timed_out { Outcome::Timeout } else { Outcome::Failed });
        self.status.completion_time = Some(Time(at));
        self.status.duration = started_at.map(|from| took(from, at).to_string());
        self.status.failure_details = Some(failure.details(setting));
        self.summarizes(self.facts.ours().as_ref());
        self.says(WorkflowExecutionPhase::Failed, failure.reason, &failure.message);
        let message = format!("{}: {}", failure.reason, failure.message);
        self.ends(Note::warning(Reason::WorkflowFailed, message))
    }

    pub(super) fn skips(mut self, reason: Reason, details: SkipDetails) -> Plan<WorkflowExecutionStatus> {
        let message = details.message.clone();
        let at = Time(self.now);
        self.status.completion_time = Some(at.clone());
        self.status.skip_details =
            Some(SkipDetails { reason: reason.into(), skipped_at: Some(at), ..details });
        self.says(WorkflowExecutionPhase::Skipped, reason, &message);
        let target = self.status.target.clone().unwrap_or_default();
        let validated = Gate::passed(GateName::Validate, Reason::Valid, target);
        Plan::rest()
            .status(self.status)
            .gate(validated)
            .note(Note::normal(Reason::WorkflowSkipped, format!("{reason}: {message}")))
    }

    /// The last word. The lock goes with it as soon as nothing can act on the target any more.
    fn ends(mut self, note: Note) -> Plan<WorkflowExecutionStatus> {
        let steps = self.release();
        let memory = if self.facts.locks.held().is_empty() { None } else { self.remembered() };
        if let Some(remembered) = memory.as_ref().and_then(|memory| memory.get(self.workflow_id())) {
            let failures = i32::try_from(remembered.failures).unwrap_or(i32::MAX);
            self.status.consecutive_failures = (failures > 0).then_some(failures);
            self.status.next_allowed_execution = remembered.next_allowed().map(Time);
        }
        let mut plan = Plan { steps, ..Plan::rest() }.note(note);
        if !plan.steps.is_empty() {
            let target = self.status.target.clone().unwrap_or_default();
            plan = plan.note(Note::normal(Reason::LockReleased, format!("{target} is free")));
        }
        if self.status.pipeline_run_uid.is_some() {
            plan = self.passed(plan);
        }
        plan.status(self.status)
    }

    /// Steps that let go of the locks, with what the target remembers then; none while its run may act, or where
    /// nothing is held.
    pub(super) fn release(&self) -> Vec<Step> {
        let facts = self.facts;
        let confirm = facts.run.confirm_ended(&facts.run.reference(), facts.left_behind);
        let Some(confirm) = confirm.filter(|_| !facts.locks.held().is_empty()) else { return Vec::new() };
        confirm.into_iter().chain(locking::release(&facts.locks, self.remembered().as_ref())).collect()
    }

    /// What the target remembers after this end; `None` where it changes nothing.
    pub(super) fn remembered(&self) -> Option<Memory> {
        let spec = &self.facts.cx.typed.spec;
        let ended = match self.status.phase? {
            WorkflowExecutionPhase::Completed => Ended::Well { cooldown: spec.cooldown },
            WorkflowExecutionPhase::Failed => match self.status.failure_details.as_ref() {
                Some(details) if details.was_execution_failure => {
                    Ended::InExecution { reason: &details.reason }
                }
                // Somebody stopped it before it began: that says nothing of the workflow.
                Some(details) if details.reason == Reason::Cancelled.as_str() => return None,
                Some(_) | None => Ended::BeforeExecution,
            },
            WorkflowExecutionPhase::Pending
            | WorkflowExecutionPhase::Running
            | WorkflowExecutionPhase::Skipped => return None,
        };
        // What cannot be read is not overwritten: a person must look.
        let memory = locking::memory(&self.facts.locks).ok()?;
        let me = self.facts.cx.object;
        let unit = Unit { namespace: me.namespace().unwrap_or_default(), name: me.name(), uid: me.uid() };
        let at = self.status.completion_time.as_ref().map_or(self.now, |at| at.0);
        Some(memory.after(self.workflow_id(), unit, ended, at))
    }

    /// Somebody cleared the block that this execution left.
    pub(super) fn cleared(mut self) -> Option<Plan<WorkflowExecutionStatus>> {
        let memory = locking::memory(&self.facts.locks).ok()?;
        let clearance = memory.get(self.workflow_id())?.clearance.as_ref()?;
        if clearance.of.as_deref() != Some(self.facts.cx.object.uid()) {
            return None;
        }
        let told = BlockClearance {
            cleared_by: clearance.by.clone(),
            cleared_at: Some(clearance.at.clone()),
            reason: clearance.reason.clone(),
            used: clearance.used,
        };
        if self.status.block_clearance.as_ref() == Some(&told) {
            return None;
        }
        let first = self.status.block_clearance.is_none();
        let note = Note::normal(Reason::BlockCleared, format!("{}: {}", told.cleared_by, told.reason));
        self.status.block_clearance = Some(told);
        let plan = Plan::rest().status(self.status);
        Some(if first { plan.note(note) } else { plan })
    }

    /// What made the run had passed these gates, whether or not a status that said so was lost.
    fn passed(&self, plan: Plan<WorkflowExecutionStatus>) -> Plan<WorkflowExecutionStatus> {
        let target = self.status.target.clone().unwrap_or_default();
        let id = self.workflow_id();
        let remembered = format!("what {target} remembers of {id}");
        let mut plan = plan;
        plan.gates.extend(self.facts.freezes.standing(self.now).passed());
        plan.gate(Gate::passed(GateName::Validate, Reason::Valid, format!("the spec, and {target}")))
            .gate(Gate::passed(GateName::Cooldown, Reason::CooldownOver, remembered))
            .gate(Gate::passed(GateName::Lock, Reason::LockAcquired, target))
    }

    fn summarizes(&mut self, run: Option<&Run>) {
        self.status.pipeline_run_status =
            run.and_then(Run::summary).or(self.status.pipeline_run_status.take());
    }

    fn workflow_id(&self) -> &'a str {
        &self.facts.cx.typed.spec.workflow_ref.workflow_id
    }

    fn says(&mut self, phase: WorkflowExecutionPhase, reason: Reason, message: &str) {
        self.condition(match phase {
            WorkflowExecutionPhase::Pending | WorkflowExecutionPhase::Running => {
                NewCondition::unknown(SUCCEEDED, reason, message)
            }
            WorkflowExecutionPhase::Completed => NewCondition::yes(SUCCEEDED, reason, message),
            WorkflowExecutionPhase::Failed | WorkflowExecutionPhase::Skipped => {
                NewCondition::no(SUCCEEDED, reason, message)
            }
        });
        self.status.phase = Some(phase);
        self.status.reason = Some(reason.into());
        self.status.message = Some(text::head(message, MAX_MESSAGE_CHARS));
    }

    pub(super) fn condition(&mut self, new: NewCondition) {
        condition::set(&mut self.status.conditions, new, self.facts.cx.object.meta().generation, self.now);
    }
}
