//! Which machines run where: the doors everywhere, the cluster's own controllers only where no cluster brings them.

use pawl_api::meta;
use pawl_machines::deploy::deploy_item::OWN_IMAGE;
use pawl_machines::freeze::Freezes;
use pawl_machines::lock::reaper::Reaper;
use pawl_machines::machine::AnyMachine;
use pawl_machines::remedy::action::executor::Executor;
use pawl_machines::remedy::kubernetes_execution::KubernetesExecutions;
use pawl_machines::remedy::policy_map::PolicyMaps;
use pawl_machines::{cluster, deploy, git, remedy};

/// What whoever runs the doors decides for everybody: the flags, the same wherever they run.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
#[group(skip)]
pub struct Choices {
    /// No WorkflowExecution follows a success of the same workflow on the same target sooner than this, whatever its own
    /// cooldown is (as 90s, 10m, 1h).
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    minimum_cooldown: meta::Duration,
}

/// The machines of all doors, and of the locks and Freezes they share: they run against any Kubernetes. `image` is Pawl's own.
pub fn machines(system_namespace: &str, image: &str, choices: &Choices) -> Vec<AnyMachine> {
    let actions = KubernetesExecutions {
        system_namespace: system_namespace.to_owned(),
        executor: Executor { image: image.to_owned(), ..Executor::default() },
        ..KubernetesExecutions::default()
    };
    machines_with(actions, image, choices)
}

/// The same, with what an operator chose for actions.
pub(crate) fn machines_with(
    actions: KubernetesExecutions,
    image: &str,
    choices: &Choices,
) -> Vec<AnyMachine> {
    let system_namespace = actions.system_namespace.clone();
    let deploy = deploy::machines_with(&system_namespace, image);
    let remedy = remedy::machines_with(actions, choices.minimum_cooldown);
    let doors = git::machines(&system_namespace).into_iter().chain(deploy).chain(remedy);
    let policies = PolicyMaps { system_namespace };
    doors.chain([AnyMachine::new(Reaper), AnyMachine::new(Freezes), AnyMachine::new(policies)]).collect()
}

/// What a cluster brings itself and the embedded control plane does not: garbage collection, namespaces, Jobs.
pub fn with_cluster(system_namespace: &str, choices: &Choices) -> Vec<AnyMachine> {
    cluster::machines().into_iter().chain(machines(system_namespace, OWN_IMAGE, choices)).collect()
}
