//! What the embedded server needs and a real cluster brings along: the controllers of Kubernetes' own kinds and of
//! Tekton's.

pub mod cron_job;
pub mod daemon_set;
pub mod deployment;
pub mod disruption_budget;
pub mod garbage;
pub mod job;
pub mod namespace;
mod owned_pod;
pub mod pipeline_run;
pub mod replica_set;
mod revision;
pub mod service_account;
pub mod stateful_set;
pub mod task_run;
pub mod tekton;

use crate::machine::AnyMachine;

/// Those of Tekton's kinds, for a server that serves them and has no Tekton.
pub fn tekton_machines() -> Vec<AnyMachine> {
    vec![AnyMachine::new(pipeline_run::PipelineRuns), AnyMachine::new(task_run::TaskRuns)]
}

/// All of Kubernetes' own, for a server that has none.
pub fn machines() -> Vec<AnyMachine> {
    vec![
        AnyMachine::new(garbage::Garbage),
        AnyMachine::new(namespace::Namespaces),
        AnyMachine::new(job::Jobs),
        AnyMachine::new(job::orphans::OrphanPods),
        AnyMachine::new(cron_job::CronJobs),
        AnyMachine::new(disruption_budget::DisruptionBudgets),
        AnyMachine::new(deployment::Deployments),
        AnyMachine::new(replica_set::ReplicaSets),
        AnyMachine::new(stateful_set::StatefulSets),
        AnyMachine::new(daemon_set::DaemonSets),
        AnyMachine::new(service_account::ServiceAccounts),
    ]
}
