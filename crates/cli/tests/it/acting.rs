//! An executor on `pawl up`: a real Job, as the action's ServiceAccount, with its order and what was kept mounted.

use std::time::{Duration, Instant};

use pawl_api::remedy::Action;
use pawl_machines::object::Key;
use pawl_machines::remedy::action::executor::{CONTAINER, Executor};
use pawl_machines::remedy::action::kept::{self, Kept, Undo};
use pawl_machines::remedy::action::report::Outcome;
use pawl_machines::remedy::action::{Order, Report, definition};
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

#[tokio::test]
async fn a_job_scales_a_deployment_and_reports_in_its_termination_message() {
    // As main does it: one provider for all TLS.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let home = tempfile::tempdir().unwrap();
    let _up = up(home.path());
    let client = client(home.path()).await;
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "example.invalid/web"}]}}}});
    send(&client, "POST", DEPLOYMENTS, &web).await.unwrap();
    let parameters = json!({"scaleDeployment": {"deployment": "web", "namespace": "default", "replicas": 4}});
    let order = Order {
        execution: Key::new(Some("default"), "x"),
        uid: "00000000-0000-4000-8000-000000000001".to_owned(),
        action: Action::ScaleDeployment,
        parameters: parameters.to_string().into(),
        undoes: None,
    };
    let executor = Executor::default();
    let never = Undo::Never("this test keeps nothing".to_owned());
    let kept = Kept::new(&order, definition(order.action).facts(), Vec::new(), never);
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
