//! `pawl up`: a control plane on this machine: API server, storage, controllers, a node for Jobs. No cluster, no daemon.
//!
//! ```text
//! kubectl ──TLS──▶ API server ◀──in process── engine (doors + what a cluster brings) ◀── runner (pods)
//!                      │
//!                 journal in the data directory
//! ```

mod apply;
mod demo;
mod executors;
mod identity;
mod kubeconfig;
mod plane;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use pawl_actions::way::Door;
use pawl_api::pawl::SYSTEM_NAMESPACE;
use pawl_apiserver::{LogRequest, PodLogs};
use pawl_engine::wire::Wire;
use pawl_engine::{Engine, Stopped, health};
use pawl_integrations::transport;
use pawl_machines::machine::AnyMachine;
use pawl_machines::remedy::action::executor::Executor;
use pawl_runner::docker::{self, Surroundings};
use pawl_runner::{Runner, logs};

pub use self::plane::Plane;
use crate::bundles::Bundles;
use crate::ports::Ports;
use crate::stop::Stop;
use crate::terminal::Say;
use crate::{audit_keeping, bundles, doors, logging, stop, webhook};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where the API server listens.
    #[arg(long, default_value = "127.0.0.1:16443")]
    listen: SocketAddr,
    /// Where everything is kept; made if it is not there.
    #[arg(long, default_value = ".pawl", env = "PAWL_DATA_DIR")]
    data_dir: PathBuf,
    /// Where to write the kubeconfig; without it, into the data directory.
    #[arg(long, value_name = "FILE")]
    write_kubeconfig: Option<PathBuf>,
    /// What runs containers: processes of this machine, or a container engine (Docker, or Podman's service) with the real
    /// images. The engine is the one that DOCKER_HOST (unix://…) names, else Docker's usual socket, else Podman's.
    #[arg(long, value_enum, default_value_t = RunnerKind::Process)]
    runner: RunnerKind,
    /// Where images are looked for (`--runner process`): OCI layouts (directories) and archives (`docker save`, *.tar);
    /// without it, `images` in the data directory.
    #[arg(long, value_name = "DIR")]
    images: Option<PathBuf>,
    /// Logins for registries from which Tekton bundles are fetched: a `config.json` as `docker login` writes it without a
    /// helper; without it, the one in the directory that DOCKER_CONFIG names. Who has neither asks as a stranger.
    #[arg(long, value_name = "FILE")]
    registry_config: Option<PathBuf>,
    /// Start with a sample to watch: a repository on a GitHub of its own, in this process, and a shop that is down. See
    /// `pawl demo`.
    #[arg(long)]
    demo: bool,
    /// Serve /healthz, /readyz and /metrics here.
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,
    /// How long after a client made a definition the OpenAPI documents tell of it, for those who must not race it.
    #[arg(long, value_name = "SECONDS", default_value_t = 1, hide = true)]
    schemas_after: u32,
    #[command(flatten)]
    doors: doors::Choices,
    #[command(flatten)]
    audit: audit_keeping::Choices,
    #[command(flatten)]
    webhook: webhook::Choices,
    #[command(flatten)]
    logging: logging::Choices,
}

/// What runs containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum RunnerKind {
    /// Processes of this machine, isolated as far as it allows. No daemon.
    Process,
    /// Containers of a Docker Engine or of Podman.
    Docker,
}

impl RunnerKind {
    /// The engine, if one is wanted.
    async fn engine(self) -> anyhow::Result<Option<docker::Engine>> {
        match self {
            Self::Process => Ok(None),
            Self::Docker => {
                let found = docker::Engine::find(&Surroundings::here()).await;
                found.map(Some).context("--runner docker")
            }
        }
    }
}

pub async fn run(args: Args, say: &mut dyn Say) -> anyhow::Result<()> {
    let start = Instant::now();
    logging::start(&args.logging, "warn")?;
    let engine = args.runner.engine().await?;
    let plane = Plane::open(&args.data_dir, args.listen, args.write_kubeconfig).await?;
    let plane = plane.telling_schemas_after(args.schemas_after);
    let address = plane.address;
    let images = args.images.unwrap_or_else(|| plane.directory.join("images"));
    let own = std::env::current_exe().context("find this executable")?;
    let mut options = pawl_runner::Options::new(plane.directory.join("runner"), own);
    options.images = images.clone();
    let containers = engine.as_ref().map(described);
    options.engine = engine;
    options.service = Some((address.ip().to_string(), address.port()));
    let runner = Runner::new(plane.client(), options);
    // The controllers read logs too: the end of a failing one stands in its check run.
    let plane = plane.with_logs(Arc::new(LogsOf(runner.logs())));
    let client = plane.client();
    make_namespace(&client, SYSTEM_NAMESPACE).await?;
    let executor = Executor::default();
    executors::install(&client, &executor).await?;
    let kept = args.audit.start(Some(&plane.directory))?;
    let transport = transport::https()?;
    let logins = args.registry_config.or_else(bundles::docker_config);
    let bundles = Bundles::new(images, plane.directory.join("bundles"), transport.clone(), logins);
    let guarded = plane.guarded();
    let door = Door::Guarded(Wire::new(guarded.client.clone()));
    let ports = Ports::new(&client, transport).acting(&client, door, executor);
    let ports = ports.within(&client, bundles, guarded)?;
    let engine = Engine::builder(client.clone())
        .machines(doors::with_cluster(SYSTEM_NAMESPACE, &args.doors))
        .machine(AnyMachine::new(plane.root_certificates()))
        .machines(pawl_machines::cluster::tekton_machines())
        .ports(ports.registered.clone())
        .ledger(kept.ledger())
        .build()?;
    ports.measure(engine.metrics());
    let stopping = stop::requested()?;
    let deliveries = args.webhook.start(&engine, &client, SYSTEM_NAMESPACE, stopping.clone()).await?;
    let measured = match args.metrics {
        Some(address) => Some(measure(address, &engine, stopping.clone()).await?),
        None => None,
    };
    let kubeconfig = plane.kubeconfig.clone();
    let served = tokio::spawn(plane.serve(stopping.clone()));
    let mut ran = tokio::spawn(runner.run(stopping.clone().wait()));
    let looped = tokio::spawn({
        let (engine, stopping) = (engine.clone(), stopping.clone());
        async move { engine.run(stopping.wait()).await }
    });
    engine.ready().await;
    greet(say, address, &kubeconfig, start);
    if let Some(containers) = containers {
        say.line(&format!("  containers  {containers}"));
    }
    if let Some(webhook::Served { address, .. }) = &deliveries {
        say.line(&format!("  webhook     http://{address}/webhook"));
    }
    if let Some(address) = measured {
        say.line(&format!("  metrics     http://{address}/metrics"));
    }
    if args.demo {
        demo::start(&client, &engine, &args.data_dir, stopping.clone(), say).await?;
    }
    tokio::select! {
        // First: a runner that was told to stop has not ended by itself.
        biased;
        () = stopping.wait() => {}
        // Without its node a control plane would take Jobs that nobody runs.
        ended = &mut ran => {
            ended?.context("the runner")?;
            anyhow::bail!("the runner ended by itself");
        }
    }
    say.line("stopping …");
    ran.await?.context("the runner")?;
    if let Stopped::Cut { unfinished } = looped.await? {
        tracing::warn!(unfinished, "stopped with plans unfinished; the next start goes on");
    }
    kept.close().await;
    served.await??;
    if let Some(deliveries) = deliveries {
        deliveries.ended.await?.context("the webhook server")?;
    }
    say.line("stopped; everything acknowledged is on disk");
    Ok(())
}

fn described(engine: &docker::Engine) -> String {
    format!("{} {} at {}", engine.kind(), engine.version(), engine.socket().display())
}

fn greet(say: &mut dyn Say, address: SocketAddr, kubeconfig: &Path, start: Instant) {
    let took = start.elapsed().as_millis();
    say.line(&format!("Pawl is up after {took} ms"));
    say.line(&format!("  API server  https://{address}"));
    say.line(&format!("  kubeconfig  {}", kubeconfig.display()));
    say.line(&format!(
        "  try         kubectl --kubeconfig {} get workflows -A --watch",
        kubeconfig.display()
    ));
}

/// Serves the loop's counters; where, in case any port would do.
async fn measure(address: SocketAddr, engine: &Engine, stopping: Stop) -> anyhow::Result<SocketAddr> {
    let bound = tokio::net::TcpListener::bind(address).await;
    let listener = bound.with_context(|| format!("--metrics {address}: cannot be bound"))?;
    let address = listener.local_addr()?;
    tokio::spawn(health::serve(listener, engine.clone(), stopping.wait()));
    Ok(address)
}

/// Where the locks are kept.
pub async fn make_namespace(client: &kube::Client, name: &str) -> anyhow::Result<()> {
    let api: kube::Api<pawl_api::k8s::Namespace> = kube::Api::all(client.clone());
    let namespace = serde_json::from_value(serde_json::json!({"metadata": {"name": name}}))?;
    match api.create(&kube::api::PostParams::default(), &namespace).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => Err(error).with_context(|| format!("make namespace {name}")),
    }
}

/// The runner's logs, as the API server asks for them.
#[derive(Debug)]
struct LogsOf(pawl_runner::Logs);

impl PodLogs for LogsOf {
    fn open(&self, request: LogRequest) -> BoxFuture<'static, Result<BoxStream<'static, Bytes>, String>> {
        let kept = self.0.clone();
        Box::pin(async move {
            let LogRequest { pod, pod_uid, container, waiting, follow, previous, timestamps, .. } = request;
            let options = pawl_runner::LogOptions {
                follow,
                previous,
                timestamps,
                tail_lines: request.tail_lines,
                since_seconds: request.since_seconds,
                since_time: request.since_time,
                limit_bytes: request.limit_bytes,
            };
            let output = kept.open(&pod_uid, &container, options).await;
            let output = output.map_err(|error| no_output(&error, &pod, waiting.as_deref()))?;
            // A file that cannot be read further ends the answer; the reason is in Pawl's own log.
            let output = output.filter_map(|chunk| async move {
                chunk.inspect_err(|error| tracing::warn!(%error, "a container's output cannot be read")).ok()
            });
            Ok(output.boxed())
        })
    }
}

/// Why there is no output, in a kubelet's words where it has any: the runner knows pods by their UIDs, people by name.
fn no_output(error: &logs::Error, pod: &str, waiting: Option<&str>) -> String {
    match (error, waiting) {
        (logs::Error::NoPrevious { container, .. }, _) => {
            format!("previous terminated container \"{container}\" in pod \"{pod}\" not found")
        }
        (logs::Error::NotStarted { container, .. }, Some(reason)) => {
            format!("container \"{container}\" in pod \"{pod}\" is waiting to start: {reason}")
        }
        (logs::Error::NotStarted { container, .. }, None) => format!(
            "container \"{container}\" in pod \"{pod}\" has no output: it has not started, or it is a Deployment's, \
             StatefulSet's or DaemonSet's, whose pods are said to run here without a process"
        ),
        (logs::Error::Read { .. }, _) => error.to_string(),
    }
}
