//! Runs that once broke a promise, and what they taught. They keep it now.
//!
//! Each pins what was injected, cut down to the faults that bring the situation about, and says how the situation is
//! recognized. Where it no longer occurs (a controller sends other requests than before, so that the same seed takes
//! another path), the test fails and names a run in which it does.

use pawl_api::git::annotations::LAST_SHA;
use pawl_api::git::branch;
use pawl_api::meta::Kind;
use pawl_api::pawl::labels::OWNER_UID;
use pawl_api::remedy::{kubernetes_execution, labels, remediation_request};
use pawl_apiserver::ChangeType;
use pawl_sim::campaign::{self, Simulator};
use pawl_sim::fault::{self, Fault, Injection};
use pawl_sim::ground::Happened;
use pawl_sim::inner::{Run, Setup};
use pawl_sim::mutant::Guards;
use pawl_sim::scenario::Scenario;
use pawl_sim::scenarios;
use serde_json::Value;

use Fault::{
    ClockJump, Conflict, CrashAfter, CrashBefore, Duplicate, Gone, ReplyLost, ServerError,
    ServerErrorAfterwards, Timeout, TooManyRequests,
};
use Simulator::{Inner, Outer};

/// How many seeds are searched for a run in which a situation occurs.
const SEARCHED: u64 = 2_000;

/// A run, and what is injected into it: at which request, counted from 0, what goes wrong.
struct Pin {
    simulator: Simulator,
    scenario: &'static str,
    seed: u64,
    replicas: usize,
    faults: &'static [(u32, Fault)],
}

/// The run keeps every promise, and the situation occurs in it.
fn keeps(pin: &Pin, occurs: impl Fn(&Run) -> bool) {
    let Pin { simulator, scenario, seed, replicas, faults } = *pin;
    let scenario = scenarios::find(scenario).unwrap();
    let Ok(base) = campaign::base(simulator, &scenario) else { panic!("the plain run fails") };
    let faults: Vec<Injection> =
        faults.iter().map(|(at, fault)| Injection { at: *at, fault: *fault }).collect();
    let setup = Setup { seed, replicas, faults, keep_trace: true, ..Setup::plain() };
    let run = simulator.run(&scenario, &setup, Some(&base.summary));
    assert_eq!(run.violations, [], "{}", scenario.name);
    if !occurs(&run) {
        let found = search(simulator, &scenario, base.requests, seed, occurs);
        panic!("{}: what this is about does not occur in this run; it does in {found}", scenario.name);
    }
}

/// The first run from a seed on in which a situation occurs, with no more faults than that takes.
fn search(
    simulator: Simulator,
    scenario: &Scenario,
    requests: u32,
    from: u64,
    occurs: impl Fn(&Run) -> bool,
) -> String {
    let run = |setup: &Setup| simulator.run(scenario, setup, None);
    for seed in from..from + SEARCHED {
        let drawn = campaign::setup(seed, requests, Guards::default());
        let setup = Setup { keep_trace: true, ..drawn.fit_for(scenario) };
        if !occurs(&run(&setup)) {
            continue;
        }
        let faults = fault::minimize(setup.faults.clone(), |faults| {
            occurs(&run(&Setup { faults: faults.to_vec(), ..setup.clone() }))
        });
        let faults: Vec<String> = faults.iter().map(|one| format!("({}, {:?})", one.at, one.fault)).collect();
        let (replicas, faults) = (setup.replicas, faults.join(", "));
        return format!(
            "Pin {{ simulator: {simulator:?}, scenario: {:?}, seed: {seed}, replicas: {replicas}, faults: &[{faults}] }}",
            scenario.name
        );
    }
    format!("none of {SEARCHED} seeds")
}

/// Whether the API server answered such a request of a replica like this.
fn answered(run: &Run, method: &str, path: &str, code: u16) -> bool {
    answers(run, method, path, code).next().is_some()
}

/// Where in the trace it did.
fn answers<'a>(run: &'a Run, method: &str, path: &str, code: u16) -> impl Iterator<Item = usize> + use<'a> {
    let (method, path, code) = (format!(": {method} "), path.to_owned(), format!("-> {code}"));
    let fits = move |line: &str| {
        line.contains(" replica ") && line.contains(&method) && line.contains(&path) && line.ends_with(&code)
    };
    run.trace.iter().enumerate().filter(move |(_, line)| fits(line)).map(|(at, _)| at)
}

/// Whether such a write was lost: refused, not sent, or sent by a process that never read the answer.
fn lost(run: &Run, method: &str, path: &str) -> bool {
    let is_loss = |fault: &Fault| match fault {
        CrashBefore
        | CrashAfter
        | ReplyLost
        | Timeout
        | Conflict
        | TooManyRequests
        | ServerError
        | ServerErrorAfterwards => true,
        Gone | Duplicate | ClockJump { .. } => false,
    };
    let at = |what: &str| what.starts_with(method) && what.contains(path);
    run.struck.iter().any(|(fault, what)| is_loss(fault) && at(what))
}

fn jumped(run: &Run) -> bool {
    run.struck.iter().any(|(fault, _)| matches!(fault, ClockJump { .. }))
}

/// All versions of all objects of a kind.
fn of_kind(run: &Run, kind: Kind) -> impl Iterator<Item = &Happened> {
    run.history.iter().filter(move |happened| *happened.object.kind() == kind)
}

fn text<'a>(happened: &'a Happened, at: &str) -> Option<&'a str> {
    happened.object.raw().pointer(at).and_then(Value::as_str)
}

#[test]
fn a_replica_that_still_sees_a_job_suspended_deletes_no_pod() {
    let pin = Pin { simulator: Inner, scenario: "job-suspend", seed: 31, replicas: 2, faults: &[] };
    keeps(&pin, |run| answered(run, "DELETE", "/pods/", 409));
}

#[test]
fn a_job_whose_result_is_not_seen_yet_starts_no_other_pod() {
    let pin = Pin { simulator: Inner, scenario: "job-ttl", seed: 69, replicas: 2, faults: &[] };
    keeps(&pin, |run| answered(run, "POST", "/pods", 409));
}

#[test]
fn a_pod_that_has_ended_meanwhile_is_counted_not_deleted() {
    let ended = |run: &Run| answered(run, "DELETE", "/pods/", 409);
    keeps(
        &Pin { simulator: Inner, scenario: "workflow", seed: 116, replicas: 2, faults: &[(11, CrashAfter)] },
        ended,
    );
    keeps(
        &Pin {
            simulator: Inner,
            scenario: "job-retry",
            seed: 287,
            replicas: 2,
            faults: &[(2, Conflict), (3, CrashAfter)],
        },
        ended,
    );
}

/// A process died of writing the status after the Job was made.
fn a_status_was_lost_after_the_job_was_made(run: &Run) -> bool {
    // Here every fault has its line in the trace. Once the Job is made, the template was found.
    let lines = run.trace.iter().enumerate().filter(|(_, line)| line.starts_with("fault at"));
    let made = answers(run, "POST", "/jobs", 201).next();
    lines.zip(&run.struck).any(|((at, _), (fault, what))| {
        let crash = matches!(fault, CrashBefore | CrashAfter);
        crash && what.contains("/workflows/w/status") && made.is_some_and(|made| made < at)
    })
}

#[test]
fn a_status_lost_in_a_crash_still_says_that_the_template_was_found() {
    keeps(
        &Pin { simulator: Inner, scenario: "workflow", seed: 0, replicas: 1, faults: &[(9, CrashBefore)] },
        a_status_was_lost_after_the_job_was_made,
    );
    keeps(
        &Pin {
            simulator: Inner,
            scenario: "workflow-late-template",
            seed: 0,
            replicas: 1,
            faults: &[(9, CrashBefore)],
        },
        a_status_was_lost_after_the_job_was_made,
    );
}

#[test]
fn a_namesakes_job_that_is_gone_ends_nothing() {
    let pin = Pin { simulator: Inner, scenario: "workflow-namesake", seed: 966, replicas: 1, faults: &[] };
    // It is seen in the cache, asked for before anything ends because of it, and gone.
    keeps(&pin, |run| answered(run, "GET", "/jobs/w", 404));
}

#[test]
fn a_deadline_survives_a_lost_write_and_a_clock_that_jumps() {
    let both = |run: &Run| jumped(run) && lost(run, "PATCH", "/jobs/");
    keeps(
        &Pin {
            simulator: Inner,
            scenario: "job-deadline",
            seed: 114,
            replicas: 1,
            faults: &[(4, Timeout), (6, ClockJump { seconds: -748 }), (9, Timeout)],
        },
        both,
    );
    keeps(
        &Pin {
            simulator: Outer,
            scenario: "job-deadline",
            seed: 46,
            replicas: 2,
            faults: &[(61, Gone), (111, TooManyRequests), (120, ClockJump { seconds: 804 })],
        },
        both,
    );
}

#[test]
fn a_stalled_replica_makes_no_pod_of_a_job_that_is_gone() {
    let refused = |run: &Run| answered(run, "POST", "/pods", 409);
    keeps(&Pin { simulator: Inner, scenario: "job-delete", seed: 13, replicas: 2, faults: &[] }, refused);
    keeps(
        &Pin {
            simulator: Inner,
            scenario: "workflow-job-removed",
            seed: 42,
            replicas: 2,
            faults: &[(14, Timeout)],
        },
        refused,
    );
}

#[test]
fn a_ref_that_is_back_before_its_branch_noticed_runs_again() {
    let pin = Pin { simulator: Inner, scenario: "git-force-push", seed: 3, replicas: 2, faults: &[] };
    keeps(&pin, |run| {
        let mut shas: Vec<&str> =
            of_kind(run, branch::KIND).filter_map(|one| text(one, "/spec/sha")).collect();
        shas.dedup();
        let away = shas.windows(3).find(|shas| shas[0] == shas[2]).map(|shas| shas[1]);
        // Nothing was evaluated of what it was at in between.
        let noticed =
            |sha| of_kind(run, branch::KIND).any(|one| one.object.annotation(LAST_SHA) == Some(sha));
        away.is_some_and(|sha| !noticed(sha))
    });
}

#[test]
fn a_check_that_is_opened_again_is_concluded_again_though_the_status_that_said_so_was_lost() {
    let pin = Pin {
        simulator: Inner,
        scenario: "git-rerequested",
        seed: 10,
        replicas: 2,
        faults: &[(11, Timeout), (98, ServerError), (108, TooManyRequests)],
    };
    keeps(&pin, |run| lost(run, "PATCH", "/branches/"));
}

#[test]
fn a_pod_that_ended_while_its_task_run_was_stopped_keeps_its_end() {
    let ended = |run: &Run| answered(run, "DELETE", "/pods/", 409);
    keeps(
        &Pin {
            simulator: Inner,
            scenario: "pipeline-cancel",
            seed: 164,
            replicas: 2,
            faults: &[(16, Timeout), (35, Duplicate)],
        },
        ended,
    );
    keeps(
        &Pin {
            simulator: Outer,
            scenario: "pipeline",
            seed: 17,
            replicas: 2,
            faults: &[(70, Gone), (198, Conflict)],
        },
        ended,
    );
}

#[test]
fn the_steps_of_a_task_run_are_recorded_before_its_pod_is_ended() {
    let pin = Pin {
        simulator: Inner,
        scenario: "pipeline-cancel",
        seed: 39,
        replicas: 2,
        faults: &[(13, CrashAfter)],
    };
    keeps(&pin, |run| lost(run, "PATCH", "/taskruns/"));
}

#[test]
fn an_execution_that_has_ended_meanwhile_is_not_told_to_stop() {
    let refused = |run: &Run| answered(run, "PATCH", "/workflowexecutions/", 409);
    keeps(&Pin { simulator: Inner, scenario: "remedy-request", seed: 3, replicas: 2, faults: &[] }, refused);
    keeps(&Pin { simulator: Outer, scenario: "remedy-request", seed: 6, replicas: 2, faults: &[] }, refused);
}

#[test]
fn a_request_that_is_over_still_tells_how_what_it_cancelled_ended() {
    let pin = Pin { simulator: Inner, scenario: "remedy-request-late", seed: 27, replicas: 1, faults: &[] };
    keeps(&pin, |run| {
        let over = of_kind(run, remediation_request::KIND)
            .filter(|one| text(one, "/status/overallPhase") == Some("TimedOut"));
        let said: Vec<&Value> = over.map(|one| one.object.status()).collect();
        said.windows(2).any(|said| said[0] != said[1])
    });
}

#[test]
fn what_a_stalled_replica_makes_for_an_action_that_is_gone_is_taken_away() {
    let pin = Pin {
        simulator: Inner,
        scenario: "action-delete",
        seed: 61,
        replicas: 2,
        faults: &[(22, CrashBefore)],
    };
    keeps(&pin, |run| {
        let gone = of_kind(run, kubernetes_execution::KIND).find(|one| one.what == ChangeType::Deleted);
        gone.is_some_and(|gone| {
            let late = |one: &Happened| one.what == ChangeType::Added && one.revision > gone.revision;
            run.history.iter().any(|one| late(one) && one.object.label(OWNER_UID) == Some(gone.object.uid()))
        })
    });
}

/// The deadline of a Job is another than it was when the Job was recorded.
fn a_deadline_was_renewed(run: &Run) -> bool {
    let recorded = |one: &Happened| {
        let at = |at: &str| text(one, at).map(str::to_owned);
        Some((at("/metadata/uid")?, at("/status/jobRef/uid")?, at("/status/executionDeadline")?))
    };
    let all: Vec<_> = of_kind(run, kubernetes_execution::KIND).filter_map(recorded).collect();
    all.iter().any(|(uid, job, first)| {
        all.iter().any(|(other, same, then)| (other, same) == (uid, job) && then != first)
    })
}

#[test]
fn an_action_whose_job_was_held_for_long_is_not_stopped_as_soon_as_it_goes_and_leaves_no_lock() {
    let pin = Pin {
        simulator: Inner,
        scenario: "action-rollback",
        seed: 0,
        replicas: 1,
        faults: &[(74, ClockJump { seconds: 804 })],
    };
    keeps(&pin, a_deadline_was_renewed);
}

#[test]
fn an_automatic_rollback_outlives_a_clock_that_jumps() {
    let pin = Pin {
        simulator: Inner,
        scenario: "action-request-fails",
        seed: 46,
        replicas: 2,
        faults: &[(263, ClockJump { seconds: 804 })],
    };
    keeps(&pin, |run| {
        // The third KubernetesExecution of this request is the first that takes something back.
        let begun = answers(run, "POST", "/kubernetesexecutions", 201).nth(2);
        let jump = run.trace.iter().rposition(|line| line.contains("clock jumps"));
        begun.zip(jump).is_some_and(|(begun, jump)| begun < jump)
    });
}

#[test]
fn a_rollback_whose_first_word_was_lost_is_still_told_of() {
    let pin = Pin {
        simulator: Inner,
        scenario: "action-request-fails",
        seed: 152,
        replicas: 2,
        faults: &[(298, Timeout)],
    };
    keeps(&pin, |run| {
        let rollbacks = of_kind(run, kubernetes_execution::KIND)
            .filter(|one| one.object.label(labels::ROLLBACK_OF).is_some());
        let names: Vec<&str> = rollbacks.map(|one| one.object.name()).collect();
        names.iter().any(|name| lost(run, "PATCH", &format!("/kubernetesexecutions/{name}")))
    });
}
