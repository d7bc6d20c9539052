//! The way to the ledger: who keeps what the states of objects say has happened.
//!
//! ```text
//!  look at an object ─▶ Machine::audit(its state) ─▶ what is new since the last look ─▶ offer
//!  a plan that would make the state forget (a status, a release) ─▶ keep, then apply
//!  the store fails, or is back ─▶ changes ─▶ the objects concerned are looked at ─▶ condition AuditRecorded
//! ```
//! Offering never waits, and offering twice is harmless: entries have ids. So nothing is written to the object in the
//! ordinary case, and a crash loses nothing that its state still says (docs/decisions/0015).

use futures::future::BoxFuture;
use pawl_machines::audit::{Entry, Standing};
use tokio::sync::watch;

/// Keeps entries.
pub trait Ledger: Send + Sync + std::fmt::Debug {
    /// Whether anything is kept at all; if not, nothing is offered.
    fn keeps(&self) -> bool {
        true
    }

    /// Takes entries to be stored, and returns at once.
    fn offer(&self, entries: Vec<Entry>);

    /// Waits until everything that was offered about the object of this UID is safe on disk, in the store or beside it,
    /// or cannot be: the work goes on in any case.
    fn keep<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, ()>;

    /// What there is to say of the object of this UID.
    fn standing(&self, uid: &str) -> Standing;

    /// How many entries are not stored yet.
    fn backlog(&self) -> usize;

    /// Moves when standings may have changed.
    fn changes(&self) -> watch::Receiver<Changes>;
}

/// Counts what has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// How often the store was lost, or found again.
    pub standings: u64,
    /// How often entries that were offered had to be dropped: whoever still knows them offers them again.
    pub dropped: u64,
}

/// Nobody keeps a ledger, and nobody asked for one: for tools that run a loop for a moment, and for tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unkept;

impl Ledger for Unkept {
    fn keeps(&self) -> bool {
        false
    }

    fn offer(&self, _: Vec<Entry>) {}

    fn keep<'a>(&'a self, _: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    fn standing(&self, _: &str) -> Standing {
        Standing::Recorded
    }

    fn backlog(&self) -> usize {
        0
    }

    fn changes(&self) -> watch::Receiver<Changes> {
        watch::channel(Changes::default()).1
    }
}
