//! What must hold of every run, whatever went wrong in it.
//!
//! Each oracle looks at a finished run beside the same scenario's run without faults. Each has a test that makes it
//! fail: an oracle that cannot is no oracle.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use pawl_api::k8s::{JOB, LEASE};
use pawl_api::meta::{Kind, phase};
use pawl_apiserver::ChangeType;
use pawl_machines::apply::EVENT;
use pawl_machines::object::{Key, Object};
use serde_json::Value;

use crate::ground::{Ground, Happened};
use crate::scenario::Scenario;

/// A promise that was broken, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub oracle: Oracle,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.oracle, self.what)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Oracle {
    Converges,
    Quiet,
    SameEnd,
    SameEffects,
    LegalMoves,
    NoOrphan,
    NoFault,
    KnowsItself,
    EndsWell,
}

impl fmt::Display for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Converges => "does not converge",
            Self::Quiet => "writes although nothing changed",
            Self::SameEnd => "ends otherwise than without faults",
            Self::SameEffects => "creates or deletes otherwise than without faults",
            Self::LegalMoves => "makes an illegal phase move",
            Self::NoOrphan => "leaves an orphan",
            Self::NoFault => "decides what it must not",
            Self::KnowsItself => "decides on what was before its own write",
            Self::EndsWell => "does not end as the scenario says",
        })
    }
}

/// What a run came to, as far as two runs can be compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Every object at the end, without times and versions.
    pub end: BTreeMap<(Kind, Key), Value>,
    /// How often each object was created and deleted.
    pub effects: BTreeMap<(Kind, Key), (u32, u32)>,
}

impl Summary {
    pub fn of(ground: &Ground) -> Self {
        let mut summary = Self::default();
        for (kind, objects) in &ground.live {
            for (key, object) in objects {
                if counts(kind) {
                    summary.end.insert((kind.clone(), key.clone()), timeless(&resumed(object)));
                }
            }
        }
        let started = started(&ground.history);
        for Happened { what, object, .. } in &ground.history {
            if !counts(object.kind()) || !is_effect(object, &started) {
                continue;
            }
            let (made, gone) = summary.effects.entry((object.kind().clone(), object.key())).or_default();
            match what {
                ChangeType::Added => *made += 1,
                ChangeType::Deleted => *gone += 1,
                ChangeType::Modified => {}
            }
        }
        summary
    }
}

/// Events are for people: written at most once, perhaps lost, so they are not compared.
fn counts(kind: &Kind) -> bool {
    kind.kind != EVENT.kind
}

/// A lock is taken and given back as often as somebody tries, and a Job that is made suspended and never let go (by a
/// process that came too late) has done nothing: neither is an effect.
fn is_effect(object: &Object, started: &BTreeSet<String>) -> bool {
    match object.kind() {
        kind if *kind == LEASE => false,
        kind if *kind == JOB => started.contains(object.uid()),
        _ => true,
    }
}

/// The UIDs of the Jobs that were let go at some time.
fn started(history: &[Happened]) -> BTreeSet<String> {
    let jobs = history.iter().map(|happened| &happened.object).filter(|object| *object.kind() == JOB);
    jobs.filter(|job| has_run(job)).map(|job| job.uid().to_owned()).collect()
}

/// Whether a Job may have run in this version of it.
pub fn has_run(job: &Object) -> bool {
    job.raw().pointer("/spec/suspend") != Some(&Value::Bool(true))
}

/// Whether a Job was seen suspended before it was resumed depends on who was faster.
fn resumed(object: &Object) -> Value {
    let mut raw = object.raw().clone();
    if *object.kind() == JOB
        && let Some(status) = raw.pointer_mut("/status").and_then(Value::as_object_mut)
        && let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut)
    {
        let is_past = |one: &Value| {
            one.get("type").and_then(Value::as_str) == Some("Suspended")
                && one.get("status").and_then(Value::as_str) == Some("False")
        };
        conditions.retain(|one| !is_past(one));
        if conditions.is_empty() {
            status.remove("conditions");
        }
    }
    raw
}

/// An object without what depends on when things happened.
fn timeless(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .filter(|(name, _)| !is_time(name))
                .map(|(name, value)| (name.clone(), timeless(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(timeless).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn is_time(field: &str) -> bool {
    field.ends_with("Time")
        || field.ends_with("Timestamp")
        || field.ends_with("At")
        || matches!(field, "resourceVersion" | "managedFields" | "time")
}

/// All oracles that look at a settled world.
pub fn judge(
    scenario: &Scenario,
    ground: &Ground,
    summary: &Summary,
    base: Option<&Summary>,
) -> Vec<Violation> {
    let mut violations = base.map(|base| same_as(base, summary)).unwrap_or_default();
    violations.extend(legal_moves(&ground.history, pawl_api::phases::tables()));
    violations.extend(no_orphan(ground));
    if let Err(what) = (scenario.ends_with)(ground) {
        violations.push(Violation { oracle: Oracle::EndsWell, what });
    }
    violations
}

/// End and effects are those of the run without faults.
pub fn same_as(base: &Summary, run: &Summary) -> Vec<Violation> {
    let end = different(&base.end, &run.end).map(|what| Violation { oracle: Oracle::SameEnd, what });
    let effects =
        different(&base.effects, &run.effects).map(|what| Violation { oracle: Oracle::SameEffects, what });
    end.into_iter().chain(effects).collect()
}

/// The first difference of two maps, in words.
fn different<V: PartialEq + serde::Serialize>(
    base: &BTreeMap<(Kind, Key), V>,
    run: &BTreeMap<(Kind, Key), V>,
) -> Option<String> {
    let keys: BTreeSet<_> = base.keys().chain(run.keys()).collect();
    keys.into_iter().find_map(|at @ (kind, key)| match (base.get(at), run.get(at)) {
        (Some(expected), Some(found)) if expected == found => None,
        (expected, found) => {
            let json = |value: Option<&V>| {
                value.and_then(|value| serde_json::to_value(value).ok()).unwrap_or_default()
            };
            let (path, expected, found) = narrow(String::new(), &json(expected), &json(found));
            Some(format!("{kind} {key}{path}\n    without faults: {expected}\n    in this run:    {found}"))
        }
    })
}

/// Where two values first differ, and how.
fn narrow(path: String, expected: &Value, found: &Value) -> (String, Value, Value) {
    let deeper = |step: String, expected: Option<&Value>, found: Option<&Value>| {
        let null = Value::Null;
        narrow(format!("{path}{step}"), expected.unwrap_or(&null), found.unwrap_or(&null))
    };
    match (expected, found) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<_> = a.keys().chain(b.keys()).collect();
            match keys.into_iter().find(|key| a.get(*key) != b.get(*key)) {
                Some(key) => deeper(format!(".{key}"), a.get(key), b.get(key)),
                None => (path, expected.clone(), found.clone()),
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            match (0..a.len()).find(|i| a.get(*i) != b.get(*i)) {
                Some(i) => deeper(format!("[{i}]"), a.get(i), b.get(i)),
                None => (path, expected.clone(), found.clone()),
            }
        }
        _ => (path, expected.clone(), found.clone()),
    }
}

/// Every phase ever written was reached by a legal move.
pub fn legal_moves(history: &[Happened], tables: &[phase::Table]) -> Vec<Violation> {
    let mut phases: BTreeMap<(&Kind, String), Option<&str>> = BTreeMap::new();
    let mut violations = Vec::new();
    for Happened { object, .. } in history {
        let Some(table) = tables.iter().find(|table| table.kind == *object.kind()) else { continue };
        let [part, field] = table.field;
        let now = object.raw().get(part).and_then(|part| part.get(field)).and_then(Value::as_str);
        let before = phases.insert((object.kind(), object.uid().to_owned()), now).flatten();
        let legal = match now {
            Some(now) => table.legal(before, now),
            None => before.is_none(),
        };
        if !legal {
            let what = format!("{object:?} moved from {before:?} to {now:?}");
            violations.push(Violation { oracle: Oracle::LegalMoves, what });
        }
    }
    violations
}

/// Nothing is left whose controller is gone.
pub fn no_orphan(ground: &Ground) -> Vec<Violation> {
    let alive: BTreeSet<&str> =
        ground.live.values().flat_map(BTreeMap::values).map(|object| object.uid()).collect();
    let orphans = ground.live.values().flat_map(BTreeMap::values).filter(|object| {
        object.controller().is_some_and(|controller| !alive.contains(controller.uid.as_str()))
    });
    orphans
        .map(|object| Violation {
            oracle: Oracle::NoOrphan,
            what: format!("{object:?} names a controller that is gone"),
        })
        .collect()
}
