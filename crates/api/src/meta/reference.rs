//! How one object points at another.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::Kind;

/// A pointer to an object. What is left out is plain from where it stands.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Its API version, as `batch/v1`.
    #[schemars(length(max = 317))]
    pub api_version: Option<String>,
    /// Its kind.
    #[schemars(length(max = 63))]
    pub kind: Option<String>,
    /// Its namespace; that of the object that points when unset.
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its UID: another object of that name is not meant.
    #[schemars(length(max = 64))]
    pub uid: Option<String>,
}

impl ObjectRef {
    pub fn new(kind: &Kind, namespace: Option<&str>, name: &str) -> Self {
        Self {
            api_version: Some(kind.api_version()),
            kind: Some(kind.kind.to_string()),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            uid: None,
        }
    }
}

/// A name, perhaps in another namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamedRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace; that of the object that points when unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
}

/// A key of a Secret or ConfigMap in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyRef {
    /// The name of the Secret or ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in it; all of it when unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub key: Option<String>,
}
