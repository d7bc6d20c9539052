//! Is an object that was applied ready?

use pawl_api::k8s::{DAEMON_SET, DEPLOYMENT, JOB, POD, REPLICA_SET, STATEFUL_SET};
use pawl_api::meta::Kind;
use serde_json::Value;

use super::config::Requirement;
use crate::deploy::json_path::Path;
use crate::object::Object;

/// What is known of an object's readiness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ready {
    Yes,
    /// Not yet, and why.
    NotYet(String),
    /// It never will be.
    Never(String),
}

/// The kinds that can be there without being ready.
pub(super) const CHECKED: &[Kind] = &[DEPLOYMENT, STATEFUL_SET, DAEMON_SET, REPLICA_SET, POD, JOB];

/// What Kubernetes' own kinds say of themselves; all others are ready once they are there.
pub(super) fn default(object: &Object) -> Ready {
    let status = object.status();
    let number = |pointer: &str| object.raw().pointer(pointer).and_then(Value::as_i64);
    let observed = number("/status/observedGeneration").unwrap_or_default() >= object.generation();
    let wanted = number("/spec/replicas").unwrap_or(1);
    let at_least = |field: &str, wanted: i64| {
        let found = status.get(field).and_then(Value::as_i64).unwrap_or_default();
        if !observed {
            Ready::NotYet("its controller has not seen the change".to_owned())
        } else if found < wanted {
            Ready::NotYet(format!("{field} is {found} of {wanted}"))
        } else {
            Ready::Yes
        }
    };
    let holds = |type_: &str| {
        let conditions = status.get("conditions").and_then(Value::as_array).into_iter().flatten();
        let of = |one: &&Value| one.get("type").and_then(Value::as_str) == Some(type_);
        conditions.filter(of).any(|one| one.get("status").and_then(Value::as_str) == Some("True"))
    };
    match (object.kind().group.as_ref(), object.kind().kind.as_ref()) {
        ("apps", "Deployment") => {
            both(at_least("updatedReplicas", wanted), at_least("availableReplicas", wanted))
        }
        ("apps", "StatefulSet") => {
            both(at_least("updatedReplicas", wanted), at_least("readyReplicas", wanted))
        }
        ("apps", "ReplicaSet") => at_least("readyReplicas", wanted),
        ("apps", "DaemonSet") => {
            let wanted = number("/status/desiredNumberScheduled").unwrap_or_default();
            both(at_least("updatedNumberScheduled", wanted), at_least("numberReady", wanted))
        }
        ("batch", "Job") if holds("Failed") => Ready::Never("the Job failed".to_owned()),
        ("batch", "Job") if holds("Complete") => Ready::Yes,
        ("batch", "Job") => Ready::NotYet("the Job has not completed".to_owned()),
        ("", "Pod") => match status.get("phase").and_then(Value::as_str) {
            Some("Failed") => Ready::Never("the Pod failed".to_owned()),
            Some("Succeeded") => Ready::Yes,
            _ if holds("Ready") => Ready::Yes,
            _ => Ready::NotYet("the Pod is not ready".to_owned()),
        },
        _ => Ready::Yes,
    }
}

fn both(first: Ready, second: Ready) -> Ready {
    if first == Ready::Yes { second } else { first }
}

/// Whether all requirements hold.
pub(super) fn custom(object: &Object, requirements: &[Requirement]) -> Ready {
    for requirement in requirements {
        let path = match Path::parse(&requirement.json_path) {
            Ok(path) => path,
            Err(bad) => return Ready::Never(bad.to_string()),
        };
        let found = path.find(object.raw());
        match holds(&requirement.operator, &found, &requirement.values) {
            Some(true) => {}
            Some(false) => {
                return Ready::NotYet(format!(
                    "{} {} {} does not hold",
                    requirement.json_path,
                    requirement.operator,
                    Value::from(requirement.values.clone())
                ));
            }
            None => {
                let message = format!(
                    "the operator {:?} is unknown (==, !=, in, notIn, exists, doesNotExist)",
                    requirement.operator
                );
                return Ready::Never(message);
            }
        }
    }
    Ready::Yes
}

/// `None`: there is no such operator.
fn holds(operator: &str, found: &[&Value], values: &[Value]) -> Option<bool> {
    // A value stands in an object of its own, so that it may be anything.
    let wanted = || values.iter().map(|value| value.get("value").unwrap_or(value));
    let among = |found: &&&Value| wanted().any(|wanted| same(wanted, found));
    Some(match operator {
        "exists" | "Exists" => !found.is_empty(),
        "doesNotExist" | "DoesNotExist" | "!" => found.is_empty(),
        "==" | "=" | "in" | "In" | "equals" => !found.is_empty() && found.iter().all(|one| among(&one)),
        "!=" | "notIn" | "notin" | "NotIn" => !found.iter().any(|one| among(&one)),
        _ => return None,
    })
}

/// `1` and `"1"` are the same to people who write YAML.
fn same(wanted: &Value, found: &Value) -> bool {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    wanted == found || (!wanted.is_object() && !wanted.is_array() && text(wanted) == text(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pawl_api::k8s::CONFIG_MAP;
    use serde_json::json;

    fn check(kind: Kind, mut raw: Value, expect: &str) {
        raw["metadata"] = json!({"name": "x", "generation": 2});
        let found = default(&Object::new(kind, raw).unwrap());
        let told = match found {
            Ready::Yes => "yes".to_owned(),
            Ready::NotYet(why) => format!("not yet: {why}"),
            Ready::Never(why) => format!("never: {why}"),
        };
        assert_eq!(told, expect);
    }

    #[test]
    fn workloads_are_ready_when_they_say_so_of_this_generation() {
        let seen = |updated: i32, available: i32| {
            json!({"spec": {"replicas": 2}, "status": {"observedGeneration": 2, "updatedReplicas": updated,
                "availableReplicas": available}})
        };
        check(DEPLOYMENT, seen(2, 2), "yes");
        check(DEPLOYMENT, seen(2, 1), "not yet: availableReplicas is 1 of 2");
        check(
            DEPLOYMENT,
            json!({"status": {"observedGeneration": 1}}),
            "not yet: its controller has not seen the change",
        );
        let job = |type_: &str| json!({"status": {"conditions": [{"type": type_, "status": "True"}]}});
        check(JOB, job("Complete"), "yes");
        check(JOB, job("Failed"), "never: the Job failed");
        check(JOB, json!({}), "not yet: the Job has not completed");
        check(POD, json!({"status": {"phase": "Pending"}}), "not yet: the Pod is not ready");
        check(CONFIG_MAP, json!({}), "yes");
    }

    #[test]
    fn requirements_are_paths_operators_and_values() {
        let object =
            Object::new(CONFIG_MAP, json!({"metadata": {"name": "x"}, "data": {"a": "1", "n": 3}})).unwrap();
        let ready = |path: &str, operator: &str, values: Value| {
            let requirement = json!([{"jsonPath": path, "operator": operator, "values": values}]);
            custom(&object, &serde_json::from_value::<Vec<Requirement>>(requirement).unwrap()) == Ready::Yes
        };
        assert!(ready(".data.a", "==", json!([{"value": 1}])));
        assert!(ready(".data.n", "in", json!([{"value": 2}, {"value": 3}])));
        assert!(!ready(".data.n", "notIn", json!([{"value": 3}])));
        assert!(!ready(".data.b", "==", json!([{"value": 1}])));
        assert!(ready(".data.b", "doesNotExist", json!([])));
        assert!(ready(".data.a", "exists", json!([])));
        assert!(!ready(".data.a", "resembles", json!([])));
    }
}
