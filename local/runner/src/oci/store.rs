//! Where do a layout's files lie: in a directory, or in a tar?

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::tar::{Kind, members};

/// Files of an archive: a layout of 128 layers has fewer than 300; an archive of all a team's images fits.
const MAX_ARCHIVE_FILES: usize = 100_000;
/// Links to links: older Docker links a layer to an equal one, once.
const MAX_LINKS: usize = 8;

/// The files of a layout, by name.
#[derive(Debug)]
pub(super) struct Store {
    place: Place,
    /// Files that exist nowhere else.
    made: BTreeMap<String, Arc<[u8]>>,
}

#[derive(Debug)]
enum Place {
    Directory(PathBuf),
    Archive { path: PathBuf, files: BTreeMap<String, Spot> },
}

/// Where in an archive a file's bytes are.
#[derive(Clone, Debug)]
enum Spot {
    Bytes { at: u64, length: u64 },
    Link(String),
}

impl Store {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let place = if path.is_dir() {
            Place::Directory(path.to_owned())
        } else {
            Place::Archive { path: path.to_owned(), files: list(path)? }
        };
        Ok(Self { place, made: BTreeMap::new() })
    }

    pub(super) fn add(&mut self, name: String, bytes: Vec<u8>) {
        self.made.insert(name, bytes.into());
    }

    pub(super) fn has(&self, name: &str) -> bool {
        match &self.place {
            Place::Directory(path) => path.join(name).is_file(),
            Place::Archive { files, .. } => files.contains_key(name),
        }
    }

    /// A file's bytes, and how many they are.
    pub(super) fn open_file(&self, name: &str) -> io::Result<(Box<dyn Read + Send>, u64)> {
        if let Some(bytes) = self.made.get(name) {
            return Ok((Box::new(Cursor::new(bytes.clone())), bytes.len() as u64));
        }
        match &self.place {
            Place::Directory(path) => {
                // Names come out of the layout's own JSON.
                let name = plain(Path::new(name)).ok_or(io::ErrorKind::InvalidInput)?;
                let file = File::open(path.join(name))?;
                let length = file.metadata()?.len();
                Ok((Box::new(file), length))
            }
            Place::Archive { path, files } => {
                let (at, length) = spot(files, name)?;
                let mut file = File::open(path)?;
                file.seek(SeekFrom::Start(at))?;
                Ok((Box::new(file.take(length)), length))
            }
        }
    }
}

/// Where every file of an archive is. Only the headers are read.
fn list(path: &Path) -> io::Result<BTreeMap<String, Spot>> {
    let mut file = File::open(path)?;
    let mut magic = [0; 4];
    let begins = file.read(&mut magic)?;
    if super::blob::is_compressed(magic.get(..begins).unwrap_or_default()) {
        let why = "a compressed archive: decompress it first (its layers may stay compressed)";
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    file.rewind()?;
    let mut files = BTreeMap::new();
    let mut archive = ::tar::Archive::new(file);
    for member in members(archive.entries_with_seek()?) {
        let member = member?;
        if files.len() >= MAX_ARCHIVE_FILES {
            return Err(io::Error::other(format!("more than {MAX_ARCHIVE_FILES} files in the archive")));
        }
        let Some(name) = plain(&member.path) else { continue };
        let spot = match &member.kind {
            Kind::File => Spot::Bytes { at: member.position(), length: member.size() },
            Kind::Symlink(to) => match plain(&name.parent().unwrap_or(Path::new("")).join(to)) {
                Some(to) => Spot::Link(to.to_string_lossy().into_owned()),
                None => continue,
            },
            Kind::HardLink(to) => match plain(to) {
                Some(to) => Spot::Link(to.to_string_lossy().into_owned()),
                None => continue,
            },
            Kind::Directory | Kind::Other(_) => continue,
        };
        files.insert(name.to_string_lossy().into_owned(), spot);
    }
    Ok(files)
}

fn spot(files: &BTreeMap<String, Spot>, name: &str) -> io::Result<(u64, u64)> {
    let mut name = name;
    for _ in 0..MAX_LINKS {
        match files.get(name).ok_or(io::ErrorKind::NotFound)? {
            Spot::Bytes { at, length } => return Ok((*at, *length)),
            Spot::Link(to) => name = to,
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// A relative path without `.`, `..` resolved by name; `None` if it leads out.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => out.push(part),
            Component::CurDir => {}
            Component::ParentDir => {
                if !out.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_never_leads_out_of_its_layout() {
        assert_eq!(plain(Path::new("./a/../b/./c")), Some(PathBuf::from("b/c")));
        for bad in ["/a", "..", "a/../../b"] {
            assert_eq!(plain(Path::new(bad)), None, "{bad}");
        }
    }
}
