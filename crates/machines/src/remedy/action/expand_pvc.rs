//! `expand_pvc`: asks for a larger volume.

use pawl_api::k8s::PERSISTENT_VOLUME_CLAIM;
use pawl_api::meta::quantity;
use pawl_api::remedy::actions::{self, Action};
use serde_json::{Value, json};

use super::definition::{Act, Context, Definition, Problem, UndoKind};
use super::seen::{Place, Seen, text};

const REQUEST: &str = "/spec/resources/requests/storage";

pub(super) const DEFINITION: Definition = Definition {
    about: "Raises the storage that a PersistentVolumeClaim requests. Its StorageClass must allow expansion; the \
            volume grows when the storage provider gets to it, which a postcondition can wait for.",
    done: "expanded",
    undo: UndoKind::Never("volumes never shrink"),
    kinds: &[PERSISTENT_VOLUME_CLAIM],
    example: || json!({"pvc": "data-db-0", "namespace": "shop", "size": "20Gi"}),
    ..Definition::new(Action::ExpandPvc, |all| Some(Box::new(all.expand_pvc.as_ref()?)))
};

impl Act for &actions::ExpandPvc {
    fn check(&self) -> Result<(), Problem> {
        let good = quantity::nano(&self.size).is_some_and(|size| size > 0);
        let problem = || Problem::new("size", format!("{:?} is no amount above zero", self.size));
        good.then_some(()).ok_or_else(problem)
    }

    fn place(&self) -> Option<Place> {
        Some(Place::namespaced(PERSISTENT_VOLUME_CLAIM, &self.namespace, &self.pvc))
    }

    fn patch(&self, _: &Context<'_>, object: &Value, _: &Seen) -> Result<Option<Value>, String> {
        let present = text(object, REQUEST).unwrap_or("0");
        match (quantity::nano(&self.size), quantity::nano(present)) {
            (Some(new), Some(old)) if new < old => {
                Err(format!("it is {present} now, and volumes never shrink: {} would be less", self.size))
            }
            (Some(new), Some(old)) if new == old => Ok(None),
            _ => Ok(Some(json!({"spec": {"resources": {"requests": {"storage": self.size}}}}))),
        }
    }

    fn fields(&self, object: &Value) -> Value {
        json!({"storage": text(object, REQUEST)})
    }

    fn words(&self, object: &Value, _: &Seen) -> String {
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
        let order = given("expand_pvc", (DEFINITION.example)());
        let wanted = json!({"spec": {"resources": {"requests": {"storage": "20Gi"}}}});
        assert_eq!(patch(&order, &[claim("10Gi")]).1, wanted);
        assert_eq!(words(&order, &[claim("10Gi")]), ["storage: 10Gi"]);
        assert!(refusal(&order, &[claim("21Gi")]).contains("never shrink"));
        assert!(matches!(course(&order, &[claim("20480Mi")]), Course::Done(_)));
        assert!(matches!(undo(&order, &[claim("10Gi")]), Undo::Never(_)));
        assert!(check("expand_pvc", json!({"pvc": "p", "namespace": "n", "size": "0Gi"})).is_err());
    }
}
