//! GitHub is left alone when it wants to be, and asked no more than needed.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use pawl_integrations::github::error::Wait;
use pawl_integrations::github::fake::{Change, Fault, Trouble};
use pawl_integrations::github::{Endpoint, Error, Transport};
use pawl_integrations::transport::{Broken, MAX_BODY_BYTES};
use pawl_machines::failure::{Category, Failure};

use crate::ground::{Ground, app, check_run, now};

#[test]
fn what_did_not_change_costs_no_rate_limit_and_is_served_from_memory() {
    let ground = Ground::new();
    for n in 0..150 {
        ground.repo.set_branch(&format!("b{n:03}"), &ground.head());
    }
    let client = ground.client();
    let first = now(client.branches()).unwrap();
    let left = client.rate_limit().unwrap().remaining;
    let second = now(client.branches()).unwrap();
    assert_eq!(first, second);
    assert_eq!(client.rate_limit().unwrap().remaining, left);
    let count = client.budget().of(Endpoint::Branches);
    assert_eq!((count.sent, count.not_modified, count.failed), (4, 2, 0));
}

#[test]
fn what_did_change_is_seen_though_it_was_known() {
    let ground = Ground::new();
    let client = ground.client();
    now(client.branches()).unwrap();
    let sha = ground.repo.push("main", &Change::new("2").put("n", "2"));
    assert_eq!(now(client.branches()).unwrap()[0].sha, sha);
}

#[test]
fn below_the_reserve_looking_waits_and_reporting_goes_on() {
    let ground = Ground::new();
    ground.fake.set_rate_limit(100);
    let client = ground.client();
    let sha = ground.head();
    for n in 0..91 {
        now(client.for_reports().find_check_run(&format!("{n:040}"), "w")).unwrap_err();
    }
    assert_eq!(client.rate_limit().unwrap().remaining, 9);
    let error = now(client.branches()).unwrap_err();
    assert!(matches!(error, Error::Waiting { why: Wait::Reserve, .. }), "{error}");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(3600)));
    now(client.ensure_check_run(&check_run(&sha, "w1-1"))).unwrap();
    ground.clock.pass(3600);
    now(client.branches()).unwrap();
}

#[test]
fn a_used_up_limit_is_a_time_to_come_back_and_nothing_is_sent_before() {
    let ground = Ground::new();
    ground.fake.set_rate_limit(1);
    let client = ground.client();
    let run = check_run(&ground.head(), "w1-1");
    ground.clock.pass(0);
    let error = now(client.ensure_check_run(&run)).unwrap_err();
    assert!(matches!(error, Error::Waiting { why: Wait::Primary, .. }), "{error}");
    let sent = ground.fake.requests();
    let failure = Failure::from(now(client.ensure_check_run(&run)).unwrap_err());
    assert_eq!(ground.fake.requests(), sent, "nothing is sent while it would be refused");
    assert_eq!((failure.category, failure.reason.as_str()), (Category::Transient, "RateLimited"));
    ground.fake.set_rate_limit(5000);
    ground.clock.pass(3600);
    now(client.ensure_check_run(&run)).unwrap();
    assert_eq!(ground.runs_made()["w1-1"], 1);
}

#[test]
fn a_secondary_limit_is_honoured_with_and_without_a_time() {
    for (told, pause) in [(Some(17), 17), (None, 60)] {
        let ground = Ground::new();
        let client = ground.client();
        now(client.branches()).unwrap();
        ground.fake.order(Fault::next(Trouble::SecondaryLimit { retry_after: told }));
        let error = now(client.branches()).unwrap_err();
        assert!(matches!(error, Error::Waiting { why: Wait::Secondary, .. }), "{error}");
        assert_eq!(error.retry_after(), Some(Duration::from_secs(pause)));
        let sent = ground.fake.requests();
        let pause = i64::try_from(pause).unwrap();
        ground.clock.pass(pause - 1);
        now(client.branches()).unwrap_err();
        assert_eq!(ground.fake.requests(), sent);
        ground.clock.pass(1);
        now(client.branches()).unwrap();
    }
}

#[test]
fn failures_say_what_was_tried_and_whether_it_may_have_been_done() {
    let ground = Ground::new();
    let client = ground.client();
    now(client.branches()).unwrap();
    for (trouble, said) in [
        (Trouble::Before(500), "GitHub answered 500"),
        (Trouble::Before(502), "not an answer of GitHub: \"<html>"),
        (Trouble::Hang, "no answer within 10 s; it may have been carried out"),
        (Trouble::LostReply, "connection reset; it may have been carried out"),
        (Trouble::NoConnection, "not sent: cannot connect"),
    ] {
        ground.fake.order(Fault::on(&Method::GET, "/branches", trouble));
        let sent = ground.fake.requests();
        let failure = Failure::from(now(client.branches()).unwrap_err());
        assert_eq!(failure.category, Category::Transient);
        assert!(failure.message.contains(said), "{failure}");
        assert_eq!(failure.attempt, "GET /repos/acme/infra/branches?per_page=100");
        assert_eq!(ground.fake.requests() - sent, 1, "nothing is sent again by itself");
    }
    assert_eq!(client.budget().total().failed, 5);
}

#[test]
fn an_answer_that_is_too_large_or_no_json_is_an_error() {
    let ground = Ground::new();
    for (body, said) in
        [(vec![b' '; MAX_BODY_BYTES + 1], "larger than"), (b"[{".to_vec(), "cannot read the answer")]
    {
        let body = Bytes::from(body);
        let inner = ground.transport.clone();
        let transport = Transport::new(tower::service_fn(move |request: Request<Bytes>| {
            let (inner, body) = (inner.clone(), body.clone());
            async move {
                if *request.method() == Method::POST {
                    return tower::ServiceExt::oneshot(inner, request).await;
                }
                Ok::<_, Broken>(Response::new(body))
            }
        }));
        let client = ground.client_through(transport, app());
        let error = now(client.branches()).unwrap_err();
        assert!(matches!(error, Error::Unreadable { .. }) && error.to_string().contains(said), "{error}");
    }
}
