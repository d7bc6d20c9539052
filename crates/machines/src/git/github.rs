//! What the git door asks of GitHub, as data: no HTTP, no credentials, no paging. The port in `integrations` speaks it.
//!
//! Every write carries a key by which it is found again (I7): a check run its `external_id`, a commit status its
//! context, a comment a marker in its text. So a call whose answer was lost may be made again.

use std::sync::Arc;

use jiff::Timestamp;

use crate::external::Request;
use crate::failure::{Category, Failure};
use crate::object::Key;

/// On whose behalf: which repository, on which GitHub, with which credentials.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account {
    /// Of the Repository object: one client is kept for each.
    pub uid: String,
    /// `https://api.github.com`, or that of a GitHub Enterprise.
    pub api_url: String,
    pub owner: String,
    pub name: String,
    /// Where the credentials are. Whether that namespace lends them was decided before.
    pub secret: Key,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    pub account: Arc<Account>,
    pub ask: Ask,
}

/// One question, or one keyed write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ask {
    /// How we are known there, and what is left of the rate limit. Costs no request once credentials were used.
    Access,
    /// Every branch with its head.
    Branches,
    /// Every open pull request.
    PullRequests,
    /// The commits from `base` (exclusive) to `head` (inclusive), of first parents only, oldest first. A `base` that
    /// does not exist is [`Category::NotFound`].
    Commits {
        base: String,
        head: String,
    },
    /// What one commit changed against its first parent, with its message and author.
    Commit {
        sha: String,
    },
    /// What a pull request changes.
    PullFiles {
        number: i64,
    },
    /// What changed from the merge base of `base` and `head` to `head`.
    SinceMergeBase {
        base: String,
        head: String,
    },
    /// Comments on issues and pull requests made or edited since, oldest first.
    Comments {
        since: Timestamp,
    },
    /// What a user may do here.
    Permission {
        login: String,
    },
    /// The check run with this `external_id` on this commit, if there is one.
    FindCheckRun {
        sha: String,
        external_id: String,
    },
    /// Makes a check run unless one with its `external_id` is there.
    CreateCheckRun(CheckRun),
    UpdateCheckRun {
        id: i64,
        run: CheckRun,
    },
    /// For those who may not make check runs. The newest of a context counts, so repeating it is harmless.
    SetStatus(CommitStatus),
    /// Says something under a pull request, unless a comment with this marker is there.
    Say {
        number: i64,
        marker: String,
        text: String,
    },
}

/// A check run as it should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CheckRun {
    pub sha: String,
    pub name: String,
    pub external_id: String,
    pub state: CheckState,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub details_url: Option<String>,
    pub title: String,
    pub summary: String,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckState {
    Queued,
    InProgress,
    Completed(Conclusion),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Conclusion {
    Success,
    Failure,
    Cancelled,
    Skipped,
    Neutral,
    TimedOut,
    ActionRequired,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitStatus {
    pub sha: String,
    pub context: String,
    pub state: StatusState,
    pub description: String,
    pub target_url: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusState {
    Pending,
    Success,
    Failure,
    Error,
}

/// What GitHub said.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Access(Access),
    Branches(Vec<BranchHead>),
    PullRequests(Vec<PullRequest>),
    Commits(Commits),
    Commit(CommitInfo),
    Files(Files),
    Comments(Vec<Comment>),
    Permission(Permission),
    CheckRun(Option<CheckRunRef>),
    Done,
}

/// How we are known, and what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub identity: Identity,
    pub rate_limit: Option<RateLimit>,
    /// Requests made for this Repository since this process started, and how many of them cost nothing (304).
    pub requests: u64,
    pub unchanged: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A GitHub App's installation: it may make check runs.
    App,
    /// A user's token: commit statuses only.
    Token,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    pub remaining: i64,
    pub reset_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchHead {
    pub name: String,
    pub sha: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullRequest {
    pub number: i64,
    pub head_ref: String,
    pub head_sha: String,
    /// `owner/name` of where the head is; `None` when that fork is gone.
    pub head_repository: Option<String>,
    pub base_ref: String,
    pub base_sha: String,
    pub draft: bool,
    pub author: String,
    pub title: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commits {
    pub relation: Relation,
    pub commits: Vec<CommitInfoBrief>,
}

/// How the head stands to the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    Identical,
    Ahead,
    Behind,
    Diverged,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitInfoBrief {
    pub sha: String,
    pub message: String,
    /// A login where GitHub knows one.
    pub author: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitInfo {
    pub brief: CommitInfoBrief,
    pub files: Files,
}

/// Changed files, all of them: beyond what the listing shows, trees were compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    pub files: Vec<ChangedFile>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedFile {
    pub path: String,
    /// What it was called before a rename.
    pub previous_path: Option<String>,
    pub removed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comment {
    pub id: i64,
    /// Of the issue or pull request.
    pub number: i64,
    pub author: String,
    pub body: String,
    pub updated_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    None,
    Read,
    Write,
    Admin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckRunRef {
    pub id: i64,
    pub state: CheckState,
}

impl Ask {
    /// Whether it may change something.
    pub fn is_write(&self) -> bool {
        match self {
            Self::CreateCheckRun(_) | Self::UpdateCheckRun { .. } | Self::SetStatus(_) | Self::Say { .. } => {
                true
            }
            Self::Access
            | Self::Branches
            | Self::PullRequests
            | Self::Commits { .. }
            | Self::Commit { .. }
            | Self::PullFiles { .. }
            | Self::SinceMergeBase { .. }
            | Self::Comments { .. }
            | Self::Permission { .. }
            | Self::FindCheckRun { .. } => false,
        }
    }
}

impl Conclusion {
    /// As GitHub spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Cancelled => "cancelled",
            Self::Skipped => "skipped",
            Self::Neutral => "neutral",
            Self::TimedOut => "timed_out",
            Self::ActionRequired => "action_required",
        }
    }
}

impl CheckState {
    /// As GitHub spells the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::InProgress => "in_progress",
            Self::Completed(_) => "completed",
        }
    }

    pub fn conclusion(self) -> Option<Conclusion> {
        match self {
            Self::Completed(conclusion) => Some(conclusion),
            Self::Queued | Self::InProgress => None,
        }
    }
}

impl From<CheckState> for StatusState {
    /// For those who report through commit statuses, which know fewer words. What asks for something to be done does
    /// not pass; what was not meant to run does.
    fn from(state: CheckState) -> Self {
        match state {
            CheckState::Queued | CheckState::InProgress => Self::Pending,
            CheckState::Completed(conclusion) => match conclusion {
                Conclusion::Success | Conclusion::Skipped | Conclusion::Neutral => Self::Success,
                Conclusion::Failure | Conclusion::TimedOut | Conclusion::ActionRequired => Self::Failure,
                Conclusion::Cancelled => Self::Error,
            },
        }
    }
}

impl std::fmt::Display for CheckState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())?;
        self.conclusion().map_or(Ok(()), |conclusion| write!(f, "/{}", conclusion.as_str()))
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Account { owner, name, .. } = &*self.account;
        match &self.ask {
            Ask::Access => write!(f, "see how we are known to {owner}/{name}"),
            Ask::Branches => write!(f, "list the branches of {owner}/{name}"),
            Ask::PullRequests => write!(f, "list the pull requests of {owner}/{name}"),
            Ask::Commits { base, head } => write!(f, "list the commits {base}..{head} of {owner}/{name}"),
            Ask::Commit { sha } => write!(f, "read commit {sha} of {owner}/{name}"),
            Ask::PullFiles { number } => write!(f, "list the files of {owner}/{name}#{number}"),
            Ask::SinceMergeBase { base, head } => write!(f, "compare {base}...{head} of {owner}/{name}"),
            Ask::Comments { since } => write!(f, "read comments on {owner}/{name} since {since}"),
            Ask::Permission { login } => write!(f, "read the permission of {login} on {owner}/{name}"),
            Ask::FindCheckRun { sha, external_id } => {
                write!(f, "find check run {external_id} of {owner}/{name}@{sha}")
            }
            Ask::CreateCheckRun(run) => {
                write!(f, "create check run {} of {owner}/{name}@{}", run.name, run.sha)
            }
            Ask::UpdateCheckRun { id, run } => {
                write!(f, "update check run {id} of {owner}/{name} to {}", run.state)
            }
            Ask::SetStatus(status) => {
                write!(f, "set status {} of {owner}/{name}@{}", status.context, status.sha)
            }
            Ask::Say { number, .. } => write!(f, "comment on {owner}/{name}#{number}"),
        }
    }
}

impl Call {
    pub fn new(account: &Arc<Account>, ask: Ask) -> Self {
        Self { account: Arc::clone(account), ask }
    }
}

impl Request for Call {
    type Reply = Reply;
    const SYSTEM: &'static str = "github";

    fn is_write(&self) -> bool {
        self.ask.is_write()
    }
}

/// What a port that answers something else than was asked amounts to: a defect, and never a panic.
pub fn mismatched(call: &Call) -> Failure {
    Failure {
        attempt: call.to_string(),
        category: Category::Permanent,
        reason: "MismatchedReply".to_owned(),
        message: "the port answered something else than was asked".to_owned(),
        retry_after: None,
    }
}
