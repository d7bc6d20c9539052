//! What does the journal ask of a file system?
//!
//! Little, so that all of it can be made to fail: [`Files`] is the machine's, and `testing` has one in memory that loses,
//! tears and reorders what was not synced, refuses, and runs full.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// A file system, or something that behaves like one.
pub(super) trait Disk: fmt::Debug + Send + Sync {
    fn make_dir(&self, dir: &Path) -> io::Result<()>;

    /// Every entry of a directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>>;

    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// An empty file of that name, whatever was there.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Handle>>;

    /// The end of a file that is there.
    fn append(&self, path: &Path) -> io::Result<Box<dyn Handle>>;

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Which names a directory has is safe after this, and not before.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Holds a file for this process alone until it is dropped; `None`: another one has it.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn fmt::Debug + Send + Sync>>>;

    /// Does long work beside the caller.
    fn beside(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<Option<JoinHandle<()>>>;
}

/// A file that is being written.
pub(super) trait Handle: Write + fmt::Debug + Send {
    /// What was written is safe after this, and not before.
    fn sync(&self) -> io::Result<()>;

    /// Drops what is behind `len`.
    fn cut(&self, len: u64) -> io::Result<()>;

    /// Puts so many zeros behind what was written. What is written next goes over them.
    fn make_room(&mut self, len: u64) -> io::Result<()>;
}

/// The machine's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Files;

impl Disk for Files {
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.path())).collect()
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Handle>> {
        Ok(Box::new(File::create(path)?))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Handle>> {
        // Not with O_APPEND: what goes over room that was made is no longer at the end.
        let mut file = OpenOptions::new().write(true).open(path)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Box::new(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn fmt::Debug + Send + Sync>>> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn beside(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<Option<JoinHandle<()>>> {
        std::thread::Builder::new().name(name.to_owned()).spawn(work).map(Some)
    }
}

impl Handle for File {
    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn cut(&self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }

    fn make_room(&mut self, len: u64) -> io::Result<()> {
        let at = self.stream_position()?;
        let filled = io::copy(&mut io::repeat(0).take(len), self).map(|_| ());
        // Also after a failure: what is written next must not go behind the zeros.
        let back = self.seek(SeekFrom::Start(at)).map(|_| ());
        filled.and(back)
    }
}
