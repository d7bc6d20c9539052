//! What has happened in the deploy door? For each job of an Installation, Execution or DeployItem: that it began, where
//! it is, and how it ended.
//!
//! | entry | implied by |
//! |---|---|
//! | `….started` | a job's ID, and a phase of installing |
//! | `….deletion.started` | a job's ID, and a phase of deleting |
//! | `….phase` | the phase, where it is neither the first nor the last of a job |
//! | `….completed`, `failed`, `deletion.failed` | the terminal phase, once the job is finished |
//!
//! Each is once per job, `….phase` once per job and phase.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::deploy::{DeployItemStatus, ExecutionStatus, InstallationStatus, LastError, TransitionTimes};

use super::unit::Teller;
use super::{Entry, Outcome};
use crate::deploy::report::{JobPhase, Meaning};

/// What the three kinds have in common.
struct Job<'a, P> {
    id: Option<&'a str>,
    finished: Option<&'a str>,
    phase: Option<P>,
    times: Times<'a>,
    error: Option<&'a LastError>,
    generation: Option<i64>,
}

/// When a job began, when its phase was written, and when it ended; as far as the kind says.
struct Times<'a> {
    began: Option<&'a Time>,
    moved: Option<&'a Time>,
    ended: Option<&'a Time>,
}

/// The job of a status: the three kinds call these fields the same.
macro_rules! job {
    ($status:ident, $times:ident) => {
        Job {
            id: $status.job_id.as_deref(),
            finished: $status.job_id_finished.as_deref(),
            phase: $status.phase,
            times: $times,
            error: $status.last_error.as_ref(),
            generation: $status.observed_generation,
        }
    };
}

pub(crate) fn installation(tell: &Teller<'_>, status: Option<&InstallationStatus>) -> Vec<Entry> {
    let Some(status) = status else { return Vec::new() };
    let times = Times::of(status.transition_times.as_ref(), status.phase_transition_time.as_ref());
    job!(status, times).entries(tell)
}

pub(crate) fn execution(tell: &Teller<'_>, status: Option<&ExecutionStatus>) -> Vec<Entry> {
    let Some(status) = status else { return Vec::new() };
    let times = Times::of(status.transition_times.as_ref(), status.phase_transition_time.as_ref());
    job!(status, times).entries(tell)
}

pub(crate) fn deploy_item(tell: &Teller<'_>, status: Option<&DeployItemStatus>) -> Vec<Entry> {
    let Some(status) = status else { return Vec::new() };
    let times = Times {
        began: status.job_id_generation_time.as_ref(),
        moved: status.last_reconcile_time.as_ref(),
        ended: None,
    };
    job!(status, times).entries(tell)
}

impl<'a> Times<'a> {
    fn of(times: Option<&'a TransitionTimes>, moved: Option<&'a Time>) -> Self {
        let began = times.and_then(|times| times.init_time.as_ref().or(times.trigger_time.as_ref()));
        Self { began, moved, ended: times.and_then(|times| times.finished_time.as_ref()) }
    }
}

impl<P: JobPhase> Job<'_, P> {
    fn entries(&self, tell: &Teller<'_>) -> Vec<Entry> {
        let (Some(id), Some(phase)) = (self.id, self.phase) else { return Vec::new() };
        let of_the_job = |entry: Entry| entry.with("jobID", id).with("generation", self.generation);
        // Until the new job's first phase is written, the phase is the last job's.
        if self.finished != Some(id) && phase.is_terminal() {
            return Vec::new();
        }
        let deletes = phase.meaning().removes();
        let started = if deletes { "deletion.started" } else { "started" };
        let started = tell.entry(started, id, self.times.began).outcome(Outcome::Pending);
        let mut entries = vec![of_the_job(started)];
        match phase.meaning() {
            Meaning::Succeeded => entries.push(of_the_job(tell.entry("completed", id, self.times.ended))),
            Meaning::Failed | Meaning::DeleteFailed => {
                let event = if deletes { "deletion.failed" } else { "failed" };
                let entry = of_the_job(tell.entry(event, id, self.times.ended).outcome(Outcome::Failure));
                entries.push(match self.error {
                    None => entry,
                    Some(error) => entry
                        .with("operation", error.operation.as_str())
                        .with("reason", error.reason.as_str())
                        .with("message", error.message.as_str()),
                });
            }
            Meaning::Builds | Meaning::BuildsAndWaits | Meaning::Removes | Meaning::RemovesAndWaits => {
                if phase != P::INIT && phase != P::INIT_DELETE {
                    let occasion = format!("{id}/{}", phase.as_str());
                    let entry = tell.entry("phase", &occasion, self.times.moved).outcome(Outcome::Pending);
                    entries.push(of_the_job(entry).with("phase", phase.as_str()));
                }
            }
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::World;
    use crate::machine::AnyMachine;
    use crate::object::Object;
    use jiff::Timestamp;
    use pawl_api::deploy::deploy_item;
    use serde_json::{Value, json};

    fn told(status: &Value) -> Vec<Entry> {
        let object = json!({"metadata": {"name": "i", "namespace": "team", "uid": "u"}, "status": status,
            "spec": {"type": "landscaper.gardener.cloud/mock"}});
        let me = Object::new(deploy_item::KIND, object).unwrap();
        let machine = AnyMachine::new(crate::deploy::deploy_item::DeployItems::default());
        machine.audit(&World::default(), &me, Timestamp::UNIX_EPOCH).unwrap()
    }

    fn events(status: &Value) -> Vec<(String, Outcome)> {
        told(status).into_iter().map(|entry| (entry.event, entry.outcome)).collect()
    }

    #[test]
    fn a_job_tells_that_it_began_where_it_is_and_how_it_ended() {
        let event = |event: &str, outcome| (format!("deploy.deployitem.{event}"), outcome);
        let (started, pending) = (event("started", Outcome::Pending), Outcome::Pending);
        let at =
            |phase: &str, finished: &str| json!({"phase": phase, "jobID": "2", "jobIDFinished": finished});
        assert_eq!(events(&at("Init", "1")), std::slice::from_ref(&started));
        assert_eq!(events(&at("Progressing", "1")), [started.clone(), event("phase", pending)]);
        assert_eq!(events(&at("Succeeded", "2")), [started.clone(), event("completed", Outcome::Success)]);
        assert_eq!(events(&at("Failed", "2")), [started, event("failed", Outcome::Failure)]);
        let deletes = event("deletion.started", pending);
        assert_eq!(events(&at("Deleting", "1")), [deletes.clone(), event("phase", pending)]);
        assert_eq!(events(&at("DeleteFailed", "2")), [deletes, event("deletion.failed", Outcome::Failure)]);
        // The next job has an ID, but the phase is still the last one's.
        assert!(events(&at("Succeeded", "1")).is_empty());
        assert!(events(&json!({})).is_empty());
    }

    #[test]
    fn each_job_has_entries_of_its_own() {
        let first = told(&json!({"phase": "Failed", "jobID": "1", "jobIDFinished": "1",
            "lastError": {"operation": "Apply", "reason": "Refused", "message": "no"}}));
        let second = told(&json!({"phase": "Failed", "jobID": "2", "jobIDFinished": "2"}));
        assert!(first.iter().zip(&second).all(|(one, two)| one.event == two.event && one.id != two.id));
        assert_eq!(first[1].payload["reason"], "Refused");
    }
}
