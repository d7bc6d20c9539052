//! `rollout_restart`: replaces the pods of a workload, as its own strategy says.

use pawl_api::k8s::{DAEMON_SET, DEPLOYMENT, STATEFUL_SET};
use pawl_api::remedy::actions::{self, Action};
use serde_json::{Value, json};

use super::definition::{Act, Context, Definition, UndoKind};
use super::seen::{Place, Seen, text};
use super::workload;

/// On the template of a workload: the execution that asked for new pods. The template is another with every execution, and
/// the same when one is repeated.
const RESTARTED_BY: &str = "pawl.dev/restarted-by";

pub(super) const DEFINITION: Definition = Definition {
    about: "Replaces the pods of a Deployment, StatefulSet or DaemonSet, a few at a time, as its own strategy says: \
            an annotation of the pod template names the execution. It does not wait for the new pods: a \
            postcondition does.",
    done: "restarted",
    undo: UndoKind::Never("pods that were replaced do not come back"),
    kinds: &[DEPLOYMENT, STATEFUL_SET, DAEMON_SET],
    example: || json!({"kind": "deployment", "name": "web", "namespace": "shop"}),
    ..Definition::new(Action::RolloutRestart, |all| Some(Box::new(all.rollout_restart.as_ref()?)))
};

impl Act for &actions::RolloutRestart {
    fn place(&self) -> Option<Place> {
        Some(Place::namespaced(workload::kind(self.kind), &self.namespace, &self.name))
    }

    fn refuses(&self, object: &Value) -> Option<&'static str> {
        workload::is_paused(object).then_some("is paused: it would not replace its pods")
    }

    fn patch(&self, context: &Context<'_>, _: &Value, _: &Seen) -> Result<Option<Value>, String> {
        let annotations = json!({RESTARTED_BY: context.order.uid});
        Ok(Some(json!({"spec": {"template": {"metadata": {"annotations": annotations}}}})))
    }

    fn fields(&self, object: &Value) -> Value {
        json!({"paused": object.pointer("/spec/paused"), "restartedBy": restarted_by(object)})
    }

    fn words(&self, object: &Value, _: &Seen) -> String {
        match restarted_by(object) {
            Some(execution) => format!("restarted by: {execution}"),
            None => "not restarted".to_owned(),
        }
    }
}

fn restarted_by(object: &Value) -> Option<&str> {
    text(object, "/spec/template/metadata/annotations/pawl.dev~1restarted-by")
}

#[cfg(test)]
mod tests {
    use super::super::kept::Undo;
    use super::super::testing::{given, patch, refusal, undo, words};
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
    fn daemon_set(spec: Value) -> Value {
        json!({"kind": "DaemonSet", "metadata": {"name": "agent", "namespace": "ops"}, "spec": spec})
    }

    #[test]
    fn the_template_names_the_execution_so_that_a_second_try_restarts_nothing() {
        let order =
            given("rollout_restart", json!({"kind": "daemonset", "name": "agent", "namespace": "ops"}));
        let (_, body) = patch(&order, &[daemon_set(json!({}))]);
        assert_eq!(body["spec"]["template"]["metadata"]["annotations"][RESTARTED_BY], order.uid);
        assert_eq!(words(&order, &[daemon_set(json!({}))]), ["not restarted"]);
        assert!(matches!(undo(&order, &[daemon_set(json!({}))]), Undo::Never(_)));
    }

    #[test]
    fn a_paused_workload_is_refused() {
        let order =
            given("rollout_restart", json!({"kind": "daemonset", "name": "agent", "namespace": "ops"}));
        let why = refusal(&order, &[daemon_set(json!({"paused": true}))]);
        assert!(why.contains("paused"), "{why}");
    }
}
