//! The status in the making: what people read on the Workflow, as Events and on GitHub says the same.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::git::workflow::{JOB_STATUS, JobRef, TEMPLATE_FOUND};
use pawl_api::git::{WorkflowPhase, WorkflowStatus};
use pawl_api::meta::{Gate, NewCondition, Phase, Reason, condition};
use pawl_api::pawl::conditions::TARGET_LOCKED;

use super::telling::{self, Told};
use super::{Facts, QUIET, later, locking};
use crate::failure::Failure;
use crate::git::check_run;
use crate::git::github::CheckState;
use crate::object::Object;
use crate::plan::{Note, Plan};

/// The status in the making.
pub(super) struct Report<'a> {
    pub(super) facts: &'a Facts<'a>,
    pub(super) status: WorkflowStatus,
}

impl<'a> Report<'a> {
    pub(super) fn of(facts: &'a Facts<'a>) -> Self {
        let mut status = facts.cx.typed.status.clone().unwrap_or_default();
        status.observed_generation = facts.cx.object.meta().generation;
        Self { facts, status }
    }

    pub(super) fn is_over(&self) -> bool {
        self.status.phase.is_some_and(WorkflowPhase::is_terminal)
    }

    pub(super) fn template_found(&mut self) {
        let message = format!("WorkflowTemplate {} is there", self.facts.cx.typed.spec.template);
        self.condition(NewCondition::yes(TEMPLATE_FOUND, Reason::TemplateFound, message));
    }

    pub(super) fn condition(&mut self, new: NewCondition) {
        condition::set(
            &mut self.status.conditions,
            new,
            self.facts.cx.object.meta().generation,
            self.facts.cx.now,
        );
    }

    /// Writes down which Job it is, and what was told of it before it was made.
    pub(super) fn made(&mut self, job: &Object) {
        self.status.job_ref = Some(JobRef { name: job.name().to_owned(), uid: job.uid().to_owned() });
        self.status.target = self.facts.target().map(ToString::to_string).or(self.status.target.take());
        if let Some(id) = telling::check_run_id(self.facts, &self.status)
            && self.status.check_run_id != Some(id)
        {
            self.status.check_run_id = Some(id);
            self.status.check_run_name = Some(telling::name(self.facts, &self.status));
            self.status.check_run_reported.get_or_insert_with(|| "queued".to_owned());
        }
    }

    /// A phase that is not the last.
    pub(super) fn goes_on(
        mut self,
        phase: WorkflowPhase,
        reason: Reason,
        message: impl Into<String>,
    ) -> Plan<WorkflowStatus> {
        self.says(phase, reason, message.into());
        self.told()
    }

    /// The same, where GitHub has nothing to hear of yet.
    pub(super) fn stays(
        mut self,
        phase: WorkflowPhase,
        reason: Reason,
        message: impl Into<String>,
    ) -> Plan<WorkflowStatus> {
        self.says(phase, reason, message.into());
        Plan::rest().status(self.status)
    }

    /// Pending because of others of our own. What passes soon is not worth a write.
    pub(super) fn waits(
        mut self,
        gate: Gate,
        reason: Reason,
        message: impl Into<String>,
    ) -> Plan<WorkflowStatus> {
        let made_at =
            self.facts.cx.object.meta().creation_timestamp.as_ref().map_or(self.facts.cx.now, |time| time.0);
        let quiet_until = later(made_at, QUIET);
        if self.status.phase.is_none() && self.facts.cx.now < quiet_until {
            return Plan::rest().wake_at(quiet_until);
        }
        if reason != Reason::TargetLocked {
            condition::remove(&mut self.status.conditions, TARGET_LOCKED);
        }
        self.status.target = self.facts.target().map(ToString::to_string);
        self.goes_on(WorkflowPhase::Pending, reason, message).gate(gate)
    }

    /// The last word on this run. The locks go with it as soon as nothing runs any more.
    pub(super) fn ends(
        mut self,
        phase: WorkflowPhase,
        reason: Reason,
        message: impl Into<String>,
    ) -> Plan<WorkflowStatus> {
        let message = message.into();
        self.status.completion_time = self.status.completion_time.or(Some(Time(self.facts.cx.now)));
        self.status.start_deadline = None;
        condition::remove(&mut self.status.conditions, TARGET_LOCKED);
        self.says(phase, reason, message.clone());
        let steps = locking::release(self.facts);
        let mut plan = self.told();
        if !plan.asks.is_empty() {
            return plan;
        }
        plan.steps = steps;
        match phase {
            WorkflowPhase::Failed => plan.note(Note::warning(reason, message)),
            WorkflowPhase::Cancelled => plan.note(Note::normal(reason, message)),
            // That all went well, phase and check run say.
            WorkflowPhase::Succeeded | WorkflowPhase::Pending | WorkflowPhase::Running => plan,
        }
    }

    /// GitHub is told first, and then one write says it all; a GitHub that does not answer holds up no phase.
    pub(super) fn told(mut self) -> Plan<WorkflowStatus> {
        let Some(phase) = self.status.phase else { return Plan::rest().status(self.status) };
        let state = check_run::state(phase, telling::reason(&self.status));
        let told = telling::tell(self.facts, &self.status, state);
        match &told {
            Told::Ask(calls) => Plan { asks: calls.clone(), ..Plan::rest() },
            Told::Already | Told::Nobody(_) | Told::Later(_) => Plan::rest().status(self.status),
            Told::Now { .. } => {
                self.remember(&told);
                Plan::rest().status(self.status)
            }
            Told::Never(failure) => self.gives_up(state, failure),
        }
    }

    /// GitHub will not hear it: it is not tried again, and people are told here.
    pub(super) fn gives_up(mut self, state: CheckState, failure: &Failure) -> Plan<WorkflowStatus> {
        self.status.check_run_reported = Some(state.to_string());
        let note = Note::warning(Reason::CheckRunUpdateFailed, failure.to_string());
        Plan::rest().status(self.status).note(note)
    }

    pub(super) fn remember(&mut self, told: &Told) {
        if let Told::Now { id, name, state } = told {
            self.status.check_run_id = id.or(self.status.check_run_id);
            self.status.check_run_name = Some(name.clone());
            self.status.check_run_reported = Some(state.to_string());
        }
    }

    fn says(&mut self, phase: WorkflowPhase, reason: Reason, message: String) {
        let (word, told) = (JOB_STATUS, message.clone());
        self.condition(match phase {
            WorkflowPhase::Pending => NewCondition::unknown(word, Reason::Pending, told),
            WorkflowPhase::Running => NewCondition::unknown(word, Reason::Running, told),
            WorkflowPhase::Succeeded => NewCondition::yes(word, Reason::Succeeded, told),
            WorkflowPhase::Failed => NewCondition::no(word, Reason::Failed, told),
            WorkflowPhase::Cancelled => NewCondition::no(word, Reason::Cancelled, told),
        });
        self.status.phase = Some(phase);
        self.status.reason = Some(reason.into());
        self.status.message = Some(message);
    }
}
