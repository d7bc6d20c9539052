//! What does a policy's answer mean?
//!
//! A decision is an object of known members; anything else in it is refused, for `require_aproval: true` must not read
//! like no wish at all. A plain `deny` is a set of messages.

use std::collections::BTreeSet;

use pawl_api::meta::{Duration, text};
use pawl_machines::remedy::safety::Decision;
use serde_json::{Map, Value};

/// Messages that are kept, and how long each may be: they go into a status.
const MAX_MESSAGES: usize = 64;
const MAX_MESSAGE_CHARS: usize = 1024;
/// Groups of approvers that are kept.
const MAX_GROUPS: usize = 64;
/// More people than anybody waits for.
const MAX_COUNT: u64 = 100;

const KNOWN: &[&str] = &[
    "allow",
    "allow_gitops",
    "approval_timeout",
    "approvers",
    "deny",
    "require_approval",
    "require_dry_run",
    "risk",
];

/// Reads `data.pawl.safety.decision`.
///
/// # Errors
/// What is wrong with it, in words: then it allows nothing.
pub(crate) fn read(value: &Value) -> Result<Decision, String> {
    let Value::Object(members) = value else {
        return Err(format!("the decision is {}, not an object", kind(value)));
    };
    if let Some(unknown) = members.keys().find(|key| !KNOWN.contains(&key.as_str())) {
        return Err(format!("the decision has a member {unknown:?}; known are {}", KNOWN.join(", ")));
    }
    let allow = match members.get("allow") {
        Some(Value::Bool(allow)) => *allow,
        Some(other) => return Err(format!("allow is {}, not a boolean", kind(other))),
        None => return Err("the decision has no allow".to_owned()),
    };
    let deny = members.get("deny").map_or(Ok(Vec::new()), messages)?;
    let require_approval = flag(members, "require_approval")?;
    let (approver_groups, count) = match members.get("approvers") {
        None | Some(Value::Null) => (Vec::new(), 0),
        Some(approvers) => read_approvers(approvers)?,
    };
    let approver_count = if require_approval { count.max(1) } else { count };
    Ok(Decision {
        allow: allow && deny.is_empty(),
        deny,
        require_approval,
        require_dry_run: flag(members, "require_dry_run")?,
        approver_groups,
        approver_count,
        approval_timeout: timeout(members.get("approval_timeout"))?,
        risk: match members.get("risk") {
            None | Some(Value::Null) => None,
            Some(Value::String(risk)) => Some(text::head(risk, MAX_MESSAGE_CHARS)),
            Some(other) => return Err(format!("risk is {}, not a string", kind(other))),
        },
        allow_gitops: flag(members, "allow_gitops")?,
    })
}

/// Reads a `deny`: a set of messages, or of objects with a `msg`; or just whether.
///
/// # Errors
/// When it is none of these.
pub(crate) fn messages(value: &Value) -> Result<Vec<String>, String> {
    let found: BTreeSet<String> = match value {
        Value::Null | Value::Bool(false) => BTreeSet::new(),
        Value::Bool(true) => BTreeSet::from(["policy denies it".to_owned()]),
        Value::Array(items) => items.iter().map(message).collect(),
        Value::Object(_) | Value::String(_) | Value::Number(_) => {
            return Err(format!("deny is {}, not a set of messages", kind(value)));
        }
    };
    Ok(found.into_iter().take(MAX_MESSAGES).collect())
}

fn message(item: &Value) -> String {
    let said = match item {
        Value::String(said) => said.clone(),
        Value::Object(members) => ["msg", "message"]
            .iter()
            .find_map(|key| members.get(*key).and_then(Value::as_str))
            .map_or_else(|| item.to_string(), str::to_owned),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => item.to_string(),
    };
    text::head(said, MAX_MESSAGE_CHARS)
}

fn flag(members: &Map<String, Value>, key: &str) -> Result<bool, String> {
    match members.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(other) => Err(format!("{key} is {}, not a boolean", kind(other))),
    }
}

fn read_approvers(value: &Value) -> Result<(Vec<String>, u32), String> {
    let Value::Object(members) = value else {
        return Err(format!("approvers is {}, not an object", kind(value)));
    };
    if let Some(unknown) = members.keys().find(|key| !["count", "groups"].contains(&key.as_str())) {
        return Err(format!("approvers has a member {unknown:?}; known are count, groups"));
    }
    let groups = match members.get("groups") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(groups)) if groups.len() <= MAX_GROUPS => {
            let name = |group: &Value| group.as_str().map(str::to_owned);
            groups.iter().map(name).collect::<Option<Vec<String>>>().ok_or("approvers.groups are strings")?
        }
        Some(_) => return Err(format!("approvers.groups is no list of at most {MAX_GROUPS} strings")),
    };
    let count = match members.get("count") {
        None | Some(Value::Null) => 1,
        Some(count) => count
            .as_u64()
            .filter(|count| (1..=MAX_COUNT).contains(count))
            .ok_or_else(|| format!("approvers.count is {count}, not a number from 1 to {MAX_COUNT}"))?,
    };
    Ok((groups, u32::try_from(count).unwrap_or(u32::MAX)))
}

fn timeout(value: Option<&Value>) -> Result<Option<Duration>, String> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(written)) => match written.parse::<Duration>() {
            Ok(timeout) if timeout > Duration::default() => Ok(Some(timeout)),
            Ok(_) => Err(format!("approval_timeout is {written:?}: it must be longer than nothing")),
            Err(problem) => Err(format!("approval_timeout: {problem}")),
        },
        Some(other) => Err(format!("approval_timeout is {}, not a duration as \"30m\"", kind(other))),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_whole_decision_is_read() {
        let decision = read(&json!({
            "allow": true, "deny": [], "require_approval": true, "require_dry_run": true,
            "approvers": {"groups": ["sre"], "count": 2}, "approval_timeout": "30m", "risk": "high",
            "allow_gitops": true,
        }))
        .unwrap();
        assert!(
            decision.allow && decision.require_approval && decision.require_dry_run && decision.allow_gitops
        );
        assert_eq!(
            (decision.approver_groups.as_slice(), decision.approver_count),
            (["sre".to_owned()].as_slice(), 2)
        );
        assert_eq!(decision.approval_timeout, Some(Duration::from_mins(30)));
        assert_eq!(decision.risk.as_deref(), Some("high"));
    }

    #[test]
    fn what_denies_is_not_allowed_whatever_allow_says() {
        let decision = read(&json!({"allow": true, "deny": ["b", "a"]})).unwrap();
        assert!(!decision.allow);
        assert_eq!(decision.deny, ["a", "b"]);
    }

    #[test]
    fn a_required_approval_needs_at_least_one_person() {
        assert_eq!(read(&json!({"allow": true, "require_approval": true})).unwrap().approver_count, 1);
        assert_eq!(read(&json!({"allow": true})).unwrap().approver_count, 0);
    }

    #[test]
    fn whatever_is_not_what_it_should_be_is_an_error_and_never_an_answer() {
        for (value, word) in [
            (json!(true), "not an object"),
            (json!({}), "no allow"),
            (json!({"allow": "yes"}), "allow is a string"),
            (json!({"allow": 1}), "allow is a number"),
            (json!({"allow": null}), "allow is null"),
            (json!({"allow": true, "require_aproval": true}), "require_aproval"),
            (json!({"allow": true, "require_approval": "no"}), "require_approval is a string"),
            (json!({"allow": true, "deny": "no"}), "deny is a string"),
            (json!({"allow": true, "deny": {"a": 1}}), "deny is an object"),
            (json!({"allow": true, "approvers": ["sre"]}), "approvers is a list"),
            (json!({"allow": true, "approvers": {"group": "sre"}}), "group"),
            (json!({"allow": true, "approvers": {"groups": [1]}}), "strings"),
            (json!({"allow": true, "approvers": {"count": 0}}), "from 1 to"),
            (json!({"allow": true, "approvers": {"count": -1}}), "from 1 to"),
            (json!({"allow": true, "approval_timeout": "soon"}), "approval_timeout"),
            (json!({"allow": true, "approval_timeout": "0s"}), "longer than nothing"),
            (json!({"allow": true, "approval_timeout": 30}), "not a duration"),
            (json!({"allow": true, "risk": 3}), "risk is a number"),
        ] {
            let problem = read(&value).unwrap_err();
            assert!(problem.contains(word), "{value}: {problem}");
        }
    }

    #[test]
    fn plain_denials_are_messages_of_any_shape() {
        assert_eq!(messages(&json!(["b", {"msg": "a"}, {"message": "c"}, 7])).unwrap(), ["7", "a", "b", "c"]);
        assert_eq!(messages(&json!(false)).unwrap(), [""; 0]);
        assert_eq!(messages(&json!(true)).unwrap().len(), 1);
    }
}
