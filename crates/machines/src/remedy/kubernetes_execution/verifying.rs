//! What came of an attempt, and does what must hold after it hold?
//!
//! What a Job says is written into the status before anything follows from it, so a Job that somebody removes afterwards
//! changes nothing (I2). A Job that is gone without a word leaves the verdict to the postconditions.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::meta::{self, Reason, text};
use pawl_api::remedy::kubernetes_execution::{
    ActionCondition, ActionOutcome, ConditionResult, MAX_POD_LOG_BYTES,
};
use pawl_api::remedy::{KubernetesExecutionPhase, KubernetesExecutionStatus};

use super::asking::Pause;
use super::executing::failed;
use super::job::{self, Run, Standing, Told};
use super::report::{No, Report, Stop, stopped_by};
use super::{assess, later, recorded_uid};
use crate::external::Call;
use crate::logs::Logs;
use crate::plan::{Note, Plan, Step};
use crate::remedy::action::executor::CONTAINER;
use crate::remedy::action::report::Outcome;

/// How long what a Pod said is waited for: caches of different kinds lag differently, but never for long.
const DETAILS_LIMIT: Duration = Duration::from_secs(10);

/// How long a postcondition may take to become true where it does not say: a rollout's first Pods.
const PATIENCE: meta::Duration = meta::Duration::from_mins(1);

/// How often postconditions are asked again though no watch told of a change: a net below the watches.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// What an attempt came to.
enum Came {
    Done,
    Failed {
        reason: Reason,
        message: String,
        again: bool,
    },
    /// Nobody can say.
    Unknown(String),
}

/// Whether the result of the attempt stands in the status.
pub(super) fn is_recorded(status: &KubernetesExecutionStatus) -> bool {
    let ended = status.execution_results.as_ref().is_some_and(|results| results.end_time.is_some());
    ended && recorded_uid(Some(status)).is_some()
}

/// The Job is over.
pub(super) fn concluded(report: Report<'_>, run: &Run) -> Plan<KubernetesExecutionStatus> {
    let at = run.ended_at().unwrap_or(report.now).min(report.now);
    let told = job::told(&report.facts.pods, report.facts.cx.object.uid());
    let limit = later(at, DETAILS_LIMIT);
    if told == Told::Unseen && report.now < limit {
        return Plan::rest().wake_at(limit);
    }
    let came = came_of(&run.standing(), &told);
    record(report, came, at, Vec::new())
}

/// Somebody deleted the Job before its result was recorded: never a silent second run (I2).
pub(super) fn vanished(report: Report<'_>) -> Plan<KubernetesExecutionStatus> {
    let run = report.run_reference();
    let told = job::told(&report.facts.pods, report.facts.cx.object.uid());
    let acting = report.facts.pods.iter().any(job::may_act);
    let deadline = report.status.execution_deadline.as_ref().map_or(report.now, |at| at.0);
    if acting && report.now < deadline {
        return Plan::rest().wake_at(deadline);
    }
    let came = match &told {
        Told::Report(_) => came_of(&Standing::Complete, &told),
        Told::Nothing(_) | Told::Unseen => {
            Came::Unknown(format!("{run} was deleted before its result was recorded"))
        }
    };
    let (at, confirm) = (report.now, vec![Step::confirm_gone(run)]);
    record(report, came, at, confirm)
}

fn came_of(standing: &Standing, told: &Told) -> Came {
    let failed = |message: String, again| Came::Failed { reason: Reason::KeExecutionFailed, message, again };
    match (standing, told) {
        // What the executor said it did, it did, also where something killed it just then.
        (_, Told::Report(report)) => match report.outcome {
            Outcome::Done => Came::Done,
            Outcome::Refused => failed(report.message.clone(), false),
            Outcome::Failed => failed(report.message.clone(), true),
        },
        (Standing::Failed { late: true, message }, _) => {
            Came::Failed { reason: Reason::ExecutionTimeout, message: message.clone(), again: true }
        }
        (Standing::Failed { message, .. }, Told::Nothing(how)) => failed(format!("{message}; {how}"), true),
        (Standing::Failed { message, .. }, Told::Unseen) => failed(message.clone(), true),
        (_, Told::Nothing(how)) => Came::Unknown(how.clone()),
        (_, Told::Unseen) => Came::Unknown("the Job ended, and what its Pod said is lost".to_owned()),
    }
}

/// Writes down what came of it, and what is there now.
fn record(
    mut report: Report<'_>,
    came: Came,
    at: Timestamp,
    confirm: Vec<Step>,
) -> Plan<KubernetesExecutionStatus> {
    if let Err(stop) = look_back(&mut report) {
        return report.stops(stop);
    }
    let results = report.results();
    results.success = matches!(came, Came::Done);
    results.end_time = Some(Time(at));
    let took = results.start_time.as_ref().map(|from| at.duration_since(from.0).as_secs());
    results.duration =
        took.map(|secs| meta::Duration::from_secs(u64::try_from(secs).unwrap_or_default()).to_string());
    let mut plan = match came {
        Came::Failed { reason, message, again } => {
            if again && may_retry(&report) {
                return retried(report, reason, &message);
            }
            report.fails(No { reason, ..failed(message) })
        }
        Came::Unknown(why) if report.facts.cx.typed.spec.post_conditions.is_empty() => {
            let message = format!("{why}; no postcondition says whether the action was done");
            report.fails(No { reason: Reason::ResultUnknown, ..failed(message) })
        }
        Came::Unknown(why) => {
            let message = format!("{why}; the postconditions say whether the action was done");
            report.says(KubernetesExecutionPhase::Executing, Reason::ResultUnknown, &message);
            begins_to_verify(report, at)
        }
        Came::Done if report.facts.cx.typed.spec.post_conditions.is_empty() => finishes(report, false),
        Came::Done => {
            report.says(
                KubernetesExecutionPhase::Executing,
                Reason::Progressing,
                "done; its postconditions are awaited",
            );
            begins_to_verify(report, at)
        }
    };
    plan.steps.splice(0..0, confirm);
    plan
}

/// What is there after the attempt, and the end of what it wrote. What cannot be had is left out.
fn look_back(report: &mut Report<'_>) -> Result<(), Stop> {
    let facts = report.facts;
    let looked = facts.look();
    let log = log_of(report);
    let heard = log.as_ref().and_then(|log| facts.cx.answers.get(log));
    if let Some(log) = log.clone().filter(|_| heard.is_none()) {
        let mut asks = vec![Call::new(log)];
        if let Err(Pause::Ask(look)) = looked {
            asks.push(look);
        }
        return Err(Stop::Ask(asks));
    }
    match looked {
        Err(Pause::Never(_)) => {}
        Err(pause) => return Err(stopped_by(pause, |_| Stop::Later)),
        Ok(looked) => {
            report.after(&looked.described);
            if let Some(information) = report.status.rollback_information.as_mut() {
                information.changed_digest = Some(looked.digest.clone());
            }
        }
    }
    if let Some(Ok(text)) = heard {
        report.results().pod_logs = text::tail(text, MAX_POD_LOG_BYTES);
    }
    Ok(())
}

fn log_of(report: &Report<'_>) -> Option<Logs> {
    let pod = job::speaker(&report.facts.pods)?;
    let executor = &report.settings.executor;
    // Whatever may be secret of what is changed is in the undos.
    let uids = std::iter::once(report.facts.cx.object.uid()).chain(report.facts.order.undoes.as_deref());
    let mask = uids.map(|uid| executor.undo_secret(uid)).collect();
    let container = CONTAINER.to_owned();
    Some(Logs { pod, container, tail_bytes: MAX_POD_LOG_BYTES, mask })
}

fn may_retry(report: &Report<'_>) -> bool {
    let spec = &report.facts.cx.typed.spec;
    let tried =
        report.status.execution_results.as_ref().map(|results| results.retries_attempted).unwrap_or_default();
    tried < spec.max_retries
}

/// Once more, under the same lock, with the same undo; the gates are asked before it is let go.
fn retried(mut report: Report<'_>, reason: Reason, message: &str) -> Plan<KubernetesExecutionStatus> {
    let (attempt, job) = (report.attempt(), report.run_reference().key);
    let results = report.results();
    results.retries_attempted = results.retries_attempted.saturating_add(1);
    let told = format!("attempt {attempt} failed ({reason}: {message}); it is tried again");
    report.status.attempt = Some(attempt.saturating_add(1));
    report.status.job_ref = None;
    report.status.execution_deadline = None;
    report.says(KubernetesExecutionPhase::Executing, reason, &told);
    let expire = report.facts.ours().and_then(|run| run.expire());
    let mut plan = report.plan().note(Note::warning(reason, told));
    plan.steps.extend(expire.into_iter().chain([job::forget_input(&job)]));
    plan
}

fn begins_to_verify(mut report: Report<'_>, at: Timestamp) -> Plan<KubernetesExecutionStatus> {
    let conditions = &report.facts.cx.typed.spec.post_conditions;
    let last = conditions.iter().map(|one| deadline(one, at)).max();
    report.status.postcondition_deadline = last.map(Time);
    report.plan()
}

/// When one condition must hold. Absolute (I8): it begins with the recorded end of the attempt.
fn deadline(condition: &ActionCondition, ended: Timestamp) -> Timestamp {
    later(ended, condition.timeout.unwrap_or(PATIENCE).get())
}

/// The postconditions, as things are now: they must hold together, each within its time.
pub(super) fn verify(mut report: Report<'_>) -> Plan<KubernetesExecutionStatus> {
    let (facts, now) = (report.facts, report.now);
    let conditions = &facts.cx.typed.spec.post_conditions;
    let ended = report.status.execution_results.as_ref().and_then(|results| results.end_time.clone());
    let ended = ended.map_or(now, |at| at.0);
    let no = |failure: String| Stop::No(Box::new(not_met(failure)));
    let looked = match facts.look() {
        Ok(looked) => looked,
        Err(pause) => return report.stops(stopped_by(pause, no)),
    };
    let before = std::mem::take(&mut report.validation().post_condition_results);
    let results = match assess::evaluate(&report, conditions, looked, &before) {
        Ok(results) => results,
        Err(stop) => return report.stops(stop),
    };
    let (mut over, mut pending) = (Vec::new(), Vec::new());
    for (condition, result) in conditions.iter().zip(&results).filter(|(_, result)| !result.passed) {
        let until = deadline(condition, ended);
        if until <= now || assess::is_broken(&report, condition, looked) {
            over.push((condition, result));
        } else {
            pending.push(until);
        }
    }
    let missed: Vec<String> =
        over.iter().filter(|(one, _)| one.required).map(|(one, result)| told(one, result)).collect();
    let partly = !over.is_empty();
    report.validation().post_condition_results.clone_from(&results);
    if !missed.is_empty() {
        return report.fails(unmet(&facts.cx.typed.status, missed.join("; ")));
    }
    match pending.into_iter().min() {
        Some(until) => report.plan().wake_at(until.min(later(now, LOOK_AGAIN))),
        None => finishes(report, partly),
    }
}

fn told(condition: &ActionCondition, result: &ConditionResult) -> String {
    format!("{}: {}", condition.type_, result.message)
}

fn unmet(status: &Option<KubernetesExecutionStatus>, missed: String) -> No {
    let unknown =
        status.as_ref().and_then(|status| status.reason.as_deref()) == Some(Reason::ResultUnknown.as_str());
    if unknown {
        let message = format!("nobody saw the action done, and what must hold after it does not: {missed}");
        return No { reason: Reason::ResultUnknown, ..failed(message) };
    }
    not_met(missed)
}

fn not_met(missed: String) -> No {
    No { reason: Reason::PostconditionFailed, ..failed(missed) }
}

/// A good end.
fn finishes(mut report: Report<'_>, partly: bool) -> Plan<KubernetesExecutionStatus> {
    let available =
        report.status.rollback_information.as_ref().is_some_and(|information| information.available);
    report.results().success = true;
    report.status.outcome = Some(if partly { ActionOutcome::PartialSuccess } else { ActionOutcome::Success });
    let spec = &report.facts.cx.typed.spec;
    let partly = if partly { ", but not all that should hold after it does" } else { "" };
    let done = format!("{} on {} is done{partly}", spec.action, report.target());
    if !available {
        report.says(KubernetesExecutionPhase::Completed, Reason::Completed, &done);
        return report.ends(Note::normal(Reason::ExecutionCompletedPermanent, done));
    }
    let me = report.facts.cx.object;
    let place = me.namespace().unwrap_or_default();
    let message = format!("{done}; pawl rollback -n {place} ke/{} takes it back", me.name());
    report.says(KubernetesExecutionPhase::RollbackReady, Reason::Completed, &message);
    report.ends(Note::normal(Reason::ExecutionCompleted, message))
}
