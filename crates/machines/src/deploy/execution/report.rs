//! The status of an Execution in the making.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::deploy::execution::ItemCounts;
use pawl_api::deploy::{ExecutionPhase, ExecutionStatus, conditions};
use pawl_api::meta::{NewCondition, Phase, Reason, condition};

use super::standing::Side;
use super::{Observed, at, whole};
use crate::deploy::graph::Standing;
use crate::deploy::job;
use crate::plan::{Note, Plan, Wake};

/// How often the counts are written while nothing else changes: an Execution may be a megabyte, and each write of it
/// goes to everybody who watches.
const COUNT_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Report<'a> {
    observed: &'a Observed,
    pub(super) job: String,
    pub(super) now: Timestamp,
    pub(super) status: ExecutionStatus,
    counts: Option<ItemCounts>,
}

impl<'a> Report<'a> {
    pub(super) fn of(observed: &'a Observed, job: String, now: Timestamp) -> Self {
        let status = observed.prepared.execution.status.clone().unwrap_or_default();
        Self { observed, job, now, status, counts: None }
    }

    /// How the items fare.
    pub(super) fn count(&mut self, sides: &[&Side<'_>]) {
        let of = |wanted: Standing| {
            whole(sides.iter().flat_map(|side| &side.standing).filter(|one| **one == wanted).count())
        };
        self.counts = Some(ItemCounts {
            total: whole(sides.iter().map(|side| side.len()).sum()),
            succeeded: of(Standing::Done),
            failed: of(Standing::Failed),
            running: of(Standing::Running),
            pending: of(Standing::Waiting),
            count_time: at(self.now),
        });
    }

    /// A job has arrived.
    pub(super) fn starts(mut self) -> Plan<ExecutionStatus> {
        let deleting = self.observed.me.is_deleting();
        self.status.job_id = Some(self.job.clone());
        let mut times = job::triggered(self.now);
        times.init_time = at(self.now);
        self.status.transition_times = Some(times);
        self.status.last_error = None;
        self.status.items = None;
        let (phase, message) = if deleting {
            (ExecutionPhase::InitDelete, format!("job {} takes it down", self.job))
        } else {
            (ExecutionPhase::Init, format!("job {} has started", self.job))
        };
        self.moves(phase, Reason::JobStarted, message)
    }

    /// On to another phase of the same job.
    pub(super) fn moves(
        mut self,
        phase: ExecutionPhase,
        reason: Reason,
        message: impl Into<String>,
    ) -> Plan<ExecutionStatus> {
        let message = message.into();
        let condition = match phase {
            ExecutionPhase::Succeeded => NewCondition::yes(conditions::SUCCEEDED, reason, &message),
            ExecutionPhase::Failed | ExecutionPhase::DeleteFailed => {
                NewCondition::no(conditions::SUCCEEDED, reason, &message)
            }
            ExecutionPhase::Init
            | ExecutionPhase::Progressing
            | ExecutionPhase::Completing
            | ExecutionPhase::InitDelete
            | ExecutionPhase::Deleting => NewCondition::unknown(conditions::SUCCEEDED, reason, &message),
        };
        let failed = matches!(phase, ExecutionPhase::Failed | ExecutionPhase::DeleteFailed);
        let note = if failed { Note::warning(reason, &message) } else { Note::normal(reason, &message) };
        let note = note.once(format!("{} {}", self.job, phase.as_str()));
        condition::set(&mut self.status.conditions, condition, self.observed.me.meta().generation, self.now);
        self.status.phase = Some(phase);
        self.status.phase_transition_time = at(self.now);
        self.status.items = self.counts.take().or(self.status.items);
        if phase.is_terminal() {
            self.status.job_id_finished = Some(self.job);
            let mut times = self.status.transition_times.take().unwrap_or_default();
            times.finished_time = at(self.now);
            self.status.transition_times = Some(times);
        }
        Plan::rest().status(self.status).note(note)
    }

    /// The job is over, and not well.
    pub(super) fn fails(
        mut self,
        operation: &str,
        reason: Reason,
        message: impl Into<String>,
    ) -> Plan<ExecutionStatus> {
        let message = message.into();
        let error = job::error(operation, reason, &message, self.status.last_error.as_ref(), self.now);
        self.status.last_error = Some(error);
        let phase = match self.status.phase {
            Some(ExecutionPhase::InitDelete | ExecutionPhase::Deleting) => ExecutionPhase::DeleteFailed,
            _ => ExecutionPhase::Failed,
        };
        self.moves(phase, reason, message)
    }

    /// Nothing new but, once in a while, the counts.
    pub(super) fn goes_on(mut self, plan: Plan<ExecutionStatus>) -> Plan<ExecutionStatus> {
        let Some(counts) = self.counts.take() else { return plan };
        let before = self.status.items.clone().unwrap_or_default();
        let counted_at = before.count_time.clone();
        if (ItemCounts { count_time: counted_at.clone(), ..counts.clone() }) == before {
            return plan;
        }
        let due = counted_at
            .and_then(|Time(last)| last.checked_add(COUNT_EVERY).ok())
            .filter(|due| *due > self.now);
        if let Some(due) = due {
            return Plan { wake: plan.wake.earliest(Wake::At(due)), ..plan };
        }
        self.status.items = Some(counts);
        plan.status(self.status)
    }
}
