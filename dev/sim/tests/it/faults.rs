//! Whatever goes wrong, every promise is kept; and a change that means to change no behaviour sends the same requests.
//!
//! `tests/data/traces.txt` holds the hash of every run's requests ([`pawl_sim::record`]). `make traces` compares all of
//! it, `make traces BLESS=1` writes it anew: a commit that does says which scenarios changed and why.

use std::path::Path;

use pawl_sim::campaign::{self, Simulator};
use pawl_sim::mutant::Guards;
use pawl_sim::{record, scenarios};

/// Seeds per scenario in a test run: enough to meet every fault at most requests; `pawl-dev sim` runs more.
const INNER_SEEDS: u64 = 60;
/// A world with a GitHub takes some ten times as long, for it lives through a day and a half.
const HUB_SEEDS: u64 = 10;
const OUTER_SEEDS: u64 = 6;
const OUTER_HUB_SEEDS: u64 = 1;

const RECORD: &str = "tests/data/traces.txt";

fn check(simulator: Simulator, seeds: u64, of_hubs: u64) {
    let (mut failures, mut lines) = (Vec::new(), Vec::new());
    for scenario in scenarios::all() {
        let seeds = if scenario.github.is_some() { of_hubs } else { seeds };
        let report = campaign::seeds(simulator, &scenario, 1..=seeds, Guards::default(), false);
        if let Some(failure) = report.failure {
            failures.push(format!("{failure}\n{}", failure.trace.join("\n")));
        }
        lines.push(record::line(simulator, scenario.name, &report.hashes));
    }
    assert!(failures.is_empty(), "{} failed\n{}", failures.len(), failures.join("\n\n"));
    let recorded = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORD)).unwrap();
    let changed: Vec<String> = lines.iter().filter_map(|line| record::difference(&recorded, line)).collect();
    assert!(
        changed.is_empty(),
        "other requests than dev/sim/{RECORD} has (meant? make traces BLESS=1, and say why in the commit):\n{}",
        changed.join("\n")
    );
}

#[test]
fn every_scenario_keeps_every_promise_under_faults_and_sends_what_was_recorded() {
    check(Simulator::Inner, INNER_SEEDS, HUB_SEEDS);
}

#[test]
fn the_real_loop_keeps_every_promise_under_faults_and_sends_what_was_recorded() {
    check(Simulator::Outer, OUTER_SEEDS, OUTER_HUB_SEEDS);
}
