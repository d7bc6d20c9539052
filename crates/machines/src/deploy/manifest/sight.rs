//! What is there of an item's objects, are they ready, and what do they export?
//!
//! Where Pawl runs, kinds that are watched are seen in the caches. All else (another kind, another cluster, or as somebody
//! else) is read through a port, in the same look: what was read is forgotten when the look ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pawl_api::meta::Kind;
use serde_json::{Map, Value};

use super::config::{self, Config, Policy};
use super::objects::{self, Kinds, Managed, Power};
use super::readiness::{self, CHECKED, Ready};
use super::{WATCHED, objects::Wanted};
use crate::deploy::json_path::Path;
use crate::deploy::target::{Call, Place, Reply};
use crate::external::Answers;
use crate::failure::Failure;
use crate::object::{Object, Reference};
use crate::view::View;

/// What was seen, and what is still to be asked.
#[derive(Debug, Default)]
pub(super) struct Sight {
    found: BTreeMap<Reference, Option<Arc<Object>>>,
    /// To be heard before anything is decided on what was seen.
    pub(super) pending: Option<Call>,
    pub(super) failed: Option<Failure>,
    /// Something is looked at that no watch tells of.
    pub(super) polled: bool,
}

/// What the checks and exports of a configuration look at.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// By check: what its selectors select, or why nothing can be.
    checks: Vec<Result<Vec<Reference>, String>>,
    /// By export: its object, and the one that this names.
    exports: Vec<Result<Reference, String>>,
    named: Vec<Option<Result<Reference, String>>>,
}

/// Where to look from.
#[derive(Clone, Copy)]
pub(super) struct Eyes<'a> {
    pub(super) view: &'a dyn View,
    pub(super) answers: &'a Answers,
    pub(super) place: &'a Place,
}

impl Sight {
    /// Looks at these places too.
    pub(super) fn look(&mut self, eyes: Eyes<'_>, places: impl IntoIterator<Item = Reference>) {
        let new: BTreeSet<Reference> =
            places.into_iter().filter(|place| !self.found.contains_key(place)).collect();
        let mut unseen = Vec::new();
        for place in new {
            let watched = WATCHED.iter().find(|kind| kind.same_kind(&place.kind));
            match watched.filter(|_| *eyes.place == Place::Here) {
                Some(kind) => {
                    let found = eyes.view.get(kind, &place.key);
                    self.found.insert(place, found);
                }
                None => unseen.push(place),
            }
        }
        if unseen.is_empty() || self.pending.is_some() {
            return;
        }
        self.polled = true;
        let call = objects::read(eyes.place, unseen.clone());
        match eyes.answers.get(&call) {
            None => self.pending = Some(call),
            Some(Err(failure)) => self.failed = Some(failure.clone()),
            Some(Ok(Reply::Objects(read))) => {
                for (place, raw) in unseen.into_iter().zip(read) {
                    let found = raw.as_ref().and_then(|raw| objects::object(&place, raw));
                    self.found.insert(place, found);
                }
            }
            Some(Ok(Reply::Kinds(_) | Reply::Carried)) => {}
        }
    }

    pub(super) fn get(&self, place: &Reference) -> Option<&Arc<Object>> {
        self.found.get(place).and_then(Option::as_ref)
    }
}

impl Looked {
    /// Looks at all that decides whether the item is deployed, and at what it exports.
    pub(super) fn at(
        sight: &mut Sight,
        eyes: Eyes<'_>,
        kinds: &Kinds<'_>,
        power: Power<'_>,
        config: &Config,
        wanted: &[Wanted],
    ) -> Self {
        let managed = || wanted.iter().filter_map(|one| one.managed.as_ref().ok());
        let located = |place: &config::Place| objects::located(kinds, power, place);
        let checks: Vec<Result<Vec<Reference>, String>> = config
            .readiness_checks
            .custom
            .iter()
            .map(|check| {
                let selected = check.label_selector.iter().flat_map(|by| {
                    let kind = kinds.resolve(&by.api_version, &by.kind);
                    managed().filter(move |one| kind.as_ref().is_some_and(|kind| one.kind.same_kind(kind)))
                });
                let selected = selected.map(|one| Ok(one.reference()));
                check.resource_selector.iter().map(located).chain(selected).collect()
            })
            .collect();
        let exports: Vec<Result<Reference, String>> = config
            .exports
            .exports
            .iter()
            .map(|export| {
                let from = export.from_resource.as_ref().ok_or("fromResource is missing")?;
                located(from)
            })
            .collect();
        let can_be_unready = managed().filter(|one| is_checked(config, one)).map(Managed::reference);
        let seen = checks.iter().flatten().flatten().cloned();
        sight.look(eyes, can_be_unready.chain(seen).chain(exports.iter().flatten().cloned()));
        let named: Vec<Option<Result<Reference, String>>> = config
            .exports
            .exports
            .iter()
            .zip(&exports)
            .map(|(export, from)| {
                let by = export.from_object_ref.as_ref()?;
                let object = sight.get(from.as_ref().ok()?)?;
                Some(named_by(export, by, object).and_then(|place| located(&place)))
            })
            .collect();
        sight.look(eyes, named.iter().flatten().flatten().cloned());
        Self { checks, exports, named }
    }

    pub(super) fn ready(&self, sight: &Sight, config: &Config, wanted: &[Managed]) -> Ready {
        for one in wanted.iter().filter(|one| is_checked(config, one)) {
            let Some(found) = sight.get(&one.reference()) else {
                return Ready::NotYet(format!("{} is not seen yet", one.reference()));
            };
            match readiness::default(found) {
                Ready::Yes => {}
                Ready::NotYet(why) => return Ready::NotYet(format!("{}: {why}", one.reference())),
                Ready::Never(why) => return Ready::Never(format!("{}: {why}", one.reference())),
            }
        }
        let checks = config.readiness_checks.custom.iter().zip(&self.checks);
        for (check, places) in checks.filter(|(check, _)| !check.disabled) {
            let told = |why: String| format!("check {}: {why}", check.name);
            let places = match places {
                Ok(places) => places,
                Err(problem) => return Ready::Never(told(problem.clone())),
            };
            let mut selected = 0;
            for place in places {
                let Some(object) = sight.get(place) else {
                    return Ready::NotYet(told(format!("{place} is not seen")));
                };
                let by = check.label_selector.as_ref().filter(|_| !named_directly(check, place));
                if by.is_some_and(|by| !carries(object, by)) {
                    continue;
                }
                selected += 1;
                match readiness::custom(object, &check.requirements) {
                    Ready::Yes => {}
                    Ready::NotYet(why) => return Ready::NotYet(told(why)),
                    Ready::Never(why) => return Ready::Never(told(why)),
                }
            }
            if selected == 0 {
                return Ready::NotYet(told("nothing is selected".to_owned()));
            }
        }
        Ready::Yes
    }

    /// What is exported, by key; or what is still missing.
    pub(super) fn exported(&self, sight: &Sight, config: &Config) -> Result<Option<Value>, String> {
        let mut all = Map::new();
        let places = self.exports.iter().zip(&self.named);
        for (export, (from, named)) in config.exports.exports.iter().zip(places) {
            let missing = |what: &str| format!("export {}: {what}", export.key);
            let from = from.as_ref().map_err(|problem| missing(problem))?;
            let object = sight.get(from).ok_or_else(|| missing(&format!("{from} is not seen")))?;
            let (object, path) = match (&export.from_object_ref, named) {
                (None, _) => (object, &export.json_path),
                (Some(_), None) => return Err(missing("it names no object")),
                (Some(by), Some(named)) => {
                    let named = named.as_ref().map_err(|problem| missing(problem))?;
                    let object = sight.get(named).ok_or_else(|| missing(&format!("{named} is not seen")))?;
                    (object, &by.json_path)
                }
            };
            let path = Path::parse(path).map_err(|bad| missing(&bad.to_string()))?;
            let value = path.find(object.raw()).first().copied().cloned();
            all.insert(export.key.clone(), value.ok_or_else(|| missing("there is no such field"))?);
        }
        Ok((!all.is_empty()).then_some(Value::Object(all)))
    }
}

fn is_checked(config: &Config, one: &Managed) -> bool {
    !config.readiness_checks.disable_default
        && one.policy != Policy::Ignore
        && CHECKED.iter().any(|kind: &Kind| kind.same_kind(&one.kind))
}

/// Whether a check names an object by its place, so that its labels do not matter.
fn named_directly(check: &config::CustomCheck, place: &Reference) -> bool {
    check.resource_selector.iter().any(|one| {
        one.kind == place.kind.kind
            && one.name == place.key.name
            && one.namespace.as_ref().is_none_or(|namespace| Some(namespace) == place.key.namespace.as_ref())
    })
}

fn carries(object: &Object, by: &config::LabelSelector) -> bool {
    by.match_labels.iter().all(|(label, value)| object.label(label) == Some(value.as_str()))
}

/// The place that the exported field `{name, namespace}` names.
fn named_by(
    export: &config::Export,
    by: &config::FromObjectRef,
    object: &Object,
) -> Result<config::Place, String> {
    let path = Path::parse(&export.json_path).map_err(|bad| bad.to_string())?;
    let named = path.find(object.raw()).first().copied().ok_or("there is no such field")?;
    let text = |field: &str| named.get(field).and_then(Value::as_str).map(str::to_owned);
    let namespace = text("namespace").or_else(|| object.namespace().map(str::to_owned));
    let name = text("name").ok_or("the field has no name")?;
    Ok(config::Place { api_version: by.api_version.clone(), kind: by.kind.clone(), name, namespace })
}
