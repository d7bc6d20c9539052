//! How is Rust written here?

use crate::tree::lines;
use crate::{Finding, Line, Tree};

/// A file longer than this, tests included, is more than one thought: about 500 lines of code and 400 of tests.
const MAX_LINES: usize = 900;

/// Names that say where code was put, not what it is.
const EMPTY_NAMES: &[&str] = &["utils", "util", "common", "helpers", "helper", "manager"];

/// Words that mark work left undone, put together here so that this file does not hold them.
const UNDONE: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
];

/// Files that do not open with the question they answer.
pub fn missing_headers(tree: &Tree) -> Vec<Finding> {
    let why = "a reader decides by a file's first lines whether to read on";
    // A `tests.rs` goes on where the file above it ends.
    let own = tree.rust().filter(|(path, _)| !path.ends_with("/tests.rs"));
    let bare = own.filter(|(_, text)| !text.starts_with("//!"));
    bare.map(|(path, _)| Finding::new(format!("{path}:1"), "the file has no `//!` header", why)).collect()
}

/// Files that have grown past one thought.
pub fn too_long(tree: &Tree) -> Vec<Finding> {
    let why = "what does not fit a reader's head is two files";
    let long = tree.rust().map(|(path, text)| (path, text.lines().count())).filter(|(_, n)| *n > MAX_LINES);
    long.map(|(path, n)| Finding::new(path, format!("{n} lines, more than {MAX_LINES}"), why)).collect()
}

/// Modules whose name says nothing.
pub fn empty_names(tree: &Tree) -> Vec<Finding> {
    let why = "such a module takes in anything and is looked for by nobody: name it after what it knows";
    let mut findings = Vec::new();
    for (path, text) in tree.rust() {
        let parts = path.split('/').map(|part| part.trim_end_matches(".rs"));
        if let Some(name) = parts.into_iter().find(|part| EMPTY_NAMES.contains(part)) {
            findings.push(Finding::new(path, format!("a path through `{name}`"), why));
        }
        for line in lines(path, text) {
            let inline = module(line.text).filter(|(_, rest)| rest.starts_with('{'));
            if let Some((name, _)) = inline.filter(|(name, _)| EMPTY_NAMES.contains(name)) {
                findings.push(Finding::new(line.at(), format!("a module named `{name}`"), why));
            }
        }
    }
    findings
}

/// Lints switched off, or tests left out, without a word.
pub fn unexplained_exceptions(tree: &Tree) -> Vec<Finding> {
    let why = "an exception without its reason outlives it: write `#[expect(lint, reason = \"…\")]`, which also warns \
        when it is no longer needed";
    let mut findings = Vec::new();
    for (path, text) in tree.rust() {
        let all: Vec<Line<'_>> = lines(path, text).collect();
        for (index, line) in all.iter().enumerate() {
            let start = line.text.trim_start();
            let opens = |word: &str| {
                start.starts_with(&format!("#[{word}")) || start.starts_with(&format!("#![{word}"))
            };
            if opens("ignore]") {
                findings.push(Finding::new(line.at(), "a test is ignored without a reason", why));
            }
            if opens("allow(") || opens("expect(") {
                let rest = all.iter().skip(index).map(|line| line.text);
                let attribute: Vec<&str> =
                    take_through(rest, |text| text.trim_end().ends_with(")]")).collect();
                if !attribute.iter().any(|text| text.contains("reason =")) {
                    findings.push(Finding::new(line.at(), "a lint is switched off without a reason", why));
                }
            }
        }
    }
    findings
}

/// Types by which a caller could switch checks off. Simulated worlds take guards away by changing what a controller is
/// shown, decides or sends (`dev/sim/src/mutant.rs`).
pub fn switches(tree: &Tree) -> Vec<Finding> {
    let why = "a check that can be switched off in the product is off one day";
    let product = tree.rust().filter(|(path, _)| {
        !["dev/sim/", "dev/tidy/", "dev/bench/"].iter().any(|room| path.starts_with(room))
    });
    let named =
        |text: &str| ["struct Guards", "enum Guards", "guards: Guards"].iter().any(|is| text.contains(is));
    product
        .flat_map(|(path, text)| lines(path, text))
        .filter(|line| named(line.text))
        .map(|line| Finding::new(line.at(), "guards that can be switched off", why))
        .collect()
}

/// Work that was left undone.
pub fn undone(tree: &Tree) -> Vec<Finding> {
    let why = "a mark in the code is a promise to nobody: do it now, or make it an issue";
    let code = tree.ours().filter(|(path, _)| {
        [".rs", ".toml", ".yaml", "Makefile", "Dockerfile", ".ci/run"].iter().any(|end| path.ends_with(end))
    });
    code.flat_map(|(path, text)| lines(path, text))
        .filter_map(|line| {
            let word = UNDONE.iter().find(|word| has_word(line.text, word))?;
            Some(Finding::new(line.at(), format!("`{word}`"), why))
        })
        .collect()
}

/// `mod name` and what follows it, whatever its visibility.
pub(crate) fn module(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) => match rest.strip_prefix('(') {
            Some(rest) => rest.split_once(')')?.1,
            None => rest,
        },
        None => line,
    };
    let rest = line.trim_start().strip_prefix("mod ")?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    let (name, rest) = rest.split_at(end);
    Some((name, rest.trim_start()))
}

/// Whether `word` stands in `text` with no letter, digit or underscore on either side.
fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(start, _)| {
        let before = text.get(..start).and_then(|text| text.chars().next_back());
        let after = text.get(start + word.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

/// Like `take_while`, with the item that ends it.
fn take_through<T: Copy>(
    items: impl Iterator<Item = T>,
    last: impl Fn(T) -> bool,
) -> impl Iterator<Item = T> {
    items.scan(false, move |done, item| {
        if *done {
            return None;
        }
        *done = last(item);
        Some(item)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_clean, assert_found, real};

    #[test]
    fn our_rust_is_written_as_agreed() {
        let (tree, _) = real();
        assert!(tree.rust().count() > 10, "too few Rust files were found to mean anything");
        assert_clean(&missing_headers(&tree));
        assert_clean(&too_long(&tree));
        assert_clean(&empty_names(&tree));
        assert_clean(&unexplained_exceptions(&tree));
        assert_clean(&undone(&tree));
        assert_clean(&switches(&tree));
    }

    #[test]
    fn a_file_without_its_question_is_found() {
        let tree = Tree::of([
            ("a.rs", "//! Why?\n"),
            ("b.rs", "use std::fmt;\n//! late\n"),
            ("a/tests.rs", "use super::*;\n"),
        ]);
        assert_found(&missing_headers(&tree), &["b.rs:1"]);
    }

    #[test]
    fn a_file_over_the_limit_is_found_and_one_at_it_is_not() {
        let (at, over) = ("\n".repeat(MAX_LINES), "\n".repeat(MAX_LINES + 1));
        assert_found(&too_long(&Tree::of([("at.rs", &at), ("over.rs", &over)])), &["over.rs"]);
    }

    #[test]
    fn a_module_that_says_nothing_is_found_as_file_directory_or_block() {
        let tree = Tree::of([
            ("crates/a/src/utils.rs", ""),
            ("crates/a/src/common/mod.rs", ""),
            ("crates/a/src/lib.rs", "mod fine {\n}\npub(crate) mod helpers {\n}\n"),
            ("crates/a/src/managed.rs", "mod tests {\n"),
        ]);
        let places = ["crates/a/src/common/mod.rs", "crates/a/src/lib.rs:3", "crates/a/src/utils.rs"];
        assert_found(&empty_names(&tree), &places);
    }

    #[test]
    fn an_exception_without_a_reason_is_found_over_several_lines_too() {
        let tree = Tree::of([
            ("a.rs", "\n#[allow(dead_code)]\n"),
            ("b.rs", "#[expect(\n    dead_code,\n    reason = \"spoken\"\n)]\n"),
            ("c.rs", "#![allow(\n    dead_code,\n)]\nconst A: &str = \"reason = none\";\n"),
            ("d.rs", "#[test]\n#[ignore]\nfn a() {}\n"),
            ("e.rs", "#[ignore = \"needs a cluster\"]\n"),
        ]);
        assert_found(&unexplained_exceptions(&tree), &["a.rs:2", "c.rs:1", "d.rs:2"]);
    }

    #[test]
    fn a_switch_on_checks_is_found_in_the_product_and_not_in_the_simulator() {
        let text = "pub struct Gates;\npub struct Guards {\n    pub uid: bool,\n}\n";
        let tree = Tree::of([("crates/machines/src/apply.rs", text), ("dev/sim/src/mutant.rs", text)]);
        assert_found(&switches(&tree), &["crates/machines/src/apply.rs:2"]);
    }

    #[test]
    fn undone_work_is_found_as_a_word_and_not_within_one() {
        let text = format!("// {}: later\n// auto{}s\nlet x = {}();\n", UNDONE[0], UNDONE[0], UNDONE[3]);
        assert_found(&undone(&Tree::of([("a.rs", &text), ("notes.md", &text)])), &["a.rs:1", "a.rs:3"]);
    }

    #[test]
    fn a_module_is_read_whatever_its_visibility() {
        assert_eq!(module("    pub(in crate::a) mod b;"), Some(("b", ";")));
        assert_eq!(module("mod tests {"), Some(("tests", "{")));
        assert_eq!(module("model;"), None);
    }
}
