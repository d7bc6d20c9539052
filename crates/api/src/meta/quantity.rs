//! How much is `250m` or `64Mi`?

/// One whole unit (a core, a byte) in the scale that [`nano`] answers in.
pub const UNIT: i128 = 1_000_000_000;

/// A quantity in billionths, rounded up: the finest step Kubernetes knows. `None`: not a quantity.
pub fn nano(text: &str) -> Option<i128> {
    let digits = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let (mantissa, places) = decimal(number)?;
    let (multiply, divide): (i128, i128) = match suffix {
        "" => (UNIT, 1),
        "n" => (1, 1),
        "u" => (1_000, 1),
        "m" => (1_000_000, 1),
        "k" => (UNIT * 1_000, 1),
        "M" => (UNIT * 1_000_000, 1),
        "G" => (UNIT * UNIT, 1),
        "T" => (UNIT * UNIT * 1_000, 1),
        "P" => (UNIT * UNIT * 1_000_000, 1),
        "E" => (UNIT * UNIT * UNIT, 1),
        "Ki" => (UNIT << 10, 1),
        "Mi" => (UNIT << 20, 1),
        "Gi" => (UNIT << 30, 1),
        "Ti" => (UNIT << 40, 1),
        "Pi" => (UNIT << 50, 1),
        "Ei" => (UNIT << 60, 1),
        other => {
            let power: i32 = other.strip_prefix(['e', 'E'])?.parse().ok()?;
            let scale = 10i128.checked_pow(power.unsigned_abs())?;
            if power < 0 { (UNIT, scale) } else { (UNIT.checked_mul(scale)?, 1) }
        }
    };
    let divide = divide.checked_mul(10i128.checked_pow(places)?)?;
    let scaled = mantissa.checked_mul(multiply)?;
    Some(ceil_div(scaled, divide))
}

/// `value / by`, rounded up, as Kubernetes rounds quantities.
pub fn ceil_div(value: i128, by: i128) -> i128 {
    value.div_euclid(by) + i128::from(value.rem_euclid(by) != 0)
}

/// The digits without their point, and how many stood behind it.
fn decimal(number: &str) -> Option<(i128, u32)> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let signless = part.bytes().all(|b| b.is_ascii_digit());
    if !signless || (whole.trim_start_matches(['+', '-']).is_empty() && part.is_empty()) {
        return None;
    }
    let mantissa = format!("{whole}{part}").parse().ok()?;
    Some((mantissa, u32::try_from(part.len()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_as_kubernetes_reads_them() {
        let table = [
            ("1", Some(UNIT)),
            ("250m", Some(UNIT / 4)),
            ("0.5", Some(UNIT / 2)),
            (".5", Some(UNIT / 2)),
            ("1.5Gi", Some(3 * (UNIT << 29))),
            ("64Mi", Some(UNIT << 26)),
            ("1e3", Some(UNIT * 1000)),
            ("1E", Some(UNIT * UNIT * UNIT)),
            ("100n", Some(100)),
            ("-1", Some(-UNIT)),
            ("0.0000000001", Some(1)),
            ("", None),
            (".", None),
            ("1x", None),
            ("1.-5", None),
            ("e", None),
            ("99999999999999999999999999999999999Ei", None),
        ];
        for (text, expect) in table {
            assert_eq!(nano(text), expect, "{text}");
        }
    }
}
