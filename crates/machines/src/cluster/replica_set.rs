//! What is the next thing to do for a ReplicaSet: which Pods to make or delete?
//!
//! ```text
//! fewer Pods than wanted ─▶ make the missing ones      more ─▶ delete those that have done least
//! ```
//! A Pod that has ended or is on its way out counts no more. Not here: adoption of Pods by labels.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::k8s::{POD, REPLICA_SET};
use pawl_api::meta::names;

use super::job::some;
use super::owned_pod::{self, MAX_AT_ONCE, OwnedPod, REFUSED_RETRY, Tally};
use crate::machine::{Description, Machine, Watch, Write};
use crate::object::Object;
use crate::plan::{Note, Plan, Step};
use crate::time::later;
use crate::view::Context;

/// Says that Pods could not be made.
pub(super) const REPLICA_FAILURE: &str = "ReplicaFailure";

/// 20 bits, as many digits as Kubernetes' own suffixes have: two Pods of one set that would share a name only take the
/// next one.
const NAME_HEX: usize = 5;

/// Keeps as many Pods as a ReplicaSet asks for.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplicaSets;

impl Machine for ReplicaSets {
    type Kind = ReplicaSet;
    type Status = ReplicaSetStatus;

    fn description(&self) -> Description {
        Description {
            watches: vec![Watch::owned(POD)],
            writes: vec![Write::status(REPLICA_SET), Write::main(POD, &["create", "delete"])],
            ..Description::new("replicaset", REPLICA_SET)
        }
    }

    fn is_fenced(&self) -> bool {
        true
    }

    fn reconcile(&self, cx: &Context<'_, ReplicaSet>) -> Plan<ReplicaSetStatus> {
        let Some(spec) = &cx.typed.spec else { return Plan::rest() };
        let pods = OwnedPod::all_of(cx.view, cx.object);
        let active: Vec<&OwnedPod> = pods.iter().filter(|pod| pod.is_active()).collect();
        let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or_default();
        let mut plan = Plan::rest();
        if !cx.object.is_deleting() {
            plan = match wanted.checked_sub(active.len()) {
                None => delete(&active, active.len().saturating_sub(wanted)),
                Some(0) => plan,
                Some(missing) => create(cx, &pods, missing),
            };
        }
        if let Some(at) = owned_pod::next_available(active.iter().copied(), spec.min_ready_seconds, cx.now) {
            plan = plan.wake_at(at);
        }
        plan.status(status(cx, spec, &active, wanted))
    }
}

fn create(cx: &Context<'_, ReplicaSet>, pods: &[OwnedPod], missing: usize) -> Plan<ReplicaSetStatus> {
    if let Some(refused) = cx.refused(&POD) {
        let note = Note::warning("FailedCreate", format!("Error creating: {}", refused.message));
        return Plan::rest().note(note).wake_at(later(cx.now, REFUSED_RETRY));
    }
    let me = cx.object;
    let taken: BTreeSet<&str> = pods.iter().map(OwnedPod::name).collect();
    let mut used = BTreeSet::new();
    let template = me.raw().pointer("/spec/template").cloned().unwrap_or_default();
    let mut plan = Plan::rest();
    for number in 0_u64.. {
        if used.len() >= missing.min(MAX_AT_ONCE) {
            break;
        }
        let name = name(me, number);
        if taken.contains(name.as_str()) || !used.insert(name.clone()) {
            continue;
        }
        let note = Note::normal("SuccessfulCreate", format!("Created pod: {name}"));
        plan = plan
            .then(Step::create_child(me, POD, owned_pod::manifest(&template, &name)))
            .note(note.once(me.generation().to_string()));
    }
    plan
}

fn delete(active: &[&OwnedPod], surplus: usize) -> Plan<ReplicaSetStatus> {
    let mut active = active.to_vec();
    active.sort_by_cached_key(|pod| pod.cheapest_first());
    active.into_iter().take(surplus.min(MAX_AT_ONCE)).fold(Plan::rest(), |plan, pod| {
        let note = Note::normal("SuccessfulDelete", format!("Deleted pod: {}", pod.name()));
        plan.then(pod.delete()).note(note.once(pod.object.uid()))
    })
}

/// The name of a set's `number`th Pod: the same whoever makes it (I1).
fn name(set: &Object, number: u64) -> String {
    names::child(set.name(), &[set.uid(), &number.to_string()], NAME_HEX, names::MAX_LABEL)
}

fn status(
    cx: &Context<'_, ReplicaSet>,
    spec: &ReplicaSetSpec,
    active: &[&OwnedPod],
    wanted: usize,
) -> ReplicaSetStatus {
    let before = cx.typed.status.clone().unwrap_or_default();
    let tally = Tally::of(active.iter().copied(), spec.min_ready_seconds, cx.now);
    let labels = spec.template.as_ref().and_then(|template| template.metadata.as_ref()?.labels.as_ref());
    let fully_labelled = active.iter().filter(|pod| {
        labels.into_iter().flatten().all(|(label, value)| pod.object.label(label) == Some(value))
    });
    let mut conditions = before.conditions.unwrap_or_default();
    if let Some(refused) = cx.refused(&POD) {
        let failed = |one: &ReplicaSetCondition| one.type_ == REPLICA_FAILURE;
        let since =
            conditions.iter().find(|one| failed(one)).and_then(|one| one.last_transition_time.clone());
        conditions.retain(|one| !failed(one));
        conditions.push(ReplicaSetCondition {
            type_: REPLICA_FAILURE.to_owned(),
            status: "True".to_owned(),
            reason: Some("FailedCreate".to_owned()),
            message: Some(refused.message.clone()),
            last_transition_time: since.or(Some(Time(cx.now))),
        });
    } else if active.len() >= wanted {
        // Only once nothing is missing: between two attempts the reason still stands.
        conditions.retain(|one| one.type_ != REPLICA_FAILURE);
    }
    ReplicaSetStatus {
        replicas: tally.all,
        fully_labeled_replicas: some(super::job::count(fully_labelled.count())),
        ready_replicas: some(tally.ready),
        available_replicas: some(tally.available),
        observed_generation: Some(cx.object.generation()),
        conditions: Some(conditions).filter(|conditions| !conditions.is_empty()),
        ..before
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::machine::AnyMachine;
    use crate::object::Key;
    use crate::testing::Cluster;
    use crate::view::View as _;

    fn key() -> Key {
        Key::new(Some("n"), "web")
    }

    fn cluster(replicas: i32) -> Cluster {
        let set = json!({"kind": "ReplicaSet", "metadata": {"name": "web"}, "spec": {"replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "web:1"}]}}}});
        Cluster::of(&[REPLICA_SET, POD], &set.to_string())
    }

    fn settle(cluster: &mut Cluster) {
        cluster.settle(&[AnyMachine::new(ReplicaSets)]);
    }

    fn pods(cluster: &Cluster) -> Vec<String> {
        cluster.world.list(&POD, None).iter().map(|pod| pod.name().to_owned()).collect()
    }

    fn run(cluster: &mut Cluster, name: &str, ready: bool) {
        let ready = if ready { "True" } else { "False" };
        let status = json!({"phase": "Running", "conditions": [
            {"type": "Ready", "status": ready, "lastTransitionTime": cluster.now}]});
        cluster.node_runs(&Key::new(Some("n"), name), &status);
    }

    fn status(cluster: &Cluster) -> Value {
        cluster.get(&REPLICA_SET, &key()).unwrap()["status"].clone()
    }

    #[test]
    fn as_many_pods_as_wanted_are_made_once_and_carry_the_template_and_the_owner() {
        let mut cluster = cluster(3);
        settle(&mut cluster);
        let made = pods(&cluster);
        assert_eq!(made.len(), 3);
        let pod = cluster.get(&POD, &Key::new(Some("n"), &made[0])).unwrap();
        assert_eq!(pod["metadata"]["labels"], json!({"app": "web"}));
        assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], "replicaset-web");
        assert_eq!(
            status(&cluster),
            json!({"replicas": 3, "fullyLabeledReplicas": 3, "observedGeneration": 1})
        );
        let mut again = cluster;
        settle(&mut again);
        assert_eq!(pods(&again), made);
    }

    #[test]
    fn scaling_down_takes_the_pods_that_have_done_least() {
        let mut cluster = cluster(3);
        settle(&mut cluster);
        let made = pods(&cluster);
        run(&mut cluster, &made[1], true);
        run(&mut cluster, &made[0], false);
        cluster.edit(&REPLICA_SET, &key(), &json!({"spec": {"replicas": 1}}));
        settle(&mut cluster);
        let kept: Vec<_> =
            cluster.world.list(&POD, None).into_iter().filter(|pod| !pod.is_deleting()).collect();
        assert_eq!(kept.iter().map(|pod| pod.name()).collect::<Vec<_>>(), [made[1].as_str()]);
        assert_eq!(status(&cluster)["readyReplicas"], 1);
    }

    #[test]
    fn a_pod_that_ended_or_is_leaving_is_replaced() {
        let mut cluster = cluster(1);
        settle(&mut cluster);
        let first = pods(&cluster)[0].clone();
        cluster.edit(&POD, &Key::new(Some("n"), &first), &json!({"status": {"phase": "Failed"}}));
        settle(&mut cluster);
        assert_eq!(pods(&cluster).len(), 2);
        assert_eq!(status(&cluster)["replicas"], 1);
    }

    #[test]
    fn a_pod_is_available_after_it_was_ready_long_enough() {
        let mut cluster = cluster(1);
        cluster.edit(&REPLICA_SET, &key(), &json!({"spec": {"minReadySeconds": 30}}));
        settle(&mut cluster);
        let name = pods(&cluster)[0].clone();
        run(&mut cluster, &name, true);
        settle(&mut cluster);
        assert_eq!(status(&cluster)["readyReplicas"], 1);
        assert_eq!(status(&cluster).get("availableReplicas"), None);
        let me = cluster.world.get(&REPLICA_SET, &key()).unwrap();
        let wake = cluster.plan(&AnyMachine::new(ReplicaSets), &me).wake;
        assert_eq!(wake, crate::plan::Wake::At(cluster.now + std::time::Duration::from_secs(30)));
        cluster.advance(std::time::Duration::from_secs(30));
        settle(&mut cluster);
        assert_eq!(status(&cluster)["availableReplicas"], 1);
    }

    #[test]
    fn a_refusal_is_told_and_forgotten_once_the_pods_are_there() {
        let mut cluster = cluster(1);
        let body = json!({"kind": "Status", "reason": "Forbidden", "message": "exceeded quota", "code": 403});
        cluster.refuse_create = Some((POD, 403, body));
        let machine = AnyMachine::new(ReplicaSets);
        cluster.step(&machine, &REPLICA_SET, &key());
        cluster.step(&machine, &REPLICA_SET, &key());
        let told = status(&cluster)["conditions"][0].clone();
        assert_eq!(
            (told["type"].as_str(), told["reason"].as_str()),
            (Some("ReplicaFailure"), Some("FailedCreate"))
        );
        assert!(told["message"].as_str().unwrap().contains("exceeded quota"), "{told}");
        assert_eq!(cluster.events[0].1, "FailedCreate");
        cluster.refuse_create = None;
        settle(&mut cluster);
        assert_eq!(status(&cluster).get("conditions"), None);
    }

    #[test]
    fn a_set_that_is_being_deleted_makes_nothing() {
        let mut cluster = cluster(2);
        cluster.edit(&REPLICA_SET, &key(), &json!({"metadata": {"finalizers": ["example.com/hold"]}}));
        cluster.delete(&REPLICA_SET, &key(), "Background");
        settle(&mut cluster);
        assert!(pods(&cluster).is_empty());
    }
}
