//! A small reading of structural schemas: enough to tell whether a value fits the part of them we use.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use regex::Regex;
use serde_json::Value;

/// Compiling a pattern costs far more than matching it, and there are few.
static PATTERNS: LazyLock<Mutex<HashMap<String, Regex>>> = LazyLock::new(Mutex::default);

/// What is wrong with a value, each with its path; empty when it fits.
pub(crate) fn problems(schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, value, at, &mut found);
    found
}

fn check(schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let open = schema["x-kubernetes-preserve-unknown-fields"] == true;
    let Some(type_) = schema["type"].as_str() else {
        assert!(open, "{at}: a schema without a type says nothing");
        return;
    };
    let right_type = match type_ {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        other => panic!("{at}: type {other} is not known"),
    };
    if !right_type {
        found.push(format!("{at}: {value} is not of type {}", schema["type"]));
        return;
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        found.push(format!("{at}: {value} is none of {allowed:?}"));
    }
    let size = match value {
        Value::String(text) => text.chars().count(),
        Value::Array(items) => items.len(),
        Value::Object(fields) => fields.len(),
        _ => 0,
    };
    let number = value.as_f64().unwrap_or_default();
    for (limit, broken) in [
        ("minLength", value.is_string() && below(size, &schema["minLength"])),
        ("maxLength", value.is_string() && above(size, &schema["maxLength"])),
        ("minItems", value.is_array() && below(size, &schema["minItems"])),
        ("maxItems", value.is_array() && above(size, &schema["maxItems"])),
        ("minProperties", value.is_object() && below(size, &schema["minProperties"])),
        ("maxProperties", value.is_object() && above(size, &schema["maxProperties"])),
        ("minimum", value.is_number() && schema["minimum"].as_f64().is_some_and(|least| number < least)),
        ("maximum", value.is_number() && schema["maximum"].as_f64().is_some_and(|most| number > most)),
    ] {
        if broken {
            found.push(format!("{at}: {value} breaks {limit} {}", schema[limit]));
        }
    }
    if let (Some(pattern), Some(text)) = (schema["pattern"].as_str(), value.as_str())
        && !matches(pattern, text)
    {
        found.push(format!("{at}: {text:?} does not match {pattern}"));
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value.get(name).is_none() {
            found.push(format!("{at}: {name} is missing"));
        }
    }
    if let Some(both) = schema["not"]["required"].as_array()
        && both.iter().filter_map(Value::as_str).all(|name| value.get(name).is_some())
    {
        found.push(format!("{at}: not all of {both:?}"));
    }
    for item in value.as_array().into_iter().flatten() {
        check(&schema["items"], item, &format!("{at}[]"), found);
    }
    for (name, field) in value.as_object().into_iter().flatten() {
        let at = format!("{at}.{name}");
        match (&schema["properties"][name], &schema["additionalProperties"]) {
            (property @ Value::Object(_), _) => check(property, field, &at, found),
            (_, values @ Value::Object(_)) => check(values, field, &at, found),
            _ if open => {}
            _ => found.push(format!("{at}: unknown field, it would be dropped")),
        }
    }
}

fn below(size: usize, limit: &Value) -> bool {
    limit.as_u64().is_some_and(|limit| (size as u64) < limit)
}

fn above(size: usize, limit: &Value) -> bool {
    limit.as_u64().is_some_and(|limit| (size as u64) > limit)
}

fn matches(pattern: &str, text: &str) -> bool {
    let mut patterns = PATTERNS.lock().unwrap();
    patterns.entry(pattern.to_owned()).or_insert_with(|| Regex::new(pattern).unwrap()).is_match(text)
}
