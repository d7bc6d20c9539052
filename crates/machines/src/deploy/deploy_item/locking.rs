//! What does an item act on, is it the item's alone yet, and may it let go?
//!
//! An item locks itself (`item:ns/execution/name`), what its annotation `pawl.dev/targets` lists, and what its deployer
//! says that it acts on: all or none. It waits for them after it was picked up, and the time does not count.

use pawl_api::deploy::deploy_item::KIND;
use pawl_api::deploy::labels;
use pawl_api::git::workflow::WAITS_FOR;
use pawl_api::meta::Target;
use pawl_api::pawl::annotations::TARGETS;

use crate::lock::{self, LEASE, Lock};
use crate::object::{Key, Object};
use crate::view::View;

/// All that an item acts on, its own target first; and what is wrong with its annotation.
pub(super) fn targets(me: &Object, acts_on: Vec<Target>) -> (Vec<Target>, Option<String>) {
    let listed = lock::listed(me.annotation(TARGETS).unwrap_or_default());
    let problem =
        listed.as_ref().err().map(|error| format!("annotation {TARGETS} of the DeployItem: {error}"));
    let targets = own(me).into_iter().chain(listed.unwrap_or_default()).chain(acts_on);
    (targets.collect(), problem)
}

/// What an item is called among the targets of all units.
pub(super) fn own(me: &Object) -> Option<Target> {
    let (execution, name) = (me.label(labels::MANAGED_BY), me.label(labels::NAME));
    let namespace = me.namespace().unwrap_or_default();
    Target::item(namespace, execution.unwrap_or("none"), name.unwrap_or(me.name())).ok()
}

/// When a lock is free, those who wait for it.
pub(super) fn of_the_lock(lease: &Object, view: &dyn View) -> Vec<Key> {
    let Some(hash) = lock::target_hash(lease) else { return Vec::new() };
    if lock::read(view.get(&LEASE, &lease.key()).as_ref()) != Lock::Free {
        return Vec::new();
    }
    view.labelled(&KIND, WAITS_FOR, hash).iter().map(|item| item.key()).collect()
}
