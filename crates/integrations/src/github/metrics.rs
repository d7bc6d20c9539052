//! What does each Repository cost at GitHub, for whoever watches? Read from the clients when somebody looks.

use std::fmt;
use std::sync::Arc;

use pawl_machines::git::github::Account;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::budget::Count;
use super::client::Client;
use super::port::Port;

/// Register with `Metrics::with_registry(|registry| registry.register_collector(Box::new(port)))`.
impl Collector for Port {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let clients = self.clients();
        let mut requests = encoder.encode_descriptor(
            "github_requests",
            "Requests to GitHub, by Repository, what they were for, and how they ended",
            None,
            MetricType::Counter,
        )?;
        for (account, client) in &clients {
            for (endpoint, count) in &client.budget().by_endpoint {
                for (ended, count) in outcomes(*count) {
                    let of = repository(account);
                    let labels = [
                        ("repository", of.as_str()),
                        ("uid", &account.uid),
                        ("for", endpoint.as_str()),
                        ("ended", ended),
                    ];
                    ConstCounter::new(count).encode(requests.encode_family(&labels)?)?;
                }
            }
        }
        let mut remaining = encoder.encode_descriptor(
            "github_rate_limit_remaining",
            "Requests that GitHub said are left of the hour, by Repository",
            None,
            MetricType::Gauge,
        )?;
        for (account, left) in clients.iter().filter_map(left) {
            let of = repository(account);
            let labels = [("repository", of.as_str()), ("uid", &account.uid)];
            ConstGauge::new(i64::from(left)).encode(remaining.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn left((account, client): &(Arc<Account>, Client)) -> Option<(&Account, u32)> {
    Some((account, client.rate_limit()?.remaining))
}

fn repository(account: &Account) -> String {
    format!("{}/{}", account.owner, account.name)
}

fn outcomes(count: Count) -> [(&'static str, u64); 3] {
    let Count { sent, not_modified, failed } = count;
    [("answered", sent - not_modified - failed), ("not-modified", not_modified), ("failed", failed)]
}
