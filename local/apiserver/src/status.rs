//! How does the server say no?
//!
//! With a `metav1.Status`, worded and shaped as Kubernetes does: clients switch on `reason`, `code` and
//! `details`, people read `message`.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::resources::Resource;
use crate::store::qualified;
use crate::validation::FieldError;

/// An answer that is not an object: almost always a failure.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// The HTTP status code, repeated in the body.
    pub code: u16,
    /// `metav1.StatusReason`; empty when Kubernetes gives none.
    pub reason: Cow<'static, str>,
    /// For people.
    pub message: String,
    /// What the failure is about. `None` leaves `details` out; an empty one is written as `{}`, because
    /// that is the difference Kubernetes makes between its kinds of errors.
    pub details: Option<Box<Details>>,
    /// `metadata.continue`: where a list whose page token expired may go on, without consistency.
    pub resume: Option<String>,
}

/// `metav1.StatusDetails`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// The object's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The API group, empty for core.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The resource (`configmaps`) or, for validation errors, the kind (`ConfigMap`).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The object's uid, in answers to deletions.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// One entry per thing that is wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// When to try again; 0 says nothing.
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

/// `metav1.StatusCause`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// `FieldValueInvalid`, `FieldValueRequired`, …
    pub reason: Cow<'static, str>,
    /// For people, without the field.
    pub message: String,
    /// A path such as `metadata.labels`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl From<FieldError> for Cause {
    fn from(error: FieldError) -> Self {
        Cause { reason: error.reason.as_str().into(), message: error.message, field: error.field }
    }
}

impl Status {
    fn new(code: u16, reason: &'static str, message: String, details: Option<Details>) -> Self {
        Status { code, reason: reason.into(), message, details: details.map(Box::new), resume: None }
    }

    /// 400: the request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Status::new(400, "BadRequest", message.into(), None)
    }

    /// 404 for an object.
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} {name:?} not found", resource.ids.group_resource());
        Status::new(404, "NotFound", message, Some(about(resource, name)))
    }

    /// 404 for a resource that the server does not have in a group that it has.
    pub fn no_such_resource() -> Self {
        let message = "the server could not find the requested resource".to_owned();
        Status::new(404, "NotFound", message, Some(Details::default()))
    }

    /// 405: the resource has no such verb.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource".to_owned();
        Status::new(405, "MethodNotAllowed", message, Some(Details::default()))
    }

    /// 406: nothing the client accepts can be made.
    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Status::new(406, "NotAcceptable", message.into(), None)
    }

    /// 409 on create.
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", resource.ids.group_resource());
        Status::new(409, "AlreadyExists", message, Some(about(resource, name)))
    }

    /// 409: someone else was first.
    pub fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} {name:?}: {why}", resource.ids.group_resource());
        Status::new(409, "Conflict", message, Some(about(resource, name)))
    }

    /// 409 for a write whose basis is no more what it was.
    pub(crate) fn outdated() -> Self {
        let message = "the object that this was decided on has changed or is gone".to_owned();
        Status::new(409, "Conflict", message, None)
    }

    /// 409 from an apply that would take what others own.
    pub(crate) fn contested(message: String, details: Details) -> Self {
        Status::new(409, "Conflict", message, Some(details))
    }

    /// 409 from a delete precondition, where Kubernetes puts the kind in place of the resource.
    pub fn precondition_failed(resource: &Resource, name: &str, why: &str) -> Self {
        let kind = &resource.ids.kind;
        let dotted = qualified(kind, &resource.ids.group);
        let message = format!("Operation cannot be fulfilled on {dotted} {name:?}: {why}");
        let details = Details { kind: kind.to_string(), ..about(resource, name) };
        Status::new(409, "Conflict", message, Some(details))
    }

    /// 422: the object breaks its rules.
    pub fn invalid(resource: &Resource, name: &str, errors: Vec<FieldError>) -> Self {
        Status::invalid_as(&resource.ids.group, &resource.ids.kind, name, errors)
    }

    /// 422: the options of a request break their rules.
    pub fn invalid_options(kind: &str, errors: Vec<FieldError>) -> Self {
        Status::invalid_as("meta.k8s.io", kind, "", errors)
    }

    /// 422: what a patch made of an object cannot be read. It names no kind, as what it names is no object.
    pub fn invalid_patch(error: FieldError) -> Self {
        Status::invalid_as("", "", "", vec![error])
    }

    /// 422: a Scale breaks its rules.
    pub fn invalid_scale(name: &str, error: FieldError) -> Self {
        Status::invalid_as("autoscaling", "Scale", name, vec![error])
    }

    pub(crate) fn invalid_as(group: &str, kind: &str, name: &str, errors: Vec<FieldError>) -> Self {
        let dotted = qualified(kind, group);
        let said: Vec<String> = errors.iter().map(FieldError::to_string).collect();
        let why = match said.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let details = Details {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            causes: errors.into_iter().map(Cause::from).collect(),
            ..Details::default()
        };
        Status::new(422, "Invalid", format!("{dotted} {name:?} is invalid: {why}"), Some(details))
    }

    /// 422 without an object: a patch that cannot be applied.
    pub fn unprocessable(message: impl Into<String>) -> Self {
        Status::new(422, "Invalid", message.into(), Some(Details::default()))
    }

    /// 403 from admission.
    pub fn forbidden(resource: &Resource, name: &str, why: &str, causes: Vec<Cause>) -> Self {
        let message = format!("{} {name:?} is forbidden: {why}", resource.ids.group_resource());
        let details = Details { causes, ..about(resource, name) };
        Status::new(403, "Forbidden", message, Some(details))
    }

    /// 401: a token that nobody was given.
    pub fn unauthorized() -> Self {
        Status::new(401, "Unauthorized", "Unauthorized".to_owned(), None)
    }

    /// 403 for a caller who may not do what is asked: about a resource as the request names it, or about a path.
    pub(crate) fn denied(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let dotted = qualified(resource, group);
        let message = match (resource, name) {
            ("", _) => format!("forbidden: {why}"),
            (_, "") => format!("{dotted} is forbidden: {why}"),
            (_, name) => format!("{dotted} {name:?} is forbidden: {why}"),
        };
        let details = Details {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: resource.to_owned(),
            ..Details::default()
        };
        Status::new(403, "Forbidden", message, Some(details))
    }

    /// 408: the client took too long.
    pub fn timeout(message: impl Into<String>) -> Self {
        Status::new(408, "Timeout", message.into(), None)
    }

    /// 429: later, perhaps.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        let details = Details { retry_after_seconds, ..Details::default() };
        Status::new(429, "TooManyRequests", message.into(), Some(details))
    }

    /// 413: more bytes than the server takes.
    pub fn too_large(message: impl Into<String>) -> Self {
        Status::new(413, "RequestEntityTooLarge", message.into(), None)
    }

    /// 415 from a body that cannot be read.
    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Status::new(415, "UnsupportedMediaType", message.into(), None)
    }

    /// 415 from a patch type that no resource knows; Kubernetes adds an empty `details` here.
    pub fn unsupported_patch_type(message: impl Into<String>) -> Self {
        Status::new(415, "UnsupportedMediaType", message.into(), Some(Details::default()))
    }

    /// 410: the version asked for is no longer kept.
    pub fn expired(message: impl Into<String>) -> Self {
        Status::new(410, "Expired", message.into(), None)
    }

    /// 504: the version asked for is in the future.
    pub fn too_large_version(asked: u64, current: u64) -> Self {
        let cause = Cause {
            reason: "ResourceVersionTooLarge".into(),
            message: "Too large resource version".into(),
            field: String::new(),
        };
        let details = Details { causes: vec![cause], retry_after_seconds: 1, ..Details::default() };
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Status::new(504, "Timeout", message, Some(details))
    }

    /// 500: our fault.
    pub fn internal(message: impl Into<String>) -> Self {
        Status::new(500, "InternalError", format!("Internal error occurred: {}", message.into()), None)
    }

    /// 500 with no reason, as Kubernetes answers a create that carries a resourceVersion.
    pub fn unknown(message: impl Into<String>) -> Self {
        Status::new(500, "", message.into(), None)
    }

    /// 200 to a deletion that is complete.
    pub(crate) fn deleted(resource: &Resource, name: &str, uid: &str) -> Value {
        let details = Details { uid: uid.to_owned(), ..about(resource, name) };
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": json!(details),
        })
    }

    /// The body.
    pub fn to_value(&self) -> Value {
        let mut body = Map::new();
        body.insert("kind".into(), "Status".into());
        body.insert("apiVersion".into(), "v1".into());
        let mut metadata = Map::new();
        if let Some(resume) = &self.resume {
            metadata.insert("continue".into(), resume.as_str().into());
        }
        body.insert("metadata".into(), Value::Object(metadata));
        body.insert("status".into(), "Failure".into());
        body.insert("message".into(), self.message.as_str().into());
        if !self.reason.is_empty() {
            body.insert("reason".into(), self.reason.as_ref().into());
        }
        if let Some(details) = &self.details {
            body.insert("details".into(), json!(details));
        }
        body.insert("code".into(), self.code.into());
        Value::Object(body)
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn about(resource: &Resource, name: &str) -> Details {
    Details {
        name: name.to_owned(),
        group: resource.ids.group.to_string(),
        kind: resource.ids.plural.to_string(),
        ..Details::default()
    }
}
