//! What is an engine told to make of a plan, and what does it tell of what it made?

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use http::Method;
use jiff::Timestamp;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Engine;
use super::http::{Ask, Error};
use crate::plan::{EngineTerms, Launch};

/// Whose a container is. Labels are how containers are found again.
const NODE_LABEL: &str = "dev.pawl.node";
const POD_LABEL: &str = "dev.pawl.pod-uid";
const CONTAINER_LABEL: &str = "dev.pawl.container";
/// For people who look at the engine.
const NAME_LABEL: &str = "dev.pawl.pod";

/// The kernel's window for CPU time, and the smallest share of it that it takes.
const CPU_PERIOD_MICROS: u64 = 100_000;
const MIN_CPU_QUOTA_MICROS: u64 = 1_000;
/// As where limits are kept without an engine.
const MAX_PIDS: u64 = crate::cgroup::MAX_PIDS;
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

    fn body(&self, order: &Order<'_>) -> Create {
        let Order { launch, terms, .. } = order;
        let labels = [
            (NODE_LABEL, &*self.node),
            (POD_LABEL, order.pod_uid),
            (CONTAINER_LABEL, order.container),
            (NAME_LABEL, order.pod),
        ];
        Create {
            image: terms.image.clone(),
            hostname: order.hostname.to_owned(),
            user: terms.user.clone(),
            env: launch.env.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            // The whole of it: the image's own words are among them where they count, and are not asked again.
            entrypoint: launch.argv.clone(),
            cmd: Vec::new(),
            working_dir: launch.working_dir.clone(),
            labels: labels.map(|(label, value)| (label.to_owned(), value.to_owned())).into(),
            host_config: HostConfig {
                network_mode: if order.network { "host" } else { "none" },
                ipc_mode: "private",
                mounts: order.mounts.iter().map(Mount::of).collect(),
                memory: launch.memory_bytes,
                // Memory and swap together: none of the latter, as in Kubernetes.
                memory_swap: launch.memory_bytes,
                cpu_period: launch.cpu_milli.map(|_| CPU_PERIOD_MICROS),
                cpu_quota: launch
                    .cpu_milli
                    .map(|milli| (milli.saturating_mul(CPU_PERIOD_MICROS) / 1000).max(MIN_CPU_QUOTA_MICROS)),
                pids_limit: MAX_PIDS,
                readonly_rootfs: launch.read_only_root,
                cap_add: terms.capabilities_added.clone(),
                cap_drop: terms.capabilities_dropped.clone(),
                security_opt: if terms.may_escalate { Vec::new() } else { vec!["no-new-privileges"] },
                group_add: terms.groups.iter().map(ToString::to_string).collect(),
                log_config: LogConfig {
                    // Both engines know it under this name, and can read it back.
                    type_: "json-file",
                    config: [("max-size".to_owned(), MAX_ENGINE_LOG.to_owned())].into(),
                },
                restart_policy: RestartPolicy { name: "no" },
            },
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Create {
    image: String,
    hostname: String,
    user: String,
    env: Vec<String>,
    entrypoint: Vec<String>,
    cmd: Vec<String>,
    working_dir: String,
    labels: BTreeMap<String, String>,
    host_config: HostConfig,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct HostConfig {
    network_mode: &'static str,
    ipc_mode: &'static str,
    mounts: Vec<Mount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_swap: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_period: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_quota: Option<u64>,
    pids_limit: u64,
    readonly_rootfs: bool,
    cap_add: Vec<String>,
    cap_drop: Vec<String>,
    security_opt: Vec<&'static str>,
    group_add: Vec<String>,
    log_config: LogConfig,
    restart_policy: RestartPolicy,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Mount {
    #[serde(rename = "Type")]
    type_: &'static str,
    source: PathBuf,
    target: PathBuf,
    read_only: bool,
    bind_options: BindOptions,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct BindOptions {
    propagation: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct LogConfig {
    #[serde(rename = "Type")]
    type_: &'static str,
    config: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct RestartPolicy {
    name: &'static str,
}

impl Mount {
    fn of(mounted: &Mounted) -> Self {
        let at = |path: &Path| path.to_owned();
        Self {
            type_: "bind",
            source: at(&mounted.source),
            target: at(&mounted.target),
            read_only: mounted.read_only,
            bind_options: BindOptions { propagation: "rprivate" },
        }
    }
}

/// A time as engines write it; what has not happened is the year 1, or nothing.
fn time(text: &str) -> Option<Timestamp> {
    text.parse::<Timestamp>().ok().filter(|time| *time > Timestamp::UNIX_EPOCH)
}
