//! How are the figures told, and against which budgets?

use std::time::Duration;

use pawl_cli::terminal::Say;
use serde_json::{Value, json};

use super::super::report::Latency;
use super::controllers::Done;

/// What was promised (the git door's acceptance).
const MIN_WORKFLOWS_PER_SECOND: f64 = 150.0;
const MAX_WRITES: f64 = 8.0;
const MAX_GITHUB_CALLS: f64 = 3.0;
const MAX_CPU_MS: f64 = 3.0;
const MAX_CONCLUDE_MS: f64 = 250.0;
const MAX_PEAK_MB: f64 = 40.0;

/// How it was counted, for whoever reads only the figures.
const HOW: &str = "Workflows/s and the time to conclude on `pawl up`, if no other API server is named; all else with the \
                   controllers in a process of their own, over TLS: CPU and anonymous memory as /proc tells them of that \
                   process; writes as its own counters tell them, Events and locks included, failed ones too; GitHub calls where \
                   they arrive; Jobs are marked complete as soon as they may run, and the time to conclude starts before \
                   that request is sent";

#[derive(Debug)]
pub(super) struct Outcome {
    /// Which API server it was.
    pub(super) on: String,
    pub(super) args: String,
    /// The same load on `pawl up`, where that was measured.
    pub(super) up: Option<Load>,
    pub(super) load: Load,
    pub(super) idle: Quiet,
    /// After a new start, with everything finished.
    pub(super) restart: Quiet,
    /// From that start until all was seen.
    pub(super) ready: Duration,
    pub(super) peak_bytes: u64,
}

/// From the push to the last conclusion.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) workflows: usize,
    pub(super) took: Duration,
    pub(super) requests: Done,
    pub(super) calls: u64,
    pub(super) cpu_seconds: f64,
    pub(super) conclude: Latency,
}

/// A time in which nothing should happen.
#[derive(Debug)]
pub(super) struct Quiet {
    pub(super) seconds: Duration,
    pub(super) writes: u64,
    pub(super) calls: u64,
}

/// A figure and what it may be.
struct Line {
    name: &'static str,
    key: &'static str,
    value: f64,
    budget: f64,
    at_least: bool,
}

impl Line {
    fn holds(&self) -> bool {
        if self.at_least { self.value >= self.budget } else { self.value <= self.budget }
    }
}

impl super::Args {
    pub(super) fn told(&self) -> String {
        let (workflows, branches, limit) = (self.workflows(), self.branches, self.max_concurrent);
        format!("{workflows} Workflows from {branches} Branches, at most {limit} at a time")
    }
}

impl Outcome {
    fn lines(&self) -> Vec<Line> {
        let Load { workflows, requests, calls, cpu_seconds, .. } = &self.load;
        let Load { took, conclude, .. } = self.up.as_ref().unwrap_or(&self.load);
        let each = |count: f64| count / (*workflows).max(1) as f64;
        let most = |name, key, value, budget| Line { name, key, value, budget, at_least: false };
        let rate = *workflows as f64 / took.as_secs_f64().max(f64::EPSILON);
        let (idle, restart) = (&self.idle, &self.restart);
        vec![
            Line {
                name: "Workflows/s",
                key: "workflowsPerSecond",
                value: rate,
                budget: MIN_WORKFLOWS_PER_SECOND,
                at_least: true,
            },
            most("API writes per Workflow", "writesPerWorkflow", each(requests.writes() as f64), MAX_WRITES),
            most(
                "GitHub calls per Workflow",
                "githubCallsPerWorkflow",
                each(*calls as f64),
                MAX_GITHUB_CALLS,
            ),
            most("CPU ms per Workflow", "cpuMsPerWorkflow", each(cpu_seconds * 1000.0), MAX_CPU_MS),
            most(
                "ms to conclude, p99",
                "concludeP99Ms",
                conclude.p99.as_secs_f64() * 1000.0,
                MAX_CONCLUDE_MS,
            ),
            most("peak anonymous memory, MB", "peakMb", self.peak_bytes as f64 / 1e6, MAX_PEAK_MB),
            most("writes at rest", "idleWrites", idle.writes as f64, 0.0),
            most("GitHub calls at rest", "idleGithubCalls", idle.calls as f64, 0.0),
            most("writes after a restart", "restartWrites", restart.writes as f64, 0.0),
            most("GitHub calls after a restart", "restartGithubCalls", restart.calls as f64, 0.0),
        ]
    }

    pub(super) fn tell(&self, say: &mut dyn Say) {
        say.line(&format!("{} on {}", self.args, self.on));
        say.line(&format!("({HOW})"));
        for line in self.lines() {
            let (sign, verdict) =
                (if line.at_least { "≥" } else { "≤" }, if line.holds() { "" } else { "  missed" });
            say.line(&format!("{:<30} {:>8.2}  {sign} {}{verdict}", line.name, line.value, line.budget));
        }
        let fast = self.up.as_ref().unwrap_or(&self.load);
        let conclude = fast.conclude.p50.as_secs_f64() * 1000.0;
        let reads = self.load.requests.reads() as f64 / self.load.workflows.max(1) as f64;
        say.line(&format!("{:<30} {conclude:>8.2}", "ms to conclude, p50"));
        say.line(&format!("{:<30} {reads:>8.2}", "API reads per Workflow"));
        say.line(&format!("{:<30} {:>8.2}", "seconds", fast.took.as_secs_f64()));
        if let Some(up) = &self.up {
            let each = up.cpu_seconds * 1000.0 / up.workflows.max(1) as f64;
            say.line(&format!("{:<30} {each:>8.2}", "CPU ms of pawl up, all of it"));
            let rate = self.load.workflows as f64 / self.load.took.as_secs_f64().max(f64::EPSILON);
            say.line(&format!("{:<30} {rate:>8.2}", "Workflows/s, two processes"));
        }
        say.line(&format!("{:<30} {:>8.0}", "ms to start again", self.ready.as_secs_f64() * 1000.0));
        for ((machine, method, code), count) in &self.load.requests.requests {
            say.line(&format!("  {machine:<20} {method:<7} {code:<4} {count:>7}"));
        }
        for ((machine, outcome), count) in &self.load.requests.looks {
            say.line(&format!("  {machine:<20} looks {outcome:<6} {count:>7}"));
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let fast = self.up.as_ref().unwrap_or(&self.load);
        let figures = self.lines().into_iter().map(|line| {
            let figure = json!({"value": line.value, "budget": line.budget, "atLeast": line.at_least,
                "holds": line.holds()});
            (line.key.to_owned(), figure)
        });
        let requests: Vec<Value> = self
            .load
            .requests
            .requests
            .iter()
            .map(|((machine, method, code), count)| {
                json!({"machine": machine, "method": method, "code": code, "count": count})
            })
            .collect();
        let looks: Vec<Value> = self
            .load
            .requests
            .looks
            .iter()
            .map(
                |((machine, outcome), count)| json!({"machine": machine, "outcome": outcome, "count": count}),
            )
            .collect();
        json!({
            "on": self.on, "what": self.args, "how": HOW,
            "figures": figures.collect::<serde_json::Map<String, Value>>(),
            "seconds": fast.took.as_secs_f64(),
            "concludeP50Ms": fast.conclude.p50.as_secs_f64() * 1000.0,
            "secondsOfTwoProcesses": self.load.took.as_secs_f64(),
            "cpuSecondsOfUp": self.up.as_ref().map(|up| up.cpu_seconds),
            "readyAgainMs": self.ready.as_secs_f64() * 1000.0,
            "watchedSeconds": self.idle.seconds.as_secs() + self.restart.seconds.as_secs(),
            "requests": requests,
            "looks": looks,
        })
    }
}
