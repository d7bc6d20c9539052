//! The API server of a control plane on this machine: its storage, its socket, and who may speak to it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use pawl_apiserver::{Options, PodLogs, RealEnv, Server};
use pawl_machines::cluster::service_account::RootCertificates;
use tokio::net::TcpListener;

use super::identity::Identity;
use super::kubeconfig;
use crate::ports::Guarded;
use crate::stop::Stop;

/// A server with its storage open and its socket bound, not serving yet.
#[derive(Debug)]
pub struct Plane {
    server: Server,
    listener: TcpListener,
    identity: Identity,
    pub(crate) address: SocketAddr,
    /// Where everything is kept.
    pub(crate) directory: PathBuf,
    /// The file with which people and programs find it.
    pub kubeconfig: PathBuf,
}

impl Plane {
    /// Opens the storage, with all of our kinds in it, and binds the socket.
    ///
    /// # Errors
    /// When the directory or the address is no use.
    pub async fn open(
        data_dir: &Path,
        listen: SocketAddr,
        write_kubeconfig: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        let directory = prepare(data_dir)?;
        // Side by side with what is read from the disk.
        let definitions = tokio::task::spawn_blocking(definitions);
        let server = Server::open(&directory.join("store"), Arc::new(RealEnv), Options::default())
            .with_context(|| format!("--data-dir {}", data_dir.display()))?;
        server
            .install_crds(definitions.await??)
            .map_err(|status| anyhow::anyhow!("the first definitions: {status:?}"))?;
        let listener =
            TcpListener::bind(listen).await.with_context(|| format!("--listen {listen}: cannot be bound"))?;
        let address = listener.local_addr()?;
        let identity = Identity::load_or_make(&directory, address.ip())?;
        let kubeconfig = write_kubeconfig.unwrap_or_else(|| data_dir.join("kubeconfig"));
        kubeconfig::write(&kubeconfig, address, &identity)?;
        let server = server.with_access(identity.access()?);
        Ok(Self { server, listener, identity, address, directory, kubeconfig })
    }

    /// The same, telling of clients' definitions so many seconds after they were made.
    pub(crate) fn telling_schemas_after(self, seconds: u32) -> Self {
        let after = jiff::SignedDuration::from_secs(seconds.into());
        Self { server: self.server.telling_schemas_after(after), ..self }
    }

    /// The same, with what containers wrote.
    pub(crate) fn with_logs(self, logs: Arc<dyn PodLogs>) -> Self {
        Self { server: self.server.with_logs(logs), ..self }
    }

    /// A client that needs no socket.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.server.service(), "default")
    }

    /// A client on which rights are checked, with the owner's token.
    pub(crate) fn guarded(&self) -> Guarded<'_> {
        let client = kube::Client::new(self.server.guarded_service(), "default");
        Guarded { client, token: self.identity.token() }
    }

    /// What Pods trust.
    pub fn root_certificates(&self) -> RootCertificates {
        RootCertificates { certificate: self.identity.ca_pem().trim().to_owned() }
    }

    /// Serves until it is to stop.
    ///
    /// # Errors
    /// When the socket or TLS is no use.
    pub async fn serve(self, stopping: Stop) -> anyhow::Result<()> {
        let Self { server, listener, identity, .. } = self;
        pawl_apiserver::serve(listener, server, Some(identity.tls()?), stopping.wait())
            .await
            .context("the API server")
    }
}

/// The kinds that every control plane of ours serves beside the built-in ones.
fn definitions() -> serde_json::Result<Vec<serde_json::Value>> {
    let ours = pawl_api::crds::all().into_iter().map(serde_json::to_value);
    ours.chain(pawl_api::tekton::crds::all().into_iter().map(Ok)).collect()
}

/// The data directory, private to its owner: it holds keys and whatever people store.
fn prepare(path: &Path) -> anyhow::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt as _;
    let failed = || format!("--data-dir {}: cannot be made", path.display());
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).with_context(failed)?;
    path.canonicalize().with_context(failed)
}
