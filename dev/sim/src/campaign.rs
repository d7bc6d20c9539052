//! Many runs: seeds in, a report out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::fault::{self, Fault, Injection};
use crate::inner::{self, Run, Setup};
use crate::mutant::Guards;
use crate::oracle::{self, Oracle, Summary, Violation};
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
        write!(f, "  replay: pawl-dev sim{outer} --scenario {} --seed {} --trace", self.scenario, self.seed)
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
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inner => "inner",
            Self::Outer => "outer",
        }
    }

    pub fn run(self, scenario: &Scenario, setup: &Setup, base: Option<&Summary>) -> Run {
        match self {
            Self::Inner => inner::run(scenario, setup, base),
            Self::Outer => outer::run(scenario, setup, base),
        }
    }
}

/// What many runs came to.
#[derive(Debug, Default)]
pub struct Report {
    pub runs: u64,
    pub took: Duration,
    pub failure: Option<Failure>,
    /// The last run's, if traces were to be kept.
    pub trace: Vec<String>,
    /// The hash of every run's trace, by its seed; 0 is the run without faults.
    pub hashes: BTreeMap<u64, String>,
}

/// The run without faults that all others of the scenario are compared with.
///
/// # Errors
/// When even that one breaks a promise.
pub fn base(simulator: Simulator, scenario: &Scenario) -> Result<Run, Box<Run>> {
    let run = simulator.run(scenario, &Setup { keep_trace: true, ..Setup::plain() }, None);
    if run.violations.is_empty() { Ok(run) } else { Err(Box::new(run)) }
}

/// What a seed means for a scenario: how many replicas, and which faults.
pub fn setup(seed: u64, requests: u32, guards: Guards) -> Setup {
    let mut rng = fastrand::Rng::with_seed(seed);
    let replicas = rng.usize(1..=2);
    let faults = fault::draw(&mut rng, requests);
    Setup { seed, replicas, faults, guards, keep_trace: false, meanwhile: None }
}

/// Runs a scenario for each seed, on all cores, until one fails. Which one is reported does not depend on who was faster:
/// it is the first in order.
pub fn seeds(
    simulator: Simulator,
    scenario: &Scenario,
    seeds: std::ops::RangeInclusive<u64>,
    guards: Guards,
    keep_trace: bool,
) -> Report {
    let start = Instant::now();
    let mut report = Report::default();
    match base(simulator, scenario) {
        Err(run) => report.failure = Some(plain_failure(simulator, scenario, *run)),
        Ok(Run { summary: base, requests, trace_hash, .. }) => {
            let setup = |seed| Setup { keep_trace, ..setup(seed, requests, guards) };
            let search = Search {
                next: AtomicU64::new(*seeds.start()),
                hashes: Mutex::new(BTreeMap::from([(0, trace_hash)])),
                found: Mutex::new(None),
            };
            let last = *seeds.end();
            let work = || search.work(last, |seed| simulator.run(scenario, &setup(seed), Some(&base)));
            let threads = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
            std::thread::scope(|scope| {
                for _ in 1..threads.min(usize::try_from(last - seeds.start()).unwrap_or(threads)) {
                    scope.spawn(work);
                }
                report.trace = work();
            });
            report.hashes = search.hashes.into_inner().unwrap_or_else(PoisonError::into_inner);
            // But for the one without faults.
            report.runs = report.hashes.len() as u64 - 1;
            let found = search.found.into_inner().unwrap_or_else(PoisonError::into_inner);
            report.failure =
                found.map(|(seed, oracle)| minimized(simulator, scenario, &setup(seed), &base, oracle));
        }
    }
    report.took = start.elapsed();
    report
}

/// Even the run without faults breaks a promise.
fn plain_failure(simulator: Simulator, scenario: &Scenario, run: Run) -> Failure {
    let Run { violations, trace, .. } = run;
    Failure { simulator, scenario: scenario.name, seed: 0, replicas: 1, faults: vec![], violations, trace }
}

/// Runs with one crash each.
#[derive(Clone, Copy, Debug)]
pub struct Crashes {
    pub seed: u64,
    pub replicas: usize,
    /// The first request after which the process dies, and how far the next one is.
    pub first: u32,
    pub stride: usize,
}

impl Default for Crashes {
    fn default() -> Self {
        Self { seed: 0, replicas: 1, first: 0, stride: 1 }
    }
}

/// Runs a scenario once for each of its requests, with a crash right after that request, until one fails. The crash changes
/// neither what is done nor how often.
pub fn crashes(scenario: &Scenario, crashes: &Crashes) -> Report {
    let start = Instant::now();
    let mut report = Report::default();
    let simulator = Simulator::Inner;
    let Crashes { seed, replicas, first, stride } = *crashes;
    let plain = Setup { seed, replicas, ..Setup::plain() };
    let base = match base(simulator, scenario) {
        Ok(base) => base.summary,
        Err(run) => {
            report.failure = Some(plain_failure(simulator, scenario, *run));
            return report;
        }
    };
    let crash = |at: u32, keep_trace: bool| {
        let faults = vec![Injection { at, fault: Fault::CrashAfter }];
        let mut run = simulator.run(scenario, &Setup { faults, keep_trace, ..plain.clone() }, Some(&base));
        if !scenario.is_race() {
            run.violations.extend(oracle::same_amount(&base, &run.summary));
        }
        run
    };
    let requests = simulator.run(scenario, &plain, None).requests;
    let chosen: Vec<u32> = (first..requests).step_by(stride.max(1)).collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeSet::new()));
    let found_first = || found.lock().unwrap_or_else(PoisonError::into_inner).first().copied();
    let work = || {
        while let Some(at) = chosen.get(next.fetch_add(1, Ordering::Relaxed)).copied() {
            if found_first().is_some_and(|first| first < at) {
                return;
            }
            if !crash(at, false).violations.is_empty() {
                found.lock().unwrap_or_else(PoisonError::into_inner).insert(at);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    report.runs = chosen.len() as u64;
    report.failure = found_first().map(|at| {
        let Run { violations, trace, .. } = crash(at, true);
        let faults = vec![Injection { at, fault: Fault::CrashAfter }];
        Failure { simulator, scenario: scenario.name, seed, replicas, faults, violations, trace }
    });
    report.took = start.elapsed();
    report
}

/// What the threads of a campaign share.
struct Search {
    next: AtomicU64,
    hashes: Mutex<BTreeMap<u64, String>>,
    /// The first seed that failed, and the promise it broke.
    found: Mutex<Option<(u64, Oracle)>>,
}

impl Search {
    /// Takes seeds until none is left, or one before them has failed. Returns the last run's trace.
    fn work(&self, last: u64, run: impl Fn(u64) -> Run) -> Vec<String> {
        let mut trace = Vec::new();
        loop {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            let found = self.found();
            if seed > last || found.is_some_and(|(first, _)| first < seed) {
                return trace;
            }
            let run = run(seed);
            let mut hashes = self.hashes.lock().unwrap_or_else(PoisonError::into_inner);
            hashes.insert(seed, run.trace_hash);
            drop(hashes);
            trace = run.trace;
            if let Some(violation) = run.violations.first() {
                let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
                if found.is_none_or(|(first, _)| seed < first) {
                    *found = Some((seed, violation.oracle));
                }
            }
        }
    }

    fn found(&self) -> Option<(u64, Oracle)> {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
