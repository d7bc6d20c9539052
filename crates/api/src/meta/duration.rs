//! How do manifests write a length of time? As Go does: `300ms`, `5m`, `1h30m`.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_with::{DeserializeFromStr, SerializeDisplay};

/// Ten years: longer than anything Pawl waits for, and far from where adding it to a time overflows.
pub const MAX_SECS: u64 = 10 * 365 * 24 * 60 * 60;

/// A length of time, never negative, at most ten years: longer ones count as that.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr,
)]
pub struct Duration(std::time::Duration);

/// Why a text is not a length of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a duration: {problem}; write for example 300ms, 90s, 5m or 1h30m")]
pub struct ParseError {
    text: String,
    problem: &'static str,
}

impl Duration {
    pub const fn from_secs(secs: u64) -> Self {
        Self(std::time::Duration::from_secs(secs))
    }

    pub const fn from_mins(mins: u64) -> Self {
        Self::from_secs(mins * 60)
    }

    pub const fn from_hours(hours: u64) -> Self {
        Self::from_secs(hours * 60 * 60)
    }

    pub const fn get(self) -> std::time::Duration {
        self.0
    }
}

impl From<std::time::Duration> for Duration {
    fn from(duration: std::time::Duration) -> Self {
        Self(duration)
    }
}

impl FromStr for Duration {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let fail = |problem| ParseError { text: text.chars().take(64).collect(), problem };
        if text == "0" {
            return Ok(Self::default());
        }
        if text.is_empty() {
            return Err(fail("it is empty"));
        }
        let mut nanos: u128 = 0;
        let mut rest = text;
        while !rest.is_empty() {
            let number_len = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
            let (number, tail) = rest.split_at(number_len);
            let unit_len = tail.bytes().take_while(|b| !b.is_ascii_digit() && *b != b'.').count();
            let (unit, tail) = tail.split_at(unit_len);
            let unit_nanos =
                unit_nanos(unit).ok_or_else(|| fail("a unit is missing or unknown (ns, us, ms, s, m, h)"))?;
            let part = scaled(number, unit_nanos)
                .ok_or_else(|| fail("a number is missing, malformed or too large"))?;
            nanos = nanos.saturating_add(part);
            rest = tail;
        }
        // Not an error: what the schema lets through must decode, or one object would stop a watch.
        let nanos = nanos.min(u128::from(MAX_SECS) * 1_000_000_000);
        let secs = u64::try_from(nanos / 1_000_000_000).map_err(|_| fail("it is too long"))?;
        let subsec = u32::try_from(nanos % 1_000_000_000).map_err(|_| fail("it is too long"))?;
        Ok(Self(std::time::Duration::new(secs, subsec)))
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (secs, nanos) = (self.0.as_secs(), self.0.subsec_nanos());
        if secs == 0 {
            return match nanos {
                0 => f.write_str("0s"),
                n if n % 1_000_000 == 0 => write!(f, "{}ms", n / 1_000_000),
                n if n % 1_000 == 0 => write!(f, "{}us", n / 1_000),
                n => write!(f, "{n}ns"),
            };
        }
        let (hours, mins, secs) = (secs / 3600, secs / 60 % 60, secs % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if mins > 0 {
            write!(f, "{mins}m")?;
        }
        match (secs, nanos) {
            (0, 0) => Ok(()),
            (secs, 0) => write!(f, "{secs}s"),
            (secs, nanos) => write!(f, "{secs}.{}s", format!("{nanos:09}").trim_end_matches('0')),
        }
    }
}

impl JsonSchema for Duration {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            // At most nine digits a number: a longer one is over the ten years, whatever its unit.
            "maxLength": 40,
            "pattern": "^(0|([0-9]{1,9}(\\.[0-9]{1,9})?(ns|us|µs|ms|s|m|h))+)$",
        })
    }
}

fn unit_nanos(unit: &str) -> Option<u128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// The number times the unit; what is below a nanosecond is dropped, as Go does.
fn scaled(number: &str, unit_nanos: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { u128::from(whole.parse::<u64>().ok()?) };
    let mut nanos = whole.checked_mul(unit_nanos)?;
    let mut unit = unit_nanos;
    for digit in fraction.bytes() {
        unit /= 10;
        nanos = nanos.checked_add(u128::from(digit.wrapping_sub(b'0')).checked_mul(unit)?)?;
    }
    Some(nanos)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, millis: u64, printed: &str) {
        let duration: Duration = text.parse().unwrap();
        assert_eq!(duration.get(), std::time::Duration::from_millis(millis), "{text}");
        assert_eq!(duration.to_string(), printed);
    }

    #[test]
    fn durations_are_read_as_go_reads_them() {
        check("5m", 300_000, "5m");
        check("5m0s", 300_000, "5m");
        check("1h30m", 5_400_000, "1h30m");
        check("1.5h", 5_400_000, "1h30m");
        check("90s", 90_000, "1m30s");
        check("300ms", 300, "300ms");
        check("1.25s", 1_250, "1.25s");
        check(".5s", 500, "500ms");
        check("0", 0, "0s");
        check("999999999h", MAX_SECS * 1000, "87600h");
    }

    #[test]
    fn what_is_no_duration_is_refused_with_an_example() {
        for bad in ["", "5", "m", "5 m", "-5m", "1.2.3s", ".", "5x", "99999999999999999999s", "5é"] {
            let error = bad.parse::<Duration>().unwrap_err().to_string();
            assert!(error.contains("write for example"), "{bad}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_duration_round_trips(secs in 0..MAX_SECS, nanos in 0u32..1_000_000_000) {
            let duration = Duration(std::time::Duration::new(secs, nanos));
            prop_assert_eq!(duration.to_string().parse::<Duration>().unwrap(), duration);
        }

        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            let _ = text.parse::<Duration>();
        }
    }
}
