//! How times are calculated: one that would be later than the last there is becomes that one.

use std::time::Duration;

use jiff::Timestamp;

pub(crate) fn later(at: Timestamp, by: Duration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}
