//! Cancelling, deleting, and staying finished.

use super::*;

fn cancel(lab: &mut Lab, name: &str) {
    let patch = json!({"metadata": {"annotations": {annotations::CANCEL: "ada: not now"}}});
    lab.cluster.edit(&workflow_execution::KIND, &key(name), &patch);
    lab.settle();
}

#[test]
fn cancelling_stops_the_run_and_says_who_and_why() {
    let mut lab = Lab::new();
    lab.execution("w", json!({}));
    cancel(&mut lab, "w");
    lab.check("w", "Failed", "Cancelled");
    assert!(lab.status("w")["message"].as_str().unwrap().contains("ada: not now"));
    assert_eq!(lab.run_of("w")["spec"]["status"], "CancelledRunFinally");
    assert_eq!(lab.holders(), ["w"], "its run may still act");
    lab.tekton("w", "False", "Cancelled", "was cancelled");
    assert!(lab.holders().is_empty());
    assert!(lab.memory().get("mend").unwrap().block.is_some(), "the target may have been changed");
}

#[test]
fn cancelling_a_job_deletes_it() {
    let mut lab = Lab::new();
    lab.execution("w", engine_job());
    cancel(&mut lab, "w");
    lab.check("w", "Failed", "Cancelled");
    assert!(lab.runs(&JOB).is_empty() && lab.holders().is_empty());
}

#[test]
fn one_that_is_cancelled_before_it_began_runs_nothing_and_leaves_no_mark() {
    let mut lab = Lab::new();
    let asked = json!({"metadata": {"annotations": {annotations::CANCEL: ""}}});
    lab.execution("w", asked).check("w", "Failed", "Cancelled");
    assert!(lab.runs(&PIPELINE_RUN).is_empty() && lab.runs(&LEASE).is_empty());
    lab.execution("v", json!({})).check("v", "Running", "Running");
}

#[test]
fn deleted_while_running_the_run_is_cancelled_and_waited_for() {
    let mut lab = Lab::new();
    lab.execution("w", json!({}));
    lab.cluster.delete(&workflow_execution::KIND, &key("w"), "Background");
    lab.settle().check("w", "Failed", "Cancelled");
    assert_eq!(lab.run_of("w")["spec"]["status"], "CancelledRunFinally");
    assert_eq!(lab.holders(), ["w"]);
    lab.tekton("w", "False", "Cancelled", "was cancelled");
    assert!(lab.runs(&workflow_execution::KIND).is_empty() && lab.holders().is_empty());
    assert!(lab.runs(&PIPELINE_RUN).is_empty());
    assert!(lab.event("WorkflowExecutionDeleted"));
    assert!(lab.memory().get("mend").unwrap().block.is_some());
}

#[test]
fn deleted_while_its_job_runs_the_job_goes_first() {
    let mut lab = Lab::new();
    lab.execution("w", engine_job());
    lab.cluster.delete(&workflow_execution::KIND, &key("w"), "Background");
    lab.settle();
    assert!(lab.runs(&workflow_execution::KIND).is_empty() && lab.runs(&JOB).is_empty());
    assert!(lab.holders().is_empty());
}

#[test]
fn i5_a_run_that_does_not_end_does_not_wedge_the_deletion_and_keeps_the_lock() {
    let mut lab = Lab::new();
    lab.execution("w", json!({}));
    lab.machines.retain(|machine| machine.name() != "garbage");
    lab.cluster.delete(&workflow_execution::KIND, &key("w"), "Background");
    lab.settle();
    lab.wait(CLEANUP_LIMIT);
    assert!(lab.runs(&workflow_execution::KIND).is_empty());
    assert_eq!(lab.holders(), ["w"]);
    assert!(lab.event("CleanupIncomplete"));
    lab.machines.push(AnyMachine::new(Reaper));
    lab.tekton("w", "False", "Cancelled", "was cancelled");
    assert!(lab.holders().is_empty());
    assert!(lab.memory().get("mend").unwrap().block.is_some());
}

#[test]
fn i2_a_finished_execution_stays_finished_when_its_run_is_removed() {
    let mut lab = Lab::new();
    lab.execution("w", json!({})).succeed("w");
    let run = lab.run_of("w");
    lab.cluster.delete(&PIPELINE_RUN, &run_key(&run), "Background");
    lab.wait(Duration::from_hours(1)).check("w", "Completed", "Completed");
    assert!(lab.runs(&PIPELINE_RUN).is_empty());
}

#[test]
fn deleting_a_finished_one_frees_nothing_twice() {
    let mut lab = Lab::new();
    lab.execution("w", json!({})).succeed("w").wait(Duration::from_mins(5));
    lab.execution("v", json!({})).check("v", "Running", "Running");
    lab.cluster.delete(&workflow_execution::KIND, &key("w"), "Background");
    lab.settle();
    assert_eq!(lab.holders(), ["v"]);
}

#[test]
fn a_lock_that_was_taken_away_before_the_run_was_let_go_runs_nothing() {
    let machine = AnyMachine::new(WorkflowExecutions::default());
    let mut lab = Lab::new();
    lab.cluster.put(json!({"kind": "WorkflowExecution", "metadata": {"name": "w"}, "spec": {
        "workflowRef": {"workflowId": "mend", "containerImage": "i"}, "targetResource": "n/deployment/web"}}));
    for _ in 0..3 {
        lab.cluster.step(&machine, &workflow_execution::KIND, &key("w"));
    }
    lab.check("w", "Running", "Running");
    assert_eq!(lab.run_of("w")["spec"]["status"], "PipelineRunPending");
    // Somebody unlocked it by force, and another was faster.
    let lease = lab.cluster.world.list(&LEASE, None).remove(0);
    lab.cluster.delete(&LEASE, &lease.key(), "Background");
    lab.cluster.put(json!({"kind": "Lease", "metadata": {"name": lease.name(), "namespace": "pawl-system"},
        "spec": {"holderIdentity": "somebody"}}));
    lab.settle().check("w", "Failed", "PipelineRunCreationFailed");
    assert!(lab.runs(&PIPELINE_RUN).is_empty());
}

#[test]
fn the_ledger_is_told_each_event_once_however_often_it_is_asked() {
    let machine = AnyMachine::new(WorkflowExecutions::default());
    let mut lab = Lab::new();
    let mut told = std::collections::BTreeMap::new();
    let mut listen = |lab: &Lab| {
        for object in lab.cluster.world.list(&workflow_execution::KIND, None) {
            for entry in machine.audit(&lab.cluster.world, &object, lab.cluster.now).unwrap() {
                told.insert(entry.id, entry.event);
            }
        }
    };
    lab.execution("w", json!({}));
    listen(&lab);
    lab.execution("v", json!({}));
    listen(&lab);
    lab.fail("w");
    listen(&lab);
    listen(&lab);
    let of_runs = |event: &&String| event.contains(".execution.");
    let mut events: Vec<&String> = told.values().filter(of_runs).collect();
    events.sort();
    assert_eq!(
        events,
        [
            "workflowexecution.execution.failed",
            "workflowexecution.execution.skipped",
            "workflowexecution.execution.started"
        ]
    );
    assert!(told.values().any(|event| event.ends_with("lock.taken")), "{told:?}");
}
