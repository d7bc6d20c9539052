//! Which machines run where: the doors everywhere, the cluster's own controllers only where no cluster brings them.

use pawl_machines::machine::AnyMachine;
use pawl_machines::{cluster, deploy, git};

/// The machines of all doors: they run against any Kubernetes.
pub(crate) fn machines() -> Vec<AnyMachine> {
    git::machines().into_iter().chain(deploy::machines()).collect()
}

/// What a cluster brings itself and the embedded control plane does not: garbage collection, namespaces, Jobs.
pub(crate) fn with_cluster() -> Vec<AnyMachine> {
    cluster::machines().into_iter().chain(machines()).collect()
}
