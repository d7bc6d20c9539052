//! Do all watchers see the same events in the same order, wherever they begin?

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::guarded;
use crate::wire::{Wire, listening, revision};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WATCHERS: u64 = 100;
const WRITERS: u64 = 4;
const WRITES: u64 = 60;
/// Written last: whoever sees it has seen everything.
const LAST: &str = "last";
const PATIENCE: Duration = Duration::from_secs(30);

/// What one watcher was told.
#[derive(Debug)]
struct Told {
    /// What was there when it began, by name.
    initial: BTreeMap<String, u64>,
    /// It sees everything after this revision.
    since: u64,
    events: Vec<(String, String, u64)>,
}

/// Where a watcher begins.
#[derive(Debug, Clone, Copy)]
enum Begin {
    After(u64),
    Initial,
}

async fn watch(address: SocketAddr, begin: Begin) -> Told {
    let path = match begin {
        Begin::After(since) => format!("{MAPS}?watch=1&resourceVersion={since}"),
        Begin::Initial => format!(
            "{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        ),
    };
    let mut told = Told { initial: BTreeMap::new(), since: 0, events: Vec::new() };
    let mut beginning = match begin {
        Begin::After(since) => {
            told.since = since;
            false
        }
        Begin::Initial => true,
    };
    let mut events = Wire::open(address).await.unwrap().watch(&path).await.unwrap();
    loop {
        let event = tokio::time::timeout(PATIENCE, events.next()).await.unwrap().unwrap();
        let (kind, object) = (event["type"].as_str().unwrap().to_owned(), &event["object"]);
        let at = revision(object);
        if kind == "BOOKMARK" {
            assert!(beginning && object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true");
            (told.since, beginning) = (at, false);
            continue;
        }
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        if beginning {
            assert_eq!(kind, "ADDED");
            told.initial.insert(name, at);
            continue;
        }
        let last = name == LAST;
        told.events.push((kind, name, at));
        if last {
            return told;
        }
    }
}

async fn write(address: SocketAddr, writer: u64, newest: Arc<AtomicU64>) {
    let mut wire = Wire::open(address).await.unwrap();
    for at in 0..WRITES {
        let name = format!("w{writer}-{}", at % 5);
        let path = format!("{MAPS}/{name}");
        let patch = json!({"data": {"at": at.to_string()}});
        let (code, answer) =
            wire.ask("PATCH", &path, Some(("application/merge-patch+json", &patch))).await.unwrap();
        let (code, answer) = match code {
            404 => {
                let map = json!({"metadata": {"name": name}});
                wire.ask("POST", MAPS, Some(("application/json", &map))).await.unwrap()
            }
            _ if at % 7 == 0 => wire.ask("DELETE", &path, None).await.unwrap(),
            _ => (code, answer),
        };
        assert!(matches!(code, 200 | 201), "{answer}");
        if let Value::String(_) = &answer["metadata"]["resourceVersion"] {
            newest.fetch_max(revision(&answer), Ordering::SeqCst);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_watchers_see_the_same_events_in_the_same_order() {
    let address = listening(guarded()).await;
    let mut wire = Wire::open(address).await.unwrap();
    let (_, list) = wire.ask("GET", MAPS, None).await.unwrap();
    let first = revision(&list);
    let newest = Arc::new(AtomicU64::new(first));
    let writing = Arc::new(AtomicBool::new(true));
    // They come one after the other while writers write, and begin at the start, in between, or with what is there.
    let coming = tokio::spawn({
        let (newest, writing) = (newest.clone(), writing.clone());
        async move {
            let mut watchers = Vec::new();
            for at in 0..WATCHERS {
                let now = newest.load(Ordering::SeqCst);
                let begin = match at % 4 {
                    0 => Begin::After(first),
                    1 => Begin::After(now),
                    2 => Begin::After(first + (now - first) / 2),
                    _ => Begin::Initial,
                };
                watchers.push(tokio::spawn(watch(address, begin)));
                if writing.load(Ordering::SeqCst) {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
            watchers
        }
    });
    let writers: Vec<_> =
        (0..WRITERS).map(|writer| tokio::spawn(write(address, writer, newest.clone()))).collect();
    for writer in writers {
        writer.await.unwrap();
    }
    writing.store(false, Ordering::SeqCst);
    let watchers = coming.await.unwrap();
    // Initial events must be over before the last is written, or it would be one of them.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let last = json!({"metadata": {"name": LAST}});
    wire.ask("POST", MAPS, Some(("application/json", &last))).await.unwrap();
    let mut told = Vec::new();
    for watcher in watchers {
        told.push(watcher.await.unwrap());
    }
    let whole = &told[0].events;
    assert!(whole.len() as u64 > WRITERS * WRITES / 2, "{} events", whole.len());
    assert!(whole.windows(2).all(|pair| pair[0].2 < pair[1].2), "revisions only grow");
    for (at, watcher) in told.iter().enumerate() {
        let from = whole.partition_point(|(_, _, revision)| *revision <= watcher.since);
        assert_eq!(watcher.events, whole[from..], "watcher {at}, since {}", watcher.since);
        if at % 4 == 3 {
            assert_eq!(
                watcher.initial,
                there_after(&whole[..from]),
                "watcher {at} began with what was there"
            );
        }
    }
}

/// What is there after some events, by name.
fn there_after(events: &[(String, String, u64)]) -> BTreeMap<String, u64> {
    let mut there = BTreeMap::new();
    for (kind, name, revision) in events {
        if kind == "DELETED" {
            there.remove(name);
        } else {
            there.insert(name.clone(), *revision);
        }
    }
    there
}
