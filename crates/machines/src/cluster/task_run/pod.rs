//! How is a TaskRun written as a Pod?
//!
//! Each step is a container; [`InOrder`] makes them run one after another. Scripts are annotations of the Pod that a
//! downward volume shows as files: they reach the container as data, whatever they hold, and no shell writes them.

use std::collections::BTreeMap;

use pawl_api::pawl::in_order::{self, InOrder, Report};
use pawl_api::tekton::{TaskRunSpec, TaskSpec, WorkspaceBinding, WorkspaceDeclaration, labels};
use serde_json::{Map, Value, json};

use crate::cluster::tekton::spec::{container_name, goes_on, script};
use crate::cluster::tekton::substitute::Replacements;
use crate::cluster::tekton::{MANAGED_BY, child_name, handed_down, workspace};
use crate::object::Object;

/// Volumes that every Pod of a TaskRun has, and where they are seen.
const HOME: (&str, &str) = ("tekton-internal-home", "/tekton/home");
const WORKSPACE: (&str, &str) = ("tekton-internal-workspace", "/workspace");
const RESULTS: (&str, &str) = ("tekton-internal-results", "/tekton/results");
/// Written by the node alone.
const STEPS: (&str, &str) = ("tekton-internal-steps", "/tekton/steps");
const SCRIPTS: (&str, &str) = ("tekton-internal-scripts", "/tekton/scripts");

/// What a script without a first line of its own starts with: Tekton's own words.
const DEFAULT_PREAMBLE: &str = "#!/bin/sh\nset -e\n";

/// Owner may do all, everybody may read and run: steps may run as anybody.
const SCRIPT_MODE: u32 = 0o755;

/// Of a step, what a container does not have.
const NOT_A_CONTAINERS: &[&str] =
    &["script", "onError", "computeResources", "displayName", "params", "resources"];

/// Everything a Pod is made of.
#[derive(Debug)]
pub(super) struct Making<'a> {
    pub(super) me: &'a Object,
    pub(super) run: &'a TaskRunSpec,
    /// As it was written: nothing is filled in yet.
    pub(super) spec: &'a TaskSpec,
    /// What the task is called: its own name, or that of the run into which it is written.
    pub(super) task: &'a str,
    pub(super) values: &'a BTreeMap<String, Value>,
    pub(super) attempt: usize,
}

/// The name of an attempt's Pod.
pub(super) fn name(run: &str, attempt: usize) -> String {
    let suffix = if attempt == 0 { "-pod".to_owned() } else { format!("-pod-retry{attempt}") };
    child_name(run, &suffix)
}

/// What a step's container is called.
pub(super) fn step_container(at: usize, step: &Map<String, Value>) -> String {
    container_name(step).map_or_else(|| format!("step-unnamed-{at}"), |name| format!("step-{name}"))
}

/// The workspaces of a task: those it declares, and, where the task is written into its run, those it is given.
pub(super) fn declarations(run: &TaskRunSpec, spec: &TaskSpec) -> Vec<WorkspaceDeclaration> {
    let mut all = spec.workspaces.clone();
    if run.task_spec.is_some() {
        for binding in &run.workspaces {
            if !all.iter().any(|declared| declared.name == binding.name) {
                all.push(WorkspaceDeclaration {
                    name: binding.name.clone(),
                    ..WorkspaceDeclaration::default()
                });
            }
        }
    }
    all
}

impl Making<'_> {
    pub(super) fn manifest(&self) -> Value {
        let declared = declarations(self.run, self.spec);
        let spec = self.replacements(&declared).task(self.spec);
        let mut pod = Draft::default();
        self.internal_volumes(&mut pod);
        pod.volumes.extend(spec.volumes.iter().cloned().map(Value::Object));
        self.mount_workspaces(&declared, &mut pod);
        let steps: Vec<Value> = spec
            .steps
            .iter()
            .enumerate()
            .map(|(at, step)| {
                let step = merged(spec.step_template.as_ref(), step);
                self.container(step_container(at, &step), &step, &mut pod)
            })
            .collect();
        // A container that always restarts and starts before the others runs beside them, and ends after them.
        let sidecars: Vec<Value> = spec
            .sidecars
            .iter()
            .map(|sidecar| {
                let name = format!("sidecar-{}", container_name(sidecar).unwrap_or_default());
                let mut container = self.container(name, sidecar, &mut pod);
                set(&mut container, "restartPolicy", "Always".into());
                container
            })
            .collect();
        if !pod.scripts.is_empty() {
            pod.volumes.push(json!({"name": SCRIPTS.0, "downwardAPI": {"items": pod.scripts}}));
        }
        self.assemble(pod, steps, sidecars)
    }

    fn assemble(&self, pod: Draft, steps: Vec<Value>, sidecars: Vec<Value>) -> Value {
        let template = self.run.pod_template.clone().unwrap_or_default();
        let mut spec = template.clone();
        spec.retain(|key, _| !matches!(key.as_str(), "env" | "volumes"));
        let more = template.get("volumes").and_then(Value::as_array).cloned().unwrap_or_default();
        let volumes: Vec<Value> = pod.volumes.into_iter().chain(more).collect();
        let account = self.run.service_account_name.clone().unwrap_or_else(|| "default".to_owned());
        spec.insert("restartPolicy".to_owned(), "Never".into());
        spec.insert("serviceAccountName".to_owned(), account.into());
        spec.insert("volumes".to_owned(), volumes.into());
        spec.insert("containers".to_owned(), steps.into());
        if !sidecars.is_empty() {
            spec.insert("initContainers".to_owned(), sidecars.into());
        }
        let mut annotations = handed_down(self.me.annotations());
        annotations.extend(pod.annotations);
        let order = serde_json::to_string(&self.order()).unwrap_or_default();
        annotations.insert(in_order::ANNOTATION.to_owned(), order.into());
        json!({
            "metadata": {
                "name": name(self.me.name(), self.attempt), "labels": self.labels(), "annotations": annotations,
            },
            "spec": spec,
        })
    }

    fn labels(&self) -> Map<String, Value> {
        let mut all = handed_down(self.me.labels());
        all.insert(MANAGED_BY.0.to_owned(), MANAGED_BY.1.into());
        all.insert(labels::TASK_RUN.to_owned(), pawl_api::meta::names::label_value(self.me.name()).into());
        all.insert(labels::TASK_RUN_UID.to_owned(), self.me.uid().into());
        if self.run.task_ref.is_some() {
            all.insert(labels::TASK.to_owned(), pawl_api::meta::names::label_value(self.task).into());
        }
        all
    }

    fn order(&self) -> InOrder {
        let steps = self.spec.steps.iter().enumerate();
        let files: Vec<String> = self.spec.results.iter().map(|result| result.name.clone()).collect();
        InOrder {
            go_on_after: steps
                .filter(|(_, step)| goes_on(step))
                .map(|(at, step)| step_container(at, step))
                .collect(),
            report: (!files.is_empty()).then(|| Report { volume: RESULTS.0.to_owned(), files }),
            exit_codes: Some(STEPS.0.to_owned()),
        }
    }

    fn replacements(&self, declared: &[WorkspaceDeclaration]) -> Replacements {
        let mut table = Replacements::default();
        for (name, value) in self.values {
            table.param(name, value);
        }
        table.text("context.taskRun.name", self.me.name());
        table.text("context.taskRun.namespace", self.me.namespace().unwrap_or_default());
        table.text("context.taskRun.uid", self.me.uid());
        table.text("context.task.name", self.task);
        table.text("context.task.retry-count", self.attempt.to_string());
        for workspace in declared {
            let bound = self.binding(&workspace.name);
            let key = |what: &str| format!("workspaces.{}.{what}", workspace.name);
            let claim = bound
                .as_ref()
                .and_then(|it| it.rest.get("persistentVolumeClaim")?.get("claimName")?.as_str());
            table.text(key("path"), bound.as_ref().map(|_| workspace::path(workspace)).unwrap_or_default());
            table.text(key("bound"), bound.is_some().to_string());
            table.text(key("claim"), claim.unwrap_or_default());
            table.text(
                key("volume"),
                bound.as_ref().map(|_| volume_name(&workspace.name)).unwrap_or_default(),
            );
        }
        for result in &self.spec.results {
            let path = format!("{}/{}", RESULTS.1, result.name);
            for key in ["results.{}.path", "results[\"{}\"].path", "results['{}'].path"] {
                table.text(key.replace("{}", &result.name), path.clone());
            }
        }
        for (at, step) in self.spec.steps.iter().enumerate() {
            let container = step_container(at, step);
            table.text(
                format!("steps.{container}.exitCode.path"),
                format!("{}/{container}/exitCode", STEPS.1),
            );
        }
        table
    }

    fn binding(&self, workspace: &str) -> Option<WorkspaceBinding> {
        let given = self.run.workspaces.iter().find(|binding| binding.name == workspace)?;
        Some(workspace::settled(self.me, given))
    }

    fn internal_volumes(&self, pod: &mut Draft) {
        for (name, path) in [HOME, WORKSPACE, RESULTS, STEPS] {
            pod.volumes.push(json!({"name": name, "emptyDir": {}}));
            pod.mounts.push(json!({"name": name, "mountPath": path, "readOnly": name == STEPS.0}));
        }
    }

    fn mount_workspaces(&self, declared: &[WorkspaceDeclaration], pod: &mut Draft) {
        for workspace in declared {
            let Some(binding) = self.binding(&workspace.name) else { continue };
            let name = volume_name(&workspace.name);
            let mut volume = binding.rest.clone();
            volume.insert("name".to_owned(), name.clone().into());
            pod.volumes.push(Value::Object(volume));
            let mut mount = json!({"name": name, "mountPath": workspace::path(workspace),
                "readOnly": workspace.read_only.unwrap_or_default()});
            if let Some(path) = binding.sub_path.filter(|path| !path.is_empty()) {
                set(&mut mount, "subPath", path.into());
            }
            pod.mounts.push(mount);
        }
    }

    fn container(&self, name: String, step: &Map<String, Value>, pod: &mut Draft) -> Value {
        let mut container = step.clone();
        container.retain(|key, _| !NOT_A_CONTAINERS.contains(&key.as_str()));
        let resources = step.get("computeResources").or_else(|| step.get("resources")).cloned();
        container.extend(resources.map(|resources| ("resources".to_owned(), resources)));
        let own = step.get("volumeMounts").and_then(Value::as_array).cloned().unwrap_or_default();
        let taken: Vec<&str> = own.iter().filter_map(|mount| mount.get("mountPath")?.as_str()).collect();
        // Whoever mounts something of their own at the same place means it.
        let free = |mount: &&Value| {
            mount.get("mountPath").and_then(Value::as_str).is_none_or(|at| !taken.contains(&at))
        };
        let mut mounts: Vec<Value> = pod.mounts.iter().filter(free).cloned().collect();
        mounts.extend(own.iter().cloned());
        if let Some(text) = script(step) {
            let file = format!("script-{}", pod.scripts.len());
            mounts.push(json!({"name": SCRIPTS.0, "mountPath": SCRIPTS.1, "readOnly": true}));
            container.insert("command".to_owned(), json!([format!("{}/{file}", SCRIPTS.1)]));
            pod.script(&file, text);
        }
        let shared =
            self.run.pod_template.as_ref().and_then(|template| template.get("env")).and_then(Value::as_array);
        if let Some(shared) = shared {
            let merged = by_key("name", shared, step.get("env").and_then(Value::as_array));
            container.insert("env".to_owned(), merged);
        }
        container.insert("name".to_owned(), name.into());
        container.insert("volumeMounts".to_owned(), mounts.into());
        container.insert("terminationMessagePath".to_owned(), "/tekton/termination".into());
        Value::Object(container)
    }
}

/// A Pod in the making.
#[derive(Default)]
struct Draft {
    volumes: Vec<Value>,
    /// What every container sees.
    mounts: Vec<Value>,
    scripts: Vec<Value>,
    annotations: Map<String, Value>,
}

impl Draft {
    fn script(&mut self, file: &str, text: &str) {
        let key = format!("pawl.dev/{file}");
        let text = if text.starts_with("#!") { text.to_owned() } else { format!("{DEFAULT_PREAMBLE}{text}") };
        self.scripts.push(json!({"path": file, "mode": SCRIPT_MODE,
            "fieldRef": {"apiVersion": "v1", "fieldPath": format!("metadata.annotations['{key}']")}}));
        self.annotations.insert(key, text.into());
    }
}

/// A step with what the template gives to all: variables by name, mounts by path, the rest as a whole.
fn merged(template: Option<&Map<String, Value>>, step: &Map<String, Value>) -> Map<String, Value> {
    let mut merged = template.cloned().unwrap_or_default();
    for (key, value) in step {
        let before = merged.get(key).and_then(Value::as_array).cloned();
        let value = match (key.as_str(), before, value.as_array()) {
            ("env", Some(before), Some(own)) => by_key("name", &before, Some(own)),
            ("volumeMounts", Some(before), Some(own)) => by_key("mountPath", &before, Some(own)),
            _ => value.clone(),
        };
        merged.insert(key.clone(), value);
    }
    merged
}

/// Both lists, without those of the first that the second has too.
fn by_key(key: &str, first: &[Value], second: Option<&Vec<Value>>) -> Value {
    let second = second.map(Vec::as_slice).unwrap_or_default();
    let kept = first.iter().filter(|one| !second.iter().any(|two| two.get(key) == one.get(key)));
    kept.chain(second).cloned().collect()
}

fn volume_name(workspace: &str) -> String {
    format!("ws-{}", pawl_api::meta::names::hash(&[workspace], 10))
}

fn set(object: &mut Value, key: &str, value: Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(key.to_owned(), value);
    }
}
