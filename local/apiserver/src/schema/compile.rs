//! Is this schema structural, and what is its tree?
//!
//! A CustomResourceDefinition is refused unless pruning and defaulting can be decided by looking at the tree
//! alone: every field has a type, and `allOf`/`anyOf`/`oneOf`/`not` only restrict values. Everything wrong is
//! reported at once, each with its path.

use super::format::Format;
use super::pattern::Pattern;
use super::rules::Rule;
use super::{Additional, Limits, MAX_DEPTH, Node, Types, child, default, index, prune, validate};
use crate::validation::FieldError;
use serde_json::{Map, Number, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Compiles a whole `openAPIV3Schema`.
pub(super) fn structural(schema: &Value, at: &str) -> Result<Node, Vec<FieldError>> {
    let mut compiler = Compiler { errors: Vec::new(), uncorrelated: 0 };
    let node = compiler.node(schema, at, Place::Root, 0);
    if let Some(meta) = node.properties.get("metadata") {
        compiler.metadata(meta, &property(at, "metadata"));
    }
    if compiler.errors.is_empty() { Ok(node) } else { Err(compiler.errors) }
}

/// Where in the schema a node stands: what it must and must not say depends on it.
#[derive(Clone, Copy)]
enum Place<'a> {
    Root,
    Field,
    Item,
    Map,
    /// Below `allOf`, `anyOf`, `oneOf` or `not`: it may restrict what `subject` describes and no more.
    Restriction {
        subject: Option<&'a Node>,
        types: bool,
    },
}

/// Keywords of JSON Schema that Kubernetes does not take.
const REFUSED: [&str; 7] =
    ["$ref", "definitions", "dependencies", "id", "patternProperties", "additionalItems", "$schema"];

/// What a restriction may not say: it would change pruning, defaulting or merging.
const STRUCTURE: [&str; 14] = [
    "description",
    "title",
    "default",
    "nullable",
    "additionalProperties",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
    "example",
    "externalDocs",
];

pub(super) struct Compiler {
    pub(super) errors: Vec<FieldError>,
    /// How many lists without keys lie around the node at hand.
    uncorrelated: usize,
}

impl Compiler {
    pub(super) fn invalid(&mut self, at: impl Into<String>, value: &Value, why: impl AsRef<str>) {
        self.errors.push(FieldError::invalid(at, value, why));
    }

    pub(super) fn forbidden(&mut self, at: impl Into<String>, why: impl AsRef<str>) {
        self.errors.push(FieldError::forbidden(at, why));
    }

    pub(super) fn required(&mut self, at: impl Into<String>, why: impl AsRef<str>) {
        self.errors.push(FieldError::required(at, why));
    }

    fn node(&mut self, raw: &Value, at: &str, place: Place<'_>, depth: usize) -> Node {
        let Some(map) = raw.as_object() else {
            self.invalid(at, raw, "must be an object");
            return Node::default();
        };
        if depth > MAX_DEPTH {
            self.forbidden(at, format!("nested deeper than {MAX_DEPTH} levels"));
            return Node::default();
        }
        let mut node = Node {
            types: self.types(map, at, place),
            nullable: flag(map, "nullable"),
            int_or_string: flag(map, "x-kubernetes-int-or-string"),
            preserve_unknown: flag(map, "x-kubernetes-preserve-unknown-fields"),
            embedded_resource: flag(map, "x-kubernetes-embedded-resource"),
            atomic_map: map.get("x-kubernetes-map-type") == Some(&json!("atomic")),
            default: map.get("default").filter(|d| !d.is_null()).cloned(),
            ..Node::default()
        };
        self.refused(map, at, place);
        self.children(map, at, place, depth, &mut node);
        self.extensions(map, at, &mut node);
        let limits = self.limits(map, at, &node, depth);
        node.limits = limits;
        node.rules = self.rules(map, at, &node, matches!(place, Place::Root));
        node.has_rules = has_rules(&node);
        self.check_default(&node, at);
        node
    }

    fn types(&mut self, map: &Map<String, Value>, at: &str, place: Place<'_>) -> Types {
        let at_type = child(at, "type");
        let free =
            flag(map, "x-kubernetes-int-or-string") || flag(map, "x-kubernetes-preserve-unknown-fields");
        let (named, types) = match map.get("type") {
            None | Some(Value::Null) => ("", Types::NONE),
            Some(Value::String(s)) => (s.as_str(), Types::from_name(s).unwrap_or_default()),
            Some(other) => {
                self.invalid(at_type, other, "must be a string");
                return Types::NONE;
            }
        };
        if !named.is_empty() && types.is_none() {
            let known = ["array", "boolean", "integer", "number", "object", "string"];
            self.errors.push(FieldError::not_supported(&at_type, &json!(named), &known));
        }
        match place {
            Place::Restriction { types: false, .. } if !named.is_empty() => {
                self.forbidden(at_type, "must be empty to be structural");
            }
            Place::Restriction { .. } => {}
            Place::Root if named.is_empty() => {
                self.required(at_type, "must not be empty at the root");
            }
            Place::Root if types != Types::OBJECT => {
                self.invalid(at_type, &json!(named), "must be object at the root");
            }
            Place::Root => {}
            Place::Field | Place::Item | Place::Map if named.is_empty() && !free => {
                let what = match place {
                    Place::Item => "must not be empty for specified array items",
                    Place::Root | Place::Field | Place::Map | Place::Restriction { .. } => {
                        "must not be empty for specified object fields"
                    }
                };
                self.required(at_type, what);
            }
            Place::Field | Place::Item | Place::Map => {}
        }
        if flag(map, "x-kubernetes-int-or-string") && !named.is_empty() {
            let detail = "must be empty if x-kubernetes-int-or-string is true";
            self.invalid(child(at, "type"), &json!(named), detail);
        }
        types
    }

    fn refused(&mut self, map: &Map<String, Value>, at: &str, place: Place<'_>) {
        for key in REFUSED.iter().filter(|k| map.get(**k).is_some_and(|v| !is_empty(v))) {
            self.forbidden(child(at, key), format!("{key} is not supported"));
        }
        if flag(map, "uniqueItems") {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.forbidden(child(at, "uniqueItems"), detail);
        }
        if map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
            let field = child(at, "x-kubernetes-preserve-unknown-fields");
            self.invalid(field, &json!(false), "must be true or undefined");
        }
        if let Place::Restriction { .. } = place {
            for key in STRUCTURE.iter().filter(|k| map.get(**k).is_some_and(|v| !is_empty(v))) {
                self.forbidden(child(at, key), "must be empty to be structural");
            }
        }
    }

    fn children(
        &mut self,
        map: &Map<String, Value>,
        at: &str,
        place: Place<'_>,
        depth: usize,
        node: &mut Node,
    ) {
        let below = |name: Option<&str>, here: Place<'static>| match place {
            Place::Restriction { subject, .. } => Place::Restriction {
                subject: subject.and_then(|s| match name {
                    Some(name) => s.field(name),
                    None => s.items.as_deref(),
                }),
                types: false,
            },
            Place::Root | Place::Field | Place::Item | Place::Map => here,
        };
        let mut properties = BTreeMap::new();
        for (name, raw) in self.object(map, "properties", at) {
            let path = property(at, name);
            self.known_to_subject(place, name, at, &path);
            let compiled = self.node(raw, &path, below(Some(name), Place::Field), depth + 1);
            properties.insert(name.as_str().into(), Arc::new(compiled));
        }
        node.properties = properties;
        let additional_at = child(at, "additionalProperties");
        node.additional = match map.get("additionalProperties") {
            None | Some(Value::Null) => Additional::Unknown,
            Some(Value::Bool(true)) => Additional::Anything,
            Some(Value::Bool(false)) => {
                self.forbidden(additional_at, "additionalProperties cannot be set to false");
                Additional::Unknown
            }
            Some(raw) => {
                if !node.properties.is_empty() {
                    let detail = "additionalProperties and properties are mutual exclusive";
                    self.forbidden(&additional_at, detail);
                }
                Additional::Each(Arc::new(self.node(raw, &additional_at, below(None, Place::Map), depth + 1)))
            }
        };
        node.items = match map.get("items") {
            None | Some(Value::Null) => None,
            Some(list @ Value::Array(_)) => {
                let detail = "items must be a schema object and not an array";
                self.invalid(child(at, "items"), list, detail);
                None
            }
            Some(raw) => {
                let keyed = map.get("x-kubernetes-list-type") == Some(&json!("map"));
                self.uncorrelated += usize::from(!keyed);
                let items = self.node(raw, &child(at, "items"), below(None, Place::Item), depth + 1);
                self.uncorrelated -= usize::from(!keyed);
                Some(Arc::new(items))
            }
        };
        if node.types == Types::ARRAY && node.items.is_none() && !matches!(place, Place::Restriction { .. }) {
            self.required(child(at, "items"), "must be specified");
        }
    }

    /// A restriction may only speak of fields the structure has.
    fn known_to_subject(&mut self, place: Place<'_>, name: &str, at: &str, path: &str) {
        if let Place::Restriction { subject: Some(subject), .. } = place
            && subject.field(name).is_none()
            && !(subject.preserve_unknown || subject.is_map() || subject.embedded_resource)
        {
            let cut = [".allOf[", ".anyOf[", ".oneOf[", ".not"].iter().filter_map(|k| at.find(k)).min();
            let outer = cut.and_then(|i| at.get(..i)).unwrap_or(at);
            let detail = format!("because it is defined in {path}");
            self.required(property(outer, name), detail);
        }
    }

    fn limits(
        &mut self,
        map: &Map<String, Value>,
        at: &str,
        node: &Node,
        depth: usize,
    ) -> Option<Box<Limits>> {
        let limits = Limits {
            format: map.get("format").and_then(Value::as_str).and_then(Format::from_name),
            allowed: map.get("enum").and_then(Value::as_array).filter(|e| !e.is_empty()).cloned(),
            minimum: self.number(map, "minimum", at),
            maximum: self.number(map, "maximum", at),
            exclusive_minimum: flag(map, "exclusiveMinimum"),
            exclusive_maximum: flag(map, "exclusiveMaximum"),
            multiple_of: self.number(map, "multipleOf", at),
            min_length: self.count(map, "minLength", at),
            max_length: self.count(map, "maxLength", at),
            pattern: self.pattern(map, at),
            min_items: self.count(map, "minItems", at),
            max_items: self.count(map, "maxItems", at),
            unique_items: flag(map, "uniqueItems"),
            min_properties: self.count(map, "minProperties", at),
            max_properties: self.count(map, "maxProperties", at),
            required: strings(map.get("required")).into_iter().map(Into::into).collect(),
            all_of: self.restrictions(map, "allOf", at, node, depth),
            any_of: self.restrictions(map, "anyOf", at, node, depth),
            one_of: self.restrictions(map, "oneOf", at, node, depth),
            not: map.get("not").filter(|n| !n.is_null()).map(|raw| {
                let place = Place::Restriction { subject: Some(node), types: node.int_or_string };
                Box::new(self.node(raw, &child(at, "not"), place, depth + 1))
            }),
        };
        let keys = [
            "format",
            "enum",
            "minimum",
            "maximum",
            "multipleOf",
            "minLength",
            "maxLength",
            "pattern",
            "minItems",
            "maxItems",
            "uniqueItems",
            "minProperties",
            "maxProperties",
            "required",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
        ];
        keys.iter().any(|k| map.contains_key(*k)).then(|| Box::new(limits))
    }

    fn restrictions(
        &mut self,
        map: &Map<String, Value>,
        key: &str,
        at: &str,
        node: &Node,
        depth: usize,
    ) -> Vec<Node> {
        let list = map.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let place = Place::Restriction { subject: Some(node), types: node.int_or_string };
        let at = child(at, key);
        list.iter().enumerate().map(|(i, raw)| self.node(raw, &index(&at, i), place, depth + 1)).collect()
    }

    fn pattern(&mut self, map: &Map<String, Value>, at: &str) -> Option<Pattern> {
        let source = map.get("pattern").and_then(Value::as_str).filter(|s| !s.is_empty())?;
        match Pattern::compile(source) {
            Ok(pattern) => Some(pattern),
            Err(why) => {
                let detail = format!("must be a valid regular expression, but isn't: {why}");
                self.invalid(child(at, "pattern"), &json!(source), detail);
                None
            }
        }
    }

    fn number(&mut self, map: &Map<String, Value>, key: &str, at: &str) -> Option<Number> {
        match map.get(key) {
            None | Some(Value::Null) => None,
            Some(Value::Number(n)) => Some(n.clone()),
            Some(other) => {
                self.invalid(child(at, key), other, "must be a number");
                None
            }
        }
    }

    fn count(&mut self, map: &Map<String, Value>, key: &str, at: &str) -> Option<u64> {
        let n = self.number(map, key, at)?;
        if n.as_u64().is_none() {
            let detail = "must be a non-negative integer";
            self.invalid(child(at, key), &Value::Number(n.clone()), detail);
        }
        n.as_u64()
    }

    fn object<'v>(
        &mut self,
        map: &'v Map<String, Value>,
        key: &str,
        at: &str,
    ) -> Vec<(&'v String, &'v Value)> {
        match map.get(key) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Object(map)) => map.iter().collect(),
            Some(other) => {
                self.invalid(child(at, key), other, "must be an object");
                Vec::new()
            }
        }
    }

    fn rules(&mut self, map: &Map<String, Value>, at: &str, node: &Node, resource: bool) -> Box<[Rule]> {
        let at = child(at, "x-kubernetes-validations");
        let raw =
            map.get("x-kubernetes-validations").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut rules = Vec::new();
        for (i, raw) in raw.iter().enumerate() {
            let at = index(&at, i);
            match Rule::compile(raw, &at) {
                Ok(mut rule) => {
                    if let Some((key, why)) = rule.misfit(node, resource || node.embedded_resource) {
                        self.invalid(child(&at, key), &json!(rule.source()), why);
                    }
                    if rule.transition && self.uncorrelated > 0 {
                        let detail = "oldSelf cannot be used on the uncorrelatable portion of the schema: items of this list cannot be told apart";
                        self.invalid(child(&at, "rule"), &json!(rule.source()), detail);
                    }
                    if let Some(path) = rule.field().filter(|path| !has_field(node, path)) {
                        let detail = "fieldPath must be a valid path";
                        self.invalid(child(&at, "fieldPath"), &json!(path), detail);
                    }
                    rules.push(rule);
                }
                Err(errors) => self.errors.extend(errors),
            }
        }
        rules.into()
    }

    fn check_default(&mut self, node: &Node, at: &str) {
        let Some(value) = &node.default else { return };
        let at = child(at, "default");
        let mut filled = value.clone();
        let unknown = prune::bare(node, &mut filled);
        if !unknown.is_empty() {
            let detail = format!("must not contain unknown fields: {}", unknown.join(", "));
            self.invalid(&at, value, detail);
        }
        default::fill(node, &mut filled);
        self.errors.extend(validate::value(node, &filled, &at));
    }

    /// Of `metadata` a schema may only restrict the names.
    fn metadata(&mut self, node: &Node, at: &str) {
        if node.types != Types::OBJECT {
            self.invalid(child(at, "type"), &json!(node.types.names()), "must be object");
        }
        for name in node.properties.keys().filter(|n| !matches!(n.as_ref(), "name" | "generateName")) {
            let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
            self.forbidden(property(at, name), detail);
        }
    }
}

/// Whether the node or anything below it has rules.
pub(crate) fn has_rules(node: &Node) -> bool {
    !node.rules.is_empty()
        || node.properties.values().any(|n| n.has_rules)
        || node.items.as_ref().is_some_and(|n| n.has_rules)
        || node.additional.each().is_some_and(|n| n.has_rules)
}

fn has_field(node: &Node, path: &str) -> bool {
    let mut node = Some(node);
    for name in path.split('.') {
        node = match node {
            Some(n) => n.field(name),
            None => return false,
        };
    }
    // Map keys may hold dots, so below a map anything goes.
    node.is_some()
}

fn flag(map: &Map<String, Value>, key: &str) -> bool {
    map.get(key) == Some(&Value::Bool(true))
}

pub(super) fn strings(list: Option<&Value>) -> Vec<&str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(s) => s.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

pub(super) fn property(at: &str, name: &str) -> String {
    format!("{at}.properties[{name}]")
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
mod tests {
    use super::*;
    use crate::schema::Schema;

    fn refusals(schema: Value) -> Vec<String> {
        let schema = json!({"type": "object", "properties": {"spec": schema}});
        match Schema::compile(&schema, "s") {
            Ok(_) => Vec::new(),
            Err(errors) => errors.iter().map(|e| format!("{} {}", e.reason, e.field)).collect(),
        }
    }

    #[test]
    fn each_breach_of_structure_is_named_by_its_path() {
        let cases = [
            (json!({}), "FieldValueRequired s.properties[spec].type"),
            (json!({"type": "strin"}), "FieldValueNotSupported s.properties[spec].type"),
            (json!({"type": "string", "$ref": "#/x"}), "FieldValueForbidden s.properties[spec].$ref"),
            (json!({"type": "array"}), "FieldValueRequired s.properties[spec].items"),
            (json!({"type": "array", "items": {}}), "FieldValueRequired s.properties[spec].items.type"),
            (
                json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
                "FieldValueForbidden s.properties[spec].uniqueItems",
            ),
            (
                json!({"type": "object", "additionalProperties": false}),
                "FieldValueForbidden s.properties[spec].additionalProperties",
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
                "FieldValueForbidden s.properties[spec].additionalProperties",
            ),
            (json!({"type": "string", "pattern": "("}), "FieldValueInvalid s.properties[spec].pattern"),
            (
                json!({"type": "string", "anyOf": [{"type": "string"}]}),
                "FieldValueForbidden s.properties[spec].anyOf[0].type",
            ),
            (
                json!({"type": "object", "anyOf": [{"properties": {"a": {"minimum": 1}}}]}),
                "FieldValueRequired s.properties[spec].properties[a]",
            ),
            (json!({"type": "integer", "default": "x"}), "FieldValueTypeInvalid s.properties[spec].default"),
            (json!({"type": "object", "default": {"z": 1}}), "FieldValueInvalid s.properties[spec].default"),
            (
                json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "bag"}),
                "FieldValueNotSupported s.properties[spec].x-kubernetes-list-type",
            ),
            (
                json!({"type": "array", "items": {"type": "object", "properties": {}}, "x-kubernetes-list-type": "map"}),
                "FieldValueRequired s.properties[spec].x-kubernetes-list-map-keys",
            ),
            (
                json!({"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["b"]}),
                "FieldValueInvalid s.properties[spec].x-kubernetes-list-map-keys[0]",
            ),
            (
                json!({"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]}),
                "FieldValueRequired s.properties[spec].items.properties[a].default",
            ),
            (
                json!({"type": "string", "x-kubernetes-map-type": "atomic"}),
                "FieldValueInvalid s.properties[spec].type",
            ),
            (
                json!({"type": "string", "x-kubernetes-int-or-string": true}),
                "FieldValueInvalid s.properties[spec].type",
            ),
            (
                json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false}),
                "FieldValueInvalid s.properties[spec].x-kubernetes-preserve-unknown-fields",
            ),
            (json!("x"), "FieldValueInvalid s.properties[spec]"),
        ];
        for (schema, want) in cases {
            let found = refusals(schema.clone());
            assert!(found.iter().any(|f| f == want), "{schema}: {found:?}");
        }
    }

    #[test]
    fn the_root_is_an_object_and_metadata_is_left_alone() {
        let refused = |schema: Value| Schema::compile(&schema, "s").unwrap_err().remove(0);
        assert_eq!(refused(json!({"type": "string"})).field, "s.type");
        assert_eq!(refused(json!({})).field, "s.type");
        let labels = json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {
            "name": {"type": "string", "maxLength": 9}, "labels": {"type": "object"}}}}});
        assert_eq!(refused(labels).field, "s.properties[metadata].properties[labels]");
    }

    #[test]
    fn items_without_keys_have_no_older_selves_to_compare_with() {
        let list = |kind: &str| {
            json!({"type": "array", "x-kubernetes-list-type": kind, "x-kubernetes-list-map-keys": if kind == "map" { json!(["n"]) } else { json!([]) },
                "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}}, "x-kubernetes-map-type": "atomic",
                    "x-kubernetes-validations": [{"rule": "self.n == oldSelf.n"}]}})
        };
        assert_eq!(refusals(list("map")), Vec::<String>::new());
        for kind in ["atomic", "set"] {
            assert_eq!(
                refusals(list(kind)),
                ["FieldValueInvalid s.properties[spec].items.x-kubernetes-validations[0].rule"]
            );
        }
    }

    #[test]
    fn int_or_string_may_be_spelled_out() {
        let schema = json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": "^[0-9]+%?$"});
        assert_eq!(refusals(schema), Vec::<String>::new());
    }

    #[test]
    fn a_schema_nested_without_end_is_refused() {
        let mut schema = json!({"type": "string"});
        for _ in 0..(MAX_DEPTH + 10) {
            schema = json!({"type": "object", "properties": {"a": schema}});
        }
        let errors = Schema::compile(&schema, "s").unwrap_err();
        assert!(errors.iter().any(|e| e.message.contains("nested deeper")), "{errors:?}");
    }
}
