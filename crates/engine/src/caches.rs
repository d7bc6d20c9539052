//! What the informers have seen: one cache per kind, and how far each watch has come.
//!
//! ```text
//!           first list              the kind is gone from discovery
//!  pending ────────────▶ live ──────────────────────────────────────▶ absent ──▶ (a list succeeds) live
//!     └── the server will not let us list: refused ──▶ (a list succeeds) live
//! ```
//! A watch that breaks stays live: what it has seen is old, not wrong, and every write is compared and swapped.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use pawl_api::meta::Kind;
use pawl_machines::apply::Written;
use pawl_machines::cache::{Cache, Next};
use pawl_machines::machine::Line;
use pawl_machines::object::{Key, Object, Spot};
use pawl_machines::view::{Served, View, group_of};
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use crate::expectations::shows;

/// A namespace, or all of them.
pub type Scope = Option<String>;

/// Requests to list again: one for each namespace that is watched on its own.
pub type Tickets = BTreeMap<Scope, u64>;

/// How a watch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Not listed yet: nothing is known.
    Pending,
    Live,
    /// The API server does not serve the kind.
    Absent,
    /// The API server does not let us list it.
    Refused,
}

impl Standing {
    pub const ALL: [Self; 4] = [Self::Pending, Self::Live, Self::Absent, Self::Refused];

    /// A word for logs and metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Live => "live",
            Self::Absent => "absent",
            Self::Refused => "refused",
        }
    }
}

/// One object that is not as it was.
#[derive(Clone, Debug)]
pub struct Change {
    pub before: Option<Arc<Object>>,
    pub after: Option<Arc<Object>>,
}

impl Change {
    /// The newest that is known of the object; for one that is gone, its last version.
    pub fn newest(&self) -> Option<&Arc<Object>> {
        self.after.as_ref().or(self.before.as_ref())
    }
}

/// What a list came to.
#[derive(Debug)]
pub struct Listed {
    pub objects: Vec<Arc<Object>>,
    /// Objects that are there but could not be read: what was known of them stays.
    pub unreadable: BTreeSet<Key>,
    pub resource_version: String,
}

/// All caches of one loop.
#[derive(Debug, Default)]
pub struct Caches {
    kinds: RwLock<BTreeMap<Kind, Entry>>,
    /// Something was learnt, or looked at: after a while there is something to let rest.
    stirred: Notify,
}

/// How long nobody has looked into an object when what was read of it is forgotten, and half of that at least: a burst of
/// work on it is over by then.
const REST_AFTER: Duration = Duration::from_secs(1);

/// How many objects are asked at a time whether they rest: those who want to read wait for some 50 µs.
const AT_A_TIME: usize = 500;

#[derive(Debug)]
struct Entry {
    cache: Cache,
    watches: BTreeMap<Scope, Watched>,
    /// Tells whenever anything is learnt about the kind. Not a `watch` channel: that wakes those who wait in an order
    /// drawn by lot, and a run could not be repeated.
    moved: Arc<Notify>,
    /// Who waits for the cache to show a write, in the order they came. Each is told when it does and not before: to
    /// wake all of them with every change would cost more than the decisions do.
    awaited: Vec<(Written, Arc<Notify>)>,
}

#[derive(Debug)]
struct Watched {
    standing: Standing,
    /// The resourceVersion up to which everything has been seen.
    seen: String,
    /// The number of the latest request to list again.
    tickets: watch::Sender<u64>,
    /// The latest ticket that a list has answered.
    listed: u64,
}

impl Caches {
    /// Makes room for a kind; whoever feeds it lists again when the ticket moves, and stops when it is closed.
    pub fn add(
        &self,
        kind: &Kind,
        scope: Scope,
        labels: &BTreeSet<&'static str>,
        lines: &[Line],
    ) -> watch::Receiver<u64> {
        let mut kinds = self.write();
        let entry = kinds.entry(kind.clone()).or_insert_with(|| Entry {
            cache: Cache::default(),
            watches: BTreeMap::new(),
            moved: Arc::default(),
            awaited: Vec::new(),
        });
        for label in labels {
            entry.cache.index(label);
        }
        lines.iter().for_each(|line| entry.cache.keep_line(*line));
        let watched = entry.watches.entry(scope).or_insert_with(|| Watched {
            standing: Standing::Pending,
            seen: String::new(),
            tickets: watch::Sender::new(0),
            listed: 0,
        });
        watched.tickets.subscribe()
    }

    /// Forgets a kind altogether; returns what was known of it, as so many ends.
    pub fn discard(&self, kind: &Kind) -> Vec<Change> {
        let Some(entry) = self.write().remove(kind) else { return Vec::new() };
        entry.moved.notify_waiters();
        entry.awaited.iter().for_each(|(_, told)| told.notify_one());
        let objects = entry.cache.list(None);
        objects.into_iter().map(|before| Change { before: Some(before), after: None }).collect()
    }

    /// Takes a whole list; what it does not name is gone.
    pub fn replace(&self, kind: &Kind, scope: &Scope, ticket: u64, listed: Listed) -> Vec<Change> {
        let Listed { objects, unreadable, resource_version } = listed;
        let mut changes = Vec::new();
        self.learn(kind, scope, |cache, watched| {
            let known = cache.list(scope.as_deref());
            // The first list is the longest, and can end nothing.
            if !known.is_empty() {
                let mut named = unreadable;
                named.extend(objects.iter().map(|object| object.key()));
                for before in known.into_iter().filter(|before| !named.contains(&before.key())) {
                    cache.remove(&before.key());
                    changes.push(Change { before: Some(before), after: None });
                }
            }
            for object in objects {
                changes.extend(put(cache, object));
            }
            watched.seen = resource_version;
            watched.listed = ticket;
            watched.standing = Standing::Live;
        });
        changes
    }

    /// Takes one version of one object.
    pub fn put(&self, object: Arc<Object>, scope: &Scope) -> Option<Change> {
        let mut change = None;
        self.learn(&object.kind().clone(), scope, |cache, watched| {
            watched.seen = object.resource_version().to_owned();
            change = put(cache, object);
        });
        change
    }

    /// An object is gone.
    pub fn remove(&self, kind: &Kind, scope: &Scope, key: &Key, resource_version: &str) -> Option<Change> {
        let mut change = None;
        self.learn(kind, scope, |cache, watched| {
            resource_version.clone_into(&mut watched.seen);
            change = cache.remove(key).map(|before| Change { before: Some(before), after: None });
        });
        change
    }

    /// Nothing happened up to here.
    pub fn advance(&self, kind: &Kind, scope: &Scope, resource_version: &str) {
        self.learn(kind, scope, |_, watched| resource_version.clone_into(&mut watched.seen));
    }

    /// Notes how a watch stands; returns the ends of what can no longer be there.
    pub fn stand(&self, kind: &Kind, scope: &Scope, standing: Standing) -> Vec<Change> {
        let mut gone = Vec::new();
        self.learn(kind, scope, |cache, watched| {
            watched.standing = standing;
            if standing == Standing::Absent {
                gone = cache.list(scope.as_deref());
                for object in &gone {
                    cache.remove(&object.key());
                }
            }
        });
        gone.into_iter().map(|before| Change { before: Some(before), after: None }).collect()
    }

    /// How the watch of a kind stands: the least of its namespaces; `None` if nobody watches it.
    pub fn standing(&self, kind: &Kind) -> Option<Standing> {
        self.read().get(kind)?.standing()
    }

    /// How all watches stand, in the order of kinds.
    pub fn standings(&self) -> Vec<(Kind, Standing)> {
        let kinds = self.read();
        kinds.iter().filter_map(|(kind, entry)| Some((kind.clone(), entry.standing()?))).collect()
    }

    /// Whether the cache of its kind has seen a write, or never will.
    pub fn has_seen(&self, written: &Written) -> bool {
        self.read().get(&written.kind).is_none_or(|entry| entry.has_seen(written))
    }

    /// Asks whoever feeds a kind to list it again; `has_listed` tells when that has been done.
    pub fn ask_to_list(&self, kind: &Kind) -> Tickets {
        let kinds = self.read();
        let watches = kinds.get(kind).into_iter().flat_map(|entry| &entry.watches);
        watches
            .map(|(scope, watched)| {
                watched.tickets.send_modify(|ticket| *ticket += 1);
                (scope.clone(), *watched.tickets.borrow())
            })
            .collect()
    }

    pub fn has_listed(&self, kind: &Kind, tickets: &Tickets) -> bool {
        let kinds = self.read();
        kinds.get(kind).is_none_or(|entry| {
            let listed = |scope: &Scope| entry.watches.get(scope).map(|watched| watched.listed);
            tickets.iter().all(|(scope, ticket)| listed(scope).is_none_or(|listed| listed >= *ticket))
        })
    }

    /// Waits until the cache shows a write, or nobody watches its kind any more.
    pub async fn until_seen(&self, written: &Written) {
        let told = Arc::new(Notify::new());
        match self.write().get_mut(&written.kind) {
            Some(entry) if !entry.has_seen(written) => {
                entry.awaited.push((written.clone(), Arc::clone(&told)));
            }
            Some(_) | None => return,
        }
        let awaiting = Awaiting { caches: self, kind: &written.kind, told };
        awaiting.told.notified().await;
    }

    /// Waits until something holds that depends on what is known of a kind, or until nobody watches it any more.
    pub async fn until(&self, kind: &Kind, holds: impl Fn() -> bool) {
        loop {
            let Some(moved) = self.read().get(kind).map(|entry| Arc::clone(&entry.moved)) else { return };
            let mut told = pin!(moved.notified());
            // From here on no move is missed, so what is looked at now is not outdated unnoticed.
            told.as_mut().enable();
            if holds() {
                return;
            }
            told.await;
        }
    }

    /// All objects that name one of this kind as an owner.
    pub fn naming(&self, owner: &Kind) -> Vec<Arc<Object>> {
        let named = |object: &Arc<Object>| {
            object
                .owners()
                .iter()
                .any(|held| held.kind == owner.kind && group_of(&held.api_version) == owner.group)
        };
        self.read().values().flat_map(|entry| entry.cache.list(None)).filter(named).collect()
    }

    /// Somebody looks at objects.
    pub(crate) fn stir(&self) {
        self.stirred.notify_one();
    }

    /// Lets objects rest that nobody looks into, for as long as anybody wants.
    pub(crate) async fn let_rest(&self) {
        loop {
            self.stirred.notified().await;
            loop {
                sleep(REST_AFTER).await;
                if !self.rest() {
                    break;
                }
            }
        }
    }

    /// Whether some may rest later.
    fn rest(&self) -> bool {
        let kinds: Vec<Kind> = self.read().keys().cloned().collect();
        let mut awake = false;
        for kind in &kinds {
            let mut next = Some(Next::default());
            while let Some(from) = next.take() {
                let Some(round) = self.write().get_mut(kind).map(|entry| entry.cache.rest(&from, AT_A_TIME))
                else {
                    break;
                };
                awake |= round.awake;
                next = round.next;
            }
        }
        awake
    }

    fn learn(&self, kind: &Kind, scope: &Scope, change: impl FnOnce(&mut Cache, &mut Watched)) {
        self.stir();
        let mut kinds = self.write();
        let Some(entry) = kinds.get_mut(kind) else { return };
        if let Some(watched) = entry.watches.get_mut(scope) {
            change(&mut entry.cache, watched);
            entry.moved.notify_waiters();
            let Entry { cache, watches, awaited, .. } = entry;
            awaited.retain(|(written, told)| {
                let seen = has_seen(cache, watches, written);
                if seen {
                    told.notify_one();
                }
                !seen
            });
        }
    }

    // No code that can panic runs under the lock, so a poisoned one holds nothing half-done.
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Kind, Entry>> {
        self.kinds.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<Kind, Entry>> {
        self.kinds.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn standing(&self) -> Option<Standing> {
        let worst = [Standing::Pending, Standing::Refused, Standing::Absent, Standing::Live];
        worst.into_iter().find(|standing| self.watches.values().any(|watched| watched.standing == *standing))
    }

    fn has_seen(&self, written: &Written) -> bool {
        has_seen(&self.cache, &self.watches, written)
    }
}

fn has_seen(cache: &Cache, watches: &BTreeMap<Scope, Watched>, written: &Written) -> bool {
    let own_scope = written.key.namespace.clone();
    let watched = watches.get(&None).or_else(|| watches.get(&own_scope));
    match watched {
        // Not ours to see.
        None => true,
        Some(watched) if watched.standing == Standing::Absent => true,
        Some(watched) => shows(cache.get(&written.key).map(Arc::as_ref), &watched.seen, written),
    }
}

/// Stands in line for a write to be seen, and leaves when it no longer waits.
struct Awaiting<'a> {
    caches: &'a Caches,
    kind: &'a Kind,
    told: Arc<Notify>,
}

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.caches.write().get_mut(self.kind) {
            entry.awaited.retain(|(_, told)| !Arc::ptr_eq(told, &self.told));
        }
    }
}

/// A version that is already here is no change: lists repeat what watches have told.
fn put(cache: &mut Cache, object: Arc<Object>) -> Option<Change> {
    if let Some(before) = cache.known(&object)
        && before.uid() == object.uid()
        && !object.resource_version().is_empty()
        && before.resource_version() == object.resource_version()
    {
        return None;
    }
    let before = cache.put(Arc::clone(&object));
    Some(Change { before, after: Some(object) })
}

impl View for Caches {
    fn get(&self, kind: &Kind, key: &Key) -> Option<Arc<Object>> {
        self.read().get(kind)?.cache.get(key).cloned()
    }

    fn list(&self, kind: &Kind, namespace: Option<&str>) -> Vec<Arc<Object>> {
        self.read().get(kind).map(|entry| entry.cache.list(namespace)).unwrap_or_default()
    }

    fn is_empty(&self, kind: &Kind) -> bool {
        self.read().get(kind).is_none_or(|entry| entry.cache.is_empty())
    }

    fn owned(&self, kind: &Kind, owner_uid: &str) -> Vec<Arc<Object>> {
        self.read().get(kind).map(|entry| entry.cache.owned(owner_uid)).unwrap_or_default()
    }

    fn visit_owned(&self, kind: &Kind, owner_uid: &str, visit: &mut dyn FnMut(&Arc<Object>)) {
        if let Some(entry) = self.read().get(kind) {
            entry.cache.visit_owned(owner_uid, visit);
        }
    }

    fn labelled(&self, kind: &Kind, label: &str, value: &str) -> Vec<Arc<Object>> {
        self.read().get(kind).map(|entry| entry.cache.labelled(label, value)).unwrap_or_default()
    }

    fn first_in_line(&self, kind: &Kind, line: &Line, owner_uid: &str) -> Option<Arc<Object>> {
        self.read().get(kind)?.cache.first_in_line(line, owner_uid).cloned()
    }

    fn in_line(&self, kind: &Kind, line: &Line, owner_uid: &str) -> Vec<Arc<Object>> {
        self.read().get(kind).map(|entry| entry.cache.in_line(line, owner_uid)).unwrap_or_default()
    }

    fn count_in_line(&self, kind: &Kind, line: &Line, owner_uid: &str, before: Option<&Spot>) -> usize {
        self.read().get(kind).map_or(0, |entry| entry.cache.count_in_line(line, owner_uid, before))
    }

    fn dependents(&self, owner_uid: &str) -> Vec<Arc<Object>> {
        self.read().values().flat_map(|entry| entry.cache.owned(owner_uid)).collect()
    }

    fn serves(&self, kind: &Kind) -> Served {
        match self.standing(kind) {
            Some(Standing::Live) => Served::Yes,
            Some(Standing::Pending | Standing::Absent | Standing::Refused) | None => Served::No,
        }
    }

    fn resolve(&self, api_version: &str, kind: &str) -> Option<Kind> {
        let group = group_of(api_version);
        let kinds = self.read();
        let live = |entry: &Entry| entry.standing() == Some(Standing::Live);
        kinds
            .iter()
            .find(|(known, entry)| known.group == group && known.kind == kind && live(entry))
            .map(|(known, _)| known.clone())
    }

    fn by_uid(&self, kind: &Kind, uid: &str) -> Option<Arc<Object>> {
        self.read().get(kind)?.cache.by_uid(uid).cloned()
    }

    fn kinds(&self) -> Vec<Kind> {
        let kinds = self.read();
        let live = kinds.iter().filter(|(_, entry)| entry.standing() == Some(Standing::Live));
        live.map(|(kind, _)| kind.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const POD: Kind = Kind::of("", "v1", "Pod", "pods", true);

    fn pod(namespace: &str, name: &str, version: u32) -> Arc<Object> {
        let metadata = json!({"name": name, "namespace": namespace, "uid": name,
            "resourceVersion": version.to_string()});
        Object::new(POD, json!({"metadata": metadata})).unwrap()
    }

    fn listed(objects: Vec<Arc<Object>>, resource_version: &str) -> Listed {
        Listed { objects, unreadable: BTreeSet::new(), resource_version: resource_version.to_owned() }
    }

    #[test]
    fn a_list_ends_what_it_does_not_name_and_repeats_nothing() {
        let caches = Caches::default();
        caches.add(&POD, None, &BTreeSet::new(), &[]);
        let first = vec![pod("n", "a", 1), pod("n", "b", 2)];
        assert_eq!(caches.replace(&POD, &None, 0, listed(first, "2")).len(), 2);
        let changes = caches.replace(&POD, &None, 0, listed(vec![pod("n", "b", 2)], "9"));
        assert_eq!(changes.len(), 1);
        assert!(changes[0].after.is_none() && changes[0].before.as_ref().unwrap().name() == "a");
    }

    #[test]
    fn one_namespace_listed_leaves_the_others_alone() {
        let caches = Caches::default();
        for namespace in ["a", "b"] {
            caches.add(&POD, Some(namespace.to_owned()), &BTreeSet::new(), &[]);
            caches.replace(&POD, &Some(namespace.to_owned()), 0, listed(vec![pod(namespace, "p", 1)], "1"));
        }
        caches.replace(&POD, &Some("a".to_owned()), 0, listed(vec![], "5"));
        assert_eq!(caches.list(&POD, None).len(), 1);
        assert_eq!(caches.standing(&POD), Some(Standing::Live));
    }

    #[test]
    fn an_object_that_cannot_be_read_stays_as_it_was_known() {
        let caches = Caches::default();
        caches.add(&POD, None, &BTreeSet::new(), &[]);
        caches.replace(&POD, &None, 0, listed(vec![pod("n", "a", 1)], "1"));
        let unreadable = BTreeSet::from([Key::new(Some("n"), "a")]);
        let listed = Listed { objects: vec![], unreadable, resource_version: "4".into() };
        assert!(caches.replace(&POD, &None, 0, listed).is_empty());
        assert!(caches.get(&POD, &Key::new(Some("n"), "a")).is_some());
    }
}
