mod actions;

use pawl_api::tekton::PIPELINE_RUN;
use serde_json::{Value, json};

use super::*;
use crate::remedy::testing::{Lab, key, run_key};

impl Lab {
    /// A request about `n/deployment/web`, changed as the patch says.
    #[expect(clippy::needless_pass_by_value, reason = "it is written in place, as json!")]
    fn request(&mut self, name: &str, steps: &[Value], patch: Value) -> &mut Self {
        let mut raw = json!({"kind": "RemediationRequest", "metadata": {"name": name}, "spec": {
            "targetResource": {"kind": "Deployment", "name": "web", "namespace": "n"}, "plan": {"steps": steps}}});
        crate::testing::merge(&mut raw, &patch);
        self.cluster.put(raw);
        self.settle()
    }

    fn of_request(&self, name: &str) -> Value {
        self.cluster.get(&remediation_request::KIND, &key(name)).expect("the request")["status"].clone()
    }

    #[track_caller]
    fn stands(&mut self, name: &str, phase: &str) -> &mut Self {
        let status = self.of_request(name);
        assert_eq!(status["overallPhase"], json!(phase), "{status:#}");
        self
    }

    /// The name of the execution of a step, in its newest attempt.
    #[track_caller]
    fn child(&self, request: &str, step: usize) -> String {
        let status = self.of_request(request);
        status["steps"][step]["childRef"]["name"].as_str().unwrap_or_else(|| panic!("{status:#}")).to_owned()
    }

    fn children(&self) -> usize {
        self.runs(&workflow_execution::KIND).len()
    }

    /// Tekton ends the run of a step well.
    fn step_succeeds(&mut self, request: &str, step: usize) -> &mut Self {
        let child = self.child(request, step);
        self.succeed(&child)
    }
}

fn step(name: &str, after: &[&str]) -> Value {
    json!({"name": name, "dependsOn": after, "workflow": {"targetResource": format!("n/deployment/{name}"),
        "workflowRef": {"workflowId": name, "containerImage": "i"}}})
}

fn on_web(name: &str) -> Value {
    json!({"name": name, "workflow": {"workflowRef": {"workflowId": name, "containerImage": "i"}}})
}

#[test]
fn two_steps_in_order() {
    let mut lab = Lab::new();
    lab.request("r", &[step("a", &[]), step("b", &["a"])], json!({})).stands("r", "Executing");
    assert_eq!(lab.children(), 1);
    assert_eq!(lab.of_request("r")["steps"][1]["phase"], "NotStarted");
    let child = lab.get(&lab.child("r", 0));
    assert_eq!(child["metadata"]["ownerReferences"][0]["name"], "r");
    assert_eq!(child["spec"]["remediationRequestRef"]["name"], "r");
    assert_eq!(child["metadata"]["name"], json!(child_name("r", "remediationrequest-r", "a", 1)));
    lab.step_succeeds("r", 0).stands("r", "Executing");
    assert_eq!(lab.children(), 2);
    lab.step_succeeds("r", 1).stands("r", "Completed");
    let status = lab.of_request("r");
    assert_eq!((&status["outcome"], &status["target"]), (&json!("Success"), &json!("n/deployment/web")));
    assert!(lab.event("RemediationCreated") && lab.event("RemediationCompleted"));
}

#[test]
fn parallel_steps_run_together_and_all_must_succeed() {
    let mut lab = Lab::new();
    lab.request("r", &[step("a", &[]), step("b", &[]), step("c", &["a", "b"])], json!({}));
    assert_eq!(lab.runs(&PIPELINE_RUN).len(), 2);
    lab.step_succeeds("r", 1);
    assert_eq!(lab.children(), 2);
    lab.step_succeeds("r", 0);
    assert_eq!(lab.children(), 3);
    lab.step_succeeds("r", 2).stands("r", "Completed");
}

#[test]
fn after_a_failure_the_rest_is_not_started_and_what_runs_may_end() {
    let mut lab = Lab::new();
    lab.request("r", &[step("a", &[]), step("b", &[]), step("c", &["a"])], json!({}));
    let child = lab.child("r", 0);
    lab.fail(&child).stands("r", "Executing");
    lab.step_succeeds("r", 1).stands("r", "Failed");
    assert_eq!(lab.children(), 2);
    let status = lab.of_request("r");
    assert!(status["message"].as_str().unwrap().starts_with("step a: TaskRunFailed"), "{status:#}");
    assert_eq!(status["requiresManualReview"], true);
    assert!(lab.event("RemediationFailed") && lab.event("EscalatedToManualReview"));
}

#[test]
fn automatic_rollback_says_that_a_workflow_has_no_undo() {
    let mut lab = Lab::new();
    lab.request(
        "r",
        &[step("a", &[]), step("b", &["a"])],
        json!({"spec": {"rollbackStrategy": "automatic"}}),
    );
    lab.step_succeeds("r", 0);
    let child = lab.child("r", 1);
    lab.tekton(&child, "False", "CouldntGetPipeline", "no").stands("r", "Failed");
    assert!(lab.of_request("r")["message"].as_str().unwrap().contains("what a did stays done"));
    assert!(lab.event("NothingToRollBack"));
}

#[test]
fn blocked_by_a_taken_target_it_runs_when_the_lock_is_released() {
    let mut lab = Lab::new();
    lab.execution("w", json!({}));
    lab.request("r", &[on_web("a")], json!({})).stands("r", "Blocked");
    let status = lab.of_request("r");
    assert_eq!(status["blockReason"], "ResourceBusy");
    assert_eq!(status["blockedUntil"], "2026-01-01T00:01:00Z");
    assert!(lab.event("StepBlocked"));
    lab.cluster.advance(Duration::from_secs(5));
    lab.succeed("w").stands("r", "Executing");
    assert_eq!(lab.of_request("r")["steps"][0]["attempt"], 2);
    lab.step_succeeds("r", 0).stands("r", "Completed");
}

#[test]
fn blocked_by_a_cooldown_it_runs_at_the_stated_time() {
    let mut lab = Lab::new();
    lab.execution("w", json!({"spec": {"workflowRef": {"workflowId": "a"}}})).succeed("w");
    lab.wait(Duration::from_mins(1)).request("r", &[on_web("a")], json!({})).stands("r", "Blocked");
    assert_eq!(lab.of_request("r")["blockedUntil"], "2026-01-01T00:05:00Z");
    lab.wait(Duration::from_secs(239)).stands("r", "Blocked");
    assert_eq!(lab.children(), 2);
    lab.wait(Duration::from_secs(1)).stands("r", "Executing");
    assert_eq!(lab.children(), 3);
}

#[test]
fn of_many_that_wait_for_a_target_one_goes_when_it_is_free() {
    let mut lab = Lab::new();
    lab.execution("w", json!({}));
    for number in 0..5 {
        let at = format!("2026-01-01T00:00:0{number}Z");
        lab.request(&format!("r{number}"), &[on_web("a")], json!({"metadata": {"creationTimestamp": at}}));
    }
    let before = lab.children();
    lab.succeed("w").stands("r0", "Executing");
    assert_eq!(lab.children(), before + 1, "no flood of attempts");
    for number in 1..5 {
        lab.stands(&format!("r{number}"), "Blocked");
    }
    // The first one's success starts a cooldown, which the next finds.
    lab.step_succeeds("r0", 0).stands("r0", "Completed");
    lab.stands("r1", "Blocked");
    assert_eq!(lab.of_request("r1")["blockReason"], "RecentlyRemediated");
}

#[test]
fn a_block_that_a_person_must_clear_fails_the_request() {
    let mut lab = Lab::new();
    lab.execution("w", json!({"spec": {"workflowRef": {"workflowId": "a"}}})).fail("w");
    lab.request("r", &[on_web("a")], json!({})).stands("r", "Failed");
    let status = lab.of_request("r");
    assert_eq!(status["requiresManualReview"], true);
    assert!(status["message"].as_str().unwrap().contains("PreviousExecutionFailed"));
}

#[test]
fn the_global_timeout_cancels_what_runs() {
    let mut lab = Lab::new();
    let patch = json!({"spec": {"timeouts": {"global": "20m", "executing": "30m"}}});
    lab.request("r", &[step("a", &[]), step("b", &["a"])], patch);
    lab.wait(Duration::from_secs(20 * 60 - 1)).stands("r", "Executing");
    lab.wait(Duration::from_secs(1)).stands("r", "TimedOut");
    let child = lab.child("r", 0);
    lab.check(&child, "Failed", "Cancelled");
    assert_eq!(lab.run_of(&child)["spec"]["status"], "CancelledRunFinally");
    assert_eq!(lab.children(), 1);
    assert!(lab.event("RemediationTimeout"));
    assert_eq!(lab.of_request("r")["requiresManualReview"], true);
}

#[test]
fn one_step_that_takes_too_long_ends_the_request() {
    let mut lab = Lab::new();
    lab.request("r", &[step("a", &[])], json!({"spec": {"timeouts": {"executing": "5m"}}}));
    lab.wait(Duration::from_mins(5)).stands("r", "TimedOut");
    assert!(lab.of_request("r")["message"].as_str().unwrap().contains("step a"));
}

#[test]
fn a_request_that_stays_blocked_times_out() {
    let mut lab = Lab::new();
    lab.execution("w", json!({"spec": {"executionConfig": {"timeout": "10h"}}}));
    lab.request("r", &[on_web("a")], json!({})).stands("r", "Blocked");
    for _ in 0..60 {
        lab.wait(Duration::from_mins(1));
    }
    lab.stands("r", "TimedOut");
    let attempts = lab.of_request("r")["steps"][0]["attempt"].as_i64().unwrap();
    assert!((4..12).contains(&attempts), "{attempts} attempts: neither idle nor a flood");
}

#[test]
fn cancelling_a_request_cancels_its_steps() {
    let mut lab = Lab::new();
    lab.request("r", &[step("a", &[]), step("b", &["a"])], json!({}));
    let patch = json!({"metadata": {"annotations": {annotations::CANCEL: "ada: no"}}});
    lab.cluster.edit(&remediation_request::KIND, &key("r"), &patch);
    lab.settle().stands("r", "Cancelled");
    let child = lab.child("r", 0);
    lab.check(&child, "Failed", "Cancelled");
    assert_eq!(lab.children(), 1);
}

#[test]
fn a_dry_run_creates_nothing_and_says_what_it_would() {
    let mut lab = Lab::new();
    lab.request("r", &[step("a", &[])], json!({"spec": {"dryRun": true}})).stands("r", "Completed");
    let status = lab.of_request("r");
    assert_eq!(status["outcome"], "DryRun");
    assert!(status["message"].as_str().unwrap().contains("a: workflow a"));
    assert_eq!(lab.children() + lab.runs(&PIPELINE_RUN).len(), 0);
}

#[test]
fn after_its_retention_a_request_goes_with_all_it_made() {
    let mut lab = Lab::new();
    lab.request("r", &[step("a", &[])], json!({"spec": {"retention": "1h"}})).step_succeeds("r", 0);
    lab.wait(Duration::from_secs(3599)).stands("r", "Completed");
    lab.wait(Duration::from_secs(1));
    assert!(lab.runs(&remediation_request::KIND).is_empty());
    assert_eq!(lab.children() + lab.runs(&PIPELINE_RUN).len(), 0);
}

#[test]
fn deleting_a_request_stops_what_runs_before_it_goes() {
    let mut lab = Lab::new();
    lab.request("r", &[step("a", &[])], json!({}));
    let child = lab.child("r", 0);
    lab.cluster.delete(&remediation_request::KIND, &key("r"), "Background");
    lab.settle();
    assert_eq!(lab.runs(&remediation_request::KIND).len(), 1, "it waits");
    assert_eq!(lab.run_of(&child)["spec"]["status"], "CancelledRunFinally");
    lab.tekton(&child, "False", "Cancelled", "was cancelled");
    assert!(lab.runs(&remediation_request::KIND).is_empty());
    assert_eq!(lab.children(), 0);
}

#[test]
fn a_second_request_for_the_same_alert_is_skipped_while_the_first_is_not_over() {
    let mut lab = Lab::new();
    let signal = json!({"spec": {"signal": {"name": "Crash", "fingerprint": "f1"}}});
    lab.request("r1", &[step("a", &[])], signal.clone());
    lab.request("r2", &[step("b", &[])], signal.clone()).stands("r2", "Skipped");
    assert_eq!(lab.of_request("r2")["reason"], "DuplicateAlert");
    lab.step_succeeds("r1", 0).stands("r1", "Completed");
    lab.request("r3", &[step("b", &[])], signal).stands("r3", "Executing");
}

/// Creation times are whole seconds, and UIDs are drawn by lot.
#[test]
fn of_two_requests_in_one_second_the_one_that_has_begun_goes_on() {
    let mut lab = Lab::new();
    let signal = json!({"spec": {"signal": {"name": "Crash", "fingerprint": "f1"}}});
    lab.request("r9", &[step("a", &[])], signal.clone()).stands("r9", "Executing");
    lab.request("r1", &[step("b", &[])], signal).stands("r1", "Skipped").stands("r9", "Executing");
}

#[track_caller]
fn unfit(steps: &[Value], patch: Value, reason: &str, says: &str) {
    let mut lab = Lab::new();
    lab.cluster.relax(&remediation_request::KIND);
    lab.request("r", steps, patch).stands("r", "Failed");
    let status = lab.of_request("r");
    assert_eq!(status["reason"], json!(reason), "{status:#}");
    assert!(status["message"].as_str().unwrap().contains(says), "{status:#}");
    assert_eq!(lab.children(), 0);
}

#[test]
fn a_plan_that_cannot_be_carried_out_fails_before_anything_runs() {
    unfit(&[step("a", &["b"]), step("b", &["a"])], json!({}), "ValidationError", "is a cycle");
    unfit(&[step("a", &["nobody"])], json!({}), "ValidationError", "nobody");
    let bad = json!({"spec": {"targetResource": {"kind": "Node", "name": "x", "namespace": "n"}}});
    unfit(&[step("a", &[])], bad, "ValidationError", "cluster-scoped");
    unfit(
        &[step("a", &[]), json!({"name": "act"})],
        json!({}),
        "ValidationError",
        "either workflow or action",
    );
}

#[test]
fn i1_a_crash_after_any_request_starts_each_step_once() {
    let machine = crate::machine::AnyMachine::new(RemediationRequests::default());
    for dies_after in 0..30 {
        let mut lab = Lab::new();
        lab.cluster.put(json!({"kind": "RemediationRequest", "metadata": {"name": "r"}, "spec": {"targetResource":
            {"kind": "Deployment", "name": "web", "namespace": "n"}, "plan": {"steps": [step("a", &[]), step("b", &[])]}}}));
        for _ in 0..dies_after / 10 {
            lab.cluster.step(&machine, &remediation_request::KIND, &key("r"));
        }
        lab.cluster.step_dying_at_a_write(&machine, &remediation_request::KIND, &key("r"), dies_after % 10);
        lab.settle().stands("r", "Executing");
        assert_eq!((lab.children(), lab.runs(&PIPELINE_RUN).len()), (2, 2), "{dies_after}");
        assert_eq!(lab.of_request("r")["steps"][1]["attempt"], 1);
    }
}

#[test]
fn an_execution_that_somebody_deleted_fails_its_step() {
    let mut lab = Lab::new();
    lab.request("r", &[step("a", &[])], json!({}));
    let child = lab.child("r", 0);
    let run = lab.run_of(&child);
    lab.cluster.delete(&workflow_execution::KIND, &key(&child), "Background");
    lab.settle();
    lab.cluster.delete(&PIPELINE_RUN, &run_key(&run), "Background");
    lab.settle().stands("r", "Failed");
}
