//! How fast are requests answered when some connections send them back to back?

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::task::JoinSet;

use super::client::{Ask, Connection, Target};
use super::process::Process;
use super::report::{Latency, Row};

/// A load: it ends after so many requests or so much time, whichever comes first.
#[derive(Debug, Clone)]
pub(super) struct Load {
    pub(super) name: &'static str,
    pub(super) connections: usize,
    pub(super) requests: usize,
    pub(super) within: Duration,
}

/// Sends the requests `make` gives for 0, 1, 2, …; every answer must be a good one.
pub(super) async fn run(
    target: &Target,
    process: Option<&Process>,
    load: Load,
    make: impl Fn(usize) -> Ask + Send + Sync + 'static,
) -> anyhow::Result<Row> {
    // Handshakes are not what is measured.
    let mut connections = Vec::with_capacity(load.connections);
    for _ in 0..load.connections {
        connections.push(target.connect().await?);
    }
    let before = process.map(Process::usage).transpose()?;
    let start = Instant::now();
    let mut workers = JoinSet::new();
    let shared = Arc::new(Shared { next: AtomicUsize::new(0), make, load: load.clone(), start });
    for connection in connections {
        workers.spawn(work(connection, shared.clone()));
    }
    let mut took = Vec::new();
    while let Some(done) = workers.join_next().await {
        took.extend(done.context("a connection's task")??);
    }
    let seconds = start.elapsed().as_secs_f64();
    let after = process.map(Process::usage).transpose()?;
    Ok(Row {
        name: load.name,
        connections: load.connections,
        count: took.len(),
        seconds,
        latency: Latency::of(took),
        bytes: None,
        server_cpu_seconds: before.zip(after).map(|(before, after)| after.cpu_seconds - before.cpu_seconds),
    })
}

struct Shared<F> {
    next: AtomicUsize,
    make: F,
    load: Load,
    start: Instant,
}

async fn work<F>(mut connection: Connection, shared: Arc<Shared<F>>) -> anyhow::Result<Vec<Duration>>
where
    F: Fn(usize) -> Ask + Send + Sync,
{
    let mut took = Vec::new();
    while shared.start.elapsed() < shared.load.within {
        let at = shared.next.fetch_add(1, Ordering::Relaxed);
        if at >= shared.load.requests {
            break;
        }
        let ask = (shared.make)(at);
        let sent = Instant::now();
        connection.send(ask).await.with_context(|| format!("{} number {at}", shared.load.name))?;
        took.push(sent.elapsed());
    }
    Ok(took)
}
