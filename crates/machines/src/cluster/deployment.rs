//! What is the next thing to do for a Deployment: which ReplicaSet to make, grow, shrink or forget?
//!
//! ```text
//! RollingUpdate   new set made ─▶ new grows (at most maxSurge above) ⇄ old shrink (at most maxUnavailable below)
//! Recreate        old sets at 0 ─▶ their Pods are gone ─▶ new set made at full size
//! either          all Pods new and available ─▶ complete: sets beyond revisionHistoryLimit go
//! ```
//! The rules, annotations, conditions and Events are those of Kubernetes' own controller. Not here: adoption of
//! ReplicaSets by labels (a name that is taken by a stranger is avoided through `collisionCount`, as there).

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStatus, ReplicaSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use pawl_api::k8s::{DEPLOYMENT, POD, REPLICA_SET};
use pawl_api::meta::names;
use serde_json::{Value, json};

use super::owned_pod::{OwnedPod, REFUSED_RETRY};
use crate::failure::Failure;
use crate::json::object;
use crate::machine::{Description, Machine, Watch, Write};
use crate::object::{Key, Object};
use crate::plan::{Note, Plan, Step, Wake};
use crate::time::later;
use crate::view::{Context, View};

pub(super) mod sizes;
mod status;
#[cfg(test)]
mod tests;

use sizes::Limits;

const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAX: &str = "deployment.kubernetes.io/max-replicas";

/// Tells the Pods of one template from those of another.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// Annotations that a ReplicaSet does not take over from its Deployment.
const OWN_ANNOTATIONS: [&str; 5] =
    ["kubectl.kubernetes.io/last-applied-configuration", REVISION, REVISION_HISTORY, DESIRED, MAX];

/// 40 bits: a Deployment would need a million templates for an even chance of two with the same name.
const HASH_HEX: usize = 10;

/// Kubernetes' number of old ReplicaSets that are kept.
const HISTORY: i32 = 10;

/// Rolls Deployments out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deployments;

/// A ReplicaSet as it was last seen.
#[derive(Debug)]
struct Set {
    object: Arc<Object>,
    set: Arc<ReplicaSet>,
    /// Its Pods that have not ended, on their way out or not.
    pods: usize,
}

impl Machine for Deployments {
    type Kind = Deployment;
    type Status = DeploymentStatus;

    fn description(&self) -> Description {
        Description {
            watches: vec![Watch::owned(REPLICA_SET), Watch::other(POD, deployment_of)],
            writes: vec![
                Write::main(DEPLOYMENT, &["patch"]),
                Write::status(DEPLOYMENT),
                Write::main(REPLICA_SET, &["create", "patch", "delete"]),
            ],
            ..Description::new("deployment", DEPLOYMENT)
        }
    }

    fn is_fenced(&self) -> bool {
        true
    }

    fn reconcile(&self, cx: &Context<'_, Deployment>) -> Plan<DeploymentStatus> {
        let Some(spec) = &cx.typed.spec else { return Plan::rest() };
        if cx.object.is_deleting() {
            return Plan::rest();
        }
        let sets = sets(cx);
        Round::new(cx, &sets, spec).decide()
    }
}

/// The ReplicaSets of a Deployment, oldest first.
fn sets(cx: &Context<'_, Deployment>) -> Vec<Set> {
    let set_of = |object: Arc<Object>| {
        let set = object.parse::<ReplicaSet>().ok()?;
        let pods = OwnedPod::all_of(cx.view, &object).iter().filter(|pod| !pod.is_over()).count();
        Some(Set { object, set, pods })
    };
    let controlled = cx.view.controlled(&REPLICA_SET, cx.object).into_iter();
    let mut sets: Vec<Set> = controlled.filter_map(set_of).collect();
    sets.sort_by_key(|set| (set.object.meta().creation_timestamp.clone(), set.name().to_owned()));
    sets
}

/// A Pod's change matters to the Deployment that controls its ReplicaSet.
fn deployment_of(pod: &Object, view: &dyn View) -> Vec<Key> {
    let set = pod.controller().filter(|owner| owner.kind == REPLICA_SET.kind);
    let set = set.and_then(|owner| view.get(&REPLICA_SET, &Key::new(pod.namespace(), &owner.name)));
    let owner = set.as_ref().and_then(|set| set.controller());
    let owner = owner.filter(|owner| owner.kind == DEPLOYMENT.kind);
    owner.map(|owner| Key::new(pod.namespace(), &owner.name)).into_iter().collect()
}

impl Set {
    fn name(&self) -> &str {
        self.object.name()
    }

    fn wanted(&self) -> i32 {
        self.set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    fn replicas(&self) -> i32 {
        self.set.status.as_ref().map_or(0, |status| status.replicas)
    }

    fn ready(&self) -> i32 {
        self.set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default()
    }

    fn available(&self) -> i32 {
        self.set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or_default()
    }

    fn number(&self, annotation: &str) -> Option<i64> {
        self.object.annotation(annotation)?.parse().ok()
    }

    fn revision(&self) -> i64 {
        self.number(REVISION).unwrap_or_default()
    }

    fn is_of(&self, template: &PodTemplateSpec) -> bool {
        let mine = self.set.spec.as_ref().and_then(|spec| spec.template.clone());
        mine.is_some_and(|mine| without_hash(mine) == without_hash(template.clone()))
    }

    /// Whether it is at 0, and its own controller has seen that.
    fn is_settled_at_zero(&self) -> bool {
        let observed = self.set.status.as_ref().and_then(|status| status.observed_generation);
        self.wanted() == 0 && self.replicas() == 0 && observed >= Some(self.object.generation())
    }

    fn patch(&self, patch: Value) -> Step {
        Step::patch_unchanged(&self.object, patch)
    }
}

fn without_hash(mut template: PodTemplateSpec) -> PodTemplateSpec {
    let metadata = template.metadata.get_or_insert_default();
    if let Some(labels) = &mut metadata.labels {
        labels.remove(TEMPLATE_HASH);
    }
    if metadata.labels.as_ref().is_some_and(BTreeMap::is_empty) {
        metadata.labels = None;
    }
    template
}

/// One look at a Deployment.
struct Round<'a> {
    cx: &'a Context<'a, Deployment>,
    spec: &'a DeploymentSpec,
    /// Why the API server does not want the ReplicaSet.
    refused: Option<&'a Failure>,
    replicas: i32,
    limits: Limits,
    /// The set of the template as it is now.
    new: Option<&'a Set>,
    /// All others, oldest first.
    old: Vec<&'a Set>,
    plan: Plan<DeploymentStatus>,
    /// The set that this round makes.
    made: Option<String>,
}

impl<'a> Round<'a> {
    fn new(cx: &'a Context<'a, Deployment>, sets: &'a [Set], spec: &'a DeploymentSpec) -> Self {
        let new = sets.iter().find(|set| set.is_of(&spec.template));
        let is_new = |set: &&Set| new.is_some_and(|new| new.object.uid() == set.object.uid());
        let old = sets.iter().filter(|set| !is_new(set)).collect();
        let replicas = spec.replicas.unwrap_or(1).max(0);
        let limits = Limits::of(spec.strategy.as_ref(), replicas);
        let refused = cx.refused(&REPLICA_SET);
        Self { cx, spec, refused, replicas, limits, new, old, plan: Plan::rest(), made: None }
    }

    fn decide(mut self) -> Plan<DeploymentStatus> {
        // Both change what the rest is decided on, so they come alone.
        if let Some(step) = self.new.and_then(|new| self.annotate(new)).or_else(|| self.record_revision()) {
            return Plan::rest().then(self.confirm()).then(step);
        }
        if self.is_paused() || self.is_being_scaled() {
            self.scale();
            if self.is_paused() {
                self.forget_history();
            }
        } else if self.limits.recreate {
            self.recreate();
        } else {
            self.roll();
        }
        if self.plan.steps.iter().any(|step| matches!(step, Step::Patch { .. })) {
            // Sets that were seen later than the Deployment itself would be sized for what nobody asks any more.
            self.plan.steps.insert(0, self.confirm());
        }
        self.report()
    }

    fn confirm(&self) -> Step {
        Step::confirm_unchanged(self.cx.object)
    }

    fn is_paused(&self) -> bool {
        self.spec.paused == Some(true)
    }

    fn sets(&self) -> impl Iterator<Item = &'a Set> {
        self.new.into_iter().chain(self.old.clone())
    }

    fn recreate(&mut self) {
        let old = self.old.clone();
        if old.iter().filter(|set| self.resize(set, 0)).count() > 0 {
            return;
        }
        if old.iter().any(|set| set.pods > 0) {
            return;
        }
        let Some(new) = self.new else { return self.make(self.replicas) };
        if !self.resize(new, self.replicas) {
            self.forget_history();
        }
    }

    fn roll(&mut self) {
        let Some(new) = self.new else {
            let size = sizes::new_size(0, self.total(), self.replicas, self.limits);
            return self.make(size);
        };
        let size = sizes::new_size(new.wanted(), self.total(), self.replicas, self.limits);
        if self.resize(new, size) {
            return;
        }
        let shrunk = sizes::shrink_old(new, &self.old, self.replicas, self.limits);
        let old = self.old.clone();
        let resized = old.iter().zip(shrunk).filter(|(set, size)| self.resize(set, *size)).count();
        if resized == 0 {
            self.forget_history();
        }
    }

    fn total(&self) -> i32 {
        self.sets().fold(0, |sum, set| sum.saturating_add(set.wanted()))
    }

    /// Whether somebody changed `spec.replicas` since the sets were sized.
    fn is_being_scaled(&self) -> bool {
        let desired = i64::from(self.replicas);
        self.sets()
            .filter(|set| set.wanted() > 0)
            .any(|set| set.number(DESIRED).is_some_and(|was| was != desired))
    }

    /// Brings the sets to a new number of replicas, without moving a rollout on.
    fn scale(&mut self) {
        let all: Vec<&Set> = self.sets().collect();
        let active: Vec<&Set> = all.iter().copied().filter(|set| set.wanted() > 0).collect();
        match active.as_slice() {
            [] => {
                let latest = self.new.or_else(|| self.old.iter().max_by_key(|set| set.revision()).copied());
                if let Some(latest) = latest {
                    self.resize(latest, self.replicas);
                }
            }
            [one] => {
                self.resize(one, self.replicas);
            }
            _ if self.new.is_some_and(|new| self.is_saturated(new)) => {
                for set in self.old.clone() {
                    self.resize(set, 0);
                }
            }
            _ if self.limits.recreate => {}
            several => {
                for (set, size) in sizes::proportional(several, self.replicas, self.limits) {
                    self.resize(set, size);
                }
            }
        }
    }

    fn is_saturated(&self, new: &Set) -> bool {
        let desired = new.number(DESIRED) == Some(i64::from(self.replicas));
        desired && new.wanted() == self.replicas && new.available() == self.replicas
    }

    /// Whether the set had to be changed.
    fn resize(&mut self, set: &Set, to: i32) -> bool {
        let max = i64::from(self.replicas.saturating_add(self.limits.surge));
        let desired = i64::from(self.replicas);
        let from = set.wanted();
        // A set that was never sized by a Deployment is given its annotations when it is first resized.
        let stale = set.wanted() > 0 && set.number(DESIRED).is_some_and(|was| was != desired);
        if from == to && !stale {
            return false;
        }
        let annotations = json!({DESIRED: desired.to_string(), MAX: max.to_string()});
        let patch = json!({"metadata": {"annotations": annotations}, "spec": {"replicas": to}});
        self.plan.steps.push(set.patch(patch));
        if from != to {
            self.note_size(set.name(), from, to);
        }
        true
    }

    fn note_size(&mut self, name: &str, from: i32, to: i32) {
        let direction = if to > from { "up" } else { "down" };
        let message = format!("Scaled {direction} replica set {name} from {from} to {to}");
        let note = Note::normal("ScalingReplicaSet", message);
        self.plan.notes.push(note.once(self.cx.object.generation().to_string()));
    }

    fn collisions(&self) -> i32 {
        let status = self.cx.typed.status.as_ref();
        let before = status.and_then(|status| status.collision_count).unwrap_or_default();
        before.saturating_add(i32::from(self.collides()))
    }

    /// Whether somebody else's ReplicaSet has the name that ours should have.
    fn collides(&self) -> bool {
        self.refused.is_some_and(|refused| refused.is("OwnershipMismatch"))
    }

    /// Makes the ReplicaSet of the template, under a name that the template gives (I1).
    fn make(&mut self, size: i32) {
        if let Some(refused) = self.refused.filter(|_| !self.collides()) {
            let message = format!("Failed to create new replica set: {}", refused.message);
            self.plan.notes.push(Note::warning("ReplicaSetCreateError", message));
            self.plan.wake = Wake::At(later(self.cx.now, REFUSED_RETRY));
            return;
        }
        let me = self.cx.object;
        let hash = hash(&self.spec.template, self.collisions());
        let name = set_name(me.name(), &hash);
        let mut template = me.raw().pointer("/spec/template").cloned().unwrap_or_default();
        object(object(&mut template, "metadata"), "labels")[TEMPLATE_HASH] = hash.as_str().into();
        let labels = template.pointer("/metadata/labels").cloned().unwrap_or_default();
        let mut selector = me.raw().pointer("/spec/selector").cloned().unwrap_or_default();
        object(&mut selector, "matchLabels")[TEMPLATE_HASH] = hash.as_str().into();
        let max = self.replicas.saturating_add(self.limits.surge);
        let mut annotations = self.inherited();
        annotations.insert(REVISION.to_owned(), self.next_revision().to_string());
        annotations.insert(DESIRED.to_owned(), self.replicas.to_string());
        annotations.insert(MAX.to_owned(), max.to_string());
        let spec = json!({"replicas": size, "selector": selector, "template": template});
        let metadata = json!({"name": name, "labels": labels, "annotations": annotations});
        let mut manifest = json!({"metadata": metadata, "spec": spec});
        if let Some(seconds) = self.spec.min_ready_seconds.filter(|seconds| *seconds != 0) {
            object(&mut manifest, "spec")["minReadySeconds"] = seconds.into();
        }
        self.plan.steps.push(Step::create_child(me, REPLICA_SET, manifest));
        if size > 0 {
            self.note_size(&name, 0, size);
        }
        self.made = Some(name);
    }

    fn next_revision(&self) -> i64 {
        self.old.iter().map(|set| set.revision()).max().unwrap_or_default().saturating_add(1)
    }

    /// The annotations that a set takes over.
    fn inherited(&self) -> BTreeMap<String, String> {
        let inherited = self.cx.object.annotations().filter(|(name, _)| !OWN_ANNOTATIONS.contains(name));
        inherited.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Keeps the current set's annotations and waiting time those of the Deployment; a set that was current before and
    /// is again (an undo) gets a new revision and remembers the one it had.
    fn annotate(&self, new: &Set) -> Option<Step> {
        let mut wanted = self.inherited();
        let revision = self.next_revision();
        if new.revision() < revision {
            wanted.insert(REVISION.to_owned(), revision.to_string());
            if let Some(before) = new.object.annotation(REVISION) {
                let history = new.object.annotation(REVISION_HISTORY);
                let history = history.map_or_else(|| before.to_owned(), |one| format!("{one},{before}"));
                wanted.insert(REVISION_HISTORY.to_owned(), history);
            }
        }
        wanted.retain(|name, value| new.object.annotation(name) != Some(value));
        let spec = new.set.spec.as_ref();
        let seconds = self.spec.min_ready_seconds.unwrap_or_default();
        let waits = spec.and_then(|spec| spec.min_ready_seconds).unwrap_or_default();
        let mut patch = json!({});
        if !wanted.is_empty() {
            object(&mut patch, "metadata")["annotations"] = json!(wanted);
        }
        if waits != seconds {
            object(&mut patch, "spec")["minReadySeconds"] = seconds.into();
        }
        (patch != json!({})).then(|| new.patch(patch))
    }

    fn record_revision(&self) -> Option<Step> {
        let me = self.cx.object;
        let revision = self.new?.object.annotation(REVISION)?;
        (me.annotation(REVISION) != Some(revision))
            .then(|| Step::patch_unchanged(me, json!({"metadata": {"annotations": {REVISION: revision}}})))
    }

    /// Deletes old sets beyond the limit, once nobody needs them for anything but an undo.
    fn forget_history(&mut self) {
        if !self.is_complete(&self.counts()) && !self.is_paused() {
            return;
        }
        let limit = usize::try_from(self.spec.revision_history_limit.unwrap_or(HISTORY)).unwrap_or_default();
        let mut kept: Vec<&Set> = self.old.iter().copied().filter(|set| !set.object.is_deleting()).collect();
        kept.sort_by_key(|set| set.revision());
        let surplus = kept.len().saturating_sub(limit);
        for set in kept.into_iter().take(surplus).filter(|set| set.is_settled_at_zero()) {
            self.plan.steps.push(Step::delete_unchanged(&set.object));
        }
    }
}

/// What a template comes to: the same for the same template, whoever asks (I1).
fn hash(template: &PodTemplateSpec, collisions: i32) -> String {
    let text = serde_json::to_string(&without_hash(template.clone())).unwrap_or_default();
    names::hash(&[&text, &collisions.to_string()], HASH_HEX)
}

fn set_name(deployment: &str, hash: &str) -> String {
    let room = names::MAX_SUBDOMAIN.saturating_sub(HASH_HEX).saturating_sub(1);
    let stem = deployment.get(..room.min(deployment.len())).unwrap_or(deployment);
    format!("{}-{hash}", stem.trim_end_matches(['-', '.']))
}
