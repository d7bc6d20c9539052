//! What keeps pods running in the embedded control plane: rollouts and scaling, whatever goes wrong on the way.

use pawl_api::k8s::{
    CONFIG_MAP, DAEMON_SET, DEPLOYMENT, NAMESPACE, NODE, PERSISTENT_VOLUME_CLAIM, POD, REPLICA_SET,
    SERVICE_ACCOUNT, STATEFUL_SET,
};
use pawl_api::meta::Kind;
use pawl_apiserver::ChangeType;
use pawl_machines::cluster::daemon_set::DaemonSets;
use pawl_machines::cluster::deployment::Deployments;
use pawl_machines::cluster::garbage::Garbage;
use pawl_machines::cluster::replica_set::ReplicaSets;
use pawl_machines::cluster::service_account::{RootCertificates, ServiceAccounts};
use pawl_machines::cluster::stateful_set::StatefulSets;
use pawl_machines::machine::AnyMachine;
use pawl_machines::object::Object;
use serde_json::{Value, json};

use super::expect::{self, count, names_of, none_left};
use super::merged;
use crate::ground::Ground;
use crate::mutant::Guards;
use crate::scenario::{Deed, Scenario};

pub(super) fn all() -> Vec<Scenario> {
    [deployments(), sets(), namespaces()].into_iter().flatten().collect()
}

fn deployments() -> Vec<Scenario> {
    vec![
        scenario("deployment", "a Deployment rolls out, and again with another image, one pod at a time")
            .script(|| vec![deployment(one_at_a_time()), new_image(DEPLOYMENT, "v2").when(is_rolled_out)])
            .ends_with(|ground| {
                rolled_out(ground)?;
                sizes(ground, &[("v1", 0), ("v2", 2)])
            }),
        scenario(
            "deployment-recreate",
            "a Deployment that recreates ends all old pods first, and forgets the old set",
        )
        .script(|| {
            let recreate = json!({"strategy": {"type": "Recreate"}, "revisionHistoryLimit": 0});
            vec![deployment(recreate), new_image(DEPLOYMENT, "v2").when(is_rolled_out)]
        })
        .ends_with(|ground| {
            rolled_out(ground)?;
            sizes(ground, &[("v2", 2)])
        }),
        scenario(
            "deployment-delete",
            "a Deployment deleted in the middle of its rollout takes all below along",
        )
        .script(|| {
            vec![
                deployment(one_at_a_time()),
                Deed::delete(DEPLOYMENT, "web").when(|ground| ground.all(&POD).count() == 2),
            ]
        })
        .ends_with(|ground| none_left(ground, &[DEPLOYMENT, REPLICA_SET, POD])),
    ]
}

fn sets() -> Vec<Scenario> {
    vec![
        scenario(
            "statefulset-scale-down",
            "a StatefulSet grows in order and shrinks from the highest, one at a time; its claims stay",
        )
        .script(|| {
            let claims = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}}}}]);
            let spec = json!({"replicas": 3, "serviceName": "web", "volumeClaimTemplates": claims});
            let down = Deed::patch(STATEFUL_SET, "web", json!({"spec": {"replicas": 1}}));
            vec![set(STATEFUL_SET, spec), down.when(|ground| has(ground, &STATEFUL_SET, "readyReplicas", 3))]
        })
        .ends_with(|ground| {
            in_order(ground)?;
            expect::equal("is scaled down", has(ground, &STATEFUL_SET, "replicas", 1), true)?;
            expect::equal("pods left", count(ground, &[POD]), 1)?;
            expect::equal("claims left", count(ground, &[PERSISTENT_VOLUME_CLAIM]), 3)
        }),
        scenario(
            "statefulset-update",
            "a StatefulSet gets a new image and the old one back, and forgets what lies between",
        )
        .script(|| {
            let spec = json!({"replicas": 2, "serviceName": "web"});
            vec![
                set(STATEFUL_SET, spec),
                new_image(STATEFUL_SET, "v2").when(|ground| all_are(ground, "v1")),
                new_image(STATEFUL_SET, "v1").when(|ground| all_are(ground, "v2")),
                forget(STATEFUL_SET).when(|ground| all_are(ground, "v1")),
            ]
        })
        .ends_with(|ground| expect::equal("all pods are of the first image", all_are(ground, "v1"), true)),
        scenario(
            "daemonset",
            "a DaemonSet has a pod on each node, updates them, and leaves a node that goes",
        )
        .script(|| {
            let node = |name| Deed::create(NODE, json!({"metadata": {"name": name}}));
            let updated = |ground: &Ground| {
                all_are(ground, "v2") && has(ground, &DAEMON_SET, "updatedNumberScheduled", 2)
            };
            vec![
                node("a"),
                node("b"),
                set(DAEMON_SET, json!({})),
                new_image(DAEMON_SET, "v2").when(|ground| has(ground, &DAEMON_SET, "numberAvailable", 2)),
                new_image(DAEMON_SET, "v1").when(updated),
                forget(DAEMON_SET).when(|ground| all_are(ground, "v1")),
                Deed::delete(NODE, "a"),
            ]
        })
        .ends_with(|ground| {
            let left: Vec<_> =
                ground.all(&POD).filter_map(|pod| pod.raw().pointer("/spec/nodeName")).collect();
            expect::equal("nodes with pods", left, ["b"])
        }),
    ]
}

fn namespaces() -> Vec<Scenario> {
    vec![
        scenario(
            "namespace-defaults",
            "every namespace has its account and the certificate, also after somebody took them",
        )
        .machines(|_| {
            let certificate = "a certificate".to_owned();
            vec![AnyMachine::new(ServiceAccounts), AnyMachine::new(RootCertificates { certificate })]
        })
        .script(|| {
            let there = |ground: &Ground| ground.get(&CONFIG_MAP, "new", "kube-root-ca.crt").is_some();
            vec![
                Deed::create(NAMESPACE, json!({"metadata": {"name": "new"}})),
                Deed::patch(CONFIG_MAP, "kube-root-ca.crt", json!({"data": {"ca.crt": "another"}}))
                    .in_namespace("new")
                    .when(there),
                Deed::delete(SERVICE_ACCOUNT, "default")
                    .in_namespace("new")
                    .when(|ground| ground.get(&SERVICE_ACCOUNT, "new", "default").is_some()),
            ]
        })
        .ends_with(|ground| {
            let map = ground.get(&CONFIG_MAP, "new", "kube-root-ca.crt").ok_or("there is no certificate")?;
            let certificate = map.raw().pointer("/data/ca.crt").and_then(Value::as_str);
            let account = ground.get(&SERVICE_ACCOUNT, "new", "default");
            match (certificate, account) {
                (Some("a certificate"), Some(_)) => Ok(()),
                found => Err(format!("the namespace has {found:?}")),
            }
        }),
    ]
}

fn scenario(name: &'static str, about: &'static str) -> Scenario {
    Scenario::new(name, about).without_own_kinds().machines(machines)
}

fn machines(_: Guards) -> Vec<AnyMachine> {
    vec![
        AnyMachine::new(Garbage),
        AnyMachine::new(Deployments),
        AnyMachine::new(ReplicaSets),
        AnyMachine::new(StatefulSets),
        AnyMachine::new(DaemonSets),
    ]
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": image, "command": ["hang"]}]}})
}

fn deployment(more: Value) -> Deed {
    set(DEPLOYMENT, merged(json!({"replicas": 2}), more))
}

fn one_at_a_time() -> Value {
    json!({"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}})
}

/// The Deployment, StatefulSet or DaemonSet `web` gets an image.
fn new_image(kind: Kind, image: &str) -> Deed {
    Deed::patch(kind, "web", json!({"spec": {"template": template(image)}}))
}

fn is_rolled_out(ground: &Ground) -> bool {
    rolled_out(ground).is_ok()
}

/// What `kubectl rollout status` waits for.
fn rolled_out(ground: &Ground) -> Result<(), String> {
    let deployment = ground.get(&DEPLOYMENT, "default", "web").ok_or("there is no Deployment")?;
    let number = |field: &str| deployment.status().get(field).and_then(Value::as_i64).unwrap_or_default();
    let counts = ["replicas", "updatedReplicas", "availableReplicas"].map(number);
    if number("observedGeneration") == deployment.generation() && counts == [2, 2, 2] {
        return Ok(());
    }
    Err(format!("not rolled out: {}", deployment.status()))
}

fn sizes(ground: &Ground, expected: &[(&str, i64)]) -> Result<(), String> {
    let mut found: Vec<(String, i64)> = ground
        .all(&REPLICA_SET)
        .map(|set| {
            let image = set.raw().pointer("/spec/template/spec/containers/0/image").and_then(Value::as_str);
            let size = set.raw().pointer("/spec/replicas").and_then(Value::as_i64);
            (image.unwrap_or_default().to_owned(), size.unwrap_or_default())
        })
        .collect();
    found.sort();
    let expected: Vec<(String, i64)> =
        expected.iter().map(|(image, size)| ((*image).to_owned(), *size)).collect();
    expect::equal("sizes of the sets", found, expected)
}

/// A Deployment, StatefulSet or DaemonSet `web` of the first image.
fn set(kind: Kind, spec: Value) -> Deed {
    let first = json!({"selector": {"matchLabels": {"app": "web"}}, "template": template("v1")});
    Deed::create_with_spec(kind, "web", merged(spec, first))
}

fn forget(kind: Kind) -> Deed {
    Deed::patch(kind, "web", json!({"spec": {"revisionHistoryLimit": 0}}))
}

/// Whether an object `web` says this of its present generation.
fn has(ground: &Ground, kind: &Kind, field: &str, number: i64) -> bool {
    let found = ground.get(kind, "default", "web");
    let told = |field: &str| found.and_then(|found| found.status().get(field)).and_then(Value::as_i64);
    told("observedGeneration") == found.map(|found| found.generation()) && told(field) == Some(number)
}

/// Whether there are two pods, both of this image and ready.
fn all_are(ground: &Ground, image: &str) -> bool {
    let is = |pod: &Object| {
        let at = |pointer: &str| pod.raw().pointer(pointer).and_then(Value::as_str);
        at("/spec/containers/0/image") == Some(image)
            && at("/status/conditions/0/status") == Some("True")
            && !pod.is_deleting()
    };
    ground.all(&POD).count() == 2 && ground.all(&POD).all(|pod| is(pod))
}

/// Pods come from the lowest and go from the highest.
fn in_order(ground: &Ground) -> Result<(), String> {
    let in_order_of = |what| names_of(ground, &POD, what);
    expect::equal("made", in_order_of(ChangeType::Added), ["web-0", "web-1", "web-2"])?;
    expect::equal("gone", in_order_of(ChangeType::Deleted), ["web-2", "web-1"])
}
