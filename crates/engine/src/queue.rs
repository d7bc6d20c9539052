//! What to look at next: a queue of objects, without IO, with `now` passed in.
//!
//! ```text
//!            wake                 take                     done: settled, nothing new
//!  (absent) ─────▶ ready ───────────────▶ running ─────────────────────────────────▶ idle ──┐
//!                    ▲                      │  │ woken meanwhile                        │   │ deadline, resync,
//!                    └──────────────────────┘  └▶ ready                                 │   │ retry, change
//!                    └──────────────────────────────────────────────────────────────────┴───┘
//! ```
//! One object is never looked at twice at the same time; however often it is woken while it waits, it is looked at
//! once. Machines take turns, so that one with ten thousand objects does not starve one with three. What was looked at
//! before goes before what is new, so that a flood of new objects does not hold up the end of those begun. A wall-clock
//! deadline and a steady wait are kept apart: setting the clock moves the first and not the second.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pawl_api::meta::Kind;
use pawl_machines::backoff::{FIRST, after_error};
use pawl_machines::object::Key;
use pawl_machines::plan::Wake;

use crate::clock::Moment;

/// How often an object is looked at even if nothing seems to have changed: the safety net under lost events (I9).
pub const RESYNC: Duration = Duration::from_mins(10);

/// A wait for a wall-clock deadline is cut into naps of at most this long, so that setting the clock forward is noticed
/// this late at worst.
const MAX_NAP: Duration = Duration::from_secs(30);

/// A look that thought at least this long is a large one …
const LONG_THOUGHT: Duration = Duration::from_millis(2);

/// … and what wakes its object next waits so many times as long: one object with ten thousand children takes half of a
/// thread at most, and a burst of changes becomes one look …
const REST: u32 = 1;

/// … but never longer than this.
const LONGEST_REST: Duration = Duration::from_millis(100);

/// After so many looks at objects that were looked at before, one that is new has its turn, however many of the others
/// there are. A run takes some six looks from its first to its last: so what is begun ends sooner than more is begun.
const NEW_AFTER: u32 = 12;

/// One object, as one machine looks at it. The queue, its timers and the reports share what it says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Work(Arc<About>);

/// What [`Work`] says.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct About {
    /// Which machine, by its place in the list.
    pub machine: usize,
    pub kind: Kind,
    pub key: Key,
}

impl Work {
    pub fn new(machine: usize, kind: Kind, key: Key) -> Self {
        Self(Arc::new(About { machine, kind, key }))
    }
}

impl Deref for Work {
    type Target = About;

    fn deref(&self) -> &About {
        &self.0
    }
}

impl Hash for Work {
    /// Few machines look at more than one kind, and names tell most objects apart.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.machine.hash(state);
        self.key.hash(state);
    }
}

/// What looking at an object came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All is done for now.
    Settled { wake: Wake },
    /// It failed: again later, and not before the server wants to be asked.
    Retry { after: Option<Duration> },
    /// The object is gone.
    Forget,
}

/// An object that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    pub work: Work,
    /// Nothing woke it but the slow resync.
    pub resync: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Queue {
    /// Never gone through in its own order, which is drawn by lot.
    items: HashMap<Work, Item>,
    lanes: Vec<Lane>,
    turn: usize,
    steady: BTreeSet<(Duration, Work)>,
    wall: BTreeSet<(Timestamp, Work)>,
    running: usize,
    resync: Duration,
    random: fastrand::Rng,
}

/// The objects of one machine that are ready, oldest first.
#[derive(Debug, Default)]
struct Lane {
    /// Closed until all that the machine looks at has been seen once.
    open: bool,
    /// Looked at before.
    begun: VecDeque<Work>,
    /// Never looked at.
    new: VecDeque<Work>,
    /// How many of the first kind were taken since one of the second.
    since_new: u32,
}

impl Lane {
    fn take(&mut self) -> Option<Work> {
        if (self.since_new < NEW_AFTER || self.new.is_empty())
            && let Some(work) = self.begun.pop_front()
        {
            self.since_new = self.since_new.saturating_add(1);
            return Some(work);
        }
        self.since_new = 0;
        self.new.pop_front()
    }

    fn len(&self) -> usize {
        self.begun.len() + self.new.len()
    }
}

#[derive(Debug, Default)]
struct Item {
    state: State,
    failures: u32,
    /// How often in a row it asked to be woken at a moment that had passed.
    hurries: u32,
    /// Not even a change wakes it before.
    not_before: Duration,
    timer: Option<(Duration, Why)>,
    deadline: Option<Timestamp>,
    only_resync: bool,
    /// It was looked at before.
    begun: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Ready,
    Running {
        again: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Due,
    Resync,
}

impl Queue {
    pub fn new(machines: usize, seed: u64) -> Self {
        Self {
            items: HashMap::new(),
            lanes: (0..machines).map(|_| Lane::default()).collect(),
            turn: 0,
            steady: BTreeSet::new(),
            wall: BTreeSet::new(),
            running: 0,
            resync: RESYNC,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    #[must_use]
    pub fn resync_every(mut self, resync: Duration) -> Self {
        self.resync = resync;
        self
    }

    /// Lets a machine's objects be taken, or no longer.
    pub fn open(&mut self, machine: usize, open: bool) {
        if let Some(lane) = self.lanes.get_mut(machine) {
            lane.open = open;
        }
    }

    pub fn is_open(&self, machine: usize) -> bool {
        self.lanes.get(machine).is_some_and(|lane| lane.open)
    }

    /// Something that concerns this object has changed.
    pub fn wake(&mut self, work: &Work, now: Moment) {
        // The one that is kept goes on, so that timers and reports share it.
        let work = &self.items.get_key_value(work).map_or(work, |(kept, _)| kept).clone();
        let item = self.items.entry(work.clone()).or_default();
        match item.state {
            State::Running { .. } => item.state = State::Running { again: true },
            State::Ready => item.only_resync = false,
            State::Idle if item.not_before > now.steady => {
                let at = item.not_before;
                self.set_timer(work, at, Why::Due);
            }
            State::Idle => self.make_ready(work, false),
        }
    }

    /// Wakes all that one machine knows.
    pub fn wake_all(&mut self, machine: usize, now: Moment) {
        let mut all: Vec<Work> = self.items.keys().filter(|work| work.machine == machine).cloned().collect();
        all.sort_unstable();
        for work in all {
            self.wake(&work, now);
        }
    }

    /// The next object to look at: the caller must say `done` for it.
    pub fn take(&mut self, now: Moment) -> Option<Taken> {
        self.promote_due(now);
        let lanes = self.lanes.len();
        for step in 0..lanes {
            let at = (self.turn + step) % lanes;
            let Some(lane) = self.lanes.get_mut(at).filter(|lane| lane.open) else { continue };
            let Some(work) = lane.take() else { continue };
            self.turn = at + 1;
            self.running += 1;
            let item = self.items.entry(work.clone()).or_default();
            item.state = State::Running { again: false };
            item.begun = true;
            let resync = std::mem::take(&mut item.only_resync);
            return Some(Taken { work, resync });
        }
        None
    }

    /// Ends what `take` began.
    pub fn done(&mut self, work: &Work, verdict: Verdict, now: Moment) {
        self.done_after(work, verdict, Duration::ZERO, now);
    }

    /// Ends what `take` began, and took this long to think about.
    pub fn done_after(&mut self, work: &Work, verdict: Verdict, thought: Duration, now: Moment) {
        let Some(item) = self.items.get_mut(work) else { return };
        let State::Running { again } = item.state else { return };
        self.running = self.running.saturating_sub(1);
        item.state = State::Idle;
        match verdict {
            Verdict::Forget if !again => {
                self.clear_timers(work);
                self.items.remove(work);
            }
            Verdict::Forget => self.make_ready(work, false),
            Verdict::Settled { wake } => {
                item.failures = 0;
                let rest =
                    if thought < LONG_THOUGHT { Duration::ZERO } else { (thought * REST).min(LONGEST_REST) };
                item.not_before = if rest.is_zero() { rest } else { now.steady + rest };
                let at = item.not_before;
                match again {
                    true if rest.is_zero() => self.make_ready(work, false),
                    true => {
                        self.clear_timers(work);
                        self.set_timer(work, at, Why::Due);
                    }
                    false => self.rest(work, wake, now),
                }
            }
            Verdict::Retry { after } => {
                item.failures = item.failures.saturating_add(1);
                item.not_before = now.steady + after.unwrap_or_default().max(FIRST);
                let floor = item.not_before;
                let delay = backoff(item.failures, &mut self.random).max(after.unwrap_or_default());
                let at = if again { floor } else { floor.max(now.steady + delay) };
                self.clear_timers(work);
                self.set_timer(work, at, Why::Due);
            }
        }
    }

    /// How long until something can be taken; `None` if only a wake will change that.
    pub fn next(&self, now: Moment) -> Option<Duration> {
        if self.lanes.iter().any(|lane| lane.open && lane.len() > 0) {
            return Some(Duration::ZERO);
        }
        let steady = self.steady.first().map(|(at, _)| at.saturating_sub(now.steady));
        let wall = self
            .wall
            .first()
            .map(|(at, _)| Duration::try_from(at.duration_since(now.wall)).unwrap_or_default().min(MAX_NAP));
        steady.into_iter().chain(wall).min()
    }

    /// How many objects of a machine wait to be taken.
    pub fn depth(&self, machine: usize) -> usize {
        self.lanes.get(machine).map_or(0, Lane::len)
    }

    /// How many objects are being looked at.
    pub fn running(&self) -> usize {
        self.running
    }

    /// How many objects are known.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn rest(&mut self, work: &Work, wake: Wake, now: Moment) {
        self.clear_timers(work);
        // Spread over a fifth of the period, so that what was started together does not stay together.
        let resync = self.resync.mul_f64(0.9 + 0.2 * self.random.f64());
        self.set_timer(work, now.steady + resync, Why::Resync);
        let Some(item) = self.items.get_mut(work) else { return };
        match wake {
            Wake::OnChange => item.hurries = 0,
            Wake::At(at) if at > now.wall => {
                item.hurries = 0;
                item.deadline = Some(at);
                self.wall.insert((at, work.clone()));
            }
            // It has passed already: at once, but a decision that always says so must not spin.
            Wake::At(_) => {
                item.hurries = item.hurries.saturating_add(1);
                let delay = backoff(item.hurries, &mut self.random);
                self.set_timer(work, now.steady + delay, Why::Due);
            }
        }
    }

    fn promote_due(&mut self, now: Moment) {
        while let Some((at, work)) = self.steady.first().cloned() {
            if at > now.steady {
                break;
            }
            let why = self.items.get(&work).and_then(|item| item.timer).map(|(_, why)| why);
            self.make_ready(&work, why == Some(Why::Resync));
            self.steady.remove(&(at, work));
        }
        while let Some((at, work)) = self.wall.first().cloned() {
            if at > now.wall {
                break;
            }
            self.make_ready(&work, false);
            self.wall.remove(&(at, work));
        }
    }

    fn make_ready(&mut self, work: &Work, only_resync: bool) {
        self.clear_timers(work);
        let Some(item) = self.items.get_mut(work) else { return };
        match item.state {
            State::Idle => {
                item.state = State::Ready;
                item.only_resync = only_resync;
                if let Some(lane) = self.lanes.get_mut(work.machine) {
                    let ready = if item.begun { &mut lane.begun } else { &mut lane.new };
                    ready.push_back(work.clone());
                }
            }
            State::Ready => item.only_resync &= only_resync,
            State::Running { .. } => item.state = State::Running { again: true },
        }
    }

    /// Sets the one steady timer of an object, unless it would go off earlier anyway.
    fn set_timer(&mut self, work: &Work, at: Duration, why: Why) {
        let Some(item) = self.items.get_mut(work) else { return };
        if let Some((before, _)) = item.timer {
            if before <= at {
                return;
            }
            self.steady.remove(&(before, work.clone()));
        }
        item.timer = Some((at, why));
        self.steady.insert((at, work.clone()));
    }

    fn clear_timers(&mut self, work: &Work) {
        let Some(item) = self.items.get_mut(work) else { return };
        if let Some((at, _)) = item.timer.take() {
            self.steady.remove(&(at, work.clone()));
        }
        if let Some(at) = item.deadline.take() {
            self.wall.remove(&(at, work.clone()));
        }
    }
}

/// How long to wait after this many failures in a row. Never less than the first step, lest a conflict be met again
/// before its cause has reached our caches.
pub fn backoff(failures: u32, random: &mut fastrand::Rng) -> Duration {
    after_error(failures, random.f64()).max(FIRST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pawl_machines::backoff::LONGEST;

    const JOB: Kind = Kind::of("batch", "v1", "Job", "jobs", true);

    fn work(machine: usize, name: &str) -> Work {
        Work::new(machine, JOB, Key::new(Some("n"), name))
    }

    fn at(millis: u64) -> Moment {
        let wall = Timestamp::from_millisecond(i64::try_from(millis).unwrap()).unwrap();
        Moment { steady: Duration::from_millis(millis), wall }
    }

    fn queue(machines: usize) -> Queue {
        let mut queue = Queue::new(machines, 7);
        for machine in 0..machines {
            queue.open(machine, true);
        }
        queue
    }

    fn names(queue: &mut Queue, now: Moment) -> Vec<String> {
        std::iter::from_fn(|| queue.take(now)).map(|taken| taken.work.key.name.clone()).collect()
    }

    const SETTLED: Verdict = Verdict::Settled { wake: Wake::OnChange };

    #[test]
    fn many_changes_of_a_large_object_become_one_look() {
        let mut queue = queue(1);
        let large = work(0, "large");
        queue.wake(&large, at(0));
        assert!(queue.take(at(0)).is_some());
        queue.wake(&large, at(5));
        queue.done_after(&large, SETTLED, Duration::from_millis(10), at(10));
        queue.wake(&large, at(15));
        assert!(queue.take(at(19)).is_none(), "it rests as long as it thought");
        assert_eq!(names(&mut queue, at(20)), ["large"]);
        queue.done_after(&large, SETTLED, Duration::from_secs(10), at(50));
        queue.wake(&large, at(60));
        assert!(queue.take(at(149)).is_none());
        assert_eq!(names(&mut queue, at(150)), ["large"], "and never longer than a tenth of a second");
        queue.done_after(&large, SETTLED, Duration::from_millis(1), at(160));
        queue.wake(&large, at(161));
        assert_eq!(names(&mut queue, at(161)), ["large"], "a small one does not rest");
    }

    #[test]
    fn one_object_is_looked_at_once_at_a_time_and_again_if_it_changed_meanwhile() {
        let mut queue = queue(1);
        let a = work(0, "a");
        queue.wake(&a, at(0));
        queue.wake(&a, at(0));
        assert_eq!(names(&mut queue, at(0)), ["a"]);
        queue.wake(&a, at(1));
        queue.wake(&a, at(1));
        assert_eq!(queue.take(at(1)), None);
        queue.done(&a, SETTLED, at(2));
        assert_eq!(names(&mut queue, at(2)), ["a"]);
        queue.done(&a, SETTLED, at(3));
        assert_eq!(queue.take(at(3)), None);
    }

    #[test]
    fn what_was_begun_goes_before_what_is_new_and_starves_it_not() {
        let mut queue = queue(1);
        let begun: Vec<Work> = (0..30).map(|at| work(0, &format!("begun-{at:02}"))).collect();
        for one in &begun {
            queue.wake(one, at(0));
            assert!(queue.take(at(0)).is_some());
            queue.done(one, SETTLED, at(0));
        }
        queue.wake(&work(0, "new-0"), at(1));
        queue.wake(&work(0, "new-1"), at(1));
        begun.iter().for_each(|one| queue.wake(one, at(2)));
        let taken = names(&mut queue, at(2));
        let news: Vec<usize> =
            taken.iter().enumerate().filter(|(_, name)| name.starts_with("new")).map(|(at, _)| at).collect();
        assert_eq!(taken.len(), 32);
        assert_eq!(news, [12, 25], "one after every {NEW_AFTER} others");
        assert_eq!(taken[0], "begun-00");
    }

    #[test]
    fn machines_take_turns() {
        let mut queue = queue(2);
        for name in ["a", "b", "c"] {
            queue.wake(&work(0, name), at(0));
        }
        queue.wake(&work(1, "z"), at(0));
        assert_eq!(names(&mut queue, at(0)), ["a", "z", "b", "c"]);
    }

    #[test]
    fn a_closed_lane_keeps_its_objects_and_asks_for_no_time() {
        let mut queue = Queue::new(1, 0);
        queue.wake(&work(0, "a"), at(0));
        assert_eq!((queue.take(at(0)), queue.next(at(0)), queue.depth(0)), (None, None, 1));
        queue.open(0, true);
        assert_eq!(queue.next(at(0)), Some(Duration::ZERO));
    }

    #[test]
    fn i9_failures_back_off_up_to_a_bound_and_success_forgets_them() {
        let mut queue = queue(1);
        let a = work(0, "a");
        queue.wake(&a, at(0));
        let (mut now, mut waits) = (0, Vec::new());
        for _ in 0..20 {
            queue.take(at(now)).unwrap();
            queue.done(&a, Verdict::Retry { after: None }, at(now));
            let wait = queue.next(at(now)).unwrap();
            waits.push(wait);
            now += u64::try_from(wait.as_millis()).unwrap() + 1;
        }
        assert!(waits.iter().all(|wait| (FIRST..=LONGEST).contains(wait)), "{waits:?}");
        assert!(waits[0] < Duration::from_millis(200) && waits[19] > Duration::from_secs(140), "{waits:?}");
        queue.take(at(now)).unwrap();
        queue.done(&a, SETTLED, at(now));
        queue.wake(&a, at(now));
        queue.take(at(now)).unwrap();
        queue.done(&a, Verdict::Retry { after: None }, at(now));
        assert!(queue.next(at(now)).unwrap() <= Duration::from_millis(200));
    }

    #[test]
    fn a_change_ends_a_back_off_early_but_not_what_the_server_asked_for() {
        let mut queue = queue(1);
        let a = work(0, "a");
        queue.wake(&a, at(0));
        for now in [0, 1_000, 2_000, 3_000, 4_000] {
            queue.take(at(now)).unwrap();
            queue.done(&a, Verdict::Retry { after: None }, at(now));
            queue.wake(&a, at(now + 1));
        }
        assert_eq!(queue.next(at(4_001)), Some(Duration::from_millis(99)));
        queue.take(at(5_000)).unwrap();
        queue.done(&a, Verdict::Retry { after: Some(Duration::from_secs(7)) }, at(5_000));
        queue.wake(&a, at(5_001));
        assert_eq!(queue.next(at(5_001)), Some(Duration::from_millis(6_999)));
    }

    #[test]
    fn a_deadline_follows_the_wall_and_a_retry_does_not() {
        let mut queue = queue(1);
        let a = work(0, "a");
        queue.wake(&a, at(0));
        queue.take(at(0)).unwrap();
        queue.done(&a, Verdict::Settled { wake: Wake::At(at(20_000).wall) }, at(0));
        assert_eq!(queue.next(at(0)), Some(Duration::from_secs(20)));
        assert_eq!(queue.take(at(19_999)), None);
        let jumped = Moment { steady: Duration::from_secs(1), ..at(20_000) };
        assert!(!queue.take(jumped).unwrap().resync);
        queue.done(&a, Verdict::Retry { after: None }, jumped);
        let set_back = Moment { steady: Duration::from_secs(2), ..at(0) };
        assert!(queue.take(set_back).is_some());
    }

    #[test]
    fn a_deadline_that_has_passed_is_due_but_never_spins() {
        let mut queue = queue(1);
        let a = work(0, "a");
        queue.wake(&a, at(1_000));
        let (mut now, mut looks) = (1_000, 0);
        while now < 61_000 {
            if queue.take(at(now)).is_some() {
                looks += 1;
                queue.done(&a, Verdict::Settled { wake: Wake::At(at(5).wall) }, at(now));
            }
            now += 10;
        }
        assert!((5..20).contains(&looks), "{looks}");
    }

    #[test]
    fn the_slow_resync_is_spread_and_says_that_it_is_one() {
        let mut queue = queue(1);
        for name in 0..50 {
            queue.wake(&work(0, &name.to_string()), at(0));
        }
        while let Some(taken) = queue.take(at(0)) {
            queue.done(&taken.work, SETTLED, at(0));
        }
        assert!(queue.next(at(0)).unwrap() >= RESYNC.mul_f64(0.9));
        let half = names(&mut queue, at(600_000)).len();
        assert!((10..40).contains(&half), "{half}");
        assert!(queue.take(at(700_000)).unwrap().resync);
    }

    #[test]
    fn what_is_gone_is_forgotten_unless_it_came_back() {
        let mut queue = queue(1);
        let a = work(0, "a");
        queue.wake(&a, at(0));
        queue.take(at(0)).unwrap();
        queue.wake(&a, at(0));
        queue.done(&a, Verdict::Forget, at(0));
        queue.take(at(0)).unwrap();
        queue.done(&a, Verdict::Forget, at(0));
        assert!(queue.is_empty() && queue.running() == 0);
    }

    /// Any order of wakes, looks, verdicts and clock settings; then quiet. `owed` is what a simple reader of the rules
    /// says must still be looked at.
    fn any_history(seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut queue = queue(3);
        let (mut now, mut running, mut owed) = (at(0), BTreeSet::new(), BTreeSet::new());
        for _ in 0..400 {
            let work = work(random.usize(0..3), &random.u8(0..4).to_string());
            match random.u8(0..4) {
                0 => {
                    queue.wake(&work, now);
                    owed.insert(work);
                }
                1 => {
                    if let Some(Taken { work, .. }) = queue.take(now) {
                        owed.remove(&work);
                        assert!(running.insert(work), "seed {seed}: looked at twice at once");
                    }
                }
                2 => {
                    let Some(work) = random.choice(running.iter().cloned().collect::<Vec<_>>()) else {
                        continue;
                    };
                    let verdict = match random.u8(0..4) {
                        0 => Verdict::Retry { after: random.bool().then_some(Duration::from_secs(3)) },
                        1 => Verdict::Settled { wake: Wake::At(at(random.u64(0..20_000)).wall) },
                        2 => SETTLED,
                        _ => Verdict::Forget,
                    };
                    if matches!(verdict, Verdict::Retry { .. }) {
                        owed.insert(work.clone());
                    }
                    running.remove(&work);
                    queue.done(&work, verdict, now);
                }
                _ => {
                    now.steady += Duration::from_millis(random.u64(0..2_000));
                    now.wall = at(random.u64(0..20_000)).wall;
                }
            }
            assert_eq!(queue.running(), running.len(), "seed {seed}");
        }
        for work in running {
            queue.done(&work, SETTLED, now);
        }
        now.steady += Duration::from_mins(5);
        while let Some(Taken { work, .. }) = queue.take(now) {
            owed.remove(&work);
            queue.done(&work, Verdict::Forget, now);
        }
        assert!(owed.is_empty(), "seed {seed}: lost {owed:?}");
        let timed = queue.items.values().all(|item| item.state == State::Idle && item.timer.is_some());
        assert!(timed, "seed {seed}: an object would never be looked at again");
        let timers = queue.items.values().filter(|item| item.timer.is_some()).count();
        let deadlines = queue.items.values().filter(|item| item.deadline.is_some()).count();
        assert_eq!((queue.steady.len(), queue.wall.len()), (timers, deadlines), "seed {seed}");
    }

    #[test]
    fn after_any_history_no_wake_is_lost_and_nothing_is_looked_at_twice_at_once() {
        (0..200).for_each(any_history);
    }
}
