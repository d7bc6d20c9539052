//! One look at GitHub: what is there, and which Branches follow from it.
//!
//! ```text
//! refs, pull requests, comments ─▶ new commits, who may command ─▶ Branches: make, move, prune ─▶ the cursor moves
//! ```
//! The cursor moves after the Branches exist. Their names are functions of what they stand for, so a crash in between
//! repeats the same creates and changes nothing (I1).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::git::repository::{Bootstrap, CHECK_RUNS, GITHUB_REACHABLE, READY, RateLimit, WebhookStatus};
use pawl_api::git::{RepositoryStatus, annotations};
use pawl_api::meta::{NewCondition, Reason, condition};

use super::acts::{Acts, follow_refs, make_commits, prune};
use super::refs::{self, Refs};
use super::schedule;
use super::{Facts, Report, aggregate_check_name, collect_checks};
use crate::external;
use crate::failure::{Category, Failure};
use crate::git::comments::{self, Head};
use crate::git::github::{
    self, Access, Account, Ask, Call, Comment, CommitInfoBrief, Commits, Identity, Relation, Reply,
};
use crate::plan::{Note, Plan};
use crate::time::later;

/// How soon to look again for a Branch whose name is still taken by one that is on its way out.
const NAME_TAKEN_RETRY: Duration = Duration::from_secs(2);

/// Below this the rate limit is worth a write of its own: a fifth of what an hour allows.
const RATE_LIMIT_LOW: i64 = 1000;

/// … in steps of this many.
const RATE_LIMIT_STEP: i64 = 250;

/// Odd refs told in one go: enough to see what is wrong with them.
const MAX_BAD_TOLD: usize = 5;

/// What the default branch calls for.
struct Trunk {
    /// Oldest first.
    commits: Vec<CommitInfoBrief>,
    /// Why only the head is run.
    cursor_lost: Option<String>,
    /// It could not be told: the cursor stays.
    unheard: Option<Failure>,
}

/// The commit to be run again, if it may be.
enum Rerun {
    No,
    Refused(String),
    Commit(String),
}

pub(super) fn sync(facts: &Facts<'_>, account: &Arc<Account>) -> Plan<RepositoryStatus> {
    let status = facts.status();
    let branches = Call::new(account, Ask::Branches);
    let pulls = Call::new(account, Ask::PullRequests);
    let since = status.comment_cursor.as_ref().map(|time| time.0);
    let comments = since.map(|since| Call::new(account, Ask::Comments { since }));
    let first = [Some(&branches), Some(&pulls), comments.as_ref()];
    let unasked = unasked(facts, first.into_iter().flatten().cloned());
    if !unasked.is_empty() {
        return asking(unasked);
    }
    let heads = match expect(facts, &branches, |reply| {
        if let Reply::Branches(heads) = reply { Some(heads.as_slice()) } else { None }
    }) {
        Ok(heads) => heads,
        Err(failure) => return failed(facts, &failure),
    };
    let pulls = match expect(facts, &pulls, |reply| {
        if let Reply::PullRequests(pulls) = reply { Some(pulls.as_slice()) } else { None }
    }) {
        Ok(pulls) => pulls,
        Err(failure) => return failed(facts, &failure),
    };
    let comments = comments.map(|call| {
        expect(facts, &call, |reply| {
            if let Reply::Comments(comments) = reply { Some(comments.as_slice()) } else { None }
        })
    });
    let refs = refs::of(facts.spec(), heads, pulls);
    follow(facts, account, &refs, comments.as_ref())
}

/// The second half, once it is known which refs there are.
fn follow(
    facts: &Facts<'_>,
    account: &Arc<Account>,
    refs: &Refs,
    comments: Option<&Result<&[Comment], Failure>>,
) -> Plan<RepositoryStatus> {
    let status = facts.status();
    let mut asks = vec![Call::new(account, Ask::Access)];
    let trunk = trunk(facts, account, refs, &mut asks);
    let rerun = rerun(facts, account, refs, &mut asks);
    let listed = comments.and_then(|comments| comments.as_ref().ok().copied()).unwrap_or_default();
    let unread = comments::unread(&status, listed);
    let heads: BTreeMap<i64, Head<'_>> = refs
        .wanted
        .iter()
        .filter_map(|(branch, wanted)| {
            let is_fork = wanted.head_repository.is_some();
            Some((wanted.pull_request?, Head { branch, sha: &wanted.sha, is_fork }))
        })
        .collect();
    let commands = comments::obey(account, &unread, &heads, facts.cx.answers);
    asks.extend(commands.asks.iter().cloned());
    let asks = unasked(facts, asks);
    if !asks.is_empty() {
        return asking(asks);
    }
    if let Some(failure) = hopeless(facts) {
        return failed(facts, failure);
    }
    let mut acts = Acts { bad: refs.bad.clone(), ..Acts::default() };
    let mut report = Report::of(facts);
    let mut commits = trunk.commits.clone();
    if let Rerun::Commit(sha) = &rerun {
        commits.push(CommitInfoBrief { sha: sha.clone(), message: String::new(), author: None });
    }
    make_commits(facts, &commits, &mut report.status, &mut acts);
    follow_refs(facts, refs, &commands.annotations, &mut acts);
    prune(facts, refs, &mut acts);
    if let Some(head) = refs.default_head.as_ref().filter(|_| trunk.unheard.is_none() && !acts.blocked) {
        report.status.last_default_branch_head_sha = Some(head.clone());
        report.status.last_default_branch = Some(facts.spec().default_branch.clone());
    }
    // A command for a Branch whose name is not free yet is read again with the next look.
    match (comments, commands.unheard || acts.blocked) {
        (None, _) => report.status.comment_cursor = Some(Time(whole_seconds(facts.cx.now))),
        (Some(Ok(_)), false) => comments::advance(&mut report.status, &unread),
        (Some(Ok(_)), true) | (Some(Err(_)), _) => {}
    }
    let mut plan = finish(report, refs, &acts, &trunk, &rerun);
    let told = commands.told.iter().map(|line| Note::normal(Reason::CommandTaken, line.clone()));
    plan.notes.extend(told);
    plan.steps = acts.steps;
    plan
}

/// What is new on the default branch. A cursor that is gone, or that the head does not follow from, is no cursor: then
/// the head alone is run.
fn trunk(facts: &Facts<'_>, account: &Arc<Account>, refs: &Refs, asks: &mut Vec<Call>) -> Trunk {
    let status = facts.status();
    let mut trunk = Trunk { commits: vec![], cursor_lost: None, unheard: None };
    let Some(head) = refs.default_head.as_ref() else { return trunk };
    let head_only = || vec![CommitInfoBrief { sha: head.clone(), message: String::new(), author: None }];
    let same_branch =
        status.last_default_branch.as_ref().is_none_or(|last| *last == facts.spec().default_branch);
    let cursor = status.last_default_branch_head_sha.as_ref().filter(|_| same_branch);
    let Some(cursor) = cursor else {
        let starts_later = !status.synced && facts.spec().bootstrap == Bootstrap::Cursor;
        trunk.commits = if starts_later { vec![] } else { head_only() };
        return trunk;
    };
    if cursor == head {
        return trunk;
    }
    let call = Call::new(account, Ask::Commits { base: cursor.clone(), head: head.clone() });
    let lost =
        |why: String| format!("{cursor} is no longer where {head} comes from ({why}): only the head is run");
    match expect(facts, &call, as_commits) {
        Ok(Commits { relation: Relation::Ahead, commits }) if !commits.is_empty() => {
            trunk.commits = commits.iter().filter(|commit| refs::is_sha(&commit.sha)).cloned().collect();
        }
        Ok(Commits { relation: Relation::Identical, .. }) => {}
        Ok(Commits { relation, .. }) => {
            trunk.commits = head_only();
            trunk.cursor_lost = Some(lost(format!("{relation:?}").to_ascii_lowercase()));
        }
        // GitHub says 404 or 422 of a commit that it does not know.
        Err(failure) if failure.category == Category::NotFound => {
            trunk.commits = head_only();
            trunk.cursor_lost = Some(lost(failure.reason));
        }
        Err(failure) => trunk.unheard = Some(failure),
    }
    asks.push(call);
    trunk
}

/// A commit of the default branch whose Branch is gone can be run again, and nothing else that a delivery may name.
fn rerun(facts: &Facts<'_>, account: &Arc<Account>, refs: &Refs, asks: &mut Vec<Call>) -> Rerun {
    let status = facts.status();
    let Some(sha) = schedule::rerun(facts.cx.object, &status) else { return Rerun::No };
    let Some(head) = refs.default_head.as_ref().filter(|_| refs::is_sha(sha)) else {
        return Rerun::Refused(format!("{:?} is no commit", sha.chars().take(64).collect::<String>()));
    };
    let call = Call::new(account, Ask::Commits { base: sha.to_owned(), head: head.clone() });
    let answer = match expect(facts, &call, as_commits) {
        _ if sha == head => return Rerun::Commit(sha.to_owned()),
        Ok(Commits { relation: Relation::Ahead | Relation::Identical, .. }) => Rerun::Commit(sha.to_owned()),
        Ok(_) => Rerun::Refused(format!("{sha} is not on the default branch")),
        Err(failure) if matches!(failure.category, Category::Transient | Category::MissingCredentials) => {
            Rerun::No
        }
        Err(failure) => Rerun::Refused(format!("{sha}: {}", failure.reason)),
    };
    asks.push(call);
    answer
}

fn as_commits(reply: &Reply) -> Option<&Commits> {
    if let Reply::Commits(commits) = reply { Some(commits) } else { None }
}

/// A refusal that is about more than one object: we may not do this at all, or not now.
fn hopeless<'a>(facts: &'a Facts<'a>) -> Option<&'a Failure> {
    let about_one = |failure: &Failure| failure.is("OwnershipMismatch") || failure.is("Invalid");
    facts.cx.refusals.iter().map(|refusal| &refusal.failure).find(|failure| !about_one(failure))
}

/// The status after a look, and what people are told of it.
fn finish(
    mut report: Report<'_>,
    refs: &Refs,
    acts: &Acts,
    trunk: &Trunk,
    rerun: &Rerun,
) -> Plan<RepositoryStatus> {
    let (facts, now) = (report.facts, report.facts.cx.now);
    let mut notes = Vec::new();
    answered(facts, &mut report.status);
    if !acts.blocked && !matches!(rerun, Rerun::No) {
        report.status.handled_rerun = facts.cx.object.annotation(annotations::RERUN).map(str::to_owned);
    }
    if let Rerun::Refused(why) = rerun {
        notes.push(Note::warning(Reason::CommandIgnored, format!("cannot run it again: {why}")));
    }
    if let Some(lost) = &trunk.cursor_lost {
        notes.push(Note::warning(Reason::CursorLost, lost.clone()));
    }
    report.status.synced = true;
    report.status.aggregate_check_name = aggregate_check_name(facts);
    report.status.next_sync_at = acts.blocked.then(|| Time(later(now, NAME_TAKEN_RETRY)));
    let access = access(facts, &mut report);
    match &trunk.unheard {
        Some(failure) => not_reachable(&mut report, failure),
        None => {
            let message = format!("{} was asked, and answered", host(facts));
            report.condition(NewCondition::yes(GITHUB_REACHABLE, Reason::GitHubReachable, message));
            report.condition(ready(facts, refs, acts));
        }
    }
    notes.extend(acts.bad.iter().take(MAX_BAD_TOLD).map(|bad| Note::warning(Reason::BadRef, bad.clone())));
    collect_checks(facts, &mut report.status);
    let Acts { made, moved, pruned, .. } = acts;
    if !acts.steps.is_empty() {
        let at = refs.default_head.as_deref().unwrap_or("nothing");
        let message =
            format!("{made} Branches made, {moved} moved, {pruned} pruned; the default branch is at {at}");
        notes.push(Note::normal(Reason::Synced, message).once(now.to_string()));
    }
    // A look that found nothing, with nobody around who could wake us, leaves no trace.
    let eventful = report.status != facts.status() || !acts.steps.is_empty();
    if eventful || is_busy(facts) {
        report.status.last_sync_at = Some(Time(whole_seconds(now)));
    }
    set_rate_limit(&mut report.status, access, eventful);
    let next = schedule::next(facts.cx.object, facts.cx.typed, now);
    let wake = report.status.next_sync_at.as_ref().map_or(next, |time| time.0);
    let mut plan = Plan::rest().status(report.status).wake_at(wake);
    plan.notes = notes;
    plan
}

fn ready(facts: &Facts<'_>, refs: &Refs, acts: &Acts) -> NewCondition {
    if refs.default_head.is_none() {
        let message = format!("the default branch {:?} is not there", facts.spec().default_branch);
        return NewCondition::no(READY, Reason::DefaultBranchMissing, message);
    }
    let mut message = format!("{} refs are followed beside the default branch", refs.wanted.len());
    for bad in acts.bad.iter().take(MAX_BAD_TOLD) {
        message.push_str("; not followed: ");
        message.push_str(bad);
    }
    NewCondition::yes(READY, Reason::Synced, message)
}

/// What asked for this look has been answered, well or badly.
fn answered(facts: &Facts<'_>, status: &mut RepositoryStatus) {
    status.observed_generation = facts.cx.object.meta().generation;
    let Some(asked) = facts.cx.object.annotation(annotations::SYNC_REQUESTED_AT) else { return };
    status.handled_sync_request = Some(asked.chars().take(256).collect());
    let at = asked.split(['@', ' ']).next().and_then(|at| at.parse::<Timestamp>().ok());
    if let Some(at) = at {
        status.webhook = Some(WebhookStatus { last_delivery_at: Some(Time(whole_seconds(at))) });
    }
}

/// How we are known there: who only has a token cannot make check runs.
fn access(facts: &Facts<'_>, report: &mut Report<'_>) -> Option<Access> {
    let account = facts.account.as_ref().ok()?;
    let call = Call::new(account, Ask::Access);
    let access =
        expect(facts, &call, |reply| if let Reply::Access(access) = reply { Some(access) } else { None });
    let access = *access.ok()?;
    report.condition(match access.identity {
        Identity::App => NewCondition::yes(CHECK_RUNS, Reason::CheckRunsUsed, "reports are check runs"),
        Identity::Token => NewCondition::no(
            CHECK_RUNS,
            Reason::CommitStatusesOnly,
            "the credentials are a token, and GitHub lets only Apps make check runs: reports are commit statuses",
        ),
    });
    Some(access)
}

/// What is left is told along with something else, or when it is getting short.
fn set_rate_limit(status: &mut RepositoryStatus, access: Option<Access>, eventful: bool) {
    let Some(now) = access.and_then(|access| access.rate_limit) else { return };
    let band = |remaining: i64| remaining.min(RATE_LIMIT_LOW) / RATE_LIMIT_STEP;
    let told = status.rate_limit.as_ref().map_or(RATE_LIMIT_LOW, |told| told.remaining);
    if eventful || band(told) != band(now.remaining) {
        let reset_at = Some(Time(whole_seconds(now.reset_at)));
        status.rate_limit = Some(RateLimit { remaining: now.remaining, reset_at });
    }
}

/// Whether Branches change soon without anything new on GitHub.
fn is_busy(facts: &Facts<'_>) -> bool {
    facts.branches.values().any(|followed| {
        let Some(branch) = &followed.typed else { return false };
        let result = branch.status.as_ref().and_then(|status| status.result.as_ref());
        let is_evaluated = followed.object.annotation(annotations::LAST_SHA) == Some(&branch.spec.sha);
        followed.object.is_deleting()
            || result.map_or(!is_evaluated, |result| result.sha != branch.spec.sha || !result.state.is_over())
    })
}

/// GitHub did not answer what must be known, or we may not act on it.
fn failed(facts: &Facts<'_>, failure: &Failure) -> Plan<RepositoryStatus> {
    let mut report = Report::of(facts);
    let before = condition::get(&report.status.conditions, READY).cloned();
    answered(facts, &mut report.status);
    not_reachable(&mut report, failure);
    let after = condition::get(&report.status.conditions, READY).cloned();
    let is_news =
        before.map(|one| (one.status, one.reason)) != after.clone().map(|one| (one.status, one.reason));
    let at = report.status.next_sync_at.clone().map_or(facts.cx.now, |time| time.0);
    let plan = Plan::rest().status(report.status).wake_at(at);
    match after.filter(|_| is_news) {
        Some(after) => plan.note(Note::warning(after.reason, after.message)),
        None => plan,
    }
}

fn not_reachable(report: &mut Report<'_>, failure: &Failure) {
    let (reason, message) = (why(failure), told(failure));
    report.condition(NewCondition::no(GITHUB_REACHABLE, reason, message.clone()));
    report.condition(NewCondition::no(READY, reason, message));
    let since = condition::get(&report.status.conditions, GITHUB_REACHABLE)
        .map_or(report.facts.cx.now, |condition| condition.last_transition_time.0);
    let interval = report.facts.spec().poll_interval.get();
    let at = schedule::retry_at(since, failure.retry_after, interval, report.facts.cx.now);
    report.status.next_sync_at = Some(Time(whole_seconds(at)));
}

fn why(failure: &Failure) -> Reason {
    match failure.reason.as_str() {
        "BadCredentials" => Reason::CredentialsInvalid,
        _ if failure.category == Category::MissingCredentials => Reason::CredentialsMissing,
        "HTTP401" => Reason::Unauthorized,
        "HTTP403" | "Forbidden" => Reason::Forbidden,
        "HTTP404" => Reason::RepositoryNotFound,
        "QuotaExceeded" => Reason::QuotaExceeded,
        other if other.contains("RateLimit") => Reason::RateLimited,
        _ => Reason::GitHubUnreachable,
    }
}

/// How long to wait changes from look to look; what is wrong does not, and a message that stays is no write.
fn told(failure: &Failure) -> String {
    if why(failure) == Reason::RateLimited {
        return format!("{}: {}", failure.attempt, failure.reason);
    }
    failure.to_string()
}

fn host<'a>(facts: &'a Facts<'a>) -> &'a str {
    facts.account.as_ref().map_or("GitHub", |account| account.api_url.as_str())
}

fn expect<'a, T: ?Sized>(
    facts: &'a Facts<'a>,
    call: &Call,
    pick: impl FnOnce(&'a Reply) -> Option<&'a T>,
) -> Result<&'a T, Failure> {
    // What was not asked yet is asked before anything follows from this.
    let reply = facts.cx.answers.get(call).ok_or_else(|| github::mismatched(call))?;
    pick(reply.map_err(Clone::clone)?).ok_or_else(|| github::mismatched(call))
}

fn unasked(facts: &Facts<'_>, calls: impl IntoIterator<Item = Call>) -> Vec<Call> {
    let mut calls: Vec<_> = calls.into_iter().filter(|call| facts.cx.answers.get(call).is_none()).collect();
    calls.sort();
    calls.dedup();
    calls
}

fn asking(calls: Vec<Call>) -> Plan<RepositoryStatus> {
    Plan { asks: calls.into_iter().map(external::Call::new).collect(), ..Plan::rest() }
}

/// As API servers keep times.
fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}
