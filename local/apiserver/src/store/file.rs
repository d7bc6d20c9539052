//! How are writes kept on disk?
//!
//! One thread writes. What arrives while it waits for the disk goes into its next frame, so that many
//! writers share one `fdatasync`; a write becomes visible only after it.
//!
//! ```text
//! directory = LOCK  log-<first revision>…  snapshot-<revision>?
//! open      = snapshot, then every record after it, in order
//! log full  → begin a new log → write a snapshot beside it → drop what it replaces
//! ```
//!
//! A file that grows has its length synced as well, which is another trip to the disk and as long as the first. So a log
//! that is written to much has zeros behind it, and frames go over them. Zeros are no frame: a log ends where they begin.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::decode::{Decoder, batch};
use super::disk::{Disk, Handle};
use super::record::{self, Change, Damage, FileKind, FrameBuilder, Record};
use super::{ChangeType, Event, Journal, JournalFailed, Object, Options, Shared};

/// A log is replaced by a snapshot when it is longer than this: at 20,000 writes of 2 KiB a second that is
/// twice in three seconds at most, and reading it back takes well under a second.
pub(super) const DEFAULT_ROTATE_BYTES: u64 = 64 << 20;
/// Zeros behind a log, at a time: some hundred writes of 2 KiB share one sync that lasts longer, by the few milliseconds that
/// a disk takes for this much. Shorter logs have none.
pub(super) const DEFAULT_ROOM_BYTES: u64 = 512 << 10;
/// One frame holds at most about this much, so that the first writer in it does not wait for the last.
const MAX_FRAME_BYTES: usize = 8 << 20;
/// A snapshot's frames: small enough to check piece by piece.
const SNAPSHOT_FRAME_BYTES: usize = 1 << 20;

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file system said no.
    #[error("cannot {attempt} {}: {source}", path.display())]
    Io {
        /// What was tried.
        attempt: &'static str,
        /// On what.
        path: PathBuf,
        /// What came of it.
        source: io::Error,
    },
    /// Another process has it open.
    #[error("{} is in use by another process", path.display())]
    InUse {
        /// The lock file.
        path: PathBuf,
    },
    /// The bytes are not what was written. Nothing is served from a store like this.
    #[error("{} is damaged at byte {offset}: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong.
        why: String,
    },
    /// A thread could not be started.
    #[error("cannot start the journal's thread: {0}")]
    Thread(io::Error),
}

/// Writes in files of one directory.
#[derive(Debug)]
pub(crate) struct FileJournal {
    queue: Arc<Queue>,
    writer: Option<JoinHandle<()>>,
    /// Held as long as the store is open.
    _lock: Box<dyn std::fmt::Debug + Send + Sync>,
}

/// What waits to be written.
#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Full frames with their last revision, each to be synced before the next is written.
    full: VecDeque<(Vec<u8>, u64)>,
    frame: FrameBuilder,
    /// The last revision in `frame`.
    last: u64,
    closed: bool,
}

impl FileJournal {
    /// Opens a directory, making it if need be, and brings `shared` to the state it holds.
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        shared: &Arc<Shared>,
        options: &Options,
    ) -> Result<FileJournal, OpenError> {
        disk.make_dir(dir).map_err(failed("create", dir))?;
        let held = dir.join("LOCK");
        let lock = disk.lock(&held).map_err(failed("lock", &held))?;
        let lock = lock.ok_or(OpenError::InUse { path: held })?;
        let (log, written) = recover(&*disk, dir, shared)?;
        let queue = Arc::new(Queue::default());
        let writer = Writer {
            disk,
            dir: dir.to_owned(),
            shared: shared.clone(),
            queue: queue.clone(),
            log,
            written,
            rotate_bytes: options.rotate_bytes,
            room: written,
            room_bytes: options.room_bytes,
            snapshot: None,
            snapshot_bytes: 0,
            snapshotting: Arc::default(),
        };
        let thread = std::thread::Builder::new().name("journal".into()).spawn(|| writer.run());
        Ok(FileJournal { queue, writer: Some(thread.map_err(OpenError::Thread)?), _lock: lock })
    }
}

impl Journal for FileJournal {
    fn append(&self, event: &Event) {
        let mut waiting = self.queue.lock();
        waiting.frame.event(event);
        waiting.last = event.object.revision;
        if waiting.frame.len() > MAX_FRAME_BYTES {
            let full = (waiting.frame.finish(), waiting.last);
            waiting.full.push_back(full);
        }
        self.queue.arrived.notify_one();
    }
}

impl Drop for FileJournal {
    fn drop(&mut self) {
        self.queue.lock().closed = true;
        self.queue.arrived.notify_one();
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("the journal's thread panicked");
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next frame and its last revision; `None` once closed and empty.
    fn next(&self) -> Option<(Vec<u8>, u64)> {
        let mut waiting = self.lock();
        loop {
            if let Some(full) = waiting.full.pop_front() {
                return Some(full);
            }
            if !waiting.frame.is_empty() {
                break;
            }
            if waiting.closed {
                return None;
            }
            waiting = self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        let last = waiting.last;
        let mut frame = std::mem::take(&mut waiting.frame);
        drop(waiting);
        Some((frame.finish(), last))
    }
}

/// The thread that writes.
struct Writer {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    log: Box<dyn Handle>,
    written: u64,
    rotate_bytes: u64,
    /// Where the room behind the log ends.
    room: u64,
    room_bytes: u64,
    snapshot: Option<JoinHandle<()>>,
    snapshot_bytes: u64,
    snapshotting: Arc<AtomicBool>,
}

impl Writer {
    fn run(mut self) {
        while let Some((frame, last)) = self.queue.next() {
            // After a failed sync nobody knows what the disk holds: never try again, never go on.
            if let Err(error) = self.write(&frame) {
                tracing::error!(%error, "the journal cannot be written");
                self.shared.fail(JournalFailed(error.to_string()));
                self.take_back();
                break;
            }
            self.shared.publish_through(last);
            let full = self.written > self.rotate_bytes.max(2 * self.snapshot_bytes);
            if full && !self.snapshotting.load(Ordering::Acquire) {
                // A log that cannot be replaced is longer than it should be, and still whole.
                if let Err(error) = self.rotate(last) {
                    tracing::warn!(%error, "the journal's log could not be replaced");
                }
            }
        }
        self.drop_room();
        if let Some(snapshot) = self.snapshot.take()
            && snapshot.join().is_err()
        {
            tracing::error!("the snapshot's thread panicked");
        }
    }

    /// Writes one frame, and makes sure of it.
    fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        let end = self.written + frame.len() as u64;
        self.log.write_all(frame)?;
        // The file grows in any case: with the frame, and in the same sync, go the zeros for those that follow.
        if end > self.room && end > self.room_bytes {
            if let Err(error) = self.log.make_room(self.room_bytes) {
                tracing::debug!(%error, "no room could be made behind the log");
                self.log.cut(end)?;
            }
            // Made or not: a disk that is almost full is not asked again with every frame.
            self.room = end + self.room_bytes;
        }
        self.log.sync()?;
        self.written = end;
        Ok(())
    }

    /// A log that is not written to any more needs no room; one that keeps it ends where the zeros begin.
    fn drop_room(&mut self) {
        if self.room > self.written
            && let Err(error) = self.log.cut(self.written)
        {
            tracing::debug!(%error, "the room behind a log could not be dropped");
        }
        self.room = 0;
    }

    /// Drops what was written and never safe: whoever opens the log next would read it from the machine's memory, and
    /// take for kept what the disk never got.
    fn take_back(&self) {
        if let Err(error) = self.log.cut(self.written).and_then(|()| self.log.sync()) {
            tracing::error!(%error, "an unfinished write could not be taken back");
        }
    }

    /// Begins a new log and has a snapshot take the place of what was before.
    fn rotate(&mut self, last: u64) -> Result<(), OpenError> {
        let first = last + 1;
        let log = new_log(&*self.disk, &self.dir, first)?;
        self.drop_room();
        self.log = log;
        self.written = record::HEADER_LEN as u64;
        // Only this thread publishes, so what is visible is exactly what the old logs say.
        let objects = self.shared.everything();
        self.snapshot_bytes = objects.iter().map(|(_, o)| o.bytes().len() as u64).sum();
        let (disk, dir) = (self.disk.clone(), self.dir.clone());
        let busy = self.snapshotting.clone();
        busy.store(true, Ordering::Release);
        let work = move || {
            let written = write_snapshot(&*disk, &dir, last, &objects);
            if let Err(error) = written.and_then(|()| drop_before(&*disk, &dir, last)) {
                tracing::warn!(%error, "a snapshot could not be written; the logs stay");
            }
            busy.store(false, Ordering::Release);
        };
        match self.disk.beside("snapshot", Box::new(work)) {
            Ok(thread) => self.snapshot = thread,
            Err(error) => {
                self.snapshotting.store(false, Ordering::Release);
                return Err(OpenError::Thread(error));
            }
        }
        Ok(())
    }
}

/// Reads everything back; returns the log to go on with and how long it is.
fn recover(disk: &dyn Disk, dir: &Path, shared: &Shared) -> Result<(Box<dyn Handle>, u64), OpenError> {
    let files = Kept::list(disk, dir)?;
    let (mut revision, mut decoder) = (0, Decoder::default());
    if let Some((at, path)) = files.snapshots.last() {
        load_snapshot(disk, path, shared, &mut decoder)?;
        shared.begin_at(*at);
        revision = *at;
    }
    for (at, (first, path)) in files.logs.iter().enumerate() {
        let next = files.logs.get(at + 1).map(|(first, _)| *first);
        // Everything in this log is in the snapshot: it was about to be dropped.
        if next.is_some_and(|next| next <= revision + 1) {
            continue;
        }
        if *first > revision + 1 {
            let why = format!("it begins at revision {first}, and the files before end at {revision}");
            return Err(OpenError::Damaged { path: path.clone(), offset: 0, why });
        }
        let (through, end) = load_log(disk, path, revision, next.is_none(), shared, &mut decoder)?;
        revision = through;
        if next.is_none() {
            let log = disk.append(path).map_err(failed("open", path))?;
            // A process that died before its sync left what only the machine's memory holds; now it is shown.
            log.sync().map_err(failed("sync", path))?;
            return Ok((log, end));
        }
    }
    Ok((new_log(disk, dir, revision + 1)?, record::HEADER_LEN as u64))
}

fn load_snapshot(
    disk: &dyn Disk,
    path: &Path,
    shared: &Shared,
    decoder: &mut Decoder,
) -> Result<(), OpenError> {
    let bytes = disk.read(path).map_err(failed("read", path))?;
    let damaged = |offset: usize, why: &Damage| damaged(path, offset, why);
    record::check_header(FileKind::Snapshot, &bytes).map_err(|d| damaged(0, &d))?;
    let mut at = record::HEADER_LEN;
    loop {
        let batch = batch(&bytes, at);
        for (at, records) in decoder.decode(&batch) {
            let records = records.map_err(|d| damaged(at, &d))?;
            shared.load(records.into_iter().map(|record| (record.table, Arc::new(record.object))));
        }
        // An empty frame ends a snapshot: one without was never finished, or lost its end.
        if batch.ended {
            return Ok(());
        }
        if batch.damage.is_some() || batch.end == bytes.len() {
            return Err(damaged(batch.end, batch.damage.as_ref().unwrap_or(&Damage::Cut)));
        }
        at = batch.end;
    }
}

/// Replays a log after `revision`; returns the last revision in it and where it ends.
fn load_log(
    disk: &dyn Disk,
    path: &Path,
    mut revision: u64,
    last: bool,
    shared: &Shared,
    decoder: &mut Decoder,
) -> Result<(u64, u64), OpenError> {
    let bytes = disk.read(path).map_err(failed("read", path))?;
    if let Err(damage) = record::check_header(FileKind::Log, &bytes) {
        // A log cut within its header was being begun: nothing was in it.
        if last && damage == Damage::NoHeader {
            begin(disk, path)?;
            return Ok((revision, record::HEADER_LEN as u64));
        }
        return Err(damaged(path, 0, &damage));
    }
    let mut at = record::HEADER_LEN;
    while at < bytes.len() {
        let batch = batch(&bytes, at);
        for (at, records) in decoder.decode(&batch) {
            for record in records.map_err(|d| damaged(path, at, &d))? {
                let found = record.object.revision;
                if found <= revision {
                    continue;
                }
                if found != revision + 1 {
                    let why = format!("revision {found} follows revision {revision}");
                    return Err(OpenError::Damaged { path: path.to_owned(), offset: at as u64, why });
                }
                revision = found;
                replay(record, shared);
            }
        }
        at = batch.end;
        if let Some(damage) = &batch.damage {
            end_log(disk, path, bytes.get(at..).unwrap_or_default(), at, damage, last)?;
            break;
        }
    }
    Ok((revision, at as u64))
}

/// What follows a log's last frame, from `at` on, is no frame: is that its end?
fn end_log(
    disk: &dyn Disk,
    path: &Path,
    rest: &[u8],
    at: usize,
    damage: &Damage,
    last: bool,
) -> Result<(), OpenError> {
    // The room behind a log: nothing was written there.
    let is_room = rest.iter().all(|byte| *byte == 0);
    if !is_room {
        let behind = rest.get(1..).is_some_and(record::any_frame);
        if !last || behind {
            return Err(damaged(path, at, damage));
        }
        tracing::warn!(path = %path.display(), offset = at, %damage, "an unfinished write is dropped");
    }
    if last { cut(disk, path, at as u64) } else { Ok(()) }
}

fn replay(record: Record, shared: &Shared) {
    let previous = shared.visible_object(&record.table, &record.object);
    let change = match (record.change, &previous) {
        (Change::Delete, _) => ChangeType::Deleted,
        (Change::Put, None) => ChangeType::Added,
        (Change::Put, Some(_)) => ChangeType::Modified,
    };
    let object = Arc::new(record.object);
    shared.replay(Arc::new(Event {
        table: record.table,
        change,
        object,
        previous,
        frames: super::Frames::default(),
    }));
}

fn new_log(disk: &dyn Disk, dir: &Path, first: u64) -> Result<Box<dyn Handle>, OpenError> {
    let log = begin(disk, &dir.join(format!("log-{first:020}")))?;
    disk.sync_dir(dir).map_err(failed("sync", dir))?;
    Ok(log)
}

/// A log with nothing in it.
fn begin(disk: &dyn Disk, path: &Path) -> Result<Box<dyn Handle>, OpenError> {
    let mut log = disk.create(path).map_err(failed("create", path))?;
    log.write_all(&record::header(FileKind::Log)).map_err(failed("write", path))?;
    log.sync().map_err(failed("sync", path))?;
    Ok(log)
}

fn write_snapshot(
    disk: &dyn Disk,
    dir: &Path,
    at: u64,
    objects: &[(Arc<str>, Arc<Object>)],
) -> Result<(), OpenError> {
    let unfinished = dir.join("snapshot.tmp");
    let mut file = disk.create(&unfinished).map_err(failed("create", &unfinished))?;
    let mut write = |bytes: &[u8]| file.write_all(bytes).map_err(failed("write", &unfinished));
    write(&record::header(FileKind::Snapshot))?;
    let mut frame = FrameBuilder::default();
    for (table, object) in objects {
        frame.record(table, Change::Put, object);
        if frame.len() > SNAPSHOT_FRAME_BYTES {
            write(&frame.finish())?;
        }
    }
    if !frame.is_empty() {
        write(&frame.finish())?;
    }
    write(&FrameBuilder::default().finish())?;
    file.sync().map_err(failed("sync", &unfinished))?;
    let path = dir.join(format!("snapshot-{at:020}"));
    disk.rename(&unfinished, &path).map_err(failed("name", &path))?;
    disk.sync_dir(dir).map_err(failed("sync", dir))
}

/// Drops what the snapshot at `at` replaces.
fn drop_before(disk: &dyn Disk, dir: &Path, at: u64) -> Result<(), OpenError> {
    let files = Kept::list(disk, dir)?;
    let old_logs = files.logs.iter().filter(|(first, _)| *first <= at);
    let old_snapshots = files.snapshots.iter().filter(|(revision, _)| *revision < at);
    for (_, path) in old_logs.chain(old_snapshots) {
        disk.remove(path).map_err(failed("remove", path))?;
    }
    disk.sync_dir(dir).map_err(failed("sync", dir))
}

/// The files of a store by revision.
#[derive(Debug, Default)]
struct Kept {
    logs: Vec<(u64, PathBuf)>,
    snapshots: Vec<(u64, PathBuf)>,
}

impl Kept {
    fn list(disk: &dyn Disk, dir: &Path) -> Result<Kept, OpenError> {
        let mut files = Kept::default();
        for path in disk.list(dir).map_err(failed("list", dir))? {
            let Some(name) = path.file_name().and_then(|n| n.to_str()) else { continue };
            if let Some(first) = name.strip_prefix("log-").and_then(|n| n.parse().ok()) {
                files.logs.push((first, path));
            } else if let Some(at) = name.strip_prefix("snapshot-").and_then(|n| n.parse().ok()) {
                files.snapshots.push((at, path));
            }
        }
        files.logs.sort();
        files.snapshots.sort();
        Ok(files)
    }
}

fn cut(disk: &dyn Disk, path: &Path, len: u64) -> Result<(), OpenError> {
    let file = disk.append(path).map_err(failed("open", path))?;
    file.cut(len).map_err(failed("cut", path))?;
    file.sync().map_err(failed("sync", path))
}

fn failed(attempt: &'static str, path: &Path) -> impl Fn(io::Error) -> OpenError {
    move |source| OpenError::Io { attempt, path: path.to_owned(), source }
}

fn damaged(path: &Path, offset: usize, why: &Damage) -> OpenError {
    OpenError::Damaged { path: path.to_owned(), offset: offset as u64, why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::disk::Files;
    use super::super::tests::{draft, table};
    use super::super::{CommitError, Expect, Store, key};
    use super::*;
    use std::fs;

    fn open(dir: &Path) -> Result<Store, OpenError> {
        Store::open(dir, Options::default())
    }

    fn contents(store: &Store) -> BTreeMap<String, String> {
        let objects = store.list("things", "").objects;
        objects
            .iter()
            .map(|o| (o.name().to_owned(), o.value()["data"].as_str().unwrap().to_owned()))
            .collect()
    }

    fn put(store: &Store, name: &str, data: &str) -> u64 {
        let expect = match store.head(&table(), &key("n", name)) {
            None => Expect::Absent,
            Some(head) => Expect::Revision(head.revision),
        };
        store.put(&table(), expect, draft(name, data)).unwrap().revision
    }

    fn delete(store: &Store, name: &str) -> u64 {
        let head = store.head(&table(), &key("n", name)).unwrap();
        store.delete(&table(), &key("n", name), head.revision, None).unwrap().revision
    }

    fn the_log(dir: &Path) -> PathBuf {
        Kept::list(&Files, dir).unwrap().logs.pop().unwrap().1
    }

    #[test]
    fn what_was_acknowledged_is_there_after_reopening() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path()).unwrap();
        put(&store, "a", "1");
        put(&store, "a", "2");
        put(&store, "b", "1");
        let last = delete(&store, "b");
        store.wait(last).unwrap();
        drop(store);
        let store = open(dir.path()).unwrap();
        assert_eq!(contents(&store), BTreeMap::from([("a".into(), "2".into())]));
        assert_eq!((store.revision(), store.head_revision()), (last, last));
        let told: Vec<_> = store.changes(0).unwrap().iter().map(|e| e.change).collect();
        use ChangeType::{Added, Deleted, Modified};
        assert_eq!(told, [Added, Modified, Added, Deleted], "history survives as well");
        assert_eq!(put(&store, "c", "1"), last + 1);
    }

    /// Writes `count` objects one by one and tells where each frame ends and what was true there.
    fn history(dir: &Path, count: usize) -> Vec<(u64, BTreeMap<String, String>)> {
        let store = open(dir).unwrap();
        let mut truths = vec![(record::HEADER_LEN as u64, BTreeMap::new())];
        for at in 0..count {
            let name = format!("o{}", at % 3);
            let revision =
                if at % 5 == 4 { delete(&store, "o0") } else { put(&store, &name, &format!("value {at}")) };
            store.wait(revision).unwrap();
            truths.push((fs::metadata(the_log(dir)).unwrap().len(), contents(&store)));
        }
        truths
    }

    #[test]
    fn damage_before_the_last_frame_is_named_and_nothing_is_served() {
        let dir = tempfile::tempdir().unwrap();
        let truths = history(dir.path(), 4);
        let log = the_log(dir.path());
        let whole = fs::read(&log).unwrap();
        let last_frame = truths[truths.len() - 2].0;
        for at in (0..last_frame).step_by(3) {
            let mut bad = whole.clone();
            bad[at as usize] ^= 0x40;
            fs::write(&log, &bad).unwrap();
            let Err(OpenError::Damaged { path, offset, .. }) = open(dir.path()) else { panic!("byte {at}") };
            assert_eq!(path, log);
            assert!(offset <= at, "byte {at}: damage found at {offset}");
            assert_eq!(fs::read(&log).unwrap(), bad, "a damaged file is left as it is");
        }
    }

    #[test]
    fn a_store_is_open_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path()).unwrap();
        assert!(matches!(open(dir.path()), Err(OpenError::InUse { .. })));
        drop(store);
        open(dir.path()).unwrap();
    }

    #[test]
    fn a_long_log_gives_way_to_a_snapshot() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { rotate_bytes: 2_000, ..Options::default() };
        let store = Store::open(dir.path(), options).unwrap();
        let mut last = 0;
        for at in 0..200 {
            last = put(&store, &format!("o{}", at % 7), &format!("value {at}"));
            store.wait(last).unwrap();
        }
        let before = contents(&store);
        drop(store);
        let files = Kept::list(&Files, dir.path()).unwrap();
        assert_eq!(files.snapshots.len(), 1, "{files:?}");
        assert!(files.logs.len() <= 2, "{files:?}");
        let store = Store::open(dir.path(), options).unwrap();
        assert_eq!(contents(&store), before);
        assert_eq!(store.revision(), last);
        assert!(store.changes(0).is_err(), "what the snapshot replaced is compacted");
        assert!(store.table_revision("things") > 0);

        let (_, snapshot) = files.snapshots.last().unwrap();
        let whole = fs::read(snapshot).unwrap();
        drop(store);
        for bad in [&whole[..whole.len() - 1], &whole[..whole.len() - 12], &whole[..7]] {
            fs::write(snapshot, bad).unwrap();
            assert!(matches!(open(dir.path()), Err(OpenError::Damaged { .. })), "{} bytes", bad.len());
        }
    }

    #[test]
    fn a_long_log_has_room_behind_it_until_it_is_closed_and_is_read_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { room_bytes: 1_000, ..Options::default() };
        let store = Store::open(dir.path(), options).unwrap();
        let (mut lengths, mut last) = (Vec::new(), 0);
        for at in 0..30 {
            last = put(&store, &format!("o{}", at % 7), &format!("value {at}"));
            store.wait(last).unwrap();
            lengths.push(fs::metadata(the_log(dir.path())).unwrap().len());
        }
        lengths.dedup();
        assert!(lengths.len() < 20, "several frames go into the room that one made: {lengths:?}");
        let killed = tempfile::tempdir().unwrap();
        let copy = killed.path().join(the_log(dir.path()).file_name().unwrap());
        fs::copy(the_log(dir.path()), &copy).unwrap();
        let before = contents(&store);
        drop(store);
        let closed = fs::metadata(the_log(dir.path())).unwrap().len();
        assert!(closed < *lengths.last().unwrap());
        let store = open(killed.path()).unwrap();
        assert_eq!((contents(&store), store.revision()), (before, last));
        assert_eq!(fs::metadata(&copy).unwrap().len(), closed, "the zeros are gone, and nothing else");
        assert_eq!(put(&store, "later", "x"), last + 1);
    }

    #[test]
    fn another_format_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path()).unwrap());
        let mut head = record::header(FileKind::Log);
        head[8] = 9;
        let sum = crc32c::crc32c(&head[..12]).to_le_bytes();
        head[12..].copy_from_slice(&sum);
        fs::write(the_log(dir.path()), head).unwrap();
        let error = open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("version 9"), "{error}");
    }

    #[test]
    fn many_writers_share_syncs_and_lose_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path()).unwrap();
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let store = &store;
                scope.spawn(move || {
                    for at in 0..25 {
                        let draft = draft(&format!("w{writer}-{at}"), "x");
                        let made = match store.put(&table(), Expect::Absent, draft) {
                            Ok(made) => made,
                            Err(CommitError::Raced(_) | CommitError::Outdated | CommitError::Failed(_)) => {
                                panic!("nobody else writes this")
                            }
                        };
                        store.wait(made.revision).unwrap();
                        assert!(store.revision() >= made.revision);
                    }
                });
            }
        });
        drop(store);
        assert_eq!(contents(&open(dir.path()).unwrap()).len(), 200);
    }
}
