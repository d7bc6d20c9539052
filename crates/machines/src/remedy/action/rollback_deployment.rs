//! `rollback_deployment`: takes a Deployment back to an earlier revision.

use std::sync::Arc;

use pawl_api::k8s::{DEPLOYMENT, REPLICA_SET};
use pawl_api::remedy::actions::{self, Action};
use serde_json::{Value, json};

use super::definition::{Act, Context, Definition, Need, UndoKind, needs_on};
use super::diff::{self, REVISION};
use super::kept::Restore;
use super::seen::{self, Listing, Place, Read, Seen};
use super::{Order, workload};
use crate::apply::difference;

/// A ReplicaSet's own label on its template.
const TEMPLATE_HASH: &str = "pod-template-hash";

pub(super) const DEFINITION: Definition = Definition {
    about: "Gives a Deployment the pod template of an earlier revision, as its ReplicaSets remember it: the one \
            before the current, or the one that is named. Replicas and strategy stay as they are.",
    done: "rolled back",
    undo: UndoKind::Action,
    more_rules: &[("apps", "replicasets", &["list"])],
    kinds: &[DEPLOYMENT],
    example: || json!({"deployment": "web", "namespace": "shop", "revision": 4}),
    ..Definition::new(Action::RollbackDeployment, |all| Some(Box::new(all.rollback_deployment.as_ref()?)))
};

impl Act for &actions::RollbackDeployment {
    fn place(&self) -> Option<Place> {
        Some(Place::namespaced(DEPLOYMENT, &self.namespace, &self.deployment))
    }

    fn needs(&self, order: &Order, verbs: &'static [&'static str]) -> Vec<Need> {
        let sets = Place::namespaced(REPLICA_SET, &self.namespace, "");
        let mut needs = needs_on(&self.places(order), verbs);
        needs.push(Need { name: None, ..Need::of("list", &sets) });
        needs
    }

    fn more_reads(&self, _: &Context<'_>, seen: &Seen) -> Vec<Read> {
        let object = self.place().and_then(|place| seen.object(&place));
        object.and_then(|object| listing(self, object)).map(Read::List).into_iter().collect()
    }

    fn patch(&self, _: &Context<'_>, object: &Value, seen: &Seen) -> Result<Option<Value>, String> {
        if workload::is_paused(object) {
            return Err("the Deployment is paused: it would not replace its pods".to_owned());
        }
        let current = revision(object).ok_or("the Deployment has no revision yet")?;
        let sets = sets(self, object, seen);
        let known = || sets.iter().filter_map(|set| revision(set));
        let wanted = match self.revision {
            Some(wanted) => wanted,
            None => known().filter(|one| *one < current).max().ok_or_else(|| {
                format!("there is no revision before {current}: the ReplicaSets of earlier ones are gone")
            })?,
        };
        let set = sets.iter().find(|set| revision(set) == Some(wanted)).ok_or_else(|| {
            let mut known: Vec<String> = known().map(|one| one.to_string()).collect();
            known.sort();
            format!("there is no revision {wanted}; there are {}", known.join(", "))
        })?;
        let mut template = set.pointer("/spec/template").cloned().unwrap_or_default();
        if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
            labels.remove(TEMPLATE_HASH);
        }
        let now = object.pointer("/spec/template").cloned().unwrap_or_default();
        Ok(difference(&now, &template).map(|patch| json!({"spec": {"template": patch}})))
    }

    fn restore(&self, object: &Value) -> Restore {
        Restore::Fields(diff::own(object))
    }

    fn fields(&self, object: &Value) -> Value {
        json!({"template": object.pointer("/spec/template"), "paused": object.pointer("/spec/paused")})
    }

    fn words(&self, object: &Value, _: &Seen) -> String {
        match revision(object) {
            Some(revision) => format!("revision: {revision}, {}", images(object)),
            None => images(object),
        }
    }

    fn undo(&self, seen: &Seen, _: &Seen) -> Option<(Action, Value)> {
        let object = seen.object(&self.place()?)?;
        let revision = revision(object)?;
        // Where its ReplicaSet is gone at once, only what was kept leads back.
        let remembers = object.pointer("/spec/revisionHistoryLimit").and_then(Value::as_i64) != Some(0);
        let undo = json!({"deployment": self.deployment, "namespace": self.namespace, "revision": revision});
        remembers.then_some((Action::RollbackDeployment, undo))
    }
}

fn listing(given: &actions::RollbackDeployment, object: &Value) -> Option<Listing> {
    let labels = seen::label_selector(object.pointer("/spec/selector")?)?;
    let namespace = Some(given.namespace.clone());
    Some(Listing { kind: REPLICA_SET, namespace, labels, fields: String::new() })
}

/// Those that the Deployment owns.
fn sets(given: &actions::RollbackDeployment, object: &Value, seen: &Seen) -> Vec<Arc<Value>> {
    let Some(listing) = listing(given, object) else { return Vec::new() };
    let owned = |set: &&Arc<Value>| {
        let owners = set.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        owners.into_iter().flatten().any(|owner| {
            owner.get("uid").and_then(Value::as_str) == Some(seen::uid(object))
                && owner.get("controller").and_then(Value::as_bool) == Some(true)
        })
    };
    seen.list(&listing).iter().filter(owned).cloned().collect()
}

fn revision(object: &Value) -> Option<i64> {
    seen::annotation(object, REVISION)?.parse().ok()
}

fn images(object: &Value) -> String {
    let containers = object.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    let one = |container: &Value| {
        let text = |field: &str| container.get(field).and_then(Value::as_str).unwrap_or("?").to_owned();
        format!("{}={}", text("name"), text("image"))
    };
    containers.into_iter().flatten().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::course::Course;
    use super::super::kept::Undo;
    use super::super::testing::{course, given, patch, refusal, undo, words};
    use super::*;

    fn template(image: &str) -> Value {
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
    }

    fn deployment(revision: &str, image: &str) -> Value {
        json!({"kind": "Deployment", "metadata": {"name": "web", "namespace": "shop", "uid": "u",
            "annotations": {REVISION: revision}},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template(image)}})
    }

    fn set(revision: &str, image: &str, owner: &str) -> Value {
        let mut template = template(image);
        template["metadata"]["labels"][TEMPLATE_HASH] = "abc".into();
        json!({"kind": "ReplicaSet", "metadata": {"name": format!("web-{revision}"), "namespace": "shop",
            "annotations": {REVISION: revision}, "ownerReferences": [{"uid": owner, "controller": true}]},
            "spec": {"template": template}})
    }

    fn world() -> Vec<Value> {
        vec![
            deployment("3", "i:3"),
            set("1", "i:1", "u"),
            set("2", "i:2", "u"),
            set("3", "i:3", "u"),
            set("9", "x", "v"),
        ]
    }

    #[test]
    fn without_a_revision_it_is_the_one_before_and_the_undo_names_the_current_one() {
        let order = given("rollback_deployment", json!({"deployment": "web", "namespace": "shop"}));
        let (_, body) = patch(&order, &world());
        let containers = json!([{"name": "c", "image": "i:2"}]);
        assert_eq!(body, json!({"spec": {"template": {"spec": {"containers": containers}}}}));
        assert_eq!(words(&order, &world()), ["revision: 3, c=i:3"]);
        let back = json!({"deployment": "web", "namespace": "shop", "revision": 3});
        assert_eq!(undo(&order, &world()), Undo::action(Action::RollbackDeployment, back));
    }

    #[test]
    fn a_named_revision_is_used_and_one_that_is_gone_is_refused_with_those_that_are_there() {
        let of = |revision: i64| {
            given(
                "rollback_deployment",
                json!({"deployment": "web", "namespace": "shop", "revision": revision}),
            )
        };
        let (_, body) = patch(&of(1), &world());
        assert_eq!(body["spec"]["template"]["spec"]["containers"][0]["image"], "i:1");
        assert_eq!(
            refusal(&of(9), &world()),
            "there is no revision 9; there are 1, 2, 3",
            "9 is somebody else's"
        );
        assert!(matches!(course(&of(3), &world()), Course::Done(_)));
    }

    #[test]
    fn a_deployment_without_a_past_cannot_go_back_to_it() {
        let order = given("rollback_deployment", json!({"deployment": "web", "namespace": "shop"}));
        let only = vec![deployment("1", "i:1"), set("1", "i:1", "u")];
        assert!(refusal(&order, &only).contains("no revision before 1"));
        let mut forgetful = deployment("3", "i:3");
        forgetful["spec"]["revisionHistoryLimit"] = 0.into();
        assert_eq!(undo(&order, &[forgetful]), Undo::Restore);
    }
}
