//! Whom does a user namespace know?
//!
//! One user and one group each process may map for itself. More groups (`fsGroup`, `supplementalGroups`) only somebody
//! outside can map, with power over groups there:
//!
//! ```text
//! process ─spawn─▶ mapper ─ready─▶   waits outside the namespace
//! process: enters its namespace
//! process ─maps─▶ mapper             writes /proc/<process>/gid_map, uid_map; answers; ends
//! ```
//! The mapper knows the process by its directory in `/proc`, opened beforehand: numbers differ between namespaces, and
//! the root may have changed meanwhile.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use serde::{Deserialize, Serialize};

use crate::isolate::{Error, die_with_parent, errno, failed};

/// The argument that makes this executable a mapper.
pub(crate) const MAPPER: &str = "--mapper";

/// What it says first.
const READY: &[u8] = b"!";

/// A container's group G is G + this on the machine: nobody's, so it opens nothing that belongs to the machine's own
/// groups. Kubernetes' groups end at 2³¹ − 1, so none runs over.
pub(crate) const GROUP_BASE: u32 = 1 << 31;

/// Who inside is who outside, one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Maps {
    pub(crate) users: Vec<(u32, u32)>,
    pub(crate) groups: Vec<(u32, u32)>,
}

/// Somebody outside who writes the maps.
#[derive(Debug)]
pub(crate) struct Mapper {
    child: Child,
    socket: UnixStream,
}

impl Maps {
    /// What a process can map without help: itself.
    pub(crate) fn one(user: (u32, u32), group: (u32, u32)) -> Self {
        Self { users: vec![user], groups: vec![group] }
    }

    /// Enters nothing: maps the namespace that was entered just now, as far as that goes without help.
    pub(crate) fn write_own(&self) -> Result<(), Error> {
        let write = |path: &str, text: String| std::fs::write(path, text).map_err(failed(path));
        write("/proc/self/setgroups", "deny".to_owned())?;
        write("/proc/self/uid_map", lines(&self.users))?;
        write("/proc/self/gid_map", lines(&self.groups))
    }
}

impl Mapper {
    /// Starts a mapper, before the namespace is entered.
    pub(crate) fn start(executable: &Path, arguments: &[OsString]) -> Result<Self, Error> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let own = open("/proc/self", flags, Mode::empty()).map_err(errno("/proc/self"))?;
        let (mut ours, theirs) = UnixStream::pair().map_err(failed("a socket"))?;
        let mut command = Command::new(executable);
        command.args(arguments).arg(MAPPER).stdin(OwnedFd::from(theirs)).stdout(own);
        let child = command.stderr(Stdio::null()).spawn().map_err(failed("starting the mapper"))?;
        // What a program consists of is not all there when it was started: the root must not change before.
        ours.read_exact(&mut [0]).map_err(failed("starting the mapper"))?;
        Ok(Self { child, socket: ours })
    }

    /// Has the namespace mapped that was entered just now.
    pub(crate) fn map(mut self, maps: &Maps) -> Result<(), Error> {
        let text = serde_json::to_vec(maps).map_err(io::Error::from).map_err(failed("the maps"))?;
        let told =
            self.socket.write_all(&text).and_then(|()| self.socket.shutdown(std::net::Shutdown::Write));
        let mut complaint = String::new();
        let heard = told.and_then(|()| self.socket.read_to_string(&mut complaint));
        heard.map_err(failed("telling the mapper"))?;
        let status = self.child.wait().map_err(failed("waiting for the mapper"))?;
        if status.success() { Ok(()) } else { Err(Error::Mapping(complaint)) }
    }
}

/// The mapper's whole life.
pub(crate) fn mapper_main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Whoever asked may be gone; then there is nobody to tell.
            if let Ok(fd) = io::stdin().as_fd().try_clone_to_owned() {
                let _ = UnixStream::from(fd).write_all(error.to_string().as_bytes());
            }
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<(), Error> {
    die_with_parent()?;
    let stdin = io::stdin().as_fd().try_clone_to_owned().map_err(failed("standard input"))?;
    let mut socket = UnixStream::from(stdin);
    socket.write_all(READY).map_err(failed("telling that the mapper is ready"))?;
    let mut text = Vec::new();
    socket.read_to_end(&mut text).map_err(failed("reading the maps"))?;
    let maps: Maps = serde_json::from_slice(&text).map_err(io::Error::from).map_err(failed("the maps"))?;
    // Groups first: where they cannot be mapped, nothing is, and the process may still map itself.
    for (file, pairs) in [("gid_map", &maps.groups), ("uid_map", &maps.users)] {
        let opened = openat(io::stdout().as_fd(), file, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty());
        let mut file_at = std::fs::File::from(opened.map_err(errno(file))?);
        // In one go, or the kernel takes the first part for all.
        file_at.write_all(lines(pairs).as_bytes()).map_err(failed(file))?;
    }
    Ok(())
}

fn lines(pairs: &[(u32, u32)]) -> String {
    let line = |(inside, outside): &(u32, u32)| format!("{inside} {outside} 1\n");
    pairs.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_written_as_the_kernel_reads_it() {
        assert_eq!(lines(&[(0, 1000), (7, GROUP_BASE + 7)]), "0 1000 1\n7 2147483655 1\n");
        // The largest group that Kubernetes knows is not the kernel's "nobody".
        assert_eq!(GROUP_BASE.checked_add(u32::try_from(i32::MAX).unwrap()), Some(u32::MAX));
    }
}
