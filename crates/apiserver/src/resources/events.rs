//! How does one Event look in the other of its two APIs?
//!
//! `v1` and `events.k8s.io/v1` are two views of the same objects with some fields under other names.

use serde_json::Value;

use super::Resource;
use crate::store::Object;

/// `v1` on the left, `events.k8s.io/v1` on the right.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// A kept event under the names of `resource`'s group.
pub(super) fn shown(resource: &Resource, kept: Value) -> Value {
    if is_new_api(resource) { renamed(kept, true) } else { kept }
}

/// An event of the new API under the names it is kept; `None` for everything else.
pub(super) fn kept(resource: &Resource, shown: &Value) -> Option<Value> {
    is_new_api(resource).then(|| renamed(shown.clone(), false))
}

/// The members of a kept event, without `{`, `kind` and `apiVersion`, as `resource` shows them; `None`
/// where there is nothing to rename.
pub(crate) fn members(resource: &Resource, object: &Object) -> Option<Vec<u8>> {
    if !is_new_api(resource) {
        return None;
    }
    let mut value = renamed(object.value(), true);
    if let Some(members) = value.as_object_mut() {
        members.retain(|key, _| !matches!(key.as_str(), "kind" | "apiVersion"));
    }
    value.to_string().strip_prefix('{').map(|rest| rest.as_bytes().to_vec())
}

fn is_new_api(resource: &Resource) -> bool {
    resource.is("events.k8s.io", "events")
}

fn renamed(value: Value, to_new: bool) -> Value {
    let Value::Object(members) = value else { return value };
    let new_name = |key: String| {
        let pair = NAMES.iter().find(|(old, new)| if to_new { *old == key } else { *new == key });
        pair.map_or(key, |(old, new)| (if to_new { *new } else { *old }).to_owned())
    };
    members.into_iter().map(|(key, value)| (new_name(key), value)).collect()
}
