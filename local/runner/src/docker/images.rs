//! Does an engine have an image, and how does it get one?

use http::Method;
use serde::Deserialize;

use super::Engine;
use super::http::{Ask, Error};
use crate::oci::{Reference, RunConfig};

/// The longest line of a pull's progress.
const MAX_LINE_BYTES: usize = 1 << 20;

/// An image that an engine has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineImage {
    /// How the engine knows these very files, whatever happens to names.
    pub id: String,
    /// Its repository and digest, for the status; where no registry ever saw it, its own digest.
    pub shown: String,
    pub config: RunConfig,
    pub bytes: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Inspected {
    id: String,
    #[serde(default)]
    repo_digests: Option<Vec<String>>,
    #[serde(default)]
    config: Option<RunConfig>,
    #[serde(default)]
    size: u64,
}

/// One line of a pull.
#[derive(Debug, Deserialize)]
struct Progress {
    #[serde(default)]
    error: Option<String>,
}

impl Engine {
    /// The image of that name, if it is here.
    pub(crate) async fn image(&self, name: &Reference) -> Result<Option<EngineImage>, Error> {
        let path = format!("/images/{}/json", written(name));
        let found: Inspected = match self.client.json(Ask::new(Method::GET, &path)).await {
            Err(error) if error.is_absent() => return Ok(None),
            found => found?,
        };
        let digests = found.repo_digests.unwrap_or_default();
        // One image may come from several registries: what was asked for is shown, if it is among them.
        let of_name = digests.iter().find(|digest| digest.starts_with(&format!("{}@", name.repository)));
        let shown = of_name.or(digests.first()).unwrap_or(&found.id).clone();
        let config = found.config.unwrap_or_default();
        Ok(Some(EngineImage { id: found.id, shown, config, bytes: found.size }))
    }

    /// Fetches an image. What a registry refuses is said within an answer that begins well.
    pub(crate) async fn pull(&self, name: &Reference) -> Result<(), String> {
        let digest = name.digest.as_ref().map(ToString::to_string);
        // Without a tag, all of them would be fetched.
        let tag = digest.or_else(|| name.tag.clone()).unwrap_or_default();
        let query = [("fromImage", name.repository.as_str()), ("tag", tag.as_str())];
        let ask = Ask::new(Method::POST, "/images/create").query(&query);
        let mut answer = self.client.stream(ask).await.map_err(|error| error.to_string())?;
        let mut line = Vec::new();
        while let Some(piece) = answer.next().await.map_err(|error| error.to_string())? {
            for part in piece.split_inclusive(|byte| *byte == b'\n') {
                line.extend_from_slice(part);
                if line.len() > MAX_LINE_BYTES {
                    return Err("the engine's report of the pull has a line that is too long".to_owned());
                }
                if line.ends_with(b"\n") {
                    heard(&line)?;
                    line.clear();
                }
            }
        }
        heard(&line)
    }
}

/// The name in full: engines take their own defaults for what is left out, and they differ.
fn written(name: &Reference) -> String {
    match (&name.digest, &name.tag) {
        (Some(digest), _) => format!("{}@{digest}", name.repository),
        (None, Some(tag)) => format!("{}:{tag}", name.repository),
        (None, None) => name.repository.clone(),
    }
}

/// A line that is no progress is no reason to give up.
fn heard(line: &[u8]) -> Result<(), String> {
    match serde_json::from_slice::<Progress>(line) {
        Ok(Progress { error: Some(error) }) => Err(error),
        Ok(Progress { error: None }) | Err(_) => Ok(()),
    }
}
