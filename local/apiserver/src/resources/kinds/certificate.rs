//! What may be asked to be signed, and who may change what about it?
//!
//! Nobody signs here: requests are kept and approved, and a signer that watches them finds what it expects.

#![expect(clippy::indexing_slicing, reason = "reading a Value by key never panics: what is absent is null")]

use serde_json::Value;

use super::{Hooks, NONE, set};
use crate::validation::FieldError;

/// Kubernetes' number: ten minutes.
const MIN_EXPIRATION_SECONDS: i64 = 600;

pub(crate) const SIGNING_REQUEST: Hooks = Hooks {
    update: |object, old, context| {
        // What is asked for is asked once.
        set(object, "spec", old["spec"].clone());
        let before = old["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let now = crate::env::to_second(context.now);
        let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten() {
            let same = before.iter().find(|one| one["type"] == condition["type"]);
            if condition["lastUpdateTime"].is_null() {
                set(condition, "lastUpdateTime", now.clone().into());
            }
            if condition["lastTransitionTime"].is_null() {
                let kept = same.filter(|one| one["status"] == condition["status"]);
                let since = kept.map(|one| one["lastTransitionTime"].clone());
                set(condition, "lastTransitionTime", since.unwrap_or_else(|| now.clone().into()));
            }
        }
    },
    validate,
    ..NONE
};

fn validate(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    let text = |key: &str| spec[key].as_str().unwrap_or_default();
    if text("request").is_empty() {
        errors.push(FieldError::required("spec.request", ""));
    }
    if spec["usages"].as_array().is_none_or(Vec::is_empty) {
        errors.push(FieldError::required("spec.usages", "usages must be provided"));
    }
    let signer = text("signerName");
    if signer.is_empty() {
        errors.push(FieldError::required("spec.signerName", ""));
    } else if signer.split_once('/').is_none_or(|(domain, path)| !domain.contains('.') || path.is_empty()) {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.push(FieldError::invalid("spec.signerName", &spec["signerName"], why));
    }
    if spec["expirationSeconds"].as_i64().is_some_and(|seconds| seconds < MIN_EXPIRATION_SECONDS) {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.push(FieldError::invalid("spec.expirationSeconds", &spec["expirationSeconds"], why));
    }
    let conditions = |object: &Value| object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let has = |object: &Value, wanted: &str| conditions(object).iter().any(|one| one["type"] == wanted);
    if has(object, "Approved") && has(object, "Denied") {
        let why = "Approved and Denied conditions are mutually exclusive";
        errors.push(FieldError::invalid("status.conditions", &object["status"]["conditions"], why));
    }
    for settled in ["Approved", "Denied", "Failed"] {
        if old.is_some_and(|old| has(old, settled)) && !has(object, settled) {
            let why = format!("updates may not remove a condition of type {settled:?}");
            errors.push(FieldError::forbidden("status.conditions", why));
        }
    }
    errors
}
