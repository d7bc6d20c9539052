//! How is a job told: its phases, its errors and its end, in the status of whatever runs it?
//!
//! Installations and Executions say the same things in the same fields. A phase and the end of the job that it means are
//! one write; each phase is told once per job as an Event, and as the condition `Succeeded`.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::deploy::{
    DeployItemPhase, ExecutionPhase, ExecutionStatus, InstallationPhase, InstallationStatus, LastError,
    TransitionTimes, conditions,
};
use pawl_api::meta::{Condition, NewCondition, Phase, Reason, condition};

use super::job;
use crate::object::Object;
use crate::plan::{Note, Plan};

/// A status that tells of jobs.
pub(super) trait JobStatus: Clone {
    type Phase: JobPhase;

    fn fields(&mut self) -> Fields<'_, Self::Phase>;

    /// Forgets what was true of the last job alone.
    fn forget_last_job(&mut self);
}

/// What all such statuses have.
pub(super) struct Fields<'a, P> {
    phase: &'a mut Option<P>,
    job_id: &'a mut Option<String>,
    job_id_finished: &'a mut Option<String>,
    last_error: &'a mut Option<LastError>,
    conditions: &'a mut Vec<Condition>,
    phase_transition_time: &'a mut Option<Time>,
    transition_times: &'a mut Option<TransitionTimes>,
}

/// What a phase means for its job.
pub(crate) trait JobPhase: Phase {
    /// Where a job begins that builds up.
    const INIT: Self;
    /// Where a job begins that takes down.
    const INIT_DELETE: Self;
    const FAILED: Self;
    const DELETE_FAILED: Self;

    fn meaning(self) -> Meaning;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// It builds up.
    Builds,
    /// It builds up, and others do the work.
    BuildsAndWaits,
    Succeeded,
    Failed,
    /// It takes down.
    Removes,
    /// It takes down, and others do the work.
    RemovesAndWaits,
    DeleteFailed,
}

impl Meaning {
    pub(crate) fn removes(self) -> bool {
        matches!(self, Self::Removes | Self::RemovesAndWaits | Self::DeleteFailed)
    }
}

impl JobPhase for ExecutionPhase {
    const INIT: Self = Self::Init;
    const INIT_DELETE: Self = Self::InitDelete;
    const FAILED: Self = Self::Failed;
    const DELETE_FAILED: Self = Self::DeleteFailed;

    fn meaning(self) -> Meaning {
        match self {
            Self::Init | Self::Completing => Meaning::Builds,
            Self::Progressing => Meaning::BuildsAndWaits,
            Self::Succeeded => Meaning::Succeeded,
            Self::Failed => Meaning::Failed,
            Self::InitDelete => Meaning::Removes,
            Self::Deleting => Meaning::RemovesAndWaits,
            Self::DeleteFailed => Meaning::DeleteFailed,
        }
    }
}

impl JobPhase for InstallationPhase {
    const INIT: Self = Self::Init;
    const INIT_DELETE: Self = Self::InitDelete;
    const FAILED: Self = Self::Failed;
    const DELETE_FAILED: Self = Self::DeleteFailed;

    fn meaning(self) -> Meaning {
        match self {
            Self::Init | Self::CleanupOrphaned | Self::ObjectsCreated | Self::Completing => Meaning::Builds,
            Self::Progressing => Meaning::BuildsAndWaits,
            Self::Succeeded => Meaning::Succeeded,
            Self::Failed => Meaning::Failed,
            Self::InitDelete | Self::TriggerDelete => Meaning::Removes,
            Self::Deleting => Meaning::RemovesAndWaits,
            Self::DeleteFailed => Meaning::DeleteFailed,
        }
    }
}

impl JobPhase for DeployItemPhase {
    const INIT: Self = Self::Init;
    const INIT_DELETE: Self = Self::InitDelete;
    const FAILED: Self = Self::Failed;
    const DELETE_FAILED: Self = Self::DeleteFailed;

    fn meaning(self) -> Meaning {
        match self {
            Self::Init => Meaning::Builds,
            Self::Progressing => Meaning::BuildsAndWaits,
            Self::Succeeded => Meaning::Succeeded,
            Self::Failed => Meaning::Failed,
            Self::InitDelete => Meaning::Removes,
            Self::Deleting => Meaning::RemovesAndWaits,
            Self::DeleteFailed => Meaning::DeleteFailed,
        }
    }
}

macro_rules! fields {
    ($status:ident) => {
        Fields {
            phase: &mut $status.phase,
            job_id: &mut $status.job_id,
            job_id_finished: &mut $status.job_id_finished,
            last_error: &mut $status.last_error,
            conditions: &mut $status.conditions,
            phase_transition_time: &mut $status.phase_transition_time,
            transition_times: &mut $status.transition_times,
        }
    };
}

impl JobStatus for ExecutionStatus {
    type Phase = ExecutionPhase;

    fn fields(&mut self) -> Fields<'_, ExecutionPhase> {
        fields!(self)
    }

    fn forget_last_job(&mut self) {
        self.items = None;
    }
}

impl JobStatus for InstallationStatus {
    type Phase = InstallationPhase;

    fn fields(&mut self) -> Fields<'_, InstallationPhase> {
        fields!(self)
    }

    fn forget_last_job(&mut self) {
        self.automatic_retries = None;
    }
}

/// A status in the making.
pub(super) struct Report<'a, S> {
    me: &'a Object,
    pub(super) job: String,
    pub(super) now: Timestamp,
    pub(super) status: S,
}

impl<'a, S: JobStatus> Report<'a, S> {
    pub(super) fn of(me: &'a Object, status: S, job: String, now: Timestamp) -> Self {
        Self { me, job, now, status }
    }

    /// A job has arrived.
    pub(super) fn starts(mut self) -> Plan<S> {
        self.status.forget_last_job();
        let (now, deleting) = (self.now, self.me.is_deleting());
        let fields = self.status.fields();
        *fields.job_id = Some(self.job.clone());
        *fields.transition_times =
            Some(TransitionTimes { init_time: Some(Time(now)), ..job::triggered(now) });
        *fields.last_error = None;
        if deleting {
            let message = format!("job {} takes it down", self.job);
            self.moves(S::Phase::INIT_DELETE, Reason::JobStarted, message)
        } else {
            let message = format!("job {} has started", self.job);
            self.moves(S::Phase::INIT, Reason::JobStarted, message)
        }
    }

    /// On to another phase of the same job.
    pub(super) fn moves(mut self, phase: S::Phase, reason: Reason, message: impl Into<String>) -> Plan<S> {
        let (message, now) = (message.into(), self.now);
        let (condition, failed) = match phase.meaning() {
            Meaning::Succeeded => (NewCondition::yes(conditions::SUCCEEDED, reason, &message), false),
            Meaning::Failed | Meaning::DeleteFailed => {
                (NewCondition::no(conditions::SUCCEEDED, reason, &message), true)
            }
            Meaning::Builds | Meaning::BuildsAndWaits | Meaning::Removes | Meaning::RemovesAndWaits => {
                (NewCondition::unknown(conditions::SUCCEEDED, reason, &message), false)
            }
        };
        let note = if failed { Note::warning(reason, &message) } else { Note::normal(reason, &message) };
        let note = note.once(format!("{} {}", self.job, phase.as_str()));
        let fields = self.status.fields();
        condition::set(fields.conditions, condition, self.me.meta().generation, now);
        *fields.phase = Some(phase);
        *fields.phase_transition_time = Some(Time(now));
        let times = fields.transition_times.get_or_insert_default();
        if matches!(phase.meaning(), Meaning::BuildsAndWaits | Meaning::RemovesAndWaits) {
            times.wait_time = Some(Time(now));
        }
        if phase.is_terminal() {
            *fields.job_id_finished = Some(self.job);
            times.finished_time = Some(Time(now));
        }
        Plan::rest().status(self.status).note(note)
    }

    /// The job is over, and not well.
    pub(super) fn fails(mut self, operation: &str, reason: Reason, message: impl Into<String>) -> Plan<S> {
        let message = message.into();
        let fields = self.status.fields();
        let error = job::error(operation, reason, &message, fields.last_error.as_ref(), self.now);
        *fields.last_error = Some(error);
        let removes = fields.phase.is_some_and(|phase| phase.meaning().removes());
        let phase = if removes { S::Phase::DELETE_FAILED } else { S::Phase::FAILED };
        self.moves(phase, reason, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pawl_api::deploy::execution::KIND;
    use serde_json::json;

    fn report(object: &Object, status: ExecutionStatus) -> Report<'_, ExecutionStatus> {
        Report::of(object, status, "j".to_owned(), Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_phase_and_the_end_of_its_job_are_one_write() {
        let object = Object::new(KIND, json!({"metadata": {"name": "e", "generation": 3}})).unwrap();
        let started = report(&object, ExecutionStatus::default()).starts().status.unwrap();
        assert_eq!((started.phase, started.job_id_finished.clone()), (Some(ExecutionPhase::Init), None));
        let waits =
            report(&object, started).moves(ExecutionPhase::Progressing, Reason::Progressing, "3 items");
        let waits = waits.status.unwrap();
        assert!(waits.transition_times.as_ref().unwrap().wait_time.is_some());
        let failed = report(&object, waits).fails("Progressing", Reason::Stuck, "nothing moves");
        assert_eq!(failed.notes[0].reason, "Stuck");
        let failed = failed.status.unwrap();
        assert_eq!(failed.phase, Some(ExecutionPhase::Failed));
        assert_eq!(failed.job_id_finished.as_deref(), Some("j"));
        assert_eq!(failed.conditions[0].status, "False");
        assert!(failed.transition_times.unwrap().finished_time.is_some());
    }

    #[test]
    fn what_takes_down_fails_otherwise_than_what_builds_up() {
        let object = Object::new(KIND, json!({"metadata": {"name": "e"}})).unwrap();
        let status = ExecutionStatus { phase: Some(ExecutionPhase::Deleting), ..Default::default() };
        let failed = report(&object, status).fails("Deleting", Reason::DeleteFailed, "it stays");
        assert_eq!(failed.status.unwrap().phase, Some(ExecutionPhase::DeleteFailed));
    }
}
