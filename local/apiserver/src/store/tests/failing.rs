//! Whatever the disk does, what was acknowledged is there; and what was shown stays.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::super::disk::Disk as _;
use super::super::testing::{Kind, Model, Trouble};
use super::super::{Expect, OpenError, Options, Store, key};
use super::{draft, table};

/// Small, so that a run begins several logs and drops several snapshots.
const ROTATE_BYTES: u64 = 700;
const WRITES: usize = 24;
/// Room behind the logs: none, and enough for some frames.
const ROOMS: [u64; 2] = [u64::MAX, 450];
/// How often the power fails at each place, each time with other luck.
const TRIES: u64 = 4;

type Contents = BTreeMap<String, String>;

/// What a store should hold after each revision, and the last one that was acknowledged.
#[derive(Debug, Default, Clone)]
struct Truth {
    at: BTreeMap<u64, Contents>,
    acknowledged: u64,
}

fn open(disk: &Model, room_bytes: u64) -> Result<Store, OpenError> {
    let options = Options { rotate_bytes: ROTATE_BYTES, room_bytes, ..Options::default() };
    Store::open_on(Arc::new(disk.clone()), Path::new("store"), options)
}

fn contents(store: &Store) -> Contents {
    let objects = store.list("things", "").objects;
    objects.iter().map(|o| (o.name().to_owned(), o.value()["data"].as_str().unwrap().to_owned())).collect()
}

impl Truth {
    fn of(store: &Store) -> Self {
        let revision = store.revision();
        Self { at: BTreeMap::from([(revision, contents(store))]), acknowledged: revision }
    }

    /// Puts, changes and deletes objects until all is done or one is not acknowledged.
    fn work(&mut self, store: &Store, salt: &str) {
        let mut now = contents(store);
        for at in 0..WRITES {
            let name = format!("o{}", at % 5);
            let head = store.head(&table(), &key("n", &name));
            let made = match head {
                Some(head) if at % 7 == 6 => {
                    now.remove(&name);
                    store.delete(&table(), &key("n", &name), head.revision, None)
                }
                head => {
                    let expect = head.map_or(Expect::Absent, |head| Expect::Revision(head.revision));
                    let data = format!("{salt} {at} {}", "x".repeat(at * 9 % 83));
                    now.insert(name.clone(), data.clone());
                    store.put(&table(), expect, draft(&name, &data))
                }
            };
            let Ok(made) = made else { return };
            self.at.insert(made.revision, now.clone());
            if store.wait(made.revision).is_err() {
                return;
            }
            self.acknowledged = made.revision;
        }
    }

    /// A store that was opened again holds a state that was, and no older one than was acknowledged.
    fn check(&self, store: &Store, place: &str) {
        let revision = store.revision();
        assert!(
            revision >= self.acknowledged,
            "{place}: {} was acknowledged, {revision} is there",
            self.acknowledged
        );
        let expected = self.at.get(&revision).cloned().unwrap_or_default();
        assert_eq!(contents(store), expected, "{place}: revision {revision}");
    }
}

/// How many calls a run makes where nothing fails.
fn calls(room: u64) -> usize {
    let disk = Model::default();
    let store = open(&disk, room).unwrap();
    let mut truth = Truth::default();
    truth.work(&store, "plain");
    drop(store);
    assert_eq!(truth.at.len(), WRITES);
    truth.check(&open(&disk.after_a_kill(), room).unwrap(), "plain");
    assert!(disk.calls() > 3 * WRITES, "a run of {} calls rotates too seldom", disk.calls());
    disk.calls()
}

/// Every call of a run, with each kind of room.
fn places() -> impl Iterator<Item = (u64, usize)> {
    ROOMS.into_iter().flat_map(|room| (0..calls(room)).map(move |at| (room, at)))
}

/// A run on a disk with one trouble.
fn troubled(room: u64, at: usize, kind: Kind) -> (Model, Truth) {
    let disk = Model::with(Trouble { at, kind });
    let mut truth = Truth::default();
    match open(&disk, room) {
        Ok(store) => truth.work(&store, "first"),
        Err(OpenError::Io { .. }) => {}
        Err(other) => panic!("call {at} {kind:?}: {other}"),
    }
    (disk, truth)
}

/// Opens what is left, checks it, goes on with it, and checks that.
fn goes_on(left: &Model, truth: &Truth, place: &str, room: u64) {
    let store = open(left, room).unwrap_or_else(|error| panic!("{place}: {error}"));
    truth.check(&store, place);
    let mut later = Truth::of(&store);
    later.work(&store, "second");
    assert_eq!(later.at.len(), WRITES + 1, "{place}: it is written to again");
    drop(store);
    let store = open(&left.after_a_power_cut(&mut fastrand::Rng::with_seed(7)), room).unwrap();
    later.check(&store, place);
}

#[test]
fn a_log_cut_at_any_byte_of_its_last_records_gives_a_state_that_was_acknowledged() {
    let disk = Model::default();
    let store = Store::open_on(Arc::new(disk.clone()), Path::new("store"), Options::default()).unwrap();
    let mut truth = Truth::default();
    truth.work(&store, "first");
    drop(store);
    let log = Path::new("store/log-00000000000000000001");
    let whole = disk.read(log).unwrap().len();
    // Its beginning, and the last few records: each cut is opened, written to, and opened again.
    for len in (0..=64).chain(whole - 600..=whole) {
        let disk = disk.after_a_kill();
        disk.append(log).unwrap().cut(len as u64).unwrap();
        let truth = Truth { acknowledged: 0, ..truth.clone() };
        goes_on(&disk, &truth, &format!("cut at {len} of {whole}"), u64::MAX);
    }
}

#[test]
fn a_log_torn_within_its_room_gives_a_state_that_was_acknowledged() {
    let disk = Model::default();
    let options = Options { room_bytes: 500, ..Options::default() };
    let store = Store::open_on(Arc::new(disk.clone()), Path::new("store"), options).unwrap();
    let mut truth = Truth::default();
    truth.work(&store, "first");
    let killed = disk.after_a_kill();
    let log = Path::new("store/log-00000000000000000001");
    let bytes = killed.read(log).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    assert!(end < bytes.len(), "there is room");
    for len in end - 600..=end {
        let disk = killed.after_a_kill();
        // What was not there yet is still zeros.
        disk.append(log).unwrap().cut(len as u64).unwrap();
        disk.append(log).unwrap().make_room((bytes.len() - len) as u64).unwrap();
        let truth = Truth { acknowledged: 0, ..truth.clone() };
        goes_on(&disk, &truth, &format!("torn at {len} of {end}"), options.room_bytes);
    }
}

#[test]
fn nothing_acknowledged_is_lost_wherever_the_power_fails() {
    for (room, at) in places() {
        let (disk, truth) = troubled(room, at, Kind::Dead);
        for seed in 0..TRIES {
            let mut rng = fastrand::Rng::with_seed(seed);
            goes_on(
                &disk.after_a_power_cut(&mut rng),
                &truth,
                &format!("room {room}, power fails at call {at}, seed {seed}"),
                room,
            );
        }
    }
}

/// Opens what a killed process left; whatever is shown then is there after the power failed, too.
fn shown_stays(killed: &Model, truth: &Truth, place: &str, room: u64) {
    let store = open(killed, room).unwrap_or_else(|error| panic!("{place}: {error}"));
    truth.check(&store, place);
    let shown = Truth::of(&store);
    drop(store);
    for seed in 0..TRIES {
        let left = killed.after_a_power_cut(&mut fastrand::Rng::with_seed(seed));
        goes_on(&left, &shown, &format!("{place}, then the power fails, seed {seed}"), room);
    }
}

#[test]
fn what_was_shown_after_a_kill_survives_a_power_cut() {
    for (room, at) in places() {
        let (disk, truth) = troubled(room, at, Kind::Dead);
        shown_stays(&disk.after_a_kill(), &truth, &format!("room {room}, killed at call {at}"), room);
    }
}

#[test]
fn a_disk_that_refuses_one_call_loses_nothing_and_damages_nothing() {
    for (room, at) in places() {
        let (disk, truth) = troubled(room, at, Kind::Io);
        let place = format!("room {room}, call {at} refused");
        goes_on(&disk.after_a_kill(), &truth, &place, room);
        shown_stays(&disk.after_a_kill(), &truth, &place, room);
        for seed in 0..TRIES {
            let left = disk.after_a_power_cut(&mut fastrand::Rng::with_seed(seed));
            goes_on(&left, &truth, &format!("{place}, then the power fails, seed {seed}"), room);
        }
    }
}

#[test]
fn a_disk_that_runs_full_loses_nothing_and_goes_on_when_there_is_room() {
    for (room, at) in places() {
        let (disk, truth) = troubled(room, at, Kind::Full);
        goes_on(&disk.after_a_kill(), &truth, &format!("room {room}, full at call {at}"), room);
        let mut rng = fastrand::Rng::with_seed(at as u64);
        goes_on(
            &disk.after_a_power_cut(&mut rng),
            &truth,
            &format!("room {room}, full at call {at}, then the power fails"),
            room,
        );
    }
}

#[test]
fn a_store_on_a_disk_that_refused_takes_no_more_writes_and_says_why() {
    let disk = Model::with(Trouble { at: 8, kind: Kind::Io });
    let store = open(&disk, u64::MAX).unwrap();
    let mut truth = Truth::default();
    truth.work(&store, "first");
    assert!(truth.at.len() < WRITES, "a write fails");
    let error = format!("{:?}", store.put(&table(), Expect::Absent, draft("later", "x")).unwrap_err());
    assert!(error.contains("os error 5"), "{error}");
}
