//! What do Go's literals mean: `"a\n"`, `'x'`, `0x1F`, `1_000`, `1e3`?

use std::sync::Arc;

use super::ast::Operand;
use super::{Outcome, fault};

/// The text between double quotes, with its escapes resolved.
pub(super) fn quoted(literal: &str) -> Outcome<String> {
    let inside = literal.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let Some(mut rest) = inside else { return fault(format_args!("bad string {literal}")) };
    let mut bytes = Vec::with_capacity(rest.len());
    while !rest.is_empty() {
        match unquote(rest, '"') {
            Some((Unit::Char(next), after)) => {
                bytes.extend_from_slice(next.encode_utf8(&mut [0; 4]).as_bytes());
                rest = after;
            }
            Some((Unit::Byte(byte), after)) => {
                bytes.push(byte);
                rest = after;
            }
            None => return fault(format_args!("bad escape in {literal}")),
        }
    }
    // Bytes that are no UTF-8 could not be written to a manifest anyway.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The number of a character in single quotes.
pub(super) fn character(literal: &str) -> Outcome<i64> {
    let inside = literal.strip_prefix('\'').unwrap_or_default();
    match unquote(inside, '\'') {
        Some((Unit::Char(value), "'")) => Ok(i64::from(u32::from(value))),
        Some((Unit::Byte(value), "'")) => Ok(i64::from(value)),
        _ => fault(format_args!("bad character constant {literal}")),
    }
}

/// A number is an `int` if it can be one and was not written as a fraction.
pub(super) fn number(literal: &str) -> Outcome<Operand> {
    let looks_real = literal.contains(['.', 'p', 'P']) || (!is_hex(literal) && literal.contains(['e', 'E']));
    let (negative, digits) = match literal.as_bytes().first() {
        Some(b'-') => (true, literal.get(1..).unwrap_or_default()),
        Some(b'+') => (false, literal.get(1..).unwrap_or_default()),
        _ => (false, literal),
    };
    if !underscores_separate_digits(digits) {
        return fault(format_args!("bad number {literal:?}"));
    }
    let plain = digits.replace('_', "");
    if !looks_real {
        return match integer(&plain).map(|value| if negative { -value } else { value }) {
            Some(value) => Ok(match i64::try_from(value) {
                Ok(value) => Operand::Int(value),
                Err(_) if value <= i128::from(u64::MAX) && value > 0 => Operand::TooLarge(Arc::from(literal)),
                Err(_) => return fault(format_args!("integer overflow: {literal:?}")),
            }),
            None => fault(format_args!("bad number {literal:?}")),
        };
    }
    let value = if is_hex(literal) { hex_float(&plain) } else { plain.parse::<f64>().ok() };
    match value.filter(|value| value.is_finite()) {
        Some(value) => Ok(Operand::Float(if negative { -value } else { value })),
        None => fault(format_args!("bad number {literal:?}")),
    }
}

enum Unit {
    Char(char),
    /// `\xFF` and `\377` are bytes, not characters.
    Byte(u8),
}

/// The first character or escape, and what follows it.
fn unquote(text: &str, quote: char) -> Option<(Unit, &str)> {
    let mut rest = text.chars();
    let first = rest.next()?;
    if first == quote || first == '\n' {
        return None;
    }
    if first != '\\' {
        return Some((Unit::Char(first), rest.as_str()));
    }
    let simple = |value| Some((Unit::Char(value), ()));
    let escape = rest.next()?;
    let after = rest.as_str();
    let number = |length: usize, radix: u32, from: &'_ str| -> Option<u32> {
        let digits = from.get(..length)?;
        digits.bytes().all(|digit| char::from(digit).is_digit(radix)).then_some(())?;
        u32::from_str_radix(digits, radix).ok()
    };
    let (unit, ()) = match escape {
        'a' => simple('\u{7}'),
        'b' => simple('\u{8}'),
        'f' => simple('\u{c}'),
        'n' => simple('\n'),
        'r' => simple('\r'),
        't' => simple('\t'),
        'v' => simple('\u{b}'),
        '\\' => simple('\\'),
        '\'' | '"' if escape == quote => simple(escape),
        'x' => return Some((Unit::Byte(u8::try_from(number(2, 16, after)?).ok()?), after.get(2..)?)),
        'u' => return Some((Unit::Char(char::from_u32(number(4, 16, after)?)?), after.get(4..)?)),
        'U' => return Some((Unit::Char(char::from_u32(number(8, 16, after)?)?), after.get(8..)?)),
        '0'..='7' => {
            let octal = text.get(1..)?;
            return Some((Unit::Byte(u8::try_from(number(3, 8, octal)?).ok()?), octal.get(3..)?));
        }
        _ => None,
    }?;
    Some((unit, after))
}

fn is_hex(literal: &str) -> bool {
    let digits = literal.trim_start_matches(['+', '-']);
    digits.starts_with("0x") || digits.starts_with("0X")
}

/// As Go reads `0x1F`, `0o17`, `0b11`, `017` and `10`.
fn integer(digits: &str) -> Option<i128> {
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, digits.get(2..)?),
        [b'0', b'o' | b'O', ..] => (8, digits.get(2..)?),
        [b'0', b'b' | b'B', ..] => (2, digits.get(2..)?),
        [b'0', _, ..] => (8, digits.get(1..)?),
        _ => (10, digits),
    };
    let all_digits = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
    all_digits.then(|| i128::from_str_radix(digits, radix).unwrap_or(i128::MAX))
}

/// `0x1.8p3`: rare, but Go's.
fn hex_float(digits: &str) -> Option<f64> {
    let (mantissa, exponent) = digits.get(2..)?.split_once(['p', 'P'])?;
    let exponent: i32 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value = 0_f64;
    for digit in whole.chars() {
        value = value * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let mut unit = 1.0 / 16.0;
    for digit in fraction.chars() {
        value += f64::from(digit.to_digit(16)?) * unit;
        unit /= 16.0;
    }
    Some(value * 2_f64.powi(exponent))
}

/// `1_000` is a number, `1__0`, `_1` and `1_` are none; `0x_1` is one, as the prefix counts as a digit.
fn underscores_separate_digits(digits: &str) -> bool {
    let mut before = None;
    for (at, next) in digits.char_indices() {
        let digit = |c: char| c.is_ascii_hexdigit() || (at == 2 && matches!(c, 'x' | 'X' | 'o' | 'O'));
        if next == '_' && !before.is_some_and(digit) {
            return false;
        }
        if before == Some('_') && !next.is_ascii_hexdigit() {
            return false;
        }
        before = Some(next);
    }
    before != Some('_')
}
