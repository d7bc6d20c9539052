//! The deploy door: Installation → Execution → DeployItem.

pub mod blueprint;
mod config_keys;
pub mod container;
pub(crate) mod cron;
pub mod deploy_item;
pub mod execution;
pub mod explain;
mod export_secret;
pub mod graph;
pub mod installation;
pub mod item_job;
pub mod items;
pub mod job;
mod json_path;
mod manifest;
mod mock;
pub(crate) mod report;
pub mod target;
pub mod target_config;
#[cfg(test)]
mod testing;
pub mod tree;

use crate::machine::AnyMachine;

/// The machines of this door: they run against any Kubernetes.
pub fn machines(system_namespace: &str) -> Vec<AnyMachine> {
    machines_with(system_namespace, deploy_item::OWN_IMAGE)
}

/// The same where Pawl's own image has another name.
pub fn machines_with(system_namespace: &str, image: &str) -> Vec<AnyMachine> {
    let items = deploy_item::DeployItems {
        system_namespace: system_namespace.to_owned().into(),
        image: image.to_owned().into(),
        ..deploy_item::DeployItems::default()
    };
    vec![
        AnyMachine::new(installation::Installations),
        AnyMachine::new(execution::Executions::default()),
        AnyMachine::new(items),
    ]
}
