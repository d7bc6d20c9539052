//! `pawl-dev bench git`: how fast does a push become concluded check runs, and what does that cost?
//!
//! ```text
//!  first                                               then
//!  this process            its child                   this process                 its child
//!  ┌───────────────────┐   ┌──────────────────┐        ┌────────────────────┐       ┌──────────────────┐
//!  │ a GitHub (fake)   │ ◀─│ `pawl up`: server │        │ API server, what a │ ◀─TLS─│ the controllers  │
//!  │ who ends Jobs     │ ─▶│ and controllers  │        │ cluster brings, and│       │ of all doors, and│
//!  └───────────────────┘   └──────────────────┘        │ all on the left    │ ◀─────│ nothing else     │
//!                                                      └────────────────────┘       └──────────────────┘
//!  how fast, how soon                                  writes, calls, CPU, memory, rest, restart
//! ```
//! So the speed is that of what people run, and what `/proc` says of the second child is the controllers alone: neither the
//! server nor GitHub nor Jobs. Their writes are counted by themselves, for each request of a plan; calls to GitHub are
//! counted where they arrive. Against another API server there is only the second part.
//!
//! | file | question |
//! |---|---|
//! | `stage` | what is there before it begins, and how is it taken away? |
//! | `jobs` | when does each Job end? |
//! | `controllers` | what runs in the child, and what has it done so far? |
//! | `outcome` | how are the figures told, and against which budgets? |

pub(super) mod controllers;
pub(super) mod jobs;
mod outcome;
pub(super) mod stage;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use pawl_cli::stop::Stop;
use pawl_cli::terminal::Say;
use pawl_integrations::github::fake::{Applied, Effect};

use self::controllers::{Controllers, Done};
use self::jobs::Ender;
use self::outcome::{Load, Outcome, Quiet};
use self::stage::Stage;
use super::report::Latency;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Measure against this cluster's API server instead of the embedded one. Its CRDs must be installed; no Job runs
    /// there: each is marked complete as soon as it may run.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// How many branches are pushed.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    branches: u16,
    /// How many Workflows each of them makes.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=200))]
    folders: u16,
    /// How many Workflows may run at a time; the default of a Repository.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    max_concurrent: u16,
    /// How many seconds of rest are watched afterwards.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    idle: u64,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

impl Args {
    fn workflows(&self) -> usize {
        usize::from(self.branches) * usize::from(self.folders)
    }

    /// Each Workflow's, and the aggregate of each branch.
    fn check_runs(&self) -> usize {
        self.workflows() + usize::from(self.branches)
    }
}

/// Without anything new for this long, something is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);
/// How often progress is looked at: often enough to notice the end, seldom enough not to matter.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Without a request for this long, the controllers are at rest: Events that were said on and on are told up to eight seconds
/// later, and belong to the work that they tell of.
const AT_REST_AFTER: Duration = Duration::from_secs(10);

pub(super) async fn run(args: &Args, say: &mut dyn Say) -> anyhow::Result<()> {
    let stopping = pawl_cli::stop::requested()?;
    let up = match &args.kubeconfig {
        None => tokio::select! {
            load = on_up(args, stopping.clone()) => Some(load?),
            () = stopping.clone().wait() => bail!("interrupted"),
        },
        Some(_) => None,
    };
    let stage = Stage::set(args.kubeconfig.as_deref(), stopping.clone()).await?;
    let measured = tokio::select! {
        measured = measure(args, &stage, up) => measured,
        () = stopping.wait() => Err(anyhow::anyhow!("interrupted")),
    };
    let removed = stage.clear().await;
    let outcome = measured?;
    if args.json {
        say.line(&serde_json::to_string_pretty(&outcome.to_json())?);
    } else {
        outcome.tell(say);
    }
    // What was measured was, even if some of it stays behind.
    removed
}

/// The same load on `pawl up`.
async fn on_up(args: &Args, stopping: Stop) -> anyhow::Result<Load> {
    let directory = tempfile::tempdir().context("make a directory for the server's data")?;
    let up = Controllers::up(directory.path()).await?;
    let stage = Stage::set(Some(&directory.path().join("kubeconfig")), stopping).await?;
    stage.introduce(args).await?;
    stage.in_step().await?;
    at_rest(&stage, &up).await?;
    let ender = Ender::start(stage.client(), stage::NAMESPACE);
    let load = push(args, &stage, &up, &ender).await?;
    drop(ender);
    stage.leave();
    up.kill().await?;
    Ok(load)
}

async fn measure(args: &Args, stage: &Stage, up: Option<Load>) -> anyhow::Result<Outcome> {
    stage.introduce(args).await?;
    if args.kubeconfig.is_some() {
        stage.alone().await?;
    }
    let controllers = Controllers::start(stage.kubeconfig()).await?;
    stage.in_step().await?;
    at_rest(stage, &controllers).await?;
    let ender = Ender::start(stage.client(), stage::NAMESPACE);
    let load = push(args, stage, &controllers, &ender).await?;
    let idle = rest(stage, &controllers, Duration::from_secs(args.idle)).await?;
    let peak_bytes = controllers.usage()?.peak_bytes;
    controllers.stop().await?;
    let before = stage.github.requests();
    let started = Instant::now();
    let controllers = Controllers::start(stage.kubeconfig()).await?;
    let ready = started.elapsed();
    let seconds = Duration::from_secs(args.idle);
    tokio::time::sleep(seconds).await;
    let restart = Quiet {
        seconds,
        writes: controllers.done().await?.writes(),
        calls: stage.github.requests() - before,
    };
    controllers.stop().await?;
    Ok(Outcome { on: stage.told(), args: args.told(), up, load, idle, restart, ready, peak_bytes })
}

/// Pushes all branches, tells the Repository once, and waits for the last check to conclude.
async fn push(args: &Args, stage: &Stage, controllers: &Controllers, ender: &Ender) -> anyhow::Result<Load> {
    stage.push(args);
    let (done, used, calls) = (controllers.done().await?, controllers.usage()?, stage.github.requests());
    let from = stage.github.journal().len();
    let started = Timestamp::now();
    stage.nudge(started).await?;
    let (mut seen, mut moved) = (0, Instant::now());
    let concluded = loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let requests = stage.github.requests();
        if requests != seen {
            (seen, moved) = (requests, Instant::now());
        }
        // Reading the journal costs; before every Job has ended there is no need.
        if ender.ended() >= args.workflows() {
            let concluded = conclusions(stage.github.journal().split_off(from));
            if concluded.len() >= args.check_runs() {
                break concluded;
            }
        }
        if moved.elapsed() > STUCK_AFTER {
            let (wanted, ended) = (args.workflows(), ender.ended());
            bail!("nothing moves: {ended} of {wanted} Jobs have ended{}", ender.problem());
        }
    };
    at_rest(stage, controllers).await?;
    let now = controllers.usage()?;
    let last = concluded.values().max().copied().unwrap_or(started);
    let ends = ender.all();
    let late = ends.iter().filter_map(|(uid, ended)| {
        let concluded = concluded.iter().find(|(key, _)| key.starts_with(uid.as_str()))?.1;
        Duration::try_from(concluded.duration_since(*ended)).ok()
    });
    Ok(Load {
        workflows: args.workflows(),
        took: Duration::try_from(last.duration_since(started)).context("the clock went back")?,
        requests: controllers.done().await?.since(&done),
        calls: stage.github.requests() - calls,
        cpu_seconds: now.cpu_seconds - used.cpu_seconds,
        conclude: Latency::of(late.collect()),
    })
}

/// When each check run concluded, by its key.
fn conclusions(applied: Vec<Applied>) -> BTreeMap<String, Timestamp> {
    let concluded = applied.into_iter().filter_map(|Applied { at, effect, .. }| match effect {
        Effect::CheckRunUpdated { external_id, conclusion: Some(_), .. } => Some((external_id, at)),
        Effect::CheckRunUpdated { .. }
        | Effect::CheckRunCreated { .. }
        | Effect::TokenMinted
        | Effect::StatusSet { .. }
        | Effect::Commented { .. } => None,
    });
    concluded.collect()
}

/// Waits until the controllers send nothing any more.
async fn at_rest(stage: &Stage, controllers: &Controllers) -> anyhow::Result<()> {
    let mut last: Option<(Done, u64)> = None;
    for _ in 0..30 {
        let now = (controllers.done().await?, stage.github.requests());
        if last.as_ref() == Some(&now) {
            return Ok(());
        }
        last = Some(now);
        tokio::time::sleep(AT_REST_AFTER).await;
    }
    bail!("the controllers do not come to rest: {last:?}")
}

async fn rest(stage: &Stage, controllers: &Controllers, seconds: Duration) -> anyhow::Result<Quiet> {
    let (done, calls) = (controllers.done().await?, stage.github.requests());
    tokio::time::sleep(seconds).await;
    let writes = controllers.done().await?.since(&done).writes();
    Ok(Quiet { seconds, writes, calls: stage.github.requests() - calls })
}
