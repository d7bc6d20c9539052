//! Who may say yes, to what, and until when.

use super::*;
use crate::remedy::identity::{BINDING, POLICY};

fn waiting(count: u32, groups: &[&str]) -> Acts {
    let mut acts = Acts::new();
    acts.needs_approval(count, groups);
    acts.execution("k", json!({})).check("k", "waiting_approval", "ApprovalRequired");
    acts
}

/// The one approval does not count, for this reason.
#[track_caller]
fn does_not_count(acts: &mut Acts, says: &str) {
    acts.check("k", "waiting_approval", "ApprovalRequired");
    let told = acts.status("k")["approvals"].clone();
    let last = told.as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["counts"], false, "{told:#}");
    assert!(last["message"].as_str().unwrap().contains(says), "{told:#}");
    assert!(acts.jobs().is_empty());
}

#[test]
fn one_approval_by_somebody_else_lets_it_go() {
    let mut acts = waiting(1, &[]);
    assert!(acts.event("ApprovalRequired") && acts.jobs().is_empty() && acts.holders().is_empty());
    acts.approve("k", "bob", &[]).check("k", "executing", "JobCreated");
    assert!(acts.event("ApprovalGranted"));
    let told = acts.status("k")["approvals"][0].clone();
    assert_eq!((&told["approver"], &told["counts"]), (&json!("bob"), &json!(true)));
    assert_eq!(acts.gate("k", "Approval"), "Passed ApprovalGranted");
}

#[test]
fn two_of_two_are_two_people() {
    let mut acts = waiting(2, &[]);
    acts.approve("k", "bob", &[]).check("k", "waiting_approval", "ApprovalRequired");
    let digest = acts.digest_of("k");
    let again = json!({"kind": "Approval", "metadata": {"name": "again"}, "spec": {"executionRef": {"name": "k"},
        "decision": "approve", "digest": digest, "approver": {"username": "bob"}}});
    acts.cluster.put(again);
    acts.settle().check("k", "waiting_approval", "ApprovalRequired");
    assert_eq!(acts.status("k")["message"], "1 of 2 approvals");
    acts.approve("k", "cid", &[]).check("k", "executing", "JobCreated");
}

#[test]
fn nobody_approves_their_own() {
    let mut acts = waiting(1, &[]);
    acts.approve("k", "ann", &[]);
    does_not_count(&mut acts, "ann is who asks");
}

#[test]
fn an_approval_of_what_nobody_says_who_asked_for_does_not_count() {
    let mut acts = Acts::new();
    acts.needs_approval(1, &[]);
    acts.execution("k", json!({"spec": {"requestedBy": null}})).approve("k", "bob", &[]);
    does_not_count(&mut acts, "requestedBy is not set");
}

#[test]
fn an_approver_is_of_one_of_the_groups() {
    let mut acts = waiting(1, &["sre", "oncall"]);
    acts.approve("k", "bob", &["dev"]);
    does_not_count(&mut acts, "none of the groups sre, oncall");
    acts.approve("k", "cid", &["dev", "oncall"]).check("k", "executing", "JobCreated");
}

#[test]
fn an_approval_names_what_it_approves_and_of_whom() {
    let mut acts = waiting(1, &[]);
    acts.says("k", "bob", &[], "approve", "another digest");
    does_not_count(&mut acts, "ApprovalOutdated");
    let digest = acts.digest_of("k");
    acts.cluster.put(json!({"kind": "Approval", "metadata": {"name": "namesake"}, "spec": {
        "executionRef": {"name": "k", "uid": "another"}, "decision": "approve", "digest": digest,
        "approver": {"username": "cid"}}}));
    acts.settle().check("k", "waiting_approval", "ApprovalRequired");
    assert_eq!(acts.status("k")["approvals"].as_array().unwrap().len(), 1);
}

#[test]
fn a_rejection_ends_it_whatever_others_said() {
    let mut acts = waiting(2, &[]);
    acts.approve("k", "bob", &[]);
    let digest = acts.digest_of("k");
    acts.says("k", "cid", &[], "reject", &digest).check("k", "failed", "approval_rejected");
    assert!(acts.status("k")["message"].as_str().unwrap().contains("rejected by cid: because"));
    assert!(acts.event("ApprovalRejected") && acts.jobs().is_empty());
}

#[test]
fn whoever_asks_may_take_it_back() {
    let mut acts = waiting(1, &["sre"]);
    acts.says("k", "ann", &[], "reject", "whatever").check("k", "failed", "approval_rejected");
}

#[test]
fn a_rejection_by_somebody_who_may_not_approve_does_not_count() {
    let mut acts = waiting(1, &["sre"]);
    let digest = acts.digest_of("k");
    acts.says("k", "eve", &["dev"], "reject", &digest);
    does_not_count(&mut acts, "none of the groups");
}

#[test]
fn i8_waiting_ends_at_the_smallest_of_policys_the_requests_and_one_hour() {
    let mut acts = waiting(1, &[]);
    assert_eq!(acts.status("k")["approvalDeadline"], "2026-01-01T01:00:00Z");
    acts.wait(Duration::from_mins(59)).check("k", "waiting_approval", "ApprovalRequired");
    acts.wait(Duration::from_mins(1)).check("k", "failed", "approval_timeout");
    assert!(acts.event("ApprovalExpired"));
    let mut acts = Acts::new();
    acts.needs_approval(1, &[]).rule(|decision| decision.approval_timeout = Some("20m".parse().unwrap()));
    acts.execution("k", json!({}));
    assert_eq!(acts.status("k")["approvalDeadline"], "2026-01-01T00:20:00Z");
    acts.cluster.put(json!({"kind": "RemediationRequest", "metadata": {"name": "r", "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["somebody.else/x"]}, "spec": {"targetResource": {"kind": "Deployment", "name": "web", "namespace": "n"},
        "plan": {"steps": [{"name": "a", "workflow": {"workflowRef":
            {"workflowId": "mend", "containerImage": "i"}}}]}, "timeouts": {"approval": "5m"}}}));
    acts.execution("l", json!({"spec": {"remediationRequestRef": {"name": "r"}}}));
    assert_eq!(acts.status("l")["approvalDeadline"], "2026-01-01T00:05:00Z");
}

#[test]
fn an_approval_that_came_in_time_counts_after_a_restart_and_one_that_came_late_does_not() {
    let mut acts = waiting(1, &[]);
    let (digest, machines) = (acts.digest_of("k"), std::mem::take(&mut acts.machines));
    acts.says("k", "bob", &[], "approve", &digest);
    acts.cluster.advance(Duration::from_hours(2));
    acts.machines = machines;
    acts.settle().check("k", "executing", "JobCreated");
    let mut acts = waiting(1, &[]);
    let (digest, machines) = (acts.digest_of("k"), std::mem::take(&mut acts.machines));
    acts.cluster.advance(Duration::from_hours(2));
    acts.says("k", "bob", &[], "approve", &digest);
    acts.machines = machines;
    acts.settle().check("k", "failed", "approval_timeout");
}

#[test]
fn a_target_that_moved_makes_approvals_of_before_worthless_and_the_status_says_so() {
    let mut acts = waiting(1, &[]);
    let before = acts.digest_of("k");
    acts.scale("web", 4);
    assert_ne!(acts.digest_of("k"), before);
    acts.says("k", "bob", &[], "approve", &before);
    does_not_count(&mut acts, "ApprovalOutdated");
    let conditions = acts.status("k")["conditions"].clone();
    let told = conditions.as_array().unwrap().iter().find(|one| one["type"] == "ApprovalsOutdated").unwrap();
    assert!(told["message"].as_str().unwrap().contains("the target moved"), "{told:#}");
    assert!(acts.event("ApprovalOutdated"));
    acts.approve("k", "bob", &[]).check("k", "executing", "JobCreated");
}

#[test]
fn what_an_action_neither_reads_nor_writes_may_move() {
    let mut acts = waiting(1, &[]);
    let before = acts.digest_of("k");
    acts.cluster.edit(
        &DEPLOYMENT,
        &key("web"),
        &json!({"status": {"readyReplicas": 3}, "metadata": {"labels": {"a": "b"}}}),
    );
    acts.settle();
    assert_eq!(acts.digest_of("k"), before);
}

#[test]
fn a_policy_that_moved_makes_approvals_worthless_too() {
    let mut acts = waiting(1, &[]);
    let before = acts.digest_of("k");
    acts.rules.borrow_mut().digest = "p2".to_owned();
    acts.says("k", "bob", &[], "approve", &before);
    does_not_count(&mut acts, "ApprovalOutdated");
    let told = acts.status("k")["conditions"].to_string();
    assert!(told.contains("the policy moved"), "{told}");
}

#[test]
fn a_policy_that_denies_meanwhile_ends_the_waiting_and_one_that_asks_no_more_lets_it_go() {
    let mut acts = waiting(1, &[]);
    acts.rule(|decision| decision.deny = vec!["frozen".to_owned()]);
    acts.settle().check("k", "failed", "policy_denied");
    let mut acts = waiting(1, &[]);
    acts.rule(|decision| decision.require_approval = false);
    acts.settle().check("k", "executing", "JobCreated");
}

#[test]
fn a_spec_that_changed_after_it_was_validated_fails() {
    let mut acts = waiting(1, &[]);
    acts.cluster.relax(&KIND);
    let more = json!({"spec": {"parameters": {"scaleDeployment": {"replicas": 50}}}});
    acts.cluster.edit(&KIND, &key("k"), &more);
    acts.settle().check("k", "failed", "spec_changed");
    assert!(acts.jobs().is_empty());
}

#[test]
fn approval_received_is_an_anonymous_approval_and_refused_where_policy_asks_who() {
    let mut acts = waiting(1, &[]);
    acts.cluster.edit(&KIND, &key("k"), &json!({"spec": {"approvalReceived": true}}));
    acts.settle().check("k", "executing", "JobCreated");
    assert_eq!(acts.status("k")["approvals"], json!([{"decision": "approve", "counts": true}]));
    for (count, groups) in [(1, &["sre"][..]), (2, &[])] {
        let mut acts = waiting(count, groups);
        acts.cluster.edit(&KIND, &key("k"), &json!({"spec": {"approvalReceived": true}}));
        acts.settle();
        does_not_count(&mut acts, "policy asks who approves");
    }
}

#[test]
fn where_nothing_checks_who_approves_approvals_do_not_count_and_a_condition_says_so() {
    for kind in [POLICY, BINDING] {
        let mut acts = waiting(1, &[]);
        acts.cluster.world.remove(&kind, &Key::new(None, "pawl-approver"));
        acts.approve("k", "bob", &[]);
        does_not_count(&mut acts, "nothing checks who approves");
        let told = acts.status("k")["conditions"].to_string();
        assert!(told.contains("ApproverUnverified"), "{told}");
        for manifest in crate::remedy::identity::manifests(&[], &json!({})) {
            if acts
                .cluster
                .get(&kind, &Key::new(None, manifest["metadata"]["name"].as_str().unwrap()))
                .is_none()
                && manifest["kind"] == *kind.kind
            {
                acts.cluster.cache_only(manifest);
            }
        }
        acts.settle().check("k", "executing", "JobCreated");
    }
}

#[test]
fn what_moves_after_the_approval_and_before_the_job_is_let_go_is_approved_anew() {
    let mut acts = Acts::new();
    acts.deployment("db", 1);
    // Somebody else holds the target while the approval comes.
    let other = json!({"metadata": {"annotations": {"pawl.dev/targets": "n/deployment/web"}},
        "spec": {"parameters": {"scaleDeployment": {"deployment": "db"}}}});
    acts.execution("holder", other).check("holder", "executing", "JobCreated");
    acts.needs_approval(1, &[]).execution("k", json!({})).check("k", "waiting_approval", "ApprovalRequired");
    acts.approve("k", "bob", &[]).check("k", "executing", "TargetLocked");
    acts.scale("web", 7).act().check("k", "waiting_approval", "ApprovalRequired");
    assert!(acts.holders().is_empty(), "it gives the lock back while it waits");
    assert!(acts.jobs().iter().all(|job| job["metadata"]["labels"]["kubernaut.io/execution-id"] != "k"));
    acts.approve("k", "cid", &[]).act().check("k", "rollback_ready", "Completed");
    assert_eq!(acts.replicas("web"), 5);
}
