//! `scale_deployment`: sets the replicas of a Deployment.

use pawl_api::k8s::DEPLOYMENT;
use pawl_api::meta::Duration;
use pawl_api::remedy::actions::{self, Action, ActionParameters};
use serde_json::{Value, json};

use super::definition::{Act, Context, Facts, Problem, Rule, Scope, UndoKind};
use super::kept::Restore;
use super::seen::{Place, Seen};
use super::workload;

#[derive(Debug)]
pub(super) struct ScaleDeployment;

impl Act for ScaleDeployment {
    type Parameters = actions::ScaleDeployment;
    const ACTION: Action = Action::ScaleDeployment;
    const FACTS: Facts = Facts {
        about: "Sets `spec.replicas` of a Deployment. It does not wait for the pods: a postcondition does.",
        done: "scaled",
        timeout: Duration::from_mins(5),
        idempotent: true,
        dry_runnable: true,
        scope: Scope::Namespaced,
        undo: UndoKind::Action,
        rules: &[Rule { group: "apps", resources: &["deployments"], verbs: &["get", "patch"] }],
    };

    fn parameters(all: &ActionParameters) -> Option<&Self::Parameters> {
        all.scale_deployment.as_ref()
    }

    fn example() -> Value {
        json!({"deployment": "web", "namespace": "shop", "replicas": 5})
    }

    fn check(given: &Self::Parameters) -> Result<(), Problem> {
        workload::check_replicas("replicas", given.replicas, 0)
    }

    fn target(given: &Self::Parameters) -> Option<Place> {
        Some(Place::namespaced(DEPLOYMENT, &given.namespace, &given.deployment))
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
            json!({"deployment": given.deployment, "namespace": given.namespace, "replicas": replicas});
        Some((Action::ScaleDeployment, undo))
    }
}

#[cfg(test)]
mod tests {
    use super::super::course::{Course, Style};
    use super::super::kept::Undo;
    use super::super::testing::{check, course, given, patch, refusal, undo, words};
    use super::*;
    use pawl_api::remedy::annotations::CHANGED_BY;

    fn deployment(replicas: i64) -> Value {
        json!({"kind": "Deployment", "metadata": {"name": "web", "namespace": "shop", "uid": "u",
            "resourceVersion": "7"}, "spec": {"replicas": replicas}})
    }

    #[test]
    fn replicas_are_set_told_and_set_back() {
        let order = given("scale_deployment", ScaleDeployment::example());
        assert_eq!(patch(&order, &[deployment(3)]), (Style::Merge, json!({"spec": {"replicas": 5}})));
        assert_eq!(words(&order, &[deployment(3)]), ["replicas: 3"]);
        let back = json!({"deployment": "web", "namespace": "shop", "replicas": 3});
        assert_eq!(undo(&order, &[deployment(3)]), Undo::action(Action::ScaleDeployment, back));
        assert!(matches!(course(&order, &[deployment(5)]), Course::Done(_)));
    }

    #[test]
    fn more_replicas_than_an_action_may_ask_for_are_put_back_from_what_was_kept() {
        let order = given("scale_deployment", ScaleDeployment::example());
        assert_eq!(undo(&order, &[deployment(5000)]), Undo::Restore);
    }

    #[test]
    fn what_this_execution_has_scaled_is_not_scaled_again_whatever_it_is_by_now() {
        let order = given("scale_deployment", ScaleDeployment::example());
        let mut since = deployment(9);
        since["metadata"]["annotations"] = json!({CHANGED_BY: order.uid});
        assert!(matches!(course(&order, &[since]), Course::Done(_)));
    }

    #[test]
    fn a_deployment_that_is_not_there_and_replicas_beyond_the_limit_are_refused() {
        let order = given("scale_deployment", ScaleDeployment::example());
        assert_eq!(refusal(&order, &[]), "Deployment shop/web is not there");
        let problem =
            check("scale_deployment", json!({"deployment": "w", "namespace": "n", "replicas": 1001}));
        assert_eq!(
            problem.unwrap_err().to_string(),
            "spec.parameters.scaleDeployment.replicas: 1001 is not allowed: from 0 to 1000"
        );
    }
}
