//! What does a container see when it looks around?
//!
//! A fresh directory as `/`, the system's directories read-only, an own `/tmp`, `/dev`, `/proc`; the pod's volumes
//! where it wants them. Home directories, other programs' data and the runner's own data are not there.
//!
//! Or the files of an image as `/`, with a layer of the container's own over them, and the kernel's `/dev`, `/proc` and
//! `/sys` in them. Nothing else of the machine is there then but its resolver and its hosts.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{chdir, pivot_root};

use crate::beneath::{self, Links, Missing, by_fd, make};
use crate::isolate::{Bind, ContainerSpec, Error, ImageRoot, errno, failed};

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

/// What an image cannot know: how this machine finds others.
const RESOLVER: &[&str] = &["/etc/resolv.conf", "/etc/hosts"];

/// Builds the view under `spec.root`, in a mount namespace of our own.
pub(crate) fn build(spec: &ContainerSpec) -> Result<(), Error> {
    make_private()?;
    make_dir(&spec.root)?;
    match &spec.image {
        Some(image) => show_image(spec, image)?,
        None => show_host(spec)?,
    }
    let within = open(&spec.root)?;
    if spec.image.is_some() {
        for path in RESOLVER.iter().map(PathBuf::from).filter(|path| path.is_file()) {
            let bind = Bind { source: path.clone(), sub_path: None, target: path, read_only: true };
            // An image may have something else in that place; then names are its own business.
            let _ = mount_volume(&within, &bind);
        }
    }
    spec.binds.iter().try_for_each(|volume| mount_volume(&within, volume))
}

/// Whether a layer can be laid over files in a directory; tried, in a mount namespace of our own.
pub(crate) fn can_overlay(scratch: &Path) -> Result<(), Error> {
    let scratch = scratch.canonicalize().map_err(failed("the scratch directory"))?;
    let [lower, upper, work, root] = ["lower", "upper", "work", "root"].map(|name| scratch.join(name));
    [&lower, &upper, &work, &root].into_iter().try_for_each(|path| make_dir(path))?;
    overlay(&lower, &upper, &work, &root)?;
    fs::write(root.join("written"), "").map_err(failed("writing to a layer"))
}

/// The machine's own system, read-only, in an empty root.
fn show_host(spec: &ContainerSpec) -> Result<(), Error> {
    let root = &spec.root;
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
    fill_dev(root)?;
    hide(root)?;
    place(&spec.executable, &root.join(relative(Path::new(OWN_EXECUTABLE))), true)
}

/// An image's files. Its `/dev` and `/sys` are directories, seen to when it was unpacked: no link leads elsewhere.
fn show_image(spec: &ContainerSpec, image: &ImageRoot) -> Result<(), Error> {
    let root = &spec.root;
    match image {
        ImageRoot::Overlay { lower, upper, work } => overlay(lower, upper, work, root)?,
        ImageRoot::Copied => bind(root, root)?,
    }
    let dev = root.join("dev");
    let strict = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    mount(Some("tmpfs"), &dev, Some("tmpfs"), strict, Some("mode=755,size=64m"))
        .map_err(errno("a fresh /dev"))?;
    make_dir(&dev.join("shm"))?;
    fs::set_permissions(dev.join("shm"), fs::Permissions::from_mode(0o1777)).map_err(failed("/dev/shm"))?;
    fill_dev(root)?;
    place(Path::new("/sys"), &root.join("sys"), true)
}

fn fill_dev(root: &Path) -> Result<(), Error> {
    for name in DEVICES {
        let device = Path::new("/dev").join(name);
        if device.exists() {
            place(&device, &root.join("dev").join(name), false)?;
        }
    }
    DEVICE_LINKS.iter().try_for_each(|(name, to)| link(Path::new(to), &root.join("dev").join(name)))
}

fn overlay(lower: &Path, upper: &Path, work: &Path, root: &Path) -> Result<(), Error> {
    let part = |name: &str, path: &Path| {
        // What separates options and layers must be told from what is in a path.
        let path = path.to_string_lossy().replace('\\', "\\\\").replace(':', "\\:").replace(',', "\\,");
        format!("{name}={path}")
    };
    let paths = [part("lowerdir", lower), part("upperdir", upper), part("workdir", work)].join(",");
    let on = |options: &str| mount(Some("overlay"), root, Some("overlay"), MsFlags::empty(), Some(options));
    // Without power over the machine, notes about files go into attributes that users may write.
    on(&format!("{paths},userxattr")).or_else(|_| on(&paths)).map_err(errno("laying a layer over the image"))
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
        // The root alone: volumes are as writable as the pod says.
        remount_one(&spec.root)?;
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
        Some(path) => make(&base, path, Links::Stay, Missing::Directory).map_err(errno(&what))?,
        None => base,
    };
    let missing = match fs::metadata(by_fd(&source)).map_err(failed(&what))?.is_dir() {
        true => Missing::Directory,
        false => Missing::File,
    };
    let target = relative(&volume.target);
    let place = make(root, target, Links::AsRoot, missing).map_err(errno(&what))?;
    bind(&by_fd(&source), &by_fd(&place))?;
    if volume.read_only {
        // Opened anew: what was opened before lies under the mount now.
        let mounted = make(root, target, Links::AsRoot, missing).map_err(errno(&what))?;
        remount_one(&by_fd(&mounted))?;
    }
    Ok(())
}

fn open(path: &Path) -> Result<OwnedFd, Error> {
    beneath::open(path).map_err(errno(&path.display().to_string()))
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
