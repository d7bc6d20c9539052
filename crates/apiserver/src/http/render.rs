//! In which shape does the client want it?

use bytes::Bytes;
use serde_json::{Value, json};

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
    Table,
}

impl Shape {
    /// The first thing in `Accept` that can be made.
    pub(crate) fn accepted(accept: &str) -> Result<Shape, Status> {
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
                Some("Table") => return Ok(Shape::Table),
                Some(_) => {}
            }
        }
        Err(Status::not_acceptable(
            "only the following media types are accepted: application/json, application/json;as=Table;v=v1;g=meta.k8s.io, application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        ))
    }
}

/// One object.
pub(crate) fn object(resource: &Resource, object: &Object, shape: Shape) -> Bytes {
    match shape {
        Shape::Whole | Shape::Table => whole(resource, object),
        Shape::Metadata => metadata(object).into(),
    }
}

/// A list: bytes strung together, nothing parsed.
pub(crate) fn list(resource: &Resource, list: &List, shape: Shape) -> Bytes {
    let (kind, version) = match shape {
        Shape::Whole | Shape::Table => (&*resource.list_kind, resource.ids.api_version()),
        Shape::Metadata => ("PartialObjectMetadataList", "meta.k8s.io/v1".to_owned()),
    };
    let mut metadata = json!({"resourceVersion": list.revision.to_string()});
    if let Some(map) = metadata.as_object_mut() {
        if let Some(next) = &list.next {
            map.insert("continue".into(), next.as_str().into());
        }
        if let Some(remaining) = list.remaining {
            map.insert("remainingItemCount".into(), remaining.into());
        }
    }
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
            (Shape::Whole | Shape::Table, Content::Builtin(_)) if same_version(resource, item) => {
                out.push(b'{');
                out.extend_from_slice(item.without_type());
            }
            (Shape::Whole | Shape::Table, _) => out.extend_from_slice(&whole(resource, item)),
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

fn same_version(resource: &Resource, object: &Object) -> bool {
    object.ids.version == resource.ids.version && object.ids.group == resource.ids.group
}

/// The object under the version asked for.
fn whole(resource: &Resource, object: &Object) -> Bytes {
    if same_version(resource, object) {
        return object.bytes().clone();
    }
    let mut out = type_head(&resource.ids.kind, &resource.ids.api_version());
    match crate::resources::events::members(resource, object) {
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
