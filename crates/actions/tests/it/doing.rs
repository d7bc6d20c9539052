//! Each action changes what it should, says what was and what is, is done once, and is taken back.

use pawl_api::k8s::{
    CONFIG_MAP, DAEMON_SET, DEPLOYMENT, EVENTS_EVENT, HORIZONTAL_POD_AUTOSCALER, NODE,
    PERSISTENT_VOLUME_CLAIM, POD, POD_DISRUPTION_BUDGET, REPLICA_SET, SECRET, STATEFUL_SET,
};
use pawl_api::meta::Kind;
use pawl_api::remedy::annotations::CHANGED_BY;
use pawl_machines::remedy::action::diff;
use pawl_machines::remedy::action::report::Outcome;
use serde_json::{Value, json};

use crate::world::{World, encoded, order, undoing};

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
        {"name": "app", "image": image, "resources": {"limits": {"memory": "512Mi"}}},
        {"name": "side", "image": "side:1"}]}})
}

fn workload(replicas: i32) -> Value {
    json!({"metadata": {"name": "web", "labels": {"tier": "front"}}, "spec": {"replicas": replicas,
        "selector": {"matchLabels": {"app": "web"}}, "template": template("app:1")}})
}

#[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
fn node(spec: Value) -> Value {
    json!({"metadata": {"name": "worker-1"}, "spec": spec})
}

fn pod(name: &str, node: Option<&str>) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": "web"}, "ownerReferences": [{"apiVersion": "apps/v1",
        "kind": "ReplicaSet", "name": "rs", "uid": "7", "controller": true, "blockOwnerDeletion": true}]},
        "spec": {"nodeName": node, "containers": [{"name": "app", "image": "app:1"}]}})
}

/// What an action is expected to do to one object that is there.
struct Case<'a> {
    kind: Kind,
    name: &'a str,
    action: &'a str,
    parameters: Value,
    /// A line of the diff.
    diff: &'a str,
    /// In words.
    before: &'a str,
    after: &'a str,
}

/// Looks, tries, captures, does, does again: everything that happens on the way forward.
async fn forward(world: &World, case: &Case<'_>) -> pawl_machines::remedy::action::Captured {
    let order = order(case.action, case.parameters.clone(), 1);
    let access = world.access(&order).await;
    assert!(access.exists && access.missing.is_empty(), "{access:?}");
    let before = world.get(&case.kind, case.name);
    let looked = world.look(&order).await;
    assert_eq!(looked.refusal, None);
    assert_eq!(looked.described[0].before, case.before);

    let tried = world.try_out(&order).await;
    assert!(tried.performed && tried.success, "{tried:?}");
    assert!(tried.diff.contains(case.diff), "{}", tried.diff);
    assert_eq!(world.get(&case.kind, case.name), before, "a dry run changes nothing");

    let captured = world.capture(&order).await.unwrap();
    assert_eq!(captured.digest, looked.digest);
    assert_eq!(world.capture(&order).await.unwrap(), captured, "asked again, it is what was stored");
    assert_eq!(world.get(&case.kind, case.name), before, "a capture changes nothing");

    let report = world.act(&order).await;
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert_eq!(report.changed[0].name, case.name);
    let after = world.get(&case.kind, case.name);
    assert_eq!(report.changed[0].resource_version, after["metadata"]["resourceVersion"]);
    assert_eq!(after["metadata"]["annotations"][CHANGED_BY], order.uid);
    let looked = world.look(&order).await;
    assert_eq!(looked.described[0].before, case.after);

    let again = world.act(&order).await;
    assert_eq!((again.outcome, again.changed.len()), (Outcome::Done, 0), "{again:?}");
    assert_eq!(world.get(&case.kind, case.name), after, "done twice is done once");
    captured
}

/// And back.
async fn there_and_back(world: &World, case: Case<'_>) {
    let before = world.get(&case.kind, case.name);
    let captured = forward(world, &case).await;
    assert_ne!(diff::plain(&world.get(&case.kind, case.name)), diff::plain(&before), "it changed something");
    let first = order(case.action, case.parameters.clone(), 1);
    let back = undoing(&first, &captured, 2);
    let access = world.access(&back).await;
    assert!(access.exists && access.missing.is_empty(), "{access:?}");
    let tried = world.try_out(&back).await;
    assert!(tried.success, "{tried:?}");
    world.capture(&back).await.unwrap();
    let report = world.act(&back).await;
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    let restored = world.get(&case.kind, case.name);
    assert_eq!(diff::plain(&restored), diff::plain(&before), "as it was, but for counters, times and marks");
    let again = world.act(&back).await;
    assert_eq!((again.outcome, again.changed.len()), (Outcome::Done, 0), "{again:?}");
}

#[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
fn shop(more: Value) -> Value {
    let mut parameters = json!({"namespace": "shop"});
    parameters.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    parameters
}

#[tokio::test]
async fn scale_deployment_sets_the_replicas_and_sets_them_back() {
    let world = World::new();
    world.put(&DEPLOYMENT, workload(3));
    let parameters = shop(json!({"deployment": "web", "replicas": 5}));
    let tried = world.try_out(&order("scale_deployment", parameters.clone(), 1)).await;
    let impact = tried.estimated_impact.unwrap();
    assert_eq!((impact.resources_affected, impact.replicas_changed.as_deref()), (1, Some("3 -> 5")));
    there_and_back(
        &world,
        Case {
            kind: DEPLOYMENT,
            name: "web",
            action: "scale_deployment",
            parameters,
            diff: "+ spec.replicas: 5",
            before: "replicas: 3",
            after: "replicas: 5",
        },
    )
    .await;
}

#[tokio::test]
async fn scale_statefulset_sets_the_replicas_and_sets_them_back() {
    let world = World::new();
    let mut manifest = workload(2);
    manifest["spec"]["serviceName"] = "web".into();
    world.put(&STATEFUL_SET, manifest);
    there_and_back(
        &world,
        Case {
            kind: STATEFUL_SET,
            name: "web",
            action: "scale_statefulset",
            parameters: shop(json!({"statefulset": "web", "replicas": 0})),
            diff: "- spec.replicas: 2",
            before: "replicas: 2",
            after: "replicas: 0",
        },
    )
    .await;
}

#[tokio::test]
async fn rollout_restart_changes_the_template_of_each_kind_of_workload_once() {
    let world = World::new();
    world.put(&DEPLOYMENT, workload(1));
    let mut manifest = workload(1);
    manifest["spec"]["serviceName"] = "web".into();
    world.put(&STATEFUL_SET, manifest);
    let mut manifest = workload(1);
    manifest["spec"].as_object_mut().unwrap().remove("replicas");
    world.put(&DAEMON_SET, manifest);
    for (kind, word) in [(DEPLOYMENT, "deployment"), (STATEFUL_SET, "statefulset"), (DAEMON_SET, "daemonset")]
    {
        let case = Case {
            kind: kind.clone(),
            name: "web",
            action: "rollout_restart",
            parameters: shop(json!({"kind": word, "name": "web"})),
            diff: "spec.template.metadata.annotations",
            before: "not restarted",
            after: "restarted by: 00000000-0000-4000-8000-000000000001",
        };
        // Three orders of one UID need three places to keep.
        let _ = world.send(
            "DELETE",
            "/api/v1/namespaces/kubernaut-executor/secrets/pawl-undo-00000000-0000-4000-8000-000000000001",
            &Value::Null,
        );
        let captured = forward(&world, &case).await;
        assert!(!captured.information.available);
        assert!(captured.information.unavailable_reason.contains("do not come back"));
    }
}

#[tokio::test]
async fn patch_deployment_of_every_type_is_taken_back_by_the_patch_that_leads_back() {
    let patches = [
        ("strategic", r#"{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"app:2"}]}}}}"#),
        ("merge", "metadata: {labels: {extra: 'yes', tier: null}}\nspec: {paused: true}"),
        (
            "json",
            r#"[{"op":"replace","path":"/spec/template/spec/containers/1/image","value":"side:2"},
            {"op":"remove","path":"/metadata/labels/tier"}]"#,
        ),
    ];
    for (type_, patch) in patches {
        let world = World::new();
        world.put(&DEPLOYMENT, workload(3));
        let parameters = shop(json!({"deployment": "web", "patchType": type_, "patch": patch}));
        let forward = order("patch_deployment", parameters.clone(), 1);
        let (before, words) = (world.get(&DEPLOYMENT, "web"), world.look(&forward).await.described);
        assert!(world.try_out(&forward).await.success);
        let captured = world.capture(&forward).await.unwrap();
        assert_eq!(captured.before, words);
        let undo = &captured.information.rollback_parameters["patchDeployment"];
        assert_eq!(undo["patchType"], "merge", "{type_}: it says how it is taken back");
        assert_eq!(world.act(&forward).await.outcome, Outcome::Done);
        let after = world.get(&DEPLOYMENT, "web");
        assert_ne!(diff::plain(&after), diff::plain(&before), "{type_}");
        assert_eq!(world.act(&forward).await.changed.len(), 0);
        let back = undoing(&forward, &captured, 2);
        world.capture(&back).await.unwrap();
        assert_eq!(world.act(&back).await.outcome, Outcome::Done);
        assert_eq!(diff::plain(&world.get(&DEPLOYMENT, "web")), diff::plain(&before), "{type_}");
    }
}

#[tokio::test]
async fn a_patch_that_the_api_server_would_not_take_is_known_before_it_is_tried() {
    let world = World::new();
    world.put(&DEPLOYMENT, workload(3));
    let bad = shop(json!({"deployment": "web", "patchType": "merge", "patch": "spec: {replicas: -1}"}));
    let order = order("patch_deployment", bad, 1);
    let tried = world.try_out(&order).await;
    assert!(!tried.success && tried.errors[0].contains("replicas"), "{tried:?}");
    let failure = world.capture(&order).await.unwrap_err();
    assert_eq!(failure.reason, "Refused");
    let report = world.act(&order).await;
    assert_eq!(report.outcome, Outcome::Failed, "{report:?}");
}

#[tokio::test]
async fn delete_pod_deletes_the_pod_that_was_meant_and_not_the_one_that_came_after() {
    let world = World::new();
    world.put(&POD, pod("p", None));
    let order = order("delete_pod", shop(json!({"pod": "p", "gracePeriodSeconds": 0})), 1);
    assert!(world.access(&order).await.missing.is_empty());
    assert!(world.try_out(&order).await.diff.contains("- deleted"));
    assert!(world.find(&POD, "p").is_some(), "a dry run deletes nothing");
    let captured = world.capture(&order).await.unwrap();
    assert!(!captured.information.available);
    let report = world.act(&order).await;
    assert_eq!((report.outcome, report.changed[0].verb.as_str()), (Outcome::Done, "delete"));
    assert!(world.find(&POD, "p").is_none());
    assert_eq!(world.act(&order).await.changed.len(), 0);
    world.put(&POD, pod("p", None));
    let again = world.act(&order).await;
    assert_eq!((again.outcome, again.changed.len()), (Outcome::Done, 0), "{again:?}");
    assert!(world.find(&POD, "p").is_some(), "a StatefulSet's next pod of the name is another one");
}

#[tokio::test]
async fn cordon_node_and_uncordon_node_are_each_other_s_undo() {
    for (action, spec, diff) in [
        ("cordon_node", json!({}), "+ spec.unschedulable: true"),
        ("uncordon_node", json!({"unschedulable": true}), "- spec.unschedulable: true"),
    ] {
        let world = World::new();
        world.put(&NODE, node(spec));
        let (before, after) = match action {
            "cordon_node" => ("unschedulable: false", "unschedulable: true"),
            _ => ("unschedulable: true", "unschedulable: false"),
        };
        let parameters = json!({"node": "worker-1"});
        there_and_back(
            &world,
            Case { kind: NODE, name: "worker-1", action, parameters, diff, before, after },
        )
        .await;
    }
}

#[tokio::test]
async fn taint_node_and_untaint_node_leave_other_taints_alone_and_are_taken_back() {
    let other = json!({"key": "other", "effect": "NoSchedule"});
    let mine = |value: &str| json!({"key": "k", "value": value, "effect": "NoExecute"});
    let tainting = json!({"node": "worker-1", "key": "k", "value": "new", "effect": "NoExecute"});
    let untainting = json!({"node": "worker-1", "key": "k"});
    for (action, taints, parameters, before, after) in [
        ("taint_node", json!([other]), tainting.clone(), "no taint k", "taints: k=new:NoExecute"),
        ("taint_node", json!([mine("old")]), tainting, "taints: k=old:NoExecute", "taints: k=new:NoExecute"),
        ("untaint_node", json!([mine("old")]), untainting.clone(), "taints: k=old:NoExecute", "no taint k"),
        (
            "untaint_node",
            json!([other, mine("old"), {"key": "k", "effect": "NoSchedule"}]),
            untainting,
            "taints: k=old:NoExecute, k:NoSchedule",
            "no taint k",
        ),
    ] {
        let world = World::new();
        world.put(&NODE, node(json!({"taints": taints})));
        let case =
            Case { kind: NODE, name: "worker-1", action, parameters, diff: "spec.taints", before, after };
        there_and_back(&world, case).await;
    }
}

#[tokio::test]
async fn update_hpa_moves_the_bounds_and_moves_them_back() {
    let world = World::new();
    world.put(
        &HORIZONTAL_POD_AUTOSCALER,
        json!({"metadata": {"name": "web"}, "spec": {"maxReplicas": 10,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}}),
    );
    let case = Case {
        kind: HORIZONTAL_POD_AUTOSCALER,
        name: "web",
        action: "update_hpa",
        parameters: shop(json!({"hpa": "web", "minReplicas": 4, "maxReplicas": 20})),
        diff: "+ spec.maxReplicas: 20",
        before: "minReplicas: 1, maxReplicas: 10",
        after: "minReplicas: 4, maxReplicas: 20",
    };
    there_and_back(&world, case).await;
}

#[tokio::test]
async fn increase_resources_raises_one_container_and_lowers_it_again_when_it_is_taken_back() {
    let world = World::new();
    world.put(&DEPLOYMENT, workload(1));
    let parameters = shop(json!({"kind": "deployment", "name": "web", "container": "app",
        "limits": {"memory": "1Gi", "cpu": "2"}}));
    let case = Case {
        kind: DEPLOYMENT,
        name: "web",
        action: "increase_resources",
        parameters,
        diff: r#"+ spec.template.spec.containers[0].resources.limits.memory: "1Gi""#,
        before: "limits.cpu: none, limits.memory: 512Mi",
        after: "limits.cpu: 2, limits.memory: 1Gi",
    };
    there_and_back(&world, case).await;
    let less =
        shop(json!({"kind": "deployment", "name": "web", "container": "app", "limits": {"memory": "1Mi"}}));
    let order = order("increase_resources", less, 9);
    assert!(world.look(&order).await.refusal.unwrap().contains("would be less"));
    assert_eq!(world.act(&order).await.outcome, Outcome::Refused);
}

#[tokio::test]
async fn quarantine_pod_takes_labels_and_owner_and_gives_them_back() {
    let world = World::new();
    world.put(&POD, pod("p", None));
    let case = Case {
        kind: POD,
        name: "p",
        action: "quarantine_pod",
        parameters: shop(json!({"pod": "p"})),
        diff: "metadata.labels",
        before: "owner: ReplicaSet/rs, labels: app=web",
        after: "owner: none, labels: pawl.dev/quarantined=true",
    };
    there_and_back(&world, case).await;
}

#[tokio::test]
async fn update_configmap_sets_and_removes_keys_and_does_the_opposite_to_take_it_back() {
    let world = World::new();
    world.put(
        &CONFIG_MAP,
        json!({"metadata": {"name": "c"}, "data": {"a": "1", "b": "2"},
        "binaryData": {"bin": "AAEC"}}),
    );
    let case = |parameters: Value, before, after| Case {
        kind: CONFIG_MAP,
        name: "c",
        action: "update_configmap",
        parameters,
        diff: "data",
        before,
        after,
    };
    let parameters = shop(json!({"configMap": "c", "data": {"a": "9", "new": "x"}, "removeKeys": ["b"]}));
    let (before, after) = (r#"a: "1", new: absent, b: "2""#, r#"a: "9", new: "x", b: absent"#);
    there_and_back(&world, case(parameters, before, after)).await;
    let world = World::new();
    world.put(&CONFIG_MAP, json!({"metadata": {"name": "c"}, "binaryData": {"bin": "AAEC"}}));
    let parameters = shop(json!({"configMap": "c", "data": {"bin": "text"}}));
    there_and_back(&world, case(parameters, r#"bin: "AAEC""#, r#"bin: "text""#)).await;
}

#[tokio::test]
async fn update_secret_moves_values_between_secrets_and_nobody_sees_them() {
    let world = World::new();
    let (old, new) = (encoded("obviously-fake-old-value"), encoded("obviously-fake-new-value"));
    world.put(&SECRET, json!({"metadata": {"name": "rotated", "namespace": "home"}, "data": {"p": new}}));
    world.put(&SECRET, json!({"metadata": {"name": "db"}, "data": {"password": old, "other": "AA=="}}));
    let from = json!({"valueFrom": {"secretKeyRef": {"name": "rotated", "key": "p"}}});
    let parameters = shop(json!({"secret": "db", "data": {"password": from, "added": from}}));
    let case = Case {
        kind: SECRET,
        name: "db",
        action: "update_secret",
        parameters: parameters.clone(),
        diff: "+ data.password: ***",
        before: "added: absent, password: ***",
        after: "added: ***, password: ***",
    };
    let looked = world.look(&order("update_secret", parameters.clone(), 1)).await;
    let tried = world.try_out(&order("update_secret", parameters, 1)).await;
    there_and_back(&world, case).await;
    let told = format!("{looked:?}{tried:?}{}", world.everything_told());
    for canary in [old.as_str(), new.as_str(), "obviously-fake"] {
        assert!(!told.contains(canary), "{told}");
    }
}

#[tokio::test]
async fn expand_pvc_asks_for_more_and_never_for_less() {
    let world = World::new();
    let (code, answer) = world.send(
        "POST",
        &PERSISTENT_VOLUME_CLAIM.path(Some("shop"), None),
        &json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}}),
    );
    assert_eq!(code, 201, "{answer}");
    world.patch(&PERSISTENT_VOLUME_CLAIM, "data", "/status", &json!({"status": {"phase": "Bound"}}));
    let case = Case {
        kind: PERSISTENT_VOLUME_CLAIM,
        name: "data",
        action: "expand_pvc",
        parameters: shop(json!({"pvc": "data", "size": "20Gi"})),
        diff: r#"+ spec.resources.requests.storage: "20Gi""#,
        before: "storage: 10Gi",
        after: "storage: 20Gi",
    };
    let captured = forward(&world, &case).await;
    assert_eq!(captured.information.unavailable_reason, "volumes never shrink");
    let less = order("expand_pvc", shop(json!({"pvc": "data", "size": "5Gi"})), 2);
    assert!(world.look(&less).await.refusal.unwrap().contains("never shrink"));
    assert_eq!(world.act(&less).await.outcome, Outcome::Refused);
}

#[tokio::test]
async fn apply_manifest_makes_and_changes_and_takes_both_back() {
    let world = World::new();
    world.put(
        &CONFIG_MAP,
        json!({"metadata": {"name": "old", "labels": {"a": "b"}}, "data": {"k": "1", "kept": "x"}}),
    );
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: old, labels: {new: label}}\ndata: {k: '2', l: '3'}\n\
        ---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: fresh}\nspec:\n  replicas: 1\n  \
        selector: {matchLabels: {app: fresh}}\n  template:\n    metadata: {labels: {app: fresh}}\n    spec: \
        {containers: [{name: c, image: 'i:1'}]}\n";
    let before = world.get(&CONFIG_MAP, "old");
    let forward = order("apply_manifest", shop(json!({"manifest": manifest})), 1);
    assert!(world.access(&forward).await.missing.is_empty());
    let looked = world.look(&forward).await;
    assert_eq!(looked.targets.len(), 2);
    assert!(looked.targets[1].1.is_none());
    let tried = world.try_out(&forward).await;
    assert!(tried.success && tried.diff.contains("Deployment shop/fresh"), "{tried:?}");
    assert!(world.find(&DEPLOYMENT, "fresh").is_none());
    let captured = world.capture(&forward).await.unwrap();
    let report = world.act(&forward).await;
    assert_eq!((report.outcome, report.counts["apply"]), (Outcome::Done, 2), "{report:?}");
    assert_eq!(world.get(&CONFIG_MAP, "old")["data"], json!({"k": "2", "l": "3", "kept": "x"}));
    assert_eq!(world.get(&DEPLOYMENT, "fresh")["spec"]["replicas"], 1);
    assert_eq!(world.act(&forward).await.changed.len(), 0);
    let back = undoing(&forward, &captured, 2);
    let tried = world.try_out(&back).await;
    assert!(tried.success && tried.diff.contains("- deleted"), "{tried:?}");
    world.capture(&back).await.unwrap();
    let report = world.act(&back).await;
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert_eq!(diff::plain(&world.get(&CONFIG_MAP, "old")), diff::plain(&before));
    assert!(world.find(&DEPLOYMENT, "fresh").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollback_deployment_goes_to_an_earlier_revision_and_back() {
    let world = World::new().with_controllers();
    world.put(&DEPLOYMENT, workload(0));
    let revision = |world: &World, wanted: &str| {
        let found = world.get(&DEPLOYMENT, "web");
        (found["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == wanted).then_some(found)
    };
    let first = world.until("revision 1", |world| revision(world, "1")).await;
    world.patch(
        &DEPLOYMENT,
        "web",
        "",
        &json!({"spec": {"template": {"metadata": {"annotations": {"bad": "idea"}}}}}),
    );
    let second = world.until("revision 2", |world| revision(world, "2")).await;
    let (code, sets) = world.send("GET", &REPLICA_SET.path(Some("shop"), None), &Value::Null);
    assert_eq!((code, sets["items"].as_array().unwrap().len()), (200, 2));

    let forward = order("rollback_deployment", shop(json!({"deployment": "web"})), 1);
    assert!(world.access(&forward).await.missing.is_empty());
    assert!(world.try_out(&forward).await.diff.contains("bad"));
    let captured = world.capture(&forward).await.unwrap();
    assert_eq!(captured.before[0].before, "revision: 2, app=app:1, side=side:1");
    assert_eq!(world.act(&forward).await.outcome, Outcome::Done);
    let rolled = world.until("revision 3", |world| revision(world, "3")).await;
    assert_eq!(rolled["spec"]["template"], first["spec"]["template"]);
    assert_eq!(world.act(&forward).await.changed.len(), 0);
    let back = undoing(&forward, &captured, 2);
    world.capture(&back).await.unwrap();
    assert_eq!(world.act(&back).await.outcome, Outcome::Done);
    let restored = world.until("revision 4", |world| revision(world, "4")).await;
    assert_eq!(diff::plain(&restored), diff::plain(&second));
    let gone = order("rollback_deployment", shop(json!({"deployment": "web", "revision": 77})), 3);
    assert!(world.look(&gone).await.refusal.unwrap().contains("no revision 77"));
}

#[tokio::test]
async fn drain_node_cordons_evicts_what_may_go_and_waits_for_budgets() {
    let world = World::new();
    world.put(&NODE, node(json!({})));
    world.put(&NODE, json!({"metadata": {"name": "worker-2"}}));
    let ready = |name: &str, on: &str| {
        world.put(&POD, pod(name, Some(on)));
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        world.patch(
            &POD,
            name,
            "/status",
            &json!({"status": {"phase": "Running", "conditions": conditions}}),
        );
    };
    for (name, on) in [("a", "worker-1"), ("b", "worker-1"), ("elsewhere", "worker-2")] {
        ready(name, on);
    }
    let mut daemon = pod("daemon", Some("worker-1"));
    daemon["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet".into();
    world.put(&POD, daemon);
    world.put(
        &POD_DISRUPTION_BUDGET,
        json!({"metadata": {"name": "budget"}, "spec": {"minAvailable": 2,
            "selector": {"matchLabels": {"app": "web"}}}}),
    );
    let order_ =
        order("drain_node", json!({"node": "worker-1", "gracePeriodSeconds": 0, "evictionTimeout": "2s"}), 1);
    assert!(world.access(&order_).await.missing.is_empty());
    let looked = world.look(&order_).await;
    assert_eq!(looked.described[0].before, "unschedulable: false, pods: 2");
    assert_eq!(Value::Object(looked.facts), json!({"nodes": 2, "schedulableNodes": 2}));
    let tried = world.try_out(&order_).await;
    assert!(tried.success && tried.diff.contains("evicted"), "{tried:?}");
    assert!(world.find(&POD, "a").is_some(), "a dry run evicts nothing");
    assert!(!world.capture(&order_).await.unwrap().information.available);

    let report = world.act(&order_).await;
    assert_eq!(report.outcome, Outcome::Failed, "the budget allows one: {report:?}");
    assert!(report.message.contains("not within 2s"), "{report:?}");
    assert_eq!(report.counts["evict"], 1, "{report:?}");
    assert_eq!(world.get(&NODE, "worker-1")["spec"]["unschedulable"], true);
    ready("another", "worker-2");
    let report = world.act(&order_).await;
    assert_eq!(report.outcome, Outcome::Done, "the next attempt goes on where the first stood: {report:?}");
    assert!(["a", "b"].into_iter().all(|name| world.find(&POD, name).is_none()));
    assert!(["daemon", "elsewhere"].into_iter().all(|name| world.find(&POD, name).is_some()));
    world.patch(&NODE, "worker-1", "", &json!({"spec": {"unschedulable": null}}));
    let again = world.act(&order_).await;
    assert_eq!((again.outcome, again.changed.len()), (Outcome::Done, 0), "what was done is not done again");
}

#[tokio::test]
async fn notify_only_writes_one_event_and_changes_nothing() {
    let world = World::new();
    world.put(&DEPLOYMENT, workload(1));
    let before = world.get(&DEPLOYMENT, "web");
    let order =
        order("notify_only", json!({"message": "look at $(this)", "target": "shop/deployment/web"}), 1);
    assert!(world.access(&order).await.missing.is_empty());
    assert!(world.try_out(&order).await.success, "and what is tried leaves no Event");
    world.capture(&order).await.unwrap();
    for _ in 0..2 {
        let report = world.act(&order).await;
        assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    }
    let (_, events) = world.send("GET", &EVENTS_EVENT.path(Some("shop"), None), &Value::Null);
    let events = events["items"].as_array().unwrap();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0]["note"], "look at $(this)");
    assert_eq!(events[0]["regarding"]["name"], "web");
    assert_eq!(world.get(&DEPLOYMENT, "web"), before);
}
