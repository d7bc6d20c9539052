//! What is Pawl's own: freezes, approvals, and the words that units of all doors share.

pub mod approval;
pub mod freeze;
pub mod in_order;

pub use approval::{Approval, ApprovalSpec};
pub use freeze::{Freeze, FreezeSpec, FreezeStatus};

pub const GROUP: &str = "pawl.dev";
pub const VERSION: &str = "v1alpha1";

/// Where Pawl keeps its locks and reads its policies, unless told otherwise.
pub const SYSTEM_NAMESPACE: &str = "pawl-system";

/// Who the engine is in `managedFields`, Events and Leases.
pub const FIELD_MANAGER: &str = "pawl";

pub mod labels {
    /// On a namespace: the namespaces (comma-separated, or `*`) whose units may act in it.
    pub const ALLOW_FROM: &str = "pawl.dev/allow-from";
    /// On a namespace: the namespaces whose objects may refer to its Secrets.
    pub const ALLOW_SECRET_REFS: &str = "pawl.dev/allow-secret-refs";
    /// On a namespace: Jobs in it may be privileged, use host namespaces and hostPath.
    pub const ALLOW_PRIVILEGED: &str = "pawl.dev/allow-privileged";
    /// On a ConfigMap: `safety` makes it a policy.
    pub const POLICY: &str = "pawl.dev/policy";
    /// On a unit: the hash of its target.
    pub const TARGET_HASH: &str = "pawl.dev/target-hash";
    /// On what a unit owns across namespaces, where an owner reference would be invalid.
    pub const OWNER_KIND: &str = "pawl.dev/owner-kind";
    pub const OWNER_NAMESPACE: &str = "pawl.dev/owner-namespace";
    pub const OWNER_NAME: &str = "pawl.dev/owner-name";
    pub const OWNER_UID: &str = "pawl.dev/owner-uid";
}

pub mod annotations {
    /// On a unit or template: more targets to lock, comma-separated.
    pub const TARGETS: &str = "pawl.dev/targets";
    /// On a unit: its target as it was written.
    pub const TARGET: &str = "pawl.dev/target";
    /// On a unit: run although a Freeze holds, with the reason as value.
    pub const FREEZE_OVERRIDE: &str = "pawl.dev/freeze-override";
}

/// Conditions that units of all doors may have.
pub mod conditions {
    /// Somebody else holds a target; the message names who.
    pub const TARGET_LOCKED: &str = "TargetLocked";
    /// A Freeze holds; the message says until when.
    pub const FROZEN: &str = "Frozen";
    /// All ledger entries about the object are stored.
    pub const AUDIT_RECORDED: &str = "AuditRecorded";
}
