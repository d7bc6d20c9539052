//! A container item on `pawl up`: a real control plane, a real Pod, and what it leaves comes out.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::PAWL;

/// Far longer than anything here takes on a busy machine; a test that hangs fails by this.
pub(crate) const BOUND: Duration = Duration::from_secs(180);

const ITEMS: &str = "/apis/landscaper.gardener.cloud/v1alpha1/namespaces/default/deployitems";

/// A control plane that ends with the test.
pub(crate) struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn up(home: &Path) -> Up {
    let mut command = Command::new(PAWL);
    command.current_dir(home).args(["up", "--listen", "127.0.0.1:0", "--data-dir", "data"]);
    Up(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

pub(crate) async fn client(home: &Path) -> kube::Client {
    let path = home.join("data/kubeconfig");
    let started = Instant::now();
    loop {
        if let Ok(file) = Kubeconfig::read_from(&path) {
            let config =
                kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
            let client = kube::Client::try_from(config).unwrap();
            if client.apiserver_version().await.is_ok() {
                return client;
            }
        }
        assert!(started.elapsed() < BOUND, "the control plane does not come up");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) async fn send(client: &kube::Client, method: &str, path: &str, body: &Value) -> Option<Value> {
    let type_ = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", type_);
    client.request(request.body(serde_json::to_vec(body).unwrap()).unwrap()).await.ok()
}

/// Waits until the item has finished this many jobs, and gives its status.
async fn finished(client: &kube::Client, before: &Value) -> Value {
    let started = Instant::now();
    loop {
        let item = send(client, "GET", &format!("{ITEMS}/c"), &Value::Null).await.unwrap_or_default();
        let status = item["status"].clone();
        let ended = status["jobID"] == status["jobIDFinished"] && !status["jobID"].is_null();
        if ended && status["jobID"] != *before {
            return status;
        }
        assert!(started.elapsed() < BOUND, "{status:#}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn export(client: &kube::Client, status: &Value) -> String {
    let name = status["exportRef"]["name"].as_str().unwrap();
    let secret =
        send(client, "GET", &format!("/api/v1/namespaces/default/secrets/{name}"), &Value::Null).await;
    let text = secret.unwrap()["data"]["config"].as_str().unwrap().to_owned();
    String::from_utf8(STANDARD.decode(text).unwrap()).unwrap()
}

#[tokio::test]
async fn an_image_runs_keeps_its_state_exports_and_is_asked_to_clean_up() {
    // As main does it: one provider for all TLS.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let home = tempfile::tempdir().unwrap();
    let _up = up(home.path());
    let client = client(home.path()).await;
    let script = "n=$(cat $STATE_PATH/count || echo 0); n=$((n+1)); echo $n > $STATE_PATH/count; \
        echo \"{count: $n, op: $OPERATION, imports: $(cat $IMPORTS_PATH)}\" > $EXPORTS_PATH; \
        test $OPERATION = RECONCILE || test $n = 3";
    let reconcile = json!({"landscaper.gardener.cloud/operation": "reconcile"});
    let item = json!({"apiVersion": "landscaper.gardener.cloud/v1alpha1", "kind": "DeployItem",
        "metadata": {"name": "c", "annotations": reconcile},
        "spec": {"type": "landscaper.gardener.cloud/container", "config": {"image": "example.invalid/tool",
            "command": ["/bin/sh", "-c", script], "importValues": {"a": 1}}}});
    send(&client, "POST", ITEMS, &item).await.unwrap();
    let first = finished(&client, &Value::Null).await;
    assert_eq!(first["phase"], "Succeeded", "{first:#}");
    let told: Value = serde_json::from_str(&export(&client, &first).await).unwrap();
    assert_eq!(told, json!({"count": 1, "op": "RECONCILE", "imports": {"a": 1}}));

    let again = json!({"metadata": {"annotations": reconcile}});
    send(&client, "PATCH", &format!("{ITEMS}/c"), &again).await.unwrap();
    let second = finished(&client, &first["jobID"]).await;
    let told: Value = serde_json::from_str(&export(&client, &second).await).unwrap();
    assert_eq!(told["count"], 2, "its state was there again");

    send(&client, "DELETE", &format!("{ITEMS}/c"), &json!({})).await.unwrap();
    let started = Instant::now();
    while send(&client, "GET", &format!("{ITEMS}/c"), &Value::Null).await.is_some() {
        assert!(started.elapsed() < BOUND, "it is not gone");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
