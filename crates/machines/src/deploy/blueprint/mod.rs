//! What does a blueprint make of its imports?
//!
//! ```text
//! filesystem ─ read ─▶ Blueprint ─┬─ imports.rs ─▶ bindings (defaults set, schemas checked)
//!                                 ├─ render.rs ──▶ items of the Execution, exports of the Installation
//!                                 └─ nested.rs ──▶ sub-Installations, and in which order siblings run
//! ```
//!
//! Everything is a function of what it is given. Problems are found together and named by file, template, line and
//! field. What is merely unknown is a warning: blueprints written for Landscaper work unchanged.

mod imports;
mod nested;
mod reading;
mod render;
mod schema;
pub mod template;

use std::collections::BTreeMap;
use std::fmt;

use pawl_api::deploy::installation::{BLUEPRINT_FILE, Filesystem};
use serde_json::{Map, Value as Json};

pub use imports::{ImportedTarget, ImportedTargets, Imports};
pub use nested::Subinstallation;
pub(super) use nested::{Sort, exported, exporters, imported, indexed};
pub use render::{ExportInputs, ExportedTarget, Exports};

use reading::Reading;
use template::Template;

use crate::yaml;

/// Why a blueprint cannot be used, or not with these imports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct Problem {
    pub fault: Fault,
    /// The file or template, and the field in it.
    pub place: String,
    pub message: String,
}

/// Who is to mend it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Whoever wrote the blueprint.
    Blueprint,
    /// The same, in a template: what it says, or what it makes of these imports.
    Template,
    /// Whoever wrote the Installation: something is not imported …
    ImportMissing,
    /// … or is not as the blueprint wants it.
    ImportInvalid,
}

impl Problem {
    fn new(place: impl Into<String>, message: impl fmt::Display) -> Self {
        Self { fault: Fault::Blueprint, place: place.into(), message: message.to_string() }
    }

    fn of(fault: Fault, place: impl Into<String>, message: impl fmt::Display) -> Self {
        Self { fault, ..Self::new(place, message) }
    }
}

/// What was passed over, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    pub place: String,
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// A result, and what was passed over on the way.
pub type Checked<T> = Result<(T, Vec<Warning>), Vec<Problem>>;

/// A blueprint that was understood: its templates are parsed, its names are unique.
#[derive(Clone, Debug)]
pub struct Blueprint {
    pub imports: Vec<ImportDefinition>,
    pub exports: Vec<ExportDefinition>,
    files: Filesystem,
    local_types: Map<String, Json>,
    deploy_executions: Vec<Template>,
    export_executions: Vec<Template>,
    subinstallation_executions: Vec<Template>,
    /// As written: a file, or a template of an Installation.
    subinstallations: Vec<Json>,
}

/// What a blueprint wants.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportDefinition {
    pub name: String,
    pub required: bool,
    pub what: What,
    /// Taken when nothing is imported.
    pub default: Option<Json>,
    /// The optional import without which this one is not wanted.
    pub within: Option<String>,
}

/// What a blueprint yields.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportDefinition {
    pub name: String,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq)]
pub enum What {
    Data { schema: Json },
    Target { target_type: Option<String> },
    TargetList { target_type: Option<String> },
}

impl Blueprint {
    /// Reads `blueprint.yaml` and the templates it names.
    pub fn read(filesystem: &Filesystem) -> Checked<Self> {
        let Some(text) = filesystem.file(BLUEPRINT_FILE) else {
            return Err(vec![Problem::new(BLUEPRINT_FILE, "the blueprint has no such file")]);
        };
        let document = yaml::read(text).map_err(|error| vec![Problem::new(BLUEPRINT_FILE, error)])?;
        let mut reading = Reading::new(BLUEPRINT_FILE);
        let blueprint = Self::understand(&mut reading, &document, filesystem);
        reading.finish(blueprint)
    }

    fn understand(reading: &mut Reading, document: &Json, files: &Filesystem) -> Self {
        let nothing = Map::new();
        let top = reading.map("", document).unwrap_or(&nothing);
        const KNOWN: &[&str] = &[
            "apiVersion",
            "kind",
            "annotations",
            "jsonSchemaVersion",
            "localTypes",
            "imports",
            "exports",
            "deployExecutions",
            "exportExecutions",
            "subinstallations",
            "subinstallationExecutions",
        ];
        reading.only("", top, KNOWN);
        let mut imports = Vec::new();
        read_imports(reading, "imports", top.get("imports"), None, &mut imports);
        let exports = read_exports(reading, top.get("exports"));
        repeated(reading, "imports", imports.iter().map(|import| import.name.as_str()));
        repeated(reading, "exports", exports.iter().map(|export| export.name.as_str()));
        let local_types = top.get("localTypes").and_then(|types| reading.map("localTypes", types)).cloned();
        Self {
            imports,
            exports,
            files: files.clone(),
            local_types: local_types.unwrap_or_default(),
            deploy_executions: read_executions(reading, "deployExecutions", top, files),
            export_executions: read_executions(reading, "exportExecutions", top, files),
            subinstallation_executions: read_executions(reading, "subinstallationExecutions", top, files),
            subinstallations: reading.list("subinstallations", top.get("subinstallations")).to_vec(),
        }
    }
}

/// Imports may hang on an optional one: they are wanted if that is there.
fn read_imports(
    reading: &mut Reading,
    field: &str,
    list: Option<&Json>,
    within: Option<&str>,
    found: &mut Vec<ImportDefinition>,
) {
    for (index, entry) in reading.list(field, list).iter().enumerate() {
        let field = format!("{field}[{index}]");
        let Some(entry) = reading.map(&field, entry) else { continue };
        reading.only(
            &field,
            entry,
            &["name", "required", "type", "schema", "targetType", "default", "imports"],
        );
        let Some(name) = reading.required_text(&field, entry, "name") else { continue };
        let required = reading.boolean(&field, entry, "required").unwrap_or(true);
        let Some(what) = read_what(reading, &field, entry) else { continue };
        // Landscaper writes `default: {value: …}`.
        let default = entry.get("default").map(|default| default.get("value").unwrap_or(default).clone());
        let nested = format!("{field}.imports");
        found.push(ImportDefinition {
            name: name.clone(),
            required,
            what,
            default,
            within: within.map(str::to_owned),
        });
        // A flat list, so that whoever looks for an import need not climb.
        if within.is_none() {
            read_imports(reading, &nested, entry.get("imports"), Some(&name), found);
        } else if entry.contains_key("imports") {
            reading.problem(&nested, "imports hang on imports one deep only");
        }
    }
}

fn read_exports(reading: &mut Reading, list: Option<&Json>) -> Vec<ExportDefinition> {
    let mut found = Vec::new();
    for (index, entry) in reading.list("exports", list).iter().enumerate() {
        let field = format!("exports[{index}]");
        let Some(entry) = reading.map(&field, entry) else { continue };
        reading.only(&field, entry, &["name", "type", "schema", "targetType"]);
        let Some(name) = reading.required_text(&field, entry, "name") else { continue };
        match read_what(reading, &field, entry) {
            Some(What::TargetList { .. }) => reading.problem(&field, "a list of targets cannot be exported"),
            Some(what) => found.push(ExportDefinition { name, what }),
            None => {}
        }
    }
    found
}

/// `type` may be left out where the other fields tell.
fn read_what(reading: &mut Reading, field: &str, entry: &Map<String, Json>) -> Option<What> {
    let target_type = reading.text(field, entry, "targetType");
    let schema = || entry.get("schema").cloned().unwrap_or(Json::Bool(true));
    match reading.text(field, entry, "type").as_deref() {
        Some("data") => Some(What::Data { schema: schema() }),
        Some("target") => Some(What::Target { target_type }),
        Some("targetList") => Some(What::TargetList { target_type }),
        None if target_type.is_some() => Some(What::Target { target_type }),
        None => Some(What::Data { schema: schema() }),
        Some(other) => {
            reading.problem(
                &format!("{field}.type"),
                format_args!("{other:?} is not known: data, target or targetList"),
            );
            None
        }
    }
}

fn repeated<'a>(reading: &mut Reading, field: &str, names: impl Iterator<Item = &'a str>) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        let count = seen.entry(name).or_default();
        *count += 1;
        if *count == 2 {
            reading.problem(field, format_args!("{name:?} is there more than once"));
        }
    }
}

fn read_executions(
    reading: &mut Reading,
    field: &str,
    top: &Map<String, Json>,
    files: &Filesystem,
) -> Vec<Template> {
    let mut templates = Vec::new();
    for (index, entry) in reading.list(field, top.get(field)).iter().enumerate() {
        let place = format!("{field}[{index}]");
        let Some(entry) = reading.map(&place, entry) else { continue };
        reading.only(&place, entry, &["name", "type", "file", "template"]);
        // Landscaper does without a name, and so do some of its users.
        let name = reading.text(&place, entry, "name").unwrap_or_else(|| place.clone());
        match reading.required_text(&place, entry, "type").as_deref() {
            Some("GoTemplate") => {}
            Some(other) => {
                let message = format_args!("{other:?} is not supported, only GoTemplate");
                reading.problem(&format!("{place}.type"), message);
                continue;
            }
            None => continue,
        }
        let inline = reading.text(&place, entry, "template");
        let text = match (inline, reading.text(&place, entry, "file")) {
            (Some(text), None) => text,
            (None, Some(path)) => match files.file(&path) {
                Some(text) => text.to_owned(),
                None => {
                    reading.problem(
                        &format!("{place}.file"),
                        format_args!("the blueprint has no file {path:?}"),
                    );
                    continue;
                }
            },
            (None, None) | (Some(_), Some(_)) => {
                reading.problem(&place, "must have either template or file");
                continue;
            }
        };
        match Template::parse(&name, &text) {
            Ok(template) => templates.push(template),
            Err(error) => reading.fault(Fault::Template, &place, error),
        }
    }
    templates
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    pub(super) fn files(files: &Json) -> Filesystem {
        Filesystem(files.as_object().unwrap().clone())
    }

    pub(super) fn read(blueprint: &str) -> Checked<Blueprint> {
        Blueprint::read(&files(&json!({"blueprint.yaml": blueprint})))
    }

    fn problems(blueprint: &str) -> Vec<String> {
        read(blueprint).unwrap_err().iter().map(Problem::to_string).collect()
    }

    #[test]
    fn a_blueprint_written_for_landscaper_is_read() {
        let (blueprint, warnings) = read(include_str!("testdata/landscaper.yaml")).unwrap();
        let names: Vec<&str> = blueprint.imports.iter().map(|import| import.name.as_str()).collect();
        assert_eq!(names, ["cluster", "replicas", "labels", "clusters", "tls", "tls-secret"]);
        assert_eq!(blueprint.imports[5].within.as_deref(), Some("tls"));
        assert_eq!(blueprint.imports[2].default, Some(json!({"app": "web"})));
        let warnings: Vec<String> = warnings.iter().map(Warning::to_string).collect();
        assert_eq!(
            warnings,
            [
                "blueprint.yaml: jsonSchema: is not known, and passed over",
                "blueprint.yaml: imports[1].jsonSchema: is not known, and passed over",
            ]
        );
    }

    #[test]
    fn all_problems_are_told_together_by_file_and_field() {
        let told = problems(
            "imports:\n- name: a\n- name: a\n- {type: data}\n- {name: b, type: pony}\n- 1\n- {name: c, required: maybe}\n\
             exports: {}\n\
             deployExecutions:\n- {name: x, type: Spiff, template: a}\n- {name: v, type: GoTemplate}\n\
             - {name: z, type: GoTemplate, file: nope.tpl}\n- {name: w, type: GoTemplate, template: \"a\\n{{ nope }}\"}\n",
        );
        assert_eq!(
            told,
            [
                "blueprint.yaml: imports[2].name: is required",
                "blueprint.yaml: imports[3].type: \"pony\" is not known: data, target or targetList",
                "blueprint.yaml: imports[4]: must be a map",
                "blueprint.yaml: imports[5].required: must be true or false",
                "blueprint.yaml: exports: must be a list",
                "blueprint.yaml: imports: \"a\" is there more than once",
                "blueprint.yaml: deployExecutions[0].type: \"Spiff\" is not supported, only GoTemplate",
                "blueprint.yaml: deployExecutions[1]: must have either template or file",
                "blueprint.yaml: deployExecutions[2].file: the blueprint has no file \"nope.tpl\"",
                "blueprint.yaml: deployExecutions[3]: template \"w\", line 2: the function \"nope\" is not defined",
            ]
        );
    }

    #[test]
    fn what_is_no_blueprint_is_a_problem() {
        assert_eq!(Blueprint::read(&files(&json!({}))).unwrap_err().len(), 1);
        assert_eq!(problems("[1]"), ["blueprint.yaml: must be a map"]);
        assert!(problems("a: [\n")[0].starts_with("blueprint.yaml: line "));
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let before = format!("*a{}", level - 1);
            bomb.push_str(&format!("a{level}: &a{level} [{}]\n", [before.as_str(); 9].join(", ")));
        }
        assert_eq!(problems(&bomb).len(), 1);
    }
}
