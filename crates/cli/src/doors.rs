//! Which machines run where: the doors everywhere, the cluster's own controllers only where no cluster brings them.

use pawl_machines::lock::reaper::Reaper;
use pawl_machines::machine::AnyMachine;
use pawl_machines::{cluster, deploy, git, remedy};

/// The machines of all doors, and of the locks they share: they run against any Kubernetes.
pub(crate) fn machines(system_namespace: &str) -> Vec<AnyMachine> {
    let doors = git::machines(system_namespace).into_iter().chain(deploy::machines(system_namespace));
    doors.chain(remedy::machines(system_namespace)).chain([AnyMachine::new(Reaper)]).collect()
}

/// What a cluster brings itself and the embedded control plane does not: garbage collection, namespaces, Jobs.
pub(crate) fn with_cluster(system_namespace: &str) -> Vec<AnyMachine> {
    cluster::machines().into_iter().chain(machines(system_namespace)).collect()
}
