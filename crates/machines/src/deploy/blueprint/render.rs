//! Which items does a blueprint render, and which exports?

use std::collections::{BTreeMap, BTreeSet};

use pawl_api::deploy::DeployItemTemplate;
use pawl_api::deploy::execution::MAX_ITEMS;
use pawl_api::meta::reference::NamedRef;
use serde_json::{Map, Value as Json, json};

use super::imports::{ImportedTargets, Imports};
use super::reading::Reading;
use super::template::{Options, Template};
use super::{Blueprint, Checked, Fault, Problem, What};
use crate::dag;
use crate::yaml;

/// What export templates see.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExportInputs {
    pub imports: Imports,
    /// What each item exported, by its name.
    pub deploy_items: BTreeMap<String, Json>,
    /// What sub-Installations exported.
    pub data_objects: BTreeMap<String, Json>,
    /// Whole Targets that sub-Installations exported.
    pub targets: BTreeMap<String, Json>,
}

/// What a blueprint exports, by its own names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exports {
    pub data: BTreeMap<String, Json>,
    pub targets: BTreeMap<String, ExportedTarget>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExportedTarget {
    pub type_: String,
    pub config: Json,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

impl Blueprint {
    /// The items of the Execution. All that is wrong with them is told together, as is what is wrong with the imports.
    pub fn render_items(&self, imports: &Imports) -> Checked<Vec<DeployItemTemplate>> {
        let problems = self.check_imports(imports);
        if !problems.is_empty() {
            return Err(problems);
        }
        let bindings = self.bindings(imports);
        let mut all = Reading::new("deployExecutions");
        let mut items = Vec::new();
        for execution in &self.deploy_executions {
            let mut reading = Reading::new(execution.name());
            if let Some(found) = self.rendered(&mut reading, execution, &bindings, "deployItems") {
                for (index, item) in reading.list("deployItems", Some(&found)).iter().enumerate() {
                    items.extend(read_item(&mut reading, &format!("deployItems[{index}]"), item, imports));
                }
            }
            all.absorb(reading);
        }
        if items.len() > MAX_ITEMS {
            all.problem(
                "",
                format_args!(
                    "{} items are more than the {MAX_ITEMS} that an Execution may have",
                    items.len()
                ),
            );
        }
        let nodes: Vec<dag::Node<'_>> = items
            .iter()
            .map(|item| dag::Node::new(&item.name, item.depends_on.iter().map(String::as_str)))
            .collect();
        // An item that was refused would be missed by those that depend on it.
        if let Err(wrong) = dag::classes(&nodes)
            && all.problems.is_empty()
        {
            all.problem("", wrong);
        }
        all.finish(items)
    }

    /// What the Installation exports. Whatever the blueprint promises must be there, and fit its schema.
    pub fn render_exports(&self, inputs: &ExportInputs) -> Checked<Exports> {
        let values = json!({
            "deployitems": inputs.deploy_items, "dataobjects": inputs.data_objects, "targets": inputs.targets,
        });
        let mut bindings = self.bindings(&inputs.imports);
        // Older blueprints say `.values.deployitems`, newer ones `.deployitems`.
        if let (Some(bindings), Some(direct)) = (bindings.as_object_mut(), values.as_object()) {
            bindings.extend(direct.clone());
            bindings.insert("values".to_owned(), values);
        }
        let mut all = Reading::new("exportExecutions");
        let mut rendered = Map::new();
        for execution in &self.export_executions {
            let mut reading = Reading::new(execution.name());
            if let Some(found) = self.rendered(&mut reading, execution, &bindings, "exports") {
                rendered.extend(reading.map("exports", &found).cloned().unwrap_or_default());
            }
            all.absorb(reading);
        }
        let mut exports = Exports::default();
        // Nothing is missing from what could not be rendered.
        if all.problems.is_empty() {
            exports = self.read_exports(&mut all, &rendered);
        }
        all.finish(exports)
    }

    fn read_exports(&self, all: &mut Reading, rendered: &Map<String, Json>) -> Exports {
        let mut exports = Exports::default();
        let promised: BTreeSet<&str> = self.exports.iter().map(|export| export.name.as_str()).collect();
        for name in rendered.keys().filter(|name| !promised.contains(name.as_str())) {
            all.warning(
                &format!("exports.{name}"),
                "is not among the exports of the blueprint, and passed over",
            );
        }
        for export in &self.exports {
            let place = format!("exports.{}", export.name);
            let Some(value) = rendered.get(&export.name) else {
                all.problem(&place, "is promised by the blueprint, and was not rendered");
                continue;
            };
            match &export.what {
                What::Data { schema } => {
                    let wrong = self.violations(&place, schema, value);
                    for Problem { place, message, .. } in wrong {
                        all.problem(&place, message);
                    }
                    exports.data.insert(export.name.clone(), value.clone());
                }
                What::Target { target_type } | What::TargetList { target_type } => {
                    let target = read_target(all, &place, value, target_type.as_deref());
                    exports.targets.extend(target.map(|target| (export.name.clone(), target)));
                }
            }
        }
        exports
    }

    /// What a template renders under its root key; nothing was said if that is not there.
    pub(super) fn rendered(
        &self,
        reading: &mut Reading,
        template: &Template,
        bindings: &Json,
        root: &str,
    ) -> Option<Json> {
        let options = Options { files: Some(&self.files), ..Options::default() };
        let text = match template.render(bindings, &options) {
            Ok(text) => text,
            Err(error) => {
                // The error names the template itself, or the file it included.
                let place = format!("rendering {root}");
                reading.problems.push(Problem::of(Fault::Template, place, error));
                return None;
            }
        };
        let document = match yaml::read(&text) {
            Ok(document) => document,
            Err(error) => {
                // The line itself is not shown: it may hold what came from a Secret (I6).
                let message = format_args!("what was rendered is no YAML: {error}");
                reading.fault(Fault::Template, "", message);
                return None;
            }
        };
        if document.is_null() {
            return None;
        }
        let map = reading.map("", &document)?;
        // Go does not care about the case of keys, and examples write `deployitems`.
        let found = map.iter().find(|(key, _)| key.eq_ignore_ascii_case(root));
        for key in map.keys().filter(|key| !key.eq_ignore_ascii_case(root)) {
            reading.warning(key, "is not known, and passed over");
        }
        found.map(|(_, value)| value.clone())
    }
}

fn read_item(
    reading: &mut Reading,
    field: &str,
    item: &Json,
    imports: &Imports,
) -> Option<DeployItemTemplate> {
    let item = reading.map(field, item)?;
    const KNOWN: &[&str] = &[
        "name",
        "type",
        "target",
        "labels",
        "annotations",
        "config",
        "dependsOn",
        "timeout",
        "updateOnChangeOnly",
        "retries",
    ];
    reading.only(field, item, KNOWN);
    let name = reading.required_text(field, item, "name");
    let type_ = reading.required_text(field, item, "type");
    let target = match item.get("target") {
        Some(Json::Null) | None => None,
        Some(target) => Some(read_item_target(reading, &format!("{field}.target"), target, imports)),
    };
    let template = DeployItemTemplate {
        name: String::new(),
        type_: String::new(),
        target: None,
        labels: reading.typed(field, item, "labels", "a map of strings"),
        annotations: reading.typed(field, item, "annotations", "a map of strings"),
        config: reading.typed(field, item, "config", "a map"),
        depends_on: reading.typed(field, item, "dependsOn", "a list of names"),
        timeout: reading.typed(field, item, "timeout", "a duration such as 10m, or none"),
        update_on_change_only: reading.typed(field, item, "updateOnChangeOnly", "true or false"),
        retries: reading.typed(field, item, "retries", "a whole number"),
    };
    let target = match target {
        Some(None) => return None,
        Some(target) => target,
        None => None,
    };
    Some(DeployItemTemplate { name: name?, type_: type_?, target, ..template })
}

/// `{import, index?}` names what was imported; `{name, namespace?}` names a Target itself.
fn read_item_target(
    reading: &mut Reading,
    field: &str,
    target: &Json,
    imports: &Imports,
) -> Option<NamedRef> {
    let target = reading.map(field, target)?;
    reading.only(field, target, &["import", "index", "name", "namespace"]);
    let Some(import) = reading.text(field, target, "import") else {
        let name = reading.required_text(field, target, "name")?;
        let namespace = reading.text(field, target, "namespace").filter(|namespace| !namespace.is_empty());
        return Some(NamedRef { name, namespace });
    };
    let index: Option<usize> = reading.typed(field, target, "index", "a whole number");
    match (imports.targets.get(&import), index) {
        (Some(ImportedTargets::One(target)), None) => Some(target.reference.clone()),
        (Some(ImportedTargets::List(targets)), Some(index)) => match targets.get(index) {
            Some(target) => Some(target.reference.clone()),
            None => {
                let count = targets.len();
                reading.problem(
                    field,
                    format_args!("{import:?} has {count} targets: there is no index {index}"),
                );
                None
            }
        },
        (Some(ImportedTargets::One(_)), Some(_)) => {
            reading.problem(field, format_args!("{import:?} is one target: it has no index"));
            None
        }
        (Some(ImportedTargets::List(_)), None) => {
            reading.problem(field, format_args!("{import:?} is a list of targets: it needs an index"));
            None
        }
        (None, _) => {
            reading.problem(field, format_args!("no target is imported as {import:?}"));
            None
        }
    }
}

fn read_target(
    reading: &mut Reading,
    field: &str,
    value: &Json,
    wanted: Option<&str>,
) -> Option<ExportedTarget> {
    let target = reading.map(field, value)?;
    reading.only(field, target, &["type", "config", "labels", "annotations"]);
    let given = reading.text(field, target, "type");
    let type_ = match (given, wanted) {
        (Some(given), Some(wanted)) if given != wanted => {
            reading.problem(&format!("{field}.type"), format_args!("must be {wanted:?}, and is {given:?}"));
            return None;
        }
        (Some(given), _) => given,
        (None, Some(wanted)) => wanted.to_owned(),
        (None, None) => {
            reading.problem(&format!("{field}.type"), "is required");
            return None;
        }
    };
    Some(ExportedTarget {
        type_,
        config: target.get("config").cloned().unwrap_or_default(),
        labels: reading.typed(field, target, "labels", "a map of strings"),
        annotations: reading.typed(field, target, "annotations", "a map of strings"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deploy::blueprint::imports::tests::{imports, target};
    use crate::deploy::blueprint::tests::{files, read};

    const LANDSCAPER: &str = include_str!("testdata/landscaper.yaml");

    fn items(template: &str, imports: &Imports) -> Checked<Vec<DeployItemTemplate>> {
        let blueprint = json!({
            "imports": [
                {"name": "cluster", "type": "target", "required": false},
                {"name": "clusters", "type": "targetList", "required": false},
                {"name": "replicas", "type": "data", "required": false},
            ],
            "deployExecutions": [{"name": "default", "type": "GoTemplate", "template": template}],
        });
        read(&blueprint.to_string()).unwrap().0.render_items(imports)
    }

    fn problems(template: &str) -> Vec<String> {
        items(template, &imports()).unwrap_err().iter().map(Problem::to_string).collect()
    }

    #[test]
    fn the_items_of_a_landscaper_blueprint_are_rendered() {
        let (blueprint, _) = read(LANDSCAPER).unwrap();
        let (items, warnings) = blueprint.render_items(&imports()).unwrap();
        assert_eq!(warnings, []);
        let shown: Vec<(&str, &str, &[String])> = items
            .iter()
            .map(|item| {
                let target = item.target.as_ref().unwrap();
                assert_eq!(target.namespace.as_deref(), Some("default"));
                (item.name.as_str(), target.name.as_str(), item.depends_on.as_slice())
            })
            .collect();
        let after = ["deploy".to_owned()];
        assert_eq!(shown, [("deploy", "dev", &[][..]), ("check-0", "a", &after), ("check-1", "b", &after)]);
        let manifest = &items[0].config["manifests"][0]["manifest"];
        assert_eq!(manifest["metadata"]["labels"], json!({"app": "web"}));
        assert_eq!(manifest["data"]["replicas"], json!("3"));
    }

    #[test]
    fn imports_that_do_not_fit_render_nothing() {
        let (blueprint, _) = read(LANDSCAPER).unwrap();
        assert_eq!(blueprint.render_items(&Imports::default()).unwrap_err().len(), 2);
    }

    #[test]
    fn what_is_wrong_with_items_is_told_together() {
        let told = problems(
            "deployItems:\n- {name: a, type: t, target: {import: nope}}\n- {name: b, type: t, target: {import: clusters}}\n\
             - {name: c, type: t, target: {import: clusters, index: 9}}\n- {name: d, type: t, target: {import: cluster, index: 0}}\n\
             - {name: e, type: t, target: {namespace: x}}\n- {type: t}\n- {name: g}\n- {name: h, type: t, config: 1, dependsOn: x, timeout: soon}\n- 3\n",
        );
        assert_eq!(
            told,
            [
                "default: deployItems[0].target: no target is imported as \"nope\"",
                "default: deployItems[1].target: \"clusters\" is a list of targets: it needs an index",
                "default: deployItems[2].target: \"clusters\" has 2 targets: there is no index 9",
                "default: deployItems[3].target: \"cluster\" is one target: it has no index",
                "default: deployItems[4].target.name: is required",
                "default: deployItems[5].name: is required",
                "default: deployItems[6].type: is required",
                "default: deployItems[7].config: must be a map",
                "default: deployItems[7].dependsOn: must be a list of names",
                "default: deployItems[7].timeout: must be a duration such as 10m, or none",
                "default: deployItems[8]: must be a map",
            ]
        );
    }

    #[test]
    fn repeated_names_unknown_names_and_cycles_are_told() {
        let told = problems(
            "deployItems:\n- {name: a, type: t, dependsOn: [b]}\n- {name: b, type: t, dependsOn: [a, nope]}\n- {name: c, type: t}\n- {name: c, type: t}\n",
        );
        assert_eq!(
            told,
            [
                "deployExecutions: \"c\" is there more than once; \"b\" depends on \"nope\", which is not there; a -> b -> a is a cycle"
            ]
        );
    }

    #[test]
    fn errors_name_the_template_the_line_and_the_key() {
        assert_eq!(
            problems("deployItems:\n- name: {{ .imports.nope }}\n"),
            ["rendering deployItems: template \"default\", line 2: the key \".imports.nope\" is not set"]
        );
        let told = problems("deployItems:\n- name: [\n- x: {{ .imports.replicas }}\n");
        assert!(told[0].starts_with("default: what was rendered is no YAML: line "), "{told:?}");
        assert!(problems("{{ range 100000000 }}x{{ end }}")[0].contains("line 1: "));
        assert!(problems("{{ repeat 100000000 \"x\" }}")[0].contains("bytes"));
    }

    #[test]
    fn a_blueprint_may_render_nothing_and_says_what_it_passes_over() {
        assert_eq!(items("", &imports()).unwrap(), (vec![], vec![]));
        assert_eq!(items("deployItems:\n", &imports()).unwrap(), (vec![], vec![]));
        let (found, warnings) =
            items("state: 1\ndeployitems:\n- {name: a, type: t, onDelete: {}}\n", &imports()).unwrap();
        assert_eq!(found.len(), 1);
        let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            [
                "default: state: is not known, and passed over",
                "default: deployItems[0].onDelete: is not known, and passed over"
            ]
        );
    }

    #[test]
    fn templates_in_files_see_the_other_files() {
        let files = files(&json!({
            "blueprint.yaml": "deployExecutions:\n- {name: d, type: GoTemplate, file: tpl/items.yaml}\n",
            "tpl": {"items.yaml": "deployItems:\n{{ include \"tpl/item.yaml\" (dict \"n\" \"x\") }}", "item.yaml": "- {name: {{ .n }}, type: t}"},
        }));
        let (blueprint, _) = Blueprint::read(&files).unwrap();
        assert_eq!(blueprint.render_items(&Imports::default()).unwrap().0[0].name, "x");
    }

    fn inputs() -> ExportInputs {
        ExportInputs {
            imports: imports(),
            deploy_items: BTreeMap::from([("deploy".into(), json!({"prefix": "web"}))]),
            data_objects: BTreeMap::from([("domain".into(), json!("example.com"))]),
            targets: BTreeMap::from([("dev".into(), json!({"spec": {"config": {"kubeconfig": "fake"}}}))]),
        }
    }

    #[test]
    fn exports_are_rendered_from_items_data_and_targets() {
        let (blueprint, _) = read(LANDSCAPER).unwrap();
        let (exports, warnings) = blueprint.render_exports(&inputs()).unwrap();
        assert_eq!(warnings, []);
        assert_eq!(exports.data, BTreeMap::from([("url".into(), json!("http://web.example.com"))]));
        assert_eq!(exports.targets["dev"].config, json!({"kubeconfig": "fake"}));
        assert_eq!(exports.targets["dev"].type_, "landscaper.gardener.cloud/kubernetes-cluster");
    }

    #[test]
    fn exports_that_are_missing_or_do_not_fit_are_told() {
        let blueprint = |template: &str| {
            let text = json!({
                "exports": [
                    {"name": "url", "type": "data", "schema": {"type": "string"}},
                    {"name": "cluster", "type": "target", "targetType": "t"},
                ],
                "exportExecutions": [{"name": "out", "type": "GoTemplate", "template": template}],
            });
            read(&text.to_string()).unwrap().0
        };
        let told = |template: &str| -> Vec<String> {
            blueprint(template)
                .render_exports(&inputs())
                .unwrap_err()
                .iter()
                .map(Problem::to_string)
                .collect()
        };
        assert_eq!(
            told("exports: {url: 1}"),
            [
                "exportExecutions: exports.url: must be a string, and is a number",
                "exportExecutions: exports.cluster: is promised by the blueprint, and was not rendered",
            ]
        );
        assert_eq!(
            told("exports: {url: a, cluster: {type: other}}"),
            ["exportExecutions: exports.cluster.type: must be \"t\", and is \"other\""]
        );
        assert_eq!(
            told("exports:\n  url: {{ .deployitems.nope.x }}"),
            [
                "rendering exports: template \"out\", line 2: .deployitems.nope.x: \"x\" is sought in nothing (\".deployitems.nope\" is not set)"
            ]
        );
        let (_, warnings) =
            blueprint("exports: {url: a, cluster: {config: {}}, more: 1}").render_exports(&inputs()).unwrap();
        assert_eq!(warnings.len(), 1);
    }

    #[test]
    fn a_target_can_be_named_by_itself() {
        let (items, _) = items("deployItems:\n- {name: a, type: t, target: {name: {{ .imports.cluster.metadata.name }}, namespace: x}}", &imports()).unwrap();
        assert_eq!(
            items[0].target,
            Some(NamedRef { name: target("dev", "").reference.name, namespace: Some("x".into()) })
        );
    }
}
