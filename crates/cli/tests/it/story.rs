//! The story of an alert in `pawl up --demo`, as a stranger lives it: with the commands that are printed, and nothing else.
//!
//! ```text
//! alert ─▶ playbook: scale, restart ─▶ policy asks ─▶ a person approves, twice ─▶ Jobs ─▶ a postcondition fails
//!       ─▶ the scale is taken back, once a person approves that too ─▶ explain and audit tell it
//! the cause is mended ─▶ the next alert ends well
//! ```

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::containers::send;
use crate::demo::{PATIENCE, Up, scrape};
use crate::{pawl, text};

const CHECKOUT: &str = "/apis/apps/v1/namespaces/shop-prod/deployments/checkout";

/// Somebody at a terminal, in the folder of the control plane.
struct Stranger<'a>(&'a Path);

impl Stranger<'_> {
    /// What is printed; the command must be content.
    #[track_caller]
    fn types(&self, words: &[&str]) -> String {
        let output = pawl(self.0, words);
        let (said, complained) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "pawl {}: {said}{complained}", words.join(" "));
        said
    }

    /// Sends the alert; the request that it led to.
    fn alerts(&self) -> String {
        let said = self.types(&["demo", "alert"]);
        let line = said.lines().find(|line| line.starts_with("rr/")).unwrap_or_else(|| panic!("{said}"));
        assert!(line.contains("is AwaitingApproval"), "{said}");
        line.split_once(' ').unwrap().0.to_owned()
    }

    /// Asks how the request stands until that has these words.
    fn until(&self, request: &str, words: &[&str]) -> String {
        let began = Instant::now();
        loop {
            let story = self.types(&["explain", "-n", "shop-prod", request]);
            if words.iter().all(|word| story.contains(word)) {
                return story;
            }
            assert!(began.elapsed() < PATIENCE, "{request} does not say {words:?}:\n{story}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Approves what the request waits for next, of the step whose name this is part of: as it says it is typed.
    fn approves(&self, request: &str, step: &str) -> (String, String) {
        let story = self.until(request, &["what to do next", &format!("-{step}-")]);
        let (_, next) = story.split_once("what to do next\n").unwrap();
        let mut words: Vec<&str> = next.lines().next().unwrap().split_ascii_whitespace().skip(1).collect();
        let execution = (*words.last().unwrap()).to_owned();
        assert!(execution.contains(&format!("-{step}-")), "{story}");
        words.extend(["--yes", "--reason", "the shop is down"]);
        let said = self.types(&words);
        assert!(said.contains("is approved by pawl:admin"), "{said}");
        (execution, said)
    }
}

async fn client(home: &Path) -> kube::Client {
    // As main does it: one provider for all TLS.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let file = kube::config::Kubeconfig::read_from(home.join(".pawl/kubeconfig")).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default()).await;
    kube::Client::try_from(config.unwrap()).unwrap()
}

/// The rows of a ledger that have these words came about in this order. It shows the newest first.
#[track_caller]
fn in_order(ledger: &str, rows: &[&[&str]]) {
    let mut lines = ledger.lines().rev();
    for words in rows {
        // To the end of a word: a rollback's name begins with the name of what it takes back.
        let says = |line: &str, word: &str| line.split_whitespace().any(|said| said.ends_with(word));
        let found = lines.any(|line| words.iter().all(|word| says(line, word)));
        assert!(found, "{words:?} does not come where it should in\n{ledger}");
    }
}

#[tokio::test]
async fn an_alert_is_answered_approved_carried_out_fails_its_postcondition_is_taken_back_and_told() {
    let home = tempfile::tempdir().unwrap();
    let up = Up::start(home.path());
    let stranger = Stranger(home.path());
    let client = client(home.path()).await;
    let replicas =
        async || send(&client, "GET", CHECKOUT, &Value::Null).await.unwrap()["spec"]["replicas"].clone();

    let request = stranger.alerts();
    assert!(scrape(&up.metrics).contains("pawl_approvals_waiting{kind=\"KubernetesExecution\"} 1"));
    assert_eq!(replicas().await, 2, "nothing is done before somebody approves");
    let again = stranger.types(&["demo", "alert"]);
    assert!(again.contains("is Skipped") && again.contains("not over"), "{again}");

    let (scale, shown) = stranger.approves(&request, "scale");
    for part in ["asked for by pawl:alerts", "built-in", "replicas: 4", "digest"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let (restart, _) = stranger.approves(&request, "restart");
    assert_eq!(replicas().await, 4);
    let (back, _) = stranger.approves(&request, "rollback");
    let story = stranger.until(&request, &["is Failed", "taken back: scale"]);
    assert_eq!(replicas().await, 2, "{story}");
    for part in [
        "restart  failed (postcondition_failed)",
        "serves: 0 of 4 replicas can serve",
        "ApprovalRequired",
        "ApprovalGranted",
        "JobCreated",
        "ExecutionFailed",
        "RollbackPrepared",
        "RemediationFailed",
    ] {
        assert!(story.contains(part), "{part} in {story}");
    }
    let of_scale = stranger.types(&["explain", "-n", "shop-prod", &scale]);
    for part in [
        "replicas: 2 → replicas: 4",
        "pawl:admin",
        &format!("taken back by KubernetesExecution {}", &back[3..]),
    ] {
        assert!(of_scale.contains(part), "{part} in {of_scale}");
    }
    let of_restart = stranger.types(&["explain", "-n", "shop-prod", &restart]);
    assert!(of_restart.contains("does not hold: 0 of 4 replicas can serve"), "{of_restart}");
    let name = |what: &str| what.split_once('/').unwrap().1.to_owned();
    let (request, scale, restart, back) = (name(&request), name(&scale), name(&restart), name(&back));
    let granted = ["approval.granted", "user:pawl:admin"];
    let ledger = stranger.types(&["audit", "-n", "shop-prod"]);
    // Told by another controller at the same moment: before the first step, or just after it was asked for.
    in_order(&ledger, &[&["remediationrequest.started", &request], &["execution.started", &scale]]);
    in_order(
        &ledger,
        &[
            &["kubernetesexecution.requested", &scale, "user:pawl:alerts"],
            &["kubernetesexecution.policy.evaluated", &scale],
            &[granted[0], granted[1], &scale],
            &["undo.stored", &scale],
            &["execution.started", &scale],
            &["execution.completed", &scale],
            &[granted[0], granted[1], &restart],
            &["execution.failed", &restart],
            &["step.rollback", &request],
            &[granted[0], granted[1], &back],
            &["execution.completed", &back],
            &["remediationrequest.failed", &request],
        ],
    );
    assert!(stranger.types(&["audit", "verify"]).contains("each as it was written"));
}

#[tokio::test]
async fn where_the_cause_is_mended_the_next_alert_ends_well() {
    let home = tempfile::tempdir().unwrap();
    let up = Up::start(home.path());
    let stranger = Stranger(home.path());
    let client = client(home.path()).await;
    let nodes = send(&client, "GET", "/api/v1/nodes", &Value::Null).await.unwrap();
    let node = nodes["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    let fast = json!({"metadata": {"labels": {"disk": "fast"}}});
    send(&client, "PATCH", &format!("/api/v1/nodes/{node}"), &fast).await.unwrap();
    let request = stranger.alerts();
    stranger.approves(&request, "scale");
    stranger.approves(&request, "restart");
    // What was done stays: nobody is offered to take it back.
    stranger.until(&request, &["is Completed", "scale  completed"]);
    let found = send(&client, "GET", CHECKOUT, &Value::Null).await.unwrap();
    assert_eq!(found["status"]["availableReplicas"], 4, "{found:#}");
    let exposition = scrape(&up.metrics);
    for line in [
        "pawl_approvals_waiting{kind=\"KubernetesExecution\"} 0",
        "pawl_action_outcomes_total{action=\"scale_deployment\",outcome=\"success\",reason=\"Completed\"} 1",
    ] {
        assert!(exposition.contains(line), "{line} is missing from\n{exposition}");
    }
}
