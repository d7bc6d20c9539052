//! Are these the imports that the blueprint wants, and what do its templates see of them?

use std::collections::BTreeMap;

use pawl_api::meta::reference::NamedRef;
use serde_json::{Map, Value as Json, json};

use super::schema::{Library, violations};
use super::{Blueprint, Fault, ImportDefinition, Problem, What};
use crate::yaml;

/// What an Installation brings, by the names of the blueprint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imports {
    pub data: BTreeMap<String, Json>,
    pub targets: BTreeMap<String, ImportedTargets>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ImportedTargets {
    One(ImportedTarget),
    List(Vec<ImportedTarget>),
}

/// A Target, as templates and items see it.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedTarget {
    pub reference: NamedRef,
    /// The whole object: templates read its `metadata` and `spec`.
    pub manifest: Json,
}

impl ImportedTarget {
    fn type_(&self) -> Option<&str> {
        self.manifest.pointer("/spec/type").and_then(Json::as_str)
    }
}

impl Blueprint {
    /// Everything that is missing, of another kind than wanted, or does not fit its schema.
    pub fn check_imports(&self, imports: &Imports) -> Vec<Problem> {
        let mut problems = Vec::new();
        for wanted in &self.imports {
            self.check_import(wanted, imports, &mut problems);
        }
        problems
    }

    fn check_import(&self, wanted: &ImportDefinition, imports: &Imports, problems: &mut Vec<Problem>) {
        let place = format!("import {:?}", wanted.name);
        let is_wanted = wanted.required && wanted.within.as_ref().is_none_or(|other| has(imports, other));
        if !has(imports, &wanted.name) {
            if is_wanted && wanted.default.is_none() {
                let message = "is required, and the Installation does not import it";
                problems.push(Problem::of(Fault::ImportMissing, place, message));
            }
            return;
        }
        let target = imports.targets.get(&wanted.name);
        let wrong = |message: &str| Problem::of(Fault::ImportInvalid, &place, message);
        match (&wanted.what, imports.data.get(&wanted.name), target) {
            (What::Data { schema }, Some(value), _) => {
                let found = self.violations(&place, schema, value).into_iter();
                problems.extend(found.map(|problem| Problem { fault: Fault::ImportInvalid, ..problem }));
            }
            (What::Target { target_type }, _, Some(ImportedTargets::One(target))) => {
                problems.extend(wrong_type(&place, target_type.as_deref(), target));
            }
            (What::TargetList { target_type }, _, Some(ImportedTargets::List(targets))) => {
                let wrong =
                    targets.iter().filter_map(|target| wrong_type(&place, target_type.as_deref(), target));
                problems.extend(wrong);
            }
            (What::Data { .. }, None, _) => problems.push(wrong("must be data, and is a target")),
            (What::Target { .. }, _, _) => problems.push(wrong("must be one target")),
            (What::TargetList { .. }, _, _) => problems.push(wrong("must be a list of targets")),
        }
    }

    pub(super) fn violations(&self, place: &str, schema: &Json, value: &Json) -> Vec<Problem> {
        let found = violations(self, schema, value);
        found.into_iter().map(|(at, message)| Problem::new(format!("{place}{at}"), message)).collect()
    }

    /// What the templates see: `imports` and `blueprint`. Only what the blueprint asks for, and defaults for the rest.
    pub(super) fn bindings(&self, imports: &Imports) -> Json {
        let mut seen = Map::new();
        for wanted in &self.imports {
            let value = match (imports.targets.get(&wanted.name), imports.data.get(&wanted.name)) {
                (Some(ImportedTargets::One(target)), _) => Some(target.manifest.clone()),
                (Some(ImportedTargets::List(targets)), _) => {
                    Some(targets.iter().map(|target| target.manifest.clone()).collect())
                }
                (None, Some(value)) => Some(value.clone()),
                (None, None) => wanted.default.clone(),
            };
            if let Some(value) = value {
                seen.insert(wanted.name.clone(), value);
            }
        }
        json!({"imports": seen, "blueprint": {"inline": {"filesystem": self.files.0}}})
    }
}

impl Library for Blueprint {
    fn local(&self, name: &str) -> Option<&Json> {
        self.local_types.get(name)
    }

    fn file(&self, path: &str) -> Option<Result<Json, String>> {
        self.files.file(path).map(|text| yaml::read(text).map_err(|error| error.to_string()))
    }
}

fn has(imports: &Imports, name: &str) -> bool {
    imports.data.contains_key(name) || imports.targets.contains_key(name)
}

fn wrong_type(place: &str, wanted: Option<&str>, target: &ImportedTarget) -> Option<Problem> {
    let wanted = wanted?;
    let found = target.type_().unwrap_or_default();
    let name = &target.reference.name;
    (found != wanted).then(|| {
        Problem::of(
            Fault::ImportInvalid,
            place,
            format_args!("the Target {name:?} must be of type {wanted:?}, and is of type {found:?}"),
        )
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::deploy::blueprint::tests::read;

    pub(crate) fn target(name: &str, type_: &str) -> ImportedTarget {
        ImportedTarget {
            reference: NamedRef { name: name.into(), namespace: Some("default".into()) },
            manifest: json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"type": type_}}),
        }
    }

    const CLUSTER: &str = "landscaper.gardener.cloud/kubernetes-cluster";

    pub(crate) fn imports() -> Imports {
        Imports {
            data: BTreeMap::from([("replicas".into(), json!(3))]),
            targets: BTreeMap::from([
                ("cluster".into(), ImportedTargets::One(target("dev", CLUSTER))),
                ("clusters".into(), ImportedTargets::List(vec![target("a", CLUSTER), target("b", CLUSTER)])),
            ]),
        }
    }

    fn told(change: impl FnOnce(&mut Imports)) -> Vec<String> {
        let (blueprint, _) = read(include_str!("testdata/landscaper.yaml")).unwrap();
        let mut imports = imports();
        change(&mut imports);
        blueprint.check_imports(&imports).iter().map(Problem::to_string).collect()
    }

    #[test]
    fn imports_that_fit_are_no_problem() {
        assert!(told(|_| ()).is_empty());
    }

    #[test]
    fn what_does_not_fit_is_told_together() {
        let told = told(|imports| {
            imports.data.insert("replicas".into(), json!(0));
            imports.data.insert("labels".into(), json!({"a": 1}));
            imports.data.insert("tls".into(), json!(true));
            imports.targets.insert("cluster".into(), ImportedTargets::One(target("dev", "other")));
            imports.targets.insert("clusters".into(), ImportedTargets::One(target("dev", CLUSTER)));
        });
        assert_eq!(
            told,
            [
                "import \"cluster\": the Target \"dev\" must be of type \"landscaper.gardener.cloud/kubernetes-cluster\", and is of type \"other\"",
                "import \"replicas\": must be at least 1",
                "import \"labels\".a: must be a string, and is a number",
                "import \"clusters\": must be a list of targets",
                "import \"tls-secret\": is required, and the Installation does not import it",
            ]
        );
    }

    #[test]
    fn a_missing_import_is_told_and_an_optional_one_is_not() {
        let told = told(|imports| *imports = Imports::default());
        assert_eq!(
            told,
            [
                "import \"cluster\": is required, and the Installation does not import it",
                "import \"replicas\": is required, and the Installation does not import it",
            ]
        );
    }
}
