//! Every decision, and nothing else: no clock, no client, no async, no randomness.
//!
//! A machine answers one question about one kind of object: given what was observed and the time, what should be
//! done next? `reconcile` reads a [`view::View`] and returns a plan, [`apply`] turns the plan into requests. Both
//! are plain functions, so the loop, both simulators and the tests run the very same code.

pub mod apply;
pub mod audit;
pub mod backoff;
pub mod cache;
pub mod cluster;
pub mod dag;
pub mod deploy;
pub mod external;
pub mod failure;
pub mod freeze;
pub mod git;
pub mod hardening;
pub mod held_run;
mod json;
pub mod lifecycle;
pub mod lock;
pub mod logs;
pub mod machine;
pub mod object;
pub mod plan;
pub mod pods;
pub mod remedy;
mod request;
pub mod story;
#[cfg(test)]
mod testing;
mod time;
pub mod view;
mod yaml;
