//! Functions that actions share for Deployments, StatefulSets and DaemonSets.

use pawl_api::k8s::{DAEMON_SET, DEPLOYMENT, STATEFUL_SET};
use pawl_api::meta::Kind;
use pawl_api::remedy::actions::{MAX_REPLICAS, WorkloadKind};
use serde_json::Value;

use super::definition::Problem;

pub(super) fn kind(kind: WorkloadKind) -> Kind {
    match kind {
        WorkloadKind::Deployment => DEPLOYMENT,
        WorkloadKind::Statefulset => STATEFUL_SET,
        WorkloadKind::Daemonset => DAEMON_SET,
    }
}

/// Whether it would not replace its pods.
pub(super) fn is_paused(object: &Value) -> bool {
    object.pointer("/spec/paused").and_then(Value::as_bool) == Some(true)
}

/// How many replicas are wanted; 1 where nothing is said.
pub(super) fn replicas(object: &Value) -> i64 {
    object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1)
}

pub(super) fn check_replicas(field: &str, replicas: i32, least: i32) -> Result<(), Problem> {
    if (least..=MAX_REPLICAS).contains(&replicas) {
        return Ok(());
    }
    Err(Problem::new(field, format!("{replicas} is not allowed: from {least} to {MAX_REPLICAS}")))
}
