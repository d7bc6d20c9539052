//! Do a schema's `x-kubernetes-*` words fit the types they stand on?

use super::compile::{Compiler, property, strings};
use super::{ListType, Node, Types, child, index};
use crate::validation::FieldError;
use serde_json::{Map, Value, json};

impl Compiler {
    pub(super) fn extensions(&mut self, map: &Map<String, Value>, at: &str, node: &mut Node) {
        let keys: Vec<Box<str>> =
            strings(map.get("x-kubernetes-list-map-keys")).into_iter().map(Into::into).collect();
        let list_at = child(at, "x-kubernetes-list-type");
        let list_type = map.get("x-kubernetes-list-type").and_then(Value::as_str);
        if list_type.is_some() && node.types != Types::ARRAY {
            let detail = "must be array if x-kubernetes-list-type is specified";
            self.invalid(child(at, "type"), &json!(node.types.names()), detail);
        }
        node.list = match list_type {
            None | Some("atomic") => ListType::Atomic,
            Some("set") => {
                self.set_items(node, at);
                ListType::Set
            }
            Some("map") => {
                self.map_keys(node, &keys, at);
                ListType::Map(keys.clone().into())
            }
            Some(other) => {
                self.errors.push(FieldError::not_supported(
                    list_at,
                    &json!(other),
                    &["atomic", "set", "map"],
                ));
                ListType::Atomic
            }
        };
        if !keys.is_empty() && list_type != Some("map") {
            let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
            self.invalid(child(at, "x-kubernetes-list-type"), &json!(list_type), detail);
        }
        if let Some(map_type) = map.get("x-kubernetes-map-type").filter(|t| !t.is_null()) {
            let field = child(at, "x-kubernetes-map-type");
            if !["atomic", "granular"].iter().any(|known| map_type == known) {
                self.errors.push(FieldError::not_supported(field, map_type, &["atomic", "granular"]));
            } else if node.types != Types::OBJECT {
                let detail = "must be object if x-kubernetes-map-type is specified";
                self.invalid(child(at, "type"), &json!(node.types.names()), detail);
            }
        }
        if node.embedded_resource && node.types != Types::OBJECT {
            let detail = "must be object if x-kubernetes-embedded-resource is true";
            self.invalid(child(at, "type"), &json!(node.types.names()), detail);
        } else if node.embedded_resource && !node.preserve_unknown && node.properties.is_empty() {
            let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
            self.required(child(at, "properties"), detail);
        }
    }

    fn set_items(&mut self, node: &Node, at: &str) {
        let Some(items) = &node.items else { return };
        let items_at = child(at, "items");
        if items.nullable {
            self.forbidden(
                child(&items_at, "nullable"),
                "cannot be nullable when x-kubernetes-list-type is set",
            );
        }
        if items.types == Types::OBJECT && !items.atomic_map {
            let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
            self.invalid(child(&items_at, "x-kubernetes-map-type"), &Value::Null, detail);
        }
        if items.types == Types::ARRAY && items.list != ListType::Atomic {
            let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
            self.invalid(child(&items_at, "x-kubernetes-list-type"), &Value::Null, detail);
        }
    }

    fn map_keys(&mut self, node: &Node, keys: &[Box<str>], at: &str) {
        let keys_at = child(at, "x-kubernetes-list-map-keys");
        if keys.is_empty() {
            let detail = "must not be empty if x-kubernetes-list-type is map";
            self.required(keys_at, detail);
            return;
        }
        let Some(items) = &node.items else { return };
        if items.types != Types::OBJECT {
            let detail = "must be object if parent array's x-kubernetes-list-type is map";
            self.invalid(child(at, "items.type"), &json!(items.types.names()), detail);
            return;
        }
        let required = items.limits.as_ref().map_or(&[][..], |l| l.required.as_slice());
        for (i, key) in keys.iter().enumerate() {
            let key_at = index(&keys_at, i);
            if keys.iter().take(i).any(|k| k == key) {
                self.errors.push(FieldError::duplicate(&key_at, &json!(key)));
            }
            let Some(field) = items.properties.get(key) else {
                let detail = "entries must all be names of item properties";
                self.invalid(key_at, &json!(key), detail);
                continue;
            };
            if field.types.has(Types::OBJECT.and(Types::ARRAY)) {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                let path = child(&property(&child(at, "items"), key), "type");
                self.invalid(path, &json!(field.types.names()), detail);
            }
            if field.default.is_none() && !required.contains(key) {
                let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                let path = child(&property(&child(at, "items"), key), "default");
                self.required(path, detail);
            }
        }
    }
}
