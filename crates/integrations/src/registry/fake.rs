//! A registry for tests: it gives what was put into it, to whom it is told to, and remembers who asked with what.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST, LOCATION, WWW_AUTHENTICATE};
use http::uri::Authority;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::json;
use tokio::net::TcpListener;

use crate::transport::{Broken, Transport};

/// Whoever has this has been let in; it is no secret.
const TOKEN: &str = "fake-token";

/// A registry. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Fake {
    world: Arc<Mutex<World>>,
}

/// Who is let in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Guard {
    #[default]
    Nobody,
    /// Whoever has this `name:password`.
    Basic(String),
    /// Whoever has a token from `realm`, which asks for a `name:password` or gives it to everybody.
    Bearer { realm: String, login: Option<String> },
}

/// One request, as it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub host: String,
    pub path: String,
    pub authorized: bool,
}

#[derive(Debug, Default)]
struct World {
    /// By path below the host.
    files: BTreeMap<String, Bytes>,
    guard: Guard,
    /// Blobs are elsewhere: what stands before their paths there.
    storage: Option<String>,
    /// Answers to the next requests, whatever they ask for.
    troubles: Vec<StatusCode>,
    asked: Vec<Asked>,
}

impl Fake {
    /// Puts a manifest or index under a tag or digest.
    pub fn put_manifest(&self, name: &str, reference: &str, bytes: impl Into<Bytes>) {
        self.world().files.insert(format!("/v2/{name}/manifests/{reference}"), bytes.into());
    }

    /// Puts a blob under a digest, whether or not it is its own.
    pub fn put_blob(&self, name: &str, digest: &str, bytes: impl Into<Bytes>) {
        self.world().files.insert(format!("/v2/{name}/blobs/{digest}"), bytes.into());
    }

    pub fn guard(&self, guard: Guard) {
        self.world().guard = guard;
    }

    /// From now on blobs are to be had at this origin, as `https://storage.example.com`, without a login.
    pub fn keep_blobs_at(&self, origin: &str) {
        self.world().storage = Some(origin.to_owned());
    }

    /// The next request is answered with this.
    pub fn fail_next(&self, status: StatusCode) {
        self.world().troubles.push(status);
    }

    /// All that was asked since the last time, in order.
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.world().asked)
    }

    /// Leads to this registry whatever the host.
    pub fn transport(&self) -> Transport {
        Transport::new(self.clone())
    }

    /// Serves on a socket, until the future is dropped.
    ///
    /// # Errors
    /// When the listener is no use.
    pub async fn serve(self, listener: TcpListener) -> io::Result<()> {
        loop {
            let (stream, _) = listener.accept().await?;
            let fake = self.clone();
            tokio::spawn(async move {
                let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
                    let answer = fake.answer(&request.map(|_| ()));
                    async move { Ok::<_, Infallible>(answer.map(Full::new)) }
                });
                let connection = auto::Builder::new(TokioExecutor::new());
                if let Err(error) = connection.serve_connection(TokioIo::new(stream), service).await {
                    tracing::debug!(%error, "a connection to the fake registry broke");
                }
            });
        }
    }

    fn answer<T>(&self, request: &Request<T>) -> Response<Bytes> {
        let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let host = request.uri().authority().map(Authority::as_str).or(header(HOST)).unwrap_or_default();
        let (path, shown) = (request.uri().path(), header(AUTHORIZATION));
        let mut world = self.world();
        world.asked.push(Asked { host: host.to_owned(), path: path.to_owned(), authorized: shown.is_some() });
        if let Some(trouble) = world.troubles.pop() {
            return status(trouble, "TROUBLE");
        }
        if let (Guard::Bearer { login, .. }, "/token") = (&world.guard, path) {
            return match login {
                Some(login) if shown != Some(basic(login).as_str()) => {
                    status(StatusCode::UNAUTHORIZED, "DENIED")
                }
                _ => Response::new(json!({"token": TOKEN}).to_string().into()),
            };
        }
        let in_storage = world.storage.as_ref().is_some_and(|storage| storage.ends_with(&format!("/{host}")));
        if let Some(challenge) = world.guard.challenge(shown).filter(|_| !in_storage) {
            let mut answer = status(StatusCode::UNAUTHORIZED, "UNAUTHORIZED");
            answer.headers_mut().extend(challenge.parse().map(|value| (WWW_AUTHENTICATE, value)));
            return answer;
        }
        if let Some(storage) = world.storage.as_ref().filter(|_| !in_storage && path.contains("/blobs/")) {
            let mut answer = status(StatusCode::TEMPORARY_REDIRECT, "ELSEWHERE");
            answer.headers_mut().extend(format!("{storage}{path}").parse().map(|value| (LOCATION, value)));
            return answer;
        }
        match world.files.get(path) {
            Some(bytes) => Response::new(bytes.clone()),
            None => status(StatusCode::NOT_FOUND, "MANIFEST_UNKNOWN"),
        }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guard {
    /// What whoever shows this is asked for; `None`: is let in.
    fn challenge(&self, shown: Option<&str>) -> Option<String> {
        let (wanted, challenge) = match self {
            Self::Nobody => return None,
            Self::Basic(login) => (basic(login), "Basic realm=\"fake\"".to_owned()),
            Self::Bearer { realm, .. } => {
                (format!("Bearer {TOKEN}"), format!("Bearer realm=\"{realm}\",service=\"fake\""))
            }
        };
        (shown != Some(wanted.as_str())).then_some(challenge)
    }
}

impl tower::Service<Request<Bytes>> for Fake {
    type Response = Response<Bytes>;
    type Error = Broken;
    type Future = std::future::Ready<Result<Response<Bytes>, Broken>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        std::future::ready(Ok(self.answer(&request)))
    }
}

/// A layer: a tar of one file, whatever it is called. No library would write some of the names that a registry may send.
pub fn layer(path: &str, text: &str) -> Vec<u8> {
    let padded = |bytes: &[u8], length: usize| {
        let mut field = bytes.to_vec();
        field.resize(length, 0);
        field
    };
    let size = format!("{:011o}\0", text.len());
    let header = |sum: &[u8]| {
        let about = [
            padded(path.as_bytes(), 100),
            padded(b"0000644", 24),
            padded(size.as_bytes(), 24),
            padded(sum, 8),
        ];
        let rest = [padded(b"0", 101), padded(b"ustar\x0000", 255)];
        [about.concat(), rest.concat()].concat()
    };
    // The sum is made as if its own field were blank.
    let sum: u32 = header(b"        ").iter().map(|byte| u32::from(*byte)).sum();
    let mut tar = header(format!("{sum:06o}\0 ").as_bytes());
    tar.extend(text.as_bytes());
    // Whole blocks, and two empty ones.
    tar.resize(tar.len().next_multiple_of(512) + 1024, 0);
    tar
}

fn basic(login: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(login))
}

fn status(status: StatusCode, code: &str) -> Response<Bytes> {
    let said = json!({"errors": [{"code": code, "message": "says the fake registry"}]});
    let mut answer = Response::new(Bytes::from(said.to_string()));
    *answer.status_mut() = status;
    answer
}
