//! What is an engine told to make of a plan, and what does it tell of what it made?

use std::collections::BTreeMap;
use std::path::PathBuf;

use http::Method;
use jiff::Timestamp;
use nix::sys::signal::Signal;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Engine;
use super::http::{Ask, Error};
use crate::cgroup::{CPU_PERIOD_MICROS, MAX_PIDS, cpu_quota_micros};
use crate::plan::{EngineTerms, Launch};

/// Whose a container is. Labels are how containers are found again.
const NODE_LABEL: &str = "dev.pawl.node";
const POD_LABEL: &str = "dev.pawl.pod-uid";
const CONTAINER_LABEL: &str = "dev.pawl.container";
/// For people who look at the engine.
const NAME_LABEL: &str = "dev.pawl.pod";

/// The engine's own copy of the output, until the container is removed; ours is what people read. What an engine cuts off
/// before it was copied is lost, and one that may keep little cuts under the hands of whoever follows a container that
/// talks fast: so it may keep minutes of it, and not all of a disk.
const MAX_ENGINE_LOG: &str = "1g";

/// All that a container of an engine is made of.
#[derive(Clone, Debug)]
pub(crate) struct Order<'a> {
    pub(crate) pod_uid: &'a str,
    /// `namespace/name`.
    pub(crate) pod: &'a str,
    pub(crate) container: &'a str,
    pub(crate) hostname: &'a str,
    pub(crate) launch: &'a Launch,
    pub(crate) terms: &'a EngineTerms,
    pub(crate) mounts: &'a [Mounted],
    pub(crate) network: bool,
}

/// A path of this machine, seen in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mounted {
    pub(crate) source: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) read_only: bool,
}

/// How far a container is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Made, and never started.
    Made,
    Runs,
    Ended,
}

/// A container as the engine tells of it.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) id: String,
    pub(crate) stage: Stage,
    pub(crate) exit_code: i64,
    pub(crate) oom_killed: bool,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Option<Timestamp>,
    pub(crate) stop_signal: Option<String>,
    labels: BTreeMap<String, String>,
}

/// A container in the engine's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) id: String,
    pub(crate) pod_uid: String,
    pub(crate) container: String,
    /// How often the container had been restarted.
    pub(crate) run: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Inspected {
    id: String,
    state: State,
    #[serde(default)]
    config: Config,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct State {
    running: bool,
    paused: bool,
    exit_code: i64,
    #[serde(rename = "OOMKilled")]
    oom_killed: bool,
    started_at: String,
    finished_at: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Config {
    labels: Option<BTreeMap<String, String>>,
    /// A name of Docker, a number of Podman.
    stop_signal: Value,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Line {
    id: String,
    names: Vec<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Made {
    id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Waited {
    status_code: i64,
}

/// What a container of a pod is called: a run has one name, and a name has one container.
pub(crate) fn container_name(pod_uid: &str, container: &str, restarts: u32) -> String {
    format!("pawl-{pod_uid}-{container}-{restarts}")
}

impl Found {
    /// Whether it was made for that container of that pod, by us.
    pub(crate) fn is_of(&self, engine: &Engine, pod_uid: &str, container: &str) -> bool {
        let says = |label: &str, value: &str| self.labels.get(label).is_some_and(|own| own == value);
        says(NODE_LABEL, &engine.node) && says(POD_LABEL, pod_uid) && says(CONTAINER_LABEL, container)
    }
}

impl Engine {
    /// Makes a container, and does not start it. Its ID.
    pub(crate) async fn make(&self, name: &str, order: &Order<'_>) -> Result<String, Error> {
        let (query, body) = ([("name", name)], self.body(order));
        let ask = Ask::new(Method::POST, "/containers/create").query(&query).json(&body);
        self.client.json::<Made>(ask).await.map(|made| made.id)
    }

    pub(crate) async fn inspect(&self, name: &str) -> Result<Found, Error> {
        let path = format!("/containers/{name}/json");
        let Inspected { id, state, config } = self.client.json(Ask::new(Method::GET, &path)).await?;
        let started_at = time(&state.started_at);
        Ok(Found {
            id,
            stage: match (state.running || state.paused, started_at) {
                (true, _) => Stage::Runs,
                (false, None) => Stage::Made,
                (false, Some(_)) => Stage::Ended,
            },
            exit_code: state.exit_code,
            oom_killed: state.oom_killed,
            started_at,
            finished_at: time(&state.finished_at),
            stop_signal: match config.stop_signal {
                Value::String(name) => Some(name),
                Value::Number(number) => Some(number.to_string()),
                Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
            },
            labels: config.labels.unwrap_or_default(),
        })
    }

    /// Starts a container; one that runs already is as good.
    pub(crate) async fn start(&self, name: &str) -> Result<(), Error> {
        let path = format!("/containers/{name}/start");
        self.client.done(Ask::new(Method::POST, &path)).await
    }

    pub(crate) async fn signal(&self, name: &str, signal: Signal) -> Result<(), Error> {
        let (path, query) = (format!("/containers/{name}/kill"), [("signal", signal.as_str())]);
        self.client.done(Ask::new(Method::POST, &path).query(&query)).await
    }

    /// Waits for a container's end; its exit code.
    pub(crate) async fn wait(&self, name: &str) -> Result<i64, Error> {
        let (path, query) = (format!("/containers/{name}/wait"), [("condition", "not-running")]);
        let answer = self.client.stream(Ask::new(Method::POST, &path).query(&query)).await?;
        answer.json::<Waited>().await.map(|waited| waited.status_code)
    }

    /// Removes a container, running or not, and volumes without a name that it made. One that is gone is as good.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), Error> {
        let (path, query) = (format!("/containers/{name}"), [("force", "1"), ("v", "1")]);
        match self.client.done(Ask::new(Method::DELETE, &path).query(&query)).await {
            Err(error) if error.is_absent() => Ok(()),
            removed => removed,
        }
    }

    /// All containers that are ours, whatever they do.
    pub(crate) async fn containers(&self) -> Result<Vec<Listed>, Error> {
        let filters = json!({"label": [format!("{NODE_LABEL}={}", self.node)]}).to_string();
        let query = [("all", "1"), ("filters", filters.as_str())];
        let lines: Vec<Line> =
            self.client.json(Ask::new(Method::GET, "/containers/json").query(&query)).await?;
        let listed = |line: Line| {
            let label = |label: &str| line.labels.get(label).cloned().unwrap_or_default();
            let run = line.names.first().and_then(|name| name.rsplit_once('-')?.1.parse().ok());
            let (pod_uid, container) = (label(POD_LABEL), label(CONTAINER_LABEL));
            Listed { id: line.id, pod_uid, container, run: run.unwrap_or(0) }
        };
        Ok(lines.into_iter().map(listed).collect())
    }

    /// What an engine is sent to make a container.
    fn body(&self, order: &Order<'_>) -> Value {
        let Order { launch, terms, .. } = order;
        let mount = |Mounted { source, target, read_only }: &Mounted| {
            json!({
                "Type": "bind", "Source": source.to_string_lossy(), "Target": target.to_string_lossy(),
                "ReadOnly": read_only, "BindOptions": {"Propagation": "rprivate"},
            })
        };
        let mut host = json!({
            "NetworkMode": if order.network { "host" } else { "none" },
            "IpcMode": "private",
            "Mounts": order.mounts.iter().map(mount).collect::<Value>(),
            "PidsLimit": MAX_PIDS,
            "ReadonlyRootfs": launch.read_only_root,
            "CapAdd": terms.capabilities_added,
            "CapDrop": terms.capabilities_dropped,
            "SecurityOpt": if terms.may_escalate { json!([]) } else { json!(["no-new-privileges"]) },
            "GroupAdd": terms.groups.iter().map(ToString::to_string).collect::<Value>(),
            // Both engines know it under this name, and can read it back.
            "LogConfig": {"Type": "json-file", "Config": {"max-size": MAX_ENGINE_LOG}},
            "RestartPolicy": {"Name": "no"},
        });
        let limits = [
            ("Memory", launch.memory_bytes),
            // Memory and swap together: none of the latter, as in Kubernetes.
            ("MemorySwap", launch.memory_bytes),
            ("CpuPeriod", launch.cpu_milli.map(|_| CPU_PERIOD_MICROS)),
            ("CpuQuota", launch.cpu_milli.map(cpu_quota_micros)),
        ];
        if let Some(host) = host.as_object_mut() {
            host.extend(limits.into_iter().filter_map(|(key, limit)| Some((key.to_owned(), limit?.into()))));
        }
        json!({
            "Image": terms.image,
            "Hostname": order.hostname,
            "User": terms.user,
            "Env": launch.env.iter().map(|(name, value)| format!("{name}={value}")).collect::<Value>(),
            // The whole of it: the image's own words are among them where they count, and are not asked again.
            "Entrypoint": launch.argv,
            "Cmd": [],
            "WorkingDir": launch.working_dir,
            "Labels": {
                NODE_LABEL: &*self.node, POD_LABEL: order.pod_uid, CONTAINER_LABEL: order.container,
                NAME_LABEL: order.pod,
            },
            "HostConfig": host,
        })
    }
}

/// A time as engines write it; what has not happened is the year 1, or nothing.
fn time(text: &str) -> Option<Timestamp> {
    text.parse::<Timestamp>().ok().filter(|time| *time > Timestamp::UNIX_EPOCH)
}
