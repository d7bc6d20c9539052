//! What does an item act on, is it the item's alone yet, and may it let go?
//!
//! An item locks itself (`item:ns/execution/name`), what its annotation `pawl.dev/targets` lists, and what its deployer
//! says that it acts on: all or none. It waits for them after it was picked up, and the time does not count.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use pawl_api::deploy::deploy_item::KIND;
use pawl_api::deploy::labels;
use pawl_api::git::workflow::WAITS_FOR;
use pawl_api::meta::Target;
use pawl_api::pawl::annotations::TARGETS;

use crate::lock::{self, Claim, Holder, LEASE, Lock, Marks, Taken, Turn};
use crate::object::{Key, Object, Reference};
use crate::plan::Step;
use crate::view::View;

/// What the caches show of an item's locks.
#[derive(Debug)]
pub(super) struct Locks {
    /// Its own target first.
    targets: Vec<Target>,
    /// What is wrong with the annotation.
    pub(super) problem: Option<String>,
    /// The Leases of those targets that are there.
    leases: BTreeMap<Key, Arc<Object>>,
    /// The Leases that name this item, whatever its targets are by now.
    pub(super) held: Vec<Arc<Object>>,
}

impl Locks {
    pub(super) fn observe(
        view: &dyn View,
        system_namespace: &str,
        me: &Object,
        acts_on: Vec<Target>,
    ) -> Self {
        let mut targets: Vec<Target> = own(me).into_iter().collect();
        let listed = lock::listed(me.annotation(TARGETS).unwrap_or_default());
        let problem =
            listed.as_ref().err().map(|error| format!("annotation {TARGETS} of the DeployItem: {error}"));
        targets.extend(listed.unwrap_or_default());
        targets.extend(acts_on);
        let keys = targets.iter().map(|target| lock::key(system_namespace, target));
        let leases = keys.filter_map(|key| Some((key.clone(), view.get(&LEASE, &key)?))).collect();
        Self { targets, problem, leases, held: lock::held_by(view, me.uid()) }
    }

    /// All that it acts on, as far as that is known.
    pub(super) fn targets(&self) -> &[Target] {
        &self.targets
    }

    pub(super) fn turn(
        &self,
        system_namespace: &str,
        me: &Object,
        run: Option<Reference>,
        now: Timestamp,
    ) -> Turn {
        let holder = Holder { unit: me.reference(), run };
        let lease_of = |key: &Key| self.leases.get(key).cloned();
        match lock::claim(system_namespace, &self.targets, lease_of, &holder, &Marks::new(), now) {
            Claim::Have => Turn::Yes,
            Claim::Take(steps) => Turn::Take(steps),
            Claim::Busy { target, holder, give_back } => {
                let find_me = lock::find_me(me, &target);
                Turn::No(Box::new(Taken { target, holder, give_back, find_me }))
            }
        }
    }

    /// Lets go of everything that the item holds.
    pub(super) fn free(&self) -> Vec<Step> {
        self.held.iter().map(lock::free).collect()
    }
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
