//! `pawl run`: the templates of a checkout on what changed in it, without GitHub and without a cluster.
//!
//! ```text
//! git ─▶ changed files ─┐
//! manifests ────────────┼─▶ plan (the controllers' own decision) ─▶ --dry-run: print it
//!                       └───────▶ Workflows on an API server in memory ─▶ Jobs ─▶ processes ─▶ table
//! ```

mod checkout;
mod plan;
mod progress;
mod report;
mod schedule;
mod templates;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;

use self::checkout::Checkout;
use self::plan::Plan;
use self::progress::Progress;
use self::schedule::Schedule;
use self::world::World;
use crate::terminal::{Say, Stderr};
use crate::{logging, stop};

/// What a shell shows for a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Run the templates of a checkout on what changed in it.
///
/// What counts as changed is everything since the checked-out branch left --base: commits, and files that are not
/// committed or not even added yet. Templates are WorkflowTemplate manifests: the files named with --template or else
/// all .terrakojo/*.yaml and .pawl/*.yaml (or .yml) in the checkout. ConfigMaps and Secrets that their Jobs refer to
/// may stand beside them.
///
/// Containers are processes of this machine: images are not unpacked, so each needs a `command`. They find the checkout
/// itself, not a copy, at $TERRAKOJO_WORKSPACE_DIR (/workspace, or the template's workspace.mountPath), and start there
/// unless they name a workingDir.
///
/// The exit code is 0 if all that had to run succeeded, 1 if something failed or a template is malformed.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The branch that changes are compared with, and that counts as the default branch for `on`.
    #[arg(long, default_value = "main", value_name = "BRANCH")]
    base: String,
    /// A file with templates; may be given several times.
    #[arg(long = "template", value_name = "FILE")]
    templates: Vec<PathBuf>,
    /// Only say what would run and why, and what would not and why not.
    #[arg(long)]
    dry_run: bool,
    /// How many Jobs may run at a time; without it, as many as there are processors.
    #[arg(short, long, value_name = "N")]
    jobs: Option<usize>,
    /// How to write the plan or the result.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Keep the containers' logs, and say where they are.
    #[arg(long)]
    keep: bool,
    /// Run as if started in this directory.
    #[arg(short = 'C', long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    #[command(flatten)]
    logging: logging::Choices,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Text,
    Json,
}

pub(crate) async fn run(args: Args, say: &mut dyn Say) -> anyhow::Result<ExitCode> {
    logging::start(&args.logging, "error")?;
    let checkout = Checkout::find(&args.directory)?;
    let manifests = templates::load(&args.templates, &checkout.root)?;
    let change = checkout.change(&args.base)?;
    let plan = Plan::make(checkout, change, manifests);
    if args.dry_run || plan.is_empty() {
        // The server refuses what a cluster would refuse; nothing runs, so nothing is isolated.
        World::new(&plan, pawl_runner::Isolation::default()).await?;
        match args.output {
            Output::Text => plan.say(say),
            Output::Json => say.line(&serde_json::to_string_pretty(&plan.json())?),
        }
        return Ok(code(!plan.has_malformed()));
    }
    let world = World::new(&plan, world::isolation().await?).await?;
    let at_once = args.jobs.or_else(|| Some(std::thread::available_parallelism().ok()?.get()));
    let mut schedule = Schedule::new(&plan.verdicts, &plan.manifests.templates, at_once.unwrap_or(1));
    let mut progress = Progress::new(Stderr);
    progress.begin(&plan);
    let stopping = stop::requested()?;
    let logs = tempfile::Builder::new().prefix("pawl-run-").tempdir().context("make a directory for logs")?;
    let failures = world.run(&plan, &mut schedule, &mut progress, logs.path(), stopping.clone()).await?;
    match args.output {
        Output::Text => report::say(&schedule, &plan, &failures, say),
        Output::Json => {
            say.line(&serde_json::to_string_pretty(&report::json(&schedule, &plan, &failures))?);
        }
    }
    if args.keep {
        Stderr.line(&format!("logs are kept in {}", logs.keep().display()));
    }
    if stopping.is_requested() {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(code(schedule.succeeded() && !plan.has_malformed()))
}

fn code(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
