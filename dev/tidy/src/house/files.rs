//! Does a build reach every file?

use std::collections::BTreeSet;

use crate::house::source::module;
use crate::tree::lines;
use crate::{Finding, Package, Tree};

const WHY_DEAD: &str = "a file no build reaches is neither compiled nor tested, and is read as if it were";

/// Rust files that no crate root leads to.
pub fn dead_files(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let mut reached = BTreeSet::new();
    let roots = packages.iter().flat_map(|package| &package.targets).map(|target| target.src_path.clone());
    let mut open: Vec<(String, bool)> = roots.map(|path| (path, true)).collect();
    while let Some((path, is_root)) = open.pop() {
        let Some(text) = tree.get(&path) else { continue };
        if !reached.insert(path.clone()) {
            continue;
        }
        open.extend(children(tree, &path, text, is_root).into_iter().map(|child| (child, false)));
    }
    let dead = tree.rust().filter(|(path, _)| !reached.contains(*path));
    dead.map(|(path, _)| Finding::new(path, "no crate root leads here", WHY_DEAD)).collect()
}

/// The files that a file's `mod name;` and `include!("…")` lead to.
fn children(tree: &Tree, path: &str, text: &str, is_root: bool) -> Vec<String> {
    let (directory, file) = path.rsplit_once('/').unwrap_or(("", path));
    let home = match file.trim_end_matches(".rs") {
        _ if is_root => directory.to_owned(),
        "mod" => directory.to_owned(),
        stem => format!("{directory}/{stem}"),
    };
    let mut found = Vec::new();
    for line in lines(path, text) {
        if let Some((name, _)) = module(line.text).filter(|(_, rest)| rest.starts_with(';')) {
            let places = [format!("{home}/{name}.rs"), format!("{home}/{name}/mod.rs")];
            found.extend(places.into_iter().filter(|place| tree.get(place).is_some()));
        }
        let included = line.text.split_once("include!(\"").and_then(|(_, rest)| rest.split_once('"'));
        found.extend(included.map(|(name, _)| format!("{directory}/{name}")));
    }
    found
}

const WHY_LINTS: &str = "a crate outside the workspace's lints may unwrap, panic and print unseen";

/// Crates that do not take part in the workspace's lints, and a workspace that does not forbid `unsafe`.
pub fn outside_the_lints(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let says =
        |manifest: &str, text: &str| tree.get(manifest).is_some_and(|manifest| manifest.contains(text));
    let outside = packages.iter().filter(|package| !says(&package.manifest, "[lints]\nworkspace = true"));
    let mut findings: Vec<Finding> = outside
        .map(|package| Finding::new(&package.manifest, "no `[lints] workspace = true`", WHY_LINTS))
        .collect();
    if !says("Cargo.toml", "[workspace.lints.rust]\nunsafe_code = \"forbid\"") {
        let why = "code that is not `unsafe` cannot corrupt memory, whoever wrote it: the compiler checks it, in every crate";
        findings.push(Finding::new("Cargo.toml", "`unsafe_code` is not forbidden", why));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::tests::package;
    use crate::testing::{assert_clean, assert_found, real};

    #[test]
    fn every_file_is_built_and_every_crate_is_linted() {
        let (tree, packages) = real();
        assert_clean(&dead_files(&tree, &packages));
        assert_clean(&outside_the_lints(&tree, &packages));
    }

    #[test]
    fn a_file_nobody_declares_is_found_and_declared_ones_are_not() {
        let tree = Tree::of([
            ("crates/a/src/lib.rs", "pub mod b;\nmod d;\ninclude!(\"table.rs\");\n"),
            ("crates/a/src/b.rs", "#[cfg(test)]\nmod tests;\n"),
            ("crates/a/src/b/tests.rs", ""),
            ("crates/a/src/d/mod.rs", "pub(crate) mod e;\n"),
            ("crates/a/src/d/e.rs", ""),
            ("crates/a/src/table.rs", ""),
            ("crates/a/src/d/forgotten.rs", "mod inside;"),
            ("crates/a/src/d/forgotten/inside.rs", ""),
        ]);
        let places = ["crates/a/src/d/forgotten.rs", "crates/a/src/d/forgotten/inside.rs"];
        assert_found(&dead_files(&tree, &[package("a", &[])]), &places);
    }

    #[test]
    fn a_crate_without_the_lints_is_found() {
        let workspace = "[workspace.lints.rust]\nunsafe_code = \"forbid\"\n";
        let tree = Tree::of([
            ("Cargo.toml", workspace),
            ("crates/a/Cargo.toml", "[lints]\nworkspace = true\n"),
            ("crates/b/Cargo.toml", "[package]\n"),
            ("crates/c/Cargo.toml", "[lints.rust]\nunsafe_code = \"deny\"\n"),
        ]);
        let packages = [package("a", &[]), package("b", &[]), package("c", &[])];
        let places = ["crates/b/Cargo.toml", "crates/c/Cargo.toml"];
        assert_found(&outside_the_lints(&tree, &packages), &places);
    }

    #[test]
    fn a_workspace_that_does_not_forbid_unsafe_is_found() {
        for lints in ["[workspace.lints.rust]\nunsafe_code = \"deny\"\n", ""] {
            assert_found(&outside_the_lints(&Tree::of([("Cargo.toml", lints)]), &[]), &["Cargo.toml"]);
        }
    }
}
