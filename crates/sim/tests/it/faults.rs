//! Whatever goes wrong, every promise is kept.

use pawl_sim::campaign::{self, Simulator};
use pawl_sim::mutant::Guards;
use pawl_sim::scenarios;

/// Seeds per scenario in a test run: enough to meet every fault at most requests; `pawl sim` runs more.
const INNER_SEEDS: u64 = 60;
/// A world with a GitHub takes some ten times as long, for it lives through a day and a half.
const HUB_SEEDS: u64 = 10;
const OUTER_SEEDS: u64 = 6;
const OUTER_HUB_SEEDS: u64 = 1;

fn check(simulator: Simulator, seeds: u64, of_hubs: u64) {
    let mut failures = Vec::new();
    for scenario in scenarios::all() {
        let seeds = if scenario.github.is_some() { of_hubs } else { seeds };
        let report = campaign::seeds(simulator, &scenario, 1..=seeds, Guards::default(), false);
        if let Some(failure) = report.failure {
            failures.push(format!("{failure}\n{}", failure.trace.join("\n")));
        }
    }
    assert!(failures.is_empty(), "{} failed\n{}", failures.len(), failures.join("\n\n"));
}

#[test]
fn every_scenario_keeps_every_promise_under_faults() {
    check(Simulator::Inner, INNER_SEEDS, HUB_SEEDS);
}

#[test]
fn the_real_loop_keeps_every_promise_under_faults() {
    check(Simulator::Outer, OUTER_SEEDS, OUTER_HUB_SEEDS);
}
