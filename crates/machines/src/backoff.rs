//! How long until the next try? Arithmetic only: the caller brings the attempt and the dice.

use std::time::Duration;

/// The first retry after an error (I9): long enough for a conflicting write to reach our caches.
pub const FIRST: Duration = Duration::from_millis(100);

/// The longest anything waits after an error (I9): a person who fixed the cause sees it picked up within minutes.
pub const LONGEST: Duration = Duration::from_mins(5);

/// The wait after `failures` errors in a row: doubling from [`FIRST`] to [`LONGEST`], of which `dice` in `[0, 1)` picks
/// a moment in the second half, so that what failed together does not come back together.
pub fn after_error(failures: u32, dice: f64) -> Duration {
    let longest = doubling(FIRST, failures, LONGEST);
    let dice = if dice.is_finite() { dice.clamp(0.0, 1.0) } else { 0.0 };
    longest.mul_f64(0.5 + dice / 2.0)
}

/// `first` after one failure, twice that after two, … at most `longest`; nothing after none.
pub fn doubling(first: Duration, failures: u32, longest: Duration) -> Duration {
    let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
    let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
    first.saturating_mul(factor).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn waits_double_and_stop_at_the_longest() {
        let waits: Vec<_> = (0..5).map(|n| doubling(FIRST, n, LONGEST).as_millis()).collect();
        assert_eq!(waits, [0, 100, 200, 400, 800]);
        assert_eq!(doubling(FIRST, 13, LONGEST), LONGEST);
        assert_eq!(doubling(FIRST, u32::MAX, LONGEST), LONGEST);
        assert_eq!(doubling(Duration::MAX, 40, Duration::MAX), Duration::MAX);
    }

    proptest! {
        #[test]
        fn any_dice_gives_a_wait_in_the_second_half(failures in any::<u32>(), dice in any::<f64>()) {
            let wait = after_error(failures, dice);
            let longest = doubling(FIRST, failures, LONGEST);
            prop_assert!(wait <= longest && wait >= longest / 2, "{wait:?} of {longest:?}");
        }
    }
}
