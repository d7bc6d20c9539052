//! The GitHub of a simulated world: the stateful fake behind a wire on which everything can go wrong.
//!
//! ```text
//!  people ──push, comment──▶ fake ◀──contract check── faulty wire ◀── port (one per replica) ◀── machines
//!                              └──▶ webhooks: lost, doubled, out of order, a day late ──▶ nudges
//! ```
//! Requests to GitHub are counted together with those to the API server, so one list of faults covers both.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use jiff::{SignedDuration, Timestamp};
use pawl_api::git::repository::AGGREGATE_CHECK;
use pawl_api::k8s::SECRET;
use pawl_apiserver::Server;
use pawl_engine::{Clock, Ports};
use pawl_integrations::github::contract::{self, Findings};
use pawl_integrations::github::fake::{self, Delivery, Fake};
use pawl_integrations::github::port::{Port, SecretData, Secrets, secret};
use pawl_integrations::logs::shown;
use pawl_integrations::mask::Mask;
use pawl_integrations::transport::{Broken, REQUEST_TIMEOUT, Transport};
use pawl_machines::failure::Failure;
use pawl_machines::git::delivery::{self, Nudge};
use pawl_machines::git::github;
use pawl_machines::logs::Logs;
use pawl_machines::object::Key;
use pawl_machines::view::View;

use crate::fault::Fault;
use crate::ground::{SharedTrace, SimEnv, request, request_line};
use crate::mutant::{Guard, Guards};

/// The repositories of all scenarios.
pub const REPOSITORIES: &[&str] = &["acme/infra", "someone/infra"];

/// The Secret with which all scenarios go to GitHub.
pub const CREDENTIALS: &str = "credentials";

/// What a Job's Secret holds, and its log tries to tell.
pub const POD_SECRET: &str = "obviously-fake-canary-of-a-job";

/// How late a late webhook is.
const LATE: SignedDuration = SignedDuration::from_hours(24);

/// A GitHub, and what was found wrong with what it was asked.
#[derive(Clone, Debug)]
pub struct Hub {
    pub fake: Fake,
    pub findings: Findings,
    transport: Transport,
}

impl Hub {
    pub fn new(env: &Arc<SimEnv>) -> Self {
        let fake = Fake::new(Arc::new(Wall(Arc::clone(env))));
        let (transport, findings) = contract::checked(fake.transport());
        Self { fake, findings, transport }
    }

    /// The way there without faults.
    pub fn transport(&self) -> Transport {
        self.transport.clone()
    }

    /// The ports of one replica, with a memory of their own.
    pub fn ports(
        &self,
        env: &Arc<SimEnv>,
        server: &Server,
        weather: Arc<dyn Weather>,
        trace: SharedTrace,
        guards: Guards,
    ) -> Ports {
        let wire = FaultyWire { inner: self.transport.clone(), weather, trace, guards };
        let secrets = FromStore(server.clone());
        let github =
            Port::new(Arc::new(secrets.clone()), Transport::new(wire), Arc::new(Wall(Arc::clone(env))));
        Ports::default()
            .with::<github::Call>(Arc::new(github))
            .with::<Logs>(Arc::new(FakeLogs { secrets, guards }))
    }
}

/// What the oracles ask.
impl Hub {
    /// Check runs that never concluded.
    pub fn unfinished(&self) -> Vec<String> {
        let runs = self.repositories().flat_map(|repository| repository.check_runs());
        runs.filter(|run| run.status != "completed").map(|run| format!("{run:?}")).collect()
    }

    /// The commits that have a check which stands for all others, where there are check runs at all.
    pub fn aggregated(&self) -> Option<BTreeSet<String>> {
        let runs: Vec<_> = self.repositories().flat_map(|repository| repository.check_runs()).collect();
        let aggregates = runs.iter().filter(|run| run.name == AGGREGATE_CHECK);
        (!runs.is_empty()).then(|| aggregates.map(|run| run.head_sha.clone()).collect())
    }

    /// Everything that GitHub shows to people.
    pub fn told(&self) -> Vec<String> {
        let runs = self.repositories().flat_map(|repository| repository.check_runs());
        let journal = self.fake.journal().into_iter().map(|applied| format!("{applied:?}"));
        runs.map(|run| format!("{run:?}")).chain(journal).collect()
    }

    /// Texts that must be nowhere but in Secrets: the credentials, and what was minted from them.
    pub fn canaries(&self) -> Vec<String> {
        let key_line = fake::APP_KEY_PKCS8.lines().nth(1).unwrap_or_default().to_owned();
        vec![fake::TOKEN.to_owned(), key_line, POD_SECRET.to_owned()]
    }

    fn repositories(&self) -> impl Iterator<Item = fake::Repo> {
        REPOSITORIES.iter().filter_map(|name| self.fake.repository(name))
    }
}

/// What befalls requests to GitHub.
pub trait Weather: Send + Sync + std::fmt::Debug {
    /// Counts the request, and says what goes wrong with it.
    fn strike(&self) -> Option<Fault>;

    /// The process dies. What is still running of it gets no answer any more, or only broken ones.
    fn crash(&self) -> BoxFuture<'static, ()>;

    fn jump(&self, by: SignedDuration);
}

/// Wall time of the simulated world.
#[derive(Debug)]
struct Wall(Arc<SimEnv>);

impl Clock for Wall {
    fn now(&self) -> Timestamp {
        pawl_apiserver::Env::now(&*self.0)
    }
}

#[derive(Debug)]
struct FakeLogs {
    secrets: FromStore,
    guards: Guards,
}

impl pawl_engine::Port<Logs> for FakeLogs {
    fn call<'a>(&'a self, logs: &'a Logs) -> BoxFuture<'a, Result<String, Failure>> {
        Box::pin(self.log(logs))
    }
}

impl FakeLogs {
    /// A container that has a Secret writes it into its log, as badly as can be.
    async fn log(&self, logs: &Logs) -> Result<String, Failure> {
        let key = if logs.mask.is_empty() { "not here" } else { POD_SECRET };
        let log = format!("what {} wrote\nthe key is {key}, do not tell\n", logs.container);
        let mut values = Vec::new();
        for key in logs.mask.iter().filter(|_| self.guards.has(Guard::LogMask)) {
            values.extend(self.secrets.read(key).await?.data.into_values());
        }
        Ok(shown(log.as_bytes(), &Mask::of(values.iter().map(Vec::as_slice)), logs.tail_bytes))
    }
}

/// Secrets as they are on the server at this moment.
#[derive(Clone, Debug)]
struct FromStore(Server);

impl Secrets for FromStore {
    fn read<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<SecretData, Failure>> {
        let attempt = format!("get Secret {key}");
        let path = SECRET.path(key.namespace.as_deref(), Some(&key.name));
        let asked = request(Method::GET, &path, "application/json", &serde_json::Value::Null);
        let response = self.0.call(asked.map(Bytes::from));
        let answer = match response.status().as_u16() {
            200 => secret(response.body()).map_err(|error| Failure::unanswered(attempt, error)),
            code => Err(Failure::answered(attempt, code, None, response.body())),
        };
        Box::pin(std::future::ready(answer))
    }
}

#[derive(Clone, Debug)]
struct FaultyWire {
    inner: Transport,
    weather: Arc<dyn Weather>,
    trace: SharedTrace,
    guards: Guards,
}

impl tower::Service<Request<Bytes>> for FaultyWire {
    type Response = Response<Bytes>;
    type Error = Broken;
    type Future = BoxFuture<'static, Result<Response<Bytes>, Broken>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let mut wire = self.clone();
        Box::pin(async move {
            let fault = wire.weather.strike();
            let line = request_line("github", request.method(), request.uri(), request.body());
            wire.trace
                .line(|| fault.map_or_else(|| line.clone(), |fault| format!("{line} (fault: {fault})")));
            if let Some(fault) = fault {
                wire.trace.strike(fault, format!("{} {}", request.method(), request.uri()));
            }
            if !wire.guards.has(Guard::ExternalIdLookUp) && lists_check_runs(&request) {
                return Ok(respond(200, &serde_json::json!({"total_count": 0, "check_runs": []})));
            }
            match fault {
                None | Some(Fault::Gone | Fault::Duplicate) => wire.inner.call(request).await,
                Some(Fault::ClockJump { seconds }) => {
                    wire.weather.jump(SignedDuration::from_secs(seconds.into()));
                    wire.inner.call(request).await
                }
                Some(Fault::CrashBefore) => {
                    wire.weather.crash().await;
                    Err(Broken::Lost("the process died".to_owned()))
                }
                Some(Fault::CrashAfter) => {
                    let _ = wire.inner.call(request).await;
                    wire.weather.crash().await;
                    Err(Broken::Lost("the process died".to_owned()))
                }
                Some(Fault::ReplyLost) => {
                    let _ = wire.inner.call(request).await;
                    Err(Broken::Lost("injected: connection reset".to_owned()))
                }
                Some(Fault::Timeout) => Err(Broken::TimedOut(REQUEST_TIMEOUT)),
                Some(Fault::TooManyRequests) => Ok(answer(403, Some("1"))),
                Some(Fault::ServerError | Fault::Conflict) => Ok(answer(502, None)),
                Some(Fault::ServerErrorAfterwards) => {
                    let _ = wire.inner.call(request).await;
                    Ok(answer(500, None))
                }
            }
        })
    }
}

fn lists_check_runs(request: &Request<Bytes>) -> bool {
    request.method() == Method::GET && request.uri().path().ends_with("/check-runs")
}

fn answer(code: u16, retry_after: Option<&'static str>) -> Response<Bytes> {
    let message =
        if retry_after.is_some() { "You have exceeded a secondary rate limit" } else { "Server Error" };
    let body = serde_json::json!({"message": message, "documentation_url": "https://docs.github.com/rest"});
    let mut response = respond(code, &body);
    if let Some(seconds) = retry_after {
        response.headers_mut().insert("retry-after", http::HeaderValue::from_static(seconds));
    }
    response
}

fn respond(code: u16, body: &serde_json::Value) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body.to_string()));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}

/// Webhooks on their way.
#[derive(Debug, Default)]
pub struct Mail {
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    from: Timestamp,
    delivery: Delivery,
    /// It was late once, and is not again: a world in which it always is never settles.
    was_late: bool,
}

/// What became of one webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Arrives,
    /// It arrives, and will arrive again.
    Doubled,
    Lost,
    Late,
}

impl Fate {
    /// Of eight, one is lost, one doubled and one late.
    pub fn drawn(rng: &mut fastrand::Rng) -> Self {
        match rng.u8(0..8) {
            0 => Self::Lost,
            1 => Self::Doubled,
            2 => Self::Late,
            _ => Self::Arrives,
        }
    }
}

impl Mail {
    /// Takes what GitHub would send now.
    pub fn collect(&mut self, hub: &Hub, now: Timestamp) {
        let sent = hub.fake.take_deliveries().into_iter();
        self.waiting.extend(sent.map(|delivery| Waiting { from: now, delivery, was_late: false }));
    }

    /// How many could arrive now.
    pub fn due(&self, now: Timestamp) -> usize {
        self.waiting.iter().filter(|waiting| waiting.from <= now).count()
    }

    pub fn next(&self) -> Option<Timestamp> {
        self.waiting.iter().map(|waiting| waiting.from).min()
    }

    /// One of those due arrives, or does not: what is to be written because of it.
    pub fn take(
        &mut self,
        which: usize,
        fate: Fate,
        view: &dyn View,
        now: Timestamp,
    ) -> Vec<Request<Vec<u8>>> {
        let due = self.waiting.iter().enumerate().filter(|(_, waiting)| waiting.from <= now);
        let Some(place) = due.map(|(place, _)| place).nth(which) else { return Vec::new() };
        let Waiting { delivery: sent, was_late, .. } = self.waiting.remove(place);
        match fate {
            Fate::Lost => return Vec::new(),
            Fate::Late if !was_late => {
                let from = now.checked_add(LATE).unwrap_or(now);
                self.waiting.push(Waiting { from, delivery: sent, was_late: true });
                return Vec::new();
            }
            Fate::Doubled => self.waiting.push(Waiting { from: now, delivery: sent.clone(), was_late }),
            Fate::Arrives | Fate::Late => {}
        }
        let Ok(asked) = delivery::read(sent.event, &sent.body) else { return Vec::new() };
        delivery::nudges(&asked, &sent.id, view, now).iter().map(nudge_request).collect()
    }
}

fn nudge_request(Nudge { target, patch }: &Nudge) -> Request<Vec<u8>> {
    let path = target.kind.path(target.key.namespace.as_deref(), Some(&target.key.name));
    request(Method::PATCH, &path, "application/merge-patch+json", patch)
}

/// Counts requests and remembers that the process died: the weather of the inner simulator.
#[derive(Debug)]
pub struct Sky {
    state: Mutex<SkyState>,
    env: Arc<SimEnv>,
}

#[derive(Debug, Default)]
struct SkyState {
    faults: Vec<crate::fault::Injection>,
    requests: u32,
    crashed: bool,
    jumped: bool,
}

impl Sky {
    pub fn new(faults: &[crate::fault::Injection], env: &Arc<SimEnv>) -> Arc<Self> {
        let state = SkyState { faults: faults.to_vec(), ..SkyState::default() };
        Arc::new(Self { state: Mutex::new(state), env: Arc::clone(env) })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, SkyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request: its number, and what befalls it.
    pub fn next(&self) -> (u32, Option<Fault>) {
        let mut state = self.state();
        let at = state.requests;
        state.requests += 1;
        let fault = state.faults.iter().find(|injection| injection.at == at).map(|injection| injection.fault);
        (at, fault)
    }

    pub fn requests(&self) -> u32 {
        self.state().requests
    }

    /// Whether the process that asked last died of it.
    pub fn take_crash(&self) -> bool {
        std::mem::take(&mut self.state().crashed)
    }

    /// Whether the clock was set meanwhile.
    pub fn take_jump(&self) -> bool {
        std::mem::take(&mut self.state().jumped)
    }
}

impl Weather for Sky {
    fn strike(&self) -> Option<Fault> {
        // Who is dead sends nothing.
        if self.state().crashed {
            return Some(Fault::Timeout);
        }
        self.next().1
    }

    fn crash(&self) -> BoxFuture<'static, ()> {
        self.state().crashed = true;
        Box::pin(std::future::ready(()))
    }

    fn jump(&self, by: SignedDuration) {
        let now = pawl_apiserver::Env::now(&*self.env);
        self.env.set(now.checked_add(by).unwrap_or(now));
        self.state().jumped = true;
    }
}
