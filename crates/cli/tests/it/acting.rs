//! An executor on `pawl up`: a real Job, as the action's ServiceAccount, with its order and what was kept mounted. And the
//! same ServiceAccount let in from elsewhere, over TLS.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use pawl_actions::Port;
use pawl_actions::way::Door;
use pawl_api::k8s::CLUSTER_ROLE;
use pawl_api::remedy::{Action, DryRunResults};
use pawl_engine::SystemClock;
use pawl_engine::wire::Wire;
use pawl_machines::object::Key;
use pawl_machines::remedy::action::executor::{CONTAINER, Executor};
use pawl_machines::remedy::action::kept::{self, Kept, Undo};
use pawl_machines::remedy::action::report::Outcome;
use pawl_machines::remedy::action::{Ask, Call, Order, Reply, Report};
use serde_json::{Value, json};

use crate::containers::{BOUND, client, send, up};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const HERE: &str = "/api/v1/namespaces/kubernaut-executor";

/// The termination message of the Job's one Pod.
async fn message(client: &kube::Client) -> String {
    let started = Instant::now();
    loop {
        let pods = send(client, "GET", &format!("{HERE}/pods"), &Value::Null).await.unwrap_or_default();
        let statuses = pods.pointer("/items/0/status/containerStatuses").and_then(Value::as_array).cloned();
        let ended = statuses.into_iter().flatten().find(|status| status["name"] == CONTAINER);
        let ended = ended.and_then(|status| status.pointer("/state/terminated").cloned());
        if let Some(terminated) = ended {
            return terminated["message"].as_str().unwrap_or_default().to_owned();
        }
        assert!(started.elapsed() < BOUND, "{pods:#}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn web() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "example.invalid/web"}]}}}})
}

fn order() -> Order {
    let parameters = json!({"scaleDeployment": {"deployment": "web", "namespace": "default", "replicas": 4}});
    Order {
        execution: Key::new(Some("default"), "x"),
        uid: "00000000-0000-4000-8000-000000000001".to_owned(),
        action: Action::ScaleDeployment,
        parameters: parameters.to_string().into(),
        undoes: None,
    }
}

#[tokio::test]
async fn a_job_scales_a_deployment_and_reports_in_its_termination_message() {
    // As main does it: one provider for all TLS.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let home = tempfile::tempdir().unwrap();
    let _up = up(home.path());
    let client = client(home.path()).await;
    send(&client, "POST", DEPLOYMENTS, &web()).await.unwrap();
    let order = order();
    let executor = Executor::default();
    let never = Undo::Never("this test keeps nothing".to_owned());
    let kept = Kept::new(&order, Vec::new(), never);
    let kept = json!({kept::KEY: serde_json::to_string(&kept).unwrap()});
    let undo = executor.undo_secret(&order.uid).name;
    for (name, data) in [("in", Executor::input(&order)), (undo.as_str(), kept)] {
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data});
        send(&client, "POST", &format!("{HERE}/secrets"), &secret).await.unwrap();
    }
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "act"},
        "spec": {"backoffLimit": 0, "template": {"spec": executor.pod_spec(&order, "in")}}});
    send(&client, "POST", "/apis/batch/v1/namespaces/kubernaut-executor/jobs", &job).await.unwrap();
    let message = message(&client).await;
    let report = Report::parse(&message, &order.uid).unwrap_or_else(|error| panic!("{error}: {message}"));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    let found = send(&client, "GET", &format!("{DEPLOYMENTS}/web"), &Value::Null).await.unwrap();
    assert_eq!(found["spec"]["replicas"], 4);
    assert_eq!(report.changed[0].name, "web");
}

/// Tries the order through a client of its own for the ServiceAccount: by the server's address and certificate alone.
async fn tried_from_elsewhere(home: &Path, client: &kube::Client) -> DryRunResults {
    let file = Kubeconfig::read_from(home.join("data/kubeconfig")).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    assert_eq!(config.cluster_url.scheme_str(), Some("https"));
    let executor = Executor::default();
    let service_account = executor.service_account(&order());
    let door = Door::Address(Arc::new(config));
    let port = Port::new(Wire::new(client.clone()), door, executor, Arc::new(SystemClock));
    let reply = port.ask(&Call { order: order(), ask: Ask::DryRun { service_account } }).await.unwrap();
    let Reply::DryRun(results) = reply else { panic!("{reply:?}") };
    results
}

#[tokio::test]
async fn at_an_address_a_service_account_is_let_in_over_tls_with_its_own_rights_and_not_with_ours() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let home = tempfile::tempdir().unwrap();
    let _up = up(home.path());
    let client = client(home.path()).await;
    send(&client, "POST", DEPLOYMENTS, &web()).await.unwrap();
    let tried = tried_from_elsewhere(home.path(), &client).await;
    assert!(tried.success && tried.diff.contains("+ spec.replicas: 4"), "{tried:?}");
    let found = send(&client, "GET", &format!("{DEPLOYMENTS}/web"), &Value::Null).await.unwrap();
    assert_eq!(found["spec"]["replicas"], 1, "a dry run changes nothing");
    // The configuration has the token of somebody who may do everything: it is not shown.
    let reads = json!({"rules": [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]}]});
    let role = CLUSTER_ROLE.path(None, Some("kubernaut-action-scale-deployment"));
    send(&client, "PATCH", &role, &reads).await.unwrap();
    let tried = tried_from_elsewhere(home.path(), &client).await;
    assert!(!tried.success && tried.errors[0].contains("cannot patch"), "{tried:?}");
}
