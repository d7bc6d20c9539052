//! Is everything true that clients were told, however often the process is killed?
//!
//! A server in a process of its own is killed at random moments while writers and a watcher talk to it over sockets.
//! Every write is different from every other, so whatever is found later has exactly one author:
//!
//! ```text
//! start ─▶ list: every key is as acknowledged, or as the one write in doubt would have it; nothing else is there
//!       ─▶ watch from the last revision seen: what is missing comes, once, in order
//!       ─▶ write until killed: a write without an answer is in doubt
//! ```

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use pawl_apiserver::{Access, Limits, Options, RealEnv, Server, SigningKey, serve};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch as watch_channel;
use tokio::task::JoinHandle;

use crate::TOKEN;
use crate::wire::{Events, Wire, revision};

/// Set in the process that is to be killed: where it writes, and after how many bytes a snapshot takes over.
const VICTIM: &str = "PAWL_TEST_VICTIM_DIR";
const ROTATE: &str = "PAWL_TEST_VICTIM_ROTATE";
const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";
/// Enough writers to share a group commit, each with keys that it also deletes and makes again.
const WRITERS: usize = 6;
const KEYS_PER_WRITER: usize = 4;
/// How many answers a round waits for at most: the kill comes anywhere from before the first to well into the keys'
/// second and third lives.
const MOST_ANSWERS: usize = 60;
/// How long anything may take that should take milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed_a_hundred_times() {
    let campaign = campaign(100, u64::MAX, 7);
    assert_eq!(campaign.expired, 0, "without snapshots the whole history is kept");
    assert!(campaign.history.values().map(Vec::len).sum::<usize>() > 1_000, "too little was written to tell");
}

#[test]
fn nothing_is_lost_when_the_process_is_killed_while_snapshots_take_over() {
    // A snapshot every few writes: many kills hit one being written, named, or followed by removals.
    let campaign = campaign(40, 8_000, 11);
    assert!(campaign.expired < 40, "a watch can be resumed when no snapshot came between");
}

/// Rounds of killing; whatever is wrong panics.
fn campaign(rounds: usize, rotate_bytes: u64, seed: u64) -> Campaign {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut campaign = Campaign { rng: fastrand::Rng::with_seed(seed), ..Campaign::default() };
    for round in 0..rounds {
        if campaign.rng.u8(..8) == 0 {
            // Also while it starts, which reads everything back and cuts unfinished writes.
            let victim = Victim::spawn(dir.path(), rotate_bytes);
            std::thread::sleep(Duration::from_micros(campaign.rng.u64(..40_000)));
            drop(victim);
        }
        runtime.block_on(campaign.round(round, dir.path(), rotate_bytes));
    }
    runtime.block_on(async {
        let mut victim = Victim::spawn(dir.path(), rotate_bytes);
        let _ = campaign.settle(rounds, victim.address().await).await;
    });
    campaign
}

/// Everything that was sent and seen so far.
#[derive(Default)]
struct Campaign {
    rng: fastrand::Rng,
    /// What happened to each key, in order: acknowledged, or in doubt and then found.
    history: BTreeMap<String, Vec<Write>>,
    /// Sent, and never answered.
    doubts: Vec<(String, Write)>,
    /// What the watcher was told before the last kill.
    unread: Vec<Value>,
    /// How many writes of each key the watcher has seen.
    seen: BTreeMap<String, usize>,
    /// The last revision the watcher has seen.
    last_seen: u64,
    /// The revision before the first write.
    base: u64,
    /// Numbers writes.
    written: u64,
    /// How often the watcher was told that what it missed is no longer kept.
    expired: usize,
}

/// A write that took effect.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Write {
    change: &'static str,
    content: Content,
    /// Not known of deletions, which are answered without one.
    revision: Option<u64>,
}

/// What a key holds: numbers that were never written before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Content {
    spec: u64,
    status: Option<u64>,
}

/// What one writer did in one round.
struct Deeds {
    acknowledged: Vec<(String, Write)>,
    /// The last, if it was never answered.
    doubt: Option<(String, Write)>,
}

impl Campaign {
    async fn round(&mut self, round: usize, dir: &Path, rotate_bytes: u64) {
        let mut victim = Victim::spawn(dir, rotate_bytes);
        let address = victim.address().await;
        let watch = self.settle(round, address).await;
        let watcher = tokio::spawn(read_on(watch));
        // Killed after so many answers and a moment more, not after so much time: a busy machine tests as much.
        let acknowledged = Arc::new(watch_channel::Sender::new(0));
        let mut progress = acknowledged.subscribe();
        let enough = self.rng.usize(..MOST_ANSWERS);
        let writers: Vec<JoinHandle<Deeds>> = (0..WRITERS)
            .map(|writer| {
                let keys = (0..KEYS_PER_WRITER).map(|key| format!("w{writer}-k{key}"));
                let keys = keys.map(|name| (name.clone(), self.now(&name))).collect();
                // Numbers of this writer alone; a round has far fewer writes than that.
                let first = self.written + (writer as u64) * 1_000_000;
                tokio::spawn(write_on(address, keys, first, acknowledged.clone(), self.rng.fork()))
            })
            .collect();
        self.written += (WRITERS as u64) * 1_000_000;
        tokio::time::timeout(PATIENCE, progress.wait_for(|&n| n >= enough)).await.unwrap().unwrap();
        tokio::time::sleep(Duration::from_micros(self.rng.u64(..2_000))).await;
        victim.kill();
        for writer in writers {
            let deeds = writer.await.unwrap();
            for (name, write) in deeds.acknowledged {
                self.history.entry(name).or_default().push(write);
            }
            self.doubts.extend(deeds.doubt);
        }
        self.unread = watcher.await.unwrap();
    }

    /// What a key should hold now, and its revision.
    fn now(&self, name: &str) -> Option<(u64, Content)> {
        let last = self.history.get(name)?.last()?;
        (last.change != "DELETED").then(|| (last.revision.unwrap(), last.content))
    }

    /// Only a start can tell what became of writes in doubt: each happened as it was sent, or not at all.
    fn resolve(&mut self, round: usize, found: &BTreeMap<String, (u64, Content)>) {
        for (name, write) in std::mem::take(&mut self.doubts) {
            let now = self.now(&name).map(|(_, content)| content);
            let then = (write.change != "DELETED").then_some(write.content);
            let is = found.get(&name).map(|(_, content)| *content);
            assert!(
                is == now || is == then,
                "round {round}: {name} is {is:?}, was {now:?}, in doubt: {write:?}"
            );
            if is == then {
                let revision = found.get(&name).map(|(revision, _)| *revision);
                self.history.entry(name).or_default().push(Write { revision, ..write });
            }
        }
    }

    /// What is there must be what was written, all of it and nothing else.
    fn compare(&self, round: usize, found: &BTreeMap<String, (u64, Content)>, at: u64) {
        let names = self.history.keys().chain(found.keys());
        for name in names {
            assert_eq!(found.get(name).copied(), self.now(name), "round {round}: {name}");
        }
        let writes: usize = self.history.values().map(Vec::len).sum();
        assert_eq!(
            at,
            self.base + writes as u64,
            "round {round}: every write is one revision, and nobody else writes"
        );
    }

    /// After a start: everything is there, and the watcher is told what it missed. Returns the watch, caught up.
    async fn settle(&mut self, round: usize, address: SocketAddr) -> Events {
        let (found, at) = list(address).await;
        if self.base == 0 {
            (self.base, self.last_seen) = (at, at);
        }
        self.resolve(round, &found);
        self.compare(round, &found, at);
        for event in std::mem::take(&mut self.unread) {
            self.see(round, &event);
        }
        let mut watch = watch(address, self.last_seen).await;
        while self
            .history
            .iter()
            .any(|(name, writes)| self.seen.get(name).copied().unwrap_or(0) < writes.len())
        {
            let event = tokio::time::timeout(PATIENCE, watch.next()).await;
            let event = event.expect("a missed event comes").expect("the server lives");
            if event["type"] == "ERROR" {
                assert_eq!(event["object"]["code"], 410, "round {round}: {event}");
                // It must look again, as every client must; from there on nothing may be missing.
                self.expired += 1;
                self.seen = self.history.iter().map(|(name, writes)| (name.clone(), writes.len())).collect();
                self.last_seen = at;
                watch = self::watch(address, at).await;
            } else {
                self.see(round, &event);
            }
        }
        watch
    }

    /// The watcher sees an event: it must be the next of its key, and later than all before.
    fn see(&mut self, round: usize, event: &Value) {
        let object = &event["object"];
        let at = revision(object);
        assert!(at > self.last_seen, "round {round}: {at} after {}", self.last_seen);
        self.last_seen = at;
        let name = object["metadata"]["name"].as_str().unwrap();
        let seen = self.seen.entry(name.to_owned()).or_default();
        let write = self.history.get(name).and_then(|writes| writes.get(*seen));
        let write = write.unwrap_or_else(|| panic!("round {round}: nobody wrote {event}"));
        assert_eq!(event["type"], write.change, "round {round}: {event}");
        assert_eq!(content(object), write.content, "round {round}: {event}");
        assert!(write.revision.is_none_or(|revision| revision == at), "round {round}: {write:?} is {event}");
        *seen += 1;
    }
}

/// Writes to keys of its own, one after the other, until there is no answer.
async fn write_on(
    address: SocketAddr,
    mut keys: Vec<(String, Option<(u64, Content)>)>,
    first: u64,
    acknowledged: Arc<watch_channel::Sender<usize>>,
    mut rng: fastrand::Rng,
) -> Deeds {
    let mut deeds = Deeds { acknowledged: Vec::new(), doubt: None };
    let Ok(mut wire) = Wire::open(address).await else { return deeds };
    for number in first.. {
        let at = rng.usize(..keys.len());
        let (name, now) = &mut keys[at];
        let path = format!("{THINGS}/{name}");
        let (method, path, body, write) = match (*now, rng.u8(..4)) {
            (None, _) => {
                let content = Content { spec: number, status: None };
                (
                    "POST",
                    THINGS.to_owned(),
                    Some(("application/json", thing(name, None, content))),
                    ("ADDED", content),
                )
            }
            (Some((_, content)), 0) => ("DELETE", path, None, ("DELETED", content)),
            (Some((_, content)), 1) => {
                let content = Content { status: Some(number), ..content };
                let patch = json!({"status": {"number": number}});
                let body = Some(("application/merge-patch+json", patch));
                ("PATCH", format!("{path}/status"), body, ("MODIFIED", content))
            }
            (Some((revision, content)), _) => {
                let content = Content { spec: number, ..content };
                let body = Some(("application/json", thing(name, Some(revision), content)));
                ("PUT", path, body, ("MODIFIED", content))
            }
        };
        let (change, content) = write;
        let write = Write { change, content, revision: None };
        let body = body.as_ref().map(|(media, body)| (*media, body));
        let Ok((code, answer)) = wire.ask(method, &path, body).await else {
            deeds.doubt = Some((name.clone(), write));
            return deeds;
        };
        assert!(matches!(code, 200 | 201), "{method} {path}: {answer}");
        let revision = (change != "DELETED").then(|| revision(&answer));
        *now = revision.map(|revision| (revision, content));
        deeds.acknowledged.push((name.clone(), Write { revision, ..write }));
        acknowledged.send_modify(|n| *n += 1);
    }
    deeds
}

async fn read_on(mut watch: Events) -> Vec<Value> {
    let mut events = Vec::new();
    while let Some(event) = watch.next().await {
        events.push(event);
    }
    events
}

async fn list(address: SocketAddr) -> (BTreeMap<String, (u64, Content)>, u64) {
    let (code, list) = Wire::open(address).await.unwrap().ask("GET", THINGS, None).await.unwrap();
    assert_eq!(code, 200, "{list}");
    let items = list["items"].as_array().unwrap().iter();
    let found =
        items.map(|o| (o["metadata"]["name"].as_str().unwrap().to_owned(), (revision(o), content(o))));
    (found.collect(), revision(&list))
}

async fn watch(address: SocketAddr, since: u64) -> Events {
    let wire = Wire::open(address).await.unwrap();
    wire.watch(&format!("{THINGS}?watch=1&resourceVersion={since}")).await.unwrap()
}

fn thing(name: &str, revision: Option<u64>, content: Content) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "spec": {"number": content.spec},
        "metadata": {"name": name, "resourceVersion": revision.map(|r| r.to_string())}})
}

fn content(object: &Value) -> Content {
    Content { spec: object["spec"]["number"].as_u64().unwrap(), status: object["status"]["number"].as_u64() }
}

/// A server in a process of its own.
struct Victim {
    process: Child,
}

impl Victim {
    fn spawn(dir: &Path, rotate_bytes: u64) -> Victim {
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::a_victim_serves_until_it_is_killed", "--nocapture"])
            .env(VICTIM, dir)
            .env(ROTATE, rotate_bytes.to_string())
            .stdout(Stdio::piped())
            .spawn();
        Victim { process: process.unwrap() }
    }

    /// Where it listens, once it does.
    async fn address(&mut self) -> SocketAddr {
        let lines = BufReader::new(self.process.stdout.take().unwrap()).lines();
        let read = move || {
            lines.map_while(Result::ok).find_map(|line| line.strip_prefix("listening on ")?.parse().ok())
        };
        let address = tokio::time::timeout(PATIENCE, tokio::task::spawn_blocking(read)).await;
        address.expect("it starts").unwrap().expect("it says where it listens")
    }

    fn kill(self) {
        drop(self);
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// Runs only for the tests above, in a process of its own.
#[test]
fn a_victim_serves_until_it_is_killed() {
    let Some(dir) = std::env::var_os(VICTIM) else { return };
    let rotate_bytes = std::env::var(ROTATE).unwrap().parse().unwrap();
    // Little room behind the logs, so that kills find it half written over.
    let options = Options { limits: Limits::default(), rotate_bytes, room_bytes: 4_000 };
    let server = Server::open(Path::new(&dir), Arc::new(RealEnv), options).unwrap();
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    server
        .install_crd(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema}}]}}))
        .unwrap();
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let access = Access { admin_token: TOKEN.to_owned(), signing_key: SigningKey::from_pem(&key).unwrap() };
    let server = server.with_access(access);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("\nlistening on {}", listener.local_addr().unwrap());
        serve(listener, server, None, std::future::pending()).await.unwrap();
    });
}
