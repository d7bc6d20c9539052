//! How is an engine spoken to?
//!
//! HTTP/1.1 over its unix socket, a connection for each request: a socket of this machine costs microseconds, and a
//! request that waits for hours (a container's end, its output) holds up nobody else's.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

/// Engines answer in milliseconds, on a busy machine in seconds; one that takes this long is stuck.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest answer that is read as a whole: a list of thousands of containers.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// The longest complaint that is passed on.
const MAX_COMPLAINT_BYTES: usize = 4 << 10;

/// Where an engine listens, and the version of its API that is spoken. Clones are cheap.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    socket: Arc<Path>,
    /// In front of every path, such as `/v1.41`.
    prefix: Arc<str>,
}

/// Why a request was not answered, or not well. The words go into statuses and Events.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot connect to {}: {source}", socket.display())]
    Connect { socket: PathBuf, source: io::Error },
    /// The engine's own words.
    #[error("{message}")]
    Refused { status: StatusCode, message: String },
    #[error("{what}: the connection broke: {source}")]
    Broken { what: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{what}: the engine did not answer within {} s", ANSWER_TIMEOUT.as_secs())]
    Timeout { what: String },
    #[error("{what}: the engine's answer is not understood: {source}")]
    Answer { what: String, source: Box<dyn std::error::Error + Send + Sync> },
}

impl Error {
    /// The engine knows nothing of that name.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Refused { status: StatusCode::NOT_FOUND, .. })
    }

    /// The engine said no: nothing was done, and asking again will not help by itself.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }
}

/// An answer whose body is still coming.
#[derive(Debug)]
pub(crate) struct Answer {
    what: String,
    body: Incoming,
    /// The connection lives as long as somebody could ask more.
    _sender: SendRequest<Full<Bytes>>,
}

/// What is asked.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) query: &'a [(&'a str, &'a str)],
    pub(crate) body: Option<Vec<u8>>,
}

impl<'a> Ask<'a> {
    pub(crate) fn new(method: Method, path: &'a str) -> Self {
        Self { method, path, query: &[], body: None }
    }

    pub(crate) fn query(self, query: &'a [(&'a str, &'a str)]) -> Self {
        Self { query, ..self }
    }

    /// What cannot be written as JSON does not exist among our types.
    pub(crate) fn json(self, body: &impl Serialize) -> Self {
        Self { body: Some(serde_json::to_vec(body).unwrap_or_default()), ..self }
    }

    fn what(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

impl Client {
    /// Speaks to whatever listens there, in no particular version.
    pub(crate) fn new(socket: &Path) -> Self {
        Self { socket: socket.into(), prefix: "".into() }
    }

    pub(crate) fn speaking(&self, version: &str) -> Self {
        Self { socket: self.socket.clone(), prefix: format!("/v{version}").into() }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Asks for something that is answered at once.
    pub(crate) async fn json<T: DeserializeOwned>(&self, ask: Ask<'_>) -> Result<T, Error> {
        let what = ask.what();
        let answered = async { self.stream(ask).await?.json().await };
        match tokio::time::timeout(ANSWER_TIMEOUT, answered).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::Timeout { what }),
        }
    }

    /// Asks for something to be done at once; its answer does not matter but for being good.
    pub(crate) async fn done(&self, ask: Ask<'_>) -> Result<(), Error> {
        let what = ask.what();
        match tokio::time::timeout(ANSWER_TIMEOUT, self.stream(ask)).await {
            Ok(answer) => answer.map(drop),
            Err(_) => Err(Error::Timeout { what }),
        }
    }

    /// Asks for something that takes as long as it takes.
    pub(crate) async fn stream(&self, ask: Ask<'_>) -> Result<Answer, Error> {
        let what = ask.what();
        let broken = |source: hyper::Error| Error::Broken { what: what.clone(), source: source.into() };
        let stream = UnixStream::connect(&self.socket).await;
        let stream = stream.map_err(|source| Error::Connect { socket: self.socket.to_path_buf(), source })?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // It ends with the answer, or when whoever reads it goes away.
        tokio::spawn(connection);
        let request = self.request(ask).map_err(|error| unfit(&what, error))?;
        let (parts, body) = sender.send_request(request).await.map_err(broken)?.into_parts();
        if parts.status.is_success() || parts.status == StatusCode::NOT_MODIFIED {
            return Ok(Answer { what, body, _sender: sender });
        }
        Err(Error::Refused { status: parts.status, message: complaint(body, parts.status).await })
    }

    fn request(&self, ask: Ask<'_>) -> Result<Request<Full<Bytes>>, http::Error> {
        let mut uri = format!("{}{}", self.prefix, ask.path);
        if !ask.query.is_empty() {
            let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(ask.query).finish();
            uri = format!("{uri}?{query}");
        }
        // A unix socket has no name; HTTP/1.1 wants one.
        let mut request = Request::builder().method(ask.method).uri(uri).header(header::HOST, "engine");
        if ask.body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        request.body(Full::new(Bytes::from(ask.body.unwrap_or_default())))
    }
}

impl Answer {
    /// The next piece; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame =
                frame.map_err(|source| Error::Broken { what: self.what.clone(), source: source.into() })?;
            // Trailers tell nothing here.
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }

    /// All of it, understood.
    pub(crate) async fn json<T: DeserializeOwned>(self) -> Result<T, Error> {
        let Self { what, body, _sender } = self;
        let whole = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
        let whole = whole.map_err(|source| Error::Broken { what: what.clone(), source })?.to_bytes();
        serde_json::from_slice(&whole).map_err(|source| Error::Answer { what, source: source.into() })
    }
}

/// What cannot be asked, such as a path with a space in it.
fn unfit(what: &str, error: http::Error) -> Error {
    Error::Answer { what: format!("{what} cannot be asked"), source: error.into() }
}

/// Why the engine says no: its `message`, else all it says.
async fn complaint(body: Incoming, status: StatusCode) -> String {
    let said = tokio::time::timeout(ANSWER_TIMEOUT, Limited::new(body, MAX_COMPLAINT_BYTES).collect()).await;
    let said = said.ok().and_then(Result::ok).map(|said| said.to_bytes()).unwrap_or_default();
    let message = serde_json::from_slice::<serde_json::Value>(&said)
        .ok()
        .and_then(|value| Some(value.get("message")?.as_str()?.to_owned()));
    let message = message.unwrap_or_else(|| String::from_utf8_lossy(&said).trim().to_owned());
    if message.is_empty() { format!("the engine answered {status}") } else { message }
}
