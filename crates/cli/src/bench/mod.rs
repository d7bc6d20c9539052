//! `pawl bench`: how fast is it, measured by a program that anyone can run?
//!
//! | file | question |
//! |---|---|
//! | `api` | what is measured of an API server, and on which objects? |
//! | `audit` | how fast does the ledger take rows, and how fast are they found again? |
//! | `client` | how does a request reach the server at the least cost to the machine both share? |
//! | `load` | how fast are requests answered when some connections send them back to back? |
//! | `watchers` | how long after a write do those who watch know? |
//! | `process` | what did the server's process use? |
//! | `report` | how are the rows told? |

mod api;
mod audit;
mod client;
mod load;
mod process;
mod report;
mod watchers;

use crate::terminal::Say;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Measure any Kubernetes API server: writes, reads, lists, watches, and what they cost it.
    Api(api::Args),
    /// Measure the audit ledger: appending, queries, verification.
    Audit(audit::Args),
}

/// Runs on one thread: client and server share the machine, and what the client does not use the server can.
pub(crate) fn run(args: &Args, say: &mut dyn Say) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match &args.what {
        What::Api(args) => runtime.block_on(api::run(args, say)),
        What::Audit(args) => runtime.block_on(audit::run(args, say)),
    }
}
