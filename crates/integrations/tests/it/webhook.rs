//! `POST /webhook`: who gets in, and what it leads to. Each case is one that GitHub, a person or an attacker causes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use jiff::Timestamp;
use pawl_apiserver::{SeededEnv, Server};
use pawl_engine::{Clock, Engine};
use pawl_integrations::github::webhook::sign;
use pawl_integrations::webhook::{Error, MAX_BODY_BYTES, Trust, Webhook};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const SECRET: &str = "obviously-fake-webhook-secret";
const NOW: &str = "2027-01-15T08:00:00Z";

/// A clock that stands still, so that two nudges at the same moment say the same.
#[derive(Debug)]
struct Stopped(Timestamp);

impl Clock for Stopped {
    fn now(&self) -> Timestamp {
        self.0
    }
}

struct Lab {
    server: Server,
    webhook: Webhook,
    loop_: tokio::task::JoinHandle<pawl_engine::Stopped>,
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.loop_.abort();
    }
}

impl Lab {
    async fn new() -> Self {
        let epoch: Timestamp = NOW.parse().unwrap();
        let server = Server::in_memory(Arc::new(SeededEnv::new(1, epoch)));
        for crd in pawl_api::crds::all() {
            server.install_crd(serde_json::to_value(crd).unwrap()).unwrap();
        }
        let client = kube::Client::new(server.service(), "default");
        let clock = Arc::new(Stopped(epoch));
        let engine = Engine::builder(client.clone())
            .machines(pawl_machines::git::machines("pawl-system"))
            .clock(clock.clone())
            .build()
            .unwrap();
        let loop_ = tokio::spawn({
            let engine = engine.clone();
            async move { engine.run(std::future::pending()).await }
        });
        let trust = Trust::from_secret(Some(SECRET.as_bytes()), false).unwrap();
        let webhook = Webhook::new(engine.clone(), client, clock, trust);
        let lab = Self { server, webhook, loop_ };
        for (namespace, owner, name) in [("default", "acme", "infra"), ("kube-system", "ACME", "Infra")] {
            let repository = json!({
                "apiVersion": "terrakojo.io/v1alpha1", "kind": "Repository", "metadata": {"name": "r"},
                "spec": {"owner": owner, "name": name, "type": "github", "suspend": true,
                    "githubSecretRef": {"name": "credentials"}},
            });
            let path = format!("/apis/terrakojo.io/v1alpha1/namespaces/{namespace}/repositories");
            lab.call("POST", &path, &repository);
        }
        engine.ready().await;
        lab
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(Bytes::from(body.to_string()))
            .unwrap();
        let response = self.server.call(request);
        assert!(response.status().is_success(), "{method} {path}: {response:?}");
        serde_json::from_slice(response.body()).unwrap()
    }

    fn requested(&self, namespace: &str) -> Value {
        let path = format!("/apis/terrakojo.io/v1alpha1/namespaces/{namespace}/repositories/r");
        self.call("GET", &path, &Value::Null)["metadata"]["annotations"]["terrakojo.io/sync-requested-at"]
            .clone()
    }

    async fn post(&self, event: &str, body: &[u8], signature: Option<&str>) -> u16 {
        let mut request = Request::post("/webhook")
            .header("content-type", "application/json")
            .header("x-github-event", event)
            .header("x-github-delivery", "11111111-2222-3333-4444-555555555555");
        if let Some(signature) = signature {
            request = request.header("x-hub-signature-256", signature);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body))).unwrap();
        self.webhook.take(request).await.status().as_u16()
    }

    async fn signed(&self, event: &str, body: &Value) -> u16 {
        let body = body.to_string();
        self.post(event, body.as_bytes(), Some(&sign(SECRET.as_bytes(), body.as_bytes()))).await
    }
}

fn push() -> Value {
    json!({"ref": "refs/heads/main", "repository": {"name": "Infra", "owner": {"login": "Acme"}}})
}

#[tokio::test]
async fn webhook_a_push_is_accepted_and_nudges_every_repository_of_that_name_in_renamed_case() {
    let lab = Lab::new().await;
    assert_eq!(lab.signed("push", &push()).await, 202);
    assert_eq!(lab.requested("default"), NOW);
    assert_eq!(lab.requested("kube-system"), NOW);
}

#[tokio::test]
async fn webhook_bad_signature_no_signature_and_empty_signature_are_401_and_change_nothing() {
    let lab = Lab::new().await;
    let body = push().to_string();
    let wrong = sign(b"another-fake-secret", body.as_bytes());
    let sha1 = wrong.replace("sha256=", "sha1=");
    for signature in [None, Some(""), Some("sha256="), Some(wrong.as_str()), Some(sha1.as_str())] {
        assert_eq!(lab.post("push", body.as_bytes(), signature).await, 401, "{signature:?}");
    }
    // A right signature of another body.
    let right = sign(SECRET.as_bytes(), b"{}");
    assert_eq!(lab.post("push", body.as_bytes(), Some(&right)).await, 401);
    assert_eq!(lab.requested("default"), Value::Null);
}

#[test]
fn webhook_an_empty_secret_is_no_secret_and_the_server_refuses_to_start() {
    for secret in [None, Some(&b""[..]), Some(&b" \n"[..])] {
        assert!(matches!(Trust::from_secret(secret, false), Err(Error::NoSecret)));
        assert!(matches!(Trust::from_secret(secret, true), Ok(Trust::Anybody)));
    }
    let trust = Trust::from_secret(Some(b"obviously-fake\n"), false).unwrap();
    assert!(matches!(&trust, Trust::Secret(secret) if **secret == *b"obviously-fake"));
    assert!(!format!("{trust:?}").contains("obviously"));
}

#[tokio::test]
async fn webhook_wrong_method_path_and_type_are_told_so() {
    let lab = Lab::new().await;
    let ask = async |method: &str, path: &str, content_type: &str| {
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        let answer = lab.webhook.take(request.body(Full::new(Bytes::from("{}"))).unwrap()).await;
        answer.status().as_u16()
    };
    assert_eq!(ask("GET", "/webhook", "application/json").await, 405);
    assert_eq!(ask("PUT", "/webhook", "application/json").await, 405);
    assert_eq!(ask("POST", "/", "application/json").await, 404);
    assert_eq!(ask("POST", "/webhook", "application/x-www-form-urlencoded").await, 415);
    assert_eq!(ask("POST", "/webhook", "application/json; charset=utf-8").await, 401);
}

#[tokio::test]
async fn webhook_an_unknown_event_and_a_ping_are_200_and_a_malformed_body_is_400() {
    let lab = Lab::new().await;
    assert_eq!(lab.signed("ping", &json!({"zen": "…"})).await, 200);
    assert_eq!(lab.signed("watch", &push()).await, 200);
    assert_eq!(lab.signed("push", &json!({"repository": []})).await, 400);
    assert_eq!(lab.signed("push", &json!(null)).await, 400);
    assert_eq!(lab.signed("", &push()).await, 400);
    let deep = "[".repeat(100_000);
    assert_eq!(lab.post("push", deep.as_bytes(), Some(&sign(SECRET.as_bytes(), deep.as_bytes()))).await, 400);
    assert_eq!(lab.requested("default"), Value::Null);
}

#[tokio::test]
async fn webhook_a_huge_body_is_413_whether_announced_or_not() {
    let lab = Lab::new().await;
    let huge = vec![b' '; MAX_BODY_BYTES + 1];
    assert_eq!(lab.post("push", &huge, None).await, 413);
    let announced = Request::post("/webhook")
        .header("content-type", "application/json")
        .header("content-length", (MAX_BODY_BYTES + 1).to_string())
        .body(Full::new(Bytes::new()))
        .unwrap();
    assert_eq!(lab.webhook.take(announced).await.status(), 413);
}

#[tokio::test]
async fn webhook_a_duplicate_delivery_is_harmless() {
    let lab = Lab::new().await;
    assert_eq!(lab.signed("push", &push()).await, 202);
    assert_eq!(lab.signed("push", &push()).await, 202);
    // The clock has not moved, so the second says nothing new.
    assert_eq!(lab.requested("default"), NOW);
}

#[tokio::test]
async fn webhook_a_repository_that_nobody_has_is_accepted_and_changes_nothing() {
    let lab = Lab::new().await;
    let body = json!({"repository": {"name": "other", "owner": {"login": "acme"}}});
    assert_eq!(lab.signed("push", &body).await, 202);
    assert_eq!((lab.requested("default"), lab.requested("kube-system")), (Value::Null, Value::Null));
}

#[tokio::test]
async fn webhook_over_a_socket_a_delivery_gets_in_and_who_never_finishes_is_cut_off_at_stop() {
    let lab = Lab::new().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let served = tokio::spawn(lab.webhook.clone().serve(listener, async {
        let _ = stopped.await;
    }));
    let body = push().to_string();
    let signature = sign(SECRET.as_bytes(), body.as_bytes());
    let request = format!(
        "POST /webhook HTTP/1.1\r\nhost: pawl\r\ncontent-type: application/json\r\nx-github-event: push\r\n\
         x-github-delivery: d\r\nx-hub-signature-256: {signature}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    // This one never says what it wants.
    let mut silent = tokio::net::TcpStream::connect(address).await.unwrap();
    silent.write_all(b"POST /webhook HTTP/1.1\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(20), served).await.unwrap().unwrap().unwrap();
}
