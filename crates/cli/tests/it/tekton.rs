//! `pawl up` runs PipelineRuns with processes of this machine: every example ends as Tekton would end it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kube::api::{Api, DynamicObject, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config};
use pawl_integrations::registry::fake::{self, Fake};
use pawl_runner::oci::testing::{Builder, LAYER_TYPE};
use serde_json::{Value, json};

use crate::PAWL;

/// Far longer than anything here takes on a busy machine; a test that hangs fails by this.
const BOUND: Duration = Duration::from_secs(180);

/// `pawl up` in a directory that goes with it.
struct Up {
    process: Child,
    home: tempfile::TempDir,
    client: Client,
}

impl Up {
    async fn new(prepare: impl FnOnce(&Path)) -> Self {
        let home = tempfile::tempdir().unwrap();
        prepare(home.path());
        let kubeconfig = home.path().join("kubeconfig");
        let mut command = Command::new(PAWL);
        command
            .args(["up", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(home.path())
            .arg("--write-kubeconfig");
        let process = command.arg(&kubeconfig).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let client = until("pawl up", || async { connect(&kubeconfig).await }).await;
        Self { process, home, client }
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        let resource = match kind {
            "WorkflowExecution" => ApiResource::from_gvk(&GroupVersionKind::gvk(
                "workflowexecution.kubernaut.ai",
                "v1alpha1",
                kind,
            )),
            "ConfigMap" | "Secret" | "Pod" | "PersistentVolumeClaim" => {
                ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind))
            }
            _ => ApiResource::from_gvk(&GroupVersionKind::gvk("tekton.dev", "v1", kind)),
        };
        Api::default_namespaced_with(self.client.clone(), &resource)
    }

    /// Creates every object of an example; gives the last one's kind and name.
    async fn create(&self, yaml: &str) -> (String, String) {
        let objects: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
        let mut last = None;
        for object in objects {
            let (kind, name) = (word(&object["kind"]), word(&object["metadata"]["name"]));
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            self.api(&kind).create(&PostParams::default(), &object).await.unwrap();
            last = Some((kind, name));
        }
        last.unwrap()
    }

    async fn get(&self, kind: &str, name: &str) -> Value {
        serde_json::to_value(self.api(kind).get(name).await.unwrap()).unwrap()
    }

    /// Waits for the end of a run, and gives its status.
    async fn ended(&self, kind: &str, name: &str) -> Value {
        until(&format!("{kind} {name}"), || async {
            let status = self.get(kind, name).await["status"].clone();
            let done = matches!(status["conditions"][0]["status"].as_str(), Some("True" | "False"));
            done.then_some(status)
        })
        .await
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // What it runs dies with it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(start.elapsed() < BOUND, "{what} takes too long");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn connect(kubeconfig: &Path) -> Option<Client> {
    let config = Kubeconfig::read_from(kubeconfig).ok()?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.ok()?;
    let client = Client::try_from(config).ok()?;
    client.apiserver_version().await.ok()?;
    Some(client)
}

fn word(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn example(name: &str) -> String {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/tekton").join(format!("{name}.yaml"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// How each example ends: standing, reason, and its results.
fn expected() -> Vec<(&'static str, &'static str, &'static str, Value)> {
    let odd = "one $(params.other) $(HOME) $$ `id`\n\"two\" 'three' $x";
    vec![
        ("hello", "True", "Succeeded", json!({})),
        ("results", "True", "Succeeded", json!({"version": "1.2.3", "where": "south"})),
        ("diamond", "True", "Succeeded", json!({"seen": "left order right ", "said": "Succeeded/Succeeded"})),
        ("when", "True", "Completed", json!({})),
        ("retries", "True", "Succeeded", json!({})),
        ("on-error", "True", "Succeeded", json!({"code": "7"})),
        ("workspaces", "True", "Succeeded", json!({})),
        ("step-template", "True", "Succeeded", json!({})),
        ("by-name", "True", "Succeeded", json!({"joined": "x-y z+x-y z"})),
        ("failing", "False", "Failed", json!({})),
        ("timeout", "False", "PipelineRunTimeout", json!({})),
        ("as-data", "True", "Succeeded", json!({"argument": odd, "variable": odd})),
        ("sidecar", "True", "Succeeded", json!({})),
        ("bundle", "True", "Succeeded", json!({"mended": "prod/deployment/web"})),
    ]
}

/// The bundle that `bundle.yaml` names.
fn write_bundle(home: &Path) {
    bundle(home, "mend", "printf \"%s\" \"$T\" > $(results.mended.path)");
}

/// A bundle `example.com/workflows/NAME:1` whose one task runs this on its target.
fn bundle(home: &Path, name: &str, script: &str) {
    build(&home.join("images").join(name), &format!("example.com/workflows/{name}:1"), script);
}

/// A layout of a bundle of that name; gives the digest of its manifest.
fn build(directory: &Path, reference: &str, script: &str) -> String {
    let pipeline = format!(
        "apiVersion: tekton.dev/v1\nkind: Pipeline\nmetadata: {{name: workflow}}\nspec:\n  \
        params: [{{name: TARGET_RESOURCE}}]\n  tasks:\n  - name: mend\n    params: [{{name: target, value: $(params.TARGET_RESOURCE)}}]\n    \
        taskRef: {{resolver: bundles, params: [{{name: bundle, value: '{reference}'}}, {{name: name, value: mend}}, \
        {{name: kind, value: task}}]}}\n  results: [{{name: mended, value: $(tasks.mend.results.mended)}}]\n"
    );
    let task = format!(
        "apiVersion: tekton.dev/v1\nkind: Task\nmetadata: {{name: mend}}\nspec:\n  params: [{{name: target}}]\n  \
        results: [{{name: mended}}]\n  steps: [{{name: mend, image: busybox, env: [{{name: T, value: $(params.target)}}], \
        script: '{script}'}}]\n"
    );
    let mut builder = Builder::new(directory).unwrap();
    let layers = [("pipeline", "workflow", &pipeline), ("task", "mend", &task)].map(|(kind, name, text)| {
        let mut layer = builder.blob(LAYER_TYPE, &fake::layer(name, text)).unwrap();
        layer.annotations.insert("dev.tekton.image.kind".to_owned(), kind.to_owned());
        layer.annotations.insert("dev.tekton.image.name".to_owned(), name.to_owned());
        layer
    });
    let image = builder.image(&json!({}), &layers).unwrap();
    let digest = image.digest.to_string();
    builder.name(image, reference);
    builder.finish().unwrap();
    digest
}

/// A registry on loopback, gone with the test's runtime; and what stands before the names of its images.
async fn registry() -> (Fake, String) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let fake = Fake::default();
    tokio::spawn(fake.clone().serve(listener));
    (fake, host)
}

/// Puts a bundle whose one task runs this into a registry, as `workflows/NAME:1`.
fn publish((fake, host): &(Fake, String), name: &str, script: &str) {
    let layout = tempfile::tempdir().unwrap();
    let repository = format!("workflows/{name}");
    let manifest = build(layout.path(), &format!("{host}/{repository}:1"), script);
    for blob in std::fs::read_dir(layout.path().join("blobs/sha256")).unwrap() {
        let path = blob.unwrap().path();
        let digest = format!("sha256:{}", path.file_name().unwrap().to_str().unwrap());
        let bytes = std::fs::read(&path).unwrap();
        if digest == manifest {
            fake.put_manifest(&repository, "1", bytes);
        } else {
            fake.put_blob(&repository, &digest, bytes);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_ends_as_tekton_would_end_it() {
    let up = Up::new(write_bundle).await;
    let mut runs = Vec::new();
    for (name, standing, reason, results) in expected() {
        runs.push((up.create(&example(name)).await, standing, reason, results));
    }
    for ((kind, name), standing, reason, results) in runs {
        let status = up.ended(&kind, &name).await;
        let condition = &status["conditions"][0];
        let said = (condition["status"].as_str().unwrap(), condition["reason"].as_str().unwrap());
        assert_eq!(said, (standing, reason), "{name}: {status:#}");
        let found = status["results"].as_array().cloned().unwrap_or_default();
        let found: Value =
            found.iter().map(|result| (word(&result["name"]), result["value"].clone())).collect();
        assert_eq!(found, results, "{name}");
    }

    let failing = up.get("TaskRun", "failing-build").await["status"].clone();
    let steps: Vec<(String, i64)> = failing["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| (word(&step["terminationReason"]), step["terminated"]["exitCode"].as_i64().unwrap()))
        .collect();
    assert_eq!(steps, [("Completed".to_owned(), 0), ("Error".to_owned(), 3), ("Skipped".to_owned(), 1)]);
    assert_eq!(failing["conditions"][0]["message"], "\"step-broken\" exited with code 3: Error");
    let run = up.get("PipelineRun", "failing").await["status"].clone();
    assert_eq!(run["skippedTasks"], json!([{"name": "publish", "reason": "PipelineRun was stopping"}]));

    let skipped = up.get("PipelineRun", "when").await["status"]["skippedTasks"].clone();
    let reasons: Vec<&str> =
        skipped.as_array().unwrap().iter().map(|task| task["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["When Expressions evaluated to false", "Results were missing"]);

    let flaky = up.get("TaskRun", "retries-flaky").await["status"].clone();
    assert_eq!(flaky["retriesStatus"].as_array().unwrap().len(), 2);
    assert_eq!(flaky["podName"], "retries-flaky-pod-retry2");

    let probe = up.get("TaskRun", "on-error").await["status"]["steps"][0].clone();
    assert_eq!(
        (&probe["terminationReason"], &probe["terminated"]["exitCode"]),
        (&json!("Continued"), &json!(7))
    );

    let left = up.api("Pod").list(&ListParams::default()).await.unwrap();
    let timed_out = left.iter().find(|pod| pod.metadata.name.as_deref() == Some("timeout-sleep-pod"));
    assert!(
        timed_out.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()),
        "what took too long is ended"
    );
    assert!(up.home.path().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_run_is_said_and_a_cancelled_run_ends_its_processes() {
    let registry = registry().await;
    registry.0.put_manifest("not-a-bundle", "1", "not JSON");
    let bundle = |name: &str| {
        let value = format!("{}/{name}", registry.1);
        json!({"pipelineRef": {"resolver": "bundles", "params": [{"name": "bundle", "value": value},
            {"name": "name", "value": "w"}, {"name": "kind", "value": "pipeline"}]}})
    };
    let up = Up::new(|home| {
        std::fs::create_dir_all(home.join("images/not-a-bundle")).unwrap();
        std::fs::write(home.join("images/not-a-bundle/index.json"), "not JSON").unwrap();
    })
    .await;
    let script = "#".repeat(1_000_000);
    let run = |name: &str, spec: Value| {
        json!({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": {"name": name}, "spec": spec})
    };
    let steps = |script: &str| json!({"steps": [{"name": "s", "image": "busybox", "script": script}]});
    let runs = [
        ("no-bundle", bundle("nobody:1"), "CouldntGetPipeline"),
        ("not-a-bundle", bundle("not-a-bundle:1"), "CouldntGetPipeline"),
        ("no-pipeline", json!({"pipelineRef": {"name": "nope"}}), "CouldntGetPipeline"),
        ("no-resolver", json!({"pipelineRef": {"resolver": "git"}}), "CouldntGetPipeline"),
        (
            "megabyte",
            json!({"pipelineSpec": {"tasks": [{"name": "a", "taskSpec": steps(&script)}]}}),
            "PipelineValidationFailed",
        ),
        (
            "cycle",
            json!({"pipelineSpec": {"tasks": [{"name": "a", "runAfter": ["b"], "taskSpec": steps("true")},
            {"name": "b", "runAfter": ["a"], "taskSpec": steps("true")}]}}),
            "PipelineInvalidGraph",
        ),
    ];
    for (name, spec, reason) in runs {
        let object: DynamicObject = serde_json::from_value(run(name, spec)).unwrap();
        up.api("PipelineRun").create(&PostParams::default(), &object).await.unwrap();
        let status = up.ended("PipelineRun", name).await;
        assert_eq!(status["conditions"][0]["reason"], reason, "{name}: {}", status["conditions"][0]);
    }
    let malformed: DynamicObject =
        serde_json::from_value(run("m", json!({"timeouts": {"pipeline": "soon"}}))).unwrap();
    assert!(
        up.api("PipelineRun").create(&PostParams::default(), &malformed).await.is_err(),
        "refused at the door"
    );

    let hanging = json!({"pipelineSpec": {"tasks": [{"name": "hang", "taskSpec": steps("sleep 600")}],
        "finally": [{"name": "last", "taskSpec": steps("true")}]}});
    let object: DynamicObject = serde_json::from_value(run("hanging", hanging)).unwrap();
    up.api("PipelineRun").create(&PostParams::default(), &object).await.unwrap();
    until("the step to run", || async {
        let task_run = up.api("TaskRun").get_opt("hanging-hang").await.unwrap()?;
        let task_run = serde_json::to_value(task_run).unwrap();
        task_run.pointer("/status/steps/0/running").cloned()
    })
    .await;
    let patch = kube::api::Patch::Merge(json!({"spec": {"status": "CancelledRunFinally"}}));
    up.api("PipelineRun").patch("hanging", &kube::api::PatchParams::default(), &patch).await.unwrap();
    let status = up.ended("PipelineRun", "hanging").await;
    assert_eq!(status["conditions"][0]["reason"], "Cancelled");
    assert_eq!(status["childReferences"].as_array().unwrap().len(), 2);
    until("the process to end", || async {
        up.api("Pod").get_opt("hanging-hang-pod").await.unwrap().is_none().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_execution_with_engine_tekton_is_run_by_the_local_runner_to_its_end() {
    const MEND: &str = "printf \"%s\" \"$T\" > $(results.mended.path)";
    let registry = registry().await;
    publish(&registry, "fetch", MEND);
    let up = Up::new(|home| {
        bundle(home, "mend", MEND);
        bundle(home, "break", "exit 3");
    })
    .await;
    let host = registry.1.as_str();
    for (name, host) in [("mend", "example.com"), ("break", "example.com"), ("fetch", host)] {
        let object = json!({"apiVersion": "workflowexecution.kubernaut.ai/v1alpha1", "kind": "WorkflowExecution",
            "metadata": {"name": name}, "spec": {"engine": "tekton", "targetResource": format!("default/deployment/{name}"),
                "workflowRef": {"workflowId": name, "version": "1",
                    "containerImage": format!("{host}/workflows/{name}:1")}}});
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        up.api("WorkflowExecution").create(&PostParams::default(), &object).await.unwrap();
    }
    let ended = |name: &'static str| {
        let up = &up;
        async move {
            until(name, || async {
                let status = up.get("WorkflowExecution", name).await["status"].clone();
                matches!(status["phase"].as_str(), Some("Completed" | "Failed" | "Skipped")).then_some(status)
            })
            .await
        }
    };
    for name in ["mend", "fetch"] {
        let status = ended(name).await;
        assert_eq!(
            (&status["phase"], &status["outcome"]),
            (&json!("Completed"), &json!("Success")),
            "{status:#}"
        );
        assert_eq!(status["pipelineRunStatus"]["completedTasks"], 1, "{status:#}");
        let run = up.get("PipelineRun", &word(&status["pipelineRunRef"]["name"])).await;
        assert_eq!(run["metadata"]["labels"]["tekton.dev/pipeline"], "workflow", "as Tekton labels it");
        let target = format!("default/deployment/{name}");
        assert_eq!(run["status"]["results"], json!([{"name": "mended", "value": target}]));
    }
    let kept = std::fs::read_dir(up.home.path().join("bundles")).unwrap().count();
    assert_eq!(kept, 3, "the manifest, the pipeline and the task");

    let status = ended("break").await;
    assert_eq!(
        (&status["phase"], &status["reason"]),
        (&json!("Failed"), &json!("TaskRunFailed")),
        "{status:#}"
    );
    let details = &status["failureDetails"];
    assert_eq!(
        (&details["failedTaskName"], &details["failedStepName"], &details["exitCode"]),
        (&json!("mend"), &json!("mend"), &json!(3)),
        "{status:#}"
    );
    assert_eq!(details["wasExecutionFailure"], true);
    let summary = word(&details["naturalLanguageSummary"]);
    assert!(summary.contains("default/deployment/break") && summary.contains("exit code 3"), "{summary}");
}
