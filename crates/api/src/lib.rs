//! The vocabulary: kinds, phases, targets, conditions, names. No IO, no clock.

pub mod crds;
pub mod deploy;
pub mod git;
pub mod k8s;
pub mod meta;
pub mod pawl;
pub mod phases;
pub mod remedy;
pub mod tekton;
