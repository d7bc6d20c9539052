//! One request to GitHub: may it go, as whom, what came back, and what does that mean?
//!
//! ```text
//!  call ─▶ held by a limit? ──yes──▶ Waiting { retry_after }
//!            │ no
//!            ▼
//!         token (minted once for all who wait) ─▶ transport ─▶ 304: what we know │ 2xx: read it │ 401: once more with
//!                                                              a new token │ anything else: an error that says what to do
//! ```
//! Nothing here sleeps, spawns or sends a request a second time, but for a 401: what was refused for its token was not
//! carried out.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, LINK, USER_AGENT};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use jiff::Timestamp;
use pawl_engine::Clock;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tower::ServiceExt as _;

use super::address::{Address, escaped};
use super::auth::{App, Credentials, EXPIRY_MARGIN, Secret};
use super::budget::{Budget, Endpoint, Outcome};
use super::checks::Runs;
use super::error::Error;
use super::limits::{self, Limits, RateLimit, Urgency};
use super::pages::{Known, Pages};
use crate::transport::{Broken, MAX_BODY_BYTES, Transport};

/// The most that GitHub puts on one page.
pub(crate) const PER_PAGE: usize = 100;
/// The most pages of one list: 10,000 branches, pull requests or commits. Reading on would take a tenth of the hour's
/// requests; who has more is told so.
pub const MAX_PAGES: usize = 100;
/// The version of the API that we read and write.
const API_VERSION: &str = "2022-11-28";
const MEDIA_TYPE: &str = "application/vnd.github+json";
/// GitHub refuses requests without one.
const AGENT: &str = concat!("pawl/", env!("CARGO_PKG_VERSION"));
/// What of GitHub's words is shown: a sentence or two.
const MESSAGE_CHARS: usize = 300;

/// A way to one repository on GitHub. Clones share everything.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
    urgency: Urgency,
}

/// What a client is made of.
#[derive(Clone, Debug)]
pub struct Parts {
    pub owner: String,
    pub name: String,
    pub address: Address,
    pub credentials: Credentials,
    pub transport: Transport,
    pub clock: Arc<dyn Clock>,
}

pub(crate) struct Shared {
    parts: Parts,
    /// Held while a token is minted, so that all who need one wait for the same.
    installation: tokio::sync::Mutex<Option<Token>>,
    limits: Mutex<Limits>,
    pages: Mutex<Pages>,
    budget: Mutex<Budget>,
    pub(crate) runs: Runs,
}

/// An installation's token.
#[derive(Clone, Debug)]
struct Token {
    secret: Secret,
    expires_at: Timestamp,
}

/// A request, apart from who sends it.
pub(crate) struct Call {
    endpoint: Endpoint,
    method: Method,
    /// Below the address's prefix, with the query.
    path: String,
    body: Bytes,
    urgency: Urgency,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

/// One page, or the only one.
pub(crate) struct Page<T> {
    pub(crate) value: T,
    next: Option<String>,
}

impl Client {
    pub fn new(parts: Parts) -> Self {
        let shared = Shared {
            parts,
            installation: tokio::sync::Mutex::new(None),
            limits: Mutex::default(),
            pages: Mutex::default(),
            budget: Mutex::default(),
            runs: Runs::default(),
        };
        Self { shared: Arc::new(shared), urgency: Urgency::Background }
    }

    /// The same client, for looks that a report needs: they may use what is kept for reports.
    #[must_use]
    pub fn for_reports(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), urgency: Urgency::Report }
    }

    /// What GitHub said is left of the hour that is going on.
    pub fn rate_limit(&self) -> Option<RateLimit> {
        lock(&self.shared.limits).left(self.now())
    }

    /// Requests sent so far.
    pub fn budget(&self) -> Budget {
        lock(&self.shared.budget).clone()
    }

    pub fn credentials(&self) -> &Credentials {
        &self.shared.parts.credentials
    }

    /// A path below the repository; each segment stays one segment.
    pub(crate) fn path(&self, segments: &[&str]) -> String {
        let Parts { owner, name, .. } = &self.shared.parts;
        let start = format!("/repos/{}/{}", escaped(owner), escaped(name));
        segments.iter().fold(start, |path, segment| format!("{path}/{}", escaped(segment)))
    }

    /// Reads one thing.
    pub(crate) async fn get<T>(&self, endpoint: Endpoint, path: String) -> Result<T, Error>
    where
        T: DeserializeOwned + Serialize,
    {
        self.page(endpoint, path).await.map(|page| page.value)
    }

    /// Reads all pages of a list, or says that there are too many.
    pub(crate) async fn all<T>(&self, endpoint: Endpoint, path: String) -> Result<Vec<T>, Error>
    where
        T: DeserializeOwned + Serialize,
    {
        let mut values = Vec::new();
        let mut next = Some(path);
        while let Some(path) = next {
            if values.len() == MAX_PAGES {
                return Err(Error::TooManyPages { attempt: format!("GET {path}"), pages: MAX_PAGES });
            }
            let page = self.page(endpoint, path).await?;
            values.push(page.value);
            next = page.next;
        }
        Ok(values)
    }

    /// Reads one page, or learns that it is as we know it.
    async fn page<T>(&self, endpoint: Endpoint, path: String) -> Result<Page<T>, Error>
    where
        T: DeserializeOwned + Serialize,
    {
        let call = Call { endpoint, method: Method::GET, path, body: Bytes::new(), urgency: self.urgency };
        let known = lock(&self.shared.pages).get(&call.path);
        let answer = self.send(&call, known.as_ref().map(|known| known.etag.as_str())).await?;
        if answer.status() == StatusCode::NOT_MODIFIED {
            let known = known.ok_or_else(|| unreadable(&call, "nothing new, but nothing was known"))?;
            return Ok(Page { value: read(&call, &known.body)?, next: known.next });
        }
        let value: T = read(&call, answer.body())?;
        let next = self.next_page(&call, answer.headers())?;
        match (answer.headers().get(ETAG).and_then(|etag| etag.to_str().ok()), serde_json::to_vec(&value)) {
            (Some(etag), Ok(body)) => {
                let known = Known { etag: etag.to_owned(), body: body.into(), next: next.clone() };
                lock(&self.shared.pages).keep(&call.path, known);
            }
            (None, _) | (_, Err(_)) => lock(&self.shared.pages).forget(&call.path),
        }
        Ok(Page { value, next })
    }

    /// Writes, and reads what came of it.
    pub(crate) async fn write<T: DeserializeOwned>(
        &self,
        endpoint: Endpoint,
        method: Method,
        path: String,
        body: &(impl Serialize + Sync),
    ) -> Result<T, Error> {
        let mut call = Call { endpoint, method, path, body: Bytes::new(), urgency: Urgency::Report };
        call.body = serde_json::to_vec(body)
            .map_err(|error| Error::NotSent { attempt: call.to_string(), problem: error.to_string() })?
            .into();
        let answer = self.send(&call, None).await?;
        read(&call, answer.body())
    }

    /// Sends a call as us, and once more with a new token if the one we have is no longer taken.
    async fn send(&self, call: &Call, etag: Option<&str>) -> Result<Response<Bytes>, Error> {
        let attempt = || call.to_string();
        if let Some((why, retry_after)) = lock(&self.shared.limits).hold(self.now(), call.urgency) {
            return Err(Error::Waiting { attempt: attempt(), why, retry_after });
        }
        match &self.shared.parts.credentials {
            Credentials::Token(token) => self.exchange(call, token, etag).await,
            Credentials::App(app) => {
                let token = self.installation_token(app, None).await?;
                match self.exchange(call, &token, etag).await {
                    Err(Error::Refused { status: 401, .. }) => {
                        let token = self.installation_token(app, Some(&token)).await?;
                        self.exchange(call, &token, etag).await
                    }
                    other => other,
                }
            }
        }
    }

    /// A token that is good for a while, and is not the `refused` one.
    async fn installation_token(&self, app: &App, refused: Option<&Secret>) -> Result<Secret, Error> {
        let mut kept = self.shared.installation.lock().await;
        let soon = self.now().saturating_add(EXPIRY_MARGIN).unwrap_or(Timestamp::MAX);
        if let Some(token) = kept.as_ref()
            && token.expires_at > soon
            && Some(&token.secret) != refused
        {
            return Ok(token.secret.clone());
        }
        *kept = None;
        let call = Call {
            endpoint: Endpoint::Token,
            method: Method::POST,
            path: format!("/app/installations/{}/access_tokens", app.installation()),
            body: Bytes::new(),
            urgency: Urgency::Report,
        };
        let jwt = app.jwt(self.now()).map_err(|problem| Error::Credentials {
            attempt: call.to_string(),
            problem: problem.to_owned(),
        })?;
        let answer = self.exchange(&call, &jwt, None).await?;
        let Minted { token, expires_at } = read(&call, answer.body())?;
        let secret = Secret::new(token);
        *kept = Some(Token { secret: secret.clone(), expires_at });
        Ok(secret)
    }

    /// Sends once, counts, and tells a good answer from a bad one.
    async fn exchange(
        &self,
        call: &Call,
        token: &Secret,
        etag: Option<&str>,
    ) -> Result<Response<Bytes>, Error> {
        let request = self.request(call, token, etag)?;
        let answer = self.shared.parts.transport.clone().oneshot(request).await;
        let result = answer.map_err(|broken| lost(call, &broken)).and_then(|answer| self.judge(call, answer));
        let outcome = match &result {
            Ok(answer) if answer.status() == StatusCode::NOT_MODIFIED => Outcome::NotModified,
            Ok(_) => Outcome::Answered,
            Err(_) => Outcome::Failed,
        };
        lock(&self.shared.budget).count(call.endpoint, outcome);
        result
    }

    fn request(&self, call: &Call, token: &Secret, etag: Option<&str>) -> Result<Request<Bytes>, Error> {
        let unsendable = |problem: String| Error::NotSent { attempt: call.to_string(), problem };
        let uri = self.shared.parts.address.uri(&call.path).map_err(|error| unsendable(error.to_string()))?;
        let mut bearer = HeaderValue::try_from(format!("Bearer {}", token.expose()))
            .map_err(|_| unsendable("the token is no header".to_owned()))?;
        bearer.set_sensitive(true);
        let mut request = Request::new(call.body.clone());
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, bearer);
        headers.insert(ACCEPT, HeaderValue::from_static(MEDIA_TYPE));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        headers.insert("x-github-api-version", HeaderValue::from_static(API_VERSION));
        if !call.body.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(etag) = etag.and_then(|etag| HeaderValue::from_str(etag).ok()) {
            headers.insert(IF_NONE_MATCH, etag);
        }
        Ok(request)
    }

    fn judge(&self, call: &Call, answer: Response<Bytes>) -> Result<Response<Bytes>, Error> {
        if answer.body().len() > MAX_BODY_BYTES {
            return Err(lost(call, &Broken::TooLarge(MAX_BODY_BYTES)));
        }
        let status = answer.status().as_u16();
        let good = answer.status().is_success() || status == 304;
        let message = if good { String::new() } else { said(answer.body()) };
        let held = lock(&self.shared.limits).hear(self.now(), status, answer.headers(), &message);
        if good {
            return Ok(answer);
        }
        let attempt = call.to_string();
        if let Some((why, retry_after)) = held {
            return Err(Error::Waiting { attempt, why, retry_after });
        }
        let no_commit = status == 422 && matches!(call.endpoint, Endpoint::Commit | Endpoint::Compare);
        if status == 404 && call.endpoint == Endpoint::Token {
            let problem = format!("the installation of the GitHub App does not exist: {message}");
            return Err(Error::Credentials { attempt, problem });
        }
        if matches!(status, 404 | 410) || no_commit {
            return Err(Error::NotFound { attempt, status, message });
        }
        let retry_after = limits::retry_after(answer.headers());
        let retry_after = retry_after.and_then(|pause| Duration::try_from(pause).ok());
        Err(Error::Refused { attempt, status, message, retry_after })
    }

    /// Where the next page is, if there is one and it is here.
    fn next_page(&self, call: &Call, headers: &HeaderMap) -> Result<Option<String>, Error> {
        let Some(link) = headers.get(LINK).and_then(|value| value.to_str().ok()).and_then(next_link) else {
            return Ok(None);
        };
        let address = &self.shared.parts.address;
        address.own_path(link).map(Some).ok_or_else(|| Error::ForeignLink {
            attempt: call.to_string(),
            host: address.host().to_owned(),
            link: shown(link),
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.shared.parts.clock.now()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { owner, name, address, .. } = &self.shared.parts;
        f.debug_struct("Client")
            .field("of", &format!("{owner}/{name}"))
            .field("at", address)
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Minted {
    token: String,
    expires_at: Timestamp,
}

/// `<https://…>; rel="next"` among the links of a header.
fn next_link(header: &str) -> Option<&str> {
    header.split(',').find_map(|link| {
        let (target, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        parameters.split(';').any(|parameter| parameter.trim() == "rel=\"next\"").then_some(target)
    })
}

fn read<T: DeserializeOwned>(call: &Call, body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|error| unreadable(call, error))
}

fn unreadable(call: &Call, problem: impl fmt::Display) -> Error {
    Error::Unreadable { attempt: call.to_string(), problem: problem.to_string() }
}

fn lost(call: &Call, broken: &Broken) -> Error {
    let (attempt, problem) = (call.to_string(), broken.to_string());
    match broken {
        Broken::Connect(_) => Error::NotSent { attempt, problem },
        Broken::Lost(_) | Broken::TimedOut(_) => Error::Unanswered { attempt, problem },
        Broken::TooLarge(_) => Error::Unreadable { attempt, problem },
    }
}

/// What GitHub, or something before it, said about a failure.
fn said(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Said {
        message: String,
        #[serde(default)]
        errors: Vec<serde_json::Value>,
    }
    match serde_json::from_slice::<Said>(body) {
        Ok(Said { message, errors }) if errors.is_empty() => shown(&message),
        Ok(Said { message, errors }) => {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            shown(&format!("{message}: {}", errors.join(", ")))
        }
        Err(_) => format!("not an answer of GitHub: {:?}", shown(&String::from_utf8_lossy(body))),
    }
}

/// At most so much of what others wrote, on one line.
fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MESSAGE_CHARS).collect()
}

/// A panic elsewhere leaves these behind whole: they are changed by single assignments.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
