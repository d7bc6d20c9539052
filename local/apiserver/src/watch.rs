//! What happens from now on?
//!
//! A watcher owns nothing but a cursor into the store's log: nothing is buffered for it. One that reads
//! slower than the log turns over finds its cursor compacted and is told so (410), as is one that asks to
//! begin there.
//!
//! ```text
//! initial events ──▶ bookmark ──▶ events after the cursor ──▶ wait ──┐
//!                                  ▲                                 │ changed · bookmark due · timeout
//!                                  └─────────────────────────────────┘
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::http::render::{self, Shape};
use crate::resources::Resource;
use crate::selector::Selector;
use crate::status::Status;
use crate::store::{ChangeType, Compacted, Event, FrameKind, Object, Topic, prefix};
use crate::verbs::Core;

/// How often a quiet watcher that asked for bookmarks gets one; a kube-apiserver sends about one a minute.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long a watch lasts that does not say: a kube-apiserver draws from 30 to 60 minutes.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(45 * 60);
/// The longest a watch may ask for, so that a clock cannot overflow: a year.
const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);
/// Events taken from the log at once: enough to catch up fast, few enough to hold the lock briefly.
const BATCH: usize = 256;

/// A watch to be opened.
#[derive(Debug)]
pub(crate) struct WatchRequest {
    pub(crate) resource: Arc<Resource>,
    pub(crate) namespace: String,
    pub(crate) selector: Selector,
    pub(crate) start: Start,
    pub(crate) bookmarks: bool,
    pub(crate) timeout_secs: Option<u64>,
}

/// Where a watch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// What is there comes first, as ADDED; then, if so, a bookmark that says that this was all.
    InitialEvents { bookmark: bool },
    /// With the next change.
    Now,
    /// With the first change after this revision.
    After(u64),
}

/// A watch that is open.
#[derive(Debug)]
pub(crate) struct Watcher {
    core: Arc<Core>,
    request: WatchRequest,
    shape: Shape,
    topic: Arc<Topic>,
    cursor: u64,
    ready: VecDeque<Bytes>,
    initial: VecDeque<Arc<Object>>,
    initial_end: bool,
    deadline: Instant,
    next_bookmark: Instant,
    ended: bool,
}

impl Watcher {
    /// Opens a watch. Needs a runtime's clock.
    pub(crate) fn open(core: Arc<Core>, request: WatchRequest, shape: Shape) -> Watcher {
        let topic = core.store.topic(&request.resource.table);
        let now = Instant::now();
        let timeout = request.timeout_secs.map_or(DEFAULT_TIMEOUT, Duration::from_secs).min(MAX_TIMEOUT);
        let mut watcher = Watcher {
            cursor: 0,
            ready: VecDeque::new(),
            initial: VecDeque::new(),
            initial_end: false,
            deadline: now + timeout,
            next_bookmark: now + BOOKMARK_EVERY,
            ended: false,
            core,
            request,
            shape,
            topic,
        };
        watcher.begin();
        watcher
    }

    fn begin(&mut self) {
        match self.request.start {
            Start::After(revision) => self.cursor = revision,
            Start::Now => self.cursor = self.core.store.revision(),
            Start::InitialEvents { bookmark } => {
                let prefix = prefix(&self.request.namespace);
                let snapshot = self.core.store.list(&self.request.resource.table, &prefix);
                self.cursor = snapshot.revision;
                self.initial = snapshot.objects.into();
                self.initial_end = bookmark;
            }
        }
    }

    /// The next line of the answer; `None` ends it.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.ready_line() {
                return Some(line);
            }
            if self.ended {
                return None;
            }
            // Listening begins before looking, so that nothing happens in between unheard.
            let topic = self.topic.clone();
            let changed = topic.waiting.notified();
            self.catch_up();
            if !self.ready.is_empty() || self.ended {
                continue;
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep_until(self.deadline) => return None,
                () = tokio::time::sleep_until(self.next_bookmark), if self.request.bookmarks => {
                    self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
                    self.ready.push_back(self.bookmark(false));
                }
            }
        }
    }

    fn ready_line(&mut self) -> Option<Bytes> {
        if let Some(line) = self.ready.pop_front() {
            return Some(line);
        }
        while let Some(object) = self.initial.pop_front() {
            if self.request.selector.matches(&object) {
                return Some(self.line(ChangeType::Added, &object));
            }
        }
        if std::mem::take(&mut self.initial_end) && self.request.bookmarks {
            return Some(self.bookmark(true));
        }
        None
    }

    fn catch_up(&mut self) {
        match self.core.store.events(&self.request.resource.table, self.cursor, BATCH) {
            Ok((events, through)) => {
                for event in events {
                    if let Some(line) = self.line_of(&event) {
                        self.ready.push_back(line);
                    }
                }
                self.cursor = through;
            }
            Err(Compacted { asked, oldest }) => {
                let status = Status::expired(format!("too old resource version: {asked} ({oldest})"));
                self.ready.push_back(frame("ERROR", status.to_value().to_string().as_bytes()));
                self.ended = true;
            }
        }
    }

    /// What an event is to this watcher: an object that begins or ceases to match comes and goes.
    fn line_of(&self, event: &Event) -> Option<Bytes> {
        let wanted = &self.request.namespace;
        if !wanted.is_empty() && **wanted != *event.object.namespace() {
            return None;
        }
        let selector = &self.request.selector;
        if selector.is_empty() {
            return Some(self.shared_line(event, event.change, &event.object));
        }
        let before = event.previous.as_deref().is_some_and(|o| selector.matches(o));
        let after = event.change != ChangeType::Deleted && selector.matches(&event.object);
        match (before, after) {
            (false, false) => None,
            (false, true) => Some(self.shared_line(event, ChangeType::Added, &event.object)),
            (true, true) => Some(self.shared_line(event, ChangeType::Modified, &event.object)),
            (true, false) if event.change == ChangeType::Deleted => {
                Some(self.shared_line(event, ChangeType::Deleted, &event.object))
            }
            // It left the selection by changing: the watcher sees its last matching content.
            (true, false) => {
                let last = event.previous.as_ref().map(|p| p.at(event.object.revision))?;
                Some(self.shared_line(event, ChangeType::Deleted, &last))
            }
        }
    }

    /// An event's line as most watchers want it, encoded once.
    fn shared_line(&self, event: &Event, change: ChangeType, object: &Object) -> Bytes {
        let metadata = match self.shape {
            Shape::Whole => false,
            Shape::Metadata => true,
            Shape::Table(_) => return self.line(change, object),
        };
        // Another version of the resource writes another apiVersion.
        if !render::same_version(&self.request.resource, object) {
            return self.line(change, object);
        }
        event.frames.get(FrameKind { change, metadata }, || self.line(change, object))
    }

    fn line(&self, change: ChangeType, object: &Object) -> Bytes {
        let body = render::object(&self.request.resource, object, self.shape, self.core.env.now());
        frame(change.as_str(), &body)
    }

    fn bookmark(&self, initial_end: bool) -> Bytes {
        let ids = &self.request.resource.ids;
        let mut metadata = json!({"resourceVersion": self.cursor.to_string()});
        if initial_end && let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("annotations".into(), json!({"k8s.io/initial-events-end": "true"}));
        }
        let object: Value = match self.shape {
            Shape::Metadata => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            Shape::Whole | Shape::Table(_) => {
                json!({"kind": &*ids.kind, "apiVersion": ids.api_version(), "metadata": metadata})
            }
        };
        frame("BOOKMARK", object.to_string().as_bytes())
    }
}

/// `{"type":…,"object":…}` and a line feed.
fn frame(change: &str, object: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(object.len() + 40);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(change.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.into()
}
