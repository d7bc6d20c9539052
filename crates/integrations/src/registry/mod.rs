//! What does a registry hold under a name? Asked by the OCI distribution API, reading only.
//!
//! ```text
//! GET /v2/NAME/{manifests,blobs}/REF ──200──▶ bytes (whose digest the caller checks: here they are only bytes)
//!        │ 401: once, with what its challenge asks for ([`auth`])
//!        │ 3xx: elsewhere, without our authorization unless it is the same origin
//!        └ anything else: an [`Error`] that says whether asking again may help
//! ```
//! Always TLS with the system's roots; plain HTTP to loopback addresses, and to nobody else. [`fake`] is a registry for
//! tests.

mod auth;
pub mod fake;

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use serde::Deserialize;
use tower::ServiceExt;

pub use auth::{Credentials, NoCredentials};

use crate::transport::{Broken, Limits, Origin, Transport};
use auth::{Challenge, Login};

/// One exchange: what is fetched here has a few megabytes at most, which a slow line brings in this time.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(30);
/// From a registry to where it keeps its blobs is one; a mirror before it and a signed address after it are two more.
const MAX_REDIRECTS: usize = 5;
/// A token is a signed list of rights: a few kilobytes, and what goes into a header is limited to about this anyway.
const MAX_TOKEN_BYTES: usize = 64 << 10;
/// What is shown of a registry's own words.
const SAID_CHARS: usize = 200;
/// The distribution API's own bound for names.
const MAX_NAME_CHARS: usize = 255;
/// No registry may send us away for longer than this: the longest back-off there is (I9).
const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

const MANIFEST_TYPES: &str = "application/vnd.oci.image.manifest.v1+json, \
    application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.v2+json, \
    application/vnd.docker.distribution.manifest.list.v2+json";

/// Why a registry did not give what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{0:?} is no repository of a registry: host[:port]/name is, in small letters")]
    Name(String),
    #[error("{what}: not found{said}")]
    NotFound { what: String, said: String },
    #[error("{what}: unauthorized{said}")]
    Unauthorized { what: String, said: String },
    #[error("{what}: too large: more than {at_most} bytes")]
    TooLarge { what: String, at_most: usize },
    #[error("{what}: refused with status {status}{said}")]
    Refused { what: String, status: u16, said: String },
    #[error("{what}: sent to a place where we do not go: {why}")]
    Astray { what: String, why: &'static str },
    /// It may be different the next time.
    #[error("{what}: {problem}")]
    Unavailable { what: String, problem: String, retry_after: Option<Duration> },
}

impl Error {
    /// Whether asking again later may help, and how much later the registry said.
    pub fn passes(&self) -> Option<Option<Duration>> {
        match self {
            Self::Unavailable { retry_after, .. } => Some(*retry_after),
            Self::Name(_)
            | Self::NotFound { .. }
            | Self::Unauthorized { .. }
            | Self::TooLarge { .. }
            | Self::Refused { .. }
            | Self::Astray { .. } => None,
        }
    }
}

/// One repository of one registry, and what it has let us in with so far.
#[derive(Clone, Debug)]
pub struct Repository {
    transport: Transport,
    origin: Origin,
    name: String,
    login: Option<Login>,
    authorization: Option<HeaderValue>,
}

impl Repository {
    /// `named` is `host[:port]/name`, where Docker's own registry is `docker.io`. Nothing is asked yet.
    ///
    /// # Errors
    /// When no registry has repositories of such a name.
    pub fn new(transport: Transport, named: &str, credentials: &Credentials) -> Result<Self, Error> {
        let bad = || Error::Name(named.to_owned());
        let (host, name) = named.split_once('/').ok_or_else(bad)?;
        if name.len() > MAX_NAME_CHARS || !name.split('/').all(is_component) {
            return Err(bad());
        }
        let at = if host == auth::DOCKER { "registry-1.docker.io" } else { host };
        let authority: Authority = at.parse().map_err(|_| bad())?;
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(bad());
        }
        let scheme = if is_loopback(authority.host()) { Scheme::HTTP } else { Scheme::HTTPS };
        let login = credentials.login(host).cloned();
        let origin = Origin { scheme, authority };
        Ok(Self { transport, origin, name: name.to_owned(), login, authorization: None })
    }

    /// The manifest or index under a tag or digest.
    ///
    /// # Errors
    /// When it is not there, not for us, larger than `at_most`, or nobody answers.
    pub async fn manifest(&mut self, reference: &str, at_most: usize) -> Result<Bytes, Error> {
        self.get("manifests", reference, at_most).await
    }

    /// The blob of a digest.
    ///
    /// # Errors
    /// As for a manifest.
    pub async fn blob(&mut self, digest: &str, at_most: usize) -> Result<Bytes, Error> {
        self.get("blobs", digest, at_most).await
    }

    async fn get(&mut self, part: &str, reference: &str, at_most: usize) -> Result<Bytes, Error> {
        let path = format!("/v2/{}/{part}/{reference}", self.name);
        let what = format!("GET {}{path}", self.origin.authority);
        let uri = self.origin.uri(&path).map_err(|_| Error::Name(what.clone()))?;
        let answer = self.follow(&what, uri.clone(), at_most).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return judged(&what, &answer).map(|()| answer.into_body());
        }
        // A token that was good a moment ago may have expired; one that is fresh and not good enough will not be.
        self.authorization = Some(self.let_in(&what, &answer).await?);
        let answer = self.follow(&what, uri, at_most).await?;
        judged(&what, &answer).map(|()| answer.into_body())
    }

    /// Asks, and goes where it is sent.
    async fn follow(&self, what: &str, mut uri: Uri, at_most: usize) -> Result<Response<Bytes>, Error> {
        for _ in 0..=MAX_REDIRECTS {
            let own = self.origin.is_of(&uri);
            let authorization = self.authorization.as_ref().filter(|_| own);
            let answer = self.exchange(what, &uri, authorization, at_most).await?;
            if !answer.status().is_redirection() {
                return Ok(answer);
            }
            uri = self.next(what, &uri, &answer)?;
        }
        Err(Error::Astray { what: what.to_owned(), why: "from one place to the next, and so on" })
    }

    fn next(&self, what: &str, from: &Uri, answer: &Response<Bytes>) -> Result<Uri, Error> {
        let astray = |why| Error::Astray { what: what.to_owned(), why };
        let location = answer.headers().get(LOCATION).and_then(|location| location.to_str().ok());
        let location = location.ok_or_else(|| astray("its answer does not say where to"))?;
        let to: Uri = location.parse().map_err(|_| astray("what it names is no address"))?;
        let to = match (to.authority(), from.scheme().cloned(), from.authority().cloned()) {
            (Some(_), _, _) => to,
            (None, Some(scheme), Some(authority)) if location.starts_with('/') => {
                Origin { scheme, authority }
                    .uri(location)
                    .map_err(|_| astray("what it names is no address"))?
            }
            (None, _, _) => return Err(astray("what it names is no address")),
        };
        may_lead_to(&self.origin, &to).map_err(astray)?;
        Ok(to)
    }

    /// What the challenge of an answer asks for.
    async fn let_in(&self, what: &str, answer: &Response<Bytes>) -> Result<HeaderValue, Error> {
        let refused = |said: &str| Error::Unauthorized { what: what.to_owned(), said: format!(": {said}") };
        let headers = answer.headers().get_all(WWW_AUTHENTICATE);
        match Challenge::of(headers.iter().filter_map(|header| header.to_str().ok())) {
            None => Err(Error::Unauthorized { what: what.to_owned(), said: said(answer.body()) }),
            Some(Challenge::Basic) => match &self.login {
                Some(login) => Ok(login.basic()),
                None => Err(refused("no credentials are known for it")),
            },
            Some(Challenge::Bearer { realm, service }) => {
                let uri = auth::token_address(&realm, service.as_deref(), &self.name)
                    .ok_or_else(|| refused("its challenge names no address for tokens"))?;
                may_lead_to(&self.origin, &uri)
                    .map_err(|why| Error::Astray { what: what.to_owned(), why })?;
                let login = self.login.as_ref().map(Login::basic);
                let answer = self.exchange(what, &uri, login.as_ref(), MAX_TOKEN_BYTES).await?;
                judged(what, &answer)?;
                auth::bearer(answer.body()).ok_or_else(|| refused("the token's server gave none"))
            }
        }
    }

    async fn exchange(
        &self,
        what: &str,
        uri: &Uri,
        authorization: Option<&HeaderValue>,
        at_most: usize,
    ) -> Result<Response<Bytes>, Error> {
        let mut request = Request::new(Bytes::new());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = uri.clone();
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(MANIFEST_TYPES));
        if let Some(authorization) = authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        request.extensions_mut().insert(Limits { timeout: EXCHANGE_TIMEOUT, body_bytes: at_most });
        let too_large = || Error::TooLarge { what: what.to_owned(), at_most };
        let answer = self.transport.clone().oneshot(request).await.map_err(|broken| match broken {
            Broken::TooLarge(_) => too_large(),
            Broken::Connect(_) | Broken::Lost(_) | Broken::TimedOut(_) => {
                Error::Unavailable { what: what.to_owned(), problem: broken.to_string(), retry_after: None }
            }
        })?;
        // Whatever carried it: no more than this is looked at.
        if answer.body().len() > at_most { Err(too_large()) } else { Ok(answer) }
    }
}

/// A registry on this machine may send us on within it. Whoever is elsewhere may not: neither to where everybody
/// can listen, nor to what listens here for us alone.
fn may_lead_to(origin: &Origin, uri: &Uri) -> Result<(), &'static str> {
    let authority = uri.authority().ok_or("what it names is no address")?;
    if authority.as_str().contains('@') {
        return Err("an address with a user in it");
    }
    let (from_here, to_here) = (is_loopback(origin.authority.host()), is_loopback(authority.host()));
    match (uri.scheme_str(), to_here) {
        (Some("https"), false) => Ok(()),
        (Some("http" | "https"), true) if from_here => Ok(()),
        (Some("http" | "https"), true) => Err("an address of this machine"),
        (_, _) => Err("not over TLS"),
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// One part of a repository's name: small letters and digits, with separators between them and nowhere else.
fn is_component(part: &str) -> bool {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let separators = |part: &str| {
        part.split(word)
            .filter(|run| !run.is_empty())
            .all(|run| matches!(run, "." | "_" | "__") || run.chars().all(|c| c == '-'))
    };
    part.starts_with(word) && part.ends_with(word) && separators(part)
}

fn judged(what: &str, answer: &Response<Bytes>) -> Result<(), Error> {
    let status = answer.status();
    if status == StatusCode::OK {
        return Ok(());
    }
    let (what, said) = (what.to_owned(), said(answer.body()));
    Err(match status.as_u16() {
        401 | 403 => Error::Unauthorized { what, said },
        404 => Error::NotFound { what, said },
        408 | 429 | 500.. => {
            let retry_after = answer.headers().get(RETRY_AFTER).and_then(|it| it.to_str().ok()?.parse().ok());
            let retry_after = retry_after.map(|seconds| Duration::from_secs(seconds).min(MAX_RETRY_AFTER));
            Error::Unavailable { what, problem: format!("answered {status}{said}"), retry_after }
        }
        status => Error::Refused { what, status, said },
    })
}

/// A registry's own words, if these are some.
fn said(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Said {
        errors: Vec<One>,
    }
    #[derive(Deserialize)]
    struct One {
        #[serde(default)]
        code: String,
        #[serde(default)]
        message: String,
    }
    let first = serde_json::from_slice::<Said>(body).ok().and_then(|said| said.errors.into_iter().next());
    let Some(One { code, message }) = first else { return String::new() };
    let text = format!(": {code}: {message}");
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SAID_CHARS).collect()
}

#[cfg(test)]
mod tests;
