//! A guard is worth what its absence would cost: each is taken away, and the simulator must notice.

use pawl_sim::campaign::{self, Simulator};
use pawl_sim::inner::{self, Setup};
use pawl_sim::mutant::{self, Guard, Guards};
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
            Guards::without(mutant.guard),
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

fn told_without(guard: Guard, scenario: &str) -> String {
    let setup = Setup { guards: Guards::without(guard), ..Setup::plain() };
    format!("{:?}", inner::run(&scenarios::find(scenario).unwrap(), &setup, None).violations)
}

#[test]
fn the_oracle_notices_an_execution_that_keeps_no_order() {
    for name in ["deploy-diamond", "deploy-delete"] {
        let told = told_without(Guard::DependencyOrder, name);
        assert!(told.contains("was started before"), "{name}: {told}");
    }
}

#[test]
fn the_oracle_notices_an_installation_that_keeps_no_order() {
    let told = told_without(Guard::DependencyOrder, "installation-tree");
    assert!(told.contains("was started before"), "{told}");
}
