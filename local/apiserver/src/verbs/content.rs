//! How does a request body become an object of its kind?

use serde_json::{Map, Value};

use super::options::FieldValidation;
use super::{Call, metadata};
use crate::http::{body, protobuf};
use crate::resources::{Content, Resource};
use crate::status::Status;

/// Reads the body as an object of the addressed resource. The second value is what to warn of.
pub(super) fn decode(call: &Call<'_>, validation: FieldValidation) -> Result<(Value, Vec<String>), Status> {
    if call.content_type == protobuf::MEDIA_TYPE && matches!(call.resource.content, Content::Custom(_)) {
        return Err(body::unknown_format(&["application/json", "application/yaml"]));
    }
    let mut object = body::parse(call.content_type, call.body)?;
    let repeated = match validation {
        FieldValidation::Ignore => Vec::new(),
        FieldValidation::Warn | FieldValidation::Strict => {
            let paths = body::repeated(call.content_type, call.body, &object).into_iter();
            paths.map(|path| format!("duplicate field \"{path}\"")).collect()
        }
    };
    check_type(call.resource, &mut object)?;
    if validation == FieldValidation::Strict && !repeated.is_empty() {
        return Err(not_strict(call.resource, &repeated));
    }
    Ok((object, repeated))
}

/// Fills in or checks `kind` and `apiVersion`.
pub(super) fn check_type(resource: &Resource, object: &mut Value) -> Result<(), Status> {
    let ids = &resource.ids;
    let Some(body) = object.as_object_mut() else {
        return Err(Status::bad_request(format!(
            "couldn't get version/kind; json parse error: the body is {}, not an object",
            type_name(object)
        )));
    };
    for (key, want) in [("kind", ids.kind.to_string()), ("apiVersion", ids.api_version())] {
        match body.get(key) {
            None | Some(Value::Null) => {
                if matches!(resource.content, Content::Custom(_)) {
                    return Err(Status::bad_request(format!(
                        "Object '{key}' is missing in the request body"
                    )));
                }
                body.insert(key.into(), want.into());
            }
            Some(Value::String(got)) if *got == want => {}
            Some(Value::String(got)) if got.is_empty() => {
                body.insert(key.into(), want.into());
            }
            Some(got) if key == "kind" => {
                let version = body.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
                let got = got.as_str().unwrap_or("something that is no text");
                return Err(Status::bad_request(format!(
                    "{got} in version {version:?} cannot be handled as a {want}"
                )));
            }
            Some(got) => {
                return Err(Status::bad_request(format!(
                    "the API version in the data ({got}) does not match the expected API version ({want})"
                )));
            }
        }
    }
    match body.get("metadata") {
        None | Some(Value::Null) => {
            body.insert("metadata".into(), Value::Object(Map::new()));
        }
        Some(Value::Object(_)) => {}
        Some(other) => {
            let got = type_name(other);
            return Err(Status::bad_request(format!("metadata is {got}, not an object")));
        }
    }
    Ok(())
}

/// The name and namespace in an object must be those of the path; absent ones are taken from there.
pub(super) fn check_place(call: &Call<'_>, object: &mut Value) -> Result<(), Status> {
    let name = metadata::text(object, "name");
    if name.is_empty() {
        let message = format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            call.name
        );
        return Err(Status::bad_request(message));
    }
    if name != call.name {
        let message =
            format!("the name of the object ({name}) does not match the name on the URL ({})", call.name);
        return Err(Status::bad_request(message));
    }
    let namespace = metadata::text(object, "namespace");
    if namespace.is_empty() {
        if call.resource.ids.namespaced {
            metadata::of(object).insert("namespace".into(), call.namespace.into());
        }
        return Ok(());
    }
    if call.resource.ids.namespaced && namespace != call.namespace {
        let message = format!(
            "the namespace of the object ({namespace}) does not match the namespace on the request ({})",
            call.namespace
        );
        return Err(Status::bad_request(message));
    }
    Ok(())
}

/// Brings content into its kind's shape: wrong types are refused, unknown fields dropped and reported.
pub(super) fn reshape(
    resource: &Resource,
    object: &mut Value,
    validation: FieldValidation,
) -> Result<Vec<String>, Status> {
    let unknown = match &resource.content {
        Content::Builtin(builtin) => {
            let decoded = resource.schema.decode(&resource.ids.kind, object);
            let unknown = decoded.map_err(|why| cannot_handle(resource, &why))?;
            (builtin.hooks.default)(object);
            unknown
        }
        Content::Custom(_) => {
            check_metadata(resource, object)?;
            let unknown = resource.schema.prune(object);
            resource.schema.default(object);
            unknown
        }
    };
    metadata::omit_empty(object);
    let said = || unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect::<Vec<_>>();
    match validation {
        FieldValidation::Strict if !unknown.is_empty() => Err(not_strict(resource, &said())),
        FieldValidation::Warn => Ok(said()),
        FieldValidation::Strict | FieldValidation::Ignore => Ok(Vec::new()),
    }
}

/// Brings what an apply made into its kind's shape; it has its defaults already.
pub(super) fn finish_applied(resource: &Resource, object: &mut Value) -> Result<Vec<String>, Status> {
    match &resource.content {
        Content::Builtin(_) => return reshape(resource, object, FieldValidation::Ignore),
        Content::Custom(_) => check_metadata(resource, object)?,
    }
    metadata::omit_empty(object);
    Ok(Vec::new())
}

/// Everything wrong with an object, new or in place of an old one.
pub(super) fn validate(resource: &Resource, object: &Value, old: Option<&Value>) -> Result<(), Status> {
    let mut errors = metadata::validate(object, old, resource);
    match &resource.content {
        Content::Builtin(builtin) => errors.extend((builtin.hooks.validate)(object, old)),
        Content::Custom(_) => errors.extend(resource.schema.validate(object, old)),
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(resource, metadata::text(object, "name"), errors))
}

fn check_metadata(resource: &Resource, object: &Value) -> Result<(), Status> {
    crate::validation::metadata_shape(object).map_err(|why| cannot_handle(resource, &why))
}

/// What strict reading finds fault with.
fn not_strict(resource: &Resource, faults: &[String]) -> Status {
    let why = format!("strict decoding error: {}", faults.join(", "));
    match &resource.content {
        Content::Builtin(_) => cannot_handle(resource, &why),
        Content::Custom(_) => Status::bad_request(why),
    }
}

fn cannot_handle(resource: &Resource, why: &str) -> Status {
    let (kind, version) = (&resource.ids.kind, &resource.ids.version);
    Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
