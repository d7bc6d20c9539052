//! The git door: Repository → Branch → Workflow → Job and GitHub check run.
//!
//! The words below are Terrakojo's, so that its manifests and people's habits keep working.

pub mod branch;
pub mod repository;
pub mod workflow;
pub mod workflow_template;

pub use branch::{Branch, BranchSpec, BranchStatus};
pub use repository::{Repository, RepositorySpec, RepositoryStatus};
pub use workflow::{Workflow, WorkflowPhase, WorkflowSpec, WorkflowStatus};
pub use workflow_template::{WorkflowTemplate, WorkflowTemplateSpec, WorkflowTemplateStatus};

pub const GROUP: &str = "terrakojo.io";
pub const VERSION: &str = "v1alpha1";

/// Labels on everything a Repository leads to.
pub mod labels {
    pub const OWNER: &str = "terrakojo.io/owner";
    pub const REPO_NAME: &str = "terrakojo.io/repo-name";
    pub const REPO_UID: &str = "terrakojo.io/repo-uid";
    pub const OWNER_UID: &str = "terrakojo.io/owner-uid";
    /// Ours, on Jobs and their pods.
    pub const SHA: &str = "terrakojo.io/sha";
    /// Ours, on Workflows, Jobs and their pods.
    pub const TEMPLATE: &str = "terrakojo.io/template";
}

pub mod annotations {
    /// On a Branch: the SHA whose Workflows exist.
    pub const LAST_SHA: &str = "terrakojo.io/last-sha";
    /// On a Repository: a nudge to look now.
    pub const SYNC_REQUESTED_AT: &str = "terrakojo.io/sync-requested-at";
    /// On a Workflow: `<check run id>@<delivery>`; GitHub forgets who asked for a re-run.
    pub const RERUN: &str = "terrakojo.io/rerun";
}

pub mod finalizers {
    pub const REPOSITORY: &str = "terrakojo.io/cleanup-branches";
    pub const BRANCH: &str = "terrakojo.io/cleanup-workflows";
    pub const WORKFLOW: &str = "terrakojo.io/cleanup-checkrun";
}
