use super::*;
use crate::deploy::testing::{Case, key};
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
