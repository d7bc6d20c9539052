//! What is left to do for an execution that is over, is to be cancelled, or is being deleted?

use std::time::Duration;

use pawl_api::meta::{Phase as _, Reason};
use pawl_api::remedy::annotations::FINALIZE;
use pawl_api::remedy::{KubernetesExecutionPhase, KubernetesExecutionStatus, finalizers};

use super::executing::{failed, stopped};
use super::job::{self, Run};
use super::report::{No, Report};
use super::{later, rollback};
use crate::held_run::{self, is_finished, is_held};
use crate::object::Object;
use crate::plan::{Note, Plan, Step};
use crate::remedy;

/// How long a deleted execution waits for its Job to end (I5): ten times what a Pod gets to end in by default, and more.
const CLEANUP_LIMIT: Duration = Duration::from_mins(10);

/// It stays over, whatever becomes of its Job (I2). What it no longer needs goes; an offer of a rollback ends some day.
pub(super) fn finished(report: Report<'_>) -> Plan<KubernetesExecutionStatus> {
    let mut steps = tidied(&report);
    if !report.facts.locks.held().is_empty() {
        let release = report.release();
        if release.is_empty() {
            // It was asked to stop when this ended; where that was lost, it is asked again.
            let going = report.facts.run.own().filter(|run| !is_finished(run) && !is_late(&report, run));
            steps.extend(going.and_then(|run| held_run::stop(run)));
            return Plan { steps, ..Plan::rest() };
        }
        steps.extend(release);
        let note = Note::normal(Reason::LockReleased, format!("{} is free", report.target()));
        return Plan { steps, ..Plan::rest() }.note(note);
    }
    if !steps.is_empty() {
        return Plan { steps, ..Plan::rest() };
    }
    linked(report)
}

/// Jobs that a process made after all was over, and never let go; Jobs whose result is recorded; and the Secrets that
/// nobody needs any more, some of which may also have been made too late.
fn tidied(report: &Report<'_>) -> Vec<Step> {
    let facts = report.facts;
    let mut steps = Vec::new();
    for run in &facts.jobs {
        if is_late(report, run.object()) {
            steps.push(held_run::delete(run.object()));
        } else if is_finished(run.object()) {
            steps.extend(run.expire());
        }
    }
    let needless = facts.secrets.iter().filter(|secret| !secret.is_deleting() && !is_needed(report, secret));
    steps.extend(needless.map(|secret| job::delete_secret(secret.reference())));
    steps
}

/// Whether a Job of any attempt was never started and is not the recorded one: a replica that stalled created it.
fn is_late(report: &Report<'_>, run: &Object) -> bool {
    let recorded = super::recorded_uid(Some(&report.status));
    is_held(run) && !run.is_deleting() && recorded != Some(run.uid())
}

/// Whether a Secret of an execution that is over is still of use: an input to its Job, an undo to whoever takes it back.
fn is_needed(report: &Report<'_>, secret: &Object) -> bool {
    let going = |run: &&Run| !is_finished(run.object()) && !is_late(report, run.object());
    let mut jobs = report.facts.jobs.iter().filter(going);
    if secret.key() == report.settings.executor.undo_secret(report.facts.cx.object.uid()) {
        let offered = report.status.rollback_information.as_ref().is_some_and(|offer| offer.available);
        return offered || jobs.next().is_some();
    }
    match job::job_of_input(secret) {
        Some(name) => jobs.any(|run| run.object().name() == name),
        // Nobody knows what it is for.
        None => true,
    }
}

/// Knows of whoever takes it back, and ends its own offer when that is done, or when nobody wants it any more.
fn linked(mut report: Report<'_>) -> Plan<KubernetesExecutionStatus> {
    let facts = report.facts;
    let before = report.status.clone();
    if let (Some(newest), Some(information)) =
        (facts.rollbacks.last(), report.status.rollback_information.as_mut())
    {
        information.rolled_back_by = Some(newest.name().to_owned());
    }
    let standings: Vec<rollback::Standing> =
        facts.rollbacks.iter().map(|one| rollback::standing(one)).collect();
    let mut plan = Plan::rest();
    let offers = report.status.phase == Some(KubernetesExecutionPhase::RollbackReady);
    if offers && !standings.contains(&rollback::Standing::Going) {
        if standings.contains(&rollback::Standing::Done) {
            let by = facts.rollbacks.last().map(|one| one.name().to_owned()).unwrap_or_default();
            return completes(report, &format!("taken back by KubernetesExecution {by}"));
        }
        match facts.cx.object.annotation(FINALIZE).map(str::trim) {
            Some("") => return completes(report, "no rollback is wanted"),
            Some(by) => return completes(report, &format!("no rollback is wanted: {by}")),
            None => {}
        }
        if let Some(ttl) = facts.cx.typed.spec.ttl_after_finished {
            let ended = report.status.completion_time.as_ref().map_or(report.now, |at| at.0);
            let until = later(ended, ttl.get());
            if until <= report.now {
                return completes(report, "the time for a rollback is over");
            }
            plan = plan.wake_at(until);
        }
    }
    if report.status == before { plan } else { plan.status(report.status) }
}

/// The end of the offer: what was kept for a rollback goes.
fn completes(mut report: Report<'_>, why: &str) -> Plan<KubernetesExecutionStatus> {
    if let Some(information) = report.status.rollback_information.as_mut() {
        information.available = false;
        information.unavailable_reason = why.to_owned();
    }
    report.says(KubernetesExecutionPhase::Completed, Reason::Completed, why);
    let undo = report.settings.executor.undo_secret(report.facts.cx.object.uid());
    let mut plan = report.plan().note(Note::normal(Reason::ExecutionCompletedPermanent, why));
    plan.steps.push(job::delete_secret_of(undo));
    plan
}

/// Somebody asked for it to stop.
pub(super) fn cancelled(report: Report<'_>, by: &str) -> Plan<KubernetesExecutionStatus> {
    ended(report, Reason::KeCancelled, remedy::cancelled(by))
}

/// What is asked for is not what was validated. The schema forbids it; whoever got around that gets nothing.
pub(super) fn spec_changed(report: Report<'_>) -> Plan<KubernetesExecutionStatus> {
    let message = "the spec is not the one that was validated: another action is another object".to_owned();
    ended(report, Reason::SpecChanged, message)
}

/// Ends it now, with whatever it had begun.
fn ended(report: Report<'_>, reason: Reason, message: String) -> Plan<KubernetesExecutionStatus> {
    match report.facts.run.own() {
        Some(run) if !is_finished(run) => stopped(report, run, reason, message),
        Some(_) => {
            let message = format!("{message}; the action was carried out, or begun");
            report.fails(No { reason, ..failed(message) })
        }
        None => {
            // A Job that no cache shows is no proof that there is none: it would be let go later.
            let executing = report.status.phase == Some(KubernetesExecutionPhase::Executing);
            let confirm = if executing && report.facts.run.found().is_none() {
                vec![Step::confirm_gone(report.run_reference())]
            } else {
                Vec::new()
            };
            report.fails(No { reason, confirm, ..failed(message) })
        }
    }
}

/// Stops what runs, lets go, and only then gives the object up.
pub(super) fn clean_up(report: Report<'_>) -> Plan<KubernetesExecutionStatus> {
    let (facts, now) = (report.facts, report.now);
    let asked_at = facts.cx.object.meta().deletion_timestamp.as_ref().map_or(now, |at| at.0);
    let limit = later(asked_at, CLEANUP_LIMIT);
    let going = facts.run.own().filter(|run| !is_finished(run));
    let begun = report.status.phase.is_some_and(|phase| !phase.is_terminal());
    if let Some(run) = going.filter(|_| now < limit) {
        let plan = if begun {
            stopped(
                report,
                run,
                Reason::KeCancelled,
                "the execution was deleted while its Job was going on".to_owned(),
            )
        } else {
            Plan::steps(if is_held(run) { Some(held_run::delete(run)) } else { held_run::stop(run) })
        };
        return plan.wake_at(limit);
    }
    let left_behind = facts.run.found().is_none() && facts.pods.iter().any(job::may_act);
    if left_behind && now < limit {
        return Plan::rest().wake_at(limit);
    }
    let mut plan = Plan::rest();
    match going {
        // Its lock stays with it: whoever sees the Job end frees it.
        Some(run) => {
            let message = format!(
                "{} is still there; the execution goes without it, and the action may have been applied",
                run.reference()
            );
            plan = plan.note(Note::warning(Reason::CleanupIncomplete, message));
        }
        None => {
            let steps = report.release();
            if steps.is_empty() && facts.run.found().is_none() && begun {
                plan.steps.push(Step::confirm_gone(report.run_reference()));
            }
            plan.steps.extend(steps);
            let jobs = facts.jobs.iter().map(Run::object).filter(|run| !run.is_deleting());
            plan.steps.extend(jobs.map(|run| held_run::delete(run)));
        }
    }
    if report.status.phase.is_some() {
        plan.steps.push(job::forget_input(&report.run_reference().key));
        plan.steps.push(job::delete_secret_of(report.settings.executor.undo_secret(facts.cx.object.uid())));
    }
    plan.then(Step::remove_finalizer(finalizers::KUBERNETES_EXECUTION))
}
