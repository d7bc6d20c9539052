//! `pawl match`: which paths does a template's pattern match?

use std::io::Read;
use std::process::ExitCode;

use anyhow::Context as _;
use pawl_machines::git::glob::Glob;

use crate::terminal::{self, Say};

/// What tells a malformed pattern from one that matches nothing (1).
const MALFORMED: u8 = 2;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// As in `spec.match.paths` of a WorkflowTemplate: `**`, `*`, `?`, `[a-z]`, `[^a]`, `{a,b}`, `\` before a
    /// character that is meant itself.
    pattern: String,
    /// The paths to look at; `-`, or none, reads them from standard input, one on each line.
    paths: Vec<String>,
    /// Paths on standard input end with a zero byte, as in `git ls-files -z | pawl match -z PATTERN -`.
    #[arg(short = 'z', long)]
    null: bool,
}

/// Prints the paths that match. The exit code is 0 if there are any, 1 if not, 2 if the pattern is malformed.
pub(crate) fn run(args: &Args, input: &mut dyn Read, say: &mut dyn Say) -> anyhow::Result<ExitCode> {
    let glob = match Glob::new(&args.pattern) {
        Ok(glob) => glob,
        Err(bad) => {
            terminal::complain("pawl", &bad.to_string());
            return Ok(ExitCode::from(MALFORMED));
        }
    };
    let mut any = false;
    let mut look = |path: &str| {
        if glob.matches(path) {
            any = true;
            say.line(path);
        }
    };
    let read_input = args.paths.is_empty();
    for path in args.paths.iter().filter(|path| *path != "-") {
        look(path);
    }
    if read_input || args.paths.iter().any(|path| path == "-") {
        let mut bytes = Vec::new();
        input.read_to_end(&mut bytes).context("read paths from standard input")?;
        let end = if args.null { 0 } else { b'\n' };
        for path in bytes.split(|byte| *byte == end).filter(|path| !path.is_empty()) {
            look(&String::from_utf8_lossy(path));
        }
    }
    Ok(if any { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::Said;

    fn check(words: &[&str], input: &str, expect: (&[&str], u8)) {
        let null = words.contains(&"-z");
        let mut words = words.iter().filter(|word| **word != "-z").map(|word| (*word).to_owned());
        let args = Args { pattern: words.next().unwrap(), paths: words.collect(), null };
        let mut said = Said::default();
        let code = run(&args, &mut input.as_bytes(), &mut said).unwrap();
        assert_eq!(said.0, expect.0);
        assert_eq!(code, ExitCode::from(expect.1));
    }

    #[test]
    fn paths_that_match_are_printed_and_the_exit_code_tells_the_rest() {
        check(&["**/*.tf", "a/b.tf", "c.md"], "", (&["a/b.tf"], 0));
        check(&["**/*.tf", "c.md"], "ignored.tf\n", (&[], 1));
        check(&["*.tf", "-"], "a.tf\nb.md\né.tf", (&["a.tf", "é.tf"], 0));
        check(&["*", "-z"], "a\nb\0c\0", (&["a\nb", "c"], 0));
        check(&["[", "a"], "", (&[], 2));
    }
}
