//! A crash at every single request between what is asked for and its end: it is done once, and nothing that was not asked for.

use pawl_sim::campaign::{self, Simulator};
use pawl_sim::fault::{Fault, Injection};
use pawl_sim::inner::Setup;
use pawl_sim::scenarios;

/// Runs a scenario with one crash right after each request in turn, which is right before the next one. The scenario
/// itself counts the Jobs, and the oracles the check runs by what GitHub carried out.
fn crash_everywhere(scenario: &str) {
    let scenario = scenarios::find(scenario).unwrap();
    let Ok((_, requests)) = campaign::base(Simulator::Inner, &scenario) else {
        panic!("the plain run fails")
    };
    assert!(requests > 20, "{} makes only {requests} requests", scenario.name);
    for at in 0..requests {
        let fault = Fault::CrashAfter;
        let setup = Setup { faults: vec![Injection { at, fault }], ..Setup::plain() };
        let run = Simulator::Inner.run(&scenario, &setup, None);
        assert_eq!(run.violations, [], "{} with {fault} at request {at} of {requests}", scenario.name);
    }
}

#[test]
fn a_crash_at_every_write_after_a_push_leaves_one_job_and_one_check_run() {
    crash_everywhere("git-push");
}

#[test]
fn a_crash_at_every_write_of_a_pull_request_leaves_one_job_and_one_check_run() {
    crash_everywhere("git-pull-request");
}

#[test]
fn a_crash_at_every_write_of_an_action_does_it_once_with_its_undo_stored_before() {
    crash_everywhere("action-scale");
}

#[test]
fn a_crash_at_every_write_of_an_approved_action_does_only_what_was_approved() {
    crash_everywhere("action-approval");
}
