//! Whom does a change concern?
//!
//! A target's own changes, and those of its Pods, wake whoever waits for it: for its conditions, or with its approval. An
//! execution that is over is woken by nothing of its target.

use std::sync::Arc;

use pawl_api::git::workflow::WAITS_FOR;
use pawl_api::k8s::{DEPLOYMENT, REPLICA_SET};
use pawl_api::meta::{Phase as _, Target};
use pawl_api::pawl::Approval;
use pawl_api::pawl::labels::{OWNER_KIND, POLICY, TARGET_HASH};
use pawl_api::remedy::annotations::{EXECUTION, ROLLBACK_OF};
use pawl_api::remedy::kubernetes_execution::KIND;
use pawl_api::remedy::{KubernetesExecution, KubernetesExecutionPhase};

use super::locking::first_in_line;
use crate::lock::{self, LEASE, Lock};
use crate::object::{Key, Object};
use crate::remedy::identity::APPROVER;
use crate::view::View;

/// A Job: it names its execution in full.
pub(super) fn of_the_job(job: &Object, _: &dyn View) -> Vec<Key> {
    execution_of(job).into_iter().collect()
}

/// A Pod of a Job of ours, or of a target.
pub(super) fn of_the_pod(pod: &Object, view: &dyn View) -> Vec<Key> {
    if let Some(execution) = execution_of(pod) {
        return vec![execution];
    }
    let mut keys = of_the_target(pod, view);
    let Some(owner) = pod.controller() else { return keys };
    let mut above = (owner.kind.clone(), owner.name.clone());
    if owner.kind == REPLICA_SET.kind {
        let set = view.get(&REPLICA_SET, &Key::new(pod.namespace(), &owner.name));
        let deployment = set.and_then(|set| set.controller().map(|owner| owner.name.clone()));
        // A ReplicaSet that no Deployment owns is no target of any action.
        let Some(deployment) = deployment else { return keys };
        above = (DEPLOYMENT.kind.to_string(), deployment);
    }
    if let Ok(target) = Target::object(pod.namespace(), &above.0, &above.1) {
        keys.extend(about(view, &target));
    }
    keys
}

/// A Secret that was made for an execution, or is a target.
pub(super) fn of_a_secret(secret: &Object, view: &dyn View) -> Vec<Key> {
    match execution_of(secret) {
        Some(execution) => vec![execution],
        None => of_the_target(secret, view),
    }
}

/// Anything that may be a target.
pub(super) fn of_the_target(object: &Object, view: &dyn View) -> Vec<Key> {
    // A cluster has a hundred thousand objects that may be, and often nobody who asks.
    if view.is_empty(&KIND) {
        return Vec::new();
    }
    match Target::of_kind(object.kind(), object.namespace(), object.name()) {
        Ok(target) => about(view, &target),
        Err(_) => Vec::new(),
    }
}

/// A ConfigMap is a target, or a policy: that concerns everybody who has not begun yet.
pub(super) fn of_a_policy_or_target(map: &Object, view: &dyn View) -> Vec<Key> {
    let mut keys = of_the_target(map, view);
    if map.label(POLICY).is_some() {
        keys.extend(undecided(view));
    }
    keys
}

/// A Freeze holds up whoever has not begun yet, or no longer does.
pub(super) fn of_a_freeze(_: &Object, view: &dyn View) -> Vec<Key> {
    undecided(view)
}

/// Whether approvals count.
pub(super) fn of_the_admission(object: &Object, view: &dyn View) -> Vec<Key> {
    if object.name() == APPROVER { undecided(view) } else { Vec::new() }
}

pub(super) fn of_the_approval(approval: &Object, _: &dyn View) -> Vec<Key> {
    let named = approval.parse::<Approval>().ok().map(|one| one.spec.execution_ref.name.clone());
    named.map(|name| Key::new(approval.namespace(), &name)).into_iter().collect()
}

/// The one that an execution takes back; and whoever is first in the line in which it stood.
pub(super) fn of_another(execution: &Object, view: &dyn View) -> Vec<Key> {
    let taken_back = execution.annotation(ROLLBACK_OF).map(|name| Key::new(execution.namespace(), name));
    let first = execution.label(WAITS_FOR).and_then(|hash| first_in_line(view, hash));
    taken_back.into_iter().chain(first.map(|first| first.who.key)).collect()
}

/// Who holds it; and when it is free, the first who waits for it.
pub(super) fn of_the_lock(lease: &Object, view: &dyn View) -> Vec<Key> {
    let Some(hash) = lock::target_hash(lease) else { return Vec::new() };
    let mut keys: Vec<Key> = match lock::read_object(lease) {
        Lock::Held(holder) if holder.unit.kind == KIND => vec![holder.unit.key],
        Lock::Held(_) | Lock::Free | Lock::Unreadable(_) => Vec::new(),
    };
    if lock::read(view.get(&LEASE, &lease.key()).as_ref()) == Lock::Free {
        keys.extend(first_in_line(view, hash).map(|first| first.who.key));
    }
    keys
}

fn execution_of(object: &Object) -> Option<Key> {
    if object.label(OWNER_KIND) != Some(&KIND.kind) {
        return None;
    }
    let (namespace, name) = object.annotation(EXECUTION)?.split_once('/')?;
    Some(Key::new(Some(namespace), name))
}

/// Those that act on a target, or want to.
fn about(view: &dyn View, target: &Target) -> Vec<Key> {
    let named = view.labelled(&KIND, TARGET_HASH, &target.short_hash());
    named.iter().filter(|one| !is_over(one)).map(|one| one.key()).collect()
}

/// Those that policy may still stop.
fn undecided(view: &dyn View) -> Vec<Key> {
    view.list(&KIND, None).iter().filter(|one| !is_over(one)).map(|one| one.key()).collect()
}

fn is_over(execution: &Arc<Object>) -> bool {
    let phase = execution.parse::<KubernetesExecution>().ok().and_then(|typed| typed.status.as_ref()?.phase);
    phase.is_some_and(KubernetesExecutionPhase::is_terminal)
}
