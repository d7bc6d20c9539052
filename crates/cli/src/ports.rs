//! What the controllers may reach outside of the cluster, put together.

use std::sync::Arc;

use futures::future::BoxFuture;
use pawl_actions::way::Door;
use pawl_engine::metrics::Metrics;
use pawl_engine::outside::{Nobody, Outside};
use pawl_engine::wire::Wire;
use pawl_engine::{Clock, SystemClock};
use pawl_integrations::transport::Transport;
use pawl_integrations::{cluster, github, logs};
use pawl_machines::failure::Failure;
use pawl_machines::outside::{Call, Reply};
use pawl_machines::remedy::action::executor::Executor;
use pawl_policy::Workers;

use crate::bundles::Bundles;

/// The way into the API server of this process on which rights are checked, and its owner's token.
pub(crate) struct Guarded<'a> {
    pub(crate) client: kube::Client,
    pub(crate) token: &'a str,
}

/// Every port there is.
#[derive(Debug)]
pub(crate) struct Ports {
    github: Arc<github::Port>,
    cluster: cluster::Port,
    logs: logs::Port,
    bundles: Option<Bundles>,
    /// None where this executable cannot be found, to be started as a worker.
    policy: Option<Arc<pawl_policy::Port>>,
    /// None where nobody lets ServiceAccounts in.
    actions: Option<pawl_actions::Port>,
}

impl Ports {
    /// `client` reads Secrets and logs, and leads to the cluster itself; `transport` leads to GitHub.
    pub(crate) fn new(client: &kube::Client, transport: Transport) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let wire = Wire::new(client.clone());
        let secrets: Arc<dyn github::Secrets> = Arc::new(wire.clone());
        let github = Arc::new(github::Port::new(Arc::clone(&secrets), transport, Arc::clone(&clock)));
        let cluster = cluster::Port::new(wire.clone(), Arc::clone(&secrets), clock);
        let policy = match Workers::own() {
            Ok(workers) => Some(Arc::new(pawl_policy::Port::new(Arc::new(workers)))),
            Err(error) => {
                tracing::warn!(%error, "policies cannot be evaluated: this executable is not found");
                None
            }
        };
        Self { github, cluster, logs: logs::Port::new(wire, secrets), bundles: None, policy, actions: None }
    }

    /// With a way for the ServiceAccounts of actions into the cluster to which `client` leads.
    pub(crate) fn acting(self, client: &kube::Client, door: Door, executor: Executor) -> Self {
        let own = Wire::new(client.clone());
        let actions = Some(pawl_actions::Port::new(own, door, executor, Arc::new(SystemClock)));
        Self { actions, ..self }
    }

    /// Those of a control plane that is in this process; `bundles` leads to what its runner of Tekton's kinds runs.
    ///
    /// # Errors
    /// When the token is none.
    pub(crate) fn within(self, bundles: Bundles, guarded: Guarded<'_>) -> anyhow::Result<Self> {
        let cluster = self.cluster.acting_as_others(Wire::new(guarded.client), guarded.token)?;
        Ok(Self { cluster, bundles: Some(bundles), ..self })
    }

    /// Shows in the loop's own metrics what each Repository costs at GitHub, and what policies said.
    pub(crate) fn measure(&self, metrics: &Metrics) {
        let github = Arc::clone(&self.github);
        metrics.with_registry(|registry| registry.register_collector(Box::new(github)));
        if let Some(policy) = self.policy.clone() {
            metrics.with_registry(|registry| registry.register_collector(Box::new(policy)));
        }
    }
}

impl Outside for Ports {
    fn begin(&self) {
        self.github.begin();
        if let Some(policy) = &self.policy {
            policy.begin();
        }
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Reply, Failure>> {
        match call {
            Call::GitHub(_) => self.github.call(call),
            Call::Logs(_) => self.logs.call(call),
            Call::Cluster(_) => self.cluster.call(call),
            Call::Bundle(_) => match &self.bundles {
                Some(bundles) => bundles.call(call),
                None => Nobody.call(call),
            },
            Call::Safety(_) => match &self.policy {
                Some(policy) => policy.call(call),
                None => Nobody.call(call),
            },
            Call::Action(_) => match &self.actions {
                Some(actions) => actions.call(call),
                None => Nobody.call(call),
            },
        }
    }
}
