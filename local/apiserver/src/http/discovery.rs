//! What does the server say about itself?

use bytes::Bytes;
use serde_json::{Value, json};

use super::{openapi, openapi_protobuf};
use crate::resources::{Group, Registry, Resource, Version};

/// A document about the server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Document {
    /// `/healthz` and its kin.
    Ok,
    /// Anything in JSON.
    Json(Value),
    /// `/openapi/v2`, which some clients want in protobuf.
    OpenApiV2,
    /// `/api` or `/apis`, which some clients want in the aggregated form.
    Groups { core: bool },
}

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// Namespaces go one by one.
const NAMESPACE_VERBS: [&str; 7] = ["create", "delete", "get", "list", "patch", "update", "watch"];
const REVIEW_VERBS: [&str; 1] = ["create"];
const TOLD_VERBS: [&str; 2] = ["get", "list"];
const SUBRESOURCE_VERBS: [&str; 3] = ["get", "patch", "update"];

impl Document {
    pub(super) fn at(parts: &[&str], registry: &Registry) -> Option<Document> {
        match parts {
            ["healthz" | "livez" | "readyz"] | ["healthz" | "livez" | "readyz", "ping"] => Some(Document::Ok),
            ["version"] => Some(Document::Json(version())),
            ["api"] => Some(Document::Groups { core: true }),
            ["apis"] => Some(Document::Groups { core: false }),
            ["apis", name] if !name.is_empty() => {
                registry.group(name).map(|g| Document::Json(group(name, g, true)))
            }
            ["openapi", "v2"] => Some(Document::OpenApiV2),
            ["openapi", "v3"] => Some(Document::Json(openapi::index(registry))),
            ["openapi", "v3", "api", v] => {
                registry.version("", v).map(|found| Document::Json(openapi::v3(found)))
            }
            ["openapi", "v3", "apis", g, v] => {
                registry.version(g, v).map(|found| Document::Json(openapi::v3(found)))
            }
            ["api", v] => registry.version("", v).map(|found| Document::Json(resources(v, found))),
            ["apis", g, v] => {
                registry.version(g, v).map(|found| Document::Json(resources(&format!("{g}/{v}"), found)))
            }
            _ => None,
        }
    }

    /// This document in the form the client accepts; `None` is a plain `ok`.
    pub(super) fn body(&self, registry: &Registry, accept: &str) -> Option<(Bytes, &'static str)> {
        if *self == Document::OpenApiV2 && openapi_protobuf::wanted(accept) {
            let encoded = openapi_protobuf::encode(&openapi::v2(registry));
            return Some((encoded.into(), openapi_protobuf::MEDIA_TYPE));
        }
        self.json(registry, accept).map(|(value, media)| (value.to_string().into(), media))
    }

    fn json(&self, registry: &Registry, accept: &str) -> Option<(Value, &'static str)> {
        const PLAIN: &str = "application/json";
        const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        match self {
            Document::Ok => None,
            Document::Json(value) => Some((value.clone(), PLAIN)),
            Document::OpenApiV2 => Some((openapi::v2(registry), PLAIN)),
            Document::Groups { core } if wants_aggregated(accept) => {
                Some((aggregated(registry, *core), AGGREGATED))
            }
            Document::Groups { core: true } => {
                let addresses = json!([{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}]);
                Some((
                    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}),
                    PLAIN,
                ))
            }
            Document::Groups { core: false } => {
                let groups: Vec<Value> = registry
                    .groups()
                    .filter(|(name, _)| !name.is_empty())
                    .map(|(name, found)| group(name, found, false))
                    .collect();
                Some((json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}), PLAIN))
            }
        }
    }
}

fn wants_aggregated(accept: &str) -> bool {
    let first = accept.split(',').next().unwrap_or_default();
    first.contains("as=APIGroupDiscoveryList") && first.contains("v=v2") && !first.contains("v=v2beta1")
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": concat!("v1.36.0+pawl-", env!("CARGO_PKG_VERSION")),
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "",
        "compiler": "rustc", "platform": concat!("linux/", "amd64"),
    })
}

fn group(name: &str, group: &Group, with_kind: bool) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|v| json!({"groupVersion": format!("{name}/{}", v.name), "version": &*v.name}))
        .collect();
    let mut out = json!({"name": name, "preferredVersion": versions.first(), "versions": versions});
    if with_kind && let Some(out) = out.as_object_mut() {
        out.insert("kind".into(), "APIGroup".into());
        out.insert("apiVersion".into(), "v1".into());
    }
    out
}

fn resources(group_version: &str, version: &Version) -> Value {
    let mut out = Vec::new();
    for resource in version.resources.values() {
        let ids = &resource.ids;
        let mut entry = json!({
            "name": &*ids.plural, "singularName": &*resource.singular, "namespaced": ids.namespaced,
            "kind": &*ids.kind, "verbs": verbs(resource),
        });
        add_names(&mut entry, resource);
        out.push(entry);
        for part in subresources(resource) {
            let mut entry = json!({
                "name": format!("{}/{}", ids.plural, part.name), "singularName": "", "namespaced": ids.namespaced,
                "kind": part.kind, "verbs": part.verbs,
            });
            if let (Some((group, version)), Some(entry)) = (part.foreign, entry.as_object_mut()) {
                entry.insert("group".into(), group.into());
                entry.insert("version".into(), version.into());
            }
            out.push(entry);
        }
    }
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": out})
}

fn aggregated(registry: &Registry, core: bool) -> Value {
    let chosen = registry.groups().filter(|(name, _)| name.is_empty() == core);
    let items: Vec<Value> = chosen
        .map(|(name, group)| {
            let versions: Vec<Value> = group
                .versions
                .iter()
                .map(|v| {
                    let resources: Vec<Value> =
                        v.resources.values().map(|r| aggregated_resource(r)).collect();
                    json!({"version": &*v.name, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if name.is_empty() { json!({}) } else { json!({"name": &**name}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    })
}

fn aggregated_resource(resource: &Resource) -> Value {
    let ids = &resource.ids;
    let kind =
        |kind: &str, group: &str, version: &str| json!({"group": group, "version": version, "kind": kind});
    let subresources: Vec<Value> = subresources(resource)
        .into_iter()
        .map(|part| {
            let (group, version) = part.foreign.unwrap_or((&ids.group, &ids.version));
            let response = kind(part.kind, group, version);
            json!({"subresource": part.name, "responseKind": response, "verbs": part.verbs})
        })
        .collect();
    let mut out = json!({
        "resource": &*ids.plural, "responseKind": kind(&ids.kind, &ids.group, &ids.version),
        "scope": if ids.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": &*resource.singular, "verbs": verbs(resource),
    });
    add_names(&mut out, resource);
    if let (false, Some(out)) = (subresources.is_empty(), out.as_object_mut()) {
        out.insert("subresources".into(), subresources.into());
    }
    out
}

fn verbs(resource: &Resource) -> &'static [&'static str] {
    if resource.review().is_some() {
        &REVIEW_VERBS
    } else if resource.told().is_some() {
        &TOLD_VERBS
    } else if resource.is("", "namespaces") {
        &NAMESPACE_VERBS
    } else {
        &VERBS
    }
}

/// A part of a resource.
struct Part<'a> {
    name: &'static str,
    kind: &'a str,
    /// The group and version of its kind, if they are not the resource's.
    foreign: Option<(&'static str, &'static str)>,
    verbs: &'static [&'static str],
}

fn subresources(resource: &Resource) -> Vec<Part<'_>> {
    let mut out = Vec::new();
    if resource.status {
        out.push(Part { name: "status", kind: &resource.ids.kind, foreign: None, verbs: &SUBRESOURCE_VERBS });
    }
    if resource.scale.is_some() {
        let foreign = Some(("autoscaling", "v1"));
        out.push(Part { name: "scale", kind: "Scale", foreign, verbs: &SUBRESOURCE_VERBS });
    }
    if resource.is("", "namespaces") {
        out.push(Part { name: "finalize", kind: "Namespace", foreign: None, verbs: &["update"] });
    }
    if resource.is("", "pods") {
        out.push(Part { name: "binding", kind: "Binding", foreign: None, verbs: &REVIEW_VERBS });
        let foreign = Some(("policy", "v1"));
        out.push(Part { name: "eviction", kind: "Eviction", foreign, verbs: &REVIEW_VERBS });
        let name = "ephemeralcontainers";
        out.push(Part { name, kind: "Pod", foreign: None, verbs: &SUBRESOURCE_VERBS });
        out.push(Part { name: "log", kind: "Pod", foreign: None, verbs: &["get"] });
    }
    if resource.is("certificates.k8s.io", "certificatesigningrequests") {
        let kind = &resource.ids.kind;
        out.push(Part { name: "approval", kind, foreign: None, verbs: &SUBRESOURCE_VERBS });
    }
    if resource.is("", "serviceaccounts") {
        let foreign = Some(("authentication.k8s.io", "v1"));
        out.push(Part { name: "token", kind: "TokenRequest", foreign, verbs: &REVIEW_VERBS });
    }
    out
}

/// Adds the short names and categories of a resource, where it has them.
fn add_names(entry: &mut Value, resource: &Resource) {
    let Some(entry) = entry.as_object_mut() else { return };
    for (field, names) in [("shortNames", &resource.short_names), ("categories", &resource.categories)] {
        if !names.is_empty() {
            entry.insert(field.into(), names.iter().map(|name| Value::from(&**name)).collect());
        }
    }
}
