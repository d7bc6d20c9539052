//! Is there such a check run already (I7)? One look per commit, not one per Workflow.
//!
//! ```text
//!  unread ──list once──▶ known ──a create of ours answered──▶ known, with it
//!     ▲                    │
//!     └── a create's fate is not known, or an id is gone ─────┘
//! ```
//! Only this App makes check runs that it finds again, and only through here, so what was listed once stays true as long
//! as every create of ours is heard of. Creates for one commit do not wait for each other: one that hangs holds up nobody.

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

/// A count of uses, and each commit with the count at which it was used last.
type Kept = (u64, BTreeMap<String, (u64, Arc<OfCommit>)>);

/// Check runs of ours that are known, by commit; those used least lately go first.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    commits: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct OfCommit {
    /// Held while GitHub is asked for the list, so that all who need it wait for one.
    listing: tokio::sync::Mutex<()>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// What was answered to us. A list that was asked for before may lack it.
    told: ByExternalId,
    /// `None`: not read, or no longer believed.
    listed: Option<ByExternalId>,
}

impl Known {
    /// `None`: nobody can say.
    fn find(&self, key: &str) -> Option<Option<CheckRunRef>> {
        let told = self.told.get(key).copied();
        told.map(Some).or_else(|| self.listed.as_ref().map(|listed| listed.get(key).copied()))
    }

    fn doubt(&mut self) {
        self.listed = None;
    }
}

impl Runs {
    fn of(&self, sha: &str) -> Arc<OfCommit> {
        let mut commits = lock(&self.commits);
        let (uses, by_sha) = &mut *commits;
        *uses += 1;
        let (used, of_commit) = by_sha.entry(sha.to_owned()).or_default();
        *used = *uses;
        let of_commit = Arc::clone(of_commit);
        if by_sha.len() > MAX_COMMITS {
            let oldest = by_sha.iter().min_by_key(|(_, (used, _))| *used).map(|(sha, _)| sha.clone());
            oldest.and_then(|sha| by_sha.remove(&sha));
        }
        of_commit
    }
}

/// A create is under way. Unless its answer is heard, what was listed is not believed any longer: also if whoever waits
/// for the answer goes away.
struct UnderWay<'a> {
    of_commit: &'a OfCommit,
    is_heard: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.is_heard {
            lock(&self.of_commit.known).doubt();
        }
    }
}

impl Client {
    /// The check run with this key on this commit, if there is one.
    ///
    /// # Errors
    /// When GitHub did not say.
    pub async fn find_check_run(&self, sha: &str, external_id: &str) -> Result<Option<CheckRunRef>, Error> {
        self.look(&self.shared.runs.of(sha), sha, external_id).await
    }

    /// Makes a check run unless one with its key is there; then that one stays as it is.
    ///
    /// # Errors
    /// When GitHub did not say whether there is one, or did not take the new one.
    pub async fn ensure_check_run(&self, run: &CheckRun) -> Result<CheckRunRef, Error> {
        let of_commit = self.shared.runs.of(&run.sha);
        if let Some(found) = self.look(&of_commit, &run.sha, &run.external_id).await? {
            return Ok(found);
        }
        let mut under_way = UnderWay { of_commit: &of_commit, is_heard: false };
        let made = self.post_check_run(run).await;
        under_way.is_heard = made.as_ref().map_or_else(|error| error.fate() == Fate::NotCarriedOut, |_| true);
        if let Ok(made) = &made {
            lock(&of_commit.known).told.insert(run.external_id.clone(), *made);
        }
        made
    }

    /// Changes a check run. Sending the same twice is harmless.
    ///
    /// # Errors
    /// As [`Client::repository`].
    pub async fn update_check_run(&self, id: i64, run: &CheckRun) -> Result<CheckRunRef, Error> {
        let updated = self.patch_check_run(id, run).await;
        let of_commit = self.shared.runs.of(&run.sha);
        let mut known = lock(&of_commit.known);
        match &updated {
            Ok(now) => {
                known.told.insert(run.external_id.clone(), *now);
            }
            // Whether it is there, or how it stands, has to be seen again.
            Err(error) if error.fate() == Fate::Unknown || matches!(error, Error::NotFound { .. }) => {
                known.told.remove(&run.external_id);
                known.doubt();
            }
            Err(_) => {}
        }
        updated
    }

    async fn look(&self, of_commit: &OfCommit, sha: &str, key: &str) -> Result<Option<CheckRunRef>, Error> {
        if let Some(found) = lock(&of_commit.known).find(key) {
            return Ok(found);
        }
        let _one_at_a_time = of_commit.listing.lock().await;
        if let Some(found) = lock(&of_commit.known).find(key) {
            return Ok(found);
        }
        let listed = self.for_reports().list_check_runs(sha).await?;
        let mut known = lock(&of_commit.known);
        known.listed = Some(listed);
        Ok(known.find(key).flatten())
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
