//! Requests whose steps are actions: approval, rollback in reverse, and the end of offers.

use std::time::Duration;

use pawl_api::remedy::remediation_request;
use serde_json::{Value, json};

use crate::lock::LEASE;
use crate::object::Key;
use crate::remedy::testing::actions::{Acts, condition, key};
use crate::testing::merge;

/// Scales a Deployment of this name.
fn step(name: &str, replicas: i64, after: &[&str]) -> Value {
    json!({"name": name, "dependsOn": after, "action": {"action": "scale_deployment",
        "parameters": {"scaleDeployment": {"deployment": name, "namespace": "n", "replicas": replicas}}}})
}

/// One that does what it should, and never holds.
fn failing(name: &str, replicas: i64, after: &[&str]) -> Value {
    let mut step = step(name, replicas, after);
    step["action"]["postConditions"] = json!([condition("Never", "/spec/replicas == 999", true, "1m")]);
    step
}

impl Acts {
    fn request(&mut self, steps: &[Value], patch: &Value) -> &mut Self {
        let mut raw = json!({"kind": "RemediationRequest", "metadata": {"name": "r"}, "spec": {"requestedBy": "ann",
            "targetResource": {"kind": "Deployment", "name": "web", "namespace": "n"}, "plan": {"steps": steps}}});
        merge(&mut raw, patch);
        self.cluster.put(raw);
        for (name, replicas) in [("a", 1), ("b", 2), ("c", 3)] {
            self.deployment(name, replicas);
        }
        self.settle()
    }

    fn of_request(&self) -> Value {
        self.cluster.get(&remediation_request::KIND, &key("r")).expect("the request")["status"].clone()
    }

    #[track_caller]
    fn stands(&mut self, phase: &str) -> &mut Self {
        let status = self.of_request();
        assert_eq!(status["overallPhase"], phase, "{status:#}");
        self
    }

    fn child(&self, at: usize) -> String {
        self.of_request()["steps"][at]["childRef"]["name"].as_str().expect("a child").to_owned()
    }

    fn sizes(&self) -> [i64; 3] {
        ["a", "b", "c"].map(|name| self.replicas(name))
    }
}

#[test]
fn two_actions_run_in_order_who_asked_is_handed_down_and_success_ends_the_offers() {
    let mut acts = Acts::new();
    acts.request(&[step("a", 5, &[]), step("b", 6, &["a"])], &json!({})).stands("Executing");
    assert_eq!(acts.going().len(), 1);
    assert_eq!(acts.get(&acts.child(0))["spec"]["requestedBy"], "ann");
    assert_eq!(acts.get(&acts.child(0))["spec"]["remediationRequestRef"]["name"], "r");
    acts.act().stands("Executing").act().stands("Completed");
    assert_eq!(acts.sizes(), [5, 6, 3]);
    for at in 0..2 {
        let child = acts.child(at);
        acts.check(&child, "completed", "Completed");
        assert!(acts.undo(&child).is_none(), "what was kept for a rollback is gone");
    }
}

#[test]
fn a_step_that_needs_approval_makes_the_request_wait_and_an_approval_lets_it_go() {
    let mut acts = Acts::new();
    acts.needs_approval(1, &[]).request(&[step("a", 5, &[])], &json!({})).stands("AwaitingApproval");
    let child = acts.child(0);
    assert!(acts.of_request()["message"].as_str().unwrap().contains(&format!("ke/{child}")));
    assert_eq!(acts.status(&child)["approvalDeadline"], "2026-01-01T00:15:00Z", "the request's own limit");
    acts.approve(&child, "ann", &[]).stands("AwaitingApproval");
    acts.approve(&child, "bob", &[]).stands("Executing").act().stands("Completed");
}

#[test]
fn nobody_who_asks_approves_and_time_passes() {
    let mut acts = Acts::new();
    acts.needs_approval(1, &[]).request(&[step("a", 5, &[])], &json!({}));
    acts.wait(Duration::from_mins(15)).stands("Failed");
    assert_eq!(acts.status(&acts.child(0))["reason"], "approval_timeout");
    assert_eq!(acts.of_request()["requiresManualReview"], Value::Null, "nothing was touched");
}

#[test]
fn a_failure_rolls_back_what_was_done_in_reverse_and_restores_it() {
    let mut acts = Acts::new();
    let steps = [step("a", 5, &[]), step("b", 6, &["a"]), failing("c", 7, &["b"])];
    acts.request(&steps, &json!({"spec": {"rollbackStrategy": "automatic"}}));
    acts.act().act().act();
    assert_eq!(acts.sizes(), [5, 6, 7]);
    acts.wait(Duration::from_mins(1)).stands("Executing");
    assert_eq!(acts.of_request()["reason"], "RollbackStarted");
    assert!(acts.event("RollbackStarted"));
    let mut seen = Vec::new();
    for _ in 0..3 {
        acts.wait(Duration::from_secs(1)).act();
        seen.push(acts.sizes());
    }
    assert_eq!(seen, [[5, 6, 3], [5, 2, 3], [1, 2, 3]], "the last is taken back first");
    acts.stands("Failed");
    let status = acts.of_request();
    assert_eq!(status["reason"], "StepFailed");
    assert!(status["message"].as_str().unwrap().contains("taken back: c, b, a"), "{status:#}");
    assert!(status["steps"][0]["rollbackRef"]["name"].is_string());
    assert_eq!(status["requiresManualReview"], Value::Null);
}

#[test]
fn without_a_strategy_a_failure_leaves_the_offers_to_people() {
    let mut acts = Acts::new();
    acts.request(&[step("a", 5, &[]), failing("b", 6, &["a"])], &json!({}));
    acts.act().act().wait(Duration::from_mins(1)).stands("Failed");
    assert_eq!(acts.sizes(), [5, 6, 3]);
    let child = acts.child(0);
    acts.check(&child, "rollback_ready", "Completed");
    assert_eq!(acts.of_request()["requiresManualReview"], true);
}

#[test]
fn with_manual_rollback_a_person_is_told_how_to_take_back_what_was_done() {
    let mut acts = Acts::new();
    let steps = [step("a", 5, &[]), failing("b", 6, &["a"])];
    acts.request(&steps, &json!({"spec": {"rollbackStrategy": "manual"}}));
    acts.act().act().wait(Duration::from_mins(1)).stands("Failed");
    assert_eq!(acts.sizes(), [5, 6, 3], "nothing is taken back by itself");
    let (first, second) = (acts.child(0), acts.child(1));
    acts.check(&first, "rollback_ready", "Completed");
    let available = |acts: &Acts| {
        let conditions = acts.of_request()["conditions"].as_array().unwrap().clone();
        conditions.into_iter().find(|one| one["type"] == "RollbackAvailable").expect("a condition")
    };
    let told = format!("pawl rollback -n n ke/{second}; pawl rollback -n n ke/{first}");
    assert!(available(&acts)["message"].as_str().unwrap().ends_with(&told), "{:#}", available(&acts));
    assert!(acts.event("RollbackPrepared") && acts.event("EscalatedToManualReview"));
    for (child, sizes) in [(second, [5, 2, 3]), (first, [1, 2, 3])] {
        assert_eq!(available(&acts)["status"], "True");
        acts.roll_back(&child);
        acts.act();
        assert_eq!(acts.sizes(), sizes);
    }
    assert_eq!(available(&acts)["status"], "False", "all of it was taken back");
    acts.stands("Failed");
}

#[test]
fn a_request_whose_last_steps_await_their_postconditions_is_verifying() {
    let mut acts = Acts::new();
    acts.request(&[failing("a", 5, &[]), step("b", 6, &[])], &json!({})).stands("Executing");
    acts.act();
    assert_eq!(acts.jobs().len(), 2);
    acts.stands("Verifying");
    acts.scale("a", 999).stands("Completed");
    let mut acts = Acts::new();
    acts.request(&[failing("a", 5, &[]), step("b", 6, &["a"])], &json!({})).act().stands("Executing");
    acts.wait(Duration::from_mins(1)).stands("Failed");
}

#[test]
fn a_rollback_that_is_refused_stops_there_and_asks_for_a_person() {
    let mut acts = Acts::new();
    let steps = [step("a", 5, &[]), step("b", 6, &["a"]), failing("c", 7, &["b"])];
    acts.request(&steps, &json!({"spec": {"rollbackStrategy": "automatic"}}));
    acts.act().act().act().scale("b", 40).wait(Duration::from_mins(1)).act();
    acts.stands("Failed");
    let status = acts.of_request();
    assert_eq!(
        (&status["reason"], &status["requiresManualReview"]),
        (&json!("RollbackFailed"), &json!(true))
    );
    assert_eq!(acts.sizes(), [5, 40, 3], "c is taken back, b somebody else changed, a stands on b");
    assert!(acts.event("RollbackFailed") && acts.event("EscalatedToManualReview"));
}

#[test]
fn a_dry_run_makes_no_job_and_says_what_each_step_would_do() {
    let mut acts = Acts::new();
    acts.request(&[step("a", 5, &[]), step("b", 6, &["a"])], &json!({"spec": {"dryRun": true}}))
        .stands("Completed");
    assert!(acts.jobs().is_empty());
    assert_eq!(acts.sizes(), [1, 2, 3]);
    assert_eq!(acts.of_request()["outcome"], "DryRun");
    assert_eq!(acts.status(&acts.child(1))["reason"], "DryRun");
    assert!(acts.of_request()["message"].as_str().unwrap().contains("b: scale_deployment on n/deployment/b"));
}

#[test]
fn a_global_timeout_cancels_the_action_that_runs() {
    let mut acts = Acts::new();
    acts.request(&[step("a", 5, &[])], &json!({"spec": {"timeouts": {"global": "2m"}}}));
    acts.wait(Duration::from_mins(2)).stands("TimedOut");
    let child = acts.child(0);
    acts.check(&child, "failed", "cancelled");
    assert!(acts.holders().is_empty());
}

/// Whoever else holds `n/deployment/a`, while it is there.
fn somebody() -> Value {
    // Something that is there, of a kind that frees no locks by itself.
    let holder = r#"{"unit":{"group":"apps","version":"v1","kind":"Deployment","plural":"deployments","namespaced":true,
        "namespace":"n","name":"web","uid":"deployment-web"}}"#;
    let target: pawl_api::meta::Target = "n/deployment/a".parse().unwrap();
    json!({"kind": "Lease", "metadata": {"name": target.lock_name(), "namespace": "pawl-system",
        "labels": {"pawl.dev/owner-uid": "deployment-web"},
        "annotations": {"pawl.dev/target": "n/deployment/a", "pawl.dev/lock-holder": holder}},
        "spec": {"holderIdentity": "Deployment.apps n/web (deployment-web)"}})
}

/// A request whose second step fails while somebody else holds the target of its first.
fn held_up() -> Acts {
    let mut acts = Acts::new();
    let steps = [step("a", 5, &[]), failing("b", 6, &["a"])];
    acts.request(&steps, &json!({"spec": {"rollbackStrategy": "automatic"}}));
    acts.act();
    acts.cluster.put(somebody());
    acts.act().wait(Duration::from_mins(1)).act();
    assert_eq!(acts.sizes(), [5, 2, 3], "b is taken back");
    acts
}

#[test]
fn an_automatic_rollback_that_finds_its_target_taken_is_not_given_up_after_one_lock_timeout() {
    let mut acts = held_up();
    acts.wait(Duration::from_mins(11)).stands("Executing");
    let somebody = somebody();
    let lease = Key::new(Some("pawl-system"), somebody["metadata"]["name"].as_str().unwrap());
    acts.cluster.delete(&LEASE, &lease, "Background");
    acts.settle().act().stands("Failed");
    assert_eq!(acts.sizes(), [1, 2, 3]);
    assert_eq!(acts.of_request()["reason"], "StepFailed");
    assert_eq!(acts.of_request()["requiresManualReview"], Value::Null);
}

#[test]
fn an_automatic_rollback_whose_target_stays_taken_is_for_a_person() {
    let mut acts = held_up();
    for _ in 0..3 {
        acts.stands("Executing").wait(Duration::from_mins(11));
    }
    acts.stands("Failed");
    let status = acts.of_request();
    assert_eq!(
        (&status["reason"], &status["requiresManualReview"]),
        (&json!("RollbackFailed"), &json!(true))
    );
    assert!(status["message"].as_str().unwrap().contains("is held by Deployment"), "{status:#}");
    assert_eq!(acts.sizes(), [5, 2, 3]);
}
