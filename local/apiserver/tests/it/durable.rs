//! Does a server go on where it was left? (`crash.rs`: also when it was killed.)

use std::sync::Arc;

use pawl_apiserver::{Limits, Options, RealEnv, Server};
use serde_json::json;

use crate::{delete, get, merge, post};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn open(dir: &std::path::Path) -> Server {
    // Small logs, so that snapshots take over a few times.
    let options = Options { limits: Limits::default(), rotate_bytes: 8_000, room_bytes: 2_000 };
    Server::open(dir, Arc::new(RealEnv), options).unwrap()
}

#[test]
fn a_server_goes_on_where_it_was_left() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path());
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
                    "properties": {"color": {"type": "string"}}}}}}}]}});
    server.install_crd(crd).unwrap();
    let things = "/apis/example.com/v1/namespaces/default/things";
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"},
        "spec": {"color": "red"}});
    let (code, made) = post(&server, things, &thing);
    assert_eq!(code, 201, "{made}");
    for at in 0..50 {
        post(&server, MAPS, &json!({"metadata": {"name": format!("m{at}")}}));
        delete(&server, &format!("{MAPS}/m{at}"));
    }
    let revision = server.revision();
    drop(server);
    let server = open(dir.path());
    assert_eq!(server.revision(), revision, "opening writes nothing");
    assert_eq!(get(&server, &format!("{things}/t")), (200, made));
    let (_, red) = get(&server, &format!("{things}?fieldSelector=spec.color%3Dred"));
    assert_eq!(red["items"].as_array().unwrap().len(), 1);
    let (_, patched) = merge(&server, &format!("{things}/t"), &json!({"spec": {"color": "blue"}}));
    assert_eq!(patched["metadata"]["resourceVersion"], (revision + 1).to_string());
}
