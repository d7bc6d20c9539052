//! Hostile policies and conditions in real worker processes: each is stopped, and the next question is answered.

#![expect(clippy::unwrap_used, reason = "what helps a test fails as a test does")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pawl_machines::remedy::safety::{Decision, Held, Policies, Verdict};
use pawl_policy::{DEADLINE, Port, Workers};

/// Shorter than the real one, so that the tests are.
const SHORT: Duration = Duration::from_millis(1500);

/// The hidden entry point, built beside the tests.
fn worker() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let built = tests.parent().unwrap().parent().unwrap().join("examples/policy_worker");
    assert!(built.exists(), "{} is missing: `cargo build --workspace --examples` builds it", built.display());
    built
}

fn port() -> Port {
    Port::new(Arc::new(Workers::of(worker(), vec![]).within(SHORT)))
}

fn policies(name: &str, text: &str) -> Policies {
    Policies { modules: [(format!("{name}/safety.rego"), text.to_owned())].into(), digest: name.to_owned() }
}

async fn ask(port: &Port, name: &str, text: &str, input: &str) -> Verdict {
    port.safety(&policies(name, text), input).await.unwrap()
}

/// Why there is no decision.
fn denied(verdict: Verdict) -> String {
    verdict.decision.unwrap_err()
}

const FRIENDLY: &str =
    "package pawl.safety\ndecision := {\"allow\": input.a == 1, \"require_approval\": true}\n";

/// The port answers as if nothing had happened.
async fn survives(port: &Port) {
    let verdict = ask(port, "friendly", FRIENDLY, r#"{"a": 1}"#).await;
    let expected = Decision { allow: true, require_approval: true, approver_count: 1, ..Decision::default() };
    assert_eq!(verdict.decision, Ok(expected));
}

fn loops() -> String {
    let nested = (0..8).map(|n| format!("  some x{n} in numbers.range(1, 1000)\n")).collect::<String>();
    format!("package pawl.safety\ndecision := {{\"allow\": true}} if {{\n{nested}  x0 + x7 < 0\n}}\n")
}

#[tokio::test]
async fn policies_are_evaluated_in_a_worker_as_they_would_be_here() {
    let port = port();
    survives(&port).await;
    let denied = ask(&port, "friendly", FRIENDLY, r#"{"a": 2}"#).await;
    assert!(!denied.decision.unwrap().allow);
    let v0 = "package old\ndeny[msg] { input.a == 2; msg := \"two\" }\n";
    assert_eq!(ask(&port, "v0", v0, r#"{"a": 2}"#).await.decision.unwrap().deny, ["two"]);
}

#[tokio::test]
async fn an_endless_loop_is_stopped_at_the_deadline() {
    assert_eq!(DEADLINE, Duration::from_secs(5));
    let port = port();
    let started = Instant::now();
    let why = denied(ask(&port, "loop", &loops(), "{}").await);
    assert!(why.contains("took longer"), "{why}");
    assert!(started.elapsed() < SHORT * 4, "{:?}", started.elapsed());
    survives(&port).await;
}

#[tokio::test]
async fn a_comprehension_of_a_gigabyte_is_stopped_at_the_bound() {
    let port = Port::new(Arc::new(Workers::of(worker(), vec![])));
    // Each word is twice as long as the one before.
    let words = (1..30).map(|n| format!("w{n} := concat(\"\", [w{0}, w{0}])\n", n - 1)).collect::<String>();
    let text = format!(
        "package pawl.safety\nw0 := \"0123456789abcdef\"\n{words}decision := {{\"allow\": count(w29) > 0}}\n"
    );
    let why = denied(ask(&port, "large", &text, "{}").await);
    assert!(why.contains("MiB") || why.contains("took longer"), "{why}");
    let text = "package pawl.safety\ndecision := {\"allow\": count([x | x := numbers.range(1, 200000000)[_]]) > 0}\n";
    let why = denied(ask(&port, "range", text, "{}").await);
    assert!(why.contains("MiB"), "{why}");
    survives(&port).await;
}

#[tokio::test]
async fn recursion_that_would_abort_the_process_is_refused_with_its_place() {
    let port = port();
    let text = "package pawl.safety\nf(x) := g(x)\ng(x) := f(x)\ndecision := {\"allow\": f(1)}\n";
    let why = denied(ask(&port, "recursive", text, "{}").await);
    assert!(why.contains("recursive/safety.rego:") && why.contains("leads back to itself"), "{why}");
    survives(&port).await;
}

#[tokio::test]
async fn nested_literals_are_refused_before_they_are_parsed() {
    let port = port();
    let text = format!("package pawl.safety\ndecision := {}1{}\n", "[".repeat(30), "]".repeat(30));
    let started = Instant::now();
    let why = denied(ask(&port, "nested", &text, "{}").await);
    assert!(why.contains("nested/safety.rego:2:") && why.contains("nested"), "{why}");
    assert!(started.elapsed() < SHORT);
    survives(&port).await;
}

#[tokio::test]
async fn an_expression_as_deep_as_its_text_is_long_kills_nobody_but_the_worker() {
    let port = port();
    let sum = "1 +\n".repeat(15_000);
    let text = format!("package pawl.safety\ndecision := {{\"allow\": {sum}1 > 0}}\n");
    // Whether the worker can or cannot, there is an answer.
    let _ = ask(&port, "deep", &text, "{}").await;
    survives(&port).await;
}

#[tokio::test]
async fn a_bad_reload_keeps_the_old_set_and_a_mended_one_takes_its_place() {
    let port = port();
    survives(&port).await;
    let verdict = ask(&port, "broken", "package pawl.safety\ndecision := {\n", r#"{"a": 1}"#).await;
    assert!(verdict.decision.unwrap().allow);
    assert!(verdict.outdated.unwrap().contains("broken/safety.rego:"));
    let mended = "package pawl.safety\ndecision := {\"allow\": false, \"deny\": [\"mended\"]}\n";
    let verdict = ask(&port, "mended", mended, "{}").await;
    assert_eq!((verdict.outdated, verdict.decision.unwrap().deny), (None, vec!["mended".to_owned()]));
}

#[tokio::test]
async fn a_hostile_condition_is_an_error_and_does_not_keep_policy_from_answering() {
    let port = port();
    let hostile = "some x in numbers.range(1, 100000)\nsome y in numbers.range(1, 100000)\nx + y < 0";
    let conditions = async {
        let (one, two, three) = tokio::join!(
            port.condition(hostile, "{}"),
            port.condition(hostile, "{}"),
            port.condition("input.a == 1", r#"{"a": 1}"#),
        );
        for held in [one, two] {
            assert!(matches!(held.unwrap(), Held::Error(why) if why.contains("took longer")));
        }
        assert_eq!(three.unwrap(), Held::Yes { message: None });
    };
    let policy = async {
        let started = Instant::now();
        survives(&port).await;
        assert!(started.elapsed() < SHORT, "{:?}", started.elapsed());
    };
    tokio::join!(conditions, policy);
}

#[tokio::test]
async fn conditions_are_evaluated_in_a_worker_as_they_would_be_here() {
    let port = port();
    let rego = "allow if input.target.status.readyReplicas >= 2\nmessage := \"ready\"";
    let yes = port.condition(rego, r#"{"target": {"status": {"readyReplicas": 2}}}"#).await.unwrap();
    assert_eq!(yes, Held::Yes { message: Some("ready".to_owned()) });
    let no = port.condition(rego, r#"{"target": {"status": {}}}"#).await.unwrap();
    assert_eq!(no, Held::No { message: Some("ready".to_owned()) });
    assert!(matches!(port.condition("allow if {", "{}").await.unwrap(), Held::Error(_)));
}

#[tokio::test]
async fn a_worker_that_somebody_killed_is_replaced() {
    let port = port();
    survives(&port).await;
    let children = || {
        let own = std::process::id();
        std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default()
    };
    for child in children().split_whitespace() {
        let name = std::fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
        assert_eq!(name.trim(), "policy_worker");
        std::process::Command::new("kill").args(["-9", child]).status().unwrap();
    }
    survives(&port).await;
}

#[tokio::test]
async fn where_no_worker_can_be_started_it_is_asked_again_and_nothing_is_allowed() {
    let port = Port::new(Arc::new(Workers::of("/nowhere/pawl".into(), vec![])));
    let failure = port.safety(&policies("friendly", FRIENDLY), r#"{"a": 1}"#).await.unwrap_err();
    assert_eq!(failure.category, pawl_machines::failure::Category::Transient);
}
