//! What does a Job, and what do its Pods, say about a run?

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use pawl_api::git::{WorkflowPhase, WorkflowStatus};
use pawl_api::meta::Reason;

use super::telling;
use crate::cluster::job::followed::Followed;
use crate::git::check_run::{Container, between};
use crate::object::Object;

/// Conditions first: a Job that failed once and tries again has not failed. It is over with `Complete` or `Failed`, as for
/// [`crate::held_run::is_finished`].
pub(super) fn phase_of(job: &Followed) -> (WorkflowPhase, Reason, String) {
    let status = job.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let holds = |type_: &str| conditions.iter().find(|one| one.type_ == type_ && one.status == "True");
    let told = |message: &Option<String>, otherwise: &str| {
        message.clone().filter(|text| !text.is_empty()).unwrap_or_else(|| otherwise.to_owned())
    };
    if let Some(found) = holds("Complete") {
        let message = told(&found.message, "the Job succeeded");
        return (WorkflowPhase::Succeeded, Reason::JobSucceeded, message);
    }
    if let Some(found) = holds("Failed") {
        let reason = match found.reason.as_deref() {
            Some("DeadlineExceeded") => Reason::JobDeadlineExceeded,
            _ => Reason::JobFailed,
        };
        return (WorkflowPhase::Failed, reason, told(&found.message, "the Job failed"));
    }
    // A result that is only announced: Pods of the Job may still act on the target.
    if let Some(found) = holds("FailureTarget").or_else(|| holds("SuccessCriteriaMet")) {
        let message = format!("the Job ends when its Pods are gone: {}", told(&found.message, &found.type_));
        return (WorkflowPhase::Running, Reason::Running, message);
    }
    if let Some(found) = holds("Suspended") {
        return (WorkflowPhase::Pending, Reason::Suspended, told(&found.message, "the Job is suspended"));
    }
    if status.active.unwrap_or_default() > 0 {
        return (WorkflowPhase::Running, Reason::Running, "the Job is running".to_owned());
    }
    (WorkflowPhase::Pending, Reason::Pending, "the Job has no running Pod".to_owned())
}

/// Whether a Job that was recorded and let go has not begun yet: as pending as before, and nothing to say of it.
pub(super) fn has_not_begun(job: &Followed, status: &WorkflowStatus) -> bool {
    let suspended = job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(true));
    let (phase, ..) = phase_of(job);
    phase == WorkflowPhase::Pending && !suspended && telling::reason(status) == Reason::JobCreated
}

/// What a kubelet says of a container that it cannot get to run.
pub(crate) fn cannot_start(pods: &[Arc<Object>]) -> Option<String> {
    const STUCK: [&str; 7] = [
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
            let reason = waiting.reason.as_deref().filter(|reason| STUCK.contains(reason))?;
            let message = waiting.message.as_deref().unwrap_or_default();
            Some(format!(
                "container {} of Pod {} cannot start: {reason}: {message}",
                container.name,
                pod.name()
            ))
        })
    })
}

/// Every container of every Pod, the oldest Pod first.
pub(crate) fn containers(pods: &[Arc<Object>]) -> Vec<Container> {
    let mut pods: Vec<&Arc<Object>> = pods.iter().collect();
    pods.sort_by_key(|pod| (pod.meta().creation_timestamp.as_ref().map(|at| at.0), pod.name().to_owned()));
    let told = pods.into_iter().filter_map(|pod| Some((pod.name().to_owned(), pod.parse::<Pod>().ok()?)));
    told.flat_map(|(pod, typed)| {
        let containers: Vec<_> = statuses(&typed).map(|status| container(&pod, status)).collect();
        containers
    })
    .collect()
}

/// The container whose end explains the failure: the last that ended badly.
pub(crate) fn culprit(containers: &[Container]) -> Option<&Container> {
    containers.iter().rev().find(|container| container.exit_code.is_some_and(|code| code != 0))
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
    let (mut exit_code, mut reason, mut took) = (None, None, None);
    if let Some(ended) = state.terminated {
        exit_code = Some(ended.exit_code);
        reason = ended.reason;
        took = between(ended.started_at.map(|at| at.0), ended.finished_at.map(|at| at.0));
    } else if let Some(waiting) = state.waiting {
        reason = waiting.reason;
    }
    let (pod, name) = (pod.to_owned(), status.name.clone());
    Container { pod, name, exit_code, reason: reason.unwrap_or_default(), took }
}
