//! How is a story told that `pawl explain` tells, whatever it is about?

use std::fmt::Write as _;

use pawl_api::meta::gate::Verdict;
use pawl_api::meta::{Condition, Gate};

/// Something that happened to an object, as an Event tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happened {
    /// For people: a time of day, or an age.
    pub when: String,
    /// Whom it happened to, where that is another object than the one that is told of.
    pub about: String,
    pub reason: String,
    pub note: String,
}

/// So many of them, as people say it.
pub fn counted(count: impl Into<i64>, one: &str, many: &str) -> String {
    let count = count.into();
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Of whom an approval must be; nothing where anybody's counts.
pub fn of_groups(groups: &[String]) -> String {
    if groups.is_empty() { String::new() } else { format!(" of {}", groups.join(", ")) }
}

/// Lines, in the order in which they are told.
#[derive(Debug, Default)]
pub(crate) struct Story {
    pub(crate) text: String,
}

impl Story {
    pub(crate) fn line(&mut self, words: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{words}");
    }

    pub(crate) fn heading(&mut self, words: &str) {
        self.line(format_args!("\n{words}"));
    }

    pub(crate) fn item(&mut self, name: &str, words: &str) {
        self.line(format_args!("  {name}  {words}"));
    }

    /// Where it is, and why.
    pub(crate) fn phase(&mut self, phase: Option<&str>, reason: Option<&str>, message: Option<&str>) {
        let Some(phase) = phase else { return self.line(format_args!("has not been looked at yet")) };
        let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        let message = message.map(|said| format!(": {said}")).unwrap_or_default();
        self.line(format_args!("is {phase}{reason}{message}"));
    }

    pub(crate) fn gates(&mut self, gates: &[Gate]) {
        if gates.is_empty() {
            return;
        }
        self.heading("gates");
        for Gate { gate, verdict, reason, looked_at, would_change } in gates {
            let verdict = match verdict {
                Verdict::Passed => "passed ",
                Verdict::Waiting => "waits  ",
                Verdict::Stopped => "stopped",
            };
            let change = if would_change.is_empty() {
                String::new()
            } else {
                format!("; it would go on with {would_change}")
            };
            self.line(format_args!("  {verdict} {gate:?} ({reason}): {looked_at}{change}"));
        }
    }

    pub(crate) fn conditions(&mut self, conditions: &[Condition]) {
        if conditions.is_empty() {
            return;
        }
        self.heading("conditions");
        for one in conditions {
            self.line(format_args!("  {}={} ({}): {}", one.type_, one.status, one.reason, one.message));
        }
    }

    pub(crate) fn happened(&mut self, happened: &[Happened]) {
        if happened.is_empty() {
            return;
        }
        self.heading("what happened");
        for Happened { when, about, reason, note } in happened {
            let about = if about.is_empty() { String::new() } else { format!("{about}: ") };
            self.line(format_args!("  {when}  {about}{reason}: {note}"));
        }
    }
}
