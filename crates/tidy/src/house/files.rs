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

/// The one crate that may say `unsafe`, where it gives its reasons: it repeats the lints with that difference alone.
const UNSAFE: &str = "crates/footprint/Cargo.toml";

/// Crates that do not take part in the workspace's lints.
pub fn outside_the_lints(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let shared = tree.get("Cargo.toml").map(|text| lints(text, "[workspace.lints.")).unwrap_or_default();
    let repeats = |text: &str| {
        let mut own = lints(text, "[lints.");
        let forbidden = ("rust", "unsafe_code = \"forbid\"");
        own.remove(&("rust", "unsafe_code = \"deny\"")) && own.insert(forbidden) && own == shared
    };
    let takes_part = |package: &&Package| {
        tree.get(&package.manifest).is_some_and(|text| {
            text.contains("[lints]\nworkspace = true") || package.manifest == UNSAFE && repeats(text)
        })
    };
    let outside = packages.iter().filter(|package| !takes_part(package));
    outside
        .map(|package| Finding::new(&package.manifest, "no `[lints] workspace = true`", WHY_LINTS))
        .collect()
}

/// What a manifest says in its tables of lints, each with the table's last name.
fn lints<'a>(manifest: &'a str, table: &str) -> BTreeSet<(&'a str, &'a str)> {
    let mut inside = None;
    let mut found = BTreeSet::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line.strip_prefix(table).and_then(|rest| rest.strip_suffix(']'));
        } else if let Some(tool) = inside
            && !line.is_empty()
            && !line.starts_with('#')
        {
            found.insert((tool, line));
        }
    }
    found
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
        let tree = Tree::of([
            ("crates/a/Cargo.toml", "[lints]\nworkspace = true\n"),
            ("crates/b/Cargo.toml", "[package]\n"),
        ]);
        let packages = [package("a", &[]), package("b", &[])];
        assert_found(&outside_the_lints(&tree, &packages), &["crates/b/Cargo.toml"]);
    }

    #[test]
    fn only_the_crate_with_unsafe_may_repeat_the_lints_and_must_repeat_all_of_them() {
        let workspace = "[workspace.lints.rust]\nunsafe_code = \"forbid\"\n\n[workspace.lints.clippy]\npanic = \"deny\"\n";
        let repeated =
            "[lints.rust]\nunsafe_code = \"deny\"\n[lints.clippy]\n# why\npanic = \"deny\"\n[dependencies]\n";
        let found = |room: &str, manifest: &str| {
            let path = format!("crates/{room}/Cargo.toml");
            let tree = Tree::of([("Cargo.toml", workspace), (path.as_str(), manifest)]);
            outside_the_lints(&tree, &[package(room, &[])]).len()
        };
        assert_eq!(found("footprint", repeated), 0);
        assert_eq!(found("other", repeated), 1);
        for wrong in ["unsafe_code = \"allow\"", ""] {
            assert_eq!(found("footprint", &repeated.replace("unsafe_code = \"deny\"", wrong)), 1, "{wrong}");
        }
        assert_eq!(found("footprint", &repeated.replace("panic = \"deny\"", "")), 1);
        assert_eq!(found("footprint", &repeated.replace("panic = \"deny\"", "panic = \"allow\"")), 1);
    }
}
