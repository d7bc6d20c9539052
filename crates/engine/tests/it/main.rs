//! The loop on the in-process API server, in paused time: what it promises when the network and the objects misbehave.

mod cluster;
mod conformance;
mod lab;
mod leading;
mod looping;
#[path = "../../../apiserver/tests/it/replay.rs"]
mod replay;
mod watching;
