//! Where the controllers' ledger is: the flags, the same wherever they run.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use pawl_integrations::mask::Mask;
use pawl_ledger::recorder::{Settings, Writing};
use pawl_ledger::{Place, Recorder};

use crate::audit;

/// The rows that wait for the store, beside the data.
const OUTBOX: &str = "audit.outbox";

#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Choices {
    /// Keep the audit ledger there: postgres://… or the path of a file. Without it, in the data directory.
    #[arg(long, value_name = "URL", env = "PAWL_AUDIT_URL", hide_env_values = true)]
    audit_url: Option<String>,
}

/// A ledger that takes entries until it is closed.
#[derive(Debug)]
pub(crate) struct Kept {
    recorder: Recorder,
    writing: Writing,
}

impl Choices {
    /// Starts keeping. Without a URL and without a directory nothing is kept, and every object says so.
    ///
    /// # Errors
    /// When the URL is none, or the outbox cannot be used. A store that does not answer is waited for.
    pub(crate) fn start(&self, directory: Option<&Path>) -> anyhow::Result<Kept> {
        let place = match (&self.audit_url, directory) {
            (Some(url), _) => Some(Place::parse(url).context("--audit-url")?),
            (None, Some(directory)) => Some(Place::File(directory.join(audit::FILE))),
            (None, None) => None,
        };
        if let Some(directory) = directory {
            let failed = || format!("--data-dir {}: cannot be made", directory.display());
            std::fs::create_dir_all(directory).with_context(failed)?;
        }
        match &place {
            Some(place) => tracing::info!(%place, "keeping the audit ledger"),
            None => tracing::warn!(
                "no --audit-url and no --data-dir: no audit ledger is kept (AuditRecorded=False)"
            ),
        }
        let mask = Mask::default();
        let settings = Settings {
            place,
            outbox: directory.map(|directory| directory.join(OUTBOX)),
            mask: Arc::new(move |text| mask.apply(text)),
        };
        let (recorder, writing) = Recorder::start(settings)?;
        Ok(Kept { recorder, writing })
    }
}

impl Kept {
    pub(crate) fn ledger(&self) -> Arc<dyn pawl_engine::Ledger> {
        Arc::new(self.recorder.clone())
    }

    /// After the controllers have stopped: what they said is stored, or waits in the outbox.
    pub(crate) async fn close(self) {
        self.recorder.close(self.writing).await;
    }
}
