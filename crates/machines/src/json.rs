//! How a JSON object is written into: members are made where they are missing.

use serde_json::{Value, json};

/// The object under `key`, made where there is none.
pub(crate) fn object<'a>(holder: &'a mut Value, key: &str) -> &'a mut Value {
    if !holder.is_object() {
        *holder = json!({});
    }
    let child = &mut holder[key];
    if !child.is_object() {
        *child = json!({});
    }
    child
}

/// Writes a value where there is none.
pub(crate) fn default(holder: &mut Value, key: &str, value: Value) {
    if holder.get(key).is_none_or(Value::is_null) {
        holder[key] = value;
    }
}

/// Writes the members of one object into another, and into the objects that both have.
pub(crate) fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}
