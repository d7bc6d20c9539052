//! Which roots of the namespace does a root wait for, and which wait for it?
//!
//! Roots have no job in common. One that imports what another exports starts when that one is not at work; it then takes
//! what is there. One that others import from is not taken down: they go first. Sub-Installations are put in order by
//! their parent (family.rs), and do not look here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use pawl_api::deploy::installation::KIND;
use pawl_api::deploy::{Installation, InstallationPhase, InstallationStatus, data_object, target};

use super::scope;
use crate::deploy::blueprint::{Sort, exported, imported};
use crate::deploy::job::{self, Jobs};
use crate::object::{Key, Object};
use crate::view::View;

/// What a root has to know about the others before it starts.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// At work on something that is imported here, or about to be.
    pub(super) at_work: Vec<Key>,
    /// Export something that is imported here and is not there.
    pub(super) owing: Vec<String>,
    /// `a -> b -> a`, where each imports from the next.
    pub(super) circle: Option<String>,
}

/// One that imports what is exported here.
#[derive(Debug)]
pub(super) struct Importer {
    pub(super) key: Key,
    pub(super) is_deleting: bool,
}

type What = (Sort, String);

/// Whom a root's imports come from, as far as it matters.
pub(super) fn exporters(view: &dyn View, me: &Object, installation: &Installation) -> Beside {
    let mut beside = Beside::default();
    let wanted: BTreeSet<What> = wanted_by(installation);
    if wanted.is_empty() {
        return beside;
    }
    // What is there names its owner: so nobody else in a full namespace has to be looked at.
    let (mut sources, mut missing) = (BTreeMap::new(), BTreeSet::new());
    for (sort, name) in wanted {
        let kind = if sort == Sort::Data { data_object::KIND } else { target::KIND };
        match view.get(&kind, &scope::key(None, me.namespace(), sort, &name)) {
            Some(found) => {
                let owner = found.controller().filter(|owner| owner.kind == KIND.kind);
                let key = owner.map(|owner| Key::new(me.namespace(), &owner.name));
                let source = key.and_then(|key| view.get(&KIND, &key));
                sources.extend(source.map(|source| (source.key(), source)));
            }
            None => _ = missing.insert((sort, name)),
        }
    }
    if !missing.is_empty() {
        for other in roots(view, me) {
            let Ok(its) = other.parse::<Installation>() else { continue };
            if other.uid() != me.uid() && !given_by(&its).is_disjoint(&missing) {
                beside.owing.push(other.name().to_owned());
                sources.insert(other.key(), other);
            }
        }
    }
    let at_work = sources.values().filter(|source| source.uid() != me.uid() && is_at_work(source));
    beside.at_work = at_work.map(|source| source.key()).collect();
    if !beside.at_work.is_empty() || !beside.owing.is_empty() {
        beside.circle = circle(view, me).map(|path| path.join(" -> "));
    }
    beside
}

/// Roots that import what this one exports.
pub(super) fn importers(view: &dyn View, me: &Object, installation: &Installation) -> Vec<Importer> {
    let given = given_by(installation);
    if given.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for other in roots(view, me).into_iter().filter(|other| other.uid() != me.uid()) {
        let Ok(its) = other.parse::<Installation>() else { continue };
        if !wanted_by(&its).is_disjoint(&given) {
            found.push(Importer { key: other.key(), is_deleting: other.is_deleting() });
        }
    }
    // Those that import from each other would wait for each other for ever (I5).
    let knotted = found.iter().any(|importer| importer.is_deleting) && circle(view, me).is_some();
    found.retain(|importer| !(importer.is_deleting && knotted));
    found
}

/// Whom the change of a root concerns: those that wait for it to finish, or for it to be gone.
pub(super) fn of_the_sibling(changed: &Object, view: &dyn View) -> Vec<Key> {
    if !is_root(changed) {
        return Vec::new();
    }
    let Ok(its) = changed.parse::<Installation>() else { return Vec::new() };
    let concerned = |wanted: &dyn Fn(&Arc<Object>, &Installation) -> bool| -> Vec<Key> {
        let others = roots(view, changed).into_iter().filter(|other| other.uid() != changed.uid());
        others
            .filter(|other| other.parse::<Installation>().is_ok_and(|its| wanted(other, &its)))
            .map(|other| other.key())
            .collect()
    };
    match view.get(&KIND, &changed.key()) {
        None => {
            let took = wanted_by(&its);
            if took.is_empty() {
                return Vec::new();
            }
            concerned(&|other, its| other.is_deleting() && !given_by(its).is_disjoint(&took))
        }
        // The version before is asked about too; what is now decides.
        Some(now) if now.resource_version() != changed.resource_version() => Vec::new(),
        Some(now) => {
            let gave = given_by(&its);
            if gave.is_empty() || is_at_work(&now) {
                return Vec::new();
            }
            concerned(&|other, its| is_at_work(other) && !wanted_by(its).is_disjoint(&gave))
        }
    }
}

/// A way from this root along its imports back to itself.
fn circle(view: &dyn View, me: &Object) -> Option<Vec<String>> {
    let all: Vec<(Arc<Object>, Arc<Installation>)> = roots(view, me)
        .into_iter()
        .filter_map(|root| {
            let its = root.parse::<Installation>().ok()?;
            Some((root, its))
        })
        .collect();
    let mut exporters: BTreeMap<What, usize> = BTreeMap::new();
    for (at, (_, its)) in all.iter().enumerate() {
        exporters.extend(given_by(its).into_iter().map(|what| (what, at)));
    }
    let before = |at: usize| -> BTreeSet<usize> {
        let wanted = all.get(at).map(|(_, its)| wanted_by(its)).unwrap_or_default();
        wanted.iter().filter_map(|what| exporters.get(what).copied()).collect()
    };
    let start = all.iter().position(|(root, _)| root.uid() == me.uid())?;
    let (mut came_from, mut queue) = (BTreeMap::new(), VecDeque::from([start]));
    while let Some(at) = queue.pop_front() {
        for next in before(at) {
            if next == start {
                let mut path = vec![start];
                path.extend(std::iter::successors(Some(at), |step| came_from.get(step).copied()));
                path.reverse();
                if path.first() != Some(&start) {
                    path.insert(0, start);
                }
                let name = |at: usize| all.get(at).map(|(root, _)| root.name().to_owned());
                return Some(path.into_iter().filter_map(name).collect());
            }
            if next != start && !came_from.contains_key(&next) {
                came_from.insert(next, at);
                queue.push_back(next);
            }
        }
    }
    None
}

fn roots(view: &dyn View, me: &Object) -> Vec<Arc<Object>> {
    let mut beside = view.list(&KIND, me.namespace());
    beside.retain(|other| is_root(other));
    beside
}

fn is_root(object: &Object) -> bool {
    object.controller().is_none_or(|owner| owner.kind != KIND.kind)
}

/// Whether a job runs, or is about to.
fn is_at_work(object: &Arc<Object>) -> bool {
    let Ok(its) = object.parse::<Installation>() else { return false };
    let nothing = InstallationStatus::default();
    let status = its.status.as_ref().unwrap_or(&nothing);
    let jobs = Jobs::of(&status.job_id, &status.job_id_finished);
    let removed = status.phase == Some(InstallationPhase::DeleteFailed);
    jobs.running().is_some()
        || job::start(object, jobs, status.observed_generation, removed) != job::Start::No
}

fn given_by(installation: &Installation) -> BTreeSet<What> {
    exported(&installation.spec).map(|(sort, name)| (sort, name.to_owned())).collect()
}

fn wanted_by(installation: &Installation) -> BTreeSet<What> {
    imported(&installation.spec).map(|(sort, name)| (sort, name.to_owned())).collect()
}
