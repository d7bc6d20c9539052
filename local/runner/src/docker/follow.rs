//! How is a container of an engine brought to its end, whatever happens to the connection?
//!
//! ```text
//!            ┌──────────────────────────────── asked again, later ◀─┐
//!            ▼                                                      │ no answer
//! inspect ─▶ Made ──start──▶ Runs ──wait, output, signals──▶ ─┬─────┘
//!            │ refused        ▲                               │ answered
//!            ▼                └────────────── inspect ◀───────┘
//!        CannotStart                             ├─▶ Ended: the rest of the output, then Exited
//!                                                └─▶ gone:  Exited if its end was seen, else Lost
//! ```
//! The engine is the truth: every way leads back to asking it what the container does. A connection that breaks, an engine
//! that restarts, and a container that ran while Pawl did not are one case.

use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::sync::mpsc;

use super::output::Until;
use super::{Engine, Error, Found, Stage};
use crate::isolate::CANNOT_START;
use crate::logs::Resumed;
use crate::worker::End;

/// Between two questions that were not answered: from here, doubling (I9).
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Signals a container while another waits for its end.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    pub(crate) engine: Engine,
    pub(crate) name: String,
    signals: mpsc::UnboundedSender<Signal>,
}

impl Handle {
    pub(crate) fn signal(&self, signal: Signal) {
        // Nobody listens: it has ended.
        let _ = self.signals.send(signal);
    }
}

/// Follows a container to its end; the future must be polled for anything to happen.
pub(crate) fn follow(
    engine: Engine,
    name: String,
    log: Resumed,
) -> (Handle, impl Future<Output = End> + Send) {
    let (signals, asked) = mpsc::unbounded_channel();
    let handle = Handle { engine: engine.clone(), name: name.clone(), signals };
    let follower = Follower { engine, name, log, asked, unsent: None, seen_to_end: None, wait: RETRY_MIN };
    (handle, follower.run())
}

struct Follower {
    engine: Engine,
    name: String,
    log: Resumed,
    asked: mpsc::UnboundedReceiver<Signal>,
    /// A signal that the engine has not taken yet.
    unsent: Option<Signal>,
    /// The exit code, where its end was heard of.
    seen_to_end: Option<i64>,
    wait: Duration,
}

impl Follower {
    async fn run(mut self) -> End {
        loop {
            let found = match self.engine.inspect(&self.name).await {
                Ok(found) => found,
                Err(error) if error.is_absent() => return self.gone(),
                Err(error) => {
                    self.later(&error).await;
                    continue;
                }
            };
            match found.stage {
                Stage::Made => {
                    if let Err(error) = self.engine.start(&self.name).await {
                        if error.is_refusal() {
                            return End::CannotStart(error.to_string());
                        }
                        self.later(&error).await;
                    }
                }
                Stage::Runs => {
                    // Its end was told, and is not to be seen yet.
                    if self.seen_to_end.is_some() {
                        self.pause().await;
                    }
                    self.while_it_runs().await;
                }
                Stage::Ended => return self.ended(&found).await,
            }
        }
    }

    /// Until the engine says that it ended, or says nothing any more.
    async fn while_it_runs(&mut self) {
        match self.heard_of_end().await {
            Ok(code) => {
                self.seen_to_end = Some(code);
                self.wait = RETRY_MIN;
            }
            // Gone: the next question tells.
            Err(error) if error.is_absent() => {}
            Err(error) => self.later(&error).await,
        }
    }

    async fn heard_of_end(&mut self) -> Result<i64, Error> {
        let Self { engine, name, log, asked, unsent, .. } = self;
        let mut waiting = std::pin::pin!(engine.wait(name));
        let mut copying = std::pin::pin!(keep_copying(engine, name, log));
        loop {
            let signal = tokio::select! {
                ended = &mut waiting => return ended,
                never = &mut copying => match never {},
                signal = next_signal(asked, unsent) => signal,
            };
            match engine.signal(name, signal).await {
                Ok(()) => {}
                // It does not run: that is what the signal was for, and the wait will tell.
                Err(error) if error.is_refusal() => {
                    tracing::debug!(%error, container = name, "a signal was not delivered");
                }
                // Sent again, after the engine was asked what the container does.
                Err(error) => {
                    *unsent = Some(signal);
                    return Err(error);
                }
            }
        }
    }

    /// Its end is known: what is left of its output, and the code.
    async fn ended(&mut self, found: &Found) -> End {
        while let Err(error) = self.rest_of_output().await {
            // What was never written down cannot be had: a container without output is better than none.
            if error.is_refusal() || matches!(error, Error::Answer { .. }) {
                tracing::warn!(%error, container = self.name, "the end of a container's output is lost");
                break;
            }
            self.later(&error).await;
        }
        End::Exited {
            code: exit_code(found.exit_code),
            oom_killed: found.oom_killed,
            finished_at: found.finished_at,
        }
    }

    /// What has not been heard yet; from an engine that skips lines while it is followed, all of it once more.
    async fn rest_of_output(&mut self) -> Result<(), Error> {
        self.engine.copy_output(&self.name, &mut self.log, Until::Now).await?;
        if !self.engine.skips_lines() {
            return Ok(());
        }
        let put_right = match self.log.anew() {
            Ok(mut whole) => {
                self.engine.copy_output(&self.name, &mut whole, Until::Now).await?;
                self.log.become_whole(whole)
            }
            Err(error) => Err(error),
        };
        if let Err(error) = put_right {
            tracing::warn!(%error, container = self.name, "a container's log may lack lines");
        }
        Ok(())
    }

    /// Somebody removed it.
    fn gone(&self) -> End {
        match self.seen_to_end {
            Some(code) => End::Exited { code: exit_code(code), oom_killed: false, finished_at: None },
            None => End::Lost,
        }
    }

    async fn later(&mut self, error: &Error) {
        tracing::warn!(%error, container = self.name, "the engine does not answer; it is asked again");
        self.pause().await;
    }

    async fn pause(&mut self) {
        tokio::time::sleep(self.wait).await;
        self.wait = (self.wait * 2).min(RETRY_MAX);
    }
}

/// What was not delivered goes first; of several, the last says what is wanted now.
async fn next_signal(asked: &mut mpsc::UnboundedReceiver<Signal>, unsent: &mut Option<Signal>) -> Signal {
    let newer = asked.try_recv().ok();
    if let Some(signal) = newer.or(unsent.take()) {
        *unsent = None;
        return signal;
    }
    match asked.recv().await {
        Some(signal) => signal,
        // Nobody can ask any more.
        None => std::future::pending().await,
    }
}

/// Copies what comes; a stream that ends while the container runs is asked for again.
async fn keep_copying(engine: &Engine, name: &str, log: &mut Resumed) -> std::convert::Infallible {
    let mut wait = RETRY_MIN;
    loop {
        let before = log.lines();
        if let Err(error) = engine.copy_output(name, log, Until::End).await {
            tracing::debug!(%error, container = name, "a container's output broke off");
        }
        wait = if log.lines() > before { RETRY_MIN } else { (wait * 2).min(RETRY_MAX) };
        tokio::time::sleep(wait).await;
    }
}

/// What no process can end with was not its end.
fn exit_code(code: i64) -> u8 {
    u8::try_from(code).unwrap_or(CANNOT_START)
}
