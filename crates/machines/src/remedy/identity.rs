//! Who says that they approve, or ask, must be who they say: the API server knows, so it checks. What is shipped for
//! that, and is it in force?
//!
//! An Approval is worth what the check behind it is worth. Where the check is missing, or somebody made it let things
//! pass, no approval counts, and the execution says so.

use pawl_api::meta::Kind;
use serde_json::{Value, json};

use crate::object::Key;
use crate::view::{Served, View};

const GROUP: &str = "admissionregistration.k8s.io";

pub const POLICY: Kind =
    Kind::of(GROUP, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", false);
pub const BINDING: Kind =
    Kind::of(GROUP, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", false);

/// The policy, and its binding, that checks who approves.
pub const APPROVER: &str = "pawl-approver";

/// An approver's name must be the caller's …
const IS_CALLER: &str = "object.spec.approver.username == request.userInfo.username";

/// … and so must be the groups.
const HAS_GROUPS: &str = "!has(object.spec.approver.groups) || object.spec.approver.groups.all(group, \
    has(request.userInfo.groups) && group in request.userInfo.groups)";

/// Whether those who approve are who they say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verified {
    Yes,
    /// Why nobody can be sure.
    No(String),
}

/// All that is shipped. `operators` are the users that Pawl itself acts as: a parent hands `requestedBy` down to its
/// children, and only Pawl may do that for somebody else.
pub fn manifests(operators: &[String], labels: &Value) -> Vec<Value> {
    let policy = |name: &str, group: &str, resources: &[&str], validations: Value| {
        json!({"apiVersion": POLICY.api_version(), "kind": POLICY.kind,
            "metadata": {"name": name, "labels": labels},
            "spec": {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [{
                "apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
                "resources": resources}]}, "validations": validations}})
    };
    let binding = |name: &str| {
        json!({"apiVersion": BINDING.api_version(), "kind": BINDING.kind,
            "metadata": {"name": name, "labels": labels},
            "spec": {"policyName": name, "validationActions": ["Deny"]}})
    };
    let approver = json!([
        {"expression": IS_CALLER,
         "message": "spec.approver.username must be the name of whoever creates the Approval"},
        {"expression": HAS_GROUPS,
         "message": "spec.approver.groups must be groups of whoever creates the Approval"},
    ]);
    let operators = operators.iter().map(|name| format!("request.userInfo.username == '{name}' || "));
    let requester = json!([
        {"expression": format!("!has(object.spec.requestedBy) || object.spec.requestedBy == \
            request.userInfo.username || {}\
            (request.operation == 'UPDATE' && has(oldObject.spec.requestedBy) && \
            oldObject.spec.requestedBy == object.spec.requestedBy)", operators.collect::<String>()),
         "message": "spec.requestedBy must be the name of whoever asks"},
    ]);
    let approvals = pawl_api::pawl::approval::KIND;
    let executions = pawl_api::remedy::kubernetes_execution::KIND;
    let requests = pawl_api::remedy::remediation_request::KIND;
    vec![
        policy(APPROVER, &approvals.group, &[&approvals.plural], approver),
        binding(APPROVER),
        policy("pawl-requester-ke", &executions.group, &[&executions.plural], requester.clone()),
        binding("pawl-requester-ke"),
        policy("pawl-requester-rr", &requests.group, &[&requests.plural], requester),
        binding("pawl-requester-rr"),
    ]
}

/// Whether the check of approvers is in force.
pub fn verified(view: &dyn View) -> Verified {
    let no = |why: String| Verified::No(why);
    if view.serves(&POLICY) == Served::No {
        return no(format!("{} {} is not served here", POLICY.api_version(), POLICY.kind));
    }
    let key = Key::new(None, APPROVER);
    let Some(policy) = view.get(&POLICY, &key) else {
        return no(format!("there is no {} {APPROVER}", POLICY.kind));
    };
    if let Some(why) = lets_pass(policy.raw()) {
        return no(format!("the {} {APPROVER} {why}", POLICY.kind));
    }
    let Some(binding) = view.get(&BINDING, &key) else {
        return no(format!("there is no {} {APPROVER}", BINDING.kind));
    };
    match lets_some_pass(binding.raw()) {
        Some(why) => no(format!("the {} {APPROVER} {why}", BINDING.kind)),
        None => Verified::Yes,
    }
}

/// Why a policy of the right name does not check what it should.
fn lets_pass(policy: &Value) -> Option<&'static str> {
    let spec = policy.get("spec")?;
    let list = |of: &Value, field: &str| of.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    let says = |expression: &str| {
        list(spec, "validations")
            .iter()
            .any(|one| one.get("expression").and_then(Value::as_str) == Some(expression))
    };
    if !says(IS_CALLER) || !says(HAS_GROUPS) {
        return Some("does not compare the approver with the caller");
    }
    if spec.get("failurePolicy").and_then(Value::as_str).is_some_and(|policy| policy != "Fail") {
        return Some("lets pass what it cannot check");
    }
    let constraints = spec.get("matchConstraints").cloned().unwrap_or_default();
    let rules = list(&constraints, "resourceRules");
    let has = |rule: &Value, field: &str, wanted: &str| {
        list(rule, field).iter().any(|one| one == wanted || one == "*")
    };
    let approvals = pawl_api::pawl::approval::KIND;
    let checked = rules.iter().any(|rule| {
        has(rule, "apiGroups", &approvals.group)
            && has(rule, "resources", &approvals.plural)
            && has(rule, "apiVersions", &approvals.version)
            && has(rule, "operations", "CREATE")
            && list(rule, "resourceNames").is_empty()
    });
    if !checked {
        return Some("is not about Approvals");
    }
    let narrowed = !list(spec, "matchConditions").is_empty()
        || !list(&constraints, "excludeResourceRules").is_empty()
        || selects(&constraints);
    narrowed.then_some("leaves some of them out")
}

/// Why a binding of the right name does not deny.
fn lets_some_pass(binding: &Value) -> Option<&'static str> {
    let spec = binding.get("spec")?;
    if spec.get("policyName").and_then(Value::as_str) != Some(APPROVER) {
        return Some("binds another policy");
    }
    let actions = spec.get("validationActions").and_then(Value::as_array);
    if !actions.into_iter().flatten().any(|action| action == "Deny") {
        return Some("does not deny");
    }
    let narrowed = spec.get("matchResources").is_some_and(|resources| {
        let lists = ["resourceRules", "excludeResourceRules"];
        let some =
            |field: &str| resources.get(field).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
        lists.into_iter().any(some) || selects(resources)
    });
    narrowed.then_some("leaves some Approvals out")
}

/// Whether selectors choose among objects or namespaces.
fn selects(of: &Value) -> bool {
    ["namespaceSelector", "objectSelector"].into_iter().any(|field| {
        of.get(field).and_then(Value::as_object).is_some_and(|selector| {
            selector.values().any(|part| match part {
                Value::Array(parts) => !parts.is_empty(),
                Value::Object(parts) => !parts.is_empty(),
                Value::Null => false,
                Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::World;
    use crate::object::Object;

    fn world(change: impl Fn(&mut Vec<Value>)) -> World {
        let mut world = World::default();
        world.cache(&POLICY);
        world.cache(&BINDING);
        let mut shipped = manifests(&["pawl".to_owned()], &json!({}));
        change(&mut shipped);
        for manifest in shipped {
            let kind = if manifest["kind"] == *POLICY.kind { POLICY } else { BINDING };
            world.put(Object::new(kind, manifest).unwrap());
        }
        world
    }

    #[track_caller]
    fn unsure(change: impl Fn(&mut Vec<Value>), says: &str) {
        match verified(&world(change)) {
            Verified::No(why) => assert!(why.contains(says), "{why}"),
            Verified::Yes => panic!("it should not be: {says}"),
        }
    }

    #[test]
    fn what_is_shipped_is_enough_also_with_what_an_api_server_adds_to_it() {
        assert_eq!(verified(&world(|_| {})), Verified::Yes);
        let defaulted = world(|shipped| {
            shipped[0]["spec"]["matchConstraints"]["matchPolicy"] = json!("Equivalent");
            shipped[0]["spec"]["matchConstraints"]["namespaceSelector"] = json!({});
            shipped[0]["spec"]["matchConstraints"]["resourceRules"][0]["scope"] = json!("*");
            shipped[1]["spec"]["matchResources"] = json!({"objectSelector": {}, "matchPolicy": "Equivalent"});
        });
        assert_eq!(verified(&defaulted), Verified::Yes);
    }

    #[test]
    fn a_check_that_is_missing_or_lets_something_pass_is_no_check() {
        assert!(matches!(verified(&World::default()), Verified::No(why) if why.contains("there is no")));
        unsure(|shipped| drop(shipped.remove(0)), "there is no ValidatingAdmissionPolicy");
        unsure(|shipped| drop(shipped.remove(1)), "there is no ValidatingAdmissionPolicyBinding");
        unsure(|shipped| shipped[0]["spec"]["failurePolicy"] = json!("Ignore"), "cannot check");
        unsure(
            |shipped| drop(shipped[0]["spec"]["validations"].as_array_mut().unwrap().remove(0)),
            "compare",
        );
        unsure(|shipped| shipped[0]["spec"]["matchConditions"] = json!([{"name": "x"}]), "leaves some");
        unsure(
            |shipped| shipped[0]["spec"]["matchConstraints"]["resourceRules"][0]["resources"] = json!(["x"]),
            "not about",
        );
        unsure(|shipped| shipped[1]["spec"]["validationActions"] = json!(["Audit"]), "does not deny");
        let chosen = json!({"namespaceSelector": {"matchLabels": {"a": "b"}}});
        unsure(|shipped| shipped[1]["spec"]["matchResources"] = chosen.clone(), "leaves some");
    }
}
