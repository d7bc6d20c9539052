//! Which alert leads to which plan.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::remediation_request::{Plan, RollbackStrategy, Timeouts};
use crate::meta::schema::is_false;
use crate::meta::{Condition, Kind, condition};

pub const KIND: Kind =
    Kind::of(super::REMEDIATION_GROUP, super::VERSION, "RemediationPlaybook", "remediationplaybooks", true);

/// The matchers compile and the plan has no cycle.
pub const VALID: &str = "Valid";

/// Alerts whose labels match lead to a RemediationRequest with this plan.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "remediation.kubernaut.ai",
    version = "v1alpha1",
    kind = "RemediationPlaybook",
    plural = "remediationplaybooks",
    namespaced,
    status = "RemediationPlaybookStatus",
    shortname = "rpb",
    category = "pawl",
    derive = "PartialEq",
    doc = "Alerts whose labels match lead to a RemediationRequest with this plan.",
    printcolumn(name = "Priority", type_ = "integer", json_path = ".spec.priority"),
    printcolumn(
        name = "Valid",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Valid\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct RemediationPlaybookSpec {
    /// All of them must match the alert.
    #[schemars(length(min = 1, max = 32))]
    pub matchers: Vec<Matcher>,
    /// Of several playbooks that match, the highest wins; then the first by name.
    #[serde(default)]
    #[schemars(range(min = -1000, max = 1000))]
    pub priority: i32,
    /// How the alert's labels name the target.
    pub target: TargetLabels,
    /// What is to be done. A workflow's parameter, or the name of an object in an action's, that is exactly
    /// `$(labels.<name>)` becomes that label's value.
    pub plan: Plan,
    /// What happens to finished steps when a later one fails.
    #[serde(default)]
    pub rollback_strategy: RollbackStrategy,
    /// How long what may take.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// Only say what would be done.
    #[serde(default, skip_serializing_if = "is_false")]
    pub dry_run: bool,
    /// Stops making requests.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
}

/// A condition on one label, as Alertmanager writes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Matcher {
    /// The label.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// How it is compared: equal, not equal, or by a regular expression that must match all of it.
    #[serde(default)]
    pub operator: MatchOperator,
    /// What it is compared with.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub value: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum MatchOperator {
    #[default]
    #[serde(rename = "=")]
    Equal,
    #[serde(rename = "!=")]
    NotEqual,
    #[serde(rename = "=~")]
    Matches,
    #[serde(rename = "!~")]
    NotMatches,
}

/// How an alert's labels name the target.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetLabels {
    /// The target's kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// The target's API version, as `apps/v1`.
    #[schemars(length(max = 317))]
    pub api_version: Option<String>,
    /// The label with its name.
    #[schemars(length(min = 1, max = 253))]
    pub name_label: String,
    /// The label with its namespace; none for a cluster-scoped kind.
    #[schemars(length(min = 1, max = 253))]
    pub namespace_label: Option<String>,
}

/// Whether the playbook can be used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RemediationPlaybookStatus {
    /// The metadata.generation that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Valid`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list_schema")]
    pub conditions: Vec<Condition>,
}
