//! What changed between two objects?
//!
//! Changes are told as paths: fields that came, fields that went, leaves that differ.

use super::fields::{Element, FieldSet};
use super::types::{Shape, Type};
use crate::schema::MAX_DEPTH;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) added: FieldSet,
    pub(crate) removed: FieldSet,
    pub(crate) modified: FieldSet,
}

impl Changes {
    /// Without what lies below the given paths.
    pub(crate) fn without(self, ignored: &FieldSet) -> Self {
        Self {
            added: self.added.without_trees(ignored),
            removed: self.removed.without_trees(ignored),
            modified: self.modified.without_trees(ignored),
        }
    }

    pub(crate) fn set(&self) -> FieldSet {
        self.modified.union(&self.added)
    }
}

pub(crate) fn changes(ty: Type<'_>, old: &Value, new: &Value) -> Changes {
    let mut walk = Walk { path: Vec::new(), changes: Changes::default() };
    walk.compare(ty, Some(old), Some(new));
    walk.changes
}

struct Walk {
    path: Vec<Element>,
    changes: Changes,
}

impl Walk {
    fn compare(&mut self, ty: Type<'_>, old: Option<&Value>, new: Option<&Value>) {
        if self.path.len() > MAX_DEPTH {
            return;
        }
        let (of_old, of_new) = (ty.shape(old), ty.shape(new));
        let same_shape = old.is_none() || new.is_none() || of_old == of_new;
        let was_leaf = if same_shape {
            self.descend(ty, if new.is_none() { of_old } else { of_new }, old, new)
        } else {
            // A value that was an object and is now a string: both views have something to say.
            let as_old = self.descend(ty, of_old, old, new);
            let as_new = self.descend(ty, of_new, old, new);
            as_old || as_new
        };
        if !was_leaf {
            match (old, new) {
                (None, Some(_)) => self.changes.added.insert(&self.path),
                (Some(_), None) => self.changes.removed.insert(&self.path),
                (Some(_), Some(_)) | (None, None) => {}
            }
        }
    }

    /// Whether the place turned out to be a leaf, which has said all there is to say.
    fn descend(&mut self, ty: Type<'_>, shape: Shape<'_>, old: Option<&Value>, new: Option<&Value>) -> bool {
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
                let names: BTreeSet<&String> =
                    old_map.into_iter().chain(new_map).flat_map(|m| m.keys()).collect();
                for name in names.into_iter().filter(|name| !ty.is_ledger(name)) {
                    let (old, new) = (old_map.and_then(|m| m.get(name)), new_map.and_then(|m| m.get(name)));
                    self.path.push(Element::field(name));
                    self.compare(ty.field(name), old, new);
                    self.path.pop();
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
                    self.path.push(element);
                    self.compare(ty.items(), old, new);
                    self.path.pop();
                }
                false
            }
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (None, Some(_)) => self.changes.added.insert(&self.path),
            (Some(_), None) => self.changes.removed.insert(&self.path),
            (Some(old), Some(new)) if !equal(old, new) => self.changes.modified.insert(&self.path),
            (Some(_), Some(_)) | (None, None) => {}
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

fn map(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

fn is_empty(map: Option<&Map<String, Value>>) -> bool {
    map.is_none_or(Map::is_empty)
}

fn array(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
