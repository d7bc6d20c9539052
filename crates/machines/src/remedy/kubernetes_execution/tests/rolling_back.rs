//! One execution takes another back.

use super::*;

#[test]
fn a_rollback_restores_what_was_and_both_know_of_each_other() {
    let mut acts = Acts::new();
    acts.execution("k", json!({})).act();
    let back = acts.roll_back("k");
    assert_eq!(acts.get(&back)["metadata"]["annotations"]["pawl.dev/rollback-of"], "k");
    assert_eq!(acts.status("k")["rollbackInformation"]["rolledBackBy"], back.as_str());
    acts.act().check(&back, "rollback_ready", "Completed").check("k", "completed", "Completed");
    assert_eq!(acts.replicas("web"), 3);
}

#[test]
fn a_rollback_passes_the_same_gates() {
    let mut acts = Acts::new();
    acts.execution("k", json!({})).act();
    acts.rule(|decision| decision.deny = vec!["no changes today".to_owned()]);
    let back = acts.roll_back("k");
    acts.check(&back, "failed", "policy_denied").check("k", "rollback_ready", "Completed");
    assert_eq!(acts.replicas("web"), 5);
}

#[test]
fn a_rollback_is_refused_with_the_difference_when_the_target_changed_since() {
    let mut acts = Acts::new();
    acts.execution("k", json!({})).act().scale("web", 8);
    let back = acts.roll_back("k");
    acts.check(&back, "failed", "precondition_failed");
    let message = acts.status(&back)["message"].as_str().unwrap().to_owned();
    assert!(message.contains(r#"left "replicas: 5", and it is "replicas: 8""#), "{message}");
    assert!(acts.event("RollbackRefused"));
    assert_eq!(acts.replicas("web"), 8);
    acts.check("k", "rollback_ready", "Completed");
}

#[test]
fn a_failed_postcondition_is_rolled_back_and_the_target_restored() {
    let mut acts = Acts::new();
    let wanted = json!({"spec": {"postConditions": [condition("Nine", "/spec/replicas == 9", true, "1m")]}});
    acts.execution("k", wanted).act().wait(Duration::from_mins(1)).check(
        "k",
        "failed",
        "postcondition_failed",
    );
    let back = acts.roll_back("k");
    acts.act().check(&back, "rollback_ready", "Completed").check("k", "failed", "postcondition_failed");
    assert_eq!(acts.replicas("web"), 3);
    assert_eq!(acts.status("k")["rollbackInformation"]["rolledBackBy"], back.as_str());
}

#[test]
fn what_only_says_that_it_is_a_rollback_is_none() {
    let says = |uid: &str, name: &str| json!({"metadata": {"labels": {"pawl.dev/rollback-of-uid": uid}, "annotations": {"pawl.dev/rollback-of": name}}});
    let mut acts = Acts::new();
    acts.execution("x", says("nobody", "nobody")).check("x", "failed", "validation_error");
    acts.execution("k", json!({})).act();
    acts.execution("y", says("another-uid", "k")).check("y", "failed", "validation_error");
    // Not what would take it back: five is what it made.
    acts.execution("z", says("kubernetesexecution-k", "k")).check("z", "failed", "validation_error");
    assert!(acts.status("z")["message"].as_str().unwrap().contains("not those that take back"));
    assert_eq!(acts.replicas("web"), 5);
}

#[test]
fn what_was_not_done_or_has_no_undo_cannot_be_taken_back() {
    let mut acts = Acts::new();
    let manifest = |acts: &Acts, name: &str| {
        let first: pawl_api::remedy::KubernetesExecution = serde_json::from_value(acts.get(name)).unwrap();
        rollback::manifest(&first, None, 1, serde_json::Map::new()).unwrap_err().to_string()
    };
    acts.execution("k", json!({}));
    assert!(manifest(&acts, "k").contains("it is executing"));
    acts.rule(|decision| decision.deny = vec!["no".to_owned()]);
    acts.execution("l", json!({}));
    assert!(manifest(&acts, "l").contains("changed nothing"));
    acts.rule(|decision| decision.deny = vec![]);
    acts.act();
    let restart = json!({"spec": {"action": "rollout_restart",
        "parameters": {"scaleDeployment": null, "rolloutRestart": {"name": "web", "namespace": "n"}}}});
    acts.execution("m", restart).act();
    assert!(manifest(&acts, "m").contains("cannot be taken back"));
}

#[test]
fn a_rollback_can_itself_be_taken_back() {
    let mut acts = Acts::new();
    acts.execution("k", json!({})).act();
    let back = acts.roll_back("k");
    acts.act();
    let forth = acts.roll_back(&back);
    acts.act().check(&forth, "rollback_ready", "Completed");
    assert_eq!(acts.replicas("web"), 5);
}

#[test]
fn a_rollback_has_the_time_and_the_tries_of_what_it_takes_back() {
    let mut acts = Acts::new();
    acts.execution("k", json!({"spec": {"timeout": "20m", "lockTimeout": "1h", "maxRetries": 2}})).act();
    let back = acts.roll_back("k");
    let spec = &acts.get(&back)["spec"];
    let told = (&spec["timeout"], &spec["lockTimeout"], &spec["maxRetries"]);
    assert_eq!(told, (&json!("20m"), &json!("1h"), &json!(2)));
}
