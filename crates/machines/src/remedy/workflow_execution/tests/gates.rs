//! What keeps an execution from running, and what does not.

use super::*;
use crate::plan::Precondition;

fn on(target: &str) -> Value {
    json!({"spec": {"targetResource": target}})
}

#[track_caller]
fn invalid(patch: Value, says: &str) {
    let mut lab = Lab::new();
    lab.cluster.relax(&workflow_execution::KIND);
    lab.execution("w", patch).check("w", "Failed", "ValidationError");
    let status = lab.status("w");
    assert!(status["message"].as_str().unwrap().contains(says), "{status:#}");
    assert_eq!(status["failureDetails"]["wasExecutionFailure"], false);
    assert!(status["failureDetails"]["naturalLanguageSummary"].as_str().unwrap().contains("not touched"));
    assert!(lab.runs(&PIPELINE_RUN).is_empty() && lab.runs(&LEASE).is_empty());
    assert!(lab.event("WorkflowValidationFailed"));
}

#[test]
fn validation_table() {
    invalid(on("web"), "1 part(s)");
    invalid(on("a/b/c/d"), "4 part(s)");
    invalid(on("n//web"), "the kind is empty");
    invalid(on("deployment/web"), "namespaced");
    invalid(on("n/node/worker"), "cluster-scoped");
    invalid(on("item:n/e/x"), "no Kubernetes object");
    invalid(json!({"spec": {"workflowRef": {"containerImage": " "}}}), "containerImage");
    invalid(json!({"spec": {"workflowRef": {"containerImage": "a b"}}}), "spaces");
    invalid(json!({"spec": {"workflowRef": {"workflowId": " "}}}), "workflowId");
    invalid(
        json!({"spec": {"workflowRef": {"containerImage": "i@sha256:1", "containerDigest": "sha256:2"}}}),
        "pinned",
    );
    invalid(json!({"spec": {"parameters": {"lower": "x"}}}), "UPPER_SNAKE_CASE");
    invalid(json!({"spec": {"parameters": {"TARGET_RESOURCE": "n/pod/x"}}}), "set by Pawl");
    invalid(json!({"spec": {"executionConfig": {"timeout": "0s"}}}), "timeout");
    invalid(json!({"spec": {"executionConfig": {"namespace": "Not A Name"}}}), "namespace");
    invalid(json!({"metadata": {"annotations": {"pawl.dev/targets": "nonsense"}}}), "pawl.dev/targets");
}

#[test]
fn a_target_is_normalized_however_it_is_spelled() {
    let mut lab = Lab::new();
    lab.execution("w", on("n/Deployments.apps/web")).check("w", "Running", "Running");
    assert_eq!(lab.status("w")["target"], "n/deployment/web");
    assert_eq!(lab.get("w")["metadata"]["annotations"]["pawl.dev/target"], "n/Deployments.apps/web");
    lab.execution("v", on("n/deploy/web")).check("v", "Skipped", "ResourceBusy");
}

#[test]
fn another_namespace_must_let_it_in() {
    let mut lab = Lab::new();
    lab.execution("w", on("prod/deployment/web")).check("w", "Failed", "Forbidden");
    assert!(lab.status("w")["message"].as_str().unwrap().contains("pawl.dev/allow-from: n"));
    lab.execution("c", on("node/worker-1")).check("c", "Failed", "Forbidden");
    lab.execution("e", json!({"spec": {"executionConfig": {"namespace": "runs"}}})).check(
        "e",
        "Failed",
        "Forbidden",
    );
    lab.cluster.put(
        json!({"kind": "Namespace", "metadata": {"name": "prod", "labels": {"pawl.dev/allow-from": "n"}}}),
    );
    lab.execution("v", on("prod/deployment/web")).check("v", "Running", "Running");
    lab.execution(
        "s",
        json!({"metadata": {"namespace": "pawl-system"}, "spec": {"targetResource": "node/worker-1"}}),
    );
    let found = lab.cluster.get(&workflow_execution::KIND, &Key::new(Some("pawl-system"), "s")).unwrap();
    assert_eq!(found["status"]["phase"], "Running");
}

#[test]
fn the_second_on_a_target_is_skipped_and_told_by_whom() {
    let mut lab = Lab::new();
    lab.execution("w", json!({})).execution("v", json!({})).check("v", "Skipped", "ResourceBusy");
    let status = lab.status("v");
    let conflict = &status["skipDetails"]["conflictingWorkflow"];
    assert_eq!(conflict["kind"], "WorkflowExecution");
    assert_eq!((&conflict["namespace"], &conflict["name"]), (&json!("n"), &json!("w")));
    assert_eq!(
        (&conflict["workflowId"], &conflict["startedAt"]),
        (&json!("mend"), &json!("2026-01-01T00:00:00Z"))
    );
    assert_eq!(status["skipDetails"]["skippedAt"], "2026-01-01T00:00:00Z");
    assert_eq!(lab.runs(&PIPELINE_RUN).len(), 1);
    assert!(lab.event("WorkflowSkipped"));
}

#[test]
fn of_ten_at_once_on_a_target_one_runs_and_nine_are_skipped_with_the_right_conflict() {
    let mut lab = Lab::new();
    for number in 0..10 {
        lab.cluster.put(json!({"kind": "WorkflowExecution", "metadata": {"name": format!("w{number}")}, "spec": {
            "workflowRef": {"workflowId": "mend", "containerImage": "i"}, "targetResource": "n/deployment/web"}}));
    }
    lab.settle();
    let all = lab.runs(&workflow_execution::KIND);
    let running: Vec<_> = all.iter().filter(|one| one["status"]["phase"] == "Running").collect();
    assert_eq!(running.len(), 1);
    let skipped: Vec<_> = all.iter().filter(|one| one["status"]["reason"] == "ResourceBusy").collect();
    assert_eq!(skipped.len(), 9);
    for one in skipped {
        let conflict = &one["status"]["skipDetails"]["conflictingWorkflow"]["name"];
        assert_eq!(*conflict, running[0]["metadata"]["name"]);
    }
    assert_eq!(lab.runs(&PIPELINE_RUN).len(), 1);
}

#[test]
fn different_targets_run_together() {
    let mut lab = Lab::new();
    lab.execution("w", json!({})).execution("v", on("n/deployment/db"));
    lab.check("w", "Running", "Running").check("v", "Running", "Running");
}

#[test]
fn targets_that_an_annotation_adds_are_locked_too_all_or_none() {
    let mut lab = Lab::new();
    lab.execution("w", on("n/deployment/db"));
    let both = json!({"metadata": {"annotations": {"pawl.dev/targets": "n/deployment/db, n/statefulset/x"}}});
    lab.execution("v", both).check("v", "Skipped", "ResourceBusy");
    assert_eq!(lab.holders(), ["w"]);
}

#[test]
fn a_lock_whose_holder_is_gone_skips_nobody() {
    let mut lab = Lab::new();
    lab.execution("w", json!({}));
    // Somebody forced it off while its run was going on.
    lab.cluster.remove(&workflow_execution::KIND, &key("w"));
    lab.machines.retain(|machine| machine.name() != "garbage");
    lab.execution("v", json!({})).check("v", "Skipped", "ResourceBusy");
    let run = lab.run_of("w");
    lab.cluster.delete(&PIPELINE_RUN, &run_key(&run), "Background");
    lab.execution("u", json!({})).check("u", "Running", "Running");
    assert_eq!(lab.holders(), ["u"]);
}

#[test]
fn the_reaper_frees_what_a_vanished_execution_left() {
    let mut lab = Lab::new();
    lab.execution("w", json!({}));
    lab.cluster.remove(&workflow_execution::KIND, &key("w"));
    lab.machines = vec![AnyMachine::new(Reaper)];
    lab.settle();
    assert_eq!(lab.holders(), ["w"], "its run still goes");
    lab.succeed("w");
    assert!(lab.holders().is_empty());
}

#[test]
fn cooldown_holds_for_the_same_workflow_and_not_for_another_and_ends() {
    let mut lab = Lab::new();
    lab.execution("w", json!({})).succeed("w");
    lab.wait(Duration::from_mins(2));
    lab.execution("same", json!({})).check("same", "Skipped", "RecentlyRemediated");
    let details = lab.status("same")["skipDetails"].clone();
    assert_eq!(details["cooldownRemaining"], "3m");
    assert_eq!(
        details["recentRemediation"],
        json!({"name": "w", "workflowId": "mend", "outcome": "Success",
        "completedAt": "2026-01-01T00:00:00Z"})
    );
    assert_eq!(lab.status("same")["nextAllowedExecution"], "2026-01-01T00:05:00Z");
    assert!(lab.event("CooldownActive"));
    lab.execution("other", json!({"spec": {"workflowRef": {"workflowId": "restart"}}}));
    lab.check("other", "Running", "Running").succeed("other");
    lab.wait(Duration::from_mins(3));
    lab.execution("after", json!({})).check("after", "Running", "Running");
}

#[test]
fn cooldown_outlives_the_object_that_caused_it() {
    let mut lab = Lab::new();
    lab.execution("w", json!({})).succeed("w");
    lab.cluster.delete(&workflow_execution::KIND, &key("w"), "Background");
    lab.settle();
    lab.execution("v", json!({})).check("v", "Skipped", "RecentlyRemediated");
}

#[test]
fn three_cycles_in_a_row_release_the_lock() {
    let mut lab = Lab::new();
    for name in ["a", "b", "c"] {
        lab.execution(name, json!({"spec": {"cooldown": "1m"}})).check(name, "Running", "Running");
        assert_eq!(lab.holders(), [name]);
        lab.succeed(name).check(name, "Completed", "Completed");
        assert!(lab.holders().is_empty());
        lab.wait(Duration::from_mins(1));
    }
}

#[test]
fn back_off_over_six_failures_and_a_restart() {
    let mut lab = Lab::new();
    for (number, minutes) in [1, 2, 4, 8, 10].into_iter().enumerate() {
        let name = format!("w{number}");
        lab.execution(&name, json!({})).check(&name, "Running", "Running");
        lab.tekton(&name, "False", "CouldntGetPipeline", "not found").check(
            &name,
            "Failed",
            "ConfigurationError",
        );
        assert_eq!(lab.status(&name)["consecutiveFailures"], json!(number + 1));
        let until = lab.cluster.now.checked_add(Duration::from_mins(minutes)).unwrap();
        assert_eq!(lab.status(&name)["nextAllowedExecution"], json!(format!("{until:.0}")));
        lab.machines = Lab::new().machines;
        lab.wait(Duration::from_mins(minutes) - Duration::from_secs(1));
        let early = format!("early{number}");
        lab.execution(&early, json!({})).check(&early, "Skipped", "BackingOff");
        assert_eq!(lab.status(&early)["nextAllowedExecution"], json!(format!("{until:.0}")));
        lab.wait(Duration::from_secs(1));
    }
    lab.execution("sixth", json!({})).tekton("sixth", "False", "CouldntGetPipeline", "not found");
    lab.wait(Duration::from_hours(24));
    lab.execution("never", json!({})).check("never", "Skipped", "ExhaustedRetries");
    assert_eq!(lab.status("never")["consecutiveFailures"], json!(6));
}

#[test]
fn success_resets_the_row_of_failures() {
    let mut lab = Lab::new();
    lab.execution("a", json!({})).tekton("a", "False", "CouldntGetPipeline", "no");
    lab.wait(Duration::from_mins(1)).execution("b", json!({})).succeed("b");
    assert_eq!(lab.memory().get("mend").unwrap().failures, 0);
    assert_eq!(lab.status("b").get("consecutiveFailures"), None);
}

/// A person clears the block on the one target.
fn clear(lab: &mut Lab) {
    let lease = lab.cluster.world.list(&LEASE, None).remove(0);
    let mut memory = lab.memory();
    assert_eq!(memory.clear(None, "ada@example.com", "looked at it", lab.cluster.now).len(), 1);
    let patch = json!({"metadata": {"annotations": {annotations::MEMORY: memory.written()}}});
    lab.cluster.edit(&LEASE, &lease.key(), &patch);
    lab.settle();
}

#[test]
fn after_an_execution_failure_nothing_runs_until_a_person_clears_it() {
    let mut lab = Lab::new();
    lab.execution("w", json!({})).fail("w").check("w", "Failed", "TaskRunFailed");
    assert_eq!(lab.status("w")["failureDetails"]["failedTaskName"], "a");
    lab.wait(Duration::from_hours(48));
    lab.execution("v", json!({})).check("v", "Skipped", "PreviousExecutionFailed");
    assert_eq!(lab.status("v")["skipDetails"]["recentRemediation"]["name"], "w");
    lab.execution("other", json!({"spec": {"workflowRef": {"workflowId": "restart"}}})).succeed("other");
    lab.check("other", "Completed", "Completed");
    clear(&mut lab);
    let clearance = lab.status("w")["blockClearance"].clone();
    assert_eq!(
        (&clearance["clearedBy"], &clearance["reason"]),
        (&json!("ada@example.com"), &json!("looked at it"))
    );
    assert!(lab.event("BlockCleared"));
    lab.execution("u", json!({})).check("u", "Running", "Running").succeed("u").check(
        "u",
        "Completed",
        "Completed",
    );
}

#[test]
fn a_memory_that_cannot_be_read_keeps_everything_from_running() {
    let mut lab = Lab::new();
    lab.execution("w", json!({})).succeed("w");
    let lease = lab.cluster.world.list(&LEASE, None).remove(0);
    lab.cluster.edit(&LEASE, &lease.key(), &json!({"metadata": {"annotations": {annotations::MEMORY: "?"}}}));
    lab.wait(Duration::from_hours(1)).execution("v", json!({})).check("v", "Pending", "Unknown");
    assert!(lab.status("v")["message"].as_str().unwrap().contains("pawl clear-block"));
    lab.cluster.edit(
        &LEASE,
        &lease.key(),
        &json!({"metadata": {"annotations": {annotations::MEMORY: null}}}),
    );
    lab.settle().check("v", "Running", "Running");
}

#[test]
fn a_lock_that_may_not_be_taken_is_waited_for() {
    let mut lab = Lab::alone();
    let no = json!({"kind": "Status", "reason": "Forbidden", "message": "no leases for you", "code": 403});
    lab.cluster.refuse_create = Some((LEASE, 403, no));
    lab.cluster.put(json!({"kind": "WorkflowExecution", "metadata": {"name": "w"}, "spec": {
        "workflowRef": {"workflowId": "mend", "containerImage": "i"}, "targetResource": "n/deployment/web"}}));
    for _ in 0..3 {
        lab.cluster.step(&lab.machines[0], &workflow_execution::KIND, &key("w"));
    }
    lab.check("w", "Pending", "Forbidden");
    assert!(lab.runs(&PIPELINE_RUN).is_empty());
    lab.cluster.refuse_create = None;
    lab.wait(REFUSED_RETRY).check("w", "Running", "Running");
}

#[track_caller]
fn refused(code: u16, reason: &str, message: &str, expect: &str) {
    let mut lab = Lab::alone();
    let no = json!({"kind": "Status", "reason": reason, "message": message, "code": code});
    lab.cluster.refuse_create = Some((PIPELINE_RUN, code, no));
    lab.execution("w", json!({})).check("w", "Failed", expect);
    let status = lab.status("w");
    assert!(status["message"].as_str().unwrap().contains(message), "{status:#}");
    assert_eq!(
        (&status["failureDetails"]["wasExecutionFailure"], &status["consecutiveFailures"]),
        (&json!(false), &json!(1))
    );
    assert!(lab.holders().is_empty());
}

#[test]
fn a_run_that_the_server_refuses_fails_with_the_reason_and_backs_off() {
    refused(403, "Forbidden", "pipelineruns is forbidden", "Forbidden");
    refused(422, "Invalid", "spec.params: bad", "PipelineRunCreationFailed");
    refused(403, "Forbidden", "exceeded quota: runs", "ResourceExhausted");
}

#[test]
fn a_transient_error_of_a_create_is_retried() {
    let mut lab = Lab::new();
    let busy = json!({"kind": "Status", "reason": "ServiceUnavailable", "message": "later", "code": 503});
    lab.cluster.refuse_create = Some((PIPELINE_RUN, 503, busy));
    lab.execution("w", json!({}));
    assert!(lab.get("w").get("status").is_none());
    lab.cluster.refuse_create = None;
    lab.settle().check("w", "Running", "Running");
}

fn holidays(lab: &mut Lab, until: &Value) {
    lab.cluster.put(json!({"kind": "Freeze", "metadata": {"name": "holidays"},
        "spec": {"from": "2025-12-31T00:00:00Z", "until": until, "reason": "nobody is here"}}));
}

#[test]
fn an_execution_under_a_freeze_is_skipped_and_says_until_when() {
    let mut lab = Lab::new();
    holidays(&mut lab, &json!("2026-01-01T03:00:00Z"));
    lab.execution("w", json!({})).check("w", "Skipped", "Frozen");
    let status = lab.status("w");
    assert_eq!(status["skipDetails"]["reason"], "Frozen");
    assert!(status["skipDetails"]["message"].as_str().unwrap().contains("nobody is here"));
    assert_eq!(status["nextAllowedExecution"], "2026-01-01T03:00:00Z");
    let frozen = status["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "Frozen");
    assert_eq!(frozen.unwrap()["status"], "True");
    let gate = status["gates"].as_array().unwrap().iter().find(|gate| gate["gate"] == "Freeze").unwrap();
    assert_eq!(gate["verdict"], "Stopped");
    assert!(lab.runs(&PIPELINE_RUN).is_empty() && lab.holders().is_empty());
    assert!(lab.event("WorkflowSkipped"));
    // Whoever asks again afterwards may.
    lab.wait(Duration::from_hours(3)).execution("v", json!({})).check("v", "Running", "Running");
}

#[test]
fn a_freeze_that_the_cache_only_remembers_skips_nobody() {
    let mut lab = Lab::new();
    holidays(&mut lab, &json!("2026-01-01T03:00:00Z"));
    lab.cluster.put(json!({"kind": "WorkflowExecution", "metadata": {"name": "w", "finalizers": [finalizers::WORKFLOW_EXECUTION]}, "spec": {
        "workflowRef": {"workflowId": "mend", "version": "1", "containerImage": "i"}, "targetResource": "n/deployment/web"}}));
    let me = lab.cluster.world.get(&workflow_execution::KIND, &key("w")).unwrap();
    let plan = lab.cluster.plan(&lab.machines[0], &me);
    let confirms = |step: &Step| matches!(step, Step::Confirm(Precondition::Unchanged { target, .. }) if target.kind == pawl_api::pawl::freeze::KIND);
    assert!(plan.steps.iter().any(confirms), "{:?}", plan.steps);
}

#[test]
fn an_overridden_freeze_lets_an_execution_run_and_the_gate_says_why() {
    let mut lab = Lab::new();
    holidays(&mut lab, &Value::Null);
    let overridden = json!({"metadata": {"annotations": {"pawl.dev/freeze-override": "the shop is down"}}});
    lab.execution("w", overridden).check("w", "Running", "Running");
    let status = lab.status("w");
    let gate = status["gates"].as_array().unwrap().iter().find(|gate| gate["gate"] == "Freeze").unwrap();
    assert_eq!(gate["reason"], "FreezeOverridden");
    assert!(gate["lookedAt"].as_str().unwrap().contains("the shop is down"), "{gate}");
}
