//! One run of a packaged remediation on one target.
//!
//! ```text
//! Pending → Running → Completed
//!    ↓         ↓
//! Skipped   Failed          (Pending may fail too)
//! ```

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::meta::phase::phases;
use crate::meta::reference::{NamedRef, ObjectRef};
use crate::meta::schema::is_false;
use crate::meta::{Condition, Duration, Gate, Kind, condition, names, schema};

pub const KIND: Kind =
    Kind::of(super::WORKFLOW_GROUP, super::VERSION, "WorkflowExecution", "workflowexecutions", true);

/// Back-off after failures before execution, one step per failure; then the retries are exhausted.
pub const BACKOFF: [Duration; 5] = [
    Duration::from_mins(1),
    Duration::from_mins(2),
    Duration::from_mins(4),
    Duration::from_mins(8),
    Duration::from_mins(10),
];

/// Whether it ended well; `Unknown` until it has ended.
pub const SUCCEEDED: &str = "Succeeded";

/// How long after its own timeout a run is given to end by itself.
pub const TIMEOUT_GRACE: Duration = Duration::from_secs(60);

/// One run of a packaged remediation on one target.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "workflowexecution.kubernaut.ai",
    version = "v1alpha1",
    kind = "WorkflowExecution",
    plural = "workflowexecutions",
    namespaced,
    status = "WorkflowExecutionStatus",
    shortname = "wfe",
    category = "pawl",
    derive = "PartialEq",
    doc = "One run of a packaged remediation on one target.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason"),
    printcolumn(name = "Workflow", type_ = "string", json_path = ".spec.workflowRef.workflowId"),
    printcolumn(name = "Target", type_ = "string", json_path = ".spec.targetResource"),
    printcolumn(name = "Duration", type_ = "string", json_path = ".status.duration", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    schema::rule("self == oldSelf", "the spec of a WorkflowExecution is immutable: another run is another object"),
]))]
pub struct WorkflowExecutionSpec {
    /// The request this is a step of.
    pub remediation_request_ref: Option<ObjectRef>,
    /// What is run.
    pub workflow_ref: WorkflowRef,
    /// What it is run on: `namespace/kind/name`, or `kind/name` for a cluster-scoped kind.
    #[schemars(length(min = 3, max = 1024))]
    pub target_resource: String,
    /// What it is told. Keys are UPPER_SNAKE_CASE.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "parameters_schema")]
    pub parameters: BTreeMap<String, String>,
    /// What runs it: a Tekton PipelineRun, or a Job of the image.
    #[serde(default)]
    pub engine: Engine,
    /// How it is run.
    #[serde(default)]
    pub execution_config: ExecutionConfig,
    /// How long after a success the same workflow is not run again on the same target.
    #[serde(default = "default_cooldown")]
    pub cooldown: Duration,
    /// Why this workflow was chosen, in words.
    #[schemars(length(max = 8192))]
    pub rationale: Option<String>,
    /// How sure the chooser was, from 0 to 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub confidence: Option<f64>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowRef {
    /// Which workflow it is, whatever its version: cooldowns and blocks go by it.
    #[schemars(length(min = 1, max = 253))]
    pub workflow_id: String,
    /// Its version.
    #[schemars(length(max = 128))]
    pub version: Option<String>,
    /// The OCI bundle (Tekton) or image (Job).
    #[schemars(length(min = 1, max = 1024))]
    pub container_image: String,
    /// Its digest, as `sha256:…`.
    #[schemars(length(max = 135), regex(pattern = r"^sha(256|512):[0-9a-f]{64,128}$"))]
    pub container_digest: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Engine {
    #[default]
    Tekton,
    Job,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionConfig {
    /// The ServiceAccount of the run.
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// How long the run may take.
    #[serde(default = "default_timeout")]
    pub timeout: Duration,
    /// The namespace of the run, which must be labelled `pawl.dev/allow-from` for ours; ours when unset.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

impl Default for ExecutionConfig {
    fn default() -> Self {
        Self { service_account_name: None, timeout: default_timeout(), namespace: None }
    }
}

/// What the run is called (I1).
pub fn run_name(execution: &str, execution_uid: &str) -> String {
    names::child(execution, &[execution_uid], 8, names::MAX_LABEL)
}

phases! {
    /// Where a run is.
    pub enum WorkflowExecutionPhase {
        Pending = "Pending" => [Running, Failed, Skipped],
        Running = "Running" => [Completed, Failed],
        Completed = "Completed" => [],
        Failed = "Failed" => [],
        Skipped = "Skipped" => [],
    }
    // One that nothing holds up is running when it is first written of.
    first: [Pending, Running, Failed, Skipped],
    terminal: [Completed, Failed, Skipped],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Outcome {
    Success,
    Failed,
    Timeout,
}

/// Where the run is and what came of it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkflowExecutionStatus {
    /// The metadata.generation that this status is about.
    pub observed_generation: Option<i64>,
    /// Where the run is.
    pub phase: Option<WorkflowExecutionPhase>,
    /// Why it is there, as one stable word.
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
    /// Why it is there, in words.
    #[schemars(length(max = 32_768))]
    pub message: Option<String>,
    /// What it works on, normalized.
    #[schemars(length(max = 16_384))]
    pub target: Option<String>,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// When the run was started.
    pub start_time: Option<Time>,
    /// When it is cancelled if it has not ended.
    pub deadline: Option<Time>,
    /// When it was over.
    pub completion_time: Option<Time>,
    /// How long it took.
    #[schemars(length(max = 64))]
    pub duration: Option<String>,
    /// The run: a PipelineRun, or a Job where that is the engine.
    pub pipeline_run_ref: Option<NamedRef>,
    /// The UID of the run, so that another of the same name is not taken for it.
    #[serde(rename = "pipelineRunUID")]
    #[schemars(length(max = 64))]
    pub pipeline_run_uid: Option<String>,
    /// How the run fares.
    pub pipeline_run_status: Option<PipelineRunSummary>,
    /// Why it failed.
    pub failure_details: Option<FailureDetails>,
    /// Why it was not run.
    pub skip_details: Option<SkipDetails>,
    /// How often this workflow failed on this target before it could execute, in a row.
    #[schemars(range(min = 0))]
    pub consecutive_failures: Option<i32>,
    /// When it may be tried again.
    pub next_allowed_execution: Option<Time>,
    /// Who cleared the block that an execution failure left.
    pub block_clearance: Option<BlockClearance>,
    /// What is known about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list_schema")]
    pub conditions: Vec<Condition>,
    /// The latest verdict of each gate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub gates: Vec<Gate>,
    /// Ids of ledger entries that are not stored yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 64)))]
    pub pending_audit_events: Vec<String>,
}

/// What the run's own status says, in short.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PipelineRunSummary {
    /// `True`, `False` or `Unknown`: whether it succeeded.
    #[schemars(length(max = 16))]
    pub status: String,
    /// Its own reason.
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
    /// Its own message.
    #[schemars(length(max = 32_768))]
    pub message: Option<String>,
    /// How many tasks are done.
    #[schemars(range(min = 0))]
    pub completed_tasks: i32,
    /// How many tasks there are.
    #[schemars(range(min = 0))]
    pub total_tasks: i32,
}

/// Why a run failed, for people and for whoever decides what to do next.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FailureDetails {
    /// The task that failed.
    #[schemars(length(max = 253))]
    pub failed_task_name: Option<String>,
    /// Its place in the pipeline, from 0.
    #[schemars(range(min = 0))]
    pub failed_task_index: Option<i32>,
    /// The step of it that failed.
    #[schemars(length(max = 253))]
    pub failed_step_name: Option<String>,
    /// Why, as one stable word: OOMKilled, DeadlineExceeded, Forbidden, ResourceExhausted, ImagePullBackOff,
    /// ConfigurationError, TaskRunFailed, Timeout, PipelineRunCreationFailed, PipelineRunDeleted,
    /// ValidationError, UnsupportedEngine, Cancelled or Unknown.
    #[schemars(length(max = 128))]
    pub reason: String,
    /// Why, in words.
    #[schemars(length(max = 32_768))]
    pub message: String,
    /// The exit code of the step.
    pub exit_code: Option<i32>,
    /// When it failed.
    pub failed_at: Option<Time>,
    /// How long it had run.
    #[schemars(length(max = 64))]
    pub execution_time_before_failure: Option<String>,
    /// What happened, told in a few sentences.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 8192))]
    pub natural_language_summary: String,
    /// Whether it had begun to execute, so that the target may have been changed.
    pub was_execution_failure: bool,
    /// Whether a person must look before it runs again.
    pub requires_manual_review: bool,
}

/// The parameter that every run gets: what it is run on, normalized.
pub const TARGET_PARAMETER: &str = "TARGET_RESOURCE";

/// Why a run was not started.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SkipDetails {
    /// Why, as one stable word: ResourceBusy, RecentlyRemediated, PreviousExecutionFailed, BackingOff,
    /// ExhaustedRetries or Frozen.
    #[schemars(length(max = 128))]
    pub reason: String,
    /// Why, in words.
    #[schemars(length(max = 32_768))]
    pub message: String,
    /// When that was decided.
    pub skipped_at: Option<Time>,
    /// Who holds the target.
    pub conflicting_workflow: Option<ConflictingWorkflow>,
    /// Who was there shortly before.
    pub recent_remediation: Option<RecentRemediation>,
    /// How much of the cooldown remains.
    #[schemars(length(max = 64))]
    pub cooldown_remaining: Option<String>,
}

/// The unit that holds the target.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConflictingWorkflow {
    /// Its kind.
    #[schemars(length(max = 63))]
    pub kind: String,
    /// Its namespace.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// What it runs.
    #[schemars(length(max = 253))]
    pub workflow_id: Option<String>,
    /// Since when.
    pub started_at: Option<Time>,
}

/// The run that started the cooldown.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RecentRemediation {
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// What it ran.
    #[schemars(length(max = 253))]
    pub workflow_id: String,
    /// When it was over.
    pub completed_at: Option<Time>,
    /// How it ended.
    #[schemars(length(max = 64))]
    pub outcome: Option<String>,
}

/// A person says that the target may be touched again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockClearance {
    /// Who.
    #[schemars(length(max = 253))]
    pub cleared_by: String,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleared_at: Option<Time>,
    /// Why.
    #[schemars(length(max = 4096))]
    pub reason: String,
    /// Whether it has been used up by a run.
    #[serde(skip_serializing_if = "is_false")]
    pub used: bool,
}

/// The schema of parameters: a map whose keys are UPPER_SNAKE_CASE.
pub(crate) fn parameters_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": { "type": "string", "maxLength": 8192 },
        "x-kubernetes-validations": [schema::rule(
            "self.all(key, key.matches('^[A-Z][A-Z0-9_]*$'))",
            "parameters have keys in UPPER_SNAKE_CASE",
        )],
    })
}

pub(crate) fn default_cooldown() -> Duration {
    Duration::from_mins(5)
}

fn default_timeout() -> Duration {
    Duration::from_mins(30)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Phase as _;

    #[test]
    fn a_finished_run_never_runs_again_i2() {
        crate::meta::phase::check::<WorkflowExecutionPhase>();
        for from in WorkflowExecutionPhase::TERMINAL {
            for to in WorkflowExecutionPhase::ALL {
                assert_eq!(WorkflowExecutionPhase::may_move(Some(*from), *to), from == to);
            }
        }
    }
}
