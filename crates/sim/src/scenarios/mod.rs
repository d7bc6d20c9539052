//! Every scenario, by name.

mod actions;
mod deploy;
mod garbage;
mod git;
mod items;
mod jobs;
mod remedy;
mod tekton;
mod workflows;
mod workloads;

use pawl_api::k8s::NAMESPACE;
use pawl_api::pawl::SYSTEM_NAMESPACE;
use serde_json::json;

use crate::scenario::{Deed, Scenario};

/// All of them, in the order in which `pawl-dev sim` runs them.
pub fn all() -> Vec<Scenario> {
    [
        garbage::all(),
        jobs::all(),
        workflows::all(),
        workloads::all(),
        git::all(),
        deploy::all(),
        items::all(),
        remedy::all(),
        actions::all(),
        tekton::all(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Where the locks are: without it no unit of any door ever acts.
fn home() -> Deed {
    Deed::create(NAMESPACE, json!({"metadata": {"name": SYSTEM_NAMESPACE}}))
}

pub fn find(name: &str) -> Option<Scenario> {
    all().into_iter().find(|scenario| scenario.name == name)
}
