//! What is the next thing to do for a DeployItem whose type is served here?
//!
//! ```text
//! job ID ─▶ picked up (Init) ─▶ the deployer works (Progressing) ─▶ Succeeded | Failed
//! job ID, and being deleted ─▶ InitDelete ─▶ Deleting ─▶ finalizer goes | DeleteFailed
//! ```
//! This file is the contract that every deployer keeps (docs/deployers.md): when a job is picked up and when it is not,
//! what is tried again, where exports go, and how a job ends: with the phase and `jobIDFinished` in one write. What a
//! deployer of ours does in between is a function from what it sees to [`Work`].
//!
//! Items of other types are somebody else's: nothing is written to them here.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::deploy::deploy_item::{DeployerInformation, KIND};
use pawl_api::deploy::{
    DeployItem, DeployItemPhase, DeployItemStatus, FINALIZER, annotations, execution, labels, target, types,
};
use pawl_api::git::workflow::WAITS_FOR;
use pawl_api::k8s::{
    CUSTOM_RESOURCE_DEFINITION, JOB, NAMESPACE, ROLE, ROLE_BINDING, SECRET, SERVICE_ACCOUNT,
};
use pawl_api::meta::reference::NamedRef;
use pawl_api::meta::{Gate, GateName, Kind, Phase as _, Reason, condition};
use pawl_api::pawl::conditions::{FROZEN, TARGET_LOCKED};
use pawl_api::pawl::freeze::Door;
use serde_json::{Map, Value};

use super::item_job::{self, Flow};
use super::job::{self, Jobs, Parent};
use super::{container, export_secret, manifest, mock};
use crate::audit::{self, Entry, Teller};
use crate::backoff;
use crate::external::Call;
use crate::freeze::{self, Selecting, Standing};
use crate::lifecycle::{self, Lifecycle};
use crate::lock::{Busy, LEASE, LockResult, Locks, Marks, UNIT};
use crate::machine::{Description, Machine, Wakes, Watch, Write};
use crate::object::{Key, Object};
use crate::plan::{Note, Plan, Step, Wake};
use crate::view::{Context, View};

mod locking;
mod telling;

/// The wait before a failed try is repeated within a job: it doubles from here …
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// … to here, well below the ten minutes that a job has by default.
const LONGEST_RETRY: Duration = Duration::from_mins(1);

/// What Pawl's own image is called where nobody says otherwise.
pub const OWN_IMAGE: &str = concat!("pawl:", env!("CARGO_PKG_VERSION"));

/// Runs the items of our own deployers.
#[derive(Clone, Debug)]
pub struct DeployItems {
    /// Which running copy this is, as `status.deployer.identity` says.
    pub identity: Cow<'static, str>,
    /// Items here may deploy what belongs to no namespace.
    pub system_namespace: Cow<'static, str>,
    /// The image of Pawl itself, for what runs beside the images of container items.
    pub image: Cow<'static, str>,
}

impl Default for DeployItems {
    fn default() -> Self {
        Self { identity: "pawl".into(), system_namespace: "pawl-system".into(), image: OWN_IMAGE.into() }
    }
}

/// Who serves an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deployer {
    Mock,
    Manifest,
    Container,
}

impl Deployer {
    fn of(type_: &str) -> Option<Self> {
        match type_ {
            types::MOCK => Some(Self::Mock),
            types::MANIFEST => Some(Self::Manifest),
            types::CONTAINER => Some(Self::Container),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Mock => "mock",
            Self::Manifest => "manifest",
            Self::Container => "container",
        }
    }
}

/// What a deployer makes of an item whose job it has picked up.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) steps: Vec<Step>,
    pub(super) asks: Vec<Call>,
    pub(super) come: Come,
    /// What the deployer keeps for itself, as it should be.
    pub(super) provider_status: Option<Map<String, Value>>,
    /// What the item exports once it is deployed.
    pub(super) export: Option<Value>,
    pub(super) notes: Vec<Note>,
    pub(super) wake: Option<Timestamp>,
    /// What is wrong at the moment; it may pass.
    pub(super) trouble: Option<(Reason, String)>,
}

/// What it has come to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Come {
    /// It goes on.
    #[default]
    Working,
    /// Deployed; or taken down, where that was asked.
    Done(String),
    /// This try failed; the item may say how often it is repeated.
    Failed(Reason, String),
    /// It cannot succeed as it is.
    Hopeless(Reason, String),
    /// What was deployed can never be taken down: the item goes, and the loss is told (I5).
    Lost(String),
}

impl Work {
    pub(super) fn come(come: Come) -> Self {
        Self { come, ..Self::default() }
    }

    pub(super) fn trouble(reason: Reason, message: String) -> Self {
        Self { trouble: Some((reason, message)), ..Self::default() }
    }
}

/// A DeployItem and all that its next step depends on.
#[derive(Debug)]
struct Facts<'a> {
    pub(super) cx: &'a Context<'a, DeployItem>,
    deployer: Deployer,
    parent: Parent,
    /// Whether the Target it names is there; true where it names none.
    target_there: bool,
    /// The Secret with what it exports.
    export: Option<Arc<Object>>,
    /// What a manifest item looks at.
    manifest: Option<manifest::Facts>,
    /// What a container item looks at.
    container: Option<container::Facts>,
    locks: Locks,
    /// The problem with the targets in its annotation, if there is one.
    target_problem: Option<String>,
    /// The Freezes that select it, while a job has not begun to act.
    freezes: Selecting,
    /// A step that was refused for good.
    refused: Option<String>,
    identity: String,
}

impl Machine for DeployItems {
    type Kind = DeployItem;
    type Status = DeployItemStatus;

    fn description(&self) -> Description {
        Description {
            watches: vec![
                Watch::other(execution::KIND, of_the_gone_execution),
                Watch::other(target::KIND, naming_the_target),
                Watch::other(NAMESPACE, |_, _| Vec::new()).metadata_only(),
                Watch::other(CUSTOM_RESOURCE_DEFINITION, |_, _| Vec::new()),
                Watch::owned(SECRET),
                Watch::other(KIND, |_, _| Vec::new()).by_labels(&[WAITS_FOR]),
                Watch::other(LEASE, locking::of_the_lock).by_labels(&[UNIT]),
                freeze::watch(not_yet_begun),
            ]
            .into_iter()
            .chain(manifest::WATCHED.iter().map(deployed))
            .collect(),
            finalizer: Some(FINALIZER),
            writes: vec![
                Write::main(KIND, &["patch"]),
                Write::status(KIND),
                Write::finalizers(KIND),
                Write::main(SECRET, &["create", "patch"]),
                Write::main(LEASE, &["create", "delete", "patch"]),
                Write::main(JOB, &["create", "delete", "patch"]),
                // What a Job of ours needs to bring things out; `get` tells our own from somebody else's (I1).
                Write::main(SERVICE_ACCOUNT, &["create", "get"]),
                Write::main(ROLE, &["create", "get"]),
                Write::main(ROLE_BINDING, &["create", "get"]),
            ],
            ..Description::new("deploy-item", KIND)
        }
    }

    fn audit(&self, tell: &Teller<'_>, item: &DeployItem) -> Option<Vec<Entry>> {
        Some(audit::deploy::deploy_item(tell, item.status.as_ref()))
    }

    fn reconcile(&self, cx: &Context<'_, DeployItem>) -> Plan<DeployItemStatus> {
        let Some(deployer) = Deployer::of(&cx.typed.spec.type_) else { return Plan::rest() };
        match lifecycle::of(cx.object, FINALIZER) {
            Lifecycle::Add => Plan::step(Step::add_finalizer(FINALIZER)),
            Lifecycle::Run => run(&self.facts(cx, deployer)),
            Lifecycle::CleanUp => {
                let facts = self.facts(cx, deployer);
                if cx.object.annotation(annotations::DELETE_WITHOUT_UNINSTALL) == Some("true") {
                    return release(&facts, Reason::DeleteWithoutUninstall, "only the object was removed");
                }
                run(&facts)
            }
            Lifecycle::Nothing => Plan::rest(),
        }
    }
}

impl DeployItems {
    fn facts<'a>(&self, cx: &'a Context<'a, DeployItem>, deployer: Deployer) -> Facts<'a> {
        let (view, me, item) = (cx.view, cx.object, cx.typed);
        let beside = |name: &str| Key::new(me.namespace(), name);
        let wanted = item.spec.target.as_ref();
        let working = item_job::running(item.status.as_ref()).is_some();
        let facts = || manifest::observe(cx, &self.system_namespace);
        let manifest = (working && deployer == Deployer::Manifest).then(facts);
        let facts = || container::observe(view, me, item, &self.image);
        let container = (deployer == Deployer::Container).then(facts);
        let acts_on = manifest.as_ref().map(manifest::Facts::targets).unwrap_or_default();
        let (targets, target_problem) = locking::targets(me, acts_on);
        let locks = Locks::observe(view, &self.system_namespace, me, targets);
        let freezes = if working && item_job::has_not_begun(item.status.as_ref()) {
            Selecting::observe(view, me, Door::Deploy, locks.targets())
        } else {
            Selecting::default()
        };
        Facts {
            locks,
            target_problem,
            freezes,
            manifest,
            container,
            deployer,
            parent: Parent::of(view, me, &execution::KIND),
            target_there: wanted
                .is_none_or(|wanted| view.get(&target::KIND, &beside(&wanted.name)).is_some()),
            export: view.get(&SECRET, &export_key(me)),
            refused: cx.refusals.first().map(|refusal| refusal.failure.to_string()),
            identity: self.identity.clone().into_owned(),
            cx,
        }
    }
}

fn run(facts: &Facts<'_>) -> Plan<DeployItemStatus> {
    let status = facts.cx.typed.status.clone().unwrap_or_default();
    let jobs = Jobs::of(&status.job_id, &status.job_id_finished);
    if jobs.running().is_none() {
        // A job that was ended from outside may have left something running.
        let stop = facts.container.as_ref().map(container::Facts::stop).unwrap_or_default();
        if !stop.is_empty() {
            return Plan { steps: stop, ..Plan::rest() };
        }
        // Nothing of it acts any more: what it held is free.
        let mut plan = begin(facts, &status, jobs);
        plan.steps.splice(0..0, facts.locks.release());
        return plan;
    }
    let flow = Flow::of(facts.cx.object, status.phase);
    match status.phase {
        None | Some(DeployItemPhase::Succeeded | DeployItemPhase::Failed | DeployItemPhase::DeleteFailed) => {
            pick_up(facts, flow)
        }
        Some(
            DeployItemPhase::Init
            | DeployItemPhase::Progressing
            | DeployItemPhase::InitDelete
            | DeployItemPhase::Deleting,
        ) => work(facts, flow),
    }
}

/// No job runs. One that nobody else would ever start is started here, so that nothing wedges.
fn begin(facts: &Facts<'_>, status: &DeployItemStatus, jobs: Jobs<'_>) -> Plan<DeployItemStatus> {
    let removed = status.phase == Some(DeployItemPhase::DeleteFailed);
    let begin = job::begin(facts.cx.object, &facts.parent, jobs, status.observed_generation, removed);
    begin.plan(|job| {
        let mut status = status.clone();
        status.job_id = Some(job);
        status.job_id_generation_time = Some(Time(facts.cx.now));
        status.transition_times = Some(job::triggered(facts.cx.now));
        Plan::rest().status(status)
    })
}

fn pick_up(facts: &Facts<'_>, flow: Flow) -> Plan<DeployItemStatus> {
    let me = facts.cx.object;
    // What is to go does not need its Target (I5); whoever waits for it in vain is ended by the Execution.
    if flow == Flow::Install && !facts.target_there {
        return Plan::rest();
    }
    let mut status = facts.cx.typed.status.clone().unwrap_or_default();
    let deployer = DeployerInformation {
        identity: facts.identity.clone(),
        name: facts.deployer.name().to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let unchanged = status.phase == Some(DeployItemPhase::Succeeded)
        && status.observed_generation == me.meta().generation;
    if flow == Flow::Install && facts.cx.typed.spec.update_on_change_only && unchanged {
        status.last_reconcile_time = Some(Time(facts.cx.now));
        status.deployer = Some(deployer);
        let message = "nothing has changed since it was deployed";
        item_job::succeeds(&mut status, Reason::UpToDate, message, me, facts.cx.now);
        return Plan::rest().status(status);
    }
    status.target = locking::own(me).map(|target| target.to_string());
    item_job::pick_up(&mut status, flow, &deployer, me, facts.cx.now);
    let ignored = if flow == Flow::Install { telling::warns(facts, &mut status) } else { None };
    let mut plan = match (facts.frozen(), facts.turn()) {
        (Some(frozen), _) => waits_for_the_thaw(facts, status, &frozen),
        (None, LockResult::Acquired) => locked(facts, status),
        (None, LockResult::Acquire(steps)) => Plan { steps, ..locked(facts, status) },
        (None, LockResult::Reap(steps)) => Plan::steps(steps),
        (None, LockResult::Busy(busy)) => waits_for_its_turn(facts, status, *busy),
    };
    if plan.status.is_some() {
        let phase = flow.first().as_str();
        plan.notes.push(telling::moved(facts, Reason::PickedUp, format!("picked up: {phase}")));
        plan.notes.extend(ignored);
    }
    plan
}

/// All that it acts on is its own.
fn locked(facts: &Facts<'_>, mut status: DeployItemStatus) -> Plan<DeployItemStatus> {
    condition::remove(&mut status.conditions, TARGET_LOCKED);
    condition::remove(&mut status.conditions, FROZEN);
    let looked_at = locking::own(facts.cx.object).map(|target| target.to_string()).unwrap_or_default();
    let mut plan =
        Plan::rest().status(status).gate(Gate::passed(GateName::Lock, Reason::LockAcquired, looked_at));
    plan.gates.extend(facts.freezes.standing(facts.cx.now).passed());
    plan
}

/// A Freeze holds. Like the wait for a lock, it comes after the item was picked up, and the time does not count.
fn waits_for_the_thaw(
    facts: &Facts<'_>,
    mut status: DeployItemStatus,
    frozen: &Standing,
) -> Plan<DeployItemStatus> {
    condition::remove(&mut status.conditions, TARGET_LOCKED);
    condition::set(
        &mut status.conditions,
        frozen.condition(),
        facts.cx.object.meta().generation,
        facts.cx.now,
    );
    let mut plan = Plan::rest().status(status);
    plan.gates.extend(frozen.gate());
    match frozen.hold() {
        Some(hold) => hold.waits(plan),
        None => plan,
    }
}

fn waits_for_its_turn(facts: &Facts<'_>, mut status: DeployItemStatus, busy: Busy) -> Plan<DeployItemStatus> {
    // The label moves the version that a status is compared with, so it goes alone.
    if let Some(step) = busy.label_waiter(facts.cx.object) {
        return Plan::steps(busy.give_back).then(step);
    }
    condition::set(&mut status.conditions, busy.condition(), facts.cx.object.meta().generation, facts.cx.now);
    let gate = busy.gate();
    Plan { steps: busy.give_back, ..Plan::rest().status(status).gate(gate) }
}

fn work(facts: &Facts<'_>, flow: Flow) -> Plan<DeployItemStatus> {
    let mut status = facts.cx.typed.status.clone().unwrap_or_default();
    if let Some(at) = next_try(&status).filter(|at| *at > facts.cx.now) {
        return Plan::rest().wake_at(at);
    }
    if let Some(frozen) = facts.frozen() {
        return waits_for_the_thaw(facts, status, &frozen);
    }
    let thawed = condition::remove(&mut status.conditions, FROZEN);
    let take = match facts.turn() {
        LockResult::Acquired => Vec::new(),
        LockResult::Acquire(steps) => steps,
        LockResult::Reap(steps) => return Plan::steps(steps),
        LockResult::Busy(busy) => return waits_for_its_turn(facts, status, *busy),
    };
    // What it waited does not count.
    if condition::remove(&mut status.conditions, TARGET_LOCKED) || thawed {
        status.last_reconcile_time = Some(Time(facts.cx.now));
    }
    if let (Some(problem), Flow::Install) = (&facts.target_problem, flow) {
        return concludes(facts, flow, status, Come::Hopeless(Reason::TargetInvalid, problem.clone()));
    }
    let work = match (&facts.refused, facts.deployer) {
        (Some(problem), _) => Work::come(Come::Hopeless(Reason::DeployerFailed, problem.clone())),
        (None, Deployer::Mock) => mock::work(facts.cx, flow, &status),
        (None, Deployer::Manifest) => match &facts.manifest {
            Some(manifest) => manifest::work(facts.cx, manifest, flow, &status),
            None => Work::default(),
        },
        (None, Deployer::Container) => match &facts.container {
            Some(container) => container::work(facts.cx, container, flow, &status),
            None => Work::default(),
        },
    };
    let Work { mut steps, asks, come, provider_status, export, notes, wake, trouble } = work;
    if let Some(kept) = provider_status {
        status.provider_status = kept;
    }
    if let Some((reason, message)) = trouble {
        // Said once, however often it is tried (I12).
        if status.last_error.as_ref().is_none_or(|last| last.message != message) {
            item_job::went_wrong(&mut status, reason, &message, facts.cx.now);
        }
    }
    let done = matches!(come, Come::Done(_));
    if done && flow == Flow::Install {
        let key = export_key(facts.cx.object);
        let step = export.as_ref().and_then(|export| {
            export_secret::write(facts.cx.object, &key, facts.export.as_ref(), &export.to_string())
        });
        steps.extend(step);
        status.export_ref =
            export.is_some().then(|| NamedRef { name: export_key(facts.cx.object).name, namespace: None });
    }
    let mut plan = if done && flow == Flow::Install && !steps.is_empty() {
        // It is done when what it takes is seen to be there; the phase says so only then.
        Plan::rest()
    } else {
        concludes(facts, flow, status, come)
    };
    // Nothing is done before all that it acts on is its own.
    plan.steps = take.into_iter().chain(steps).chain(plan.steps).collect();
    if thawed {
        plan.gates.extend(facts.freezes.standing(facts.cx.now).passed());
    }
    plan.asks = asks;
    plan.notes.extend(notes);
    plan.wake = plan.wake.earliest(wake.map_or(Wake::OnChange, Wake::At));
    plan
}

/// What has come of the work, as the status says it.
fn concludes(
    facts: &Facts<'_>,
    flow: Flow,
    mut status: DeployItemStatus,
    come: Come,
) -> Plan<DeployItemStatus> {
    let me = facts.cx.object;
    let once = status.job_id.clone().unwrap_or_default();
    let fails = |mut status: DeployItemStatus, reason: Reason, message: &str| {
        item_job::fails(&mut status, flow, reason, message, me, facts.cx.now);
        Plan::rest().status(status).note(Note::warning(reason, message).once(once.clone()))
    };
    match come {
        Come::Working => {
            let moves = status.phase.replace(flow.working()) != Some(flow.working());
            let plan = Plan::rest().status(status);
            let phase = flow.working().as_str();
            if moves {
                plan.note(telling::moved(facts, Reason::Progressing, format!("at work: {phase}")))
            } else {
                plan
            }
        }
        Come::Done(message) if flow == Flow::Remove => release(facts, Reason::Uninstalled, &message),
        Come::Lost(message) => Plan {
            notes: vec![Note::warning(Reason::CleanupIncomplete, message)],
            ..release(facts, Reason::Uninstalled, "")
        },
        Come::Done(message) => {
            item_job::succeeds(&mut status, Reason::Succeeded, &message, me, facts.cx.now);
            Plan::rest().status(status).note(Note::normal(Reason::Succeeded, message).once(once.clone()))
        }
        Come::Failed(reason, message) => {
            let tried = status.retries.unwrap_or_default();
            if tried >= facts.cx.typed.spec.retries.unwrap_or_default() {
                return fails(status, reason, &message);
            }
            item_job::went_wrong(&mut status, reason, &message, facts.cx.now);
            status.retries = Some(tried.saturating_add(1));
            status.phase = Some(flow.working());
            let wake = next_try(&status).unwrap_or(facts.cx.now);
            Plan::rest().status(status).wake_at(wake)
        }
        Come::Hopeless(reason, message) => fails(status, reason, &message),
    }
}

/// The item goes, and then what it held is free. Were it the other way round, a crash in between would let it take
/// everything again; now whoever notices that it is gone frees what is left.
fn release(facts: &Facts<'_>, reason: Reason, message: &str) -> Plan<DeployItemStatus> {
    let mut plan = Plan::step(Step::remove_finalizer(FINALIZER)).note(Note::normal(reason, message));
    plan.steps.extend(facts.locks.release());
    plan
}

impl Facts<'_> {
    fn turn(&self) -> LockResult {
        let run = self.container.as_ref().map(container::Facts::run);
        self.locks.acquire(self.cx.object, run, &Marks::new(), self.cx.now)
    }

    /// What keeps a job from beginning. Whoever holds its targets has been through this gate.
    fn frozen(&self) -> Option<Standing> {
        let standing = self.freezes.standing(self.cx.now);
        (self.locks.held().is_empty() && standing.hold().is_some()).then_some(standing)
    }
}

/// When a failed try is repeated; `None` when none failed in this job.
fn next_try(status: &DeployItemStatus) -> Option<Timestamp> {
    let failures =
        status.retries.and_then(|retries| u32::try_from(retries).ok()).filter(|tried| *tried > 0)?;
    let failed_at = status.last_error.as_ref()?.last_update_time.as_ref()?.0;
    failed_at.checked_add(backoff::doubling(FIRST_RETRY, failures, LONGEST_RETRY)).ok()
}

/// Where an item's exports are.
fn export_key(me: &Object) -> Key {
    export_secret::key(me, "export")
}

/// What an item deployed says so in its labels.
fn deployed(kind: &Kind) -> Watch {
    let wakes = Wakes::Labels { namespace: Some(labels::DEPLOY_ITEM_NAMESPACE), name: labels::DEPLOY_ITEM };
    Watch { wakes, ..Watch::owned(kind.clone()) }
}

/// Items wait for their Execution in all things; only when it is gone they must help themselves.
fn of_the_gone_execution(changed: &Object, view: &dyn View) -> Vec<Key> {
    if view.get(&execution::KIND, &changed.key()).is_some() {
        return Vec::new();
    }
    view.owned(&KIND, changed.uid()).iter().map(|item| item.key()).collect()
}

/// Those that wait for it: a Target that changes concerns nobody else before the next job.
fn naming_the_target(target: &Object, view: &dyn View) -> Vec<Key> {
    let beside = view.list(&KIND, target.namespace());
    let waiting = beside.iter().filter(|object| {
        object.parse::<DeployItem>().is_ok_and(|item| {
            item.spec.target.as_ref().is_some_and(|wanted| wanted.name == target.name())
                && item_job::running(item.status.as_ref()).is_some()
        })
    });
    waiting.map(|object| object.key()).collect()
}

/// A Freeze concerns the items whose job has not begun to act.
fn not_yet_begun(_: &Object, view: &dyn View) -> Vec<Key> {
    let all = view.list(&KIND, None);
    let waiting = all.iter().filter(|object| {
        object.parse::<DeployItem>().is_ok_and(|item| {
            item_job::running(item.status.as_ref()).is_some() && item_job::has_not_begun(item.status.as_ref())
        })
    });
    waiting.map(|object| object.key()).collect()
}

#[cfg(test)]
mod tests;
