//! `POST /api/v1/alerts`: who gets in, and what it leads to.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use pawl_apiserver::{SeededEnv, Server};
use pawl_engine::{Engine, SystemClock};
use pawl_integrations::alerts::{Alerts, PATH};
use pawl_integrations::webhook::{MAX_BODY_BYTES, Trust, Webhook};
use serde_json::{Value, json};

const TOKEN: &str = "obviously-fake-alerts-token";
const REQUESTS: &str = "/apis/remediation.kubernaut.ai/v1alpha1/namespaces/default/remediationrequests";

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
        let epoch: Timestamp = "2027-01-15T08:00:00Z".parse().unwrap();
        let server = Server::in_memory(Arc::new(SeededEnv::new(1, epoch)));
        for crd in pawl_api::crds::all() {
            server.install_crd(serde_json::to_value(crd).unwrap()).unwrap();
        }
        let client = kube::Client::new(server.service(), "default");
        // Only what answers alerts: that requests are carried out is shown elsewhere.
        let machine = pawl_machines::remedy::remediation_playbook::RemediationPlaybooks;
        let engine = Engine::builder(client.clone())
            .machines(vec![pawl_machines::machine::AnyMachine::new(machine)])
            .build()
            .unwrap();
        let loop_ = tokio::spawn({
            let engine = engine.clone();
            async move { engine.run(std::future::pending()).await }
        });
        let trust = || Trust::from_secret(Some(TOKEN.as_bytes()), false).unwrap();
        let alerts = Alerts::new(engine.clone(), client.clone(), trust(), "pawl-system");
        let webhook =
            Webhook::new(engine.clone(), client, Arc::new(SystemClock), Trust::Nobody).with_alerts(alerts);
        let lab = Self { server, webhook, loop_ };
        let step = json!({"name": "a", "workflow": {"workflowRef": {"workflowId": "restart", "containerImage": "i"}}});
        let playbook = json!({"apiVersion": "remediation.kubernaut.ai/v1alpha1", "kind": "RemediationPlaybook",
            "metadata": {"name": "p"}, "spec": {"matchers": [{"name": "alertname", "value": "Crash"}],
                "target": {"kind": "Deployment", "nameLabel": "deployment", "namespaceLabel": "namespace"},
                "plan": {"steps": [step]}}});
        lab.call("POST", &REQUESTS.replace("remediationrequests", "remediationplaybooks"), &playbook);
        engine.ready().await;
        lab
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let response = self.server.call(request.body(Bytes::from(body.to_string())).unwrap());
        assert!(response.status().is_success(), "{method} {path}: {response:?}");
        serde_json::from_slice(response.body()).unwrap()
    }

    fn requests(&self) -> usize {
        self.call("GET", REQUESTS, &Value::Null)["items"].as_array().unwrap().len()
    }

    async fn send(&self, body: Vec<u8>, token: Option<&str>, content_type: &str) -> (u16, String) {
        let mut request = Request::post(PATH).header("content-type", content_type);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let answer = self.webhook.take(request.body(Full::new(Bytes::from(body))).unwrap()).await;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn post(&self, alerts: &[Value]) -> (u16, String) {
        let body = json!({"version": "4", "status": "firing", "alerts": alerts}).to_string().into_bytes();
        self.send(body, Some(TOKEN), "application/json").await
    }
}

fn alert(name: &str, deployment: &str) -> Value {
    json!({"status": "firing", "startsAt": "2027-01-15T07:59:00Z", "fingerprint": format!("f{deployment}"),
        "labels": {"alertname": name, "namespace": "default", "deployment": deployment}, "annotations": {}})
}

#[tokio::test]
async fn a_duplicate_alert_makes_no_second_request() {
    let lab = Lab::new().await;
    let (status, told) = lab.post(&[alert("Crash", "web"), alert("Other", "web")]).await;
    assert_eq!(status, 202, "{told}");
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["created"], &told["unmatched"]), (&json!(1), &json!(1)));
    assert_eq!(lab.post(&[alert("Crash", "web")]).await.0, 202);
    assert_eq!(lab.requests(), 1);
    let mut over = alert("Crash", "db");
    over["status"] = json!("resolved");
    lab.post(&[over]).await;
    assert_eq!(lab.requests(), 1);
}

#[tokio::test]
async fn without_the_token_nobody_gets_in() {
    let lab = Lab::new().await;
    let body = || json!({"alerts": [alert("Crash", "web")]}).to_string().into_bytes();
    assert_eq!(lab.send(body(), None, "application/json").await.0, 401);
    assert_eq!(lab.send(body(), Some("wrong"), "application/json").await.0, 401);
    assert_eq!(lab.send(body(), Some(TOKEN), "text/plain").await.0, 415);
    assert_eq!(lab.send(vec![b' '; MAX_BODY_BYTES + 1], Some(TOKEN), "application/json").await.0, 413);
    let github = Request::post("/webhook").header("content-type", "application/json");
    let answer = lab.webhook.take(github.body(Full::new(Bytes::from_static(b"{}"))).unwrap()).await;
    assert_eq!(answer.status().as_u16(), 401, "no secret is configured for GitHub");
    assert_eq!(lab.requests(), 0);
}

#[tokio::test]
async fn malformed_alerts_get_clear_answers_and_the_others_are_taken() {
    let lab = Lab::new().await;
    let (status, told) = lab.send(b"{".to_vec(), Some(TOKEN), "application/json").await;
    assert!(status == 400 && told.contains("not JSON"), "{told}");
    let (status, told) = lab.send(b"{\"alerts\": 7}".to_vec(), Some(TOKEN), "application/json").await;
    assert!(status == 400 && told.contains("not a notification"), "{told}");
    let (status, told) = lab.post(&[json!({"status": "firing"}), alert("Crash", "web")]).await;
    assert!(status == 400 && told.contains("alerts[0]") && told.contains("\"created\":1"), "{told}");
    assert_eq!(lab.requests(), 1);
}

#[tokio::test]
async fn ten_thousand_alerts_at_once_make_ten_thousand_requests() {
    let lab = Lab::new().await;
    let alerts: Vec<Value> = (0..10_000).map(|number| alert("Crash", &format!("web-{number}"))).collect();
    let (status, told) = lab.post(&alerts).await;
    assert!(status == 202 && told.contains("\"created\":10000"), "{told}");
    assert_eq!(lab.requests(), 10_000);
    let (status, told) = lab.post(&alerts).await;
    assert!(status == 202 && told.contains("\"duplicates\":10000"), "{told}");
}
