//! Reports a check to GitHub: a check run for a GitHub App, a commit status for a user's token.
//!
//! ```text
//! check run id known ───────────▶ update the check run
//! otherwise, identity is an App ─▶ create it under its external id (I7); update it if it existed in another state
//!            identity is a token ▶ set the commit status
//! ```
//! Both the check of a Workflow ([`workflow`]) and the `pawl` check of a commit are reported by [`Reporter`].

use std::sync::Arc;

use pawl_api::meta::text::head;

use super::github::{
    Account, Ask, Call, CheckRun, CheckRunRef, CheckState, CommitStatus, Identity, Reply, mismatched,
};
use crate::external::{self, Answers};
use crate::failure::Failure;

pub mod text;
pub mod workflow;

/// Reports checks with the credentials of a Repository.
#[derive(Clone, Copy, Debug)]
pub struct Reporter<'a> {
    pub account: &'a Arc<Account>,
    /// The replies that this reconcile has so far.
    pub answers: &'a Answers,
    /// Whether `Queued` is reported before `InProgress`: both are `pending` in a commit status, which is then set once.
    pub starts_queued: bool,
}

/// What became of a report.
#[derive(Clone, Debug, PartialEq)]
pub enum Reported {
    /// GitHub shows the check; the id of its check run, `None` for a commit status.
    Done(Option<i64>),
    /// GitHub shows nothing else than before.
    Unchanged,
    /// These calls must be made before it is known.
    Calls(Vec<external::Call>),
    /// GitHub did not say whether we are an App or a token.
    NoAccess(Failure),
    Failed(Failure),
}

impl Reporter<'_> {
    /// Reports `run` as check run `id`, or creates it where there is no id. A run whose text depends on a call that was
    /// not made yet is that call.
    pub fn report(&self, id: Option<i64>, run: Result<CheckRun, external::Call>) -> Reported {
        let reported = match (id, run) {
            (Some(id), Ok(run)) => self.update(id, &run),
            (Some(_), Err(first)) => Err(Reported::Calls(vec![first])),
            (None, run) => self.create(run),
        };
        reported.unwrap_or_else(|stopped| stopped)
    }

    /// Concludes a check whose id was lost, if GitHub has one that is not concluded.
    pub fn conclude_lost(&self, run: &CheckRun) -> Reported {
        self.find_and_conclude(run).unwrap_or_else(|stopped| stopped)
    }

    fn create(&self, run: Result<CheckRun, external::Call>) -> Result<Reported, Reported> {
        let identity = self.identity();
        let run = match (run, &identity) {
            (Ok(run), _) => run,
            // Both are asked for at once.
            (Err(first), Err(Reported::Calls(access))) => {
                return Err(Reported::Calls([first].into_iter().chain(access.iter().cloned()).collect()));
            }
            (Err(first), Ok(_)) => return Err(Reported::Calls(vec![first])),
            (Err(_), Err(stopped)) => return Err(stopped.clone()),
        };
        if identity? == Identity::Token {
            return self.set_status(&run);
        }
        let call = Call::new(self.account, Ask::CreateCheckRun(run.clone()));
        let Reply::CheckRun(Some(created)) = self.reply(&call)? else {
            return Err(Reported::Failed(mismatched(&call)));
        };
        if created.state == run.state {
            return Ok(Reported::Done(Some(created.id)));
        }
        // It existed already, from before a crash or a lost reply.
        self.update(created.id, &run)
    }

    fn update(&self, id: i64, run: &CheckRun) -> Result<Reported, Reported> {
        self.reply(&Call::new(self.account, Ask::UpdateCheckRun { id, run: run.clone() }))?;
        Ok(Reported::Done(Some(id)))
    }

    fn set_status(&self, run: &CheckRun) -> Result<Reported, Reported> {
        if self.starts_queued && run.state == CheckState::InProgress {
            return Ok(Reported::Unchanged);
        }
        let status = CommitStatus {
            sha: run.sha.clone(),
            context: run.name.clone(),
            state: run.state.into(),
            description: head(&*run.title, text::MAX_DESCRIPTION_CHARS),
            target_url: run.details_url.clone(),
        };
        self.reply(&Call::new(self.account, Ask::SetStatus(status)))?;
        Ok(Reported::Done(None))
    }

    fn find_and_conclude(&self, run: &CheckRun) -> Result<Reported, Reported> {
        if self.identity()? == Identity::Token {
            return self.set_status(run);
        }
        let (sha, external_id) = (run.sha.clone(), run.external_id.clone());
        let call = Call::new(self.account, Ask::FindCheckRun { sha, external_id });
        let Reply::CheckRun(found) = self.reply(&call)? else {
            return Err(Reported::Failed(mismatched(&call)));
        };
        match found {
            None | Some(CheckRunRef { state: CheckState::Completed(_), .. }) => Ok(Reported::Unchanged),
            Some(found) => self.update(found.id, run),
        }
    }

    fn identity(&self) -> Result<Identity, Reported> {
        let call = Call::new(self.account, Ask::Access);
        match self.reply(&call) {
            Ok(Reply::Access(access)) => Ok(access.identity),
            Ok(_) => Err(Reported::NoAccess(mismatched(&call))),
            Err(Reported::Failed(failure)) => Err(Reported::NoAccess(failure)),
            Err(stopped) => Err(stopped),
        }
    }

    fn reply(&self, call: &Call) -> Result<Reply, Reported> {
        match self.answers.get(call) {
            None => Err(Reported::Calls(vec![call.clone().into()])),
            Some(Ok(reply)) => Ok(reply.clone()),
            Some(Err(failure)) => Err(Reported::Failed(failure.clone())),
        }
    }
}
