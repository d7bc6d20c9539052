//! The request for the end of a container's log.

use std::fmt;

use crate::external::Request;
use crate::object::Key;

/// Reads the end of a container's log; the reply is the masked text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Logs {
    pub pod: Key,
    pub container: String,
    /// The most that is returned.
    pub tail_bytes: usize,
    /// The values of these Secrets are masked before the text is returned (I6).
    pub mask: Vec<Key>,
}

impl Request for Logs {
    type Reply = String;
    const SYSTEM: &'static str = "logs";
}

impl fmt::Display for Logs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "read the log of {} {}", self.pod, self.container)
    }
}
