//! `expand_pvc`: asks for a larger volume.

use pawl_api::k8s::PERSISTENT_VOLUME_CLAIM;
use pawl_api::meta::{Duration, quantity};
use pawl_api::remedy::actions::{self, Action, ActionParameters};
use serde_json::{Value, json};

use super::definition::{Act, Facts, Problem, Rule, Scope, UndoKind};
use super::seen::{Place, Seen, text};

const REQUEST: &str = "/spec/resources/requests/storage";

#[derive(Debug)]
pub(super) struct ExpandPvc;

impl Act for ExpandPvc {
    type Parameters = actions::ExpandPvc;
    const ACTION: Action = Action::ExpandPvc;
    const FACTS: Facts = Facts {
        about: "Raises the storage that a PersistentVolumeClaim requests. Its StorageClass must allow expansion; the \
                volume grows when the storage provider gets to it, which a postcondition can wait for.",
        done: "expanded",
        timeout: Duration::from_mins(5),
        idempotent: true,
        dry_runnable: true,
        scope: Scope::Namespaced,
        undo: UndoKind::Never("volumes never shrink"),
        rules: &[Rule { group: "", resources: &["persistentvolumeclaims"], verbs: &["get", "patch"] }],
    };

    fn parameters(all: &ActionParameters) -> Option<&Self::Parameters> {
        all.expand_pvc.as_ref()
    }

    fn example() -> Value {
        json!({"pvc": "data-db-0", "namespace": "shop", "size": "20Gi"})
    }

    fn check(given: &Self::Parameters) -> Result<(), Problem> {
        let good = quantity::nano(&given.size).is_some_and(|size| size > 0);
        let problem = || Problem::new("size", format!("{:?} is no amount above zero", given.size));
        good.then_some(()).ok_or_else(problem)
    }

    fn target(given: &Self::Parameters) -> Option<Place> {
        Some(Place::namespaced(PERSISTENT_VOLUME_CLAIM, &given.namespace, &given.pvc))
    }

    fn patch(given: &Self::Parameters, object: &Value, _: &Seen) -> Result<Option<Value>, String> {
        let present = text(object, REQUEST).unwrap_or("0");
        match (quantity::nano(&given.size), quantity::nano(present)) {
            (Some(new), Some(old)) if new < old => {
                Err(format!("it is {present} now, and volumes never shrink: {} would be less", given.size))
            }
            (Some(new), Some(old)) if new == old => Ok(None),
            _ => Ok(Some(json!({"spec": {"resources": {"requests": {"storage": given.size}}}}))),
        }
    }

    fn fields(_: &Self::Parameters, object: &Value, _: &Seen) -> Value {
        json!({"storage": text(object, REQUEST)})
    }

    fn words(_: &Self::Parameters, object: &Value, _: &Seen) -> String {
        format!("storage: {}", text(object, REQUEST).unwrap_or("none"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::course::Course;
    use super::super::kept::Undo;
    use super::super::testing::{check, course, given, patch, refusal, undo, words};
    use super::*;

    fn claim(size: &str) -> Value {
        json!({"kind": "PersistentVolumeClaim", "metadata": {"name": "data-db-0", "namespace": "shop"},
            "spec": {"resources": {"requests": {"storage": size}}}})
    }

    #[test]
    fn a_claim_grows_and_never_shrinks() {
        let order = given("expand_pvc", ExpandPvc::example());
        let wanted = json!({"spec": {"resources": {"requests": {"storage": "20Gi"}}}});
        assert_eq!(patch(&order, &[claim("10Gi")]).1, wanted);
        assert_eq!(words(&order, &[claim("10Gi")]), ["storage: 10Gi"]);
        assert!(refusal(&order, &[claim("21Gi")]).contains("never shrink"));
        assert!(matches!(course(&order, &[claim("20480Mi")]), Course::Done(_)));
        assert!(matches!(undo(&order, &[claim("10Gi")]), Undo::Never(_)));
        assert!(check("expand_pvc", json!({"pvc": "p", "namespace": "n", "size": "0Gi"})).is_err());
    }
}
