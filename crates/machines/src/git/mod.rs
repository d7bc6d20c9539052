//! The git door: from a commit to a Job and its result.

pub mod account;
pub mod branch;
pub mod check_run;
pub mod comments;
pub mod delivery;
pub mod explain;
pub mod github;
pub mod glob;
#[cfg(test)]
mod hub;
pub mod job_template;
pub mod matching;
pub mod repository;
pub mod trust;
pub mod workflow;
pub mod workflow_template;

use crate::machine::AnyMachine;

/// Guards that can be taken away in a simulation, to see that the simulation notices. All are on by default, and nothing
/// outside a simulation turns one off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guards {
    /// The finalizer of a Workflow goes only after its Job.
    pub finalizer_order: bool,
    /// What is finished is not looked at again (I2).
    pub terminal_check: bool,
    /// What comes from a fork waits until somebody may and does let it run.
    pub fork_gate: bool,
    /// A commit of the default branch waits for the earlier ones.
    pub sequence: bool,
}

impl Default for Guards {
    fn default() -> Self {
        Self { finalizer_order: true, terminal_check: true, fork_gate: true, sequence: true }
    }
}

/// The machines of this door: they run against any Kubernetes. Locks are kept in the system namespace.
pub fn machines(system_namespace: &str) -> Vec<AnyMachine> {
    guarded_machines(system_namespace, Guards::default())
}

/// The same, with guards taken away: only for simulations that check that they notice.
pub fn guarded_machines(system_namespace: &str, guards: Guards) -> Vec<AnyMachine> {
    let system_namespace = system_namespace.to_owned();
    vec![
        AnyMachine::new(repository::Repositories),
        AnyMachine::new(branch::Branches { guards }),
        AnyMachine::new(workflow_template::Templates),
        AnyMachine::new(workflow::Workflows { system_namespace, guards, ..workflow::Workflows::default() }),
    ]
}
