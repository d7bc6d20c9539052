//! What does a container see when it looks around?
//!
//! A fresh directory as `/`, the system's directories read-only, an own `/tmp`, `/dev`, `/proc`; the pod's volumes
//! where it wants them. Home directories, other programs' data and the runner's own data are not there.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, mkdirat};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{chdir, pivot_root};

use crate::isolate::{Bind, ContainerSpec, Error, errno, failed};

/// Where a view shows Pawl itself, wherever it lies on the machine.
pub(crate) const OWN_EXECUTABLE: &str = "/pawl";

/// What programs are made of. Anything else of the machine is not shown.
const SYSTEM: &[&str] =
    &["bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc", "opt", "nix", "gnu", "sys"];

/// Found in the system's directories, but nobody's business.
const HIDDEN: &[&str] =
    &["etc/shadow", "etc/shadow-", "etc/gshadow", "etc/gshadow-", "etc/sudoers", "etc/ssh", "etc/kubernetes"];

/// Directories a program expects to be there and to be its own.
const OWN: &[&str] = &[
    "tmp",
    "var/tmp",
    "var/run",
    "var/lib",
    "var/log",
    "var/cache",
    "run",
    "root",
    "home",
    "proc",
    "dev",
    "dev/shm",
];

/// Everybody may write here.
const SHARED: &[&str] = &["tmp", "var/tmp", "dev/shm"];

const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];

const DEVICE_LINKS: &[(&str, &str)] = &[
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];

/// Nothing we mount reaches the machine.
pub(crate) fn make_private() -> Result<(), Error> {
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).map_err(errno("a private view"))
}

/// Builds the view under `spec.root`, in a mount namespace of our own.
pub(crate) fn build(spec: &ContainerSpec) -> Result<(), Error> {
    make_private()?;
    let root = &spec.root;
    fs::create_dir_all(root).map_err(failed(&root.display().to_string()))?;
    bind(root, root)?;
    let wanted: Vec<&Path> = spec.binds.iter().map(|bind| bind.target.as_path()).collect();
    for name in SYSTEM {
        show(&Path::new("/").join(name), root, &wanted)?;
    }
    for name in OWN {
        make_dir(&root.join(name))?;
    }
    for name in SHARED {
        let mode = fs::Permissions::from_mode(0o1777);
        fs::set_permissions(root.join(name), mode).map_err(failed(name))?;
    }
    for name in DEVICES {
        let device = Path::new("/dev").join(name);
        if device.exists() {
            place(&device, &root.join("dev").join(name), false)?;
        }
    }
    for (name, to) in DEVICE_LINKS {
        link(Path::new(to), &root.join("dev").join(name))?;
    }
    hide(root)?;
    place(&spec.executable, &root.join(relative(Path::new(OWN_EXECUTABLE))), true)?;
    let within = open(root)?;
    spec.binds.iter().try_for_each(|volume| mount_volume(&within, volume))
}

/// Makes the view this process' root, and the old root unreachable.
pub(crate) fn enter(spec: &ContainerSpec) -> Result<(), Error> {
    let none: Option<&str> = None;
    let proc = spec.root.join("proc");
    let strict = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let own = spec.isolation.pid && mount(Some("proc"), &proc, Some("proc"), strict, none).is_ok();
    if !own {
        // Some machines hide parts of /proc and so allow no fresh one: then the machine's is seen.
        bind(Path::new("/proc"), &proc)?;
    }
    if spec.read_only_root {
        remount_read_only(&spec.root)?;
    }
    chdir(&spec.root).map_err(errno("entering the root view"))?;
    pivot_root(".", ".").map_err(errno("changing the root"))?;
    let slave = MsFlags::MS_REC | MsFlags::MS_SLAVE;
    mount(none, ".", none, slave, none).map_err(errno("leaving the old root"))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(errno("leaving the old root"))?;
    chdir("/").map_err(errno("entering the new root"))
}

/// Shows a system directory read-only. Where a volume is wanted at a place inside it that does not exist, the
/// directory is rebuilt as an own one with the same contents, so that the place can be made.
fn show(host: &Path, root: &Path, wanted: &[&Path]) -> Result<(), Error> {
    let Ok(meta) = fs::symlink_metadata(host) else { return Ok(()) };
    let inside = root.join(relative(host));
    if meta.is_symlink() {
        let to = fs::read_link(host).map_err(failed(&host.display().to_string()))?;
        return link(&to, &inside);
    }
    let missing = |target: &&&Path| target.starts_with(host) && !target.exists();
    if !meta.is_dir() || !wanted.iter().any(|target| missing(&target)) {
        return place(host, &inside, true);
    }
    make_dir(&inside)?;
    for entry in fs::read_dir(host).map_err(failed(&host.display().to_string()))? {
        let entry = entry.map_err(failed(&host.display().to_string()))?;
        show(&entry.path(), root, wanted)?;
    }
    Ok(())
}

/// Mounts a volume. Neither end may be led astray by links that a container left in a volume: the source stays
/// within its volume, the target within the view, whatever a name on the way stands for.
fn mount_volume(root: &OwnedFd, volume: &Bind) -> Result<(), Error> {
    let what = format!("mounting at {}", volume.target.display());
    let base = open(&volume.source)?;
    let source = match &volume.sub_path {
        Some(path) => walk(&base, path, ResolveFlag::RESOLVE_BENEATH, true).map_err(errno(&what))?,
        None => base,
    };
    let is_dir = fs::metadata(by_fd(&source)).map_err(failed(&what))?.is_dir();
    let target = relative(&volume.target);
    let place = walk(root, target, ResolveFlag::RESOLVE_IN_ROOT, is_dir).map_err(errno(&what))?;
    bind(&by_fd(&source), &by_fd(&place))?;
    if volume.read_only {
        // Opened anew: what was opened before lies under the mount now.
        let mounted = walk(root, target, ResolveFlag::RESOLVE_IN_ROOT, is_dir).map_err(errno(&what))?;
        remount_one(&by_fd(&mounted))?;
    }
    Ok(())
}

/// Opens a path below `base`, making what is missing: directories, and at the end a directory or an empty file.
fn walk(base: &OwnedFd, path: &Path, within: ResolveFlag, is_dir: bool) -> nix::Result<OwnedFd> {
    let how = || {
        OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(within | ResolveFlag::RESOLVE_NO_MAGICLINKS)
    };
    let mut so_far = PathBuf::new();
    let mut parent = openat2(base, ".", how())?;
    let mut parts = path.components().peekable();
    while let Some(part) = parts.next() {
        so_far.push(part);
        let missing_file = parts.peek().is_none() && !is_dir;
        parent = match openat2(base, &so_far, how()) {
            Err(Errno::ENOENT) if missing_file => {
                let flags =
                    OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
                openat(&parent, part.as_os_str(), flags, Mode::from_bits_truncate(0o644))?;
                openat2(base, &so_far, how())?
            }
            Err(Errno::ENOENT) => {
                mkdirat(&parent, part.as_os_str(), Mode::from_bits_truncate(0o755))?;
                openat2(base, &so_far, how())?
            }
            opened => opened?,
        };
    }
    Ok(parent)
}

fn open(path: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    nix::fcntl::open(path, flags, Mode::empty()).map_err(errno(&path.display().to_string()))
}

/// A name for exactly what was opened.
fn by_fd(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn hide(root: &Path) -> Result<(), Error> {
    let empty = root.join("dev/.empty");
    make_dir(&empty)?;
    for name in HIDDEN {
        let inside = root.join(name);
        // A link leads to something that is hidden itself, or to nothing.
        let Ok(meta) = fs::symlink_metadata(&inside) else { continue };
        if meta.is_dir() {
            bind(&empty, &inside)?;
        } else if meta.is_file() {
            bind(Path::new("/dev/null"), &inside)?;
        }
    }
    Ok(())
}

/// Shows `source` at `inside`, making the place first.
fn place(source: &Path, inside: &Path, read_only: bool) -> Result<(), Error> {
    let meta = fs::metadata(source).map_err(failed(&source.display().to_string()))?;
    if meta.is_dir() {
        make_dir(inside)?;
    } else if !inside.exists() {
        inside.parent().map_or(Ok(()), make_dir)?;
        fs::File::create(inside).map_err(failed(&inside.display().to_string()))?;
    }
    bind(source, inside)?;
    if read_only { remount_read_only(inside) } else { Ok(()) }
}

fn bind(source: &Path, inside: &Path) -> Result<(), Error> {
    let none: Option<&str> = None;
    let what = format!("mounting {} at {}", source.display(), inside.display());
    mount(Some(source), inside, none, MsFlags::MS_BIND | MsFlags::MS_REC, none).map_err(errno(&what))
}

/// Makes a mount and what is mounted below it read-only. Below, as far as the machine allows.
fn remount_read_only(inside: &Path) -> Result<(), Error> {
    for point in mounts_below(inside)? {
        let made = remount_one(&point);
        if point == inside {
            made?;
        }
    }
    Ok(())
}

fn remount_one(point: &Path) -> Result<(), Error> {
    let none: Option<&str> = None;
    let what = format!("making {} read-only", point.display());
    // Flags that the machine's owner set may not be dropped, and are if they are not named again.
    let kept = statvfs(point).map_err(errno(&what))?.flags();
    let pairs = [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
        (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ];
    let kept =
        pairs.iter().filter(|(has, _)| kept.contains(*has)).fold(MsFlags::empty(), |all, (_, f)| all | *f);
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | kept;
    mount(none, point, none, flags, none).map_err(errno(&what))
}

/// `inside` and the mount points below it, from the kernel's own list.
fn mounts_below(inside: &Path) -> Result<Vec<PathBuf>, Error> {
    let list = fs::read_to_string("/proc/self/mountinfo").map_err(failed("the list of mounts"))?;
    let points = list.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape);
    let mut below: Vec<PathBuf> =
        points.filter(|point| point.starts_with(inside) && point != inside).collect();
    below.push(inside.to_owned());
    Ok(below)
}

/// `\040` and the like, as the kernel writes blanks in paths.
fn unescape(text: &str) -> PathBuf {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    PathBuf::from(escapes.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to)))
}

fn make_dir(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(failed(&path.display().to_string()))
}

/// A link that may be there from an earlier start of the same container.
fn link(to: &Path, at: &Path) -> Result<(), Error> {
    match symlink(to, at) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(failed(&at.display().to_string())(error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_as_the_kernel_writes_them() {
        assert_eq!(unescape("/a\\040b\\134c"), Path::new("/a b\\c"));
    }
}
