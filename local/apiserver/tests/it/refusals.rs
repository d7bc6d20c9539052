//! Is refused what a kube-apiserver refuses, with the same code, reason and causes?

use serde_json::{Value, json};

use crate::{delete, get, merge, post, put, send, server};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const JSON_PATCH: &str = "application/json-patch+json";

/// Code, reason, and the reason and field of each cause.
fn why((code, status): (u16, Value)) -> (u16, String, Vec<String>) {
    let causes = status["details"]["causes"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let causes = causes.iter().map(|c| format!("{} {}", text(&c["reason"]), text(&c["field"])));
    (code, text(&status["reason"]), causes.collect())
}

fn because(code: u16, reason: &str, causes: &[&str]) -> (u16, String, Vec<String>) {
    (code, reason.to_owned(), causes.iter().map(|&c| c.to_owned()).collect())
}

#[test]
fn what_is_in_namespaces_is_never_deleted_in_all_of_them_at_once() {
    let server = server();
    assert_eq!(why(delete(&server, "/api/v1/configmaps")), because(405, "MethodNotAllowed", &[]));
    assert_eq!(why(delete(&server, "/api/v1/namespaces")), because(405, "MethodNotAllowed", &[]));
    for name in ["default", "kube-system", "kube-public"] {
        let path = format!("/api/v1/namespaces/{name}");
        assert_eq!(why(delete(&server, &path)), because(403, "Forbidden", &[]), "{name}");
    }
}

#[test]
fn a_patch_that_makes_no_sense_is_told_from_one_that_does_not_fit() {
    let server = server();
    let path = format!("{MAPS}/a");
    post(&server, MAPS, &json!({"metadata": {"name": "a"}}));
    let patched = |patch: Value| why(send(&server, "PATCH", &path, JSON_PATCH, patch.to_string()));
    assert_eq!(patched(json!({"op": "add"})), because(400, "BadRequest", &[]));
    assert_eq!(patched(json!([1])), because(400, "BadRequest", &[]));
    for step in [
        json!({"op": "mangle", "path": "/data"}),
        json!({"op": "add", "value": 1}),
        json!({"op": "add", "path": "data", "value": {}}),
        json!({"op": "remove", "path": "/data/none"}),
    ] {
        assert_eq!(patched(json!([step])), because(422, "Invalid", &[]), "{step}");
    }
    // What comes out must be an object of the kind; the refusal names none.
    for patch in [json!({"kind": "Secret"}), json!({"apiVersion": "v2"}), json!({"data": {"k": 5}})] {
        let (code, status) = merge(&server, &path, &patch);
        assert_eq!(
            why((code, status.clone())),
            because(422, "Invalid", &["FieldValueInvalid patch"]),
            "{patch}"
        );
        assert_eq!(status["details"]["kind"], Value::Null);
    }
    let strict = send(
        &server,
        "PATCH",
        &format!("{path}?fieldValidation=Strict"),
        "application/merge-patch+json",
        "{\"x\":1}",
    );
    assert_eq!(why(strict), because(422, "Invalid", &["FieldValueInvalid patch"]));
    let odd = put(&server, &path, &json!({"metadata": {"name": "a", "resourceVersion": "abc"}}));
    assert_eq!(why(odd), because(500, "", &[]));
}

#[test]
fn a_field_that_is_named_twice_is_told_of() {
    let server = server();
    let body = r#"{"metadata": {"name": "a"}, "data": {"k": "1", "k": "2"}}"#;
    let strict = format!("{MAPS}?fieldValidation=Strict");
    let (code, status) = send(&server, "POST", &strict, "application/json", body);
    assert_eq!(code, 400);
    assert!(status["message"].as_str().unwrap().contains("duplicate field \"data.k\""), "{status}");
    let request = http::Request::post(MAPS).body(body.into()).unwrap();
    let response = server.call(request);
    assert_eq!(response.status().as_u16(), 201);
    assert_eq!(response.headers()["warning"], "299 - \"duplicate field \\\"data.k\\\"\"");
}

#[test]
fn what_is_kept_for_others_has_names_that_files_can_have() {
    let server = server();
    let map = json!({"metadata": {"name": "a"}, "data": {"a b": "", "k": ""}, "binaryData": {"k": ""}});
    let wrong =
        ["FieldValueInvalid data[a b]", "FieldValueInvalid data[k]", "FieldValueInvalid binaryData[k]"];
    assert_eq!(why(post(&server, MAPS, &map)), because(422, "Invalid", &wrong));
    let tls = json!({"metadata": {"name": "a"}, "type": "kubernetes.io/tls"});
    let missing = ["FieldValueRequired data[tls.crt]", "FieldValueRequired data[tls.key]"];
    assert_eq!(
        why(post(&server, "/api/v1/namespaces/default/secrets", &tls)),
        because(422, "Invalid", &missing)
    );
}

fn deployment(strategy: Value, container: Value) -> Value {
    json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "strategy": strategy,
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}}})
}

#[test]
fn a_workload_that_could_never_run_is_refused_by_field() {
    let server = server();
    let plain = json!({"name": "c", "image": "i"});
    let with = |key: &str, value: Value| {
        let mut container = plain.clone();
        container[key] = value;
        container
    };
    let at = |field: &str| format!("spec.template.spec.containers[0].{field}");
    for (object, cause) in [
        (
            deployment(json!({"type": "Sideways"}), plain.clone()),
            "FieldValueNotSupported spec.strategy".to_owned(),
        ),
        (
            deployment(json!({"type": "Recreate", "rollingUpdate": {}}), plain.clone()),
            "FieldValueForbidden spec.strategy.rollingUpdate".to_owned(),
        ),
        (
            deployment(json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}), plain.clone()),
            "FieldValueInvalid spec.strategy.rollingUpdate.maxUnavailable".to_owned(),
        ),
        (
            deployment(json!({}), with("volumeMounts", json!([{"name": "v", "mountPath": "/x"}]))),
            format!("FieldValueNotFound {}", at("volumeMounts[0].name")),
        ),
        (
            deployment(json!({}), with("ports", json!([{"containerPort": 70_000}]))),
            format!("FieldValueInvalid {}", at("ports[0].containerPort")),
        ),
        (
            deployment(json!({}), with("env", json!([{"name": "a=b"}]))),
            format!("FieldValueInvalid {}", at("env[0].name")),
        ),
        (
            deployment(
                json!({}),
                with("resources", json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})),
            ),
            format!("FieldValueInvalid {}", at("resources.requests")),
        ),
    ] {
        let path = format!("{DEPLOYMENTS}?dryRun=All");
        let want = because(422, "Invalid", &[&cause]);
        assert_eq!(why(post(&server, &path, &object)), want, "{object}");
    }
    let (_, made) = post(&server, DEPLOYMENTS, &deployment(json!({}), plain));
    assert_eq!(made["metadata"]["generation"], 1);
    let (code, status) =
        merge(&server, &format!("{DEPLOYMENTS}/d/scale"), &json!({"spec": {"replicas": -1}}));
    let about = json!({"group": "autoscaling", "kind": "Scale", "name": "d"});
    for (key, want) in about.as_object().unwrap() {
        assert_eq!((code, &status["details"][key]), (422, want));
    }
}

#[test]
fn a_page_is_not_asked_for_at_another_version() {
    let server = server();
    for name in ["a", "b"] {
        post(&server, MAPS, &json!({"metadata": {"name": name}}));
    }
    let (_, page) = get(&server, &format!("{MAPS}?limit=1"));
    let next = page["metadata"]["continue"].as_str().unwrap();
    let both = get(&server, &format!("{MAPS}?limit=1&continue={next}&resourceVersion=5"));
    assert_eq!(why(both), because(400, "BadRequest", &[]));
    assert_eq!(get(&server, &format!("{MAPS}?limit=1&continue={next}&resourceVersion=0")).0, 200);
}

#[test]
fn a_pod_is_evicted_unless_a_budget_needs_it_and_bound_once() {
    let server = server();
    let container = json!({"name": "c", "image": "i"});
    for name in ["a", "b"] {
        let pod =
            json!({"metadata": {"name": name, "labels": {"app": "x"}}, "spec": {"containers": [container]}});
        assert_eq!(post(&server, PODS, &pod).0, 201);
        let ready =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(merge(&server, &format!("{PODS}/{name}/status"), &ready).0, 200);
    }
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}});
    assert_eq!(post(&server, &format!("{PODS}/a/binding"), &binding).0, 201);
    let (_, bound) = get(&server, &format!("{PODS}/a"));
    assert_eq!(bound["spec"]["nodeName"], "n");
    assert_eq!(why(post(&server, &format!("{PODS}/a/binding"), &binding)), because(409, "Conflict", &[]));
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}});
    assert_eq!(post(&server, "/apis/policy/v1/namespaces/default/poddisruptionbudgets", &budget).0, 201);
    let evict = |name: &str| {
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
            "deleteOptions": {"gracePeriodSeconds": 0}});
        post(&server, &format!("{PODS}/{name}/eviction"), &body)
    };
    assert_eq!(evict("b").0, 201);
    assert_eq!(get(&server, &format!("{PODS}/b")).0, 404);
    assert_eq!(why(evict("a")), because(429, "TooManyRequests", &["DisruptionBudget "]));
    assert_eq!(why(evict("none")), because(404, "NotFound", &[]));
    assert_eq!(why(get(&server, &format!("{PODS}/a/exec"))), because(400, "BadRequest", &[]));
}
