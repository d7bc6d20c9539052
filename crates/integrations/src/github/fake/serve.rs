//! How does the fake listen on a socket?

use std::future::Future;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::header::HOST;
use http::uri::{Authority, Scheme};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use super::{Deed, Fake};
use crate::transport::Broken;

/// The largest request GitHub takes, and more than any of ours.
const MAX_REQUEST_BYTES: usize = 25 << 20;

/// Where people say what they do ([`super::Deed`]), and see what there is.
const PEOPLE: &str = "/people";

/// Serves until `shutdown` is ready; connections under way end with the runtime.
///
/// # Errors
/// When the listener is no use.
pub async fn serve(
    listener: TcpListener,
    fake: Fake,
    tls: Option<Arc<ServerConfig>>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    listener.local_addr()?;
    let tls = tls.map(TlsAcceptor::from);
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let (stream, _) = tokio::select! {
            () = &mut shutdown => return Ok(()),
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                // One that went away before it was there is its own loss.
                Err(error) => {
                    tracing::debug!(%error, "a connection to the fake GitHub was not accepted");
                    continue;
                }
            },
        };
        let (fake, tls) = (fake.clone(), tls.clone());
        tokio::spawn(async move {
            match tls {
                None => connection(stream, fake, Scheme::HTTP).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => connection(stream, fake, Scheme::HTTPS).await,
                    Err(error) => tracing::debug!(%error, "no TLS with a client of the fake GitHub"),
                },
            }
        });
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    fake: Fake,
    scheme: Scheme,
) {
    let service = hyper::service::service_fn(move |request| answered(fake.clone(), scheme.clone(), request));
    let served =
        auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the fake GitHub broke");
    }
}

/// What the fake leaves unanswered is unanswered here too: the connection breaks, or nothing ever comes.
async fn answered(
    fake: Fake,
    scheme: Scheme,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Broken> {
    let (mut parts, body) = request.into_parts();
    let lost = |problem: Box<dyn std::error::Error + Send + Sync>| Broken::Lost(problem.to_string());
    let body = Limited::new(body, MAX_REQUEST_BYTES).collect().await.map_err(lost)?.to_bytes();
    if parts.uri.path() == PEOPLE {
        let looks = parts.method == http::Method::GET;
        return Ok(if looks { said(StatusCode::OK, &fake.overview()) } else { acted(&fake, &body) });
    }
    // Links in answers lead back the way the request came.
    let host = parts.headers.get(HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let mut uri = parts.uri.into_parts();
    uri.authority = uri.authority.or(host);
    uri.scheme = uri.authority.as_ref().map(|_| scheme);
    parts.uri = Uri::from_parts(uri).map_err(|error| Broken::Lost(error.to_string()))?;
    match fake.call(&Request::from_parts(parts, body)) {
        Ok(response) => Ok(response.map(Full::new)),
        Err(Broken::TimedOut(_)) => std::future::pending().await,
        Err(broken) => Err(broken),
    }
}

fn acted(fake: &Fake, body: &[u8]) -> Response<Full<Bytes>> {
    let done = serde_json::from_slice::<Deed>(body)
        .map_err(|error| error.to_string())
        .and_then(|deed| fake.act(&deed).map_err(|undone| undone.to_string()));
    match done {
        Ok(done) => said(StatusCode::OK, &done),
        Err(problem) => said(StatusCode::BAD_REQUEST, &json!({"problem": problem})),
    }
}

fn said(status: StatusCode, text: &serde_json::Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{text}\n"))));
    *response.status_mut() = status;
    response
}
