//! What does the blueprint want to be there, and what has to be written for that?

use pawl_api::deploy::installation::{KIND, SubinstallationRef};
use pawl_api::deploy::{FINALIZER, InstallationSpec, annotations, execution, labels};
use pawl_api::meta::reference::NamedRef;
use pawl_api::meta::{Kind, Reason, names};
use serde_json::{Value, json};

use super::Facts;
use super::family::{Member, patch};
use super::scope::MAX_DEPTH;
use crate::apply::difference;
use crate::deploy::blueprint::{self, Blueprint, Fault, What};
use crate::deploy::items;
use crate::json;
use crate::plan::{Part, Step};

/// Why a job ends here.
pub(super) type Problem = (Reason, String);

/// What is to be there.
#[derive(Debug)]
pub(super) struct Wanted {
    /// The spec of the Execution.
    execution: Value,
    children: Vec<Child>,
    /// Keys that nobody reads, and where they are.
    pub(super) ignored: Vec<String>,
}

#[derive(Debug)]
struct Child {
    /// Its name in the blueprint.
    name: String,
    /// What its object is called.
    object: String,
    spec: Value,
}

/// What is to be done about it.
#[derive(Debug, Default)]
pub(super) struct Making<'a> {
    pub(super) steps: Vec<Step>,
    /// What has to be gone first.
    pub(super) leaving: Vec<&'a Member>,
}

/// Renders the blueprint with the imports there are.
pub(super) fn render(facts: &Facts<'_>) -> Result<Wanted, Problem> {
    let spec = &facts.cx.typed.spec;
    let told = |problems: Vec<blueprint::Problem>| told(&problems);
    if facts.depth > MAX_DEPTH {
        let message = format!("Installations are nested more than {MAX_DEPTH} deep");
        return Err((Reason::BlueprintInvalid, message));
    }
    let (blueprint, mut warnings) = Blueprint::read(&spec.blueprint.inline.filesystem).map_err(told)?;
    missing(facts, &blueprint)?;
    promised(facts, &blueprint)?;
    let imports = &facts.imported.imports;
    let (items, more) = blueprint.render_items(imports).map_err(told)?;
    warnings.extend(more);
    let (children, more) = blueprint.subinstallations(imports).map_err(told)?;
    warnings.extend(more);
    let mut execution =
        items::pack(&items).map_err(|invalid| (Reason::BlueprintInvalid, invalid.to_string()))?;
    execution.insert("context".to_owned(), spec.context.clone().into());
    let children = children.into_iter().map(|child| {
        let object = child_name(facts, &child.name);
        let spec = InstallationSpec { context: spec.context.clone(), ..child.spec };
        let spec = serde_json::to_value(spec).map_err(|error| {
            (Reason::BlueprintInvalid, format!("sub-Installation {}: {error}", child.name))
        })?;
        Ok(Child { name: child.name, object, spec })
    });
    let mut ignored = ignored(facts.cx.object.raw());
    ignored.extend(warnings.iter().map(ToString::to_string));
    Ok(Wanted {
        execution: Value::Object(execution),
        children: children.collect::<Result<_, Problem>>()?,
        ignored,
    })
}

/// All problems in words, and the first one's sort as a word.
pub(super) fn told(problems: &[blueprint::Problem]) -> Problem {
    let reason = match problems.first().map(|problem| problem.fault) {
        Some(Fault::Template) => Reason::TemplateError,
        Some(Fault::ImportMissing) => Reason::ImportMissing,
        Some(Fault::ImportInvalid) => Reason::ImportInvalid,
        Some(Fault::Blueprint) | None => Reason::BlueprintInvalid,
    };
    let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
    (reason, all.join("; "))
}

/// All imports that are not there, whether they were named in vain or not at all.
fn missing(facts: &Facts<'_>, blueprint: &Blueprint) -> Result<(), Problem> {
    let imports = &facts.cx.typed.spec.imports;
    let data = imports.data.iter().map(|import| &import.name);
    let mut named = data.chain(imports.targets.iter().map(|import| &import.name));
    let unnamed = |problem: &blueprint::Problem| {
        problem.fault == Fault::ImportMissing
            && !named.any(|name| problem.place == format!("import {name:?}"))
    };
    let mut missing = facts.imported.missing.clone();
    let wanted = blueprint.check_imports(&facts.imported.imports);
    missing.extend(wanted.into_iter().filter(unnamed).map(|problem| problem.to_string()));
    if missing.is_empty() { Ok(()) } else { Err((Reason::ImportMissing, missing.join("; "))) }
}

/// What the Installation wants exported, the blueprint must promise.
fn promised(facts: &Facts<'_>, blueprint: &Blueprint) -> Result<(), Problem> {
    let exports = &facts.cx.typed.spec.exports;
    let is_data = |name: &str| {
        let found = blueprint.exports.iter().find(|export| export.name == name);
        found.map(|export| matches!(export.what, What::Data { .. }))
    };
    let wrong = |name: &str, wants_data: bool| match is_data(name) {
        Some(is_data) if is_data == wants_data => None,
        Some(true) => Some(format!("spec.exports.targets: {name:?} is data in the blueprint")),
        Some(false) => Some(format!("spec.exports.data: {name:?} is a target in the blueprint")),
        None => Some(format!("spec.exports: the blueprint exports no {name:?}")),
    };
    let data = exports.data.iter().filter_map(|export| wrong(&export.name, true));
    let targets = exports.targets.iter().filter_map(|export| wrong(&export.name, false));
    let wrong: Vec<String> = data.chain(targets).collect();
    if wrong.is_empty() { Ok(()) } else { Err((Reason::ValidationFailed, wrong.join("; "))) }
}

/// What its spec says that nobody reads.
fn ignored(raw: &Value) -> Vec<String> {
    let unknown = |at: &str, known: &[&str]| -> Vec<String> {
        let keys = raw.pointer(at).and_then(Value::as_object).into_iter().flat_map(|map| map.keys());
        let unknown = keys.filter(|key| !known.contains(&key.as_str()));
        let place = at.replace('/', ".");
        unknown
            .map(|key| format!("{}.{key}: is not known, and passed over", place.trim_start_matches('.')))
            .collect()
    };
    let mut found = unknown("/spec", &["context", "blueprint", "imports", "exports", "automaticReconcile"]);
    found.extend(unknown("/spec/imports", &["data", "targets"]));
    found
}

fn child_name(facts: &Facts<'_>, name: &str) -> String {
    let prefix = format!("{}-{name}", facts.cx.object.name());
    names::child(&prefix, &[facts.cx.object.uid(), name], 8, names::MAX_SUBDOMAIN)
}

impl Wanted {
    /// Where the sub-Installations are.
    pub(super) fn refs(&self) -> Vec<SubinstallationRef> {
        let reference = |child: &Child| NamedRef { name: child.object.clone(), namespace: None };
        let refs = self.children.iter();
        refs.map(|child| SubinstallationRef { name: child.name.clone(), reference: reference(child) })
            .collect()
    }

    /// What has to be written, and what has to go.
    pub(super) fn making<'a>(&self, facts: &'a Facts<'a>) -> Making<'a> {
        let mut making = Making::default();
        let family = &facts.family;
        match &family.execution {
            None => making.steps.push(create(
                facts,
                execution::KIND,
                facts.cx.object.name(),
                json!({}),
                &self.execution,
            )),
            // Somebody deleted it: a name is free only when what had it is uninstalled.
            Some(found) if found.object.is_deleting() => making.leaving.push(found),
            Some(found) => making.steps.extend(update(found, &self.execution)),
        }
        for child in &self.children {
            match family.children.iter().find(|found| found.object.name() == child.object) {
                None => {
                    let metadata = json!({
                        "labels": {labels::ENCOMPASSED_BY: names::label_value(facts.cx.object.name())},
                        "annotations": {annotations::SUBINSTALLATION_NAME: child.name},
                    });
                    making.steps.push(create(facts, KIND, &child.object, metadata, &child.spec));
                }
                Some(found) if found.object.is_deleting() => making.leaving.push(found),
                Some(found) => making.steps.extend(update(found, &child.spec)),
            }
        }
        for found in &family.children {
            if self.children.iter().all(|child| child.object != found.object.name()) {
                making.steps.extend((!found.object.is_deleting()).then(|| remove(found)));
                making.leaving.push(found);
            }
        }
        making
    }
}

fn create(facts: &Facts<'_>, kind: Kind, name: &str, more: Value, spec: &Value) -> Step {
    let mut metadata = json!({"name": name, "finalizers": [FINALIZER]});
    json::merge(&mut metadata, more);
    Step::create_child(facts.cx.object, kind, json!({"metadata": metadata, "spec": spec}))
}

fn update(found: &Member, spec: &Value) -> Option<Step> {
    let before = found.object.raw().get("spec").unwrap_or(&Value::Null);
    let changes = difference(before, spec)?;
    Some(patch(&found.object, json!({"spec": changes}), Part::Main))
}

pub(super) fn remove(found: &Member) -> Step {
    Step::delete(&found.object)
}
