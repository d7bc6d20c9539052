//! Which Workflows are reconciled because of a change: only those that may start because of it, never all that wait.
//!
//! A Workflow that waits writes that into its status, and that write reconciles it once more. So a Workflow that is not
//! found here, because it has not written yet what it waits for, is reconciled anyway.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use pawl_api::git::workflow::{HELD_FOR, WAITS_FOR};
use pawl_api::git::{Branch, Repository, Workflow, WorkflowPhase, WorkflowTemplate};
use pawl_api::git::{branch, labels, repository, workflow, workflow_template};
use pawl_api::meta::target::GitRef;
use pawl_api::meta::{Phase, Reason, Target};

use super::{LINES, UNFINISHED, commits, has_not_started, is_evaluated, next_queued, occupied, workflows_of};
use crate::cluster::job::followed::Followed;
use crate::cluster::job::{JOB, POD};
use crate::cluster::namespace::NAMESPACE;
use crate::freeze;
use crate::git::account;
use crate::git::workflow::job;
use crate::held_run::is_held;
use crate::lock::{self, LEASE, Lock, Place, UNIT};
use crate::machine::Watch;
use crate::object::{Key, Object};
use crate::view::{View, group_of};

/// All that the controller of Workflows watches.
pub(in crate::git) fn watches() -> Vec<Watch> {
    vec![
        Watch::other(JOB, of_the_job).by_labels(&[HELD_FOR]),
        Watch::other(POD, of_the_pods_job),
        Watch::other(workflow::KIND, after_a_workflow).by_labels(&[WAITS_FOR]).in_lines(&LINES),
        Watch::other(workflow_template::KIND, naming_the_template),
        // Its commit and its evaluation are in spec and annotations.
        Watch::other(branch::KIND, of_the_branch).but_for_status(),
        Watch::other(repository::KIND, of_the_repository),
        Watch::other(LEASE, of_the_lock).by_labels(&[UNIT, labels::REPO_UID]),
        Watch::other(NAMESPACE, |_, _| Vec::new()).metadata_only(),
        freeze::watch(not_yet_started),
    ]
}

/// The owner of a Job, unless the change is its own: a Job that was started and has not begun is as its Workflow left it.
pub(in crate::git) fn of_the_job(job: &Object, view: &dyn View) -> Vec<Key> {
    let is_ours = |owner: &&OwnerReference| {
        owner.kind == workflow::KIND.kind && group_of(&owner.api_version) == workflow::KIND.group
    };
    let Some(owner) = job.controller().filter(is_ours) else { return Vec::new() };
    let key = Key::new(job.namespace(), &owner.name);
    let now = view.get(&JOB, &job.key()).filter(|now| now.uid() == job.uid());
    let quiet = now.is_some_and(|now| {
        // The newest version stands for this one, while the same Workflow owns it.
        if now.resource_version() != job.resource_version() {
            return now.controller() == Some(owner);
        }
        let workflow = view.get(&workflow::KIND, &key).filter(|workflow| workflow.uid() == owner.uid);
        let status = workflow.and_then(|workflow| workflow.parse::<Workflow>().ok()?.status.clone());
        let recorded = status.filter(|status| {
            status.job_ref.as_ref().is_some_and(|made| made.uid == job.uid()) && !job.is_deleting()
        });
        let started = recorded.filter(|_| !is_held(job));
        started
            .is_some_and(|status| job.parse::<Followed>().is_ok_and(|job| job::has_not_begun(&job, &status)))
    });
    if quiet { Vec::new() } else { vec![key] }
}

/// The owner of a Pod's Job, which has its Workflow's name.
pub(in crate::git) fn of_the_pods_job(pod: &Object, _: &dyn View) -> Vec<Key> {
    let job = pod.controller().filter(|owner| owner.kind == JOB.kind);
    job.map(|job| Key::new(pod.namespace(), &job.name)).into_iter().collect()
}

/// Workflows of the template that have not started.
pub(in crate::git) fn naming_the_template(template: &Object, view: &dyn View) -> Vec<Key> {
    let beside = view.list(&workflow::KIND, template.namespace());
    let named = beside.iter().filter(|object| {
        object
            .parse::<Workflow>()
            .is_ok_and(|typed| typed.spec.template == template.name() && has_not_started(&typed))
    });
    named.map(|object| object.key()).collect()
}

/// The Branch's Workflows that have not started, and those of later commits that wait for its evaluation.
pub(in crate::git) fn of_the_branch(object: &Object, view: &dyn View) -> Vec<Key> {
    let own = workflows_of(view, object).into_iter();
    let own = own.filter(|workflow| object.is_deleting() || not_started(workflow));
    let mut keys: Vec<Key> = own.map(|workflow| workflow.key()).collect();
    let typed = object.parse::<Branch>().ok();
    let sequence = typed.and_then(|typed| typed.spec.sequence);
    if let (Some(sequence), Some(repository)) = (sequence, account::repository_of(view, object)) {
        keys.extend(unblocked_by(sequence, repository.uid(), view));
    }
    keys
}

/// The Workflows of later commits, up to the first commit that is not evaluated: those after it wait for that one.
fn unblocked_by(sequence: i64, repository_uid: &str, view: &dyn View) -> Vec<Key> {
    let mut later = commits(view, repository_uid);
    later.retain(|(other, ..)| *other >= sequence);
    later.sort_by_key(|(other, ..)| *other);
    let mut keys = Vec::new();
    for (other, object, typed) in later {
        if other > sequence {
            let waiting = view.owned(&workflow::KIND, object.uid()).into_iter();
            let waiting = waiting.filter(|object| waits_for(object, Reason::WaitingForEarlierCommit));
            keys.extend(waiting.map(|object| object.key()));
        }
        if !object.is_deleting() && !is_evaluated(&object, &typed) {
            break;
        }
    }
    keys
}

/// When a Workflow is finished or deleted: its dependents, and the next commit's Workflow on its path.
pub(in crate::git) fn after_a_workflow(object: &Object, view: &dyn View) -> Vec<Key> {
    let Ok(typed) = object.parse::<Workflow>() else { return Vec::new() };
    let over = typed.status.as_ref().and_then(|status| status.phase).is_some_and(WorkflowPhase::is_terminal);
    if !over && !object.is_deleting() {
        return Vec::new();
    }
    let key = Key::new(object.namespace(), &typed.spec.branch);
    let Some(branch) = view.get(&branch::KIND, &key) else { return Vec::new() };
    let mut keys = dependents(&typed, &branch, view);
    // One that never ran releases no lock, but it may have been the one that was woken for a free slot.
    let never_ran = typed.status.as_ref().is_none_or(|status| status.job_ref.is_none());
    if let Some(repository) = account::repository_of(view, &branch).filter(|_| never_ran) {
        keys.extend(for_slot(repository.uid(), view));
    }
    let sequence = branch.parse::<Branch>().ok().and_then(|branch| branch.spec.sequence);
    if let (Some(sequence), Some(repository)) = (sequence, account::repository_of(view, &branch)) {
        let later = commits(view, repository.uid()).into_iter().filter(|(other, ..)| *other > sequence);
        let same = later.flat_map(|(other, branch, _)| {
            let owned = view.owned(&workflow::KIND, branch.uid()).into_iter();
            owned
                .filter(|other| is_on(other, &typed.spec.template, &typed.spec.path))
                .map(move |object| (other, object))
        });
        let next = same.filter(|(_, object)| not_started(object)).min_by_key(|(other, _)| *other);
        keys.extend(next.map(|(_, object)| object.key()));
    }
    keys
}

/// Workflows of the same commit and path that wait for it, where some template depends on its template. An edited template
/// reconciles its Workflows by itself.
fn dependents(finished: &Workflow, branch: &Object, view: &dyn View) -> Vec<Key> {
    let templates = view.list(&workflow_template::KIND, branch.namespace());
    let depends = |template: &Arc<Object>| {
        template
            .parse::<WorkflowTemplate>()
            .is_ok_and(|one| one.spec.depends_on.contains(&finished.spec.template))
    };
    if !templates.iter().any(depends) {
        return Vec::new();
    }
    let waiting = workflows_of(view, branch).into_iter().filter(|other| {
        other
            .parse::<Workflow>()
            .is_ok_and(|other| other.spec.path == finished.spec.path && other.spec.sha == finished.spec.sha)
            && waits_for(other, Reason::WaitingForDependency)
    });
    waiting.map(|other| other.key()).collect()
}

/// The holder; and when the lock is free, those that wait for it or for the slot that its holder occupied.
pub(in crate::git) fn of_the_lock(lease: &Object, view: &dyn View) -> Vec<Key> {
    let Some(hash) = lock::target_hash(lease) else { return Vec::new() };
    let current = view.get(&LEASE, &lease.key());
    let mut keys: Vec<Key> = holder(lease).into_iter().collect();
    if lock::read(current.as_ref()) == Lock::Free {
        let marked = view.labelled(&workflow::KIND, WAITS_FOR, hash);
        keys.extend(marked.iter().filter(|object| !is_finished(object)).map(|object| object.key()));
        keys.extend(next_on_target(lease, view));
        // Only a release frees a slot.
        if let Some(repository) = lease.label(labels::REPO_UID) {
            keys.extend(for_slot(repository, view));
        }
    }
    keys
}

/// The next in the queue, in case `maxConcurrent` was raised.
pub(in crate::git) fn of_the_repository(object: &Object, view: &dyn View) -> Vec<Key> {
    for_slot(object.uid(), view)
}

fn holder(lease: &Object) -> Option<Key> {
    match lock::read_object(lease) {
        Lock::Held(holder) if holder.unit.kind == workflow::KIND => Some(holder.unit.key),
        Lock::Held(_) | Lock::Free | Lock::Unreadable(_) => None,
    }
}

/// The first Workflow of the holder's Repository that waits for the target of a Lease.
fn next_on_target(lease: &Object, view: &dyn View) -> Option<Key> {
    let repository = lease.label(labels::REPO_UID)?;
    let Ok(Target::Git(target)) = lease.annotation(lock::TARGET)?.parse() else { return None };
    let branches = view.owned(&branch::KIND, repository).into_iter();
    let wanting = branches.flat_map(|branch| {
        let typed = branch.parse::<Branch>().ok();
        let sequence = typed.as_ref().and_then(|typed| typed.spec.sequence);
        let same_ref = typed.is_some_and(|typed| match target.reference() {
            GitRef::Default => typed.spec.sequence.is_some(),
            GitRef::Named(name) => name.ends_with(&typed.spec.name),
        });
        let unfinished =
            if same_ref { view.in_line(&workflow::KIND, &UNFINISHED, branch.uid()) } else { Vec::new() };
        let waiting = unfinished.into_iter().filter(|object| {
            is_on(object, target.template(), target.path())
                && (not_started(object) || has_held_job(object, view))
        });
        waiting.map(|object| (Place::of(&object, sequence), object.key())).collect::<Vec<_>>()
    });
    wanting.min().map(|(_, key)| key)
}

/// The next in the Repository's queue, while there is a free slot, and those whose Job was created and waits for one.
fn for_slot(repository_uid: &str, view: &dyn View) -> Vec<Key> {
    let Some(repository) = view.by_uid(&repository::KIND, repository_uid) else { return Vec::new() };
    let Ok(typed) = repository.parse::<Repository>() else { return Vec::new() };
    // A Job has its Workflow's name.
    let held = view.labelled(&JOB, HELD_FOR, repository_uid).into_iter().map(|job| job.key());
    let waits = |key: &Key| {
        let workflow = view.get(&workflow::KIND, key).and_then(|object| object.parse::<Workflow>().ok());
        workflow.is_some_and(|workflow| has_reason(&workflow, Reason::Queued))
    };
    let mut keys: Vec<Key> = held.filter(waits).collect();
    let limit = usize::try_from(typed.spec.max_concurrent).unwrap_or_default();
    if occupied(view, repository_uid).len() < limit {
        keys.extend(next_queued(view, repository_uid).map(|object| object.key()));
    }
    keys
}

fn is_on(object: &Arc<Object>, template: &str, path: &str) -> bool {
    object.parse::<Workflow>().is_ok_and(|typed| typed.spec.template == template && typed.spec.path == path)
}

/// All Workflows that have not started: a Freeze may hold any of them.
pub(in crate::git) fn not_yet_started(_: &Object, view: &dyn View) -> Vec<Key> {
    let all = view.list(&workflow::KIND, None);
    all.iter().filter(|object| not_started(object)).map(|object| object.key()).collect()
}

fn not_started(object: &Arc<Object>) -> bool {
    object.parse::<Workflow>().is_ok_and(|typed| has_not_started(&typed))
}

fn is_finished(object: &Arc<Object>) -> bool {
    let phase = object.parse::<Workflow>().ok().and_then(|typed| typed.status.as_ref()?.phase);
    phase.is_some_and(WorkflowPhase::is_terminal)
}

fn has_reason(workflow: &Workflow, reason: Reason) -> bool {
    let current = workflow.status.as_ref().and_then(|status| status.reason.as_deref());
    current == Some(reason.as_str())
}

/// Whether it waits for this, or has not written yet what it waits for.
fn waits_for(object: &Arc<Object>, reason: Reason) -> bool {
    object.parse::<Workflow>().is_ok_and(|typed| {
        let current = typed.status.as_ref().and_then(|status| status.reason.as_deref());
        has_not_started(&typed) && current.is_none_or(|current| current == reason.as_str())
    })
}

/// Whether its Job was created and not started.
fn has_held_job(workflow: &Object, view: &dyn View) -> bool {
    view.get(&JOB, &workflow.key()).is_some_and(|job| is_held(&job))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Cluster;
    use pawl_api::git::workflow::HELD;
    use serde_json::{Value, json};

    /// Whether the newest version of its Job wakes the Workflow, with this reason in the Workflow's status.
    fn wakes(job: &Value, reason: &str) -> bool {
        let owner = json!({"apiVersion": "terrakojo.io/v1alpha1", "kind": "Workflow", "name": "w", "uid": "w",
            "controller": true});
        let mut cluster = Cluster::of(&[workflow::KIND, JOB], "");
        cluster.put(json!({"kind": "Workflow", "metadata": {"name": "w", "uid": "w"},
            "spec": {"branch": "b", "owner": "o", "repository": "r", "sha": "0".repeat(40), "template": "t",
                "path": "p"},
            "status": {"phase": "Pending", "reason": reason, "jobRef": {"name": "w", "uid": "job"}}}));
        let mut manifest = json!({"kind": "Job", "metadata": {"name": "w", "uid": "job", "ownerReferences": [owner]},
            "spec": {"suspend": false, "template": {"spec":
                {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}}}});
        crate::testing::merge(&mut manifest, job);
        cluster.put(manifest);
        let job = cluster.world.get(&JOB, &Key::new(Some("n"), "w")).unwrap();
        of_the_job(&job, &cluster.world) == [Key::new(Some("n"), "w")]
    }

    #[test]
    fn a_workflow_is_woken_by_its_job_but_not_by_having_started_it() {
        assert!(!wakes(&json!({}), "JobCreated"), "the Workflow started it, and it has not begun");
        assert!(wakes(&json!({}), "Suspended"), "somebody else started it");
        assert!(
            wakes(&json!({"metadata": {"annotations": {HELD: "false"}}}), "JobCreated"),
            "it is to be started"
        );
        assert!(wakes(&json!({"metadata": {"uid": "other"}}), "JobCreated"), "it is another");
        assert!(wakes(&json!({"spec": {"suspend": true}}), "JobCreated"), "somebody suspended it");
        for status in [
            json!({"active": 1}),
            json!({"conditions": [{"type": "Complete", "status": "True"}]}),
            json!({"conditions": [{"type": "Failed", "status": "True"}]}),
        ] {
            assert!(wakes(&json!({"status": status}), "JobCreated"), "{status}");
        }
        let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/f"]}});
        assert!(wakes(&deleted, "JobCreated"), "it goes");
    }
}
