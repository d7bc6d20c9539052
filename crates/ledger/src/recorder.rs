//! How do entries get into the store, whatever happens to it?
//!
//! ```text
//!             offer                       ┌────────── works ──────────┐
//! engine ───────────────▶ queue ─▶ batch ─┤                           ├─▶ store
//!   ▲ standing, changes                   └─ fails ─▶ outbox ─ drained ┘ in order, before anything newer
//!   └────────────────────────────────────────────────────┘ tried again with back-off, 100 ms to 30 s
//! ```
//! One task writes. What arrives while it waits for the disk goes into its next transaction. While rows wait in the
//! outbox, newer ones go behind them, so the chain has the order in which things happened. Without an outbox (a cluster
//! without a volume) rows wait in memory; what a crash loses there is implied by the objects' states, and offered again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use pawl_engine::ledger::{Changes, Ledger};
use pawl_machines::audit::{Entry, Standing};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use uuid::Uuid;

use crate::error::Error;
use crate::outbox::Outbox;
use crate::row::Record;
use crate::store::{Access, Place, Store};

/// Rows of one transaction: its cost is one sync of the disk, which a thousand share, and the first of them waits about
/// 50 ms for the last.
const BATCH: usize = 1_024;

/// Rows held in memory where there is no outbox, or none that can be written: 100 MB of the usual size. Beyond that the
/// oldest stay, and the newer are offered again when the store is back.
const MAX_HELD: usize = 100_000;

const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// How long a stopping process waits for the store; what is not stored by then is in the outbox.
const CLOSING: Duration = Duration::from_secs(10);

/// Takes out of a text what nobody may see.
pub type Mask = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Where rows go, and where they wait.
#[derive(Clone)]
pub struct Settings {
    /// `None`: nowhere, and every object says so.
    pub place: Option<Place>,
    /// A file beside the data; `None` where there is no volume.
    pub outbox: Option<PathBuf>,
    pub mask: Mask,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { place, outbox, mask: _ } = self;
        f.debug_struct("Settings").field("place", place).field("outbox", outbox).finish_non_exhaustive()
    }
}

/// The engine's way to the ledger. Cheap to clone; it stops with [`Recorder::close`].
#[derive(Clone)]
pub struct Recorder {
    shared: Arc<Shared>,
    mask: Mask,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("has_store", &self.shared.has_store).finish_non_exhaustive()
    }
}

/// The task that writes.
#[derive(Debug)]
pub struct Writing(JoinHandle<()>);

struct Shared {
    has_store: bool,
    state: Mutex<State>,
    /// Something was offered, or closing was asked for.
    work: Notify,
    /// Something became safe, or nothing will.
    progress: watch::Sender<u64>,
    changes: watch::Sender<Changes>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Record>,
    /// By object: what is not stored yet, in the order in which it came.
    waiting: BTreeMap<String, Vec<Uuid>>,
    /// Of those, the ones that a power cut would take.
    volatile: BTreeMap<String, BTreeSet<Uuid>>,
    /// Why the store does not work, while it does not.
    trouble: Option<String>,
    /// Rows cannot be made safe: there is no outbox, or it does not work either.
    hopeless: bool,
    closing: bool,
}

impl Recorder {
    /// Begins. A store that cannot be reached yet is tried again; an outbox that cannot be used is an error at once.
    ///
    /// # Errors
    /// When the outbox cannot be opened.
    pub fn start(settings: Settings) -> Result<(Self, Writing), Error> {
        let Settings { place, outbox, mask } = settings;
        let outbox = outbox.as_deref().map(Outbox::open).transpose()?;
        let shared = Arc::new(Shared {
            has_store: place.is_some(),
            state: Mutex::default(),
            work: Notify::new(),
            progress: watch::Sender::new(0),
            changes: watch::Sender::new(Changes::default()),
        });
        let task = match place {
            None => tokio::spawn(std::future::ready(())),
            Some(place) => {
                let writer = Writer { shared: Arc::clone(&shared), place, store: None, outbox, retry: None };
                tokio::spawn(writer.run())
            }
        };
        Ok((Self { shared, mask }, Writing(task)))
    }

    /// Stops: what was offered is stored, or in the outbox.
    pub async fn close(&self, writing: Writing) {
        self.shared.state().closing = true;
        self.shared.work.notify_one();
        let Writing(mut task) = writing;
        if timeout(CLOSING, &mut task).await.is_err() {
            task.abort();
            tracing::warn!(
                "the ledger did not stop in time; what is missing is offered again after the next start"
            );
        }
    }
}

impl Ledger for Recorder {
    fn offer(&self, entries: Vec<Entry>) {
        if !self.shared.has_store || entries.is_empty() {
            return;
        }
        let records: Vec<Record> = entries.iter().map(|entry| Record::of(entry, &*self.mask)).collect();
        let dropped = self.shared.state().take(records);
        if dropped {
            self.shared.changes.send_modify(|changes| changes.dropped += 1);
        }
        self.shared.work.notify_one();
    }

    fn keep<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut progress = self.shared.progress.subscribe();
            loop {
                progress.borrow_and_update();
                if self.shared.state().is_safe(uid) || progress.changed().await.is_err() {
                    return;
                }
            }
        })
    }

    fn standing(&self, uid: &str) -> Standing {
        if !self.shared.has_store {
            return Standing::NoStore;
        }
        let state = self.shared.state();
        match (&state.trouble, state.waiting.get(uid)) {
            (Some(why), Some(ids)) if !ids.is_empty() => {
                Standing::Waiting { why: why.clone(), ids: ids.clone() }
            }
            (Some(_), _) | (None, _) => Standing::Recorded,
        }
    }

    fn backlog(&self) -> usize {
        self.shared.state().waiting.values().map(Vec::len).sum()
    }

    fn changes(&self) -> watch::Receiver<Changes> {
        self.shared.changes.subscribe()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moved(&self) {
        self.progress.send_modify(|count| *count += 1);
    }

    /// The store works, or does not; whoever asks about standings is told when that changes.
    fn set_trouble(&self, trouble: Option<String>) {
        let before = std::mem::replace(&mut self.state().trouble, trouble.clone());
        if before.is_some() != trouble.is_some() {
            match trouble {
                Some(why) => tracing::warn!(why, "the ledger does not take rows; they wait"),
                None => tracing::info!("the ledger takes rows again, and has those that waited"),
            }
            self.changes.send_modify(|changes| changes.standings += 1);
        }
    }
}

impl State {
    /// True when some could not be held.
    fn take(&mut self, records: Vec<Record>) -> bool {
        let mut dropped = false;
        for record in records {
            let ids = self.waiting.entry(record.uid.clone()).or_default();
            if ids.contains(&record.id) {
                continue;
            }
            if self.queue.len() >= MAX_HELD {
                dropped = true;
                continue;
            }
            ids.push(record.id);
            self.volatile.entry(record.uid.clone()).or_default().insert(record.id);
            self.queue.push_back(record);
        }
        dropped
    }

    fn is_safe(&self, uid: &str) -> bool {
        self.hopeless || self.volatile.get(uid).is_none_or(BTreeSet::is_empty)
    }

    /// These are on disk somewhere.
    fn made_safe(&mut self, records: &[Record]) {
        for record in records {
            if let Some(ids) = self.volatile.get_mut(&record.uid) {
                ids.remove(&record.id);
                if ids.is_empty() {
                    self.volatile.remove(&record.uid);
                }
            }
        }
    }

    fn stored(&mut self, records: &[Record]) {
        self.made_safe(records);
        for record in records {
            if let Some(ids) = self.waiting.get_mut(&record.uid) {
                ids.retain(|id| *id != record.id);
                if ids.is_empty() {
                    self.waiting.remove(&record.uid);
                }
            }
        }
    }
}

/// What the task owns.
struct Writer {
    shared: Arc<Shared>,
    place: Place,
    store: Option<Store>,
    outbox: Option<Outbox>,
    /// When the store is tried again, and how long the wait before was.
    retry: Option<(Instant, Duration)>,
}

impl Writer {
    async fn run(mut self) {
        self.remember_what_waits();
        loop {
            let closing = self.shared.state().closing;
            if self.retry.is_none_or(|(at, _)| Instant::now() >= at) || closing {
                self.write_all().await;
            }
            self.save().await;
            if closing {
                self.say_head().await;
                return;
            }
            let retry = self.retry.map(|(at, _)| at);
            tokio::select! {
                () = self.shared.work.notified() => {}
                () = async { sleep_until(retry.unwrap_or_else(Instant::now)).await }, if retry.is_some() => {}
            }
        }
    }

    /// Rows that an earlier process left in the outbox are not stored yet either.
    fn remember_what_waits(&mut self) {
        let Some(outbox) = &mut self.outbox else { return };
        match outbox.next(MAX_HELD) {
            Ok(batch) => {
                let mut state = self.shared.state();
                for record in batch.records {
                    state.waiting.entry(record.uid).or_default().push(record.id);
                }
            }
            Err(error) => tracing::error!(%error, "what waits in the outbox cannot be read"),
        }
    }

    /// Stores what waits, the outbox first, until nothing is left or the store fails.
    async fn write_all(&mut self) {
        loop {
            match self.write_some().await {
                Ok(true) => {
                    // The first batch after an outage ends it only when nothing older waits any more.
                    if self.outbox.as_ref().is_none_or(Outbox::is_empty) {
                        self.retry = None;
                        self.shared.set_trouble(None);
                    }
                }
                Ok(false) => {
                    self.retry = None;
                    return self.shared.set_trouble(None);
                }
                Err(error) => {
                    let wait = self.retry.map_or(FIRST_RETRY, |(_, wait)| (wait * 2).min(LAST_RETRY));
                    self.retry = Some((Instant::now() + wait, wait));
                    // What state it is in is not known: the next try opens it anew.
                    self.store = None;
                    return self.shared.set_trouble(Some(error.to_string()));
                }
            }
        }
    }

    /// One transaction; false when there was nothing to store.
    async fn write_some(&mut self) -> Result<bool, Error> {
        if let Some(outbox) = self.outbox.as_mut().filter(|outbox| !outbox.is_empty()) {
            let batch = outbox.next(BATCH)?;
            self.append(&batch.records).await?;
            if let Some(outbox) = &mut self.outbox {
                outbox.stored(batch.end)?;
            }
            return Ok(true);
        }
        let batch: Vec<Record> = self.shared.state().queue.iter().take(BATCH).cloned().collect();
        if batch.is_empty() {
            return Ok(false);
        }
        self.append(&batch).await?;
        self.shared.state().queue.drain(..batch.len());
        Ok(true)
    }

    async fn append(&mut self, records: &[Record]) -> Result<(), Error> {
        let store = match &self.store {
            Some(store) => store.clone(),
            None => {
                let store = Store::open(&self.place, Access::Write).await?;
                let head = store.head().await?;
                tracing::info!(place = %self.place, %head, "the ledger is open");
                self.store.insert(store).clone()
            }
        };
        store.append(records.to_vec()).await?;
        let mut state = self.shared.state();
        state.stored(records);
        state.hopeless = false;
        drop(state);
        self.shared.moved();
        Ok(())
    }

    /// While the store fails, what is queued goes to the outbox.
    async fn save(&mut self) {
        if self.retry.is_none() {
            return;
        }
        let batch: Vec<Record> = self.shared.state().queue.iter().cloned().collect();
        let saved = match self.outbox.take() {
            None => Err(None),
            Some(mut outbox) => {
                let rows = batch.clone();
                let put = tokio::task::spawn_blocking(move || {
                    let put = if rows.is_empty() { Ok(()) } else { outbox.put(&rows) };
                    (outbox, put)
                });
                match put.await {
                    Ok((outbox, put)) => {
                        self.outbox = Some(outbox);
                        put.map_err(Some)
                    }
                    Err(ended) => Err(Some(Error::Ended { problem: ended.to_string() })),
                }
            }
        };
        let mut state = self.shared.state();
        match saved {
            Ok(()) => {
                state.hopeless = false;
                state.made_safe(&batch);
                state.queue.drain(..batch.len());
            }
            Err(problem) => {
                if let (Some(error), false) = (&problem, state.hopeless) {
                    tracing::error!(%error, "rows wait in memory alone");
                }
                state.hopeless = true;
            }
        }
        drop(state);
        self.shared.moved();
    }

    /// An anchor for whoever keeps the logs.
    async fn say_head(&self) {
        if let Some(store) = &self.store
            && let Ok(head) = store.head().await
        {
            tracing::info!(%head, "the ledger is closed");
        }
    }
}
