//! Which sub-Installations does a blueprint have, and which sibling waits for which?

use std::collections::{BTreeMap, BTreeSet};

use pawl_api::deploy::InstallationSpec;
use pawl_api::deploy::installation::{Filesystem, MAX_SUBINSTALLATIONS};
use serde_json::{Map, Value as Json, json};

use super::imports::{ImportedTargets, Imports};
use super::reading::Reading;
use super::{Blueprint, Checked, Problem, What};
use crate::dag;
use crate::yaml;

/// A child Installation as the blueprint wants it.
#[derive(Clone, Debug, PartialEq)]
pub struct Subinstallation {
    /// Its name within the blueprint.
    pub name: String,
    pub spec: InstallationSpec,
}

impl Blueprint {
    /// The children, those that are written and those that are rendered. Their order was checked: see [`order`].
    pub fn subinstallations(&self, imports: &Imports) -> Checked<Vec<Subinstallation>> {
        let mut all = Reading::new("blueprint.yaml");
        let mut children = Vec::new();
        for (index, entry) in self.subinstallations.iter().enumerate() {
            let field = format!("subinstallations[{index}]");
            children.extend(self.read_entry(&mut all, &field, entry, imports));
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
                        children.extend(self.read_entry(&mut reading, &field, entry, imports));
                    }
                }
                all.absorb(reading);
            }
        }
        if children.len() > MAX_SUBINSTALLATIONS {
            let count = children.len();
            let message = format_args!("{count} are more than the {MAX_SUBINSTALLATIONS} that are allowed");
            all.problem("subinstallations", message);
            return all.finish(children);
        }
        self.check_names(&mut all, &children);
        if let Err(problems) = order(&children) {
            all.problems.extend(problems);
        }
        all.finish(children)
    }

    /// Either the template itself, or `file`, which holds one.
    fn read_entry(
        &self,
        reading: &mut Reading,
        field: &str,
        entry: &Json,
        imports: &Imports,
    ) -> Option<Subinstallation> {
        let map = reading.map(field, entry)?;
        let Some(path) = reading.text(field, map, "file") else {
            return read_child(reading, field, map, imports);
        };
        let Some(text) = self.files.file(&path) else {
            reading.problem(field, format_args!("the blueprint has no file {path:?}"));
            return None;
        };
        let mut inner = Reading::new(path);
        let child = match yaml::read(text) {
            Ok(document) => {
                inner.map("", &document).cloned().and_then(|map| read_child(&mut inner, "", &map, imports))
            }
            Err(error) => {
                inner.problem("", error);
                None
            }
        };
        reading.absorb(inner);
        child
    }

    /// A child sees what this blueprint imports and what its siblings export, and nothing else.
    fn check_names(&self, reading: &mut Reading, children: &[Subinstallation]) {
        let theirs: BTreeSet<(Sort, &str)> =
            children.iter().flat_map(|child| exported(&child.spec)).collect();
        let ours = |(sort, name): (Sort, &str)| {
            self.imports.iter().any(|import| {
                let is_data = matches!(import.what, What::Data { .. });
                import.name == name && is_data == (sort == Sort::Data)
            })
        };
        for Subinstallation { name, spec } in children {
            for what in exported(spec).filter(|what| ours(*what)) {
                let message = format_args!("{name:?} exports {what}, which is an import", what = Shown(what));
                reading.problem("subinstallations", message);
            }
            let unknown = imported(spec).map(|(sort, other)| (sort, indexed(other).0));
            for what in unknown.filter(|what| !theirs.contains(what) && !ours(*what)) {
                let message = format_args!(
                    "{name:?} imports {what}, which the blueprint does not import and no sibling exports",
                    what = Shown(what)
                );
                reading.problem("subinstallations", message);
            }
        }
    }
}

/// `name[2]`: one of a list of targets.
pub(in crate::deploy) fn indexed(name: &str) -> (&str, Option<usize>) {
    let parts = name.strip_suffix(']').and_then(|rest| rest.rsplit_once('['));
    match parts.and_then(|(list, index)| Some((list, index.parse().ok()?))) {
        Some((list, index)) => (list, Some(index)),
        None => (name, None),
    }
}

/// Siblings in classes: what is in one imports only from earlier ones. Exported twice, or in a circle, is a problem.
fn order(children: &[Subinstallation]) -> Result<Vec<Vec<String>>, Vec<Problem>> {
    let mut exporters: BTreeMap<(Sort, &str), &str> = BTreeMap::new();
    let mut problems = Vec::new();
    for Subinstallation { name, spec } in children {
        for what in exported(spec) {
            if let Some(other) = exporters.insert(what, name).filter(|other| other != name) {
                let message = format_args!("{:?} is exported by {other:?} and by {name:?}", what.1);
                problems.push(Problem::new("subinstallations", message));
            }
        }
    }
    let nodes: Vec<dag::Node<'_>> = children
        .iter()
        .map(|Subinstallation { name, spec }| {
            let before = imported(spec).filter_map(|what| exporters.get(&what).copied());
            dag::Node::new(name, before)
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
pub(in crate::deploy) enum Sort {
    Data,
    Target,
}

/// For people.
struct Shown<'a>((Sort, &'a str));

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sort = match self.0.0 {
            Sort::Data => "data",
            Sort::Target => "target",
        };
        write!(f, "the {sort} {:?}", self.0.1)
    }
}

pub(in crate::deploy) fn exported(spec: &InstallationSpec) -> impl Iterator<Item = (Sort, &str)> {
    let data = spec.exports.data.iter().map(|export| (Sort::Data, export.data_ref.as_str()));
    data.chain(spec.exports.targets.iter().map(|export| (Sort::Target, export.target.as_str())))
}

/// What it takes from its scope.
pub(in crate::deploy) fn imported(spec: &InstallationSpec) -> impl Iterator<Item = (Sort, &str)> {
    let data = spec.imports.data.iter().filter_map(|import| import.data_ref.as_deref());
    let one = spec.imports.targets.iter().filter_map(|import| import.target.as_deref());
    let several = spec.imports.targets.iter().filter_map(|import| import.targets.as_ref()).flatten();
    let targets = one.chain(several.map(String::as_str));
    data.map(|name| (Sort::Data, name)).chain(targets.map(|name| (Sort::Target, name)))
}

/// For each of these, the places of those that it imports from.
pub(in crate::deploy) fn exporters(specs: &[Option<&InstallationSpec>]) -> Vec<Vec<usize>> {
    let mut places = BTreeMap::new();
    for (at, spec) in specs.iter().enumerate() {
        places.extend(spec.iter().flat_map(|spec| exported(spec)).map(|what| (what, at)));
    }
    let before = specs.iter().map(|spec| {
        spec.iter().flat_map(|spec| imported(spec)).filter_map(|what| places.get(&what).copied()).collect()
    });
    before.collect()
}

fn read_child(
    reading: &mut Reading,
    field: &str,
    child: &Map<String, Json>,
    imports: &Imports,
) -> Option<Subinstallation> {
    reading.only(
        field,
        child,
        &["apiVersion", "kind", "name", "blueprint", "imports", "exports", "automaticReconcile"],
    );
    let name = reading.required_text(field, child, "name");
    let filesystem = read_filesystem(reading, &format!("{field}.blueprint"), child.get("blueprint"));
    let as_there = "as in the spec of an Installation";
    let spelled_out = with_lists(reading, field, child, imports);
    let imports = reading.typed(field, &spelled_out, "imports", as_there);
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

/// `targetListRef` hands a list of targets on: in an Installation it is the list of its members.
fn with_lists(
    reading: &mut Reading,
    field: &str,
    child: &Map<String, Json>,
    imports: &Imports,
) -> Map<String, Json> {
    let mut child = child.clone();
    let entries = child.get_mut("imports").and_then(|imports| imports.get_mut("targets"));
    for (index, entry) in entries.and_then(Json::as_array_mut).into_iter().flatten().enumerate() {
        let Some(entry) = entry.as_object_mut() else { continue };
        let Some(list) = entry.remove("targetListRef") else { continue };
        let list = list.as_str().unwrap_or_default();
        match imports.targets.get(list) {
            Some(ImportedTargets::List(targets)) => {
                let members: Vec<String> = (0..targets.len()).map(|at| format!("{list}[{at}]")).collect();
                entry.insert("targets".to_owned(), members.into());
            }
            Some(ImportedTargets::One(_)) | None => {
                let field = format!("{field}.imports.targets[{index}].targetListRef");
                reading.problem(&field, format_args!("no list of targets is imported as {list:?}"));
            }
        }
    }
    child
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
    use crate::deploy::blueprint::imports::tests::imports;
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
        let wanted = json!([{"name": "outside"}, {"name": "cluster", "type": "target"},
            {"name": "clusters", "type": "targetList"}]);
        let blueprint = json!({"imports": wanted, "subinstallations": list});
        let mut tree = json!({"blueprint.yaml": blueprint.to_string()});
        tree.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Blueprint::read(&files(&tree)).unwrap().0.subinstallations(&imports())
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
        let classes = order(&found).unwrap();
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
    fn what_a_child_imports_is_in_its_scope_or_told() {
        let list = json!([child("a", &["nope"], &["outside"])]);
        assert_eq!(
            problems(&list),
            [
                "blueprint.yaml: subinstallations: \"a\" exports the data \"outside\", which is an import",
                "blueprint.yaml: subinstallations: \"a\" imports the data \"nope\", which the blueprint does not \
                 import and no sibling exports",
            ]
        );
    }

    #[test]
    fn a_list_of_targets_is_handed_on_by_its_members() {
        let mut one = child("a", &[], &[]);
        one["imports"]["targets"] = json!([{"name": "all", "targetListRef": "clusters"},
            {"name": "first", "target": "clusters[0]"}]);
        let (found, _) = children(&json!([one]), &json!({})).unwrap();
        let targets = &found[0].spec.imports.targets;
        assert_eq!(targets[0].targets.as_deref().unwrap(), ["clusters[0]", "clusters[1]"]);
        one["imports"]["targets"] = json!([{"name": "all", "targetListRef": "cluster"}]);
        assert!(problems(&json!([one]))[0].contains("no list of targets is imported as \"cluster\""));
        assert_eq!(indexed("a[1]"), ("a", Some(1)));
        assert_eq!(indexed("a[b]"), ("a[b]", None));
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
