//! The recorded hashes of all traces: a change that means to change no behaviour changes none of them.
//!
//! One line per simulator and scenario: `inner workflow <hash of the run without faults> <hash of seed 1> …`. A hash
//! covers every request of the run (sender, method, path, body) with its time and status code, in order.

use std::collections::BTreeMap;

use crate::campaign::Simulator;

/// How many seeds are recorded of each scenario.
pub const SEEDS: u64 = 20;

/// The digits that are recorded of a hash: enough that no change goes unnoticed, and a line stays one line.
const DIGITS: usize = 8;

/// One line of the record.
pub fn line(simulator: Simulator, scenario: &str, hashes: &BTreeMap<u64, String>) -> String {
    let hashes: Vec<&str> = hashes.values().map(|hash| hash.get(..DIGITS).unwrap_or(hash)).collect();
    format!("{} {scenario} {}", simulator.as_str(), hashes.join(" "))
}

/// How a run's line differs from the recorded lines. A run may have fewer seeds than were recorded, or more.
pub fn difference(recorded: &str, line: &str) -> Option<String> {
    let (name, hashes) = split(line);
    let Some((_, expected)) = recorded.lines().map(split).find(|(of, _)| *of == name) else {
        return Some(format!("{} {}: not recorded", name.0, name.1));
    };
    let changed = expected.iter().zip(&hashes).enumerate().filter(|(_, (expected, found))| expected != found);
    let seeds: Vec<String> = changed.map(|(seed, _)| seed.to_string()).collect();
    (!seeds.is_empty()).then(|| format!("{} {}: seeds {} differ", name.0, name.1, seeds.join(", ")))
}

/// The simulator and the scenario, and the hashes in the order of their seeds.
fn split(line: &str) -> ((&str, &str), Vec<&str>) {
    let mut words = line.split_whitespace();
    let name = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    (name, words.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_the_simulator_the_scenario_and_the_seeds() {
        let recorded = "inner a 11 22 33\nouter a 44 55\n";
        assert_eq!(difference(recorded, "inner a 11 22"), None);
        assert_eq!(difference(recorded, "outer a 44 56").as_deref(), Some("outer a: seeds 1 differ"));
        assert_eq!(difference(recorded, "inner b 11").as_deref(), Some("inner b: not recorded"));
    }

    #[test]
    fn a_line_holds_the_first_digits_of_each_hash_by_seed() {
        let hashes = BTreeMap::from([(1, "22222222ff".to_owned()), (0, "11111111ff".to_owned())]);
        assert_eq!(line(Simulator::Inner, "a", &hashes), "inner a 11111111 22222222");
    }
}
