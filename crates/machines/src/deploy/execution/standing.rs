//! How do the items of an Execution stand in its job, and which of them have taken too long?

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use pawl_api::deploy::{
    DeployItem, ExecutionStatus, PICKUP_TIMEOUT, Timeout, annotations, deploy_item, execution, labels,
    operations,
};
use pawl_api::meta::{Reason, condition};
use pawl_api::pawl::conditions::{FROZEN, TARGET_LOCKED};
use serde_json::json;

use super::family::Owned;
use super::{Facts, Report, item_status, patch_item};
use crate::deploy::graph::{Graph, Standing};
use crate::deploy::item_job::{self, Flow};
use crate::deploy::items;
use crate::deploy::job::{self, Jobs};
use crate::object::{Key, Object};
use crate::plan::{Part, Plan, Step, Wake};
use crate::time::later;
use crate::view::View;

/// How many items a message names.
const MAX_NAMED: usize = 5;

const INTERRUPTED: &str = "it was interrupted while it ran";

/// Items that go one way together, by number.
#[derive(Debug)]
pub(super) struct Side<'a> {
    pub(super) graph: Cow<'a, Graph>,
    pub(super) standing: Vec<Standing>,
    members: Vec<Option<&'a Owned>>,
    /// What the members are called where they have no object; empty when none is missing.
    names: Option<&'a items::Items>,
}

/// Orphans, and the items that are to be there.
pub(super) fn sides<'a>(facts: &'a Facts<'a>) -> (Side<'a>, Side<'a>) {
    let status = facts.cx.typed.status.as_ref();
    match planned(facts, status) {
        Some(items) => {
            let mut members: Vec<Option<&Owned>> = vec![None; items.list.len()];
            let mut orphans = Vec::new();
            for owned in facts.owned() {
                match owned.number.and_then(|at| members.get_mut(at)) {
                    Some(place) => *place = Some(owned),
                    None => orphans.push(owned),
                }
            }
            let standing = members.iter().map(|member| building(*member)).collect();
            let graph = Cow::Borrowed(&items.graph);
            let active = Side { graph, standing, members, names: Some(items) };
            (Side::leaving(facts, orphans), active)
        }
        // The spec has changed since Init: what the objects say of themselves stands until the next job.
        None => {
            let (leaving, staying): (Vec<&Owned>, Vec<&Owned>) =
                facts.owned().iter().partition(|owned| owned.deleting);
            let graph = Side::graph_of(facts, &staying);
            let mut standing: Vec<Standing> = staying.iter().map(|owned| building(Some(owned))).collect();
            let mut members: Vec<Option<&Owned>> = staying.into_iter().map(Some).collect();
            let made =
                status.and_then(|status| status.deploy_item_cache.as_ref()).map_or(0, |cache| cache.active);
            let mut graph = graph;
            if members.len() < usize::try_from(made).unwrap_or_default() {
                members.push(None);
                standing.push(Standing::Failed);
                graph = graph.with_one_more();
            }
            let active = Side { graph: Cow::Owned(graph), standing, members, names: None };
            (Side::leaving(facts, leaving), active)
        }
    }
}

/// The spec's list, if it is the one that Init wrote.
fn planned<'a>(facts: &'a Facts<'a>, status: Option<&ExecutionStatus>) -> Option<&'a items::Items> {
    let written = status?.deploy_item_cache.as_ref()?;
    facts.items().ok().filter(|items| items.hash == written.hash)
}

impl<'a> Side<'a> {
    /// Objects that are to go, in the order in which they say that they depend on each other.
    pub(super) fn leaving(facts: &Facts<'_>, members: impl IntoIterator<Item = &'a Owned>) -> Self {
        let members: Vec<&Owned> = members.into_iter().collect();
        let graph = Cow::Owned(Self::graph_of(facts, &members));
        let standing = members.iter().map(|owned| taking_down(Some(owned))).collect();
        Self { graph, standing, members: members.into_iter().map(Some).collect(), names: None }
    }

    /// All objects there are.
    pub(super) fn all_leaving(facts: &'a Facts<'a>) -> Self {
        let status = facts.cx.typed.status.as_ref();
        let strange = facts.owned().iter().any(|owned| owned.number.is_none());
        let Some(items) = planned(facts, status).filter(|_| !strange) else {
            return Self::leaving(facts, facts.owned());
        };
        let mut members: Vec<Option<&Owned>> = vec![None; items.list.len()];
        for owned in facts.owned() {
            if let Some(place) = owned.number.and_then(|at| members.get_mut(at)) {
                *place = Some(owned);
            }
        }
        let standing = members.iter().map(|member| taking_down(*member)).collect();
        Self { graph: Cow::Borrowed(&items.graph), standing, members, names: Some(items) }
    }

    fn graph_of(facts: &Facts<'_>, members: &[&Owned]) -> Graph {
        let objects: Vec<&Object> = members.iter().map(|owned| &*owned.object).collect();
        items::graph_of(facts.cx.object, &objects)
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    pub(super) fn owned(&self, at: usize) -> Option<&'a Owned> {
        self.members.get(at).copied().flatten()
    }

    pub(super) fn is_missing(&self, at: usize) -> bool {
        self.owned(at).is_none()
    }

    /// Where the objects of missing members would be.
    pub(super) fn missing(&self, namespace: Option<&str>) -> impl Iterator<Item = Key> {
        let names = self.names.map(|items| items.list.as_slice()).unwrap_or_default();
        let missing = names.iter().zip(&self.members).filter(|(_, member)| member.is_none());
        missing.map(move |(item, _)| Key::new(namespace, &item.object))
    }

    /// Objects that nobody has deleted yet.
    pub(super) fn staying(&self) -> impl Iterator<Item = &'a Arc<Object>> {
        let objects = self.members.iter().flatten().map(|owned| &owned.object);
        objects.filter(|object| !object.is_deleting())
    }

    /// The first few, by the names people gave them.
    pub(super) fn names(&self, those: &[usize]) -> String {
        let mut text = those.iter().take(MAX_NAMED).map(|at| self.name(*at)).collect::<Vec<_>>().join(", ");
        if those.len() > MAX_NAMED {
            text.push_str(&format!(" and {} more", those.len() - MAX_NAMED));
        }
        text
    }

    fn name(&self, at: usize) -> String {
        let given = self.names.and_then(|items| items.list.get(at)).map(|item| item.template.name.clone());
        let found =
            || self.owned(at).map(|owned| owned.object.label(labels::NAME).unwrap_or(owned.object.name()));
        given.or_else(|| found().map(str::to_owned)).unwrap_or_else(|| "an item".to_owned())
    }
}

/// What became of these: `2 of 10 items failed: a: message; b: message`.
pub(super) fn told(side: &Side<'_>, those: &[usize]) -> String {
    let one = |at: &usize| {
        let name = side.name(*at);
        let Some(owned) = side.owned(*at) else { return format!("{name}: its DeployItem is missing") };
        let item = owned.item();
        let status = item.as_ref().and_then(|item| item.status.as_ref());
        match status.and_then(|status| status.last_error.as_ref()) {
            Some(error) => format!("{name}: {}: {}", error.reason, error.message),
            None if owned.deleting => format!("{name}: its DeployItem is being deleted"),
            None => format!("{name}: it failed and does not say why"),
        }
    };
    let list = those.iter().take(MAX_NAMED).map(one).collect::<Vec<_>>().join("; ");
    let more = those.len().saturating_sub(MAX_NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("{} of {} items failed: {list}{more}", those.len(), side.len())
}

/// How an item stands that is to be there.
fn building(owned: Option<&Owned>) -> Standing {
    match owned.and_then(|owned| Some((owned.stands?, owned.deleting))) {
        // What is on its way out will not be installed any more in this job.
        None | Some((Standing::Waiting, true)) => Standing::Failed,
        Some((standing, _)) => standing,
    }
}

/// How an item stands that is to go.
fn taking_down(owned: Option<&Owned>) -> Standing {
    let Some(owned) = owned else { return Standing::Done };
    match owned.stands {
        // It is only about to be told that it goes; or its deployer lets it go as it is.
        _ if !owned.deleting => Standing::Running,
        None => Standing::Running,
        // Finished is not gone.
        Some(Standing::Done) => Standing::Failed,
        Some(standing) => standing,
    }
}

/// Ends the jobs of items that nobody took, that take too long, or that are interrupted one by one, and sees to it that the
/// others are watched. True if there were any: then nothing else is decided before that is written.
pub(super) fn timeouts(
    facts: &Facts<'_>,
    side: &Side<'_>,
    report: &Report<'_, ExecutionStatus>,
    plan: &mut Plan<ExecutionStatus>,
) -> bool {
    let before = plan.steps.len();
    for owned in side.members.iter().flatten().filter(|owned| owned.stands == Some(Standing::Running)) {
        let Some(item) = owned.item() else { continue };
        let Some(status) = &item.status else { continue };
        let jobs = Jobs::of(&status.job_id, &status.job_id_finished);
        // Whatever deploys it need not know how to stop: it is the job that ends.
        if let Some(step) = job::interrupt(&owned.object, jobs) {
            plan.steps.push(step);
            continue;
        }
        if job::is_interrupted(&owned.object, jobs) {
            plan.steps.extend(give_up(owned, &item, Reason::Interrupted, INTERRUPTED, report.now));
            continue;
        }
        // It waits for somebody else, or for the end of a Freeze, not for its deployer: its time begins when it may act.
        if [TARGET_LOCKED, FROZEN].iter().any(|it| condition::is_true(&status.conditions, it)) {
            continue;
        }
        let (since, limit, reason) = match (&status.last_reconcile_time, &status.job_id_generation_time) {
            (Some(picked_up), _) => {
                (picked_up.0, item.spec.timeout.unwrap_or_default(), Reason::ProgressingTimeout)
            }
            (None, Some(triggered)) => (triggered.0, Timeout::After(PICKUP_TIMEOUT), Reason::PickupTimeout),
            (None, None) => continue,
        };
        let Timeout::After(limit) = limit else { continue };
        let deadline = later(since, limit.get());
        if deadline > report.now {
            plan.wake = plan.wake.earliest(Wake::At(deadline));
            continue;
        }
        let message = if reason == Reason::PickupTimeout {
            not_picked_up(facts, owned, &item)
        } else {
            format!("it did not finish within {limit}")
        };
        plan.steps.extend(give_up(owned, &item, reason, &message, report.now));
    }
    plan.steps.len() > before
}

fn not_picked_up(facts: &Facts<'_>, owned: &Owned, item: &DeployItem) -> String {
    let why = match &item.spec.target {
        Some(target) if owned.target_missing => format!("Target {} is not there", target.name),
        _ if !facts.served.contains(&item.spec.type_.as_str()) => {
            format!("no deployer serves the type {}", item.spec.type_)
        }
        _ => "its deployer does not answer".to_owned(),
    };
    let mut message = format!("nobody picked it up within {PICKUP_TIMEOUT}: {why}");
    if owned.deleting {
        let wish = annotations::DELETE_WITHOUT_UNINSTALL;
        message.push_str(&format!("; to remove the objects alone, annotate the root {wish}=true"));
    }
    message
}

fn give_up(owned: &Owned, item: &DeployItem, reason: Reason, message: &str, now: Timestamp) -> Option<Step> {
    let mut status = item.status.clone().unwrap_or_default();
    let flow = Flow::of(&owned.object, status.phase);
    item_job::fails(&mut status, flow, reason, message, &owned.object, now);
    item_status(&owned.object, &status)
}

/// Hands the job's ID over: only to the version that was seen, so that no item gets it twice.
pub(super) fn trigger(owned: &Owned, job: &str, now: Timestamp) -> Step {
    let now = format!("{now:.0}");
    let status = json!({
        "jobID": job, "jobIDGenerationTime": now, "lastReconcileTime": null, "deployer": null,
        "transitionTimes": {"triggerTime": now, "initTime": null, "waitTime": null, "finishedTime": null},
    });
    patch_item(&owned.object, json!({"status": status}), Part::Status)
}

/// Ends what has not finished in this job; what was never started says so. `None` where nothing is left to end.
pub(super) fn interrupt(owned: &Owned, job: &str, now: Timestamp) -> Option<Step> {
    let item = owned.item()?;
    match owned.stands? {
        Standing::Done | Standing::Failed => None,
        Standing::Running => give_up(owned, &item, Reason::Interrupted, INTERRUPTED, now),
        Standing::Waiting => {
            let mut status = item.status.clone().unwrap_or_default();
            let flow = Flow::of(&owned.object, status.phase);
            status.job_id = Some(job.to_owned());
            let message = "the job was interrupted before it was started";
            item_job::fails(&mut status, flow, Reason::Interrupted, message, &owned.object, now);
            item_status(&owned.object, &status)
        }
    }
}

/// Whom a change of an item concerns: its Execution, but only if it has finished, was never started, is gone, or is to be
/// interrupted.
pub(super) fn of_the_item(changed: &Object, view: &dyn View) -> Vec<Key> {
    let owner = changed.controller().filter(|owner| owner.kind == execution::KIND.kind);
    let Some(owner) = owner else { return Vec::new() };
    let matters = match view.get(&deploy_item::KIND, &changed.key()) {
        None => true,
        // The version before is asked about too; what is now decides.
        Some(now) if now.resource_version() != changed.resource_version() => false,
        Some(now) => {
            let text = |field: &str| now.status().get(field).and_then(serde_json::Value::as_str);
            let interrupted =
                now.annotation(annotations::INTERRUPT_JOB).is_some_and(|job| text("jobID") == Some(job));
            let asked = now.annotation(annotations::OPERATION) == Some(operations::INTERRUPT);
            text("jobID") == text("jobIDFinished") || asked || interrupted
        }
    };
    if matters { vec![Key::new(changed.namespace(), &owner.name)] } else { Vec::new() }
}
