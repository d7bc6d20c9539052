//! What the controllers may reach outside of the cluster, put together.

use std::sync::Arc;

use futures::future::BoxFuture;
use pawl_engine::outside::{Nobody, Outside};
use pawl_engine::wire::Wire;
use pawl_engine::{Clock, SystemClock};
use pawl_integrations::github::transport::Transport;
use pawl_integrations::{github, logs};
use pawl_machines::failure::Failure;
use pawl_machines::outside::{Call, Reply};

use crate::bundles::Bundles;

/// Every port there is. `client` reads Secrets and logs; `transport` leads to GitHub; `bundles` to what the embedded
/// runner of Tekton's kinds runs.
pub(crate) fn of(client: &kube::Client, transport: Transport, bundles: Option<Bundles>) -> Arc<dyn Outside> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let wire = Wire::new(client.clone());
    let secrets: Arc<dyn github::Secrets> = Arc::new(wire.clone());
    let github = github::Port::new(Arc::clone(&secrets), transport, clock);
    Arc::new(Ports { github, logs: logs::Port::new(wire, secrets), bundles })
}

#[derive(Debug)]
struct Ports {
    github: github::Port,
    logs: logs::Port,
    bundles: Option<Bundles>,
}

impl Outside for Ports {
    fn begin(&self) {
        self.github.begin();
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Reply, Failure>> {
        match call {
            Call::GitHub(_) => self.github.call(call),
            Call::Logs(_) => self.logs.call(call),
            Call::Bundle(_) => match &self.bundles {
                Some(bundles) => bundles.call(call),
                None => Nobody.call(call),
            },
        }
    }
}
