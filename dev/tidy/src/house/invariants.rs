//! Every promise that code or a test cites by number is explained in `docs/invariants.md` and names guards that exist.

use std::collections::BTreeSet;

use super::acceptance::test_names;
use crate::tree::lines;
use crate::{Finding, Line, Tree};

const PAGE: &str = "docs/invariants.md";
const ORACLES: &str = "dev/sim/src/oracle.rs";
const MUTANTS: &str = "dev/sim/src/mutant.rs";

const WHY: &str = "a number that nobody can look up, or a promise that nothing guards, is worth nothing";

/// Numbers that are cited and not explained, promises without guards, and guards that do not exist.
pub fn broken_invariants(tree: &Tree) -> Vec<Finding> {
    let page = tree.markdown().find(|(path, _)| *path == PAGE).map(|(_, text)| text).unwrap_or_default();
    let explained: BTreeSet<u32> = page.lines().filter_map(heading).collect();
    let mut findings: Vec<Finding> = cited(tree)
        .filter(|(_, number)| !explained.contains(number))
        .map(|(at, number)| Finding::new(at, format!("I{number} is not explained in {PAGE}"), WHY))
        .collect();
    let guards = Guards::of(tree);
    let mut promise = None;
    let mut guarded = BTreeSet::new();
    for line in lines(PAGE, page) {
        promise = heading(line.text).or(promise);
        let (Some(number), Some(list)) = (promise, line.text.strip_prefix("Guarded by: ")) else { continue };
        guarded.insert(number);
        findings.extend(guards.missing(&line, list));
    }
    let bare = explained.difference(&guarded);
    findings.extend(bare.map(|number| Finding::new(PAGE, format!("I{number} names no guard"), WHY)));
    findings
}

/// The number of a promise, from its heading.
fn heading(line: &str) -> Option<u32> {
    line.strip_prefix("## I")?.split_once('.')?.0.parse().ok()
}

/// Where code cites a promise: `I5` as a word, or a test called `i5_…`.
fn cited(tree: &Tree) -> impl Iterator<Item = (String, u32)> {
    tree.rust().flat_map(|(path, text)| lines(path, text)).flat_map(|line| {
        let comment = line.text.split_once("//").map(|(_, comment)| comment).unwrap_or_default();
        let words = comment.split(|c: char| !c.is_ascii_alphanumeric());
        let in_comment = words.filter_map(|word| word.strip_prefix('I')?.parse().ok());
        let test =
            line.text.trim().strip_prefix("fn i").and_then(|rest| rest.split_once('_')?.0.parse().ok());
        let numbers: Vec<u32> = in_comment.chain(test).collect();
        numbers.into_iter().map(move |number| (line.at(), number)).collect::<Vec<_>>()
    })
}

/// The guards that exist.
struct Guards<'a> {
    tests: BTreeSet<&'a str>,
    oracles: &'a str,
    mutants: &'a str,
}

impl<'a> Guards<'a> {
    fn of(tree: &'a Tree) -> Self {
        let file =
            |path: &str| tree.rust().find(|(at, _)| *at == path).map(|(_, text)| text).unwrap_or_default();
        let tests = tree.rust().flat_map(|(_, text)| test_names(text)).collect();
        Self { tests, oracles: file(ORACLES), mutants: file(MUTANTS) }
    }

    /// The guards of a list that do not exist: `tests `a`, `b`; oracles `C`; mutants `d`.`.
    fn missing(&self, line: &Line<'_>, list: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        for part in list.trim_end_matches('.').split("; ") {
            let (kind, names) = part.split_once(' ').unwrap_or((part, ""));
            let names: Vec<&str> = names.split('`').skip(1).step_by(2).collect();
            let exists = |name: &str| match kind {
                "tests" => match name.strip_suffix('…') {
                    Some(prefix) => self.tests.iter().any(|test| test.starts_with(prefix)),
                    None => self.tests.contains(name),
                },
                "oracles" => self.oracles.contains(&format!("Self::{name} =>")),
                "mutants" => self.mutants.contains(&format!("\"{name}\"")),
                _ => false,
            };
            let absent = names.iter().filter(|name| !exists(name));
            findings.extend(
                absent.map(|name| Finding::new(line.at(), format!("there is no {name} in {kind}"), WHY)),
            );
            if names.is_empty() {
                findings.push(Finding::new(line.at(), format!("{kind} names nothing"), WHY));
            }
        }
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_clean, real};

    #[test]
    fn every_invariant_that_is_cited_is_explained_and_guarded() {
        let (tree, _) = real();
        assert_clean(&broken_invariants(&tree));
        assert!(cited(&tree).count() > 100, "the citations are found");
    }

    #[test]
    fn a_number_without_a_page_a_promise_without_a_guard_and_a_guard_that_is_gone_are_found() {
        let code = "/// It runs once (I1), and stays (I3).\n#[test]\nfn i2_it_is_so() {}\n";
        let page = "## I1. Once\n\nGuarded by: tests `i2_…`, `gone`; oracles `None`.\n\n## I2. Stays\n";
        let found = broken_invariants(&Tree::of([("crates/a/src/a.rs", code), (PAGE, page)]));
        let said: Vec<&str> = found.iter().map(|finding| finding.what.as_str()).collect();
        assert_eq!(
            said,
            [
                "I3 is not explained in docs/invariants.md",
                "there is no gone in tests",
                "there is no None in oracles",
                "I2 names no guard"
            ]
        );
    }
}
