//! What does a strategic merge patch make of an object?
//!
//! A merge patch that knows lists: the schema of a built-in kind says which lists merge and by which key, and
//! directives in the patch say the rest:
//!
//! | directive | effect |
//! |---|---|
//! | `$patch: delete` / `replace` / `merge` | in an object: empty it, replace it, merge it; in an item of a list: remove that item, replace the list |
//! | `$retainKeys: [a, b]` | fields not named go |
//! | `$deleteFromPrimitiveList/f: [x]` | these values leave the list `f` |
//! | `$setElementOrder/f: [...]` | the list `f` ends up in this order |

use crate::schema::{MAX_DEPTH, Node, PatchStrategy, Schema, object_meta};
use serde_json::{Map, Value};
use std::cmp::Ordering;

/// Why a patch cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StrategicError {
    #[error("a strategic merge patch must be an object")]
    Shape,
    #[error("unknown patch directive {0}")]
    Directive(String),
    #[error("map: {item} does not contain declared merge key: {key}")]
    NoMergeKey { item: String, key: String },
    #[error("cannot merge lists without merge key for {0}")]
    NoKeyDeclared(String),
    #[error("lists of lists are not supported")]
    ListOfLists,
    #[error("invalid patch format of retainKeys")]
    RetainKeys,
    #[error("invalid patch format of primitive list")]
    PrimitiveList,
    #[error("invalid patch format of setElementOrder list")]
    SetElementOrder,
    #[error("nested deeper than {0} levels")]
    Depth(usize),
}

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const SET_ORDER: &str = "$setElementOrder/";

/// Applies `patch` to `object`, driven by the schema of its kind.
pub fn strategic_merge(object: &Value, patch: &Value, schema: &Schema) -> Result<Value, StrategicError> {
    let (Value::Object(object), Value::Object(patch)) = (object, patch) else {
        return Err(StrategicError::Shape);
    };
    merge_map(object.clone(), patch.clone(), Place::resource(schema.root()), 0).map(Value::Object)
}

/// A place in the schema; `None` where it ends.
#[derive(Clone, Copy)]
struct Place<'a> {
    node: Option<&'a Node>,
    resource: bool,
}

impl<'a> Place<'a> {
    fn resource(node: &'a Node) -> Self {
        Self { node: Some(node), resource: true }
    }

    fn field(self, name: &str) -> Self {
        let known = self.node.and_then(|n| n.field(name));
        let node = match known {
            None if self.resource && name == "metadata" => Some(object_meta()),
            found => found,
        };
        Self { node, resource: false }
    }

    fn items(self) -> Self {
        Self { node: self.node.and_then(|n| n.items.as_deref()), resource: false }
    }

    fn strategy(self) -> Option<&'a PatchStrategy> {
        self.node.and_then(|n| n.patch.as_deref())
    }

    fn replaces(self) -> bool {
        self.strategy().is_some_and(|s| s.replace)
    }

    fn merges(self) -> bool {
        self.strategy().is_some_and(|s| s.merge)
    }

    fn merge_key(self) -> Option<&'a str> {
        self.strategy().and_then(|s| s.merge_key.as_deref())
    }
}

type Object = Map<String, Value>;

fn merge_map(
    mut into: Object,
    mut patch: Object,
    place: Place<'_>,
    depth: usize,
) -> Result<Object, StrategicError> {
    if depth > MAX_DEPTH {
        return Err(StrategicError::Depth(MAX_DEPTH));
    }
    match patch.remove(PATCH) {
        None => {}
        Some(Value::String(s)) if s == "replace" => return Ok(patch),
        Some(Value::String(s)) if s == "delete" => return Ok(Object::new()),
        Some(Value::String(s)) if s == "merge" => {}
        Some(other) => return Err(StrategicError::Directive(other.to_string())),
    }
    retain_keys(&mut into, &mut patch)?;
    set_orders(&mut into, &mut patch, place, depth)?;
    for (key, value) in patch {
        if let Some(name) = key.strip_prefix(DELETE_FROM) {
            delete_from(&mut into, name, value)?;
            continue;
        }
        if value.is_null() {
            into.remove(&key);
            continue;
        }
        let at = place.field(&key);
        let merged = match (into.remove(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) if !at.replaces() => {
                Value::Object(merge_map(old, new, at, depth + 1)?)
            }
            (Some(Value::Array(old)), Value::Array(new)) if at.merges() => {
                Value::Array(merge_list(&old, new, at, depth + 1)?)
            }
            (_, new) => settled(new, depth)?,
        };
        into.insert(key, merged);
    }
    Ok(into)
}

fn retain_keys(into: &mut Object, patch: &mut Object) -> Result<(), StrategicError> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let keys = keys.as_array().ok_or(StrategicError::RetainKeys)?;
    let kept = |name: &str| keys.iter().any(|k| k.as_str() == Some(name));
    let stray = |(name, value): (&String, &Value)| !value.is_null() && !name.starts_with('$') && !kept(name);
    if patch.iter().any(stray) {
        return Err(StrategicError::RetainKeys);
    }
    into.retain(|name, _| kept(name));
    Ok(())
}

fn delete_from(into: &mut Object, name: &str, gone: Value) -> Result<(), StrategicError> {
    let Value::Array(gone) = gone else { return Err(StrategicError::PrimitiveList) };
    if let Some(Value::Array(list)) = into.get_mut(name) {
        list.retain(|item| !gone.contains(item));
    }
    Ok(())
}

/// Merges each list that has a `$setElementOrder` and puts it in that order.
fn set_orders(
    into: &mut Object,
    patch: &mut Object,
    place: Place<'_>,
    depth: usize,
) -> Result<(), StrategicError> {
    let ordered: Vec<String> =
        patch.keys().filter_map(|k| k.strip_prefix(SET_ORDER)).map(str::to_owned).collect();
    for name in ordered {
        let order = match patch.remove(&format!("{SET_ORDER}{name}")) {
            Some(Value::Array(order)) => order,
            Some(_) | None => return Err(StrategicError::SetElementOrder),
        };
        if let Some(gone) = patch.remove(&format!("{DELETE_FROM}{name}")) {
            delete_from(into, &name, gone)?;
        }
        let at = place.field(&name);
        let before = match into.remove(&name) {
            Some(Value::Array(list)) => Some(list),
            Some(other) => {
                into.insert(name, other);
                return Err(StrategicError::SetElementOrder);
            }
            None => None,
        };
        let new = match patch.remove(&name) {
            Some(Value::Array(list)) => Some(list),
            Some(Value::Null) => continue,
            Some(_) => return Err(StrategicError::SetElementOrder),
            None => None,
        };
        let merged = match (&before, new) {
            (None, None) => continue,
            (Some(old), None) => old.clone(),
            (Some(old), Some(new)) if at.merges() => merge_list(old, new, at, depth + 1)?,
            (_, Some(new)) => settled_items(new, depth)?,
        };
        let sorted = in_order(merged, &order, before.as_deref().unwrap_or_default(), at.merge_key());
        into.insert(name, Value::Array(sorted));
    }
    Ok(())
}

fn merge_list(
    old: &[Value],
    patch: Vec<Value>,
    place: Place<'_>,
    depth: usize,
) -> Result<Vec<Value>, StrategicError> {
    if old.iter().chain(&patch).any(Value::is_array) {
        return Err(StrategicError::ListOfLists);
    }
    if !old.iter().chain(&patch).any(Value::is_object) {
        let mut merged: Vec<Value> = Vec::new();
        for item in old.iter().chain(&patch) {
            if !merged.contains(item) {
                merged.push(item.clone());
            }
        }
        return Ok(in_order(merged, &patch, old, None));
    }
    let key = place.merge_key().ok_or_else(|| StrategicError::NoKeyDeclared("list".to_owned()))?;
    let (mut merged, patch) = special_items(old.to_vec(), patch, key)?;
    for item in &patch {
        let id = identity(item, key)?;
        match merged.iter_mut().find(|m| m.get(key) == Some(id)) {
            Some(found) => {
                let (Value::Object(old), Value::Object(new)) = (found.take(), item.clone()) else {
                    return Err(StrategicError::Shape);
                };
                *found = Value::Object(merge_map(old, new, place.items(), depth + 1)?);
            }
            None => merged.push(settled(item.clone(), depth)?),
        }
    }
    Ok(in_order(merged, &patch, old, Some(key)))
}

/// Carries out `$patch` in items: what is left of the old list, and the items that are plain.
fn special_items(
    mut old: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), StrategicError> {
    let mut plain = Vec::new();
    let mut replace = false;
    for item in patch {
        match item.get(PATCH).map(|d| d.as_str().unwrap_or_default().to_owned()) {
            None => plain.push(item),
            Some(d) if d == "delete" => {
                let id = identity(&item, key)?;
                old.retain(|o| o.get(key) != Some(id));
            }
            Some(d) if d == "replace" => replace = true,
            Some(d) => return Err(StrategicError::Directive(d)),
        }
    }
    Ok(if replace { (plain, Vec::new()) } else { (old, plain) })
}

fn identity<'v>(item: &'v Value, key: &str) -> Result<&'v Value, StrategicError> {
    item.get(key).ok_or_else(|| StrategicError::NoMergeKey { item: item.to_string(), key: key.to_owned() })
}

/// Items the patch speaks of come in its order, the others in the order they had, each before the first item
/// of the patch that stood behind it.
fn in_order(merged: Vec<Value>, patch: &[Value], before: &[Value], key: Option<&str>) -> Vec<Value> {
    let same = |a: &Value, b: &Value| match key {
        Some(key) => a.get(key).is_some() && a.get(key) == b.get(key),
        None => a == b,
    };
    let position = |list: &[Value], item: &Value| list.iter().position(|other| same(other, item));
    let (mut spoken, mut others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| position(patch, item).is_some());
    spoken.sort_by_key(|item| position(patch, item));
    others.sort_by(|a, b| match (position(before, a), position(before, b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (_, None) | (None, _) => Ordering::Equal,
    });
    let mut out = Vec::with_capacity(spoken.len() + others.len());
    let (mut left, mut right) = (others.into_iter().peekable(), spoken.into_iter().peekable());
    loop {
        let take_left = match (left.peek(), right.peek()) {
            (None, None) => return out,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(l), Some(r)) => match (position(before, l), position(before, r)) {
                (Some(l), Some(r)) => l < r,
                (_, None) | (None, _) => false,
            },
        };
        out.extend(if take_left { left.next() } else { right.next() });
    }
}

/// A value that meets nothing to merge with: directives and nulls in it have nothing to act on.
fn settled(value: Value, depth: usize) -> Result<Value, StrategicError> {
    if depth > MAX_DEPTH {
        return Err(StrategicError::Depth(MAX_DEPTH));
    }
    Ok(match value {
        Value::Object(map) => {
            let mut out = Object::new();
            for (key, value) in map {
                let directive = key == PATCH
                    || key == RETAIN_KEYS
                    || key.starts_with(DELETE_FROM)
                    || key.starts_with(SET_ORDER);
                if !directive && !value.is_null() {
                    out.insert(key, settled(value, depth + 1)?);
                }
            }
            Value::Object(out)
        }
        Value::Array(items) => Value::Array(settled_items(items, depth)?),
        scalar @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => scalar,
    })
}

fn settled_items(items: Vec<Value>, depth: usize) -> Result<Vec<Value>, StrategicError> {
    let deleted = |item: &Value| item.get(PATCH).is_some_and(|d| d == "delete");
    items.into_iter().filter(|item| !deleted(item)).map(|item| settled(item, depth + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::builtin;
    use serde_json::json;

    fn patched(pod_spec: Value, patch: Value) -> Value {
        let deployment = builtin("apps", "v1", "Deployment").unwrap();
        let wrap = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
        strategic_merge(&wrap(pod_spec), &wrap(patch), &deployment).unwrap()["spec"]["template"]["spec"]
            .clone()
    }

    fn env(names: &[&str]) -> Value {
        names.iter().map(|n| json!({"name": n, "value": n})).collect()
    }

    #[test]
    fn lists_merge_by_their_key_with_the_patch_first() {
        let spec = json!({"containers": [{"name": "web", "image": "nginx:1", "env": env(&["A"])}]});
        let patch =
            json!({"containers": [{"name": "web", "env": env(&["B"])}, {"name": "side", "image": "s:1"}]});
        let want = json!({"containers": [
            {"name": "web", "image": "nginx:1", "env": env(&["B", "A"])}, {"name": "side", "image": "s:1"},
        ]});
        assert_eq!(patched(spec, patch), want);
    }

    #[test]
    fn items_and_objects_can_be_deleted_and_replaced() {
        let spec = json!({"containers": [{"name": "a"}, {"name": "b"}], "securityContext": {"runAsUser": 1, "fsGroup": 2}});
        let delete = json!({"containers": [{"$patch": "delete", "name": "b"}], "securityContext": {"$patch": "replace", "fsGroup": 3}});
        assert_eq!(
            patched(spec.clone(), delete),
            json!({"containers": [{"name": "a"}], "securityContext": {"fsGroup": 3}})
        );
        let replace = json!({"containers": [{"name": "c"}, {"$patch": "replace"}], "securityContext": null});
        assert_eq!(patched(spec, replace), json!({"containers": [{"name": "c"}]}));
    }

    #[test]
    fn atomic_lists_are_replaced_whole() {
        let spec = json!({"tolerations": [{"key": "a"}]});
        assert_eq!(
            patched(spec, json!({"tolerations": [{"key": "b"}]})),
            json!({"tolerations": [{"key": "b"}]})
        );
    }

    #[test]
    fn primitive_lists_lose_what_is_named_and_take_the_order_given() {
        let deployment = builtin("apps", "v1", "Deployment").unwrap();
        let object = json!({"metadata": {"finalizers": ["a/x", "b/x", "c/x"]}});
        let patch = json!({"metadata": {
            "$deleteFromPrimitiveList/finalizers": ["b/x"], "$setElementOrder/finalizers": ["d/x", "c/x", "a/x"], "finalizers": ["d/x"],
        }});
        let got = strategic_merge(&object, &patch, &deployment).unwrap();
        assert_eq!(got, json!({"metadata": {"finalizers": ["d/x", "c/x", "a/x"]}}));
    }

    #[test]
    fn an_order_without_items_only_sorts() {
        let spec = json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]});
        let patch = json!({"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}]});
        // "b" stood before "c", so it still does.
        assert_eq!(
            patched(spec, patch),
            json!({"containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}]})
        );
    }

    #[test]
    fn retained_keys_drive_the_others_out() {
        let deployment = builtin("apps", "v1", "Deployment").unwrap();
        let object =
            json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
        let patch = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
        let got = strategic_merge(&object, &patch, &deployment).unwrap();
        assert_eq!(got, json!({"spec": {"strategy": {"type": "Recreate"}}}));
        let stray = json!({"spec": {"strategy": {"$retainKeys": ["type"], "rollingUpdate": {}}}});
        assert_eq!(strategic_merge(&object, &stray, &deployment), Err(StrategicError::RetainKeys));
    }

    #[test]
    fn new_parts_come_without_directives_and_nulls() {
        let patch = json!({"volumes": [{"name": "v", "emptyDir": {"medium": null, "$patch": "replace"}}, {"$patch": "delete", "name": "w"}]});
        assert_eq!(patched(json!({}), patch), json!({"volumes": [{"name": "v", "emptyDir": {}}]}));
    }

    #[test]
    fn bad_patches_are_errors() {
        let deployment = builtin("apps", "v1", "Deployment").unwrap();
        let object = json!({"spec": {"template": {"spec": {"containers": [{"name": "a"}]}}}});
        for (patch, want) in [
            (json!([]), StrategicError::Shape),
            (json!({"$patch": "explode"}), StrategicError::Directive("\"explode\"".to_owned())),
            (
                json!({"spec": {"template": {"spec": {"containers": [{"image": "x"}]}}}}),
                StrategicError::NoMergeKey { item: "{\"image\":\"x\"}".to_owned(), key: "name".to_owned() },
            ),
        ] {
            assert_eq!(strategic_merge(&object, &patch, &deployment), Err(want));
        }
    }
}
