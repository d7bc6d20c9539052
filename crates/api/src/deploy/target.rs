//! Where items are deployed to.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::meta::reference::KeyRef;
use crate::meta::{Kind, schema};

pub const KIND: Kind = Kind::of(super::GROUP, super::VERSION, "Target", "targets", true);

/// The key of a Secret that holds a Target's configuration, where none is named.
pub const DEFAULT_SECRET_KEY: &str = "kubeconfig";

/// A place to deploy to: a cluster, by its kubeconfig or by being the one Pawl runs on.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "landscaper.gardener.cloud",
    version = "v1alpha1",
    kind = "Target",
    plural = "targets",
    namespaced,
    shortname = "tgt",
    category = "pawl",
    derive = "PartialEq",
    doc = "A place to deploy to: a cluster, by its kubeconfig or by being the one Pawl runs on.",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("not" = { "required": ["config", "secretRef"] }))]
pub struct TargetSpec {
    /// What kind of place it is: `landscaper.gardener.cloud/kubernetes-cluster`.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 253))]
    pub type_: String,
    /// A kubeconfig, `{kubeconfig}`, or `{selfConfig: {serviceAccount: {name}}}`. Not beside `secretRef`.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "schema::any_value")]
    pub config: Value,
    /// A Secret with the same. Not beside `config`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<KeyRef>,
}
