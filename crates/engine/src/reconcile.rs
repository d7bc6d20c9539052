//! One look at one object: observe, decide, apply, and see to it that the next look sees what was done.
//!
//! ```text
//!  caches have seen our last writes? ─▶ observe+decide ─▶ apply ─▶ refused? ── once ──▶ decide again, knowing it
//!        ▲ (else: behind, retried)       │ panic, fault      │ failed                        │
//!        │                               ▼                   ▼                               ▼
//!        └───────────────────────── retry with back-off ◀────┘                wait until the caches have seen it
//! ```
//! A plan with external calls is applied, the calls are made, and the object is decided on again with the
//! answers, until a plan asks nothing more.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::FuturesOrdered;
use futures::{FutureExt, StreamExt};
use pawl_api::meta::Kind;
use pawl_machines::apply::{Answer, Applying, Outcome, Written};
use pawl_machines::external::{Answers, Call};
use pawl_machines::machine::{AnyMachine, BoundPlan};
use pawl_machines::object::{Key, Object};
use pawl_machines::plan::{Note, Refusal, Wake};
use pawl_machines::view::{Input, View};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tracing::Instrument;

use crate::caches::Change;
use crate::engine::Core;
use crate::error::Error;
use crate::expectations::{self, caught_up};
use crate::metrics::{MachineLabels, OutsideLabels, RequestLabels};
use crate::outcomes::Outcomes;
use crate::queue::{Taken, Verdict, Work};
use crate::report::{self, Ended};

/// How often one look may decide: a sync asks for refs, then commits, then who may command it, then acts, and a refusal
/// in between is decided on once more. A decision that goes on asking is backed off from like any failure.
const ROUNDS: usize = 12;

/// How many requests of one plan are under way at the same time, where their order does not matter: enough for an API
/// server to make a group of them durable at once, and half of what all plans together send.
const SIDE_BY_SIDE: usize = 8;

/// What is remembered of an object between looks. A restart forgets it, and that is harmless: refusals are refused
/// again, and fresh lists are older than nothing of ours.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    running: bool,
    refusals: Vec<Refusal>,
    /// Whose refusals: not those of a namesake.
    refused_uid: String,
    /// Writes the caches have not shown yet.
    awaited: Vec<Written>,
    /// Versions that are our own doing: seeing them is no news.
    own: BTreeMap<(Kind, Key), String>,
    /// Changes that came during a look, when it was not yet known which of them are our own.
    unsorted: BTreeSet<(Kind, Key, String)>,
}

/// One of the places for looking at objects, held or not.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
}

/// What one look has gathered so far.
#[derive(Debug, Default)]
struct Look {
    refusals: Vec<Refusal>,
    refused_uid: String,
    awaited: Vec<Written>,
    acted: bool,
    /// The time that deciding took, without waiting for anybody.
    thought: Duration,
}

impl Core {
    /// Looks at an object that was taken from the queue, and gives it back.
    pub(crate) async fn reconcile(self: Arc<Self>, taken: Taken, slot: Slot) {
        let work = taken.work.clone();
        let look = AssertUnwindSafe(self.look(&taken, slot)).catch_unwind();
        let (verdict, thought) = look.await.unwrap_or_else(|panic| {
            // Decisions are guarded on their own; this is the loop's.
            tracing::error!(kind = %work.kind, key = %work.key, problem = told(&*panic), "the loop panicked");
            (Verdict::Retry { after: None }, Duration::ZERO)
        });
        self.queue().done_after(&work, verdict, thought, self.time.moment());
        self.work.notify_one();
    }

    /// What it came to, and how long it took to decide.
    async fn look(&self, taken: &Taken, mut slot: Slot) -> (Verdict, Duration) {
        let Taken { work, resync } = taken;
        let Some(machine) = self.router.machine(work).cloned() else {
            return (Verdict::Forget, Duration::ZERO);
        };
        let known = self.caches.get(&work.kind, &work.key);
        let span = report::span(machine.name(), work, known.as_deref());
        async {
            let started = Instant::now();
            self.caches.stir();
            let mut look = self.begin(work, *resync);
            let result = self.decide_and_apply(&machine, work, &mut look, &mut slot).await;
            let took = started.elapsed();
            let result = match self.catch_up(work, &mut look.awaited, &mut slot).await {
                Ok(()) => result,
                Err(behind) => result.and(Err(behind)),
            };
            // What was written is committed, and seen: now it has happened.
            if let Some(me) = self.caches.get(&work.kind, &work.key).filter(|_| look.acted) {
                self.tell(&machine, work, &me);
            }
            let (ended, error) = match &result {
                Ok(None) => (Ended::Gone, None),
                Ok(Some(_)) if look.acted => (Ended::Acted, None),
                Ok(Some(_)) => (Ended::Quiet, None),
                Err(error) => (Ended::Failed, Some(error)),
            };
            report::ended(&self.metrics, machine.name(), ended, took, error);
            let thought = look.thought;
            self.end(work, look, ended == Ended::Gone);
            let verdict = match result {
                Ok(None) => Verdict::Forget,
                Ok(Some(wake)) => Verdict::Settled { wake },
                Err(error) => Verdict::Retry { after: error.retry() },
            };
            (verdict, thought)
        }
        .instrument(span)
        .await
    }

    /// `None`: the object is gone.
    async fn decide_and_apply(
        &self,
        machine: &AnyMachine,
        work: &Work,
        look: &mut Look,
        slot: &mut Slot,
    ) -> Result<Option<Wake>, Error> {
        self.catch_up(work, &mut look.awaited, slot).await?;
        slot.take().await;
        let mut answers = Answers::default();
        let mut refused_before = false;
        for _ in 0..ROUNDS {
            let Some(me) = self.caches.get(&work.kind, &work.key) else { return Ok(None) };
            if look.refused_uid != me.uid() {
                look.refusals.clear();
            }
            let heard = Arc::new(answers);
            let thinks = Instant::now();
            let decided = self.decide(machine, &me, &look.refusals, &heard);
            look.thought += thinks.elapsed();
            let mut plan = decided?;
            answers = Arc::unwrap_or_clone(heard);
            if self.tell(machine, work, &me) {
                self.record_before(machine, work, &me, &mut plan, slot).await;
            }
            let (wake, asks) = (plan.wake, std::mem::take(&mut plan.asks));
            let outcomes = Outcomes::of(machine, &me, plan.status.as_ref(), self.time.wall());
            let Outcome { writes, refusals, failure, lost_notes } = self.apply(machine, plan, &me).await?;
            look.acted |= !writes.is_empty();
            look.awaited.extend(writes);
            if lost_notes > 0 {
                let labels = MachineLabels { machine: machine.name() };
                self.metrics.lost_notes.get_or_create(&labels).inc_by(lost_notes as u64);
                tracing::warn!(lost_notes, "Events could not be written");
            }
            if let Some(failure) = failure {
                return Err(Error::Request(failure));
            }
            let Some(refused) = refusals.first().map(|refusal| refusal.failure.clone()) else {
                outcomes.count(&self.metrics);
                if asks.is_empty() {
                    return answers.unheard().map_or(Ok(Some(wake)), |failure| Err(failure.clone().into()));
                }
                self.catch_up(work, &mut look.awaited, slot).await?;
                look.acted |= asks.iter().any(Call::is_write);
                self.hear(machine, &me, asks, &mut answers, slot).await?;
                continue;
            };
            tracing::info!(failure = %refused, "the API server refused a step for good");
            me.uid().clone_into(&mut look.refused_uid);
            look.refusals.extend(refusals);
            // A decision that insists on what it knows to be refused is slowed down like any other failure.
            if std::mem::replace(&mut refused_before, true) {
                return Err(Error::Request(refused));
            }
            self.catch_up(work, &mut look.awaited, slot).await?;
            slot.take().await;
        }
        Err(Error::Endless { about: format!("{} {}", work.kind, work.key), rounds: ROUNDS })
    }

    /// Makes the calls of a plan. They may take long, so the slot is free for others meanwhile.
    async fn hear(
        &self,
        machine: &AnyMachine,
        me: &Arc<Object>,
        asks: Vec<Call>,
        answers: &mut Answers,
        slot: &mut Slot,
    ) -> Result<(), Error> {
        slot.free();
        self.work.notify_one();
        let calls = asks.into_iter().map(|call| async {
            let _permit = self.external_slots.acquire().await;
            // A replica that no longer leads changes nothing in external systems either.
            if call.is_write() && !self.leading.load(Ordering::SeqCst) {
                return Err(Error::Deposed { about: me.reference().to_string() });
            }
            tracing::debug!(%call, "asks outside");
            let answer = self.ports.call(&call).await;
            let ended = answer.as_ref().map_or_else(|failure| failure.category.as_str(), |_| "ok");
            let labels = OutsideLabels { machine: machine.name(), port: call.system(), ended };
            self.metrics.outside.get_or_create(&labels).inc();
            if let Err(failure) = &answer {
                tracing::warn!(%failure, "the outside did not do what was asked");
            }
            Ok((call, answer))
        });
        let heard = futures::future::join_all(calls).await;
        for answered in heard {
            let (call, answer) = answered?;
            answers.put(call, answer);
        }
        slot.take().await;
        Ok(())
    }

    fn decide(
        &self,
        machine: &AnyMachine,
        me: &Arc<Object>,
        refusals: &[Refusal],
        answers: &Arc<Answers>,
    ) -> Result<BoundPlan, Error> {
        let input = Input { view: &*self.caches, me, refusals, answers };
        let now = self.time.wall();
        let decided = catch_unwind(AssertUnwindSafe(|| machine.plan(&input, now)));
        let decided = decided.map_err(|panic| Error::Panicked {
            machine: machine.name(),
            about: me.reference().to_string(),
            problem: told(&*panic),
        })?;
        Ok(decided?)
    }

    async fn apply(&self, machine: &AnyMachine, plan: BoundPlan, me: &Arc<Object>) -> Result<Outcome, Error> {
        let mut plan = plan;
        let together = |note: &mut Note| note.together.is_some();
        let gathered: Vec<Note> = plan.notes.extract_if(.., together).collect();
        let mut applying = Applying::new(plan, Arc::clone(me), self.time.wall());
        // In their order, so that answers are too.
        let (mut under_way, mut deposed) = (FuturesOrdered::new(), false);
        loop {
            while !deposed
                && under_way.len() < SIDE_BY_SIDE
                && let Some(request) = applying.ask()
            {
                // What is sent is sent; but whoever no longer leads sends nothing new.
                deposed = !self.leading.load(Ordering::SeqCst);
                if deposed {
                    break;
                }
                let method = request.method().to_string();
                tracing::debug!(method, uri = %request.uri(), "asks");
                under_way.push_back(async move { (method, self.wire.send(request).await) });
            }
            let Some((method, answer)) = under_way.next().await else { break };
            let code = answer.as_ref().map_or(0, |reply| reply.code.into());
            let labels = RequestLabels { machine: machine.name(), method, code };
            self.metrics.requests.get_or_create(&labels).inc();
            match &answer {
                Ok(reply) => applying.answer(Answer::Received {
                    code: reply.code,
                    retry_after: reply.retry_after,
                    body: &reply.body,
                }),
                Err(lost) => applying.answer(Answer::Lost(&lost.to_string())),
            }
        }
        if deposed {
            return Err(Error::Deposed { about: me.reference().to_string() });
        }
        let outcome = applying.finish();
        // As with any other Event: what was not done is not told.
        if outcome.failure.is_none() && outcome.refusals.is_empty() {
            gathered.into_iter().for_each(|note| self.scribe.gather(machine.name(), &me.reference(), note));
        }
        Ok(outcome)
    }

    /// Waits until the caches show what was written; what they have shown is awaited no more. Waiting is no work: the
    /// slot is free for others meanwhile.
    async fn catch_up(&self, work: &Work, awaited: &mut Vec<Written>, slot: &mut Slot) -> Result<(), Error> {
        if !awaited.iter().all(|written| self.caches.has_seen(written)) {
            slot.free();
            self.work.notify_one();
            caught_up(&self.caches, awaited).await.map_err(|written| Error::Behind {
                about: format!("{} {}", work.kind, work.key),
                missing: format!("{} {} at {}", written.kind, written.key, written.resource_version),
                waited: expectations::CATCH_UP + expectations::LIST,
            })?;
        }
        self.remember_own(work, awaited);
        awaited.clear();
        Ok(())
    }

    fn begin(&self, work: &Work, resync: bool) -> Look {
        let mut memories = self.memories();
        let memory = memories.entry(work.clone()).or_default();
        memory.running = true;
        // What was refused for good may be allowed by now, and nothing would tell us: the resync asks again.
        if resync {
            memory.refusals.clear();
        }
        Look {
            refusals: memory.refusals.clone(),
            refused_uid: memory.refused_uid.clone(),
            awaited: std::mem::take(&mut memory.awaited),
            ..Look::default()
        }
    }

    fn remember_own(&self, work: &Work, writes: &[Written]) {
        let mut memories = self.memories();
        let Some(memory) = memories.get_mut(work) else { return };
        for Written { kind, key, resource_version, .. } in writes {
            memory.own.insert((kind.clone(), key.clone()), resource_version.clone());
        }
    }

    fn end(&self, work: &Work, look: Look, gone: bool) {
        self.remember_own(work, &look.awaited);
        let mut memories = self.memories();
        let Some(memory) = memories.get_mut(work) else { return };
        memory.running = false;
        let news = std::mem::take(&mut memory.unsorted);
        let is_news = news.into_iter().any(|(kind, key, version)| !memory.is_own(kind, key, &version));
        memory.refusals = if is_news { Vec::new() } else { look.refusals };
        memory.refused_uid = look.refused_uid;
        memory.awaited = look.awaited;
        if gone {
            self.told().remove(work);
        }
        let unsettled = !memory.refusals.is_empty() || !memory.awaited.is_empty();
        // Which versions are our own doing matters only beside what was refused or is awaited.
        if gone || !unsettled {
            memories.remove(work);
        }
    }

    /// Takes note that something an object's decision looks at has changed: refusals are valid only until then.
    pub(crate) fn note_change(&self, work: &Work, change: &Change) {
        let mut memories = self.memories();
        let (Some(memory), Some(newest)) = (memories.get_mut(work), change.newest()) else { return };
        let (kind, key) = (newest.kind().clone(), newest.key());
        let version = newest.resource_version().to_owned();
        if memory.running {
            memory.unsorted.insert((kind, key, version));
        } else if !memory.is_own(kind, key, &version) {
            memory.refusals.clear();
        }
    }

    pub(crate) fn memories(&self) -> MutexGuard<'_, BTreeMap<Work, Memory>> {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    pub(crate) fn try_take(slots: &Arc<Semaphore>) -> Option<Self> {
        let held = Arc::clone(slots).try_acquire_owned().ok()?;
        Some(Self { slots: Arc::clone(slots), held: Some(held) })
    }

    pub(crate) fn free(&mut self) {
        self.held = None;
    }

    pub(crate) async fn take(&mut self) {
        if self.held.is_none() {
            // Nobody closes the semaphore.
            self.held = Arc::clone(&self.slots).acquire_owned().await.ok();
        }
    }
}

impl Memory {
    fn is_own(&self, kind: Kind, key: Key, version: &str) -> bool {
        self.own.get(&(kind, key)).is_some_and(|own| own == version)
    }
}

/// What a panic said.
fn told(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
