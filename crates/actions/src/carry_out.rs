//! How is an order carried out?
//!
//! ```text
//! look ─▶ course ─┬─ Step ──▶ write, look again          a conflict, or no answer: look again, and see whose mark is there
//!                 ├─ Finish ▶ write ─▶ done               a budget's no, a Wait: look again in a while, within patience
//!                 ├─ Done ──▶ done                        Invalid, Forbidden: failed
//!                 └─ Refuse ▶ refused, or failed where something was written already
//! ```
//! Whoever runs it may be killed at any time: what was written carries the mark of its execution, and the next attempt
//! goes on from there (I7).

use std::time::Duration;

use pawl_engine::Clock;
use pawl_machines::failure::{Category, Failure};
use pawl_machines::remedy::action::course::{Course, How, Write};
use pawl_machines::remedy::action::kept::Kept;
use pawl_machines::remedy::action::report::{Changed, Outcome, Report};
use pawl_machines::remedy::action::{Order, definition, seen};

use crate::reading::Known;
use crate::way::{Heard, Way};

/// How often the targets may have changed between a look and a write, or a request may go wrong, before it is a failure:
/// with pauses that double, about a minute of trouble.
const MAX_TROUBLE: u32 = 10;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A Pod takes seconds to end, and a budget as long to allow the next.
const WAIT: Duration = Duration::from_secs(2);
/// A course that still finds something to do after this many rounds is fought by somebody.
const MAX_STEPS: u32 = 1_000;

/// What is to be carried out, and what was kept for it.
#[derive(Clone, Debug)]
pub struct Errand {
    pub order: Order,
    /// By this execution, before it began.
    pub kept: Option<Kept>,
    /// By the execution that this one takes back.
    pub undone: Option<Kept>,
}

/// Carries an order out. `tell` hears of every step, in words without values.
pub async fn carry_out(way: &Way, errand: Errand, clock: &dyn Clock, tell: &(dyn Fn(&str) + Sync)) -> Report {
    let Errand { order, kept, undone } = errand;
    let failed = |message: String| Report::new(&order.uid, order.action, Outcome::Failed, message);
    if let Some(other) = kept.as_ref().filter(|kept| kept.uid != order.uid) {
        return failed(format!("what was kept is that of execution {}", other.uid));
    }
    let known = match Known::new(&order) {
        Ok(known) => Known { kept, undone, ..known },
        Err(failure) => return failed(failure.to_string()),
    };
    if let Err(problem) = definition(order.action).check(&known.parameters) {
        return Report::new(&order.uid, order.action, Outcome::Refused, problem.to_string());
    }
    let mut carrying = Carrying {
        way,
        known,
        clock,
        tell,
        report: failed(String::new()),
        trouble: 0,
        waited: Duration::ZERO,
    };
    let (outcome, message) = carrying.run().await;
    tell(&message);
    Report { outcome, message, ..carrying.report }
}

struct Carrying<'a> {
    way: &'a Way,
    known: Known,
    clock: &'a dyn Clock,
    tell: &'a (dyn Fn(&str) + Sync),
    report: Report,
    trouble: u32,
    waited: Duration,
}

/// What came of a round of writes.
enum Round {
    /// Everything was written.
    Written,
    /// Something is to be looked at again: what, in words.
    Again(String),
    /// Somebody said: not now.
    NotNow(String),
    Failed(String),
}

impl Carrying<'_> {
    async fn run(&mut self) -> (Outcome, String) {
        let definition = definition(self.known.order.action);
        for _ in 0..MAX_STEPS {
            let now = self.clock.now();
            let seen = match self.known.look(self.way, now).await {
                Ok(seen) => seen,
                Err(failure) => match self.troubled(&failure).await {
                    Some(message) => return (Outcome::Failed, message),
                    None => continue,
                },
            };
            let course = definition.course(&self.known.context(now), &seen);
            let (writes, last) = match course {
                Course::Step(writes) => (writes, false),
                Course::Finish(writes) => (writes, true),
                Course::Done(why) => return (Outcome::Done, why),
                Course::Refuse(why) => {
                    let outcome =
                        if self.report.counts.is_empty() { Outcome::Refused } else { Outcome::Failed };
                    return (outcome, why);
                }
                Course::Wait(why) => match self.wait(&why).await {
                    Some(message) => return (Outcome::Failed, message),
                    None => continue,
                },
            };
            let more = match self.round(&writes).await {
                Round::Written if last => return (Outcome::Done, self.summary(&writes)),
                Round::Written => None,
                Round::Failed(message) => Some(message),
                Round::NotNow(why) => self.wait(&why).await,
                Round::Again(why) => self.pause(why).await,
            };
            if let Some(message) = more {
                return (Outcome::Failed, message);
            }
        }
        (Outcome::Failed, format!("there was still something to do after {MAX_STEPS} rounds"))
    }

    /// Writes one after the other. Evictions do not stop at the first that is refused.
    async fn round(&mut self, writes: &[Write]) -> Round {
        let mut not_now = None;
        for write in writes {
            match self.way.write(write, false).await {
                Ok(heard) => self.wrote(write, heard),
                Err(failure) => match self.judge(write, &failure) {
                    Round::Written => {}
                    Round::NotNow(why) => not_now = Some(why),
                    other @ (Round::Again(_) | Round::Failed(_)) => return other,
                },
            }
        }
        not_now.map_or(Round::Written, Round::NotNow)
    }

    /// What a write that did not succeed means.
    fn judge(&mut self, write: &Write, failure: &Failure) -> Round {
        let ends = matches!(write.how, How::Delete { .. } | How::Evict { .. });
        match failure.category {
            // It is gone, or another one is there: what was to end has ended.
            Category::NotFound | Category::Conflict if ends => {
                (self.tell)(&format!("{write}: it is gone already"));
                Round::Written
            }
            Category::Transient
                if matches!(write.how, How::Evict { .. }) && failure.is("TooManyRequests") =>
            {
                *self.report.counts.entry("refused".to_owned()).or_default() += 1;
                (self.tell)(&failure.to_string());
                Round::NotNow(failure.to_string())
            }
            Category::Conflict | Category::Transient => Round::Again(failure.to_string()),
            Category::Permanent | Category::NotFound | Category::MissingCredentials => {
                Round::Failed(failure.to_string())
            }
        }
    }

    fn wrote(&mut self, write: &Write, Heard { body, warnings }: Heard) {
        let ends = matches!(write.how, How::Delete { .. } | How::Evict { .. });
        let version = if ends { String::new() } else { seen::resource_version(&body).to_owned() };
        (self.tell)(&match version.as_str() {
            "" => write.to_string(),
            version => format!("{write}: now at version {version}"),
        });
        for warning in warnings {
            (self.tell)(&format!("the API server warns: {warning}"));
            self.report.warnings.push(warning);
        }
        *self.report.counts.entry(write.verb().to_owned()).or_default() += 1;
        self.report.changed.push(Changed {
            verb: write.verb().to_owned(),
            kind: write.place.kind.kind.to_string(),
            namespace: write.place.key.namespace.clone(),
            name: write.place.key.name.clone(),
            resource_version: version,
        });
    }

    fn summary(&self, writes: &[Write]) -> String {
        let done = definition(self.known.order.action).done;
        match writes {
            [one] => format!("{} is {done}", one.place),
            all => format!("{} objects are {done}", all.len()),
        }
    }

    /// A look went wrong. `Some`: for good.
    async fn troubled(&mut self, failure: &Failure) -> Option<String> {
        match failure.category {
            Category::Transient | Category::Conflict => self.pause(failure.to_string()).await,
            Category::Permanent | Category::NotFound | Category::MissingCredentials => {
                Some(failure.to_string())
            }
        }
    }

    /// Pauses before the next look. `Some`: there was too much trouble.
    async fn pause(&mut self, why: String) -> Option<String> {
        self.trouble += 1;
        if self.trouble > MAX_TROUBLE {
            return Some(format!("given up after {MAX_TROUBLE} tries: {why}"));
        }
        (self.tell)(&format!("looking again: {why}"));
        let pause = FIRST_PAUSE.saturating_mul(1 << (self.trouble - 1).min(16)).min(LONGEST_PAUSE);
        tokio::time::sleep(pause).await;
        None
    }

    /// Waits for others. `Some`: it took longer than the order's patience.
    async fn wait(&mut self, why: &str) -> Option<String> {
        let patience = definition(self.known.order.action).patience(&self.known.parameters);
        if self.waited >= patience.get() {
            return Some(format!("not within {patience}: {why}"));
        }
        (self.tell)(&format!("waiting: {why}"));
        tokio::time::sleep(WAIT).await;
        self.waited += WAIT;
        None
    }
}
