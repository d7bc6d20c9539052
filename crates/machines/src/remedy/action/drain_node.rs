//! `drain_node`: cordons a node and evicts its pods, as their disruption budgets allow.
//!
//! ```text
//! a pod that would be lost for good? ─▶ refuse, before anything is done
//! cordon, evict ─▶ a budget refuses, or a pod is still ending? ─▶ wait, look again ─▶ none left: mark the node, done
//! ```
//! The mark comes last: an attempt that was cut short goes on where it stood, and one that was done is not done again.

use std::sync::Arc;

use pawl_api::k8s::{NODE, POD};
use pawl_api::meta::Duration;
use pawl_api::remedy::actions::{self, Action, PatchType};
use serde_json::{Value, json};

use super::Order;
use super::cordon::{is_cordoned, words};
use super::course::{Course, How, Write, meant};
use super::definition::{Act, Context, Definition, Need, UndoKind, needs_on};
use super::delete_pod::is_ending;
use super::seen::{self, Listing, Place, Read, Seen, text};

/// How long budgets may refuse where nobody says otherwise: well before the attempt itself is over.
const EVICTION_TIMEOUT: Duration = Duration::from_mins(10);
/// A static pod, as the API server shows it: only its kubelet can end it.
const MIRROR: &str = "kubernetes.io/config.mirror";

pub(super) const DEFINITION: Definition = Definition {
    about: "Cordons a node and evicts its pods through the eviction API, so that PodDisruptionBudgets hold: an \
            eviction that a budget refuses is tried again until `evictionTimeout`. Pods of DaemonSets and static pods \
            stay. A pod that nobody would make anew is refused without `force`, one whose emptyDir would be lost \
            without `deleteEmptyDirData`, both before anything is done.",
    done: "drained",
    timeout: Duration::from_mins(15),
    undo: UndoKind::Never("evicted pods do not come back; uncordon_node lets new ones onto the node"),
    more_rules: &[("", "pods", &["list"]), ("", "pods/eviction", &["create"])],
    kinds: &[NODE],
    example: || json!({"node": "worker-1", "evictionTimeout": "5m"}),
    ..Definition::new(Action::DrainNode, |all| Some(Box::new(all.drain_node.as_ref()?)))
};

impl Act for &actions::DrainNode {
    fn place(&self) -> Option<Place> {
        Some(Place::cluster(NODE, &self.node))
    }

    fn needs(&self, order: &Order, verbs: &'static [&'static str]) -> Vec<Need> {
        let pods = |verb| Need { name: None, ..Need::of(verb, &Place::cluster(POD, "")) };
        let mut needs = needs_on(&self.places(order), verbs);
        needs.extend([pods("list"), Need { subresource: Some("eviction"), ..pods("create") }]);
        needs
    }

    fn more_reads(&self, _: &Context<'_>, _: &Seen) -> Vec<Read> {
        vec![Read::List(listing(self))]
    }

    fn course(&self, context: &Context<'_>, seen: &Seen) -> Course {
        let place = Place::cluster(NODE, &self.node);
        let node = match meant(context, seen, &place) {
            Ok(node) => node,
            Err(course) => return course,
        };
        let pods: Vec<&Arc<Value>> = seen.list(&listing(self)).iter().filter(|pod| must_go(pod)).collect();
        let (ending, staying): (Vec<&Value>, Vec<&Value>) =
            pods.into_iter().map(AsRef::as_ref).partition(|pod| is_ending(pod));
        if let Some(why) = staying.iter().find_map(|pod| would_be_lost(self, pod)) {
            return Course::Refuse(why);
        }
        let cordon = (!is_cordoned(node))
            .then(|| Write::unmarked(&place, node, json!({"spec": {"unschedulable": true}})));
        let evictions = staying.iter().map(|pod| evict(self, pod));
        let writes: Vec<Write> = cordon.into_iter().chain(evictions).collect();
        match ending.first() {
            _ if !writes.is_empty() => Course::Step(writes),
            Some(first) => Course::Wait(format!(
                "{} pods of {place} are still ending, {} first",
                ending.len(),
                name(first)
            )),
            None => {
                Course::Finish(vec![Write::marked(context.order, &place, node, PatchType::Merge, json!({}))])
            }
        }
    }

    /// Pods come and go: that they go is the point.
    fn fields(&self, node: &Value) -> Value {
        json!({"unschedulable": is_cordoned(node)})
    }

    fn words(&self, node: &Value, seen: &Seen) -> String {
        let pods = seen.list(&listing(self)).iter().filter(|pod| must_go(pod)).count();
        format!("{}, pods: {pods}", words(node))
    }

    fn patience(&self) -> Option<Duration> {
        Some(self.eviction_timeout.unwrap_or(EVICTION_TIMEOUT))
    }
}

fn listing(given: &actions::DrainNode) -> Listing {
    let fields = format!("spec.nodeName={}", given.node);
    Listing { kind: POD, namespace: None, labels: String::new(), fields }
}

fn controller(pod: &Value) -> Option<&Value> {
    let owners = pod.pointer("/metadata/ownerReferences")?.as_array()?;
    owners.iter().find(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true))
}

/// A DaemonSet would make it again on the spot, a kubelet too.
fn must_go(pod: &Value) -> bool {
    let owner = controller(pod).and_then(|owner| owner.get("kind")).and_then(Value::as_str);
    owner != Some("DaemonSet") && seen::annotation(pod, MIRROR).is_none()
}

/// Why a pod may not be evicted without saying so.
fn would_be_lost(given: &actions::DrainNode, pod: &Value) -> Option<String> {
    if matches!(text(pod, "/status/phase"), Some("Succeeded" | "Failed")) {
        return None;
    }
    if !given.force && controller(pod).is_none() {
        return Some(format!(
            "Pod {} has no controller that would make it anew: say force to evict it",
            name(pod)
        ));
    }
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
    let empty_dir =
        volumes.into_iter().flatten().any(|volume| volume.get("emptyDir").is_some_and(|it| !it.is_null()));
    (empty_dir && !given.delete_empty_dir_data).then(|| {
        format!("Pod {} would lose its emptyDir volumes: say deleteEmptyDirData to evict it", name(pod))
    })
}

fn name(pod: &Value) -> String {
    let part = |pointer: &str| text(pod, pointer).unwrap_or("?");
    format!("{}/{}", part("/metadata/namespace"), part("/metadata/name"))
}

fn evict(given: &actions::DrainNode, pod: &Value) -> Write {
    let part = |pointer: &str| text(pod, pointer).unwrap_or_default();
    let place = Place::namespaced(POD, part("/metadata/namespace"), part("/metadata/name"));
    let uid = seen::uid(pod).to_owned();
    Write { place, how: How::Evict { uid, grace_period_seconds: given.grace_period_seconds } }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{course, given, refusal, words};
    use super::*;

    fn node(cordoned: bool) -> Value {
        json!({"kind": "Node", "metadata": {"name": "worker-1", "uid": "u"}, "spec": {"unschedulable": cordoned}})
    }

    fn pod(name: &str, owner: Option<&str>) -> Value {
        let owners: Vec<Value> = owner.iter().map(|kind| json!({"kind": kind, "controller": true})).collect();
        json!({"kind": "Pod", "metadata": {"name": name, "namespace": "n", "uid": name, "ownerReferences": owners},
            "status": {"phase": "Running"}})
    }

    fn done(course: &Course) -> Vec<String> {
        let (Course::Step(writes) | Course::Finish(writes)) = course else { panic!("{course:?}") };
        writes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_node_is_cordoned_its_pods_evicted_waited_for_and_then_it_is_done() {
        let order = given("drain_node", (DEFINITION.example)());
        let (own, daemon) = (pod("a", Some("ReplicaSet")), pod("d", Some("DaemonSet")));
        let mut mirror = pod("m", None);
        mirror["metadata"]["annotations"] = json!({MIRROR: "x"});
        let world = [node(false), own.clone(), daemon.clone(), mirror.clone()];
        assert_eq!(done(&course(&order, &world)), ["patch Node worker-1", "evict Pod n/a"]);
        assert_eq!(words(&order, &world), ["unschedulable: false, pods: 1"]);
        assert_eq!(done(&course(&order, &[node(true), own.clone()])), ["evict Pod n/a"]);
        let mut ending = own;
        ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert!(matches!(course(&order, &[node(true), ending]), Course::Wait(_)));
        let last = course(&order, &[node(true), daemon, mirror]);
        assert!(matches!(last, Course::Finish(_)), "{last:?}");
    }

    #[test]
    fn what_would_be_lost_is_refused_before_anything_is_done_unless_it_is_said() {
        let saying = |more: &Value| {
            let mut asked = json!({"node": "worker-1"});
            crate::json::merge(&mut asked, more.clone());
            given("drain_node", asked)
        };
        let bare = [node(false), pod("a", None)];
        assert!(refusal(&saying(&json!({})), &bare).contains("force"));
        assert!(matches!(course(&saying(&json!({"force": true})), &bare), Course::Step(_)));
        let mut scratch = pod("b", Some("ReplicaSet"));
        scratch["spec"] = json!({"volumes": [{"name": "v", "emptyDir": {}}]});
        let scratch = [node(false), scratch];
        assert!(refusal(&saying(&json!({})), &scratch).contains("deleteEmptyDirData"));
        assert!(matches!(course(&saying(&json!({"deleteEmptyDirData": true})), &scratch), Course::Step(_)));
        let mut finished = pod("c", None);
        finished["status"]["phase"] = "Succeeded".into();
        assert!(matches!(course(&saying(&json!({})), &[node(false), finished]), Course::Step(_)));
    }
}
