//! The parts of Tekton's `tekton.dev/v1` that Pawl reads and writes.
//!
//! Whatever else a run holds is kept in `rest` and written back as it was: on a cluster the runs are Tekton's,
//! and its versions know more fields than we do.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

use crate::meta::{Duration, Kind};

pub mod crds;
mod spec;

pub use spec::{
    ParamSpec, Pipeline, PipelineRef, PipelineSpec, PipelineTask, PipelineTaskWorkspace, Task, TaskRef,
    TaskSpec, WhenExpression, WorkspaceBinding, WorkspaceDeclaration,
};

pub const GROUP: &str = "tekton.dev";
pub const VERSION: &str = "v1";
pub const PIPELINE_RUN: Kind = Kind::of(GROUP, VERSION, "PipelineRun", "pipelineruns", true);
pub const TASK_RUN: Kind = Kind::of(GROUP, VERSION, "TaskRun", "taskruns", true);
pub const PIPELINE: Kind = Kind::of(GROUP, VERSION, "Pipeline", "pipelines", true);
pub const TASK: Kind = Kind::of(GROUP, VERSION, "Task", "tasks", true);

/// The one condition that says how a run fares.
pub const SUCCEEDED: &str = "Succeeded";

/// Values of `spec.status` with which a run is held back or ended.
pub mod cancel {
    pub const PENDING: &str = "PipelineRunPending";
    pub const CANCELLED: &str = "Cancelled";
    pub const CANCELLED_RUN_FINALLY: &str = "CancelledRunFinally";
    pub const STOPPED_RUN_FINALLY: &str = "StoppedRunFinally";
    pub const TASK_RUN_CANCELLED: &str = "TaskRunCancelled";
}

/// Labels that Tekton puts on TaskRuns.
pub mod labels {
    pub const PIPELINE_RUN: &str = "tekton.dev/pipelineRun";
    pub const PIPELINE_RUN_UID: &str = "tekton.dev/pipelineRunUID";
    pub const PIPELINE_TASK: &str = "tekton.dev/pipelineTask";
    pub const PIPELINE: &str = "tekton.dev/pipeline";
    pub const MEMBER_OF: &str = "tekton.dev/memberOf";
    pub const TASK_RUN: &str = "tekton.dev/taskRun";
    pub const TASK_RUN_UID: &str = "tekton.dev/taskRunUID";
    pub const TASK: &str = "tekton.dev/task";
}

/// A run of a pipeline.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "tekton.dev",
    version = "v1",
    kind = "PipelineRun",
    plural = "pipelineruns",
    namespaced,
    status = "PipelineRunStatus",
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct PipelineRunSpec {
    pub pipeline_ref: Option<PipelineRef>,
    pub pipeline_spec: Option<PipelineSpec>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<Param>,
    /// One of `cancel`, to end the run.
    pub status: Option<String>,
    pub timeouts: Option<Timeouts>,
    pub task_run_template: Option<TaskRunTemplate>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workspaces: Vec<WorkspaceBinding>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A name and a value: text, a list of texts or a map of texts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Param {
    pub name: String,
    #[serde(default)]
    pub value: Value,
}

impl Param {
    pub fn text(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: Value::String(value.into()) }
    }
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    pub pipeline: Option<Duration>,
    pub tasks: Option<Duration>,
    pub finally: Option<Duration>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskRunTemplate {
    pub service_account_name: Option<String>,
    pub pod_template: Option<Map<String, Value>>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PipelineRunStatus {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<RunCondition>,
    pub start_time: Option<Time>,
    pub completion_time: Option<Time>,
    pub finally_start_time: Option<Time>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub child_references: Vec<ChildReference>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped_tasks: Vec<SkippedTask>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<Param>,
    pub pipeline_spec: Option<PipelineSpec>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A condition as Tekton writes it: only type and status are sure to be there.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunCondition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    pub last_transition_time: Option<Time>,
    pub severity: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChildReference {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pipeline_task_name: String,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SkippedTask {
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub when_expressions: Vec<WhenExpression>,
}

/// A run of one task.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "tekton.dev",
    version = "v1",
    kind = "TaskRun",
    plural = "taskruns",
    namespaced,
    status = "TaskRunStatus",
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct TaskRunSpec {
    pub task_ref: Option<TaskRef>,
    pub task_spec: Option<TaskSpec>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<Param>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workspaces: Vec<WorkspaceBinding>,
    pub service_account_name: Option<String>,
    pub status: Option<String>,
    /// Why it was cancelled.
    pub status_message: Option<String>,
    pub retries: Option<i32>,
    pub timeout: Option<Duration>,
    pub pod_template: Option<Map<String, Value>>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskRunStatus {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<RunCondition>,
    pub pod_name: Option<String>,
    pub start_time: Option<Time>,
    pub completion_time: Option<Time>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepState>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<TaskRunResult>,
    /// The task as it was found when the run started.
    pub task_spec: Option<TaskSpec>,
    /// The attempts before this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retries_status: Vec<Value>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// What a task found out: text, a list of texts or a map of texts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskRunResult {
    pub name: String,
    #[serde(rename = "type", default, skip_serializing_if = "String::is_empty")]
    pub type_: String,
    #[serde(default)]
    pub value: Value,
}

/// Where a step is: waiting, running or terminated, as containers are.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepState {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub container: String,
    pub terminated: Option<Terminated>,
    pub running: Option<Map<String, Value>>,
    pub waiting: Option<Map<String, Value>>,
    /// `Completed`, `Error`, `OOMKilled`, `TaskRunTimeout`, …
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub termination_reason: String,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Terminated {
    #[serde(default)]
    pub exit_code: i32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    pub started_at: Option<Time>,
    pub finished_at: Option<Time>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl PipelineRun {
    /// The condition that says how the run fares.
    pub fn succeeded(&self) -> Option<&RunCondition> {
        self.status.as_ref().and_then(|status| succeeded(&status.conditions))
    }
}

impl TaskRun {
    /// The condition that says how the run fares.
    pub fn succeeded(&self) -> Option<&RunCondition> {
        self.status.as_ref().and_then(|status| succeeded(&status.conditions))
    }
}

fn succeeded(conditions: &[RunCondition]) -> Option<&RunCondition> {
    conditions.iter().find(|condition| condition.type_ == SUCCEEDED)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run() -> Value {
        json!({
            "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
            "metadata": {"name": "mend-1234abcd", "namespace": "prod"},
            "spec": {
                "pipelineRef": {"resolver": "bundles", "params": [
                    {"name": "bundle", "value": "registry.example.com/workflows/mend:1"},
                    {"name": "name", "value": "workflow"}, {"name": "kind", "value": "pipeline"},
                ]},
                "params": [{"name": "TARGET_RESOURCE", "value": "prod/deployment/web"}, {"name": "L", "value": ["a"]}],
                "timeouts": {"pipeline": "30m"},
                "taskRunTemplate": {"serviceAccountName": "mender", "podTemplate": {"securityContext": {"runAsNonRoot": true}}},
                "workspaces": [{"name": "w", "emptyDir": {}}],
            },
            "status": {
                "childReferences": [{"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "name": "mend-1234abcd-a", "pipelineTaskName": "a"}],
                "conditions": [{"type": "Succeeded", "status": "False", "reason": "Failed",
                    "message": "Tasks Completed: 1 (Failed: 1, Cancelled 0), Skipped: 1",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "skippedTasks": [{"name": "b", "reason": "PipelineRun was stopping"}],
                "provenance": {"featureFlags": {"x": 1}},
                "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:09Z",
            },
        })
    }

    #[test]
    fn the_kinds_are_named_as_their_types_are() {
        assert_eq!(PIPELINE_RUN, Kind::namespaced::<PipelineRun>());
        assert_eq!(TASK_RUN, Kind::namespaced::<TaskRun>());
    }

    #[test]
    fn a_pipeline_run_is_written_back_with_the_fields_we_do_not_know() {
        let read: PipelineRun = serde_json::from_value(run()).unwrap();
        assert_eq!(read.succeeded().unwrap().reason, "Failed");
        assert_eq!(serde_json::to_value(&read).unwrap(), run());
    }

    #[test]
    fn a_bundle_is_resolved_as_tekton_expects_it() {
        let reference = PipelineRef::bundle("registry.example.com/workflows/mend:1", "workflow");
        assert_eq!(serde_json::to_value(reference).unwrap(), run()["spec"]["pipelineRef"]);
    }

    #[test]
    fn the_step_that_was_killed_can_be_read_from_a_task_run() {
        let status = json!({
            "artifacts": {}, "podName": "oom-pod",
            "conditions": [{"type": "Succeeded", "status": "False", "reason": "StepOOM",
                "message": "\"step-s1\" exited with code 137: OOMKilled"}],
            "steps": [{"container": "step-s1", "name": "s1", "terminationReason": "OOMKilled",
                "terminated": {"exitCode": 137, "reason": "OOMKilled", "containerID": "x",
                    "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z"}}],
        });
        let read: TaskRunStatus = serde_json::from_value(status.clone()).unwrap();
        assert_eq!(read.steps[0].terminated.as_ref().unwrap().exit_code, 137);
        assert_eq!(serde_json::to_value(&read).unwrap(), status);
    }

    #[test]
    fn an_inline_pipeline_is_read_with_its_order_and_conditions() {
        let spec = json!({
            "tasks": [
                {"name": "a", "taskSpec": {"steps": [{"name": "s1", "image": "i", "command": ["/bin/true"]}]}},
                {"name": "b", "runAfter": ["a"], "retries": 2, "timeout": "5m",
                 "when": [{"input": "x", "operator": "in", "values": ["y"]}], "taskRef": {"name": "t"}},
            ],
            "finally": [{"name": "cleanup", "taskSpec": {"steps": [], "volumes": [{"name": "v"}]}}],
        });
        let read: PipelineSpec = serde_json::from_value(spec).unwrap();
        assert_eq!(read.tasks[1].run_after, ["a"]);
        assert_eq!(read.tasks[1].timeout, Some(Duration::from_mins(5)));
        assert_eq!(read.finally.len(), 1);
    }
}
