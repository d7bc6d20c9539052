//! A guard is worth what its absence would cost: each is taken away, and the simulator must notice.

use pawl_sim::campaign::{self, Simulator};
use pawl_sim::mutant;
use pawl_sim::scenarios;

/// Far more seeds than any mutant has needed to be caught.
const PATIENCE: u64 = 2_000;

#[test]
fn every_guard_that_is_taken_away_is_missed() {
    let mut survivors = Vec::new();
    for mutant in mutant::ALL {
        let scenario = scenarios::find(mutant.scenario).unwrap();
        let report = campaign::seeds(
            Simulator::Inner,
            &scenario,
            mutant.from..=mutant.from + PATIENCE,
            (mutant.guards)(),
            false,
        );
        match report.failure {
            Some(failure) => {
                eprintln!("{:<28} caught by seed {:>4}: {}", mutant.name, failure.seed, failure.violations[0])
            }
            None => survivors.push(mutant.name),
        }
    }
    assert!(survivors.is_empty(), "not noticed in {PATIENCE} seeds: {survivors:?}");
}
