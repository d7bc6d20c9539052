//! How do async clients reach the server: in process or over a socket?

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use futures::stream::unfold;
use http::{HeaderValue, Request, Response};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use super::logs::{self, LogRequest, PodLogs};
use super::{Bounds, Reply, answer, body, refusal};
use crate::access::{self, Identity};
use crate::status::Status;
use crate::verbs::Core;
use crate::watch::Watcher;

/// How much of a body that is too long is still taken, and for how long, before it is refused: most clients read no
/// answer while they send, and would only see a broken connection. Five times what is allowed.
const MAX_DISCARDED_BYTES: usize = 5 * body::MAX_BODY_BYTES;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// The server as a tower service: for `kube::Client::new` in process and for hyper over sockets.
#[derive(Debug, Clone)]
pub struct Service {
    core: Arc<Core>,
    logs: Option<Arc<dyn PodLogs>>,
    guarded: bool,
    bounds: Bounds,
}

/// Bytes at once, or watch events one by one.
pub struct ResponseBody {
    inner: Inner,
}

enum Inner {
    Whole(Option<Bytes>),
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl Service {
    pub(crate) fn new(core: Arc<Core>, logs: Option<Arc<dyn PodLogs>>) -> Service {
        Service { core, logs, guarded: false, bounds: Bounds::default() }
    }

    /// Asks everybody who they are, and lets them do what they may.
    pub(crate) fn guarded(mut self) -> Service {
        self.guarded = true;
        self
    }

    /// With other limits on each client.
    pub(super) fn within(mut self, bounds: Bounds) -> Service {
        self.bounds = bounds;
        self
    }

    async fn log(&self, request: LogRequest) -> Result<Response<ResponseBody>, Status> {
        let Some(logs) = &self.logs else {
            return Err(Status::bad_request("this server keeps no container output"));
        };
        let output = logs.open(request).await.map_err(Status::bad_request)?;
        Ok(stream(output, "text/plain"))
    }

    async fn respond<B>(self, request: Request<B>) -> Result<Response<ResponseBody>, Status>
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, sent) = request.into_parts();
        let who = if self.guarded { access::admit(&self.core, &parts)? } else { Identity::server() };
        if let Some(request) = logs::asked(&self.core, &parts).transpose()? {
            return self.log(request).await;
        }
        let sent = read(sent, self.bounds.body).await?;
        let (reply, durable) = answer(&self.core, &who, &parts, &sent)?;
        let kept = self.core.store.wait_async(durable).await;
        kept.map_err(|failed| Status::internal(failed.to_string()))?;
        Ok(match reply {
            Reply::Whole(response) => whole(response),
            Reply::Watch(request, shape) => {
                // Whoever asks in process is the server itself.
                let max = if self.guarded { self.bounds.watches_per_client } else { usize::MAX };
                let open = self.core.open_watches.open(&who.name, max)?;
                let watcher = (Watcher::open(self.core.clone(), request, shape), open);
                let lines = unfold(watcher, |mut w| async move { w.0.next().await.map(|line| (line, w)) });
                stream(Box::pin(lines), "application/json")
            }
        })
    }
}

fn stream(chunks: Pin<Box<dyn Stream<Item = Bytes> + Send>>, media: &'static str) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody { inner: Inner::Stream(chunks) });
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

/// A whole body, if it is not too long and does not take forever.
async fn read<B>(sent: B, timeout: Duration) -> Result<Bytes, Status>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if sent.is_end_stream() {
        return Ok(Bytes::new());
    }
    let mut sent = std::pin::pin!(sent);
    let collected = Limited::new(sent.as_mut(), body::MAX_BODY_BYTES).collect();
    match tokio::time::timeout(timeout, collected).await {
        Ok(Ok(sent)) => Ok(sent.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let rest = Limited::new(sent, MAX_DISCARDED_BYTES);
            // Whatever comes of it, the answer is the same.
            let _ = tokio::time::timeout(DISCARD_TIMEOUT, discard(rest)).await;
            Err(body::too_large())
        }
        Ok(Err(error)) => Err(Status::bad_request(format!("the body could not be read: {error}"))),
        Err(_) => Err(Status::timeout(format!("the body took longer than {timeout:?} to arrive"))),
    }
}

async fn discard<B: http_body::Body + Unpin>(mut body: B) {
    while let Some(Ok(_)) = body.frame().await {}
}

fn whole(response: Response<Bytes>) -> Response<ResponseBody> {
    response.map(|bytes| ResponseBody { inner: Inner::Whole(Some(bytes)) })
}

impl<B> tower::Service<Request<B>> for Service
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let answered = service.respond(request).await;
            Ok(answered.unwrap_or_else(|status| whole(refusal(&status))))
        })
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.inner {
            Inner::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Inner::Stream(lines) => lines.as_mut().poll_next(cx).map(|line| line.map(|l| Ok(Frame::data(l)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.inner, Inner::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Inner::Stream(_) => SizeHint::default(),
        }
    }
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.inner {
            Inner::Whole(bytes) => f.debug_tuple("Whole").field(bytes).finish(),
            Inner::Stream(_) => f.write_str("Stream"),
        }
    }
}
