//! What does an action work on, as it may be shown?

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use pawl_api::k8s::{DAEMON_SET, DEPLOYMENT, NAMESPACE, NODE, POD, REPLICA_SET, STATEFUL_SET};
use pawl_api::meta::Target;
use pawl_machines::failure::Failure;
use pawl_machines::object::Reference;
use pawl_machines::remedy::action::course::Course;
use pawl_machines::remedy::action::seen::{self, Listing, Place, Seen};
use pawl_machines::remedy::action::{Looked, definition, diff, kept};
use serde_json::{Map, Value};

use crate::reading::Known;
use crate::way::Way;

/// Pods that a condition is shown: more than any rule reads, fewer than would fill a policy's input.
const MAX_PODS: usize = 500;

/// How many nodes there are, and how many take pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nodes {
    all: usize,
    schedulable: usize,
}

/// Looks at everything but the nodes, which the caller may know already.
pub(crate) async fn look(way: &Way, known: &Known, nodes: Nodes, now: Timestamp) -> Result<Looked, Failure> {
    let definition = definition(known.order.action);
    let context = known.context(now);
    let seen = known.look(way, now).await?;
    let places = definition.targets(&known.order, &known.parameters);
    let before = definition.before(&context, &seen);
    let refusal = match definition.course(&context, &seen) {
        Course::Refuse(why) => Some(why),
        Course::Step(_) | Course::Finish(_) | Course::Wait(_) | Course::Done(_) => None,
    };
    Ok(Looked {
        pods: pods(way, &places, &seen).await?,
        namespaces: namespaces(way, known, &places).await?,
        digest: kept::digest(&before),
        described: before.iter().map(|before| kept::describe(definition.action, before)).collect(),
        facts: Map::from_iter([
            ("nodes".to_owned(), nodes.all.into()),
            ("schedulableNodes".to_owned(), nodes.schedulable.into()),
        ]),
        targets: places.into_iter().map(|place| shown(place, &seen)).collect(),
        refusal,
    })
}

/// Counts the nodes.
pub(crate) async fn nodes(way: &Way) -> Result<Nodes, Failure> {
    let all = way.list(&everywhere(NODE, String::new())).await?;
    let takes_pods =
        |node: &&Value| node.pointer("/spec/unschedulable").and_then(Value::as_bool) != Some(true);
    Ok(Nodes { all: all.len(), schedulable: all.iter().filter(takes_pods).count() })
}

fn shown(place: Place, seen: &Seen) -> (Reference, Option<Arc<Value>>) {
    let object = seen.object(&place);
    let uid = object.map(seen::uid).unwrap_or_default().to_owned();
    let object = object.map(|object| Arc::new(diff::shown(object)));
    (Reference { kind: place.kind, key: place.key, uid }, object)
}

fn everywhere(kind: pawl_api::meta::Kind, fields: String) -> Listing {
    Listing { kind, namespace: None, labels: String::new(), fields }
}

/// The Pods of the first target, where it has some.
async fn pods(way: &Way, places: &[Place], seen: &Seen) -> Result<Vec<Arc<Value>>, Failure> {
    let Some((place, object)) = places.first().and_then(|place| Some((place, seen.object(place)?))) else {
        return Ok(Vec::new());
    };
    let listing = if place.kind == POD {
        return Ok(vec![Arc::new(diff::shown(object))]);
    } else if place.kind == NODE {
        everywhere(POD, format!("spec.nodeName={}", place.key.name))
    } else if [DEPLOYMENT, STATEFUL_SET, DAEMON_SET, REPLICA_SET].contains(&place.kind) {
        let Some(labels) = object.pointer("/spec/selector").and_then(seen::label_selector) else {
            return Ok(Vec::new());
        };
        Listing { kind: POD, namespace: place.key.namespace.clone(), labels, fields: String::new() }
    } else {
        return Ok(Vec::new());
    };
    let found = way.list(&listing).await?;
    Ok(found.iter().take(MAX_PODS).map(|pod| Arc::new(diff::shown(pod))).collect())
}

/// The labels of every namespace in which something is to be done.
async fn namespaces(
    way: &Way,
    known: &Known,
    places: &[Place],
) -> Result<BTreeMap<String, BTreeMap<String, String>>, Failure> {
    let mut names: BTreeSet<&str> =
        places.iter().filter_map(|place| place.key.namespace.as_deref()).collect();
    let target = definition(known.order.action).target(&known.parameters);
    if let Some(Ok(Target::Object(target))) = &target {
        names.extend(target.namespace());
    }
    let mut found = BTreeMap::new();
    for name in names {
        let Some(namespace) = way.get(&Place::cluster(NAMESPACE, name)).await? else { continue };
        let labels = namespace.pointer("/metadata/labels").and_then(Value::as_object);
        let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        found.insert(name.to_owned(), labels.into_iter().flatten().filter_map(text).collect());
    }
    Ok(found)
}
