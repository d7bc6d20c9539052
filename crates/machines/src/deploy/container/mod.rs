//! What is to be done for an item that is an image to be run?
//!
//! ```text
//! account, Secrets, Job (held) ─▶ its UID is recorded ─▶ it starts ─▶ it ends ─▶ what it brought out
//! ```
//! There is one Job per job and try, whose name follows from both; [`crate::held_run`] runs it once (I1). A removal is the
//! same with `OPERATION=DELETE`.

mod manifests;
pub mod state;

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use pawl_api::deploy::{DeployItem, DeployItemStatus, target};
use pawl_api::k8s::{JOB, POD, SECRET};
use pawl_api::meta::Reason;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use self::manifests::out;
use self::manifests::{Config, MAIN};
use super::deploy_item::{Come, Work};
use super::item_job::Flow;
use crate::held_run::{self, HeldRun, RunState};
use crate::object::{Key, Object, Reference};
use crate::plan::{Adopt, Note, Step};
use crate::view::{Context, View};
use crate::yaml;

/// What an item of this deployer depends on.
#[derive(Debug)]
pub(super) struct Facts {
    config: Result<Config, String>,
    /// The Job of this try.
    job: HeldRun,
    /// All Jobs of the item.
    all: Vec<Arc<Object>>,
    /// The Pods of this try's Job.
    pods: Vec<Arc<Object>>,
    input: Option<Arc<Object>>,
    output: Option<Arc<Object>>,
    target: Option<Arc<Object>>,
    /// The image of Pawl itself.
    image: String,
}

/// What this deployer keeps for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Kept {
    /// The Job that was made last.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<Made>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Made {
    name: String,
    uid: String,
}

impl Kept {
    fn of(status: &DeployItemStatus) -> Self {
        Self::deserialize(Value::Object(status.provider_status.clone())).unwrap_or_default()
    }

    fn written(&self) -> Option<Map<String, Value>> {
        serde_json::to_value(self).ok()?.as_object().cloned()
    }
}

/// Reads what the item depends on.
pub(super) fn observe(view: &dyn View, me: &Object, item: &DeployItem, image: &str) -> Facts {
    let config = Config::deserialize(Value::Object(item.spec.config.clone()))
        .map_err(|error| error.to_string())
        .and_then(|config| match config.image.trim() {
            "" => Err("image is missing".to_owned()),
            _ => Ok(config),
        });
    let status = item.status.clone().unwrap_or_default();
    let tried = status.retries.unwrap_or_default();
    let key = manifests::job_key(me, status.job_id.as_deref().unwrap_or_default(), tried);
    let found = view.get(&JOB, &key);
    let recorded = Kept::of(&status).job.filter(|made| made.name == key.name).map(|made| made.uid);
    let owner = Adopt::ControlledBy(me.uid().to_owned());
    let beside = |name: &str| Key::new(me.namespace(), name);
    let named = item.spec.target.as_ref();
    Facts {
        config,
        pods: found.as_ref().map(|job| view.owned(&POD, job.uid())).unwrap_or_default(),
        job: HeldRun::new(JOB, key, owner, found, recorded),
        all: view.owned(&JOB, me.uid()),
        input: view.get(&SECRET, &manifests::in_key(me)),
        output: view.get(&SECRET, &manifests::out_key(me)),
        target: named.and_then(|named| view.get(&target::KIND, &beside(&named.name))),
        image: image.to_owned(),
    }
}

impl Facts {
    /// The run that acts for the item.
    pub(super) fn run(&self) -> Reference {
        self.job.current()
    }

    /// Stops what still runs although its job is over; empty once nothing does.
    pub(super) fn stop(&self) -> Vec<Step> {
        self.all.iter().filter(|job| !held_run::is_finished(job)).map(|job| held_run::delete(job)).collect()
    }
}

/// What has come of an item whose job was picked up.
pub(super) fn work(
    cx: &Context<'_, DeployItem>,
    facts: &Facts,
    flow: Flow,
    status: &DeployItemStatus,
) -> Work {
    let kept = Kept::of(status);
    let config = match &facts.config {
        Ok(config) => config,
        Err(_) if flow == Flow::Remove && kept.job.is_none() => {
            return Work::come(Come::Done("it was never deployed".to_owned()));
        }
        Err(problem) => {
            let message = format!("spec.config: {problem}");
            return Work::come(Come::Hopeless(Reason::ConfigurationError, message));
        }
    };
    if flow == Flow::Remove && kept.job.is_none() && facts.all.is_empty() {
        return Work::come(Come::Done("it was never deployed".to_owned()));
    }
    // Those of other jobs and tries go first: two would write into the same state.
    let key = facts.job.reference().key;
    let others: Vec<&Arc<Object>> = facts.all.iter().filter(|job| job.key() != key).collect();
    if !others.is_empty() {
        let staying = others.into_iter().filter(|job| !job.is_deleting());
        return Work { steps: staying.map(|job| held_run::delete(job)).collect(), ..Work::default() };
    }
    match facts.job.state() {
        RunState::Absent => start(cx, facts, config, flow, status),
        RunState::Foreign(job) => {
            let message = format!("Job {key} exists and belongs to somebody else");
            Work {
                steps: vec![Step::confirm_unchanged(job)],
                ..Work::come(Come::Hopeless(Reason::OwnershipMismatch, message))
            }
        }
        RunState::Vanished => {
            let message = format!("Job {key} was gone before its result was recorded");
            Work {
                steps: vec![facts.job.confirm_gone()],
                ..Work::come(Come::Failed(Reason::JobVanished, message))
            }
        }
        RunState::Late(job) => Work { steps: HeldRun::delete_late(job).into(), ..Work::default() },
        RunState::Unrecorded(job) => {
            let made = Made { name: job.name().to_owned(), uid: job.uid().to_owned() };
            Work { provider_status: Kept { job: Some(made) }.written(), ..Work::default() }
        }
        RunState::Held(job) => Work { steps: held_run::start(job).into_iter().collect(), ..Work::default() },
        RunState::Started(job) => follow(facts, job, status),
    }
}

/// Makes what the Job needs, then the Job.
fn start(
    cx: &Context<'_, DeployItem>,
    facts: &Facts,
    config: &Config,
    flow: Flow,
    status: &DeployItemStatus,
) -> Work {
    let me = cx.object;
    let data = manifests::input(config, facts.target.as_deref());
    let mut steps = manifests::surroundings(me);
    match &facts.input {
        None => steps.push(manifests::make_input(me, &data)),
        Some(secret) if holds(secret, &data) => {}
        Some(secret) => {
            let encoded: Map<String, Value> = data
                .as_object()
                .into_iter()
                .flatten()
                .map(|(key, value)| (key.clone(), STANDARD.encode(value.as_str().unwrap_or_default()).into()))
                .collect();
            let gone = secret.raw().get("data").and_then(Value::as_object).into_iter().flatten();
            let gone = gone
                .filter(|(key, _)| !encoded.contains_key(*key))
                .map(|(key, _)| (key.clone(), Value::Null));
            let patch: Map<String, Value> = gone.chain(encoded.clone()).collect();
            steps.push(Step::patch_unchanged(secret, json!({"data": patch})));
        }
    }
    let job = status.job_id.as_deref().unwrap_or_default();
    let key = facts.job.reference().key;
    let manifest = manifests::job(me, &key, job, flow, config, &facts.image, facts.target.as_deref());
    steps.push(facts.job.create(manifest));
    let ignored = [("blueprint", &config.blueprint), ("componentDescriptor", &config.component_descriptor)];
    let notes = ignored.into_iter().filter(|(_, value)| !value.is_null()).map(|(field, _)| {
        let message =
            format!("spec.config.{field} is ignored: there is no component here that it could name");
        Note::warning(Reason::NotApplicable, message)
    });
    Work { steps, notes: notes.collect(), ..Work::default() }
}

/// Whether a Secret holds exactly this.
fn holds(secret: &Object, data: &Value) -> bool {
    let there: BTreeMap<String, String> = decoded(secret);
    let wanted = data.as_object().into_iter().flatten();
    let wanted: BTreeMap<String, String> =
        wanted.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect();
    there == wanted
}

fn decoded(secret: &Object) -> BTreeMap<String, String> {
    let data = secret.raw().get("data").and_then(Value::as_object).into_iter().flatten();
    let text = data.filter_map(|(key, value)| {
        let bytes = STANDARD.decode(value.as_str()?).ok()?;
        Some((key.clone(), String::from_utf8(bytes).ok()?))
    });
    text.collect()
}

/// A Job that was let go.
fn follow(facts: &Facts, object: &Arc<Object>, status: &DeployItemStatus) -> Work {
    let Ok(job) = object.parse::<Job>() else { return Work::default() };
    let conditions = job.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let ended = conditions
        .iter()
        .find(|one| one.status == "True" && (one.type_ == "Complete" || one.type_ == "Failed"));
    let Some(ended) = ended else { return Work::default() };
    if ended.type_ == "Failed" {
        let why = exit(&facts.pods)
            .or_else(|| ended.message.clone())
            .unwrap_or_else(|| "the Job failed".to_owned());
        return Work::come(Come::Failed(Reason::JobFailed, why));
    }
    let Some(output) = &facts.output else {
        let message = format!("Secret {} with what it brought out is gone", object.key());
        return Work::come(Come::Failed(Reason::ExportMissing, message));
    };
    let brought = decoded(output);
    let text = |key: &str| brought.get(key).map(String::as_str).filter(|text| !text.is_empty());
    // A cache may show the Job's end before what came out of it: the server is asked before that is believed.
    let still = Step::confirm_unchanged(output);
    let failed = |message: String| Work {
        steps: vec![still.clone()],
        ..Work::come(Come::Failed(Reason::ExportMissing, message))
    };
    if text(out::JOB) != status.job_id.as_deref() {
        return failed("it ended, but what it left was not brought out of its Pod".to_owned());
    }
    if let Some(problem) = text(out::ERROR) {
        return failed(format!("what it left cannot be kept: {problem}"));
    }
    let export = match text(out::EXPORTS).map(yaml::read) {
        None => None,
        Some(Ok(Value::Null)) => None,
        Some(Ok(export)) => Some(export),
        Some(Err(problem)) => return failed(format!("its exports are no YAML: line {}", problem.line)),
    };
    Work { export, ..Work::come(Come::Done("the image has run".to_owned())) }
}

/// How the image ended, as its Pod says it.
fn exit(pods: &[Arc<Object>]) -> Option<String> {
    pods.iter().rev().find_map(|pod| {
        let status = pod.parse::<Pod>().ok()?.status.clone()?;
        let containers = status.container_statuses.into_iter().flatten();
        let inits = status.init_container_statuses.into_iter().flatten();
        containers.chain(inits).find_map(|container| {
            let ended = container.state?.terminated.filter(|ended| ended.exit_code != 0)?;
            let whose = if container.name == MAIN { "the image".to_owned() } else { container.name };
            let reason = ended.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
            Some(format!(
                "{whose} exited with {}{reason}; see the log of Pod {}",
                ended.exit_code,
                pod.name()
            ))
        })
    })
}

#[cfg(test)]
mod tests;
