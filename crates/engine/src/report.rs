//! What the last look at each object came to, for logs, metrics and whoever asks why nothing happens.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use pawl_machines::object::Object;
use pawl_machines::plan::{Waiting, Wake};

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

/// The last look at one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub at: Timestamp,
    pub ended: Ended,
    pub problem: Option<String>,
    /// What the machine is waiting for.
    pub waiting: Vec<Waiting>,
    pub wake: Wake,
}

/// All last looks.
#[derive(Debug, Default)]
pub struct Reports {
    by_work: Mutex<HashMap<Work, Report>>,
}

impl Reports {
    pub fn get(&self, work: &Work) -> Option<Report> {
        self.lock().get(work).cloned()
    }

    /// Every object that waits for something.
    pub fn waiting(&self) -> Vec<(Work, Report)> {
        let waits = |(_, report): &(&Work, &Report)| !report.waiting.is_empty() || report.problem.is_some();
        let waiting = self.lock();
        let waiting = waiting.iter().filter(waits).map(|(work, report)| (work.clone(), report.clone()));
        let mut waiting: Vec<(Work, Report)> = waiting.collect();
        waiting.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        waiting
    }

    pub fn set(&self, work: &Work, report: Report) {
        if report.ended == Ended::Gone {
            self.lock().remove(work);
        } else {
            self.lock().insert(work.clone(), report);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Work, Report>> {
        self.by_work.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Why nothing more happens, for whoever reads along.
pub fn waits(waiting: &[Waiting]) {
    for waiting in waiting {
        match waiting {
            Waiting::Object { kind, key, until } => {
                tracing::debug!(%kind, %key, until, "waits for an object")
            }
            Waiting::Lock { target, holder } => {
                tracing::debug!(target_name = target, holder, "waits for a lock")
            }
            Waiting::Time { at, why } => tracing::debug!(%at, why, "waits for a time"),
            Waiting::Kind(kind) => tracing::debug!(%kind, "waits for a kind to be served"),
        }
    }
}
