//! How does a log go on that somebody else keeps too, without a line lost or said twice?
//!
//! Lines come with the times that their keeper gave them. Each output's times never go back, so what is in the log
//! already is all that is older than its newest line, and as many lines of that very time as the log has.

use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, BufReader};

use jiff::Timestamp;
use tokio::sync::watch;

use super::{
    Channel, Entry, Logs, MAX_ENTRY_BYTES, Progress, Writer, entry_at, lock, part_path, parts, run_key,
};

/// Where a log is written anew; not the name of any part.
const BESIDE: &str = ".anew";

/// A log that is written from a source that can be read again.
#[derive(Debug)]
pub(crate) struct Resumed {
    writer: Writer,
    marks: Marks,
    lines: u64,
    /// What was written, in one number: two logs with the same say the same.
    said: DefaultHasher,
    /// What is to be written at once.
    pending: Vec<u8>,
    broken: bool,
}

/// How far an output is in the log: its newest time, and how many entries have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    at: Option<Timestamp>,
    count: u64,
}

/// How far both outputs are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks {
    stdout: Mark,
    stderr: Mark,
}

impl Marks {
    fn of(&mut self, channel: Channel) -> &mut Mark {
        match channel {
            Channel::Stdout => &mut self.stdout,
            Channel::Stderr => &mut self.stderr,
        }
    }
}

impl Mark {
    fn pass(&mut self, at: Timestamp) {
        let newest = self.at.map_or(at, |newest| newest.max(at));
        self.count = if self.at == Some(newest) { self.count + 1 } else { 1 };
        self.at = Some(newest);
    }

    /// Whether an entry is one that is there already; each counts once.
    fn takes(&mut self, at: Timestamp) -> bool {
        let Some(newest) = self.at else { return false };
        if at == newest && self.count > 0 {
            self.count -= 1;
            return true;
        }
        let known = at < newest;
        if !known {
            // From here on all is new, whatever a clock that is set back says.
            self.at = None;
        }
        known
    }
}

impl Logs {
    /// The log of a run, as far as it is written, or a new one.
    pub(crate) fn resume(&self, pod_uid: &str, container: &str, run: u32) -> io::Result<Resumed> {
        let directory = self.container(pod_uid, container);
        let found = parts(&directory, run)?;
        let Some(part) = found.last().copied() else {
            let writer = self.writer(pod_uid, container, run)?;
            return Ok(Resumed::new(writer));
        };
        let (progress, receiver) = watch::channel(Progress { writes: 0, closed: false });
        let file = OpenOptions::new().append(true).open(part_path(&directory, run, part))?;
        let live = self.live.clone();
        lock(&live).insert(run_key(&directory, run), receiver);
        let mut log = Resumed::new(Writer {
            directory: directory.clone(),
            run,
            part,
            file,
            written: 0,
            progress,
            live,
        });
        for number in found {
            log.writer.written = 0;
            let mut file = BufReader::new(File::open(part_path(&directory, run, number))?);
            let mut line = Vec::new();
            while file.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
                log.writer.written += line.len() as u64;
                if let Some(entry) = Entry::parse(&line)
                    && let Ok(at) = entry.at.parse()
                {
                    let channel = if entry.channel == b"stderr" { Channel::Stderr } else { Channel::Stdout };
                    log.passed(channel, at, entry.whole, entry.text);
                }
                line.clear();
            }
        }
        // What a crash tore off is said again, whole.
        log.writer.file.set_len(log.writer.written)?;
        Ok(log)
    }
}

impl Resumed {
    fn new(writer: Writer) -> Self {
        let (marks, said) = (Marks::default(), DefaultHasher::new());
        Self { writer, marks, lines: 0, said, pending: Vec::new(), broken: false }
    }

    /// The same run's log from its beginning, beside this one.
    pub(crate) fn anew(&self) -> io::Result<Self> {
        let beside = Logs::new(self.writer.directory.join(BESIDE));
        let _ = fs::remove_dir_all(&beside.directory);
        let directory = beside.container("", "");
        fs::create_dir_all(&directory)?;
        beside.writer("", "", self.writer.run).map(Self::new)
    }

    /// Puts another log of the same run in the place of this one, if it says anything else. Whoever reads this one reads
    /// on in what it was.
    pub(crate) fn become_whole(&mut self, whole: Self) -> io::Result<()> {
        let (directory, run) = (&self.writer.directory, self.writer.run);
        let from = whole.writer.directory.clone();
        let differs = self.said.finish() != whole.said.finish();
        drop(whole);
        if differs {
            for part in parts(directory, run)? {
                fs::remove_file(part_path(directory, run, part))?;
            }
            for part in parts(&from, run)? {
                fs::rename(part_path(&from, run, part), part_path(directory, run, part))?;
            }
        }
        fs::remove_dir_all(from)
    }

    /// One more entry is in the log.
    fn passed(&mut self, channel: Channel, at: Timestamp, whole: bool, text: &[u8]) {
        self.marks.of(channel).pass(at);
        self.lines += 1;
        (channel == Channel::Stderr, whole, text).hash(&mut self.said);
    }

    /// The time since which the source is to be read: no output is newer in the log than the older of both.
    pub(crate) fn newest(&self) -> Option<Timestamp> {
        match (self.marks.stdout.at, self.marks.stderr.at) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }

    /// To be asked for before the source is read, and shown with every line of it.
    pub(crate) fn again(&self) -> Marks {
        self.marks
    }

    /// Adds a line, or a part of one without a line feed, unless it is there already. It is in the log after the next
    /// [`Self::flush`].
    pub(crate) fn add(&mut self, channel: Channel, at: Timestamp, text: &[u8], again: &mut Marks) {
        let known = again.of(channel);
        let (text, whole) = match text.strip_suffix(b"\n") {
            Some(text) => (text, true),
            None => (text, false),
        };
        let mut pieces = text.chunks(MAX_ENTRY_BYTES).peekable();
        // An empty line is a line.
        let mut next = pieces.next().or_else(|| whole.then_some(&[][..]));
        while let Some(piece) = next {
            next = pieces.next();
            if known.takes(at) {
                continue;
            }
            let ends = whole && next.is_none();
            entry_at(&mut self.pending, at, channel, if ends { 'F' } else { 'P' }, piece);
            self.passed(channel, at, ends, piece);
        }
    }

    /// Writes what was added. An error of the disk is said once: a container must never wait because its log cannot be
    /// written.
    pub(crate) fn flush(&mut self) {
        if !self.pending.is_empty()
            && !self.broken
            && let Err(error) = self.writer.append(&self.pending)
        {
            tracing::error!(%error, "a container's log cannot be written; the rest of its output is lost");
            self.broken = true;
        }
        self.pending.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::{LogOptions, Logs};
    use futures::StreamExt;

    fn at(text: &str) -> Timestamp {
        format!("2026-11-16T12:00:{text}Z").parse().unwrap()
    }

    async fn whole(logs: &Logs) -> String {
        let chunks: Vec<_> = logs.open("pod", "main", LogOptions::default()).await.unwrap().collect().await;
        let bytes = chunks.into_iter().flat_map(|chunk| chunk.unwrap().to_vec()).collect();
        String::from_utf8(bytes).unwrap()
    }

    /// All that the source has, as it is told when it is asked since a time.
    fn read(log: &mut Resumed, source: &[(Channel, &str, &str)]) {
        let mut again = log.again();
        let since = log.newest();
        for (channel, time, text) in source.iter().filter(|(_, time, _)| since.is_none_or(|s| at(time) >= s))
        {
            log.add(*channel, at(time), text.as_bytes(), &mut again);
        }
        log.flush();
    }

    #[tokio::test]
    async fn wherever_a_log_is_cut_each_line_is_in_it_once() {
        use Channel::{Stderr, Stdout};
        // Whole seconds, as Podman gives them; outputs that overtake each other; a line without an end.
        let source = [
            (Stdout, "01", "a\n"),
            (Stdout, "01", "a\n"),
            (Stderr, "01", "e\n"),
            (Stdout, "02", "\n"),
            (Stderr, "03", "f\n"),
            (Stdout, "02", "b\n"),
            (Stdout, "04.5", "c"),
        ];
        let lines: Vec<&str> = source.iter().map(|(_, _, text)| *text).collect();
        for cut in 0..=source.len() {
            for second in cut..=source.len() {
                let home = tempfile::tempdir().unwrap();
                for upto in [cut, second, source.len()] {
                    let mut log = Logs::new(home.path()).resume("pod", "main", 0).unwrap();
                    read(&mut log, &source[..upto]);
                }
                let found = whole(&Logs::new(home.path())).await;
                assert_eq!(found, lines.concat(), "cut at {cut} and {second}");
            }
        }
    }

    #[tokio::test]
    async fn a_log_that_was_told_lines_too_few_is_put_right() {
        use Channel::Stdout;
        let home = tempfile::tempdir().unwrap();
        let whole_source = [(Stdout, "01", "a\n"), (Stdout, "01", "b\n"), (Stdout, "02", "c\n")];
        let mut log = Logs::new(home.path()).resume("pod", "main", 0).unwrap();
        read(&mut log, &[(Stdout, "01", "a\n"), (Stdout, "02", "c\n")]);
        for _ in 0..2 {
            let mut anew = log.anew().unwrap();
            read(&mut anew, &whole_source);
            log.become_whole(anew).unwrap();
            assert_eq!(whole(&Logs::new(home.path())).await, "a\nb\nc\n");
        }
        let left: Vec<_> = std::fs::read_dir(home.path().join("pod/main")).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[tokio::test]
    async fn an_entry_torn_by_a_crash_is_written_anew() {
        let home = tempfile::tempdir().unwrap();
        let source = [(Channel::Stdout, "01", "one\n"), (Channel::Stdout, "02", "two\n")];
        read(&mut Logs::new(home.path()).resume("pod", "main", 0).unwrap(), &source);
        let path = home.path().join("pod/main/0-0.log");
        let written = std::fs::read(&path).unwrap();
        for cut in 0..written.len() {
            std::fs::write(&path, &written[..cut]).unwrap();
            read(&mut Logs::new(home.path()).resume("pod", "main", 0).unwrap(), &source);
            assert_eq!(std::fs::read(&path).unwrap(), written, "cut after {cut} bytes");
        }
    }
}
