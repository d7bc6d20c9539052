//! What does Kubernetes fill into admission policies and their bindings, and what does it refuse?

use serde_json::{Value, json};

use super::{Hooks, NONE, fill, items};
use crate::admission;
use crate::validation::{FieldError, qualified_name};

pub(crate) const POLICY: Hooks = Hooks {
    default: |object| {
        if let Some(spec) = object.get_mut("spec") {
            fill(spec, "failurePolicy", json!("Fail"));
            if let Some(constraints) = spec.get_mut("matchConstraints") {
                default_matching(constraints);
            }
        }
    },
    validate: |object, _| policy(object),
    ..NONE
};

pub(crate) const POLICY_BINDING: Hooks = Hooks {
    default: |object| {
        if let Some(matching) = object.pointer_mut("/spec/matchResources") {
            default_matching(matching);
        }
    },
    validate: |object, _| binding(object),
    ..NONE
};

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
const REASONS: [&str; 4] = ["Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized"];

fn default_matching(matching: &mut Value) {
    fill(matching, "matchPolicy", json!("Equivalent"));
    fill(matching, "namespaceSelector", json!({}));
    fill(matching, "objectSelector", json!({}));
    for key in ["resourceRules", "excludeResourceRules"] {
        for rule in matching.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
            fill(rule, "scope", json!("*"));
        }
    }
}

fn policy(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let choice = |field: &str, value: &Value, allowed: &[&str]| {
        let known = value.is_null() || allowed.iter().any(|one| value == one);
        (!known).then(|| FieldError::not_supported(field, value, allowed))
    };
    errors.extend(choice("spec.failurePolicy", &spec["failurePolicy"], &["Fail", "Ignore"]));
    let constraints = &spec["matchConstraints"];
    if constraints.is_null() {
        errors.push(FieldError::required("spec.matchConstraints", ""));
    } else {
        if items(constraints, "resourceRules").is_empty() {
            errors.push(FieldError::required("spec.matchConstraints.resourceRules", ""));
        }
        errors.extend(matching(constraints, "spec.matchConstraints"));
    }
    if items(spec, "validations").is_empty() && items(spec, "auditAnnotations").is_empty() {
        let why = "validations or auditAnnotations must be specified";
        errors.push(FieldError::required("spec.validations", why));
    }
    let named = [("matchConditions", "name"), ("variables", "name")];
    for (list, key) in named {
        let mut seen = Vec::new();
        for (index, entry) in items(spec, list).iter().enumerate() {
            let field = format!("spec.{list}[{index}].{key}");
            let name = entry[key].as_str().unwrap_or_default();
            if name.is_empty() {
                errors.push(FieldError::required(&field, ""));
            } else if seen.contains(&name) {
                errors.push(FieldError::duplicate(&field, &entry[key]));
            } else if list == "matchConditions" {
                errors.extend(FieldError::each_invalid(&field, &entry[key], qualified_name(name)));
            } else if !is_identifier(name) {
                errors.push(FieldError::invalid(&field, &entry[key], "name is not a valid CEL identifier"));
            }
            seen.push(name);
        }
    }
    for (index, validation) in items(spec, "validations").iter().enumerate() {
        let field = format!("spec.validations[{index}].reason");
        errors.extend(choice(&field, &validation["reason"], &REASONS));
    }
    errors.extend(admission::compile_errors(spec));
    errors
}

fn binding(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = object.get("spec").unwrap_or(&Value::Null);
    if spec["policyName"].as_str().unwrap_or_default().is_empty() {
        errors.push(FieldError::required("spec.policyName", ""));
    }
    let actions = items(spec, "validationActions");
    if actions.is_empty() {
        errors.push(FieldError::required(
            "spec.validationActions",
            "at least one validation action is required",
        ));
    }
    errors.extend(all_known(actions, "spec.validationActions", &ACTIONS));
    let acts = |name: &str| actions.iter().any(|action| action == name);
    if acts("Deny") && acts("Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        errors.push(FieldError::invalid("spec.validationActions", &json!(actions), why));
    }
    let params = &spec["paramRef"];
    if !params.is_null() && params["name"].is_null() == params["selector"].is_null() {
        let why = "exactly one of name or selector must be specified";
        errors.push(FieldError::required("spec.paramRef.name", why));
    }
    errors.extend(matching(&spec["matchResources"], "spec.matchResources"));
    errors
}

/// Complaints about those of a list that are none of these.
fn all_known(list: &[Value], field: &str, known: &[&str]) -> Vec<FieldError> {
    let all = list.iter().enumerate().filter(|(_, one)| !known.iter().any(|known| one == known));
    all.map(|(at, one)| FieldError::not_supported(format!("{field}[{at}]"), one, known)).collect()
}

fn matching(value: &Value, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for list in ["resourceRules", "excludeResourceRules"] {
        for (index, rule) in items(value, list).iter().enumerate() {
            let field = |key: &str| format!("{field}.{list}[{index}].{key}");
            for key in ["operations", "apiGroups", "apiVersions", "resources"] {
                if items(rule, key).is_empty() {
                    errors.push(FieldError::required(field(key), ""));
                }
            }
            errors.extend(all_known(items(rule, "operations"), &field("operations"), &OPERATIONS));
        }
    }
    errors
}

fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}
