//! The status of a Workflow while it is decided on, and the plan that writes it, its Events and its check.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::git::workflow::{JOB_STATUS, JobRef, TEMPLATE_FOUND};
use pawl_api::git::{WorkflowPhase, WorkflowStatus};
use pawl_api::meta::{NewCondition, Phase, Reason, condition};
use pawl_api::pawl::conditions::TARGET_LOCKED;

use super::Facts;
use crate::failure::Failure;
use crate::git::check_run::workflow::{self as check, CheckReport};
use crate::git::schedule::Blocked;
use crate::object::Object;
use crate::plan::{Note, Plan};
use crate::time::later;

/// How long a new Workflow waits for others before its status says so: most waits are shorter, and each status is a write
/// here and a call to GitHub.
pub(super) const QUIET: Duration = Duration::from_secs(10);

/// The status that a reconcile builds up.
pub(super) struct Report<'a> {
    pub(super) facts: &'a Facts<'a>,
    pub(super) status: WorkflowStatus,
}

impl<'a> Report<'a> {
    pub(super) fn new(facts: &'a Facts<'a>) -> Self {
        let mut status = facts.cx.typed.status.clone().unwrap_or_default();
        status.observed_generation = facts.cx.object.meta().generation;
        Self { facts, status }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.status.phase.is_some_and(WorkflowPhase::is_terminal)
    }

    pub(super) fn template_found(&mut self) {
        let message = format!("WorkflowTemplate {} is there", self.facts.cx.typed.spec.template);
        self.condition(NewCondition::yes(TEMPLATE_FOUND, Reason::TemplateFound, message));
    }

    pub(super) fn condition(&mut self, new: NewCondition) {
        let generation = self.facts.cx.object.meta().generation;
        condition::set(&mut self.status.conditions, new, generation, self.facts.cx.now);
    }

    /// Records the Job, and the check run that was created before it.
    pub(super) fn record_job(&mut self, job: &Object) {
        self.status.job_ref = Some(JobRef { name: job.name().to_owned(), uid: job.uid().to_owned() });
        self.status.target = self.facts.target().map(ToString::to_string).or(self.status.target.take());
        let check = self.facts.check();
        if let Some(id) = check.id(&self.status)
            && self.status.check_run_id != Some(id)
        {
            self.status.check_run_id = Some(id);
            self.status.check_run_name = Some(check.name(&self.status));
            self.status.check_run_reported.get_or_insert_with(|| "queued".to_owned());
        }
    }

    /// A phase that is not the last, in the status and on GitHub.
    pub(super) fn goes_on(
        mut self,
        phase: WorkflowPhase,
        reason: Reason,
        message: impl Into<String>,
    ) -> Plan<WorkflowStatus> {
        self.set_phase(phase, reason, message.into());
        self.reported()
    }

    /// Pending, in the status alone.
    pub(super) fn pending(mut self, reason: Reason, message: impl Into<String>) -> Plan<WorkflowStatus> {
        self.set_phase(WorkflowPhase::Pending, reason, message.into());
        Plan::rest().status(self.status)
    }

    /// Pending because of other Workflows. A short wait is not worth a write.
    pub(super) fn waits(mut self, blocked: Blocked) -> Plan<WorkflowStatus> {
        let Blocked { gate, reason, message } = blocked;
        let now = self.facts.cx.now;
        let created = self.facts.cx.object.meta().creation_timestamp.as_ref().map_or(now, |time| time.0);
        let quiet_until = later(created, QUIET);
        if self.status.phase.is_none() && now < quiet_until {
            return Plan::rest().wake_at(quiet_until);
        }
        if reason != Reason::TargetLocked {
            condition::remove(&mut self.status.conditions, TARGET_LOCKED);
        }
        self.status.target = self.facts.target().map(ToString::to_string);
        self.goes_on(WorkflowPhase::Pending, reason, message).gate(gate)
    }

    /// The last phase. Releases the locks as soon as nothing runs any more.
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
        self.set_phase(phase, reason, message.clone());
        let steps = self.facts.release_locks();
        let mut plan = self.reported();
        if !plan.asks.is_empty() {
            return plan;
        }
        plan.steps = steps;
        match phase {
            WorkflowPhase::Failed => plan.note(Note::warning(reason, message)),
            WorkflowPhase::Cancelled => plan.note(Note::normal(reason, message)),
            // Phase and check run say that it succeeded.
            WorkflowPhase::Succeeded | WorkflowPhase::Pending | WorkflowPhase::Running => plan,
        }
    }

    /// Reports to GitHub first, and then writes the status once. A GitHub that does not answer delays no phase.
    pub(super) fn reported(mut self) -> Plan<WorkflowStatus> {
        match self.facts.check().report(&mut self.status) {
            CheckReport::Calls(calls) => Plan { asks: calls, ..Plan::rest() },
            CheckReport::Refused(failure) => self.gives_up(&failure),
            CheckReport::Unchanged
            | CheckReport::Reported
            | CheckReport::NoAccount(_)
            | CheckReport::Unreachable(_)
            | CheckReport::Missing(_) => Plan::rest().status(self.status),
        }
    }

    /// GitHub refuses the report: it is not sent again, and an Event says why.
    pub(super) fn gives_up(mut self, failure: &Failure) -> Plan<WorkflowStatus> {
        self.status.check_run_reported = check::state(&self.status).map(|state| state.to_string());
        let note = Note::warning(Reason::CheckRunUpdateFailed, failure.to_string());
        Plan::rest().status(self.status).note(note)
    }

    fn set_phase(&mut self, phase: WorkflowPhase, reason: Reason, message: String) {
        let text = message.clone();
        self.condition(match phase {
            WorkflowPhase::Pending => NewCondition::unknown(JOB_STATUS, Reason::Pending, text),
            WorkflowPhase::Running => NewCondition::unknown(JOB_STATUS, Reason::Running, text),
            WorkflowPhase::Succeeded => NewCondition::yes(JOB_STATUS, Reason::Succeeded, text),
            WorkflowPhase::Failed => NewCondition::no(JOB_STATUS, Reason::Failed, text),
            WorkflowPhase::Cancelled => NewCondition::no(JOB_STATUS, Reason::Cancelled, text),
        });
        self.status.phase = Some(phase);
        self.status.reason = Some(reason.into());
        self.status.message = Some(message);
    }
}
