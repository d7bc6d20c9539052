//! What did policies say, for whoever watches? Read when somebody looks.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

use crate::port::{Counts, Port};

/// Register with `Metrics::with_registry(|registry| registry.register_collector(Box::new(port)))`.
impl Collector for Port {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Counts { allowed, denied, failed, outdated, conditions } = &self.counts;
        let count = |of: &AtomicU64| ConstCounter::new(of.load(Ordering::Relaxed));
        let help = "Evaluations of policies, by what they said; an error denies";
        let mut said = encoder.encode_descriptor("policy_evaluations", help, None, MetricType::Counter)?;
        for (verdict, of) in [("allowed", allowed), ("denied", denied), ("error", failed)] {
            count(of).encode(said.encode_family(&[("verdict", verdict)])?)?;
        }
        let help = "Evaluations of older policies, because the newest cannot be used";
        let outdated_said =
            encoder.encode_descriptor("policy_outdated_evaluations", help, None, MetricType::Counter)?;
        count(outdated).encode(outdated_said)?;
        let help = "Evaluations of pre- and postconditions";
        let held = encoder.encode_descriptor("condition_evaluations", help, None, MetricType::Counter)?;
        count(conditions).encode(held)
    }
}
