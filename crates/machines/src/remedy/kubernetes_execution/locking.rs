//! Which locks does an execution want, has it got them, and who has them otherwise?
//!
//! Who waits for a target says so in a label. When it is free, the one that was there first takes it; the others do not
//! try while they see that one in line. That is a courtesy, not a lock: compare and swap on the Lease decides.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use pawl_api::git::workflow::WAITS_FOR;
use pawl_api::meta::{Target, condition};
use pawl_api::pawl::conditions::{FROZEN, TARGET_LOCKED};
use pawl_api::remedy::kubernetes_execution::KIND;
use pawl_api::remedy::{KubernetesExecution, KubernetesExecutionPhase};

use crate::lock::reaper::lives;
use crate::lock::{self, Claim, Holder, LEASE, Life, Lock, Marks, Place};
use crate::object::{Key, Object, Reference};
use crate::plan::Step;
use crate::view::View;

/// What the caches show of an execution's locks.
#[derive(Debug)]
pub(super) struct Locks {
    targets: Vec<Target>,
    /// The Leases of those targets that are there, and what became of whoever else holds them.
    leases: BTreeMap<Key, Seen>,
    /// The Leases that name this execution, whatever its targets are by now.
    held: Vec<Arc<Object>>,
    /// Who was there before this one, per target for which somebody waits.
    before: BTreeMap<Key, Waiter>,
}

/// Somebody who waits for a target.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) who: Reference,
    place: Place,
    /// Until when it waits.
    until: Timestamp,
}

impl Waiter {
    /// `None`: it does not stand in line. Whoever is over, asks people first, is frozen or was never told to wait does not.
    fn read(object: &Arc<Object>) -> Option<Self> {
        let execution = object.parse::<KubernetesExecution>().ok()?;
        let status = execution.status.as_ref().filter(|_| !object.is_deleting())?;
        let waits = status.phase == Some(KubernetesExecutionPhase::Executing)
            && status.job_ref.is_none()
            && condition::is_true(&status.conditions, TARGET_LOCKED)
            && !condition::is_true(&status.conditions, FROZEN);
        let until = status.lock_deadline.as_ref().filter(|_| waits)?.0;
        Some(Self { who: object.reference(), place: Place::of(object, None), until })
    }
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

/// Somebody else holds a target, or is to have it first.
pub(super) struct Busy {
    pub(super) target: Target,
    pub(super) holder: String,
    /// Until when that is so at the latest, where that is known.
    pub(super) until: Option<Timestamp>,
    /// What was taken of the others, given back; and what makes the execution findable for whoever frees the target.
    pub(super) steps: Vec<Step>,
}

impl Locks {
    pub(super) fn observe(view: &dyn View, system_namespace: &str, me: &Object, targets: &[Target]) -> Self {
        let (mut leases, mut before) = (BTreeMap::new(), BTreeMap::new());
        let mine = Place::of(me, None);
        for target in targets {
            let key = lock::key(system_namespace, target);
            // By age alone, whatever line each of them stands in: no two ever wait for each other.
            let first = first_in_line(view, &target.short_hash()).filter(|first| first.place < mine);
            before.extend(first.map(|first| (key.clone(), first)));
            let Some(lease) = view.get(&LEASE, &key) else { continue };
            let judged = match lock::read(Some(&lease)) {
                Lock::Held(holder) if holder.unit.uid != me.uid() => Some(lives(view, &holder)),
                Lock::Held(_) | Lock::Free | Lock::Unreadable(_) => None,
            };
            leases.insert(key, (lease, judged));
        }
        Self { targets: targets.to_vec(), leases, held: lock::held_by(view, me.uid()), before }
    }

    pub(super) fn holds_some(&self) -> bool {
        !self.held.is_empty()
    }

    pub(super) fn turn(&self, system_namespace: &str, me: &Object, run: Reference, now: Timestamp) -> Turn {
        let begun = !run.uid.is_empty();
        let holder = Holder { unit: me.reference(), run: Some(run) };
        let lease_of = |key: &Key| self.leases.get(key).map(|(lease, _)| Arc::clone(lease));
        match lock::claim(system_namespace, &self.targets, lease_of, &holder, &Marks::new(), now) {
            Claim::Have => Turn::Yes,
            // Who has one of them already, or a Job that was recorded, goes on: it was its turn.
            Claim::Take(steps) if begun || !self.held.is_empty() => Turn::Take(steps),
            Claim::Take(steps) => match self.first_before(system_namespace, now) {
                None => Turn::Take(steps),
                Some((target, Waiter { who, until, .. })) => {
                    let holder = format!("nobody; {who} has waited for longer");
                    let steps = lock::find_me(me, target).into_iter().collect();
                    Turn::Busy(Box::new(Busy { target: target.clone(), holder, until: Some(*until), steps }))
                }
            },
            Claim::Busy { target, holder, give_back } => {
                let found = self.leases.get(&lock::key(system_namespace, &target));
                let reaped = found
                    .and_then(|(lease, judged)| judged.and_then(|(unit, run)| lock::reap(lease, unit, run)));
                if let Some(steps) = reaped {
                    return Turn::Reap(steps);
                }
                let steps = give_back.into_iter().chain(lock::find_me(me, &target)).collect();
                Turn::Busy(Box::new(Busy { target, holder, until: None, steps }))
            }
        }
    }

    /// Whose turn comes before, while that one still waits.
    fn first_before(&self, system_namespace: &str, now: Timestamp) -> Option<(&Target, &Waiter)> {
        self.targets.iter().find_map(|target| {
            let first = self.before.get(&lock::key(system_namespace, target))?;
            (now < first.until).then_some((target, first))
        })
    }

    /// Lets go of everything it holds.
    pub(super) fn release(&self) -> Vec<Step> {
        self.held.iter().map(lock::free).collect()
    }
}

/// The one that has waited for a target for longest.
pub(super) fn first_in_line(view: &dyn View, hash: &str) -> Option<Waiter> {
    let named = view.labelled(&KIND, WAITS_FOR, hash);
    named.iter().filter_map(Waiter::read).min_by(|one, other| one.place.cmp(&other.place))
}
