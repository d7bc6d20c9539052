//! What is there: repositories with branches, pull requests, check runs, comments; and who may do what.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use pawl_engine::Clock;

use super::access::Access;
use super::deliveries::Delivery;
use super::fault::Orders;
use super::git::{Commit, Objects};
use super::journal::{Applied, Effect, Journal};

/// Where ids begin: large enough not to be taken for numbers of pull requests.
const FIRST_ID: i64 = 1001;
/// As GitHub's.
const MAX_TREE_ENTRIES: usize = 100_000;

#[derive(Debug)]
pub(super) struct World {
    clock: Arc<dyn Clock>,
    pub(super) objects: Objects,
    pub(super) repositories: BTreeMap<i64, Repository>,
    users: BTreeMap<String, i64>,
    last_id: i64,
    pub(super) access: Access,
    pub(super) orders: Orders,
    pub(super) journal: Journal,
    pub(super) deliveries: VecDeque<Delivery>,
    pub(super) delivered: u64,
    pub(super) requests: u64,
    /// A tree with more entries is cut short.
    pub(super) max_tree_entries: usize,
}

#[derive(Debug)]
pub(super) struct Repository {
    pub(super) id: i64,
    pub(super) owner: String,
    pub(super) name: String,
    /// The one it was forked from.
    pub(super) parent: Option<i64>,
    pub(super) default_branch: String,
    pub(super) branches: BTreeMap<String, String>,
    pub(super) pulls: BTreeMap<i64, Pull>,
    pub(super) check_runs: BTreeMap<i64, CheckRun>,
    pub(super) statuses: Vec<Status>,
    pub(super) comments: BTreeMap<i64, Comment>,
    pub(super) roles: BTreeMap<String, Role>,
    pub(super) last_number: i64,
    pub(super) created_at: Timestamp,
    pub(super) pushed_at: Timestamp,
    /// The App is installed here.
    pub(super) installed: bool,
}

/// What somebody may do in a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    Read,
    Triage,
    Write,
    Maintain,
    Admin,
}

#[derive(Clone, Debug)]
pub(super) struct Pull {
    pub(super) id: i64,
    pub(super) number: i64,
    pub(super) title: String,
    pub(super) author: String,
    pub(super) draft: bool,
    pub(super) open: bool,
    pub(super) base: String,
    pub(super) base_sha: String,
    /// `None`: the fork is gone.
    pub(super) head_repository: Option<i64>,
    pub(super) head_owner: String,
    pub(super) head: String,
    pub(super) head_sha: String,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
}

/// A check run, as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckRun {
    pub id: i64,
    pub name: String,
    pub head_sha: String,
    pub external_id: String,
    pub status: String,
    pub conclusion: Option<String>,
    pub details_url: Option<String>,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub title: Option<String>,
    pub summary: Option<String>,
    pub text: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Status {
    pub(super) id: i64,
    pub(super) sha: String,
    pub(super) state: String,
    pub(super) context: String,
    pub(super) description: Option<String>,
    pub(super) target_url: Option<String>,
    pub(super) creator: String,
    pub(super) at: Timestamp,
}

#[derive(Clone, Debug)]
pub(super) struct Comment {
    pub(super) id: i64,
    pub(super) number: i64,
    pub(super) author: String,
    pub(super) body: String,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
}

impl World {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            objects: Objects::default(),
            repositories: BTreeMap::new(),
            users: BTreeMap::new(),
            last_id: FIRST_ID - 1,
            access: Access::new(),
            orders: Orders::default(),
            journal: Journal::default(),
            deliveries: VecDeque::new(),
            delivered: 0,
            requests: 0,
            max_tree_entries: MAX_TREE_ENTRIES,
        }
    }

    /// To the second, as GitHub tells time.
    pub(super) fn now(&self) -> Timestamp {
        let now = self.clock.now();
        Timestamp::from_second(now.as_second()).unwrap_or(now)
    }

    pub(super) fn next_id(&mut self) -> i64 {
        self.last_id += 1;
        self.last_id
    }

    pub(super) fn create(&mut self, full_name: &str, parent: Option<i64>) -> i64 {
        let (owner, name) = full_name.split_once('/').unwrap_or((full_name, full_name));
        let (id, now) = (self.next_id(), self.now());
        self.meet(owner);
        let repository = Repository {
            id,
            owner: owner.to_owned(),
            name: name.to_owned(),
            parent,
            default_branch: "main".to_owned(),
            branches: BTreeMap::new(),
            pulls: BTreeMap::new(),
            check_runs: BTreeMap::new(),
            statuses: Vec::new(),
            comments: BTreeMap::new(),
            roles: BTreeMap::from([(owner.to_owned(), Role::Admin)]),
            last_number: 0,
            created_at: now,
            pushed_at: now,
            installed: parent.is_none(),
        };
        self.repositories.insert(id, repository);
        id
    }

    /// GitHub does not care about the case of names.
    pub(super) fn find(&self, full_name: &str) -> Option<&Repository> {
        self.repositories.values().find(|repository| repository.full_name().eq_ignore_ascii_case(full_name))
    }

    /// Everyone who ever did something has an id.
    pub(super) fn meet(&mut self, login: &str) {
        if !self.users.contains_key(login) {
            let id = self.next_id();
            self.users.insert(login.to_owned(), id);
        }
    }

    pub(super) fn user_id(&self, login: &str) -> i64 {
        self.users.get(login).copied().unwrap_or_default()
    }

    pub(super) fn knows_user(&self, login: &str) -> bool {
        self.users.contains_key(login)
    }

    pub(super) fn applied(&mut self, repository: &str, effect: Effect) {
        let (at, request) = (self.clock.now(), self.requests);
        self.journal.add(Applied { at, request, repository: repository.to_owned(), effect });
    }

    /// The commit that somebody means: by hash, by branch, or by `owner:branch` of a fork.
    pub(super) fn resolve(&self, repository: &Repository, name: &str) -> Option<&Arc<Commit>> {
        if let Some(commit) = self.objects.get(name) {
            return Some(commit);
        }
        let (repository, branch) = match name.split_once(':') {
            Some((owner, branch)) => {
                let family = |other: &&Repository| self.root(other) == self.root(repository);
                let of_owner = |other: &&Repository| other.owner.eq_ignore_ascii_case(owner);
                (self.repositories.values().filter(family).find(of_owner)?, branch)
            }
            None => (repository, name),
        };
        let branch = branch.strip_prefix("refs/").unwrap_or(branch);
        let branch = branch.strip_prefix("heads/").unwrap_or(branch);
        let short = (7..40).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let by_branch = repository.branches.get(branch).and_then(|sha| self.objects.get(sha));
        by_branch.or_else(|| self.objects.abbreviated(name).filter(|_| short))
    }

    /// The repository that a family of forks comes from.
    fn root(&self, repository: &Repository) -> i64 {
        let mut root = repository;
        while let Some(parent) = root.parent.and_then(|parent| self.repositories.get(&parent)) {
            root = parent;
        }
        root.id
    }
}

impl Repository {
    pub(super) fn full_name(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }
}

impl Role {
    /// The role's own name, and the coarser one that old interfaces show.
    pub(super) fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Read => ("read", "read"),
            Self::Triage => ("triage", "read"),
            Self::Write => ("write", "write"),
            Self::Maintain => ("maintain", "write"),
            Self::Admin => ("admin", "admin"),
        }
    }

    pub(super) fn may_push(self) -> bool {
        match self {
            Self::Write | Self::Maintain | Self::Admin => true,
            Self::Read | Self::Triage => false,
        }
    }
}
