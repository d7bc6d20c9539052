//! The Pods that an object controls: what one sighting of a Pod says, and how a new one is written.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use pawl_api::k8s::POD;
use serde_json::Value;

use super::job::count;
use crate::json::object;
use crate::object::Object;
use crate::plan::Step;
use crate::time::later;
use crate::view::View;

/// Pods made or deleted by one decision: Kubernetes' own figure. The rest follows at once.
pub(super) const MAX_AT_ONCE: usize = 500;

/// How long until a Pod that the API server refused is tried again; what it objected to is for a person to change.
pub(super) const REFUSED_RETRY: Duration = Duration::from_mins(1);

/// Which revision of its owner's template a Pod is made from.
pub(super) const REVISION: &str = "controller-revision-hash";

/// How dear a Pod is when some must go: the lower, the sooner.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// A Pod as it was last seen.
#[derive(Clone, Debug)]
pub(super) struct OwnedPod {
    pub(super) object: Arc<Object>,
    pub(super) pod: Arc<Pod>,
}

/// How many Pods are how far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) all: i32,
    pub(super) ready: i32,
    pub(super) available: i32,
}

impl OwnedPod {
    pub(super) fn of(object: Arc<Object>) -> Option<Self> {
        let pod = object.parse::<Pod>().ok()?;
        Some(Self { object, pod })
    }

    /// The Pods that the object controls, in order of their names.
    pub(super) fn all_of(view: &dyn View, owner: &Object) -> Vec<Self> {
        view.controlled(&POD, owner).into_iter().filter_map(Self::of).collect()
    }

    pub(super) fn name(&self) -> &str {
        self.object.name()
    }

    pub(super) fn uid(&self) -> &str {
        self.object.uid()
    }

    pub(super) fn phase(&self) -> &str {
        self.pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase(), "Succeeded" | "Failed")
    }

    pub(super) fn is_active(&self) -> bool {
        !self.is_over() && !self.object.is_deleting()
    }

    pub(super) fn is_terminating(&self) -> bool {
        self.object.is_deleting()
    }

    pub(super) fn node(&self) -> Option<&str> {
        self.pod.spec.as_ref()?.node_name.as_deref()
    }

    pub(super) fn revision(&self) -> Option<&str> {
        self.object.label(REVISION)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready_condition().is_some()
    }

    /// Ready for so many seconds.
    pub(super) fn is_available(&self, min_ready_seconds: Option<i32>, now: Timestamp) -> bool {
        self.available_at(min_ready_seconds).is_some_and(|at| at <= now)
    }

    /// When it counts as available if it stays ready.
    pub(super) fn available_at(&self, min_ready_seconds: Option<i32>) -> Option<Timestamp> {
        let ready = self.ready_condition()?;
        let wait = u64::try_from(min_ready_seconds.unwrap_or_default()).unwrap_or_default();
        let since = ready.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        Some(if wait == 0 { Timestamp::UNIX_EPOCH } else { later(since, Duration::from_secs(wait)) })
    }

    fn ready_condition(&self) -> Option<&PodCondition> {
        let conditions = self.pod.status.as_ref()?.conditions.as_deref()?;
        conditions.iter().find(|one| one.type_ == "Ready" && one.status == "True")
    }

    /// Who goes first when some must: those that have done least, as in Kubernetes. Nothing in it changes while a
    /// healthy Pod runs, so that two looks at the same Pods choose the same ones.
    pub(super) fn cheapest_first(&self) -> impl Ord + use<> {
        let phase = match self.phase() {
            "Pending" => 0,
            "Running" => 2,
            _ => 1,
        };
        let cost = self.object.annotation(DELETION_COST).and_then(|text| text.parse::<i32>().ok());
        let ready = (self.is_ready(), cost.unwrap_or_default());
        (
            self.node().is_some(),
            phase,
            ready,
            Reverse(self.object.created_at()),
            Reverse(self.name().to_owned()),
        )
    }

    pub(super) fn delete(&self) -> Step {
        Step::delete(&self.object)
    }
}

impl Tally {
    pub(super) fn of<'a>(
        pods: impl IntoIterator<Item = &'a OwnedPod>,
        min_ready_seconds: Option<i32>,
        now: Timestamp,
    ) -> Self {
        pods.into_iter().fold(Self::default(), |tally, pod| Self {
            all: tally.all.saturating_add(1),
            ready: tally.ready.saturating_add(count(usize::from(pod.is_ready()))),
            available: tally
                .available
                .saturating_add(count(usize::from(pod.is_available(min_ready_seconds, now)))),
        })
    }
}

/// When the next of these Pods becomes available without anything else happening.
pub(super) fn next_available<'a>(
    pods: impl IntoIterator<Item = &'a OwnedPod>,
    min_ready_seconds: Option<i32>,
    now: Timestamp,
) -> Option<Timestamp> {
    pods.into_iter().filter_map(|pod| pod.available_at(min_ready_seconds)).filter(|at| *at > now).min()
}

/// A Pod from a template. The template is an object's own, so it has the shape of one or the API server says so.
pub(super) fn manifest(template: &Value, name: &str) -> Value {
    let mut manifest = template.clone();
    object(&mut manifest, "metadata")["name"] = name.into();
    manifest
}
