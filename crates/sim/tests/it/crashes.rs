//! A crash at every single request, in worlds of every door: what was promised is kept all the same.

use std::sync::atomic::{AtomicU32, Ordering};

use pawl_sim::campaign::{self, Simulator};
use pawl_sim::fault::{Fault, Injection};
use pawl_sim::inner::{Run, Setup};
use pawl_sim::scenarios;

/// Runs a scenario with one crash right after each request in turn, which is right before the next one. The scenario
/// itself counts the Jobs, and the oracles the check runs by what GitHub carried out.
fn crash_everywhere(scenario: &str) {
    crash_everywhere_among(scenario, 1, SOME);
}

/// A world that did nothing would keep every promise: this many requests are far more than that.
const SOME: u32 = 20;

/// The same, where so many engines work at once, and at least so many requests are made.
fn crash_everywhere_among(scenario: &str, replicas: usize, at_least: u32) {
    let scenario = scenarios::find(scenario).unwrap();
    let Ok(Run { requests, .. }) = campaign::base(Simulator::Inner, &scenario) else {
        panic!("the plain run fails")
    };
    assert!(requests > at_least, "{} makes only {requests} requests", scenario.name);
    let next = AtomicU32::new(0);
    let work = || loop {
        let at = next.fetch_add(1, Ordering::Relaxed);
        if at >= requests {
            return;
        }
        let fault = Fault::CrashAfter;
        let setup = Setup { faults: vec![Injection { at, fault }], replicas, ..Setup::plain() };
        let run = Simulator::Inner.run(&scenario, &setup, None);
        assert_eq!(run.violations, [], "{} with {fault} at request {at} of {requests}", scenario.name);
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
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
fn a_crash_at_every_write_of_an_execution_leads_to_one_run_and_no_lock() {
    crash_everywhere("remedy-job");
    crash_everywhere("remedy-job-fails");
    // Finalizer, lock, run, record, release and the two statuses, with what confirms them and is told.
    crash_everywhere_among("remedy-tekton", 1, 12);
}

/// Order violations, double triggers and leaked items are what these worlds end by: see `scenarios/deploy.rs`.
#[test]
fn a_crash_at_every_write_of_a_diamond_keeps_its_order_and_leaves_nothing() {
    crash_everywhere("deploy-diamond");
    crash_everywhere("deploy-update");
    crash_everywhere("deploy-delete");
    crash_everywhere("deploy-dead-deployer");
}

#[test]
fn two_engines_at_once_keep_the_order_of_a_diamond_and_leave_nothing() {
    crash_everywhere_among("deploy-update", 2, SOME);
    crash_everywhere_among("deploy-delete", 2, SOME);
}

#[test]
fn a_crash_at_every_write_of_an_action_does_it_once_with_its_undo_stored_before() {
    crash_everywhere("action-scale");
}

#[test]
fn a_crash_at_every_write_of_a_rollback_takes_back_once_and_leaves_no_lock() {
    crash_everywhere("action-rollback");
}

#[test]
fn a_crash_at_every_write_of_an_action_that_is_deleted_leaves_nothing() {
    crash_everywhere("action-delete");
}

#[test]
fn i6_a_crash_at_every_write_of_an_action_on_a_secret_lets_nothing_out() {
    crash_everywhere("action-secret");
}

#[test]
fn a_crash_at_every_write_of_an_approved_action_does_only_what_was_approved() {
    crash_everywhere("action-approval");
}
