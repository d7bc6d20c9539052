//! What is the next thing to do for an Execution: a list of items that depend on each other?
//!
//! ```text
//! job ID ─▶ Init: the item objects are made as the spec says, those without an item are deleted
//!           Progressing: orphans go, then items run, each when its turn comes (graph.rs)
//!           Completing: what they export becomes one Secret ─▶ Succeeded
//! job ID, and being deleted ─▶ InitDelete: all objects are deleted
//!           Deleting: each is uninstalled once nothing depends on it any more ─▶ gone
//! ```
//! A spec that changes during a job waits for the next one: the order is then taken from the objects, which say what they
//! were made to depend on. In a removal the spec does not matter at all, so a broken one hinders nobody.
//!
//! The items' own changes wake the Execution only when one has finished or is gone: what happens in between is the
//! deployer's, and there may be ten thousand of them.

mod counts;
mod exports;
mod family;
mod standing;

use std::sync::Arc;

use jiff::Timestamp;
use pawl_api::deploy::execution::{DeployItemCache, ItemCounts, KIND};
use pawl_api::deploy::{
    DeployItem, Execution, ExecutionPhase, ExecutionStatus, FINALIZER, annotations, deploy_item,
    installation, labels, target, types,
};
use pawl_api::k8s::SECRET;
use pawl_api::meta::phase::Table;
use pawl_api::meta::{Reason, names};
use serde_json::{Value, json};

use super::graph::{self, Direction, Next, Progress};
use super::items::{self, Invalid, Items};
use super::job::{self, Begin, Jobs, Parent};
use super::report::Report;
use crate::apply::difference;
use crate::audit::{self, Entry, Teller};
use crate::lifecycle::{self, Lifecycle};
use crate::machine::{Depth, Description, Machine, Primary, Watch, Write};
use crate::object::{Key, Object, Reference};
use crate::plan::{Adopt, Note, Part, Plan, Precondition, Refusal, Step};
use crate::view::{Input, View};

use exports::Exported;
use family::{Family, Owned};
use standing::Side;

/// Writes of one look. A plan is carried out without looking up; after so many it is time to see whether somebody has
/// interrupted the job, and a thousand requests take about a second.
const MAX_STEPS: usize = 1_000;

/// How many awaited items are named.
const MAX_AWAITED: usize = 5;

/// Runs Executions.
#[derive(Clone, Copy, Debug)]
pub struct Executions {
    /// The item types that have a deployer here; only for the words of a timeout.
    pub served: &'static [&'static str],
}

impl Default for Executions {
    fn default() -> Self {
        Self { served: &[types::MOCK, types::MANIFEST, types::CONTAINER] }
    }
}

/// An Execution and all that its next step depends on.
#[derive(Debug)]
pub struct Observed {
    me: Arc<Object>,
    execution: Arc<Execution>,
    /// Its items, while a job runs.
    family: Arc<Family>,
    parent: Parent,
    /// What the items exported; looked at only when it is collected.
    exported: Vec<Exported>,
    /// The Secret with all of it.
    collected: Option<Arc<Object>>,
    refusals: Vec<Refusal>,
    served: &'static [&'static str],
}

impl Observed {
    /// The DeployItems it controls, in the order of their names.
    fn owned(&self) -> &[Owned] {
        &self.family.owned
    }

    fn items(&self) -> Result<&Items, &Invalid> {
        self.family.items.as_ref()
    }
}

impl Machine for Executions {
    type Kind = Execution;
    type Observed = Observed;
    type Status = ExecutionStatus;

    fn description(&self) -> Description {
        Description {
            name: "execution",
            primary: Primary::One(KIND),
            depth: Depth::Full,
            watches: vec![
                Watch::other(deploy_item::KIND, standing::of_the_item),
                Watch::other(installation::KIND, of_the_installation),
                Watch::other(target::KIND, |_, _| Vec::new()),
                Watch::owned(SECRET),
            ],
            finalizer: Some(FINALIZER),
            phases: Some(Table::of::<ExecutionPhase>(KIND, ["status", "phase"])),
            writes: vec![
                Write::main(KIND, &["patch"]),
                Write::status(KIND),
                Write::finalizers(KIND),
                Write::main(deploy_item::KIND, &["create", "delete", "patch"]),
                Write::status(deploy_item::KIND),
                Write::main(SECRET, &["create", "delete", "patch"]),
            ],
        }
    }

    fn audit(&self, tell: &Teller<'_>, me: &Execution) -> Option<Vec<Entry>> {
        Some(audit::deploy::execution(tell, me.status.as_ref()))
    }

    /// Each item is found by its name, and triggered by itself.
    fn is_in_any_order(&self) -> bool {
        true
    }

    fn observe(&self, input: &Input<'_>, execution: &Arc<Execution>) -> Observed {
        let (view, me) = (input.view, Arc::clone(input.me));
        let phase = execution.status.as_ref().and_then(|status| status.phase);
        let family = family::of(input, execution);
        let exported = match phase {
            Some(ExecutionPhase::Completing) => exports::read(view, &family),
            _ => Vec::new(),
        };
        Observed {
            collected: view.get(&SECRET, &exports::key(&me)),
            parent: Parent::of(view, &me, &installation::KIND),
            execution: Arc::clone(execution),
            refusals: input.refusals.to_vec(),
            served: self.served,
            exported,
            family,
            me,
        }
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Plan<ExecutionStatus> {
        match lifecycle::of(&observed.me, FINALIZER) {
            Lifecycle::Add => Plan::step(Step::add_finalizer(FINALIZER)),
            Lifecycle::Run | Lifecycle::CleanUp => run(observed, now),
            Lifecycle::Nothing => Plan::rest(),
        }
    }
}

fn run(observed: &Observed, now: Timestamp) -> Plan<ExecutionStatus> {
    let status = observed.execution.status.clone().unwrap_or_default();
    let jobs = Jobs::of(&status.job_id, &status.job_id_finished);
    if let Some(step) = job::interrupt(&observed.me, jobs) {
        return Plan::step(step);
    }
    let Some(job) = jobs.running().map(str::to_owned) else { return begin(observed, jobs, now) };
    let report = Report::of(&observed.me, status.clone(), job, now);
    if job::is_interrupted(&observed.me, jobs) {
        return interrupt(observed, report);
    }
    match status.phase {
        // The job has just arrived.
        None | Some(ExecutionPhase::Succeeded | ExecutionPhase::Failed | ExecutionPhase::DeleteFailed) => {
            report.starts()
        }
        Some(ExecutionPhase::Init) => init(observed, report),
        Some(ExecutionPhase::Progressing) => progress(observed, report),
        Some(ExecutionPhase::Completing) => exports::complete(observed, report),
        Some(ExecutionPhase::InitDelete) => init_delete(observed, report),
        Some(ExecutionPhase::Deleting) => delete(observed, report),
    }
}

/// No job runs: is one to start?
fn begin(observed: &Observed, jobs: Jobs<'_>, now: Timestamp) -> Plan<ExecutionStatus> {
    let status = observed.execution.status.as_ref();
    let removed = status.and_then(|status| status.phase) == Some(ExecutionPhase::DeleteFailed);
    let generation = status.and_then(|status| status.observed_generation);
    match job::begin(&observed.me, &observed.parent, jobs, generation, removed) {
        Begin::Rest => Plan::rest(),
        Begin::Steps(steps) => Plan { steps, ..Plan::rest() },
        Begin::Refuse(step, note) => Plan::step(step).note(note),
        Begin::Job(job, steps) => {
            let status = status.cloned().unwrap_or_default();
            Plan { steps, ..Report::of(&observed.me, status, job, now).starts() }
        }
    }
}

/// The objects are made as the spec says; what has no item any more is deleted.
fn init(observed: &Observed, mut report: Report<'_, ExecutionStatus>) -> Plan<ExecutionStatus> {
    report.status.observed_generation = observed.me.meta().generation;
    let items = match observed.items() {
        Ok(items) => items,
        Err(invalid) => return report.fails("Init", Reason::ValidationFailed, invalid.to_string()),
    };
    if let Some(refusal) = observed.refusals.first() {
        return refused(report, refusal);
    }
    let context = observed.execution.spec.context.as_deref();
    let mut found: Vec<Option<&Owned>> = vec![None; items.list.len()];
    let (mut steps, mut leaving) = (Vec::new(), Vec::new());
    for owned in observed.owned() {
        let number = owned.number;
        let replaced = number.is_some_and(|at| {
            let wanted = items.list.get(at).map(|item| item.template.type_.as_str());
            owned.item().is_none_or(|item| Some(item.spec.type_.as_str()) != wanted)
        });
        if !owned.object.is_deleting() && (number.is_none() || replaced) {
            steps.push(remove(&owned.object));
        }
        if let Some(place) = number.and_then(|at| found.get_mut(at)) {
            *place = Some(owned);
        }
        // A name that is wanted again, or for something else, is free only when what had it is uninstalled.
        if number.is_some() && (replaced || owned.object.is_deleting()) {
            leaving.push(owned);
        }
    }
    for (item, owned) in items.list.iter().zip(&found) {
        match owned {
            None => steps.push(Step::Create {
                kind: deploy_item::KIND,
                manifest: items::manifest(&observed.me, context, item),
                adopt: Adopt::ControlledBy(observed.me.uid().to_owned()),
            }),
            Some(owned) if owned.object.is_deleting() => {}
            Some(owned) => {
                let typed = owned.item().filter(|typed| typed.spec.type_ == item.template.type_);
                let update = |typed: Arc<DeployItem>| {
                    items::update(&observed.me, context, item, &owned.object, &typed)
                };
                let changes = typed.and_then(update);
                steps.extend(changes.map(|patch| patch_item(&owned.object, patch, Part::Main)));
            }
        }
    }
    if !steps.is_empty() {
        // What is made may turn out to be there already, and not as it should be: the next look sees.
        steps.truncate(MAX_STEPS);
        return Plan { steps, ..Plan::rest() };
    }
    if !leaving.is_empty() {
        return drain(observed, report, &leaving);
    }
    let orphaned = observed.owned().iter().filter(|owned| owned.number.is_none()).count();
    report.status.deploy_item_cache = Some(DeployItemCache {
        active: whole(items.list.len()),
        orphaned: whole(orphaned),
        hash: items.hash.clone(),
    });
    let message = format!("{} items, {orphaned} without an item any more", items.list.len());
    report.moves(ExecutionPhase::Progressing, Reason::Progressing, message)
}

/// The API server did not want an item's object.
fn refused(report: Report<'_, ExecutionStatus>, refusal: &Refusal) -> Plan<ExecutionStatus> {
    let reason = match refusal.failure.reason.as_str() {
        "OwnershipMismatch" => Reason::OwnershipMismatch,
        "Forbidden" if refusal.failure.is_quota() => Reason::QuotaExceeded,
        "Forbidden" => Reason::Forbidden,
        _ => Reason::ValidationFailed,
    };
    report.fails("Init", reason, refusal.failure.to_string())
}

/// Takes down what is in the way of objects that are to be made.
fn drain(
    observed: &Observed,
    report: Report<'_, ExecutionStatus>,
    leaving: &[&Owned],
) -> Plan<ExecutionStatus> {
    let side = Side::leaving(observed, leaving.iter().copied());
    let mut plan = Plan::rest();
    let ended = standing::timeouts(observed, &side, &report, &mut plan);
    match graph::next(&side.graph, Direction::TakeDown, &side.standing) {
        _ if ended => plan,
        Next::Trigger(those) | Next::Stuck(those) => {
            let told = report.status.items.clone();
            trigger(observed, report, told, &side, &those, plan)
        }
        Next::Failed(those) => {
            let message = standing::told(&side, &those);
            report.fails("Init", Reason::OrphanDeleteFailed, message)
        }
        Next::Wait | Next::Done => plan,
    }
}

fn progress(observed: &Observed, report: Report<'_, ExecutionStatus>) -> Plan<ExecutionStatus> {
    let (orphans, active) = standing::sides(observed);
    let mut report = report;
    let told = report.count(&[&orphans, &active]);
    let mut plan = Plan::rest();
    // A replica whose cache lagged in Init did not see them.
    plan.steps.extend(orphans.staying().map(remove).take(MAX_STEPS));
    let ended = !plan.steps.is_empty()
        | standing::timeouts(observed, &orphans, &report, &mut plan)
        | standing::timeouts(observed, &active, &report, &mut plan);
    if ended {
        return plan;
    }
    let Progress { orphans: down, items: up } =
        graph::progress((&orphans.graph, &orphans.standing), (&active.graph, &active.standing));
    match (down, up) {
        (Next::Done, Next::Done) => {
            let message = format!("all {} items succeeded", active.len());
            let mut plan = report.moves(ExecutionPhase::Completing, Reason::Completed, message);
            // Those that succeeded in this job show that the cache is newer than the last orphan; without any, the
            // server is asked.
            plan.steps.extend((active.len() == 0).then(|| none_left(observed)));
            plan
        }
        (Next::Failed(those), _) if !those.is_empty() => {
            let message = standing::told(&orphans, &those);
            report.fails("Progressing", Reason::OrphanDeleteFailed, message)
        }
        (_, Next::Failed(those)) => {
            let missing = those.iter().all(|at| active.is_missing(*at));
            let reason = if missing { Reason::DeployItemMissing } else { Reason::DeployItemFailed };
            let message = standing::told(&active, &those);
            let mut plan = report.fails("Progressing", reason, message);
            let missing = active.missing(observed.me.namespace()).take(MAX_AWAITED);
            plan.steps.extend(missing.map(|key| {
                Step::confirm_gone(Reference { kind: deploy_item::KIND, key, uid: String::new() })
            }));
            plan
        }
        (Next::Stuck(those), _) => {
            let message = format!("nothing runs, but {} wait for each other", orphans.names(&those));
            report.fails("Progressing", Reason::Stuck, message)
        }
        (_, Next::Stuck(those)) => {
            let message = format!("nothing runs, but {} wait for each other", active.names(&those));
            report.fails("Progressing", Reason::Stuck, message)
        }
        (Next::Trigger(those), _) => trigger(observed, report, told, &orphans, &those, plan),
        (_, Next::Trigger(those)) => trigger(observed, report, told, &active, &those, plan),
        (_, _) => report.goes_on(told, plan),
    }
}

/// Hands the job's ID to items whose turn has come.
fn trigger(
    observed: &Observed,
    report: Report<'_, ExecutionStatus>,
    told: Option<ItemCounts>,
    side: &Side<'_>,
    those: &[usize],
    mut plan: Plan<ExecutionStatus>,
) -> Plan<ExecutionStatus> {
    // Another replica may have ended this job: what seemed free then must not start now.
    plan.steps.push(Step::confirm_unchanged(&observed.me));
    let objects = those.iter().filter_map(|at| side.owned(*at)).take(MAX_STEPS);
    plan.steps.extend(objects.map(|owned| standing::trigger(owned, &report.job, report.now)));
    report.goes_on(told, plan)
}

fn init_delete(observed: &Observed, report: Report<'_, ExecutionStatus>) -> Plan<ExecutionStatus> {
    let without_uninstall = observed.me.annotation(annotations::DELETE_WITHOUT_UNINSTALL) == Some("true");
    let mut steps = Vec::new();
    for Owned { object, .. } in observed.owned() {
        if !object.is_deleting() {
            steps.push(remove(object));
        } else if without_uninstall && object.has_finalizer(FINALIZER) {
            let mut finalizers = object.finalizers().to_vec();
            finalizers.retain(|held| held != FINALIZER);
            steps.push(patch_item(object, json!({"metadata": {"finalizers": finalizers}}), Part::Main));
        }
    }
    if steps.len() > MAX_STEPS || (without_uninstall && !steps.is_empty()) {
        steps.truncate(MAX_STEPS);
        return Plan { steps, ..Plan::rest() };
    }
    let message = format!("{} items are to be taken down", observed.owned().len());
    let plan = report.moves(ExecutionPhase::Deleting, Reason::Deleting, message);
    Plan { steps, ..plan }
}

fn delete(observed: &Observed, report: Report<'_, ExecutionStatus>) -> Plan<ExecutionStatus> {
    let mut report = report;
    if observed.owned().is_empty() {
        return gone(observed);
    }
    let side = Side::all_leaving(observed);
    let told = report.count(&[&side]);
    let mut plan = Plan::rest();
    // Made by a replica that lags: it goes like the others.
    let late = observed.owned().iter().filter(|owned| !owned.deleting);
    plan.steps.extend(late.map(|owned| remove(&owned.object)).take(MAX_STEPS));
    if standing::timeouts(observed, &side, &report, &mut plan) {
        return plan;
    }
    match graph::next(&side.graph, Direction::TakeDown, &side.standing) {
        Next::Done => gone(observed),
        Next::Wait => report.goes_on(told, plan),
        Next::Trigger(those) => trigger(observed, report, told, &side, &those, plan),
        Next::Failed(those) => {
            let message = standing::told(&side, &those);
            report.fails("Deleting", Reason::DeleteFailed, message)
        }
        // A circle has no end to begin at; but what is to go, goes (I5).
        Next::Stuck(those) => {
            let message =
                format!("{} depend on each other in a circle: they go all at once", side.names(&those));
            let note = Note::warning(Reason::Stuck, message).once(report.job.clone());
            trigger(observed, report, told, &side, &those, plan).note(note)
        }
    }
}

/// Nothing is left, as far as one can see; the server is asked whether that is so.
fn gone(observed: &Observed) -> Plan<ExecutionStatus> {
    Plan::step(none_left(observed))
        .then(Step::remove_finalizer(FINALIZER))
        .note(Note::normal(Reason::Uninstalled, format!("Execution {} is gone", observed.me.key())))
}

/// Everything that has not finished ends here and now.
fn interrupt(observed: &Observed, report: Report<'_, ExecutionStatus>) -> Plan<ExecutionStatus> {
    let mut steps: Vec<Step> = observed
        .owned()
        .iter()
        .filter_map(|owned| standing::interrupt(owned, &report.job, report.now))
        .collect();
    if steps.len() > MAX_STEPS {
        steps.truncate(MAX_STEPS);
        return Plan { steps, ..Plan::rest() };
    }
    let message = "the job was interrupted; what had not finished was given up";
    let plan = report.fails("Interrupt", Reason::Interrupted, message);
    Plan { steps, ..plan }
}

fn none_left(observed: &Observed) -> Step {
    Step::Confirm(Precondition::NoneLabelled {
        kind: deploy_item::KIND,
        namespace: observed.me.namespace().map(str::to_owned),
        label: labels::MANAGED_BY,
        value: names::label_value(observed.me.name()),
    })
}

fn remove(object: &Arc<Object>) -> Step {
    Step::delete(object)
}

/// Only to the version that was seen: what a deployer writes at the same time is never overwritten.
fn patch_item(object: &Arc<Object>, patch: Value, part: Part) -> Step {
    Step::patch_unchanged(object, patch).in_part(part)
}

/// The status of an item with changes, as a step; `None` when nothing changes.
fn item_status(object: &Arc<Object>, status: &pawl_api::deploy::DeployItemStatus) -> Option<Step> {
    let after = serde_json::to_value(status).unwrap_or_default();
    let changes = difference(object.status(), &after)?;
    Some(patch_item(object, json!({"status": changes}), Part::Status))
}

/// An Installation's Execution has its name; only its end matters here.
fn of_the_installation(changed: &Object, view: &dyn View) -> Vec<Key> {
    let gone = view.get(&installation::KIND, &changed.key()).is_none();
    gone.then(|| changed.key()).into_iter().collect()
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod tests;
