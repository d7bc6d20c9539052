//! Whatever is sent, the answer is a clear Status and the server goes on.

use serde_json::{Value, json};

use crate::{get, merge, post, send, server};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn refused(answer: (u16, Value), code: u16) {
    let (got, body) = answer;
    assert_eq!(got, code, "{body}");
    assert_eq!(body["kind"], "Status", "{body}");
    assert_eq!(body["code"], code);
    assert!(body["message"].as_str().is_some_and(|m| !m.is_empty()));
}

#[test]
fn a_body_over_the_limit_is_refused_by_size() {
    let body = format!("{{\"data\":{{\"k\":\"{}\"}}}}", "x".repeat(10 << 20));
    refused(send(&server(), "POST", MAPS, "application/json", body), 413);
}

#[test]
fn an_object_over_the_limit_is_refused_by_size() {
    let container = json!({"name": "c", "image": "i", "args": ["x".repeat(2 << 20)]});
    let object = json!({"metadata": {"name": "a"}, "spec": {"containers": [container]}});
    refused(post(&server(), "/api/v1/namespaces/default/pods", &object), 413);
    // A ConfigMap has a limit of its own, which is lower.
    let object = json!({"metadata": {"name": "a"}, "data": {"k": "x".repeat(2 << 20)}});
    refused(post(&server(), MAPS, &object), 422);
}

#[test]
fn deep_nesting_is_refused_not_fatal() {
    let server = server();
    for depth in [200, 1_000, 100_000] {
        let nested = format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        refused(send(&server, "POST", MAPS, "application/json", nested.clone()), 400);
        refused(send(&server, "POST", MAPS, "application/yaml", nested), 400);
    }
}

#[test]
fn wrong_types_in_metadata_are_refused() {
    let server = server();
    for metadata in [
        json!({"name": "a", "labels": ["x"]}),
        json!({"name": "a", "labels": {"x": 1}}),
        json!({"name": 5}),
        json!({"name": "a", "finalizers": "x"}),
        json!({"name": "a", "ownerReferences": {}}),
        json!({"name": "a", "generation": "one"}),
        json!({"name": "a", "creationTimestamp": "yesterday"}),
        json!([]),
        json!("a"),
    ] {
        refused(post(&server, MAPS, &json!({"metadata": metadata})), 400);
    }
}

#[test]
fn bodies_that_are_no_objects_are_refused() {
    let server = server();
    for body in ["", "null", "1", "\"x\"", "[]", "[{}]", "{", "{}}", "\u{0}", "nul"] {
        refused(send(&server, "POST", MAPS, "application/json", body), 400);
    }
    refused(
        send(&server, "POST", MAPS, "application/json", &b"{\"metadata\":{\"name\":\"\xff\xfe\"}}"[..]),
        400,
    );
    refused(send(&server, "POST", MAPS, "application/yaml", &b"metadata: {name: \xff}"[..]), 400);
    refused(send(&server, "POST", MAPS, "application/yaml", "a: &a [*a]"), 400);
}

#[test]
fn names_with_nul_or_bidi_characters_are_refused() {
    let server = server();
    for name in ["a\u{0}b", "a\u{202e}b", "ä", "a b", "a/b", "..", "-", &"a".repeat(300)] {
        refused(post(&server, MAPS, &json!({"metadata": {"name": name}})), 422);
    }
}

#[test]
fn paths_and_queries_out_of_hand_are_refused() {
    let server = server();
    refused(get(&server, &format!("{MAPS}?labelSelector={}", "a".repeat(60_000))), 400);
    refused(get(&server, &format!("{MAPS}?labelSelector=%zz")), 400);
    refused(get(&server, &format!("{MAPS}?limit=many")), 400);
    refused(get(&server, "/api/v1/namespaces/%ff/configmaps/a"), 400);
    refused(get(&server, &format!("{MAPS}/{}", "x/".repeat(1_000))), 404);
}

#[test]
fn patches_that_ruin_an_object_are_refused() {
    let server = server();
    let path = format!("{MAPS}/a");
    assert_eq!(post(&server, MAPS, &json!({"metadata": {"name": "a"}})).0, 201);
    refused(merge(&server, &path, &json!({"metadata": null})), 400);
    for patch in [json!({"metadata": []}), json!({"kind": "Secret"}), json!({"apiVersion": 7})] {
        refused(merge(&server, &path, &patch), 422);
    }
    refused(merge(&server, &path, &json!({"data": {"k": 5}})), 422);
    refused(merge(&server, &path, &json!({"metadata": {"labels": ["x"]}})), 422);
    let json_patch = "application/json-patch+json";
    refused(send(&server, "PATCH", &path, json_patch, "{}"), 400);
    refused(
        send(&server, "PATCH", &path, json_patch, "[{\"op\":\"replace\",\"path\":\"\",\"value\":1}]"),
        422,
    );
    let many = format!("[{}]", vec!["{\"op\":\"test\",\"path\":\"/x\"}"; 10_001].join(","));
    refused(send(&server, "PATCH", &path, json_patch, many), 413);
}
