//! How fast is the deploy door, from an Installation to its last item?
//!
//! A control plane of its own, as `pawl up` runs it (API server with its journal on disk, engine, every machine) but
//! without a node, in this process. Items are of the mock deployer, which deploys nothing: what is measured is Pawl.
//!
//! ```text
//! installations   1,000 Installations with one item each: how many finish in a second?
//! items           one Execution with 100, 1,000 and 10,000 items, a hundred side by side: what does an item cost?
//! namespace       200 Installations where nothing is, and 200 where 2,000 have finished: does a full namespace slow down?
//!                 Both from rest and in turns, some rounds of them, of which the middle one counts: a round is a second,
//!                 and a machine has better and worse ones.
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use futures::TryStreamExt as _;
use http_body_util::BodyExt as _;
use pawl_api::deploy::{DeployItemTemplate, annotations, execution, installation, types};
use pawl_api::meta::Kind;
use pawl_api::pawl::SYSTEM_NAMESPACE;
use pawl_apiserver::{Options, RealEnv, Server};
use pawl_cli::terminal::Say;
use pawl_cli::{doors, up};
use pawl_engine::Engine;
use pawl_machines::deploy::items;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::report::Latency;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Measure a tenth of everything: for a first look, and for tests.
    #[arg(long)]
    short: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// How much of everything.
#[derive(Debug, Clone, Copy)]
struct Plan {
    installations: usize,
    /// Sizes of Executions; the first and the last are compared.
    items: [usize; 3],
    width: usize,
    added: usize,
    finished: usize,
    rounds: usize,
    /// How long nothing was written when a control plane is taken to be at rest.
    rest: Duration,
}

const WHOLE: Plan = Plan {
    installations: 1_000,
    items: [100, 1_000, 10_000],
    width: 100,
    added: 200,
    finished: 2_000,
    rounds: 5,
    rest: Duration::from_secs(2),
};
const SHORT: Plan = Plan {
    installations: 100,
    items: [100, 300, 1_000],
    width: 100,
    added: 20,
    finished: 200,
    rounds: 3,
    rest: Duration::from_secs(1),
};

/// What the project promises (issue "The deploy door").
const MIN_INSTALLATIONS_PER_SECOND: f64 = 100.0;
const MAX_MILLIS_PER_ITEM: f64 = 2.0;

/// How many Installations are created at the same time: as a person's `kubectl apply -f` with a few windows.
const CREATORS: usize = 8;
/// How often it is looked whether all have finished: well below what is measured.
const LOOK: Duration = Duration::from_millis(2);
/// The longest that one row may take.
const PATIENCE: Duration = Duration::from_mins(10);

const NAMESPACE: &str = "default";

/// What one row came to.
#[derive(Debug, Clone)]
struct Row {
    name: String,
    /// Installations, or items.
    count: usize,
    seconds: f64,
    /// From the request to the end, of each Installation.
    latency: Option<Latency>,
    /// The largest that the one Execution was.
    bytes: Option<usize>,
    /// How long a list of Executions as a table took, as `kubectl get exec` asks for it.
    listed: Option<Duration>,
}

pub(super) async fn run(args: &Args, say: &mut dyn Say) -> anyhow::Result<()> {
    let plan = if args.short { SHORT } else { WHOLE };
    let rows = measure(plan).await?;
    if args.json {
        say.line(&serde_json::to_string_pretty(&to_json(&rows))?);
    } else {
        tell(&rows, say);
    }
    Ok(())
}

async fn measure(plan: Plan) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let world = World::start().await?;
    rows.push(world.install("installations", "i", plan.installations).await?);
    world.stop().await?;
    for count in plan.items {
        let world = World::start().await?;
        rows.push(world.execute(count, plan.width).await?);
        world.stop().await?;
    }
    rows.extend(added(plan).await?);
    Ok(rows)
}

/// What is added to an empty namespace, and what is added to a full one.
async fn added(plan: Plan) -> anyhow::Result<[Row; 2]> {
    let full = World::start().await?;
    full.install("", "f", plan.finished).await?;
    let (mut to_empty, mut to_full) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        let empty = World::start().await?;
        full.at_rest(plan.rest).await?;
        let prefix = format!("r{round}x");
        to_empty.push(empty.install("added, empty namespace", &prefix, plan.added).await?);
        empty.at_rest(plan.rest).await?;
        empty.stop().await?;
        // All of it is gone before the other begins.
        full.at_rest(plan.rest).await?;
        to_full.push(full.install("added, full namespace", &prefix, plan.added).await?);
    }
    full.stop().await?;
    Ok([middle(to_empty)?, middle(to_full)?])
}

/// Of some rounds, the one that half of them were slower than.
fn middle(mut rounds: Vec<Row>) -> anyhow::Result<Row> {
    rounds.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
    let middle = rounds.len() / 2;
    rounds.into_iter().nth(middle).context("no round was measured")
}

/// A control plane.
struct World {
    server: Server,
    client: kube::Client,
    stop: oneshot::Sender<()>,
    looped: JoinHandle<pawl_engine::Stopped>,
    /// Where the journal is; removed with the world.
    _home: tempfile::TempDir,
}

impl World {
    async fn start() -> anyhow::Result<Self> {
        let home = tempfile::tempdir().context("make a data directory")?;
        let server = Server::open(&home.path().join("store"), Arc::new(RealEnv), Options::default())?;
        for crd in pawl_api::crds::all() {
            let made = server.install_crd(serde_json::to_value(crd)?);
            made.map_err(|status| anyhow::anyhow!("install a CRD: {status:?}"))?;
        }
        let client = kube::Client::new(server.service(), NAMESPACE);
        up::make_namespace(&client, SYSTEM_NAMESPACE).await?;
        let machines = doors::with_cluster(SYSTEM_NAMESPACE, &doors::Choices::default());
        let engine = Engine::builder(client.clone()).machines(machines).build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let looped = tokio::spawn({
            let engine = engine.clone();
            // Whoever drops the sender wants it to stop, too.
            async move { engine.run(async { drop(stopped.await) }).await }
        });
        engine.ready().await;
        Ok(Self { server, client, stop, looped, _home: home })
    }

    async fn stop(self) -> anyhow::Result<()> {
        drop(self.stop);
        self.looped.await?;
        Ok(())
    }

    /// Waits until nothing is written any more.
    async fn at_rest(&self, rest: Duration) -> anyhow::Result<()> {
        let started = Instant::now();
        let mut seen = self.server.revision();
        loop {
            tokio::time::sleep(rest).await;
            let now = self.server.revision();
            if now == seen {
                return Ok(());
            }
            if started.elapsed() > PATIENCE {
                bail!("there are still writes after {PATIENCE:?}");
            }
            seen = now;
        }
    }

    /// So many Installations with one item each.
    async fn install(&self, name: &str, prefix: &str, count: usize) -> anyhow::Result<Row> {
        let since = self.server.revision();
        let started = Instant::now();
        let created = futures::stream::iter((0..count).map(Ok))
            .try_for_each_concurrent(CREATORS, |at| async move {
                self.create(&installation::KIND, &one_item(&format!("{prefix}{at}"))).await
            });
        let kind = installation::KIND;
        let (created, ended) = tokio::join!(created, self.ended(&kind, since, count, started));
        created?;
        let ended = ended?;
        let seconds = started.elapsed().as_secs_f64();
        let latency = Latency::of(ended.took);
        Ok(Row { name: name.to_owned(), count, seconds, latency: Some(latency), bytes: None, listed: None })
    }

    /// One Execution with so many items, of which `width` may run side by side.
    async fn execute(&self, count: usize, width: usize) -> anyhow::Result<Row> {
        let since = self.server.revision();
        let started = Instant::now();
        self.create(&execution::KIND, &layers("e", count, width)?).await?;
        let ended = self.ended(&execution::KIND, since, 1, started).await?;
        let seconds = started.elapsed().as_secs_f64();
        let listed = self.list_executions().await?;
        let (name, bytes) = (format!("items, {count}"), Some(ended.largest));
        Ok(Row { name, count, seconds, latency: None, bytes, listed: Some(listed) })
    }

    async fn create(&self, kind: &Kind, manifest: &Value) -> anyhow::Result<()> {
        let request = http::Request::post(kind.path(Some(NAMESPACE), None))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(serde_json::to_vec(manifest)?.into())?;
        let response = self.client.send(request).await?;
        let code = response.status();
        if !code.is_success() {
            let body = response.into_body().collect().await?.to_bytes();
            bail!("create {} was answered {code}: {}", kind.kind, String::from_utf8_lossy(&body));
        }
        Ok(())
    }

    /// Waits until so many objects have ended a job.
    async fn ended(&self, kind: &Kind, since: u64, count: usize, started: Instant) -> anyhow::Result<Ended> {
        let mut seen = since;
        let mut began: BTreeMap<String, Instant> = BTreeMap::new();
        let mut ended = Ended::default();
        while ended.took.len() < count {
            if started.elapsed() > PATIENCE {
                bail!("{} of {count} {}s have ended within {PATIENCE:?}", ended.took.len(), kind.kind);
            }
            tokio::time::sleep(LOOK).await;
            let changes =
                self.server.changes(seen).map_err(|_| anyhow::anyhow!("the history was too short"))?;
            let now = Instant::now();
            for change in changes {
                seen = seen.max(change.revision());
                if *change.ids().kind != *kind.kind {
                    continue;
                }
                let value = change.value();
                let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
                let name = text("/metadata/name").unwrap_or_default().to_owned();
                ended.largest = ended.largest.max(value.to_string().len());
                if text("/status/jobIDFinished").is_none() {
                    began.entry(name).or_insert(now);
                    continue;
                }
                let Some(began) = began.remove(&name) else { continue };
                if text("/status/phase") != Some("Succeeded") {
                    bail!("{} {name} ended as {:?}", kind.kind, value.get("status"));
                }
                ended.took.push(now.duration_since(began));
            }
        }
        Ok(ended)
    }

    async fn list_executions(&self) -> anyhow::Result<Duration> {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        let started = Instant::now();
        let request = http::Request::get(execution::KIND.path(Some(NAMESPACE), None))
            .header(http::header::ACCEPT, table)
            .body(kube::client::Body::empty())?;
        let body = self.client.send(request).await?.into_body().collect().await?.to_bytes();
        let rows = serde_json::from_slice::<Value>(&body)?;
        let rows = rows.get("rows").and_then(Value::as_array).map_or(0, Vec::len);
        if rows != 1 {
            bail!("the list of Executions has {rows} rows");
        }
        Ok(started.elapsed())
    }
}

/// What was seen of those that ended.
#[derive(Debug, Default)]
struct Ended {
    took: Vec<Duration>,
    largest: usize,
}

fn one_item(name: &str) -> Value {
    let item = json!({"deployItems": [{"name": "a", "type": types::MOCK, "config": {}}]});
    let blueprint = json!({"deployExecutions": [
        {"name": "d", "type": "GoTemplate", "template": item.to_string()}]});
    json!({
        "apiVersion": installation::KIND.api_version(), "kind": installation::KIND.kind,
        "metadata": {"name": name, "annotations": {annotations::OPERATION: "reconcile"}},
        "spec": {"blueprint": {"inline": {"filesystem": {"blueprint.yaml": blueprint.to_string()}}}},
    })
}

/// Layers of `width` items, each after one of the layer before.
fn layers(name: &str, count: usize, width: usize) -> anyhow::Result<Value> {
    let item = |at: usize| DeployItemTemplate {
        name: format!("i{at}"),
        type_: types::MOCK.to_owned(),
        depends_on: at.checked_sub(width).map(|before| format!("i{before}")).into_iter().collect(),
        ..DeployItemTemplate::default()
    };
    let list: Vec<DeployItemTemplate> = (0..count).map(item).collect();
    let spec = items::pack(&list)?;
    Ok(json!({
        "apiVersion": execution::KIND.api_version(), "kind": execution::KIND.kind,
        "metadata": {"name": name, "annotations": {annotations::OPERATION: "reconcile"}},
        "spec": spec,
    }))
}

impl Row {
    fn per_second(&self) -> f64 {
        self.count as f64 / self.seconds.max(f64::EPSILON)
    }

    fn millis_each(&self) -> f64 {
        self.seconds * 1e3 / self.count.max(1) as f64
    }

    /// The promise that this row is about, and whether it holds.
    fn promise(&self) -> Option<bool> {
        match self.name.split([',', ' ']).next() {
            Some("installations" | "added") => Some(self.per_second() >= MIN_INSTALLATIONS_PER_SECOND),
            Some("items") => Some(self.millis_each() <= MAX_MILLIS_PER_ITEM),
            _ => None,
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name, "count": self.count, "seconds": self.seconds, "perSecond": self.per_second(),
            "millisEach": self.millis_each(), "holds": self.promise(),
            "p50Ms": self.latency.map(|latency| latency.p50.as_secs_f64() * 1e3),
            "p99Ms": self.latency.map(|latency| latency.p99.as_secs_f64() * 1e3),
            "objectBytes": self.bytes, "listMs": self.listed.map(|took| took.as_secs_f64() * 1e3),
        })
    }
}

fn to_json(rows: &[Row]) -> Value {
    json!({
        "promised": {"installationsPerSecond": MIN_INSTALLATIONS_PER_SECOND, "millisPerItem": MAX_MILLIS_PER_ITEM},
        "rows": rows.iter().map(Row::to_json).collect::<Vec<_>>(),
    })
}

fn tell(rows: &[Row], say: &mut dyn Say) {
    say.line(&format!(
        "{:<24} {:>7} {:>9} {:>11} {:>8} {:>9} {:>9} {:>10} {:>8}",
        "row", "count", "seconds", "per second", "ms each", "p50 ms", "p99 ms", "bytes", "list ms"
    ));
    let millis = |duration: Duration| format!("{:.1}", duration.as_secs_f64() * 1e3);
    for row in rows {
        say.line(&format!(
            "{:<24} {:>7} {:>9.2} {:>11.0} {:>8.3} {:>9} {:>9} {:>10} {:>8}",
            row.name,
            row.count,
            row.seconds,
            row.per_second(),
            row.millis_each(),
            row.latency.map(|latency| millis(latency.p50)).unwrap_or_default(),
            row.latency.map(|latency| millis(latency.p99)).unwrap_or_default(),
            row.bytes.map(|bytes| bytes.to_string()).unwrap_or_default(),
            row.listed.map(millis).unwrap_or_default(),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an API server takes of one object: etcd's limit.
    const OBJECT_LIMIT: usize = 1_572_864;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_row_comes_to_an_end_and_is_told() {
        let plan = Plan {
            installations: 3,
            items: [4, 6, 8],
            width: 2,
            added: 2,
            finished: 4,
            rounds: 1,
            rest: Duration::from_millis(100),
        };
        let rows = measure(plan).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.count).collect::<Vec<_>>(), [3, 4, 6, 8, 2, 2]);
        assert!(rows.iter().all(|row| row.promise().is_some() && row.seconds > 0.0));
    }

    #[test]
    fn ten_thousand_items_stay_under_the_limit_of_an_object() {
        let manifest = layers("e", 10_000, 100).unwrap();
        assert!(manifest.to_string().len() < OBJECT_LIMIT / 2, "{}", manifest.to_string().len());
    }
}
