//! What is the next thing to do for a WorkflowExecution: one run of one packaged remediation on one target?
//!
//! ```text
//! finalizer ─▶ finished?   ─yes─▶ it stays finished (I2); its lock goes when its run is over
//!              cancelled?  ─yes─▶ its run is stopped
//!              no run yet  ─────▶ validate ▸ engine ▸ power ▸ no Freeze holds ▸ what the target remembers ▸ the target's lock
//!                                 ▸ the run is made, of a name that follows from the execution (I1), and held
//!              a held run  ─────▶ its UID is recorded: Running; then, and only then, it is let go
//!              a run       ─────▶ followed by its watch to its end, or to the deadline, which cancels it
//!              vanished    ─────▶ Failed, PipelineRunDeleted
//! deleted   ─▶ a live run is stopped and waited for ─▶ the lock goes ─▶ the finalizer goes
//! ```
//! Who finds the target taken, or too recently mended, is Skipped and never waits: whoever asked decides what then. The
//! Lease decides who may act, and remembers what must outlive every execution (`remedy::memory`).

#![expect(clippy::indexing_slicing, reason = "the objects whose keys are written here are made right here")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::k8s::CUSTOM_RESOURCE_DEFINITION;
use pawl_api::meta::{self, Gate, GateName, Kind, Reason, Target};
use pawl_api::pawl::freeze::Door;
use pawl_api::pawl::labels::TARGET_HASH;
use pawl_api::pawl::{SYSTEM_NAMESPACE, annotations as pawl};
use pawl_api::remedy::workflow_execution::{
    self, ConflictingWorkflow, Engine, RecentRemediation, SkipDetails, TIMEOUT_GRACE,
};
use pawl_api::remedy::{WorkflowExecution, WorkflowExecutionStatus, annotations, finalizers};
use pawl_api::tekton::{PIPELINE_RUN, TASK_RUN, TaskRun};
use serde_json::json;

use super::memory::{Remembered, Verdict};
use super::power::{self, NotAllowed};
use crate::audit::{self, Entry, Teller};
use crate::cluster::job::{JOB, POD};
use crate::cluster::namespace::NAMESPACE;
use crate::failure;
use crate::freeze::{self, Selecting};
use crate::held_run::{self, HeldRun, RunState};
use crate::lifecycle::{self, Lifecycle};
use crate::lock::{self, Busy, LEASE, Lock, LockResult, Locks, Marks, UNIT};
use crate::machine::{Description, Machine, Watch, Write};
use crate::object::{Key, Object, Reference};
use crate::plan::{Note, Plan, Step};
use crate::time::later;
use crate::view::{Context, Served, View};

mod ending;
mod failure_details;
mod locking;
mod report;
mod run;
#[cfg(test)]
mod tests;
mod validate;
mod wakes;

use failure_details::Failure;
use report::Report;
use run::{Run, Standing};

/// How long a container of a Job may fail to start before the run fails: longer than a registry's hiccup.
const START_LIMIT: Duration = Duration::from_mins(5);

/// How long the details of a failure are waited for: caches of different kinds lag differently, but never for long.
const DETAILS_LIMIT: Duration = Duration::from_secs(10);

/// How long until what the API server refused of a lock is tried again: somebody must change something first.
const REFUSED_RETRY: Duration = Duration::from_secs(30);

/// How long a kind may be defined and not yet known to be served: the API server takes a moment, and our caches another.
const APPEARS_WITHIN: Duration = Duration::from_secs(30);

/// Runs WorkflowExecutions.
#[derive(Clone, Debug)]
pub struct WorkflowExecutions {
    /// Where the locks are.
    pub system_namespace: String,
    /// No cooldown is shorter than this.
    pub minimum_cooldown: meta::Duration,
}

impl Default for WorkflowExecutions {
    fn default() -> Self {
        Self { system_namespace: SYSTEM_NAMESPACE.to_owned(), minimum_cooldown: meta::Duration::default() }
    }
}

/// A WorkflowExecution and all that its next step depends on.
#[derive(Debug)]
struct Facts<'a> {
    cx: &'a Context<'a, WorkflowExecution>,
    /// What it acts on, or what is wrong with what it asks for.
    targets: Result<Vec<Target>, String>,
    /// Whether its engine's kind is served.
    served: Served,
    power: Result<(), NotAllowed>,
    /// The Freezes that select it.
    freezes: Selecting,
    run: HeldRun,
    tasks: Vec<Arc<TaskRun>>,
    pods: Vec<Arc<Object>>,
    /// What still acts for a run of this execution, though the run is gone.
    left_behind: bool,
    /// Why the API server does not want the run.
    refused: Option<failure::Failure>,
    /// Why it does not want a lock.
    lock_refused: Option<failure::Failure>,
    locks: Locks,
    /// The holders of its targets' Leases.
    conflicts: BTreeMap<Key, ConflictingWorkflow>,
}

impl Machine for WorkflowExecutions {
    type Kind = WorkflowExecution;
    type Status = WorkflowExecutionStatus;

    fn description(&self) -> Description {
        Description {
            watches: vec![
                Watch::other(PIPELINE_RUN, wakes::of_the_execution),
                Watch::other(TASK_RUN, wakes::of_the_execution),
                Watch::other(JOB, wakes::of_the_execution),
                Watch::other(POD, wakes::of_the_execution),
                Watch::other(LEASE, wakes::of_the_lock).by_labels(&[UNIT]),
                Watch::other(NAMESPACE, |_, _| Vec::new()).metadata_only(),
                // Who is frozen is skipped: nobody waits for the end of one.
                freeze::watch(|_, _| Vec::new()),
            ],
            finalizer: Some(finalizers::WORKFLOW_EXECUTION),
            writes: vec![
                Write::main(workflow_execution::KIND, &["patch"]),
                Write::status(workflow_execution::KIND),
                Write::finalizers(workflow_execution::KIND),
                Write::main(PIPELINE_RUN, &["create", "delete", "patch"]),
                Write::main(JOB, &["create", "delete", "patch"]),
                Write::main(LEASE, &["create", "delete", "patch"]),
            ],
            ..Description::new("workflowexecution", workflow_execution::KIND)
        }
    }

    fn audit(&self, tell: &Teller<'_>, execution: &WorkflowExecution) -> Option<Vec<Entry>> {
        Some(audit::remedy::workflow_execution(tell, execution))
    }

    fn reconcile(&self, cx: &Context<'_, WorkflowExecution>) -> Plan<WorkflowExecutionStatus> {
        let facts = self.facts(cx);
        match lifecycle::of(facts.cx.object, finalizers::WORKFLOW_EXECUTION) {
            Lifecycle::Add => Plan::step(mark(&facts)),
            Lifecycle::Run => self.run(&facts, Report::of(&facts)),
            Lifecycle::CleanUp => ending::clean_up(&facts, Report::of(&facts)),
            Lifecycle::Nothing => Plan::rest(),
        }
    }
}

impl WorkflowExecutions {
    fn facts<'a>(&self, cx: &'a Context<'a, WorkflowExecution>) -> Facts<'a> {
        let (view, me, execution) = (cx.view, cx.object, cx.typed);
        let spec = &execution.spec;
        let (kind, key) = (run::kind_of(spec.engine), run::key(me, spec));
        let found = view.get(&kind, &key);
        let recorded = execution.status.as_ref().and_then(|status| status.pipeline_run_uid.clone());
        let uid = recorded.clone().or_else(|| found.as_ref().map(|run| run.uid().to_owned()));
        let owned = |kind: &Kind| uid.as_deref().map(|uid| view.owned(kind, uid)).unwrap_or_default();
        let targets = validate::targets(me, spec);
        let known = targets.as_deref().unwrap_or_default();
        let locks = Locks::observe(view, &self.system_namespace, me, known.to_vec());
        let refused = |of: &dyn Fn(&Kind) -> bool| {
            cx.refusals.iter().find(|one| of(&one.kind)).map(|one| one.failure.clone())
        };
        Facts {
            served: view.serves(&kind),
            power: power::power(
                view,
                &self.system_namespace,
                me,
                known,
                spec.execution_config.namespace.as_deref(),
            ),
            freezes: Selecting::observe(view, me, Door::Remedy, known),
            tasks: owned(&TASK_RUN).iter().filter_map(|task| task.parse().ok()).collect(),
            pods: if spec.engine == Engine::Job { owned(&POD) } else { Vec::new() },
            left_behind: !owned(&run::actors(spec.engine)).is_empty(),
            refused: refused(&|refused| *refused == kind),
            lock_refused: refused(&|refused| *refused == LEASE),
            conflicts: conflicts(view, &locks),
            locks,
            run: HeldRun::new(kind, key.clone(), run::owner(me, &key), found, recorded),
            targets,
            cx,
        }
    }

    fn run(&self, facts: &Facts<'_>, report: Report<'_>) -> Plan<WorkflowExecutionStatus> {
        if report.is_over() {
            return ending::finished(facts, report);
        }
        let over = facts.run.own().is_some_and(|run| held_run::is_finished(run));
        if let Some(by) = facts.cx.object.annotation(annotations::CANCEL).filter(|_| !over) {
            return ending::cancelled(facts, report, by);
        }
        match facts.run.state() {
            RunState::Absent => self.start(facts, report),
            RunState::Foreign(run) => foreign(report, run),
            RunState::Vanished => vanished(facts, report),
            RunState::Late(run) => Plan::steps(HeldRun::delete_late(run)),
            RunState::Unrecorded(run) => begun(report, &Run::read(run)),
            RunState::Held(run) => self.start_run(facts, report, run),
            RunState::Started(run) => follow(facts, report, &Run::read(run)),
        }
    }

    /// Every gate in its order. Whoever passes them all has its run made in the same plan that takes the lock.
    fn start(&self, facts: &Facts<'_>, mut report: Report<'_>) -> Plan<WorkflowExecutionStatus> {
        let (spec, now) = (&facts.cx.typed.spec, report.now);
        if let Some(failure) = &facts.refused {
            return refused(report, failure);
        }
        let targets = match &facts.targets {
            Ok(targets) => targets,
            Err(problem) => return invalid(report, problem),
        };
        let Some(target) = targets.first() else { return Plan::rest() };
        report.status.target = Some(target.to_string());
        if let Some(problem) = validate::problem(spec, target) {
            return invalid(report, &problem);
        }
        if facts.served == Served::No {
            return unsupported(facts, report);
        }
        if let Err(not_allowed) = &facts.power {
            return forbidden(report, not_allowed);
        }
        let standing = facts.freezes.standing(now);
        if let freeze::Standing::Frozen(hold) = &standing {
            return frozen(report, &standing, hold);
        }
        if let Some(failure) = &facts.lock_refused {
            let at = later(now, REFUSED_RETRY);
            return report.waits(Reason::Forbidden, &failure.to_string()).wake_at(at);
        }
        let memory = match locking::memory(&facts.locks) {
            Ok(memory) => memory,
            Err(unreadable) => return report.waits(Reason::Unknown, &unreadable.to_string()),
        };
        let nothing = Remembered::default();
        let remembered = memory.get(&spec.workflow_ref.workflow_id).unwrap_or(&nothing);
        match remembered.verdict(spec.cooldown, self.minimum_cooldown, now) {
            Verdict::Yes => {}
            no @ Verdict::Blocked(_)
            | no @ Verdict::Exhausted { .. }
            | no @ Verdict::BackingOff { .. }
            | no @ Verdict::Recent { .. } => return too_soon(facts, report, &no),
        }
        let run = facts.run.reference();
        let steps = match facts.locks.acquire(facts.cx.object, Some(run), &Marks::new(), now) {
            LockResult::Acquired => Vec::new(),
            LockResult::Acquire(steps) => steps,
            LockResult::Reap(steps) => return Plan::steps(steps),
            LockResult::Busy(busy) => return self::busy(report, *busy),
        };
        let message = format!("made {} {}", run::kind_of(spec.engine).kind, run::key(facts.cx.object, spec));
        Plan { steps, ..Plan::rest() }
            .then(facts.run.create(run::manifest(facts.cx.object, spec, target)))
            .note(Note::normal(Reason::WorkflowValidated, format!("may be run on {target}")))
            .note(Note::normal(Reason::PipelineRunCreated, message))
    }

    /// The run is recorded: it starts while the locks on the targets belong to this execution. The locks name the run
    /// first, by compare-and-swap, so a lock that was lost is noticed before anything runs.
    fn start_run(
        &self,
        facts: &Facts<'_>,
        report: Report<'_>,
        run: &Arc<Object>,
    ) -> Plan<WorkflowExecutionStatus> {
        let reference = run.reference();
        let go = held_run::start(run);
        match facts.locks.acquire(facts.cx.object, Some(reference), &Marks::new(), report.now) {
            LockResult::Acquired => Plan::steps(go),
            LockResult::Acquire(steps) => Plan::steps(steps.into_iter().chain(go)),
            LockResult::Reap(steps) => Plan::steps(steps),
            LockResult::Busy(busy) => {
                let message =
                    format!("the lock on {} was taken away: {} holds it now", busy.target, busy.holder);
                let failure = Failure::plain(Reason::PipelineRunCreationFailed, message, false);
                let mut plan = report.fails(&failure);
                plan.steps.insert(0, held_run::delete(run));
                plan
            }
        }
    }
}

/// The first write: its finalizer, and by which target it is found.
fn mark(facts: &Facts<'_>) -> Step {
    let me = facts.cx.object;
    let mut finalizers = me.finalizers().to_vec();
    finalizers.push(finalizers::WORKFLOW_EXECUTION.to_owned());
    let mut metadata = json!({"finalizers": finalizers});
    if let Some(target) = facts.targets.as_ref().ok().and_then(|targets| targets.first()) {
        metadata["labels"] = json!({TARGET_HASH: target.short_hash()});
        metadata["annotations"] = json!({pawl::TARGET: facts.cx.typed.spec.target_resource});
    }
    Step::patch_unchanged(me, json!({"metadata": metadata}))
}

fn invalid(report: Report<'_>, problem: &str) -> Plan<WorkflowExecutionStatus> {
    let gate = Gate::stopped(GateName::Validate, Reason::ValidationError, problem, "another execution");
    report
        .fails(&Failure::plain(Reason::ValidationError, problem, false))
        .gate(gate)
        .note(Note::warning(Reason::WorkflowValidationFailed, problem))
}

/// What is not served may have been defined a moment ago: until then nothing is concluded from a cache. But an execution
/// does not wait for ever for a kind that is defined and in this version never served.
fn unsupported(facts: &Facts<'_>, report: Report<'_>) -> Plan<WorkflowExecutionStatus> {
    let kind = run::kind_of(facts.cx.typed.spec.engine);
    let created = facts.cx.object.created_at();
    let patient = created.is_some_and(|created| report.now < later(created, APPEARS_WITHIN));
    let definition = Key::new(None, &format!("{}.{}", kind.plural, kind.group));
    let definition = Reference { kind: CUSTOM_RESOURCE_DEFINITION, key: definition, uid: String::new() };
    let message = format!("{} {} is not served here: Tekton is not installed", kind.api_version(), kind.kind);
    let change = "an execution that is made once it is installed, or engine: job";
    let gate = Gate::stopped(GateName::Validate, Reason::UnsupportedEngine, &message, change);
    let mut plan = report.fails(&Failure::plain(Reason::UnsupportedEngine, message, false)).gate(gate);
    plan.steps.splice(0..0, patient.then_some(Step::confirm_gone(definition)));
    plan
}

fn forbidden(report: Report<'_>, not_allowed: &NotAllowed) -> Plan<WorkflowExecutionStatus> {
    let message = &not_allowed.message;
    let gate = Gate::stopped(GateName::Validate, Reason::NamespaceNotAllowed, message, "that label");
    let mut plan = report.fails(&Failure::plain(Reason::Forbidden, message, false)).gate(gate);
    plan.steps.splice(0..0, not_allowed.seen.as_deref().cloned());
    plan
}

/// A Freeze holds: whoever asked decides what then.
fn frozen(
    mut report: Report<'_>,
    standing: &freeze::Standing,
    hold: &freeze::Hold,
) -> Plan<WorkflowExecutionStatus> {
    report.status.next_allowed_execution = hold.until.map(Time);
    report.condition(standing.condition());
    let message = hold.to_string();
    let gate = Gate::stopped(GateName::Freeze, Reason::Frozen, &message, hold.would_change());
    let details = SkipDetails { message, ..SkipDetails::default() };
    let mut plan = report.skips(Reason::Frozen, details).gate(gate);
    plan.steps.extend(hold.still_so());
    plan
}

/// What the target remembers says no.
fn too_soon(
    facts: &Facts<'_>,
    mut report: Report<'_>,
    verdict: &Verdict<'_>,
) -> Plan<WorkflowExecutionStatus> {
    let id = &facts.cx.typed.spec.workflow_ref.workflow_id;
    let target = report.status.target.clone().unwrap_or_default();
    let failures = |failures: u32| Some(i32::try_from(failures).unwrap_or(i32::MAX));
    let mut details = SkipDetails::default();
    let (reason, change) = match verdict {
        Verdict::Yes => return Plan::rest(),
        Verdict::Blocked(block) => {
            details.message = format!(
                "{id} failed on {target} while it was executing ({}/{}: {}); somebody must look at the target and clear \
                 it: pawl clear-block {target} --reason …",
                block.namespace, block.name, block.reason
            );
            details.recent_remediation = Some(RecentRemediation {
                name: block.name.clone(),
                workflow_id: id.clone(),
                completed_at: Some(block.failed_at.clone()),
                outcome: Some("Failed".to_owned()),
            });
            (Reason::PreviousExecutionFailed, "pawl clear-block".to_owned())
        }
        Verdict::Exhausted { failures: count } => {
            report.status.consecutive_failures = failures(*count);
            details.message = format!(
                "{id} could not be started on {target} {count} times in a row; somebody must mend that and clear it: \
                 pawl clear-block {target} --reason …"
            );
            (Reason::ExhaustedRetries, "pawl clear-block, or its success".to_owned())
        }
        Verdict::BackingOff { failures: count, until } => {
            report.status.consecutive_failures = failures(*count);
            report.status.next_allowed_execution = Some(Time(*until));
            details.message = format!(
                "{id} could not be started on {target} {count} times in a row; again after {until:.0}"
            );
            (Reason::BackingOff, format!("{until:.0}"))
        }
        Verdict::Recent { last, until } => {
            report.status.next_allowed_execution = Some(Time(*until));
            let remains = failure_details::took(report.now, *until);
            details.message = format!(
                "{id} mended {target} at {:.0} ({}/{}); again in {remains}",
                last.completed_at.0, last.namespace, last.name
            );
            details.cooldown_remaining = Some(remains.to_string());
            details.recent_remediation = Some(RecentRemediation {
                name: last.name.clone(),
                workflow_id: id.clone(),
                completed_at: Some(last.completed_at.clone()),
                outcome: Some("Success".to_owned()),
            });
            (Reason::RecentlyRemediated, format!("{until:.0}"))
        }
    };
    let looked_at = format!("what {target} remembers of {id}");
    let gate = Gate::stopped(GateName::Cooldown, reason, looked_at, change);
    let message = details.message.clone();
    let mut plan = report.skips(reason, details).gate(gate);
    if reason == Reason::RecentlyRemediated {
        plan = plan.note(Note::normal(Reason::CooldownActive, message));
    }
    // A cache that lags must not skip anybody.
    plan.steps.extend(locking::own(&facts.locks).map(|seen| Step::confirm_unchanged(seen)));
    plan
}

/// Somebody else holds a target.
fn busy(mut report: Report<'_>, busy: Busy) -> Plan<WorkflowExecutionStatus> {
    let message = busy.message();
    let Busy { lease, give_back, .. } = busy;
    let conflict = lease.as_ref().and_then(|lease| report.facts.conflicts.get(&lease.key()).cloned());
    report.target_locked(&message);
    let gate = Gate::stopped(GateName::Lock, Reason::ResourceBusy, &message, "the holder lets go");
    let details = SkipDetails {
        message,
        conflicting_workflow: Some(conflict.unwrap_or_default()),
        ..SkipDetails::default()
    };
    let mut plan = report.skips(Reason::ResourceBusy, details).gate(gate);
    // A cache that lags must not skip anybody.
    plan.steps.extend(lease.as_ref().map(|seen| Step::confirm_unchanged(seen)));
    plan.steps.extend(give_back);
    plan
}

/// The run is there. From now on it is the one, and no other: by compare and swap, before it is let go.
fn begun(mut report: Report<'_>, run: &Run) -> Plan<WorkflowExecutionStatus> {
    report.made(run);
    report.runs(None)
}

/// A run that is neither held nor unknown.
fn follow(facts: &Facts<'_>, report: Report<'_>, run: &Run) -> Plan<WorkflowExecutionStatus> {
    let now = report.now;
    match run.standing() {
        Standing::Succeeded(_) => report.completes(run),
        Standing::Failed(_) => {
            let limit = later(run.ended_at().unwrap_or(now), DETAILS_LIMIT);
            match failure_details::of(run, &facts.tasks, &facts.pods) {
                Some(failure) => report.fails(&failure),
                None if now < limit => report.runs(None).wake_at(limit),
                None => report.fails(&failure_details::at_least(run, &facts.tasks)),
            }
        }
        Standing::Held | Standing::Going(_) => {
            let deadline = report.deadline();
            if deadline <= now {
                return timed_out(facts, report, run);
            }
            let stuck = failure_details::cannot_start(&facts.pods);
            let since = facts.pods.iter().filter_map(|pod| pod.meta().creation_timestamp).min();
            let limit = later(since.map_or(now, |since| since.0), START_LIMIT);
            match stuck {
                Some(failure) if limit <= now => {
                    let mut plan = report.fails(&failure);
                    plan.steps.extend(held_run::stop(run.object()));
                    plan
                }
                Some(_) => report.runs(Some(run)).wake_at(limit.min(deadline)),
                None => report.runs(Some(run)).wake_at(deadline),
            }
        }
    }
}

/// Its time is over, and whoever runs it has not ended it.
fn timed_out(facts: &Facts<'_>, report: Report<'_>, run: &Run) -> Plan<WorkflowExecutionStatus> {
    let timeout = facts.cx.typed.spec.execution_config.timeout;
    let message = format!("the run did not end within {timeout} and {TIMEOUT_GRACE} more; it is stopped");
    let mut plan = report.fails(&Failure::plain(Reason::Timeout, message, true));
    plan.steps.extend(held_run::stop(run.object()));
    plan
}

/// The name is somebody else's.
fn foreign(report: Report<'_>, run: &Object) -> Plan<WorkflowExecutionStatus> {
    let message = format!("{} exists and belongs to somebody else", run.reference());
    let mut plan = report.fails(&Failure::plain(Reason::PipelineRunCreationFailed, message, false));
    plan.steps.insert(0, Step::confirm_unchanged(run));
    plan
}

/// Somebody deleted the run before its result was recorded: a failure of its own, never a silent second run (I2). What
/// still acts for it keeps the lock.
fn vanished(facts: &Facts<'_>, report: Report<'_>) -> Plan<WorkflowExecutionStatus> {
    let run = facts.run.reference();
    if facts.left_behind {
        let deadline = report.deadline();
        if report.now < deadline {
            return Plan::rest().wake_at(deadline);
        }
    }
    let message = format!("{run} was deleted before its result was recorded");
    let mut plan = report.fails(&Failure::plain(Reason::PipelineRunDeleted, message, true));
    if plan.steps.is_empty() {
        plan.steps.push(Step::confirm_gone(run));
    }
    plan
}

/// The API server did not want the run.
fn refused(report: Report<'_>, failure: &failure::Failure) -> Plan<WorkflowExecutionStatus> {
    let reason = match failure.reason.as_str() {
        _ if failure.is_quota() => Reason::ResourceExhausted,
        "Forbidden" => Reason::Forbidden,
        _ => Reason::PipelineRunCreationFailed,
    };
    report.fails(&Failure::plain(reason, failure.to_string(), false))
}

/// The holders of those targets' Leases that are held.
fn conflicts(view: &dyn View, locks: &Locks) -> BTreeMap<Key, ConflictingWorkflow> {
    let leases = locks.targets().iter().filter_map(|target| locks.lease(target));
    let held = leases.filter(|lease| lock::read(Some(lease)) != Lock::Free);
    held.map(|lease| (lease.key(), locking::conflict(view, lease))).collect()
}

impl Facts<'_> {
    /// The run, if this execution made it.
    fn ours(&self) -> Option<Run> {
        self.run.own().map(Run::read)
    }
}
