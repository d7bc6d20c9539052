//! Which value has each parameter of a pipeline or task: what was given, or else what it declares?

use std::collections::BTreeMap;

use pawl_api::tekton::{Param, ParamSpec};
use serde_json::Value;

use super::substitute::plain;

/// What kind of value it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Text,
    List,
    Map,
}

impl Type {
    /// Tekton's word.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::List => "array",
            Self::Map => "object",
        }
    }

    pub(crate) fn of(value: &Value) -> Self {
        match value {
            Value::Array(_) => Self::List,
            Value::Object(_) => Self::Map,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Self::Text,
        }
    }

    /// What is declared, else what the default is, else text.
    pub(crate) fn declared(spec: &ParamSpec) -> Self {
        match spec.type_.as_deref() {
            Some("array") => Self::List,
            Some("object") => Self::Map,
            Some(_) => Self::Text,
            None if spec.rest.contains_key("properties") => Self::Map,
            None => spec.default.as_ref().map_or(Self::Text, Self::of),
        }
    }
}

/// Why there is no value for everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// Nothing was given for these, and they have no default.
    Missing(Vec<String>),
    /// What was given for these is of another kind than declared.
    Mismatch(Vec<String>),
    /// Of these maps, keys that are declared were not given.
    MissingKeys(BTreeMap<String, Vec<String>>),
}

/// The value of every parameter that is declared or given. What is given and not declared is kept: a task that is
/// written into its run may name it.
pub(crate) fn resolve(declared: &[ParamSpec], given: &[Param]) -> Result<BTreeMap<String, Value>, Problem> {
    let mut values: BTreeMap<String, Value> =
        given.iter().map(|param| (param.name.clone(), normal(&param.value))).collect();
    let absent = |spec: &&ParamSpec| spec.default.is_none() && !values.contains_key(&spec.name);
    let missing: Vec<String> = declared.iter().filter(absent).map(|spec| spec.name.clone()).collect();
    if !missing.is_empty() {
        return Err(Problem::Missing(missing));
    }
    let other =
        |spec: &&ParamSpec| values.get(&spec.name).is_some_and(|v| Type::of(v) != Type::declared(spec));
    let mismatch: Vec<String> = declared.iter().filter(other).map(|spec| spec.name.clone()).collect();
    if !mismatch.is_empty() {
        return Err(Problem::Mismatch(mismatch));
    }
    for spec in declared {
        let Some(default) = spec.default.as_ref().map(normal) else { continue };
        match (values.get_mut(&spec.name), default) {
            (Some(Value::Object(given)), Value::Object(default)) => {
                for (key, value) in default {
                    given.entry(key).or_insert(value);
                }
            }
            (Some(_), _) => {}
            (None, default) => {
                values.insert(spec.name.clone(), default);
            }
        }
    }
    let lacking: BTreeMap<String, Vec<String>> = declared
        .iter()
        .map(|spec| (spec.name.clone(), missing_keys(spec, values.get(&spec.name))))
        .filter(|(_, keys)| !keys.is_empty())
        .collect();
    if lacking.is_empty() { Ok(values) } else { Err(Problem::MissingKeys(lacking)) }
}

fn missing_keys(spec: &ParamSpec, value: Option<&Value>) -> Vec<String> {
    let properties = spec.rest.get("properties").and_then(Value::as_object);
    let has = |key: &&String| value.and_then(|value| value.get(key.as_str())).is_some();
    properties.into_iter().flat_map(|fields| fields.keys()).filter(|key| !has(key)).cloned().collect()
}

/// Numbers and booleans are texts to Tekton.
fn normal(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(|item| Value::String(plain(item))).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(key, value)| (key.clone(), plain(value).into())).collect())
        }
        scalar => Value::String(plain(scalar)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(declared: Value, given: Value) -> Result<Value, Problem> {
        let declared: Vec<ParamSpec> = serde_json::from_value(declared).unwrap();
        let given: Vec<Param> = serde_json::from_value(given).unwrap();
        resolve(&declared, &given).map(|values| json!(values))
    }

    #[test]
    fn what_is_given_wins_over_the_default_and_maps_are_filled_up() {
        let values = check(
            json!([{"name": "a", "default": "1"}, {"name": "b", "default": "2"}, {"name": "l", "type": "array"},
                {"name": "m", "type": "object", "properties": {"k": {}, "j": {}}, "default": {"k": "x", "j": "y"}}]),
            json!([{"name": "a", "value": 7}, {"name": "l", "value": ["x", true]}, {"name": "m", "value": {"k": "z"}},
                {"name": "more", "value": "kept"}]),
        );
        let expected =
            json!({"a": "7", "b": "2", "l": ["x", "true"], "m": {"j": "y", "k": "z"}, "more": "kept"});
        assert_eq!(values.unwrap(), expected);
    }

    #[test]
    fn what_is_missing_or_of_another_kind_is_named() {
        let declared = json!([{"name": "b"}, {"name": "a"}, {"name": "l", "type": "array", "default": []}]);
        let missing = check(declared.clone(), json!([]));
        assert_eq!(missing, Err(Problem::Missing(vec!["b".into(), "a".into()])));
        let given =
            json!([{"name": "a", "value": ["x"]}, {"name": "b", "value": "x"}, {"name": "l", "value": "x"}]);
        assert_eq!(check(declared, given), Err(Problem::Mismatch(vec!["a".into(), "l".into()])));
        let keys = check(
            json!([{"name": "m", "type": "object", "properties": {"k": {}, "j": {}}}]),
            json!([{"name": "m", "value": {"k": "x"}}]),
        );
        assert_eq!(keys, Err(Problem::MissingKeys(BTreeMap::from([("m".into(), vec!["j".into()])]))));
    }
}
