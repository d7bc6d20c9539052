//! The port to Tekton bundles: images whose layers are pipelines and tasks.
//!
//! ```text
//! the images directory ──has that name──▶ read there
//!        │ has not
//!        ▼
//! what was fetched ([`Fetched`]) ──has that digest──▶ read there          a tag says nothing of what is behind it:
//!        │ has not, or it is a tag                                        it is asked for each time
//!        ▼
//! its registry ──checked against its digest──▶ kept, and read
//! ```

mod pull;

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::BoxFuture;
use pawl_engine::Port;
use pawl_integrations::transport::Transport;
use pawl_machines::cluster::tekton::origin::BundleEntry;
use pawl_machines::failure::{Category, Failure};
use pawl_runner::oci::{Fetched, Reference, bundle};
use serde_json::Value;

use self::pull::Registries;

/// All of one answer: as long as Tekton waits for its resolver.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);

/// Reads bundles from the OCI layouts and archives in a directory, and what is not there from registries.
#[derive(Clone, Debug)]
pub(crate) struct Bundles {
    images: PathBuf,
    registries: Registries,
}

/// Why there is no such object.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{0}")]
    Bundle(#[from] bundle::Error),
    #[error("{0}")]
    Pull(#[from] pull::Error),
    #[error("invalid runtime object: {0}")]
    Object(String),
    #[error("{0}")]
    Name(String),
    #[error("no answer within {} s", ANSWER_TIMEOUT.as_secs())]
    TooLate,
}

/// The `config.json` in the directory that Docker's own variable names.
pub(crate) fn docker_config() -> Option<PathBuf> {
    let directory = std::env::var_os("DOCKER_CONFIG").filter(|directory| !directory.is_empty())?;
    Some(Path::new(&directory).join("config.json"))
}

impl Bundles {
    /// `images` is looked through first; what is fetched is kept in `fetched`; `logins` is Docker's `config.json`.
    pub(crate) fn new(
        images: PathBuf,
        fetched: PathBuf,
        transport: Transport,
        logins: Option<PathBuf>,
    ) -> Self {
        let registries = Registries { transport, logins, fetched: Fetched::new(fetched) };
        Self { images, registries }
    }

    async fn read(&self, entry: &BundleEntry) -> Result<Value, Error> {
        let wanted: Reference = entry
            .bundle
            .parse()
            .map_err(|error: pawl_runner::oci::NoReference| Error::Name(error.to_string()))?;
        let here = {
            let (images, wanted, entry) = (self.images.clone(), wanted.clone(), entry.clone());
            blocking(move || bundle::read(&images, &wanted, &entry.kind, &entry.name)).await??
        };
        let bytes = match here {
            Some(bytes) => bytes,
            None => self.registries.pull(&wanted, &entry.kind, &entry.name).await?,
        };
        let kind = entry.kind.clone();
        blocking(move || parsed(bytes, &kind)).await?
    }
}

impl Port<BundleEntry> for Bundles {
    fn call<'a>(&'a self, entry: &'a BundleEntry) -> BoxFuture<'a, Result<Value, Failure>> {
        Box::pin(async move {
            let read = tokio::time::timeout(ANSWER_TIMEOUT, self.read(entry)).await;
            read.unwrap_or(Err(Error::TooLate)).map_err(|error| error.failure(entry))
        })
    }
}

impl Error {
    fn failure(&self, entry: &BundleEntry) -> Failure {
        let passes = match self {
            Self::Pull(error) => error.passes(),
            Self::TooLate => Some(None),
            Self::Bundle(_) | Self::Object(_) | Self::Name(_) => None,
        };
        Failure {
            attempt: entry.to_string(),
            category: if passes.is_some() { Category::Transient } else { Category::Permanent },
            reason: "NoBundle".to_owned(),
            message: self.to_string(),
            retry_after: passes.flatten(),
        }
    }
}

/// The object in a bundle's file.
fn parsed(bytes: Vec<u8>, wanted: &str) -> Result<Value, Error> {
    let text = String::from_utf8(bytes).map_err(|_| Error::Object("not UTF-8".to_owned()))?;
    let object: Value = serde_saphyr::from_str(&text).map_err(|error| Error::Object(error.to_string()))?;
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    if !kind.eq_ignore_ascii_case(wanted) {
        return Err(Error::Object(format!("a {wanted} was expected, {kind:?} is there")));
    }
    Ok(object)
}

/// Reading, unpacking and parsing take their time, which is not the loop's.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Object(error.to_string()))
}
