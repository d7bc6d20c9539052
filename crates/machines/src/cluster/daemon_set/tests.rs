use serde_json::{Value, json};

use super::*;
use crate::machine::AnyMachine;
use crate::testing::Cluster;

fn key() -> Key {
    Key::new(Some("n"), "agent")
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "agent"}},
        "spec": {"containers": [{"name": "main", "image": image}]}})
}

fn node(name: &str, more: &Value) -> Value {
    let mut node = json!({"kind": "Node", "metadata": {"name": name}});
    crate::testing::merge(&mut node, more);
    node
}

fn cluster(spec: &Value, nodes: &[Value]) -> Cluster {
    let mut set = json!({"kind": "DaemonSet", "metadata": {"name": "agent"}, "spec": {
        "selector": {"matchLabels": {"app": "agent"}}, "template": template("agent:1")}});
    crate::testing::merge(&mut set["spec"], spec);
    let mut cluster = Cluster::of(&[DAEMON_SET, POD, NODE, CONTROLLER_REVISION], &set.to_string());
    for node in nodes {
        cluster.put(node.clone());
    }
    cluster
}

fn settle(cluster: &mut Cluster) {
    cluster.settle(&[AnyMachine::new(DaemonSets)]);
}

/// Everything that was made runs, everything that is leaving is gone; `false` when there was nothing to do.
fn node_moves(cluster: &mut Cluster) -> bool {
    let pods = cluster.world.list(&POD, None);
    let moving: Vec<_> =
        pods.iter().filter(|pod| pod.is_deleting() || pod.status()["phase"] == "Pending").collect();
    for pod in &moving {
        if pod.is_deleting() {
            cluster.node_ends(&pod.key());
        } else {
            let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
            cluster.node_runs(&pod.key(), &ready);
        }
    }
    !moving.is_empty()
}

fn run(cluster: &mut Cluster) {
    settle(cluster);
    while node_moves(cluster) {
        settle(cluster);
    }
}

/// `node image` of every Pod, with `x` if it is leaving.
fn pods(cluster: &Cluster) -> Vec<String> {
    let mut shown: Vec<String> = cluster
        .world
        .list(&POD, None)
        .into_iter()
        .map(|pod| {
            let at = |pointer: &str| pod.raw().pointer(pointer).unwrap().as_str().unwrap().to_owned();
            let mark = if pod.is_deleting() { "x" } else { "" };
            format!("{} {}{mark}", at("/spec/nodeName"), at("/spec/containers/0/image"))
        })
        .collect();
    shown.sort();
    shown
}

fn status(cluster: &Cluster) -> Value {
    cluster.get(&DAEMON_SET, &key()).unwrap()["status"].clone()
}

#[test]
fn every_node_has_one_pod_and_a_node_that_goes_takes_its_pod_along() {
    let mut cluster = cluster(&json!({}), &[node("a", &json!({})), node("b", &json!({}))]);
    run(&mut cluster);
    assert_eq!(pods(&cluster), ["a agent:1", "b agent:1"]);
    let expected = json!({"desiredNumberScheduled": 2, "currentNumberScheduled": 2, "numberMisscheduled": 0,
        "numberReady": 2, "numberAvailable": 2, "updatedNumberScheduled": 2, "observedGeneration": 1});
    assert_eq!(status(&cluster), expected);
    cluster.put(node("c", &json!({})));
    cluster.delete(&NODE, &Key::new(None, "a"), "Background");
    run(&mut cluster);
    assert_eq!(pods(&cluster), ["b agent:1", "c agent:1"]);
}

#[test]
fn only_nodes_that_are_selected_and_tolerated_are_meant() {
    let taint =
        |key: &str| json!({"spec": {"taints": [{"key": key, "effect": "NoSchedule", "value": "yes"}]}});
    let labelled = json!({"metadata": {"labels": {"disk": "ssd"}}});
    let with = |key: &str| {
        let mut node = taint(key);
        crate::testing::merge(&mut node, &labelled);
        node
    };
    let nodes = [
        node("plain", &json!({})),
        node("ssd", &labelled),
        node("sick", &with("node.kubernetes.io/not-ready")),
        node("theirs", &with("example.com/theirs")),
        node("ours", &with("example.com/ours")),
    ];
    let tolerations = json!([{"key": "example.com/ours", "operator": "Equal", "value": "yes"}]);
    let pod = json!({"nodeSelector": {"disk": "ssd"}, "tolerations": tolerations});
    let mut cluster = cluster(&json!({"template": {"spec": pod}}), &nodes);
    run(&mut cluster);
    assert_eq!(pods(&cluster), ["ours agent:1", "sick agent:1", "ssd agent:1"]);
}

#[test]
fn an_update_goes_node_by_node() {
    let nodes = ["a", "b", "c"].map(|name| node(name, &json!({})));
    let mut cluster = cluster(&json!({}), &nodes);
    run(&mut cluster);
    cluster.edit(&DAEMON_SET, &key(), &json!({"spec": {"template": template("agent:2")}}));
    settle(&mut cluster);
    assert_eq!(pods(&cluster), ["a agent:1x", "b agent:1", "c agent:1"]);
    while node_moves(&mut cluster) {
        settle(&mut cluster);
        assert!(status(&cluster)["numberUnavailable"].as_i64().unwrap_or_default() <= 1);
    }
    assert_eq!(pods(&cluster), ["a agent:2", "b agent:2", "c agent:2"]);
    assert_eq!(status(&cluster)["updatedNumberScheduled"], 3);
}

#[test]
fn a_pod_that_ended_is_made_again_and_on_delete_nothing_is_updated() {
    let mut cluster = cluster(&json!({"updateStrategy": {"type": "OnDelete"}}), &[node("a", &json!({}))]);
    run(&mut cluster);
    cluster.edit(&DAEMON_SET, &key(), &json!({"spec": {"template": template("agent:2")}}));
    run(&mut cluster);
    assert_eq!(pods(&cluster), ["a agent:1"]);
    let pod = cluster.world.list(&POD, None)[0].key();
    cluster.edit(&POD, &pod, &json!({"status": {"phase": "Failed"}}));
    run(&mut cluster);
    assert_eq!(pods(&cluster), ["a agent:2"]);
}
