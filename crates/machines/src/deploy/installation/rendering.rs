//! What does the blueprint make of its imports, and of what its items exported?

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pawl_api::deploy::installation::{BLUEPRINT_FILE, Exports, Filesystem, InstallationSpec};
use pawl_api::deploy::{DeployItemTemplate, EXPORT_KEY, ExecutionStatus, data_object, target};
use pawl_api::k8s::SECRET;
use pawl_api::meta::{Kind, Reason};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::imports::Imported;
use super::{Observed, patch};
use crate::deploy::blueprint::template::{Options, Template};
use crate::deploy::items;
use crate::object::{Key, Object, Reference};
use crate::plan::{Adopt, Part, Step};
use crate::view::View;

/// Why a job ends here.
pub(super) type Problem = (Reason, String);

/// `blueprint.yaml`, as far as it is understood; what is not is left alone.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Blueprint {
    imports: Vec<BlueprintImport>,
    deploy_executions: Vec<Program>,
    export_executions: Vec<Program>,
    subinstallations: Vec<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BlueprintImport {
    name: String,
    required: Option<bool>,
    default: Option<Default_>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Default_ {
    value: Value,
}

/// A template, in place or in a file.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Program {
    name: String,
    #[serde(rename = "type")]
    type_: String,
    template: Option<Value>,
    file: Option<String>,
}

/// What an Execution exported, and where that is to go.
#[derive(Debug, Default)]
pub(super) struct Exported {
    /// By item; `None`: the Execution exported nothing.
    items: Option<Result<Value, String>>,
    /// The Secret with it, if it is not in sight.
    pub(super) absent: Option<Reference>,
    /// What is there of what is to be written, by kind and name.
    there: BTreeMap<(Kind, String), Option<Arc<Object>>>,
}

/// The spec of the Execution.
pub(super) fn render(spec: &InstallationSpec, imported: &[Imported]) -> Result<Value, Problem> {
    let files = &spec.blueprint.inline.filesystem;
    let blueprint = read(files)?;
    if !blueprint.subinstallations.is_empty() {
        return Err((Reason::BlueprintInvalid, "subinstallations are not supported yet".to_owned()));
    }
    let imports = bindings(&blueprint, imported)?;
    let mut list = Vec::new();
    for program in &blueprint.deploy_executions {
        let rendered = run(program, &json!({"imports": imports, "blueprint": {"imports": imports}}), files)?;
        let items = rendered.get("deployItems").cloned().unwrap_or(Value::Array(vec![]));
        let items: Vec<Value> = serde_json::from_value(items).map_err(|error| bad(program, &error))?;
        for mut item in items {
            resolve_target(&mut item, imported).map_err(|problem| bad(program, &problem))?;
            list.push(DeployItemTemplate::deserialize(item).map_err(|error| bad(program, &error))?);
        }
    }
    let mut written =
        items::pack(&list).map_err(|invalid| (Reason::BlueprintInvalid, invalid.to_string()))?;
    written.insert("context".to_owned(), spec.context.clone().into());
    Ok(Value::Object(written))
}

fn read(files: &Filesystem) -> Result<Blueprint, Problem> {
    let text = files
        .file(BLUEPRINT_FILE)
        .ok_or_else(|| (Reason::BlueprintInvalid, format!("the blueprint has no file {BLUEPRINT_FILE}")))?;
    serde_saphyr::from_str(text)
        .map_err(|error| (Reason::BlueprintInvalid, format!("{BLUEPRINT_FILE}: {error}")))
}

/// The values of the imports, all that are missing told at once.
fn bindings(blueprint: &Blueprint, imported: &[Imported]) -> Result<Map<String, Value>, Problem> {
    let (mut values, mut missing) = (Map::new(), Vec::new());
    for import in imported {
        match &import.value {
            Ok(value) => {
                values.insert(import.name.clone(), value.clone());
            }
            Err(problem) => missing.push(format!("import {}: {problem}", import.name)),
        }
    }
    for wanted in &blueprint.imports {
        let named = imported.iter().any(|import| import.name == wanted.name);
        match &wanted.default {
            _ if named => {}
            Some(default) => {
                values.insert(wanted.name.clone(), default.value.clone());
            }
            None if wanted.required == Some(false) => {}
            None => missing
                .push(format!("import {}: the blueprint needs it, the Installation has none", wanted.name)),
        }
    }
    if missing.is_empty() { Ok(values) } else { Err((Reason::ImportMissing, missing.join("; "))) }
}

/// Renders one template and reads what it printed.
fn run(program: &Program, bindings: &Value, files: &Filesystem) -> Result<Value, Problem> {
    if !matches!(program.type_.as_str(), "GoTemplate" | "") {
        let message = format!(
            "{}: templates of type {} are not understood; write GoTemplate",
            program.name, program.type_
        );
        return Err((Reason::BlueprintInvalid, message));
    }
    let text = match (&program.template, &program.file) {
        (Some(Value::String(text)), _) => text.clone(),
        (Some(other), _) => other.to_string(),
        (None, Some(file)) => files
            .file(file)
            .ok_or_else(|| (Reason::BlueprintInvalid, format!("{}: there is no file {file}", program.name)))?
            .to_owned(),
        (None, None) => String::new(),
    };
    let template =
        Template::parse(&program.name, &text).map_err(|error| (Reason::TemplateError, error.to_string()))?;
    let options = Options { files: Some(files), ..Options::default() };
    let printed =
        template.render(bindings, &options).map_err(|error| (Reason::TemplateError, error.to_string()))?;
    if printed.trim().is_empty() {
        return Ok(Value::Null);
    }
    serde_saphyr::from_str(&printed).map_err(|error| {
        let error = error.without_snippet().to_string();
        (Reason::TemplateError, format!("{}: what it renders is no YAML: {error}", program.name))
    })
}

fn bad(program: &Program, problem: &dyn std::fmt::Display) -> Problem {
    (Reason::BlueprintInvalid, format!("{}: {problem}", program.name))
}

/// `target: {import, index}` becomes the Target that was imported.
fn resolve_target(item: &mut Value, imported: &[Imported]) -> Result<(), String> {
    let Some(target) = item.get_mut("target") else { return Ok(()) };
    let Some(import) = target.get("import").and_then(Value::as_str) else { return Ok(()) };
    let index = target.get("index").and_then(Value::as_u64).unwrap_or_default();
    let found = imported.iter().find(|one| one.name == import && !one.targets.is_empty());
    let targets = &found.ok_or_else(|| format!("there is no target import {import}"))?.targets;
    let name = usize::try_from(index).ok().and_then(|index| targets.get(index));
    let name = name.ok_or_else(|| format!("target import {import} has no index {index}"))?;
    *target = json!({"name": name});
    Ok(())
}

/// What is there of what will be exported.
pub(super) fn read_exports(
    view: &dyn View,
    me: &Object,
    exports: &Exports,
    ran: &ExecutionStatus,
) -> Exported {
    let beside = |name: &str| Key::new(me.namespace(), name);
    let data = exports.data.iter().map(|export| (data_object::KIND, export.data_ref.clone()));
    let targets = exports.targets.iter().map(|export| (target::KIND, export.target.clone()));
    let there = data.chain(targets).map(|(kind, name)| {
        let found = view.get(&kind, &beside(&name));
        ((kind, name), found)
    });
    let items = ran.export_ref.as_ref().map(|reference| {
        let secret = view.get(&SECRET, &beside(&reference.name));
        let secret = secret.ok_or_else(|| format!("Secret {} is not there", reference.name))?;
        let text =
            secret.raw().pointer(&format!("/data/{EXPORT_KEY}")).and_then(Value::as_str).unwrap_or_default();
        let bytes = STANDARD.decode(text).map_err(|_| format!("Secret {}: not base64", reference.name))?;
        serde_json::from_slice(&bytes).map_err(|_| format!("Secret {}: not JSON", reference.name))
    });
    let absent = ran.export_ref.as_ref().map(|reference| Reference {
        kind: SECRET,
        key: beside(&reference.name),
        uid: String::new(),
    });
    let absent = absent.filter(|reference| view.get(&SECRET, &reference.key).is_none());
    Exported { items, absent, there: there.collect() }
}

/// What is left to write of the exports; nothing when all is as it should be.
pub(super) fn export(observed: &Observed) -> Result<Vec<Step>, Problem> {
    let spec = &observed.installation.spec;
    let blueprint = read(&spec.blueprint.inline.filesystem)?;
    let items = match &observed.exported.items {
        None => json!({}),
        Some(Ok(items)) => items.clone(),
        Some(Err(problem)) => return Err((Reason::ExportMissing, problem.clone())),
    };
    let mut exports = Map::new();
    for program in &blueprint.export_executions {
        let bindings = json!({"deployitems": items, "dataobjects": {}, "values": {"deployitems": items}});
        let rendered = run(program, &bindings, &spec.blueprint.inline.filesystem)?;
        let found = rendered.get("exports").and_then(Value::as_object).cloned().unwrap_or_default();
        exports.extend(found);
    }
    let missing = |name: &str| (Reason::ExportMissing, format!("the blueprint does not export {name}"));
    let mut steps = Vec::new();
    for export in &spec.exports.data {
        let value = exports.get(&export.name).ok_or_else(|| missing(&export.name))?;
        steps.extend(write(observed, &data_object::KIND, &export.data_ref, "data", value));
    }
    for export in &spec.exports.targets {
        let value = exports.get(&export.name).ok_or_else(|| missing(&export.name))?;
        let spec = json!({"type": value.get("type"), "config": value.get("config")});
        steps.extend(write(observed, &target::KIND, &export.target, "spec", &spec));
    }
    Ok(steps)
}

fn write(observed: &Observed, kind: &Kind, name: &str, field: &str, value: &Value) -> Option<Step> {
    match observed.exported.there.get(&(kind.clone(), name.to_owned())).and_then(Option::as_ref) {
        Some(found) if found.raw().get(field) == Some(value) => None,
        // The whole of it: a merge would keep what is no longer exported.
        Some(found) => {
            let before = found.raw().get(field).unwrap_or(&Value::Null);
            let changes = crate::apply::difference(before, value)?;
            Some(patch(found, json!({field: changes}), Part::Main))
        }
        None => Some(Step::Create {
            kind: kind.clone(),
            manifest: json!({
                "metadata": {"name": name, "namespace": observed.me.namespace(),
                    "ownerReferences": [observed.me.controller_reference()]},
                field: value,
            }),
            adopt: Adopt::ControlledBy(observed.me.uid().to_owned()),
        }),
    }
}
