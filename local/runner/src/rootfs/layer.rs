//! What does one layer change?

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, futimens, mkdirat};
use nix::sys::time::TimeSpec;
use nix::unistd::{linkat, symlinkat};

use super::Error;
use crate::beneath::{self, Links, Missing, by_fd};
use crate::oci::{Blob, Digest, Hasher, Kind, Member, decompressed, members};

/// A name that begins so says that something is gone.
const WHITEOUT: &[u8] = b".wh.";
/// All that earlier layers have in this directory is gone.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Notes of a file system that once wrote layers; nothing to us.
const WHITEOUT_NOTES: &[u8] = b".wh..wh.";

/// What of a mode is kept: nobody becomes another by running a file (set-user-ID), and sticky directories stay so.
const KEPT_MODE: u32 = 0o1777;
/// The owner is the only one there is, and must be able to unpack, copy and remove.
const OWNER_FILE: u32 = 0o400;
const OWNER_DIRECTORY: u32 = 0o700;

/// What an image may still take.
#[derive(Debug)]
pub(super) struct Budget {
    pub(super) bytes: u64,
    pub(super) entries: u64,
}

/// A layer that is being applied.
pub(super) struct Layer<'a> {
    root: &'a OwnedFd,
    digest: Digest,
    budget: &'a mut Budget,
    /// What this layer brought: its own whiteouts do not mean it.
    brought: BTreeSet<PathBuf>,
}

impl<'a> Layer<'a> {
    pub(super) fn new(root: &'a OwnedFd, digest: Digest, budget: &'a mut Budget) -> Self {
        Self { root, digest, budget, brought: BTreeSet::new() }
    }

    /// Applies the layer; the digest of what it unpacked to, by the algorithm of `said`.
    pub(super) fn apply(mut self, blob: Blob, said: &Digest) -> Result<Digest, Error> {
        let layer = self.digest.clone();
        let read = |source| Error::Read { layer: layer.clone(), source };
        let plain = decompressed(blob).map_err(read)?;
        let mut counted = Counted { source: plain, hasher: said.hasher(), left: self.budget.bytes };
        {
            let mut archive = tar::Archive::new(&mut counted);
            for member in members(archive.entries().map_err(read)?) {
                self.member(&mut member.map_err(read)?)?;
            }
        }
        // What follows the last member is part of the layer too, and of its digests.
        io::copy(&mut counted, &mut io::sink()).map_err(read)?;
        self.budget.bytes = counted.left;
        Ok(counted.hasher.finish())
    }

    fn member<R: Read>(&mut self, member: &mut Member<'_, R>) -> Result<(), Error> {
        let path = member.path.clone();
        let Some(left) = self.budget.entries.checked_sub(1) else {
            return Err(self.refused(&path, "the image has more entries than an image may have"));
        };
        self.budget.entries = left;
        if path.as_os_str().as_bytes().contains(&0) {
            return Err(self.refused(&path, "its path holds a NUL byte"));
        }
        let normal: PathBuf =
            path.components().filter(|part| *part != std::path::Component::CurDir).collect();
        let Some(name) = normal.file_name().filter(|_| beneath::is_plain_relative(&normal)) else {
            // The root itself is there already.
            let root = normal.as_os_str().is_empty() && member.kind == Kind::Directory;
            return if root { Ok(()) } else { Err(self.refused(&path, "its path is absolute or has `..`")) };
        };
        let directory = normal.parent().unwrap_or(Path::new(""));
        let parent = beneath::make(self.root, directory, Links::AsRoot, Missing::Directory);
        let parent = parent.map_err(|errno| self.failed(&path, errno.into()))?;
        if let Some(hidden) = name.as_bytes().strip_prefix(WHITEOUT) {
            let removed = if name.as_bytes() == OPAQUE {
                self.clear(&parent, directory)
            } else if name.as_bytes().starts_with(WHITEOUT_NOTES) {
                Ok(())
            } else {
                self.whiteout(&parent, directory, Path::new(std::ffi::OsStr::from_bytes(hidden)))
            };
            return removed.map_err(|source| self.failed(&path, source));
        }
        if let Kind::Other(what) = member.kind {
            return Err(self.refused(&path, &format!("it is {what}")));
        }
        let linked = match &member.kind {
            Kind::HardLink(to) => Some(self.linked(to).map_err(|how| {
                self.refused(&path, &format!("it is a hard link to {}, which {how}", to.display()))
            })?),
            Kind::File | Kind::Directory | Kind::Symlink(_) | Kind::Other(_) => None,
        };
        let placed = place(&parent, Path::new(name), member, linked.as_ref());
        placed.map_err(|source| self.failed(&path, source))?;
        self.brought.insert(normal);
        Ok(())
    }

    /// What a hard link is to; an error says how it is none.
    fn linked(&self, to: &Path) -> Result<OwnedFd, &'static str> {
        if !beneath::is_plain_relative(to) {
            return Err("is absolute or has `..`");
        }
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW;
        let target = beneath::find(self.root, to, Links::AsRoot, flags).map_err(|_| "is not in the image")?;
        // Of a link, the link itself: what it leads to may lie anywhere.
        let kind = nix::sys::stat::fstat(&target).map_err(|_| "cannot be looked at")?.st_mode;
        if kind & nix::libc::S_IFMT == nix::libc::S_IFDIR { Err("is a directory") } else { Ok(target) }
    }

    /// `.wh.NAME`: what earlier layers put there is gone.
    fn whiteout(&self, parent: &OwnedFd, directory: &Path, name: &Path) -> io::Result<()> {
        let at = by_fd(parent).join(name);
        match (fs::symlink_metadata(&at), self.has_brought(&directory.join(name))) {
            // A name such as `..` is none.
            _ if !beneath::is_plain_relative(name) || name == Path::new(".") => Ok(()),
            (Ok(meta), false) if meta.is_dir() => fs::remove_dir_all(&at),
            (Ok(_), false) => fs::remove_file(&at),
            (Ok(_), true) | (Err(_), _) => Ok(()),
        }
    }

    /// An opaque directory: what earlier layers put into it is gone, at any depth.
    fn clear(&self, parent: &OwnedFd, directory: &Path) -> io::Result<()> {
        for entry in fs::read_dir(by_fd(parent))? {
            let entry = entry?;
            let path = directory.join(entry.file_name());
            let is_dir = entry.file_type()?.is_dir();
            if !self.has_brought(&path) {
                if is_dir { fs::remove_dir_all(entry.path())? } else { fs::remove_file(entry.path())? }
            } else if is_dir {
                let inner = beneath::find(parent, Path::new(&entry.file_name()), Links::Stay, OFlag::O_PATH)?;
                self.clear(&inner, &path)?;
            }
        }
        Ok(())
    }

    /// Whether this layer brought a path or something below it.
    fn has_brought(&self, path: &Path) -> bool {
        self.brought.range(path.to_owned()..).next().is_some_and(|next| next.starts_with(path))
    }

    fn refused(&self, path: &Path, why: &str) -> Error {
        Error::Refused { layer: self.digest.clone(), path: path.to_owned(), why: why.to_owned() }
    }

    fn failed(&self, path: &Path, source: io::Error) -> Error {
        Error::Write { layer: self.digest.clone(), path: path.to_owned(), source }
    }
}

/// Puts a member where its path says, in place of whatever was there. `linked`: what it is a hard link to.
fn place<R: Read>(
    parent: &OwnedFd,
    name: &Path,
    member: &mut Member<'_, R>,
    linked: Option<&OwnedFd>,
) -> io::Result<()> {
    let at = by_fd(parent).join(name);
    let there = fs::symlink_metadata(&at).ok();
    let stays = member.kind == Kind::Directory && there.as_ref().is_some_and(fs::Metadata::is_dir);
    if !stays {
        clear_place(&at, there)?;
    }
    match (&member.kind, linked) {
        (Kind::File, _) => write(parent, name, member),
        (Kind::Directory, _) => {
            if !stays {
                mkdirat(parent, name, Mode::from_bits_truncate(OWNER_DIRECTORY))?;
            }
            let mode = fs::Permissions::from_mode(member.mode & KEPT_MODE | OWNER_DIRECTORY);
            fs::set_permissions(&at, mode)
        }
        (Kind::Symlink(to), _) => symlinkat(to, parent, name).map_err(io::Error::from),
        (Kind::HardLink(_), Some(linked)) => {
            let follow = AtFlags::AT_SYMLINK_FOLLOW;
            linkat(AT_FDCWD, &by_fd(linked), parent, name, follow).map_err(io::Error::from)
        }
        (Kind::HardLink(_), None) | (Kind::Other(_), _) => Ok(()),
    }
}

fn clear_place(at: &Path, there: Option<fs::Metadata>) -> io::Result<()> {
    match there {
        Some(meta) if meta.is_dir() => fs::remove_dir_all(at),
        Some(_) => fs::remove_file(at),
        None => Ok(()),
    }
}

fn write<R: Read>(parent: &OwnedFd, name: &Path, member: &mut Member<'_, R>) -> io::Result<()> {
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let made = openat(parent, name, flags, Mode::from_bits_truncate(0o600))?;
    let mut file = fs::File::from(made);
    io::copy(member, &mut file)?;
    file.set_permissions(fs::Permissions::from_mode(member.mode & KEPT_MODE | OWNER_FILE))?;
    // Some programs compare times to know whether what they compiled is still good.
    let modified = TimeSpec::new(i64::try_from(member.modified).unwrap_or(0), 0);
    futimens(file.as_fd(), &modified, &modified).map_err(io::Error::from)
}

/// Bytes that are counted and hashed as they go by.
struct Counted<R> {
    source: R,
    hasher: Hasher,
    left: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        let too_much =
            || io::Error::new(io::ErrorKind::FileTooLarge, "the image unpacks to more than an image may");
        self.left = self.left.checked_sub(read as u64).ok_or_else(too_much)?;
        self.hasher.update(buffer.get(..read).unwrap_or_default());
        Ok(read)
    }
}
