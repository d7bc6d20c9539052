//! An engine that speaks Docker's API over a unix socket, and is strict about it: a path, a parameter or a field that it
//! does not know is refused, and remembered as a complaint. It keeps state as an engine does, and survives its clients.
//!
//! A container's command is a script of a few words, so that tests say what happens and when:
//! `say T`, `part T` (no line feed), `err T`, `message T`, `wait` (until told to go on), `hang` (until signalled),
//! `deaf` (until killed), `oom`, `exit N`.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Whose manners the engine has, where they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manners {
    Docker,
    /// A follower is not told of lines that begin with `fast`; times of output are whole seconds; a name that is taken is an internal error; signals are numbers.
    Podman,
}

#[derive(Debug)]
struct Made {
    id: String,
    body: Value,
    stage: &'static str,
    code: i64,
    oom: bool,
    started: Option<Timestamp>,
    finished: Option<Timestamp>,
    log: Vec<(u8, Timestamp, String)>,
    signals: Vec<String>,
    may_go_on: bool,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    images: BTreeMap<String, Value>,
    /// What a registry has: an image, or why not.
    registry: BTreeMap<String, Result<Value, String>>,
    containers: BTreeMap<String, Made>,
    ids: u64,
    pub(crate) pulls: Vec<String>,
    /// Names of containers, each time one was started.
    pub(crate) starts: Vec<String>,
    pub(crate) bodies: BTreeMap<String, Value>,
    pub(crate) complaints: Vec<String>,
    /// Pulls whose registry does not answer, as long as somebody waits for them.
    pub(crate) hung: usize,
}

struct Hung(Arc<Mutex<State>>);

impl Hung {
    fn new(state: &Arc<Mutex<State>>) -> Self {
        state.lock().unwrap().hung += 1;
        Self(state.clone())
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        self.0.lock().unwrap().hung -= 1;
    }
}

#[derive(Clone)]
pub(crate) struct FakeEngine {
    manners: Manners,
    state: Arc<Mutex<State>>,
    changed: Arc<watch::Sender<u64>>,
    connections: Arc<Mutex<JoinSet<()>>>,
    home: Arc<tempfile::TempDir>,
    _listening: Arc<Aborted>,
}

struct Aborted(JoinHandle<()>);

impl Drop for Aborted {
    fn drop(&mut self) {
        self.0.abort();
    }
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

impl FakeEngine {
    pub(crate) fn new(manners: Manners) -> Self {
        let home = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(home.path().join("engine.sock")).unwrap();
        let (state, changed) = (Arc::<Mutex<State>>::default(), Arc::new(watch::Sender::new(0)));
        let connections = Arc::<Mutex<JoinSet<()>>>::default();
        let served = Served { manners, state: state.clone(), changed: changed.clone() };
        let task = tokio::spawn({
            let connections = connections.clone();
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let served = served.clone();
                    connections.lock().unwrap().spawn(async move {
                        let service =
                            hyper::service::service_fn(move |request| served.clone().answer(request));
                        let http = hyper::server::conn::http1::Builder::new();
                        let _ = http.serve_connection(TokioIo::new(stream), service).await;
                    });
                }
            }
        });
        let listening = Arc::new(Aborted(task));
        Self { manners, state, changed, connections, home: Arc::new(home), _listening: listening }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.home.path().join("engine.sock")
    }

    /// All connections break; what runs, runs on.
    pub(crate) fn hang_up(&self) {
        self.connections.lock().unwrap().abort_all();
    }

    pub(crate) fn has_image(&self, name: &str, config: Value) {
        self.state.lock().unwrap().images.insert(name.to_owned(), config);
    }

    pub(crate) fn registry_has(&self, name: &str, image: Result<Value, &str>) {
        let image = image.map_err(str::to_owned);
        self.state.lock().unwrap().registry.insert(name.to_owned(), image);
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.lock().unwrap())
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.look(|state| state.containers.keys().cloned().collect())
    }

    pub(crate) fn signals(&self, name: &str) -> Vec<String> {
        self.look(|state| state.containers.get(name).map(|c| c.signals.clone()).unwrap_or_default())
    }

    /// Lets a container that waits go on.
    pub(crate) fn go_on(&self, name: &str) {
        self.state.lock().unwrap().containers.get_mut(name).unwrap().may_go_on = true;
        self.changed.send_modify(|n| *n += 1);
    }

    /// A container that somebody made beside us.
    pub(crate) fn add(&self, name: &str, labels: &Value) {
        let body = json!({"Labels": labels, "Entrypoint": ["script", "hang"], "HostConfig": {"Mounts": []}});
        Served { manners: self.manners, state: self.state.clone(), changed: self.changed.clone() }
            .make(name, body);
    }

    /// As `docker rm -f` by somebody else.
    pub(crate) fn remove(&self, name: &str) {
        self.state.lock().unwrap().containers.remove(name);
        self.changed.send_modify(|n| *n += 1);
    }
}

#[derive(Clone)]
struct Served {
    manners: Manners,
    state: Arc<Mutex<State>>,
    changed: Arc<watch::Sender<u64>>,
}

impl Served {
    async fn answer(self, request: Request<Incoming>) -> Result<Answer, Infallible> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let query: BTreeMap<String, String> =
            form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
        let path = parts.uri.path().to_owned();
        if path == "/version" {
            return Ok(whole(StatusCode::OK, &self.version()));
        }
        let Some(path) = path.strip_prefix("/v1.41/").map(str::to_owned) else {
            return Ok(self.strange(&format!("path {path}")));
        };
        let steps: Vec<&str> = path.split('/').collect();
        let answer = match (&parts.method, steps.as_slice()) {
            (&Method::GET, ["images", .., "json"]) => {
                let name = path.trim_start_matches("images/").trim_end_matches("/json");
                self.only(&query, &[]).unwrap_or_else(|| self.image(name))
            }
            (&Method::POST, ["images", "create"]) => match self.only(&query, &["fromImage", "tag"]) {
                Some(no) => no,
                None => self.pull(&query).await,
            },
            (&Method::GET, ["containers", "json"]) => {
                self.only(&query, &["all", "filters"]).unwrap_or_else(|| self.list(&query))
            }
            (&Method::POST, ["containers", "create"]) => {
                self.only(&query, &["name"]).unwrap_or_else(|| self.create(&query["name"], &body))
            }
            (&Method::GET, ["containers", name, "json"]) => {
                self.only(&query, &[]).unwrap_or_else(|| self.inspect(name))
            }
            (&Method::POST, ["containers", name, "start"]) => {
                self.only(&query, &[]).unwrap_or_else(|| self.start(name))
            }
            (&Method::POST, ["containers", name, "kill"]) => {
                self.only(&query, &["signal"]).unwrap_or_else(|| self.kill(name, &query["signal"]))
            }
            (&Method::POST, ["containers", name, "wait"]) => match self.only(&query, &["condition"]) {
                Some(no) => no,
                None => self.wait(name).await,
            },
            (&Method::GET, ["containers", name, "logs"]) => {
                let known = ["stdout", "stderr", "timestamps", "follow", "since"];
                self.only(&query, &known).unwrap_or_else(|| self.logs(name, &query))
            }
            (&Method::DELETE, ["containers", name]) => {
                self.only(&query, &["force", "v"]).unwrap_or_else(|| self.delete(name))
            }
            _ => self.strange(&format!("{} {path}", parts.method)),
        };
        Ok(answer)
    }

    fn strange(&self, what: &str) -> Answer {
        self.state.lock().unwrap().complaints.push(what.to_owned());
        refused(StatusCode::BAD_REQUEST, &format!("not known here: {what}"))
    }

    /// All of these parameters, and no other.
    fn only(&self, query: &BTreeMap<String, String>, known: &[&str]) -> Option<Answer> {
        let given: BTreeSet<&str> = query.keys().map(String::as_str).collect();
        let known: BTreeSet<&str> = known.iter().copied().collect();
        (given != known).then(|| self.strange(&format!("parameters {given:?}")))
    }

    fn version(&self) -> Value {
        let name = match self.manners {
            Manners::Docker => "Engine",
            Manners::Podman => "Podman Engine",
        };
        json!({"Version": "0.0-fake", "ApiVersion": "1.41", "MinAPIVersion": "1.24", "Components": [{"Name": name}]})
    }

    fn image(&self, name: &str) -> Answer {
        let state = self.state.lock().unwrap();
        let by_id = || name.strip_prefix("sha256:").and_then(|name| state.images.get(name));
        match state.images.get(name).or_else(by_id) {
            Some(config) => {
                let id = format!("sha256:{name}");
                whole(StatusCode::OK, &json!({"Id": id, "RepoDigests": [], "Size": 7, "Config": config}))
            }
            None => refused(StatusCode::NOT_FOUND, &format!("No such image: {name}")),
        }
    }

    /// A registry whose answer is `never` does not answer.
    async fn pull(&self, query: &BTreeMap<String, String>) -> Answer {
        let name = format!("{}:{}", query["fromImage"], query["tag"]);
        let found = {
            let mut state = self.state.lock().unwrap();
            state.pulls.push(name.clone());
            state.registry.get(&name).cloned()
        };
        if found.as_ref().is_some_and(|found| found.as_ref().is_err_and(|why| why == "never")) {
            let _hung = Hung::new(&self.state);
            std::future::pending::<()>().await;
        }
        let last = match found {
            Some(Ok(config)) => {
                self.state.lock().unwrap().images.insert(name.clone(), config);
                json!({"status": "Status: Downloaded newer image"})
            }
            Some(Err(error)) => json!({"errorDetail": {"message": error}, "error": error}),
            None => json!({"error": format!("manifest for {name} not found")}),
        };
        let lines = format!("{}\r\n{last}\r\n", json!({"status": format!("Pulling from {name}")}));
        Response::new(Full::new(Bytes::from(lines)).boxed())
    }

    fn list(&self, query: &BTreeMap<String, String>) -> Answer {
        let filters: Value = serde_json::from_str(&query["filters"]).unwrap();
        let (label, value) = filters["label"][0].as_str().unwrap().split_once('=').unwrap();
        let state = self.state.lock().unwrap();
        let ours = state.containers.iter().filter(|(_, made)| made.body["Labels"][label] == value);
        let lines = ours.map(|(name, made)| {
            json!({"Id": made.id, "Names": [format!("/{name}")], "Labels": made.body["Labels"], "State": made.stage})
        });
        whole(StatusCode::OK, &Value::Array(lines.collect()))
    }

    fn create(&self, name: &str, body: &[u8]) -> Answer {
        let body: Value = serde_json::from_slice(body).unwrap();
        if let Some(field) = unknown(&body) {
            return self.strange(&format!("field {field}"));
        }
        let taken = self.state.lock().unwrap().containers.contains_key(name);
        let image = body["Image"].as_str().unwrap().trim_start_matches("sha256:").to_owned();
        if !self.state.lock().unwrap().images.contains_key(&image) {
            return refused(StatusCode::NOT_FOUND, &format!("No such image: {image}"));
        }
        if taken {
            let message = format!("The container name \"/{name}\" is already in use");
            return match self.manners {
                Manners::Docker => refused(StatusCode::CONFLICT, &message),
                Manners::Podman => refused(StatusCode::INTERNAL_SERVER_ERROR, &message),
            };
        }
        let missing = body["HostConfig"]["Mounts"]
            .as_array()
            .unwrap()
            .iter()
            .find(|mount| !Path::new(mount["Source"].as_str().unwrap()).exists());
        if let Some(mount) = missing {
            let message = format!("bind source path does not exist: {}", mount["Source"]);
            return refused(StatusCode::BAD_REQUEST, &message);
        }
        let id = self.make(name, body);
        whole(StatusCode::CREATED, &json!({"Id": id, "Warnings": []}))
    }

    fn make(&self, name: &str, body: Value) -> String {
        let mut state = self.state.lock().unwrap();
        state.ids += 1;
        let id = format!("{:064x}", state.ids);
        state.bodies.insert(name.to_owned(), body.clone());
        let made = Made {
            id: id.clone(),
            body,
            stage: "created",
            code: 0,
            oom: false,
            started: None,
            finished: None,
            log: Vec::new(),
            signals: Vec::new(),
            may_go_on: false,
        };
        state.containers.insert(name.to_owned(), made);
        id
    }

    /// A container by its name or ID.
    fn with<T>(&self, name: &str, with: impl FnOnce(&str, &mut Made) -> T) -> Option<T> {
        let mut state = self.state.lock().unwrap();
        let named = state.containers.iter_mut().find(|(own, made)| *own == name || made.id == name);
        let answer = named.map(|(own, made)| with(own, made));
        drop(state);
        self.changed.send_modify(|n| *n += 1);
        answer
    }

    fn inspect(&self, name: &str) -> Answer {
        let zero = || "0001-01-01T00:00:00Z".to_owned();
        let time = |at: Option<Timestamp>| at.map_or_else(zero, |at| at.to_string());
        let told = self.with(name, |own, made| {
            let running = made.stage == "running";
            json!({
                "Id": made.id, "Name": format!("/{own}"),
                "State": {
                    "Status": made.stage, "Running": running, "Paused": false, "ExitCode": made.code,
                    "OOMKilled": made.oom, "StartedAt": time(made.started), "FinishedAt": time(made.finished),
                },
                "Config": {"Labels": made.body["Labels"], "StopSignal": match self.manners {
                    Manners::Docker => Value::Null,
                    Manners::Podman => json!(15),
                }},
            })
        });
        told.map_or_else(|| absent(name), |told| whole(StatusCode::OK, &told))
    }

    fn start(&self, name: &str) -> Answer {
        let begun = self.with(name, |own, made| {
            if made.stage != "created" {
                return Err(StatusCode::NOT_MODIFIED);
            }
            let words = made.body["Entrypoint"].as_array().unwrap().clone();
            if words[0] != "script" {
                return Err(StatusCode::BAD_REQUEST);
            }
            made.stage = "running";
            made.started = Some(Timestamp::now());
            Ok((own.to_owned(), words))
        });
        match begun {
            None => absent(name),
            Some(Err(StatusCode::NOT_MODIFIED)) => empty(StatusCode::NOT_MODIFIED),
            Some(Err(status)) => refused(status, "exec: executable file not found in $PATH"),
            Some(Ok((name, words))) => {
                self.state.lock().unwrap().starts.push(name.clone());
                tokio::spawn(self.clone().run(name, words));
                empty(StatusCode::NO_CONTENT)
            }
        }
    }

    /// The container's life.
    async fn run(self, name: String, words: Vec<Value>) {
        let mut code = 0;
        for step in words.iter().skip(1).map(|word| word.as_str().unwrap()) {
            let (verb, text) = step.split_once(' ').unwrap_or((step, ""));
            let say = |kind: u8, text: String| {
                self.with(&name, |_, made| made.log.push((kind, Timestamp::now(), text)));
            };
            match verb {
                "say" => say(1, format!("{text}\n")),
                "part" => say(1, text.to_owned()),
                "err" => say(2, format!("{text}\n")),
                "message" => {
                    self.with(&name, |_, made| {
                        let mounts = made.body["HostConfig"]["Mounts"].as_array().unwrap();
                        let target = |mount: &&Value| mount["Target"] == "/dev/termination-log";
                        let source =
                            mounts.iter().find(target).unwrap()["Source"].as_str().unwrap().to_owned();
                        std::fs::write(source, text).unwrap();
                    });
                }
                "wait" => self.until(&name, |made| made.may_go_on).await,
                "hang" => {
                    self.until(&name, |made| !made.signals.is_empty()).await;
                    let killed = self.with(&name, |_, made| made.signals.contains(&"SIGKILL".to_owned()));
                    code = if killed == Some(true) { 137 } else { 143 };
                }
                "deaf" => {
                    self.until(&name, |made| made.signals.contains(&"SIGKILL".to_owned())).await;
                    code = 137;
                }
                "oom" => {
                    self.with(&name, |_, made| made.oom = true);
                    code = 137;
                }
                "exit" => code = text.parse().unwrap(),
                _ => panic!("{step}"),
            }
        }
        self.with(&name, |_, made| {
            (made.stage, made.code, made.finished) = ("exited", code, Some(Timestamp::now()));
        });
    }

    /// Until a container is so, or gone.
    async fn until(&self, name: &str, so: impl Fn(&Made) -> bool) {
        let mut changed = self.changed.subscribe();
        let met = || {
            let state = self.state.lock().unwrap();
            state
                .containers
                .iter()
                .find(|(own, made)| *own == name || made.id == name)
                .is_none_or(|(_, made)| so(made))
        };
        while !met() {
            changed.changed().await.unwrap();
        }
    }

    fn kill(&self, name: &str, signal: &str) -> Answer {
        let killed = self.with(name, |_, made| {
            let running = made.stage == "running";
            if running {
                made.signals.push(signal.to_owned());
            }
            running
        });
        match killed {
            None => absent(name),
            Some(true) => empty(StatusCode::NO_CONTENT),
            Some(false) => refused(StatusCode::CONFLICT, &format!("Container {name} is not running")),
        }
    }

    async fn wait(&self, name: &str) -> Answer {
        if self.with(name, |_, _| ()).is_none() {
            return absent(name);
        }
        self.until(name, |made| made.stage != "running").await;
        // As an engine does for one that was removed while it ran.
        let code = self.with(name, |_, made| made.code).unwrap_or(137);
        whole(StatusCode::OK, &json!({"StatusCode": code, "Error": null}))
    }

    fn logs(&self, name: &str, query: &BTreeMap<String, String>) -> Answer {
        if self.with(name, |_, _| ()).is_none() {
            return absent(name);
        }
        let since = Timestamp::from_second(query["since"].parse().unwrap()).unwrap();
        let follow = query["follow"] == "1";
        let (served, name) = (self.clone(), name.to_owned());
        let lines = futures::stream::unfold((served, name, 0), move |(served, name, before)| async move {
            loop {
                let mut changed = served.changed.subscribe();
                let next = {
                    let state = served.state.lock().unwrap();
                    let made = state.containers.get(&name)?;
                    let lost =
                        |text: &str| follow && served.manners == Manners::Podman && text.starts_with("fast");
                    let told =
                        |(_, (_, at, text)): &(usize, &(u8, Timestamp, String))| *at >= since && !lost(text);
                    let later = made.log.iter().enumerate().skip(before).find(told);
                    // As Docker's: whoever follows is not told of a last line without an end.
                    let later = later.filter(|(_, (_, _, text))| !follow || text.ends_with('\n'));
                    let frame = later.map(|(index, line)| (index, served.frame(line)));
                    frame.ok_or(made.stage)
                };
                match next {
                    Ok((index, frame)) => return Some((frame, (served, name, index + 1))),
                    Err("running") if follow => changed.changed().await.ok()?,
                    Err(_) => return None,
                }
            }
        });
        let frames = lines.map(|frame| Ok::<_, Infallible>(Frame::data(frame)));
        Response::new(BodyExt::boxed(StreamBody::new(SyncStream(Mutex::new(Box::pin(frames))))))
    }

    fn frame(&self, (kind, at, text): &(u8, Timestamp, String)) -> Bytes {
        let line = match self.manners {
            Manners::Docker => format!("{at:.9} {text}"),
            Manners::Podman => format!("{} {text}", Timestamp::from_second(at.as_second()).unwrap()),
        };
        let mut frame = vec![*kind, 0, 0, 0];
        frame.extend(u32::try_from(line.len()).unwrap().to_be_bytes());
        frame.extend(line.as_bytes());
        Bytes::from(frame)
    }

    fn delete(&self, name: &str) -> Answer {
        let Some(name) = self.with(name, |own, _| own.to_owned()) else { return absent(name) };
        self.state.lock().unwrap().containers.remove(&name);
        self.changed.send_modify(|n| *n += 1);
        empty(StatusCode::NO_CONTENT)
    }
}

/// A boxed body must be shareable; this one is only ever read by one.
struct SyncStream<S>(Mutex<std::pin::Pin<Box<S>>>);

impl<S: futures::Stream> futures::Stream for SyncStream<S> {
    type Item = S::Item;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<S::Item>> {
        self.0.lock().unwrap().as_mut().poll_next(context)
    }
}

/// The first field of a container's order that no engine of this version has.
fn unknown(body: &Value) -> Option<String> {
    let top = ["Image", "Hostname", "User", "Env", "Entrypoint", "Cmd", "WorkingDir", "Labels", "HostConfig"];
    let host = [
        "NetworkMode",
        "IpcMode",
        "Mounts",
        "Memory",
        "MemorySwap",
        "CpuPeriod",
        "CpuQuota",
        "PidsLimit",
        "ReadonlyRootfs",
        "CapAdd",
        "CapDrop",
        "SecurityOpt",
        "GroupAdd",
        "LogConfig",
        "RestartPolicy",
    ];
    let mount = ["Type", "Source", "Target", "ReadOnly", "BindOptions"];
    let within = |value: &Value, known: &[&str]| {
        value.as_object().unwrap().keys().find(|key| !known.contains(&key.as_str())).cloned()
    };
    let mounts = body["HostConfig"]["Mounts"].as_array().unwrap();
    within(body, &top)
        .or_else(|| within(&body["HostConfig"], &host))
        .or_else(|| mounts.iter().find_map(|value| within(value, &mount)))
}

fn whole(status: StatusCode, value: &Value) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(value.to_string())).boxed());
    *answer.status_mut() = status;
    answer
}

fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::new()).boxed());
    *answer.status_mut() = status;
    answer
}

fn refused(status: StatusCode, message: &str) -> Answer {
    whole(status, &json!({"message": message}))
}

fn absent(name: &str) -> Answer {
    refused(StatusCode::NOT_FOUND, &format!("No such container: {name}"))
}
