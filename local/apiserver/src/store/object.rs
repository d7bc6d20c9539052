//! What is one stored object?
//!
//! Bytes ready to be sent, laid out so that what changes per write or per answer can be swapped without
//! parsing, and a few parsed facts for selection:
//!
//! ```text
//! {"kind":"ConfigMap","apiVersion":"v1",  "metadata":{"resourceVersion":"17"  ,"name":"a",…}  ,"data":{…}}
//! └────────────── head ───────────────────┘           └── known late ────────┘             │             │
//!                              metadata_at┘                          tail_at┘  metadata_end┘             ┘
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

/// What an object is an instance of.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ids {
    /// The API group, empty for core.
    pub group: Arc<str>,
    /// The API version within the group.
    pub version: Arc<str>,
    /// The kind, as in `kind:`.
    pub kind: Arc<str>,
    /// The resource, as in paths.
    pub plural: Arc<str>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
}

impl Ids {
    /// `group/version`, or the version alone in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The resource as errors and tables call it: `plural.group`.
    pub(crate) fn group_resource(&self) -> String {
        qualified(&self.plural, &self.group)
    }
}

/// `name.group`, or the name alone in the core group.
pub(crate) fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

/// The facts of an object that selection and deletion need, parsed once when it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    /// `metadata.uid`
    pub uid: Box<str>,
    /// `metadata.labels`
    pub labels: Labels,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// What field selectors may ask beyond name and namespace.
    pub fields: Box<[(Arc<str>, String)]>,
}

/// An object's labels. Every object has its own for as long as it lives: one text of all keys and values, and where each
/// of them ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    words: Box<str>,
    ends: Box<[usize]>,
}

impl Labels {
    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        let mut start = 0;
        for pair in self.ends.chunks_exact(2) {
            let [middle, end] = *pair else { continue };
            if self.words.get(start..middle) == Some(key) {
                return self.words.get(middle..end);
            }
            start = end;
        }
        None
    }
}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for Labels {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(pairs: T) -> Self {
        let (mut words, mut ends) = (String::new(), Vec::new());
        for (key, value) in pairs {
            for word in [key.as_ref(), value.as_ref()] {
                words.push_str(word);
                ends.push(words.len());
            }
        }
        Labels { words: words.into(), ends: ends.into() }
    }
}

/// One version of one object.
#[derive(Debug, Clone)]
pub struct Object {
    /// What it is.
    pub ids: Arc<Ids>,
    /// The revision that wrote it: its `resourceVersion`.
    pub revision: u64,
    /// Parsed facts.
    pub meta: Meta,
    place: Place,
    bytes: Bytes,
    metadata_at: usize,
    tail_at: usize,
    metadata_end: usize,
}

/// Where an object is: its key in its table, which is made of its namespace and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    key: Box<str>,
    /// Where in the key the name begins.
    name_at: usize,
}

impl Place {
    pub(crate) fn new(namespace: &str, name: &str) -> Place {
        let key = super::key(namespace, name);
        let name_at = key.len() - name.len();
        Place { key, name_at }
    }

    /// `namespace/name`, or the name alone.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Empty if it has none.
    pub(crate) fn namespace(&self) -> &str {
        self.key.get(..self.name_at.saturating_sub(1)).unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &str {
        self.key.get(self.name_at..).unwrap_or_default()
    }
}

/// An object that waits for its revision.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) ids: Arc<Ids>,
    pub(crate) place: Place,
    pub(crate) meta: Meta,
    tail: Vec<u8>,
    metadata_len: usize,
}

impl Draft {
    /// Encodes everything but the resourceVersion.
    pub(crate) fn new(ids: Arc<Ids>, object: &Value, fields: Vec<(Arc<str>, String)>) -> Draft {
        let empty = Map::new();
        let body = object.as_object().unwrap_or(&empty);
        let metadata = body.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
        let mut tail = Vec::with_capacity(512);
        for (key, value) in metadata {
            if key != "resourceVersion" {
                member(&mut tail, key, value);
            }
        }
        let metadata_len = tail.len();
        tail.push(b'}');
        for (key, value) in body {
            if !matches!(key.as_str(), "kind" | "apiVersion" | "metadata") {
                member(&mut tail, key, value);
            }
        }
        tail.push(b'}');
        let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default();
        Draft {
            ids,
            place: Place::new(text("namespace"), text("name")),
            meta: meta(metadata, fields),
            tail,
            metadata_len,
        }
    }

    /// The bytes it will take, to hold against the size limit.
    pub(crate) fn len(&self) -> usize {
        self.tail.len()
    }

    /// The object, once its revision is known.
    pub(crate) fn at(self, revision: u64) -> Object {
        let (bytes, metadata_at, tail_at) = assemble(&self.ids, revision, &self.tail);
        Object {
            ids: self.ids,
            revision,
            meta: self.meta,
            place: self.place,
            bytes,
            metadata_at,
            tail_at,
            metadata_end: tail_at + self.metadata_len,
        }
    }

    /// Whether `object` already says all of this.
    pub(crate) fn same_as(&self, object: &Object) -> bool {
        self.ids == object.ids && object.bytes.get(object.tail_at..) == Some(self.tail.as_slice())
    }
}

impl Object {
    /// An object from bytes that an object gave before. Nothing is encoded anew, and of the content only what
    /// selection needs is read. `None` if the bytes are laid out differently.
    pub(crate) fn restore(
        ids: &Arc<Ids>,
        revision: u64,
        bytes: &[u8],
        fields: &[(Arc<str>, String)],
    ) -> Option<Object> {
        let (head, metadata_at, tail_at) = assemble(ids, revision, &[]);
        let tail = bytes.strip_prefix(&*head)?;
        let metadata_len = end_of_object(tail)?;
        // What a checksum vouches for is what was encoded: the content need not be read, but must not be half of it.
        if end_of_object(tail.get(metadata_len + 1..)?)? + metadata_len + 2 != tail.len() {
            return None;
        }
        let opening = metadata_at + METADATA_OPENS;
        let metadata: OutlineMeta =
            serde_json::from_slice(bytes.get(opening..=tail_at + metadata_len)?).ok()?;
        let meta = Meta {
            uid: metadata.uid.into(),
            labels: metadata.labels.into_iter().collect(),
            deleting: metadata.deletion_timestamp.is_some(),
            fields: fields.into(),
        };
        Some(Object {
            ids: ids.clone(),
            revision,
            meta,
            place: Place::new(&metadata.namespace, &metadata.name),
            bytes: Bytes::copy_from_slice(bytes),
            metadata_at,
            tail_at,
            metadata_end: tail_at + metadata_len,
        })
    }

    /// Its namespace, empty if it has none.
    pub fn namespace(&self) -> &str {
        self.place.namespace()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.place.name()
    }

    /// Its key in its table.
    pub(crate) fn key(&self) -> &str {
        self.place.key()
    }

    /// The whole object as JSON.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The whole object, parsed anew.
    pub fn value(&self) -> Value {
        // What was encoded from a `Value` parses; an empty object stands in for the impossible.
        serde_json::from_slice(&self.bytes).unwrap_or_else(|_| Value::Object(Map::new()))
    }

    /// The members after `kind` and `apiVersion`, without the opening brace: how items of built-in lists
    /// are written, and how the same content is shown under another `apiVersion`.
    pub(crate) fn without_type(&self) -> &[u8] {
        self.bytes.get(self.metadata_at..).unwrap_or_default()
    }

    /// `"metadata":{…}` alone.
    pub(crate) fn metadata(&self) -> &[u8] {
        self.bytes.get(self.metadata_at..=self.metadata_end).unwrap_or_default()
    }

    /// The same content under another revision: what a DELETED event shows.
    pub(crate) fn at(&self, revision: u64) -> Object {
        let tail = self.bytes.get(self.tail_at..).unwrap_or_default();
        let (bytes, metadata_at, tail_at) = assemble(&self.ids, revision, tail);
        Object {
            revision,
            bytes,
            metadata_at,
            tail_at,
            metadata_end: tail_at + (self.metadata_end - self.tail_at),
            ids: self.ids.clone(),
            place: self.place.clone(),
            meta: self.meta.clone(),
        }
    }
}

/// How far the metadata's opening brace is from its name.
const METADATA_OPENS: usize = "\"metadata\":".len();

/// What selection needs of stored metadata.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OutlineMeta<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
    #[serde(default)]
    labels: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    #[serde(default)]
    deletion_timestamp: Option<IgnoredAny>,
}

/// Where the object ends that `text` is the rest of: its closing brace.
fn end_of_object(text: &[u8]) -> Option<usize> {
    let (mut depth, mut quoted, mut escaped) = (1_usize, false, false);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// `{"kind":…,"apiVersion":…,`
pub(crate) fn type_head(kind: &str, api_version: &str) -> Vec<u8> {
    let mut head = Vec::with_capacity(96);
    head.extend_from_slice(b"{\"kind\":");
    json(&mut head, &Value::from(kind));
    head.extend_from_slice(b",\"apiVersion\":");
    json(&mut head, &Value::from(api_version));
    head.push(b',');
    head
}

fn assemble(ids: &Ids, revision: u64, tail: &[u8]) -> (Bytes, usize, usize) {
    let mut bytes = type_head(&ids.kind, &ids.api_version());
    bytes.reserve(tail.len() + 48);
    let metadata_at = bytes.len();
    bytes.extend_from_slice(b"\"metadata\":{\"resourceVersion\":\"");
    bytes.extend_from_slice(revision.to_string().as_bytes());
    bytes.push(b'"');
    let tail_at = bytes.len();
    bytes.extend_from_slice(tail);
    (bytes.into(), metadata_at, tail_at)
}

/// `,"key":value`
fn member(out: &mut Vec<u8>, key: &str, value: &Value) {
    out.push(b',');
    json(out, &Value::from(key));
    out.push(b':');
    json(out, value);
}

fn json(out: &mut Vec<u8>, value: &Value) {
    // Writing a `Value` into a `Vec` cannot fail: no IO, and every key is a string.
    let written = serde_json::to_writer(out, value);
    debug_assert!(written.is_ok(), "a Value failed to encode: {written:?}");
}

fn meta(metadata: &Map<String, Value>, fields: Vec<(Arc<str>, String)>) -> Meta {
    let labels = metadata.get("labels").and_then(Value::as_object);
    Meta {
        uid: metadata.get("uid").and_then(Value::as_str).unwrap_or_default().into(),
        labels: labels
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
            .collect(),
        deleting: metadata.get("deletionTimestamp").is_some_and(|t| !t.is_null()),
        fields: fields.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ids() -> Arc<Ids> {
        Arc::new(Ids {
            group: "".into(),
            version: "v1".into(),
            kind: "ConfigMap".into(),
            plural: "configmaps".into(),
            namespaced: true,
        })
    }

    fn sample() -> Value {
        json!({"kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "labels": {"x": "y"}},
            "data": {"k": "\"quoted\" \u{202e}"}})
    }

    #[test]
    fn encoding_loses_nothing_and_adds_the_version() {
        let object = Draft::new(ids(), &sample(), vec![]).at(17);
        let mut want = sample();
        want["metadata"]["resourceVersion"] = "17".into();
        assert_eq!(object.value(), want);
        assert_eq!(object.meta.labels.get("x"), Some("y"));
    }

    #[test]
    fn another_revision_changes_the_version_alone() {
        let object = Draft::new(ids(), &sample(), vec![]).at(9).at(12345);
        let mut want = sample();
        want["metadata"]["resourceVersion"] = "12345".into();
        assert_eq!(object.value(), want);
    }

    #[test]
    fn an_object_is_restored_from_its_bytes_as_it_was() {
        let mut value = sample();
        value["metadata"]["annotations"] = json!({"a": "}]\\\"{", "\u{202e}": "\n"});
        value["metadata"]["finalizers"] = json!(["f/g"]);
        for deleted in [Value::Null, json!("2026-01-01T00:00:00Z")] {
            value["metadata"]["deletionTimestamp"] = deleted;
            let fields = vec![(Arc::from("spec.x"), "y".to_owned())];
            let was = Draft::new(ids(), &value, fields.clone()).at(17);
            let is = Object::restore(&ids(), 17, was.bytes(), &fields).unwrap();
            assert_eq!((&is.place, &is.meta), (&was.place, &was.meta));
            assert_eq!(is.bytes(), was.bytes());
            assert_eq!((is.metadata(), is.without_type()), (was.metadata(), was.without_type()));
            assert_eq!(is.at(5).bytes(), was.at(5).bytes());
            assert!(Object::restore(&ids(), 18, was.bytes(), &[]).is_none(), "another revision");
            let cut = was.bytes().slice(..was.bytes().len() - 1);
            assert!(Object::restore(&ids(), 17, &cut, &[]).is_none(), "not JSON");
        }
    }

    #[test]
    fn metadata_can_be_cut_out_of_the_bytes() {
        let object = Draft::new(ids(), &sample(), vec![]).at(3).at(30_000);
        let cut = [b"{", object.metadata(), b"}"].concat();
        let cut: Value = serde_json::from_slice(&cut).unwrap();
        assert_eq!(cut, json!({"metadata": object.value()["metadata"]}));
        let typeless = [b"{", object.without_type()].concat();
        let typeless: Value = serde_json::from_slice(&typeless).unwrap();
        assert_eq!(typeless["data"], sample()["data"]);
        assert_eq!(typeless.get("kind"), None);
    }

    #[test]
    fn a_draft_equal_to_what_is_stored_is_recognized() {
        let object = Draft::new(ids(), &sample(), vec![]).at(3);
        assert!(Draft::new(ids(), &object.value(), vec![]).same_as(&object));
        let mut other = sample();
        other["data"]["k"] = "z".into();
        assert!(!Draft::new(ids(), &other, vec![]).same_as(&object));
    }
}
