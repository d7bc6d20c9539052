//! When is it next time, by five fields of cron: minute, hour, day of month, month, day of week?
//!
//! `*`, numbers, ranges `1-5`, steps `*/15` and `8-18/2`, lists of these. Sunday is 0 or 7. As cron has it, where both days
//! are restricted, either will do.

use jiff::civil::{Date, DateTime, time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

/// Days that are looked at: the 29th of February may be eight years away.
const MAX_DAYS: usize = 366 * 9;
/// Times that may come again when clocks are put back: every minute of an hour, or of a day where a date came twice.
const MAX_REPEATED: usize = 24 * 60 + 1;

/// A schedule that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether either of the days is given, not both of them free.
    either: bool,
}

/// Why a text is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no schedule: {problem} (write minute hour day month weekday, as in \"0 3 * * 1-5\")")]
pub(crate) struct BadSchedule {
    text: String,
    problem: &'static str,
}

impl Schedule {
    pub(crate) fn parse(text: &str) -> Result<Self, BadSchedule> {
        let bad = |problem| BadSchedule { text: text.to_owned(), problem };
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields.as_slice() else {
            return Err(bad("it has not five fields"));
        };
        let field = |text: &str, low: u32, high: u32| field(text, low, high).map_err(bad);
        let sunday = field(weekdays, 0, 7)?;
        Ok(Self {
            minutes: field(minutes, 0, 59)?,
            hours: field(hours, 0, 23)?,
            days: field(days, 1, 31)?,
            months: field(months, 1, 12)?,
            weekdays: if sunday & (1 << 7) == 0 { sunday } else { sunday | 1 },
            either: !days.starts_with('*') && !weekdays.starts_with('*'),
        })
    }

    /// The first moment after this one; `None` if there is none in sight.
    pub(crate) fn after(&self, moment: Timestamp) -> Option<Timestamp> {
        self.after_in(moment, &TimeZone::UTC)
    }

    /// The same for fields that mean the clocks of a time zone. What falls into an hour that is skipped comes when the
    /// clocks are put forward; what falls into an hour that comes twice comes the first time.
    pub(crate) fn after_in(&self, moment: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut from = moment.to_zoned(zone.clone()).datetime();
        for _ in 0..MAX_REPEATED {
            let found = self.next(from)?;
            let at = found.to_zoned(zone.clone()).ok()?.timestamp();
            if at > moment {
                return Some(at);
            }
            // Clocks were put back: this has been already.
            from = found;
        }
        None
    }

    /// The first time of the clock after this one.
    fn next(&self, from: DateTime) -> Option<DateTime> {
        let first = from.checked_add(1.minute()).ok()?.with().second(0).subsec_nanosecond(0).build().ok()?;
        let mut date = first.date();
        for _ in 0..MAX_DAYS {
            if self.is_day(date) {
                let start = if date == first.date() { first } else { date.to_datetime(time(0, 0, 0, 0)) };
                if let Some(found) = self.within(start) {
                    return Some(found);
                }
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    fn is_day(&self, date: Date) -> bool {
        let day = holds(self.days, date.day());
        let weekday = holds(self.weekdays, date.weekday().to_sunday_zero_offset());
        holds(self.months, date.month()) && if self.either { day || weekday } else { day && weekday }
    }

    /// The first moment of the same day that is not before.
    fn within(&self, start: DateTime) -> Option<DateTime> {
        (start.hour()..24).filter(|hour| holds(self.hours, *hour)).find_map(|hour| {
            let first = if hour == start.hour() { start.minute() } else { 0 };
            let minute = (first..60).find(|minute| holds(self.minutes, *minute))?;
            Some(start.date().to_datetime(time(hour, minute, 0, 0)))
        })
    }
}

fn holds(set: u64, number: i8) -> bool {
    u32::try_from(number).is_ok_and(|number| set.checked_shr(number).unwrap_or_default() & 1 == 1)
}

/// The numbers that a field means, as bits.
fn field(text: &str, low: u32, high: u32) -> Result<u64, &'static str> {
    let mut set = 0_u64;
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, step.parse::<u32>().map_err(|_| "a step is no number")?),
            None => (part, 1),
        };
        let number = |text: &str| text.parse::<u32>().map_err(|_| "something is no number");
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (low, high),
            Some((first, last)) => (number(first)?, number(last)?),
            None if part.contains('/') => (number(range)?, high),
            None => (number(range)?, number(range)?),
        };
        if step == 0 || first < low || last > high || first > last {
            return Err("a number is out of its range");
        }
        let step = usize::try_from(step).unwrap_or(usize::MAX);
        set = (first..=last)
            .step_by(step)
            .fold(set, |set, number| set | 1_u64.checked_shl(number).unwrap_or_default());
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn next(schedule: &str, from: &str) -> String {
        let from: Timestamp = from.parse().unwrap();
        Schedule::parse(schedule).unwrap().after(from).map(|at| at.to_string()).unwrap_or_default()
    }

    #[test]
    fn the_next_moment_is_the_first_that_all_fields_allow() {
        let new_year = "2026-01-01T00:00:00Z"; // A Thursday.
        for (schedule, expect) in [
            ("* * * * *", "2026-01-01T00:01:00Z"),
            ("0 0 * * *", "2026-01-02T00:00:00Z"),
            ("*/15 8-18/2 * * 1-5", "2026-01-01T08:00:00Z"),
            ("30 3 * * 7", "2026-01-04T03:30:00Z"),
            ("30 3 * * 0", "2026-01-04T03:30:00Z"),
            ("0 0 13 * 5", "2026-01-02T00:00:00Z"),
            ("0 0 29 2 *", "2028-02-29T00:00:00Z"),
            ("0 0 31 2 *", ""),
        ] {
            assert_eq!(next(schedule, new_year), expect, "{schedule}");
        }
        assert_eq!(next("59 23 31 12 *", "2026-12-31T23:59:30Z"), "2027-12-31T23:59:00Z");
    }

    #[test]
    fn what_is_no_schedule_is_told() {
        for text in
            ["", "* * * *", "60 * * * *", "*/0 * * * *", "5-1 * * * *", "a * * * *", "* * 0 * *", "* * * * 8"]
        {
            assert!(Schedule::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_next_moment_is_later_whatever_the_schedule(
            text in "[0-9*,/-]{1,4} [0-9*,/-]{1,3} [0-9*,/-]{1,3} [0-9*]{1,2} [0-7*]", second in 0..4_000_000_000_i64
        ) {
            let from = Timestamp::from_second(second).unwrap();
            if let Some(at) = Schedule::parse(&text).ok().and_then(|schedule| schedule.after(from)) {
                prop_assert!(at > from && at.as_second() % 60 == 0);
            }
        }
    }
}
