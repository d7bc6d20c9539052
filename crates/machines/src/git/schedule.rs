//! Decides which Workflows of a Repository may start.
//!
//! ```text
//! templates it depends on (same commit and path) ▸ earlier commits of the default branch ▸ a slot (spec.maxConcurrent)
//! ```
//! Everything is read from the objects themselves (I11): the Workflows of a Branch by its UID, the Branches of a
//! Repository by its UID, and the occupied slots by locks and held Jobs. [`wakes`] is the inverse: which Workflows may
//! start because of a change.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use pawl_api::git::workflow::HELD_FOR;
use pawl_api::git::{
    Branch, Repository, Workflow, WorkflowPhase, WorkflowSpec, WorkflowTemplate, annotations, labels,
};
use pawl_api::git::{branch, repository, workflow};
use pawl_api::meta::{Gate, GateName, Phase, Reason};

use crate::cluster::job::JOB;
use crate::git::matching::{self, Dependencies};
use crate::held_run::is_held;
use crate::lock::{LEASE, Place, UNIT};
use crate::machine::Line;
use crate::object::{Key, Object, Reference, Spot};
use crate::plan::Step;
use crate::view::{Context, View};

pub(super) mod wakes;

/// The Workflows that go before one that has not started, and the slots of its Repository.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    dependencies: Vec<Dependency>,
    /// Its own Branch is still being evaluated: Workflows it depends on may not exist yet.
    unevaluated: Option<String>,
    /// An earlier commit of the default branch that must be done first.
    earlier: Option<String>,
    /// How many Workflows of the Repository may run at a time.
    limit: Option<usize>,
    /// Its 1-based position among those that wait for a slot; 0 where it need not be known.
    position: usize,
    /// The message that named its position.
    queued: Option<String>,
    slots: Slots,
    holds_locks: bool,
    /// Objects that would change the decision if they existed. Caches of different kinds lag differently: one that shows a
    /// Branch evaluated may be ahead of the one that shows the Workflows created for it, or the Repository that owns it.
    absent: Vec<Reference>,
}

/// Why a Workflow may not start.
#[derive(Debug)]
pub(super) struct Blocked {
    pub(super) gate: Gate,
    pub(super) reason: Reason,
    pub(super) message: String,
}

/// Another template's Workflow for the same commit and path.
#[derive(Debug)]
struct Dependency {
    template: String,
    /// Its name and phase; `None`: that template did not match this path, so there is nothing to wait for.
    found: Option<(String, Option<WorkflowPhase>)>,
}

/// How many other Workflows of the Repository occupy a slot. Only a Workflow whose Job has not started counts them: for
/// all others these are zero.
#[derive(Debug, Default)]
struct Slots {
    /// Those that hold locks, or have a Job that was created and not started.
    occupied: usize,
    /// Those that hold locks.
    locked: usize,
    /// Those that acquired their locks before this one, in the API server's own order.
    before: usize,
}

impl Schedule {
    /// `held` are the Leases that the Workflow holds.
    pub(super) fn observe(
        cx: &Context<'_, Workflow>,
        branch: Option<&Arc<Object>>,
        template: Option<&WorkflowTemplate>,
        repository: Option<&Arc<Object>>,
        held: &[Arc<Object>],
    ) -> Self {
        let (view, me) = (cx.view, cx.object);
        let starting = !me.is_deleting() && has_not_started(cx.typed);
        let has_held_job = || view.get(&JOB, &me.key()).is_some_and(|job| is_held(&job));
        let slots = match repository {
            Some(repository) if starting || has_held_job() => Slots::count(view, me, held, repository.uid()),
            Some(_) | None => Slots::default(),
        };
        let limit = limit(repository);
        let schedule = Self { limit, slots, holds_locks: !held.is_empty(), ..Self::default() };
        let typed = branch.filter(|_| starting).and_then(|branch| branch.parse::<Branch>().ok());
        match (branch, typed) {
            (Some(branch), Some(typed)) => schedule.before_start(cx, branch, &typed, template, repository),
            (_, None) | (None, _) => schedule,
        }
    }

    fn before_start(
        mut self,
        cx: &Context<'_, Workflow>,
        branch: &Arc<Object>,
        typed: &Branch,
        template: Option<&WorkflowTemplate>,
        repository: Option<&Arc<Object>>,
    ) -> Self {
        let (view, me, spec) = (cx.view, cx.object, &cx.typed.spec);
        let wanted = template.map(|template| template.spec.depends_on.as_slice()).unwrap_or_default();
        self.dependencies = dependencies(view, branch, spec, wanted);
        let unmatched =
            self.dependencies.iter().filter(|one| one.found.is_none()).map(|one| one.template.as_str());
        self.absent = unmatched.filter_map(|template| unseen(me, branch, spec, template)).collect();
        let Some(repository) = repository else {
            self.absent.extend(owner_of(branch));
            return self;
        };
        match earlier(view, repository, me, typed, spec) {
            Ok(unseen) => self.absent.extend(unseen),
            Err(earlier) => self.earlier = Some(earlier),
        }
        let unevaluated = typed.spec.sha == spec.sha && !is_evaluated(branch, typed);
        self.unevaluated = unevaluated.then(|| spec.branch.clone());
        let status = cx.typed.status.as_ref();
        let queued = status.filter(|status| status.reason.as_deref() == Some(Reason::Queued.as_str()));
        self.queued = queued.and_then(|status| status.message.clone());
        // Counting costs as much as there is: only a Workflow that has to name its position, and has not yet, counts.
        if self.limit.is_some_and(|limit| self.slots.occupied >= limit) && queued.is_none() {
            self.position = queue_position(view, repository, me, typed.spec.sequence);
        }
        self
    }

    /// The failed dependency because of which the Workflow can never start. While its Branch is evaluated, a newer attempt
    /// may still be created.
    pub(super) fn dependency_failed(&self) -> Option<Blocked> {
        if self.unevaluated.is_some() {
            return None;
        }
        let Dependencies::Failed(template) = self.dependency_state() else { return None };
        let message = format!("Workflow {} of template {template} did not succeed", self.name_of(template));
        let reason = Reason::DependencyFailed;
        let gate = Gate::stopped(GateName::Preconditions, reason, &message, "a new attempt");
        Some(Blocked { gate, reason, message })
    }

    /// The first Workflow, commit or slot that this Workflow waits for.
    pub(super) fn waits(&self) -> Option<Blocked> {
        let dependency = |message: String, change: &str| {
            let reason = Reason::WaitingForDependency;
            let gate = Gate::waiting(GateName::Preconditions, reason, &message, change);
            Some(Blocked { gate, reason, message })
        };
        if let Some(branch) = self.unevaluated.as_ref().filter(|_| !self.dependencies.is_empty()) {
            let message =
                format!("waits until Branch {branch} is evaluated: what it depends on may be made yet");
            return dependency(message, "the evaluation");
        }
        if let Dependencies::Waiting(template) = self.dependency_state() {
            let message = format!("waits for Workflow {} of template {template}", self.name_of(template));
            return dependency(message, "its success");
        }
        if let Some(earlier) = &self.earlier {
            let reason = Reason::WaitingForEarlierCommit;
            let gate = Gate::waiting(GateName::Lock, reason, earlier, "its end");
            return Some(Blocked {
                gate,
                reason,
                message: format!("waits for an earlier commit: {earlier}"),
            });
        }
        self.waits_for_slot(self.slots.occupied)
    }

    /// The slot that a Workflow whose Job was created waits for.
    pub(super) fn waits_to_start_job(&self) -> Option<Blocked> {
        self.waits_for_slot(self.slots.locked)
    }

    /// Once it holds locks, only those that acquired theirs earlier go before it. Its position is named once: to keep it
    /// true for all that wait would be a write for each of them whenever one starts.
    fn waits_for_slot(&self, others: usize) -> Option<Blocked> {
        let ahead = if self.holds_locks { self.slots.before } else { others };
        let limit = self.limit.filter(|limit| ahead >= *limit)?;
        let message = self.queued.clone().unwrap_or_else(|| {
            let position = self.position.max(1);
            format!("queued as number {position}: at most {limit} Workflows of the Repository run at a time")
        });
        let reason = Reason::Queued;
        let looked_at = format!("the {limit} places of the Repository");
        let gate = Gate::waiting(GateName::Lock, reason, looked_at, "the end of another");
        Some(Blocked { gate, reason, message })
    }

    /// The gate that a Workflow with dependencies has passed once it started.
    pub(super) fn passed(&self) -> Option<Gate> {
        let met: Vec<String> = self.dependencies.iter().map(Dependency::describe).collect();
        let reason = Reason::PreconditionsMet;
        (!met.is_empty()).then(|| Gate::passed(GateName::Preconditions, reason, met.join("; ")))
    }

    /// Goes on only if no object exists that would have made the Workflow wait.
    pub(super) fn confirm(&self) -> Vec<Step> {
        self.absent.iter().cloned().map(Step::confirm_gone).collect()
    }

    fn dependency_state(&self) -> Dependencies<'_> {
        let phase = |template: &str| self.found(template).map(|(_, phase)| *phase);
        matching::dependencies(self.dependencies.iter().map(|one| one.template.as_str()), phase)
    }

    fn found(&self, template: &str) -> Option<&(String, Option<WorkflowPhase>)> {
        self.dependencies.iter().find(|one| one.template == template)?.found.as_ref()
    }

    fn name_of(&self, template: &str) -> &str {
        self.found(template).map(|(name, _)| name.as_str()).unwrap_or_default()
    }
}

impl Dependency {
    fn describe(&self) -> String {
        match &self.found {
            Some((name, _)) => format!("Workflow {name} of template {}", self.template),
            None => format!("template {} did not match this path", self.template),
        }
    }
}

impl Slots {
    fn count(view: &dyn View, me: &Object, held: &[Arc<Object>], repository_uid: &str) -> Self {
        let leases = view.labelled(&LEASE, labels::REPO_UID, repository_uid);
        let mine = held.iter().filter_map(revision).min().unwrap_or(u64::MAX);
        let (mut units, mut before) = (BTreeSet::new(), BTreeSet::new());
        for lease in &leases {
            let Some(unit) = lease.label(UNIT).filter(|unit| *unit != me.uid()) else { continue };
            units.insert(unit);
            if revision(lease).is_none_or(|at| at < mine) {
                before.insert(unit);
            }
        }
        let (locked, before) = (units.len(), before.len());
        let mut occupied = occupied(view, repository_uid);
        occupied.remove(me.uid());
        Self { occupied: occupied.len(), locked, before }
    }
}

/// The UIDs of the Workflows that occupy a slot of the Repository: those that hold a lock, and those whose Job was created
/// and not started.
fn occupied(view: &dyn View, repository_uid: &str) -> BTreeSet<String> {
    let leases = view.labelled(&LEASE, labels::REPO_UID, repository_uid);
    let jobs = view.labelled(&JOB, HELD_FOR, repository_uid);
    let running = leases.iter().filter_map(|lease| lease.label(UNIT));
    let starting = jobs.iter().filter_map(|job| job.controller()).map(|owner| owner.uid.as_str());
    running.chain(starting).map(str::to_owned).collect()
}

/// When the API server wrote a held lock. Locks are only written when they are acquired or released, for they name their
/// run from the start: so this is the order in which they were acquired.
fn revision(lease: &Arc<Object>) -> Option<u64> {
    // A free lock has no unit label. To parse the holder of each would cost more than the decision.
    lease.label(UNIT).and_then(|_| lease.resource_version().parse().ok())
}

/// The newest attempts of other templates' Workflows for the same commit and path.
fn dependencies(
    view: &dyn View,
    branch: &Object,
    spec: &WorkflowSpec,
    templates: &[String],
) -> Vec<Dependency> {
    let siblings = if templates.is_empty() { Vec::new() } else { workflows_of(view, branch) };
    let dependency = |template: &String| {
        let typed = siblings.iter().filter_map(|object| Some((object, object.parse::<Workflow>().ok()?)));
        let same = typed.filter(|(_, other)| {
            other.spec.template == *template && other.spec.path == spec.path && other.spec.sha == spec.sha
        });
        let newest = same.max_by_key(|(_, other)| other.spec.attempt);
        let found = newest.map(|(object, other)| (object.name().to_owned(), phase(&other)));
        Dependency { template: template.clone(), found }
    };
    templates.iter().map(dependency).collect()
}

fn limit(repository: Option<&Arc<Object>>) -> Option<usize> {
    let typed = repository?.parse::<Repository>().ok()?;
    Some(usize::try_from(typed.spec.max_concurrent).unwrap_or_default().max(1))
}

/// The Workflows of a Branch, by its UID; the Workflows of a Branch that a person created may only name it.
fn workflows_of(view: &dyn View, branch: &Object) -> Vec<Arc<Object>> {
    if branch.controller().is_some() {
        return view.owned(&workflow::KIND, branch.uid());
    }
    let beside = view.list(&workflow::KIND, branch.namespace()).into_iter();
    beside
        .filter(|object| object.parse::<Workflow>().is_ok_and(|typed| typed.spec.branch == branch.name()))
        .collect()
}

/// The commits of the default branch that a Repository has Branches for, each with its sequence number.
fn commits(view: &dyn View, repository_uid: &str) -> Vec<(i64, Arc<Object>, Arc<Branch>)> {
    let branches = view.owned(&branch::KIND, repository_uid).into_iter();
    let typed = branches.filter_map(|object| object.parse::<Branch>().ok().map(|typed| (object, typed)));
    typed.filter_map(|(object, typed)| Some((typed.spec.sequence?, object, typed))).collect()
}

/// Whether the Workflows of a Branch's commit exist.
fn is_evaluated(object: &Object, branch: &Branch) -> bool {
    object.annotation(annotations::LAST_SHA) == Some(&branch.spec.sha)
}

/// Whether a Workflow has no Job and no result yet.
pub(super) fn has_not_started(workflow: &Workflow) -> bool {
    let Some(status) = &workflow.status else { return true };
    status.job_ref.is_none() && !status.phase.is_some_and(WorkflowPhase::is_terminal)
}

/// Whether it waits for a slot, or has not yet written what it waits for.
fn is_queued(workflow: &Workflow) -> bool {
    let status = workflow.status.as_ref();
    let reason = status.and_then(|status| status.reason.as_deref());
    has_not_started(workflow) && reason.is_none_or(|reason| reason == Reason::Queued.as_str())
}

fn phase(workflow: &Workflow) -> Option<WorkflowPhase> {
    workflow.status.as_ref().and_then(|status| status.phase)
}

/// Where a template's Workflow for the same path would be; `None` where the cache would show it: a cache that shows an object
/// written after the Branch was evaluated shows those written before.
fn unseen(me: &Object, branch: &Object, spec: &WorkflowSpec, template: &str) -> Option<Reference> {
    let revision = |object: &Object| object.resource_version().parse::<u64>().ok();
    let sha = branch.annotation(annotations::LAST_SHA)?;
    let caught_up = revision(me).zip(revision(branch)).is_some_and(|(mine, theirs)| mine > theirs);
    let name = workflow::name(branch.uid(), sha, template, &spec.path, 1);
    let key = Key::new(me.namespace(), &name);
    (!caught_up).then(|| Reference { kind: workflow::KIND, key, uid: String::new() })
}

/// The Repository that a Branch names as its owner.
fn owner_of(branch: &Object) -> Option<Reference> {
    let owner = branch.owners().iter().find(|owner| owner.kind == repository::KIND.kind)?;
    let key = Key::new(branch.namespace(), &owner.name);
    Some(Reference { kind: repository::KIND, key, uid: owner.uid.clone() })
}

/// Describes the earlier commit that this one waits for, as `Err`; otherwise, the Workflows of earlier commits that the cache
/// may not show yet.
fn earlier(
    view: &dyn View,
    repository: &Object,
    me: &Object,
    mine: &Branch,
    spec: &WorkflowSpec,
) -> Result<Vec<Reference>, String> {
    let Some(sequence) = mine.spec.sequence else { return Ok(Vec::new()) };
    let mut absent = Vec::new();
    for (other, object, typed) in commits(view, repository.uid()) {
        if other >= sequence {
            continue;
        }
        // A Branch that is being deleted is no longer evaluated; its Workflows may still run.
        if !object.is_deleting() && !is_evaluated(&object, &typed) {
            return Err(format!("commit {} (Branch {}) is not evaluated yet", typed.spec.sha, object.name()));
        }
        let owned = view.owned(&workflow::KIND, object.uid()).into_iter();
        let same = owned.filter_map(|object| object.parse::<Workflow>().ok().map(|typed| (object, typed)));
        let same: Vec<_> = same
            .filter(|(_, other)| other.spec.template == spec.template && other.spec.path == spec.path)
            .collect();
        if same.is_empty() {
            absent.extend(unseen(me, &object, spec, &spec.template));
        }
        if let Some((unfinished, _)) =
            same.iter().find(|(_, other)| !phase(other).is_some_and(WorkflowPhase::is_terminal))
        {
            let (name, sha) = (unfinished.name(), &typed.spec.sha);
            return Err(format!("Workflow {name} of commit {sha} is not finished"));
        }
    }
    Ok(absent)
}

/// 1-based position in the Repository's queue.
fn queue_position(view: &dyn View, repository: &Object, me: &Object, sequence: Option<i64>) -> usize {
    let mine = Spot::of(me);
    let before = view.owned(&branch::KIND, repository.uid()).into_iter().map(|branch| {
        let in_line = |before| view.count_in_line(&workflow::KIND, &QUEUED, branch.uid(), before);
        match sequence_of(&branch).cmp(&sequence) {
            Ordering::Less => in_line(None),
            Ordering::Equal => in_line(Some(&mine)),
            Ordering::Greater => 0,
        }
    });
    before.sum::<usize>() + 1
}

/// The first Workflow in the Repository's queue.
fn next_queued(view: &dyn View, repository_uid: &str) -> Option<Arc<Object>> {
    let branches = view.owned(&branch::KIND, repository_uid).into_iter();
    let first = branches.filter_map(|branch| {
        let object = view.first_in_line(&workflow::KIND, &QUEUED, branch.uid())?;
        Some((Place::of(&object, sequence_of(&branch)), object))
    });
    first.min_by(|(a, _), (b, _)| a.cmp(b)).map(|(_, object)| object)
}

fn sequence_of(branch: &Object) -> Option<i64> {
    branch.parse::<Branch>().ok().and_then(|branch| branch.spec.sequence)
}

/// The Workflows of each Branch that wait for a slot.
const QUEUED: Line = Line {
    name: "queued",
    stands: |object| {
        !object.is_deleting() && object.parse::<Workflow>().is_ok_and(|workflow| is_queued(&workflow))
    },
};

/// The Workflows of each Branch that are not finished, so that those are found without reading all the others.
pub(super) const UNFINISHED: Line = Line {
    name: "unfinished",
    stands: |object| {
        object
            .parse::<Workflow>()
            .is_ok_and(|workflow| !phase(&workflow).is_some_and(WorkflowPhase::is_terminal))
    },
};

static LINES: [Line; 2] = [QUEUED, UNFINISHED];
