//! Does `pawl up` bear a person with `kubectl`? Where there is no kubectl, there is nothing to test, and that is said.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::{PAWL, text};

/// Far longer than anything here takes on a busy machine; kubectl gives up by itself after it.
const BOUND: &str = "90s";

/// A control plane, and a person at it.
pub(crate) struct Up {
    pub(crate) home: tempfile::TempDir,
    pawl: Child,
}

impl Up {
    /// Starts one; `None` where nobody has kubectl.
    pub(crate) fn new() -> Option<Self> {
        Self::with(&[])
    }

    /// The same, told more.
    pub(crate) fn with(more: &[&str]) -> Option<Self> {
        Self::within(&[], more)
    }

    /// The same, in an environment that says more.
    #[expect(clippy::print_stderr, reason = "a test that cannot run says so")]
    pub(crate) fn within(around: &[(&str, &str)], more: &[&str]) -> Option<Self> {
        let version = Command::new("kubectl").args(["version", "--client"]).output();
        if !version.is_ok_and(|output| output.status.success()) {
            eprintln!(
                "SKIPPED: there is no kubectl on this machine's PATH (`make kubectl` says how to get it)"
            );
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        let pawl = Self::start(home.path(), around, more);
        Some(Self { home, pawl })
    }

    /// `kill -9`, and a start as after it.
    pub(crate) fn kill_and_start_again(&mut self, around: &[(&str, &str)], more: &[&str]) {
        self.pawl.kill().unwrap();
        self.pawl.wait().unwrap();
        self.pawl = Self::start(self.home.path(), around, more);
    }

    fn start(home: &Path, around: &[(&str, &str)], more: &[&str]) -> Child {
        let mut pawl = Command::new(PAWL)
            .args(["up", "--listen", "127.0.0.1:0", "--data-dir", "data", "--write-kubeconfig", "kubeconfig"])
            .args(more)
            .envs(around.iter().copied())
            .current_dir(home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .env_remove("PAWL_LOG")
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(pawl.stdout.take().unwrap()).lines();
        let up = lines.any(|line| line.unwrap().contains("kubeconfig"));
        assert!(up, "pawl up ended before it was up");
        // The rest is read as it comes: a full pipe would hold Pawl up.
        std::thread::spawn(move || lines.for_each(drop));
        pawl
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command.current_dir(self.home.path()).env("KUBECONFIG", "kubeconfig").env("HOME", self.home.path());
        command.arg(format!("--request-timeout={BOUND}")).args(words).stdin(Stdio::null());
        command
    }

    fn output(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// What kubectl prints; it must be content.
    pub(crate) fn says(&self, words: &[&str]) -> String {
        let output = self.output(words);
        assert!(output.status.success(), "kubectl {}: {}", words.join(" "), text(&output.stderr));
        text(&output.stdout)
    }

    /// What kubectl complains of; it must not be content.
    fn complains(&self, words: &[&str]) -> String {
        let output = self.output(words);
        assert!(!output.status.success(), "kubectl {}: {}", words.join(" "), text(&output.stdout));
        text(&output.stderr)
    }

    pub(crate) fn apply(&self, manifest: &str) -> String {
        let mut child =
            self.command(&["apply", "-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(manifest.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{manifest}");
        text(&output.stdout)
    }

    /// Waits for some of many.
    pub(crate) fn wait_for(&self, what: &str, which: &[&str], until: &str) {
        let (until, bound) = (format!("--for={until}"), format!("--timeout={BOUND}"));
        let words: Vec<&str> =
            ["wait", what].iter().chain(which).copied().chain([until.as_str(), bound.as_str()]).collect();
        self.says(&words);
    }

    pub(crate) fn wait(&self, what: &str, until: &str) {
        self.says(&["wait", what, &format!("--for={until}"), &format!("--timeout={BOUND}")]);
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // It has ended already, or it ends now.
        let _ = self.pawl.kill();
        let _ = self.pawl.wait();
    }
}

fn job(name: &str, script: &str) -> String {
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}}}\nspec:\n  backoffLimit: 0\n  template:\n    spec:\n      \
         restartPolicy: Never\n      containers:\n      - name: main\n        image: example.invalid/any\n        \
         terminationMessagePolicy: FallbackToLogsOnError\n        command: [sh, -c, {script:?}]\n"
    )
}

#[test]
fn a_job_is_applied_watched_followed_described_edited_and_deleted() {
    let Some(up) = Up::new() else { return };
    let mut watch = up.command(&["get", "pods", "--watch"]).stdout(Stdio::piped()).spawn().unwrap();
    let applied = up.apply(&job("hello", "for i in 1 2 3; do echo line $i; sleep 0.2; done; cat /var/run/secrets/kubernetes.io/serviceaccount/namespace"));
    assert_eq!(applied, "job.batch/hello created\n");
    assert_eq!(up.apply(&job("hello", "for i in 1 2 3; do echo line $i; sleep 0.2; done; cat /var/run/secrets/kubernetes.io/serviceaccount/namespace")), "job.batch/hello unchanged\n");
    up.says(&["wait", "pod", "-l", "job-name=hello", "--for=jsonpath={.status.phase}", "--timeout", BOUND]);
    let log = up.says(&["logs", "--follow", "job/hello", "--pod-running-timeout", BOUND]);
    assert!(log.starts_with("line 1\nline 2\nline 3\n"), "{log}");
    // It has what client libraries look for, where the machine lets it have a view of its own.
    assert!(log.ends_with("default") || log.contains("No such file"), "{log}");
    up.wait("job/hello", "condition=complete");
    assert_eq!(
        up.says(&["logs", "job/hello", "--tail=1", "--since=1h"]).trim_end(),
        log.lines().last().unwrap()
    );
    let described = up.says(&["describe", "job", "hello"]);
    assert!(described.contains("1 Succeeded") && described.contains("SuccessfulCreate"), "{described}");
    let pod = up.says(&["describe", "pod", "-l", "job-name=hello"]);
    for part in ["Controlled By:  Job/hello", "Exit Code:    0", "ImageIgnored", "Started"] {
        assert!(pod.contains(part), "{part}: {pod}");
    }
    let mut edit = up.command(&["edit", "job", "hello"]);
    let edited = edit.env("KUBE_EDITOR", "sed -i s/backoffLimit:.0/backoffLimit:\\ 7/").output().unwrap();
    assert!(edited.status.success(), "{}", text(&edited.stderr));
    assert_eq!(up.says(&["get", "job", "hello", "-o", "jsonpath={.spec.backoffLimit}"]), "7");

    up.apply(&job("bad", "echo oops >&2; exit 3"));
    up.wait("job/bad", "condition=failed");
    let pod = up.says(&["describe", "pod", "-l", "job-name=bad"]);
    assert!(pod.contains("oops") && pod.contains("Exit Code:    3"), "{pod}");

    assert_eq!(up.says(&["delete", "job", "hello", "bad", "--wait"]).lines().count(), 2);
    up.says(&["wait", "pods", "--all", "--for=delete", "--timeout", BOUND]);
    assert_eq!(up.says(&["get", "jobs,pods"]), "");
    watch.kill().unwrap();
    watch.wait().unwrap();
    let mut seen = String::new();
    watch.stdout.take().unwrap().read_to_string(&mut seen).unwrap();
    for part in ["NAME", "hello-", "Running", "Completed", "Error"] {
        assert!(seen.contains(part), "{part}: {seen}");
    }
}

/// A Job of three indexes, each a process that knows its own.
fn indexed(name: &str, policy: &str, script: &str) -> String {
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}}}\nspec:\n  completionMode: Indexed\n  completions: 3\n  \
         parallelism: 3\n  {policy}\n  template:\n    spec:\n      restartPolicy: Never\n      \
         terminationGracePeriodSeconds: 1\n      containers:\n      - name: main\n        image: example.invalid/any\n        \
         command: [sh, -c, {script:?}]\n"
    )
}

#[test]
fn policies_of_jobs_decide_over_real_processes() {
    let Some(up) = Up::new() else { return };
    // The leader is through: the workers that would go on forever are stopped, and the Job is a success.
    let leader = "successPolicy: {rules: [{succeededIndexes: '0'}]}";
    up.apply(&indexed("led", leader, "test $JOB_COMPLETION_INDEX = 0 || exec sleep 600"));
    // One index fails for good and the others do not care.
    let alone = "backoffLimitPerIndex: 0";
    up.apply(&indexed("alone", alone, "test $JOB_COMPLETION_INDEX != 1 || exit 5"));
    // A failure that is no use to try again ends all.
    let fatal = "podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [42]}}]}";
    up.apply(&indexed("fatal", fatal, "test $JOB_COMPLETION_INDEX != 2 || exit 42; exec sleep 600"));
    let said = |name: &str, path: &str| up.says(&["get", "job", name, "-o", &format!("jsonpath={{{path}}}")]);
    up.wait("job/led", "condition=complete");
    assert_eq!(said("led", ".status.completedIndexes"), "0");
    assert_eq!(said("led", ".status.conditions[?(@.type==\"Complete\")].reason"), "SuccessPolicy");
    up.wait("job/alone", "condition=failed");
    let indexes = (said("alone", ".status.completedIndexes"), said("alone", ".status.failedIndexes"));
    assert_eq!(indexes, ("0,2".to_owned(), "1".to_owned()));
    assert_eq!(said("alone", ".status.conditions[?(@.type==\"Failed\")].reason"), "FailedIndexes");
    up.wait("job/fatal", "condition=failed");
    let why = said("fatal", ".status.conditions[?(@.type==\"Failed\")].message");
    assert!(why.contains("failed with exit code 42 matching FailJob rule at index 0"), "{why}");
    let running = up.says(&["get", "pods", "--field-selector=status.phase=Running", "-o", "name"]);
    assert_eq!(running, "", "nothing is left of any of them");
}

#[test]
fn our_kinds_are_explained_checked_and_listed() {
    let Some(up) = Up::new() else { return };
    assert!(up.says(&["explain", "workflow.spec"]).contains("One run of one template"));
    let freeze = "apiVersion: pawl.dev/v1alpha1\nkind: Freeze\nmetadata: {name: holidays}\nspec: {nope: 1}\n";
    std::fs::write(up.home.path().join("freeze.yaml"), freeze).unwrap();
    assert!(up.complains(&["apply", "-f", "freeze.yaml"]).contains("unknown field \"spec.nope\""));
    for kind in ["workflows", "installations", "remediationrequests", "approvals"] {
        assert_eq!(up.says(&["get", kind, "-A"]), "", "{kind}");
    }
}

#[test]
fn a_deployment_rolls_out_scales_and_is_undone() {
    let Some(up) = Up::new() else { return };
    up.apply(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 2\n  selector: {matchLabels: {app: web}}\n  \
         template:\n    metadata: {labels: {app: web}}\n    spec: {containers: [{name: web, image: 'example.invalid/web:1'}]}\n",
    );
    let rolled = |up: &Up| up.says(&["rollout", "status", "deployment/web", &format!("--timeout={BOUND}")]);
    assert!(rolled(&up).contains("successfully rolled out"));
    up.says(&["scale", "deployment/web", "--replicas=3"]);
    rolled(&up);
    assert_eq!(up.says(&["get", "deployment", "web", "-o", "jsonpath={.status.readyReplicas}"]), "3");
    up.says(&["set", "image", "deployment/web", "web=example.invalid/web:2"]);
    rolled(&up);
    assert_eq!(up.says(&["rollout", "history", "deployment/web"]).matches("<none>").count(), 2);
    up.says(&["rollout", "undo", "deployment/web"]);
    rolled(&up);
    let image =
        up.says(&["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].spec.containers[0].image}"]);
    assert_eq!(image, "example.invalid/web:1");
    let pod = up.says(&["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].metadata.name}"]);
    // What a process alone could do is refused, and the words say why.
    for words in [&["exec", &pod, "--", "ls"][..], &["attach", &pod], &["cp", &format!("{pod}:/x"), "x"]] {
        let why = up.complains(words);
        assert!(why.contains("is not served: pods run as processes of this machine"), "{words:?}: {why}");
    }
    let why = up.complains(&["logs", &pod]);
    assert!(why.contains(&pod) && why.contains("without a process"), "{why}");
}

#[test]
fn a_node_is_cordoned_drained_and_let_go() {
    let Some(up) = Up::new() else { return };
    let run = |name: &str, script: &str| {
        let image = "--image=example.invalid/any";
        up.says(&["run", name, image, "--restart=Never", "--command", "--", "sh", "-c", script])
    };
    run("long", "sleep 600");
    up.wait("pod/long", "condition=Ready");
    up.says(&["cordon", "pawl"]);
    assert!(up.says(&["get", "nodes"]).contains("Ready,SchedulingDisabled"));
    let drained = up.says(&["drain", "pawl", "--force", "--grace-period=1", &format!("--timeout={BOUND}")]);
    assert!(drained.contains("pod/long evicted") && drained.contains("node/pawl drained"), "{drained}");
    run("held", "exit 0");
    up.says(&[
        "wait",
        "pod/held",
        "--for=jsonpath={.status.conditions[?(@.type==\"PodScheduled\")].reason}=Unschedulable",
        "--timeout",
        BOUND,
    ]);
    assert!(up.says(&["describe", "pod", "held"]).contains("1 node(s) were unschedulable"));
    up.says(&["uncordon", "pawl"]);
    up.wait("pod/held", "jsonpath={.status.phase}=Succeeded");
    let node = up.says(&["describe", "node", "pawl"]);
    assert!(node.contains("HolderIdentity:  pawl") && node.contains("pawl.dev/limits"), "{node}");
}
