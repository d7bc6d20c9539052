//! The remedy door: RemediationRequest → WorkflowExecution (Tekton or Job) and KubernetesExecution
//! (policy-gated actions).
//!
//! The words are Kubernaut's, so that its manifests and people's habits keep working.

pub mod actions;
pub mod kubernetes_execution;
pub mod remediation_playbook;
pub mod remediation_request;
pub mod workflow_execution;

pub use actions::{Action, ActionParameters};
pub use kubernetes_execution::{
    AffectedResource, DryRunResults, KubernetesExecution, KubernetesExecutionPhase, KubernetesExecutionSpec,
    KubernetesExecutionStatus, RollbackInformation,
};
pub use remediation_playbook::{RemediationPlaybook, RemediationPlaybookSpec, RemediationPlaybookStatus};
pub use remediation_request::{
    RemediationPhase, RemediationRequest, RemediationRequestSpec, RemediationRequestStatus,
};
pub use workflow_execution::{
    WorkflowExecution, WorkflowExecutionPhase, WorkflowExecutionSpec, WorkflowExecutionStatus,
};

pub const WORKFLOW_GROUP: &str = "workflowexecution.kubernaut.ai";
pub const ACTION_GROUP: &str = "kubernetesexecution.kubernaut.ai";
pub const REMEDIATION_GROUP: &str = "remediation.kubernaut.ai";
pub const VERSION: &str = "v1alpha1";

/// Where the Jobs of actions run.
pub const EXECUTOR_NAMESPACE: &str = "kubernaut-executor";
/// What the ServiceAccounts of actions are called, before the action with dashes.
pub const SERVICE_ACCOUNT_PREFIX: &str = "kubernaut-action-";

pub mod finalizers {
    pub const WORKFLOW_EXECUTION: &str = "workflowexecution.kubernaut.ai/cleanup-run";
    pub const KUBERNETES_EXECUTION: &str = "kubernetesexecution.kubernaut.ai/cleanup-job";
    pub const REMEDIATION_REQUEST: &str = "remediation.kubernaut.ai/cleanup-steps";
}

pub mod labels {
    /// On a Job or run: the name of the execution it belongs to.
    pub const EXECUTION_ID: &str = "kubernaut.io/execution-id";
    /// On a Job: its action.
    pub const ACTION: &str = "kubernaut.io/action";
    /// On a child: the RemediationRequest it belongs to.
    pub const REMEDIATION_REQUEST: &str = "kubernaut.io/remediation-request";
    /// On a child: the step it is.
    pub const STEP: &str = "kubernaut.io/step";
    /// On a RemediationRequest: the fingerprint of the alert it is about.
    pub const FINGERPRINT: &str = "kubernaut.io/signal-fingerprint";
    /// On a KubernetesExecution: the UID of the one whose change it takes back.
    pub const ROLLBACK_OF: &str = "pawl.dev/rollback-of-uid";
}

pub mod annotations {
    /// On a KubernetesExecution: the name of the one, in the same namespace, whose change it takes back.
    pub const ROLLBACK_OF: &str = "pawl.dev/rollback-of";
    /// On a KubernetesExecution: a person or parent says that no rollback will be wanted.
    pub const FINALIZE: &str = "pawl.dev/finalize";
    /// On a RemediationRequest, WorkflowExecution or KubernetesExecution: stop, with the reason as value.
    pub const CANCEL: &str = "pawl.dev/cancel";
    /// On the run of an execution and on its Pods: `namespace/name` of the execution, in full.
    pub const EXECUTION: &str = "pawl.dev/execution";
    /// On the Lease of a target, as JSON: what it remembers of the workflows that were run on it.
    pub const MEMORY: &str = "pawl.dev/remedies";
    /// On what an action changed: the UID of the execution that did.
    pub const CHANGED_BY: &str = "pawl.dev/changed-by";
}
