//! The store goes away and comes back: nothing is lost, nothing is doubled, and the order stays.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pawl_engine::Ledger as _;
use pawl_ledger::recorder::{Settings, Writing};
use pawl_ledger::{Place, Recorder, Store};
use pawl_machines::audit::{self, Actor, Entry, Outcome, Standing, Subject};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::cluster::Cluster;
use crate::world::{World, chain};

const PATIENCE: Duration = Duration::from_secs(60);

fn entry(n: u32) -> Entry {
    let uid = format!("uid-{}", n % 7);
    let occasion = n.to_string();
    Entry {
        id: audit::id(&uid, "git.workflow.started", &occasion),
        at: Timestamp::from_second(i64::from(n)).unwrap(),
        actor: Actor::Controller("workflow"),
        about: Subject { kind: "Workflow".to_owned(), namespace: "team".to_owned(), name: occasion, uid },
        target: String::new(),
        event: "git.workflow.started".to_owned(),
        outcome: Outcome::Pending,
        correlation: "root".to_owned(),
        payload: serde_json::json!({"n": n}),
    }
}

fn start(place: Place, outbox: Option<&Path>) -> (Recorder, Writing) {
    let settings =
        Settings { place: Some(place), outbox: outbox.map(Path::to_owned), mask: Arc::new(str::to_owned) };
    Recorder::start(settings).unwrap()
}

async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Every entry once, in the order in which they were offered.
async fn assert_all_there(store: &Store, count: u32) {
    let names: Vec<String> = chain(store).await.into_iter().map(|row| row.record.name).collect();
    let wanted: Vec<String> = (0..count).map(|n| n.to_string()).collect();
    assert_eq!(names, wanted);
    let verdict = store.verify(&[]).await.unwrap();
    assert!(verdict.is_sound(), "{verdict:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgresql_stops_for_a_while_and_nothing_is_lost_or_doubled() {
    let Some(mut cluster) = Cluster::start() else { return };
    let place = Place::parse(&cluster.database("outage")).unwrap();
    let directory = TempDir::new().unwrap();
    let outbox = directory.path().join("audit.outbox");
    let (recorder, writing) = start(place.clone(), Some(&outbox));
    recorder.offer((0..100).map(entry).collect());
    until("the first rows are stored", || recorder.backlog() == 0).await;
    assert_eq!(recorder.standing("uid-1"), Standing::Recorded);

    let mut changes = recorder.changes();
    changes.borrow_and_update();
    cluster.stop();
    for n in 100..200 {
        recorder.offer(vec![entry(n)]);
        // Safe though the store is down: the work may go on.
        if n % 50 == 0 {
            recorder.keep(&entry(n).about.uid).await;
        }
    }
    until("the outage is noticed", || matches!(recorder.standing("uid-1"), Standing::Waiting { .. })).await;
    assert!(changes.has_changed().unwrap());
    // A look that is repeated says the same again.
    recorder.offer((50..200).map(entry).collect());
    recorder.keep("uid-0").await;
    let Standing::Waiting { why, ids } = recorder.standing("uid-0") else { panic!("it waits") };
    assert!(!why.is_empty() && !ids.is_empty());

    cluster.run();
    until("all that waited is stored", || recorder.backlog() == 0).await;
    assert_eq!(recorder.standing("uid-0"), Standing::Recorded);
    recorder.offer((200..300).map(entry).collect());
    until("the newest are stored", || recorder.backlog() == 0).await;
    recorder.close(writing).await;
    assert_eq!(std::fs::metadata(&outbox).unwrap().len(), 0, "the outbox is empty");
    let store = Store::open(&place, pawl_ledger::store::Access::Read).await.unwrap();
    assert_all_there(&store, 300).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_in_the_outbox_outlives_the_process() {
    let world = World::sqlite();
    let directory = TempDir::new().unwrap();
    let outbox = directory.path().join("audit.outbox");
    // A path that is a directory cannot be a database: a store that is down.
    let (recorder, writing) = start(Place::File(directory.path().to_owned()), Some(&outbox));
    recorder.offer((0..50).map(entry).collect());
    recorder.keep("uid-3").await;
    until("it is noticed", || matches!(recorder.standing("uid-3"), Standing::Waiting { .. })).await;
    recorder.close(writing).await;
    assert!(std::fs::metadata(&outbox).unwrap().len() > 0);

    // The next process has a store that works; its objects say some of the same again.
    let (recorder, writing) = start(world.place(), Some(&outbox));
    recorder.offer((40..60).map(entry).collect());
    until("all is stored", || recorder.backlog() == 0).await;
    recorder.close(writing).await;
    assert_all_there(&world.open().await, 60).await;
    assert_eq!(std::fs::metadata(&outbox).unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_outbox_rows_wait_in_memory_and_the_work_goes_on() {
    let world = World::sqlite();
    let Place::File(path) = world.place() else { unreachable!() };
    // A directory in the place of the file; later it gives way.
    std::fs::create_dir(&path).unwrap();
    let (recorder, writing) = start(world.place(), None);
    recorder.offer((0..50).map(entry).collect());
    recorder.keep("uid-3").await;
    until("it is noticed", || matches!(recorder.standing("uid-3"), Standing::Waiting { .. })).await;
    std::fs::remove_dir(&path).unwrap();
    until("all is stored", || recorder.backlog() == 0).await;
    recorder.close(writing).await;
    assert_all_there(&world.open().await, 50).await;
}

#[tokio::test]
async fn without_a_store_every_object_says_so() {
    let settings = Settings { place: None, outbox: None, mask: Arc::new(str::to_owned) };
    let (recorder, writing) = Recorder::start(settings).unwrap();
    recorder.offer(vec![entry(1)]);
    recorder.keep("uid-1").await;
    assert_eq!(recorder.standing("uid-1"), Standing::NoStore);
    recorder.close(writing).await;
}
