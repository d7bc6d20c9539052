//! How does one process become a container?
//!
//! Twice the runner's own executable, then the command. No daemon, no setuid program, no `unsafe`:
//!
//! ```text
//! runner ─spawn─▶ keeper                      ─spawn─▶ inside                       ─spawn─▶ command
//!                 own session                          first in its pid namespace            an ordinary process
//!                 dies with the runner                 enters the root view                  without any power over
//!                 new namespaces                       own hostname, limits,                 the namespaces around it
//!                 builds the root view                 no new privileges
//!                 passes the exit code on              reaps orphans
//! ```
//! The specification comes over a socket that is the keeper's standard input: it holds secrets, so it is never on a
//! disk or a command line (I6). What goes wrong before the command runs is told back over the same socket; silence
//! until it closes means that the command runs. Where the machine gives no pid namespace, `inside` becomes the command.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{Mode, umask};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, getegid, geteuid, getppid, sethostname, setsid};
use serde::{Deserialize, Serialize};

use crate::view;

/// The exit code of a container that could not be started: what container runtimes use.
pub const CANNOT_START: u8 = 128;

/// Longest hostname that Linux takes.
const MAX_HOSTNAME_BYTES: usize = 63;

const INSIDE: &str = "--inside";
const PROBE: &str = "--probe";

/// What this machine lets an ordinary program do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Isolation {
    /// Own users: the container's root has no power over the machine.
    pub user: bool,
    /// A second layer of users: the container's root has no power over its own view either.
    pub nested_user: bool,
    /// A private root view, and volumes.
    pub mount: bool,
    /// Own process numbers, and certain death of every descendant.
    pub pid: bool,
    pub ipc: bool,
    pub uts: bool,
    /// Whether the network is taken away; by option, not by detection.
    pub no_network: bool,
}

/// A directory or file shown to a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bind {
    pub source: PathBuf,
    /// A part of `source`, made if it is missing.
    pub sub_path: Option<PathBuf>,
    pub target: PathBuf,
    pub read_only: bool,
}

/// All that the keeper needs to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ContainerSpec {
    /// The runner's process: if it is gone already, nothing is started.
    pub runner: i32,
    pub executable: PathBuf,
    pub isolation: Isolation,
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub working_dir: PathBuf,
    pub hostname: String,
    /// An empty directory that becomes `/`.
    pub root: PathBuf,
    pub binds: Vec<Bind>,
    pub read_only_root: bool,
    pub memory_bytes: Option<u64>,
    pub user: u32,
}

/// Why a container could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("the runner is gone")]
    Orphan,
    #[error("this machine gives no mount namespace, so nothing can be mounted at {0}")]
    NoMounts(PathBuf),
    #[error("the command is empty")]
    NoCommand,
    #[error("exec: \"{program}\": {source}")]
    Exec { program: String, source: io::Error },
}

impl Isolation {
    /// Asks the machine, once, by trying in a process of its own.
    pub async fn detect(executable: &Path, arguments: &[OsString]) -> io::Result<Self> {
        let mut probe = tokio::process::Command::new(executable);
        probe.args(arguments).arg(PROBE).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let output = probe.output().await?;
        serde_json::from_slice(&output.stdout).map_err(io::Error::other)
    }

    /// One sentence for the log and the Node.
    pub fn describe(&self) -> String {
        let parts = [
            (self.user, "own users"),
            (self.nested_user, "no power over its own view"),
            (self.mount, "private root view and volumes"),
            (self.pid, "own processes"),
            (self.ipc, "own IPC"),
            (self.uts, "own hostname"),
            (self.no_network, "no network"),
        ];
        let (has, lacks): (Vec<_>, Vec<_>) = parts.iter().partition(|(has, _)| *has);
        let words =
            |list: Vec<&(bool, &str)>| list.iter().map(|(_, word)| *word).collect::<Vec<_>>().join(", ");
        match (has.is_empty(), lacks.is_empty()) {
            (true, _) => "none: processes see the whole machine".to_owned(),
            (false, true) => words(has),
            (false, false) => format!("{}; not: {}", words(has), words(lacks)),
        }
    }
}

/// The hidden subcommand: `arguments` is the whole command line after the program's name, because it starts itself
/// again with the same. Must be called before anything starts a thread: a process of several cannot enter a user
/// namespace.
pub fn init_main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    match arguments.last().and_then(|last| last.to_str()) {
        Some(PROBE) => return probe(),
        Some(INSIDE) => return report(inside),
        Some(_) | None => {}
    }
    report(|spec, socket| keeper(spec, socket, &arguments))
}

/// Reads the specification, runs, and tells the other side what went wrong.
fn report(run: impl FnOnce(&ContainerSpec, &UnixStream) -> Result<u8, Error>) -> ExitCode {
    let outcome = io::stdin().as_fd().try_clone_to_owned().map_err(failed("standard input"));
    let socket = match outcome {
        Ok(fd) => UnixStream::from(fd),
        Err(_) => return ExitCode::from(CANNOT_START),
    };
    let outcome = read_spec(&socket).and_then(|spec| run(&spec, &socket));
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // The other side may be gone; then there is nobody to tell.
            let _ = (&socket).write_all(error.to_string().as_bytes());
            ExitCode::from(CANNOT_START)
        }
    }
}

fn read_spec(mut socket: &UnixStream) -> Result<ContainerSpec, Error> {
    // Before anything else: from here on this process ends with the one that started it.
    die_with_parent()?;
    let mut text = Vec::new();
    socket.read_to_end(&mut text).map_err(failed("reading the specification"))?;
    serde_json::from_slice(&text).map_err(io::Error::from).map_err(failed("reading the specification"))
}

/// The outer process: namespaces and the root view, then waiting.
fn keeper(spec: &ContainerSpec, socket: &UnixStream, arguments: &[OsString]) -> Result<u8, Error> {
    if getppid() != Pid::from_raw(spec.runner) {
        return Err(Error::Orphan);
    }
    setsid().map_err(errno("starting a session"))?;
    // A stop signals the whole session; this process must stay to tell how the command ended.
    let mut held = SigSet::empty();
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT].into_iter().for_each(|s| held.add(s));
    held.thread_block().map_err(errno("holding signals"))?;
    enter_namespaces(&spec.isolation)?;
    die_with_parent()?;
    if spec.isolation.mount {
        view::build(spec)?;
    } else if let Some(bind) = spec.binds.first() {
        return Err(Error::NoMounts(bind.target.clone()));
    }
    let (mut ours, theirs) = UnixStream::pair().map_err(failed("a socket"))?;
    let mut child = Command::new(&spec.executable)
        .args(arguments)
        .arg(INSIDE)
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
        .spawn()
        .map_err(failed("starting the inner process"))?;
    let text = serde_json::to_vec(spec).map_err(io::Error::from).map_err(failed("the specification"))?;
    let mut complaint = Vec::new();
    let told = ours.write_all(&text).and_then(|()| ours.shutdown(std::net::Shutdown::Write));
    told.and_then(|()| ours.read_to_end(&mut complaint)).map_err(failed("telling the inner process"))?;
    if !complaint.is_empty() {
        let mut socket = socket;
        socket.write_all(&complaint).map_err(failed("telling the runner"))?;
    }
    // Standard input is the last hold on the socket besides `socket` itself; closing both says: it runs.
    close_stdin()?;
    socket.shutdown(std::net::Shutdown::Both).map_err(failed("telling the runner"))?;
    child.wait().map(exit_code).map_err(failed("waiting for the container"))
}

/// The inner process: enters the view, gives up all power, runs the command.
fn inside(spec: &ContainerSpec, socket: &UnixStream) -> Result<u8, Error> {
    // What the keeper held back must reach the command.
    SigSet::empty().thread_set_mask().map_err(errno("letting signals through"))?;
    if spec.isolation.mount {
        view::enter(spec)?;
    }
    if spec.isolation.uts {
        let end = spec.hostname.floor_char_boundary(MAX_HOSTNAME_BYTES);
        sethostname(spec.hostname.get(..end).unwrap_or_default()).map_err(errno("the hostname"))?;
    }
    umask(Mode::from_bits_truncate(0o022));
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(errno("the core limit"))?;
    if let Some(bytes) = spec.memory_bytes {
        // Private writable memory, not address space: runtimes reserve far more than they use.
        setrlimit(Resource::RLIMIT_DATA, bytes, bytes).map_err(errno("the memory limit"))?;
    }
    prctl::set_no_new_privs().map_err(errno("giving up privileges"))?;
    if spec.isolation.nested_user {
        unshare(CloneFlags::CLONE_NEWUSER).map_err(errno("the inner user namespace"))?;
        map_users(spec.user, 0, 0, 0)?;
    }
    die_with_parent()?;
    if spec.isolation.mount {
        // As container runtimes do; where the directory cannot be made, entering it says so.
        let _ = std::fs::create_dir_all(&spec.working_dir);
    }
    std::env::set_current_dir(&spec.working_dir)
        .map_err(failed(&format!("workingDir {}", spec.working_dir.display())))?;
    let (program, words) = spec.argv.split_first().ok_or(Error::NoCommand)?;
    let mut command = Command::new(program);
    command.args(words).env_clear().envs(&spec.env).stdin(Stdio::null());
    let cannot = |source| Error::Exec { program: program.clone(), source };
    if !spec.isolation.pid {
        return Err(cannot(command.exec()));
    }
    let child = command.spawn().map_err(cannot)?;
    close_stdin()?;
    socket.shutdown(std::net::Shutdown::Both).map_err(failed("telling the keeper"))?;
    reap_until(Pid::from_raw(child.id().cast_signed()))
}

/// Waits as the first process of a namespace must: for everybody, until the command ended.
fn reap_until(command: Pid) -> Result<u8, Error> {
    loop {
        match waitpid(None, None).map_err(errno("waiting for the command"))? {
            WaitStatus::Exited(pid, code) if pid == command => {
                return Ok(u8::try_from(code & 0xff).unwrap_or(0));
            }
            WaitStatus::Signaled(pid, signal, _) if pid == command => return Ok(signal_code(signal as i32)),
            WaitStatus::Exited(..)
            | WaitStatus::Signaled(..)
            | WaitStatus::Stopped(..)
            | WaitStatus::PtraceEvent(..)
            | WaitStatus::PtraceSyscall(_)
            | WaitStatus::Continued(_)
            | WaitStatus::StillAlive => {}
        }
    }
}

/// An exit as one number: 128 + n for signal n.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code & 0xff).unwrap_or(CANNOT_START),
        (None, signal) => signal_code(signal.unwrap_or(0)),
    }
}

fn signal_code(signal: i32) -> u8 {
    CANNOT_START.wrapping_add(u8::try_from(signal & 0x7f).unwrap_or(0))
}

fn enter_namespaces(isolation: &Isolation) -> Result<(), Error> {
    let flags = [
        (isolation.user, CloneFlags::CLONE_NEWUSER),
        (isolation.mount, CloneFlags::CLONE_NEWNS),
        (isolation.pid, CloneFlags::CLONE_NEWPID),
        (isolation.ipc, CloneFlags::CLONE_NEWIPC),
        (isolation.uts, CloneFlags::CLONE_NEWUTS),
        (isolation.no_network, CloneFlags::CLONE_NEWNET),
    ];
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let wanted =
        flags.iter().filter(|(wanted, _)| *wanted).fold(CloneFlags::empty(), |all, (_, flag)| all | *flag);
    unshare(wanted).map_err(errno("new namespaces"))?;
    if isolation.user { map_users(0, uid, 0, gid) } else { Ok(()) }
}

/// Maps one user and one group into the namespace just entered.
fn map_users(inner_uid: u32, outer_uid: u32, inner_gid: u32, outer_gid: u32) -> Result<(), Error> {
    let write = |path: &str, text: String| std::fs::write(path, text).map_err(failed(path));
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("{inner_uid} {outer_uid} 1"))?;
    write("/proc/self/gid_map", format!("{inner_gid} {outer_gid} 1"))
}

fn die_with_parent() -> Result<(), Error> {
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(errno("tying the process to its parent"))
}

fn close_stdin() -> Result<(), Error> {
    let null = std::fs::File::open("/dev/null").map_err(failed("/dev/null"))?;
    nix::unistd::dup2_stdin(null).map_err(errno("standard input"))
}

/// Tries each thing that isolation needs, and prints what worked.
fn probe() -> ExitCode {
    let mut found = Isolation::default();
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    found.user = unshare(CloneFlags::CLONE_NEWUSER).is_ok() && map_users(0, uid, 0, gid).is_ok();
    found.mount = unshare(CloneFlags::CLONE_NEWNS).is_ok() && view::make_private().is_ok();
    found.ipc = unshare(CloneFlags::CLONE_NEWIPC).is_ok();
    found.uts = unshare(CloneFlags::CLONE_NEWUTS).is_ok();
    found.pid = unshare(CloneFlags::CLONE_NEWPID).is_ok();
    found.nested_user = unshare(CloneFlags::CLONE_NEWUSER).is_ok() && map_users(0, 0, 0, 0).is_ok();
    let printed = serde_json::to_vec(&found).map_err(io::Error::from);
    match printed.and_then(|text| io::stdout().write_all(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

pub(crate) fn failed(what: &str) -> impl FnOnce(io::Error) -> Error {
    let what = what.to_owned();
    move |source| Error::Io { what, source }
}

pub(crate) fn errno(what: &str) -> impl FnOnce(nix::Error) -> Error {
    let what = what.to_owned();
    move |errno| Error::Io { what, source: errno.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_is_its_code_and_a_signal_is_128_more() {
        for (raw, expect) in [(0, 0), (7 << 8, 7), (255 << 8, 255), (9, 137), (15, 143)] {
            assert_eq!(exit_code(ExitStatus::from_raw(raw)), expect, "{raw}");
        }
    }

    #[test]
    fn isolation_says_what_is_there_and_what_is_not() {
        assert!(Isolation::default().describe().starts_with("none"));
        let some = Isolation { mount: true, pid: true, ..Isolation::default() };
        let (has, lacks) =
            some.describe().split_once("; not: ").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        assert!(has.contains("volumes") && lacks.contains("own users"));
    }
}
