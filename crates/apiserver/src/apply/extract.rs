//! Which fields does this object have, and does it fit its schema?
//!
//! The fields of an applied configuration are what its manager wants to own.

use super::fields::{Element, FieldSet};
use super::types::{Shape, Type};
use crate::schema::MAX_DEPTH;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The leaves of an object, and the keys and items on the way to them.
pub(crate) fn fields(ty: Type<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    walk(ty, value, &mut Vec::new(), &mut set);
    set
}

fn walk(ty: Type<'_>, value: &Value, path: &mut Vec<Element>, set: &mut FieldSet) {
    if path.len() > MAX_DEPTH {
        return;
    }
    match (ty.shape(Some(value)), value) {
        (Shape::Leaf, _) => set.insert(path),
        (Shape::Map, Value::Object(map)) => {
            for (name, value) in map {
                path.push(Element::field(name));
                walk(ty.field(name), value, path, set);
                let empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
                if empty || !ty.names(name) {
                    set.insert(path);
                }
                path.pop();
            }
        }
        (Shape::List(list), Value::Array(items)) => {
            for item in items {
                let Ok(element) = ty.identity(list, item) else { continue };
                path.push(element);
                walk(ty.items(), item, path, set);
                set.insert(path);
                path.pop();
            }
        }
        (Shape::Map | Shape::List(_), _) => {}
    }
}

/// The set with every named field on the way to a member made a member too. Fields' parents exist because
/// the schema names them, so nobody owns them; for removing whole branches they must be in the set.
pub(crate) fn with_named_fields(set: &FieldSet, ty: Type<'_>) -> FieldSet {
    let mut members: BTreeSet<Element> = set.members().clone();
    let mut children = BTreeMap::new();
    for (element, child) in set.children() {
        if let Element::Field(name) = element
            && ty.names(name)
        {
            members.insert(element.clone());
        }
        children.insert(element.clone(), with_named_fields(child, ty.below(element)));
    }
    FieldSet::rebuild(members, children)
}

/// The set as today's schema has it: what became one piece since is owned as one piece.
pub(crate) fn reconciled(set: &FieldSet, ty: Type<'_>) -> FieldSet {
    let mut members: BTreeSet<Element> = set.members().clone();
    let mut children = BTreeMap::new();
    for (element, child) in set.children() {
        let below = ty.below(element);
        if below.is_whole() {
            members.insert(element.clone());
        } else {
            children.insert(element.clone(), reconciled(child, below));
        }
    }
    FieldSet::rebuild(members, children)
}

/// Everything that keeps an applied configuration from being read with the schema.
pub(crate) fn misfits(ty: Type<'_>, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(ty, value, "", 0, &mut found);
    found
}

fn check(ty: Type<'_>, value: &Value, path: &str, depth: usize, found: &mut Vec<String>) {
    if depth > MAX_DEPTH {
        found.push(format!("{path}: nested deeper than {MAX_DEPTH} levels"));
        return;
    }
    if let Some(why) = ty.mismatch(value) {
        found.push(format!("{path}: {why}"));
        return;
    }
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let at = format!("{path}.{name}");
                if ty.takes(name) {
                    check(ty.field(name), value, &at, depth + 1, found);
                } else {
                    found.push(format!("{at}: field not declared in schema"));
                }
            }
        }
        Value::Array(items) => {
            let mut seen = HashSet::new();
            for (i, item) in items.iter().enumerate() {
                let at = format!("{path}[{i}]");
                if let Shape::List(list) = ty.shape(Some(value)) {
                    match ty.identity(list, item) {
                        Err(why) => found.push(format!("{path}: element {i}: {why}")),
                        Ok(element) if seen.contains(&element) => {
                            found.push(format!("{path}: duplicate entries for key {element}"));
                        }
                        Ok(element) => _ = seen.insert(element),
                    }
                }
                check(ty.items(), item, &at, depth + 1, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
