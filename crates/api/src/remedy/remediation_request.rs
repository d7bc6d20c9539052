//! Something is wrong with a target, and these steps shall mend it.
//!
//! ```text
//! Pending → Executing ⇄ AwaitingApproval, Blocked → Verifying → Completed
//!     Verifying: every step is done or awaits its postconditions; a rollback after that is Executing again
//!     any of them → Failed | TimedOut | Cancelled (before anything ran: Skipped)
//! ```

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::actions::{self, Action, ActionParameters};
use super::kubernetes_execution::ActionCondition;
use super::workflow_execution::{self, Engine, ExecutionConfig, WorkflowRef};
use crate::meta::phase::phases;
use crate::meta::reference::ObjectRef;
use crate::meta::schema::is_false;
use crate::meta::{Condition, Duration, Kind, condition, names, schema};

pub const KIND: Kind =
    Kind::of(super::REMEDIATION_GROUP, super::VERSION, "RemediationRequest", "remediationrequests", true);

/// Whether it ended well; `Unknown` until it has ended.
pub const SUCCEEDED: &str = "Succeeded";

/// With `rollbackStrategy: manual`, whether a person can take steps back, and by which commands.
pub const ROLLBACK_AVAILABLE: &str = "RollbackAvailable";

/// What a step's phase is before there is an object for it.
pub const NOT_STARTED: &str = "NotStarted";

/// Enough for any plan a person can follow.
pub const MAX_STEPS: usize = 32;

/// Something is wrong with a target, and these steps shall mend it.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "remediation.kubernaut.ai",
    version = "v1alpha1",
    kind = "RemediationRequest",
    plural = "remediationrequests",
    namespaced,
    status = "RemediationRequestStatus",
    shortname = "rr",
    category = "pawl",
    derive = "PartialEq",
    doc = "Something is wrong with a target, and these steps shall mend it.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.overallPhase"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason"),
    printcolumn(name = "Target", type_ = "string", json_path = ".status.target"),
    printcolumn(name = "Signal", type_ = "string", json_path = ".spec.signal.name"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [schema::frozen(
    &["targetResource", "signal", "plan", "requestedBy", "rollbackStrategy", "dryRun"],
    "what a RemediationRequest asks for is immutable: another request is another object",
)]))]
pub struct RemediationRequestSpec {
    /// What is to be mended.
    pub target_resource: TargetResource,
    /// What told of it.
    pub signal: Option<Signal>,
    /// What is to be done.
    pub plan: Plan,
    /// The user who asks; must be the one who creates the object. Handed down to the steps.
    #[schemars(length(max = 1024))]
    pub requested_by: Option<String>,
    /// Rolls finished steps back, or not, when the request does not complete: `none` leaves them as they are; `manual` too, and
    /// the condition RollbackAvailable says which `pawl rollback` takes them back; `automatic` takes them back when a step
    /// fails, the newest first.
    #[serde(default)]
    pub rollback_strategy: RollbackStrategy,
    /// How long what may take.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// Only say what would be done.
    #[serde(default, skip_serializing_if = "is_false")]
    pub dry_run: bool,
    /// How long it is kept after its end.
    #[serde(default = "default_retention")]
    pub retention: Duration,
}

/// A Kubernetes object, as manifests name it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetResource {
    /// Its kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace; none for a cluster-scoped kind.
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// Its API version, as `apps/v1`.
    #[schemars(length(max = 317))]
    pub api_version: Option<String>,
}

impl TargetResource {
    /// The same, normalized.
    pub fn target(&self) -> Result<crate::meta::Target, crate::meta::target::ParseError> {
        let group =
            self.api_version.as_deref().and_then(|version| version.split_once('/')).map(|(group, _)| group);
        let kind = match group {
            Some(group) => format!("{}.{group}", self.kind),
            None => self.kind.clone(),
        };
        let namespace = self.namespace.as_deref().filter(|namespace| !namespace.is_empty());
        crate::meta::Target::object(namespace, &kind, &self.name)
    }
}

/// What told that something is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Signal {
    /// What it is called, as the alert's name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// How bad it is.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub severity: String,
    /// Who told, as `alertmanager`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub source: String,
    /// The same for the same alert: it does not make a second request.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub fingerprint: String,
    /// Its labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::string_map::<64, 4096>")]
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::string_map::<64, 8192>")]
    pub annotations: BTreeMap<String, String>,
}

/// What is to be done, and in which order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The steps; those without `dependsOn` run at once.
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub steps: Vec<Step>,
}

/// One step: a workflow or an action.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    schema::rule("has(self.workflow) != has(self.action)", "a step has either workflow or action"),
]))]
pub struct Step {
    /// Its name, unique in the plan.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// A WorkflowExecution to make.
    pub workflow: Option<WorkflowStep>,
    /// A KubernetesExecution to make.
    pub action: Option<ActionStep>,
    /// The steps that must have succeeded before this one starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 63)))]
    pub depends_on: Vec<String>,
}

/// What a WorkflowExecution is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowStep {
    /// What is run.
    pub workflow_ref: WorkflowRef,
    /// What it is run on; the request's target when unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 1024))]
    pub target_resource: Option<String>,
    /// What it is told. Keys are UPPER_SNAKE_CASE.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "workflow_execution::parameters_schema")]
    pub parameters: BTreeMap<String, String>,
    /// What runs it.
    #[serde(default)]
    pub engine: Engine,
    /// How it is run.
    #[serde(default)]
    pub execution_config: ExecutionConfig,
    /// How long after a success the same workflow is not run again on the same target.
    #[serde(default = "workflow_execution::default_cooldown")]
    pub cooldown: Duration,
}

/// What a KubernetesExecution is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [actions::union_rule()]))]
pub struct ActionStep {
    /// What is to be done.
    pub action: Action,
    /// With what: exactly the member of the action.
    pub parameters: ActionParameters,
    /// How often a failed attempt is repeated, where the action may be.
    #[serde(default)]
    #[schemars(range(min = 0, max = 5))]
    pub max_retries: i32,
    /// How long one attempt may take; the action's own when unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// What must hold before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub pre_conditions: Vec<ActionCondition>,
    /// What must hold after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub post_conditions: Vec<ActionCondition>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RollbackStrategy {
    #[default]
    None,
    Manual,
    Automatic,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// The whole request.
    #[serde(default = "default_global")]
    pub global: Duration,
    /// One step.
    #[serde(default = "default_executing")]
    pub executing: Duration,
    /// Waiting for approval.
    #[serde(default = "default_approval")]
    pub approval: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { global: default_global(), executing: default_executing(), approval: default_approval() }
    }
}

/// What the child of a step is called in its n-th attempt (I1).
pub fn child_name(request: &str, request_uid: &str, step: &str, attempt: i32) -> String {
    let parts = [request_uid, step, &attempt.to_string()];
    names::child(&format!("{request}-{step}"), &parts, 10, names::MAX_LABEL)
}

phases! {
    /// Where a request is.
    pub enum RemediationPhase {
        Pending = "Pending" => [Executing, Verifying, Completed, Blocked, Failed, TimedOut, Skipped, Cancelled],
        Executing = "Executing" => [AwaitingApproval, Blocked, Verifying, Completed, Failed, TimedOut,
            Skipped, Cancelled],
        AwaitingApproval = "AwaitingApproval" => [Executing, Blocked, Verifying, Completed, Failed,
            TimedOut, Cancelled],
        Blocked = "Blocked" => [Executing, AwaitingApproval, Verifying, Completed, Failed, TimedOut,
            Skipped, Cancelled],
        Verifying = "Verifying" => [Executing, AwaitingApproval, Completed, Failed, TimedOut, Cancelled],
        Completed = "Completed" => [],
        Failed = "Failed" => [],
        TimedOut = "TimedOut" => [],
        Skipped = "Skipped" => [],
        Cancelled = "Cancelled" => [],
    }
    // One that nothing holds up is executing when it is first written of; a dry run is over at once.
    first: [Pending, Executing, Blocked, Completed, Failed, TimedOut, Skipped, Cancelled],
    terminal: [Completed, Failed, TimedOut, Skipped, Cancelled],
}

/// Where the request is and what came of it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RemediationRequestStatus {
    /// The metadata.generation that this status is about.
    pub observed_generation: Option<i64>,
    /// Where the request is.
    pub overall_phase: Option<RemediationPhase>,
    /// Why it is there, as one stable word.
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
    /// Why it is there, in words.
    #[schemars(length(max = 32_768))]
    pub message: Option<String>,
    /// What it is about, normalized.
    #[schemars(length(max = 16_384))]
    pub target: Option<String>,
    /// How the steps fare, in the order of the plan.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub steps: Vec<StepStatus>,
    /// What it is blocked by, as one stable word.
    #[schemars(length(max = 1024))]
    pub block_reason: Option<String>,
    /// When it is tried again at the latest.
    pub blocked_until: Option<Time>,
    /// How it ended, as one stable word.
    #[schemars(length(max = 128))]
    pub outcome: Option<String>,
    /// Whether a person must look.
    #[serde(skip_serializing_if = "is_false")]
    pub requires_manual_review: bool,
    /// When it began.
    pub start_time: Option<Time>,
    /// When it is given up.
    pub deadline: Option<Time>,
    /// When it was over.
    pub completion_time: Option<Time>,
    /// What is known about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list_schema")]
    pub conditions: Vec<Condition>,
    /// Ids of ledger entries that are not stored yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 64)))]
    pub pending_audit_events: Vec<String>,
}

/// How one step fares.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StepStatus {
    /// Which one.
    #[schemars(length(max = 63))]
    pub name: String,
    /// The object it led to, in the current attempt.
    pub child_ref: Option<ObjectRef>,
    /// That object's phase; `NotStarted` before there is one.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub phase: String,
    /// That object's reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// The attempt, from 1.
    #[schemars(range(min = 0))]
    pub attempt: i32,
    /// When it was started.
    pub started_at: Option<Time>,
    /// When it is given up.
    pub deadline: Option<Time>,
    /// When it was over.
    pub completed_at: Option<Time>,
    /// The object that takes it back.
    pub rollback_ref: Option<ObjectRef>,
}

fn default_retention() -> Duration {
    Duration::from_hours(24)
}

fn default_global() -> Duration {
    Duration::from_hours(1)
}

fn default_executing() -> Duration {
    Duration::from_mins(30)
}

fn default_approval() -> Duration {
    Duration::from_mins(15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Phase as _;

    #[test]
    fn the_phase_table_makes_sense() {
        crate::meta::phase::check::<RemediationPhase>();
        for from in RemediationPhase::TERMINAL {
            for to in RemediationPhase::ALL {
                assert_eq!(RemediationPhase::may_move(Some(*from), *to), from == to);
            }
        }
    }

    #[test]
    fn a_target_resource_is_normalized_with_its_group() {
        let of = |kind: &str, api_version: Option<&str>, namespace: Option<&str>| {
            TargetResource {
                kind: kind.into(),
                name: "x".into(),
                namespace: namespace.map(Into::into),
                api_version: api_version.map(Into::into),
            }
            .target()
            .map(|target| target.to_string())
        };
        assert_eq!(of("Deployment", Some("apps/v1"), Some("prod")).unwrap(), "prod/deployment/x");
        assert_eq!(of("Deployment", None, Some("prod")).unwrap(), "prod/deployment/x");
        assert_eq!(of("Node", Some("v1"), Some("")).unwrap(), "node/x");
        assert_eq!(of("Widget", Some("example.com/v1"), Some("a")).unwrap(), "a/widget.example.com/x");
    }
}
