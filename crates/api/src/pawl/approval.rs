//! Who said that an action may, or may not, be done?

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::meta::{Kind, schema};

pub const KIND: Kind = Kind::of(super::GROUP, super::VERSION, "Approval", "approvals", true);

/// One person's word on one execution. Immutable.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "pawl.dev",
    version = "v1alpha1",
    kind = "Approval",
    plural = "approvals",
    namespaced,
    category = "pawl",
    derive = "PartialEq",
    doc = "One person's word on one execution. Immutable.",
    printcolumn(name = "Execution", type_ = "string", json_path = ".spec.executionRef.name"),
    printcolumn(name = "Decision", type_ = "string", json_path = ".spec.decision"),
    printcolumn(name = "Approver", type_ = "string", json_path = ".spec.approver.username"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    schema::rule("self == oldSelf", "an Approval is immutable: another word is another Approval"),
]))]
pub struct ApprovalSpec {
    /// The KubernetesExecution in the same namespace.
    pub execution_ref: ExecutionRef,
    /// The word.
    pub decision: Decision,
    /// Whose word it is; must be the one who creates the object.
    pub approver: Approver,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub reason: String,
    /// What was approved: the execution's `status.approvalDigest` at the time.
    #[schemars(length(min = 1, max = 128))]
    pub digest: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its UID: another execution of that name is not meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub uid: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Decision {
    Approve,
    Reject,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approver {
    /// The user.
    #[schemars(length(min = 1, max = 1024))]
    pub username: String,
    /// The user's groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 1024)))]
    pub groups: Vec<String>,
}
