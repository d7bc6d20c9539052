//! The loop as a whole: which informers run, which machine may decide, who is looked at next, and how it stops.
//!
//! ```text
//!  build ─▶ run ─▶ (leader, if asked) ─▶ each machine as soon as all it looks at was listed once ─▶ shutdown
//!                                                                                  │
//!                               nothing new is taken, plans under way are finished (GRACE), the lease is given back
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pawl_api::meta::Kind;
use pawl_machines::machine::{AnyMachine, Primary};
use pawl_machines::view::View;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::caches::{Caches, Change, Scope, Standing};
use crate::census::Census;
use crate::clock::{Clock, SystemClock, Time};
use crate::discovery::CRD;
use crate::error::Error;
use crate::informer::Listener;
use crate::leader::{self, Election};
use crate::ledger::{Ledger, Unkept};
use crate::metrics::{MachineLabels, Metrics};
use crate::ports::Ports;
use crate::queue::{self, Queue, Work};
use crate::reconcile::{Memory, Slot};
use crate::routing::{Need, Router, looks_at_everything};
use crate::scribe::{self, Scribe};
use crate::telling::Told;
use crate::wire::Wire;

/// How long plans under way may take to finish when the loop stops: Kubernetes kills a pod 30 s after asking it to go,
/// and the lease has to be given back too.
pub const GRACE: Duration = Duration::from_secs(20);

/// How many objects are looked at at the same time unless said otherwise: requests, not decisions, take the time, and
/// an API server lets a client have some dozens in flight.
const CONCURRENCY: usize = 16;

/// How many external calls are under way at the same time: GitHub slows down who has more than a hundred.
const EXTERNAL_CONCURRENCY: usize = 48;

/// How a loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Everything that was begun was finished.
    Clean,
    /// This many plans were cut off; what they had sent stands, and the next look goes on from there.
    Cut { unfinished: usize },
}

/// A loop. Clones are the same loop.
#[derive(Clone, Debug)]
pub struct Engine {
    core: Arc<Core>,
    settings: Arc<Settings>,
}

/// What a loop is made of.
#[derive(Debug)]
pub struct Builder {
    wire: Wire,
    machines: Vec<AnyMachine>,
    clock: Arc<dyn Clock>,
    ports: Ports,
    ledger: Arc<dyn Ledger>,
    resync: Duration,
    concurrency: usize,
    settings: Settings,
}

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) seed: u64,
    namespaces: Vec<String>,
    election: Option<leader::Config>,
}

/// What all parts of one loop share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) wire: Wire,
    pub(crate) caches: Arc<Caches>,
    pub(crate) router: Router,
    queue: Mutex<Queue>,
    /// There may be something to take.
    pub(crate) work: Notify,
    pub(crate) memories: Mutex<BTreeMap<Work, Memory>>,
    /// What the ledger was offered of each audited object.
    pub(crate) told: Mutex<BTreeMap<Work, Told>>,
    pub(crate) scribe: Scribe,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) time: Time,
    /// How many objects may be looked at at the same time.
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) ports: Ports,
    pub(crate) ledger: Arc<dyn Ledger>,
    /// How many external calls may be under way.
    pub(crate) external_slots: Semaphore,
    pub(crate) leading: AtomicBool,
    /// Every kind there is has been asked for once.
    pub(crate) discovered: AtomicBool,
    ready: watch::Sender<bool>,
    running: AtomicBool,
}

impl Engine {
    /// Begins a loop over a client. Must be called inside the runtime that will run it.
    pub fn builder(client: kube::Client) -> Builder {
        Builder {
            wire: Wire::new(client),
            machines: Vec::new(),
            clock: Arc::new(SystemClock),
            ports: Ports::default(),
            ledger: Arc::new(Unkept),
            resync: queue::RESYNC,
            concurrency: CONCURRENCY,
            settings: Settings { seed: 0, namespaces: Vec::new(), election: None },
        }
    }

    /// Runs until `shutdown` completes, then finishes what was begun. Once only: a loop that has stopped, or whose
    /// future was dropped, is built anew.
    pub async fn run(&self, shutdown: impl Future<Output = ()>) -> Stopped {
        let Self { core, settings } = self;
        core.running.store(true, Ordering::SeqCst);
        let mut helpers = JoinSet::new();
        for need in self.needs() {
            for scope in settings.scopes(&need.kind) {
                helpers.spawn(core.feed(&need, scope, settings.seed));
            }
        }
        helpers.spawn(Arc::clone(core).follow_the_ledger());
        if core.router.needs_everything() {
            helpers.spawn(Arc::clone(core).follow_every_kind(Arc::clone(settings)));
        }
        helpers.spawn(Arc::clone(core).write_events());
        let caches = Arc::clone(&core.caches);
        helpers.spawn(async move { caches.let_rest().await });
        let (leads, leading) = watch::channel(settings.election.is_none());
        let (stop, stopping) = watch::channel(false);
        // In a set of its own: if this future is dropped, the lease is no longer renewed either.
        let mut election = JoinSet::new();
        if let Some(config) = settings.election.clone() {
            let candidate = Election::new(core.wire.clone(), config, core.time.clone(), settings.seed, leads);
            election.spawn(candidate.run(stopping));
        }
        let stopped = self.dispatch(shutdown, leading).await;
        let _ = timeout(scribe::LAST_WORDS, core.tell_all()).await;
        stop.send_replace(true);
        // Giving the lease back is a courtesy, and bounded: the others then need not wait for it to expire.
        while election.join_next().await.is_some() {}
        helpers.abort_all();
        while helpers.join_next().await.is_some() {}
        core.running.store(false, Ordering::SeqCst);
        stopped
    }

    /// Waits until every machine has seen all it looks at.
    pub async fn ready(&self) {
        let mut ready = self.core.ready.subscribe();
        // The sender lives as long as the core, which we hold.
        let _ = ready.wait_for(|ready| *ready).await;
    }

    pub fn is_ready(&self) -> bool {
        *self.core.ready.borrow()
    }

    pub fn is_running(&self) -> bool {
        self.core.running.load(Ordering::SeqCst)
    }

    pub fn is_leading(&self) -> bool {
        self.core.leading.load(Ordering::SeqCst)
    }

    pub fn metrics(&self) -> &Metrics {
        &self.core.metrics
    }

    /// What the informers know.
    pub fn view(&self) -> &dyn View {
        &*self.core.caches
    }

    /// How the watch of every kind stands.
    pub fn standings(&self) -> Vec<(Kind, Standing)> {
        self.core.caches.standings()
    }

    /// Whether nothing is being looked at, and nothing waits to be.
    pub fn is_idle(&self) -> bool {
        let queue = self.core.queue();
        let waiting = (0..self.core.router.machines().len()).any(|machine| queue.depth(machine) > 0);
        queue.running() == 0 && !waiting
    }

    fn needs(&self) -> Vec<Need> {
        let mut needs = self.core.router.needs();
        // Definitions are watched in any case: they tell when an absent kind comes.
        if !needs.iter().any(|need| need.kind == CRD) {
            needs.push(Need::metadata(CRD));
        }
        needs
    }

    async fn dispatch(
        &self,
        shutdown: impl Future<Output = ()>,
        mut leading: watch::Receiver<bool>,
    ) -> Stopped {
        let core = &self.core;
        let mut shutdown = pin!(shutdown);
        let mut looks = JoinSet::new();
        core.lead(*leading.borrow_and_update());
        loop {
            while core.leading.load(Ordering::SeqCst) {
                let Some(slot) = Slot::try_take(&core.slots) else { break };
                let Some(taken) = core.queue().take(core.time.moment()) else { break };
                core.measure_depth(taken.work.machine);
                looks.spawn(Arc::clone(core).reconcile(taken, slot));
            }
            let may_take = core.leading.load(Ordering::SeqCst) && core.slots.available_permits() > 0;
            let nap = core.queue().next(core.time.moment()).filter(|_| may_take);
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                Ok(()) = leading.changed() => core.lead(*leading.borrow_and_update()),
                Some(_) = looks.join_next() => {}
                () = core.work.notified() => {}
                () = sleep(nap.unwrap_or(queue::RESYNC)) => {}
            }
        }
        let finish = async {
            loop {
                tokio::select! {
                    biased;
                    Ok(()) = leading.changed() => core.lead(*leading.borrow_and_update()),
                    ended = looks.join_next() => if ended.is_none() { break },
                }
            }
        };
        let _ = timeout(GRACE, finish).await;
        match looks.len() {
            0 => Stopped::Clean,
            unfinished => Stopped::Cut { unfinished },
        }
    }
}

impl Builder {
    #[must_use]
    pub fn machine(mut self, machine: AnyMachine) -> Self {
        self.machines.push(machine);
        self
    }

    #[must_use]
    pub fn machines(mut self, machines: impl IntoIterator<Item = AnyMachine>) -> Self {
        self.machines.extend(machines);
        self
    }

    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The ports that carry out the external calls of plans.
    #[must_use]
    pub fn ports(mut self, ports: Ports) -> Self {
        self.ports = ports;
        self
    }

    /// Who keeps what the states of objects say has happened.
    #[must_use]
    pub fn ledger(mut self, ledger: Arc<dyn Ledger>) -> Self {
        self.ledger = ledger;
        self
    }

    /// Where all chance comes from: the same seed makes the same choices.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = seed;
        self
    }

    /// How many objects are looked at at the same time.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency.max(1);
        self
    }

    /// Watches only these namespaces; none means all.
    #[must_use]
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = String>) -> Self {
        self.settings.namespaces = namespaces.into_iter().collect();
        self
    }

    /// How often every object is looked at though nothing changed.
    #[must_use]
    pub fn resync(mut self, resync: Duration) -> Self {
        self.resync = resync;
        self
    }

    /// Acts only while holding a lease.
    #[must_use]
    pub fn leader(mut self, config: leader::Config) -> Self {
        self.settings.election = Some(config);
        self
    }

    /// # Errors
    /// When there is no machine, or two have the same name.
    pub fn build(self) -> Result<Engine, Error> {
        let Self { wire, machines, clock, ports, ledger, resync, concurrency, settings } = self;
        let mut names = BTreeSet::new();
        if let Some(twice) = machines.iter().find(|machine| !names.insert(machine.name())) {
            return Err(Error::SameName { name: twice.name() });
        }
        if machines.is_empty() {
            return Err(Error::NoMachine);
        }
        let core = Core {
            wire,
            caches: Arc::default(),
            queue: Mutex::new(Queue::new(machines.len(), settings.seed).resync_every(resync)),
            router: Router::new(machines),
            work: Notify::new(),
            memories: Mutex::default(),
            told: Mutex::default(),
            scribe: Scribe::default(),
            metrics: Arc::default(),
            time: Time::new(clock),
            slots: Arc::new(Semaphore::new(concurrency)),
            ports,
            ledger,
            external_slots: Semaphore::new(EXTERNAL_CONCURRENCY),
            leading: AtomicBool::new(false),
            discovered: AtomicBool::new(false),
            ready: watch::Sender::new(false),
            running: AtomicBool::new(false),
        };
        let core = Arc::new(core);
        let census = Census::of(&core);
        core.metrics.with_registry(|registry| registry.register_collector(Box::new(census)));
        Ok(Engine { core, settings: Arc::new(settings) })
    }
}

impl Settings {
    /// Where a kind is watched.
    pub(crate) fn scopes(&self, kind: &Kind) -> Vec<Scope> {
        if !kind.namespaced || self.namespaces.is_empty() {
            return vec![None];
        }
        self.namespaces.iter().cloned().map(Some).collect()
    }
}

impl Core {
    pub(crate) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lead(&self, leads: bool) {
        self.metrics.leading.set(i64::from(leads));
        if self.leading.swap(leads, Ordering::SeqCst) != leads {
            tracing::info!(leads, "leadership changed");
            if leads {
                self.ports.begin();
            }
        }
        if leads {
            let now = self.time.moment();
            let mut queue = self.queue();
            (0..self.router.machines().len()).for_each(|machine| queue.wake_all(machine, now));
        }
    }

    /// Lets every machine decide that has seen all it looks at.
    pub(crate) fn open_lanes(&self) {
        let standings: BTreeMap<Kind, Standing> = self.caches.standings().into_iter().collect();
        let every_kind_seen = self.discovered.load(Ordering::SeqCst)
            && standings.values().all(|standing| *standing != Standing::Pending);
        let mut all_open = true;
        for (place, machine) in self.router.machines().iter().enumerate() {
            // Without a kind that is absent a machine can decide; without one it may not see it would decide wrongly.
            let seen = |kind: &&Kind| matches!(standings.get(*kind), Some(Standing::Live | Standing::Absent));
            let open = self.router.kinds_of(place).iter().all(seen)
                && (!looks_at_everything(machine) || every_kind_seen);
            let mut queue = self.queue();
            // What has once been seen stays usable: a lane never closes.
            if open && !queue.is_open(place) {
                queue.open(place, true);
                tracing::info!(machine = machine.name(), "begins");
            }
            all_open &= queue.is_open(place);
        }
        // Lanes never close, so what was found open by anybody stays so: whoever looked earlier and speaks later must not
        // take it back, or those who wait for it might never hear of it.
        self.ready.send_if_modified(|ready| all_open && !std::mem::replace(ready, true));
        self.work.notify_one();
    }

    fn measure_depth(&self, machine: usize) {
        if let Some(known) = self.router.machines().get(machine) {
            let depth = self.queue().depth(machine);
            let labels = MachineLabels { machine: known.name() };
            self.metrics.depth.get_or_create(&labels).set(i64::try_from(depth).unwrap_or(i64::MAX));
        }
    }
}

impl Listener for Core {
    fn changed(&self, change: &Change) {
        self.follow_definition(change);
        let woken = self.router.woken(change, &*self.caches);
        let (now, mut touched) = (self.time.moment(), BTreeSet::new());
        for work in &woken {
            self.note_change(work, change);
            self.queue().wake(work, now);
            touched.insert(work.machine);
        }
        for machine in touched {
            self.measure_depth(machine);
        }
        self.work.notify_one();
    }

    fn stands(&self, kind: &Kind) {
        let Some(standing) = self.caches.standing(kind) else { return };
        self.metrics.standing(kind, standing);
        match standing {
            Standing::Absent => {
                tracing::warn!(%kind, "is not served: machines go on without it until it appears")
            }
            Standing::Refused => {
                tracing::error!(%kind, "may not be listed: machines that need it cannot begin")
            }
            Standing::Pending | Standing::Live => tracing::info!(%kind, state = standing.as_str(), "watch"),
        }
        // Whether a kind is served is something decisions look at.
        let now = self.time.moment();
        for place in self.router.looking_at(kind) {
            let on_every = |machine: &AnyMachine| machine.description().primary == Primary::Every;
            if self.router.machines().get(place).is_some_and(on_every) {
                for object in self.caches.naming(kind) {
                    let work = Work::new(place, object.kind().clone(), object.key());
                    self.queue().wake(&work, now);
                }
            } else {
                self.queue().wake_all(place, now);
            }
        }
        self.open_lanes();
    }
}
