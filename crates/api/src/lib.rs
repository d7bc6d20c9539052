//! The vocabulary: kinds, phases, targets, conditions, names. No IO, no clock.

pub mod meta;
