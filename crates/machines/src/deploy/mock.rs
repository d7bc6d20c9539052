//! A deployer that deploys nothing: for tests, simulations, measurements, and for trying out a graph.
//!
//! As in Landscaper: `phase` is where a job ends, `initialPhase` where it stays unless somebody moves it, `providerStatus`
//! and `export` are passed on. Ours: `delay` before it ends, `failTimes` tries that fail first, `failOnDelete`, `hang`.

use pawl_api::deploy::{DeployItem, DeployItemPhase, DeployItemStatus};
use pawl_api::meta::{Duration, Reason};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::deploy_item::{Come, Work};
use super::item_job::Flow;
use crate::view::Context;

/// Where the tries are counted, over all jobs.
const TRIES: &str = "tries";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Config {
    phase: Option<DeployItemPhase>,
    initial_phase: Option<DeployItemPhase>,
    provider_status: Map<String, Value>,
    export: Option<Value>,
    delay: Option<Duration>,
    fail_times: u64,
    fail_on_delete: bool,
    hang: bool,
}

pub(super) fn work(cx: &Context<'_, DeployItem>, flow: Flow, status: &DeployItemStatus) -> Work {
    let config = match Config::deserialize(Value::Object(cx.typed.spec.config.clone())) {
        Ok(config) => config,
        // There is nothing to take down that a broken configuration could hide.
        Err(_) if flow == Flow::Remove => return Work::come(Come::Done("it was never deployed".to_owned())),
        Err(error) => {
            let message = format!("spec.config: {error}");
            return Work::come(Come::Hopeless(Reason::ConfigurationError, message));
        }
    };
    if config.hang {
        return Work::default();
    }
    let since = status.last_reconcile_time.as_ref().map_or(cx.now, |time| time.0);
    let due = config.delay.and_then(|delay| since.checked_add(delay.get()).ok()).filter(|due| *due > cx.now);
    if due.is_some() {
        return Work { wake: due, ..Work::default() };
    }
    match flow {
        Flow::Remove if config.fail_on_delete => {
            Work::come(Come::Hopeless(Reason::DeleteFailed, "it was told to fail".to_owned()))
        }
        Flow::Remove => Work::come(Come::Done("it is taken down".to_owned())),
        Flow::Install => install(config, status),
    }
}

fn install(config: Config, status: &DeployItemStatus) -> Work {
    let tried = status.provider_status.get(TRIES).and_then(Value::as_u64).unwrap_or_default();
    let mut kept = config.provider_status;
    if config.fail_times > 0 {
        kept.insert(TRIES.to_owned(), tried.saturating_add(1).into());
    }
    let come = if tried < config.fail_times {
        let message = format!("it was told to fail {} times; this was the {}.", config.fail_times, tried + 1);
        Come::Failed(Reason::DeployerFailed, message)
    } else {
        match config.initial_phase.or(config.phase) {
            None | Some(DeployItemPhase::Succeeded) => Come::Done("it is deployed".to_owned()),
            Some(DeployItemPhase::Failed) => {
                Come::Hopeless(Reason::DeployerFailed, "it was told to fail".to_owned())
            }
            // It stays there until its time is up.
            Some(
                DeployItemPhase::Init
                | DeployItemPhase::Progressing
                | DeployItemPhase::InitDelete
                | DeployItemPhase::Deleting
                | DeployItemPhase::DeleteFailed,
            ) => {
                kept.remove(TRIES);
                Come::Working
            }
        }
    };
    Work { come, provider_status: Some(kept), export: config.export, ..Work::default() }
}
