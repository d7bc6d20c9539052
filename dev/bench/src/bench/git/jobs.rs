//! When does each Job end? As soon as it may run: here nothing runs, so that only the controllers are measured.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::TryStreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::watcher;
use serde_json::json;
use tokio::task::JoinHandle;

/// Who a Job's `managedBy` names, so that a cluster's own controller leaves it to us.
pub(super) const MANAGER: &str = "pawl.dev/bench";

/// Ends Jobs until it is dropped.
#[derive(Debug)]
pub(in crate::bench) struct Ender {
    ends: Arc<Mutex<Ends>>,
    watching: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Ends {
    /// When each Job was said to have ended, by the UID of whose it is.
    at: BTreeMap<String, Timestamp>,
    acknowledged: usize,
    problem: Option<String>,
}

impl Ender {
    pub(in crate::bench) fn start(client: kube::Client, namespace: &str) -> Self {
        let ends: Arc<Mutex<Ends>> = Arc::default();
        let watching = tokio::spawn(watch(Api::namespaced(client, namespace), Arc::clone(&ends)));
        Self { ends, watching }
    }

    /// How many have ended so far.
    pub(in crate::bench) fn ended(&self) -> usize {
        lock(&self.ends).acknowledged
    }

    pub(in crate::bench) fn all(&self) -> BTreeMap<String, Timestamp> {
        lock(&self.ends).at.clone()
    }

    /// What went wrong last, for a message.
    pub(in crate::bench) fn problem(&self) -> String {
        lock(&self.ends).problem.as_ref().map(|problem| format!("; {problem}")).unwrap_or_default()
    }
}

impl Drop for Ender {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

async fn watch(api: Api<Job>, ends: Arc<Mutex<Ends>>) {
    let mut events = std::pin::pin!(watcher(api.clone(), watcher::Config::default()));
    loop {
        let job = match events.try_next().await {
            Ok(Some(watcher::Event::Apply(job) | watcher::Event::InitApply(job))) => job,
            Ok(Some(_)) => continue,
            Ok(None) => return,
            Err(error) => {
                lock(&ends).problem = Some(format!("watch Jobs: {error}"));
                continue;
            }
        };
        let may_run = job.spec.as_ref().is_some_and(|spec| spec.suspend != Some(true));
        let owner = job.metadata.owner_references.as_deref().and_then(<[_]>::first);
        let (Some(uid), Some(name), true) =
            (owner.map(|owner| owner.uid.clone()), &job.metadata.name, may_run)
        else {
            continue;
        };
        // Counted from before the request: what the server takes is part of the way.
        let now = Timestamp::now();
        if lock(&ends).at.contains_key(&uid) {
            continue;
        }
        lock(&ends).at.insert(uid, now);
        let (api, name, ends) = (api.clone(), name.clone(), Arc::clone(&ends));
        tokio::spawn(async move {
            let ended = api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&complete(now))).await;
            let mut ends = lock(&ends);
            match ended {
                Ok(_) => ends.acknowledged += 1,
                Err(error) => ends.problem = Some(format!("end Job {name}: {error}")),
            }
        });
    }
}

/// The status of a Job whose one Pod has succeeded.
fn complete(now: Timestamp) -> serde_json::Value {
    let at = format!("{now:.0}");
    let condition = |word: &str| {
        json!({"type": word, "status": "True", "reason": "CompletionsReached", "lastTransitionTime": at,
            "lastProbeTime": at, "message": "Reached expected number of succeeded pods"})
    };
    json!({"status": {"startTime": at, "completionTime": at, "succeeded": 1, "ready": 0, "terminating": 0,
        "uncountedTerminatedPods": {}, "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]}})
}

fn lock(ends: &Mutex<Ends>) -> std::sync::MutexGuard<'_, Ends> {
    ends.lock().unwrap_or_else(PoisonError::into_inner)
}
