//! Actions on `pawl up`: a real control plane, real Jobs that run `pawl act`, and two people.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::{PAWL, text};

/// Far longer than anything here takes on a busy machine; a test that hangs fails by this.
pub(crate) const BOUND: Duration = Duration::from_secs(240);

const EXECUTIONS: &str =
    "/apis/kubernetesexecution.kubernaut.ai/v1alpha1/namespaces/default/kubernetesexecutions";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub(crate) const MAPS: &str = "/api/v1/namespaces/pawl-system/configmaps";

/// Whatever is asked for must be tried, and approved by one other person.
const POLICY: &str = r#"package pawl.safety
decision := {"allow": true, "deny": [], "require_approval": true, "require_dry_run": true,
    "approvers": {"groups": [], "count": 1}, "risk": "medium"}
"#;

/// A control plane that ends with the test.
pub(crate) struct Up {
    process: Child,
    home: tempfile::TempDir,
}

impl Drop for Up {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Up {
    pub(crate) fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut command = Command::new(PAWL);
        command.current_dir(home.path()).args(["up", "--listen", "127.0.0.1:0", "--data-dir", "data"]);
        let process =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { process, home }
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Somebody, as the owner of the control plane lets them be.
    pub(crate) async fn person(&self, name: &str) -> Person {
        let owner = self.home.path().join("data/kubeconfig");
        let started = Instant::now();
        loop {
            if let Some(client) = connect(&owner, name).await {
                let kubeconfig = self.home.path().join(name);
                let mut config = Kubeconfig::read_from(&owner).unwrap();
                be(&mut config, name);
                std::fs::write(&kubeconfig, serde_json::to_string(&config).unwrap()).unwrap();
                return Person { client, kubeconfig };
            }
            assert!(started.elapsed() < BOUND, "the control plane does not come up");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn be(config: &mut Kubeconfig, name: &str) {
    for user in config.auth_infos.iter_mut().filter_map(|user| user.auth_info.as_mut()) {
        user.impersonate = Some(name.to_owned());
        user.impersonate_groups = Some(vec!["system:masters".to_owned()]);
    }
}

async fn connect(kubeconfig: &Path, name: &str) -> Option<kube::Client> {
    let mut config = Kubeconfig::read_from(kubeconfig).ok()?;
    be(&mut config, name);
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.ok()?;
    let client = kube::Client::try_from(config).ok()?;
    client.apiserver_version().await.ok()?;
    Some(client)
}

#[derive(Clone)]
pub(crate) struct Person {
    client: kube::Client,
    kubeconfig: PathBuf,
}

impl Person {
    pub(crate) async fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let type_ = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(method).uri(path).header("content-type", type_);
        let request = request.body(serde_json::to_vec(body).unwrap()).unwrap();
        self.client.request(request).await.map_err(|error| error.to_string())
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.send("GET", path, &Value::Null).await.unwrap()
    }

    /// Waits until the execution is in this phase, and gives its status.
    async fn until(&self, name: &str, phase: &str) -> Value {
        let started = Instant::now();
        loop {
            let status = self.get(&format!("{EXECUTIONS}/{name}")).await["status"].clone();
            if status["phase"] == phase {
                return status;
            }
            assert!(status["phase"] != "failed", "{status:#}");
            assert!(started.elapsed() < BOUND, "{name} is not {phase}: {status:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn replicas(&self) -> i64 {
        self.get(&format!("{DEPLOYMENTS}/web")).await["spec"]["replicas"].as_i64().unwrap()
    }

    fn pawl(&self, words: &[&str]) -> Output {
        let mut command = Command::new(PAWL);
        command.args(words).arg("--kubeconfig").arg(&self.kubeconfig);
        command.stdin(Stdio::null()).env_remove("PAWL_LOG").output().unwrap()
    }

    #[track_caller]
    fn says(&self, words: &[&str]) -> String {
        let output = self.pawl(words);
        assert!(output.status.success(), "{words:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }
}

fn execution(name: &str, requested_by: &str, replicas: i64) -> Value {
    json!({"apiVersion": "kubernetesexecution.kubernaut.ai/v1alpha1", "kind": "KubernetesExecution",
        "metadata": {"name": name}, "spec": {"action": "scale_deployment", "requestedBy": requested_by,
            "parameters": {"scaleDeployment": {"deployment": "web", "namespace": "default", "replicas": replicas}}}})
}

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 3,
        "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "web"}]}}}})
}

#[tokio::test]
async fn a_scale_is_approved_by_somebody_else_done_by_a_job_told_and_rolled_back() {
    let up = Up::start();
    let (ann, bob) = (up.person("ann").await, up.person("bob").await);
    ann.send("POST", DEPLOYMENTS, &deployment()).await.unwrap();
    let policy = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"safety.rego": POLICY},
        "metadata": {"name": "strict", "labels": {"pawl.dev/policy": "safety"}}});
    ann.send("POST", MAPS, &policy).await.unwrap();
    let refused = ann.send("POST", EXECUTIONS, &execution("x", "bob", 5)).await.unwrap_err();
    assert!(refused.contains("requestedBy"), "{refused}");
    ann.send("POST", EXECUTIONS, &execution("grow", "ann", 5)).await.unwrap();
    let waiting = ann.until("grow", "waiting_approval").await;
    assert_eq!(waiting["validationResults"]["dryRunResults"]["success"], true, "{waiting:#}");
    // Her own word does not count, nobody is there to be asked, and nobody speaks for others.
    ann.says(&["approve", "ke/grow", "--yes"]);
    let unasked = bob.pawl(&["approve", "ke/grow"]);
    assert!(!unasked.status.success() && text(&unasked.stdout).contains("digest"), "{unasked:?}");
    assert_eq!(ann.replicas().await, 3);
    let told = bob.says(&["approve", "ke/grow", "--yes", "--reason", "looks right"]);
    assert!(told.contains("strict") && told.contains("asked for by ann"), "{told}");
    let done = bob.until("grow", "rollback_ready").await;
    assert_eq!(ann.replicas().await, 5);
    let affected = &done["executionResults"]["resourcesAffected"][0];
    assert_eq!(
        (&affected["before"], &affected["after"]),
        (&json!("replicas: 3"), &json!("replicas: 5")),
        "{done:#}"
    );
    let story = bob.says(&["explain", "ke/grow"]);
    for part in [
        "asked for by ann",
        "passed  Approval",
        "replicas: 3 → replicas: 5",
        "pawl rollback -n default ke/grow",
    ] {
        assert!(story.contains(part), "{part} in {story}");
    }
    let back = bob.says(&["rollback", "ke/grow"]);
    let name = back.split([':', '/']).nth(1).unwrap().to_owned();
    bob.until(&name, "waiting_approval").await;
    ann.says(&["approve", &format!("ke/{name}"), "--yes"]);
    bob.until(&name, "rollback_ready").await;
    assert_eq!(ann.replicas().await, 3);
    let first = bob.until("grow", "completed").await;
    assert_eq!(first["rollbackInformation"]["rolledBackBy"], name.as_str());
    assert!(bob.says(&["finalize", &format!("ke/{name}")]).contains("stays as it is"));
}
