//! The loop on the in-process API server, in paused time: what it promises when the network and the objects misbehave.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "what helps a test fails as a test does"
)]

mod asking;
mod cluster;
mod conformance;
mod deploying;
mod lab;
mod leading;
mod looping;
mod recording;
mod remedying;
#[path = "../../../../local/apiserver/tests/it/replay.rs"]
mod replay;
mod watching;
