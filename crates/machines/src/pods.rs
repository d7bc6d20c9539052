//! The containers of a run's Pods: how each ended, which one explains a failure, and which cannot start.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use crate::object::Object;

/// One container of one Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    pub pod: String,
    pub name: String,
    /// `None` while it has not ended.
    pub exit_code: Option<i32>,
    /// The kubelet's reason, such as `OOMKilled`.
    pub reason: String,
    pub duration: Option<SignedDuration>,
}

/// Every container of every Pod, the oldest Pod first.
pub fn containers(pods: &[Arc<Object>]) -> Vec<Container> {
    let mut pods: Vec<&Arc<Object>> = pods.iter().collect();
    pods.sort_by_key(|pod| (pod.meta().creation_timestamp.as_ref().map(|at| at.0), pod.name().to_owned()));
    let typed = pods.into_iter().filter_map(|pod| Some((pod.name().to_owned(), pod.parse::<Pod>().ok()?)));
    typed
        .flat_map(|(pod, typed)| {
            let containers: Vec<_> = statuses(&typed).map(|status| container(&pod, status)).collect();
            containers
        })
        .collect()
}

/// The container that explains a failure: the last one with an exit code other than 0.
pub fn failed_container(containers: &[Container]) -> Option<&Container> {
    containers.iter().rev().find(|container| container.exit_code.is_some_and(|code| code != 0))
}

/// Why a container cannot start, in the kubelet's words.
pub fn start_problem(pods: &[Arc<Object>]) -> Option<String> {
    const REASONS: [&str; 7] = [
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    ];
    pods.iter().filter(|pod| !pod.is_deleting()).find_map(|pod| {
        let typed = pod.parse::<Pod>().ok()?;
        statuses(&typed).find_map(|container| {
            let waiting = container.state.as_ref()?.waiting.as_ref()?;
            let reason = waiting.reason.as_deref().filter(|reason| REASONS.contains(reason))?;
            let message = waiting.message.as_deref().unwrap_or_default();
            Some(format!(
                "container {} of Pod {} cannot start: {reason}: {message}",
                container.name,
                pod.name()
            ))
        })
    })
}

fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.iter();
    status.flat_map(|status| {
        let init = status.init_container_statuses.iter().flatten();
        init.chain(status.container_statuses.iter().flatten())
    })
}

fn container(pod: &str, status: &ContainerStatus) -> Container {
    let state = status.state.clone().unwrap_or_default();
    let (mut exit_code, mut reason, mut duration) = (None, None, None);
    if let Some(ended) = state.terminated {
        exit_code = Some(ended.exit_code);
        reason = ended.reason;
        duration = between(ended.started_at.map(|at| at.0), ended.finished_at.map(|at| at.0));
    } else if let Some(waiting) = state.waiting {
        reason = waiting.reason;
    }
    let (pod, name) = (pod.to_owned(), status.name.clone());
    Container { pod, name, exit_code, reason: reason.unwrap_or_default(), duration }
}

fn between(start: Option<Timestamp>, end: Option<Timestamp>) -> Option<SignedDuration> {
    Some(end?.duration_since(start?))
}
