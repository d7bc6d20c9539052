//! Where do rows wait while the store is down? In a file beside the data, each on disk before it counts as kept.
//!
//! One line is one record: its CRC-32C in hex, a space, JSON. Rows are taken out in the order in which they came, and
//! the file is emptied when all of them are stored. A crash in between stores some of them twice over, and the second
//! time their ids are known. A line that was cut short by a crash was never acknowledged, and is dropped on opening.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::row::Record;

/// A million rows of the usual size, and many hours of an outage on a busy cluster. Beyond it entries are not kept
/// here; those that an object's state implies are said again later.
pub const MAX_BYTES: u64 = 1 << 30;

/// Rows that wait. Everything here blocks.
#[derive(Debug)]
pub struct Outbox {
    path: PathBuf,
    file: File,
    /// Up to here the file is known to be whole.
    bytes: u64,
    /// From here on, rows have not been stored.
    drained: u64,
    max_bytes: u64,
}

impl Outbox {
    /// Opens or makes it.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::with_limit(path, MAX_BYTES)
    }

    pub(crate) fn with_limit(path: &Path, max_bytes: u64) -> Result<Self, Error> {
        let failed = |attempt| move |source| Error::Outbox { attempt, path: path.to_owned(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path).map_err(failed("open"))?;
        // The file's own name must outlive a power cut too.
        if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            File::open(directory)
                .and_then(|directory| directory.sync_all())
                .map_err(failed("keep the name of"))?;
        }
        let bytes = whole_lines(&mut file).map_err(failed("read"))?;
        set_aside(path, &mut file, bytes).map_err(failed("repair"))?;
        Ok(Self { path: path.to_owned(), file, bytes, drained: 0, max_bytes })
    }

    pub fn is_empty(&self) -> bool {
        self.drained >= self.bytes
    }

    /// Keeps these rows: when it returns, they are on disk.
    ///
    /// # Errors
    /// When they are not, or may not be.
    pub fn put(&mut self, records: &[Record]) -> Result<(), Error> {
        let mut lines = Vec::new();
        for record in records {
            let json = serde_json::to_vec(record)
                .map_err(|error| self.failed("write", io::Error::new(io::ErrorKind::InvalidData, error)))?;
            lines.extend_from_slice(format!("{:08x} ", crc32c::crc32c(&json)).as_bytes());
            lines.extend_from_slice(&json);
            lines.push(b'\n');
        }
        let length = u64::try_from(lines.len()).unwrap_or(u64::MAX);
        let after = self.bytes.saturating_add(length);
        if after > self.max_bytes {
            return Err(Error::OutboxFull { path: self.path.clone(), bytes: self.bytes });
        }
        let written = self
            .file
            .seek(SeekFrom::Start(self.bytes))
            .and_then(|_| self.file.write_all(&lines))
            .and_then(|()| self.file.sync_data());
        if let Err(source) = written {
            // Whatever got there is no part of the outbox.
            let _ = self.file.set_len(self.bytes);
            return Err(self.failed("write", source));
        }
        self.bytes = after;
        Ok(())
    }

    /// The next rows to be stored, at most so many; they stay until [`Self::stored`].
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn next(&mut self, most: usize) -> Result<Batch, Error> {
        let read = || -> io::Result<Batch> {
            self.file.seek(SeekFrom::Start(self.drained))?;
            let mut lines = BufReader::new((&self.file).take(self.bytes.saturating_sub(self.drained)));
            let (mut records, mut end, mut line) = (Vec::new(), self.drained, Vec::new());
            while records.len() < most {
                line.clear();
                let length = lines.read_until(b'\n', &mut line)?;
                if length == 0 {
                    break;
                }
                end = end.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
                let record = decode(&line);
                records.push(
                    record.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a line was changed"))?,
                );
            }
            Ok(Batch { records, end })
        };
        let mut read = read;
        read().map_err(|source| self.failed("read", source))
    }

    /// These rows are stored. When all are, the file is emptied.
    ///
    /// # Errors
    /// When the file cannot be emptied; nothing is lost by that.
    pub fn stored(&mut self, end: u64) -> Result<(), Error> {
        self.drained = end;
        if self.is_empty() {
            let emptied = self.file.set_len(0).and_then(|()| self.file.sync_data());
            emptied.map_err(|source| self.failed("empty", source))?;
            (self.bytes, self.drained) = (0, 0);
        }
        Ok(())
    }

    fn failed(&self, attempt: &'static str, source: io::Error) -> Error {
        Error::Outbox { attempt, path: self.path.clone(), source }
    }
}

/// Some of what waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    pub records: Vec<Record>,
    /// To be said to [`Outbox::stored`].
    pub end: u64,
}

/// Cuts off what is not whole. A last line without its end is a write that was never acknowledged; anything else was
/// changed by somebody, and is kept beside for a person to see.
fn set_aside(path: &Path, file: &mut File, whole: u64) -> io::Result<()> {
    file.seek(SeekFrom::Start(whole))?;
    let mut rest = Vec::new();
    file.read_to_end(&mut rest)?;
    if rest.contains(&b'\n') {
        let aside = path.with_extension("damaged");
        tracing::error!(outbox = %path.display(), aside = %aside.display(), "a part of the outbox is damaged, and set aside");
        OpenOptions::new().create(true).append(true).open(aside)?.write_all(&rest)?;
    }
    if !rest.is_empty() {
        file.set_len(whole)?;
    }
    Ok(())
}

/// How far the file is whole.
fn whole_lines(file: &mut File) -> io::Result<u64> {
    file.seek(SeekFrom::Start(0))?;
    let mut lines = BufReader::new(file);
    let (mut whole, mut line) = (0_u64, Vec::new());
    loop {
        line.clear();
        let length = lines.read_until(b'\n', &mut line)?;
        if length == 0 || decode(&line).is_none() {
            return Ok(whole);
        }
        whole = whole.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
    }
}

fn decode(line: &[u8]) -> Option<Record> {
    let line = line.strip_suffix(b"\n")?;
    let (checksum, json) = line.split_at_checked(9)?;
    let checksum = u32::from_str_radix(std::str::from_utf8(checksum).ok()?.trim_end(), 16).ok()?;
    (crc32c::crc32c(json) == checksum).then(|| serde_json::from_slice(json).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn record(n: u8) -> Record {
        Record {
            id: Uuid::from_bytes([n; 16]),
            at: 0,
            actor: String::new(),
            kind: String::new(),
            namespace: String::new(),
            name: n.to_string(),
            uid: String::new(),
            target: "two\nlines".to_owned(),
            event: String::new(),
            outcome: String::new(),
            correlation: String::new(),
            payload: "{}".to_owned(),
        }
    }

    fn records(range: std::ops::Range<u8>) -> Vec<Record> {
        range.map(record).collect()
    }

    #[test]
    fn rows_come_out_in_the_order_in_which_they_came_also_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("outbox");
        let mut outbox = Outbox::open(&path).unwrap();
        assert!(outbox.is_empty());
        outbox.put(&records(0..3)).unwrap();
        outbox.put(&records(3..5)).unwrap();
        let mut outbox = Outbox::open(&path).unwrap();
        let first = outbox.next(2).unwrap();
        assert_eq!(first.records, records(0..2));
        assert_eq!(outbox.next(2).unwrap(), first, "they stay until they are stored");
        outbox.stored(first.end).unwrap();
        // What comes meanwhile goes behind.
        outbox.put(&records(5..6)).unwrap();
        let rest = outbox.next(100).unwrap();
        assert_eq!(rest.records, records(2..6));
        outbox.stored(rest.end).unwrap();
        assert!(outbox.is_empty() && std::fs::metadata(&path).unwrap().len() == 0);
        outbox.put(&records(7..8)).unwrap();
        assert_eq!(outbox.next(9).unwrap().records, records(7..8));
    }

    #[test]
    fn a_write_that_a_crash_cut_short_is_dropped_and_what_was_before_it_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("outbox");
        Outbox::open(&path).unwrap().put(&records(0..3)).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let second_ends =
            whole.split_inclusive(|byte| *byte == b'\n').take(2).map(<[u8]>::len).sum::<usize>();
        for cut in second_ends..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let mut outbox = Outbox::open(&path).unwrap();
            assert_eq!(outbox.next(9).unwrap().records, records(0..2), "cut at {cut}");
        }
        assert!(!path.with_extension("damaged").exists());
    }

    #[test]
    fn what_somebody_changed_is_set_aside_for_a_person_to_see() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("outbox");
        Outbox::open(&path).unwrap().put(&records(0..3)).unwrap();
        let changed = std::fs::read_to_string(&path).unwrap().replacen("\"1\"", "\"9\"", 1);
        std::fs::write(&path, changed).unwrap();
        let mut outbox = Outbox::open(&path).unwrap();
        assert_eq!(outbox.next(9).unwrap().records, records(0..1));
        let aside = std::fs::read_to_string(path.with_extension("damaged")).unwrap();
        assert_eq!(aside.lines().count(), 2);
    }

    #[test]
    fn a_full_outbox_says_so_and_keeps_what_it_has() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("outbox");
        let mut outbox = Outbox::with_limit(&path, 1_000).unwrap();
        outbox.put(&records(0..2)).unwrap();
        let error = outbox.put(&records(2..40)).unwrap_err();
        assert!(matches!(error, Error::OutboxFull { .. }), "{error}");
        assert_eq!(outbox.next(9).unwrap().records, records(0..2));
    }
}
