//! The deploy door: a diamond of items is installed, changed, and taken down again.
//!
//! Beside what holds for every run: no item starts before those it depends on have succeeded in the same job, none goes
//! before those that depend on it are gone, none is given the same job twice, and nothing is left behind.

use std::collections::{BTreeMap, BTreeSet};

use pawl_api::deploy::{
    annotations, data_object, deploy_item, execution, installation, labels, target, types,
};
use pawl_api::k8s::SECRET;
use pawl_api::meta::Kind;
use pawl_apiserver::ChangeType;
use pawl_machines::cluster::garbage::Garbage;
use pawl_machines::deploy;
use pawl_machines::machine::AnyMachine;
use pawl_machines::object::Object;
use serde_json::{Value, json};

use crate::ground::{Ground, Happened};
use crate::mutant::Guards;
use crate::scenario::{Act, Deed, Scenario};

const INSTALLATION: Kind = installation::KIND;
const EXECUTION: Kind = execution::KIND;
const ITEM: Kind = deploy_item::KIND;

pub(super) fn all() -> Vec<Scenario> {
    vec![
        scenario("deploy-diamond", "a diamond of items is installed in order, each once", || {
            vec![made("a b<a c<a d<b,c", &[("a", json!({"export": {"port": 1}}))])]
        }),
        scenario("deploy-fails", "a failure stops what comes after it", || {
            vec![made("a b<a c<b", &[("b", json!({"phase": "Failed"}))])]
        }),
        scenario(
            "deploy-update",
            "a second job takes orphans down, in reverse, before anything new comes",
            || {
                vec![
                    made("a b<a c<a d<b,c", &[("a", json!({"export": {"port": 1}}))]),
                    changed("a e<a", &[("a", json!({"export": {"port": 2}}))]).when(finished(1)),
                    changed("e", &[]).when(finished(2)),
                ]
            },
        ),
        scenario("deploy-delete", "a diamond is taken down in reverse and leaves nothing", || {
            vec![
                made("a b<a c<a d<b,c", &[]),
                Deed::delete(EXECUTION, Some("default"), "e", "Background").when(finished(1)),
            ]
        }),
        scenario(
            "deploy-retry",
            "an item that cannot be taken down holds what it stands on, until it can",
            || {
                vec![
                    made("a b<a", &[("b", json!({"failOnDelete": true}))]),
                    Deed::delete(EXECUTION, Some("default"), "e", "Background").when(finished(1)),
                    mended().when(finished(2)),
                    asked().when(finished(2)),
                ]
            },
        ),
        scenario(
            "installation",
            "an Installation runs, exports, changes, and is taken down with all that it made",
            || {
                let annotations = json!({annotations::OPERATION: "reconcile"});
                let create = json!({"metadata": {"name": "e", "namespace": "default", "annotations": annotations},
                    "spec": installed("a b<a", 1)});
                let change = json!({"metadata": {"annotations": annotations}, "spec": installed("b c<b", 2)});
                vec![
                    Deed::create(INSTALLATION, create),
                    Deed::patch(INSTALLATION, Some("default"), "e", change).when(installed_times(1)),
                    Deed::delete(INSTALLATION, Some("default"), "e", "Background").when(installed_times(2)),
                ]
            },
        ),
    ]
}

/// An Installation whose blueprint has these items and exports this port, as data and in a Target.
fn installed(line: &str, port: i32) -> Value {
    let items = items(line, &[("b", json!({"export": {"port": port}}))]);
    let exports = format!("exports: {{port: {port}, cluster: {{type: x, config: {{port: {port}}}}}}}");
    let items = json!({"deployItems": items}).to_string();
    let blueprint = json!({
        "deployExecutions": [{"name": "d", "type": "GoTemplate", "template": items}],
        "exportExecutions": [{"name": "x", "type": "GoTemplate", "template": exports}],
    });
    json!({
        "blueprint": {"inline": {"filesystem": {"blueprint.yaml": blueprint.to_string()}}},
        "exports": {"data": [{"name": "port", "dataRef": "port"}], "targets": [{"name": "cluster", "target": "t"}]},
    })
}

fn installed_times(jobs: usize) -> impl Fn(&Ground) -> bool {
    move |ground| jobs_of(ground, &INSTALLATION) >= jobs
}

fn scenario(name: &'static str, about: &'static str, script: fn() -> Vec<Deed>) -> Scenario {
    Scenario {
        name,
        about,
        own_kinds: true,
        // An item that nobody picks up in time fails.
        timed: true,
        stalls: true,
        alone: false,
        github: None,
        machines,
        script,
        ends_with,
    }
}

fn machines(_: Guards) -> Vec<AnyMachine> {
    deploy::machines("pawl-system").into_iter().chain([AnyMachine::new(Garbage)]).collect()
}

/// `a b<a`, as items of the mock deployer.
fn items(line: &str, configs: &[(&str, Value)]) -> Value {
    let item = |word: &str| {
        let (name, others) = word.split_once('<').unwrap_or((word, ""));
        let others: Vec<&str> = others.split(',').filter(|other| !other.is_empty()).collect();
        let config =
            configs.iter().find(|(of, _)| *of == name).map_or(json!({}), |(_, config)| config.clone());
        json!({"name": name, "type": types::MOCK, "dependsOn": others, "config": config})
    };
    line.split_whitespace().map(item).collect()
}

fn made(line: &str, configs: &[(&str, Value)]) -> Deed {
    let metadata = json!({"name": "e", "namespace": "default",
        "annotations": {annotations::OPERATION: "reconcile"}});
    Deed::create(EXECUTION, json!({"metadata": metadata, "spec": {"deployItems": items(line, configs)}}))
}

fn changed(line: &str, configs: &[(&str, Value)]) -> Deed {
    let metadata = json!({"annotations": {annotations::OPERATION: "reconcile"}});
    let patch = json!({"metadata": metadata, "spec": {"deployItems": items(line, configs)}});
    Deed::patch(EXECUTION, Some("default"), "e", patch)
}

fn asked() -> Deed {
    let patch = json!({"metadata": {"annotations": {annotations::OPERATION: "reconcile"}}});
    Deed::patch(EXECUTION, Some("default"), "e", patch)
}

/// The item `b` can be taken down from now on.
fn mended() -> Deed {
    Deed {
        when: Box::new(|_| true),
        act: Act::Ask(Box::new(|ground| {
            let found = ground.all(&ITEM).find(|item| item.label(labels::NAME) == Some("b"));
            let name = found.map(|item| item.name().to_owned()).unwrap_or_default();
            let patch = json!({"spec": {"config": {"failOnDelete": false}}});
            let path = ITEM.path(Some("default"), Some(&name));
            crate::ground::request(http::Method::PATCH, &path, "application/merge-patch+json", &patch)
        })),
    }
}

/// So many jobs have been finished.
pub(super) fn finished(jobs: usize) -> impl Fn(&Ground) -> bool {
    move |ground| jobs_of(ground, &EXECUTION) >= jobs
}

fn jobs_of(ground: &Ground, kind: &Kind) -> usize {
    let of_that_kind = ground.by_kind.get(kind).into_iter().flatten();
    let ended = of_that_kind.filter_map(|at| text(ground.history.get(*at)?.object.status(), "jobIDFinished"));
    ended.collect::<BTreeSet<&str>>().len()
}

fn ends_with(ground: &Ground) -> Result<(), String> {
    in_order(&ground.history)?;
    // A clock that jumps over a timeout fails jobs, and rightly so.
    let late = ground.history.iter().any(|happened| {
        let reason = happened.object.status().pointer("/lastError/reason").and_then(Value::as_str);
        matches!(reason, Some("PickupTimeout" | "ProgressingTimeout"))
    });
    let deleted = ground
        .history
        .iter()
        .any(|happened| *happened.object.kind() == EXECUTION && happened.object.is_deleting());
    let kinds = [INSTALLATION, EXECUTION, ITEM, SECRET, data_object::KIND, target::KIND];
    let left: usize = kinds.iter().map(|kind| ground.all(kind).count()).sum();
    if deleted && !late && left > 0 {
        return Err(format!("{left} objects are left"));
    }
    Ok(())
}

/// What has been seen of the items so far, by name.
#[derive(Default)]
struct Seen<'a> {
    live: BTreeMap<String, &'a Object>,
    /// Which jobs each object was given, and in which it was picked up.
    given: BTreeSet<(String, String)>,
    picked_up: BTreeSet<(String, String)>,
}

/// Every trigger came in its turn, and once.
pub(super) fn in_order(history: &[Happened]) -> Result<(), String> {
    let mut seen = Seen::default();
    for Happened { what, object, .. } in history.iter().filter(|happened| *happened.object.kind() == ITEM) {
        let name = object.label(labels::NAME).unwrap_or_default().to_owned();
        if *what == ChangeType::Deleted {
            seen.live.remove(&name);
            continue;
        }
        let before = seen.live.get(&name).and_then(|before| text(before.status(), "jobID"));
        let job = text(object.status(), "jobID");
        if let Some(job) = job.filter(|job| before != Some(*job)) {
            if !seen.given.insert((object.uid().to_owned(), job.to_owned())) {
                return Err(format!("{name} was given job {job} twice"));
            }
            check_turn(&seen, &name, object, job)?;
        }
        let was = seen.live.get(&name).and_then(|before| text(before.status(), "phase"));
        let is = text(object.status(), "phase");
        let starts = was != is && matches!(is, Some("Init" | "InitDelete"));
        let entry = (object.uid().to_owned(), job.unwrap_or_default().to_owned());
        if starts && !seen.picked_up.insert(entry) {
            return Err(format!("{name} ran twice in one job"));
        }
        seen.live.insert(name, object);
    }
    Ok(())
}

fn check_turn(seen: &Seen<'_>, name: &str, object: &Object, job: &str) -> Result<(), String> {
    if object.is_deleting() {
        let dependent = seen.live.iter().find(|(_, other)| depends_on(other).iter().any(|one| one == name));
        return match dependent {
            Some((other, _)) => Err(format!("{name} was taken down while {other} was there")),
            None => Ok(()),
        };
    }
    for other in depends_on(object) {
        let status = seen.live.get(&other).map(|other| other.status());
        let done = status.is_some_and(|status| {
            text(status, "phase") == Some("Succeeded") && text(status, "jobIDFinished") == Some(job)
        });
        if !done {
            return Err(format!("{name} was started before {other} had succeeded in the same job"));
        }
    }
    let leaving = seen.live.iter().find(|(_, other)| other.is_deleting());
    match leaving {
        Some((other, _)) => Err(format!("{name} was started while {other}, an orphan, was there")),
        None => Ok(()),
    }
}

fn depends_on(item: &Object) -> Vec<String> {
    item.annotation(annotations::DEPENDS_ON)
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

fn text<'a>(status: &'a Value, field: &str) -> Option<&'a str> {
    status.get(field).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::{self, Simulator};
    use crate::inner::{self, Setup};
    use pawl_machines::deploy::deploy_item::DeployItems;
    use pawl_machines::deploy::execution::Executions;

    /// A first look; `tests/it/faults.rs` and `pawl sim` go further.
    const SEEDS: u64 = 8;

    fn check(name: &str) {
        let scenario = all().into_iter().find(|scenario| scenario.name == name).unwrap();
        let report = campaign::seeds(Simulator::Inner, &scenario, 1..=SEEDS, Guards::default(), true);
        if let Some(failure) = report.failure {
            panic!("{failure}\n{}", failure.trace.join("\n"));
        }
    }

    #[test]
    fn a_diamond_is_installed_in_order_under_faults_and_by_two_replicas() {
        check("deploy-diamond");
        check("deploy-fails");
    }

    #[test]
    fn orphans_go_before_anything_comes_under_faults_and_by_two_replicas() {
        check("deploy-update");
    }

    #[test]
    fn a_diamond_is_taken_down_in_order_under_faults_and_by_two_replicas() {
        check("deploy-delete");
        check("deploy-retry");
    }

    #[test]
    fn an_installation_is_one_job_from_its_root_to_its_items_under_faults() {
        check("installation");
    }

    #[test]
    fn the_oracle_notices_an_execution_that_keeps_no_order() {
        let without = |_: Guards| {
            let executions = Executions { keeps_order: false, ..Executions::default() };
            vec![
                AnyMachine::new(executions),
                AnyMachine::new(DeployItems::default()),
                AnyMachine::new(Garbage),
            ]
        };
        for name in ["deploy-diamond", "deploy-delete"] {
            let mut scenario = all().into_iter().find(|scenario| scenario.name == name).unwrap();
            scenario.machines = without;
            let run = inner::run(&scenario, &Setup::plain(), None);
            let told = format!("{:?}", run.violations);
            assert!(told.contains("was started before"), "{name}: {told}");
        }
    }
}
