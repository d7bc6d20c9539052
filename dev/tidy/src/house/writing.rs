//! Is what we tell people true?

use std::collections::BTreeSet;

use crate::tree::lines;
use crate::{Finding, Line, Package, Tree};

/// Where a dependency's reason stands.
const DEPENDENCIES: &str = "docs/decisions/0002-dependencies.md";

const WHY_COMMANDS: &str = "the first command a newcomer copies must work";

/// Commands that are shown to people and do not exist.
pub fn false_commands(tree: &Tree) -> Vec<Finding> {
    let makefile = tree.get("Makefile").unwrap_or_default();
    let source = |directory: &str| -> Vec<&str> {
        tree.rust().filter(|(path, _)| path.starts_with(directory)).map(|(_, text)| text).collect()
    };
    let (cli, dev) = (source("crates/cli/src/"), source("dev/bench/src/"));
    let mut findings = Vec::new();
    for line in tree.markdown().flat_map(|(path, text)| shown_commands(path, text)) {
        let words: Vec<&str> = line.text.split_whitespace().collect();
        let missing = match words.as_slice() {
            [command, target, ..] if *command == "make" => {
                let exists = makefile.lines().any(|line| line.starts_with(&format!("{target}:")));
                (!exists).then(|| format!("`make {target}` is not in the Makefile"))
            }
            ["pawl", arguments @ ..] | ["cargo", "run", "--release", "--", arguments @ ..] => {
                unknown_argument(&cli, arguments).map(|word| format!("`pawl` does not know `{word}`"))
            }
            ["pawl-dev", arguments @ ..] => {
                unknown_argument(&dev, arguments).map(|word| format!("`pawl-dev` does not know `{word}`"))
            }
            _ => None,
        };
        findings.extend(missing.map(|what| Finding::new(line.at(), what, WHY_COMMANDS)));
    }
    for command in ["make test", "cargo run --release -- up --demo"] {
        if !tree.get("README.md").is_some_and(|text| text.contains(command)) {
            findings.push(Finding::new("README.md", format!("`{command}` is not shown"), WHY_COMMANDS));
        }
    }
    findings
}

/// The lines of fenced blocks that start with `$ ` or with a command of ours; trailing `# remarks` are cut.
fn shown_commands<'a>(path: &'a str, text: &'a str) -> Vec<Line<'a>> {
    let mut fenced = false;
    let mut found = Vec::new();
    for line in lines(path, text) {
        let start = line.text.trim_start();
        if start.starts_with("```") {
            fenced = !fenced;
        } else if fenced {
            let command = start.strip_prefix("$ ").unwrap_or(start);
            let command = command.split(" #").next().unwrap_or(command).trim_end();
            let variables = |word: &&str| word.contains('=') && !word.starts_with('-');
            let skipped: usize =
                command.split_inclusive(' ').take_while(|word| variables(&word.trim())).map(str::len).sum();
            let command = command.get(skipped..).unwrap_or(command);
            if ["make ", "pawl ", "pawl-dev ", "cargo run "].iter().any(|word| command.starts_with(word)) {
                found.push(Line { text: command, ..line });
            }
        }
    }
    found
}

/// The first word of a command line that the executable's source does not declare: a variant for a command, a field
/// for a flag.
fn unknown_argument<'a>(cli: &[&str], arguments: &[&'a str]) -> Option<&'a str> {
    let declares = |text: &str| cli.iter().any(|source| source.contains(text));
    let command =
        arguments.first().filter(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '-'))?;
    let variant = pascal(command);
    if ![format!("{variant}("), format!("{variant} {{"), format!("{variant},")]
        .iter()
        .any(|text| declares(text))
    {
        return Some(command);
    }
    let flags = arguments.iter().filter_map(|word| Some((*word, word.strip_prefix("--")?)));
    flags
        .filter(|(_, name)| !name.is_empty())
        .find(|(_, name)| {
            !declares(&format!("{}:", name.split('=').next().unwrap_or(name).replace('-', "_")))
        })
        .map(|(word, _)| word)
}

/// `dry-run` → `DryRun`, as the command-line parser does it the other way round.
fn pascal(word: &str) -> String {
    word.split('-')
        .flat_map(|part| {
            let (first, rest) = part.split_at(part.chars().next().map_or(0, char::len_utf8));
            [first.to_uppercase(), rest.to_owned()]
        })
        .collect()
}

/// Links between our pages that lead nowhere.
pub fn dead_links(tree: &Tree) -> Vec<Finding> {
    let why = "a link that leads nowhere tells a reader that nobody reads here";
    let mut findings = Vec::new();
    for (path, text) in tree.markdown() {
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        for line in lines(path, text) {
            let links =
                line.text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
            for link in links {
                let file = link.split('#').next().unwrap_or(link);
                let outside = file.is_empty() || file.contains("://") || file.starts_with("mailto:");
                if !outside && !tree.has(&resolve(directory, file)) {
                    findings.push(Finding::new(line.at(), format!("`{link}` is not there"), why));
                }
            }
        }
    }
    findings
}

fn resolve(directory: &str, link: &str) -> String {
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in link.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "" | "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Dependencies without a reason, and reasons without a dependency.
pub fn unexplained_dependencies(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let why = "a dependency is chosen: who adds one says in a line why it, and what it saves us from writing";
    let ours: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let used: BTreeSet<&str> = packages
        .iter()
        .flat_map(|package| &package.dependencies)
        .map(|dependency| dependency.name.as_str())
        .filter(|name| !ours.contains(name))
        .collect();
    let page = tree.get(DEPENDENCIES).unwrap_or_default();
    let rows = lines(DEPENDENCIES, page).filter_map(|line| {
        let cell = line.text.strip_prefix("| `")?.split_once('`')?.0;
        Some((cell, line.at()))
    });
    let rows: Vec<(&str, String)> = rows.collect();
    let mut findings = Vec::new();
    for name in used.iter().filter(|name| !rows.iter().any(|(row, _)| row == *name)) {
        findings.push(Finding::new(DEPENDENCIES, format!("no line for `{name}`"), why));
    }
    for (name, at) in rows.iter().filter(|(name, _)| !used.contains(name)) {
        findings.push(Finding::new(at, format!("`{name}` is no dependency of ours"), why));
    }
    let manifest = tree.get("Cargo.toml").unwrap_or_default();
    for line in workspace_dependencies(manifest) {
        let name = line.text.split(['=', '.', ' ']).next().unwrap_or_default();
        if !name.is_empty() && !used.contains(name) && !ours.contains(name) {
            findings.push(Finding::new(line.at(), format!("no crate uses `{name}`"), why));
        }
    }
    findings
}

fn workspace_dependencies(manifest: &str) -> impl Iterator<Item = Line<'_>> {
    lines("Cargo.toml", manifest)
        .skip_while(|line| line.text != "[workspace.dependencies]")
        .skip(1)
        .take_while(|line| !line.text.starts_with('['))
        .filter(|line| !line.text.starts_with('#') && !line.text.trim().is_empty())
}

/// Pages that every house has, with what must stand in each.
const PAGES: &[(&str, &str)] = &[
    ("ARCHITECTURE.md", "may not know"),
    ("CHANGELOG.md", "## [Unreleased]"),
    ("CONTRIBUTING.md", "make test"),
    ("LICENSE", "Apache License\n                           Version 2.0, January 2004"),
    ("README.md", "## Status"),
    ("SECURITY.md", "report"),
];

/// Pages that are missing or hollow, and rooms that the map does not show.
pub fn missing_pages(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let why = "these are the pages people look for by name";
    let mut findings: Vec<Finding> = PAGES
        .iter()
        .filter(|(path, text)| !tree.get(path).is_some_and(|page| page.contains(text)))
        .map(|(path, text)| Finding::new(*path, format!("missing, or without {text:?}"), why))
        .collect();
    let map = tree.get("ARCHITECTURE.md").unwrap_or_default();
    for package in packages.iter().filter(|package| !map.contains(&format!("`{}`", package.room()))) {
        let what = format!("the code map does not show `{}`", package.room());
        findings.push(Finding::new(
            "ARCHITECTURE.md",
            what,
            "a room that is not on the map is found by accident",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::tests::package;
    use crate::testing::{assert_clean, assert_found, real};

    #[test]
    fn what_we_tell_people_is_true() {
        let (tree, packages) = real();
        assert_clean(&false_commands(&tree));
        assert_clean(&dead_links(&tree));
        assert_clean(&unexplained_dependencies(&tree, &packages));
        assert_clean(&missing_pages(&tree, &packages));
    }

    const README: &str = "```sh\n$ make test\ncargo run --release -- up --demo   # then look\nmake tset\n\
        SEEDS=5 make sim\npawl crds --all\npawl exlpain x\npawl-dev sim\npawl-dev up\n```\nmake nothing\n";

    #[test]
    fn a_command_that_is_not_there_is_found() {
        let source = "#[derive(Subcommand)] enum Command { Up(Up), Crds }\nstruct Up { demo: bool }";
        let tree = Tree::of([
            ("README.md", README),
            ("Makefile", "test: x\nsim:\n"),
            ("crates/cli/src/lib.rs", source),
            ("dev/bench/src/main.rs", "#[derive(Subcommand)] enum Command { Sim(Sim) }"),
        ]);
        let findings = false_commands(&tree);
        assert_found(&findings, &["README.md:4", "README.md:6", "README.md:7", "README.md:9"]);
        assert!(findings[1].what.contains("Crds") || findings[1].what.contains("crds"), "{}", findings[1]);
    }

    #[test]
    fn the_two_commands_must_be_shown() {
        assert_found(&false_commands(&Tree::of([("README.md", "nothing")])), &["README.md", "README.md"]);
    }

    #[test]
    fn a_link_to_nowhere_is_found_and_one_up_and_over_is_not() {
        let tree = Tree::of([
            ("README.md", "[a](docs/decisions/) [b](LICENCE#x) [c](https://example.invalid) [d](#here)\n"),
            ("docs/decisions/1.md", "[up](../../README.md)\n"),
        ]);
        assert_found(&dead_links(&tree), &["README.md:1"]);
    }

    #[test]
    fn a_dependency_without_a_reason_and_a_reason_without_a_dependency_are_found() {
        let tree = Tree::of([
            (
                "Cargo.toml",
                "[workspace.dependencies]\nserde = \"1\"\nidle = { version = \"1\" }\n# why\n\n[profile]\n",
            ),
            (DEPENDENCIES, "| `serde` | data |\n| `gone` | once |\n"),
        ]);
        let packages = [package("api", &["serde", "new"]), package("machines", &["pawl-api"])];
        let page = |line: &str| format!("{DEPENDENCIES}{line}");
        let findings = unexplained_dependencies(&tree, &packages);
        assert_found(&findings, &[&page(""), &page(":2"), "Cargo.toml:3"]);
    }

    #[test]
    fn a_hollow_page_and_an_unmapped_room_are_found() {
        let tree = Tree::of([
            ("ARCHITECTURE.md", "what `api` may not know\n"),
            ("CHANGELOG.md", "# Changelog\n"),
            ("CONTRIBUTING.md", "make test"),
            ("LICENSE", "Apache License\n                           Version 2.0, January 2004"),
            ("README.md", "## Status"),
        ]);
        let findings = missing_pages(&tree, &[package("api", &[]), package("attic", &[])]);
        assert_found(&findings, &["CHANGELOG.md", "SECURITY.md", "ARCHITECTURE.md"]);
    }
}
