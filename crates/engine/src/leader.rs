//! Who may act when several copies of the loop run: whoever holds the Lease.
//!
//! ```text
//!  nobody, expired, given back ──take (compare-and-swap)──▶ leading ──renew every RENEW──┐
//!        ▲                                                    │  ▲                       │
//!        │                                                    │  └───────────────────────┘
//!        └── others see it unchanged for DURATION ◀── deposed ◀── not renewed for DEADLINE (< DURATION)
//! ```
//! Every move is compared and swapped on the Lease's resourceVersion, so two can never both succeed. A holder that
//! cannot renew steps down before anybody else may take over. Whether a lease has expired is judged by how long it has
//! been seen unchanged on the steady clock, never by comparing two machines' wall clocks. Should a request of a deposed
//! leader still arrive, its own preconditions stop it.

use std::time::Duration;

use http::{Method, Request, header};
use pawl_api::meta::Kind;
use pawl_machines::failure::{Category, Failure};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::clock::Time;
use crate::wire::Wire;

const LEASE: Kind = Kind::of("coordination.k8s.io", "v1", "Lease", "leases", true);

/// How long a lease that nobody renews keeps the others out: a leader that died is missed this long.
const DURATION: Duration = Duration::from_secs(15);

/// A leader that has not renewed for this long stops acting: early enough that a request under way ends before others
/// begin, late enough for a few tries.
const DEADLINE: Duration = Duration::from_secs(10);

/// How often the leader renews, and the others look. A watch would tell them nothing earlier: what they wait for is
/// that nothing happens.
const RENEW: Duration = Duration::from_secs(2);

/// How long giving the lease back may take when stopping: what is left of a pod's 30 s after its plans' grace.
const GIVE_BACK: Duration = Duration::from_secs(5);

/// Which lease, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub namespace: String,
    pub name: String,
    /// Differs between copies: the pod's name.
    pub identity: String,
}

/// One candidate.
#[derive(Debug)]
pub struct Election {
    wire: Wire,
    config: Config,
    time: Time,
    leading: watch::Sender<bool>,
    random: fastrand::Rng,
    /// The lease as it was last seen, and since when it has not changed.
    seen: Option<(Lease, Instant)>,
}

/// What matters of a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lease {
    resource_version: String,
    holder: String,
    duration: Duration,
    transitions: u64,
    raw: Value,
}

/// Who holds the lease after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Us,
    Other,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Create,
    Take,
    Renew,
    Wait,
}

impl Election {
    pub fn new(wire: Wire, config: Config, time: Time, seed: u64, leading: watch::Sender<bool>) -> Self {
        let seed = config.identity.bytes().fold(seed, |seed, byte| seed.rotate_left(7) ^ u64::from(byte));
        Self { wire, config, time, leading, random: fastrand::Rng::with_seed(seed), seen: None }
    }

    /// Stands for election until told to stop, then gives the lease back.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut renewed = Instant::now();
        while !*stop.borrow() {
            let asked = Instant::now();
            let leads = *self.leading.borrow();
            // While leading, no answer by the deadline is as good as none.
            let patience =
                if leads { (renewed + DEADLINE).saturating_duration_since(asked) } else { DEADLINE };
            match timeout(patience, self.step()).await {
                Ok(Ok(Holder::Us)) => {
                    // From before the request: the others count from when they see it, which is later.
                    renewed = asked;
                    self.leading.send_if_modified(|leads| !std::mem::replace(leads, true));
                }
                Ok(Ok(Holder::Other)) => self.step_down("somebody else holds the lease"),
                // The next look tells.
                Ok(Ok(Holder::Unknown)) => {}
                Ok(Err(failure)) => tracing::warn!(%failure, "cannot renew or take the lease"),
                Err(_) => tracing::warn!(?patience, "no answer about the lease"),
            }
            if renewed.elapsed() >= DEADLINE {
                self.step_down("the lease was not renewed in time");
            }
            // Candidates that start together drift apart.
            let pause = RENEW.mul_f64(0.8 + 0.4 * self.random.f64());
            let pause = if *self.leading.borrow() {
                pause.min((renewed + DEADLINE).saturating_duration_since(Instant::now()))
            } else {
                pause
            };
            tokio::select! {
                biased;
                _ = stop.changed() => break,
                () = sleep(pause) => {}
            }
        }
        if *self.leading.borrow() {
            let _ = timeout(GIVE_BACK, self.give_back()).await;
        }
        self.step_down("stopping");
    }

    /// Looks, and takes or renews the lease if it may.
    async fn step(&mut self) -> Result<Holder, Failure> {
        let lease = self.read().await?;
        let now = Instant::now();
        let since = match (&self.seen, &lease) {
            (Some((seen, since)), Some(lease)) if seen.resource_version == lease.resource_version => *since,
            _ => now,
        };
        let unchanged_for = now.duration_since(since);
        let next = next_move(lease.as_ref(), &self.config.identity, unchanged_for);
        self.seen = lease.clone().map(|lease| (lease, since));
        let (method, body) = match (next, lease) {
            (Move::Wait, _) => return Ok(Holder::Other),
            (Move::Create, _) | (_, None) => (Method::POST, self.manifest(None, next)),
            (Move::Take | Move::Renew, Some(lease)) => (Method::PUT, self.manifest(Some(&lease), next)),
        };
        match self.write(method, &body).await {
            Ok(()) => Ok(Holder::Us),
            // Somebody was faster, but perhaps only with a label.
            Err(failure) if failure.category == Category::Conflict => Ok(Holder::Unknown),
            Err(failure) => Err(failure),
        }
    }

    async fn give_back(&mut self) -> Result<(), Failure> {
        let Some(mut lease) = self.read().await?.filter(|lease| lease.holder == self.config.identity) else {
            return Ok(());
        };
        if let Some(spec) = lease.raw.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("holderIdentity".to_owned(), "".into());
        }
        self.write(Method::PUT, &lease.raw).await
    }

    fn step_down(&self, why: &str) {
        if self.leading.send_if_modified(|leads| std::mem::replace(leads, false)) {
            tracing::info!(identity = self.config.identity, why, "leads no more");
        }
    }

    fn manifest(&self, lease: Option<&Lease>, next: Move) -> Value {
        let now = format!("{:.6}", self.time.wall());
        let mut manifest = lease.map_or_else(
            || {
                json!({"apiVersion": LEASE.api_version(), "kind": LEASE.kind,
                    "metadata": {"name": self.config.name, "namespace": self.config.namespace}})
            },
            |lease| lease.raw.clone(),
        );
        let transitions = lease.map_or(0, |lease| lease.transitions) + u64::from(next == Move::Take);
        let acquired =
            lease.filter(|_| next == Move::Renew).and_then(|lease| lease.raw.pointer("/spec/acquireTime"));
        let spec = json!({"holderIdentity": self.config.identity, "leaseDurationSeconds": DURATION.as_secs(),
            "acquireTime": acquired.cloned().unwrap_or_else(|| now.clone().into()), "renewTime": now,
            "leaseTransitions": transitions});
        if let Some(fields) = manifest.as_object_mut() {
            fields.insert("spec".to_owned(), spec);
        }
        manifest
    }

    async fn read(&self) -> Result<Option<Lease>, Failure> {
        match self.exchange(Method::GET, true, Vec::new()).await {
            Ok(raw) => Ok(Some(Lease::from(raw))),
            Err(failure) if failure.is("NotFound") => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    async fn write(&self, method: Method, body: &Value) -> Result<(), Failure> {
        let named = method != Method::POST;
        self.exchange(method, named, body.to_string().into_bytes()).await.map(|_| ())
    }

    async fn exchange(&self, method: Method, named: bool, body: Vec<u8>) -> Result<Value, Failure> {
        let Config { namespace, name, .. } = &self.config;
        let attempt = format!("{method} Lease {namespace}/{name}");
        let mut request = Request::new(body);
        *request.method_mut() = method;
        let path = LEASE.path(Some(namespace), named.then_some(name));
        *request.uri_mut() = path.parse().unwrap_or_default();
        let json = header::HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, json.clone());
        request.headers_mut().insert(header::ACCEPT, json);
        let reply = self.wire.ask(request, &attempt).await?;
        match serde_json::from_slice::<Value>(&reply.body) {
            Ok(value) if value.pointer("/metadata/resourceVersion").is_some() => Ok(value),
            Ok(_) => Err(Failure::unanswered(attempt, "the answer is not an object")),
            Err(error) => Err(Failure::unanswered(attempt, format!("the answer is not JSON: {error}"))),
        }
    }
}

impl From<Value> for Lease {
    fn from(raw: Value) -> Self {
        let text =
            |pointer: &str| raw.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let number = |pointer: &str| raw.pointer(pointer).and_then(Value::as_u64);
        Self {
            resource_version: text("/metadata/resourceVersion"),
            holder: text("/spec/holderIdentity"),
            duration: number("/spec/leaseDurationSeconds").map_or(DURATION, Duration::from_secs),
            transitions: number("/spec/leaseTransitions").unwrap_or_default(),
            raw,
        }
    }
}

fn next_move(lease: Option<&Lease>, me: &str, unchanged_for: Duration) -> Move {
    match lease {
        None => Move::Create,
        Some(lease) if lease.holder == me => Move::Renew,
        Some(lease) if lease.holder.is_empty() => Move::Take,
        Some(lease) if unchanged_for >= lease.duration => Move::Take,
        Some(_) => Move::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: &str) -> Lease {
        Lease::from(json!({"metadata": {"resourceVersion": "3"},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 4}}))
    }

    #[test]
    fn a_lease_is_taken_only_when_it_is_free_or_seen_unchanged_for_its_duration() {
        let seconds = Duration::from_secs;
        assert_eq!(next_move(None, "me", seconds(0)), Move::Create);
        assert_eq!(next_move(Some(&held_by("me")), "me", seconds(0)), Move::Renew);
        assert_eq!(next_move(Some(&held_by("")), "me", seconds(0)), Move::Take);
        assert_eq!(next_move(Some(&held_by("other")), "me", seconds(14)), Move::Wait);
        assert_eq!(next_move(Some(&held_by("other")), "me", seconds(15)), Move::Take);
    }
}
