//! `untaint_node`: removes a taint from a node.

use pawl_api::k8s::NODE;
use pawl_api::meta::Duration;
use pawl_api::remedy::actions::{self, Action, ActionParameters};
use serde_json::{Value, json};

use super::course::Style;
use super::definition::{Act, Context, Facts, Problem, Rule, Scope, UndoKind};
use super::kept::{Kept, Restore};
use super::seen::{Place, Seen};
use super::taint_node;

#[derive(Debug)]
pub(super) struct UntaintNode;

impl Act for UntaintNode {
    type Parameters = actions::UntaintNode;
    const ACTION: Action = Action::UntaintNode;
    const FACTS: Facts = Facts {
        about: "Removes the taints of one key from a node: those of one effect, or all of them.",
        done: "untainted",
        timeout: Duration::from_mins(5),
        idempotent: true,
        dry_runnable: true,
        scope: Scope::Cluster,
        undo: UndoKind::Action,
        rules: &[Rule { group: "", resources: &["nodes"], verbs: &["get", "patch"] }],
    };

    fn parameters(all: &ActionParameters) -> Option<&Self::Parameters> {
        all.untaint_node.as_ref()
    }

    fn example() -> Value {
        json!({"node": "worker-1", "key": "example.com/broken-disk", "effect": "NoSchedule"})
    }

    fn check(given: &Self::Parameters) -> Result<(), Problem> {
        taint_node::check_key(&given.key)
    }

    fn target(given: &Self::Parameters) -> Option<Place> {
        Some(Place::cluster(NODE, &given.node))
    }

    fn patch(given: &Self::Parameters, node: &Value, _: &Seen) -> Result<Option<Value>, String> {
        let all = taint_node::all(node);
        let left: Vec<Value> =
            all.iter().filter(|taint| !taint_node::is(taint, &given.key, given.effect)).cloned().collect();
        if left.len() == all.len() {
            return Ok(None);
        }
        let left = if left.is_empty() { Value::Null } else { left.into() };
        Ok(Some(json!({"spec": {"taints": left}})))
    }

    fn restored(kept: &Kept, place: &Place, node: &Value) -> Option<(Style, Value)> {
        taint_node::restored(kept, place, node)
    }

    fn restore(given: &Self::Parameters, node: &Value) -> Restore {
        taint_node::restore(node, &given.key)
    }

    fn words(given: &Self::Parameters, node: &Value, _: &Seen) -> String {
        taint_node::words(node, &given.key)
    }

    fn undo(_: &Context<'_>, given: &Self::Parameters, seen: &Seen, _: &Seen) -> Option<(Action, Value)> {
        let all = taint_node::all(seen.object(&Self::target(given)?)?);
        let gone: Vec<&Value> =
            all.iter().filter(|taint| taint_node::is(taint, &given.key, given.effect)).collect();
        match *gone {
            // It was not there, and is not there again.
            [] => Some((Action::UntaintNode, serde_json::to_value(given).ok()?)),
            [one] => Some((Action::TaintNode, taint_node::taint_of(&given.node, one))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::course::Course;
    use super::super::kept::Undo;
    use super::super::testing::{asked_again, course, given, kept, only_patch, patch, undo};
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
    fn node(taints: Value) -> Value {
        json!({"kind": "Node", "metadata": {"name": "worker-1", "uid": "u"}, "spec": {"taints": taints}})
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
