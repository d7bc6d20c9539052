use super::*;
use crate::life::Timing;
use serde_json::{Value, json};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn pod(spec: Value) -> Pod {
    serde_json::from_value(
        json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 1}, "spec": spec}),
    )
    .unwrap()
}

fn exit(code: i32) -> Exit {
    let reason = if code == 0 { "Completed" } else { "Error" };
    Exit {
        code,
        reason: reason.to_owned(),
        message: None,
        started_at: Some(at(1)),
        finished_at: at(2),
        id: "pawl://x".to_owned(),
    }
}

fn run(life: &mut Life, index: usize, code: i32) {
    life.started(index, "pawl://x".to_owned(), at(1));
    life.exited(index, exit(code));
}

fn condition(status: &PodStatus, type_: &str) -> (String, Option<String>, Option<String>) {
    let found = status.conditions.as_ref().unwrap().iter().find(|c| c.type_ == type_).unwrap();
    (found.status.clone(), found.reason.clone(), found.message.clone())
}

#[test]
fn phases_are_kubelets() {
    // (policy, exits of the one main container so far, runs now) → phase
    let table = [
        ("Never", vec![], false, Phase::Pending),
        ("Never", vec![], true, Phase::Running),
        ("Never", vec![0], false, Phase::Succeeded),
        ("Never", vec![1], false, Phase::Failed),
        ("OnFailure", vec![0], false, Phase::Succeeded),
        ("OnFailure", vec![1], false, Phase::Running),
        ("OnFailure", vec![1, 1], false, Phase::Running),
        ("OnFailure", vec![1, 0], false, Phase::Succeeded),
        ("Always", vec![0], false, Phase::Running),
    ];
    for (policy, codes, runs, expect) in table {
        let pod = pod(json!({"restartPolicy": policy, "containers": [{"name": "m"}]}));
        let mut life = Life::new(&pod, Timing::default(), at(0));
        codes.iter().for_each(|code| run(&mut life, 0, *code));
        if runs {
            life.started(0, "pawl://x".to_owned(), at(1));
        }
        assert_eq!(phase(&life), expect, "{policy} {codes:?}");
    }
}

#[test]
fn a_pod_waits_for_its_init_containers_and_fails_with_them() {
    let pod = pod(
        json!({"restartPolicy": "Never", "initContainers": [{"name": "i"}], "containers": [{"name": "m"}]}),
    );
    let mut life = Life::new(&pod, Timing::default(), at(0));
    let first = status(&pod, &life, at(0));
    assert_eq!(first.phase.as_deref(), Some("Pending"));
    let reason = |s: &ContainerStatus| s.state.clone().unwrap().waiting.unwrap().reason.unwrap();
    assert_eq!(reason(&first.container_statuses.as_ref().unwrap()[0]), "PodInitializing");
    assert_eq!(
        condition(&first, "Initialized"),
        (
            "False".into(),
            Some("ContainersNotInitialized".into()),
            Some("containers with incomplete status: [i]".into())
        )
    );
    run(&mut life, 0, 7);
    let failed = status(&pod, &life, at(2));
    assert_eq!(failed.phase.as_deref(), Some("Failed"));
    assert_eq!(
        failed.init_container_statuses.unwrap()[0].state.clone().unwrap().terminated.unwrap().exit_code,
        7
    );
}

#[test]
fn a_completed_pod_says_so_in_every_condition() {
    let pod = pod(json!({"restartPolicy": "Never", "containers": [{"name": "m"}]}));
    let mut life = Life::new(&pod, Timing::default(), at(0));
    run(&mut life, 0, 0);
    let done = status(&pod, &life, at(2));
    let completed = Some("PodCompleted".to_owned());
    assert_eq!(condition(&done, "Ready"), ("False".into(), completed.clone(), None));
    assert_eq!(condition(&done, "ContainersReady"), ("False".into(), completed.clone(), None));
    assert_eq!(condition(&done, "Initialized"), ("True".into(), completed, None));
    assert_eq!(condition(&done, "PodScheduled"), ("True".into(), None, None));
    assert_eq!(condition(&done, "PodReadyToStartContainers").0, "False");
}

#[test]
fn back_off_shows_as_waiting_with_the_last_end_beside_it() {
    let pod = pod(json!({"restartPolicy": "Always", "containers": [{"name": "m"}]}));
    let mut life = Life::new(&pod, Timing::default(), at(0));
    run(&mut life, 0, 1);
    run(&mut life, 0, 1);
    let status = status(&pod, &life, at(3)).container_statuses.unwrap().remove(0);
    let waiting = status.state.unwrap().waiting.unwrap();
    assert_eq!(waiting.reason.as_deref(), Some("CrashLoopBackOff"));
    assert_eq!(waiting.message.as_deref(), Some("back-off 10s restarting failed container=m pod=p_n(u)"));
    assert_eq!(status.last_state.unwrap().terminated.unwrap().exit_code, 1);
    assert_eq!((status.restart_count, status.ready), (1, false));
}

#[test]
fn transition_times_move_on_a_flip_only_and_foreign_conditions_stay() {
    let mut pod = pod(json!({"restartPolicy": "Never", "containers": [{"name": "m"}]}));
    let mut life = Life::new(&pod, Timing::default(), at(0));
    let mut first = status(&pod, &life, at(0));
    let foreign =
        PodCondition { type_: "DisruptionTarget".into(), status: "True".into(), ..PodCondition::default() };
    first.conditions.as_mut().unwrap().push(foreign.clone());
    pod.status = Some(first.clone());
    life.started(0, "pawl://x".to_owned(), at(5));
    let second = status(&pod, &life, at(5)).conditions.unwrap();
    let time = |list: &[PodCondition], type_: &str| {
        list.iter().find(|c| c.type_ == type_).unwrap().last_transition_time.clone().unwrap().0
    };
    assert_eq!(time(&second, "PodScheduled"), at(0));
    assert_eq!(time(&second, "Ready"), at(5));
    assert!(second.contains(&foreign));
    // The same facts a little later are the same status: nothing to write.
    pod.status = Some(status(&pod, &life, at(5)));
    assert_eq!(pod.status, Some(status(&pod, &life, at(9))));
}

#[test]
fn what_we_wrote_is_newer_than_what_the_watch_shows_and_what_others_wrote_stays() {
    let condition = |type_: &str, status: &str| PodCondition {
        type_: type_.into(),
        status: status.into(),
        ..PodCondition::default()
    };
    let with = |conditions| PodStatus { conditions: Some(conditions), ..PodStatus::default() };
    let shown = with(vec![condition("Ready", "False"), condition("Foreign", "True")]);
    let written = with(vec![condition("Ready", "True"), condition("Foreign", "False")]);
    let merged = newer_conditions(Some(shown), &written).conditions.unwrap();
    assert_eq!(merged, [condition("Ready", "True"), condition("Foreign", "True")]);
}

#[test]
fn a_stop_ends_in_a_terminal_phase_whatever_the_policy() {
    let pod = pod(json!({"restartPolicy": "Always", "containers": [{"name": "m"}]}));
    for (reason, code, phase, word) in [
        (StopReason::Deleted, 143, "Failed", None),
        (StopReason::Deleted, 0, "Succeeded", None),
        (StopReason::Deadline, 0, "Failed", Some("DeadlineExceeded")),
        (StopReason::Shutdown, 143, "Failed", Some("Terminated")),
    ] {
        let mut life = Life::new(&pod, Timing::default(), at(0));
        life.started(0, "pawl://x".to_owned(), at(1));
        life.stop(reason, at(30));
        assert_eq!(status(&pod, &life, at(1)).phase.as_deref(), Some("Running"));
        life.exited(0, exit(code));
        let end = status(&pod, &life, at(2));
        assert_eq!((end.phase.as_deref(), end.reason.as_deref()), (Some(phase), word), "{reason:?} {code}");
        let disrupted = end.conditions.unwrap().iter().any(|c| c.type_ == "DisruptionTarget");
        assert_eq!(disrupted, reason == StopReason::Shutdown);
    }
}

#[test]
fn a_pod_is_over_when_its_sidecars_are() {
    let pod = pod(json!({"restartPolicy": "Never",
        "initContainers": [{"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "m"}]}));
    let mut life = Life::new(&pod, Timing::default(), at(0));
    life.started(0, "pawl://s".to_owned(), at(0));
    run(&mut life, 1, 0);
    life.settle(at(2));
    assert_eq!(phase(&life), Phase::Running);
    life.exited(0, exit(143));
    assert_eq!(phase(&life), Phase::Succeeded);
}

#[test]
fn a_pretended_pod_is_ready() {
    let pod = pod(json!({"initContainers": [{"name": "i"}], "containers": [{"name": "m"}]}));
    let status = pretended(&pod, at(0));
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(condition(&status, "Ready").0, "True");
}
