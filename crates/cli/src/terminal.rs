//! The only place that writes to the terminal.

use std::io::{IsTerminal as _, Write as _};

/// Somewhere to say a line: the terminal, or a test's list.
pub trait Say: Send {
    fn line(&mut self, line: &str);
}

/// Standard output. Whoever closes it early (`| head`) ends the program quietly.
#[derive(Debug)]
pub struct Stdout;

impl Say for Stdout {
    fn line(&mut self, line: &str) {
        if writeln!(std::io::stdout(), "{line}").is_err() {
            std::process::exit(0);
        }
    }
}

/// Standard error, for what is told on the way and is no part of the result.
#[derive(Debug)]
pub struct Stderr;

impl Stderr {
    pub(crate) fn is_terminal(&self) -> bool {
        std::io::stderr().is_terminal()
    }

    /// Writes text as it is, at once.
    pub(crate) fn draw(&mut self, text: &str) {
        // Nobody is left to tell if this fails.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}

impl Say for Stderr {
    fn line(&mut self, line: &str) {
        self.draw(&format!("{line}\n"));
    }
}

/// Text from elsewhere, for one line: nothing in it can move the cursor or hide anything (I10).
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Columns as wide as what is in them.
pub(crate) fn table<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Says why a program of ours failed.
pub(crate) fn complain(program: &str, problem: &str) {
    // Nobody is left to tell if this fails.
    let _ = writeln!(std::io::stderr(), "{program}: {problem}");
}

/// What was said, for tests to look at.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Said(pub(crate) Vec<String>);

#[cfg(test)]
impl Say for Said {
    fn line(&mut self, line: &str) {
        self.0.push(line.to_owned());
    }
}
