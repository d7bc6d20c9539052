//! How is a path followed that a stranger wrote?
//!
//! Never by its name from `/`: every step is resolved by the kernel within a directory that is held open, so that no
//! link on the way, planted before or swapped in meanwhile, leads out of it.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat};
use nix::sys::stat::{Mode, mkdirat};

/// Links that lead to links: what the kernel follows.
const MAX_LINKS: usize = 40;

/// What links on the way mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// One that leads out is an error.
    Stay,
    /// They mean what they would mean if the directory were `/`.
    AsRoot,
}

/// What is made where nothing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Directory,
    File,
}

/// A path opened to be named, not to be read.
pub(crate) fn open(path: &Path) -> nix::Result<OwnedFd> {
    nix::fcntl::open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())
}

/// Opens a path below `base`; a link at its end is opened itself with `O_NOFOLLOW`.
pub(crate) fn find(base: &OwnedFd, path: &Path, links: Links, flags: OFlag) -> nix::Result<OwnedFd> {
    let within = match links {
        Links::Stay => ResolveFlag::RESOLVE_BENEATH,
        Links::AsRoot => ResolveFlag::RESOLVE_IN_ROOT,
    };
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC);
    openat2(base, path, how.resolve(within | ResolveFlag::RESOLVE_NO_MAGICLINKS))
}

/// Opens a path below `base`, making what is missing: directories, and at the end what is said.
pub(crate) fn make(base: &OwnedFd, path: &Path, links: Links, missing: Missing) -> nix::Result<OwnedFd> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        match make_on_the_way(base, &path, links, missing)? {
            Made::All(opened) => return Ok(opened),
            Made::Link(instead) => path = instead,
        }
    }
    Err(Errno::ELOOP)
}

/// How far a path could be made.
enum Made {
    All(OwnedFd),
    /// A link to what does not exist yet stands on the way: this is the path without it.
    Link(PathBuf),
}

fn make_on_the_way(base: &OwnedFd, path: &Path, links: Links, missing: Missing) -> nix::Result<Made> {
    match find(base, path, links, OFlag::O_PATH) {
        Err(Errno::ENOENT) => {}
        found => return found.map(Made::All),
    }
    let mut so_far = PathBuf::new();
    let mut parent = find(base, Path::new("."), links, OFlag::O_PATH)?;
    let mut parts = path.components();
    while let Some(part) = parts.next() {
        let before = so_far.clone();
        so_far.push(part);
        parent = match find(base, &so_far, links, OFlag::O_PATH) {
            Err(Errno::ENOENT) => {
                if let (Ok(to), Links::AsRoot) = (readlinkat(&parent, part.as_os_str()), links) {
                    let to = PathBuf::from(to);
                    let to = to.strip_prefix("/").map_or_else(|_| before.join(&to), Path::to_owned);
                    return Ok(Made::Link(to.join(parts.as_path())));
                }
                if parts.as_path().as_os_str().is_empty() && missing == Missing::File {
                    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_NOFOLLOW;
                    let mode = Mode::from_bits_truncate(0o644);
                    openat(&parent, part.as_os_str(), flags | OFlag::O_CLOEXEC, mode)?;
                } else {
                    mkdirat(&parent, part.as_os_str(), Mode::from_bits_truncate(0o755))?;
                }
                find(base, &so_far, links, OFlag::O_PATH)?
            }
            opened => opened?,
        };
    }
    Ok(Made::All(parent))
}

/// A name for exactly what was opened.
pub(crate) fn by_fd(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// A relative path that stays where it starts.
pub(crate) fn is_plain_relative(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        && path.components().next().is_some()
}

/// An absolute path that means what it says.
pub(crate) fn is_plain_absolute(path: &Path) -> bool {
    let mut parts = path.components();
    parts.next() == Some(Component::RootDir) && parts.all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn no_link_leads_out() {
        let home = tempfile::tempdir().unwrap();
        let inner = home.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::create_dir(home.path().join("out")).unwrap();
        symlink("../out", inner.join("up")).unwrap();
        symlink("/out", inner.join("absolute")).unwrap();
        let base = open(&inner).unwrap();
        for link in ["up", "absolute"] {
            let path = Path::new(link).join("x");
            assert!(make(&base, &path, Links::Stay, Missing::Directory).is_err(), "{link}");
        }
        // As a root, `..` stays and `/out` is the root's own.
        fs::create_dir(inner.join("out")).unwrap();
        for link in ["up", "absolute"] {
            make(&base, &Path::new(link).join(link), Links::AsRoot, Missing::File).unwrap();
            assert!(inner.join("out").join(link).is_file(), "{link}");
        }
        assert!(fs::read_dir(home.path().join("out")).unwrap().next().is_none());
        // A link to what is not there yet has it made, within; one to itself does not go on for ever.
        symlink("/not/yet", inner.join("dangling")).unwrap();
        make(&base, Path::new("dangling/deep/f"), Links::AsRoot, Missing::File).unwrap();
        assert!(inner.join("not/yet/deep/f").is_file());
        assert!(make(&base, Path::new("dangling/x"), Links::Stay, Missing::File).is_err());
        symlink("itself", inner.join("itself")).unwrap();
        assert!(make(&base, Path::new("itself/x"), Links::AsRoot, Missing::File).is_err());
    }
}
