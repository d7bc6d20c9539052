//! How a cache is filled and kept: list, then watch, and again whenever the watch cannot go on.
//!
//! ```text
//!            ┌───────────── 410, a line that is no event, asked to ─────────────┐
//!            ▼                                                                  │
//!   ┌──▶ list ──── ok ───▶ watch ── cut, time-out, 5xx, a proxy's page ──▶ watch from where it was
//!   │     │ 404, and discovery agrees
//!   │     ▼
//!   └── absent: until its definition appears, or a slow recheck
//! ```
//! One informer feeds one kind (in one namespace, or in all). A single object that cannot be read is skipped and
//! counted; what was known of it stays. Ends are never lost: what a list does not name any more has ended.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use pawl_api::meta::Kind;
use pawl_machines::failure::{Category, Failure};
use pawl_machines::machine::Depth;
use pawl_machines::object::{Key, Malformed, Object};
use pawl_machines::view::View;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::caches::{Caches, Change, Listed, Scope, Standing};
use crate::discovery::{self, CRD};
use crate::manifest::{self, Unreadable};
use crate::metrics::{KindLabels, Metrics, RestartLabels};
use crate::outline;
use crate::queue::backoff;
use crate::wire::{Lines, Lost, Opened, Wire};

/// How long the server is asked to keep a watch open: a little less than the 5 min at which proxies cut.
const WATCH_SECS: u64 = 290;

/// A watch that says nothing for this long is dead, for the server was asked to end it before.
const SILENCE: Duration = Duration::from_secs(WATCH_SECS + 20);

/// A watch that ended sooner than this without a word did not really begin.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);

/// While an informer waits, decisions run on what it knew: so it waits less than a failing object does.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// A kind that is not there is looked for again this often even if no definition of it has shown up: it may be served
/// by an aggregated server, which has none.
const ABSENT_RECHECK: Duration = Duration::from_mins(5);

/// The same where definitions cannot be watched, so that nothing else would tell.
const BLIND_RECHECK: Duration = Duration::from_secs(30);

/// Who is told.
pub trait Listener: Send + Sync {
    fn changed(&self, change: &Change);

    /// A watch stands otherwise than before.
    fn stands(&self, kind: &Kind);
}

/// Feeds one kind.
pub struct Informer {
    /// Shared with all of its objects.
    pub kind: Arc<Kind>,
    pub depth: Depth,
    pub scope: Scope,
    pub wire: Wire,
    pub caches: Arc<Caches>,
    pub listener: Arc<dyn Listener>,
    pub metrics: Arc<Metrics>,
    /// From `Caches::add`.
    pub tickets: watch::Receiver<u64>,
    pub random: fastrand::Rng,
    /// In a row, since anything was last heard.
    pub failures: u32,
}

impl std::fmt::Debug for Informer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Informer({} in {:?})", self.kind, self.scope)
    }
}

/// Why a watch cannot go on.
enum End {
    /// What happened meanwhile must be found out by listing.
    List(&'static str),
    /// Nobody wants to know any more.
    Unwanted,
}

/// What one line of a watch was.
enum Heard {
    Something,
    Expired,
    Nonsense(String),
}

/// Of a bookmark, and of the `Status` that ends a watch.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Word {
    metadata: Metadata,
    code: Value,
    message: Value,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    resource_version: Value,
}

impl Informer {
    /// Goes on until the kind is discarded from the caches.
    pub async fn run(&mut self) {
        loop {
            let ticket = *self.tickets.borrow_and_update();
            let definition = self.definition();
            match self.list().await {
                Ok(listed) => {
                    let from = listed.resource_version.clone();
                    self.take_list(ticket, listed);
                    match self.watch(from).await {
                        End::List(reason) => self.count_restart(reason),
                        End::Unwanted => return,
                    }
                }
                Err(failure) if failure.category == Category::NotFound && failure.reason != "Expired" => {
                    self.not_found(&failure, definition).await;
                }
                Err(failure) => {
                    if failure.category == Category::Permanent {
                        self.stand(Standing::Refused);
                    }
                    self.pause(&failure).await;
                }
            }
            if self.tickets.has_changed().is_err() {
                return;
            }
        }
    }

    fn take_list(&self, ticket: u64, listed: Listed) {
        let before = self.caches.standing(&self.kind);
        let changes = self.caches.replace(&self.kind, &self.scope, ticket, listed);
        if self.caches.standing(&self.kind) != before {
            self.listener.stands(&self.kind);
        }
        for change in &changes {
            self.listener.changed(change);
        }
    }

    async fn watch(&mut self, mut from: String) -> End {
        loop {
            let query = format!(
                "watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECS}&resourceVersion={from}"
            );
            let request = self.request(&query, "PartialObjectMetadata");
            let opened = tokio::select! {
                biased;
                ticket = self.tickets.changed() => return asked(&ticket),
                opened = self.wire.open(request) => opened,
            };
            let attempt = format!("watch {}", self.what());
            match opened {
                Err(lost) => self.pause(&Failure::unanswered(attempt, lost)).await,
                Ok(Opened::Refused(reply)) => {
                    let failure = Failure::answered(attempt, reply.code, reply.retry_after, &reply.body);
                    if reply.code == 410 {
                        return self.expired().await;
                    }
                    self.pause(&failure).await;
                    if failure.category != Category::Transient {
                        return End::List("refused");
                    }
                }
                Ok(Opened::Lines(lines)) => {
                    if let Some(end) = self.read_lines(lines, &mut from).await {
                        return end;
                    }
                }
            }
        }
    }

    /// `None`: the stream is over, and may be opened again from where it was.
    async fn read_lines(&mut self, mut lines: Lines, from: &mut String) -> Option<End> {
        let (opened, mut heard) = (Instant::now(), false);
        loop {
            let line = tokio::select! {
                biased;
                ticket = self.tickets.changed() => return Some(asked(&ticket)),
                line = lines.next(SILENCE) => line,
            };
            match line {
                Ok(Some(line)) => match self.hear(&line, from) {
                    Heard::Something => {
                        heard = true;
                        self.failures = 0;
                    }
                    Heard::Expired => return Some(self.expired().await),
                    Heard::Nonsense(problem) => {
                        self.pause(&Failure::unanswered(format!("watch {}", self.what()), problem)).await;
                        return Some(End::List("nonsense"));
                    }
                },
                Ok(None) if heard || opened.elapsed() >= SHORTEST_WATCH => return None,
                Ok(None) => {
                    let lost = Lost::Broken("the watch ended as soon as it began".to_owned());
                    self.pause(&Failure::unanswered(format!("watch {}", self.what()), lost)).await;
                    return None;
                }
                Err(lost) => {
                    self.pause(&Failure::unanswered(format!("watch {}", self.what()), lost)).await;
                    return None;
                }
            }
        }
    }

    fn hear(&self, line: &Bytes, from: &mut String) -> Heard {
        let kind = outline::member(line, "type").and_then(|text| serde_json::from_slice::<String>(text).ok());
        let (Some(kind), Some(object)) = (kind, outline::member(line, "object")) else {
            return Heard::Nonsense("a line is no event".to_owned());
        };
        match kind.as_str() {
            "ADDED" | "MODIFIED" => {
                if let Ok(object) = self.hear_object(object, from)
                    && let Some(change) = self.caches.put(object, &self.scope)
                {
                    self.listener.changed(&change);
                }
            }
            "DELETED" => self.hear_end(object, from),
            "BOOKMARK" | "ERROR" => return self.hear_word(&kind, object, from),
            other => return Heard::Nonsense(format!("an event of type {other:?}")),
        }
        Heard::Something
    }

    /// What is said of no object.
    fn hear_word(&self, kind: &str, object: &[u8], from: &mut String) -> Heard {
        let word: Word = match serde_json::from_slice(object) {
            Ok(word) => word,
            Err(problem) => return Heard::Nonsense(format!("a line is no event: {problem}")),
        };
        if kind == "BOOKMARK" {
            if let Some(version) = word.metadata.resource_version.as_str() {
                version.clone_into(from);
            }
            self.caches.advance(&self.kind, &self.scope, from);
            return Heard::Something;
        }
        if word.code.as_u64() == Some(410) {
            return Heard::Expired;
        }
        let message = word.message.as_str().unwrap_or("no message");
        Heard::Nonsense(format!("the server ended the watch: {message}"))
    }

    /// A version of an object, and that it was heard of; one that cannot be read is skipped.
    fn hear_object(&self, object: &[u8], from: &mut String) -> Result<Arc<Object>, Option<Key>> {
        match manifest::read(&self.kind, self.depth, object) {
            Ok(object) => {
                if !object.resource_version().is_empty() {
                    object.resource_version().clone_into(from);
                }
                Ok(object)
            }
            Err(unreadable) => {
                let Unreadable { key, resource_version, malformed } = *unreadable;
                self.skip(&malformed);
                *from = resource_version.unwrap_or_else(|| std::mem::take(from));
                Err(key)
            }
        }
    }

    /// An object is gone; whether it can be read does not matter to that.
    fn hear_end(&self, object: &[u8], from: &mut String) {
        let (key, last) = match self.hear_object(object, from) {
            Ok(object) => (Some(object.key()), Some(object)),
            Err(key) => (key, None),
        };
        let Some(key) = key else { return };
        if let Some(mut change) = self.caches.remove(&self.kind, &self.scope, &key, from) {
            // The last version of all: it may name another owner than the one we knew.
            change.before = last.or(change.before);
            self.listener.changed(&change);
        }
    }

    /// History is gone. Once is normal; again and again without a word between is not.
    async fn expired(&mut self) -> End {
        self.failures = self.failures.saturating_add(1);
        if self.failures > 1 {
            sleep(backoff(self.failures, &mut self.random).min(MAX_PAUSE)).await;
        }
        End::List("expired")
    }

    /// The list answered 404: is the kind not there, or did somebody else answer?
    async fn not_found(&mut self, failure: &Failure, definition: Option<String>) {
        match discovery::serves(&self.wire, &self.kind).await {
            Ok(false) => {}
            Ok(true) => return self.pause(failure).await,
            Err(failure) => return self.pause(&failure).await,
        }
        self.stand(Standing::Absent);
        let blind = self.caches.standing(&CRD) != Some(Standing::Live);
        let recheck = match &definition {
            // Defined but not served yet: that takes moments.
            Some(_) => {
                self.failures = self.failures.saturating_add(1);
                backoff(self.failures, &mut self.random)
            }
            None if blind => BLIND_RECHECK,
            None => ABSENT_RECHECK,
        };
        let redefined = async {
            self.caches.until(&CRD, || self.definition() != definition).await;
            // Nobody watches definitions: only time can tell.
            if self.definition() == definition {
                std::future::pending().await
            }
        };
        tokio::select! {
            biased;
            () = redefined => {}
            () = sleep(recheck) => {}
        }
    }

    /// Which version of its definition is known, if any.
    fn definition(&self) -> Option<String> {
        let key = Key::new(None, &format!("{}.{}", self.kind.plural, self.kind.group));
        self.caches.get(&CRD, &key).map(|definition| definition.resource_version().to_owned())
    }

    fn stand(&self, standing: Standing) {
        let before = self.caches.standing(&self.kind);
        // What has been seen stays usable while the server refuses; only a kind that was never seen is without.
        if standing == Standing::Refused && before == Some(Standing::Live) {
            return;
        }
        let gone = self.caches.stand(&self.kind, &self.scope, standing);
        if self.caches.standing(&self.kind) != before {
            self.listener.stands(&self.kind);
        }
        for change in &gone {
            self.listener.changed(change);
        }
    }

    async fn pause(&mut self, failure: &Failure) {
        self.failures = self.failures.saturating_add(1);
        let pause = backoff(self.failures, &mut self.random).min(MAX_PAUSE);
        let pause = pause.max(failure.retry_after.unwrap_or_default());
        // Streams are cut in every healthy cluster; what fails twice is worth a line.
        let (kind, namespace, failures) = (&self.kind, &self.scope, self.failures);
        if failures > 1 {
            tracing::warn!(%kind, namespace, failures, ?pause, %failure, "cannot watch");
        } else {
            tracing::debug!(%kind, namespace, ?pause, %failure, "watches again");
        }
        self.count_restart("failed");
        sleep(pause).await;
    }

    pub(crate) fn skip(&self, malformed: &Malformed) {
        tracing::warn!(kind = %self.kind, name = malformed.name, problem = malformed.problem,
            "an object is skipped: its metadata cannot be read");
        self.metrics.malformed.get_or_create(&KindLabels { kind: self.kind.to_string() }).inc();
    }

    fn count_restart(&self, reason: &'static str) {
        let labels = RestartLabels { kind: self.kind.to_string(), reason };
        self.metrics.watch_restarts.get_or_create(&labels).inc();
    }

    pub(crate) fn what(&self) -> String {
        match &self.scope {
            Some(namespace) => format!("{} in {namespace}", self.kind),
            None => self.kind.to_string(),
        }
    }

    pub(crate) fn request(&self, query: &str, partial: &str) -> Request<Vec<u8>> {
        let path = format!("{}?{query}", self.kind.path(self.scope.as_deref(), None));
        let accept = match self.depth {
            Depth::Full | Depth::Named(_) => "application/json".to_owned(),
            Depth::Metadata => {
                format!("application/json;as={partial};g=meta.k8s.io;v=v1,application/json")
            }
        };
        let mut request = Request::new(Vec::new());
        *request.uri_mut() = path.parse().unwrap_or_default();
        if let Ok(accept) = header::HeaderValue::from_str(&accept) {
            request.headers_mut().insert(header::ACCEPT, accept);
        }
        request
    }
}

fn asked(ticket: &Result<(), watch::error::RecvError>) -> End {
    if ticket.is_ok() { End::List("asked") } else { End::Unwanted }
}
