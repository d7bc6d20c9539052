//! Many runs: seeds in, a report out.

use std::fmt;
use std::time::{Duration, Instant};

use crate::fault::{self, Injection};
use crate::inner::{self, Run, Setup};
use crate::mutant::Guards;
use crate::oracle::{Oracle, Summary, Violation};
use crate::outer;
use crate::scenario::Scenario;

/// A run that broke a promise, made as small as it goes.
#[derive(Debug)]
pub struct Failure {
    pub simulator: Simulator,
    pub scenario: &'static str,
    pub seed: u64,
    pub replicas: usize,
    pub faults: Vec<Injection>,
    pub violations: Vec<Violation>,
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} with seed {} and {} replica(s):", self.scenario, self.seed, self.replicas)?;
        for violation in &self.violations {
            writeln!(f, "  {violation}")?;
        }
        writeln!(f, "  it takes {} fault(s):", self.faults.len())?;
        for injection in &self.faults {
            writeln!(f, "    {injection}")?;
        }
        let outer = if self.simulator == Simulator::Outer { " --outer" } else { "" };
        write!(f, "  replay: pawl sim{outer} --scenario {} --seed {} --trace", self.scenario, self.seed)
    }
}

/// Which of the two simulators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simulator {
    /// The machines alone, without a runtime.
    Inner,
    /// The real loop, under a paused clock.
    Outer,
}

impl Simulator {
    pub fn run(self, scenario: &Scenario, setup: &Setup, base: Option<&Summary>) -> Run {
        match self {
            Self::Inner => inner::run(scenario, setup, base),
            Self::Outer => outer::run(scenario, setup, base),
        }
    }
}

/// What many runs came to.
#[derive(Debug)]
pub struct Report {
    pub runs: u64,
    pub took: Duration,
    pub failure: Option<Failure>,
    /// The last run's, if traces were to be kept.
    pub trace: Vec<String>,
}

impl Report {
    pub fn runs_per_second(&self) -> f64 {
        self.runs as f64 / self.took.as_secs_f64().max(f64::EPSILON)
    }
}

/// The run without faults that all others of the scenario are compared with.
///
/// # Errors
/// When even that one breaks a promise.
pub fn base(simulator: Simulator, scenario: &Scenario) -> Result<(Summary, u32), Box<Run>> {
    let run = simulator.run(scenario, &Setup { keep_trace: true, ..Setup::plain() }, None);
    if run.violations.is_empty() { Ok((run.summary, run.requests)) } else { Err(Box::new(run)) }
}

/// What a seed means for a scenario: how many replicas, and which faults.
pub fn setup(seed: u64, requests: u32, guards: Guards) -> Setup {
    let mut rng = fastrand::Rng::with_seed(seed);
    let replicas = rng.usize(1..=2);
    let faults = fault::draw(&mut rng, requests);
    Setup { seed, replicas, faults, guards, keep_trace: false }
}

/// Runs a scenario for each seed until one fails.
pub fn seeds(
    simulator: Simulator,
    scenario: &Scenario,
    seeds: impl IntoIterator<Item = u64>,
    guards: Guards,
    keep_trace: bool,
) -> Report {
    let start = Instant::now();
    let mut report = Report { runs: 0, took: Duration::ZERO, failure: None, trace: Vec::new() };
    match base(simulator, scenario) {
        Err(run) => {
            let Run { violations, trace, .. } = *run;
            let (scenario, faults) = (scenario.name, vec![]);
            report.failure =
                Some(Failure { simulator, scenario, seed: 0, replicas: 1, faults, violations, trace });
        }
        Ok((base, requests)) => {
            for seed in seeds {
                let setup = Setup { keep_trace, ..setup(seed, requests, guards) };
                let run = simulator.run(scenario, &setup, Some(&base));
                report.runs += 1;
                report.trace = run.trace;
                if let Some(first) = run.violations.first() {
                    report.failure = Some(minimized(simulator, scenario, &setup, &base, first.oracle));
                    break;
                }
            }
        }
    }
    report.took = start.elapsed();
    report
}

/// Leaves out faults while the same promise is still broken.
fn minimized(
    simulator: Simulator,
    scenario: &Scenario,
    setup: &Setup,
    base: &Summary,
    broken: Oracle,
) -> Failure {
    let again = |faults: &[Injection], keep_trace: bool| {
        let setup = Setup { faults: faults.to_vec(), keep_trace, ..setup.clone() };
        simulator.run(scenario, &setup, Some(base))
    };
    let faults = fault::minimize(setup.faults.clone(), |faults| {
        again(faults, false).violations.iter().any(|violation| violation.oracle == broken)
    });
    let Run { violations, trace, .. } = again(&faults, true);
    let (seed, replicas) = (setup.seed, setup.replicas);
    Failure { simulator, scenario: scenario.name, seed, replicas, faults, violations, trace }
}

/// The rights that a scenario's machines use over some seeds.
pub fn rights(
    simulator: Simulator,
    scenario: &Scenario,
    seeds: impl IntoIterator<Item = u64>,
) -> std::collections::BTreeSet<inner::Used> {
    let run = |setup: Setup| simulator.run(scenario, &setup, None).used;
    let plain = simulator.run(scenario, &Setup::plain(), None);
    let requests = plain.requests;
    seeds
        .into_iter()
        .flat_map(|seed| run(setup(seed, requests, Guards::default())))
        .chain(plain.used)
        .collect()
}
