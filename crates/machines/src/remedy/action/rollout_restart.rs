//! `rollout_restart`: replaces the pods of a workload, as its own strategy says.

use pawl_api::meta::Duration;
use pawl_api::remedy::actions::{self, Action, ActionParameters};
use serde_json::{Value, json};

use super::course::{Course, Write, meant};
use super::definition::{Act, Context, Facts, Rule, Scope, UndoKind};
use super::kept::Restore;
use super::seen::{Place, Seen, text};
use super::{course, workload};

/// On the template of a workload: the execution that asked for new pods. The template is another with every execution, and
/// the same when one is repeated.
const RESTARTED_BY: &str = "pawl.dev/restarted-by";

#[derive(Debug)]
pub(super) struct RolloutRestart;

impl Act for RolloutRestart {
    type Parameters = actions::RolloutRestart;
    const ACTION: Action = Action::RolloutRestart;
    const FACTS: Facts = Facts {
        about: "Replaces the pods of a Deployment, StatefulSet or DaemonSet, a few at a time, as its own strategy says: \
                an annotation of the pod template names the execution. It does not wait for the new pods: a \
                postcondition does.",
        done: "restarted",
        timeout: Duration::from_mins(5),
        idempotent: true,
        dry_runnable: true,
        scope: Scope::Namespaced,
        undo: UndoKind::Never("pods that were replaced do not come back"),
        rules: &[Rule {
            group: "apps",
            resources: &["deployments", "statefulsets", "daemonsets"],
            verbs: &["get", "patch"],
        }],
    };

    fn parameters(all: &ActionParameters) -> Option<&Self::Parameters> {
        all.rollout_restart.as_ref()
    }

    fn example() -> Value {
        json!({"kind": "deployment", "name": "web", "namespace": "shop"})
    }

    fn target(given: &Self::Parameters) -> Option<Place> {
        Some(Place::namespaced(workload::kind(given.kind), &given.namespace, &given.name))
    }

    fn course(context: &Context<'_>, given: &Self::Parameters, seen: &Seen) -> Course {
        let Some(place) = Self::target(given) else { return Course::Refuse("it names no target".to_owned()) };
        let object = match meant(context, seen, &place) {
            Ok(object) => object,
            Err(course) => return course,
        };
        if object.pointer("/spec/paused").and_then(Value::as_bool) == Some(true) {
            return Course::Refuse(format!("{place} is paused: it would not replace its pods"));
        }
        let body =
            json!({"spec": {"template": {"metadata": {"annotations": {RESTARTED_BY: context.order.uid}}}}});
        Course::Finish(vec![Write::marked(context.order, &place, object, course::Style::Merge, body)])
    }

    fn restore(_: &Self::Parameters, _: &Value) -> Restore {
        Restore::Nothing
    }

    fn fields(_: &Self::Parameters, object: &Value, _: &Seen) -> Value {
        json!({"paused": object.pointer("/spec/paused"), "restartedBy": restarted_by(object)})
    }

    fn words(_: &Self::Parameters, object: &Value, _: &Seen) -> String {
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
