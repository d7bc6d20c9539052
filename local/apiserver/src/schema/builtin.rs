//! What may an object of a built-in kind look like?
//!
//! The schemas are data: `data/builtin.json`, made from Kubernetes' published OpenAPI document. A kind's tree
//! is built when it is first asked for, and trees share the definitions they have in common.
//!
//! Built-in objects pass through typed code in a real server, and that shows: wrong types are a `400` from
//! the decoder, nulls and empty maps and lists vanish, quantities come back in canonical form. [`Schema::decode`]
//! does the same.

use super::format::Format;
use super::{Additional, Limits, ListType, MAX_DEPTH, Node, PatchStrategy, Schema, Types, child};
use crate::validation::{Quantity, cannot_unmarshal};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// The schema of a built-in kind; `None` for a kind that is not one.
pub fn builtin(group: &str, version: &str, kind: &str) -> Option<Schema> {
    let name = definition_name(group, version, kind)?;
    Some(Schema::builtin(CATALOG.definition(name, 0)))
}

/// What the definition of a built-in kind is called.
pub(crate) fn definition_name(group: &str, version: &str, kind: &str) -> Option<&'static String> {
    CATALOG.kinds.get(&(group.to_owned(), version.to_owned(), kind.to_owned()))
}

/// Every definition, by name, with `$ref`s that are bare names: what OpenAPI documents are made from.
pub fn definitions() -> &'static Map<String, Value> {
    &CATALOG.definitions
}

impl Schema {
    /// Reads `object` as the typed code of a real server would. The answer names the fields that are not
    /// known; the error is the decoder's. `kind` is how the decoder calls the object.
    pub fn decode(&self, kind: &str, object: &mut Value) -> Result<Vec<String>, String> {
        fit(self.root(), object, kind, 0)?;
        let unknown = self.prune(object);
        self.default(object);
        omit_empty(self.root(), object, 0);
        Ok(unknown)
    }
}

static CATALOG: LazyLock<Catalog> = LazyLock::new(Catalog::read);

struct Catalog {
    definitions: Map<String, Value>,
    /// Group, version and kind to the name of a definition.
    kinds: HashMap<(String, String, String), String>,
    built: Mutex<HashMap<String, Arc<Node>>>,
}

impl Catalog {
    fn read() -> Self {
        // The file is part of the build and a test reads it: it cannot be malformed at run time.
        let definitions: Map<String, Value> =
            serde_json::from_str(include_str!("../../data/builtin.json")).unwrap_or_default();
        let mut kinds = HashMap::new();
        for (name, schema) in &definitions {
            let named = schema.get("x-kubernetes-group-version-kind").and_then(Value::as_array);
            for gvk in named.into_iter().flatten() {
                let text = |key: &str| gvk.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
                kinds.insert((text("group"), text("version"), text("kind")), name.clone());
            }
        }
        Self { definitions, kinds, built: Mutex::new(HashMap::new()) }
    }

    fn definition(&self, name: &str, depth: usize) -> Arc<Node> {
        let known = |name: &str| self.built.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        if let Some(node) = known(name) {
            return node;
        }
        let node = match self.definitions.get(name) {
            Some(schema) if depth < MAX_DEPTH => Arc::new(self.node(schema, depth + 1)),
            Some(_) | None => Arc::new(Node { preserve_unknown: true, ..Node::default() }),
        };
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        built.entry(name.to_owned()).or_insert(node).clone()
    }

    fn place(&self, schema: &Value, depth: usize) -> Arc<Node> {
        let plain = schema.as_object().is_some_and(|m| m.len() == 1);
        match (schema.get("$ref").and_then(Value::as_str), plain) {
            (Some(name), true) => self.definition(name, depth),
            // A reference with words of its own (a patch strategy) is a definition seen from one place.
            (Some(name), false) => {
                let mut merged = self.definitions.get(name).cloned().unwrap_or_default();
                if let (Some(into), Some(own)) = (merged.as_object_mut(), schema.as_object()) {
                    into.extend(
                        own.iter().filter(|(k, _)| *k != "$ref").map(|(k, v)| (k.clone(), v.clone())),
                    );
                }
                Arc::new(self.node(&merged, depth + 1))
            }
            (None, _) => Arc::new(self.node(schema, depth + 1)),
        }
    }

    fn node(&self, schema: &Value, depth: usize) -> Node {
        let text = |key: &str| schema.get(key).and_then(Value::as_str);
        let flag = |key: &str| schema.get(key) == Some(&Value::Bool(true));
        let strings = |key: &str| -> Vec<Box<str>> {
            let list = schema.get(key).and_then(Value::as_array).into_iter().flatten();
            list.filter_map(Value::as_str).map(Into::into).collect()
        };
        let properties = schema.get("properties").and_then(Value::as_object);
        let types = text("type").and_then(Types::from_name).unwrap_or_default();
        let bare_object = types == Types::OBJECT && properties.is_none();
        let format = match text("format") {
            Some("quantity") => Some(Format::Quantity),
            Some(name) => Format::from_name(name),
            None => None,
        };
        let required = strings("required");
        Node {
            types,
            int_or_string: flag("x-kubernetes-int-or-string"),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            atomic_map: text("x-kubernetes-map-type") == Some("atomic"),
            list: match text("x-kubernetes-list-type") {
                Some("set") => ListType::Set,
                Some("map") => ListType::Map(strings("x-kubernetes-list-map-keys").into()),
                Some(_) | None => ListType::Atomic,
            },
            properties: properties
                .into_iter()
                .flatten()
                .map(|(name, field)| (name.as_str().into(), self.place(field, depth)))
                .collect(),
            additional: match schema.get("additionalProperties") {
                Some(each @ Value::Object(_)) => Additional::Each(self.place(each, depth)),
                Some(_) => Additional::Anything,
                None if bare_object => Additional::Anything,
                None => Additional::Unknown,
            },
            items: schema.get("items").map(|items| self.place(items, depth)),
            default: schema.get("default").cloned(),
            limits: (format.is_some() || !required.is_empty())
                .then(|| Box::new(Limits { format, required, ..Limits::default() })),
            patch: patch_strategy(text("x-kubernetes-patch-strategy"), text("x-kubernetes-patch-merge-key")),
            ..Node::default()
        }
    }
}

fn patch_strategy(strategies: Option<&str>, merge_key: Option<&str>) -> Option<Box<PatchStrategy>> {
    let strategies: Vec<&str> = strategies.unwrap_or_default().split(',').collect();
    let has = |name: &str| strategies.contains(&name);
    let found = PatchStrategy {
        merge: has("merge"),
        replace: has("replace"),
        retain_keys: has("retainKeys"),
        merge_key: merge_key.map(Into::into),
    };
    (found != PatchStrategy::default()).then(|| Box::new(found))
}

/// Checks types, and writes quantities the one way they are written.
fn fit(node: &Node, value: &mut Value, at: &str, depth: usize) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err(format!("{at}: exceeded max depth"));
    }
    let format = node.limits.as_ref().and_then(|l| l.format);
    if node.int_or_string {
        return scalar(value, at, format);
    }
    let wrong = |value: &Value, want: &str| Err(cannot_unmarshal(value, at, want));
    match value {
        Value::Null => Ok(()),
        _ if node.types.is_none() => Ok(()),
        Value::Object(map) if node.types == Types::OBJECT => {
            for (name, value) in map {
                if let Some(field) = node.field(name) {
                    // A map's values are spoken of as the map; only fields have names of their own.
                    let below = if node.properties.contains_key(name.as_str()) {
                        child(at, name)
                    } else {
                        at.to_owned()
                    };
                    fit(field, value, &below, depth + 1)?;
                }
            }
            Ok(())
        }
        Value::Array(items) if node.types == Types::ARRAY => match &node.items {
            Some(node) => items.iter_mut().try_for_each(|item| fit(node, item, at, depth + 1)),
            None => Ok(()),
        },
        Value::String(s) if node.types == Types::STRING => match format {
            Some(Format::DateTime) if !Format::DateTime.accepts(s) => Err(format!(
                "parsing time {s:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {s:?} as \"2006\""
            )),
            Some(Format::Byte) if !Format::Byte.accepts(s) => {
                Err("illegal base64 data at input byte 0".to_owned())
            }
            Some(_) | None => Ok(()),
        },
        Value::Bool(_) if node.types == Types::BOOLEAN => Ok(()),
        Value::Number(_) if node.types == Types::NUMBER => Ok(()),
        Value::Number(n) if node.types == Types::INTEGER => match n.as_i64() {
            Some(_) if format.is_none_or(|f| f.holds(n)) => Ok(()),
            Some(_) | None => {
                let want = format.map_or("int64", Format::name);
                Err(format!("json: cannot unmarshal number {n} into Go struct field {at} of type {want}"))
            }
        },
        other @ (Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_)) => wrong(other, go_type(node)),
    }
}

fn scalar(value: &mut Value, at: &str, format: Option<Format>) -> Result<(), String> {
    let text = match value {
        Value::Null => return Ok(()),
        Value::String(s) => s.clone(),
        Value::Number(n) => n.to_string(),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            return Err(cannot_unmarshal(value, at, "string"));
        }
    };
    if format == Some(Format::Quantity) {
        let quantity: Quantity = text.parse().map_err(|why| format!("{why}"))?;
        *value = Value::String(quantity.to_string());
    }
    Ok(())
}

fn go_type(node: &Node) -> &'static str {
    match node.types {
        Types::OBJECT if node.is_map() => "map[string]string",
        Types::OBJECT => "struct",
        Types::ARRAY => "slice",
        Types::STRING => "string",
        Types::BOOLEAN => "bool",
        Types::NUMBER => "float64",
        _ => match node.limits.as_ref().and_then(|l| l.format) {
            Some(Format::Int64) => "int64",
            Some(_) | None => "int32",
        },
    }
}

/// Empty maps and lists are not written, except where the field always is.
fn omit_empty(node: &Node, value: &mut Value, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::Object(map) => {
            let required = |name: &str| {
                node.limits.as_ref().is_some_and(|l| l.required.iter().any(|r| r.as_ref() == name))
            };
            map.retain(|name, value| {
                let Some(field) = node.field(name) else { return true };
                omit_empty(field, value, depth + 1);
                let empty = match value {
                    Value::Object(map) => map.is_empty() && matches!(field.additional, Additional::Each(_)),
                    Value::Array(list) => list.is_empty(),
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
                };
                !empty || !node.properties.contains_key(name.as_str()) || required(name)
            });
        }
        Value::Array(items) => {
            let Some(node) = &node.items else { return };
            for item in items {
                omit_empty(node, item, depth + 1);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_kind_builds_and_every_reference_leads_somewhere() {
        assert!(CATALOG.kinds.len() > 40, "{}", CATALOG.kinds.len());
        for (group, version, kind) in CATALOG.kinds.keys() {
            assert!(builtin(group, version, kind).is_some());
        }
        fn references(schema: &Value, out: &mut Vec<String>) {
            match schema {
                Value::Object(map) => map.iter().for_each(|(k, v)| match (k.as_str(), v) {
                    ("$ref", Value::String(name)) => out.push(name.clone()),
                    (_, v) => references(v, out),
                }),
                Value::Array(list) => list.iter().for_each(|v| references(v, out)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        let mut all = Vec::new();
        CATALOG.definitions.values().for_each(|d| references(d, &mut all));
        assert!(all.iter().all(|name| CATALOG.definitions.contains_key(name)));
    }

    #[test]
    fn wrong_types_are_the_decoders_errors() {
        let decode = |kind: &str, mut object: Value| {
            let (group, kind) = kind.split_once('/').unwrap();
            builtin(group, "v1", kind).unwrap().decode(kind, &mut object).unwrap_err()
        };
        assert_eq!(
            decode("/ConfigMap", json!({"data": {"k": 5}})),
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
        );
        assert!(decode("/ConfigMap", json!({"data": ["k"]})).contains("of type map[string]string"));
        assert!(
            decode("apps/Deployment", json!({"spec": {"replicas": "3"}}))
                .contains("Deployment.spec.replicas of type int32")
        );
        assert!(
            decode("apps/Deployment", json!({"spec": {"replicas": 3_000_000_000_u64}})).contains("int32")
        );
        assert!(decode("/Secret", json!({"data": {"k": "?"}})).contains("base64"));
        let pod = json!({"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "lots"}}}]}});
        assert!(decode("/Pod", pod).contains("quantit"));
        assert!(decode("/Pod", json!({"spec": {"containers": {}}})).contains("cannot unmarshal object"));
    }

    #[test]
    fn decoding_leaves_what_typed_code_would() {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {}, "annotations": null}, "spek": {},
            "spec": {
                "containers": [{"name": "a", "args": [], "resources": {"limits": {"cpu": "1000m", "memory": 1024}}, "x": 1}],
                "volumes": [{"name": "v", "emptyDir": {}}], "nodeSelector": {}, "securityContext": {},
            },
        });
        let unknown = builtin("", "v1", "Pod").unwrap().decode("Pod", &mut pod).unwrap();
        assert_eq!(unknown, ["spec.containers[0].x", "spek"]);
        let want = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {
                "containers": [{"name": "a", "resources": {"limits": {"cpu": "1", "memory": "1024"}}}],
                "volumes": [{"name": "v", "emptyDir": {}}], "securityContext": {},
            },
        });
        assert_eq!(pod, want);
    }

    #[test]
    fn lists_know_their_keys() {
        let deployment = builtin("apps", "v1", "Deployment").unwrap();
        let at = |path: &[&str]| {
            path.iter().fold(deployment.root(), |node, name| match *name {
                "[]" => node.items.as_deref().unwrap(),
                name => node.field(name).unwrap(),
            })
        };
        let pod = ["spec", "template", "spec"];
        let ports = at(&[&pod[..], &["containers", "[]", "ports"]].concat());
        assert_eq!(ports.list, ListType::Map(["containerPort".into(), "protocol".into()].into()));
        assert_eq!(ports.patch.as_ref().unwrap().merge_key.as_deref(), Some("containerPort"));
        assert_eq!(at(&[&pod[..], &["tolerations"]].concat()).list, ListType::Atomic);
        assert!(at(&["spec", "selector"]).atomic_map);
        assert!(at(&["spec", "strategy"]).patch.as_ref().unwrap().retain_keys);
    }
}
