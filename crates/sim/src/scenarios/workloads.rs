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

use crate::ground::Ground;
use crate::mutant::Guards;
use crate::scenario::{Deed, Scenario};

pub(super) fn all() -> Vec<Scenario> {
    [deployments(), sets(), namespaces()].into_iter().flatten().collect()
}

fn deployments() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "deployment",
            about: "a Deployment rolls out, and again with another image, one pod at a time",
            own_kinds: false,
            timed: false,
            stalls: true,
            alone: false,
            github: None,
            machines,
            script: || vec![deployment(&json!({})), new_image().when(is_rolled_out)],
            ends_with: |ground| {
                rolled_out(ground)?;
                sizes(ground, &[("v1", 0), ("v2", 2)])
            },
        },
        Scenario {
            name: "deployment-recreate",
            about: "a Deployment that recreates ends all old pods first, and forgets the old set",
            own_kinds: false,
            timed: false,
            stalls: true,
            alone: false,
            github: None,
            machines,
            script: || {
                let recreate = json!({"strategy": {"type": "Recreate"}, "revisionHistoryLimit": 0});
                vec![deployment(&recreate), new_image().when(is_rolled_out)]
            },
            ends_with: |ground| {
                rolled_out(ground)?;
                sizes(ground, &[("v2", 2)])
            },
        },
        Scenario {
            name: "deployment-delete",
            about: "a Deployment deleted in the middle of its rollout takes all below along",
            own_kinds: false,
            timed: false,
            stalls: true,
            alone: false,
            github: None,
            machines,
            script: || {
                vec![
                    deployment(&json!({})),
                    Deed::delete(DEPLOYMENT, Some("default"), "web", "Background")
                        .when(|ground| ground.all(&POD).count() == 2),
                ]
            },
            ends_with: |ground| {
                let kinds = [DEPLOYMENT, REPLICA_SET, POD];
                match kinds.iter().map(|kind| ground.all(kind).count()).sum::<usize>() {
                    0 => Ok(()),
                    left => Err(format!("{left} objects are left")),
                }
            },
        },
    ]
}

fn sets() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "statefulset-scale-down",
            about: "a StatefulSet grows in order and shrinks from the highest, one at a time; its claims stay",
            own_kinds: false,
            timed: false,
            stalls: true,
            alone: false,
            github: None,
            machines,
            script: || {
                let claims = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}}}}]);
                let spec = json!({"replicas": 3, "serviceName": "web", "volumeClaimTemplates": claims});
                let down =
                    Deed::patch(STATEFUL_SET, Some("default"), "web", json!({"spec": {"replicas": 1}}));
                vec![
                    set(STATEFUL_SET, spec),
                    down.when(|ground| has(ground, &STATEFUL_SET, "readyReplicas", 3)),
                ]
            },
            ends_with: |ground| {
                in_order(ground)?;
                if !has(ground, &STATEFUL_SET, "replicas", 1) || ground.all(&POD).count() != 1 {
                    return Err("it is not scaled down".into());
                }
                match ground.all(&PERSISTENT_VOLUME_CLAIM).count() {
                    3 => Ok(()),
                    claims => Err(format!("{claims} claims are left")),
                }
            },
        },
        Scenario {
            name: "statefulset-update",
            about: "a StatefulSet gets a new image and the old one back, and forgets what lies between",
            own_kinds: false,
            timed: false,
            stalls: true,
            alone: false,
            github: None,
            machines,
            script: || {
                let spec = json!({"replicas": 2, "serviceName": "web"});
                let image = |image| {
                    Deed::patch(
                        STATEFUL_SET,
                        Some("default"),
                        "web",
                        json!({"spec": {"template": template(image)}}),
                    )
                };
                vec![
                    set(STATEFUL_SET, spec),
                    image("v2").when(|ground| all_are(ground, "v1")),
                    image("v1").when(|ground| all_are(ground, "v2")),
                    forget(STATEFUL_SET).when(|ground| all_are(ground, "v1")),
                ]
            },
            ends_with: |ground| match all_are(ground, "v1") {
                true => Ok(()),
                false => Err("not all pods are of the first image".into()),
            },
        },
        Scenario {
            name: "daemonset",
            about: "a DaemonSet has a pod on each node, updates them, and leaves a node that goes",
            own_kinds: false,
            timed: false,
            stalls: true,
            alone: false,
            github: None,
            machines,
            script: || {
                let node = |name| Deed::create(NODE, json!({"metadata": {"name": name}}));
                let image = |image| {
                    Deed::patch(
                        DAEMON_SET,
                        Some("default"),
                        "web",
                        json!({"spec": {"template": template(image)}}),
                    )
                };
                let updated = |ground: &Ground| {
                    all_are(ground, "v2") && has(ground, &DAEMON_SET, "updatedNumberScheduled", 2)
                };
                vec![
                    node("a"),
                    node("b"),
                    set(DAEMON_SET, json!({})),
                    image("v2").when(|ground| has(ground, &DAEMON_SET, "numberAvailable", 2)),
                    image("v1").when(updated),
                    forget(DAEMON_SET).when(|ground| all_are(ground, "v1")),
                    Deed::delete(NODE, None, "a", "Background"),
                ]
            },
            ends_with: |ground| {
                let left: Vec<_> =
                    ground.all(&POD).filter_map(|pod| pod.raw().pointer("/spec/nodeName")).collect();
                if left == ["b"] { Ok(()) } else { Err(format!("there are pods on {left:?}")) }
            },
        },
    ]
}

fn namespaces() -> Vec<Scenario> {
    vec![Scenario {
        name: "namespace-defaults",
        about: "every namespace has its account and the certificate, also after somebody took them",
        own_kinds: false,
        timed: false,
        stalls: true,
        alone: false,
        github: None,
        machines: |_| {
            let certificate = "a certificate".to_owned();
            vec![AnyMachine::new(ServiceAccounts), AnyMachine::new(RootCertificates { certificate })]
        },
        script: || {
            let there = |ground: &Ground| ground.get(&CONFIG_MAP, "new", "kube-root-ca.crt").is_some();
            vec![
                Deed::create(NAMESPACE, json!({"metadata": {"name": "new"}})),
                Deed::patch(
                    CONFIG_MAP,
                    Some("new"),
                    "kube-root-ca.crt",
                    json!({"data": {"ca.crt": "another"}}),
                )
                .when(there),
                Deed::delete(SERVICE_ACCOUNT, Some("new"), "default", "Background")
                    .when(|ground| ground.get(&SERVICE_ACCOUNT, "new", "default").is_some()),
            ]
        },
        ends_with: |ground| {
            let map = ground.get(&CONFIG_MAP, "new", "kube-root-ca.crt").ok_or("there is no certificate")?;
            let certificate = map.raw().pointer("/data/ca.crt").and_then(Value::as_str);
            let account = ground.get(&SERVICE_ACCOUNT, "new", "default");
            match (certificate, account) {
                (Some("a certificate"), Some(_)) => Ok(()),
                found => Err(format!("the namespace has {found:?}")),
            }
        },
    }]
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

fn deployment(more: &Value) -> Deed {
    let mut spec = json!({"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template("v1"),
        "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}});
    if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
        spec.extend(more.clone());
    }
    Deed::create(DEPLOYMENT, json!({"metadata": {"name": "web", "namespace": "default"}, "spec": spec}))
}

fn new_image() -> Deed {
    Deed::patch(DEPLOYMENT, Some("default"), "web", json!({"spec": {"template": template("v2")}}))
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
    if found == expected { Ok(()) } else { Err(format!("the sets are {found:?}, not {expected:?}")) }
}

/// A StatefulSet or DaemonSet `web` of the first image.
fn set(kind: Kind, mut spec: Value) -> Deed {
    if let Some(spec) = spec.as_object_mut() {
        spec.insert("selector".to_owned(), json!({"matchLabels": {"app": "web"}}));
        spec.insert("template".to_owned(), template("v1"));
    }
    Deed::create(kind, json!({"metadata": {"name": "web", "namespace": "default"}, "spec": spec}))
}

fn forget(kind: Kind) -> Deed {
    Deed::patch(kind, Some("default"), "web", json!({"spec": {"revisionHistoryLimit": 0}}))
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
    let of = |what: ChangeType| -> Vec<&str> {
        let pods =
            ground.history.iter().filter(|happened| *happened.object.kind() == POD && happened.what == what);
        pods.map(|happened| happened.object.name()).collect()
    };
    let (made, gone) = (of(ChangeType::Added), of(ChangeType::Deleted));
    if made == ["web-0", "web-1", "web-2"] && gone == ["web-2", "web-1"] {
        return Ok(());
    }
    Err(format!("made in the order {made:?}, gone in the order {gone:?}"))
}
