//! Which files lead to which Job.

use k8s_openapi::api::batch::v1::JobSpec;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::meta::schema::{self, is_false};
use crate::meta::{Condition, Kind, condition};

pub const KIND: Kind = Kind::of(super::GROUP, super::VERSION, "WorkflowTemplate", "workflowtemplates", true);

/// The globs compile, the job is well-formed, the dependencies have no cycle.
pub const VALID: &str = "Valid";

pub const DEFAULT_MOUNT_PATH: &str = "/workspace";
pub const DEFAULT_WORKSPACE_SIZE: &str = "5Gi";

/// A Job to run for changed files that match.
#[derive(CustomResource, JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "terrakojo.io",
    version = "v1alpha1",
    kind = "WorkflowTemplate",
    plural = "workflowtemplates",
    namespaced,
    status = "WorkflowTemplateStatus",
    shortname = "wft",
    category = "pawl",
    derive = "PartialEq",
    doc = "A Job to run for changed files that match.",
    printcolumn(name = "DisplayName", type_ = "string", json_path = ".spec.displayName"),
    printcolumn(name = "Paths", type_ = "string", json_path = ".spec.match.paths"),
    printcolumn(name = "Unit", type_ = "string", json_path = ".spec.match.executionUnit"),
    printcolumn(
        name = "Valid",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Valid\")].status"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowTemplateSpec {
    /// What the check on GitHub is called: `<displayName>(<path>)`.
    #[schemars(length(min = 1, max = 200))]
    pub display_name: String,
    /// Which changed files count.
    #[serde(rename = "match")]
    pub match_: Match,
    /// A whole batch/v1 JobSpec.
    pub job: Job,
    /// Templates whose Workflow for the same commit and path must have succeeded before this one starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub depends_on: Vec<String>,
    /// What happens to a running Workflow when its ref moves on: it is stopped, or it may end first.
    #[serde(default)]
    pub supersede: Supersede,
    /// Which refs count: all but the default branch, only the default branch, or all.
    #[serde(default)]
    pub on: On,
    /// Whether adding or editing this template runs it for the open pull requests too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub backfill: bool,
    /// A volume that the Workflows of one Branch share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Workspace>,
    /// Whether files at the root of the repository lead to a Workflow, where the unit is a folder.
    #[serde(default)]
    pub root_files: RootFiles,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Match {
    /// Globs of which one must match a file: `**`, `*`, `?`, `[a-z]`, `{a,b}`.
    #[schemars(length(min = 1, max = 256), inner(length(min = 1, max = 1024)))]
    pub paths: Vec<String>,
    /// Globs of which none may match it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 1024)))]
    pub ignore: Vec<String>,
    /// One Workflow per folder with matching files, per file, or one for the whole repository.
    #[serde(default)]
    pub execution_unit: ExecutionUnit,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ExecutionUnit {
    #[default]
    Folder,
    Repository,
    File,
}

impl ExecutionUnit {
    /// As Workflows get it in `parameters.executionUnit`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Folder => "folder",
            Self::Repository => "repository",
            Self::File => "file",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Supersede {
    #[default]
    Cancel,
    Finish,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum On {
    /// Every ref but the default branch.
    Branch,
    /// The default branch.
    Default,
    #[default]
    All,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RootFiles {
    #[default]
    Ignore,
    Run,
}

/// A volume that the Workflows of one Branch share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workspace {
    /// Whether there is one.
    #[serde(default = "enabled")]
    pub enabled: bool,
    /// How large it is.
    #[serde(default = "default_size")]
    #[schemars(
        length(min = 1, max = 32),
        regex(pattern = r"^[0-9]+(\.[0-9]+)?(Ei|Pi|Ti|Gi|Mi|Ki|E|P|T|G|M|k)?$")
    )]
    pub size: String,
    /// The StorageClass; the cluster's default when unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub storage_class_name: Option<String>,
    /// Where containers find it.
    #[serde(default = "default_mount_path")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^/[^:]*$"))]
    pub mount_path: String,
}

/// A batch/v1 JobSpec, kept as it was written: fields this version does not know survive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Job(pub Map<String, Value>);

impl Job {
    /// The fields this version knows.
    pub fn parse(&self) -> Result<JobSpec, serde_json::Error> {
        JobSpec::deserialize(&self.0)
    }
}

impl JsonSchema for Job {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Job".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        schema::job_spec(generator)
    }
}

/// Whether the template can be used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkflowTemplateStatus {
    /// The metadata.generation that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Valid`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list_schema")]
    pub conditions: Vec<Condition>,
    /// Ids of ledger entries that are not stored yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 64)))]
    pub pending_audit_events: Vec<String>,
}

fn enabled() -> bool {
    true
}

fn default_size() -> String {
    DEFAULT_WORKSPACE_SIZE.to_owned()
}

fn default_mount_path() -> String {
    DEFAULT_MOUNT_PATH.to_owned()
}
