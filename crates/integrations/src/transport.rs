//! How does a request get there? Over HTTPS, or into whatever is handed in: the fake answers without a socket.
//!
//! A transport is a service from whole requests to whole answers. It keeps the time itself, so that the client above
//! needs no runtime and no timer; a request may carry [`Limits`] of its own.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tower::util::BoxCloneSyncService;

/// What carries a request: `Request<Bytes>` to `Response<Bytes>`.
pub type Transport = BoxCloneSyncService<Request<Bytes>, Response<Bytes>, Broken>;

/// Where something is served: two addresses of one origin may know each other's secrets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
}

impl Origin {
    pub(crate) fn uri(&self, path_and_query: &str) -> Result<Uri, http::Error> {
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path_and_query)
            .build()
    }

    /// Whether an address is of this origin; the scheme's usual port need not be named.
    pub(crate) fn is_of(&self, uri: &Uri) -> bool {
        let usual = if self.scheme == Scheme::HTTPS { 443 } else { 80 };
        let port = |authority: &Authority| authority.port_u16().unwrap_or(usual);
        let same = |other: &Authority| {
            !other.as_str().contains('@')
                && self.authority.host().eq_ignore_ascii_case(other.host())
                && port(&self.authority) == port(other)
        };
        uri.scheme() == Some(&self.scheme) && uri.authority().is_some_and(same)
    }
}

/// GitHub ends a request of its own after 10 s: what has not been answered by then will not be.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest answer there is: GitHub's recursive tree ends at 7 MB, a page of 100 files with their patches is below
/// that. Twice as much is not GitHub.
pub const MAX_BODY_BYTES: usize = 16 << 20;

/// What one request may take, where that is not what GitHub may: an extension of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub timeout: Duration,
    /// Of the answer.
    pub body_bytes: usize,
}

/// Idle connections kept, for all Repositories of one host: enough for the engine's workers, few enough for a proxy.
const MAX_IDLE_CONNECTIONS: usize = 16;

/// A connection that was idle for longer is likely closed by something in between (common limits are 60 s and more).
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);

/// No answer, and how far the request got.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Nothing was sent.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// It was sent, wholly or in part.
    #[error("{0}")]
    Lost(String),
    /// It was sent, and took too long.
    #[error("no answer within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The answer is larger than what was asked for can be.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
}

/// TLS cannot be set up on this machine.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up TLS: {0}")]
pub struct SetupError(#[from] rustls::Error);

/// HTTPS with the system's root certificates. One is enough for all Repositories: it keeps connections.
///
/// A machine without root certificates may still do everything else: only what needs TLS fails there, and says so.
///
/// # Errors
/// When TLS itself is no use.
pub fn https() -> Result<Transport, SetupError> {
    let builder =
        || rustls::ClientConfig::builder_with_provider(crypto()).with_safe_default_protocol_versions();
    let builder = match builder()?.with_native_roots() {
        Ok(builder) => builder,
        Err(error) => {
            tracing::warn!(%error, "this machine trusts no certificate authority: nobody can be reached over TLS");
            builder()?.with_root_certificates(rustls::RootCertStore::empty())
        }
    };
    Ok(with_tls(builder.with_no_client_auth(), REQUEST_TIMEOUT))
}

/// HTTPS to whom `tls` trusts; plain HTTP where an address says so.
pub fn with_tls(tls: rustls::ClientConfig, timeout: Duration) -> Transport {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(timeout));
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp);
    let client = Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_timer(TokioTimer::new())
        // A request on a connection that turns out closed would be sent again by the pool; only we know which may be.
        .retry_canceled_requests(false)
        .build(connector);
    Transport::new(Https { client, timeout })
}

/// The one provider of cryptography there is.
pub(crate) fn crypto() -> std::sync::Arc<rustls::crypto::CryptoProvider> {
    std::sync::Arc::new(rustls::crypto::ring::default_provider())
}

#[derive(Clone, Debug)]
struct Https {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    timeout: Duration,
}

impl tower::Service<Request<Bytes>> for Https {
    type Response = Response<Bytes>;
    type Error = Broken;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Response<Bytes>, Broken>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let usual = Limits { timeout: self.timeout, body_bytes: MAX_BODY_BYTES };
        let (client, limits) = (self.client.clone(), request.extensions().get().copied().unwrap_or(usual));
        Box::pin(async move {
            match tokio::time::timeout(limits.timeout, exchange(&client, request, limits.body_bytes)).await {
                Ok(answer) => answer,
                Err(_) => Err(Broken::TimedOut(limits.timeout)),
            }
        })
    }
}

async fn exchange(
    client: &Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    request: Request<Bytes>,
    body_bytes: usize,
) -> Result<Response<Bytes>, Broken> {
    let answer = client.request(request.map(Full::new)).await.map_err(|error| {
        let said = chain(&error);
        if error.is_connect() { Broken::Connect(said) } else { Broken::Lost(said) }
    })?;
    let (parts, body) = answer.into_parts();
    let body = Limited::new(body, body_bytes).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            Broken::TooLarge(body_bytes)
        } else {
            Broken::Lost(error.to_string())
        }
    })?;
    Ok(Response::from_parts(parts, body.to_bytes()))
}

/// What an error says, with what led to it: hyper's own text alone is "client error (Connect)".
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
