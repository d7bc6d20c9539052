//! What keeps pods running in the embedded control plane: rollouts and scaling, whatever goes wrong on the way.

use pawl_api::k8s::{DEPLOYMENT, POD, REPLICA_SET};
use pawl_machines::cluster::deployment::Deployments;
use pawl_machines::cluster::garbage::Garbage;
use pawl_machines::cluster::replica_set::ReplicaSets;
use pawl_machines::machine::AnyMachine;
use serde_json::{Value, json};

use crate::ground::Ground;
use crate::mutant::Guards;
use crate::scenario::{Deed, Scenario};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "deployment",
            about: "a Deployment rolls out, and again with another image, one pod at a time",
            own_kinds: false,
            machines,
            script: || vec![deployment(&json!({})), new_image().when(is_rolled_out)],
            ends_with: |ground| {
                rolled_out(ground)?;
                sizes(ground, &[("v1", 0), ("v2", 3)])
            },
        },
        Scenario {
            name: "deployment-recreate",
            about: "a Deployment that recreates ends all old pods first, and forgets the old set",
            own_kinds: false,
            machines,
            script: || {
                let recreate = json!({"strategy": {"type": "Recreate"}, "revisionHistoryLimit": 0});
                vec![deployment(&recreate), new_image().when(is_rolled_out)]
            },
            ends_with: |ground| {
                rolled_out(ground)?;
                sizes(ground, &[("v2", 3)])
            },
        },
        Scenario {
            name: "deployment-delete",
            about: "a Deployment deleted in the middle of its rollout takes all below along",
            own_kinds: false,
            machines,
            script: || {
                vec![
                    deployment(&json!({})),
                    Deed::delete(DEPLOYMENT, Some("default"), "web", "Background")
                        .when(|ground| ground.all(&POD).count() == 3),
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

fn machines(_: Guards) -> Vec<AnyMachine> {
    vec![AnyMachine::new(Garbage), AnyMachine::new(Deployments), AnyMachine::new(ReplicaSets)]
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": image, "command": ["hang"]}]}})
}

fn deployment(more: &Value) -> Deed {
    let mut spec = json!({"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template("v1"),
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
    if number("observedGeneration") == deployment.generation() && counts == [3, 3, 3] {
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
