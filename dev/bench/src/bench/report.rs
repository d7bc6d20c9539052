//! How are the rows told?

use std::time::Duration;

use pawl_cli::terminal::Say;
use serde_json::{Value, json};

use super::process::Usage;

/// One line of the report.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) name: &'static str,
    /// Connections that send, or watchers.
    pub(super) connections: usize,
    /// Requests answered, or events seen.
    pub(super) count: usize,
    pub(super) seconds: f64,
    pub(super) latency: Latency,
    /// The size of one answer, where that matters.
    pub(super) bytes: Option<usize>,
    /// What the server's process used meanwhile.
    pub(super) server_cpu_seconds: Option<f64>,
}

/// How long single requests or events took.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Latency {
    pub(super) p50: Duration,
    pub(super) p99: Duration,
}

impl Latency {
    pub(super) fn of(mut took: Vec<Duration>) -> Latency {
        took.sort_unstable();
        let at = |percent: usize| {
            // The smallest value that so many percent are not above.
            let rank = (took.len() * percent).div_ceil(100).saturating_sub(1);
            took.get(rank).copied().unwrap_or_default()
        };
        Latency { p50: at(50), p99: at(99) }
    }
}

/// Everything measured of one server.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) server: String,
    pub(super) rows: Vec<Row>,
    /// Before anything was asked of it, with all objects there, and at the end.
    pub(super) usage: Option<Used>,
    /// How many objects were there at the most.
    pub(super) objects: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Used {
    pub(super) idle: Usage,
    pub(super) filled: Usage,
    pub(super) end: Usage,
}

impl Report {
    /// A table for people.
    pub(super) fn tell(&self, say: &mut dyn Say) {
        say.line(&format!("server: {}", self.server));
        say.line(&format!(
            "{:<22} {:>5} {:>8} {:>8} {:>10} {:>9} {:>9} {:>10} {:>12}",
            "row", "conns", "count", "seconds", "per second", "p50 ms", "p99 ms", "bytes", "server CPU s"
        ));
        for row in &self.rows {
            say.line(&format!(
                "{:<22} {:>5} {:>8} {:>8.2} {:>10.0} {:>9.3} {:>9.3} {:>10} {:>12}",
                row.name,
                row.connections,
                row.count,
                row.seconds,
                row.per_second(),
                millis(row.latency.p50),
                millis(row.latency.p99),
                row.bytes.map(|b| b.to_string()).unwrap_or_default(),
                row.server_cpu_seconds.map(|s| format!("{s:.2}")).unwrap_or_default(),
            ));
        }
        let Some(used) = &self.usage else { return };
        say.line(&format!(
            "server's anonymous memory: {:.1} MiB idle, {:.1} MiB with {} objects, {:.1} MiB at its peak; {:.2} s of CPU in all",
            mib(used.idle.anonymous_bytes),
            mib(used.filled.anonymous_bytes),
            self.objects,
            mib(used.end.peak_bytes),
            used.end.cpu_seconds - used.idle.cpu_seconds,
        ));
    }

    /// The same for programs.
    pub(super) fn to_json(&self) -> Value {
        let usage = self.usage.as_ref().map(|used| {
            json!({
                "idleBytes": used.idle.anonymous_bytes,
                "filledBytes": used.filled.anonymous_bytes,
                "peakBytes": used.end.peak_bytes,
                "cpuSeconds": used.end.cpu_seconds - used.idle.cpu_seconds,
            })
        });
        json!({
            "server": self.server,
            "objects": self.objects,
            "process": usage,
            "rows": self.rows.iter().map(Row::to_json).collect::<Vec<_>>(),
        })
    }
}

impl Row {
    fn per_second(&self) -> f64 {
        self.count as f64 / self.seconds.max(f64::EPSILON)
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "connections": self.connections,
            "count": self.count,
            "seconds": self.seconds,
            "perSecond": self.per_second(),
            "p50Ms": millis(self.latency.p50),
            "p99Ms": millis(self.latency.p99),
            "bytes": self.bytes,
            "serverCpuSeconds": self.server_cpu_seconds,
        })
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let micros = |n| Duration::from_micros(n);
        let latency = Latency::of((1..=200).rev().map(micros).collect());
        assert_eq!((latency.p50, latency.p99), (micros(100), micros(198)));
        let one = Latency::of(vec![micros(7)]);
        assert_eq!((one.p50, one.p99), (micros(7), micros(7)));
        assert_eq!(Latency::of(Vec::new()).p99, Duration::ZERO);
    }
}
