//! A process that rests needs little of its program: when a burst of work is over, the rest is given back.

use std::time::Duration;

use pawl_engine::Engine;
use pawl_footprint::give_back_program;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// No more often than this: what is needed comes back page by page.
const SPACING: Duration = Duration::from_secs(10);

/// Gives back the pages of the program whenever the loop has come to rest, until what is returned is dropped.
pub(crate) fn give_back_at_rest(engine: &Engine) -> JoinSet<()> {
    let engine = engine.clone();
    let mut giving = JoinSet::new();
    giving.spawn(async move {
        loop {
            engine.rested().await;
            let bytes = give_back_program();
            tracing::debug!(bytes, "gave back pages of the program");
            sleep(SPACING).await;
        }
    });
    giving
}
