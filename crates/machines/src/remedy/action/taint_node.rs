//! `taint_node`: adds a taint to a node.

use pawl_api::k8s::NODE;
use pawl_api::meta::{Duration, names};
use pawl_api::remedy::actions::{self, Action, ActionParameters, TaintEffect};
use serde_json::{Value, json};

use super::course::Style;
use super::definition::{Act, Context, Facts, Problem, Rule, Scope, UndoKind};
use super::kept::{Kept, Restore};
use super::seen::{Place, Seen};

#[derive(Debug)]
pub(super) struct TaintNode;

impl Act for TaintNode {
    type Parameters = actions::TaintNode;
    const ACTION: Action = Action::TaintNode;
    const FACTS: Facts = Facts {
        about: "Adds a taint to a node, or gives one of the same key and effect another value. With `NoExecute`, pods that \
                do not tolerate it are evicted at once, whatever their disruption budgets say.",
        done: "tainted",
        timeout: Duration::from_mins(5),
        idempotent: true,
        dry_runnable: true,
        scope: Scope::Cluster,
        undo: UndoKind::Action,
        rules: &[Rule { group: "", resources: &["nodes"], verbs: &["get", "patch"] }],
    };

    fn parameters(all: &ActionParameters) -> Option<&Self::Parameters> {
        all.taint_node.as_ref()
    }

    fn example() -> Value {
        json!({"node": "worker-1", "key": "example.com/broken-disk", "value": "sda", "effect": "NoSchedule"})
    }

    fn check(given: &Self::Parameters) -> Result<(), Problem> {
        check_key(&given.key)?;
        match given.value.as_deref() {
            Some(value) if !names::is_label_value(value) => Err(Problem::new(
                "value",
                format!(
                    "{value:?} is no label value: at most 63 of [A-Za-z0-9_.-], alphanumeric at both ends"
                ),
            )),
            _ => Ok(()),
        }
    }

    fn target(given: &Self::Parameters) -> Option<Place> {
        Some(Place::cluster(NODE, &given.node))
    }

    fn patch(given: &Self::Parameters, node: &Value, _: &Seen) -> Result<Option<Value>, String> {
        let mut wanted = json!({"key": given.key, "effect": given.effect});
        if let (Some(wanted), Some(value)) = (wanted.as_object_mut(), &given.value) {
            wanted.insert("value".to_owned(), value.as_str().into());
        }
        let (same, mut taints): (Vec<Value>, Vec<Value>) =
            all(node).into_iter().partition(|taint| is(taint, &given.key, Some(given.effect)));
        if same.iter().any(|taint| value(taint) == given.value.as_deref().unwrap_or_default()) {
            return Ok(None);
        }
        taints.push(wanted);
        Ok(Some(json!({"spec": {"taints": taints}})))
    }

    fn restored(kept: &Kept, place: &Place, node: &Value) -> Option<(Style, Value)> {
        restored(kept, place, node)
    }

    fn restore(given: &Self::Parameters, node: &Value) -> Restore {
        restore(node, &given.key)
    }

    fn words(given: &Self::Parameters, node: &Value, _: &Seen) -> String {
        words(node, &given.key)
    }

    fn undo(_: &Context<'_>, given: &Self::Parameters, seen: &Seen, _: &Seen) -> Option<(Action, Value)> {
        let node = seen.object(&Self::target(given)?)?;
        let was = all(node).into_iter().find(|taint| is(taint, &given.key, Some(given.effect)));
        Some(match was {
            Some(taint) => (Action::TaintNode, taint_of(&given.node, &taint)),
            None => {
                let undo = json!({"node": given.node, "key": given.key, "effect": given.effect});
                (Action::UntaintNode, undo)
            }
        })
    }
}

/// The taints of a node.
pub(super) fn all(node: &Value) -> Vec<Value> {
    node.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default()
}

pub(super) fn is(taint: &Value, key: &str, effect: Option<TaintEffect>) -> bool {
    let text = |field: &str| taint.get(field).and_then(Value::as_str);
    text("key") == Some(key) && effect.is_none_or(|effect| taint.get("effect") == Some(&json!(effect)))
}

fn value(taint: &Value) -> &str {
    taint.get("value").and_then(Value::as_str).unwrap_or_default()
}

/// The parameters of `taint_node` that make this taint.
pub(super) fn taint_of(node: &str, taint: &Value) -> Value {
    let mut parameters = json!({"node": node, "key": taint.get("key"), "effect": taint.get("effect")});
    if let (Some(parameters), false) = (parameters.as_object_mut(), value(taint).is_empty()) {
        parameters.insert("value".to_owned(), value(taint).into());
    }
    parameters
}

/// Only the taints of one key: others come and go with the node's health.
pub(super) fn restore(node: &Value, key: &str) -> Restore {
    let mut taints: Vec<Value> = all(node).into_iter().filter(|taint| is(taint, key, None)).collect();
    for taint in taints.iter_mut().filter_map(Value::as_object_mut) {
        taint.remove("timeAdded");
    }
    Restore::Own(json!({"key": key, "taints": taints}))
}

/// The taints of the kept key as they were, among those that are there now.
pub(super) fn restored(kept: &Kept, place: &Place, node: &Value) -> Option<(Style, Value)> {
    let Restore::Own(was) = &kept.of(place)?.restore else { return None };
    let key = was.get("key").and_then(Value::as_str)?;
    let mut taints: Vec<Value> = all(node).into_iter().filter(|taint| !is(taint, key, None)).collect();
    taints.extend(was.get("taints").and_then(Value::as_array)?.iter().cloned());
    let taints = if taints.is_empty() { Value::Null } else { taints.into() };
    Some((Style::Merge, json!({"spec": {"taints": taints}})))
}

pub(super) fn words(node: &Value, key: &str) -> String {
    let one = |taint: Value| {
        let effect = taint.get("effect").and_then(Value::as_str).unwrap_or_default().to_owned();
        match value(&taint) {
            "" => format!("{key}:{effect}"),
            value => format!("{key}={value}:{effect}"),
        }
    };
    let taints: Vec<String> = all(node).into_iter().filter(|taint| is(taint, key, None)).map(one).collect();
    if taints.is_empty() { format!("no taint {key}") } else { format!("taints: {}", taints.join(", ")) }
}

/// A name, or `prefix/name`.
pub(super) fn check_key(key: &str) -> Result<(), Problem> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let good = prefix.is_none_or(names::is_subdomain) && !name.is_empty() && names::is_label_value(name);
    let problem = || {
        let why = format!(
            "{key:?} is no key of a taint: a name of at most 63 of [A-Za-z0-9_.-], or a DNS name, / and one"
        );
        Problem::new("key", why)
    };
    good.then_some(()).ok_or_else(problem)
}

#[cfg(test)]
mod tests {
    use super::super::course::Course;
    use super::super::kept::Undo;
    use super::super::testing::{check, course, given, patch, undo, words};
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
    fn node(taints: Value) -> Value {
        json!({"kind": "Node", "metadata": {"name": "worker-1"}, "spec": {"taints": taints}})
    }

    fn asking(value: &str) -> super::super::Order {
        given("taint_node", json!({"node": "worker-1", "key": "k", "value": value, "effect": "NoSchedule"}))
    }

    #[test]
    fn a_taint_joins_those_that_are_there_and_goes_again() {
        let other = json!({"key": "o", "effect": "NoExecute"});
        let (_, body) = patch(&asking("v"), &[node(json!([other]))]);
        let mine = json!({"key": "k", "value": "v", "effect": "NoSchedule"});
        assert_eq!(body, json!({"spec": {"taints": [other, mine]}}));
        let back = json!({"node": "worker-1", "key": "k", "effect": "NoSchedule"});
        assert_eq!(undo(&asking("v"), &[node(json!([other]))]), Undo::action(Action::UntaintNode, back));
        assert_eq!(words(&asking("v"), &[node(json!([other]))]), ["no taint k"]);
    }

    #[test]
    fn one_of_the_same_key_and_effect_gets_another_value_and_its_old_one_back() {
        let before = node(json!([{"key": "k", "value": "old", "effect": "NoSchedule"}]));
        let (_, body) = patch(&asking("new"), std::slice::from_ref(&before));
        assert_eq!(body["spec"]["taints"].as_array().unwrap().len(), 1);
        let back = json!({"node": "worker-1", "key": "k", "value": "old", "effect": "NoSchedule"});
        assert_eq!(
            undo(&asking("new"), std::slice::from_ref(&before)),
            Undo::action(Action::TaintNode, back)
        );
        assert!(matches!(course(&asking("old"), &[before]), Course::Done(_)));
    }

    #[test]
    fn keys_and_values_that_no_node_takes_are_told() {
        for key in ["", "/x", "a/b/c", "-a", "a b", "UPPER.example/x"] {
            let problem = check("taint_node", json!({"node": "n", "key": key, "effect": "NoExecute"}));
            assert_eq!(problem.unwrap_err().field, "taintNode.key", "{key}");
        }
        let value = json!({"node": "n", "key": "example.com/Key_1", "value": "a b", "effect": "NoExecute"});
        assert_eq!(check("taint_node", value).unwrap_err().field, "taintNode.value");
    }
}
