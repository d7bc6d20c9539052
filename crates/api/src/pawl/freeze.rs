//! When shall nothing move?

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::meta::{Condition, Duration, Kind, condition, schema};

pub const KIND: Kind = Kind::of(super::GROUP, super::VERSION, "Freeze", "freezes", false);

/// A time in which units wait.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "pawl.dev",
    version = "v1alpha1",
    kind = "Freeze",
    plural = "freezes",
    status = "FreezeStatus",
    category = "pawl",
    derive = "PartialEq",
    doc = "A time in which units wait.",
    printcolumn(name = "Active", type_ = "boolean", json_path = ".status.active"),
    printcolumn(name = "Until", type_ = "string", json_path = ".status.activeUntil"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".spec.reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    schema::rule(
        "has(self.schedule) != (has(self.from) || has(self.until))",
        "a Freeze has either a schedule, or from, until or both",
    ),
    schema::rule("!has(self.from) || !has(self.until) || self.from < self.until", "from must be before until"),
]))]
pub struct FreezeSpec {
    /// Times that come again.
    pub schedule: Option<Schedule>,
    /// When it begins; it has begun when unset.
    pub from: Option<Time>,
    /// When it ends; never when unset.
    pub until: Option<Time>,
    /// The doors it closes; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3), extend("x-kubernetes-list-type" = "set"))]
    pub doors: Vec<Door>,
    /// The namespaces whose units wait, `*` standing for any text; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 63)))]
    pub namespaces: Vec<String>,
    /// The targets whose units wait, `*` standing for any text, as `prod/deployment/*`; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 1024)))]
    pub targets: Vec<String>,
    /// Why, for those who wait.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Schedule {
    /// When it begins, as five fields of cron.
    #[schemars(length(min = 9, max = 128))]
    pub cron: String,
    /// How long it lasts.
    pub duration: Duration,
    /// The time zone of the fields, as `Europe/Berlin`; UTC when unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Door {
    Git,
    Deploy,
    Remedy,
}

/// Whether it holds.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FreezeStatus {
    /// The metadata.generation that this status is about.
    pub observed_generation: Option<i64>,
    /// Whether it holds now.
    pub active: Option<bool>,
    /// Until when, where it holds.
    pub active_until: Option<Time>,
    /// When it holds next, where it does not.
    pub next_start: Option<Time>,
    /// `Valid`: the schedule can be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list_schema")]
    pub conditions: Vec<Condition>,
}
