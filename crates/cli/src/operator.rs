//! `pawl operator`: the doors' controllers against any Kubernetes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use pawl_actions::way::Door;
use pawl_engine::{Engine, Stopped, health, leader};
use pawl_integrations::transport;
use pawl_machines::remedy::kubernetes_execution::{KubernetesExecutions, PROTECTED_NAMESPACES};

use crate::ports::Ports;
use crate::{audit_keeping, cluster, doors, logging, rbac, stop, webhook};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The cluster's kubeconfig; without it, the usual places, or the pod's own ServiceAccount.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Work only in this namespace; may be given several times.
    #[arg(long = "namespace", short)]
    namespaces: Vec<String>,
    /// Where Pawl keeps what belongs to no unit: locks, the leader's Lease.
    #[arg(long, default_value = "pawl-system")]
    system_namespace: String,
    /// Pawl's own image: it runs beside the images of container items, and carries out actions.
    #[arg(long, default_value = pawl_machines::deploy::deploy_item::OWN_IMAGE)]
    image: String,
    /// Where /healthz, /readyz and /metrics are served.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// How many objects are looked at at the same time.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    concurrency: u16,
    /// A directory on a volume: for the audit ledger where there is no --audit-url, and for what waits to be stored.
    #[arg(long, env = "PAWL_DATA_DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    doors: doors::Choices,
    #[command(flatten)]
    actions: rbac::Choices,
    /// A namespace whose objects no action touches, beside Pawl's own; may be given several times.
    #[arg(long = "protected-namespace", value_name = "NAMESPACE", default_values = PROTECTED_NAMESPACES)]
    protected_namespaces: Vec<String>,
    #[command(flatten)]
    audit: audit_keeping::Choices,
    #[command(flatten)]
    webhook: webhook::Choices,
    #[command(flatten)]
    logging: logging::Choices,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    logging::start(&args.logging, "info")?;
    let config = cluster::config_for_controllers(args.kubeconfig.as_deref()).await?;
    let client = kube::Client::try_from(config.clone())?;
    let executor = args.actions.executor(&args.image);
    let actions = KubernetesExecutions {
        system_namespace: args.system_namespace.clone(),
        executor: executor.clone(),
        protected_namespaces: args.protected_namespaces.clone(),
    };
    let machines = doors::machines_with(actions, &args.image, &args.doors);
    let door = Door::Address(Arc::new(config));
    let config = leader::Config {
        namespace: args.system_namespace.clone(),
        name: "pawl-operator".to_owned(),
        identity: identity(),
    };
    let kept = args.audit.start(args.data_dir.as_deref())?;
    let ports = Ports::new(&client, transport::https()?).acting(&client, door, executor);
    let engine = Engine::builder(client.clone())
        .machines(machines)
        .ports(ports.registered.clone())
        .ledger(kept.ledger())
        .namespaces(args.namespaces)
        .concurrency(args.concurrency.into())
        .leader(config)
        .build()?;
    ports.measure(engine.metrics());
    let listener = tokio::net::TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("--listen {}: cannot be bound", args.listen))?;
    tracing::info!(address = %listener.local_addr()?, "serving /healthz, /readyz and /metrics");
    let stopping = stop::requested()?;
    let deliveries = args.webhook.start(&engine, &client, &args.system_namespace, stopping.clone()).await?;
    if let Some(webhook::Served { address, .. }) = &deliveries {
        tracing::info!(%address, "taking webhook deliveries on /webhook");
    }
    let served = tokio::spawn(health::serve(listener, engine.clone(), stopping.clone().wait()));
    let stopped = engine.run(stopping.wait()).await;
    kept.close().await;
    served.await??;
    if let Some(deliveries) = deliveries {
        deliveries.ended.await??;
    }
    match stopped {
        Stopped::Clean => tracing::info!("stopped"),
        Stopped::Cut { unfinished } => {
            tracing::warn!(unfinished, "stopped with plans unfinished; the next start goes on")
        }
    }
    Ok(())
}

/// Differs between copies and lives as long as the process: the pod's name, made unique where there is none.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "pawl".to_owned());
    format!("{host}-{}", std::process::id())
}
