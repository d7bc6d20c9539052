//! What goes wrong, when somebody orders it.

use std::time::Duration;

use http::Method;

use crate::transport::{Broken, REQUEST_TIMEOUT};

/// Something that goes wrong with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nobody is there: nothing was done.
    NoConnection,
    /// The connection breaks before anything was done.
    LostRequest,
    /// It was done, and the answer is lost.
    LostReply,
    /// Nothing was done, and no answer comes.
    Hang,
    /// It was done, and no answer comes.
    HangAfter,
    /// Nothing was done, and this is the answer.
    Before(u16),
    /// It was done, and this is the answer.
    After(u16),
    /// Too many at once, as GitHub thinks; it may say for how many seconds.
    SecondaryLimit { retry_after: Option<u32> },
}

/// Trouble, and for which requests.
#[derive(Clone, Debug)]
pub struct Fault {
    method: Option<Method>,
    path: String,
    /// Requests that pass before.
    skip: u32,
    /// Requests that it befalls.
    times: u32,
    trouble: Trouble,
}

impl Fault {
    /// For the next request, whatever it is.
    pub fn next(trouble: Trouble) -> Self {
        Self { method: None, path: String::new(), skip: 0, times: 1, trouble }
    }

    /// For the next request of this method whose path holds this text.
    pub fn on(method: &Method, path: &str, trouble: Trouble) -> Self {
        Self { method: Some(method.clone()), path: path.to_owned(), ..Self::next(trouble) }
    }

    /// For the n-th such request, counted from 1.
    #[must_use]
    pub fn nth(mut self, n: u32) -> Self {
        self.skip = n.saturating_sub(1);
        self
    }

    /// For so many in a row.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }

    fn is_about(&self, method: &Method, path: &str) -> bool {
        self.method.as_ref().is_none_or(|of| of == method) && path.contains(&self.path)
    }
}

/// Faults that were ordered and have not happened.
#[derive(Debug, Default)]
pub(super) struct Orders(Vec<Fault>);

impl Orders {
    pub(super) fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// What befalls this request. Of several that are about it, the first ordered; all count it.
    pub(super) fn take(&mut self, method: &Method, path: &str) -> Option<Trouble> {
        let mut trouble = None;
        for fault in self.0.iter_mut().filter(|fault| fault.is_about(method, path)) {
            if fault.skip > 0 {
                fault.skip -= 1;
            } else if trouble.is_none() {
                fault.times = fault.times.saturating_sub(1);
                trouble = Some(fault.trouble);
            }
        }
        self.0.retain(|fault| fault.times > 0);
        trouble
    }
}

impl Trouble {
    /// Whether the request is carried out all the same.
    pub(super) fn is_after(self) -> bool {
        match self {
            Self::LostReply | Self::HangAfter | Self::After(_) => true,
            Self::NoConnection
            | Self::LostRequest
            | Self::Hang
            | Self::Before(_)
            | Self::SecondaryLimit { .. } => false,
        }
    }

    /// How the transport fails, where there is no answer at all.
    pub(super) fn broken(self) -> Option<Broken> {
        const WAITED: Duration = REQUEST_TIMEOUT;
        match self {
            Self::NoConnection => Some(Broken::Connect("connection refused".to_owned())),
            Self::LostRequest | Self::LostReply => Some(Broken::Lost("connection reset".to_owned())),
            Self::Hang | Self::HangAfter => Some(Broken::TimedOut(WAITED)),
            Self::Before(_) | Self::After(_) | Self::SecondaryLimit { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_befalls_the_requests_it_is_for_and_no_others() {
        let mut orders = Orders::default();
        orders.add(Fault::on(&Method::POST, "/check-runs", Trouble::LostReply).nth(2).times(2));
        let mut take = |method, path| orders.take(&method, path);
        assert_eq!(take(Method::GET, "/repos/a/b/check-runs"), None);
        assert_eq!(take(Method::POST, "/repos/a/b/statuses"), None);
        let of_three: Vec<bool> =
            (0..4).map(|_| take(Method::POST, "/repos/a/b/check-runs").is_some()).collect();
        assert_eq!(of_three, [false, true, true, false]);
    }
}
