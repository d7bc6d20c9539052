//! What does a name mean to an Installation: which data, which Target?
//!
//! A root sees its namespace. A sub-Installation sees what its parent's blueprint imports, by the blueprint's names, and
//! what its siblings export. What it takes from its parent is looked up where the parent has it from, at any depth:
//! nothing is copied on the way down, so what comes from a Secret stays there (I6). What siblings export are DataObjects
//! and Targets like a root's, under names that are the parent's alone.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pawl_api::deploy::installation::{DataImport, Imports as SpecImports, KIND, TargetImport};
use pawl_api::deploy::{Installation, data_object, target};
use pawl_api::k8s::{CONFIG_MAP, SECRET};
use pawl_api::meta::names;
use pawl_api::meta::reference::{KeyRef, NamedRef};
use serde_json::{Map, Value, json};

use crate::deploy::blueprint::{Blueprint, ImportedTarget, ImportedTargets, Imports, Sort, indexed};
use crate::object::{Key, Object};
use crate::view::{View, group_of};
use crate::yaml;

/// Installations within Installations. People nest two or three; a blueprint that renders itself would never end.
pub(super) const MAX_DEPTH: usize = 8;

/// What an Installation imports.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Imported {
    /// What is there.
    pub(super) imports: Imports,
    /// What is not, and why.
    pub(super) missing: Vec<String>,
}

/// Something, nothing where that is allowed, or why it is not there.
type Found<T> = Result<Option<T>, String>;

/// Looks up everything that an Installation imports.
pub(super) fn read(view: &dyn View, me: &Object, imports: &SpecImports) -> Imported {
    let mut imported = Imported::default();
    for import in &imports.data {
        match data_import(view, me, import, 0) {
            Ok(Some(value)) => _ = imported.imports.data.insert(import.name.clone(), value),
            Ok(None) => {}
            Err(problem) => imported.missing.push(format!("import {}: {problem}", import.name)),
        }
    }
    for import in &imports.targets {
        match target_import(view, me, import, 0) {
            Ok(Some(targets)) => _ = imported.imports.targets.insert(import.name.clone(), targets),
            Ok(None) => {}
            Err(problem) => imported.missing.push(format!("import {}: {problem}", import.name)),
        }
    }
    imported
}

/// Where an Installation's scope keeps what is exported under this name.
pub(super) fn key(parent: Option<&Object>, namespace: Option<&str>, sort: Sort, name: &str) -> Key {
    let object = match parent {
        None => names::subdomain(name),
        Some(parent) => {
            let sort = match sort {
                Sort::Data => "data",
                Sort::Target => "target",
            };
            let prefix = format!("{}-{name}", parent.name());
            names::child(&prefix, &[parent.uid(), sort, name], 8, names::MAX_SUBDOMAIN)
        }
    };
    Key::new(namespace, &object)
}

/// The Installation in whose scope this one is; `None` for a root, and where it is not in sight.
pub(super) fn parent(view: &dyn View, me: &Object) -> Option<Arc<Object>> {
    let owner = me.controller().filter(|owner| owner.kind == KIND.kind)?;
    let found = view.get(&KIND, &Key::new(me.namespace(), &owner.name));
    found.filter(|found| found.uid() == owner.uid && group_of(&owner.api_version) == KIND.group)
}

/// How many Installations it is within; never more than a few too many.
pub(super) fn depth(view: &dyn View, me: &Object) -> usize {
    let first = parent(view, me);
    std::iter::successors(first, |above| parent(view, above)).take(MAX_DEPTH + 1).count()
}

fn data_import(view: &dyn View, me: &Object, import: &DataImport, depth: usize) -> Found<Value> {
    let beside = |name: &str| Key::new(me.namespace(), name);
    match (&import.data_ref, &import.secret_ref, &import.config_map_ref) {
        (Some(name), _, _) => data(view, me, name, depth),
        (_, Some(from), _) => {
            keyed(view.get(&SECRET, &beside(&from.name)).as_deref(), "Secret", from, true).map(Some)
        }
        (_, _, Some(from)) => {
            keyed(view.get(&CONFIG_MAP, &beside(&from.name)).as_deref(), "ConfigMap", from, false).map(Some)
        }
        (None, None, None) => Err("it names no source".to_owned()),
    }
}

/// The data that a name means to `me`.
fn data(view: &dyn View, me: &Object, name: &str, depth: usize) -> Found<Value> {
    let above = parent(view, me);
    let exported = key(above.as_deref(), me.namespace(), Sort::Data, name);
    if let Some(found) = view.get(&data_object::KIND, &exported) {
        return Ok(Some(found.raw().get("data").cloned().unwrap_or_default()));
    }
    let Some((above, its)) = its_imports(above, depth)? else {
        return Err(format!("DataObject {name} is not there"));
    };
    match its.spec.imports.data.iter().find(|import| import.name == name) {
        Some(import) => data_import(view, &above, import, depth + 1),
        None => otherwise(&its, name),
    }
}

fn target_import(
    view: &dyn View,
    me: &Object,
    import: &TargetImport,
    depth: usize,
) -> Found<ImportedTargets> {
    let one = |name: &String| one_target(view, me, name, depth);
    match (&import.target, &import.targets) {
        (Some(name), _) => Ok(one(name)?.map(ImportedTargets::One)),
        (None, Some(names)) => {
            let found: Result<Vec<Option<ImportedTarget>>, String> = names.iter().map(one).collect();
            Ok(Some(ImportedTargets::List(found?.into_iter().flatten().collect())))
        }
        (None, None) => Err("it names no Target".to_owned()),
    }
}

/// The Target that a name means to `me`: `name`, or `list[2]` of a list that the parent imports.
fn one_target(view: &dyn View, me: &Object, name: &str, depth: usize) -> Found<ImportedTarget> {
    let above = parent(view, me);
    let exported = key(above.as_deref(), me.namespace(), Sort::Target, name);
    if let Some(found) = view.get(&target::KIND, &exported) {
        return Ok(Some(as_target(&found)));
    }
    let Some((above, its)) = its_imports(above, depth)? else {
        return Err(format!("Target {name} is not there"));
    };
    let (list, index) = indexed(name);
    let imports = &its.spec.imports.targets;
    let Some(import) = imports.iter().find(|import| import.name == name || import.name == list) else {
        return otherwise::<Value>(&its, list).map(|_| None);
    };
    match (&import.target, &import.targets, index) {
        (Some(target), _, None) => one_target(view, &above, target, depth + 1),
        (None, Some(targets), Some(index)) => match targets.get(index) {
            Some(target) => one_target(view, &above, target, depth + 1),
            None => Err(format!("{list} has {} targets: there is no index {index}", targets.len())),
        },
        (None, Some(_), None) => Err(format!("{name} is a list of targets")),
        (Some(_), _, Some(_)) => Err(format!("{list} is one target: it has no index")),
        (None, None, _) => Err(format!("{list} names no Target")),
    }
}

/// The parent as an Installation, if there is one.
fn its_imports(above: Option<Arc<Object>>, depth: usize) -> Found<(Arc<Object>, Arc<Installation>)> {
    let Some(above) = above else { return Ok(None) };
    if depth > MAX_DEPTH {
        return Err(format!("Installations are nested more than {MAX_DEPTH} deep"));
    }
    let its = above.parse::<Installation>().map_err(|malformed| malformed.to_string())?;
    Ok(Some((above, its)))
}

/// What the parent's blueprint has for an import that its Installation does not bring.
fn otherwise<T: From<Value>>(its: &Installation, name: &str) -> Found<T> {
    let read = Blueprint::read(&its.spec.blueprint.inline.filesystem);
    let (blueprint, _) = read.map_err(|_| "the parent's blueprint cannot be read".to_owned())?;
    let declared = blueprint.imports.iter().find(|import| import.name == name);
    let declared = declared.ok_or_else(|| format!("no sibling has exported {name}"))?;
    match &declared.default {
        Some(default) => Ok(Some(T::from(default.clone()))),
        None if !declared.required || declared.within.is_some() => Ok(None),
        None => Err(format!("the parent does not import {name}")),
    }
}

fn as_target(found: &Object) -> ImportedTarget {
    ImportedTarget {
        reference: NamedRef { name: found.name().to_owned(), namespace: None },
        manifest: json!({
            "apiVersion": target::KIND.api_version(), "kind": target::KIND.kind,
            "metadata": {"name": found.name(), "namespace": found.namespace()},
            "spec": found.raw().get("spec").cloned().unwrap_or_default(),
        }),
    }
}

/// A key of a Secret or ConfigMap, as YAML; all keys where none is named.
fn keyed(found: Option<&Object>, kind: &str, from: &KeyRef, encoded: bool) -> Result<Value, String> {
    let found = found.ok_or_else(|| format!("{kind} {} is not there", from.name))?;
    let nothing = Map::new();
    let data = found.raw().get("data").and_then(Value::as_object).unwrap_or(&nothing);
    let read = |key: &str, value: &Value| -> Result<Value, String> {
        let place = || format!("{kind} {}, {key}", from.name);
        let text = value.as_str().unwrap_or_default();
        let text = if encoded {
            let bytes = STANDARD.decode(text).map_err(|_| format!("{}: not base64", place()))?;
            String::from_utf8(bytes).map_err(|_| format!("{}: not text", place()))?
        } else {
            text.to_owned()
        };
        // Without the text: it may be secret (I6).
        yaml::read(&text).map_err(|error| format!("{}: not YAML at line {}", place(), error.line))
    };
    match &from.key {
        Some(key) => {
            let value = data.get(key).ok_or_else(|| format!("{kind} {} has no key {key}", from.name))?;
            read(key, value)
        }
        None => {
            let all: Result<Map<String, Value>, String> =
                data.iter().map(|(key, value)| Ok((key.clone(), read(key, value)?))).collect();
            all.map(Value::Object)
        }
    }
}
