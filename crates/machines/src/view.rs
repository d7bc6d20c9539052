//! What a machine may look at: caches, read without waiting and without choosing.
//!
//! The loop's informers, the simulator's stale caches and a test's list of manifests are all views.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use pawl_api::meta::Kind;

use crate::external::Answers;
use crate::failure::Failure;
use crate::machine::Line;
use crate::object::{Key, Object, Spot};
use crate::plan::Refusal;

/// Whether the API server serves a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    Yes,
    /// The kind is not there (a CRD that is not installed); it may appear later.
    No,
}

/// A consistent-enough picture of the cluster: each object at some version, never older than this machine's own
/// last write to it.
pub trait View {
    fn get(&self, kind: &Kind, key: &Key) -> Option<Arc<Object>>;

    /// Everything of a kind, in key order; `None` is all namespaces.
    fn list(&self, kind: &Kind, namespace: Option<&str>) -> Vec<Arc<Object>>;

    /// Whether there is none of a kind.
    fn is_empty(&self, kind: &Kind) -> bool {
        self.list(kind, None).is_empty()
    }

    /// The objects of a kind that name this UID in their owner references, in key order.
    fn owned(&self, kind: &Kind, owner_uid: &str) -> Vec<Arc<Object>>;

    /// The objects of a kind that this one controls, in key order.
    fn controlled(&self, kind: &Kind, owner: &Object) -> Vec<Arc<Object>> {
        let mut owned = self.owned(kind, owner.uid());
        owned.retain(|object| object.is_controlled_by(owner));
        owned
    }

    /// Shows each that names this UID, in the same order, without handing it over: for whoever knows most of them from before. What is
    /// called must be quick and ask nothing of the view.
    fn visit_owned(&self, kind: &Kind, owner_uid: &str, visit: &mut dyn FnMut(&Arc<Object>)) {
        self.owned(kind, owner_uid).iter().for_each(visit);
    }

    /// The objects of a kind that carry this label, in key order. The label must be in the watch's `labels`.
    fn labelled(&self, kind: &Kind, label: &str, value: &str) -> Vec<Arc<Object>>;

    /// The objects of every kind that name this UID in their owner references (only for machines on every kind).
    fn dependents(&self, owner_uid: &str) -> Vec<Arc<Object>>;

    fn serves(&self, kind: &Kind) -> Served;

    /// The served kind that an owner reference means: its group and kind decide, for it may have been written against
    /// a version that is no longer served.
    fn resolve(&self, api_version: &str, kind: &str) -> Option<Kind>;

    /// The object of a kind that has this UID, wherever it is.
    fn by_uid(&self, kind: &Kind, uid: &str) -> Option<Arc<Object>> {
        self.list(kind, None).into_iter().find(|object| object.uid() == uid)
    }

    /// Of the objects that name this UID in their owner references, the first that stands in a line. The line must be in
    /// the watch's `lines`, or it is searched for.
    fn first_in_line(&self, kind: &Kind, line: &Line, owner_uid: &str) -> Option<Arc<Object>> {
        let standing = self.owned(kind, owner_uid).into_iter().filter(|object| (line.stands)(object));
        standing.min_by_key(|object| Spot::of(object))
    }

    /// All of them that stand in it, in their order.
    fn in_line(&self, kind: &Kind, line: &Line, owner_uid: &str) -> Vec<Arc<Object>> {
        let mut standing = self.owned(kind, owner_uid);
        standing.retain(|object| (line.stands)(object));
        standing.sort_by_key(|object| Spot::of(object));
        standing
    }

    /// How many of them stand in it: before this spot, or all of them.
    fn count_in_line(&self, kind: &Kind, line: &Line, owner_uid: &str, before: Option<&Spot>) -> usize {
        let standing = self.owned(kind, owner_uid).into_iter().filter(|object| (line.stands)(object));
        standing.filter(|object| before.is_none_or(|before| Spot::of(object) < *before)).count()
    }

    /// Every kind that can be listed and deleted (only for machines that look at every kind).
    fn kinds(&self) -> Vec<Kind>;
}

/// The group of an `apiVersion`: empty for the core group.
pub fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// All that the loop hands to a controller for one reconcile of an object.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    pub view: &'a dyn View,
    pub me: &'a Arc<Object>,
    /// What the API server refused for good the last time this object's plan was applied.
    pub refusals: &'a [Refusal],
    /// The replies to external calls in this reconcile.
    pub answers: &'a Arc<Answers>,
}

/// All that one reconcile may read.
pub struct Context<'a, K> {
    /// The object as the API server sent it.
    pub object: &'a Arc<Object>,
    /// The same, as its own type.
    pub typed: &'a Arc<K>,
    pub view: &'a dyn View,
    pub now: Timestamp,
    /// Requests that the API server refused for good the last time this object's plan was applied.
    pub refusals: &'a [Refusal],
    /// The replies to external calls in this reconcile.
    pub answers: &'a Arc<Answers>,
}

impl<K> Context<'_, K> {
    /// The API server's refusal to write an object of this kind, if there was one.
    pub fn refused(&self, kind: &Kind) -> Option<&Failure> {
        self.refusals.iter().find(|refusal| refusal.kind == *kind).map(|refusal| &refusal.failure)
    }
}

impl<K> fmt::Debug for Context<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("object", self.object).field("now", &self.now).finish_non_exhaustive()
    }
}

impl fmt::Debug for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").field("me", self.me).field("refusals", &self.refusals).finish_non_exhaustive()
    }
}
