//! Which fields does the schema not know?
//!
//! They are removed and named; whether naming them is an error, a warning or nothing is the caller's
//! `fieldValidation`.

use super::at::At;
use super::{Additional, MAX_DEPTH, Node, object_meta};
use serde_json::Value;

/// Prunes a whole resource: `apiVersion`, `kind` and `metadata` are always known.
pub(super) fn resource(node: &Node, object: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    fields(node, object, true, &At::ROOT, 0, &mut unknown);
    unknown
}

/// Prunes a value that is no resource, as a default is.
pub(super) fn bare(node: &Node, value: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    fields(node, value, node.embedded_resource, &At::ROOT, 0, &mut unknown);
    unknown
}

fn fields(
    node: &Node,
    value: &mut Value,
    resource: bool,
    path: &At<'_>,
    depth: usize,
    unknown: &mut Vec<String>,
) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::Object(map) => map.retain(|name, value| {
            let at = path.field(name);
            if resource && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                metadata(name, value, &at, unknown);
                return true;
            }
            match (node.field(name), &node.additional) {
                (Some(field), _) => fields(field, value, field.embedded_resource, &at, depth + 1, unknown),
                (None, Additional::Anything) => {}
                (None, Additional::Unknown | Additional::Each(_)) if node.preserve_unknown => {}
                (None, Additional::Unknown | Additional::Each(_)) => {
                    unknown.push(at.to_string());
                    return false;
                }
            }
            true
        }),
        Value::Array(items) => {
            let Some(node) = &node.items else { return };
            for (i, item) in items.iter_mut().enumerate() {
                fields(node, item, node.embedded_resource, &path.item(i), depth + 1, unknown);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `metadata` has the same fields in every resource, whatever its schema says of it.
fn metadata(name: &str, value: &mut Value, path: &At<'_>, unknown: &mut Vec<String>) {
    let Value::Object(meta) = value else { return };
    if name == "metadata" {
        meta.retain(|key, _| {
            let known = object_meta().properties.contains_key(key.as_str());
            if !known {
                unknown.push(path.field(key).to_string());
            }
            known
        });
    }
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
mod tests {
    use crate::schema::Schema;
    use serde_json::{Value, json};

    fn pruned(schema: Value, mut object: Value) -> (Value, Vec<String>) {
        let schema = Schema::compile(&schema, "s").unwrap();
        let unknown = schema.prune(&mut object);
        (object, unknown)
    }

    #[test]
    fn unknown_fields_go_and_are_named_by_path() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"b": {"type": "string"}}}},
        }}}});
        let object = json!({
            "apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n", "shoe": 44}, "extra": 1,
            "spec": {"list": [{"a": "x"}, {"a": "x", "z": 1}], "map": {"any": {"b": "x", "c": 2}}, "other": {}},
        });
        let (left, unknown) = pruned(schema, object);
        let want = json!({
            "apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n"},
            "spec": {"list": [{"a": "x"}, {"a": "x"}], "map": {"any": {"b": "x"}}},
        });
        assert_eq!(left, want);
        assert_eq!(unknown, ["extra", "metadata.shoe", "spec.list[1].z", "spec.map.any.c", "spec.other"]);
    }

    #[test]
    fn preserved_fields_stay_but_known_ones_below_are_pruned() {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "known": {"type": "object", "properties": {"a": {"type": "string"}}},
            "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}},
        }});
        let object = json!({
            "free": {"x": [1, {"y": null}]}, "known": {"a": "1", "b": 2},
            "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "z": 1}, "spec": {"c": 1}, "w": 1},
        });
        let (left, unknown) = pruned(schema, object);
        let want = json!({
            "free": {"x": [1, {"y": null}]}, "known": {"a": "1"},
            "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}},
        });
        assert_eq!(left, want);
        assert_eq!(unknown, ["known.b", "pod.metadata.z", "pod.spec.c", "pod.w"]);
    }
}
