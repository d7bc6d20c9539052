//! Which repository is watched, how, and what was seen of it last.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::meta::schema::{self, is_false};
use crate::meta::{Condition, Duration, Kind, condition};

pub const KIND: Kind = Kind::of(super::GROUP, super::VERSION, "Repository", "repositories", true);

/// GitHub was asked, and answered.
pub const GITHUB_REACHABLE: &str = "GitHubReachable";
/// What happens is reported through check runs; `False` where a token allows commit statuses only.
pub const CHECK_RUNS: &str = "CheckRuns";
/// The last sync went through.
pub const READY: &str = "Ready";

/// What the aggregate check is called, unless an older Repository for the same repository has that name.
pub const AGGREGATE_CHECK: &str = "pawl";

/// The address of GitHub's own API.
pub const GITHUB_API: &str = "https://api.github.com";

/// How many comments of the cursor's very second are remembered.
pub const MAX_COMMENTS_AT_CURSOR: usize = 100;

/// How many aggregate checks are remembered per Repository.
pub const MAX_AGGREGATE_CHECKS: usize = 100;

/// A repository on GitHub whose pushes and pull requests are turned into Workflows.
#[derive(CustomResource, JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "terrakojo.io",
    version = "v1alpha1",
    kind = "Repository",
    plural = "repositories",
    namespaced,
    status = "RepositoryStatus",
    shortname = "repo",
    category = "pawl",
    derive = "PartialEq",
    doc = "A repository on GitHub whose pushes and pull requests are turned into Workflows.",
    printcolumn(name = "Owner", type_ = "string", json_path = ".spec.owner"),
    printcolumn(name = "Repo", type_ = "string", json_path = ".spec.name"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "LastHead", type_ = "string", json_path = ".status.lastDefaultBranchHeadSha"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [schema::rule(
    "self.owner == oldSelf.owner && self.name == oldSelf.name",
    "owner and name are immutable: another repository is another Repository",
)]))]
pub struct RepositorySpec {
    /// The user or organization that owns the repository.
    #[schemars(length(min = 1, max = 100), regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"))]
    pub owner: String,
    /// The name of the repository, without its owner.
    #[schemars(length(min = 1, max = 100), regex(pattern = r"^[A-Za-z0-9._-]+$"))]
    pub name: String,
    /// Where the repository is kept.
    #[serde(rename = "type", default)]
    pub type_: RepositoryType,
    /// The branch whose commits are run one by one, in order.
    #[serde(default = "default_branch")]
    #[schemars(length(min = 1, max = 255))]
    pub default_branch: String,
    /// The Secret with `token`, or with `github-app-id`, `github-installation-id` and `github-private-key`.
    pub github_secret_ref: SecretRef,
    /// The address of the API of a GitHub Enterprise server, as https://ghe.example.com/api/v3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), regex(pattern = r"^https?://[^\s?#]+$"))]
    pub api_url: Option<String>,
    /// How often GitHub is asked when no webhook calls. Unchanged answers cost no rate limit.
    #[serde(default = "default_poll_interval")]
    pub poll_interval: Duration,
    /// Whether pull requests from forks run: never, after `/ok-to-test <sha>`, or always.
    #[serde(default)]
    pub forks: Forks,
    /// Whether draft pull requests run.
    #[serde(default)]
    pub drafts: Drafts,
    /// How many Jobs of this repository may run at a time.
    #[serde(default = "default_max_concurrent")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_concurrent: i32,
    /// How many finished default-branch commits are kept. 0 removes each when it is done.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1000))]
    pub history_limit: i32,
    /// What the first sync runs: the heads of all refs, or nothing until something changes.
    #[serde(default)]
    pub bootstrap: Bootstrap,
    /// What counts as changed on a branch without a pull request: its last commit, or all since the merge base.
    #[serde(default)]
    pub branch_diff: BranchDiff,
    /// Stops looking at GitHub; what runs goes on.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RepositoryType {
    #[default]
    Github,
}

/// A Secret, in the same namespace unless the other one allows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// The name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace, which must be labelled `pawl.dev/allow-secret-refs` for ours; ours when unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Forks {
    /// A neutral check, nothing runs.
    Deny,
    /// Runs once a member with write permission comments `/ok-to-test <sha>`.
    #[default]
    Approve,
    /// Runs like any other.
    Allow,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Drafts {
    #[default]
    Run,
    Skip,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Bootstrap {
    /// The first sync runs the head of every ref.
    #[default]
    Head,
    /// The first sync records where every ref is, and runs only what comes after.
    Cursor,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum BranchDiff {
    #[default]
    Commit,
    MergeBase,
}

/// What was seen of the repository.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RepositoryStatus {
    /// The metadata.generation that this status is about.
    pub observed_generation: Option<i64>,
    /// `Ready`, `GitHubReachable` and `CheckRuns`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list_schema")]
    pub conditions: Vec<Condition>,
    /// Whether the repository was read completely at least once.
    #[serde(skip_serializing_if = "is_false")]
    pub synced: bool,
    /// The newest commit of the default branch for which a Branch exists or existed.
    #[schemars(length(max = 64))]
    pub last_default_branch_head_sha: Option<String>,
    /// The branch that `lastDefaultBranchHeadSha` is about.
    #[schemars(length(max = 255))]
    pub last_default_branch: Option<String>,
    /// The number the next default-branch commit gets.
    #[schemars(range(min = 0))]
    pub next_sequence: Option<i64>,
    /// The value of `terrakojo.io/sync-requested-at` that the last sync answered.
    #[schemars(length(max = 256))]
    pub handled_sync_request: Option<String>,
    /// The value of `terrakojo.io/rerun` that was answered.
    #[schemars(length(max = 256))]
    pub handled_rerun: Option<String>,
    /// When GitHub was last asked, as far as that led to something: a look that finds nothing new writes nothing.
    pub last_sync_at: Option<Time>,
    /// When GitHub is asked again after it failed to answer, or while something stands in the way.
    pub next_sync_at: Option<Time>,
    /// What the aggregate check is called, where it is not `pawl`.
    #[schemars(length(max = 512))]
    pub aggregate_check_name: Option<String>,
    /// What GitHub still allows, where it is getting short.
    pub rate_limit: Option<RateLimit>,
    /// What is known of the webhook.
    pub webhook: Option<WebhookStatus>,
    /// Comments up to here were read.
    pub comment_cursor: Option<Time>,
    /// The comments of that very second that were read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub comments_at_cursor: Vec<i64>,
    /// The `pawl` checks of the newest commits, newest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub aggregate_checks: Vec<AggregateCheck>,
    /// Ids of ledger entries that are not stored yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 64)))]
    pub pending_audit_events: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RateLimit {
    /// How many calls are left.
    pub remaining: i64,
    /// When the count starts anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_at: Option<Time>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WebhookStatus {
    /// When the last delivery for this repository arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_delivery_at: Option<Time>,
}

/// The `pawl` check of one commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AggregateCheck {
    /// The commit.
    #[schemars(length(max = 64))]
    pub sha: String,
    /// The id of its check run.
    #[serde(rename = "checkRunID", default)]
    pub check_run_id: i64,
    /// What was last sent, so that nothing is sent twice.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub reported: String,
}

fn default_branch() -> String {
    "main".to_owned()
}

fn default_poll_interval() -> Duration {
    Duration::from_mins(5)
}

fn default_max_concurrent() -> i32 {
    20
}
