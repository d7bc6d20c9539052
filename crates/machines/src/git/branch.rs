//! What does a Branch lead to: which Workflows for the commit it is at, and when is it done?
//!
//! ```text
//! finalizer ─▶ Repository there? ─no─▶ deleted
//!              this commit evaluated? ─no─▶ Workflows of older commits go ─▶ trusted? ─▶ changed files ─▶ templates
//!                     │                      ─▶ Workflows are made ─▶ last-sha says so
//!                     └yes─▶ commands, re-runs ─▶ result ─▶ the `pawl` check ─▶ a default-branch commit's Branch goes
//! deleted   ─▶ Workflows are deleted and waited for ─▶ the check is concluded ─▶ finalizer goes
//! ```
//! A Branch is *evaluated* when `terrakojo.io/last-sha` is its SHA: its Workflows exist. Whoever must come after it (a
//! later commit's Workflow on the same target) waits for that.

mod aggregate;
mod attempts;
mod evaluate;
mod wakes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pawl_api::git::branch::{BranchResult, KIND, ResultState};
use pawl_api::git::workflow_template::Supersede;
use pawl_api::git::{
    Branch, BranchSpec, BranchStatus, Repository, Workflow, WorkflowPhase, WorkflowTemplate, annotations,
    finalizers, labels, repository, workflow, workflow_template,
};
use pawl_api::k8s::PERSISTENT_VOLUME_CLAIM;
use pawl_api::meta::{NewCondition, Phase, Reason, condition};

use super::account::{self, NoAccount};
use super::github::Account;
use super::trust::{self, Trust};
use crate::audit::{self, Entry, Teller};
use crate::cluster::namespace::NAMESPACE;
use crate::lifecycle::{self, Lifecycle};
use crate::machine::{Description, Machine, Watch, Write};
use crate::object::{Key, Object, Reference};
use crate::plan::{Note, Plan, Step};
use crate::time::later;
use crate::view::{Context, Served, View};

/// How long a deleted Branch tries to tell GitHub that its check is over (I5): a few retries of one call.
const FAREWELL_LIMIT: Duration = Duration::from_mins(2);

/// Why nothing ran for a ref that was there before its Repository was followed.
const LEFT_ALONE: &str = "before";

/// Turns Branches into Workflows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Branches;

/// A Branch and all that its next step depends on.
#[derive(Debug)]
struct Facts<'a> {
    cx: &'a Context<'a, Branch>,
    home: Result<Home, NoHome>,
    /// The Workflows it owns, by name.
    units: Vec<Unit>,
    templates: Templates,
    /// What other Branches of the Repository make of the same commit.
    siblings: Vec<BranchResult>,
    /// Older commits whose check this Branch still sees to, and which another Branch is at.
    elsewhere: BTreeSet<String>,
}

/// The Repository of a Branch.
#[derive(Debug)]
struct Home {
    object: Arc<Object>,
    repository: Arc<Repository>,
    account: Result<Arc<Account>, NoAccount>,
}

/// Why the Repository cannot be used.
#[derive(Debug)]
enum NoHome {
    /// No Repository is named, or the named one is not there.
    Missing(Option<Box<Reference>>),
    Malformed(String),
}

/// A Workflow of this Branch.
#[derive(Debug)]
struct Unit {
    object: Arc<Object>,
    /// `None`: it does not have the shape of its kind.
    workflow: Option<Arc<Workflow>>,
}

#[derive(Debug)]
struct Templates {
    served: Served,
    all: BTreeMap<String, (Arc<Object>, Arc<WorkflowTemplate>)>,
    /// What is wrong with those that do not have the shape of their kind.
    malformed: Vec<String>,
}

/// How far a commit has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    New,
    /// It was there before anybody looked, and nothing is to run for it.
    LeftAlone,
    Evaluated,
}

/// What is known once the Repository is.
struct Known<'a> {
    facts: &'a Facts<'a>,
    repository: &'a Repository,
    repository_uid: &'a str,
    account: &'a Result<Arc<Account>, NoAccount>,
    is_default: bool,
    trust: Trust,
}

impl Machine for Branches {
    type Kind = Branch;
    type Status = BranchStatus;

    fn description(&self) -> Description {
        Description {
            watches: vec![
                Watch::other(workflow::KIND, wakes::of_a_workflow_that_counts).in_lines(&wakes::LINES),
                Watch::other(KIND, wakes::at_the_same_commit).by_labels(&[labels::SHA]),
                Watch::other(repository::KIND, wakes::waiting_for_it),
                Watch::other(workflow_template::KIND, wakes::with_a_pull_request),
                Watch::other(NAMESPACE, |_, _| Vec::new()).metadata_only(),
            ],
            finalizer: Some(finalizers::BRANCH),
            writes: vec![
                Write::main(KIND, &["delete", "patch"]),
                Write::status(KIND),
                Write::finalizers(KIND),
                Write::main(workflow::KIND, &["create", "delete", "patch"]),
                // Read only to see whose it is when the name is taken.
                Write::main(PERSISTENT_VOLUME_CLAIM, &["create", "get"]),
            ],
            ..Description::new("branch", KIND)
        }
    }

    fn audit(&self, tell: &Teller<'_>, branch: &Branch) -> Option<Vec<Entry>> {
        Some(audit::git::branch(tell, branch))
    }

    fn reconcile(&self, cx: &Context<'_, Branch>) -> Plan<BranchStatus> {
        let facts = self.facts(cx);
        // One that a person made, of no Repository, is left to that person.
        if matches!(facts.home, Err(NoHome::Missing(None))) && !facts.cx.object.is_deleting() {
            return Plan::rest();
        }
        match lifecycle::of(facts.cx.object, finalizers::BRANCH) {
            Lifecycle::Add => Plan::step(Step::add_finalizer(finalizers::BRANCH)),
            Lifecycle::Run => run(&facts),
            Lifecycle::CleanUp => clean_up(&facts),
            Lifecycle::Nothing => Plan::rest(),
        }
    }
}

impl Branches {
    fn facts<'a>(&self, cx: &'a Context<'a, Branch>) -> Facts<'a> {
        let (view, me, branch) = (cx.view, cx.object, cx.typed);
        let units = view.owned(&workflow::KIND, me.uid());
        let units = units.into_iter().map(|object| Unit { workflow: object.parse().ok(), object });
        let older = branch.status.iter().flat_map(|status| &status.checks).map(|check| &check.sha);
        let elsewhere = older
            .filter(|sha| **sha != branch.spec.sha && !others_at(view, me, sha).is_empty())
            .cloned()
            .collect();
        let siblings = others_at(view, me, &branch.spec.sha);
        Facts {
            home: home(view, me),
            units: units.collect(),
            templates: templates(view, me),
            siblings: siblings.iter().filter_map(|object| result_of(object)).collect(),
            elsewhere,
            cx,
        }
    }
}

/// What an evaluation is about: a pull request on a commit already seen is another one.
pub fn evaluation_key(sha: &str, pull_request: Option<i64>) -> String {
    match pull_request {
        Some(number) => format!("{sha}#{number}"),
        None => sha.to_owned(),
    }
}

/// Of a ref that was there before its Repository was followed, which is to run only what comes after.
pub fn left_alone(sha: &str, pull_request: Option<i64>) -> String {
    format!("{}:{LEFT_ALONE}", evaluation_key(sha, pull_request))
}

impl Facts<'_> {
    fn spec(&self) -> &BranchSpec {
        &self.cx.typed.spec
    }

    fn status(&self) -> BranchStatus {
        self.cx.typed.status.clone().unwrap_or_default()
    }

    fn condition(&self, status: &mut BranchStatus, new: NewCondition) {
        condition::set(&mut status.conditions, new, self.cx.object.meta().generation, self.cx.now);
    }

    /// The Workflows of the commit it is at that are not on their way out.
    fn current(&self) -> impl Iterator<Item = (&Arc<Object>, &Arc<Workflow>)> {
        self.units.iter().filter(|unit| !unit.object.is_deleting()).filter_map(|unit| {
            let workflow = unit.workflow.as_ref()?;
            (workflow.spec.sha == self.spec().sha).then_some((&unit.object, workflow))
        })
    }

    fn known(&self) -> Result<Known<'_>, &NoHome> {
        let Home { object, repository, account } = self.home.as_ref()?;
        let ok_to_test = self.cx.object.annotation(annotations::OK_TO_TEST);
        Ok(Known {
            is_default: self.spec().is_default(&repository.spec.default_branch),
            trust: trust::of(&repository.spec, self.spec(), ok_to_test),
            repository_uid: object.uid(),
            facts: self,
            repository,
            account,
        })
    }
}

impl Known<'_> {
    fn spec(&self) -> &BranchSpec {
        self.facts.spec()
    }

    /// How far the commit has come, with its pull request and as it is trusted now.
    fn stage(&self) -> Stage {
        let me = self.facts.cx.object;
        let last_sha = me.annotation(annotations::LAST_SHA);
        let Some(done) = me.annotation(annotations::LAST_EVALUATION) else {
            // Where only the seed's annotation is, somebody else evaluated it, without a pull request.
            let is_done = last_sha == Some(&self.spec().sha) && self.spec().pull_request().is_none();
            return if is_done { Stage::Evaluated } else { Stage::New };
        };
        let (key, why) = done.split_once(':').map_or((done, None), |(key, why)| (key, Some(why)));
        let (sha, number) = key.split_once('#').map_or((key, None), |(sha, number)| (sha, Some(number)));
        let number = number.and_then(|number| number.parse::<i64>().ok());
        let is_same = sha == self.spec().sha
            && last_sha == Some(sha)
            // A pull request that closes changes nothing; one that opens does.
            && self.spec().pull_request().is_none_or(|open| number == Some(open));
        let is_written = self.facts.status().evaluated_sha.as_deref() == Some(sha);
        match why {
            _ if !is_same => Stage::New,
            Some(LEFT_ALONE) => Stage::LeftAlone,
            // A crash kept the status from saying what the annotation says.
            _ if !is_written => Stage::New,
            None => Stage::Evaluated,
            Some(why) if why == trust::Stop::SkipCi.word() => Stage::Evaluated,
            // It was held back: for the same reason as now?
            Some(why) if self.trust.stop().is_some_and(|stop| stop.word() == why) => Stage::Evaluated,
            Some(_) => Stage::New,
        }
    }

    /// Whether a default-branch commit's Branch may remove itself: not before the Repository's cursor has passed it, or
    /// the next look would make it anew and run it again.
    fn may_go(&self) -> bool {
        let next = self.repository.status.as_ref().and_then(|status| status.next_sequence);
        self.is_default && self.spec().sequence.is_none_or(|mine| next.is_some_and(|next| next > mine))
    }
}

fn run(facts: &Facts<'_>) -> Plan<BranchStatus> {
    let known = match facts.known() {
        Ok(known) => known,
        Err(NoHome::Missing(gone)) => {
            return gone.as_ref().map_or_else(Plan::rest, |gone| without_repository(facts, gone));
        }
        Err(NoHome::Malformed(problem)) => {
            let mut status = facts.status();
            let message = format!("the Repository cannot be read: {problem}");
            facts.condition(
                &mut status,
                NewCondition::no(pawl_api::git::branch::WORKFLOW_READY, Reason::Invalid, message),
            );
            return Plan::rest().status(status);
        }
    };
    match known.stage() {
        Stage::New => evaluate::evaluate(&known),
        Stage::LeftAlone => superseded(facts),
        Stage::Evaluated => settle(&known),
    }
}

/// The seed's rule: a Branch without its Repository has no purpose. A cache is no proof that there is none.
fn without_repository(facts: &Facts<'_>, gone: &Reference) -> Plan<BranchStatus> {
    Plan::step(Step::confirm_gone(gone.clone()))
        .then(delete_me(facts.cx.object))
        .note(Note::warning(Reason::RepositoryNotFound, "Repository not found for branch; deleting branch"))
}

/// The commit was evaluated: follow its Workflows, and do what people ask for.
fn settle(known: &Known<'_>) -> Plan<BranchStatus> {
    let facts = known.facts;
    let mut plan = superseded(facts);
    let mut status = facts.status();
    let before = status.clone();
    if attempts::requested(known, &mut status, &mut plan) {
        // What was made or stopped is seen in the next look.
        aggregate::reopen(&mut status, &known.spec().sha);
        return plan.status(status);
    }
    if !plan.asks.is_empty() {
        return plan;
    }
    let over_before =
        status.result.as_ref().is_some_and(|result| result.sha == known.spec().sha && result.state.is_over());
    aggregate::note_result(known, &mut status);
    aggregate::report(known, &mut status, &mut plan);
    let is_over = status.result.as_ref().is_some_and(|result| result.state.is_over());
    if is_over && !over_before && !known.is_default && facts.current().next().is_some() {
        let note = Note::normal(Reason::AllWorkflowsCompleted, "All workflows completed; keeping Branch");
        plan.notes.push(note.once(attempts_key(facts)));
    }
    let is_told = aggregate::is_told(&status, &known.spec().sha);
    let is_quiet = status == before && plan.steps.is_empty() && plan.asks.is_empty();
    if is_quiet && known.is_default && is_over && is_told {
        return end_of_commit(known, plan);
    }
    plan.status(status)
}

/// A default-branch commit is done with; a Repository that keeps some sees to the rest itself.
fn end_of_commit(known: &Known<'_>, plan: Plan<BranchStatus>) -> Plan<BranchStatus> {
    let facts = known.facts;
    let worked = facts.current().next().is_some();
    if worked && known.repository.spec.history_limit > 0 {
        return plan;
    }
    if !known.may_go() {
        return plan;
    }
    plan.then(delete_me(facts.cx.object))
        .note(Note::normal(Reason::BranchDeleted, "Deleted Branch after all workflows completed"))
}

/// Workflows of commits that the ref has left: stopped at once, or kept until they are done and GitHub knows it where
/// their template says so.
fn superseded(facts: &Facts<'_>) -> Plan<BranchStatus> {
    let mut plan = Plan::rest();
    for unit in facts.units.iter().filter(|unit| !unit.object.is_deleting()) {
        let leave = match &unit.workflow {
            None => true,
            Some(workflow) if workflow.spec.sha == facts.spec().sha => false,
            Some(workflow) if may_finish(facts, workflow) => {
                is_over(workflow) && !aggregate::is_awaited(facts, &workflow.spec.sha)
            }
            Some(_) => true,
        };
        if leave {
            plan.steps.push(delete(&unit.object));
        }
    }
    if !plan.steps.is_empty() {
        let message = "Deleted existing workflows for branch due to SHA change";
        plan.notes.push(Note::normal(Reason::WorkflowsDeleted, message).once(&facts.spec().sha));
    }
    plan
}

fn may_finish(facts: &Facts<'_>, workflow: &Workflow) -> bool {
    let template = facts.templates.all.get(&workflow.spec.template);
    template.is_some_and(|(_, template)| template.spec.supersede == Supersede::Finish)
}

/// The Workflows first, then the check, then the finalizer; whatever is gone already holds up nothing (I5).
fn clean_up(facts: &Facts<'_>) -> Plan<BranchStatus> {
    let release = || Step::remove_finalizer(finalizers::BRANCH);
    if !facts.units.is_empty() {
        let mut plan = Plan::rest();
        for Unit { object, .. } in &facts.units {
            if !object.is_deleting() {
                plan.steps.push(delete(object));
            }
        }
        if !plan.steps.is_empty() {
            let message = "Waiting for workflows to finish before deleting branch";
            plan.notes.push(Note::normal(Reason::WaitingForWorkflows, message));
        }
        return plan;
    }
    let since = facts.cx.object.meta().deletion_timestamp.as_ref().map_or(facts.cx.now, |time| time.0);
    let limit = later(since, FAREWELL_LIMIT);
    match aggregate::farewell(facts) {
        aggregate::Farewell::Done => Plan::step(release()),
        aggregate::Farewell::Ask(calls) => Plan { asks: calls, ..Plan::rest() },
        aggregate::Farewell::Unheard(_) if facts.cx.now < limit => Plan::rest().wake_at(limit),
        aggregate::Farewell::Unheard(why) | aggregate::Farewell::Lost(why) => {
            let message = format!("the check of this Branch could not be concluded: {why}");
            Plan::step(release()).note(Note::warning(Reason::CleanupIncomplete, message))
        }
    }
}

fn is_over(workflow: &Workflow) -> bool {
    workflow.status.as_ref().and_then(|status| status.phase).is_some_and(WorkflowPhase::is_terminal)
}

fn delete(object: &Object) -> Step {
    Step::delete(object)
}

/// Only as it was seen: somebody may have moved it on meanwhile.
fn delete_me(me: &Object) -> Step {
    Step::delete_unchanged(me)
}

/// Tells one completion of a commit from the next, after a re-run.
fn attempts_key(facts: &Facts<'_>) -> String {
    let attempts: i64 = facts.current().map(|(_, workflow)| i64::from(workflow.spec.attempt)).sum();
    format!("{}/{attempts}", facts.spec().sha)
}

fn home(view: &dyn View, me: &Object) -> Result<Home, NoHome> {
    let owner = me.owners().iter().find(|owner| owner.kind == repository::KIND.kind);
    let named = owner.map(|owner| {
        let key = Key::new(me.namespace(), &owner.name);
        Box::new(Reference { kind: repository::KIND, key, uid: owner.uid.clone() })
    });
    let Some(object) = account::repository_of(view, me) else { return Err(NoHome::Missing(named)) };
    match object.parse::<Repository>() {
        Ok(repository) => Ok(Home { account: account::of(view, &object), repository, object }),
        Err(malformed) => Err(NoHome::Malformed(malformed.problem)),
    }
}

fn templates(view: &dyn View, me: &Object) -> Templates {
    let mut templates =
        Templates { served: view.serves(&workflow_template::KIND), all: BTreeMap::new(), malformed: vec![] };
    for object in view.list(&workflow_template::KIND, me.namespace()) {
        match object.parse::<WorkflowTemplate>() {
            Ok(template) => {
                templates.all.insert(object.name().to_owned(), (object, template));
            }
            Err(malformed) => templates.malformed.push(malformed.to_string()),
        }
    }
    templates
}

/// Other Branches of the same Repository at a commit.
fn others_at(view: &dyn View, me: &Object, sha: &str) -> Vec<Arc<Object>> {
    let controller = |object: &Object| object.controller().map(|owner| owner.uid.clone());
    let mine = controller(me);
    let mut all = view.labelled(&KIND, labels::SHA, sha);
    all.retain(|other| other.uid() != me.uid() && !other.is_deleting() && controller(other) == mine);
    all
}

/// What another Branch makes of its commit; nothing, if it was told to start only with the next.
fn result_of(object: &Object) -> Option<BranchResult> {
    let branch = object.parse::<Branch>().ok()?;
    let sha = branch.spec.sha.clone();
    let result = branch.status.as_ref().and_then(|status| status.result.clone());
    match result.filter(|result| result.sha == sha) {
        Some(result) => Some(result),
        None if object.annotation(annotations::LAST_SHA) == Some(&sha) => None,
        None => Some(BranchResult {
            sha,
            state: ResultState::Running,
            message: format!("{} is evaluated", branch.spec.name),
        }),
    }
}

#[cfg(test)]
mod tests;
