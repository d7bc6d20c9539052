//! Simulated worlds are listed and run, and an unknown one is refused with the names of all.

use crate::{pawl_dev, text};

#[test]
fn sim_lists_its_scenarios_and_runs_one_of_them() {
    let home = tempfile::tempdir().unwrap();
    let listed = pawl_dev(home.path(), &["sim", "--list"]);
    let listed = text(&listed.stdout);
    let name = listed.split_ascii_whitespace().next().unwrap();
    let ran = pawl_dev(home.path(), &["sim", "--seeds", "1", "--scenario", name]);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    assert!(text(&ran.stdout).starts_with(&format!("{name:<24} ok")), "{}", text(&ran.stdout));
}

#[test]
fn sim_refuses_a_scenario_that_is_not_there_and_names_those_that_are() {
    let home = tempfile::tempdir().unwrap();
    let refused = pawl_dev(home.path(), &["sim", "--scenario", "none"]);
    let said = text(&refused.stderr);
    assert!(!refused.status.success(), "{said}");
    assert!(said.starts_with("pawl-dev: --scenario \"none\" is not one of: "), "{said}");
}
