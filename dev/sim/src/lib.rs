//! The world in one thread: store, machines, faults, clock, seed and oracles.
//!
//! The inner simulator ([`inner`]) has no runtime at all and runs thousands of worlds a second; the outer one runs the
//! real loop on the in-process server under a paused clock. Both break what can break between a controller and its
//! API server, then let everything settle, then ask the oracles. The same seed gives the same trace, byte for byte.

pub mod acting;
pub mod campaign;
pub mod fault;
pub mod ground;
pub mod hub;
pub mod inner;
pub mod kubelet;
pub mod mutant;
pub mod oracle;
pub mod outer;
pub mod record;
pub mod replica;
pub mod scenario;
pub mod scenarios;
