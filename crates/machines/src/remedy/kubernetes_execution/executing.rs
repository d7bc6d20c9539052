//! How is an action carried out: once, under the lock, with its undo stored before (I4)?
//!
//! ```text
//! no Job     ─▶ lock ▸ all gates once more ▸ undo captured, named in the status ▸ input and Job made, held
//! unrecorded ─▶ its UID is written into the status: from now on it is the one, and no other
//! held       ─▶ its UID on the locks ▸ its time begins ▸ all gates once more ▸ let go
//! going      ─▶ followed by its watch to its end, or to the deadline, which stops it
//! over       ─▶ what it says is recorded (`verifying` goes on), or it is tried again, where that is allowed
//! ```
//! Whatever moved between the capture and the moment of letting go (the target, its policy, an approval) is noticed then:
//! the Job is taken away, and all begins anew.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::k8s::SECRET;
use pawl_api::meta::{Gate, GateName, Reason, condition};
use pawl_api::pawl::conditions::TARGET_LOCKED;
use pawl_api::remedy::{KubernetesExecutionPhase, KubernetesExecutionStatus};

use super::approvals::Standing as Approved;
use super::job::{self, Run, Standing};
use super::report::{No, Report, Stop, stopped_by};
use super::{assess, later, verifying, waiting};
use crate::backoff;
use crate::cluster::job::JOB;
use crate::held_run::{self, HeldRun, RunState, is_held};
use crate::lock::{Busy, LEASE, LockResult};
use crate::object::Object;
use crate::plan::{Note, Plan, Step};
use crate::pods;
use crate::remedy::action::Looked;

/// How long after its own deadline a Job that nobody ended is stopped: a Job's controller is late at most so much.
pub(super) const GRACE: Duration = Duration::from_secs(60);

/// How long a container may fail to start: longer than a registry's hiccup.
const START_LIMIT: Duration = Duration::from_mins(5);

/// How long until what the API server refused of a lock is tried again: somebody must change something first.
const REFUSED_RETRY: Duration = Duration::from_secs(30);

/// How long until a failed attempt is repeated, doubling up to the longest: what failed for a moment has a moment to mend.
const RETRY: Duration = Duration::from_secs(5);
const LONGEST_RETRY: Duration = Duration::from_mins(2);

/// What the gates say under the lock.
enum Guard<'a> {
    Passed(&'a Looked),
    /// What was approved is not what would be done.
    Unapproved {
        have: usize,
        need: usize,
        why: String,
    },
}

/// The phase `executing`.
pub(super) fn execute(report: Report<'_>) -> Plan<KubernetesExecutionStatus> {
    let facts = report.facts;
    if verifying::is_recorded(&report.status) {
        return verifying::verify(report);
    }
    match facts.run.state() {
        RunState::Absent => prepare(report),
        RunState::Foreign(run) => foreign(report, run),
        RunState::Vanished => verifying::vanished(report),
        RunState::Late(run) => Plan::steps(HeldRun::delete_late(run)),
        RunState::Unrecorded(run) => begun(report, run),
        RunState::Held(run) => start(report, run),
        RunState::Started(run) => follow(report, &Run::read(run)),
    }
}

/// Nothing was made yet.
fn prepare(mut report: Report<'_>) -> Plan<KubernetesExecutionStatus> {
    let facts = report.facts;
    if let Some(refused) = facts.cx.refusals.iter().find(|one| one.kind == JOB || one.kind == SECRET) {
        return report.fails(failed(format!("the Job cannot be made: {}", refused.failure)));
    }
    if let Some(at) = retried_at(&report).filter(|at| report.now < *at) {
        return Plan::rest().wake_at(at);
    }
    if let Err(stop) = assess::thawed(&mut report) {
        return frozen(report, stop);
    }
    let run = report.run_reference();
    match facts.acquire(run, report.now) {
        LockResult::Acquired => {}
        LockResult::Acquire(steps) | LockResult::Reap(steps) => return change_locks(report, steps),
        LockResult::Busy(busy) => return wait_for_target(report, *busy),
    }
    let target = report.target();
    report.passes(Gate::passed(GateName::Lock, Reason::LockAcquired, target));
    if report.status.rollback_information.is_some() {
        return make(&report);
    }
    match guard(&mut report) {
        Err(stop) => report.stops(stop),
        Ok(Guard::Unapproved { have, need, why }) => waiting::back(report, have, need, &why),
        Ok(Guard::Passed(looked)) => capture(report, looked),
    }
}

/// A Freeze came before the Job: nobody else is held up meanwhile, and the time does not count as waiting for the lock.
fn frozen(mut report: Report<'_>, stop: Stop) -> Plan<KubernetesExecutionStatus> {
    report.status.lock_deadline = None;
    condition::remove(&mut report.status.conditions, TARGET_LOCKED);
    let release = report.release();
    let mut plan = report.stops(stop);
    plan.steps.extend(release);
    plan
}

/// Changes the locks, where the API server lets us.
fn change_locks(mut report: Report<'_>, steps: Vec<Step>) -> Plan<KubernetesExecutionStatus> {
    let Some(refused) = report.facts.cx.refusals.iter().find(|one| one.kind == LEASE) else {
        return Plan::steps(steps);
    };
    let at = later(report.now, REFUSED_RETRY);
    let why = refused.failure.to_string();
    report.says(KubernetesExecutionPhase::Executing, Reason::Forbidden, &why);
    let gate = Gate::waiting(GateName::Lock, Reason::Forbidden, &why, "that right");
    report.plan().gate(gate).wake_at(at)
}

/// Somebody else holds a target.
fn wait_for_target(mut report: Report<'_>, busy: Busy) -> Plan<KubernetesExecutionStatus> {
    let message = busy.message();
    let limit = later(report.now, report.facts.cx.typed.spec.lock_timeout.get());
    let until = report.status.lock_deadline.get_or_insert(Time(limit)).0;
    if until <= report.now {
        let stop = Stop::no(
            GateName::Lock,
            Reason::LockTimeout,
            format!("{message}, still at {until:.0}"),
            "another execution",
        );
        return report.stops(stop);
    }
    report.condition(busy.condition());
    report.says(KubernetesExecutionPhase::Executing, Reason::TargetLocked, &message);
    let waiter = busy.label_waiter(report.facts.cx.object);
    let mut plan = report.plan().gate(busy.gate()).wake_at(busy.until.map_or(until, |at| at.min(until)));
    plan.steps = busy.give_back.into_iter().chain(waiter).collect();
    plan
}

/// Policy, preconditions and approvals once more, on what is there now.
fn guard<'a>(report: &mut Report<'a>) -> Result<Guard<'a>, Stop> {
    let captured = report.status.target_digest.clone();
    let (decision, looked) = waiting::stands(report)?;
    assess::preconditions(report, looked, false)?;
    if is_retry(report) {
        // What the attempt before left half done is no reason to ask anew: the whole was approved.
        report.status.target_digest = captured;
        return Ok(Guard::Passed(looked));
    }
    if !decision.require_approval {
        report.passes(waiting::not_required());
        return Ok(Guard::Passed(looked));
    }
    let moved = waiting::moved(report);
    if report.status.approval_deadline.is_none() {
        let limit = assess::approval_timeout(report, &decision);
        report.status.approval_deadline = Some(Time(later(report.now, limit)));
    }
    let tally = waiting::count(report, &decision);
    waiting::tell(report, &tally);
    match tally.standing {
        Approved::Granted(_) => {
            let who: Vec<&str> =
                tally.counted.iter().filter(|one| one.counts).map(|one| one.approver.as_str()).collect();
            let told = format!("approved by {}", who.join(", "));
            report.passes(Gate::passed(GateName::Approval, Reason::ApprovalGranted, told));
            Ok(Guard::Passed(looked))
        }
        Approved::Rejected { by, why } => {
            let message = format!("rejected by {by}: {why}");
            Err(Stop::no(GateName::Approval, Reason::KeApprovalRejected, &message, "another execution")
                .noting(Note::warning(Reason::ApprovalRejected, message)))
        }
        Approved::Missing { have, need } => {
            let why = moved.unwrap_or_else(|| "policy asks for more approval than before".to_owned());
            Ok(Guard::Unapproved { have, need, why })
        }
    }
}

/// The undo is stored, and named in the status, before there is a Job (I4).
fn capture(mut report: Report<'_>, looked: &Looked) -> Plan<KubernetesExecutionStatus> {
    let facts = report.facts;
    let executor = &report.settings.executor;
    let secret = executor.undo_secret(facts.cx.object.uid());
    let captured = match facts.capture(secret.clone(), executor.service_account(&facts.order)) {
        Ok(captured) => captured,
        Err(pause) => {
            let never = |failure| Stop::No(Box::new(failed(format!("the undo cannot be stored: {failure}"))));
            return report.stops(stopped_by(pause, never));
        }
    };
    if captured.digest != looked.digest {
        // It is of another moment than what the gates saw: of before a crash, or the target moves just now.
        let now = report.now;
        return Plan::step(job::delete_secret_of(secret)).wake_at(now);
    }
    report.status.rollback_information = Some(captured.information.clone());
    report.before(&captured.before);
    let note = captured.information.rollback_action.map(|action| {
        let told = format!("{action} would take it back; what it needs is kept in Secret {secret}");
        Note::normal(Reason::RollbackPrepared, told)
    });
    let mut plan = report.plan();
    plan.notes.extend(note.filter(|_| captured.information.available));
    plan
}

/// The input and the Job, held.
fn make(report: &Report<'_>) -> Plan<KubernetesExecutionStatus> {
    let facts = report.facts;
    let key = report.run_reference().key;
    let executor = &report.settings.executor;
    let (spec, order) = (&facts.cx.typed.spec, &facts.order);
    let steps = job::create(&facts.run, executor, spec, order, report.timeout());
    let note = Note::normal(Reason::JobCreated, format!("made Job {key}")).once(report.attempt().to_string());
    Plan { steps, ..Plan::rest() }.note(note)
}

/// The Job exists. From now on it is the one, and no other: by compare-and-swap, before it starts.
fn begun(mut report: Report<'_>, run: &Object) -> Plan<KubernetesExecutionStatus> {
    let message = format!("Job {} carries it out", run.key());
    report.records(run);
    report.says(KubernetesExecutionPhase::Executing, Reason::JobCreated, &message);
    report.plan()
}

/// The Job is recorded: it starts while the locks on the targets belong to this execution and every gate still passes.
fn start(mut report: Report<'_>, run: &Arc<Object>) -> Plan<KubernetesExecutionStatus> {
    let facts = report.facts;
    let reference = run.reference();
    let mut steps = match facts.acquire(reference, report.now) {
        LockResult::Acquired => Vec::new(),
        LockResult::Acquire(steps) => steps,
        LockResult::Reap(steps) => return Plan::steps(steps),
        LockResult::Busy(busy) => {
            let Busy { target, holder, .. } = *busy;
            return report
                .fails(failed(format!("the lock on {target} was taken away: {holder} holds it now")));
        }
    };
    if report.renews_its_time() {
        // By compare and swap before it goes, so that nobody stops it for a time that has passed.
        return report.plan();
    }
    let captured = report.status.target_digest.clone();
    if let Err(stop) = assess::thawed(&mut report) {
        let undone = begins_anew(&mut report, run);
        let mut plan = report.stops(stop);
        plan.steps.splice(0..0, undone);
        return plan;
    }
    match guard(&mut report) {
        Err(stop) => report.stops(stop),
        Ok(Guard::Unapproved { have, need, why }) => {
            let undone = begins_anew(&mut report, run);
            let mut plan = waiting::back(report, have, need, &why);
            plan.steps.splice(0..0, undone);
            plan
        }
        Ok(Guard::Passed(looked))
            if !is_retry(&report) && captured.as_deref() != Some(looked.digest.as_str()) =>
        {
            let undone = begins_anew(&mut report, run);
            report.says(
                KubernetesExecutionPhase::Executing,
                Reason::Progressing,
                "the target moved before anything was done to it: its undo is captured anew",
            );
            let mut plan = report.plan();
            plan.steps.extend(undone);
            plan
        }
        Ok(Guard::Passed(_)) => {
            steps.extend(held_run::start(run));
            Plan { steps, ..report.plan() }
        }
    }
}

/// What was prepared is of no use any more: it goes, and the next attempt has another name. The undo stays where an
/// attempt was let go before: it is of what was there before that.
fn begins_anew(report: &mut Report<'_>, run: &Object) -> Vec<Step> {
    let uid = report.facts.cx.object.uid();
    let mut steps = vec![held_run::delete(run), job::forget_input(&run.key())];
    report.status.attempt = Some(report.attempt().saturating_add(1));
    report.status.job_ref = None;
    report.status.execution_deadline = None;
    if !is_retry(report) {
        steps.push(job::delete_secret_of(report.settings.executor.undo_secret(uid)));
        report.status.rollback_information = None;
        report.status.execution_results = None;
    }
    steps
}

/// A Job that is neither held nor unknown.
fn follow(report: Report<'_>, run: &Run) -> Plan<KubernetesExecutionStatus> {
    let (facts, now) = (report.facts, report.now);
    match run.standing() {
        Standing::Complete | Standing::Failed { .. } => verifying::concluded(report, run),
        Standing::Held | Standing::Going => {
            let deadline = report.status.execution_deadline.as_ref().map_or(now, |at| at.0);
            if deadline <= now {
                let message = format!("the Job did not end within {:?}; it is stopped", report.timeout());
                return stopped(report, run.object(), Reason::ExecutionTimeout, message);
            }
            let since = facts.pods.iter().filter_map(|pod| pod.meta().creation_timestamp).min();
            let limit = later(since.map_or(now, |since| since.0), START_LIMIT);
            match pods::start_problem(&facts.pods) {
                Some(problem) if limit <= now => {
                    stopped(report, run.object(), Reason::KeExecutionFailed, problem)
                }
                Some(_) => Plan::rest().wake_at(limit.min(deadline)),
                None => Plan::rest().wake_at(deadline),
            }
        }
    }
}

/// Ends it before it ends itself.
pub(super) fn stopped(
    report: Report<'_>,
    run: &Object,
    reason: Reason,
    message: String,
) -> Plan<KubernetesExecutionStatus> {
    let held = is_held(run);
    let message = if held { message } else { format!("{message}; the action may have been applied") };
    let mut plan = report.fails(No { gate: None, reason, message, note: None, confirm: Vec::new() });
    if !held {
        plan.steps.extend(held_run::stop(run));
    }
    plan
}

/// The name is somebody else's.
fn foreign(report: Report<'_>, run: &Object) -> Plan<KubernetesExecutionStatus> {
    let message = format!("{} exists and belongs to somebody else", run.reference());
    report.fails(No { confirm: vec![Step::confirm_unchanged(run)], ..failed(message) })
}

/// Whether an attempt was let go before this one.
pub(super) fn is_retry(report: &Report<'_>) -> bool {
    report.status.execution_results.as_ref().is_some_and(|results| results.retries_attempted > 0)
}

/// When the next attempt begins.
fn retried_at(report: &Report<'_>) -> Option<jiff::Timestamp> {
    let results = report.status.execution_results.as_ref().filter(|results| results.retries_attempted > 0)?;
    let failures = u32::try_from(results.retries_attempted).unwrap_or_default();
    Some(later(results.end_time.as_ref()?.0, backoff::doubling(RETRY, failures, LONGEST_RETRY)))
}

pub(super) fn failed(message: String) -> No {
    No { gate: None, reason: Reason::KeExecutionFailed, message, note: None, confirm: Vec::new() }
}
