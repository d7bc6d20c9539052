//! What all kinds share: how a kind is named, conditions, gates, phases, targets, names.

pub mod gate;
pub mod kind;
pub mod names;
pub mod phase;

pub use gate::{Gate, GateName, Verdict};
pub use kind::Kind;
