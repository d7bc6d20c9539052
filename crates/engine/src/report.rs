//! How a reconcile ended, for logs and metrics.

use std::time::Duration;

use pawl_machines::object::Object;

use crate::error::Error;
use crate::metrics::{ErrorLabels, MachineLabels, Metrics, OutcomeLabels};
use crate::queue::Work;

/// How a look ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// There was nothing to write.
    Quiet,
    /// Something was written.
    Acted,
    Failed,
    /// The object is gone.
    Gone,
}

impl Ended {
    /// A word for logs and metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Acted => "acted",
            Self::Failed => "failed",
            Self::Gone => "gone",
        }
    }
}

/// The span that puts machine and object on every line that is logged about it.
pub fn span(machine: &'static str, work: &Work, me: Option<&Object>) -> tracing::Span {
    tracing::info_span!("reconcile", machine, kind = %work.kind, namespace = work.key.namespace,
        name = work.key.name, uid = me.map(Object::uid))
}

/// Counts and logs the end of a look.
pub fn ended(metrics: &Metrics, machine: &'static str, ended: Ended, took: Duration, error: Option<&Error>) {
    metrics.reconciles.get_or_create(&OutcomeLabels { machine, outcome: ended.as_str() }).inc();
    metrics.durations.get_or_create(&MachineLabels { machine }).observe(took.as_secs_f64());
    match error {
        None => tracing::debug!(outcome = ended.as_str(), ?took, "looked"),
        Some(error) => {
            let category = error.category();
            metrics.errors.get_or_create(&ErrorLabels { machine, category }).inc();
            if error.is_defect() {
                tracing::error!(category, ?took, %error, "failed");
            } else if error.is_routine() {
                tracing::debug!(category, ?took, %error, "has to look again");
            } else {
                tracing::warn!(category, ?took, %error, "failed");
            }
        }
    }
}
