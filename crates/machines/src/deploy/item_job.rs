//! How does an item's job begin, go wrong and end, as its status says it? The deployer and the Execution both write it,
//! and both write it here.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::deploy::deploy_item::{DeployerInformation, MAX_LAST_ERRORS};
use pawl_api::deploy::{DeployItemPhase, DeployItemStatus, conditions};
use pawl_api::meta::{NewCondition, Phase, Reason, condition};

use super::job::{self, Jobs};
use crate::object::Object;

/// What a job does with an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Install,
    Remove,
}

impl Flow {
    /// What the job that runs is about. A deletion waits for an installation that is under way.
    pub fn of(object: &Object, phase: Option<DeployItemPhase>) -> Self {
        use DeployItemPhase::{DeleteFailed, Deleting, Failed, Init, InitDelete, Progressing, Succeeded};
        match phase {
            Some(Init | Progressing) => Self::Install,
            Some(InitDelete | Deleting | DeleteFailed) => Self::Remove,
            Some(Succeeded | Failed) | None if object.is_deleting() => Self::Remove,
            Some(Succeeded | Failed) | None => Self::Install,
        }
    }

    pub fn first(self) -> DeployItemPhase {
        match self {
            Self::Install => DeployItemPhase::Init,
            Self::Remove => DeployItemPhase::InitDelete,
        }
    }

    pub fn working(self) -> DeployItemPhase {
        match self {
            Self::Install => DeployItemPhase::Progressing,
            Self::Remove => DeployItemPhase::Deleting,
        }
    }

    pub fn failed(self) -> DeployItemPhase {
        match self {
            Self::Install => DeployItemPhase::Failed,
            Self::Remove => DeployItemPhase::DeleteFailed,
        }
    }
}

/// Whether the job that runs, or the next one, has done nothing yet.
pub fn has_not_begun(status: Option<&DeployItemStatus>) -> bool {
    match status.and_then(|status| status.phase) {
        None
        | Some(
            DeployItemPhase::Init
            | DeployItemPhase::InitDelete
            | DeployItemPhase::Succeeded
            | DeployItemPhase::Failed
            | DeployItemPhase::DeleteFailed,
        ) => true,
        Some(DeployItemPhase::Progressing | DeployItemPhase::Deleting) => false,
    }
}

/// The job that an item runs, if it runs one.
pub fn running(status: Option<&DeployItemStatus>) -> Option<&str> {
    status.and_then(|status| Jobs::of(&status.job_id, &status.job_id_finished).running())
}

/// A deployer has picked the job up.
pub fn pick_up(
    status: &mut DeployItemStatus,
    flow: Flow,
    deployer: &DeployerInformation,
    object: &Object,
    now: Timestamp,
) {
    status.last_reconcile_time = Some(Time(now));
    status.deployer = Some(deployer.clone());
    status.first_error = None;
    status.last_error = None;
    status.last_errors.clear();
    status.retries = None;
    let mut times = status.transition_times.take().unwrap_or_default();
    times.init_time = Some(Time(now));
    (times.wait_time, times.finished_time) = (None, None);
    status.transition_times = Some(times);
    let message = match flow {
        Flow::Install => "it is being deployed",
        Flow::Remove => "it is being taken down",
    };
    status.phase = Some(flow.first());
    says(status, NewCondition::unknown(conditions::SUCCEEDED, Reason::PickedUp, message), object, now);
}

/// Something went wrong; whether it is the end is another question.
pub fn went_wrong(status: &mut DeployItemStatus, reason: Reason, message: &str, now: Timestamp) {
    let operation = status.phase.map_or("Pickup", Phase::as_str);
    let error = job::error(operation, reason, message, status.last_error.as_ref(), now);
    if status.first_error.is_none() {
        status.first_error = Some(error.clone());
    }
    if status.last_errors.len() >= MAX_LAST_ERRORS {
        status.last_errors.remove(0);
    }
    status.last_errors.push(error.clone());
    status.last_error = Some(error);
}

/// It is deployed: phase and end of the job in one write.
pub fn succeeds(
    status: &mut DeployItemStatus,
    reason: Reason,
    message: &str,
    object: &Object,
    now: Timestamp,
) {
    status.last_error = None;
    ends(status, DeployItemPhase::Succeeded, object, now);
    says(status, NewCondition::yes(conditions::SUCCEEDED, reason, message), object, now);
}

/// The job has failed, for good.
pub fn fails(
    status: &mut DeployItemStatus,
    flow: Flow,
    reason: Reason,
    message: &str,
    object: &Object,
    now: Timestamp,
) {
    went_wrong(status, reason, message, now);
    ends(status, flow.failed(), object, now);
    says(status, NewCondition::no(conditions::SUCCEEDED, reason, message), object, now);
}

fn ends(status: &mut DeployItemStatus, phase: DeployItemPhase, object: &Object, now: Timestamp) {
    status.phase = Some(phase);
    status.job_id_finished.clone_from(&status.job_id);
    status.observed_generation = object.meta().generation;
    let mut times = status.transition_times.take().unwrap_or_default();
    times.finished_time = Some(Time(now));
    status.transition_times = Some(times);
}

fn says(status: &mut DeployItemStatus, new: NewCondition, object: &Object, now: Timestamp) {
    condition::set(&mut status.conditions, new, object.meta().generation, now);
}

#[cfg(test)]
mod tests {
    use super::*;
    use pawl_api::deploy::deploy_item::KIND;
    use serde_json::json;

    #[test]
    fn a_job_that_fails_keeps_its_first_and_its_last_five_errors() {
        let object = Object::new(KIND, json!({"metadata": {"name": "i", "generation": 3}})).unwrap();
        let now = Timestamp::UNIX_EPOCH;
        let mut status = DeployItemStatus { job_id: Some("j".to_owned()), ..Default::default() };
        pick_up(&mut status, Flow::Install, &DeployerInformation::default(), &object, now);
        for at in 0..7 {
            went_wrong(&mut status, Reason::DeployerFailed, &format!("error {at}"), now);
        }
        fails(&mut status, Flow::Install, Reason::DeployerFailed, "the last", &object, now);
        assert_eq!(status.first_error.unwrap().message, "error 0");
        let told: Vec<_> = status.last_errors.iter().map(|error| error.message.as_str()).collect();
        assert_eq!(told, ["error 3", "error 4", "error 5", "error 6", "the last"]);
        assert_eq!((status.phase, status.observed_generation), (Some(DeployItemPhase::Failed), Some(3)));
        assert_eq!(status.job_id_finished, status.job_id);
    }
}
