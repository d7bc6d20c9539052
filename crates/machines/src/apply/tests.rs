use http::Method;

use super::*;
use serde_json::json;

const JOB: Kind = Kind::of("batch", "v1", "Job", "jobs", true);
const WORKFLOW: Kind = Kind::of("terrakojo.io", "v1alpha1", "Workflow", "workflows", true);

fn about() -> Arc<Object> {
    let raw = json!({"metadata": {"name": "w", "namespace": "n", "uid": "u1", "resourceVersion": "7",
        "finalizers": ["theirs"]}, "status": {"phase": "Pending", "old": 1}});
    Object::new(WORKFLOW, raw).unwrap()
}

fn applying(steps: Vec<Step>, notes: Vec<Note>, status: Option<Value>) -> Applying {
    let about = about();
    let plan = BoundPlan {
        machine: "workflow",
        basis: about.reference(),
        resource_version: "7".into(),
        fenced: false,
        in_any_order: false,
        steps,
        notes,
        status,
        asks: vec![],
        wake: crate::plan::Wake::OnChange,
    };
    let mut applying = Applying::new(plan, about, Timestamp::UNIX_EPOCH);
    // Most tests are about what follows the look at the object itself.
    if matches!(applying.tasks.front(), Some(Task::ConfirmBasis)) {
        applying.ask().unwrap();
        ok(&mut applying, &json!({"kind": "Workflow", "metadata": {"resourceVersion": "7"}}));
    }
    applying
}

fn create() -> Step {
    let manifest = json!({"metadata": {"name": "w", "namespace": "n"}});
    Step::Create { kind: JOB, manifest, adopt: Adopt::ControlledBy("u1".into()) }
}

fn ok(applying: &mut Applying, body: &Value) {
    applying.answer(Answer::Received { code: 200, retry_after: None, body: body.to_string().as_bytes() });
}

fn refused(applying: &mut Applying, code: u16, reason: &str) {
    let body = json!({"kind": "Status", "reason": reason, "message": "because"}).to_string();
    applying.answer(Answer::Received { code, retry_after: None, body: body.as_bytes() });
}

fn line(request: &Request<Vec<u8>>) -> String {
    format!("{} {}", request.method(), request.uri())
}

fn body(request: &Request<Vec<u8>>) -> Value {
    serde_json::from_slice(request.body()).unwrap()
}

#[test]
fn steps_come_before_events_and_events_before_the_status() {
    let mut applying = applying(
        vec![Step::add_finalizer("ours"), create()],
        vec![Note::normal("Created", "made a Job")],
        Some(json!({"phase": "Running"})),
    );
    let finalizer = applying.ask().unwrap();
    assert_eq!(
        body(&finalizer)["metadata"],
        json!({"finalizers": ["theirs", "ours"], "resourceVersion": "7"})
    );
    ok(&mut applying, &json!({"kind": "Workflow", "metadata": {"uid": "u1", "resourceVersion": "8"}}));
    assert_eq!(line(&applying.ask().unwrap()), "POST /apis/batch/v1/namespaces/n/jobs?fieldManager=pawl");
    ok(&mut applying, &json!({"kind": "Job", "metadata": {"uid": "j1", "resourceVersion": "9"}}));
    assert!(line(&applying.ask().unwrap()).starts_with("POST /apis/events.k8s.io/v1/namespaces/n/events"));
    ok(&mut applying, &json!({"kind": "Event", "metadata": {}}));
    let status = applying.ask().unwrap();
    assert!(line(&status).contains("/workflows/w/status"));
    // Our own finalizer write moved the version that the status is swapped against.
    assert_eq!(
        body(&status),
        json!({"metadata": {"resourceVersion": "8"}, "status": {"phase": "Running", "old": null}})
    );
    ok(&mut applying, &json!({"kind": "Workflow", "metadata": {"uid": "u1", "resourceVersion": "10"}}));
    assert!(applying.ask().is_none());
    let outcome = applying.finish();
    assert_eq!(
        outcome.writes.iter().map(|w| w.resource_version.as_str()).collect::<Vec<_>>(),
        ["8", "9", "10"]
    );
    assert!(outcome.failure.is_none() && outcome.refusals.is_empty());
}

#[test]
fn i1_a_taken_name_is_adopted_only_from_ourselves() {
    let owned_by = |uid: &str| {
        json!({"kind": "Job", "metadata": {"name": "w", "uid": "j", "resourceVersion": "5",
            "ownerReferences": [{"uid": uid, "controller": true}]}})
    };
    let mut ours = applying(vec![create()], vec![], None);
    ours.ask().unwrap();
    refused(&mut ours, 409, "AlreadyExists");
    assert_eq!(line(&ours.ask().unwrap()), "GET /apis/batch/v1/namespaces/n/jobs/w");
    ok(&mut ours, &owned_by("u1"));
    assert!(ours.ask().is_none());
    assert_eq!(ours.finish().writes[0].uid, "j");

    let mut theirs = applying(vec![create()], vec![], Some(json!({"phase": "Running"})));
    theirs.ask().unwrap();
    refused(&mut theirs, 409, "AlreadyExists");
    theirs.ask().unwrap();
    ok(&mut theirs, &owned_by("somebody"));
    assert!(theirs.ask().is_none(), "nothing follows a refusal, least of all the status");
    assert_eq!(theirs.finish().refusals[0].failure.reason, "OwnershipMismatch");
}

#[test]
fn children_are_made_and_removed_only_while_the_object_is_as_it_was_decided_on() {
    let about = about();
    let plan = |step| BoundPlan {
        machine: "workflow",
        basis: about.reference(),
        resource_version: "7".into(),
        fenced: false,
        in_any_order: false,
        steps: vec![step],
        notes: vec![],
        status: None,
        asks: vec![],
        wake: crate::plan::Wake::OnChange,
    };
    let start = |step| Applying::new(plan(step), Arc::clone(&about), Timestamp::UNIX_EPOCH);
    let delete = |uid: &str, version: Option<&str>| Step::Delete {
        target: Reference { kind: WORKFLOW, key: about.key(), uid: uid.into() },
        resource_version: version.map(str::to_owned),
        propagation: Propagation::Background,
    };
    for step in [create(), delete("another", None), delete("u1", None)] {
        let mut applying = start(step);
        assert!(line(&applying.ask().unwrap()).starts_with("GET /apis/terrakojo.io"));
        ok(&mut applying, &json!({"kind": "Workflow", "metadata": {"resourceVersion": "8"}}));
        assert!(applying.ask().is_none());
        assert_eq!(applying.finish().failure.unwrap().reason, "Outdated");
    }
    // The server itself compares these.
    for step in [delete("u1", Some("7")), Step::add_finalizer("ours")] {
        assert_ne!(start(step).ask().unwrap().method(), Method::GET);
    }
}

#[test]
fn a_child_that_is_on_its_way_out_is_not_adopted() {
    let mut applying = applying(vec![create()], vec![], None);
    applying.ask().unwrap();
    refused(&mut applying, 409, "AlreadyExists");
    applying.ask().unwrap();
    ok(
        &mut applying,
        &json!({"kind": "Job", "metadata": {"deletionTimestamp": "x",
        "ownerReferences": [{"uid": "u1", "controller": true}]}}),
    );
    assert_eq!(applying.finish().failure.unwrap().category, Category::Conflict);
}

#[test]
fn a_status_that_says_the_same_is_not_written() {
    let mut applying = applying(vec![], vec![], Some(json!({"phase": "Pending", "old": 1})));
    assert!(applying.is_idle() && applying.ask().is_none());
}

#[test]
fn a_lost_answer_stops_the_plan_and_a_lost_event_does_not() {
    let mut create_lost = applying(vec![create()], vec![], Some(json!({"phase": "Running"})));
    create_lost.ask().unwrap();
    create_lost.answer(Answer::Lost("connection reset"));
    assert!(create_lost.ask().is_none());
    assert_eq!(create_lost.finish().failure.unwrap().category, Category::Transient);

    let mut note_lost = applying(vec![], vec![Note::normal("A", "b")], Some(json!({"phase": "Running"})));
    note_lost.ask().unwrap();
    note_lost.answer(Answer::Lost("connection reset"));
    assert!(note_lost.ask().is_some());
    assert_eq!(note_lost.finish().lost_notes, 1);
}

#[test]
fn an_event_has_the_same_name_when_it_is_said_again() {
    let event = |note: Note| {
        let request = applying(vec![], vec![note], None).ask().unwrap();
        body(&request)["metadata"]["name"].as_str().unwrap().to_owned()
    };
    let said = Note::normal("A", "b");
    assert_eq!(event(said.clone()), event(said.clone()));
    assert_ne!(event(said.clone()), event(said.once("2")));
}

#[test]
fn a_delete_names_the_uid_and_gone_is_done() {
    let target = Reference { kind: JOB, key: Key::new(Some("n"), "w"), uid: "j".into() };
    let delete =
        Step::Delete { target: target.clone(), resource_version: None, propagation: Propagation::Foreground };
    let confirm = Step::confirm_gone(Reference { uid: "owner".into(), ..target });
    let mut applying1 = applying(vec![confirm.clone(), delete.clone()], vec![], None);
    assert!(line(&applying1.ask().unwrap()).starts_with("GET"));
    refused(&mut applying1, 404, "NotFound");
    let request = applying1.ask().unwrap();
    assert_eq!(body(&request)["preconditions"], json!({"uid": "j"}));
    refused(&mut applying1, 404, "NotFound");
    assert!(applying1.finish().failure.is_none());

    let mut still_there = applying(vec![confirm, delete], vec![], None);
    still_there.ask().unwrap();
    ok(&mut still_there, &json!({"kind": "Job", "metadata": {"uid": "owner"}}));
    assert!(still_there.ask().is_none());
    assert_eq!(still_there.finish().failure.unwrap().reason, "StillThere");
}

#[test]
fn nothing_is_said_of_an_object_whose_last_finalizer_was_taken() {
    let mut applying =
        applying(vec![Step::remove_finalizer("theirs")], vec![], Some(json!({"phase": "Running"})));
    let request = applying.ask().unwrap();
    assert_eq!(body(&request)["metadata"]["finalizers"], json!([]));
    refused(&mut applying, 404, "NotFound");
    assert!(applying.ask().is_none());
    assert!(applying.finish().failure.is_none());
}

#[test]
fn an_answer_that_is_no_kubernetes_answer_changes_nothing() {
    let mut applying = applying(vec![create()], vec![], None);
    applying.ask().unwrap();
    applying.answer(Answer::Received { code: 200, retry_after: None, body: b"<html>login</html>" });
    let outcome = applying.finish();
    assert!(outcome.writes.is_empty());
    assert_eq!(outcome.failure.unwrap().category, Category::Transient);
}

#[test]
fn differences_are_minimal_and_nulls_remove() {
    let table = [
        (json!({"a": 1, "b": {"c": 2}}), json!({"a": 1, "b": {"c": 3}}), Some(json!({"b": {"c": 3}}))),
        (json!({"a": 1}), json!({}), Some(json!({"a": null}))),
        (json!({"a": [1, 2]}), json!({"a": [1]}), Some(json!({"a": [1]}))),
        (json!(null), json!({}), None),
        (json!(null), json!({"a": 1}), Some(json!({"a": 1}))),
    ];
    for (old, new, expected) in table {
        assert_eq!(difference(&old, &new), expected, "{old} -> {new}");
    }
}

#[test]
fn a_name_that_must_be_new_is_a_conflict_when_it_is_taken() {
    let Step::Create { kind, manifest, .. } = create() else { panic!() };
    let mut applying = applying(vec![Step::Create { kind, manifest, adopt: Adopt::Never }], vec![], None);
    applying.ask().unwrap();
    refused(&mut applying, 409, "AlreadyExists");
    assert!(applying.ask().is_none(), "it is not even read");
    assert_eq!(applying.finish().failure.unwrap().category, Category::Conflict);
}

#[test]
fn an_absence_is_confirmed_by_uid_or_by_name() {
    let answers = |uid: &str, found: Option<&str>| {
        let gone = Reference { kind: JOB, key: Key::new(Some("n"), "w"), uid: uid.into() };
        let mut applying =
            applying(vec![Step::confirm_gone(gone)], vec![], Some(json!({"phase": "Running"})));
        applying.ask().unwrap();
        match found {
            Some(uid) => ok(&mut applying, &json!({"kind": "Job", "metadata": {"uid": uid}})),
            None => refused(&mut applying, 404, "NotFound"),
        }
        applying.ask().is_some()
    };
    for (uid, found, goes_on) in [
        ("j", None, true),
        ("j", Some("another"), true),
        ("j", Some("j"), false),
        ("", None, true),
        ("", Some("any"), false),
    ] {
        assert_eq!(answers(uid, found), goes_on, "{uid:?} {found:?}");
    }
}

#[test]
fn a_namespace_is_finalized_with_all_of_its_metadata_and_no_status_follows() {
    const NAMESPACE: Kind = Kind::of("", "v1", "Namespace", "namespaces", false);
    let raw = json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}},
        "spec": {"finalizers": ["kubernetes", "theirs"]}});
    let about = Object::new(NAMESPACE, raw).unwrap();
    let plan = BoundPlan {
        machine: "namespace",
        basis: about.reference(),
        resource_version: "7".into(),
        fenced: false,
        in_any_order: false,
        steps: vec![Step::Finalizer(FinalizerChange::ReplaceInSpec(vec!["theirs".into()]))],
        notes: vec![],
        status: Some(json!({"phase": "Terminating"})),
        asks: vec![],
        wake: crate::plan::Wake::OnChange,
    };
    let mut applying = Applying::new(plan, about, Timestamp::UNIX_EPOCH);
    let request = applying.ask().unwrap();
    assert_eq!(line(&request), "PUT /api/v1/namespaces/n/finalize");
    let sent = body(&request);
    assert_eq!((&sent["kind"], &sent["spec"]["finalizers"]), (&json!("Namespace"), &json!(["theirs"])));
    assert_eq!(
        (&sent["metadata"]["labels"]["a"], &sent["metadata"]["resourceVersion"]),
        (&json!("b"), &json!("7"))
    );
    ok(&mut applying, &sent);
    assert!(applying.ask().is_none());
}

#[test]
fn a_used_up_quota_is_told_to_the_next_decision() {
    let mut applying = applying(vec![create()], vec![], None);
    applying.ask().unwrap();
    let full =
        json!({"kind": "Status", "reason": "Forbidden", "message": "exceeded quota: jobs"}).to_string();
    applying.answer(Answer::Received { code: 403, retry_after: None, body: full.as_bytes() });
    let outcome = applying.finish();
    assert!(outcome.failure.is_none() && outcome.refusals[0].failure.is_quota());
}

#[test]
fn a_patch_of_another_object_names_the_uid_and_the_version_that_were_read() {
    let target = Reference { kind: JOB, key: Key::new(Some("n"), "w"), uid: "j".into() };
    let step = Step::Patch {
        target,
        resource_version: Some("5".into()),
        patch: json!({"metadata": {"labels": {"a": "b"}}}),
        part: Part::Main,
    };
    let mut applying = applying(vec![step], vec![], None);
    let metadata = body(&applying.ask().unwrap())["metadata"].clone();
    assert_eq!(metadata, json!({"labels": {"a": "b"}, "uid": "j", "resourceVersion": "5"}));
}

#[test]
fn that_none_is_left_is_asked_of_the_server_by_label() {
    let step = || {
        Step::Confirm(Precondition::NoneLabelled {
            kind: crate::testing::CONFIG_MAP,
            namespace: Some("n".to_owned()),
            label: "example.com/of",
            value: "a".to_owned(),
        })
    };
    let mut none = applying(vec![step()], vec![], None);
    let asked = none.ask().unwrap();
    assert_eq!(
        line(&asked),
        "GET /api/v1/namespaces/n/configmaps?labelSelector=example.com%2Fof%3Da&limit=1"
    );
    assert!(asked.headers()[http::header::ACCEPT].to_str().unwrap().contains("PartialObjectMetadata"));
    ok(&mut none, &json!({"kind": "ConfigMapList", "items": []}));
    assert!(none.ask().is_none() && none.finish().failure.is_none());
    let mut some = applying(vec![step()], vec![], None);
    some.ask().unwrap();
    ok(&mut some, &json!({"kind": "ConfigMapList", "items": [{"metadata": {"name": "x"}}]}));
    assert_eq!(some.finish().failure.unwrap().category, Category::Conflict);
}

#[test]
fn an_object_is_applied_by_its_name_with_our_field_manager() {
    let manifest = json!({"metadata": {"name": "x", "namespace": "n"}, "data": {"k": "v"}});
    let apply = Step::Apply { kind: crate::testing::CONFIG_MAP, manifest, force: true };
    // Only while the object is as it was decided on; the test's own `applying` has answered that.
    assert!(needs_confirmed_basis(&about(), std::slice::from_ref(&apply)));
    let mut applying = applying(vec![apply], vec![], None);
    let asked = applying.ask().unwrap();
    assert_eq!(line(&asked), "PATCH /api/v1/namespaces/n/configmaps/x?fieldManager=pawl-deployer&force=true");
    assert_eq!(asked.headers()[http::header::CONTENT_TYPE], "application/apply-patch+yaml");
    assert_eq!(
        (body(&asked)["kind"].as_str(), body(&asked)["apiVersion"].as_str()),
        (Some("ConfigMap"), Some("v1"))
    );
    ok(&mut applying, &json!({"kind": "ConfigMap", "metadata": {"uid": "u", "resourceVersion": "9"}}));
    assert_eq!(applying.finish().writes[0].resource_version, "9");
}

fn in_any_order(steps: Vec<Step>) -> Applying {
    Applying { in_any_order: true, ..applying(steps, vec![], None) }
}

#[test]
fn children_are_made_side_by_side_and_what_follows_waits_for_all_of_them() {
    let child = |name: &str| Step::Create {
        kind: JOB,
        manifest: json!({"metadata": {"name": name, "namespace": "n"}}),
        adopt: Adopt::ControlledBy("u1".into()),
    };
    let gone = Reference { kind: JOB, key: Key::new(Some("n"), "z"), uid: String::new() };
    let steps = vec![child("a"), child("b"), Step::confirm_gone(gone), child("c")];
    let mut applying = in_any_order(steps);
    let made = |uid: &str| json!({"kind": "Job", "metadata": {"uid": uid, "resourceVersion": "8"}});
    assert_eq!(
        (applying.ask().unwrap().method(), applying.ask().unwrap().method()),
        (&Method::POST, &Method::POST)
    );
    assert!(applying.ask().is_none());
    ok(&mut applying, &made("a"));
    assert!(applying.ask().is_none(), "b is not answered yet");
    ok(&mut applying, &made("b"));
    assert_eq!(applying.ask().unwrap().method(), Method::GET);
    assert!(applying.ask().is_none());
    applying.answer(Answer::Received { code: 404, retry_after: None, body: b"{}" });
    assert_eq!(applying.ask().unwrap().method(), Method::POST);
    applying.answer(Answer::Lost("the line was cut"));
    assert!(applying.ask().is_none());
    let Outcome { writes, failure, .. } = applying.finish();
    let written: Vec<(String, String)> = writes.into_iter().map(|one| (one.key.name, one.uid)).collect();
    assert_eq!(written, [("a".to_owned(), "a".to_owned()), ("b".to_owned(), "b".to_owned())]);
    assert!(failure.is_some());
}

#[test]
fn after_a_failure_nothing_new_is_asked_and_what_was_made_beside_it_is_known() {
    let child = |name: &str| Step::Create {
        kind: JOB,
        manifest: json!({"metadata": {"name": name, "namespace": "n"}}),
        adopt: Adopt::ControlledBy("u1".into()),
    };
    let mut one_by_one = applying(vec![child("a"), child("b")], vec![], None);
    assert!(
        one_by_one.ask().is_some() && one_by_one.ask().is_none(),
        "nobody said that their order does not matter"
    );
    let mut applying = in_any_order(vec![child("a"), child("b"), child("c")]);
    assert!(applying.ask().is_some() && applying.ask().is_some());
    applying.answer(Answer::Lost("the line was cut"));
    assert!(applying.ask().is_none());
    ok(&mut applying, &json!({"kind": "Job", "metadata": {"uid": "b", "resourceVersion": "8"}}));
    let Outcome { writes, failure, .. } = applying.finish();
    assert_eq!((writes.len(), failure.is_some()), (1, true));
}
