//! What the items export becomes one Secret of the Execution, by item name.
//!
//! An item's deployer writes its export to a Secret (key `config`, YAML) and names it in `exportRef` before the item's
//! job ends. A Secret that is named and not there fails the job, once the API server has confirmed that it is not.

use pawl_api::deploy::execution::MAX_EXPORT_BYTES;
use pawl_api::deploy::{ExecutionPhase, ExecutionStatus, labels};
use pawl_api::k8s::SECRET;
use pawl_api::meta::Reason;
use pawl_api::meta::reference::NamedRef;
use serde_json::{Map, Value};

use super::family::{Family, Owned};
use super::{Facts, Report, remove};
use crate::deploy::export_secret;
use crate::object::{Key, Object, Reference};
use crate::plan::{Plan, Step};
use crate::view::View;

/// What one item exported.
#[derive(Debug)]
pub(super) struct Exported {
    item: String,
    key: Key,
    /// `None`: the Secret is not there.
    value: Option<Result<Value, String>>,
}

/// Where an Execution's exports are.
pub(super) fn key(me: &Object) -> Key {
    export_secret::key(me, "exports")
}

pub(super) fn read(view: &dyn View, family: &Family) -> Vec<Exported> {
    let exporting = family.owned.iter().filter_map(|owned| {
        let item = owned.item()?;
        Some((owned, item.status.as_ref()?.export_ref.clone()?))
    });
    let read = |(owned, reference): (&Owned, NamedRef)| {
        let key = Key::new(owned.object.namespace(), &reference.name);
        let value = view.get(&SECRET, &key).map(|secret| export_secret::read(&secret));
        let items = family.items.as_ref().ok();
        let planned = items.and_then(|items| items.list.get(owned.number?));
        let given = planned.map(|item| item.template.name.as_str()).or(owned.object.label(labels::NAME));
        let item = given.unwrap_or(owned.object.name()).to_owned();
        Exported { item, key, value }
    };
    exporting.map(read).collect()
}

/// Collects, and ends the job.
pub(super) fn complete(facts: &Facts<'_>, mut report: Report<'_, ExecutionStatus>) -> Plan<ExecutionStatus> {
    let mut all = Map::new();
    for Exported { item, key, value } in &facts.exported {
        match value {
            Some(Ok(value)) => {
                all.insert(item.clone(), value.clone());
            }
            Some(Err(problem)) => {
                let message = format!("the export of {item}, Secret {key}, cannot be read: {problem}");
                return report.fails("Completing", Reason::ExportMissing, message);
            }
            None => {
                let message = format!("the export of {item}, Secret {key}, is not there");
                let mut plan = report.fails("Completing", Reason::ExportMissing, message);
                let gone = Reference { kind: SECRET, key: key.clone(), uid: String::new() };
                plan.steps.insert(0, Step::confirm_gone(gone));
                return plan;
            }
        }
    }
    if let Some(refusal) = facts.cx.refusals.first() {
        return report.fails("Completing", Reason::ExportMissing, refusal.failure.to_string());
    }
    let count = all.len();
    let text = Value::Object(all).to_string();
    if text.len() > MAX_EXPORT_BYTES {
        let message = format!("the exports are {} bytes; at most {MAX_EXPORT_BYTES} are allowed", text.len());
        return report.fails("Completing", Reason::ExportTooLarge, message);
    }
    let key = key(facts.cx.object);
    let write = || export_secret::write(facts.cx.object, &key, facts.collected.as_ref(), &text);
    if let Some(step) = (count > 0).then(write).flatten() {
        // One of that name may be adopted that says something else: the job ends when the right one is seen.
        return Plan::step(step);
    }
    let step = discard(facts, count);
    report.status.export_ref = (count > 0).then_some(NamedRef { name: key.name, namespace: None });
    let message = match count {
        0 => "the job succeeded".to_owned(),
        _ => format!("the job succeeded; {count} items exported something"),
    };
    let plan = report.moves(ExecutionPhase::Succeeded, Reason::JobFinished, message);
    Plan { steps: step.into_iter().collect(), ..plan }
}

/// What an earlier job exported is no longer so.
fn discard(facts: &Facts<'_>, count: usize) -> Option<Step> {
    let secret = facts.collected.as_ref().filter(|secret| count == 0 && !secret.is_deleting());
    secret.filter(|secret| secret.is_controlled_by(facts.cx.object)).map(remove)
}
