//! What did requests really do? For oracles: one check run per key is counted here, not by who thinks to have made it.

use std::collections::VecDeque;

use jiff::Timestamp;

/// The demo may run for days; tests and simulations stay far below.
const MAX_ENTRIES: usize = 100_000;

/// Something that a request changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// By our clock, to its full precision: the answers tell seconds.
    pub at: Timestamp,
    /// Which request did it, counted from 1.
    pub request: u64,
    /// `owner/name`; empty for tokens.
    pub repository: String,
    pub effect: Effect,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    TokenMinted,
    CheckRunCreated { id: i64, external_id: String, name: String, sha: String },
    CheckRunUpdated { id: i64, external_id: String, status: String, conclusion: Option<String> },
    StatusSet { sha: String, context: String, state: String },
    Commented { number: i64, id: i64, body: String },
}

#[derive(Debug, Default)]
pub(super) struct Journal(VecDeque<Applied>);

impl Journal {
    pub(super) fn add(&mut self, applied: Applied) {
        if self.0.len() == MAX_ENTRIES {
            self.0.pop_front();
        }
        self.0.push_back(applied);
    }

    pub(super) fn all(&self) -> Vec<Applied> {
        self.0.iter().cloned().collect()
    }
}
