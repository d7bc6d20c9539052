//! What do the states of all units say alike? Their gates, their locks, and their last words.
//!
//! | entry | implied by | once per |
//! |---|---|---|
//! | `….<gate>.evaluated` | a verdict in `status.gates[]` (I3) | gate, verdict, reason and what was looked at, and job |
//! | `….lock.taken` | the lock gate passed | unit and job |
//! | `….lock.released` | the same, the unit is over, and it holds no Lease any more | unit and job |
//! | `….deleted` | the plan that takes the finalizer off, with the losses it tells of (I5) | unit |

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::git::repository;
use pawl_api::meta::{Gate, GateName, Kind, gate, names};
use serde::{Deserialize as _, Serialize};
use serde_json::{Value, json};

use super::{Actor, Entry, Outcome};
use crate::lock;
use crate::machine::{BoundPlan, Description};
use crate::object::{Key, Object};
use crate::plan::{FinalizerChange, Severity, Step};
use crate::view::View;

/// How deep trees of owners are: nested Installations may be 16 deep, with an Execution and an item below.
const MAX_DEPTH: usize = 24;

/// What a machine starts from when it says what has happened to an object.
#[derive(Clone, Copy)]
pub struct Teller<'a> {
    pub view: &'a dyn View,
    pub me: &'a Arc<Object>,
    pub description: &'a Description,
    pub now: Timestamp,
}

impl std::fmt::Debug for Teller<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Teller").field("me", self.me).finish_non_exhaustive()
    }
}

impl Teller<'_> {
    /// That something happened: `event` follows the kind's own beginning, as `started` does in `git.workflow.started`.
    /// Where the state does not say when, it is now, when it was first seen.
    pub fn entry(&self, event: &str, occasion: &str, at: Option<&Time>) -> Entry {
        let actor = Actor::Controller(self.description.name);
        let event = format!("{}.{event}", beginning(self.me.kind()));
        let at = at.map_or(self.now, |time| within_its_second(time.0, self.now));
        let target = self.me.status().get("target").and_then(Value::as_str).unwrap_or_default();
        Entry::new(self.me, actor, event, occasion, at).target(target).correlation(self.root())
    }

    /// The UID at the root of the tree of owners, as far as the caches show it. What was configured (a Repository) is not
    /// part of what it leads to.
    fn root(&self) -> String {
        let mut root = Arc::clone(self.me);
        for _ in 0..MAX_DEPTH {
            let Some(owner) = root.controller().cloned() else { break };
            if owner.kind == repository::KIND.kind {
                break;
            }
            let kind = self.view.resolve(&owner.api_version, &owner.kind);
            let key = Key::new(root.namespace(), &owner.name);
            match kind.and_then(|kind| self.view.get(&kind, &key)).filter(|found| found.uid() == owner.uid) {
                Some(found) => root = found,
                None => return owner.uid,
            }
        }
        root.uid().to_owned()
    }

    /// What tells apart the jobs of an object that runs more than one; empty where there is only one.
    fn job(&self) -> &str {
        self.me.status().get("jobID").and_then(Value::as_str).unwrap_or_default()
    }

    /// What every unit's state says.
    pub(crate) fn of_every_unit(&self) -> Vec<Entry> {
        let gates = self.me.status().get("gates").and_then(|gates| Vec::<Gate>::deserialize(gates).ok());
        let gates = gates.unwrap_or_default();
        let mut entries: Vec<Entry> = gates.iter().map(|gate| self.of_gate(gate)).collect();
        let passed = |gate: &&Gate| gate.gate == GateName::Lock && gate.verdict == gate::Verdict::Passed;
        if let Some(gate) = gates.iter().find(passed) {
            entries
                .push(self.entry("lock.taken", self.job(), None).with("lookedAt", gate.looked_at.as_str()));
            let looks_at_leases = self.description.watches.iter().any(|watch| watch.kind == lock::LEASE);
            if looks_at_leases && self.is_over() && lock::held_by(self.view, self.me.uid()).is_empty() {
                entries.push(self.entry("lock.released", self.job(), None));
            }
        }
        entries
    }

    fn of_gate(&self, gate: &Gate) -> Entry {
        let Gate { gate: name, verdict, reason, looked_at, would_change } = gate;
        let word = word(name).to_lowercase();
        let what = names::hash(&[reason, looked_at], 16);
        let occasion = format!("{}/{verdict:?}/{what}", self.job());
        let outcome = match verdict {
            gate::Verdict::Passed => Outcome::Success,
            gate::Verdict::Waiting => Outcome::Pending,
            gate::Verdict::Stopped => Outcome::Denied,
        };
        self.entry(&format!("{word}.evaluated"), &occasion, None)
            .outcome(outcome)
            .with("gate", self::word(name))
            .with("verdict", self::word(verdict))
            .with("reason", reason.as_str())
            .with("lookedAt", looked_at.as_str())
            .with("wouldChange", Some(would_change.as_str()).filter(|words| !words.is_empty()))
    }

    fn is_over(&self) -> bool {
        let Some(table) = &self.description.phases else { return false };
        let [_, field] = table.field;
        let phase = self.me.status().get(field).and_then(Value::as_str);
        phase.is_some_and(|phase| table.terminal.contains(&phase))
    }

    /// What there is to say when the object is let go, for it may be gone afterwards: with what is lost by that.
    pub fn last_words(&self, plan: &BoundPlan) -> Option<Entry> {
        let ours = |step: &Step| matches!(step, Step::Finalizer(FinalizerChange::Remove(it)) if Some(it.as_str()) == self.description.finalizer);
        if !self.me.is_deleting() || !plan.steps.iter().any(ours) {
            return None;
        }
        let lost = plan.notes.iter().any(|note| note.severity == Severity::Warning);
        let told = |note: &crate::plan::Note| json!({"reason": note.reason, "message": note.message});
        let notes: Vec<Value> = plan.notes.iter().map(told).collect();
        let phase = self.me.status().get("phase").cloned().unwrap_or_default();
        let entry = self.entry("deleted", "", self.me.meta().deletion_timestamp.as_ref());
        let entry = entry.outcome(if lost { Outcome::Lost } else { Outcome::Success }).with("phase", phase);
        Some(if notes.is_empty() { entry } else { entry.with("told", notes) })
    }
}

/// Times in a status are of whole seconds. What happened in one was seen no later than now, and what it followed from was
/// seen before: so rows stand in the order in which they came about.
fn within_its_second(at: Timestamp, now: Timestamp) -> Timestamp {
    let end = at.checked_add(SignedDuration::from_micros(999_999)).unwrap_or(at);
    if at.subsec_nanosecond() == 0 { now.clamp(at, end) } else { at }
}

/// What the events of a kind begin with: the door and the kind, or in the remedy door the kind alone.
fn beginning(kind: &Kind) -> String {
    let name = kind.kind.to_lowercase();
    match kind.group.as_ref() {
        pawl_api::git::GROUP => format!("git.{name}"),
        pawl_api::deploy::GROUP => format!("deploy.{name}"),
        _ => name,
    }
}

/// As it is written in JSON.
fn word(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_in_one_second_stands_in_the_order_in_which_it_was_seen() {
        let time = |text: &str| -> Timestamp { text.parse().unwrap() };
        let check = |at: &str, now: &str, expect: &str| {
            assert_eq!(within_its_second(time(at), time(now)), time(expect));
        };
        let at = "2026-01-01T00:00:14Z";
        check(at, "2026-01-01T00:00:14.5Z", "2026-01-01T00:00:14.5Z");
        check(at, "2026-01-01T00:00:15.02Z", "2026-01-01T00:00:14.999999Z");
        check(at, "2026-01-01T00:00:13Z", at);
        check("2026-01-01T00:00:14.25Z", "2026-01-01T00:00:14.5Z", "2026-01-01T00:00:14.25Z");
    }
}
