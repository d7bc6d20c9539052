//! What is measured of an API server, and on which objects?
//!
//! Only what every Kubernetes API server has, so that one program compares them: ConfigMaps in two namespaces
//! of its own, and a custom resource with a status that no controller anywhere knows. Nothing runs, nothing
//! else is touched, and all of it is removed at the end, also after a failure or Ctrl-C.
//!
//! ```text
//! idle ─▶ creates 1 · 8 · 32 ─▶ 20,000 objects ─▶ gets ─▶ list ─▶ applies ─▶ status patches ─▶ watches ─▶ remove
//! ```

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use http::StatusCode;
use http_body_util::BodyExt as _;
use pawl_cli::terminal::{Say, Stderr};
use serde_json::{Value, json};

use super::client::{Ask, Connection, Target, Trust};
use super::load::{self, Load};
use super::process::{Process, Usage};
use super::report::{Latency, Report, Row, Used};
use super::watchers::{self, Watching};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where the API server is: https://HOST:PORT.
    #[arg(long, value_name = "URL")]
    server: String,
    /// A bearer token that may create namespaces, CustomResourceDefinitions and what is in them.
    #[arg(long, env = "PAWL_BENCH_TOKEN", hide_env_values = true)]
    token: String,
    /// The authority that the server's certificate comes from, in PEM.
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,
    /// Take any certificate.
    #[arg(long)]
    insecure: bool,
    /// The server's process on this machine: its CPU time and anonymous memory are told as well.
    #[arg(long)]
    pid: Option<u32>,
    /// The most a row may take, in seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// How much of everything.
#[derive(Debug, Clone)]
struct Plan {
    /// Creates one after the other, and on eight connections.
    creates: [(usize, usize); 2],
    /// Creates on 32 connections: these are the list.
    listed: usize,
    gets: usize,
    applies: usize,
    patches: usize,
    lists: usize,
    /// Watchers, and the events each sees.
    watches: [(usize, usize); 2],
    within: Duration,
    /// How long the removal is waited for.
    removal: Duration,
}

impl Plan {
    /// 20,000 objects in all, and enough requests for each row to last a second on a fast server.
    fn whole(within: Duration) -> Plan {
        Plan {
            creates: [(1, 2_000), (8, 8_000)],
            listed: 10_000,
            gets: 30_000,
            applies: 10_000,
            patches: 10_000,
            lists: 7,
            watches: [(1, 1_000), (100, 200)],
            within,
            removal: Duration::from_secs(30),
        }
    }
}

/// Objects that applies and status patches go round.
const CHANGED_OBJECTS: usize = 64;
/// A ConfigMap's content; with metadata and ownership the stored object has about 1 KiB.
const PAYLOAD_BYTES: usize = 512;
/// How long a server may take to serve a new definition.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(30);
/// How often the server is asked whether it has come to something.
const ASK_AGAIN: Duration = Duration::from_millis(50);

pub(super) async fn run(args: &Args, say: &mut dyn Say) -> anyhow::Result<()> {
    let trust = match &args.ca {
        Some(path) => Trust::Authority(path.clone()),
        None if args.insecure => Trust::Anybody,
        None => Trust::Nobody,
    };
    let target = Target::new(&args.server, &args.token, &trust)?;
    let process = args.pid.map(Process::new).transpose()?;
    let stopping = pawl_cli::stop::requested()?;
    let plan = Plan::whole(Duration::from_secs(args.seconds));
    let report = measure(&target, process.as_ref(), &plan, stopping.wait()).await?;
    if args.json {
        say.line(&serde_json::to_string_pretty(&report.to_json())?);
    } else {
        report.tell(say);
    }
    Ok(())
}

/// Measures everything, unless told to stop, and leaves nothing behind either way.
async fn measure(
    target: &Target,
    process: Option<&Process>,
    plan: &Plan,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<Report> {
    let mut bench = Bench::new(target, process, plan)?;
    let measured = tokio::select! {
        measured = bench.measure() => measured,
        () = stop => Err(anyhow::anyhow!("stopped before the end")),
    };
    let removed = bench.remove().await;
    if let Err(error) = &removed {
        Stderr.line(&format!("what the bench made could not all be removed: {error:#}"));
    }
    let (idle, filled) = measured?;
    let end = process.map(Process::usage).transpose()?;
    let usage = idle.zip(filled).zip(end).map(|((idle, filled), end)| Used { idle, filled, end });
    Ok(Report { server: bench.version, rows: bench.rows, usage, objects: bench.objects })
}

struct Bench<'a> {
    target: &'a Target,
    process: Option<&'a Process>,
    plan: &'a Plan,
    names: Names,
    version: String,
    rows: Vec<Row>,
    objects: usize,
}

/// What the bench makes, under names that no two runs share.
#[derive(Debug, Clone)]
struct Names {
    /// For what is listed, and for everything else.
    listed: String,
    others: String,
    group: String,
}

impl<'a> Bench<'a> {
    fn new(target: &'a Target, process: Option<&'a Process>, plan: &'a Plan) -> anyhow::Result<Bench<'a>> {
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
        let run = format!("{nanos:x}");
        let names = Names {
            listed: format!("pawl-bench-{run}-listed"),
            others: format!("pawl-bench-{run}-others"),
            // A domain that is reserved never to exist: this can be nobody's group.
            group: format!("r{run}.pawl-bench.invalid"),
        };
        Ok(Bench { target, process, plan, names, version: String::new(), rows: Vec::new(), objects: 0 })
    }

    /// The rows, and the process before all of them and with all objects there.
    async fn measure(&mut self) -> anyhow::Result<(Option<Usage>, Option<Usage>)> {
        let idle = self.process.map(Process::usage).transpose()?;
        let mut connection = self.target.connect().await?;
        let version = connection.send(Ask::get("/version")).await?;
        let version: Value = serde_json::from_slice(&version).context("/version is not JSON")?;
        self.version = version.pointer("/gitVersion").and_then(Value::as_str).unwrap_or("unknown").to_owned();
        for name in [&self.names.listed, &self.names.others] {
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            connection.send(Ask::post("/api/v1/namespaces", body.to_string())).await?;
        }
        self.creates().await?;
        let filled = self.process.map(Process::usage).transpose()?;
        self.gets().await?;
        self.lists(&mut connection).await?;
        self.applies().await?;
        self.patches(&mut connection).await?;
        for (watchers, events) in self.plan.watches {
            let watching = Watching { watchers, events };
            let row = watchers::run(self.target, self.process, &self.names.others, &watching).await?;
            self.rows.push(row);
        }
        Ok((idle, filled))
    }

    async fn load(
        &mut self,
        (name, connections, requests): (&'static str, usize, usize),
        make: impl Fn(usize) -> Ask + Send + Sync + 'static,
    ) -> anyhow::Result<usize> {
        let load = Load { name, connections, requests, within: self.plan.within };
        let row = load::run(self.target, self.process, load, make).await?;
        let count = row.count;
        self.rows.push(row);
        Ok(count)
    }

    async fn creates(&mut self) -> anyhow::Result<()> {
        for (connections, requests) in self.plan.creates {
            let path = self.config_maps(&self.names.others);
            let make =
                move |at| Ask::post(path.as_str(), config_map(&format!("made-{connections}-{at:05}"), at));
            self.objects += self.load(("creates", connections, requests), make).await?;
        }
        let path = self.config_maps(&self.names.listed);
        let make = move |at| Ask::post(path.as_str(), config_map(&listed(at), at));
        let made = self.load(("creates", 32, self.plan.listed), make).await?;
        self.objects += made;
        if made < self.plan.listed {
            bail!("{made} of {} objects were made within {:?}", self.plan.listed, self.plan.within);
        }
        Ok(())
    }

    async fn gets(&mut self) -> anyhow::Result<()> {
        for (connections, share) in [(1, 3), (8, 1)] {
            let (path, count) = (self.config_maps(&self.names.listed), self.plan.listed.max(1));
            // A step that shares no factor with a round number goes through all objects in a scattered order.
            let make = move |at: usize| Ask::get(format!("{path}/{}", listed(at * 7_919 % count)));
            self.load(("gets", connections, self.plan.gets / share), make).await?;
        }
        Ok(())
    }

    async fn lists(&mut self, connection: &mut Connection) -> anyhow::Result<()> {
        let path = self.config_maps(&self.names.listed);
        let before = self.process.map(Process::usage).transpose()?;
        let (mut took, mut bytes) = (Vec::new(), 0);
        let start = Instant::now();
        for _ in 0..self.plan.lists {
            let sent = Instant::now();
            let answer = connection.begin(Ask::get(path.as_str())).await?;
            if !answer.status().is_success() {
                bail!("a list was answered {}", answer.status());
            }
            let mut body = answer.into_body();
            bytes = 0;
            while let Some(frame) = body.frame().await {
                bytes += frame.context("a list broke off")?.data_ref().map_or(0, bytes::Bytes::len);
            }
            took.push(sent.elapsed());
        }
        let seconds = start.elapsed().as_secs_f64();
        let after = self.process.map(Process::usage).transpose()?;
        self.rows.push(Row {
            name: "list",
            connections: 1,
            count: took.len(),
            seconds,
            latency: Latency::of(took),
            bytes: Some(bytes),
            server_cpu_seconds: before.zip(after).map(|(b, a)| a.cpu_seconds - b.cpu_seconds),
        });
        Ok(())
    }

    async fn applies(&mut self) -> anyhow::Result<()> {
        let path = self.config_maps(&self.names.others);
        let make = move |at: usize| {
            let name = format!("applied-{:02}", at % CHANGED_OBJECTS);
            Ask::patch(
                format!("{path}/{name}?fieldManager=pawl-bench&force=true"),
                "application/apply-patch+yaml",
                config_map(&name, at),
            )
        };
        self.load(("applies", 8, self.plan.applies), make).await?;
        Ok(())
    }

    async fn patches(&mut self, connection: &mut Connection) -> anyhow::Result<()> {
        self.define(connection).await?;
        let path = self.samples();
        for at in 0..CHANGED_OBJECTS {
            let body = json!({"apiVersion": format!("{}/v1", self.names.group), "kind": "Sample",
                "metadata": {"name": format!("s-{at:02}")}, "spec": {"purpose": "to have its status written"}});
            connection.send(Ask::post(path.as_str(), body.to_string())).await?;
        }
        let make = move |at: usize| {
            let status = json!({"status": {"phase": "Running", "round": at, "observedGeneration": 1,
                "conditions": [{"type": "Ready", "status": if at.is_multiple_of(2) { "True" } else { "False" },
                    "reason": "Measured", "message": format!("round {at}"),
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
            Ask::patch(
                format!("{path}/s-{:02}/status", at % CHANGED_OBJECTS),
                "application/merge-patch+json",
                status.to_string(),
            )
        };
        self.load(("status patches", 8, self.plan.patches), make).await?;
        Ok(())
    }

    /// Makes the custom resource and waits until the server knows it.
    async fn define(&self, connection: &mut Connection) -> anyhow::Result<()> {
        let definition = definition(&self.names.group).to_string();
        connection.send(Ask::post(DEFINITIONS, definition)).await?;
        let deadline = Instant::now() + ESTABLISHED_WITHIN;
        loop {
            let (status, _) = connection.try_send(Ask::get(self.samples())).await?;
            if status.is_success() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("a new custom resource is not served after {ESTABLISHED_WITHIN:?}: {status}");
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// Removes everything, content first: a server without controllers does not empty a namespace by itself.
    async fn remove(&self) -> anyhow::Result<()> {
        let mut connection = self.target.connect().await?;
        let definition = format!("{DEFINITIONS}/samples.{}", self.names.group);
        let namespaces = [&self.names.listed, &self.names.others];
        let namespace = |name: &str| format!("/api/v1/namespaces/{name}");
        let mut paths = vec![self.samples(), definition.clone()];
        paths.extend(namespaces.iter().flat_map(|name| [self.config_maps(name), namespace(name)]));
        for path in paths {
            let (status, _) = connection.try_send(Ask::delete(path.as_str())).await?;
            if !(status.is_success() || status == StatusCode::NOT_FOUND) {
                bail!("DELETE {path} was answered {status}");
            }
        }
        let deadline = Instant::now() + self.plan.removal;
        for path in namespaces.iter().map(|name| namespace(name)).chain([definition]) {
            while connection.try_send(Ask::get(path.as_str())).await?.0 != StatusCode::NOT_FOUND {
                if Instant::now() > deadline {
                    bail!(
                        "{path} is deleted, and the server has not finished that; it may have no controllers"
                    );
                }
                tokio::time::sleep(ASK_AGAIN).await;
            }
        }
        Ok(())
    }

    fn config_maps(&self, namespace: &str) -> String {
        format!("/api/v1/namespaces/{namespace}/configmaps")
    }

    fn samples(&self) -> String {
        format!("/apis/{}/v1/namespaces/{}/samples", self.names.group, self.names.others)
    }
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn listed(at: usize) -> String {
    format!("listed-{at:05}")
}

/// Written by hand: half a million of these are made, on the core the server could have.
fn config_map(name: &str, at: usize) -> String {
    let payload = "0123456789abcdef".repeat(PAYLOAD_BYTES / 16);
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","labels":{{"app":"pawl-bench","part":"p{}"}}}},"data":{{"round":"{at}","payload":"{payload}"}}}}"#,
        at % 10
    )
}

fn definition(group: &str) -> Value {
    let text = json!({"type": "string"});
    let condition = json!({"type": "object", "required": ["type", "status"], "properties": {
        "type": text, "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "reason": text, "message": {"type": "string", "maxLength": 1024},
        "lastTransitionTime": {"type": "string", "format": "date-time"}}});
    let status = json!({"type": "object", "properties": {
        "phase": text, "round": {"type": "integer"}, "observedGeneration": {"type": "integer"},
        "conditions": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
            "items": condition}}});
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"purpose": text}}, "status": status}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("samples.{group}")},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {"plural": "samples", "singular": "sample", "kind": "Sample", "listKind": "SampleList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}]}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use bytes::Bytes;
    use http::Request;
    use pawl_apiserver::{Access, RealEnv, Server, SigningKey};

    const TOKEN: &str = "not-a-real-token";

    fn small() -> Plan {
        Plan {
            creates: [(1, 5), (8, 16)],
            listed: 40,
            gets: 30,
            applies: 20,
            patches: 20,
            lists: 2,
            watches: [(1, 3), (100, 2)],
            within: Duration::from_secs(30),
            removal: Duration::ZERO,
        }
    }

    fn server() -> Server {
        let pem = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let signing_key = SigningKey::from_pem(&pem).unwrap();
        Server::in_memory(Arc::new(RealEnv))
            .with_access(Access { admin_token: TOKEN.to_owned(), signing_key })
    }

    /// Measures `server` over a socket until `stop`.
    async fn measured(server: &Server, stop: impl Future<Output = ()>) -> anyhow::Result<Report> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (done, ended) = tokio::sync::oneshot::channel::<()>();
        let serving = tokio::spawn(pawl_apiserver::serve(listener, server.clone(), None, async {
            ended.await.ok();
        }));
        let target = Target::new(&url, TOKEN, &Trust::Nobody).unwrap();
        let process = Process::new(std::process::id()).unwrap();
        let report = measure(&target, Some(&process), &small(), stop).await;
        done.send(()).unwrap();
        serving.await.unwrap().unwrap();
        report
    }

    fn items(server: &Server, path: &str) -> Vec<Value> {
        let response = server.call(Request::get(path).body(Bytes::new()).unwrap());
        let list: Value = serde_json::from_slice(response.body()).unwrap();
        list["items"].as_array().unwrap().clone()
    }

    /// Namespaces end by a controller, of which a bare server has none: they must be on their way.
    fn assert_nothing_is_left(server: &Server) {
        assert_eq!(items(server, "/api/v1/configmaps"), Vec::<Value>::new());
        let left = items(server, "/api/v1/namespaces").into_iter().filter(|namespace| {
            let ours = namespace["metadata"]["name"].as_str().unwrap().starts_with("pawl-bench");
            ours && namespace["metadata"]["deletionTimestamp"].is_null()
        });
        assert_eq!(left.count(), 0);
        let definitions = items(server, DEFINITIONS);
        assert!(definitions.iter().all(|d| !d["metadata"]["deletionTimestamp"].is_null()), "{definitions:?}");
    }

    #[tokio::test]
    async fn a_run_gives_every_row_and_leaves_nothing_behind() {
        let server = server();
        let report = measured(&server, std::future::pending()).await.unwrap();
        let rows: Vec<_> = report.rows.iter().map(|row| (row.name, row.connections, row.count)).collect();
        let expected = [
            ("creates", 1, 5),
            ("creates", 8, 16),
            ("creates", 32, 40),
            ("gets", 1, 10),
            ("gets", 8, 30),
            ("list", 1, 2),
            ("applies", 8, 20),
            ("status patches", 8, 20),
            ("watch latency", 1, 3),
            ("watch latency", 100, 200),
        ];
        assert_eq!(rows, expected);
        assert_eq!(report.objects, 61);
        assert!(report.rows.iter().all(|row| row.latency.p50 > Duration::ZERO && row.seconds > 0.0));
        assert!(report.rows.iter().any(|row| row.bytes.is_some_and(|bytes| bytes > 40 * PAYLOAD_BYTES)));
        let told = report.to_json();
        assert_eq!(told["rows"].as_array().unwrap().len(), expected.len());
        assert!(told["process"]["peakBytes"].as_u64().unwrap() > 0);
        assert_nothing_is_left(&server);
    }

    #[tokio::test]
    async fn a_run_that_is_stopped_midway_leaves_nothing_behind() {
        let server = server();
        let midway = async {
            while items(&server, "/api/v1/configmaps").len() < 20 {
                tokio::task::yield_now().await;
            }
        };
        let stopped = measured(&server, midway).await.unwrap_err();
        assert!(stopped.to_string().contains("stopped"), "{stopped:#}");
        assert_nothing_is_left(&server);
    }
}
