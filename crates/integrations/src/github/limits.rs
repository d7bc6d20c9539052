//! May this be sent now, or does GitHub want to be left alone?
//!
//! ```text
//!  remaining ──────────────────────────────────────────────▶ 0
//!  │ everything passes        │ reserve: background waits   │ everything waits until the hour is over
//! ```
//! GitHub tells what is left with every answer. Reads in the background stop at the reserve, so that what was run can
//! still be reported; nothing is sent while GitHub has asked for a pause, which would lengthen it.

use std::time::Duration;

use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};

use super::error::Wait;

/// What GitHub last said is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    pub limit: u32,
    pub remaining: u32,
    pub reset_at: Timestamp,
}

/// Whether a request can wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// A look whether something changed.
    Background,
    /// A report, or a look that a report needs.
    Report,
}

/// One tenth of the hour is kept for reports: of 5,000 requests, 500, which report on some 150 Workflows.
const RESERVE_DIVISOR: u32 = 10;
/// What GitHub's documentation asks for where a secondary limit comes without a time.
const UNTOLD_PAUSE: SignedDuration = SignedDuration::from_secs(60);
/// The primary limit is by the hour: a longer pause is a clock that is wrong, ours or theirs.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_hours(1);
/// A reset that is just over by our clock may not be by theirs.
const SHORTEST_PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// What is known of the limits of one credential.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    last: Option<RateLimit>,
    pause: Option<(Timestamp, Wait)>,
}

impl Limits {
    /// Why and how long this must wait, if it must.
    pub(crate) fn hold(&self, now: Timestamp, urgency: Urgency) -> Option<(Wait, Duration)> {
        if let Some((until, why)) = self.pause.filter(|(until, _)| *until > now) {
            return Some((why, span(now, until)));
        }
        let left = self.left(now)?;
        if urgency == Urgency::Background && left.remaining < left.limit / RESERVE_DIVISOR {
            return Some((Wait::Reserve, span(now, left.reset_at)));
        }
        None
    }

    /// What is left of the hour that is still going on.
    pub(crate) fn left(&self, now: Timestamp) -> Option<RateLimit> {
        self.last.filter(|last| last.reset_at > now)
    }

    /// Reads what an answer says of limits. If it was refused for one, says which and for how long.
    pub(crate) fn hear(
        &mut self,
        now: Timestamp,
        status: u16,
        headers: &HeaderMap,
        message: &str,
    ) -> Option<(Wait, Duration)> {
        let told = rate_limit(headers);
        if let Some(told) = told {
            self.last = Some(match self.last {
                // Answers come in any order; within one hour what is left only falls.
                Some(last) if last.reset_at == told.reset_at => {
                    RateLimit { remaining: told.remaining.min(last.remaining), ..told }
                }
                Some(last) if last.reset_at > told.reset_at => last,
                Some(_) | None => told,
            });
        }
        if !matches!(status, 403 | 429) {
            return None;
        }
        let retry_after = retry_after(headers);
        let (why, until) = match told.filter(|told| told.remaining == 0) {
            Some(told) if retry_after.is_none() => (Wait::Primary, told.reset_at),
            Some(_) | None => {
                let asked =
                    retry_after.is_some() || status == 429 || message.contains("secondary rate limit");
                let pause = retry_after.unwrap_or(UNTOLD_PAUSE);
                (Wait::Secondary, asked.then(|| now.saturating_add(pause).unwrap_or(now))?)
            }
        };
        let latest = now.saturating_add(LONGEST_PAUSE).unwrap_or(now);
        let earliest = now.saturating_add(SHORTEST_PAUSE).unwrap_or(now);
        let until = until.clamp(earliest, latest);
        self.pause = Some((until, why));
        Some((why, span(now, until)))
    }
}

fn span(now: Timestamp, until: Timestamp) -> Duration {
    Duration::try_from(until.duration_since(now)).unwrap_or_default()
}

fn rate_limit(headers: &HeaderMap) -> Option<RateLimit> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<i64>().ok();
    // Searches and other resources have limits of their own, which are not ours.
    if headers.get("x-ratelimit-resource").is_some_and(|resource| resource != "core") {
        return None;
    }
    Some(RateLimit {
        limit: u32::try_from(number("x-ratelimit-limit")?).ok()?,
        remaining: u32::try_from(number("x-ratelimit-remaining")?).ok()?,
        reset_at: Timestamp::from_second(number("x-ratelimit-reset")?).ok()?,
    })
}

/// The pause an answer asks for. A date, or anything else that is no number of seconds, is taken as the usual pause.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<SignedDuration> {
    let value = headers.get("retry-after")?.to_str().unwrap_or_default();
    let told =
        value.trim().parse::<u32>().map_or(UNTOLD_PAUSE, |seconds| SignedDuration::from_secs(seconds.into()));
    Some(told.min(LONGEST_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).expect("a time")
    }

    fn headers(entries: &[(&'static str, String)]) -> HeaderMap {
        entries
            .iter()
            .map(|(name, value)| ((*name).parse().expect("name"), value.parse().expect("value")))
            .collect()
    }

    fn left(remaining: u32, reset: Timestamp) -> HeaderMap {
        headers(&[
            ("x-ratelimit-limit", "5000".to_owned()),
            ("x-ratelimit-remaining", remaining.to_string()),
            ("x-ratelimit-reset", reset.as_second().to_string()),
        ])
    }

    #[test]
    fn below_the_reserve_only_reports_pass_until_the_hour_is_over() {
        let mut limits = Limits::default();
        assert_eq!(limits.hear(at(0), 200, &left(499, at(600)), ""), None);
        assert_eq!(limits.hold(at(0), Urgency::Report), None);
        assert_eq!(limits.hold(at(0), Urgency::Background), Some((Wait::Reserve, Duration::from_secs(600))));
        assert_eq!(limits.hold(at(600), Urgency::Background), None);
        let mut limits = Limits::default();
        limits.hear(at(0), 200, &left(500, at(600)), "");
        assert_eq!(limits.hold(at(0), Urgency::Background), None);
    }

    #[test]
    fn a_used_up_limit_holds_everything_until_its_reset() {
        let mut limits = Limits::default();
        let held = Some((Wait::Primary, Duration::from_secs(90)));
        assert_eq!(limits.hear(at(0), 403, &left(0, at(90)), "API rate limit exceeded"), held);
        assert_eq!(limits.hold(at(0), Urgency::Report), held);
        assert_eq!(limits.hold(at(90), Urgency::Report), None);
    }

    #[test]
    fn a_secondary_limit_holds_as_long_as_it_says_or_a_minute() {
        for (status, told, message, pause) in [
            (403, Some("7"), "You have exceeded a secondary rate limit", 7),
            (403, None, "You have exceeded a secondary rate limit", 60),
            (429, None, "", 60),
            (429, Some("Wed, 21 Oct 2026 07:28:00 GMT"), "", 60),
            (403, Some("999999"), "", 3600),
            (429, Some("0"), "", 1),
        ] {
            let mut limits = Limits::default();
            let told = told.map(|told| ("retry-after", told.to_owned()));
            let heard = limits.hear(at(0), status, &headers(told.as_slice()), message);
            assert_eq!(heard, Some((Wait::Secondary, Duration::from_secs(pause))), "{status} {told:?}");
            assert_eq!(limits.hold(at(0), Urgency::Report), heard);
        }
    }

    #[test]
    fn a_plain_refusal_holds_nothing() {
        let mut limits = Limits::default();
        let heard = limits.hear(at(0), 403, &left(4000, at(90)), "Resource not accessible by integration");
        assert_eq!((heard, limits.hold(at(0), Urgency::Background)), (None, None));
    }

    #[test]
    fn answers_out_of_order_never_give_requests_back() {
        let mut limits = Limits::default();
        limits.hear(at(0), 200, &left(10, at(90)), "");
        limits.hear(at(0), 200, &left(11, at(90)), "");
        limits.hear(at(0), 200, &left(4999, at(30)), "");
        assert_eq!(limits.left(at(0)).map(|left| left.remaining), Some(10));
        limits.hear(at(0), 200, &left(4999, at(3690)), "");
        assert_eq!(limits.left(at(0)).map(|left| left.remaining), Some(4999));
    }
}
