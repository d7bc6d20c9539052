//! `cordon_node`: lets no new pods onto a node.

use pawl_api::k8s::NODE;
use pawl_api::meta::Duration;
use pawl_api::remedy::actions::{self, Action, ActionParameters};
use serde_json::{Value, json};

use super::definition::{Act, Context, Facts, Rule, Scope, UndoKind};
use super::kept::Restore;
use super::seen::{Place, Seen};

#[derive(Debug)]
pub(super) struct CordonNode;

impl Act for CordonNode {
    type Parameters = actions::CordonNode;
    const ACTION: Action = Action::CordonNode;
    const FACTS: Facts = Facts {
        about: "Sets `spec.unschedulable` of a node: new pods go elsewhere, those that are there stay.",
        done: "cordoned",
        timeout: Duration::from_mins(5),
        idempotent: true,
        dry_runnable: true,
        scope: Scope::Cluster,
        undo: UndoKind::Action,
        rules: &[Rule { group: "", resources: &["nodes"], verbs: &["get", "patch"] }],
    };

    fn parameters(all: &ActionParameters) -> Option<&Self::Parameters> {
        all.cordon_node.as_ref()
    }

    fn example() -> Value {
        json!({"node": "worker-1"})
    }

    fn target(given: &Self::Parameters) -> Option<Place> {
        Some(Place::cluster(NODE, &given.node))
    }

    fn patch(_: &Self::Parameters, node: &Value, _: &Seen) -> Result<Option<Value>, String> {
        Ok((!is_cordoned(node)).then(|| json!({"spec": {"unschedulable": true}})))
    }

    fn restore(_: &Self::Parameters, node: &Value) -> Restore {
        restore(node)
    }

    fn words(_: &Self::Parameters, node: &Value, _: &Seen) -> String {
        words(node)
    }

    fn undo(_: &Context<'_>, given: &Self::Parameters, seen: &Seen, _: &Seen) -> Option<(Action, Value)> {
        undo(&given.node, seen.object(&Self::target(given)?)?)
    }
}

pub(super) fn is_cordoned(node: &Value) -> bool {
    node.pointer("/spec/unschedulable").and_then(Value::as_bool) == Some(true)
}

pub(super) fn restore(node: &Value) -> Restore {
    // Nodes that take pods do not say so.
    let was = if is_cordoned(node) { Value::Bool(true) } else { Value::Null };
    Restore::Merge(json!({"spec": {"unschedulable": was}}))
}

pub(super) fn words(node: &Value) -> String {
    format!("unschedulable: {}", is_cordoned(node))
}

/// What makes a node what it was: it may have been so before.
pub(super) fn undo(name: &str, node: &Value) -> Option<(Action, Value)> {
    let action = if is_cordoned(node) { Action::CordonNode } else { Action::UncordonNode };
    Some((action, json!({"node": name})))
}

#[cfg(test)]
mod tests {
    use super::super::course::{Course, Style};
    use super::super::kept::Undo;
    use super::super::testing::{course, given, patch, undo, words};
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
    fn node(spec: Value) -> Value {
        json!({"kind": "Node", "metadata": {"name": "worker-1"}, "spec": spec})
    }

    #[test]
    fn a_node_is_cordoned_once_and_uncordoned_to_take_it_back() {
        let order = given("cordon_node", CordonNode::example());
        let (style, body) = patch(&order, &[node(json!({}))]);
        assert_eq!((style, body), (Style::Merge, json!({"spec": {"unschedulable": true}})));
        assert_eq!(words(&order, &[node(json!({}))]), ["unschedulable: false"]);
        let back = Undo::action(Action::UncordonNode, json!({"node": "worker-1"}));
        assert_eq!(undo(&order, &[node(json!({}))]), back);
    }

    #[test]
    fn what_was_cordoned_before_stays_so_when_it_is_taken_back() {
        let order = given("cordon_node", CordonNode::example());
        let cordoned = node(json!({"unschedulable": true}));
        assert!(matches!(course(&order, std::slice::from_ref(&cordoned)), Course::Done(_)));
        assert_eq!(undo(&order, &[cordoned]), Undo::action(Action::CordonNode, json!({"node": "worker-1"})));
    }
}
