//! How an action is carried out: under the lock, with its undo stored before, once.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::lock::LEASE;

#[test]
fn a_scale_is_done_recorded_with_before_and_after_and_can_be_taken_back() {
    let mut acts = Acts::new();
    acts.execution("k", json!({})).act().check("k", "rollback_ready", "Completed");
    assert_eq!(acts.replicas("web"), 5);
    let status = acts.status("k");
    let results = &status["executionResults"];
    assert_eq!((&results["success"], &results["retriesAttempted"]), (&json!(true), &json!(0)));
    let affected = &results["resourcesAffected"][0];
    assert_eq!((&affected["kind"], &affected["name"]), (&json!("Deployment"), &json!("web")));
    assert_eq!((&affected["before"], &affected["after"]), (&json!("replicas: 3"), &json!("replicas: 5")));
    assert_eq!(results["podLogs"], "scaled, and told so");
    assert_eq!(results["jobName"], status["jobRef"]["name"]);
    let rollback = &status["rollbackInformation"];
    assert_eq!(
        (&rollback["available"], &rollback["rollbackAction"]),
        (&json!(true), &json!("scale_deployment"))
    );
    assert_eq!(rollback["rollbackParameters"]["scaleDeployment"]["replicas"], 3);
    assert_eq!(status["outcome"], "success");
    assert!(acts.event("ExecutionCompleted") && acts.holders().is_empty());
}

#[test]
fn i4_the_undo_is_stored_and_named_in_the_status_before_there_is_a_job() {
    let mut acts = Acts::new();
    let machine = acts.machines[0].clone();
    acts.machines.clear();
    acts.execution("k", json!({}));
    let mut stored_before = false;
    for _ in 0..20 {
        acts.cluster.step(&machine, &KIND, &key("k"));
        let named = acts.status("k")["rollbackInformation"]["undoRef"]["name"].is_string();
        if !acts.jobs().is_empty() {
            assert!(stored_before, "the Job came first");
        }
        stored_before |= named && acts.undo("k").is_some();
    }
    assert!(!acts.jobs().is_empty());
}

#[test]
fn a_job_is_held_until_its_uid_is_recorded_and_runs_as_its_actions_service_account() {
    let mut acts = Acts::new();
    let machine = acts.machines[0].clone();
    acts.machines.clear();
    acts.execution("k", json!({}));
    for _ in 0..20 {
        acts.cluster.step(&machine, &KIND, &key("k"));
        for job in acts.jobs() {
            let recorded = acts.status("k")["jobRef"]["uid"] == job["metadata"]["uid"];
            assert!(job["spec"]["suspend"] == true || recorded);
        }
    }
    let job = acts.jobs().remove(0);
    assert_eq!(job["metadata"]["namespace"], EXECUTOR);
    assert_eq!(job["spec"]["suspend"], false);
    assert_eq!(
        (&job["spec"]["backoffLimit"], &job["spec"]["ttlSecondsAfterFinished"]),
        (&json!(0), &Value::Null)
    );
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(
        (&pod["serviceAccountName"], &pod["restartPolicy"]),
        (&json!("kubernaut-action-scale-deployment"), &json!("Never"))
    );
    assert_eq!(job["metadata"]["name"], kubernetes_execution::job_name("kubernetesexecution-k", 0));
}

#[test]
fn a_job_may_expire_only_once_its_result_is_recorded_and_its_input_goes() {
    let mut acts = Acts::new();
    acts.execution("k", json!({})).act();
    let job = acts.jobs().remove(0);
    assert_eq!(job["spec"]["ttlSecondsAfterFinished"], 300);
    let secrets = acts.cluster.world.list(&SECRET, Some(EXECUTOR));
    let names: Vec<&str> = secrets.iter().map(|secret| secret.name()).collect();
    assert_eq!(names, ["pawl-undo-kubernetesexecution-k"], "the input is gone, the undo stays");
}

#[test]
fn i2_a_job_that_goes_after_its_result_was_recorded_starts_nothing() {
    let mut acts = Acts::new();
    acts.execution("k", json!({})).act();
    let job = acts.jobs().remove(0);
    let name = Key::new(Some(EXECUTOR), job["metadata"]["name"].as_str().unwrap());
    acts.cluster.delete(&crate::cluster::job::JOB, &name, "Background");
    acts.wait(Duration::from_hours(1)).check("k", "rollback_ready", "Completed");
    assert!(acts.jobs().is_empty());
}

#[test]
fn an_action_without_an_undo_ends_completed_and_says_why() {
    let mut acts = Acts::new();
    let restart = json!({"spec": {"action": "rollout_restart",
        "parameters": {"scaleDeployment": null, "rolloutRestart": {"name": "web", "namespace": "n"}}}});
    acts.execution("k", restart).act().check("k", "completed", "Completed");
    let rollback = acts.status("k")["rollbackInformation"].clone();
    assert_eq!(rollback["available"], false);
    assert!(!rollback["unavailableReason"].as_str().unwrap().is_empty());
    assert!(acts.event("ExecutionCompletedPermanent"));
}

#[test]
fn who_finds_the_target_taken_waits_and_is_told_by_whom_and_goes_on_when_it_is_free() {
    let mut acts = Acts::new();
    acts.execution("k", json!({}))
        .execution("l", json!({"spec": {"parameters": {"scaleDeployment": {"replicas": 6}}}}));
    acts.check("l", "executing", "TargetLocked");
    assert!(acts.status("l")["conditions"].to_string().contains("held by KubernetesExecution"));
    assert_eq!(
        (acts.gate("l", "Lock"), acts.holders()),
        ("Waiting TargetLocked".to_owned(), vec!["k".to_owned()])
    );
    acts.act().check("k", "rollback_ready", "Completed").check("l", "executing", "JobCreated");
    acts.act().check("l", "rollback_ready", "Completed");
    assert_eq!(acts.replicas("web"), 6);
}

/// Waits for `n/web`, which it was told to scale at that time.
fn waiting(created: &str, replicas: i64) -> Value {
    json!({"metadata": {"creationTimestamp": created}, "spec": {"lockTimeout": "1h",
        "parameters": {"scaleDeployment": {"replicas": replicas}}}})
}

#[test]
fn those_who_wait_for_a_target_have_it_in_the_order_of_their_age() {
    let mut acts = Acts::new();
    acts.execution("k", json!({}));
    let waiting = [("z", waiting("2025-12-31T23:00:00Z", 6)), ("l", waiting("2025-12-31T23:30:00Z", 7))];
    for (name, wanted) in waiting {
        acts.execution(name, wanted).check(name, "executing", "TargetLocked");
    }
    acts.act().check("z", "executing", "JobCreated").check("l", "executing", "TargetLocked");
    acts.act().check("z", "rollback_ready", "Completed").check("l", "executing", "JobCreated");
    acts.act();
    assert_eq!(acts.replicas("web"), 7);
}

#[test]
fn two_who_stand_in_different_lines_for_the_same_targets_do_not_wait_for_each_other() {
    let mut acts = Acts::new();
    acts.deployment("db", 3);
    let of_db = json!({"spec": {"parameters": {"scaleDeployment": {"deployment": "db"}}}});
    acts.execution("k", json!({})).execution("m", of_db);
    let both = |mut wanted: Value| {
        merge(&mut wanted, &json!({"metadata": {"annotations": {"pawl.dev/targets": "n/deployment/db"}}}));
        wanted
    };
    acts.execution("z", both(waiting("2025-12-31T23:00:00Z", 6)));
    acts.execution("l", both(waiting("2025-12-31T23:30:00Z", 7)));
    // The younger one was told to wait when only the other target was taken.
    let line = |target: &str| target.parse::<pawl_api::meta::Target>().unwrap().short_hash();
    for (name, target) in [("z", "n/deployment/web"), ("l", "n/deployment/db")] {
        let label = json!({"metadata": {"labels": {"pawl.dev/waits-for": line(target)}}});
        acts.cluster.edit(&KIND, &key(name), &label);
    }
    acts.act().check("z", "executing", "JobCreated").check("l", "executing", "TargetLocked");
    acts.act().check("l", "executing", "JobCreated");
}

#[test]
fn who_is_next_does_not_wait_for_one_that_no_longer_does() {
    let freeze = json!({"kind": "Freeze", "metadata": {"name": "f"}, "spec": {"reason": "now", "targets": ["n/deployment/db"],
        "from": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"}});
    let mut acts = Acts::new();
    acts.deployment("db", 3);
    acts.execution("k", json!({}));
    let mut frozen = waiting("2025-12-31T23:00:00Z", 6);
    merge(&mut frozen, &json!({"metadata": {"annotations": {"pawl.dev/targets": "n/deployment/db"}}}));
    acts.execution("z", frozen).check("z", "executing", "TargetLocked");
    acts.execution("l", waiting("2025-12-31T23:30:00Z", 7)).check("l", "executing", "TargetLocked");
    acts.cluster.put(freeze);
    acts.settle();
    acts.act().check("l", "executing", "JobCreated");

    let mut acts = Acts::new();
    acts.execution("k", json!({"spec": {"timeout": "2h"}}));
    acts.execution("z", waiting("2025-12-31T23:00:00Z", 6))
        .execution("l", waiting("2025-12-31T23:30:00Z", 7));
    let cancel = json!({"metadata": {"annotations": {"pawl.dev/cancel": "bob"}}});
    acts.cluster.edit(&KIND, &key("z"), &cancel);
    acts.settle().act().check("z", "failed", "cancelled").check("l", "executing", "JobCreated");
}

#[test]
fn i8_a_job_that_was_held_for_long_has_all_of_its_time_when_it_goes() {
    let mut acts = Acts::new();
    // The Job is made and recorded, and then whoever would let it go is away: nobody may write a Job.
    acts.execution("k", json!({"spec": {"timeout": "5m"}}));
    let job = acts.going().remove(0);
    let held = json!({"metadata": {"annotations": {"pawl.dev/held": "false"}}, "spec": {"suspend": true}});
    acts.cluster.edit(&crate::cluster::job::JOB, &job, &held);
    acts.cluster.advance(Duration::from_mins(15));
    acts.settle().check("k", "executing", "JobCreated");
    assert_eq!(acts.going(), [job], "it is let go");
    assert_eq!(acts.status("k")["executionDeadline"], "2026-01-01T00:21:00Z");
    acts.wait(Duration::from_mins(4)).check("k", "executing", "JobCreated");
}

#[test]
fn i8_waiting_for_the_lock_ends_and_does_not_eat_the_actions_own_time() {
    let mut acts = Acts::new();
    acts.execution("k", json!({"spec": {"timeout": "1h"}}))
        .execution("l", json!({"spec": {"lockTimeout": "5m"}}));
    assert_eq!(acts.status("l")["lockDeadline"], "2026-01-01T00:05:00Z");
    acts.wait(Duration::from_mins(4)).check("l", "executing", "TargetLocked");
    acts.wait(Duration::from_mins(1)).check("l", "failed", "lock_timeout");
    assert_eq!(acts.holders(), ["k"]);
    acts.execution("m", json!({"spec": {"timeout": "2m", "lockTimeout": "30m"}}));
    acts.wait(Duration::from_mins(10)).act().check("m", "executing", "JobCreated");
    assert_eq!(acts.status("m")["executionDeadline"], "2026-01-01T00:18:00Z");
}

#[test]
fn policy_and_preconditions_are_asked_once_more_under_the_lock() {
    let two = || json!({"spec": {"preConditions": [condition("Three", "/spec/replicas == 3", true, "0s")]}});
    let mut acts = Acts::new();
    acts.execution("k", json!({})).execution("l", two()).check("l", "executing", "TargetLocked");
    acts.act().check("l", "failed", "precondition_failed");
    assert!(acts.holders().is_empty(), "k made it five");
    let mut acts = Acts::new();
    acts.execution("k", json!({})).execution("l", json!({})).check("l", "executing", "TargetLocked");
    acts.rule(|decision| decision.deny = vec!["not now".to_owned()]);
    acts.act().check("l", "failed", "policy_denied");
    assert!(acts.jobs().iter().all(|job| job["metadata"]["labels"]["kubernaut.io/execution-id"] == "k"));
}

#[test]
fn an_undo_of_another_moment_than_the_gates_saw_is_captured_anew() {
    let mut acts = Acts::new();
    acts.rules.borrow_mut().meanwhile = Some(4);
    acts.execution("k", json!({})).act().check("k", "rollback_ready", "Completed");
    assert_eq!(
        acts.status("k")["rollbackInformation"]["rollbackParameters"]["scaleDeployment"]["replicas"],
        4
    );
    assert_eq!(acts.replicas("web"), 5);
}

#[test]
fn a_target_that_moves_between_its_undo_and_the_job_is_looked_at_anew() {
    let mut acts = Acts::new();
    let machine = acts.machines[0].clone();
    let all = std::mem::take(&mut acts.machines);
    acts.execution("k", json!({}));
    while acts.status("k")["jobRef"]["uid"].is_null() {
        acts.cluster.step(&machine, &KIND, &key("k"));
    }
    acts.cluster.edit(&DEPLOYMENT, &key("web"), &json!({"spec": {"replicas": 4}}));
    acts.machines = all;
    acts.settle().act().check("k", "rollback_ready", "Completed");
    assert_eq!(
        acts.status("k")["rollbackInformation"]["rollbackParameters"]["scaleDeployment"]["replicas"],
        4
    );
    assert_eq!(acts.status("k")["attempt"], 1, "the first one was never let go");
    assert_eq!(acts.status("k")["executionResults"]["retriesAttempted"], 0);
}

#[test]
fn crash_at_every_write_one_job_is_let_go_and_the_action_is_done_once() {
    for plans in 0..24 {
        for requests in 0..4 {
            let mut acts = Acts::new();
            let machine = acts.machines[0].clone();
            let all = std::mem::take(&mut acts.machines);
            acts.execution("k", json!({}));
            for _ in 0..plans {
                acts.cluster.step(&machine, &KIND, &key("k"));
            }
            acts.cluster.step_dying_at_a_write(&machine, &KIND, &key("k"), requests);
            acts.machines = all;
            acts.settle().act().check("k", "rollback_ready", "Completed");
            assert_eq!(
                (acts.jobs().len(), acts.replicas("web")),
                (1, 5),
                "after {plans} plans and {requests} requests"
            );
            let undo = &acts.status("k")["rollbackInformation"]["rollbackParameters"];
            assert_eq!(undo["scaleDeployment"]["replicas"], 3);
            assert!(acts.holders().is_empty());
        }
    }
}

#[test]
fn a_failed_attempt_fails_with_what_the_executor_said() {
    let mut acts = Acts::new();
    acts.execution("k", json!({}));
    let report = json!({"version": 1, "uid": "kubernetesexecution-k", "action": "scale_deployment",
        "outcome": "failed", "message": "the API server answered 403"});
    acts.end(1, &report.to_string()).check("k", "failed", "execution_failed");
    let status = acts.status("k");
    assert!(status["message"].as_str().unwrap().contains("answered 403"));
    assert_eq!(status["executionResults"]["success"], false);
    assert!(status["executionResults"]["errorMessage"].as_str().unwrap().contains("403"));
    assert!(acts.holders().is_empty() && acts.event("ExecutionFailed"));
}

#[test]
fn a_container_that_is_killed_fails_and_the_exit_code_is_told() {
    let mut acts = Acts::new();
    acts.execution("k", json!({})).end(137, "").check("k", "failed", "execution_failed");
    let message = acts.status("k")["message"].as_str().unwrap().to_owned();
    assert!(message.contains("137") && message.contains("OOMKilled"), "{message}");
}

#[test]
fn an_evicted_pod_fails_the_attempt() {
    let mut acts = Acts::new();
    acts.execution("k", json!({}));
    let job = acts.jobs().remove(0);
    let pods = acts.cluster.world.owned(&POD, job["metadata"]["uid"].as_str().unwrap());
    let evicted =
        json!({"status": {"phase": "Failed", "reason": "Evicted", "message": "the node was low on memory"}});
    acts.cluster.edit(&POD, &pods[0].key(), &evicted);
    acts.settle().check("k", "failed", "execution_failed");
    assert!(acts.status("k")["message"].as_str().unwrap().contains("low on memory"));
}

#[test]
fn an_image_that_cannot_be_pulled_is_given_up_after_a_while() {
    let mut acts = Acts::new();
    acts.execution("k", json!({"spec": {"timeout": "1h"}}));
    let job = acts.jobs().remove(0);
    let pods = acts.cluster.world.owned(&POD, job["metadata"]["uid"].as_str().unwrap());
    let stuck = json!({"status": {"phase": "Pending", "containerStatuses": [{"name": "act", "ready": false,
        "restartCount": 0, "image": "pawl", "imageID": "", "state": {"waiting": {"reason": "ImagePullBackOff",
            "message": "no such image"}}}]}});
    acts.cluster.edit(&POD, &pods[0].key(), &stuck);
    acts.wait(Duration::from_mins(4)).check("k", "executing", "JobCreated");
    acts.wait(Duration::from_mins(1)).check("k", "failed", "execution_failed");
    assert!(acts.status("k")["message"].as_str().unwrap().contains("ImagePullBackOff"));
}

#[test]
fn i8_an_attempt_that_takes_too_long_is_stopped_and_keeps_its_lock_until_it_has_ended() {
    let mut acts = Acts::new();
    acts.execution("k", json!({"spec": {"timeout": "2m"}}));
    acts.machines.retain(|machine| machine.name() != "job");
    let job = acts.jobs().remove(0);
    let pods = acts.cluster.world.owned(&POD, job["metadata"]["uid"].as_str().unwrap());
    acts.cluster.node_runs(&pods[0].key(), &json!({"phase": "Running"}));
    acts.wait(Duration::from_mins(2)).check("k", "executing", "JobCreated");
    acts.wait(Duration::from_mins(1)).check("k", "failed", "execution_timeout");
    assert!(acts.status("k")["message"].as_str().unwrap().contains("may have been applied"));
    assert_eq!(acts.holders(), ["k"], "its Pod still ends");
}

#[test]
fn a_job_that_was_deleted_without_a_result_is_unknown_and_never_run_again() {
    let mut acts = Acts::new();
    acts.execution("k", json!({}));
    let job = acts.going().remove(0);
    acts.cluster.delete(&crate::cluster::job::JOB, &job, "Background");
    acts.settle().check("k", "failed", "result_unknown");
    acts.wait(Duration::from_hours(1));
    assert!(acts.jobs().is_empty());
}

#[test]
fn an_unknown_result_is_decided_by_the_postconditions() {
    let five = || json!({"spec": {"postConditions": [condition("Five", "/spec/replicas == 5", true, "1m")]}});
    for (done, phase, reason) in [(true, "rollback_ready", "Completed"), (false, "failed", "result_unknown")]
    {
        let mut acts = Acts::new();
        acts.execution("k", five());
        let job = acts.going().remove(0);
        if done {
            acts.cluster.edit(&DEPLOYMENT, &key("web"), &json!({"spec": {"replicas": 5}}));
        }
        acts.cluster.delete(&crate::cluster::job::JOB, &job, "Background");
        acts.settle().wait(Duration::from_mins(2)).check("k", phase, reason);
    }
}

#[test]
fn an_action_is_tried_again_and_only_so_often() {
    let mut acts = Acts::new();
    acts.execution("k", json!({"spec": {"maxRetries": 2}}));
    acts.end(1, "").check("k", "executing", "execution_failed");
    assert_eq!(acts.status("k")["executionResults"]["retriesAttempted"], 1);
    assert!(acts.going().is_empty(), "not at once");
    acts.wait(Duration::from_secs(6)).check("k", "executing", "JobCreated");
    assert_eq!(acts.status("k")["attempt"], 1);
    acts.end(1, "").wait(Duration::from_mins(1)).act().check("k", "rollback_ready", "Completed");
    assert_eq!(acts.status("k")["executionResults"]["retriesAttempted"], 2);
    assert_eq!(acts.replicas("web"), 5);
    let mut acts = Acts::new();
    acts.execution("k", json!({"spec": {"maxRetries": 1}})).end(1, "").wait(Duration::from_mins(1));
    acts.end(1, "").check("k", "failed", "execution_failed");
}

#[test]
fn what_the_executor_refuses_is_not_tried_again() {
    let mut acts = Acts::new();
    acts.execution("k", json!({"spec": {"maxRetries": 3}}));
    let report = json!({"version": 1, "uid": "kubernetesexecution-k", "action": "scale_deployment",
        "outcome": "refused", "message": "it is another one than when the execution began"});
    acts.end(1, &report.to_string()).check("k", "failed", "execution_failed");
}

#[test]
fn a_foreign_job_of_its_name_is_an_ownership_mismatch_and_stays() {
    let mut acts = Acts::new();
    let name = kubernetes_execution::job_name("kubernetesexecution-k", 0);
    acts.cluster.put(json!({"kind": "Job", "metadata": {"name": name, "namespace": EXECUTOR},
        "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i"}]}}}}));
    acts.execution("k", json!({})).check("k", "failed", "execution_failed");
    assert!(acts.status("k")["message"].as_str().unwrap().contains("somebody else"));
    assert_eq!((acts.jobs().len(), acts.holders().len()), (1, 0));
}

#[test]
fn a_lock_whose_holder_is_gone_stops_nobody() {
    let mut acts = Acts::new();
    acts.execution("k", json!({}));
    acts.machines.retain(|machine| machine.name() == "kubernetesexecution");
    acts.cluster.remove(&KIND, &key("k"));
    let job = acts.going().remove(0);
    acts.execution("l", json!({})).check("l", "executing", "TargetLocked");
    let pods = acts.cluster.world.list(&POD, Some(EXECUTOR));
    acts.cluster.delete(&crate::cluster::job::JOB, &job, "Background");
    for pod in pods {
        acts.cluster.edit(&POD, &pod.key(), &json!({"metadata": {"finalizers": []}}));
        acts.cluster.delete(&POD, &pod.key(), "Background");
    }
    acts.settle().check("l", "executing", "JobCreated");
    assert_eq!(acts.cluster.world.list(&LEASE, None).len(), 1);
}

fn post(conditions: &[Value]) -> Value {
    json!({"spec": {"postConditions": conditions}})
}

#[test]
fn a_required_postcondition_that_does_not_come_true_fails_with_the_rollback_available() {
    let mut acts = Acts::new();
    acts.execution("k", post(&[condition("Nine", "/spec/replicas == 9", true, "2m")])).act();
    acts.check("k", "executing", "Progressing");
    assert_eq!(acts.status("k")["postconditionDeadline"], "2026-01-01T00:02:00Z");
    acts.wait(Duration::from_secs(119)).check("k", "executing", "Progressing");
    acts.wait(Duration::from_secs(1)).check("k", "failed", "postcondition_failed");
    let status = acts.status("k");
    assert_eq!(status["rollbackInformation"]["available"], true);
    assert_eq!(status["validationResults"]["postConditionResults"][0]["passed"], false);
    assert!(acts.holders().is_empty());
}

#[test]
fn an_optional_postcondition_that_does_not_come_true_is_a_partial_success() {
    let mut acts = Acts::new();
    let wanted = [
        condition("Five", "/spec/replicas == 5", true, "1m"),
        condition("Ready", "/status/readyReplicas == 5", false, "1m"),
    ];
    acts.execution("k", post(&wanted)).act().check("k", "executing", "Progressing");
    acts.wait(Duration::from_mins(1)).check("k", "rollback_ready", "Completed");
    assert_eq!(acts.status("k")["outcome"], "partial_success");
}

#[test]
fn a_postcondition_that_comes_true_late_is_seen_when_the_target_changes() {
    let mut acts = Acts::new();
    acts.execution("k", post(&[condition("Ready", "/status/readyReplicas == 5", true, "5m")])).act();
    acts.wait(Duration::from_mins(3)).check("k", "executing", "Progressing");
    acts.cluster.edit(&DEPLOYMENT, &key("web"), &json!({"status": {"readyReplicas": 5}}));
    let woken =
        wakes::of_the_target(&acts.cluster.world.get(&DEPLOYMENT, &key("web")).unwrap(), &acts.cluster.world);
    assert_eq!(woken, [key("k")]);
    acts.settle().check("k", "rollback_ready", "Completed");
    assert_eq!(acts.status("k")["outcome"], "success");
}

#[test]
fn postconditions_hold_together_one_that_flaps_is_waited_for_again() {
    let mut acts = Acts::new();
    let wanted = [
        condition("Ready", "/status/readyReplicas == 5", true, "5m"),
        condition("Updated", "/status/updatedReplicas == 5", true, "5m"),
    ];
    acts.execution("k", post(&wanted)).act();
    let say = |acts: &mut Acts, ready: i64, updated: i64| {
        let status = json!({"status": {"readyReplicas": ready, "updatedReplicas": updated}});
        acts.cluster.edit(&DEPLOYMENT, &key("web"), &status);
        acts.settle();
    };
    say(&mut acts, 5, 4);
    say(&mut acts, 4, 5);
    acts.check("k", "executing", "Progressing");
    say(&mut acts, 5, 5);
    acts.check("k", "rollback_ready", "Completed");
}

#[test]
fn a_postcondition_that_cannot_be_evaluated_is_not_waited_for() {
    let mut acts = Acts::new();
    acts.execution("k", post(&[condition("Broken", "nonsense", true, "1h")])).act();
    acts.check("k", "failed", "postcondition_failed");
}

#[test]
fn a_steady_state_asks_and_writes_nothing() {
    let mut acts = Acts::new();
    acts.execution("k", json!({})).act().check("k", "rollback_ready", "Completed");
    let (calls, statuses) = (acts.cluster.calls.len(), acts.cluster.statuses.len());
    acts.settle();
    assert_eq!((acts.cluster.calls.len(), acts.cluster.statuses.len()), (calls, statuses));
}

#[test]
fn i6_what_was_kept_is_in_no_status_and_no_event() {
    let canary = STANDARD.encode("obviously-not-a-real-secret");
    let mut acts = Acts::new();
    acts.cluster.put(json!({"kind": "Secret", "metadata": {"name": "s"}, "data": {"k": canary}}));
    acts.cluster.put(json!({"kind": "Secret", "metadata": {"name": "from"}, "data": {"k": "b3RoZXI="}}));
    let update = json!({"spec": {"action": "update_secret", "parameters": {"scaleDeployment": null, "updateSecret": {
        "secret": "s", "namespace": "n", "data": {"k": {"valueFrom": {"secretKeyRef": {"name": "from", "key": "k"}}}}}}}});
    acts.execution("k", update).check("k", "executing", "JobCreated");
    assert!(acts.undo("k").is_some());
    let told = format!("{:?}{}", acts.cluster.events, acts.get("k"));
    assert!(!told.contains(&canary) && !told.contains("obviously-not-a-real-secret"), "{told}");
}
