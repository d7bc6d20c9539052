//! Many runs: seeds in, a report out.

use std::fmt;
use std::time::{Duration, Instant};

use crate::fault::{self, Injection};
use crate::inner::{self, Run, Setup};
use crate::mutant::Guards;
use crate::oracle::{Oracle, Summary, Violation};
use crate::scenario::Scenario;

/// A run that broke a promise, made as small as it goes.
#[derive(Debug)]
pub struct Failure {
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
        write!(f, "  replay: pawl sim --scenario {} --seed {} --trace", self.scenario, self.seed)
    }
}

/// What many runs came to.
#[derive(Debug)]
pub struct Report {
    pub runs: u64,
    pub took: Duration,
    pub failure: Option<Failure>,
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
pub fn base(scenario: &Scenario) -> Result<(Summary, u32), Vec<Violation>> {
    let Run { summary, violations, requests, .. } = inner::run(scenario, &Setup::plain(), None);
    if violations.is_empty() { Ok((summary, requests)) } else { Err(violations) }
}

/// What a seed means for a scenario: how many replicas, and which faults.
pub fn setup(seed: u64, requests: u32, guards: Guards) -> Setup {
    let mut rng = fastrand::Rng::with_seed(seed);
    let replicas = rng.usize(1..=2);
    let faults = fault::draw(&mut rng, requests);
    Setup { seed, replicas, faults, guards, keep_trace: false }
}

/// Runs a scenario for each seed until one fails.
pub fn seeds(scenario: &Scenario, seeds: impl IntoIterator<Item = u64>, guards: Guards) -> Report {
    let start = Instant::now();
    let mut runs = 0;
    let (base, requests) = match base(scenario) {
        Ok(base) => base,
        Err(violations) => {
            let setup = Setup { keep_trace: true, ..Setup::plain() };
            let trace = inner::run(scenario, &setup, None).trace;
            let failure =
                Failure { scenario: scenario.name, seed: 0, replicas: 1, faults: vec![], violations, trace };
            return Report { runs: 1, took: start.elapsed(), failure: Some(failure) };
        }
    };
    for seed in seeds {
        let setup = setup(seed, requests, guards);
        let run = inner::run(scenario, &setup, Some(&base));
        runs += 1;
        if let Some(first) = run.violations.first() {
            let failure = minimized(scenario, setup, &base, first.oracle);
            return Report { runs, took: start.elapsed(), failure: Some(failure) };
        }
    }
    Report { runs, took: start.elapsed(), failure: None }
}

/// Leaves out faults while the same promise is still broken.
fn minimized(scenario: &Scenario, setup: Setup, base: &Summary, broken: Oracle) -> Failure {
    let again = |faults: &[Injection], keep_trace: bool| {
        let setup = Setup { faults: faults.to_vec(), keep_trace, ..setup.clone() };
        inner::run(scenario, &setup, Some(base))
    };
    let faults = fault::minimize(setup.faults.clone(), |faults| {
        again(faults, false).violations.iter().any(|violation| violation.oracle == broken)
    });
    let Run { violations, trace, .. } = again(&faults, true);
    let (seed, replicas) = (setup.seed, setup.replicas);
    Failure { scenario: scenario.name, seed, replicas, faults, violations, trace }
}
