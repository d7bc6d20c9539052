//! `scale_statefulset`: sets the replicas of a StatefulSet.

use pawl_api::k8s::STATEFUL_SET;
use pawl_api::meta::Duration;
use pawl_api::remedy::actions::{self, Action, ActionParameters};
use serde_json::{Value, json};

use super::definition::{Act, Context, Facts, Problem, Rule, Scope, UndoKind};
use super::kept::Restore;
use super::seen::{Place, Seen};
use super::workload;

#[derive(Debug)]
pub(super) struct ScaleStatefulset;

impl Act for ScaleStatefulset {
    type Parameters = actions::ScaleStatefulset;
    const ACTION: Action = Action::ScaleStatefulset;
    const FACTS: Facts = Facts {
        about: "Sets `spec.replicas` of a StatefulSet. Volumes of pods that go are kept or deleted as the StatefulSet \
                itself says.",
        done: "scaled",
        timeout: Duration::from_mins(5),
        idempotent: true,
        dry_runnable: true,
        scope: Scope::Namespaced,
        undo: UndoKind::Action,
        rules: &[Rule { group: "apps", resources: &["statefulsets"], verbs: &["get", "patch"] }],
    };

    fn parameters(all: &ActionParameters) -> Option<&Self::Parameters> {
        all.scale_statefulset.as_ref()
    }

    fn example() -> Value {
        json!({"statefulset": "db", "namespace": "shop", "replicas": 3})
    }

    fn check(given: &Self::Parameters) -> Result<(), Problem> {
        workload::check_replicas("replicas", given.replicas, 0)
    }

    fn target(given: &Self::Parameters) -> Option<Place> {
        Some(Place::namespaced(STATEFUL_SET, &given.namespace, &given.statefulset))
    }

    fn patch(given: &Self::Parameters, object: &Value, _: &Seen) -> Result<Option<Value>, String> {
        Ok(workload::scale(object, given.replicas))
    }

    fn restore(_: &Self::Parameters, object: &Value) -> Restore {
        workload::restore_replicas(object)
    }

    fn words(_: &Self::Parameters, object: &Value, _: &Seen) -> String {
        format!("replicas: {}", workload::replicas(object))
    }

    fn undo(_: &Context<'_>, given: &Self::Parameters, seen: &Seen, _: &Seen) -> Option<(Action, Value)> {
        let replicas = workload::undoable_replicas(seen.object(&Self::target(given)?)?)?;
        let undo =
            json!({"statefulset": given.statefulset, "namespace": given.namespace, "replicas": replicas});
        Some((Action::ScaleStatefulset, undo))
    }
}

#[cfg(test)]
mod tests {
    use super::super::course::Style;
    use super::super::kept::Undo;
    use super::super::testing::{check, given, patch, undo};
    use super::*;

    #[test]
    fn replicas_are_set_and_set_back_and_none_said_is_one() {
        let order = given("scale_statefulset", ScaleStatefulset::example());
        let one = json!({"kind": "StatefulSet", "metadata": {"name": "db", "namespace": "shop"}, "spec": {}});
        assert_eq!(
            patch(&order, std::slice::from_ref(&one)),
            (Style::Merge, json!({"spec": {"replicas": 3}}))
        );
        let back = json!({"statefulset": "db", "namespace": "shop", "replicas": 1});
        assert_eq!(undo(&order, &[one]), Undo::action(Action::ScaleStatefulset, back));
        assert!(
            check("scale_statefulset", json!({"statefulset": "d", "namespace": "n", "replicas": -1}))
                .is_err()
        );
    }
}
