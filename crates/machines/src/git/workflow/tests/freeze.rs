//! A Freeze closes the door: Workflows wait, and say until when.

use super::*;
use pawl_api::pawl::annotations::FREEZE_OVERRIDE;

/// Until three in the morning.
const FREEZE: &str = "
kind: Freeze
metadata: {name: holidays}
spec: {doors: [git], until: '2026-01-01T03:00:00Z', reason: nobody is here}
---";

fn gate(case: &Case) -> Value {
    let workflow = case.workflow().unwrap();
    let gates = workflow["status"]["gates"].as_array().cloned().unwrap_or_default();
    gates.into_iter().find(|gate| gate["gate"] == "Freeze").unwrap_or_default()
}

#[test]
fn a_workflow_waits_while_a_freeze_holds_and_says_until_when() {
    let case = check(&[BRANCH, TEMPLATE, WORKFLOW, FREEZE], ("Pending", "Frozen"));
    assert!(case.job().is_none());
    let condition = case.condition("Frozen");
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("Frozen")));
    assert!(case.message().contains("2026-01-01T03:00:00Z") && case.message().contains("nobody is here"));
    assert_eq!(gate(&case)["verdict"], "Waiting");
    let me = case.cluster.world.get(&workflow::KIND, &key()).unwrap();
    let wake = case.cluster.plan(&case.machine, &me).wake;
    assert_eq!(wake, crate::plan::Wake::At("2026-01-01T03:00:00Z".parse().unwrap()));
}

#[test]
fn a_workflow_runs_when_the_freeze_ends() {
    let mut case = check(&[BRANCH, TEMPLATE, WORKFLOW, FREEZE], ("Pending", "Frozen"));
    case.cluster.now += Duration::from_hours(3);
    let case = case.settle();
    assert!(case.job().is_some());
    assert_eq!(case.says(), ("Pending".to_owned(), "JobCreated".to_owned()));
    assert_eq!(case.condition("Frozen"), Value::Null);
    assert_eq!((&gate(&case)["verdict"], &gate(&case)["reason"]), (&json!("Passed"), &json!("NotFrozen")));
}

#[test]
fn a_freeze_that_is_removed_lets_workflows_go() {
    let mut case = check(&[BRANCH, TEMPLATE, WORKFLOW, FREEZE], ("Pending", "Frozen"));
    let freeze = pawl_api::pawl::freeze::KIND;
    let holidays = case.cluster.world.get(&freeze, &Key::new(None, "holidays")).unwrap();
    assert_eq!(wakes::not_yet_started(&holidays, &case.cluster.world), [key()]);
    case.cluster.delete(&freeze, &Key::new(None, "holidays"), "Background");
    assert!(case.settle().job().is_some());
}

#[test]
fn a_workflow_with_the_annotation_and_a_reason_runs_and_the_gate_says_why() {
    let overridden = WORKFLOW.replace(
        "metadata: {name: w,",
        &format!("metadata: {{name: w, annotations: {{{FREEZE_OVERRIDE}: the shop is down}},"),
    );
    let case = check(&[BRANCH, TEMPLATE, &overridden, FREEZE], ("Pending", "JobCreated"));
    let gate = gate(&case);
    assert_eq!((&gate["verdict"], &gate["reason"]), (&json!("Passed"), &json!("FreezeOverridden")));
    assert!(gate["lookedAt"].as_str().unwrap().contains("the shop is down"));
}

#[test]
fn what_runs_when_a_freeze_begins_runs_on() {
    let later = FREEZE.replace("until: '2026-01-01T03:00:00Z'", "from: '2026-01-01T01:00:00Z'");
    let mut case = check(&[BRANCH, TEMPLATE, WORKFLOW, &later], ("Pending", "JobCreated"));
    case.cluster.now += Duration::from_hours(2);
    let mut case = case.settle();
    let done = json!({"status": {"succeeded": 1, "conditions": [
        {"type": "Complete", "status": "True"}, {"type": "SuccessCriteriaMet", "status": "True"}]}});
    case.cluster.edit(&JOB, &key(), &done);
    assert_eq!(case.settle().says().0, "Succeeded");
}

#[test]
fn a_freeze_of_another_door_namespace_or_target_is_none_of_a_workflows_business() {
    for select in ["doors: [deploy, remedy]", "namespaces: [other]", "targets: ['node/*']"] {
        let other = FREEZE.replace("doors: [git]", select);
        let case = check(&[BRANCH, TEMPLATE, WORKFLOW, &other], ("Pending", "JobCreated"));
        assert_eq!(gate(&case), Value::Null, "{select}");
    }
    let own = FREEZE.replace("doors: [git]", "targets: ['git:*//envs/prod#plan@*']");
    check(&[BRANCH, TEMPLATE, WORKFLOW, &own], ("Pending", "Frozen"));
}
