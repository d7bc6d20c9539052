//! How a run is made, recorded, let go and followed.

use super::*;

#[test]
fn happy_path_tekton() {
    let mut lab = Lab::new();
    lab.execution("w", json!({})).check("w", "Running", "Running");
    let run = lab.run_of("w");
    assert_eq!(run["metadata"]["name"], json!(workflow_execution::run_name("w", "workflowexecution-w")));
    assert_eq!(run["metadata"]["ownerReferences"][0]["uid"], "workflowexecution-w");
    assert_eq!(run["spec"].get("status"), None, "it was let go");
    assert_eq!(lab.status("w")["pipelineRunUID"], run["metadata"]["uid"]);
    assert_eq!(lab.holders(), ["w"]);
    lab.tekton(
        "w",
        "Unknown",
        "Running",
        "Tasks Completed: 1 (Failed: 0, Cancelled 0), Incomplete: 2, Skipped: 0",
    );
    let summary = &lab.status("w")["pipelineRunStatus"];
    assert_eq!((&summary["completedTasks"], &summary["totalTasks"]), (&json!(1), &json!(3)));
    lab.cluster.advance(Duration::from_secs(63));
    lab.succeed("w").check("w", "Completed", "Completed");
    let status = lab.status("w");
    assert_eq!((&status["outcome"], &status["duration"]), (&json!("Success"), &json!("1m3s")));
    assert_eq!(status["target"], "n/deployment/web");
    assert!(lab.holders().is_empty());
    for reason in
        ["WorkflowValidated", "PipelineRunCreated", "PhaseTransition", "WorkflowCompleted", "LockReleased"]
    {
        assert!(lab.event(reason), "{reason}");
    }
    let gates: Vec<_> = status["gates"].as_array().unwrap().iter().map(|gate| &gate["gate"]).collect();
    assert_eq!(gates, ["Validate", "Cooldown", "Lock"]);
}

#[test]
fn the_pipeline_run_has_the_shape_that_tekton_expects() {
    let mut lab = Lab::new();
    lab.execution(
        "w",
        json!({"metadata": {"uid": "u"}, "spec": {
        "workflowRef": {"containerDigest": format!("sha256:{}", "a".repeat(64))},
        "parameters": {"REPLICAS": "3", "WHY": "$(x)\nand \"more\""},
        "executionConfig": {"serviceAccountName": "mender", "timeout": "10m"}}}),
    );
    let mut spec = lab.run_of("w")["spec"].clone();
    let bundle = format!("registry.example.com/mend:1@sha256:{}", "a".repeat(64));
    spec.as_object_mut().unwrap().remove("status");
    assert_eq!(
        spec,
        json!({
            "pipelineRef": {"resolver": "bundles", "params": [
                {"name": "bundle", "value": bundle}, {"name": "name", "value": "workflow"},
                {"name": "kind", "value": "pipeline"}]},
            "params": [{"name": "REPLICAS", "value": "3"}, {"name": "TARGET_RESOURCE", "value": "n/deployment/web"},
                {"name": "WHY", "value": "$(x)\nand \"more\""}],
            "timeouts": {"pipeline": "10m"},
            "taskRunTemplate": {"serviceAccountName": "mender", "podTemplate": {"securityContext": {
                "runAsNonRoot": true, "runAsUser": 1000, "fsGroup": 1000,
                "seccompProfile": {"type": "RuntimeDefault"}}}},
        })
    );
}

#[test]
fn happy_path_job_with_parameters_as_env() {
    let mut lab = Lab::new();
    let patch = json!({"spec": {"engine": "job", "parameters": {"SECRET_LIKE": "$(TOKEN)\n"},
        "executionConfig": {"serviceAccountName": "mender", "timeout": "90s"}}});
    lab.execution("w", patch).check("w", "Running", "Running");
    let job = lab.run_of("w");
    assert_eq!(job["spec"]["suspend"], false);
    assert_eq!(
        (&job["spec"]["backoffLimit"], &job["spec"]["activeDeadlineSeconds"]),
        (&json!(0), &json!(90))
    );
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(
        pod["containers"][0]["env"],
        json!([{"name": "SECRET_LIKE", "value": "$$(TOKEN)\n"},
        {"name": "TARGET_RESOURCE", "value": "n/deployment/web"}])
    );
    assert_eq!(
        (&pod["serviceAccountName"], &pod["automountServiceAccountToken"]),
        (&json!("mender"), &json!(true))
    );
    assert_eq!(pod["containers"][0]["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
    finish_pod(&mut lab, "Succeeded", 0, "Completed");
    lab.check("w", "Completed", "Completed");
}

/// The one Pod of the one Job ends.
fn finish_pod(lab: &mut Lab, phase: &str, code: i32, reason: &str) {
    let pod = lab.runs(&POD).remove(0);
    let at = lab.cluster.now;
    let state =
        json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": at, "finishedAt": at}});
    let status = json!({"phase": phase, "containerStatuses": [{"name": "workflow", "image": "i", "imageID": "",
        "ready": false, "restartCount": 0, "state": state}]});
    lab.cluster.edit(&POD, &run_key(&pod), &json!({"status": status}));
    lab.settle();
}

#[test]
fn a_job_that_fails_says_which_exit_code() {
    let mut lab = Lab::new();
    lab.execution("w", engine_job());
    finish_pod(&mut lab, "Failed", 137, "OOMKilled");
    lab.check("w", "Failed", "OOMKilled");
    let details = &lab.status("w")["failureDetails"];
    assert_eq!((&details["exitCode"], &details["failedStepName"]), (&json!(137), &json!("workflow")));
    assert_eq!(details["wasExecutionFailure"], true);
}

#[test]
fn a_job_whose_image_cannot_be_pulled_fails_before_execution() {
    let mut lab = Lab::new();
    lab.execution("w", engine_job());
    let pod = lab.runs(&POD).remove(0);
    let waiting = json!({"phase": "Pending", "containerStatuses": [{"name": "workflow", "image": "i", "imageID": "",
        "ready": false, "restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}}]});
    lab.cluster.edit(&POD, &run_key(&pod), &json!({"status": waiting}));
    lab.settle().check("w", "Running", "Running");
    lab.wait(START_LIMIT).check("w", "Failed", "ImagePullBackOff");
    assert_eq!(lab.status("w")["failureDetails"]["wasExecutionFailure"], false);
    assert_eq!(lab.status("w")["consecutiveFailures"], json!(1));
    assert!(lab.runs(&JOB).is_empty() && lab.holders().is_empty());
}

#[test]
fn a_run_in_another_namespace_is_owned_by_labels_and_removed_with_its_execution() {
    let mut lab = Lab::new();
    lab.cluster.put(
        json!({"kind": "Namespace", "metadata": {"name": "runs", "labels": {"pawl.dev/allow-from": "n"}}}),
    );
    lab.execution("w", json!({"spec": {"executionConfig": {"namespace": "runs"}}}))
        .check("w", "Running", "Running");
    let run = lab.run_of("w");
    assert_eq!(run["metadata"]["namespace"], "runs");
    assert_eq!(run["metadata"].get("ownerReferences"), None);
    assert_eq!(run["metadata"]["labels"]["pawl.dev/owner-uid"], "workflowexecution-w");
    lab.succeed("w").check("w", "Completed", "Completed");
    lab.cluster.delete(&workflow_execution::KIND, &key("w"), "Background");
    lab.settle();
    assert!(lab.runs(&PIPELINE_RUN).is_empty() && lab.runs(&workflow_execution::KIND).is_empty());
}

#[test]
fn i1_a_crash_after_any_request_leads_to_one_run() {
    let machine = AnyMachine::new(WorkflowExecutions::default());
    for engine in ["tekton", "job"] {
        for dies_after in 0..60 {
            let mut lab = Lab::new();
            lab.cluster.put(json!({"kind": "WorkflowExecution", "metadata": {"name": "w"}, "spec": {"engine": engine,
                "workflowRef": {"workflowId": "mend", "containerImage": "i"}, "targetResource": "n/deployment/web"}}));
            // Look by look, the process dies after so many requests of one of them.
            let (look, requests) = (dies_after / 6, dies_after % 6);
            for _ in 0..look {
                lab.cluster.step(&machine, &workflow_execution::KIND, &key("w"));
            }
            lab.cluster.step_dying_at_a_write(&machine, &workflow_execution::KIND, &key("w"), requests);
            lab.settle().check("w", "Running", "Running");
            assert_eq!(lab.runs(&PIPELINE_RUN).len() + lab.runs(&JOB).len(), 1, "{engine} {look} {requests}");
            assert_eq!(lab.holders(), ["w"], "{engine} {look} {requests}");
        }
    }
}

#[test]
fn a_crash_at_the_end_counts_the_end_once() {
    let machine = AnyMachine::new(WorkflowExecutions::default());
    for requests in 0..8 {
        let mut lab = Lab::new();
        lab.execution("w", json!({}));
        let run = lab.run_of("w");
        let failed = json!({"status": {"conditions": [{"type": "Succeeded", "status": "False",
            "reason": "CouldntGetPipeline", "message": "no"}], "completionTime": lab.cluster.now}});
        lab.cluster.edit(&PIPELINE_RUN, &run_key(&run), &failed);
        lab.cluster.step_dying_at_a_write(&machine, &workflow_execution::KIND, &key("w"), requests);
        lab.settle().check("w", "Failed", "ConfigurationError");
        assert_eq!(lab.memory().get("mend").unwrap().failures, 1, "after {requests} requests");
        assert!(lab.holders().is_empty());
    }
}

#[test]
fn i1_a_foreign_run_of_that_name_is_left_alone() {
    let mut lab = Lab::new();
    let name = workflow_execution::run_name("w", "workflowexecution-w");
    lab.cluster.put(json!({"kind": "PipelineRun", "metadata": {"name": name}, "spec": {}}));
    let before = lab.runs(&PIPELINE_RUN);
    lab.execution("w", json!({})).check("w", "Failed", "PipelineRunCreationFailed");
    assert!(lab.status("w")["message"].as_str().unwrap().contains("somebody else"));
    assert_eq!(lab.runs(&PIPELINE_RUN), before);
    assert!(lab.holders().is_empty());
}

#[test]
fn a_run_that_was_deleted_outside_is_a_failure_and_never_run_again() {
    for engine in ["tekton", "job"] {
        let mut lab = Lab::new();
        lab.execution("w", json!({"spec": {"engine": engine}}));
        let (run, kind) = (lab.run_of("w"), if engine == "job" { JOB } else { PIPELINE_RUN });
        lab.cluster.delete(&kind, &run_key(&run), "Background");
        lab.settle().check("w", "Failed", "PipelineRunDeleted");
        assert!(lab.runs(&kind).is_empty() && lab.holders().is_empty(), "{engine}");
        assert_eq!(lab.status("w")["failureDetails"]["wasExecutionFailure"], true);
    }
}

#[test]
fn what_still_acts_for_a_deleted_run_keeps_the_lock() {
    let mut lab = Lab::new();
    lab.execution("w", json!({}));
    let run = lab.run_of("w");
    let owner = json!([{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": run["metadata"]["name"],
        "uid": run["metadata"]["uid"], "controller": true}]);
    lab.cluster.put(json!({"kind": "TaskRun", "metadata": {"name": "t", "ownerReferences": owner,
        "finalizers": ["example.com/slow"]}, "spec": {}}));
    lab.cluster.delete(&PIPELINE_RUN, &run_key(&run), "Background");
    lab.settle().check("w", "Running", "Running");
    assert_eq!(lab.holders(), ["w"]);
    lab.cluster.edit(&TASK_RUN, &key("t"), &json!({"metadata": {"finalizers": []}}));
    lab.settle().check("w", "Failed", "PipelineRunDeleted");
    assert!(lab.holders().is_empty());
}

#[test]
fn a_timeout_cancels_the_run_and_keeps_the_lock_until_it_has_ended() {
    let mut lab = Lab::new();
    lab.execution("w", json!({"spec": {"executionConfig": {"timeout": "10m"}}}));
    lab.wait(Duration::from_secs(10 * 60 + 59)).check("w", "Running", "Running");
    lab.wait(Duration::from_secs(1)).check("w", "Failed", "Timeout");
    assert_eq!(lab.status("w")["outcome"], "Timeout");
    assert_eq!(lab.run_of("w")["spec"]["status"], "CancelledRunFinally");
    assert_eq!(lab.holders(), ["w"]);
    lab.execution("v", json!({})).check("v", "Skipped", "ResourceBusy");
    lab.tekton("w", "False", "Cancelled", "was cancelled").check("w", "Failed", "Timeout");
    assert!(lab.holders().is_empty());
    lab.execution("u", json!({})).check("u", "Skipped", "PreviousExecutionFailed");
}

#[test]
fn a_timeout_that_tekton_notices_is_a_timeout() {
    let mut lab = Lab::new();
    lab.execution("w", json!({}));
    lab.tekton("w", "False", "PipelineRunTimeout", "failed to finish within 30m")
        .check("w", "Failed", "Timeout");
    assert_eq!(lab.status("w")["outcome"], "Timeout");
}

#[test]
fn a_deadline_is_neither_shortened_nor_extended_by_a_restart_i8() {
    let mut lab = Lab::new();
    lab.execution("w", json!({}));
    let deadline = lab.status("w")["deadline"].clone();
    lab.wait(Duration::from_mins(20));
    lab.machines = Lab::new().machines;
    lab.settle();
    assert_eq!(lab.status("w")["deadline"], deadline);
    assert_eq!(deadline, "2026-01-01T00:31:00Z");
}

#[test]
fn tekton_absent_then_installed() {
    let mut lab = Lab::new();
    let definition = pawl_api::tekton::crds::all().remove(2);
    lab.cluster.remove(&CUSTOM_RESOURCE_DEFINITION, &Key::new(None, "pipelineruns.tekton.dev"));
    lab.cluster.world.without(PIPELINE_RUN);
    lab.execution("w", json!({})).check("w", "Failed", "UnsupportedEngine");
    assert!(lab.status("w")["message"].as_str().unwrap().contains("Tekton is not installed"));
    assert_eq!(lab.status("w")["failureDetails"]["wasExecutionFailure"], false);
    lab.execution("j", json!({"spec": {"engine": "job", "targetResource": "n/deployment/db"}}));
    lab.check("j", "Running", "Running");
    lab.cluster.put(definition);
    lab.cluster.world.with(&PIPELINE_RUN);
    lab.execution("v", json!({})).check("v", "Running", "Running");
}

#[test]
fn tekton_that_was_defined_a_moment_ago_is_waited_for_and_not_for_ever() {
    let definition = pawl_api::tekton::crds::all().remove(2);
    let mut lab = Lab::new();
    lab.cluster.world.without(PIPELINE_RUN);
    lab.cluster.put(definition.clone());
    lab.execution("w", json!({}));
    assert_ne!(lab.status("w")["phase"], "Failed", "an old answer is no answer");
    lab.cluster.world.with(&PIPELINE_RUN);
    lab.settle().check("w", "Running", "Running");

    let mut lab = Lab::new();
    lab.cluster.world.without(PIPELINE_RUN);
    lab.cluster.put(definition);
    lab.execution("w", json!({}));
    lab.wait(Duration::from_secs(29));
    assert_ne!(lab.status("w")["phase"], "Failed");
    lab.wait(Duration::from_secs(1)).check("w", "Failed", "UnsupportedEngine");
}

#[test]
fn a_steady_state_writes_nothing_i12() {
    let mut lab = Lab::new();
    lab.execution("w", json!({})).tekton("w", "Unknown", "Running", "Tasks Completed: 0");
    let before = lab.cluster.statuses.len();
    lab.wait(Duration::from_mins(5));
    assert_eq!(lab.cluster.statuses.len(), before);
}
