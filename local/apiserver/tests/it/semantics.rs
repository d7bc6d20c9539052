//! What clients rely on that no recorded conversation shows.

use serde_json::json;

use crate::{delete, get, merge, post, put, send, server};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

#[test]
fn a_write_that_changes_nothing_moves_no_revision() {
    let server = server();
    let (_, created) = post(&server, MAPS, &map("a"));
    let before = server.revision();
    let (code, patched) = merge(&server, &format!("{MAPS}/a"), &json!({"data": {"k": "v"}}));
    assert_eq!((code, &patched), (200, &created));
    let (code, replaced) = put(&server, &format!("{MAPS}/a"), &map("a"));
    assert_eq!((code, replaced), (200, created));
    assert_eq!(server.revision(), before);
    assert!(server.changes(before).unwrap().is_empty());
}

#[test]
fn changes_tell_every_write_in_order() {
    let server = server();
    let since = server.revision();
    post(&server, MAPS, &map("a"));
    merge(&server, &format!("{MAPS}/a"), &json!({"data": {"k": "2"}}));
    delete(&server, &format!("{MAPS}/a"));
    let changes = server.changes(since).unwrap();
    let told: Vec<_> = changes.iter().map(|c| (c.change().as_str(), c.revision() - since)).collect();
    assert_eq!(told, [("ADDED", 1), ("MODIFIED", 2), ("DELETED", 3)]);
    let last = changes[2].value();
    assert_eq!(last["data"]["k"], "2");
    assert_eq!(last["metadata"]["resourceVersion"], changes[2].revision().to_string());
    assert_eq!(&*changes[0].ids().plural, "configmaps");
}

#[test]
fn a_continued_list_shows_the_world_of_its_first_page() {
    let server = server();
    for name in ["a", "b", "c"] {
        post(&server, MAPS, &map(name));
    }
    let (_, first) = get(&server, &format!("{MAPS}?limit=1"));
    assert_eq!(first["metadata"]["remainingItemCount"], 2);
    delete(&server, &format!("{MAPS}/b"));
    merge(&server, &format!("{MAPS}/c"), &json!({"data": {"k": "new"}}));
    post(&server, MAPS, &map("d"));
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, rest) = get(&server, &format!("{MAPS}?limit=9&continue={token}"));
    let names: Vec<_> = rest["items"].as_array().unwrap().iter().map(|i| &i["metadata"]["name"]).collect();
    assert_eq!(names, ["b", "c"]);
    assert_eq!(rest["items"][1]["data"]["k"], "v");
    assert_eq!(rest["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
}

#[test]
fn a_job_deleted_without_a_policy_orphans_its_pods() {
    let server = server();
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    assert_eq!(post(&server, jobs, &job).0, 201);
    let (_, going) = delete(&server, &format!("{jobs}/j"));
    assert_eq!(going["metadata"]["finalizers"], json!(["orphan"]));
}

#[test]
fn a_scheduled_pod_is_given_its_grace_period() {
    let server = server();
    let pods = "/api/v1/namespaces/default/pods";
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 7, "containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(post(&server, pods, &pod).0, 201);
    let (_, going) = delete(&server, &format!("{pods}/p"));
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 7);
    assert_eq!(going["metadata"]["deletionTimestamp"], "2026-01-01T00:00:07Z");
    let (code, _) = delete(&server, &format!("{pods}/p?gracePeriodSeconds=0"));
    assert_eq!(code, 200);
    assert_eq!(get(&server, &format!("{pods}/p")).0, 404);
    pod["metadata"]["name"] = "q".into();
    pod["spec"].as_object_mut().unwrap().remove("nodeName");
    post(&server, pods, &pod);
    delete(&server, &format!("{pods}/q"));
    assert_eq!(get(&server, &format!("{pods}/q")).0, 404);
}

#[test]
fn a_definition_is_served_at_once_and_takes_its_objects_along() {
    let server = server();
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.example.com"},
    "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
        "versions": [
            {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
             "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
            {"name": "v2", "served": true, "storage": false, "subresources": {"status": {}},
             "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
        ]}});
    server.install_crd(crd.clone()).unwrap();
    server.install_crd(crd).unwrap();
    let things = "/apis/example.com/v1/namespaces/default/things";
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "spec": {"a": 1}, "status": {"x": 1},
        "metadata": {"name": "t", "finalizers": ["example.com/hold"]}});
    let (code, created) = post(&server, things, &thing);
    assert_eq!(code, 201, "{created}");
    assert_eq!(created.get("status"), None);
    let (_, other) = get(&server, "/apis/example.com/v2/namespaces/default/things/t");
    assert_eq!(other["apiVersion"], "example.com/v2");
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
    let (_, going) = delete(&server, definition);
    assert_eq!(going["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert_eq!(post(&server, things, &thing).0, 405);
    assert_eq!(get(&server, definition).0, 200);
    assert_eq!(merge(&server, &format!("{things}/t"), &json!({"metadata": {"finalizers": null}})).0, 200);
    assert_eq!(get(&server, definition).0, 404);
    assert_eq!(get(&server, things).0, 404);
}

#[test]
fn a_definition_that_is_installed_again_is_written_only_if_somebody_changed_it() {
    let server = server();
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.example.com", "labels": {"of": "ours"}},
    "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
            {"type": "object", "properties": {"spec": {"type": "object"}}}}}]}});
    server.install_crd(crd.clone()).unwrap();
    let first = server.revision();
    server.install_crd(crd.clone()).unwrap();
    assert_eq!(server.revision(), first, "nothing changed, so nothing is written");
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
    let put_right = |patch: &serde_json::Value, pointer: &str, want: Option<serde_json::Value>| {
        assert_eq!(merge(&server, definition, patch).0, 200);
        server.install_crd(crd.clone()).unwrap();
        assert_eq!(get(&server, definition).1.pointer(pointer).cloned(), want, "{patch}");
    };
    put_right(&json!({"metadata": {"labels": {"of": "theirs"}}}), "/metadata/labels/of", Some(json!("ours")));
    let mut versions = crd["spec"]["versions"].clone();
    versions[0]["schema"]["openAPIV3Schema"]["properties"]["more"] = json!({"type": "string"});
    let more = "/spec/versions/0/schema/openAPIV3Schema/properties/more";
    put_right(&json!({"spec": {"versions": versions}}), more, None);
    // What we say nothing about is theirs.
    put_right(
        &json!({"metadata": {"labels": {"beside": "it"}}}),
        "/metadata/labels/beside",
        Some(json!("it")),
    );
}

#[test]
fn an_event_is_the_same_in_both_of_its_apis() {
    let server = server();
    let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "c", "reportingInstance": "i",
        "action": "A", "reason": "R", "type": "Normal", "note": "hello",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}});
    let (code, made) = post(&server, "/apis/events.k8s.io/v1/namespaces/default/events", &event);
    assert_eq!(code, 201, "{made}");
    let (_, core) = get(&server, "/api/v1/namespaces/default/events/e");
    assert_eq!((&core["message"], &core["involvedObject"]["name"]), (&json!("hello"), &json!("p")));
    assert_eq!(core["apiVersion"], "v1");
}

#[test]
fn scale_reads_and_writes_replicas() {
    let server = server();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "replicas": 2, "selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    assert_eq!(post(&server, path, &deployment).0, 201);
    let (_, scale) = get(&server, &format!("{path}/d/scale"));
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["selector"]), (&json!(2), &json!("app=d")));
    let (code, scale) = merge(&server, &format!("{path}/d/scale"), &json!({"spec": {"replicas": 5}}));
    assert_eq!((code, &scale["spec"]["replicas"]), (200, &json!(5)), "{scale}");
    let (_, after) = get(&server, &format!("{path}/d"));
    assert_eq!((&after["spec"]["replicas"], &after["metadata"]["generation"]), (&json!(5), &json!(2)));
}

#[test]
fn an_apply_without_a_name_is_about_what_is_there_and_creates_nothing() {
    let server = server();
    let apply = |name: &str, config: serde_json::Value| {
        let path = format!("{MAPS}/{name}?fieldManager=me");
        send(&server, "PATCH", &path, "application/apply-patch+yaml", config.to_string())
    };
    let nameless = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "2"}});
    let (code, refused) = apply("a", nameless.clone());
    assert_eq!(
        (code, &refused["details"]["causes"][0]["field"]),
        (422, &json!("metadata.name")),
        "{refused}"
    );
    assert_eq!(apply("a", map("a")).0, 201);
    let (code, applied) = apply("a", nameless);
    assert_eq!((code, &applied["data"]["k"]), (200, &json!("2")), "{applied}");
    assert_eq!(apply("a", map("b")).0, 400, "another name is still another object");
}
