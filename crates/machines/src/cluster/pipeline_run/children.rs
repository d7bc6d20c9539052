//! How is a task of a pipeline written as a TaskRun?

use std::collections::BTreeMap;

use pawl_api::meta::names;
use pawl_api::tekton::{Param, PipelineRunSpec, PipelineTask, TASK_RUN, TaskSpec, WorkspaceBinding, labels};
use serde_json::{Map, Value, json};

use super::graph::{Graph, Node};
use crate::cluster::tekton::substitute::{Replacements, carry, names_param};
use crate::cluster::tekton::{MANAGED_BY, child_name, handed_down, workspace};
use crate::object::Object;
use crate::plan::Step;

/// Everything a TaskRun is made of.
#[derive(Debug)]
pub(super) struct Making<'a> {
    pub(super) me: &'a Object,
    pub(super) run: &'a PipelineRunSpec,
    /// What the pipeline is called: its own name, or that of the run into which it is written.
    pub(super) pipeline: &'a str,
    pub(super) graph: &'a Graph,
    /// The pipeline's parameters and what is said about the run.
    pub(super) table: &'a Replacements,
    /// Only the latter.
    pub(super) contexts: &'a Replacements,
    pub(super) values: &'a BTreeMap<String, Value>,
}

/// The name of a task's TaskRun.
pub(super) fn name(run: &str, task: &str) -> String {
    child_name(run, &format!("-{task}"))
}

/// Tells a TaskRun to stop, if it is still as it was seen: one that has ended meanwhile is not told.
pub(super) fn stop(run: &Object, why: &str) -> Step {
    Step::patch_unchanged(run, json!({"spec": {"status": "TaskRunCancelled", "statusMessage": why}}))
}

impl Making<'_> {
    pub(super) fn create(&self, node: &Node) -> Step {
        let task = self.graph.table(self.table, node).pipeline_task(&node.task);
        let mut spec = Map::new();
        let mut params = task.params.clone();
        if let Some(embedded) = &node.task.task_spec {
            let embedded = carry(&self.contexts.embedded(embedded));
            params.extend(self.carried(node, &task, &embedded));
            let mut written = serde_json::to_value(&embedded).unwrap_or_default();
            written.as_object_mut().map(|fields| fields.remove("metadata"));
            spec.insert("taskSpec".to_owned(), written);
        } else {
            let mut reference = serde_json::to_value(&task.task_ref).unwrap_or_default();
            if let Some(fields) = reference.as_object_mut().filter(|fields| !fields.contains_key("resolver"))
            {
                fields.entry("kind").or_insert_with(|| "Task".into());
            }
            spec.insert("taskRef".to_owned(), reference);
        }
        if !params.is_empty() {
            spec.insert("params".to_owned(), json!(params));
        }
        let workspaces = self.workspaces(&task);
        if !workspaces.is_empty() {
            spec.insert("workspaces".to_owned(), json!(workspaces));
        }
        spec.insert("serviceAccountName".to_owned(), self.account(&task.name).into());
        spec.extend(self.pod_template(&task.name).map(|template| ("podTemplate".to_owned(), template)));
        spec.extend(task.timeout.map(|timeout| ("timeout".to_owned(), json!(timeout))));
        spec.extend(task.retries.filter(|it| *it > 0).map(|retries| ("retries".to_owned(), json!(retries))));
        let manifest = json!({
            "metadata": {
                "name": name(self.me.name(), &task.name),
                "labels": self.labels(node), "annotations": handed_down(self.me.annotations()),
            },
            "spec": spec,
        });
        Step::create_child(self.me, TASK_RUN, manifest)
    }

    /// What a task that is written into the pipeline names of the pipeline's parameters and others' results.
    fn carried(&self, node: &Node, task: &PipelineTask, spec: &TaskSpec) -> Vec<Param> {
        let own = |name: &str| {
            spec.params.iter().any(|param| param.name == name)
                || task.params.iter().any(|param| param.name == name)
        };
        let text = serde_json::to_value(spec).unwrap_or_default();
        let given = self.values.iter().filter(|(name, _)| !own(name) && mentions(&text, name));
        let given = given.map(|(name, value)| Param { name: name.clone(), value: value.clone() });
        let results = node.needs.iter().filter_map(|need| {
            let name = need.as_param();
            let value = self.graph.result(need)?;
            mentions(&text, &name).then(|| Param { name, value: value.clone() })
        });
        given.chain(results).collect()
    }

    fn workspaces(&self, task: &PipelineTask) -> Vec<WorkspaceBinding> {
        let given = |name: &str| self.run.workspaces.iter().find(|binding| binding.name == name);
        let mut all: Vec<WorkspaceBinding> = task
            .workspaces
            .iter()
            .filter_map(|wanted| {
                let binding = given(wanted.workspace.as_deref().unwrap_or(&wanted.name))?;
                let mut binding = workspace::settled(self.me, binding);
                binding.sub_path = joined(binding.sub_path.as_deref(), wanted.sub_path.as_deref());
                binding.name.clone_from(&wanted.name);
                Some(binding)
            })
            .collect();
        // A task that is written into the pipeline sees the run's workspaces that it names.
        let text = task.task_spec.as_ref().and_then(|spec| serde_json::to_value(spec).ok());
        for binding in self.run.workspaces.iter().filter(|_| text.is_some()) {
            let named = format!("$(workspaces.{}.", binding.name);
            let declared =
                task.task_spec.iter().any(|spec| spec.workspaces.iter().any(|it| it.name == binding.name));
            let wanted =
                declared || text.as_ref().is_some_and(|text| any_text(text, &|text| text.contains(&named)));
            if wanted && !all.iter().any(|other| other.name == binding.name) {
                all.push(workspace::settled(self.me, binding));
            }
        }
        all
    }

    /// What is said about this one task.
    fn particular(&self, task: &str) -> Option<&Map<String, Value>> {
        let specs = self.run.rest.get("taskRunSpecs")?.as_array()?;
        let of = |spec: &&Value| spec.get("pipelineTaskName").and_then(Value::as_str) == Some(task);
        specs.iter().find(of)?.as_object()
    }

    fn account(&self, task: &str) -> String {
        let particular = self.particular(task).and_then(|spec| spec.get("serviceAccountName")?.as_str());
        let general = self.run.task_run_template.as_ref().and_then(|it| it.service_account_name.as_deref());
        particular.or(general).unwrap_or("default").to_owned()
    }

    fn pod_template(&self, task: &str) -> Option<Value> {
        let general = self.run.task_run_template.as_ref().and_then(|it| it.pod_template.clone());
        let particular = self.particular(task).and_then(|spec| spec.get("podTemplate")?.as_object().cloned());
        match (general, particular) {
            (None, None) => None,
            (general, particular) => {
                let mut merged = general.unwrap_or_default();
                merged.extend(particular.unwrap_or_default());
                Some(Value::Object(merged))
            }
        }
    }

    fn labels(&self, node: &Node) -> Map<String, Value> {
        let mut all = handed_down(self.me.labels());
        let metadata = node.task.task_spec.as_ref().and_then(|spec| spec.rest.get("metadata"));
        all.extend(metadata.and_then(|it| it.get("labels")?.as_object().cloned()).unwrap_or_default());
        let own = [
            (MANAGED_BY.0, MANAGED_BY.1),
            (labels::MEMBER_OF, if node.is_final { "finally" } else { "tasks" }),
            (labels::PIPELINE, self.pipeline),
            (labels::PIPELINE_RUN, self.me.name()),
            (labels::PIPELINE_RUN_UID, self.me.uid()),
            (labels::PIPELINE_TASK, &node.task.name),
        ];
        all.extend(own.map(|(key, value)| (key.to_owned(), names::label_value(value).into())));
        all
    }
}

fn joined(first: Option<&str>, second: Option<&str>) -> Option<String> {
    let parts: Vec<&str> = [first, second].into_iter().flatten().filter(|part| !part.is_empty()).collect();
    (!parts.is_empty()).then(|| parts.join("/"))
}

fn mentions(value: &Value, param: &str) -> bool {
    any_text(value, &|text| names_param(text, param))
}

fn any_text(value: &Value, wanted: &dyn Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => wanted(text),
        Value::Array(items) => items.iter().any(|item| any_text(item, wanted)),
        Value::Object(fields) => fields.values().any(|field| any_text(field, wanted)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
