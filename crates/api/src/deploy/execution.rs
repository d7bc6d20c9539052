//! The items of an Installation, in the order of their dependencies.
//!
//! ```text
//! Init → Progressing → Completing → Succeeded      Succeeded and Failed start anew with the next job
//!   └────────┴─────────────┴──────→ Failed
//! InitDelete → Deleting → (gone)
//!      └──────────┴──────→ DeleteFailed → InitDelete
//! ```

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

use super::{LastError, Timeout, TransitionTimes};
use crate::meta::phase::phases;
use crate::meta::reference::NamedRef;
use crate::meta::schema::is_false;
use crate::meta::{Condition, Kind, condition, schema};

pub const KIND: Kind = Kind::of(super::GROUP, super::VERSION, "Execution", "executions", true);

/// The largest plain item list that is written; beyond it the list is compressed. Half of what etcd takes
/// less what managedFields and status need.
pub const MAX_PLAIN_ITEMS_BYTES: usize = 512 * 1024;

/// The most that all exports of an Execution may be together, so that their Secret stays under 1 MiB.
pub const MAX_EXPORT_BYTES: usize = 900 * 1024;

/// Ten times the largest graph Landscaper was used for; one object of 1.5 MiB holds no more anyway.
pub const MAX_ITEMS: usize = 10_000;

/// The DeployItems of an Installation and their dependencies. Made by the Installation's controller.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "landscaper.gardener.cloud",
    version = "v1alpha1",
    kind = "Execution",
    plural = "executions",
    namespaced,
    status = "ExecutionStatus",
    shortname = "exec",
    category = "pawl",
    derive = "PartialEq",
    doc = "The DeployItems of an Installation and their dependencies. Made by the Installation's controller.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Items", type_ = "integer", json_path = ".status.items.total"),
    printcolumn(name = "Succeeded", type_ = "integer", json_path = ".status.items.succeeded"),
    printcolumn(name = "Failed", type_ = "integer", json_path = ".status.items.failed"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.lastError.reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [schema::rule(
    "!(has(self.deployItems) && has(self.deployItemsCompressed))",
    "write either deployItems or deployItemsCompressed",
)]))]
pub struct ExecutionSpec {
    /// The context it runs in.
    #[schemars(length(max = 253))]
    pub context: Option<String>,
    /// The items.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 10_000),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub deploy_items: Vec<DeployItemTemplate>,
    /// The items as base64 of the gzip of their JSON list, where they are too large to be written plainly.
    #[schemars(length(max = 1_572_864))]
    pub deploy_items_compressed: Option<String>,
}

/// One item: what its DeployItem will be, and what must be there before.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeployItemTemplate {
    /// Its name, unique in the Execution.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Which deployer serves it.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 253))]
    pub type_: String,
    /// Where it is deployed to.
    pub target: Option<NamedRef>,
    /// Labels of the DeployItem.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::string_map::<64, 63>")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the DeployItem, as `pawl.dev/targets`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::string_map::<64, 16384>")]
    pub annotations: BTreeMap<String, String>,
    /// What the deployer is told.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "schema::any_object")]
    pub config: Map<String, Value>,
    /// The items that must have succeeded before this one is triggered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10_000), inner(length(min = 1, max = 253)))]
    pub depends_on: Vec<String>,
    /// How long it may take; `none` is without limit, 10m when unset.
    pub timeout: Option<Timeout>,
    /// Whether a job passes it by when nothing changed since the last one that succeeded.
    #[serde(default, skip_serializing_if = "is_false")]
    pub update_on_change_only: bool,
    /// How often it is tried again within a job.
    #[schemars(range(min = 0, max = 100))]
    pub retries: Option<i32>,
}

phases! {
    /// Where an Execution is in its job.
    pub enum ExecutionPhase {
        Init = "Init" => [Progressing, Failed],
        Progressing = "Progressing" => [Completing, Failed],
        Completing = "Completing" => [Succeeded, Failed],
        // The next job.
        Succeeded = "Succeeded" => [Init, InitDelete],
        Failed = "Failed" => [Init, InitDelete],
        InitDelete = "InitDelete" => [Deleting, DeleteFailed],
        Deleting = "Deleting" => [DeleteFailed],
        DeleteFailed = "DeleteFailed" => [InitDelete],
    }
    first: [Init, InitDelete],
    terminal: [Succeeded, Failed, DeleteFailed],
}

/// Where the job is and what came of it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ExecutionStatus {
    /// Where the job is.
    pub phase: Option<ExecutionPhase>,
    /// The job that runs, or ran last.
    #[serde(rename = "jobID")]
    #[schemars(length(max = 128))]
    pub job_id: Option<String>,
    /// The job that ended last: a job runs while this differs from `jobID`.
    #[serde(rename = "jobIDFinished")]
    #[schemars(length(max = 128))]
    pub job_id_finished: Option<String>,
    /// The Secret with what all items exported.
    pub export_ref: Option<NamedRef>,
    /// What went wrong last.
    pub last_error: Option<LastError>,
    /// What the last Init wrote; never the items' names.
    pub deploy_item_cache: Option<DeployItemCache>,
    /// How the items fare.
    pub items: Option<ItemCounts>,
    /// When the phase last changed.
    pub phase_transition_time: Option<Time>,
    /// When the job passed its stations.
    pub transition_times: Option<TransitionTimes>,
    /// What is known about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list_schema")]
    pub conditions: Vec<Condition>,
    /// The metadata.generation that the last job was about.
    pub observed_generation: Option<i64>,
    /// Ids of ledger entries that are not stored yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 64)))]
    pub pending_audit_events: Vec<String>,
}

/// What the last Init wrote: enough to see that nothing is left to write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeployItemCache {
    /// How many items the spec has.
    #[schemars(range(min = 0))]
    pub active: i64,
    /// How many orphans there were.
    #[schemars(range(min = 0))]
    pub orphaned: i64,
    /// The hash of the items that were written.
    #[schemars(length(max = 128))]
    pub hash: String,
}

/// How the items of an Execution fare in this job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ItemCounts {
    /// All, orphans among them.
    #[schemars(range(min = 0))]
    pub total: i64,
    /// Finished well.
    #[schemars(range(min = 0))]
    pub succeeded: i64,
    /// Finished badly.
    #[schemars(range(min = 0))]
    pub failed: i64,
    /// Triggered and not finished.
    #[schemars(range(min = 0))]
    pub running: i64,
    /// Not triggered yet.
    #[schemars(range(min = 0))]
    pub pending: i64,
    /// When they were counted: not at every change, for the object may be large.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count_time: Option<Time>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Phase as _;

    #[test]
    fn the_phase_table_makes_sense() {
        crate::meta::phase::check::<ExecutionPhase>();
        assert!(!ExecutionPhase::may_move(Some(ExecutionPhase::Deleting), ExecutionPhase::Init));
    }
}
