//! How long after a write do those who watch know?
//!
//! ```text
//! writer ──create, with the time in it──▶ server ──event──▶ watchers: now − the time in it
//! ```
//!
//! Writer and watchers are one process with one clock. The time counts from before the request is sent, so it
//! includes making the write durable: what a controller waits for when another one acts. The next write is sent
//! when all have seen the last one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::client::{Ask, Target};
use super::process::Process;
use super::report::{Latency, Row};

/// What stands before the time in an event. The fields' owner is told as `"f:sent":{}`, which is not this.
const MARK: &[u8] = b"\"sent\":\"";
/// Nobody waits longer than this for one event.
const PATIENCE: Duration = Duration::from_secs(10);

/// Watchers, and the writes they are to see.
#[derive(Debug, Clone)]
pub(super) struct Watching {
    pub(super) watchers: usize,
    pub(super) events: usize,
}

/// Watches a namespace's ConfigMaps while others are written, every event by every watcher.
pub(super) async fn run(
    target: &Target,
    process: Option<&Process>,
    namespace: &str,
    watching: &Watching,
) -> anyhow::Result<Row> {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let mut writer = target.connect().await?;
    let list = writer.send(Ask::get(format!("{path}?limit=1"))).await?;
    let list: serde_json::Value = serde_json::from_slice(&list).context("a list is not JSON")?;
    let version = list.pointer("/metadata/resourceVersion").and_then(serde_json::Value::as_str);
    let version = version.context("a list has no resourceVersion")?;
    let origin = Instant::now();
    let (mut watchers, seen) = (JoinSet::new(), Arc::new(Semaphore::new(0)));
    for _ in 0..watching.watchers {
        let mut connection = target.connect().await?;
        let answer =
            connection.begin(Ask::get(format!("{path}?watch=true&resourceVersion={version}"))).await?;
        if !answer.status().is_success() {
            bail!("a watch was answered {}", answer.status());
        }
        let (expected, seen) = (watching.events, seen.clone());
        watchers.spawn(async move {
            let took = follow(answer.into_body(), expected, origin, &seen).await;
            drop(connection);
            took
        });
    }
    let all = u32::try_from(watching.watchers).context("too many watchers")?;
    let before = process.map(Process::usage).transpose()?;
    let start = Instant::now();
    for at in 0..watching.events {
        let sent = origin.elapsed().as_nanos();
        let name = format!("watched-{}-{at}", watching.watchers);
        let body = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"sent":"{sent}"}}}}"#
        );
        writer.send(Ask::post(path.as_str(), body)).await.context("a write to be watched")?;
        let told = tokio::time::timeout(PATIENCE, seen.acquire_many(all)).await;
        told.with_context(|| format!("{name} was not seen by all watchers within {PATIENCE:?}"))??.forget();
    }
    let mut took = Vec::new();
    while let Some(done) = watchers.join_next().await {
        took.extend(done.context("a watcher's task")??);
    }
    let after = process.map(Process::usage).transpose()?;
    Ok(Row {
        name: "watch latency",
        connections: watching.watchers,
        count: took.len(),
        seconds: start.elapsed().as_secs_f64(),
        latency: Latency::of(took),
        bytes: None,
        server_cpu_seconds: before.zip(after).map(|(before, after)| after.cpu_seconds - before.cpu_seconds),
    })
}

/// Reads a watch until it has told all that is expected, and says so of each.
async fn follow(
    mut body: hyper::body::Incoming,
    expected: usize,
    origin: Instant,
    seen: &Semaphore,
) -> anyhow::Result<Vec<Duration>> {
    let mut took = Vec::with_capacity(expected);
    let mut line = Vec::new();
    while took.len() < expected {
        let frame = tokio::time::timeout(PATIENCE, body.frame()).await.with_context(|| {
            format!("a watcher saw {} of {expected} events, then nothing for {PATIENCE:?}", took.len())
        })?;
        let frame = frame.context("a watch ended early")?.context("a watch broke")?;
        let now = origin.elapsed();
        let Ok(bytes) = frame.into_data() else { continue };
        split_lines(&mut line, &bytes, |line| {
            // Events of others (a cluster puts its certificate into every namespace) carry no time.
            if let Some(sent) = sent(line) {
                took.push(now.saturating_sub(sent));
                seen.add_permits(1);
            }
        });
    }
    Ok(took)
}

/// Tells each line that `bytes` complete; the rest stays in `line`.
fn split_lines(line: &mut Vec<u8>, bytes: &Bytes, mut tell: impl FnMut(&[u8])) {
    let mut rest = &bytes[..];
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let (head, tail) = rest.split_at(end);
        if line.is_empty() {
            tell(head);
        } else {
            line.extend_from_slice(head);
            tell(line);
            line.clear();
        }
        rest = tail.get(1..).unwrap_or_default();
    }
    line.extend_from_slice(rest);
}

fn sent(event: &[u8]) -> Option<Duration> {
    let at = event.windows(MARK.len()).position(|window| window == MARK)?;
    let digits = event.get(at + MARK.len()..)?;
    let digits = digits.split(|byte| *byte == b'"').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_however_the_bytes_are_cut() {
        let text = br#"{"type":"ADDED","object":{"data":{"sent":"12"},"f:data":{"f:sent":{}}}}
{"type":"ADDED","object":{"data":{"other":"x"}}}
{"type":"ADDED","object":{"data":{"sent":"34"}}}
"#;
        for size in 1..text.len() {
            let (mut line, mut told) = (Vec::new(), Vec::new());
            for piece in text.chunks(size) {
                split_lines(&mut line, &Bytes::copy_from_slice(piece), |line| told.push(sent(line)));
            }
            let nanos = |n| Some(Duration::from_nanos(n));
            assert_eq!(told, [nanos(12), None, nanos(34)], "in pieces of {size}");
        }
    }
}
