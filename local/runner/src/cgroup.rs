//! Which limits does the kernel keep for a container as a whole?
//!
//! ```text
//! <Pawl's cgroup, or the root>      controllers cpu, memory, pids
//! ├── pawl-supervisor               Pawl itself, where it had to make room
//! └── pawl-<data directory>
//!     └── <pod>-<container>-<run>   cpu.max, memory.max, pids.max
//! ```
//! cgroup v2 alone, and only where Pawl may write: a delegated cgroup (`systemd-run --user --scope -p Delegate=yes`), a
//! container with its own tree, or root. Elsewhere there are no such limits, and the Node says so.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

/// What a container needs of the tree above it.
const CONTROLLERS: &[&str] = &["cpu", "memory", "pids"];
/// Every cgroup of ours begins so; no other is ever removed.
const PREFIX: &str = "pawl-";
const SUPERVISOR: &str = "pawl-supervisor";

/// The window in which a CPU limit is kept: the kernel's and a kubelet's default.
pub(crate) const CPU_PERIOD_MICROS: u64 = 100_000;
/// The kernel takes no smaller share of the window.
const MIN_CPU_QUOTA_MICROS: u64 = 1_000;
/// Processes and threads of one container: far more than a build uses, too few for a fork bomb to stall the machine.
pub(crate) const MAX_PIDS: u64 = 16_384;

/// After a kill, the kernel needs a moment to empty a cgroup.
const EMPTY_ATTEMPTS: u32 = 50;
const EMPTY_WAIT: Duration = Duration::from_millis(10);

/// The file in the data directory that tells the next start where this one's cgroups were.
const RECORD: &str = "cgroup";

/// Where containers get their cgroups.
#[derive(Clone, Debug)]
pub(crate) struct Cgroups {
    base: PathBuf,
    record: PathBuf,
}

/// One container's.
#[derive(Debug)]
pub(crate) struct Cgroup {
    path: PathBuf,
}

/// What is kept for a container as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) memory_bytes: Option<u64>,
    /// Thousandths of a CPU.
    pub(crate) cpu_milli: Option<u64>,
}

/// What the machine says about cgroups.
#[derive(Clone, Debug)]
struct Tree {
    /// Where cgroup v2 is mounted.
    root: PathBuf,
    /// Pawl's own, below it.
    own: PathBuf,
    pid: u32,
}

impl Cgroups {
    /// Finds a place for cgroups; an error says why there is none. What an earlier life left in its cgroups is killed.
    pub(crate) fn open(data_dir: &Path) -> Result<Self, String> {
        let record = data_dir.join(RECORD);
        if let Ok(left) = fs::read_to_string(&record) {
            remove_base(Path::new(left.trim()));
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::within(&Tree::read(&mounts, &own, std::process::id())?, data_dir, record)
    }

    fn within(tree: &Tree, data_dir: &Path, record: PathBuf) -> Result<Self, String> {
        let hash = hex::encode(Sha256::digest(data_dir.as_os_str().as_encoded_bytes()));
        let name = format!("{PREFIX}{}", hash.get(..16).unwrap_or_default());
        let own = tree.root.join(tree.own.strip_prefix("/").unwrap_or(&tree.own));
        let mut why = String::new();
        for parent in [&own, &tree.root] {
            let base = parent.join(&name);
            let made = enable(parent, tree.pid)
                .and_then(|()| make_dir(&base))
                .and_then(|()| enable(&base, tree.pid))
                .and_then(|()| fs::write(&record, base.to_string_lossy().as_bytes()));
            match made {
                Ok(()) => {
                    empty(&base);
                    return Ok(Self { base, record });
                }
                Err(error) => {
                    remove_base(&base);
                    if why.is_empty() {
                        why = error.to_string();
                    }
                }
            }
        }
        Err(why)
    }

    /// Makes a container's cgroup. Its name is used once.
    pub(crate) fn make(&self, name: &str, limits: &Limits) -> io::Result<Cgroup> {
        let cgroup = Cgroup { path: self.base.join(name) };
        cgroup.remove();
        make_dir(&cgroup.path)?;
        cgroup.set(limits).inspect_err(|_| cgroup.remove())?;
        Ok(cgroup)
    }

    /// Takes everything away again, at the end.
    pub(crate) fn close(&self) {
        remove_base(&self.base);
        let _ = fs::remove_file(&self.record);
    }
}

impl Cgroup {
    /// Where a process writes itself to come in.
    pub(crate) fn procs(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// Whether the kernel killed something here for want of memory.
    pub(crate) fn oom_killed(&self) -> bool {
        let events = fs::read_to_string(self.path.join("memory.events")).unwrap_or_default();
        let count = |line: &str| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok();
        events.lines().find_map(count).is_some_and(|count| count > 0)
    }

    /// Kills what is left and removes the cgroup. What does not go now goes at the next start.
    pub(crate) fn remove(&self) {
        remove(&self.path);
    }

    fn set(&self, limits: &Limits) -> io::Result<()> {
        let write = |file: &str, value: String| {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("{file} = {value}: {error}"));
            fs::write(self.path.join(file), &value).map_err(named)
        };
        write("pids.max", MAX_PIDS.to_string())?;
        if let Some(bytes) = limits.memory_bytes {
            write("memory.max", bytes.to_string())?;
            // All or nothing, as a kubelet has it: half a container is worse than none. Not on every kernel.
            let _ = write("memory.oom.group", "1".to_owned());
            // Swap would be a second limit; machines without swap have no such file.
            let _ = write("memory.swap.max", "0".to_owned());
        }
        if let Some(milli) = limits.cpu_milli {
            write("cpu.max", format!("{} {CPU_PERIOD_MICROS}", cpu_quota_micros(milli)))?;
        }
        Ok(())
    }
}

/// How long a container with this limit may run in each period, on all processors together.
pub(crate) fn cpu_quota_micros(milli: u64) -> u64 {
    milli.saturating_mul(CPU_PERIOD_MICROS / 1000).max(MIN_CPU_QUOTA_MICROS)
}

impl Tree {
    fn read(mounts: &str, own: &str, pid: u32) -> Result<Self, String> {
        // "36 35 98:0 /in /at opts … - cgroup2 …": the kind follows the lone dash.
        let mut mounted = mounts.lines().filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            after.starts_with("cgroup2 ").then(|| before.split(' ').nth(4))?
        });
        let root = mounted.next_back().ok_or("cgroup v2 is not mounted")?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::"));
        let own = own.ok_or("cgroup v2 does not have this process")?;
        Ok(Self { root: PathBuf::from(root), own: PathBuf::from(own), pid })
    }
}

/// Lets a cgroup's children have the controllers, making room if Pawl alone stands in the way: a cgroup with limits for
/// its children may have no processes of its own (the root may).
fn enable(cgroup: &Path, pid: u32) -> io::Result<()> {
    let read = |file: &str| fs::read_to_string(cgroup.join(file)).unwrap_or_default();
    let has = |list: &str, wanted: &str| list.split_whitespace().any(|word| word == wanted);
    let there = read("cgroup.controllers");
    if let Some(lacks) = CONTROLLERS.iter().find(|wanted| !has(&there, wanted)) {
        let why = format!("{}: cgroup v2 has no {lacks} controller there", cgroup.display());
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    let enabled = read("cgroup.subtree_control");
    if CONTROLLERS.iter().all(|wanted| has(&enabled, wanted)) {
        return Ok(());
    }
    let all = CONTROLLERS.iter().map(|name| format!("+{name}")).collect::<Vec<_>>().join(" ");
    let write = || fs::write(cgroup.join("cgroup.subtree_control"), &all);
    let named = |error: io::Error| {
        io::Error::new(error.kind(), format!("{}: not delegated to Pawl: {error}", cgroup.display()))
    };
    match write() {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            let alone = read("cgroup.procs").split_whitespace().all(|line| line == pid.to_string());
            if !alone {
                let why = format!("{}: other processes share Pawl's cgroup", cgroup.display());
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
            }
            let supervisor = cgroup.join(SUPERVISOR);
            make_dir(&supervisor)
                .and_then(|()| fs::write(supervisor.join("cgroup.procs"), pid.to_string()))
                .and_then(|()| write())
                .map_err(named)
        }
        written => written.map_err(named),
    }
}

fn make_dir(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(io::Error::new(error.kind(), format!("{}: {error}", path.display())))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Removes all containers' cgroups, and then their parent.
fn remove_base(base: &Path) {
    // The record is a file that anybody could have written.
    let ours = base.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    if ours && base.join("cgroup.procs").exists() {
        empty(base);
        let _ = fs::remove_dir(base);
    }
}

fn empty(base: &Path) {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().is_dir()).for_each(|entry| remove(&entry.path()));
}

fn remove(cgroup: &Path) {
    if !cgroup.exists() {
        return;
    }
    let _ = fs::write(cgroup.join("cgroup.kill"), "1");
    for _ in 0..EMPTY_ATTEMPTS {
        match fs::remove_dir(cgroup) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => std::thread::sleep(EMPTY_WAIT),
            Ok(()) | Err(_) => return,
        }
    }
    tracing::warn!(cgroup = %cgroup.display(), "a cgroup does not empty; it is removed at the next start");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of plain files that stands for the kernel's.
    fn tree(home: &Path, own: &str, controllers: &str) -> Tree {
        let tree = Tree { root: home.to_owned(), own: PathBuf::from(own), pid: 42 };
        for directory in [home.to_owned(), home.join(own.trim_start_matches('/'))] {
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("cgroup.controllers"), controllers).unwrap();
            fs::write(directory.join("cgroup.subtree_control"), controllers).unwrap();
        }
        tree
    }

    /// Children of a plain directory do not get the kernel's files by themselves.
    fn prepared(tree: &Tree, data: &Path) -> Result<Cgroups, String> {
        let hash = hex::encode(Sha256::digest(data.as_os_str().as_encoded_bytes()));
        let base =
            tree.root.join(tree.own.strip_prefix("/").unwrap()).join(format!("{PREFIX}{}", &hash[..16]));
        fs::create_dir_all(&base).unwrap();
        for file in ["cgroup.controllers", "cgroup.subtree_control"] {
            fs::write(base.join(file), "cpu memory pids").unwrap();
        }
        Cgroups::within(tree, data, data.join(RECORD))
    }

    #[test]
    fn a_containers_limits_are_written_as_the_kernel_reads_them() {
        let (home, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let cgroups =
            prepared(&tree(home.path(), "/user/pawl.scope", "cpu io memory pids"), data.path()).unwrap();
        let limits = Limits { memory_bytes: Some(64 << 20), cpu_milli: Some(1500) };
        let cgroup = cgroups.make("pod-main-0", &limits).unwrap();
        let read = |file: &str| fs::read_to_string(cgroup.path.join(file)).unwrap();
        assert_eq!(read("memory.max"), "67108864");
        assert_eq!(read("memory.oom.group"), "1");
        assert_eq!(read("memory.swap.max"), "0");
        assert_eq!(read("cpu.max"), "150000 100000");
        assert_eq!(read("pids.max"), MAX_PIDS.to_string());
        assert!(cgroup.procs().starts_with(home.path().join("user/pawl.scope")));
        let none = cgroups.make("pod-main-1", &Limits { cpu_milli: Some(1), ..Limits::default() }).unwrap();
        assert_eq!(fs::read_to_string(none.path.join("cpu.max")).unwrap(), "1000 100000");
        assert!(!none.path.join("memory.max").exists());
        assert_eq!(fs::read_to_string(data.path().join(RECORD)).unwrap(), cgroups.base.to_string_lossy());
    }

    #[test]
    fn a_kill_for_want_of_memory_is_seen() {
        let home = tempfile::tempdir().unwrap();
        let cgroup = Cgroup { path: home.path().to_owned() };
        assert!(!cgroup.oom_killed());
        for (events, expect) in [
            ("low 0\noom 1\noom_kill 0\noom_group_kill 0\n", false),
            ("low 0\nmax 12\noom 1\noom_kill 3\noom_group_kill 1\n", true),
        ] {
            fs::write(home.path().join("memory.events"), events).unwrap();
            assert_eq!(cgroup.oom_killed(), expect, "{events}");
        }
    }

    #[test]
    fn where_there_is_no_place_the_reason_is_plain() {
        let data = tempfile::tempdir().unwrap();
        let home = tempfile::tempdir().unwrap();
        let why = Cgroups::within(&tree(home.path(), "/", "hugetlb"), data.path(), data.path().join(RECORD));
        assert!(why.unwrap_err().contains("no cpu controller"));
        let error = Tree::read("25 1 0:2 / /proc rw - proc proc rw\n", "0::/\n", 1).unwrap_err();
        assert!(error.contains("not mounted"), "{error}");
    }

    #[test]
    fn the_machines_own_words_are_understood() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - tmpfs tmpfs rw\n\
            31 30 0:27 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n";
        let tree = Tree::read(mounts, "9:name=systemd:/x\n0::/user.slice/a.scope\n", 1).unwrap();
        assert_eq!(tree.root, Path::new("/sys/fs/cgroup/unified"));
        assert_eq!(tree.own, Path::new("/user.slice/a.scope"));
    }

    #[test]
    fn only_cgroups_of_ours_are_ever_removed() {
        let home = tempfile::tempdir().unwrap();
        let foreign = home.path().join("user.slice");
        fs::create_dir_all(foreign.join("child")).unwrap();
        fs::write(foreign.join("cgroup.procs"), "").unwrap();
        remove_base(&foreign);
        assert!(foreign.join("child").exists());
    }
}
