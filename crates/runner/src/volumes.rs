//! How do planned volumes get onto the disk?

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::plan::{File, VolumePlan};

/// A volume that is ready to be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) source: PathBuf,
    pub(crate) read_only: bool,
}

/// Sets up a pod's volumes under `directory`; doing it again refreshes files and keeps what containers wrote.
pub(crate) fn set_up(
    directory: &Path,
    plans: &BTreeMap<String, VolumePlan>,
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
        ready.insert(name.clone(), volume);
    }
    Ok(ready)
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
        let ready = set_up(&volumes, &plans("one")).unwrap();
        assert!(!ready["e"].read_only && ready["f"].read_only && ready["c"].read_only);
        fs::write(ready["e"].source.join("kept"), "x").unwrap();
        set_up(&volumes, &plans("two")).unwrap();
        assert!(ready["e"].source.join("kept").exists());
        let path = ready["f"].source.join("d/f");
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o400);
    }
}
