//! What amount does `1500m`, `2Gi` or `1e3` mean, and how is it written back?
//!
//! Amounts are decimal fractions of an `i128`, so parsing, comparing and adding are exact for everything
//! Kubernetes accepts (an `i64` in nano steps). The canonical form keeps the suffix family the author used,
//! as the real server does: no fraction, no more precision than nano, the largest suffix that loses nothing.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// Why a string is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse quantity's suffix")]
    Suffix,
    #[error("unable to parse numeric part of quantity")]
    Number,
}

/// How an amount was written, and so how it is written back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    DecimalSi,
    BinarySi,
    DecimalExponent,
}

/// An exact amount: `nano` × 10⁻⁹.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    nano: i128,
    family: Family,
}

const NANO: i128 = 1_000_000_000;
/// The largest amount: `i64::MAX` whole units. Larger input is capped to it, as the real parser caps.
const MAX_NANO: i128 = (i64::MAX as i128) * NANO;
/// More digits than this cannot change a capped amount, and keep the sum far from `i128`'s end.
const MAX_DIGITS: usize = 36;

const DECIMAL: [(&str, i32); 10] =
    [("E", 18), ("P", 15), ("T", 12), ("G", 9), ("M", 6), ("k", 3), ("", 0), ("m", -3), ("u", -6), ("n", -9)];
const BINARY: [(&str, u32); 6] = [("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(s: &str) -> Result<Self, QuantityError> {
        let (negative, rest) = match s.as_bytes().first() {
            Some(b'-') => (true, s.get(1..).unwrap_or_default()),
            Some(b'+') => (false, s.get(1..).unwrap_or_default()),
            Some(_) => (false, s),
            None => return Err(QuantityError::Format),
        };
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(QuantityError::Number);
        }
        let (base, exponent, family) = suffix_scale(suffix)?;
        let nano = scaled(whole, fraction, base, exponent);
        Ok(Self { nano: if negative { -nano } else { nano }, family })
    }
}

/// What a suffix multiplies by: `base × 10^exponent`.
fn suffix_scale(suffix: &str) -> Result<(i128, i32, Family), QuantityError> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        return Ok((1, *exponent, Family::DecimalSi));
    }
    if let Some((_, bits)) = BINARY.iter().find(|(s, _)| *s == suffix) {
        return Ok((1_i128 << bits, 0, Family::BinarySi));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).ok_or(QuantityError::Suffix)?;
    let exponent: i32 = exponent.parse().map_err(|_| QuantityError::Suffix)?;
    Ok((1, exponent, Family::DecimalExponent))
}

/// `whole.fraction × base × 10^exponent` in nano units, rounded up and capped.
fn scaled(whole: &str, fraction: &str, base: i128, exponent: i32) -> i128 {
    let digits = || whole.bytes().chain(fraction.bytes()).skip_while(|b| *b == b'0');
    let mut mantissa: i128 = 0;
    for b in digits().take(MAX_DIGITS) {
        mantissa = mantissa * 10 + i128::from(b - b'0');
    }
    let dropped = digits().count().saturating_sub(MAX_DIGITS);
    if mantissa == 0 {
        return 0;
    }
    let places = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    let dropped = i64::try_from(dropped).unwrap_or(i64::MAX);
    let power = i64::from(exponent) + 9 - places + dropped;
    let Some(amount) = mantissa.checked_mul(base) else { return MAX_NANO };
    let amount = match u32::try_from(power.unsigned_abs()) {
        Ok(p) if power >= 0 => 10_i128.checked_pow(p).and_then(|f| amount.checked_mul(f)).unwrap_or(MAX_NANO),
        Ok(p) => match 10_i128.checked_pow(p) {
            Some(divisor) => amount / divisor + i128::from(amount % divisor != 0),
            None => 1,
        },
        Err(_) if power >= 0 => MAX_NANO,
        Err(_) => 1,
    };
    amount.min(MAX_NANO)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.nano < 0 { "-" } else { "" };
        let nano = self.nano.unsigned_abs();
        if nano == 0 {
            return f.write_str("0");
        }
        // Binary suffixes cannot say fractions of a unit; the real server falls back to decimal ones below
        // 1024 and for fractions.
        if self.family == Family::BinarySi
            && nano.is_multiple_of(NANO as u128)
            && nano / (NANO as u128) >= 1024
        {
            let units = nano / (NANO as u128);
            let fits = BINARY.iter().find(|(_, bits)| units.is_multiple_of(1_u128 << bits));
            return match fits {
                Some((suffix, bits)) => write!(f, "{sign}{}{suffix}", units >> bits),
                None => write!(f, "{sign}{units}"),
            };
        }
        for (suffix, exponent) in DECIMAL {
            let Ok(power) = u32::try_from(exponent + 9) else { continue };
            let step = 10_u128.pow(power);
            if !nano.is_multiple_of(step) {
                continue;
            }
            let amount = nano / step;
            return match self.family {
                Family::DecimalExponent if exponent != 0 => write!(f, "{sign}{amount}e{exponent}"),
                Family::DecimalExponent | Family::DecimalSi | Family::BinarySi => {
                    write!(f, "{sign}{amount}{suffix}")
                }
            };
        }
        Ok(())
    }
}

impl Quantity {
    /// Zero, to add to.
    pub const ZERO: Self = Self { nano: 0, family: Family::DecimalSi };

    /// Whole units, rounded up as Kubernetes rounds.
    pub fn value(self) -> i64 {
        let units = self.nano.div_euclid(NANO) + i128::from(self.nano.rem_euclid(NANO) != 0);
        i64::try_from(units).unwrap_or(if units < 0 { i64::MIN } else { i64::MAX })
    }

    pub fn is_negative(self) -> bool {
        self.nano < 0
    }

    pub fn saturating_add(self, other: Self) -> Self {
        let family = if self.nano == 0 { other.family } else { self.family };
        Self { nano: self.nano.saturating_add(other.nano).clamp(-MAX_NANO, MAX_NANO), family }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(s: &str) -> String {
        s.parse::<Quantity>().unwrap().to_string()
    }

    #[test]
    fn canonical_forms_are_those_of_kubernetes() {
        let cases = [
            ("0", "0"),
            ("1500m", "1500m"),
            ("1.5", "1500m"),
            ("1000m", "1"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("1000", "1k"),
            ("1000Ki", "1000Ki"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("12e6", "12e6"),
            ("1E", "1E"),
            ("100u", "100u"),
            ("0.0000000001", "1n"),
            ("-1.5", "-1500m"),
            ("+1", "1"),
            (".5", "500m"),
            ("5.", "5"),
            ("99999999999999999999", "9223372036854775807"),
        ];
        for (written, want) in cases {
            assert_eq!(canonical(written), want, "{written}");
        }
    }

    #[test]
    fn what_is_not_a_quantity_is_refused() {
        for bad in ["", "-", ".", "1.2.3", "1x", "1KI", "Gi", "1 Gi", "1e", "1ee3", "१"] {
            assert!(bad.parse::<Quantity>().is_err(), "{bad}");
        }
    }

    #[test]
    fn amounts_compare_by_value_not_by_spelling() {
        let q = |s: &str| s.parse::<Quantity>().unwrap();
        assert_eq!(q("1"), q("1000m"));
        assert!(q("1Gi") > q("1G"));
        assert_eq!(q("1500m").value(), 2);
        assert_eq!(q("-1500m").value(), -1);
        assert_eq!(q("100m").saturating_add(q("0.9")).to_string(), "1");
    }

    proptest! {
        #[test]
        fn canonical_form_is_stable_and_keeps_the_amount(s in "[+-]?[0-9]{1,22}(\\.[0-9]{0,12})?(m|k|M|Gi|Ki|e-?[0-9]{1,2})?") {
            let first: Quantity = s.parse().unwrap();
            let text = first.to_string();
            let again: Quantity = text.parse().unwrap();
            prop_assert_eq!(first, again);
            prop_assert_eq!(again.to_string(), text);
        }

        #[test]
        fn no_string_panics(s in "\\PC{0,40}") {
            let _ = s.parse::<Quantity>();
        }
    }
}
