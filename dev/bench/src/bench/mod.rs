//! `pawl-dev bench`: how fast is it, measured by a program that anyone can run?
//!
//! | file | question |
//! |---|---|
//! | `api` | what is measured of an API server, and on which objects? |
//! | `audit` | how fast does the ledger take rows, and how fast are they found again? |
//! | `deploy` | how fast does the deploy door run Installations and items? |
//! | `remedy` | how fast does the remedy door run WorkflowExecutions, and what does that cost? |
//! | `client` | how does a request reach the server at the least cost to the machine both share? |
//! | `load` | how fast are requests answered when some connections send them back to back? |
//! | `watchers` | how long after a write do those who watch know? |
//! | `process` | what did the server's process use? |
//! | `policy` | how fast does policy answer, here and in a worker? |
//! | `report` | how are the rows told? |
//! | `git` | how fast does a push become concluded check runs, and what does that cost? |

mod api;
mod audit;
mod client;
mod deploy;
mod git;
mod load;
mod policy;
mod process;
mod remedy;
mod report;
mod watchers;

use pawl_cli::terminal::Say;
use pawl_cli::up;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Measure any Kubernetes API server: writes, reads, lists, watches, and what they cost it.
    Api(api::Args),
    /// Measure the git door: pushes, Workflows, check runs, and what they cost the controllers.
    Git(git::Args),
    /// The controllers alone: `bench git` and `bench remedy` start it beside themselves.
    #[command(hide = true)]
    Controllers(git::controllers::Args),
    /// `pawl up`: `bench git` starts it beside itself.
    #[command(hide = true)]
    Up(Box<up::Args>),
    /// Measure the deploy door: Installations, wide Executions, full namespaces.
    Deploy(deploy::Args),
    /// Measure the remedy door: WorkflowExecutions with Jobs that end at once.
    Remedy(remedy::Args),
    /// Measure the audit ledger: appending, queries, verification.
    Audit(audit::Args),
    /// Measure policy: evaluations of the built-in one, here and in worker processes.
    Policy(policy::Args),
}

pub(crate) fn run(args: Args, say: &mut dyn Say) -> anyhow::Result<()> {
    match args.what {
        // On one thread: client and server share the machine, and what the client does not use the server can.
        What::Api(args) => one_thread()?.block_on(api::run(&args, say)),
        What::Audit(args) => one_thread()?.block_on(audit::run(&args, say)),
        What::Git(args) => pawl_cli::runtime()?.block_on(git::run(&args, say)),
        What::Controllers(args) => {
            pawl_cli::controllers_runtime()?.block_on(git::controllers::run(&args, say))
        }
        What::Up(args) => pawl_cli::runtime()?.block_on(up::run(*args, say)),
        What::Remedy(args) => pawl_cli::runtime()?.block_on(remedy::run(&args, say)),
        What::Policy(args) => pawl_cli::runtime()?.block_on(policy::run(&args, say)),
        What::Deploy(args) => pawl_cli::runtime()?.block_on(deploy::run(&args, say)),
    }
}

fn one_thread() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
