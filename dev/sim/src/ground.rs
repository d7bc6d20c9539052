//! The ground a simulated world stands on: one real API server in memory, its clock, and all that ever happened on it.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use bytes::Bytes;
use http::{Method, Request};
use jiff::Timestamp;
use pawl_api::k8s::CUSTOM_RESOURCE_DEFINITION;
use pawl_api::meta::{Kind, names};
use pawl_apiserver::{ChangeType, Env, Ids, Server};
use pawl_engine::Clock;
use pawl_machines::cache::World;
use pawl_machines::object::{Key, Object};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::fault::Fault;
use crate::hub::Hub;

/// When simulated time begins.
pub const DAWN: Timestamp = Timestamp::constant(1_750_000_000, 0);

/// Time and identities for the server. A UID is a function of what the object is and how often it was made, so that
/// two runs of a scenario name their objects alike whatever happened in between.
#[derive(Debug)]
pub struct SimEnv {
    state: Mutex<EnvState>,
}

#[derive(Debug)]
struct EnvState {
    now: Now,
    /// How often each object has been made; how often a generated name was asked for.
    made: BTreeMap<String, u32>,
    named: u32,
    /// Where to look what has been made: a create that fails makes nothing.
    server: Option<Server>,
    seen: u64,
}

/// Where the server's time comes from.
#[derive(Debug)]
enum Now {
    /// Moved by hand.
    Set(Timestamp),
    /// A clock that goes with a paused runtime.
    Follows(Arc<dyn Clock>),
}

impl SimEnv {
    fn new() -> Self {
        let (made, named, server, seen) = (BTreeMap::new(), 0, None, 0);
        Self { state: Mutex::new(EnvState { now: Now::Set(DAWN), made, named, server, seen }) }
    }

    /// One that goes on from here by itself.
    fn copy(&self) -> Self {
        let from = self.state();
        let (made, named, seen) = (from.made.clone(), from.named, from.seen);
        Self { state: Mutex::new(EnvState { now: Now::Set(DAWN), made, named, server: None, seen }) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, EnvState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set(&self, now: Timestamp) {
        self.state().now = Now::Set(now);
    }

    pub fn follow(&self, clock: Arc<dyn Clock>) {
        self.state().now = Now::Follows(clock);
    }
}

impl Env for SimEnv {
    fn now(&self) -> Timestamp {
        match &self.state().now {
            Now::Set(now) => *now,
            Now::Follows(clock) => clock.now(),
        }
    }

    fn uid(&self, of: &str) -> String {
        let mut state = self.state();
        state.count_made();
        let count = state.made.get(of).copied().unwrap_or_default() + 1;
        nth_uid(of, count)
    }

    fn suffix(&self) -> String {
        let mut state = self.state();
        state.named += 1;
        format!("{:05}", state.named)
    }
}

/// The UID of the first object of this name: known before there is one, to whoever means harm.
pub fn first_uid(kind: &Kind, namespace: &str, name: &str) -> String {
    nth_uid(&format!("{}/{namespace}/{name}", kind.plural), 1)
}

fn nth_uid(of: &str, count: u32) -> String {
    let hex = names::hash(&[of, &count.to_string()], 32);
    let part = |range: std::ops::Range<usize>| hex.get(range).unwrap_or_default().to_owned();
    format!("{}-{}-{}-{}-{}", part(0..8), part(8..12), part(12..16), part(16..20), part(20..32))
}

impl EnvState {
    fn count_made(&mut self) {
        let changes = self.server.as_ref().and_then(|server| server.changes(self.seen).ok());
        for change in changes.into_iter().flatten() {
            self.seen = change.revision();
            if change.change() == ChangeType::Added {
                let object = change.object();
                let name = format!("{}/{}/{}", change.ids().plural, object.namespace(), object.name());
                *self.made.entry(name).or_default() += 1;
            }
        }
    }
}

/// What happened to one object, once.
#[derive(Clone, Debug)]
pub struct Happened {
    pub revision: u64,
    pub what: ChangeType,
    /// Its author had seen everything up to this revision when it was decided; 0 where that is not known.
    pub since: u64,
    /// As it was after; for a deletion, as it was last.
    pub object: Arc<Object>,
}

/// A server, and the record of it.
#[derive(Debug)]
pub struct Ground {
    pub server: Server,
    pub env: Arc<SimEnv>,
    /// Everything since the beginning, in order of revision.
    pub history: Vec<Happened>,
    /// Per kind, where in the history its objects are.
    pub by_kind: BTreeMap<Kind, Vec<usize>>,
    /// What is there now.
    pub live: BTreeMap<Kind, BTreeMap<Key, Arc<Object>>>,
    revision: u64,
    trace: SharedTrace,
    /// The GitHub of this world, where it has one.
    pub hub: Option<Hub>,
}

impl Ground {
    /// A fresh world, with Pawl's own kinds installed or without.
    pub fn new(own_kinds: bool, keep_trace: bool) -> Self {
        static BARE: LazyLock<Ground> = LazyLock::new(|| Ground::make(false));
        static INSTALLED: LazyLock<Ground> = LazyLock::new(|| Ground::make(true));
        let base: &Ground = if own_kinds { &INSTALLED } else { &BARE };
        let env = Arc::new(base.env.copy());
        let server = base.server.fork(Arc::clone(&env) as Arc<dyn Env>);
        env.state().server = Some(server.clone());
        Self {
            server,
            env,
            history: base.history.clone(),
            by_kind: base.by_kind.clone(),
            live: base.live.clone(),
            revision: base.revision,
            trace: SharedTrace::new(keep_trace),
            hub: None,
        }
    }

    fn make(own_kinds: bool) -> Self {
        let env = Arc::new(SimEnv::new());
        let server = Server::in_memory(Arc::clone(&env) as Arc<dyn Env>);
        let trace = SharedTrace::new(true);
        let ours = pawl_api::crds::all().into_iter().map(serde_json::to_value);
        let tekton = pawl_api::tekton::crds::all().into_iter().map(Ok);
        for crd in ours.chain(tekton).filter(|_| own_kinds) {
            let made = crd.map(|crd| server.install_crd(crd));
            if !matches!(made, Ok(Ok(()))) {
                trace.line(|| format!("a definition was refused: {made:?}"));
            }
        }
        let (history, by_kind, live) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let mut ground = Self { server, env, history, by_kind, live, revision: 0, trace, hub: None };
        ground.catch_up();
        // What was made before the world begins is not counted in it.
        ground.env.state().seen = ground.revision;
        ground
    }

    /// Gives the world a GitHub, with what was there before it begins.
    pub fn with_hub(mut self, prepare: Option<fn(&Hub)>) -> Self {
        if let Some(prepare) = prepare {
            let hub = Hub::new(&self.env);
            prepare(&hub);
            // What happened before is no news.
            hub.fake.take_deliveries();
            self.hub = Some(hub);
        }
        self
    }

    pub fn now(&self) -> Timestamp {
        self.env.now()
    }

    pub fn trace(&self) -> &SharedTrace {
        &self.trace
    }

    /// Sends one request of somebody who sees everything, and records what it changed.
    pub fn send(&mut self, who: &str, request: Request<Vec<u8>>) -> (u16, Bytes) {
        self.send_since(who, request, self.revision)
    }

    /// The same, of somebody who had seen everything up to a revision when it was decided.
    pub fn send_since(&mut self, who: &str, request: Request<Vec<u8>>, since: u64) -> (u16, Bytes) {
        let line = request_line(who, request.method(), request.uri(), request.body());
        let response = self.server.call(request.map(Bytes::from));
        let code = response.status().as_u16();
        let now = self.now();
        self.trace.line(|| format!("{now} {line} -> {code}"));
        self.record(since);
        (code, response.into_body())
    }

    /// Records what others than `send` have changed.
    pub fn catch_up(&mut self) {
        self.record(0);
    }

    fn record(&mut self, since: u64) {
        let changes = match self.server.changes(self.revision) {
            Ok(changes) => changes,
            // Unreachable while every call is followed by this; said in the trace rather than hidden.
            Err(compacted) => {
                self.trace.line(|| format!("lost history: {compacted:?}"));
                return;
            }
        };
        for change in changes {
            self.revision = change.revision();
            let kind = kind_of(change.ids());
            // Definitions are large, and no subject of a scenario.
            if kind == CUSTOM_RESOURCE_DEFINITION {
                continue;
            }
            let Ok(object) = Object::new(kind.clone(), change.value()) else { continue };
            self.by_kind.entry(kind.clone()).or_default().push(self.history.len());
            let kept = self.live.entry(kind).or_default();
            match change.change() {
                ChangeType::Added | ChangeType::Modified => kept.insert(object.key(), Arc::clone(&object)),
                ChangeType::Deleted => kept.remove(&object.key()),
            };
            let (revision, what) = (self.revision, change.change());
            self.history.push(Happened { revision, what, since, object });
        }
    }

    /// Everything as it is, as a cache that does not lag would show it.
    pub fn view(&self) -> World {
        let mut world = World::default();
        for (kind, objects) in &self.live {
            let cache = world.cache(kind);
            for object in objects.values() {
                cache.put(Arc::clone(object));
            }
        }
        world
    }

    /// All that happened, if the trace is to be kept.
    pub fn kept_history(&self) -> Vec<Happened> {
        if self.trace.lock().lines.is_some() { self.history.clone() } else { Vec::new() }
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Option<&Arc<Object>> {
        self.live.get(kind)?.get(&Key::new(Some(namespace), name))
    }

    pub fn all<'a>(&'a self, kind: &Kind) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
        self.live.get(kind).into_iter().flat_map(BTreeMap::values)
    }
}

impl Drop for Ground {
    /// The server holds its environment, and the environment the server.
    fn drop(&mut self) {
        self.env.state().server = None;
    }
}

/// The kind as data that costs nothing to copy. There are as many as the server has resources, so each is made once and
/// kept for the life of the process.
fn kind_of(ids: &Ids) -> Kind {
    static KNOWN: LazyLock<Mutex<BTreeMap<(String, String), Kind>>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let keep = |text: &Arc<str>| -> &'static str { Box::leak(text.to_string().into_boxed_str()) };
    known
        .entry((ids.api_version(), ids.plural.to_string()))
        .or_insert_with(|| {
            let (group, version) = (keep(&ids.group), keep(&ids.version));
            Kind::of(group, version, keep(&ids.kind), keep(&ids.plural), ids.namespaced)
        })
        .clone()
}

/// What was done in which order: the same seed gives the same hash. Clones write to the same record.
#[derive(Clone, Debug)]
pub struct SharedTrace(Arc<Mutex<Trace>>);

#[derive(Debug)]
struct Trace {
    hash: Sha256,
    lines: Option<Vec<String>>,
    /// What was asked of whom with a value in it that must not leave its Secret.
    leaks: Vec<String>,
    /// The faults that were met, and by which requests.
    struck: Vec<(Fault, String)>,
}

impl SharedTrace {
    fn new(keep: bool) -> Self {
        Self(Arc::new(Mutex::new(Trace {
            hash: Sha256::new(),
            lines: keep.then(Vec::new),
            leaks: Vec::new(),
            struck: Vec::new(),
        })))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Trace> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn line(&self, line: impl FnOnce() -> String) {
        let line = line();
        let mut trace = self.lock();
        trace.hash.update(line.as_bytes());
        trace.hash.update(b"\n");
        if let Some(lines) = &mut trace.lines {
            lines.push(line);
        }
    }

    /// Somebody was told a secret.
    pub fn leak(&self, what: String) {
        self.lock().leaks.push(what);
    }

    pub fn leaks(&self) -> Vec<String> {
        self.lock().leaks.clone()
    }

    /// A request met a fault.
    pub fn strike(&self, fault: Fault, what: String) {
        self.lock().struck.push((fault, what));
    }

    pub fn struck(&self) -> Vec<(Fault, String)> {
        self.lock().struck.clone()
    }

    pub fn hash(&self) -> String {
        hex::encode(self.lock().hash.clone().finalize())
    }

    pub fn lines(&self) -> Vec<String> {
        self.lock().lines.clone().unwrap_or_default()
    }
}

/// A request as it stands in a trace: who sent it, method, path with query, and the hash of its body.
pub fn request_line(who: &str, method: &Method, uri: &http::Uri, body: &[u8]) -> String {
    let body = names::hash(&[&String::from_utf8_lossy(body)], 16);
    format!("{who}: {method} {uri} {body}")
}

/// A request as a person or a node would send it.
pub fn request(method: Method, path: &str, content_type: &'static str, body: &Value) -> Request<Vec<u8>> {
    let mut request = Request::new(if body.is_null() { Vec::new() } else { body.to_string().into_bytes() });
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().unwrap_or_default();
    let content_type = http::HeaderValue::from_static(content_type);
    request.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
    request
}
