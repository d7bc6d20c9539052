//! What time is it: the wall's, for deadlines that people and other processes share (I8), and a steady one for waits.
//!
//! Deadlines in a status are wall time and must hold when somebody sets the clock. Back-offs and timeouts are spans and
//! must not care. So whoever schedules gets both, as one [`Moment`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The wall clock.
pub trait Clock: Send + Sync + fmt::Debug {
    fn now(&self) -> Timestamp;
}

/// The machine's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A wall clock that goes with the runtime's time, so that it stands still with it, and that can be set.
#[derive(Debug)]
pub struct VirtualClock {
    epoch: Timestamp,
    start: Instant,
    offset_millis: AtomicI64,
}

impl VirtualClock {
    /// Must be made inside the runtime whose time it follows.
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self { epoch, start: Instant::now(), offset_millis: AtomicI64::new(0) }
    }

    /// Sets the wall clock forward, or back.
    pub fn jump(&self, by: SignedDuration) {
        let millis = i64::try_from(by.as_millis()).unwrap_or_default();
        self.offset_millis.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let offset = SignedDuration::from_millis(self.offset_millis.load(Ordering::SeqCst));
        let elapsed = SignedDuration::try_from(self.start.elapsed()).unwrap_or(SignedDuration::MAX);
        self.epoch.checked_add(elapsed).and_then(|now| now.checked_add(offset)).unwrap_or(self.epoch)
    }
}

/// Now, on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Since the loop was built; never set.
    pub steady: Duration,
    pub wall: Timestamp,
}

/// Both clocks of one loop.
#[derive(Clone, Debug)]
pub struct Time {
    clock: Arc<dyn Clock>,
    start: Instant,
}

impl Time {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, start: Instant::now() }
    }

    pub fn moment(&self) -> Moment {
        Moment { steady: self.start.elapsed(), wall: self.clock.now() }
    }

    pub fn wall(&self) -> Timestamp {
        self.clock.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_wall_can_be_set_while_the_steady_clock_goes_on() {
        let clock = Arc::new(VirtualClock::starting_at(Timestamp::UNIX_EPOCH));
        let time = Time::new(Arc::clone(&clock) as Arc<dyn Clock>);
        tokio::time::advance(Duration::from_secs(5)).await;
        clock.jump(SignedDuration::from_secs(-60));
        let Moment { steady, wall } = time.moment();
        assert_eq!((steady.as_secs(), wall.as_second()), (5, -55));
    }
}
