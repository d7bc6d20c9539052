//! The locks of one unit: the targets it acts on, the Leases of those targets, and which of them it holds.
//!
//! ```text
//! observe ─▶ acquire ─▶ Acquired                 all Leases name the unit and its run
//!                       Acquire(steps)           compare-and-swap on what is missing, then reconcile again
//!                       Reap(steps)              the holder and its run can do nothing more: its lock is released
//!                       Busy(holder)             another unit holds a target; locks on the others are given back
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use pawl_api::meta::{Gate, GateName, NewCondition, Reason, Target};
use pawl_api::pawl::conditions::TARGET_LOCKED;

use super::reaper::lives;
use super::{Claim, Holder, LEASE, Life, Lock, Marks, claim, find_me, free, held_by, key, read, reap};
use crate::object::{Key, Object, Reference};
use crate::plan::Step;
use crate::view::View;

/// The Leases of a unit's targets, as the caches show them.
#[derive(Debug)]
pub struct Locks {
    system_namespace: String,
    /// The unit's own target first; none where its spec is malformed.
    targets: Vec<Target>,
    leases: BTreeMap<Key, Held>,
    /// The Leases that name this unit, whatever its targets are by now.
    held: Vec<Arc<Object>>,
}

/// A Lease, and what became of the unit and the run that hold it, where that is another unit.
type Held = (Arc<Object>, Option<(Life, Life)>);

/// Whether a unit may act on its targets.
#[derive(Debug)]
pub enum LockResult {
    Acquired,
    /// These steps acquire what is missing, if all of them succeed.
    Acquire(Vec<Step>),
    /// The holder and its run can do nothing more: these steps release its lock for it.
    Reap(Vec<Step>),
    Busy(Box<Busy>),
}

/// Another unit holds a target.
#[derive(Debug)]
pub struct Busy {
    pub target: Target,
    /// For people.
    pub holder: String,
    pub lease: Option<Arc<Object>>,
    /// Gives back what the unit holds of its other targets: all or none.
    pub give_back: Vec<Step>,
    /// When to try again at the latest, where that is known: no watch tells that another unit's patience is over.
    pub until: Option<Timestamp>,
}

impl Locks {
    /// The watch of Leases must index [`super::UNIT`].
    pub fn observe(view: &dyn View, system_namespace: &str, unit: &Object, targets: Vec<Target>) -> Self {
        let mut leases = BTreeMap::new();
        for target in &targets {
            let key = key(system_namespace, target);
            let Some(lease) = view.get(&LEASE, &key) else { continue };
            let others = match read(Some(&lease)) {
                Lock::Held(holder) if holder.unit.uid != unit.uid() => Some(lives(view, &holder)),
                Lock::Held(_) | Lock::Free | Lock::Unreadable(_) => None,
            };
            leases.insert(key, (lease, others));
        }
        let system_namespace = system_namespace.to_owned();
        Self { held: held_by(view, unit.uid()), system_namespace, targets, leases }
    }

    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    pub fn held(&self) -> &[Arc<Object>] {
        &self.held
    }

    /// The Lease of a target, held or not.
    pub fn lease(&self, target: &Target) -> Option<&Arc<Object>> {
        self.leases.get(&key(&self.system_namespace, target)).map(|(lease, _)| lease)
    }

    /// `run` is what the unit runs or is about to run, and `marks` are more labels of its Leases.
    pub fn acquire(
        &self,
        unit: &Object,
        run: Option<Reference>,
        marks: &Marks,
        now: Timestamp,
    ) -> LockResult {
        let holder = Holder { unit: unit.reference(), run };
        let lease_of = |key: &Key| self.leases.get(key).map(|(lease, _)| Arc::clone(lease));
        match claim(&self.system_namespace, &self.targets, lease_of, &holder, marks, now) {
            Claim::Have => LockResult::Acquired,
            Claim::Take(steps) => LockResult::Acquire(steps),
            Claim::Busy { target, holder, give_back } => {
                let found = self.leases.get(&key(&self.system_namespace, &target));
                let reaped =
                    found.and_then(|(lease, lives)| lives.and_then(|(unit, run)| reap(lease, unit, run)));
                match reaped {
                    Some(steps) => LockResult::Reap(steps),
                    None => {
                        let lease = found.map(|(lease, _)| Arc::clone(lease));
                        LockResult::Busy(Box::new(Busy { target, holder, lease, give_back, until: None }))
                    }
                }
            }
        }
    }

    /// Releases everything that the unit holds.
    pub fn release(&self) -> Vec<Step> {
        self.held.iter().map(free).collect()
    }
}

impl Busy {
    pub fn message(&self) -> String {
        format!("{} is held by {}", self.target, self.holder)
    }

    /// The gate of a unit that waits for the lock.
    pub fn gate(&self) -> Gate {
        Gate::waiting(GateName::Lock, Reason::TargetLocked, self.message(), "the holder lets go")
    }

    /// The condition of a unit that waits for the lock.
    pub fn condition(&self) -> NewCondition {
        NewCondition::yes(TARGET_LOCKED, Reason::TargetLocked, self.message())
    }

    /// Labels the waiting unit, so that it is reconciled when the target is free; `None` where it is labelled already.
    pub fn label_waiter(&self, unit: &Object) -> Option<Step> {
        find_me(unit, &self.target)
    }
}
