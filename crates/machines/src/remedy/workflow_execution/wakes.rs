//! Whom does a change concern?

use pawl_api::remedy::annotations::EXECUTION;
use pawl_api::remedy::workflow_execution;

use crate::lock::{self, Lock};
use crate::object::{Key, Object};
use crate::remedy::memory::Memory;
use crate::view::View;

/// A run, a TaskRun or a Pod: all of them name their execution in full.
pub(super) fn of_the_execution(object: &Object, _: &dyn View) -> Vec<Key> {
    let named = object.annotation(EXECUTION).and_then(|named| named.split_once('/'));
    named.map(|(namespace, name)| Key::new(Some(namespace), name)).into_iter().collect()
}

/// Who holds it, and whose block was cleared. Nobody waits for a lock: who finds it taken is skipped.
pub(super) fn of_the_lock(lease: &Object, _: &dyn View) -> Vec<Key> {
    if lock::target_hash(lease).is_none() {
        return Vec::new();
    }
    let holder = match lock::read_object(lease) {
        Lock::Held(holder) if holder.unit.kind == workflow_execution::KIND => Some(holder.unit.key),
        Lock::Held(_) | Lock::Free | Lock::Unreadable(_) => None,
    };
    let memory = Memory::of(Some(lease)).unwrap_or_default();
    // The version before named the block that this one no longer has.
    let blocked = memory.workflows().filter_map(|(_, one)| one.block.as_ref());
    let blocked: Vec<Key> = blocked.map(|block| Key::new(Some(&block.namespace), &block.name)).collect();
    holder.into_iter().chain(blocked).collect()
}
