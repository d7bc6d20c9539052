//! One thing that a deployer deploys.
//!
//! ```text
//! Init → Progressing → Succeeded | Failed       InitDelete → Deleting → (gone) | DeleteFailed
//! ```
//! An item that nobody picks up, or that is interrupted before it starts, fails from wherever the job before
//! left it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

use super::{LastError, Timeout, TransitionTimes};
use crate::meta::phase::phases;
use crate::meta::reference::NamedRef;
use crate::meta::schema::is_false;
use crate::meta::{Condition, Gate, Kind, condition, names, schema};

pub const KIND: Kind = Kind::of(super::GROUP, super::VERSION, "DeployItem", "deployitems", true);

/// How many errors of a job are kept.
pub const MAX_LAST_ERRORS: usize = 5;

/// One thing that a deployer deploys. Made by the Execution's controller.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "landscaper.gardener.cloud",
    version = "v1alpha1",
    kind = "DeployItem",
    plural = "deployitems",
    namespaced,
    status = "DeployItemStatus",
    shortname = "di",
    category = "pawl",
    derive = "PartialEq",
    doc = "One thing that a deployer deploys. Made by the Execution's controller.",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.lastError.reason"),
    printcolumn(name = "Target", type_ = "string", json_path = ".spec.target.name"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    schema::rule("self.type == oldSelf.type", "the type of a DeployItem is immutable"),
]))]
pub struct DeployItemSpec {
    /// Which deployer serves it.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 253))]
    pub type_: String,
    /// The Target it is deployed to.
    pub target: Option<NamedRef>,
    /// The context it runs in.
    #[schemars(length(max = 253))]
    pub context: Option<String>,
    /// What the deployer is told.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "schema::any_object")]
    pub config: Map<String, Value>,
    /// How long it may take; `none` is without limit, 10m when unset.
    pub timeout: Option<Timeout>,
    /// Whether a job passes it by when nothing changed since the last one that succeeded.
    #[serde(default, skip_serializing_if = "is_false")]
    pub update_on_change_only: bool,
    /// How often it is tried again within a job.
    #[schemars(range(min = 0, max = 100))]
    pub retries: Option<i32>,
}

/// What the DeployItem of an item is called (I1).
pub fn name(execution: &str, execution_uid: &str, item: &str) -> String {
    names::child(&format!("{execution}-{item}"), &[execution_uid, item], 8, names::MAX_LABEL)
}

phases! {
    /// Where an item is in its job.
    pub enum DeployItemPhase {
        Init = "Init" => [Progressing, Succeeded, Failed],
        Progressing = "Progressing" => [Succeeded, Failed],
        // The next job. A deployer that does nothing (`updateOnChangeOnly`) or nobody at all (pickup timeout,
        // interrupt) ends it from where it was.
        Succeeded = "Succeeded" => [Init, Progressing, Failed, InitDelete, Deleting, DeleteFailed],
        Failed = "Failed" => [Init, Progressing, InitDelete, Deleting, DeleteFailed],
        InitDelete = "InitDelete" => [Deleting, DeleteFailed],
        Deleting = "Deleting" => [DeleteFailed],
        DeleteFailed = "DeleteFailed" => [InitDelete, Deleting],
    }
    first: [Init, Progressing, Failed, InitDelete, Deleting, DeleteFailed],
    terminal: [Succeeded, Failed, DeleteFailed],
}

/// Where the job is and what came of it. Written by the Execution's controller (the job's ID) and by the deployer.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeployItemStatus {
    /// Where the job is.
    pub phase: Option<DeployItemPhase>,
    /// The job that runs, or ran last.
    #[serde(rename = "jobID")]
    #[schemars(length(max = 128))]
    pub job_id: Option<String>,
    /// When the job's ID was written.
    #[serde(rename = "jobIDGenerationTime")]
    pub job_id_generation_time: Option<Time>,
    /// The job that ended last: a job runs while this differs from `jobID`.
    #[serde(rename = "jobIDFinished")]
    #[schemars(length(max = 128))]
    pub job_id_finished: Option<String>,
    /// The metadata.generation that the last job was about.
    pub observed_generation: Option<i64>,
    /// When a deployer picked the job up.
    pub last_reconcile_time: Option<Time>,
    /// Who picked it up.
    pub deployer: Option<DeployerInformation>,
    /// What the deployer keeps for itself.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "schema::any_object")]
    pub provider_status: Map<String, Value>,
    /// The Secret with what the item exports, under the key `config`.
    pub export_ref: Option<NamedRef>,
    /// What went wrong last.
    pub last_error: Option<LastError>,
    /// What went wrong first in this job.
    pub first_error: Option<LastError>,
    /// The last errors of this job, newest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub last_errors: Vec<LastError>,
    /// How often it was tried again in this job.
    #[schemars(range(min = 0))]
    pub retries: Option<i32>,
    /// What it works on, normalized.
    #[schemars(length(max = 16_384))]
    pub target: Option<String>,
    /// What is known about it: `TargetLocked`, `Frozen` and the deployer's own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list_schema")]
    pub conditions: Vec<Condition>,
    /// The latest verdict of each gate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub gates: Vec<Gate>,
    /// When the job passed its stations.
    pub transition_times: Option<TransitionTimes>,
    /// Ids of ledger entries that are not stored yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 64)))]
    pub pending_audit_events: Vec<String>,
}

/// Who serves an item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeployerInformation {
    /// Which running deployer it is.
    #[schemars(length(max = 253))]
    pub identity: String,
    /// Which program it is.
    #[schemars(length(max = 253))]
    pub name: String,
    /// In which version.
    #[schemars(length(max = 253))]
    pub version: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Phase as _;

    #[test]
    fn the_phase_table_makes_sense() {
        crate::meta::phase::check::<DeployItemPhase>();
    }

    #[test]
    fn the_name_is_a_function_of_the_execution_and_the_item_i1() {
        assert_eq!(name("e", "uid", "web"), name("e", "uid", "web"));
        assert_ne!(name("e", "uid", "web"), name("e", "other", "web"));
        assert!(name("e", "uid", "web").starts_with("e-web-"));
        assert!(names::is_label(&name(&"e".repeat(200), "uid", "Web UI!")));
    }

    #[test]
    fn an_item_being_deleted_is_never_installed_again() {
        use DeployItemPhase::{DeleteFailed, Deleting, Failed, Init, InitDelete, Progressing, Succeeded};
        for from in [InitDelete, Deleting, DeleteFailed] {
            for to in [Init, Progressing, Succeeded, Failed] {
                assert!(!DeployItemPhase::may_move(Some(from), to), "{from:?} to {to:?}");
            }
        }
    }
}
