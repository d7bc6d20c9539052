//! The ledger on real databases.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "what helps a test fails as a test does"
)]

mod both;
mod cluster;
mod outage;
mod world;
