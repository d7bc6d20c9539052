//! What may start now, and what never will?
//!
//! A run waits for the runs of the same path of the templates that its own depends on; if one of those fails, it is
//! cancelled. At most so many run at a time. Pure: what happens outside is told to it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pawl_api::git::{WorkflowPhase, WorkflowTemplateSpec};
use pawl_api::meta::{Phase as _, Reason};
use pawl_machines::git::matching::{self, Dependencies, Verdict};

/// One template's run for one path.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) template: String,
    pub(super) path: String,
    depends_on: Vec<String>,
    pub(super) state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waiting,
    Running { since: Instant },
    Done(Outcome),
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) end: End,
    /// `None`: it never ran.
    pub(super) took: Option<Duration>,
}

/// What is told of the end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) phase: WorkflowPhase,
    pub(super) reason: String,
    pub(super) message: String,
}

impl End {
    pub(super) fn new(phase: WorkflowPhase, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { phase, reason: reason.into(), message: message.into() }
    }
}

impl Run {
    pub(super) fn outcome(&self) -> Option<&Outcome> {
        match &self.state {
            State::Done(outcome) => Some(outcome),
            State::Waiting | State::Running { .. } => None,
        }
    }

    fn phase(&self) -> Option<WorkflowPhase> {
        match &self.state {
            State::Waiting => None,
            State::Running { .. } => Some(WorkflowPhase::Running),
            State::Done(outcome) => Some(outcome.end.phase),
        }
    }
}

/// All runs, in the order in which they can be started.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    runs: Vec<Run>,
    at_once: usize,
}

impl Schedule {
    pub(super) fn new(
        verdicts: &[Verdict],
        templates: &BTreeMap<String, WorkflowTemplateSpec>,
        at_once: usize,
    ) -> Self {
        let specs = || templates.iter().map(|(name, spec)| (name.as_str(), spec));
        let run = |(template, path): (&str, &str)| Run {
            template: template.to_owned(),
            path: path.to_owned(),
            depends_on: templates.get(template).map(|spec| spec.depends_on.clone()).unwrap_or_default(),
            state: State::Waiting,
        };
        let runs = matching::stages(verdicts, specs()).into_iter().flatten().map(run).collect();
        Self { runs, at_once: at_once.max(1) }
    }

    pub(super) fn runs(&self) -> &[Run] {
        &self.runs
    }

    pub(super) fn get(&self, at: usize) -> Option<&Run> {
        self.runs.get(at)
    }

    /// Marks as running what may start now, and returns it. What waits for something that failed is done.
    pub(super) fn start(&mut self, now: Instant) -> Vec<usize> {
        let mut started = Vec::new();
        // In this order, whatever a run waits for comes before it: one pass sees everything.
        for at in 0..self.runs.len() {
            let Some(state) = self.next_state(at, now) else { continue };
            if let State::Running { .. } = state {
                started.push(at);
            }
            if let Some(run) = self.runs.get_mut(at) {
                run.state = state;
            }
        }
        started
    }

    fn next_state(&self, at: usize, now: Instant) -> Option<State> {
        let run = self.runs.get(at).filter(|run| run.state == State::Waiting)?;
        let of_the_same_path = |template: &str| {
            self.runs
                .iter()
                .find(|other| other.template == template && other.path == run.path)
                .map(Run::phase)
        };
        match matching::dependencies(run.depends_on.iter().map(String::as_str), of_the_same_path) {
            Dependencies::Met if self.running().count() < self.at_once => Some(State::Running { since: now }),
            Dependencies::Met | Dependencies::Waiting(_) => None,
            Dependencies::Failed(other) => {
                let why = format!("{other} did not succeed for {}", run.path);
                let end = End::new(WorkflowPhase::Cancelled, Reason::DependencyFailed.as_str(), why);
                Some(State::Done(Outcome { end, took: None }))
            }
        }
    }

    /// What runs, and since when.
    pub(super) fn running(&self) -> impl Iterator<Item = (&Run, Instant)> {
        self.runs.iter().filter_map(|run| match run.state {
            State::Running { since } => Some((run, since)),
            State::Waiting | State::Done(_) => None,
        })
    }

    /// A run has ended. Only its first end counts.
    pub(super) fn finish(&mut self, at: usize, now: Instant, end: End) {
        debug_assert!(end.phase.is_terminal(), "a run ends in a phase that lasts");
        let Some(run) = self.runs.get_mut(at) else { return };
        let took = match &run.state {
            State::Done(_) => return,
            State::Running { since } => Some(now.saturating_duration_since(*since)),
            State::Waiting => None,
        };
        run.state = State::Done(Outcome { end, took });
    }

    /// Nothing more will start, and what runs is stopped.
    pub(super) fn interrupt(&mut self, now: Instant) {
        for at in 0..self.runs.len() {
            let end = End::new(WorkflowPhase::Cancelled, Reason::Interrupted.as_str(), "stopped by you");
            self.finish(at, now, end);
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.runs.iter().all(|run| run.outcome().is_some())
    }

    /// Whether everything ran and went well.
    pub(super) fn succeeded(&self) -> bool {
        self.runs.iter().all(|run| run.phase() == Some(WorkflowPhase::Succeeded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pawl_machines::git::matching::ChangedFile;
    use serde_json::json;

    fn schedule(at_once: usize) -> Schedule {
        let template = |depends_on: &[&str]| -> WorkflowTemplateSpec {
            serde_json::from_value(json!({"displayName": "t", "job": {}, "match": {"paths": ["**"]},
                "dependsOn": depends_on}))
            .unwrap()
        };
        let templates = BTreeMap::from([
            ("apply".to_owned(), template(&["plan"])),
            ("lint".to_owned(), template(&[])),
            ("plan".to_owned(), template(&["lint"])),
        ]);
        let files = ["a/x", "b/x"].map(ChangedFile::new);
        let verdicts =
            matching::fan_out(&files, templates.iter().map(|(name, spec)| (name.as_str(), spec)), false);
        Schedule::new(&verdicts, &templates, at_once)
    }

    fn started(schedule: &mut Schedule) -> Vec<String> {
        let all = schedule.start(Instant::now());
        all.iter().map(|at| format!("{}:{}", schedule.runs[*at].template, schedule.runs[*at].path)).collect()
    }

    fn end(schedule: &mut Schedule, name: &str, phase: WorkflowPhase) {
        let at =
            schedule.runs.iter().position(|run| format!("{}:{}", run.template, run.path) == name).unwrap();
        schedule.finish(at, Instant::now(), End::new(phase, "", ""));
    }

    #[test]
    fn a_run_starts_when_what_it_waits_for_succeeded() {
        let mut schedule = schedule(10);
        assert_eq!(started(&mut schedule), ["lint:a", "lint:b"]);
        assert_eq!(started(&mut schedule), Vec::<String>::new());
        end(&mut schedule, "lint:b", WorkflowPhase::Succeeded);
        assert_eq!(started(&mut schedule), ["plan:b"]);
        assert!(!schedule.is_done() && !schedule.succeeded());
    }

    #[test]
    fn what_waits_for_a_failure_is_cancelled_all_the_way_down() {
        let mut schedule = schedule(10);
        started(&mut schedule);
        end(&mut schedule, "lint:a", WorkflowPhase::Failed);
        end(&mut schedule, "lint:b", WorkflowPhase::Succeeded);
        assert_eq!(started(&mut schedule), ["plan:b"]);
        let cancelled: Vec<&str> = schedule
            .runs
            .iter()
            .filter(|run| run.outcome().is_some_and(|outcome| outcome.end.reason == "DependencyFailed"))
            .map(|run| run.template.as_str())
            .collect();
        assert_eq!(cancelled, ["plan", "apply"]);
        for name in ["plan:b", "apply:b"] {
            started(&mut schedule);
            end(&mut schedule, name, WorkflowPhase::Succeeded);
        }
        assert!(schedule.is_done() && !schedule.succeeded());
    }

    #[test]
    fn no_more_run_at_once_than_allowed() {
        let mut schedule = schedule(1);
        assert_eq!(started(&mut schedule), ["lint:a"]);
        end(&mut schedule, "lint:a", WorkflowPhase::Succeeded);
        assert_eq!(started(&mut schedule), ["lint:b"]);
    }
}
