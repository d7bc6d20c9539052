//! One policy-gated action on one target.
//!
//! ```text
//! validating → validated → waiting_approval → executing → rollback_ready → completed
//!     │            └───────────────────────────↗   └────────────────────────↗
//!     └──── any of them → failed; a dry run ends as completed
//! ```

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

use super::actions::{self, Action, ActionParameters};
use crate::meta::phase::phases;
use crate::meta::reference::ObjectRef;
use crate::meta::schema::is_false;
use crate::meta::{Condition, Duration, Gate, Kind, condition, names, schema};

pub const KIND: Kind =
    Kind::of(super::ACTION_GROUP, super::VERSION, "KubernetesExecution", "kubernetesexecutions", true);

/// Whether it ended well; `Unknown` until it has ended.
pub const SUCCEEDED: &str = "Succeeded";

/// Whether the API server checks that approvers are who they say. Where it does not, approvals do not count.
pub const APPROVERS_VERIFIED: &str = "ApproversVerified";

/// What was approved moved before it was done; the message says what. Approvals of before no longer count.
pub const APPROVALS_OUTDATED: &str = "ApprovalsOutdated";

/// The tail of a pod's log that is kept (I6).
pub const MAX_POD_LOG_BYTES: usize = 16 * 1024;
/// As much of a diff as of a log.
pub const MAX_DIFF_BYTES: usize = 16 * 1024;

/// One policy-gated action on one target.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kubernetesexecution.kubernaut.ai",
    version = "v1alpha1",
    kind = "KubernetesExecution",
    plural = "kubernetesexecutions",
    namespaced,
    status = "KubernetesExecutionStatus",
    shortname = "ke",
    category = "pawl",
    derive = "PartialEq",
    doc = "One policy-gated action on one target.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason"),
    printcolumn(name = "Action", type_ = "string", json_path = ".spec.action"),
    printcolumn(name = "Target", type_ = "string", json_path = ".status.target"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    actions::union_rule(),
    schema::frozen(
        &["remediationRequestRef", "action", "parameters", "targetNamespace", "resourceName", "requestedBy",
          "maxRetries", "timeout", "lockTimeout", "preConditions", "postConditions", "dryRun", "ttlAfterFinished"],
        "the spec of a KubernetesExecution is immutable but for approvalReceived: another action is another object",
    ),
]))]
pub struct KubernetesExecutionSpec {
    /// The request this is a step of.
    pub remediation_request_ref: Option<ObjectRef>,
    /// What is to be done.
    pub action: Action,
    /// With what: exactly the member of the action, which names the target.
    pub parameters: ActionParameters,
    /// The target's namespace once more; must agree with the parameters.
    #[schemars(length(max = 63))]
    pub target_namespace: Option<String>,
    /// The target's name once more; must agree with the parameters.
    #[schemars(length(max = 253))]
    pub resource_name: Option<String>,
    /// The user who asks; must be the one who creates the object.
    #[schemars(length(max = 1024))]
    pub requested_by: Option<String>,
    /// How often a failed attempt is repeated, where the action may be.
    #[serde(default)]
    #[schemars(range(min = 0, max = 5))]
    pub max_retries: i32,
    /// How long one attempt may take; the action's own when unset.
    pub timeout: Option<Duration>,
    /// How long to wait for a target that somebody else holds.
    #[serde(default = "default_lock_timeout")]
    pub lock_timeout: Duration,
    /// What must hold before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub pre_conditions: Vec<ActionCondition>,
    /// What must hold after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub post_conditions: Vec<ActionCondition>,
    /// Stop after the dry run.
    #[serde(default, skip_serializing_if = "is_false")]
    pub dry_run: bool,
    /// How long after its end it counts as completed and its rollback is given up.
    pub ttl_after_finished: Option<Duration>,
    /// An approval without a name; refused where policy asks who approves. The only field that may change.
    #[serde(default, skip_serializing_if = "is_false")]
    pub approval_received: bool,
}

/// Something that must hold, as Rego.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActionCondition {
    /// What it is called.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 128))]
    pub type_: String,
    /// What it means, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub description: String,
    /// The rule: a boolean `data.condition.allow`, or an expression, over input.target, input.pods,
    /// input.execution and input.parameters.
    #[schemars(length(min = 1, max = 16_384))]
    pub rego: String,
    /// Whether the action fails without it.
    #[serde(default = "required")]
    pub required: bool,
    /// How long it may take to become true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
}

/// What the Job of an attempt is called (I1).
pub fn job_name(execution_uid: &str, attempt: i32) -> String {
    format!("ke-{}", names::hash(&[execution_uid, &attempt.to_string()], 10))
}

/// What the execution is called that takes another one back, in the n-th attempt (I1).
pub fn rollback_name(execution: &str, execution_uid: &str, attempt: i32) -> String {
    let parts = [execution_uid, "rollback", &attempt.to_string()];
    names::child(&format!("{execution}-rollback"), &parts, 10, names::MAX_LABEL)
}

/// What the Secret is called that holds what is needed to take the change back (I4).
pub fn undo_name(execution_uid: &str) -> String {
    names::subdomain(&format!("pawl-undo-{execution_uid}"))
}

phases! {
    /// Where an action is.
    pub enum KubernetesExecutionPhase {
        Validating = "validating" => [Validated, Completed, Failed],
        Validated = "validated" => [WaitingApproval, Executing, Completed, Failed],
        WaitingApproval = "waiting_approval" => [Executing, Failed],
        // What was approved moved before anything was started.
        Executing = "executing" => [WaitingApproval, RollbackReady, Completed, Failed],
        RollbackReady = "rollback_ready" => [Completed],
        Completed = "completed" => [],
        Failed = "failed" => [],
    }
    first: [Validating, Failed],
    // The work is over at rollback_ready; what follows is only the end of the offer.
    terminal: [RollbackReady, Completed, Failed],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActionOutcome {
    Success,
    PartialSuccess,
    Failed,
}

/// Where the action is and what came of it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KubernetesExecutionStatus {
    /// The metadata.generation that this status is about.
    pub observed_generation: Option<i64>,
    /// Where the action is.
    pub phase: Option<KubernetesExecutionPhase>,
    /// Why it is there, as one stable word.
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
    /// Why it is there, in words.
    #[schemars(length(max = 32_768))]
    pub message: Option<String>,
    /// How it ended.
    pub outcome: Option<ActionOutcome>,
    /// What it works on, normalized.
    #[schemars(length(max = 16_384))]
    pub target: Option<String>,
    /// The digest of the spec as it was validated: another one fails the execution.
    #[schemars(length(max = 128))]
    pub spec_digest: Option<String>,
    /// What approvals must name: the spec, the policy, the target and the impact they were asked about.
    #[schemars(length(max = 128))]
    pub approval_digest: Option<String>,
    /// The digest of the fields of the target that the action reads or writes, as they were last looked at before it.
    #[schemars(length(max = 128))]
    pub target_digest: Option<String>,
    /// What each step of the validation found.
    pub validation_results: Option<ValidationResults>,
    /// When validation ended.
    pub validation_time: Option<Time>,
    /// When waiting for approval ends.
    pub approval_deadline: Option<Time>,
    /// When waiting for the target ends.
    pub lock_deadline: Option<Time>,
    /// When the attempt is stopped.
    pub execution_deadline: Option<Time>,
    /// When waiting for postconditions ends.
    pub postcondition_deadline: Option<Time>,
    /// The attempt, from 0.
    #[schemars(range(min = 0))]
    pub attempt: Option<i32>,
    /// The Job of the attempt.
    pub job_ref: Option<ObjectRef>,
    /// What the execution did.
    pub execution_results: Option<ExecutionResults>,
    /// How it could be taken back.
    pub rollback_information: Option<RollbackInformation>,
    /// The approvals seen, and whether they count.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub approvals: Vec<CountedApproval>,
    /// When it ended.
    pub completion_time: Option<Time>,
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

/// What each step of the validation found. Steps not made yet are absent.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ValidationResults {
    /// The parameters are those of the action and within its limits.
    pub parameter_validation: Option<bool>,
    /// The action's ServiceAccount may do all that the action needs.
    pub rbac_validation: Option<bool>,
    /// The target exists, is not protected and not managed by somebody else.
    pub resource_exists: Option<bool>,
    /// What policy said.
    pub policy_validation: Option<PolicyValidation>,
    /// What the dry run showed.
    pub dry_run_results: Option<DryRunResults>,
    /// Whether the preconditions hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub pre_condition_results: Vec<ConditionResult>,
    /// Whether the postconditions hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub post_condition_results: Vec<ConditionResult>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyValidation {
    /// Which policies were asked.
    #[schemars(length(max = 1024))]
    pub policy_name: String,
    /// The digest of what they said at the time.
    #[schemars(length(max = 128))]
    pub policy_digest: Option<String>,
    /// Whether the action may be done.
    pub allowed: bool,
    /// Whether somebody must approve it.
    pub required_approval: bool,
    /// Whether it must be tried without effect first.
    pub required_dry_run: bool,
    /// The groups of which approvers must be; anybody when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 253)))]
    pub approver_groups: Vec<String>,
    /// How many must approve.
    #[schemars(range(min = 0, max = 64))]
    pub approver_count: Option<i32>,
    /// How risky policy thinks it is.
    #[schemars(length(max = 64))]
    pub risk: Option<String>,
    /// What policy objects to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 1024)))]
    pub violations: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DryRunResults {
    /// Whether there was one.
    pub performed: bool,
    /// Whether the API server would take the change.
    pub success: bool,
    /// What the change would do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_impact: Option<EstimatedImpact>,
    /// The change, line by line; secret values are masked.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 16_384))]
    pub diff: String,
    /// What the API server warned of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 1024)))]
    pub warnings: Vec<String>,
    /// Why it would not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 1024)))]
    pub errors: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EstimatedImpact {
    /// How many objects it touches.
    #[schemars(range(min = 0))]
    pub resources_affected: i32,
    /// As `3 -> 5`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub replicas_changed: Option<String>,
    /// In words.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub description: String,
}

/// Whether one condition holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConditionResult {
    /// Which one.
    #[serde(rename = "type")]
    #[schemars(length(max = 128))]
    pub type_: String,
    /// Whether the action fails without it.
    pub required: bool,
    /// Whether it holds.
    pub passed: bool,
    /// What the rule said, or why it could not be asked.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub message: String,
    /// When it was last asked with another answer than before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluated_at: Option<Time>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ExecutionResults {
    /// Whether the change was made.
    pub success: bool,
    /// The Job that made it.
    #[schemars(length(max = 253))]
    pub job_name: Option<String>,
    /// When it began.
    pub start_time: Option<Time>,
    /// When it was over.
    pub end_time: Option<Time>,
    /// How long it took.
    #[schemars(length(max = 64))]
    pub duration: Option<String>,
    /// What was changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub resources_affected: Vec<AffectedResource>,
    /// The end of the Job's log, masked.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 16_384))]
    pub pod_logs: String,
    /// How many attempts failed before.
    #[schemars(range(min = 0))]
    pub retries_attempted: i32,
    /// Why it was not made.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub error_message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AffectedResource {
    /// Its kind.
    #[schemars(length(max = 63))]
    pub kind: String,
    /// Its namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// What was done to it, as `scaled`.
    #[schemars(length(max = 64))]
    pub action: String,
    /// What it was, as `replicas: 3`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub before: String,
    /// What it is.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub after: String,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RollbackInformation {
    /// Whether it can be taken back.
    pub available: bool,
    /// The action that would.
    pub rollback_action: Option<Action>,
    /// Its parameters; those that may be secret are in the undo Secret instead.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "schema::any_object")]
    pub rollback_parameters: Map<String, Value>,
    /// How long that would take.
    #[schemars(length(max = 64))]
    pub estimated_rollback_duration: Option<String>,
    /// Why it cannot, where it cannot.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub unavailable_reason: String,
    /// The immutable Secret with what is needed to take it back.
    pub undo_ref: Option<UndoRef>,
    /// The digest of those fields of the target after the change: where it is another by now, it is not taken back.
    #[schemars(length(max = 128))]
    pub changed_digest: Option<String>,
    /// The execution that takes it back.
    #[schemars(length(max = 253))]
    pub rolled_back_by: Option<String>,
}

/// What was stored before anything was done (I4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UndoRef {
    /// The Secret.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its namespace.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// The SHA-256 of its content.
    #[schemars(length(max = 64))]
    pub sha256: String,
}

/// An approval that was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CountedApproval {
    /// The Approval object; empty for `approvalReceived`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub name: String,
    /// Who.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub approver: String,
    /// `approve` or `reject`.
    #[schemars(length(max = 16))]
    pub decision: String,
    /// Whether it counts.
    pub counts: bool,
    /// Why it does not.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub message: String,
}

fn default_lock_timeout() -> Duration {
    Duration::from_mins(10)
}

fn required() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Phase as _;

    #[test]
    fn the_phase_table_makes_sense_and_nothing_executes_twice() {
        use KubernetesExecutionPhase::{Completed, Executing, RollbackReady};
        crate::meta::phase::check::<KubernetesExecutionPhase>();
        for from in KubernetesExecutionPhase::TERMINAL {
            assert!(!KubernetesExecutionPhase::may_move(Some(*from), Executing), "{from:?}");
        }
        assert!(KubernetesExecutionPhase::may_move(Some(RollbackReady), Completed));
    }
}
