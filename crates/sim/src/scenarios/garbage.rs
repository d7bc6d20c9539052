//! Owner-reference garbage collection: what goes, what stays, in which order.

use pawl_api::k8s::{CONFIG_MAP, SECRET};
use pawl_api::meta::Kind;
use pawl_machines::cluster::garbage::Garbage;
use pawl_machines::machine::AnyMachine;
use serde_json::{Value, json};

use crate::ground::Ground;
use crate::mutant::Guards;
use crate::scenario::{Act, Deed, Scenario};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "garbage",
            about: "children go after their owner, and grandchildren after them",
            own_kinds: false,
            timed: false,
            stalls: true,
            alone: false,
            github: None,
            machines,
            script: || {
                let mut script = family();
                script.push(delete("owner", "Background"));
                script
            },
            ends_with: |ground| left(ground, &["other"]),
        },
        Scenario {
            name: "garbage-foreground",
            about: "an owner deleted in the foreground goes last",
            own_kinds: false,
            timed: false,
            stalls: true,
            alone: false,
            github: None,
            machines,
            script: || {
                let mut script = family();
                script.push(delete("owner", "Foreground"));
                script
            },
            ends_with: |ground| {
                left(ground, &["other"])?;
                let gone =
                    |name: &str| ground.history.iter().rposition(|happened| happened.object.name() == name);
                if gone("owner") > gone("child-a") {
                    Ok(())
                } else {
                    Err("the owner went before its child".into())
                }
            },
        },
        Scenario {
            name: "garbage-orphan",
            about: "orphaned children stay, without the reference",
            own_kinds: false,
            timed: false,
            stalls: true,
            alone: false,
            github: None,
            machines,
            script: || {
                let mut script = family();
                script.push(delete("owner", "Orphan"));
                script
            },
            ends_with: |ground| left(ground, &["child-a", "child-b", "grandchild", "other"]),
        },
        Scenario {
            name: "garbage-two-owners",
            about: "a child of two owners stays while one is there",
            own_kinds: false,
            timed: false,
            stalls: true,
            alone: false,
            github: None,
            machines,
            script: || {
                vec![
                    create("one", &[]),
                    create("two", &[]),
                    create("child", &["one", "two"]),
                    delete("one", "Background"),
                ]
            },
            ends_with: |ground| left(ground, &["child", "two"]),
        },
        Scenario {
            name: "garbage-other-kind",
            about: "an owner that the cache has not seen yet is not an owner that is gone",
            own_kinds: false,
            timed: false,
            stalls: true,
            alone: false,
            github: None,
            machines,
            script: || {
                let secret = json!({"metadata": {"name": "owner", "namespace": "default"}});
                vec![Deed::create(SECRET, secret), create_under(SECRET, "child", &["owner"])]
            },
            ends_with: |ground| left(ground, &["child"]),
        },
        Scenario {
            name: "garbage-namesake",
            about: "a child made anew under a new owner of the same name is nobody's garbage",
            own_kinds: false,
            timed: false,
            stalls: true,
            alone: false,
            github: None,
            machines,
            script: || {
                vec![
                    create("owner", &[]),
                    create("child", &["owner"]),
                    delete("owner", "Background"),
                    create("owner", &[]).when(|ground| ground.get(&CONFIG_MAP, "default", "child").is_none()),
                    create("child", &["owner"]),
                ]
            },
            ends_with: |ground| left(ground, &["child", "owner"]),
        },
    ]
}

fn machines(_: Guards) -> Vec<AnyMachine> {
    vec![AnyMachine::new(Garbage)]
}

fn family() -> Vec<Deed> {
    vec![
        create("owner", &[]),
        create("child-a", &["owner"]),
        create("child-b", &["owner"]),
        create("grandchild", &["child-a"]),
        create("other", &[]),
    ]
}

fn create(name: &'static str, owners: &'static [&'static str]) -> Deed {
    create_under(CONFIG_MAP, name, owners)
}

fn create_under(owner_kind: Kind, name: &'static str, owners: &'static [&'static str]) -> Deed {
    let mut deed = Deed::create(CONFIG_MAP, json!({"metadata": {"name": name, "namespace": "default"}}));
    deed.act = Act::Ask(Box::new(move |ground| {
        let references: Vec<Value> = owners
            .iter()
            .filter_map(|owner| ground.get(&owner_kind, "default", owner))
            .enumerate()
            .map(|(index, owner)| {
                json!({"apiVersion": "v1", "kind": owner_kind.kind, "name": owner.name(), "uid": owner.uid(),
                    "controller": index == 0, "blockOwnerDeletion": true})
            })
            .collect();
        let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default", "ownerReferences": references}});
        let path = CONFIG_MAP.path(Some("default"), None);
        crate::ground::request(http::Method::POST, &path, "application/json", &manifest)
    }));
    deed
}

fn delete(name: &'static str, policy: &'static str) -> Deed {
    Deed::delete(CONFIG_MAP, Some("default"), name, policy)
}

fn left(ground: &Ground, expected: &[&str]) -> Result<(), String> {
    let names: Vec<&str> = ground
        .all(&CONFIG_MAP)
        .filter(|object| object.namespace() == Some("default") && object.name() != "kube-root-ca.crt")
        .map(|object| object.name())
        .collect();
    if names == expected { Ok(()) } else { Err(format!("left are {names:?}, expected {expected:?}")) }
}
