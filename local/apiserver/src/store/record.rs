//! How does a write look on disk?
//!
//! ```text
//! file    = header frame*
//! header  = magic:8  version:u32  crc32c(magic, version):u32
//! frame   = mark:4  length:u32  crc32c(payload):u32  payload            one group commit
//! payload = (length:u32 record)*
//! record  = revision:u64 op:u8 table namespace name group version kind plural fields object
//! ```
//!
//! A frame is written only after the one before it is on disk. So a bad frame at the very end is a write
//! that never was acknowledged, and a bad frame with a good one behind it is damage.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;

use super::object::{Draft, Ids, Object};
use super::{ChangeType, Event};

/// The version this build writes and the only one it reads.
pub(super) const FORMAT: u32 = 1;
/// The length of a file's header.
pub(super) const HEADER_LEN: usize = 16;

const FRAME_MARK: [u8; 4] = *b"PwF\xf1";
const FRAME_HEAD: usize = 12;

/// What a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileKind {
    Log,
    Snapshot,
}

impl FileKind {
    fn magic(self) -> [u8; 8] {
        match self {
            FileKind::Log => *b"PAWLLOG\0",
            FileKind::Snapshot => *b"PAWLSNP\0",
        }
    }
}

/// One write read back.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) table: Arc<str>,
    pub(super) change: Change,
    pub(super) object: Object,
}

/// What was written; whether a put was the first is known from what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Put,
    Delete,
}

/// Why bytes are not what was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Damage {
    #[error("the file ends within its header")]
    NoHeader,
    #[error("it is not a file of this kind")]
    Magic,
    #[error("its format is version {0}, this build reads version {FORMAT}")]
    Version(u32),
    #[error("the checksum does not match")]
    Checksum,
    #[error("it ends within a frame")]
    Cut,
    #[error("the checksum matches but the record makes no sense: {0}")]
    Nonsense(&'static str),
}

/// The first bytes of a file.
pub(super) fn header(kind: FileKind) -> [u8; HEADER_LEN] {
    let mut out = [0; HEADER_LEN];
    let parts = kind.magic().into_iter().chain(FORMAT.to_le_bytes());
    out.iter_mut().zip(parts).for_each(|(slot, byte)| *slot = byte);
    let sum = crc32c::crc32c(out.get(..12).unwrap_or_default());
    out.iter_mut().skip(12).zip(sum.to_le_bytes()).for_each(|(slot, byte)| *slot = byte);
    out
}

/// Checks the first bytes of a file.
pub(super) fn check_header(kind: FileKind, bytes: &[u8]) -> Result<(), Damage> {
    let mut reader = Reader { bytes };
    let magic = reader.take(8).ok_or(Damage::NoHeader)?;
    let version = reader.u32().ok_or(Damage::NoHeader)?;
    let sum = reader.u32().ok_or(Damage::NoHeader)?;
    if magic != kind.magic() {
        return Err(Damage::Magic);
    }
    if sum != crc32c::crc32c(bytes.get(..12).unwrap_or_default()) {
        return Err(Damage::Checksum);
    }
    if version == FORMAT { Ok(()) } else { Err(Damage::Version(version)) }
}

/// Records on their way into one frame.
#[derive(Debug, Default)]
pub(super) struct FrameBuilder {
    payload: Vec<u8>,
}

impl FrameBuilder {
    pub(super) fn event(&mut self, event: &Event) {
        let change = match event.change {
            ChangeType::Added | ChangeType::Modified => Change::Put,
            ChangeType::Deleted => Change::Delete,
        };
        self.record(&event.table, change, &event.object);
    }

    pub(super) fn record(&mut self, table: &str, change: Change, object: &Object) {
        let at = self.payload.len();
        let out = &mut self.payload;
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&object.revision.to_le_bytes());
        out.push(match change {
            Change::Put => 1,
            Change::Delete => 2,
        });
        let ids = &object.ids;
        for text in
            [table, object.namespace(), object.name(), &ids.group, &ids.version, &ids.kind, &ids.plural]
        {
            block(out, text.as_bytes());
        }
        out.push(u8::from(ids.namespaced));
        out.extend_from_slice(&len32(object.meta.fields.len()));
        for (label, value) in &object.meta.fields {
            block(out, label.as_bytes());
            block(out, value.as_bytes());
        }
        block(out, object.bytes());
        let length = len32(out.len() - at - 4);
        out.iter_mut().skip(at).zip(length).for_each(|(slot, byte)| *slot = byte);
    }

    pub(super) fn len(&self) -> usize {
        self.payload.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.payload.is_empty()
    }

    /// The frame's bytes; the builder is empty again.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let payload = std::mem::take(&mut self.payload);
        let mut out = Vec::with_capacity(FRAME_HEAD + payload.len());
        out.extend_from_slice(&FRAME_MARK);
        out.extend_from_slice(&len32(payload.len()));
        out.extend_from_slice(&crc32c::crc32c(&payload).to_le_bytes());
        out.extend_from_slice(&payload);
        out
    }
}

/// The payload of the frame that `bytes` begin with, and the frame's length.
pub(super) fn frame(bytes: &[u8]) -> Result<(&[u8], usize), Damage> {
    let mut reader = Reader { bytes };
    let mark = reader.take(4).ok_or(Damage::Cut)?;
    let length = reader.u32().ok_or(Damage::Cut)? as usize;
    let sum = reader.u32().ok_or(Damage::Cut)?;
    if mark != FRAME_MARK {
        return Err(Damage::Checksum);
    }
    let payload = reader.take(length).ok_or(Damage::Cut)?;
    if crc32c::crc32c(payload) == sum { Ok((payload, FRAME_HEAD + length)) } else { Err(Damage::Checksum) }
}

/// Whether a whole frame begins anywhere in `bytes`.
pub(super) fn any_frame(bytes: &[u8]) -> bool {
    let starts = bytes.windows(FRAME_MARK.len()).enumerate().filter(|(_, window)| *window == FRAME_MARK);
    starts.map(|(at, _)| at).any(|at| bytes.get(at..).is_some_and(|rest| frame(rest).is_ok()))
}

/// The records of a payload.
pub(super) fn records(payload: &[u8], known: &mut Known) -> Result<Vec<Record>, Damage> {
    let mut reader = Reader { bytes: payload };
    let mut out = Vec::new();
    while !reader.bytes.is_empty() {
        let record = reader.block().ok_or(Damage::Nonsense("a record is cut"))?;
        out.push(parse(record, known)?);
    }
    Ok(out)
}

fn parse(record: &[u8], known: &mut Known) -> Result<Record, Damage> {
    const CUT: Damage = Damage::Nonsense("a field is cut");
    let mut reader = Reader { bytes: record };
    let revision = reader.u64().ok_or(CUT)?;
    let change = match reader.take(1).ok_or(CUT)? {
        [1] => Change::Put,
        [2] => Change::Delete,
        _ => return Err(Damage::Nonsense("an unknown operation")),
    };
    let mut text = || reader.text().ok_or(Damage::Nonsense("a text is cut or not UTF-8"));
    let (table, namespace, name) = (text()?, text()?, text()?);
    let (group, version, kind, plural) = (text()?, text()?, text()?, text()?);
    let namespaced = reader.take(1).ok_or(CUT)? == [1];
    let count = reader.u32().ok_or(CUT)?;
    let mut fields = Vec::new();
    for _ in 0..count {
        let label = reader.text().ok_or(CUT)?;
        fields.push((known.text(label), reader.text().ok_or(CUT)?.to_owned()));
    }
    let bytes = reader.block().ok_or(CUT)?;
    let ids = known.ids([group, version, kind, plural], namespaced);
    let object = match Object::restore(&ids, revision, bytes, &fields) {
        Some(object) => object,
        None => {
            let value: Value =
                serde_json::from_slice(bytes).map_err(|_| Damage::Nonsense("the object is not JSON"))?;
            Draft::new(ids, &value, fields).at(revision)
        }
    };
    if object.namespace() != namespace || object.name() != name {
        return Err(Damage::Nonsense("the object is not the one its record names"));
    }
    Ok(Record { table: known.text(table), change, object })
}

/// What earlier records said: a hundred thousand objects are of a few dozen kinds, and share their names.
#[derive(Debug, Default)]
pub(super) struct Known {
    texts: HashSet<Arc<str>>,
    ids: Vec<Arc<Ids>>,
}

impl Known {
    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let text: Arc<str> = text.into();
        self.texts.insert(text.clone());
        text
    }

    fn ids(&mut self, [group, version, kind, plural]: [&str; 4], namespaced: bool) -> Arc<Ids> {
        let same = |ids: &&Arc<Ids>| {
            &*ids.plural == plural
                && &*ids.group == group
                && &*ids.version == version
                && &*ids.kind == kind
                && ids.namespaced == namespaced
        };
        // Records of one kind follow each other, so the last is asked first.
        if let Some(known) = self.ids.iter().rev().find(same) {
            return known.clone();
        }
        let [group, version, kind, plural] = [group, version, kind, plural].map(|text| self.text(text));
        let ids = Arc::new(Ids { group, version, kind, plural, namespaced });
        self.ids.push(ids.clone());
        ids
    }
}

fn block(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&len32(bytes.len()));
    out.extend_from_slice(bytes);
}

/// Lengths are of objects (at most 1.5 MiB) and of frames of a few of them: far below 4 GiB.
fn len32(len: usize) -> [u8; 4] {
    u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes()
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn block(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.take(len as usize)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.block()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str) -> Object {
        let ids = Ids {
            group: "apps".into(),
            version: "v1".into(),
            kind: "Thing".into(),
            plural: "things".into(),
            namespaced: true,
        };
        let value =
            json!({"metadata": {"name": name, "namespace": "n", "uid": "u"}, "spec": {"a": [1, "ä"]}});
        Draft::new(Arc::new(ids), &value, vec![("spec.x".into(), "y".into())]).at(7)
    }

    #[test]
    fn a_frame_gives_back_what_went_in() {
        let mut builder = FrameBuilder::default();
        builder.record("things.apps", Change::Put, &object("a"));
        builder.record("things.apps", Change::Delete, &object("b"));
        let bytes = builder.finish();
        let (payload, len) = frame(&bytes).unwrap();
        assert_eq!(len, bytes.len());
        let records = records(payload, &mut Known::default()).unwrap();
        assert_eq!(records.len(), 2);
        assert_eq!(records[0].object.value(), object("a").value());
        assert_eq!(records[0].object.ids, object("a").ids);
        assert_eq!(records[0].object.meta, object("a").meta);
        assert_eq!(records[1].change, Change::Delete);
    }

    #[test]
    fn no_flipped_bit_goes_unnoticed() {
        let mut builder = FrameBuilder::default();
        builder.record("things.apps", Change::Put, &object("a"));
        let good = builder.finish();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(frame(&bad).is_err(), "byte {at}");
        }
        let head = header(FileKind::Log);
        assert_eq!(check_header(FileKind::Log, &head), Ok(()));
        assert_eq!(check_header(FileKind::Snapshot, &head), Err(Damage::Magic));
        for at in 0..head.len() {
            let mut bad = head;
            bad[at] ^= 1;
            assert!(check_header(FileKind::Log, &bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_good_frame_is_found_behind_damage() {
        let mut builder = FrameBuilder::default();
        builder.record("things.apps", Change::Put, &object("a"));
        let good = builder.finish();
        assert!(any_frame(&[b"damage PwF".as_slice(), &good].concat()));
        assert!(!any_frame(&good[1..]));
    }
}
