//! The questions: what is in the repository, what changed, who may do what?

use std::collections::BTreeMap;

use jiff::Timestamp;
use pawl_machines::git::github::{
    BranchHead, ChangedFile, Comment, CommitInfo, CommitInfoBrief, Commits, Files, Permission, PullRequest,
};

use super::address::escaped;
use super::budget::Endpoint;
use super::client::{Client, PER_PAGE};
use super::error::Error;
use super::wire;

/// GitHub lists no more files of a commit or a pull request than this; beyond it, trees are compared.
pub(super) const MAX_LISTED_FILES: usize = 3000;
/// And no more files of a comparison than this.
pub(super) const MAX_COMPARED_FILES: usize = 300;

impl Client {
    /// Whether we may see the repository at all.
    ///
    /// # Errors
    /// As every function here: [`Error`] says what to do.
    pub async fn repository(&self) -> Result<String, Error> {
        let repository: wire::Repository = self.get(Endpoint::Repository, self.path(&[])).await?;
        Ok(repository.full_name)
    }

    /// Every branch with its head.
    pub async fn branches(&self) -> Result<Vec<BranchHead>, Error> {
        let path = format!("{}?per_page={PER_PAGE}", self.path(&["branches"]));
        let pages: Vec<Vec<wire::Branch>> = self.all(Endpoint::Branches, path).await?;
        Ok(pages.into_iter().flatten().map(BranchHead::from).collect())
    }

    /// Every open pull request.
    pub async fn pull_requests(&self) -> Result<Vec<PullRequest>, Error> {
        let path = format!("{}?state=open&per_page={PER_PAGE}", self.path(&["pulls"]));
        let pages: Vec<Vec<wire::Pull>> = self.all(Endpoint::PullRequests, path).await?;
        Ok(pages.into_iter().flatten().map(PullRequest::from).collect())
    }

    /// The commits after `base` up to `head` along first parents, oldest first. A `base` that GitHub does not know is
    /// [`Error::NotFound`].
    pub async fn commits(&self, base: &str, head: &str) -> Result<Commits, Error> {
        let pages = self.comparison(base, head).await?;
        let Some(first) = pages.first() else { return Err(self.empty_comparison(base, head)) };
        let relation = first.relation();
        let found = pages.iter().flat_map(|page| &page.commits);
        let mut found: BTreeMap<&str, &wire::Commit> =
            found.map(|commit| (commit.sha.as_str(), commit)).collect();
        // A ref may be asked for by name; the commits come oldest first, so its head is the last of them.
        let last = pages.last().and_then(|page| page.commits.last()).map_or("", |commit| commit.sha.as_str());
        let mut next = found.remove(head).or_else(|| found.remove(last));
        let mut commits: Vec<CommitInfoBrief> = Vec::new();
        // Each is taken out as it is passed: an answer in which a commit is its own ancestor ends, too.
        while let Some(commit) = next {
            commits.push(commit.into());
            next = commit.parents.first().and_then(|parent| found.remove(parent.sha.as_str()));
        }
        commits.reverse();
        Ok(Commits { relation, commits })
    }

    /// What one commit changed against its first parent.
    pub async fn commit(&self, sha: &str) -> Result<CommitInfo, Error> {
        let path = format!("{}?per_page={PER_PAGE}", self.path(&["commits", sha]));
        let pages: Vec<wire::Commit> = self.all(Endpoint::Commit, path.clone()).await?;
        let Some(first) = pages.first() else {
            return Err(Error::Unreadable { attempt: format!("GET {path}"), problem: "no page".to_owned() });
        };
        let brief = CommitInfoBrief::from(first);
        let parent = first.parents.first().map(|parent| parent.sha.clone());
        let files = listed(pages.into_iter().flat_map(|page| page.files));
        let files = match parent {
            Some(parent) if files.len() >= MAX_LISTED_FILES => self.tree_changes(&parent, sha).await?,
            None if files.len() >= MAX_LISTED_FILES => self.tree_files(sha).await?,
            Some(_) | None => files,
        };
        Ok(CommitInfo { brief, files: Files { files } })
    }

    /// What a pull request changes.
    pub async fn pull_files(&self, number: i64) -> Result<Files, Error> {
        let number = number.to_string();
        let path = format!("{}?per_page={PER_PAGE}", self.path(&["pulls", &number, "files"]));
        let pages: Vec<Vec<wire::File>> = self.all(Endpoint::PullRequestFiles, path).await?;
        let files = listed(pages.into_iter().flatten());
        if files.len() < MAX_LISTED_FILES {
            return Ok(Files { files });
        }
        let pull: wire::Pull = self.get(Endpoint::PullRequest, self.path(&["pulls", &number])).await?;
        let merge_base = self.merge_base(&pull.base.sha, &pull.head.sha).await?;
        Ok(Files { files: self.tree_changes(&merge_base, &pull.head.sha).await? })
    }

    /// What changed from the merge base of `base` and `head` to `head`.
    pub async fn since_merge_base(&self, base: &str, head: &str) -> Result<Files, Error> {
        // The files are on the first page, whatever the number of commits.
        let first = self.first_comparison(base, head).await?;
        let files = listed(first.files);
        if files.len() < MAX_COMPARED_FILES {
            return Ok(Files { files });
        }
        Ok(Files { files: self.tree_changes(&first.merge_base_commit.sha, head).await? })
    }

    /// Comments on issues and pull requests made or edited since, oldest first.
    pub async fn comments(&self, since: Timestamp) -> Result<Vec<Comment>, Error> {
        // GitHub tells time in seconds; one comment too many is harmless.
        let since = Timestamp::from_second(since.as_second()).unwrap_or(since);
        let since = escaped(&since.to_string());
        let query = format!("sort=updated&direction=asc&since={since}&per_page={PER_PAGE}");
        let path = format!("{}?{query}", self.path(&["issues", "comments"]));
        let pages: Vec<Vec<wire::IssueComment>> = self.all(Endpoint::Comments, path).await?;
        // An edit while pages are read moves a comment to the end: it may be seen twice, and the later one counts.
        let seen = pages.into_iter().flatten().filter_map(wire::IssueComment::comment);
        let latest: BTreeMap<i64, Comment> = seen.map(|comment| (comment.id, comment)).collect();
        let mut comments: Vec<Comment> = latest.into_values().collect();
        comments.sort_by_key(|comment| (comment.updated_at, comment.id));
        Ok(comments)
    }

    /// Comments on one issue or pull request: their text.
    pub async fn comment_texts(&self, number: i64) -> Result<Vec<String>, Error> {
        let path = self.path(&["issues", &number.to_string(), "comments"]);
        let pages: Vec<Vec<wire::IssueComment>> =
            self.all(Endpoint::Comments, format!("{path}?per_page={PER_PAGE}")).await?;
        Ok(pages.into_iter().flatten().map(|comment| comment.body).collect())
    }

    /// What a user may do here. Whoever GitHub does not know may do nothing.
    pub async fn permission(&self, login: &str) -> Result<Permission, Error> {
        let path = self.path(&["collaborators", login, "permission"]);
        match self.get::<wire::Collaborator>(Endpoint::Permission, path).await {
            Ok(collaborator) => Ok(collaborator.into()),
            Err(Error::NotFound { .. }) => Ok(Permission::None),
            Err(error) => Err(error),
        }
    }

    /// The newest state of each context on a commit.
    pub async fn statuses(&self, sha: &str) -> Result<BTreeMap<String, String>, Error> {
        let path = format!("{}?per_page={PER_PAGE}", self.path(&["commits", sha, "statuses"]));
        let pages: Vec<Vec<wire::Status>> = self.all(Endpoint::Statuses, path).await?;
        let newest_first = pages.into_iter().flatten();
        Ok(newest_first.fold(BTreeMap::new(), |mut states, status| {
            states.entry(status.context).or_insert(status.state);
            states
        }))
    }

    async fn merge_base(&self, base: &str, head: &str) -> Result<String, Error> {
        Ok(self.first_comparison(base, head).await?.merge_base_commit.sha)
    }

    /// A comparison without most of its commits: its merge base, and its files if they are few.
    async fn first_comparison(&self, base: &str, head: &str) -> Result<wire::Comparison, Error> {
        self.get(Endpoint::Compare, format!("{}?per_page=1", self.comparison_path(base, head))).await
    }

    async fn comparison(&self, base: &str, head: &str) -> Result<Vec<wire::Comparison>, Error> {
        let path = format!("{}?per_page={PER_PAGE}", self.comparison_path(base, head));
        self.all(Endpoint::Compare, path).await
    }

    fn comparison_path(&self, base: &str, head: &str) -> String {
        // The dots between are GitHub's; a slash in a name is not a slash of the path.
        format!("{}/{}...{}", self.path(&["compare"]), escaped(base), escaped(head))
    }

    fn empty_comparison(&self, base: &str, head: &str) -> Error {
        let attempt = format!("GET {}", self.comparison_path(base, head));
        Error::Unreadable { attempt, problem: "no page".to_owned() }
    }
}

fn listed(files: impl IntoIterator<Item = wire::File>) -> Vec<ChangedFile> {
    files.into_iter().map(ChangedFile::from).collect()
}
