//! Who makes room when all connections are taken?
//!
//! There are only so many, and whoever opens one need not say who they are to hold it: a few hundred silent connections
//! would keep everybody else out for as long as a silent one is borne. So when none is left, the one that has been idle
//! longest is asked to leave. One with a request under way is never asked: a watch holds its place.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::pace::Pace;

/// All connections there are.
#[derive(Debug, Clone, Default)]
pub(super) struct Crowd {
    guests: Arc<Mutex<Guests>>,
}

#[derive(Debug, Default)]
struct Guests {
    seats: HashMap<u64, (Arc<Pace>, Arc<Notify>)>,
    next: u64,
}

/// One connection; dropped, it is no longer asked.
#[derive(Debug)]
pub(super) struct Seat {
    crowd: Crowd,
    number: u64,
    leave: Arc<Notify>,
}

impl Crowd {
    pub(super) fn enter(&self, pace: Arc<Pace>) -> Seat {
        let leave = Arc::new(Notify::new());
        let mut guests = self.lock();
        let number = guests.next;
        guests.next = number.wrapping_add(1);
        guests.seats.insert(number, (pace, leave.clone()));
        Seat { crowd: self.clone(), number, leave }
    }

    /// Asks whoever has been idle longest to leave, once. False if everybody is busy.
    pub(super) fn make_room(&self) -> bool {
        let mut guests = self.lock();
        let idle = guests.seats.iter().filter_map(|(seat, (pace, _))| Some((pace.idle_since()?, *seat)));
        let Some((_, seat)) = idle.min() else { return false };
        // Taken off the list, so that the next who needs room asks another.
        if let Some((_, leave)) = guests.seats.remove(&seat) {
            leave.notify_one();
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, Guests> {
        // Nothing can panic while the lock is held.
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Waits until somebody else needs the place more.
    pub(super) async fn asked_to_leave(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.crowd.lock().seats.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_is_asked_first_and_the_busy_never() {
        let crowd = Crowd::default();
        let [busy, first, second] = [(); 3].map(|()| Pace::new());
        let request = busy.begin();
        let _busy = crowd.enter(busy);
        let first = crowd.enter(first);
        tokio::time::sleep(Duration::from_secs(1)).await;
        second.begin();
        let second = crowd.enter(second);
        assert!(crowd.make_room());
        first.asked_to_leave().await;
        assert!(crowd.make_room());
        second.asked_to_leave().await;
        assert!(!crowd.make_room(), "a request is under way");
        drop(request);
        assert!(crowd.make_room());
        drop((first, second));
        assert!(crowd.lock().seats.is_empty());
    }
}
