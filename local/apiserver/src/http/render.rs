//! In which shape does the client want it?

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::resources::columns::Column;
use crate::resources::{Content, Resource};
use crate::status::Status;
use crate::store::{Object, type_head};
use crate::verbs::List;

/// What `Accept` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The objects themselves.
    Whole,
    /// `PartialObjectMetadata`
    Metadata,
    /// `Table`
    Table(Include),
}

/// What a Table's rows carry of their objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Whole,
}

impl Shape {
    /// The first thing in `Accept` that can be made.
    pub(crate) fn accepted(accept: &str, include: Option<&str>) -> Result<Shape, Status> {
        if accept.trim().is_empty() {
            return Ok(Shape::Whole);
        }
        for media in accept.split(',') {
            let mut parts = media.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            if !matches!(name, "application/json" | "*/*" | "application/*") {
                continue;
            }
            let shape = parts.find_map(|p| p.strip_prefix("as="));
            match shape {
                None => return Ok(Shape::Whole),
                Some("PartialObjectMetadata" | "PartialObjectMetadataList") => return Ok(Shape::Metadata),
                Some("Table") => {
                    return match include {
                        None | Some("" | "Metadata") => Ok(Shape::Table(Include::Metadata)),
                        Some("None") => Ok(Shape::Table(Include::Nothing)),
                        Some("Object") => Ok(Shape::Table(Include::Whole)),
                        Some(other) => {
                            Err(Status::bad_request(format!("unrecognized includeObject value: {other:?}")))
                        }
                    };
                }
                Some(_) => {}
            }
        }
        Err(Status::not_acceptable(
            "only the following media types are accepted: application/json, application/json;as=Table;v=v1;g=meta.k8s.io, application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        ))
    }
}

/// One object.
pub(crate) fn object(resource: &Resource, object: &Object, shape: Shape, now: Timestamp) -> Bytes {
    match shape {
        Shape::Whole => whole(resource, object),
        Shape::Metadata => metadata(object).into(),
        Shape::Table(include) => {
            let about = json!({"resourceVersion": object.revision.to_string()});
            table(resource, &about, [object].into_iter(), include, now)
        }
    }
}

/// A list: bytes strung together, nothing parsed.
pub(crate) fn list(resource: &Resource, list: &List, shape: Shape, now: Timestamp) -> Bytes {
    let mut metadata = json!({"resourceVersion": list.revision.to_string()});
    if let Some(map) = metadata.as_object_mut() {
        if let Some(next) = &list.next {
            map.insert("continue".into(), next.as_str().into());
        }
        if let Some(remaining) = list.remaining {
            map.insert("remainingItemCount".into(), remaining.into());
        }
    }
    let (kind, version) = match shape {
        Shape::Whole => (&*resource.list_kind, resource.ids.api_version()),
        Shape::Metadata => ("PartialObjectMetadataList", "meta.k8s.io/v1".to_owned()),
        Shape::Table(include) => {
            return table(resource, &metadata, list.items.iter().map(|i| &**i), include, now);
        }
    };
    let mut out = type_head(kind, &version);
    let size: usize = list.items.iter().map(|i| i.bytes().len() + 1).sum();
    out.reserve(size + 128);
    out.extend_from_slice(b"\"metadata\":");
    out.extend_from_slice(metadata.to_string().as_bytes());
    out.extend_from_slice(b",\"items\":[");
    for (at, item) in list.items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        match (shape, &resource.content) {
            (Shape::Metadata, _) => out.extend_from_slice(&self::metadata(item)),
            // Go leaves kind and apiVersion out of the items of its own kinds.
            (Shape::Whole | Shape::Table(_), Content::Builtin(_)) if same_version(resource, item) => {
                out.push(b'{');
                out.extend_from_slice(item.without_type());
            }
            (Shape::Whole | Shape::Table(_), _) => out.extend_from_slice(&whole(resource, item)),
        }
    }
    out.extend_from_slice(b"]}");
    out.into()
}

/// A document that is not stored.
pub(crate) fn value(value: &Value, shape: Shape) -> Bytes {
    let is_object = value.get("kind").is_some_and(|kind| kind != "Status");
    if shape == Shape::Metadata && is_object {
        let partial = json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value.get("metadata"),
        });
        return partial.to_string().into();
    }
    value.to_string().into()
}

fn table<'a>(
    resource: &Resource,
    metadata: &Value,
    objects: impl Iterator<Item = &'a Object>,
    include: Include,
    now: Timestamp,
) -> Bytes {
    let columns: Vec<Value> = resource.columns.iter().map(Column::definition).collect();
    let mut out = type_head("Table", "meta.k8s.io/v1");
    out.extend_from_slice(b"\"metadata\":");
    out.extend_from_slice(metadata.to_string().as_bytes());
    out.extend_from_slice(b",\"columnDefinitions\":");
    out.extend_from_slice(Value::Array(columns).to_string().as_bytes());
    out.extend_from_slice(b",\"rows\":[");
    for (at, object) in objects.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        let value = resource.read(object);
        let cells: Vec<Value> = resource.columns.iter().map(|c| c.cell(&value, now)).collect();
        out.extend_from_slice(b"{\"cells\":");
        out.extend_from_slice(Value::Array(cells).to_string().as_bytes());
        out.extend_from_slice(b",\"object\":");
        match include {
            Include::Nothing => out.extend_from_slice(b"null"),
            Include::Metadata => out.extend_from_slice(&self::metadata(object)),
            Include::Whole => out.extend_from_slice(&whole(resource, object)),
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
    out.into()
}

pub(crate) fn same_version(resource: &Resource, object: &Object) -> bool {
    object.ids.version == resource.ids.version && object.ids.group == resource.ids.group
}

/// The object under the version asked for.
fn whole(resource: &Resource, object: &Object) -> Bytes {
    if same_version(resource, object) {
        return object.bytes().clone();
    }
    let mut out = type_head(&resource.ids.kind, &resource.ids.api_version());
    match crate::resources::views::members(resource, object) {
        Some(renamed) => out.extend_from_slice(&renamed),
        None => out.extend_from_slice(object.without_type()),
    }
    out.into()
}

fn metadata(object: &Object) -> Vec<u8> {
    let mut out = type_head("PartialObjectMetadata", "meta.k8s.io/v1");
    out.extend_from_slice(object.metadata());
    out.push(b'}');
    out
}
