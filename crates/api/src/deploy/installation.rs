//! A blueprint, what it imports, and what came of it.
//!
//! ```text
//! Init → CleanupOrphaned → ObjectsCreated → Progressing → Completing → Succeeded
//!   └─────────┴──────────────────┴──────────────┴─────────────┴──────→ Failed
//! InitDelete → TriggerDelete → Deleting → (gone)       both start anew with the next job
//!      └─────────────┴────────────┴──────→ DeleteFailed
//! ```

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

use super::{LastError, TransitionTimes};
use crate::meta::phase::phases;
use crate::meta::reference::{KeyRef, NamedRef};
use crate::meta::{Condition, Duration, Kind, condition, schema};

pub const KIND: Kind = Kind::of(super::GROUP, super::VERSION, "Installation", "installations", true);

/// The file every blueprint has.
pub const BLUEPRINT_FILE: &str = "blueprint.yaml";

/// Sub-Installations of one blueprint: as many as it may have imports.
pub const MAX_SUBINSTALLATIONS: usize = 256;

/// A blueprint with its imports and exports. Renders to one Execution and to sub-Installations.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "landscaper.gardener.cloud",
    version = "v1alpha1",
    kind = "Installation",
    plural = "installations",
    namespaced,
    status = "InstallationStatus",
    shortname = "inst",
    category = "pawl",
    derive = "PartialEq",
    doc = "A blueprint with its imports and exports. Renders to one Execution and to sub-Installations.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Execution", type_ = "string", json_path = ".status.executionRef.name"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.lastError.reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
// Keys of Landscaper's that mean nothing here are kept, so that its manifests are not refused; the machine warns of them.
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct InstallationSpec {
    /// The context it runs in.
    #[serde(default = "default_context")]
    #[schemars(length(max = 253))]
    pub context: String,
    /// What is to be deployed.
    pub blueprint: Blueprint,
    /// Where the blueprint's inputs come from.
    #[serde(default, skip_serializing_if = "Imports::is_empty")]
    pub imports: Imports,
    /// Where the blueprint's outputs go.
    #[serde(default, skip_serializing_if = "Exports::is_empty")]
    pub exports: Exports,
    /// When jobs start by themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automatic_reconcile: Option<AutomaticReconcile>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Blueprint {
    /// A blueprint written into the Installation.
    pub inline: InlineBlueprint,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InlineBlueprint {
    /// File names and their text; a folder is a map of its own. Must hold `blueprint.yaml`.
    pub filesystem: Filesystem,
}

/// A tree of files: a name leads to text or to another tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Filesystem(pub Map<String, Value>);

impl Filesystem {
    /// The text of a file, by its path. A key that is itself a path (`a/b.yaml`) is found too.
    pub fn file(&self, path: &str) -> Option<&str> {
        let path = path.trim_start_matches("./").trim_start_matches('/');
        find(&self.0, path)
    }
}

fn find<'a>(tree: &'a Map<String, Value>, path: &str) -> Option<&'a str> {
    if let Some(Value::String(text)) = tree.get(path) {
        return Some(text);
    }
    let (folder, rest) = path.split_once('/')?;
    find(tree.get(folder)?.as_object()?, rest)
}

impl JsonSchema for Filesystem {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Filesystem".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "required": [BLUEPRINT_FILE],
            "x-kubernetes-preserve-unknown-fields": true,
            "properties": {
                BLUEPRINT_FILE: {
                    "description": "The blueprint: imports, exports, deployExecutions, exportExecutions, subinstallations.",
                    "type": "string",
                    "minLength": 1,
                },
            },
        })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct Imports {
    /// Data: from a DataObject (or a sibling's export), a Secret or a ConfigMap.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub data: Vec<DataImport>,
    /// Targets: one, or a list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub targets: Vec<TargetImport>,
}

impl Imports {
    pub fn is_empty(&self) -> bool {
        self.data.is_empty() && self.targets.is_empty()
    }
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [schema::rule(
    "(has(self.dataRef) ? 1 : 0) + (has(self.secretRef) ? 1 : 0) + (has(self.configMapRef) ? 1 : 0) == 1",
    "a data import has exactly one of dataRef, secretRef and configMapRef",
)]))]
pub struct DataImport {
    /// What the blueprint calls it.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The name of a DataObject, or of what a sibling exports.
    #[schemars(length(min = 1, max = 253))]
    pub data_ref: Option<String>,
    /// A key of a Secret.
    pub secret_ref: Option<KeyRef>,
    /// A key of a ConfigMap.
    pub config_map_ref: Option<KeyRef>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [schema::rule(
    "has(self.target) != has(self.targets)",
    "a target import has either target or targets",
)]))]
pub struct TargetImport {
    /// What the blueprint calls it.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The name of a Target.
    #[schemars(length(min = 1, max = 253))]
    pub target: Option<String>,
    /// The names of several Targets.
    #[schemars(length(max = 256), inner(length(min = 1, max = 253)))]
    pub targets: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Exports {
    /// Data that becomes a DataObject.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub data: Vec<DataExport>,
    /// Targets that become Target objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub targets: Vec<TargetExport>,
}

impl Exports {
    pub fn is_empty(&self) -> bool {
        self.data.is_empty() && self.targets.is_empty()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataExport {
    /// What the blueprint calls it.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The name of the DataObject to write.
    #[schemars(length(min = 1, max = 253))]
    pub data_ref: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetExport {
    /// What the blueprint calls it.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The name of the Target to write.
    #[schemars(length(min = 1, max = 253))]
    pub target: String,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AutomaticReconcile {
    /// After a job that succeeded.
    pub succeeded_reconcile: Option<SucceededReconcile>,
    /// After a job that failed.
    pub failed_reconcile: Option<FailedReconcile>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SucceededReconcile {
    /// How long after the last job the next one starts.
    pub interval: Option<Duration>,
    /// When the next job starts, as five fields of cron.
    #[schemars(length(max = 128))]
    pub cron_spec: Option<String>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FailedReconcile {
    /// How often it is tried again; without end when unset.
    #[schemars(range(min = 0, max = 10_000))]
    pub number_of_reconciles: Option<i32>,
    /// How long after the last job the next one starts.
    pub interval: Option<Duration>,
    /// When the next job starts, as five fields of cron.
    #[schemars(length(max = 128))]
    pub cron_spec: Option<String>,
}

phases! {
    /// Where an Installation is in its job.
    pub enum InstallationPhase {
        Init = "Init" => [CleanupOrphaned, ObjectsCreated, Failed],
        CleanupOrphaned = "CleanupOrphaned" => [ObjectsCreated, Failed],
        ObjectsCreated = "ObjectsCreated" => [Progressing, Failed],
        Progressing = "Progressing" => [Completing, Failed],
        Completing = "Completing" => [Succeeded, Failed],
        // The next job.
        Succeeded = "Succeeded" => [Init, InitDelete],
        Failed = "Failed" => [Init, InitDelete],
        InitDelete = "InitDelete" => [TriggerDelete, DeleteFailed],
        TriggerDelete = "TriggerDelete" => [Deleting, DeleteFailed],
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
pub struct InstallationStatus {
    /// Where the job is.
    pub phase: Option<InstallationPhase>,
    /// The job that runs, or ran last.
    #[serde(rename = "jobID")]
    #[schemars(length(max = 128))]
    pub job_id: Option<String>,
    /// The job that ended last: a job runs while this differs from `jobID`.
    #[serde(rename = "jobIDFinished")]
    #[schemars(length(max = 128))]
    pub job_id_finished: Option<String>,
    /// The Execution it renders to.
    pub execution_ref: Option<NamedRef>,
    /// The sub-Installations that its blueprint had in the last job that got as far as making them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub installation_refs: Vec<SubinstallationRef>,
    /// What is known about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list_schema")]
    pub conditions: Vec<Condition>,
    /// What went wrong last.
    pub last_error: Option<LastError>,
    /// The metadata.generation that the last job was about.
    pub observed_generation: Option<i64>,
    /// When the phase last changed.
    pub phase_transition_time: Option<Time>,
    /// When the job passed its stations.
    pub transition_times: Option<TransitionTimes>,
    /// How often the last failure was tried again by itself.
    #[schemars(range(min = 0))]
    pub automatic_retries: Option<i32>,
    /// Ids of ledger entries that are not stored yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 64)))]
    pub pending_audit_events: Vec<String>,
}

/// Where a sub-Installation of the blueprint is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubinstallationRef {
    /// Its name in the blueprint.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its object.
    #[serde(rename = "ref")]
    pub reference: NamedRef,
}

fn default_context() -> String {
    "default".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phase_table_makes_sense() {
        crate::meta::phase::check::<InstallationPhase>();
    }

    #[test]
    fn files_are_found_in_folders_and_under_path_like_names() {
        let tree = serde_json::json!({
            "blueprint.yaml": "top", "a": {"b": {"c.yaml": "deep"}}, "x/y.yaml": "flat", "n": 1
        });
        let Value::Object(tree) = tree else { unreachable!() };
        let files = Filesystem(tree);
        assert_eq!(files.file("blueprint.yaml"), Some("top"));
        assert_eq!(files.file("./a/b/c.yaml"), Some("deep"));
        assert_eq!(files.file("/x/y.yaml"), Some("flat"));
        assert_eq!(files.file("n"), None);
        assert_eq!(files.file("a"), None);
        assert_eq!(files.file(""), None);
    }
}
