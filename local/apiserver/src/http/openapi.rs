//! What do the OpenAPI documents say?
//!
//! Every schema the server checks with, and for every resource the operations whose options clients look
//! for: whether a write can be dry, and who checks its fields.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::resources::{Content, Registry, Resource, Version};
use crate::schema::{definition_name, definitions};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// `/openapi/v3`: where the document of each group version is.
pub(super) fn index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for (group, found) in registry.groups() {
        for version in &found.versions {
            let path = root(group, &version.name);
            // Clients keep a document as long as its hash stays: it does until a definition changes, or one is told of.
            let (made_from, told_of) = (registry.made_from, version.resources.len());
            let hash = format!("{}-{made_from}-{told_of}", env!("CARGO_PKG_VERSION"));
            let url = format!("/openapi/v3/{path}?hash={hash}");
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

/// `/openapi/v3/…`: one group version.
pub(super) fn v3(version: &Version) -> Value {
    let mut schemas = Map::new();
    let mut wanted = BTreeSet::from([OBJECT_META.to_owned()]);
    let mut paths = Map::new();
    for resource in version.resources.values() {
        add_schema(resource, &mut schemas, &mut wanted);
        operations(resource, &mut paths);
    }
    close(&mut schemas, wanted);
    let mut schemas = Value::Object(schemas);
    point(&mut schemas, "#/components/schemas/");
    json!({
        "openapi": "3.0.0", "info": info(), "paths": paths, "components": {"schemas": schemas},
    })
}

/// `/openapi/v2`: everything at once.
pub(super) fn v2(registry: &Registry) -> Value {
    let mut schemas = definitions().clone();
    let mut paths = Map::new();
    let mut wanted = BTreeSet::new();
    for (_, group) in registry.groups() {
        for resource in group.versions.iter().flat_map(|v| v.resources.values()) {
            add_schema(resource, &mut schemas, &mut wanted);
            operations(resource, &mut paths);
        }
    }
    let mut schemas = Value::Object(schemas);
    point(&mut schemas, "#/definitions/");
    json!({"swagger": "2.0", "info": info(), "paths": paths, "definitions": schemas})
}

/// Where a group version is served.
fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": "v1.36.0"})
}

/// Puts a custom resource's schema where it belongs; a built-in one is wanted from the definitions.
fn add_schema(resource: &Resource, schemas: &mut Map<String, Value>, wanted: &mut BTreeSet<String>) {
    let ids = &resource.ids;
    match &resource.content {
        Content::Builtin(_) => {
            wanted.extend(definition_name(&ids.group, &ids.version, &ids.kind).cloned());
        }
        Content::Custom(custom) => {
            let group: Vec<&str> = ids.group.split('.').rev().collect();
            let name = format!("{}.{}.{}", group.join("."), ids.version, ids.kind);
            let mut schema = custom.written_schema.clone();
            if let Some(schema) = schema.as_object_mut() {
                let kind = json!([{"group": &*ids.group, "version": &*ids.version, "kind": &*ids.kind}]);
                schema.insert("x-kubernetes-group-version-kind".into(), kind);
                let properties = schema.entry("properties").or_insert_with(|| json!({}));
                if let Some(properties) = properties.as_object_mut() {
                    properties.insert("apiVersion".into(), json!({"type": "string"}));
                    properties.insert("kind".into(), json!({"type": "string"}));
                    properties.insert("metadata".into(), json!({"$ref": OBJECT_META}));
                }
            }
            schemas.insert(name, schema);
        }
    }
}

/// Adds the definitions that are wanted, and those they refer to.
fn close(schemas: &mut Map<String, Value>, wanted: BTreeSet<String>) {
    let mut queue: Vec<String> = wanted.into_iter().collect();
    while let Some(name) = queue.pop() {
        let Some(schema) = definitions().get(&name).filter(|_| !schemas.contains_key(&name)) else {
            continue;
        };
        references(schema, &mut queue);
        schemas.insert(name, schema.clone());
    }
}

fn references(schema: &Value, out: &mut Vec<String>) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::String(name)) = map.get("$ref") {
                out.push(name.clone());
            }
            map.values().for_each(|v| references(v, out));
        }
        Value::Array(list) => list.iter().for_each(|v| references(v, out)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Makes bare names in `$ref` point into the document. Schemas nest no deeper than the parser allows.
fn point(schema: &mut Value, prefix: &str) {
    match schema {
        Value::Object(map) => {
            for (key, value) in map {
                if let (Value::String(name), "$ref") = (&mut *value, key.as_str()) {
                    if !name.starts_with('#') {
                        *name = format!("{prefix}{name}");
                    }
                } else {
                    point(value, prefix);
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|v| point(v, prefix)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn operations(resource: &Resource, paths: &mut Map<String, Value>) {
    let ids = &resource.ids;
    let namespace = if ids.namespaced { "/namespaces/{namespace}" } else { "" };
    let root = format!("/{}{namespace}", root(&ids.group, &ids.version));
    let kind = json!({"group": &*ids.group, "version": &*ids.version, "kind": &*ids.kind});
    let operation = |action: &str, options: &[&str]| {
        let parameters: Vec<Value> = options
            .iter()
            .map(|name| json!({"in": "query", "name": name, "schema": {"type": "string", "uniqueItems": true}}))
            .collect();
        json!({
            "x-kubernetes-action": action, "x-kubernetes-group-version-kind": kind, "parameters": parameters,
            "responses": {"200": {"description": "OK"}},
        })
    };
    const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
    const PATCH: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];
    const LIST: &[&str] =
        &["labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "watch"];
    if resource.review().is_some() {
        paths.insert(format!("{root}/{}", ids.plural), json!({"post": operation("post", WRITE)}));
        return;
    }
    if resource.told().is_some() {
        paths.insert(format!("{root}/{}", ids.plural), json!({"get": operation("list", LIST)}));
        paths.insert(format!("{root}/{}/{{name}}", ids.plural), json!({"get": operation("get", &[])}));
        return;
    }
    let collection = json!({
        "get": operation("list", LIST), "post": operation("post", WRITE),
        "delete": operation("deletecollection", LIST),
    });
    let item = json!({
        "get": operation("get", &[]), "put": operation("put", WRITE), "patch": operation("patch", PATCH),
        "delete": operation("delete", &["dryRun", "gracePeriodSeconds", "propagationPolicy"]),
    });
    paths.insert(format!("{root}/{}", ids.plural), collection);
    paths.insert(format!("{root}/{}/{{name}}", ids.plural), item);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_leads_somewhere() {
        let registry = Registry::new(Default::default(), 0);
        let document = v3(registry.version("apps", "v1").unwrap());
        let mut names = Vec::new();
        references(&document, &mut names);
        assert!(!names.is_empty());
        for name in names {
            let pointer = name.trim_start_matches('#');
            assert!(document.pointer(pointer).is_some(), "{name}");
        }
        assert_eq!(v2(&registry)["swagger"], "2.0");
    }
}
