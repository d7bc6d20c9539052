//! Sub-Installations, and roots beside each other.

use super::{case, check, operation, put, status};
use crate::deploy::installation::*;
use crate::deploy::testing::{Case, key};
use crate::view::View;
use pawl_api::deploy::deploy_item;
use serde_json::{Value, json};

/// A blueprint of one item `<name>-<what it imports>` that exports what it imports and its own name.
fn link(name: &str, imports: &[&str], config: &str) -> String {
    let wanted: Vec<String> =
        imports.iter().map(|import| format!("{{name: {import}, type: data}}")).collect();
    let values: String = imports.iter().map(|import| format!("{{{{ .imports.{import} }}}}-")).collect();
    format!(
        "imports: [{}]
exports: [{{name: out, type: data, schema: {{type: string}}}}]
deployExecutions:
- name: default
  type: GoTemplate
  template: |
    deployItems: [{{name: {name}, type: landscaper.gardener.cloud/mock, config: {config}}}]
exportExecutions:
- name: default
  type: GoTemplate
  template: |
    exports: {{out: '{values}{name}'}}
",
        wanted.join(", ")
    )
}

/// `a`, or `b<a,c`: a sub-Installation that exports its own name, and imports those.
fn child(word: &str, configs: &[(&str, &str)]) -> Value {
    let (name, others) = word.split_once('<').unwrap_or((word, ""));
    let others: Vec<&str> = others.split(',').filter(|other| !other.is_empty()).collect();
    let config = configs.iter().find(|(of, _)| *of == name).map_or("{}", |(_, config)| config);
    let imports: Vec<Value> = others.iter().map(|other| json!({"name": other, "dataRef": other})).collect();
    json!({
        "apiVersion": "landscaper.gardener.cloud/v1alpha1", "kind": "InstallationTemplate", "name": name,
        "blueprint": {"filesystem": {"blueprint.yaml": link(name, &others, config)}},
        "imports": {"data": imports},
        "exports": {"data": [{"name": "out", "dataRef": name}]},
    })
}

/// A blueprint with these sub-Installations, which exports what the last one does.
fn parent(line: &str, configs: &[(&str, &str)]) -> String {
    let children: Vec<Value> = line.split_whitespace().map(|word| child(word, configs)).collect();
    let last = children.last().map(|child| child["name"].as_str().unwrap().to_owned()).unwrap_or_default();
    let mut blueprint = json!({
        "imports": [{"name": "base", "type": "data", "required": false}],
        "subinstallations": children,
    });
    if !last.is_empty() {
        blueprint["exports"] = json!([{"name": "all", "type": "data", "schema": {"type": "string"}}]);
        let template = format!("exports: {{all: '{{{{ index .dataobjects \"{last}\" }}}}'}}");
        blueprint["exportExecutions"] = json!([{"name": "x", "type": "GoTemplate", "template": template}]);
    }
    blueprint.to_string()
}

const CHAIN: &str = "b<a a c<b";

fn of(line: &str, configs: &[(&str, &str)]) -> Case {
    let exports = json!({"exports": {"data": [{"name": "all", "dataRef": "all"}]}});
    let spec = if line.is_empty() { json!({}) } else { exports };
    let mut case = case(&parent(line, configs), spec);
    operation(&mut case, "e", "reconcile");
    case
}

fn rewrite(case: &mut Case, line: &str, configs: &[(&str, &str)]) {
    let blueprint = json!({"inline": {"filesystem": {"blueprint.yaml": parent(line, configs)}}});
    let exports =
        if line.is_empty() { Value::Null } else { json!({"data": [{"name": "all", "dataRef": "all"}]}) };
    case.cluster.edit(&KIND, &key("e"), &json!({"spec": {"blueprint": blueprint, "exports": exports}}));
    operation(case, "e", "reconcile");
}

/// The name of the object of a sub-Installation of `e`.
fn object(case: &Case, name: &str) -> String {
    let found = case.cluster.world.list(&KIND, None).into_iter().find(|object| {
        object.annotation(annotations::SUBINSTALLATION_NAME) == Some(name)
            && object.controller().is_some_and(|owner| owner.name == "e")
    });
    found.unwrap_or_else(|| panic!("no sub-Installation {name}")).name().to_owned()
}

/// `a=Succeeded b=Failed`, by the names in the blueprint.
fn phases(case: &Case) -> String {
    let mut found: Vec<String> = Vec::new();
    for object in case.cluster.world.list(&KIND, None) {
        let Some(name) = object.annotation(annotations::SUBINSTALLATION_NAME) else { continue };
        found.push(format!("{name}={}", object.status()["phase"].as_str().unwrap_or("-")));
    }
    found.sort();
    found.join(" ")
}

/// The sub-Installations in the order in which they got this many-th job's ID, from a place in the record on.
fn order(case: &Case, names: &[(String, String)], from: usize) -> Vec<String> {
    let mut seen: Vec<(&str, &Value)> = Vec::new();
    let mut order = Vec::new();
    for (at, (key, status)) in case.cluster.statuses.iter().enumerate() {
        let Some((_, name)) = names.iter().find(|(object, _)| *object == key.name) else { continue };
        // An Execution has the name of its Installation: the Installation's own status comes first.
        if status["jobID"].is_null() || seen.contains(&(name, &status["jobID"])) {
            continue;
        }
        seen.push((name, &status["jobID"]));
        if at >= from {
            order.push(name.clone());
        }
    }
    order
}

fn names_of(case: &Case, names: &[&str]) -> Vec<(String, String)> {
    names.iter().map(|name| (object(case, name), (*name).to_owned())).collect()
}

fn delete(case: &mut Case, name: &str) {
    case.cluster.delete(&KIND, &key(name), "Background");
    case.settle();
}

fn is_clean(case: &Case) -> bool {
    [&KIND, &execution::KIND, &deploy_item::KIND, &data_object::KIND, &target::KIND]
        .into_iter()
        .all(|kind| case.cluster.world.list(kind, None).is_empty())
}

#[test]
fn sub_installations_with_data_flow() {
    let case = of(CHAIN, &[]);
    check(&case, "e", "Succeeded", "");
    assert_eq!(phases(&case), "a=Succeeded b=Succeeded c=Succeeded");
    assert_eq!(case.cluster.get(&data_object::KIND, &key("all")).unwrap()["data"], "a-b-c");
    let names = names_of(&case, &["a", "b", "c"]);
    assert_eq!(order(&case, &names, 0), ["a", "b", "c"], "each when its turn comes");
    let job = status(&case, "e")["jobID"].clone();
    for (object, name) in &names {
        assert_eq!(status(&case, object)["jobIDFinished"], job, "{name}: one job from the root down");
    }
    assert_eq!(status(&case, "e")["installationRefs"].as_array().unwrap().len(), 3);
}

#[test]
fn scoped_data_is_seen_in_its_scope_and_nowhere_else() {
    let mut case = of("a", &[]);
    put(
        &mut case,
        "f",
        &link("f", &["a"], "{}"),
        json!({"imports": {"data": [{"name": "a", "dataRef": "a"}]}}),
    );
    operation(&mut case, "f", "reconcile");
    check(&case, "f", "Failed", "ImportMissing");
    // Two of the same blueprint do not meet.
    let spec = json!({"exports": {"data": [{"name": "all", "dataRef": "all-2"}]}});
    put(&mut case, "g", &parent("a", &[]), spec);
    operation(&mut case, "g", "reconcile");
    check(&case, "g", "Succeeded", "");
    let scoped = case.cluster.world.list(&data_object::KIND, None);
    let contexts: Vec<&str> = scoped.iter().filter_map(|one| one.label(labels::DATA_CONTEXT)).collect();
    assert_eq!(contexts, ["e", "g"]);
}

#[test]
fn i6_what_comes_from_a_secret_reaches_a_grandchild_without_being_copied() {
    let leaf = json!({"name": "leaf", "blueprint": {"filesystem": {"blueprint.yaml":
        "imports: [{name: word, type: data, schema: {type: string}}]\ndeployExecutions:\n- {name: d, type: GoTemplate, \
         template: 'deployItems: [{name: \"{{ .imports.word | trunc 3 }}\", type: landscaper.gardener.cloud/mock}]'}"}},
        "imports": {"data": [{"name": "word", "dataRef": "middle"}]}});
    let middle = json!({"imports": [{"name": "middle", "type": "data"}], "subinstallations": [leaf]});
    let middle = json!({"name": "mid", "blueprint": {"filesystem": {"blueprint.yaml": middle.to_string()}},
        "imports": {"data": [{"name": "middle", "dataRef": "top"}]}});
    let top = json!({"imports": [{"name": "top", "type": "data"}], "subinstallations": [middle]}).to_string();
    let spec = json!({"imports": {"data": [{"name": "top", "secretRef": {"name": "s", "key": "k"}}]}});
    let mut case = case(&top, spec);
    // "not-a-real-one"
    case.cluster
        .put(json!({"kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "bm90LWEtcmVhbC1vbmU="}}));
    operation(&mut case, "e", "reconcile");
    check(&case, "e", "Succeeded", "");
    assert_eq!(case.phases(), "not=Succeeded");
    assert!(case.cluster.world.list(&data_object::KIND, None).is_empty());
    for installation in case.cluster.world.list(&KIND, None) {
        assert!(!installation.raw().to_string().contains("not-a-real-one"));
    }
}

#[test]
fn targets_are_handed_down_and_to_siblings() {
    let source = json!({"name": "source", "blueprint": {"filesystem": {"blueprint.yaml": json!({
        "exports": [{"name": "made", "type": "target", "targetType": "t"}],
        "exportExecutions": [{"name": "x", "type": "GoTemplate", "template": "exports: {made: {config: {a: 1}}}"}],
    }).to_string()}}, "exports": {"targets": [{"name": "made", "target": "made"}]}});
    let template = "deployItems:\n- {name: one, type: landscaper.gardener.cloud/mock, target: {import: given}}\n\
        - {name: two, type: landscaper.gardener.cloud/mock, target: {import: all, index: 1}}\n\
        - {name: three, type: landscaper.gardener.cloud/mock, target: {import: first}}\n";
    let sink = json!({"name": "sink", "blueprint": {"filesystem": {"blueprint.yaml": json!({
        "imports": [{"name": "given", "type": "target", "targetType": "t"}, {"name": "all", "type": "targetList"},
            {"name": "first", "type": "target"}],
        "deployExecutions": [{"name": "d", "type": "GoTemplate", "template": template}],
    }).to_string()}}, "imports": {"targets": [{"name": "given", "target": "made"},
        {"name": "all", "targetListRef": "clusters"}, {"name": "first", "target": "clusters[0]"}]}});
    let blueprint = json!({"imports": [{"name": "clusters", "type": "targetList"}],
        "subinstallations": [sink, source]})
    .to_string();
    let spec = json!({"imports": {"targets": [{"name": "clusters", "targets": ["t1", "t2"]}]}});
    let mut case = case(&blueprint, spec);
    for name in ["t1", "t2"] {
        case.cluster.put(json!({"kind": "Target", "metadata": {"name": name}, "spec": {"type": "t"}}));
    }
    operation(&mut case, "e", "reconcile");
    check(&case, "e", "Succeeded", "");
    let target_of = |name: &str| {
        let items = case.cluster.world.list(&deploy_item::KIND, None);
        let item = items.iter().find(|item| item.label(labels::NAME) == Some(name)).unwrap().raw().clone();
        item["spec"]["target"]["name"].as_str().unwrap().to_owned()
    };
    assert_eq!((target_of("two").as_str(), target_of("three").as_str()), ("t2", "t1"));
    let made = case.cluster.get(&target::KIND, &key(&target_of("one"))).unwrap();
    assert_eq!(made["spec"], json!({"type": "t", "config": {"a": 1}}));
}

#[test]
fn a_failed_sub_installation_stops_those_after_it_and_waits_for_those_that_run() {
    let mut case = of("a b<a c d", &[("a", "{phase: Failed}"), ("c", "{delay: 30s}")]);
    check(&case, "e", "Progressing", "");
    assert_eq!(phases(&case), "a=Failed b=- c=Progressing d=Succeeded");
    case.wait(std::time::Duration::from_secs(31));
    check(&case, "e", "Failed", "SubinstallationFailed");
    assert_eq!(phases(&case), "a=Failed b=- c=Succeeded d=Succeeded");
    let message = status(&case, "e")["lastError"]["message"].as_str().unwrap().to_owned();
    assert!(
        message.starts_with("sub-Installation a: ExecutionFailed: DeployItemFailed: 1 of 1"),
        "{message}"
    );
    rewrite(&mut case, "a b<a c d", &[]);
    check(&case, "e", "Succeeded", "");
}

#[test]
fn orphaned_sub_installations_go_in_reverse_before_anything_comes() {
    let mut case = of("a b<a c<b", &[]);
    let names = names_of(&case, &["a", "b", "c"]);
    let from = case.mark();
    rewrite(&mut case, "d", &[]);
    check(&case, "e", "Succeeded", "");
    assert_eq!(phases(&case), "d=Succeeded");
    assert_eq!(order(&case, &names, from), ["c", "b", "a"]);
    assert_eq!(case.phases(), "d=Succeeded", "their items are uninstalled");
    let passed: Vec<&Value> = case.cluster.statuses[from..]
        .iter()
        .filter(|(at, _)| *at == key("e"))
        .map(|(_, status)| &status["phase"])
        .collect();
    assert!(passed.contains(&&json!("CleanupOrphaned")), "{passed:?}");
    rewrite(&mut case, "", &[]);
    check(&case, "e", "Succeeded", "");
    assert_eq!(phases(&case), "", "the last one goes too");
    assert!(case.cluster.world.list(&data_object::KIND, None).is_empty(), "and what they exported");
}

#[test]
fn an_orphaned_sub_installation_that_cannot_go_fails_the_job_and_is_tried_again() {
    let mut case = of("a b", &[("a", "{failOnDelete: true}")]);
    rewrite(&mut case, "b", &[]);
    check(&case, "e", "Failed", "OrphanDeleteFailed");
    assert_eq!(phases(&case), "a=DeleteFailed b=Succeeded");
    let item = case.cluster.world.list(&deploy_item::KIND, None);
    let item = item.iter().find(|item| item.label(labels::NAME) == Some("a")).unwrap().key();
    case.cluster.edit(&deploy_item::KIND, &item, &json!({"spec": {"config": {"failOnDelete": false}}}));
    operation(&mut case, "e", "reconcile");
    check(&case, "e", "Succeeded", "");
    assert_eq!(phases(&case), "b=Succeeded");
}

#[test]
fn a_tree_is_taken_down_in_reverse_and_leaves_nothing() {
    let mut case = of("a b<a c<a d<b,c", &[]);
    let names = names_of(&case, &["a", "b", "c", "d"]);
    let from = case.mark();
    delete(&mut case, "e");
    assert_eq!(order(&case, &names, from), ["d", "b", "c", "a"]);
    assert!(is_clean(&case));
}

#[test]
fn a_tree_that_cannot_go_says_where_and_goes_later() {
    let mut case = of("a b<a", &[("b", "{failOnDelete: true}")]);
    delete(&mut case, "e");
    check(&case, "e", "DeleteFailed", "DeleteFailed");
    assert_eq!(phases(&case), "a=Succeeded b=DeleteFailed", "what b imports from stays");
    let wish = json!({"metadata": {"annotations": {annotations::DELETE_WITHOUT_UNINSTALL: "true"}}});
    case.cluster.edit(&KIND, &key("e"), &wish);
    operation(&mut case, "e", "reconcile");
    assert!(is_clean(&case), "without uninstalling, all of it goes");
}

#[test]
fn an_interrupt_reaches_what_runs_and_nothing_else_starts() {
    let mut case = of("a b<a c", &[("a", "{hang: true}")]);
    assert_eq!(phases(&case), "a=Progressing b=- c=Succeeded");
    operation(&mut case, "e", "interrupt");
    check(&case, "e", "Failed", "Interrupted");
    assert_eq!(phases(&case), "a=Failed b=- c=Succeeded");
    assert_eq!(status(&case, &object(&case, "a"))["lastError"]["reason"], "Interrupted");
    rewrite(&mut case, "a b<a c", &[]);
    check(&case, "e", "Succeeded", "");
}

#[test]
fn a_sub_installation_that_somebody_deletes_is_missed_and_made_anew() {
    let mut case = of("a b<a", &[("a", "{delay: 30s}")]);
    let name = object(&case, "b");
    delete(&mut case, &name);
    case.wait(std::time::Duration::from_secs(31));
    check(&case, "e", "Failed", "SubinstallationFailed");
    let message = status(&case, "e")["lastError"]["message"].as_str().unwrap().to_owned();
    assert_eq!(message, "sub-Installation b is being deleted");
    operation(&mut case, "e", "reconcile");
    case.wait(std::time::Duration::from_secs(31));
    check(&case, "e", "Succeeded", "");
    assert_eq!(phases(&case), "a=Succeeded b=Succeeded");
}

#[test]
fn only_the_root_starts_jobs() {
    let mut case = of("a", &[]);
    let name = object(&case, "a");
    let job = status(&case, &name)["jobID"].clone();
    operation(&mut case, &name, "reconcile");
    assert_eq!(status(&case, &name)["jobID"], job);
    assert!(case.cluster.events.iter().any(|(_, reason, _)| reason == "NotApplicable"));
}

#[test]
fn cycles_and_unknown_names_among_sub_installations_are_told_with_their_path() {
    for (line, told) in [
        ("a<b b<a", "a -> b -> a is a cycle"),
        (
            "a<nobody",
            "\"a\" imports the data \"nobody\", which the blueprint does not import and no sibling exports",
        ),
        ("a a", "\"a\" is there more than once"),
    ] {
        let mut case = of(line, &[]);
        check(&case, "e", "Failed", "BlueprintInvalid");
        let message = status(&case, "e")["lastError"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(told), "{line}: {message}");
        assert_eq!(phases(&case), "", "nothing is made");
        delete(&mut case, "e");
        assert!(is_clean(&case));
    }
}

#[test]
fn a_blueprint_that_renders_itself_ends() {
    let files = json!({"blueprint.yaml": json!({"subinstallationExecutions": [{"name": "t", "type": "GoTemplate",
        "template": "subinstallations:\n- name: again\n  blueprint:\n    filesystem: {{ toJson .blueprint.inline.filesystem }}\n"}]}).to_string()});
    let mut case = case("{}", json!({}));
    case.cluster.edit(&KIND, &key("e"), &json!({"spec": {"blueprint": {"inline": {"filesystem": files}}}}));
    operation(&mut case, "e", "reconcile");
    check(&case, "e", "Failed", "SubinstallationFailed");
    let message = status(&case, "e")["lastError"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("nested more than 8 deep"), "{message}");
    delete(&mut case, "e");
    assert!(is_clean(&case));
}

fn root(case: &mut Case, name: &str, imports: &[&str], config: &str) {
    let data: Vec<Value> = imports.iter().map(|import| json!({"name": import, "dataRef": import})).collect();
    let exports = json!({"data": [{"name": "out", "dataRef": name}]});
    put(case, name, &link(name, imports, config), json!({"imports": {"data": data}, "exports": exports}));
}

#[test]
fn a_root_waits_while_one_that_it_imports_from_is_at_work() {
    let mut case = of("", &[]);
    root(&mut case, "u", &[], "{delay: 30s}");
    root(&mut case, "v", &["u"], "{}");
    operation(&mut case, "u", "reconcile");
    operation(&mut case, "v", "reconcile");
    check(&case, "v", "Init", "");
    case.wait(std::time::Duration::from_secs(31));
    check(&case, "u", "Succeeded", "");
    check(&case, "v", "Succeeded", "");
    assert_eq!(case.cluster.get(&data_object::KIND, &key("v")).unwrap()["data"], "u-v");
    // Whom the end of u concerns: v, and only while it is at work.
    let u = case.cluster.world.get(&KIND, &key("u")).unwrap();
    assert!(siblings::of_the_sibling(&u, &case.cluster.world).is_empty());
    case.cluster.edit(&KIND, &key("v"), &json!({"status": {"jobID": "next"}}));
    assert_eq!(siblings::of_the_sibling(&u, &case.cluster.world), [key("v")]);
}

#[test]
fn an_import_that_is_missing_is_told_with_the_one_that_should_export_it() {
    let mut case = of("", &[]);
    root(&mut case, "u", &[], "{phase: Failed}");
    root(&mut case, "v", &["u"], "{}");
    operation(&mut case, "u", "reconcile");
    operation(&mut case, "v", "reconcile");
    check(&case, "v", "Failed", "ImportMissing");
    let message = status(&case, "v")["lastError"]["message"].as_str().unwrap().to_owned();
    assert_eq!(message, "import u: DataObject u is not there; exported by u, not yet with success");
}

#[test]
fn roots_that_import_from_each_other_are_told_their_circle_and_are_deletable() {
    let mut case = of("", &[]);
    root(&mut case, "u", &["w"], "{}");
    root(&mut case, "v", &["u"], "{}");
    root(&mut case, "w", &["v"], "{}");
    for name in ["u", "v", "w"] {
        operation(&mut case, name, "reconcile");
    }
    check(&case, "u", "Failed", "DependencyCycle");
    let message = |name: &str| status(&case, name)["lastError"]["message"].as_str().unwrap().to_owned();
    assert_eq!(message("u"), "the imports go in a circle: u -> w -> v -> u");
    assert_eq!(message("v"), "the imports go in a circle: v -> u -> w -> v");
    for name in ["e", "u", "v", "w"] {
        case.cluster.delete(&KIND, &key(name), "Background");
    }
    case.settle();
    assert!(is_clean(&case), "I5");
}

#[test]
fn a_root_that_is_deleted_with_those_that_import_from_it_goes_after_them() {
    let mut case = of("", &[]);
    root(&mut case, "u", &[], "{}");
    root(&mut case, "v", &["u"], "{hang: false}");
    operation(&mut case, "u", "reconcile");
    operation(&mut case, "v", "reconcile");
    check(&case, "v", "Succeeded", "");
    let item = case.cluster.world.list(&deploy_item::KIND, None);
    let item = item.iter().find(|item| item.label(labels::NAME) == Some("v")).unwrap().key();
    case.cluster.edit(&deploy_item::KIND, &item, &json!({"spec": {"config": {"hang": true}}}));
    for name in ["e", "u", "v"] {
        case.cluster.delete(&KIND, &key(name), "Background");
    }
    case.settle();
    check(&case, "u", "InitDelete", "");
    let v = case.cluster.world.get(&KIND, &key("v")).unwrap();
    case.cluster.edit(&deploy_item::KIND, &item, &json!({"spec": {"config": {"hang": false}}}));
    case.settle();
    assert!(is_clean(&case));
    root(&mut case, "u", &[], "{}");
    case.cluster.edit(&KIND, &key("u"), &json!({"metadata": {"finalizers": [FINALIZER]}}));
    case.cluster.delete(&KIND, &key("u"), "Background");
    assert_eq!(siblings::of_the_sibling(&v, &case.cluster.world), [key("u")], "its end concerns u");
}
