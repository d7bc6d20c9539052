//! The loop on the in-process API server, in paused time: what it promises when the network and the objects misbehave.

mod cluster;
mod lab;
mod leading;
mod looping;
mod watching;
