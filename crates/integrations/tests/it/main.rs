//! The client and the port against the fake GitHub, both held to GitHub's own description; and the port to clusters.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "these are tests: what is not as expected is to stop them"
)]

mod alerts;
mod authenticating;
mod cluster;
mod deliveries;
mod examples;
mod ground;
mod limits;
mod port;
mod reading;
mod reporting;
mod restart;
mod socket;
mod webhook;
