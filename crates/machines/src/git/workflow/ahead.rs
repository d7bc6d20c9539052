//! Who goes before a Workflow that has not started: what it depends on, earlier commits, and those that fill the
//! Repository's places?
//!
//! Everything is read from the objects themselves (I11): the Workflows of a Branch by its UID, the Branches of a
//! Repository by its UID, and those that run by their locks.

use std::cmp::Ordering;
use std::sync::Arc;

use pawl_api::git::{
    Branch, Repository, Workflow, WorkflowPhase, WorkflowSpec, WorkflowTemplate, annotations,
};
use pawl_api::git::{branch, repository, workflow};
use pawl_api::meta::{Phase, Reason};

use crate::lock::Place;
use crate::machine::Line;
use crate::object::{Key, Object, Reference, Spot};
use crate::view::View;

/// What stands before a Workflow.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    pub(super) dependencies: Vec<Dependency>,
    /// Its own Branch is still being evaluated: what it depends on may not exist yet.
    pub(super) unevaluated: bool,
    /// An earlier commit of the default branch that must be done first, in words.
    pub(super) earlier: Option<String>,
    /// How many Workflows of the Repository may run at a time.
    pub(super) limit: Option<usize>,
    /// Its number among those that wait for one of those places.
    pub(super) place: usize,
    /// What would count if it were there. Caches of different kinds lag differently: one that shows a Branch evaluated
    /// may be ahead of the one that shows the Workflows made by that, or the Repository it belongs to.
    pub(super) absent: Vec<Reference>,
}

/// Another template's Workflow for the same commit and path.
#[derive(Debug)]
pub(super) struct Dependency {
    pub(super) template: String,
    /// `None`: that template did not match this path, so there is nothing to wait for.
    pub(super) found: Option<(String, Option<WorkflowPhase>)>,
}

impl Ahead {
    pub(super) fn observe(
        view: &dyn View,
        me: &Object,
        workflow: &Workflow,
        branch: &Arc<Object>,
        template: Option<&WorkflowTemplate>,
        repository: Option<&Arc<Object>>,
        running: usize,
    ) -> Self {
        let Ok(typed) = branch.parse::<Branch>() else { return Self::default() };
        let spec = &workflow.spec;
        let wanted = template.map(|template| template.spec.depends_on.as_slice()).unwrap_or_default();
        let siblings = if wanted.is_empty() { Vec::new() } else { workflows_of(view, branch) };
        let dependencies = wanted.iter().map(|wanted| {
            let same = siblings.iter().filter_map(|object| Some((object, object.parse::<Workflow>().ok()?)));
            let same = same.filter(|(_, other)| {
                other.spec.template == *wanted && other.spec.path == spec.path && other.spec.sha == spec.sha
            });
            let newest = same.max_by_key(|(_, other)| other.spec.attempt);
            let found = newest.map(|(object, other)| (object.name().to_owned(), phase(&other)));
            Dependency { template: wanted.clone(), found }
        });
        let limit = limit(repository);
        // Counting costs as much as there is: only who has to say its place, and has not said it, counts.
        let counts = limit.is_some_and(|limit| running >= limit)
            && workflow.status.as_ref().and_then(|status| status.reason.as_deref())
                != Some(Reason::Queued.as_str());
        let place = repository.filter(|_| counts);
        let dependencies: Vec<Dependency> = dependencies.collect();
        let unmatched =
            dependencies.iter().filter(|one| one.found.is_none()).map(|one| one.template.as_str());
        let mut absent: Vec<Reference> =
            unmatched.filter_map(|template| unseen(me, branch, spec, template)).collect();
        if repository.is_none() {
            absent.extend(owner_of(branch));
        }
        let earlier = match repository {
            Some(repository) => earlier(view, repository, me, &typed, spec),
            None => Ok(Vec::new()),
        };
        let earlier = match earlier {
            Ok(unseen) => {
                absent.extend(unseen);
                None
            }
            Err(earlier) => Some(earlier),
        };
        Self {
            dependencies,
            absent,
            unevaluated: repository.is_some() && typed.spec.sha == spec.sha && !is_evaluated(branch, &typed),
            earlier,
            limit,
            place: place.map_or(0, |repository| number(view, repository, me, typed.spec.sequence)),
        }
    }
}

impl Ahead {
    fn found(&self, template: &str) -> Option<&(String, Option<WorkflowPhase>)> {
        self.dependencies.iter().find(|one| one.template == template)?.found.as_ref()
    }

    /// How far another template's Workflow for the same path is; `None`: there is none.
    pub(super) fn phase_of(&self, template: &str) -> Option<Option<WorkflowPhase>> {
        self.found(template).map(|(_, phase)| *phase)
    }

    pub(super) fn name_of(&self, template: &str) -> &str {
        self.found(template).map(|(name, _)| name.as_str()).unwrap_or_default()
    }

    /// One that has started waits only for its place.
    pub(super) fn after_the_start(repository: Option<&Arc<Object>>) -> Self {
        Self { limit: limit(repository), ..Self::default() }
    }
}

impl Dependency {
    /// Why it is not waited for.
    pub(super) fn told(&self) -> String {
        match &self.found {
            Some((name, _)) => format!("Workflow {name} of template {}", self.template),
            None => format!("template {} did not match this path", self.template),
        }
    }
}

fn limit(repository: Option<&Arc<Object>>) -> Option<usize> {
    let typed = repository?.parse::<Repository>().ok()?;
    Some(usize::try_from(typed.spec.max_concurrent).unwrap_or_default().max(1))
}

/// The Workflows of a Branch, by its UID; a Branch that a person made may have Workflows that only name it.
pub(super) fn workflows_of(view: &dyn View, branch: &Object) -> Vec<Arc<Object>> {
    if branch.controller().is_some() {
        return view.owned(&workflow::KIND, branch.uid());
    }
    let beside = view.list(&workflow::KIND, branch.namespace()).into_iter();
    beside
        .filter(|object| object.parse::<Workflow>().is_ok_and(|typed| typed.spec.branch == branch.name()))
        .collect()
}

/// The commits of the default branch that a Repository has Branches for, with their place in the order.
pub(super) fn commits(view: &dyn View, repository_uid: &str) -> Vec<(i64, Arc<Object>, Arc<Branch>)> {
    let branches = view.owned(&branch::KIND, repository_uid).into_iter();
    let typed = branches.filter_map(|object| object.parse::<Branch>().ok().map(|typed| (object, typed)));
    typed.filter_map(|(object, typed)| Some((typed.spec.sequence?, object, typed))).collect()
}

/// Whether the Workflows of a Branch's commit exist.
pub(super) fn is_evaluated(object: &Object, branch: &Branch) -> bool {
    object.annotation(annotations::LAST_SHA) == Some(&branch.spec.sha)
}

/// Whether a Workflow may still have to wait for others.
pub(super) fn has_not_started(workflow: &Workflow) -> bool {
    let Some(status) = &workflow.status else { return true };
    status.job_ref.is_none() && !status.phase.is_some_and(WorkflowPhase::is_terminal)
}

/// Whether it waits for one of the Repository's places, or has not yet said what it waits for.
fn is_queued(workflow: &Workflow) -> bool {
    let status = workflow.status.as_ref();
    let reason = status.and_then(|status| status.reason.as_deref());
    has_not_started(workflow) && reason.is_none_or(|reason| reason == Reason::Queued.as_str())
}

fn phase(workflow: &Workflow) -> Option<WorkflowPhase> {
    workflow.status.as_ref().and_then(|status| status.phase)
}

/// Where the Workflow of a Branch for the same path would be; `None` where the cache would show it: one that shows what was
/// written after the Branch was evaluated shows what was written before.
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

/// The earlier commit that this one waits for, in words; or which Workflows of earlier commits are not seen.
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
        // One that is being deleted is evaluated no more; what it made may still run.
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

/// How many wait before this one, and one more.
fn number(view: &dyn View, repository: &Object, me: &Object, sequence: Option<i64>) -> usize {
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

/// The first of a Repository that waits for a place.
pub(super) fn next_queued(view: &dyn View, repository_uid: &str) -> Option<Arc<Object>> {
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

/// The Workflows of each Branch that wait for a place.
pub(super) const QUEUED: Line = Line {
    name: "queued",
    stands: |object| {
        !object.is_deleting() && object.parse::<Workflow>().is_ok_and(|workflow| is_queued(&workflow))
    },
};

/// The Workflows of each Branch that are not over: whoever asks for those does not have to look into all the others.
pub(in crate::git) const UNFINISHED: Line = Line {
    name: "unfinished",
    stands: |object| {
        object
            .parse::<Workflow>()
            .is_ok_and(|workflow| !phase(&workflow).is_some_and(WorkflowPhase::is_terminal))
    },
};

pub(super) static LINES: [Line; 2] = [QUEUED, UNFINISHED];
