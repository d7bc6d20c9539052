//! A GitHub small enough for unit tests: what it holds is set by the test, and what was done to it can be looked at.
//!
//! Tests hand [`answer`] to their cluster; each test has a thread, and each thread a GitHub of its own.

use std::cell::RefCell;
use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::external;
use crate::failure::{Category, Failure};
use crate::git::github::{
    Access, Ask, BranchHead, Call, ChangedFile, CheckRun, CheckRunRef, Comment, CommitInfo, CommitInfoBrief,
    CommitStatus, Commits, Files, Identity, Permission, PullRequest, RateLimit, Relation, Reply,
};

#[derive(Clone, Debug)]
pub(crate) struct Commit {
    pub(crate) parent: Option<String>,
    pub(crate) message: String,
    pub(crate) files: Vec<ChangedFile>,
}

#[derive(Clone, Debug)]
pub(crate) struct FakeGithub {
    pub(crate) heads: BTreeMap<String, String>,
    pub(crate) pulls: Vec<PullRequest>,
    pub(crate) pull_files: BTreeMap<i64, Vec<ChangedFile>>,
    pub(crate) commits: BTreeMap<String, Commit>,
    pub(crate) comments: Vec<Comment>,
    pub(crate) writers: Vec<String>,
    pub(crate) identity: Identity,
    pub(crate) remaining: i64,
    /// By `external_id`; the id is the place.
    pub(crate) checks: Vec<CheckRun>,
    pub(crate) statuses: Vec<CommitStatus>,
    pub(crate) said: Vec<(i64, String, String)>,
    /// Calls whose text holds this fail like that.
    pub(crate) failing: Vec<(&'static str, Failure)>,
}

thread_local! {
    static GITHUB: RefCell<FakeGithub> = RefCell::new(FakeGithub::new());
}

/// Changes or reads this test's GitHub.
pub(crate) fn with<T>(act: impl FnOnce(&mut FakeGithub) -> T) -> T {
    GITHUB.with_borrow_mut(act)
}

/// Answers the external calls of a test's cluster.
pub(crate) fn answer(call: &external::Call) -> Result<external::Reply, Failure> {
    let Some(call) = call.request::<Call>() else { panic!("not a call to GitHub: {call}") };
    with(|github| github.answer(&call.to_string(), &call.ask)).map(external::Reply::new::<Call>)
}

/// A SHA that begins with these digits.
pub(crate) fn sha(text: &str) -> String {
    format!("{text:0<40}")
}

pub(crate) fn changed(path: &str) -> ChangedFile {
    ChangedFile { path: path.to_owned(), previous_path: None, removed: false }
}

pub(crate) fn failure(category: Category, reason: &str) -> Failure {
    Failure {
        attempt: "GET /x".to_owned(),
        category,
        reason: reason.to_owned(),
        message: "GitHub said so".to_owned(),
        retry_after: None,
    }
}

impl FakeGithub {
    fn new() -> Self {
        Self {
            heads: BTreeMap::new(),
            pulls: vec![],
            pull_files: BTreeMap::new(),
            commits: BTreeMap::new(),
            comments: vec![],
            writers: vec!["alice".to_owned()],
            identity: Identity::App,
            remaining: 5000,
            checks: vec![],
            statuses: vec![],
            said: vec![],
            failing: vec![],
        }
    }

    /// A commit on top of what the branch is at.
    pub(crate) fn push(&mut self, branch: &str, at: &str, files: &[&str]) -> String {
        let sha = sha(at);
        let parent = self.heads.insert(branch.to_owned(), sha.clone());
        let files = files.iter().map(|path| changed(path)).collect();
        self.commits.insert(sha.clone(), Commit { parent, message: format!("commit {at}"), files });
        sha
    }

    pub(crate) fn open(&mut self, number: i64, from: &str, reference: &str, at: &str, files: &[&str]) {
        self.commits.entry(sha(at)).or_insert_with(|| Commit {
            parent: None,
            message: String::new(),
            files: vec![],
        });
        self.pull_files.insert(number, files.iter().map(|path| changed(path)).collect());
        self.pulls.push(PullRequest {
            number,
            head_ref: reference.to_owned(),
            head_sha: sha(at),
            head_repository: Some(from.to_owned()),
            base_ref: "main".to_owned(),
            base_sha: sha("0"),
            draft: false,
            author: "ann".to_owned(),
            title: String::new(),
        });
    }

    pub(crate) fn comment(&mut self, number: i64, author: &str, body: &str, at: &str) {
        let id = i64::try_from(self.comments.len()).unwrap() + 1;
        let updated_at: Timestamp = at.parse().unwrap();
        let (author, body) = (author.to_owned(), body.to_owned());
        self.comments.push(Comment { id, number, author, body, updated_at });
    }

    /// `name state` of the checks of a commit.
    pub(crate) fn checks_of(&self, at: &str) -> Vec<String> {
        let of = self.checks.iter().filter(|run| run.sha == sha(at));
        of.map(|run| format!("{} {}", run.name, run.state)).collect()
    }

    fn answer(&mut self, text: &str, ask: &Ask) -> Result<Reply, Failure> {
        if let Some((_, failure)) = self.failing.iter().find(|(part, _)| text.contains(part)) {
            return Err(failure.clone());
        }
        let gone = || failure(Category::NotFound, "HTTP404");
        Ok(match ask {
            Ask::Access => Reply::Access(Access {
                identity: self.identity,
                rate_limit: Some(RateLimit { remaining: self.remaining, reset_at: Timestamp::UNIX_EPOCH }),
                requests: 0,
                unchanged: 0,
            }),
            Ask::Branches => Reply::Branches(
                self.heads
                    .iter()
                    .map(|(name, sha)| BranchHead { name: name.clone(), sha: sha.clone() })
                    .collect(),
            ),
            Ask::PullRequests => Reply::PullRequests(self.pulls.clone()),
            Ask::Commits { base, head } => Reply::Commits(self.between(base, head).ok_or_else(gone)?),
            Ask::Commit { sha } => {
                let commit = self.commits.get(sha).ok_or_else(gone)?;
                let brief =
                    CommitInfoBrief { sha: sha.clone(), message: commit.message.clone(), author: None };
                Reply::Commit(CommitInfo { brief, files: Files { files: commit.files.clone() } })
            }
            Ask::PullFiles { number } => {
                Reply::Files(Files { files: self.pull_files.get(number).ok_or_else(gone)?.clone() })
            }
            Ask::SinceMergeBase { base, head } => {
                let base = self.heads.get(base).ok_or_else(gone)?;
                let commits = self.between(base, head).ok_or_else(gone)?.commits;
                let files = commits.iter().flat_map(|commit| self.commits[&commit.sha].files.clone());
                Reply::Files(Files { files: files.collect() })
            }
            Ask::Comments { since } => Reply::Comments(
                self.comments.iter().filter(|comment| comment.updated_at >= *since).cloned().collect(),
            ),
            Ask::Permission { login } => Reply::Permission(match self.writers.contains(login) {
                true => Permission::Write,
                false => Permission::Read,
            }),
            Ask::FindCheckRun { external_id, .. } => Reply::CheckRun(self.find(external_id)),
            Ask::CreateCheckRun(run) => {
                if self.find(&run.external_id).is_none() {
                    self.checks.push(run.clone());
                }
                Reply::CheckRun(self.find(&run.external_id))
            }
            Ask::UpdateCheckRun { id, run } => {
                let place = usize::try_from(*id - 1).unwrap();
                *self.checks.get_mut(place).ok_or_else(gone)? = run.clone();
                Reply::Done
            }
            Ask::SetStatus(status) => {
                self.statuses.push(status.clone());
                Reply::Done
            }
            Ask::Say { number, marker, text } => {
                if !self.said.iter().any(|(on, known, _)| on == number && known == marker) {
                    self.said.push((*number, marker.clone(), text.clone()));
                }
                Reply::Done
            }
        })
    }

    fn find(&self, external_id: &str) -> Option<CheckRunRef> {
        let place = self.checks.iter().position(|run| run.external_id == external_id)?;
        Some(CheckRunRef { id: i64::try_from(place).unwrap() + 1, state: self.checks[place].state })
    }

    fn between(&self, base: &str, head: &str) -> Option<Commits> {
        self.commits.get(base)?;
        let mut commits = Vec::new();
        let mut at = head.to_owned();
        loop {
            if at == base {
                let relation = if commits.is_empty() { Relation::Identical } else { Relation::Ahead };
                commits.reverse();
                return Some(Commits { relation, commits });
            }
            let commit = self.commits.get(&at)?;
            commits.push(CommitInfoBrief { sha: at, message: commit.message.clone(), author: None });
            match &commit.parent {
                Some(parent) => at = parent.clone(),
                None => {
                    return Some(Commits { relation: Relation::Diverged, commits: vec![] });
                }
            }
        }
    }
}
