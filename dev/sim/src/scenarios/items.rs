//! What deployers do for items: objects are applied and taken down, images run once, and nobody acts on what another holds.
//!
//! Beside what holds for every run, and the order of items: nothing that an item deployed is left when it is gone, no
//! image runs twice in one job, and no lock outlives its item.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pawl_api::deploy::{deploy_item, execution, labels, types};
use pawl_api::k8s::{CONFIG_MAP, JOB, LEASE, POD};
use pawl_api::meta::Kind;
use pawl_api::pawl;
use pawl_machines::deploy;
use pawl_machines::freeze::Freezes;
use pawl_machines::lock::reaper::Reaper;
use pawl_machines::lock::{self, Lock};
use pawl_machines::machine::AnyMachine;
use pawl_machines::object::Object;
use serde_json::{Value, json};

use super::deploy::{finished, in_order, no_lock_left, reconciled};
use super::expect::{has_condition, text};
use super::{home, merged};
use crate::ground::Ground;
use crate::mutant::Guards;
use crate::scenario::{Deed, Scenario};

const EXECUTION: Kind = execution::KIND;
const ITEM: Kind = deploy_item::KIND;
const FREEZE: Kind = pawl::freeze::KIND;

pub(super) fn all() -> Vec<Scenario> {
    vec![
        scenario("manifests", "objects are applied, leave the list, and are taken down in reverse").script(
            || {
                vec![
                    home(),
                    made(json!([manifests("a", &["a1", "a2"]), after("a", manifests("b", &["b1"]))])),
                    changed(json!([manifests("a", &["a2", "a3"]), after("a", manifests("b", &["b1"]))]))
                        .when(finished(1)),
                    Deed::delete(EXECUTION, "e").when(finished(2)),
                ]
            },
        ),
        scenario("manifests-locked", "two items that act on one target act one after the other").script(
            || {
                let web = json!({pawl::annotations::TARGETS: "prod/deployment/web"});
                let one = |name: &str| with(mock(name, json!({"delay": "5s"})), "annotations", web.clone());
                vec![home(), made(json!([one("a"), one("b")]))]
            },
        ),
        scenario("item-frozen", "an item waits while a Freeze holds, and goes on when it is taken away")
            .script(|| {
                let freeze = json!({"from": "2020-01-01T00:00:00Z", "reason": "nobody is here"});
                let is_active = |ground: &Ground| {
                    ground.all(&FREEZE).any(|freeze| freeze.status().get("active").is_some())
                };
                vec![
                    home(),
                    Deed::create_with_spec(FREEZE, "holidays", freeze),
                    made(json!([manifests("a", &["a1"]), after("a", manifests("b", &["b1"]))]))
                        .when(is_active),
                    // A cache that has not seen the Freeze lets an item go; then there is nothing to wait for.
                    Deed::delete(FREEZE, "holidays")
                        .when(|ground| is_any_frozen(ground) || finished(1)(ground)),
                    Deed::delete(EXECUTION, "e").when(finished(1)),
                ]
            }),
        scenario("container", "an image runs once in a job, and once more when its item goes").script(|| {
            vec![
                home(),
                made(json!([image("a", &["exit", "0"])])),
                Deed::delete(EXECUTION, "e").when(finished(1)),
            ]
        }),
        scenario("container-fails", "an image that fails is tried again as often as the item says")
            .script(|| vec![home(), made(json!([with(image("a", &["exit", "1"]), "retries", json!(1))]))]),
    ]
}

/// An item that nobody picks up in time fails.
fn scenario(name: &'static str, about: &'static str) -> Scenario {
    Scenario::new(name, about).timed().without_stalls().machines(machines).ends_with(ends_with)
}

fn machines(guards: Guards) -> Vec<AnyMachine> {
    let shared = [AnyMachine::new(Reaper), AnyMachine::new(Freezes)];
    let doors = deploy::machines(pawl::SYSTEM_NAMESPACE).into_iter().chain(shared);
    super::jobs::machines(guards).into_iter().chain(doors).collect()
}

fn manifests(name: &str, maps: &[&str]) -> Value {
    let map = |name: &&str| {
        json!({"policy": "manage", "manifest": {"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name}, "data": {"k": "v"}}})
    };
    let maps: Vec<Value> = maps.iter().map(map).collect();
    json!({"name": name, "type": types::MANIFEST, "config": {"manifests": maps}})
}

fn mock(name: &str, config: Value) -> Value {
    json!({"name": name, "type": types::MOCK, "config": config})
}

fn image(name: &str, command: &[&str]) -> Value {
    json!({"name": name, "type": types::CONTAINER, "config": {"image": "tool", "command": command}})
}

fn after(other: &str, item: Value) -> Value {
    with(item, "dependsOn", json!([other]))
}

fn with(item: Value, field: &str, value: Value) -> Value {
    merged(item, json!({field: value}))
}

fn made(items: Value) -> Deed {
    Deed::create(EXECUTION, reconciled(json!({"metadata": {"name": "e"}, "spec": {"deployItems": items}})))
}

fn changed(items: Value) -> Deed {
    Deed::patch(EXECUTION, "e", reconciled(json!({"spec": {"deployItems": items}})))
}

fn ends_with(ground: &Ground) -> Result<(), String> {
    in_order(&ground.history, &ITEM)?;
    one_run_per_try(ground)?;
    one_holder(ground)?;
    no_lock_left(ground)?;
    // Whoever had to wait got its turn in the end.
    let unfinished =
        |item: &&Arc<Object>| text(item.status(), "jobID") != text(item.status(), "jobIDFinished");
    if let Some(item) = ground.all(&ITEM).find(unfinished) {
        return Err(format!("{} has not finished its job: {}", item.name(), item.status()));
    }
    let deployed = ground.all(&CONFIG_MAP).filter(|map| map.label(labels::DEPLOY_ITEM).is_some()).count();
    if ground.all(&ITEM).count() == 0 && deployed + ground.all(&JOB).count() + ground.all(&POD).count() > 0 {
        return Err(format!("{deployed} deployed objects, or a Job or a Pod, are left"));
    }
    Ok(())
}

fn is_any_frozen(ground: &Ground) -> bool {
    ground.all(&ITEM).any(|item| has_condition(item, "Frozen", "True"))
}

/// No Job ran more than one Pod, and no Job was made twice: its name is that of one try of one job.
fn one_run_per_try(ground: &Ground) -> Result<(), String> {
    let mut pods: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for happened in &ground.history {
        let object = &happened.object;
        let job = object.controller().filter(|owner| *object.kind() == POD && owner.kind == JOB.kind);
        if let Some(job) = job {
            pods.entry(job.name.clone()).or_default().insert(object.uid());
        }
    }
    match pods.iter().find(|(_, pods)| pods.len() > 1) {
        Some((job, pods)) => Err(format!("{} Pods ran for Job {job}", pods.len())),
        None => Ok(()),
    }
}

/// A lock went from one item to another only over being free.
fn one_holder(ground: &Ground) -> Result<(), String> {
    let mut holders: BTreeMap<String, String> = BTreeMap::new();
    for happened in &ground.history {
        let lease = &happened.object;
        if *lease.kind() != LEASE || !lease.name().starts_with(lock::PREFIX) {
            continue;
        }
        let holder = match lock::read_object(lease) {
            Lock::Held(holder) if happened.what != pawl_apiserver::ChangeType::Deleted => holder.unit.uid,
            Lock::Held(_) | Lock::Free | Lock::Unreadable(_) => {
                holders.remove(lease.name());
                continue;
            }
        };
        let before = holders.insert(lease.name().to_owned(), holder.clone());
        if before.as_ref().is_some_and(|before| *before != holder) {
            return Err(format!("lock {} was taken from its holder", lease.name()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::{self, Simulator};
    use crate::inner::{self, Setup};

    /// A first look; `tests/it/faults.rs` and `pawl-dev sim` go further.
    const SEEDS: u64 = 8;

    fn check(name: &str) {
        let scenario = all().into_iter().find(|scenario| scenario.name == name).unwrap();
        let report = campaign::seeds(Simulator::Inner, &scenario, 1..=SEEDS, Guards::default(), true);
        if let Some(failure) = report.failure {
            panic!("{failure}\n{}", failure.trace.join("\n"));
        }
    }

    #[test]
    fn manifests_leave_nothing_behind_under_faults_and_by_two_replicas() {
        check("manifests");
    }

    #[test]
    fn a_target_has_one_holder_at_a_time_under_faults_and_by_two_replicas() {
        check("manifests-locked");
    }

    #[test]
    fn an_image_runs_once_per_try_under_faults_and_by_two_replicas() {
        check("container");
        check("container-fails");
    }

    #[test]
    fn without_faults_everything_comes_to_its_end() {
        for scenario in all() {
            let run = inner::run(&scenario, &Setup::plain(), None);
            assert!(run.violations.is_empty(), "{}: {:?}", scenario.name, run.violations);
        }
    }
}
