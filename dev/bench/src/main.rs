//! `pawl-dev`: simulators and benchmarks. For those who work on Pawl; it is not shipped.

mod bench;
mod sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use pawl_cli::terminal::Stdout;

/// jemalloc, as `pawl` has it: what is measured is what is shipped.
#[cfg(not(target_env = "msvc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Simulators and benchmarks of Pawl.
#[derive(Debug, Parser)]
#[command(name = "pawl-dev", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run simulated worlds under faults, and say which seed broke a promise.
    Sim(sim::Args),
    /// Measure how fast things are.
    Bench(bench::Args),
}

fn main() -> ExitCode {
    pawl_cli::start("pawl-dev", || match Cli::parse().command {
        Command::Sim(args) => sim::run(&args, &mut Stdout),
        Command::Bench(args) => bench::run(args, &mut Stdout).map(|()| ExitCode::SUCCESS),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_one_that_can_be_parsed() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
