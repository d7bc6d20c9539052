//! Which commands does a comment hold, and what is to be done about them?
//!
//! ```text
//! comments since the cursor ─▶ commands on a pull request that is followed ─▶ may the author write? ─▶ annotations
//!                                                             └─ /help, or a command that cannot be obeyed ─▶ a reply
//! ```
//! Nothing in a comment is trusted but who wrote it. What is obeyed becomes an annotation on the Branch, so that a
//! restart does not forget it; the cursor moves only after that.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::git::repository::MAX_COMMENTS_AT_CURSOR;
use pawl_api::git::{RepositoryStatus, annotations};

use super::github::{Account, Ask, Call, Comment, Permission, Reply};
use super::trust;
use crate::external::Answers;
use crate::failure::Category;

/// Who wrote how many of these in one look does not matter; this many are obeyed, the rest in the next look.
const MAX_AT_ONCE: usize = 100;

/// Logins and values stay within what an annotation and a status field are read back with.
const MAX_LOGIN_CHARS: usize = 100;

const HELP: &str = "These commands are for people with write permission here:\n\
    - `/ok-to-test <sha>`: run this commit of a fork (the whole SHA, and only that commit)\n\
    - `/retest`: run again what failed or was cancelled\n\
    - `/cancel`: stop what is running\n\
    - `/help`: this text\n";

/// One line of a comment that asks for something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    OkToTest(Option<String>),
    Retest,
    Cancel,
    Help,
}

/// A pull request that is followed, at its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// The name of its Branch.
    pub branch: &'a str,
    pub sha: &'a str,
    pub is_fork: bool,
}

/// What the comments come to so far.
#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    /// To be asked before anything is done.
    pub asks: Vec<Call>,
    /// Annotations by the name of the Branch.
    pub annotations: BTreeMap<String, BTreeMap<&'static str, String>>,
    /// What was obeyed or not, for people.
    pub told: Vec<String>,
    /// Something could not be asked for now: the cursor stays, and all is read again.
    pub unheard: bool,
}

/// The commands of a comment: lines that begin with one, outside quotes and code blocks.
pub fn commands(body: &str) -> Vec<Command> {
    let mut fenced = false;
    let mut found = Vec::new();
    for line in body.lines().map(str::trim_end) {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        let mut words = line.split_whitespace();
        let command = match words.next().filter(|_| line.starts_with('/')) {
            Some("/ok-to-test") => Command::OkToTest(words.next().map(str::to_owned)),
            Some("/retest") => Command::Retest,
            Some("/cancel") => Command::Cancel,
            Some("/help") => Command::Help,
            _ => continue,
        };
        if !found.contains(&command) {
            found.push(command);
        }
    }
    found
}

/// What comments that were not read before ask for. `heads` are the pull requests that are followed, by number.
pub fn obey(
    account: &Arc<Account>,
    comments: &[&Comment],
    heads: &BTreeMap<i64, Head<'_>>,
    answers: &Answers,
) -> Outcome {
    let mut outcome = Outcome::default();
    for comment in comments.iter().take(MAX_AT_ONCE) {
        let Some(head) = heads.get(&comment.number) else { continue };
        for command in commands(&comment.body) {
            one(account, comment, head, &command, answers, &mut outcome);
        }
    }
    outcome.asks.sort();
    outcome.asks.dedup();
    outcome
}

/// The comments that the cursor has not passed. GitHub counts in seconds and includes the one asked for.
pub fn unread<'a>(status: &RepositoryStatus, comments: &'a [Comment]) -> Vec<&'a Comment> {
    let cursor = status.comment_cursor.as_ref().map_or(Timestamp::MIN, |time| time.0);
    let fresh = |comment: &&Comment| {
        comment.updated_at > cursor
            || (comment.updated_at == cursor && !status.comments_at_cursor.contains(&comment.id))
    };
    let mut unread: Vec<&Comment> = comments.iter().filter(fresh).collect();
    unread.sort_by_key(|comment| (comment.updated_at, comment.id));
    unread
}

/// Moves the cursor past comments that were obeyed: those that [`obey`] took.
pub fn advance(status: &mut RepositoryStatus, read: &[&Comment]) {
    for comment in read.iter().take(MAX_AT_ONCE) {
        let cursor = status.comment_cursor.as_ref().map_or(Timestamp::MIN, |time| time.0);
        if comment.updated_at > cursor {
            status.comment_cursor = Some(Time(comment.updated_at));
            status.comments_at_cursor.clear();
        }
        if comment.updated_at >= cursor && !status.comments_at_cursor.contains(&comment.id) {
            status.comments_at_cursor.push(comment.id);
        }
    }
    let excess = status.comments_at_cursor.len().saturating_sub(MAX_COMMENTS_AT_CURSOR);
    status.comments_at_cursor.drain(..excess);
}

fn one(
    account: &Arc<Account>,
    comment: &Comment,
    head: &Head<'_>,
    command: &Command,
    answers: &Answers,
    outcome: &mut Outcome,
) {
    if *command == Command::Help {
        // One per pull request, whoever asks how often.
        return say(account, comment.number, "help", HELP, answers, outcome);
    }
    let permission = Call::new(account, Ask::Permission { login: comment.author.clone() });
    match answers.get(&permission) {
        None => return outcome.asks.push(permission),
        Some(Ok(reply)) => {
            if !matches!(reply, Reply::Permission(Permission::Write | Permission::Admin)) {
                return ignored(comment, command, "needs write permission", outcome);
            }
        }
        Some(Err(failure)) => match failure.category {
            Category::Transient | Category::Conflict | Category::MissingCredentials => {
                outcome.unheard = true;
                return;
            }
            Category::Permanent | Category::NotFound => {
                let why = format!("has a permission that cannot be read ({})", failure.reason);
                return ignored(comment, command, &why, outcome);
            }
        },
    }
    let login: String = comment.author.chars().take(MAX_LOGIN_CHARS).collect();
    let request = format!("{}@{} by {login}", comment.id, comment.updated_at);
    let (annotation, value) = match command {
        Command::OkToTest(Some(sha)) if !head.is_fork => {
            return ignored(comment, command, &format!("is not needed: {sha} is no fork's"), outcome);
        }
        Command::OkToTest(Some(sha)) if sha == head.sha => {
            (annotations::OK_TO_TEST, trust::ok_to_test(sha, &login))
        }
        Command::OkToTest(_) => {
            let text = format!(
                "Nothing was approved: `/ok-to-test` takes the whole SHA of the head. That is now `{}`; when you \
                 have read it, comment `/ok-to-test {}`.",
                head.sha, head.sha
            );
            return say(account, comment.number, &format!("comment-{}", comment.id), &text, answers, outcome);
        }
        Command::Retest => (annotations::RETEST, request),
        Command::Cancel => (annotations::CANCEL, request),
        Command::Help => return,
    };
    outcome.told.push(format!("{login} on #{}: {}", comment.number, name(command)));
    outcome.annotations.entry(head.branch.to_owned()).or_default().insert(annotation, value);
}

fn ignored(comment: &Comment, command: &Command, why: &str, outcome: &mut Outcome) {
    let login: String = comment.author.chars().take(MAX_LOGIN_CHARS).collect();
    outcome.told.push(format!("ignored {} on #{}: {login} {why}", name(command), comment.number));
}

fn say(
    account: &Arc<Account>,
    number: i64,
    marker: &str,
    text: &str,
    answers: &Answers,
    outcome: &mut Outcome,
) {
    let (marker, text) = (format!("pawl:{marker}"), text.to_owned());
    let call = Call::new(account, Ask::Say { number, marker, text });
    match answers.get(&call) {
        None => outcome.asks.push(call),
        Some(Ok(_)) => {}
        Some(Err(failure)) => match failure.category {
            Category::Transient | Category::Conflict | Category::MissingCredentials => outcome.unheard = true,
            Category::Permanent | Category::NotFound => {}
        },
    }
}

fn name(command: &Command) -> &'static str {
    match command {
        Command::OkToTest(_) => "/ok-to-test",
        Command::Retest => "/retest",
        Command::Cancel => "/cancel",
        Command::Help => "/help",
    }
}

#[cfg(test)]
mod tests;
