//! Handing the ledger what an object's state says has happened, and saying on the object when that does not work.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use pawl_machines::audit::{self, Entry, Standing};
use pawl_machines::machine::{AnyMachine, BoundPlan};
use pawl_machines::object::Object;
use pawl_machines::plan::Step;
use tokio::time::timeout;
use uuid::Uuid;

use crate::engine::Core;
use crate::ledger::Changes;
use crate::queue::Work;
use crate::reconcile::Slot;

/// How long a write waits for the ledger to make safe what the state before it said. A commit takes milliseconds, and a
/// store that is down is known to be after its first time-out; whoever waits longer than this waits for nothing, and
/// the work goes on.
const KEEP: Duration = Duration::from_secs(2);

/// What was offered of one object. A restart forgets it, and then everything is offered once more.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Of which life: a namesake tells its own story.
    uid: String,
    /// What its state implied when it was last looked at.
    offered: Vec<Uuid>,
    /// Whether it was last seen to say that something is not recorded.
    waits: bool,
}

impl Core {
    /// Offers what is new in the object's state; false for kinds that are not audited, and where nobody keeps a ledger.
    pub(crate) fn tell(&self, machine: &AnyMachine, work: &Work, me: &Arc<Object>) -> bool {
        if !self.ledger.keeps() {
            return false;
        }
        let Some(entries) = machine.audit(&*self.caches, me, self.time.wall()) else { return false };
        let mut all = self.told();
        let told = all.entry(work.clone()).or_default();
        if told.uid != me.uid() {
            *told = Told { uid: me.uid().to_owned(), ..Told::default() };
        }
        let ids = entries.iter().map(|entry| entry.id).collect();
        let before = std::mem::replace(&mut told.offered, ids);
        drop(all);
        let new: Vec<Entry> = entries.into_iter().filter(|entry| !before.contains(&entry.id)).collect();
        if !new.is_empty() {
            self.ledger.offer(new);
        }
        true
    }

    pub(crate) fn told(&self) -> MutexGuard<'_, BTreeMap<Work, Told>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before a plan is applied: what is to be said of the ledger goes into its status, and what its writes would make
    /// the object forget is made safe. A status may forget (the next job's, the next commit's), and a release does.
    pub(crate) async fn record_before(
        &self,
        machine: &AnyMachine,
        work: &Work,
        me: &Arc<Object>,
        plan: &mut BoundPlan,
        slot: &mut Slot,
    ) {
        let now = self.time.wall();
        let last_words = machine.teller(&*self.caches, me, now).last_words(plan);
        if let Some(last_words) = last_words {
            self.ledger.offer(vec![last_words]);
        }
        let standing = self.ledger.standing(me.uid());
        audit::say(plan, me, &standing, now);
        if let Some(told) = self.told().get_mut(work) {
            told.waits = standing != Standing::Recorded;
        }
        if plan.status.is_none() && !plan.steps.iter().any(Step::releases_object) {
            return;
        }
        let mut keep = self.ledger.keep(me.uid());
        if futures::poll!(&mut keep).is_pending() {
            slot.free();
            self.work.notify_one();
            if timeout(KEEP, keep).await.is_err() {
                tracing::warn!("the ledger has not made safe what happened before; the work goes on");
            }
            slot.take().await;
        }
    }

    /// Wakes those whose standing with the ledger has changed, for as long as the loop runs.
    pub(crate) async fn follow_the_ledger(self: Arc<Self>) {
        let mut changes = self.ledger.changes();
        let mut before = *changes.borrow_and_update();
        while changes.changed().await.is_ok() {
            let after: Changes = *changes.borrow_and_update();
            self.standings_changed(after.dropped != before.dropped);
            before = after;
        }
        // Nobody tells any more; the loop ends by itself.
        std::future::pending::<()>().await;
    }

    fn standings_changed(&self, dropped: bool) {
        let mut woken = Vec::new();
        for (work, told) in self.told().iter_mut() {
            if dropped {
                told.offered.clear();
            }
            let waits = self.ledger.standing(&told.uid) != Standing::Recorded;
            if dropped || waits || told.waits != waits {
                woken.push(work.clone());
            }
        }
        let now = self.time.moment();
        let mut queue = self.queue();
        woken.iter().for_each(|work| queue.wake(work, now));
        drop(queue);
        self.work.notify_one();
    }
}
