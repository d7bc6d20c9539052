//! What does this machine look like as a Kubernetes Node?

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::env::{Capacity, POD_IP};
use crate::node::{MAX_PODS, Shared};
use crate::oci::Platform;

/// Where the Node says how its containers are isolated.
const ISOLATION_ANNOTATION: &str = "pawl.dev/isolation";
/// Where it says how their limits are kept.
const LIMITS_ANNOTATION: &str = "pawl.dev/limits";

/// What the machine has. What cannot be read counts as nothing.
pub(crate) fn capacity(data_dir: &Path) -> Capacity {
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next());
    let kib: u64 = total.and_then(|kib| kib.parse().ok()).unwrap_or(0);
    let disk = nix::sys::statvfs::statvfs(data_dir).map_or(0, |disk| disk.blocks() * disk.fragment_size());
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    Capacity { cpus: u32::try_from(cpus).unwrap_or(1), memory_bytes: kib * 1024, disk_bytes: disk }
}

fn labels(node: &str) -> BTreeMap<String, String> {
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    BTreeMap::from([
        label("kubernetes.io/hostname", node),
        label("kubernetes.io/os", "linux"),
        label("kubernetes.io/arch", &architecture()),
    ])
}

/// Writes the Node object, until it is written.
pub(crate) async fn register(shared: &Shared, retry: Duration) {
    while let Err(error) = write(shared).await {
        tracing::warn!(%error, "the Node object was not written; tried again");
        tokio::time::sleep(retry).await;
    }
}

async fn write(shared: &Shared) -> Result<(), kube::Error> {
    let api: Api<Node> = Api::all(shared.client.clone());
    let name = &shared.options.node_name;
    let metadata = json!({
        "name": name, "labels": labels(name), "annotations": {
            ISOLATION_ANNOTATION: shared.isolation.describe(), LIMITS_ANNOTATION: limits(shared),
        },
    });
    let found = match api.get_opt(name).await? {
        Some(node) => {
            let patch = json!({"metadata": metadata});
            api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(|_| Some(node))?
        }
        None => {
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata});
            let node: Node = serde_json::from_value(node).map_err(kube::Error::SerdeError)?;
            api.create(&PostParams::default(), &node).await.map(|_| None)?
        }
    };
    let status = json!({"status": status(shared, found.as_ref())});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await?;
    hold(shared).await
}

/// The node's Lease, for `kubectl describe`: held, and never renewed, because Pawl and its API server are one process
/// and nobody could miss its heartbeat.
async fn hold(shared: &Shared) -> Result<(), kube::Error> {
    let name = &shared.options.node_name;
    let api: Api<Lease> = Api::namespaced(shared.client.clone(), "kube-node-lease");
    let lease = Lease {
        metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
        spec: Some(LeaseSpec { holder_identity: Some(name.clone()), ..LeaseSpec::default() }),
    };
    match api.create(&PostParams::default(), &lease).await {
        // There already, or a server without that namespace: as good.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        made => made.map(drop),
    }
}

fn status(shared: &Shared, before: Option<&Node>) -> Value {
    let Capacity { cpus, memory_bytes, disk_bytes } = shared.capacity;
    let capacity = json!({
        "cpu": cpus.to_string(), "memory": format!("{}Ki", memory_bytes / 1024),
        "ephemeral-storage": format!("{}Ki", disk_bytes / 1024), "pods": MAX_PODS.to_string(),
    });
    let earlier = before.and_then(|node| node.status.as_ref()?.conditions.clone()).unwrap_or_default();
    let since = earlier.into_iter().find(|c| c.type_ == "Ready" && c.status == "True");
    let since = since.and_then(|c| c.last_transition_time).unwrap_or(Time(shared.now()));
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let release = read("/etc/os-release");
    let image = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("Linux");
    let version = format!("v{}-pawl", env!("CARGO_PKG_VERSION"));
    json!({
        "capacity": capacity,
        "allocatable": capacity,
        "addresses": [
            {"type": "InternalIP", "address": POD_IP},
            {"type": "Hostname", "address": shared.options.node_name},
        ],
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "KubeletReady",
            "message": format!(
                "pods run as {}; isolation: {}; limits: {}", run_as(shared), shared.isolation.describe(), limits(shared)
            ),
            "lastTransitionTime": since, "lastHeartbeatTime": Time(shared.now()),
        }],
        "nodeInfo": {
            "architecture": architecture(), "operatingSystem": "linux",
            "kernelVersion": read("/proc/sys/kernel/osrelease"), "osImage": image.trim_matches('"'),
            "machineID": read("/etc/machine-id"), "systemUUID": "", "bootID": read("/proc/sys/kernel/random/boot_id"),
            "containerRuntimeVersion": match &shared.engine {
                Some(engine) => format!("{}://{}", engine.kind(), engine.version()),
                None => format!("pawl://{}", env!("CARGO_PKG_VERSION")),
            },
            "kubeletVersion": version, "kubeProxyVersion": "",
        },
    })
}

/// What a container is here.
pub(crate) fn run_as(shared: &Shared) -> String {
    match &shared.engine {
        Some(engine) => format!(
            "containers of {} {} at {}, which isolates and limits them; those of Pawl's own image as local processes",
            engine.kind(),
            engine.version(),
            engine.socket().display()
        ),
        None => "local processes".to_owned(),
    }
}

/// How limits are kept here, in one sentence.
pub(crate) fn limits(shared: &Shared) -> String {
    match &shared.cgroups {
        Ok(_) => "cpu, memory and processes of each container, by cgroup v2".to_owned(),
        Err(why) => format!("memory of each process alone, no cpu ({why})"),
    }
}

/// As Go names it, which is what Kubernetes uses.
fn architecture() -> String {
    Platform::here().architecture
}
