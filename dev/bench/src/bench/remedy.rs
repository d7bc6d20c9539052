//! `pawl-dev bench remedy`: how fast does the remedy door run WorkflowExecutions, and what does that cost?
//!
//! ```text
//!  this process                                        its child
//!  ┌───────────────────────────────────────────┐       ┌────────────────────────────┐
//!  │ API server with its journal on disk        │ ◀─TLS─│ the controllers of all      │
//!  │ whoever ends Jobs as soon as they may run  │       │ doors, and nothing else     │
//!  │ whoever asks for executions, and sees them │       └────────────────────────────┘
//!  └───────────────────────────────────────────┘
//! ```
//! Every execution has a target of its own, so that all of them run: each is validated, locks its target, has its Job
//! made, recorded and let go, and lets go of the lock. No Job's controller is here: a Job ends by a patch of its status.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use futures::TryStreamExt as _;
use jiff::Timestamp;
use kube::api::{Api, PostParams};
use kube::runtime::watcher;
use pawl_api::remedy::{WorkflowExecution, WorkflowExecutionPhase, workflow_execution};
use pawl_cli::cluster;
use pawl_cli::terminal::Say;
use pawl_cli::up::{Plane, make_namespace};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::git::controllers::{Controllers, Done};
use super::git::jobs::Ender;
use super::git::stage::SYSTEM;
use super::report::Latency;

const NAMESPACE: &str = "pawl-bench-remedy";

/// What was promised (the remedy door's acceptance).
const MIN_EXECUTIONS_PER_SECOND: f64 = 150.0;
const MAX_PHASE_MS: f64 = 250.0;

/// How many are asked for at the same time: as alerts arrive, from a few connections.
const CREATORS: usize = 8;
/// How often it is looked whether all have ended: well below what is measured.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Without anything new for this long, something is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);
/// Without a request for this long, the controllers are at rest.
const AT_REST_AFTER: Duration = Duration::from_secs(1);

/// How it was counted, for whoever reads only the figures.
const HOW: &str = "controllers in a process of their own, over TLS, CPU and anonymous memory as /proc tells them of that process; \
                   writes as its own counters tell them, Events and locks included, failed ones too; Jobs are marked \
                   complete as soon as they may run, and the time to the phase runs from before that request is sent \
                   until a watcher has read the phase";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many executions, each on a target of its own.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    executions: u32,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// What it came to.
#[derive(Debug)]
struct Outcome {
    executions: usize,
    /// From the first request to the last phase.
    took: Duration,
    /// From the end of a Job to the phase of its execution.
    late: Latency,
    requests: Done,
    cpu_seconds: f64,
    peak_bytes: u64,
}

pub(super) async fn run(args: &Args, say: &mut dyn Say) -> anyhow::Result<()> {
    let stopping = pawl_cli::stop::requested()?;
    let directory = tempfile::tempdir().context("make a directory for the server's data")?;
    let plane = Plane::open(directory.path(), ([127, 0, 0, 1], 0).into(), None).await?;
    let kubeconfig = plane.kubeconfig.clone();
    let served = tokio::spawn(plane.serve(stopping.clone()));
    let client = cluster::for_controllers(Some(&kubeconfig)).await?;
    for namespace in [NAMESPACE, SYSTEM] {
        make_namespace(&client, namespace).await?;
    }
    let measured = async {
        let controllers = Controllers::start(&kubeconfig).await?;
        let outcome = measure(args.executions, client, &controllers).await?;
        controllers.stop().await?;
        anyhow::Ok(outcome)
    };
    let outcome = tokio::select! {
        measured = measured => measured,
        () = stopping.wait() => Err(anyhow::anyhow!("interrupted")),
    };
    // Its data goes with the directory, whatever it was doing.
    served.abort();
    let outcome = outcome?;
    if args.json {
        say.line(&serde_json::to_string_pretty(&outcome.to_json())?);
    } else {
        outcome.tell(say);
    }
    Ok(())
}

async fn measure(count: u32, client: kube::Client, controllers: &Controllers) -> anyhow::Result<Outcome> {
    at_rest(controllers).await?;
    let api: Api<WorkflowExecution> = Api::namespaced(client.clone(), NAMESPACE);
    let (ender, phases) = (Ender::start(client, NAMESPACE), Phases::start(api.clone()));
    let (done, used) = (controllers.done().await?, controllers.usage()?);
    let started = Timestamp::now();
    let asked =
        futures::stream::iter((0..count).map(anyhow::Ok)).try_for_each_concurrent(CREATORS, |number| {
            let api = &api;
            async move {
                let execution: WorkflowExecution = serde_json::from_value(execution(number))?;
                api.create(&PostParams::default(), &execution).await.context("ask for an execution")?;
                Ok(())
            }
        });
    let count = usize::try_from(count)?;
    let (asked, ended) = tokio::join!(asked, phases.all(count));
    asked?;
    let ended = ended.with_context(|| format!("{} Jobs have ended{}", ender.ended(), ender.problem()))?;
    at_rest(controllers).await?;
    let now = controllers.usage()?;
    let jobs = ender.all();
    let late =
        ended.iter().filter_map(|(uid, at)| Duration::try_from(at.duration_since(*jobs.get(uid)?)).ok());
    let last = ended.values().max().copied().unwrap_or(started);
    Ok(Outcome {
        executions: count,
        took: Duration::try_from(last.duration_since(started)).context("the clock went back")?,
        late: Latency::of(late.collect()),
        requests: controllers.done().await?.since(&done),
        cpu_seconds: now.cpu_seconds - used.cpu_seconds,
        peak_bytes: now.peak_bytes,
    })
}

fn execution(number: u32) -> Value {
    json!({
        "apiVersion": workflow_execution::KIND.api_version(), "kind": workflow_execution::KIND.kind,
        "metadata": {"name": format!("mend-{number}")},
        "spec": {"engine": "job", "targetResource": format!("{NAMESPACE}/deployment/web-{number}"),
            "workflowRef": {"workflowId": "mend", "containerImage": "example.com/mend:1"},
            "parameters": {"REPLICAS": "3"}},
    })
}

/// Sees executions end, until it is dropped.
#[derive(Debug)]
struct Phases {
    seen: Arc<Mutex<Seen>>,
    watching: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Seen {
    /// When the phase was read, by the execution's UID.
    completed: BTreeMap<String, Timestamp>,
    problem: Option<String>,
}

impl Phases {
    fn start(api: Api<WorkflowExecution>) -> Self {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let watching = tokio::spawn(watch(api, Arc::clone(&seen)));
        Self { seen, watching }
    }

    /// Waits until so many have completed.
    async fn all(&self, count: usize) -> anyhow::Result<BTreeMap<String, Timestamp>> {
        let (mut before, mut moved) = (0, Instant::now());
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if seen.completed.len() >= count {
                return Ok(seen.completed.clone());
            }
            if seen.completed.len() > before {
                (before, moved) = (seen.completed.len(), Instant::now());
            }
            if let Some(problem) = &seen.problem {
                bail!("{problem}");
            }
            if moved.elapsed() > STUCK_AFTER {
                bail!("nothing moves: {before} of {count} executions have completed");
            }
        }
    }
}

impl Drop for Phases {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

async fn watch(api: Api<WorkflowExecution>, seen: Arc<Mutex<Seen>>) {
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()));
    loop {
        let execution = match events.try_next().await {
            Ok(Some(watcher::Event::Apply(execution) | watcher::Event::InitApply(execution))) => execution,
            Ok(Some(_)) => continue,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "watch WorkflowExecutions");
                continue;
            }
        };
        let (at, status) = (Timestamp::now(), execution.status.unwrap_or_default());
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        match status.phase {
            Some(WorkflowExecutionPhase::Completed) => {
                seen.completed.entry(execution.metadata.uid.unwrap_or_default()).or_insert(at);
            }
            Some(phase @ (WorkflowExecutionPhase::Failed | WorkflowExecutionPhase::Skipped)) => {
                let name = execution.metadata.name.unwrap_or_default();
                seen.problem = Some(format!("{name} is {phase:?}: {}", status.message.unwrap_or_default()));
            }
            Some(WorkflowExecutionPhase::Pending | WorkflowExecutionPhase::Running) | None => {}
        }
    }
}

/// Waits until the controllers send nothing any more.
async fn at_rest(controllers: &Controllers) -> anyhow::Result<()> {
    let mut last = None;
    let since = Instant::now();
    while since.elapsed() < STUCK_AFTER {
        let now = controllers.done().await?;
        if last.as_ref() == Some(&now) {
            return Ok(());
        }
        last = Some(now);
        tokio::time::sleep(AT_REST_AFTER).await;
    }
    bail!("the controllers do not come to rest: {last:?}")
}

impl Outcome {
    fn per_second(&self) -> f64 {
        self.executions as f64 / self.took.as_secs_f64().max(f64::EPSILON)
    }

    fn each(&self, what: f64) -> f64 {
        what / self.executions.max(1) as f64
    }

    fn tell(&self, say: &mut dyn Say) {
        let verdict = |holds: bool| if holds { "" } else { "  missed" };
        let (rate, p99) = (self.per_second(), millis(self.late.p99));
        say.line(&format!("{} WorkflowExecutions with engine job", self.executions));
        say.line(&format!("({HOW})"));
        let holds = verdict(rate >= MIN_EXECUTIONS_PER_SECOND);
        say.line(&format!("{:<34} {rate:>8.1}  ≥ {MIN_EXECUTIONS_PER_SECOND}{holds}", "executions/s"));
        let holds = verdict(p99 <= MAX_PHASE_MS);
        say.line(&format!("{:<34} {p99:>8.2}  ≤ {MAX_PHASE_MS}{holds}", "ms from Job to phase, p99"));
        let others = [
            ("ms from Job to phase, p50", millis(self.late.p50)),
            ("API writes per execution", self.each(self.requests.writes() as f64)),
            ("API reads per execution", self.each(self.requests.reads() as f64)),
            ("CPU ms per execution", self.each(self.cpu_seconds * 1e3)),
            ("peak anonymous memory, MB", self.peak_bytes as f64 / 1e6),
            ("seconds", self.took.as_secs_f64()),
        ];
        for (name, value) in others {
            say.line(&format!("{name:<34} {value:>8.2}"));
        }
        for ((machine, method, code), count) in &self.requests.requests {
            say.line(&format!("  {machine:<20} {method:<7} {code:<4} {count:>7}"));
        }
    }

    fn to_json(&self) -> Value {
        let figure = |value: f64, budget: f64, at_least: bool| {
            let holds = if at_least { value >= budget } else { value <= budget };
            json!({"value": value, "budget": budget, "atLeast": at_least, "holds": holds})
        };
        let requests: Vec<Value> = self
            .requests
            .requests
            .iter()
            .map(|((machine, method, code), count)| {
                json!({"machine": machine, "method": method, "code": code, "count": count})
            })
            .collect();
        json!({
            "what": format!("{} WorkflowExecutions with engine job", self.executions), "how": HOW,
            "figures": {
                "executionsPerSecond": figure(self.per_second(), MIN_EXECUTIONS_PER_SECOND, true),
                "phaseP99Ms": figure(millis(self.late.p99), MAX_PHASE_MS, false),
            },
            "phaseP50Ms": millis(self.late.p50),
            "writesPerExecution": self.each(self.requests.writes() as f64),
            "readsPerExecution": self.each(self.requests.reads() as f64),
            "cpuMsPerExecution": self.each(self.cpu_seconds * 1e3),
            "peakMb": self.peak_bytes as f64 / 1e6,
            "seconds": self.took.as_secs_f64(),
            "requests": requests,
        })
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
