//! Is every promised scenario shown by a test?
//!
//! `docs/acceptance/*.md` has one table per door: a scenario, and the tests and simulated worlds that show it.

use std::collections::BTreeSet;

use crate::tree::lines;
use crate::{Finding, Line, Tree};

const TABLES: &str = "docs/acceptance/";
const WORLDS: &str = "dev/sim/src/scenarios/";

/// The doors: each has promised scenarios, and so a table.
const DOORS: [&str; 3] = ["git", "deploy", "remedy"];

const WHY: &str = "a scenario that no test shows is a hope";

/// Doors without a table.
pub fn doors_without_scenarios(tree: &Tree) -> Vec<Finding> {
    let missing = DOORS.into_iter().map(|door| format!("{TABLES}{door}.md")).filter(|path| {
        let rows = |text| lines(path, text).filter_map(row).count();
        !tree.markdown().any(|(there, text)| there == path && rows(text) > 0)
    });
    missing.map(|path| Finding::new(path.clone(), format!("{path} lists no scenario"), WHY)).collect()
}

/// Rows that name no test, a test that is not there, or a world that is not there.
pub fn unshown_scenarios(tree: &Tree) -> Vec<Finding> {
    let tests: BTreeSet<&str> = tree.rust().flat_map(|(_, text)| test_names(text)).collect();
    let worlds: Vec<&str> =
        tree.rust().filter(|(path, _)| path.starts_with(WORLDS)).map(|(_, text)| text).collect();
    let tables = tree.markdown().filter(|(path, _)| path.starts_with(TABLES));
    let rows = tables.flat_map(|(path, text)| lines(path, text)).filter_map(row);
    let mut findings = Vec::new();
    for (line, scenario, shown) in rows {
        let names: Vec<Shown<'_>> = shown.split(',').map(named).collect();
        for name in names {
            let what = match name {
                Shown::Test(name) if !tests.contains(name) => format!("{scenario}: there is no test {name}"),
                Shown::World(name) if !worlds.iter().any(|text| text.contains(&format!("\"{name}\""))) => {
                    format!("{scenario}: there is no simulated world {name}")
                }
                Shown::Nothing(said) => format!("{scenario}: {said:?} names neither a test nor a world"),
                Shown::Test(_) | Shown::World(_) => continue,
            };
            findings.push(Finding::new(line.at(), what, WHY));
        }
    }
    findings
}

/// What a row says shows its scenario.
enum Shown<'a> {
    Test(&'a str),
    World(&'a str),
    Nothing(&'a str),
}

fn named(said: &str) -> Shown<'_> {
    let said = said.trim();
    let (rest, is_world) = said.strip_prefix("sim ").map_or((said, false), |rest| (rest, true));
    match rest.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')).filter(|name| !name.is_empty()) {
        Some(name) if is_world => Shown::World(name),
        Some(name) => Shown::Test(name),
        None => Shown::Nothing(said),
    }
}

/// The cells of a row that is neither the head of a table nor its rule.
fn row(line: Line<'_>) -> Option<(Line<'_>, &str, &str)> {
    let cells = line.text.trim().strip_prefix('|')?.strip_suffix('|')?;
    let (scenario, shown) = cells.split_once(" | ")?;
    let scenario = scenario.trim();
    (scenario != "Scenario").then_some((line, scenario, shown.trim()))
}

/// The functions right below a `#[test]`, other attributes in between.
pub(super) fn test_names(text: &str) -> impl Iterator<Item = &str> {
    let mut is_test = false;
    text.lines().filter_map(move |line| {
        let line = line.trim_start();
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
            return None;
        }
        if !is_test || line.starts_with("#[") || line.starts_with("//") {
            return None;
        }
        is_test = false;
        let name = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?;
        name.split(['(', '<']).next()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::real;

    #[test]
    fn every_scenario_of_every_door_is_shown() {
        let (tree, _) = real();
        assert_eq!(unshown_scenarios(&tree), []);
        assert_eq!(doors_without_scenarios(&tree), []);
    }

    #[test]
    fn a_door_whose_table_is_gone_or_empty_is_found() {
        let table = "| Scenario | Shown by |\n|---|---|\n| a | `there` |\n";
        let tree = Tree::of([
            ("docs/acceptance/git.md", table),
            ("docs/acceptance/deploy.md", "# The deploy door\n\n| Scenario | Shown by |\n|---|---|\n"),
        ]);
        let found: Vec<String> = doors_without_scenarios(&tree).into_iter().map(|one| one.what).collect();
        let expected =
            ["docs/acceptance/deploy.md lists no scenario", "docs/acceptance/remedy.md lists no scenario"];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_test_or_world_that_is_gone_and_a_row_without_any_are_found() {
        let table = "| Scenario | Shown by |\n|---|---|\n| a | `there` |\n| b | `gone` |\n| c | sim `w`, sim `v` |\n\
            | d | by hand |\n";
        let tree = Tree::of([
            ("docs/acceptance/door.md", table),
            ("crates/a/src/lib.rs", "#[test]\n#[ignore]\nfn there() {}\nfn gone() {}\n"),
            ("dev/sim/src/scenarios/a.rs", "let name = \"w\";"),
        ]);
        let found: Vec<String> = unshown_scenarios(&tree).into_iter().map(|one| one.what).collect();
        assert_eq!(
            found,
            [
                "b: there is no test gone",
                "c: there is no simulated world v",
                "d: \"by hand\" names neither a test nor a world"
            ]
        );
    }
}
