//! What is the next thing to do for a PipelineRun of the embedded server?
//!
//! ```text
//! (new) ─▶ the pipeline is found, checked, kept ─▶ Running: a TaskRun for each task whose turn it is
//!             │ not found, wrong                    │ all tasks are over or skipped
//!             ▼                                     ▼
//!           Failed                          finally ─▶ Succeeded / Completed / Failed / Cancelled / PipelineRunTimeout
//! ```
//! Statuses, reasons and messages are those of Tekton's own controller, as recorded from it in
//! `pipeline_run/observed.json`. Not here, and refused by name: matrices, custom tasks, pipelines as tasks, resolvers
//! other than bundles (docs/tekton.md).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::k8s::PERSISTENT_VOLUME_CLAIM;
use pawl_api::meta::names;
use pawl_api::tekton::{
    ChildReference, PIPELINE, PIPELINE_RUN, PipelineRun, PipelineRunSpec, PipelineRunStatus, PipelineSpec,
    TASK, TASK_RUN, cancel, labels,
};
use serde_json::{Map, Value, json};

use super::tekton::origin::patience;
use super::tekton::{MAX_COPIED_BYTES, Verdict, go_duration, is_done, limit, workspace};
use crate::machine::{Description, Machine, Watch, Write};
use crate::object::{Key, Object, Reference};
use crate::plan::{Note, Plan, Step};
use crate::time::later;
use crate::view::Context;

mod children;
mod graph;
mod resolve;
#[cfg(test)]
mod tests;

use children::Making;
use graph::{Circumstances, Counts, Graph, Node, State};
use resolve::{Pipeline, Resolved};

/// Runs PipelineRuns.
#[derive(Clone, Copy, Debug, Default)]
pub struct PipelineRuns;

/// A PipelineRun, its pipeline, and its TaskRuns.
#[derive(Debug)]
struct Facts<'a> {
    cx: &'a Context<'a, PipelineRun>,
    pipeline: Resolved,
    /// By the names of their tasks.
    children: BTreeMap<String, Arc<Object>>,
}

impl Machine for PipelineRuns {
    type Kind = PipelineRun;
    type Status = PipelineRunStatus;

    fn description(&self) -> Description {
        Description {
            watches: vec![
                Watch::owned(TASK_RUN),
                Watch::other(PIPELINE, |_, _| Vec::new()),
                Watch::other(TASK, |_, _| Vec::new()),
            ],
            writes: vec![
                Write::main(PIPELINE_RUN, &["patch"]),
                Write::status(PIPELINE_RUN),
                Write::main(TASK_RUN, &["create", "patch"]),
                Write::main(PERSISTENT_VOLUME_CLAIM, &["create"]),
            ],
            ..Description::new("pipelinerun", PIPELINE_RUN)
        }
    }

    fn reconcile(&self, cx: &Context<'_, PipelineRun>) -> Plan<PipelineRunStatus> {
        let status = cx.typed.status.clone().unwrap_or_default();
        if cx.object.is_deleting() {
            return Plan::rest();
        }
        let children = children_of(cx);
        let facts = Facts { cx, pipeline: resolve::resolve(cx, children.is_empty()), children };
        if is_done(&status.conditions) {
            // Whoever ended the run may not have seen this TaskRun yet.
            return Plan {
                steps: facts.live().map(|run| children::stop(run, graph::CANCELLED)).collect(),
                ..Plan::rest()
            };
        }
        Round { facts: &facts, spec: &cx.typed.spec, now: cx.now, status }.decide()
    }
}

/// The TaskRuns of a PipelineRun, by the names of their tasks.
fn children_of(cx: &Context<'_, PipelineRun>) -> BTreeMap<String, Arc<Object>> {
    let named = |child: Arc<Object>| Some((child.label(labels::PIPELINE_TASK)?.to_owned(), child));
    cx.view.controlled(&TASK_RUN, cx.object).into_iter().filter_map(named).collect()
}

impl Facts<'_> {
    /// TaskRuns that are not over and have not been told to end.
    fn live(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.children.values().filter(|child| {
            let conditions = child.status().get("conditions").cloned().unwrap_or_default();
            let conditions = serde_json::from_value::<Vec<_>>(conditions).unwrap_or_default();
            !is_done(&conditions) && !is_told(child)
        })
    }
}

/// By which pipeline a run is found, as Tekton labels it. `None` where it says so already.
fn named(me: &Arc<Object>, pipeline: &str) -> Option<Step> {
    let name = names::label_value(pipeline);
    (me.label(labels::PIPELINE) != Some(name.as_str()))
        .then(|| Step::patch_unchanged(me, json!({"metadata": {"labels": {labels::PIPELINE: name}}})))
}

/// One look at a PipelineRun that is not over.
struct Round<'a> {
    facts: &'a Facts<'a>,
    spec: &'a PipelineRunSpec,
    now: Timestamp,
    status: PipelineRunStatus,
}

/// How long the parts of a run may take.
#[derive(Clone, Copy, Debug)]
struct Deadlines {
    pipeline: Option<(std::time::Duration, Timestamp)>,
    tasks: Option<Timestamp>,
    finally: Option<Timestamp>,
}

impl Round<'_> {
    fn decide(mut self) -> Plan<PipelineRunStatus> {
        let name = self.facts.cx.object.name();
        if self.spec.status.as_deref() == Some(cancel::PENDING) {
            return self.tell(&Verdict::running(cancel::PENDING, format!("PipelineRun {name:?} is pending")));
        }
        self.status.start_time.get_or_insert(Time(self.now));
        if self.spec.status.as_deref() == Some(cancel::CANCELLED) {
            let message = format!("PipelineRun {name:?} was cancelled");
            return self.stop_all(graph::CANCELLED, Verdict::failed("Cancelled", message));
        }
        match &self.facts.pipeline {
            Resolved::Pipeline(pipeline) => self.run(pipeline),
            Resolved::Asking(calls) => calls.iter().cloned().fold(Plan::rest(), Plan::ask),
            Resolved::Later(why) => self.wait_for_pipeline(why),
            Resolved::Refused { verdict, confirm } => {
                let mut plan = self.stop_all(graph::CANCELLED, verdict.clone());
                let confirm = confirm.iter().cloned().map(Step::confirm_gone);
                plan.steps.splice(0..0, confirm);
                plan
            }
        }
    }

    /// Whoever has the pipeline does not answer for now.
    fn wait_for_pipeline(self, why: &str) -> Plan<PipelineRunStatus> {
        let me = self.facts.cx.object;
        let began = self.status.start_time.as_ref().map_or(self.now, |time| time.0);
        match patience(began, self.now, why) {
            Ok(until) => {
                let message = format!("PipelineRun {} awaiting remote resource", me.key());
                self.tell(&Verdict::running("ResolvingPipelineRef", message)).wake_at(until)
            }
            Err(why) => {
                let verdict = resolve::not_got(me, &why);
                self.stop_all(graph::CANCELLED, verdict)
            }
        }
    }

    fn run(mut self, pipeline: &Pipeline) -> Plan<PipelineRunStatus> {
        let mut graph = pipeline.graph();
        let recorded = self.status.child_references.clone();
        let recorded: BTreeSet<&str> =
            recorded.iter().map(|child| child.pipeline_task_name.as_str()).collect();
        graph.see(&self.facts.children, &recorded);
        let deadlines = self.deadlines();
        let passed = |deadline: Option<Timestamp>| deadline.is_some_and(|deadline| deadline <= self.now);
        let table = &pipeline.table;
        graph.settle(
            Circumstances {
                cancelled: self.spec.status.as_deref() == Some(cancel::CANCELLED_RUN_FINALLY),
                stopped: self.spec.status.as_deref() == Some(cancel::STOPPED_RUN_FINALLY),
                pipeline_timed_out: passed(deadlines.pipeline.map(|(_, at)| at)),
                tasks_timed_out: self.status.finally_start_time.is_none() && passed(deadlines.tasks),
                finally_timed_out: passed(deadlines.finally),
            },
            table,
        );
        self.keep(&pipeline.spec);
        let steps = match self.steps(pipeline, &graph, deadlines) {
            Ok(steps) => steps,
            Err(verdict) => return self.stop_all(graph::CANCELLED, verdict),
        };
        self.status.child_references = self.references(pipeline, &graph, &steps.created);
        self.status.skipped_tasks = graph.skipped(table);
        let verdict = self.verdict(pipeline, &graph, deadlines);
        let now = self.now;
        let named = named(self.facts.cx.object, &pipeline.name);
        let mut plan = self.finish(verdict);
        plan.steps.splice(0..0, named.into_iter().chain(steps.steps));
        let to_come = [deadlines.pipeline.map(|(_, at)| at), deadlines.tasks, deadlines.finally];
        to_come.into_iter().flatten().filter(|deadline| *deadline > now).fold(plan, Plan::wake_at)
    }

    fn deadlines(&self) -> Deadlines {
        let started = self.status.start_time.as_ref().map_or(self.now, |time| time.0);
        let given = self.spec.timeouts.clone().unwrap_or_default();
        let pipeline = limit(given.pipeline);
        let finally = given.finally.map(pawl_api::meta::Duration::get);
        // What the last tasks may take is kept back for them.
        let tasks = match (given.tasks, pipeline, finally) {
            (Some(tasks), _, _) => Some(tasks.get()),
            (None, Some(pipeline), Some(finally)) => Some(pipeline.saturating_sub(finally)),
            (None, _, _) => None,
        };
        let tasks = tasks.filter(|limit| !limit.is_zero());
        let finally = finally.filter(|limit| !limit.is_zero());
        let begun = self.status.finally_start_time.as_ref().map(|time| time.0);
        Deadlines {
            pipeline: pipeline.map(|limit| (limit, later(started, limit))),
            tasks: tasks.map(|limit| later(started, limit)),
            finally: finally.zip(begun).map(|(limit, begun)| later(begun, limit)),
        }
    }

    /// What to start and what to end.
    fn steps(&mut self, pipeline: &Pipeline, graph: &Graph, deadlines: Deadlines) -> Result<Steps, Verdict> {
        let mut steps = Steps::default();
        let me = self.facts.cx.object;
        for lost in graph.nodes.iter().filter(|node| node.state == State::Lost) {
            let key = Key::new(me.namespace(), &children::name(me.name(), &lost.task.name));
            let gone = Reference { kind: TASK_RUN, key, uid: String::new() };
            steps.steps.push(Step::confirm_gone(gone));
        }
        let passed = |deadline: Option<Timestamp>| deadline.is_some_and(|deadline| deadline <= self.now);
        let in_finally = self.status.finally_start_time.is_some();
        let told = |node: &Node| node.run.as_ref().is_some_and(|run| is_told(run));
        for node in graph.nodes.iter().filter(|node| node.is_running() && !told(node)) {
            let late = passed(deadlines.pipeline.map(|(_, at)| at))
                || (!node.is_final && !in_finally && passed(deadlines.tasks))
                || (node.is_final && passed(deadlines.finally));
            let cancelled =
                !node.is_final && self.spec.status.as_deref() == Some(cancel::CANCELLED_RUN_FINALLY);
            let why = if late { graph::TIMED_OUT } else { graph::CANCELLED };
            if late || cancelled {
                steps.steps.extend(node.run.as_ref().map(|run| children::stop(run, why)));
            }
        }
        let next = graph.next();
        if next.is_empty() || passed(deadlines.pipeline.map(|(_, at)| at)) {
            return Ok(steps);
        }
        let refused = self.facts.cx.refusals.iter().find(|refusal| refusal.kind == TASK_RUN);
        if let Some(refused) = refused {
            let (name, message) = (&refused.key.name, &refused.failure.message);
            let message = format!("error creating TaskRun {name}: {message}");
            return Err(Verdict::failed("CreateRunFailed", message));
        }
        let making = Making {
            me,
            run: self.spec,
            pipeline: &pipeline.name,
            graph,
            table: &pipeline.table,
            contexts: &pipeline.contexts,
            values: &pipeline.values,
        };
        steps.steps.extend(workspace::claims(me, &self.spec.workspaces));
        for node in next.iter().filter_map(|at| graph.nodes.get(*at)) {
            if let Some(missing) = graph.missing(node) {
                let message = format!(
                    "invalid result reference in pipeline task {:?}: Could not find result with name {} for task {}",
                    node.task.name, missing.result, missing.task
                );
                return Err(Verdict::user_error("InvalidTaskResultReference", message));
            }
            if node.is_final {
                self.status.finally_start_time.get_or_insert(Time(self.now));
            }
            steps.steps.push(making.create(node));
            steps.created.insert(node.task.name.clone());
        }
        Ok(steps)
    }

    fn references(
        &self,
        pipeline: &Pipeline,
        graph: &Graph,
        created: &BTreeSet<String>,
    ) -> Vec<ChildReference> {
        let there = |node: &&Node| node.state != State::New || created.contains(&node.task.name);
        let reference = |node: &Node| {
            let mut rest = Map::new();
            if !node.task.when.is_empty() {
                let filled = graph.table(&pipeline.table, node).pipeline_task(&node.task);
                rest.insert("whenExpressions".to_owned(), json!(filled.when));
            }
            ChildReference {
                api_version: TASK_RUN.api_version(),
                kind: TASK_RUN.kind.to_string(),
                name: children::name(self.facts.cx.object.name(), &node.task.name),
                pipeline_task_name: node.task.name.clone(),
                rest,
            }
        };
        graph.nodes.iter().filter(there).map(reference).collect()
    }

    fn verdict(&mut self, pipeline: &Pipeline, graph: &Graph, deadlines: Deadlines) -> Verdict {
        let name = self.facts.cx.object.name();
        if let Some((limit, _)) = deadlines.pipeline.filter(|(_, deadline)| *deadline <= self.now) {
            let message = format!("PipelineRun {name:?} failed to finish within {:?}", go_duration(limit));
            return Verdict::failed("PipelineRunTimeout", message);
        }
        let Counts { succeeded, failed, ignored, cancelled, skipped, skipped_for_time, incomplete } =
            graph.counts();
        let spec_status = self.spec.status.as_deref();
        let graceful =
            matches!(spec_status, Some(cancel::CANCELLED_RUN_FINALLY | cancel::STOPPED_RUN_FINALLY));
        let completed = succeeded.saturating_add(failed).saturating_add(ignored).saturating_add(cancelled);
        let failures = match ignored {
            0 => format!("Failed: {failed}"),
            ignored => format!("Failed: {} (Ignored: {ignored})", failed.saturating_add(ignored)),
        };
        if incomplete > 0 {
            let reason = match spec_status {
                Some(cancel::CANCELLED_RUN_FINALLY) => "CancelledRunningFinally",
                Some(cancel::STOPPED_RUN_FINALLY) => "StoppedRunningFinally",
                _ if cancelled > 0 || (failed > 0 && graph.finals_are_done()) => "PipelineRunStopping",
                _ => "Running",
            };
            let message = format!(
                "Tasks Completed: {completed} ({failures}, Cancelled {cancelled}), Incomplete: {incomplete}, Skipped: \
                 {skipped}"
            );
            return Verdict::running(reason, message);
        }
        let message =
            format!("Tasks Completed: {completed} ({failures}, Cancelled {cancelled}), Skipped: {skipped}");
        let verdict = if failed > 0 || skipped_for_time > 0 {
            Verdict::failed("Failed", message)
        } else if graceful {
            Verdict::failed("Cancelled", format!("PipelineRun {name:?} was cancelled"))
        } else if cancelled > 0 {
            Verdict::failed("Cancelled", message)
        } else {
            let reason = if skipped > 0 { "Completed" } else { "Succeeded" };
            Verdict::succeeded(reason, message)
        };
        match pipeline.results(graph) {
            Ok(results) => {
                self.status.results = results;
                verdict
            }
            Err(problem) => {
                let message = format!(
                    "Failed to get PipelineResult from TaskRun Results for PipelineRun {name}: {problem}"
                );
                Verdict::failed("CouldntGetPipelineResult", message)
            }
        }
    }

    /// Ends the run now, and whatever runs for it.
    fn stop_all(self, why: &str, verdict: Verdict) -> Plan<PipelineRunStatus> {
        let stops: Vec<Step> = self.facts.live().map(|run| children::stop(run, why)).collect();
        let mut plan = self.finish(verdict);
        plan.steps.splice(0..0, stops);
        plan
    }

    #[expect(clippy::needless_pass_by_value, reason = "a verdict is given once")]
    fn finish(mut self, verdict: Verdict) -> Plan<PipelineRunStatus> {
        if verdict.is_final() {
            self.status.completion_time = Some(Time(self.now));
        }
        self.tell(&verdict)
    }

    /// Remembers what is run, so that a change of the Pipeline changes nothing that has begun.
    fn keep(&mut self, spec: &PipelineSpec) {
        let written_here = self.spec.pipeline_spec.is_some();
        let small = || serde_json::to_vec(spec).is_ok_and(|text| text.len() <= MAX_COPIED_BYTES);
        if self.status.pipeline_spec.is_none() && (!written_here || small()) {
            self.status.pipeline_spec = Some(spec.clone());
        }
    }

    fn tell(mut self, verdict: &Verdict) -> Plan<PipelineRunStatus> {
        let mut plan = Plan::rest();
        let before = self.facts.cx.typed.succeeded();
        if before.is_none() && self.status.start_time.is_some() {
            plan = plan.note(Note::normal("Started", ""));
        }
        plan.notes.extend(verdict.note(before));
        verdict.set(&mut self.status.conditions, self.now);
        plan.status(self.status)
    }
}

/// What one look does.
#[derive(Default)]
struct Steps {
    steps: Vec<Step>,
    /// The tasks whose TaskRuns it makes.
    created: BTreeSet<String>,
}

fn is_told(run: &Object) -> bool {
    run.raw().pointer("/spec/status").and_then(Value::as_str) == Some(cancel::TASK_RUN_CANCELLED)
}
