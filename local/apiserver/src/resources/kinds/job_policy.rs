//! What may a Job say about which of its Pods count: per index, as failures, as success?

#![expect(clippy::indexing_slicing, reason = "reading a Value by key never panics: what is absent is null")]

use serde_json::{Value, json};

use super::not_negative;
use crate::validation::FieldError;

/// Kubernetes' numbers.
const MAX_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;
const MAX_CONDITIONS: usize = 20;
const MAX_INDEXES_BYTES: usize = 64 << 10;

const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const CONDITION_STATUSES: [&str; 3] = ["False", "True", "Unknown"];

/// What is wrong with the policies of the Job whose spec is at `path`.
pub(super) fn validate(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let indexed = spec["completionMode"] == "Indexed";
    for key in ["backoffLimitPerIndex", "successPolicy"] {
        if !spec[key].is_null() && !indexed {
            let why = "requires indexed completion mode";
            errors.push(FieldError::invalid(format!("{path}.{key}"), &spec[key], why));
        }
    }
    if let Some(max) = spec["maxFailedIndexes"].as_i64() {
        if spec["backoffLimitPerIndex"].is_null() {
            let why = "when maxFailedIndexes is specified";
            errors.push(FieldError::required(format!("{path}.backoffLimitPerIndex"), why));
        }
        if spec["completions"].as_i64().is_some_and(|completions| max > completions) {
            let why = "must be less than or equal to completions";
            errors.push(FieldError::invalid(
                format!("{path}.maxFailedIndexes"),
                &spec["maxFailedIndexes"],
                why,
            ));
        }
    }
    if !spec["podFailurePolicy"].is_null() {
        errors.extend(failure_policy(spec, &format!("{path}.podFailurePolicy.rules")));
    }
    if !spec["successPolicy"].is_null() && indexed {
        errors.extend(success_policy(spec, &format!("{path}.successPolicy.rules")));
    }
    errors
}

fn failure_policy(spec: &Value, path: &str) -> Vec<FieldError> {
    let rules = list(&spec["podFailurePolicy"]["rules"]);
    let mut errors = too_many(path, rules, MAX_RULES);
    for (at, rule) in rules.iter().take(MAX_RULES).enumerate() {
        let path = format!("{path}[{at}]");
        let action = &rule["action"];
        if action == "FailIndex" && spec["backoffLimitPerIndex"].is_null() {
            let why = "requires the backoffLimitPerIndex to be set";
            errors.push(FieldError::invalid(format!("{path}.action"), action, why));
        } else {
            errors.extend(one_of(action, &ACTIONS, format!("{path}.action")));
        }
        let conditions = list(&rule["onPodConditions"]);
        match (rule["onExitCodes"].is_null(), conditions.is_empty()) {
            (true, true) => errors.push(FieldError::wrong(
                &path,
                "specifying one of OnExitCodes and OnPodConditions is required",
            )),
            (false, false) => {
                errors.push(FieldError::wrong(
                    &path,
                    "specifying both OnExitCodes and OnPodConditions is not supported",
                ));
            }
            (true, false) | (false, true) => {}
        }
        if !rule["onExitCodes"].is_null() {
            errors.extend(exit_codes(&rule["onExitCodes"], spec, &format!("{path}.onExitCodes")));
        }
        errors.extend(too_many(&format!("{path}.onPodConditions"), conditions, MAX_CONDITIONS));
        for (at, condition) in conditions.iter().take(MAX_CONDITIONS).enumerate() {
            // One that does not say means True.
            if !condition["status"].is_null() {
                let path = format!("{path}.onPodConditions[{at}].status");
                errors.extend(one_of(&condition["status"], &CONDITION_STATUSES, path));
            }
        }
    }
    errors
}

fn exit_codes(wanted: &Value, spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> =
        one_of(&wanted["operator"], &OPERATORS, format!("{path}.operator")).into_iter().collect();
    let pod = &spec["template"]["spec"];
    let mut containers = list(&pod["initContainers"]).iter().chain(list(&pod["containers"]));
    let name = &wanted["containerName"];
    if !name.is_null() && !containers.any(|container| container["name"] == *name) {
        let why = "must be one of the container or initContainer names in the pod template";
        errors.push(FieldError::invalid(format!("{path}.containerName"), name, why));
    }
    let values = list(&wanted["values"]);
    if values.is_empty() {
        let why = "at least one value is required";
        errors.push(FieldError::invalid(format!("{path}.values"), &json!(values), why));
    }
    errors.extend(too_many(&format!("{path}.values"), values, MAX_EXIT_CODES));
    let mut ordered = true;
    // Each is compared with those before it: of too many, which are refused anyway, no more than may be are looked at.
    for (at, value) in values.iter().take(MAX_EXIT_CODES).enumerate() {
        let before = values.get(..at).unwrap_or_default();
        if wanted["operator"] == "In" && *value == 0 {
            let why = "must not be 0 for the In operator";
            errors.push(FieldError::invalid(format!("{path}.values[{at}]"), value, why));
        }
        if before.contains(value) {
            errors.push(FieldError::duplicate(format!("{path}.values[{at}]"), value));
        } else if ordered && before.last().is_some_and(|last| last.as_i64() > value.as_i64()) {
            ordered = false;
            errors.push(FieldError::invalid(format!("{path}.values"), &json!(values), "must be ordered"));
        }
    }
    errors
}

fn success_policy(spec: &Value, path: &str) -> Vec<FieldError> {
    let rules = list(&spec["successPolicy"]["rules"]);
    let completions = spec["completions"].as_i64().unwrap_or_default();
    let mut errors = too_many(path, rules, MAX_RULES);
    if rules.is_empty() {
        errors.push(FieldError::required(path, "at least one rules must be specified in the successPolicy"));
    }
    for (at, rule) in rules.iter().take(MAX_RULES).enumerate() {
        let path = format!("{path}[{at}]");
        let (count, indexes) = (&rule["succeededCount"], rule["succeededIndexes"].as_str());
        if count.is_null() && indexes.is_none() {
            errors.push(FieldError::required(
                path,
                "at least one of succeededCount or succeededIndexes must be specified",
            ));
            continue;
        }
        let mut named = None;
        if let Some(indexes) = indexes {
            let field = format!("{path}.succeededIndexes");
            if indexes.len() > MAX_INDEXES_BYTES {
                errors.push(FieldError::too_long(&field, MAX_INDEXES_BYTES as u64));
            }
            match count_indexes(indexes, completions) {
                Ok(total) => named = Some(total),
                Err(why) => {
                    let why = format!("error parsing succeededIndexes: {why}");
                    errors.push(FieldError::invalid(field, &rule["succeededIndexes"], why));
                }
            }
        }
        let field = format!("{path}.succeededCount");
        errors.extend(not_negative(count, field.clone()));
        let Some(wanted) = count.as_i64() else { continue };
        if wanted > completions {
            let why =
                format!("must be less than or equal to {completions} (the number of specified completions)");
            errors.push(FieldError::invalid(&field, count, why));
        }
        if let Some(named) = named.filter(|named| wanted > *named) {
            let why = format!(
                "must be less than or equal to {named} (the number of indexes in the specified succeededIndexes field)"
            );
            errors.push(FieldError::invalid(field, count, why));
        }
    }
    errors
}

/// How many indexes `0,2-4` names, all of them ascending and below `completions`.
fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let (mut total, mut last) = (0, None);
    if text.is_empty() {
        return Ok(total);
    }
    for part in text.split(',') {
        let ends: Vec<&str> = part.split('-').collect();
        let number = |end: &str| {
            let parsed: i64 =
                end.parse().map_err(|_| format!("cannot convert string to integer for index: {end:?}"))?;
            match parsed < completions {
                true => Ok(parsed),
                false => Err(format!("too large index: {end:?}")),
            }
        };
        let (first, end) = match ends.as_slice() {
            [one] => (number(one)?, number(one)?),
            [first, end] => (number(first)?, number(end)?),
            _ => {
                return Err(format!(
                    "the fragment {part:?} violates the requirement that an index interval can have at most two parts separated by '-'"
                ));
            }
        };
        if last.is_some_and(|last| first <= last) {
            return Err(format!(
                "non-increasing order, previous: {}, current: {first}",
                last.unwrap_or_default()
            ));
        }
        if ends.len() == 2 && first >= end {
            return Err(format!("non-increasing order, previous: {first}, current: {end}"));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

fn one_of(value: &Value, known: &[&str], field: String) -> Option<FieldError> {
    let text = value.as_str().unwrap_or_default();
    if text.is_empty() {
        let quoted: Vec<String> = known.iter().map(|value| format!("{value:?}")).collect();
        return Some(FieldError::required(field, format!("valid values: [{}]", quoted.join(" "))));
    }
    (!known.contains(&text)).then(|| FieldError::not_supported(field, value, known))
}

fn too_many(field: &str, items: &[Value], max: usize) -> Vec<FieldError> {
    let many = items.len() > max;
    many.then(|| FieldError::too_many(field, items.len(), max as u64)).into_iter().collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: Value, expect: &[&str]) {
        let mut spec = spec;
        spec["template"] = json!({"spec": {"containers": [{"name": "main"}]}});
        let found: Vec<String> = validate(&spec, "spec").iter().map(ToString::to_string).collect();
        assert_eq!(found, expect, "{spec}");
    }

    fn indexed(more: &Value) -> Value {
        let mut spec = json!({"completionMode": "Indexed", "completions": 5});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        spec
    }

    #[test]
    fn policies_about_indexes_need_indexes() {
        check(json!({}), &[]);
        check(
            json!({"backoffLimitPerIndex": 1}),
            &["spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"],
        );
        check(
            indexed(&json!({"maxFailedIndexes": 6})),
            &[
                "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
                "spec.maxFailedIndexes: Invalid value: 6: must be less than or equal to completions",
            ],
        );
        check(indexed(&json!({"backoffLimitPerIndex": 1, "maxFailedIndexes": 5})), &[]);
    }

    #[test]
    fn a_success_policy_names_indexes_that_there_are() {
        let rule = |rule: Value| indexed(&json!({"successPolicy": {"rules": [rule]}}));
        check(rule(json!({"succeededIndexes": "0,2-4", "succeededCount": 4})), &[]);
        check(rule(json!({"succeededCount": 5})), &[]);
        let at = "spec.successPolicy.rules[0]";
        for (given, why) in [
            (
                json!({}),
                ": Required value: at least one of succeededCount or succeededIndexes must be specified",
            ),
            (
                json!({"succeededCount": 6}),
                ".succeededCount: Invalid value: 6: must be less than or equal to 5 (the number of specified completions)",
            ),
            (
                json!({"succeededIndexes": "0-1", "succeededCount": 3}),
                ".succeededCount: Invalid value: 3: must be less than or equal to 2 (the number of indexes in the specified succeededIndexes field)",
            ),
            (
                json!({"succeededIndexes": "5"}),
                ".succeededIndexes: Invalid value: \"5\": error parsing succeededIndexes: too large index: \"5\"",
            ),
            (
                json!({"succeededIndexes": "2,1"}),
                ".succeededIndexes: Invalid value: \"2,1\": error parsing succeededIndexes: non-increasing order, previous: 2, current: 1",
            ),
            (
                json!({"succeededIndexes": "x"}),
                ".succeededIndexes: Invalid value: \"x\": error parsing succeededIndexes: cannot convert string to integer for index: \"x\"",
            ),
        ] {
            check(rule(given), &[&format!("{at}{why}")]);
        }
        check(
            indexed(&json!({"successPolicy": {"rules": []}})),
            &[
                "spec.successPolicy.rules: Required value: at least one rules must be specified in the successPolicy",
            ],
        );
    }

    #[test]
    fn a_failure_policy_says_what_it_matches_and_what_comes_of_it() {
        let rule = |rule: Value| json!({"podFailurePolicy": {"rules": [rule]}});
        let at = "spec.podFailurePolicy.rules[0]";
        check(
            rule(
                json!({"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [1, 42]}}),
            ),
            &[],
        );
        check(rule(json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]})), &[]);
        for (given, why) in [
            (
                json!({"action": "Ignore"}),
                ": Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
            ),
            (
                json!({"action": "Nope", "onPodConditions": [{"type": "x"}]}),
                ".action: Unsupported value: \"Nope\": supported values: \"Count\", \"FailIndex\", \"FailJob\", \"Ignore\"",
            ),
            (
                json!({"action": "FailIndex", "onPodConditions": [{"type": "x"}]}),
                ".action: Invalid value: \"FailIndex\": requires the backoffLimitPerIndex to be set",
            ),
            (
                json!({"action": "Count", "onExitCodes": {"containerName": "other", "operator": "In", "values": [1]}}),
                ".onExitCodes.containerName: Invalid value: \"other\": must be one of the container or initContainer names in the pod template",
            ),
            (
                json!({"action": "Count", "onExitCodes": {"operator": "In", "values": [0]}}),
                ".onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator",
            ),
            (
                json!({"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [2, 1]}}),
                ".onExitCodes.values: Invalid value: [2,1]: must be ordered",
            ),
            (
                json!({"action": "Count", "onExitCodes": {"operator": "In", "values": [2, 2]}}),
                ".onExitCodes.values[1]: Duplicate value: 2",
            ),
        ] {
            check(rule(given), &[&format!("{at}{why}")]);
        }
    }

    #[test]
    fn of_far_too_many_values_the_count_is_told_and_no_more_than_may_be_are_looked_at() {
        let values: Vec<i32> = vec![1; 300_000];
        let rule = json!({"action": "Count", "onExitCodes": {"operator": "In", "values": values}});
        let mut spec = json!({"podFailurePolicy": {"rules": [rule]}});
        spec["template"] = json!({"spec": {"containers": [{"name": "main"}]}});
        let found: Vec<String> = validate(&spec, "spec").iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), MAX_EXIT_CODES, "one about the number, and all but the first are duplicates");
        assert!(found[0].contains("must have at most 255 items"), "{}", found[0]);
    }
}
