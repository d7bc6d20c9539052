//! What does a tar hold, one member after another?
//!
//! The `tar` crate reads the headers; the extensions that precede a member (long names of GNU and PAX) are put
//! together here, because there they may be as long as they like in memory.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use tar::{Entries, Entry, EntryType, PaxExtensions};

/// The longest extension of a member that is read: a path and a link of 4096 bytes each, and some xattrs.
const MAX_EXTENSION_BYTES: u64 = 1 << 20;

/// What a member's mode is that has none.
const DEFAULT_MODE: u32 = 0o755;

/// A member of a tar; its bytes are read from it.
pub struct Member<'a, R: Read> {
    pub path: PathBuf,
    pub kind: Kind,
    pub mode: u32,
    /// Seconds since 1970.
    pub modified: u64,
    entry: Entry<'a, R>,
}

/// What a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Directory,
    Symlink(PathBuf),
    HardLink(PathBuf),
    /// Nothing that an image has to bring: a device, a pipe, a sparse file, …
    Other(&'static str),
}

/// The members of a tar, in order. After an error there is nothing more.
pub fn members<R: Read>(entries: Entries<'_, R>) -> impl Iterator<Item = io::Result<Member<'_, R>>> {
    let mut entries = entries.raw(true);
    let mut over = false;
    std::iter::from_fn(move || {
        if over {
            return None;
        }
        let next = next(&mut entries).transpose();
        over = !matches!(next, Some(Ok(_)));
        next
    })
}

impl<R: Read> Member<'_, R> {
    pub fn size(&self) -> u64 {
        self.entry.size()
    }

    /// Where in the tar its bytes begin.
    pub(super) fn position(&self) -> u64 {
        self.entry.raw_file_position()
    }
}

impl<R: Read> Read for Member<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.entry.read(buffer)
    }
}

impl<R: Read> std::fmt::Debug for Member<'_, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").field("path", &self.path).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// What precedes a member and says more about it than its header can.
#[derive(Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
}

#[expect(clippy::wildcard_enum_match_arm, reason = "whatever is no extension is a member")]
fn next<'a, R: Read>(entries: &mut Entries<'a, R>) -> io::Result<Option<Member<'a, R>>> {
    let mut before = Extensions::default();
    for entry in entries {
        let mut entry = entry?;
        match entry.header().entry_type() {
            EntryType::XGlobalHeader => {}
            EntryType::GNULongName => before.path = Some(text(&mut entry)?),
            EntryType::GNULongLink => before.link = Some(text(&mut entry)?),
            EntryType::XHeader => before.read_pax(&mut entry)?,
            _ => return member(entry, before).map(Some),
        }
    }
    Ok(None)
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the kinds of a tar are open: what is not known is refused"
)]
fn member<R: Read>(entry: Entry<'_, R>, before: Extensions) -> io::Result<Member<'_, R>> {
    let header = entry.header();
    let path = before.path.unwrap_or_else(|| header.path_bytes().into_owned());
    let link = || {
        let link = before.link.clone().or_else(|| header.link_name_bytes().map(|link| link.into_owned()));
        link.map(as_path).ok_or_else(|| invalid("a link without a target"))
    };
    let kind = match header.entry_type() {
        // Before there were types, a directory was a file whose name ends so.
        EntryType::Regular if path.ends_with(b"/") => Kind::Directory,
        EntryType::Regular | EntryType::Continuous => Kind::File,
        EntryType::Directory => Kind::Directory,
        EntryType::Symlink => Kind::Symlink(link()?),
        EntryType::Link => Kind::HardLink(link()?),
        EntryType::Char => Kind::Other("a character device"),
        EntryType::Block => Kind::Other("a block device"),
        EntryType::Fifo => Kind::Other("a named pipe"),
        EntryType::GNUSparse => Kind::Other("a sparse file"),
        _ => Kind::Other("of an unknown kind"),
    };
    // Empty fields are common where they do not matter to who wrote them.
    let (mode, modified) = (header.mode().unwrap_or(DEFAULT_MODE), header.mtime().unwrap_or(0));
    Ok(Member { path: as_path(path), kind, mode, modified, entry })
}

impl Extensions {
    fn read_pax<R: Read>(&mut self, entry: &mut Entry<'_, R>) -> io::Result<()> {
        let text = bytes(entry)?;
        for record in PaxExtensions::new(&text) {
            let record = record?;
            match record.key_bytes() {
                b"path" => self.path = Some(record.value_bytes().to_vec()),
                b"linkpath" => self.link = Some(record.value_bytes().to_vec()),
                b"size" => return Err(invalid("a member of 8 GiB or more")),
                // Times, owners, attributes: not kept here.
                _ => {}
            }
        }
        Ok(())
    }
}

/// A GNU extension: a text that ends with its first NUL.
fn text<R: Read>(entry: &mut Entry<'_, R>) -> io::Result<Vec<u8>> {
    let mut text = bytes(entry)?;
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    text.truncate(end);
    Ok(text)
}

fn bytes<R: Read>(entry: &mut Entry<'_, R>) -> io::Result<Vec<u8>> {
    if entry.size() > MAX_EXTENSION_BYTES {
        return Err(invalid("the extension of a member is longer than 1 MiB"));
    }
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn as_path(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}
