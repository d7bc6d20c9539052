//! The executable `pawl`: parse, then call.
//!
//! A library, so that `pawl-dev` can measure what `pawl` runs. Its public modules are what those measurements are made of;
//! [`main`] is the executable.

mod act;
mod approve;
mod audit;
mod audit_keeping;
mod bundles;
mod cancel;
pub mod cluster;
mod container;
mod crds;
mod demo;
pub mod doors;
mod explain;
mod install;
mod locks;
pub mod logging;
pub mod loopback;
mod match_paths;
mod operate;
mod operator;
mod policy;
pub mod ports;
mod rbac;
mod rollback;
mod run;
pub mod stop;
pub mod terminal;
mod tree;
mod uninstall;
pub mod up;
mod webhook;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use pawl_api::pawl::approval::Decision;

use crate::operate::Operation;
use crate::terminal::Stdout;

/// One control plane for changes to Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "pawl", version, propagate_version = true, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the CustomResourceDefinitions of all kinds.
    Crds(crds::Args),
    /// Run the controllers against a cluster.
    Operator(operator::Args),
    /// Print what a cluster needs: CRDs, permissions, admission policies, the Deployment.
    Install(InstallArgs),
    /// Take Pawl off a cluster: release finalizers, then remove everything that `install` printed.
    Uninstall(UninstallArgs),
    /// Run a control plane on this machine: API server, storage, controllers, and a node for Jobs.
    Up(up::Args),
    /// Be somebody on the GitHub of `up --demo`: push, open a pull request, comment, see check runs.
    Demo(demo::Args),
    /// Show who did what and what came of it, and check that the record is what was written.
    Audit(audit::Args),
    /// Say why something ran, or did not.
    Explain(explain::Args),
    /// Say who holds which target, since when, and who waits for it.
    Locks(locks::ListArgs),
    /// Take a target's lock away from whoever holds it: the last resort, recorded with your name.
    Unlock(locks::UnlockArgs),
    /// Let a workflow run again on a target after it failed there, once somebody has looked at it.
    ClearBlock(locks::ClearArgs),
    /// Stop a WorkflowExecution, a KubernetesExecution or a RemediationRequest.
    Cancel(cancel::Args),
    /// Say yes to an action, once you have seen what it would do.
    Approve(approve::Args),
    /// Say no to an action.
    Reject(approve::Args),
    /// Take an action back: what undoes it passes the same gates, and is refused if its target changed since.
    Rollback(rollback::Args),
    /// Say that an action will not be taken back.
    Finalize(rollback::Args),
    /// Show the objects below an Installation, and what each of them waits for.
    Tree(tree::Args),
    /// Start a job: everything in the tree is brought to what it should be.
    Reconcile(operate::Args),
    /// End the job that runs, here and below.
    Interrupt(operate::Args),
    /// Print the paths that a template's pattern matches.
    Match(match_paths::Args),
    Run(run::Args),
    /// Ask policies, and compare what they say with fixtures.
    Policy(policy::Args),
    /// Print what a cluster needs so that actions can be carried out with no more rights than each needs.
    Rbac(rbac::Args),
    /// Run beside the image of a container item: for Pods that Pawl makes.
    #[command(hide = true)]
    Container(container::Args),
    /// Carry out the action of a KubernetesExecution: for Pods that Pawl makes.
    #[command(hide = true)]
    Act(act::Args),
}

#[derive(Debug, clap::Args)]
struct InstallArgs {
    /// Print the manifests, for `kubectl apply -f -`.
    #[arg(long, required = true)]
    print: bool,
    #[command(flatten)]
    choices: install::Choices,
}

#[derive(Debug, clap::Args)]
struct UninstallArgs {
    /// The cluster's kubeconfig; without it, the usual places.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Deletes every object of Pawl's kinds: say that this is meant.
    #[arg(long, required = true)]
    yes: bool,
    #[command(flatten)]
    choices: install::Choices,
}

/// The executable `pawl`.
pub fn main() -> ExitCode {
    start("pawl", || run(Cli::parse().command))
}

/// Starts an executable of ours: `run` is its command line, unless it was started by itself, as the first process of a
/// container or as a worker that evaluates policies.
pub fn start(program: &str, run: impl FnOnce() -> anyhow::Result<ExitCode>) -> ExitCode {
    // A container's first process: it enters its namespaces before there is any thread.
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments.peek().is_some_and(|first| first == "run-container") {
        return pawl_runner::init_main(arguments);
    }
    // A worker that evaluates policies: it needs nothing of what follows, and has it not to lose.
    if arguments.peek().is_some_and(|first| first == pawl_policy::WORKER) {
        return pawl_policy::worker_main();
    }
    // First thing, before anything can open a TLS connection: one provider for all of them.
    let installed = rustls::crypto::ring::default_provider().install_default();
    debug_assert!(installed.is_ok(), "nothing installs a TLS provider before main");
    match run() {
        Ok(code) => code,
        Err(error) => {
            terminal::complain(program, &format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Crds(args) => crds::run(&args, &mut Stdout)?,
        Command::Operator(args) => controllers_runtime()?.block_on(operator::run(args))?,
        Command::Install(InstallArgs { print: _, choices }) => {
            install::manifests(&choices)?
                .iter()
                .try_for_each(|manifest| crds::document(manifest, &mut Stdout))?;
        }
        Command::Uninstall(UninstallArgs { kubeconfig, yes: _, choices }) => runtime()?.block_on(async {
            let client = cluster::for_controllers(kubeconfig.as_deref()).await?;
            uninstall::run(client, &choices, &mut Stdout).await
        })?,
        Command::Up(args) => runtime()?.block_on(up::run(args, &mut Stdout))?,
        Command::Demo(args) => runtime()?.block_on(demo::run(&args, &mut Stdout))?,
        Command::Audit(args) => return runtime()?.block_on(audit::run(&args, &mut Stdout)),
        Command::Explain(args) => runtime()?.block_on(explain::run(&args, &mut Stdout))?,
        Command::Locks(args) => runtime()?.block_on(locks::list(&args, &mut Stdout))?,
        Command::Unlock(args) => runtime()?.block_on(locks::unlock(&args, &mut Stdout))?,
        Command::ClearBlock(args) => runtime()?.block_on(locks::clear_block(&args, &mut Stdout))?,
        Command::Cancel(args) => runtime()?.block_on(cancel::run(&args, &mut Stdout))?,
        Command::Approve(args) => {
            runtime()?.block_on(approve::run(&args, Decision::Approve, &mut Stdout))?;
        }
        Command::Reject(args) => runtime()?.block_on(approve::run(&args, Decision::Reject, &mut Stdout))?,
        Command::Rollback(args) => runtime()?.block_on(rollback::roll_back(&args, &mut Stdout))?,
        Command::Finalize(args) => runtime()?.block_on(rollback::finalize(&args, &mut Stdout))?,
        Command::Tree(args) => runtime()?.block_on(tree::run(&args, &mut Stdout))?,
        Command::Reconcile(args) => {
            runtime()?.block_on(operate::run(&args, Operation::Reconcile, &mut Stdout))?;
        }
        Command::Interrupt(args) => {
            runtime()?.block_on(operate::run(&args, Operation::Interrupt, &mut Stdout))?;
        }
        Command::Match(args) => return match_paths::run(&args, &mut std::io::stdin(), &mut Stdout),
        Command::Run(args) => return runtime()?.block_on(run::run(args, &mut Stdout)),
        Command::Policy(args) => return runtime()?.block_on(policy::run(&args, &mut Stdout)),
        Command::Rbac(args) => rbac::run(&args, &mut Stdout)?,
        Command::Act(args) => return runtime()?.block_on(act::run(&args, &mut Stdout)),
        Command::Container(args) => runtime()?.block_on(container::run(&args))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// For everything but controllers alone.
pub fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// For controllers without a server beside them. They wait for answers far longer than they think: a thread that is woken to
/// take some of it over costs more than it takes, so there are half as many as processors.
pub fn controllers_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let threads = std::thread::available_parallelism().map_or(1, |processors| processors.get().div_ceil(2));
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?)
}

#[cfg(test)]
mod tests;
