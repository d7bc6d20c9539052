//! A seed is a bug report only if it always tells the same story.

use pawl_sim::campaign::{self, Simulator};
use pawl_sim::inner::Run;
use pawl_sim::mutant::Guards;
use pawl_sim::scenarios;

#[test]
fn the_same_seed_gives_the_same_trace_in_both_simulators() {
    for scenario in [scenarios::find("workflow").unwrap(), scenarios::find("garbage-foreground").unwrap()] {
        for simulator in [Simulator::Inner, Simulator::Outer] {
            let Ok(Run { requests, .. }) = campaign::base(simulator, &scenario) else {
                panic!("the plain run fails")
            };
            for seed in [3, 4] {
                let setup = campaign::setup(seed, requests, Guards::default());
                let (first, second) =
                    (simulator.run(&scenario, &setup, None), simulator.run(&scenario, &setup, None));
                assert_eq!(
                    first.trace_hash, second.trace_hash,
                    "{} {simulator:?} seed {seed}",
                    scenario.name
                );
                assert_eq!(first.requests, second.requests);
            }
        }
    }
}

#[test]
fn different_seeds_take_different_paths() {
    let scenario = scenarios::find("workflow").unwrap();
    let hash = |seed| {
        let setup = campaign::setup(seed, 20, Guards::default());
        Simulator::Inner.run(&scenario, &setup, None).trace_hash
    };
    assert_ne!(hash(1), hash(2));
}
