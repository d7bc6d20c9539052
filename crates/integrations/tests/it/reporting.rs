//! What is reported is reported once (I7), whatever becomes of the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{Method, Request};
use pawl_integrations::github::error::Fate;
use pawl_integrations::github::fake::{Effect, Fault, Trouble};
use pawl_integrations::github::{Client, Endpoint, Error, Transport};
use pawl_machines::failure::Category;
use pawl_machines::git::github::{CheckState, CommitStatus, Conclusion, StatusState};

use crate::ground::{Ground, app, check_run, now};

#[test]
fn a_check_run_goes_from_queued_to_concluded() {
    let ground = Ground::new();
    let client = ground.client();
    let mut run = check_run(&ground.head(), "w1-1");
    let made = now(client.ensure_check_run(&run)).unwrap();
    assert_eq!(made.state, CheckState::Queued);
    run.state = CheckState::InProgress;
    run.started_at = Some(pawl_engine::Clock::now(&*ground.clock));
    now(client.update_check_run(made.id, &run)).unwrap();
    run.state = CheckState::Completed(Conclusion::TimedOut);
    run.completed_at = run.started_at;
    run.text = "x".repeat(70_000);
    let done = now(client.update_check_run(made.id, &run)).unwrap();
    assert_eq!(done.state, run.state);
    let seen = &ground.repo.check_runs()[0];
    assert_eq!((seen.conclusion.as_deref(), seen.name.as_str()), (Some("timed_out"), "plan(w1-1)"));
    assert_eq!(seen.details_url.as_deref(), Some("https://pawl.example/workflows/w"));
    assert_eq!(seen.text.as_ref().map(|text| text.chars().count()), Some(65_535), "cut to what GitHub takes");
}

#[test]
fn a_commit_is_looked_at_once_however_many_check_runs_it_gets() {
    let ground = Ground::new();
    let client = ground.client();
    for n in 0..50 {
        now(client.ensure_check_run(&check_run(&ground.head(), &format!("w{n}-1")))).unwrap();
    }
    let budget = client.budget();
    assert_eq!(budget.of(Endpoint::CheckRuns).sent, 1);
    assert_eq!(budget.of(Endpoint::CreateCheckRun).sent, 50);
    assert_eq!(ground.repo.check_runs().len(), 50);
    assert!(now(client.find_check_run(&ground.head(), "w7-1")).unwrap().is_some());
    assert_eq!(client.budget().of(Endpoint::CheckRuns).sent, 1);
}

#[test]
fn i7_a_check_run_of_an_earlier_life_is_adopted() {
    let ground = Ground::new();
    let earlier = ground.client();
    for n in 0..150 {
        now(earlier.ensure_check_run(&check_run(&ground.head(), &format!("w{n}-1")))).unwrap();
    }
    let fresh = ground.client();
    let found = now(fresh.ensure_check_run(&check_run(&ground.head(), "w3-1"))).unwrap();
    assert_eq!(ground.runs_made().values().max(), Some(&1));
    assert_eq!(ground.repo.check_runs().iter().find(|run| run.id == found.id).unwrap().external_id, "w3-1");
    assert_eq!(fresh.budget().of(Endpoint::CreateCheckRun).sent, 0);
}

#[test]
fn i7_whatever_becomes_of_a_create_there_is_one_check_run_in_the_end() {
    for trouble in [
        Trouble::LostRequest,
        Trouble::LostReply,
        Trouble::Hang,
        Trouble::HangAfter,
        Trouble::Before(500),
        Trouble::After(500),
        Trouble::Before(502),
        Trouble::After(502),
        Trouble::NoConnection,
        Trouble::SecondaryLimit { retry_after: Some(1) },
    ] {
        let ground = Ground::new();
        let client = ground.client();
        now(client.ensure_check_run(&check_run(&ground.head(), "other"))).unwrap();
        ground.fake.order(Fault::on(&Method::POST, "/check-runs", trouble));
        let run = check_run(&ground.head(), "w1-1");
        let error = now(client.ensure_check_run(&run)).unwrap_err();
        assert_eq!(error.category(), Category::Transient, "{error}");
        ground.clock.pass(2);
        let made = now(client.ensure_check_run(&run)).unwrap();
        assert_eq!(ground.runs_made()["w1-1"], 1, "after {trouble:?}");
        assert_eq!(
            ground.repo.check_runs().iter().find(|run| run.external_id == "w1-1").unwrap().id,
            made.id
        );
    }
}

#[tokio::test]
async fn i7_a_create_that_nobody_waited_for_is_looked_for() {
    let ground = Ground::new();
    let (client, gate) = gated(&ground);
    let run = check_run(&ground.head(), "w1-1");
    assert_eq!(client.find_check_run(&ground.head(), "w1-1").await.unwrap(), None);
    gate.store(true, Ordering::SeqCst);
    let mut waiting = Box::pin(client.ensure_check_run(&run));
    assert!(futures::poll!(&mut waiting).is_pending());
    drop(waiting);
    gate.store(false, Ordering::SeqCst);
    client.ensure_check_run(&run).await.unwrap();
    assert_eq!(ground.runs_made()["w1-1"], 1);
}

#[tokio::test]
async fn a_create_that_hangs_holds_up_nobody_else_of_its_commit() {
    let ground = Ground::new();
    let (client, gate) = gated(&ground);
    client.find_check_run(&ground.head(), "w1-1").await.unwrap();
    gate.store(true, Ordering::SeqCst);
    let slow = check_run(&ground.head(), "w1-1");
    let mut waiting = Box::pin(client.ensure_check_run(&slow));
    assert!(futures::poll!(&mut waiting).is_pending());
    gate.store(false, Ordering::SeqCst);
    client.ensure_check_run(&check_run(&ground.head(), "w2-1")).await.unwrap();
    assert_eq!(client.budget().of(Endpoint::CheckRuns).sent, 1);
}

/// A client whose writes are carried out, and whose answers do not come while the gate is closed.
fn gated(ground: &Ground) -> (Client, Arc<AtomicBool>) {
    let closed = Arc::new(AtomicBool::new(false));
    let (gate, inner) = (Arc::clone(&closed), ground.transport.clone());
    let transport = Transport::new(tower::service_fn(move |request: Request<Bytes>| {
        let (gate, inner) = (Arc::clone(&gate), inner.clone());
        async move {
            let answer = tower::ServiceExt::oneshot(inner, request).await;
            if gate.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            answer
        }
    }));
    (ground.client_through(transport, app()), closed)
}

#[test]
fn a_refusal_for_good_is_told_and_what_is_known_stays_known() {
    let ground = Ground::new();
    let client = ground.client();
    now(client.ensure_check_run(&check_run(&ground.head(), "w1-1"))).unwrap();
    ground.fake.order(Fault::on(&Method::POST, "/check-runs", Trouble::Before(422)));
    let error = now(client.ensure_check_run(&check_run(&ground.head(), "w2-1"))).unwrap_err();
    assert_eq!((error.category(), error.fate()), (Category::Permanent, Fate::NotCarriedOut));
    now(client.ensure_check_run(&check_run(&ground.head(), "w3-1"))).unwrap();
    assert_eq!(client.budget().of(Endpoint::CheckRuns).sent, 1);
}

#[test]
fn a_check_run_that_is_gone_is_gone() {
    let ground = Ground::new();
    let error = now(ground.client().update_check_run(1, &check_run(&ground.head(), "w1-1"))).unwrap_err();
    assert!(matches!(error, Error::NotFound { status: 404, .. }), "{error}");
}

#[test]
fn with_a_user_s_token_check_runs_are_refused_and_statuses_work() {
    let ground = Ground::new();
    let client = ground.token_client();
    let error = now(client.ensure_check_run(&check_run(&ground.head(), "w1-1"))).unwrap_err();
    assert!(error.to_string().contains("GitHub App"), "{error}");
    assert_eq!(error.category(), Category::Permanent);
    let mut status = CommitStatus {
        sha: ground.head(),
        context: "plan(a)".to_owned(),
        state: StatusState::Pending,
        description: "x".repeat(200),
        target_url: None,
    };
    now(client.set_status(&status)).unwrap();
    status.state = StatusState::Failure;
    now(client.set_status(&status)).unwrap();
    assert_eq!(ground.repo.statuses(&ground.head())["plan(a)"], "failure");
    assert_eq!(now(client.statuses(&ground.head())).unwrap()["plan(a)"], "failure");
}

#[test]
fn a_comment_is_made_once_whatever_becomes_of_the_answer() {
    let ground = Ground::new();
    let number = ground.repo.open_pull(&ground.repo, "main", "main", "alice", false).unwrap();
    let client = ground.client();
    ground.fake.order(Fault::on(&Method::POST, "/comments", Trouble::LostReply));
    let say = || now(client.say(number, "<!-- pawl:help:9 -->", "Commands: /retest"));
    assert_eq!(say().unwrap_err().fate(), Fate::Unknown);
    say().unwrap();
    say().unwrap();
    assert_eq!(ground.count(|effect| matches!(effect, Effect::Commented { .. })), 1);
    assert!(ground.repo.comments(number)[0].1.contains("<!-- pawl:help:9 -->"));
}
