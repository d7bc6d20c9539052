//! What does a target remember of the workflows that were run on it, and may one be run again?
//!
//! ```text
//! success ──────────────────────▶ not again before the cooldown is over
//! failure before execution ─────▶ not again before 1, 2, 4, 8, 10 minutes have passed; after the sixth: not again
//! failure in execution ─────────▶ not again
//!                  a person clears it, or a success ──▶ all is forgotten but the success
//! ```
//! It stands in an annotation of the target's Lease, one entry per workflow, so that it outlives every unit: deleting
//! objects clears nothing. It is written in the same request that lets go of the lock, so each end is counted once.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::meta::Duration;
use pawl_api::remedy::annotations::MEMORY;
use pawl_api::remedy::workflow_execution::BACKOFF;
use serde::{Deserialize, Serialize};

use crate::object::Object;
use crate::time;

/// How many workflows a target remembers: far more than anybody writes for one object, and so few that the annotation
/// stays below the 256 KiB that all annotations of an object may have, however long their names are.
const MAX_WORKFLOWS: usize = 96;

/// How long a success is remembered beyond its own cooldown: a later execution may ask for a longer one.
const KEPT: Duration = Duration::from_hours(24);

/// What a target remembers, by workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Memory(BTreeMap<String, Remembered>);

/// Why the annotation says nothing: somebody wrote something else into it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("annotation {MEMORY} of Lease {lease} cannot be read ({problem}); pawl clear-block replaces it")]
pub struct Unreadable {
    lease: String,
    problem: String,
}

/// What is remembered of one workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Remembered {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_success: Option<Success>,
    /// How often it failed in a row before it could execute.
    #[serde(skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// When it last did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<Block>,
    /// Who last cleared a block or a row of failures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clearance: Option<Clearance>,
}

/// An execution that went well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Success {
    pub namespace: String,
    pub name: String,
    pub completed_at: Time,
    /// The cooldown it asked for.
    pub cooldown: Duration,
}

/// An execution that failed after it had begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Block {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub failed_at: Time,
    pub reason: String,
}

/// A person says that the target may be touched again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Clearance {
    pub by: String,
    pub at: Time,
    pub reason: String,
    /// The UID of the execution whose block it was, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Whether something has been run since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub used: bool,
}

/// Who ended.
#[derive(Clone, Copy, Debug)]
pub struct Unit<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
}

/// How an execution ended, as far as the next one must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended<'a> {
    Well {
        cooldown: Duration,
    },
    /// The target may have been changed.
    InExecution {
        reason: &'a str,
    },
    BeforeExecution,
}

/// Whether a workflow may be run now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    Yes,
    Blocked(&'a Block),
    Exhausted { failures: u32 },
    BackingOff { failures: u32, until: Timestamp },
    Recent { last: &'a Success, until: Timestamp },
}

impl Memory {
    /// What a Lease remembers; nothing where there is none.
    ///
    /// # Errors
    /// When somebody else wrote into the annotation: then nothing may be run, for nobody knows what was there.
    pub fn of(lease: Option<&Object>) -> Result<Self, Unreadable> {
        let Some(lease) = lease else { return Ok(Self::default()) };
        let Some(text) = lease.annotation(MEMORY) else { return Ok(Self::default()) };
        serde_json::from_str(text)
            .map_err(|error| Unreadable { lease: lease.key().to_string(), problem: error.to_string() })
    }

    /// As it stands in the annotation; `None` when there is nothing to remember.
    pub fn written(&self) -> Option<String> {
        // A map of structs of strings is always JSON.
        (!self.0.is_empty()).then(|| serde_json::to_string(self).unwrap_or_default())
    }

    pub fn get(&self, workflow_id: &str) -> Option<&Remembered> {
        self.0.get(workflow_id)
    }

    pub fn workflows(&self) -> impl Iterator<Item = (&str, &Remembered)> {
        self.0.iter().map(|(id, one)| (id.as_str(), one))
    }

    /// Adds how an execution ended, and forgets what no longer matters.
    #[must_use]
    pub fn after(mut self, workflow_id: &str, unit: Unit<'_>, ended: Ended<'_>, at: Timestamp) -> Self {
        let entry = self.0.entry(workflow_id.to_owned()).or_default();
        if let Some(clearance) = &mut entry.clearance {
            clearance.used = true;
        }
        let (namespace, name) = (unit.namespace.to_owned(), unit.name.to_owned());
        match ended {
            Ended::Well { cooldown } => {
                let last = Success { namespace, name, completed_at: Time(at), cooldown };
                *entry = Remembered { last_success: Some(last), ..Remembered::default() };
            }
            Ended::InExecution { reason } => {
                let (uid, reason) = (unit.uid.to_owned(), reason.to_owned());
                entry.block = Some(Block { namespace, name, uid, failed_at: Time(at), reason });
                entry.failures = 0;
                entry.failed_at = None;
            }
            Ended::BeforeExecution => {
                entry.failures = entry.failures.saturating_add(1);
                entry.failed_at = Some(Time(at));
            }
        }
        self.forget(at);
        self
    }

    /// Takes away what keeps workflows from being run: of one of them, or of all. Returns which they were.
    pub fn clear(&mut self, workflow_id: Option<&str>, by: &str, reason: &str, at: Timestamp) -> Vec<String> {
        let mut cleared = Vec::new();
        for (id, entry) in &mut self.0 {
            let wanted = workflow_id.is_none_or(|wanted| wanted == id);
            if !wanted || (entry.block.is_none() && entry.failures == 0) {
                continue;
            }
            cleared.push(id.clone());
            let of = entry.block.take().map(|block| block.uid);
            entry.failures = 0;
            entry.failed_at = None;
            entry.clearance = Some(Clearance {
                by: by.to_owned(),
                at: Time(at),
                reason: reason.to_owned(),
                of,
                used: false,
            });
        }
        cleared
    }

    /// Forgets successes that hold nothing up any more, and the oldest of too many.
    fn forget(&mut self, now: Timestamp) {
        self.0.retain(|_, one| one.matters_until().is_none_or(|until| now < until));
        while self.0.len() > MAX_WORKFLOWS {
            let least = self.0.iter().min_by_key(|(_, one)| one.weight()).map(|(id, _)| id.clone());
            let Some(least) = least else { return };
            self.0.remove(&least);
        }
    }
}

impl Remembered {
    /// Whether the workflow may be run now, by an execution that asks for this cooldown.
    pub fn verdict(&self, cooldown: Duration, minimum: Duration, now: Timestamp) -> Verdict<'_> {
        if let Some(block) = &self.block {
            return Verdict::Blocked(block);
        }
        match next_after(self.failures, self.failed_at.as_ref().map(|at| at.0)) {
            Next::Never => return Verdict::Exhausted { failures: self.failures },
            Next::At(until) if now < until => {
                return Verdict::BackingOff { failures: self.failures, until };
            }
            Next::At(_) | Next::Now => {}
        }
        if let Some(last) = &self.last_success {
            let longest = cooldown.max(minimum).max(last.cooldown);
            let until = later(last.completed_at.0, longest);
            if now < until {
                return Verdict::Recent { last, until };
            }
        }
        Verdict::Yes
    }

    /// When it may be tried again after the failures so far; `None` where it may at once, or never.
    pub fn next_allowed(&self) -> Option<Timestamp> {
        match next_after(self.failures, self.failed_at.as_ref().map(|at| at.0)) {
            Next::At(at) => Some(at),
            Next::Now | Next::Never => None,
        }
    }

    /// `None`: for ever.
    fn matters_until(&self) -> Option<Timestamp> {
        if self.block.is_some() || self.failures > 0 {
            return None;
        }
        let success =
            self.last_success.as_ref().map(|last| later(last.completed_at.0, last.cooldown.max(KEPT)));
        let clearance = self.clearance.as_ref().map(|clearance| later(clearance.at.0, KEPT));
        success.max(clearance).or(Some(Timestamp::MIN))
    }

    /// What is forgotten first when there is too much: the smallest.
    fn weight(&self) -> (bool, bool, Option<Timestamp>) {
        let success = self.last_success.as_ref().map(|last| last.completed_at.0);
        let failure =
            self.block.as_ref().map(|block| block.failed_at.0).or(self.failed_at.as_ref().map(|at| at.0));
        (self.block.is_some(), self.failures > 0, success.max(failure))
    }
}

enum Next {
    Now,
    At(Timestamp),
    Never,
}

fn next_after(failures: u32, failed_at: Option<Timestamp>) -> Next {
    let Some(step) = failures.checked_sub(1) else { return Next::Now };
    let step = usize::try_from(step).ok().and_then(|step| BACKOFF.get(step));
    match (step, failed_at) {
        (Some(step), Some(failed_at)) => Next::At(later(failed_at, *step)),
        (Some(_), None) => Next::Now,
        (None, _) => Next::Never,
    }
}

fn later(at: Timestamp, by: Duration) -> Timestamp {
    time::later(at, by.get())
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    use crate::lock::LEASE;

    const ME: Unit<'static> = Unit { namespace: "n", name: "mend-1", uid: "u1" };
    const FIVE: Duration = Duration::from_mins(5);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    /// May `w` be run at a second, after these ends of it?
    fn check(ends: &[(Ended<'_>, i64)], now: i64) -> String {
        let memory = ends
            .iter()
            .fold(Memory::default(), |memory, (ended, second)| memory.after("w", ME, *ended, at(*second)));
        told(&memory, "w", FIVE, now)
    }

    fn told(memory: &Memory, id: &str, cooldown: Duration, now: i64) -> String {
        let nothing = Remembered::default();
        match memory.get(id).unwrap_or(&nothing).verdict(cooldown, Duration::default(), at(now)) {
            Verdict::Yes => "yes".to_owned(),
            Verdict::Blocked(block) => format!("blocked by {}", block.name),
            Verdict::Exhausted { failures } => format!("exhausted after {failures}"),
            Verdict::BackingOff { failures, until } => {
                format!("failure {failures}, until {}", until.as_second() - 1_700_000_000)
            }
            Verdict::Recent { until, .. } => format!("recent, until {}", until.as_second() - 1_700_000_000),
        }
    }

    #[test]
    fn the_table_of_cooldowns_and_back_off() {
        let well = Ended::Well { cooldown: FIVE };
        let before = Ended::BeforeExecution;
        let during = Ended::InExecution { reason: "OOMKilled" };
        type Row<'a> = (&'a [(Ended<'a>, i64)], i64, &'a str);
        let table: &[Row<'_>] = &[
            (&[], 0, "yes"),
            (&[(well, 0)], 0, "recent, until 300"),
            (&[(well, 0)], 299, "recent, until 300"),
            (&[(well, 0)], 300, "yes"),
            (&[(before, 0)], 59, "failure 1, until 60"),
            (&[(before, 0)], 60, "yes"),
            (&[(before, 0), (before, 60)], 61, "failure 2, until 180"),
            (&[(before, 0); 3], 1, "failure 3, until 240"),
            (&[(before, 0); 4], 1, "failure 4, until 480"),
            (&[(before, 0); 5], 1, "failure 5, until 600"),
            (&[(before, 0); 5], 600, "yes"),
            (&[(before, 0); 6], 1_000_000, "exhausted after 6"),
            (&[(before, 0), (before, 0), (well, 100)], 401, "yes"),
            (&[(before, 0), (well, 100), (before, 500)], 501, "failure 1, until 560"),
            (&[(during, 0)], 1_000_000, "blocked by mend-1"),
            (&[(before, 0), (during, 0)], 0, "blocked by mend-1"),
        ];
        for (ends, now, expected) in table {
            assert_eq!(check(ends, *now), *expected, "{ends:?} at {now}");
        }
    }

    #[test]
    fn the_longest_of_the_cooldowns_counts() {
        let short = Ended::Well { cooldown: Duration::from_mins(1) };
        let memory = Memory::default().after("w", ME, short, at(0));
        assert_eq!(told(&memory, "w", Duration::from_mins(10), 60), "recent, until 600");
        assert_eq!(told(&memory, "w", Duration::from_secs(1), 59), "recent, until 60");
        let one = memory.get("w").unwrap();
        let minimum = Duration::from_mins(30);
        assert!(matches!(one.verdict(FIVE, minimum, at(1799)), Verdict::Recent { .. }));
        assert_eq!(one.verdict(FIVE, minimum, at(1800)), Verdict::Yes);
        assert_eq!(told(&memory, "other", FIVE, 0), "yes");
    }

    #[test]
    fn a_person_clears_what_blocks_and_that_is_remembered_until_it_is_used() {
        let mut memory = Memory::default().after("w", ME, Ended::InExecution { reason: "Unknown" }, at(0));
        for _ in 0..6 {
            memory = memory.after("v", ME, Ended::BeforeExecution, at(0));
        }
        assert!(memory.clear(Some("x"), "ada", "looked", at(1)).is_empty());
        assert_eq!(memory.clear(None, "ada", "looked", at(1)).len(), 2);
        assert!(memory.clear(None, "ada", "looked", at(1)).is_empty());
        assert_eq!(told(&memory, "w", FIVE, 1), "yes");
        assert_eq!(told(&memory, "v", FIVE, 1), "yes");
        let clearance = memory.get("w").unwrap().clearance.clone().unwrap();
        assert_eq!(
            (clearance.by.as_str(), clearance.of.as_deref(), clearance.used),
            ("ada", Some("u1"), false)
        );
        let memory = memory.after("w", ME, Ended::BeforeExecution, at(2));
        assert!(memory.get("w").unwrap().clearance.as_ref().unwrap().used);
    }

    #[test]
    fn what_holds_nothing_up_any_more_is_forgotten_and_blocks_are_forgotten_last() {
        let memory = Memory::default().after("old", ME, Ended::Well { cooldown: FIVE }, at(0));
        let memory = memory.after("new", ME, Ended::Well { cooldown: FIVE }, at(24 * 3600));
        assert_eq!(memory.workflows().map(|(id, _)| id).collect::<Vec<_>>(), ["new"]);
        let mut memory = memory.after("bad", ME, Ended::InExecution { reason: "Unknown" }, at(0));
        for number in 0..200 {
            let id = format!("{}{number}", "x".repeat(250));
            memory = memory.after(&id, ME, Ended::BeforeExecution, at(number));
        }
        assert_eq!(memory.workflows().count(), MAX_WORKFLOWS);
        assert!(memory.get("bad").is_some());
        assert!(memory.written().unwrap().len() < 200 * 1024);
    }

    #[test]
    fn a_memory_that_cannot_be_read_is_no_empty_memory() {
        let lease = |text: &str| {
            let metadata = json!({"name": "pawl-lock-0", "namespace": "s", "annotations": {MEMORY: text}});
            Object::new(LEASE, json!({"metadata": metadata})).unwrap()
        };
        assert!(Memory::of(Some(&lease("{nonsense"))).is_err());
        assert_eq!(Memory::of(Some(&lease("{}"))).unwrap(), Memory::default());
        assert_eq!(Memory::of(None).unwrap().written(), None);
    }

    fn ended() -> impl Strategy<Value = Ended<'static>> {
        prop_oneof![
            (0u64..7200).prop_map(|secs| Ended::Well { cooldown: Duration::from_secs(secs) }),
            Just(Ended::InExecution { reason: "TaskRunFailed" }),
            Just(Ended::BeforeExecution),
        ]
    }

    proptest! {
        #[test]
        fn any_history_is_read_back_as_it_was_written(ends in proptest::collection::vec((ended(), 0i64..100_000), 0..20)) {
            let memory = ends.iter().fold(Memory::default(), |m, (e, s)| m.after("w", ME, *e, at(*s)));
            let text = memory.written().unwrap_or("{}".to_owned());
            prop_assert_eq!(serde_json::from_str::<Memory>(&text).unwrap(), memory);
        }

        /// The model: only the ends since the last success count, and time only ever opens.
        #[test]
        fn back_off_follows_the_failures_in_a_row(
            ends in proptest::collection::vec(ended(), 0..12), cooldown in 0u64..7200, after in 0i64..20_000
        ) {
            let memory = ends.iter().enumerate().fold(Memory::default(), |m, (i, e)| m.after("w", ME, *e, at(i as i64)));
            let now = ends.len() as i64 + after;
            let nothing = Remembered::default();
            let one = memory.get("w").unwrap_or(&nothing);
            let cooldown = Duration::from_secs(cooldown);
            let verdict = one.verdict(cooldown, Duration::default(), at(now));
            let row: Vec<_> = ends.iter().rev().take_while(|e| !matches!(e, Ended::Well { .. })).collect();
            let blocked = row.iter().any(|e| matches!(e, Ended::InExecution { .. }));
            prop_assert_eq!(matches!(verdict, Verdict::Blocked(_)), blocked);
            if !blocked && row.len() > BACKOFF.len() {
                prop_assert_eq!(verdict.clone(), Verdict::Exhausted { failures: row.len() as u32 });
            }
            if let Verdict::BackingOff { until, .. } | Verdict::Recent { until, .. } = verdict {
                prop_assert!(until > at(now));
                // When the stated time has come, that reason no longer holds.
                let then = one.verdict(cooldown, Duration::default(), until);
                prop_assert!(!matches!(then, Verdict::BackingOff { .. }), "{:?}", then);
            }
        }
    }
}
