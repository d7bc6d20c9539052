//! The way to systems other than the API server: who carries out what a plan asks.
//!
//! Each outside system has a port in `integrations` that implements [`Outside`]; the command line puts them together
//! and hands them to the loop. A port never waits for long and never retries: it says what happened, and the loop
//! decides again with that, or looks again later (I9).

use std::sync::Arc;

use futures::future::BoxFuture;
use pawl_machines::failure::{Category, Failure};
use pawl_machines::outside::{Call, Reply};

/// Carries out calls.
pub trait Outside: Send + Sync + std::fmt::Debug {
    /// Makes one call. Dropping the future may leave it carried out or not; the call's key finds it again (I7).
    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Reply, Failure>>;

    /// This process has begun to lead: another may have acted meanwhile, so what is remembered of before is forgotten.
    fn begin(&self) {}
}

/// Nobody: for loops whose machines ask nothing outside.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nobody;

impl Outside for Nobody {
    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Reply, Failure>> {
        let failure = Failure {
            attempt: call.to_string(),
            category: Category::Permanent,
            reason: "NoPort".to_owned(),
            message: "this process has no way to that system".to_owned(),
            retry_after: None,
        };
        Box::pin(std::future::ready(Err(failure)))
    }
}

impl<O: Outside + ?Sized> Outside for Arc<O> {
    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Reply, Failure>> {
        (**self).call(call)
    }

    fn begin(&self) {
        (**self).begin();
    }
}
