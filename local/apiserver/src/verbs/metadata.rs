//! Which metadata may a client write, and which belongs to the server?

use serde_json::{Map, Value};

use crate::env::{Env, to_second};
use crate::resources::{Content, Resource};
use crate::validation::{self, FieldError};

/// Kubernetes cuts a `generateName` so that the name stays a DNS label: 63 less five for the suffix.
const GENERATE_NAME_MAX: usize = 58;

/// An object's metadata, made if it is not there.
pub(super) fn of(object: &mut Value) -> &mut Map<String, Value> {
    map(map(object).entry("metadata").or_insert_with(|| Value::Object(Map::new())))
}

fn map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            unreachable!("just made an object")
        }
    }
}

/// A text in an object's metadata.
pub(crate) fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get("metadata").and_then(|m| m.get(key)).and_then(Value::as_str).unwrap_or_default()
}

/// The finalizers of an object.
pub(super) fn finalizers(object: &Value) -> Vec<&str> {
    let list = object.get("metadata").and_then(|m| m.get("finalizers")).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether an object is being deleted.
pub(super) fn deleting(object: &Value) -> bool {
    object.get("metadata").and_then(|m| m.get("deletionTimestamp")).is_some_and(|t| !t.is_null())
}

/// Gives a new object what only the server gives.
pub(super) fn begin(object: &mut Value, resource: &Resource, env: &dyn Env) {
    let named = format!("{}/{}/{}", resource.ids.plural, text(object, "namespace"), text(object, "name"));
    let metadata = of(object);
    for key in ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
        metadata.remove(key);
    }
    metadata.insert("uid".into(), env.uid(&named).into());
    metadata.insert("creationTimestamp".into(), to_second(env.now()).into());
    if resource.rules.generation {
        metadata.insert("generation".into(), 1.into());
    }
}

/// A name from `generateName`, if there is no name.
pub(super) fn generate_name(object: &mut Value, env: &dyn Env) {
    let stem = text(object, "generateName");
    let cut =
        stem.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= GENERATE_NAME_MAX);
    let stem = stem.get(..cut.last().unwrap_or(0)).unwrap_or_default();
    let name = format!("{stem}{}", env.suffix());
    of(object).insert("name".into(), name.into());
}

/// Puts back what an update may leave out, and what only the server writes.
pub(super) fn carry_over(new: &mut Value, old: &Value) {
    let empty = Map::new();
    let before = old.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let metadata = of(new);
    metadata.remove("selfLink");
    for key in ["uid", "creationTimestamp", "namespace"] {
        let missing = metadata.get(key).is_none_or(|v| v.is_null() || v == "");
        if missing && let Some(value) = before.get(key) {
            metadata.insert(key.into(), value.clone());
        }
    }
    for key in ["generation", "generateName"] {
        match before.get(key) {
            Some(value) => metadata.insert(key.into(), value.clone()),
            None => metadata.remove(key),
        };
    }
    // A deletion can neither be taken back nor moved by an update.
    if let Some(at) = before.get("deletionTimestamp") {
        metadata.insert("deletionTimestamp".into(), at.clone());
        if let Some(grace) = before.get("deletionGracePeriodSeconds") {
            metadata.entry("deletionGracePeriodSeconds").or_insert_with(|| grace.clone());
        }
    }
}

/// Drops what says nothing, as Go's `omitempty` does.
pub(super) fn omit_empty(object: &mut Value) {
    let metadata = of(object);
    metadata.retain(|key, value| match (key.as_str(), value) {
        (_, Value::Null) => false,
        ("labels" | "annotations", Value::Object(map)) => !map.is_empty(),
        ("finalizers" | "ownerReferences" | "managedFields", Value::Array(list)) => !list.is_empty(),
        ("generateName" | "namespace" | "uid" | "resourceVersion" | "selfLink", Value::String(text)) => {
            !text.is_empty()
        }
        _ => true,
    });
}

/// What is wrong with an object's metadata, and with what an update makes of it.
pub(super) fn validate(object: &Value, old: Option<&Value>, resource: &Resource) -> Vec<FieldError> {
    let rules = validation::Metadata {
        name: resource.rules.name,
        namespaced: resource.ids.namespaced,
        builtin: matches!(resource.content, Content::Builtin(_)),
    };
    let mut errors = validation::metadata(object, rules);
    if let Some(old) = old {
        errors.extend(validation::metadata_update(object, old));
    }
    errors
}
