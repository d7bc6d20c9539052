//! What is the next thing to do for a StatefulSet: which of its numbered Pods to make or delete?
//!
//! ```text
//! OrderedReady   the lowest that is missing is made; the next one only when it is available
//!                too many: the highest goes; the next one only when it is gone
//! Parallel       all at once
//! update         from the highest down to the partition, one at a time, each available before the next
//! ```
//! Pods below the partition are made from the template that `status.currentRevision` names, all others from the
//! newest. Claims are made with their Pods and stay. Not here: adoption by labels, claim retention policies,
//! `maxUnavailable`.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec, StatefulSetStatus};
use pawl_api::k8s::{PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET};
use serde_json::{Value, json};

use super::job::{count, some};
use super::owned_pod::{self, MAX_AT_ONCE, OwnedPod, REFUSED_RETRY, REVISION};
use super::revision::{CONTROLLER_REVISION, Revisions};
use crate::json::object;
use crate::machine::{Description, Machine, Watch, Write};
use crate::object::Object;
use crate::plan::{Adopt, Note, Plan, Step, Wake};
use crate::time::later;
use crate::view::Context;

#[cfg(test)]
mod tests;

/// Runs StatefulSets.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatefulSets;

impl Machine for StatefulSets {
    type Kind = StatefulSet;
    type Status = StatefulSetStatus;

    fn description(&self) -> Description {
        Description {
            watches: vec![Watch::owned(POD), Watch::owned(CONTROLLER_REVISION)],
            writes: vec![
                Write::status(STATEFUL_SET),
                Write::main(POD, &["create", "delete"]),
                Write::main(PERSISTENT_VOLUME_CLAIM, &["create"]),
                Write::main(CONTROLLER_REVISION, &["create", "delete", "patch"]),
            ],
            ..Description::new("statefulset", STATEFUL_SET)
        }
    }

    fn is_fenced(&self) -> bool {
        true
    }

    fn reconcile(&self, cx: &Context<'_, StatefulSet>) -> Plan<StatefulSetStatus> {
        let Some(spec) = &cx.typed.spec else { return Plan::rest() };
        if cx.object.is_deleting() {
            return Plan::rest();
        }
        let (pods, revisions) = (pods_by_ordinal(cx), Revisions::of(cx));
        let status = cx.typed.status.clone().unwrap_or_default();
        let collided = i32::from(revisions.collides);
        let collisions = status.collision_count.unwrap_or_default().saturating_add(collided);
        let update = match revisions.current(collisions) {
            Ok(update) => update,
            Err(steps) => {
                let counted = StatefulSetStatus { collision_count: some(collisions), ..status };
                let plan = Plan { steps, ..Plan::rest() };
                return if revisions.collides { plan.status(counted) } else { plan };
            }
        };
        let known = |name: &String| revisions.template(name).is_some();
        let current = status.current_revision.clone().filter(known).unwrap_or_else(|| update.to_owned());
        let (pods, revisions) = (&pods, &revisions);
        Round { cx, pods, revisions, spec, update, current, status, plan: Plan::rest() }.finish()
    }
}

/// The Pods of a StatefulSet, by ordinal.
fn pods_by_ordinal(cx: &Context<'_, StatefulSet>) -> BTreeMap<i32, OwnedPod> {
    let prefix = format!("{}-", cx.object.name());
    let ordinal = |pod: &OwnedPod| {
        let ordinal = pod.name().strip_prefix(&prefix)?.parse::<i32>().ok()?;
        (format!("{prefix}{ordinal}") == pod.name()).then_some(ordinal)
    };
    let pods = OwnedPod::all_of(cx.view, cx.object).into_iter();
    pods.filter_map(|pod| Some((ordinal(&pod)?, pod))).collect()
}

/// One look at a StatefulSet.
struct Round<'a> {
    cx: &'a Context<'a, StatefulSet>,
    pods: &'a BTreeMap<i32, OwnedPod>,
    revisions: &'a Revisions,
    spec: &'a StatefulSetSpec,
    /// The name of the newest template, and of the one before while not all Pods are of the newest.
    update: &'a str,
    current: String,
    status: StatefulSetStatus,
    plan: Plan<StatefulSetStatus>,
}

impl<'a> Round<'a> {
    fn finish(mut self) -> Plan<StatefulSetStatus> {
        let _settled = self.fill() && self.shrink() && self.update();
        let report = self.report();
        let used = self.pods.values().filter_map(OwnedPod::revision);
        let kept = report.current_revision.iter().map(String::as_str);
        let in_use: BTreeSet<&str> = used.chain(kept).chain([self.update, &self.current]).collect();
        self.plan.steps.extend(self.revisions.forget(self.spec.revision_history_limit, &in_use));
        let pods = self.pods.values();
        if let Some(at) = owned_pod::next_available(pods, self.spec.min_ready_seconds, self.cx.now) {
            self.plan.wake = self.plan.wake.earliest(Wake::At(at));
        }
        self.plan.status(report)
    }

    fn is_ordered(&self) -> bool {
        self.spec.pod_management_policy.as_deref() != Some("Parallel")
    }

    fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1).max(0)
    }

    fn ordinals(&self) -> std::ops::Range<i32> {
        let start =
            self.spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or_default().max(0);
        start..start.saturating_add(self.replicas())
    }

    /// The ordinal below which Pods stay as they are.
    fn partition(&self) -> i32 {
        let rolling =
            self.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
        let partition = rolling.and_then(|rolling| rolling.partition).unwrap_or_default().max(0);
        self.ordinals().start.saturating_add(partition)
    }

    fn is_rolling(&self) -> bool {
        let strategy = self.spec.update_strategy.as_ref();
        strategy.and_then(|strategy| strategy.type_.as_deref()).is_none_or(|type_| type_ == "RollingUpdate")
    }

    fn is_healthy(&self, pod: &OwnedPod) -> bool {
        pod.is_active()
            && pod.phase() == "Running"
            && pod.is_available(self.spec.min_ready_seconds, self.cx.now)
    }

    /// Makes what is missing; whether it may go on from there.
    fn fill(&mut self) -> bool {
        let pods = self.pods;
        for ordinal in self.ordinals() {
            if self.plan.steps.len() >= MAX_AT_ONCE {
                return false;
            }
            match pods.get(&ordinal) {
                None => {
                    if !self.create(ordinal) || self.is_ordered() {
                        return false;
                    }
                }
                Some(pod) if pod.is_over() && !pod.is_terminating() => {
                    self.delete(pod);
                    if self.is_ordered() {
                        return false;
                    }
                }
                Some(pod) if self.is_ordered() && !self.is_healthy(pod) => {
                    return false;
                }
                Some(_) => {}
            }
        }
        true
    }

    /// Deletes what is too many, from the highest; whether it may go on from there.
    fn shrink(&mut self) -> bool {
        let wanted = self.ordinals();
        let surplus = self.pods.iter().rev().filter(|(ordinal, _)| !wanted.contains(ordinal));
        for (_, pod) in surplus.take(MAX_AT_ONCE) {
            if !pod.is_terminating() {
                self.delete(pod);
            }
            if self.is_ordered() {
                return false;
            }
        }
        true
    }

    /// Deletes the highest Pod of an older template, if all above are well; whether all are updated.
    fn update(&mut self) -> bool {
        if !self.is_rolling() {
            return true;
        }
        let (wanted, partition) = (self.ordinals(), self.partition());
        let pods = self.pods.iter().rev().filter(|(ordinal, _)| wanted.contains(ordinal));
        for (_, pod) in pods.take_while(|(ordinal, _)| **ordinal >= partition) {
            if pod.revision() != Some(self.update) && !pod.is_terminating() {
                self.delete(pod);
                return false;
            }
            if !self.is_healthy(pod) {
                return false;
            }
        }
        true
    }

    fn note(&mut self, reason: &str, message: String, once: &str) {
        self.plan.notes.push(Note::normal(reason, message).once(once));
    }

    fn delete(&mut self, pod: &OwnedPod) {
        self.plan.steps.push(pod.delete());
        let (name, set) = (pod.name(), self.cx.object.name());
        let message = format!("delete Pod {name} in StatefulSet {set} successful");
        self.note("SuccessfulDelete", message, pod.object.uid());
    }

    /// Whether it could be asked for.
    fn create(&mut self, ordinal: i32) -> bool {
        let me = self.cx.object;
        let (set, name) = (me.name(), format!("{}-{ordinal}", me.name()));
        // A Pod or a claim: revisions have their own way out.
        let refused = self.cx.refusals.iter().find(|refusal| refusal.kind != CONTROLLER_REVISION);
        if let Some(refused) = refused {
            let message =
                format!("create Pod {name} in StatefulSet {set} failed error: {}", refused.failure.message);
            self.plan.notes.push(Note::warning("FailedCreate", message));
            self.plan.wake = self.plan.wake.earliest(Wake::At(later(self.cx.now, REFUSED_RETRY)));
            return false;
        }
        let old = self.is_rolling() && ordinal < self.partition();
        let revision = if old { self.current.clone() } else { self.update.to_owned() };
        let Some(template) = self.revisions.template(&revision) else { return false };
        let claims = claims(me, ordinal);
        self.plan.steps.extend(claims.iter().map(|(_, manifest)| Step::Create {
            kind: PERSISTENT_VOLUME_CLAIM,
            manifest: manifest.clone(),
            adopt: Adopt::Anyones,
        }));
        let mut manifest = owned_pod::manifest(&template, &name);
        let labels = object(object(&mut manifest, "metadata"), "labels");
        labels["statefulset.kubernetes.io/pod-name"] = name.as_str().into();
        labels["apps.kubernetes.io/pod-index"] = ordinal.to_string().into();
        labels[REVISION] = revision.as_str().into();
        let spec = object(&mut manifest, "spec");
        spec["hostname"] = name.as_str().into();
        if let Some(service) = self.spec.service_name.as_deref().filter(|service| !service.is_empty()) {
            spec["subdomain"] = service.into();
        }
        mount(spec, &claims);
        self.plan.steps.push(Step::create_child(me, POD, manifest));
        let message = format!("create Pod {name} in StatefulSet {set} successful");
        let once = format!("{revision} {}", me.generation());
        self.note("SuccessfulCreate", message, &once);
        true
    }

    fn report(&self) -> StatefulSetStatus {
        let pods = self.pods.values();
        let of = |revision: &str| {
            let of = |pod: &&OwnedPod| pod.revision() == Some(revision) && !pod.is_terminating();
            count(pods.clone().filter(of).count())
        };
        let running = pods.clone().filter(|pod| pod.phase() == "Running");
        let tally = owned_pod::Tally::of(running, self.spec.min_ready_seconds, self.cx.now);
        let (all, updated) = (count(pods.clone().count()), of(self.update));
        let wanted = self.replicas();
        let complete = self.is_rolling() && (all, updated, tally.ready) == (wanted, wanted, wanted);
        let current = if complete { self.update } else { &self.current };
        StatefulSetStatus {
            replicas: all,
            ready_replicas: some(tally.ready),
            available_replicas: Some(tally.available),
            current_replicas: some(of(current)),
            updated_replicas: some(updated),
            current_revision: Some(current.to_owned()),
            update_revision: Some(self.update.to_owned()),
            observed_generation: Some(self.cx.object.generation()),
            collision_count: Some(self.status.collision_count.unwrap_or_default()),
            ..self.status.clone()
        }
    }
}

/// The claims of one Pod: the volume that each is for, and its manifest.
fn claims(set: &Object, ordinal: i32) -> Vec<(String, Value)> {
    let templates = set.raw().pointer("/spec/volumeClaimTemplates").and_then(Value::as_array);
    let selected = set.raw().pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    let claim = |template: &Value| {
        let volume = template.pointer("/metadata/name")?.as_str()?.to_owned();
        let mut manifest = json!({"metadata": template.get("metadata"), "spec": template.get("spec")});
        let metadata = object(&mut manifest, "metadata");
        metadata["name"] = format!("{volume}-{}-{ordinal}", set.name()).into();
        metadata["namespace"] = json!(set.namespace());
        let labels = object(metadata, "labels");
        for (label, value) in selected.into_iter().flatten() {
            labels[label] = value.clone();
        }
        Some((volume, manifest))
    };
    templates.into_iter().flatten().filter_map(claim).collect()
}

/// Puts the claims where the template names their volumes.
fn mount(spec: &mut Value, claims: &[(String, Value)]) {
    if claims.is_empty() {
        return;
    }
    let mut volumes = spec.get("volumes").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_claimed = |volume: &Value| claims.iter().any(|(name, _)| volume["name"] == name.as_str());
    volumes.retain(|volume| !is_claimed(volume));
    volumes.extend(claims.iter().map(|(volume, manifest)| {
        json!({"name": volume, "persistentVolumeClaim": {"claimName": manifest.pointer("/metadata/name")}})
    }));
    spec["volumes"] = volumes.into();
}
