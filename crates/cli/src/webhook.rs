//! The webhook server's flags, the same wherever the controllers run.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use pawl_engine::{Engine, SystemClock};
use pawl_integrations::webhook::{Trust, Webhook};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::stop::Stop;

#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Choices {
    /// Take GitHub's webhook deliveries here, on /webhook. Without it, GitHub is polled.
    #[arg(long, value_name = "ADDR")]
    webhook: Option<SocketAddr>,
    /// The file with the webhook's secret.
    #[arg(long, value_name = "FILE", requires = "webhook")]
    webhook_secret_file: Option<PathBuf>,
    /// The webhook's secret itself; better in the environment than on the command line.
    #[arg(long, env = "PAWL_WEBHOOK_SECRET", hide_env_values = true, conflicts_with = "webhook_secret_file")]
    webhook_secret: Option<String>,
    /// Believe anybody who reaches the webhook's port.
    #[arg(long, requires = "webhook")]
    insecure_webhook: bool,
}

/// A server that was asked for.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) ended: JoinHandle<Result<(), pawl_integrations::webhook::Error>>,
}

impl Choices {
    /// Starts the server, if one is wanted.
    ///
    /// # Errors
    /// When the address cannot be bound, or there is no secret and it was not said that none is meant.
    pub(crate) async fn start(
        &self,
        engine: &Engine,
        client: &kube::Client,
        stopping: Stop,
    ) -> anyhow::Result<Option<Served>> {
        let Some(address) = self.webhook else { return Ok(None) };
        let trust = Trust::from_secret(self.secret()?.as_deref(), self.insecure_webhook)
            .context("--webhook needs --webhook-secret-file or PAWL_WEBHOOK_SECRET")?;
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("--webhook {address}: cannot be bound"))?;
        let address = listener.local_addr()?;
        let webhook = Webhook::new(engine.clone(), client.clone(), Arc::new(SystemClock), trust);
        let ended = tokio::spawn(async move { webhook.serve(listener, stopping.wait()).await });
        Ok(Some(Served { address, ended }))
    }

    fn secret(&self) -> anyhow::Result<Option<Vec<u8>>> {
        match &self.webhook_secret_file {
            Some(file) => std::fs::read(file)
                .map(Some)
                .with_context(|| format!("--webhook-secret-file {}: cannot be read", file.display())),
            None => Ok(self.webhook_secret.as_ref().map(|secret| secret.clone().into_bytes())),
        }
    }
}
