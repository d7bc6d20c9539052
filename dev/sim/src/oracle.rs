//! What must hold of every run, whatever went wrong in it.
//!
//! Each oracle looks at a finished run beside the same scenario's run without faults. Each has a test that makes it
//! fail: an oracle that cannot is no oracle.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use pawl_api::git::{branch, workflow};
use pawl_api::k8s::{JOB, LEASE, SECRET};
use pawl_api::meta::{Kind, phase};
use pawl_api::remedy::annotations::{self, MEMORY};
use pawl_api::tekton::PIPELINE_RUN;
use pawl_apiserver::ChangeType;
use pawl_integrations::github::fake::{Applied, Effect};
use pawl_machines::apply::EVENT;
use pawl_machines::held_run;
use pawl_machines::object::{Key, Object};
use serde_json::Value;

use crate::acting::sings;
use crate::ground::{Ground, Happened};
use crate::hub::{CREDENTIALS, Hub};
use crate::mutant::Guards;
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
    SameAmount,
    LegalMoves,
    NoOrphan,
    NoFault,
    KnowsItself,
    EndsWell,
    OneCheck,
    OneJob,
    ChecksConclude,
    KeepsContract,
    NoSecret,
}

impl fmt::Display for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Converges => "does not converge",
            Self::Quiet => "writes although nothing changed",
            Self::SameEnd => "ends otherwise than without faults",
            Self::SameEffects => "creates or deletes otherwise than without faults",
            Self::SameAmount => "does more or less than without faults",
            Self::LegalMoves => "makes an illegal phase move",
            Self::NoOrphan => "leaves an orphan",
            Self::NoFault => "decides what it must not",
            Self::KnowsItself => "decides on what was before its own write",
            Self::EndsWell => "does not end as the scenario says",
            Self::OneCheck => "makes a check run twice",
            Self::OneJob => "runs a Job twice",
            Self::ChecksConclude => "leaves a check run unfinished",
            Self::KeepsContract => "does not speak GitHub's API",
            Self::NoSecret => "lets a secret out",
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
    /// How often each kind of thing was done, whatever it was called: objects made (of Jobs and PipelineRuns those that were
    /// started), check runs created, targets changed by actions.
    pub carried_out: BTreeMap<String, usize>,
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
            if *what == ChangeType::Added {
                *summary.carried_out.entry(format!("{} made", object.kind().kind)).or_default() += 1;
            }
            let (made, gone) = summary.effects.entry((object.kind().clone(), object.key())).or_default();
            match what {
                ChangeType::Added => *made += 1,
                ChangeType::Deleted => *gone += 1,
                ChangeType::Modified => {}
            }
        }
        let changed = ground.history.iter().filter_map(|happened| {
            Some((happened.object.uid(), happened.object.annotation(annotations::CHANGED_BY)?))
        });
        let changed = changed.collect::<BTreeSet<_>>().len();
        let checks = ground.hub.iter().flat_map(|hub| hub.fake.journal());
        let checks = checks.filter(|one| matches!(one.effect, Effect::CheckRunCreated { .. })).count();
        let others = [("targets changed by actions", changed), ("check runs created", checks)];
        summary.carried_out.extend(others.map(|(what, times)| (what.to_owned(), times)));
        summary
    }
}

/// Events are for people: written at most once, perhaps lost, so they are not compared.
fn counts(kind: &Kind) -> bool {
    kind.kind != EVENT.kind
}

/// A lock is acquired and released as often as somebody tries, and a Job or PipelineRun that is made held and never
/// started (by a process that came too late) has done nothing: neither is an effect.
fn is_effect(object: &Object, started: &BTreeSet<String>) -> bool {
    match object.kind() {
        kind if *kind == LEASE => false,
        kind if *kind == JOB || *kind == PIPELINE_RUN => started.contains(object.uid()),
        _ => true,
    }
}

/// The UIDs of the Jobs and PipelineRuns that were started at some time.
fn started(history: &[Happened]) -> BTreeSet<String> {
    let has_begun = |object: &Object| match object.kind() {
        kind if *kind == JOB => has_run(object),
        kind if *kind == PIPELINE_RUN => !held_run::is_held(object),
        _ => false,
    };
    let objects = history.iter().map(|happened| &happened.object);
    objects.filter(|object| has_begun(object)).map(|object| object.uid().to_owned()).collect()
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
                .map(|(name, value)| {
                    (name.clone(), remembered(name, value).unwrap_or_else(|| timeless(value)))
                })
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(timeless).collect()),
        Value::String(text) => Value::String(without_times(text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Messages tell deadlines; which second they fall into is as little to be compared as in a field of their own.
fn without_times(text: &str) -> String {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00Z";
    let is_time = |word: &str| {
        let fits = |(byte, shape): (u8, &u8)| {
            if *shape == b'0' { byte.is_ascii_digit() } else { byte == *shape }
        };
        word.len() == SHAPE.len() && word.bytes().zip(SHAPE).all(fits)
    };
    let words = text.split_inclusive([' ', ';', ',', ')']);
    let kept = words.map(|word| {
        let bare = word.trim_end_matches([' ', ';', ',', ')']);
        if is_time(bare) { word.replace(bare, "<time>") } else { word.to_owned() }
    });
    kept.collect()
}

/// What a target remembers stands in an annotation, with its times.
fn remembered(field: &str, value: &Value) -> Option<Value> {
    let text = value.as_str().filter(|_| field == MEMORY)?;
    serde_json::from_str(text).ok().map(|memory| timeless(&memory))
}

fn is_time(field: &str) -> bool {
    field.ends_with("Time")
        || field.ends_with("Timestamp")
        || field.ends_with("At")
        || field.ends_with("Deadline")
        || matches!(
            field,
            "resourceVersion"
                | "managedFields"
                | "time"
                | "deadline"
                | "duration"
                | "executionTimeBeforeFailure"
                | "naturalLanguageSummary"
        )
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
    if let Some(hub) = &ground.hub {
        violations.extend(one_check(&hub.fake.journal()));
        violations.extend(one_job(&ground.history));
        // I5: without credentials nobody can conclude anything.
        if ground.get(&SECRET, "default", CREDENTIALS).is_some() {
            violations.extend(checks_conclude(hub));
            violations.extend(aggregates(&ground.history, hub));
        }
        violations.extend(contract(hub));
        violations.extend(no_secret(ground, hub));
    }
    violations.extend(no_canary(scenario, ground));
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

/// As much is done as in the run without faults. That holds where the faults only interrupt: where they change who is first
/// or how late it is, another number may be right.
pub fn same_amount(base: &Summary, run: &Summary) -> Vec<Violation> {
    let times = |of: &Summary, what: &str| of.carried_out.get(what).copied().unwrap_or_default();
    let all: BTreeSet<&String> = base.carried_out.keys().chain(run.carried_out.keys()).collect();
    let other = all.into_iter().find(|what| times(base, what) != times(run, what));
    let told = |what: &String| format!("{what}: {}, without faults {}", times(run, what), times(base, what));
    other.map(|what| Violation { oracle: Oracle::SameAmount, what: told(what) }).into_iter().collect()
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

/// One check run per key, counted by what was applied on GitHub.
pub fn one_check(journal: &[Applied]) -> Vec<Violation> {
    let mut made: BTreeMap<&str, u32> = BTreeMap::new();
    for applied in journal {
        if let Effect::CheckRunCreated { external_id, .. } = &applied.effect {
            *made.entry(external_id).or_default() += 1;
        }
    }
    let twice = made.into_iter().filter(|(_, times)| *times > 1);
    let violation = |(external_id, times)| Violation {
        oracle: Oracle::OneCheck,
        what: format!("{external_id} was made {times} times"),
    };
    twice.map(violation).collect()
}

/// One Job per commit, template, path and attempt, counted by what ran: as often as its ref came to the commit.
pub fn one_job(history: &[Happened]) -> Vec<Violation> {
    let mut visits: BTreeMap<(String, String), u32> = BTreeMap::new();
    let mut at: BTreeMap<String, String> = BTreeMap::new();
    let mut units: BTreeMap<String, Unit> = BTreeMap::new();
    let mut ran: BTreeMap<Unit, BTreeSet<String>> = BTreeMap::new();
    for Happened { object, .. } in history {
        let spec = |field: &str| {
            let value = object.raw().pointer(&format!("/spec/{field}"));
            value
                .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
                .unwrap_or_default()
        };
        match object.kind() {
            kind if *kind == branch::KIND => {
                let sha = spec("sha");
                if at.insert(object.uid().to_owned(), sha.clone()).as_ref() != Some(&sha) {
                    *visits.entry((object.name().to_owned(), sha)).or_default() += 1;
                }
            }
            kind if *kind == workflow::KIND => {
                let unit = Unit {
                    branch: spec("branch"),
                    sha: spec("sha"),
                    of: [spec("template"), spec("path"), spec("attempt")],
                };
                units.insert(object.uid().to_owned(), unit);
            }
            kind if *kind == JOB && has_run(object) => {
                let unit = object.controller().and_then(|owner| units.get(&owner.uid));
                if let Some(unit) = unit {
                    ran.entry(unit.clone()).or_default().insert(object.uid().to_owned());
                }
            }
            _ => {}
        }
    }
    let too_often = ran.into_iter().filter_map(|(unit, jobs)| {
        let visits = visits.get(&(unit.branch.clone(), unit.sha.clone())).copied().unwrap_or(1);
        let times = u32::try_from(jobs.len()).unwrap_or(u32::MAX);
        (times > visits).then(|| format!("{unit:?} ran {times} times in {visits} visits"))
    });
    too_often.map(|what| Violation { oracle: Oracle::OneJob, what }).collect()
}

/// What is to run once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Unit {
    branch: String,
    sha: String,
    /// Template, path and attempt.
    of: [String; 3],
}

/// No check run is left unfinished.
pub fn checks_conclude(hub: &Hub) -> Vec<Violation> {
    hub.unfinished().into_iter().map(|what| Violation { oracle: Oracle::ChecksConclude, what }).collect()
}

/// Every commit that a Branch says it has evaluated has the check that stands for all others.
pub fn aggregates(history: &[Happened], hub: &Hub) -> Vec<Violation> {
    let Some(aggregated) = hub.aggregated() else { return Vec::new() };
    let branches =
        history.iter().map(|happened| &happened.object).filter(|object| *object.kind() == branch::KIND);
    let evaluated: BTreeSet<&str> =
        branches.filter_map(|branch| branch.status().get("evaluatedSha")?.as_str()).collect();
    let missing = evaluated.into_iter().filter(|sha| !aggregated.contains(*sha));
    missing
        .map(|sha| Violation {
            oracle: Oracle::ChecksConclude,
            what: format!("commit {sha} has no aggregate"),
        })
        .collect()
}

/// Whatever was asked and answered fits GitHub's own description of its API.
pub fn contract(hub: &Hub) -> Vec<Violation> {
    let findings = hub.findings.all();
    findings
        .into_iter()
        .map(|finding| Violation { oracle: Oracle::KeepsContract, what: finding.to_string() })
        .collect()
}

/// I6: no credential is anywhere but in the Secret it came in.
pub fn no_secret(ground: &Ground, hub: &Hub) -> Vec<Violation> {
    let canaries = hub.canaries();
    let found = |text: &str| canaries.iter().any(|canary| text.contains(canary.as_str()));
    let objects =
        ground.history.iter().map(|happened| &happened.object).filter(|object| *object.kind() != SECRET);
    let told: Vec<String> = objects
        .filter(|object| found(&object.raw().to_string()))
        .map(|object| format!("{object:?} holds a credential"))
        .chain(
            hub.told()
                .into_iter()
                .filter(|text| found(text))
                .map(|_| "GitHub was told a credential".to_owned()),
        )
        .collect();
    told.into_iter().take(1).map(|what| Violation { oracle: Oracle::NoSecret, what }).collect()
}

/// I6: a value that an action takes from one Secret to another is in no status, Event, Job or row of the ledger, and nobody
/// was asked anything with it.
pub fn no_canary(scenario: &Scenario, ground: &Ground) -> Vec<Violation> {
    let holds = |object: &Object| sings(&object.raw().to_string());
    let (secrets, others): (Vec<&Happened>, Vec<&Happened>) =
        ground.history.iter().partition(|happened| *happened.object.kind() == SECRET);
    // To read all that ever happened takes its time, and most worlds have no canary.
    if !secrets.iter().any(|happened| holds(&happened.object)) {
        return Vec::new();
    }
    let (machines, view) = ((scenario.machines)(Guards::default()), ground.view());
    let told = |object: &Arc<Object>| {
        let of_kind = machines.iter().filter(|one| one.description().primary.kind() == Some(object.kind()));
        of_kind
            .filter_map(|machine| machine.audit(&view, object, ground.now()))
            .flatten()
            .any(|entry| sings(&format!("{entry:?}")))
    };
    let objects = others.iter().filter(|happened| holds(&happened.object));
    let mut found =
        objects.map(|happened| format!("{:?} holds the canary", happened.object)).collect::<Vec<_>>();
    let rows = others.iter().filter(|happened| told(&happened.object));
    found.extend(rows.map(|happened| format!("the ledger tells it of {:?}", happened.object)));
    found.extend(ground.trace().leaks().into_iter().map(|what| format!("it was told: {what}")));
    found.into_iter().take(1).map(|what| Violation { oracle: Oracle::NoSecret, what }).collect()
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
