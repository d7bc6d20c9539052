//! Requests to systems other than the API server, as data, and the replies to them.
//!
//! ```text
//! decide ─▶ Plan { asks: [call, …] } ─▶ a port carries each call out ─▶ decide again, with the replies
//! ```
//! A controller that needs an external system puts a [`Call`] into its plan. The plan's steps are applied first; then
//! the calls are made, and the same object is decided on again with the replies. No decision waits. The replies are
//! dropped when the reconcile ends: whatever a later one needs is in the object's status, or is found in the external
//! system again under the request's key (I7).
//!
//! This module knows no external system: each area defines its own requests and replies. Credentials never pass through
//! here: a request names the Secret, and the port reads it.

use std::any::{Any, TypeId};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::{self, Debug, Display};
use std::sync::Arc;

use crate::failure::{Category, Failure};

/// A request to an external system. Two equal requests are the same: within one reconcile it is sent once.
pub trait Request: Any + Ord + Debug + Display + Send + Sync {
    type Reply: Any + Debug + Send + Sync;

    /// The system's name in metrics. No other request type has the same.
    const SYSTEM: &'static str;

    /// Whether it may change something there.
    fn is_write(&self) -> bool {
        false
    }
}

/// A request of any type.
#[derive(Clone, Eq, PartialOrd, Ord)]
pub struct Call(Arc<dyn AnyRequest>);

impl Call {
    pub fn new(request: impl Request) -> Self {
        Self(Arc::new(request))
    }

    /// The request; `None` if it is of another type.
    pub fn request<R: Request>(&self) -> Option<&R> {
        (&*self.0 as &dyn Any).downcast_ref()
    }

    pub fn system(&self) -> &'static str {
        self.0.system()
    }

    pub fn is_write(&self) -> bool {
        self.0.may_write()
    }
}

impl<R: Request> From<R> for Call {
    fn from(request: R) -> Self {
        Self::new(request)
    }
}

/// A reply to a request of any type.
#[derive(Clone, Debug)]
pub struct Reply(Arc<dyn AnyReply>);

impl Reply {
    pub fn new<R: Request>(reply: R::Reply) -> Self {
        Self(Arc::new(reply))
    }
}

/// The replies received so far in this reconcile.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    received: BTreeMap<Call, Result<Reply, Failure>>,
}

impl Answers {
    /// `None`: the request was not sent yet in this reconcile.
    pub fn get<R: Request>(&self, request: &R) -> Option<Result<&R::Reply, &Failure>> {
        match self.received.get(request as &dyn AnyRequest)? {
            Ok(reply) => (&*reply.0 as &dyn Any).downcast_ref().map(Ok),
            Err(failure) => Some(Err(failure)),
        }
    }

    pub fn contains(&self, call: &Call) -> bool {
        self.received.contains_key(call)
    }

    pub fn put(&mut self, call: Call, answer: Result<Reply, Failure>) {
        self.received.insert(call, answer);
    }

    /// The transient failure to be retried first: the reconcile is repeated because of it, whatever it decided.
    pub fn unheard(&self) -> Option<&Failure> {
        let failed = self.received.values().filter_map(|answer| answer.as_ref().err());
        failed.filter(|failure| is_transient(failure)).min_by_key(|failure| failure.retry_after)
    }
}

/// Whether the loop retries the reconcile because of this failure.
pub(crate) fn is_transient(failure: &Failure) -> bool {
    match failure.category {
        Category::Transient | Category::Conflict => true,
        // Nobody knows when credentials return: the controller that needs them decides when to try again.
        Category::Permanent | Category::NotFound | Category::MissingCredentials => false,
    }
}

/// The operations of a request of any type, for [`Call`].
trait AnyRequest: Any + Debug + Display + Send + Sync {
    fn system(&self) -> &'static str;
    fn may_write(&self) -> bool;
    /// By system, then as the request type orders its values.
    fn compare(&self, other: &dyn AnyRequest) -> Ordering;
}

impl<R: Request> AnyRequest for R {
    fn system(&self) -> &'static str {
        R::SYSTEM
    }

    fn may_write(&self) -> bool {
        self.is_write()
    }

    fn compare(&self, other: &dyn AnyRequest) -> Ordering {
        let any: &dyn Any = other;
        match any.downcast_ref::<R>() {
            Some(other) => self.cmp(other),
            None => (R::SYSTEM, TypeId::of::<R>()).cmp(&(other.system(), any.type_id())),
        }
    }
}

trait AnyReply: Any + Debug + Send + Sync {}

impl<T: Any + Debug + Send + Sync> AnyReply for T {}

impl PartialEq for dyn AnyRequest {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for dyn AnyRequest {}

impl PartialOrd for dyn AnyRequest {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for dyn AnyRequest {
    fn cmp(&self, other: &Self) -> Ordering {
        self.compare(other)
    }
}

impl PartialEq for Call {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

/// So that [`Answers`] finds a reply by its request.
impl Borrow<dyn AnyRequest> for Call {
    fn borrow(&self) -> &dyn AnyRequest {
        &*self.0
    }
}

impl Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Debug::fmt(&self.0, f)
    }
}

impl Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Read(&'static str);

    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Write(&'static str);

    impl Request for Read {
        type Reply = String;
        const SYSTEM: &'static str = "reads";
    }

    impl Request for Write {
        type Reply = u8;
        const SYSTEM: &'static str = "a-writer";

        fn is_write(&self) -> bool {
            true
        }
    }

    impl Display for Read {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "read {}", self.0)
        }
    }

    impl Display for Write {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "write {}", self.0)
        }
    }

    #[test]
    fn a_transient_failure_is_retried_and_a_permanent_one_is_an_answer() {
        let mut answers = Answers::default();
        let refused = Failure::answered("a", 403, None, br#"{"kind":"Status","code":403}"#);
        answers.put(Read("a").into(), Err(refused));
        assert_eq!(answers.unheard(), None);
        answers.put(Read("b").into(), Err(Failure::answered("b", 503, Some(7), b"")));
        assert_eq!(answers.unheard().unwrap().retry_after, Some(Duration::from_secs(7)));
        answers.put(Read("c").into(), Ok(Reply::new::<Read>("text".to_owned())));
        assert_eq!(answers.get(&Read("c")), Some(Ok(&"text".to_owned())));
        assert_eq!(answers.get(&Read("d")), None);
        assert!(answers.get(&Read("a")).unwrap().is_err());
    }

    #[test]
    fn a_call_is_its_request_and_calls_are_ordered_by_system_then_by_request() {
        let calls: [Call; 3] = [Write("z").into(), Read("a").into(), Read("b").into()];
        assert!(calls.is_sorted());
        assert_eq!(calls[1], Call::new(Read("a")));
        assert_ne!(calls[1], Call::new(Write("a")));
        let [write, read, _] = &calls;
        assert_eq!((write.system(), write.is_write(), read.is_write()), ("a-writer", true, false));
        assert_eq!((read.request(), read.request::<Write>()), (Some(&Read("a")), None));
        assert_eq!(format!("{read} {read:?}"), r#"read a Read("a")"#);
        let mut answers = Answers::default();
        answers.put(write.clone(), Ok(Reply::new::<Write>(1)));
        assert_eq!(answers.get(&Write("z")), Some(Ok(&1)));
        assert!(answers.contains(write) && !answers.contains(read));
        assert_eq!(answers.get(&Read("z")), None, "the same value of another type is another request");
    }
}
