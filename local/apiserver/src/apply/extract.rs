//! Which fields does this object have, and does it fit its schema?
//!
//! The fields of an applied configuration are what its manager wants to own.

use super::fields::{Element, FieldSet};
use super::types::{Shape, Type};
use crate::schema::{At, MAX_DEPTH};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The leaves of an object, and the keys and items on the way to them.
pub(crate) fn fields(ty: Type<'_>, value: &Value) -> FieldSet {
    below(ty, value, 0).1
}

/// Whether a place is owned as a whole, and what is owned below it.
fn below(ty: Type<'_>, value: &Value, depth: usize) -> (bool, FieldSet) {
    let mut set = FieldSet::default();
    if depth > MAX_DEPTH {
        return (false, set);
    }
    match (ty.shape(Some(value)), value) {
        (Shape::Leaf, _) => return (true, set),
        (Shape::Map, Value::Object(map)) => {
            for (name, value) in map {
                let (whole, child) = below(ty.field(name), value, depth + 1);
                let empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
                set.place(&Element::field(name), whole || empty || !ty.names(name), child);
            }
        }
        (Shape::List(list), Value::Array(items)) => {
            for item in items {
                let Ok(element) = ty.identity(list, item) else { continue };
                let (_, child) = below(ty.items(), item, depth + 1);
                set.place(&element, true, child);
            }
        }
        (Shape::Map | Shape::List(_), _) => {}
    }
    (false, set)
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

/// Whether today's schema reads the set as it is.
pub(crate) fn is_reconciled(set: &FieldSet, ty: Type<'_>) -> bool {
    set.children().all(|(element, child)| {
        let below = ty.below(element);
        !below.is_whole() && is_reconciled(child, below)
    })
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
    check(ty, value, &At::ROOT, 0, &mut found);
    found
}

/// As structured-merge-diff writes a place: with a dot before the first field too.
fn told(path: &At<'_>) -> String {
    match path {
        At::Start(_) => String::new(),
        At::Field(..) | At::Item(..) => format!(".{path}"),
    }
}

fn check(ty: Type<'_>, value: &Value, path: &At<'_>, depth: usize, found: &mut Vec<String>) {
    if depth > MAX_DEPTH {
        found.push(format!("{}: nested deeper than {MAX_DEPTH} levels", told(path)));
        return;
    }
    if let Some(why) = ty.mismatch(value) {
        found.push(format!("{}: {why}", told(path)));
        return;
    }
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let at = path.field(name);
                if ty.takes(name) {
                    check(ty.field(name), value, &at, depth + 1, found);
                } else {
                    found.push(format!("{}: field not declared in schema", told(&at)));
                }
            }
        }
        Value::Array(items) => {
            let mut seen = HashSet::new();
            for (i, item) in items.iter().enumerate() {
                if let Shape::List(list) = ty.shape(Some(value)) {
                    match ty.identity(list, item) {
                        Err(why) => found.push(format!("{}: element {i}: {why}", told(path))),
                        Ok(element) if seen.contains(&element) => {
                            found.push(format!("{}: duplicate entries for key {element}", told(path)));
                        }
                        Ok(element) => _ = seen.insert(element),
                    }
                }
                check(ty.items(), item, &path.item(i), depth + 1, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
