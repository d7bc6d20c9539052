//! Does a policy, or its binding, mean this request?

use serde_json::Value;

use super::Write;
use crate::access::combined;
use crate::selector::selects;
use crate::verbs::{Call, Subresource};

/// `matchConstraints` of a policy, `matchResources` of a binding.
#[derive(Debug)]
pub(super) struct Matching {
    /// Absent on bindings that leave the choice to their policy.
    rules: Option<Vec<Rule>>,
    excluded: Vec<Rule>,
    namespaces: Option<Value>,
    objects: Option<Value>,
    /// `matchPolicy: Exact`; otherwise a rule also means the resource in its other versions.
    exact: bool,
}

#[derive(Debug)]
struct Rule {
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    operations: Vec<String>,
    scope: String,
}

impl Matching {
    pub(super) fn read(value: &Value) -> Matching {
        let rules = |key: &str| {
            let listed = value.get(key).and_then(Value::as_array);
            listed.map(|all| all.iter().map(Rule::read).collect::<Vec<_>>())
        };
        Matching {
            rules: rules("resourceRules").filter(|rules| !rules.is_empty()),
            excluded: rules("excludeResourceRules").unwrap_or_default(),
            namespaces: value.get("namespaceSelector").cloned(),
            objects: value.get("objectSelector").cloned(),
            exact: value.get("matchPolicy").and_then(Value::as_str) == Some("Exact"),
        }
    }

    pub(super) fn means(&self, call: &Call<'_>, write: &Write<'_>, namespace: Option<&Value>) -> bool {
        let any = |rules: &[Rule]| rules.iter().any(|rule| rule.means(call, write, self.exact));
        self.rules.as_deref().is_none_or(any)
            && !any(&self.excluded)
            && self.means_namespace(call, write, namespace)
            && self.means_object(write)
    }

    /// A namespace itself is chosen by its own labels; other cluster-scoped objects are in no namespace to choose by.
    fn means_namespace(&self, call: &Call<'_>, write: &Write<'_>, namespace: Option<&Value>) -> bool {
        let Some(selector) = &self.namespaces else { return true };
        let labelled = if call.resource.is("", "namespaces") {
            write.object.or(write.old)
        } else if call.resource.ids.namespaced {
            namespace
        } else {
            return true;
        };
        selects(selector, labels(labelled))
    }

    /// Either side of a change is enough: a label cannot be taken off to escape.
    fn means_object(&self, write: &Write<'_>) -> bool {
        let Some(selector) = &self.objects else { return true };
        [write.object, write.old].into_iter().flatten().any(|object| selects(selector, labels(Some(object))))
    }
}

impl Rule {
    fn read(value: &Value) -> Rule {
        let list = |key: &str| {
            let listed = value.get(key).and_then(Value::as_array).into_iter().flatten();
            listed.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Rule {
            groups: list("apiGroups"),
            versions: list("apiVersions"),
            resources: list("resources"),
            names: list("resourceNames"),
            operations: list("operations"),
            scope: value.get("scope").and_then(Value::as_str).unwrap_or("*").to_owned(),
        }
    }

    fn means(&self, call: &Call<'_>, write: &Write<'_>, exact: bool) -> bool {
        let ids = &call.resource.ids;
        let has = |list: &[String], wanted: &str| list.iter().any(|one| one == "*" || one == wanted);
        let name = super::name_of(call, write);
        has(&self.groups, &ids.group)
            && (!exact || has(&self.versions, &ids.version))
            && self.resources.iter().any(|rule| covers(rule, &ids.plural, call.subresource))
            && has(&self.operations, write.operation.as_str())
            && (self.names.is_empty() || self.names.iter().any(|one| one == name))
            && match self.scope.as_str() {
                "Cluster" => !ids.namespaced,
                "Namespaced" => ids.namespaced,
                _ => true,
            }
    }
}

/// `pods`, `pods/status`, `pods/*`, `*/scale`, `*` (no subresources), `*/*`.
fn covers(rule: &str, plural: &str, subresource: Subresource) -> bool {
    let (resource, part) = rule.split_once('/').unwrap_or((rule, ""));
    match (resource, part) {
        ("*", "*") => true,
        (named, "*") => named == plural,
        ("*", part) => part == subresource.as_str(),
        _ => rule == combined(plural, subresource.as_str()),
    }
}

fn labels(object: Option<&Value>) -> &Value {
    object.and_then(|object| object.pointer("/metadata/labels")).unwrap_or(&Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_means_resources_but_not_their_parts() {
        use Subresource::{Scale, Status, Whole};
        for (rule, subresource, want) in [
            ("pods", Whole, true),
            ("pods", Status, false),
            ("pods/status", Status, true),
            ("pods/status", Whole, false),
            ("pods/*", Status, true),
            ("pods/*", Whole, true),
            ("jobs/*", Whole, false),
            ("*", Whole, true),
            ("*", Status, false),
            ("*/scale", Scale, true),
            ("*/scale", Status, false),
            ("*/*", Status, true),
        ] {
            assert_eq!(covers(rule, "pods", subresource), want, "{rule} {subresource:?}");
        }
    }
}
