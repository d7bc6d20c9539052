//! What can go wrong between a controller and its API server, and when.
//!
//! Faults are drawn before a run and pinned to the n-th request, so that a failing run can be repeated with fewer of
//! them until only those that matter are left.

use std::fmt;
use std::time::Duration;

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The process dies before the request leaves.
    CrashBefore,
    /// The request is carried out, and the process dies before it reads the reply.
    CrashAfter,
    /// The request is carried out, the reply is lost, the process lives.
    ReplyLost,
    /// The request times out without having been carried out.
    Timeout,
    /// Somebody else was faster: 409 without a change.
    Conflict,
    /// 429 with a Retry-After.
    TooManyRequests,
    /// 500, not carried out.
    ServerError,
    /// 500, carried out all the same.
    ServerErrorAfterwards,
    /// The watches of this replica end with 410: it lists again and misses what happened in between.
    Gone,
    /// The last watch event of this replica comes a second time.
    Duplicate,
    /// The clock jumps, forward or back.
    ClockJump { seconds: i32 },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CrashBefore => f.write_str("crash before"),
            Self::CrashAfter => f.write_str("crash after"),
            Self::ReplyLost => f.write_str("reply lost"),
            Self::Timeout => f.write_str("timeout"),
            Self::Conflict => f.write_str("409"),
            Self::TooManyRequests => f.write_str("429"),
            Self::ServerError => f.write_str("500"),
            Self::ServerErrorAfterwards => f.write_str("500 afterwards"),
            Self::Gone => f.write_str("410 on the watches"),
            Self::Duplicate => f.write_str("duplicated watch event"),
            Self::ClockJump { seconds } => write!(f, "clock jumps by {seconds} s"),
        }
    }
}

/// A fault at the n-th request of a run, counted from 0 over all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Injection {
    pub at: u32,
    pub fault: Fault,
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {}: {}", self.at, self.fault)
    }
}

/// Whether the clock jumps in a run.
pub fn jumps(faults: &[Injection]) -> bool {
    faults.iter().any(|injection| matches!(injection.fault, Fault::ClockJump { .. }))
}

/// How far the clock is set back in a run, all together: so much longer everything may take.
pub fn set_back(faults: &[Injection]) -> Duration {
    let back = |injection: &Injection| match injection.fault {
        Fault::ClockJump { seconds } => u64::from(seconds.min(0).unsigned_abs()),
        Fault::CrashBefore
        | Fault::CrashAfter
        | Fault::ReplyLost
        | Fault::Timeout
        | Fault::Conflict
        | Fault::TooManyRequests
        | Fault::ServerError
        | Fault::ServerErrorAfterwards
        | Fault::Gone
        | Fault::Duplicate => 0,
    };
    Duration::from_secs(faults.iter().map(back).sum())
}

/// The most faults in one run: with more, runs mostly repeat the same few first requests.
const MAX_FAULTS: usize = 8;

/// Draws a run's faults. `requests` is how many requests the run makes without any.
pub fn draw(rng: &mut fastrand::Rng, requests: u32) -> Vec<Injection> {
    let count = rng.usize(0..=MAX_FAULTS);
    // Faults make more requests, which must be reachable too.
    let reach = requests + requests / 2 + 1;
    let mut injections: Vec<_> =
        (0..count).map(|_| Injection { at: rng.u32(0..reach), fault: draw_one(rng) }).collect();
    injections.sort_unstable();
    injections.dedup_by_key(|injection| injection.at);
    injections
}

fn draw_one(rng: &mut fastrand::Rng) -> Fault {
    match rng.u8(0..11) {
        0 => Fault::CrashBefore,
        1 => Fault::CrashAfter,
        2 => Fault::ReplyLost,
        3 => Fault::Timeout,
        4 => Fault::Conflict,
        5 => Fault::TooManyRequests,
        6 => Fault::ServerError,
        7 => Fault::ServerErrorAfterwards,
        8 => Fault::Gone,
        9 => Fault::Duplicate,
        // At most an hour either way: beyond the longest back-off, within a scenario's deadlines.
        _ => Fault::ClockJump { seconds: rng.i32(-3600..=3600) },
    }
}

/// The smallest list of faults that still fails, found by leaving out ever smaller parts.
pub fn minimize(faults: Vec<Injection>, mut fails: impl FnMut(&[Injection]) -> bool) -> Vec<Injection> {
    let mut kept = faults;
    let mut part = kept.len().div_ceil(2);
    while part > 0 && !kept.is_empty() {
        let mut at = 0;
        let mut shrunk = false;
        while at < kept.len() {
            let without: Vec<_> = kept
                .iter()
                .enumerate()
                .filter(|(i, _)| !(at..at + part).contains(i))
                .map(|(_, f)| *f)
                .collect();
            if fails(&without) {
                kept = without;
                shrunk = true;
            } else {
                at += part;
            }
        }
        if !shrunk || part > 1 {
            part /= 2;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimizing_keeps_exactly_what_the_failure_needs() {
        let all: Vec<_> = (0..20).map(|at| Injection { at, fault: Fault::Conflict }).collect();
        let needed = [3, 17];
        let kept = minimize(all, |faults| needed.iter().all(|at| faults.iter().any(|f| f.at == *at)));
        assert_eq!(kept.iter().map(|f| f.at).collect::<Vec<_>>(), needed);
    }

    #[test]
    fn a_failure_without_faults_minimizes_to_none() {
        let all = vec![Injection { at: 1, fault: Fault::Timeout }];
        assert!(minimize(all, |_| true).is_empty());
    }

    #[test]
    fn the_same_seed_draws_the_same_faults() {
        let draw = |seed| draw(&mut fastrand::Rng::with_seed(seed), 40);
        assert_eq!(draw(7), draw(7));
        assert!((0..50).any(|seed| draw(seed) != draw(7)));
    }
}
