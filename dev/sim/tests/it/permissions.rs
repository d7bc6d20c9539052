//! What a machine says it writes is what it writes: neither more, which would fail on a cluster, nor less, which would be
//! a right that nothing uses.

use std::collections::BTreeSet;

use pawl_machines::machine::EVERY;
use pawl_sim::campaign::{self, Simulator};
use pawl_sim::mutant::Guards;
use pawl_sim::scenarios;

/// Enough for every branch of every machine to be taken in some scenario.
const SEEDS: u64 = 20;

#[test]
fn machines_use_exactly_the_rights_that_they_name() {
    let (mut named, mut used, mut anything) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for scenario in scenarios::all() {
        for machine in (scenario.machines)(Guards::default()) {
            for write in &machine.description().writes {
                if write.kind == EVERY {
                    anything.insert(machine.name());
                }
                let part = write.part.map(|part| format!("/{part}")).unwrap_or_default();
                let resource = format!("{}/{}{part}", write.kind.group, write.kind.plural);
                named.extend(write.verbs.iter().map(|verb| (machine.name(), *verb, resource.clone())));
            }
        }
        used.extend(campaign::rights(Simulator::Inner, &scenario, 1..=SEEDS));
    }
    let of_interest = |(machine, verb, resource): &(&str, &str, String)| {
        // What is not watched is read only where its name turns out to be taken.
        if *verb == "get" {
            return false;
        }
        // What people let their items deploy is theirs to allow.
        if *machine == "deploy-item" && resource == "/configmaps" {
            return false;
        }
        // Events are the loop's; the right to block an owner's deletion is asked for by the API server, not by us.
        !resource.ends_with("/events") && !resource.ends_with("/finalizers") && !anything.contains(machine)
    };
    let named: BTreeSet<_> = named.into_iter().filter(of_interest).collect();
    let used: BTreeSet<_> = used.into_iter().filter(of_interest).collect();
    assert_eq!(named, used);
}
