mod replay;

use super::*;
use crate::schema::builtin;
use proptest::prelude::*;
use serde_json::json;

fn thing() -> Schema {
    let text = json!({"type": "string"});
    let set = json!({"type": "array", "items": text, "x-kubernetes-list-type": "set"});
    let item = json!({"type": "object", "required": ["name"], "properties": {
        "name": text, "port": {"type": "integer"}, "tags": set}});
    let spec = json!({"type": "object", "properties": {
        "a": text, "n": {"type": "integer"}, "set": set,
        "map": {"type": "object", "additionalProperties": text},
        "fixed": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"x": text, "y": text}},
        "plain": {"type": "array", "items": text},
        "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": item},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }});
    Schema::compile(
        &json!({"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}}),
        "s",
    )
    .unwrap()
}

fn by(manager: &str, second: i64) -> Writer<'_> {
    let now = Timestamp::from_second(1_700_000_000 + second).unwrap();
    Writer { manager, api_version: "g/v1", subresource: "", resets: &["status"], now }
}

fn config(spec: Value) -> Value {
    json!({"apiVersion": "g/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec})
}

fn owners(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    entries
        .iter()
        .map(|e| format!("{} {}", e["manager"].as_str().unwrap(), e["operation"].as_str().unwrap()))
        .collect()
}

#[test]
fn conflicts_say_who_owns_what() {
    let schema = thing();
    let live = apply(None, &config(json!({"a": "1", "n": 1})), &schema, &by("one", 1), false).unwrap();
    let mut live = live;
    live["spec"]["n"] = json!(2);
    let mut written = live.clone();
    written["spec"]["n"] = json!(3);
    update(Some(&live), &mut written, &schema, &by("two", 2));
    let clash = apply(Some(&written), &config(json!({"a": "9", "n": 9})), &schema, &by("three", 3), false)
        .unwrap_err();
    let ApplyError::Conflicts(conflicts) = &clash else { panic!("{clash}") };
    let told: Vec<_> = conflicts.iter().map(|c| (c.message.as_str(), c.field.as_str())).collect();
    assert_eq!(told, [("conflict with \"one\"", ".spec.a"), ("conflict with \"two\" using g/v1", ".spec.n")]);
    let text = "Apply failed with 2 conflicts: conflicts with \"one\":\n- .spec.a\nconflicts with \"two\" using g/v1:\n- .spec.n";
    assert_eq!(clash.to_string(), text);
    let one = apply(Some(&written), &config(json!({"n": 9})), &schema, &by("three", 3), false).unwrap_err();
    assert_eq!(one.to_string(), "Apply failed with 1 conflict: conflict with \"two\" using g/v1: .spec.n");
}

#[test]
fn an_untracked_object_belongs_to_nobody_until_the_first_apply() {
    let schema = thing();
    let live = config(json!({"a": "1", "map": {"k": "v"}}));
    let new = apply(Some(&live), &config(json!({"n": 5})), &schema, &by("one", 1), false).unwrap();
    assert_eq!(owners(&new), ["one Apply", "before-first-apply Update"]);
    let clash = apply(Some(&live), &config(json!({"a": "2"})), &schema, &by("one", 1), false).unwrap_err();
    assert!(clash.to_string().contains("before-first-apply"), "{clash}");
}

#[test]
fn one_empty_entry_forgets_all_owners() {
    let schema = thing();
    let live = apply(None, &config(json!({"a": "1"})), &schema, &by("one", 1), false).unwrap();
    let mut new = live.clone();
    new["metadata"]["managedFields"] = json!([{}]);
    update(Some(&live), &mut new, &schema, &by("two", 2));
    assert_eq!(owners(&new), Vec::<String>::new());
    // An absent list forgets nothing: clients that do not know the field must not erase it.
    let mut new = live.clone();
    new["metadata"].as_object_mut().unwrap().remove("managedFields");
    update(Some(&live), &mut new, &schema, &by("two", 2));
    assert_eq!(new, live);
}

#[test]
fn old_updaters_beyond_ten_become_one() {
    let schema = thing();
    let mut live = config(json!({"map": {}}));
    update(None, &mut live, &schema, &by("m00", 0));
    for i in 1..=12 {
        let mut new = live.clone();
        new["spec"]["map"][format!("k{i}")] = json!("v");
        update(Some(&live), &mut new, &schema, &by(&format!("m{i:02}"), i));
        live = new;
    }
    let owners = owners(&live);
    assert_eq!(owners.len(), 10, "{owners:?}");
    assert_eq!(owners[0], "ancient-changes Update");
    assert_eq!(owners[9], "m12 Update");
    let ancient = &live["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:map"];
    assert!(ancient.get("f:k1").is_some() && ancient.get("f:k2").is_some(), "{ancient}");
}

#[test]
fn a_configuration_that_does_not_fit_is_refused_with_its_paths() {
    let schema = thing();
    for (config, part) in [
        (config(json!({"nope": 1})), ".spec.nope: field not declared in schema"),
        (config(json!({"n": "x"})), ".spec.n: expected numeric (int or float), got \"x\""),
        (config(json!({"set": ["x", "x"]})), ".spec.set: duplicate entries for key [=\"x\"]"),
        (config(json!({"items": [{"port": 1}]})), ".spec.items: element 0: associative list"),
    ] {
        let error = apply(None, &config, &schema, &by("one", 1), true).unwrap_err();
        assert!(matches!(error, ApplyError::Misfit { .. }) && error.to_string().contains(part), "{error}");
    }
    let mut versioned = config(json!({}));
    versioned["apiVersion"] = json!("g/v2");
    let error = apply(None, &versioned, &schema, &by("one", 1), true).unwrap_err();
    assert!(matches!(error, ApplyError::BadRequest(_)), "{error}");
    let mut managed = config(json!({}));
    managed["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    assert!(matches!(apply(None, &managed, &schema, &by("one", 1), true), Err(ApplyError::BadRequest(_))));
}

#[test]
fn built_in_lists_are_owned_by_their_keys() {
    let schema = builtin("apps", "v1", "Deployment").unwrap();
    let writer = Writer { api_version: "apps/v1", ..by("one", 1) };
    let config = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "labels": {"l": "1"}}, "spec": {
        "replicas": 3, "selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [
            {"name": "web", "image": "nginx:1", "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "1"}]}]}}}});
    let object = apply(None, &config, &schema, &writer, false).unwrap();
    let want = json!({"f:metadata": {"f:labels": {"f:l": {}}}, "f:spec": {
    "f:replicas": {}, "f:selector": {},
    "f:template": {"f:metadata": {"f:labels": {"f:app": {}}}, "f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {
        ".": {}, "f:name": {}, "f:image": {},
        "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
        "f:env": {"k:{\"name\":\"A\"}": {".": {}, "f:name": {}, "f:value": {}}},
    }}}}}});
    assert_eq!(object["metadata"]["managedFields"][0]["fieldsV1"], want);
}

#[test]
fn a_list_that_became_one_piece_is_owned_as_one_piece() {
    let live = apply(None, &config(json!({"set": ["x", "y"]})), &thing(), &by("one", 1), false).unwrap();
    let list = json!({"type": "array", "items": {"type": "string"}});
    let spec = json!({"type": "object", "properties": {"set": list}});
    let now = Schema::compile(&json!({"type": "object", "properties": {"spec": spec}}), "s").unwrap();
    let clash = apply(Some(&live), &config(json!({"set": ["z"]})), &now, &by("two", 2), false).unwrap_err();
    assert_eq!(clash.to_string(), "Apply failed with 1 conflict: conflict with \"one\": .spec.set");
    let mine = apply(Some(&live), &config(json!({"set": ["z"]})), &now, &by("one", 2), false).unwrap();
    assert_eq!(mine["spec"]["set"], json!(["z"]));
}

#[test]
fn what_is_preserved_is_owned_field_by_field() {
    let object = apply(
        None,
        &config(json!({"free": {"x": {"y": 1}, "l": [{"z": 1}]}})),
        &thing(),
        &by("one", 1),
        false,
    );
    let fields = &object.unwrap()["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:free"];
    assert_eq!(*fields, json!({"f:l": {}, "f:x": {".": {}, "f:y": {}}}));
}

fn word() -> impl Strategy<Value = String> {
    "[p-s]"
}

prop_compose! {
    fn spec()(
        a in prop::option::of(word()), n in prop::option::of(0..4_i64),
        map in prop::option::of(prop::collection::btree_map(word(), word(), 0..3)),
        set in prop::option::of(prop::collection::btree_set(word(), 0..4)),
        plain in prop::option::of(prop::collection::vec(word(), 0..3)),
        fixed in prop::option::of(prop::collection::btree_map("[xy]", word(), 0..2)),
        items in prop::option::of(prop::collection::btree_map("[i-k]", (prop::option::of(0..3_i64), prop::collection::btree_set(word(), 1..3)), 0..3)),
    ) -> Value {
        let items = items.map(|items| items.into_iter().map(|(name, (port, tags))| {
            let mut item = json!({"name": name, "tags": tags});
            if let Some(port) = port {
                item["port"] = json!(port);
            }
            item
        }).collect::<Vec<_>>());
        let mut spec = json!({"a": a, "n": n, "map": map, "set": set, "plain": plain, "fixed": fixed, "items": items});
        spec.as_object_mut().unwrap().retain(|_, v| !v.is_null());
        spec
    }
}

proptest! {
    #[test]
    fn applying_the_same_again_changes_nothing(first in spec(), second in spec()) {
        let schema = thing();
        let live = apply(None, &config(first), &schema, &by("one", 1), true).unwrap();
        let once = apply(Some(&live), &config(second.clone()), &schema, &by("two", 2), true).unwrap();
        let twice = apply(Some(&once), &config(second), &schema, &by("two", 3), false).unwrap();
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn giving_up_removes_only_what_nobody_else_owns(mine in spec(), theirs in spec()) {
        let schema = thing();
        let ty = Type::resource(schema.root());
        let live = apply(None, &config(mine.clone()), &schema, &by("one", 1), true).unwrap();
        let live = apply(Some(&live), &config(theirs.clone()), &schema, &by("two", 2), true).unwrap();
        let alone = apply(Some(&live), &config(json!({})), &schema, &by("one", 3), false).unwrap();
        let left = extract::fields(ty, &without_managed_fields(&alone));
        let kept = extract::fields(ty, &config(theirs));
        let in_spec = |set: FieldSet| set.paths().into_iter().filter(|p| p.starts_with(".spec.")).collect::<Vec<_>>();
        prop_assert_eq!(in_spec(kept.difference(&left)), Vec::<String>::new(), "lost");
        let given_up = extract::fields(ty, &config(mine)).difference(&kept);
        prop_assert_eq!(in_spec(given_up.intersection(&left)), Vec::<String>::new(), "still there");
    }

    #[test]
    fn without_force_nobody_loses_a_field(mine in spec(), theirs in spec()) {
        let schema = thing();
        let live = apply(None, &config(mine.clone()), &schema, &by("one", 1), true).unwrap();
        let before = Managed::decode(&live).unwrap();
        if let Ok(new) = apply(Some(&live), &config(theirs), &schema, &by("two", 2), false) {
            let after = Managed::decode(&new).unwrap();
            for (owner, owned) in &before.0 {
                prop_assert_eq!(after.0.get(owner).map(|o| &o.fields), Some(&owned.fields));
            }
        }
    }

    #[test]
    fn no_configuration_panics(name in "\\PC{0,8}", spec in spec(), junk in "\\PC{0,8}") {
        let mut odd = config(spec);
        odd["spec"][name] = json!([{"name": junk}, null, 1]);
        odd["spec"]["items"] = json!([null, 3, {"name": null}]);
        let _ = apply(None, &odd, &thing(), &by("one", 1), true);
        let mut new = odd.clone();
        update(Some(&config(json!({"items": [1]}))), &mut new, &thing(), &by("two", 2));
    }
}
