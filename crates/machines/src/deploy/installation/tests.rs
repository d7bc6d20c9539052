mod sub_installations;

use super::*;
use crate::deploy::testing::{Case, key};
use crate::machine::AnyMachine;
use pawl_api::deploy::{deploy_item, labels, types};
use serde_json::Value;
use std::time::Duration;

/// An Installation of this name with this blueprint and the rest of its spec.
fn put(case: &mut Case, name: &str, blueprint: &str, mut spec: Value) {
    spec["blueprint"] = json!({"inline": {"filesystem": {"blueprint.yaml": blueprint}}});
    case.cluster.put(json!({"kind": "Installation", "metadata": {"name": name}, "spec": spec}));
}

fn case(blueprint: &str, spec: Value) -> Case {
    let mut case = Case::empty();
    case.machines.insert(0, AnyMachine::new(Installations));
    put(&mut case, "e", blueprint, spec);
    case.settle();
    case
}

const PLAIN: &str = "
deployExecutions:
- name: default
  type: GoTemplate
  template: |
    deployItems:
    - {name: a, type: landscaper.gardener.cloud/mock, config: {}}
    - {name: b, type: landscaper.gardener.cloud/mock, dependsOn: [a], config: {}}
";

fn operation(case: &mut Case, name: &str, word: &str) {
    let patch = json!({"metadata": {"annotations": {annotations::OPERATION: word}}});
    case.cluster.edit(&KIND, &key(name), &patch);
    case.settle();
}

fn status(case: &Case, name: &str) -> Value {
    case.cluster.get(&KIND, &key(name)).unwrap()["status"].clone()
}

fn check(case: &Case, name: &str, phase: &str, reason: &str) {
    let status = status(case, name);
    let found = (
        status["phase"].as_str().unwrap_or_default(),
        status["lastError"]["reason"].as_str().unwrap_or_default(),
    );
    assert_eq!(found, (phase, reason), "{status:#}");
}

#[test]
fn an_installation_runs_its_blueprint_and_a_tree_has_one_job() {
    let mut case = case(PLAIN, json!({}));
    assert!(case.execution().is_none(), "without a job nothing is made");
    operation(&mut case, "e", "reconcile");
    check(&case, "e", "Succeeded", "");
    assert_eq!(case.phases(), "a=Succeeded b=Succeeded");
    let job = status(&case, "e")["jobID"].clone();
    assert_eq!(case.execution().unwrap()["status"]["jobIDFinished"], job);
    assert_eq!(case.item("b").unwrap()["status"]["jobIDFinished"], job);
    assert_eq!(status(&case, "e")["executionRef"]["name"], "e");
    case.cluster.delete(&KIND, &key("e"), "Background");
    case.settle();
    assert!(
        case.cluster.get(&KIND, &key("e")).is_none()
            && case.execution().is_none()
            && case.phases().is_empty()
    );
}

#[test]
fn imports_are_bound_and_targets_resolved() {
    let blueprint = "
imports:
- {name: port, type: data}
- {name: host, type: data, required: false}
- {name: size, type: data, default: {value: 3}}
- {name: cluster, type: target}
deployExecutions:
- name: default
  type: GoTemplate
  template: |
    deployItems:
    - name: web-{{ .imports.port }}
      type: landscaper.gardener.cloud/mock
      target: {import: cluster}
      config: {providerStatus: {size: {{ .imports.size }}, from: '{{ .imports.cluster.metadata.name }}'}}
";
    let imports =
        json!({"data": [{"name": "port", "dataRef": "p"}], "targets": [{"name": "cluster", "target": "t"}]});
    let mut case = case(blueprint, json!({"imports": imports}));
    operation(&mut case, "e", "reconcile");
    check(&case, "e", "Failed", "ImportMissing");
    let message = status(&case, "e")["lastError"]["message"].as_str().unwrap().to_owned();
    assert_eq!(message, "import port: DataObject p is not there; import cluster: Target t is not there");
    case.cluster.put(json!({"kind": "DataObject", "metadata": {"name": "p"}, "data": 8080}));
    case.cluster.put(json!({"kind": "Target", "metadata": {"name": "t"}, "spec": {"type": "x"}}));
    operation(&mut case, "e", "reconcile");
    check(&case, "e", "Succeeded", "");
    let item = case.item("web-8080").unwrap();
    assert_eq!(item["spec"]["target"], json!({"name": "t"}));
    assert_eq!(item["status"]["providerStatus"], json!({"size": 3, "from": "t"}));
    assert_eq!(item["metadata"]["labels"][labels::NAME], "web-8080");
}

#[test]
fn exports_flow_to_a_sibling_which_then_holds_its_source() {
    let source = "
deployExecutions:
- name: default
  type: GoTemplate
  template: |
    deployItems: [{name: a, type: landscaper.gardener.cloud/mock, config: {export: {port: 7}}}]
exports: [{name: port, type: data}]
exportExecutions:
- name: default
  type: GoTemplate
  template: |
    exports: {port: {{ .deployitems.a.port }}}
";
    let sink = "
imports: [{name: port, type: data}]
deployExecutions:
- name: default
  type: GoTemplate
  template: |
    deployItems: [{name: 'b{{ .imports.port }}', type: landscaper.gardener.cloud/mock, config: {}}]
";
    let mut case = case(source, json!({"exports": {"data": [{"name": "port", "dataRef": "p"}]}}));
    put(&mut case, "f", sink, json!({"imports": {"data": [{"name": "port", "dataRef": "p"}]}}));
    operation(&mut case, "e", "reconcile");
    check(&case, "e", "Succeeded", "");
    assert_eq!(case.cluster.get(&data_object::KIND, &key("p")).unwrap()["data"], 7);
    operation(&mut case, "f", "reconcile");
    check(&case, "f", "Succeeded", "");
    assert!(case.phases().contains("b7=Succeeded"));
    // Refused, visibly, while somebody still imports from it.
    case.cluster.delete(&KIND, &key("e"), "Background");
    case.settle();
    check(&case, "e", "InitDelete", "SiblingImports");
    case.cluster.delete(&KIND, &key("f"), "Background");
    case.settle();
    assert!(case.cluster.get(&KIND, &key("e")).is_none());
}

#[test]
fn bad_blueprints_are_a_clear_failure_and_deletable() {
    let template =
        |text: &str| format!("deployExecutions: [{{name: x, type: GoTemplate, template: {text}}}]");
    for (blueprint, reason, word) in [
        ("deployExecutions: {".to_owned(), "BlueprintInvalid", "blueprint.yaml"),
        (template("'{{ .imports.nothing }}'"), "TemplateError", "nothing"),
        (template("'{{'"), "TemplateError", "x"),
        (template("'deployItems: [{name: a}]'"), "BlueprintInvalid", "type"),
        ("deployExecutions: [{name: x, type: Spiff, template: ''}]".to_owned(), "BlueprintInvalid", "Spiff"),
        (
            "deployExecutions: [{name: x, type: GoTemplate, file: gone.yaml}]".to_owned(),
            "BlueprintInvalid",
            "gone.yaml",
        ),
        ("subinstallations: [{apiVersion: x}]".to_owned(), "BlueprintInvalid", "subinstallations"),
    ] {
        let mut case = case(&blueprint, json!({}));
        operation(&mut case, "e", "reconcile");
        check(&case, "e", "Failed", reason);
        let message = status(&case, "e")["lastError"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(word), "{blueprint}: {message}");
        case.cluster.delete(&KIND, &key("e"), "Background");
        case.settle();
        assert!(case.cluster.get(&KIND, &key("e")).is_none(), "{blueprint}");
    }
}

#[test]
fn a_failure_of_an_item_is_the_installations_and_is_tried_again_by_itself() {
    let blueprint = PLAIN.replace("config: {}}\n    - {name: b", "config: {failTimes: 2}}\n    - {name: b");
    let spec = json!({"automaticReconcile": {"failedReconcile": {"numberOfReconciles": 2, "interval": "5m"},
        "succeededReconcile": {"interval": "24h"}}});
    let mut case = case(&blueprint, spec);
    operation(&mut case, "e", "reconcile");
    check(&case, "e", "Failed", "ExecutionFailed");
    assert!(status(&case, "e")["lastError"]["message"].as_str().unwrap().contains("a: DeployerFailed"));
    case.wait(Duration::from_mins(4));
    check(&case, "e", "Failed", "ExecutionFailed");
    case.wait(Duration::from_mins(2));
    check(&case, "e", "Failed", "ExecutionFailed");
    case.wait(Duration::from_mins(6));
    check(&case, "e", "Succeeded", "");
    let job = status(&case, "e")["jobID"].clone();
    case.wait(Duration::from_hours(23));
    assert_eq!(status(&case, "e")["jobID"], job);
    case.wait(Duration::from_hours(2));
    assert_ne!(status(&case, "e")["jobID"], job);
}

#[test]
fn an_interrupt_reaches_the_items() {
    let blueprint = PLAIN.replace("config: {}}\n    - {name: b", "config: {hang: true}}\n    - {name: b");
    let mut case = case(&blueprint, json!({}));
    operation(&mut case, "e", "reconcile");
    check(&case, "e", "Progressing", "");
    operation(&mut case, "e", "interrupt");
    check(&case, "e", "Failed", "Interrupted");
    assert_eq!(case.phases(), "a=Failed b=Failed");
}

#[test]
fn delete_without_uninstall_is_handed_down() {
    let blueprint =
        PLAIN.replace("config: {}}\n    - {name: b", "config: {failOnDelete: true}}\n    - {name: b");
    let mut case = case(&blueprint, json!({}));
    operation(&mut case, "e", "reconcile");
    let wish = json!({"metadata": {"annotations": {annotations::DELETE_WITHOUT_UNINSTALL: "true"}}});
    case.cluster.edit(&KIND, &key("e"), &wish);
    case.cluster.delete(&KIND, &key("e"), "Background");
    case.settle();
    assert!(case.cluster.get(&KIND, &key("e")).is_none() && case.phases().is_empty());
}

#[test]
fn a_new_generation_starts_a_job_where_that_was_asked_for() {
    let mut case = case(PLAIN, json!({}));
    let wish = json!({"metadata": {"annotations": {annotations::RECONCILE_IF_CHANGED: "true"}}});
    case.cluster.edit(&KIND, &key("e"), &wish);
    case.settle();
    check(&case, "e", "Succeeded", "");
    let job = status(&case, "e")["jobID"].clone();
    let blueprint =
        json!({"inline": {"filesystem": {"blueprint.yaml": PLAIN.replace("name: b", "name: c")}}});
    case.cluster.edit(&KIND, &key("e"), &json!({"spec": {"blueprint": blueprint}}));
    case.settle();
    assert_ne!(status(&case, "e")["jobID"], job);
    assert_eq!(case.phases(), "a=Succeeded c=Succeeded");
    assert!(case.cluster.get(&deploy_item::KIND, &case.item_key("b")).is_none());
    assert_eq!(case.item("a").unwrap()["spec"]["type"], types::MOCK);
}

#[test]
fn a_job_starts_by_the_clock_and_a_bad_schedule_is_told() {
    let every_hour = json!({"automaticReconcile": {"succeededReconcile": {"cronSpec": "30 * * * *"}}});
    let mut case = case(PLAIN, every_hour);
    operation(&mut case, "e", "reconcile");
    let job = status(&case, "e")["jobID"].clone();
    case.wait(Duration::from_mins(29));
    assert_eq!(status(&case, "e")["jobID"], job);
    case.wait(Duration::from_mins(2));
    assert_ne!(status(&case, "e")["jobID"], job);
    check(&case, "e", "Succeeded", "");
    let wrong = json!({"spec": {"automaticReconcile": {"succeededReconcile": {"cronSpec": "30 *"}}}});
    case.cluster.edit(&KIND, &key("e"), &wrong);
    operation(&mut case, "e", "reconcile");
    check(&case, "e", "Failed", "ValidationFailed");
}

#[test]
fn keys_that_nobody_reads_are_told_once_and_hinder_nothing() {
    let blueprint = format!("jsonSchema: x\n{PLAIN}");
    let mut case = case(
        &blueprint,
        json!({"componentDescriptor": {"ref": {}}, "imports": {"componentDescriptors": []}}),
    );
    operation(&mut case, "e", "reconcile");
    check(&case, "e", "Succeeded", "");
    let told = "spec.componentDescriptor: is not known, and passed over; spec.imports.componentDescriptors: is not \
        known, and passed over; blueprint.yaml: jsonSchema: is not known, and passed over";
    let conditions = status(&case, "e")["conditions"].clone();
    assert_eq!((&conditions[0]["type"], &conditions[0]["message"]), (&json!("KeysIgnored"), &json!(told)));
    let events = || case.cluster.events.iter().filter(|(_, reason, _)| reason == "KeysIgnored").count();
    assert_eq!(events(), 1);
    let fixed = json!({"spec": {"componentDescriptor": null, "imports": null,
        "blueprint": {"inline": {"filesystem": {"blueprint.yaml": PLAIN}}}}});
    case.cluster.edit(&KIND, &key("e"), &fixed);
    operation(&mut case, "e", "reconcile");
    assert_eq!(status(&case, "e")["conditions"].as_array().unwrap().len(), 1, "and not told any more");
}

#[test]
fn imports_are_checked_against_their_schema() {
    let blueprint = "
imports:
- {name: port, type: data, schema: {type: integer, maximum: 65535}}
- {name: cluster, type: target, targetType: landscaper.gardener.cloud/kubernetes-cluster}
";
    let imports = json!({"data": [{"name": "port", "configMapRef": {"name": "c", "key": "port"}}],
        "targets": [{"name": "cluster", "target": "t"}]});
    let mut case = case(blueprint, json!({"imports": imports}));
    case.cluster.put(json!({"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"port": "70000"}}));
    case.cluster.put(json!({"kind": "Target", "metadata": {"name": "t"}, "spec": {"type": "x"}}));
    operation(&mut case, "e", "reconcile");
    check(&case, "e", "Failed", "ImportInvalid");
    let message = status(&case, "e")["lastError"]["message"].as_str().unwrap().to_owned();
    assert_eq!(
        message,
        "import \"port\": must be at most 65535; import \"cluster\": the Target \"t\" must be of type \
         \"landscaper.gardener.cloud/kubernetes-cluster\", and is of type \"x\""
    );
    case.cluster.edit(&CONFIG_MAP, &key("c"), &json!({"data": {"port": "443"}}));
    let spec = json!({"spec": {"type": "landscaper.gardener.cloud/kubernetes-cluster"}});
    case.cluster.edit(&target::KIND, &key("t"), &spec);
    operation(&mut case, "e", "reconcile");
    check(&case, "e", "Succeeded", "");
}

#[test]
fn exports_that_are_no_longer_named_go_and_what_is_somebody_elses_stays() {
    let blueprint = "
exports: [{name: a, type: data}, {name: b, type: target, targetType: t}]
exportExecutions:
- {name: x, type: GoTemplate, template: 'exports: {a: 1, b: {labels: {k: v}, config: {c: 2}}}'}
";
    let exports =
        json!({"data": [{"name": "a", "dataRef": "one"}], "targets": [{"name": "b", "target": "two"}]});
    let mut case = case(blueprint, json!({"exports": exports}));
    operation(&mut case, "e", "reconcile");
    check(&case, "e", "Succeeded", "");
    let two = case.cluster.get(&target::KIND, &key("two")).unwrap();
    assert_eq!((&two["spec"]["type"], &two["metadata"]["labels"]["k"]), (&json!("t"), &json!("v")));
    let renamed = json!({"data": [{"name": "a", "dataRef": "other"}], "targets": null});
    case.cluster.edit(&KIND, &key("e"), &json!({"spec": {"exports": renamed}}));
    case.cluster.put(json!({"kind": "DataObject", "metadata": {"name": "other"}, "data": "mine"}));
    operation(&mut case, "e", "reconcile");
    check(&case, "e", "Failed", "OwnershipMismatch");
    assert_eq!(case.cluster.get(&data_object::KIND, &key("other")).unwrap()["data"], "mine");
    case.cluster.delete(&data_object::KIND, &key("other"), "Background");
    operation(&mut case, "e", "reconcile");
    check(&case, "e", "Succeeded", "");
    assert!(case.cluster.get(&data_object::KIND, &key("one")).is_none());
    assert!(case.cluster.get(&target::KIND, &key("two")).is_none());
}

#[test]
fn exports_that_the_blueprint_does_not_promise_are_told_before_anything_is_made() {
    let spec = json!({"exports": {"data": [{"name": "a", "dataRef": "x"}, {"name": "t", "dataRef": "y"}]}});
    let mut case = case("exports: [{name: t, type: target}]", spec);
    operation(&mut case, "e", "reconcile");
    check(&case, "e", "Failed", "ValidationFailed");
    let message = status(&case, "e")["lastError"]["message"].as_str().unwrap().to_owned();
    assert_eq!(
        message,
        "spec.exports: the blueprint exports no \"a\"; spec.exports.data: \"t\" is a target in the blueprint"
    );
    assert!(case.execution().is_none());
}

#[test]
fn templates_that_never_end_or_render_too_much_and_yaml_bombs_are_a_clear_failure() {
    let template = |text: &str| {
        json!({"deployExecutions": [{"name": "x", "type": "GoTemplate", "template": text}]}).to_string()
    };
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let before = format!("*a{}", level - 1);
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", [before.as_str(); 9].join(", ")));
    }
    for (blueprint, reason) in [
        (template("{{ range until 100000000 }}x{{ end }}"), "TemplateError"),
        (template("{{ define \"a\" }}{{ template \"a\" }}{{ end }}{{ template \"a\" }}"), "TemplateError"),
        (template("{{ repeat 100000000 \"x\" }}"), "TemplateError"),
        (template(&format!("deployItems:\n{bomb}")), "TemplateError"),
        (bomb.clone(), "BlueprintInvalid"),
    ] {
        let mut case = case(&blueprint, json!({}));
        operation(&mut case, "e", "reconcile");
        check(&case, "e", "Failed", reason);
        case.cluster.delete(&KIND, &key("e"), "Background");
        case.settle();
        assert!(case.cluster.get(&KIND, &key("e")).is_none());
    }
}

#[test]
fn a_schedule_without_fields_is_a_day_after_success_and_five_minutes_after_failure() {
    let blueprint = PLAIN.replace("config: {}}\n    - {name: b", "config: {failTimes: 1}}\n    - {name: b");
    let mut case =
        case(&blueprint, json!({"automaticReconcile": {"succeededReconcile": {}, "failedReconcile": {}}}));
    operation(&mut case, "e", "reconcile");
    check(&case, "e", "Failed", "ExecutionFailed");
    case.wait(Duration::from_mins(4));
    check(&case, "e", "Failed", "ExecutionFailed");
    case.wait(Duration::from_mins(1));
    check(&case, "e", "Succeeded", "");
    let job = status(&case, "e")["jobID"].clone();
    case.wait(Duration::from_hours(23));
    assert_eq!(status(&case, "e")["jobID"], job);
    case.wait(Duration::from_hours(1));
    assert_ne!(status(&case, "e")["jobID"], job);
}

#[test]
fn a_deletion_that_failed_is_tried_again_by_itself_as_often_as_asked() {
    let blueprint =
        PLAIN.replace("config: {}}\n    - {name: b", "config: {failOnDelete: true}}\n    - {name: b");
    let spec =
        json!({"automaticReconcile": {"failedReconcile": {"numberOfReconciles": 2, "interval": "1m"}}});
    let mut case = case(&blueprint, spec);
    operation(&mut case, "e", "reconcile");
    check(&case, "e", "Succeeded", "");
    case.cluster.delete(&KIND, &key("e"), "Background");
    case.settle();
    let mut jobs = vec![status(&case, "e")["jobID"].clone()];
    for _ in 0..5 {
        case.wait(Duration::from_mins(2));
        check(&case, "e", "DeleteFailed", "DeleteFailed");
        jobs.push(status(&case, "e")["jobID"].clone());
    }
    jobs.dedup();
    assert_eq!(jobs.len(), 3, "the deletion, and twice again");
}

#[test]
fn an_item_type_that_nobody_serves_says_so_by_name() {
    let blueprint = PLAIN.replace(
        "name: a, type: landscaper.gardener.cloud/mock",
        "name: a, type: landscaper.gardener.cloud/helm",
    );
    let mut case = case(&blueprint, json!({}));
    operation(&mut case, "e", "reconcile");
    case.wait(Duration::from_secs(301));
    check(&case, "e", "Failed", "ExecutionFailed");
    let message = status(&case, "e")["lastError"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("no deployer serves the type landscaper.gardener.cloud/helm"), "{message}");
    let wish = json!({"metadata": {"annotations": {annotations::DELETE_WITHOUT_UNINSTALL: "true"}}});
    case.cluster.edit(&KIND, &key("e"), &wish);
    case.cluster.delete(&KIND, &key("e"), "Background");
    case.settle();
    assert!(case.cluster.get(&KIND, &key("e")).is_none());
}

#[test]
fn an_installation_tells_each_phase_once_and_when_it_passed_its_stations() {
    let mut case = case(PLAIN, json!({}));
    operation(&mut case, "e", "reconcile");
    let times = status(&case, "e")["transitionTimes"].clone();
    for station in ["triggerTime", "initTime", "waitTime", "finishedTime"] {
        assert!(times[station].is_string(), "{station} in {times}");
    }
    assert_eq!(status(&case, "e")["observedGeneration"], 1);
    let before = case.mark();
    case.wait(Duration::from_hours(1));
    assert_eq!(case.mark(), before, "I12: what is settled is not written");
}

#[test]
fn automatic_retry_by_interval_and_cron() {
    for (schedule, early, late) in [
        (json!({"interval": "10m"}), Duration::from_mins(9), Duration::from_mins(1)),
        (json!({"cronSpec": "15 * * * *"}), Duration::from_mins(14), Duration::from_mins(1)),
        // The earlier of both.
        (json!({"interval": "2h", "cronSpec": "0 * * * *"}), Duration::from_mins(59), Duration::from_mins(1)),
    ] {
        let blueprint =
            PLAIN.replace("config: {}}\n    - {name: b", "config: {failTimes: 1}}\n    - {name: b");
        let mut case = case(&blueprint, json!({"automaticReconcile": {"failedReconcile": schedule}}));
        operation(&mut case, "e", "reconcile");
        check(&case, "e", "Failed", "ExecutionFailed");
        case.wait(early);
        check(&case, "e", "Failed", "ExecutionFailed");
        case.wait(late);
        check(&case, "e", "Succeeded", "");
        let job = status(&case, "e")["jobID"].clone();
        case.wait(Duration::from_hours(48));
        assert_eq!(status(&case, "e")["jobID"], job, "after a success nothing was asked for");
    }
}
