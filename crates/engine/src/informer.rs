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

use std::collections::BTreeSet;
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
use crate::metrics::{KindLabels, Metrics, RestartLabels};
use crate::queue::backoff;
use crate::wire::{Lines, Lost, Opened, Wire};

/// Objects per page of a list: what the usual clients ask for, and far below what an answer may hold.
const PAGE: u32 = 500;

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
    pub kind: Kind,
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

enum PageError {
    TooLong(Failure),
    Failed(Failure),
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

#[derive(Deserialize)]
struct List {
    metadata: ListMeta,
    items: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
    #[serde(rename = "continue", default)]
    token: String,
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
                Err(failure) if failure.category == Category::Gone && failure.reason != "Expired" => {
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

    async fn list(&mut self) -> Result<Listed, Failure> {
        let mut limit = Some(PAGE);
        'start: loop {
            let mut listed =
                Listed { objects: vec![], unreadable: BTreeSet::new(), resource_version: String::new() };
            let mut token = String::new();
            loop {
                let page = match self.page(limit, &token).await {
                    Ok(page) => page,
                    // The pages' snapshot is gone: so all at once.
                    Err(PageError::Failed(failure))
                        if failure.is("Expired") && limit.is_some() && !token.is_empty() =>
                    {
                        limit = None;
                        continue 'start;
                    }
                    Err(PageError::TooLong(failure)) => {
                        limit = smaller(limit).ok_or(failure)?.into();
                        continue 'start;
                    }
                    Err(PageError::Failed(failure)) => return Err(failure),
                };
                for item in page.items {
                    self.read_into(&mut listed, item);
                }
                listed.resource_version = page.metadata.resource_version;
                token = page.metadata.token;
                if token.is_empty() {
                    return Ok(listed);
                }
            }
        }
    }

    async fn page(&self, limit: Option<u32>, token: &str) -> Result<List, PageError> {
        let attempt = || format!("list {}", self.what());
        let mut query = limit.map(|limit| format!("limit={limit}")).unwrap_or_default();
        if !token.is_empty() {
            query.push_str("&continue=");
            query.push_str(&percent_encoded(token));
        }
        let request = self.request(&query, "PartialObjectMetadataList");
        let reply = self.wire.send(request).await.map_err(|lost| match lost {
            Lost::TooLong(_) => PageError::TooLong(Failure::unanswered(attempt(), lost)),
            Lost::Timeout(_) | Lost::Broken(_) => PageError::Failed(Failure::unanswered(attempt(), lost)),
        })?;
        if reply.code != 200 {
            let failure = Failure::answered(attempt(), reply.code, reply.retry_after, &reply.body);
            return Err(PageError::Failed(failure));
        }
        serde_json::from_slice(&reply.body).map_err(|error| {
            PageError::Failed(Failure::unanswered(attempt(), format!("the answer is not a list: {error}")))
        })
    }

    fn read_into(&self, listed: &mut Listed, item: Value) {
        let place = |field: &str| item.pointer(field).and_then(Value::as_str).map(str::to_owned);
        let (namespace, name) = (place("/metadata/namespace"), place("/metadata/name"));
        match self.read(item) {
            Ok(object) => listed.objects.push(object),
            Err(malformed) => {
                self.skip(&malformed);
                listed.unreadable.extend(name.map(|name| Key { namespace, name }));
            }
        }
    }

    /// An object as the caches keep it.
    fn read(&self, mut item: Value) -> Result<Arc<Object>, Malformed> {
        if let Some(fields) = item.as_object_mut() {
            match self.depth {
                Depth::Metadata => fields.retain(|field, _| field == "metadata"),
                // Items of a list do not say what they are; some types want to know.
                Depth::Full => {
                    fields.insert("apiVersion".to_owned(), self.kind.api_version().into());
                    fields.insert("kind".to_owned(), self.kind.kind.as_ref().into());
                }
            }
            // Often half of an object, and nobody decides by it.
            if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("managedFields");
            }
        }
        Object::new(self.kind.clone(), item)
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
                ticket = self.tickets.changed() => return asked(ticket),
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
                ticket = self.tickets.changed() => return Some(asked(ticket)),
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
        let Event { kind, object } = match serde_json::from_slice(line) {
            Ok(event) => event,
            Err(error) => return Heard::Nonsense(format!("a line is no event: {error}")),
        };
        if kind == "ERROR" {
            if object.get("code").and_then(Value::as_u64) == Some(410) {
                return Heard::Expired;
            }
            let message = object.get("message").and_then(Value::as_str).unwrap_or("no message");
            return Heard::Nonsense(format!("the server ended the watch: {message}"));
        }
        let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        if let Some(version) = version {
            version.clone_into(from);
        }
        match (kind.as_str(), self.read_event(&kind, object)) {
            ("BOOKMARK", _) => {
                self.caches.advance(&self.kind, &self.scope, from);
                Heard::Something
            }
            (_, Err(malformed)) => {
                self.skip(&malformed);
                Heard::Something
            }
            ("ADDED" | "MODIFIED", Ok(object)) => {
                if let Some(change) = self.caches.put(object, &self.scope) {
                    self.listener.changed(&change);
                }
                Heard::Something
            }
            ("DELETED", Ok(object)) => {
                if let Some(mut change) = self.caches.remove(&self.kind, &self.scope, &object.key(), from) {
                    // The last version of all: it may name another owner than the one we knew.
                    change.before = Some(object);
                    self.listener.changed(&change);
                }
                Heard::Something
            }
            (other, Ok(_)) => Heard::Nonsense(format!("an event of type {other:?}")),
        }
    }

    fn read_event(&self, kind: &str, mut object: Value) -> Result<Arc<Object>, Malformed> {
        // A bookmark has no name; nothing else of it is read.
        if kind == "BOOKMARK" {
            object = serde_json::json!({"metadata": {"name": "bookmark"}});
        }
        self.read(object)
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
            let Some(mut moves) = self.caches.moves(&CRD) else { return std::future::pending().await };
            while self.definition() == definition {
                if moves.changed().await.is_err() {
                    return std::future::pending().await;
                }
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
        tracing::warn!(kind = %self.kind, namespace = self.scope, failures = self.failures, ?pause, %failure,
            "cannot watch");
        self.count_restart("failed");
        sleep(pause).await;
    }

    fn skip(&self, malformed: &Malformed) {
        tracing::warn!(kind = %self.kind, name = malformed.name, problem = malformed.problem,
            "an object is skipped: its metadata cannot be read");
        self.metrics.malformed.get_or_create(&KindLabels { kind: self.kind.to_string() }).inc();
    }

    fn count_restart(&self, reason: &'static str) {
        let labels = RestartLabels { kind: self.kind.to_string(), reason };
        self.metrics.watch_restarts.get_or_create(&labels).inc();
    }

    fn what(&self) -> String {
        match &self.scope {
            Some(namespace) => format!("{} in {namespace}", self.kind),
            None => self.kind.to_string(),
        }
    }

    fn request(&self, query: &str, partial: &str) -> Request<Vec<u8>> {
        let path = format!("{}?{query}", self.kind.path(self.scope.as_deref(), None));
        let accept = match self.depth {
            Depth::Full => "application/json".to_owned(),
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

/// The next size to try when a page does not fit: from all at once to the usual page, then a quarter each time.
fn smaller(limit: Option<u32>) -> Option<u32> {
    match limit {
        None => Some(PAGE),
        Some(limit) => Some(limit / 4).filter(|limit| *limit > 0),
    }
}

fn asked(ticket: Result<(), watch::error::RecvError>) -> End {
    match ticket {
        Ok(()) => End::List("asked"),
        Err(_) => End::Unwanted,
    }
}

/// A continue token is any text, and stands in a query.
fn percent_encoded(text: &str) -> String {
    use std::fmt::Write;
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_safe_in_a_query() {
        assert_eq!(percent_encoded("a+b/c=&é"), "a%2Bb%2Fc%3D%26%C3%A9");
    }
}
