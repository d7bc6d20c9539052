//! Which values break the schema?
//!
//! Three passes, as the real server makes them: values against the schema, lists against their topology, and
//! CEL rules. Rules assume well-typed values, so they are skipped (and that is said) when the first pass
//! found something that would confuse them. On an update, a part that equals what was stored is not judged
//! again: an object does not become unwritable because its schema grew stricter.

use super::at::At;
use super::{Additional, Limits, ListType, MAX_DEPTH, Node, Types, rules};
use crate::validation::{CauseReason, FieldError, NO_FIELD, NameRule, quote};
use serde_json::{Map, Number, Value, json};
use std::cmp::Ordering;
use std::collections::HashMap;

const RULES_SKIPPED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

/// Everything wrong with a whole resource.
pub(super) fn resource(node: &Node, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    values(node, object, old, &At::ROOT, 0, &mut errors);
    topology(node, object, &At::ROOT, 0, &mut errors);
    if errors.iter().any(|e| blocks_rules(e.reason)) {
        if node.has_rules {
            errors.push(FieldError::invalid(NO_FIELD, &Value::Null, RULES_SKIPPED));
        }
    } else {
        rules::evaluate(node, object, old, &mut errors);
    }
    errors
}

/// Everything wrong with a bare value, as a default is checked. Rules are not run.
pub(super) fn value(node: &Node, value: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let at = At::Start(path);
    values(node, value, None, &at, 0, &mut errors);
    topology(node, value, &at, 0, &mut errors);
    errors
}

/// Problems after which a rule could fail for the wrong reason.
fn blocks_rules(reason: CauseReason) -> bool {
    match reason {
        CauseReason::NotSupported
        | CauseReason::Required
        | CauseReason::TooLong
        | CauseReason::TooMany
        | CauseReason::TypeInvalid
        | CauseReason::InternalError => true,
        CauseReason::NotFound | CauseReason::Duplicate | CauseReason::Invalid | CauseReason::Forbidden => {
            false
        }
    }
}

fn values(
    node: &Node,
    value: &Value,
    old: Option<&Value>,
    path: &At<'_>,
    depth: usize,
    errors: &mut Vec<FieldError>,
) {
    if depth > MAX_DEPTH {
        errors.push(FieldError::internal(path, format!("nested deeper than {MAX_DEPTH} levels")));
        return;
    }
    if old == Some(value) {
        return;
    }
    if !type_fits(node, value, path, errors) {
        if let Some(limits) = &node.limits {
            allowed(limits, node, value, path, errors);
        }
        return;
    }
    if let Some(limits) = &node.limits {
        junctors(limits, value, path, depth, errors);
        match value {
            Value::String(s) => string(limits, value, s, path, errors),
            Value::Number(n) => number(limits, value, n, path, errors),
            Value::Array(items) => array(limits, value, items, path, errors),
            Value::Object(_) | Value::Bool(_) | Value::Null => {}
        }
        allowed(limits, node, value, path, errors);
        if let Value::Object(map) = value {
            object(limits, value, map, path, errors);
        }
    }
    match value {
        Value::Object(map) => fields(node, map, old, path, depth, errors),
        Value::Array(list) => items(node, list, old, path, depth, errors),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn fields(
    node: &Node,
    map: &Map<String, Value>,
    old: Option<&Value>,
    path: &At<'_>,
    depth: usize,
    errors: &mut Vec<FieldError>,
) {
    for (name, value) in map {
        if let Some(field) = node.field(name) {
            let old = old.and_then(|o| o.get(name));
            values(field, value, old, &path.field(name), depth + 1, errors);
        }
    }
}

fn items(
    node: &Node,
    list: &[Value],
    old: Option<&Value>,
    path: &At<'_>,
    depth: usize,
    errors: &mut Vec<FieldError>,
) {
    let Some(item_node) = &node.items else { return };
    let before = correlate(node, old);
    for (i, item) in list.iter().enumerate() {
        let old = before.get(&item_key(node, item)).copied();
        values(item_node, item, old, &path.item(i), depth + 1, errors);
    }
}

/// The old items by identity; empty where items have none, for then nothing says which was which.
pub(super) fn correlate<'a>(node: &Node, old: Option<&'a Value>) -> HashMap<String, &'a Value> {
    match (&node.list, old.and_then(Value::as_array)) {
        (ListType::Map(_), Some(old)) => old.iter().map(|item| (item_key(node, item), item)).collect(),
        (ListType::Atomic | ListType::Set | ListType::Map(_), _) => HashMap::new(),
    }
}

/// What tells an item of a list from the others.
pub(super) fn item_key(node: &Node, item: &Value) -> String {
    match &node.list {
        ListType::Map(keys) => {
            let identity: Map<String, Value> = keys
                .iter()
                .filter_map(|key| item.get(key.as_ref()).map(|v| (key.to_string(), v.clone())))
                .collect();
            canonical(&Value::Object(identity))
        }
        ListType::Set => canonical(item),
        ListType::Atomic => String::new(),
    }
}

/// The JSON text of a value with its keys in order, so that equal values have equal texts.
pub(crate) fn canonical(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort_unstable();
            let fields: Vec<String> = keys
                .into_iter()
                .filter_map(|k| map.get(k).map(|v| format!("{}:{}", quote(k), canonical(v))))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(canonical).collect();
            format!("[{}]", items.join(","))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

fn type_fits(node: &Node, value: &Value, path: &At<'_>, errors: &mut Vec<FieldError>) -> bool {
    let types = match node.int_or_string && node.types.is_none() {
        true => Types::INTEGER.and(Types::STRING),
        false => node.types,
    };
    let (got, fits) = match value {
        Value::Null => ("null", node.nullable),
        Value::Object(_) => ("object", types.has(Types::OBJECT)),
        Value::Array(_) => ("array", types.has(Types::ARRAY)),
        Value::String(_) => ("string", types.has(Types::STRING)),
        Value::Bool(_) => ("boolean", types.has(Types::BOOLEAN)),
        Value::Number(n) if is_integral(n) => ("integer", types.has(Types::INTEGER.and(Types::NUMBER))),
        Value::Number(_) => ("number", types.has(Types::NUMBER)),
    };
    if types.is_none() || fits {
        return true;
    }
    let detail = format!("{path} in body must be of type {}: {}", types.names(), quote(got));
    errors.push(FieldError::type_invalid(path, value, detail));
    false
}

/// `1` and `1.0` are the same JSON number.
pub(super) fn is_integral(n: &Number) -> bool {
    n.is_i64() || n.is_u64() || n.as_f64().is_some_and(|f| f.fract() == 0.0)
}

fn allowed(limits: &Limits, node: &Node, value: &Value, path: &At<'_>, errors: &mut Vec<FieldError>) {
    let Some(allowed) = &limits.allowed else { return };
    let same = |a: &Value| match (a, value) {
        (Value::Number(a), Value::Number(b)) => compare(a, b) == Some(Ordering::Equal),
        (a, b) => a == b,
    };
    // A null that the type already refused needs no second complaint.
    if (value.is_null() && !node.nullable && !node.types.is_none()) || allowed.iter().any(same) {
        return;
    }
    let supported: Vec<String> =
        allowed.iter().map(|a| a.as_str().map_or_else(|| a.to_string(), str::to_owned)).collect();
    errors.push(FieldError::not_supported(path, value, &supported));
}

fn string(limits: &Limits, value: &Value, s: &str, path: &At<'_>, errors: &mut Vec<FieldError>) {
    let needs_length = limits.max_length.is_some() || limits.min_length.is_some();
    let length = if needs_length { s.chars().count() as u64 } else { 0 };
    if let Some(max) = limits.max_length.filter(|max| length > *max) {
        errors.push(FieldError::too_long(path, max));
    }
    if let Some(min) = limits.min_length.filter(|min| length < *min) {
        let detail = format!("{path} in body should be at least {min} chars long");
        errors.push(FieldError::invalid(path, value, detail));
    }
    if let Some(pattern) = limits.pattern.as_ref().filter(|p| !p.is_match(s)) {
        let detail = format!("{path} in body should match '{pattern}'");
        errors.push(FieldError::invalid(path, value, detail));
    }
    if let Some(format) = limits.format.filter(|f| !f.accepts(s)) {
        let detail = format!("{path} in body must be of type {}: {}", format.name(), quote(s));
        errors.push(FieldError::type_invalid(path, value, detail));
    }
}

fn number(limits: &Limits, value: &Value, n: &Number, path: &At<'_>, errors: &mut Vec<FieldError>) {
    let mut complain = |detail: String| {
        let detail = format!("{path} in body {detail}");
        errors.push(FieldError::invalid(path, value, detail));
    };
    if let Some(step) = limits.multiple_of.as_ref().filter(|step| !is_multiple(n, step)) {
        complain(format!("should be a multiple of {step}"));
    }
    for (bound, exclusive, beyond, than) in [
        (&limits.maximum, limits.exclusive_maximum, Ordering::Greater, "less than"),
        (&limits.minimum, limits.exclusive_minimum, Ordering::Less, "greater than"),
    ] {
        let Some(bound) = bound else { continue };
        match compare(n, bound) {
            Some(order) if exclusive && (order == beyond || order == Ordering::Equal) => {
                complain(format!("should be {than} {bound}"));
            }
            Some(order) if !exclusive && order == beyond => {
                complain(format!("should be {than} or equal to {bound}"));
            }
            Some(_) | None => {}
        }
    }
    if let Some(format) = limits.format.filter(|f| !f.holds(n)) {
        let detail = format!("Checked value must be of type integer with format {} in {path}", format.name());
        errors.push(FieldError::type_invalid(path, value, detail));
    }
}

fn array(limits: &Limits, value: &Value, items: &[Value], path: &At<'_>, errors: &mut Vec<FieldError>) {
    let count = items.len() as u64;
    if let Some(min) = limits.min_items.filter(|min| count < *min) {
        let detail = format!("{path} in body should have at least {min} items");
        errors.push(FieldError::invalid(path, value, detail));
    }
    if let Some(max) = limits.max_items.filter(|max| count > *max) {
        errors.push(FieldError::too_many(path, items.len(), max));
    }
    if limits.unique_items && first_repeats(items.iter().map(canonical)).next().is_some() {
        let detail = format!("{path} in body shouldn't contain duplicates");
        errors.push(FieldError::invalid(path, value, detail));
    }
}

fn object(
    limits: &Limits,
    value: &Value,
    map: &Map<String, Value>,
    path: &At<'_>,
    errors: &mut Vec<FieldError>,
) {
    let count = map.len() as u64;
    if let Some(min) = limits.min_properties.filter(|min| count < *min) {
        let detail = format!("{path} in body should have at least {min} properties");
        errors.push(FieldError::invalid(path, value, detail));
    }
    if let Some(max) = limits.max_properties.filter(|max| count > *max) {
        errors.push(FieldError::too_many(path, map.len(), max));
    }
    for name in limits.required.iter().filter(|name| !map.contains_key(name.as_ref())) {
        errors.push(FieldError::required(&path.field(name), ""));
    }
}

fn junctors(limits: &Limits, value: &Value, path: &At<'_>, depth: usize, errors: &mut Vec<FieldError>) {
    let judge = |node: &Node| {
        let mut found = Vec::new();
        values(node, value, None, path, depth + 1, &mut found);
        found
    };
    let mut complain = |detail: String, causes: Vec<FieldError>| {
        errors.extend(causes);
        errors.push(FieldError::invalid(
            NO_FIELD,
            &json!(""),
            format!("{} {detail}", quote(&path.to_string())),
        ));
    };
    // Where no alternative fits, the one that came closest says why.
    let closest =
        |failures: Vec<Vec<FieldError>>| failures.into_iter().min_by_key(Vec::len).unwrap_or_default();
    if !limits.any_of.is_empty() {
        let results: Vec<_> = limits.any_of.iter().map(judge).collect();
        if results.iter().all(|r| !r.is_empty()) {
            complain("must validate at least one schema (anyOf)".to_owned(), closest(results));
        }
    }
    if !limits.one_of.is_empty() {
        let results: Vec<_> = limits.one_of.iter().map(judge).collect();
        match results.iter().filter(|r| r.is_empty()).count() {
            1 => {}
            0 => {
                let detail = "must validate one and only one schema (oneOf). Found none valid";
                complain(detail.to_owned(), closest(results));
            }
            n => {
                let detail =
                    format!("must validate one and only one schema (oneOf). Found {n} valid alternatives");
                complain(detail, Vec::new());
            }
        }
    }
    if !limits.all_of.is_empty() {
        let results: Vec<_> = limits.all_of.iter().map(judge).collect();
        let valid = results.iter().filter(|r| r.is_empty()).count();
        if valid < results.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            complain(
                format!("must validate all the schemas (allOf){none}"),
                results.into_iter().flatten().collect(),
            );
        }
    }
    if limits.not.as_ref().is_some_and(|node| judge(node).is_empty()) {
        complain("must not validate the schema (not)".to_owned(), Vec::new());
    }
}

/// Lists of sets and maps hold each item once; embedded resources say what they are.
fn topology(node: &Node, value: &Value, path: &At<'_>, depth: usize, errors: &mut Vec<FieldError>) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::Object(map) => {
            if node.embedded_resource {
                embedded(map, path, errors);
            }
            for (name, value) in map {
                if let Some(field) = node.field(name) {
                    topology(field, value, &path.field(name), depth + 1, errors);
                }
            }
        }
        Value::Array(items) => {
            if node.list != ListType::Atomic {
                for i in first_repeats(items.iter().map(|item| item_key(node, item))) {
                    let shown = match (&node.list, items.get(i)) {
                        (_, None) => Value::Null,
                        (ListType::Map(keys), Some(item)) => keys
                            .iter()
                            .filter_map(|k| Some((k.to_string(), item.get(k.as_ref())?.clone())))
                            .collect(),
                        (ListType::Set | ListType::Atomic, Some(item)) => item.clone(),
                    };
                    errors.push(FieldError::duplicate(&path.item(i), &shown));
                }
            }
            let Some(node) = &node.items else { return };
            for (i, item) in items.iter().enumerate() {
                topology(node, item, &path.item(i), depth + 1, errors);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn embedded(map: &Map<String, Value>, path: &At<'_>, errors: &mut Vec<FieldError>) {
    for key in ["apiVersion", "kind"] {
        if map.get(key).and_then(Value::as_str).unwrap_or_default().is_empty() {
            errors.push(FieldError::required(&path.field(key), "must not be empty"));
        }
    }
    let meta = map.get("metadata");
    if let Some(name) = meta.and_then(|m| m.get("name")).and_then(Value::as_str).filter(|n| !n.is_empty()) {
        for wrong in NameRule::PathSegment.check(name, false) {
            errors.push(FieldError::invalid(&path.field("metadata.name"), &json!(name), wrong));
        }
    }
}

/// The index of each second occurrence; a third says nothing new.
fn first_repeats(keys: impl Iterator<Item = String>) -> impl Iterator<Item = usize> {
    let mut seen: HashMap<String, bool> = HashMap::new();
    keys.enumerate().filter_map(move |(i, key)| match seen.get_mut(&key) {
        None => {
            seen.insert(key, false);
            None
        }
        Some(reported) => (!std::mem::replace(reported, true)).then_some(i),
    })
}

/// Exact where both are integers, as doubles otherwise.
pub(super) fn compare(a: &Number, b: &Number) -> Option<Ordering> {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        (_, None) | (None, _) => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

fn is_multiple(n: &Number, step: &Number) -> bool {
    match (n.as_i128(), step.as_i128()) {
        (Some(n), Some(step)) => step != 0 && n % step == 0,
        (_, None) | (None, _) => match (n.as_f64(), step.as_f64()) {
            // The quotient must be whole; multiplying by the inverse keeps 0.3 a multiple of 0.1.
            (Some(n), Some(step)) if step != 0.0 => {
                (n / step).fract() == 0.0 || (n * (1.0 / step)).fract() == 0.0
            }
            (_, _) => false,
        },
    }
}

impl Additional {
    pub(super) fn each(&self) -> Option<&Node> {
        match self {
            Self::Each(node) => Some(node),
            Self::Unknown | Self::Anything => None,
        }
    }
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
mod tests {
    use crate::schema::Schema;
    use serde_json::{Value, json};

    fn errors(schema: Value, spec: Value, old: Option<Value>) -> Vec<String> {
        let schema = json!({"type": "object", "properties": {"spec": schema}});
        let schema = Schema::compile(&schema, "s").unwrap();
        let old = old.map(|o| json!({"spec": o}));
        let found = schema.validate(&json!({"spec": spec}), old.as_ref());
        found.iter().map(|e| format!("{} {}", e.reason, e)).collect()
    }

    fn one(schema: Value, spec: Value) -> String {
        let mut found = errors(schema, spec, None);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    #[test]
    fn each_limit_says_what_it_wants() {
        let cases = [
            (
                json!({"type": "integer"}),
                json!("x"),
                "FieldValueTypeInvalid spec: Invalid value: \"x\": spec in body must be of type integer: \"string\"",
            ),
            (
                json!({"type": "integer"}),
                json!(1.5),
                "FieldValueTypeInvalid spec: Invalid value: 1.5: spec in body must be of type integer: \"number\"",
            ),
            (
                json!({"type": "string"}),
                json!(null),
                "FieldValueTypeInvalid spec: Invalid value: null: spec in body must be of type string: \"null\"",
            ),
            (
                json!({"x-kubernetes-int-or-string": true}),
                json!(true),
                "FieldValueTypeInvalid spec: Invalid value: true: spec in body must be of type integer,string: \"boolean\"",
            ),
            (
                json!({"type": "integer", "minimum": 1}),
                json!(0),
                "FieldValueInvalid spec: Invalid value: 0: spec in body should be greater than or equal to 1",
            ),
            (
                json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true}),
                json!(1),
                "FieldValueInvalid spec: Invalid value: 1: spec in body should be greater than 1",
            ),
            (
                json!({"type": "number", "maximum": 1.5, "exclusiveMaximum": true}),
                json!(1.5),
                "FieldValueInvalid spec: Invalid value: 1.5: spec in body should be less than 1.5",
            ),
            (
                json!({"type": "integer", "multipleOf": 3}),
                json!(4),
                "FieldValueInvalid spec: Invalid value: 4: spec in body should be a multiple of 3",
            ),
            (
                json!({"type": "string", "maxLength": 2}),
                json!("äöü"),
                "FieldValueTooLong spec: Too long: may not be more than 2 bytes",
            ),
            (
                json!({"type": "string", "minLength": 2}),
                json!("ä"),
                "FieldValueInvalid spec: Invalid value: \"ä\": spec in body should be at least 2 chars long",
            ),
            (
                json!({"type": "string", "pattern": "^[a-z]+$"}),
                json!("A"),
                "FieldValueInvalid spec: Invalid value: \"A\": spec in body should match '^[a-z]+$'",
            ),
            (
                json!({"type": "string", "format": "date-time"}),
                json!("x"),
                "FieldValueTypeInvalid spec: Invalid value: \"x\": spec in body must be of type date-time: \"x\"",
            ),
            (
                json!({"type": "string", "enum": ["a", "b"]}),
                json!("c"),
                "FieldValueNotSupported spec: Unsupported value: \"c\": supported values: \"a\", \"b\"",
            ),
            (
                json!({"type": "array", "items": {"type": "string"}, "maxItems": 1}),
                json!(["a", "b"]),
                "FieldValueTooMany spec: Too many: 2: must have at most 1 item",
            ),
            (
                json!({"type": "array", "items": {"type": "string"}, "minItems": 1}),
                json!([]),
                "FieldValueInvalid spec: Invalid value: []: spec in body should have at least 1 items",
            ),
            (
                json!({"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1}),
                json!({"a": "", "b": ""}),
                "FieldValueTooMany spec: Too many: 2: must have at most 1 item",
            ),
            (
                json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}}}),
                json!({}),
                "FieldValueRequired spec.n: Required value",
            ),
            (
                json!({"type": "integer", "format": "int32"}),
                json!(3_000_000_000_u64),
                "FieldValueTypeInvalid spec: Invalid value: 3000000000: Checked value must be of type integer with format int32 in spec",
            ),
        ];
        for (schema, value, want) in cases {
            assert_eq!(one(schema, value), want);
        }
    }

    #[test]
    fn good_values_pass() {
        let cases = [
            (json!({"type": "integer"}), json!(1.0)),
            (json!({"type": "number"}), json!(1)),
            (json!({"type": "string", "nullable": true}), json!(null)),
            (json!({"type": "string", "nullable": true, "enum": ["a", null]}), json!(null)),
            (json!({"x-kubernetes-int-or-string": true}), json!("50%")),
            (json!({"type": "string", "pattern": "b"}), json!("abc")),
            (json!({"type": "number", "multipleOf": 0.1}), json!(0.3)),
            (json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}), json!({"x": [null]})),
        ];
        for (schema, value) in cases {
            assert_eq!(errors(schema.clone(), value, None), Vec::<String>::new(), "{schema}");
        }
    }

    #[test]
    fn sets_and_keyed_lists_hold_each_item_once() {
        let set = json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"});
        assert_eq!(
            one(set, json!(["x", "y", "x", "x"])),
            "FieldValueDuplicate spec[2]: Duplicate value: \"x\""
        );
        let map = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
            "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}, "v": {"type": "string"}}}});
        let found = one(map, json!([{"n": "a", "v": "1"}, {"n": "a", "v": "2"}]));
        assert_eq!(found, "FieldValueDuplicate spec[1]: Duplicate value: {\"n\":\"a\"}");
    }

    #[test]
    fn alternatives_fail_with_the_closest_reason() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
        assert_eq!(errors(schema.clone(), json!({"a": "x"}), None), Vec::<String>::new());
        let none = errors(schema.clone(), json!({}), None);
        assert_eq!(none[0], "FieldValueRequired spec.a: Required value");
        assert!(none[1].contains("Found none valid"), "{none:?}");
        assert!(one(schema, json!({"a": "x", "b": "y"})).contains("Found 2 valid alternatives"));
        let not = json!({"type": "string", "not": {"enum": ["no"]}});
        assert!(one(not, json!("no")).contains("must not validate the schema (not)"));
        let any = json!({"type": "integer", "anyOf": [{"minimum": 10}, {"maximum": 1}]});
        assert!(errors(any, json!(5), None).iter().any(|e| e.contains("(anyOf)")));
    }

    #[test]
    fn what_an_update_does_not_touch_is_not_judged_again() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 5}, "m": {"type": "string"}}});
        let old = json!({"n": 1, "m": "a"});
        assert_eq!(
            errors(schema.clone(), json!({"n": 1, "m": "b"}), Some(old.clone())),
            Vec::<String>::new()
        );
        assert_eq!(errors(schema, json!({"n": 2, "m": "a"}), Some(old)).len(), 1);
    }
}
