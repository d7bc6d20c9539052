//! One running copy of the controllers, without a runtime: caches that lag, a set of dirty objects, plans half applied.
//!
//! It does what the loop in `engine` does, one step at a time and in whatever order the simulation picks. What it
//! shares with the loop is everything that decides: machines, views, `apply`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use pawl_api::meta::Kind;
use pawl_apiserver::ChangeType;
use pawl_machines::apply::{Applying, Outcome, Written};
use pawl_machines::backoff;
use pawl_machines::cache::World;
use pawl_machines::machine::{AnyMachine, Fault, Primary, Wakes};
use pawl_machines::object::{Key, Object};
use pawl_machines::plan::{Refusal, Wake};
use pawl_machines::view::{Input, View};

use crate::ground::{Ground, Happened};
use crate::mutant::Guards;

/// One object in one machine's care.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Item {
    pub machine: usize,
    pub kind: Kind,
    pub key: Key,
}

/// One copy of the controllers.
#[derive(Debug)]
pub struct Replica {
    machines: Arc<[AnyMachine]>,
    guards: Guards,
    caches: World,
    /// Per kind, the revision up to which its watch has delivered.
    progress: BTreeMap<Kind, u64>,
    /// Per kind, where in the history its watch stands.
    position: BTreeMap<Kind, usize>,
    dirty: BTreeSet<Item>,
    timers: BTreeMap<Item, Timestamp>,
    failures: BTreeMap<Item, u32>,
    refusals: BTreeMap<Item, Vec<Refusal>>,
    awaited: BTreeMap<Item, Vec<Written>>,
    running: Vec<(Item, Applying)>,
    last_delivered: Option<Arc<Object>>,
}

impl Replica {
    /// Starts: lists everything, and looks at all of it.
    pub fn start(machines: &Arc<[AnyMachine]>, guards: Guards, ground: &Ground) -> Self {
        let mut replica = Self {
            machines: Arc::clone(machines),
            guards,
            caches: World::default(),
            progress: BTreeMap::new(),
            position: BTreeMap::new(),
            dirty: BTreeSet::new(),
            timers: BTreeMap::new(),
            failures: BTreeMap::new(),
            refusals: BTreeMap::new(),
            awaited: BTreeMap::new(),
            running: Vec::new(),
            last_delivered: None,
        };
        replica.relist(ground);
        replica
    }

    /// Lists everything anew: what happened in between is never seen, only its result.
    pub fn relist(&mut self, ground: &Ground) {
        self.caches = World::default();
        for (kind, objects) in &ground.live {
            for object in objects.values() {
                self.caches.put(Arc::clone(object));
            }
            self.progress.insert(kind.clone(), ground.revision());
            self.position.insert(kind.clone(), ground.by_kind.get(kind).map_or(0, Vec::len));
        }
        for object in ground.live.values().flat_map(BTreeMap::values) {
            self.wake(object);
        }
        // Objects that vanished in between must wake their owners too; a loop compares the lists, we wake all.
        let known: Vec<Item> = self.timers.keys().chain(self.awaited.keys()).cloned().collect();
        self.dirty.extend(known);
    }

    /// The kinds whose watches have something to deliver.
    pub fn deliverable(&self, ground: &Ground) -> Vec<Kind> {
        ground.live.keys().filter(|kind| self.next_event(ground, kind).is_some()).cloned().collect()
    }

    fn next_event<'g>(&self, ground: &'g Ground, kind: &Kind) -> Option<&'g Happened> {
        let position = self.position.get(kind).copied().unwrap_or_default();
        ground.history.get(*ground.by_kind.get(kind)?.get(position)?)
    }

    /// Delivers the next event of one kind.
    pub fn deliver(&mut self, ground: &Ground, kind: &Kind) {
        let Some(Happened { revision, what, object }) = self.next_event(ground, kind).cloned() else { return };
        *self.position.entry(kind.clone()).or_default() += 1;
        self.progress.insert(kind.clone(), revision);
        match what {
            ChangeType::Added | ChangeType::Modified => self.caches.put(Arc::clone(&object)),
            ChangeType::Deleted => {
                self.caches.remove(kind, &object.key());
            }
        }
        self.wake(&object);
        self.last_delivered = Some(object);
    }

    /// The last event once more: watches promise at least once, not exactly once.
    pub fn deliver_again(&mut self) {
        if let Some(object) = self.last_delivered.clone() {
            self.wake(&object);
        }
    }

    /// Everything that may be looked at now.
    pub fn startable(&self) -> impl Iterator<Item = &Item> {
        self.dirty.iter().filter(|item| {
            let busy = self.running.iter().any(|(running, _)| running.kind == item.kind && running.key == item.key);
            !busy && (!self.guards.read_your_writes || self.has_seen_its_writes(item))
        })
    }

    pub fn running(&self) -> usize {
        self.running.len()
    }

    pub fn next_timer(&self) -> Option<Timestamp> {
        self.timers.values().min().copied()
    }

    /// Makes dirty whatever is due.
    pub fn tick(&mut self, now: Timestamp) {
        let due: Vec<Item> = self.timers.iter().filter(|(_, at)| **at <= now).map(|(item, _)| item.clone()).collect();
        for item in due {
            self.timers.remove(&item);
            self.dirty.insert(item);
        }
    }

    /// Observes and decides; what is to be sent is then sent one request at a time.
    ///
    /// # Errors
    /// When the machine decided what it must not.
    pub fn look(&mut self, item: &Item, now: Timestamp) -> Result<(), Fault> {
        self.dirty.remove(item);
        self.timers.remove(item);
        self.awaited.remove(item);
        let Some(me) = self.caches.get(&item.kind, &item.key) else {
            self.failures.remove(item);
            self.refusals.remove(item);
            return Ok(());
        };
        let Some(machine) = self.machines.get(item.machine) else { return Ok(()) };
        let refusals = self.refusals.get(item).cloned().unwrap_or_default();
        let plan = machine.plan(&Input { view: &self.caches, me: &me, refusals: &refusals }, now)?;
        if let Wake::At(at) = plan.wake {
            self.timers.insert(item.clone(), at);
        }
        let applying = Applying::with_guards(plan, me, now, self.guards.applying);
        if applying.is_idle() {
            self.failures.remove(item);
        } else {
            self.running.push((item.clone(), applying));
        }
        Ok(())
    }

    /// The plan at `slot`, to be driven one request further.
    pub fn applying(&mut self, slot: usize) -> Option<&mut Applying> {
        self.running.get_mut(slot).map(|(_, applying)| applying)
    }

    /// The plan at `slot` is over.
    pub fn finish(&mut self, slot: usize, now: Timestamp, jitter: f64) {
        if slot >= self.running.len() {
            return;
        }
        let (item, applying) = self.running.swap_remove(slot);
        let Outcome { writes, refusals, failure, lost_notes: _ } = applying.finish();
        self.awaited.insert(item.clone(), writes);
        let refused = !refusals.is_empty();
        if refused {
            // Decide again at once, knowing what was refused.
            self.refusals.insert(item.clone(), refusals);
            self.dirty.insert(item.clone());
        }
        if failure.is_some() {
            let failures = self.failures.entry(item.clone()).or_default();
            *failures += 1;
            let wait = backoff::delay(*failures, jitter);
            let at = now.checked_add(SignedDuration::try_from(wait).unwrap_or_default()).unwrap_or(now);
            let at = self.timers.get(&item).map_or(at, |earlier| at.min(*earlier));
            self.timers.insert(item, at);
        } else if !refused {
            self.failures.remove(&item);
        }
    }

    /// Whether the caches are at least as new as this item's own last writes.
    fn has_seen_its_writes(&self, item: &Item) -> bool {
        self.awaited.get(item).into_iter().flatten().all(|written| self.has_seen(written))
    }

    fn has_seen(&self, written: &Written) -> bool {
        let Written { kind, key, uid, resource_version, deleted } = written;
        let progress = self.progress.get(kind).copied().unwrap_or_default();
        if let Ok(version) = resource_version.parse::<u64>() {
            if progress >= version {
                return true;
            }
        }
        match self.caches.get(kind, key) {
            None => *deleted,
            Some(cached) => *deleted && (cached.uid() != uid || cached.is_deleting()),
        }
    }

    /// Makes dirty whoever is concerned by a change of this object.
    fn wake(&mut self, object: &Arc<Object>) {
        for (index, machine) in Arc::clone(&self.machines).iter().enumerate() {
            let mut woken = |kind: &Kind, key: Key| {
                let item = Item { machine: index, kind: kind.clone(), key };
                self.refusals.remove(&item);
                self.dirty.insert(item);
            };
            let description = machine.description();
            match &description.primary {
                Primary::One(kind) => {
                    if kind == object.kind() {
                        woken(kind, object.key());
                    }
                    for watch in description.watches.iter().filter(|watch| watch.kind == *object.kind()) {
                        for key in concerned(&watch.wakes, kind, object, &self.caches) {
                            woken(kind, key);
                        }
                    }
                }
                Primary::Every => {
                    woken(object.kind(), object.key());
                    for dependent in self.caches.dependents(object.uid()) {
                        woken(dependent.kind(), dependent.key());
                    }
                    for owner in object.owners() {
                        if let Some(kind) = self.caches.resolve(&owner.api_version, &owner.kind) {
                            let namespace = object.namespace().filter(|_| kind.namespaced);
                            woken(&kind, Key::new(namespace, &owner.name));
                        }
                    }
                }
            }
        }
    }
}

fn concerned(wakes: &Wakes, primary: &Kind, object: &Object, view: &dyn View) -> Vec<Key> {
    match wakes {
        Wakes::Controller => object
            .controller()
            .filter(|owner| owner.kind == primary.kind)
            .map(|owner| Key::new(object.namespace(), &owner.name))
            .into_iter()
            .collect(),
        Wakes::Labels { namespace, name } => {
            let namespace = namespace.map_or(object.namespace(), |label| object.label(label));
            object.label(name).map(|name| Key::new(namespace, name)).into_iter().collect()
        }
        Wakes::By(concerned) => concerned(object, view),
    }
}
