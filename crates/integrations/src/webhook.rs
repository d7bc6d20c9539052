//! Who may nudge us, and how: `POST /webhook`, as GitHub sends it. The same server takes alerts (`alerts`).
//!
//! ```text
//! method, path, type, size ─▶ signature over the raw body ─▶ parse ─▶ write the nudges ─▶ 202
//!        405 404 415 413              401                     400        503 if that fails
//! ```
//! The signature is compared before anything of the body is read as more than bytes. The nudges are written before the
//! answer, so an acknowledged delivery is not lost with this process.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Body;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use pawl_api::meta::Kind;
use pawl_engine::{Clock, Engine};
use pawl_machines::git::delivery::{self, Delivery, Nudge};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::alerts::{self, Alerts};
use crate::github::webhook::verify;

/// GitHub's own limit of a delivery.
pub const MAX_BODY_BYTES: usize = 25 * 1024 * 1024;
/// GitHub gives up on a delivery after 10 s, so whoever takes longer to send one is not GitHub.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may be idle between two deliveries.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Each may hold a body of the largest size in memory: together at most 800 MiB, and only until its time is up.
const MAX_CONNECTIONS: usize = 32;
/// How long deliveries under way may take to end once the server stops.
const DRAIN: Duration = Duration::from_secs(5);

/// Who is believed.
#[derive(Clone)]
pub enum Trust {
    /// Whoever signs with this.
    Secret(Arc<[u8]>),
    /// Anybody: only where nobody else can reach the port.
    Anybody,
    /// Nobody: this way in is shut.
    Nobody,
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Secret(_) => "Trust::Secret(…)",
            Self::Anybody => "Trust::Anybody",
            Self::Nobody => "Trust::Nobody",
        })
    }
}

/// Why there is no webhook server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "no webhook secret is configured: anybody could ask for runs (say --insecure-webhook if that is meant)"
    )]
    NoSecret,
    #[error("serve webhooks: {0}")]
    Listen(#[from] std::io::Error),
}

impl Trust {
    /// # Errors
    /// When there is no secret, and it was not said that none is meant.
    pub fn from_secret(secret: Option<&[u8]>, insecure: bool) -> Result<Self, Error> {
        match secret.map(<[u8]>::trim_ascii).filter(|secret| !secret.is_empty()) {
            Some(secret) => Ok(Self::Secret(secret.into())),
            None if insecure => Ok(Self::Anybody),
            None => Err(Error::NoSecret),
        }
    }
}

/// What takes deliveries.
#[derive(Clone)]
pub struct Webhook {
    /// Its caches know the Repositories, on a standby too.
    engine: Engine,
    client: kube::Client,
    clock: Arc<dyn Clock>,
    trust: Trust,
    alerts: Option<Alerts>,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook").field("trust", &self.trust).finish_non_exhaustive()
    }
}

impl Webhook {
    pub fn new(engine: Engine, client: kube::Client, clock: Arc<dyn Clock>, trust: Trust) -> Self {
        Self { engine, client, clock, trust, alerts: None }
    }

    /// Takes alerts too.
    #[must_use]
    pub fn with_alerts(mut self, alerts: Alerts) -> Self {
        self.alerts = Some(alerts);
        self
    }

    /// Serves until `shutdown` completes.
    ///
    /// # Errors
    /// When the listener is no use.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        listener.local_addr()?;
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let (stop, stopped) = watch::channel(());
        let mut connections = JoinSet::new();
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let accepted = async {
                // Nobody closes the semaphore.
                let place = Arc::clone(&room).acquire_owned().await.ok();
                (listener.accept().await, place)
            };
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(_) = connections.join_next() => {}
                (stream, place) = accepted => {
                    let Ok((stream, _)) = stream else {
                        // Out of files, most likely: others end.
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        continue;
                    };
                    let (webhook, stopped) = (self.clone(), stopped.clone());
                    connections.spawn(async move {
                        webhook.converse(stream, stopped).await;
                        drop(place);
                    });
                }
            }
        }
        stop.send_replace(());
        let _ = tokio::time::timeout(DRAIN, async { while connections.join_next().await.is_some() {} }).await;
        Ok(())
    }

    async fn converse(self, stream: tokio::net::TcpStream, mut stopped: watch::Receiver<()>) {
        let service = service_fn(move |request| {
            let webhook = self.clone();
            async move { Ok::<_, Infallible>(webhook.take(request).await) }
        });
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(IDLE_TIMEOUT);
        let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            _ = stopped.changed() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a webhook connection ended badly");
        }
    }

    /// One delivery and its answer.
    pub async fn take<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let alerts = match (parts.uri.path(), &self.alerts) {
            ("/webhook", _) => None,
            (alerts::PATH, Some(alerts)) => Some(alerts),
            (alerts::PATH, None) => {
                return say(
                    StatusCode::NOT_FOUND,
                    "alerts are not taken here: no token is configured for them",
                );
            }
            _ => return say(StatusCode::NOT_FOUND, "deliveries go to /webhook, alerts to /api/v1/alerts"),
        };
        if parts.method != Method::POST {
            let mut answer = say(StatusCode::METHOD_NOT_ALLOWED, "deliveries are sent with POST");
            answer.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("POST"));
            return answer;
        }
        // A token is looked at before the body: nobody else makes us read megabytes.
        if alerts.is_some_and(|alerts| !alerts.lets_in(&parts.headers)) {
            return Alerts::refusal();
        }
        if !is_json(&parts.headers) {
            return say(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "set the webhook's content type to application/json",
            );
        }
        let body = match read(&parts.headers, body).await {
            Ok(body) => body,
            Err(answer) => return *answer,
        };
        if let Some(alerts) = alerts {
            return alerts.act(&body).await;
        }
        let signature = header_text(&parts.headers, "x-hub-signature-256");
        match &self.trust {
            Trust::Secret(secret) if !verify(secret, &body, signature) => {
                return say(StatusCode::UNAUTHORIZED, "the signature is missing or not ours");
            }
            Trust::Nobody => {
                return say(StatusCode::UNAUTHORIZED, "no webhook secret is configured");
            }
            Trust::Secret(_) | Trust::Anybody => {}
        }
        self.act(&parts.headers, &body).await
    }

    async fn act(&self, headers: &HeaderMap, body: &[u8]) -> Response<Full<Bytes>> {
        let event = header_text(headers, "x-github-event");
        let id = header_text(headers, "x-github-delivery");
        if event.is_empty() {
            return say(StatusCode::BAD_REQUEST, "the header X-GitHub-Event is missing");
        }
        let asked = match delivery::read(event, body) {
            Ok(Delivery::Unused) => return say(StatusCode::OK, "nothing to do for this event"),
            Ok(asked) => asked,
            Err(unreadable) => return say(StatusCode::BAD_REQUEST, &unreadable.to_string()),
        };
        let nudges = delivery::nudges(&asked, id, self.engine.view(), self.clock.now());
        let count = nudges.len();
        for nudge in nudges {
            if let Err(error) = self.write(&nudge).await {
                tracing::warn!(target = %nudge.target, %error, "a webhook delivery could not be passed on");
                return say(StatusCode::SERVICE_UNAVAILABLE, "the cluster did not take it; redeliver later");
            }
        }
        tracing::info!(event, delivery = id, nudged = count, "took a webhook delivery");
        say(StatusCode::ACCEPTED, "accepted")
    }

    async fn write(&self, Nudge { target, patch }: &Nudge) -> Result<(), kube::Error> {
        let mut patch = patch.clone();
        if let Some(metadata) = patch.get_mut("metadata").and_then(|metadata| metadata.as_object_mut()) {
            // Of this very object, not of a namesake.
            metadata.insert("uid".to_owned(), target.uid.as_str().into());
        }
        let namespace = target.key.namespace.as_deref().unwrap_or_default();
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &resource(&target.kind));
        match api
            .patch(
                &target.key.name,
                &PatchParams::apply("pawl-webhook").validation_strict(),
                &Patch::Merge(patch),
            )
            .await
        {
            // Gone, or another of that name: there is nothing left to nudge.
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
            answer => answer.map(|_| ()),
        }
    }
}

/// The body, or why it is not read.
async fn read<B>(headers: &HeaderMap, body: B) -> Result<Bytes, Box<Response<Full<Bytes>>>>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let announced = header_text(headers, header::CONTENT_LENGTH.as_str());
    if announced.parse::<usize>().is_ok_and(|bytes| bytes > MAX_BODY_BYTES) {
        return Err(Box::new(too_large()));
    }
    let read = tokio::time::timeout(READ_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect()).await;
    Err(Box::new(match read {
        Ok(Ok(body)) => return Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => too_large(),
        Ok(Err(_)) => say(StatusCode::BAD_REQUEST, "the body ended early"),
        Err(_) => say(StatusCode::REQUEST_TIMEOUT, "the body took too long"),
    }))
}

pub(crate) fn resource(kind: &Kind) -> ApiResource {
    let names = GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind);
    ApiResource::from_gvk_with_plural(&names, &kind.plural)
}

pub(crate) fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type = header_text(headers, header::CONTENT_TYPE.as_str());
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

fn too_large() -> Response<Full<Bytes>> {
    say(StatusCode::PAYLOAD_TOO_LARGE, "a delivery is at most 25 MiB")
}

pub(crate) fn say(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{text}\n"))));
    *response.status_mut() = status;
    let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}
