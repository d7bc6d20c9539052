//! Seeds that once broke a promise, and what they taught. They keep it now.

use pawl_sim::campaign::{self, Simulator};
use pawl_sim::mutant::Guards;
use pawl_sim::scenarios;

fn keeps(simulator: Simulator, scenario: &str, seed: u64) {
    let found = scenarios::find(scenario);
    let report = found.map(|found| campaign::seeds(simulator, &found, seed..=seed, Guards::default(), false));
    let told = report.map(|report| (report.runs, report.failure.map(|failure| failure.to_string())));
    assert_eq!(told, Some((1, None)), "{scenario}");
}

#[test]
fn a_replica_that_still_sees_a_job_suspended_deletes_no_pod() {
    keeps(Simulator::Inner, "job-suspend", 10);
}

#[test]
fn a_job_whose_result_is_not_seen_yet_starts_no_other_pod() {
    keeps(Simulator::Inner, "job-ttl", 67);
}

#[test]
fn a_pod_that_has_ended_meanwhile_is_counted_not_deleted() {
    keeps(Simulator::Inner, "workflow", 90);
    keeps(Simulator::Inner, "job-retry", 106);
    keeps(Simulator::Outer, "job", 3);
}

#[test]
fn a_status_lost_in_a_crash_still_says_that_the_template_was_found() {
    keeps(Simulator::Inner, "workflow", 2);
    keeps(Simulator::Inner, "workflow-late-template", 2);
}

#[test]
fn a_namesakes_job_that_is_gone_ends_nothing() {
    keeps(Simulator::Inner, "workflow-namesake", 966);
}

#[test]
fn a_deadline_survives_a_lost_write_and_a_clock_that_jumps() {
    keeps(Simulator::Inner, "job-deadline", 114);
    keeps(Simulator::Outer, "job-deadline", 15);
}

#[test]
fn a_stalled_replica_makes_no_pod_of_a_job_that_is_gone() {
    keeps(Simulator::Inner, "job-delete", 13);
    keeps(Simulator::Inner, "workflow-job-removed", 39);
}

#[test]
fn a_ref_that_is_back_before_its_branch_noticed_runs_again() {
    keeps(Simulator::Inner, "git-force-push", 2);
}

#[test]
fn a_check_that_is_opened_again_is_concluded_again_though_the_status_that_said_so_was_lost() {
    keeps(Simulator::Inner, "git-rerequested", 6);
}

#[test]
fn a_pod_that_ended_while_its_task_run_was_stopped_keeps_its_end() {
    keeps(Simulator::Inner, "pipeline-cancel", 2);
    keeps(Simulator::Inner, "pipeline-cancel", 122);
    keeps(Simulator::Outer, "pipeline", 6);
}

#[test]
fn the_steps_of_a_task_run_are_recorded_before_its_pod_is_ended() {
    keeps(Simulator::Inner, "pipeline-cancel", 39);
}

#[test]
fn an_execution_that_has_ended_meanwhile_is_not_told_to_stop() {
    keeps(Simulator::Inner, "remedy-request", 3);
    keeps(Simulator::Outer, "remedy-request", 6);
}

#[test]
fn a_request_that_is_over_still_tells_how_what_it_cancelled_ended() {
    keeps(Simulator::Inner, "remedy-request-late", 27);
}

#[test]
fn what_a_stalled_replica_makes_for_an_action_that_is_gone_is_taken_away() {
    keeps(Simulator::Inner, "action-delete", 7);
}

#[test]
fn an_action_whose_job_was_held_for_long_is_not_stopped_as_soon_as_it_goes_and_leaves_no_lock() {
    keeps(Simulator::Inner, "action-rollback", 46);
}

#[test]
fn an_automatic_rollback_outlives_a_clock_that_jumps() {
    keeps(Simulator::Inner, "action-request-fails", 46);
}

#[test]
fn a_rollback_whose_first_word_was_lost_is_still_told_of() {
    keeps(Simulator::Inner, "action-request-fails", 138);
}
