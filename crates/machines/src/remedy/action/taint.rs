//! `taint_node` and `untaint_node`: add a taint to a node, or remove one.

use pawl_api::k8s::NODE;
use pawl_api::meta::names;
use pawl_api::remedy::Action;
use pawl_api::remedy::actions::{PatchType, TaintEffect};
use serde_json::{Value, json};

use super::definition::{Act, Context, Definition, Problem, UndoKind};
use super::kept::{Kept, Restore};
use super::seen::{Place, Seen};

pub(super) const TAINT: Definition = Definition {
    about: "Adds a taint to a node, or gives one of the same key and effect another value. With `NoExecute`, pods that \
            do not tolerate it are evicted at once, whatever their disruption budgets say.",
    done: "tainted",
    undo: UndoKind::Action,
    kinds: &[NODE],
    example: || json!({"node": "worker-1", "key": "example.com/broken-disk", "value": "sda", "effect": "NoSchedule"}),
    ..Definition::new(Action::TaintNode, |all| {
        let given = all.taint_node.as_ref()?;
        let value = Some(given.value.as_deref().unwrap_or_default());
        Some(Box::new(Taint { node: &given.node, key: &given.key, effect: Some(given.effect), value }))
    })
};

pub(super) const UNTAINT: Definition = Definition {
    about: "Removes the taints of one key from a node: those of one effect, or all of them.",
    done: "untainted",
    undo: UndoKind::Action,
    kinds: &[NODE],
    example: || json!({"node": "worker-1", "key": "example.com/broken-disk", "effect": "NoSchedule"}),
    ..Definition::new(Action::UntaintNode, |all| {
        let given = all.untaint_node.as_ref()?;
        Some(Box::new(Taint { node: &given.node, key: &given.key, effect: given.effect, value: None }))
    })
};

struct Taint<'a> {
    node: &'a str,
    key: &'a str,
    /// `None`: any.
    effect: Option<TaintEffect>,
    /// The value that the taint shall have; `None`: there shall be no such taint.
    value: Option<&'a str>,
}

impl Taint<'_> {
    fn is(&self, taint: &Value) -> bool {
        is(taint, self.key) && self.effect.is_none_or(|effect| taint.get("effect") == Some(&json!(effect)))
    }
}

impl Act for Taint<'_> {
    fn check(&self) -> Result<(), Problem> {
        check_key(self.key)?;
        match self.value {
            Some(value) if !names::is_label_value(value) => Err(Problem::new(
                "value",
                format!(
                    "{value:?} is no label value: at most 63 of [A-Za-z0-9_.-], alphanumeric at both ends"
                ),
            )),
            _ => Ok(()),
        }
    }

    fn place(&self) -> Option<Place> {
        Some(Place::cluster(NODE, self.node))
    }

    fn patch(&self, _: &Context<'_>, node: &Value, _: &Seen) -> Result<Option<Value>, String> {
        let (same, mut taints): (Vec<Value>, Vec<Value>) =
            all(node).into_iter().partition(|taint| self.is(taint));
        let done = match self.value {
            Some(wanted) => same.iter().any(|taint| value(taint) == wanted),
            None => same.is_empty(),
        };
        if let Some(wanted) = self.value {
            taints.push(with_value(json!({"key": self.key, "effect": self.effect}), wanted));
        }
        Ok((!done).then(|| patch(taints)))
    }

    /// The taints of the kept key as they were, among those that are there now.
    fn restored(&self, kept: &Kept, place: &Place, node: &Value) -> Option<(PatchType, Value)> {
        let Restore::Own(was) = &kept.of(place)?.restore else { return None };
        let key = was.get("key").and_then(Value::as_str)?;
        let mut taints: Vec<Value> = all(node).into_iter().filter(|taint| !is(taint, key)).collect();
        taints.extend(was.get("taints").and_then(Value::as_array)?.iter().cloned());
        Some((PatchType::Merge, patch(taints)))
    }

    /// Only the taints of one key: others come and go with the node's health.
    fn restore(&self, node: &Value) -> Restore {
        let mut taints: Vec<Value> = all(node).into_iter().filter(|taint| is(taint, self.key)).collect();
        for taint in taints.iter_mut().filter_map(Value::as_object_mut) {
            taint.remove("timeAdded");
        }
        Restore::Own(json!({"key": self.key, "taints": taints}))
    }

    fn words(&self, node: &Value, _: &Seen) -> String {
        let key = self.key;
        let one = |taint: Value| {
            let effect = taint.get("effect").and_then(Value::as_str).unwrap_or_default().to_owned();
            match value(&taint) {
                "" => format!("{key}:{effect}"),
                value => format!("{key}={value}:{effect}"),
            }
        };
        let taints: Vec<String> = all(node).into_iter().filter(|taint| is(taint, key)).map(one).collect();
        if taints.is_empty() { format!("no taint {key}") } else { format!("taints: {}", taints.join(", ")) }
    }

    fn undo(&self, seen: &Seen, _: &Seen) -> Option<(Action, Value)> {
        let same: Vec<Value> =
            all(seen.object(&self.place()?)?).into_iter().filter(|taint| self.is(taint)).collect();
        match &*same {
            // It was not there, and is not there again.
            [] => {
                let mut untaint = json!({"node": self.node, "key": self.key});
                if let (Some(untaint), Some(effect)) = (untaint.as_object_mut(), self.effect) {
                    untaint.insert("effect".to_owned(), json!(effect));
                }
                Some((Action::UntaintNode, untaint))
            }
            [one] => {
                let taint = json!({"node": self.node, "key": one.get("key"), "effect": one.get("effect")});
                Some((Action::TaintNode, with_value(taint, value(one))))
            }
            _ => None,
        }
    }
}

/// The taints of a node.
fn all(node: &Value) -> Vec<Value> {
    node.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default()
}

fn is(taint: &Value, key: &str) -> bool {
    taint.get("key").and_then(Value::as_str) == Some(key)
}

fn value(taint: &Value) -> &str {
    taint.get("value").and_then(Value::as_str).unwrap_or_default()
}

/// A taint, or the parameters of one, with its value, where it has one.
fn with_value(mut taint: Value, value: &str) -> Value {
    if let (Some(taint), false) = (taint.as_object_mut(), value.is_empty()) {
        taint.insert("value".to_owned(), value.into());
    }
    taint
}

fn patch(taints: Vec<Value>) -> Value {
    let taints = if taints.is_empty() { Value::Null } else { taints.into() };
    json!({"spec": {"taints": taints}})
}

/// A name, or `prefix/name`.
fn check_key(key: &str) -> Result<(), Problem> {
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
    use super::super::testing::{asked_again, check, course, given, kept, only_patch, patch, undo, words};
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
    fn node(taints: Value) -> Value {
        json!({"kind": "Node", "metadata": {"name": "worker-1", "uid": "u"}, "spec": {"taints": taints}})
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

    fn both() -> Value {
        json!([{"key": "k", "effect": "NoSchedule"}, {"key": "k", "value": "v", "effect": "NoExecute"}])
    }

    #[test]
    fn one_effect_goes_and_comes_back_as_it_was() {
        let order = given("untaint_node", json!({"node": "worker-1", "key": "k", "effect": "NoExecute"}));
        let (_, body) = patch(&order, &[node(both())]);
        assert_eq!(body, json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}));
        let back = json!({"node": "worker-1", "key": "k", "value": "v", "effect": "NoExecute"});
        assert_eq!(undo(&order, &[node(both())]), Undo::action(Action::TaintNode, back));
        assert!(matches!(course(&order, &[node(json!([]))]), Course::Done(_)));
    }

    #[test]
    fn several_at_once_are_put_back_beside_those_that_came_since() {
        let order = given("untaint_node", json!({"node": "worker-1", "key": "k"}));
        assert_eq!(patch(&order, &[node(both())]).1, json!({"spec": {"taints": null}}));
        assert_eq!(undo(&order, &[node(both())]), Undo::Restore);
        let kept = kept(&order, &[node(both())]);
        let since = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"});
        let course =
            asked_again(&order, &[node(json!([since]))], Some(&kept), |definition, context, seen| {
                definition.course(context, seen)
            });
        let Course::Finish(writes) = course else { panic!("{course:?}") };
        let mut taints = vec![since];
        taints.extend(both().as_array().unwrap().iter().cloned());
        assert_eq!(only_patch(&writes).1, json!({"spec": {"taints": taints}}));
    }
}
