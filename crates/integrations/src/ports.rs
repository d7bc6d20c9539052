//! All ways out together: each call goes to the port of its system.

use futures::future::BoxFuture;
use pawl_engine::Outside;
use pawl_machines::failure::Failure;
use pawl_machines::outside::{Call, Reply};

use crate::{github, logs};

/// Every port.
#[derive(Debug)]
pub struct Ports {
    pub github: github::port::Port,
    pub logs: logs::Port,
}

impl Outside for Ports {
    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Reply, Failure>> {
        match call {
            Call::GitHub(_) => self.github.call(call),
            Call::Logs(_) => self.logs.call(call),
        }
    }
}
