//! What is to be done for an item that is an image to be run?
//!
//! ```text
//! account, Secrets, Job (made, not started) ─▶ its UID is written down ─▶ it is let go ─▶ it ends ─▶ what it brought out
//! ```
//! There is one Job per job and try, whose name follows from both (I1). A process that stalls between deciding and making
//! starts nothing: what it makes too late is never let go, and is removed. A removal is the same with `OPERATION=DELETE`.

mod manifests;
pub mod state;

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use pawl_api::deploy::{DeployItem, DeployItemStatus, target};
use pawl_api::git::workflow::HELD;
use pawl_api::k8s::{JOB, POD, SECRET};
use pawl_api::meta::Reason;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use self::manifests::out;
use self::manifests::{Config, MAIN};
use super::deploy_item::{Come, Observed, Work};
use super::item_job::Flow;
use crate::cluster::job::followed::is_finished;
use crate::git::job_template;
use crate::object::{Key, Object, Reference};
use crate::plan::{Note, Part, Propagation, Step, Waiting};
use crate::view::View;
use crate::yaml;

/// What an item of this deployer depends on.
#[derive(Debug)]
pub(super) struct Facts {
    config: Result<Config, String>,
    /// The Job of this try, whoever made it.
    job: Option<Arc<Object>>,
    /// All Jobs of the item.
    all: Vec<Arc<Object>>,
    /// The Pods of this try's Job.
    pods: Vec<Arc<Object>>,
    input: Option<Arc<Object>>,
    output: Option<Arc<Object>>,
    target: Option<Arc<Object>>,
    /// The image of Pawl itself.
    image: String,
    key: Key,
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
    let job = view.get(&JOB, &key);
    let beside = |name: &str| Key::new(me.namespace(), name);
    let named = item.spec.target.as_ref();
    Facts {
        config,
        pods: job.as_ref().map(|job| view.owned(&POD, job.uid())).unwrap_or_default(),
        job,
        all: view.owned(&JOB, me.uid()),
        input: view.get(&SECRET, &manifests::in_key(me)),
        output: view.get(&SECRET, &manifests::out_key(me)),
        target: named.and_then(|named| view.get(&target::KIND, &beside(&named.name))),
        image: image.to_owned(),
        key,
    }
}

impl Facts {
    /// The run that acts for the item.
    pub(super) fn run(&self) -> Reference {
        let uid = self.job.as_ref().map(|job| job.uid().to_owned()).unwrap_or_default();
        Reference { kind: JOB, key: self.key.clone(), uid }
    }

    /// Stops what still runs although its job is over; empty once nothing does.
    pub(super) fn stop(&self) -> Vec<Step> {
        self.all.iter().filter(|job| !is_over(job)).map(stop).collect()
    }
}

/// What has come of an item whose job was picked up.
pub(super) fn work(observed: &Observed, facts: &Facts, flow: Flow, status: &DeployItemStatus) -> Work {
    let me = &observed.me;
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
    let others: Vec<&Arc<Object>> = facts.all.iter().filter(|job| job.key() != facts.key).collect();
    if !others.is_empty() {
        return Work {
            steps: others.into_iter().filter(|job| !job.is_deleting()).map(stop).collect(),
            ..Work::default()
        };
    }
    let recorded = kept.job.as_ref().filter(|made| made.name == facts.key.name);
    match (&facts.job, recorded) {
        (Some(job), _) if job.controller().is_none_or(|owner| owner.uid != me.uid()) => {
            let message = format!("Job {} exists and belongs to somebody else", facts.key);
            Work::come(Come::Hopeless(Reason::OwnershipMismatch, message))
        }
        (Some(job), Some(made)) if made.uid != job.uid() => match job.annotation(HELD) {
            // Made too late by somebody who stalled: it never ran.
            Some(_) => Work { steps: vec![stop(job)], ..Work::default() },
            None => vanished(&facts.key, &made.uid),
        },
        (Some(job), None) => {
            let made = Made { name: job.name().to_owned(), uid: job.uid().to_owned() };
            Work { provider_status: Kept { job: Some(made) }.written(), ..Work::default() }
        }
        (Some(job), Some(_)) => match job_template::release(job) {
            Some(patch) => {
                let go =
                    Step::Patch { target: job.reference(), resource_version: None, patch, part: Part::Main };
                Work { steps: vec![go], ..Work::default() }
            }
            None => follow(facts, job, status),
        },
        (None, Some(made)) => vanished(&facts.key, &made.uid),
        (None, None) => start(observed, facts, config, flow, status),
    }
}

/// Makes what the Job needs, then the Job.
fn start(observed: &Observed, facts: &Facts, config: &Config, flow: Flow, status: &DeployItemStatus) -> Work {
    let me = &observed.me;
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
            steps.push(Step::Patch {
                target: secret.reference(),
                resource_version: Some(secret.resource_version().to_owned()),
                patch: json!({"data": patch}),
                part: Part::Main,
            });
        }
    }
    let job = status.job_id.as_deref().unwrap_or_default();
    steps.push(manifests::job(me, &facts.key, job, flow, config, &facts.image, facts.target.as_deref()));
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
    let Some(ended) = ended else {
        let until = "it has ended".to_owned();
        let waiting = vec![Waiting::Object { kind: JOB, key: object.key(), until }];
        return Work { waiting, ..Work::default() };
    };
    if ended.type_ == "Failed" {
        let why = exit(&facts.pods)
            .or_else(|| ended.message.clone())
            .unwrap_or_else(|| "the Job failed".to_owned());
        return Work::come(Come::Failed(Reason::JobFailed, why));
    }
    let Some(output) = &facts.output else {
        let message = format!("Secret {} with what it brought out is gone", facts.key);
        return Work::come(Come::Failed(Reason::ExportMissing, message));
    };
    let brought = decoded(output);
    let text = |key: &str| brought.get(key).map(String::as_str).filter(|text| !text.is_empty());
    // A cache may show the Job's end before what came out of it: the server is asked before that is believed.
    let still = Step::ConfirmUnchanged {
        target: output.reference(),
        resource_version: output.resource_version().to_owned(),
    };
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

fn vanished(job: &Key, uid: &str) -> Work {
    let gone = Reference { kind: JOB, key: job.clone(), uid: uid.to_owned() };
    let message = format!("Job {job} was gone before its result was recorded");
    Work { steps: vec![Step::ConfirmGone(gone)], ..Work::come(Come::Failed(Reason::JobVanished, message)) }
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

fn is_over(job: &Arc<Object>) -> bool {
    job.parse::<Job>().is_ok_and(|job| job.status.as_ref().is_some_and(is_finished))
}

fn stop(job: &Arc<Object>) -> Step {
    Step::Delete {
        target: job.reference(),
        resource_version: None,
        propagation: Propagation::Foreground,
        only_if_gone: vec![],
    }
}

#[cfg(test)]
mod tests;
