//! How does Go print a value by default (`%v`), and a number in its several ways?

use super::value::{Heap, Value, within_depth};
use super::{Outcome, over_limit};

/// Text that is being made, and how much of it there may be.
#[derive(Debug)]
pub(super) struct Sink {
    pub(super) text: String,
    max: usize,
}

impl Sink {
    /// No longer than the memory that is left.
    pub(super) fn new(heap: &Heap) -> Self {
        Self { text: String::new(), max: heap.memory_left() }
    }

    pub(super) fn push(&mut self, text: &str) -> Outcome<()> {
        if self.text.len().saturating_add(text.len()) > self.max {
            return over_limit("a text takes more memory than there is");
        }
        self.text.push_str(text);
        Ok(())
    }
}

/// Go's `fmt.Sprint` of one value.
pub(super) fn plain(heap: &mut Heap, value: &Value) -> Outcome<String> {
    if let Value::Text(text) = value {
        return Ok(text.to_string());
    }
    let mut sink = Sink::new(heap);
    write(heap, &mut sink, value, 0)?;
    Ok(sink.text)
}

pub(super) fn write(heap: &mut Heap, sink: &mut Sink, value: &Value, depth: usize) -> Outcome<()> {
    within_depth(depth)?;
    heap.step(1)?;
    match value {
        Value::Nil(_) => sink.push("<nil>"),
        Value::Bool(value) => sink.push(if *value { "true" } else { "false" }),
        Value::Int(value) => sink.push(&value.to_string()),
        Value::Float(value) => sink.push(&general(*value, None, 'e')),
        Value::Text(text) => sink.push(text),
        Value::List(list) => {
            sink.push("[")?;
            for (at, item) in heap.list(*list).iter().enumerate() {
                if at > 0 {
                    sink.push(" ")?;
                }
                write(heap, sink, item, depth + 1)?;
            }
            sink.push("]")
        }
        Value::Map(map) => {
            sink.push("map[")?;
            for (at, (key, value)) in heap.entries(*map)?.iter().enumerate() {
                if at > 0 {
                    sink.push(" ")?;
                }
                sink.push(key)?;
                sink.push(":")?;
                write(heap, sink, value, depth + 1)?;
            }
            sink.push("]")
        }
    }
}

/// Go's `fmt.Sprint`: a space between operands of which neither is a string.
pub(super) fn print(heap: &mut Heap, values: &[Value]) -> Outcome<String> {
    let mut sink = Sink::new(heap);
    let mut text_before = true;
    for value in values {
        let is_text = matches!(value, Value::Text(_));
        if !text_before && !is_text {
            sink.push(" ")?;
        }
        write(heap, &mut sink, value, 0)?;
        text_before = is_text;
    }
    Ok(sink.text)
}

/// Go's `fmt.Sprintln`: a space between all, and a line's end.
pub(super) fn print_line(heap: &mut Heap, values: &[Value]) -> Outcome<String> {
    let mut sink = Sink::new(heap);
    for (at, value) in values.iter().enumerate() {
        if at > 0 {
            sink.push(" ")?;
        }
        write(heap, &mut sink, value, 0)?;
    }
    sink.push("\n")?;
    Ok(sink.text)
}

/// `%g`: as short as it can be, with an exponent where that is large or small.
pub(super) fn general(value: f64, precision: Option<usize>, exponent_letter: char) -> String {
    if let Some(text) = not_finite(value) {
        return text.to_owned();
    }
    let written = match precision {
        None => format!("{:e}", value.abs()),
        Some(precision) => format!("{:.*e}", precision.max(1) - 1, value.abs()),
    };
    let (mantissa, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = match digits.trim_end_matches('0') {
        "" => "0",
        digits => digits,
    };
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    // Six where the shortest is asked for; otherwise the precision, but not for digits that are not there.
    let most = match precision {
        None => 6,
        Some(precision) => {
            let precision = i32::try_from(precision.max(1)).unwrap_or(i32::MAX);
            if precision > count && count > exponent { count } else { precision }
        }
    };
    let sign = if value.is_sign_negative() { "-" } else { "" };
    if exponent < -4 || exponent >= most {
        let (first, rest) = digits.split_at_checked(1).unwrap_or((digits, ""));
        let point = if rest.is_empty() { "" } else { "." };
        return format!("{sign}{first}{point}{rest}{}", exponent_text(exponent, exponent_letter));
    }
    format!("{sign}{}", positional(digits, exponent))
}

/// `%e`
pub(super) fn scientific(value: f64, precision: usize, exponent_letter: char) -> String {
    if let Some(text) = not_finite(value) {
        return text.to_owned();
    }
    let written = format!("{value:.precision$e}");
    let (mantissa, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    format!("{mantissa}{}", exponent_text(exponent.parse().unwrap_or_default(), exponent_letter))
}

/// `%f`
pub(super) fn fixed(value: f64, precision: usize) -> String {
    not_finite(value).map_or_else(|| format!("{value:.precision$}"), str::to_owned)
}

fn not_finite(value: f64) -> Option<&'static str> {
    if value.is_nan() {
        return Some("NaN");
    }
    value.is_infinite().then_some(if value > 0.0 { "+Inf" } else { "-Inf" })
}

/// Two digits at least.
fn exponent_text(exponent: i32, letter: char) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{letter}{sign}{:02}", exponent.unsigned_abs())
}

/// `digits` times ten to the power of `exponent`, the point being behind the first digit, without an exponent.
fn positional(digits: &str, exponent: i32) -> String {
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or_default());
    let length = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    if exponent < 0 {
        return format!("0.{}{digits}", zeros(-exponent - 1));
    }
    let whole = usize::try_from(exponent).unwrap_or_default() + 1;
    match digits.split_at_checked(whole) {
        Some((whole, "")) => whole.to_owned(),
        Some((whole, fraction)) => format!("{whole}.{fraction}"),
        None => format!("{digits}{}", zeros(exponent + 1 - length)),
    }
}

/// Go's `strconv.Quote`.
pub(super) fn quote(text: &str, quote: char) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push(quote);
    for next in text.chars() {
        match next {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            next if next == quote => {
                quoted.push('\\');
                quoted.push(next);
            }
            next if is_print(next) => quoted.push(next),
            next if u32::from(next) < 0x80 => quoted.push_str(&format!("\\x{:02x}", u32::from(next))),
            next if u32::from(next) < 0x1_0000 => quoted.push_str(&format!("\\u{:04x}", u32::from(next))),
            next => quoted.push_str(&format!("\\U{:08x}", u32::from(next))),
        }
    }
    quoted.push(quote);
    quoted
}

/// Go's `unicode.IsPrint`, as near as the standard library's tables come.
pub(super) fn is_print(next: char) -> bool {
    next == ' ' || (!next.is_control() && !next.is_whitespace() && !next.escape_debug().to_string().starts_with("\\u"))
}
