//! The vocabulary: kinds, phases, targets, conditions, names. No IO, no clock.
//!
//! One file per kind, by door; what they share is in `meta`. `crds::all()` is what gets installed, `phases`
//! says which moves a reader may ever see.

#![expect(clippy::duplicated_attributes, reason = "kube's printcolumn(…) repeats its type_ once per column")]

pub mod crds;
pub mod deploy;
pub mod git;
pub mod k8s;
pub mod meta;
pub mod pawl;
pub mod phases;
pub mod remedy;
pub mod tekton;
