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
use crate::lifecycle::{self, Lifecycle};
use crate::machine::{Description, Machine, Watch, Write};
use crate::object::{Key, Object};
use crate::plan::{Note, Plan, Step};
use crate::view::{Context, View};
use schedule::Due;

/// Follows repositories.
#[derive(Clone, Copy, Debug, Default)]
pub struct Repositories;

/// A Repository and all that its next step depends on.
#[derive(Debug)]
struct Facts<'a> {
    cx: &'a Context<'a, Repository>,
    account: Result<Arc<Account>, NoAccount>,
    /// The Branches it owns, by name.
    branches: BTreeMap<String, Followed>,
    /// The names of Branches beside them; looked at only when names are needed.
    foreign: BTreeSet<String>,
    /// An older Repository for the same repository, whose Branches have the names that ours would have.
    elder_here: Option<String>,
    /// One anywhere, whose checks are called as ours would be.
    elder_anywhere: bool,
}

#[derive(Debug)]
struct Followed {
    object: Arc<Object>,
    /// `None`: it does not have the shape of its kind.
    typed: Option<Arc<Branch>>,
}

impl Machine for Repositories {
    type Kind = Repository;
    type Status = RepositoryStatus;

    fn description(&self) -> Description {
        Description {
            watches: vec![
                Watch::owned(branch::KIND),
                Watch::other(KIND, its_twins),
                Watch::other(NAMESPACE, borrowing_from).metadata_only(),
            ],
            finalizer: Some(finalizers::REPOSITORY),
            writes: vec![
                Write::main(KIND, &["patch"]),
                Write::status(KIND),
                Write::finalizers(KIND),
                Write::main(branch::KIND, &["create", "delete", "patch"]),
            ],
            ..Description::new("repository", KIND)
        }
    }

    fn audit(&self, tell: &Teller<'_>, repository: &Repository) -> Option<Vec<Entry>> {
        Some(audit::git::repository(tell, repository))
    }

    fn reconcile(&self, cx: &Context<'_, Repository>) -> Plan<RepositoryStatus> {
        let facts = self.facts(cx);
        match lifecycle::of(facts.cx.object, finalizers::REPOSITORY) {
            Lifecycle::Add => Plan::step(introduce(&facts)),
            Lifecycle::Run => run(&facts),
            Lifecycle::CleanUp => clean_up(&facts),
            Lifecycle::Nothing => Plan::rest(),
        }
    }
}

impl Repositories {
    fn facts<'a>(&self, cx: &'a Context<'a, Repository>) -> Facts<'a> {
        let (view, me, repository) = (cx.view, cx.object, cx.typed);
        let owned = view.owned(&branch::KIND, me.uid());
        let branches = owned.into_iter().map(|object| {
            (object.name().to_owned(), Followed { typed: object.parse::<Branch>().ok(), object })
        });
        let account = account::of(view, me);
        let heard_refs = account
            .as_ref()
            .is_ok_and(|account| cx.answers.get(&Call::new(account, Ask::Branches)).is_some());
        let beside = if heard_refs { view.list(&branch::KIND, me.namespace()) } else { vec![] };
        let is_ours = |object: &Object| object.controller().is_some_and(|owner| owner.uid == me.uid());
        let foreign =
            beside.iter().filter(|object| !is_ours(object)).map(|object| object.name().to_owned()).collect();
        let elders = elders(view, me, &repository.spec);
        let elder_here = elders.iter().find(|elder| elder.namespace() == me.namespace());
        Facts {
            elder_here: elder_here.map(|elder| elder.name().to_owned()),
            elder_anywhere: !elders.is_empty(),
            account,
            branches: branches.collect(),
            foreign,
            cx,
        }
    }
}

/// What is known of the Repository, to be changed and written.
struct Report<'a> {
    facts: &'a Facts<'a>,
    status: RepositoryStatus,
}

impl<'a> Report<'a> {
    fn of(facts: &'a Facts<'a>) -> Self {
        Self { facts, status: facts.status() }
    }

    fn condition(&mut self, new: NewCondition) {
        condition::set(
            &mut self.status.conditions,
            new,
            self.facts.cx.object.meta().generation,
            self.facts.cx.now,
        );
    }

    /// Says that nothing is followed for now, and why; told to people when that is news.
    fn not_ready(mut self, reason: Reason, message: &str) -> Plan<RepositoryStatus> {
        let before = condition::get(&self.status.conditions, READY);
        let is_news =
            before.is_none_or(|before| before.status != "False" || before.reason != reason.as_str());
        self.condition(NewCondition::no(READY, reason, message));
        self.status.observed_generation = self.facts.cx.object.meta().generation;
        let plan = Plan::rest().status(self.status);
        if is_news { plan.note(Note::warning(reason, message)) } else { plan }
    }
}

impl Facts<'_> {
    fn status(&self) -> RepositoryStatus {
        self.cx.typed.status.clone().unwrap_or_default()
    }

    fn spec(&self) -> &RepositorySpec {
        &self.cx.typed.spec
    }

    /// The repository as GitHub compares names.
    fn home(&self) -> String {
        let RepositorySpec { owner, name, .. } = self.spec();
        format!("{owner}/{name}").to_ascii_lowercase()
    }
}

fn run(facts: &Facts<'_>) -> Plan<RepositoryStatus> {
    if wanted_labels(facts).iter().any(|(key, value)| facts.cx.object.label(key) != Some(value.as_str())) {
        return Plan::step(introduce(facts));
    }
    let mut report = Report::of(facts);
    if let Some(elder) = &facts.elder_here {
        let message = format!("Repository {elder} is older and already follows this repository here");
        return report.not_ready(Reason::DuplicateRepository, &message);
    }
    if facts.spec().suspend {
        return report.not_ready(Reason::Suspended, "spec.suspend: GitHub is not asked");
    }
    let account = match &facts.account {
        Ok(account) => account,
        Err(problem) => {
            let message = problem.to_string();
            report.condition(NewCondition::no(GITHUB_REACHABLE, Reason::SecretRefNotAllowed, &message));
            return report.not_ready(Reason::SecretRefNotAllowed, &message);
        }
    };
    match schedule::due(facts.cx.object, facts.cx.typed, facts.cx.now) {
        Due::Now => sync::sync(facts, account),
        Due::At(at) => keep_house(facts).wake_at(at),
    }
}

/// Between two looks at GitHub: remembers the checks that Branches made, and lets the oldest of what is kept go.
fn keep_house(facts: &Facts<'_>) -> Plan<RepositoryStatus> {
    let mut status = facts.status();
    collect_checks(facts, &mut status);
    let mut plan = Plan::rest().status(status);
    let limit = usize::try_from(facts.spec().history_limit).unwrap_or_default();
    if limit == 0 {
        // Each removes itself when it is done.
        return plan;
    }
    let mut finished: Vec<(i64, &Followed)> = facts
        .branches
        .values()
        .filter(|followed| !followed.object.is_deleting())
        .filter_map(|followed| {
            let branch = followed.typed.as_ref()?;
            let result = branch.status.as_ref()?.result.as_ref()?;
            let is_commit = branch.spec.is_default(&facts.spec().default_branch);
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
fn collect_checks(facts: &Facts<'_>, status: &mut RepositoryStatus) {
    let is_going = |followed: &Followed| {
        let Some(branch) = &followed.typed else { return false };
        let over = branch.status.as_ref().and_then(|status| status.result.as_ref());
        let is_commit = branch.spec.is_default(&facts.spec().default_branch);
        followed.object.is_deleting() || (is_commit && over.is_some_and(|result| result.state.is_over()))
    };
    let going = facts.branches.values().filter(|followed| is_going(followed));
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
fn clean_up(facts: &Facts<'_>) -> Plan<RepositoryStatus> {
    if facts.branches.is_empty() {
        return Plan::step(Step::remove_finalizer(finalizers::REPOSITORY));
    }
    let staying = facts.branches.values().filter(|branch| !branch.object.is_deleting());
    Plan { steps: staying.map(|branch| delete(&branch.object)).collect(), ..Plan::rest() }
}

/// Finalizer and labels, in one write.
fn introduce(facts: &Facts<'_>) -> Step {
    let me = facts.cx.object;
    let mut finalizers = me.finalizers().to_vec();
    if !me.has_finalizer(finalizers::REPOSITORY) {
        finalizers.push(finalizers::REPOSITORY.to_owned());
    }
    let labels: Map<String, Value> =
        wanted_labels(facts).into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
    Step::patch_unchanged(me, json!({"metadata": {"finalizers": finalizers, "labels": labels}}))
}

fn wanted_labels(facts: &Facts<'_>) -> [(&'static str, String); 3] {
    let spec = facts.spec();
    [
        (labels::OWNER, names::label_value(&spec.owner)),
        (labels::REPO_NAME, names::label_value(&spec.name)),
        (labels::REPO_UID, names::label_value(facts.cx.object.uid())),
    ]
}

fn delete(object: &Object) -> Step {
    Step::delete(object)
}

/// What this Repository's aggregate check is called: an older one for the same repository keeps the plain name.
fn aggregate_check_name(facts: &Facts<'_>) -> Option<String> {
    facts.elder_anywhere.then(|| format!("{AGGREGATE_CHECK} ({})", facts.cx.object.key()))
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
