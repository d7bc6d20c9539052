use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::cluster::garbage::Garbage;
use crate::cluster::replica_set::ReplicaSets;
use crate::machine::AnyMachine;
use crate::testing::Cluster;

fn key() -> Key {
    Key::new(Some("n"), "web")
}

fn machines() -> [AnyMachine; 3] {
    [AnyMachine::new(Deployments), AnyMachine::new(ReplicaSets), AnyMachine::new(Garbage)]
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": image}]}})
}

fn cluster(spec: &Value) -> Cluster {
    let mut deployment = json!({"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 3,
        "selector": {"matchLabels": {"app": "web"}}, "template": template("web:1")}});
    crate::testing::merge(&mut deployment["spec"], spec);
    Cluster::of(&[DEPLOYMENT, REPLICA_SET, POD], &deployment.to_string())
}

/// Everything written, without any Pod getting any further.
fn settle(cluster: &mut Cluster) {
    cluster.settle(&machines());
}

/// One Pod that does not run is ready, or one that is leaving is gone; `false` when there is none.
fn node_moves(cluster: &mut Cluster) -> bool {
    let pods = cluster.world.list(&POD, None);
    let Some(pod) = pods.iter().find(|pod| pod.is_deleting() || pod.status()["phase"] == "Pending") else {
        return false;
    };
    if pod.is_deleting() {
        cluster.node_ends(&pod.key());
    } else {
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        cluster.node_runs(&pod.key(), &ready);
    }
    true
}

/// Runs it all to the end, and checks at every moment how many Pods there are.
fn run(cluster: &mut Cluster, available: std::ops::RangeInclusive<usize>, all: usize) {
    settle(cluster);
    while node_moves(cluster) {
        settle(cluster);
        let pods = cluster.world.list(&POD, None);
        let active = pods.iter().filter(|pod| !pod.is_deleting());
        let ready = active.clone().filter(|pod| pod.status()["phase"] == "Running").count();
        assert!(available.contains(&ready), "{ready} Pods are available, not {available:?}");
        assert!(active.count() <= all);
    }
}

fn edit(cluster: &mut Cluster, spec: &Value) {
    cluster.edit(&DEPLOYMENT, &key(), &json!({"spec": spec}));
}

fn status(cluster: &Cluster) -> Value {
    cluster.get(&DEPLOYMENT, &key()).unwrap()["status"].clone()
}

/// `status reason message` of a condition.
fn condition(cluster: &Cluster, type_: &str) -> String {
    let status = status(cluster);
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|one| one["type"] == type_);
    found.map_or_else(String::new, |one| {
        let text = |field: &str| one[field].as_str().unwrap().to_owned();
        format!("{} {} {}", text("status"), text("reason"), text("message"))
    })
}

/// `image revision size` of every set, oldest revision first.
fn sets(cluster: &Cluster) -> Vec<String> {
    let mut sets: Vec<_> = cluster.world.list(&REPLICA_SET, None);
    sets.sort_by_key(|set| set.annotation(REVISION).map(str::to_owned));
    let shown = sets.iter().map(|set| {
        let image = set.raw().pointer("/spec/template/spec/containers/0/image").unwrap().as_str().unwrap();
        format!("{image} {} {}", set.annotation(REVISION).unwrap(), set.raw()["spec"]["replicas"])
    });
    shown.collect()
}

#[test]
fn a_new_deployment_makes_one_set_named_by_its_template_and_becomes_available() {
    let mut cluster = cluster(&json!({}));
    settle(&mut cluster);
    assert!(condition(&cluster, "Available").starts_with("False MinimumReplicasUnavailable"));
    run(&mut cluster, 0..=3, 3);
    let set = cluster.world.list(&REPLICA_SET, None).remove(0);
    let hash = set.label(TEMPLATE_HASH).unwrap().to_owned();
    assert_eq!(set.name(), format!("web-{hash}"));
    assert_eq!(set.raw()["spec"]["selector"]["matchLabels"], json!({"app": "web", TEMPLATE_HASH: hash}));
    assert_eq!((set.annotation(DESIRED), set.annotation(MAX)), (Some("3"), Some("4")));
    let deployment = cluster.world.get(&DEPLOYMENT, &key()).unwrap();
    assert_eq!(deployment.annotation(REVISION), Some("1"));
    let mut counts = status(&cluster);
    counts.as_object_mut().unwrap().remove("conditions");
    let expected = json!({"observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3,
        "availableReplicas": 3});
    assert_eq!(counts, expected);
    assert_eq!(
        condition(&cluster, "Available"),
        "True MinimumReplicasAvailable Deployment has minimum availability."
    );
    assert_eq!(
        condition(&cluster, "Progressing"),
        format!("True NewReplicaSetAvailable ReplicaSet \"web-{hash}\" has successfully progressed.")
    );
    assert!(cluster.events.iter().any(|(_, reason, note)| {
        reason == "ScalingReplicaSet" && *note == format!("Scaled up replica set web-{hash} from 0 to 3")
    }));
}

#[test]
fn a_rolling_update_keeps_within_its_limits_and_keeps_the_old_set_for_an_undo() {
    for (surge, unavailable, least, most) in [(1, 0, 3, 4), (0, 1, 2, 3), (3, 3, 0, 6)] {
        let rolling = json!({"strategy": {"type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}});
        let mut cluster = cluster(&rolling);
        run(&mut cluster, 0..=3, 3);
        edit(&mut cluster, &json!({"template": template("web:2")}));
        run(&mut cluster, least..=most, most);
        assert_eq!(sets(&cluster), ["web:1 1 0", "web:2 2 3"]);
        assert!(condition(&cluster, "Progressing").starts_with("True NewReplicaSetAvailable"));
        // `kubectl rollout undo` puts the old template back: the same set, as a new revision.
        edit(&mut cluster, &json!({"template": template("web:1")}));
        run(&mut cluster, least..=most, most);
        assert_eq!(sets(&cluster), ["web:2 2 0", "web:1 3 3"]);
        let again = cluster.world.list(&REPLICA_SET, None);
        let again = again.iter().find(|set| set.annotation(REVISION) == Some("3")).unwrap();
        assert_eq!(again.annotation(REVISION_HISTORY), Some("1"));
    }
}

#[test]
fn recreating_waits_until_the_last_old_pod_is_gone() {
    let mut cluster = cluster(&json!({"strategy": {"type": "Recreate"}}));
    run(&mut cluster, 0..=3, 3);
    edit(&mut cluster, &json!({"template": template("web:2")}));
    settle(&mut cluster);
    assert_eq!(sets(&cluster), ["web:1 1 0"], "the old Pods are still leaving");
    run(&mut cluster, 0..=3, 3);
    assert_eq!(sets(&cluster), ["web:1 1 0", "web:2 2 3"]);
}

#[test]
fn history_beyond_the_limit_goes_when_a_rollout_is_complete() {
    let mut cluster = cluster(&json!({"revisionHistoryLimit": 1}));
    for version in 2..=4 {
        run(&mut cluster, 0..=6, 6);
        edit(&mut cluster, &json!({"template": template(&format!("web:{version}"))}));
        settle(&mut cluster);
    }
    run(&mut cluster, 0..=6, 6);
    assert_eq!(sets(&cluster), ["web:3 3 0", "web:4 4 3"]);
}

#[test]
fn a_paused_deployment_scales_but_does_not_roll() {
    let mut cluster = cluster(&json!({}));
    run(&mut cluster, 0..=3, 3);
    edit(&mut cluster, &json!({"paused": true, "replicas": 5, "template": template("web:2")}));
    run(&mut cluster, 0..=5, 5);
    assert_eq!(sets(&cluster), ["web:1 1 5"]);
    assert_eq!(condition(&cluster, "Progressing"), "Unknown DeploymentPaused Deployment is paused");
    edit(&mut cluster, &json!({"paused": null}));
    run(&mut cluster, 0..=9, 9);
    assert_eq!(sets(&cluster), ["web:1 1 0", "web:2 2 5"]);
    assert!(condition(&cluster, "Progressing").starts_with("True NewReplicaSetAvailable"));
}

#[test]
fn scaling_moves_the_one_set_and_spreads_over_a_rollout_that_is_stuck() {
    let mut cluster = cluster(&json!({"replicas": 10}));
    run(&mut cluster, 0..=10, 10);
    edit(&mut cluster, &json!({"replicas": 4}));
    run(&mut cluster, 0..=10, 10);
    assert_eq!(sets(&cluster), ["web:1 1 4"]);
    edit(&mut cluster, &json!({"replicas": 10}));
    run(&mut cluster, 0..=10, 10);
    // The example of Kubernetes' documentation: 10 replicas, at most 3 more and 2 fewer, and the new image never starts.
    let rolling = json!({"rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}});
    edit(&mut cluster, &json!({"strategy": rolling, "template": template("web:2")}));
    settle(&mut cluster);
    while cluster.world.list(&POD, None).iter().any(|pod| pod.is_deleting()) {
        let leaving = cluster.world.list(&POD, None).into_iter().find(|pod| pod.is_deleting()).unwrap();
        cluster.node_ends(&leaving.key());
        settle(&mut cluster);
    }
    assert_eq!(sets(&cluster), ["web:1 1 8", "web:2 2 5"]);
    edit(&mut cluster, &json!({"replicas": 15}));
    settle(&mut cluster);
    assert_eq!(sets(&cluster), ["web:1 1 11", "web:2 2 7"]);
}

#[test]
fn a_rollout_without_progress_is_said_to_be_stuck_and_recovers() {
    let mut cluster = cluster(&json!({"progressDeadlineSeconds": 60}));
    settle(&mut cluster);
    cluster.advance(Duration::from_secs(60));
    settle(&mut cluster);
    assert!(condition(&cluster, "Progressing").starts_with("True"), "exactly at the deadline it is not over");
    cluster.advance(Duration::from_secs(1));
    settle(&mut cluster);
    let name = cluster.world.list(&REPLICA_SET, None)[0].name().to_owned();
    assert_eq!(
        condition(&cluster, "Progressing"),
        format!("False ProgressDeadlineExceeded ReplicaSet {name:?} has timed out progressing.")
    );
    run(&mut cluster, 0..=3, 3);
    assert!(condition(&cluster, "Progressing").starts_with("True NewReplicaSetAvailable"));
}

#[test]
fn a_taken_name_is_avoided_by_counting_collisions() {
    let mut cluster = cluster(&json!({}));
    let deployment = cluster.world.get(&DEPLOYMENT, &key()).unwrap().parse::<Deployment>().unwrap();
    let taken = set_name("web", &hash(&deployment.spec.as_ref().unwrap().template, 0));
    let theirs = json!({"kind": "ReplicaSet", "metadata": {"name": taken}, "spec": {"replicas": 0,
        "selector": {"matchLabels": {"app": "web", "of": "x"}}, "template": {"metadata": {"labels": {"app": "web", "of": "x"}},
            "spec": template("x")["spec"]}}});
    cluster.put(theirs);
    cluster.settle(&[AnyMachine::new(Deployments), AnyMachine::new(ReplicaSets)]);
    assert_eq!(status(&cluster)["collisionCount"], 1);
    assert_eq!(cluster.world.owned(&REPLICA_SET, "deployment-web").len(), 1);
}

#[test]
fn the_failure_of_a_set_is_told_by_its_deployment() {
    let mut cluster = cluster(&json!({}));
    let body = json!({"kind": "Status", "reason": "Forbidden", "message": "exceeded quota", "code": 403});
    cluster.refuse_create = Some((POD, 403, body));
    let set_machine = AnyMachine::new(ReplicaSets);
    cluster.step(&AnyMachine::new(Deployments), &DEPLOYMENT, &key());
    let set = cluster.world.list(&REPLICA_SET, None)[0].key();
    cluster.step(&set_machine, &REPLICA_SET, &set);
    cluster.step(&set_machine, &REPLICA_SET, &set);
    cluster.step(&AnyMachine::new(Deployments), &DEPLOYMENT, &key());
    cluster.step(&AnyMachine::new(Deployments), &DEPLOYMENT, &key());
    assert!(condition(&cluster, "ReplicaFailure").starts_with("True FailedCreate"));
    cluster.refuse_create = None;
    run(&mut cluster, 0..=3, 3);
    assert_eq!(condition(&cluster, "ReplicaFailure"), "");
}
