//! Which pipeline does a PipelineRun run, with which parameters, and can it be run at all?

use std::collections::BTreeMap;

use pawl_api::tekton::{Param, PipelineRun, PipelineSpec, PipelineTask, TaskSpec};
use serde_json::Value;

use super::graph::Graph;
use crate::cluster::task_run::bad_params;
use crate::cluster::tekton::origin::BundleEntry;
use crate::cluster::tekton::origin::{Origin, Wanted};
use crate::cluster::tekton::spec::{self, MAX_TASKS};
use crate::cluster::tekton::substitute::{Replacements, ResultName, results_named_in};
use crate::cluster::tekton::values::{self, Problem};
use crate::cluster::tekton::{Verdict, workspace};
use crate::object::{Object, Reference};
use crate::view::Context;

/// What is known of the pipeline in this look.
#[derive(Debug)]
pub(super) enum Resolved {
    Pipeline(Box<Pipeline>),
    /// To be asked for first.
    Asking(Vec<BundleEntry>),
    /// Asked for, and not answered for now, and why.
    Later(String),
    /// The run fails, once it is confirmed that these objects are not there.
    Refused {
        verdict: Verdict,
        confirm: Vec<Reference>,
    },
}

/// A pipeline that can be run.
#[derive(Debug)]
pub(super) struct Pipeline {
    /// Its own name, or that of the run into which it is written.
    pub(super) name: String,
    /// As it was written.
    pub(super) spec: PipelineSpec,
    pub(super) table: Replacements,
    pub(super) contexts: Replacements,
    pub(super) values: BTreeMap<String, Value>,
}

/// Finds the pipeline and, before anything has run, checks it and its tasks.
pub(super) fn resolve(cx: &Context<'_, PipelineRun>, is_new: bool) -> Resolved {
    let (me, run) = (cx.object, cx.typed);
    let kept = run.status.as_ref().and_then(|status| status.pipeline_spec.clone());
    let wanted = run.spec.pipeline_ref.as_ref().map(Wanted::from);
    let name = wanted.and_then(|wanted| wanted.target_name()).unwrap_or(me.name()).to_owned();
    let found = match (&run.spec.pipeline_spec, kept, wanted) {
        (Some(spec), _, None) => Ok(spec.clone()),
        (None, Some(kept), Some(_)) => Ok(kept),
        (None, None, Some(wanted)) => match wanted.find::<PipelineSpec, _>(cx) {
            Origin::Found(spec) => Ok(*spec),
            Origin::Ask(call) => return Resolved::Asking(vec![call]),
            Origin::Later(why) => return Resolved::Later(why),
            Origin::Absent(reference) => {
                let wanted = &reference.key.name;
                let why = format!(
                    "error when getting Pipeline for PipelineRun {}: tekton client cannot get pipeline {wanted} from \
                     local cluster: pipelines.tekton.dev {wanted:?} not found",
                    me.name()
                );
                Err((why, vec![reference]))
            }
            Origin::Refused(why) => Err((why, vec![])),
        },
        (Some(_), _, Some(_)) => {
            Err(("expected exactly one, got both: spec.pipelineRef, spec.pipelineSpec".into(), vec![]))
        }
        (None, _, None) => {
            Err(("expected exactly one, got neither: spec.pipelineRef, spec.pipelineSpec".into(), vec![]))
        }
    };
    let spec = match found {
        Ok(spec) => spec,
        Err((why, confirm)) => {
            return Resolved::Refused { verdict: not_got(me, &why), confirm };
        }
    };
    match Pipeline::check(cx, name, spec) {
        Ok(pipeline) if is_new => pipeline.check_tasks(cx),
        Ok(pipeline) => Resolved::Pipeline(Box::new(pipeline)),
        Err(verdict) => Resolved::Refused { verdict, confirm: vec![] },
    }
}

/// The verdict on a run whose pipeline cannot be had.
pub(super) fn not_got(me: &Object, why: &str) -> Verdict {
    let message = format!("Error retrieving pipeline for pipelinerun {}: {why}", me.key());
    Verdict::failed("CouldntGetPipeline", message)
}

impl Pipeline {
    fn check(cx: &Context<'_, PipelineRun>, name: String, spec: PipelineSpec) -> Result<Self, Verdict> {
        let (me, run) = (cx.object, cx.typed);
        let of = format!("{}/{name}", me.namespace().unwrap_or_default());
        if let Err(invalid) = Graph::new(&spec) {
            let part = if invalid.of_finally { " for finally clause" } else { "" };
            let message =
                format!("PipelineRun {}'s Pipeline DAG is invalid{part}: {}", me.key(), invalid.problem);
            return Err(Verdict::user_error("PipelineInvalidGraph", message));
        }
        if let Some(problem) = spec_problem(&spec) {
            let message = format!("Pipeline {of} can't be Run; it has an invalid spec: {problem}");
            return Err(Verdict::user_error("PipelineValidationFailed", message));
        }
        let values = values::resolve(&spec.params, &run.spec.params).map_err(|problem| {
            let (reason, message) = match problem {
                Problem::Missing(names) => (
                    "ParameterMissing",
                    format!(
                        "PipelineRun {} is missing some parameters required by Pipeline {of}: pipelineRun missing \
                         parameters: [{}]",
                        me.key(),
                        names.join(" ")
                    ),
                ),
                Problem::Mismatch(names) => (
                    "ParameterTypeMismatch",
                    format!(
                        "PipelineRun {} parameters have mismatching types with Pipeline {of}'s parameters: parameters \
                         have inconsistent types: [{}]",
                        me.key(),
                        names.join(" ")
                    ),
                ),
                Problem::MissingKeys(keys) => (
                    "ObjectParameterMissKeys",
                    format!(
                        "PipelineRun {} parameters is missing object keys required by Pipeline {of}'s parameters: \
                         pipelineRun missing object keys for parameters: {keys:?}",
                        me.key()
                    ),
                ),
            };
            Verdict::user_error(reason, message)
        })?;
        if let Some(problem) = workspace_problem(&spec, run) {
            let message = format!(
                "PipelineRun {} doesn't bind Pipeline {of}'s Workspaces correctly: {problem}",
                me.key()
            );
            return Err(Verdict::user_error("InvalidWorkspaceBindings", message));
        }
        let mut contexts = Replacements::default();
        contexts.text("context.pipelineRun.name", me.name());
        contexts.text("context.pipelineRun.namespace", me.namespace().unwrap_or_default());
        contexts.text("context.pipelineRun.uid", me.uid());
        contexts.text("context.pipeline.name", name.as_str());
        for declared in &spec.workspaces {
            let bound = run.spec.workspaces.iter().any(|binding| binding.name == declared.name);
            contexts.text(format!("workspaces.{}.bound", declared.name), bound.to_string());
        }
        let mut table = contexts.clone();
        for (name, value) in &values {
            table.param(name, value);
        }
        Ok(Self { name, spec, table, contexts, values })
    }

    /// Looks at the tasks themselves, which may have to be asked for.
    fn check_tasks(self, cx: &Context<'_, PipelineRun>) -> Resolved {
        let of = format!("{}/{}", cx.object.namespace().unwrap_or_default(), self.name);
        let mut found: BTreeMap<&str, TaskSpec> = BTreeMap::new();
        let mut asking = Vec::new();
        for task in self.tasks() {
            let origin = match (&task.task_spec, &self.table.pipeline_task(task).task_ref) {
                (Some(spec), _) => Origin::Found(Box::new(spec.clone())),
                (None, Some(reference)) => Wanted::from(reference).find::<TaskSpec, _>(cx),
                (None, None) => continue,
            };
            let (why, confirm) = match origin {
                Origin::Found(spec) => {
                    found.insert(&task.name, *spec);
                    continue;
                }
                Origin::Ask(call) => {
                    asking.push(call);
                    continue;
                }
                Origin::Later(why) => return Resolved::Later(why),
                Origin::Absent(reference) => {
                    let name = &reference.key.name;
                    (
                        format!("Couldn't retrieve Task {name:?}: tasks.tekton.dev {name:?} not found"),
                        vec![reference],
                    )
                }
                Origin::Refused(why) => {
                    (format!("Couldn't retrieve Task for {:?}: {why}", task.name), vec![])
                }
            };
            let message = format!("Pipeline {of} can't be Run; it contains Tasks that don't exist: {why}");
            return Resolved::Refused { verdict: Verdict::failed("CouldntGetTask", message), confirm };
        }
        if !asking.is_empty() {
            asking.sort();
            asking.dedup();
            return Resolved::Asking(asking);
        }
        match self.task_problem(&found) {
            Some(verdict) => Resolved::Refused { verdict, confirm: vec![] },
            None => Resolved::Pipeline(Box::new(self)),
        }
    }

    fn task_problem(&self, found: &BTreeMap<&str, TaskSpec>) -> Option<Verdict> {
        for task in self.tasks() {
            let spec = found.get(task.name.as_str())?;
            if let Some(problem) = spec::problem(spec) {
                return Some(Verdict::user_error(
                    "PipelineValidationFailed",
                    format!("{}: {problem}", task.name),
                ));
            }
            // Whether a list or a map arrives is known when it does: here only what is missing counts.
            let given: Vec<Param> = task.params.clone();
            let missing = values::resolve(&spec.params, &given).err();
            let inherited = |names: &Vec<String>| {
                task.task_spec.is_some() && names.iter().all(|it| self.values.contains_key(it))
            };
            match &missing {
                Some(problem @ Problem::Missing(names)) if !inherited(names) => {
                    let message = bad_params(&task.name, problem);
                    return Some(Verdict::user_error("PipelineValidationFailed", message));
                }
                _ => {}
            }
            if let Some(need) = needs(task).into_iter().find(|need| !promised(found, need)) {
                let message = format!(
                    "invalid result reference in pipeline task {:?}: {:?} is not a named result returned by pipeline \
                     task {:?}",
                    task.name, need.result, need.task
                );
                return Some(Verdict::user_error("InvalidTaskResultReference", message));
            }
        }
        for result in &self.spec.results {
            let mut named = Vec::new();
            results_named_in(&result.value, &mut named);
            if let Some(need) = named.into_iter().find(|need| !promised(found, need)) {
                let message = format!(
                    "invalid pipeline result {:?}: {:?} is not a named result returned by pipeline task {:?}",
                    result.name, need.result, need.task
                );
                return Some(Verdict::user_error("InvalidTaskResultReference", message));
            }
        }
        None
    }

    fn tasks(&self) -> impl Iterator<Item = &PipelineTask> {
        self.spec.tasks.iter().chain(&self.spec.finally)
    }

    /// The tasks in order, as if nothing had run yet. That there is an order was checked.
    pub(super) fn graph(&self) -> Graph {
        Graph::new(&self.spec).unwrap_or_default()
    }

    /// What the pipeline found out. What comes of a task that did not succeed is left out.
    ///
    /// # Errors
    /// When a task succeeded and did not leave what it promised.
    pub(super) fn results(&self, graph: &Graph) -> Result<Vec<Param>, String> {
        let mut results = Vec::new();
        let mut absent = Vec::new();
        for result in &self.spec.results {
            let mut named = Vec::new();
            results_named_in(&result.value, &mut named);
            if !named.iter().all(|need| graph.has_succeeded(&need.task)) {
                continue;
            }
            let mut table = self.table.clone();
            for need in &named {
                match graph.result(need) {
                    Some(value) => table.result(&need.task, &need.result, value),
                    None => absent.push(result.name.clone()),
                }
            }
            results.push(Param { name: result.name.clone(), value: table.apply_value(&result.value) });
        }
        absent.dedup();
        if absent.is_empty() {
            Ok(results)
        } else {
            Err(format!("invalid pipelineresults [{}], the referenced results don't exist", absent.join(" ")))
        }
    }
}

/// What is wrong with a pipeline, apart from its order and its tasks.
fn spec_problem(spec: &PipelineSpec) -> Option<String> {
    if spec.tasks.is_empty() {
        return Some("missing field(s): spec.tasks".to_owned());
    }
    let count = spec.tasks.len().saturating_add(spec.finally.len());
    if count > MAX_TASKS {
        return Some(format!("spec.tasks: there are {count}, at most {MAX_TASKS} are run"));
    }
    if let Some(task) = spec.finally.iter().find(|task| !task.run_after.is_empty()) {
        return Some(format!(
            "invalid value: no runAfter allowed under spec.finally, final task {} has runAfter specified",
            task.name
        ));
    }
    spec.tasks.iter().chain(&spec.finally).find_map(spec::pipeline_task_problem)
}

fn workspace_problem(spec: &PipelineSpec, run: &PipelineRun) -> Option<String> {
    let bound = |name: &str| run.spec.workspaces.iter().any(|binding| binding.name == name);
    let missing = spec.workspaces.iter().find(|it| it.optional != Some(true) && !bound(&it.name));
    if let Some(missing) = missing {
        return Some(format!(
            "pipeline requires workspace with name {:?} be provided by pipelinerun",
            missing.name
        ));
    }
    run.spec.workspaces.iter().find_map(workspace::problem)
}

fn needs(task: &PipelineTask) -> Vec<ResultName> {
    let mut found = Vec::new();
    let value = serde_json::to_value(task).unwrap_or_default();
    results_named_in(&value, &mut found);
    found
}

/// Whether a task says that it will leave this result.
fn promised(found: &BTreeMap<&str, TaskSpec>, need: &ResultName) -> bool {
    let spec = found.get(need.task.as_str());
    spec.is_some_and(|spec| spec.results.iter().any(|result| result.name == need.result))
}
