//! Which targets does a Workflow act on, are they its own yet, and may it let go of them?

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use pawl_api::git::workflow::{HELD_FOR, parameters};
use pawl_api::git::{BranchSpec, Repository, WorkflowSpec, labels};
use pawl_api::meta::Target;
use pawl_api::meta::target::GitRef;
use pawl_api::pawl::annotations::TARGETS;

use super::Observed;
use crate::cluster::job::JOB;
use crate::lock::{self, Claim, Holder, LEASE, Marks, Taken, Turn, UNIT};
use crate::object::{Key, Object, Reference};
use crate::plan::Step;
use crate::view::View;

/// GitHub's own name, whose API has another.
const GITHUB: &str = "github.com";

/// What the caches show of a Workflow's locks.
#[derive(Debug)]
pub(super) struct Locks {
    /// Its own target first, or what is wrong with one.
    targets: Result<Vec<Target>, String>,
    /// The Leases of those targets that are there.
    leases: BTreeMap<Key, Arc<Object>>,
    /// The Leases that name this Workflow, whatever its targets are by now.
    held: Vec<Arc<Object>>,
    /// How many other Workflows of the Repository hold locks, or have a Job that was made and not let go. Only who is not
    /// let go itself counts them: for all others this is zero.
    pub(super) others: usize,
    /// How many of them hold locks.
    pub(super) others_running: usize,
    /// How many of those took theirs before this one, in the API server's own order.
    pub(super) others_before: usize,
}

impl Locks {
    pub(super) fn observe(
        view: &dyn View,
        system_namespace: &str,
        me: &Object,
        spec: &WorkflowSpec,
        branch: Option<&BranchSpec>,
        template: Option<&Object>,
        repository: Option<&Arc<Object>>,
    ) -> Self {
        let held = lock::held_by(view, me.uid());
        let targets = branch.map_or(Ok(vec![]), |branch| targets(me, spec, branch, template, repository));
        let keys = targets.iter().flatten().map(|target| lock::key(system_namespace, target));
        let leases = keys.filter_map(|key| Some((key.clone(), view.get(&LEASE, &key)?))).collect();
        Self { targets, leases, held, others: 0, others_running: 0, others_before: 0 }
    }

    /// Who else has one of the Repository's places.
    pub(super) fn count(&mut self, view: &dyn View, me: &Object, repository_uid: &str) {
        let leases = view.labelled(&LEASE, labels::REPO_UID, repository_uid);
        let jobs = view.labelled(&JOB, HELD_FOR, repository_uid);
        let mine = self.held.iter().filter_map(revision).min().unwrap_or(u64::MAX);
        let (mut running, mut before) = (BTreeSet::new(), BTreeSet::new());
        for lease in &leases {
            let Some(unit) = lease.label(UNIT).filter(|unit| *unit != me.uid()) else { continue };
            running.insert(unit);
            if revision(lease).is_none_or(|at| at < mine) {
                before.insert(unit);
            }
        }
        (self.others_running, self.others_before) = (running.len(), before.len());
        let starting = jobs.iter().filter_map(|job| job.controller()).map(|owner| owner.uid.as_str());
        running.extend(starting.filter(|unit| *unit != me.uid()));
        self.others = running.len();
    }

    /// What it acts on, normalized.
    pub(super) fn target(&self) -> Option<&Target> {
        self.targets.as_ref().ok()?.first()
    }

    /// All of them; none where they cannot be told.
    pub(super) fn targets(&self) -> &[Target] {
        self.targets.as_deref().unwrap_or_default()
    }

    pub(super) fn problem(&self) -> Option<&str> {
        self.targets.as_ref().err().map(String::as_str)
    }

    pub(super) fn holds_some(&self) -> bool {
        !self.held.is_empty()
    }

    pub(super) fn turn(&self, observed: &Observed, system_namespace: &str, now: Timestamp) -> Turn {
        let me = &observed.me;
        // Its own Job may not be there yet, and then there is nothing to name: nobody takes a lock without one.
        let uid = observed.job.as_ref().filter(|(job, _)| observed.is_ours(job)).map(|(job, _)| job.uid());
        let run = Reference { kind: JOB, key: me.key(), uid: uid.unwrap_or_default().to_owned() };
        let holder = Holder { unit: me.reference(), run: Some(run) };
        let repository = observed.repository.as_ref().map(|repository| repository.uid().to_owned());
        let marks: Marks = repository.iter().map(|uid| (labels::REPO_UID, uid.clone())).collect();
        let targets = self.targets.as_deref().unwrap_or_default();
        let lease_of = |key: &Key| self.leases.get(key).cloned();
        match lock::claim(system_namespace, targets, lease_of, &holder, &marks, now) {
            Claim::Have => Turn::Yes,
            Claim::Take(steps) => Turn::Take(steps),
            Claim::Busy { target, holder, give_back } => {
                let lease = lease_of(&lock::key(system_namespace, &target));
                let theirs = lease.as_ref().and_then(|lease| lease.label(labels::REPO_UID));
                // Whoever holds our own target for the same Repository leads to us when it lets go.
                let known =
                    theirs.is_some() && theirs == repository.as_deref() && Some(&target) == self.target();
                let find_me = (!known).then(|| lock::find_me(me, &target)).flatten();
                Turn::No(Box::new(Taken { target, holder, give_back, find_me }))
            }
        }
    }

    /// Lets go of everything this Workflow holds, once its run can do nothing more; empty while it may.
    pub(super) fn release(&self, observed: &Observed) -> Vec<Step> {
        if self.held.is_empty() {
            return Vec::new();
        }
        let free = self.held.iter().map(lock::free);
        match &observed.job {
            Some((object, job)) if observed.is_ours(object) => {
                if job.is_finished() {
                    free.collect()
                } else {
                    Vec::new()
                }
            }
            // The name is somebody else's: there is no run, and there will be none.
            Some(_) => free.collect(),
            None => std::iter::once(observed.confirm_no_job()).chain(free).collect(),
        }
    }
}

/// All that a Workflow locks, its own target first: what is written on it and on its template comes after.
fn targets(
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

impl Observed {
    pub(super) fn is_ours(&self, job: &Object) -> bool {
        job.controller().is_some_and(|owner| owner.uid == self.me.uid())
    }

    /// Goes on only if there is no Job of this Workflow: the one that was recorded, or else any of its name.
    pub(super) fn confirm_no_job(&self) -> Step {
        let made = self.workflow.status.as_ref().and_then(|status| status.job_ref.as_ref());
        let uid = made.map(|made| made.uid.clone()).unwrap_or_default();
        Step::ConfirmGone(Reference { kind: JOB, key: self.me.key(), uid })
    }
}
