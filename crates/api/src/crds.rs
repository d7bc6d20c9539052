//! The CustomResourceDefinitions of all kinds, as they are installed.
//!
//! `kube` derives them; `tidy` takes out what an API server does not need: `null` as a value of optional
//! fields (nobody writes it, and a rule that meets it fails), titles, and number formats that Kubernetes does
//! not know.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Map, Value};

use crate::{deploy, git, pawl, remedy};

/// All of them, in a stable order: the doors in the order of their making, parents before children.
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![
        of::<git::Repository>(),
        of::<git::Branch>(),
        of::<git::WorkflowTemplate>(),
        of::<git::Workflow>(),
        of::<deploy::Installation>(),
        of::<deploy::Execution>(),
        of::<deploy::DeployItem>(),
        of::<deploy::Target>(),
        of::<deploy::DataObject>(),
        of::<remedy::RemediationPlaybook>(),
        of::<remedy::RemediationRequest>(),
        of::<remedy::WorkflowExecution>(),
        of::<remedy::KubernetesExecution>(),
        of::<pawl::Freeze>(),
        of::<pawl::Approval>(),
    ]
}

/// One of them.
pub fn of<K: CustomResourceExt>() -> CustomResourceDefinition {
    let mut crd = K::crd();
    for version in &mut crd.spec.versions {
        let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut())
        else {
            continue;
        };
        // The schema goes to JSON and back; a type that can say what it was read from cannot fail at that.
        let tidied = serde_json::to_value(&*schema).map(|mut value| {
            tidy(&mut value);
            value
        });
        if let Ok(tidied) = tidied.and_then(serde_json::from_value) {
            *schema = tidied;
        }
    }
    crd
}

/// Formats that an API server checks. It warns about others.
const FORMATS: [&str; 5] = ["int32", "int64", "date-time", "double", "byte"];

fn tidy(schema: &mut Value) {
    let Some(node) = schema.as_object_mut() else { return };
    node.remove("nullable");
    node.remove("title");
    if let Some(values) = node.get_mut("enum").and_then(Value::as_array_mut) {
        values.retain(|value| !value.is_null());
    }
    if node.get("format").and_then(Value::as_str).is_some_and(|format| !FORMATS.contains(&format)) {
        node.remove("format");
    }
    for child in children(node) {
        tidy(child);
    }
}

fn children(node: &mut Map<String, Value>) -> Vec<&mut Value> {
    let mut found = Vec::new();
    for (key, value) in node {
        match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => found.extend(properties.values_mut()),
            ("items" | "additionalProperties" | "not", value @ Value::Object(_)) => found.push(value),
            ("allOf" | "anyOf" | "oneOf", Value::Array(list)) => found.extend(list),
            _ => {}
        }
    }
    found
}
