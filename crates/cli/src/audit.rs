//! `pawl audit`: who did what, and is the record what was written?

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use jiff::{SignedDuration, Timestamp};
use pawl_api::meta::Duration;
use pawl_ledger::store::Access;
use pawl_ledger::{Filter, Head, Place, Row, Store, Verdict};

use crate::terminal::{Say, printable, table};

/// The ledger's file in a data directory.
pub(crate) const FILE: &str = "audit.db";

const HEADER: [&str; 6] = ["TIME", "EVENT", "OUTCOME", "OBJECT", "ACTOR", "TARGET"];

/// Rows asked for at once.
const PAGE: usize = 1_000;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    at: At,
    /// What was worked on, as it is written in `status.target`.
    #[arg(long)]
    target: Option<String>,
    /// Who did it, as `controller:workflow` or `user:NAME`.
    #[arg(long)]
    actor: Option<String>,
    /// The kind of the object, as kubectl takes it.
    #[arg(long)]
    kind: Option<String>,
    /// The object's namespace.
    #[arg(long, short)]
    namespace: Option<String>,
    /// The object's name.
    #[arg(long)]
    name: Option<String>,
    /// The UID at the root of a tree: everything that came of it.
    #[arg(long)]
    correlation: Option<String>,
    /// From then on: a time, as 2026-01-31T08:00:00Z, or how long ago, as 90m or 7d.
    #[arg(long)]
    since: Option<String>,
    /// Before then.
    #[arg(long)]
    until: Option<String>,
    /// At most so many rows, the newest.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: u32,
    /// How to print them.
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Check that no row was changed, removed, inserted or moved.
    Verify(VerifyArgs),
}

#[derive(Debug, clap::Args)]
struct VerifyArgs {
    #[command(flatten)]
    at: At,
    /// A head that was noted earlier, as this command prints it: the chain must still pass through it. May be given
    /// several times.
    #[arg(long = "anchor", value_name = "SEQ:HASH")]
    anchors: Vec<Head>,
}

#[derive(Debug, Clone, clap::Args)]
struct At {
    /// The data directory of the `pawl up` whose ledger is meant; it may be running.
    #[arg(long, default_value = ".pawl", env = "PAWL_DATA_DIR")]
    data_dir: PathBuf,
    /// The ledger itself: postgres://… or the path of a file. Better in the environment if it has a password.
    #[arg(long, env = "PAWL_AUDIT_URL", hide_env_values = true)]
    url: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Table,
    Json,
}

pub(crate) async fn run(args: &Args, say: &mut dyn Say) -> anyhow::Result<ExitCode> {
    match &args.what {
        Some(What::Verify(VerifyArgs { at, anchors })) => {
            let verdict = open(at).await?.verify(anchors).await?;
            tell_verdict(&verdict, say);
            Ok(if verdict.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        None => {
            let filter = filter(args, Timestamp::now())?;
            let store = open(&args.at).await?;
            let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
            print(&store, &filter, limit, args.output, say).await?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn open(at: &At) -> anyhow::Result<Store> {
    let place = match &at.url {
        Some(url) => Place::parse(url)?,
        None => Place::File(existing(&at.data_dir)?),
    };
    Ok(Store::open(&place, Access::Read).await?)
}

fn existing(data_dir: &Path) -> anyhow::Result<PathBuf> {
    let path = data_dir.join(FILE);
    if !path.is_file() {
        bail!(
            "{} is not there: say --data-dir of a `pawl up`, or --url of a ledger in PostgreSQL",
            path.display()
        );
    }
    Ok(path)
}

async fn print(
    store: &Store,
    filter: &Filter,
    limit: usize,
    output: Output,
    say: &mut dyn Say,
) -> anyhow::Result<()> {
    let (mut left, mut after, mut first) = (limit, None, true);
    if output == Output::Json {
        say.line("[");
    }
    loop {
        let page = store.query(filter, after, left.min(PAGE)).await?;
        left = left.saturating_sub(page.rows.len());
        let more = page.next.is_some() && left > 0;
        match output {
            Output::Json => {
                let count = page.rows.len();
                for (place, row) in (1..).zip(&page.rows) {
                    let comma = if more || place < count { "," } else { "" };
                    say.line(&format!("{}{comma}", row.to_json()));
                }
            }
            Output::Table => {
                let header = std::mem::take(&mut first).then(|| HEADER.map(str::to_owned));
                let told = page.rows.iter().map(told);
                let header = header.filter(|_| !page.rows.is_empty());
                let rows: Vec<_> = header.into_iter().chain(told).collect();
                table(&rows).iter().for_each(|line| say.line(line));
            }
        }
        after = page.next.filter(|_| more);
        if after.is_none() {
            break;
        }
    }
    match output {
        Output::Json => say.line("]"),
        Output::Table if left == limit => say.line("no rows"),
        Output::Table => {}
    }
    Ok(())
}

fn told(row: &Row) -> [String; 6] {
    let record = &row.record;
    let time = format!("{:.0}", record.time());
    let place = if record.namespace.is_empty() { String::new() } else { format!("{}/", record.namespace) };
    let object = printable(&format!("{} {place}{}", record.kind, record.name));
    let [event, outcome, actor, target] =
        [&record.event, &record.outcome, &record.actor, &record.target].map(|text| printable(text));
    [time, event, outcome, object, actor, target]
}

fn tell_verdict(verdict: &Verdict, say: &mut dyn Say) {
    let Verdict { rows, head, findings, found } = verdict;
    for finding in findings {
        say.line(&finding.to_string());
    }
    let untold = found.saturating_sub(u64::try_from(findings.len()).unwrap_or_default());
    if untold > 0 {
        say.line(&format!("… and {untold} more"));
    }
    if verdict.is_sound() {
        say.line(&format!("{rows} rows, each as it was written"));
        say.line(&format!("anchor {head}"));
    } else {
        say.line(&format!("{rows} rows, and {found} things wrong: the record is not what was written"));
    }
}

fn filter(args: &Args, now: Timestamp) -> anyhow::Result<Filter> {
    let moment = |flag: &str, text: &Option<String>| -> anyhow::Result<Option<Timestamp>> {
        text.as_deref().map(|text| moment(text, now).with_context(|| format!("{flag} {text}"))).transpose()
    };
    Ok(Filter {
        target: args.target.clone(),
        actor: args.actor.clone(),
        kind: args.kind.as_deref().map(kind),
        namespace: args.namespace.clone(),
        name: args.name.clone(),
        correlation: args.correlation.clone(),
        since: moment("--since", &args.since)?,
        until: moment("--until", &args.until)?,
    })
}

/// A time, or how long ago.
fn moment(text: &str, now: Timestamp) -> anyhow::Result<Timestamp> {
    if let Ok(moment) = text.parse() {
        return Ok(moment);
    }
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok());
    let ago = match days {
        Some(days) => Duration::from_hours(u64::from(days).saturating_mul(24)),
        None => {
            text.parse::<Duration>().context("neither a time, as 2026-01-31T08:00:00Z, nor how long ago")?
        }
    };
    Ok(now.checked_sub(SignedDuration::try_from(ago.get())?).unwrap_or(Timestamp::MIN))
}

/// The kind as it is stored; one that is not ours is taken as it is.
fn kind(text: &str) -> String {
    let wanted = text.to_lowercase();
    let is = |name: &str| name.to_lowercase() == wanted;
    let known = pawl_api::crds::all().into_iter().map(|crd| crd.spec.names).find(|names| {
        let short = names.short_names.iter().flatten();
        is(&names.kind) || is(&names.plural) || short.into_iter().any(|name| is(name))
    });
    known.map_or_else(|| text.to_owned(), |names| names.kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::Said;
    use pawl_ledger::Record;
    use serde_json::Value;

    fn record(n: u8) -> Record {
        Record {
            id: uuid(n),
            at: 1_700_000_000_000_000 + i64::from(n),
            actor: "controller:workflow".to_owned(),
            kind: "Workflow".to_owned(),
            namespace: "team".to_owned(),
            name: format!("plan-{n}"),
            uid: "u".to_owned(),
            target: "a\u{1b}[2Jb".to_owned(),
            event: "git.workflow.started".to_owned(),
            outcome: "pending".to_owned(),
            correlation: "root".to_owned(),
            payload: r#"{"attempt":1}"#.to_owned(),
        }
    }

    fn uuid(n: u8) -> pawl_ledger::row::Uuid {
        pawl_ledger::row::Uuid::from_bytes([n; 16])
    }

    async fn ledger(directory: &Path) -> Place {
        let place = Place::File(directory.join(FILE));
        let store = Store::open(&place, Access::Write).await.unwrap();
        store.append((0..5).map(record).collect()).await.unwrap();
        place
    }

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    async fn audit(directory: &Path, words: &[&str]) -> (Said, ExitCode) {
        let directory = directory.to_str().unwrap();
        let (first, rest) = words.split_at(usize::from(words.first() == Some(&"verify")));
        let at = ["--data-dir", directory];
        let words = ["audit"].iter().chain(first).chain(&at).chain(rest);
        let Line { args } = <Line as clap::Parser>::try_parse_from(words).unwrap();
        let mut said = Said::default();
        let code = run(&args, &mut said).await.unwrap();
        (said, code)
    }

    #[tokio::test]
    async fn rows_are_printed_newest_first_as_a_table_and_as_json() {
        let directory = tempfile::tempdir().unwrap();
        ledger(directory.path()).await;
        let (Said(lines), _) = audit(directory.path(), &["--kind", "wf", "--limit", "2"]).await;
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(
            lines[1].contains("Workflow team/plan-4") && lines[1].contains("git.workflow.started"),
            "{lines:?}"
        );
        assert!(!lines[1].contains('\u{1b}'), "text from elsewhere moves no cursor");
        let (Said(lines), _) = audit(directory.path(), &["-o", "json", "--name", "plan-3"]).await;
        let rows: Value = serde_json::from_str(&lines.concat()).unwrap();
        assert_eq!((&rows[0]["name"], &rows[0]["payload"]["attempt"]), (&"plan-3".into(), &1.into()));
        assert_eq!(rows.as_array().unwrap().len(), 1);
        let (Said(lines), _) = audit(directory.path(), &["--until", "2020-01-01T00:00:00Z"]).await;
        assert_eq!(lines, ["no rows"]);
        let (Said(lines), _) = audit(directory.path(), &["-o", "json", "--actor", "nobody"]).await;
        assert_eq!(lines.concat(), "[]");
    }

    #[tokio::test]
    async fn verify_prints_an_anchor_that_it_takes_again_and_fails_when_something_is_wrong() {
        let directory = tempfile::tempdir().unwrap();
        ledger(directory.path()).await;
        let (Said(lines), code) = audit(directory.path(), &["verify"]).await;
        assert_eq!(code, ExitCode::SUCCESS);
        let anchor = lines[1].strip_prefix("anchor ").unwrap();
        assert_eq!(audit(directory.path(), &["verify", "--anchor", anchor]).await.1, ExitCode::SUCCESS);
        let other = format!("5:{}", "00".repeat(32));
        let (Said(lines), code) = audit(directory.path(), &["verify", "--anchor", &other]).await;
        assert_eq!(code, ExitCode::FAILURE);
        assert!(lines[0].contains("row 5"), "{lines:?}");
    }

    #[tokio::test]
    async fn a_ledger_that_is_not_there_is_not_made() {
        let directory = tempfile::tempdir().unwrap();
        let at = At { data_dir: directory.path().to_owned(), url: None };
        let error = open(&at).await.unwrap_err().to_string();
        assert!(error.contains("--data-dir") && error.contains("--url"), "{error}");
        assert!(std::fs::read_dir(directory.path()).unwrap().next().is_none());
    }

    #[test]
    fn times_are_said_as_times_or_as_how_long_ago() {
        let now: Timestamp = "2026-01-10T00:00:00Z".parse().unwrap();
        for (text, wanted) in [
            ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
            ("7d", "2026-01-03T00:00:00Z"),
            ("90m", "2026-01-09T22:30:00Z"),
        ] {
            assert_eq!(moment(text, now).unwrap().to_string(), wanted);
        }
        assert!(moment("yesterday", now).is_err());
        assert_eq!(
            (kind("workflows"), kind("installation"), kind("Pod")),
            ("Workflow".into(), "Installation".into(), "Pod".into())
        );
    }
}
