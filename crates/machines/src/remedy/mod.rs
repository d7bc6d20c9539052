//! The remedy door: from a signal to a run that mends its target, and the record of it.

pub mod action;
pub mod alerts;
pub mod explain;
pub mod memory;
pub mod policy_map;
pub mod remediation_playbook;
pub mod remediation_request;
pub mod safety;
#[cfg(test)]
mod testing;
pub mod workflow_execution;

use crate::machine::AnyMachine;

/// The machines of this door: they run against any Kubernetes. Locks, and what targets remember, are kept in the system
/// namespace.
pub fn machines(system_namespace: &str) -> Vec<AnyMachine> {
    let executions = workflow_execution::WorkflowExecutions {
        system_namespace: system_namespace.to_owned(),
        ..workflow_execution::WorkflowExecutions::default()
    };
    let requests = remediation_request::RemediationRequests { system_namespace: system_namespace.to_owned() };
    vec![
        AnyMachine::new(executions),
        AnyMachine::new(requests),
        AnyMachine::new(remediation_playbook::RemediationPlaybooks),
    ]
}
