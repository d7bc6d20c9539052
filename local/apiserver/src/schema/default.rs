//! Which fields does the schema fill in?
//!
//! A default fills an absent field, and a null where null is not a legal value. A null without a default is
//! taken for absence where the field is not nullable.

use super::{MAX_DEPTH, Node};
use serde_json::Value;

/// Applies defaults below `value`, then drops the nulls that mean nothing.
pub(super) fn fill(node: &Node, value: &mut Value) {
    defaults(node, value);
    drop_nulls(node, value, 0);
}

/// Applies defaults below `value`, and leaves other nulls alone.
pub(super) fn defaults(node: &Node, value: &mut Value) {
    defaults_at(node, value, 0);
}

fn defaults_at(node: &Node, value: &mut Value, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::Object(map) => {
            for (name, field) in &node.properties {
                let Some(default) = &field.default else { continue };
                match map.get(name.as_ref()) {
                    None => _ = map.insert(name.to_string(), default.clone()),
                    Some(Value::Null) if !field.nullable => _ = map.insert(name.to_string(), default.clone()),
                    Some(_) => {}
                }
            }
            for (name, value) in map {
                let Some(field) = node.field(name) else { continue };
                fill_null(field, value);
                defaults_at(field, value, depth + 1);
            }
        }
        Value::Array(items) => {
            let Some(node) = &node.items else { return };
            for item in items {
                fill_null(node, item);
                defaults_at(node, item, depth + 1);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn fill_null(node: &Node, value: &mut Value) {
    if let (true, false, Some(default)) = (value.is_null(), node.nullable, &node.default) {
        *value = default.clone();
    }
}

fn drop_nulls(node: &Node, value: &mut Value, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::Object(map) => map.retain(|name, value| {
            let Some(field) = node.field(name) else { return true };
            if value.is_null() && !field.nullable && field.default.is_none() {
                return false;
            }
            drop_nulls(field, value, depth + 1);
            true
        }),
        Value::Array(items) => {
            let Some(node) = &node.items else { return };
            for item in items {
                drop_nulls(node, item, depth + 1);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::schema::Schema;
    use serde_json::{Value, json};

    fn defaulted(mut object: Value) -> Value {
        let schema = json!({"type": "object", "properties": {
            "mode": {"type": "string", "default": "on"},
            "maybe": {"type": "string", "nullable": true, "default": "x"},
            "plain": {"type": "string"},
            "deep": {"type": "object", "default": {}, "properties": {"n": {"type": "integer", "default": 3}}},
            "lazy": {"type": "object", "properties": {"n": {"type": "integer", "default": 3}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"p": {"type": "string", "default": "TCP"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"q": {"type": "boolean", "default": true}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }});
        Schema::compile(&schema, "s").unwrap().default(&mut object);
        object
    }

    #[test]
    fn defaults_fill_what_is_absent_at_every_depth_that_exists() {
        let got = defaulted(json!({"lazy": {}, "list": [{}, {"p": "UDP"}], "map": {"a": {}}}));
        let want = json!({
            "mode": "on", "maybe": "x", "deep": {"n": 3}, "lazy": {"n": 3},
            "list": [{"p": "TCP"}, {"p": "UDP"}], "map": {"a": {"q": true}},
        });
        assert_eq!(got, want);
        // A parent that is absent and has no default is not invented for its children's sake.
        assert!(defaulted(json!({})).get("lazy").is_none());
    }

    #[test]
    fn null_is_a_value_only_where_the_schema_says_so() {
        let got = defaulted(json!({"mode": null, "maybe": null, "plain": null, "free": {"x": null}}));
        assert_eq!(got, json!({"mode": "on", "maybe": null, "deep": {"n": 3}, "free": {"x": null}}));
    }
}
