//! The git door: from a commit to a Job and its result.

pub mod account;
pub mod branch;
pub mod check_run;
pub mod comments;
pub mod delivery;
pub mod explain;
pub mod github;
pub mod glob;
pub mod job_template;
pub mod matching;
pub mod repository;
mod schedule;
mod targets;
#[cfg(test)]
mod testing;
pub mod trust;
pub mod workflow;
pub mod workflow_template;

use crate::machine::AnyMachine;

/// The machines of this door: they run against any Kubernetes. Locks are kept in the system namespace.
pub fn machines(system_namespace: &str) -> Vec<AnyMachine> {
    let system_namespace = system_namespace.to_owned();
    vec![
        AnyMachine::new(repository::Repositories),
        AnyMachine::new(branch::Branches),
        AnyMachine::new(workflow_template::Templates),
        AnyMachine::new(workflow::Workflows { system_namespace, ..workflow::Workflows::default() }),
    ]
}
