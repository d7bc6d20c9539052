//! Data that Installations hand to each other.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::meta::{Kind, schema};

pub const KIND: Kind = Kind::of(super::GROUP, super::VERSION, "DataObject", "dataobjects", true);

/// Data that Installations hand to each other: any JSON, at the top of the object.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "landscaper.gardener.cloud",
    version = "v1alpha1",
    kind = "DataObject",
    plural = "dataobjects",
    namespaced,
    no_spec,
    shortname = "dobj",
    category = "pawl",
    derive = "PartialEq",
    doc = "Data that Installations hand to each other: any JSON, at the top of the object.",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct DataObjectContent {
    /// The data.
    #[serde(default)]
    #[schemars(schema_with = "schema::any_value")]
    pub data: Value,
}
