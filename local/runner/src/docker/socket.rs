//! Which engine is meant?
//!
//! As Docker's own command line finds it: `DOCKER_HOST`, else the usual socket; then Podman's, of the machine and of the
//! user.

use std::path::PathBuf;

use super::http::Error;

/// Where Docker listens unless told otherwise.
const DOCKER: &str = "/var/run/docker.sock";
/// Where Podman listens for the whole machine, and for one user below `XDG_RUNTIME_DIR`.
const PODMAN: &str = "/run/podman/podman.sock";
const PODMAN_OF_USER: &str = "podman/podman.sock";
const UNIX: &str = "unix://";

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
pub enum NoEngine {
    #[error("DOCKER_HOST is {0}, and only unix:// is spoken here")]
    NotUnix(String),
    #[error("no engine answers: {}", tried.join("; "))]
    Nowhere { tried: Vec<String> },
    #[error("the engine at {socket} speaks versions {least} to {most} of Docker's API; {ours} is needed")]
    Version { socket: String, least: String, most: String, ours: String },
}

/// What the environment says about engines.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// `DOCKER_HOST`.
    pub docker_host: Option<String>,
    /// `XDG_RUNTIME_DIR`.
    pub runtime_dir: Option<PathBuf>,
}

impl Surroundings {
    pub fn here() -> Self {
        Self {
            docker_host: std::env::var("DOCKER_HOST").ok(),
            runtime_dir: std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from),
        }
    }

    /// The sockets to try, in order. Whoever names one means no other.
    pub(crate) fn sockets(&self) -> Result<Vec<PathBuf>, NoEngine> {
        if let Some(host) = self.docker_host.as_ref().filter(|host| !host.is_empty()) {
            let path = host.strip_prefix(UNIX).filter(|path| path.starts_with('/'));
            return Ok(vec![path.ok_or_else(|| NoEngine::NotUnix(host.clone()))?.into()]);
        }
        let of_user = self.runtime_dir.as_ref().map(|directory| directory.join(PODMAN_OF_USER));
        Ok([DOCKER, PODMAN].into_iter().map(PathBuf::from).chain(of_user).collect())
    }
}

/// What became of one socket.
pub(crate) fn tried(socket: &std::path::Path, error: &Error) -> String {
    // A connection that is refused names the socket already.
    let why = if let Error::Connect { source, .. } = error { source.to_string() } else { error.to_string() };
    format!("{}: {why}", socket.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sockets(host: Option<&str>, runtime_dir: Option<&str>) -> Result<Vec<PathBuf>, String> {
        let around = Surroundings {
            docker_host: host.map(str::to_owned),
            runtime_dir: runtime_dir.map(PathBuf::from),
        };
        around.sockets().map_err(|error| error.to_string())
    }

    #[test]
    fn whoever_names_a_socket_means_no_other() {
        assert_eq!(sockets(Some("unix:///x.sock"), Some("/run/user/7")).unwrap(), [PathBuf::from("/x.sock")]);
        let usual = ["/var/run/docker.sock", "/run/podman/podman.sock"].map(PathBuf::from);
        assert_eq!(sockets(None, None).unwrap(), usual);
        assert_eq!(sockets(Some(""), None).unwrap(), usual);
        let of_user = PathBuf::from("/run/user/7/podman/podman.sock");
        assert_eq!(sockets(None, Some("/run/user/7")).unwrap().last(), Some(&of_user));
    }

    #[test]
    fn what_is_no_socket_of_this_machine_is_refused_by_name() {
        for host in ["tcp://127.0.0.1:2375", "ssh://x", "unix://relative"] {
            let error = sockets(Some(host), None).unwrap_err();
            assert!(error.contains(host) && error.contains("unix://"), "{error}");
        }
    }
}
