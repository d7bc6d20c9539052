//! The deploy door: from an Installation to what runs on a cluster.

pub mod deploy_item;
pub mod execution;
pub mod graph;
pub mod item_job;
pub mod items;
pub mod job;
mod json_path;
mod manifest;
mod mock;
#[cfg(test)]
mod testing;

use crate::machine::AnyMachine;

/// The machines of this door: they run against any Kubernetes.
pub fn machines() -> Vec<AnyMachine> {
    vec![
        AnyMachine::new(execution::Executions::default()),
        AnyMachine::new(deploy_item::DeployItems::default()),
    ]
}
