//! Actions against a real API server, as their own ServiceAccounts, with rights enforced.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what helps a test fails as a test does"
)]

mod doing;
mod keeping;
mod rights;
mod world;
