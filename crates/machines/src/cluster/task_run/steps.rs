//! What does a Pod say about the steps of its TaskRun?

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::pawl::in_order::Reported;
use pawl_api::tekton::{StepState, TaskRunResult, TaskSpec, Terminated};
use serde_json::{Map, Value};

use super::pod::step_container;
use crate::cluster::tekton::Verdict;
use crate::cluster::tekton::spec::goes_on;
use crate::cluster::tekton::values::Type;

/// A Pod as its TaskRun sees it.
#[derive(Debug)]
pub(super) struct Sight<'a> {
    pod: &'a Pod,
    spec: &'a TaskSpec,
}

/// Why a Pod will not get going.
pub(super) enum Stuck {
    Image { message: String },
    Config,
}

impl<'a> Sight<'a> {
    pub(super) fn new(pod: &'a Pod, spec: &'a TaskSpec) -> Self {
        Self { pod, spec }
    }

    fn phase(&self) -> &str {
        self.pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
    }

    fn container(&self, name: &str) -> Option<&'a ContainerStatus> {
        let statuses = self.pod.status.as_ref()?.container_statuses.as_deref()?;
        statuses.iter().find(|status| status.name == name)
    }

    fn ended(&self, name: &str) -> Option<&'a ContainerStateTerminated> {
        self.container(name)?.state.as_ref()?.terminated.as_ref()
    }

    /// The steps with the names of their containers.
    fn each(&self) -> impl Iterator<Item = (String, &'a Map<String, Value>)> {
        self.spec.steps.iter().enumerate().map(|(at, step)| (step_container(at, step), step))
    }

    pub(super) fn is_over(&self) -> bool {
        let over = matches!(self.phase(), "Succeeded" | "Failed");
        over || self.each().all(|(name, _)| self.ended(&name).is_some())
    }

    /// The first step that failed in earnest.
    fn failed_step(&self) -> Option<(String, &'a ContainerStateTerminated)> {
        let failed = |(name, step): (String, &Map<String, Value>)| {
            let ended = self.ended(&name)?;
            (is_failure(ended) && !(goes_on(step) && ended.reason.as_deref() != Some("OOMKilled")))
                .then_some((name, ended))
        };
        self.each().find_map(failed)
    }

    /// How the TaskRun ends, once its Pod is over.
    pub(super) fn outcome(&self) -> Verdict {
        let status = self.pod.status.as_ref();
        let message = status.and_then(|status| status.message.clone()).unwrap_or_default();
        if status.and_then(|status| status.reason.as_deref()) == Some("Evicted") {
            return Verdict::failed("PodEvicted", message);
        }
        if let Some((name, ended)) = self.failed_step() {
            let reason = ended.reason.clone().unwrap_or_default();
            let word = if reason == "OOMKilled" { "StepOOM" } else { "StepFailed" };
            let message = format!("\"{name}\" exited with code {}: {reason}", ended.exit_code);
            return Verdict::failed(word, message);
        }
        let unfinished = self.each().any(|(name, _)| self.ended(&name).is_none());
        if self.phase() == "Failed" && unfinished {
            let unspecified = "build failed for unspecified reasons.";
            return Verdict::failed(
                "Failed",
                if message.is_empty() { unspecified.to_owned() } else { message },
            );
        }
        Verdict::succeeded("Succeeded", "All Steps have completed executing")
    }

    /// What is said while the Pod is not over.
    pub(super) fn progress(&self) -> Verdict {
        match self.phase() {
            "Pending" => Verdict::running("Pending", self.waiting_message()),
            _ => Verdict::running("Running", "Not all Steps in the Task have finished executing"),
        }
    }

    fn waiting_message(&self) -> String {
        let status = self.pod.status.as_ref();
        let containers = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
        for container in containers {
            let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
            if let Some(message) = waiting.and_then(|waiting| waiting.message.as_deref()) {
                return format!("build step {:?} is pending with reason {message:?}", container.name);
            }
        }
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let open = conditions.iter().find(|condition| condition.status != "True");
        open.map_or_else(
            || "Pending".to_owned(),
            |open| {
                let message = open.message.as_deref().unwrap_or_default();
                format!("pod status {:?}:{:?}; message: {message:?}", open.type_, open.status)
            },
        )
    }

    /// Whether the Pod waits for something that will not come.
    pub(super) fn stuck(&self, run: &str) -> Option<Stuck> {
        for (name, _) in self.each() {
            let Some(container) = self.container(&name) else { continue };
            let Some(waiting) = container.state.as_ref().and_then(|state| state.waiting.as_ref()) else {
                continue;
            };
            match waiting.reason.as_deref() {
                Some("ImagePullBackOff" | "InvalidImageName") => {
                    let step = name.strip_prefix("step-").unwrap_or(&name);
                    let said = waiting.message.as_deref().unwrap_or_default();
                    let message = format!(
                        "the step {step:?} in TaskRun {run:?} failed to pull the image {:?}. The pod errored with the \
                         message: \"{said}.\"",
                        container.image_id
                    );
                    return Some(Stuck::Image { message });
                }
                Some("CreateContainerConfigError") => return Some(Stuck::Config),
                Some(_) | None => {}
            }
        }
        None
    }

    /// Where each step is. In a Pod that is over, a step that never ran was skipped.
    pub(super) fn states(&self, now: Timestamp) -> Vec<StepState> {
        let over = self.is_over();
        let state = |(name, step): (String, &Map<String, Value>)| {
            let container = self.container(&name);
            let mut state = StepState {
                name: name.strip_prefix("step-").unwrap_or(&name).to_owned(),
                container: name.clone(),
                ..StepState::default()
            };
            if let Some(id) = container.map(|it| it.image_id.clone()).filter(|id| !id.is_empty()) {
                state.rest.insert("imageID".to_owned(), id.into());
            }
            let seen = container.and_then(|container| container.state.as_ref());
            if let Some(ended) = seen.and_then(|seen| seen.terminated.as_ref()) {
                state.termination_reason = ended.reason.clone().unwrap_or_default();
                let mut ended = terminated(ended);
                if ended.exit_code != 0 && goes_on(step) && state.termination_reason != "OOMKilled" {
                    "Completed".clone_into(&mut ended.reason);
                    "Continued".clone_into(&mut state.termination_reason);
                }
                state.terminated = Some(ended);
            } else if over {
                "Skipped".clone_into(&mut state.termination_reason);
                state.terminated = Some(Terminated {
                    exit_code: 1,
                    reason: "Error".to_owned(),
                    started_at: Some(Time(now)),
                    finished_at: Some(Time(now)),
                    ..Terminated::default()
                });
            } else if let Some(running) = seen.and_then(|seen| seen.running.as_ref()) {
                state.running = as_map(running);
            } else {
                let waiting = seen.and_then(|seen| seen.waiting.as_ref()).and_then(as_map);
                state.waiting = Some(waiting.unwrap_or_else(|| {
                    Map::from_iter([("reason".to_owned(), Value::from("PodInitializing"))])
                }));
            }
            state
        };
        self.each().map(state).collect()
    }

    /// Where each sidecar is, as Kubernetes says it.
    pub(super) fn sidecars(&self) -> Vec<Value> {
        let statuses = self.pod.status.as_ref().and_then(|status| status.init_container_statuses.as_deref());
        let one = |status: &ContainerStatus| {
            let name = status.name.strip_prefix("sidecar-")?;
            let mut state = status.state.as_ref().and_then(as_map).unwrap_or_default();
            state.insert("name".to_owned(), name.into());
            state.insert("container".to_owned(), status.name.clone().into());
            Some(Value::Object(state))
        };
        statuses.unwrap_or_default().iter().filter_map(one).collect()
    }

    /// What the steps left behind of what the task promises: the latest of each.
    ///
    /// # Errors
    /// When something is of another kind than promised, in Tekton's words.
    pub(super) fn results(&self) -> Result<Vec<TaskRunResult>, String> {
        let mut found: Vec<TaskRunResult> = Vec::new();
        for (name, _) in self.each() {
            let message = self.ended(&name).and_then(|ended| ended.message.as_deref()).unwrap_or_default();
            let reported: Vec<Reported> = serde_json::from_str(message).unwrap_or_default();
            for one in reported.into_iter().filter(|one| one.type_ == Reported::RESULT) {
                let Some(declared) = self.spec.results.iter().find(|result| result.name == one.key) else {
                    continue;
                };
                let wanted = Type::declared(declared);
                let value = match wanted {
                    Type::Text => Value::String(one.value),
                    Type::List | Type::Map => {
                        serde_json::from_str(&one.value).unwrap_or_else(|_| Value::String(one.value.clone()))
                    }
                };
                if Type::of(&value) != wanted {
                    return Err(format!(
                        "Provided results don't match declared results; may be invalid JSON or missing result \
                         declaration: {:?}: task result is expected to be {:?} type but was initialized to a different \
                         type {:?}",
                        one.key,
                        wanted.as_str(),
                        Type::of(&value).as_str()
                    ));
                }
                found.retain(|other| other.name != one.key);
                found.push(TaskRunResult { name: one.key, type_: wanted.as_str().to_owned(), value });
            }
        }
        Ok(found)
    }
}

/// The steps of a Pod that is being taken away.
pub(super) fn terminate(steps: &mut [StepState], reason: &str, pod: &str, now: Timestamp) {
    for step in steps.iter_mut().filter(|step| step.terminated.is_none()) {
        let started = step.running.take().and_then(|running| running.get("startedAt").cloned());
        let started = started.and_then(|text| serde_json::from_value(text).ok());
        step.waiting = None;
        step.termination_reason = reason.to_owned();
        step.terminated = Some(Terminated {
            exit_code: 1,
            reason: reason.to_owned(),
            message: format!("Step {} terminated as pod {pod} is terminated", step.name),
            started_at: Some(started.unwrap_or(Time(now))),
            finished_at: Some(Time(now)),
            ..Terminated::default()
        });
    }
}

fn is_failure(ended: &ContainerStateTerminated) -> bool {
    ended.exit_code != 0 || ended.reason.as_deref() == Some("OOMKilled")
}

fn terminated(ended: &ContainerStateTerminated) -> Terminated {
    let mut rest = Map::new();
    rest.extend(ended.container_id.clone().map(|id| ("containerID".to_owned(), id.into())));
    Terminated {
        exit_code: ended.exit_code,
        reason: ended.reason.clone().unwrap_or_default(),
        message: ended.message.clone().unwrap_or_default(),
        started_at: ended.started_at.clone(),
        finished_at: ended.finished_at.clone(),
        rest,
    }
}

fn as_map(value: &impl serde::Serialize) -> Option<Map<String, Value>> {
    match serde_json::to_value(value) {
        Ok(Value::Object(map)) => Some(map),
        Ok(_) | Err(_) => None,
    }
}
