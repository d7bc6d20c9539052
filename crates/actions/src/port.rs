//! Who answers what plans ask about actions?

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use pawl_engine::Clock;
use pawl_engine::wire::Wire;
use pawl_machines::failure::Failure;
use pawl_machines::object::Key;
use pawl_machines::remedy::action::executor::Executor;
use pawl_machines::remedy::action::{Ask, Call, Order, Reply};

use crate::access::access;
use crate::capture::capture;
use crate::look::{self, Nodes};
use crate::reading::{self, Known};
use crate::try_out::try_out;
use crate::way::{Door, Way};

/// A trial that takes longer has failed: the API server and its webhooks answer within this, or not at all.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(30);

/// Nodes come and go in minutes: those who look within seconds count them once.
const NODES_FRESH: SignedDuration = SignedDuration::from_secs(5);

/// The port for actions on the cluster that Pawl runs on.
#[derive(Debug)]
pub struct Port {
    own: Way,
    door: Door,
    executor: Executor,
    clock: Arc<dyn Clock>,
    nodes: Mutex<Option<(Timestamp, Nodes)>>,
}

impl Port {
    /// `own` is how Pawl itself reads and keeps; `door` lets ServiceAccounts in.
    pub fn new(own: Wire, door: Door, executor: Executor, clock: Arc<dyn Clock>) -> Self {
        Self { own: Way::new(own), door, executor, clock, nodes: Mutex::default() }
    }

    /// Makes one call.
    ///
    /// # Errors
    /// What went wrong, and what to do about it.
    pub async fn ask(&self, call: &Call) -> Result<Reply, Failure> {
        let known = self.known(&call.order).await?;
        let now = self.clock.now();
        match &call.ask {
            Ask::Look => {
                let nodes = self.nodes(now).await?;
                look::look(&self.own, &known, nodes, now).await.map(Reply::Looked)
            }
            Ask::Access { service_account } => {
                access(&self.own, &known, service_account).await.map(Reply::Access)
            }
            Ask::DryRun { service_account } => {
                let trial = bounded(self.try_out(&known, service_account, now)).await?;
                Ok(Reply::DryRun(trial.results))
            }
            Ask::Capture { secret, service_account } => {
                let captured = capture(&self.own, &self.door, &known, secret, service_account, now);
                bounded(captured).await.map(Reply::Captured)
            }
        }
    }

    async fn try_out(
        &self,
        known: &Known,
        account: &Key,
        now: Timestamp,
    ) -> Result<crate::try_out::Trial, Failure> {
        let way = self.door.enter(&self.own, account).await?;
        try_out(&way, known, now).await
    }

    /// The order, with what the execution kept that it takes back.
    async fn known(&self, order: &Order) -> Result<Known, Failure> {
        let mut known = Known::new(order)?;
        if let Some(undoes) = &order.undoes {
            let found = reading::kept(&self.own, &self.executor.undo_secret(undoes)).await?;
            known.undone = found.map(|(kept, _)| kept);
        }
        Ok(known)
    }

    async fn nodes(&self, now: Timestamp) -> Result<Nodes, Failure> {
        let counted = *self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, nodes)) = counted
            && now.duration_since(at).abs() < NODES_FRESH
        {
            return Ok(nodes);
        }
        let nodes = look::nodes(&self.own).await?;
        *self.nodes.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, nodes));
        Ok(nodes)
    }
}

async fn bounded<T>(trial: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let late = |_| {
        Err(Failure::unanswered("try an action without effect", format!("no end within {TRIAL_TIMEOUT:?}")))
    };
    tokio::time::timeout(TRIAL_TIMEOUT, trial).await.unwrap_or_else(late)
}

impl pawl_engine::Port<Call> for Port {
    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Reply, Failure>> {
        Box::pin(self.ask(call))
    }
}
