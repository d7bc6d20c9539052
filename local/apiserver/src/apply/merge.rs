//! What is the object after a configuration is laid over it, and after paths are taken out of it?

use super::compare::{array, map};
use super::fields::{Element, FieldSet};
use super::types::{Shape, Type};
use crate::schema::MAX_DEPTH;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet, VecDeque};

/// Lays `config` over `live`: maps by field, lists by identity, everything else as a whole.
pub(crate) fn merge(ty: Type<'_>, live: &Value, config: &Value) -> Value {
    merged(ty, Some(live), Some(config), 0).unwrap_or_else(|| Value::Object(Map::new()))
}

fn merged(ty: Type<'_>, live: Option<&Value>, config: Option<&Value>, depth: usize) -> Option<Value> {
    let whole = || config.or(live).cloned();
    if depth > MAX_DEPTH {
        return whole();
    }
    let shape = ty.shape(config.or(live));
    match shape {
        Shape::Leaf => whole(),
        Shape::Map => {
            let (live_map, config_map) = (map(live), map(config));
            if live_map.is_none_or(Map::is_empty) && config_map.is_none_or(Map::is_empty) {
                return whole();
            }
            let mut out = Map::new();
            for (name, value) in live_map.into_iter().flatten() {
                let over = config_map.and_then(|m| m.get(name));
                if let Some(value) = merged(ty.field(name), Some(value), over, depth + 1) {
                    out.insert(name.clone(), value);
                }
            }
            for (name, value) in config_map.into_iter().flatten() {
                if live_map.is_none_or(|m| !m.contains_key(name))
                    && let Some(value) = merged(ty.field(name), None, Some(value), depth + 1)
                {
                    out.insert(name.clone(), value);
                }
            }
            (!out.is_empty()).then_some(Value::Object(out))
        }
        Shape::List(list) => {
            let (live_items, config_items) = (array(live), array(config));
            if live_items.is_empty() && config_items.is_empty() {
                return whole();
            }
            let index = |items: &'_ [Value]| -> Vec<Element> {
                items.iter().map(|i| ty.identity(list, i).unwrap_or_else(|_| Element::item(i))).collect()
            };
            let lists = Lists {
                live: live_items,
                config: config_items,
                live_ids: &index(live_items),
                config_ids: &index(config_items),
            };
            let out = lists.interleave(|live, config| merged(ty.items(), live, config, depth + 1));
            (!out.is_empty()).then_some(Value::Array(out))
        }
    }
}

/// Two lists and the identities of their items.
struct Lists<'a> {
    live: &'a [Value],
    config: &'a [Value],
    live_ids: &'a [Element],
    config_ids: &'a [Element],
}

impl Lists<'_> {
    /// The items of both lists. Shared items keep the order of the configuration, and an item of the live
    /// list alone keeps its place among its neighbours.
    fn interleave(&self, merge: impl Fn(Option<&Value>, Option<&Value>) -> Option<Value>) -> Vec<Value> {
        let first = |items: &'_ [Value], ids: &'_ [Element]| -> HashMap<Element, usize> {
            let mut seen = HashMap::new();
            for (i, id) in ids.iter().enumerate().take(items.len()) {
                seen.entry(id.clone()).or_insert(i);
            }
            seen
        };
        let in_live = first(self.live, self.live_ids);
        let in_config = first(self.config, self.config_ids);
        let live_item = |id: &Element| in_live.get(id).and_then(|i| self.live.get(*i));
        let config_item = |id: &Element| in_config.get(id).and_then(|i| self.config.get(*i));
        let mut shared: VecDeque<&Element> =
            self.config_ids.iter().filter(|id| in_live.contains_key(*id)).collect();
        let mut next_shared = shared.pop_front();
        let mut done: HashSet<&Element> = HashSet::new();
        let mut out = Vec::new();
        let (mut l, mut r) = (0, 0);
        loop {
            let (left, right) = (self.live_ids.get(l), self.config_ids.get(r));
            if let (Some(left), Some(right)) = (left, right) {
                if left == right {
                    done.insert(left);
                    out.extend(merge(live_item(left), config_item(left)));
                    (l, r) = (l + 1, r + 1);
                    next_shared = shared.pop_front();
                    continue;
                }
                if in_config.contains_key(left) && next_shared.is_some_and(|next| next != left) {
                    // Shared, but not the one whose turn it is.
                    l += 1;
                    continue;
                }
            }
            if let Some(left) = left {
                if !in_config.contains_key(left) {
                    out.extend(merge(self.live.get(l), None));
                    l += 1;
                    continue;
                } else if done.contains(left) {
                    l += 1;
                }
            }
            if let Some(right) = right {
                done.insert(right);
                out.extend(merge(live_item(right), config_item(right)));
                r += 1;
                if next_shared == Some(right) {
                    next_shared = shared.pop_front();
                }
            } else if l >= self.live_ids.len() {
                return out;
            } else if left.is_some_and(|id| in_config.contains_key(id) && !done.contains(id)) {
                // Cannot happen while every shared item is in both lists; moving on keeps the loop finite.
                l += 1;
            }
        }
    }
}

/// Takes the paths of `gone` out of `value`. What becomes empty by it becomes null, as in the original.
pub(crate) fn remove(ty: Type<'_>, value: &Value, gone: &FieldSet) -> Value {
    match (ty.shape(Some(value)), value) {
        (Shape::Map, Value::Object(map)) => {
            let mut out = Map::new();
            for (name, value) in map {
                let element = Element::field(name);
                if gone.has(&element) {
                    continue;
                }
                let left = match gone.below(&element) {
                    Some(gone) => remove(ty.field(name), value, gone),
                    None => value.clone(),
                };
                out.insert(name.clone(), left);
            }
            if out.is_empty() { Value::Null } else { Value::Object(out) }
        }
        (Shape::List(list), Value::Array(items)) => {
            let mut out = Vec::new();
            for item in items {
                let element = ty.identity(list, item).unwrap_or_else(|_| Element::item(item));
                if gone.has(&element) {
                    continue;
                }
                out.push(match gone.below(&element) {
                    Some(gone) => remove(ty.items(), item, gone),
                    None => item.clone(),
                });
            }
            if out.is_empty() { Value::Null } else { Value::Array(out) }
        }
        // An atomic value can only go as a whole, and then its parent took it out; asked to take out a part
        // of it, the original leaves nothing.
        (Shape::Leaf, Value::Object(_) | Value::Array(_)) => Value::Null,
        (Shape::Leaf | Shape::Map | Shape::List(_), _) => value.clone(),
    }
}
