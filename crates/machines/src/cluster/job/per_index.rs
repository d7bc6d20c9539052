//! When is an index given up, where each may fail on its own (`backoffLimitPerIndex`)?
//!
//! A Pod carries how often its index failed before it. So that nothing is forgotten between a failure and the next Pod,
//! a failed Pod keeps its finalizer until there is one that carries on its tally.

use std::collections::{BTreeMap, BTreeSet};

use super::pods::{self, Action};
use super::{FIRST_BACKOFF, LONGEST_BACKOFF, Round, later};
use crate::backoff;
use crate::cluster::owned_pod::OwnedPod;

impl<'a> Round<'a> {
    pub(super) fn limit_per_index(&self) -> Option<i32> {
        self.spec.backoff_limit_per_index.filter(|_| self.is_indexed())
    }

    /// Notes the indexes that have failed once too often, and which Pods are not let go yet.
    pub(super) fn judge_indexes(&mut self) {
        let (Some(limit), Some(completions)) = (self.limit_per_index(), self.spec.completions) else {
            return;
        };
        let given_up: Vec<i32> = self
            .pods
            .iter()
            .filter(|pod| pod.is_tracked() && self.counts_as_failed(pod) && self.is_last_straw(pod, limit))
            .filter_map(OwnedPod::index)
            .collect();
        self.failed_indexes.insert_all(given_up, completions);
        self.status.failed_indexes = Some(self.failed_indexes.to_string());
        if self.ending().is_none() {
            self.held = self.tallies().into_values().map(OwnedPod::uid).collect();
        }
    }

    fn is_last_straw(&self, pod: &OwnedPod, limit: i32) -> bool {
        let action = self.action(pod).map(|(action, _)| action);
        action == Some(Action::FailIndex) || (self.counts(pod) && pod.tally().counted >= limit)
    }

    /// Whether a failure counts: a pod failure policy may say that it does not.
    pub(super) fn counts(&self, pod: &OwnedPod) -> bool {
        self.action(pod).is_none_or(|(action, _)| action != Action::Ignore)
    }

    /// The last failed Pod of every index that is to be tried again and has no Pod yet.
    fn tallies(&self) -> BTreeMap<i32, &'a OwnedPod> {
        let pods = self.pods;
        let busy: BTreeSet<i32> = self.active().filter_map(OwnedPod::index).collect();
        let done: BTreeSet<i32> =
            pods.iter().filter(|pod| pod.has_succeeded()).filter_map(OwnedPod::index).collect();
        let mut last: BTreeMap<i32, &OwnedPod> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| pod.is_tracked() && self.counts_as_failed(pod)) {
            let open = |index: &i32| {
                Some(*index) < self.spec.completions
                    && !self.indexes.contains(*index)
                    && !self.failed_indexes.contains(*index)
                    && !busy.contains(index)
                    && !done.contains(index)
            };
            let Some(index) = pod.index().filter(open) else { continue };
            let latest = last.entry(index).or_insert(pod);
            if pod.tally().all() > latest.tally().all() {
                *latest = pod;
            }
        }
        last
    }

    /// What the next Pod of each of these indexes is told of those before it.
    pub(super) fn tallies_of_next(&self, indexes: &[Option<i32>]) -> BTreeMap<i32, pods::Tally> {
        if self.limit_per_index().is_none() {
            return BTreeMap::new();
        }
        let last = self.tallies();
        let next = |index: i32| match last.get(&index) {
            Some(last) => last.tally().and_one_more(self.counts(last)),
            None => pods::Tally::default(),
        };
        indexes.iter().flatten().map(|index| (*index, next(*index))).collect()
    }

    /// Those whose last failure is long enough ago; for the others there is a time to wake.
    pub(super) fn rested(&mut self, vacancies: Vec<Option<i32>>) -> Vec<Option<i32>> {
        if self.limit_per_index().is_none() {
            return vacancies;
        }
        let tallies = self.tallies();
        let ready_at = |index: &Option<i32>| {
            let last = tallies.get(&(*index)?)?;
            let attempts = u32::try_from(last.tally().all()).unwrap_or(u32::MAX).saturating_add(1);
            Some(later(last.finished_at()?, backoff::doubling(FIRST_BACKOFF, attempts, LONGEST_BACKOFF)))
        };
        let (tired, rested): (Vec<_>, Vec<_>) =
            vacancies.into_iter().partition(|index| ready_at(index).is_some_and(|at| at > self.cx.now));
        if let Some(at) = tired.iter().filter_map(ready_at).min() {
            self.wake_at(at);
        }
        rested
    }
}
