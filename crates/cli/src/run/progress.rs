//! What does a person see while Jobs run?
//!
//! On a terminal, each run has a line that is updated in place and stays when it is done; elsewhere (a file, a build
//! server) a line says when a run starts and when it ends. All of it goes to standard error: standard output is the
//! result's.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use pawl_api::git::WorkflowPhase;
use pawl_api::meta::Phase as _;

use super::plan::Plan;
use super::schedule::{Outcome, Run, Schedule, State};
use crate::terminal::{Say, Stderr, printable};

/// How often a line on a terminal is brought up to date: seconds are shown in tenths.
pub(super) const REFRESH: Duration = Duration::from_millis(100);

/// More lines than this are not moved about: they must fit on the smallest terminal, which has 24.
const MAX_MOVING: usize = 16;

/// Back to the first of `n` lines, and everything from there on gone.
fn erase(lines: usize) -> String {
    if lines == 0 { String::new() } else { format!("\x1b[{lines}F\x1b[0J") }
}

/// Lines that are too long are cut by the terminal, not wrapped: a wrapped one would be two to erase.
const NO_WRAP: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";

#[derive(Debug)]
pub(super) struct Progress {
    out: Stderr,
    live: bool,
    /// What was last shown of each run.
    shown: Vec<Seen>,
    /// How many lines stand below what stays.
    moving: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Waiting,
    Running,
    Done,
}

impl Progress {
    pub(super) fn new(out: Stderr) -> Self {
        Self { live: out.is_terminal(), out, shown: Vec::new(), moving: 0 }
    }

    /// Whether time passing is shown.
    pub(super) fn is_live(&self) -> bool {
        self.live
    }

    pub(super) fn begin(&mut self, plan: &Plan) {
        self.out.line(&plan.headline());
        for verdict in plan.verdicts.iter().filter(|verdict| verdict.targets.is_empty()) {
            let why = printable(&verdict.to_string());
            self.out.line(&format!("{} does not run: {why}", verdict.template));
        }
    }

    /// Shows how it stands now.
    pub(super) fn show(&mut self, schedule: &Schedule, now: Instant) {
        let mut text = String::new();
        if self.live {
            text.push_str(&erase(self.moving));
            text.push_str(NO_WRAP);
        }
        self.shown.resize(schedule.runs().len(), Seen::Waiting);
        for (run, shown) in schedule.runs().iter().zip(&mut self.shown) {
            let (seen, line) = match &run.state {
                State::Waiting => (Seen::Waiting, None),
                State::Running { .. } => (Seen::Running, (!self.live).then(|| started(run))),
                State::Done(outcome) => (Seen::Done, Some(ended(run, outcome))),
            };
            if std::mem::replace(shown, seen) != seen {
                text.extend(line.map(|line| line + "\n"));
            }
        }
        if self.live {
            self.moving = moving(schedule, now, &mut text);
            text.push_str(WRAP);
        }
        if !text.is_empty() {
            self.out.draw(&text);
        }
    }
}

/// Adds the lines that will change; returns how many.
fn moving(schedule: &Schedule, now: Instant, text: &mut String) -> usize {
    let mut lines = 0;
    for (run, since) in schedule.running().take(MAX_MOVING) {
        let seconds = now.saturating_duration_since(since).as_secs_f64();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "… {} {} {seconds:.1}s", run.template, printable(&run.path));
        lines += 1;
    }
    let waiting = schedule.runs().iter().filter(|run| run.state == State::Waiting).count();
    let more = schedule.running().count().saturating_sub(MAX_MOVING);
    let rest = match (more, waiting) {
        (0, 0) => return lines,
        (0, waiting) => format!("  {waiting} waiting"),
        (more, waiting) => format!("  {more} more running, {waiting} waiting"),
    };
    let _ = writeln!(text, "{rest}");
    lines + 1
}

fn started(run: &Run) -> String {
    format!("{} {} started", run.template, printable(&run.path))
}

fn ended(run: &Run, outcome: &Outcome) -> String {
    let after = outcome.took.map(|took| format!(" after {}", seconds(took))).unwrap_or_default();
    let why = match outcome.end.phase {
        WorkflowPhase::Succeeded => String::new(),
        WorkflowPhase::Failed
        | WorkflowPhase::Cancelled
        | WorkflowPhase::Pending
        | WorkflowPhase::Running => format!(": {}", printable(&outcome.end.message)),
    };
    format!("{} {} {}{after}{why}", run.template, printable(&run.path), outcome.end.phase.as_str())
}

/// As people read it.
pub(super) fn seconds(took: Duration) -> String {
    let all = took.as_secs();
    if all < 60 {
        return format!("{:.1}s", took.as_secs_f64());
    }
    format!("{}m{:02}s", all / 60, all % 60)
}
