//! The deploy door: Installation → Execution → DeployItem.

pub mod blueprint;
pub(crate) mod cron;
pub mod deploy_item;
pub mod execution;
mod export_secret;
pub mod graph;
pub mod installation;
pub mod item_job;
pub mod items;
pub mod job;
mod json_path;
mod manifest;
mod mock;
mod report;
#[cfg(test)]
mod testing;

use crate::machine::AnyMachine;

/// The machines of this door: they run against any Kubernetes.
pub fn machines(system_namespace: &str) -> Vec<AnyMachine> {
    let items = deploy_item::DeployItems {
        system_namespace: system_namespace.to_owned().into(),
        ..deploy_item::DeployItems::default()
    };
    vec![
        AnyMachine::new(installation::Installations::default()),
        AnyMachine::new(execution::Executions::default()),
        AnyMachine::new(items),
    ]
}
