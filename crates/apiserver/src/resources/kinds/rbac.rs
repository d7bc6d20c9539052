//! What does Kubernetes fill into a binding, and what does it refuse?

#![expect(clippy::indexing_slicing, reason = "reading a Value by key never panics: what is absent is null")]

use serde_json::{Value, json};

use super::{Hooks, NONE, fill};
use crate::validation::FieldError;

const GROUP: &str = "rbac.authorization.k8s.io";

pub(crate) const BINDING: Hooks = Hooks {
    default: |object| {
        if let Some(role) = object.get_mut("roleRef") {
            fill(role, "apiGroup", json!(GROUP));
        }
        for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
            if matches!(subject["kind"].as_str(), Some("User" | "Group")) {
                fill(subject, "apiGroup", json!(GROUP));
            }
        }
    },
    validate: |object, old| {
        let mut errors = Vec::new();
        if object["roleRef"]["name"].as_str().unwrap_or_default().is_empty() {
            errors.push(FieldError::required("roleRef.name", ""));
        }
        if old.is_some_and(|old| old["roleRef"] != object["roleRef"]) {
            errors.push(FieldError::invalid("roleRef", &object["roleRef"], "cannot change roleRef"));
        }
        errors
    },
    ..NONE
};
