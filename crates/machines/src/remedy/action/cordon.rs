//! `cordon_node` and `uncordon_node`: let no new pods onto a node, or let them again.

use pawl_api::k8s::NODE;
use pawl_api::remedy::Action;
use serde_json::{Value, json};

use super::definition::{Act, Context, Definition, UndoKind};
use super::kept::Restore;
use super::seen::{Place, Seen};

pub(super) const CORDON: Definition = Definition {
    about: "Sets `spec.unschedulable` of a node: new pods go elsewhere, those that are there stay.",
    done: "cordoned",
    undo: UndoKind::Action,
    kinds: &[NODE],
    example: || json!({"node": "worker-1"}),
    ..Definition::new(Action::CordonNode, |all| {
        Some(Box::new(Cordon { node: &all.cordon_node.as_ref()?.node, unschedulable: true }))
    })
};

pub(super) const UNCORDON: Definition = Definition {
    about: "Removes `spec.unschedulable` of a node: pods may come again.",
    done: "uncordoned",
    undo: UndoKind::Action,
    kinds: &[NODE],
    example: || json!({"node": "worker-1"}),
    ..Definition::new(Action::UncordonNode, |all| {
        Some(Box::new(Cordon { node: &all.uncordon_node.as_ref()?.node, unschedulable: false }))
    })
};

struct Cordon<'a> {
    node: &'a str,
    unschedulable: bool,
}

impl Act for Cordon<'_> {
    fn place(&self) -> Option<Place> {
        Some(Place::cluster(NODE, self.node))
    }

    fn patch(&self, _: &Context<'_>, node: &Value, _: &Seen) -> Result<Option<Value>, String> {
        Ok((is_cordoned(node) != self.unschedulable).then(|| unschedulable(self.unschedulable)))
    }

    fn restore(&self, node: &Value) -> Restore {
        Restore::Merge(unschedulable(is_cordoned(node)))
    }

    fn words(&self, node: &Value, _: &Seen) -> String {
        words(node)
    }

    /// The action that restores the node: cordon if it was cordoned before, otherwise uncordon.
    fn undo(&self, seen: &Seen, _: &Seen) -> Option<(Action, Value)> {
        let node = seen.object(&self.place()?)?;
        let action = if is_cordoned(node) { Action::CordonNode } else { Action::UncordonNode };
        Some((action, json!({"node": self.node})))
    }
}

pub(super) fn is_cordoned(node: &Value) -> bool {
    node.pointer("/spec/unschedulable").and_then(Value::as_bool) == Some(true)
}

/// The merge patch. Nodes that take pods do not say so.
fn unschedulable(unschedulable: bool) -> Value {
    json!({"spec": {"unschedulable": unschedulable.then_some(true)}})
}

pub(super) fn words(node: &Value) -> String {
    format!("unschedulable: {}", is_cordoned(node))
}

#[cfg(test)]
mod tests {
    use super::super::course::Course;
    use super::super::kept::Undo;
    use super::super::testing::{course, given, patch, undo, words};
    use super::*;
    use pawl_api::remedy::actions::PatchType;

    #[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
    fn node(spec: Value) -> Value {
        json!({"kind": "Node", "metadata": {"name": "worker-1"}, "spec": spec})
    }

    #[test]
    fn a_node_is_cordoned_once_and_uncordoned_to_take_it_back() {
        let order = given("cordon_node", (CORDON.example)());
        let (style, body) = patch(&order, &[node(json!({}))]);
        assert_eq!((style, body), (PatchType::Merge, json!({"spec": {"unschedulable": true}})));
        assert_eq!(words(&order, &[node(json!({}))]), ["unschedulable: false"]);
        let back = Undo::action(Action::UncordonNode, json!({"node": "worker-1"}));
        assert_eq!(undo(&order, &[node(json!({}))]), back);
    }

    #[test]
    fn what_was_cordoned_before_stays_so_when_it_is_taken_back() {
        let order = given("cordon_node", (CORDON.example)());
        let cordoned = node(json!({"unschedulable": true}));
        assert!(matches!(course(&order, std::slice::from_ref(&cordoned)), Course::Done(_)));
        assert_eq!(undo(&order, &[cordoned]), Undo::action(Action::CordonNode, json!({"node": "worker-1"})));
    }

    #[test]
    fn a_cordoned_node_is_opened_and_cordoned_to_take_it_back() {
        let order = given("uncordon_node", (UNCORDON.example)());
        let cordoned = node(json!({"unschedulable": true}));
        assert_eq!(
            patch(&order, std::slice::from_ref(&cordoned)).1,
            json!({"spec": {"unschedulable": null}})
        );
        assert_eq!(undo(&order, &[cordoned]), Undo::action(Action::CordonNode, json!({"node": "worker-1"})));
        assert!(matches!(course(&order, &[node(json!({}))]), Course::Done(_)));
    }
}
