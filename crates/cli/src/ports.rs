//! What the controllers may reach outside of the cluster, put together.

use std::sync::Arc;

use futures::future::BoxFuture;
use pawl_engine::outside::{Nobody, Outside};
use pawl_engine::wire::Wire;
use pawl_engine::{Clock, SystemClock};
use pawl_integrations::github;
use pawl_integrations::github::transport::Transport;
use pawl_machines::failure::Failure;
use pawl_machines::outside::{Call, Reply};

/// Every port there is. `client` reads Secrets; `transport` leads to GitHub.
pub(crate) fn of(client: &kube::Client, transport: Transport) -> Arc<dyn Outside> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let github = github::Port::new(Arc::new(Wire::new(client.clone())), transport, clock);
    Arc::new(Ports { github })
}

#[derive(Debug)]
struct Ports {
    github: github::Port,
}

impl Outside for Ports {
    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Reply, Failure>> {
        match call {
            Call::GitHub(_) => self.github.call(call),
            Call::Logs(_) => Nobody.call(call),
        }
    }
}
