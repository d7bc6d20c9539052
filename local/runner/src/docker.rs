//! What can a Docker Engine, or a Podman that speaks like one, do for a pod?
//!
//! The other way to run a container: the engine has the image's files, the namespaces and the limits; the pod's life, its
//! volumes, its logs and its status stay where they are. What is here:
//!
//! ```text
//! socket ─▶ which engine          images     ─▶ has it an image, and how does it get one
//! http   ─▶ how it is spoken to   containers ─▶ what is made of a plan; started, signalled, removed
//! output ─▶ what it prints        follow     ─▶ brought to its end, whatever happens to the connection
//! ```
//! A container is named after the pod's UID, the container and how often it was restarted: a second one of that name
//! cannot be made, so nothing runs twice (I1).

mod containers;
mod follow;
mod http;
mod images;
mod leftovers;
mod output;
mod socket;

use std::path::Path;
use std::sync::Arc;

use ::http::Method;
use serde::Deserialize;

pub(crate) use self::containers::{Found, Mounted, Order, Stage, container_name};
pub(crate) use self::follow::{Handle, follow};
pub(crate) use self::http::Error;
use self::http::{Ask, Client};
pub use self::images::EngineImage;
pub(crate) use self::leftovers::{Leftovers, node_number};
pub use self::socket::{NoEngine, Surroundings};

/// The versions of Docker's API that are understood, as `1.N`: what is used here has been the same in all of them. The
/// oldest is Podman 4's and Docker 20.10's; the newest is what was read when this was written.
const OLDEST: u32 = 41;
const NEWEST: u32 = 47;

const DOCKER: &str = "docker";
const PODMAN: &str = "podman";

/// An engine that answers. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Engine {
    client: Client,
    kind: &'static str,
    version: Arc<str>,
    /// Whose containers are ours: several may share an engine.
    node: Arc<str>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Version {
    version: String,
    api_version: String,
    #[serde(rename = "MinAPIVersion", default)]
    least: Option<String>,
    #[serde(default)]
    components: Vec<Component>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Component {
    name: String,
}

impl Engine {
    /// The first engine that answers.
    pub async fn find(around: &Surroundings) -> Result<Self, NoEngine> {
        let mut tried = Vec::new();
        for path in around.sockets()? {
            match Self::at(&path).await? {
                Ok(engine) => return Ok(engine),
                Err(error) => tried.push(socket::tried(&path, &error)),
            }
        }
        Err(NoEngine::Nowhere { tried })
    }

    async fn at(path: &Path) -> Result<Result<Self, Error>, NoEngine> {
        let client = Client::new(path);
        let told: Version = match client.json(Ask::new(Method::GET, "/version")).await {
            Ok(told) => told,
            Err(error) => return Ok(Err(error)),
        };
        let least = told.least.unwrap_or_else(|| told.api_version.clone());
        let Some(spoken) = common(&least, &told.api_version) else {
            return Err(NoEngine::Version {
                socket: path.display().to_string(),
                least,
                most: told.api_version,
                ours: format!("one of 1.{OLDEST} to 1.{NEWEST}"),
            });
        };
        let podman = told.components.iter().any(|component| component.name.starts_with("Podman"));
        Ok(Ok(Self {
            client: client.speaking(&spoken),
            kind: if podman { PODMAN } else { DOCKER },
            version: told.version.into(),
            node: "".into(),
        }))
    }

    /// The same, with containers of its own.
    pub(crate) fn of_node(self, node: &str) -> Self {
        Self { node: node.into(), ..self }
    }

    /// `docker` or `podman`.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Podman leaves lines out of what it tells a follower of a container that talks fast (seen with 4.3: 22,000 of
    /// 60,000), and tells all of them afterwards.
    pub(crate) fn skips_lines(&self) -> bool {
        self.kind == PODMAN
    }

    pub fn version(&self) -> &str {
        &self.version
    }

    pub fn socket(&self) -> &Path {
        self.client.socket()
    }
}

/// The newest version that both sides know.
fn common(least: &str, most: &str) -> Option<String> {
    let minor = |version: &str| version.strip_prefix("1.")?.parse::<u32>().ok();
    let (least, most) = (minor(least)?, minor(most)?);
    let spoken = most.min(NEWEST);
    (spoken >= OLDEST.max(least)).then(|| format!("1.{spoken}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_that_both_know_is_spoken() {
        for (least, most, spoken) in [
            ("1.24", "1.41", Some("1.41")),
            ("1.12", "1.45", Some("1.45")),
            ("1.44", "1.52", Some("1.47")),
            ("1.48", "1.52", None),
            ("1.12", "1.40", None),
            ("2.0", "2.1", None),
        ] {
            assert_eq!(common(least, most).as_deref(), spoken, "{least} to {most}");
        }
    }
}
