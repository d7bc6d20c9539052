//! Where does a container's output go, and how is it read back?
//!
//! On disk in the line format of Kubernetes' container runtimes, so that existing tools read it:
//! `2026-11-15T20:00:00.000000001Z stdout F the text`, with `P` for the parts of a line longer than one entry.
//! A run's output is a row of files `<restart>-<part>.log`; a full part is followed by the next, and the oldest is
//! removed: nothing is renamed, so a reader never loses its place. Followers in this process are woken by the
//! writer, without polling.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::stream::{self, Stream};
use jiff::{SignedDuration, Timestamp};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::sync::watch;

use crate::worker::remove_dir;

/// A part that reaches this is full: a kubelet's default, big enough for `tail`, small enough to scan.
pub const MAX_PART_BYTES: u64 = 10 << 20;
/// So many parts of a run are kept: with the size above, at most 50 MiB per run, a kubelet's default.
pub const MAX_PARTS: u64 = 5;
/// The longest entry; a longer line is written as several. What container runtimes use.
pub const MAX_ENTRY_BYTES: usize = 16 << 10;
/// How many runs of a container are kept: the current one and the one `previous` shows.
const MAX_RUNS: u32 = 2;
/// Answers are sent in chunks of about this size: few wake-ups, little memory.
const CHUNK_BYTES: usize = 32 << 10;
/// An entry's timestamp, stream and flag take less than this.
const ENTRY_HEAD_BYTES: usize = 64;

mod resume;

pub(crate) use resume::{Marks, Resumed};

/// Which output of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    Stdout,
    Stderr,
}

/// What a reader wants; the fields are `pods/log`'s parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    pub follow: bool,
    pub previous: bool,
    pub timestamps: bool,
    pub tail_lines: Option<u64>,
    pub since_seconds: Option<i64>,
    pub since_time: Option<Timestamp>,
    pub limit_bytes: Option<u64>,
}

/// Why there is nothing to read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The words are a kubelet's.
    #[error("previous terminated container \"{container}\" in pod \"{pod}\" not found")]
    NoPrevious { container: String, pod: String },
    #[error("container \"{container}\" in pod \"{pod}\" is waiting to start")]
    NotStarted { container: String, pod: String },
    #[error("reading the log of container \"{container}\": {source}")]
    Read { container: String, source: io::Error },
}

/// How far a writer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Progress {
    /// Moves with every write, so that waiting followers wake.
    writes: u64,
    closed: bool,
}

type Followers = Arc<Mutex<BTreeMap<PathBuf, watch::Receiver<Progress>>>>;

/// All logs of a runner. Clones share their followers.
#[derive(Clone, Debug)]
pub struct Logs {
    directory: PathBuf,
    live: Followers,
    /// Containers between two runs: their last run is the one before the next.
    between_runs: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl Logs {
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), live: Followers::default(), between_runs: Arc::default() }
    }

    /// A container's output as `pods/log` answers it. Ends with the run's end; with `follow`, waits for it.
    pub async fn open(
        &self,
        pod_uid: &str,
        container: &str,
        options: LogOptions,
    ) -> Result<impl Stream<Item = Result<Bytes, io::Error>> + Send + use<>, Error> {
        let failed = |source| Error::Read { container: container.to_owned(), source };
        // Names come from requests: one that is a path is the name of nothing.
        if [pod_uid, container]
            .iter()
            .any(|name| name.is_empty() || name.contains(['/', '\0']) || *name == "..")
        {
            return Err(Error::NotStarted { container: container.to_owned(), pod: pod_uid.to_owned() });
        }
        let directory = self.container(pod_uid, container);
        let latest = runs(&directory).map_err(failed)?.into_iter().next_back();
        let (container, pod) = (container.to_owned(), pod_uid.to_owned());
        let run = match latest {
            Some(run) if options.previous && lock(&self.between_runs).contains(&directory) => Some(run),
            Some(run) if options.previous => run.checked_sub(1).filter(|run| has_run(&directory, *run)),
            Some(run) => Some(run),
            None if options.previous => None,
            None => return Err(Error::NotStarted { container, pod }),
        };
        let Some(run) = run else { return Err(Error::NoPrevious { container, pod }) };
        let live = lock(&self.live).get(&run_key(&directory, run)).cloned();
        let live = live.filter(|_| options.follow);
        let reader = Reader::open(directory, run, live, options, Timestamp::now()).await.map_err(failed)?;
        Ok(stream::unfold(reader, |mut reader| async move {
            let chunk = reader.chunk().await.transpose()?;
            Some((chunk, reader))
        }))
    }

    /// The last bytes of a run, without heads, for a termination message.
    pub(crate) async fn tail(&self, pod_uid: &str, container: &str, lines: u64, bytes: usize) -> String {
        let options = LogOptions { tail_lines: Some(lines), ..LogOptions::default() };
        let Ok(stream) = self.open(pod_uid, container, options).await else { return String::new() };
        let mut stream = std::pin::pin!(stream);
        let mut all = Vec::new();
        while let Some(Ok(chunk)) = futures::StreamExt::next(&mut stream).await {
            all.extend_from_slice(&chunk);
            let over = all.len().saturating_sub(bytes);
            all.drain(..over);
        }
        String::from_utf8_lossy(&all).into_owned()
    }

    /// A writer for a run that is about to start; older runs than the one before it are removed.
    pub(crate) fn writer(&self, pod_uid: &str, container: &str, run: u32) -> io::Result<Writer> {
        let directory = self.container(pod_uid, container);
        fs::create_dir_all(&directory)?;
        for old in runs(&directory)?.into_iter().filter(|old| old + MAX_RUNS <= run) {
            for part in parts(&directory, old)? {
                fs::remove_file(part_path(&directory, old, part))?;
            }
        }
        lock(&self.between_runs).remove(&directory);
        let (sender, receiver) = watch::channel(Progress { writes: 0, closed: false });
        lock(&self.live).insert(run_key(&directory, run), receiver);
        let file = File::create(part_path(&directory, run, 0))?;
        Ok(Writer { file, directory, run, part: 0, written: 0, progress: sender, live: self.live.clone() })
    }

    /// A container that ended will run again: until then, `previous` shows the run that ended, as a kubelet does.
    pub(crate) fn run_is_over(&self, pod_uid: &str, container: &str) {
        lock(&self.between_runs).insert(self.container(pod_uid, container));
    }

    /// Forgets a pod's logs.
    pub(crate) fn remove(&self, pod_uid: &str) -> io::Result<()> {
        let pod = self.directory.join(pod_uid);
        lock(&self.between_runs).retain(|container| !container.starts_with(&pod));
        remove_dir(&pod)
    }

    fn container(&self, pod_uid: &str, container: &str) -> PathBuf {
        self.directory.join(pod_uid).join(container)
    }
}

/// Writes one run's output.
#[derive(Debug)]
pub(crate) struct Writer {
    directory: PathBuf,
    run: u32,
    part: u64,
    file: File,
    written: u64,
    progress: watch::Sender<Progress>,
    live: Followers,
}

impl Writer {
    /// Appends entries. The file is in the page cache: this does not wait for a disk.
    fn append(&mut self, entries: &[u8]) -> io::Result<()> {
        if self.written > 0 && self.written + entries.len() as u64 > MAX_PART_BYTES {
            self.part += 1;
            self.file = File::create(part_path(&self.directory, self.run, self.part))?;
            self.written = 0;
            if let Some(old) = self.part.checked_sub(MAX_PARTS) {
                // It may be gone already; what matters is that it is.
                let _ = fs::remove_file(part_path(&self.directory, self.run, old));
            }
        }
        self.file.write_all(entries)?;
        self.written += entries.len() as u64;
        self.progress.send_modify(|progress| progress.writes += 1);
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.progress.send_modify(|progress| progress.closed = true);
        lock(&self.live).remove(&run_key(&self.directory, self.run));
    }
}

/// Copies one output of a process to its log, until it ends. An error of the disk is said once, then the output is
/// drained: a process must never block because its log cannot be written.
pub(crate) async fn copy(channel: Channel, mut output: impl AsyncRead + Unpin, writer: Arc<Mutex<Writer>>) {
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut line = Vec::new();
    let mut broken = false;
    loop {
        let read = match output.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(read) => read,
        };
        let mut entries = Vec::with_capacity(read + ENTRY_HEAD_BYTES);
        for piece in buffer.get(..read).unwrap_or_default().split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(piece);
            while line.len() > MAX_ENTRY_BYTES {
                let rest = line.split_off(MAX_ENTRY_BYTES);
                entry(&mut entries, channel, 'P', &line);
                line = rest;
            }
            if line.pop_if(|byte| *byte == b'\n').is_some() {
                entry(&mut entries, channel, 'F', &line);
                line.clear();
            }
        }
        append(&writer, &entries, &mut broken);
    }
    if !line.is_empty() {
        let mut entries = Vec::new();
        // Ended without a line feed: a part that nothing follows.
        entry(&mut entries, channel, 'P', &line);
        append(&writer, &entries, &mut broken);
    }
}

fn append(writer: &Mutex<Writer>, entries: &[u8], broken: &mut bool) {
    if *broken || entries.is_empty() {
        return;
    }
    if let Err(error) = lock(writer).append(entries) {
        tracing::error!(%error, "a container's log cannot be written; the rest of its output is lost");
        *broken = true;
    }
}

fn entry(out: &mut Vec<u8>, channel: Channel, flag: char, text: &[u8]) {
    entry_at(out, Timestamp::now(), channel, flag, text);
}

fn entry_at(out: &mut Vec<u8>, at: Timestamp, channel: Channel, flag: char, text: &[u8]) {
    let channel = match channel {
        Channel::Stdout => "stdout",
        Channel::Stderr => "stderr",
    };
    out.extend_from_slice(format!("{at:.9} {channel} {flag} ").as_bytes());
    out.extend_from_slice(text);
    out.push(b'\n');
}

/// Reads one run from part to part.
struct Reader {
    directory: PathBuf,
    run: u32,
    part: u64,
    file: BufReader<tokio::fs::File>,
    /// Set while following a run that goes on.
    live: Option<watch::Receiver<Progress>>,
    since: Option<Timestamp>,
    timestamps: bool,
    left: Option<u64>,
    /// What was read of an entry that the writer has not finished.
    pending: Vec<u8>,
    /// Whether the next entry begins a line (and so gets a timestamp).
    at_line_start: bool,
}

impl Reader {
    async fn open(
        directory: PathBuf,
        run: u32,
        live: Option<watch::Receiver<Progress>>,
        options: LogOptions,
        now: Timestamp,
    ) -> io::Result<Self> {
        let all = parts(&directory, run)?;
        let (part, skip) = match options.tail_lines {
            Some(lines) => tail_start(&directory, run, &all, lines).await?,
            None => (all.first().copied().unwrap_or(0), 0),
        };
        let mut file = BufReader::new(tokio::fs::File::open(part_path(&directory, run, part)).await?);
        skip_lines(&mut file, skip).await?;
        let ago = options.since_seconds.map(SignedDuration::from_secs);
        let since = options.since_time.or_else(|| ago.and_then(|ago| now.checked_sub(ago).ok()));
        Ok(Self {
            directory,
            run,
            part,
            file,
            live,
            since,
            timestamps: options.timestamps,
            left: options.limit_bytes,
            pending: Vec::new(),
            at_line_start: true,
        })
    }

    /// The next bytes of the answer; `None` at its end.
    async fn chunk(&mut self) -> io::Result<Option<Bytes>> {
        let mut out = Vec::new();
        while out.len() < CHUNK_BYTES && self.left != Some(0) {
            // Looked at before reading, so that a write in between is seen the next time round.
            let closed = self.live.as_mut().is_none_or(|live| live.borrow_and_update().closed);
            if !self.read_entry().await? {
                if let Some(part) = self.later_part()? {
                    // The part ended before the next was begun, so one more look finds all of it.
                    if !self.read_entry().await? {
                        self.turn_to(part).await?;
                        continue;
                    }
                } else if !out.is_empty() || closed {
                    break;
                } else if let Some(live) = &mut self.live {
                    // An error: the writer is gone, and what it wrote last is read in the next round.
                    if live.changed().await.is_err() {
                        self.live = None;
                    }
                    continue;
                }
            }
            self.render(&mut out);
            self.pending.clear();
        }
        Ok((!out.is_empty()).then(|| Bytes::from(out)))
    }

    /// Whether a whole entry is there.
    async fn read_entry(&mut self) -> io::Result<bool> {
        self.file.read_until(b'\n', &mut self.pending).await?;
        Ok(self.pending.last() == Some(&b'\n'))
    }

    fn later_part(&self) -> io::Result<Option<u64>> {
        Ok(parts(&self.directory, self.run)?.into_iter().find(|part| *part > self.part))
    }

    /// Goes on with another part; an entry that was torn by a crash is left behind.
    async fn turn_to(&mut self, part: u64) -> io::Result<()> {
        self.pending.clear();
        self.part = part;
        let path = part_path(&self.directory, self.run, part);
        self.file = BufReader::new(tokio::fs::File::open(path).await?);
        Ok(())
    }

    /// Adds one entry to the answer, if it is wanted.
    fn render(&mut self, out: &mut Vec<u8>) {
        let Some(Entry { at, whole, text, .. }) = Entry::parse(&self.pending) else { return };
        let wanted = self.since.is_none_or(|since| at.parse::<Timestamp>().is_ok_and(|at| at >= since));
        if !wanted {
            return;
        }
        let before = out.len();
        if self.timestamps && self.at_line_start {
            out.extend_from_slice(at.as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(text);
        if whole {
            out.push(b'\n');
        }
        self.at_line_start = whole;
        if let Some(left) = &mut self.left {
            let fits = usize::try_from(*left).unwrap_or(usize::MAX);
            out.truncate(before.saturating_add(fits));
            *left -= (out.len() - before) as u64;
        }
    }
}

/// One entry of a log file.
struct Entry<'a> {
    at: &'a str,
    channel: &'a [u8],
    whole: bool,
    text: &'a [u8],
}

impl<'a> Entry<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let mut fields = line.splitn(4, |byte| *byte == b' ');
        let at = std::str::from_utf8(fields.next()?).ok()?;
        let (channel, flag, text) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Self { at, channel, whole: flag == b"F", text })
    }
}

/// Where the last `lines` lines begin: a part, and how many of its entries to skip.
async fn tail_start(directory: &Path, run: u32, parts: &[u64], lines: u64) -> io::Result<(u64, u64)> {
    let mut missing = lines;
    let mut first = (parts.last().copied().unwrap_or(0), 0);
    for (age, part) in parts.iter().rev().enumerate() {
        let path = part_path(directory, run, *part);
        let mut file = BufReader::new(tokio::fs::File::open(path).await?);
        let (mut line, mut ends) = (Vec::new(), Vec::new());
        let mut entries = 0;
        let mut open_end = false;
        while file.read_until(b'\n', &mut line).await? > 0 {
            entries += 1;
            open_end = !Entry::parse(&line).is_some_and(|entry| entry.whole);
            if !open_end {
                ends.push(entries);
            }
            line.clear();
        }
        // A last line that its process has not ended counts as a line, in the newest part only.
        if open_end && age == 0 {
            ends.push(entries);
        }
        let here = ends.len() as u64;
        if here > missing {
            let index = usize::try_from(here - missing - 1).unwrap_or(0);
            return Ok((*part, ends.get(index).copied().unwrap_or(0)));
        }
        if here == missing && lines == 0 {
            return Ok((*part, entries));
        }
        missing -= here;
        first = (*part, 0);
    }
    Ok(first)
}

async fn skip_lines(file: &mut BufReader<tokio::fs::File>, count: u64) -> io::Result<()> {
    let mut line = Vec::new();
    for _ in 0..count {
        line.clear();
        if file.read_until(b'\n', &mut line).await? == 0 {
            break;
        }
    }
    Ok(())
}

fn part_path(directory: &Path, run: u32, part: u64) -> PathBuf {
    directory.join(format!("{run}-{part}.log"))
}

fn run_key(directory: &Path, run: u32) -> PathBuf {
    directory.join(run.to_string())
}

fn has_run(directory: &Path, run: u32) -> bool {
    parts(directory, run).is_ok_and(|parts| !parts.is_empty())
}

/// The runs that have files, oldest first.
fn runs(directory: &Path) -> io::Result<Vec<u32>> {
    let mut runs: Vec<u32> = names(directory)?.into_iter().map(|(run, _)| run).collect();
    runs.sort_unstable();
    runs.dedup();
    Ok(runs)
}

/// The parts of a run, oldest first.
fn parts(directory: &Path, run: u32) -> io::Result<Vec<u64>> {
    let mut parts: Vec<u64> =
        names(directory)?.into_iter().filter(|(r, _)| *r == run).map(|(_, p)| p).collect();
    parts.sort_unstable();
    Ok(parts)
}

fn names(directory: &Path) -> io::Result<Vec<(u32, u64)>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let parsed = name.to_str().and_then(|name| name.strip_suffix(".log")?.split_once('-'));
        found.extend(parsed.and_then(|(run, part)| Some((run.parse().ok()?, part.parse().ok()?))));
    }
    Ok(found)
}

/// No holder of these locks can leave them half changed, so a poisoned one is as good as any.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
