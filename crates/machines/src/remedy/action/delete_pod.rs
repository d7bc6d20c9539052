//! `delete_pod`: deletes a pod, so that its owner makes a new one.

use pawl_api::k8s::POD;
use pawl_api::remedy::actions::{self, Action};
use serde_json::{Value, json};

use super::course::{Course, Write};
use super::definition::{Act, Context, Definition, UndoKind};
use super::seen::{self, Place, Seen, text};

pub(super) const DEFINITION: Definition = Definition {
    about: "Deletes one pod: the one that was there when the execution began, not another of its name that came \
            later. It does not wait until the pod has ended.",
    done: "deleted",
    undo: UndoKind::Never("a deleted pod does not come back; its owner makes a new one"),
    verbs: &["get", "delete"],
    kinds: &[POD],
    example: || json!({"pod": "web-7d9c5b6f4-x2x8q", "namespace": "shop", "gracePeriodSeconds": 30}),
    ..Definition::new(Action::DeletePod, |all| Some(Box::new(all.delete_pod.as_ref()?)))
};

impl Act for &actions::DeletePod {
    fn place(&self) -> Option<Place> {
        Some(Place::namespaced(POD, &self.namespace, &self.pod))
    }

    fn course(&self, context: &Context<'_>, seen: &Seen) -> Course {
        let place = Place::namespaced(POD, &self.namespace, &self.pod);
        let meant = context.kept.and_then(|kept| kept.of(&place)).and_then(|target| target.uid.as_deref());
        let Some(pod) = seen.object(&place) else {
            return match meant {
                Some(_) => Course::Done(format!("{place} is gone")),
                None => Course::Refuse(format!("{place} is not there")),
            };
        };
        if meant.is_some_and(|meant| meant != seen::uid(pod)) {
            return Course::Done(format!("{place} is gone, and another one has come in its place"));
        }
        if is_ending(pod) {
            return Course::Done(format!("{place} is being deleted"));
        }
        Course::Finish(vec![Write::delete(&place, pod, self.grace_period_seconds)])
    }

    /// Which pod it is matters, and nothing else.
    fn fields(&self, _: &Value) -> Value {
        Value::Null
    }

    fn words(&self, pod: &Value, _: &Seen) -> String {
        let phase =
            if is_ending(pod) { "Terminating" } else { text(pod, "/status/phase").unwrap_or("Unknown") };
        match text(pod, "/spec/nodeName") {
            Some(node) => format!("{phase} on {node}"),
            None => phase.to_owned(),
        }
    }
}

pub(super) fn is_ending(pod: &Value) -> bool {
    pod.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null())
}

#[cfg(test)]
mod tests {
    use super::super::course::How;
    use super::super::kept::Kept;
    use super::super::testing::{course, given, kept, refusal};
    use super::super::{Order, definition, testing};
    use super::*;
    use jiff::Timestamp;

    fn pod(uid: &str) -> Value {
        json!({"kind": "Pod", "metadata": {"name": "p", "namespace": "n", "uid": uid}, "status": {"phase": "Running"}})
    }

    fn later(order: &Order, kept: &Kept, objects: &[Value]) -> Course {
        let parameters = order.parameters().unwrap();
        let context = Context {
            order,
            parameters: &parameters,
            kept: Some(kept),
            undone: None,
            now: Timestamp::UNIX_EPOCH,
        };
        testing::asked(order, objects, |_, _, seen| definition(order.action).course(&context, seen))
    }

    #[test]
    fn the_pod_that_was_meant_is_deleted_and_its_successor_is_not() {
        let order = given("delete_pod", json!({"pod": "p", "namespace": "n", "gracePeriodSeconds": 0}));
        let Course::Finish(writes) = course(&order, &[pod("a")]) else { panic!("deleted") };
        assert!(matches!(&writes[0].how, How::Delete { uid, grace_period_seconds: Some(0) } if uid == "a"));
        let kept = kept(&order, &[pod("a")]);
        assert!(matches!(later(&order, &kept, &[pod("a")]), Course::Finish(_)));
        assert!(
            matches!(later(&order, &kept, &[pod("b")]), Course::Done(_)),
            "a StatefulSet's next pod of the name"
        );
        assert!(matches!(later(&order, &kept, &[]), Course::Done(_)));
        let mut ending = pod("a");
        ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert!(matches!(later(&order, &kept, &[ending]), Course::Done(_)));
    }

    #[test]
    fn a_pod_that_never_was_is_refused() {
        let order = given("delete_pod", json!({"pod": "p", "namespace": "n"}));
        assert_eq!(refusal(&order, &[]), "Pod n/p is not there");
    }
}
