//! The deploy door: Installation → Execution → DeployItem.
//!
//! The words are Landscaper's, so that its manifests with inline blueprints keep working.

pub mod data_object;
pub mod deploy_item;
pub mod execution;
pub mod installation;
pub mod target;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_with::skip_serializing_none;

pub use data_object::{DataObject, DataObjectContent};
pub use deploy_item::{DeployItem, DeployItemPhase, DeployItemSpec, DeployItemStatus};
pub use execution::{DeployItemTemplate, Execution, ExecutionPhase, ExecutionSpec, ExecutionStatus};
pub use installation::{Installation, InstallationPhase, InstallationSpec, InstallationStatus};
pub use target::{Target, TargetSpec};

use crate::meta::Duration;

pub const GROUP: &str = "landscaper.gardener.cloud";
pub const VERSION: &str = "v1alpha1";

/// On Installations, Executions and DeployItems.
pub const FINALIZER: &str = "finalizer.landscaper.gardener.cloud";

pub mod annotations {
    /// `reconcile` or `interrupt`; consumed.
    pub const OPERATION: &str = "landscaper.gardener.cloud/operation";
    /// `"true"`: a new generation starts a job.
    pub const RECONCILE_IF_CHANGED: &str = "landscaper.gardener.cloud/reconcile-if-changed";
    /// `"true"`: deletion only removes objects.
    pub const DELETE_WITHOUT_UNINSTALL: &str = "landscaper.gardener.cloud/delete-without-uninstall";
    /// Ours, on a DeployItem: the names it depended on as a JSON list, for the order in which it goes.
    pub const DEPENDS_ON: &str = "pawl.dev/depends-on";
    /// Ours, on the root of a job: the ID of the job that was asked for last. `reconcile` becomes this in one write, so
    /// that a crash neither loses the request nor starts two jobs.
    pub const JOB: &str = "pawl.dev/job";
    /// Ours: the job that is to be interrupted. `interrupt` becomes this in one write, so that it never hits another.
    pub const INTERRUPT_JOB: &str = "pawl.dev/interrupt-job";
    /// On a sub-Installation: its name in the blueprint.
    pub const SUBINSTALLATION_NAME: &str = "landscaper.gardener.cloud/subinstallation-name";
}

pub mod conditions {
    /// How the last job ended: Unknown while one runs.
    pub const SUCCEEDED: &str = "Succeeded";
    /// True where the spec or the blueprint has keys that nobody reads, as manifests written for Landscaper may.
    pub const KEYS_IGNORED: &str = "KeysIgnored";
}

/// Values of the operation annotation.
pub mod operations {
    pub const RECONCILE: &str = "reconcile";
    pub const INTERRUPT: &str = "interrupt";
}

pub mod labels {
    /// On a DeployItem: the Execution it belongs to.
    pub const MANAGED_BY: &str = "execution.landscaper.gardener.cloud/managed-by";
    /// On a DeployItem: the name of its item in the Execution.
    pub const NAME: &str = "execution.landscaper.gardener.cloud/name";
    /// On a sub-Installation: the Installation whose blueprint it comes from.
    pub const ENCOMPASSED_BY: &str = "landscaper.gardener.cloud/encompassed-by";
    /// On what an Installation exports: the Installation in whose scope it can be seen; the namespace without it.
    pub const DATA_CONTEXT: &str = "data.landscaper.gardener.cloud/context";
    /// On what an Installation exports: its name in that scope.
    pub const DATA_KEY: &str = "data.landscaper.gardener.cloud/key";
    /// On what an Installation exports: that Installation.
    pub const DATA_SOURCE: &str = "data.landscaper.gardener.cloud/source";
    /// Ours, on an object that an item deployed: the DeployItem …
    pub const DEPLOY_ITEM: &str = "pawl.dev/deploy-item";
    /// … and its namespace.
    pub const DEPLOY_ITEM_NAMESPACE: &str = "pawl.dev/deploy-item-namespace";
}

/// Item types with a deployer of ours.
pub mod types {
    pub const MANIFEST: &str = "landscaper.gardener.cloud/kubernetes-manifest";
    pub const CONTAINER: &str = "landscaper.gardener.cloud/container";
    pub const MOCK: &str = "landscaper.gardener.cloud/mock";
    /// The type of a Target that is a cluster.
    pub const KUBERNETES_CLUSTER: &str = "landscaper.gardener.cloud/kubernetes-cluster";
}

/// The key of an item's export Secret.
pub const EXPORT_KEY: &str = "config";

/// How long nobody may pick an item up.
pub const PICKUP_TIMEOUT: Duration = Duration::from_mins(5);
/// How long an item may progress where it does not say.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_mins(10);

/// When the current job passed its stations.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TransitionTimes {
    /// When the job ID arrived.
    pub trigger_time: Option<Time>,
    /// When work on it began.
    pub init_time: Option<Time>,
    /// When nothing was left but waiting for others.
    pub wait_time: Option<Time>,
    /// When it was finished.
    pub finished_time: Option<Time>,
}

/// What went wrong.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LastError {
    /// What was being done.
    #[schemars(length(max = 256))]
    pub operation: String,
    /// Why it failed, as one stable word.
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// Why it failed, in words.
    #[schemars(length(max = 32_768))]
    pub message: String,
    /// When this error first showed.
    pub last_transition_time: Option<Time>,
    /// When it last showed.
    pub last_update_time: Option<Time>,
    /// Classes of errors it belongs to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 128)))]
    pub codes: Vec<String>,
}

/// How long something may take: a duration, or `none` for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timeout {
    After(Duration),
    Never,
}

impl Default for Timeout {
    fn default() -> Self {
        Self::After(DEFAULT_TIMEOUT)
    }
}

const NEVER: &str = "none";

impl Serialize for Timeout {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::After(duration) => duration.serialize(serializer),
            Self::Never => serializer.serialize_str(NEVER),
        }
    }
}

impl<'de> Deserialize<'de> for Timeout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            NEVER => Ok(Self::Never),
            text => text.parse().map(Self::After).map_err(de::Error::custom),
        }
    }
}

impl JsonSchema for Timeout {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timeout".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 40,
            "pattern": "^(none|0|([0-9]{1,9}(\\.[0-9]{1,9})?(ns|us|µs|ms|s|m|h))+)$",
        })
    }
}
