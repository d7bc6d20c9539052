//! What people do: push, merge, fork, open pull requests, comment, ask for a re-run.
//!
//! Each of these queues the webhooks that GitHub would send for it.

use std::collections::BTreeMap;
use std::sync::MutexGuard;

use super::Fake;
use super::deliveries::{CommentAction, PullAction};
use super::git::{Blob, Files};
use super::world::{CheckRun, Comment, Pull, Repository, Role, World};
use crate::github::client::lock;

/// A repository, in somebody's hands.
#[derive(Clone, Debug)]
pub struct Repo {
    fake: Fake,
    id: i64,
}

/// What a commit does.
#[derive(Clone, Debug, Default)]
pub struct Change {
    message: String,
    author: String,
    puts: BTreeMap<String, String>,
    removes: Vec<String>,
    renames: Vec<(String, String)>,
}

impl Change {
    pub fn new(message: &str) -> Self {
        Self { message: message.to_owned(), author: "alice".to_owned(), ..Self::default() }
    }

    #[must_use]
    pub fn by(mut self, author: &str) -> Self {
        self.author = author.to_owned();
        self
    }

    /// Writes a file.
    #[must_use]
    pub fn put(mut self, path: &str, content: &str) -> Self {
        self.puts.insert(path.to_owned(), content.to_owned());
        self
    }

    #[must_use]
    pub fn remove(mut self, path: &str) -> Self {
        self.removes.push(path.to_owned());
        self
    }

    #[must_use]
    pub fn rename(mut self, from: &str, to: &str) -> Self {
        self.renames.push((from.to_owned(), to.to_owned()));
        self
    }

    fn applied(&self, files: &mut Files) {
        for (from, to) in &self.renames {
            if let Some(blob) = files.remove(from) {
                files.insert(to.clone(), blob);
            }
        }
        for path in &self.removes {
            files.remove(path);
        }
        files.extend(self.puts.iter().map(|(path, content)| (path.clone(), Blob::new(content))));
    }
}

impl Repo {
    pub(super) fn new(fake: &Fake, id: i64) -> Self {
        Self { fake: fake.clone(), id }
    }

    pub fn full_name(&self) -> String {
        self.world().repositories.get(&self.id).map(Repository::full_name).unwrap_or_default()
    }

    /// Where a branch is.
    pub fn head(&self, branch: &str) -> Option<String> {
        self.world().repositories.get(&self.id)?.branches.get(branch).cloned()
    }

    /// Commits on top of a branch and pushes. A branch that is not there begins at the default branch.
    pub fn push(&self, branch: &str, change: &Change) -> String {
        let mut world = self.world();
        let parent = world.repositories.get(&self.id).and_then(|repository| {
            let start = repository.branches.get(&repository.default_branch);
            repository.branches.get(branch).or(start).cloned()
        });
        let files = parent.as_ref().and_then(|sha| world.objects.get(sha)).map(|commit| commit.files.clone());
        let mut files = files.map(|files| (*files).clone()).unwrap_or_default();
        change.applied(&mut files);
        let now = world.now();
        world.meet(&change.author);
        let parents = parent.into_iter().collect();
        let sha = world.objects.commit(parents, files, &change.message, &change.author, now);
        world.moved(self.id, branch, Some(&sha), &change.author);
        sha
    }

    /// Merges one branch into another with a merge commit.
    pub fn merge(&self, into: &str, from: &str, message: &str) -> Option<String> {
        let mut world = self.world();
        let repository = world.repositories.get(&self.id)?;
        let (ours, theirs) = (repository.branches.get(into)?.clone(), repository.branches.get(from)?.clone());
        let base = world.objects.merge_base(&ours, &theirs).map(|base| base.files.clone());
        let mut files = (*world.objects.get(&ours)?.files).clone();
        let (base, theirs_files) = (base.unwrap_or_default(), world.objects.get(&theirs)?.files.clone());
        for path in base.keys().filter(|path| !theirs_files.contains_key(*path)) {
            files.remove(path);
        }
        let changed = theirs_files.iter().filter(|(path, blob)| base.get(*path) != Some(*blob));
        files.extend(changed.map(|(path, blob)| (path.clone(), blob.clone())));
        let (now, author) = (world.now(), "alice");
        world.meet(author);
        let sha = world.objects.commit(vec![ours, theirs], files, message, author, now);
        world.moved(self.id, into, Some(&sha), author);
        Some(sha)
    }

    /// Moves a branch to a commit, whatever it was at: a new branch, or a forced push.
    pub fn set_branch(&self, branch: &str, sha: &str) {
        self.world().moved(self.id, branch, Some(sha), "alice");
    }

    pub fn delete_branch(&self, branch: &str) {
        self.world().moved(self.id, branch, None, "alice");
    }

    /// A commit that nobody refers to is swept away.
    pub fn forget_commit(&self, sha: &str) {
        self.world().objects.forget(sha);
    }

    /// Makes somebody's fork, with all branches as they are.
    pub fn fork(&self, owner: &str) -> Repo {
        let mut world = self.world();
        let (name, branches) = world
            .repositories
            .get(&self.id)
            .map(|repository| (repository.name.clone(), repository.branches.clone()))
            .unwrap_or_default();
        let id = world.create(&format!("{owner}/{name}"), Some(self.id));
        if let Some(fork) = world.repositories.get_mut(&id) {
            fork.branches = branches;
        }
        drop(world);
        Repo::new(&self.fake, id)
    }

    /// The repository is gone; pull requests from it stay, without a place they come from.
    pub fn delete(&self) {
        let mut world = self.world();
        world.repositories.remove(&self.id);
        for repository in world.repositories.values_mut() {
            for pull in repository.pulls.values_mut().filter(|pull| pull.head_repository == Some(self.id)) {
                pull.head_repository = None;
            }
        }
    }

    /// Opens a pull request from a branch of `from` (this repository or a fork) to a branch here.
    pub fn open_pull(&self, from: &Repo, head: &str, base: &str, author: &str, draft: bool) -> Option<i64> {
        let mut world = self.world();
        let now = world.now();
        world.meet(author);
        let id = world.next_id();
        let source = world.repositories.get(&from.id)?;
        let (head_owner, head_sha) = (source.owner.clone(), source.branches.get(head)?.clone());
        let repository = world.repositories.get_mut(&self.id)?;
        let base_sha = repository.branches.get(base)?.clone();
        repository.last_number += 1;
        let number = repository.last_number;
        let pull = Pull {
            id,
            number,
            title: format!("{head} into {base}"),
            author: author.to_owned(),
            draft,
            open: true,
            base: base.to_owned(),
            base_sha,
            head_repository: Some(from.id),
            head_owner,
            head: head.to_owned(),
            head_sha,
            created_at: now,
            updated_at: now,
        };
        repository.pulls.insert(number, pull);
        world.deliver_pull(self.id, number, PullAction::Opened);
        Some(number)
    }

    pub fn close_pull(&self, number: i64) {
        self.change_pull(number, PullAction::Closed, |pull| pull.open = false);
    }

    fn change_pull(&self, number: i64, action: PullAction, change: impl FnOnce(&mut Pull)) {
        let mut world = self.world();
        let now = world.now();
        let pull =
            world.repositories.get_mut(&self.id).and_then(|repository| repository.pulls.get_mut(&number));
        if let Some(pull) = pull {
            pull.updated_at = now;
            change(pull);
            world.deliver_pull(self.id, number, action);
        }
    }

    /// Somebody comments on an issue or pull request.
    pub fn comment(&self, number: i64, author: &str, body: &str) -> i64 {
        self.world().comment(self.id, number, author, body)
    }

    pub fn edit_comment(&self, id: i64, body: &str) {
        let mut world = self.world();
        let now = world.now();
        let comment =
            world.repositories.get_mut(&self.id).and_then(|repository| repository.comments.get_mut(&id));
        if let Some(comment) = comment {
            body.clone_into(&mut comment.body);
            comment.updated_at = now;
            world.deliver_comment(self.id, id, CommentAction::Edited);
        }
    }

    /// What somebody may do here.
    pub fn permit(&self, login: &str, role: Role) {
        let mut world = self.world();
        world.meet(login);
        if let Some(repository) = world.repositories.get_mut(&self.id) {
            repository.roles.insert(login.to_owned(), role);
        }
    }

    /// Somebody presses "Re-run" on a check run.
    pub fn rerequest(&self, check_run: i64, by: &str) {
        let mut world = self.world();
        world.meet(by);
        world.deliver_rerun(self.id, check_run, by);
    }

    /// Somebody presses "Re-run all checks" on a commit.
    pub fn rerequest_suite(&self, sha: &str, by: &str) {
        let mut world = self.world();
        world.meet(by);
        world.deliver_suite_rerun(self.id, sha, by);
    }

    /// The check runs there are, oldest first.
    pub fn check_runs(&self) -> Vec<CheckRun> {
        let world = self.world();
        let runs = world.repositories.get(&self.id).map(|repository| repository.check_runs.values().cloned());
        runs.map(Iterator::collect).unwrap_or_default()
    }

    /// The newest state of each context on a commit.
    pub fn statuses(&self, sha: &str) -> BTreeMap<String, String> {
        let world = self.world();
        let statuses = world.repositories.get(&self.id).map(|repository| repository.statuses.as_slice());
        let of_commit = statuses.unwrap_or_default().iter().filter(|status| status.sha == sha);
        of_commit.map(|status| (status.context.clone(), status.state.clone())).collect()
    }

    /// What was said under an issue or pull request: author and text.
    pub fn comments(&self, number: i64) -> Vec<(String, String)> {
        let world = self.world();
        let comments = world.repositories.get(&self.id).map(|repository| repository.comments.values());
        let under = comments.into_iter().flatten().filter(|comment| comment.number == number);
        under.map(|comment| (comment.author.clone(), comment.body.clone())).collect()
    }

    fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.fake.world)
    }
}

impl World {
    pub(super) fn comment(&mut self, repository: i64, number: i64, author: &str, body: &str) -> i64 {
        self.meet(author);
        let (id, now) = (self.next_id(), self.now());
        let (author, body) = (author.to_owned(), body.to_owned());
        let comment = Comment { id, number, author, body, created_at: now, updated_at: now };
        if let Some(repository) = self.repositories.get_mut(&repository) {
            repository.comments.insert(id, comment);
        }
        self.deliver_comment(repository, id, CommentAction::Created);
        id
    }

    /// A branch was pushed, forced or deleted; the pull requests from it follow.
    fn moved(&mut self, id: i64, branch: &str, to: Option<&str>, by: &str) {
        let now = self.now();
        self.meet(by);
        let Some(repository) = self.repositories.get_mut(&id) else { return };
        repository.pushed_at = now;
        let before = match to {
            Some(sha) => repository.branches.insert(branch.to_owned(), sha.to_owned()),
            None => repository.branches.remove(branch),
        };
        if before.as_deref() == to {
            return;
        }
        self.deliver_push(id, branch, before.as_deref(), to, by);
        for (repository, number) in self.pulls_from(id, branch) {
            let Some(home) = self.repositories.get_mut(&repository) else { continue };
            let base_shas = home.branches.clone();
            let Some(pull) = home.pulls.get_mut(&number) else { continue };
            pull.updated_at = now;
            let action = match to {
                Some(sha) => {
                    sha.clone_into(&mut pull.head_sha);
                    if let Some(base) = base_shas.get(&pull.base) {
                        base.clone_into(&mut pull.base_sha);
                    }
                    PullAction::Synchronize
                }
                None => {
                    pull.open = false;
                    PullAction::Closed
                }
            };
            self.deliver_pull(repository, number, action);
        }
    }

    fn pulls_from(&self, id: i64, branch: &str) -> Vec<(i64, i64)> {
        let all =
            self.repositories.values().flat_map(|home| home.pulls.values().map(move |pull| (home.id, pull)));
        all.filter(|(_, pull)| pull.open && pull.head_repository == Some(id) && pull.head == branch)
            .map(|(home, pull)| (home, pull.number))
            .collect()
    }
}
