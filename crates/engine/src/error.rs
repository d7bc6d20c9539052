//! What can go wrong in the loop itself, and what is done about it.

use std::time::Duration;

use pawl_machines::failure::{Category, Failure};
use pawl_machines::machine::Fault;

/// A look at an object that did not end well, or a loop that could not be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no machine was given: there is nothing to do")]
    NoMachine,
    #[error("two machines are called {name}: their metrics and Events could not be told apart")]
    SameName { name: &'static str },
    #[error("{about}: the machine {machine} panicked: {problem}")]
    Panicked { machine: &'static str, about: String, problem: String },
    #[error(transparent)]
    Fault(#[from] Fault),
    #[error(transparent)]
    Request(#[from] Failure),
    #[error("{about}: the cache has not shown {missing} within {waited:?}")]
    Behind { about: String, missing: String, waited: Duration },
    #[error("{about}: this process no longer leads, so the rest of the plan is left to the one that does")]
    Deposed { about: String },
    #[error("{about}: still asking after {rounds} rounds of questions")]
    Endless { about: String, rounds: usize },
    #[error("serve health and metrics: {0}")]
    Serve(#[from] std::io::Error),
}

impl Error {
    /// A word for the metric label and the log.
    pub fn category(&self) -> &'static str {
        match self {
            Self::NoMachine | Self::SameName { .. } => "configuration",
            Self::Panicked { .. } => "panic",
            Self::Fault(_) => "fault",
            Self::Request(failure) => failure.category.as_str(),
            Self::Behind { .. } => "behind",
            Self::Deposed { .. } => "deposed",
            Self::Endless { .. } => "endless",
            Self::Serve(_) => "io",
        }
    }

    /// Whether it is one of ours to fix, rather than a cluster's bad day.
    pub fn is_defect(&self) -> bool {
        match self {
            Self::Panicked { .. } | Self::Fault(_) | Self::Endless { .. } => true,
            Self::Request(failure) => failure.category == Category::Permanent,
            Self::NoMachine
            | Self::SameName { .. }
            | Self::Behind { .. }
            | Self::Deposed { .. }
            | Self::Serve(_) => false,
        }
    }

    /// Whether it happens in a healthy cluster too: somebody else was faster, or took over.
    pub fn is_routine(&self) -> bool {
        match self {
            Self::Request(failure) => matches!(failure.category, Category::Conflict | Category::NotFound),
            Self::Deposed { .. } => true,
            Self::NoMachine
            | Self::SameName { .. }
            | Self::Panicked { .. }
            | Self::Fault(_)
            | Self::Endless { .. }
            | Self::Behind { .. }
            | Self::Serve(_) => false,
        }
    }

    /// How long whoever failed us asked to be left alone; everything is tried again with back-off.
    pub fn retry(&self) -> Option<Duration> {
        match self {
            Self::Request(failure) => failure.retry_after,
            Self::NoMachine
            | Self::SameName { .. }
            | Self::Panicked { .. }
            | Self::Fault(_)
            | Self::Endless { .. }
            | Self::Behind { .. }
            | Self::Deposed { .. }
            | Self::Serve(_) => None,
        }
    }
}
