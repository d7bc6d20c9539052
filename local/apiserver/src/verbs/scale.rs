//! How many replicas, whatever the kind?

use serde_json::{Map, Value, json};

use super::options::WriteOptions;

use super::create::Origin;
use super::{Answer, Call, Core, Verb, metadata, until_settled, update};
use crate::admission::{self, Operation, Write};
use crate::http::body;
use crate::patch;
use crate::resources::Scale;
use crate::selector;
use crate::status::Status;
use crate::store::{Object, key};
use crate::validation::FieldError;

/// GET of `/scale`.
pub(super) fn get(core: &Core, call: &Call<'_>) -> Result<Answer, Status> {
    let paths = paths(call)?;
    let found = core.store.get(&call.resource.table, &key(call.namespace, call.name));
    let found = found.ok_or_else(|| Status::not_found(call.resource, call.name))?;
    Ok(Answer::Value(200, scale(paths, &found, &found.value())))
}

/// PUT and PATCH of `/scale`: sets the object's replicas.
pub(super) fn write(core: &Core, call: &Call<'_>) -> Result<Answer, Status> {
    let paths = paths(call)?;
    let options = WriteOptions::read(call)?;
    let sent = body::parse(
        if call.verb == Verb::Patch { "application/json" } else { call.content_type },
        call.body,
    )?;
    let key = key(call.namespace, call.name);
    until_settled(call, || {
        let head = core.store.head(&call.resource.table, &key);
        let head = head.ok_or_else(|| Status::not_found(call.resource, call.name))?;
        let old = call.resource.read(&head);
        let wanted = wanted(call, scale(paths, &head, &old), &sent)?;
        let replicas = replicas(&wanted)?;
        let before = scale(paths, &head, &old);
        let write = Write {
            operation: Operation::Update,
            object: Some(&wanted),
            old: Some(&before),
            dry_run: options.dry_run,
        };
        admission::review(core, call, write)?;
        let mut new = old.clone();
        set(&mut new, &paths.spec, replicas.into());
        let version = metadata::text(&wanted, "resourceVersion").to_owned();
        metadata::of(&mut new).insert("resourceVersion".into(), version.into());
        let Some(outcome) = update::change(core, call, &head, &old, new, Origin::Written, options)? else {
            return Ok(None);
        };
        Ok(Some(match outcome.answer {
            Answer::Object(code, object) => {
                let value = object.value();
                Answer::Value(code, scale(paths, &object, &value))
            }
            other @ (Answer::Value(..) | Answer::List(_) | Answer::Watch(_)) => other,
        }))
    })
}

fn paths<'a>(call: &Call<'a>) -> Result<&'a Scale, Status> {
    call.resource.scale.as_ref().ok_or_else(|| Status::not_found(call.resource, call.name))
}

fn wanted(call: &Call<'_>, mut current: Value, sent: &Value) -> Result<Value, Status> {
    if call.verb == Verb::Update {
        return Ok(sent.clone());
    }
    match call.content_type {
        "application/json-patch+json" => {
            let operations = patch::operations(sent).map_err(|e| Status::bad_request(e.to_string()))?;
            patch::apply(&mut current, &operations).map_err(|e| Status::unprocessable(e.to_string()))?;
        }
        _ => patch::merge(&mut current, sent),
    }
    Ok(current)
}

fn replicas(scale: &Value) -> Result<i64, Status> {
    let replicas = match scale.pointer("/spec/replicas") {
        None | Some(Value::Null) => Some(0),
        Some(value) => value.as_i64(),
    };
    match replicas {
        Some(replicas) if replicas >= 0 => Ok(replicas),
        Some(replicas) => {
            let why = "must be greater than or equal to 0";
            let error = FieldError::invalid("spec.replicas", &json!(replicas), why);
            Err(Status::invalid_scale(metadata::text(scale, "name"), error))
        }
        None => Err(Status::bad_request("Scale: spec.replicas is not an integer".to_owned())),
    }
}

fn scale(paths: &Scale, object: &Object, value: &Value) -> Value {
    let number = |pointer: &str| value.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let mut status = Map::new();
    status.insert("replicas".into(), number(&paths.status).into());
    if let Some(selector) = paths.selector.as_deref().and_then(|p| value.pointer(p)) {
        let text = selector.as_str().map_or_else(|| selector::text(selector), str::to_owned);
        status.insert("selector".into(), text.into());
    }
    let of = |key: &str| value.pointer(&format!("/metadata/{key}")).cloned().unwrap_or_default();
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": of("name"), "namespace": of("namespace"), "uid": of("uid"),
            "resourceVersion": object.revision.to_string(), "creationTimestamp": of("creationTimestamp"),
        },
        "spec": {"replicas": number(&paths.spec)},
        "status": status,
    })
}

/// Sets a value where a pointer points, making objects on the way.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for part in pointer.split('/').skip(1) {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        let Some(map) = at.as_object_mut() else { return };
        at = map.entry(part).or_insert(Value::Null);
    }
    *at = value;
}
