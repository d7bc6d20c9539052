//! What changed between two objects?
//!
//! Changes are told as paths: fields that came, fields that went, leaves that differ.

use super::fields::{Element, FieldSet};
use super::types::{Shape, Type};
use crate::schema::MAX_DEPTH;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) added: FieldSet,
    pub(crate) removed: FieldSet,
    pub(crate) modified: FieldSet,
}

impl Changes {
    /// Without what lies below the given paths.
    pub(crate) fn without(mut self, ignored: &FieldSet) -> Self {
        for set in [&mut self.added, &mut self.removed, &mut self.modified] {
            set.remove_trees(ignored);
        }
        self
    }

    /// What is there now and was not, or was different.
    pub(crate) fn set(&self) -> FieldSet {
        let mut set = self.modified.clone();
        set.absorb(self.added.clone());
        set
    }

    /// Takes what happened at a place one step below. Most places say nothing, and then the step is not even named.
    fn take(&mut self, here: Here, element: impl FnOnce() -> Element) {
        let Here { added, removed, modified, below } = here;
        let quiet = below.added.is_empty() && below.removed.is_empty() && below.modified.is_empty();
        if quiet && !(added || removed || modified) {
            return;
        }
        let element = element();
        self.added.place(&element, added, below.added);
        self.removed.place(&element, removed, below.removed);
        self.modified.place(&element, modified, below.modified);
    }
}

pub(crate) fn changes(ty: Type<'_>, old: &Value, new: &Value) -> Changes {
    let mut here = Here::default();
    here.compare(ty, Some(old), Some(new), 0);
    here.below
}

/// What happened at one place, and below it.
#[derive(Default)]
struct Here {
    added: bool,
    removed: bool,
    modified: bool,
    below: Changes,
}

impl Here {
    fn compare(&mut self, ty: Type<'_>, old: Option<&Value>, new: Option<&Value>, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        let (of_old, of_new) = (ty.shape(old), ty.shape(new));
        let same_shape = old.is_none() || new.is_none() || of_old == of_new;
        let was_leaf = if same_shape {
            self.descend(ty, if new.is_none() { of_old } else { of_new }, old, new, depth)
        } else {
            // A value that was an object and is now a string: both views have something to say.
            let as_old = self.descend(ty, of_old, old, new, depth);
            let as_new = self.descend(ty, of_new, old, new, depth);
            as_old || as_new
        };
        if !was_leaf {
            self.added |= old.is_none() && new.is_some();
            self.removed |= old.is_some() && new.is_none();
        }
    }

    /// Whether the place turned out to be a leaf, which has said all there is to say.
    fn descend(
        &mut self,
        ty: Type<'_>,
        shape: Shape<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
        depth: usize,
    ) -> bool {
        match shape {
            Shape::Leaf => {
                self.leaf(old, new);
                true
            }
            Shape::Map => {
                let (old_map, new_map) = (map(old), map(new));
                if is_empty(old_map) && is_empty(new_map) {
                    self.leaf(old, new);
                    return true;
                }
                for (name, old) in old_map.into_iter().flatten() {
                    self.field(ty, name, Some(old), new_map.and_then(|m| m.get(name)), depth);
                }
                for (name, new) in new_map.into_iter().flatten() {
                    if old_map.is_none_or(|m| !m.contains_key(name)) {
                        self.field(ty, name, None, Some(new), depth);
                    }
                }
                false
            }
            Shape::List(list) => {
                let (old_items, new_items) = (array(old), array(new));
                if old_items.is_empty() && new_items.is_empty() {
                    self.leaf(old, new);
                    return true;
                }
                let mut pairs: BTreeMap<Element, (Option<&Value>, Option<&Value>)> = BTreeMap::new();
                for item in old_items {
                    if let Ok(element) = ty.identity(list, item) {
                        pairs.entry(element).or_default().0.get_or_insert(item);
                    }
                }
                for item in new_items {
                    if let Ok(element) = ty.identity(list, item) {
                        pairs.entry(element).or_default().1.get_or_insert(item);
                    }
                }
                for (element, (old, new)) in pairs {
                    let mut here = Here::default();
                    here.compare(ty.items(), old, new, depth + 1);
                    self.below.take(here, || element);
                }
                false
            }
        }
    }

    fn field(&mut self, ty: Type<'_>, name: &str, old: Option<&Value>, new: Option<&Value>, depth: usize) {
        // What is the same has nothing to say, however much of it there is.
        if old == new || ty.is_ledger(name) {
            return;
        }
        let mut here = Here::default();
        here.compare(ty.field(name), old, new, depth + 1);
        self.below.take(here, || Element::field(name));
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (None, Some(_)) => self.added = true,
            (Some(_), None) => self.removed = true,
            (Some(old), Some(new)) => self.modified |= !equal(old, new),
            (None, None) => {}
        }
    }
}

/// JSON equality in which `1` and `1.0` are the same number.
pub(crate) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            a == b || a.as_f64() == b.as_f64() && !(a.is_i64() && b.is_i64())
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, a)| b.get(k).is_some_and(|b| equal(a, b)))
        }
        (a, b) => a == b,
    }
}

pub(super) fn map(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

fn is_empty(map: Option<&Map<String, Value>>) -> bool {
    map.is_none_or(Map::is_empty)
}

pub(super) fn array(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
