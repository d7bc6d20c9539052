//! Who carries out what plans ask of GitHub? One client per Repository, with the credentials its Secret holds now.
//!
//! ```text
//!  call { account, ask } ─▶ client of account.uid ──(Secret read within the last seconds)──▶ ask ─▶ reply │ failure
//!                              ▲                                                               │ 401
//!                              └───────────── the Secret is read again, and the client made anew ◀─┘
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use pawl_engine::Clock;
use pawl_engine::wire::Wire;
use pawl_machines::failure::{Category, Failure};
use pawl_machines::git::github::{Access, Account, Ask, Call, Identity, RateLimit, Reply};
use pawl_machines::object::Key;

use super::address::{Address, escaped};
use super::auth::Credentials;
use super::client::{Client, Parts, lock};
use crate::transport::Transport;

/// A Secret is believed this long. A new one counts within seconds, and a Workflow's three calls read it once.
const SECRET_FRESH: SignedDuration = SignedDuration::from_secs(5);
/// Clients kept: more Repositories than this in one process take turns.
const MAX_CLIENTS: usize = 1000;

/// Where Secrets are read. In a simulation, the store of the simulated cluster.
pub trait Secrets: Send + Sync + fmt::Debug {
    /// Reads one. A Secret that does not exist is [`Category::NotFound`].
    fn read<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<SecretData, Failure>>;
}

/// What a Secret holds.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretData {
    /// With its UID, so that a Secret made anew under the same name is another.
    pub version: String,
    pub data: BTreeMap<String, Vec<u8>>,
}

impl fmt::Debug for SecretData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretData").field("version", &self.version).finish_non_exhaustive()
    }
}

/// The port to GitHub.
#[derive(Debug)]
pub struct Port {
    secrets: Arc<dyn Secrets>,
    transport: Transport,
    clock: Arc<dyn Clock>,
    clients: Mutex<BTreeMap<String, Kept>>,
}

/// A client, what it was made from, and when its Secret was last read.
#[derive(Clone, Debug)]
struct Kept {
    account: Arc<Account>,
    version: String,
    read_at: Timestamp,
    client: Client,
}

impl Port {
    pub fn new(secrets: Arc<dyn Secrets>, transport: Transport, clock: Arc<dyn Clock>) -> Self {
        Self { secrets, transport, clock, clients: Mutex::default() }
    }

    /// The clients in use, by the UID of their Repository: for metrics.
    pub fn clients(&self) -> Vec<(Arc<Account>, Client)> {
        lock(&self.clients).values().map(|kept| (Arc::clone(&kept.account), kept.client.clone())).collect()
    }

    /// Makes one call.
    ///
    /// # Errors
    /// What went wrong, and what to do about it.
    pub async fn ask(&self, call: &Call) -> Result<Reply, Failure> {
        let client = self.client(&call.account, true).await?;
        match answer(&client, &call.ask).await {
            // The token may have been replaced in the Secret. What was refused for it was not carried out.
            Err(super::Error::Refused { status: 401, .. }) => {
                let renewed = self.client(&call.account, false).await?;
                if Arc::ptr_eq(&renewed.shared, &client.shared) {
                    return Err(unauthorized(call));
                }
                Ok(answer(&renewed, &call.ask).await?)
            }
            other => Ok(other?),
        }
    }

    /// The client of a Repository. `fresh_enough`: a Secret that was read a moment ago need not be read again.
    async fn client(&self, account: &Arc<Account>, fresh_enough: bool) -> Result<Client, Failure> {
        let now = self.clock.now();
        let kept = lock(&self.clients).get(&account.uid).filter(|kept| *kept.account == **account).cloned();
        if let Some(kept) = kept.as_ref().filter(|_| fresh_enough)
            && now.duration_since(kept.read_at).abs() < SECRET_FRESH
        {
            return Ok(kept.client.clone());
        }
        let secret = self.secrets.read(&account.secret).await.map_err(|failure| {
            let failure = unusable(&account.secret, failure);
            // Deleted credentials are not used any longer, wherever they are cached.
            if failure.category == Category::MissingCredentials {
                lock(&self.clients).remove(&account.uid);
            }
            failure
        })?;
        let made = self.made(account, &secret)?;
        let mut clients = lock(&self.clients);
        // Whoever came first made the client that all use: its token is minted once.
        let there = clients.get(&account.uid);
        let same = there.filter(|kept| *kept.account == **account && kept.version == secret.version);
        let client = same.map_or(made, |kept| kept.client.clone());
        let fresh = Kept {
            account: Arc::clone(account),
            version: secret.version,
            read_at: now,
            client: client.clone(),
        };
        clients.insert(account.uid.clone(), fresh);
        if clients.len() > MAX_CLIENTS {
            let oldest = clients.iter().min_by_key(|(_, kept)| kept.read_at).map(|(uid, _)| uid.clone());
            oldest.and_then(|uid| clients.remove(&uid));
        }
        Ok(client)
    }

    fn made(&self, account: &Account, secret: &SecretData) -> Result<Client, Failure> {
        let attempt = || format!("use Secret {} for {}/{}", account.secret, account.owner, account.name);
        let credentials = Credentials::from_secret(&secret.data)
            .map_err(|error| Failure::without_credentials(attempt(), "BadCredentials", error.to_string()))?;
        let address = Address::parse(Some(&account.api_url)).map_err(|error| Failure {
            attempt: attempt(),
            category: Category::Permanent,
            reason: "BadAddress".to_owned(),
            message: error.to_string(),
            retry_after: None,
        })?;
        Ok(Client::new(Parts {
            owner: account.owner.clone(),
            name: account.name.clone(),
            address,
            credentials,
            transport: self.transport.clone(),
            clock: Arc::clone(&self.clock),
        }))
    }
}

impl pawl_engine::Port<Call> for Port {
    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Reply, Failure>> {
        Box::pin(self.ask(call))
    }

    /// Check runs that another process made are not among those that this one remembers (I7).
    fn begin(&self) {
        lock(&self.clients).clear();
    }
}

async fn answer(client: &Client, ask: &Ask) -> Result<Reply, super::Error> {
    let reports = client.for_reports();
    Ok(match ask {
        Ask::Access => Reply::Access(access(client).await?),
        Ask::Branches => Reply::Branches(client.branches().await?),
        Ask::PullRequests => Reply::PullRequests(client.pull_requests().await?),
        Ask::Commits { base, head } => Reply::Commits(client.commits(base, head).await?),
        Ask::Commit { sha } => Reply::Commit(client.commit(sha).await?),
        Ask::PullFiles { number } => Reply::Files(client.pull_files(*number).await?),
        Ask::SinceMergeBase { base, head } => Reply::Files(client.since_merge_base(base, head).await?),
        Ask::Comments { since } => Reply::Comments(client.comments(*since).await?),
        Ask::Permission { login } => Reply::Permission(client.permission(login).await?),
        Ask::FindCheckRun { sha, external_id } => {
            Reply::CheckRun(reports.find_check_run(sha, external_id).await?)
        }
        Ask::CreateCheckRun(run) => Reply::CheckRun(Some(reports.ensure_check_run(run).await?)),
        Ask::UpdateCheckRun { id, run } => Reply::CheckRun(Some(reports.update_check_run(*id, run).await?)),
        Ask::SetStatus(status) => {
            reports.set_status(status).await?;
            Reply::Done
        }
        Ask::Say { number, marker, text } => {
            reports.say(*number, marker, text).await?;
            Reply::Done
        }
    })
}

/// How we are known. Asked only where nothing was answered yet: any other answer says as much.
async fn access(client: &Client) -> Result<Access, super::Error> {
    if !client.budget().was_answered() {
        client.repository().await?;
    }
    let total = client.budget().total();
    Ok(Access {
        identity: if client.credentials().can_make_check_runs() { Identity::App } else { Identity::Token },
        rate_limit: client
            .rate_limit()
            .map(|left| RateLimit { remaining: left.remaining.into(), reset_at: left.reset_at }),
        requests: total.sent,
        unchanged: total.not_modified,
    })
}

/// The failure of reading a Secret with credentials: one that does not exist or may not be read is missing, and says
/// nothing about what the credentials were for.
pub(crate) fn unusable(secret: &Key, failure: Failure) -> Failure {
    let problem = match failure.category {
        Category::NotFound => "does not exist".to_owned(),
        Category::Permanent => format!("cannot be read: {}", failure.message),
        Category::Transient | Category::Conflict | Category::MissingCredentials => return failure,
    };
    Failure::without_credentials(failure.attempt, "CredentialsMissing", format!("Secret {secret} {problem}"))
}

fn unauthorized(call: &Call) -> Failure {
    Failure {
        attempt: call.to_string(),
        category: Category::Transient,
        reason: "Unauthorized".to_owned(),
        message: format!("GitHub does not take the credentials in Secret {}", call.account.secret),
        retry_after: None,
    }
}

impl Secrets for Wire {
    fn read<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<SecretData, Failure>> {
        Box::pin(async move {
            let attempt = format!("get Secret {key}");
            let namespace = key.namespace.as_deref().unwrap_or("default");
            let request = http::Request::get(format!(
                "/api/v1/namespaces/{}/secrets/{}",
                escaped(namespace),
                escaped(&key.name)
            ))
            .body(Vec::new())
            .map_err(|error| Failure::unanswered(&attempt, error))?;
            let reply = self.ask(request, &attempt).await?;
            secret(&reply.body).map_err(|problem| Failure::unanswered(attempt, problem))
        })
    }
}

/// A Secret as the API server sends it.
///
/// # Errors
/// When it is not one.
pub fn secret(json: &[u8]) -> Result<SecretData, serde_json::Error> {
    let secret: k8s_openapi::api::core::v1::Secret = serde_json::from_slice(json)?;
    let uid = secret.metadata.uid.unwrap_or_default();
    let version = format!("{uid}@{}", secret.metadata.resource_version.unwrap_or_default());
    let data = secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect();
    Ok(SecretData { version, data })
}
