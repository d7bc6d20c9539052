//! What does a Repository lead to: which Branches should there be, and when is GitHub asked about it?
//!
//! ```text
//! finalizer, labels ─▶ alone? suspended? credentials lent? ─▶ due? ─no─▶ housekeeping, and wait for the next moment
//!                                                              └yes─▶ sync: ask for refs ─▶ commits, commands ─▶ act
//! deleted ─▶ Branches are deleted and waited for ─▶ finalizer goes
//! ```
//! Only this machine writes the specs of Branches, and it writes nothing else of them but what comments ask for.

mod acts;
mod refs;
pub(in crate::git) mod schedule;
mod sync;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use pawl_api::git::repository::{
    AGGREGATE_CHECK, AggregateCheck, GITHUB_API, GITHUB_REACHABLE, KIND, MAX_AGGREGATE_CHECKS, READY,
};
use pawl_api::git::{Branch, Repository, RepositorySpec, RepositoryStatus, branch, finalizers, labels};
use pawl_api::meta::{NewCondition, Reason, condition, names};
use serde_json::{Map, Value, json};

use super::account::{self, NoAccount};
use super::github::{Account, Ask, Call};
use crate::audit::{self, Entry, Teller};
use crate::cluster::namespace::NAMESPACE;
use crate::external::Answers;
use crate::lifecycle::{self, Lifecycle};
use crate::machine::{Depth, Description, Machine, Primary, Watch, Write};
use crate::object::{Key, Object};
use crate::plan::{Note, Plan, Refusal, Step};
use crate::view::{Input, View};
use schedule::Due;

/// Follows repositories.
#[derive(Clone, Copy, Debug, Default)]
pub struct Repositories;

/// A Repository and all that its next step depends on.
#[derive(Debug)]
pub struct Observed {
    me: Arc<Object>,
    repository: Arc<Repository>,
    account: Result<Arc<Account>, NoAccount>,
    /// The Branches it owns, by name.
    branches: BTreeMap<String, Followed>,
    /// The names of Branches beside them; looked at only when names are needed.
    foreign: BTreeSet<String>,
    /// An older Repository for the same repository, whose Branches have the names that ours would have.
    elder_here: Option<String>,
    /// One anywhere, whose checks are called as ours would be.
    elder_anywhere: bool,
    refusals: Vec<Refusal>,
    answers: Arc<Answers>,
}

#[derive(Debug)]
struct Followed {
    object: Arc<Object>,
    /// `None`: it does not have the shape of its kind.
    typed: Option<Arc<Branch>>,
}

impl Machine for Repositories {
    type Kind = Repository;
    type Observed = Observed;
    type Status = RepositoryStatus;

    fn description(&self) -> Description {
        Description {
            name: "repository",
            primary: Primary::One(KIND),
            depth: Depth::Full,
            watches: vec![
                Watch::owned(branch::KIND),
                Watch::other(KIND, its_twins),
                Watch::other(NAMESPACE, borrowing_from).metadata_only(),
            ],
            finalizer: Some(finalizers::REPOSITORY),
            phases: None,
            writes: vec![
                Write::main(KIND, &["patch"]),
                Write::status(KIND),
                Write::finalizers(KIND),
                Write::main(branch::KIND, &["create", "delete", "patch"]),
            ],
        }
    }

    fn audit(&self, tell: &Teller<'_>, repository: &Repository) -> Option<Vec<Entry>> {
        Some(audit::git::repository(tell, repository))
    }

    fn observe(&self, input: &Input<'_>, repository: &Arc<Repository>) -> Observed {
        let (view, me) = (input.view, Arc::clone(input.me));
        let owned = view.owned(&branch::KIND, me.uid());
        let branches = owned.into_iter().map(|object| {
            (object.name().to_owned(), Followed { typed: object.parse::<Branch>().ok(), object })
        });
        let account = account::of(view, &me);
        let heard_refs = account
            .as_ref()
            .is_ok_and(|account| input.answers.get(&Call::new(account, Ask::Branches)).is_some());
        let beside = if heard_refs { view.list(&branch::KIND, me.namespace()) } else { vec![] };
        let is_ours = |object: &Object| object.controller().is_some_and(|owner| owner.uid == me.uid());
        let foreign =
            beside.iter().filter(|object| !is_ours(object)).map(|object| object.name().to_owned()).collect();
        let elders = elders(view, &me, &repository.spec);
        let elder_here = elders.iter().find(|elder| elder.namespace() == me.namespace());
        Observed {
            elder_here: elder_here.map(|elder| elder.name().to_owned()),
            elder_anywhere: !elders.is_empty(),
            account,
            branches: branches.collect(),
            foreign,
            refusals: input.refusals.to_vec(),
            answers: Arc::clone(input.answers),
            repository: Arc::clone(repository),
            me,
        }
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Plan<RepositoryStatus> {
        match lifecycle::of(&observed.me, finalizers::REPOSITORY) {
            Lifecycle::Add => Plan::step(introduce(observed)),
            Lifecycle::Run => run(observed, now),
            Lifecycle::CleanUp => clean_up(observed),
            Lifecycle::Nothing => Plan::rest(),
        }
    }
}

/// What is known of the Repository, to be changed and written.
struct Report<'a> {
    observed: &'a Observed,
    now: Timestamp,
    status: RepositoryStatus,
}

impl<'a> Report<'a> {
    fn of(observed: &'a Observed, now: Timestamp) -> Self {
        Self { observed, now, status: observed.status() }
    }

    fn condition(&mut self, new: NewCondition) {
        condition::set(&mut self.status.conditions, new, self.observed.me.meta().generation, self.now);
    }

    /// Says that nothing is followed for now, and why; told to people when that is news.
    fn not_ready(mut self, reason: Reason, message: &str) -> Plan<RepositoryStatus> {
        let before = condition::get(&self.status.conditions, READY);
        let is_news =
            before.is_none_or(|before| before.status != "False" || before.reason != reason.as_str());
        self.condition(NewCondition::no(READY, reason, message));
        self.status.observed_generation = self.observed.me.meta().generation;
        let plan = Plan::rest().status(self.status);
        if is_news { plan.note(Note::warning(reason, message)) } else { plan }
    }
}

impl Observed {
    fn status(&self) -> RepositoryStatus {
        self.repository.status.clone().unwrap_or_default()
    }

    fn spec(&self) -> &RepositorySpec {
        &self.repository.spec
    }

    /// The repository as GitHub compares names.
    fn home(&self) -> String {
        let RepositorySpec { owner, name, .. } = self.spec();
        format!("{owner}/{name}").to_ascii_lowercase()
    }
}

fn run(observed: &Observed, now: Timestamp) -> Plan<RepositoryStatus> {
    if wanted_labels(observed).iter().any(|(key, value)| observed.me.label(key) != Some(value.as_str())) {
        return Plan::step(introduce(observed));
    }
    let mut report = Report::of(observed, now);
    if let Some(elder) = &observed.elder_here {
        let message = format!("Repository {elder} is older and already follows this repository here");
        return report.not_ready(Reason::DuplicateRepository, &message);
    }
    if observed.spec().suspend {
        return report.not_ready(Reason::Suspended, "spec.suspend: GitHub is not asked");
    }
    let account = match &observed.account {
        Ok(account) => account,
        Err(problem) => {
            let message = problem.to_string();
            report.condition(NewCondition::no(GITHUB_REACHABLE, Reason::SecretRefNotAllowed, &message));
            return report.not_ready(Reason::SecretRefNotAllowed, &message);
        }
    };
    match schedule::due(&observed.me, &observed.repository, now) {
        Due::Now => sync::sync(observed, account, now),
        Due::At(at) => keep_house(observed).wake_at(at),
    }
}

/// Between two looks at GitHub: remembers the checks that Branches made, and lets the oldest of what is kept go.
fn keep_house(observed: &Observed) -> Plan<RepositoryStatus> {
    let mut status = observed.status();
    collect_checks(observed, &mut status);
    let mut plan = Plan::rest().status(status);
    let limit = usize::try_from(observed.spec().history_limit).unwrap_or_default();
    if limit == 0 {
        // Each removes itself when it is done.
        return plan;
    }
    let mut finished: Vec<(i64, &Followed)> = observed
        .branches
        .values()
        .filter(|followed| !followed.object.is_deleting())
        .filter_map(|followed| {
            let branch = followed.typed.as_ref()?;
            let result = branch.status.as_ref()?.result.as_ref()?;
            let is_commit = branch.spec.is_default(&observed.spec().default_branch);
            (is_commit && result.sha == branch.spec.sha && result.state.is_over())
                .then_some((branch.spec.sequence.unwrap_or_default(), followed))
        })
        .collect();
    finished.sort_by_key(|(sequence, followed)| (std::cmp::Reverse(*sequence), followed.object.key()));
    plan.steps = finished.into_iter().skip(limit).map(|(_, followed)| delete(&followed.object)).collect();
    plan
}

/// The Branches know their checks; when they go, the ids are kept here. Nothing depends on it: a check is found again by
/// its `external_id`, and this saves the search.
fn collect_checks(observed: &Observed, status: &mut RepositoryStatus) {
    let is_going = |followed: &Followed| {
        let Some(branch) = &followed.typed else { return false };
        let over = branch.status.as_ref().and_then(|status| status.result.as_ref());
        let is_commit = branch.spec.is_default(&observed.spec().default_branch);
        followed.object.is_deleting() || (is_commit && over.is_some_and(|result| result.state.is_over()))
    };
    let going = observed.branches.values().filter(|followed| is_going(followed));
    let made = going.filter_map(|followed| followed.typed.as_ref()?.status.as_ref());
    let mut all = std::mem::take(&mut status.aggregate_checks);
    for check in made.flat_map(|status| &status.checks).filter(|check| check.check_run_id != 0) {
        // Those that go are always last: so however many there are, the next look finds the same.
        all.retain(|known| known.sha != check.sha);
        all.push(AggregateCheck { reported: String::new(), ..check.clone() });
    }
    let excess = all.len().saturating_sub(MAX_AGGREGATE_CHECKS);
    all.drain(..excess);
    status.aggregate_checks = all;
}

/// The Branches first; each has its own way to end (I5), so this waits for nothing outside.
fn clean_up(observed: &Observed) -> Plan<RepositoryStatus> {
    if observed.branches.is_empty() {
        return Plan::step(Step::remove_finalizer(finalizers::REPOSITORY));
    }
    let staying = observed.branches.values().filter(|branch| !branch.object.is_deleting());
    Plan { steps: staying.map(|branch| delete(&branch.object)).collect(), ..Plan::rest() }
}

/// Finalizer and labels, in one write.
fn introduce(observed: &Observed) -> Step {
    let me = &observed.me;
    let mut finalizers = me.finalizers().to_vec();
    if !me.has_finalizer(finalizers::REPOSITORY) {
        finalizers.push(finalizers::REPOSITORY.to_owned());
    }
    let labels: Map<String, Value> =
        wanted_labels(observed).into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
    Step::patch_unchanged(me, json!({"metadata": {"finalizers": finalizers, "labels": labels}}))
}

fn wanted_labels(observed: &Observed) -> [(&'static str, String); 3] {
    let spec = observed.spec();
    [
        (labels::OWNER, names::label_value(&spec.owner)),
        (labels::REPO_NAME, names::label_value(&spec.name)),
        (labels::REPO_UID, names::label_value(observed.me.uid())),
    ]
}

fn delete(object: &Object) -> Step {
    Step::delete(object)
}

/// What this Repository's aggregate check is called: an older one for the same repository keeps the plain name.
fn aggregate_check_name(observed: &Observed) -> Option<String> {
    observed.elder_anywhere.then(|| format!("{AGGREGATE_CHECK} ({})", observed.me.key()))
}

/// Older Repositories for the same repository on the same GitHub.
fn elders(view: &dyn View, me: &Object, spec: &RepositorySpec) -> Vec<Arc<Object>> {
    let age = |object: &Object| {
        (object.meta().creation_timestamp.as_ref().map(|time| time.0), object.uid().to_owned())
    };
    let mut all = view.list(&KIND, None);
    all.retain(|other| {
        !other.is_deleting()
            && age(other) < age(me)
            && other.parse::<Repository>().is_ok_and(|other| same_repository(&other.spec, spec))
    });
    all
}

fn same_repository(one: &RepositorySpec, other: &RepositorySpec) -> bool {
    let host = |spec: &RepositorySpec| {
        spec.api_url.as_deref().unwrap_or(GITHUB_API).trim_end_matches('/').to_ascii_lowercase()
    };
    one.owner.eq_ignore_ascii_case(&other.owner)
        && one.name.eq_ignore_ascii_case(&other.name)
        && host(one) == host(other)
}

/// When one comes or goes, the others may have to stand back or step in.
fn its_twins(changed: &Object, view: &dyn View) -> Vec<Key> {
    let Ok(changed_spec) = changed.parse::<Repository>() else { return vec![] };
    let all = view.list(&KIND, None);
    let twins = all.iter().filter(|other| {
        other.uid() != changed.uid()
            && other.parse::<Repository>().is_ok_and(|other| same_repository(&other.spec, &changed_spec.spec))
    });
    twins.map(|twin| twin.key()).collect()
}

fn borrowing_from(namespace: &Object, view: &dyn View) -> Vec<Key> {
    let all = view.list(&KIND, None);
    let borrowing = all.iter().filter(|object| {
        object.parse::<Repository>().is_ok_and(|repository| {
            repository.spec.github_secret_ref.namespace.as_deref() == Some(namespace.name())
        })
    });
    borrowing.map(|object| object.key()).collect()
}

#[cfg(test)]
mod tests;
