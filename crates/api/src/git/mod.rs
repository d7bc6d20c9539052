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
    /// Ours, on Branches, Workflows, Jobs and their pods.
    pub const SHA: &str = "terrakojo.io/sha";
    /// Ours, on Workflows, Jobs and their pods.
    pub const TEMPLATE: &str = "terrakojo.io/template";
}

pub mod annotations {
    /// On a Branch: the SHA whose Workflows exist.
    pub const LAST_SHA: &str = "terrakojo.io/last-sha";
    /// On a Branch: what that evaluation was about, `<sha>`, `<sha>#<pull request>`, and `:<why>` where nothing ran.
    /// A pull request that opens on a SHA already seen is another evaluation of the same SHA.
    pub const LAST_EVALUATION: &str = "terrakojo.io/last-evaluation";
    /// On a Repository: a nudge to look now.
    pub const SYNC_REQUESTED_AT: &str = "terrakojo.io/sync-requested-at";
    /// On a Workflow: `<check run id>@<delivery>`; GitHub forgets who asked for a re-run.
    /// On a Repository: `<sha>@<delivery>`, for a commit of the default branch whose Branch is gone.
    pub const RERUN: &str = "terrakojo.io/rerun";
    /// On a Branch: `<sha> by <login>`; a fork's commit that a member allowed to run.
    pub const OK_TO_TEST: &str = "pawl.dev/ok-to-test";
    /// On a Branch: what its pull request is to be merged into.
    pub const BASE_REF: &str = "pawl.dev/base-ref";
    /// On a Branch: run again what failed. The value tells one request from the next.
    pub const RETEST: &str = "pawl.dev/retest";
    /// On a Branch: stop what runs. On a Workflow: stop; its phase becomes `Cancelled`. The value says who asked.
    pub const CANCEL: &str = "pawl.dev/cancel";
    /// On a Workflow that is not the first attempt: what asked for it, so that one request makes one attempt.
    pub const CAUSE: &str = "pawl.dev/cause";
}

pub mod finalizers {
    pub const REPOSITORY: &str = "terrakojo.io/cleanup-branches";
    pub const BRANCH: &str = "terrakojo.io/cleanup-workflows";
    pub const WORKFLOW: &str = "terrakojo.io/cleanup-checkrun";
}
