//! Which machines run where: the doors everywhere, the cluster's own controllers only where no cluster brings them.

use pawl_machines::cluster;
use pawl_machines::git;
use pawl_machines::machine::AnyMachine;

/// The machines of all doors: they run against any Kubernetes.
pub(crate) fn machines() -> Vec<AnyMachine> {
    vec![
        AnyMachine::new(git::workflow_template::WorkflowTemplates),
        AnyMachine::new(git::workflow::Workflows::default()),
    ]
}

/// What a cluster brings itself and the embedded control plane does not: garbage collection, namespaces, Jobs.
pub(crate) fn cluster_machines() -> Vec<AnyMachine> {
    vec![
        AnyMachine::new(cluster::garbage::Garbage),
        AnyMachine::new(cluster::namespace::Namespaces),
        AnyMachine::new(cluster::job::Jobs),
        AnyMachine::new(cluster::job::orphans::OrphanPods),
    ]
}
