//! `update_hpa`: moves the bounds of a HorizontalPodAutoscaler.

use pawl_api::k8s::HORIZONTAL_POD_AUTOSCALER;
use pawl_api::remedy::actions::{self, Action, MAX_REPLICAS};
use serde_json::{Map, Value, json};

use super::definition::{Act, Context, Definition, Problem, UndoKind};
use super::kept::Restore;
use super::seen::{Place, Seen};
use super::workload;

pub(super) const DEFINITION: Definition = Definition {
    about: "Sets the fewest and the most replicas that a HorizontalPodAutoscaler may choose.",
    done: "updated",
    undo: UndoKind::Action,
    kinds: &[HORIZONTAL_POD_AUTOSCALER],
    example: || json!({"hpa": "web", "namespace": "shop", "minReplicas": 3, "maxReplicas": 20}),
    ..Definition::new(Action::UpdateHpa, |all| Some(Box::new(all.update_hpa.as_ref()?)))
};

impl Act for &actions::UpdateHpa {
    fn check(&self) -> Result<(), Problem> {
        if self.min_replicas.is_none() && self.max_replicas.is_none() {
            return Err(Problem::new("", "minReplicas, maxReplicas or both must be said"));
        }
        if let Some(min) = self.min_replicas {
            workload::check_replicas("minReplicas", min, 0)?;
        }
        if let Some(max) = self.max_replicas {
            workload::check_replicas("maxReplicas", max, 1)?;
        }
        match (self.min_replicas, self.max_replicas) {
            (Some(min), Some(max)) if min > max => {
                Err(Problem::new("minReplicas", format!("{min} is above maxReplicas, {max}")))
            }
            _ => Ok(()),
        }
    }

    fn place(&self) -> Option<Place> {
        Some(Place::namespaced(HORIZONTAL_POD_AUTOSCALER, &self.namespace, &self.hpa))
    }

    fn patch(&self, _: &Context<'_>, object: &Value, _: &Seen) -> Result<Option<Value>, String> {
        let (min, max) = bounds(object);
        let new_min = self.min_replicas.map_or(min, i64::from);
        let new_max = self.max_replicas.map_or(max, i64::from);
        if new_min > new_max {
            return Err(format!("minReplicas would be {new_min}, above maxReplicas, {new_max}"));
        }
        let mut spec = Map::new();
        if new_min != min {
            spec.insert("minReplicas".to_owned(), new_min.into());
        }
        if new_max != max {
            spec.insert("maxReplicas".to_owned(), new_max.into());
        }
        Ok((!spec.is_empty()).then(|| json!({"spec": spec})))
    }

    fn restore(&self, object: &Value) -> Restore {
        let (min, max) = (object.pointer("/spec/minReplicas"), object.pointer("/spec/maxReplicas"));
        Restore::Merge(json!({"spec": {"minReplicas": min, "maxReplicas": max}}))
    }

    fn words(&self, object: &Value, _: &Seen) -> String {
        let (min, max) = bounds(object);
        format!("minReplicas: {min}, maxReplicas: {max}")
    }

    fn undo(&self, seen: &Seen, _: &Seen) -> Option<(Action, Value)> {
        let object = seen.object(&self.place()?)?;
        let (min, max) = bounds(object);
        // What was not said cannot be said by an action.
        let said = object.pointer("/spec/minReplicas").is_some();
        let allowed = said && min >= 0 && (1..=i64::from(MAX_REPLICAS)).contains(&max);
        let undo =
            json!({"hpa": self.hpa, "namespace": self.namespace, "minReplicas": min, "maxReplicas": max});
        allowed.then_some((Action::UpdateHpa, undo))
    }
}

/// An API server sets the least to 1 where nobody says it.
fn bounds(object: &Value) -> (i64, i64) {
    let number = |field: &str| object.pointer(&format!("/spec/{field}")).and_then(Value::as_i64);
    (number("minReplicas").unwrap_or(1), number("maxReplicas").unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::super::kept::Undo;
    use super::super::testing::{check, given, patch, refusal, undo, words};
    use super::*;

    fn hpa(min: i64, max: i64) -> Value {
        json!({"kind": "HorizontalPodAutoscaler", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"minReplicas": min, "maxReplicas": max}})
    }

    #[test]
    fn only_the_bounds_that_move_are_patched_and_both_are_put_back() {
        let order = given("update_hpa", (DEFINITION.example)());
        assert_eq!(patch(&order, &[hpa(3, 10)]).1, json!({"spec": {"maxReplicas": 20}}));
        assert_eq!(words(&order, &[hpa(3, 10)]), ["minReplicas: 3, maxReplicas: 10"]);
        let back = json!({"hpa": "web", "namespace": "shop", "minReplicas": 3, "maxReplicas": 10});
        assert_eq!(undo(&order, &[hpa(3, 10)]), Undo::action(Action::UpdateHpa, back));
        let mut silent = hpa(3, 10);
        silent["spec"].as_object_mut().unwrap().remove("minReplicas");
        assert_eq!(undo(&order, &[silent]), Undo::Restore);
    }

    #[test]
    fn bounds_that_cross_are_refused_also_against_the_one_that_stays() {
        let order = given("update_hpa", json!({"hpa": "web", "namespace": "shop", "minReplicas": 11}));
        assert_eq!(refusal(&order, &[hpa(3, 10)]), "minReplicas would be 11, above maxReplicas, 10");
        let crossed = json!({"hpa": "w", "namespace": "n", "minReplicas": 4, "maxReplicas": 3});
        assert_eq!(check("update_hpa", crossed).unwrap_err().field, "updateHpa.minReplicas");
        assert!(check("update_hpa", json!({"hpa": "w", "namespace": "n"})).is_err());
        assert!(check("update_hpa", json!({"hpa": "w", "namespace": "n", "maxReplicas": 0})).is_err());
    }
}
