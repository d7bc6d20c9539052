//! What is one row, and what does its hash cover?
//!
//! The canonical encoding of a row, which its hash is the SHA-256 of:
//!
//! ```text
//! "pawl-audit-v1\0"  previous hash (32 bytes)  seq (u64)  id (16 bytes)  at (i64, microseconds since 1970)
//! then actor kind namespace name uid target event outcome correlation payload, each: length (u32), UTF-8 bytes
//! ```
//! All numbers are big-endian. Lengths make the encoding injective: no two different rows have the same bytes. The
//! payload is hashed as the text that is stored, so no database's idea of JSON matters. The first row's previous hash
//! is all zeros.

use jiff::Timestamp;
use pawl_machines::audit::Entry;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
pub use uuid::Uuid;

/// A payload that is larger says so instead: a status is at most about this large, and a million rows of the usual 300
/// bytes must stay readable.
pub const MAX_PAYLOAD_BYTES: usize = 16 * 1024;

/// No name, target or event of ours is longer; a longer one is cut rather than refused (B-trees of PostgreSQL take at
/// most 2,704 bytes for a key, and a target is one with a time beside it).
pub const MAX_FIELD_BYTES: usize = 2_048;

const DOMAIN: &[u8] = b"pawl-audit-v1\0";

/// How many texts a record has.
const TEXTS: usize = 10;

pub type Hash = [u8; 32];

/// What a row says, before it has a place in the chain. Masked and cut to size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub id: Uuid,
    /// Microseconds since 1970: what both databases keep exactly.
    pub at: i64,
    pub actor: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub target: String,
    pub event: String,
    pub outcome: String,
    pub correlation: String,
    /// JSON text, byte for byte as it is hashed.
    pub payload: String,
}

/// A record in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// From 1, without gaps.
    pub seq: i64,
    pub record: Record,
    pub previous: Hash,
    pub hash: Hash,
}

/// Where a chain ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Of the last row; 0 when there is none.
    pub seq: i64,
    pub hash: Hash,
}

impl Record {
    /// What of an entry is stored. `mask` takes out of a text what nobody may see (I6).
    pub fn of(entry: &Entry, mask: &dyn Fn(&str) -> String) -> Self {
        let Entry { id, at, actor, about, target, event, outcome, correlation, payload } = entry;
        let field = |text: &str| cut(&mask(&without_nul(text)), MAX_FIELD_BYTES);
        Self {
            id: *id,
            at: at.as_microsecond(),
            actor: field(&actor.to_string()),
            kind: field(&about.kind),
            namespace: field(&about.namespace),
            name: field(&about.name),
            uid: field(&about.uid),
            target: field(target),
            event: field(event),
            outcome: outcome.as_str().to_owned(),
            correlation: field(correlation),
            payload: payload_text(payload, mask),
        }
    }

    /// Its texts, in the order in which they are hashed and stored.
    pub(crate) fn texts(&self) -> [&str; TEXTS] {
        let Self { actor, kind, namespace, name, uid, target, event, outcome, correlation, payload, .. } =
            self;
        [actor, kind, namespace, name, uid, target, event, outcome, correlation, payload]
    }

    /// A record as it is read back, with its texts in that order.
    pub(crate) fn stored(id: Uuid, at: i64, texts: [String; TEXTS]) -> Self {
        let [actor, kind, namespace, name, uid, target, event, outcome, correlation, payload] = texts;
        Self { id, at, actor, kind, namespace, name, uid, target, event, outcome, correlation, payload }
    }

    pub fn time(&self) -> Timestamp {
        Timestamp::from_microsecond(self.at).unwrap_or_default()
    }

    /// This record as the next row after `head`.
    pub fn after(self, head: &Head) -> Row {
        let seq = head.seq.saturating_add(1);
        let hash = hash(seq, &self, &head.hash);
        Row { seq, record: self, previous: head.hash, hash }
    }
}

impl Row {
    pub fn head(&self) -> Head {
        Head { seq: self.seq, hash: self.hash }
    }

    /// The hash that this row ought to have.
    pub fn computed(&self) -> Hash {
        hash(self.seq, &self.record, &self.previous)
    }

    /// For machines to read: what `pawl audit -o json` prints.
    pub fn to_json(&self) -> Value {
        let payload = &self.record.payload;
        let payload =
            serde_json::from_str::<Value>(payload).unwrap_or_else(|_| Value::from(payload.as_str()));
        let mut row = json!(self.record);
        if let Some(fields) = row.as_object_mut() {
            fields.remove("at");
            fields.insert("time".to_owned(), self.record.time().to_string().into());
            fields.insert("payload".to_owned(), payload);
            fields.insert("seq".to_owned(), self.seq.into());
            fields.insert("previous".to_owned(), hex::encode(self.previous).into());
            fields.insert("hash".to_owned(), hex::encode(self.hash).into());
        }
        row
    }
}

impl std::fmt::Display for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.seq, hex::encode(self.hash))
    }
}

impl std::str::FromStr for Head {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = || {
            let (seq, hash) = text.split_once(':')?;
            let mut head = Self { seq: seq.parse().ok().filter(|seq| *seq >= 0)?, hash: Hash::default() };
            hex::decode_to_slice(hash, &mut head.hash).ok()?;
            Some(head)
        };
        parsed().ok_or_else(|| {
            format!("{text:?} is not SEQ:HASH with a SHA-256 in hex, as `pawl audit verify` prints it")
        })
    }
}

fn hash(seq: i64, record: &Record, previous: &Hash) -> Hash {
    let mut digest = Sha256::new();
    digest.update(DOMAIN);
    digest.update(previous);
    digest.update(seq.to_be_bytes());
    digest.update(record.id.as_bytes());
    digest.update(record.at.to_be_bytes());
    for text in record.texts() {
        // Nothing is longer than the limits above.
        digest.update(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
        digest.update(text.as_bytes());
    }
    digest.finalize().into()
}

/// The payload with every text in it masked; one that is too large gives way to what it was called and how large it was.
fn payload_text(payload: &Value, mask: &dyn Fn(&str) -> String) -> String {
    let mut payload = payload.clone();
    mask_texts(&mut payload, mask);
    let text = payload.to_string();
    if text.len() <= MAX_PAYLOAD_BYTES {
        return text;
    }
    // The short fields say the most: reason, attempt, references. Long ones keep their beginning.
    if let Some(fields) = payload.as_object_mut() {
        let room = MAX_PAYLOAD_BYTES / (2 * fields.len().max(1));
        for value in fields.values_mut() {
            let long = value.to_string();
            if long.len() > room {
                *value = Value::from(cut(value.as_str().unwrap_or(&long), room.saturating_sub(64)));
            }
        }
        fields.insert("cutFromBytes".to_owned(), text.len().into());
    }
    let shorter = payload.to_string();
    if shorter.len() <= MAX_PAYLOAD_BYTES { shorter } else { json!({"cutFromBytes": text.len()}).to_string() }
}

fn mask_texts(value: &mut Value, mask: &dyn Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = mask(&without_nul(text)),
        Value::Array(values) => values.iter_mut().for_each(|value| mask_texts(value, mask)),
        Value::Object(fields) => fields.values_mut().for_each(|value| mask_texts(value, mask)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// PostgreSQL's texts cannot hold a NUL.
fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

fn cut(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    const CUT: &str = "…";
    let end = (0..=max.saturating_sub(CUT.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}{CUT}", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pawl_machines::audit::{Actor, Outcome, Subject};
    use proptest::prelude::*;

    fn entry(payload: Value) -> Entry {
        Entry {
            id: Uuid::from_u128(1),
            at: Timestamp::from_second(7).unwrap(),
            actor: Actor::User("octocat".to_owned()),
            about: Subject {
                kind: "Workflow".into(),
                namespace: "n".into(),
                name: "w".into(),
                uid: "u".into(),
            },
            target: "git:x".to_owned(),
            event: "git.workflow.started".to_owned(),
            outcome: Outcome::Pending,
            correlation: "root".to_owned(),
            payload,
        }
    }

    fn mask(text: &str) -> String {
        text.replace("made-up-secret", "***")
    }

    #[test]
    fn the_encoding_is_what_it_was_when_the_first_row_was_written() {
        let row = Record::of(&entry(json!({"a": 1})), &str::to_owned).after(&Head::default());
        // Computed apart from this program, from the description at the top of this file.
        assert_eq!(hex::encode(row.hash), "bb34c11db13a4165a790da95c3976295afb24a99362aba98f5ee0ba30110fa4c");
        assert_eq!((row.seq, row.previous, row.computed()), (1, Hash::default(), row.hash));
    }

    #[test]
    fn i6_no_secret_gets_into_a_row_in_any_field() {
        let secret = "made-up-secret";
        let mut entry = entry(json!({"a": secret, "b": [{"c": format!("x {secret} y")}], "n": 7}));
        entry.target = secret.to_owned();
        entry.about.name = secret.to_owned();
        let record = Record::of(&entry, &mask);
        let stored = serde_json::to_string(&record).unwrap();
        assert!(!stored.contains(secret), "{stored}");
        assert_eq!(record.payload, r#"{"a":"***","b":[{"c":"x *** y"}],"n":7}"#);
    }

    #[test]
    fn a_payload_that_is_too_large_keeps_what_is_short_and_says_how_large_it_was() {
        let long = "é".repeat(MAX_PAYLOAD_BYTES);
        let record = Record::of(&entry(json!({"reason": "Failed", "message": long})), &str::to_owned);
        assert!(record.payload.len() <= MAX_PAYLOAD_BYTES);
        let payload: Value = serde_json::from_str(&record.payload).unwrap();
        assert_eq!(payload["reason"], "Failed");
        assert!(
            payload["message"].as_str().unwrap().starts_with("éé") && payload["cutFromBytes"].is_number()
        );
        let many: serde_json::Map<String, Value> =
            (0..9_000).map(|n| (format!("field-{n}"), n.into())).collect();
        assert!(Record::of(&entry(many.into()), &str::to_owned).payload.len() <= MAX_PAYLOAD_BYTES);
    }

    #[test]
    fn a_head_is_written_as_it_is_read() {
        let head = Head { seq: 7, hash: [0xab; 32] };
        assert_eq!(head.to_string().parse(), Ok(head));
        for wrong in ["", "7", "7:", "x:00", "-1:00", &format!("7:{}", "a".repeat(63))] {
            assert!(wrong.parse::<Head>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn two_rows_that_differ_anywhere_have_different_hashes(
            a in proptest::array::uniform3("[ab]{0,3}"), b in proptest::array::uniform3("[ab]{0,3}"),
        ) {
            // Short texts of two letters: what one field ends with, the next may begin with.
            let row = |[actor, kind, payload]: &[String; 3]| {
                let record = Record::of(&entry(json!({})), &str::to_owned);
                let record = Record { actor: actor.clone(), kind: kind.clone(), payload: payload.clone(), ..record };
                record.after(&Head::default())
            };
            prop_assert_eq!(row(&a).hash == row(&b).hash, a == b);
        }
    }
}
