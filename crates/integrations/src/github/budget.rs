//! How many requests does a Repository cost, and for what?

use std::collections::BTreeMap;

/// What a request is for. A word for metric labels, with few values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    Token,
    Repository,
    Branches,
    PullRequests,
    PullRequest,
    PullRequestFiles,
    Commit,
    Compare,
    Tree,
    CheckRuns,
    CheckRun,
    CreateCheckRun,
    UpdateCheckRun,
    Statuses,
    CreateStatus,
    Comments,
    CreateComment,
    CreateReaction,
    Permission,
}

impl Endpoint {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Repository => "repository",
            Self::Branches => "branches",
            Self::PullRequests => "pull-requests",
            Self::PullRequest => "pull-request",
            Self::PullRequestFiles => "pull-request-files",
            Self::Commit => "commit",
            Self::Compare => "compare",
            Self::Tree => "tree",
            Self::CheckRuns => "check-runs",
            Self::CheckRun => "check-run",
            Self::CreateCheckRun => "create-check-run",
            Self::UpdateCheckRun => "update-check-run",
            Self::Statuses => "statuses",
            Self::CreateStatus => "create-status",
            Self::Comments => "comments",
            Self::CreateComment => "create-comment",
            Self::CreateReaction => "create-reaction",
            Self::Permission => "permission",
        }
    }
}

/// Requests sent, by what they were for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    pub by_endpoint: BTreeMap<Endpoint, Count>,
}

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// All that were sent.
    pub sent: u64,
    /// Of these, answered "nothing new", which costs no rate limit.
    pub not_modified: u64,
    /// Of these, refused or not answered.
    pub failed: u64,
}

/// How one request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Answered,
    NotModified,
    Failed,
}

impl Budget {
    pub(crate) fn count(&mut self, endpoint: Endpoint, outcome: Outcome) {
        let count = self.by_endpoint.entry(endpoint).or_default();
        count.sent += 1;
        count.not_modified += u64::from(outcome == Outcome::NotModified);
        count.failed += u64::from(outcome == Outcome::Failed);
    }

    pub fn of(&self, endpoint: Endpoint) -> Count {
        self.by_endpoint.get(&endpoint).copied().unwrap_or_default()
    }

    /// Whether our credentials were ever taken.
    pub fn was_answered(&self) -> bool {
        let asked = self.by_endpoint.iter().filter(|(endpoint, _)| **endpoint != Endpoint::Token);
        asked.into_iter().any(|(_, count)| count.sent > count.failed)
    }

    /// All requests, whatever for.
    pub fn total(&self) -> Count {
        self.by_endpoint.values().fold(Count::default(), |sum, count| Count {
            sent: sum.sent + count.sent,
            not_modified: sum.not_modified + count.not_modified,
            failed: sum.failed + count.failed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_counts_once_under_what_it_was_for() {
        let mut budget = Budget::default();
        budget.count(Endpoint::Branches, Outcome::Answered);
        budget.count(Endpoint::Branches, Outcome::NotModified);
        budget.count(Endpoint::Compare, Outcome::Failed);
        assert_eq!(budget.of(Endpoint::Branches), Count { sent: 2, not_modified: 1, failed: 0 });
        assert!(budget.was_answered());
        let mut refused = Budget::default();
        refused.count(Endpoint::Token, Outcome::Answered);
        refused.count(Endpoint::Branches, Outcome::Failed);
        assert!(!refused.was_answered());
        assert_eq!(budget.total(), Count { sent: 3, not_modified: 1, failed: 1 });
    }
}
