//! The only place that writes to the terminal.

use std::io::Write as _;

/// Somewhere to say a line: the terminal, or a test's list.
pub(crate) trait Say: Send {
    fn line(&mut self, line: &str);
}

/// Standard output. Whoever closes it early (`| head`) ends the program quietly.
#[derive(Debug)]
pub(crate) struct Stdout;

impl Say for Stdout {
    fn line(&mut self, line: &str) {
        if writeln!(std::io::stdout(), "{line}").is_err() {
            std::process::exit(0);
        }
    }
}

/// Says why the program failed.
pub(crate) fn complain(problem: &str) {
    // Nobody is left to tell if this fails.
    let _ = writeln!(std::io::stderr(), "pawl: {problem}");
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
