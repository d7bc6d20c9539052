//! The webhook server's flags, the same wherever the controllers run.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use pawl_engine::{Engine, SystemClock};
use pawl_integrations::alerts::Alerts;
use pawl_integrations::webhook::{Trust, Webhook};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::stop::Stop;

#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Choices {
    /// Take GitHub's webhook deliveries here, on /webhook, and alerts on /api/v1/alerts. Without it, GitHub is polled.
    #[arg(long, value_name = "ADDR")]
    webhook: Option<SocketAddr>,
    /// The file with the webhook's secret.
    #[arg(long, value_name = "FILE", requires = "webhook")]
    webhook_secret_file: Option<PathBuf>,
    /// The webhook's secret itself; better in the environment than on the command line.
    #[arg(long, env = "PAWL_WEBHOOK_SECRET", hide_env_values = true, conflicts_with = "webhook_secret_file")]
    webhook_secret: Option<String>,
    /// The file with the token that Alertmanager sends to /api/v1/alerts, as a bearer token or as the password of basic
    /// authentication. Without it, alerts are not taken.
    #[arg(long, value_name = "FILE", requires = "webhook")]
    alerts_token_file: Option<PathBuf>,
    /// That token itself; better in the environment than on the command line.
    #[arg(long, env = "PAWL_ALERTS_TOKEN", hide_env_values = true, conflicts_with = "alerts_token_file")]
    alerts_token: Option<String>,
    /// Believe anybody who reaches the webhook's port, with deliveries and alerts alike.
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
        system_namespace: &str,
        stopping: Stop,
    ) -> anyhow::Result<Option<Served>> {
        let Some(address) = self.webhook else { return Ok(None) };
        let token =
            secret(self.alerts_token_file.as_deref(), self.alerts_token.as_deref(), "--alerts-token-file")?;
        let alerts = Trust::from_secret(token.as_deref(), self.insecure_webhook).ok();
        let ours = secret(
            self.webhook_secret_file.as_deref(),
            self.webhook_secret.as_deref(),
            "--webhook-secret-file",
        )?;
        let trust = match Trust::from_secret(ours.as_deref(), self.insecure_webhook) {
            // A server for alerts alone.
            Err(_) if alerts.is_some() => Trust::Nobody,
            trust => trust.context("--webhook needs --webhook-secret-file or PAWL_WEBHOOK_SECRET")?,
        };
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("--webhook {address}: cannot be bound"))?;
        let address = listener.local_addr()?;
        let mut webhook = Webhook::new(engine.clone(), client.clone(), Arc::new(SystemClock), trust);
        if let Some(trust) = alerts {
            webhook =
                webhook.with_alerts(Alerts::new(engine.clone(), client.clone(), trust, system_namespace));
        }
        let ended = tokio::spawn(async move { webhook.serve(listener, stopping.wait()).await });
        Ok(Some(Served { address, ended }))
    }
}

fn secret(file: Option<&Path>, given: Option<&str>, flag: &str) -> anyhow::Result<Option<Vec<u8>>> {
    match file {
        Some(file) => std::fs::read(file)
            .map(Some)
            .with_context(|| format!("{flag} {}: cannot be read", file.display())),
        None => Ok(given.map(|given| given.as_bytes().to_vec())),
    }
}
