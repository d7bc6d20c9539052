//! Whom a change concerns: from an object that is not as it was to the objects that must be looked at again.
//!
//! An end counts like any other change, and both what the object said before and what it says now are asked: a child
//! that changes hands concerns both.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use pawl_api::meta::Kind;
use pawl_machines::machine::{AnyMachine, Depth, EVERY, Line, Primary, Wakes, Watch};
use pawl_machines::object::{Key, Object};
use pawl_machines::view::{View, group_of};

use crate::caches::Change;
use crate::queue::Work;

/// The machines, by place.
#[derive(Clone, Debug)]
pub struct Router {
    machines: Arc<[AnyMachine]>,
    /// Who hears of a kind that is named, beside those who hear of every kind.
    by_kind: Arc<BTreeMap<Kind, Vec<Route>>>,
    every: Arc<[Route]>,
}

/// Which machine hears of a kind, and why.
#[derive(Clone, Copy, Debug)]
struct Route {
    place: usize,
    why: Why,
}

#[derive(Clone, Copy, Debug)]
enum Why {
    /// It looks at such objects.
    Primary,
    /// It looks at every object, by its family.
    Family,
    /// It watches them for the sake of others: its watch at this place.
    Watch(usize),
}

/// What must be watched of one kind, for all machines together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    pub kind: Kind,
    pub depth: Depth,
    pub labels: BTreeSet<&'static str>,
    pub lines: Vec<Line>,
}

impl Need {
    /// Of a kind that is only counted.
    pub(crate) fn metadata(kind: Kind) -> Self {
        Self { kind, depth: Depth::Metadata, labels: BTreeSet::new(), lines: Vec::new() }
    }
}

impl Router {
    pub fn new(machines: Vec<AnyMachine>) -> Self {
        let (mut by_kind, mut every) = (BTreeMap::<Kind, Vec<Route>>::new(), Vec::new());
        let mut add = |kind: Option<&Kind>, route: Route| match kind.filter(|kind| **kind != EVERY) {
            Some(kind) => by_kind.entry(kind.clone()).or_default().push(route),
            None => every.push(route),
        };
        for (place, machine) in machines.iter().enumerate() {
            let description = machine.description();
            match &description.primary {
                Primary::One(kind) => add(Some(kind), Route { place, why: Why::Primary }),
                Primary::Every => add(None, Route { place, why: Why::Family }),
                Primary::Woken(_) => {}
            }
            for (at, watch) in description.watches.iter().enumerate() {
                add(Some(&watch.kind), Route { place, why: Why::Watch(at) });
            }
        }
        Self { machines: machines.into(), by_kind: Arc::new(by_kind), every: every.into() }
    }

    pub fn machines(&self) -> &[AnyMachine] {
        &self.machines
    }

    pub fn machine(&self, work: &Work) -> Option<&AnyMachine> {
        self.machines.get(work.machine)
    }

    /// The kinds that are named, each once, as deep as the one who looks deepest.
    pub fn needs(&self) -> Vec<Need> {
        let mut needs: Vec<Need> = Vec::new();
        for Named { kind, depth, labels, lines, .. } in self.named() {
            let at = needs.iter().position(|need| need.kind == *kind).unwrap_or_else(|| {
                needs.push(Need { depth, ..Need::metadata(kind.clone()) });
                needs.len() - 1
            });
            if let Some(need) = needs.get_mut(at) {
                need.depth = need.depth.and(depth);
                need.labels.extend(labels);
                need.lines.extend(lines);
            }
        }
        needs
    }

    /// The machines that look at a kind.
    pub fn looking_at<'a>(&'a self, kind: &'a Kind) -> impl Iterator<Item = usize> + 'a {
        let looks = move |machine: &AnyMachine| {
            looks_at_everything(machine)
                || machine.description().primary.kind() == Some(kind)
                || machine.description().watches.iter().any(|watch| watch.kind == *kind)
        };
        self.machines.iter().enumerate().filter(move |(_, machine)| looks(machine)).map(|(place, _)| place)
    }

    /// Whether some machine looks at every kind there is.
    pub fn needs_everything(&self) -> bool {
        self.machines.iter().any(looks_at_everything)
    }

    /// The kinds that a machine must have seen before it decides anything, beside "every".
    pub fn kinds_of(&self, place: usize) -> Vec<&Kind> {
        self.named().filter(|named| named.place == place).map(|named| named.kind).collect()
    }

    /// Everything that must be looked at because of this change.
    pub fn woken(&self, change: &Change, view: &dyn View) -> BTreeSet<Work> {
        let mut woken = BTreeSet::new();
        let Some(newest) = change.newest() else { return woken };
        let named = self.by_kind.get(newest.kind()).into_iter().flatten();
        for &Route { place, why } in named.chain(&*self.every) {
            let Some(machine) = self.machines.get(place) else { continue };
            let mut wake = |kind: &Kind, key: Key| {
                woken.insert(Work::new(place, kind.clone(), key));
            };
            let description = machine.description();
            let versions = [&change.before, &change.after].into_iter().flatten();
            match why {
                Why::Primary => wake(newest.kind(), newest.key()),
                Why::Family => {
                    if versions.clone().any(|version| has_family(version)) {
                        wake(newest.kind(), newest.key());
                    }
                    wake_family(change, view, &mut wake);
                }
                Why::Watch(at) => {
                    let watch = description.watches.get(at);
                    let Some((watch, primary)) = watch.zip(description.primary.kind()) else { continue };
                    if !watch.heeds_status && in_status_alone(change) {
                        continue;
                    }
                    for version in versions {
                        for key in concerned(machine, watch, primary, version, view) {
                            wake(primary, key);
                        }
                    }
                }
            }
        }
        woken
    }

    fn named(&self) -> impl Iterator<Item = Named<'_>> {
        self.machines.iter().enumerate().flat_map(|(place, machine)| {
            let description = machine.description();
            let primary = description.primary.kind().map(|kind| Named {
                place,
                kind,
                depth: description.depth,
                labels: &[],
                lines: &[],
            });
            let watches = description.watches.iter().filter(|watch| watch.kind != EVERY);
            let watches = watches.map(move |Watch { kind, depth, labels, lines, .. }| Named {
                place,
                kind,
                depth: *depth,
                labels,
                lines,
            });
            primary.into_iter().chain(watches)
        })
    }
}

fn in_status_alone(change: &Change) -> bool {
    let versions = change.before.as_ref().zip(change.after.as_ref());
    versions.is_some_and(|(before, after)| before.differs_in_status_alone(after))
}

/// A kind that a machine names, and how it looks at it.
struct Named<'a> {
    place: usize,
    kind: &'a Kind,
    depth: Depth,
    labels: &'static [&'static str],
    lines: &'static [Line],
}

pub fn looks_at_everything(machine: &AnyMachine) -> bool {
    let description = machine.description();
    description.primary == Primary::Every || description.watches.iter().any(|watch| watch.kind == EVERY)
}

/// Whether a machine on every kind looks at an object: not at the thousands that have nothing to do with any other.
fn has_family(object: &Object) -> bool {
    object.is_deleting() || !object.owners().is_empty()
}

/// For machines on every kind: the owners of an object, and what it owns.
fn wake_family(change: &Change, view: &dyn View, wake: &mut impl FnMut(&Kind, Key)) {
    for version in [&change.before, &change.after].into_iter().flatten() {
        for owner in version.owners() {
            if let Some(kind) = view.resolve(&owner.api_version, &owner.kind) {
                wake(&kind, owner_key(&kind, owner, version));
            }
        }
    }
    // Dependents care whether it is there, going or gone, not what it says.
    let presence = |version: &Option<Arc<Object>>| {
        version.as_ref().map(|object| (object.uid().to_owned(), object.is_deleting()))
    };
    if presence(&change.before) != presence(&change.after) {
        for version in [&change.before, &change.after].into_iter().flatten() {
            for dependent in view.dependents(version.uid()) {
                wake(dependent.kind(), dependent.key());
            }
        }
    }
}

fn concerned(
    machine: &AnyMachine,
    watch: &Watch,
    primary: &Kind,
    object: &Arc<Object>,
    view: &dyn View,
) -> Vec<Key> {
    match watch.wakes {
        Wakes::Controller => object
            .controller()
            .filter(|owner| owner.kind == primary.kind && group_of(&owner.api_version) == primary.group)
            .map(|owner| owner_key(primary, owner, object))
            .into_iter()
            .collect(),
        Wakes::Labels { namespace, name } => {
            let Some(name) = object.label(name) else { return Vec::new() };
            let namespace = match namespace {
                Some(label) => object.label(label),
                None => object.namespace(),
            };
            vec![Key::new(namespace.filter(|_| primary.namespaced), name)]
        }
        Wakes::By(wakes) => catch_unwind(AssertUnwindSafe(|| wakes(object, view))).unwrap_or_else(|_| {
            tracing::error!(machine = machine.name(), kind = %object.kind(), key = %object.key(),
                "panicked when asked whom a change concerns");
            Vec::new()
        }),
    }
}

fn owner_key(kind: &Kind, owner: &OwnerReference, child: &Object) -> Key {
    Key::new(child.namespace().filter(|_| kind.namespaced), &owner.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    use pawl_machines::cache::World;
    use pawl_machines::machine::{Description, Machine};
    use pawl_machines::plan::Plan;
    use pawl_machines::view::Context;
    use serde_json::{Value, json};

    const JOB: Kind = Kind::of("batch", "v1", "Job", "jobs", true);
    const POD: Kind = Kind::of("", "v1", "Pod", "pods", true);
    const NODE: Kind = Kind::of("", "v1", "Node", "nodes", false);

    struct About(Primary, Vec<Watch>);

    impl Machine for About {
        type Kind = Value;
        type Status = Value;

        fn description(&self) -> Description {
            Description {
                name: "about",
                primary: self.0.clone(),
                depth: Depth::Full,
                watches: self.1.clone(),
                finalizer: None,
                phases: None,
                writes: vec![],
            }
        }

        fn reconcile(&self, _: &Context<'_, Value>) -> Plan<Value> {
            Plan::rest()
        }
    }

    fn object(kind: &Kind, name: &str, rest: &Value) -> Arc<Object> {
        let mut metadata = json!({"name": name, "uid": name});
        if kind.namespaced {
            metadata["namespace"] = "n".into();
        }
        metadata.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        Object::new(kind.clone(), json!({"metadata": metadata})).unwrap()
    }

    fn owned_by(kind: &str, api_version: &str, name: &str) -> Value {
        json!({"ownerReferences": [{"apiVersion": api_version, "kind": kind, "name": name, "uid": name,
            "controller": true}]})
    }

    fn woken(primary: Primary, watches: Vec<Watch>, view: &World, change: &Change) -> Vec<String> {
        let router = Router::new(vec![AnyMachine::new(About(primary, watches))]);
        router.woken(change, view).iter().map(|work| format!("{} {}", work.kind, work.key)).collect()
    }

    #[test]
    fn a_child_that_changes_hands_wakes_both_owners_and_its_end_wakes_the_last() {
        let (before, after) = (
            object(&POD, "p", &owned_by("Job", "batch/v1beta1", "old")),
            object(&POD, "p", &owned_by("Job", "batch/v1", "new")),
        );
        let watches = || vec![Watch::owned(POD)];
        let moved = Change { before: Some(before), after: Some(Arc::clone(&after)) };
        let one = || Primary::One(JOB);
        assert_eq!(
            woken(one(), watches(), &World::default(), &moved),
            ["Job.batch n/new", "Job.batch n/old"]
        );
        let ended = Change { before: Some(after), after: None };
        assert_eq!(woken(one(), watches(), &World::default(), &ended), ["Job.batch n/new"]);
        let stranger = object(&POD, "p", &owned_by("Job", "other.group/v1", "x"));
        let change = Change { before: None, after: Some(stranger) };
        assert!(woken(one(), watches(), &World::default(), &change).is_empty());
    }

    #[test]
    fn labels_name_an_object_in_another_namespace_or_in_the_same() {
        let labels = json!({"labels": {"for": "x", "for-namespace": "far"}});
        let change = Change { before: None, after: Some(object(&POD, "p", &labels)) };
        let by = |namespace| Watch { wakes: Wakes::Labels { namespace, name: "for" }, ..Watch::owned(POD) };
        let one = || Primary::One(JOB);
        let world = World::default();
        assert_eq!(woken(one(), vec![by(Some("for-namespace"))], &world, &change), ["Job.batch far/x"]);
        assert_eq!(woken(one(), vec![by(None)], &world, &change), ["Job.batch n/x"]);
        assert_eq!(woken(Primary::One(NODE), vec![by(None)], &world, &change), ["Node x"]);
    }

    #[test]
    fn a_panic_about_whom_a_change_concerns_wakes_nobody_and_stops_nothing() {
        let change = Change { before: None, after: Some(object(&POD, "p", &json!({}))) };
        let watches = vec![Watch::other(POD, |_, _| panic!("told to"))];
        assert!(woken(Primary::One(JOB), watches, &World::default(), &change).is_empty());
    }

    #[test]
    fn a_change_of_a_status_alone_wakes_only_who_heeds_it() {
        let version = |labels: Value| {
            object(
                &POD,
                "p",
                &json!({"generation": 1, "labels": labels, "ownerReferences": owned_by("Job", "batch/v1", "j")["ownerReferences"]}),
            )
        };
        let change = |after: Value| Change { before: Some(version(json!({}))), after: Some(version(after)) };
        let (same, other) = (change(json!({})), change(json!({"a": "b"})));
        let wakes = |watch: Watch, change: &Change| {
            !woken(Primary::One(JOB), vec![watch], &World::default(), change).is_empty()
        };
        assert!(wakes(Watch::owned(POD), &same) && wakes(Watch::owned(POD), &other));
        assert!(!wakes(Watch::owned(POD).but_for_status(), &same));
        assert!(wakes(Watch::owned(POD).but_for_status(), &other));
        let made = Change { before: None, ..change(json!({})) };
        let gone = Change { after: None, ..change(json!({})) };
        assert!(wakes(Watch::owned(POD).but_for_status(), &made));
        assert!(wakes(Watch::owned(POD).but_for_status(), &gone));
    }

    #[test]
    fn who_looks_at_a_few_of_a_kind_is_woken_for_those_that_its_watches_name() {
        let watches =
            || vec![Watch::other(JOB, |job, _| job.label("stray").map(|_| job.key()).into_iter().collect())];
        let change = |labels: &Value| Change { before: None, after: Some(object(&JOB, "j", labels)) };
        let (common, stray) = (change(&json!({})), change(&json!({"labels": {"stray": "yes"}})));
        let world = World::default();
        assert_eq!(woken(Primary::Woken(JOB), watches(), &world, &common), Vec::<String>::new());
        assert_eq!(woken(Primary::Woken(JOB), watches(), &world, &stray), ["Job.batch n/j"]);
        assert_eq!(woken(Primary::One(JOB), watches(), &world, &common), ["Job.batch n/j"]);
    }

    #[test]
    fn on_every_kind_an_end_wakes_owners_and_dependents() {
        let mut world = World::default();
        world.put(object(&NODE, "node", &json!({})));
        world.put(object(&POD, "child", &owned_by("Job", "batch/v1", "job")));
        let job = object(&JOB, "job", &owned_by("Node", "v1", "node"));
        let ended = Change { before: Some(Arc::clone(&job)), after: None };
        assert_eq!(
            woken(Primary::Every, vec![], &world, &ended),
            ["Node node", "Pod n/child", "Job.batch n/job"]
        );
        let touched = Change { before: Some(Arc::clone(&job)), after: Some(job) };
        assert_eq!(woken(Primary::Every, vec![], &world, &touched), ["Node node", "Job.batch n/job"]);
    }

    #[test]
    fn a_kind_is_watched_as_deep_as_the_deepest_look() {
        let watches = vec![Watch::owned(POD).metadata_only(), Watch::owned(POD).by_labels(&["app"])];
        let router = Router::new(vec![AnyMachine::new(About(Primary::One(JOB), watches))]);
        let pod = router.needs().into_iter().find(|need| need.kind == POD).unwrap();
        assert_eq!((pod.depth, pod.labels), (Depth::Full, BTreeSet::from(["app"])));
    }
}
