//! What did a status that was written mean, for whoever counts? Derived from the state before and the state after, so that
//! no machine has to remember to count.
//!
//! Every label comes from a closed list: the kinds of our machines, the words of their phases, gates and reasons.

use jiff::Timestamp;
use pawl_api::meta::{Gate, Reason};
use pawl_api::remedy::Action;
use pawl_api::remedy::kubernetes_execution::{self, ActionOutcome};
use pawl_machines::machine::AnyMachine;
use pawl_machines::object::Object;
use serde::{Deserialize as _, Serialize};
use serde_json::Value;

use crate::metrics::{ActionLabels, GateLabels, Metrics, PhaseLabels, ReasonLabels};

/// What a reason is called that is none of ours.
const OTHER: &str = "Other";

/// The phase of those that were not run for a reason that is no failure.
const SKIPPED: &str = "Skipped";

/// What there is to count once a status is written.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    moved: Option<PhaseLabels>,
    /// How long it took, of what has come to its end.
    took: Option<(PhaseLabels, f64)>,
    skipped: Option<ReasonLabels>,
    gates: Vec<GateLabels>,
    acted: Option<ActionLabels>,
}

impl Outcomes {
    /// What writing this status would mean.
    pub(crate) fn of(machine: &AnyMachine, me: &Object, status: Option<&Value>, now: Timestamp) -> Self {
        let Some((status, table)) = status.zip(machine.description().phases.as_ref()) else {
            return Self::default();
        };
        let kind = table.kind.kind.to_string();
        let gates = gates(&kind, me.status(), status);
        let acted = acted(me, status);
        let [_, field] = table.field;
        let (from, to) = (text(me.status(), field), text(status, field));
        let known =
            to.filter(|to| from != Some(to)).and_then(|to| table.all.iter().find(|word| **word == to));
        let Some(phase) = known.copied() else { return Self { gates, acted, ..Self::default() } };
        let job = |status| text(status, "jobIDFinished").map(str::to_owned);
        let is_over = table.terminal.contains(&phase) || job(me.status()) != job(status);
        let moved = PhaseLabels { kind: kind.clone(), phase };
        let took = started(me, status).filter(|_| is_over && phase != SKIPPED).map(|from| {
            let until = time(status, "completionTime").unwrap_or(now);
            (moved.clone(), until.duration_since(from).as_secs_f64().max(0.0))
        });
        let skipped = (phase == SKIPPED).then(|| ReasonLabels { kind, reason: reason(status) });
        Self { moved: Some(moved), took, skipped, gates, acted }
    }

    /// It is written.
    pub(crate) fn count(self, metrics: &Metrics) {
        let Self { moved, took, skipped, gates, acted } = self;
        if let Some(labels) = moved {
            metrics.phase_changes.get_or_create(&labels).inc();
        }
        if let Some((labels, seconds)) = took {
            metrics.outcome_durations.get_or_create(&labels).observe(seconds);
        }
        if let Some(labels) = skipped {
            metrics.skips.get_or_create(&labels).inc();
        }
        for labels in gates {
            metrics.gate_verdicts.get_or_create(&labels).inc();
        }
        if let Some(labels) = acted {
            metrics.action_outcomes.get_or_create(&labels).inc();
        }
    }
}

/// When the work that has ended was begun: a run, or a job of something that has more than one.
fn started(me: &Object, status: &Value) -> Option<Timestamp> {
    let triggered = status.get("transitionTimes").and_then(|times| time(times, "triggerTime"));
    let begun = time(status, "startTime").or(triggered).or_else(|| time(status, "jobIDGenerationTime"));
    begun.or_else(|| me.meta().creation_timestamp.as_ref().map(|at| at.0))
}

/// The verdicts that are new in this status.
fn gates(kind: &str, before: &Value, after: &Value) -> Vec<GateLabels> {
    let read = |status: &Value| {
        status.get("gates").and_then(|gates| Vec::<Gate>::deserialize(gates).ok()).unwrap_or_default()
    };
    let before = read(before);
    let new = read(after).into_iter().filter(|gate| !before.contains(gate));
    new.map(|gate| GateLabels { kind: kind.to_owned(), gate: word(&gate.gate), verdict: word(&gate.verdict) })
        .collect()
}

/// What an action came to, when its status says so for the first time.
fn acted(me: &Object, status: &Value) -> Option<ActionLabels> {
    if *me.kind() != kubernetes_execution::KIND || text(me.status(), "outcome").is_some() {
        return None;
    }
    let outcome = ActionOutcome::deserialize(status.get("outcome")?).ok()?;
    let action = Action::deserialize(me.raw().get("spec")?.get("action")?).ok()?;
    let outcome = match outcome {
        ActionOutcome::Success => "success",
        ActionOutcome::PartialSuccess => "partial_success",
        ActionOutcome::Failed => "failed",
    };
    Some(ActionLabels { action: action.as_str(), outcome, reason: reason(status) })
}

/// As it is written in JSON.
fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn reason(status: &Value) -> &'static str {
    let said = text(status, "reason").unwrap_or_default();
    Reason::ALL.iter().map(|reason| reason.as_str()).find(|known| *known == said).unwrap_or(OTHER)
}

fn text<'a>(status: &'a Value, field: &str) -> Option<&'a str> {
    status.get(field).and_then(Value::as_str)
}

fn time(status: &Value, field: &str) -> Option<Timestamp> {
    text(status, field)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pawl_api::remedy::workflow_execution;
    use pawl_machines::remedy::kubernetes_execution::KubernetesExecutions;
    use pawl_machines::remedy::workflow_execution::WorkflowExecutions;
    use serde_json::json;

    /// What is counted when an execution that was `before` becomes `after`.
    fn counted(before: &Value, after: &Value) -> String {
        let metadata =
            json!({"name": "w", "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"});
        let me =
            Object::new(workflow_execution::KIND, json!({"metadata": metadata, "status": before})).unwrap();
        let machine = AnyMachine::new(WorkflowExecutions::default());
        let metrics = Metrics::default();
        Outcomes::of(&machine, &me, Some(after), "2026-01-01T00:01:00Z".parse().unwrap()).count(&metrics);
        metrics.exposition()
    }

    #[test]
    fn an_end_is_counted_with_how_long_it_took() {
        let times = json!({"phase": "Completed", "startTime": "2026-01-01T00:00:10Z",
            "completionTime": "2026-01-01T00:00:14Z"});
        let text = counted(&json!({"phase": "Running"}), &times);
        for line in [
            "pawl_phase_changes_total{kind=\"WorkflowExecution\",phase=\"Completed\"} 1",
            "pawl_outcome_duration_seconds_sum{kind=\"WorkflowExecution\",phase=\"Completed\"} 4.0",
            "pawl_outcome_duration_seconds_count{kind=\"WorkflowExecution\",phase=\"Completed\"} 1",
        ] {
            assert!(text.contains(line), "{line} is missing from\n{text}");
        }
        assert!(!counted(&json!({}), &json!({"phase": "Running"})).contains("outcome_duration_seconds_sum{"));
    }

    #[test]
    fn a_skip_is_counted_by_its_reason_and_a_word_that_is_no_reason_opens_no_series() {
        let skipped = |reason: &str| counted(&json!({}), &json!({"phase": "Skipped", "reason": reason}));
        let line =
            |reason: &str| format!("pawl_skips_total{{kind=\"WorkflowExecution\",reason=\"{reason}\"}} 1");
        assert!(skipped("ResourceBusy").contains(&line("ResourceBusy")));
        assert!(skipped("made up").contains(&line(OTHER)));
    }

    #[test]
    fn a_verdict_is_counted_when_it_changes() {
        let gate =
            |verdict: &str| json!({"gate": "Lock", "verdict": verdict, "reason": "r", "lookedAt": "t"});
        let line = "pawl_gate_verdicts_total{kind=\"WorkflowExecution\",gate=\"Lock\",verdict=\"Passed\"} 1";
        let passed = json!({"phase": "Running", "gates": [gate("Passed")]});
        assert!(counted(&json!({"phase": "Running", "gates": [gate("Waiting")]}), &passed).contains(line));
        assert!(!counted(&passed, &passed).contains("gate_verdicts_total{"));
    }

    #[test]
    fn what_an_action_came_to_is_counted_once_by_what_was_done_and_why_it_ended() {
        let counted = |before: Value, after: Value| {
            let me = json!({"metadata": {"name": "k", "namespace": "n", "uid": "u"},
                "spec": {"action": "scale_deployment"}, "status": before});
            let me = Object::new(kubernetes_execution::KIND, me).unwrap();
            let machine = AnyMachine::new(KubernetesExecutions::default());
            let metrics = Metrics::default();
            Outcomes::of(&machine, &me, Some(&after), "2026-01-01T00:01:00Z".parse().unwrap())
                .count(&metrics);
            metrics.exposition()
        };
        let failed = json!({"phase": "failed", "reason": "postcondition_failed", "outcome": "failed"});
        let line = "pawl_action_outcomes_total{action=\"scale_deployment\",outcome=\"failed\",\
            reason=\"postcondition_failed\"} 1";
        assert!(counted(json!({"phase": "executing"}), failed.clone()).contains(line));
        let done = json!({"phase": "rollback_ready", "reason": "Completed", "outcome": "success"});
        let over = json!({"phase": "completed", "reason": "Completed", "outcome": "success"});
        assert!(
            !counted(done, over).contains("action_outcomes_total{"),
            "the end of the offer is no outcome"
        );
    }
}
