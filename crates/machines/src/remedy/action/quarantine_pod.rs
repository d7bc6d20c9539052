//! `quarantine_pod`: takes a pod out of its Services and its owner's hands, and keeps it for a look.

use pawl_api::k8s::POD;
use pawl_api::remedy::actions::{self, Action};
use serde_json::{Map, Value, json};

use super::definition::{Act, Context, Definition, UndoKind};
use super::delete_pod::is_ending;
use super::kept::Restore;
use super::seen::{Place, Seen};

/// On a pod that is kept for a look.
const QUARANTINED: &str = "pawl.dev/quarantined";

pub(super) const DEFINITION: Definition = Definition {
    about: "Takes all labels and the owner off a pod: no Service sends it requests, no selector matches it, its owner \
            makes another one, and it stays for a look, labelled `pawl.dev/quarantined: \"true\"`. Taken back, it has \
            its labels and owner again; the owner then has one pod more than it wants, and may choose to end it.",
    done: "quarantined",
    undo: UndoKind::Restore,
    kinds: &[POD],
    example: || json!({"pod": "web-7d9c5b6f4-x2x8q", "namespace": "shop"}),
    ..Definition::new(Action::QuarantinePod, |all| Some(Box::new(all.quarantine_pod.as_ref()?)))
};

impl Act for &actions::QuarantinePod {
    fn place(&self) -> Option<Place> {
        Some(Place::namespaced(POD, &self.namespace, &self.pod))
    }

    fn patch(&self, _: &Context<'_>, pod: &Value, _: &Seen) -> Result<Option<Value>, String> {
        if is_ending(pod) {
            return Err("the pod is being deleted".to_owned());
        }
        let mut labels: Map<String, Value> =
            labels(pod).keys().map(|key| (key.clone(), Value::Null)).collect();
        labels.insert(QUARANTINED.to_owned(), "true".into());
        Ok(Some(json!({"metadata": {"labels": labels, "ownerReferences": null}})))
    }

    fn restore(&self, pod: &Value) -> Restore {
        let mut labels = labels(pod);
        labels.entry(QUARANTINED).or_insert(Value::Null);
        let owners = pod.pointer("/metadata/ownerReferences").cloned().unwrap_or_default();
        Restore::Merge(json!({"metadata": {"labels": labels, "ownerReferences": owners}}))
    }

    fn words(&self, pod: &Value, _: &Seen) -> String {
        let labels = labels(pod);
        let label = |(key, value): (&String, &Value)| format!("{key}={}", value.as_str().unwrap_or_default());
        let labels: Vec<String> = labels.iter().map(label).collect();
        let owner = pod.pointer("/metadata/ownerReferences/0");
        let text = |field: &str| owner.and_then(|owner| owner.get(field)).and_then(Value::as_str);
        let owner = match (text("kind"), text("name")) {
            (Some(kind), Some(name)) => format!("{kind}/{name}"),
            _ => "none".to_owned(),
        };
        format!("owner: {owner}, labels: {}", labels.join(","))
    }
}

fn labels(pod: &Value) -> Map<String, Value> {
    pod.pointer("/metadata/labels").and_then(Value::as_object).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::course::Course;
    use super::super::testing::{asked_again, given, kept, only_patch, patch, refusal, words};
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
    fn pod(metadata: Value) -> Value {
        let mut pod = json!({"kind": "Pod", "metadata": {"name": "p", "namespace": "n", "uid": "u"}});
        crate::json::merge(&mut pod, json!({"metadata": metadata}));
        pod
    }

    #[test]
    fn labels_and_owner_go_and_come_back() {
        let order = given("quarantine_pod", json!({"pod": "p", "namespace": "n"}));
        let owners = json!([{"kind": "ReplicaSet", "name": "rs", "uid": "r", "controller": true}]);
        let before = pod(json!({"labels": {"app": "web"}, "ownerReferences": owners}));
        let gone =
            json!({"metadata": {"labels": {"app": null, QUARANTINED: "true"}, "ownerReferences": null}});
        assert_eq!(patch(&order, std::slice::from_ref(&before)).1, gone);
        assert_eq!(words(&order, std::slice::from_ref(&before)), ["owner: ReplicaSet/rs, labels: app=web"]);
        let kept = kept(&order, &[before]);
        let after = pod(json!({"labels": {QUARANTINED: "true"}}));
        let course = asked_again(&order, &[after], Some(&kept), |definition, context, seen| {
            definition.course(context, seen)
        });
        let Course::Finish(writes) = course else { panic!("{course:?}") };
        let back =
            json!({"metadata": {"labels": {"app": "web", QUARANTINED: null}, "ownerReferences": owners}});
        assert_eq!(only_patch(&writes).1, back);
    }

    #[test]
    fn a_pod_that_is_ending_is_not_kept() {
        let order = given("quarantine_pod", json!({"pod": "p", "namespace": "n"}));
        let ending = pod(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}));
        assert!(refusal(&order, &[ending]).contains("being deleted"));
    }
}
