//! What was fetched once, is it still here, and is it still what it was?
//!
//! Files named by their digests, so nothing in it can be out of date, and each may be thrown away at any time. What comes
//! in is checked, and what goes out is checked again: a file that has rotted is as good as none.

use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use super::{Blob, Digest};

/// Together: ten of the largest bundles there can be (20 objects of 1.5 MiB), thousands of the usual ones.
const MAX_KEPT_BYTES: u64 = 300 << 20;

/// Blobs in a directory, by digest.
#[derive(Clone, Debug)]
pub struct Fetched {
    directory: PathBuf,
    max_bytes: u64,
}

/// These are not the bytes that were asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("digest mismatch: {wanted} was asked for, and the bytes have {found}")]
pub struct Mismatch {
    wanted: Digest,
    found: Digest,
}

impl Fetched {
    /// In a directory, which is made when there is something to keep.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), max_bytes: MAX_KEPT_BYTES }
    }

    /// The bytes of a digest, if they are here and sound, and no more than `at_most`.
    pub fn get(&self, digest: &Digest, at_most: u64) -> Option<Vec<u8>> {
        let path = self.path(digest);
        let file = fs::File::open(&path).ok()?;
        let size = file.metadata().ok()?.len();
        let mut bytes = Vec::new();
        let read = Blob::new(Box::new(file), digest.clone(), size).take(at_most.saturating_add(1));
        let sound = { read }.read_to_end(&mut bytes).is_ok();
        if !sound {
            // Asked for again, it would stand in the way.
            let _ = fs::remove_file(&path);
        }
        (sound && bytes.len() as u64 <= at_most).then_some(bytes)
    }

    /// Checks that these are the bytes of a digest, and keeps them. That they cannot be kept (a full disk) is no error to
    /// whoever has them in hand: they are fetched again.
    ///
    /// # Errors
    /// When they are not.
    pub fn put(&self, digest: &Digest, bytes: &[u8]) -> Result<(), Mismatch> {
        let mut hasher = digest.hasher();
        hasher.update(bytes);
        let found = hasher.finish();
        if found != *digest {
            return Err(Mismatch { wanted: digest.clone(), found });
        }
        if let Err(error) = self.write(digest, bytes) {
            tracing::warn!(%error, directory = %self.directory.display(), "what was fetched cannot be kept");
        }
        Ok(())
    }

    fn write(&self, digest: &Digest, bytes: &[u8]) -> io::Result<()> {
        // Two of one process may fetch the same at the same time.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        fs::create_dir_all(&self.directory)?;
        self.make_room(bytes.len() as u64)?;
        let unique = NEXT.fetch_add(1, Ordering::Relaxed);
        let partial = self.directory.join(format!("partial-{}-{unique}", std::process::id()));
        let written = fs::write(&partial, bytes).and_then(|()| fs::rename(&partial, self.path(digest)));
        written.inspect_err(|_| drop(fs::remove_file(&partial)))
    }

    /// What was fetched first goes first; so does what a crash left half written.
    fn make_room(&self, more: u64) -> io::Result<()> {
        let mut kept: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            // Another thread may have removed it meanwhile.
            let Ok(about) = entry.metadata() else { continue };
            kept.push((about.modified()?, about.len(), entry.path()));
        }
        kept.sort();
        let mut total = kept.iter().fold(more, |sum, (_, size, _)| sum.saturating_add(*size));
        for (_, size, path) in kept {
            if total <= self.max_bytes {
                break;
            }
            if fs::remove_file(path).is_ok() {
                total = total.saturating_sub(size);
            }
        }
        Ok(())
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        self.directory.join(format!("{}-{}", digest.algorithm(), digest.hex()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_what_it_is_called_is_neither_taken_nor_given() {
        let directory = tempfile::tempdir().unwrap();
        let fetched = Fetched::new(directory.path().join("made"));
        let digest = Digest::of(b"good");
        assert_eq!(fetched.get(&digest, 100), None);
        let refused = fetched.put(&digest, b"evil").unwrap_err().to_string();
        assert!(refused.starts_with("digest mismatch"), "{refused}");
        assert_eq!(fetched.get(&digest, 100), None);
        fetched.put(&digest, b"good").unwrap();
        assert_eq!(fetched.get(&digest, 4).unwrap(), b"good");
        assert_eq!(fetched.get(&digest, 3), None, "too much for who asks, but sound");
        assert!(fetched.get(&digest, 4).is_some());
        fs::write(fetched.path(&digest), "rotten").unwrap();
        assert_eq!(fetched.get(&digest, 100), None);
        assert!(!fetched.path(&digest).exists());
    }

    #[test]
    fn it_does_not_grow_for_ever_and_what_came_first_goes_first() {
        let directory = tempfile::tempdir().unwrap();
        let fetched = Fetched { directory: directory.path().to_owned(), max_bytes: 10 };
        let all: Vec<Digest> = (0_u8..4).map(|n| Digest::of(&[n; 4])).collect();
        for (n, digest) in (0_u8..).zip(&all) {
            fetched.put(digest, &[n; 4]).unwrap();
            let age = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(n.into());
            let file = fs::File::options().write(true).open(fetched.path(digest)).unwrap();
            file.set_modified(age).unwrap();
        }
        let here: Vec<bool> = all.iter().map(|digest| fetched.get(digest, 10).is_some()).collect();
        assert_eq!(here, [false, false, true, true]);
    }

    #[test]
    fn where_nothing_can_be_kept_the_bytes_are_still_good() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a file");
        fs::write(&file, "in the way").unwrap();
        let fetched = Fetched::new(file.join("below"));
        assert_eq!(fetched.put(&Digest::of(b"x"), b"x"), Ok(()));
    }
}
