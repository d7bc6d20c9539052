//! `notify_only`: changes nothing and tells people.

use pawl_api::k8s::{self, EVENTS_EVENT};
use pawl_api::meta::target::ParseError;
use pawl_api::meta::{Kind, Target, names, text};
use pawl_api::remedy::actions::{self, Action};
use pawl_api::remedy::kubernetes_execution;
use serde_json::{Value, json};

use super::Order;
use super::course::{Course, How, Write};
use super::definition::{Act, Context, Definition, Need, UndoKind};
use super::seen::{Place, Read, Seen};

/// Events keep a note of at most this many bytes; so many characters are never more, whatever they are.
const MAX_NOTE_CHARS: usize = 1024 / 4;
/// Where Events about objects without a namespace are kept.
const CLUSTER_EVENTS: &str = "default";

/// Kinds whose names people see in Events.
const KINDS: &[Kind] = &[
    k8s::DEPLOYMENT,
    k8s::STATEFUL_SET,
    k8s::DAEMON_SET,
    k8s::REPLICA_SET,
    k8s::POD,
    k8s::NODE,
    k8s::SERVICE,
    k8s::JOB,
    k8s::CRON_JOB,
    k8s::CONFIG_MAP,
    k8s::SECRET,
    k8s::NAMESPACE,
    k8s::PERSISTENT_VOLUME_CLAIM,
    k8s::HORIZONTAL_POD_AUTOSCALER,
    k8s::POD_DISRUPTION_BUDGET,
];

pub(super) const DEFINITION: Definition = Definition {
    about: "Changes nothing. It writes a Kubernetes Event about the target, or about the execution itself where there is \
            none, with as much of the message as an Event takes; the whole message is in the execution and in the log. \
            It is for plans in which a person decides what is next.",
    done: "told",
    dry_runnable: false,
    undo: UndoKind::Never("nothing was changed"),
    more_rules: &[("events.k8s.io", "events", &["get", "create"])],
    example: || json!({"message": "web needs a look: it has restarted nine times since noon", "target": "shop/deployment/web"}),
    ..Definition::new(Action::NotifyOnly, |all| Some(Box::new(all.notify_only.as_ref()?)))
};

impl Act for &actions::NotifyOnly {
    /// Nothing is changed.
    fn place(&self) -> Option<Place> {
        None
    }

    /// The target may be of any kind.
    fn target(&self) -> Option<Result<Target, ParseError>> {
        self.target.as_ref().map(|target| target.parse())
    }

    fn needs(&self, order: &Order, _: &'static [&'static str]) -> Vec<Need> {
        let event = event(order, self);
        vec![Need::of("get", &event), Need { name: None, ..Need::of("create", &event) }]
    }

    fn more_reads(&self, context: &Context<'_>, _: &Seen) -> Vec<Read> {
        vec![Read::Object(event(context.order, self))]
    }

    fn course(&self, context: &Context<'_>, seen: &Seen) -> Course {
        let place = event(context.order, self);
        if seen.object(&place).is_some() {
            return Course::Done("the Event has been written".to_owned());
        }
        let manifest = json!({
            "apiVersion": EVENTS_EVENT.api_version(), "kind": EVENTS_EVENT.kind,
            "metadata": {"name": place.key.name, "namespace": place.key.namespace},
            "eventTime": format!("{:.6}", context.now), "type": "Normal", "reason": "Notified", "action": "Notify",
            "reportingController": "pawl.dev/act", "reportingInstance": context.order.uid,
            "regarding": regarding(context.order, self),
            "note": text::head(self.message.as_str(), MAX_NOTE_CHARS),
        });
        Course::Finish(vec![Write { place, how: How::Create(manifest) }])
    }
}

/// The Event of this execution, under a name that is found again (I7).
fn event(order: &Order, given: &actions::NotifyOnly) -> Place {
    let namespace = match target(given) {
        Some(Target::Object(object)) => object.namespace().unwrap_or(CLUSTER_EVENTS).to_owned(),
        _ => order.execution.namespace.clone().unwrap_or_default(),
    };
    Place::namespaced(
        EVENTS_EVENT,
        &namespace,
        &names::child("pawl-notify", &[&order.uid], 16, names::MAX_LABEL),
    )
}

fn target(given: &actions::NotifyOnly) -> Option<Target> {
    given.target.as_ref()?.parse().ok()
}

fn regarding(order: &Order, given: &actions::NotifyOnly) -> Value {
    match target(given) {
        Some(Target::Object(object)) => {
            let known = KINDS.iter().find(|kind| kind.kind.eq_ignore_ascii_case(object.kind()));
            let kind = known.map_or(object.kind(), |kind| kind.kind.as_ref());
            json!({"apiVersion": known.map(Kind::api_version), "kind": kind, "namespace": object.namespace(),
                "name": object.name()})
        }
        _ => {
            json!({"apiVersion": kubernetes_execution::KIND.api_version(), "kind": kubernetes_execution::KIND.kind,
            "namespace": order.execution.namespace, "name": order.execution.name, "uid": order.uid})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, course, given};
    use super::*;

    fn written(order: &Order) -> (String, Value) {
        let Course::Finish(writes) = course(order, &[]) else { panic!("{:?}", course(order, &[])) };
        let [Write { place, how: How::Create(manifest) }] = &*writes else { panic!("{writes:?}") };
        (place.to_string(), manifest.clone())
    }

    #[test]
    fn people_are_told_once_about_the_target() {
        let order = given("notify_only", (DEFINITION.example)());
        let (place, event) = written(&order);
        assert!(place.starts_with("Event shop/pawl-notify-"), "{place}");
        let about =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web"});
        assert_eq!(event["regarding"], about);
        let mut there = event;
        there["kind"] = "Event".into();
        assert!(matches!(course(&order, &[there]), Course::Done(_)));
    }

    #[test]
    fn without_a_target_it_is_about_the_execution_and_a_node_s_is_kept_where_cluster_events_are() {
        let (place, event) = written(&given("notify_only", json!({"message": "x"})));
        assert!(place.starts_with("Event home/"), "{place}");
        assert_eq!(event["regarding"]["kind"], "KubernetesExecution");
        let (place, _) = written(&given("notify_only", json!({"message": "x", "target": "node/a"})));
        assert!(place.starts_with("Event default/"), "{place}");
    }

    #[test]
    fn a_long_message_is_cut_to_what_an_event_takes_and_a_target_that_is_none_is_told() {
        let (_, event) = written(&given("notify_only", json!({"message": "🦀".repeat(4096)})));
        assert!(event["note"].as_str().unwrap().len() <= 1024);
        assert!(check("notify_only", json!({"message": "x", "target": "deployment"})).is_err());
    }
}
