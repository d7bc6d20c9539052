//! GitHub's own examples of answers are read: not only what our fake makes of them.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Request, Response};
use pawl_integrations::github::fake::TOKEN;
use pawl_integrations::github::{Client, Credentials, Transport, auth::Secret};
use pawl_integrations::transport::Broken;
use pawl_machines::git::github::{
    ChangedFile, CheckState, CommitStatus, Conclusion, Permission, Relation, StatusState,
};
use serde_json::Value;

use crate::ground::{Ground, check_run, now};

/// A GitHub that answers everything with its example.
fn examples() -> Transport {
    let examples: BTreeMap<String, Value> =
        serde_json::from_str(include_str!("../data/github-examples.json")).unwrap();
    Transport::new(tower::service_fn(move |request: Request<Bytes>| {
        let asked: Vec<&str> = request.uri().path().trim_start_matches("/api/v3").split('/').collect();
        let fitting = examples.values().filter(|example| {
            let form: Vec<&str> = example["path"].as_str().unwrap().split('/').collect();
            let same = |(form, asked): (&&str, &&str)| form.starts_with('{') || form == asked;
            let method = example["method"].as_str().unwrap() == request.method().as_str();
            method && form.len() == asked.len() && form.iter().zip(&asked).all(same)
        });
        let example = fitting.min_by_key(|example| example["path"].as_str().unwrap().matches('{').count());
        let example = example.unwrap_or_else(|| panic!("no example for {}", request.uri()));
        let status = u16::try_from(example["status"].as_u64().unwrap()).unwrap();
        let answer = Response::builder().status(status).body(Bytes::from(example["value"].to_string()));
        std::future::ready(Ok::<_, Broken>(answer.unwrap()))
    }))
}

fn client(ground: &Ground) -> Client {
    ground.client_through(examples(), Credentials::Token(Secret::new(TOKEN)))
}

const SHA: &str = "6dcb09b5b57875f334f61aebed695e2e4193db5e";

#[test]
fn what_is_in_a_repository_is_read() {
    let ground = Ground::new();
    let client = client(&ground);
    assert_eq!(now(client.repository()).unwrap(), "octocat/Hello-World");
    let branches = now(client.branches()).unwrap();
    assert_eq!(branches[0].name, "master");
    let pulls = now(client.pull_requests()).unwrap();
    assert_eq!((pulls[0].number, pulls[0].head_ref.as_str()), (1347, "new-topic"));
    assert_eq!(pulls[0].head_repository.as_deref(), Some("octocat/Hello-World"));
    assert_eq!(now(client.permission("octocat")).unwrap(), Permission::Admin);
    let comments = now(client.comments(jiff::Timestamp::UNIX_EPOCH)).unwrap();
    assert_eq!((comments[0].number, comments[0].author.as_str()), (1347, "octocat"));
    assert_eq!(now(client.comment_texts(1347)).unwrap(), ["Me too"]);
    assert_eq!(now(client.statuses(SHA)).unwrap()["continuous-integration/jenkins"], "success");
}

#[test]
fn what_changed_is_read() {
    let ground = Ground::new();
    let client = client(&ground);
    let file = ChangedFile { path: "file1.txt".to_owned(), previous_path: None, removed: false };
    let commit = now(client.commit(SHA)).unwrap();
    assert_eq!(
        (commit.brief.message.as_str(), commit.brief.author.as_deref()),
        ("Fix all the bugs", Some("octocat"))
    );
    assert_eq!(commit.files.files, std::slice::from_ref(&file));
    assert_eq!(now(client.pull_files(1347)).unwrap().files, std::slice::from_ref(&file));
    assert_eq!(now(client.since_merge_base("master", "topic")).unwrap().files, [file]);
    let commits = now(client.commits("master", "topic")).unwrap();
    // The example has one commit, which is its own parent, and counts it as behind and as ahead.
    assert_eq!((commits.relation, commits.commits.len()), (Relation::Behind, 1));
    assert_eq!(commits.commits[0].sha, SHA);
}

#[test]
fn what_was_reported_is_read() {
    let ground = Ground::new();
    let client = client(&ground);
    let run = check_run(SHA, "w1-1");
    // Its example has no key of ours, so there is none yet.
    assert_eq!(now(client.find_check_run(SHA, "w1-1")).unwrap(), None);
    let made = now(client.ensure_check_run(&run)).unwrap();
    assert_eq!((made.id, made.state), (4, CheckState::Completed(Conclusion::Neutral)));
    let updated = now(client.update_check_run(4, &run)).unwrap();
    assert_eq!(updated.state, CheckState::Completed(Conclusion::Neutral));
    let status = CommitStatus {
        sha: SHA.to_owned(),
        context: "plan(a)".to_owned(),
        state: StatusState::Success,
        description: String::new(),
        target_url: None,
    };
    now(client.set_status(&status)).unwrap();
    now(client.say(1347, "<!-- m -->", "hello")).unwrap();
}
