use super::*;
use serde_json::json;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn life(spec: serde_json::Value) -> Life {
    let pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
    Life::new(&pod, Timing::default(), at(0))
}

fn exit(code: i32, start: i64, end: i64) -> Exit {
    Exit {
        code,
        reason: "Error".to_owned(),
        message: None,
        started_at: Some(at(start)),
        finished_at: at(end),
        id: "pawl://x".to_owned(),
    }
}

fn run(life: &mut Life, index: usize, code: i32, start: i64, end: i64) {
    life.started(index, "pawl://x".to_owned(), at(start));
    life.exited(index, exit(code, start, end));
}

#[test]
fn init_containers_run_in_order_and_main_ones_together() {
    let mut life = life(json!({"restartPolicy": "Never",
        "initContainers": [{"name": "a"}, {"name": "b"}], "containers": [{"name": "m"}, {"name": "n"}]}));
    assert_eq!(life.next(at(0)).steps, [Step::Start(0)]);
    life.started(0, "x".to_owned(), at(0));
    assert_eq!(life.next(at(0)).steps, []);
    life.exited(0, exit(0, 0, 1));
    assert_eq!(life.next(at(1)).steps, [Step::Start(1)]);
    run(&mut life, 1, 0, 1, 2);
    assert_eq!(life.next(at(2)).steps, [Step::Start(2), Step::Start(3)]);
    run(&mut life, 2, 0, 2, 3);
    run(&mut life, 3, 1, 2, 3);
    assert!(life.next(at(3)).finished);
}

#[test]
fn a_failed_init_container_ends_a_pod_that_never_restarts() {
    let mut life = life(
        json!({"restartPolicy": "Never", "initContainers": [{"name": "a"}], "containers": [{"name": "m"}]}),
    );
    run(&mut life, 0, 3, 0, 1);
    let next = life.next(at(1));
    assert!(next.finished && next.steps.is_empty());
}

#[test]
fn a_sidecar_runs_beside_and_ends_with_the_main_containers() {
    let mut life = life(json!({"restartPolicy": "Never",
        "initContainers": [{"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "m"}]}));
    assert_eq!(life.next(at(0)).steps, [Step::Start(0)]);
    life.started(0, "x".to_owned(), at(0));
    assert_eq!(life.next(at(0)).steps, [Step::Start(1)]);
    run(&mut life, 1, 0, 0, 5);
    life.settle(at(5));
    let next = life.next(at(5));
    assert_eq!((next.steps, next.finished), (vec![Step::Terminate(0)], false));
    life.exited(0, exit(143, 0, 6));
    assert!(life.next(at(6)).finished);
}

#[test]
fn restarts_wait_ten_seconds_doubling_to_five_minutes() {
    let mut life = life(json!({"restartPolicy": "OnFailure", "containers": [{"name": "m"}]}));
    let mut now = 0;
    for expect in [0, 10, 20, 40, 80, 160, 300, 300] {
        run(&mut life, 0, 1, now, now);
        assert_eq!(life.back_off(&life.containers[0]), SignedDuration::from_secs(expect));
        if expect > 0 {
            let early = life.next(at(now + expect - 1));
            assert_eq!((early.steps, early.wake), (vec![], Some(at(now + expect))));
        }
        now += expect;
        assert_eq!(life.next(at(now)).steps, [Step::Start(0)]);
    }
    // Ten minutes of work are a clean slate.
    run(&mut life, 0, 1, now, now + 600);
    assert_eq!(life.back_off(&life.containers[0]), SignedDuration::ZERO);
    assert_eq!(life.containers[0].restarts, 8);
}

#[test]
fn each_policy_restarts_what_it_should() {
    for (policy, on_zero, on_one) in
        [("Never", false, false), ("OnFailure", false, true), ("Always", true, true)]
    {
        for (code, again) in [(0, on_zero), (1, on_one)] {
            let mut life = life(json!({"restartPolicy": policy, "containers": [{"name": "m"}]}));
            run(&mut life, 0, code, 0, 1);
            let next = life.next(at(1));
            assert_eq!((next.steps.len() == 1, next.finished), (again, !again), "{policy} {code}");
        }
    }
}

#[test]
fn what_cannot_be_configured_is_tried_again_later() {
    let mut life = life(json!({"containers": [{"name": "m"}]}));
    life.held_up(0, "CreateContainerConfigError", "secret \"s\" not found".to_owned(), at(0));
    assert_eq!(life.next(at(9)), Next { steps: vec![], wake: Some(at(10)), finished: false });
    assert_eq!(life.next(at(10)).steps, [Step::Start(0)]);
    assert_eq!(life.containers[0].restarts, 0);
}

#[test]
fn a_stop_asks_once_insists_once_and_starts_nothing() {
    let mut life = life(json!({"restartPolicy": "Always", "containers": [{"name": "m"}]}));
    life.started(0, "x".to_owned(), at(0));
    life.stop(StopReason::Deleted, at(30));
    let ask = life.next(at(0));
    assert_eq!((ask.steps.clone(), ask.wake), (vec![Step::Terminate(0)], Some(at(30))));
    life.stop_carried_out(&ask.steps);
    assert_eq!(life.next(at(1)), Next { steps: vec![], wake: Some(at(30)), finished: false });
    // A shorter grace counts, a longer one does not.
    life.stop(StopReason::Deleted, at(10));
    life.stop(StopReason::Deleted, at(90));
    let insist = life.next(at(10));
    assert_eq!(insist.steps, [Step::Kill(0)]);
    life.stop_carried_out(&insist.steps);
    assert_eq!(life.next(at(11)).steps, []);
    life.exited(0, exit(137, 0, 12));
    assert!(life.next(at(12)).finished);
}

#[test]
fn a_deadline_counts_from_the_start_that_status_remembers() {
    let pod = serde_json::from_value(json!({"metadata": {},
        "spec": {"activeDeadlineSeconds": 60, "containers": [{"name": "m"}]},
        "status": {"startTime": at(-50).to_string()}}));
    let life = Life::new(&pod.unwrap(), Timing::default(), at(0));
    assert_eq!((life.deadline, life.next(at(0)).wake), (Some(at(10)), Some(at(10))));
}

fn in_order(order: serde_json::Value, containers: serde_json::Value) -> Life {
    let annotations = json!({pawl_api::pawl::in_order::ANNOTATION: order.to_string()});
    let pod = json!({"metadata": {"name": "p", "annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": containers}});
    Life::new(&serde_json::from_value(pod).unwrap(), Timing::default(), at(0))
}

#[test]
fn containers_in_order_run_one_after_another_and_a_failure_is_the_end() {
    use crate::status::{Phase, phase};
    let three = json!([{"name": "a"}, {"name": "b"}, {"name": "c"}]);
    let mut life = in_order(json!({"goOnAfter": ["b"]}), three.clone());
    assert_eq!((life.next(at(0)).steps, phase(&life)), (vec![Step::Start(0)], Phase::Pending));
    life.started(0, "x".to_owned(), at(0));
    assert_eq!(life.next(at(0)).steps, []);
    life.exited(0, exit(0, 0, 1));
    assert_eq!((life.next(at(1)).steps, phase(&life)), (vec![Step::Start(1)], Phase::Running));
    run(&mut life, 1, 5, 1, 2);
    assert_eq!((life.next(at(2)).steps, phase(&life)), (vec![Step::Start(2)], Phase::Running));
    run(&mut life, 2, 0, 2, 3);
    assert_eq!((life.next(at(3)).finished, phase(&life)), (true, Phase::Succeeded));

    let mut life = in_order(json!({}), three);
    run(&mut life, 0, 0, 0, 1);
    run(&mut life, 1, 5, 1, 2);
    let next = life.next(at(2));
    assert!(next.finished && next.steps.is_empty(), "the third never starts");
    assert_eq!(phase(&life), Phase::Failed);
}
