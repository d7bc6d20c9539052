//! When is GitHub asked next?
//!
//! A look that finds nothing new writes nothing (I12), so when the last one was does not stand anywhere. Instead each
//! Repository has its own moments: every `pollInterval`, shifted by a hash of its UID, so that a thousand of them do not
//! ask together. A restart computes the same moments, and asks nothing in between.
//!
//! ```text
//! ──┬─────────────┬──┬──────────┬──▶        [slot, slot + WINDOW): ask, unless this slot's look is on record
//!  slot          slot WINDOW   slot
//! ```

use std::time::Duration;

use jiff::Timestamp;
use pawl_api::git::{Repository, RepositoryStatus, annotations};
use pawl_api::meta::names;

use crate::object::Object;
use crate::time::later;

/// How late a look may come and still count as this slot's: the loop is late by what is queued before it. Whoever comes
/// later waits for the next slot; and a restart falls into it seldom.
const WINDOW: Duration = Duration::from_secs(10);

/// More often than this GitHub is not asked, whatever the spec says.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The first wait after GitHub did not answer.
const FIRST_RETRY: Duration = Duration::from_secs(5);

/// Why GitHub is asked now, or when it will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Now,
    At(Timestamp),
}

/// Whether GitHub is to be asked now.
pub(super) fn due(me: &Object, repository: &Repository, now: Timestamp) -> Due {
    let unset = RepositoryStatus::default();
    let status = repository.status.as_ref().unwrap_or(&unset);
    let interval = repository.spec.poll_interval.get().max(MIN_INTERVAL);
    let (slot, next) = slots(me.uid(), interval, now);
    let retry = status.next_sync_at.as_ref().map(|time| time.0);
    let last = status.last_sync_at.as_ref().map_or(Timestamp::MIN, |time| time.0);
    let in_window = now.duration_since(slot) < window(interval) && last < slot;
    // Both are on record after any look, also one that failed: so each asks once.
    let asked_anew = is_nudged(me, status) || status.observed_generation != me.meta().generation;
    match retry {
        _ if asked_anew => Due::Now,
        Some(at) if at > now => Due::At(at),
        Some(_) => Due::Now,
        None if !status.synced || in_window || rerun(me, status).is_some() => Due::Now,
        None => Due::At(next),
    }
}

/// The next regular look.
pub(super) fn next(me: &Object, repository: &Repository, now: Timestamp) -> Timestamp {
    slots(me.uid(), repository.spec.poll_interval.get().max(MIN_INTERVAL), now).1
}

/// Whether a webhook or a person asked for a look that has not been taken yet.
fn is_nudged(me: &Object, status: &RepositoryStatus) -> bool {
    let asked = me.annotation(annotations::SYNC_REQUESTED_AT);
    asked.is_some() && asked != status.handled_sync_request.as_deref()
}

/// The commit that somebody wants to be run again although its Branch is gone.
pub(super) fn rerun<'a>(me: &'a Object, status: &RepositoryStatus) -> Option<&'a str> {
    let asked = me.annotation(annotations::RERUN)?;
    let sha = asked.split_once('@').map_or(asked, |(sha, _)| sha);
    (Some(asked) != status.handled_rerun.as_deref()).then_some(sha)
}

/// When to ask again after a failure: the longer it lasts, the later, but never later than the next poll would be.
pub(in crate::git) fn retry_at(
    failing_since: Timestamp,
    asked_for: Option<Duration>,
    interval: Duration,
    now: Timestamp,
) -> Timestamp {
    let lasted = Duration::try_from(now.duration_since(failing_since)).unwrap_or_default();
    let wait = lasted.clamp(FIRST_RETRY, interval.max(FIRST_RETRY)).max(asked_for.unwrap_or_default());
    later(now, wait)
}

/// The slot that `now` is in, and the next.
fn slots(uid: &str, interval: Duration, now: Timestamp) -> (Timestamp, Timestamp) {
    let interval = i64::try_from(interval.as_millis()).unwrap_or(i64::MAX).max(1);
    // 15 hex digits always fit.
    let hash = i64::from_str_radix(&names::hash(&[uid], 15), 16).unwrap_or_default();
    let since = (now.as_millisecond() - hash.rem_euclid(interval)).rem_euclid(interval);
    let slot = now.as_millisecond().saturating_sub(since);
    let at = |millis: i64| Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX);
    (at(slot), at(slot.saturating_add(interval)))
}

fn window(interval: Duration) -> jiff::SignedDuration {
    jiff::SignedDuration::try_from(WINDOW.min(interval / 2)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::START;
    use pawl_api::git::repository::KIND;
    use serde_json::{Value, json};

    /// Whether a look is due so many seconds after the second slot of the test's time.
    fn check(status: &Value, annotations: &Value, seconds: i64, expect: Option<i64>) {
        let raw = json!({"metadata": {"name": "r", "uid": "u", "generation": 1, "annotations": annotations},
            "spec": {"owner": "acme", "name": "infra", "githubSecretRef": {"name": "s"}, "pollInterval": "5m"},
            "status": status});
        let me = Object::new(KIND, raw).unwrap();
        let repository = me.parse::<Repository>().unwrap();
        let start: Timestamp = START.parse().unwrap();
        let (_, base) = slots("u", Duration::from_mins(5), start);
        let at = |seconds: i64| base + jiff::SignedDuration::from_secs(seconds);
        let got = due(&me, &repository, at(seconds));
        let expect = expect.map_or(Due::Now, |seconds| Due::At(at(seconds)));
        assert_eq!(got, expect, "{} at {seconds}", me.raw());
    }

    fn from_slot(seconds: i64) -> Value {
        let (_, base) = slots("u", Duration::from_mins(5), START.parse().unwrap());
        json!(Timestamp::from_second((base + jiff::SignedDuration::from_secs(seconds)).as_second()).unwrap())
    }

    #[test]
    fn github_is_asked_at_the_slots_and_not_in_between() {
        let quiet = json!({"synced": true, "observedGeneration": 1});
        check(&json!({}), &json!({}), 100, None);
        check(&quiet, &json!({}), 0, None);
        check(&quiet, &json!({}), 9, None);
        check(&quiet, &json!({}), 11, Some(300));
        check(&quiet, &json!({}), -1, Some(0));
    }

    #[test]
    fn a_slot_whose_look_is_on_record_is_over() {
        let seen = json!({"synced": true, "observedGeneration": 1, "lastSyncAt": from_slot(1)});
        check(&seen, &json!({}), 2, Some(300));
        check(&seen, &json!({}), 301, None);
    }

    #[test]
    fn a_nudge_is_answered_once_and_at_once() {
        let nudge = json!({"terrakojo.io/sync-requested-at": "t1"});
        let status =
            |handled: &str| json!({"synced": true, "observedGeneration": 1, "handledSyncRequest": handled});
        check(&status("t0"), &nudge, 100, None);
        check(&status("t1"), &nudge, 100, Some(300));
        check(&json!({"synced": true, "observedGeneration": 0}), &json!({}), 100, None);
        let rerun = json!({"terrakojo.io/rerun": "abc@d"});
        check(&json!({"synced": true, "observedGeneration": 1}), &rerun, 100, None);
    }

    #[test]
    fn after_a_failure_the_next_look_is_when_the_status_says_i8() {
        let (_, base) = slots("u", Duration::from_mins(5), START.parse().unwrap());
        let failed = json!({"synced": true, "observedGeneration": 1,
            "nextSyncAt": base + jiff::SignedDuration::from_secs(40)});
        check(&failed, &json!({}), 5, Some(40));
        check(&failed, &json!({}), 41, None);
    }

    #[test]
    fn the_longer_it_fails_the_later_it_is_tried_again() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let interval = Duration::from_mins(5);
        assert_eq!(retry_at(at(100), None, interval, at(100)), at(105));
        assert_eq!(retry_at(at(100), None, interval, at(160)), at(220));
        assert_eq!(retry_at(at(100), None, interval, at(10_000)), at(10_300));
        assert_eq!(retry_at(at(100), Some(Duration::from_secs(900)), interval, at(100)), at(1000));
    }
}
