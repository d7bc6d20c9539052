//! Do pods really run? Processes of this machine, or containers of an engine, through an API server in this process.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what helps a test fails as a test does"
)]

mod docker;
mod engine;
mod faults;
mod images;
mod isolation;
mod pods;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Event, Pod};
use kube::api::{Api, ListParams, PostParams};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use pawl_apiserver::{RealEnv, Server};
use pawl_runner::docker::Engine;
use pawl_runner::life::Timing;
use pawl_runner::{Isolation, LogOptions, Logs, Options, Runner};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Far longer than anything here takes on a busy machine; a test that hangs fails by this.
const BOUND: Duration = Duration::from_secs(60);

/// An API server, and a runner on it.
struct World {
    client: Client,
    data: tempfile::TempDir,
    logs: Logs,
    /// Where containers run, if not as processes.
    engine: Option<Engine>,
    stop: Option<oneshot::Sender<()>>,
    runner: JoinHandle<()>,
}

impl World {
    fn new() -> Self {
        Self::with(None)
    }

    /// A runner that makes do with less than the machine allows.
    fn with(isolation: Option<Isolation>) -> Self {
        let server = Server::in_memory(Arc::new(RealEnv));
        let data = tempfile::tempdir().unwrap();
        let client = Client::new(server.service(), "default");
        let (logs, stop, runner) = start(&client, data.path().to_owned(), isolation, None);
        Self { client, data, logs, engine: None, stop: Some(stop), runner }
    }

    /// As `kill -9` would leave it: nothing is told, nothing is written.
    async fn crash(&mut self) {
        self.runner.abort();
        let _ = (&mut self.runner).await;
    }

    async fn restart(&mut self) {
        let engine = self.engine.clone();
        let (logs, stop, runner) = start(&self.client, self.data.path().to_owned(), None, engine);
        (self.logs, self.stop, self.runner) = (logs, Some(stop), runner);
    }

    async fn shut_down(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        tokio::time::timeout(BOUND, &mut self.runner).await.unwrap().unwrap();
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    async fn create<K>(&self, object: Value)
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
        K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
    {
        let api: Api<K> = Api::default_namespaced(self.client.clone());
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }

    async fn pod(&self, name: &str, spec: Value) {
        self.create::<Pod>(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}),
        )
        .await;
    }

    /// A pod with one container that runs a script and is not restarted.
    async fn script(&self, name: &str, script: &str) {
        self.pod(name, spec(json!({"command": ["/bin/sh", "-c", script]}))).await;
    }

    /// Waits until a pod is as wanted. `None`: it is gone.
    async fn until(&self, name: &str, wanted: impl Fn(Option<&Pod>) -> bool) -> Option<Pod> {
        let last = std::sync::Mutex::new(None);
        let found = tokio::time::timeout(BOUND, async {
            let mut states = watcher::watch_object(self.pods(), name).boxed();
            while let Some(state) = states.next().await {
                let state = state.unwrap();
                if wanted(state.as_ref()) {
                    return state;
                }
                *last.lock().unwrap() = state.and_then(|pod| pod.status);
            }
            panic!("the watch ended")
        });
        found.await.unwrap_or_else(|_| panic!("{name} stayed {}", json!(*last.lock().unwrap())))
    }

    async fn over(&self, name: &str) -> Pod {
        self.until(name, |pod| matches!(phase(pod), Some("Succeeded" | "Failed"))).await.unwrap()
    }

    async fn output(&self, pod: &Pod, container: &str, options: LogOptions) -> String {
        let stream = self.logs.open(&pod.uid().unwrap(), container, options).await.unwrap();
        tokio::time::timeout(BOUND, text(stream)).await.unwrap()
    }

    async fn log(&self, pod: &Pod) -> String {
        self.output(pod, "main", LogOptions::default()).await
    }

    async fn events(&self, pod: &str) -> Vec<(String, String)> {
        let api: Api<Event> = Api::default_namespaced(self.client.clone());
        let list = api.list(&ListParams::default()).await.unwrap();
        let about = list.items.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(pod));
        about.map(|event| (event.reason.unwrap(), event.message.unwrap())).collect()
    }
}

fn start(
    client: &Client,
    data: PathBuf,
    isolation: Option<Isolation>,
    engine: Option<Engine>,
) -> (Logs, oneshot::Sender<()>, JoinHandle<()>) {
    let mut options = Options::new(data, container_executable());
    options.container_arguments = Vec::new();
    options.own_images = vec!["example.invalid/pawl".to_owned()];
    options.isolation = isolation;
    options.engine = engine;
    options.timing = Timing {
        restart_initial: SignedDuration::from_millis(50),
        config_retry: SignedDuration::from_millis(50),
        pull_initial: SignedDuration::from_millis(100),
        ..Timing::default()
    };
    let runner = Runner::new(client.clone(), options);
    let logs = runner.logs();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(async move {
        let stopped = async {
            // A world that was dropped stops its runner too.
            let _ = stopped.await;
        };
        runner.run(stopped).await.unwrap();
    });
    (logs, stop, task)
}

/// What this machine gives.
async fn detected() -> Isolation {
    let scratch = tempfile::tempdir().unwrap();
    Isolation::detect(&container_executable(), &[], scratch.path()).await.unwrap()
}

/// The hidden entry point, built beside the tests.
fn container_executable() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let built = tests.parent().unwrap().parent().unwrap().join("examples/container");
    assert!(built.exists(), "{} is missing: `cargo build --workspace --examples` builds it", built.display());
    built
}

/// A pod that is not restarted, with one container `main`.
fn spec(container: Value) -> Value {
    json!({"restartPolicy": "Never", "containers": [main(container)]})
}

fn main(mut container: Value) -> Value {
    container["name"] = json!("main");
    container["image"] = json!("example.invalid/any");
    container
}

fn phase(pod: Option<&Pod>) -> Option<&str> {
    pod?.status.as_ref()?.phase.as_deref()
}

fn container(pod: &Pod) -> ContainerStatus {
    pod.status.clone().unwrap().container_statuses.unwrap().remove(0)
}

fn terminated(pod: &Pod) -> ContainerStateTerminated {
    container(pod).state.unwrap().terminated.unwrap()
}

async fn text(stream: impl Stream<Item = std::io::Result<bytes::Bytes>>) -> String {
    let chunks: Vec<_> = stream.collect().await;
    String::from_utf8(chunks.into_iter().flat_map(|chunk| chunk.unwrap().to_vec()).collect()).unwrap()
}
