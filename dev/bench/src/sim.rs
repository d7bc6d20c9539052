//! `pawl-dev sim`: simulated worlds under faults, as many as asked for.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use pawl_cli::terminal::{Say, Stderr};
use pawl_sim::campaign::{self, Crashes, Report};
use pawl_sim::mutant::Guards;
use pawl_sim::scenario::Scenario;
use pawl_sim::{record, scenarios};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many seeds to run of each scenario.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed; with --trace, the only one.
    #[arg(long)]
    seed: Option<u64>,
    /// Only this scenario.
    #[arg(long)]
    scenario: Option<String>,
    /// Print what was sent: with --seed, every request of that run; without, the hash of each recorded run in both
    /// simulators, as dev/sim/tests/data/traces.txt has them.
    #[arg(long)]
    trace: bool,
    /// Run the real loop under a paused clock instead of the machines alone.
    #[arg(long)]
    outer: bool,
    /// Let the process die after each request in turn instead of running seeds.
    #[arg(long, conflicts_with_all = ["seed", "seeds", "trace", "outer"])]
    crashes: bool,
    /// List the scenarios.
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(args: &Args, say: &mut dyn Say) -> anyhow::Result<ExitCode> {
    let scenarios = match &args.scenario {
        None => scenarios::all(),
        Some(name) => {
            let known =
                || scenarios::all().iter().map(|scenario| scenario.name).collect::<Vec<_>>().join(", ");
            vec![
                scenarios::find(name)
                    .with_context(|| format!("--scenario {name:?} is not one of: {}", known()))?,
            ]
        }
    };
    if args.list {
        for scenario in &scenarios {
            say.line(&format!("{:<24} {}", scenario.name, scenario.about));
        }
        return Ok(ExitCode::SUCCESS);
    }
    if args.seed == Some(0) {
        bail!("--seed 0 is the run without faults that all others are compared with; use 1 or more");
    }
    let simulator = if args.outer { campaign::Simulator::Outer } else { campaign::Simulator::Inner };
    if args.trace && args.seed.is_none() {
        return Ok(hashes(args.seeds.min(record::SEEDS), &scenarios, say));
    }
    let mut failed = false;
    for scenario in &scenarios {
        failed |= one(args, simulator, scenario, say);
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Prints the record of all traces.
fn hashes(seeds: u64, scenarios: &[Scenario], say: &mut dyn Say) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for simulator in [campaign::Simulator::Inner, campaign::Simulator::Outer] {
        for scenario in scenarios {
            let report = campaign::seeds(simulator, scenario, 1..=seeds, Guards::default(), false);
            say.line(&record::line(simulator, scenario.name, &report.hashes));
            if let Some(failure) = report.failure {
                Stderr.line(&failure.to_string());
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

fn one(args: &Args, simulator: campaign::Simulator, scenario: &Scenario, say: &mut dyn Say) -> bool {
    let count = if args.trace { 1 } else { args.seeds };
    let first = args.seed.unwrap_or(1);
    let seeds = first..=first.saturating_add(count.saturating_sub(1));
    let keep_trace = args.trace;
    let Report { runs, took, failure, trace, hashes: _ } = if args.crashes {
        campaign::crashes(scenario, &Crashes::default())
    } else {
        campaign::seeds(simulator, scenario, seeds, Guards::default(), keep_trace)
    };
    // Of a run that failed, its own: it may be the one without faults.
    for line in failure.as_ref().map_or(&trace, |failure| &failure.trace).iter().filter(|_| keep_trace) {
        say.line(line);
    }
    let rate = runs as f64 / took.as_secs_f64().max(f64::EPSILON);
    let verdict = if failure.is_some() { "FAILED" } else { "ok" };
    say.line(&format!("{:<24} {verdict:<6} {runs:>7} runs {rate:>9.0} runs/s", scenario.name));
    match failure {
        None => false,
        Some(failure) => {
            say.line(&failure.to_string());
            true
        }
    }
}
