//! One run of one template for one path of one commit.
//!
//! ```text
//!           ┌──────────────→ Succeeded
//! Pending → Running ───────→ Failed
//!    └────────┴────────────→ Cancelled
//! ```

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::meta::phase::phases;
use crate::meta::{Condition, Gate, Kind, condition, names, schema};

pub const KIND: Kind = Kind::of(super::GROUP, super::VERSION, "Workflow", "workflows", true);

/// The phase, with the phase as reason.
pub const JOB_STATUS: &str = "JobStatus";
/// The template exists.
pub const TEMPLATE_FOUND: &str = "TemplateFound";

/// On a Job: it was made, but may not run before its UID stands in its Workflow's status. The value is what its
/// `spec.suspend` becomes then.
pub const HELD: &str = "pawl.dev/held";

/// On a held Job, as a label: the UID of the Repository of whose places it takes one.
pub const HELD_FOR: &str = "pawl.dev/held-for";

/// On a Job: the id of the check run that was made before it.
pub const CHECK_RUN: &str = "terrakojo.io/check-run-id";

/// A label on a Workflow: the hash of a target that somebody else holds, so that its release is noticed here.
pub const WAITS_FOR: &str = "pawl.dev/waits-for";

/// Keys of `spec.parameters` that the controllers read and write.
pub mod parameters {
    pub const IS_DEFAULT_BRANCH: &str = "isDefaultBranch";
    pub const EXECUTION_UNIT: &str = "executionUnit";
    pub const WORKSPACE_CLAIM_NAME: &str = "workspaceClaimName";
    pub const WORKSPACE_MOUNT_PATH: &str = "workspaceMountPath";
}

/// The name of the volume that holds the shared workspace.
pub const WORKSPACE_VOLUME: &str = "terrakojo-workspace";

/// One run of one template for one path of one commit. Made by the Branch's controller.
#[derive(CustomResource, JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "terrakojo.io",
    version = "v1alpha1",
    kind = "Workflow",
    plural = "workflows",
    namespaced,
    status = "WorkflowStatus",
    shortname = "wf",
    category = "pawl",
    derive = "PartialEq",
    doc = "One run of one template for one path of one commit. Made by the Branch's controller.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason"),
    printcolumn(name = "Template", type_ = "string", json_path = ".spec.template"),
    printcolumn(name = "Path", type_ = "string", json_path = ".spec.path"),
    printcolumn(name = "SHA", type_ = "string", json_path = ".spec.sha"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [schema::rule(
    "self.owner == oldSelf.owner && self.repository == oldSelf.repository && self.branch == oldSelf.branch \
         && self.sha == oldSelf.sha && self.template == oldSelf.template && self.path == oldSelf.path \
         && self.attempt == oldSelf.attempt",
    "a Workflow is immutable but for its parameters: another commit or attempt is another Workflow",
)]))]
pub struct WorkflowSpec {
    /// The user or organization that owns the repository.
    #[schemars(length(min = 1, max = 100))]
    pub owner: String,
    /// The name of the repository.
    #[schemars(length(min = 1, max = 100))]
    pub repository: String,
    /// The name of the Branch object (not of the git ref).
    #[schemars(length(min = 1, max = 253))]
    pub branch: String,
    /// The commit, in full.
    #[schemars(regex(pattern = r"^[0-9a-f]{40}$"), length(max = 40))]
    pub sha: String,
    /// The name of the WorkflowTemplate.
    #[schemars(length(min = 1, max = 253))]
    pub template: String,
    /// The folder or file it runs for; `.` is the whole repository.
    #[schemars(length(min = 1, max = 4096))]
    pub path: String,
    /// What the Job is told: `isDefaultBranch`, `executionUnit`, `workspaceClaimName`, `workspaceMountPath`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::string_map::<64, 4096>")]
    pub parameters: BTreeMap<String, String>,
    /// Counts re-runs, from 1.
    #[serde(default = "first_attempt")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub attempt: i32,
}

impl WorkflowSpec {
    /// A parameter, if it is there and says something.
    pub fn parameter(&self, key: &str) -> Option<&str> {
        self.parameters.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }
}

/// What a Workflow is called, and its Job (I1).
pub fn name(branch_uid: &str, sha: &str, template: &str, path: &str, attempt: i32) -> String {
    let parts = [branch_uid, sha, template, path, &attempt.to_string()];
    names::child(template, &parts, 10, names::MAX_LABEL)
}

phases! {
    /// Where a run is.
    pub enum WorkflowPhase {
        // A Job can be over before it is seen running.
        Pending = "Pending" => [Running, Succeeded, Failed, Cancelled],
        // A suspended Job is Pending again, and so is one between two pods of a retry.
        Running = "Running" => [Pending, Succeeded, Failed, Cancelled],
        Succeeded = "Succeeded" => [],
        Failed = "Failed" => [],
        Cancelled = "Cancelled" => [],
    }
    // After a crash the Job may be anywhere by the time the first status is written.
    first: [Pending, Running, Succeeded, Failed, Cancelled],
    terminal: [Succeeded, Failed, Cancelled],
}

/// Where the run is and what came of it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkflowStatus {
    /// The metadata.generation that this status is about.
    pub observed_generation: Option<i64>,
    /// Where the run is.
    pub phase: Option<WorkflowPhase>,
    /// Why it is there, as one stable word.
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
    /// Why it is there, in words.
    #[schemars(length(max = 32_768))]
    pub message: Option<String>,
    /// What it works on, normalized.
    #[schemars(length(max = 16_384))]
    pub target: Option<String>,
    /// The check run on GitHub. 0 is none yet.
    #[serde(rename = "checkRunID")]
    pub check_run_id: Option<i64>,
    /// What the check run is called.
    #[schemars(length(max = 8192))]
    pub check_run_name: Option<String>,
    /// What GitHub was last told, as `in_progress` or `completed/failure`, so that nothing is sent twice.
    #[schemars(length(max = 128))]
    pub check_run_reported: Option<String>,
    /// When the Job started.
    pub start_time: Option<Time>,
    /// When the run was over.
    pub completion_time: Option<Time>,
    /// The Job that was made: one that vanished is told from one never made.
    pub job_ref: Option<JobRef>,
    /// When a container that cannot start makes the run fail.
    pub start_deadline: Option<Time>,
    /// `JobStatus`, `TemplateFound`, `TargetLocked`, `Frozen`, `AuditRecorded`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list_schema")]
    pub conditions: Vec<Condition>,
    /// The latest verdict of each gate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub gates: Vec<Gate>,
    /// Not used; kept because Terrakojo's manifests may have it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), inner(length(max = 253)))]
    pub jobs: Vec<String>,
    /// Ids of ledger entries that are not stored yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 64)))]
    pub pending_audit_events: Vec<String>,
}

/// One Job, in this life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobRef {
    /// The name of the Job.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its UID.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub uid: String,
}

fn first_attempt() -> i32 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Phase as _;

    #[test]
    fn the_name_is_a_function_of_what_is_run_i1() {
        let of = |path, attempt| name("uid", "0123", "plan", path, attempt);
        assert_eq!(of("a", 1), of("a", 1));
        assert_ne!(of("a", 1), of("b", 1));
        assert_ne!(of("a", 1), of("a", 2));
        assert!(names::is_label(&name("uid", "0123", &"t.".repeat(90), "a", 1)));
    }

    #[test]
    fn a_finished_workflow_never_runs_again_i2() {
        crate::meta::phase::check::<WorkflowPhase>();
        for from in WorkflowPhase::TERMINAL {
            for to in WorkflowPhase::ALL {
                assert_eq!(WorkflowPhase::may_move(Some(*from), *to), from == to);
            }
        }
    }
}
