//! When do the OpenAPI documents tell of a definition?

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use pawl_apiserver::{SeededEnv, Server};
use serde_json::{Value, json};

use crate::wire::{Wire, listening};
use crate::{get, let_in};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn definition(plural: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": plural},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "description": "A thing."}}}]}})
}

/// The kinds that a group version's document tells of, and its address with the hash.
fn told(server: &Server) -> Option<(Vec<String>, String)> {
    let (_, index) = get(server, "/openapi/v3");
    let url = index["paths"]["apis/example.com/v1"]["serverRelativeURL"].as_str()?.to_owned();
    let (code, document) = get(server, &url);
    assert_eq!(code, 200);
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let ours = schemas.keys().filter_map(|name| name.strip_prefix("com.example.v1."));
    Some((ours.map(str::to_owned).collect(), url))
}

#[tokio::test]
async fn a_definition_is_served_at_once_and_told_of_within_a_second() {
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let env = Arc::new(SeededEnv::new(1, now));
    let server = let_in(Server::in_memory(env.clone()));
    let mut wire = Wire::open(listening(server.clone()).await).await.unwrap();
    let lamps = definition("lamps");
    let created = wire.ask("POST", DEFINITIONS, Some(("application/json", &lamps))).await.unwrap();
    assert_eq!(created.0, 201);
    assert_eq!(get(&server, "/apis/example.com/v1/lamps").0, 200);
    assert_eq!(get(&server, "/apis/example.com/v1").1["resources"][0]["name"], "lamps");
    assert_eq!(told(&server), None);
    assert_eq!(get(&server, "/openapi/v3/apis/example.com/v1").0, 404);
    assert!(!get(&server, "/openapi/v2").1.to_string().contains("lamps"));

    env.set_now(now + SignedDuration::from_secs(1));
    let (kinds, first) = told(&server).unwrap();
    assert_eq!(kinds, ["lamps"]);
    assert!(get(&server, "/openapi/v2").1.to_string().contains("lamps"));

    // Another of the same group joins the document as late, under another address: nobody keeps the old one.
    let desks = definition("desks");
    wire.ask("POST", DEFINITIONS, Some(("application/json", &desks))).await.unwrap();
    let (kinds, second) = told(&server).unwrap();
    assert_eq!(kinds, ["lamps"]);
    env.set_now(now + SignedDuration::from_secs(2));
    let (kinds, third) = told(&server).unwrap();
    assert_eq!(kinds, ["desks", "lamps"]);
    assert!(first != second && second != third);
}

#[test]
fn the_servers_own_definitions_are_told_of_at_once() {
    let server = crate::guarded();
    server.install_crd(definition("lamps")).unwrap();
    assert_eq!(told(&server).unwrap().0, ["lamps"]);
}
