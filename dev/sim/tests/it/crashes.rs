//! A crash at every single request, in worlds of every door: what was promised is kept all the same, and as much is done
//! as without the crash.

use pawl_sim::campaign::{self, Crashes, Simulator};
use pawl_sim::inner::{Run, Setup};
use pawl_sim::scenarios;

/// A world that did nothing would keep every promise: this many requests are far more than that.
const SOME: u32 = 20;

/// Runs a scenario with one crash right after each request in turn, which is right before the next one.
fn crash_everywhere(scenario: &str) {
    crash_everywhere_of(scenario, SOME);
}

/// The same, where the world makes more than so many requests.
fn crash_everywhere_of(scenario: &str, at_least: u32) {
    let crashes = Crashes::default();
    let requests = crash(scenario, &crashes);
    assert!(requests > at_least, "{scenario} makes only {requests} requests");
}

fn crash(scenario: &str, crashes: &Crashes) -> u32 {
    let report = campaign::crashes(&scenarios::find(scenario).unwrap(), crashes);
    if let Some(failure) = report.failure {
        panic!("{failure}\n{}", failure.trace.join("\n"));
    }
    u32::try_from(report.runs).unwrap()
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
    crash_everywhere_of("remedy-tekton", 12);
}

/// Order violations, double triggers and leaked items are what these worlds end by: see `scenarios/deploy.rs`.
#[test]
fn a_crash_at_every_write_of_a_diamond_keeps_its_order_and_leaves_nothing() {
    crash_everywhere("deploy-diamond");
    crash_everywhere("deploy-update");
    crash_everywhere("deploy-delete");
    crash_everywhere("deploy-dead-deployer");
}

/// How far apart the requests are at which the process dies, and which is the first, where a debug build does only a few
/// runs in a second: in a tree of Installations, and with two engines at once. So that each takes less than a minute.
/// `make sim` takes every request of every scenario.
const TREE_STRIDE: usize = 4;
const ENGINES_STRIDE: usize = 5;
const FIRST: u32 = 1;

#[test]
fn crash_at_every_write_of_a_tree_install_update_and_delete() {
    crash("installation-tree", &Crashes { first: FIRST, stride: TREE_STRIDE, ..Crashes::default() });
}

/// How often the replica that wrote is another than the one that wrote before.
fn turns(run: &Run) -> usize {
    let wrote = |line: &String| {
        let (_, sent) = line.split_once(" replica ")?;
        let (replica, rest) = sent.split_once(": ")?;
        let done = rest.contains("-> 20") && !rest.starts_with("GET");
        done.then(|| replica.to_owned())
    };
    let mut writers: Vec<String> = run.trace.iter().filter_map(wrote).collect();
    writers.dedup();
    writers.len()
}

#[test]
fn two_engines_at_once_keep_the_order_of_a_diamond_and_leave_nothing() {
    // A seed other than 0, or one engine would act only while the other has nothing to do; an even one, or one of them
    // would be slow.
    for (scenario, seed) in [("deploy-update", 2), ("deploy-delete", 2)] {
        let setup = Setup { seed, replicas: 2, keep_trace: true, ..Setup::plain() };
        let run = Simulator::Inner.run(&scenarios::find(scenario).unwrap(), &setup, None);
        assert!(turns(&run) > 20, "{scenario}: the engines took {} turns", turns(&run));
        crash(scenario, &Crashes { seed, replicas: 2, first: FIRST, stride: ENGINES_STRIDE });
    }
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
