//! What does a Deployment say of itself? `kubectl rollout status` and `kubectl wait` read exactly this.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DeploymentCondition, DeploymentStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Round, Set};
use crate::cluster::job::some;
use crate::cluster::replica_set::REPLICA_FAILURE;
use crate::plan::{Plan, Wake};
use crate::time::later;

const PROGRESSING: &str = "Progressing";
const COMPLETE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

/// Kubernetes' time without progress until a rollout counts as stuck; as many seconds as fit mean never.
const DEADLINE_SECONDS: i32 = 600;

/// How many Pods are how far, over all sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    replicas: i32,
    updated: i32,
    ready: i32,
    available: i32,
}

impl Round<'_> {
    pub(super) fn counts(&self) -> Counts {
        let sum = |count: fn(&Set) -> i32| self.sets().map(count).fold(0_i32, i32::saturating_add);
        Counts {
            replicas: sum(Set::replicas),
            updated: self.new.map_or(0, Set::replicas),
            ready: sum(Set::ready),
            available: sum(Set::available),
        }
    }

    pub(super) fn is_complete(&self, counts: &Counts) -> bool {
        let all = self.replicas;
        (counts.updated, counts.replicas, counts.available) == (all, all, all)
    }

    /// Finishes the plan with what is so before its steps are done.
    pub(super) fn report(mut self) -> Plan<DeploymentStatus> {
        let counts = self.counts();
        let before = self.cx.typed.status.clone().unwrap_or_default();
        let mut conditions =
            Conditions { list: before.conditions.clone().unwrap_or_default(), now: self.cx.now };
        self.report_pause(&mut conditions);
        let minimum = self.replicas.saturating_sub(self.limits.unavailable);
        if counts.available >= minimum {
            let message = "Deployment has minimum availability.";
            conditions.set("Available", "True", "MinimumReplicasAvailable", message);
        } else {
            let message = "Deployment does not have minimum availability.";
            conditions.set("Available", "False", "MinimumReplicasUnavailable", message);
        }
        self.report_progress(&mut conditions, &before, &counts);
        self.report_failure(&mut conditions);
        let status = DeploymentStatus {
            replicas: some(counts.replicas),
            updated_replicas: some(counts.updated),
            ready_replicas: some(counts.ready),
            available_replicas: some(counts.available),
            unavailable_replicas: some(counts.replicas.saturating_sub(counts.available).max(0)),
            observed_generation: Some(self.cx.object.generation()),
            collision_count: some(self.collisions()),
            conditions: Some(conditions.list),
            ..before
        };
        self.plan.status = Some(status);
        self.plan
    }

    fn deadline(&self) -> Option<Duration> {
        let seconds = self.spec.progress_deadline_seconds.unwrap_or(DEADLINE_SECONDS);
        let seconds = Some(seconds).filter(|seconds| *seconds != i32::MAX)?;
        Some(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
    }

    fn report_pause(&self, conditions: &mut Conditions) {
        let reason = conditions.reason(PROGRESSING).map(str::to_owned);
        if self.deadline().is_none() || reason.as_deref() == Some(TIMED_OUT) {
            return;
        }
        let paused = reason.as_deref() == Some(PAUSED);
        if self.is_paused() && !paused {
            conditions.set(PROGRESSING, "Unknown", PAUSED, "Deployment is paused");
        } else if !self.is_paused() && paused {
            conditions.set(PROGRESSING, "Unknown", "DeploymentResumed", "Deployment is resumed");
        }
    }

    fn report_progress(&mut self, conditions: &mut Conditions, before: &DeploymentStatus, counts: &Counts) {
        let Some(deadline) = self.deadline() else {
            return conditions.remove(PROGRESSING);
        };
        if self.is_paused() {
            return;
        }
        let about = match (&self.made, self.new) {
            (Some(name), _) => format!("ReplicaSet {name:?}"),
            (None, Some(new)) => format!("ReplicaSet {:?}", new.name()),
            (None, None) => format!("Deployment {:?}", self.cx.object.name()),
        };
        let finished = format!("{about} has successfully progressed.");
        let is_complete = conditions.reason(PROGRESSING) == Some(COMPLETE);
        let is_of_this = conditions.message(PROGRESSING) == Some(&finished);
        if let Some(name) = &self.made {
            let message = format!("Created new replica set {name:?}");
            conditions.renew(PROGRESSING, "True", "NewReplicaSetCreated", &message);
        } else if let Some(new) = self.new
            && (conditions.reason(PROGRESSING).is_none() || is_complete && !is_of_this)
        {
            let message = format!("Found new replica set {:?}", new.name());
            conditions.renew(PROGRESSING, "True", "FoundNewReplicaSet", &message);
        }
        if counts.replicas == counts.updated && conditions.reason(PROGRESSING) == Some(COMPLETE) {
            return;
        }
        if self.is_complete(counts) {
            return conditions.set(PROGRESSING, "True", COMPLETE, &finished);
        }
        if progressed(before, counts) {
            let message = format!("{about} is progressing.");
            conditions.renew(PROGRESSING, "True", "ReplicaSetUpdated", &message);
        }
        match conditions.reason(PROGRESSING) {
            None | Some(COMPLETE | TIMED_OUT) => return,
            Some(_) => {}
        }
        let ends = conditions.updated(PROGRESSING).map(|updated| later(updated, deadline));
        match ends {
            Some(ends) if ends < self.cx.now => {
                let message = format!("{about} has timed out progressing.");
                conditions.set(PROGRESSING, "False", TIMED_OUT, &message);
            }
            // A moment later than the deadline: only then is it over.
            Some(ends) => {
                let at = later(ends, Duration::from_secs(1));
                self.plan.wake = self.plan.wake.earliest(Wake::At(at));
            }
            None => {}
        }
    }

    /// A set that cannot make its Pods says so through its Deployment: the new one first.
    fn report_failure(&self, conditions: &mut Conditions) {
        let failure = self.sets().find_map(|set| {
            let told = set.set.status.as_ref()?.conditions.as_ref()?;
            told.iter().find(|one| one.type_ == REPLICA_FAILURE && one.status == "True")
        });
        match failure {
            Some(failure) => {
                let reason = failure.reason.as_deref().unwrap_or_default();
                let message = failure.message.as_deref().unwrap_or_default();
                conditions.set(REPLICA_FAILURE, "True", reason, message);
            }
            None => conditions.remove(REPLICA_FAILURE),
        }
    }
}

/// Whether anything moved on since the last report.
fn progressed(before: &DeploymentStatus, counts: &Counts) -> bool {
    let of = |count: Option<i32>| count.unwrap_or_default();
    let old_before = of(before.replicas).saturating_sub(of(before.updated_replicas));
    counts.updated > of(before.updated_replicas)
        || counts.replicas.saturating_sub(counts.updated) < old_before
        || counts.ready > of(before.ready_replicas)
        || counts.available > of(before.available_replicas)
}

struct Conditions {
    list: Vec<DeploymentCondition>,
    now: Timestamp,
}

impl Conditions {
    fn find(&self, type_: &str) -> Option<&DeploymentCondition> {
        self.list.iter().find(|one| one.type_ == type_)
    }

    fn reason(&self, type_: &str) -> Option<&str> {
        self.find(type_)?.reason.as_deref()
    }

    fn message(&self, type_: &str) -> Option<&str> {
        self.find(type_)?.message.as_deref()
    }

    fn updated(&self, type_: &str) -> Option<Timestamp> {
        self.find(type_)?.last_update_time.as_ref().map(|time| time.0)
    }

    fn remove(&mut self, type_: &str) {
        self.list.retain(|one| one.type_ != type_);
    }

    /// Says the same for the same reason only once.
    fn set(&mut self, type_: &str, status: &str, reason: &str, message: &str) {
        let same = |one: &DeploymentCondition| one.status == status && one.reason.as_deref() == Some(reason);
        if !self.find(type_).is_some_and(same) {
            self.renew(type_, status, reason, message);
        }
    }

    /// Says it again even for the same reason: time starts anew.
    fn renew(&mut self, type_: &str, status: &str, reason: &str, message: &str) {
        let same = self.find(type_).filter(|one| one.status == status);
        let since = same.and_then(|one| one.last_transition_time.clone());
        let new = DeploymentCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_update_time: Some(Time(self.now)),
            last_transition_time: since.or(Some(Time(self.now))),
        };
        match self.list.iter_mut().find(|one| one.type_ == type_) {
            Some(one) => *one = new,
            None => self.list.push(new),
        }
    }
}
