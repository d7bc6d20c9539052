//! Is there such a check run already (I7)? One look per commit, not one per Workflow.
//!
//! ```text
//!  unread ──list once──▶ known ──a create of ours answered──▶ known, with it
//!     ▲                    │
//!     └── a create's fate is not known, or an id is gone ─────┘
//! ```
//! Only this App makes check runs that it finds again, and only through here, so what was listed once stays true as long
//! as every create of ours is heard of.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use pawl_machines::git::github::{CheckRun, CheckRunRef};

use super::auth::Credentials;
use super::budget::Endpoint;
use super::client::{Client, PER_PAGE, lock};
use super::error::{Error, Fate};
use super::wire;

/// Commits whose check runs are remembered, per Repository: those at work at a time are some tens.
const MAX_COMMITS: usize = 256;

type ByExternalId = BTreeMap<String, CheckRunRef>;
/// `None`: not read, or no longer believed. Held while it is read, so that all who need it wait for one list.
type OfCommit = Arc<tokio::sync::Mutex<Option<ByExternalId>>>;

/// Check runs of ours that are known, by commit.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    commits: Mutex<Remembered>,
}

#[derive(Debug, Default)]
struct Remembered {
    by_sha: BTreeMap<String, (u64, OfCommit)>,
    uses: u64,
}

impl Runs {
    fn of(&self, sha: &str) -> OfCommit {
        let mut remembered = lock(&self.commits);
        remembered.uses += 1;
        let now = remembered.uses;
        let (used, of_commit) = remembered.by_sha.entry(sha.to_owned()).or_default();
        *used = now;
        let of_commit = Arc::clone(of_commit);
        if remembered.by_sha.len() > MAX_COMMITS {
            let oldest =
                remembered.by_sha.iter().min_by_key(|(_, (used, _))| *used).map(|(sha, _)| sha.clone());
            oldest.and_then(|sha| remembered.by_sha.remove(&sha));
        }
        of_commit
    }
}

impl Client {
    /// The check run with this key on this commit, if there is one.
    ///
    /// # Errors
    /// When GitHub did not say.
    pub async fn find_check_run(&self, sha: &str, external_id: &str) -> Result<Option<CheckRunRef>, Error> {
        let of_commit = self.shared.runs.of(sha);
        let mut known = of_commit.lock().await;
        Ok(self.known(&mut known, sha).await?.get(external_id).copied())
    }

    /// Makes a check run unless one with its key is there; then that one stays as it is.
    ///
    /// # Errors
    /// When GitHub did not say whether there is one, or did not take the new one.
    pub async fn ensure_check_run(&self, run: &CheckRun) -> Result<CheckRunRef, Error> {
        let of_commit = self.shared.runs.of(&run.sha);
        let mut known = of_commit.lock().await;
        if let Some(found) = self.known(&mut known, &run.sha).await?.get(&run.external_id) {
            return Ok(*found);
        }
        // Until its answer is heard, nothing is known: also if whoever waits for it goes away.
        let mut before = known.take().unwrap_or_default();
        match self.post_check_run(run).await {
            Ok(made) => {
                before.insert(run.external_id.clone(), made);
                *known = Some(before);
                Ok(made)
            }
            Err(error) => {
                *known = match error.fate() {
                    Fate::NotCarriedOut => Some(before),
                    Fate::Unknown => None,
                };
                Err(error)
            }
        }
    }

    /// Changes a check run. Sending the same twice is harmless.
    ///
    /// # Errors
    /// As [`Client::repository`].
    pub async fn update_check_run(&self, id: i64, run: &CheckRun) -> Result<CheckRunRef, Error> {
        let updated = self.patch_check_run(id, run).await;
        let of_commit = self.shared.runs.of(&run.sha);
        let mut known = of_commit.lock().await;
        match &updated {
            Ok(made) => {
                known.as_mut().and_then(|known| known.insert(run.external_id.clone(), *made));
            }
            // Whether it is there, or how it stands, has to be seen again.
            Err(error) if error.fate() == Fate::Unknown || matches!(error, Error::Gone { .. }) => {
                *known = None
            }
            Err(_) => {}
        }
        updated
    }

    async fn known<'a>(
        &self,
        known: &'a mut Option<ByExternalId>,
        sha: &str,
    ) -> Result<&'a ByExternalId, Error> {
        if known.is_none() {
            *known = Some(self.for_reports().list_check_runs(sha).await?);
        }
        Ok(known.get_or_insert_default())
    }

    /// Of several with one key the oldest is the one: later ones were made by mistake.
    async fn list_check_runs(&self, sha: &str) -> Result<ByExternalId, Error> {
        let ours = match self.credentials() {
            Credentials::App(app) => app.id().map_or_else(String::new, |id| format!("&app_id={id}")),
            Credentials::Token(_) => String::new(),
        };
        let path =
            format!("{}?filter=all{ours}&per_page={PER_PAGE}", self.path(&["commits", sha, "check-runs"]));
        let pages: Vec<wire::CheckRuns> = self.all(Endpoint::CheckRuns, path).await?;
        let mut found = ByExternalId::new();
        for run in pages.iter().flat_map(|page| &page.check_runs) {
            let Some(key) = run.external_id.as_ref().filter(|key| !key.is_empty()) else { continue };
            let run = CheckRunRef::from(run);
            found
                .entry(key.clone())
                .and_modify(|old| {
                    if run.id < old.id {
                        *old = run
                    }
                })
                .or_insert(run);
        }
        Ok(found)
    }
}
