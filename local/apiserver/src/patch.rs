//! What does a patch make of a document?
//!
//! JSON Patch (RFC 6902) and JSON Merge Patch (RFC 7386), with the one difference that Kubernetes' clients
//! rely on: a `test` for null succeeds where there is nothing.

use serde_json::{Map, Value};

/// Kubernetes' limit on operations in one JSON Patch.
const MAX_OPERATIONS: usize = 10_000;

/// Why a patch is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PatchError {
    /// It is no patch at all.
    #[error("{0}")]
    Malformed(String),
    /// It has too many operations.
    #[error("{0}")]
    TooMany(String),
    /// It does not fit the document.
    #[error("{0}")]
    DoesNotApply(String),
}

/// One step of a JSON Patch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operation {
    Add(Vec<String>, Value),
    Remove(Vec<String>),
    Replace(Vec<String>, Value),
    Move {
        from: Vec<String>,
        path: Vec<String>,
    },
    Copy {
        from: Vec<String>,
        path: Vec<String>,
    },
    Test(Vec<String>, Value),
    /// Nothing that can be done: Kubernetes' library finds out when its turn comes.
    Impossible(String),
}

/// Reads a JSON Patch.
pub(crate) fn operations(patch: &Value) -> Result<Vec<Operation>, PatchError> {
    let Some(list) = patch.as_array() else {
        return Err(PatchError::Malformed(
            "error decoding patch: a JSON patch must be a list of operations".into(),
        ));
    };
    if list.len() > MAX_OPERATIONS {
        return Err(PatchError::TooMany(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            list.len()
        )));
    }
    list.iter().map(operation).collect()
}

/// Applies a JSON Patch: all of it or, with an error, who knows how much. Callers work on a copy.
pub(crate) fn apply(document: &mut Value, operations: &[Operation]) -> Result<(), PatchError> {
    for operation in operations {
        match operation {
            Operation::Add(path, value) => add(document, path, value.clone())?,
            Operation::Remove(path) => {
                remove(document, path)?;
            }
            Operation::Replace(path, value) => *existing(document, path)? = value.clone(),
            Operation::Move { from, path } => {
                let value = remove(document, from)?;
                add(document, path, value)?;
            }
            Operation::Copy { from, path } => {
                let value = existing(document, from)?.clone();
                add(document, path, value)?;
            }
            Operation::Impossible(why) => return Err(PatchError::DoesNotApply(why.clone())),
            Operation::Test(path, want) => {
                let got = find(document, path).unwrap_or(&Value::Null);
                if got != want {
                    return Err(PatchError::DoesNotApply(format!("testing value {} failed", pointer(path))));
                }
            }
        }
    }
    Ok(())
}

/// Applies a JSON Merge Patch. Recursion is bounded by the depth the parser allows.
pub(crate) fn merge(document: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *document = patch.clone();
        return;
    };
    if !document.is_object() {
        *document = Value::Object(Map::new());
    }
    let Some(document) = document.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            document.remove(key);
        } else {
            merge(document.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

fn operation(step: &Value) -> Result<Operation, PatchError> {
    if !step.is_object() {
        return Err(PatchError::Malformed(format!("error decoding patch: no operation: {step}")));
    }
    let text = |key: &str| step.get(key).and_then(Value::as_str);
    // `"value": null` and no value are the same to Kubernetes' library.
    let value = || step.get("value").cloned().unwrap_or(Value::Null);
    let path = |key: &str| {
        let pointer = text(key).ok_or_else(|| format!("an operation without {key}: {step}"))?;
        parse(pointer)
    };
    let read = || {
        let at = path("path")?;
        Ok(match text("op") {
            Some("add") => Operation::Add(at, value()),
            Some("remove") => Operation::Remove(at),
            Some("replace") => Operation::Replace(at, value()),
            Some("move") => Operation::Move { from: path("from")?, path: at },
            Some("copy") => Operation::Copy { from: path("from")?, path: at },
            Some("test") => Operation::Test(at, value()),
            Some(_) | None => return Err(format!("an unknown operation: {step}")),
        })
    };
    Ok(read().unwrap_or_else(Operation::Impossible))
}

fn parse(pointer: &str) -> Result<Vec<String>, String> {
    if pointer.is_empty() {
        return Ok(Vec::new());
    }
    let Some(rest) = pointer.strip_prefix('/') else {
        return Err(format!("a path must begin with '/': {pointer:?}"));
    };
    Ok(rest.split('/').map(|part| part.replace("~1", "/").replace("~0", "~")).collect())
}

fn pointer(path: &[String]) -> String {
    path.iter().map(|part| format!("/{}", part.replace('~', "~0").replace('/', "~1"))).collect()
}

fn missing(path: &[String]) -> PatchError {
    PatchError::DoesNotApply(format!("the path {} does not exist", pointer(path)))
}

fn find<'a>(document: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(document, |at, part| match at {
        Value::Object(map) => map.get(part),
        Value::Array(list) => list.get(index(part)?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

fn existing<'a>(document: &'a mut Value, path: &[String]) -> Result<&'a mut Value, PatchError> {
    path.iter()
        .try_fold(document, |at, part| match at {
            Value::Object(map) => map.get_mut(part),
            Value::Array(list) => list.get_mut(index(part)?),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        })
        .ok_or_else(|| missing(path))
}

fn add(document: &mut Value, path: &[String], value: Value) -> Result<(), PatchError> {
    let Some((last, parent)) = path.split_last() else {
        *document = value;
        return Ok(());
    };
    match existing(document, parent)? {
        Value::Object(map) => {
            map.insert(last.clone(), value);
        }
        Value::Array(list) if last == "-" => list.push(value),
        Value::Array(list) => {
            let at = index(last).filter(|at| *at <= list.len()).ok_or_else(|| missing(path))?;
            list.insert(at, value);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return Err(missing(path)),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &[String]) -> Result<Value, PatchError> {
    let Some((last, parent)) = path.split_last() else { return Ok(std::mem::take(document)) };
    match existing(document, parent)? {
        Value::Object(map) => map.remove(last).ok_or_else(|| missing(path)),
        Value::Array(list) => {
            let at = index(last).filter(|at| *at < list.len()).ok_or_else(|| missing(path))?;
            Ok(list.remove(at))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Err(missing(path)),
    }
}

fn index(part: &str) -> Option<usize> {
    if part.len() > 1 && part.starts_with('0') {
        return None;
    }
    part.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(document: Value, patch: &Value) -> Result<Value, PatchError> {
        let mut document = document;
        apply(&mut document, &operations(patch)?)?;
        Ok(document)
    }

    #[test]
    fn a_test_for_null_succeeds_where_there_is_nothing() {
        // What kube's finalizer() sends first.
        let patch = json!([
            {"op": "test", "path": "/metadata/finalizers", "value": null},
            {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/x"]},
        ]);
        let got = patched(json!({"metadata": {}}), &patch).unwrap();
        assert_eq!(got, json!({"metadata": {"finalizers": ["example.com/x"]}}));
    }

    #[test]
    fn operations_do_what_the_rfc_says() {
        for (document, patch, want) in [
            (
                json!({"a": [1, 3]}),
                json!([{"op": "add", "path": "/a/1", "value": 2}]),
                json!({"a": [1, 2, 3]}),
            ),
            (json!({"a": [1]}), json!([{"op": "add", "path": "/a/-", "value": 2}]), json!({"a": [1, 2]})),
            (json!({"a/b": 1, "m~n": 2}), json!([{"op": "remove", "path": "/a~1b"}]), json!({"m~n": 2})),
            (json!({"m~n": 2}), json!([{"op": "replace", "path": "/m~0n", "value": 3}]), json!({"m~n": 3})),
            (json!({"a": 1}), json!([{"op": "move", "from": "/a", "path": "/b"}]), json!({"b": 1})),
            (json!({"a": 1}), json!([{"op": "copy", "from": "/a", "path": "/b"}]), json!({"a": 1, "b": 1})),
            (json!({"a": 1}), json!([{"op": "add", "path": "", "value": 7}]), json!(7)),
        ] {
            assert_eq!(patched(document, &patch), Ok(want), "{patch}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for patch in [
            json!([{"op": "remove", "path": "/zzz"}]),
            json!([{"op": "replace", "path": "/zzz", "value": 1}]),
            json!([{"op": "test", "path": "/a", "value": 2}]),
            json!([{"op": "add", "path": "/x/y", "value": 1}]),
            json!([{"op": "add", "path": "/l/5", "value": 1}]),
            json!([{"op": "remove", "path": "/l/01"}]),
            json!([{"op": "add", "path": "/a/b", "value": 1}]),
            json!([{"op": "add", "path": "a", "value": 1}]),
            json!([{"op": "add"}]),
            json!([{"op": "move", "path": "/a"}]),
            json!([{"op": "mangle", "path": "/a"}]),
        ] {
            let got = patched(json!({"a": 1, "l": [1, 2]}), &patch);
            assert!(matches!(got, Err(PatchError::DoesNotApply(_))), "{patch}: {got:?}");
        }
    }

    #[test]
    fn what_is_no_patch_is_refused() {
        for patch in [json!({}), json!([1]), json!(["add"])] {
            assert!(matches!(patched(json!({}), &patch), Err(PatchError::Malformed(_))), "{patch}");
        }
    }

    #[test]
    fn a_merge_removes_nulls_and_replaces_lists() {
        let mut document = json!({"a": {"b": 1, "c": 2}, "l": [1, 2], "t": "x"});
        merge(&mut document, &json!({"a": {"b": null, "d": {"e": null, "f": 1}}, "l": [3], "t": {"u": 1}}));
        assert_eq!(document, json!({"a": {"c": 2, "d": {"f": 1}}, "l": [3], "t": {"u": 1}}));
    }
}
