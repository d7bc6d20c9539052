//! Which locks does an execution want, has it got them, and who has them otherwise?

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use pawl_api::git::workflow::WAITS_FOR;
use pawl_api::meta::Target;
use serde_json::json;

use crate::lock::reaper::lives;
use crate::lock::{self, Claim, Holder, LEASE, Life, Lock, Marks};
use crate::object::{Key, Object, Reference};
use crate::plan::{Part, Step};
use crate::view::View;

/// What the caches show of an execution's locks.
#[derive(Debug)]
pub(super) struct Locks {
    targets: Vec<Target>,
    /// The Leases of those targets that are there, and what became of whoever else holds them.
    leases: BTreeMap<Key, Seen>,
    /// The Leases that name this execution, whatever its targets are by now.
    held: Vec<Arc<Object>>,
}

/// A Lease, and what became of its holder and of the run that the holder started.
type Seen = (Arc<Object>, Option<(Life, Life)>);

/// Whether an execution may act on its targets now.
pub(super) enum Turn {
    Yes,
    /// After these steps, if they all succeed.
    Take(Vec<Step>),
    /// Whoever holds them can do nothing more: these steps let go for it. Then look again.
    Reap(Vec<Step>),
    Busy(Box<Busy>),
}

/// Somebody else holds a target.
pub(super) struct Busy {
    pub(super) target: Target,
    pub(super) holder: String,
    /// What was taken of the others, given back; and what makes the execution findable for whoever frees the target.
    pub(super) steps: Vec<Step>,
}

impl Locks {
    pub(super) fn observe(view: &dyn View, system_namespace: &str, me: &Object, targets: &[Target]) -> Self {
        let mut leases = BTreeMap::new();
        for key in targets.iter().map(|target| lock::key(system_namespace, target)) {
            let Some(lease) = view.get(&LEASE, &key) else { continue };
            let judged = match lock::read(Some(&lease)) {
                Lock::Held(holder) if holder.unit.uid != me.uid() => Some(lives(view, &holder)),
                Lock::Held(_) | Lock::Free | Lock::Unreadable(_) => None,
            };
            leases.insert(key, (lease, judged));
        }
        Self { targets: targets.to_vec(), leases, held: lock::held_by(view, me.uid()) }
    }

    pub(super) fn holds_some(&self) -> bool {
        !self.held.is_empty()
    }

    pub(super) fn turn(&self, system_namespace: &str, me: &Object, run: Reference, now: Timestamp) -> Turn {
        let holder = Holder { unit: me.reference(), run: Some(run) };
        let lease_of = |key: &Key| self.leases.get(key).map(|(lease, _)| Arc::clone(lease));
        match lock::claim(system_namespace, &self.targets, lease_of, &holder, &Marks::new(), now) {
            Claim::Have => Turn::Yes,
            Claim::Take(steps) => Turn::Take(steps),
            Claim::Busy { target, holder, give_back } => {
                let found = self.leases.get(&lock::key(system_namespace, &target));
                let reaped = found
                    .and_then(|(lease, judged)| judged.and_then(|(unit, run)| lock::reap(lease, unit, run)));
                if let Some(steps) = reaped {
                    return Turn::Reap(steps);
                }
                let steps = give_back.into_iter().chain(find_me(me, &target)).collect();
                Turn::Busy(Box::new(Busy { target, holder, steps }))
            }
        }
    }

    /// Lets go of everything it holds.
    pub(super) fn release(&self) -> Vec<Step> {
        self.held.iter().map(lock::free).collect()
    }
}

fn find_me(me: &Object, target: &Target) -> Option<Step> {
    let hash = target.short_hash();
    (me.label(WAITS_FOR) != Some(&hash)).then(|| Step::Patch {
        target: me.reference(),
        resource_version: None,
        patch: json!({"metadata": {"labels": {WAITS_FOR: hash}}}),
        part: Part::Main,
    })
}
