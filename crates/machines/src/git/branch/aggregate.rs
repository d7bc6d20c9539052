//! What does the `pawl` check of a commit say? One check per Repository and commit, whatever ran for it, so that it can
//! be required: it always concludes.
//!
//! ```text
//! own Workflows ─▶ own result (in the status) ─┐
//! results of other Branches at the same commit ┴▶ combined ─▶ told when our own result changed, or when what was told
//!                                                            last left it open
//! ```
//! Several Branches may be at one commit, and each reports for all: the last to end finds all the others ended. What
//! was concluded is opened again only by a Branch of which something runs anew, never because another Branch went.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pawl_api::git::branch::{BranchResult, MAX_CHECKS, ResultState, WORKFLOW_CREATE_FAILED};
use pawl_api::git::repository::{AGGREGATE_CHECK, AggregateCheck};
use pawl_api::git::workflow_template::Supersede;
use pawl_api::git::{BranchStatus, Repository, WorkflowPhase};
use pawl_api::meta::{Reason, condition, text};

use super::attempts::groups;
use super::{Facts, Known, NoHome, may_finish};
use crate::external;
use crate::failure::{Category, Failure};
use crate::git::check_run::{Reported, Reporter};
use crate::git::github::{Account, CheckRun, CheckState, Conclusion};
use crate::plan::{Note, Plan, Wake};
use crate::time::later;

/// What GitHub keeps of a check run's title is more; this is what fits a line.
const MAX_TITLE_CHARS: usize = 200;

/// Failed Workflows that are named: the rest is counted.
const MAX_NAMED: usize = 10;

/// What a result's message may hold.
const MAX_RESULT_CHARS: usize = 4096;

/// How long until a check that could not be reported is reported again.
const REPORT_RETRY: Duration = Duration::from_mins(5);

/// In front of what could not be told and never will be.
const GIVEN_UP: char = '!';

/// What is left to do about the checks of a Branch that goes.
pub(super) enum Farewell {
    Done,
    Ask(Vec<external::Call>),
    /// GitHub does not answer for now.
    Unheard(String),
    /// Nobody can tell GitHub any more.
    Lost(String),
}

pub(super) fn running(workflows: usize) -> String {
    format!("{workflows} Workflows run for this commit")
}

/// Notes in the status what became of the commit here.
pub(super) fn note_result(known: &Known<'_>, status: &mut BranchStatus) {
    let sha = &known.spec().sha;
    let latest: Vec<_> =
        groups(known).into_iter().filter_map(|(key, all)| Some((key, *all.last()?))).collect();
    let kept_out = condition::get(&status.conditions, WORKFLOW_CREATE_FAILED)
        .filter(|one| one.reason == Reason::Invalid.as_str())
        .map(|one| one.message.clone());
    if latest.is_empty() {
        // Nothing was to be done, and that was said; or somebody took the Workflows away.
        if let Some(result) = status.result.as_mut().filter(|result| result.sha == *sha)
            && result.state == ResultState::Running
        {
            (result.state, result.message) = match kept_out {
                Some(why) => (ResultState::Failed, text::head(why, MAX_RESULT_CHARS)),
                None => (ResultState::Cancelled, "its Workflows are gone".to_owned()),
            };
        }
        return;
    }
    let mut counts: BTreeMap<Option<WorkflowPhase>, usize> = BTreeMap::new();
    for (_, (_, workflow)) in &latest {
        *counts.entry(workflow.status.as_ref().and_then(|status| status.phase)).or_default() += 1;
    }
    let count = |phase: WorkflowPhase| counts.get(&Some(phase)).copied().unwrap_or_default();
    let (succeeded, failed) = (count(WorkflowPhase::Succeeded), count(WorkflowPhase::Failed));
    let cancelled = count(WorkflowPhase::Cancelled);
    let state = if succeeded + failed + cancelled < latest.len() {
        ResultState::Running
    } else if failed > 0 || kept_out.is_some() {
        ResultState::Failed
    } else if cancelled > 0 {
        ResultState::Cancelled
    } else {
        ResultState::Succeeded
    };
    let mut message = if state == ResultState::Running {
        running(latest.len())
    } else {
        format!("{succeeded} succeeded, {failed} failed, {cancelled} cancelled")
    };
    if state == ResultState::Failed {
        let failed = latest.iter().filter(|(_, (_, workflow))| {
            workflow.status.as_ref().and_then(|status| status.phase) == Some(WorkflowPhase::Failed)
        });
        for ((template, path), _) in failed.take(MAX_NAMED) {
            message.push_str(&format!("\n- failed: {template}({path})"));
        }
    }
    if let (false, Some(why)) = (state == ResultState::Running, kept_out) {
        message.push_str(&format!("\n- {why}"));
    }
    let message = text::head(message, MAX_RESULT_CHARS);
    status.result = Some(BranchResult { sha: sha.clone(), state, message });
}

/// Keeps a place for the check before it is made, so that it is found again if its reply is lost and the Branch goes.
pub(super) fn intend(known: &Known<'_>, status: &mut BranchStatus) {
    let sha = &known.spec().sha;
    if !status.checks.iter().any(|check| check.sha == *sha) {
        let made = known.repository.status.as_ref().map(|status| status.aggregate_checks.as_slice());
        let known_id = made.unwrap_or_default().iter().find(|check| check.sha == *sha);
        let check_run_id = known_id.map_or(0, |check| check.check_run_id);
        status.checks.push(AggregateCheck { sha: sha.clone(), check_run_id, reported: String::new() });
    }
    let excess = status.checks.len().saturating_sub(MAX_CHECKS);
    status.checks.drain(..excess);
}

/// Something runs anew: what was concluded is not believed any longer. Written together with what makes it run, so that
/// a status that is lost after GitHub was told leaves no check open that seems concluded here.
pub(super) fn reopen(status: &mut BranchStatus, sha: &str) {
    for check in status.checks.iter_mut().filter(|check| check.sha == sha && is_concluded(&check.reported)) {
        check.reported.clear();
    }
}

/// Adds to the plan what must be asked so that GitHub knows; what was answered is noted in the status.
pub(super) fn report(known: &Known<'_>, status: &mut BranchStatus, plan: &mut Plan<BranchStatus>) {
    let Ok(account) = known.account else { return };
    let Some(result) = status.result.clone().filter(|result| result.sha == known.spec().sha) else {
        return;
    };
    intend(known, status);
    let (combined, message) = combine(&result, &known.facts.siblings);
    let mut calls = Vec::new();
    let mut kept = Vec::new();
    for mut check in std::mem::take(&mut status.checks) {
        let is_current = check.sha == result.sha;
        let (state, message, own) = if is_current {
            (combined, message.clone(), result.state.as_str())
        } else {
            let (state, message) = left(known.facts, &check.sha);
            (state, message, "Left")
        };
        // What was left is somebody else's now, or was told, or was never begun.
        let is_settled = known.facts.elsewhere.contains(&check.sha) || is_concluded(&check.reported);
        if !is_current && is_settled {
            continue;
        }
        if is_due(&check.reported, state, own) {
            let run = check_run(known, &check.sha, state, &message);
            match report_run(known.facts, account, check.check_run_id, run) {
                Reported::Calls(first) => calls.extend(first),
                Reported::Done(id) => {
                    check.check_run_id = id.unwrap_or_default();
                    check.reported = format!("{state}<{own}");
                }
                Reported::Failed(failure) if is_final(&failure) => {
                    check.reported = format!("{GIVEN_UP}{state}<{own}");
                    let message = format!("the check of {} cannot be set to {state}: {failure}", check.sha);
                    plan.notes.push(Note::warning(Reason::CheckRunUpdateFailed, message));
                }
                // Transient failures are retried by the loop; no watch tells when credentials or access return.
                Reported::NoAccess(failure) | Reported::Failed(failure) => {
                    if !external::is_transient(&failure) {
                        let at = later(known.facts.cx.now, REPORT_RETRY);
                        plan.wake = plan.wake.earliest(Wake::At(at));
                    }
                }
                Reported::Unchanged => {}
            }
        }
        if is_current || !is_concluded(&check.reported) {
            kept.push(check);
        }
    }
    status.checks = kept;
    calls.sort();
    calls.dedup();
    plan.asks = calls;
}

/// What there is to say of a commit that the ref has left: what was allowed to finish is waited for.
fn left(facts: &Facts<'_>, sha: &str) -> (CheckState, String) {
    let finishing: Vec<Option<WorkflowPhase>> = finishing(facts, sha).collect();
    let count = |phase: WorkflowPhase| finishing.iter().filter(|found| **found == Some(phase)).count();
    let (succeeded, failed) = (count(WorkflowPhase::Succeeded), count(WorkflowPhase::Failed));
    let cancelled = count(WorkflowPhase::Cancelled);
    if finishing.is_empty() {
        let message = "the ref moved on before this was done".to_owned();
        return (CheckState::Completed(Conclusion::Cancelled), message);
    }
    if succeeded + failed + cancelled < finishing.len() {
        let message = format!("the ref moved on; {} Workflows may finish", finishing.len());
        return (CheckState::InProgress, message);
    }
    // What other templates began here was stopped, and what was stopped has not succeeded.
    let all_finish = facts.templates.all.values().all(|(_, one)| one.spec.supersede == Supersede::Finish);
    let conclusion = match (failed, cancelled) {
        (1.., _) => Conclusion::Failure,
        (0, 0) if all_finish => Conclusion::Success,
        (0, _) => Conclusion::Cancelled,
    };
    let message = format!(
        "the ref moved on; of what may finish {succeeded} succeeded, {failed} failed, {cancelled} cancelled"
    );
    (CheckState::Completed(conclusion), message)
}

/// How far the Workflows are that may finish although the ref has left their commit.
fn finishing<'a>(facts: &'a Facts<'a>, sha: &'a str) -> impl Iterator<Item = Option<WorkflowPhase>> + 'a {
    let units = facts.units.iter().filter(|unit| !unit.object.is_deleting());
    let workflows = units.filter_map(|unit| unit.workflow.as_ref());
    workflows
        .filter(move |workflow| workflow.spec.sha == sha && may_finish(facts, workflow))
        .map(|workflow| workflow.status.as_ref().and_then(|status| status.phase))
}

/// Whether the check of a commit that the ref has left is still to be concluded, with what its Workflows came to.
pub(super) fn is_awaited(facts: &Facts<'_>, sha: &str) -> bool {
    let can_tell = facts.home.as_ref().is_ok_and(|home| home.account.is_ok());
    let checks = facts.cx.typed.status.iter().flat_map(|status| &status.checks);
    let mut open = checks.filter(|check| check.sha == sha && !is_concluded(&check.reported));
    can_tell && !facts.elsewhere.contains(sha) && open.next().is_some()
}

/// Whether GitHub knows how the commit ended.
pub(super) fn is_told(status: &BranchStatus, sha: &str) -> bool {
    status.checks.iter().any(|check| check.sha == sha && is_concluded(&check.reported))
}

/// The last word on checks that were left open: nothing more runs for them here.
pub(super) fn farewell(facts: &Facts<'_>) -> Farewell {
    let status = facts.status();
    let open: Vec<&AggregateCheck> = status
        .checks
        .iter()
        .filter(|check| !is_concluded(&check.reported) && !facts.elsewhere.contains(&check.sha))
        .filter(|check| check.sha != facts.spec().sha || facts.siblings.is_empty())
        .collect();
    if open.is_empty() {
        return Farewell::Done;
    }
    let known = match facts.known() {
        Ok(known) => known,
        Err(NoHome::Missing(_)) => return Farewell::Lost("the Repository is gone".to_owned()),
        Err(NoHome::Malformed(problem)) => {
            return Farewell::Lost(format!("the Repository cannot be read: {problem}"));
        }
    };
    let account = match known.account {
        Ok(account) => account,
        Err(problem) => return Farewell::Lost(problem.to_string()),
    };
    let (mut calls, mut retry, mut lost) = (Vec::new(), None, None);
    for check in open {
        let state = CheckState::Completed(Conclusion::Cancelled);
        let run = check_run(&known, &check.sha, state, "the ref is no longer followed");
        match report_run(facts, account, check.check_run_id, run) {
            Reported::Calls(first) => calls.extend(first),
            Reported::Done(_) | Reported::Unchanged => {}
            Reported::Failed(failure) if is_final(&failure) => lost = Some(failure.to_string()),
            Reported::NoAccess(failure) | Reported::Failed(failure) => retry = Some(failure.to_string()),
        }
    }
    calls.sort();
    calls.dedup();
    match (retry, lost) {
        _ if !calls.is_empty() => Farewell::Ask(calls),
        (Some(why), _) => Farewell::Unheard(why),
        (None, Some(why)) => Farewell::Lost(why),
        (None, None) => Farewell::Done,
    }
}

/// What all Branches at the commit come to, and in words.
fn combine(own: &BranchResult, siblings: &[BranchResult]) -> (CheckState, String) {
    let all = || std::iter::once(own).chain(siblings);
    let any = |state: ResultState| all().any(|one| one.state == state);
    let state = if any(ResultState::Running) {
        CheckState::InProgress
    } else if any(ResultState::Failed) {
        CheckState::Completed(Conclusion::Failure)
    } else if any(ResultState::ActionRequired) {
        CheckState::Completed(Conclusion::ActionRequired)
    } else if any(ResultState::Cancelled) {
        CheckState::Completed(Conclusion::Cancelled)
    } else if any(ResultState::Succeeded) {
        CheckState::Completed(Conclusion::Success)
    } else if any(ResultState::Denied) {
        CheckState::Completed(Conclusion::Neutral)
    } else {
        CheckState::Completed(Conclusion::Skipped)
    };
    let mut messages: Vec<&str> = all().map(|one| one.message.as_str()).collect();
    messages.dedup();
    (state, messages.join("\n"))
}

fn is_due(reported: &str, state: CheckState, own: &str) -> bool {
    let reported = reported.trim_start_matches(GIVEN_UP);
    match reported.split_once('<') {
        None => true,
        Some((told, of)) => of != own || (!is_concluded(told) && told != state.to_string()),
    }
}

fn is_concluded(reported: &str) -> bool {
    reported.trim_start_matches(GIVEN_UP).starts_with("completed")
}

fn report_run(facts: &Facts<'_>, account: &Arc<Account>, id: i64, run: CheckRun) -> Reported {
    let reporter = Reporter { account, answers: facts.cx.answers, starts_queued: false };
    reporter.report(Some(id).filter(|id| *id != 0), Ok(run))
}

/// Whether reporting it again is useless: GitHub refuses the check, or does not have the commit.
fn is_final(failure: &Failure) -> bool {
    match failure.category {
        Category::Permanent | Category::NotFound => true,
        Category::Transient | Category::Conflict | Category::MissingCredentials => false,
    }
}

fn check_run(known: &Known<'_>, sha: &str, state: CheckState, message: &str) -> CheckRun {
    let first_line = message.lines().next().unwrap_or_default();
    CheckRun {
        sha: sha.to_owned(),
        name: check_name(known.repository),
        external_id: format!("{}:{sha}", known.repository_uid),
        state,
        started_at: None,
        completed_at: None,
        details_url: None,
        title: text::head(first_line, MAX_TITLE_CHARS),
        summary: message.to_owned(),
        text: String::new(),
    }
}

fn check_name(repository: &Repository) -> String {
    let given = repository.status.as_ref().and_then(|status| status.aggregate_check_name.clone());
    given.unwrap_or_else(|| AGGREGATE_CHECK.to_owned())
}
