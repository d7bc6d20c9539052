//! When to stop: SIGTERM, or Ctrl-C.

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Becomes true once.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

/// Starts listening for the signals.
///
/// # Errors
/// When the signals cannot be listened for.
pub fn requested() -> anyhow::Result<Stop> {
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let (sender, receiver) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        // Whoever no longer listens has stopped already.
        let _ = sender.send(true);
    });
    Ok(Stop(receiver))
}

impl Stop {
    pub(crate) fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    pub async fn wait(mut self) {
        // An error means that the sender is gone, and with it the runtime.
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}
