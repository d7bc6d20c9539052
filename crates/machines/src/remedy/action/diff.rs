//! What is different between two versions of an object, for people and as the patch that makes it so?

use pawl_api::meta::text;
use pawl_api::remedy::annotations::CHANGED_BY;
use serde_json::{Map, Value, json};

/// What an API server or a controller keeps of its own accord: counters, times, and who wrote what.
const KEPT_BY_OTHERS: &[&str] = &[
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Counted by the controller of Deployments.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
/// `kubectl` repeats whole objects there, a Secret's values too.
pub(super) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// One value of a diff: longer ones are cut.
const MAX_VALUE_CHARS: usize = 200;
pub const MASKED: &str = "***";

/// An object without its status, and without counters, times and marks.
pub fn plain(object: &Value) -> Value {
    let mut object = object.clone();
    let Some(fields) = object.as_object_mut() else { return object };
    fields.remove("status");
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| !KEPT_BY_OTHERS.contains(&key.as_str()));
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|key, _| key != CHANGED_BY && key != REVISION);
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    object
}

/// What a manifest says of an object: labels, annotations, and everything beside the metadata. Both are always there, so
/// that what is added later is known to be new.
pub(super) fn own(object: &Value) -> Value {
    let mut own = plain(object);
    let part = |name: &str| match object.pointer(&format!("/metadata/{name}")) {
        Some(Value::Object(_)) => own.pointer(&format!("/metadata/{name}")).cloned(),
        _ => None,
    };
    let empty = || Value::Object(Map::new());
    let (labels, annotations) = (part("labels"), part("annotations"));
    let metadata =
        json!({"labels": labels.unwrap_or_else(empty), "annotations": annotations.unwrap_or_else(empty)});
    if let Some(fields) = own.as_object_mut() {
        fields.retain(|key, _| key != "apiVersion" && key != "kind");
        fields.insert("metadata".to_owned(), metadata);
    }
    own
}

/// The change, line by line: `- path: value` and `+ path: value`. Values of Secrets are masked (I6).
pub fn lines(before: Option<&Value>, after: Option<&Value>) -> Vec<String> {
    let secret = [before, after].into_iter().flatten().any(is_secret);
    // What is not there has no fields.
    let fields = |object: Option<&Value>| {
        let mut object = object.map_or_else(|| json!({}), plain);
        if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
            && secret
        {
            annotations.remove(LAST_APPLIED);
        }
        object
    };
    let mut lines = Vec::new();
    walk("", Some(&fields(before)), Some(&fields(after)), secret, &mut lines);
    lines
}

/// An object as it may be shown: values of a Secret are masked, and who wrote which field is left out.
pub fn shown(object: &Value) -> Value {
    let secret = is_secret(object);
    let mut object = object.clone();
    let Some(fields) = object.as_object_mut() else { return object };
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
            && secret
        {
            annotations.remove(LAST_APPLIED);
        }
    }
    for part in ["data", "stringData"].into_iter().filter(|_| secret) {
        if let Some(values) = fields.get_mut(part).and_then(Value::as_object_mut) {
            values.values_mut().for_each(|value| *value = MASKED.into());
        }
    }
    object
}

fn is_secret(object: &Value) -> bool {
    object.get("kind").and_then(Value::as_str) == Some("Secret")
}

fn walk(path: &str, before: Option<&Value>, after: Option<&Value>, secret: bool, lines: &mut Vec<String>) {
    let join = |key: &str| {
        let key = if key.contains('.') { format!("[{key}]") } else { key.to_owned() };
        if path.is_empty() { key } else { format!("{path}.{key}") }
    };
    match (before, after) {
        (Some(before), Some(after)) if before == after => {}
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            let new = after.keys().filter(|key| !before.contains_key(*key));
            for key in before.keys().chain(new) {
                walk(&join(key), before.get(key), after.get(key), secret, lines);
            }
        }
        (Some(Value::Array(before)), Some(Value::Array(after))) => {
            for at in 0..before.len().max(after.len()) {
                walk(&format!("{path}[{at}]"), before.get(at), after.get(at), secret, lines);
            }
        }
        (before, after) => {
            let hidden = secret && ["data", "stringData"].iter().any(|part| path.starts_with(part));
            let show = |value: &Value| match hidden {
                true => MASKED.to_owned(),
                false => text::head(value.to_string(), MAX_VALUE_CHARS),
            };
            lines.extend(before.map(|value| format!("- {path}: {}", show(value))));
            lines.extend(after.map(|value| format!("+ {path}: {}", show(value))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::difference;
    use proptest::prelude::*;

    /// RFC 7386, to check against.
    fn apply(into: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else {
            *into = patch.clone();
            return;
        };
        if !into.is_object() {
            *into = json!({});
        }
        let into = into.as_object_mut().unwrap();
        for (key, value) in patch {
            if value.is_null() {
                into.remove(key);
            } else {
                apply(into.entry(key).or_insert(Value::Null), value);
            }
        }
    }

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<bool>().prop_map(Value::from), "[ab]{0,2}".prop_map(Value::from)];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_patch_between_two_objects_makes_one_the_other(from in tree(), to in tree()) {
            let (mut from, to) = (json!({"spec": from}), json!({"spec": to}));
            if let Some(patch) = difference(&from, &to) {
                apply(&mut from, &patch);
            }
            prop_assert_eq!(from, to);
        }

        #[test]
        fn objects_differ_in_no_line_exactly_where_they_are_equal(a in tree(), b in tree()) {
            let (a, b) = (json!({"spec": a}), json!({"spec": b}));
            prop_assert_eq!(lines(Some(&a), Some(&b)).is_empty(), a == b);
        }
    }

    #[test]
    fn a_diff_has_no_counters_times_or_marks() {
        let object = |replicas: i32, version: &str| {
            json!({"metadata": {"name": "d", "resourceVersion": version, "generation": replicas,
                "annotations": {CHANGED_BY: version, REVISION: version}},
                "spec": {"replicas": replicas}, "status": {"replicas": replicas}})
        };
        let changed = lines(Some(&object(3, "1")), Some(&object(5, "2")));
        assert_eq!(changed, ["- spec.replicas: 3", "+ spec.replicas: 5"]);
        assert!(lines(Some(&object(3, "1")), Some(&object(3, "2"))).is_empty());
    }

    #[test]
    fn values_of_secrets_are_nowhere_in_what_is_shown() {
        let canary = "b2J2aW91c2x5";
        let object = json!({"kind": "Secret", "metadata": {"annotations": {LAST_APPLIED: canary, "a": "b"}},
            "data": {"k": canary}, "stringData": {"l": canary}});
        let shown = shown(&object);
        assert!(!shown.to_string().contains(canary), "{shown}");
        assert_eq!(shown["data"]["k"], MASKED);
        assert_eq!(shown["metadata"]["annotations"]["a"], "b");
        let other = json!({"kind": "Secret", "data": {"k": "other"}});
        let changed = lines(Some(&object), Some(&other)).join("\n");
        assert!(!changed.contains(canary) && !changed.contains("other"), "{changed}");
        assert!(changed.contains("data.k"), "{changed}");
        for (before, after) in [(None, Some(&object)), (Some(&object), None)] {
            let changed = lines(before, after).join("\n");
            assert!(!changed.contains(canary) && changed.contains("data: ***"), "{changed}");
        }
    }
}
