//! What is in the house? Every file git tracks or would track, as text.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::Error;

/// Paths with `/`, relative to the root; files that are not UTF-8 are left out.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    files: BTreeMap<String, String>,
}

/// One line of one file.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    pub path: &'a str,
    /// From 1, as editors count.
    pub number: usize,
    pub text: &'a str,
}

impl Line<'_> {
    /// `file:line`.
    pub fn at(&self) -> String {
        format!("{}:{}", self.path, self.number)
    }
}

/// Directories of tests whose files are recordings and vectors: they say what others said, in others' words.
const TEST_DATA: &[&str] = &["data", "fixtures", "conformance", "vectors"];

impl Tree {
    /// Reads a checkout. New files count before they are added; ignored ones do not.
    ///
    /// # Errors
    /// When git cannot list it, or a listed file cannot be read.
    pub fn load(root: &Path) -> Result<Self, Error> {
        let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let failed =
            |problem: String| Error::Run { command: format!("git {}", arguments.join(" ")), problem };
        // A checkout owned by another user (a container's mount) is as good to read.
        let listing = Command::new("git")
            .args(["-c", "safe.directory=*"])
            .args(arguments)
            .current_dir(root)
            .output()
            .map_err(|error| failed(error.to_string()))?;
        if !listing.status.success() {
            return Err(failed(String::from_utf8_lossy(&listing.stderr).into_owned()));
        }
        let mut files = BTreeMap::new();
        for path in String::from_utf8_lossy(&listing.stdout).split('\0').filter(|path| !path.is_empty()) {
            match std::fs::read(root.join(path)) {
                Ok(bytes) => {
                    if let Ok(text) = String::from_utf8(bytes) {
                        files.insert(path.to_owned(), text);
                    }
                }
                // Deleted and not yet committed, or a symbolic link to a directory.
                Err(_) if !root.join(path).is_file() => {}
                Err(source) => return Err(Error::Read { path: path.to_owned(), source }),
            }
        }
        Ok(Self { files })
    }

    /// A tree made up for a test.
    pub fn of<const N: usize>(files: [(&str, &str); N]) -> Self {
        Self { files: files.into_iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect() }
    }

    pub fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Whether there is such a file, or a directory with files in it.
    pub fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let directory = format!("{path}/");
        self.files.contains_key(path) || self.files.keys().any(|file| file.starts_with(&directory))
    }

    /// All files that are ours, test data left out.
    pub fn ours(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
            .filter(|(path, _)| !is_test_data(path))
    }

    /// Our Rust files.
    pub fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.ours().filter(|(path, _)| path.ends_with(".rs"))
    }

    /// Our Markdown files.
    pub fn markdown(&self) -> impl Iterator<Item = (&str, &str)> {
        self.ours().filter(|(path, _)| path.ends_with(".md"))
    }
}

/// `testdata/` anywhere, or one of [`TEST_DATA`] below a `tests/`.
fn is_test_data(path: &str) -> bool {
    let directories: Vec<&str> = path.split('/').collect();
    let below_tests = directories.iter().skip_while(|part| **part != "tests");
    directories.contains(&"testdata") || below_tests.into_iter().any(|part| TEST_DATA.contains(part))
}

/// The lines of one file.
pub(crate) fn lines<'a>(path: &'a str, text: &'a str) -> impl Iterator<Item = Line<'a>> {
    text.lines().enumerate().map(move |(index, text)| Line { path, number: index + 1, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_of_others_are_not_ours_to_word() {
        let tree = Tree::of([("crates/a/tests/data/b.rs", ""), ("crates/a/src/data/mod.rs", "")]);
        assert_eq!(tree.rust().map(|(path, _)| path).collect::<Vec<_>>(), ["crates/a/src/data/mod.rs"]);
    }

    #[test]
    fn a_directory_is_there_when_a_file_is_in_it() {
        let tree = Tree::of([("docs/decisions/0001-rooms.md", "")]);
        assert!(tree.has("docs/") && tree.has("docs/decisions") && !tree.has("doc"));
    }
}
