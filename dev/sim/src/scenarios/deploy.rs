//! The deploy door: a diamond of items is installed, changed, and taken down again; so is a diamond of Installations.
//!
//! Beside what holds for every run: no item starts before those it depends on have succeeded in the same job, none goes
//! before those that depend on it are gone, none is given the same job twice, and nothing is left behind. The same of
//! sub-Installations, which depend on those that they import from.

use std::collections::{BTreeMap, BTreeSet};

use pawl_api::deploy::{
    annotations, data_object, deploy_item, execution, installation, labels, target, types,
};
use pawl_api::k8s::{LEASE, SECRET};
use pawl_api::meta::Kind;
use pawl_apiserver::ChangeType;
use pawl_machines::cluster::garbage::Garbage;
use pawl_machines::deploy;
use pawl_machines::lock::{self, reaper::Reaper};
use pawl_machines::machine::AnyMachine;
use pawl_machines::object::Object;
use serde_json::{Value, json};

use super::expect::{self, text};
use super::{home, merged};
use crate::ground::{Ground, Happened};
use crate::mutant::Guards;
use crate::scenario::{Deed, Scenario, merge_patch};

const INSTALLATION: Kind = installation::KIND;
const EXECUTION: Kind = execution::KIND;
const ITEM: Kind = deploy_item::KIND;

pub(super) fn all() -> Vec<Scenario> {
    vec![
        scenario("deploy-diamond", "a diamond of items is installed in order, each once")
            .script(|| vec![home(), made("a b<a c<a d<b,c", &[("a", json!({"export": {"port": 1}}))])]),
        scenario("deploy-fails", "a failure stops what comes after it")
            .script(|| vec![home(), made("a b<a c<b", &[("b", json!({"phase": "Failed"}))])]),
        scenario("deploy-update", "a second job takes orphans down, in reverse, before anything new comes")
            .script(|| {
                vec![
                    home(),
                    made("a b<a c<a d<b,c", &[("a", json!({"export": {"port": 1}}))]),
                    changed("a e<a", &[("a", json!({"export": {"port": 2}}))]).when(finished(1)),
                    changed("e", &[]).when(finished(2)),
                ]
            }),
        scenario("deploy-delete", "a diamond is taken down in reverse and leaves nothing").script(|| {
            vec![home(), made("a b<a c<a d<b,c", &[]), Deed::delete(EXECUTION, "e").when(finished(1))]
        }),
        scenario("deploy-retry", "an item that cannot be taken down holds what it stands on, until it can")
            .script(|| {
                vec![
                    home(),
                    made("a b<a", &[("b", json!({"failOnDelete": true}))]),
                    Deed::delete(EXECUTION, "e").when(finished(1)),
                    mended().when(finished(2)),
                    asked().when(finished(2)),
                ]
            }),
        scenario(
            "installation",
            "an Installation runs, exports, changes, and is taken down with all that it made",
        )
        .script(|| {
            let made = merged(json!({"metadata": {"name": "e"}}), with_spec(installed("a b<a", 1)));
            vec![
                home(),
                Deed::create(INSTALLATION, made),
                Deed::patch(INSTALLATION, "e", with_spec(installed("b c<b", 2))).when(installed_times(1)),
                Deed::patch(INSTALLATION, "e", with_spec(installed("b c<b", 3))).when(installed_times(2)),
                Deed::delete(INSTALLATION, "e").when(installed_times(3)),
            ]
        }),
        scenario(
            "installation-tree",
            "a diamond of sub-Installations hands data on, changes, and is taken down in reverse",
        )
        .script(|| {
            let made = merged(json!({"metadata": {"name": "e"}}), with_spec(tree("d<b,c c<a b<a a")));
            vec![
                home(),
                Deed::create(INSTALLATION, made),
                Deed::patch(INSTALLATION, "e", with_spec(tree("a e<a"))).when(root_jobs(1)),
                Deed::delete(INSTALLATION, "e").when(root_jobs(2)),
            ]
        }),
        scenario(
            "deploy-dead-deployer",
            "a deployer that dies after it picked an item up fails the job, and hinders no deletion",
        )
        .script(|| {
            let items = json!([{"name": "a", "type": "example.dev/somebody-elses"},
                    {"name": "b", "type": types::MOCK, "dependsOn": ["a"]}]);
            let only_objects =
                json!({"metadata": {"annotations": {annotations::DELETE_WITHOUT_UNINSTALL: "true"}}});
            vec![
                home(),
                Deed::create(EXECUTION, execution(items)),
                picked_up_and_left().when(is_triggered),
                Deed::delete(EXECUTION, "e").when(finished(1)),
                Deed::patch(EXECUTION, "e", reconciled(only_objects)).when(finished(2)),
            ]
        }),
    ]
}

/// An Installation of sub-Installations: `a b<a` exports what `a` and `b` do, and `b` imports from `a`.
fn tree(line: &str) -> Value {
    let child = |word: &str| {
        let (name, others) = word.split_once('<').unwrap_or((word, ""));
        let others: Vec<&str> = others.split(',').filter(|other| !other.is_empty()).collect();
        let wanted: Vec<Value> = others.iter().map(|other| json!({"name": other, "type": "data"})).collect();
        let taken: Vec<Value> = others.iter().map(|other| json!({"name": other, "dataRef": other})).collect();
        let seen: String = others.iter().map(|other| format!("{{{{ .imports.{other} }}}}")).collect();
        let item = json!({"deployItems": [{"name": name, "type": types::MOCK, "config": {}}]});
        let blueprint = json!({
            "imports": wanted, "exports": [{"name": "out", "type": "data"}],
            "deployExecutions": [{"name": "d", "type": "GoTemplate", "template": item.to_string()}],
            "exportExecutions": [{"name": "x", "type": "GoTemplate",
                "template": format!("exports: {{out: '({seen}{name})'}}")}],
        });
        json!({"name": name, "blueprint": {"filesystem": {"blueprint.yaml": blueprint.to_string()}},
            "imports": {"data": taken}, "exports": {"data": [{"name": "out", "dataRef": name}]}})
    };
    let children: Vec<Value> = line.split_whitespace().map(child).collect();
    let all: Vec<String> =
        children.iter().filter_map(|child| text(child, "name").map(str::to_owned)).collect();
    let shown: String = all.iter().map(|name| format!("{{{{ .dataobjects.{name} }}}} ")).collect();
    let blueprint = json!({
        "subinstallations": children, "exports": [{"name": "all", "type": "data"}],
        "exportExecutions": [{"name": "x", "type": "GoTemplate", "template": format!("exports: {{all: '{shown}'}}")}],
    });
    json!({
        "blueprint": {"inline": {"filesystem": {"blueprint.yaml": blueprint.to_string()}}},
        "exports": {"data": [{"name": "all", "dataRef": format!("all-{}", all.len())}]},
    })
}

/// The root has finished so many jobs.
fn root_jobs(jobs: usize) -> impl Fn(&Ground) -> bool {
    move |ground| {
        let of_that_kind = ground.by_kind.get(&INSTALLATION).into_iter().flatten();
        let roots =
            of_that_kind.filter_map(|at| ground.history.get(*at)).filter(|one| one.object.name() == "e");
        let ended: BTreeSet<&str> =
            roots.filter_map(|one| text(one.object.status(), "jobIDFinished")).collect();
        ended.len() >= jobs
    }
}

/// The item that is somebody else's has got its job.
fn is_triggered(ground: &Ground) -> bool {
    ground.all(&ITEM).any(|item| is_somebody_elses(item) && text(item.status(), "jobID").is_some())
}

fn is_somebody_elses(item: &Object) -> bool {
    item.raw().pointer("/spec/type").and_then(Value::as_str) == Some("example.dev/somebody-elses")
}

/// A deployer of somebody else's takes the item, and is never seen again.
fn picked_up_and_left() -> Deed {
    Deed::send(|ground| {
        let found = ground.all(&ITEM).find(|item| is_somebody_elses(item));
        let name = found.map(|item| item.name().to_owned()).unwrap_or_default();
        let triggered = found.and_then(|item| text(item.status(), "jobIDGenerationTime"));
        let status = json!({"phase": "Init", "lastReconcileTime": triggered,
            "deployer": {"identity": "x", "name": "somebody", "version": "1"}});
        let path = format!("{}/status", ITEM.path(Some("default"), Some(&name)));
        merge_patch(&path, &json!({"status": status}))
    })
}

/// An Installation whose blueprint has these items and exports this port, as data and in a Target.
fn installed(line: &str, port: i32) -> Value {
    let items = items(line, &[("b", json!({"export": {"port": port}}))]);
    let exports = format!("exports: {{port: {port}, cluster: {{type: x, config: {{port: {port}}}}}}}");
    let items = json!({"deployItems": items}).to_string();
    let blueprint = json!({
        "exports": [{"name": "port", "type": "data"}, {"name": "cluster", "type": "target"}],
        "deployExecutions": [{"name": "d", "type": "GoTemplate", "template": items}],
        "exportExecutions": [{"name": "x", "type": "GoTemplate", "template": exports}],
    });
    json!({
        "blueprint": {"inline": {"filesystem": {"blueprint.yaml": blueprint.to_string()}}},
        // The second job exports elsewhere, once it has changed what was there.
        "exports": {"data": [{"name": "port", "dataRef": "port"}],
            "targets": [{"name": "cluster", "target": if port > 2 { "u" } else { "t" }}]},
    })
}

fn installed_times(jobs: usize) -> impl Fn(&Ground) -> bool {
    move |ground| jobs_of(ground, &INSTALLATION) >= jobs
}

/// An item that nobody picks up in time fails.
fn scenario(name: &'static str, about: &'static str) -> Scenario {
    Scenario::new(name, about).timed().machines(machines).ends_with(ends_with)
}

fn machines(_: Guards) -> Vec<AnyMachine> {
    // What an item held when its process died between letting it go and letting go of its lock is the reaper's to free.
    let beside = [AnyMachine::new(Garbage), AnyMachine::new(Reaper)];
    deploy::machines("pawl-system").into_iter().chain(beside).collect()
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
    Deed::create(EXECUTION, execution(items(line, configs)))
}

fn changed(line: &str, configs: &[(&str, Value)]) -> Deed {
    Deed::patch(EXECUTION, "e", with_spec(json!({"deployItems": items(line, configs)})))
}

fn asked() -> Deed {
    Deed::patch(EXECUTION, "e", reconciled(json!({})))
}

fn execution(items: Value) -> Value {
    merged(json!({"metadata": {"name": "e"}}), with_spec(json!({"deployItems": items})))
}

fn with_spec(spec: Value) -> Value {
    reconciled(json!({"spec": spec}))
}

/// An object, or a patch of one, that asks for a job.
pub(super) fn reconciled(object: Value) -> Value {
    merged(json!({"metadata": {"annotations": {annotations::OPERATION: "reconcile"}}}), object)
}

/// The item `b` can be taken down from now on.
fn mended() -> Deed {
    Deed::send(|ground| {
        let found = ground.all(&ITEM).find(|item| item.label(labels::NAME) == Some("b"));
        let name = found.map(|item| item.name().to_owned()).unwrap_or_default();
        let patch = json!({"spec": {"config": {"failOnDelete": false}}});
        merge_patch(&ITEM.path(Some("default"), Some(&name)), &patch)
    })
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
    in_order(&ground.history, &ITEM)?;
    in_order(&ground.history, &INSTALLATION)?;
    no_lock_left(ground)?;
    // A clock that jumps over a timeout fails jobs, and rightly so.
    let late = ground.history.iter().any(|happened| {
        let reason = happened.object.status().pointer("/lastError/reason").and_then(Value::as_str);
        let foreign = is_somebody_elses(&happened.object);
        !foreign && matches!(reason, Some("PickupTimeout" | "ProgressingTimeout"))
    });
    // A world in which no item ever ran would keep every promise.
    let ours = |happened: &&Happened| *happened.object.kind() == ITEM && !is_somebody_elses(&happened.object);
    let ran =
        ground.history.iter().filter(ours).any(|one| text(one.object.status(), "phase") == Some("Succeeded"));
    let has_foreign = ground.history.iter().any(|happened| is_somebody_elses(&happened.object));
    if !ran && !late && !has_foreign {
        return Err("no item has ever succeeded".to_owned());
    }
    let deleted = ground
        .history
        .iter()
        .any(|happened| *happened.object.kind() == EXECUTION && happened.object.is_deleting());
    let kinds = [INSTALLATION, EXECUTION, ITEM, SECRET, data_object::KIND, target::KIND];
    if deleted && !late { expect::none_left(ground, &kinds) } else { Ok(()) }
}

/// Where no job runs nothing is held.
pub(super) fn no_lock_left(ground: &Ground) -> Result<(), String> {
    let locks = ground.all(&LEASE).filter(|lease| lease.name().starts_with(lock::PREFIX)).count();
    let running =
        ground.all(&ITEM).any(|item| item.status().get("jobID") != item.status().get("jobIDFinished"));
    if running { Ok(()) } else { expect::equal("locks left", locks, 0) }
}

/// A thing that has a turn: an item of an Execution or a sub-Installation of an Installation, by whose it is and by name.
type Place = (String, String);

/// What has been seen of them so far.
#[derive(Default)]
struct Seen<'a> {
    live: BTreeMap<Place, &'a Object>,
    /// Which jobs each object was given, and in which it was picked up.
    given: BTreeSet<(String, String)>,
    picked_up: BTreeSet<(String, String)>,
}

/// Every trigger came in its turn, and once.
pub(super) fn in_order(history: &[Happened], kind: &Kind) -> Result<(), String> {
    let mut seen = Seen::default();
    for Happened { what, object, .. } in history.iter().filter(|happened| happened.object.kind() == kind) {
        let Some(place) = place_of(object) else { continue };
        let name = place.1.clone();
        if *what == ChangeType::Deleted {
            seen.live.remove(&place);
            continue;
        }
        let before = seen.live.get(&place).and_then(|before| text(before.status(), "jobID"));
        let job = text(object.status(), "jobID");
        if let Some(job) = job.filter(|job| before != Some(*job)) {
            if !seen.given.insert((object.uid().to_owned(), job.to_owned())) {
                return Err(format!("{name} was given job {job} twice"));
            }
            check_turn(&seen, &place, object, job)?;
        }
        let was = seen.live.get(&place).and_then(|before| text(before.status(), "phase"));
        let is = text(object.status(), "phase");
        let starts = was != is && matches!(is, Some("Init" | "InitDelete"));
        let entry = (object.uid().to_owned(), job.unwrap_or_default().to_owned());
        if starts && !seen.picked_up.insert(entry) {
            return Err(format!("{name} ran twice in one job"));
        }
        seen.live.insert(place, object);
    }
    Ok(())
}

/// Whose it is, and what it is called there; `None` for a root.
fn place_of(object: &Object) -> Option<Place> {
    let owner = object.controller()?.uid.clone();
    let name = object.label(labels::NAME).or(object.annotation(annotations::SUBINSTALLATION_NAME))?;
    Some((owner, name.to_owned()))
}

fn check_turn(seen: &Seen<'_>, (owner, name): &Place, object: &Object, job: &str) -> Result<(), String> {
    let beside = || seen.live.iter().filter(|((of, _), _)| of == owner);
    if object.is_deleting() {
        let dependent = beside().find(|(_, other)| depends_on(other).iter().any(|one| one == name));
        return match dependent {
            Some(((_, other), _)) => Err(format!("{name} was taken down while {other} was there")),
            None => Ok(()),
        };
    }
    for other in depends_on(object) {
        let status = seen.live.get(&(owner.clone(), other.clone())).map(|other| other.status());
        let done = status.is_some_and(|status| {
            text(status, "phase") == Some("Succeeded") && text(status, "jobIDFinished") == Some(job)
        });
        if !done {
            return Err(format!("{name} was started before {other} had succeeded in the same job"));
        }
    }
    let leaving = beside().find(|(_, other)| other.is_deleting());
    match leaving {
        Some(((_, other), _)) => Err(format!("{name} was started while {other}, an orphan, was there")),
        None => Ok(()),
    }
}

/// What an item says that it depends on; what a sub-Installation of these scenarios imports is called like its source.
fn depends_on(item: &Object) -> Vec<String> {
    if *item.kind() == INSTALLATION {
        let imports = item.raw().pointer("/spec/imports/data").and_then(Value::as_array);
        let names = imports.into_iter().flatten().filter_map(|import| text(import, "dataRef"));
        return names.map(str::to_owned).collect();
    }
    item.annotation(annotations::DEPENDS_ON)
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::{self, Simulator};

    /// A first look; `tests/it/faults.rs` and `pawl-dev sim` go further.
    const SEEDS: u64 = 8;

    fn check(name: &str) {
        check_seeds(name, SEEDS);
    }

    fn check_seeds(name: &str, seeds: u64) {
        let scenario = all().into_iter().find(|scenario| scenario.name == name).unwrap();
        let report = campaign::seeds(Simulator::Inner, &scenario, 1..=seeds, Guards::default(), true);
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
    fn a_tree_is_one_job_in_the_order_of_imports_and_exports_under_faults_and_by_two_replicas() {
        // A tree is five times the work of a diamond; `tests/it/faults.rs` gives it as many seeds as any other.
        check_seeds("installation-tree", 2);
    }

    #[test]
    fn a_deployer_that_dies_after_pickup_under_faults() {
        check("deploy-dead-deployer");
    }
}
