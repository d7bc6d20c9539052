//! What is the next thing to do for a Workflow: one template's run of one path of one commit?
//!
//! ```text
//! finalizer ─▶ Branch there? ─no──▶ the Workflow is deleted
//!              finished?     ─yes─▶ it stays finished, whatever becomes of its Job (I2)
//!              cancelled?    ─yes─▶ its Job is stopped
//!              no Job yet    ─────▶ template, power ▸ no Freeze holds ▸ dependencies ▸ earlier commits ▸ a place and the target are free
//!                                   ▸ check run ▸ the Job is made, of the Workflow's name (I1), and held
//!              a held Job    ─────▶ the target's lock is taken, and names the Job; its UID is recorded; then, and only
//!                                   then, it is let go
//!              a Job         ─────▶ phase from its conditions; the check run follows
//!              vanished      ─────▶ Failed, JobVanished
//! deleted   ─▶ a running Job is deleted in the foreground and waited for, the check run cancelled ─▶ finalizer goes
//! ```
//! A Job is made before it is started, so that a process which stalls between deciding and making cannot run anything
//! twice: what it makes too late is never let go, and is removed.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::git::workflow::{HELD_FOR, TEMPLATE_FOUND, WAITS_FOR};
use pawl_api::git::{Branch, Workflow, WorkflowPhase, WorkflowStatus, WorkflowTemplate};
use pawl_api::git::{annotations, finalizers, labels};
use pawl_api::git::{branch, repository, workflow, workflow_template};
use pawl_api::meta::phase::Table;
use pawl_api::meta::{Gate, GateName, Kind, Phase, Reason, Target, condition};
use pawl_api::pawl::SYSTEM_NAMESPACE;
use pawl_api::pawl::conditions::{FROZEN, TARGET_LOCKED};
use pawl_api::pawl::freeze::Door;
use pawl_api::pawl::labels::ALLOW_PRIVILEGED;

use super::account;
use super::github::Account;
use crate::audit::{self, Entry, Teller};
use crate::cluster::job::followed::Followed;
use crate::cluster::job::{JOB, POD};
use crate::cluster::namespace::{NAMESPACE, is_yes};
use crate::freeze::{self, Selecting};
use crate::held_run::{self, HeldRun, RunState, is_held};
use crate::lifecycle::{self, Lifecycle};
use crate::lock::{LEASE, LockResult, Locks, UNIT};
use crate::machine::{Depth, Description, Machine, Primary, Watch, Write};
use crate::object::{Key, Object, Reference};
use crate::plan::{Adopt, Note, Plan, Step};
use crate::view::{Context, View};

mod ahead;
mod ending;
pub(crate) mod following;
mod locking;
mod report;
mod starting;
mod telling;
#[cfg(test)]
mod tests;
mod wakes;

pub(super) use ahead::UNFINISHED;

use ahead::Ahead;
use locking::Places;
use report::Report;

/// How long a container may fail to start before the run fails: longer than a registry's hiccup.
const START_LIMIT: Duration = Duration::from_mins(10);

/// How long a new Workflow waits for others before it says so: most waits are shorter, and each word is a write here and a
/// call to GitHub.
const QUIET: Duration = Duration::from_secs(10);

/// How long a Job must have run before it is said to run. Jobs start at whole seconds, so this is at least one: what ends
/// sooner only ends.
const RUNNING_AFTER: Duration = Duration::from_secs(2);

/// Runs Workflows.
#[derive(Clone, Debug)]
pub struct Workflows {
    /// Where the locks are.
    pub system_namespace: String,
    /// Where check runs lead to, if there is a dashboard.
    pub dashboard_url: Option<String>,
}

impl Default for Workflows {
    fn default() -> Self {
        Self { system_namespace: SYSTEM_NAMESPACE.to_owned(), dashboard_url: None }
    }
}

/// A Workflow and all that its next step depends on.
#[derive(Debug)]
struct Facts<'a> {
    cx: &'a Context<'a, Workflow>,
    branch: Found<Branch>,
    template: Found<WorkflowTemplate>,
    /// An earlier template, by name, shows the same name on GitHub.
    shares_its_name: bool,
    repository: Option<Arc<Object>>,
    /// On whose behalf GitHub is told; `None` where no Repository stands behind the Branch.
    account: Option<Result<Arc<Account>, String>>,
    /// Its Job, of its own name.
    job: HeldRun,
    pods: Vec<Arc<Object>>,
    allow_privileged: bool,
    locks: Locks,
    /// The problem with one of its targets, if there is one.
    target_problem: Option<String>,
    places: Places,
    /// The Freezes that select it, until its Job is recorded.
    freezes: Selecting,
    ahead: Ahead,
    dashboard_url: Option<String>,
}

#[derive(Debug)]
enum Found<K> {
    Missing,
    /// It is there, but does not have the shape of its kind.
    Malformed(String),
    There {
        object: Arc<Object>,
        typed: Arc<K>,
    },
}

impl Machine for Workflows {
    type Kind = Workflow;
    type Status = WorkflowStatus;

    fn description(&self) -> Description {
        Description {
            name: "workflow",
            primary: Primary::One(workflow::KIND),
            depth: Depth::Full,
            watches: vec![
                Watch::other(JOB, wakes::of_the_job).by_labels(&[HELD_FOR]),
                Watch::other(POD, wakes::of_the_pods_job),
                Watch::other(workflow::KIND, wakes::after_a_workflow)
                    .by_labels(&[WAITS_FOR])
                    .in_lines(&ahead::LINES),
                Watch::other(workflow_template::KIND, wakes::naming_the_template),
                // What it is at and that it was evaluated stand in its spec and its annotations.
                Watch::other(branch::KIND, wakes::of_the_branch).but_for_status(),
                Watch::other(repository::KIND, wakes::of_the_repository),
                Watch::other(LEASE, wakes::of_the_lock).by_labels(&[UNIT, labels::REPO_UID]),
                Watch::other(NAMESPACE, |_, _| Vec::new()).metadata_only(),
                freeze::watch(wakes::not_yet_started),
            ],
            finalizer: Some(finalizers::WORKFLOW),
            phases: Some(Table::of::<WorkflowPhase>(workflow::KIND, ["status", "phase"])),
            writes: vec![
                Write::main(workflow::KIND, &["delete", "patch"]),
                Write::status(workflow::KIND),
                Write::finalizers(workflow::KIND),
                Write::main(JOB, &["create", "delete", "patch"]),
                Write::main(LEASE, &["create", "delete", "patch"]),
            ],
        }
    }

    fn audit(&self, tell: &Teller<'_>, workflow: &Workflow) -> Option<Vec<Entry>> {
        Some(audit::git::workflow(tell, workflow))
    }

    fn reconcile(&self, cx: &Context<'_, Workflow>) -> Plan<WorkflowStatus> {
        match lifecycle::of(cx.object, finalizers::WORKFLOW) {
            Lifecycle::Add => Plan::step(Step::add_finalizer(finalizers::WORKFLOW)),
            Lifecycle::Run => run(&self.facts(cx)),
            Lifecycle::CleanUp => ending::clean_up(&self.facts(cx)),
            Lifecycle::Nothing => Plan::rest(),
        }
    }
}

impl Workflows {
    fn facts<'a>(&self, cx: &'a Context<'a, Workflow>) -> Facts<'a> {
        let workflow = cx.typed;
        let (view, me, spec) = (cx.view, cx.object, &workflow.spec);
        let beside = |name: &str| Key::new(me.namespace(), name);
        let branch: Found<Branch> = find(view, &branch::KIND, &beside(&spec.branch));
        let template: Found<WorkflowTemplate> = find(view, &workflow_template::KIND, &beside(&spec.template));
        let repository = match branch.object() {
            Some(branch) => account::repository_of(view, branch),
            // Its Branch is gone; the label still leads to whoever was to be told.
            None => me.label(labels::REPO_UID).and_then(|uid| view.by_uid(&repository::KIND, uid)),
        };
        let found = view.get(&JOB, &me.key());
        let pods = found.as_ref().map(|job| view.owned(&POD, job.uid())).unwrap_or_default();
        let home = view.get(&NAMESPACE, &Key::new(None, me.namespace().unwrap_or_default()));
        let branch_spec = branch.typed().map(|branch| &branch.spec);
        let targets = branch_spec.map_or(Ok(vec![]), |branch| {
            locking::targets(me, spec, branch, template.object().map(AsRef::as_ref), repository.as_ref())
        });
        let known = targets.clone().unwrap_or_default();
        let locks = Locks::observe(view, &self.system_namespace, me, known);
        let starting = !me.is_deleting() && ahead::has_not_started(workflow);
        let waits = starting || found.as_ref().is_some_and(|job| is_held(job));
        let places = repository
            .as_ref()
            .filter(|_| waits)
            .map(|repository| Places::count(view, me, locks.held(), repository.uid()));
        let places = places.unwrap_or_default();
        let before = branch.object().filter(|_| starting).map(|object| {
            let template = template.typed().map(AsRef::as_ref);
            Ahead::observe(view, me, workflow, object, template, repository.as_ref(), places.others)
        });
        let freezes = if starting {
            Selecting::observe(view, me, Door::Git, locks.targets())
        } else {
            Selecting::default()
        };
        let recorded = workflow.status.as_ref().and_then(|status| status.job_ref.as_ref());
        let recorded = recorded.map(|job| job.uid.clone()).filter(|uid| !uid.is_empty());
        let owner = Adopt::ControlledBy(me.uid().to_owned());
        Facts {
            job: HeldRun::new(JOB, me.key(), owner, found, recorded),
            freezes,
            shares_its_name: starting && shares_its_name(view, me, template.typed()),
            account: repository
                .as_ref()
                .map(|object| account::of(view, object).map_err(|none| none.to_string())),
            allow_privileged: home.is_some_and(|home| is_yes(home.label(ALLOW_PRIVILEGED))),
            ahead: before.unwrap_or_else(|| Ahead::after_the_start(repository.as_ref())),
            dashboard_url: self.dashboard_url.clone(),
            branch,
            template,
            repository,
            pods,
            target_problem: targets.err(),
            places,
            locks,
            cx,
        }
    }
}

fn run(facts: &Facts<'_>) -> Plan<WorkflowStatus> {
    let mut report = Report::of(facts);
    if let Found::Missing = facts.branch {
        return without_branch(facts);
    }
    if report.is_over() {
        return ending::finished(facts, report);
    }
    let going = facts.job.found().is_none_or(|job| !held_run::is_finished(job));
    if let Some(by) = facts.cx.object.annotation(annotations::CANCEL).filter(|_| going) {
        return ending::cancelled(facts, report, by);
    }
    match facts.job.state() {
        RunState::Absent => starting::start(facts, report),
        RunState::Foreign(job) => {
            // Whether the template is there no longer matters, and nobody will look again.
            condition::remove(&mut report.status.conditions, TEMPLATE_FOUND);
            let message = not_ours(facts);
            still_so(report.ends(WorkflowPhase::Failed, Reason::OwnershipMismatch, message), job)
        }
        RunState::Vanished => vanished(facts, report),
        RunState::Late(job) => Plan::steps(HeldRun::delete_late(job)),
        RunState::Unrecorded(job) if is_held(job) && !job.is_deleting() => record(facts, report, job),
        RunState::Held(job) => start_job(facts, report, job),
        RunState::Unrecorded(job) | RunState::Started(job) => follow(facts, report, job),
    }
}

/// The Job was created: its UID is recorded, by compare-and-swap, before it starts.
fn record(facts: &Facts<'_>, mut report: Report<'_>, job: &Object) -> Plan<WorkflowStatus> {
    report.template_found();
    report.made(job);
    condition::remove(&mut report.status.conditions, TARGET_LOCKED);
    condition::remove(&mut report.status.conditions, FROZEN);
    let mut plan = report.stays(WorkflowPhase::Pending, Reason::JobCreated, "the Job was made");
    // Locks that are free are acquired in the same plan; others are waited for once the UID is recorded.
    if let (LockResult::Acquire(steps), None) = (locking::acquire(facts), full(facts)) {
        plan.steps = steps;
    }
    gates_passed(facts, plan)
}

/// The Job is recorded: it starts while the locks on the targets name it, and the Workflow has one of the
/// Repository's places.
fn start_job(facts: &Facts<'_>, mut report: Report<'_>, job: &Object) -> Plan<WorkflowStatus> {
    report.template_found();
    if let Some(limit) = full(facts) {
        return starting::queued(facts, report, limit);
    }
    match locking::acquire(facts) {
        LockResult::Acquired => Plan::steps(held_run::start(job)),
        // The order of the locks decides which Workflow has a place: it is read once they are seen.
        LockResult::Acquire(steps) | LockResult::Reap(steps) => Plan::steps(steps),
        LockResult::Busy(busy) => starting::locked(report, *busy),
    }
}

impl Facts<'_> {
    /// The first target of the Workflow, normalized.
    fn target(&self) -> Option<&Target> {
        self.locks.targets().first()
    }
}

/// The Repository's limit, if other Workflows have all of its places.
fn full(facts: &Facts<'_>) -> Option<usize> {
    let Places { running, before, .. } = facts.places;
    let ahead = if facts.locks.held().is_empty() { running } else { before };
    facts.ahead.limit.filter(|limit| ahead >= *limit)
}

/// What made the Job had passed these gates, whether or not a status that said so was lost.
fn gates_passed(facts: &Facts<'_>, plan: Plan<WorkflowStatus>) -> Plan<WorkflowStatus> {
    let target = facts.target().map(ToString::to_string).unwrap_or_default();
    let mut plan = plan.gate(Gate::passed(GateName::Validate, Reason::Valid, looked_at(facts)));
    plan.gates.extend(facts.freezes.standing(facts.cx.now).passed());
    if !facts.ahead.dependencies.is_empty() {
        let told: Vec<String> = facts.ahead.dependencies.iter().map(ahead::Dependency::told).collect();
        let gate = Gate::passed(GateName::Preconditions, Reason::PreconditionsMet, told.join("; "));
        plan = plan.gate(gate);
    }
    plan.gate(Gate::passed(GateName::Lock, Reason::LockAcquired, target))
}

/// An end that follows from an object as it was seen: a cache that lags must not end anything.
fn still_so(mut plan: Plan<WorkflowStatus>, seen: &Arc<Object>) -> Plan<WorkflowStatus> {
    plan.steps.insert(0, Step::confirm_unchanged(seen));
    plan
}

fn not_ours(facts: &Facts<'_>) -> String {
    format!("Job {} exists and belongs to somebody else", facts.cx.object.key())
}

/// The seed's rule: a Workflow without its Branch has no purpose. A cache is no proof that there is none.
fn without_branch(facts: &Facts<'_>) -> Plan<WorkflowStatus> {
    let key = Key::new(facts.cx.object.namespace(), &facts.cx.typed.spec.branch);
    let branch = Reference { kind: branch::KIND, key, uid: String::new() };
    let note = "Branch not found for Workflow, skipping processing";
    Plan::rest()
        .then(Step::confirm_gone(branch))
        .then(Step::delete(facts.cx.object))
        .note(Note::warning(Reason::BranchNotFound, note))
}

/// Its result was never recorded, so nobody knows it: a failure of its own, never a silent second run (I2).
fn vanished(facts: &Facts<'_>, report: Report<'_>) -> Plan<WorkflowStatus> {
    let message = format!("Job {} was gone before its result was recorded", facts.cx.object.key());
    let mut plan = report.ends(WorkflowPhase::Failed, Reason::JobVanished, message);
    plan.steps.insert(0, facts.job.confirm_gone());
    plan
}

fn follow(facts: &Facts<'_>, mut report: Report<'_>, object: &Object) -> Plan<WorkflowStatus> {
    let Ok(job) = object.parse::<Followed>() else { return Plan::rest() };
    let (phase, reason, message) = following::phase_of(&job);
    let status = job.status.as_ref();
    // A Job was made from it, whether or not this cache has seen the template, or the status that said so was lost.
    report.template_found();
    report.made(object);
    report.status.start_time = status.and_then(|status| status.start_time.clone());
    if phase.is_terminal() {
        report.status.completion_time = status.and_then(|status| status.completion_time.clone());
        return gates_passed(facts, report.ends(phase, reason, message));
    }
    let Some(problem) = following::cannot_start(&facts.pods) else {
        report.status.start_deadline = None;
        let started_at = report.status.start_time.as_ref().map(|at| later(at.0, RUNNING_AFTER));
        if let Some(at) = started_at.filter(|at| phase == WorkflowPhase::Running && facts.cx.now < *at) {
            return Plan::rest().wake_at(at);
        }
        if following::has_not_begun(&job, &report.status) {
            return Plan::rest();
        }
        return gates_passed(facts, report.goes_on(phase, reason, message));
    };
    // A Job with a deadline of its own has been told how long to try.
    let own_deadline = job.spec.as_ref().is_some_and(|spec| spec.active_deadline_seconds.is_some());
    let deadline =
        report.status.start_deadline.clone().map_or_else(|| later(facts.cx.now, START_LIMIT), |time| time.0);
    if own_deadline {
        return gates_passed(facts, report.goes_on(phase, Reason::ContainerCannotStart, problem));
    }
    if deadline <= facts.cx.now {
        let mut plan = report.ends(WorkflowPhase::Failed, Reason::ContainerCannotStart, problem);
        // What GitHub is told first shows the Pods as they are.
        if plan.asks.is_empty() {
            plan.steps.push(held_run::delete(object));
        }
        return gates_passed(facts, plan);
    }
    report.status.start_deadline = Some(Time(deadline));
    let plan = report.goes_on(phase, Reason::ContainerCannotStart, problem).wake_at(deadline);
    gates_passed(facts, plan)
}

fn looked_at(facts: &Facts<'_>) -> String {
    format!("the job of WorkflowTemplate {}", facts.cx.typed.spec.template)
}

impl<K> Found<K> {
    fn object(&self) -> Option<&Arc<Object>> {
        match self {
            Self::There { object, .. } => Some(object),
            Self::Missing | Self::Malformed(_) => None,
        }
    }

    fn typed(&self) -> Option<&Arc<K>> {
        match self {
            Self::There { typed, .. } => Some(typed),
            Self::Missing | Self::Malformed(_) => None,
        }
    }
}

fn find<K: serde::de::DeserializeOwned + Send + Sync + 'static>(
    view: &dyn View,
    kind: &Kind,
    key: &Key,
) -> Found<K> {
    match view.get(kind, key) {
        None => Found::Missing,
        Some(object) => match object.parse::<K>() {
            Ok(typed) => Found::There { object, typed },
            Err(malformed) => Found::Malformed(malformed.to_string()),
        },
    }
}

/// Whether another template, earlier by name, has the same display name: that one keeps the plain name on GitHub.
fn shares_its_name(view: &dyn View, me: &Object, template: Option<&Arc<WorkflowTemplate>>) -> bool {
    let Some(template) = template else { return false };
    let mine = template.metadata.name.as_deref().unwrap_or_default();
    view.list(&workflow_template::KIND, me.namespace()).iter().any(|other| {
        other.name() < mine
            && other
                .parse::<WorkflowTemplate>()
                .is_ok_and(|other| other.spec.display_name == template.spec.display_name)
    })
}

fn later(at: Timestamp, by: Duration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}
