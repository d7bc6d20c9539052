//! Would it build, and read the same, on anyone's machine?

use crate::tree::lines;
use crate::{Finding, Tree};

/// Directories of somebody's machine, put together here so that this file does not hold them.
const MACHINE: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

/// Paths that exist on one machine alone.
pub fn machine_paths(tree: &Tree) -> Vec<Finding> {
    let why = "a path of one machine is a dead end on every other";
    tree.ours()
        .flat_map(|(path, text)| lines(path, text))
        .filter_map(|line| {
            let path = MACHINE.iter().find(|path| starts_a_path(line.text, path))?;
            Some(Finding::new(line.at(), format!("an absolute path under `{path}`"), why))
        })
        .collect()
}

/// Whether `start` stands in `text` where a path begins, not in the middle of one.
fn starts_a_path(text: &str, start: &str) -> bool {
    text.match_indices(start).any(|(at, _)| {
        let before = text.get(..at).and_then(|text| text.chars().next_back());
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '/' | '}' | ')'))
    })
}

/// Where the lock file says that crates come from.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

const WHY_SOURCES: &str = "what we build from must be what everyone can fetch and audit: crates.io, and official images \
    by name; a mirror belongs in a machine's own configuration";

/// Crates and images from anywhere but the public, official places.
pub fn foreign_sources(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ours() {
        let file = path.rsplit('/').next().unwrap_or(path);
        for line in lines(path, text) {
            let start = line.text.trim_start();
            let foreign = match file {
                "Cargo.lock" => start
                    .strip_prefix("source = ")
                    .is_some_and(|source| source.trim_matches('"') != CRATES_IO),
                "config.toml" | "Cargo.toml" => {
                    let keys = ["replace-with", "registry", "registry-index", "git"];
                    keys.iter().any(|key| has_key(start, key)) || start.starts_with("[source.")
                }
                "Dockerfile" => start.strip_prefix("FROM ").is_some_and(names_a_host),
                _ => false,
            };
            if foreign {
                findings.push(Finding::new(line.at(), format!("`{start}`"), WHY_SOURCES));
            }
        }
    }
    findings
}

/// Whether a line of TOML sets this key, by itself or in an inline table.
fn has_key(line: &str, key: &str) -> bool {
    line.split(['{', ',']).any(|part| part.split_once('=').is_some_and(|(name, _)| name.trim() == key))
}

/// An image reference with a host in it: what stands before the first `/` has a dot or a port.
fn names_a_host(from: &str) -> bool {
    let image = from.split_whitespace().find(|word| !word.starts_with("--")).unwrap_or_default();
    image.split_once('/').is_some_and(|(host, _)| host.contains(['.', ':']))
}

/// Places that name another compiler than the pinned one.
pub fn other_toolchains(tree: &Tree) -> Vec<Finding> {
    let why = "one compiler, named once: lints, formatting and code generation differ between versions";
    let pinned = tree.get("rust-toolchain.toml").and_then(|text| value(text, "channel"));
    let Some(pinned) = pinned else {
        return vec![Finding::new("rust-toolchain.toml", "no pinned `channel`", why)];
    };
    let mut findings = Vec::new();
    let least = tree.get("Cargo.toml").and_then(|text| value(text, "rust-version")).unwrap_or_default();
    if !pinned.starts_with(least) || least.is_empty() {
        findings.push(Finding::new("Cargo.toml", format!("rust-version {least:?} is not of {pinned}"), why));
    }
    for (path, text) in tree.ours().filter(|(path, _)| path.ends_with("Dockerfile")) {
        for line in lines(path, text) {
            let named = ["FROM rust:", "RUSTUP_TOOLCHAIN="].iter().find_map(|before| {
                line.text.split_once(before).and_then(|(_, version)| version.split(['-', ' ']).next())
            });
            if let Some(version) = named.filter(|version| *version != pinned) {
                findings.push(Finding::new(line.at(), format!("builds with {version}, not {pinned}"), why));
            }
        }
    }
    findings
}

/// The text of `key = "…"`.
fn value<'a>(toml: &'a str, key: &str) -> Option<&'a str> {
    toml.lines().find_map(|line| {
        line.strip_prefix(key)?.trim_start().strip_prefix('=')?.trim().strip_prefix('"')?.strip_suffix('"')
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_clean, assert_found, real};

    #[test]
    fn the_house_stands_on_any_machine() {
        let (tree, _) = real();
        assert_clean(&machine_paths(&tree));
        assert_clean(&foreign_sources(&tree));
        assert_clean(&other_toolchains(&tree));
    }

    #[test]
    fn a_path_of_one_machine_is_found_and_a_longer_path_through_the_same_word_is_not() {
        let text =
            format!("see {}notes\nthe {}/x of a pod at /var{}x\n", MACHINE[2], "/rootless", MACHINE[1]);
        assert_found(&machine_paths(&Tree::of([("a.md", &text)])), &["a.md:1"]);
    }

    #[test]
    fn recordings_may_hold_the_paths_they_were_made_with() {
        assert_clean(&machine_paths(&Tree::of([("tests/data/a.json", MACHINE[0])])));
    }

    #[test]
    fn a_mirror_a_git_dependency_and_an_image_host_are_found() {
        let lock = format!("source = \"{CRATES_IO}\"\nsource = \"registry+https://mirror.invalid/index\"\n");
        let tree = Tree::of([
            (".cargo/config.toml", "[source.mirror]\n"),
            ("Cargo.lock", &lock),
            ("Cargo.toml", "legit = \"1\"\na = { version = \"1\", git = \"https://example.invalid/a\" }\n"),
            (
                "deploy/Dockerfile",
                "FROM rust:1.95.0-alpine AS build\nFROM registry.invalid:5000/rust\nFROM scratch\n",
            ),
        ]);
        let places = [".cargo/config.toml:1", "Cargo.lock:2", "Cargo.toml:2", "deploy/Dockerfile:2"];
        assert_found(&foreign_sources(&tree), &places);
    }

    #[test]
    fn a_second_compiler_is_found() {
        let tree = Tree::of([
            ("rust-toolchain.toml", "[toolchain]\nchannel = \"1.95.0\"\n"),
            ("Cargo.toml", "rust-version = \"1.90\"\n"),
            (
                "deploy/Dockerfile",
                "FROM rust:1.94.0-alpine AS build\nENV RUSTUP_TOOLCHAIN=1.95.0\nENV RUSTUP_TOOLCHAIN=stable\n",
            ),
        ]);
        assert_found(&other_toolchains(&tree), &["Cargo.toml", "deploy/Dockerfile:1", "deploy/Dockerfile:3"]);
        assert_found(&other_toolchains(&Tree::default()), &["rust-toolchain.toml"]);
    }
}
