use serde_json::{Value, json};

use super::*;
use crate::machine::AnyMachine;
use crate::object::Key;
use crate::testing::Cluster;
use crate::view::View as _;

fn key() -> Key {
    Key::new(Some("n"), "db")
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "main", "image": image}]}})
}

fn cluster(spec: &Value) -> Cluster {
    let mut set = json!({"kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {"replicas": 3,
        "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template("db:1")}});
    crate::testing::merge(&mut set["spec"], spec);
    Cluster::of(&[STATEFUL_SET, POD, CONTROLLER_REVISION, PERSISTENT_VOLUME_CLAIM], &set.to_string())
}

fn settle(cluster: &mut Cluster) {
    cluster.settle(&[AnyMachine::new(StatefulSets)]);
}

/// Every Pod as `ordinal image`, with `-` if it does not run yet and `x` if it is leaving.
fn pods(cluster: &Cluster) -> Vec<String> {
    let shown = cluster.world.list(&POD, None).into_iter().map(|pod| {
        let image = pod.raw().pointer("/spec/containers/0/image").unwrap().as_str().unwrap().to_owned();
        let mark = match (pod.is_deleting(), pod.status()["phase"] == "Pending") {
            (true, _) => "x",
            (false, true) => "-",
            (false, false) => "",
        };
        format!("{} {image}{mark}", pod.name().trim_start_matches("db-"))
    });
    shown.collect()
}

/// The one Pod that does not run runs, or the one that is leaving is gone: in order, never are there two.
fn node_moves(cluster: &mut Cluster) -> bool {
    let pods = cluster.world.list(&POD, None);
    let moving: Vec<_> =
        pods.iter().filter(|pod| pod.is_deleting() || pod.status()["phase"] == "Pending").collect();
    assert!(moving.len() <= 1, "{moving:?}");
    let Some(pod) = moving.first() else { return false };
    if pod.is_deleting() {
        cluster.node_ends(&pod.key());
    } else {
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        cluster.node_runs(&pod.key(), &ready);
    }
    settle(cluster);
    true
}

fn run(cluster: &mut Cluster) {
    settle(cluster);
    while node_moves(cluster) {}
}

fn edit(cluster: &mut Cluster, spec: &Value) {
    cluster.edit(&STATEFUL_SET, &key(), &json!({"spec": spec}));
    settle(cluster);
}

fn status(cluster: &Cluster) -> Value {
    cluster.get(&STATEFUL_SET, &key()).unwrap()["status"].clone()
}

#[test]
fn pods_are_made_one_after_the_other_each_with_its_number() {
    let mut cluster = cluster(&json!({}));
    settle(&mut cluster);
    assert_eq!(pods(&cluster), ["0 db:1-"]);
    node_moves(&mut cluster);
    assert_eq!(pods(&cluster), ["0 db:1", "1 db:1-"]);
    run(&mut cluster);
    let pod = cluster.get(&POD, &Key::new(Some("n"), "db-2")).unwrap();
    assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("db-2"), &json!("db")));
    let status = status(&cluster);
    let revision = status["updateRevision"].as_str().unwrap();
    let labels = json!({"app": "db", "statefulset.kubernetes.io/pod-name": "db-2",
        "apps.kubernetes.io/pod-index": "2", REVISION: revision});
    assert_eq!(pod["metadata"]["labels"], labels);
    let expected = json!({"replicas": 3, "readyReplicas": 3, "availableReplicas": 3, "currentReplicas": 3,
        "updatedReplicas": 3, "currentRevision": revision, "updateRevision": revision, "observedGeneration": 1,
        "collisionCount": 0});
    assert_eq!(status, expected);
}

#[test]
fn scaling_down_takes_the_highest_first_and_waits_for_it_to_be_gone() {
    let mut cluster = cluster(&json!({}));
    run(&mut cluster);
    edit(&mut cluster, &json!({"replicas": 1}));
    assert_eq!(pods(&cluster), ["0 db:1", "1 db:1", "2 db:1x"]);
    node_moves(&mut cluster);
    assert_eq!(pods(&cluster), ["0 db:1", "1 db:1x"]);
    run(&mut cluster);
    assert_eq!(pods(&cluster), ["0 db:1"]);
    assert_eq!(status(&cluster)["replicas"], 1);
}

#[test]
fn parallel_pods_come_and_go_at_once() {
    let mut cluster = cluster(&json!({"podManagementPolicy": "Parallel", "ordinals": {"start": 5}}));
    settle(&mut cluster);
    assert_eq!(pods(&cluster), ["5 db:1-", "6 db:1-", "7 db:1-"]);
    edit(&mut cluster, &json!({"replicas": 0}));
    assert_eq!(pods(&cluster), Vec::<String>::new(), "what never ran is gone at once");
}

#[test]
fn an_update_goes_from_the_highest_down_to_the_partition() {
    let mut cluster = cluster(&json!({"updateStrategy": {"rollingUpdate": {"partition": 1}}}));
    run(&mut cluster);
    let before = status(&cluster)["currentRevision"].clone();
    edit(&mut cluster, &json!({"template": template("db:2")}));
    assert_eq!(pods(&cluster), ["0 db:1", "1 db:1", "2 db:1x"]);
    run(&mut cluster);
    assert_eq!(pods(&cluster), ["0 db:1", "1 db:2", "2 db:2"]);
    let half = status(&cluster);
    assert_eq!((&half["currentRevision"], &half["updatedReplicas"]), (&before, &json!(2)));
    // What dies below the partition comes back as it was.
    cluster.edit(&POD, &Key::new(Some("n"), "db-0"), &json!({"status": {"phase": "Failed"}}));
    run(&mut cluster);
    assert_eq!(pods(&cluster), ["0 db:1", "1 db:2", "2 db:2"]);
    edit(&mut cluster, &json!({"updateStrategy": {"rollingUpdate": {"partition": 0}}}));
    run(&mut cluster);
    assert_eq!(pods(&cluster), ["0 db:2", "1 db:2", "2 db:2"]);
    let whole = status(&cluster);
    assert_eq!(whole["currentRevision"], whole["updateRevision"]);
    assert_ne!(whole["currentRevision"], before);
}

#[test]
fn an_update_on_delete_waits_for_a_person() {
    let mut cluster = cluster(&json!({"updateStrategy": {"type": "OnDelete"}}));
    run(&mut cluster);
    edit(&mut cluster, &json!({"template": template("db:2")}));
    assert_eq!(pods(&cluster), ["0 db:1", "1 db:1", "2 db:1"]);
    cluster.delete(&POD, &Key::new(Some("n"), "db-1"), "Background");
    run(&mut cluster);
    assert_eq!(pods(&cluster), ["0 db:1", "1 db:2", "2 db:1"]);
}

#[test]
fn an_undo_makes_the_old_template_the_newest_again_and_history_is_bounded() {
    let mut cluster = cluster(&json!({"revisionHistoryLimit": 1}));
    run(&mut cluster);
    let first = status(&cluster)["currentRevision"].clone();
    edit(&mut cluster, &json!({"template": template("db:2")}));
    run(&mut cluster);
    edit(&mut cluster, &json!({"template": template("db:1")}));
    run(&mut cluster);
    assert_eq!(status(&cluster)["currentRevision"], first);
    let revision = cluster.get(&CONTROLLER_REVISION, &Key::new(Some("n"), first.as_str().unwrap())).unwrap();
    assert_eq!(revision["revision"], 3);
    assert_eq!(revision["data"]["spec"]["template"]["$patch"], "replace");
    for version in 3..=5 {
        edit(&mut cluster, &json!({"template": template(&format!("db:{version}"))}));
        run(&mut cluster);
    }
    assert_eq!(cluster.world.list(&CONTROLLER_REVISION, None).len(), 2);
}

#[test]
fn claims_are_made_with_their_pods_and_outlive_them() {
    let claim = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]);
    let mut cluster = cluster(&json!({"replicas": 2, "volumeClaimTemplates": claim}));
    run(&mut cluster);
    edit(&mut cluster, &json!({"replicas": 1}));
    run(&mut cluster);
    let claims = cluster.world.list(&PERSISTENT_VOLUME_CLAIM, None);
    assert_eq!(claims.iter().map(|claim| claim.name()).collect::<Vec<_>>(), ["data-db-0", "data-db-1"]);
    assert_eq!(claims[0].label("app"), Some("db"));
    let pod = cluster.get(&POD, &Key::new(Some("n"), "db-0")).unwrap();
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}]);
    assert_eq!(pod["spec"]["volumes"], volumes);
}

#[test]
fn a_refused_pod_is_told_of_and_tried_again_later() {
    let mut cluster = cluster(&json!({}));
    let body = json!({"kind": "Status", "reason": "Invalid", "message": "no such thing", "code": 422});
    cluster.refuse_create = Some((POD, 422, body));
    for _ in 0..3 {
        cluster.step(&AnyMachine::new(StatefulSets), &STATEFUL_SET, &key());
    }
    let (severity, reason, note) = &cluster.events[0];
    assert_eq!((severity.as_str(), reason.as_str()), ("Warning", "FailedCreate"));
    assert!(note.starts_with("create Pod db-0 in StatefulSet db failed error:"), "{note}");
}
