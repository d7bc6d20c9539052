//! How does one Event look in the other of its two APIs?
//!
//! `v1` and `events.k8s.io/v1` are two views of the same objects with some fields under other names.

use serde_json::{Map, Value};

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

/// The members of an event, without `{`, `kind` and `apiVersion`, under the names of `resource`'s group;
/// `None` where there is nothing to convert.
pub(crate) fn convert(resource: &Resource, object: &Object) -> Option<Vec<u8>> {
    if &*resource.ids.kind != "Event" || resource.ids.group == object.ids.group {
        return None;
    }
    let text = Value::Object(renamed(object.value(), !resource.ids.group.is_empty())).to_string();
    text.strip_prefix('{').map(|rest| rest.as_bytes().to_vec())
}

fn renamed(value: Value, to_new: bool) -> Map<String, Value> {
    let Value::Object(members) = value else { return Map::new() };
    let new_name = |key: String| {
        let pair = NAMES.iter().find(|(old, new)| if to_new { *old == key } else { *new == key });
        pair.map_or(key, |(old, new)| (if to_new { *new } else { *old }).to_owned())
    };
    members
        .into_iter()
        .filter(|(key, _)| !matches!(key.as_str(), "kind" | "apiVersion"))
        .map(|(key, value)| (new_name(key), value))
        .collect()
}
