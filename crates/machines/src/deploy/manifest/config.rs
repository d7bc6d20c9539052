//! What a manifest item is told: its provider configuration, v1alpha2 and, where they mean the same, v1alpha1.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// An item with more objects than this is a mistake, or should be several items.
pub(super) const MAX_MANIFESTS: usize = 1_000;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Config {
    pub(super) manifests: Vec<Entry>,
    pub(super) update_strategy: UpdateStrategy,
    pub(super) readiness_checks: ReadinessChecks,
    pub(super) exports: Exports,
}

impl Config {
    /// Every place that a check or an export looks at.
    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        let checks = self.readiness_checks.custom.iter().filter(|check| !check.disabled);
        let exports = self.exports.exports.iter().filter_map(|export| export.from_resource.as_ref());
        checks.flat_map(|check| &check.resource_selector).chain(exports)
    }
}

/// An object and what may be done with it. In v1alpha1 an entry may be the object itself.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Entry {
    With {
        #[serde(default)]
        policy: Policy,
        manifest: Value,
    },
    Bare(Value),
}

impl Entry {
    pub(super) fn parts(&self) -> (Policy, &Value) {
        match self {
            Self::With { policy, manifest } => (*policy, manifest),
            Self::Bare(manifest) => (Policy::Manage, manifest),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Policy {
    /// Made, kept as it should be, and taken down.
    #[default]
    Manage,
    /// Made and kept as it should be, never taken down.
    Keep,
    /// Not touched at all.
    Ignore,
    /// Made and taken down, never changed.
    Immutable,
    /// Like `manage`, unless somebody else had made one of that name before.
    Fallback,
}

/// How an object that is there already becomes what the manifest says. All but `merge` are a forced server-side apply:
/// fields of the manifest are set, those that left it go, those of others stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) enum UpdateStrategy {
    #[default]
    #[serde(rename = "update")]
    Update,
    #[serde(rename = "patch")]
    Patch,
    /// What is there stays as it is; only what is missing is added.
    #[serde(rename = "merge")]
    Merge,
    #[serde(rename = "mergeOverwrite")]
    MergeOverwrite,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ReadinessChecks {
    pub(super) disable_default: bool,
    pub(super) custom: Vec<CustomCheck>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CustomCheck {
    pub(super) name: String,
    pub(super) disabled: bool,
    #[serde(deserialize_with = "one_or_many")]
    pub(super) resource_selector: Vec<Place>,
    pub(super) label_selector: Option<LabelSelector>,
    pub(super) requirements: Vec<Requirement>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LabelSelector {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) match_labels: BTreeMap<String, String>,
}

/// An object by its place; without a namespace, in the item's.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Place {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) namespace: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Requirement {
    pub(super) json_path: String,
    pub(super) operator: String,
    pub(super) values: Vec<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Exports {
    pub(super) exports: Vec<Export>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Export {
    pub(super) key: String,
    pub(super) json_path: String,
    pub(super) from_resource: Option<Place>,
    pub(super) from_object_ref: Option<FromObjectRef>,
}

/// The kind of the object that the export's path leads to, and the path of the value in that one.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FromObjectRef {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) json_path: String,
}

/// Early versions of the configuration knew only one.
fn one_or_many<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Place>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Many(Vec<Place>),
        One(Place),
    }
    Ok(match Written::deserialize(deserializer)? {
        Written::Many(places) => places,
        Written::One(place) => vec![place],
    })
}
