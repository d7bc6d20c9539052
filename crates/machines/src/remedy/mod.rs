//! The remedy door: from a signal to a run that mends its target, and the record of it.

pub mod action;
pub mod alerts;
pub mod explain;
pub mod identity;
pub mod kubernetes_execution;
pub mod memory;
pub mod policy_map;
mod power;
pub mod remediation_playbook;
pub mod remediation_request;
pub mod safety;
mod strays;
#[cfg(test)]
mod testing;
pub mod workflow_execution;

use pawl_api::meta;

use crate::machine::AnyMachine;

/// What a unit says that somebody cancels; `by` is the annotation's value: who, and perhaps why.
fn cancelled(by: &str) -> String {
    match by.trim() {
        "" => "cancelled".to_owned(),
        by => format!("cancelled: {by}"),
    }
}

/// The machines of this door: they run against any Kubernetes. Locks, and what targets remember, are kept in the system
/// namespace.
pub fn machines(system_namespace: &str) -> Vec<AnyMachine> {
    let actions = kubernetes_execution::KubernetesExecutions {
        system_namespace: system_namespace.to_owned(),
        ..kubernetes_execution::KubernetesExecutions::default()
    };
    machines_with(actions, meta::Duration::default())
}

/// The same, with what an operator chose for actions, and where no cooldown is shorter than this.
pub fn machines_with(
    actions: kubernetes_execution::KubernetesExecutions,
    minimum_cooldown: meta::Duration,
) -> Vec<AnyMachine> {
    let system_namespace = actions.system_namespace.clone();
    let strays = strays::machines(&actions.executor.namespace);
    let executions = workflow_execution::WorkflowExecutions {
        system_namespace: system_namespace.clone(),
        minimum_cooldown,
    };
    let requests = remediation_request::RemediationRequests { system_namespace };
    let own = [
        AnyMachine::new(executions),
        AnyMachine::new(actions),
        AnyMachine::new(requests),
        AnyMachine::new(remediation_playbook::RemediationPlaybooks),
    ];
    own.into_iter().chain(strays).collect()
}
