//! What is the next thing to do for a DaemonSet: which node lacks its Pod, and which Pod is out of date?
//!
//! ```text
//! a node that it is for, without a Pod ─▶ make one there      a Pod elsewhere, or ended ─▶ delete it
//! an older template ─▶ deleted, at most maxUnavailable nodes at a time, those that are unavailable anyway first
//! ```
//! Pods are bound to their node as they are made: there is no scheduler to ask. A node is meant by `nodeSelector` and
//! taints. Not here: node affinity, adoption by labels; `maxSurge` is read as `maxUnavailable`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Node, PodSpec, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use pawl_api::k8s::{DAEMON_SET, NODE, POD};
use pawl_api::meta::names;

use super::deployment::sizes::{Round as Rounding, share};
use super::job::{count, some};
use super::owned_pod::{self, MAX_AT_ONCE, OwnedPod, REFUSED_RETRY, REVISION};
use super::revision::{CONTROLLER_REVISION, Revisions, hash_of};
use crate::json::object;
use crate::machine::{Description, Machine, Watch, Write};
use crate::object::{Key, Object};
use crate::plan::{Note, Plan, Step, Wake};
use crate::time::later;
use crate::view::{Context, View};

#[cfg(test)]
mod tests;

/// 20 bits, as many digits as Kubernetes' own suffixes have; a clash of two nodes is refused, told, and tried again.
const NAME_HEX: usize = 5;

/// What Kubernetes lets every Pod of a DaemonSet tolerate: a node in trouble still needs its daemons.
const TOLERATED: [&str; 7] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/network-unavailable",
];

/// A DaemonSet with its Pods, its templates, and the nodes.
struct Facts<'a> {
    cx: &'a Context<'a, DaemonSet>,
    pods: Vec<OwnedPod>,
    nodes: Vec<Arc<Object>>,
    revisions: Revisions,
}

/// Keeps one Pod on every node that a DaemonSet is for.
#[derive(Clone, Copy, Debug, Default)]
pub struct DaemonSets;

impl Machine for DaemonSets {
    type Kind = DaemonSet;
    type Status = DaemonSetStatus;

    fn description(&self) -> Description {
        Description {
            watches: vec![
                Watch::owned(POD),
                Watch::owned(CONTROLLER_REVISION),
                Watch::other(NODE, every_daemon_set),
            ],
            writes: vec![
                Write::status(DAEMON_SET),
                Write::main(POD, &["create", "delete"]),
                Write::main(CONTROLLER_REVISION, &["create", "delete", "patch"]),
            ],
            ..Description::new("daemonset", DAEMON_SET)
        }
    }

    fn is_fenced(&self) -> bool {
        true
    }

    fn reconcile(&self, cx: &Context<'_, DaemonSet>) -> Plan<DaemonSetStatus> {
        let Some(spec) = &cx.typed.spec else { return Plan::rest() };
        if cx.object.is_deleting() {
            return Plan::rest();
        }
        let facts = Facts {
            cx,
            pods: OwnedPod::all_of(cx.view, cx.object),
            nodes: cx.view.list(&NODE, None),
            revisions: Revisions::of(cx),
        };
        let status = cx.typed.status.clone().unwrap_or_default();
        let collided = i32::from(facts.revisions.collides);
        let collisions = status.collision_count.unwrap_or_default().saturating_add(collided);
        match facts.revisions.current(collisions) {
            Ok(revision) => Round::new(&facts, spec, revision).finish(status),
            Err(steps) => {
                let plan = Plan { steps, ..Plan::rest() };
                let counted = DaemonSetStatus { collision_count: some(collisions), ..status };
                if facts.revisions.collides { plan.status(counted) } else { plan }
            }
        }
    }
}

/// A node that comes, goes or changes may matter to every DaemonSet.
fn every_daemon_set(_: &Object, view: &dyn View) -> Vec<Key> {
    view.list(&DAEMON_SET, None).iter().map(|set| set.key()).collect()
}

/// One look at a DaemonSet.
struct Round<'a> {
    facts: &'a Facts<'a>,
    spec: &'a DaemonSetSpec,
    revision: &'a str,
    /// The Pods on every node that the set is for.
    homes: BTreeMap<&'a str, Vec<&'a OwnedPod>>,
    /// Pods anywhere else.
    strays: Vec<&'a OwnedPod>,
    plan: Plan<DaemonSetStatus>,
}

impl<'a> Round<'a> {
    fn new(facts: &'a Facts<'a>, spec: &'a DaemonSetSpec, revision: &'a str) -> Self {
        let meant = facts.nodes.iter().filter(|node| is_meant(node, spec.template.spec.as_ref()));
        let mut homes: BTreeMap<&str, Vec<&OwnedPod>> = meant.map(|node| (node.name(), vec![])).collect();
        let mut strays = Vec::new();
        for pod in &facts.pods {
            match pod.node().and_then(|node| homes.get_mut(node)) {
                Some(home) => home.push(pod),
                None => strays.push(pod),
            }
        }
        Self { facts, spec, revision, homes, strays, plan: Plan::rest() }
    }

    fn finish(mut self, before: DaemonSetStatus) -> Plan<DaemonSetStatus> {
        self.keep_one_each();
        self.update();
        let used = self.facts.pods.iter().filter_map(OwnedPod::revision);
        let name = |hash: &str| format!("{}-{hash}", self.facts.cx.object.name());
        let used: Vec<String> = used.map(name).collect();
        let in_use: BTreeSet<&str> = used.iter().map(String::as_str).chain([self.revision]).collect();
        self.plan.steps.extend(self.facts.revisions.forget(self.spec.revision_history_limit, &in_use));
        let pods = &self.facts.pods;
        if let Some(at) = owned_pod::next_available(pods, self.spec.min_ready_seconds, self.facts.cx.now) {
            self.plan.wake = self.plan.wake.earliest(Wake::At(at));
        }
        let status = self.report(before);
        self.plan.status(status)
    }

    fn is_updated(&self, pod: &OwnedPod) -> bool {
        pod.revision() == Some(hash_of(self.revision))
    }

    fn is_available(&self, pod: &OwnedPod) -> bool {
        pod.is_active() && pod.is_available(self.spec.min_ready_seconds, self.facts.cx.now)
    }

    /// A Pod where one is missing; none where none should be, or where one has ended.
    fn keep_one_each(&mut self) {
        let mut doomed: Vec<&OwnedPod> = self.strays.clone();
        let mut vacant = Vec::new();
        for (node, pods) in &self.homes {
            doomed.extend(pods.iter().filter(|pod| pod.is_over()));
            let mut active: Vec<&OwnedPod> = pods.iter().copied().filter(|pod| pod.is_active()).collect();
            active.sort_by_key(|pod| (!self.is_updated(pod), pod.name().to_owned()));
            doomed.extend(active.iter().skip(1));
            if pods.is_empty() {
                vacant.push(*node);
            }
        }
        for pod in doomed.into_iter().filter(|pod| !pod.is_terminating()).take(MAX_AT_ONCE) {
            self.delete(pod);
        }
        for node in vacant.into_iter().take(MAX_AT_ONCE) {
            if !self.create(node) {
                return;
            }
        }
    }

    fn update(&mut self) {
        let strategy = self.spec.update_strategy.as_ref();
        if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
            return;
        }
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let one = IntOrString::Int(1);
        let limit = |amount: Option<&IntOrString>| {
            share(amount.unwrap_or(&one), count(self.homes.len()), Rounding::Up)
        };
        let unavailable = limit(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()));
        let surge =
            rolling.and_then(|rolling| rolling.max_surge.as_ref()).map_or(0, |surge| limit(Some(surge)));
        let allowed = usize::try_from(unavailable.max(surge).max(1)).unwrap_or(usize::MAX);
        let (mut well, mut ill) = (Vec::new(), Vec::new());
        let mut down = 0_usize;
        for pods in self.homes.values() {
            let available = pods.iter().any(|pod| self.is_available(pod));
            down = down.saturating_add(usize::from(!available));
            let old = pods.iter().find(|pod| pod.is_active() && !self.is_updated(pod));
            match old {
                Some(pod) if available => well.push(*pod),
                Some(pod) => ill.push(*pod),
                None => {}
            }
        }
        let room = allowed.saturating_sub(down);
        for pod in ill.into_iter().chain(well.into_iter().take(room)).take(MAX_AT_ONCE) {
            self.delete(pod);
        }
    }

    fn delete(&mut self, pod: &OwnedPod) {
        let step = pod.delete();
        if self.plan.steps.contains(&step) {
            return;
        }
        self.plan.steps.push(step);
        let note = Note::normal("SuccessfulDelete", format!("Deleted pod: {}", pod.name()));
        self.plan.notes.push(note.once(pod.object.uid()));
    }

    /// Whether it could be asked for.
    fn create(&mut self, node: &str) -> bool {
        if let Some(refused) = self.facts.cx.refused(&POD) {
            let message = format!("Error creating: {}", refused.message);
            self.plan.notes.push(Note::warning("FailedCreate", message));
            self.plan.wake = self.plan.wake.earliest(Wake::At(later(self.facts.cx.now, REFUSED_RETRY)));
            return false;
        }
        let me = self.facts.cx.object;
        let hash = hash_of(self.revision);
        let name = names::child(me.name(), &[me.uid(), node, hash], NAME_HEX, names::MAX_LABEL);
        let template = me.raw().pointer("/spec/template").cloned().unwrap_or_default();
        let mut manifest = owned_pod::manifest(&template, &name);
        object(object(&mut manifest, "metadata"), "labels")[REVISION] = hash.into();
        object(&mut manifest, "spec")["nodeName"] = node.into();
        self.plan.steps.push(Step::create_child(me, POD, manifest));
        let note = Note::normal("SuccessfulCreate", format!("Created pod: {name}"));
        self.plan.notes.push(note.once(me.generation().to_string()));
        true
    }

    fn report(&self, before: DaemonSetStatus) -> DaemonSetStatus {
        let nodes = |holds: &dyn Fn(&OwnedPod) -> bool| {
            count(self.homes.values().filter(|pods| pods.iter().any(|pod| holds(pod))).count())
        };
        let desired = count(self.homes.len());
        let available = nodes(&|pod| self.is_available(pod));
        DaemonSetStatus {
            desired_number_scheduled: desired,
            current_number_scheduled: nodes(&|pod| pod.is_active()),
            number_misscheduled: count(self.strays.iter().filter(|pod| pod.is_active()).count()),
            number_ready: nodes(&|pod| pod.is_active() && pod.is_ready()),
            number_available: some(available),
            number_unavailable: some(desired.saturating_sub(available)),
            updated_number_scheduled: some(nodes(&|pod| pod.is_active() && self.is_updated(pod))),
            observed_generation: Some(self.facts.cx.object.generation()),
            ..before
        }
    }
}

/// Whether a node is one that Pods of this kind go to.
fn is_meant(node: &Object, pod: Option<&PodSpec>) -> bool {
    let Ok(parsed) = node.parse::<Node>() else { return false };
    let selector = pod.and_then(|pod| pod.node_selector.as_ref());
    let selected = selector.into_iter().flatten().all(|(label, value)| node.label(label) == Some(value));
    let tolerations = pod.and_then(|pod| pod.tolerations.as_deref()).unwrap_or_default();
    let taints = parsed.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let repels = |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
    selected
        && !node.is_deleting()
        && taints.iter().filter(repels).all(|taint| {
            TOLERATED.contains(&taint.key.as_str()) || tolerations.iter().any(|one| tolerates(one, taint))
        })
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let key = toleration.key.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    let effect =
        toleration.effect.as_deref().is_none_or(|effect| effect.is_empty() || effect == taint.effect);
    let value =
        || toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
    effect && if key.is_empty() { exists } else { key == taint.key && (exists || value()) }
}
