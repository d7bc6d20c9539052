//! What of GitHub's JSON do we read? Only these fields are kept of an answer.
//!
//! Each shape is GitHub's, cut down; it is turned into the words of `machines` where it is used. A list must not fail
//! because of one odd entry (a check run of another App in a state that is new), so words we do not act on are text.

use jiff::Timestamp;
use pawl_machines::git::github::{
    BranchHead, ChangedFile, CheckRunRef, CheckState, Comment, CommitInfoBrief, Conclusion, Permission,
    PullRequest, Relation,
};
use serde::{Deserialize, Serialize};

/// Whom GitHub names where an account is gone.
const GHOST: &str = "ghost";

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Repository {
    pub(crate) full_name: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Branch {
    name: String,
    commit: Sha,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Sha {
    pub(crate) sha: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct User {
    pub(crate) login: String,
}

/// GitHub sends `{}` for an author it knows nothing of.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MaybeUser {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    login: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Pull {
    number: i64,
    title: String,
    user: Option<User>,
    #[serde(default)]
    draft: bool,
    pub(crate) head: Head,
    pub(crate) base: Head,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Head {
    #[serde(rename = "ref")]
    reference: String,
    pub(crate) sha: String,
    /// `null` where the fork is gone.
    repo: Option<Repository>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Commit {
    pub(crate) sha: String,
    pub(crate) parents: Vec<Sha>,
    commit: Inner,
    author: Option<MaybeUser>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) files: Vec<File>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Inner {
    message: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct File {
    filename: String,
    status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous_filename: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Comparison {
    status: ComparisonStatus,
    pub(crate) merge_base_commit: Sha,
    pub(crate) commits: Vec<Commit>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) files: Vec<File>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ComparisonStatus {
    Identical,
    Ahead,
    Behind,
    Diverged,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Tree {
    pub(crate) tree: Vec<Entry>,
    pub(crate) truncated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) path: String,
    pub(crate) mode: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) sha: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CheckRuns {
    pub(crate) check_runs: Vec<CheckRun>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CheckRun {
    id: i64,
    pub(crate) head_sha: String,
    pub(crate) external_id: Option<String>,
    status: String,
    conclusion: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) context: String,
    pub(crate) state: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct IssueComment {
    id: i64,
    issue_url: String,
    user: Option<User>,
    #[serde(default)]
    pub(crate) body: String,
    updated_at: Timestamp,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Collaborator {
    permission: String,
}

impl From<Branch> for BranchHead {
    fn from(Branch { name, commit }: Branch) -> Self {
        Self { name, sha: commit.sha }
    }
}

impl From<Pull> for PullRequest {
    fn from(Pull { number, title, user, draft, head, base }: Pull) -> Self {
        Self {
            number,
            head_ref: head.reference,
            head_sha: head.sha,
            head_repository: head.repo.map(|repo| repo.full_name),
            base_ref: base.reference,
            base_sha: base.sha,
            draft,
            author: login(user),
            title,
        }
    }
}

fn login(user: Option<User>) -> String {
    user.map_or_else(|| GHOST.to_owned(), |user| user.login)
}

impl From<&Commit> for CommitInfoBrief {
    fn from(commit: &Commit) -> Self {
        Self {
            sha: commit.sha.clone(),
            message: commit.commit.message.clone(),
            author: commit.author.as_ref().and_then(|author| author.login.clone()),
        }
    }
}

impl From<File> for ChangedFile {
    fn from(File { filename, status, previous_filename }: File) -> Self {
        Self { path: filename, previous_path: previous_filename, removed: status == "removed" }
    }
}

impl Comparison {
    pub(crate) fn relation(&self) -> Relation {
        match self.status {
            ComparisonStatus::Identical => Relation::Identical,
            ComparisonStatus::Ahead => Relation::Ahead,
            ComparisonStatus::Behind => Relation::Behind,
            ComparisonStatus::Diverged => Relation::Diverged,
        }
    }
}

impl From<&CheckRun> for CheckRunRef {
    fn from(run: &CheckRun) -> Self {
        let state = match run.status.as_str() {
            "completed" => CheckState::Completed(conclusion(run.conclusion.as_deref())),
            "in_progress" => CheckState::InProgress,
            // `waiting`, `requested`, `pending`: nobody began.
            _ => CheckState::Queued,
        };
        Self { id: run.id, state }
    }
}

/// What we never send (`stale`, `startup_failure`) is a failure in our words.
fn conclusion(word: Option<&str>) -> Conclusion {
    match word.unwrap_or_default() {
        "success" => Conclusion::Success,
        "cancelled" => Conclusion::Cancelled,
        "skipped" => Conclusion::Skipped,
        "neutral" => Conclusion::Neutral,
        "timed_out" => Conclusion::TimedOut,
        "action_required" => Conclusion::ActionRequired,
        _ => Conclusion::Failure,
    }
}

impl IssueComment {
    /// `None` where the address of its issue has no number: nobody can be answered there.
    pub(crate) fn comment(self) -> Option<Comment> {
        let number = self.issue_url.rsplit('/').next().and_then(|number| number.parse().ok())?;
        let author = login(self.user);
        Some(Comment { id: self.id, number, author, body: self.body, updated_at: self.updated_at })
    }
}

impl From<Collaborator> for Permission {
    fn from(Collaborator { permission }: Collaborator) -> Self {
        match permission.as_str() {
            "admin" => Self::Admin,
            // GitHub folds its finer roles into these; the finer word is taken too, should it ever come.
            "write" | "maintain" => Self::Write,
            "read" | "triage" => Self::Read,
            _ => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_check_run_of_another_app_in_a_new_state_does_not_spoil_the_list() {
        let runs = json!({"check_runs": [
            {"id": 1, "head_sha": "a", "external_id": null, "status": "levitating", "conclusion": null},
            {"id": 2, "head_sha": "a", "external_id": "x", "status": "completed", "conclusion": "startup_failure"},
        ]});
        let runs: CheckRuns = serde_json::from_value(runs).expect("a list");
        let states: Vec<CheckState> =
            runs.check_runs.iter().map(|run| CheckRunRef::from(run).state).collect();
        assert_eq!(states, [CheckState::Queued, CheckState::Completed(Conclusion::Failure)]);
    }

    #[test]
    fn a_pull_request_of_a_fork_and_a_user_that_are_gone_is_read() {
        let pull = json!({"number": 3, "title": "t", "user": null, "head": {"ref": "x", "sha": "a", "repo": null},
            "base": {"ref": "main", "sha": "b", "repo": {"full_name": "o/r"}}});
        let pull = PullRequest::from(serde_json::from_value::<Pull>(pull).expect("a pull request"));
        assert_eq!((pull.head_repository, pull.author.as_str(), pull.draft), (None, GHOST, false));
    }

    #[test]
    fn an_author_without_an_account_is_nobody() {
        let commit = json!({"sha": "a", "parents": [], "commit": {"message": "m"}, "author": {}});
        let commit: Commit = serde_json::from_value(commit).expect("a commit");
        assert_eq!(CommitInfoBrief::from(&commit).author, None);
    }
}
