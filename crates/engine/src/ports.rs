//! Carries out the external calls of plans: one port per type of request.
//!
//! The crates of the external systems implement [`Port`]; the command line registers the ports in [`Ports`] and hands
//! them to the engine. A port neither waits for long nor retries: it returns what happened, and the engine decides
//! again with that, or reconciles again later (I9).

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use pawl_machines::external::{Call, Reply, Request};
use pawl_machines::failure::{Category, Failure};

/// Carries out requests of one type.
pub trait Port<R: Request>: Send + Sync + std::fmt::Debug {
    /// Sends one request. If the future is dropped, the request may be carried out or not; its key finds it again (I7).
    fn call<'a>(&'a self, request: &'a R) -> BoxFuture<'a, Result<R::Reply, Failure>>;

    /// This process has become the leader: another may have acted meanwhile, so the port drops what it remembers.
    fn begin(&self) {}
}

/// The ports of a process, by the system they lead to.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    by_system: BTreeMap<&'static str, Arc<dyn AnyPort>>,
}

impl Ports {
    #[must_use]
    pub fn with<R: Request>(mut self, port: Arc<dyn Port<R>>) -> Self {
        self.by_system.insert(R::SYSTEM, Arc::new(port));
        self
    }

    /// This process has become the leader.
    pub fn begin(&self) {
        self.by_system.values().for_each(|port| port.begin());
    }

    /// Makes one call.
    ///
    /// # Errors
    /// When the port fails, or when there is none for this request.
    pub async fn call(&self, call: &Call) -> Result<Reply, Failure> {
        let answer = self.by_system.get(call.system()).and_then(|port| port.call(call));
        match answer {
            Some(answer) => answer.await,
            None => Err(Failure {
                attempt: call.to_string(),
                category: Category::Permanent,
                reason: "NoPort".to_owned(),
                message: "this process has no way to that system".to_owned(),
                retry_after: None,
            }),
        }
    }
}

/// A port for requests of any type.
trait AnyPort: Send + Sync + std::fmt::Debug {
    /// `None`: the port carries out requests of another type.
    fn call<'a>(&'a self, call: &'a Call) -> Option<BoxFuture<'a, Result<Reply, Failure>>>;
    fn begin(&self);
}

impl<R: Request> AnyPort for Arc<dyn Port<R>> {
    fn call<'a>(&'a self, call: &'a Call) -> Option<BoxFuture<'a, Result<Reply, Failure>>> {
        let request = call.request::<R>()?;
        Some(Box::pin(async move { (**self).call(request).await.map(Reply::new::<R>) }))
    }

    fn begin(&self) {
        (**self).begin();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use pawl_machines::cluster::tekton::origin::BundleEntry;
    use pawl_machines::logs::Logs;
    use pawl_machines::object::Key;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Replies with the name of the container.
    #[derive(Debug, Default)]
    struct Fake {
        begun: AtomicBool,
    }

    impl Port<Logs> for Fake {
        fn call<'a>(&'a self, logs: &'a Logs) -> BoxFuture<'a, Result<String, Failure>> {
            Box::pin(std::future::ready(Ok(logs.container.clone())))
        }

        fn begin(&self) {
            self.begun.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_call_goes_to_the_port_of_its_request_and_fails_for_good_where_there_is_none() {
        let port = Arc::new(Fake::default());
        let ports = Ports::default().with::<Logs>(port.clone());
        ports.begin();
        assert!(port.begun.load(Ordering::SeqCst));
        let logs = Logs { pod: Key::new(None, "p"), container: "c".into(), tail_bytes: 1, mask: vec![] };
        let call = Call::new(logs.clone());
        let mut answers = pawl_machines::external::Answers::default();
        answers.put(call.clone(), ports.call(&call).now_or_never().unwrap());
        assert_eq!(answers.get(&logs), Some(Ok(&"c".to_owned())));
        let entry = BundleEntry { bundle: "b".into(), kind: "task".into(), name: "t".into() };
        let failure = ports.call(&entry.into()).now_or_never().unwrap().unwrap_err();
        assert_eq!((failure.category, failure.reason.as_str()), (Category::Permanent, "NoPort"));
        assert_eq!(failure.attempt, "read task t of bundle b");
    }
}
