//! What is true now, what was true at an earlier revision, and what happened since?
//!
//! One revision counts every write. A write passes three doors:
//!
//! ```text
//! commit ──compare-and-swap──▶ pending ──journal says durable──▶ visible ──log is full──▶ compacted
//!          against the head              (memory: at once)        readers, watchers        410 Gone
//! ```
//!
//! Writers compare with the *head* (visible and pending), so they never wait for the disk to decide.
//! Readers and watchers see only what is durable, so a crash never takes back what someone has seen.

mod decode;
mod disk;
mod file;
mod frames;
mod object;
mod record;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod visible;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use tokio::sync::{Notify, oneshot};

pub use file::OpenError;
use file::{DEFAULT_ROOM_BYTES, DEFAULT_ROTATE_BYTES, FileJournal};
pub(crate) use frames::{FrameKind, Frames};
pub(crate) use object::{Draft, Place, qualified, type_head};
pub use object::{Ids, Labels, Meta, Object};
use visible::{Keyed, Table, Visible};

/// How many events are kept for watchers, unless told otherwise. A kube-apiserver keeps at least 100 per
/// resource; a controller that was away for a minute at 200 writes a second needs 12,000.
const DEFAULT_LOG_EVENTS: usize = 16_384;
/// How many bytes the kept events may hold, unless told otherwise: 16,384 objects of 4 KiB.
const DEFAULT_LOG_BYTES: usize = 64 << 20;

/// How much history is kept.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// At most this many events.
    pub log_events: usize,
    /// At most this many bytes of objects in events.
    pub log_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { log_events: DEFAULT_LOG_EVENTS, log_bytes: DEFAULT_LOG_BYTES }
    }
}

/// How a durable store is kept.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How much history is kept.
    pub limits: Limits,
    /// A log longer than this is replaced by a snapshot.
    pub rotate_bytes: u64,
    /// A log longer than this has room made behind it, so much at a time.
    pub room_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            limits: Limits::default(),
            rotate_bytes: DEFAULT_ROTATE_BYTES,
            room_bytes: DEFAULT_ROOM_BYTES,
        }
    }
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeType {
    /// It was not there before.
    Added,
    /// It was there with other content.
    Modified,
    /// It is gone; the event shows its last content.
    Deleted,
}

impl ChangeType {
    /// As written in watch events.
    pub fn as_str(self) -> &'static str {
        match self {
            ChangeType::Added => "ADDED",
            ChangeType::Modified => "MODIFIED",
            ChangeType::Deleted => "DELETED",
        }
    }
}

/// One write, as watchers see it.
#[derive(Debug)]
pub(crate) struct Event {
    /// The table it happened in.
    pub(crate) table: Arc<str>,
    /// What happened.
    pub(crate) change: ChangeType,
    /// The object after the write; for a deletion its last content under the deletion's revision.
    pub(crate) object: Arc<Object>,
    /// The object before the write.
    pub(crate) previous: Option<Arc<Object>>,
    /// Its watch lines.
    pub(crate) frames: Frames,
}

/// A revision below the kept history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("revision {asked} is compacted: the oldest kept is {oldest}")]
pub struct Compacted {
    /// The revision asked for.
    pub asked: u64,
    /// The oldest that can be asked for.
    pub oldest: u64,
}

/// What a write demands of the object as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    Absent,
    Revision(u64),
}

/// Another object that must be as it was for a write to count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Basis {
    pub(crate) table: Arc<str>,
    pub(crate) key: Box<str>,
    pub(crate) revision: u64,
}

/// The head is not what the write demanded.
#[derive(Debug)]
pub(crate) struct Raced;

/// The journal failed: nothing more can be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the journal failed, writes are refused until a restart: {0}")]
pub struct JournalFailed(pub String);

/// Why a commit did not happen.
#[derive(Debug)]
pub(crate) enum CommitError {
    Raced(Raced),
    /// What the write was decided on has changed or is gone.
    Outdated,
    Failed(JournalFailed),
}

/// A list of one table at one revision.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) revision: u64,
    pub(crate) objects: Vec<Arc<Object>>,
}

/// Objects of one table as somebody reads them, by key, with the revision they were read at.
pub(crate) type Parsed<T> = BTreeMap<Box<str>, (u64, Arc<T>)>;

/// Objects, their history, and the door to durability.
#[derive(Debug)]
pub(crate) struct Store {
    shared: Arc<Shared>,
    /// `None`: the store lives in memory, and what is written is durable at once.
    journal: Option<Box<dyn Journal>>,
}

/// Keeps writes in the order they are handed over, and publishes each when it is safe.
trait Journal: Send + Sync + std::fmt::Debug {
    /// Hands one write over. Called in the order of revisions, by one caller at a time.
    fn append(&self, event: &Event);
}

/// What the journal's thread shares with the store.
#[derive(Debug)]
pub(crate) struct Shared {
    writer: Mutex<Writer>,
    visible: RwLock<Visible>,
    limits: Limits,
    /// Everything up to this revision is durable.
    durable: AtomicU64,
    failed: OnceLock<JournalFailed>,
    /// Threads wait here, with the writer's lock.
    progressed: Condvar,
    /// Tasks wait here, each for its own revision: a sync wakes those it concerns and nobody else.
    waiters: Mutex<BTreeMap<u64, Vec<oneshot::Sender<()>>>>,
}

/// A table and a key in it.
type TableKey = (Arc<str>, Box<str>);

#[derive(Debug, Default)]
struct Writer {
    /// The last revision given out.
    revision: u64,
    /// Written, not yet durable, in order.
    pending: VecDeque<Arc<Event>>,
    /// The head of every key that has pending writes, and the revision that made it.
    overlay: HashMap<TableKey, (u64, Option<Arc<Object>>)>,
    failed: Option<JournalFailed>,
}

/// Tells a table's watchers that something happened.
///
/// A `tokio::sync::watch` would do, but it wakes its receivers in an order drawn by lot; this one wakes them
/// in the order they came, so that a simulation can be repeated.
#[derive(Debug, Default)]
pub(crate) struct Topic {
    /// The revision of the table's last event.
    revision: AtomicU64,
    pub(crate) waiting: Notify,
}

impl Topic {
    fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    fn tell(&self, revision: u64) {
        self.revision.store(revision, Ordering::Release);
        self.waiting.notify_waiters();
    }
}

/// `namespace/name`, or the name alone: etcd's order, which is the order of lists.
pub(crate) fn key(namespace: &str, name: &str) -> Box<str> {
    if namespace.is_empty() { name.into() } else { format!("{namespace}/{name}").into() }
}

/// What the keys of a namespace's objects begin with; of all objects, if it is empty.
pub(crate) fn prefix(namespace: &str) -> String {
    if namespace.is_empty() { String::new() } else { format!("{namespace}/") }
}

impl Store {
    pub(crate) fn in_memory(limits: Limits) -> Store {
        Store { shared: Arc::new(Shared::new(limits)), journal: None }
    }

    /// A copy, in memory, of what is visible; it goes its own way from here. Objects are shared, not copied.
    pub(crate) fn fork(&self) -> Store {
        let store = Store::in_memory(self.shared.limits);
        let from = self.shared.visible();
        let tables = from.tables.iter().map(|(name, table)| {
            let changed =
                Arc::new(Topic { revision: table.changed.revision().into(), waiting: Notify::new() });
            (name.clone(), Table { objects: table.objects.clone(), log: table.log.clone(), changed })
        });
        let copy = Visible {
            revision: from.revision,
            compacted: from.compacted,
            tables: tables.collect(),
            log: from.log.clone(),
            log_bytes: from.log_bytes,
        };
        store.shared.writer().revision = copy.revision;
        store.shared.durable.store(copy.revision, Ordering::Release);
        *store.shared.visible.write().unwrap_or_else(PoisonError::into_inner) = copy;
        store
    }

    /// A store in files, as it was left.
    pub(crate) fn open(dir: &Path, options: Options) -> Result<Store, OpenError> {
        Store::open_on(Arc::new(disk::Files), dir, options)
    }

    fn open_on(disk: Arc<dyn disk::Disk>, dir: &Path, options: Options) -> Result<Store, OpenError> {
        let shared = Arc::new(Shared::new(options.limits));
        let journal = FileJournal::open(disk, dir, &shared, &options)?;
        Ok(Store { shared, journal: Some(Box::new(journal)) })
    }

    /// The head of one key: what writers compare with.
    pub(crate) fn head(&self, table: &Arc<str>, key: &str) -> Option<Arc<Object>> {
        self.shared.head(&self.shared.writer(), table, key)
    }

    /// Whether a table is empty, pending writes included.
    pub(crate) fn head_is_empty(&self, table: &Arc<str>) -> bool {
        let writer = self.shared.writer();
        let visible = self.shared.visible();
        let pending = |key: &str| writer.overlay.get(&(table.clone(), Box::from(key)));
        let kept = visible.tables.get(table).into_iter().flat_map(|t| &t.objects).map(|Keyed(o)| o.key());
        let kept = kept.filter(|key| pending(key).is_none_or(|(_, head)| head.is_some())).count();
        kept == 0 && !writer.overlay.iter().any(|((t, _), (_, head))| t == table && head.is_some())
    }

    /// What readers see of one key.
    pub(crate) fn get(&self, table: &str, key: &str) -> Option<Arc<Object>> {
        self.shared.visible().tables.get(table)?.get(key)
    }

    /// The last visible revision.
    pub(crate) fn revision(&self) -> u64 {
        self.shared.visible().revision
    }

    /// The last revision given out, visible or not.
    pub(crate) fn head_revision(&self) -> u64 {
        self.shared.writer().revision
    }

    /// The revision of the last visible event in a table: cheap to ask whether a table changed.
    pub(crate) fn table_revision(&self, table: &str) -> u64 {
        self.shared.visible().tables.get(table).map_or(0, |t| t.changed.revision())
    }

    /// Every object whose key starts with `prefix`, at the last visible revision.
    pub(crate) fn list(&self, table: &str, prefix: &str) -> Snapshot {
        let visible = self.shared.visible();
        let objects = visible.tables.get(table).map(|t| t.under(prefix).cloned().collect());
        Snapshot { revision: visible.revision, objects: objects.unwrap_or_default() }
    }

    /// A table's objects as `read` reads them; those that are as they were `before` are not read again.
    pub(crate) fn parsed<T>(&self, table: &str, before: &Parsed<T>, read: fn(&Object) -> T) -> Parsed<T> {
        let parse = |object: &Arc<Object>| {
            let known = before.get(object.key()).filter(|(revision, _)| *revision == object.revision);
            let parsed = known.map_or_else(|| Arc::new(read(object)), |(_, parsed)| parsed.clone());
            (object.key().into(), (object.revision, parsed))
        };
        self.list(table, "").objects.iter().map(parse).collect()
    }

    /// Up to `max` objects under `prefix` whose keys are after `after`, and how many follow them: a page costs
    /// what it holds. With `at`, the list as it was then, if the table has not changed since; `None` if it has. Whoever knows
    /// from the page before how many keys are after `after` says so, and they are not counted again.
    pub(crate) fn page(
        &self,
        table: &str,
        prefix: &str,
        after: &str,
        max: usize,
        at: Option<u64>,
        known: Option<usize>,
    ) -> Option<(Snapshot, usize)> {
        let visible = self.shared.visible();
        let found = visible.tables.get(table);
        if at.is_some_and(|at| at < visible.compacted || found.is_some_and(|t| t.changed.revision() > at)) {
            return None;
        }
        let mut rest = found.into_iter().flat_map(|table| table.between(prefix, after));
        let objects: Vec<_> = rest.by_ref().take(max).cloned().collect();
        let following = match (rest.next(), known) {
            (None, _) => 0,
            (Some(_), None) => 1 + rest.count(),
            // What was said may be wrong; that there are more is seen.
            (Some(_), Some(known)) => known.saturating_sub(objects.len()).max(1),
        };
        Some((Snapshot { revision: at.unwrap_or(visible.revision), objects }, following))
    }

    /// The same at an earlier revision: what is there now with the kept events undone.
    pub(crate) fn list_at(&self, table: &str, prefix: &str, revision: u64) -> Result<Snapshot, Compacted> {
        let visible = self.shared.visible();
        if revision < visible.compacted {
            return Err(Compacted { asked: revision, oldest: visible.compacted });
        }
        let Some(found) = visible.tables.get(table) else {
            return Ok(Snapshot { revision, objects: Vec::new() });
        };
        let mut then: BTreeMap<&str, &Arc<Object>> = found.under(prefix).map(|o| (o.key(), o)).collect();
        for event in found.log.iter().rev().take_while(|e| e.object.revision > revision) {
            let key = event.object.key();
            if !key.starts_with(prefix) {
                continue;
            }
            match &event.previous {
                Some(previous) => then.insert(key, previous),
                None => then.remove(key),
            };
        }
        Ok(Snapshot { revision, objects: then.into_values().cloned().collect() })
    }

    /// Up to `max` events of a table after `since`, and the revision up to which there are no others.
    pub(crate) fn events(
        &self,
        table: &str,
        since: u64,
        max: usize,
    ) -> Result<(Vec<Arc<Event>>, u64), Compacted> {
        let visible = self.shared.visible();
        if since < visible.compacted {
            return Err(Compacted { asked: since, oldest: visible.compacted });
        }
        let Some(table) = visible.tables.get(table) else { return Ok((Vec::new(), visible.revision)) };
        let from = table.log.partition_point(|e| e.object.revision <= since);
        let events: Vec<_> = table.log.range(from..).take(max).cloned().collect();
        let through = match events.last() {
            Some(last) if events.len() == max => last.object.revision,
            _ => visible.revision.max(since),
        };
        Ok((events, through))
    }

    /// Every event of every table after `since`.
    pub(crate) fn changes(&self, since: u64) -> Result<Vec<Arc<Event>>, Compacted> {
        let visible = self.shared.visible();
        if since < visible.compacted {
            return Err(Compacted { asked: since, oldest: visible.compacted });
        }
        let from = visible.log.partition_point(|e| e.object.revision <= since);
        Ok(visible.log.range(from..).cloned().collect())
    }

    /// What wakes when the table changes.
    pub(crate) fn topic(&self, table: &Arc<str>) -> Arc<Topic> {
        if let Some(table) = self.shared.visible().tables.get(table) {
            return table.changed.clone();
        }
        let mut visible = self.shared.visible.write().unwrap_or_else(PoisonError::into_inner);
        visible.tables.entry(table.clone()).or_default().changed.clone()
    }

    /// Writes an object if the head is as expected.
    pub(crate) fn put(
        &self,
        table: &Arc<str>,
        expect: Expect,
        draft: Draft,
    ) -> Result<Arc<Object>, CommitError> {
        self.put_while(None, table, expect, draft)
    }

    /// The same, as long as another object is as it was.
    pub(crate) fn put_while(
        &self,
        basis: Option<&Basis>,
        table: &Arc<str>,
        expect: Expect,
        draft: Draft,
    ) -> Result<Arc<Object>, CommitError> {
        let key = draft.place.key().into();
        self.commit(basis, table, key, expect, |revision, previous| {
            let change = if previous.is_some() { ChangeType::Modified } else { ChangeType::Added };
            Some((change, Arc::new(draft.at(revision))))
        })
    }

    /// Removes an object if the head is as expected; what is returned carries the deletion's revision.
    /// With `last`, that is its last content instead of the head's.
    pub(crate) fn delete(
        &self,
        table: &Arc<str>,
        key: &str,
        expect: u64,
        last: Option<Draft>,
    ) -> Result<Arc<Object>, CommitError> {
        self.delete_while(None, table, key, expect, last)
    }

    /// The same, as long as another object is as it was.
    pub(crate) fn delete_while(
        &self,
        basis: Option<&Basis>,
        table: &Arc<str>,
        key: &str,
        expect: u64,
        last: Option<Draft>,
    ) -> Result<Arc<Object>, CommitError> {
        self.commit(basis, table, key.into(), Expect::Revision(expect), |revision, previous| {
            let object = match last {
                Some(last) => last.at(revision),
                None => previous?.at(revision),
            };
            Some((ChangeType::Deleted, Arc::new(object)))
        })
    }

    fn commit(
        &self,
        basis: Option<&Basis>,
        table: &Arc<str>,
        key: Box<str>,
        expect: Expect,
        build: impl FnOnce(u64, Option<&Arc<Object>>) -> Option<(ChangeType, Arc<Object>)>,
    ) -> Result<Arc<Object>, CommitError> {
        let mut writer = self.shared.writer();
        if let Some(failed) = &writer.failed {
            return Err(CommitError::Failed(failed.clone()));
        }
        // Under the writer's lock: nothing comes between this look and the write.
        if let Some(Basis { table, key, revision }) = basis
            && self.shared.head(&writer, table, key).is_none_or(|head| head.revision != *revision)
        {
            return Err(CommitError::Outdated);
        }
        let previous = self.shared.head(&writer, table, &key);
        let as_expected = match (expect, &previous) {
            (Expect::Absent, None) => true,
            (Expect::Revision(revision), Some(head)) => head.revision == revision,
            (Expect::Absent, Some(_)) | (Expect::Revision(_), None) => false,
        };
        if !as_expected {
            return Err(CommitError::Raced(Raced));
        }
        let revision = writer.revision + 1;
        let Some((change, object)) = build(revision, previous.as_ref()) else {
            return Err(CommitError::Raced(Raced));
        };
        let event = Arc::new(Event {
            table: table.clone(),
            change,
            object: object.clone(),
            previous,
            frames: Frames::default(),
        });
        writer.revision = revision;
        match &self.journal {
            None => self.shared.publish(&[event]),
            Some(journal) => {
                journal.append(&event);
                let head = (change != ChangeType::Deleted).then(|| object.clone());
                writer.overlay.insert((table.clone(), key), (revision, head));
                writer.pending.push_back(event);
            }
        }
        Ok(object)
    }

    /// Waits until everything up to `revision` is durable.
    pub(crate) fn wait(&self, revision: u64) -> Result<(), JournalFailed> {
        if self.shared.durable() >= revision {
            return Ok(());
        }
        let mut writer = self.shared.writer();
        loop {
            if self.shared.durable() >= revision {
                return Ok(());
            }
            if let Some(failed) = self.shared.failed.get() {
                return Err(failed.clone());
            }
            writer = self.shared.progressed.wait(writer).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The same without holding a thread.
    pub(crate) async fn wait_async(&self, revision: u64) -> Result<(), JournalFailed> {
        let Some(told) = self.shared.waiter(revision) else { return Ok(()) };
        // Told or dropped, what counts is how far it came.
        let _ = told.await;
        match self.shared.failed.get() {
            _ if self.shared.durable() >= revision => Ok(()),
            Some(failed) => Err(failed.clone()),
            None => Err(JournalFailed("the store was closed".into())),
        }
    }
}

impl Shared {
    fn new(limits: Limits) -> Shared {
        Shared {
            writer: Mutex::default(),
            visible: RwLock::default(),
            limits,
            durable: AtomicU64::new(0),
            failed: OnceLock::new(),
            progressed: Condvar::new(),
            waiters: Mutex::default(),
        }
    }

    fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// What will be told when `revision` is durable or never will be; `None` if it is durable already.
    fn waiter(&self, revision: u64) -> Option<oneshot::Receiver<()>> {
        if self.durable() >= revision {
            return None;
        }
        let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        // Asked again under the lock, which whoever moves it on takes afterwards: nobody is overlooked.
        if self.durable() >= revision || self.failed.get().is_some() {
            return (self.durable() < revision).then(|| oneshot::channel().1);
        }
        let (tell, told) = oneshot::channel();
        waiters.entry(revision).or_default().push(tell);
        Some(told)
    }

    /// Everything up to `revision` is durable: wakes who waits for it.
    fn advance(&self, revision: u64) {
        self.durable.store(revision, Ordering::Release);
        self.progressed.notify_all();
        let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        if waiters.is_empty() {
            return;
        }
        let later = waiters.split_off(&revision.saturating_add(1));
        let reached = std::mem::replace(&mut *waiters, later);
        drop(waiters);
        for tell in reached.into_values().flatten() {
            // Whoever went away needs not be told.
            let _ = tell.send(());
        }
    }

    fn head(&self, writer: &Writer, table: &Arc<str>, key: &str) -> Option<Arc<Object>> {
        if !writer.overlay.is_empty()
            && let Some((_, head)) = writer.overlay.get(&(table.clone(), Box::from(key)))
        {
            return head.clone();
        }
        self.visible().tables.get(table)?.get(key)
    }

    /// Everything up to `revision` is durable: makes it visible.
    fn publish_through(&self, revision: u64) {
        let mut writer = self.writer();
        let durable = writer.pending.partition_point(|e| e.object.revision <= revision);
        let events: Vec<_> = writer.pending.drain(..durable).collect();
        writer.overlay.retain(|_, (made, _)| *made > revision);
        self.publish(&events);
    }

    /// Nothing more will be durable: whoever waits is told, whoever comes is refused.
    fn fail(&self, failed: JournalFailed) {
        let mut writer = self.writer();
        writer.failed = Some(failed.clone());
        // The first failure counts: nothing is written after it.
        let _ = self.failed.set(failed);
        self.progressed.notify_all();
        // Dropping their ends tells them.
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Every visible object with its table.
    fn everything(&self) -> Vec<(Arc<str>, Arc<Object>)> {
        let visible = self.visible();
        let tables = visible.tables.iter();
        tables.flat_map(|(name, t)| t.objects.iter().map(move |Keyed(o)| (name.clone(), o.clone()))).collect()
    }

    /// Objects from a snapshot, each with its table.
    fn load(&self, objects: impl Iterator<Item = (Arc<str>, Arc<Object>)>) {
        let mut visible = self.visible.write().unwrap_or_else(PoisonError::into_inner);
        for (table, object) in objects {
            let table = visible.tables.entry(table).or_default();
            let newest = object.revision.max(table.changed.revision());
            table.changed.tell(newest);
            table.objects.replace(Keyed(object));
        }
    }

    /// The snapshot is loaded: history begins here.
    fn begin_at(&self, revision: u64) {
        let mut visible = self.visible.write().unwrap_or_else(PoisonError::into_inner);
        visible.revision = revision;
        visible.compacted = revision;
        drop(visible);
        self.writer().revision = revision;
        self.advance(revision);
    }

    /// A write from a log.
    fn replay(&self, event: Arc<Event>) {
        self.writer().revision = event.object.revision;
        self.publish(&[event]);
    }

    fn visible_object(&self, table: &str, like: &Object) -> Option<Arc<Object>> {
        self.visible().tables.get(table)?.get(like.key())
    }

    /// Makes events visible, in order, and wakes who waits for them.
    fn publish(&self, events: &[Arc<Event>]) {
        let Some(last) = events.last() else { return };
        let mut visible = self.visible.write().unwrap_or_else(PoisonError::into_inner);
        for event in events {
            visible.apply(event);
        }
        visible.compact(self.limits);
        for event in events {
            if let Some(table) = visible.tables.get(&event.table) {
                table.changed.tell(event.object.revision);
            }
        }
        drop(visible);
        self.advance(last.object.revision);
    }

    /// Locks are never held across a panic that could leave half a change: see `publish`, `commit`.
    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn visible(&self) -> std::sync::RwLockReadGuard<'_, Visible> {
        self.visible.read().unwrap_or_else(PoisonError::into_inner)
    }
}
