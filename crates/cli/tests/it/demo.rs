//! `pawl up --demo` as a stranger tries it: watch, push, a pull request from a fork, approve it; and what it cost.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{PAWL, pawl, text};

/// Far more than it takes, also on a machine that is busy with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A control plane with the sample, that ends with the test.
pub(crate) struct Up {
    child: Child,
    pub(crate) metrics: String,
}

impl Up {
    pub(crate) fn start(directory: &Path) -> Self {
        let words = ["up", "--demo", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
        let mut child = Command::new(PAWL)
            .current_dir(directory)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .env_remove("PAWL_LOG")
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut metrics = String::new();
        for line in lines.map_while(Result::ok) {
            if let Some((_, address)) = line.split_once("metrics     http://") {
                metrics = address.trim_end_matches("/metrics").to_owned();
            }
            // The last of what can be tried.
            if line.contains("demo alert") {
                return Self { child, metrics };
            }
        }
        panic!("it ended before the sample was there: {:?}", child.wait());
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn demo(directory: &Path, words: &[&str]) -> String {
    let output = pawl(directory, &[&["demo"], words].concat());
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Looks at the check runs until a line has all of these words.
fn until(directory: &Path, words: &[&str]) {
    let began = Instant::now();
    let mut seen = String::new();
    while began.elapsed() < PATIENCE {
        seen = demo(directory, &["checks"]);
        if seen.lines().any(|line| words.iter().all(|word| line.contains(word))) {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("no check run says {words:?}:\n{seen}");
}

pub(crate) fn scrape(address: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_stranger_sees_check_runs_conclude_and_approves_a_fork() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    let up = Up::start(home);
    until(home, &["Terraform plan(envs/prod)", "success", "#1"]);
    until(home, &["Terraform lint(envs/prod)", "failure", "#1"]);
    until(home, &["pawl ", "failure", "#1"]);
    let pushed = demo(home, &["push", "--branch", "feature/mine", "envs/dev/main.tf"]);
    assert!(pushed.starts_with("alice pushed "), "{pushed}");
    until(home, &["Terraform plan(envs/dev)", "success", "feature/mine"]);
    let opened = demo(home, &["pr", "--fork", "mallory"]);
    until(home, &["pawl ", "action_required", "#2"]);
    let approve = opened.lines().find_map(|line| line.split_once("demo comment 2 '")).unwrap().1;
    demo(home, &["comment", "2", approve.trim_end_matches('\'')]);
    until(home, &["Terraform plan(envs/staging)", "success", "#2"]);
    let exposition = scrape(&up.metrics);
    for expected in [
        "pawl_github_requests_total{repository=\"acme/infra\"",
        "for=\"create-check-run\",ended=\"answered\"",
        "pawl_github_rate_limit_remaining{repository=\"acme/infra\"",
    ] {
        assert!(exposition.contains(expected), "{expected} is missing from\n{exposition}");
    }
}

#[test]
fn every_metric_that_is_served_is_documented() {
    let directory = tempfile::tempdir().unwrap();
    let up = Up::start(directory.path());
    let documented = include_str!("../../../../docs/metrics.md");
    let exposition = scrape(&up.metrics);
    let served: Vec<(&str, &str)> =
        exposition.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    assert!(served.len() > 10, "{exposition}");
    for (name, type_) in served {
        let total = if type_ == "counter" { "_total" } else { "" };
        assert!(
            documented.contains(&format!("| `{name}{total}` |")),
            "{name}{total} is not in docs/metrics.md"
        );
    }
}

#[test]
fn without_a_demo_it_says_how_to_start_one() {
    let directory = tempfile::tempdir().unwrap();
    let output = pawl(directory.path(), &["demo", "checks"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("up --demo"), "{}", text(&output.stderr));
}
