//! What people do, said as JSON: so that somebody at a shell can push and comment in the demo.
//!
//! ```sh
//! curl -d '{"do": "push", "repository": "acme/infra", "branch": "main", "message": "more", "put": {"a/x.tf": "1"}}' \
//!     http://127.0.0.1:PORT/people
//! ```

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Change, Fake, Repo, Role};

/// One thing that somebody does.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Deed {
    /// Makes a repository.
    Create { repository: String },
    /// Commits on a branch and pushes.
    Push {
        repository: String,
        branch: String,
        #[serde(default = "somebody")]
        author: String,
        #[serde(default = "a_change")]
        message: String,
        /// Files to write.
        #[serde(default)]
        put: BTreeMap<String, String>,
        #[serde(default)]
        remove: Vec<String>,
    },
    /// Makes `owner`'s fork.
    Fork { repository: String, owner: String },
    /// Opens a pull request, from the repository itself or from a fork.
    Open {
        repository: String,
        from: Option<String>,
        head: String,
        #[serde(default = "the_default_branch")]
        base: String,
        #[serde(default = "somebody")]
        author: String,
        #[serde(default)]
        draft: bool,
    },
    Close { repository: String, number: i64 },
    Comment {
        repository: String,
        number: i64,
        #[serde(default = "somebody")]
        author: String,
        body: String,
    },
    /// Lets somebody do something.
    Permit { repository: String, login: String, role: Role },
    /// Presses "Re-run" on a check run.
    Rerun {
        repository: String,
        check_run: i64,
        #[serde(default = "somebody")]
        author: String,
    },
}

fn somebody() -> String {
    "alice".to_owned()
}

fn a_change() -> String {
    "A change".to_owned()
}

fn the_default_branch() -> String {
    "main".to_owned()
}

/// A deed that cannot be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undone {
    #[error("there is no repository {0}")]
    NoRepository(String),
    #[error("there is a repository {0} already")]
    Exists(String),
    #[error("there is no branch {branch} in {repository}")]
    NoBranch { repository: String, branch: String },
}

impl Fake {
    /// Does it, and says what came of it.
    ///
    /// # Errors
    /// When what it is about is not there.
    pub fn act(&self, deed: &Deed) -> Result<Value, Undone> {
        let of = |name: &str| self.repository(name).ok_or_else(|| Undone::NoRepository(name.to_owned()));
        Ok(match deed {
            Deed::Create { repository } if self.repository(repository).is_some() => {
                return Err(Undone::Exists(repository.clone()));
            }
            Deed::Create { repository } => json!({"repository": self.create(repository).full_name()}),
            Deed::Push { repository, branch, author, message, put, remove } => {
                let change = Change::new(message).by(author);
                let change = put.iter().fold(change, |change, (path, content)| change.put(path, content));
                let change = remove.iter().fold(change, |change, path| change.remove(path));
                json!({"sha": of(repository)?.push(branch, &change)})
            }
            Deed::Fork { repository, owner } => json!({"repository": of(repository)?.fork(owner).full_name()}),
            Deed::Open { repository, from, head, base, author, draft } => {
                let (home, from) = (of(repository)?, of(from.as_ref().unwrap_or(repository))?);
                for (place, branch) in [(&from, head), (&home, base)] {
                    has_branch(place, branch)?;
                }
                json!({"number": home.open_pull(&from, head, base, author, *draft)})
            }
            Deed::Close { repository, number } => {
                of(repository)?.close_pull(*number);
                json!({"number": number})
            }
            Deed::Comment { repository, number, author, body } => {
                json!({"comment": of(repository)?.comment(*number, author, body)})
            }
            Deed::Permit { repository, login, role } => {
                of(repository)?.permit(login, *role);
                json!({"login": login})
            }
            Deed::Rerun { repository, check_run, author } => {
                of(repository)?.rerequest(*check_run, author);
                json!({"checkRun": check_run})
            }
        })
    }
}

fn has_branch(place: &Repo, branch: &str) -> Result<(), Undone> {
    let missing = || Undone::NoBranch { repository: place.full_name(), branch: branch.to_owned() };
    place.head(branch).map(drop).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn act(fake: &Fake, deed: Value) -> Result<Value, Undone> {
        fake.act(&serde_json::from_value(deed).expect("a deed"))
    }

    #[test]
    fn a_fork_s_pull_request_is_made_by_words_alone() {
        let fake = Fake::new(Arc::new(pawl_engine::SystemClock));
        let push = |name: &str, by: &str| {
            json!({"do": "push", "repository": name, "branch": "main", "author": by, "put": {"a/x.tf": by}})
        };
        act(&fake, json!({"do": "create", "repository": "acme/infra"})).expect("made");
        act(&fake, push("acme/infra", "alice")).expect("pushed");
        act(&fake, json!({"do": "fork", "repository": "acme/infra", "owner": "mallory"})).expect("forked");
        act(&fake, push("mallory/infra", "mallory")).expect("pushed");
        let open = json!({"do": "open", "repository": "acme/infra", "from": "mallory/infra", "head": "main"});
        assert_eq!(act(&fake, open), Ok(json!({"number": 1})));
        let comment = json!({"do": "comment", "repository": "acme/infra", "number": 1, "body": "/help"});
        act(&fake, comment).expect("said");
        let events: Vec<&str> = fake.take_deliveries().iter().map(|delivery| delivery.event).collect();
        assert_eq!(events, ["push", "pull_request", "issue_comment"]);
    }

    #[test]
    fn what_cannot_be_done_says_why() {
        let fake = Fake::new(Arc::new(pawl_engine::SystemClock));
        fake.create("acme/infra");
        let open = json!({"do": "open", "repository": "acme/infra", "head": "x"});
        assert_eq!(act(&fake, open).expect_err("no branch").to_string(), "there is no branch x in acme/infra");
        let close = json!({"do": "close", "repository": "acme/other", "number": 1});
        assert_eq!(act(&fake, close).expect_err("no repository").to_string(), "there is no repository acme/other");
        assert!(serde_json::from_value::<Deed>(json!({"do": "push", "repo": "acme/infra"})).is_err());
    }
}
