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
use nix::unistd::{Gid, Pid, getegid, geteuid, getppid, setgid, setgroups, sethostname, setsid};
use serde::{Deserialize, Serialize};

use crate::mapping::{self, GROUP_BASE, Mapper, Maps};
use crate::view;

/// The exit code of a container that could not be started: what container runtimes use.
pub const CANNOT_START: u8 = 128;

const NO_NETWORK: &str = "no network";

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
    /// More groups than one: `fsGroup` and `supplementalGroups` are what they are on a cluster.
    pub groups: bool,
    /// An image's files are shared by its containers, each with a layer of its own over them; else they are copied.
    pub overlay: bool,
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
    /// The files of an image; without, the host's are shown.
    pub image: Option<ImageRoot>,
    pub binds: Vec<Bind>,
    pub read_only_root: bool,
    /// Of each process; where a cgroup keeps it for all of them, there is none here.
    pub memory_bytes: Option<u64>,
    /// The file in which a process writes itself to be within the container's limits.
    pub cgroup_procs: Option<PathBuf>,
    pub user: u32,
    pub group: u32,
    /// Besides `group`.
    pub groups: Vec<u32>,
}

/// How an image's files become `/`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ImageRoot {
    /// They are shared; what the container writes goes to a layer of its own.
    Overlay { lower: PathBuf, upper: PathBuf, work: PathBuf },
    /// They lie in the root already.
    Copied,
}

impl ContainerSpec {
    /// The groups that need a place of their own on the machine.
    fn mapped_groups(&self) -> Vec<u32> {
        if !self.isolation.groups {
            return Vec::new();
        }
        let mut all: Vec<u32> = self.groups.iter().copied().chain([self.group]).filter(|g| *g != 0).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
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
    #[error("mapping users and groups: {0}")]
    Mapping(String),
    #[error("the command is empty")]
    NoCommand,
    #[error("exec: \"{program}\": {source}")]
    Exec { program: String, source: io::Error },
}

impl Isolation {
    /// Asks the machine, once, by trying in a process of its own. `scratch`: an empty directory on the disk that
    /// containers will use, because not every file system can carry a layer.
    pub async fn detect(executable: &Path, arguments: &[OsString], scratch: &Path) -> io::Result<Self> {
        let mut probe = tokio::process::Command::new(executable);
        probe.args(arguments).arg(PROBE).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let output = probe.current_dir(scratch).output().await?;
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
            (self.groups, "several groups"),
            (self.overlay, "image files shared"),
            (self.no_network, NO_NETWORK),
        ];
        let words = |wanted: bool| {
            // That the network is shared is a choice, nothing that the machine lacks.
            let said = parts.iter().filter(|(has, word)| *has == wanted && (*has || *word != NO_NETWORK));
            said.map(|(_, word)| *word).collect::<Vec<_>>().join(", ")
        };
        match (words(true), words(false)) {
            (has, _) if has.is_empty() => "none: processes see the whole machine".to_owned(),
            (has, lacks) if lacks.is_empty() => has,
            (has, lacks) => format!("{has}; not: {lacks}"),
        }
    }
}

/// The hidden subcommand: `arguments` is the whole command line after the program's name, because it starts itself
/// again with the same. Must be called before anything starts a thread: a process of several cannot enter a user
/// namespace.
pub fn init_main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let base = arguments.split_last().map_or(&[][..], |(_, base)| base);
    match arguments.last().and_then(|last| last.to_str()) {
        Some(PROBE) => probe(base),
        Some(mapping::MAPPER) => mapping::mapper_main(),
        Some(INSIDE) => report(|spec, socket| inside(spec, socket, base)),
        Some(_) | None => report(|spec, socket| keeper(spec, socket, &arguments)),
    }
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
    SigSet::all().thread_block().map_err(errno("holding signals"))?;
    enter_namespaces(spec, arguments)?;
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
fn inside(spec: &ContainerSpec, socket: &UnixStream, arguments: &[OsString]) -> Result<u8, Error> {
    // What the keeper held back must reach the command.
    SigSet::empty().thread_set_mask().map_err(errno("letting signals through"))?;
    if let Some(procs) = &spec.cgroup_procs {
        // Whatever starts from here on counts; 0 means whoever writes it.
        std::fs::write(procs, "0").map_err(failed(&procs.display().to_string()))?;
    }
    let groups = spec.mapped_groups();
    let mapper = match spec.isolation.nested_user && !groups.is_empty() {
        // Before the view is entered: there, this executable need not exist.
        true => Some(Mapper::start(&spec.executable, arguments)?),
        false => None,
    };
    if spec.isolation.mount {
        view::enter(spec)?;
    }
    if spec.isolation.uts {
        sethostname(&spec.hostname).map_err(errno("the hostname"))?;
    }
    umask(Mode::from_bits_truncate(0o022));
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(errno("the core limit"))?;
    if let Some(bytes) = spec.memory_bytes {
        // Private writable memory, not address space: runtimes reserve far more than they use.
        setrlimit(Resource::RLIMIT_DATA, bytes, bytes).map_err(errno("the memory limit"))?;
    }
    if !groups.is_empty() {
        let all: Vec<Gid> = spec.groups.iter().map(|group| Gid::from_raw(*group)).collect();
        setgroups(&all).map_err(errno("the groups"))?;
        setgid(Gid::from_raw(spec.group)).map_err(errno("the group"))?;
    }
    prctl::set_no_new_privs().map_err(errno("giving up privileges"))?;
    if spec.isolation.nested_user {
        unshare(CloneFlags::CLONE_NEWUSER).map_err(errno("the inner user namespace"))?;
        match mapper {
            Some(mapper) => {
                let groups = std::iter::once(0).chain(groups).map(|group| (group, group)).collect();
                mapper.map(&Maps { users: vec![(spec.user, 0)], groups })?;
            }
            None => Maps::one((spec.user, 0), (spec.group, 0)).write_own()?,
        }
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

fn enter_namespaces(spec: &ContainerSpec, arguments: &[OsString]) -> Result<(), Error> {
    let isolation = &spec.isolation;
    let flags = [
        (isolation.user, CloneFlags::CLONE_NEWUSER),
        (isolation.mount, CloneFlags::CLONE_NEWNS),
        (isolation.pid, CloneFlags::CLONE_NEWPID),
        (isolation.ipc, CloneFlags::CLONE_NEWIPC),
        (isolation.uts, CloneFlags::CLONE_NEWUTS),
        (isolation.no_network, CloneFlags::CLONE_NEWNET),
    ];
    let wanted =
        flags.iter().filter(|(wanted, _)| *wanted).fold(CloneFlags::empty(), |all, (_, flag)| all | *flag);
    let own = own_maps();
    let groups = spec.mapped_groups();
    let mapper = match isolation.user && !groups.is_empty() {
        true => Some(Mapper::start(&spec.executable, arguments)?),
        false => None,
    };
    unshare(wanted).map_err(errno("new namespaces"))?;
    match mapper {
        Some(mapper) => mapper.map(&with_groups(own, &groups)),
        None if isolation.user => own.write_own(),
        None => Ok(()),
    }
}

/// Whoever runs this is root in the namespace.
fn own_maps() -> Maps {
    Maps::one((0, geteuid().as_raw()), (0, getegid().as_raw()))
}

fn with_groups(mut maps: Maps, groups: &[u32]) -> Maps {
    maps.groups.extend(groups.iter().filter_map(|group| Some((*group, group.checked_add(GROUP_BASE)?))));
    maps
}

pub(crate) fn die_with_parent() -> Result<(), Error> {
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(errno("tying the process to its parent"))
}

fn close_stdin() -> Result<(), Error> {
    let null = std::fs::File::open("/dev/null").map_err(failed("/dev/null"))?;
    nix::unistd::dup2_stdin(null).map_err(errno("standard input"))
}

/// Tries each thing that isolation needs, and prints what worked.
fn probe(arguments: &[OsString]) -> ExitCode {
    let mut found = Isolation::default();
    let own = own_maps();
    let mapper = std::env::current_exe().ok().and_then(|program| Mapper::start(&program, arguments).ok());
    let entered = unshare(CloneFlags::CLONE_NEWUSER).is_ok();
    found.groups = entered && mapper.is_some_and(|m| m.map(&with_groups(own.clone(), &[1])).is_ok());
    found.user = found.groups || (entered && own.write_own().is_ok());
    found.mount = unshare(CloneFlags::CLONE_NEWNS).is_ok() && view::make_private().is_ok();
    found.overlay = found.mount && view::can_overlay(Path::new(".")).is_ok();
    found.ipc = unshare(CloneFlags::CLONE_NEWIPC).is_ok();
    found.uts = unshare(CloneFlags::CLONE_NEWUTS).is_ok();
    found.pid = unshare(CloneFlags::CLONE_NEWPID).is_ok();
    found.nested_user =
        unshare(CloneFlags::CLONE_NEWUSER).is_ok() && Maps::one((0, 0), (0, 0)).write_own().is_ok();
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
