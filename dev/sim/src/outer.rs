//! The outer simulator: the real loop on the in-process server, one thread, a clock that stands still until all wait.
//!
//! What the inner simulator replaces by its own steps is real here: informers, queue, back-off, expectations, requests
//! through `kube::Client`. Between client and server sits [`Faulty`]: it delays, loses, refuses and repeats, and it can
//! end the process that asked.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use jiff::SignedDuration;
use kube::client::Body;
use pawl_engine::Ports;
use pawl_engine::{Clock as _, Engine, VirtualClock};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::acting;
use crate::fault::{self, Fault};
use crate::ground::{DAWN, Ground, SharedTrace, SimEnv, request_line};
use crate::hub::{Fate, Hub, Mail, Weather};
use crate::inner::{Run, Setup};
use crate::kubelet;
use crate::oracle::{self, Oracle, Summary, Violation};
use crate::scenario::Scenario;

/// So long without a change, a world has settled: longer than the longest back-off, the slow resync and every deadline
/// that a scenario sets.
const SETTLED: Duration = Duration::from_mins(25);

/// Longer than the Repositories of all scenarios wait between two polls.
const POLLS: Duration = Duration::from_hours(7);

/// A world that has not settled by then does not converge.
const HORIZON: Duration = Duration::from_hours(24);

/// How soon people and nodes look again after something happened; the longer nothing does, the later. Only simulated
/// time passes, but each look takes real time.
const LOOK: Duration = Duration::from_secs(5);
const LONGEST_LOOK: Duration = Duration::from_mins(5);

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Reply = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// Runs a scenario once. Compared with the plain run only if `base` is given.
pub fn run(scenario: &Scenario, setup: &Setup, base: Option<&Summary>) -> Run {
    let setup = &setup.fit_for(scenario);
    let base = base.filter(|_| scenario.is_comparable(&setup.faults));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    match runtime {
        Ok(runtime) => runtime.block_on(play(scenario, setup, base)),
        Err(error) => Run {
            summary: Summary::default(),
            violations: vec![Violation { oracle: Oracle::Converges, what: format!("no runtime: {error}") }],
            requests: 0,
            changes: 0,
            used: Default::default(),
            trace_hash: String::new(),
            trace: Vec::new(),
            struck: Vec::new(),
            history: Vec::new(),
        },
    }
}

async fn play(scenario: &Scenario, setup: &Setup, base: Option<&Summary>) -> Run {
    let mut ground = Ground::new(scenario.own_kinds, setup.keep_trace).with_hub(scenario.github);
    let clock = Arc::new(VirtualClock::starting_at(DAWN));
    ground.env.follow(Arc::clone(&clock) as Arc<dyn pawl_engine::Clock>);
    let shared = Arc::new(Shared {
        setup: setup.clone(),
        trace: ground.trace().clone(),
        clock: Arc::clone(&clock),
        crashes: (0..2).map(|_| Notify::new()).collect(),
        state: Mutex::new(State {
            rng: fastrand::Rng::with_seed(setup.seed),
            requests: 0,
            last_write: Instant::now(),
            gone: [false; 2],
            duplicate: [false; 2],
        }),
    });
    let mut replicas = tokio::task::JoinSet::new();
    // GitHub compares and swaps nothing: only who leads acts there, and there is no election in this world.
    let most = if scenario.github.is_some() { 1 } else { 2 };
    for index in 0..setup.replicas.clamp(1, most) {
        let home =
            Home { server: ground.server.clone(), hub: ground.hub.clone(), env: Arc::clone(&ground.env) };
        replicas.spawn(keep_running(index, scenario.machines, home, Arc::clone(&shared)));
    }
    let mut violations = live(scenario, &mut ground, &shared).await;
    replicas.shutdown().await;
    ground.catch_up();
    let summary = Summary::of(&ground);
    if violations.is_empty() {
        violations = oracle::judge(scenario, &ground, &summary, base);
    }
    let (trace_hash, trace) = (ground.trace().hash(), ground.trace().lines());
    let requests = shared.state().requests;
    let changes = ground.history.len();
    let (struck, history, used) = (ground.trace().struck(), ground.kept_history(), Default::default());
    Run { summary, violations, requests, changes, used, trace_hash, trace, struck, history }
}

/// People and nodes do what they do until the world has settled.
async fn live(scenario: &Scenario, ground: &mut Ground, shared: &Shared) -> Vec<Violation> {
    let mut script: std::collections::VecDeque<_> = (scenario.script)().into();
    let start = Instant::now();
    // What a webhook did not tell, the next poll finds out.
    let polls = if scenario.github.is_some() { POLLS } else { Duration::ZERO };
    let settled = SETTLED + polls + fault::set_back(&shared.setup.faults);
    let (mut seen, mut changed) = (ground.revision(), Instant::now());
    let mut mail = Mail::default();
    let mut look = LOOK;
    loop {
        ground.catch_up();
        if ground.revision() != seen {
            (seen, changed) = (ground.revision(), Instant::now());
            look = LOOK;
        }
        let moves: Vec<_> = kubelet::movable(ground).cloned().collect();
        let ready = script.front().is_some_and(|deed| (deed.when)(ground));
        let mails = mail.due(ground.now());
        let choices = moves.len() + mails + usize::from(ready);
        if choices == 0 {
            // A webhook that is a day late is lost here; the inner simulator waits for it.
            if changed.elapsed() > settled {
                break;
            }
            if start.elapsed() > HORIZON {
                let what = format!("still busy after {HORIZON:?}");
                return vec![Violation { oracle: Oracle::Converges, what }];
            }
            sleep(look).await;
            look = LONGEST_LOOK.min(look * 2);
            continue;
        }
        let (pause, pick) = {
            let mut state = shared.state();
            (Duration::from_millis(state.rng.u64(1..40)), state.rng.usize(0..choices))
        };
        let in_mail = pick.checked_sub(moves.len());
        match (moves.into_iter().nth(pick), in_mail) {
            (Some(pod), _) => {
                let request = kubelet::step(ground, &pod);
                ground.send("node", request);
            }
            (None, Some(which)) if which < mails => {
                let fate =
                    if shared.setup.seed == 0 { Fate::Arrives } else { Fate::drawn(&mut shared.state().rng) };
                let (now, view) = (ground.now(), ground.view());
                for nudge in mail.take(which, fate, &view, now) {
                    ground.send("webhook", nudge);
                }
            }
            (None, _) => {
                if let Some(deed) = script.pop_front()
                    && let Err(what) = deed.perform(ground)
                {
                    return vec![Violation { oracle: Oracle::EndsWell, what }];
                }
                if let Some(hub) = &ground.hub {
                    mail.collect(hub, ground.now());
                }
            }
        }
        sleep(pause).await;
    }
    let mut violations = Vec::new();
    if !script.is_empty() {
        let what = format!("{} deeds were never possible", script.len());
        violations.push(Violation { oracle: Oracle::Converges, what });
    }
    // The slow resync has passed in the meantime, and has had nothing to say either.
    let silent = shared.state().last_write.elapsed();
    if silent < settled {
        let what = format!("a write was tried {silent:?} ago, long after the last change");
        violations.push(Violation { oracle: Oracle::Quiet, what });
    }
    violations
}

/// One process: it runs, dies when a fault says so, and starts again.
async fn keep_running(
    index: usize,
    machines: fn(crate::mutant::Guards) -> Vec<pawl_machines::machine::AnyMachine>,
    home: Home,
    shared: Arc<Shared>,
) {
    loop {
        let faulty = Faulty { inner: home.server.service(), replica: index, shared: Arc::clone(&shared) };
        let guards = shared.setup.guards;
        let engine = Engine::builder(kube::Client::new(faulty, "default"))
            .machines(machines(guards))
            .clock(Arc::clone(&shared.clock) as Arc<dyn pawl_engine::Clock>)
            .ports(home.ports(index, &shared))
            .seed(shared.setup.seed.wrapping_add(index as u64))
            .build();
        let Ok(engine) = engine else { return };
        let Some(crash) = shared.crashes.get(index) else { return };
        tokio::select! {
            _ = engine.run(std::future::pending()) => return,
            () = crash.notified() => {}
        }
        let pause = Duration::from_millis(shared.state().rng.u64(1..5_000));
        sleep(pause).await;
    }
}

/// Where a replica lives.
struct Home {
    server: pawl_apiserver::Server,
    hub: Option<Hub>,
    env: Arc<SimEnv>,
}

impl Home {
    fn ports(&self, replica: usize, shared: &Arc<Shared>) -> Ports {
        match &self.hub {
            Some(hub) => {
                let weather = Arc::new(WeatherOf { replica, shared: Arc::clone(shared) });
                hub.ports(&self.env, &self.server, weather, shared.trace.clone(), shared.setup.guards)
            }
            None => {
                let weather = Arc::new(WeatherOf { replica, shared: Arc::clone(shared) });
                let (trace, guards) = (shared.trace.clone(), shared.setup.guards);
                acting::ports(&self.server, &self.env, weather, trace, guards)
            }
        }
    }
}

/// The weather between one replica and GitHub.
#[derive(Debug)]
struct WeatherOf {
    replica: usize,
    shared: Arc<Shared>,
}

impl Weather for WeatherOf {
    fn strike(&self) -> Option<Fault> {
        self.shared.next().1
    }

    fn crash(&self) -> BoxFuture<'static, ()> {
        if let Some(crash) = self.shared.crashes.get(self.replica) {
            crash.notify_one();
        }
        Box::pin(std::future::pending())
    }

    fn jump(&self, by: SignedDuration) {
        self.shared.clock.jump(by);
    }
}

/// What all replicas of one world share.
#[derive(Debug)]
struct Shared {
    setup: Setup,
    trace: SharedTrace,
    clock: Arc<VirtualClock>,
    crashes: Vec<Notify>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rng: fastrand::Rng,
    requests: u32,
    last_write: Instant,
    /// Per replica: its watches are to end with 410.
    gone: [bool; 2],
    /// Per replica: its next watch event comes twice.
    duplicate: [bool; 2],
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request: its number, and what befalls it.
    fn next(&self) -> (u32, Option<Fault>) {
        let mut state = self.state();
        let at = state.requests;
        state.requests += 1;
        let fault = self.setup.faults.iter().find(|injection| injection.at == at);
        (at, fault.map(|injection| injection.fault))
    }

    fn take(&self, replica: usize, flags: fn(&mut State) -> &mut [bool; 2]) -> bool {
        flags(&mut self.state()).get_mut(replica).is_some_and(std::mem::take)
    }

    fn raise(&self, replica: usize, flags: fn(&mut State) -> &mut [bool; 2]) {
        if let Some(flag) = flags(&mut self.state()).get_mut(replica) {
            *flag = true;
        }
    }
}

/// The wire between one replica and the server.
#[derive(Clone, Debug)]
struct Faulty {
    inner: pawl_apiserver::Service,
    replica: usize,
    shared: Arc<Shared>,
}

impl tower::Service<Request<Body>> for Faulty {
    type Response = Reply;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Reply, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let wire = self.clone();
        Box::pin(async move {
            let query = request.uri().query().unwrap_or_default();
            if query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1")) {
                wire.watch(request).await
            } else {
                wire.ask(request).await
            }
        })
    }
}

impl Faulty {
    /// One request and its answer, through whatever fault waits there.
    async fn ask(self, request: Request<Body>) -> Result<Reply, BoxError> {
        let Self { replica, shared, .. } = &self;
        let write = request.method() != Method::GET;
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        let line = request_line(&format!("replica {replica}"), &parts.method, &parts.uri, &body);
        let request = Request::from_parts(parts, Body::from(body));
        let (there, back) = {
            let mut state = shared.state();
            (Duration::from_millis(state.rng.u64(0..30)), Duration::from_millis(state.rng.u64(0..30)))
        };
        sleep(there).await;
        if write {
            shared.state().last_write = Instant::now();
        }
        let (at, fault) = shared.next();
        if let Some(fault) = fault {
            shared.trace.line(|| format!("fault at {at}: {fault}"));
            shared.trace.strike(fault, format!("{} {}", request.method(), request.uri()));
        }
        let carry_out = |request| self.send(request, &line);
        let reply = match fault {
            None => carry_out(request).await,
            Some(Fault::CrashBefore) => return self.crash().await,
            Some(Fault::CrashAfter) => {
                carry_out(request).await?;
                return self.crash().await;
            }
            Some(Fault::ReplyLost) => {
                carry_out(request).await?;
                Err("injected: the reply was lost".into())
            }
            Some(Fault::Timeout) => Err("injected: timed out".into()),
            Some(Fault::Conflict) => Ok(refusal(409, "Conflict", "")),
            Some(Fault::TooManyRequests) => {
                Ok(refusal(429, "TooManyRequests", r#","details":{"retryAfterSeconds":1}"#))
            }
            Some(Fault::ServerError) => Ok(refusal(500, "InternalError", "")),
            Some(Fault::ServerErrorAfterwards) => {
                carry_out(request).await?;
                Ok(refusal(500, "InternalError", ""))
            }
            Some(Fault::Gone) => {
                shared.raise(*replica, |state| &mut state.gone);
                carry_out(request).await
            }
            Some(Fault::Duplicate) => {
                shared.raise(*replica, |state| &mut state.duplicate);
                carry_out(request).await
            }
            Some(Fault::ClockJump { seconds }) => {
                shared.clock.jump(SignedDuration::from_secs(seconds.into()));
                carry_out(request).await
            }
        };
        sleep(back).await;
        reply
    }

    async fn send(&self, request: Request<Body>, line: &str) -> Result<Reply, BoxError> {
        let response = tower::ServiceExt::oneshot(self.inner.clone(), request).await?;
        let (code, now) = (response.status().as_u16(), self.shared.clock.now());
        self.shared.trace.line(|| format!("{now} {line} -> {code}"));
        Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
    }

    async fn crash(&self) -> Result<Reply, BoxError> {
        if let Some(crash) = self.shared.crashes.get(self.replica) {
            crash.notify_one();
        }
        std::future::pending().await
    }

    /// A watch whose events come late, sometimes twice, and which may end in the middle.
    async fn watch(self, request: Request<Body>) -> Result<Reply, BoxError> {
        let response = tower::ServiceExt::oneshot(self.inner.clone(), request).await?;
        let (parts, body) = response.into_parts();
        let frames: BoxStream<'static, Bytes> =
            body.into_data_stream().filter_map(|frame| async move { frame.ok() }).boxed();
        let stream = futures::stream::unfold((self, frames, None::<Bytes>, false), |state| async move {
            let (wire, mut frames, again, ended) = state;
            if ended {
                return None;
            }
            if let Some(frame) = again {
                return Some((frame, (wire, frames, None, false)));
            }
            let frame = frames.next().await?;
            let late = Duration::from_millis(wire.shared.state().rng.u64(0..150));
            sleep(late).await;
            if wire.shared.take(wire.replica, |state| &mut state.gone) {
                let gone = Bytes::from_static(GONE);
                return Some((gone, (wire, frames, None, true)));
            }
            let again = wire.shared.take(wire.replica, |state| &mut state.duplicate).then(|| frame.clone());
            Some((frame, (wire, frames, again, false)))
        });
        let body = StreamBody::new(stream.map(|frame| Ok::<_, BoxError>(Frame::data(frame)))).boxed_unsync();
        Ok(Response::from_parts(parts, body))
    }
}

const GONE: &[u8] =
    b"{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\
\"status\":\"Failure\",\"message\":\"too old resource version\",\"reason\":\"Expired\",\"code\":410}}\n";

fn refusal(code: u16, reason: &str, details: &str) -> Reply {
    let body = format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","reason":"{reason}","message":"injected","code":{code}{details}}}"#
    );
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}
