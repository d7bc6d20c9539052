//! Which targets does a Workflow act on, are they its own yet, and may it let go of them?

use std::collections::BTreeSet;
use std::sync::Arc;

use pawl_api::git::workflow::{HELD_FOR, parameters};
use pawl_api::git::{BranchSpec, Repository, WorkflowSpec, labels};
use pawl_api::meta::Target;
use pawl_api::meta::target::GitRef;
use pawl_api::pawl::annotations::TARGETS;

use super::Facts;
use crate::cluster::job::JOB;
use crate::held_run;
use crate::lock::{self, Busy, LEASE, LockResult, Marks, UNIT};
use crate::object::Object;
use crate::plan::Step;
use crate::view::View;

/// GitHub's own name, whose API has another.
const GITHUB: &str = "github.com";

/// How many other Workflows of the Repository have one of its places. Only a Workflow whose Job has not started counts them:
/// for all others these are zero.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Those that hold locks, or have a Job that was created and not started.
    pub(super) others: usize,
    /// Those that hold locks.
    pub(super) running: usize,
    /// Those that acquired theirs before this one, in the API server's own order.
    pub(super) before: usize,
}

impl Places {
    pub(super) fn count(view: &dyn View, me: &Object, held: &[Arc<Object>], repository_uid: &str) -> Self {
        let leases = view.labelled(&LEASE, labels::REPO_UID, repository_uid);
        let jobs = view.labelled(&JOB, HELD_FOR, repository_uid);
        let mine = held.iter().filter_map(revision).min().unwrap_or(u64::MAX);
        let (mut running, mut before) = (BTreeSet::new(), BTreeSet::new());
        for lease in &leases {
            let Some(unit) = lease.label(UNIT).filter(|unit| *unit != me.uid()) else { continue };
            running.insert(unit);
            if revision(lease).is_none_or(|at| at < mine) {
                before.insert(unit);
            }
        }
        let (holding, before) = (running.len(), before.len());
        let starting = jobs.iter().filter_map(|job| job.controller()).map(|owner| owner.uid.as_str());
        running.extend(starting.filter(|unit| *unit != me.uid()));
        Self { others: running.len(), running: holding, before }
    }
}

/// Acquires the locks on all targets, or names who holds one. The Leases carry the Repository, so that its places are counted.
pub(super) fn acquire(facts: &Facts<'_>) -> LockResult {
    let repository = facts.repository.as_ref().map(|repository| repository.uid().to_owned());
    let marks: Marks = repository.iter().map(|uid| (labels::REPO_UID, uid.clone())).collect();
    // The Job may not exist yet, and then there is none to name: no lock is acquired without one.
    facts.locks.acquire(facts.cx.object, Some(facts.job.current()), &marks, facts.cx.now)
}

/// Labels a Workflow that waits, unless it is found without: a holder of its own target for the same Repository leads there.
pub(super) fn label_waiter(facts: &Facts<'_>, busy: &Busy) -> Option<Step> {
    let repository = facts.repository.as_ref().map(|repository| repository.uid());
    let holders = busy.lease.as_ref().and_then(|lease| lease.label(labels::REPO_UID));
    let found = holders.is_some() && holders == repository && Some(&busy.target) == facts.target();
    if found { None } else { busy.label_waiter(facts.cx.object) }
}

/// Releases everything this Workflow holds, once its run can do nothing more; empty while it may.
pub(super) fn release(facts: &Facts<'_>) -> Vec<Step> {
    let free = facts.locks.release();
    if free.is_empty() {
        return free;
    }
    match (facts.job.own(), facts.job.found()) {
        (Some(job), _) if !held_run::is_finished(job) => Vec::new(),
        // It is over; or the name belongs to another owner: there is no run, and there will be none.
        (_, Some(_)) => free,
        (_, None) => std::iter::once(facts.job.confirm_gone()).chain(free).collect(),
    }
}

/// All that a Workflow locks, its own target first: what is written on it and on its template comes after.
pub(super) fn targets(
    me: &Object,
    spec: &WorkflowSpec,
    branch: &BranchSpec,
    template: Option<&Object>,
    repository: Option<&Arc<Object>>,
) -> Result<Vec<Target>, String> {
    let host = repository.map_or_else(|| GITHUB.to_owned(), |repository| host(repository));
    let reference = reference(spec, branch);
    let own = Target::git(&host, &spec.owner, &spec.repository, &spec.path, &spec.template, reference);
    let mut targets = vec![own.map_err(|error| error.to_string())?];
    let handed_on = template.and_then(|template| template.annotation(TARGETS));
    for (list, whose) in [(me.annotation(TARGETS), "Workflow"), (handed_on, "WorkflowTemplate")] {
        let listed = lock::listed(list.unwrap_or_default());
        for target in listed.map_err(|error| format!("annotation {TARGETS} of the {whose}: {error}"))? {
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
    }
    Ok(targets)
}

/// Where a repository is, from the address of its API.
fn host(repository: &Object) -> String {
    let typed = repository.parse::<Repository>().ok();
    let url = typed.and_then(|typed| typed.spec.api_url.clone()).unwrap_or_default();
    let host = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
    let host = host.split(['/', '?', '#']).next().unwrap_or_default();
    match host {
        "" | "api.github.com" => GITHUB.to_owned(),
        other => other.to_owned(),
    }
}

/// Whose commits queue behind each other. A fork's ref never stands for the ref of the same name.
fn reference(spec: &WorkflowSpec, branch: &BranchSpec) -> GitRef {
    match &branch.head_repository {
        Some(fork) => GitRef::Named(format!("{fork}/{}", branch.name)),
        None if spec.parameter(parameters::IS_DEFAULT_BRANCH) == Some("true") => GitRef::Default,
        None => GitRef::Named(branch.name.clone()),
    }
}

/// The Workflows that have one of a Repository's places: those that hold a lock, and those whose Job is made and held.
pub(super) fn occupied(view: &dyn View, repository_uid: &str) -> BTreeSet<String> {
    let leases = view.labelled(&LEASE, labels::REPO_UID, repository_uid);
    let jobs = view.labelled(&JOB, HELD_FOR, repository_uid);
    let running = leases.iter().filter_map(|lease| lease.label(UNIT));
    let starting = jobs.iter().filter_map(|job| job.controller()).map(|owner| owner.uid.as_str());
    running.chain(starting).map(str::to_owned).collect()
}

/// When the API server wrote an object. Only a hold or a release writes a lock of ours, for it names
/// its run from the start: so this is the order of holding.
fn revision(lease: &Arc<Object>) -> Option<u64> {
    // A lock that is free has no unit's label. To read the whole holder of each would cost more than the decision.
    lease.label(UNIT).and_then(|_| lease.resource_version().parse().ok())
}
