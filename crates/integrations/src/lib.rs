//! Systems outside the cluster: for each a thin client, and a fake that keeps state.
//!
//! A client here never sleeps and starts no task. Where the other side wants to be left alone, that is an error with a
//! time, and the engine comes back; so the same client runs in the simulators, where nothing ever waits.

pub mod alerts;
pub mod cluster;
pub mod github;
pub mod logs;
pub mod mask;
pub mod registry;
pub mod transport;
pub mod webhook;
