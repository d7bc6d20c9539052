//! Records of earlier executions on the target's Lease, and the holder of a target in the original's format.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::remedy::WorkflowExecution;
use pawl_api::remedy::annotations::MEMORY;
use pawl_api::remedy::workflow_execution::{self, ConflictingWorkflow};
use serde_json::Value;

use crate::lock::{self, Kept, Lock, Locks};
use crate::object::Object;
use crate::plan::Step;
use crate::remedy::memory::{Memory, Unreadable};
use crate::view::View;

/// The Lease of its own target.
pub(super) fn own(locks: &Locks) -> Option<&Arc<Object>> {
    locks.lease(locks.targets().first()?)
}

pub(super) fn memory(locks: &Locks) -> Result<Memory, Unreadable> {
    Memory::of(own(locks).map(AsRef::as_ref))
}

/// Releases everything it holds. What its own target must remember is written in the same request.
pub(super) fn release(locks: &Locks, memory: Option<&Memory>) -> Vec<Step> {
    let kept = memory.map(remembered).unwrap_or_default();
    let own = own(locks).map(|lease| lease.key());
    let free = |lease: &Arc<Object>| match &own {
        Some(own) if *own == lease.key() => lock::free_keeping(lease, &kept),
        Some(_) | None => lock::free(lease),
    };
    locks.held().iter().map(free).collect()
}

/// Writes down what the target must remember, and keeps the lock.
pub(super) fn remember(locks: &Locks, memory: &Memory) -> Option<Step> {
    let own = own(locks)?.key();
    let own = locks.held().iter().find(|lease| lease.key() == own)?;
    Some(lock::keep(own, &remembered(memory)))
}

fn remembered(memory: &Memory) -> Kept {
    [(MEMORY, memory.written())].into()
}

/// The holder of a Lease, as `status.skipDetails` names it.
pub(super) fn conflict(view: &dyn View, lease: &Arc<Object>) -> ConflictingWorkflow {
    let holder = match lock::read(Some(lease)) {
        Lock::Held(holder) => holder,
        Lock::Free => return ConflictingWorkflow::default(),
        Lock::Unreadable(name) => return ConflictingWorkflow { name, ..ConflictingWorkflow::default() },
    };
    let unit = &holder.unit;
    let workflow_id = (unit.kind == workflow_execution::KIND)
        .then(|| view.get(&unit.kind, &unit.key)?.parse::<WorkflowExecution>().ok())
        .flatten()
        .map(|other| other.spec.workflow_ref.workflow_id.clone());
    let since = lease.raw().pointer("/spec/acquireTime").and_then(Value::as_str);
    ConflictingWorkflow {
        kind: unit.kind.kind.clone().into_owned(),
        namespace: unit.key.namespace.clone().unwrap_or_default(),
        name: unit.key.name.clone(),
        workflow_id,
        started_at: since.and_then(|since| since.parse().ok()).map(Time),
    }
}
