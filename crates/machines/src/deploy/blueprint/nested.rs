//! Which sub-Installations does a blueprint have, and which sibling waits for which?

use std::collections::BTreeMap;

use pawl_api::deploy::InstallationSpec;
use pawl_api::deploy::installation::{Exports, Filesystem, Imports as SpecImports};
use serde_json::{Map, Value as Json, json};

use super::imports::Imports;
use super::reading::Reading;
use super::{Blueprint, Checked, Problem, yaml};
use crate::dag;

/// A child Installation as the blueprint wants it.
#[derive(Clone, Debug, PartialEq)]
pub struct Subinstallation {
    /// Its name within the blueprint.
    pub name: String,
    pub spec: InstallationSpec,
}

/// What is needed of an Installation to order it among others.
#[derive(Clone, Copy, Debug)]
pub struct Sibling<'a> {
    pub name: &'a str,
    pub imports: &'a SpecImports,
    pub exports: &'a Exports,
}

impl<'a> From<&'a Subinstallation> for Sibling<'a> {
    fn from(child: &'a Subinstallation) -> Self {
        Self { name: &child.name, imports: &child.spec.imports, exports: &child.spec.exports }
    }
}

impl Blueprint {
    /// The children, those that are written and those that are rendered. Their order was checked: see [`order`].
    pub fn subinstallations(&self, imports: &Imports) -> Checked<Vec<Subinstallation>> {
        let mut all = Reading::new("blueprint.yaml");
        let mut children = Vec::new();
        for (index, entry) in self.subinstallations.iter().enumerate() {
            let field = format!("subinstallations[{index}]");
            children.extend(self.read_entry(&mut all, &field, entry));
        }
        if !self.subinstallation_executions.is_empty() {
            let problems = self.check_imports(imports);
            if !problems.is_empty() {
                return Err(problems);
            }
            let bindings = self.bindings(imports);
            for execution in &self.subinstallation_executions {
                let mut reading = Reading::new(execution.name());
                if let Some(found) = self.rendered(&mut reading, execution, &bindings, "subinstallations") {
                    for (index, entry) in reading.list("subinstallations", Some(&found)).iter().enumerate() {
                        let field = format!("subinstallations[{index}]");
                        children.extend(self.read_entry(&mut reading, &field, entry));
                    }
                }
                all.problems.extend(reading.problems);
                all.warnings.extend(reading.warnings);
            }
        }
        if let Err(problems) = order(children.iter().map(Sibling::from)) {
            all.problems.extend(problems);
        }
        all.finish(children)
    }

    /// Either the template itself, or `file`, which holds one.
    fn read_entry(&self, reading: &mut Reading, field: &str, entry: &Json) -> Option<Subinstallation> {
        let map = reading.map(field, entry)?;
        let Some(path) = reading.text(field, map, "file") else {
            return read_child(reading, field, map);
        };
        let Some(text) = self.files.file(&path) else {
            reading.problem(field, format_args!("the blueprint has no file {path:?}"));
            return None;
        };
        let mut inner = Reading::new(path);
        let child = match yaml::read(text) {
            Ok(document) => {
                inner.map("", &document).cloned().and_then(|map| read_child(&mut inner, "", &map))
            }
            Err(error) => {
                inner.problem("", error);
                None
            }
        };
        reading.problems.extend(inner.problems);
        reading.warnings.extend(inner.warnings);
        child
    }
}

/// Siblings in classes: what is in one imports only from earlier ones. Exported twice, or in a circle, is a problem.
pub fn order<'a>(siblings: impl IntoIterator<Item = Sibling<'a>>) -> Result<Vec<Vec<String>>, Vec<Problem>> {
    let siblings: Vec<Sibling<'a>> = siblings.into_iter().collect();
    let mut exporters: BTreeMap<(Sort, &str), &str> = BTreeMap::new();
    let mut problems = Vec::new();
    for sibling in &siblings {
        for what in exported(sibling) {
            if let Some(other) = exporters.insert(what, sibling.name).filter(|other| *other != sibling.name) {
                let message = format_args!("{:?} is exported by {other:?} and by {:?}", what.1, sibling.name);
                problems.push(Problem::new("subinstallations", message));
            }
        }
    }
    let nodes: Vec<dag::Node<'_>> = siblings
        .iter()
        .map(|sibling| {
            let before = imported(sibling).filter_map(|what| exporters.get(&what).copied());
            dag::Node::new(sibling.name, before)
        })
        .collect();
    let classes = match dag::classes(&nodes) {
        Ok(classes) => {
            classes.forward().map(|class| class.iter().map(|name| (*name).to_owned()).collect()).collect()
        }
        Err(wrong) => {
            problems.push(Problem::new("subinstallations", wrong));
            Vec::new()
        }
    };
    if problems.is_empty() { Ok(classes) } else { Err(problems) }
}

/// Data and targets have names of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sort {
    Data,
    Target,
}

fn exported<'a>(sibling: &Sibling<'a>) -> impl Iterator<Item = (Sort, &'a str)> {
    let data = sibling.exports.data.iter().map(|export| (Sort::Data, export.data_ref.as_str()));
    data.chain(sibling.exports.targets.iter().map(|export| (Sort::Target, export.target.as_str())))
}

fn imported<'a>(sibling: &Sibling<'a>) -> impl Iterator<Item = (Sort, &'a str)> {
    let data = sibling.imports.data.iter().filter_map(|import| import.data_ref.as_deref());
    let one = sibling.imports.targets.iter().filter_map(|import| import.target.as_deref());
    let several = sibling.imports.targets.iter().filter_map(|import| import.targets.as_ref()).flatten();
    let targets = one.chain(several.map(String::as_str));
    data.map(|name| (Sort::Data, name)).chain(targets.map(|name| (Sort::Target, name)))
}

fn read_child(reading: &mut Reading, field: &str, child: &Map<String, Json>) -> Option<Subinstallation> {
    reading.only(
        field,
        child,
        &["apiVersion", "kind", "name", "blueprint", "imports", "exports", "automaticReconcile"],
    );
    let name = reading.required_text(field, child, "name");
    let filesystem = read_filesystem(reading, &format!("{field}.blueprint"), child.get("blueprint"));
    let as_there = "as in the spec of an Installation";
    let imports = reading.typed(field, child, "imports", as_there);
    let exports = reading.typed(field, child, "exports", as_there);
    let automatic_reconcile = reading.typed(field, child, "automaticReconcile", as_there);
    let blueprint = json!({"blueprint": {"inline": {"filesystem": filesystem?.0}}});
    // The rest is as in an Installation that says no more than that.
    let spec = serde_json::from_value::<InstallationSpec>(blueprint).ok()?;
    Some(Subinstallation {
        name: name?,
        spec: InstallationSpec { imports, exports, automatic_reconcile, ..spec },
    })
}

/// `{filesystem}` as in templates, or `{inline: {filesystem}}` as in Installations.
fn read_filesystem(reading: &mut Reading, field: &str, blueprint: Option<&Json>) -> Option<Filesystem> {
    let Some(blueprint) = blueprint.filter(|blueprint| !blueprint.is_null()) else {
        reading.problem(field, "is required");
        return None;
    };
    let blueprint = reading.map(field, blueprint)?;
    if blueprint.contains_key("ref") {
        reading.problem(&format!("{field}.ref"), "only inline blueprints are supported");
        return None;
    }
    let inline = blueprint.get("inline").and_then(|inline| inline.get("filesystem"));
    let Some(filesystem) = blueprint.get("filesystem").or(inline) else {
        reading.problem(&format!("{field}.filesystem"), "is required");
        return None;
    };
    reading.map(&format!("{field}.filesystem"), filesystem).cloned().map(Filesystem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deploy::blueprint::tests::files;

    fn child(name: &str, imports: &[&str], exports: &[&str]) -> Json {
        let data = |names: &[&str]| {
            names.iter().map(|name| json!({"name": name, "dataRef": name})).collect::<Vec<_>>()
        };
        json!({
            "apiVersion": "landscaper.gardener.cloud/v1alpha1", "kind": "InstallationTemplate", "name": name,
            "blueprint": {"filesystem": {"blueprint.yaml": "imports: []"}},
            "imports": {"data": data(imports), "targets": [{"name": "c", "target": "cluster"}]},
            "exports": {"data": data(exports)},
        })
    }

    fn children(list: &Json, more: &Json) -> Checked<Vec<Subinstallation>> {
        let mut tree = json!({"blueprint.yaml": json!({"subinstallations": list}).to_string()});
        tree.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Blueprint::read(&files(&tree)).unwrap().0.subinstallations(&Imports::default())
    }

    fn problems(list: &Json) -> Vec<String> {
        children(list, &json!({})).unwrap_err().iter().map(Problem::to_string).collect()
    }

    #[test]
    fn siblings_run_in_the_order_of_their_imports_and_exports() {
        let list = json!([
            child("c", &["x", "y", "outside"], &[]),
            child("b", &["x"], &["y"]),
            child("a", &[], &["x"]),
            child("d", &[], &[])
        ]);
        let (found, warnings) = children(&list, &json!({})).unwrap();
        assert_eq!(warnings, []);
        assert_eq!(found[0].spec.blueprint.inline.filesystem.file("blueprint.yaml"), Some("imports: []"));
        let classes = order(found.iter().map(Sibling::from)).unwrap();
        assert_eq!(classes, [vec!["a", "d"], vec!["b"], vec!["c"]]);
    }

    #[test]
    fn a_circle_of_imports_is_named() {
        let list = json!([child("a", &["y"], &["x"]), child("b", &["x"], &["y"])]);
        assert_eq!(problems(&list), ["subinstallations: a -> b -> a is a cycle"]);
        assert_eq!(problems(&json!([child("a", &["x"], &["x"])])), ["subinstallations: a -> a is a cycle"]);
    }

    #[test]
    fn what_is_exported_or_named_twice_is_told() {
        let list = json!([child("a", &[], &["x"]), child("b", &[], &["x"]), child("b", &[], &[])]);
        assert_eq!(
            problems(&list),
            [
                "subinstallations: \"x\" is exported by \"a\" and by \"b\"",
                "subinstallations: \"b\" is there more than once"
            ]
        );
    }

    #[test]
    fn children_come_from_files_and_templates_too() {
        let more = json!({"sub": {"a.yaml": child("a", &[], &["x"]).to_string()}});
        let (found, _) = children(&json!([{"file": "sub/a.yaml"}]), &more).unwrap();
        assert_eq!(found[0].name, "a");
        let blueprint = json!({
            "subinstallationExecutions": [{"name": "t", "type": "GoTemplate", "template":
                "subinstallations:\n{{ range until 2 }}- {name: s{{ . }}, blueprint: {filesystem: {blueprint.yaml: \"\"}}}\n{{ end }}"}],
        });
        let (blueprint, _) =
            Blueprint::read(&files(&json!({"blueprint.yaml": blueprint.to_string()}))).unwrap();
        let (found, _) = blueprint.subinstallations(&Imports::default()).unwrap();
        assert_eq!(found.iter().map(|child| child.name.as_str()).collect::<Vec<_>>(), ["s0", "s1"]);
    }

    #[test]
    fn what_is_wrong_with_children_is_told_together() {
        let told = problems(&json!([
            {"name": "a", "blueprint": {"ref": "cd://x"}}, {"name": "b"}, {"blueprint": {"filesystem": {}}}, {"file": "nope"}, 1,
            {"name": "c", "blueprint": {"filesystem": {}}, "imports": {"data": 1}},
        ]));
        assert_eq!(told.len(), 6, "{told:?}");
        assert_eq!(
            told[0],
            "blueprint.yaml: subinstallations[0].blueprint.ref: only inline blueprints are supported"
        );
        assert_eq!(told[1], "blueprint.yaml: subinstallations[1].blueprint: is required");
        assert_eq!(told[2], "blueprint.yaml: subinstallations[2].name: is required");
        assert_eq!(told[3], "blueprint.yaml: subinstallations[3]: the blueprint has no file \"nope\"");
        assert_eq!(told[4], "blueprint.yaml: subinstallations[4]: must be a map");
    }
}
