//! `increase_resources`: raises the requests and limits of a container.

use pawl_api::k8s::{DAEMON_SET, DEPLOYMENT, STATEFUL_SET};
use pawl_api::meta::quantity;
use pawl_api::remedy::actions::{self, Action, PatchType, Resources};
use serde_json::{Map, Value, json};

use super::definition::{Act, Context, Definition, Problem, UndoKind};
use super::kept::Restore;
use super::seen::{Place, Seen};
use super::workload;

pub(super) const DEFINITION: Definition = Definition {
    about: "Raises what a container of a Deployment, StatefulSet or DaemonSet requests and is limited to. Nothing is \
            lowered: a value below the present one is refused. The pods are replaced as the workload's strategy says.",
    done: "given more",
    undo: UndoKind::Restore,
    kinds: &[DEPLOYMENT, STATEFUL_SET, DAEMON_SET],
    example: || {
        json!({"kind": "deployment", "name": "web", "namespace": "shop", "container": "app",
            "limits": {"memory": "1Gi"}})
    },
    ..Definition::new(Action::IncreaseResources, |all| Some(Box::new(all.increase_resources.as_ref()?)))
};

impl Act for &actions::IncreaseResources {
    fn patch_type(&self) -> PatchType {
        PatchType::Strategic
    }

    fn check(&self) -> Result<(), Problem> {
        let wanted = wanted(self);
        if wanted.is_empty() {
            return Err(Problem::new("", "requests or limits must say cpu or memory"));
        }
        for (part, resource, value) in wanted {
            if quantity::nano(value).is_none_or(|amount| amount <= 0) {
                return Err(Problem::new(
                    &format!("{part}.{resource}"),
                    format!("{value:?} is no amount above zero"),
                ));
            }
        }
        Ok(())
    }

    fn place(&self) -> Option<Place> {
        Some(Place::namespaced(workload::kind(self.kind), &self.namespace, &self.name))
    }

    fn patch(&self, _: &Context<'_>, object: &Value, _: &Seen) -> Result<Option<Value>, String> {
        let now = resources(self, object)?;
        let mut changes = Map::new();
        for (part, resource, value) in wanted(self) {
            let present = now.get(part).and_then(|part| part.get(resource)).and_then(Value::as_str);
            let (new, old) = (quantity::nano(value), present.and_then(quantity::nano));
            if let (Some(new), Some(old)) = (new, old)
                && new < old
            {
                let present = present.unwrap_or_default();
                return Err(format!("{part}.{resource} is {present} now: {value} would be less"));
            }
            if new != old {
                let part = changes.entry(part).or_insert_with(|| json!({}));
                if let Some(part) = part.as_object_mut() {
                    part.insert(resource.to_owned(), value.into());
                }
            }
        }
        Ok((!changes.is_empty()).then(|| body(self, &changes.into())))
    }

    /// All of them, not only those that are raised: an API server requests what a limit says where nobody requests.
    fn restore(&self, object: &Value) -> Restore {
        let now = resources(self, object).unwrap_or_default();
        let mut was = json!({});
        for part in ["requests", "limits"] {
            for resource in ["cpu", "memory"] {
                let value = now.get(part).and_then(|part| part.get(resource)).cloned().unwrap_or_default();
                crate::json::merge(&mut was, json!({part: {resource: value}}));
            }
        }
        Restore::Strategic(body(self, &was))
    }

    fn words(&self, object: &Value, _: &Seen) -> String {
        let now = resources(self, object).unwrap_or_default();
        let one = |(part, resource, _): (&str, &str, &str)| {
            let value = now.get(part).and_then(|part| part.get(resource)).and_then(Value::as_str);
            format!("{part}.{resource}: {}", value.unwrap_or("none"))
        };
        wanted(self).into_iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

/// What is asked for, one by one.
fn wanted(given: &actions::IncreaseResources) -> Vec<(&'static str, &'static str, &str)> {
    fn of<'a>(part: &'static str, all: Option<&'a Resources>) -> Vec<(&'static str, &'static str, &'a str)> {
        let values = all.map(|all| [("cpu", all.cpu.as_deref()), ("memory", all.memory.as_deref())]);
        let values = values.into_iter().flatten();
        values.filter_map(|(resource, value)| Some((part, resource, value?))).collect()
    }
    [of("requests", given.requests.as_ref()), of("limits", given.limits.as_ref())].concat()
}

/// What the container has now.
fn resources(given: &actions::IncreaseResources, object: &Value) -> Result<Value, String> {
    let containers = object.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    let named = |container: &&Value| container.get("name").and_then(Value::as_str) == Some(&given.container);
    let container = containers.into_iter().flatten().find(named);
    let container = container.ok_or_else(|| format!("it has no container {}", given.container))?;
    Ok(container.get("resources").cloned().unwrap_or_default())
}

fn body(given: &actions::IncreaseResources, resources: &Value) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": given.container, "resources": resources}]}}}})
}

#[cfg(test)]
mod tests {
    use super::super::course::Course;
    use super::super::testing::{asked_again, check, course, given, kept, only_patch, patch, refusal, words};
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
    fn deployment(resources: Value) -> Value {
        json!({"kind": "Deployment", "metadata": {"name": "web", "namespace": "shop", "uid": "u"}, "spec": {"template":
            {"spec": {"containers": [{"name": "side"}, {"name": "app", "resources": resources}]}}}})
    }

    #[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
    fn asking(limits: Value) -> super::super::Order {
        given(
            "increase_resources",
            json!({"kind": "deployment", "name": "web", "namespace": "shop", "container": "app", "limits": limits}),
        )
    }

    #[test]
    fn what_is_asked_for_is_raised_and_the_rest_of_the_container_is_not_mentioned() {
        let order = asking(json!({"memory": "1Gi", "cpu": "500m"}));
        let before = deployment(json!({"limits": {"memory": "512Mi", "cpu": "0.5"}}));
        let (style, body) = patch(&order, std::slice::from_ref(&before));
        let containers = json!([{"name": "app", "resources": {"limits": {"memory": "1Gi"}}}]);
        assert_eq!(
            (style, &body["spec"]["template"]["spec"]["containers"]),
            (PatchType::Strategic, &containers)
        );
        assert_eq!(words(&order, &[before]), ["limits.cpu: 0.5, limits.memory: 512Mi"]);
    }

    #[test]
    fn nothing_is_lowered_and_an_unknown_container_is_refused() {
        let before = deployment(json!({"limits": {"memory": "2Gi"}}));
        let why = refusal(&asking(json!({"memory": "1Gi"})), std::slice::from_ref(&before));
        assert_eq!(why, "limits.memory is 2Gi now: 1Gi would be less");
        assert!(matches!(course(&asking(json!({"memory": "2048Mi"})), &[before]), Course::Done(_)));
        assert!(
            refusal(
                &asking(json!({"cpu": "1"})),
                &[json!({"kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop"}})]
            )
            .contains("no container app")
        );
    }

    #[test]
    fn taking_it_back_lowers_what_was_raised_and_removes_what_was_not_there() {
        let order = asking(json!({"memory": "1Gi", "cpu": "1"}));
        let kept = kept(&order, &[deployment(json!({"limits": {"memory": "512Mi"}}))]);
        let after = deployment(json!({"limits": {"memory": "1Gi", "cpu": "1"}}));
        let course = asked_again(&order, &[after], Some(&kept), |definition, context, seen| {
            definition.course(context, seen)
        });
        let Course::Finish(writes) = course else { panic!("{course:?}") };
        let (style, body) = only_patch(&writes);
        let resources =
            json!({"limits": {"memory": "512Mi", "cpu": null}, "requests": {"memory": null, "cpu": null}});
        assert_eq!(style, PatchType::Strategic);
        assert_eq!(
            body["spec"]["template"]["spec"]["containers"],
            json!([{"name": "app", "resources": resources}])
        );
    }

    #[test]
    fn amounts_that_are_none_are_told_by_their_field() {
        let of = |requests: Value| {
            check(
                "increase_resources",
                json!({"name": "w", "namespace": "n", "container": "c", "requests": requests}),
            )
        };
        assert_eq!(of(json!({"cpu": "0"})).unwrap_err().field, "increaseResources.requests.cpu");
        assert_eq!(of(json!({})).unwrap_err().field, "increaseResources");
        assert_eq!(of(json!({"memory": "1Gi"})), Ok(()));
    }
}
