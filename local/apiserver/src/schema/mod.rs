//! What may an object of this kind look like?
//!
//! A [`Schema`] is an `openAPIV3Schema` compiled once: a tree of small nodes with patterns and rules ready to
//! run. Every question the server asks about an object is a walk of that tree next to the object:
//!
//! ```text
//! decode → prune (unknown fields go, and are named) → default (absent fields come) → validate → store
//!                                                          lists' topology ─────────→ apply, patch
//! ```
//!
//! JSON Schema libraries do not fit: `nullable`, boolean `exclusiveMinimum`, `x-kubernetes-*`, RE2 patterns
//! and the wording of errors are Kubernetes' own, and pruning, defaulting and merging walk the same tree.
//!
//! | file | question |
//! |---|---|
//! | `builtin` | what may an object of a built-in kind look like? |
//! | `compile` | is this schema structural, and what is its tree? |
//! | `extensions` | do its `x-kubernetes-*` words fit? |
//! | `prune` | which fields does the schema not know? |
//! | `default` | which fields does the schema fill in? |
//! | `validate` | which values break the schema? |
//! | `pattern` | does this string match, as Go would have it? |
//! | `format` | is this string a date, an address, a UUID…? |
//! | `rules` | which CEL rules does the object break? |
//! | `cel` | what does a CEL expression see and mean? |
//! | `typecheck` | does a rule speak of fields that exist? |
//! | `cost` | would a rule take too long on this object? |

mod at;
mod builtin;
mod cel;
mod compile;
mod cost;
mod default;
mod extensions;
mod format;
mod pattern;
mod prune;
mod rules;
mod typecheck;
mod validate;

use crate::validation::FieldError;
use format::Format;
use pattern::Pattern;
use rules::Rule;
use serde_json::{Number, Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

pub(crate) use at::At;
pub(crate) use builtin::definition_name;
pub use builtin::{builtin, definitions};
pub(crate) use cel::{FUNCTIONS, execute, expression, untyped};
pub(crate) use cost::Budget;
pub(crate) use rules::usable;
pub(crate) use validate::canonical;

/// How deep schemas and objects may nest. The deepest real schemas (pod templates in custom resources) have
/// about 20 levels; 100 leaves room and keeps every recursive walk far from the end of a 2 MiB stack.
pub(crate) const MAX_DEPTH: usize = 100;

/// A compiled schema for one version of one kind. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Schema {
    root: Arc<Node>,
    /// A built-in kind: its objects pass through types in which a null is no value at all.
    typed: bool,
}

impl Schema {
    /// Compiles the `openAPIV3Schema` of a CustomResourceDefinition, refusing what its creation refuses.
    /// Errors' fields begin with `at`, as in `spec.versions[0].schema.openAPIV3Schema`.
    pub fn compile(schema: &Value, at: &str) -> Result<Self, Vec<FieldError>> {
        compile::structural(schema, at).map(|root| Self { root: Arc::new(root), typed: false })
    }

    /// A schema that keeps everything and checks nothing: a version without a schema.
    pub fn anything() -> Self {
        Self { root: Arc::new(Node { preserve_unknown: true, ..Node::default() }), typed: false }
    }

    pub(crate) fn builtin(root: Arc<Node>) -> Self {
        Self { root, typed: true }
    }

    /// Removes what the schema does not know from a whole resource, and names it: `spec.tags[0].x`.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::resource(&self.root, object)
    }

    /// Fills in defaults, and drops nulls where null is not a value.
    pub fn default(&self, object: &mut Value) {
        default::fill(&self.root, object);
    }

    /// Fills in defaults after an apply. A null that removal left in a custom resource stays for validation
    /// to refuse, as on a real server.
    pub(crate) fn fill_applied(&self, object: &mut Value) {
        match self.typed {
            true => default::fill(&self.root, object),
            false => default::defaults(&self.root, object),
        }
    }

    /// Everything wrong with a whole resource; `old` is what it replaces, for transition rules.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        validate::resource(&self.root, object, old)
    }

    pub(crate) fn root(&self) -> &Node {
        &self.root
    }
}

/// The JSON types a node accepts, as bits: nodes inside `anyOf` may accept several or say nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Types(u8);

impl Types {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const OBJECT: Self = Self(1);
    pub(crate) const ARRAY: Self = Self(2);
    pub(crate) const STRING: Self = Self(4);
    pub(crate) const INTEGER: Self = Self(8);
    pub(crate) const NUMBER: Self = Self(16);
    pub(crate) const BOOLEAN: Self = Self(32);

    const NAMED: [(Self, &'static str); 6] = [
        (Self::INTEGER, "integer"),
        (Self::STRING, "string"),
        (Self::OBJECT, "object"),
        (Self::ARRAY, "array"),
        (Self::NUMBER, "number"),
        (Self::BOOLEAN, "boolean"),
    ];

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::NAMED.iter().find(|(_, n)| *n == name).map(|(t, _)| *t)
    }

    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn names(self) -> String {
        let names: Vec<&str> = Self::NAMED.iter().filter(|(t, _)| self.has(*t)).map(|(_, n)| *n).collect();
        names.join(",")
    }
}

/// How the items of a list are told apart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum ListType {
    /// One value as a whole.
    #[default]
    Atomic,
    /// Each item is its own identity.
    Set,
    /// The named fields of an item are its identity.
    Map(Box<[Box<str>]>),
}

/// What a node says about fields it does not name.
#[derive(Debug, Clone, Default)]
pub(crate) enum Additional {
    /// They are unknown.
    #[default]
    Unknown,
    /// They may be anything.
    Anything,
    /// Every one has this schema: the node is a map.
    Each(Arc<Node>),
}

/// How a strategic merge patch treats a list or a map.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PatchStrategy {
    pub(crate) merge: bool,
    pub(crate) replace: bool,
    pub(crate) retain_keys: bool,
    pub(crate) merge_key: Option<Box<str>>,
}

/// One node of a compiled schema.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) types: Types,
    pub(crate) nullable: bool,
    pub(crate) int_or_string: bool,
    pub(crate) preserve_unknown: bool,
    pub(crate) embedded_resource: bool,
    pub(crate) atomic_map: bool,
    pub(crate) list: ListType,
    pub(crate) properties: BTreeMap<Box<str>, Arc<Node>>,
    pub(crate) additional: Additional,
    pub(crate) items: Option<Arc<Node>>,
    pub(crate) default: Option<Value>,
    /// Most nodes restrict nothing beyond their type; those that do pay for a box.
    pub(crate) limits: Option<Box<Limits>>,
    pub(crate) rules: Box<[Rule]>,
    /// Whether any node at or below this one has rules: walks for rules skip the rest.
    pub(crate) has_rules: bool,
    pub(crate) patch: Option<Box<PatchStrategy>>,
}

/// What a node demands of a value beyond its type.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    pub(crate) format: Option<Format>,
    pub(crate) allowed: Option<Vec<Value>>,
    pub(crate) minimum: Option<Number>,
    pub(crate) maximum: Option<Number>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) exclusive_maximum: bool,
    pub(crate) multiple_of: Option<Number>,
    pub(crate) min_length: Option<u64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) min_items: Option<u64>,
    pub(crate) max_items: Option<u64>,
    pub(crate) unique_items: bool,
    pub(crate) min_properties: Option<u64>,
    pub(crate) max_properties: Option<u64>,
    pub(crate) required: Vec<Box<str>>,
    pub(crate) all_of: Vec<Node>,
    pub(crate) any_of: Vec<Node>,
    pub(crate) one_of: Vec<Node>,
    pub(crate) not: Option<Box<Node>>,
}

impl Node {
    /// The schema of a field by name: a property, or what every additional field has.
    pub(crate) fn field(&self, name: &str) -> Option<&Node> {
        match (self.properties.get(name), &self.additional) {
            (Some(node), _) => Some(node),
            (None, Additional::Each(node)) => Some(node),
            (None, Additional::Unknown | Additional::Anything) => None,
        }
    }

    pub(crate) fn is_map(&self) -> bool {
        matches!(self.additional, Additional::Each(_) | Additional::Anything)
    }
}

/// The schema of `metadata`, the same for every kind.
pub(crate) fn object_meta() -> &'static Node {
    static OBJECT_META: LazyLock<Node> = LazyLock::new(|| {
        let text = json!({"type": "string"});
        let map = json!({"type": "object", "additionalProperties": text});
        let owner = json!({"type": "object", "properties": {
            "apiVersion": text, "kind": text, "name": text, "uid": text,
            "controller": {"type": "boolean"}, "blockOwnerDeletion": {"type": "boolean"},
        }, "required": ["uid"], "x-kubernetes-map-type": "atomic"});
        let schema = json!({"type": "object", "properties": {
            "name": text, "generateName": text, "namespace": text, "selfLink": text, "uid": text,
            "resourceVersion": text, "generation": {"type": "integer"}, "creationTimestamp": text,
            "deletionTimestamp": text, "deletionGracePeriodSeconds": {"type": "integer"},
            "labels": map, "annotations": map,
            "finalizers": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
            "ownerReferences": {"type": "array", "items": owner, "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["uid"]},
            "managedFields": {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        }});
        compile::structural(&schema, "metadata").unwrap_or_default()
    });
    &OBJECT_META
}

/// `a.b`: the path of a field below `path`.
pub(crate) fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// `a[3]`: the path of an item below `path`.
pub(crate) fn index(path: &str, i: usize) -> String {
    format!("{path}[{i}]")
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The widget whose conversation with a real kube-apiserver 1.36 was recorded.
    fn widget() -> Schema {
        let spec = json!({"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 9},
            "mode": {"type": "string", "enum": ["on", "off"], "default": "on"},
            "id": {"type": "string", "pattern": "^[a-z]+$", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "id is immutable"}]},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set", "maxItems": 3},
            "lo": {"type": "integer"}, "hi": {"type": "integer"}, "at": {"type": "string", "format": "date-time"},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "ios": {"x-kubernetes-int-or-string": true},
        }, "x-kubernetes-validations": [{"rule": "!has(self.lo) || !has(self.hi) || self.lo <= self.hi", "message": "lo must not exceed hi"}]});
        let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let schema = json!({"type": "object", "properties": {"spec": spec, "status": status}});
        Schema::compile(&schema, "s").unwrap()
    }

    fn object(spec: Value) -> Value {
        json!({"apiVersion": "g.example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec})
    }

    #[test]
    fn a_good_widget_is_pruned_defaulted_and_valid() {
        let mut widget_object = object(
            json!({"size": 3, "unknown": 1, "id": "abc", "any": {"deep": [1, {"x": null}]}, "ios": "50%"}),
        );
        let schema = widget();
        assert_eq!(schema.prune(&mut widget_object), ["spec.unknown"]);
        schema.default(&mut widget_object);
        assert_eq!(schema.validate(&widget_object, None), []);
        let want =
            json!({"any": {"deep": [1, {"x": null}]}, "id": "abc", "ios": "50%", "mode": "on", "size": 3});
        assert_eq!(widget_object["spec"], want);
    }

    #[test]
    fn bad_widgets_have_the_causes_a_real_server_gives() {
        let skipped = ("<nil>", "FieldValueInvalid");
        let cases = [
            (json!({"size": 0}), vec![("spec.size", "FieldValueInvalid")]),
            (json!({}), vec![skipped, ("spec.size", "FieldValueRequired")]),
            (json!({"size": "three"}), vec![skipped, ("spec.size", "FieldValueTypeInvalid")]),
            (json!({"size": 1, "mode": "maybe"}), vec![skipped, ("spec.mode", "FieldValueNotSupported")]),
            (json!({"size": 1, "id": "ABC"}), vec![("spec.id", "FieldValueInvalid")]),
            (json!({"size": 1, "tags": ["x", "x"]}), vec![("spec.tags[1]", "FieldValueDuplicate")]),
            (
                json!({"size": 1, "tags": ["1", "2", "3", "4"]}),
                vec![skipped, ("spec.tags", "FieldValueTooMany")],
            ),
            (json!({"size": 1, "lo": 5, "hi": 2}), vec![("spec", "FieldValueInvalid")]),
            (json!({"size": 1, "at": "yesterday"}), vec![skipped, ("spec.at", "FieldValueTypeInvalid")]),
        ];
        for (spec, want) in cases {
            let errors = widget().validate(&object(spec.clone()), None);
            let mut got: Vec<_> = errors.iter().map(|e| (e.field.as_str(), e.reason.as_str())).collect();
            got.sort_unstable();
            assert_eq!(got, want, "{spec}");
        }
        let (old, new) = (object(json!({"size": 1, "id": "abc"})), object(json!({"size": 1, "id": "xyz"})));
        let errors = widget().validate(&new, Some(&old));
        assert_eq!(errors[0].to_string(), "spec.id: Invalid value: \"xyz\": id is immutable");
    }

    /// JSON made of the words schemas are made of, nested as schemas nest.
    fn soup() -> impl Strategy<Value = Value> {
        let keys = prop::sample::select(vec![
            "type",
            "properties",
            "items",
            "additionalProperties",
            "default",
            "enum",
            "required",
            "nullable",
            "pattern",
            "format",
            "minimum",
            "maxLength",
            "multipleOf",
            "exclusiveMaximum",
            "anyOf",
            "not",
            "$ref",
            "a",
            "b",
            "metadata",
            "x-kubernetes-list-type",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-map-type",
            "x-kubernetes-validations",
            "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-int-or-string",
            "x-kubernetes-embedded-resource",
            "rule",
            "messageExpression",
            "fieldPath",
            "optionalOldSelf",
        ]);
        let words = prop::sample::select(vec![
            "object",
            "array",
            "string",
            "integer",
            "number",
            "boolean",
            "set",
            "map",
            "atomic",
            "a",
            "b",
            "[",
            "^a+$",
            "byte",
            "date-time",
            "int32",
            ".a",
            "self.a == oldSelf.a",
            "self.b.all(x, x > self.a)",
            "has(self.a) ? self.a : 1",
            "self.?a.orValue(1) == 1",
            "cel.bind(x, self, x.a)",
            "type(self) == string",
            "self + self == self",
            "-self.a < 0",
            "self.b[self.a]",
            "duration(self.a) > duration('1s')",
            "'%s'.format([self])",
            "self.a.substring(-1, 99)",
            "quantity(self.a).asInteger() > 1",
            "self.b.sum() / 0 == 1",
            "self.a.find('(') == ''",
        ]);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            prop_oneof![-3..9_i64, any::<i64>()].prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            words.prop_map(Value::from),
            "\\PC{0,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 48, 6, move |inner| {
            prop_oneof![
                1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                3 => prop::collection::btree_map(keys.clone().prop_map(str::to_owned), inner, 0..6)
                    .prop_map(|m| m.into_iter().collect::<Value>()),
            ]
        })
    }

    fn rule() -> impl Strategy<Value = Value> {
        soup().prop_map(|words| match words {
            Value::String(s) => json!({ "rule": s }),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => json!({"rule": "self.a == oldSelf.a", "messageExpression": "string(self.a)", "optionalOldSelf": other}),
        })
    }

    proptest! {
        #[test]
        fn no_schema_and_no_object_panics(schema in soup(), object in soup(), old in soup()) {
            let wrapped = json!({"type": "object", "properties": {"a": schema.clone(), "b": {"type": "array", "items": schema.clone()}}});
            for schema in [schema, wrapped] {
                let Ok(schema) = Schema::compile(&schema, "s") else { continue };
                let mut pruned = object.clone();
                schema.prune(&mut pruned);
                schema.default(&mut pruned);
                schema.validate(&pruned, None);
                schema.validate(&object, Some(&old));
            }
        }

        #[test]
        fn no_rule_panics(rules in prop::collection::vec(rule(), 1..3), object in soup(), old in soup()) {
            let any = json!({"type": "object", "properties": {
                "a": {"x-kubernetes-int-or-string": true},
                "b": {"type": "array", "items": {"type": "integer"}},
            }, "x-kubernetes-validations": rules});
            if let Ok(schema) = Schema::compile(&any, "s") {
                schema.validate(&object, Some(&old));
                schema.validate(&json!({"a": object, "b": [1, 2]}), Some(&json!({"a": old})));
            }
        }
    }
}
