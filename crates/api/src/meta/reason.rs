//! Why? One word for conditions, Events, `status.reason` and metric labels, so that what a user greps for is
//! the same everywhere. A new reason is a new line here.

use std::fmt;

use serde::{Serialize, Serializer};

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)+) => {
        /// A stable word that says why.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $($(#[$doc])* $name,)+ }

        impl Reason {
            /// Every reason there is.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }
        }
    };
}

reasons! {
    // Phases that are their own reason (`JobStatus` has the phase as reason).
    Pending = "Pending",
    Running = "Running",
    Succeeded = "Succeeded",
    Completed = "Completed",
    Failed = "Failed",
    Cancelled = "Cancelled",
    Progressing = "Progressing",
    Deleting = "Deleting",

    // Any kind.
    Valid = "Valid",
    Invalid = "Invalid",
    NotReady = "NotReady",
    Synced = "Synced",
    Suspended = "Suspended",
    NotFound = "NotFound",
    Forbidden = "Forbidden",
    QuotaExceeded = "QuotaExceeded",
    Timeout = "Timeout",
    Unknown = "Unknown",
    PhaseTransition = "PhaseTransition",
    OwnershipMismatch = "OwnershipMismatch",
    CleanupIncomplete = "CleanupIncomplete",
    NotApplicable = "NotApplicable",
    Allowed = "Allowed",
    /// The other namespace does not say that ours may act there.
    NamespaceNotAllowed = "NamespaceNotAllowed",

    // Gates, locks and freezes.
    TargetLocked = "TargetLocked",
    TargetInvalid = "TargetInvalid",
    LockAcquired = "LockAcquired",
    LockReleased = "LockReleased",
    Frozen = "Frozen",
    NotFrozen = "NotFrozen",
    FreezeOverridden = "FreezeOverridden",

    // The ledger.
    AuditRecorded = "AuditRecorded",
    AuditStoreDown = "AuditStoreDown",
    AuditStoreMissing = "AuditStoreMissing",

    // Repository.
    GitHubReachable = "GitHubReachable",
    GitHubUnreachable = "GitHubUnreachable",
    Unauthorized = "Unauthorized",
    CredentialsMissing = "CredentialsMissing",
    CredentialsInvalid = "CredentialsInvalid",
    SecretRefNotAllowed = "SecretRefNotAllowed",
    RateLimited = "RateLimited",
    RepositoryNotFound = "RepositoryNotFound",
    CommitStatusesOnly = "CommitStatusesOnly",
    CursorLost = "CursorLost",
    CheckRunsUsed = "CheckRunsUsed",
    /// Another Repository in the namespace has the same Branches.
    DuplicateRepository = "DuplicateRepository",
    DefaultBranchMissing = "DefaultBranchMissing",
    /// A ref that no Branch can stand for.
    BadRef = "BadRef",
    CommandTaken = "CommandTaken",
    CommandIgnored = "CommandIgnored",
    BranchDeleted = "BranchDeleted",

    // Branch.
    WorkflowCreated = "WorkflowCreated",
    WorkflowsDeleted = "WorkflowsDeleted",
    WaitingForWorkflows = "WaitingForWorkflows",
    AllWorkflowsCompleted = "AllWorkflowsCompleted",
    TemplateListFailed = "TemplateListFailed",
    NoChangedFiles = "NoChangedFiles",
    NoMatchingTemplate = "NoMatchingTemplate",
    ChangedFilesFailed = "ChangedFilesFailed",
    ForkNotApproved = "ForkNotApproved",
    ForkApproved = "ForkApproved",
    ForksDenied = "ForksDenied",
    Trusted = "Trusted",
    SkipCi = "SkipCi",
    DraftSkipped = "DraftSkipped",
    /// The commit is on GitHub no more.
    CommitGone = "CommitGone",
    CancelRequested = "CancelRequested",
    RetestRequested = "RetestRequested",

    // WorkflowTemplate: what it says of a change …
    Matched = "Matched",
    NothingMatched = "NothingMatched",
    AllIgnored = "AllIgnored",
    RootFilesIgnored = "RootFilesIgnored",
    /// `on` is about other refs.
    OtherRef = "OtherRef",
    // … and what may be wrong with it.
    BadGlob = "BadGlob",
    BadJob = "BadJob",
    DependencyCycle = "DependencyCycle",

    // Workflow.
    TemplateFound = "TemplateFound",
    TemplateNotFound = "TemplateNotFound",
    TemplateInvalid = "TemplateInvalid",
    BranchNotFound = "BranchNotFound",
    JobCreated = "JobCreated",
    JobCreationFailed = "JobCreationFailed",
    JobInvalid = "JobInvalid",
    JobForbidden = "JobForbidden",
    /// The Job was gone before its result was recorded.
    JobVanished = "JobVanished",
    JobFailed = "JobFailed",
    JobSucceeded = "JobSucceeded",
    JobDeadlineExceeded = "JobDeadlineExceeded",
    ContainerCannotStart = "ContainerCannotStart",
    WaitingForDependency = "WaitingForDependency",
    DependencyFailed = "DependencyFailed",
    WaitingForEarlierCommit = "WaitingForEarlierCommit",
    Queued = "Queued",
    Superseded = "Superseded",
    CheckRunCreateFailed = "CheckRunCreateFailed",
    CheckRunUpdateFailed = "CheckRunUpdateFailed",
    CheckRunCancelled = "CheckRunCancelled",
    RerunRequested = "RerunRequested",
    PodSecurityRefused = "PodSecurityRefused",

    // Installation, Execution, DeployItem.
    JobStarted = "JobStarted",
    JobFinished = "JobFinished",
    ValidationFailed = "ValidationFailed",
    DeployItemMissing = "DeployItemMissing",
    DeployItemFailed = "DeployItemFailed",
    OrphanDeleteFailed = "OrphanDeleteFailed",
    Stuck = "Stuck",
    ExportTooLarge = "ExportTooLarge",
    ExportMissing = "ExportMissing",
    Interrupted = "Interrupted",
    PickupTimeout = "PickupTimeout",
    ProgressingTimeout = "ProgressingTimeout",
    TargetMissing = "TargetMissing",
    UpToDate = "UpToDate",
    PickedUp = "PickedUp",
    DeployerFailed = "DeployerFailed",
    DeleteFailed = "DeleteFailed",
    Uninstalled = "Uninstalled",
    DeleteWithoutUninstall = "DeleteWithoutUninstall",
    ImportMissing = "ImportMissing",
    ImportInvalid = "ImportInvalid",
    BlueprintInvalid = "BlueprintInvalid",
    TemplateError = "TemplateError",
    SiblingImports = "SiblingImports",
    SubinstallationFailed = "SubinstallationFailed",
    /// A manifest has keys that nobody reads.
    KeysIgnored = "KeysIgnored",

    // WorkflowExecution: why it was skipped.
    ResourceBusy = "ResourceBusy",
    RecentlyRemediated = "RecentlyRemediated",
    PreviousExecutionFailed = "PreviousExecutionFailed",
    BackingOff = "BackingOff",
    ExhaustedRetries = "ExhaustedRetries",
    // … why it failed.
    OomKilled = "OOMKilled",
    DeadlineExceeded = "DeadlineExceeded",
    ResourceExhausted = "ResourceExhausted",
    ImagePullBackOff = "ImagePullBackOff",
    ConfigurationError = "ConfigurationError",
    TaskRunFailed = "TaskRunFailed",
    PipelineRunCreationFailed = "PipelineRunCreationFailed",
    PipelineRunDeleted = "PipelineRunDeleted",
    ValidationError = "ValidationError",
    UnsupportedEngine = "UnsupportedEngine",
    // … its Events.
    WorkflowValidated = "WorkflowValidated",
    WorkflowValidationFailed = "WorkflowValidationFailed",
    PipelineRunCreated = "PipelineRunCreated",
    WorkflowCompleted = "WorkflowCompleted",
    WorkflowFailed = "WorkflowFailed",
    WorkflowSkipped = "WorkflowSkipped",
    CooldownActive = "CooldownActive",
    CooldownOver = "CooldownOver",
    BlockCleared = "BlockCleared",
    WorkflowExecutionDeleted = "WorkflowExecutionDeleted",

    // KubernetesExecution: why it failed (its seed writes these words small).
    KeValidationError = "validation_error",
    RbacDenied = "rbac_denied",
    ResourceNotFound = "resource_not_found",
    ProtectedResource = "protected_resource",
    KePolicyDenied = "policy_denied",
    PolicyError = "policy_error",
    DryRunFailed = "dry_run_failed",
    PreconditionFailed = "precondition_failed",
    KeApprovalRejected = "approval_rejected",
    ApprovalTimeout = "approval_timeout",
    KeExecutionFailed = "execution_failed",
    ExecutionTimeout = "execution_timeout",
    ResultUnknown = "result_unknown",
    PostconditionFailed = "postcondition_failed",
    LockTimeout = "lock_timeout",
    SpecChanged = "spec_changed",
    KeNamespaceNotAllowed = "namespace_not_allowed",
    KeCancelled = "cancelled",
    GitopsManaged = "gitops_managed",
    // … its Events and gates.
    ActionValidating = "ActionValidating",
    ActionValidated = "ActionValidated",
    PolicyAllowed = "PolicyAllowed",
    PolicyDenied = "PolicyDenied",
    /// Of a ConfigMap: its policies hold.
    PolicyLoaded = "PolicyLoaded",
    /// Of a ConfigMap: its policies cannot be used, and older ones hold.
    PolicyRejected = "PolicyRejected",
    DryRunSucceeded = "DryRunSucceeded",
    DryRunNotRequired = "DryRunNotRequired",
    PreconditionsMet = "PreconditionsMet",
    PreconditionsPending = "PreconditionsPending",
    ApprovalNotRequired = "ApprovalNotRequired",
    ApprovalRequired = "ApprovalRequired",
    ApprovalGranted = "ApprovalGranted",
    ApprovalRejected = "ApprovalRejected",
    ApprovalExpired = "ApprovalExpired",
    ApprovalOutdated = "ApprovalOutdated",
    /// Approvals do not count where nothing checks who made them.
    ApproverUnverified = "ApproverUnverified",
    ExecutionCompleted = "ExecutionCompleted",
    ExecutionCompletedPermanent = "ExecutionCompletedPermanent",
    ExecutionFailed = "ExecutionFailed",
    RollbackPrepared = "RollbackPrepared",
    RollbackRefused = "RollbackRefused",

    // RemediationRequest.
    RemediationCreated = "RemediationCreated",
    RemediationCompleted = "RemediationCompleted",
    RemediationFailed = "RemediationFailed",
    RemediationTimeout = "RemediationTimeout",
    EscalatedToManualReview = "EscalatedToManualReview",
    StepStarted = "StepStarted",
    StepBlocked = "StepBlocked",
    StepFailed = "StepFailed",
    RollbackStarted = "RollbackStarted",
    RollbackFailed = "RollbackFailed",
    DuplicateAlert = "DuplicateAlert",
    /// Only what would be done was asked for.
    DryRun = "DryRun",
    /// A workflow has no undo, so a finished step stays done.
    NothingToRollBack = "NothingToRollBack",

    // Runner.
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<Reason> for String {
    fn from(reason: Reason) -> Self {
        reason.as_str().to_owned()
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_reason_has_its_own_word_and_fits_a_condition_and_a_metric_label() {
        let words: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(words.len(), Reason::ALL.len());
        for word in words {
            assert!(word.starts_with(|c: char| c.is_ascii_alphabetic()), "{word}");
            assert!(word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{word}");
        }
    }
}
