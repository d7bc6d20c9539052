//! `scale_deployment` and `scale_statefulset`: set the replicas of a workload.

use pawl_api::k8s::{DEPLOYMENT, STATEFUL_SET};
use pawl_api::meta::Kind;
use pawl_api::remedy::Action;
use serde_json::{Value, json};

use super::definition::{Act, Context, Definition, Problem, UndoKind};
use super::kept::Restore;
use super::seen::{Place, Seen};
use super::workload;

pub(super) const DEPLOYMENTS: Definition = Definition {
    about: "Sets `spec.replicas` of a Deployment. It does not wait for the pods: a postcondition does.",
    done: "scaled",
    undo: UndoKind::Action,
    kinds: &[DEPLOYMENT],
    example: || json!({"deployment": "web", "namespace": "shop", "replicas": 5}),
    ..Definition::new(Action::ScaleDeployment, |all| {
        let given = all.scale_deployment.as_ref()?;
        Some(Box::new(Scale {
            action: Action::ScaleDeployment,
            kind: DEPLOYMENT,
            name: &given.deployment,
            namespace: &given.namespace,
            replicas: given.replicas,
        }))
    })
};

pub(super) const STATEFUL_SETS: Definition = Definition {
    about: "Sets `spec.replicas` of a StatefulSet. Volumes of pods that go are kept or deleted as the StatefulSet \
            itself says.",
    done: "scaled",
    undo: UndoKind::Action,
    kinds: &[STATEFUL_SET],
    example: || json!({"statefulset": "db", "namespace": "shop", "replicas": 3}),
    ..Definition::new(Action::ScaleStatefulset, |all| {
        let given = all.scale_statefulset.as_ref()?;
        Some(Box::new(Scale {
            action: Action::ScaleStatefulset,
            kind: STATEFUL_SET,
            name: &given.statefulset,
            namespace: &given.namespace,
            replicas: given.replicas,
        }))
    })
};

struct Scale<'a> {
    action: Action,
    kind: Kind,
    name: &'a str,
    namespace: &'a str,
    replicas: i32,
}

impl Act for Scale<'_> {
    fn check(&self) -> Result<(), Problem> {
        workload::check_replicas("replicas", self.replicas, 0)
    }

    fn place(&self) -> Option<Place> {
        Some(Place::namespaced(self.kind.clone(), self.namespace, self.name))
    }

    fn patch(&self, _: &Context<'_>, object: &Value, _: &Seen) -> Result<Option<Value>, String> {
        let differs = workload::replicas(object) != i64::from(self.replicas);
        Ok(differs.then(|| json!({"spec": {"replicas": self.replicas}})))
    }

    fn restore(&self, object: &Value) -> Restore {
        Restore::Merge(json!({"spec": {"replicas": workload::replicas(object)}}))
    }

    fn words(&self, object: &Value, _: &Seen) -> String {
        format!("replicas: {}", workload::replicas(object))
    }

    fn undo(&self, seen: &Seen, _: &Seen) -> Option<(Action, Value)> {
        let replicas = i32::try_from(workload::replicas(seen.object(&self.place()?)?)).ok()?;
        // More than the parameters allow can only be restored.
        workload::check_replicas("replicas", replicas, 0).ok()?;
        let named = self.kind.kind.to_lowercase();
        Some((self.action, json!({named: self.name, "namespace": self.namespace, "replicas": replicas})))
    }
}

#[cfg(test)]
mod tests {
    use super::super::course::Course;
    use super::super::kept::Undo;
    use super::super::testing::{check, course, given, patch, refusal, undo, words};
    use super::*;
    use pawl_api::remedy::actions::PatchType;
    use pawl_api::remedy::annotations::CHANGED_BY;

    fn deployment(replicas: i64) -> Value {
        json!({"kind": "Deployment", "metadata": {"name": "web", "namespace": "shop", "uid": "u",
            "resourceVersion": "7"}, "spec": {"replicas": replicas}})
    }

    #[test]
    fn replicas_are_set_told_and_set_back() {
        let order = given("scale_deployment", (DEPLOYMENTS.example)());
        assert_eq!(patch(&order, &[deployment(3)]), (PatchType::Merge, json!({"spec": {"replicas": 5}})));
        assert_eq!(words(&order, &[deployment(3)]), ["replicas: 3"]);
        let back = json!({"deployment": "web", "namespace": "shop", "replicas": 3});
        assert_eq!(undo(&order, &[deployment(3)]), Undo::action(Action::ScaleDeployment, back));
        assert!(matches!(course(&order, &[deployment(5)]), Course::Done(_)));
    }

    #[test]
    fn more_replicas_than_an_action_may_ask_for_are_put_back_from_what_was_kept() {
        let order = given("scale_deployment", (DEPLOYMENTS.example)());
        assert_eq!(undo(&order, &[deployment(5000)]), Undo::Restore);
    }

    #[test]
    fn what_this_execution_has_scaled_is_not_scaled_again_whatever_it_is_by_now() {
        let order = given("scale_deployment", (DEPLOYMENTS.example)());
        let mut since = deployment(9);
        since["metadata"]["annotations"] = json!({CHANGED_BY: order.uid});
        assert!(matches!(course(&order, &[since]), Course::Done(_)));
    }

    #[test]
    fn a_deployment_that_is_not_there_and_replicas_beyond_the_limit_are_refused() {
        let order = given("scale_deployment", (DEPLOYMENTS.example)());
        assert_eq!(refusal(&order, &[]), "Deployment shop/web is not there");
        let problem =
            check("scale_deployment", json!({"deployment": "w", "namespace": "n", "replicas": 1001}));
        assert_eq!(
            problem.unwrap_err().to_string(),
            "spec.parameters.scaleDeployment.replicas: 1001 is not allowed: from 0 to 1000"
        );
    }

    #[test]
    fn replicas_are_set_and_set_back_and_none_said_is_one() {
        let order = given("scale_statefulset", (STATEFUL_SETS.example)());
        let one = json!({"kind": "StatefulSet", "metadata": {"name": "db", "namespace": "shop"}, "spec": {}});
        assert_eq!(
            patch(&order, std::slice::from_ref(&one)),
            (PatchType::Merge, json!({"spec": {"replicas": 3}}))
        );
        let back = json!({"statefulset": "db", "namespace": "shop", "replicas": 1});
        assert_eq!(undo(&order, &[one]), Undo::action(Action::ScaleStatefulset, back));
        assert!(
            check("scale_statefulset", json!({"statefulset": "d", "namespace": "n", "replicas": -1}))
                .is_err()
        );
    }
}
