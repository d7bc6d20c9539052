//! `pawl run` on a real repository: three folders, two templates, processes of this machine.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{PAWL, pawl, text};

/// Far longer than anything here takes on a busy machine; a test that hangs fails by this.
const BOUND: Duration = Duration::from_secs(120);

/// A repository in a directory that goes with it.
struct Repository(tempfile::TempDir);

impl Repository {
    /// `main` with three folders and these templates, and a branch `feature` on which nothing changed yet.
    fn new(templates: &str) -> Self {
        let repository = Self(tempfile::tempdir().unwrap());
        repository.git(&["init", "-q", "-b", "main"]);
        for folder in ["network", "cluster", "docs"] {
            repository.write(&format!("{folder}/main.tf"), "old\n");
        }
        repository.write("README.md", "old\n");
        repository.write(".terrakojo/templates.yaml", templates);
        repository.commit();
        repository.git(&["checkout", "-q", "-b", "feature"]);
        repository
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn git(&self, words: &[&str]) {
        let who = ["-c", "user.name=n", "-c", "user.email=n@example.invalid", "-c", "commit.gpgsign=false"];
        let status = Command::new("git").arg("-C").arg(self.path()).args(who).args(words).status().unwrap();
        assert!(status.success(), "git {words:?}");
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path().join(path)).unwrap()
    }

    fn commit(&self) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "-m", "c"]);
    }

    fn run(&self, words: &[&str]) -> (i32, String, String) {
        let words: Vec<&str> = ["run"].iter().chain(words).copied().collect();
        let output = pawl(self.path(), &words);
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    }

    fn json(&self, words: &[&str]) -> (i32, Value) {
        let (code, out, err) = self.run(&[words, &["-o", "json"]].concat());
        (code, serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}\n{err}")))
    }
}

fn template(name: &str, more: &str, script: &str) -> String {
    format!(
        "---\napiVersion: terrakojo.io/v1alpha1\nkind: WorkflowTemplate\nmetadata: {{name: {name}}}\nspec:\n  \
         displayName: {name}\n  match: {{paths: ['**/*.tf'], ignore: ['docs/**']}}\n{more}  job:\n    template:\n      \
         spec:\n        containers:\n        - name: main\n          image: alpine:3\n          \
         command: [/bin/sh, -ec]\n          args:\n          - |\n            {}\n",
        script.replace('\n', "\n            ")
    )
}

/// `lint`, and `plan` after it; both fail where a file says so.
fn lint_and_plan() -> String {
    let lint =
        "echo \"linting $TERRAKOJO_WORKFLOW_PATH\"\n! grep -q wrong \"$TERRAKOJO_WORKFLOW_PATH/main.tf\"";
    let plan = "echo planned > \"$TERRAKOJO_WORKSPACE_DIR/$TERRAKOJO_WORKFLOW_PATH/plan.out\"";
    format!("{}{}", template("lint", "", lint), template("plan", "  dependsOn: [lint]\n", plan))
}

#[test]
fn what_changed_runs_in_order_in_the_working_copy_and_the_rest_does_not() {
    let repository = Repository::new(&lint_and_plan());
    // One committed, one only written, one that a template ignores.
    repository.write("network/main.tf", "new\n");
    repository.commit();
    repository.write("cluster/main.tf", "new\n");
    repository.write("docs/main.tf", "new\n");
    let (code, result) = repository.json(&[]);
    assert_eq!(code, 0, "{result:#}");
    let runs: Vec<String> = result["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| format!("{} {} {}", run["template"], run["path"], run["result"]).replace('"', ""))
        .collect();
    assert_eq!(
        runs,
        [
            "lint cluster Succeeded",
            "lint network Succeeded",
            "plan cluster Succeeded",
            "plan network Succeeded"
        ]
    );
    assert_eq!(result["succeeded"], true);
    assert_eq!(repository.read("network/plan.out"), "planned\n");
    assert_eq!(repository.read("cluster/plan.out"), "planned\n");
    assert!(!repository.path().join("docs/plan.out").exists());
}

#[test]
fn a_failure_is_shown_with_the_end_of_its_log_and_what_waits_for_it_does_not_run() {
    let secret =
        "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {token: not-a-real-token}\n";
    let repository = Repository::new(&(lint_and_plan() + secret));
    repository.write("network/main.tf", "wrong\n");
    repository.write("cluster/main.tf", "new\n");
    let leak = "echo not-a-real-token; echo linting; ! grep -q wrong \"$TERRAKOJO_WORKFLOW_PATH/main.tf\"";
    repository.write(".terrakojo/lint.yml", &template("leaky", "", leak));
    let (code, out, err) = repository.run(&["--jobs", "2"]);
    assert_eq!(code, 1, "{out}\n{err}");
    assert!(out.contains("lint network: container main exited with 1\n  | linting network\n"), "{out}");
    assert!(out.contains("  | ***\n") && !out.contains("not-a-real-token"), "{out}");
    let row = |start: &[&str]| {
        let mut lines = out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        lines.any(|words| words.starts_with(start))
    };
    assert!(row(&["TEMPLATE", "PATH", "RESULT", "DURATION"]), "{out}");
    assert!(out.contains("  container main exited with 1\n"), "{out}");
    assert!(row(&["lint", "network", "Failed"]) && row(&["lint", "cluster", "Succeeded"]), "{out}");
    assert!(row(&["plan", "network", "Cancelled", "-", "lint", "did", "not", "succeed"]), "{out}");
    assert!(row(&["plan", "cluster", "Succeeded"]), "{out}");
    // Not a terminal: plain lines, without a cursor to move.
    assert!(err.contains("lint network started\n") && !err.contains('\x1b'), "{err}");
}

#[test]
fn a_dry_run_says_of_every_template_why_it_runs_or_not_and_runs_nothing() {
    let broken = template("broken", "", "true").replace("'**/*.tf'", "'**/[a'");
    let elsewhere = template("release", "  on: default\n", "true");
    let whole = template("whole", "  dependsOn: [lint]\n", "true")
        .replace("match: {", "match: {executionUnit: repository, ");
    let repository = Repository::new(&format!("{}{broken}{elsewhere}{whole}", lint_and_plan()));
    repository.write("network/main.tf", "new\n");
    let (code, out, err) = repository.run(&["--dry-run"]);
    assert_eq!(code, 1, "a malformed template is a failure\n{out}\n{err}");
    for expect in [
        "feature: 1 file changed since main (",
        "broken: does not run: spec.match.paths[0]: \"**/[a\" is not a pattern: character 4: ",
        "release: does not run: on: default: it runs for the default branch only\n",
        "lint: runs once\n  network  network/main.tf\n",
        "plan: runs once\n  network  network/main.tf; after lint\n",
        "whole: runs once\n  .  network/main.tf; not after lint: not run for this path",
    ] {
        assert!(out.contains(expect), "{expect}\n{out}");
    }
    assert!(!repository.path().join("network/plan.out").exists());
    let (_, plan) = repository.json(&["--dry-run"]);
    let reasons: Vec<&str> =
        plan["templates"].as_array().unwrap().iter().map(|one| one["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["BadGlob", "Matched", "Matched", "OtherRef", "Matched"]);
}

#[test]
fn a_container_without_a_command_or_with_what_is_not_there_fails_at_once_and_says_so() {
    let silent = template("silent", "", "true").replace("          command: [/bin/sh, -ec]\n", "");
    let missing = template("missing", "", "true").replace(
        "          args:",
        "          env: [{name: A, valueFrom: {secretKeyRef: {name: nowhere, key: k}}}]\n          args:",
    );
    let repository = Repository::new(&(silent + &missing));
    repository.write("network/main.tf", "new\n");
    let begun = Instant::now();
    let (code, result) = repository.json(&[]);
    assert!(begun.elapsed() < BOUND);
    assert_eq!(code, 1, "{result:#}");
    let run = |name: &str| {
        result["runs"].as_array().unwrap().iter().find(|run| run["template"] == name).unwrap().clone()
    };
    let told = run("silent")["failedContainers"][0]["verdict"].to_string();
    assert!(told.contains("`command` must be set"), "{result:#}");
    assert_eq!(run("missing")["reason"], "ContainerCannotStart");
    assert!(run("missing")["message"].as_str().unwrap().contains("nowhere"), "{result:#}");
}

#[test]
fn what_is_missing_or_refused_is_named() {
    let nowhere = tempfile::tempdir().unwrap();
    let told = pawl(nowhere.path(), &["run"]);
    assert_eq!(told.status.code(), Some(1));
    assert!(text(&told.stderr).ends_with("is not in a git checkout\n"), "{}", text(&told.stderr));
    let repository = Repository::new(&lint_and_plan());
    let (code, _, err) = repository.run(&["--base", "develop"]);
    assert!(code == 1 && err.contains("neither develop nor origin/develop is a commit here"), "{err}");
    let (code, out, _) = repository.run(&[]);
    assert!(code == 0 && out.contains("lint: does not run: no file changed"), "{out}");
    repository.write("refused.yaml", &template("refused", "  supersede: sometimes\n", "true"));
    let (code, _, err) = repository.run(&["--template", "refused.yaml"]);
    assert!(code == 1 && err.contains("sometimes"), "{err}");
    repository.git(&["rm", "-qr", ".terrakojo"]);
    let (code, _, err) = repository.run(&[]);
    assert!(code == 1 && err.contains("no templates: put WorkflowTemplates into .terrakojo/*.yaml"), "{err}");
}

#[test]
fn ctrl_c_stops_what_runs_and_says_what_did_not_end() {
    let repository = Repository::new(&template("slow", "", "echo $$ > pid; sleep 600"));
    repository.write("network/main.tf", "new\n");
    let child = Command::new(PAWL)
        .current_dir(repository.path())
        .args(["run", "-o", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !repository.path().join("pid").exists() {
        assert!(begun.elapsed() < BOUND, "the container never started");
        std::thread::sleep(Duration::from_millis(20));
    }
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["runs"][0]["result"], "Cancelled");
    assert_eq!(result["runs"][0]["reason"], "Interrupted");
}
