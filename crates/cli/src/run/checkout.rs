//! What changed in this checkout?
//!
//! The `git` executable is asked, with arguments and never through a shell, and with names ended by a zero byte: a
//! file may be called anything (I10).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use pawl_machines::git::matching::ChangedFile;

/// What a commit's name is at most in our kinds; a repository with SHA-256 has longer ones.
const SHA_CHARS: usize = 40;
/// What the CRDs allow for owner and name of a repository.
const NAME_CHARS: usize = 100;
/// Whose repository it is where no remote says.
const NOBODY: &str = "local";
/// Where `pawl up` keeps its data by default: what lies there untracked is ours, and no change to look at.
const OWN_DATA: &str = ".pawl/";

/// A working copy.
#[derive(Clone, Debug)]
pub(super) struct Checkout {
    pub(super) root: PathBuf,
    /// The commit that is checked out.
    pub(super) head: String,
    /// The branch, unless a commit is checked out by itself.
    pub(super) branch: Option<String>,
    pub(super) owner: String,
    pub(super) repository: String,
}

/// What lies between a commit and the working copy.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// As it was asked for.
    pub(super) base: String,
    /// The newest commit that both sides have.
    pub(super) merge_base: String,
    /// Sorted; uncommitted and untracked files too.
    pub(super) files: Vec<ChangedFile>,
}

impl Checkout {
    /// Finds the checkout that a directory is in.
    ///
    /// # Errors
    /// When it is in none, or in one without a commit.
    pub(super) fn find(directory: &Path) -> anyhow::Result<Self> {
        let Ok(root) = git(directory, &["rev-parse", "--show-toplevel"])?.text() else {
            bail!("{} is not in a git checkout", shown(directory).display());
        };
        let root = PathBuf::from(root);
        let head = git(&root, &["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])?.text();
        let head = head.ok().with_context(|| format!("{} has no commit yet", root.display()))?;
        let branch = git(&root, &["symbolic-ref", "--quiet", "--short", "HEAD"])?.text().ok();
        let remote = git(&root, &["remote", "get-url", "origin"])?.text().ok();
        let folder = root.file_name().map(|name| name.to_string_lossy().into_owned());
        let (owner, repository) = remote
            .as_deref()
            .and_then(owner_and_name)
            .unwrap_or_else(|| (NOBODY.to_owned(), folder.unwrap_or_else(|| NOBODY.to_owned())));
        Ok(Self { head: short(&head), branch, owner: fit(&owner), repository: fit(&repository), root })
    }

    /// What was changed since this branch left `base`, whether it is committed or not.
    ///
    /// # Errors
    /// When there is no such base, or nothing that both have in common.
    pub(super) fn change(&self, base: &str) -> anyhow::Result<Change> {
        let merge_base = self.merge_base(base)?;
        // Against the working copy, so one listing has what is committed, staged and only written.
        let words =
            ["diff", "--name-status", "-z", "-M", "--no-ext-diff", "--no-relative", &merge_base, "--"];
        let mut files = parse(&git(&self.root, &words)?.bytes()?)?;
        let known: BTreeSet<String> = files.iter().map(|file| file.path.clone()).collect();
        let untracked = git(&self.root, &["ls-files", "--others", "--exclude-standard", "-z"])?.bytes()?;
        let untracked = names(&untracked).filter(|path| !known.contains(path) && !is_own_data(path));
        files.extend(untracked.map(ChangedFile::new));
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(Change { base: base.to_owned(), merge_base: short(&merge_base), files })
    }

    /// Whether the branch that is checked out is the one that others are compared with.
    pub(super) fn is_on(&self, base: &str) -> bool {
        self.branch.as_deref() == Some(base.strip_prefix("origin/").unwrap_or(base))
    }

    /// The branch's name, or the commit's.
    pub(super) fn reference(&self) -> &str {
        self.branch.as_deref().unwrap_or(&self.head)
    }

    fn merge_base(&self, base: &str) -> anyhow::Result<String> {
        if base.is_empty() || base.starts_with('-') {
            bail!("--base {base:?} is not the name of a commit");
        }
        // Who has only fetched the base, as a build server has, means the remote's.
        for candidate in [base.to_owned(), format!("origin/{base}")] {
            let commit = format!("{candidate}^{{commit}}");
            let Ok(found) = git(&self.root, &["rev-parse", "--verify", "--quiet", &commit])?.text() else {
                continue;
            };
            let common = git(&self.root, &["merge-base", &found, "HEAD"])?.text();
            return common.ok().with_context(|| {
                format!("--base {base}: {candidate} and the checkout have no commit in common; is the clone shallow?")
            });
        }
        bail!("--base {base}: neither {base} nor origin/{base} is a commit here; name what to compare with")
    }
}

/// How git answered.
struct Answer {
    words: String,
    succeeded: bool,
    output: Vec<u8>,
    complaint: String,
}

impl Answer {
    fn bytes(self) -> anyhow::Result<Vec<u8>> {
        if !self.succeeded {
            bail!("git {}: {}", self.words, self.complaint.trim());
        }
        Ok(self.output)
    }

    /// One line.
    fn text(self) -> anyhow::Result<String> {
        let text = String::from_utf8_lossy(&self.bytes()?).lines().next().unwrap_or_default().to_owned();
        if text.is_empty() { bail!("git said nothing") } else { Ok(text) }
    }
}

fn git(directory: &Path, words: &[&str]) -> anyhow::Result<Answer> {
    let mut command = Command::new("git");
    command.arg("-C").arg(directory).args(["--no-pager", "-c", "diff.renames=true"]).args(words);
    // Messages we can rely on, and no lock that would disturb somebody's editor.
    command.env("LC_ALL", "C").env("GIT_OPTIONAL_LOCKS", "0").stdin(Stdio::null());
    let output = command.output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => anyhow::anyhow!("git is not installed, or not in PATH"),
        _ => anyhow::anyhow!("git cannot be started: {error}"),
    })?;
    Ok(Answer {
        words: words.join(" "),
        succeeded: output.status.success(),
        output: output.stdout,
        complaint: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Reads `git diff --name-status -z`: a letter, then one name or, for a rename or copy, two.
fn parse(output: &[u8]) -> anyhow::Result<Vec<ChangedFile>> {
    let mut fields = names(output);
    let mut files = Vec::new();
    while let Some(status) = fields.next() {
        let mut name = || fields.next().context("git diff: a change without a name");
        let first = name()?;
        files.push(match status.chars().next() {
            Some('R') => ChangedFile { path: name()?, previous_path: Some(first), removed: false },
            Some('C') => ChangedFile::new(name()?),
            letter => ChangedFile { removed: letter == Some('D'), ..ChangedFile::new(first) },
        });
    }
    Ok(files)
}

fn names(output: &[u8]) -> impl Iterator<Item = String> {
    let ended = output.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    ended.map(|name| String::from_utf8_lossy(name).into_owned())
}

fn is_own_data(path: &str) -> bool {
    path.starts_with(OWN_DATA) && !super::templates::is_manifest(Path::new(path))
}

/// The last two parts of a remote's address: `git@host:owner/name.git`, `https://host/owner/name`.
fn owner_and_name(url: &str) -> Option<(String, String)> {
    let mut parts = url.trim_end_matches('/').trim_end_matches(".git").rsplit(['/', ':']);
    let (name, owner) = (parts.next()?, parts.next()?);
    let is_name = |text: &str| !text.is_empty() && text != "." && text != "..";
    (is_name(name) && is_name(owner)).then(|| (owner.to_owned(), name.to_owned()))
}

fn short(sha: &str) -> String {
    sha.chars().take(SHA_CHARS).collect()
}

fn fit(name: &str) -> String {
    name.chars().take(NAME_CHARS).collect()
}

fn shown(directory: &Path) -> PathBuf {
    directory.canonicalize().unwrap_or_else(|_| directory.to_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A repository in a directory that goes with it.
    pub(in crate::run) struct Repository(pub(in crate::run) tempfile::TempDir);

    impl Repository {
        pub(in crate::run) fn new() -> Self {
            let repository = Self(tempfile::tempdir().unwrap());
            repository.git(&["init", "-q", "-b", "main"]);
            repository
        }

        pub(in crate::run) fn path(&self) -> &Path {
            self.0.path()
        }

        pub(in crate::run) fn git(&self, words: &[&str]) {
            let who =
                ["-c", "user.name=n", "-c", "user.email=n@example.invalid", "-c", "commit.gpgsign=false"];
            let status =
                Command::new("git").arg("-C").arg(self.path()).args(who).args(words).status().unwrap();
            assert!(status.success(), "git {words:?}");
        }

        pub(in crate::run) fn write(&self, path: &str, text: &str) {
            let path = self.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        pub(in crate::run) fn commit(&self) {
            self.git(&["add", "-A"]);
            self.git(&["commit", "-q", "-m", "c"]);
        }
    }

    #[test]
    fn committed_staged_written_and_untracked_changes_all_count_and_what_main_did_since_does_not() {
        let repository = Repository::new();
        let long = "a line that makes the file long enough to be recognized\n".repeat(5);
        for name in ["gone.tf", "edited.tf", "staged.tf", "kept.tf"] {
            repository.write(name, name);
        }
        repository.write("old/name.tf", &long);
        repository.write(".gitignore", "*.log\n");
        repository.commit();
        repository.git(&["checkout", "-q", "-b", "feature"]);
        repository.git(&["mv", "old/name.tf", "moved.tf"]);
        repository.git(&["rm", "-q", "gone.tf"]);
        repository.write("committed.tf", "x");
        repository.commit();
        repository.git(&["checkout", "-q", "main"]);
        repository.write("of-main.tf", "x");
        repository.commit();
        repository.git(&["checkout", "-q", "feature"]);
        repository.write("edited.tf", "other");
        repository.write("staged.tf", "other");
        repository.git(&["add", "staged.tf"]);
        repository.write("new folder/é\n.tf", "x");
        repository.write("build.log", "ignored");
        repository.write(".pawl/store/journal", "ours");
        let checkout = Checkout::find(&repository.path().join("new folder")).unwrap();
        assert_eq!((checkout.reference(), checkout.is_on("main")), ("feature", false));
        let expect = [
            ChangedFile::new("committed.tf"),
            ChangedFile::new("edited.tf"),
            ChangedFile { removed: true, ..ChangedFile::new("gone.tf") },
            ChangedFile { previous_path: Some("old/name.tf".to_owned()), ..ChangedFile::new("moved.tf") },
            ChangedFile::new("new folder/é\n.tf"),
            ChangedFile::new("staged.tf"),
        ];
        assert_eq!(checkout.change("main").unwrap().files, expect);
    }

    #[test]
    fn what_is_missing_is_named() {
        let nowhere = tempfile::tempdir().unwrap();
        let told = |result: anyhow::Result<Checkout>| result.unwrap_err().to_string();
        assert!(told(Checkout::find(nowhere.path())).ends_with("is not in a git checkout"));
        let repository = Repository::new();
        assert!(told(Checkout::find(repository.path())).ends_with("has no commit yet"));
        repository.write("a", "x");
        repository.commit();
        let checkout = Checkout::find(repository.path()).unwrap();
        assert!(checkout.is_on("main") && checkout.is_on("origin/main"));
        let unknown = checkout.change("develop").unwrap_err().to_string();
        assert_eq!(
            unknown,
            "--base develop: neither develop nor origin/develop is a commit here; name what to compare with"
        );
        assert!(checkout.change("--output=x").is_err());
        repository.git(&["checkout", "-q", "--orphan", "alone"]);
        repository.write("a", "another first commit");
        repository.commit();
        let alone = Checkout::find(repository.path()).unwrap().change("main").unwrap_err().to_string();
        assert!(alone.contains("no commit in common"), "{alone}");
    }

    #[test]
    fn a_remote_says_whose_repository_it_is() {
        for (url, expect) in [
            ("git@github.com:acme/infra.git", Some(("acme", "infra"))),
            ("https://ghe.example.com/acme/My_Repo/", Some(("acme", "My_Repo"))),
            ("infra", None),
            ("/", None),
        ] {
            let expect = expect.map(|(owner, name)| (owner.to_owned(), name.to_owned()));
            assert_eq!(owner_and_name(url), expect, "{url}");
        }
    }
}
