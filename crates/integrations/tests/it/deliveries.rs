//! The webhooks that the fake would send are GitHub's, and signed.

use pawl_integrations::github::fake::{Change, Role, WEBHOOK_SECRET};
use pawl_integrations::github::webhook;
use serde_json::Value;

use crate::ground::{Ground, check_run, now};

/// Events and payloads since last asked.
fn taken(ground: &Ground) -> Vec<(String, Value)> {
    let deliveries = ground.fake.take_deliveries();
    deliveries
        .into_iter()
        .map(|delivery| {
            assert!(webhook::verify(WEBHOOK_SECRET.as_bytes(), &delivery.body, &delivery.signature));
            (delivery.event.to_owned(), serde_json::from_slice(&delivery.body).unwrap())
        })
        .collect()
}

#[test]
fn what_people_do_is_told_signed_and_in_order() {
    let ground = Ground::new();
    taken(&ground);
    let before = ground.head();
    let fork = ground.repo.fork("mallory");
    fork.push("x", &Change::new("x").by("mallory").put("x", "1"));
    let number = ground.repo.open_pull(&fork, "x", "main", "mallory", false).unwrap();
    let after = fork.push("x", &Change::new("y").by("mallory").put("x", "2"));
    ground.repo.permit("maria", Role::Write);
    ground.repo.comment(number, "maria", &format!("/ok-to-test {after}"));
    ground.repo.push("main", &Change::new("z").put("z", "1"));
    let told = taken(&ground);
    let kinds: Vec<(&str, &str)> = told
        .iter()
        .map(|(event, payload)| (event.as_str(), payload["action"].as_str().unwrap_or("")))
        .collect();
    let expected = [
        ("pull_request", "opened"),
        ("pull_request", "synchronize"),
        ("issue_comment", "created"),
        ("push", ""),
    ];
    assert_eq!(kinds, expected, "of pushes to the fork the App hears nothing");
    assert_eq!(told[1].1["pull_request"]["head"]["sha"], after.as_str());
    assert_eq!(told[2].1["comment"]["user"]["login"], "maria");
    assert!(told[2].1["issue"]["pull_request"].is_object());
    let push = &told[3].1;
    assert_eq!(
        (push["ref"].as_str(), push["before"].as_str()),
        (Some("refs/heads/main"), Some(before.as_str()))
    );
    assert_eq!((push["forced"].as_bool(), &push["commits"][0]["added"][0]), (Some(false), &Value::from("z")));
    assert_eq!(push["repository"]["full_name"], "acme/infra");
    ground.repo.set_branch("main", &before);
    assert_eq!(taken(&ground)[0].1["forced"], true);
    ground.repo.delete_branch("main");
    assert_eq!(taken(&ground)[0].1["deleted"], true);
}

#[test]
fn a_re_run_names_the_check_run_by_our_key() {
    let ground = Ground::new();
    let made = now(ground.client().ensure_check_run(&check_run(&ground.head(), "w1-1"))).unwrap();
    taken(&ground);
    ground.repo.rerequest(made.id, "alice");
    ground.repo.rerequest_suite(&ground.head(), "alice");
    let told = taken(&ground);
    assert_eq!((told[0].0.as_str(), told[0].1["action"].as_str()), ("check_run", Some("rerequested")));
    assert_eq!(told[0].1["check_run"]["external_id"], "w1-1");
    assert_eq!(
        (told[1].0.as_str(), told[1].1["check_suite"]["head_sha"].as_str()),
        ("check_suite", Some(ground.head().as_str()))
    );
}

#[test]
fn a_delivery_is_a_request_with_github_s_headers() {
    let ground = Ground::new();
    let delivery = &ground.fake.take_deliveries()[0];
    let request = delivery.request("http://127.0.0.1:1/webhook".parse().unwrap()).unwrap();
    assert_eq!(request.headers()["x-github-event"], "push");
    assert_eq!(request.headers()["x-hub-signature-256"], delivery.signature.as_str());
    assert_eq!(request.headers()["content-type"], "application/json");
}
