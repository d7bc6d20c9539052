//! `uncordon_node`: lets pods onto a node again.

use pawl_api::k8s::NODE;
use pawl_api::meta::Duration;
use pawl_api::remedy::actions::{self, Action, ActionParameters};
use serde_json::{Value, json};

use super::cordon_node::{self, is_cordoned};
use super::definition::{Act, Context, Facts, Rule, Scope, UndoKind};
use super::kept::Restore;
use super::seen::{Place, Seen};

#[derive(Debug)]
pub(super) struct UncordonNode;

impl Act for UncordonNode {
    type Parameters = actions::UncordonNode;
    const ACTION: Action = Action::UncordonNode;
    const FACTS: Facts = Facts {
        about: "Removes `spec.unschedulable` of a node: pods may come again.",
        done: "uncordoned",
        timeout: Duration::from_mins(5),
        idempotent: true,
        dry_runnable: true,
        scope: Scope::Cluster,
        undo: UndoKind::Action,
        rules: &[Rule { group: "", resources: &["nodes"], verbs: &["get", "patch"] }],
    };

    fn parameters(all: &ActionParameters) -> Option<&Self::Parameters> {
        all.uncordon_node.as_ref()
    }

    fn example() -> Value {
        json!({"node": "worker-1"})
    }

    fn target(given: &Self::Parameters) -> Option<Place> {
        Some(Place::cluster(NODE, &given.node))
    }

    fn patch(_: &Self::Parameters, node: &Value, _: &Seen) -> Result<Option<Value>, String> {
        Ok(is_cordoned(node).then(|| json!({"spec": {"unschedulable": null}})))
    }

    fn restore(_: &Self::Parameters, node: &Value) -> Restore {
        cordon_node::restore(node)
    }

    fn words(_: &Self::Parameters, node: &Value, _: &Seen) -> String {
        cordon_node::words(node)
    }

    fn undo(_: &Context<'_>, given: &Self::Parameters, seen: &Seen, _: &Seen) -> Option<(Action, Value)> {
        cordon_node::undo(&given.node, seen.object(&Self::target(given)?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::course::Course;
    use super::super::kept::Undo;
    use super::super::testing::{course, given, patch, undo};
    use super::*;

    #[test]
    fn a_cordoned_node_is_opened_and_cordoned_to_take_it_back() {
        let order = given("uncordon_node", UncordonNode::example());
        let node = |spec: Value| json!({"kind": "Node", "metadata": {"name": "worker-1"}, "spec": spec});
        let cordoned = node(json!({"unschedulable": true}));
        assert_eq!(
            patch(&order, std::slice::from_ref(&cordoned)).1,
            json!({"spec": {"unschedulable": null}})
        );
        assert_eq!(undo(&order, &[cordoned]), Undo::action(Action::CordonNode, json!({"node": "worker-1"})));
        assert!(matches!(course(&order, &[node(json!({}))]), Course::Done(_)));
    }
}
