//! Which locks does an execution want, has it got them, and who has them otherwise?
//!
//! Who waits for a target says so in a label. When it is free, the one that was there first takes it; the others do not
//! try while they see that one in line. That is a courtesy, not a lock: compare and swap on the Lease decides.

use std::sync::Arc;

use jiff::Timestamp;
use pawl_api::git::workflow::WAITS_FOR;
use pawl_api::meta::{Target, condition};
use pawl_api::pawl::conditions::{FROZEN, TARGET_LOCKED};
use pawl_api::remedy::kubernetes_execution::KIND;
use pawl_api::remedy::{KubernetesExecution, KubernetesExecutionPhase};

use super::Facts;
use crate::lock::{Busy, LockResult, Marks, Place};
use crate::object::{Object, Reference};
use crate::view::View;

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

/// Those that were there before this execution, per target for which somebody waits. By age alone, whichever queue each
/// of them is in: no two ever wait for each other.
pub(super) fn ahead(view: &dyn View, me: &Object, targets: &[Target]) -> Vec<(Target, Waiter)> {
    let mine = Place::of(me, None);
    let first = targets.iter().filter_map(|target| {
        let first = first_in_line(view, &target.short_hash()).filter(|first| first.place < mine)?;
        Some((target.clone(), first))
    });
    first.collect()
}

impl Facts<'_> {
    /// As [`crate::lock::Locks::acquire`]; a free target is left to the execution that has waited for longest.
    pub(super) fn acquire(&self, run: Reference, now: Timestamp) -> LockResult {
        let begun = !run.uid.is_empty() || !self.locks.held().is_empty();
        let result = self.locks.acquire(self.cx.object, Some(run), &Marks::new(), now);
        let first = self.ahead.iter().find(|(_, first)| now < first.until);
        match (result, first) {
            // Who has one of them already, or a Job that was recorded, goes on: it was its turn.
            (LockResult::Acquire(_), Some((target, Waiter { who, until, .. }))) if !begun => {
                LockResult::Busy(Box::new(Busy {
                    target: target.clone(),
                    holder: format!("nobody; {who} has waited for longer"),
                    lease: None,
                    give_back: Vec::new(),
                    until: Some(*until),
                }))
            }
            (result, _) => result,
        }
    }
}

/// The one that has waited for a target for longest.
pub(super) fn first_in_line(view: &dyn View, hash: &str) -> Option<Waiter> {
    let named = view.labelled(&KIND, WAITS_FOR, hash);
    named.iter().filter_map(Waiter::read).min_by(|one, other| one.place.cmp(&other.place))
}
