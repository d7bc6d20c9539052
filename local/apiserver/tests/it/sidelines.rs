//! Kinds and subresources at the edge of a cluster: what the server tells of itself, requests to be signed, containers
//! that join a Pod.

use serde_json::{Value, json};

use crate::wire::{Wire, listening};
use crate::{delete, get, guarded, merge, post, put, send, server};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const PODS: &str = "/api/v1/namespaces/default/pods";

#[test]
fn every_group_version_has_an_api_service_and_none_can_be_written() {
    let server = server();
    const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
    let (code, list) = get(&server, SERVICES);
    assert_eq!((code, &list["kind"]), (200, &json!("APIServiceList")));
    let names: Vec<&str> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["metadata"]["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"v1.") && names.contains(&"v1.apps") && names.is_sorted(), "{names:?}");
    server
        .install_crd(json!({"metadata": {"name": "lamps.example.com"}, "spec": {"group": "example.com",
            "scope": "Namespaced", "names": {"plural": "lamps", "kind": "Lamp"}, "versions": [{"name": "v2",
            "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}))
        .unwrap();
    let (code, one) = get(&server, &format!("{SERVICES}/v2.example.com"));
    assert_eq!((code, &one["spec"]["group"]), (200, &json!("example.com")));
    assert_eq!(one["status"]["conditions"][0]["status"], "True");
    let (_, chosen) = get(&server, &format!("{SERVICES}?fieldSelector=metadata.name%3Dv1.apps"));
    assert_eq!(chosen["items"].as_array().unwrap().len(), 1);
    assert_eq!(get(&server, &format!("{SERVICES}/v9.example.com")).0, 404);
    assert_eq!(post(&server, SERVICES, &one).0, 405);
    assert_eq!(delete(&server, &format!("{SERVICES}/v1.apps")).0, 405);
    assert_eq!(get(&server, &format!("{SERVICES}?watch=1")).0, 405);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let request = http::Request::get("/api/v1/componentstatuses").header("accept", table);
    let shown = server.call(request.body(bytes::Bytes::new()).unwrap());
    let shown: Value = serde_json::from_slice(shown.body()).unwrap();
    assert_eq!(shown["rows"][2]["cells"], json!(["scheduler", "Healthy", "ok", ""]));
}

fn signing_request() -> Value {
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "r"},
        "spec": {"request": "bm90IGEgcmVhbCByZXF1ZXN0", "signerName": "example.com/signer", "usages": ["client auth"],
            "username": "somebody-else", "groups": ["system:masters"]}})
}

#[tokio::test]
async fn a_request_to_be_signed_names_who_really_asked_and_only_its_approval_is_said_later() {
    let server = guarded();
    let mut wire = Wire::open(listening(server.clone()).await).await.unwrap();
    let asked = signing_request();
    let (code, made) = wire.ask("POST", REQUESTS, Some(("application/json", &asked))).await.unwrap();
    assert_eq!((code, &made["spec"]["username"]), (201, &json!("pawl:admin")));
    assert_eq!(made["spec"]["groups"], json!(["system:masters", "system:authenticated"]));
    assert_eq!(made["status"], json!({}));

    let approved = json!({"spec": {"username": "x"}, "metadata": {"labels": {"a": "b"}}, "status": {
        "certificate": "bm90IG9uZQ==", "conditions": [{"type": "Approved", "status": "True", "reason": "R"}]}});
    let (code, seen) = merge(&server, &format!("{REQUESTS}/r/approval"), &approved);
    assert_eq!(code, 200, "{seen}");
    assert_eq!(seen["status"]["conditions"][0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
    assert_eq!((seen["status"].get("certificate"), seen["metadata"].get("labels")), (None, None));
    assert_eq!(seen["spec"], made["spec"]);
    assert_eq!(get(&server, &format!("{REQUESTS}/r/approval")).1, get(&server, &format!("{REQUESTS}/r")).1);

    let both = json!({"status": {"conditions": [{"type": "Denied", "status": "True"}, {"type": "Approved", "status": "True"}]}});
    assert_eq!(merge(&server, &format!("{REQUESTS}/r/approval"), &both).0, 422);
    let taken_back = json!({"status": {"conditions": null}});
    assert_eq!(merge(&server, &format!("{REQUESTS}/r/approval"), &taken_back).0, 422);
    let (_, same) =
        merge(&server, &format!("{REQUESTS}/r"), &json!({"spec": {"signerName": "example.com/other"}}));
    assert_eq!(same["spec"], made["spec"], "what is asked for is asked once");
    let wrong = json!({"metadata": {"name": "w"}, "spec": {"request": "", "signerName": "none"}});
    assert_eq!(post(&server, REQUESTS, &wrong).0, 422);
}

#[tokio::test]
async fn approving_takes_the_right_to_approve_for_that_signer() {
    let server = guarded();
    post(&server, REQUESTS, &signing_request());
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let role = json!({"metadata": {"name": "approver"}, "rules": [{"apiGroups": ["certificates.k8s.io"],
        "resources": ["certificatesigningrequests/approval"], "verbs": ["patch"]}]});
    assert_eq!(post(&server, roles, &role).0, 201);
    let binding = json!({"metadata": {"name": "approver"}, "subjects": [{"kind": "User", "name": "jane",
        "apiGroup": "rbac.authorization.k8s.io"}], "roleRef": {"kind": "ClusterRole", "name": "approver",
        "apiGroup": "rbac.authorization.k8s.io"}});
    assert_eq!(post(&server, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).0, 201);
    let address = listening(server.clone()).await;
    let approve = async || {
        let approval =
            json!({"status": {"conditions": [{"type": "Approved", "status": "True"}]}}).to_string();
        let head = format!(
            "PATCH {REQUESTS}/r/approval HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\nimpersonate-user: jane\r\n\
             content-type: application/merge-patch+json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{approval}",
            crate::TOKEN,
            approval.len()
        );
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut answer).await.unwrap();
        answer
    };
    let refused = approve().await;
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("signers"), "{refused}");
    let trusted = json!([{"apiGroups": ["certificates.k8s.io"], "verbs": ["patch"],
        "resources": ["certificatesigningrequests/approval"]}, {"apiGroups": ["certificates.k8s.io"],
        "resources": ["signers"], "resourceNames": ["example.com/*"], "verbs": ["approve"]}]);
    merge(&server, &format!("{roles}/approver"), &json!({"rules": trusted}));
    let allowed = approve().await;
    assert!(allowed.starts_with("HTTP/1.1 200"), "{allowed}");
}

#[test]
fn ephemeral_containers_join_by_their_own_way_and_stay() {
    let server = server();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "i:1"}],
        "ephemeralContainers": [{"name": "early", "image": "i:1"}]}});
    let (code, made) = post(&server, PODS, &pod);
    assert_eq!((code, made["spec"].get("ephemeralContainers")), (201, None), "a Pod begins without");
    let one = json!({"metadata": {"name": "p"}, "spec": {"ephemeralContainers": [{"name": "one", "image": "i:1"}]}});
    let (code, seen) = put(&server, &format!("{PODS}/p/ephemeralcontainers"), &one);
    assert_eq!(code, 200, "{seen}");
    assert_eq!(seen["spec"]["ephemeralContainers"][0]["terminationMessagePath"], "/dev/termination-log");
    assert_eq!(seen["spec"]["containers"], made["spec"]["containers"]);
    let two =
        json!({"spec": {"nodeName": "elsewhere", "ephemeralContainers": [{"name": "two", "image": "i:1"}]}});
    let way = format!("{PODS}/p/ephemeralcontainers");
    let (code, seen) =
        send(&server, "PATCH", &way, "application/strategic-merge-patch+json", two.to_string());
    assert_eq!(code, 200, "{seen}");
    assert_eq!(seen["spec"]["ephemeralContainers"].as_array().unwrap().len(), 2);
    assert_eq!(seen["spec"].get("nodeName"), None, "nothing else comes along");
    assert_eq!(get(&server, &way).1, seen);
    for (path, change) in [
        (&way, json!({"spec": {"ephemeralContainers": null}})),
        (&way, json!({"spec": {"ephemeralContainers": [{"name": "one", "image": "i:1"}]}})),
        (&format!("{PODS}/p"), json!({"spec": {"ephemeralContainers": []}})),
    ] {
        let (code, refused) = merge(&server, path, &change);
        assert_eq!((code, &refused["reason"]), (422, &json!("Invalid")), "{refused}");
    }
    let twin = json!({"spec": {"ephemeralContainers": [{"name": "main", "image": "i:1"}]}});
    assert_eq!(
        send(&server, "PATCH", &way, "application/strategic-merge-patch+json", twin.to_string()).0,
        422
    );
}
