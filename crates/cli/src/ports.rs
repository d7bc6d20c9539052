//! Registers the ports to the external systems that the controllers use.

use std::sync::Arc;

use pawl_actions::way::Door;
use pawl_engine::SystemClock;
use pawl_engine::metrics::Metrics;
use pawl_engine::wire::Wire;
use pawl_integrations::transport::Transport;
use pawl_integrations::{cluster, github, logs};
use pawl_machines::cluster::tekton::origin::BundleEntry;
use pawl_machines::deploy::target;
use pawl_machines::git;
use pawl_machines::logs::Logs;
use pawl_machines::remedy::action;
use pawl_machines::remedy::action::executor::Executor;
use pawl_machines::remedy::safety::Question;
use pawl_policy::Workers;

use crate::bundles::Bundles;

/// The way into the API server of this process on which rights are checked, and its owner's token.
pub(crate) struct Guarded<'a> {
    pub(crate) client: kube::Client,
    pub(crate) token: &'a str,
}

/// The registered ports, and those of them that have metrics.
#[derive(Debug)]
pub struct Ports {
    pub registered: pawl_engine::Ports,
    github: Arc<github::Port>,
    /// `None` where this executable cannot be found, to be started as a worker.
    policy: Option<Arc<pawl_policy::Port>>,
}

impl Ports {
    /// `client` reads Secrets and logs, and leads to the cluster itself; `transport` leads to GitHub.
    pub fn new(client: &kube::Client, transport: Transport) -> Self {
        let wire = Wire::new(client.clone());
        let secrets = Arc::new(wire.clone());
        let github = Arc::new(github::Port::new(secrets.clone(), transport, Arc::new(SystemClock)));
        let mut registered = pawl_engine::Ports::default()
            .with::<git::github::Call>(github.clone())
            .with::<target::Call>(Arc::new(cluster_port(client)))
            .with::<Logs>(Arc::new(logs::Port::new(wire, secrets)));
        let policy = match Workers::own() {
            Ok(workers) => Some(Arc::new(pawl_policy::Port::new(Arc::new(workers)))),
            Err(error) => {
                tracing::warn!(%error, "policies cannot be evaluated: this executable is not found");
                None
            }
        };
        if let Some(policy) = policy.clone() {
            registered = registered.with::<Question>(policy);
        }
        Self { registered, github, policy }
    }

    /// With a way for the ServiceAccounts of actions into the cluster to which `client` leads.
    pub(crate) fn acting(self, client: &kube::Client, door: Door, executor: Executor) -> Self {
        let own = Wire::new(client.clone());
        let actions = pawl_actions::Port::new(own, door, executor, Arc::new(SystemClock));
        Self { registered: self.registered.with::<action::Call>(Arc::new(actions)), ..self }
    }

    /// Those of a control plane in this process, to which `client` leads; `bundles` leads to what its runner of Tekton's
    /// kinds runs.
    ///
    /// # Errors
    /// When the token is none.
    pub(crate) fn within(
        self,
        client: &kube::Client,
        bundles: Bundles,
        guarded: Guarded<'_>,
    ) -> anyhow::Result<Self> {
        let cluster = cluster_port(client).acting_as_others(Wire::new(guarded.client), guarded.token)?;
        let registered = self.registered.with::<target::Call>(Arc::new(cluster));
        Ok(Self { registered: registered.with::<BundleEntry>(Arc::new(bundles)), ..self })
    }

    /// Shows in the loop's own metrics what each Repository costs at GitHub, and what policies said.
    pub fn measure(&self, metrics: &Metrics) {
        let github = Arc::clone(&self.github);
        metrics.with_registry(|registry| registry.register_collector(Box::new(github)));
        if let Some(policy) = self.policy.clone() {
            metrics.with_registry(|registry| registry.register_collector(Box::new(policy)));
        }
    }
}

fn cluster_port(client: &kube::Client) -> cluster::Port {
    let wire = Wire::new(client.clone());
    cluster::Port::new(wire.clone(), Arc::new(wire), Arc::new(SystemClock))
}
