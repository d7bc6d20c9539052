//! How much may one client ask of the server, and how long may it take?

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::status::Status;

/// Clients keep an idle connection for about 90 s; one that is idle for longer, or takes longer than this for its
/// headers, is gone or up to no good.
const HEAD_TIMEOUT: Duration = Duration::from_secs(100);
/// How long a body may take to arrive: 3 MiB over a slow line of 50 KiB a second.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a client may take nothing of an answer that waits for it. The machine's own buffers hold megabytes, so a
/// client that is slow but alive takes something far more often; a watcher that was cut off resumes where it was.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Watches of one user at once. A controller watches some twenty kinds, so this is room for two dozen of them; and over
/// HTTP/1, where each needs a connection, it leaves a third of all connections to others.
const MAX_WATCHES_PER_CLIENT: usize = 512;
/// When somebody with too many watches may ask again: they end by themselves within minutes, or by being closed.
const RETRY_AFTER_SECONDS: u32 = 5;

/// Connections at once: a process may have 1,024 files open by default on the systems it is made for, and the journal,
/// the logs and the runner need some.
const MAX_CONNECTIONS: usize = 768;

/// Limits on one client of [`crate::serve`].
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// How long a connection may be idle, or take to send the headers of a request.
    pub head: Duration,
    /// How long a request's body may take to arrive.
    pub body: Duration,
    /// How long a client may take nothing of an answer.
    pub stall: Duration,
    /// How many watches one user may have open.
    pub watches_per_client: usize,
    /// How many connections there may be of all clients together.
    pub connections: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            head: HEAD_TIMEOUT,
            body: BODY_TIMEOUT,
            stall: STALL_TIMEOUT,
            watches_per_client: MAX_WATCHES_PER_CLIENT,
            connections: MAX_CONNECTIONS,
        }
    }
}

/// Who has how many watches open.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenWatches {
    by_user: Arc<Mutex<HashMap<String, usize>>>,
}

/// One open watch; dropped, it no longer counts.
#[derive(Debug)]
pub(crate) struct OpenWatch {
    all: OpenWatches,
    user: String,
}

impl OpenWatches {
    /// One more for a user, unless that is too many.
    pub(crate) fn open(&self, user: &str, max: usize) -> Result<OpenWatch, Status> {
        let mut by_user = self.by_user.lock().unwrap_or_else(PoisonError::into_inner);
        let open = by_user.entry(user.to_owned()).or_default();
        if *open >= max {
            let message = format!(
                "too many watches: {user:?} has {open} open, and one client may have {max}; close some, or try again later"
            );
            return Err(Status::too_many_requests(message, RETRY_AFTER_SECONDS));
        }
        *open += 1;
        Ok(OpenWatch { all: self.clone(), user: user.to_owned() })
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        let mut by_user = self.all.by_user.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = by_user.get_mut(&self.user) {
            *open -= 1;
            if *open == 0 {
                by_user.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_that_ends_makes_room_for_its_own_user_alone() {
        let watches = OpenWatches::default();
        let first = watches.open("a", 1).unwrap();
        let other = watches.open("b", 1).unwrap();
        let refused = watches.open("a", 1).unwrap_err();
        assert_eq!((refused.code, &*refused.reason), (429, "TooManyRequests"));
        assert!(refused.message.contains("one client may have 1"), "{refused}");
        drop(other);
        assert!(watches.open("a", 1).is_err());
        drop(first);
        assert!(watches.open("a", 1).is_ok());
        assert!(watches.by_user.lock().unwrap().is_empty(), "nobody is remembered for nothing");
    }
}
