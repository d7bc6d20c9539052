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
use crate::plan::Step;
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

/// Whether an execution may act on its targets now.
pub(super) enum Turn {
    Yes,
    /// These steps change the locks; then reconcile again. Acquired ones belong to the execution if all succeed.
    Change {
        steps: Vec<Step>,
        acquires: bool,
    },
    Wait(Box<Wait>),
}

/// Another unit holds a target, or is to have it first.
pub(super) struct Wait {
    pub(super) busy: Busy,
    /// Until when that is so at the latest, where that is known.
    pub(super) until: Option<Timestamp>,
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
    pub(super) fn turn(&self, run: Reference, now: Timestamp) -> Turn {
        let begun = !run.uid.is_empty() || !self.locks.held().is_empty();
        match self.locks.acquire(self.cx.object, Some(run), &Marks::new(), now) {
            LockResult::Acquired => Turn::Yes,
            LockResult::Reap(steps) => Turn::Change { steps, acquires: false },
            LockResult::Busy(busy) => Turn::Wait(Box::new(Wait { busy: *busy, until: None })),
            LockResult::Acquire(steps) => match self.ahead.iter().find(|(_, first)| now < first.until) {
                // Who has one of them already, or a Job that was recorded, goes on: it was its turn.
                Some((target, Waiter { who, until, .. })) if !begun => {
                    let holder = format!("nobody; {who} has waited for longer");
                    let busy = Busy { target: target.clone(), holder, lease: None, give_back: Vec::new() };
                    Turn::Wait(Box::new(Wait { busy, until: Some(*until) }))
                }
                Some(_) | None => Turn::Change { steps, acquires: true },
            },
        }
    }
}

/// The one that has waited for a target for longest.
pub(super) fn first_in_line(view: &dyn View, hash: &str) -> Option<Waiter> {
    let named = view.labelled(&KIND, WAITS_FOR, hash);
    named.iter().filter_map(Waiter::read).min_by(|one, other| one.place.cmp(&other.place))
}
