//! Which resources are served, and what distinguishes one from another?
//!
//! Everything a verb needs to know about a resource is data in [`Resource`]: built-in kinds come from a
//! table, custom ones from stored CustomResourceDefinitions. No verb asks for a kind by name.

pub(crate) mod builtin;
pub(crate) mod columns;
pub(crate) mod crd;
mod jsonpath;
pub(crate) mod kinds;
pub(crate) mod unpublished;
pub(crate) mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::access::Review;
use crate::resources::columns::Column;
use crate::schema::Schema;
use crate::store::{Draft, Ids, Object, Parsed, Store};
use crate::validation::NameRule;
use crate::verbs::Verb;

/// One resource in one API version.
#[derive(Debug, Clone)]
pub struct Resource {
    /// Group, version, kind, plural.
    pub ids: Arc<Ids>,
    /// What its objects are kept as: the same for every version of a resource.
    pub stored: Arc<Ids>,
    /// Where its objects are kept: the same for every version of a resource.
    pub table: Arc<str>,
    /// The kind of its lists.
    pub list_kind: Arc<str>,
    /// As typed by people.
    pub singular: Arc<str>,
    /// As typed by people in a hurry.
    pub short_names: Vec<Arc<str>>,
    /// `all`, …
    pub categories: Vec<Arc<str>>,
    /// Has `/status`, which alone writes `status`.
    pub status: bool,
    /// Has `/scale`, with where its numbers are.
    pub scale: Option<Scale>,
    /// What field selectors may ask beyond name and namespace.
    pub selectable: Vec<Selectable>,
    /// What a Table shows, the name first.
    pub(crate) columns: Vec<Column>,
    /// How writes behave.
    pub rules: Rules,
    /// What its content may look like.
    pub schema: Schema,
    /// How its content is read and checked.
    pub content: Content,
}

/// Where `/scale` finds its numbers: JSON pointers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    /// `spec.replicas`
    pub spec: String,
    /// `status.replicas`
    pub status: String,
    /// The label selector, as text or as an object.
    pub selector: Option<String>,
}

/// A field that selectors may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selectable {
    /// As in `fieldSelector=`.
    pub label: Arc<str>,
    /// Where it is: a JSON pointer.
    pub pointer: String,
    /// What it is when absent.
    pub absent: &'static str,
}

/// How writes of a resource behave, where Kubernetes' resources differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// `metadata.generation` counts changes of the desired state.
    pub generation: bool,
    /// An update without resourceVersion overwrites.
    pub unconditional_update: bool,
    /// An update of an absent object creates it.
    pub create_on_update: bool,
    /// A completed deletion answers with the object instead of a Status.
    pub returns_deleted: bool,
    /// A deletion that names no policy orphans dependents.
    pub orphans_by_default: bool,
    /// Deletion waits a grace period for whoever runs it (pods).
    pub graceful: bool,
    /// Which strings may name an object.
    pub name: NameRule,
}

/// How an object's content is read and checked.
#[derive(Debug, Clone)]
pub enum Content {
    /// A kind of Kubernetes.
    Builtin(&'static builtin::Builtin),
    /// A kind of a CustomResourceDefinition.
    Custom(Arc<crd::Custom>),
}

/// The resources of each definition.
type Definitions = Parsed<Vec<Arc<Resource>>>;

/// All resources served at some moment.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// By name, core first.
    groups: BTreeMap<Arc<str>, Group>,
    /// What each definition gave, by name and revision: an unchanged one is not compiled again.
    definitions: Definitions,
    /// The revision of the CRD table this was made from.
    pub(crate) made_from: u64,
}

/// A group's versions, the preferred one first.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Every version and its resources.
    pub versions: Vec<Version>,
}

/// A version's resources by plural.
#[derive(Debug)]
pub(crate) struct Version {
    /// `v1`, …
    pub name: Arc<str>,
    /// By plural.
    pub resources: BTreeMap<Arc<str>, Arc<Resource>>,
}

impl Resource {
    /// An object as this version shows it.
    pub(crate) fn read(&self, object: &Object) -> Value {
        let mut value = views::shown(self, object.value());
        if object.ids != self.ids
            && let Some(body) = value.as_object_mut()
        {
            body.insert("apiVersion".into(), self.ids.api_version().into());
        }
        value
    }

    /// An object of this version as it will be kept.
    pub(crate) fn draft(&self, object: &Value) -> Draft {
        match views::kept(self, object) {
            Some(kept) => Draft::new(self.stored.clone(), &kept, self.fields_of(&kept)),
            None => Draft::new(self.stored.clone(), object, self.fields_of(object)),
        }
    }

    /// What its objects, as kept, answer to field selectors.
    fn fields_of(&self, object: &Value) -> Vec<(Arc<str>, String)> {
        self.selectable.iter().map(|s| (s.label.clone(), s.read(object))).collect()
    }

    /// The question its objects are, if they are questions.
    pub(crate) fn review(&self) -> Option<Review> {
        match &self.content {
            Content::Builtin(builtin) => builtin.review,
            Content::Custom(_) => None,
        }
    }

    /// What its objects tell of, if they are told and not kept.
    pub(crate) fn told(&self) -> Option<builtin::Told> {
        match &self.content {
            Content::Builtin(builtin) => builtin.told,
            Content::Custom(_) => None,
        }
    }

    /// Whether it has a verb. A question can only be created, and what is told only be read.
    pub(crate) fn allows(&self, verb: Verb) -> bool {
        if self.told().is_some() {
            return matches!(verb, Verb::Get | Verb::List);
        }
        self.review().is_none() || verb == Verb::Create
    }

    /// Whether this is a resource of the server's own machinery.
    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        &*self.ids.group == group && &*self.ids.plural == plural
    }
}

impl Selectable {
    fn read(&self, object: &Value) -> String {
        match object.pointer(&self.pointer) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Bool(flag)) => flag.to_string(),
            Some(Value::Number(number)) => number.to_string(),
            Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => self.absent.to_owned(),
        }
    }
}

impl Registry {
    /// The same if the store has no newer definition, or the resources as it defines them now.
    pub(crate) fn current(store: &Store, known: &Arc<Registry>) -> Arc<Registry> {
        // Asked before reading: a write in between makes the next question read again.
        let made_from = store.table_revision(crd::TABLE);
        if known.made_from == made_from {
            return known.clone();
        }
        let resources =
            |crd: &Object| crd::resources(&crd.value()).into_iter().map(Arc::new).collect::<Vec<_>>();
        let definitions = store.parsed(crd::TABLE, &known.definitions, resources);
        Arc::new(Registry::new(definitions, made_from))
    }

    /// The built-in resources and those of the definitions.
    pub(crate) fn new(definitions: Definitions, made_from: u64) -> Registry {
        let mut registry = Registry { made_from, ..Registry::default() };
        for builtin in builtin::BUILTINS {
            registry.add(Arc::new(builtin.resource()));
        }
        for resource in definitions.values().flat_map(|(_, resources)| resources.iter()) {
            registry.add(resource.clone());
        }
        registry.definitions = definitions;
        registry.order_versions();
        registry
    }

    /// One resource.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.version(group, version)?.resources.get(plural)
    }

    /// One version of a group.
    pub(crate) fn version(&self, group: &str, version: &str) -> Option<&Version> {
        self.groups.get(group)?.versions.iter().find(|v| &*v.name == version)
    }

    /// One group.
    pub(crate) fn group(&self, group: &str) -> Option<&Group> {
        self.groups.get(group)
    }

    /// All groups by name.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (&Arc<str>, &Group)> {
        self.groups.iter()
    }

    /// The same without what these definitions gave.
    pub(crate) fn without(&self, definitions: &BTreeSet<String>) -> Registry {
        let mut registry = Registry { made_from: self.made_from, ..Registry::default() };
        let resources = self.groups.values().flat_map(|g| &g.versions).flat_map(|v| v.resources.values());
        for resource in resources {
            let given = matches!(resource.content, Content::Custom(_))
                && definitions.contains(&resource.ids.group_resource());
            if !given {
                registry.add(resource.clone());
            }
        }
        registry.order_versions();
        registry
    }

    fn order_versions(&mut self) {
        for group in self.groups.values_mut() {
            group.versions.sort_by_key(|v| std::cmp::Reverse(version_priority(&v.name)));
        }
    }

    fn add(&mut self, resource: Arc<Resource>) {
        let group = self.groups.entry(resource.ids.group.clone()).or_default();
        let name = resource.ids.version.clone();
        let at = match group.versions.iter().position(|v| v.name == name) {
            Some(at) => at,
            None => {
                group.versions.push(Version { name, resources: BTreeMap::new() });
                group.versions.len() - 1
            }
        };
        if let Some(version) = group.versions.get_mut(at) {
            version.resources.entry(resource.ids.plural.clone()).or_insert(resource);
        }
    }
}

/// Kubernetes' order of versions: v10 before v2 before v1 before v1beta2 before v1alpha1 before the rest.
fn version_priority(name: &str) -> (u8, u64, u64, std::cmp::Reverse<String>) {
    let parsed = || {
        let rest = name.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (major, stage) = rest.split_at(digits);
        let major = major.parse().ok()?;
        match stage {
            "" => Some((3, major, 0)),
            _ => {
                let (rank, minor) = stage
                    .strip_prefix("beta")
                    .map(|m| (2, m))
                    .or_else(|| stage.strip_prefix("alpha").map(|m| (1, m)))?;
                Some((rank, major, minor.parse().ok()?))
            }
        }
    };
    let (rank, major, minor) = parsed().unwrap_or((0, 0, 0));
    (rank, major, minor, std::cmp::Reverse(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_kubernetes_orders_them() {
        let mut names = vec!["v1", "v1alpha1", "foo", "v10", "v2", "v1beta2", "v1beta10"];
        names.sort_by_key(|n| std::cmp::Reverse(version_priority(n)));
        assert_eq!(names, ["v10", "v2", "v1", "v1beta10", "v1beta2", "v1alpha1", "foo"]);
    }

    #[test]
    fn every_builtin_is_found_by_its_path_name() {
        let registry = Registry::new(Default::default(), 0);
        for builtin in builtin::BUILTINS {
            let found = registry.find(builtin.group, builtin.version, builtin.plural).unwrap();
            assert_eq!(&*found.ids.kind, builtin.kind);
            assert!(
                crate::schema::builtin(builtin.group, builtin.version, builtin.kind).is_some(),
                "{found:?}"
            );
        }
    }
}
