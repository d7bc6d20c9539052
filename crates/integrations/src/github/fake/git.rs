//! What does git know: commits with trees, who comes from whom, what differs.
//!
//! Hashes are git's own, so that the same history has the same hashes in every run, and a tree that did not change has
//! the same hash in two commits.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use ring::digest;

/// A file's or directory's mode, as git writes it.
const FILE: &str = "100644";
const DIRECTORY: &str = "40000";

/// A file's content with its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blob {
    pub(super) sha: String,
    pub(super) content: Arc<str>,
}

pub(super) type Files = BTreeMap<String, Blob>;

#[derive(Debug)]
pub(super) struct Commit {
    pub(super) sha: String,
    pub(super) parents: Vec<String>,
    pub(super) tree: String,
    pub(super) files: Arc<Files>,
    pub(super) message: String,
    pub(super) author: String,
    pub(super) at: Timestamp,
    /// The order in which commits were made: parents before children.
    sequence: u64,
}

/// One line of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) sha: String,
    /// `None` for a directory.
    pub(super) size: Option<usize>,
}

impl Entry {
    pub(super) fn mode(&self) -> &'static str {
        if self.size.is_some() { FILE } else { "040000" }
    }
}

/// How one file differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) path: String,
    pub(super) previous: Option<String>,
    pub(super) status: &'static str,
    pub(super) sha: String,
    pub(super) additions: usize,
    pub(super) deletions: usize,
}

/// How one commit stands to another.
#[derive(Debug)]
pub(super) struct Relation<'a> {
    /// Commits that only the head has, oldest first.
    pub(super) ahead: Vec<&'a Arc<Commit>>,
    /// How many only the base has.
    pub(super) behind: usize,
    /// The latest that both have.
    pub(super) merge_base: Option<&'a Arc<Commit>>,
}

/// Everything that was ever committed, in all repositories: forks share it, as on GitHub.
#[derive(Debug, Default)]
pub(super) struct Objects {
    commits: BTreeMap<String, Arc<Commit>>,
    trees: BTreeMap<String, Arc<Vec<Entry>>>,
    sequence: u64,
}

impl Objects {
    pub(super) fn commit(
        &mut self,
        parents: Vec<String>,
        files: Files,
        message: &str,
        author: &str,
        at: Timestamp,
    ) -> String {
        let tree = self.write_tree(&files);
        let who = format!("{author} <{author}@users.noreply.example> {} +0000", at.as_second());
        let of = |parent: &String| format!("parent {parent}\n");
        let parent_lines: String = parents.iter().map(of).collect();
        let text = format!("tree {tree}\n{parent_lines}author {who}\ncommitter {who}\n\n{message}");
        let sha = hash("commit", text.as_bytes());
        self.sequence += 1;
        let commit = Commit {
            sha: sha.clone(),
            parents,
            tree,
            files: Arc::new(files),
            message: message.to_owned(),
            author: author.to_owned(),
            at,
            sequence: self.sequence,
        };
        self.commits.entry(sha.clone()).or_insert_with(|| Arc::new(commit));
        sha
    }

    pub(super) fn get(&self, sha: &str) -> Option<&Arc<Commit>> {
        self.commits.get(sha)
    }

    /// The commit with this abbreviated hash, if it is the only one.
    pub(super) fn abbreviated(&self, sha: &str) -> Option<&Arc<Commit>> {
        let mut found = self
            .commits
            .range(sha.to_owned()..)
            .map(|(_, commit)| commit)
            .take_while(|c| c.sha.starts_with(sha));
        found.next().filter(|_| found.next().is_none())
    }

    pub(super) fn tree(&self, sha: &str) -> Option<&Arc<Vec<Entry>>> {
        self.trees.get(sha)
    }

    /// Nobody refers to it any more, and it was swept away.
    pub(super) fn forget(&mut self, sha: &str) {
        self.commits.remove(sha);
    }

    /// How `head` stands to `base`. Both are walked back, youngest first, until only what they share is left: what is
    /// older than the place where they parted is not looked at.
    pub(super) fn relation(&self, base: &str, head: &str) -> Relation<'_> {
        let mut relation = Relation { ahead: Vec::new(), behind: 0, merge_base: None };
        let mut sides: BTreeMap<u64, (&Arc<Commit>, bool, bool)> = BTreeMap::new();
        let mark = |sides: &mut BTreeMap<u64, (_, bool, bool)>, sha: &str, of_base: bool, of_head: bool| {
            let Some(commit) = self.get(sha) else { return };
            let (_, in_base, in_head) = sides.entry(commit.sequence).or_insert((commit, false, false));
            *in_base |= of_base;
            *in_head |= of_head;
        };
        mark(&mut sides, base, true, false);
        mark(&mut sides, head, false, true);
        while sides.values().any(|(_, in_base, in_head)| !(*in_base && *in_head))
            || relation.merge_base.is_none()
        {
            let Some((_, (commit, in_base, in_head))) = sides.pop_last() else { break };
            match (in_base, in_head) {
                (true, true) => relation.merge_base = relation.merge_base.or(Some(commit)),
                (true, false) => relation.behind += 1,
                (false, _) => relation.ahead.push(commit),
            }
            for parent in &commit.parents {
                mark(&mut sides, parent, in_base, in_head);
            }
        }
        relation.ahead.reverse();
        relation
    }

    /// Commits in `head` that are not in `base`, oldest first.
    pub(super) fn log(&self, base: &str, head: &str) -> Vec<&Arc<Commit>> {
        self.relation(base, head).ahead
    }

    /// The latest commit that both come from.
    pub(super) fn merge_base(&self, one: &str, other: &str) -> Option<&Arc<Commit>> {
        self.relation(one, other).merge_base
    }

    /// What a commit changed against its first parent.
    pub(super) fn changes(&self, commit: &Commit) -> Vec<Difference> {
        let parent = commit.parents.first().and_then(|parent| self.get(parent));
        differences(parent.map_or(&Files::new(), |parent| &parent.files), &commit.files)
    }

    /// All entries below a tree, directories before what is in them.
    pub(super) fn below(&self, tree: &str) -> Vec<Entry> {
        let mut found = Vec::new();
        for entry in self.tree(tree).map(|entries| entries.as_slice()).unwrap_or_default() {
            found.push(entry.clone());
            if entry.size.is_none() {
                let inner = self.below(&entry.sha).into_iter();
                found.extend(
                    inner.map(|inner| Entry { name: format!("{}/{}", entry.name, inner.name), ..inner }),
                );
            }
        }
        found
    }

    fn write_tree(&mut self, files: &Files) -> String {
        let all: Vec<(&str, &Blob)> = files.iter().map(|(path, blob)| (path.as_str(), blob)).collect();
        self.write_directory(&all)
    }

    fn write_directory(&mut self, files: &[(&str, &Blob)]) -> String {
        let mut entries = Vec::new();
        let mut directories: BTreeMap<&str, Vec<(&str, &Blob)>> = BTreeMap::new();
        for (path, blob) in files {
            match path.split_once('/') {
                Some((name, rest)) => directories.entry(name).or_default().push((rest, blob)),
                None => {
                    let (name, sha) = ((*path).to_owned(), blob.sha.clone());
                    entries.push(Entry { name, sha, size: Some(blob.content.len()) });
                }
            }
        }
        for (name, inner) in directories {
            let sha = self.write_directory(&inner);
            entries.push(Entry { name: name.to_owned(), sha, size: None });
        }
        // Git sorts a directory as if its name ended with a slash.
        entries.sort_by_key(|entry| {
            if entry.size.is_some() { entry.name.clone() } else { format!("{}/", entry.name) }
        });
        let mut text = Vec::new();
        for entry in &entries {
            let mode = if entry.size.is_some() { FILE } else { DIRECTORY };
            text.extend_from_slice(format!("{mode} {}\0", entry.name).as_bytes());
            text.extend(hex::decode(&entry.sha).unwrap_or_default());
        }
        let sha = hash("tree", &text);
        self.trees.entry(sha.clone()).or_insert_with(|| Arc::new(entries));
        sha
    }
}

impl Blob {
    pub(super) fn new(content: &str) -> Self {
        Self { sha: hash("blob", content.as_bytes()), content: content.into() }
    }
}

/// Git's hash of an object.
fn hash(kind: &str, content: &[u8]) -> String {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(format!("{kind} {}\0", content.len()).as_bytes());
    context.update(content);
    hex::encode(context.finish().as_ref())
}

/// What differs, by path. A file that went and one that came with the same content are one that was renamed.
pub(super) fn differences(before: &Files, after: &Files) -> Vec<Difference> {
    let mut gone: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (path, blob) in before.iter().rev().filter(|(path, _)| !after.contains_key(*path)) {
        gone.entry(&blob.sha).or_default().push(path);
    }
    let mut found = Vec::new();
    for (path, blob) in after {
        let (status, previous, additions, deletions) = match before.get(path) {
            Some(old) if old.sha == blob.sha => continue,
            Some(old) => {
                let (additions, deletions) = lines_changed(&old.content, &blob.content);
                ("modified", None, additions, deletions)
            }
            None => match gone.get_mut(blob.sha.as_str()).and_then(Vec::pop) {
                Some(previous) => ("renamed", Some(previous.to_owned()), 0, 0),
                None => ("added", None, blob.content.lines().count(), 0),
            },
        };
        let (path, sha) = (path.clone(), blob.sha.clone());
        found.push(Difference { path, previous, status, sha, additions, deletions });
    }
    for path in gone.into_values().flatten() {
        let Some(blob) = before.get(path) else { continue };
        let (path, deletions) = (path.to_owned(), blob.content.lines().count());
        let sha = blob.sha.clone();
        found.push(Difference { path, previous: None, status: "removed", sha, additions: 0, deletions });
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Lines that came and went between what both begin and end with: enough for a number in a list.
fn lines_changed(before: &str, after: &str) -> (usize, usize) {
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let same_start = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    let room = before.len().min(after.len()) - same_start;
    let same_end = before.iter().rev().zip(after.iter().rev()).take(room).take_while(|(a, b)| a == b).count();
    (after.len() - same_start - same_end, before.len() - same_start - same_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(entries: &[(&str, &str)]) -> Files {
        entries.iter().map(|(path, content)| ((*path).to_owned(), Blob::new(content))).collect()
    }

    #[test]
    fn hashes_are_git_s() {
        let mut objects = Objects::default();
        assert_eq!(Blob::new("hello\n").sha, "ce013625030ba8dba906f756967f9e9ca394464a");
        assert_eq!(objects.write_tree(&Files::new()), "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
        // printf 'hello\n' > a/b.txt and > a.txt; git add . && git write-tree
        let tree = objects.write_tree(&files(&[("a/b.txt", "hello\n"), ("a.txt", "hello\n")]));
        assert_eq!(tree, "e9d00327ba627626531609529f87f79a0b097ba5");
    }

    #[test]
    fn a_rename_is_told_from_a_removal_and_an_addition() {
        let before = files(&[("a", "1"), ("b", "2"), ("c", "3\n3"), ("same", "s")]);
        let after = files(&[("b", "2x\ny"), ("d", "1"), ("e", "5"), ("same", "s")]);
        let found: Vec<(String, &str, Option<String>)> =
            differences(&before, &after).into_iter().map(|d| (d.path, d.status, d.previous)).collect();
        let expected = [
            ("b", "modified", None),
            ("c", "removed", None),
            ("d", "renamed", Some("a")),
            ("e", "added", None),
        ];
        assert_eq!(
            found,
            expected.map(|(path, status, was)| (path.to_owned(), status, was.map(str::to_owned)))
        );
    }

    #[test]
    fn the_merge_base_is_where_two_histories_part() {
        let mut objects = Objects::default();
        let mut commit = |parents: &[&String], message: &str| {
            let parents = parents.iter().map(|sha| (*sha).clone()).collect();
            objects.commit(parents, Files::new(), message, "a", Timestamp::UNIX_EPOCH)
        };
        let root = commit(&[], "root");
        let left = commit(&[&root], "left");
        let right = commit(&[&root], "right");
        let merged = commit(&[&left, &right], "merged");
        let base =
            |one: &str, other: &str| objects.merge_base(one, other).map(|commit| commit.message.as_str());
        assert_eq!(base(&left, &right), Some("root"));
        assert_eq!(base(&merged, &right), Some("right"));
        let log: Vec<&str> =
            objects.log(&left, &merged).iter().map(|commit| commit.message.as_str()).collect();
        assert_eq!(log, ["right", "merged"]);
    }
}
