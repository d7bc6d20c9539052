//! One ref of a repository at one commit, and what came of it.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::repository::AggregateCheck;
use crate::meta::{Condition, Kind, condition, names, schema};

pub const KIND: Kind = Kind::of(super::GROUP, super::VERSION, "Branch", "branches", true);

/// The Workflows of the current SHA exist.
pub const WORKFLOW_READY: &str = "WorkflowReady";
/// They could not be made (status `False`, as in Terrakojo).
pub const WORKFLOW_CREATE_FAILED: &str = "WorkflowCreateFailed";
/// Whether what the ref holds may run: pull requests from forks may not on their own.
pub const TRUSTED: &str = "Trusted";

/// How many `pawl` checks a Branch sees to at a time: its commit's, and those of commits it left before they were told.
pub const MAX_CHECKS: usize = 8;

/// How many changed files stand in the status; `changedFileCount` tells all.
pub const MAX_CHANGED_FILES: usize = 200;

/// One ref of a repository, or one commit of its default branch. Made by the Repository's controller.
#[skip_serializing_none]
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "terrakojo.io",
    version = "v1alpha1",
    kind = "Branch",
    plural = "branches",
    namespaced,
    status = "BranchStatus",
    shortname = "br",
    category = "pawl",
    derive = "PartialEq",
    doc = "One ref of a repository, or one commit of its default branch. Made by the Repository's controller.",
    printcolumn(name = "Owner", type_ = "string", json_path = ".spec.owner"),
    printcolumn(name = "Repo", type_ = "string", json_path = ".spec.repository"),
    printcolumn(name = "Ref", type_ = "string", json_path = ".spec.name"),
    printcolumn(name = "SHA", type_ = "string", json_path = ".spec.sha"),
    printcolumn(name = "PR", type_ = "integer", json_path = ".spec.prNumber"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"WorkflowReady\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [schema::rule(
    "self.owner == oldSelf.owner && self.repository == oldSelf.repository && self.name == oldSelf.name",
    "owner, repository and name are immutable: another ref is another Branch",
)]))]
pub struct BranchSpec {
    /// The user or organization that owns the repository.
    #[schemars(length(min = 1, max = 100))]
    pub owner: String,
    /// The name of the repository.
    #[schemars(length(min = 1, max = 100))]
    pub repository: String,
    /// The git ref, as `main` or `feature/x`.
    #[schemars(length(min = 1, max = 1024))]
    pub name: String,
    /// The commit, in full.
    #[schemars(regex(pattern = r"^[0-9a-f]{40}$"), length(max = 40))]
    pub sha: String,
    /// The open pull request of this ref. 0 is none.
    #[schemars(range(min = 0))]
    pub pr_number: Option<i64>,
    /// `owner/name` of the repository the ref is in, where that is a fork.
    #[schemars(length(max = 201))]
    pub head_repository: Option<String>,
    /// The commit the pull request is compared with.
    #[schemars(regex(pattern = r"^[0-9a-f]{40}$"), length(max = 40))]
    pub base_sha: Option<String>,
    /// Whether the pull request is a draft.
    #[serde(default, skip_serializing_if = "schema::is_false")]
    pub draft: bool,
    /// Who wrote it: the login of the pull request's or commit's author.
    #[schemars(length(max = 100))]
    pub author: Option<String>,
    /// The place of a default-branch commit in their order, oldest first.
    #[schemars(range(min = 0))]
    pub sequence: Option<i64>,
}

impl BranchSpec {
    /// The number of the pull request, if there is one.
    pub fn pull_request(&self) -> Option<i64> {
        self.pr_number.filter(|number| *number != 0)
    }

    /// Whether it is a commit of the default branch, and not of a fork's branch of the same name.
    pub fn is_default(&self, default_branch: &str) -> bool {
        self.head_repository.is_none() && self.name == default_branch
    }
}

/// What the Branch of a ref is called, whatever commit it is at.
pub fn name(repository: &str, head_repository: &str, reference: &str) -> String {
    names::child(repository, &[head_repository, reference], 8, names::MAX_LABEL)
}

/// What the Branch of one commit of the default branch is called.
pub fn commit_name(repository: &str, head_repository: &str, reference: &str, sha: &str) -> String {
    let short: String = sha.chars().filter(char::is_ascii_hexdigit).take(8).collect();
    let room = names::MAX_LABEL - short.len() - 1;
    let of_ref = names::child(repository, &[head_repository, reference], 8, room);
    format!("{of_ref}-{}", short.to_ascii_lowercase())
}

/// What the volume is called that the Workflows of a Branch share.
pub fn workspace_claim_name(branch_uid: &str, template: &str) -> String {
    format!("ws-{}", names::hash(&[branch_uid, template], 20))
}

/// What came of the current SHA.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BranchStatus {
    /// The metadata.generation that this status is about.
    pub observed_generation: Option<i64>,
    /// `WorkflowReady`, `WorkflowCreateFailed` and `Trusted`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list_schema")]
    pub conditions: Vec<Condition>,
    /// The names of the Workflows made for this SHA.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10_000), inner(length(max = 253)))]
    pub workflows: Vec<String>,
    /// The first 200 files that changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200), inner(length(max = 4096)))]
    pub changed_files: Vec<String>,
    /// How many files changed in all.
    #[schemars(range(min = 0))]
    pub changed_file_count: Option<i64>,
    /// The SHA that `evaluations` is about.
    #[schemars(length(max = 64))]
    pub evaluated_sha: Option<String>,
    /// What each template made of the changed files, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 500))]
    pub evaluations: Vec<Evaluation>,
    /// The commit of a fork that a member allowed to run.
    pub approved: Option<ForkApproval>,
    /// What became of the current SHA here; the `pawl` check combines it with that of other refs at the same SHA.
    pub result: Option<BranchResult>,
    /// The `pawl` checks this Branch sees to, the current SHA's last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub checks: Vec<AggregateCheck>,
    /// The value of `pawl.dev/retest` that was answered.
    #[schemars(length(max = 256))]
    pub handled_retest: Option<String>,
    /// The value of `pawl.dev/cancel` that was answered.
    #[schemars(length(max = 256))]
    pub handled_cancel: Option<String>,
    /// Ids of ledger entries that are not stored yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 64)))]
    pub pending_audit_events: Vec<String>,
}

/// What one template made of the changed files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Evaluation {
    /// The WorkflowTemplate.
    #[schemars(length(max = 253))]
    pub template: String,
    /// Which version of it: its UID and generation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub version: String,
    /// How many Workflows it led to.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub workflows: i64,
    /// Why, as one stable word.
    #[schemars(length(max = 128))]
    pub reason: String,
    /// Why, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub message: String,
}

/// What became of one SHA on one ref.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BranchResult {
    /// The SHA it is about.
    #[schemars(length(max = 64))]
    pub sha: String,
    /// What became of it.
    pub state: ResultState,
    /// The same in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub message: String,
}

/// What became of a SHA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ResultState {
    /// Workflows run, or wait to run.
    Running,
    /// All succeeded, or there was nothing to do.
    Succeeded,
    /// At least one failed.
    Failed,
    /// At least one was cancelled, and none failed.
    Cancelled,
    /// Nothing ran, because the commit or its author asked for that.
    Skipped,
    /// Nothing ran, because forks may not.
    Denied,
    /// Nothing ran yet: a member must allow it.
    ActionRequired,
}

impl ResultState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Cancelled => "Cancelled",
            Self::Skipped => "Skipped",
            Self::Denied => "Denied",
            Self::ActionRequired => "ActionRequired",
        }
    }

    /// Whether nothing more is awaited.
    pub const fn is_over(self) -> bool {
        !matches!(self, Self::Running)
    }
}

/// `/ok-to-test`: bound to one commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForkApproval {
    /// The commit that may run.
    #[schemars(length(max = 64))]
    pub sha: String,
    /// The login of the member who said so.
    #[schemars(length(max = 100))]
    pub by: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_of_any_repository_have_names_that_kubernetes_takes() {
        let sha = "0123456789abcdef0123456789abcdef01234567";
        for repository in ["infra", "My_Repo", ".github", &"x".repeat(100)] {
            for reference in ["main", "feature/a b", "$(SECRET)"] {
                let of_ref = name(repository, "acme/infra", reference);
                let of_commit = commit_name(repository, "acme/infra", reference, sha);
                assert!(names::is_label(&of_ref), "{of_ref}");
                assert!(names::is_label(&of_commit) && of_commit.ends_with("-01234567"), "{of_commit}");
            }
        }
    }

    #[test]
    fn a_forks_ref_never_stands_for_the_ref_of_the_same_name() {
        assert_ne!(name("infra", "acme/infra", "main"), name("infra", "someone/infra", "main"));
    }
}
