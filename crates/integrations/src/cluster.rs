//! Who carries out what plans ask of a cluster? One client per Target, made from what the Target says now.
//!
//! ```text
//! call { cluster, ask } ─▶ the Target, and its Secret, read within the last seconds ─▶ same words as before? ─▶ the kept
//!                          client, or a new one ─▶ requests, one after the other, each bounded in time and size
//! ```
//! The cluster that Pawl runs on is asked over the way there is already: as Pawl, or, for a Target with a ServiceAccount,
//! as that one, by impersonation. Credentials stay here: no failure repeats them (I6).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{HeaderValue, Request};
use jiff::{SignedDuration, Timestamp};
use kube::config::{KubeConfigOptions, Kubeconfig};
use pawl_api::deploy::{Target, target as target_kind};
use pawl_api::meta::{Kind, names};
use pawl_engine::Clock;
use pawl_engine::wire::{Limits, Reply as Answered, Wire};
use pawl_machines::apply::{Answer, Applying, Outcome};
use pawl_machines::deploy::target::{Ask, Call, Cluster, Reply, Steps};
use pawl_machines::deploy::target_config::{Access, access};
use pawl_machines::failure::{Category, Failure};
use pawl_machines::object::{Key, Object, Reference};
use serde::Deserialize;
use serde_json::Value;

use crate::github::port::{Secrets, unusable};

/// A Target and its Secret are believed this long: a new kubeconfig counts within seconds, and the calls of one look
/// read it once.
const FRESH: SignedDuration = SignedDuration::from_secs(5);
/// Clients kept: more Targets than this take turns.
const MAX_CLIENTS: usize = 500;
/// A cluster that does not take a connection within this is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest that one request may take: an API server lets a webhook take 30 s, less than one's own is waited for.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest answer: one object of some 3 MiB with its metadata, or a group's list of resources.
const MAX_ANSWER_BYTES: usize = 8 * 1024 * 1024;

/// The port to clusters.
#[derive(Debug)]
pub struct Port {
    own: Way,
    /// The way to one's own cluster on which rights are checked, so that one can act as somebody else there: the same,
    /// where the API server asks everybody who they are.
    guarded: Way,
    secrets: Arc<dyn Secrets>,
    clock: Arc<dyn Clock>,
    kept: Mutex<BTreeMap<Key, Kept>>,
}

/// A way to a Target's cluster, what it was made from, and when that was last read.
#[derive(Clone, Debug)]
struct Kept {
    version: String,
    hash: String,
    read_at: Timestamp,
    way: Way,
}

/// A way to an API server, as somebody.
#[derive(Clone, Debug)]
struct Way {
    wire: Wire,
    /// The user to be taken for.
    as_user: Option<HeaderValue>,
    /// What to show, where the way does not do that itself; marked as sensitive.
    credentials: Option<HeaderValue>,
    /// What somebody else's server says may not be repeated at length.
    foreign: bool,
}

impl Port {
    /// `own` leads to the cluster that Pawl runs on.
    pub fn new(own: Wire, secrets: Arc<dyn Secrets>, clock: Arc<dyn Clock>) -> Self {
        let own = Way { wire: own, as_user: None, credentials: None, foreign: false };
        Self { guarded: own.clone(), own, secrets, clock, kept: Mutex::default() }
    }

    /// Where `own` is let in without being asked, as inside the process of an API server: the way on which rights are
    /// checked, and the token with which one may act as others there.
    ///
    /// # Errors
    /// When the token is none.
    pub fn acting_as_others(
        mut self,
        wire: Wire,
        token: &str,
    ) -> Result<Self, http::header::InvalidHeaderValue> {
        let mut credentials = HeaderValue::from_str(&format!("Bearer {token}"))?;
        credentials.set_sensitive(true);
        self.guarded = Way { wire, credentials: Some(credentials), ..self.guarded };
        Ok(self)
    }

    /// Makes one call.
    ///
    /// # Errors
    /// What went wrong, and what to do about it.
    pub async fn ask(&self, call: &Call) -> Result<Reply, Failure> {
        let way = self.way(&call.cluster, true).await?;
        match way.answer(&call.ask, self.clock.now()).await {
            // The credentials may have been replaced a moment ago. What was refused for them was not carried out.
            Err(failure) if failure.is("Unauthorized") => {
                self.way(&call.cluster, false).await?.answer(&call.ask, self.clock.now()).await
            }
            other => other,
        }
        .map_err(|failure| named(call, failure))
    }

    async fn way(&self, cluster: &Cluster, fresh_enough: bool) -> Result<Way, Failure> {
        let (key, version) = match cluster {
            Cluster::Own => return Ok(self.own.clone()),
            Cluster::Target { key, version } => (key, version),
        };
        let now = self.clock.now();
        let kept = self.kept().get(key).filter(|kept| kept.version == *version).cloned();
        if let Some(kept) = kept.filter(|_| fresh_enough)
            && now.duration_since(kept.read_at).abs() < FRESH
        {
            return Ok(kept.way);
        }
        let config = self.configuration(key).await.inspect_err(|_| {
            // Credentials that are gone are not used any longer.
            self.kept().remove(key);
        })?;
        let hash = names::hash(&[&config.to_string()], 64);
        let same = self.kept().get(key).filter(|kept| kept.hash == hash).map(|kept| kept.way.clone());
        let way = match same {
            Some(way) => way,
            None => self.made(key, &config).await?,
        };
        let mut kept = self.kept();
        kept.insert(key.clone(), Kept { version: version.clone(), hash, read_at: now, way: way.clone() });
        if kept.len() > MAX_CLIENTS {
            let oldest = kept.iter().min_by_key(|(_, kept)| kept.read_at).map(|(key, _)| key.clone());
            oldest.and_then(|key| kept.remove(&key));
        }
        Ok(way)
    }

    /// What a Target says, or its Secret.
    async fn configuration(&self, key: &Key) -> Result<Value, Failure> {
        let attempt = || format!("use Target {key}");
        let path = target_kind::KIND.path(key.namespace.as_deref(), Some(&key.name));
        let found = self.own.get(&path, attempt()).await?.ok_or_else(|| Failure {
            attempt: attempt(),
            category: Category::NotFound,
            reason: "TargetGone".to_owned(),
            message: "the Target is not there".to_owned(),
            retry_after: None,
        })?;
        let target = Target::deserialize(&found).map_err(|error| invalid(attempt(), &error))?;
        let Some(reference) = target.spec.secret_ref else { return Ok(target.spec.config) };
        let secret = Key { namespace: key.namespace.clone(), name: reference.name.clone() };
        let data = match self.secrets.read(&secret).await {
            Ok(found) => found.data,
            Err(failure) if failure.category == Category::NotFound => return Err(unusable(&secret, failure)),
            Err(failure) => return Err(failure),
        };
        let field = reference.key.as_deref().unwrap_or(target_kind::DEFAULT_SECRET_KEY);
        let bytes = data.get(field).ok_or_else(|| {
            invalid(attempt(), &format!("the Secret {} has no key {field}", reference.name))
        })?;
        let text = std::str::from_utf8(bytes).map_err(|_| {
            invalid(attempt(), &format!("{field} of the Secret {} is no text", reference.name))
        })?;
        Ok(Value::from(text))
    }

    async fn made(&self, key: &Key, config: &Value) -> Result<Way, Failure> {
        let bad = |problem: &dyn fmt::Display| invalid(format!("use Target {key}"), problem);
        match access(config).map_err(|refused| bad(&refused))? {
            Access::ServiceAccount(name) => {
                let namespace = key.namespace.as_deref().unwrap_or_default();
                let user = HeaderValue::from_str(&format!("system:serviceaccount:{namespace}:{name}"))
                    .map_err(|_| bad(&"the ServiceAccount's name is none"))?;
                Ok(Way { as_user: Some(user), ..self.guarded.clone() })
            }
            Access::Kubeconfig(config) => {
                // The words of these errors name files and fields, never values.
                let file =
                    Kubeconfig::deserialize(&config).map_err(|_| bad(&"a field has the wrong type"))?;
                let mut config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                    .await
                    .map_err(|error| bad(&format!("the kubeconfig cannot be used: {error}")))?;
                config.connect_timeout = Some(CONNECT_TIMEOUT);
                config.read_timeout = Some(REQUEST_TIMEOUT);
                config.write_timeout = Some(REQUEST_TIMEOUT);
                let client = kube::Client::try_from(config)
                    .map_err(|error| bad(&format!("the kubeconfig cannot be used: {error}")))?;
                let limits = Limits { timeout: REQUEST_TIMEOUT, answer_bytes: MAX_ANSWER_BYTES };
                Ok(Way {
                    wire: Wire::bounded(client, limits),
                    as_user: None,
                    credentials: None,
                    foreign: true,
                })
            }
        }
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<Key, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl pawl_engine::Port<Call> for Port {
    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Reply, Failure>> {
        Box::pin(self.ask(call))
    }
}

impl Way {
    async fn answer(&self, ask: &Ask, now: Timestamp) -> Result<Reply, Failure> {
        match ask {
            Ask::Kinds(those) => self.kinds(those).await.map(Reply::Kinds),
            Ask::Read(places) => {
                let mut objects = Vec::with_capacity(places.len());
                for Reference { kind, key, .. } in places {
                    let path = kind.path(key.namespace.as_deref(), Some(&key.name));
                    objects.push(self.get(&path, format!("get {kind} {key}")).await?);
                }
                Ok(Reply::Objects(objects))
            }
            Ask::Carry(steps) => self.carry(steps, now).await.map(|()| Reply::Carried),
        }
    }

    /// The kinds by what the server says that it serves.
    async fn kinds(&self, those: &[(String, String)]) -> Result<Vec<Option<Kind>>, Failure> {
        let mut lists: BTreeMap<&str, Option<Value>> = BTreeMap::new();
        for (version, _) in those {
            if !lists.contains_key(version.as_str()) {
                let path = match version.split_once('/') {
                    Some(_) => format!("/apis/{version}"),
                    None => format!("/api/{version}"),
                };
                lists.insert(version, self.get(&path, format!("look up {version}")).await?);
            }
        }
        let find = |(version, kind): &(String, String)| {
            let list = lists.get(version.as_str())?.as_ref()?.get("resources")?.as_array()?;
            let text = |one: &Value, field: &str| one.get(field).and_then(Value::as_str).map(str::to_owned);
            let found = list.iter().find(|one| {
                text(one, "kind").as_ref() == Some(kind)
                    && text(one, "name").is_some_and(|name| !name.contains('/'))
            })?;
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            Some(Kind {
                group: group.to_owned().into(),
                version: version.to_owned().into(),
                kind: kind.clone().into(),
                plural: text(found, "name")?.into(),
                namespaced: found.get("namespaced").and_then(Value::as_bool)?,
            })
        };
        Ok(those.iter().map(find).collect())
    }

    /// The same script that applies plans at home.
    async fn carry(&self, steps: &Steps, now: Timestamp) -> Result<(), Failure> {
        let about = Object::new(target_kind::KIND, serde_json::json!({"metadata": {"name": "target"}}))
            .map_err(|malformed| Failure::unanswered("carry out steps", malformed))?;
        let mut applying = Applying::elsewhere(steps.to_vec(), about, now);
        while let Some(request) = applying.ask() {
            match self.send(request).await {
                Ok(Answered { code, retry_after, body, .. }) => {
                    applying.answer(Answer::Received { code, retry_after, body: &body });
                }
                Err(lost) => applying.answer(Answer::Lost(&lost)),
            }
        }
        let Outcome { refusals, failure, .. } = applying.finish();
        let refused = refusals.into_iter().next().map(|refusal| refusal.failure);
        match failure.or(refused) {
            None => Ok(()),
            // A definition that is not served yet, a namespace that comes with the next item: it may be there later.
            Some(failure) if failure.category == Category::NotFound => {
                Err(self.told(Failure { category: Category::Transient, ..failure }))
            }
            Some(failure) => Err(self.told(failure)),
        }
    }

    /// `None`: there is none.
    async fn get(&self, path: &str, attempt: String) -> Result<Option<Value>, Failure> {
        let request =
            Request::get(path).body(Vec::new()).map_err(|error| invalid(attempt.clone(), &error))?;
        let reply = self.send(request).await;
        let reply = reply.map_err(|lost| self.told(Failure::unanswered(attempt.clone(), lost)))?;
        match reply.code {
            200 => serde_json::from_slice(&reply.body)
                .map(Some)
                .map_err(|_| Failure::unanswered(attempt, "the answer is not JSON")),
            404 => Ok(None),
            code => Err(self.told(Failure::answered(attempt, code, reply.retry_after, &reply.body))),
        }
    }

    async fn send(&self, mut request: Request<Vec<u8>>) -> Result<Answered, String> {
        if let Some(user) = &self.as_user {
            request.headers_mut().insert("Impersonate-User", user.clone());
        }
        if let Some(credentials) = &self.credentials {
            request.headers_mut().insert(http::header::AUTHORIZATION, credentials.clone());
        }
        self.wire.send(request).await.map_err(|lost| lost.to_string())
    }

    /// A failure as it may be shown. Whoever writes Targets could else read what any server that Pawl reaches says.
    fn told(&self, mut failure: Failure) -> Failure {
        if !self.foreign {
            return failure;
        }
        const NO_KUBERNETES: &str = "not an answer of a Kubernetes API server";
        if failure.message.starts_with(NO_KUBERNETES) {
            NO_KUBERNETES.clone_into(&mut failure.message);
        }
        // A certificate that is not trusted now is not trusted in a minute either.
        if failure.reason == "NoAnswer" && failure.message.contains("certificate") {
            failure.category = Category::Permanent;
            "TargetInvalid".clone_into(&mut failure.reason);
        }
        failure
    }
}

fn named(call: &Call, failure: Failure) -> Failure {
    match &*call.cluster {
        Cluster::Own => failure,
        cluster @ Cluster::Target { .. } => {
            Failure { attempt: format!("{cluster}: {}", failure.attempt), ..failure }
        }
    }
}

fn invalid(attempt: String, problem: &dyn fmt::Display) -> Failure {
    Failure {
        attempt,
        category: Category::Permanent,
        reason: "TargetInvalid".to_owned(),
        message: problem.to_string(),
        retry_after: None,
    }
}
