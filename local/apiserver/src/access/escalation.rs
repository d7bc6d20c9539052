//! Does a write give away more than its writer has?
//!
//! Whoever writes a role must hold everything in it, or the verb `escalate` on it; whoever writes a binding must hold
//! everything in the role, or the verb `bind` on it. Otherwise the right to write roles would be every right.

use serde_json::Value;

use super::identity::Identity;
use super::policy::{self, GROUP, Policy};
use super::rules::{Attributes, Rule, quoted};
use crate::status::Status;
use crate::verbs::{Call, Core, metadata};

/// How many single permissions may be compared with held rules for one write: about a tenth of a second. A role of
/// 100 rules with 10 verbs and 10 resources each, written by someone who holds 100 rules, takes exactly this.
const MAX_COMPARISONS: usize = 1_000_000;
/// How many missing rules a refusal names: a message is to be read.
const NAMED: usize = 20;

/// Refuses a role or a binding that gives away what its writer has not.
pub(crate) fn refuse_escalation(
    core: &Core,
    call: &Call<'_>,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let ids = &call.resource.ids;
    if &*ids.group != GROUP || call.who.is_master() || old.is_some_and(|old| only_owners_change(object, old))
    {
        return Ok(());
    }
    match &*ids.plural {
        "roles" | "clusterroles" => role(core, call, object, old),
        "rolebindings" | "clusterrolebindings" => binding(core, call, object),
        _ => Ok(()),
    }
}

/// Whether a garbage collector could have written this: it may not hold what the role gives.
fn only_owners_change(object: &Value, old: &Value) -> bool {
    let rest = |object: &Value| {
        let mut rest = object.clone();
        if let Some(metadata) = rest.get_mut("metadata").and_then(Value::as_object_mut) {
            for key in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
                metadata.remove(key);
            }
        }
        rest
    };
    rest(object) == rest(old)
}

fn role(core: &Core, call: &Call<'_>, object: &Value, old: Option<&Value>) -> Result<(), Status> {
    let policy = core.policy();
    let name = metadata::text(object, "name");
    let escalate = permission("escalate", &call.resource.ids.plural, call.namespace, name);
    if policy.allows(call.who, &escalate).is_some() {
        return Ok(());
    }
    let aggregates = |object: &Value| object.get("aggregationRule").is_some_and(|rule| !rule.is_null());
    if aggregates(object) || old.is_some_and(aggregates) {
        // What such a role will come to is anyone's to say.
        let held = held(&policy, call.who, call.namespace);
        if !everything().iter().all(|all| held.iter().any(|rule| rule.covers(all))) {
            let why = "must have cluster-admin privileges to use the aggregationRule";
            return Err(Status::forbidden(call.resource, name, why, Vec::new()));
        }
    }
    confirm(&policy, call, name, &policy::rules(object))
}

fn binding(core: &Core, call: &Call<'_>, object: &Value) -> Result<(), Status> {
    let policy = core.policy();
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (kind, role) = (text("/roleRef/kind"), text("/roleRef/name"));
    let cluster_role = kind == "ClusterRole";
    let plural = if cluster_role { "clusterroles" } else { "roles" };
    if policy.allows(call.who, &permission("bind", plural, call.namespace, role)).is_some() {
        return Ok(());
    }
    let registry = core.registry();
    let Some(rules) = policy.role_rules(cluster_role, call.namespace, role) else {
        let roles = registry.find(GROUP, "v1", plural).ok_or_else(Status::no_such_resource)?;
        return Err(Status::not_found(roles, role));
    };
    confirm(&policy, call, metadata::text(object, "name"), &rules)
}

fn confirm(policy: &Policy, call: &Call<'_>, name: &str, given: &[Rule]) -> Result<(), Status> {
    let held = held(policy, call.who, call.namespace);
    let who = format!("user {:?} (groups={})", call.who.name, quoted(&call.who.groups));
    let why = match missing(&held, given) {
        Ok(missing) if missing.is_empty() => return Ok(()),
        Ok(missing) => {
            let said: Vec<String> = missing.iter().take(NAMED).map(Rule::compact).collect();
            let more = match missing.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!("\nand {more} more"),
            };
            format!(
                "{who} is attempting to grant RBAC permissions not currently held:\n{}{more}",
                said.join("\n")
            )
        }
        Err(TooMany) => format!("{who} is attempting to grant more permissions than can be compared at once"),
    };
    Err(Status::forbidden(call.resource, name, &why, Vec::new()))
}

/// More comparisons than one write may cost.
struct TooMany;

/// What of `given` no held rule covers, verbs for the same thing together.
fn missing(held: &[&Rule], given: &[Rule]) -> Result<Vec<Rule>, TooMany> {
    let mut left = MAX_COMPARISONS;
    let mut missing: Vec<Rule> = Vec::new();
    for rule in given.iter().filter(|rule| !held.iter().any(|own| own.covers(rule))) {
        let work = rule.combinations().saturating_mul(held.len().max(1));
        left = left.checked_sub(work).ok_or(TooMany)?;
        for mut one in rule.spelled_out().filter(|one| !held.iter().any(|own| own.covers(one))) {
            match missing.last_mut().filter(|last| same_thing(last, &one)) {
                Some(last) => last.verbs.append(&mut one.verbs),
                None => missing.push(one),
            }
        }
    }
    Ok(missing)
}

fn same_thing(a: &Rule, b: &Rule) -> bool {
    a.api_groups == b.api_groups
        && a.resources == b.resources
        && a.resource_names == b.resource_names
        && a.non_resource_urls == b.non_resource_urls
}

fn held<'a>(policy: &'a Policy, who: &'a Identity, namespace: &'a str) -> Vec<&'a Rule> {
    policy.grants(who, namespace).flat_map(|grant| grant.rules.iter()).collect()
}

fn everything() -> [Rule; 2] {
    let all = || vec!["*".to_owned()];
    [
        Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() },
        Rule { verbs: all(), non_resource_urls: all(), ..Rule::default() },
    ]
}

fn permission(verb: &str, resource: &str, namespace: &str, name: &str) -> Attributes {
    Attributes::Resource {
        verb: verb.to_owned(),
        group: GROUP.to_owned(),
        resource: resource.to_owned(),
        subresource: String::new(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rules(rules: Value) -> Vec<Rule> {
        serde_json::from_value(rules).unwrap()
    }

    fn lacks(held: &[Rule], given: Value) -> Option<Vec<String>> {
        let held: Vec<&Rule> = held.iter().collect();
        let missing = missing(&held, &rules(given)).ok()?;
        Some(missing.iter().map(Rule::compact).collect())
    }

    #[test]
    fn several_held_rules_together_cover_one() {
        let held = rules(json!([
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "secrets"]},
            {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]},
        ]));
        let pods = json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]);
        assert_eq!(lacks(&held, pods), Some(vec![]));
        let more = json!([{"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["secrets"]}]);
        let want = r#"{APIGroups:[""], Resources:["secrets"], Verbs:["list" "watch"]}"#;
        assert_eq!(lacks(&held, more), Some(vec![want.to_owned()]));
        let all = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
        assert_eq!(lacks(&held, all).unwrap().len(), 1);
        let urls = json!([{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}]);
        assert_eq!(lacks(&held, urls).unwrap().len(), 1);
        assert_eq!(
            lacks(&[], json!([{"verbs": [], "apiGroups": [""], "resources": ["pods"]}])),
            Some(vec![])
        );
    }

    #[test]
    fn a_rule_of_a_billion_combinations_is_refused_at_once() {
        let many: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
        let given = json!([{"verbs": many, "apiGroups": many, "resources": many, "resourceNames": many}]);
        assert_eq!(lacks(&[], given.clone()), None);
        assert_eq!(
            lacks(&everything(), given),
            Some(vec![]),
            "one rule that covers all needs no spelling out"
        );
    }
}
