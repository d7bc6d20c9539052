//! What all tests stand on: a fake GitHub with one repository, a clock that is set by hand, and clients whose every
//! request and answer is held against GitHub's description.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use futures::FutureExt as _;
use jiff::Timestamp;
use pawl_engine::Clock;
use pawl_integrations::github::auth::{App, Secret};
use pawl_integrations::github::client::Parts;
use pawl_integrations::github::contract::{Findings, checked};
use pawl_integrations::github::fake::{
    APP_ID, APP_KEY_PKCS1, Change, Effect, Fake, INSTALLATION_ID, Repo, TOKEN,
};
use pawl_integrations::github::{Address, Client, Credentials, Transport};
use pawl_machines::git::github::{CheckRun, CheckState};

#[derive(Debug)]
pub(crate) struct Hand(AtomicI64);

impl Hand {
    pub(crate) fn pass(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.0.load(Ordering::SeqCst)).unwrap()
    }
}

pub(crate) struct Ground {
    pub(crate) clock: Arc<Hand>,
    pub(crate) fake: Fake,
    pub(crate) repo: Repo,
    pub(crate) transport: Transport,
    findings: Findings,
}

pub(crate) const API: &str = "https://ghe.example.com/api/v3";

impl Ground {
    /// `acme/infra` with one commit on `main`.
    pub(crate) fn new() -> Self {
        let clock = Arc::new(Hand(AtomicI64::new(1_800_000_000)));
        let fake = Fake::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let repo = fake.create("acme/infra");
        repo.push("main", &Change::new("first").put("README.md", "hello\n"));
        let (transport, findings) = checked(fake.transport());
        Self { clock, fake, repo, transport, findings }
    }

    pub(crate) fn client_of(
        &self,
        owner: &str,
        name: &str,
        transport: Transport,
        credentials: Credentials,
    ) -> Client {
        Client::new(Parts {
            owner: owner.to_owned(),
            name: name.to_owned(),
            address: Address::parse(Some(API)).unwrap(),
            credentials,
            transport,
            clock: self.clock.clone(),
        })
    }

    /// On another way than ours.
    pub(crate) fn client_through(&self, transport: Transport, credentials: Credentials) -> Client {
        self.client_of("acme", "infra", transport, credentials)
    }

    pub(crate) fn client_as(&self, credentials: Credentials) -> Client {
        self.client_through(self.transport.clone(), credentials)
    }

    /// As the App.
    pub(crate) fn client(&self) -> Client {
        self.client_as(app())
    }

    pub(crate) fn token_client(&self) -> Client {
        self.client_as(Credentials::Token(Secret::new(TOKEN)))
    }

    pub(crate) fn head(&self) -> String {
        self.repo.head("main").unwrap()
    }

    pub(crate) fn count(&self, wanted: impl Fn(&Effect) -> bool) -> usize {
        self.fake.journal().iter().filter(|applied| wanted(&applied.effect)).count()
    }

    pub(crate) fn tokens_minted(&self) -> usize {
        self.count(|effect| matches!(effect, Effect::TokenMinted))
    }

    /// How many check runs were made with each key.
    pub(crate) fn runs_made(&self) -> BTreeMap<String, usize> {
        self.fake.journal().into_iter().fold(BTreeMap::new(), |mut made, applied| {
            if let Effect::CheckRunCreated { external_id, .. } = applied.effect {
                *made.entry(external_id).or_default() += 1;
            }
            made
        })
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let found: Vec<String> = self.findings.all().iter().map(ToString::to_string).collect();
        if !std::thread::panicking() {
            assert!(found.is_empty(), "not as GitHub describes it:\n{}", found.join("\n"));
        }
    }
}

pub(crate) fn app() -> Credentials {
    Credentials::App(App::new(&APP_ID.to_string(), INSTALLATION_ID, APP_KEY_PKCS1).unwrap())
}

/// What is asked of the fake is answered without a runtime.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("the client waits for something")
}

pub(crate) fn check_run(sha: &str, key: &str) -> CheckRun {
    CheckRun {
        sha: sha.to_owned(),
        name: format!("plan({key})"),
        external_id: key.to_owned(),
        state: CheckState::Queued,
        started_at: None,
        completed_at: None,
        details_url: Some("https://pawl.example/workflows/w".to_owned()),
        title: "Waiting".to_owned(),
        summary: "It will run.".to_owned(),
        text: String::new(),
    }
}
