//! Does the other end of a connection keep up?
//!
//! Nothing is buffered for a client beyond what the connection itself holds, so one that does not read holds only its
//! place. It is looked at from time to time, and loses it:
//!
//! ```text
//! no request under way ──idle too long──▶ goodbye
//! an answer under way: a piece is handed over ──the next is not fetched for too long──▶ cut off
//!                      the next is fetched, there is none yet ──▶ it is on us, not on them
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::{ResponseBody, Service};

/// Answers are handed over in pieces of at most this: small enough that a slow client fetches one well within the
/// time it has, large enough that a list of megabytes is a few dozen pieces.
const PIECE_BYTES: usize = 256 << 10;
/// How often a connection is looked at within its shortest timeout: it is cut off at most a quarter late.
const LOOKS: u32 = 4;
/// An answer that is on us.
const OURS: u64 = u64::MAX;

/// Why a connection has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overdue {
    /// Nothing was asked for too long.
    Idle,
    /// Nothing was taken of an answer for too long.
    Stalled,
}

/// What is under way on one connection.
#[derive(Debug)]
pub(super) struct Pace {
    since: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    answers: Vec<Arc<AtomicU64>>,
    /// When the last of them ended.
    idle: Instant,
}

impl Pace {
    pub(super) fn new() -> Arc<Pace> {
        let since = Instant::now();
        Arc::new(Pace { since, state: Mutex::new(State { answers: Vec::new(), idle: since }) })
    }

    /// Waits until the connection has to end.
    pub(super) async fn overdue(&self, idle: Duration, stall: Duration) -> Overdue {
        let look = idle.min(stall) / LOOKS;
        loop {
            tokio::time::sleep(look).await;
            if let Some(overdue) = self.look(idle, stall) {
                return overdue;
            }
        }
    }

    fn look(&self, idle: Duration, stall: Duration) -> Option<Overdue> {
        let state = self.state();
        if state.answers.is_empty() {
            return (state.idle.elapsed() >= idle).then_some(Overdue::Idle);
        }
        let now = self.millis();
        let stall = u64::try_from(stall.as_millis()).unwrap_or(u64::MAX);
        let waits = |answer: &Arc<AtomicU64>| now.saturating_sub(answer.load(Ordering::Relaxed)) >= stall;
        state.answers.iter().any(waits).then_some(Overdue::Stalled)
    }

    /// Since when no request is under way, if none is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let state = self.state();
        state.answers.is_empty().then_some(state.idle)
    }

    pub(super) fn begin(self: &Arc<Self>) -> UnderWay {
        let handed = Arc::new(AtomicU64::new(OURS));
        self.state().answers.push(handed.clone());
        UnderWay { pace: self.clone(), handed }
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(OURS - 1)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request until its answer has been handed over whole.
#[derive(Debug)]
pub(super) struct UnderWay {
    pace: Arc<Pace>,
    /// When the last piece was handed over that no fetch of the next has followed.
    handed: Arc<AtomicU64>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.pace.state();
        state.answers.retain(|answer| !Arc::ptr_eq(answer, &self.handed));
        state.idle = Instant::now();
    }
}

/// The service on one connection.
#[derive(Debug, Clone)]
pub(super) struct PacedService {
    pub(super) service: Service,
    pub(super) pace: Arc<Pace>,
}

impl<B> tower::Service<Request<B>> for PacedService
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Paced>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let under_way = self.pace.begin();
        let answer = self.service.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            Ok(answer.map(|body| Paced { body, rest: Bytes::new(), under_way }))
        })
    }
}

/// An answer that notes when it was last asked for more.
#[derive(Debug)]
pub(super) struct Paced {
    body: ResponseBody,
    rest: Bytes,
    under_way: UnderWay,
}

impl Body for Paced {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.rest.is_empty() {
            self.under_way.handed.store(OURS, Ordering::Relaxed);
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Poll::Ready(None) => return Poll::Ready(None),
            }
        }
        let length = self.rest.len().min(PIECE_BYTES);
        let piece = self.rest.split_to(length);
        self.under_way.handed.store(self.under_way.pace.millis(), Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let inner = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(100);
    const STALL: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_only_between_requests() {
        let pace = Pace::new();
        let request = pace.begin();
        tokio::time::sleep(IDLE * 2).await;
        assert_eq!(pace.look(IDLE, STALL), None, "the answer is on us");
        drop(request);
        assert_eq!(pace.look(IDLE, STALL), None, "idleness begins when the last answer is over");
        let began = Instant::now();
        assert_eq!(pace.overdue(IDLE, STALL).await, Overdue::Idle);
        assert!(began.elapsed() >= IDLE && began.elapsed() <= IDLE + STALL);
    }

    #[tokio::test(start_paused = true)]
    async fn one_answer_that_nobody_takes_is_enough() {
        let pace = Pace::new();
        let (slow, quick) = (pace.begin(), pace.begin());
        slow.handed.store(pace.millis(), Ordering::Relaxed);
        quick.handed.store(OURS, Ordering::Relaxed);
        tokio::time::sleep(STALL / 2).await;
        assert_eq!(pace.look(IDLE, STALL), None);
        tokio::time::sleep(STALL / 2).await;
        assert_eq!(pace.look(IDLE, STALL), Some(Overdue::Stalled));
        slow.handed.store(OURS, Ordering::Relaxed);
        assert_eq!(pace.look(IDLE, STALL), None);
    }
}
