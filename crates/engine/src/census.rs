//! How many objects are in which phase, who holds locks, and who waits for them? Counted when somebody asks, from the
//! caches, so that a count is never out of step with what there is.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use pawl_api::meta::{Kind, Phase as _, Reason};
use pawl_api::pawl::conditions::TARGET_LOCKED;
use pawl_api::remedy::{
    KubernetesExecutionPhase, RemediationPhase, kubernetes_execution, remediation_request,
};
use pawl_machines::lock::{self, Lock};
use pawl_machines::machine::Primary;
use pawl_machines::view::View as _;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use serde_json::Value;

use crate::engine::Core;

/// Counts what a loop's caches hold, for as long as the loop is there.
#[derive(Debug)]
pub(crate) struct Census(Weak<Core>);

/// A family of numbers: by the values of its labels.
type Counted<const N: usize> = BTreeMap<[String; N], i64>;

#[derive(Debug, Default)]
struct Counts {
    /// By kind and phase; every phase of a kind that is watched is there.
    objects: Counted<2>,
    /// By the kind of the holder.
    held: Counted<1>,
    /// By the kind of who waits.
    waiting: Counted<1>,
    /// By the kind of what people are asked about; only kinds that ask.
    approving: Counted<1>,
}

impl Census {
    pub(crate) fn of(core: &Arc<Core>) -> Self {
        Self(Arc::downgrade(core))
    }
}

impl Collector for Census {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(core) = self.0.upgrade() else { return Ok(()) };
        let Counts { objects, held, waiting, approving } = count(&core);
        let about = "Objects that are there, by kind and phase";
        family(&mut encoder, "objects", about, ["kind", "phase"], &objects)?;
        let about = "Targets that are locked, by the kind of who holds them";
        family(&mut encoder, "locks_held", about, ["kind"], &held)?;
        let about = "Units that wait for a target that somebody else holds, by kind";
        family(&mut encoder, "lock_waiters", about, ["kind"], &waiting)?;
        let about = "Units that wait for somebody to approve them, by kind";
        family(&mut encoder, "approvals_waiting", about, ["kind"], &approving)?;
        let about = "Entries of the audit ledger that are not stored yet, in memory or in the outbox";
        let backlog = i64::try_from(core.ledger.backlog()).unwrap_or(i64::MAX);
        let gauge = encoder.encode_descriptor("audit_backlog", about, None, MetricType::Gauge)?;
        ConstGauge::new(backlog).encode(gauge)
    }
}

fn family<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    about: &str,
    labels: [&'static str; N],
    counted: &Counted<N>,
) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(name, about, None, MetricType::Gauge)?;
    for (values, count) in counted {
        let labels: Vec<(&str, &str)> =
            labels.iter().copied().zip(values.iter().map(String::as_str)).collect();
        ConstGauge::new(*count).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn count(core: &Core) -> Counts {
    let mut counts = Counts::default();
    for machine in core.router.machines() {
        let description = machine.description();
        let (Some(table), Primary::One(kind)) = (&description.phases, &description.primary) else { continue };
        let of_kind = kind.kind.to_string();
        for phase in &table.all {
            counts.objects.insert([of_kind.clone(), (*phase).to_owned()], 0);
        }
        let waiting = counts.waiting.entry([of_kind.clone()]).or_default();
        let [_, field] = table.field;
        for object in core.caches.list(kind, None) {
            // What has no phase yet has not been looked at; a phase that is no word of ours is nobody's to count.
            let status: Value = object.glance();
            let phase = status.get(field).and_then(Value::as_str).unwrap_or_default();
            // Who was skipped for a target that was taken says so for ever, and waits for nothing.
            *waiting += i64::from(!table.terminal.contains(&phase) && waits(kind, &status));
            if let Some(count) = counts.objects.get_mut(&[of_kind.clone(), phase.to_owned()]) {
                *count += 1;
            }
        }
    }
    let asking = kubernetes_execution::KIND.kind.to_string();
    let asked = [asking.clone(), KubernetesExecutionPhase::WaitingApproval.as_str().to_owned()];
    counts.approving = counts.objects.get(&asked).map(|count| ([asking], *count)).into_iter().collect();
    for lease in core.caches.list(&lock::LEASE, None) {
        if let (Some(_), Lock::Held(holder)) = (lock::target_hash(&lease), lock::read(Some(&lease))) {
            // Whatever else a Lease may claim, series are only of kinds that we run.
            let kind = [holder.unit.kind.kind.to_string()];
            let known = counts.waiting.contains_key(&kind);
            *counts.held.entry(if known { kind } else { ["Other".to_owned()] }).or_default() += 1;
        }
    }
    counts
}

/// Whether it says that a target which it wants is somebody else's.
fn waits(kind: &Kind, status: &Value) -> bool {
    let text = |field: &str| status.get(field).and_then(Value::as_str);
    if *kind == remediation_request::KIND {
        return text("overallPhase") == Some(RemediationPhase::Blocked.as_str())
            && text("blockReason") == Some(Reason::ResourceBusy.as_str());
    }
    let conditions = status.get("conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|one| {
        let text = |field: &str| one.get(field).and_then(Value::as_str);
        text("type") == Some(TARGET_LOCKED) && text("status") == Some("True")
    })
}
