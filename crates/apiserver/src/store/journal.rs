//! When is a write safe?

use super::Event;

/// The journal's answer to a record handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ack {
    /// It is safe already.
    Durable,
    /// It will be: the journal publishes it when it is.
    Later,
}

/// Keeps writes in the order they are handed over.
pub(crate) trait Journal: Send + Sync + std::fmt::Debug {
    /// Hands one write over. Called in the order of revisions, by one caller at a time.
    fn append(&self, event: &Event) -> Ack;
}

/// Forgets everything, at once.
#[derive(Debug)]
pub(crate) struct MemoryJournal;

impl Journal for MemoryJournal {
    fn append(&self, _event: &Event) -> Ack {
        Ack::Durable
    }
}
