//! One version of one object, as a cache holds it: untyped, with the typed form made at most once.
//!
//! ```text
//!  text ──somebody asks──▶ type, status or tree are made of it, once each ──nobody asks any more──▶ text (`rested`)
//! ```
//! The loop moves objects around without knowing their types; a machine asks for the type it understands. An
//! object that does not have the shape of its type is a fact to decide on, not an error that stops a watch.

mod words;

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use pawl_api::meta::Kind;
use pawl_api::meta::reference::ObjectRef;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::words::{Loose, Words};

/// Where an object is: enough to find it, not to tell it from a namesake that came later.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// `None` for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
}

impl Key {
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        Self { namespace: namespace.map(str::to_owned), name: name.to_owned() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// One particular object: its place and its UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Reference {
    #[serde(flatten)]
    pub kind: Kind,
    #[serde(flatten)]
    pub key: Key,
    #[serde(default)]
    pub uid: String,
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}

/// Where an object stands among others: the older first, and of two that are as old the smaller UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    pub created_at: Timestamp,
    pub uid: String,
}

impl Spot {
    pub fn of(object: &Object) -> Self {
        let created_at = object.said.created_at.unwrap_or(Timestamp::UNIX_EPOCH);
        Self { created_at, uid: object.uid().to_owned() }
    }
}

/// Why a manifest is not what its kind says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {name} does not have the shape of its kind: {problem}")]
pub struct Malformed {
    pub kind: String,
    pub name: String,
    pub problem: String,
}

type Typed = Result<Arc<dyn Any + Send + Sync>, Malformed>;

/// An object at one resourceVersion.
///
/// Most objects of a cluster are only counted: what they all say is kept small, and what few say or few are asked for has
/// a place only where it is there.
pub struct Object {
    /// Who forgets what was made of an object keeps this where it is.
    said: Arc<Said>,
    made: OnceLock<Box<Made>>,
}

/// What came from the API server.
struct Said {
    kind: Arc<Kind>,
    words: Words,
    created_at: Option<Timestamp>,
    /// What else its metadata says, without the words and the time above; `None` if that is all.
    rest: Option<Box<ObjectMeta>>,
    /// The manifest as text, where it is kept so: a tenth of what it takes as a tree.
    text: Option<Box<[u8]>>,
}

/// What is made of an object when somebody asks for it.
#[derive(Default)]
struct Made {
    raw: OnceLock<Value>,
    /// Of the text, the part that every decision compares with; the rest is seldom asked for as a tree.
    status: OnceLock<Value>,
    typed: OnceLock<Typed>,
    /// Whether somebody asked since [`Object::rested`] was asked last.
    used: AtomicBool,
}

/// What can be done to save memory on an object.
#[derive(Debug)]
pub enum Rest {
    /// Nothing: no more of it is kept than there must be.
    Rests,
    /// Somebody looked into it a short while ago.
    Awake,
    /// To keep this one in its place.
    Now(Arc<Object>),
}

/// Of an object's metadata, what counts and when.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moments {
    pub generation: Option<i64>,
    pub creation_timestamp: Option<Time>,
    pub deletion_timestamp: Option<Time>,
    pub deletion_grace_period_seconds: Option<i64>,
}

/// The one part of a manifest that is asked for by itself.
#[derive(Deserialize)]
struct Of<T> {
    status: Option<T>,
}

impl Object {
    /// Takes a manifest as an API server sent it.
    ///
    /// # Errors
    /// When `metadata` is missing or has fields of the wrong type.
    pub fn new(kind: impl Into<Arc<Kind>>, raw: Value) -> Result<Arc<Self>, Malformed> {
        let kind = kind.into();
        let meta = read_metadata(&kind, &raw)?;
        let made = Made { raw: raw.into(), ..Made::default() };
        let said = Said::of(kind, meta, None)?;
        Ok(Arc::new(Self { said: Arc::new(said), made: Box::new(made).into() }))
    }

    /// The same, kept small: for caches, which hold thousands of which few are looked into. `metadata` is the part of that
    /// name in the manifest, and `text` all of it, by the object's name; without the text, its metadata is all that is
    /// known of the object.
    ///
    /// # Errors
    /// When `metadata` is missing or has fields of the wrong type.
    pub fn compact(
        kind: impl Into<Arc<Kind>>,
        metadata: &[u8],
        text: impl FnOnce(&str) -> Option<Box<[u8]>>,
    ) -> Result<Arc<Self>, Malformed> {
        let kind = kind.into();
        let meta = match serde_json::from_slice::<ObjectMeta>(metadata) {
            Ok(meta) if meta.name.is_some() => meta,
            // For the better words: those about a text name a column in what nobody sees.
            Ok(_) | Err(_) => {
                let metadata: Value = serde_json::from_slice(metadata).unwrap_or_default();
                read_metadata(&kind, &serde_json::json!({"metadata": metadata}))?
            }
        };
        let text = text(meta.name.as_deref().unwrap_or_default());
        Ok(Arc::new(Self::unread(Arc::new(Said::of(kind, meta, text)?))))
    }

    fn unread(said: Arc<Said>) -> Self {
        Self { said, made: OnceLock::new() }
    }

    /// The same object with nothing made of it, if nobody looked into it since this was asked last. What is made of a text
    /// takes several times as much memory, and most objects are over and looked at by nobody.
    pub fn rested(&self) -> Rest {
        match self.made.get() {
            Some(made) if self.said.text.is_some() => {
                if made.used.swap(false, Ordering::Relaxed) {
                    return Rest::Awake;
                }
                Rest::Now(Arc::new(Self::unread(Arc::clone(&self.said))))
            }
            Some(_) | None => Rest::Rests,
        }
    }

    /// Whether another version of the same object differs from this one in nothing but its status, as its generation and
    /// its metadata tell.
    pub fn differs_in_status_alone(&self, other: &Self) -> bool {
        let (one, two) = (self.meta(), other.meta());
        one.generation.is_some()
            && (one.generation, &one.deletion_timestamp) == (two.generation, &two.deletion_timestamp)
            && self.uid() == other.uid()
            && self.labels().eq(other.labels())
            && self.annotations().eq(other.annotations())
            && (self.owners(), self.finalizers()) == (other.owners(), other.finalizers())
    }

    pub fn kind(&self) -> &Kind {
        &self.said.kind
    }

    pub fn meta(&self) -> Moments {
        let rest = self.said.rest.as_deref();
        Moments {
            generation: rest.and_then(|rest| rest.generation),
            creation_timestamp: self.said.created_at.map(Time),
            deletion_timestamp: rest.and_then(|rest| rest.deletion_timestamp.clone()),
            deletion_grace_period_seconds: rest.and_then(|rest| rest.deletion_grace_period_seconds),
        }
    }

    pub fn raw(&self) -> &Value {
        self.made().raw.get_or_init(|| match &self.said.text {
            // What is no JSON after all is as if nothing were known: whoever wants its type finds it malformed.
            Some(text) => serde_json::from_slice(text).unwrap_or_default(),
            None => serde_json::json!({"metadata": self.metadata()}),
        })
    }

    pub fn name(&self) -> &str {
        self.said.words.name()
    }

    pub fn namespace(&self) -> Option<&str> {
        self.said.words.namespace()
    }

    pub fn uid(&self) -> &str {
        self.said.words.uid()
    }

    pub fn resource_version(&self) -> &str {
        self.said.words.version()
    }

    pub fn generation(&self) -> i64 {
        self.said.rest.as_ref().and_then(|rest| rest.generation).unwrap_or_default()
    }

    pub fn key(&self) -> Key {
        Key::new(self.namespace(), self.name())
    }

    pub fn reference(&self) -> Reference {
        Reference { kind: self.kind().clone(), key: self.key(), uid: self.uid().to_owned() }
    }

    /// The same, as it is written in a status.
    pub fn object_ref(&self) -> ObjectRef {
        let uid = Some(self.uid().to_owned());
        ObjectRef { uid, ..ObjectRef::new(self.kind(), self.namespace(), self.name()) }
    }

    pub fn is_deleting(&self) -> bool {
        self.said.rest.as_ref().is_some_and(|rest| rest.deletion_timestamp.is_some())
    }

    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers().iter().any(|held| held == finalizer)
    }

    pub fn finalizers(&self) -> &[String] {
        self.said.rest.as_ref().and_then(|rest| rest.finalizers.as_deref()).unwrap_or_default()
    }

    pub fn owners(&self) -> &[OwnerReference] {
        self.said.rest.as_ref().and_then(|rest| rest.owner_references.as_deref()).unwrap_or_default()
    }

    pub fn created_at(&self) -> Option<Timestamp> {
        self.said.created_at
    }

    /// The one owner that controls this object, if any.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owners().iter().find(|owner| owner.controller == Some(true))
    }

    pub fn is_controlled_by(&self, owner: &Self) -> bool {
        self.controller().is_some_and(|controller| controller.uid == owner.uid())
    }

    /// The reference by which a child says that this object controls it.
    pub fn controller_reference(&self) -> Value {
        serde_json::json!({
            "apiVersion": self.said.kind.api_version(), "kind": self.said.kind.kind, "name": self.name(), "uid": self.uid(),
            "controller": true, "blockOwnerDeletion": true,
        })
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// By key.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.said.words.labels()
    }

    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// By key.
    pub fn annotations(&self) -> impl Iterator<Item = (&str, &str)> {
        self.said.words.annotations()
    }

    pub fn status(&self) -> &Value {
        if let (Some(text), None) = (&self.said.text, self.kept_raw()) {
            let read = || {
                serde_json::from_slice::<Of<Value>>(text).ok().and_then(|of| of.status).unwrap_or_default()
            };
            return self.made().status.get_or_init(read);
        }
        self.raw().get("status").unwrap_or(&Value::Null)
    }

    /// What the status says, as far as somebody passing by wants to know: nothing is kept for the next one. What does not
    /// have the shape of `T` says nothing.
    pub fn glance<T: DeserializeOwned + Default>(&self) -> T {
        let kept = self.kept_raw().map(|raw| raw.get("status").unwrap_or(&Value::Null));
        let kept = kept.or_else(|| self.made.get()?.status.get());
        match (kept, &self.said.text) {
            (Some(kept), _) => T::deserialize(kept).unwrap_or_default(),
            (None, Some(text)) => {
                serde_json::from_slice::<Of<T>>(text).ok().and_then(|of| of.status).unwrap_or_default()
            }
            (None, None) => T::default(),
        }
    }

    /// The object as a `K`, decoded at most once per version for the first type asked for.
    ///
    /// # Errors
    /// When the manifest does not have the shape of `K`.
    pub fn parse<K: DeserializeOwned + Send + Sync + 'static>(&self) -> Result<Arc<K>, Malformed> {
        let typed = self.made().typed.get_or_init(|| {
            let decoded: Arc<dyn Any + Send + Sync> = Arc::new(self.decode::<K>()?);
            Ok(decoded)
        });
        match typed {
            Err(malformed) => Err(malformed.clone()),
            // A second type for the same object is rare and decoded anew.
            Ok(any) => match Arc::clone(any).downcast::<K>() {
                Ok(typed) => Ok(typed),
                Err(_) => self.decode::<K>().map(Arc::new),
            },
        }
    }

    fn decode<K: DeserializeOwned>(&self) -> Result<K, Malformed> {
        let from_text = self.said.text.as_ref().and_then(|text| serde_json::from_slice(text).ok());
        if let Some(decoded) = from_text {
            return Ok(decoded);
        }
        // Also for the better words: those about a text name a column in what nobody sees.
        K::deserialize(self.raw()).map_err(|error| Malformed {
            kind: self.said.kind.to_string(),
            name: self.key().to_string(),
            problem: error.to_string(),
        })
    }

    fn made(&self) -> &Made {
        let made = self.made.get_or_init(Box::default);
        // Only a hint: nothing else is ordered by it.
        made.used.store(true, Ordering::Relaxed);
        made
    }

    /// The tree, if somebody asked for it before.
    fn kept_raw(&self) -> Option<&Value> {
        self.made.get()?.raw.get()
    }

    /// All of its metadata that is kept, in its own type.
    fn metadata(&self) -> ObjectMeta {
        let said = |word: String| (!word.is_empty()).then_some(word);
        let Loose { name, namespace, uid, version, labels, annotations } = self.said.words.loose();
        ObjectMeta {
            name: Some(name),
            namespace,
            uid: said(uid),
            resource_version: said(version),
            labels: (!labels.is_empty()).then_some(labels),
            annotations: (!annotations.is_empty()).then_some(annotations),
            creation_timestamp: self.said.created_at.map(Time),
            ..self.said.rest.as_deref().cloned().unwrap_or_default()
        }
    }
}

impl Said {
    fn of(kind: Arc<Kind>, mut meta: ObjectMeta, text: Option<Box<[u8]>>) -> Result<Self, Malformed> {
        let loose = Loose {
            name: meta.name.take().unwrap_or_default(),
            namespace: meta.namespace.take(),
            uid: meta.uid.take().unwrap_or_default(),
            version: meta.resource_version.take().unwrap_or_default(),
            labels: meta.labels.take().unwrap_or_default(),
            annotations: meta.annotations.take().unwrap_or_default(),
        };
        let created_at = meta.creation_timestamp.take().map(|time| time.0);
        let Some(words) = Words::pack(&loose) else {
            let problem = "metadata: too many labels or too long".to_owned();
            return Err(Malformed { kind: kind.to_string(), name: loose.name, problem });
        };
        let rest = (meta != ObjectMeta::default()).then(|| Box::new(meta));
        Ok(Self { kind, words, created_at, rest, text })
    }
}

fn read_metadata(kind: &Kind, raw: &Value) -> Result<ObjectMeta, Malformed> {
    let meta = raw.get("metadata").unwrap_or(&Value::Null);
    let problem = match ObjectMeta::deserialize(meta) {
        Ok(meta) if meta.name.is_some() => return Ok(meta),
        Ok(_) => "metadata.name: missing".to_owned(),
        Err(error) => format!("metadata: {error}"),
    };
    let name = meta.get("name").and_then(Value::as_str).unwrap_or("?").to_owned();
    Err(Malformed { kind: kind.to_string(), name, problem })
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the content: it may be a Secret's (I6).
        write!(f, "{} {}@{}", self.said.kind, self.key(), self.resource_version())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    const CONFIG_MAP: Kind = Kind::of("", "v1", "ConfigMap", "configmaps", true);

    #[test]
    fn the_typed_form_is_made_once_and_shared() {
        let raw = json!({"metadata": {"name": "a", "namespace": "n"}, "data": {"k": "v"}});
        let object = Object::new(CONFIG_MAP, raw).unwrap();
        let (first, second) = (object.parse::<ConfigMap>().unwrap(), object.parse::<ConfigMap>().unwrap());
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(object.key().to_string(), "n/a");
    }

    fn compact(raw: &Value, whole: bool) -> Result<Arc<Object>, Malformed> {
        let text = |_: &str| whole.then(|| raw.to_string().into_bytes().into_boxed_slice());
        Object::compact(CONFIG_MAP, raw["metadata"].to_string().as_bytes(), text)
    }

    #[test]
    fn a_compact_object_says_the_same_and_complains_in_the_same_words() {
        let metadata = json!({"name": "a", "namespace": "n", "resourceVersion": "7"});
        for data in [json!({"k": "v"}), json!(7)] {
            let raw = json!({"metadata": metadata, "data": data, "status": {"phase": "x", "share": 0.1}});
            let whole = Object::new(CONFIG_MAP, raw.clone()).unwrap();
            let compact = compact(&raw, true).unwrap();
            assert_eq!(whole.parse::<ConfigMap>(), compact.parse::<ConfigMap>());
            // Before and after the tree is there.
            assert_eq!(whole.status(), compact.status());
            assert_eq!((whole.raw(), whole.status()), (compact.raw(), compact.status()));
        }
        for metadata in [json!({}), json!({"name": "b", "labels": []}), json!(7), Value::Null] {
            let raw = json!({"metadata": metadata});
            let malformed = Object::new(CONFIG_MAP, raw.clone()).unwrap_err();
            assert_eq!(compact(&raw, true).unwrap_err(), malformed);
        }
        assert!(Object::compact(CONFIG_MAP, b"{\"name\":", |_| None).is_err());
    }

    #[test]
    fn an_object_that_nobody_looks_into_keeps_its_text_alone_and_says_the_same() {
        let metadata = json!({"name": "a", "namespace": "n", "uid": "u", "labels": {"x": "y"}});
        let raw = json!({"metadata": metadata, "data": {"k": "v"}, "status": {"phase": "x"}});
        let awake = compact(&raw, true).unwrap();
        assert!(matches!(awake.rested(), Rest::Rests), "nothing was made of it");
        let _ = (awake.parse::<ConfigMap>().unwrap(), awake.status());
        assert!(matches!(awake.rested(), Rest::Awake), "somebody has just asked");
        let _ = awake.status();
        assert!(matches!(awake.rested(), Rest::Awake), "somebody asked again");
        let _ = awake.glance::<Value>();
        let Rest::Now(resting) = awake.rested() else { panic!("nobody asked") };
        assert!(resting.made.get().is_none() && matches!(resting.rested(), Rest::Rests));
        assert_eq!((resting.key(), resting.label("x")), (awake.key(), Some("y")));
        assert_eq!((resting.meta(), resting.raw()), (awake.meta(), awake.raw()));
        assert_eq!((resting.status(), resting.parse::<ConfigMap>()), (awake.status(), awake.parse()));
        assert!(matches!(resting.rested(), Rest::Awake), "it was looked into again");
        // What has no text has nothing to come back from.
        for whole in [compact(&raw, false).unwrap(), Object::new(CONFIG_MAP, raw).unwrap()] {
            let _ = (whole.raw(), whole.rested());
            assert!(matches!(whole.rested(), Rest::Rests));
        }
    }

    #[test]
    fn a_status_alone_differs_where_generation_and_metadata_are_the_same() {
        let object = |more: Value| {
            let mut metadata = json!({"name": "a", "uid": "u", "generation": 1});
            metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            Object::new(CONFIG_MAP, json!({"metadata": metadata, "status": {"phase": "x"}})).unwrap()
        };
        let one = object(json!({"resourceVersion": "1"}));
        assert!(one.differs_in_status_alone(&object(json!({"resourceVersion": "2"}))));
        for more in [
            json!({"generation": 2}),
            json!({"uid": "v"}),
            json!({"labels": {"a": "b"}}),
            json!({"annotations": {"a": "b"}}),
            json!({"finalizers": ["f"]}),
            json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
            json!({"ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x"}]}),
        ] {
            assert!(!one.differs_in_status_alone(&object(more.clone())), "{more}");
        }
        // Without a generation nobody can tell.
        let none = object(json!({"generation": null}));
        assert!(!none.differs_in_status_alone(&none));
    }

    #[test]
    fn a_glance_at_a_status_sees_the_same_before_and_after_the_tree_is_there() {
        #[derive(Debug, Default, PartialEq, Deserialize)]
        struct Said {
            phase: Option<String>,
        }
        let said = |phase: &str| Said { phase: Some(phase.to_owned()) };
        let raw = json!({"metadata": {"name": "a"}, "status": {"phase": "x", "more": [1]}});
        let (whole, compact) = (Object::new(CONFIG_MAP, raw.clone()).unwrap(), compact(&raw, true).unwrap());
        assert_eq!((whole.glance::<Said>(), compact.glance::<Said>()), (said("x"), said("x")));
        assert!(compact.made.get().is_none(), "nothing is kept");
        let _ = compact.status();
        assert_eq!(compact.glance::<Said>(), said("x"));
        let odd = json!({"metadata": {"name": "a"}, "status": 7});
        assert_eq!(Object::new(CONFIG_MAP, odd).unwrap().glance::<Said>(), Said::default());
    }

    #[test]
    fn of_an_object_known_by_its_metadata_that_is_all_there_is() {
        let metadata = json!({"name": "a", "namespace": "n", "uid": "u", "labels": {"x": "y"}});
        let raw = json!({"metadata": metadata, "data": {"k": "v"}});
        let object = compact(&raw, false).unwrap();
        assert_eq!(*object.raw(), json!({"metadata": metadata}));
        assert_eq!((object.label("x"), object.status()), (Some("y"), &Value::Null));
    }

    #[test]
    fn a_wrong_shape_is_a_fact_that_names_the_object_and_the_problem() {
        let object = Object::new(CONFIG_MAP, json!({"metadata": {"name": "a"}, "data": 7})).unwrap();
        let malformed = object.parse::<ConfigMap>().unwrap_err();
        assert!(malformed.to_string().contains("ConfigMap a"), "{malformed}");
        let malformed =
            Object::new(CONFIG_MAP, json!({"metadata": {"name": "b", "labels": []}})).unwrap_err();
        assert_eq!(malformed.name, "b");
        assert!(Object::new(CONFIG_MAP, json!("text")).is_err());
    }
}
