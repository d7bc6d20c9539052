//! Which machines run where: the doors everywhere, the cluster's own controllers only where no cluster brings them.

use pawl_machines::deploy::deploy_item::OWN_IMAGE;
use pawl_machines::freeze::Freezes;
use pawl_machines::lock::reaper::Reaper;
use pawl_machines::machine::AnyMachine;
use pawl_machines::remedy::policy_map::PolicyMaps;
use pawl_machines::{cluster, deploy, git, remedy};

/// The machines of all doors, and of the locks and Freezes they share: they run against any Kubernetes. `image` is Pawl's own.
pub(crate) fn machines(system_namespace: &str, image: &str) -> Vec<AnyMachine> {
    let deploy = deploy::machines_with(system_namespace, image);
    let policies = PolicyMaps { system_namespace: system_namespace.to_owned() };
    let shared = [AnyMachine::new(Reaper), AnyMachine::new(Freezes), AnyMachine::new(policies)];
    let doors = git::machines(system_namespace).into_iter().chain(deploy);
    doors.chain(remedy::machines(system_namespace)).chain(shared).collect()
}

/// What a cluster brings itself and the embedded control plane does not: garbage collection, namespaces, Jobs.
pub(crate) fn with_cluster(system_namespace: &str) -> Vec<AnyMachine> {
    cluster::machines().into_iter().chain(machines(system_namespace, OWN_IMAGE)).collect()
}
