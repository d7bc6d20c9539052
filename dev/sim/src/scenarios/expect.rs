//! Checks that scenarios share: of the end of a run, and of the moment when a deed becomes possible.

use std::collections::BTreeSet;
use std::fmt::Debug;

use pawl_api::k8s::JOB;
use pawl_api::meta::Kind;
use pawl_apiserver::ChangeType;
use pawl_machines::object::Object;
use serde_json::Value;

use crate::ground::Ground;
use crate::oracle;

/// A value is the expected one; `what` names it where it is not.
pub(crate) fn equal<F: PartialEq<E> + Debug, E: Debug>(
    what: &str,
    found: F,
    expected: E,
) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?}, expected {expected:?}")) }
}

/// No object of these kinds is left.
pub(crate) fn none_left(ground: &Ground, kinds: &[Kind]) -> Result<(), String> {
    equal("objects left", count(ground, kinds), 0)
}

pub(crate) fn count(ground: &Ground, kinds: &[Kind]) -> usize {
    kinds.iter().map(|kind| ground.all(kind).count()).sum()
}

/// So many Jobs were let go, ever: one that was made too late by somebody who stalled never is.
pub(crate) fn jobs_ran(ground: &Ground, expected: usize) -> Result<(), String> {
    let jobs = ground.history.iter().map(|happened| &happened.object).filter(|object| *object.kind() == JOB);
    let ran: BTreeSet<&str> = jobs.filter(|job| oracle::has_run(job)).map(|job| job.uid()).collect();
    equal("Jobs that ran", ran.len(), expected)
}

/// The names of all objects of a kind that were ever created, or deleted, in this order.
pub(crate) fn names_of<'a>(ground: &'a Ground, kind: &Kind, what: ChangeType) -> Vec<&'a str> {
    let all = ground.history.iter().filter(|happened| happened.object.kind() == kind);
    all.filter(|happened| happened.what == what).map(|happened| happened.object.name()).collect()
}

/// The object in the namespace `default` is in this phase.
pub(crate) fn phase(ground: &Ground, kind: &Kind, name: &str, expected: &str) -> Result<(), String> {
    says(ground, kind, name, "/phase", expected)
}

/// The status of the object in the namespace `default` has this text at this pointer.
pub(crate) fn says(ground: &Ground, kind: &Kind, name: &str, at: &str, expected: &str) -> Result<(), String> {
    let status = ground.get(kind, "default", name).map(|object| object.status());
    if status.and_then(|status| status.pointer(at)?.as_str()) == Some(expected) {
        return Ok(());
    }
    Err(format!("{kind} {name} does not say {expected} at {at}: {status:?}"))
}

/// Whether the object has a condition with this status.
pub(crate) fn has_condition(object: &Object, condition: &str, status: &str) -> bool {
    let conditions = object.status().get("conditions").and_then(Value::as_array);
    let is = |one: &Value| text(one, "type") == Some(condition) && text(one, "status") == Some(status);
    conditions.into_iter().flatten().any(is)
}

pub(crate) fn text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field).and_then(Value::as_str)
}
