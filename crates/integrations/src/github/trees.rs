//! What differs between two commits whose changes are too many to be listed?
//!
//! GitHub gives a whole tree in one answer up to 100,000 entries or 7 MB. Where that is cut short, both trees are walked
//! directory by directory, into those alone that differ.

use std::collections::BTreeMap;

use pawl_machines::git::github::ChangedFile;

use super::budget::Endpoint;
use super::client::Client;
use super::error::Error;
use super::wire::{Entry, Tree};

/// Directories that are read to find what differs, of both trees: a tenth of the hour's requests.
pub(super) const MAX_DIRECTORIES: usize = 500;

/// Files by path, each with what tells whether it changed.
type Listing = BTreeMap<String, (String, String)>;

impl Client {
    /// Files that differ from `base` to `head`. A rename is a file removed and one added: both names count anyway.
    pub(crate) async fn tree_changes(&self, base: &str, head: &str) -> Result<Vec<ChangedFile>, Error> {
        let (before, after) = (self.tree(base, true).await?, self.tree(head, true).await?);
        if before.truncated || after.truncated {
            return self.walk(base, head).await;
        }
        Ok(changes(&files("", &before), &files("", &after)))
    }

    /// All files of a commit that has no parent.
    pub(crate) async fn tree_files(&self, head: &str) -> Result<Vec<ChangedFile>, Error> {
        let tree = self.tree(head, true).await?;
        if tree.truncated {
            return self.walk("", head).await;
        }
        Ok(changes(&Listing::new(), &files("", &tree)))
    }

    async fn walk(&self, base: &str, head: &str) -> Result<Vec<ChangedFile>, Error> {
        let mut changed = Vec::new();
        let mut read = 0;
        // Directories that differ: where, and each side's tree; an empty one is not there.
        let mut open = vec![(String::new(), base.to_owned(), head.to_owned())];
        while let Some((at, before, after)) = open.pop() {
            read += 2;
            if read > MAX_DIRECTORIES {
                let attempt = format!("compare the trees of {base} and {head}");
                return Err(Error::TooManyPages { attempt, pages: MAX_DIRECTORIES });
            }
            let (before, after) = (self.directory(&before).await?, self.directory(&after).await?);
            changed.extend(changes(&files(&at, &before), &files(&at, &after)));
            let (mut before, mut after) = (directories(&at, before), directories(&at, after));
            let paths: Vec<String> = before.keys().chain(after.keys()).cloned().collect();
            for path in paths {
                let (old, new) =
                    (before.remove(&path).unwrap_or_default(), after.remove(&path).unwrap_or_default());
                if old != new {
                    open.push((path, old, new));
                }
            }
        }
        changed.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(changed)
    }

    async fn directory(&self, sha: &str) -> Result<Tree, Error> {
        if sha.is_empty() {
            return Ok(Tree { tree: Vec::new(), truncated: false });
        }
        let tree = self.tree(sha, false).await?;
        if tree.truncated {
            let attempt = format!("GET {}", self.path(&["git", "trees", sha]));
            return Err(Error::Unreadable {
                attempt,
                problem: "one directory is too large to be listed".to_owned(),
            });
        }
        Ok(tree)
    }

    async fn tree(&self, sha: &str, recursive: bool) -> Result<Tree, Error> {
        let path = self.path(&["git", "trees", sha]);
        self.get(Endpoint::Tree, if recursive { format!("{path}?recursive=1") } else { path }).await
    }
}

fn files(at: &str, tree: &Tree) -> Listing {
    let files = tree.tree.iter().filter(|entry| entry.kind != "tree");
    files.map(|entry| (below(at, entry), (entry.mode.clone(), entry.sha.clone()))).collect()
}

fn directories(at: &str, tree: Tree) -> BTreeMap<String, String> {
    let found = tree.tree.into_iter().filter(|entry| entry.kind == "tree");
    found.map(|entry| (below(at, &entry), entry.sha)).collect()
}

fn below(at: &str, entry: &Entry) -> String {
    if at.is_empty() { entry.path.clone() } else { format!("{at}/{}", entry.path) }
}

fn changes(before: &Listing, after: &Listing) -> Vec<ChangedFile> {
    let changed = after.iter().filter(|(path, what)| before.get(*path) != Some(*what));
    let removed = before.keys().filter(|path| !after.contains_key(*path));
    let file = |path: &String, removed| ChangedFile { path: path.clone(), previous_path: None, removed };
    let mut files: Vec<ChangedFile> = changed.map(|(path, _)| file(path, false)).collect();
    files.extend(removed.map(|path| file(path, true)));
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(entries: &[(&str, &str, &str)]) -> Listing {
        let entry = |(path, mode, sha): &(&str, &str, &str)| {
            ((*path).to_owned(), ((*mode).to_owned(), (*sha).to_owned()))
        };
        entries.iter().map(entry).collect()
    }

    #[test]
    fn added_changed_removed_and_made_executable_all_count() {
        let before = listing(&[
            ("a", "100644", "1"),
            ("b", "100644", "2"),
            ("c", "100644", "3"),
            ("d", "100644", "4"),
        ]);
        let after = listing(&[
            ("a", "100644", "1"),
            ("b", "100644", "9"),
            ("d", "100755", "4"),
            ("e", "100644", "5"),
        ]);
        let found: Vec<(String, bool)> =
            changes(&before, &after).into_iter().map(|file| (file.path, file.removed)).collect();
        let expected = [("b", false), ("c", true), ("d", false), ("e", false)];
        assert_eq!(found, expected.map(|(path, removed)| (path.to_owned(), removed)));
    }
}
