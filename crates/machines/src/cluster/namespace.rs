//! What is left to do before a namespace that is being deleted is gone?
//!
//! ```text
//! Active ─delete─▶ Terminating: everything inside is deleted ─▶ nothing is left ─▶ spec.finalizers loses `kubernetes`
//! ```
//! Conditions say what is awaited, in Kubernetes' words.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition, NamespaceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::meta::Kind;
use pawl_api::pawl::labels::ALLOW_FROM;

use crate::machine::{Description, EVERY, Machine, Watch, Write};
use crate::object::{Key, Object};
use crate::plan::{FinalizerChange, Plan, Step};
use crate::view::{Context, View};

pub use pawl_api::k8s::NAMESPACE;

/// Keeps a namespace until it is empty; in `spec.finalizers`, not in the metadata.
pub const FINALIZER: &str = "kubernetes";

/// Deletes asked for by one decision; the rest follows as these take effect.
const MAX_AT_ONCE: usize = 500;

/// Empties namespaces that are being deleted, and lets them go.
#[derive(Clone, Copy, Debug, Default)]
pub struct Namespaces;

/// Whether a namespace says that units in another may act in it.
pub fn lets_in(namespace: Option<&Object>, home: &str) -> bool {
    namespace.and_then(|namespace| namespace.label(ALLOW_FROM)) == Some(home)
}

/// Whether a label says yes.
pub fn is_yes(label: Option<&str>) -> bool {
    label == Some("true")
}

impl Machine for Namespaces {
    type Kind = Namespace;
    type Status = NamespaceStatus;

    fn description(&self) -> Description {
        Description {
            watches: vec![Watch::every(terminating_home)],
            writes: vec![
                Write::status(NAMESPACE),
                Write { kind: NAMESPACE, part: Some("finalize"), verbs: &["update"] },
                Write::main(EVERY, &["delete"]),
            ],
            ..Description::new("namespace", NAMESPACE)
        }
    }

    fn reconcile(&self, cx: &Context<'_, Namespace>) -> Plan<NamespaceStatus> {
        let spec = cx.typed.spec.as_ref();
        let finalizers = spec.and_then(|spec| spec.finalizers.clone()).unwrap_or_default();
        if !cx.object.is_deleting() || !finalizers.iter().any(|held| held == FINALIZER) {
            return Plan::rest();
        }
        let inside = |kind: Kind| cx.view.list(&kind, Some(cx.object.name()));
        let kinds = cx.view.kinds().into_iter().filter(|kind| kind.namespaced);
        let content: Vec<Arc<Object>> = kinds.flat_map(inside).collect();
        if content.is_empty() {
            let others = finalizers.into_iter().filter(|held| held != FINALIZER).collect();
            return Plan::step(Step::Finalizer(FinalizerChange::ReplaceInSpec(others)));
        }
        let doomed = content.iter().filter(|object| !object.is_deleting()).take(MAX_AT_ONCE);
        let steps = doomed.map(|object| Step::delete(object));
        Plan { steps: steps.collect(), ..Plan::rest().status(status(cx, &content)) }
    }
}

/// An object's end or change matters to its namespace only while that is being deleted.
fn terminating_home(object: &Object, view: &dyn View) -> Vec<Key> {
    let home = object.namespace().map(|namespace| Key::new(None, namespace));
    let deleting = |key: &Key| view.get(&NAMESPACE, key).is_some_and(|home| home.is_deleting());
    home.filter(deleting).into_iter().collect()
}

fn status(cx: &Context<'_, Namespace>, content: &[Arc<Object>]) -> NamespaceStatus {
    let mut status = cx.typed.status.clone().unwrap_or_default();
    status.phase = Some("Terminating".to_owned());
    let mut conditions = status.conditions.take().unwrap_or_default();
    let (mut kinds, mut finalizers) = (BTreeMap::new(), BTreeMap::new());
    for object in content {
        let kind = object.kind();
        let group = if kind.group.is_empty() { String::new() } else { format!(".{}", kind.group) };
        let resource = format!("{}{group}", kind.plural);
        *kinds.entry(resource).or_insert(0_usize) += 1;
        for finalizer in object.finalizers() {
            *finalizers.entry(finalizer.clone()).or_insert(0_usize) += 1;
        }
    }
    let told = |counts: &BTreeMap<String, usize>, noun: &str| {
        counts
            .iter()
            .map(|(name, count)| format!("{name} {noun} {count} resource instances"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let remaining = format!("Some resources are remaining: {}", told(&kinds, "has"));
    let held = format!("Some content in the namespace has finalizers remaining: {}", told(&finalizers, "in"));
    let (is_held, why, finalized) = if finalizers.is_empty() {
        ("False", "ContentHasNoFinalizers", "All content-preserving finalizers finished")
    } else {
        ("True", "SomeFinalizersRemain", held.as_str())
    };
    let (discovered, parsed) =
        ("All resources successfully discovered", "All legacy kube types successfully parsed");
    let deleted = "All content successfully deleted, may be waiting on finalization";
    for (type_, value, reason, message) in [
        ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", discovered),
        ("NamespaceDeletionGroupVersionParsingFailure", "False", "ParsedGroupVersions", parsed),
        ("NamespaceDeletionContentFailure", "False", "ContentDeleted", deleted),
        ("NamespaceContentRemaining", "True", "SomeResourcesRemain", remaining.as_str()),
        ("NamespaceFinalizersRemaining", is_held, why, finalized),
    ] {
        set(&mut conditions, type_, value, reason, message, cx.now);
    }
    status.conditions = Some(conditions);
    status
}

/// Stamped only when the value flips (I12).
fn set(
    conditions: &mut Vec<NamespaceCondition>,
    type_: &str,
    value: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let before = conditions.iter().find(|one| one.type_ == type_ && one.status == value);
    let since = before.and_then(|one| one.last_transition_time.clone()).unwrap_or(Time(now));
    let new = NamespaceCondition {
        type_: type_.to_owned(),
        status: value.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(since),
    };
    match conditions.iter_mut().find(|one| one.type_ == type_) {
        Some(one) => *one = new,
        None => conditions.push(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::AnyMachine;
    use crate::testing::{CONFIG_MAP, Cluster, NODE};
    use serde_json::json;

    const SPACE: &str = "
kind: Namespace
metadata: {name: 'n'}
spec: {finalizers: [kubernetes]}
status: {phase: Active}
---
kind: ConfigMap
metadata: {name: held, finalizers: [example.com/hold]}
---
kind: ConfigMap
metadata: {name: free}
---
kind: ConfigMap
metadata: {name: elsewhere, namespace: other}
";

    fn here(name: &str) -> Key {
        Key::new(Some("n"), name)
    }

    #[test]
    fn content_goes_first_and_what_is_held_holds_the_namespace() {
        let machines = [AnyMachine::new(Namespaces)];
        let home = Key::new(None, "n");
        let mut cluster = Cluster::of(&[NAMESPACE, CONFIG_MAP, NODE], SPACE);
        cluster.settle(&machines);
        assert!(cluster.get(&CONFIG_MAP, &here("free")).is_some(), "nothing happens to an active namespace");

        cluster.delete(&NAMESPACE, &home, "Background");
        cluster.settle(&machines);
        assert!(cluster.get(&CONFIG_MAP, &here("free")).is_none());
        let status = cluster.get(&NAMESPACE, &home).unwrap()["status"].clone();
        assert_eq!(status["phase"], "Terminating");
        let told = |type_: &str| {
            let found =
                status["conditions"].as_array().unwrap().iter().find(|one| one["type"] == type_).unwrap();
            (found["status"].as_str().unwrap().to_owned(), found["message"].as_str().unwrap().to_owned())
        };
        assert_eq!(
            told("NamespaceContentRemaining"),
            ("True".into(), "Some resources are remaining: configmaps has 1 resource instances".into())
        );
        assert_eq!(
            told("NamespaceFinalizersRemaining"),
            (
                "True".into(),
                "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances".into()
            )
        );
        assert_eq!(told("NamespaceDeletionContentFailure").0, "False");

        cluster.edit(&CONFIG_MAP, &here("held"), &json!({"metadata": {"finalizers": null}}));
        cluster.settle(&machines);
        assert!(cluster.get(&NAMESPACE, &home).is_none());
        assert!(cluster.get(&CONFIG_MAP, &Key::new(Some("other"), "elsewhere")).is_some());
    }

    #[test]
    fn finalizers_of_others_stay() {
        let yaml = SPACE
            .replace("[kubernetes]", "[kubernetes, example.com/theirs]")
            .replace("finalizers: [example.com/hold]", "");
        let mut cluster = Cluster::of(&[NAMESPACE, CONFIG_MAP, NODE], &yaml);
        cluster.delete(&NAMESPACE, &Key::new(None, "n"), "Background");
        cluster.settle(&[AnyMachine::new(Namespaces)]);
        let left = cluster.get(&NAMESPACE, &Key::new(None, "n")).unwrap();
        assert_eq!(left["spec"]["finalizers"], json!(["example.com/theirs"]));
    }
}
