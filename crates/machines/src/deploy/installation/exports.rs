//! What came of an Installation, as objects that others may import?
//!
//! What its items and its sub-Installations exported is rendered to the blueprint's exports. Those that the spec names
//! become DataObjects and Targets in the scope that the Installation is in; those that it no longer names go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pawl_api::deploy::{Installation, data_object, labels, target};
use pawl_api::k8s::SECRET;
use pawl_api::meta::{Kind, Reason, names};
use serde_json::{Value, json};

use super::family::{Family, patch};
use super::making::{Problem, told};
use super::{Facts, scope};
use crate::apply::difference;
use crate::deploy::blueprint::{Blueprint, ExportInputs, ExportedTarget, Fault, Sort};
use crate::deploy::export_secret;
use crate::object::{Key, Object, Reference};
use crate::plan::{Part, Step};
use crate::view::View;

/// What there is to export from, and where it goes.
#[derive(Debug, Default)]
pub(super) struct Exported {
    /// By item.
    items: BTreeMap<String, Value>,
    /// Why what the items exported cannot be read.
    unread: Option<String>,
    /// The Secret with it, if it is named and not in sight.
    pub(super) absent: Option<Reference>,
    /// What the sub-Installations exported, by the names of their scope.
    data: BTreeMap<String, Value>,
    targets: BTreeMap<String, Value>,
    /// Where each export belongs, and what is there.
    places: BTreeMap<(Sort, String), Place>,
    /// Objects of exports that are no longer wanted.
    stale: Vec<Arc<Object>>,
    /// The Installation in whose scope all of it is.
    scope: Option<String>,
}

/// Where an export belongs.
#[derive(Debug)]
struct Place {
    key: Key,
    found: Option<Arc<Object>>,
}

pub(super) fn read(view: &dyn View, me: &Object, installation: &Installation, family: &Family) -> Exported {
    let exports = &installation.spec.exports;
    let parent = scope::parent(view, me);
    let place = |sort: Sort, name: &str| {
        let key = scope::key(parent.as_deref(), me.namespace(), sort, name);
        let found = view.get(&kind_of(sort), &key);
        Place { key, found }
    };
    let data = exports.data.iter().map(|export| (Sort::Data, export.data_ref.as_str()));
    let targets = exports.targets.iter().map(|export| (Sort::Target, export.target.as_str()));
    let places: BTreeMap<(Sort, String), Place> =
        data.chain(targets).map(|(sort, name)| ((sort, name.to_owned()), place(sort, name))).collect();
    let kept: BTreeSet<(Sort, &Key)> = places.iter().map(|((sort, _), place)| (*sort, &place.key)).collect();
    let owned = |sort: Sort| view.owned(&kind_of(sort), me.uid()).into_iter().map(move |found| (sort, found));
    let stale = owned(Sort::Data).chain(owned(Sort::Target)).filter(|(sort, found)| {
        found.is_controlled_by(me) && !found.is_deleting() && !kept.contains(&(*sort, &found.key()))
    });
    let stale: Vec<Arc<Object>> = stale.map(|(_, found)| found).collect();
    let mut exported =
        Exported { stale, scope: parent.map(|parent| parent.name().to_owned()), ..Exported::default() };
    exported.places = places;
    exported.read_items(view, me, family);
    exported.read_children(view, me, family);
    exported
}

impl Exported {
    fn read_items(&mut self, view: &dyn View, me: &Object, family: &Family) {
        let named = family.execution.as_ref().and_then(|execution| execution.says.export_ref.as_ref());
        let Some(named) = named else { return };
        let key = Key::new(me.namespace(), &named.name);
        let found = view.get(&SECRET, &key);
        if found.is_none() {
            self.absent = Some(Reference { kind: SECRET, key: key.clone(), uid: String::new() });
        }
        let read = found.ok_or_else(|| "it is not there".to_owned()).and_then(|secret| {
            let value = export_secret::read(&secret)?;
            serde_json::from_value(value).map_err(|_| "it is no map of items".to_owned())
        });
        match read {
            Ok(items) => self.items = items,
            Err(problem) => self.unread = Some(format!("Secret {}: {problem}", key.name)),
        }
    }

    fn read_children(&mut self, view: &dyn View, me: &Object, family: &Family) {
        for child in family.children.iter().filter_map(|child| child.object.parse::<Installation>().ok()) {
            for export in &child.spec.exports.data {
                let key = scope::key(Some(me), me.namespace(), Sort::Data, &export.data_ref);
                let found = view.get(&data_object::KIND, &key);
                let value = found.map(|found| found.raw().get("data").cloned().unwrap_or_default());
                self.data.extend(value.map(|value| (export.data_ref.clone(), value)));
            }
            for export in &child.spec.exports.targets {
                let key = scope::key(Some(me), me.namespace(), Sort::Target, &export.target);
                let found = view.get(&target::KIND, &key);
                self.targets.extend(found.map(|found| (export.target.clone(), found.raw().clone())));
            }
        }
    }
}

/// What is left to write; nothing when all is as it should be.
pub(super) fn steps(facts: &Facts<'_>) -> Result<Vec<Step>, Problem> {
    let (spec, exported) = (&facts.cx.typed.spec, &facts.exported);
    let (blueprint, _) =
        Blueprint::read(&spec.blueprint.inline.filesystem).map_err(|problems| told(&problems))?;
    if let Some(problem) = &exported.unread {
        return Err((Reason::ExportMissing, problem.clone()));
    }
    let imports = facts.imported.imports.clone();
    // As in Landscaper, what is imported can be seen among what is there to export.
    let mut data_objects = imports.data.clone();
    data_objects.extend(exported.data.clone());
    let (deploy_items, targets) = (exported.items.clone(), exported.targets.clone());
    let inputs = ExportInputs { imports, deploy_items, data_objects, targets };
    let (rendered, _) = blueprint.render_exports(&inputs).map_err(|problems| {
        let (reason, message) = told(&problems);
        let template = problems.first().is_some_and(|problem| problem.fault == Fault::Template);
        (if template { reason } else { Reason::ExportMissing }, message)
    })?;
    let missing = |name: &str| (Reason::ExportMissing, format!("the blueprint does not export {name}"));
    let mut steps = Vec::new();
    for export in &spec.exports.data {
        let value = rendered.data.get(&export.name).ok_or_else(|| missing(&export.name))?;
        let labels = labels_of(facts, &export.data_ref);
        steps.extend(write(facts, Sort::Data, &export.data_ref, &labels, &json!({}), "data", value)?);
    }
    for export in &spec.exports.targets {
        let value = rendered.targets.get(&export.name).ok_or_else(|| missing(&export.name))?;
        let ExportedTarget { type_, config, labels, annotations } = value;
        let mut all = labels.clone();
        all.extend(labels_of(facts, &export.target));
        let spec = json!({"type": type_, "config": config});
        steps.extend(write(facts, Sort::Target, &export.target, &all, &json!(annotations), "spec", &spec)?);
    }
    steps.extend(exported.stale.iter().map(|found| Step::delete(found)));
    Ok(steps)
}

fn labels_of(facts: &Facts<'_>, name: &str) -> BTreeMap<String, String> {
    let scope = facts.exported.scope.as_deref().map(|scope| (labels::DATA_CONTEXT, scope));
    let all =
        [(labels::DATA_KEY, name), (labels::DATA_SOURCE, facts.cx.object.name())].into_iter().chain(scope);
    all.map(|(label, value)| (label.to_owned(), names::label_value(value))).collect()
}

/// Makes an export's object say this, if it is ours.
fn write(
    facts: &Facts<'_>,
    sort: Sort,
    name: &str,
    labels: &BTreeMap<String, String>,
    annotations: &Value,
    field: &str,
    value: &Value,
) -> Result<Option<Step>, Problem> {
    let kind = kind_of(sort);
    let place = facts.exported.places.get(&(sort, name.to_owned()));
    let Some(Place { key, found }) = place else { return Ok(None) };
    let Some(found) = found else {
        let manifest = json!({
            "metadata": {"name": key.name, "labels": labels, "annotations": annotations}, field: value,
        });
        return Ok(Some(Step::create_child(facts.cx.object, kind, manifest)));
    };
    if !found.is_controlled_by(facts.cx.object) {
        let message = format!("{} {} is there already, and not this Installation's", kind.kind, key.name);
        return Err((Reason::OwnershipMismatch, message));
    }
    let mut changes = json!({});
    // The whole of it: a merge would keep what is no longer exported.
    if let Some(change) = difference(found.raw().get(field).unwrap_or(&Value::Null), value) {
        changes = json!({field: change});
    }
    if labels.iter().any(|(label, value)| found.label(label) != Some(value))
        && let Some(changes) = changes.as_object_mut()
    {
        changes.insert("metadata".to_owned(), json!({"labels": labels}));
    }
    let changed = changes.as_object().is_some_and(|changes| !changes.is_empty());
    Ok(changed.then(|| patch(found, changes, Part::Main)))
}

fn kind_of(sort: Sort) -> Kind {
    match sort {
        Sort::Data => data_object::KIND,
        Sort::Target => target::KIND,
    }
}
