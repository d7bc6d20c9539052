//! How is one pod brought through its life?
//!
//! A task per pod: it looks, asks [`Life`] what is next, does it, writes the status if it changed, and sleeps until
//! the pod changes, a container ends, or a time comes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::docker;
use crate::events::Note;
use crate::life::{Life, State, Step, StopReason};
use crate::node::Shared;
use crate::plan::Launch;
use crate::process;
use crate::records::{Record, Records};
use crate::status;

mod contain;
mod ended;
mod pull;
mod start;
mod words;

pub(crate) use ended::End;
use ended::Ended;
use pull::Pulls;
pub(crate) use words::MAX_MESSAGE_BYTES;

/// A pod that is gone from the API is stopped with this grace, as a kubelet does after a forced deletion.
const GONE_GRACE: SignedDuration = SignedDuration::from_secs(1);
/// Retries of writes start here and double (I9).
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(300);

/// The newest that is known of a pod.
#[derive(Clone, Debug)]
pub(crate) struct Latest {
    pub(crate) pod: Pod,
    /// Deleted from the API.
    pub(crate) gone: bool,
}

/// What to do with a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Run,
    /// Said to run, without a process.
    Pretend,
    /// Over, and to be deleted.
    Release,
}

/// Brings a pod through its life; returns when there is nothing left to do for it.
pub(crate) async fn run(shared: Arc<Shared>, work: Work, updates: watch::Receiver<Latest>) {
    let mut worker = Worker::new(shared, updates);
    match work {
        Work::Run => worker.live().await,
        Work::Pretend => worker.pretend().await,
        Work::Release => worker.release().await,
    }
}

struct Worker {
    shared: Arc<Shared>,
    updates: watch::Receiver<Latest>,
    shutdown: watch::Receiver<bool>,
    api: Api<Pod>,
    pod: Pod,
    uid: String,
    records: Records,
    life: Life,
    running: BTreeMap<usize, Running>,
    /// Each waits for the end of one container. A process ends when its wait is dropped, with this worker; an engine's
    /// container is taken up again.
    waits: JoinSet<Ended>,
    pulls: Pulls,
    /// Containers that an engine is to forget.
    removals: JoinSet<()>,
    /// What the pod was told once already.
    told: BTreeSet<&'static str>,
    /// The status as it was written last.
    written: Option<(PodStatus, Value)>,
}

/// A container that runs: what must be known of it until it ends.
struct Running {
    control: Control,
    stop_signal: Option<String>,
    fallback_to_logs: bool,
    /// To be masked in captured output (I6); `None`: what they are is no longer known.
    secrets: Option<Vec<String>>,
}

/// Who passes signals on: the seam between the two ways to run a container.
enum Control {
    Process(process::Handle),
    Engine(docker::Handle),
}

impl Running {
    fn of(control: Control, launch: Launch) -> Self {
        let Launch { stop_signal, fallback_to_logs, secrets, .. } = launch;
        Self { control, stop_signal, fallback_to_logs, secrets: Some(secrets) }
    }
}

impl Control {
    fn signal(&self, signal: Signal) {
        match self {
            Self::Process(handle) => handle.signal(signal),
            Self::Engine(handle) => handle.signal(signal),
        }
    }
}

/// Whether the API still knows the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Yes,
    Gone,
}

impl Worker {
    fn new(shared: Arc<Shared>, mut updates: watch::Receiver<Latest>) -> Self {
        let pod = updates.borrow_and_update().pod.clone();
        let uid = pod.uid().unwrap_or_default();
        Self {
            api: Api::namespaced(shared.client.clone(), &pod.namespace().unwrap_or_default()),
            records: Records { directory: shared.home(&uid).join("records") },
            life: Life::new(&pod, shared.options.timing, shared.now()),
            running: BTreeMap::new(),
            waits: JoinSet::new(),
            pulls: Pulls::default(),
            removals: JoinSet::new(),
            told: BTreeSet::new(),
            shutdown: shared.shutdown.clone(),
            written: None,
            shared,
            updates,
            pod,
            uid,
        }
    }

    async fn live(&mut self) {
        self.records.restore(&self.pod, &mut self.life, self.shared.now());
        self.take_up().await;
        for container in self.life.containers.iter().filter(|c| self.will_run_again(c)) {
            self.shared.logs.run_is_over(&self.uid, &container.name);
        }
        if self.bind().await == Known::Gone {
            return;
        }
        loop {
            self.observe().await;
            let next = self.life.next(self.shared.now());
            self.carry_out(&next.steps).await;
            self.write_status().await;
            if next.finished {
                break;
            }
            // A start may have failed at once, or let the next container begin.
            if !next.steps.iter().any(|step| matches!(step, Step::Start(_))) {
                self.sleep(next.wake).await;
            }
        }
        self.clean_up().await;
        if !*self.shutdown.borrow() {
            self.release().await;
        }
    }

    /// Marks a pod running, and waits for its deletion.
    async fn pretend(&mut self) {
        if self.bind().await == Known::Gone {
            return;
        }
        let status = status::pretended(&self.pod, self.shared.now());
        self.patch_status(&status).await;
        loop {
            let latest = self.updates.borrow_and_update().clone();
            self.pod = latest.pod;
            if latest.gone || self.pod.metadata.deletion_timestamp.is_some() {
                return self.release().await;
            }
            tokio::select! {
                () = changed(&mut self.updates) => {}
                () = changed(&mut self.shutdown) => return,
            }
        }
    }

    /// Takes the pod off the API if it is to be deleted: nothing of it runs any more.
    async fn release(&mut self) {
        let latest = self.updates.borrow_and_update().clone();
        if latest.gone || latest.pod.metadata.deletion_timestamp.is_none() {
            return;
        }
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: Some(self.uid.clone()), resource_version: None }),
            ..DeleteParams::default()
        };
        let (api, name) = (self.api.clone(), self.pod.name_any());
        self.insist("deleting the pod", || async { api.delete(&name, &params).await.map(drop) }).await;
    }

    /// Takes in what changed around the pod.
    async fn observe(&mut self) {
        let latest = self.updates.borrow_and_update().clone();
        let now = self.shared.now();
        self.pod = latest.pod;
        let stop_in = |grace: SignedDuration| now.checked_add(grace).unwrap_or(now);
        let before = self.life.stop.is_some();
        if latest.gone {
            self.life.stop(StopReason::Deleted, stop_in(GONE_GRACE));
        } else if self.pod.metadata.deletion_timestamp.is_some() {
            // Counted from here: the timestamp's whole seconds would take up to one away. A later look, at a grace
            // that was not shortened, changes nothing.
            let grace = self.pod.metadata.deletion_grace_period_seconds.map(SignedDuration::from_secs);
            self.life.stop(StopReason::Deleted, stop_in(grace.unwrap_or(self.life.grace)));
        }
        if self.life.deadline.is_some_and(|deadline| now >= deadline) && !self.life.decided() {
            self.life.stop(StopReason::Deadline, stop_in(self.life.grace));
        }
        if *self.shutdown.borrow_and_update() {
            let grace = self.life.grace.min(self.shared.options.shutdown_grace);
            self.life.stop(StopReason::Shutdown, stop_in(grace));
        }
        self.life.settle(now);
        let begun = self.life.stop.filter(|_| !before);
        if begun.is_some_and(|stop| stop.reason == StopReason::Deadline) {
            let message = "Pod was active on the node longer than the specified deadline";
            self.note(Note::normal("DeadlineExceeded", message)).await;
        }
    }

    async fn carry_out(&mut self, steps: &[Step]) {
        for step in steps {
            match *step {
                Step::Start(index) => self.start(index).await,
                Step::Terminate(index) => {
                    self.tell_of_stop(index).await;
                    self.signal(index, self.stop_signal(index));
                }
                Step::Kill(index) => self.signal(index, Signal::SIGKILL),
            }
        }
        self.life.stop_carried_out(steps);
    }

    fn signal(&self, index: usize, signal: Signal) {
        if let Some(running) = self.running.get(&index) {
            running.control.signal(signal);
        }
    }

    /// How a container is asked to stop: as its image says, if that means anything here.
    fn stop_signal(&self, index: usize) -> Signal {
        let named = self.running.get(&index).and_then(|running| running.stop_signal.as_deref());
        named.and_then(signal_named).unwrap_or(Signal::SIGTERM)
    }

    async fn tell_of_stop(&self, index: usize) {
        let Some(container) = self.container(index) else { return };
        let name = &container.name;
        self.note(Note::normal("Killing", format!("Stopping container {name}"))).await;
        if container.lifecycle.as_ref().is_some_and(|hooks| hooks.pre_stop.is_some()) {
            let message = format!("Container {name} has a preStop hook, which is not run here");
            self.note(Note::warning("PreStopSkipped", message)).await;
        }
    }

    /// Sleeps until something happens.
    async fn sleep(&mut self, wake: Option<Timestamp>) {
        let now = self.shared.now();
        let wait = wake.map(|wake| Duration::try_from(wake.duration_since(now)).unwrap_or_default());
        tokio::select! {
            Some(Ok(ended)) = self.waits.join_next() => self.container_ended(ended).await,
            Some(pulled) = self.pulls.next() => self.pull_ended(pulled).await,
            () = changed(&mut self.updates) => {}
            () = changed(&mut self.shutdown) => {}
            () = async { tokio::time::sleep(wait.unwrap_or_default()).await }, if wait.is_some() => {}
        }
    }

    async fn bind(&mut self) -> Known {
        if self.pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
            return Known::Yes;
        }
        let node = self.shared.options.node_name.clone();
        let (api, name) = (self.api.clone(), self.pod.name_any());
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "uid": self.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let patch = json!({"metadata": {"uid": self.uid}, "spec": {"nodeName": node}});
        let known = self.insist("binding the pod", || async {
            let bound: Result<Value, _> =
                api.create_subresource("binding", &name, &PostParams::default(), &binding).await;
            match bound {
                // Not every server of this API serves bindings; then the field itself is set.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 405) => {
                    api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop)
                }
                bound => bound.map(drop),
            }
        });
        let known = known.await;
        if known == Known::Yes {
            if let Some(spec) = &mut self.pod.spec {
                spec.node_name = Some(node.clone());
            }
            let namespace = self.pod.namespace().unwrap_or_default();
            let message = format!("Successfully assigned {namespace}/{name} to {node}");
            self.note(Note::normal("Scheduled", message)).await;
        }
        known
    }

    async fn write_status(&mut self) {
        if let Some((written, _)) = &self.written {
            // The watch may lag behind: of our own conditions, what we wrote is newer than what it shows.
            self.pod.status = Some(status::newer_conditions(self.pod.status.take(), written));
        }
        let status = status::status(&self.pod, &self.life, self.shared.now());
        self.patch_status(&status).await;
    }

    /// Writes a status, if it is not what was written last (I12).
    async fn patch_status(&mut self, status: &PodStatus) {
        if self.updates.borrow().gone {
            return;
        }
        // A merge patch keeps what it does not name; these two must go when they no longer hold.
        let mut value = serde_json::to_value(status).unwrap_or_default();
        for field in ["reason", "message"] {
            if let Some(map) = value.as_object_mut() {
                map.entry(field).or_insert(Value::Null);
            }
        }
        if self.written.as_ref().is_some_and(|(_, written)| *written == value) {
            return;
        }
        let patch = json!({"metadata": {"uid": self.uid}, "status": value});
        let (api, name) = (self.api.clone(), self.pod.name_any());
        let known = self.insist("writing the pod's status", || async {
            api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop)
        });
        known.await;
        self.written = Some((status.clone(), value));
    }

    /// Tries until it works, the pod is gone, or Pawl stops. What is permanent is said and given up.
    async fn insist<F: Future<Output = Result<(), kube::Error>>>(
        &self,
        what: &str,
        attempt: impl Fn() -> F,
    ) -> Known {
        let mut wait = RETRY_MIN;
        let mut shutdown = self.shutdown.clone();
        let mut updates = self.updates.clone();
        loop {
            let error = match attempt().await {
                Ok(()) => return Known::Yes,
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 410) => {
                    return Known::Gone;
                }
                Err(error) => error,
            };
            let permanent =
                matches!(&error, kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422));
            tracing::warn!(%error, permanent, pod = self.pod.name_any(), "{what} failed");
            if permanent || *shutdown.borrow() || updates.borrow().gone {
                return if updates.borrow().gone { Known::Gone } else { Known::Yes };
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = changed(&mut shutdown) => {}
                _ = updates.wait_for(|latest| latest.gone) => {}
            }
            wait = (wait * 2).min(RETRY_MAX);
        }
    }

    async fn note(&self, note: Note) {
        self.shared.recorder.note(&self.pod, &note, self.shared.now()).await;
    }

    /// Volumes and root views are of no use to a pod that is over; its logs and records are.
    async fn clean_up(&mut self) {
        while self.removals.join_next().await.is_some() {}
        let home = self.shared.home(&self.uid);
        let cleaned = tokio::task::spawn_blocking(move || {
            ["volumes", "roots", "messages"].iter().try_for_each(|part| remove_dir(&home.join(part)))
        });
        if let Err(error) = cleaned.await.map_err(io::Error::other).flatten() {
            tracing::warn!(%error, pod = self.pod.name_any(), "a finished pod's files are left behind");
        }
    }

    fn container(&self, index: usize) -> Option<&Container> {
        let spec = self.pod.spec.as_ref()?;
        spec.init_containers.iter().flatten().chain(&spec.containers).nth(index)
    }

    /// How often the container will have been restarted once it starts now.
    fn restarts(&self, index: usize) -> u32 {
        let Some(life) = self.life.containers.get(index) else { return 0 };
        let again = life.last.is_some() || matches!(life.state, State::Exited(_));
        life.restarts + u32::from(again)
    }

    fn id(&self, index: usize) -> String {
        let Some(life) = self.life.containers.get(index) else { return String::new() };
        let run = match life.state {
            State::Running { ref id, .. } => return id.clone(),
            State::Waiting { .. } | State::Exited(_) => self.restarts(index),
        };
        format!("pawl://{}-{}-{run}", self.uid, life.name)
    }

    /// What is known of a container that is about to start.
    fn record(&self, index: usize, id: String) -> Record {
        let life = self.life.containers.get(index);
        Record {
            id,
            image_id: life.map(|life| life.image_id.clone()).unwrap_or_default(),
            restarts: self.restarts(index),
            ends_in_row: life.map_or(0, |life| life.ends_in_row),
            started_at: self.shared.now(),
            process: None,
            container: None,
            exit: None,
        }
    }

    /// A container runs: its end is waited for.
    fn runs(&mut self, index: usize, running: Running, end: impl Future<Output = End> + Send + 'static) {
        self.running.insert(index, running);
        self.waits.spawn(async move { Ended { index, end: end.await } });
    }

    fn message_path(&self, name: &str) -> PathBuf {
        self.shared.home(&self.uid).join("messages").join(name)
    }
}

/// Waits for a change. A sender that is gone is no shutdown: the runner crashed and this task is about to be aborted, so it
/// must not stop a container that an engine goes on running.
async fn changed<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        std::future::pending().await
    }
}

pub(crate) fn remove_dir(path: &Path) -> io::Result<()> {
    let removed = match std::fs::remove_dir_all(path) {
        // Containers, and the kernel under a layer, leave directories that even their owner may not enter.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_up(path)?;
            std::fs::remove_dir_all(path)
        }
        removed => removed,
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Lets the owner into every directory below; nothing runs in them any more.
fn open_up(path: &Path) -> io::Result<()> {
    let mut left = vec![path.to_owned()];
    while let Some(directory) = left.pop() {
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700))?;
        for entry in std::fs::read_dir(&directory)? {
            let entry = entry?;
            // The type of the entry itself: a link to a directory is not one.
            if entry.file_type()?.is_dir() {
                left.push(entry.path());
            }
        }
    }
    Ok(())
}

/// `SIGQUIT`, `QUIT` or `3`, as images write it.
fn signal_named(name: &str) -> Option<Signal> {
    let number = name.parse::<i32>().ok().and_then(|number| Signal::try_from(number).ok());
    let full = || if name.starts_with("SIG") { name.to_owned() } else { format!("SIG{name}") };
    number.or_else(|| full().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_sender_that_is_gone_changes_nothing() {
        let (sender, mut receiver) = watch::channel(false);
        sender.send(true).unwrap();
        changed(&mut receiver).await;
        drop(sender);
        assert!(tokio::time::timeout(Duration::from_secs(3600), changed(&mut receiver)).await.is_err());
    }

    #[test]
    fn an_image_may_name_its_stop_signal_in_three_ways() {
        for name in ["SIGQUIT", "QUIT", "3"] {
            assert_eq!(signal_named(name), Some(Signal::SIGQUIT), "{name}");
        }
        for bad in ["", "SIGNONE", "99", "SIGRTMIN+3"] {
            assert_eq!(signal_named(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_a_container_locked_is_removed_all_the_same() {
        let home = tempfile::tempdir().unwrap();
        let locked = home.path().join("a/locked");
        std::fs::create_dir_all(locked.join("deep")).unwrap();
        std::os::unix::fs::symlink("/", locked.join("link")).unwrap();
        std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o000)).unwrap();
        open_up(&home.path().join("a")).unwrap();
        remove_dir(&home.path().join("a")).unwrap();
        assert!(!home.path().join("a").exists());
        remove_dir(&home.path().join("a")).unwrap();
    }
}
