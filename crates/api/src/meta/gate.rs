//! Why a unit of work ran, or did not: one verdict per gate, kept in `status.gates[]` (I3).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text;

/// What Kubernetes allows for the reason of a condition.
pub const MAX_REASON_CHARS: usize = 1024;
/// Room for a list of what was looked at; nine gates of this stay far below what an object may hold.
pub const MAX_WORDS_CHARS: usize = 8192;

/// The gates of a unit, in the order in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum GateName {
    Validate,
    Freeze,
    Trust,
    Policy,
    DryRun,
    Preconditions,
    Approval,
    Cooldown,
    Lock,
}

/// What a gate said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Verdict {
    /// The unit may go on.
    Passed,
    /// The unit waits here; what would change it is said.
    Waiting,
    /// The unit ends here.
    Stopped,
}

/// The latest verdict of one gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gate {
    /// Which gate.
    pub gate: GateName,
    /// What it said.
    pub verdict: Verdict,
    /// A stable word, as in conditions.
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// What was looked at, in words.
    #[schemars(length(max = 8192))]
    pub looked_at: String,
    /// What would change the verdict; empty when it passed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 8192))]
    pub would_change: String,
}

impl Gate {
    pub fn passed(gate: GateName, reason: impl Into<String>, looked_at: impl Into<String>) -> Self {
        Self::new(gate, Verdict::Passed, reason, looked_at, "")
    }

    pub fn waiting(
        gate: GateName,
        reason: impl Into<String>,
        looked_at: impl Into<String>,
        would_change: impl Into<String>,
    ) -> Self {
        Self::new(gate, Verdict::Waiting, reason, looked_at, would_change)
    }

    pub fn stopped(
        gate: GateName,
        reason: impl Into<String>,
        looked_at: impl Into<String>,
        would_change: impl Into<String>,
    ) -> Self {
        Self::new(gate, Verdict::Stopped, reason, looked_at, would_change)
    }

    fn new(
        gate: GateName,
        verdict: Verdict,
        reason: impl Into<String>,
        looked_at: impl Into<String>,
        would_change: impl Into<String>,
    ) -> Self {
        Self {
            gate,
            verdict,
            reason: text::head(reason, MAX_REASON_CHARS),
            looked_at: text::head(looked_at, MAX_WORDS_CHARS),
            would_change: text::head(would_change, MAX_WORDS_CHARS),
        }
    }
}

/// The latest verdict per gate: what `now` says replaces what `before` said, the rest stays, in gate order.
pub fn merge(before: &[Gate], now: &[Gate]) -> Vec<Gate> {
    let mut merged: std::collections::BTreeMap<GateName, Gate> =
        before.iter().map(|gate| (gate.gate, gate.clone())).collect();
    merged.extend(now.iter().map(|gate| (gate.gate, gate.clone())));
    merged.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_verdict_of_each_gate_stands_in_gate_order() {
        let before = [
            Gate::waiting(GateName::Lock, "TargetLocked", "lease", "the holder finishes"),
            Gate::passed(GateName::Validate, "Valid", "spec"),
        ];
        let merged = merge(&before, &[Gate::passed(GateName::Lock, "Free", "lease")]);
        let said: Vec<_> = merged.iter().map(|gate| (gate.gate, gate.verdict)).collect();
        assert_eq!(said, [(GateName::Validate, Verdict::Passed), (GateName::Lock, Verdict::Passed)]);
    }
}
