//! May what a ref holds run on its own?
//!
//! ```text
//! pull request from a fork ─ deny ──▶ nothing runs, a neutral check
//!                          ─ approve ▶ until somebody who may write says /ok-to-test <sha>: that commit, and no other
//!                          ─ allow ─┐
//! a draft, where drafts are skipped ┼▶ nothing runs until it is ready
//! [skip ci] in the head's message ──┼▶ nothing runs
//! anything else ────────────────────┴▶ runs
//! ```

use pawl_api::git::branch::{ForkApproval, ResultState};
use pawl_api::git::repository::{Drafts, Forks};
use pawl_api::git::{BranchSpec, RepositorySpec};
use pawl_api::meta::Reason;

/// What a commit's message says to be left alone: the words that GitHub's own runner knows.
const SKIP_WORDS: [&str; 5] = ["[skip ci]", "[ci skip]", "[no ci]", "[skip actions]", "[actions skip]"];

/// Why a ref may run, or why it may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// A ref of the repository itself.
    Own,
    /// A fork, and `forks: allow`.
    Allowed,
    /// A fork's commit that somebody who may write approved.
    Approved(ForkApproval),
    Stopped(Stop),
}

/// What keeps a commit from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    NotApproved,
    Denied,
    Draft,
    SkipCi,
}

/// What may be known without asking GitHub; `ok_to_test` is the Branch's annotation.
pub fn of(repository: &RepositorySpec, branch: &BranchSpec, ok_to_test: Option<&str>) -> Trust {
    let trust = match (&branch.head_repository, repository.forks) {
        (None, _) => Trust::Own,
        (Some(_), Forks::Allow) => Trust::Allowed,
        (Some(_), Forks::Deny) => return Trust::Stopped(Stop::Denied),
        (Some(_), Forks::Approve) => match approval(branch, ok_to_test) {
            Some(approval) => Trust::Approved(approval),
            None => return Trust::Stopped(Stop::NotApproved),
        },
    };
    let skipped = branch.draft && branch.pull_request().is_some() && repository.drafts == Drafts::Skip;
    if skipped { Trust::Stopped(Stop::Draft) } else { trust }
}

/// Whether a commit asks to be left alone.
pub fn says_skip(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    SKIP_WORDS.iter().any(|word| message.contains(word))
}

/// What the annotation holds that a member's `/ok-to-test` becomes.
pub fn ok_to_test(sha: &str, login: &str) -> String {
    format!("{sha} by {login}")
}

/// Bound to the whole SHA: a commit of which only the beginning is the same is easily made.
fn approval(branch: &BranchSpec, ok_to_test: Option<&str>) -> Option<ForkApproval> {
    let (sha, by) = ok_to_test?.split_once(' ').unwrap_or((ok_to_test?, ""));
    let by = by.strip_prefix("by ").unwrap_or(by);
    (sha == branch.sha).then(|| ForkApproval { sha: sha.to_owned(), by: by.chars().take(100).collect() })
}

impl Trust {
    pub fn stop(&self) -> Option<Stop> {
        match self {
            Self::Stopped(stop) => Some(*stop),
            Self::Own | Self::Allowed | Self::Approved(_) => None,
        }
    }

    pub fn reason(&self) -> Reason {
        match self {
            Self::Own => Reason::Trusted,
            Self::Allowed => Reason::Allowed,
            Self::Approved(_) => Reason::ForkApproved,
            Self::Stopped(stop) => stop.reason(),
        }
    }
}

impl Stop {
    /// As it stands behind the SHA in `terrakojo.io/last-evaluation`.
    pub fn word(self) -> &'static str {
        match self {
            Self::NotApproved => "untrusted",
            Self::Denied => "denied",
            Self::Draft => "draft",
            Self::SkipCi => "skip-ci",
        }
    }

    pub fn reason(self) -> Reason {
        match self {
            Self::NotApproved => Reason::ForkNotApproved,
            Self::Denied => Reason::ForksDenied,
            Self::Draft => Reason::DraftSkipped,
            Self::SkipCi => Reason::SkipCi,
        }
    }

    pub fn state(self) -> ResultState {
        match self {
            Self::NotApproved => ResultState::ActionRequired,
            Self::Denied => ResultState::Denied,
            Self::Draft | Self::SkipCi => ResultState::Skipped,
        }
    }

    /// Why nothing runs, and what would change that.
    pub fn message(self, branch: &BranchSpec) -> String {
        let fork = branch.head_repository.as_deref().unwrap_or_default();
        match self {
            Self::NotApproved => format!(
                "commit {} comes from {fork}: somebody with write permission may allow it with the comment \
                 `/ok-to-test {}`",
                branch.sha, branch.sha
            ),
            Self::Denied => {
                format!(
                    "commit {} comes from {fork}, and pull requests from forks do not run here",
                    branch.sha
                )
            }
            Self::Draft => {
                "drafts do not run here: it runs when the pull request is ready for review".to_owned()
            }
            Self::SkipCi => format!("the message of commit {} says [skip ci]", branch.sha),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SHA: &str = "0123456789abcdef0123456789abcdef01234567";

    fn check(repository: &str, branch: &str, annotation: Option<&str>, expect: Reason) {
        let mut spec = json!({"owner": "acme", "name": "infra", "githubSecretRef": {"name": "s"}});
        crate::testing::merge(&mut spec, &serde_saphyr::from_str(repository).unwrap());
        let mut of_branch = json!({"owner": "acme", "repository": "infra", "name": "f", "sha": SHA});
        crate::testing::merge(&mut of_branch, &serde_saphyr::from_str(branch).unwrap());
        let repository: RepositorySpec = serde_json::from_value(spec).unwrap();
        let branch: BranchSpec = serde_json::from_value(of_branch).unwrap();
        assert_eq!(of(&repository, &branch, annotation).reason(), expect, "{branch:?} {annotation:?}");
    }

    #[test]
    fn a_fork_runs_only_where_forks_may_or_this_very_commit_was_approved() {
        let fork = "{headRepository: mallory/infra, prNumber: 5}";
        let ok = format!("{SHA} by alice");
        check("{}", "{}", None, Reason::Trusted);
        check("{}", fork, None, Reason::ForkNotApproved);
        check("{}", fork, Some(&ok), Reason::ForkApproved);
        check("{}", fork, Some(SHA), Reason::ForkApproved);
        check("{}", fork, Some(&SHA[..39]), Reason::ForkNotApproved);
        check("{}", fork, Some(&format!("{} by alice", "f".repeat(40))), Reason::ForkNotApproved);
        check("{}", fork, Some(""), Reason::ForkNotApproved);
        check("{forks: deny}", fork, Some(&ok), Reason::ForksDenied);
        check("{forks: allow}", fork, None, Reason::Allowed);
    }

    #[test]
    fn a_draft_waits_only_where_drafts_are_skipped_and_does_not_hide_an_untrusted_fork() {
        let draft = "{prNumber: 5, draft: true}";
        check("{}", draft, None, Reason::Trusted);
        check("{drafts: skip}", draft, None, Reason::DraftSkipped);
        check("{drafts: skip}", "{prNumber: 5}", None, Reason::Trusted);
        let fork = "{prNumber: 5, draft: true, headRepository: mallory/infra}";
        check("{drafts: skip}", fork, None, Reason::ForkNotApproved);
    }

    #[test]
    fn skip_ci_counts_anywhere_in_the_message() {
        assert!(says_skip("fix\n\nlong text [Skip CI] more"));
        assert!(!says_skip("skip ci"));
    }
}
