//! The status of an Installation in the making, and when its next job starts by itself.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::deploy::{ExecutionStatus, InstallationPhase, InstallationStatus, conditions};
use pawl_api::meta::{Duration, NewCondition, Phase, Reason, condition};

use super::Observed;
use crate::deploy::cron::Schedule;
use crate::deploy::job;
use crate::plan::{Note, Plan};

pub(super) struct Report<'a> {
    observed: &'a Observed,
    pub(super) job: String,
    now: Timestamp,
    pub(super) status: InstallationStatus,
}

impl<'a> Report<'a> {
    pub(super) fn of(observed: &'a Observed, job: String, now: Timestamp) -> Self {
        let status = observed.installation.status.clone().unwrap_or_default();
        Self { observed, job, now, status }
    }

    pub(super) fn starts(mut self) -> Plan<InstallationStatus> {
        self.status.job_id = Some(self.job.clone());
        let mut times = job::triggered(self.now);
        times.init_time = Some(Time(self.now));
        self.status.transition_times = Some(times);
        self.status.last_error = None;
        let phase = if self.observed.me.is_deleting() {
            InstallationPhase::InitDelete
        } else {
            InstallationPhase::Init
        };
        let message = format!("job {} has started", self.job);
        self.moves(phase, Reason::JobStarted, message)
    }

    pub(super) fn moves(
        mut self,
        phase: InstallationPhase,
        reason: Reason,
        message: impl Into<String>,
    ) -> Plan<InstallationStatus> {
        let message = message.into();
        let failed = matches!(phase, InstallationPhase::Failed | InstallationPhase::DeleteFailed);
        let condition = if phase == InstallationPhase::Succeeded {
            NewCondition::yes(conditions::SUCCEEDED, reason, &message)
        } else if failed {
            NewCondition::no(conditions::SUCCEEDED, reason, &message)
        } else {
            NewCondition::unknown(conditions::SUCCEEDED, reason, &message)
        };
        condition::set(&mut self.status.conditions, condition, self.observed.me.meta().generation, self.now);
        let note = if failed { Note::warning(reason, &message) } else { Note::normal(reason, &message) };
        let note = note.once(format!("{} {}", self.job, phase.as_str()));
        self.status.phase = Some(phase);
        self.status.phase_transition_time = Some(Time(self.now));
        if phase.is_terminal() {
            self.status.job_id_finished = Some(self.job);
            let mut times = self.status.transition_times.take().unwrap_or_default();
            times.finished_time = Some(Time(self.now));
            self.status.transition_times = Some(times);
        }
        Plan::rest().status(self.status).note(note)
    }

    pub(super) fn fails(
        mut self,
        operation: &str,
        reason: Reason,
        message: impl Into<String>,
    ) -> Plan<InstallationStatus> {
        let message = message.into();
        let error = job::error(operation, reason, &message, self.status.last_error.as_ref(), self.now);
        self.status.last_error = Some(error);
        use InstallationPhase as P;
        let phase = match self.status.phase {
            Some(P::InitDelete | P::TriggerDelete | P::Deleting) => P::DeleteFailed,
            _ => P::Failed,
        };
        self.moves(phase, reason, message)
    }
}

/// Why an Execution did not succeed.
pub(super) fn why(ran: &ExecutionStatus) -> (Reason, String) {
    let message = ran.last_error.as_ref().map(|error| format!("{}: {}", error.reason, error.message));
    let interrupted =
        ran.last_error.as_ref().is_some_and(|error| error.reason == Reason::Interrupted.as_str());
    let reason = if interrupted { Reason::Interrupted } else { Reason::ExecutionFailed };
    (reason, message.unwrap_or_else(|| "the Execution failed and does not say why".to_owned()))
}

/// When the next job starts by itself, and how often a failure will then have been tried again.
pub(super) fn by_itself(
    observed: &Observed,
    status: &InstallationStatus,
) -> Option<(Timestamp, Option<i32>)> {
    let automatic =
        observed.installation.spec.automatic_reconcile.as_ref().filter(|_| !observed.me.is_deleting())?;
    let ended = status.transition_times.as_ref()?.finished_time.as_ref()?.0;
    match status.phase? {
        InstallationPhase::Succeeded => {
            let succeeded = automatic.succeeded_reconcile.as_ref()?;
            Some((due(ended, succeeded.interval, succeeded.cron_spec.as_deref())?, None))
        }
        InstallationPhase::Failed => {
            let failed = automatic.failed_reconcile.as_ref()?;
            let tried = status.automatic_retries.unwrap_or_default();
            if failed.number_of_reconciles.is_some_and(|limit| tried >= limit) {
                return None;
            }
            let due = due(ended, failed.interval, failed.cron_spec.as_deref())?;
            Some((due, Some(tried.saturating_add(1))))
        }
        InstallationPhase::Init
        | InstallationPhase::CleanupOrphaned
        | InstallationPhase::ObjectsCreated
        | InstallationPhase::Progressing
        | InstallationPhase::Completing
        | InstallationPhase::InitDelete
        | InstallationPhase::TriggerDelete
        | InstallationPhase::Deleting
        | InstallationPhase::DeleteFailed => None,
    }
}

/// The earlier of both, where both are given. A schedule that cannot be read is none.
fn due(ended: Timestamp, interval: Option<Duration>, cron: Option<&str>) -> Option<Timestamp> {
    let interval = interval.and_then(|interval| ended.checked_add(interval.get()).ok());
    let cron = cron.and_then(|text| Schedule::parse(text).ok()).and_then(|schedule| schedule.after(ended));
    interval.into_iter().chain(cron).min()
}

/// What is wrong with a schedule, told before it is waited for in vain.
pub(super) fn bad_schedule(observed: &Observed) -> Option<String> {
    let automatic = observed.installation.spec.automatic_reconcile.as_ref()?;
    let succeeded = automatic.succeeded_reconcile.as_ref().and_then(|one| one.cron_spec.as_deref());
    let failed = automatic.failed_reconcile.as_ref().and_then(|one| one.cron_spec.as_deref());
    let bad = |(field, text): (&str, &str)| {
        let problem = Schedule::parse(text).err()?;
        Some(format!("spec.automaticReconcile.{field}.cronSpec: {problem}"))
    };
    let all = [("succeededReconcile", succeeded), ("failedReconcile", failed)];
    all.into_iter().filter_map(|(field, text)| Some((field, text?))).find_map(bad)
}
