//! Every scenario, by name.

#![expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]

mod actions;
mod deploy;
pub(crate) mod expect;
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
use serde_json::{Value, json};

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

/// A manifest with another laid over it: objects are merged, everything else is replaced.
fn merged(mut manifest: Value, over: Value) -> Value {
    merge(&mut manifest, over);
    manifest
}

fn merge(into: &mut Value, over: Value) {
    match (into, over) {
        (Value::Object(into), Value::Object(over)) => {
            for (key, value) in over {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, over) => *into = over,
    }
}

pub fn find(name: &str) -> Option<Scenario> {
    all().into_iter().find(|scenario| scenario.name == name)
}
