//! I12: a controller that starts among a thousand finished Workflows sends nothing: no write, no call to GitHub.
//!
//! One Branch is really run to its end by the door. The others are copies of what it left behind, under the names and
//! UIDs they would have: so nobody had to guess what "finished" looks like, and a thousand cost no more than their
//! creation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use jiff::Timestamp;
use pawl_api::git::workflow;
use pawl_apiserver::{SeededEnv, Server};
use pawl_engine::wire::Wire;
use pawl_engine::{Engine, Ports, SystemClock};
use pawl_integrations::github::Port;
use pawl_integrations::github::fake::{APP_ID, APP_KEY_PKCS1, Change, Fake, INSTALLATION_ID};
use pawl_machines::git::github::Call;
use pawl_machines::lock::reaper::Reaper;
use pawl_machines::machine::AnyMachine;
use serde_json::{Value, json};

const BRANCHES: usize = 50;
const FOLDERS: usize = 20;
const DOOR: &str = "/apis/terrakojo.io/v1alpha1/namespaces/default";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

/// Far more than it takes, also on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(120);

struct Lab {
    server: Server,
    github: Fake,
}

impl Lab {
    fn new() -> Self {
        let server = Server::in_memory(Arc::new(SeededEnv::new(1, Timestamp::now())));
        for crd in pawl_api::crds::all() {
            server.install_crd(serde_json::to_value(crd).unwrap()).unwrap();
        }
        let github = Fake::new(Arc::new(SystemClock));
        let repo = github.create("acme/infra");
        repo.push("main", &Change::new("begin").put("README.md", "begin"));
        let lab = Self { server, github };
        lab.call("POST", "/api/v1/namespaces", &json!({"metadata": {"name": "pawl-system"}}));
        let secret = json!({"metadata": {"name": "github"}, "stringData": {
            "github-app-id": APP_ID.to_string(), "github-installation-id": INSTALLATION_ID.to_string(),
            "github-private-key": APP_KEY_PKCS1}});
        lab.call("POST", "/api/v1/namespaces/default/secrets", &secret);
        let container = json!({"name": "main", "image": "none", "command": ["true"]});
        let job = json!({"template": {"spec": {"containers": [container]}}});
        let template = json!({"metadata": {"name": "plan"},
            "spec": {"displayName": "Plan", "match": {"paths": ["**/*.tf"]}, "job": job}});
        lab.create(&format!("{DOOR}/workflowtemplates"), "WorkflowTemplate", template);
        let repository = json!({"metadata": {"name": "infra"}, "spec": {"owner": "acme", "name": "infra",
            "githubSecretRef": {"name": "github"}, "pollInterval": "24h", "bootstrap": "cursor"}});
        lab.create(&format!("{DOOR}/repositories"), "Repository", repository);
        lab
    }

    /// Creates an object: of our kinds the server wants to be told which.
    fn create(&self, path: &str, kind: &str, mut body: Value) -> Value {
        let version = if path == JOBS { "batch/v1" } else { "terrakojo.io/v1alpha1" };
        body["apiVersion"] = version.into();
        body["kind"] = kind.into();
        self.call("POST", path, &body)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let response = self.server.call(request.body(Bytes::from(body.to_string())).unwrap());
        let said = String::from_utf8_lossy(response.body()).into_owned();
        assert!(response.status().is_success(), "{method} {path}: {said}");
        serde_json::from_str(&said).unwrap()
    }

    fn list(&self, path: &str) -> Vec<Value> {
        self.call("GET", path, &Value::Null)["items"].as_array().unwrap().clone()
    }

    /// How far the store has come: every write moves it.
    fn revision(&self) -> String {
        let list = self.call("GET", "/api/v1/namespaces/default/configmaps?limit=1", &Value::Null);
        list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
    }

    /// A controller process, from its start on.
    fn controllers(&self) -> Running {
        let client = kube::Client::new(self.server.service(), "default");
        let secrets = Arc::new(Wire::new(client.clone()));
        let port = Port::new(secrets, self.github.transport(), Arc::new(SystemClock));
        let engine = Engine::builder(client)
            .machines(pawl_machines::git::machines("pawl-system"))
            .machine(AnyMachine::new(Reaper))
            .ports(Ports::default().with::<Call>(Arc::new(port)))
            .build()
            .unwrap();
        let task = tokio::spawn({
            let engine = engine.clone();
            async move { engine.run(std::future::pending()).await }
        });
        Running { engine, task }
    }

    /// Says of every Job that may run that it is complete.
    fn end_jobs(&self) {
        for job in self.list(JOBS) {
            if job["spec"]["suspend"] != true && job["status"]["completionTime"].is_null() {
                let name = job["metadata"]["name"].as_str().unwrap();
                let at = format!("{:.0}", Timestamp::now());
                let condition =
                    |word: &str| json!({"type": word, "status": "True", "lastTransitionTime": at});
                let status = json!({"startTime": at, "completionTime": at, "succeeded": 1, "ready": 0,
                    "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]});
                self.call("PATCH", &format!("{JOBS}/{name}/status"), &json!({"status": status}));
            }
        }
    }

    /// Another Branch that is as finished as this one, with its Workflows and their Jobs.
    fn copy(&self, number: usize, branch: &Value, workflows: &[(Value, Value)]) {
        let sha = format!("{number:040x}");
        let old = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap().to_owned();
        let renamed = format!("{}-{number}", old(branch, "name"));
        let mut names = vec![
            (branch["spec"]["sha"].as_str().unwrap().to_owned(), sha.clone()),
            (old(branch, "name"), renamed.clone()),
            (branch["spec"]["name"].as_str().unwrap().to_owned(), format!("feature/copy-{number}")),
        ];
        let made = self.create(&format!("{DOOR}/branches"), "Branch", bare(branch, &names));
        names.push((old(branch, "uid"), old(&made, "uid")));
        for (workflow, _) in workflows {
            let path = workflow["spec"]["path"].as_str().unwrap();
            let name = workflow::name(&old(&made, "uid"), &sha, "plan", path, 1);
            names.push((old(workflow, "name"), name));
        }
        self.say(&format!("{DOOR}/branches/{renamed}"), branch, &names);
        for (workflow, job) in workflows {
            let made = self.create(&format!("{DOOR}/workflows"), "Workflow", bare(workflow, &names));
            let mut names = names.clone();
            names.push((old(workflow, "uid"), old(&made, "uid")));
            let made_job = self.create(JOBS, "Job", bare(job, &names));
            names.push((old(job, "uid"), old(&made_job, "uid")));
            let name = old(&made, "name");
            self.say(&format!("{JOBS}/{name}"), job, &names);
            self.say(&format!("{DOOR}/workflows/{name}"), workflow, &names);
        }
    }

    fn say(&self, path: &str, like: &Value, names: &[(String, String)]) {
        let status = translated(&json!({"status": like["status"]}), names);
        self.call("PATCH", &format!("{path}/status"), &status);
    }
}

/// An object as somebody would create it.
fn bare(object: &Value, names: &[(String, String)]) -> Value {
    let mut bare = translated(object, names);
    let fields = bare.as_object_mut().unwrap();
    fields.remove("status");
    let metadata = fields["metadata"].as_object_mut().unwrap();
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
        metadata.remove(field);
    }
    // What the server adds to a Job names the one it was added to.
    if let Some(spec) = fields["spec"].as_object_mut().filter(|spec| spec.contains_key("template")) {
        spec.remove("selector");
        if let Some(labels) = spec["template"].pointer_mut("/metadata/labels").and_then(Value::as_object_mut)
        {
            labels.retain(|label, _| !label.ends_with("controller-uid") && !label.ends_with("job-name"));
        }
    }
    bare
}

fn translated(value: &Value, names: &[(String, String)]) -> Value {
    let text = names.iter().fold(value.to_string(), |text, (old, new)| text.replace(old, new));
    serde_json::from_str(&text).unwrap()
}

struct Running {
    engine: Engine,
    task: tokio::task::JoinHandle<pawl_engine::Stopped>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Running {
    /// How many looks at Workflows there were.
    fn looks(&self) -> u64 {
        let exposition = self.engine.metrics().exposition();
        let counts =
            exposition.lines().filter(|line| line.starts_with("pawl_reconciles_total{machine=\"workflow\""));
        counts.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn i12_a_restart_with_1000_finished_workflows_sends_nothing() {
    let lab = Lab::new();
    let first = lab.controllers();
    let repository = || lab.call("GET", &format!("{DOOR}/repositories/infra"), &Value::Null);
    until("the Repository is in step", || repository()["status"]["synced"] == true).await;
    let change = (0..FOLDERS)
        .fold(Change::new("all"), |change, n| change.put(&format!("envs/e{n}/main.tf"), "changed"));
    lab.github.repository("acme/infra").unwrap().push("feature/one", &change);
    let asked = json!({"metadata": {"annotations": {"terrakojo.io/sync-requested-at": "now"}}});
    lab.call("PATCH", &format!("{DOOR}/repositories/infra"), &asked);
    until("every check has concluded", || {
        lab.end_jobs();
        let runs = lab.github.repository("acme/infra").unwrap().check_runs();
        runs.len() == FOLDERS + 1 && runs.iter().all(|run| run.conclusion.is_some())
    })
    .await;
    until("nothing more to do", || first.engine.is_idle()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    drop(first);

    let branches = lab.list(&format!("{DOOR}/branches"));
    let branch = branches.iter().find(|branch| branch["spec"]["name"] == "feature/one").unwrap();
    let jobs = lab.list(JOBS);
    let done: Vec<(Value, Value)> = lab
        .list(&format!("{DOOR}/workflows"))
        .into_iter()
        .map(|workflow| {
            let name = &workflow["metadata"]["name"];
            let job = jobs.iter().find(|job| job["metadata"]["name"] == *name).unwrap().clone();
            (workflow, job)
        })
        .collect();
    assert_eq!(done.len(), FOLDERS);
    (1..BRANCHES).for_each(|number| lab.copy(number, branch, &done));
    assert_eq!(lab.list(&format!("{DOOR}/workflows")).len(), BRANCHES * FOLDERS);

    let (revision, calls) = (lab.revision(), lab.github.requests());
    let second = lab.controllers();
    second.engine.ready().await;
    until("every Workflow was looked at", || second.looks() >= (BRANCHES * FOLDERS) as u64).await;
    until("nothing more to do", || second.engine.is_idle()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(lab.revision(), revision, "a restart writes nothing");
    assert_eq!(lab.github.requests(), calls, "a restart asks GitHub nothing");
}
