//! One running copy of the controllers, without a runtime: caches that lag, a set of dirty objects, plans half applied.
//!
//! It does what the loop in `engine` does, one step at a time and in whatever order the simulation picks. What it
//! shares with the loop is everything that decides: machines, views, `apply`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use pawl_api::k8s::{CONFIG_MAP, JOB, NAMESPACE, NODE, POD, SECRET};
use pawl_api::meta::Kind;
use pawl_api::pawl::approval;
use pawl_api::remedy::kubernetes_execution;
use pawl_apiserver::ChangeType;
use pawl_engine::Ports;
use pawl_engine::caches::Change;
use pawl_engine::queue::Work;
use pawl_engine::routing::Router;
use pawl_machines::apply::{Applying, Outcome, Written};
use pawl_machines::backoff;
use pawl_machines::cache::World;
use pawl_machines::external::{Answers, Call, Reply};
use pawl_machines::failure::Failure;
use pawl_machines::machine::Fault;
use pawl_machines::object::Object;
use pawl_machines::plan::{Refusal, Wake};
use pawl_machines::view::{Input, View};

use crate::ground::{Ground, Happened};
use crate::mutant::{Guard, Guards};

/// Kinds that the server has whether or not there are objects of them.
const SERVED: &[Kind] = &[CONFIG_MAP, JOB, NAMESPACE, NODE, POD, SECRET];

/// One plan under way: first it is applied, then its questions are asked.
#[derive(Debug)]
struct Running {
    work: Work,
    applying: Option<Applying>,
    asks: Vec<Call>,
    /// Something was not heard: look again later, whatever was decided meanwhile.
    unheard: bool,
    /// The caches showed everything up to this revision when it was decided.
    since: u64,
}

/// One copy of the controllers.
#[derive(Debug)]
pub struct Replica {
    router: Arc<Router>,
    guards: Guards,
    caches: World,
    /// Per kind, the revision up to which its watch has delivered.
    progress: BTreeMap<Kind, u64>,
    /// Per kind, where in the history its watch stands.
    position: BTreeMap<Kind, usize>,
    dirty: BTreeSet<Work>,
    timers: BTreeMap<Work, Timestamp>,
    failures: BTreeMap<Work, u32>,
    refusals: BTreeMap<Work, Vec<Refusal>>,
    /// What looks kept for the next ones.
    awaited: BTreeMap<Work, Vec<Written>>,
    running: Vec<Running>,
    /// The replies to external calls, by the reconcile that made them.
    answers: BTreeMap<Work, Answers>,
    /// By the same, up to which revision the caches had shown everything when it began.
    begun: BTreeMap<Work, u64>,
    ports: Ports,
    last_delivered: Option<Change>,
}

impl Replica {
    /// Starts: lists everything, and looks at all of it.
    pub fn start(router: &Arc<Router>, guards: Guards, ground: &Ground, ports: Ports) -> Self {
        let mut replica = Self {
            router: Arc::clone(router),
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
            answers: BTreeMap::new(),
            begun: BTreeMap::new(),
            ports,
            last_delivered: None,
        };
        replica.relist(ground);
        replica
    }

    /// Lists everything anew: what happened in between is never seen, only its result.
    pub fn relist(&mut self, ground: &Ground) {
        let before = std::mem::take(&mut self.caches);
        // Discovery tells of a kind before there is an object of it.
        for kind in SERVED {
            self.caches.cache(kind);
        }
        for (kind, objects) in &ground.live {
            let cache = self.caches.cache(kind);
            for object in objects.values() {
                cache.put(Arc::clone(object));
            }
            self.progress.insert(kind.clone(), ground.revision());
            self.position.insert(kind.clone(), ground.by_kind.get(kind).map_or(0, Vec::len));
        }
        let vanished = before.kinds().into_iter().flat_map(|kind| before.list(&kind, None));
        let vanished: Vec<Arc<Object>> =
            vanished.filter(|object| self.caches.get(object.kind(), &object.key()).is_none()).collect();
        for object in ground.live.values().flat_map(BTreeMap::values) {
            let before = before.get(object.kind(), &object.key());
            self.wake(&Change { before, after: Some(Arc::clone(object)) });
        }
        for object in vanished {
            self.wake(&Change { before: Some(object), after: None });
        }
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
        let Some(Happened { revision, what, object, .. }) = self.next_event(ground, kind).cloned() else {
            return;
        };
        *self.position.entry(kind.clone()).or_default() += 1;
        self.progress.insert(kind.clone(), revision);
        let cache = self.caches.cache(kind);
        let change = match what {
            ChangeType::Added | ChangeType::Modified => {
                Change { before: cache.put(Arc::clone(&object)), after: Some(object) }
            }
            // What the event says is newer than what the cache had.
            ChangeType::Deleted => {
                cache.remove(&object.key());
                Change { before: Some(object), after: None }
            }
        };
        self.wake(&change);
        self.last_delivered = Some(change);
    }

    /// The last event once more: watches promise at least once, not exactly once.
    pub fn deliver_again(&mut self) {
        if let Some(change) = self.last_delivered.clone() {
            self.wake(&change);
        }
    }

    /// Everything that may be looked at now.
    pub fn startable(&self) -> impl Iterator<Item = &Work> {
        self.dirty.iter().filter(|item| {
            let busy = self
                .running
                .iter()
                .any(|Running { work, .. }| work.kind == item.kind && work.key == item.key);
            !busy && (!self.guards.has(Guard::ReadYourWrites) || self.has_seen_its_writes(item))
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
        let due: Vec<Work> =
            self.timers.iter().filter(|(_, at)| **at <= now).map(|(item, _)| item.clone()).collect();
        for item in due {
            self.timers.remove(&item);
            self.dirty.insert(item);
        }
    }

    /// The revision up to which the watches of what an approval is about have shown everything.
    pub fn has_seen_up_to(&self, ground: &Ground) -> u64 {
        static JUDGED: [Kind; 3] = [CONFIG_MAP, approval::KIND, kubernetes_execution::KIND];
        let missed = JUDGED.iter().filter_map(|kind| self.next_event(ground, kind));
        missed.map(|happened| happened.revision - 1).min().unwrap_or(ground.revision())
    }

    /// Reconciles an object; what is to be sent is then sent one request at a time.
    ///
    /// # Errors
    /// When the machine decided what it must not.
    pub fn look(&mut self, item: &Work, now: Timestamp, seen: u64) -> Result<(), Fault> {
        self.dirty.remove(item);
        self.timers.remove(item);
        self.awaited.remove(item);
        let Some(me) = self.caches.get(&item.kind, &item.key) else {
            self.failures.remove(item);
            self.refusals.remove(item);
            self.answers.remove(item);
            return Ok(());
        };
        let Some(machine) = self.router.machine(item) else { return Ok(()) };
        let begun = self.begun.get(item).copied().filter(|_| self.answers.contains_key(item));
        let since = begun.map_or(seen, |begun| begun.min(seen));
        self.begun.insert(item.clone(), since);
        let refusals = self.refusals.get(item).cloned().unwrap_or_default();
        let answers = Arc::new(self.answers.remove(item).unwrap_or_default());
        let mut plan = {
            let (view, shown) = (self.guards.view(&self.caches, &me), self.guards.shown(&self.caches, &me));
            let input = Input { view: &view, me: &shown, refusals: &refusals, answers: &answers };
            machine.plan(&input, now)?
        };
        self.guards.decided(&self.caches, &me, &mut plan);
        let asks = std::mem::take(&mut plan.asks);
        let unheard = answers.unheard().is_some() && asks.is_empty();
        if let Wake::At(at) = plan.wake {
            self.timers.insert(item.clone(), at);
        }
        let applying = Applying::new(plan, me, now);
        if applying.is_idle() && asks.is_empty() {
            if unheard {
                self.back_off(item, now, 0.5);
            } else {
                self.failures.remove(item);
            }
        }
        if !asks.is_empty() {
            self.answers.insert(item.clone(), Arc::unwrap_or_clone(answers));
        }
        if !applying.is_idle() || !asks.is_empty() {
            self.running.push(Running { work: item.clone(), applying: Some(applying), asks, unheard, since });
        }
        Ok(())
    }

    /// It begins to lead: it looks at everything, and its ports drop what they remember.
    pub fn lead(&mut self) {
        self.ports.begin();
        let kinds = self.caches.kinds();
        let all: Vec<Arc<Object>> = kinds.iter().flat_map(|kind| self.caches.list(kind, None)).collect();
        for object in all {
            self.wake(&Change { before: None, after: Some(object) });
        }
    }

    /// It no longer leads: what it has not sent yet is not sent.
    pub fn abandon(&mut self) {
        self.running.clear();
        self.answers.clear();
    }

    /// What its watches have shown.
    pub fn view(&self) -> &dyn View {
        &self.caches
    }

    /// Whose plan is at `slot`.
    pub fn machine_at(&self, slot: usize) -> &'static str {
        let work = self.running.get(slot).map(|running| &running.work);
        work.and_then(|work| self.router.machine(work)).map_or("", |machine| machine.name())
    }

    /// The revision up to which the caches had shown everything when the plan at `slot` was decided.
    pub fn decided_since(&self, slot: usize) -> u64 {
        self.running.get(slot).map_or(0, |running| running.since)
    }

    /// The plan at `slot`, to be driven one request further.
    pub fn applying(&mut self, slot: usize) -> Option<&mut Applying> {
        self.running.get_mut(slot).and_then(|running| running.applying.as_mut())
    }

    /// The plan at `slot` is over.
    pub fn finish(&mut self, slot: usize, now: Timestamp, jitter: f64) {
        if slot >= self.running.len() {
            return;
        }
        let Running { work: item, applying, asks, unheard, since } = self.running.swap_remove(slot);
        let Some(applying) = applying else { return };
        let asking = !asks.is_empty();
        let Outcome { writes, refusals, failure, lost_notes: _ } = applying.finish();
        self.awaited.insert(item.clone(), writes);
        let refused = !refusals.is_empty();
        if refused {
            // Decide again at once, knowing what was refused.
            self.refusals.insert(item.clone(), refusals);
            self.dirty.insert(item.clone());
        }
        if failure.is_some() {
            self.answers.remove(&item);
        } else if !refused && !asks.is_empty() {
            self.running.push(Running { work: item.clone(), applying: None, asks, unheard, since });
        }
        if failure.is_some() || unheard {
            self.back_off(&item, now, jitter);
        } else if !refused && !asking {
            self.failures.remove(&item);
        }
    }

    /// The next external call of the plan at `slot`, and the ports that carry it out, once its steps are done.
    pub fn asking(&self, slot: usize) -> Option<(Call, Ports)> {
        let running = self.running.get(slot).filter(|running| running.applying.is_none())?;
        Some((running.asks.first()?.clone(), self.ports.clone()))
    }

    /// What was heard; after the last question the object is decided on again.
    pub fn heard(&mut self, slot: usize, call: Call, answer: Result<Reply, Failure>) {
        let Some(running) = self.running.get_mut(slot) else { return };
        running.asks.retain(|asked| *asked != call);
        self.answers.entry(running.work.clone()).or_default().put(call, answer);
        if running.asks.is_empty() {
            let Running { work, .. } = self.running.swap_remove(slot);
            self.dirty.insert(work);
        }
    }

    fn back_off(&mut self, item: &Work, now: Timestamp, jitter: f64) {
        let failures = self.failures.entry(item.clone()).or_default();
        *failures += 1;
        let wait = backoff::after_error(*failures, jitter);
        let at = now.checked_add(SignedDuration::try_from(wait).unwrap_or_default()).unwrap_or(now);
        let at = self.timers.get(item).map_or(at, |earlier| at.min(*earlier));
        self.timers.insert(item.clone(), at);
    }

    /// Whether the caches are at least as new as this item's own last writes.
    fn has_seen_its_writes(&self, item: &Work) -> bool {
        self.awaited.get(item).into_iter().flatten().all(|written| self.has_seen(written))
    }

    fn has_seen(&self, written: &Written) -> bool {
        let Written { kind, key, uid, resource_version, deleted } = written;
        let progress = self.progress.get(kind).copied().unwrap_or_default();
        if resource_version.parse::<u64>().is_ok_and(|version| progress >= version) {
            return true;
        }
        match self.caches.get(kind, key) {
            None => *deleted,
            Some(cached) => *deleted && (cached.uid() != uid || cached.is_deleting()),
        }
    }

    /// Makes dirty whoever is concerned by a change.
    fn wake(&mut self, change: &Change) {
        for work in self.router.woken(change, &self.caches) {
            self.refusals.remove(&work);
            self.dirty.insert(work);
        }
    }
}
