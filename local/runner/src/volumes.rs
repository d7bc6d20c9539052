//! How do planned volumes get onto the disk?

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{AtFlags, OFlag};
use nix::unistd::{Gid, fchownat};

use crate::beneath::{self, Links, by_fd};
use crate::plan::{File, VolumePlan};

/// What a volume's group may do with its files, as a kubelet sets it: all with a volume that is written, read the rest.
const GROUP_WRITES: u32 = 0o660;
const GROUP_READS: u32 = 0o440;
/// Whoever may read a directory may enter it; what is made in it belongs to its group.
const GROUP_DIRECTORY: u32 = 0o2110;
/// Files of a volume that are given to a group: more than that, and a start takes minutes.
const MAX_OWNED: u64 = 1_000_000;

/// A volume that is ready to be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) source: PathBuf,
    pub(crate) read_only: bool,
}

/// Whom volumes are given to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gift {
    /// The machine's number of a group.
    pub(crate) group: u32,
    /// Claims that lie here are ours to give; others are somebody's own directories.
    pub(crate) claims: PathBuf,
}

/// Sets up a pod's volumes under `directory`; doing it again refreshes files and keeps what containers wrote.
pub(crate) fn set_up(
    directory: &Path,
    plans: &BTreeMap<String, VolumePlan>,
    gift: Option<&Gift>,
) -> io::Result<BTreeMap<String, Ready>> {
    let mut ready = BTreeMap::new();
    for (name, plan) in plans {
        let own = directory.join(name);
        let volume = match plan {
            VolumePlan::Empty => {
                fs::create_dir_all(&own)?;
                fs::set_permissions(&own, fs::Permissions::from_mode(0o777))?;
                Ready { source: own, read_only: false }
            }
            VolumePlan::Files(files) => {
                fs::create_dir_all(&own)?;
                files.iter().try_for_each(|file| write(&own, file))?;
                // As in Kubernetes, nobody writes into a projection of an object.
                Ready { source: own, read_only: true }
            }
            VolumePlan::Claim { directory, read_only } => {
                fs::create_dir_all(directory)?;
                Ready { source: directory.clone(), read_only: *read_only }
            }
            VolumePlan::Host(path) => Ready { source: path.clone(), read_only: false },
        };
        let ours = |gift: &&Gift| match plan {
            VolumePlan::Empty | VolumePlan::Files(_) => true,
            VolumePlan::Claim { directory, .. } => directory.starts_with(&gift.claims),
            // The machine's own directories stay as they are, as in Kubernetes.
            VolumePlan::Host(_) => false,
        };
        if let Some(gift) = gift.filter(ours) {
            give(&volume, Gid::from_raw(gift.group))?;
        }
        ready.insert(name.clone(), volume);
    }
    Ok(ready)
}

/// Gives a volume to a group. Other containers may be writing to it: nothing is followed by its name.
fn give(volume: &Ready, group: Gid) -> io::Result<()> {
    let mask = if volume.read_only { GROUP_READS } else { GROUP_WRITES };
    let mut left = vec![beneath::open(&volume.source)?];
    let mut count = 0;
    while let Some(at) = left.pop() {
        count += 1;
        if count > MAX_OWNED {
            return Err(io::Error::other(format!("more than {MAX_OWNED} files to give to group {group}")));
        }
        let meta = fs::metadata(by_fd(&at))?;
        let wanted = meta.mode() & 0o7777 | mask | if meta.is_dir() { GROUP_DIRECTORY } else { 0 };
        if meta.gid() != group.as_raw() {
            fchownat(&at, "", None, Some(group), AtFlags::AT_EMPTY_PATH)?;
        }
        // Giving a file away takes some of its mode.
        if meta.gid() != group.as_raw() || meta.mode() & 0o7777 != wanted {
            fs::set_permissions(by_fd(&at), fs::Permissions::from_mode(wanted))?;
        }
        if meta.is_dir() {
            left.extend(children(&at)?);
        }
    }
    Ok(())
}

/// What lies in a directory, but links: theirs is nobody's mode.
fn children(directory: &OwnedFd) -> io::Result<Vec<OwnedFd>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(by_fd(directory))? {
        let name = entry?.file_name();
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW;
        // Gone meanwhile: fine.
        let Ok(child) = beneath::find(directory, Path::new(&name), Links::Stay, flags) else { continue };
        let is_link = nix::sys::stat::fstat(&child)?.st_mode & nix::libc::S_IFMT == nix::libc::S_IFLNK;
        if !is_link {
            found.push(child);
        }
    }
    Ok(found)
}

/// Writes a file as a whole or not at all, never readable by more than its mode says.
fn write(directory: &Path, file: &File) -> io::Result<()> {
    let path = directory.join(&file.path);
    let parent = path.parent().unwrap_or(directory);
    fs::create_dir_all(parent)?;
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let draft = parent.join(format!(".{}.new", name.to_string_lossy()));
    let _ = fs::remove_file(&draft);
    let mut open = fs::OpenOptions::new();
    let mut out = open.write(true).create_new(true).mode(0o600).open(&draft)?;
    io::Write::write_all(&mut out, &file.bytes)?;
    fs::set_permissions(&draft, fs::Permissions::from_mode(file.mode))?;
    fs::rename(&draft, &path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_their_bytes_and_modes_and_what_was_written_stays() {
        let home = tempfile::tempdir().unwrap();
        let file = |text: &str| File { path: "d/f".into(), bytes: text.as_bytes().to_vec(), mode: 0o400 };
        let plans = |text: &str| {
            BTreeMap::from([
                ("e".to_owned(), VolumePlan::Empty),
                ("f".to_owned(), VolumePlan::Files(vec![file(text)])),
                ("c".to_owned(), VolumePlan::Claim { directory: home.path().join("claim"), read_only: true }),
            ])
        };
        let volumes = home.path().join("volumes");
        let ready = set_up(&volumes, &plans("one"), None).unwrap();
        assert!(!ready["e"].read_only && ready["f"].read_only && ready["c"].read_only);
        fs::write(ready["e"].source.join("kept"), "x").unwrap();
        set_up(&volumes, &plans("two"), None).unwrap();
        assert!(ready["e"].source.join("kept").exists());
        let path = ready["f"].source.join("d/f");
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o400);
    }

    #[test]
    fn a_group_gets_what_a_kubelet_gives_it_and_no_link_leads_it_astray() {
        let home = tempfile::tempdir().unwrap();
        // One's own group can always be given.
        let group = nix::unistd::getegid().as_raw();
        let outside = home.path().join("outside");
        fs::write(&outside, "").unwrap();
        fs::set_permissions(&outside, fs::Permissions::from_mode(0o600)).unwrap();
        let volumes = home.path().join("volumes");
        let file = File { path: "f".into(), bytes: Vec::new(), mode: 0o400 };
        let plans = BTreeMap::from([
            ("e".to_owned(), VolumePlan::Empty),
            ("f".to_owned(), VolumePlan::Files(vec![file])),
            ("own".to_owned(), VolumePlan::Claim { directory: home.path().join("own"), read_only: false }),
        ]);
        let ready = set_up(&volumes, &plans, None).unwrap();
        let deep = ready["e"].source.join("deep");
        fs::create_dir(&deep).unwrap();
        fs::write(deep.join("f"), "").unwrap();
        fs::set_permissions(deep.join("f"), fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&outside, deep.join("link")).unwrap();
        fs::set_permissions(&ready["own"].source, fs::Permissions::from_mode(0o700)).unwrap();
        let gift = Gift { group, claims: home.path().join("claims") };
        set_up(&volumes, &plans, Some(&gift)).unwrap();
        let mode = |path: PathBuf| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!(mode(ready["e"].source.clone()), 0o2777);
        assert_eq!(mode(deep.clone()) & 0o2770, 0o2770);
        assert_eq!(mode(deep.join("f")), 0o660);
        assert_eq!(mode(ready["f"].source.join("f")), 0o440);
        assert_eq!(mode(outside), 0o600);
        assert_eq!(mode(ready["own"].source.clone()), 0o700);
    }
}
