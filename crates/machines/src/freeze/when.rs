//! When does a Freeze hold: now, until when, and when next?

use std::sync::LazyLock;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use pawl_api::pawl::FreezeSpec;

use crate::deploy::cron::Schedule;

/// Longer than a year is no window of a schedule any more, but a Freeze without one.
const MAX_DURATION: Duration = Duration::from_hours(24 * 366);

/// Windows that follow one another without a gap are one; so many are looked at, more than a day of minutes. What lasts
/// longer is looked at again then.
const MAX_JOINED: usize = 1500;

/// The one in the executable: what a machine has on its disk must not change a decision.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The times of a Freeze.
#[derive(Clone, Debug)]
pub(super) enum When {
    Between { from: Option<Timestamp>, until: Option<Timestamp> },
    Again { cron: Schedule, duration: Duration, zone: TimeZone },
}

/// How it stands at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moment {
    /// It holds, and until when, if it ends.
    pub(super) active: Option<Option<Timestamp>>,
    /// When it holds next, if it does not hold now and ever will.
    pub(super) next_start: Option<Timestamp>,
}

impl When {
    /// # Errors
    /// What is wrong with the schedule, naming the field.
    pub(super) fn of(spec: &FreezeSpec) -> Result<Self, String> {
        let Some(schedule) = &spec.schedule else {
            let time = |time: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| {
                time.as_ref().map(|time| time.0)
            };
            return Ok(Self::Between { from: time(&spec.from), until: time(&spec.until) });
        };
        let cron = Schedule::parse(&schedule.cron).map_err(|bad| format!("spec.schedule.cron: {bad}"))?;
        let duration = schedule.duration.get();
        if duration.is_zero() || duration > MAX_DURATION {
            return Err(format!(
                "spec.schedule.duration: {} is not between a second and a year",
                schedule.duration
            ));
        }
        let zone = match schedule.time_zone.as_deref() {
            None => TimeZone::UTC,
            Some(name) => ZONES.get(name).map_err(|_| {
                format!("spec.schedule.timeZone: {name:?} is no time zone (as Europe/Berlin)")
            })?,
        };
        Ok(Self::Again { cron, duration, zone })
    }

    pub(super) fn at(&self, now: Timestamp) -> Moment {
        match self {
            Self::Between { from, until } => {
                if until.is_some_and(|until| until <= now) {
                    return Moment::default();
                }
                match from {
                    Some(from) if *from > now => Moment { active: None, next_start: Some(*from) },
                    Some(_) | None => Moment { active: Some(*until), next_start: None },
                }
            }
            Self::Again { cron, duration, zone } => {
                // A window that holds began within its own length before now.
                let earliest = now.checked_sub(*duration).unwrap_or(Timestamp::MIN);
                match cron.after_in(earliest, zone) {
                    Some(start) if start <= now => {
                        Moment { active: Some(Some(end(cron, *duration, zone, start))), next_start: None }
                    }
                    next_start => Moment { active: None, next_start },
                }
            }
        }
    }
}

/// When the windows that begin with this one end.
fn end(cron: &Schedule, duration: Duration, zone: &TimeZone, start: Timestamp) -> Timestamp {
    let over = |start: Timestamp| start.checked_add(duration).unwrap_or(Timestamp::MAX);
    let (mut last, mut end) = (start, over(start));
    for _ in 0..MAX_JOINED {
        match cron.after_in(last, zone) {
            Some(next) if next <= end => (last, end) = (next, over(next)),
            Some(_) | None => break,
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn moment(schedule: &Value, now: &str) -> String {
        let spec: FreezeSpec = serde_json::from_value(json!({"reason": "r", "schedule": schedule})).unwrap();
        let moment = When::of(&spec).unwrap().at(now.parse().unwrap());
        match moment {
            Moment { active: Some(Some(until)), .. } => format!("until {until}"),
            Moment { active: Some(None), .. } => "for ever".to_owned(),
            Moment { next_start: Some(start), .. } => format!("from {start}"),
            Moment { .. } => "never".to_owned(),
        }
    }

    #[test]
    fn a_schedule_holds_from_its_minute_for_its_duration() {
        // Fridays from six in the evening until Monday at six.
        let weekend = json!({"cron": "0 18 * * 5", "duration": "60h"});
        for (now, expect) in [
            ("2026-01-02T17:59:59Z", "from 2026-01-02T18:00:00Z"),
            ("2026-01-02T18:00:00Z", "until 2026-01-05T06:00:00Z"),
            ("2026-01-04T12:00:00Z", "until 2026-01-05T06:00:00Z"),
            ("2026-01-05T05:59:59Z", "until 2026-01-05T06:00:00Z"),
            ("2026-01-05T06:00:00Z", "from 2026-01-09T18:00:00Z"),
        ] {
            assert_eq!(moment(&weekend, now), expect, "{now}");
        }
        assert_eq!(moment(&json!({"cron": "0 0 31 2 *", "duration": "1h"}), "2026-01-01T00:00:00Z"), "never");
    }

    #[test]
    fn windows_without_a_gap_between_them_are_one() {
        let nights = json!({"cron": "0 0,6 * * 1", "duration": "6h"});
        assert_eq!(moment(&nights, "2026-01-05T01:00:00Z"), "until 2026-01-05T12:00:00Z");
        // Every minute for an hour: always, and so it says at least until when.
        let always = json!({"cron": "* * * * *", "duration": "1h"});
        assert!(moment(&always, "2026-01-05T01:00:00Z").starts_with("until 2026-01-0"));
    }

    #[test]
    fn the_fields_of_a_schedule_are_those_of_its_time_zone() {
        let berlin = json!({"cron": "30 2 * * *", "duration": "1h", "timeZone": "Europe/Berlin"});
        assert_eq!(moment(&berlin, "2026-01-10T00:00:00Z"), "from 2026-01-10T01:30:00Z");
        assert_eq!(moment(&berlin, "2026-07-10T00:45:00Z"), "until 2026-07-10T01:30:00Z");
        // Clocks are put forward at two: half past two does not come, and is made up for.
        assert_eq!(moment(&berlin, "2026-03-28T12:00:00Z"), "from 2026-03-29T01:30:00Z");
        // Clocks are put back at three: half past two comes twice, and the first one counts.
        assert_eq!(moment(&berlin, "2026-10-24T12:00:00Z"), "from 2026-10-25T00:30:00Z");
        assert_eq!(moment(&berlin, "2026-10-25T01:30:00Z"), "from 2026-10-26T01:30:00Z");
    }

    #[test]
    fn what_cannot_be_read_of_a_schedule_names_its_field() {
        for (schedule, field) in [
            (json!({"cron": "61 * * * *", "duration": "1h"}), "spec.schedule.cron"),
            (json!({"cron": "* * * * *", "duration": "0s"}), "spec.schedule.duration"),
            (json!({"cron": "* * * * *", "duration": "9000h"}), "spec.schedule.duration"),
            (
                json!({"cron": "* * * * *", "duration": "1h", "timeZone": "Mars/Olympus"}),
                "spec.schedule.timeZone",
            ),
        ] {
            let spec: FreezeSpec =
                serde_json::from_value(json!({"reason": "r", "schedule": schedule})).unwrap();
            let problem = When::of(&spec).unwrap_err();
            assert!(problem.starts_with(field), "{problem}");
        }
    }
}
