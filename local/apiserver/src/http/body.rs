//! How is a request body read?

use serde_json::Value;

use super::{protobuf, repeated};
use crate::status::Status;

/// Kubernetes' limit on a request body.
pub(crate) const MAX_BODY_BYTES: usize = 3 << 20;

/// How deep a document may be nested: serde_json's own limit, which its parser counts for us. The deepest things people
/// write are schemas in CustomResourceDefinitions, where each level of a resource costs two; the deepest known take 60.
pub(super) const MAX_DEPTH: usize = 128;

/// A document from a body of some content type.
pub(crate) fn parse(content_type: &str, body: &[u8]) -> Result<Value, Status> {
    match content_type {
        "" | "application/json" => json(body),
        "application/yaml" | "application/x-yaml" | "text/yaml" | "application/apply-patch+yaml" => {
            yaml(body)
        }
        protobuf::MEDIA_TYPE => protobuf::decode(body)
            .map_err(|why| Status::bad_request(format!("error parsing the body: {why}"))),
        _ => Err(unknown_format(&["application/json", "application/yaml", protobuf::MEDIA_TYPE])),
    }
}

/// The paths of fields that a body names more than once; the parsers of other formats refuse such a body.
pub(crate) fn repeated(content_type: &str, body: &[u8], read_as: &Value) -> Vec<String> {
    match content_type {
        "" | "application/json" => repeated::repeated(body, read_as),
        _ => Vec::new(),
    }
}

/// The refusal of a body in a format that is not taken here.
pub(crate) fn unknown_format(accepted: &[&str]) -> Status {
    Status::unsupported_media_type(format!(
        "the body of the request was in an unknown format - accepted media types include: {}",
        accepted.join(", ")
    ))
}

/// The refusal of a body that is too long.
pub(crate) fn too_large() -> Status {
    Status::too_large(format!("Request entity too large: limit is {MAX_BODY_BYTES}"))
}

fn json(body: &[u8]) -> Result<Value, Status> {
    serde_json::from_slice(body).map_err(|error| {
        // The one error of serde_json that is a limit and not a mistake has no kind of its own.
        if error.to_string().starts_with("recursion limit exceeded") {
            return Status::bad_request(format!(
                "error parsing the body: nested deeper than {MAX_DEPTH} levels"
            ));
        }
        Status::bad_request(format!(
            "error parsing the body: couldn't get version/kind; json parse error: {error}"
        ))
    })
}

fn yaml(body: &[u8]) -> Result<Value, Status> {
    // JSON is YAML, and what clients send under this type is often JSON, which reads faster as such.
    if let Ok(value) = serde_json::from_slice(body) {
        return Ok(value);
    }
    let text = std::str::from_utf8(body)
        .map_err(|error| Status::bad_request(format!("error parsing the body: not UTF-8: {error}")))?;
    serde_saphyr::from_str(text)
        .map_err(|error| Status::bad_request(format!("error converting YAML to JSON: {error}")))
}
