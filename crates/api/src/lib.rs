//! The vocabulary: kinds, phases, targets, conditions, names. No IO, no clock.

pub mod crds;
pub mod git;
pub mod meta;
pub mod phases;
