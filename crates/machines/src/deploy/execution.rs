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

use pawl_api::deploy::execution::{DeployItemCache, ItemCounts, KIND};
use pawl_api::deploy::{
    DeployItem, Execution, ExecutionPhase, ExecutionStatus, FINALIZER, annotations, deploy_item,
    installation, labels, target, types,
};
use pawl_api::k8s::SECRET;
use pawl_api::meta::{Reason, names};
use serde_json::{Value, json};

use super::graph::{self, Direction, Next, Progress};
use super::items::{self, Invalid, Items};
use super::job::{self, Jobs, Parent};
use super::report::Report;
use crate::apply::difference;
use crate::audit::{self, Entry, Teller};
use crate::lifecycle::{self, Lifecycle};
use crate::machine::{Description, Machine, Watch, Write};
use crate::object::{Key, Object, Reference};
use crate::plan::{Note, Part, Plan, Precondition, Step};
use crate::view::{Context, View};

use exports::Exported;
use family::{Families, Family, Owned};
use standing::Side;

/// Writes of one look. A plan is carried out without looking up; after so many it is time to see whether somebody has
/// interrupted the job, and a thousand requests take about a second.
const MAX_STEPS: usize = 1_000;

/// How many awaited items are named.
const MAX_AWAITED: usize = 5;

/// Runs Executions.
#[derive(Debug)]
pub struct Executions {
    /// The item types that have a deployer here; only for the words of a timeout.
    pub served: &'static [&'static str],
    pub families: Families,
}

impl Default for Executions {
    fn default() -> Self {
        Self { served: &[types::MOCK, types::MANIFEST, types::CONTAINER], families: Families::default() }
    }
}

/// An Execution and all that its next step depends on.
#[derive(Debug)]
struct Facts<'a> {
    cx: &'a Context<'a, Execution>,
    /// Its items, while a job runs.
    family: Family,
    parent: Parent,
    /// What the items exported; looked at only when it is collected.
    exported: Vec<Exported>,
    /// The Secret with all of it.
    collected: Option<Arc<Object>>,
    served: &'static [&'static str],
}

impl Facts<'_> {
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
    type Status = ExecutionStatus;

    fn description(&self) -> Description {
        Description {
            watches: vec![
                Watch::other(deploy_item::KIND, standing::of_the_item),
                Watch::other(installation::KIND, of_the_installation),
                Watch::other(target::KIND, |_, _| Vec::new()),
                Watch::owned(SECRET),
            ],
            finalizer: Some(FINALIZER),
            writes: vec![
                Write::main(KIND, &["patch"]),
                Write::status(KIND),
                Write::finalizers(KIND),
                Write::main(deploy_item::KIND, &["create", "delete", "patch"]),
                Write::status(deploy_item::KIND),
                Write::main(SECRET, &["create", "delete", "patch"]),
            ],
            ..Description::new("execution", KIND)
        }
    }

    fn audit(&self, tell: &Teller<'_>, me: &Execution) -> Option<Vec<Entry>> {
        Some(audit::deploy::execution(tell, me.status.as_ref()))
    }

    fn reconcile(&self, cx: &Context<'_, Execution>) -> Plan<ExecutionStatus> {
        let facts = self.facts(cx);
        let plan = match lifecycle::of(cx.object, FINALIZER) {
            Lifecycle::Add => Plan::step(Step::add_finalizer(FINALIZER)),
            Lifecycle::Run | Lifecycle::CleanUp => run(&facts),
            Lifecycle::Nothing => Plan::rest(),
        };
        self.families.keep(facts.family);
        // Each item is found by its name, and triggered by itself.
        Plan { in_any_order: true, ..plan }
    }
}

impl Executions {
    fn facts<'a>(&self, cx: &'a Context<'a, Execution>) -> Facts<'a> {
        let (view, me, execution) = (cx.view, cx.object, cx.typed);
        let phase = execution.status.as_ref().and_then(|status| status.phase);
        let family = self.families.read(cx);
        let exported = match phase {
            Some(ExecutionPhase::Completing) => exports::read(view, &family),
            _ => Vec::new(),
        };
        Facts {
            collected: view.get(&SECRET, &exports::key(me)),
            parent: Parent::of(view, me, &installation::KIND),
            served: self.served,
            exported,
            family,
            cx,
        }
    }
}

fn run(facts: &Facts<'_>) -> Plan<ExecutionStatus> {
    let status = facts.cx.typed.status.clone().unwrap_or_default();
    let jobs = Jobs::of(&status.job_id, &status.job_id_finished);
    if let Some(step) = job::interrupt(facts.cx.object, jobs) {
        return Plan::step(step);
    }
    let Some(job) = jobs.running().map(str::to_owned) else { return begin(facts, jobs) };
    let report = Report::of(facts.cx.object, status.clone(), job, facts.cx.now);
    if job::is_interrupted(facts.cx.object, jobs) {
        return interrupt(facts, report);
    }
    match status.phase {
        // The job has just arrived.
        None | Some(ExecutionPhase::Succeeded | ExecutionPhase::Failed | ExecutionPhase::DeleteFailed) => {
            report.starts()
        }
        Some(ExecutionPhase::Init) => init(facts, report),
        Some(ExecutionPhase::Progressing) => progress(facts, report),
        Some(ExecutionPhase::Completing) => exports::complete(facts, report),
        Some(ExecutionPhase::InitDelete) => init_delete(facts, report),
        Some(ExecutionPhase::Deleting) => delete(facts, report),
    }
}

/// No job runs: is one to start?
fn begin(facts: &Facts<'_>, jobs: Jobs<'_>) -> Plan<ExecutionStatus> {
    let status = facts.cx.typed.status.as_ref();
    let removed = status.and_then(|status| status.phase) == Some(ExecutionPhase::DeleteFailed);
    let generation = status.and_then(|status| status.observed_generation);
    let begin = job::begin(facts.cx.object, &facts.parent, jobs, generation, removed);
    begin.plan(|job| {
        let status = status.cloned().unwrap_or_default();
        Report::of(facts.cx.object, status, job, facts.cx.now).starts()
    })
}

/// The objects are made as the spec says; what has no item any more is deleted.
fn init(facts: &Facts<'_>, mut report: Report<'_, ExecutionStatus>) -> Plan<ExecutionStatus> {
    report.status.observed_generation = facts.cx.object.meta().generation;
    let items = match facts.items() {
        Ok(items) => items,
        Err(invalid) => return report.fails("Init", Reason::ValidationFailed, invalid.to_string()),
    };
    if let Some(refusal) = facts.cx.refusals.first() {
        return report.fails("Init", job::refused(&refusal.failure), refusal.failure.to_string());
    }
    let context = facts.cx.typed.spec.context.as_deref();
    let mut found: Vec<Option<&Owned>> = vec![None; items.list.len()];
    let (mut steps, mut leaving) = (Vec::new(), Vec::new());
    for owned in facts.owned() {
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
            None => {
                let manifest = items::manifest(facts.cx.object, context, item);
                steps.push(Step::create_child(facts.cx.object, deploy_item::KIND, manifest));
            }
            Some(owned) if owned.object.is_deleting() => {}
            Some(owned) => {
                let typed = owned.item().filter(|typed| typed.spec.type_ == item.template.type_);
                let update = |typed: Arc<DeployItem>| {
                    items::update(facts.cx.object, context, item, &owned.object, &typed)
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
        return drain(facts, report, &leaving);
    }
    let orphaned = facts.owned().iter().filter(|owned| owned.number.is_none()).count();
    report.status.deploy_item_cache = Some(DeployItemCache {
        active: whole(items.list.len()),
        orphaned: whole(orphaned),
        hash: items.hash.clone(),
    });
    let message = format!("{} items, {orphaned} without an item any more", items.list.len());
    report.moves(ExecutionPhase::Progressing, Reason::Progressing, message)
}

/// The API server did not want an item's object.
/// Takes down what is in the way of objects that are to be made.
fn drain(
    facts: &Facts<'_>,
    report: Report<'_, ExecutionStatus>,
    leaving: &[&Owned],
) -> Plan<ExecutionStatus> {
    let side = Side::leaving(facts, leaving.iter().copied());
    let mut plan = Plan::rest();
    let ended = standing::timeouts(facts, &side, &report, &mut plan);
    match graph::next(&side.graph, Direction::TakeDown, &side.standing) {
        _ if ended => plan,
        Next::Trigger(those) | Next::Stuck(those) => {
            let told = report.status.items.clone();
            trigger(facts, report, told, &side, &those, plan)
        }
        Next::Failed(those) => {
            let message = standing::told(&side, &those);
            report.fails("Init", Reason::OrphanDeleteFailed, message)
        }
        Next::Wait | Next::Done => plan,
    }
}

fn progress(facts: &Facts<'_>, report: Report<'_, ExecutionStatus>) -> Plan<ExecutionStatus> {
    let (orphans, active) = standing::sides(facts);
    let mut report = report;
    let told = report.count(&[&orphans, &active]);
    let mut plan = Plan::rest();
    // A replica whose cache lagged in Init did not see them.
    plan.steps.extend(orphans.staying().map(remove).take(MAX_STEPS));
    let ended = !plan.steps.is_empty()
        | standing::timeouts(facts, &orphans, &report, &mut plan)
        | standing::timeouts(facts, &active, &report, &mut plan);
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
            plan.steps.extend((active.len() == 0).then(|| none_left(facts)));
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
            let missing = active.missing(facts.cx.object.namespace()).take(MAX_AWAITED);
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
        (Next::Trigger(those), _) => trigger(facts, report, told, &orphans, &those, plan),
        (_, Next::Trigger(those)) => trigger(facts, report, told, &active, &those, plan),
        (_, _) => report.goes_on(told, plan),
    }
}

/// Hands the job's ID to items whose turn has come.
fn trigger(
    facts: &Facts<'_>,
    report: Report<'_, ExecutionStatus>,
    told: Option<ItemCounts>,
    side: &Side<'_>,
    those: &[usize],
    mut plan: Plan<ExecutionStatus>,
) -> Plan<ExecutionStatus> {
    // Another replica may have ended this job: what seemed free then must not start now.
    plan.steps.push(Step::confirm_unchanged(facts.cx.object));
    let objects = those.iter().filter_map(|at| side.owned(*at)).take(MAX_STEPS);
    plan.steps.extend(objects.map(|owned| standing::trigger(owned, &report.job, report.now)));
    report.goes_on(told, plan)
}

fn init_delete(facts: &Facts<'_>, report: Report<'_, ExecutionStatus>) -> Plan<ExecutionStatus> {
    let without_uninstall = facts.cx.object.annotation(annotations::DELETE_WITHOUT_UNINSTALL) == Some("true");
    let mut steps = Vec::new();
    for Owned { object, .. } in facts.owned() {
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
    let message = format!("{} items are to be taken down", facts.owned().len());
    let plan = report.moves(ExecutionPhase::Deleting, Reason::Deleting, message);
    Plan { steps, ..plan }
}

fn delete(facts: &Facts<'_>, report: Report<'_, ExecutionStatus>) -> Plan<ExecutionStatus> {
    let mut report = report;
    if facts.owned().is_empty() {
        return gone(facts);
    }
    let side = Side::all_leaving(facts);
    let told = report.count(&[&side]);
    let mut plan = Plan::rest();
    // Made by a replica that lags: it goes like the others.
    let late = facts.owned().iter().filter(|owned| !owned.deleting);
    plan.steps.extend(late.map(|owned| remove(&owned.object)).take(MAX_STEPS));
    if standing::timeouts(facts, &side, &report, &mut plan) {
        return plan;
    }
    match graph::next(&side.graph, Direction::TakeDown, &side.standing) {
        Next::Done => gone(facts),
        Next::Wait => report.goes_on(told, plan),
        Next::Trigger(those) => trigger(facts, report, told, &side, &those, plan),
        Next::Failed(those) => {
            let message = standing::told(&side, &those);
            report.fails("Deleting", Reason::DeleteFailed, message)
        }
        // A circle has no end to begin at; but what is to go, goes (I5).
        Next::Stuck(those) => {
            let message =
                format!("{} depend on each other in a circle: they go all at once", side.names(&those));
            let note = Note::warning(Reason::Stuck, message).once(report.job.clone());
            trigger(facts, report, told, &side, &those, plan).note(note)
        }
    }
}

/// Nothing is left, as far as one can see; the server is asked whether that is so.
fn gone(facts: &Facts<'_>) -> Plan<ExecutionStatus> {
    Plan::step(none_left(facts))
        .then(Step::remove_finalizer(FINALIZER))
        .note(Note::normal(Reason::Uninstalled, format!("Execution {} is gone", facts.cx.object.key())))
}

/// Everything that has not finished ends here and now.
fn interrupt(facts: &Facts<'_>, report: Report<'_, ExecutionStatus>) -> Plan<ExecutionStatus> {
    let mut steps: Vec<Step> = facts
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

fn none_left(facts: &Facts<'_>) -> Step {
    Step::Confirm(Precondition::NoneLabelled {
        kind: deploy_item::KIND,
        namespace: facts.cx.object.namespace().map(str::to_owned),
        label: labels::MANAGED_BY,
        value: names::label_value(facts.cx.object.name()),
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
mod tests;
