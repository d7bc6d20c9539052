//! What may be done to a cluster, and with which parameters?
//!
//! An action `scale_deployment` has its parameters in the member `scaleDeployment` of the union: the name in
//! camelCase, always. Names of objects have only a length here: whether an object of that name can exist is
//! asked of the cluster.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::meta::Duration;
use crate::meta::schema::{self, is_false};

/// A ConfigMap of 1 MiB is the largest there is; a change to one is far smaller.
pub const MAX_PATCH_CHARS: usize = 65_536;
pub const MAX_REPLICAS: i32 = 1000;

macro_rules! actions {
    ($($(#[$doc:meta])* $variant:ident $name:ident $member:literal;)+) => {
        /// What is to be done.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum Action {
            $($(#[$doc])* $variant,)+
        }

        impl Action {
            /// Every action there is.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// As `spec.action` says it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => stringify!($name),)+ }
            }

            /// The member of the union that holds its parameters.
            pub const fn member(self) -> &'static str {
                match self { $(Self::$variant => $member,)+ }
            }
        }

        /// The parameters of an action: exactly the member of that action.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "camelCase", default)]
        pub struct ActionParameters {
            $(
                $(#[$doc])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $name: Option<$variant>,
            )+
        }

        impl ActionParameters {
            /// The actions whose member is there: one, where the schema was enforced.
            pub fn present(&self) -> Vec<Action> {
                let mut found = Vec::new();
                $(if self.$name.is_some() { found.push(Action::$variant); })+
                found
            }
        }
    };
}

actions! {
    /// Sets the replicas of a Deployment.
    ScaleDeployment scale_deployment "scaleDeployment";
    /// Sets the replicas of a StatefulSet.
    ScaleStatefulset scale_statefulset "scaleStatefulset";
    /// Restarts the pods of a Deployment, StatefulSet or DaemonSet, a few at a time.
    RolloutRestart rollout_restart "rolloutRestart";
    /// Takes a Deployment back to an earlier revision.
    RollbackDeployment rollback_deployment "rollbackDeployment";
    /// Patches a Deployment.
    PatchDeployment patch_deployment "patchDeployment";
    /// Raises the requests and limits of a container.
    IncreaseResources increase_resources "increaseResources";
    /// Moves the bounds of a HorizontalPodAutoscaler.
    UpdateHpa update_hpa "updateHpa";
    /// Deletes a pod, so that its owner makes a new one.
    DeletePod delete_pod "deletePod";
    /// Takes a pod out of its Services and its owner's hands, and keeps it for a look.
    QuarantinePod quarantine_pod "quarantinePod";
    /// Lets no new pods onto a node.
    CordonNode cordon_node "cordonNode";
    /// Lets pods onto a node again.
    UncordonNode uncordon_node "uncordonNode";
    /// Cordons a node and evicts its pods, as their disruption budgets allow.
    DrainNode drain_node "drainNode";
    /// Adds a taint to a node.
    TaintNode taint_node "taintNode";
    /// Removes a taint from a node.
    UntaintNode untaint_node "untaintNode";
    /// Sets and removes keys of a ConfigMap.
    UpdateConfigmap update_configmap "updateConfigmap";
    /// Sets keys of a Secret to values of other Secrets.
    UpdateSecret update_secret "updateSecret";
    /// Asks for a larger volume.
    ExpandPvc expand_pvc "expandPvc";
    /// Applies manifests, each object checked by itself.
    ApplyManifest apply_manifest "applyManifest";
    /// Changes nothing and tells people.
    NotifyOnly notify_only "notifyOnly";
}

impl Action {
    /// The ServiceAccount its Job runs under.
    pub fn service_account(self, prefix: &str) -> String {
        format!("{prefix}{}", self.as_str().replace('_', "-"))
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The CEL rule that ties `parameters` to `action`, for the schema of whatever has both.
pub(crate) fn union_rule() -> serde_json::Value {
    let ties: Vec<String> = Action::ALL
        .iter()
        .map(|action| {
            format!("has(self.parameters.{}) == (self.action == '{}')", action.member(), action.as_str())
        })
        .collect();
    schema::rule(
        &ties.join(" && "),
        "parameters must hold exactly the member of the action: its name in camelCase, as scaleDeployment for \
         scale_deployment",
    )
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleDeployment {
    /// The Deployment.
    #[schemars(length(min = 1, max = 253))]
    pub deployment: String,
    /// Its namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// How many replicas it shall have.
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: i32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleStatefulset {
    /// The StatefulSet.
    #[schemars(length(min = 1, max = 253))]
    pub statefulset: String,
    /// Its namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// How many replicas it shall have.
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: i32,
}

/// A kind that has pods of a template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorkloadKind {
    #[default]
    Deployment,
    Statefulset,
    Daemonset,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutRestart {
    /// What is restarted: a deployment, a statefulset or a daemonset.
    #[serde(default)]
    pub kind: WorkloadKind,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollbackDeployment {
    /// The Deployment.
    #[schemars(length(min = 1, max = 253))]
    pub deployment: String,
    /// Its namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// The revision to go back to; the one before the current when unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub revision: Option<i64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PatchType {
    #[default]
    Strategic,
    Merge,
    Json,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PatchDeployment {
    /// The Deployment.
    #[schemars(length(min = 1, max = 253))]
    pub deployment: String,
    /// Its namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// How the patch is to be read.
    #[serde(default)]
    pub patch_type: PatchType,
    /// The patch, as JSON or YAML text.
    #[schemars(length(min = 2, max = 65_536))]
    pub patch: String,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [schema::rule(
    "has(self.requests) || has(self.limits)",
    "increase_resources needs requests, limits or both",
)]))]
pub struct IncreaseResources {
    /// What the container belongs to: a deployment, a statefulset or a daemonset.
    #[serde(default)]
    pub kind: WorkloadKind,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// The container.
    #[schemars(length(min = 1, max = 63))]
    pub container: String,
    /// What it shall request.
    pub requests: Option<Resources>,
    /// What it shall be limited to.
    pub limits: Option<Resources>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Resources {
    /// Processors, as `500m` or `2`.
    #[schemars(length(min = 1, max = 32), regex(pattern = r"^[0-9]+(\.[0-9]+)?m?$"))]
    pub cpu: Option<String>,
    /// Memory, as `512Mi` or `2Gi`.
    #[schemars(
        length(min = 1, max = 32),
        regex(pattern = r"^[0-9]+(\.[0-9]+)?(Ei|Pi|Ti|Gi|Mi|Ki|E|P|T|G|M|k)?$")
    )]
    pub memory: Option<String>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    schema::rule(
        "has(self.minReplicas) || has(self.maxReplicas)",
        "update_hpa needs minReplicas, maxReplicas or both",
    ),
    schema::rule(
        "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
        "minReplicas must not be above maxReplicas",
    ),
]))]
pub struct UpdateHpa {
    /// The HorizontalPodAutoscaler.
    #[schemars(length(min = 1, max = 253))]
    pub hpa: String,
    /// Its namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// The fewest replicas it may choose.
    #[schemars(range(min = 0, max = 1000))]
    pub min_replicas: Option<i32>,
    /// The most replicas it may choose.
    #[schemars(range(min = 1, max = 1000))]
    pub max_replicas: Option<i32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletePod {
    /// The pod.
    #[schemars(length(min = 1, max = 253))]
    pub pod: String,
    /// Its namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// How long it may take to end; what the pod says when unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600))]
    pub grace_period_seconds: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuarantinePod {
    /// The pod.
    #[schemars(length(min = 1, max = 253))]
    pub pod: String,
    /// Its namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CordonNode {
    /// The node.
    #[schemars(length(min = 1, max = 253))]
    pub node: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UncordonNode {
    /// The node.
    #[schemars(length(min = 1, max = 253))]
    pub node: String,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainNode {
    /// The node.
    #[schemars(length(min = 1, max = 253))]
    pub node: String,
    /// How long each pod may take to end; what the pod says when unset.
    #[schemars(range(min = 0, max = 3600))]
    pub grace_period_seconds: Option<i64>,
    /// Whether pods may be evicted whose emptyDir volumes are lost with them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub delete_empty_dir_data: bool,
    /// Whether pods may be evicted that nobody will make anew.
    #[serde(default, skip_serializing_if = "is_false")]
    pub force: bool,
    /// How long evictions may be refused before the action fails.
    pub eviction_timeout: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaintNode {
    /// The node.
    #[schemars(length(min = 1, max = 253))]
    pub node: String,
    /// The key of the taint.
    #[schemars(length(min = 1, max = 316))]
    pub key: String,
    /// The value of the taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub value: Option<String>,
    /// What it does to pods that do not tolerate it.
    pub effect: TaintEffect,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UntaintNode {
    /// The node.
    #[schemars(length(min = 1, max = 253))]
    pub node: String,
    /// The key of the taint.
    #[schemars(length(min = 1, max = 316))]
    pub key: String,
    /// Its effect; taints of that key with any effect when unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<TaintEffect>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [schema::rule(
    "has(self.data) || has(self.removeKeys)",
    "update_configmap needs data, removeKeys or both",
)]))]
pub struct UpdateConfigmap {
    /// The ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub config_map: String,
    /// Its namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Keys and what they shall be.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::string_map::<64, 65536>")]
    pub data: BTreeMap<String, String>,
    /// Keys that shall go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub remove_keys: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateSecret {
    /// The Secret.
    #[schemars(length(min = 1, max = 253))]
    pub secret: String,
    /// Its namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Keys and where their new values come from: never the values themselves.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 64))]
    pub data: BTreeMap<String, SecretValue>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretValue {
    /// Where the value comes from.
    pub value_from: SecretValueSource,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretValueSource {
    /// A key of a Secret in the namespace of the execution.
    pub secret_key_ref: SecretKeyRef,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// The Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in it.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExpandPvc {
    /// The PersistentVolumeClaim.
    #[schemars(length(min = 1, max = 253))]
    pub pvc: String,
    /// Its namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// How large it shall be, as `20Gi`. Volumes never shrink.
    #[schemars(
        length(min = 1, max = 32),
        regex(pattern = r"^[0-9]+(\.[0-9]+)?(Ei|Pi|Ti|Gi|Mi|Ki|E|P|T|G|M|k)?$")
    )]
    pub size: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplyManifest {
    /// One or more objects, as YAML or JSON text.
    #[schemars(length(min = 2, max = 262_144))]
    pub manifest: String,
    /// The namespace of objects that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotifyOnly {
    /// What people are told.
    #[schemars(length(min = 1, max = 4096))]
    pub message: String,
    /// What it is about: `namespace/kind/name` or `kind/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 1024))]
    pub target: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_nineteen_actions_and_each_member_is_its_name_in_camel_case() {
        assert_eq!(Action::ALL.len(), 19);
        for action in Action::ALL {
            let mut camel = String::new();
            for (at, word) in action.as_str().split('_').enumerate() {
                let (first, rest) = word.split_at(1);
                camel.push_str(&if at == 0 { first.to_owned() } else { first.to_uppercase() });
                camel.push_str(rest);
            }
            assert_eq!(action.member(), camel);
            assert_eq!(serde_json::to_value(action).unwrap(), action.as_str());
        }
    }

    #[test]
    fn parameters_say_whose_they_are() {
        let parameters: ActionParameters = serde_json::from_value(serde_json::json!({
            "scaleDeployment": {"deployment": "web", "namespace": "prod", "replicas": 3}
        }))
        .unwrap();
        assert_eq!(parameters.present(), [Action::ScaleDeployment]);
        assert_eq!(
            Action::ScaleDeployment.service_account(crate::remedy::SERVICE_ACCOUNT_PREFIX),
            "kubernaut-action-scale-deployment"
        );
    }
}
