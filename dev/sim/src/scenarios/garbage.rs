//! Owner-reference garbage collection: what goes, what stays, in which order.

use pawl_api::k8s::{CONFIG_MAP, SECRET};
use pawl_api::meta::Kind;
use pawl_machines::cluster::garbage::Garbage;
use pawl_machines::machine::AnyMachine;
use serde_json::{Value, json};

use super::expect;
use crate::ground::Ground;
use crate::mutant::Guards;
use crate::scenario::{Deed, Scenario};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        scenario("garbage", "children go after their owner, and grandchildren after them")
            .script(|| family_whose_owner_goes("Background"))
            .ends_with(|ground| left(ground, &["other"])),
        scenario("garbage-foreground", "an owner deleted in the foreground goes last")
            .script(|| family_whose_owner_goes("Foreground"))
            .ends_with(|ground| {
                left(ground, &["other"])?;
                let gone =
                    |name: &str| ground.history.iter().rposition(|happened| happened.object.name() == name);
                expect::equal("the owner went last", gone("owner") > gone("child-a"), true)
            }),
        scenario("garbage-orphan", "orphaned children stay, without the reference")
            .script(|| family_whose_owner_goes("Orphan"))
            .ends_with(|ground| left(ground, &["child-a", "child-b", "grandchild", "other"])),
        scenario("garbage-two-owners", "a child of two owners stays while one is there")
            .script(|| {
                vec![
                    create("one", &[]),
                    create("two", &[]),
                    create("child", &["one", "two"]),
                    Deed::delete(CONFIG_MAP, "one"),
                ]
            })
            .ends_with(|ground| left(ground, &["child", "two"])),
        scenario(
            "garbage-other-kind",
            "an owner that the cache has not seen yet is not an owner that is gone",
        )
        .script(|| {
            let secret = json!({"metadata": {"name": "owner"}});
            vec![Deed::create(SECRET, secret), create_under(SECRET, "child", &["owner"])]
        })
        .ends_with(|ground| left(ground, &["child"])),
        scenario(
            "garbage-namesake",
            "a child made anew under a new owner of the same name is nobody's garbage",
        )
        .script(|| {
            vec![
                create("owner", &[]),
                create("child", &["owner"]),
                Deed::delete(CONFIG_MAP, "owner"),
                create("owner", &[]).when(|ground| ground.get(&CONFIG_MAP, "default", "child").is_none()),
                create("child", &["owner"]),
            ]
        })
        .ends_with(|ground| left(ground, &["child", "owner"])),
    ]
}

fn scenario(name: &'static str, about: &'static str) -> Scenario {
    Scenario::new(name, about).without_own_kinds().machines(machines)
}

fn machines(_: Guards) -> Vec<AnyMachine> {
    vec![AnyMachine::new(Garbage)]
}

fn family_whose_owner_goes(policy: &'static str) -> Vec<Deed> {
    vec![
        create("owner", &[]),
        create("child-a", &["owner"]),
        create("child-b", &["owner"]),
        create("grandchild", &["child-a"]),
        create("other", &[]),
        Deed::delete_with_policy(CONFIG_MAP, "owner", policy),
    ]
}

fn create(name: &'static str, owners: &'static [&'static str]) -> Deed {
    create_under(CONFIG_MAP, name, owners)
}

fn create_under(owner_kind: Kind, name: &'static str, owners: &'static [&'static str]) -> Deed {
    Deed::create_from(CONFIG_MAP, move |ground| {
        let references: Vec<Value> = owners
            .iter()
            .filter_map(|owner| ground.get(&owner_kind, "default", owner))
            .enumerate()
            .map(|(index, owner)| {
                json!({"apiVersion": "v1", "kind": owner_kind.kind, "name": owner.name(), "uid": owner.uid(),
                    "controller": index == 0, "blockOwnerDeletion": true})
            })
            .collect();
        json!({"metadata": {"name": name, "ownerReferences": references}})
    })
}

fn left(ground: &Ground, expected: &[&str]) -> Result<(), String> {
    let names: Vec<&str> = ground
        .all(&CONFIG_MAP)
        .filter(|object| object.namespace() == Some("default") && object.name() != "kube-root-ca.crt")
        .map(|object| object.name())
        .collect();
    expect::equal("objects left", names, expected)
}
