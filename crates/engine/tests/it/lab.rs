//! A cluster on a bench: the in-process server behind a tap that records every request and can spoil any answer.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use pawl_api::meta::Kind;
use pawl_apiserver::{SeededEnv, Server, Service};
use pawl_engine::{Engine, VirtualClock, engine};
use pawl_machines::machine::{AnyMachine, Depth, Description, Machine, Primary, Watch};
use pawl_machines::plan::{Adopt, Plan, Step};
use pawl_machines::view;
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep};

pub(crate) const CONFIG_MAP: Kind = Kind::of("", "v1", "ConfigMap", "configmaps", true);
pub(crate) const SECRET: Kind = Kind::of("", "v1", "Secret", "secrets", true);

type Error = Box<dyn std::error::Error + Send + Sync>;
type Rule = Box<dyn FnMut(&Asked) -> Spoil + Send>;

/// What is done to an answer.
pub(crate) enum Spoil {
    Nothing,
    /// Instead of asking the server.
    Say(u16, String),
    /// The server does it, and the answer is lost.
    Lose,
    /// Every part of the answer comes this much later.
    Lag(Duration),
    /// The stream breaks in the middle of this part.
    CutInside(usize),
    /// A line that no server would send comes before this part.
    Babble(usize, &'static str),
}

/// A request, as a rule sees it.
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) uri: String,
}

impl Asked {
    pub(crate) fn is_watch(&self, plural: &str) -> bool {
        self.uri.contains("watch=1") && self.uri.contains(&format!("/{plural}?"))
    }

    pub(crate) fn is_write(&self) -> bool {
        self.method != "GET"
    }
}

#[derive(Clone)]
pub(crate) struct Tap {
    inner: Service,
    state: Arc<TapState>,
}

struct TapState {
    start: Instant,
    log: Mutex<Vec<String>>,
    rule: Mutex<Rule>,
    /// Not a `watch` channel: that wakes in an order drawn by lot.
    cut: Arc<Notify>,
    in_flight: AtomicUsize,
    most_in_flight: AtomicUsize,
}

/// The bench.
pub(crate) struct Lab {
    pub(crate) server: Server,
    pub(crate) clock: Arc<VirtualClock>,
    tap: Tap,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let epoch = Timestamp::from_second(1_800_000_000).unwrap();
        let server = Server::in_memory(Arc::new(SeededEnv::new(1, epoch)));
        let state = TapState {
            start: Instant::now(),
            log: Mutex::default(),
            rule: Mutex::new(Box::new(|_| Spoil::Nothing)),
            cut: Arc::default(),
            in_flight: AtomicUsize::new(0),
            most_in_flight: AtomicUsize::new(0),
        };
        let tap = Tap { inner: server.service(), state: Arc::new(state) };
        Self { server, clock: Arc::new(VirtualClock::starting_at(epoch)), tap }
    }

    pub(crate) fn engine(&self, machines: impl IntoIterator<Item = AnyMachine>) -> engine::Builder {
        let client = kube::Client::new(self.tap.clone(), "default");
        Engine::builder(client).machines(machines).clock(self.clock.clone()).seed(7)
    }

    /// Runs a loop until what is returned is dropped or stopped.
    pub(crate) fn run(&self, engine: &Engine) -> Running {
        let (stop, stopped) = oneshot::channel::<()>();
        let engine = engine.clone();
        let shutdown = async {
            let _ = stopped.await;
        };
        Running { stop, task: tokio::spawn(async move { engine.run(shutdown).await }) }
    }

    pub(crate) fn spoil(&self, rule: impl FnMut(&Asked) -> Spoil + Send + 'static) {
        *self.tap.state.rule.lock().unwrap() = Box::new(rule);
    }

    /// Breaks every stream that is open.
    pub(crate) fn cut(&self) {
        self.tap.state.cut.notify_waiters();
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.tap.state.log.lock().unwrap().clone()
    }

    pub(crate) fn writes(&self) -> Vec<String> {
        self.log().into_iter().filter(|line| !line.contains(" GET ")).collect()
    }

    pub(crate) fn most_in_flight(&self) -> usize {
        self.tap.state.most_in_flight.load(Ordering::SeqCst)
    }

    pub(crate) fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(method).uri(path).header("content-type", content);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.server.call(request.body(Bytes::from(body)).unwrap());
        let value: Value = serde_json::from_slice(answer.body()).unwrap();
        assert!(answer.status().is_success(), "{method} {path}: {value}");
        value
    }

    pub(crate) fn config_map(&self, name: &str, data: Value) -> Value {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
        self.call("POST", "/api/v1/namespaces/default/configmaps", &body)
    }

    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let list = self.call("GET", path, &Value::Null);
        let items = list["items"].as_array().unwrap();
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn secrets(&self) -> Vec<String> {
        self.names("/api/v1/namespaces/default/secrets")
    }
}

/// A loop that runs.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<pawl_engine::Stopped>,
}

impl Running {
    /// As a process that is killed: nothing is finished.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }

    pub(crate) async fn stop(self) -> pawl_engine::Stopped {
        let _ = self.stop.send(());
        self.task.await.unwrap()
    }
}

/// Waits, in virtual time, until something holds; a minute is forever here.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if holds() {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}

/// Keeps one Secret per ConfigMap. What is in the ConfigMap makes it behave badly: `panic`, `wants` (how many).
pub(crate) struct Keeper {
    /// Names differ between decisions, so that doing a thing twice shows.
    pub(crate) counter: Option<AtomicUsize>,
}

pub(crate) fn keeper() -> AnyMachine {
    AnyMachine::new(Keeper { counter: None })
}

impl Machine for Keeper {
    type Kind = ConfigMap;
    type Status = Value;

    fn description(&self) -> Description {
        Description {
            name: "keeper",
            primary: Primary::One(CONFIG_MAP),
            depth: Depth::Full,
            watches: vec![Watch::owned(SECRET).metadata_only()],
            finalizer: None,
            phases: None,
            writes: vec![],
        }
    }

    fn reconcile(&self, cx: &view::Context<'_, ConfigMap>) -> Plan<Value> {
        let data = cx.typed.data.clone().unwrap_or_default();
        assert!(!data.contains_key("panic"), "told to panic");
        let wants: usize = data.get("wants").map_or(1, |text| text.parse().unwrap());
        let children = cx.view.owned(&SECRET, cx.object.uid());
        if children.len() >= wants || !cx.refusals.is_empty() {
            return Plan::rest();
        }
        (children.len()..wants).fold(Plan::rest(), |plan, number| {
            let number = self.counter.as_ref().map_or(number, |count| count.fetch_add(1, Ordering::SeqCst));
            let name = format!("{}-{number}", cx.object.name());
            let manifest = json!({"metadata": {"name": name, "namespace": "default",
                "ownerReferences": [cx.object.controller_reference()]}});
            let adopt = Adopt::ControlledBy(cx.object.uid().to_owned());
            plan.then(Step::Create { kind: SECRET, manifest, adopt })
        })
    }
}

impl tower::Service<Request<Body>> for Tap {
    type Response = Response<UnsyncBoxBody<Bytes, Error>>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (mut inner, state) = (self.inner.clone(), Arc::clone(&self.state));
        let asked = Asked { method: request.method().to_string(), uri: request.uri().to_string() };
        Box::pin(async move {
            let at = state.start.elapsed();
            state.log.lock().unwrap().push(format!("{at:?} {} {}", asked.method, asked.uri));
            let spoil = (state.rule.lock().unwrap())(&asked);
            if let Spoil::Say(code, text) = spoil {
                let body = Full::new(Bytes::from(text)).map_err(|never: Infallible| match never {});
                return Ok(Response::builder().status(code).body(body.boxed_unsync())?);
            }
            if let (Spoil::Lag(lag), false) = (&spoil, asked.uri.contains("watch=1")) {
                let flying = state.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
                state.most_in_flight.fetch_max(flying, Ordering::SeqCst);
                sleep(*lag).await;
                state.in_flight.fetch_sub(1, Ordering::SeqCst);
            }
            let response = inner.call(request).await.unwrap_or_else(|never| match never {});
            if matches!(spoil, Spoil::Lose) {
                return Err("the connection broke".into());
            }
            let cut = Arc::clone(&state.cut);
            Ok(response.map(|body| spoiled(body, spoil, cut)))
        })
    }
}

fn spoiled(
    body: pawl_apiserver::ResponseBody,
    spoil: Spoil,
    cut: Arc<Notify>,
) -> UnsyncBoxBody<Bytes, Error> {
    let parts = stream::unfold((body, spoil, cut, 0_usize), |(mut body, spoil, cut, number)| async move {
        if matches!(spoil, Spoil::CutInside(at) if at < number) {
            return Some((Err("cut inside".into()), (body, spoil, cut, number)));
        }
        let part = tokio::select! {
            biased;
            () = cut.notified() => None,
            part = body.frame() => Some(part?),
        };
        let Some(Ok(part)) = part else {
            return Some((Err("cut".into()), (body, spoil, cut, number)));
        };
        let data = part.into_data().unwrap_or_default();
        let part = match spoil {
            Spoil::Lag(lag) => {
                sleep(lag).await;
                Ok(data)
            }
            Spoil::CutInside(at) if at == number => Ok(data.slice(..data.len() / 2)),
            Spoil::Babble(at, line) if at == number => Ok([line.as_bytes(), b"\n", &data].concat().into()),
            Spoil::Nothing | Spoil::Say(..) | Spoil::Lose | Spoil::CutInside(_) | Spoil::Babble(..) => {
                Ok(data)
            }
        };
        Some((part.map(Frame::data), (body, spoil, cut, number + 1)))
    });
    StreamBody::new(parts).boxed_unsync()
}
