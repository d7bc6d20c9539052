//! What is the next thing to do for a TaskRun of the embedded server?
//!
//! ```text
//! (new) ─▶ Pod made ─▶ Pending ─▶ Running ─▶ Succeeded
//!            ▲                       │ a step failed, no image, too late, Pod gone
//!            │ ToBeRetried           ▼
//!            └──────────────────── Failed      cancelled, or not to be run at all: failed for good
//! ```
//! Statuses, reasons and messages are those of Tekton's own controller (`pipeline_run/observed.json` was recorded from
//! it). One thing differs on purpose: a Pod that somebody deletes is not made again, it counts as failed (I2).

use pawl_api::meta::condition::Status;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::k8s::{PERSISTENT_VOLUME_CLAIM, POD};
use pawl_api::tekton::{TASK, TASK_RUN, TaskRun, TaskRunSpec, TaskRunStatus, TaskSpec, cancel};
use serde_json::{Value, json};

use super::tekton::origin::{Origin, Wanted, patience};
use super::tekton::values::{self, Problem};
use super::tekton::{MAX_COPIED_BYTES, Verdict, go_duration, is_done, limit, spec, workspace};
use crate::machine::{Description, Machine, Watch, Write};
use crate::object::{Key, Object, Reference};
use crate::plan::{Plan, Step};
use crate::time::later;
use crate::view::Context;

mod pod;
mod steps;
#[cfg(test)]
mod tests;

use pod::Making;
use steps::{Sight, Stuck};

/// Runs TaskRuns.
#[derive(Clone, Copy, Debug, Default)]
pub struct TaskRuns;

/// A TaskRun, its task, and its Pods.
#[derive(Debug)]
struct Facts<'a> {
    cx: &'a Context<'a, TaskRun>,
    task_name: String,
    task: Origin<TaskSpec>,
    pods: Vec<Arc<Object>>,
}

impl Machine for TaskRuns {
    type Kind = TaskRun;
    type Status = TaskRunStatus;

    fn description(&self) -> Description {
        Description {
            watches: vec![Watch::owned(POD), Watch::other(TASK, |_, _| Vec::new())],
            writes: vec![
                Write::status(TASK_RUN),
                Write::main(POD, &["create", "delete"]),
                Write::main(PERSISTENT_VOLUME_CLAIM, &["create"]),
            ],
            ..Description::new("taskrun", TASK_RUN)
        }
    }

    fn reconcile(&self, cx: &Context<'_, TaskRun>) -> Plan<TaskRunStatus> {
        let status = cx.typed.status.clone().unwrap_or_default();
        if cx.object.is_deleting() {
            return Plan::rest();
        }
        let (wanted, pods) =
            (cx.typed.spec.task_ref.as_ref().map(Wanted::from), cx.view.controlled(&POD, cx.object));
        let task_name = wanted.and_then(|wanted| wanted.target_name()).unwrap_or(cx.object.name()).to_owned();
        let facts = Facts { cx, task_name, task: task_of(cx, wanted), pods };
        if is_done(&status.conditions) {
            // Whoever ended the run may not have seen this Pod yet.
            return Plan { steps: facts.live_pods().map(delete).collect(), ..Plan::rest() };
        }
        Round { facts: &facts, spec: &cx.typed.spec, now: cx.now, status }.decide()
    }
}

/// What was found when the run started, else what it names now.
fn task_of(cx: &Context<'_, TaskRun>, wanted: Option<Wanted<'_>>) -> Origin<TaskSpec> {
    let run = cx.typed;
    let found = run.status.as_ref().and_then(|status| status.task_spec.as_ref());
    match (run.spec.task_spec.as_ref().or(found), wanted) {
        (Some(spec), _) => Origin::Found(Box::new(spec.clone())),
        (None, Some(wanted)) => wanted.find(cx),
        (None, None) => {
            Origin::Refused("expected exactly one, got neither: spec.taskRef, spec.taskSpec".to_owned())
        }
    }
}

impl Facts<'_> {
    fn pod(&self, name: &str) -> Option<&Arc<Object>> {
        self.pods.iter().find(|pod| pod.name() == name)
    }

    /// Pods in which something may still run.
    fn live_pods(&self) -> impl Iterator<Item = &Arc<Object>> {
        let over = |pod: &Arc<Object>| {
            matches!(pod.status().get("phase").and_then(Value::as_str), Some("Succeeded" | "Failed"))
        };
        self.pods.iter().filter(move |pod| !pod.is_deleting() && !over(pod))
    }
}

/// One look at a TaskRun that is not over.
struct Round<'a> {
    facts: &'a Facts<'a>,
    spec: &'a TaskRunSpec,
    now: Timestamp,
    status: TaskRunStatus,
}

impl Round<'_> {
    fn decide(mut self) -> Plan<TaskRunStatus> {
        let name = self.facts.cx.object.name();
        let started = self.status.start_time.get_or_insert(Time(self.now)).0;
        if self.spec.status.as_deref() == Some(cancel::TASK_RUN_CANCELLED) {
            let why = self.spec.status_message.as_deref().unwrap_or_default();
            let message = format!("TaskRun {name:?} was cancelled. {why}").trim_end().to_owned();
            return self.stop(Verdict::failed("TaskRunCancelled", message));
        }
        let deadline = limit(self.spec.timeout).map(|limit| (limit, later(started, limit)));
        if let Some((limit, _)) = deadline.filter(|(_, deadline)| *deadline <= self.now) {
            let message = format!("TaskRun {name:?} failed to finish within {:?}", go_duration(limit));
            return self.stop(Verdict::failed("TaskRunTimeout", message));
        }
        let plan = self.go_on();
        match deadline {
            Some((_, deadline)) => plan.wake_at(deadline),
            None => plan,
        }
    }

    fn attempt(&self) -> usize {
        self.status.retries_status.len()
    }

    fn go_on(self) -> Plan<TaskRunStatus> {
        let facts = self.facts;
        match &facts.task {
            Origin::Found(spec) => match facts.pod(&pod::name(facts.cx.object.name(), self.attempt())) {
                Some(pod) => self.follow(pod, spec),
                None if self.status.pod_name.is_some() => self.gone(),
                None => self.begin(&facts.task_name, spec),
            },
            Origin::Ask(call) => Plan::rest().ask(call.clone()),
            Origin::Later(why) => self.wait_for_task(why),
            Origin::Absent(reference) => {
                let (run, task) = (facts.cx.object.name(), &reference.key.name);
                let message = format!(
                    "error when listing tasks for taskRun {run}: tasks.tekton.dev {task:?} not found"
                );
                let absent = Step::confirm_gone(reference.clone());
                with_first(self.refuse(Verdict::failed("TaskRunResolutionFailed", message)), absent)
            }
            Origin::Refused(why) => {
                let message =
                    format!("error when listing tasks for taskRun {}: {why}", facts.cx.object.name());
                self.refuse(Verdict::failed("TaskRunResolutionFailed", message))
            }
        }
    }

    /// Makes the Pod, if the task can be run.
    fn begin(mut self, task: &str, spec: &TaskSpec) -> Plan<TaskRunStatus> {
        let me = self.facts.cx.object;
        let values = match self.check(task, spec) {
            Ok(values) => values,
            Err(verdict) => return self.refuse(verdict),
        };
        if let Some(refused) = self.facts.cx.refused(&POD) {
            let name = pod::name(me.name(), self.attempt());
            let message = format!(
                "failed to create task run pod {name:?}: {}. Maybe invalid TaskSpec",
                refused.message
            );
            return self.refuse(Verdict::failed("PodCreationFailed", message));
        }
        let attempt = self.attempt();
        let manifest = Making { me, run: self.spec, spec, task, values: &values, attempt }.manifest();
        let create = Step::create_child(me, POD, manifest);
        let claims: Vec<Step> = workspace::claims(me, &self.spec.workspaces).collect();
        self.status.pod_name = Some(pod::name(me.name(), attempt));
        self.keep(spec);
        let mut plan = self.tell(&Verdict::running("Pending", "Pending"));
        plan.steps.extend(claims);
        plan.steps.push(create);
        plan
    }

    /// What the run's parameters are, or why it is not run.
    fn check(
        &self,
        task: &str,
        spec: &TaskSpec,
    ) -> Result<std::collections::BTreeMap<String, Value>, Verdict> {
        let invalid = |message: String| Verdict::user_error("TaskRunValidationFailed", message);
        if let Some(problem) = spec::problem(spec) {
            return Err(Verdict::user_error("TaskValidationFailed", problem));
        }
        let resolved = values::resolve(&spec.params, &self.spec.params);
        let values = resolved.map_err(|problem| invalid(bad_params(task, &problem)))?;
        if let Some(problem) = self.spec.workspaces.iter().find_map(workspace::problem) {
            return Err(invalid(problem));
        }
        let declared = pod::declarations(self.spec, spec);
        let bound = |name: &str| self.spec.workspaces.iter().any(|binding| binding.name == name);
        let unbound = declared.iter().find(|it| it.optional != Some(true) && !bound(&it.name));
        if let Some(unbound) = unbound {
            let name = &unbound.name;
            return Err(invalid(format!(
                "bound workspaces did not match declared workspaces: declared workspace {name:?} is required but has \
                 not been bound"
            )));
        }
        let foreign =
            self.spec.workspaces.iter().find(|it| !declared.iter().any(|other| other.name == it.name));
        match foreign {
            Some(foreign) => Err(invalid(format!(
                "bound workspaces did not match declared workspaces: workspace binding {:?} does not match any declared \
                 workspace",
                foreign.name
            ))),
            None => Ok(values),
        }
    }

    /// Says what the Pod says.
    fn follow(mut self, pod: &Arc<Object>, spec: &TaskSpec) -> Plan<TaskRunStatus> {
        let Ok(typed) = pod.parse::<Pod>() else { return Plan::rest() };
        let sight = Sight::new(&typed, spec);
        self.status.pod_name = Some(pod.name().to_owned());
        self.keep(spec);
        self.status.steps = sight.states(self.now);
        let sidecars = sight.sidecars();
        if !sidecars.is_empty() {
            self.status.rest.insert("sidecars".to_owned(), sidecars.into());
        }
        if sight.is_over() {
            let verdict = match sight.results() {
                Ok(results) => {
                    self.status.results = results;
                    sight.outcome()
                }
                Err(message) => Verdict::failed("TaskRunValidationFailed", message),
            };
            self.status.rest.insert("artifacts".to_owned(), json!({}));
            return self.end(verdict);
        }
        match sight.stuck(self.facts.cx.object.name()) {
            Some(Stuck::Image { message }) => self.stop(Verdict::failed("TaskRunImagePullFailed", message)),
            Some(Stuck::Config) => {
                let message = "Failed to create pod due to config error";
                self.stop(Verdict::failed("CreateContainerConfigError", message))
            }
            None => self.tell(&sight.progress()),
        }
    }

    /// The Pod was there and is no more.
    fn gone(self) -> Plan<TaskRunStatus> {
        let me = self.facts.cx.object;
        let name = self.status.pod_name.clone().unwrap_or_default();
        let key = Key::new(me.namespace(), &name);
        let gone = Step::confirm_gone(Reference { kind: POD, key, uid: String::new() });
        let message = format!("pod {name:?} of TaskRun {:?} was deleted before it was over", me.name());
        with_first(self.end(Verdict::failed("PodDeleted", message)), gone)
    }

    /// Ends what runs, then the run.
    fn stop(mut self, verdict: Verdict) -> Plan<TaskRunStatus> {
        let me = self.facts.cx.object;
        let name = pod::name(me.name(), self.attempt());
        let mut first: Vec<Step> = Vec::new();
        match self.facts.pod(&name) {
            Some(pod) => {
                self.status.pod_name = Some(name.clone());
                if let (Origin::Found(spec), Ok(pod)) = (&self.facts.task, pod.parse::<Pod>()) {
                    // The status that said so may have been lost.
                    self.keep(spec);
                    let sight = Sight::new(&pod, spec);
                    let recorded = std::mem::replace(&mut self.status.steps, sight.states(self.now));
                    if recorded.is_empty() && !self.status.steps.is_empty() {
                        // Nobody can tell the steps of a Pod that is gone: they are recorded before it is ended.
                        return self.tell(&sight.progress());
                    }
                }
            }
            // What is not seen may be there all the same: then it is to be seen first.
            None => {
                let key = Key::new(me.namespace(), &name);
                first.push(Step::confirm_gone(Reference { kind: POD, key, uid: String::new() }));
            }
        }
        steps::terminate(&mut self.status.steps, &verdict.reason, &name, self.now);
        first.extend(self.facts.live_pods().map(delete));
        let mut plan = match verdict.reason.as_str() {
            "TaskRunCancelled" => self.refuse(verdict),
            _ => self.end(verdict),
        };
        plan.steps.splice(0..0, first);
        plan
    }

    /// Ends an attempt: the run, or only this try of it.
    fn end(mut self, verdict: Verdict) -> Plan<TaskRunStatus> {
        let tries = usize::try_from(self.spec.retries.unwrap_or_default()).unwrap_or_default();
        if verdict.status != Status::False || self.attempt() >= tries {
            return self.refuse(verdict);
        }
        let mut attempt = self.status.clone();
        attempt.completion_time = Some(Time(self.now));
        attempt.retries_status.clear();
        attempt.task_spec = None;
        verdict.set(&mut attempt.conditions, self.now);
        let mut retries = std::mem::take(&mut self.status.retries_status);
        retries.extend(serde_json::to_value(attempt));
        self.status = TaskRunStatus {
            retries_status: retries,
            task_spec: self.status.task_spec.take(),
            conditions: std::mem::take(&mut self.status.conditions),
            ..TaskRunStatus::default()
        };
        self.tell(&Verdict::running("ToBeRetried", verdict.message))
    }

    /// Whoever has the task does not answer for now.
    fn wait_for_task(self, why: &str) -> Plan<TaskRunStatus> {
        let me = self.facts.cx.object;
        let began = self.status.start_time.as_ref().map_or(self.now, |time| time.0);
        match patience(began, self.now, why) {
            Ok(until) => {
                let message = format!("TaskRun {} awaiting remote resource", me.key());
                self.tell(&Verdict::running("ResolvingTaskRef", message)).wake_at(until)
            }
            Err(why) => {
                let message = format!("error when listing tasks for taskRun {}: {why}", me.name());
                self.refuse(Verdict::failed("TaskRunResolutionFailed", message))
            }
        }
    }

    /// Ends the run for good.
    #[expect(clippy::needless_pass_by_value, reason = "a verdict is given once")]
    fn refuse(mut self, verdict: Verdict) -> Plan<TaskRunStatus> {
        self.status.completion_time = Some(Time(self.now));
        self.tell(&verdict)
    }

    /// Remembers what is run, so that a change of the Task changes nothing that has begun.
    fn keep(&mut self, spec: &TaskSpec) {
        let written_here = self.spec.task_spec.is_some();
        let small = || serde_json::to_vec(spec).is_ok_and(|text| text.len() <= MAX_COPIED_BYTES);
        if self.status.task_spec.is_none() && (!written_here || small()) {
            self.status.task_spec = Some(spec.clone());
        }
    }

    fn tell(mut self, verdict: &Verdict) -> Plan<TaskRunStatus> {
        let mut plan = Plan::rest();
        let before = self.facts.cx.typed.succeeded();
        if before.is_none() {
            plan = plan.note(crate::plan::Note::normal("Started", ""));
        }
        let attempt = self.attempt().to_string();
        plan.notes.extend(verdict.note(before).map(|note| note.once(attempt)));
        verdict.set(&mut self.status.conditions, self.now);
        plan.status(self.status)
    }
}

/// Why the parameters are not those of the task, in Tekton's words.
pub(super) fn bad_params(task: &str, problem: &Problem) -> String {
    let what = match problem {
        Problem::Missing(names) => {
            format!("missing values for these params which have no default values: [{}]", names.join(" "))
        }
        Problem::Mismatch(names) => {
            format!("param types don't match the user-specified type: [{}]", names.join(" "))
        }
        Problem::MissingKeys(keys) => {
            let keys: Vec<String> =
                keys.iter().map(|(name, keys)| format!("{name}:[{}]", keys.join(" "))).collect();
            format!(
                "missing keys for these params which are required in ParamSpec's properties map[{}]",
                keys.join(" ")
            )
        }
    };
    format!("invalid input params for task {task}: {what}")
}

/// Only as it was seen: a Pod that has ended meanwhile keeps its logs.
fn delete(pod: &Arc<Object>) -> Step {
    Step::delete_unchanged(pod)
}

fn with_first<S>(mut plan: Plan<S>, step: Step) -> Plan<S> {
    plan.steps.insert(0, step);
    plan
}
