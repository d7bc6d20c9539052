//! The house rules, as tests.
//!
//! A rule that only a reviewer knows is a rule until the reviewer is away. Each rule here is a function from the
//! [`Tree`] (and the [`Package`]s cargo sees in it) to [`Finding`]s; a finding says where, what, and why the rule
//! exists. Every rule is tested twice: the real tree has no findings, and a small tree made to break the rule has one.
//!
//! `make lint` runs them alone, `make test` with everything else.

pub mod house;
mod package;
mod tree;

use std::fmt;

pub use package::{Dependency, Package, Target, Use, packages};
pub use tree::{Line, Tree};

/// A place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, and after a colon the line where there is one.
    pub at: String,
    pub what: String,
    /// The rule's reason: a person who knows it can judge whether to mend the place or the rule.
    pub why: &'static str,
}

impl Finding {
    pub fn new(at: impl Into<String>, what: impl Into<String>, why: &'static str) -> Self {
        Self { at: at.into(), what: what.into(), why }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n    because: {}", self.at, self.what, self.why)
    }
}

/// Why the house could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("run `{command}`: {problem}")]
    Run { command: String, problem: String },
    #[error("read {path}: {source}")]
    Read { path: String, source: std::io::Error },
    #[error("write {path}: {source}")]
    Write { path: String, source: std::io::Error },
    #[error("read what `cargo metadata` says: {0}")]
    Metadata(#[from] serde_json::Error),
    #[error("print {name} as YAML: {problem}")]
    Yaml { name: String, problem: String },
}

/// The workspace's root directory.
pub fn root() -> &'static std::path::Path {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_where_what_and_why() {
        let finding = Finding::new("a.rs:3", "a long line", "long lines are not read");
        assert_eq!(finding.to_string(), "a.rs:3: a long line\n    because: long lines are not read");
    }
}

#[cfg(test)]
mod testing {
    use super::*;

    /// The real tree and its packages.
    pub(crate) fn real() -> (Tree, Vec<Package>) {
        (Tree::load(root()).unwrap(), packages(root()).unwrap())
    }

    #[track_caller]
    pub(crate) fn assert_clean(findings: &[Finding]) {
        let all: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(all.is_empty(), "{} findings:\n{}", all.len(), all.join("\n"));
    }

    /// Exactly these places, whatever is said about them.
    #[track_caller]
    pub(crate) fn assert_found(findings: &[Finding], expected: &[&str]) {
        let places: Vec<&str> = findings.iter().map(|finding| finding.at.as_str()).collect();
        assert_eq!(places, expected, "{findings:#?}");
    }
}
