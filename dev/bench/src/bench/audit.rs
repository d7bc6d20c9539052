//! How fast does the audit ledger take rows, and how fast are they found again?
//!
//! Rows like those of the git door, in batches as the recorder makes them; each batch is on disk before the next is sent.
//! Then questions a person asks, each for the newest hundred rows; then the verification of the whole chain.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::ensure;
use jiff::Timestamp;
use pawl_cli::terminal::Say;
use pawl_ledger::row::Uuid;
use pawl_ledger::store::Access;
use pawl_ledger::{Filter, Place, Record, Store};
use serde_json::json;

use super::report::Latency;

/// As many as the recorder puts into one transaction at the most.
const BATCH: u32 = 1_024;
/// How often each question is asked, each time about something else.
const ASKED: u32 = 200;
/// How many rows an answer has: what `pawl audit` prints.
const ROWS: usize = 100;
/// So many targets share the rows: of a million, each has a hundred.
const TARGETS: u32 = 10_000;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// How many rows.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=50_000_000))]
    rows: u32,
    /// Where: a directory on the disk to be measured (the rows are removed afterwards), or an empty postgres:// database.
    #[arg(long, default_value = ".")]
    at: String,
    /// For programs.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: &Args, say: &mut dyn Say) -> anyhow::Result<()> {
    let (place, directory) = place(&args.at)?;
    let store = Store::open(&place, Access::Write).await?;
    ensure!(store.head().await?.seq == 0, "{place} has rows already");
    let (appended, batches) = append(&store, args.rows).await?;
    let mut questions = Vec::new();
    for (name, filter) in QUESTIONS {
        questions.push((*name, ask(&store, *filter, args.rows).await?));
    }
    let started = Instant::now();
    let verdict = store.verify(&[]).await?;
    let verified = started.elapsed();
    ensure!(verdict.is_sound() && verdict.rows == u64::from(args.rows), "the chain is not what was written");
    let bytes = directory.as_ref().map(|directory| size(directory.path()));
    let per_second = |took: Duration| f64::from(args.rows) / took.as_secs_f64();
    if args.json {
        let asked: Vec<_> = questions
            .iter()
            .map(|(name, it)| json!({"name": name, "p50Ms": millis(it.p50), "p99Ms": millis(it.p99)}))
            .collect();
        say.line(
            &json!({
                "rows": args.rows, "at": place.to_string(), "bytes": bytes,
                "append": {"seconds": appended.as_secs_f64(), "rowsPerSecond": per_second(appended),
                    "batchP50Ms": millis(batches.p50), "batchP99Ms": millis(batches.p99)},
                "queries": asked,
                "verify": {"seconds": verified.as_secs_f64(), "rowsPerSecond": per_second(verified)},
            })
            .to_string(),
        );
        return Ok(());
    }
    say.line(&format!("ledger: {place}, {} rows", args.rows));
    say.line(&format!(
        "append  {:>9.0} rows/s, durable; a batch of {BATCH}: p50 {:.1} ms, p99 {:.1} ms",
        per_second(appended),
        millis(batches.p50),
        millis(batches.p99)
    ));
    for (name, it) in &questions {
        say.line(&format!(
            "query   by {name:<12} p50 {:.2} ms, p99 {:.2} ms",
            millis(it.p50),
            millis(it.p99)
        ));
    }
    say.line(&format!("verify  {:>9.0} rows/s, {:.1} s", per_second(verified), verified.as_secs_f64()));
    if let Some(bytes) = bytes {
        say.line(&format!("size    {:.0} MB", bytes as f64 / 1e6));
    }
    Ok(())
}

/// A question about the n-th of something.
type Question = fn(u32) -> Filter;

const QUESTIONS: &[(&str, Question)] = &[
    ("target", |n| Filter { target: Some(target(n)), ..Filter::default() }),
    ("name", |n| Filter { kind: Some("Workflow".to_owned()), name: Some(name(n)), ..Filter::default() }),
    ("correlation", |n| Filter { correlation: Some(root(n)), ..Filter::default() }),
    ("actor", |_| Filter { actor: Some("user:approver".to_owned()), ..Filter::default() }),
    ("time", |n| {
        let since = Timestamp::from_microsecond(at(n)).unwrap_or_default();
        Filter { until: Some(since), ..Filter::default() }
    }),
];

async fn append(store: &Store, rows: u32) -> anyhow::Result<(Duration, Latency)> {
    let (mut took, mut batches) = (Duration::ZERO, Vec::new());
    let mut first = 0;
    while first < rows {
        let last = first.saturating_add(BATCH).min(rows);
        // Making them is not what is measured.
        let batch: Vec<Record> = (first..last).map(record).collect();
        let started = Instant::now();
        store.append(batch).await?;
        batches.push(started.elapsed());
        took += started.elapsed();
        first = last;
    }
    Ok((took, Latency::of(batches)))
}

async fn ask(store: &Store, question: Question, rows: u32) -> anyhow::Result<Latency> {
    let mut took = Vec::new();
    for n in 0..ASKED {
        let filter = question((n.wrapping_mul(7_919)) % rows);
        let started = Instant::now();
        let page = store.query(&filter, None, ROWS).await?;
        took.push(started.elapsed());
        ensure!(!page.rows.is_empty() || filter.until.is_some(), "nothing was found by {filter:?}");
    }
    Ok(Latency::of(took))
}

fn record(n: u32) -> Record {
    let uid = Uuid::new_v5(&Uuid::NAMESPACE_OID, &n.to_be_bytes());
    let event =
        ["git.workflow.started", "git.workflow.completed", "git.workflow.lock.taken", "git.branch.evaluated"];
    Record {
        id: Uuid::new_v5(&uid, b"row"),
        at: at(n),
        actor: if n.is_multiple_of(1_000) { "user:approver" } else { "controller:workflow" }.to_owned(),
        kind: if n % 4 == 3 { "Branch" } else { "Workflow" }.to_owned(),
        namespace: "team".to_owned(),
        name: name(n),
        uid: uid.to_string(),
        target: target(n),
        event: event.get(n as usize % event.len()).copied().unwrap_or_default().to_owned(),
        outcome: "success".to_owned(),
        correlation: root(n),
        payload: json!({"repository": "acme/infra", "branch": "infra-1a2b3c4d", "sha": format!("{n:040x}"),
            "template": "plan", "path": format!("modules/{}", n % TARGETS), "attempt": 1, "reason": "Completed"})
        .to_string(),
    }
}

/// A millisecond after the one before.
fn at(n: u32) -> i64 {
    1_700_000_000_000_000 + i64::from(n) * 1_000
}

/// Scattered: neighbours in time are not neighbours in the index.
fn target(n: u32) -> String {
    format!("git:github.example/acme/infra//modules/{}#plan@default", n.wrapping_mul(2_654_435_761) % TARGETS)
}

/// Four rows about each object; what asks about one asks about a Workflow.
fn name(n: u32) -> String {
    format!("plan-{:08x}", (n / 4).wrapping_mul(2_654_435_761))
}

fn root(n: u32) -> String {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, &(n / 50).to_be_bytes()).to_string()
}

fn place(at: &str) -> anyhow::Result<(Place, Option<tempfile::TempDir>)> {
    if at.contains("://") {
        return Ok((Place::parse(at)?, None));
    }
    let directory = tempfile::TempDir::with_prefix_in("pawl-bench-audit-", PathBuf::from(at))?;
    Ok((Place::File(directory.path().join("audit.db")), Some(directory)))
}

fn size(directory: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
