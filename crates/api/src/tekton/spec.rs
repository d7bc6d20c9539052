//! What is to be run: pipelines, tasks, and how they name each other.
//!
//! Steps, volumes and sidecars stay JSON: they are Kubernetes' containers with a few fields more, and every version of
//! both adds some.

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

use super::Param;
use crate::meta::Duration;

/// Where a pipeline comes from: a name, or a resolver with its parameters.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PipelineRef {
    pub name: Option<String>,
    pub resolver: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<Param>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl PipelineRef {
    /// A pipeline in an OCI bundle.
    pub fn bundle(bundle: &str, name: &str) -> Self {
        Self {
            resolver: Some("bundles".to_owned()),
            params: vec![
                Param::text("bundle", bundle),
                Param::text("name", name),
                Param::text("kind", "pipeline"),
            ],
            ..Self::default()
        }
    }
}

/// Where a task comes from: a name, or a resolver with its parameters.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskRef {
    pub name: Option<String>,
    /// `Task`, unless a controller of somebody else is meant.
    pub kind: Option<String>,
    pub api_version: Option<String>,
    pub resolver: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<Param>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Tasks, and what comes after what.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "tekton.dev",
    version = "v1",
    kind = "Pipeline",
    plural = "pipelines",
    namespaced,
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct PipelineSpec {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<ParamSpec>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workspaces: Vec<WorkspaceDeclaration>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<PipelineTask>,
    /// Run when the others are over, however they ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finally: Vec<PipelineTask>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<Param>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A parameter that is expected, with what it is when nobody gives it. Declared results look the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParamSpec {
    pub name: String,
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// One task of a pipeline.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PipelineTask {
    #[serde(default)]
    pub name: String,
    pub task_ref: Option<TaskRef>,
    pub task_spec: Option<TaskSpec>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<Param>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workspaces: Vec<PipelineTaskWorkspace>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub run_after: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub when: Vec<WhenExpression>,
    pub retries: Option<i32>,
    pub timeout: Option<Duration>,
    /// `continue`: its failure does not end the pipeline.
    pub on_error: Option<String>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A condition on a task: `input` is, or is not, one of `values`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WhenExpression {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub input: String,
    /// `in` or `notin`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub operator: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Steps that run one after another in one Pod.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "tekton.dev",
    version = "v1",
    kind = "Task",
    plural = "tasks",
    namespaced,
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct TaskSpec {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<ParamSpec>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workspaces: Vec<WorkspaceDeclaration>,
    /// Containers with a few fields more (`script`, `onError`, `timeout`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Map<String, Value>>,
    /// What every step has unless it says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_template: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sidecars: Vec<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<ParamSpec>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A directory that a pipeline or task wants.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceDeclaration {
    pub name: String,
    pub mount_path: Option<String>,
    pub read_only: Option<bool>,
    pub optional: Option<bool>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// What a run gives for a wanted directory: `rest` is the source of a Kubernetes volume, or a `volumeClaimTemplate`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceBinding {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_path: Option<String>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Which of the pipeline's directories a task sees under which name.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PipelineTaskWorkspace {
    pub name: String,
    /// The pipeline's; without it, the one of the same name.
    pub workspace: Option<String>,
    pub sub_path: Option<String>,
}
