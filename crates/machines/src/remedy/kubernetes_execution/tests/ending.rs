//! Cancelling, deleting, and the end of an offer.

use super::*;
use crate::cluster::job::JOB;

fn cancel() -> Value {
    json!({"metadata": {"annotations": {"pawl.dev/cancel": "bob: enough"}}})
}

#[test]
fn a_cancel_before_the_job_changes_nothing() {
    let mut acts = Acts::new();
    acts.needs_approval(1, &[]);
    acts.execution("k", json!({}));
    acts.cluster.edit(&KIND, &key("k"), &cancel());
    acts.settle().check("k", "failed", "cancelled");
    assert_eq!(acts.status("k")["message"], "cancelled: bob: enough");
    assert!(acts.jobs().is_empty() && acts.holders().is_empty());
}

#[test]
fn a_cancel_while_it_runs_stops_the_job_and_says_what_may_have_happened() {
    let mut acts = Acts::new();
    acts.execution("k", json!({}));
    acts.cluster.edit(&KIND, &key("k"), &cancel());
    acts.settle().check("k", "failed", "cancelled");
    assert!(acts.status("k")["message"].as_str().unwrap().contains("may have been applied"));
    assert!(acts.jobs().is_empty() && acts.holders().is_empty());
}

#[test]
fn deletion_before_anything_was_done_leaves_nothing() {
    let mut acts = Acts::new();
    acts.needs_approval(1, &[]);
    acts.execution("k", json!({}));
    acts.cluster.delete(&KIND, &key("k"), "Background");
    acts.settle();
    assert!(acts.cluster.get(&KIND, &key("k")).is_none());
}

#[test]
fn deletion_while_executing_stops_the_job_waits_for_it_and_says_what_may_have_happened() {
    let mut acts = Acts::new();
    acts.execution("k", json!({}));
    let job = acts.going().remove(0);
    let pod = acts.cluster.world.list(&POD, Some(EXECUTOR)).remove(0).key();
    acts.cluster.node_runs(&pod, &json!({"phase": "Running"}));
    acts.cluster.delete(&KIND, &key("k"), "Background");
    acts.settle().check("k", "failed", "cancelled");
    assert!(acts.status("k")["message"].as_str().unwrap().contains("may have been applied"));
    assert_eq!(acts.holders(), ["k"]);
    acts.cluster.node_runs(&pod, &json!({"phase": "Failed"}));
    acts.cluster.node_ends(&pod);
    acts.settle();
    assert!(acts.cluster.get(&JOB, &job).is_none());
    assert!(acts.cluster.get(&KIND, &key("k")).is_none());
    assert!(acts.holders().is_empty());
    assert!(acts.cluster.world.list(&SECRET, Some(EXECUTOR)).is_empty(), "neither input nor undo is left");
}

#[test]
fn i5_deletion_does_not_wait_for_ever() {
    let mut acts = Acts::new();
    acts.execution("k", json!({}));
    acts.machines.retain(|machine| machine.name() == "kubernetesexecution");
    acts.cluster.delete(&KIND, &key("k"), "Background");
    acts.settle();
    assert!(acts.cluster.get(&KIND, &key("k")).is_some());
    acts.wait(Duration::from_mins(11));
    assert!(acts.cluster.get(&KIND, &key("k")).is_none());
    assert!(acts.event("CleanupIncomplete"));
    assert_eq!(acts.holders(), ["k"], "its Job may still act");
}

#[test]
fn an_offer_of_a_rollback_ends_when_somebody_says_so_and_its_undo_goes() {
    let mut acts = Acts::new();
    acts.execution("k", json!({})).act();
    assert!(acts.undo("k").is_some());
    acts.cluster.edit(&KIND, &key("k"), &json!({"metadata": {"annotations": {"pawl.dev/finalize": "bob"}}}));
    acts.settle().check("k", "completed", "Completed");
    assert!(acts.undo("k").is_none());
    assert_eq!(acts.status("k")["rollbackInformation"]["available"], false);
    assert!(acts.event("ExecutionCompletedPermanent"));
}

#[test]
fn i8_an_offer_of_a_rollback_ends_after_its_time() {
    let mut acts = Acts::new();
    acts.execution("k", json!({"spec": {"ttlAfterFinished": "30m"}})).act();
    acts.wait(Duration::from_mins(29)).check("k", "rollback_ready", "Completed");
    acts.wait(Duration::from_mins(1)).check("k", "completed", "Completed");
}

#[test]
fn a_job_that_a_process_makes_after_all_is_over_is_taken_away_and_never_runs() {
    let mut acts = Acts::new();
    acts.needs_approval(1, &[]);
    acts.execution("k", json!({}));
    acts.cluster.edit(&KIND, &key("k"), &cancel());
    acts.settle();
    acts.cluster.put(json!({"kind": "Job", "metadata": {"name": "late", "namespace": EXECUTOR,
        "labels": {"pawl.dev/owner-uid": "kubernetesexecution-k"}, "annotations": {"pawl.dev/held": "false"}},
        "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i"}]}}}}));
    acts.settle();
    assert!(acts.jobs().is_empty());
}

/// What a port stores, or a process makes, for the execution `n/k`.
fn kept_for_k(acts: &Acts, secret: &Key) -> Value {
    let execution = acts.get("k");
    let order = Order {
        execution: key("k"),
        uid: execution["metadata"]["uid"].as_str().unwrap().to_owned(),
        action: pawl_api::remedy::Action::ScaleDeployment,
        parameters: execution["spec"]["parameters"].to_string().into(),
        undoes: None,
    };
    crate::remedy::action::kept::manifest(&order, secret, b"{}")
}

#[test]
fn i4_an_undo_that_was_captured_too_late_goes_and_so_does_an_input() {
    let mut acts = Acts::new();
    acts.needs_approval(1, &[]);
    acts.execution("k", json!({}));
    acts.cluster.edit(&KIND, &key("k"), &cancel());
    acts.settle().check("k", "failed", "cancelled");
    for name in ["pawl-undo-kubernetesexecution-k", "ke-0123456789-in"] {
        let secret = kept_for_k(&acts, &Key::new(Some(EXECUTOR), name));
        acts.cluster.put(secret);
    }
    acts.settle();
    assert!(acts.cluster.world.list(&SECRET, Some(EXECUTOR)).is_empty());
}

#[test]
fn i4_an_undo_stays_for_as_long_as_a_rollback_is_offered_and_no_longer() {
    let mut acts = Acts::new();
    acts.execution("k", json!({})).act().check("k", "rollback_ready", "Completed");
    assert!(acts.undo("k").is_some());
    let mut acts = Acts::new();
    let restart = json!({"spec": {"action": "rollout_restart", "parameters": {"scaleDeployment": null,
        "rolloutRestart": {"kind": "deployment", "name": "web", "namespace": "n"}}}});
    acts.execution("k", restart).act().check("k", "completed", "Completed");
    assert!(acts.undo("k").is_none(), "there is nothing to take back");
}

#[test]
fn what_a_process_makes_for_an_execution_that_is_gone_is_taken_away() {
    let mut acts = Acts::new();
    acts.execution("k", json!({}));
    let undo = kept_for_k(&acts, &Key::new(Some(EXECUTOR), "pawl-undo-kubernetesexecution-k"));
    let mut job = acts.jobs().remove(0);
    acts.act();
    acts.cluster.delete(&KIND, &key("k"), "Background");
    acts.settle();
    job["metadata"]["annotations"]["pawl.dev/held"] = json!("false");
    job["spec"]["suspend"] = json!(true);
    acts.cluster.put(job);
    acts.cluster.put(undo);
    acts.settle();
    assert!(acts.jobs().is_empty() && acts.cluster.world.list(&SECRET, Some(EXECUTOR)).is_empty());
}
