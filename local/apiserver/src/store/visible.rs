//! What may be read: every table in the order of its keys, and what happened of late.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use super::{ChangeType, Event, Limits, Object, Topic};

/// How many of the newest events keep their watch lines: those whom a watcher that keeps up has yet to send.
const NEWS_EVENTS: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct Visible {
    pub(super) revision: u64,
    /// Events up to and including this revision are gone.
    pub(super) compacted: u64,
    pub(super) tables: HashMap<Arc<str>, Table>,
    pub(super) log: VecDeque<Arc<Event>>,
    pub(super) log_bytes: usize,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) objects: BTreeSet<Keyed>,
    pub(super) log: VecDeque<Arc<Event>>,
    pub(super) changed: Arc<Topic>,
}

/// An object in the order of keys, of which it is not kept a second copy.
#[derive(Debug, Clone)]
pub(super) struct Keyed(pub(super) Arc<Object>);

impl Borrow<str> for Keyed {
    fn borrow(&self) -> &str {
        self.0.key()
    }
}

impl PartialEq for Keyed {
    fn eq(&self, other: &Self) -> bool {
        self.0.key() == other.0.key()
    }
}

impl Eq for Keyed {}

impl PartialOrd for Keyed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Keyed {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key().cmp(other.0.key())
    }
}

impl Visible {
    pub(super) fn apply(&mut self, event: &Arc<Event>) {
        let table = self.tables.entry(event.table.clone()).or_default();
        match event.change {
            ChangeType::Added | ChangeType::Modified => {
                table.objects.replace(Keyed(event.object.clone()));
            }
            ChangeType::Deleted => {
                table.objects.remove(event.object.key());
            }
        }
        table.log.push_back(event.clone());
        self.log.push_back(event.clone());
        let aged = self.log.len().checked_sub(NEWS_EVENTS + 1).and_then(|at| self.log.get(at));
        if let Some(aged) = aged {
            aged.frames.forget();
        }
        self.log_bytes += event.object.bytes().len();
        self.revision = event.object.revision;
    }

    pub(super) fn compact(&mut self, limits: Limits) {
        while self.log.len() > limits.log_events || self.log_bytes > limits.log_bytes {
            let Some(event) = self.log.pop_front() else { return };
            self.log_bytes -= event.object.bytes().len();
            self.compacted = event.object.revision;
            // Tables and the whole log hold the same events in the same order.
            if let Some(table) = self.tables.get_mut(&event.table) {
                table.log.pop_front();
            }
        }
    }
}

/// The first key after all that start with `prefix`, which is empty or ends in a slash.
fn end_of(prefix: &str) -> Option<String> {
    prefix.strip_suffix('/').map(|namespace| format!("{namespace}0"))
}

impl Table {
    pub(super) fn get(&self, key: &str) -> Option<Arc<Object>> {
        self.objects.get(key).map(|Keyed(object)| object.clone())
    }

    pub(super) fn under(&self, prefix: &str) -> impl Iterator<Item = &Arc<Object>> {
        self.between(prefix, "")
    }

    /// The objects whose keys start with `prefix` and are after `after`, in order.
    pub(super) fn between(&self, prefix: &str, after: &str) -> impl Iterator<Item = &Arc<Object>> {
        let start = if after < prefix { Bound::Included(prefix) } else { Bound::Excluded(after) };
        let end = end_of(prefix);
        let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        // A range must not end before it begins.
        let range = match (start, end) {
            (Bound::Included(start) | Bound::Excluded(start), Bound::Excluded(end)) if start >= end => None,
            (start, end) => Some(self.objects.range::<str, _>((start, end))),
        };
        // Bounds alone: who counts what follows need not look at any of it.
        range.into_iter().flatten().map(|Keyed(object)| object)
    }
}
