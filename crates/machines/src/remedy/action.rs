//! What is asked about an action, and of whom, before, while and after it is done?
//!
//! ```text
//! Look ─▶ what is there, without secrets      Access ─▶ may its ServiceAccount?      DryRun ─▶ what would change?
//! Capture ─▶ the undo, stored where it stays (I4)      (a Job runs `pawl act`)       Look ─▶ what is there now
//! ```
//! Everything here goes through a port: values that may be secret are read, compared and stored there, and a decision
//! sees only what may stand in a status (I6).

use std::fmt;
use std::sync::Arc;

use pawl_api::remedy::{AffectedResource, DryRunResults, RollbackInformation};

use crate::object::{Key, Reference};

/// An action on behalf of an execution: what a port needs to look at it, try it or do it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order {
    /// The execution, and the UID by which what it did is found again (I7).
    pub execution: Key,
    pub uid: String,
    /// `spec.action`.
    pub action: pawl_api::remedy::Action,
    /// `spec.parameters` as JSON, members in the order of their names: equal parameters are equal text.
    pub parameters: Arc<str>,
    /// The execution that this one takes back, where it is a rollback: what may be secret is in that one's undo.
    pub undoes: Option<String>,
}

/// Something to be asked or done for an action.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    pub order: Order,
    pub ask: Ask,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ask {
    /// What the action works on, as it is now.
    Look,
    /// Whether this ServiceAccount exists and may do all that the action needs.
    Access { service_account: Key },
    /// What the action would change, tried by the server without effect and with a short-lived token of this
    /// ServiceAccount.
    DryRun { service_account: Key },
    /// Stores what is needed to take the action back as an immutable Secret of this name, or finds the one that this
    /// execution stored before (I4).
    Capture { secret: Key },
}

/// What came back.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Looked(Looked),
    Access(Access),
    DryRun(DryRunResults),
    Captured(Captured),
}

/// What an action works on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Looked {
    /// Each object that it names, `None` where there is none; values of Secrets are masked.
    pub targets: Vec<(Reference, Option<Arc<serde_json::Value>>)>,
    /// The Pods of the target, where it has some; for conditions.
    pub pods: Vec<Arc<serde_json::Value>>,
    /// The labels of the target's namespace.
    pub namespace_labels: std::collections::BTreeMap<String, String>,
    /// A digest of the fields that the action reads or writes, with each target's UID: what an approval is about.
    pub digest: String,
    /// What the targets are, in the words of `before` and `after`.
    pub described: Vec<AffectedResource>,
    /// Of the cluster, for policy: `nodes`, `schedulableNodes`.
    pub facts: serde_json::Map<String, serde_json::Value>,
    /// Why the action cannot be done to what is there (a revision that is gone, a volume that would shrink).
    pub refusal: Option<String>,
}

/// What a ServiceAccount may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    pub exists: bool,
    /// What it lacks, each as `patch deployments.apps in prod`.
    pub missing: Vec<String>,
}

/// The undo, as it may stand in the status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Captured {
    pub information: RollbackInformation,
    /// What is about to change, in the words of `before`.
    pub before: Vec<AffectedResource>,
    /// `Looked::digest` of the very state that was captured.
    pub digest: String,
}

impl Call {
    pub fn is_write(&self) -> bool {
        match self.ask {
            Ask::Look | Ask::Access { .. } | Ask::DryRun { .. } => false,
            Ask::Capture { .. } => true,
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Order { execution, action, .. } = &self.order;
        match &self.ask {
            Ask::Look => write!(f, "look at what {action} of {execution} works on"),
            Ask::Access { service_account } => write!(f, "ask what {service_account} may do for {execution}"),
            Ask::DryRun { .. } => write!(f, "try {action} of {execution} without effect"),
            Ask::Capture { secret } => write!(f, "store the undo of {execution} as {secret}"),
        }
    }
}
