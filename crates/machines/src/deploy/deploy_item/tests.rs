use super::*;
use crate::deploy::testing::{Case, key};
use serde_json::json;
use std::time::Duration;

/// An item without an Execution, with this configuration.
fn alone(config: &Value) -> Case {
    let mut case = Case::empty();
    case.cluster.put(json!({"kind": "DeployItem", "metadata": {"name": "i"},
        "spec": {"type": types::MOCK, "config": config}}));
    case.settle();
    case
}

fn item(case: &Case) -> Option<Value> {
    case.cluster.get(&KIND, &key("i"))
}

fn run(case: &mut Case) -> Value {
    let operation = json!({"metadata": {"annotations": {annotations::OPERATION: "reconcile"}}});
    case.cluster.edit(&KIND, &key("i"), &operation);
    case.settle();
    item(case).unwrap()["status"].clone()
}

#[test]
fn a_job_is_picked_up_worked_on_and_ended_in_one_write() {
    let mut case = alone(&json!({"providerStatus": {"kept": true}, "export": {"a": 1}}));
    let status = run(&mut case);
    assert_eq!(status["phase"], "Succeeded");
    assert_eq!(status["jobID"], status["jobIDFinished"]);
    assert_eq!(status["providerStatus"], json!({"kept": true}));
    assert_eq!(
        (status["deployer"]["name"].as_str(), status["target"].as_str()),
        (Some("mock"), Some("item:n/none/i"))
    );
    let phases: Vec<&str> =
        case.cluster.statuses.iter().filter_map(|(_, status)| status["phase"].as_str()).collect();
    assert_eq!(phases, ["Init", "Succeeded"]);
    for (_, status) in &case.cluster.statuses {
        let ended = status["phase"] == "Succeeded";
        assert_eq!(ended, status["jobIDFinished"] == status["jobID"], "the phase and the job end together");
    }
}

#[test]
fn keys_of_an_items_configuration_that_nobody_reads_are_told_by_name() {
    let mut case = alone(&json!({"delay": "1s", "dealy": "2s", "exports": {}}));
    let status = run(&mut case);
    let told = "not known, and passed over: spec.config.dealy, spec.config.exports";
    let said = |status: &Value| {
        let all = status["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|one| one["type"] == "KeysIgnored").map(|one| one["message"].clone())
    };
    assert_eq!(said(&status), Some(json!(told)));
    let warned = |case: &Case| {
        case.cluster.events.iter().filter(|(_, why, what)| why == "KeysIgnored" && what == told).count()
    };
    assert_eq!(warned(&case), 1);
    case.wait(Duration::from_secs(1));
    assert_eq!(item(&case).unwrap()["status"]["phase"], "Succeeded", "it hinders nothing");
    case.cluster.edit(&KIND, &key("i"), &json!({"spec": {"config": {"dealy": null, "exports": null}}}));
    assert_eq!(said(&run(&mut case)), None);
    assert_eq!(warned(&case), 1, "what was put right is told no more");
}

#[test]
fn every_phase_of_an_item_is_told() {
    let mut case = alone(&json!({"delay": "1s"}));
    run(&mut case);
    case.wait(Duration::from_secs(1));
    case.cluster.delete(&KIND, &key("i"), "Background");
    case.settle().wait(Duration::from_secs(1));
    assert_eq!(item(&case), None);
    let told: Vec<&str> = case.cluster.events.iter().map(|(_, reason, _)| reason.as_str()).collect();
    assert_eq!(told, ["PickedUp", "Progressing", "Succeeded", "PickedUp", "Progressing", "Uninstalled"]);
}

#[test]
fn an_item_that_nobody_serves_is_left_alone() {
    let mut case = Case::empty();
    case.cluster.put(json!({"kind": "DeployItem", "metadata": {"name": "i"}, "spec": {"type": "other"},
        "status": {"jobID": "j"}}));
    case.settle();
    assert!(item(&case).unwrap()["metadata"].get("finalizers").is_none());
    assert_eq!(case.cluster.statuses.len(), 0);
}

#[test]
fn landscapers_phases_are_where_a_job_ends_or_stays() {
    let phase = |config: Value| run(&mut alone(&config))["phase"].as_str().unwrap().to_owned();
    assert_eq!(phase(json!({"phase": "Succeeded"})), "Succeeded");
    assert_eq!(phase(json!({"phase": "Failed"})), "Failed");
    assert_eq!(phase(json!({"phase": "Progressing"})), "Progressing");
    assert_eq!(phase(json!({"initialPhase": "Failed", "phase": "Succeeded"})), "Failed");
    assert_eq!(phase(json!({"initialPhase": "Progressing"})), "Progressing");
}

#[test]
fn a_broken_configuration_is_a_failure_that_names_it_and_hinders_no_removal() {
    let mut case = alone(&json!({"delay": "soon"}));
    let status = run(&mut case);
    assert_eq!(
        (status["phase"].as_str(), status["lastError"]["reason"].as_str()),
        (Some("Failed"), Some("ConfigurationError"))
    );
    assert!(status["lastError"]["message"].as_str().unwrap().contains("spec.config"), "{status}");
    case.cluster.delete(&KIND, &key("i"), "Background");
    case.settle();
    assert!(item(&case).is_none());
}

#[test]
fn a_delay_is_counted_from_the_pickup() {
    let mut case = alone(&json!({"delay": "1m"}));
    assert_eq!(run(&mut case)["phase"], "Progressing");
    case.wait(Duration::from_secs(59));
    assert_eq!(item(&case).unwrap()["status"]["phase"], "Progressing");
    case.wait(Duration::from_secs(2));
    assert_eq!(item(&case).unwrap()["status"]["phase"], "Succeeded");
}

#[test]
fn a_target_that_comes_late_is_waited_for() {
    let mut case = Case::empty();
    case.cluster.put(json!({"kind": "DeployItem", "metadata": {"name": "i"},
        "spec": {"type": types::MOCK, "target": {"name": "t"}}}));
    case.settle();
    assert!(run(&mut case).get("phase").is_none());
    case.cluster.put(json!({"kind": "Target", "metadata": {"name": "t"}, "spec": {"type": "x"}}));
    case.settle();
    assert_eq!(item(&case).unwrap()["status"]["phase"], "Succeeded");
}

#[test]
fn without_uninstall_only_the_object_goes() {
    let mut case = alone(&json!({"failOnDelete": true}));
    run(&mut case);
    case.cluster.delete(&KIND, &key("i"), "Background");
    case.settle();
    assert_eq!(item(&case).unwrap()["status"]["phase"], "DeleteFailed");
    let only = json!({"metadata": {"annotations": {annotations::DELETE_WITHOUT_UNINSTALL: "true"}}});
    case.cluster.edit(&KIND, &key("i"), &only);
    case.settle();
    assert!(item(&case).is_none());
}

fn leases(case: &Case) -> Vec<String> {
    use crate::view::View as _;
    let all = case.cluster.world.list(&LEASE, None);
    all.iter().map(|lease| lease.annotation(crate::lock::TARGET).unwrap_or_default().to_owned()).collect()
}

fn hanging(name: &str, targets: &str) -> Value {
    json!({"kind": "DeployItem", "metadata": {"name": name, "annotations": {
            annotations::OPERATION: "reconcile", pawl_api::pawl::annotations::TARGETS: targets}},
        "spec": {"type": types::MOCK, "config": {"delay": "1m"}}})
}

fn status_of(case: &Case, name: &str) -> Value {
    case.cluster.get(&KIND, &key(name)).unwrap()["status"].clone()
}

#[test]
fn an_item_holds_what_it_acts_on_while_its_job_runs_and_no_longer() {
    let mut case = Case::empty();
    case.cluster.put(hanging("i", "prod/deployment/web, node/worker-1"));
    case.settle();
    let mut held = leases(&case);
    held.sort();
    assert_eq!(held, ["item:n/none/i", "node/worker-1", "prod/deployment/web"]);
    case.wait(Duration::from_mins(2));
    assert_eq!(status_of(&case, "i")["phase"], "Succeeded");
    assert_eq!(leases(&case), [""; 0]);
}

#[test]
fn an_item_waits_for_a_held_target_names_the_holder_and_its_time_does_not_count() {
    let mut case = Case::empty();
    case.cluster.put(hanging("i", "prod/deployment/web"));
    case.settle();
    case.cluster.put(hanging("j", "prod/deployment/web,node/worker-1"));
    case.settle();
    let waiting = status_of(&case, "j");
    let locked = waiting["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "TargetLocked");
    let message = locked.unwrap()["message"].as_str().unwrap();
    assert!(message.contains("prod/deployment/web is held by") && message.contains("n/i"), "{message}");
    assert_eq!(waiting["phase"], "Init");
    assert!(!leases(&case).iter().any(|target| target == "node/worker-1"), "all or none");
    case.wait(Duration::from_mins(2));
    let running = status_of(&case, "j");
    assert!(running["conditions"].as_array().unwrap().iter().all(|one| one["type"] != "TargetLocked"));
    assert_ne!(running["lastReconcileTime"], waiting["lastReconcileTime"], "its time begins with the lock");
    assert!(leases(&case).iter().any(|target| target == "node/worker-1"));
    case.wait(Duration::from_mins(2));
    assert_eq!(status_of(&case, "j")["phase"], "Succeeded");
}

#[test]
fn a_target_that_cannot_be_locked_is_a_failure_and_hinders_no_removal() {
    let mut case = Case::empty();
    case.cluster.put(hanging("i", "not a target"));
    case.settle();
    let status = status_of(&case, "i");
    assert_eq!(status["lastError"]["reason"], "TargetInvalid", "{status}");
    case.cluster.delete(&KIND, &key("i"), "Background");
    case.settle().wait(Duration::from_mins(2));
    assert!(item(&case).is_none());
}

#[test]
fn an_item_that_is_gone_holds_nothing() {
    let mut case = Case::empty();
    case.machines.push(crate::machine::AnyMachine::new(crate::lock::reaper::Reaper));
    case.cluster.put(hanging("i", "prod/deployment/web"));
    case.settle();
    case.cluster.remove(&KIND, &key("i"));
    case.settle();
    assert_eq!(leases(&case), [""; 0]);
}

#[test]
fn a_failed_try_is_repeated_as_often_as_the_item_says() {
    let mut case = alone(&json!({"failTimes": 2}));
    case.cluster.edit(&KIND, &key("i"), &json!({"spec": {"retries": 2}}));
    assert_eq!(run(&mut case)["phase"], "Progressing");
    case.wait(Duration::from_secs(10)).wait(Duration::from_secs(10));
    let status = item(&case).unwrap()["status"].clone();
    assert_eq!((status["phase"].as_str(), status["retries"].as_i64()), (Some("Succeeded"), Some(2)));
    assert!(status["firstError"]["message"].as_str().unwrap().contains("told to fail"), "{status}");
}

fn holidays(case: &mut Case, spec: &Value) {
    let mut raw = json!({"kind": "Freeze", "metadata": {"name": "holidays"},
        "spec": {"until": "2026-01-01T03:00:00Z", "reason": "nobody is here"}});
    crate::testing::merge(&mut raw, &json!({"spec": spec}));
    case.cluster.put(raw);
}

fn frozen(status: &Value) -> Value {
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|one| one["type"] == "Frozen").unwrap_or_default()
}

fn freeze_gate(status: &Value) -> Value {
    let gates = status["gates"].as_array().cloned().unwrap_or_default();
    gates.into_iter().find(|gate| gate["gate"] == "Freeze").unwrap_or_default()
}

#[test]
fn an_item_waits_while_a_freeze_holds_says_until_when_and_its_time_begins_afterwards() {
    let mut case = alone(&json!({}));
    holidays(&mut case, &json!({"doors": ["deploy"]}));
    let waiting = run(&mut case);
    assert_eq!(waiting["phase"], "Init");
    assert_eq!(frozen(&waiting)["status"], "True");
    assert!(frozen(&waiting)["message"].as_str().unwrap().contains("2026-01-01T03:00:00Z"));
    assert_eq!(freeze_gate(&waiting)["verdict"], "Waiting");
    assert_eq!(leases(&case), [""; 0], "whoever waits for a Freeze holds nothing");
    case.wait(Duration::from_hours(3));
    let done = item(&case).unwrap()["status"].clone();
    assert_eq!((&done["phase"], frozen(&done)), (&json!("Succeeded"), Value::Null));
    assert_eq!(freeze_gate(&done)["verdict"], "Passed");
    assert_ne!(done["lastReconcileTime"], waiting["lastReconcileTime"]);
}

#[test]
fn a_frozen_item_is_not_ended_for_taking_too_long() {
    let mut case = Case::of("a", &[]);
    holidays(&mut case, &json!({}));
    case.reconcile();
    assert_eq!(case.phases(), "a=Init");
    case.wait(Duration::from_hours(2));
    assert_eq!(case.phases(), "a=Init");
    case.wait(Duration::from_hours(1));
    assert_eq!(case.phases(), "a=Succeeded");
}

#[test]
fn a_freeze_also_keeps_what_was_deployed_from_being_taken_down() {
    let mut case = alone(&json!({}));
    run(&mut case);
    holidays(&mut case, &json!({}));
    case.cluster.delete(&KIND, &key("i"), "Background");
    case.settle();
    let waiting = item(&case).unwrap()["status"].clone();
    assert_eq!((&waiting["phase"], &frozen(&waiting)["status"]), (&json!("InitDelete"), &json!("True")));
    case.wait(Duration::from_hours(3));
    assert!(item(&case).is_none());
}

#[test]
fn an_item_with_the_annotation_and_a_reason_is_deployed_and_the_gate_says_why() {
    let mut case = alone(&json!({}));
    holidays(&mut case, &json!({}));
    let overridden = json!({"metadata": {"annotations": {"pawl.dev/freeze-override": "the shop is down"}}});
    case.cluster.edit(&KIND, &key("i"), &overridden);
    let status = run(&mut case);
    assert_eq!(status["phase"], "Succeeded");
    assert_eq!(freeze_gate(&status)["reason"], "FreezeOverridden");
    assert!(freeze_gate(&status)["lookedAt"].as_str().unwrap().contains("the shop is down"));
}

#[test]
fn what_is_being_deployed_when_a_freeze_begins_is_deployed() {
    let mut case = Case::empty();
    case.cluster.put(hanging("i", "prod/deployment/web"));
    case.settle();
    let phase = status_of(&case, "i")["phase"].clone();
    assert_eq!(phase, "Progressing");
    holidays(&mut case, &json!({}));
    case.wait(Duration::from_mins(2));
    assert_eq!(status_of(&case, "i")["phase"], "Succeeded");
}
