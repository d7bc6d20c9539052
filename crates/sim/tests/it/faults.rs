use pawl_sim::campaign;
use pawl_sim::mutant::Guards;
use pawl_sim::scenarios;

/// Seeds per scenario in a test run: enough to meet every fault at most requests; `pawl sim` runs more.
const SEEDS: u64 = 150;

#[test]
fn every_scenario_keeps_every_promise_under_faults() {
    let mut failures = Vec::new();
    for scenario in scenarios::all() {
        let report = campaign::seeds(&scenario, 1..=SEEDS, Guards::default());
        eprintln!("{:<24} {:>8.0} runs/s", scenario.name, report.runs_per_second());
        if let Some(failure) = report.failure {
            failures.push(format!("{failure}\n{}", failure.trace.join("\n")));
        }
    }
    assert!(failures.is_empty(), "{} failed\n{}", failures.len(), failures.join("\n\n"));
}
