mod interleavings;

use super::*;
use crate::deploy::testing::{Case, key};
use crate::testing::Cluster;
use crate::view::Input;
use pawl_api::deploy::DeployItem;
use pawl_api::deploy::execution::MAX_EXPORT_BYTES;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const DIAMOND: &str = "a b<a c<a d<b,c";

fn done(line: &str) -> Case {
    let mut case = Case::of(line, &[]);
    case.settle().reconcile().check("Succeeded", "");
    case
}

fn fails() -> Value {
    json!({"phase": "Failed"})
}

fn hangs() -> Value {
    json!({"hang": true})
}

#[test]
fn linear_3() {
    let case = done("a b<a c<b");
    assert_eq!(case.triggered(0), ["a", "b", "c"]);
    assert_eq!(case.phases(), "a=Succeeded b=Succeeded c=Succeeded");
    let status = &case.execution().unwrap()["status"];
    assert_eq!(status["jobID"], status["jobIDFinished"]);
    assert_eq!(status["items"]["succeeded"], 3);
    assert_eq!(status["conditions"][0]["status"], "True");
    let told: Vec<&str> = case.cluster.events.iter().map(|(_, reason, _)| reason.as_str()).collect();
    for reason in ["JobStarted", "Progressing", "Completed", "JobFinished"] {
        assert!(told.contains(&reason), "{reason} in {told:?}");
    }
}

#[test]
fn diamond() {
    let case = done(DIAMOND);
    assert_eq!(case.triggered(0), ["a", "b", "c", "d"]);
}

#[test]
fn fan_out_50_and_wide_then_join() {
    let names: Vec<String> = (0..50).map(|at| format!("i{at:02}")).collect();
    let line = format!("{} join<{}", names.join(" "), names.join(","));
    let case = done(&line);
    let order = case.triggered(0);
    assert_eq!((order.len(), order[50].as_str()), (51, "join"));
}

#[test]
fn a_settled_execution_writes_nothing_i12() {
    let mut case = done(DIAMOND);
    let before = case.mark();
    case.wait(Duration::from_hours(1));
    assert_eq!(case.mark(), before);
}

#[test]
fn i1_items_are_named_labelled_and_controlled_and_written_only_when_they_differ() {
    let mut case = done("a b<a");
    let item = case.item("b").unwrap();
    assert_eq!(item["metadata"]["labels"]["execution.landscaper.gardener.cloud/managed-by"], "e");
    assert_eq!(item["metadata"]["labels"]["execution.landscaper.gardener.cloud/name"], "b");
    assert_eq!(item["metadata"]["ownerReferences"][0]["uid"], "execution-e");
    assert_eq!(item["metadata"]["annotations"]["pawl.dev/depends-on"], "[\"a\"]");
    let generation = item["metadata"]["generation"].clone();
    case.reconcile();
    assert_eq!(case.item("b").unwrap()["metadata"]["generation"], generation);
}

#[test]
fn no_items_succeeds() {
    done("");
}

#[test]
fn rewire_edges_in_a_second_job() {
    let mut case = done("a b<a c<b");
    let from = case.mark();
    case.set_items("a<b b<c c", &[]).reconcile().check("Succeeded", "");
    assert_eq!(case.triggered(from), ["c", "b", "a"]);
}

#[test]
fn same_spec_new_job_reruns() {
    let mut case = done(DIAMOND);
    let from = case.mark();
    case.reconcile().check("Succeeded", "");
    assert_eq!(case.triggered(from), ["a", "b", "c", "d"]);
}

#[test]
fn spec_change_alone_does_nothing() {
    let mut case = done("a");
    let from = case.mark();
    case.set_items("a b", &[]).settle();
    assert_eq!(case.mark(), from);
    assert!(case.item("b").is_none());
}

#[test]
fn update_on_change_only_skips_until_something_changes() {
    let mut case = Case::of("a", &[]);
    case.edit(
        json!({"spec": {"deployItems": [{"name": "a", "type": types::MOCK, "updateOnChangeOnly": true}]}}),
    );
    case.settle().reconcile().check("Succeeded", "");
    let from = case.mark();
    case.reconcile().check("Succeeded", "");
    let passed: Vec<&Value> = case.cluster.statuses[from..]
        .iter()
        .filter(|(key, _)| *key == case.item_key("a"))
        .map(|(_, status)| &status["phase"])
        .collect();
    assert_eq!(passed, ["Succeeded", "Succeeded"], "triggered, and passed by");
    let item = case.item("a").unwrap();
    assert_eq!(item["status"]["conditions"][0]["reason"], "UpToDate");
    assert_eq!(item["status"]["jobID"], item["status"]["jobIDFinished"]);
}

#[test]
fn fail_in_the_middle_stops_downstream() {
    let mut case = Case::of("a b<a c<b", &[("b", fails())]);
    case.settle().reconcile().check("Failed", "DeployItemFailed");
    assert_eq!(case.phases(), "a=Succeeded b=Failed c=-");
    assert_eq!(case.message(), "1 of 3 items failed: b: DeployerFailed: it was told to fail");
}

#[test]
fn fail_waits_for_running() {
    let mut case = Case::of("a b c<b", &[("a", fails()), ("b", json!({"delay": "30s"}))]);
    case.settle().reconcile().check("Progressing", "");
    assert_eq!(case.phases(), "a=Failed b=Progressing c=-");
    case.wait(Duration::from_secs(31)).check("Failed", "DeployItemFailed");
    assert_eq!(case.phases(), "a=Failed b=Succeeded c=-", "c was free, but not started");
}

#[test]
fn a_failed_try_is_repeated_as_often_as_the_item_says() {
    let mut case = Case::of("a", &[]);
    case.edit(json!({"spec": {"deployItems": [
        {"name": "a", "type": types::MOCK, "retries": 2, "config": {"failTimes": 2}}]}}));
    case.settle().reconcile().check("Progressing", "");
    case.wait(Duration::from_secs(2)).wait(Duration::from_secs(3)).check("Succeeded", "");
    let status = case.item("a").unwrap()["status"].clone();
    assert_eq!((status["retries"].as_i64(), status["lastErrors"].as_array().unwrap().len()), (Some(2), 2));
    let mut once = Case::of("a", &[("a", json!({"failTimes": 1}))]);
    once.settle().reconcile().check("Failed", "DeployItemFailed");
    once.reconcile().check("Succeeded", "");
}

#[test]
fn missing_item() {
    let mut case = Case::of("a b<a", &[("a", json!({"delay": "30s"}))]);
    case.settle().reconcile().check("Progressing", "");
    let at = case.item_key("b");
    case.cluster.edit(&deploy_item::KIND, &at, &json!({"metadata": {"finalizers": null}}));
    case.cluster.delete(&deploy_item::KIND, &at, "Background");
    case.settle().wait(Duration::from_secs(31)).check("Failed", "DeployItemMissing");
    assert!(case.message().contains("b: its DeployItem is missing"), "{}", case.message());
    case.reconcile().wait(Duration::from_secs(31)).check("Succeeded", "");
    assert_eq!(case.phases(), "a=Succeeded b=Succeeded");
}

#[test]
fn an_item_that_somebody_deletes_fails_the_job_and_comes_back_in_the_next() {
    let mut case = Case::of("a b<a", &[("a", json!({"delay": "30s"}))]);
    case.settle().reconcile();
    let at = case.item_key("b");
    case.cluster.delete(&deploy_item::KIND, &at, "Background");
    case.settle().wait(Duration::from_secs(31)).check("Failed", "DeployItemFailed");
    assert!(case.message().contains("b: its DeployItem is being deleted"), "{}", case.message());
    case.reconcile().wait(Duration::from_secs(31)).check("Succeeded", "");
}

#[test]
fn cycle_rejected_and_unknown_dependency_and_all_of_it_at_once() {
    let mut case = Case::of("a<b b<a c<nobody", &[]);
    case.settle().reconcile().check("Failed", "ValidationFailed");
    assert_eq!(case.message(), "\"c\" depends on \"nobody\", which is not there; a -> b -> a is a cycle");
    assert_eq!(case.phases(), "");
    case.delete();
    assert!(case.execution().is_none());
}

/// An Execution that is in the middle of a job with items that wait for each other.
fn knotted() -> Case {
    let mut case = done("a b");
    for (name, other) in [("a", "b"), ("b", "a")] {
        let at = case.item_key(name);
        let patch = json!({"metadata": {"annotations": {annotations::DEPENDS_ON: format!("[\"{other}\"]")}}});
        case.cluster.edit(&deploy_item::KIND, &at, &patch);
    }
    case
}

#[test]
fn cycle_forced_past_validation_is_detected_as_stuck() {
    let mut case = knotted();
    // The spec is another one than that of Init, so what the objects say of themselves counts.
    case.edit(json!({"status": {"phase": "Progressing", "jobID": "j",
        "deployItemCache": {"hash": "another", "active": 2}}}));
    case.settle().check("Failed", "Stuck");
    assert_eq!(case.message(), "nothing runs, but a, b wait for each other");
}

#[test]
fn i5_a_knot_is_taken_down_all_the_same() {
    let mut case = knotted();
    case.edit(json!({"status": {"deployItemCache": {"hash": "another"}}}));
    case.delete();
    assert!(case.execution().is_none() && case.item("a").is_none());
    assert!(case.cluster.events.iter().any(|(_, reason, _)| reason == "Stuck"));
}

#[test]
fn orphan_before_new() {
    let mut case = done("a b");
    let from = case.mark();
    case.set_items("a c", &[]).reconcile().check("Succeeded", "");
    assert_eq!(case.triggered(from)[0], "b");
    assert_eq!(case.phases(), "a=Succeeded c=Succeeded");
}

#[test]
fn orphans_in_reverse_order_and_last_item_removed() {
    let mut case = done(DIAMOND);
    let from = case.mark();
    case.set_items("", &[]).reconcile().check("Succeeded", "");
    assert_eq!(case.triggered(from), ["d", "b", "c", "a"]);
    assert_eq!(case.phases(), "");
}

#[test]
fn orphan_delete_failed_then_root_delete() {
    let mut case = Case::of("a b", &[("b", json!({"failOnDelete": true}))]);
    case.settle().reconcile().check("Succeeded", "");
    case.set_items("a c", &[]).reconcile().check("Failed", "OrphanDeleteFailed");
    assert_eq!(case.phases(), "a=Succeeded b=DeleteFailed c=-", "no new item was started");
    // Tried again in the next job, and in the deletion, until it goes.
    case.reconcile().check("Failed", "OrphanDeleteFailed");
    case.delete().check("DeleteFailed", "DeleteFailed");
    let at = case.item_key("b");
    case.cluster.edit(&deploy_item::KIND, &at, &json!({"spec": {"config": {"failOnDelete": false}}}));
    case.reconcile();
    assert!(case.execution().is_none() && case.phases().is_empty());
}

#[test]
fn an_item_that_comes_back_while_it_leaves_is_taken_down_and_made_anew() {
    let mut case = Case::of("a b", &[("b", json!({"failOnDelete": true}))]);
    case.settle().reconcile();
    case.set_items("a", &[]).reconcile().check("Failed", "OrphanDeleteFailed");
    let before = case.item("b").unwrap()["metadata"]["uid"].clone();
    let at = case.item_key("b");
    case.cluster.edit(&deploy_item::KIND, &at, &json!({"spec": {"config": {"failOnDelete": false}}}));
    case.set_items("a b<a", &[]).reconcile().check("Succeeded", "");
    assert_ne!(case.item("b").unwrap()["metadata"]["uid"], before);
    assert_eq!(case.phases(), "a=Succeeded b=Succeeded");
}

#[test]
fn delete_over_a_diamond() {
    let mut case = done(DIAMOND);
    let from = case.mark();
    case.delete();
    assert!(case.execution().is_none());
    assert_eq!(case.triggered(from), ["d", "b", "c", "a"]);
    assert_eq!(case.phases(), "");
}

#[test]
fn delete_failed_then_retry() {
    let mut case = Case::of(DIAMOND, &[("b", json!({"failOnDelete": true}))]);
    case.settle().reconcile().delete().check("DeleteFailed", "DeleteFailed");
    assert_eq!(case.phases(), "a=Succeeded b=DeleteFailed", "finished is not gone: a stays");
    let at = case.item_key("b");
    case.cluster.edit(&deploy_item::KIND, &at, &json!({"spec": {"config": {"failOnDelete": false}}}));
    case.settle().check("DeleteFailed", "DeleteFailed");
    case.reconcile();
    assert!(case.execution().is_none());
}

#[test]
fn delete_without_uninstall() {
    let mut case = Case::of("a b<a", &[("b", json!({"failOnDelete": true}))]);
    case.settle().reconcile();
    let from = case.mark();
    case.edit(json!({"metadata": {"annotations": {annotations::DELETE_WITHOUT_UNINSTALL: "true"}}})).delete();
    assert!(case.execution().is_none() && case.phases().is_empty());
    assert!(case.triggered(from).is_empty());
}

#[test]
fn interrupt_while_installing_and_twice() {
    let mut case = Case::of("a b<a c", &[("a", hangs())]);
    case.settle().reconcile().check("Progressing", "");
    case.operation("interrupt").settle().check("Failed", "Interrupted");
    assert_eq!(case.phases(), "a=Failed b=Failed c=Succeeded");
    let message = |name: &str| case.item(name).unwrap()["status"]["lastError"]["message"].clone();
    assert_eq!(message("a"), "it was interrupted while it ran");
    assert_eq!(message("b"), "the job was interrupted before it was started");
    let before = case.mark();
    case.operation("interrupt").settle().check("Failed", "Interrupted");
    assert_eq!(case.mark(), before, "there is nothing to interrupt");
    // The wish does not meet the next job.
    case.set_items("a b<a c", &[]).reconcile().check("Succeeded", "");
}

#[test]
fn one_item_can_be_interrupted_whoever_deploys_it_and_the_others_go_on() {
    let mut case = Case::of("a b c<a", &[("a", hangs()), ("b", json!({"delay": "30s"}))]);
    case.settle().reconcile().check("Progressing", "");
    let at = case.item_key("a");
    let wish = json!({"metadata": {"annotations": {annotations::OPERATION: "interrupt"}}});
    case.cluster.edit(&deploy_item::KIND, &at, &wish);
    case.settle();
    assert_eq!(case.phases(), "a=Failed b=Progressing c=-");
    assert_eq!(case.item("a").unwrap()["status"]["lastError"]["reason"], "Interrupted");
    case.wait(Duration::from_secs(31)).check("Failed", "DeployItemFailed");
    // The wish does not meet the next job.
    case.set_items("a b c<a", &[]).reconcile().check("Succeeded", "");
}

#[test]
fn interrupt_while_deleting() {
    let mut case = done("a b<a");
    let at = case.item_key("b");
    case.cluster.edit(&deploy_item::KIND, &at, &json!({"spec": {"config": hangs()}}));
    case.delete().check("Deleting", "");
    case.operation("interrupt").settle().check("DeleteFailed", "Interrupted");
    assert_eq!(case.phases(), "a=DeleteFailed b=DeleteFailed");
    case.cluster.edit(&deploy_item::KIND, &at, &json!({"spec": {"config": {"hang": false}}}));
    case.reconcile();
    assert!(case.execution().is_none());
}

#[test]
fn pickup_timeout_with_and_without_target() {
    let mut case = Case::of("a", &[]);
    case.edit(json!({"spec": {"deployItems": [
        {"name": "a", "type": "landscaper.gardener.cloud/helm"},
        {"name": "b", "type": types::MOCK, "target": {"name": "t"}},
    ]}}));
    case.settle().reconcile().check("Progressing", "");
    case.wait(Duration::from_mins(4)).check("Progressing", "");
    case.wait(Duration::from_secs(61)).check("Failed", "DeployItemFailed");
    let message = |name: &str| case.item(name).unwrap()["status"]["lastError"]["message"].clone();
    let nobody = "nobody picked it up within 5m: ";
    assert_eq!(message("a"), format!("{nobody}no deployer serves the type landscaper.gardener.cloud/helm"));
    assert_eq!(message("b"), format!("{nobody}Target t is not there"));
    let mut there = Case::empty();
    there.cluster.put(json!({"kind": "Target", "metadata": {"name": "t"}, "spec": {"type": "x"}}));
    there.cluster.put(json!({"kind": "Execution", "metadata": {"name": "e"}, "spec": {"deployItems": [
        {"name": "b", "type": types::MOCK, "target": {"name": "t"}}]}}));
    there.settle().reconcile().check("Succeeded", "");
}

#[test]
fn a_deployer_that_dies_after_pickup() {
    let mut case = Case::of("a", &[("a", hangs())]);
    case.settle().reconcile();
    case.wait(Duration::from_secs(599)).check("Progressing", "");
    case.wait(Duration::from_secs(2)).check("Failed", "DeployItemFailed");
    assert!(
        case.message().contains("ProgressingTimeout: it did not finish within 10m"),
        "{}",
        case.message()
    );
}

#[test]
fn timeout_none() {
    let mut case = Case::of("a", &[]);
    case.edit(json!({"spec": {"deployItems": [
        {"name": "a", "type": types::MOCK, "timeout": "none", "config": hangs()},
        {"name": "b", "type": types::MOCK, "timeout": "90s", "config": hangs()}]}}));
    case.settle().reconcile().wait(Duration::from_hours(30));
    assert_eq!(case.phases(), "a=Progressing b=Failed");
}

#[test]
fn exports_collected_and_forgotten_again() {
    let export = |value: i32| json!({"export": {"port": value, "password": "not-a-real-one"}});
    let mut case = Case::of("a b c", &[("a", export(1)), ("b", export(2))]);
    case.settle().reconcile().check("Succeeded", "");
    let read = |case: &Case| -> Value {
        let name = case.execution().unwrap()["status"]["exportRef"]["name"].as_str().unwrap().to_owned();
        let secret = case.cluster.get(&SECRET, &key(&name)).unwrap();
        use base64::Engine as _;
        let text =
            base64::engine::general_purpose::STANDARD.decode(secret["data"]["config"].as_str().unwrap());
        serde_json::from_slice(&text.unwrap()).unwrap()
    };
    assert_eq!(read(&case)["a"]["port"], 1);
    assert_eq!(read(&case).as_object().unwrap().len(), 2);
    case.set_items("a b c", &[("a", export(7))]).reconcile().check("Succeeded", "");
    assert_eq!(read(&case), json!({"a": {"port": 7, "password": "not-a-real-one"}}));
    let everything: String = case.cluster.statuses.iter().map(|(_, status)| status.to_string()).collect();
    assert!(!everything.contains("not-a-real-one"), "I6");
    case.set_items("c", &[]).reconcile().check("Succeeded", "");
    assert!(case.execution().unwrap()["status"].get("exportRef").is_none());
}

#[test]
fn missing_export_secret() {
    let mut case = Case::of("a b<a", &[("a", json!({"export": {"x": 1}})), ("b", json!({"delay": "30s"}))]);
    case.settle().reconcile().check("Progressing", "");
    let name = case.item("a").unwrap()["status"]["exportRef"]["name"].as_str().unwrap().to_owned();
    case.cluster.delete(&SECRET, &key(&name), "Background");
    case.wait(Duration::from_secs(31)).check("Failed", "ExportMissing");
    assert!(case.message().starts_with("the export of a, Secret n/"), "{}", case.message());
}

#[test]
fn exports_that_are_too_large_fail_the_job_with_their_size() {
    let half = json!({"export": {"text": "x".repeat(MAX_EXPORT_BYTES / 2)}});
    let mut case = Case::of("a b", &[("a", half.clone()), ("b", half)]);
    case.settle().reconcile().check("Failed", "ExportTooLarge");
}

#[test]
fn compressed_spec_read() {
    let list: Vec<_> = ["a", "b"]
        .map(|name| pawl_api::deploy::DeployItemTemplate {
            name: name.to_owned(),
            type_: types::MOCK.to_owned(),
            ..Default::default()
        })
        .to_vec();
    let text = serde_json::to_vec(&list).unwrap();
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(&text).unwrap();
    use base64::Engine as _;
    let packed = base64::engine::general_purpose::STANDARD.encode(encoder.finish().unwrap());
    let mut case = Case::of("", &[]);
    case.edit(json!({"spec": {"deployItems": null, "deployItemsCompressed": packed}}));
    case.settle().reconcile().check("Succeeded", "");
    assert_eq!(case.phases(), "a=Succeeded b=Succeeded");
    let zip = |text: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text).unwrap();
        base64::engine::general_purpose::STANDARD.encode(encoder.finish().unwrap())
    };
    for (bad, told) in [
        ("***".to_owned(), "it is not base64"),
        (base64::engine::general_purpose::STANDARD.encode("no gzip"), "it is not gzip"),
        (zip(b"{}"), "it is no list of items"),
        // 40 MB of blanks in 40 KB.
        (zip(&vec![b' '; 40 * 1024 * 1024]), "it unpacks to more than"),
    ] {
        case.edit(json!({"spec": {"deployItemsCompressed": bad}}));
        case.reconcile().check("Failed", "ValidationFailed");
        assert!(case.message().contains(told), "{}", case.message());
    }
    case.delete();
    assert!(case.execution().is_none(), "a broken spec is deletable");
}

#[test]
fn annotation_while_running_is_deferred() {
    let mut case = Case::of("a", &[("a", json!({"delay": "30s"}))]);
    case.settle().reconcile();
    let first = case.execution().unwrap()["status"]["jobID"].clone();
    case.reconcile().check("Progressing", "");
    assert_eq!(case.execution().unwrap()["status"]["jobID"], first);
    case.wait(Duration::from_secs(31));
    let second = case.execution().unwrap()["status"]["jobID"].clone();
    assert_ne!(second, first, "the deferred request starts the next job");
    case.wait(Duration::from_secs(31)).check("Succeeded", "");
    assert_eq!(case.execution().unwrap()["status"]["jobID"], second);
}

#[test]
fn deletion_while_running_is_deferred() {
    let mut case = Case::of("a b<a", &[("a", json!({"delay": "30s"}))]);
    case.settle().reconcile().delete().check("Progressing", "");
    assert_eq!(case.phases(), "a=Progressing b=-");
    case.wait(Duration::from_secs(31));
    case.wait(Duration::from_secs(31));
    assert!(case.execution().is_none() && case.phases().is_empty());
}

#[test]
fn i5_items_whose_execution_is_gone_take_themselves_down() {
    let mut case = done("a b<a");
    case.edit(json!({"metadata": {"finalizers": null}}));
    // Somebody took the finalizer off and deleted it before we looked.
    let (machines, kept) = (case.machines.clone(), case.machines[1..].to_vec());
    case.machines = kept;
    case.cluster.delete(&KIND, &key("e"), "Background");
    case.settle();
    case.machines = machines;
    assert_eq!(case.phases(), "");
}

#[test]
fn a_child_of_an_installation_waits_for_the_job_that_its_parent_hands_it() {
    let mut case = Case::empty();
    case.cluster.put(json!({"kind": "Installation", "metadata": {"name": "e"},
        "spec": {"blueprint": {"inline": {"filesystem": {"blueprint.yaml": "{}"}}}}}));
    case.cluster.put(json!({"kind": "Execution", "metadata": {"name": "e", "ownerReferences": [
        {"apiVersion": "landscaper.gardener.cloud/v1alpha1", "kind": "Installation", "name": "e",
            "uid": "installation-e", "controller": true}]}, "spec": {"deployItems": []}}));
    case.settle().reconcile();
    assert_eq!(case.says().0, "", "only the root of a tree starts jobs");
    assert!(case.cluster.events.iter().any(|(_, reason, _)| reason == "NotApplicable"));
    case.edit(json!({"status": {"jobID": "j"}})).settle().check("Succeeded", "");
}

#[test]
fn an_item_name_that_is_somebody_elses_fails_the_job() {
    let mut case = Case::of("a", &[]);
    // The small cluster remembers refusals per object, whoever was refused.
    case.machines.truncate(2);
    let name = case.item_key("a").name;
    case.cluster.put(json!({"kind": "DeployItem", "metadata": {"name": name}, "spec": {"type": "x"}}));
    case.settle().reconcile().check("Failed", "OwnershipMismatch");
}

/// Runs to the end with a crash after every so-manieth request of every look.
fn crash_after(requests: usize) -> Cluster {
    let mut case = Case::of(DIAMOND, &[("a", json!({"export": {"x": 1}}))]);
    case.settle().operation("reconcile");
    let play = |case: &mut Case| {
        for _ in 0..400 {
            let before = case.mark();
            let mut acted = false;
            for machine in case.machines.clone() {
                if let Some(kind) = machine.description().primary.kind().cloned() {
                    for object in case.cluster.world.list(&kind, None) {
                        let Some(object) = case.cluster.world.get(&kind, &object.key()) else { continue };
                        let plan = case.cluster.plan(&machine, &object);
                        let outcome = case.cluster.apply(plan, object, requests);
                        acted |= !outcome.writes.is_empty();
                    }
                }
            }
            if !acted && case.mark() == before {
                return;
            }
        }
        panic!("does not converge");
    };
    play(&mut case);
    case.check("Succeeded", "");
    let order = case.triggered(0);
    assert_eq!(order, ["a", "b", "c", "d"], "with a crash after {requests} requests");
    let from = case.mark();
    case.cluster.delete(&KIND, &key("e"), "Background");
    play(&mut case);
    assert!(case.execution().is_none() && case.phases().is_empty());
    assert_eq!(case.triggered(from), ["d", "b", "c", "a"]);
    case.cluster
}

#[test]
fn crash_at_every_write_of_a_diamond_install_and_delete() {
    // The longest plan that does one thing is three requests: to confirm, to tell, to write.
    for requests in 3..12 {
        crash_after(requests);
    }
}

/// A layered random graph: each item depends on some of the layer before.
fn layered(layers: usize, width: usize) -> (Vec<Value>, BTreeMap<String, Vec<String>>) {
    let mut state = 7_usize;
    let mut dice = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut list, mut before) = (vec![], BTreeMap::new());
    for layer in 0..layers {
        for at in 0..width {
            let name = format!("l{layer:02}x{at:03}");
            let others: BTreeSet<String> = (0..dice(4))
                .filter(|_| layer > 0)
                .map(|_| format!("l{:02}x{:03}", dice(layer), dice(width)))
                .collect();
            let others: Vec<String> = others.into_iter().collect();
            list.push(json!({"name": name, "type": types::MOCK, "dependsOn": others}));
            before.insert(name, others);
        }
    }
    (list, before)
}

#[test]
fn a_1000_item_random_dag_keeps_order_and_triggers_each_item_once_per_job() {
    let (list, before) = layered(10, 100);
    let mut case = Case::of("", &[]);
    case.edit(json!({"spec": {"deployItems": list}}));
    case.machines.truncate(2);
    case.settle().reconcile().check("Succeeded", "");
    let order = case.triggered(0);
    assert_eq!(order.len(), 1_000);
    assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 1_000);
    let at: BTreeMap<&str, usize> = order.iter().enumerate().map(|(at, name)| (name.as_str(), at)).collect();
    for (name, others) in &before {
        for other in others {
            assert!(at[other.as_str()] < at[name.as_str()], "{name} before {other}");
        }
    }
    let status = case.execution().unwrap()["status"].to_string();
    assert!(status.len() < 2_000, "the status does not grow with the items: {} bytes", status.len());
}

#[test]
fn a_change_of_an_item_wakes_its_execution_only_when_it_has_finished_or_is_gone() {
    let mut case = done("a");
    let at = case.item_key("a");
    let wakes = |case: &Case| {
        let object = case.cluster.world.get(&deploy_item::KIND, &at).unwrap();
        standing::of_the_item(&object, &case.cluster.world)
    };
    assert_eq!(wakes(&case), [key("e")]);
    case.cluster.edit(&deploy_item::KIND, &at, &json!({"status": {"jobID": "next"}}));
    let running = case.cluster.world.get(&deploy_item::KIND, &at).unwrap();
    assert!(wakes(&case).is_empty());
    case.cluster.world.remove(&deploy_item::KIND, &at);
    assert_eq!(standing::of_the_item(&running, &case.cluster.world), [key("e")]);
    let _: Arc<DeployItem> = running.parse().unwrap();
}

/// A view that counts what is asked of it.
struct Counting<'a> {
    world: &'a crate::cache::World,
    asked: std::cell::Cell<usize>,
}

impl Counting<'_> {
    fn counted<T>(&self, answer: T) -> T {
        self.asked.set(self.asked.get() + 1);
        answer
    }
}

impl View for Counting<'_> {
    fn get(&self, kind: &pawl_api::meta::Kind, key: &Key) -> Option<Arc<Object>> {
        self.counted(self.world.get(kind, key))
    }

    fn list(&self, kind: &pawl_api::meta::Kind, namespace: Option<&str>) -> Vec<Arc<Object>> {
        self.counted(self.world.list(kind, namespace))
    }

    fn owned(&self, kind: &pawl_api::meta::Kind, owner_uid: &str) -> Vec<Arc<Object>> {
        self.counted(self.world.owned(kind, owner_uid))
    }

    fn labelled(&self, kind: &pawl_api::meta::Kind, label: &str, value: &str) -> Vec<Arc<Object>> {
        self.counted(self.world.labelled(kind, label, value))
    }

    fn dependents(&self, owner_uid: &str) -> Vec<Arc<Object>> {
        self.counted(self.world.dependents(owner_uid))
    }

    fn serves(&self, kind: &pawl_api::meta::Kind) -> crate::view::Served {
        self.world.serves(kind)
    }

    fn resolve(&self, api_version: &str, kind: &str) -> Option<pawl_api::meta::Kind> {
        self.world.resolve(api_version, kind)
    }

    fn kinds(&self) -> Vec<pawl_api::meta::Kind> {
        self.world.kinds()
    }
}

#[test]
fn at_10_000_items_the_cost_per_item_is_flat() {
    for size in [100_usize, 10_000] {
        let list: Vec<Value> = (0..size)
            .map(|at| {
                let before: Vec<String> = (at >= 100).then(|| format!("i{}", at - 100)).into_iter().collect();
                json!({"name": format!("i{at}"), "type": types::MOCK, "dependsOn": before})
            })
            .collect();
        let mut case = Case::of("", &[]);
        case.edit(json!({"spec": {"deployItems": list}}));
        case.settle().operation("reconcile");
        let machine = case.machines[0].clone();
        // The job starts, and all objects are made.
        for _ in 0..(3 + size.div_ceil(MAX_STEPS)) {
            case.cluster.step(&machine, &KIND, &key("e"));
        }
        case.check("Progressing", "");
        let me = case.cluster.world.get(&KIND, &key("e")).unwrap();
        let view = Counting { world: &case.cluster.world, asked: std::cell::Cell::new(0) };
        let answers = Arc::default();
        let input = Input { view: &view, me: &me, refusals: &[], answers: &answers };
        let plan = machine.plan(&input, case.cluster.now).unwrap();
        assert_eq!(plan.steps.len(), 101, "one confirmation, and the first hundred are triggered");
        assert!(view.asked.get() <= 5, "{} looks at the cache for {size} items", view.asked.get());
        let object = me.raw().to_string().len() + plan.status.map_or(0, |status| status.to_string().len());
        assert!(object < 1024 * 1024 + 512 * 1024, "the object has {object} bytes");
    }
}
