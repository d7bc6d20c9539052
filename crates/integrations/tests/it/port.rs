//! The port: whose credentials, which client, and every question answered in the words of plans.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use pawl_integrations::github::auth::{
    APP_ID as APP_ID_KEY, INSTALLATION_ID as INSTALLATION_KEY, PRIVATE_KEY,
};
use pawl_integrations::github::fake::{APP_ID, APP_KEY_PKCS8, Change, INSTALLATION_ID, TOKEN};
use pawl_integrations::github::port::SecretData;
use pawl_integrations::github::{Port, Secrets};
use pawl_machines::failure::{Category, Failure};
use pawl_machines::git::github::{Account, Ask, Call, Identity, Reply};
use pawl_machines::object::Key;

use crate::ground::{API, Ground, check_run, now};

/// A Secret in somebody's hand.
#[derive(Debug, Default)]
struct Drawer {
    secret: Mutex<Option<SecretData>>,
    reads: Mutex<usize>,
}

impl Drawer {
    fn put(&self, version: &str, data: &[(&str, &str)]) {
        let entry = |(key, value): &(&str, &str)| ((*key).to_owned(), value.as_bytes().to_vec());
        let data: BTreeMap<String, Vec<u8>> = data.iter().map(entry).collect();
        *self.secret.lock().unwrap() = Some(SecretData { version: version.to_owned(), data });
    }

    fn reads(&self) -> usize {
        *self.reads.lock().unwrap()
    }
}

impl Secrets for Drawer {
    fn read<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<SecretData, Failure>> {
        *self.reads.lock().unwrap() += 1;
        let found = self.secret.lock().unwrap().clone();
        let missing = || Failure::answered(format!("get Secret {key}"), 404, None, br#"{"kind":"Status"}"#);
        Box::pin(std::future::ready(found.ok_or_else(missing)))
    }
}

fn port(ground: &Ground) -> (Port, Arc<Drawer>) {
    let drawer = Arc::new(Drawer::default());
    drawer.put(
        "1",
        &[
            (APP_ID_KEY, &APP_ID.to_string()),
            (INSTALLATION_KEY, &INSTALLATION_ID.to_string()),
            (PRIVATE_KEY, APP_KEY_PKCS8),
        ],
    );
    (Port::new(drawer.clone(), ground.transport.clone(), ground.clock.clone()), drawer)
}

fn account() -> Arc<Account> {
    Arc::new(Account {
        uid: "u1".to_owned(),
        api_url: API.to_owned(),
        owner: "acme".to_owned(),
        name: "infra".to_owned(),
        secret: Key::new(Some("default"), "github"),
    })
}

fn ask(port: &Port, ask: Ask) -> Result<Reply, Failure> {
    now(port.ask(&Call { account: account(), ask }))
}

#[test]
fn every_question_is_answered_in_kind() {
    let ground = Ground::new();
    let base = ground.head();
    let head = ground.repo.push("main", &Change::new("2").put("a/x.tf", "2"));
    ground.repo.push("side", &Change::new("3").put("b/x.tf", "3"));
    let number = ground.repo.open_pull(&ground.repo, "side", "main", "alice", false).unwrap();
    let (port, _) = port(&ground);
    let since = jiff::Timestamp::UNIX_EPOCH;
    let run = check_run(&head, "w1-1");
    assert!(matches!(ask(&port, Ask::Branches), Ok(Reply::Branches(branches)) if branches.len() == 2));
    assert!(matches!(ask(&port, Ask::PullRequests), Ok(Reply::PullRequests(pulls)) if pulls.len() == 1));
    let commits = ask(&port, Ask::Commits { base, head: head.clone() });
    assert!(matches!(commits, Ok(Reply::Commits(commits)) if commits.commits.len() == 1));
    assert!(matches!(ask(&port, Ask::Commit { sha: head.clone() }), Ok(Reply::Commit(_))));
    assert!(
        matches!(ask(&port, Ask::PullFiles { number }), Ok(Reply::Files(files)) if files.files.len() == 1)
    );
    let compared = ask(&port, Ask::SinceMergeBase { base: "main".to_owned(), head: "side".to_owned() });
    assert!(matches!(compared, Ok(Reply::Files(_))));
    assert!(
        matches!(ask(&port, Ask::Comments { since }), Ok(Reply::Comments(comments)) if comments.is_empty())
    );
    assert!(matches!(ask(&port, Ask::Permission { login: "acme".to_owned() }), Ok(Reply::Permission(_))));
    let find = Ask::FindCheckRun { sha: head.clone(), external_id: "w1-1".to_owned() };
    assert!(matches!(ask(&port, find.clone()), Ok(Reply::CheckRun(None))));
    let Ok(Reply::CheckRun(Some(made))) = ask(&port, Ask::CreateCheckRun(run.clone())) else {
        panic!("a check run")
    };
    assert_eq!(ask(&port, find), Ok(Reply::CheckRun(Some(made))));
    assert!(matches!(ask(&port, Ask::UpdateCheckRun { id: made.id, run }), Ok(Reply::CheckRun(Some(_)))));
    let say = Ask::Say { number, marker: "<!-- m -->".to_owned(), text: "hello".to_owned() };
    assert_eq!(ask(&port, say), Ok(Reply::Done));
}

#[test]
fn how_we_are_known_is_asked_once_and_then_remembered() {
    let ground = Ground::new();
    let (port, drawer) = port(&ground);
    let Ok(Reply::Access(first)) = ask(&port, Ask::Access) else { panic!("access") };
    assert_eq!((first.identity, first.requests), (Identity::App, 2));
    let Ok(Reply::Access(second)) = ask(&port, Ask::Access) else { panic!("access") };
    assert_eq!((second.requests, second.rate_limit), (2, first.rate_limit));
    drawer.put("2", &[("token", TOKEN)]);
    ground.clock.pass(10);
    let Ok(Reply::Access(as_token)) = ask(&port, Ask::Access) else { panic!("access") };
    assert_eq!(as_token.identity, Identity::Token);
}

#[test]
fn a_client_is_kept_while_its_secret_is_the_same() {
    let ground = Ground::new();
    let (port, drawer) = port(&ground);
    ask(&port, Ask::Branches).unwrap();
    ask(&port, Ask::Branches).unwrap();
    assert_eq!(drawer.reads(), 1, "within seconds the Secret is believed");
    ground.clock.pass(60);
    ask(&port, Ask::Branches).unwrap();
    assert_eq!((drawer.reads(), ground.tokens_minted(), port.clients().len()), (2, 1, 1));
}

#[test]
fn a_replaced_token_counts_at_once_when_the_old_one_is_refused() {
    let ground = Ground::new();
    let (port, drawer) = port(&ground);
    drawer.put("2", &[("token", "revoked")]);
    let failure = ask(&port, Ask::Branches).unwrap_err();
    assert_eq!((failure.category, failure.reason.as_str()), (Category::Transient, "Unauthorized"));
    assert!(failure.message.contains("Secret default/github"), "{failure}");
    drawer.put("3", &[("token", TOKEN)]);
    ask(&port, Ask::Branches).unwrap();
}

#[test]
fn credentials_that_are_gone_are_used_no_longer() {
    let ground = Ground::new();
    let (port, drawer) = port(&ground);
    ask(&port, Ask::Branches).unwrap();
    *drawer.secret.lock().unwrap() = None;
    ground.clock.pass(10);
    let sent = ground.fake.requests();
    let failure = ask(&port, Ask::Branches).unwrap_err();
    assert_eq!(failure.category, Category::MissingCredentials);
    assert!(failure.message.contains("Secret default/github does not exist"), "{failure}");
    assert_eq!((ground.fake.requests(), port.clients().len()), (sent, 0));
}

#[test]
fn a_malformed_secret_or_address_is_refused_without_its_value() {
    let ground = Ground::new();
    let (port, drawer) = port(&ground);
    drawer.put("2", &[(APP_ID_KEY, "7"), (INSTALLATION_KEY, "hunter2"), (PRIVATE_KEY, "hunter2")]);
    let failure = ask(&port, Ask::Branches).unwrap_err();
    assert_eq!((failure.category, failure.reason.as_str()), (Category::MissingCredentials, "BadCredentials"));
    assert!(!failure.to_string().contains("hunter2"), "{failure}");
    drawer.put("3", &[("token", TOKEN)]);
    let odd = Arc::new(Account { api_url: "ftp://x".to_owned(), ..(*account()).clone() });
    let failure = now(port.ask(&Call { account: odd, ask: Ask::Branches })).unwrap_err();
    assert_eq!(failure.reason, "BadAddress");
}

#[test]
fn a_commit_that_github_does_not_know_is_not_found() {
    let ground = Ground::new();
    let (port, _) = port(&ground);
    let gone = Ask::Commits { base: "0".repeat(40), head: ground.head() };
    assert_eq!(ask(&port, gone).unwrap_err().category, Category::NotFound);
}

#[tokio::test]
async fn all_who_ask_first_at_once_use_one_client_and_one_token() {
    let ground = Ground::new();
    let (_, drawer) = port(&ground);
    let slow = SlowDrawer(Arc::clone(&drawer));
    let port = Port::new(Arc::new(slow), ground.transport.clone(), ground.clock.clone());
    let calls: Vec<Call> = (0..20).map(|_| Call { account: account(), ask: Ask::Branches }).collect();
    for answer in futures::future::join_all(calls.iter().map(|call| port.ask(call))).await {
        answer.unwrap();
    }
    assert_eq!((ground.tokens_minted(), port.clients().len()), (1, 1));
}

/// A Secret that takes a moment to be read.
#[derive(Debug)]
struct SlowDrawer(Arc<Drawer>);

impl Secrets for SlowDrawer {
    fn read<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<SecretData, Failure>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.0.read(key).await
        })
    }
}

#[test]
fn what_each_repository_costs_can_be_watched() {
    let ground = Ground::new();
    let (port, _) = port(&ground);
    ask(&port, Ask::Branches).unwrap();
    ask(&port, Ask::Branches).unwrap();
    let metrics = pawl_engine::metrics::Metrics::default();
    metrics.with_registry(|registry| registry.register_collector(Box::new(Arc::new(port))));
    let text = metrics.exposition();
    for line in [
        r#"pawl_github_requests_total{repository="acme/infra",uid="u1",for="branches",ended="not-modified"} 1"#,
        r#"pawl_github_requests_total{repository="acme/infra",uid="u1",for="token",ended="answered"} 1"#,
        r#"pawl_github_rate_limit_remaining{repository="acme/infra",uid="u1"} 4999"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}
