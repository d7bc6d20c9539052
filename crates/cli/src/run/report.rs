//! What came of it?

use pawl_api::git::WorkflowPhase;
use pawl_api::meta::Phase as _;
use serde_json::{Value, json};

use super::plan::{Plan, is_malformed};
use super::progress::seconds;
use super::schedule::{Run, Schedule};
use crate::terminal::{Say, printable, table};

/// A container that kept its run from succeeding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FailedContainer {
    pub(super) template: String,
    pub(super) path: String,
    pub(super) container: String,
    /// What became of it, as `exited with 1`.
    pub(super) verdict: String,
    /// The end of what it wrote, without what nobody may see.
    pub(super) tail: Vec<String>,
}

/// For people: the tails first, so that the table is what is left on the screen.
pub(super) fn say(schedule: &Schedule, plan: &Plan, failed: &[FailedContainer], say: &mut dyn Say) {
    for one in failed {
        say.line("");
        let path = printable(&one.path);
        say.line(&format!(
            "{} {path}: container {} {}",
            one.template,
            one.container,
            printable(&one.verdict)
        ));
        for line in &one.tail {
            say.line(&format!("  | {}", plain(line)));
        }
    }
    say.line("");
    let runs = schedule.runs().iter().map(|run| {
        let outcome = run.outcome();
        [
            run.template.clone(),
            printable(&run.path),
            outcome.map_or("Pending", |outcome| outcome.end.phase.as_str()).to_owned(),
            outcome.and_then(|outcome| outcome.took).map_or_else(|| "-".to_owned(), seconds),
            why(run, failed),
        ]
    });
    let header = ["TEMPLATE", "PATH", "RESULT", "DURATION", ""].map(str::to_owned);
    let malformed = plan.verdicts.iter().filter(|verdict| is_malformed(verdict)).map(|verdict| {
        let why = printable(&verdict.to_string());
        [verdict.template.clone(), "-".to_owned(), "Invalid".to_owned(), "-".to_owned(), why]
    });
    for line in table(&[header].into_iter().chain(runs).chain(malformed).collect::<Vec<_>>()) {
        say.line(&line);
    }
}

/// For programs: the plan, and what came of it.
pub(super) fn json(schedule: &Schedule, plan: &Plan, failed: &[FailedContainer]) -> Value {
    let runs: Vec<Value> = schedule.runs().iter().map(|run| run_json(run, failed)).collect();
    let mut all = plan.json();
    if let Some(all) = all.as_object_mut() {
        all.insert("runs".to_owned(), runs.into());
        all.insert("succeeded".to_owned(), (schedule.succeeded() && !plan.has_malformed()).into());
    }
    all
}

fn run_json(run: &Run, failed: &[FailedContainer]) -> Value {
    let mine = failed.iter().filter(|one| one.template == run.template && one.path == run.path);
    let containers: Vec<Value> = mine
        .map(|one| json!({"container": one.container, "verdict": one.verdict, "tail": one.tail}))
        .collect();
    let outcome = run.outcome();
    json!({
        "template": run.template, "path": run.path,
        "result": outcome.map(|outcome| outcome.end.phase.as_str()),
        "reason": outcome.map(|outcome| outcome.end.reason.as_str()),
        "message": outcome.map(|outcome| outcome.end.message.as_str()),
        "durationSeconds": outcome.and_then(|outcome| outcome.took).map(|took| took.as_secs_f64()),
        "failedContainers": containers,
    })
}

/// What a container did says more than that its Job failed.
fn why(run: &Run, failed: &[FailedContainer]) -> String {
    match (run.outcome(), failed.iter().find(|one| one.template == run.template && one.path == run.path)) {
        (Some(outcome), None) if outcome.end.phase != WorkflowPhase::Succeeded => {
            printable(&outcome.end.message)
        }
        (Some(_), Some(one)) => format!("container {} {}", one.container, printable(&one.verdict)),
        (Some(_), None) | (None, _) => String::new(),
    }
}

/// A line of output without colours and other commands to a terminal.
fn plain(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\x1b' && chars.next_if_eq(&'[').is_some() {
            // Up to the letter that says what it does.
            while chars.next().is_some_and(|c| !('@'..='~').contains(&c)) {}
        } else {
            text.push(c);
        }
    }
    printable(text.trim_end_matches('\r'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_containers_cannot_command_the_terminal() {
        assert_eq!(plain("\x1b[31mred\x1b[0m\r"), "red");
        assert_eq!(plain("a\x1b]0;title\x07b"), "a\u{fffd}]0;title\u{fffd}b");
        assert_eq!(plain("\x1b["), "");
    }

    #[test]
    fn columns_line_up_whatever_is_in_them() {
        let rows = [["A", "B", ""], ["é", "longer", "why"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(&rows), ["A  B", "é  longer  why"]);
    }
}
