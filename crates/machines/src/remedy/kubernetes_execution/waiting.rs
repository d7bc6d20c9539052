//! Is an execution approved, as it stands now?
//!
//! While approval is waited for, everything it would be about is asked again whenever something moves: an approval is never
//! of something that policy would deny by now, and never of what the target no longer is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::meta::{Gate, GateName, NewCondition, Reason, condition};
use pawl_api::pawl::conditions::TARGET_LOCKED;
use pawl_api::remedy::kubernetes_execution::{APPROVALS_OUTDATED, DryRunResults};
use pawl_api::remedy::{KubernetesExecutionPhase, KubernetesExecutionStatus};

use super::approvals::{self, Standing, Tally};
use super::report::{Report, Stop};
use super::{assess, later};
use crate::plan::{Note, Plan};
use crate::remedy::action::Looked;
use crate::remedy::safety::Decision;
use crate::story::{counted, of_groups};

/// How often what no watch tells of (a policy that goes by the time of day) is asked again: a safety net, slow enough
/// to cost nothing.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_mins(5);

/// The phase `validated`: what the status says decides where it goes from here.
pub(super) fn validated(report: Report<'_>) -> Plan<KubernetesExecutionStatus> {
    let results = report.status.validation_results.as_ref();
    let policy = results.and_then(|results| results.policy_validation.as_ref());
    if policy.is_some_and(|policy| policy.required_approval) {
        asks_for_approval(report)
    } else {
        goes_on(report, None)
    }
}

/// The phase `waiting_approval`.
pub(super) fn waits(mut report: Report<'_>) -> Plan<KubernetesExecutionStatus> {
    let decision = match stands(&mut report) {
        Ok((decision, _)) => decision,
        Err(stop) => return report.stops(stop),
    };
    if !decision.require_approval {
        report.passes(not_required());
        return goes_on(report, None);
    }
    let moved = moved(&mut report);
    let tally = count(&report, &decision);
    tell(&mut report, &tally);
    match tally.standing {
        Standing::Granted(people) => {
            let who = if people.is_empty() { "approvalReceived".to_owned() } else { people.join(", ") };
            report.passes(Gate::passed(
                GateName::Approval,
                Reason::ApprovalGranted,
                format!("approved by {who}"),
            ));
            goes_on(report, Some(format!("approved by {who}")))
        }
        Standing::Rejected { by, why } => {
            let message =
                if why.is_empty() { format!("rejected by {by}") } else { format!("rejected by {by}: {why}") };
            let stop =
                Stop::no(GateName::Approval, Reason::KeApprovalRejected, &message, "another execution");
            report.stops(stop.noting(Note::warning(Reason::ApprovalRejected, message)))
        }
        Standing::Missing { have, need } => {
            let until = deadline(&report);
            if until <= report.now {
                return expires(report, format!("{have} of {need} approvals until {until:.0}"));
            }
            still_waits(report, have, need, moved)
        }
    }
}

/// What policy says of what is there now, and what it is about. The dry run is made anew only where the target moved: what
/// it showed was of what was there.
pub(super) fn stands<'a>(report: &mut Report<'a>) -> Result<(Decision, &'a Looked), Stop> {
    assess::parameters(report)?;
    let looked = assess::target(report, false)?;
    let same = report.status.target_digest.as_deref() == Some(looked.digest.as_str());
    report.status.target_digest = Some(looked.digest.clone());
    let tried: Option<DryRunResults> =
        report.validation().dry_run_results.clone().filter(|tried| tried.performed);
    let decision = match tried {
        Some(tried) if same => assess::policy(report, looked, Some(&tried))?,
        Some(_) => assess::with_a_try(report, looked)?,
        None => assess::policy(report, looked, None)?,
    };
    Ok((decision, looked))
}

/// Whether those who said yes are enough, for what the status says now.
pub(super) fn count(report: &Report<'_>, decision: &Decision) -> Tally {
    let wanted = report.status.approval_digest.clone().unwrap_or_default();
    approvals::tally(report.facts, decision, &wanted, deadline(report))
}

pub(super) fn tell(report: &mut Report<'_>, tally: &Tally) {
    report.status.approvals.clone_from(&tally.counted);
    report.tells_of_verification();
}

pub(super) fn not_required() -> Gate {
    Gate::passed(GateName::Approval, Reason::ApprovalNotRequired, "policy does not ask for it")
}

/// The digest that approvals must name, of what is there now; and what made it another.
pub(super) fn moved(report: &mut Report<'_>) -> Option<String> {
    let before = report.facts.cx.typed.status.clone().unwrap_or_default();
    let digest = approvals::approval_digest(&report.status);
    let same = before.approval_digest.as_deref() == Some(digest.as_str());
    report.status.approval_digest = Some(digest);
    if same || before.approval_digest.is_none() {
        return None;
    }
    let what = approvals::what_moved(&before, &report.status);
    let what = if what.is_empty() { "what is asked for".to_owned() } else { what.join(" and ") };
    let moved = format!("{what} moved since approval was asked for: approvals of before no longer count");
    report.condition(NewCondition::yes(APPROVALS_OUTDATED, Reason::ApprovalOutdated, moved.as_str()));
    Some(moved)
}

/// Asks people.
fn asks_for_approval(mut report: Report<'_>) -> Plan<KubernetesExecutionStatus> {
    let policy = report.validation().policy_validation.clone().unwrap_or_default();
    let need = policy.approver_count.unwrap_or(1);
    let groups = of_groups(&policy.approver_groups);
    let me = report.facts.cx.object;
    let what = format!("-n {} ke/{}", me.namespace().unwrap_or_default(), me.name());
    let need = counted(need, "approval", "approvals");
    let message = format!("needs {need}{groups}: pawl approve {what}, or pawl reject {what}");
    if report.status.approval_deadline.is_none() {
        report.status.approval_deadline = Some(Time(later(report.now, std::time::Duration::from_hours(1))));
    }
    report.tells_of_verification();
    let until = waits_for_people(&mut report, &message);
    report.plan().note(Note::normal(Reason::ApprovalRequired, message)).wake_at(until)
}

fn still_waits(
    mut report: Report<'_>,
    have: usize,
    need: usize,
    moved: Option<String>,
) -> Plan<KubernetesExecutionStatus> {
    let now = report.now;
    let until = waits_for_people(&mut report, &format!("{have} of {need} approvals"));
    let mut plan = report.plan().wake_at(until.min(later(now, LOOK_AGAIN)));
    plan.notes.extend(moved.map(|moved| Note::warning(Reason::ApprovalOutdated, moved)));
    plan
}

/// On to the target's lock.
fn goes_on(mut report: Report<'_>, approved: Option<String>) -> Plan<KubernetesExecutionStatus> {
    let limit = report.facts.cx.typed.spec.lock_timeout.get();
    report.status.lock_deadline = Some(Time(later(report.now, limit)));
    let message = format!("{} on {} is carried out", report.facts.cx.typed.spec.action, report.target());
    report.says(KubernetesExecutionPhase::Executing, Reason::Progressing, &message);
    if approved.is_none() {
        report.passes(not_required());
    }
    let note = approved.map(|who| Note::normal(Reason::ApprovalGranted, who));
    let mut plan = report.plan();
    plan.notes.extend(note);
    plan
}

/// What was approved is no longer what would be done, and nothing has been done: people are asked again.
pub(super) fn back(
    mut report: Report<'_>,
    have: usize,
    need: usize,
    why: &str,
) -> Plan<KubernetesExecutionStatus> {
    let until = deadline(&report);
    if until <= report.now {
        return expires(report, format!("{have} of {need} approvals until {until:.0}; {why}"));
    }
    waits_for_people(&mut report, &format!("{have} of {need} approvals; {why}"));
    report.status.lock_deadline = None;
    condition::remove(&mut report.status.conditions, TARGET_LOCKED);
    let release = report.release();
    let mut plan = report.plan().wake_at(until).note(Note::warning(Reason::ApprovalOutdated, why));
    plan.steps.extend(release);
    plan
}

/// Says that people are waited for, and gives until when.
fn waits_for_people(report: &mut Report<'_>, message: &str) -> jiff::Timestamp {
    let until = deadline(report);
    report.says(KubernetesExecutionPhase::WaitingApproval, Reason::ApprovalRequired, message);
    let change = format!("approval until {until:.0}");
    report.gates.push(Gate::waiting(GateName::Approval, Reason::ApprovalRequired, message, change));
    until
}

fn expires(report: Report<'_>, message: String) -> Plan<KubernetesExecutionStatus> {
    let stop = Stop::no(GateName::Approval, Reason::ApprovalTimeout, &message, "another execution");
    report.stops(stop.noting(Note::warning(Reason::ApprovalExpired, message)))
}

/// When waiting for approval ends. Absolute (I8).
fn deadline(report: &Report<'_>) -> jiff::Timestamp {
    report.status.approval_deadline.as_ref().map_or(report.now, |at| at.0)
}
