//! Which pods are this machine's, and who takes care of each?
//!
//! One real Node object; a list and watch of all pods; a task per pod ([`crate::worker`]). Pods whose controller is a
//! ReplicaSet, StatefulSet or DaemonSet are said to run, without a process, unless told otherwise; all others run.
//!
//! The node's Lease is never renewed: Pawl and its API server are one process, so nobody could miss its heartbeat, and a
//! steady state makes no writes (I12).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cgroup::Cgroups;
use crate::docker::{self, Engine, Leftovers};
use crate::env::Capacity;
use crate::events::{Note, Recorder};
use crate::images::Images;
use crate::isolate::Isolation;
use crate::logs::Logs;
use crate::machine;
use crate::options::Options;
use crate::process::Spawner;
use crate::records::{self, Records};
use crate::rootfs::Cache;
use crate::schedule::{Terms, Waits};
use crate::sources::ClaimStore;
use crate::status;
use crate::view;
use crate::worker::{self, Latest, Work, remove_dir};

/// So many pods run at once; more wait. A kubelet's default.
pub const MAX_PODS: usize = 110;

/// Longest hostname that Linux takes.
const MAX_HOSTNAME_BYTES: usize = 63;

/// What programs are found by where a pod says nothing: what container runtimes set.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Beyond the grace, for the last statuses to be written.
const SHUTDOWN_SLACK: Duration = Duration::from_secs(5);

/// Where a server does not answer yet, it is asked again after this (it starts beside us).
const REGISTER_RETRY: Duration = Duration::from_millis(250);

/// Why a runner cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the runner's directory {path}: {source}")]
    Directory { path: PathBuf, source: io::Error },
    #[error("the executable for containers, {path}: {source}")]
    Executable { path: PathBuf, source: io::Error },
    #[error("the containers that {engine} has: {source}")]
    Engine { engine: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    /// Beside them, their pods would run a second time.
    #[error(
        "containers that were started with --runner docker may still run ({}): start with it once more, so that they are \
         brought to their end", names.join(", ")
    )]
    LeftToAnEngine { names: Vec<String> },
}

/// The node.
pub struct Runner {
    client: Client,
    options: Options,
    logs: Logs,
}

/// What all pods share.
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) options: Options,
    pub(crate) logs: Logs,
    pub(crate) spawner: Spawner,
    pub(crate) recorder: Recorder,
    pub(crate) isolation: Isolation,
    pub(crate) images: Arc<Images>,
    /// What runs images other than our own.
    pub(crate) engine: Option<Engine>,
    /// What it ran when this life began.
    pub(crate) leftovers: Leftovers,
    /// Where limits of whole containers are kept; else why they are not.
    pub(crate) cgroups: Result<Cgroups, String>,
    pub(crate) claims: ClaimStore,
    pub(crate) capacity: Capacity,
    pub(crate) shutdown: watch::Receiver<bool>,
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn now(&self) -> Timestamp {
        (self.options.clock)()
    }

    pub(crate) fn home(&self, uid: &str) -> PathBuf {
        self.options.data_dir.join("pods").join(uid)
    }

    /// What a container runtime puts into every environment.
    pub(crate) fn runtime_env(&self, pod: &Pod) -> Vec<(String, String)> {
        vec![
            ("PATH".to_owned(), DEFAULT_PATH.to_owned()),
            ("HOSTNAME".to_owned(), hostname(pod)),
            ("HOME".to_owned(), "/root".to_owned()),
        ]
    }

    /// What Kubernetes puts into every environment.
    pub(crate) fn service_env(&self) -> Vec<(String, String)> {
        let Some((host, port)) = &self.options.service else { return Vec::new() };
        vec![
            ("KUBERNETES_SERVICE_HOST".to_owned(), host.clone()),
            ("KUBERNETES_SERVICE_PORT".to_owned(), port.to_string()),
            ("KUBERNETES_SERVICE_PORT_HTTPS".to_owned(), port.to_string()),
        ]
    }
}

impl Runner {
    pub fn new(client: Client, options: Options) -> Self {
        let logs = Logs::new(options.data_dir.join("logs"));
        Self { client, options, logs }
    }

    /// The logs of all containers, for whoever serves `pods/log`.
    pub fn logs(&self) -> Logs {
        self.logs.clone()
    }

    /// Runs until `shutdown`, then stops all containers.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
        let (stop, stopped) = watch::channel(false);
        let shared = Arc::new(self.prepare(stopped).await?);
        let mut shutdown = std::pin::pin!(shutdown);
        let register = machine::register(&shared, REGISTER_RETRY);
        tokio::select! {
            () = register => {}
            () = &mut shutdown => return Ok(()),
        }
        let api: Api<Pod> = Api::all(shared.client.clone());
        let mut events = watcher::watcher(api, watcher::Config::default()).default_backoff().boxed();
        let api: Api<core::v1::Node> = Api::all(shared.client.clone());
        let mut node = Node::new(shared.clone());
        // Before the first pod: a node that was cordoned stays so.
        if let Ok(found) = api.get(&shared.options.node_name).await {
            node.terms = Terms::of(&found);
        }
        let mut terms = watcher::watch_object(api, &shared.options.node_name).default_backoff().boxed();
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                event = events.next() => match event {
                    Some(Ok(event)) => node.event(event).await,
                    Some(Err(error)) => tracing::warn!(%error, "watching pods failed; tried again"),
                    // A watcher does not end; if it did, there would be nothing to do but stop.
                    None => break,
                },
                Some(found) = terms.next() => match found {
                    Ok(found) => node.settle_terms(found.as_ref()).await,
                    Err(error) => tracing::warn!(%error, "watching the Node failed; tried again"),
                },
                Some(done) = node.tasks.join_next_with_id() => node.task_done(done).await,
            }
        }
        // Nobody listening: no task is left.
        let _ = stop.send(true);
        let grace = Duration::try_from(shared.options.shutdown_grace).unwrap_or_default() + SHUTDOWN_SLACK;
        let ended =
            tokio::time::timeout(grace, async { while node.tasks.join_next().await.is_some() {} }).await;
        if ended.is_err() {
            tracing::warn!("some containers did not end in time; they are killed");
        }
        if let Ok(cgroups) = &shared.cgroups {
            cgroups.close();
        }
        Ok(())
    }

    async fn prepare(self, shutdown: watch::Receiver<bool>) -> Result<Shared, Error> {
        let Self { client, mut options, logs } = self;
        for part in ["pods", "logs", "claims", "rootfs"] {
            let path = options.data_dir.join(part);
            // Volumes hold Secrets, logs may: nobody else's business.
            let made = std::fs::create_dir_all(&path)
                .and_then(|()| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)));
            made.map_err(|source| Error::Directory { path, source })?;
        }
        let named = options.own_executable.clone();
        let executable = |source| Error::Executable { path: named.clone(), source };
        options.own_executable = options.own_executable.canonicalize().map_err(executable)?;
        let directory = options.data_dir.clone();
        let unusable = |source| Error::Directory { path: directory.clone(), source };
        options.data_dir = options.data_dir.canonicalize().map_err(unusable)?;
        let (program, arguments) = (options.own_executable.clone(), options.container_arguments.clone());
        let mut isolation = match options.isolation {
            Some(isolation) => isolation,
            None => {
                let scratch = options.data_dir.join("probe");
                remove_dir(&scratch).and_then(|()| std::fs::create_dir(&scratch)).map_err(unusable)?;
                let found = Isolation::detect(&program, &arguments, &scratch).await.map_err(executable)?;
                remove_dir(&scratch).map_err(unusable)?;
                found
            }
        };
        isolation.no_network = !options.network && (isolation.user || isolation.mount);
        let cache = Cache::open(options.data_dir.join("rootfs")).map_err(unusable)?;
        let own = if isolation.mount { view::OWN_EXECUTABLE.into() } else { options.own_executable.clone() };
        let spawner = Spawner::new(program, arguments).map_err(executable)?;
        let (engine, leftovers) = take_engine(&mut options).await?;
        let shared = Shared {
            spawner,
            recorder: Recorder::new(client.clone(), options.node_name.clone()),
            images: Arc::new(Images {
                own_names: options.own_images.clone(),
                executable: own,
                directory: options.images.clone(),
                cache,
                usable: isolation.user && isolation.mount,
            }),
            engine,
            leftovers,
            cgroups: Cgroups::open(&options.data_dir),
            claims: ClaimStore {
                directory: options.data_dir.join("claims"),
                given: options.directories.clone(),
            },
            capacity: machine::capacity(&options.data_dir),
            client,
            options,
            logs,
            isolation,
            shutdown,
        };
        tracing::info!(
            isolation = isolation.describe(),
            limits = machine::limits(&shared),
            "containers are isolated and limited by what this machine allows"
        );
        Ok(shared)
    }
}

/// The watch's side of the runner: who is there, and which task has whom.
struct Node {
    /// The first to be dropped: a runner that ends without a word, as in a crash, must not look like a shutdown to its tasks,
    /// which would stop what an engine is to go on with.
    tasks: JoinSet<()>,
    shared: Arc<Shared>,
    terms: Terms,
    pods: BTreeMap<String, Held>,
    /// Seen since the list began.
    listed: BTreeSet<String>,
    /// Whose task is which.
    owners: HashMap<tokio::task::Id, String>,
    swept: bool,
}

/// A pod and its task.
struct Held {
    latest: watch::Sender<Latest>,
    stage: Stage,
}

/// How far a pod is with us. What the watch shows may lag behind: a pod that is over must not look like one that
/// has yet to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Busy(Work),
    /// It had its run.
    Over,
    /// It was taken off the API, as far as we can.
    Released,
}

impl Node {
    fn new(shared: Arc<Shared>) -> Self {
        // First of all: nothing of an earlier life may run beside this one.
        for uid in records::names(&shared.options.data_dir.join("pods")) {
            let killed = Records { directory: shared.home(&uid).join("records") }.kill_leftovers();
            if killed > 0 {
                tracing::warn!(pod = uid, killed, "processes left by an earlier life were killed");
            }
        }
        Self {
            shared,
            terms: Terms::default(),
            pods: BTreeMap::new(),
            listed: BTreeSet::new(),
            tasks: JoinSet::new(),
            owners: HashMap::new(),
            swept: false,
        }
    }

    async fn event(&mut self, event: Event<Pod>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(pod) => {
                self.listed.extend(pod.uid());
                self.settle(pod).await;
            }
            Event::Apply(pod) => self.settle(pod).await,
            Event::Delete(pod) => self.gone(&pod.uid().unwrap_or_default()),
            Event::InitDone => {
                let absent: Vec<String> =
                    self.pods.keys().filter(|uid| !self.listed.contains(*uid)).cloned().collect();
                absent.iter().for_each(|uid| self.gone(uid));
                if !std::mem::replace(&mut self.swept, true) {
                    self.sweep().await;
                }
            }
        }
    }

    /// Takes in what people say about the node; pods that waited may go.
    async fn settle_terms(&mut self, node: Option<&core::v1::Node>) {
        let terms = node.map(Terms::of).unwrap_or_default();
        if terms != self.terms {
            self.terms = terms;
            self.again().await;
        }
    }

    /// Takes in a pod's newest state, and gives it to a task if it needs one.
    async fn settle(&mut self, pod: Pod) {
        let Some(uid) = pod.uid() else { return };
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        if node.is_some_and(|node| node != self.shared.options.node_name) {
            return;
        }
        let latest = Latest { pod, gone: false };
        match self.pods.get(&uid) {
            Some(held) => drop(held.latest.send_replace(latest)),
            None => {
                let held = Held { latest: watch::Sender::new(latest), stage: Stage::Idle };
                self.pods.insert(uid.clone(), held);
            }
        }
        self.start(&uid).await;
    }

    /// Starts a task for a pod, if it needs one and has none.
    async fn start(&mut self, uid: &str) {
        let running = self.pods.values().filter(|held| held.stage == Stage::Busy(Work::Run)).count();
        let Some(held) = self.pods.get_mut(uid) else { return };
        let latest = held.latest.borrow().clone();
        let Some(work) = work(&latest.pod, self.shared.options.run_workloads).filter(|_| !latest.gone) else {
            return;
        };
        let allowed = match held.stage {
            Stage::Idle => true,
            Stage::Over => work == Work::Release,
            Stage::Busy(_) | Stage::Released => false,
        };
        if !allowed {
            return;
        }
        let bound = latest.pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        if !bound {
            let full = work == Work::Run && running >= MAX_PODS;
            if let Some(waits) = self.terms.against(&latest.pod, full) {
                return self.hold_back(&latest.pod, &waits).await;
            }
        }
        held.stage = Stage::Busy(work);
        let task = self.tasks.spawn(worker::run(self.shared.clone(), work, held.latest.subscribe()));
        self.owners.insert(task.id(), uid.to_owned());
    }

    fn gone(&mut self, uid: &str) {
        let Some(held) = self.pods.get_mut(uid) else { return };
        held.latest.send_modify(|latest| latest.gone = true);
        if !matches!(held.stage, Stage::Busy(_)) {
            self.pods.remove(uid);
            self.forget(uid);
        }
    }

    async fn task_done(&mut self, done: Result<(tokio::task::Id, ()), tokio::task::JoinError>) {
        let id = match &done {
            Ok((id, ())) => *id,
            Err(error) => error.id(),
        };
        let Some(uid) = self.owners.remove(&id) else { return };
        let Some(held) = self.pods.get_mut(&uid) else { return };
        let stage = match (done, held.stage) {
            (Ok(_), Stage::Busy(Work::Release)) => Stage::Released,
            (Ok(_), _) => Stage::Over,
            (Err(error), _) => {
                // A defect in one pod's task must not stop the others. What it ran ended with it, and is on record
                // as lost; the pod is taken up again when it changes or another's task ends.
                tracing::error!(%error, pod = uid, "a pod's task broke");
                held.stage = Stage::Idle;
                return;
            }
        };
        held.stage = stage;
        if held.latest.borrow().gone {
            self.pods.remove(&uid);
            self.forget(&uid);
        }
        self.again().await;
    }

    /// A task ended: its pod may have changed meanwhile, and one that waited for room may go.
    async fn again(&mut self) {
        let open = |held: &Held| matches!(held.stage, Stage::Idle | Stage::Over);
        let uids: Vec<String> =
            self.pods.iter().filter(|(_, held)| open(held)).map(|(uid, _)| uid.clone()).collect();
        for uid in uids {
            self.start(&uid).await;
        }
    }

    fn forget(&self, uid: &str) {
        let (home, logs, uid) = (self.shared.home(uid), self.shared.logs.clone(), uid.to_owned());
        // Not waited for: a directory may be large, and nobody needs its end.
        tokio::task::spawn_blocking(move || {
            if let Err(error) = remove_dir(&home).and_then(|()| logs.remove(&uid)) {
                tracing::warn!(%error, pod = uid, "a deleted pod's files are left behind");
            }
        });
    }

    /// Says on the pod why it does not start.
    async fn hold_back(&self, pod: &Pod, Waits { reason, message }: &Waits) {
        let before = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        let same = |c: &&k8s_openapi::api::core::v1::PodCondition| c.type_ == "PodScheduled";
        let now = before.iter().find(same);
        if now.is_some_and(|c| c.reason.as_deref() == Some(*reason) && c.message.as_deref() == Some(message))
        {
            return;
        }
        let mut conditions: Vec<_> = before.iter().filter(|c| !same(c)).map(|c| json!(c)).collect();
        let at = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(self.shared.now());
        conditions
            .push(json!({"type": "PodScheduled", "status": "False", "reason": reason, "message": message,
            "lastTransitionTime": at}));
        let patch =
            json!({"metadata": {"uid": pod.uid()}, "status": {"phase": "Pending", "conditions": conditions}});
        let api: Api<Pod> = Api::namespaced(self.shared.client.clone(), &pod.namespace().unwrap_or_default());
        let written = api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await;
        if let Err(error) = written {
            tracing::warn!(%error, pod = pod.name_any(), "a pod that must wait was not told");
        }
        let note = Note::warning("FailedScheduling", message.clone());
        self.shared.recorder.note(pod, &note, self.shared.now()).await;
    }

    /// Once, after the first list: what belongs to nobody is removed.
    async fn sweep(&self) {
        let data = &self.shared.options.data_dir;
        for uid in records::names(&data.join("pods")).into_iter().chain(records::names(&data.join("logs"))) {
            if !self.listed.contains(&uid) {
                self.forget(&uid);
            }
        }
        // A pod that is over has its result: what of it still runs is nobody's.
        let over =
            |uid: &str| self.pods.get(uid).is_none_or(|held| status::is_terminal(&held.latest.borrow().pod));
        for (engine, left) in self.shared.engine.iter().cycle().zip(self.shared.leftovers.take_where(over)) {
            let engine = engine.clone();
            tokio::spawn(async move {
                if let Err(error) = engine.remove(&left.id).await {
                    tracing::warn!(%error, pod = left.pod_uid, "a container of no pod is left with the engine");
                }
            });
        }
        // Directories first: one that is made after the list belongs to a claim that the list does not know.
        let directories = records::names(&self.shared.claims.directory);
        let api: Api<PersistentVolumeClaim> = Api::all(self.shared.client.clone());
        let Ok(claims) = api.list(&ListParams::default()).await else { return };
        let known: BTreeSet<String> = claims.items.iter().filter_map(ResourceExt::uid).collect();
        for uid in directories.into_iter().filter(|uid| !known.contains(uid)) {
            let path = self.shared.claims.directory.join(uid);
            tokio::task::spawn_blocking(move || {
                let _ = remove_dir(&path);
            });
        }
    }
}

/// The engine, with what an earlier life left with it. Without one, nothing must have been left.
async fn take_engine(options: &mut Options) -> Result<(Option<Engine>, Leftovers), Error> {
    let Some(engine) = options.engine.take() else {
        let pods = options.data_dir.join("pods");
        let of = |uid: String| Records { directory: pods.join(uid).join("records") }.left_to_an_engine();
        let names: Vec<String> = records::names(&pods).into_iter().flat_map(of).collect();
        return if names.is_empty() {
            Ok((None, Leftovers::default()))
        } else {
            Err(Error::LeftToAnEngine { names })
        };
    };
    let number = docker::node_number(&options.data_dir);
    let number = number.map_err(|source| Error::Directory { path: options.data_dir.clone(), source })?;
    let engine = engine.of_node(&number);
    let leftovers = Leftovers::of(&engine).await;
    let leftovers =
        leftovers.map_err(|source| Error::Engine { engine: engine.kind(), source: source.into() })?;
    Ok((Some(engine), leftovers))
}

/// What a pod's containers call their machine.
pub(crate) fn hostname(pod: &Pod) -> String {
    let own = pod.spec.as_ref().and_then(|spec| spec.hostname.clone());
    let name = own.filter(|name| !name.is_empty()).unwrap_or_else(|| pod.name_any());
    // As a kubelet cuts it: a name that ends with a dash or a dot is none.
    let cut = name.get(..name.floor_char_boundary(MAX_HOSTNAME_BYTES)).unwrap_or_default();
    cut.trim_end_matches(['-', '.']).to_owned()
}

/// What a pod needs; `None`: nothing.
fn work(pod: &Pod, run_workloads: bool) -> Option<Work> {
    let deleting = pod.metadata.deletion_timestamp.is_some();
    let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    if status::is_terminal(pod) {
        // Without grace it goes by itself, once nothing else holds it.
        let held = pod.metadata.deletion_grace_period_seconds.is_some_and(|grace| grace > 0);
        return (deleting && held).then_some(Work::Release);
    }
    if deleting && !bound {
        return None;
    }
    let controller = pod.owner_references().iter().find(|owner| owner.controller == Some(true));
    let pretended =
        matches!(controller.map(|c| c.kind.as_str()), Some("ReplicaSet" | "StatefulSet" | "DaemonSet"));
    Some(if pretended && !run_workloads { Work::Pretend } else { Work::Run })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(value: serde_json::Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn each_pod_gets_the_work_it_needs() {
        let owner = |kind: &str| json!([{"apiVersion": "v1", "kind": kind, "name": "o", "uid": "o", "controller": true}]);
        let deleted = "2026-11-15T20:00:00Z";
        let table = [
            (json!({"metadata": {}, "spec": {"containers": []}}), Some(Work::Run)),
            (json!({"metadata": {"ownerReferences": owner("Job")}}), Some(Work::Run)),
            (json!({"metadata": {"ownerReferences": owner("TaskRun")}}), Some(Work::Run)),
            (json!({"metadata": {"ownerReferences": owner("ReplicaSet")}}), Some(Work::Pretend)),
            (json!({"metadata": {"ownerReferences": owner("StatefulSet")}}), Some(Work::Pretend)),
            (json!({"metadata": {}, "status": {"phase": "Succeeded"}}), None),
            (
                json!({"metadata": {"deletionTimestamp": deleted, "deletionGracePeriodSeconds": 30}, "status": {"phase": "Failed"}}),
                Some(Work::Release),
            ),
            (
                json!({"metadata": {"deletionTimestamp": deleted, "deletionGracePeriodSeconds": 0}, "status": {"phase": "Failed"}}),
                None,
            ),
            (json!({"metadata": {"deletionTimestamp": deleted}}), None),
            (
                json!({"metadata": {"deletionTimestamp": deleted}, "spec": {"nodeName": "n", "containers": []}}),
                Some(Work::Run),
            ),
        ];
        for (given, expect) in table {
            assert_eq!(work(&pod(given.clone()), false), expect, "{given}");
        }
        let replica = pod(json!({"metadata": {"ownerReferences": owner("ReplicaSet")}}));
        assert_eq!(work(&replica, true), Some(Work::Run));
    }

    #[test]
    fn a_pod_may_name_its_host_and_a_long_name_is_cut() {
        assert_eq!(hostname(&pod(json!({"metadata": {"name": "p"}, "spec": {"containers": []}}))), "p");
        let own = json!({"metadata": {"name": "p"}, "spec": {"containers": [], "hostname": "job-0"}});
        assert_eq!(hostname(&pod(own)), "job-0");
        let long = format!("{}-{}", "a".repeat(62), "b".repeat(9));
        assert_eq!(hostname(&pod(json!({"metadata": {"name": long}}))), "a".repeat(62));
    }
}
