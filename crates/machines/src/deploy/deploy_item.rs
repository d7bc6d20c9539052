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

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::deploy::deploy_item::{DeployerInformation, KIND};
use pawl_api::deploy::{
    DeployItem, DeployItemPhase, DeployItemStatus, EXPORT_KEY, FINALIZER, annotations, execution, labels,
    target, types,
};
use pawl_api::k8s::{CUSTOM_RESOURCE_DEFINITION, NAMESPACE, SECRET};
use pawl_api::meta::phase::Table;
use pawl_api::meta::reference::NamedRef;
use pawl_api::meta::{Kind, Reason, Target, names};
use serde_json::{Map, Value, json};

use super::item_job::{self, Flow};
use super::job::{self, Begin, Jobs, Parent};
use super::{manifest, mock};
use crate::audit::{self, Entry, Teller};
use crate::backoff;
use crate::lifecycle::{self, Lifecycle};
use crate::machine::{Depth, Description, Machine, Primary, Wakes, Watch, Write};
use crate::object::{Key, Object};
use crate::outside::Call;
use crate::plan::{Adopt, Note, Part, Plan, Step, Waiting, Wake};
use crate::view::{Input, View};

/// The wait before a failed try is repeated within a job: it doubles from here …
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// … to here, well below the ten minutes that a job has by default.
const LONGEST_RETRY: Duration = Duration::from_mins(1);

/// Runs the items of our own deployers.
#[derive(Clone, Debug)]
pub struct DeployItems {
    /// Which running copy this is, as `status.deployer.identity` says.
    pub identity: Cow<'static, str>,
    /// Items here may deploy what belongs to no namespace.
    pub system_namespace: Cow<'static, str>,
}

impl Default for DeployItems {
    fn default() -> Self {
        Self { identity: "pawl".into(), system_namespace: "pawl-system".into() }
    }
}

/// Who serves an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deployer {
    Mock,
    Manifest,
}

impl Deployer {
    fn of(type_: &str) -> Option<Self> {
        match type_ {
            types::MOCK => Some(Self::Mock),
            types::MANIFEST => Some(Self::Manifest),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Mock => "mock",
            Self::Manifest => "manifest",
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
    pub(super) waiting: Vec<Waiting>,
    pub(super) wake: Option<Timestamp>,
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
}

impl Work {
    pub(super) fn come(come: Come) -> Self {
        Self { come, ..Self::default() }
    }
}

/// A DeployItem and all that its next step depends on.
#[derive(Debug)]
pub struct Observed {
    pub(super) me: Arc<Object>,
    pub(super) item: Arc<DeployItem>,
    deployer: Option<Deployer>,
    parent: Parent,
    /// Whether the Target it names is there; true where it names none.
    target_there: bool,
    /// The Secret with what it exports.
    export: Option<Arc<Object>>,
    /// What a manifest item looks at.
    manifest: Option<manifest::Facts>,
    /// A step that was refused for good.
    refused: Option<String>,
    identity: String,
}

impl Machine for DeployItems {
    type Kind = DeployItem;
    type Observed = Observed;
    type Status = DeployItemStatus;

    fn description(&self) -> Description {
        Description {
            name: "deploy-item",
            primary: Primary::One(KIND),
            depth: Depth::Full,
            watches: vec![
                Watch::other(execution::KIND, of_the_gone_execution),
                Watch::other(target::KIND, naming_the_target),
                Watch::other(NAMESPACE, |_, _| Vec::new()).metadata_only(),
                Watch::other(CUSTOM_RESOURCE_DEFINITION, |_, _| Vec::new()),
                Watch::owned(SECRET),
            ]
            .into_iter()
            .chain(manifest::WATCHED.iter().map(deployed))
            .collect(),
            finalizer: Some(FINALIZER),
            phases: Some(Table::of::<DeployItemPhase>(KIND, ["status", "phase"])),
            writes: vec![
                Write::main(KIND, &["patch"]),
                Write::status(KIND),
                Write::finalizers(KIND),
                Write::main(SECRET, &["create", "patch"]),
            ],
        }
    }

    fn audit(&self, tell: &Teller<'_>, item: &DeployItem) -> Option<Vec<Entry>> {
        Some(audit::deploy::deploy_item(tell, item.status.as_ref()))
    }

    fn observe(&self, input: &Input<'_>, item: &Arc<DeployItem>) -> Observed {
        let (view, me) = (input.view, Arc::clone(input.me));
        let beside = |name: &str| Key::new(me.namespace(), name);
        let wanted = item.spec.target.as_ref();
        let deployer = Deployer::of(&item.spec.type_);
        let facts = || manifest::observe(view, &me, item, &self.system_namespace);
        Observed {
            manifest: (deployer == Some(Deployer::Manifest)).then(facts),
            deployer,
            parent: Parent::of(view, &me, &execution::KIND),
            target_there: wanted
                .is_none_or(|wanted| view.get(&target::KIND, &beside(&wanted.name)).is_some()),
            export: view.get(&SECRET, &export_key(&me)),
            refused: input.refusals.first().map(|refusal| refusal.failure.to_string()),
            identity: self.identity.clone().into_owned(),
            item: Arc::clone(item),
            me,
        }
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Plan<DeployItemStatus> {
        let Some(deployer) = observed.deployer else { return Plan::rest() };
        match lifecycle::of(&observed.me, FINALIZER) {
            Lifecycle::Add => Plan::step(Step::AddFinalizer(FINALIZER.to_owned())),
            Lifecycle::Run => run(observed, deployer, now),
            Lifecycle::CleanUp => {
                if observed.me.annotation(annotations::DELETE_WITHOUT_UNINSTALL) == Some("true") {
                    return release(Reason::DeleteWithoutUninstall, "only the object was removed");
                }
                run(observed, deployer, now)
            }
            Lifecycle::Nothing => Plan::rest(),
        }
    }
}

fn run(observed: &Observed, deployer: Deployer, now: Timestamp) -> Plan<DeployItemStatus> {
    let status = observed.item.status.clone().unwrap_or_default();
    let jobs = Jobs::of(&status.job_id, &status.job_id_finished);
    if jobs.running().is_none() {
        return begin(observed, &status, jobs, now);
    }
    let flow = Flow::of(&observed.me, status.phase);
    match status.phase {
        None | Some(DeployItemPhase::Succeeded | DeployItemPhase::Failed | DeployItemPhase::DeleteFailed) => {
            pick_up(observed, deployer, flow, now)
        }
        Some(
            DeployItemPhase::Init
            | DeployItemPhase::Progressing
            | DeployItemPhase::InitDelete
            | DeployItemPhase::Deleting,
        ) => work(observed, deployer, flow, now),
    }
}

/// No job runs. One that nobody else would ever start is started here, so that nothing wedges.
fn begin(
    observed: &Observed,
    status: &DeployItemStatus,
    jobs: Jobs<'_>,
    now: Timestamp,
) -> Plan<DeployItemStatus> {
    let removed = status.phase == Some(DeployItemPhase::DeleteFailed);
    match job::begin(&observed.me, &observed.parent, jobs, status.observed_generation, removed) {
        Begin::Rest => Plan::rest(),
        Begin::Steps(steps) => Plan { steps, ..Plan::rest() },
        Begin::Refuse(step, note) => Plan::step(step).note(note),
        Begin::Job(job, steps) => {
            let mut status = status.clone();
            status.job_id = Some(job);
            status.job_id_generation_time = Some(Time(now));
            status.transition_times = Some(job::triggered(now));
            Plan { steps, ..Plan::rest().status(status) }
        }
    }
}

fn pick_up(observed: &Observed, deployer: Deployer, flow: Flow, now: Timestamp) -> Plan<DeployItemStatus> {
    let me = &observed.me;
    // What is to go does not need its Target (I5); whoever waits for it in vain is ended by the Execution.
    if flow == Flow::Install && !observed.target_there {
        let name = observed.item.spec.target.as_ref().map(|target| target.name.as_str()).unwrap_or_default();
        let key = Key::new(me.namespace(), name);
        let until = "it is created".to_owned();
        return Plan::rest().waiting(Waiting::Object { kind: target::KIND, key, until });
    }
    let mut status = observed.item.status.clone().unwrap_or_default();
    let deployer = DeployerInformation {
        identity: observed.identity.clone(),
        name: deployer.name().to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let unchanged = status.phase == Some(DeployItemPhase::Succeeded)
        && status.observed_generation == me.meta().generation;
    if flow == Flow::Install && observed.item.spec.update_on_change_only && unchanged {
        status.last_reconcile_time = Some(Time(now));
        status.deployer = Some(deployer);
        let message = "nothing has changed since it was deployed";
        item_job::succeeds(&mut status, Reason::UpToDate, message, me, now);
        return Plan::rest().status(status);
    }
    let (execution, name) = (me.label(labels::MANAGED_BY), me.label(labels::NAME));
    let target = Target::item(
        me.namespace().unwrap_or_default(),
        execution.unwrap_or("none"),
        name.unwrap_or(me.name()),
    );
    status.target = target.ok().map(|target| target.to_string());
    item_job::pick_up(&mut status, flow, &deployer, me, now);
    Plan::rest().status(status)
}

fn work(observed: &Observed, deployer: Deployer, flow: Flow, now: Timestamp) -> Plan<DeployItemStatus> {
    let mut status = observed.item.status.clone().unwrap_or_default();
    if let Some(at) = next_try(&status).filter(|at| *at > now) {
        let why = "the last try failed".to_owned();
        return Plan::rest().waiting(Waiting::Time { at, why }).wake_at(at);
    }
    let work = match (&observed.refused, deployer) {
        (Some(problem), _) => Work::come(Come::Hopeless(Reason::DeployerFailed, problem.clone())),
        (None, Deployer::Mock) => mock::work(observed, flow, &status, now),
        (None, Deployer::Manifest) => match &observed.manifest {
            Some(facts) => manifest::work(observed, facts, flow, &status),
            None => Work::default(),
        },
    };
    let Work { mut steps, asks, come, provider_status, export, waiting, wake } = work;
    if let Some(kept) = provider_status {
        status.provider_status = kept;
    }
    let done = matches!(come, Come::Done(_));
    if done && flow == Flow::Install {
        if let Some(step) = export.as_ref().and_then(|export| write_export(observed, export)) {
            steps.push(step);
        }
        status.export_ref =
            export.is_some().then(|| NamedRef { name: export_key(&observed.me).name, namespace: None });
    }
    let mut plan = if done && flow == Flow::Install && !steps.is_empty() {
        // It is done when what it takes is seen to be there; the phase says so only then.
        Plan::rest()
    } else {
        concludes(observed, flow, status, come, now)
    };
    plan.steps = steps.into_iter().chain(plan.steps).collect();
    (plan.asks, plan.waiting) = (asks, waiting);
    plan.wake = plan.wake.earliest(wake.map_or(Wake::OnChange, Wake::At));
    plan
}

/// What has come of the work, as the status says it.
fn concludes(
    observed: &Observed,
    flow: Flow,
    mut status: DeployItemStatus,
    come: Come,
    now: Timestamp,
) -> Plan<DeployItemStatus> {
    let me = &observed.me;
    let once = status.job_id.clone().unwrap_or_default();
    let fails = |mut status: DeployItemStatus, reason: Reason, message: &str| {
        item_job::fails(&mut status, flow, reason, message, me, now);
        Plan::rest().status(status).note(Note::warning(reason, message).once(once.clone()))
    };
    match come {
        Come::Working => {
            status.phase = Some(flow.working());
            Plan::rest().status(status)
        }
        Come::Done(message) if flow == Flow::Remove => release(Reason::Uninstalled, &message),
        Come::Done(message) => {
            item_job::succeeds(&mut status, Reason::Succeeded, &message, me, now);
            Plan::rest().status(status).note(Note::normal(Reason::Succeeded, message).once(once.clone()))
        }
        Come::Failed(reason, message) => {
            let tried = status.retries.unwrap_or_default();
            if tried >= observed.item.spec.retries.unwrap_or_default() {
                return fails(status, reason, &message);
            }
            item_job::went_wrong(&mut status, reason, &message, now);
            status.retries = Some(tried.saturating_add(1));
            status.phase = Some(flow.working());
            let wake = next_try(&status).unwrap_or(now);
            Plan::rest().status(status).wake_at(wake)
        }
        Come::Hopeless(reason, message) => fails(status, reason, &message),
    }
}

fn release(reason: Reason, message: &str) -> Plan<DeployItemStatus> {
    Plan::step(Step::RemoveFinalizer(FINALIZER.to_owned())).note(Note::normal(reason, message))
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
    let name = names::child(&format!("{}-export", me.name()), &[me.uid()], 8, names::MAX_SUBDOMAIN);
    Key::new(me.namespace(), &name)
}

/// The export as a Secret (I6); `None` when it says so already.
fn write_export(observed: &Observed, export: &Value) -> Option<Step> {
    let key = export_key(&observed.me);
    let data = json!({EXPORT_KEY: STANDARD.encode(export.to_string())});
    match &observed.export {
        None => Some(Step::Create {
            kind: SECRET,
            manifest: json!({
                "metadata": {"name": key.name, "namespace": key.namespace,
                    "ownerReferences": [observed.me.controller_reference()]},
                "type": "Opaque", "data": data,
            }),
            adopt: Adopt::ControlledBy(observed.me.uid().to_owned()),
        }),
        Some(secret) if secret.raw().get("data") == Some(&data) => None,
        Some(secret) => Some(Step::Patch {
            target: secret.reference(),
            resource_version: Some(secret.resource_version().to_owned()),
            patch: json!({"data": data}),
            part: Part::Main,
        }),
    }
}

/// What an item deployed says so in its labels.
fn deployed(kind: &Kind) -> Watch {
    let wakes = Wakes::Labels { namespace: Some(labels::DEPLOY_ITEM_NAMESPACE), name: labels::DEPLOY_ITEM };
    Watch { kind: kind.clone(), depth: Depth::Full, wakes, labels: &[] }
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

#[cfg(test)]
mod tests;
