//! What should happen to a pod's containers next?
//!
//! ```text
//!            start            exit              policy says again, back-off over
//! Waiting ──────────▶ Running ──────▶ Exited ───────────────────────────────────▶ Running
//!    ▲ config error ─┘                  │ policy says no
//!    └── retried later                  ▼
//!                                    stays
//! ```
//! Init containers run one after another, sidecars (init containers that always restart) stay beside what follows,
//! main containers run together, or one after another where the pod asks for it ([`InOrder`]). A stop (deletion, deadline, shutdown) asks with SIGTERM, then insists with SIGKILL.
//! Pure: facts come in, [`Step`]s go out; [`crate::worker`] carries them out.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod};
use pawl_api::pawl::in_order::InOrder;
use serde::{Deserialize, Serialize};

/// How long things are waited for. Kubernetes' own numbers; tests take smaller ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A container that ended is restarted at once; the second time after this, doubling from then on.
    pub restart_initial: SignedDuration,
    pub restart_max: SignedDuration,
    /// A container that ran this long starts with a clean slate.
    pub restart_forgiven_after: SignedDuration,
    /// Between two attempts at a container or volume that cannot be configured.
    pub config_retry: SignedDuration,
    /// After an image could not be pulled, doubling from then on.
    pub pull_initial: SignedDuration,
    pub pull_max: SignedDuration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            restart_initial: SignedDuration::from_secs(10),
            restart_max: SignedDuration::from_secs(300),
            restart_forgiven_after: SignedDuration::from_secs(600),
            config_retry: SignedDuration::from_secs(10),
            pull_initial: SignedDuration::from_secs(10),
            pull_max: SignedDuration::from_secs(300),
        }
    }
}

/// A container's place in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Init,
    Sidecar,
    Main,
}

/// `restartPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Always,
    OnFailure,
    Never,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub code: i32,
    pub reason: String,
    pub message: Option<String>,
    pub started_at: Option<Timestamp>,
    pub finished_at: Timestamp,
    pub id: String,
}

/// What a container is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not started yet. `reason` is empty until something stands in the way.
    Waiting {
        reason: String,
        message: Option<String>,
        retry_at: Option<Timestamp>,
    },
    Running {
        since: Timestamp,
        id: String,
    },
    Exited(Exit),
}

/// One container's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerLife {
    pub name: String,
    pub role: Role,
    pub image: String,
    pub image_id: String,
    pub state: State,
    pub last: Option<Exit>,
    pub restarts: u32,
    /// Ends in a row that count for the back-off.
    pub ends_in_row: u32,
}

/// Why everything is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The result is settled; what runs beside is no longer needed.
    Completed,
    Deleted,
    Deadline,
    Shutdown,
}

/// A stop under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    pub reason: StopReason,
    pub kill_at: Timestamp,
    pub asked: bool,
    pub insisted: bool,
}

/// A pod's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    pub policy: Policy,
    pub start_time: Timestamp,
    pub deadline: Option<Timestamp>,
    pub grace: SignedDuration,
    pub containers: Vec<ContainerLife>,
    /// Main containers run one after another.
    pub order: Option<InOrder>,
    pub stop: Option<Stop>,
    pub timing: Timing,
}

/// What to do now; an index is a place in [`Life::containers`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Start(usize),
    Terminate(usize),
    Kill(usize),
}

/// The next steps, and when to look again if nothing else happens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Next {
    pub steps: Vec<Step>,
    pub wake: Option<Timestamp>,
    /// Nothing runs, nothing will.
    pub finished: bool,
}

impl Life {
    /// A pod as it is first seen.
    pub fn new(pod: &Pod, timing: Timing, now: Timestamp) -> Self {
        let spec = pod.spec.clone().unwrap_or_default();
        let start = pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map_or(now, |t| t.0);
        let seconds = |n: i64| SignedDuration::from_secs(n.max(0));
        let init = spec.init_containers.iter().flatten().map(|container| {
            let sidecar = container.restart_policy.as_deref() == Some("Always");
            ContainerLife::new(container, if sidecar { Role::Sidecar } else { Role::Init })
        });
        let main = spec.containers.iter().map(|container| ContainerLife::new(container, Role::Main));
        let containers = init.chain(main).collect();
        Self {
            policy: match spec.restart_policy.as_deref() {
                Some("Never") => Policy::Never,
                Some("OnFailure") => Policy::OnFailure,
                _ => Policy::Always,
            },
            start_time: start,
            deadline: spec.active_deadline_seconds.and_then(|n| start.checked_add(seconds(n)).ok()),
            grace: seconds(spec.termination_grace_period_seconds.unwrap_or(30)),
            containers,
            order: crate::order::of(pod),
            stop: None,
            timing,
        }
    }

    /// The decision.
    pub fn next(&self, now: Timestamp) -> Next {
        if let Some(stop) = &self.stop {
            return self.stopping(stop, now);
        }
        let mut next = Next { wake: self.deadline, ..Next::default() };
        let mut blocked = false;
        for (index, container) in self.containers.iter().enumerate() {
            match container.role {
                _ if blocked => break,
                Role::Init => blocked = self.step_init(index, container, now, &mut next),
                // What follows a sidecar waits until it was started once.
                Role::Sidecar => blocked = self.step(index, container, now, &mut next),
                Role::Main => {
                    self.step(index, container, now, &mut next);
                    blocked = self.order.is_some() && !self.lets_on(container);
                }
            }
        }
        if self.decided() {
            return Next { finished: self.running().next().is_none(), ..Next::default() };
        }
        next
    }

    /// Once the result is settled, sidecars are asked to stop.
    pub fn settle(&mut self, now: Timestamp) {
        if self.decided() && self.running().next().is_some() {
            self.stop(StopReason::Completed, now.checked_add(self.grace).unwrap_or(now));
        }
    }

    /// Whether the pod's result is settled: an init container failed for good, or all main ones ended for good.
    pub fn decided(&self) -> bool {
        let for_good = |c: &ContainerLife| matches!(&c.state, State::Exited(exit) if !self.again(c, exit));
        let failed_init =
            |c: &ContainerLife| matches!(&c.state, State::Exited(exit) if exit.code != 0) && for_good(c);
        let mut main = self.containers.iter().filter(|c| c.role == Role::Main).peekable();
        let stopped_by = |c: &ContainerLife| self.order.is_some() && for_good(c) && !self.lets_on(c);
        self.containers.iter().any(|c| c.role == Role::Init && failed_init(c))
            || self.containers.iter().any(|c| c.role == Role::Main && stopped_by(c))
            || (main.peek().is_some() && main.all(for_good))
    }

    /// Whether a container is over in a way that is good enough for what comes after it.
    pub fn lets_on(&self, container: &ContainerLife) -> bool {
        let forgiven = || self.order.iter().any(|order| order.go_on_after.contains(&container.name));
        matches!(&container.state, State::Exited(exit) if exit.code == 0 || forgiven())
    }

    /// Asks everything to stop by `kill_at`; a second ask can only make it sooner.
    pub fn stop(&mut self, reason: StopReason, kill_at: Timestamp) {
        match &mut self.stop {
            Some(stop) => stop.kill_at = stop.kill_at.min(kill_at),
            None => self.stop = Some(Stop { reason, kill_at, asked: false, insisted: false }),
        }
    }

    /// The steps of a stop were carried out.
    pub fn stop_carried_out(&mut self, steps: &[Step]) {
        if let Some(stop) = &mut self.stop {
            stop.asked |= steps.iter().any(|step| matches!(step, Step::Terminate(_)));
            stop.insisted |= steps.iter().any(|step| matches!(step, Step::Kill(_)));
        }
    }

    pub fn started(&mut self, index: usize, id: String, now: Timestamp) {
        let Some(container) = self.containers.get_mut(index) else { return };
        if container.last.is_some() || matches!(container.state, State::Exited(_)) {
            container.restarts += 1;
        }
        if let State::Exited(exit) = &container.state {
            container.last = Some(exit.clone());
        }
        container.state = State::Running { since: now, id };
    }

    /// A container that was started in an earlier life runs on.
    pub fn taken_up(&mut self, index: usize, id: String, since: Timestamp) {
        let Some(container) = self.containers.get_mut(index) else { return };
        container.state = State::Running { since, id };
    }

    pub fn exited(&mut self, index: usize, exit: Exit) {
        let forgiven = self.timing.restart_forgiven_after;
        let Some(container) = self.containers.get_mut(index) else { return };
        let ran =
            exit.started_at.map_or(SignedDuration::ZERO, |since| exit.finished_at.duration_since(since));
        container.ends_in_row = if ran >= forgiven { 1 } else { container.ends_in_row.saturating_add(1) };
        container.state = State::Exited(exit);
    }

    /// A container could not be configured; tried again later.
    pub fn held_up(&mut self, index: usize, reason: &str, message: String, now: Timestamp) {
        let retry_at = now.checked_add(self.timing.config_retry).unwrap_or(now);
        self.held_up_until(index, reason, Some(message), retry_at);
    }

    /// A container cannot start before a time.
    pub fn held_up_until(
        &mut self,
        index: usize,
        reason: &str,
        message: Option<String>,
        retry_at: Timestamp,
    ) {
        let Some(container) = self.containers.get_mut(index) else { return };
        if let State::Exited(exit) = &container.state {
            container.last = Some(exit.clone());
        }
        container.state = State::Waiting { reason: reason.to_owned(), message, retry_at: Some(retry_at) };
    }

    /// Whether an ended container is to run again.
    pub fn again(&self, container: &ContainerLife, exit: &Exit) -> bool {
        if self.stop.is_some() {
            return false;
        }
        match (container.role, self.policy) {
            (Role::Sidecar, _) => true,
            (Role::Init, Policy::Never) => false,
            (Role::Init, Policy::Always | Policy::OnFailure) => exit.code != 0,
            (Role::Main, Policy::Always) => true,
            (Role::Main, Policy::OnFailure) => exit.code != 0,
            (Role::Main, Policy::Never) => false,
        }
    }

    /// The back-off that an ended container waits for, if it is longer than nothing.
    pub fn back_off(&self, container: &ContainerLife) -> SignedDuration {
        let doublings = match container.ends_in_row {
            0 | 1 => return SignedDuration::ZERO,
            n => n - 2,
        };
        doubled(self.timing.restart_initial, doublings, self.timing.restart_max)
    }

    /// How long an image is left alone after so many pulls in a row that failed.
    pub fn pull_back_off(&self, failures: u32) -> SignedDuration {
        doubled(self.timing.pull_initial, failures.saturating_sub(1), self.timing.pull_max)
    }

    pub fn running(&self) -> impl Iterator<Item = (usize, &ContainerLife)> {
        self.containers.iter().enumerate().filter(|(_, c)| matches!(c.state, State::Running { .. }))
    }

    /// An init container: whether what follows must wait for it.
    fn step_init(&self, index: usize, container: &ContainerLife, now: Timestamp, next: &mut Next) -> bool {
        self.step(index, container, now, next);
        !matches!(&container.state, State::Exited(exit) if exit.code == 0)
    }

    /// Starts a container if it is due; whether it has yet to be started for the first time.
    fn step(&self, index: usize, container: &ContainerLife, now: Timestamp, next: &mut Next) -> bool {
        let due = match &container.state {
            State::Running { .. } => return false,
            State::Waiting { retry_at, .. } => retry_at.unwrap_or(now),
            State::Exited(exit) if self.again(container, exit) => {
                exit.finished_at.checked_add(self.back_off(container)).unwrap_or(now)
            }
            State::Exited(_) => return false,
        };
        if due <= now {
            next.steps.push(Step::Start(index));
        } else {
            next.wake = Some(next.wake.map_or(due, |wake| wake.min(due)));
        }
        container.last.is_none() && matches!(container.state, State::Waiting { .. })
    }

    fn stopping(&self, stop: &Stop, now: Timestamp) -> Next {
        let running: Vec<usize> = self.running().map(|(index, _)| index).collect();
        let finished = running.is_empty();
        let (steps, wake) = match (now >= stop.kill_at, stop.asked, stop.insisted) {
            (true, _, false) => (running.into_iter().map(Step::Kill).collect(), None),
            (true, _, true) => (Vec::new(), None),
            (false, false, _) => (running.into_iter().map(Step::Terminate).collect(), Some(stop.kill_at)),
            (false, true, _) => (Vec::new(), Some(stop.kill_at)),
        };
        Next { steps, wake: wake.filter(|_| !finished), finished }
    }
}

fn doubled(from: SignedDuration, times: u32, at_most: SignedDuration) -> SignedDuration {
    let delay = 2i32.checked_pow(times).and_then(|factor| from.checked_mul(factor));
    delay.unwrap_or(at_most).min(at_most)
}

impl ContainerLife {
    fn new(container: &Container, role: Role) -> Self {
        Self {
            name: container.name.clone(),
            role,
            image: container.image.clone().unwrap_or_default(),
            image_id: String::new(),
            state: State::Waiting { reason: String::new(), message: None, retry_at: None },
            last: None,
            restarts: 0,
            ends_in_row: 0,
        }
    }
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "a literal at the call reads best without a reference")]
mod tests;
