//! What the loop counts, for Prometheus. Names are a promise to dashboards: they are listed in the test.

use std::sync::{Mutex, PoisonError};

use pawl_api::meta::Kind;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};

use crate::caches::Standing;

/// All of a loop's counters.
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    pub reconciles: Family<OutcomeLabels, Counter>,
    pub durations: Family<MachineLabels, Histogram>,
    pub depth: Family<MachineLabels, Gauge>,
    pub errors: Family<ErrorLabels, Counter>,
    pub requests: Family<RequestLabels, Counter>,
    pub outside: Family<OutsideLabels, Counter>,
    pub lost_notes: Family<MachineLabels, Counter>,
    pub phase_changes: Family<PhaseLabels, Counter>,
    pub outcome_durations: Family<PhaseLabels, Histogram>,
    pub skips: Family<ReasonLabels, Counter>,
    pub gate_verdicts: Family<GateLabels, Counter>,
    pub action_outcomes: Family<ActionLabels, Counter>,
    pub watches: Family<StandingLabels, Gauge>,
    pub watch_restarts: Family<RestartLabels, Counter>,
    pub malformed: Family<KindLabels, Counter>,
    pub leading: Gauge,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct MachineLabels {
    pub machine: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct OutcomeLabels {
    pub machine: &'static str,
    pub outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ErrorLabels {
    pub machine: &'static str,
    pub category: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct RequestLabels {
    pub machine: &'static str,
    pub method: String,
    /// The answer's code, or 0 when none came.
    pub code: u32,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct OutsideLabels {
    pub machine: &'static str,
    /// Which system was asked.
    pub port: &'static str,
    /// `ok`, or the failure's category.
    pub ended: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct PhaseLabels {
    pub kind: String,
    /// The one that objects have come to.
    pub phase: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ReasonLabels {
    pub kind: String,
    pub reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct GateLabels {
    pub kind: String,
    pub gate: String,
    pub verdict: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ActionLabels {
    pub action: &'static str,
    pub outcome: &'static str,
    pub reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct KindLabels {
    pub kind: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct StandingLabels {
    pub kind: String,
    pub state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct RestartLabels {
    pub kind: String,
    pub reason: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("pawl");
        let all = &mut registry;
        Self {
            reconciles: added(all, "reconciles", "Looks at an object, by what they came to"),
            // From half a millisecond (a decision without writes) to 16 s, past which a request's time-out shows.
            durations: registered(
                all,
                "reconcile_duration_seconds",
                "From taking an object to the end of applying its plan",
                Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.0005, 2.0, 16))),
            ),
            depth: added(all, "queue_depth", "Objects waiting to be looked at"),
            errors: added(all, "errors", "Looks that failed, by category"),
            requests: added(all, "requests", "Requests made by plans, by method and answer (0: none came)"),
            outside: added(
                all,
                "outside_calls",
                "Calls to other systems made by plans, by what they came to",
            ),
            lost_notes: added(all, "lost_notes", "Events that could not be written"),
            phase_changes: added(all, "phase_changes", "Objects that came to a phase, by kind and phase"),
            // From a tenth of a second (an instant Job) to nine hours, past which every timeout shows.
            outcome_durations: registered(
                all,
                "outcome_duration_seconds",
                "From the start of a run or job to its end, by kind and the phase it ended in",
                Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.1, 2.5, 14))),
            ),
            skips: added(all, "skips", "Units that were not run, by kind and reason"),
            gate_verdicts: added(
                all,
                "gate_verdicts",
                "Verdicts of gates that changed, by kind, gate and verdict",
            ),
            action_outcomes: added(
                all,
                "action_outcomes",
                "Actions that came to their end, by action, outcome and reason",
            ),
            watches: added(all, "watch_state", "1 for the state a kind's watch is in"),
            watch_restarts: added(all, "watch_restarts", "Watches that had to start over, by reason"),
            malformed: added(
                all,
                "malformed_objects",
                "Objects that were skipped because their metadata cannot be read",
            ),
            leading: added(all, "leader", "1 while this process may act"),
            registry: Mutex::new(registry),
        }
    }
}

fn added<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    registered(registry, name, help, M::default())
}

fn registered<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

impl Metrics {
    /// The text that Prometheus reads.
    pub fn exposition(&self) -> String {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing to a String cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
        text
    }

    pub fn standing(&self, kind: &Kind, now: Standing) {
        for standing in Standing::ALL {
            let labels = StandingLabels { kind: kind.to_string(), state: standing.as_str() };
            self.watches.get_or_create(&labels).set(i64::from(standing == now));
        }
    }

    /// Takes a kind that is no longer watched out of the exposition.
    pub fn unwatched(&self, kind: &Kind) {
        for standing in Standing::ALL {
            self.watches.remove(&StandingLabels { kind: kind.to_string(), state: standing.as_str() });
        }
    }

    /// Adds others' metrics to the same exposition.
    pub fn with_registry(&self, register: impl FnOnce(&mut Registry)) {
        register(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exposition_has_every_promised_name() {
        let metrics = Metrics::default();
        let kind = Kind::of("batch", "v1", "Job", "jobs", true);
        metrics.standing(&kind, Standing::Live);
        metrics.reconciles.get_or_create(&OutcomeLabels { machine: "m", outcome: "settled" }).inc();
        let machine = MachineLabels { machine: "m" };
        metrics.durations.get_or_create(&machine).observe(0.1);
        metrics.depth.get_or_create(&machine).set(3);
        metrics.lost_notes.get_or_create(&machine).inc();
        metrics.phase_changes.get_or_create(&PhaseLabels { kind: "Job".into(), phase: "Done" }).inc();
        metrics.errors.get_or_create(&ErrorLabels { machine: "m", category: "panic" }).inc();
        metrics.requests.get_or_create(&RequestLabels { machine: "m", method: "GET".into(), code: 0 }).inc();
        let asked = OutsideLabels { machine: "m", port: "github", ended: "ok" };
        metrics.outside.get_or_create(&asked).inc();
        metrics.watch_restarts.get_or_create(&RestartLabels { kind: "Job".into(), reason: "expired" }).inc();
        metrics.malformed.get_or_create(&KindLabels { kind: "Job".into() }).inc();
        let text = metrics.exposition();
        for name in [
            "pawl_reconciles_total{machine=\"m\",outcome=\"settled\"} 1",
            "pawl_reconcile_duration_seconds_bucket",
            "pawl_queue_depth{machine=\"m\"} 3",
            "pawl_errors_total{machine=\"m\",category=\"panic\"} 1",
            "pawl_requests_total{",
            "pawl_outside_calls_total{machine=\"m\",port=\"github\",ended=\"ok\"} 1",
            "pawl_lost_notes_total{",
            "pawl_phase_changes_total{kind=\"Job\",phase=\"Done\"} 1",
            "pawl_watch_state{kind=\"Job.batch\",state=\"live\"} 1",
            "pawl_watch_restarts_total{",
            "pawl_malformed_objects_total{",
            "pawl_leader 0",
        ] {
            assert!(text.contains(name), "{name} is missing from\n{text}");
        }
    }
}
