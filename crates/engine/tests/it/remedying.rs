//! The remedy door on the loop and the in-process server.

use std::collections::BTreeSet;

use pawl_api::tekton::PIPELINE_RUN;
use pawl_engine::Engine;
use pawl_machines::remedy;
use pawl_machines::view::Served;
use serde_json::{Value, json};

use crate::lab::{Lab, eventually};

const EXECUTIONS: &str = "/apis/workflowexecution.kubernaut.ai/v1alpha1/namespaces/n/workflowexecutions";
const REQUESTS: &str = "/apis/remediation.kubernaut.ai/v1alpha1/namespaces/n/remediationrequests";
const JOBS: &str = "/apis/batch/v1/namespaces/n/jobs";
const RUNS: &str = "/apis/tekton.dev/v1/namespaces/n/pipelineruns";

/// A server without Tekton.
fn lab() -> Lab {
    let lab = Lab::new();
    for crd in pawl_api::crds::all() {
        lab.server.install_crd(serde_json::to_value(crd).unwrap()).unwrap();
    }
    for namespace in ["pawl-system", "n"] {
        lab.call("POST", "/api/v1/namespaces", &json!({"metadata": {"name": namespace}}));
    }
    lab
}

fn engine(lab: &Lab) -> Engine {
    lab.engine(remedy::machines("pawl-system")).build().unwrap()
}

fn execution(lab: &Lab, name: &str, engine: &str, target: &str) {
    let manifest = json!({"apiVersion": "workflowexecution.kubernaut.ai/v1alpha1", "kind": "WorkflowExecution",
        "metadata": {"name": name}, "spec": {"engine": engine, "targetResource": target,
            "workflowRef": {"workflowId": "mend", "version": "1", "containerImage": "example.com/mend:1"}}});
    lab.call("POST", EXECUTIONS, &manifest);
}

/// Its phase and reason.
fn stands(lab: &Lab, name: &str) -> (String, String) {
    let status = lab.call("GET", &format!("{EXECUTIONS}/{name}"), &Value::Null)["status"].clone();
    let word = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
    (word("phase"), word("reason"))
}

fn is(lab: &Lab, name: &str, phase: &str, reason: &str) -> bool {
    stands(lab, name) == (phase.to_owned(), reason.to_owned())
}

#[tokio::test(start_paused = true)]
async fn tekton_absent_then_installed_under_a_running_loop_needs_no_restart() {
    let lab = lab();
    let engine = engine(&lab);
    let running = lab.run(&engine);
    engine.ready().await;
    execution(&lab, "early", "tekton", "n/deployment/web");
    eventually("it says so", || is(&lab, "early", "Failed", "UnsupportedEngine")).await;
    execution(&lab, "beside", "job", "n/deployment/db");
    eventually("what needs no Tekton runs", || is(&lab, "beside", "Running", "Running")).await;

    for crd in pawl_api::tekton::crds::all() {
        lab.server.install_crd(crd).unwrap();
    }
    eventually("it is noticed", || engine.view().serves(&PIPELINE_RUN) == Served::Yes).await;
    execution(&lab, "late", "tekton", "n/deployment/web");
    eventually("it runs", || is(&lab, "late", "Running", "Running")).await;
    let run = lab.names(RUNS).remove(0);
    let over = json!({"status": {"conditions": [{"type": "Succeeded", "status": "True", "reason": "Succeeded",
        "message": "Tasks Completed: 1 (Failed: 0, Cancelled 0), Skipped: 0"}]}});
    lab.call("PATCH", &format!("{RUNS}/{run}/status"), &over);
    eventually("it is followed to its end", || is(&lab, "late", "Completed", "Completed")).await;
    assert!(is(&lab, "early", "Failed", "UnsupportedEngine"), "what is over stays over (I2)");
    running.stop().await;
}

/// The lines of the exposition that have a value, without it.
fn series(engine: &Engine) -> BTreeSet<String> {
    let text = engine.metrics().exposition();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.rsplit_once(' ')).map(|(series, _)| series.to_owned()).collect()
}

fn has(engine: &Engine, line: &str) -> bool {
    engine.metrics().exposition().lines().any(|one| one == line)
}

#[tokio::test(start_paused = true)]
async fn whoever_scrapes_sees_outcomes_skips_locks_and_who_waits_and_names_open_no_series() {
    let lab = lab();
    let engine = engine(&lab);
    let running = lab.run(&engine);
    engine.ready().await;
    execution(&lab, "w", "job", "n/deployment/web");
    eventually("it runs", || is(&lab, "w", "Running", "Running")).await;
    execution(&lab, "v", "job", "n/deployment/web");
    eventually("it is skipped", || is(&lab, "v", "Skipped", "ResourceBusy")).await;
    let step = json!({"name": "a", "workflow": {"engine": "job",
        "workflowRef": {"workflowId": "mend", "version": "1", "containerImage": "example.com/mend:1"}}});
    let request = json!({"apiVersion": "remediation.kubernaut.ai/v1alpha1", "kind": "RemediationRequest",
        "metadata": {"name": "r"}, "spec": {"plan": {"steps": [step]},
            "targetResource": {"kind": "Deployment", "name": "web", "namespace": "n"}}});
    lab.call("POST", REQUESTS, &request);
    eventually("a request waits", || has(&engine, "pawl_lock_waiters{kind=\"RemediationRequest\"} 1")).await;
    for line in [
        "pawl_locks_held{kind=\"WorkflowExecution\"} 1",
        "pawl_objects{kind=\"WorkflowExecution\",phase=\"Running\"} 1",
        "pawl_objects{kind=\"WorkflowExecution\",phase=\"Skipped\"} 2",
        "pawl_objects{kind=\"RemediationRequest\",phase=\"Blocked\"} 1",
        "pawl_skips_total{kind=\"WorkflowExecution\",reason=\"ResourceBusy\"} 2",
        "pawl_gate_verdicts_total{kind=\"WorkflowExecution\",gate=\"Lock\",verdict=\"Passed\"} 1",
        "pawl_lock_waiters{kind=\"WorkflowExecution\"} 0",
        "pawl_audit_backlog 0",
    ] {
        assert!(has(&engine, line), "{line} is missing from\n{}", engine.metrics().exposition());
    }

    let before = series(&engine);
    for number in 0..20 {
        execution(&lab, &format!("x{number}"), "job", "n/deployment/web");
    }
    let twenty_two = "pawl_skips_total{kind=\"WorkflowExecution\",reason=\"ResourceBusy\"} 22";
    eventually("all are skipped", || has(&engine, twenty_two)).await;
    assert_eq!(series(&engine), before, "more objects, the same series");

    let job = lab.names(JOBS).remove(0);
    let over = json!({"status": {"succeeded": 1, "conditions": [
        {"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"}]}});
    lab.call("PATCH", &format!("{JOBS}/{job}/status"), &over);
    eventually("it completes", || is(&lab, "w", "Completed", "Completed")).await;
    let took = "pawl_outcome_duration_seconds_count{kind=\"WorkflowExecution\",phase=\"Completed\"} 1";
    eventually("how long it took", || has(&engine, took)).await;
    eventually("nobody waits", || has(&engine, "pawl_lock_waiters{kind=\"RemediationRequest\"} 0")).await;
    running.stop().await;
}
