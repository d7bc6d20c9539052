//! What do Deployments, StatefulSets and DaemonSets have in common that actions care about?

use pawl_api::k8s::{DAEMON_SET, DEPLOYMENT, STATEFUL_SET};
use pawl_api::meta::Kind;
use pawl_api::remedy::actions::{MAX_REPLICAS, WorkloadKind};
use serde_json::{Value, json};

use super::definition::Problem;
use super::kept::Restore;

pub(super) fn kind(kind: WorkloadKind) -> Kind {
    match kind {
        WorkloadKind::Deployment => DEPLOYMENT,
        WorkloadKind::Statefulset => STATEFUL_SET,
        WorkloadKind::Daemonset => DAEMON_SET,
    }
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

/// What sets the replicas; `None` where they are so already.
pub(super) fn scale(object: &Value, replicas: i32) -> Option<Value> {
    (self::replicas(object) != i64::from(replicas)).then(|| json!({"spec": {"replicas": replicas}}))
}

pub(super) fn restore_replicas(object: &Value) -> Restore {
    Restore::Merge(json!({"spec": {"replicas": replicas(object)}}))
}

/// As the parameters of an action take it; `None` where it is beyond their limits.
pub(super) fn undoable_replicas(object: &Value) -> Option<i32> {
    i32::try_from(replicas(object)).ok().filter(|replicas| (0..=MAX_REPLICAS).contains(replicas))
}
