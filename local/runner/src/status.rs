//! What does a kubelet write about a pod in this state?
//!
//! Pure. The phase is computed as kubelet's `getPhase` does; conditions keep their transition time until their
//! status flips, and foreign conditions are kept (I12).

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    HostIP, Pod, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::env::POD_IP;
use crate::life::{ContainerLife, Exit, Life, Policy, Role, State, StopReason};

/// `status.phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    fn terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// The conditions that a kubelet keeps on every pod.
const OWN_CONDITIONS: &[&str] =
    &["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];

/// Whether a pod's phase says that it is over.
pub fn is_terminal(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// The status to write.
pub fn status(pod: &Pod, life: &Life, now: Timestamp) -> PodStatus {
    let phase = phase(life);
    let before = pod.status.clone().unwrap_or_default();
    let stopped = life.stop.as_ref().filter(|_| phase.terminal());
    let (reason, message) = match stopped.map(|stop| stop.reason) {
        Some(StopReason::Deadline) => {
            (Some("DeadlineExceeded"), Some("Pod was active on the node longer than the specified deadline"))
        }
        Some(StopReason::Shutdown) => {
            (Some("Terminated"), Some("Pod was terminated in response to imminent node shutdown."))
        }
        Some(StopReason::Deleted | StopReason::Completed) | None => (None, None),
    };
    let statuses = |roles: &[Role]| {
        let of = life.containers.iter().filter(|c| roles.contains(&c.role));
        of.map(|c| container_status(pod, life, c)).collect::<Vec<_>>()
    };
    let init = statuses(&[Role::Init, Role::Sidecar]);
    PodStatus {
        conditions: Some(conditions(pod, life, phase, &before.conditions.unwrap_or_default(), now)),
        container_statuses: Some(statuses(&[Role::Main])),
        init_container_statuses: (!init.is_empty()).then_some(init),
        host_ip: Some(POD_IP.to_owned()),
        host_ips: Some(vec![HostIP { ip: POD_IP.to_owned() }]),
        pod_ip: Some(POD_IP.to_owned()),
        pod_ips: Some(vec![PodIP { ip: POD_IP.to_owned() }]),
        phase: Some(phase.as_str().to_owned()),
        reason: reason.map(str::to_owned),
        message: message.map(str::to_owned),
        start_time: Some(Time(life.start_time)),
        observed_generation: pod.metadata.generation,
        qos_class: before.qos_class,
        ..PodStatus::default()
    }
}

/// The phase, as kubelet's `getPhase` finds it.
pub fn phase(life: &Life) -> Phase {
    let ended = life.running().next().is_none();
    let all_well = || {
        let mut main = life.containers.iter().filter(|c| c.role == Role::Main);
        main.all(|c| matches!(&c.state, State::Exited(exit) if exit.code == 0))
    };
    match life.stop.filter(|_| ended).map(|stop| stop.reason) {
        Some(StopReason::Deleted) if all_well() => return Phase::Succeeded,
        Some(StopReason::Deleted | StopReason::Deadline | StopReason::Shutdown) => return Phase::Failed,
        Some(StopReason::Completed) | None => {}
    }
    let initialized = life.containers.iter().filter(|c| c.role != Role::Main).all(is_initialized);
    if !initialized {
        return if life.decided() && ended { Phase::Failed } else { Phase::Pending };
    }
    let mut seen = Seen::default();
    life.containers.iter().filter(|c| c.role == Role::Main).for_each(|c| seen.count(c));
    // Sidecars still going down: the pod is not over before they are.
    if life.decided() && !ended {
        return Phase::Running;
    }
    if life.order.is_some() {
        let mut main = life.containers.iter().filter(|c| c.role == Role::Main);
        return match (life.decided(), seen.running + seen.stopped) {
            (true, _) if main.all(|c| life.lets_on(c)) => Phase::Succeeded,
            (true, _) => Phase::Failed,
            (false, 1..) => Phase::Running,
            (false, 0) => Phase::Pending,
        };
    }
    match seen {
        Seen { waiting: 1.., .. } => Phase::Pending,
        Seen { running: 1.., .. } => Phase::Running,
        Seen { stopped: 1.., .. } => match life.policy {
            Policy::Always => Phase::Running,
            Policy::OnFailure | Policy::Never if seen.stopped == seen.succeeded => Phase::Succeeded,
            Policy::OnFailure => Phase::Running,
            Policy::Never => Phase::Failed,
        },
        Seen { .. } => Phase::Pending,
    }
}

/// The status of a pod that is only said to run: a Deployment's, where scaling and rollouts are to be watched.
pub fn pretended(pod: &Pod, now: Timestamp) -> PodStatus {
    let mut life = Life::new(pod, crate::life::Timing::default(), now);
    let id = |name: &str| format!("pawl://pretended-{}-{name}", pod.uid().unwrap_or_default());
    for container in &mut life.containers {
        let id = id(&container.name);
        container.image_id = "pawl://no-process".to_owned();
        container.state = match container.role {
            Role::Main | Role::Sidecar => State::Running { since: life.start_time, id },
            Role::Init => State::Exited(Exit {
                code: 0,
                reason: "Completed".to_owned(),
                message: None,
                started_at: Some(life.start_time),
                finished_at: life.start_time,
                id,
            }),
        };
    }
    status(pod, &life, now)
}

/// A status as the API shows it, with our own conditions as we wrote them.
pub(crate) fn newer_conditions(shown: Option<PodStatus>, written: &PodStatus) -> PodStatus {
    let mut status = shown.unwrap_or_default();
    let own = |c: &&PodCondition| OWN_CONDITIONS.contains(&c.type_.as_str());
    let foreign = status.conditions.iter().flatten().filter(|c| !own(c)).cloned();
    let ours = written.conditions.iter().flatten().filter(own).cloned();
    status.conditions = Some(ours.chain(foreign).collect());
    status
}

/// How many main containers are where.
#[derive(Default)]
struct Seen {
    waiting: usize,
    running: usize,
    stopped: usize,
    succeeded: usize,
}

impl Seen {
    fn count(&mut self, container: &ContainerLife) {
        let ended = match &container.state {
            State::Running { .. } => return self.running += 1,
            State::Exited(exit) => Some(exit),
            State::Waiting { .. } => container.last.as_ref(),
        };
        match ended {
            Some(exit) => {
                self.stopped += 1;
                self.succeeded += usize::from(exit.code == 0);
            }
            None => self.waiting += 1,
        }
    }
}

fn is_initialized(container: &ContainerLife) -> bool {
    match (&container.state, container.role) {
        (State::Exited(exit), Role::Init) => exit.code == 0,
        (State::Running { .. } | State::Exited(_), Role::Sidecar) => true,
        (State::Waiting { .. }, Role::Sidecar) => container.last.is_some(),
        (State::Running { .. } | State::Waiting { .. }, Role::Init) => false,
        (State::Running { .. } | State::Waiting { .. } | State::Exited(_), Role::Main) => true,
    }
}

fn container_status(pod: &Pod, life: &Life, container: &ContainerLife) -> ContainerStatus {
    let mut last = container.last.as_ref();
    let mut id = last.map(|exit| exit.id.clone());
    let state = match &container.state {
        State::Running { since, id: running } => {
            id = Some(running.clone());
            let running = ContainerStateRunning { started_at: Some(Time(*since)) };
            ContainerState { running: Some(running), ..ContainerState::default() }
        }
        State::Exited(exit) => {
            id = Some(exit.id.clone());
            let delay = life.back_off(container);
            if life.again(container, exit) && !delay.is_zero() {
                last = Some(exit);
                waiting("CrashLoopBackOff", Some(back_off_message(pod, container, delay.as_secs())))
            } else {
                terminated(exit)
            }
        }
        State::Waiting { reason, message, .. } if reason.is_empty() => {
            let initializing = life.containers.iter().any(|c| c.role != Role::Main);
            let gone = life.stop.is_some() && life.running().next().is_none();
            let reason = if initializing && !gone { "PodInitializing" } else { "ContainerCreating" };
            waiting(reason, message.clone())
        }
        State::Waiting { reason, message, .. } => waiting(reason, message.clone()),
    };
    let running = state.running.is_some();
    let completed_init =
        container.role == Role::Init && matches!(&container.state, State::Exited(exit) if exit.code == 0);
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone(),
        image_id: container.image_id.clone(),
        container_id: id,
        ready: completed_init || (running && container.role != Role::Init),
        started: Some(running),
        restart_count: i32::try_from(container.restarts).unwrap_or(i32::MAX),
        state: Some(state),
        last_state: Some(last.map(terminated).unwrap_or_default()),
        ..ContainerStatus::default()
    }
}

fn back_off_message(pod: &Pod, container: &ContainerLife, delay_secs: i64) -> String {
    let delay = match (delay_secs / 60, delay_secs % 60) {
        (0, s) => format!("{s}s"),
        (m, s) => format!("{m}m{s}s"),
    };
    format!("back-off {delay} restarting failed container={} pod={}", container.name, full_name(pod))
}

/// A pod as a kubelet names it.
pub(crate) fn full_name(pod: &Pod) -> String {
    let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
    format!("{name}_{namespace}({})", pod.uid().unwrap_or_default())
}

fn waiting(reason: &str, message: Option<String>) -> ContainerState {
    let waiting = ContainerStateWaiting { reason: Some(reason.to_owned()), message };
    ContainerState { waiting: Some(waiting), ..ContainerState::default() }
}

fn terminated(exit: &Exit) -> ContainerState {
    let terminated = ContainerStateTerminated {
        exit_code: exit.code,
        reason: Some(exit.reason.clone()),
        message: exit.message.clone(),
        started_at: exit.started_at.map(Time),
        finished_at: Some(Time(exit.finished_at)),
        container_id: Some(exit.id.clone()),
        signal: None,
    };
    ContainerState { terminated: Some(terminated), ..ContainerState::default() }
}

fn conditions(
    pod: &Pod,
    life: &Life,
    phase: Phase,
    before: &[PodCondition],
    now: Timestamp,
) -> Vec<PodCondition> {
    let names = |list: Vec<&ContainerLife>| {
        let names: Vec<&str> = list.iter().map(|c| c.name.as_str()).collect();
        names.join(" ")
    };
    let not_ready = |c: &&ContainerLife| c.role != Role::Init && !matches!(c.state, State::Running { .. });
    let unready: Vec<_> = life.containers.iter().filter(not_ready).collect();
    let incomplete: Vec<_> =
        life.containers.iter().filter(|c| c.role != Role::Main && !is_initialized(c)).collect();
    let ready = match phase {
        Phase::Succeeded => (false, Some("PodCompleted"), None),
        Phase::Failed => (false, Some("PodFailed"), None),
        Phase::Pending | Phase::Running if unready.is_empty() => (true, None, None),
        Phase::Pending | Phase::Running => {
            let message = format!("containers with unready status: [{}]", names(unready));
            (false, Some("ContainersNotReady"), Some(message))
        }
    };
    let initialized = match phase {
        Phase::Succeeded => (true, Some("PodCompleted"), None),
        _ if incomplete.is_empty() => (true, None, None),
        Phase::Pending | Phase::Running | Phase::Failed => {
            let message = format!("containers with incomplete status: [{}]", names(incomplete));
            (false, Some("ContainersNotInitialized"), Some(message))
        }
    };
    let started =
        life.containers.iter().any(|c| !matches!(c.state, State::Waiting { .. }) || c.last.is_some());
    let mut ours = vec![
        ("PodReadyToStartContainers", (started && !phase.terminal(), None, None)),
        ("Initialized", initialized),
        ("Ready", ready.clone()),
        ("ContainersReady", ready),
        ("PodScheduled", (true, None, None)),
    ];
    if life.stop.as_ref().is_some_and(|stop| stop.reason == StopReason::Shutdown) && phase.terminal() {
        let message = "Pawl was stopped while the pod ran".to_owned();
        ours.push(("DisruptionTarget", (true, Some("TerminationByKubelet"), Some(message))));
    }
    let foreign = before.iter().filter(|c| !ours.iter().any(|(type_, _)| c.type_ == *type_)).cloned();
    let foreign: Vec<PodCondition> = foreign.collect();
    let set = ours.into_iter().map(|(type_, (truth, reason, message))| {
        let status = if truth { "True" } else { "False" };
        let same = before.iter().find(|c| c.type_ == type_ && c.status == status);
        PodCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.map(str::to_owned),
            message,
            last_transition_time: same.and_then(|c| c.last_transition_time.clone()).or(Some(Time(now))),
            observed_generation: pod.metadata.generation,
            last_probe_time: None,
        }
    });
    set.chain(foreign).collect()
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "a literal at the call reads best without a reference")]
mod tests;
