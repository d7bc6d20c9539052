//! What does Go's `fmt.Sprintf` make of a format and its arguments?
//!
//! Mistakes are printed, not raised, as in Go: `%!d(string=x)`, `%!s(MISSING)`, `%!(EXTRA int=1)`.

use super::Outcome;
use super::format::{Sink, fixed, general, is_print, quote, scientific, write};
use super::value::{Heap, Value, within_depth};

/// Go's own limit of widths and precisions.
const MAX_WIDTH: i64 = 1_000_000;

/// Digits behind the point that are made; a `float64` has no more than 1,074 that are not zero.
const MAX_PRECISION: usize = 1_100;

#[derive(Clone, Debug, Default)]
struct Flags {
    minus: bool,
    plus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

pub(super) fn sprintf(heap: &mut Heap, format: &str, arguments: &[Value]) -> Outcome<String> {
    let mut printer = Printer { sink: Sink::new(heap), rest: format, arguments, next: 0, reordered: false };
    while let Some(at) = printer.rest.find('%') {
        let (text, directive) = printer.rest.split_at_checked(at).unwrap_or((printer.rest, ""));
        printer.sink.push(text)?;
        printer.rest = directive.get(1..).unwrap_or_default();
        printer.directive(heap)?;
    }
    let rest = printer.rest;
    printer.sink.push(rest)?;
    printer.extra(heap)?;
    Ok(printer.sink.text)
}

struct Printer<'a> {
    sink: Sink,
    rest: &'a str,
    arguments: &'a [Value],
    /// The argument that is next.
    next: usize,
    /// Whether `%[n]` was used: then it is fine if some were not.
    reordered: bool,
}

impl Printer<'_> {
    fn directive(&mut self, heap: &mut Heap) -> Outcome<()> {
        let mut flags = self.flags();
        let (mut good_index, mut indexed) = self.index();
        if self.accept('*') {
            indexed = false;
            match self.int_argument() {
                Some(width) => {
                    flags.minus |= width < 0;
                    // Padding with zeros on the right would be another number.
                    flags.zero &= !flags.minus;
                    flags.width = usize::try_from(width.unsigned_abs()).ok();
                }
                None => self.sink.push("%!(BADWIDTH)")?,
            }
        } else {
            flags.width = self.number();
            // `%[1]5d`: an index stands right before its verb or its star.
            good_index &= !(indexed && flags.width.is_some());
        }
        if self.accept('.') {
            good_index &= !indexed;
            let (good, indexed) = self.index();
            good_index &= good;
            if self.accept('*') {
                let precision = self.int_argument().and_then(|precision| usize::try_from(precision).ok());
                flags.precision = precision;
                if precision.is_none() {
                    self.sink.push("%!(BADPREC)")?;
                }
            } else {
                flags.precision = Some(self.number().unwrap_or(0));
                good_index &= !indexed;
            }
        }
        good_index &= self.index().0;
        let Some(verb) = self.rest.chars().next() else { return self.sink.push("%!(NOVERB)") };
        self.rest = self.rest.get(verb.len_utf8()..).unwrap_or_default();
        if verb == '%' {
            return self.sink.push("%");
        }
        if !good_index {
            return self.sink.push(&format!("%!{verb}(BADINDEX)"));
        }
        let Some(argument) = self.arguments.get(self.next).cloned() else {
            return self.sink.push(&format!("%!{verb}(MISSING)"));
        };
        self.next += 1;
        if verb == 'T' {
            let name = string(&flags, 's', type_name(&argument)).unwrap_or_default();
            return pad(&mut self.sink, &flags, &name);
        }
        // `%+v` asks for the names of fields, and there are none.
        flags.plus &= verb != 'v';
        one(heap, &mut self.sink, &flags, verb, &argument, 0)
    }

    fn flags(&mut self) -> Flags {
        let mut flags = Flags::default();
        while let Some(next) = self.rest.chars().next() {
            match next {
                '-' => flags.minus = true,
                '+' => flags.plus = true,
                '#' => flags.sharp = true,
                ' ' => flags.space = true,
                '0' => flags.zero = true,
                _ => break,
            }
            self.rest = self.rest.get(1..).unwrap_or_default();
        }
        flags.zero &= !flags.minus;
        flags
    }

    /// `[n]`, from one: whether it is no mistake, and whether it is there.
    fn index(&mut self) -> (bool, bool) {
        let Some(inside) = self.rest.strip_prefix('[') else { return (true, false) };
        self.reordered = true;
        let Some((number, after)) = inside.split_once(']') else {
            self.rest = inside;
            return (false, true);
        };
        self.rest = after;
        match number.parse::<usize>().ok().and_then(|number| number.checked_sub(1)) {
            Some(index) if index < self.arguments.len() => {
                self.next = index;
                (true, true)
            }
            Some(_) | None => (false, true),
        }
    }

    fn accept(&mut self, wanted: char) -> bool {
        let after = self.rest.strip_prefix(wanted);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    fn number(&mut self) -> Option<usize> {
        let length = self.rest.find(|next: char| !next.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, after) = self.rest.split_at_checked(length)?;
        self.rest = after;
        let number: i64 = digits.parse().ok()?;
        if number > MAX_WIDTH { None } else { usize::try_from(number).ok() }
    }

    fn int_argument(&mut self) -> Option<i64> {
        let argument = self.arguments.get(self.next);
        self.next += usize::from(argument.is_some());
        match argument {
            Some(Value::Int(value)) if (-MAX_WIDTH..=MAX_WIDTH).contains(value) => Some(*value),
            Some(_) | None => None,
        }
    }

    fn extra(&mut self, heap: &mut Heap) -> Outcome<()> {
        let extra = self.arguments.get(self.next..).unwrap_or_default();
        if self.reordered || extra.is_empty() {
            return Ok(());
        }
        self.sink.push("%!(EXTRA ")?;
        for (at, argument) in extra.iter().enumerate() {
            if at > 0 {
                self.sink.push(", ")?;
            }
            if !argument.is_nil() {
                self.sink.push(type_name(argument))?;
                self.sink.push("=")?;
            }
            write(heap, &mut self.sink, argument, 0)?;
        }
        self.sink.push(")")
    }
}

/// One value with one verb; a list or a map applies it to each of its own.
fn one(
    heap: &mut Heap,
    sink: &mut Sink,
    flags: &Flags,
    verb: char,
    value: &Value,
    depth: usize,
) -> Outcome<()> {
    within_depth(depth)?;
    heap.step(1)?;
    let syntax = flags.sharp && verb == 'v';
    match value {
        Value::Nil(_) if verb == 'v' && depth == 0 => pad(sink, flags, "<nil>"),
        Value::Nil(_) if depth == 0 => sink.push(&format!("%!{verb}(<nil>)")),
        Value::Nil(_) => sink.push(if syntax { "interface {}(nil)" } else { "<nil>" }),
        Value::Bool(value) => match verb {
            'v' | 't' => {
                let text = if *value { "true" } else { "false" };
                pad(sink, flags, text)
            }
            _ => bad_verb(heap, sink, flags, verb, &Value::Bool(*value)),
        },
        Value::Int(number) => match integer(flags, verb, *number) {
            // The digits have their zeros already; characters are filled up with them.
            Some(text) => {
                pad(sink, &Flags { zero: flags.zero && matches!(verb, 'c' | 'q'), ..flags.clone() }, &text)
            }
            None => bad_verb(heap, sink, flags, verb, value),
        },
        Value::Float(number) => match real(flags, verb, *number) {
            Some(text) => signed(sink, flags, &text),
            None => bad_verb(heap, sink, flags, verb, value),
        },
        Value::Text(text) => match string(flags, verb, text) {
            Some(text) => pad(sink, flags, &text),
            None => bad_verb(heap, sink, flags, verb, value),
        },
        Value::List(list) => {
            let items = heap.list(*list);
            sink.push(if syntax { "[]interface {}{" } else { "[" })?;
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    sink.push(if syntax { ", " } else { " " })?;
                }
                one(heap, sink, flags, verb, item, depth + 1)?;
            }
            sink.push(if syntax { "}" } else { "]" })
        }
        Value::Map(map) => {
            let entries = heap.entries(*map)?;
            sink.push(if syntax { "map[string]interface {}{" } else { "map[" })?;
            for (at, (key, item)) in entries.iter().enumerate() {
                if at > 0 {
                    sink.push(if syntax { ", " } else { " " })?;
                }
                one(heap, sink, flags, verb, &Value::Text(key.clone()), depth + 1)?;
                sink.push(":")?;
                one(heap, sink, flags, verb, item, depth + 1)?;
            }
            sink.push(if syntax { "}" } else { "]" })
        }
    }
}

/// As `%T` has it.
pub(super) fn type_name(value: &Value) -> &'static str {
    if value.is_nil() { "<nil>" } else { value.type_name() }
}

fn bad_verb(heap: &mut Heap, sink: &mut Sink, flags: &Flags, verb: char, value: &Value) -> Outcome<()> {
    sink.push(&format!("%!{verb}({}=", type_name(value)))?;
    one(heap, sink, &Flags { sharp: false, ..flags.clone() }, 'v', value, 0)?;
    sink.push(")")
}

/// Widths count characters.
fn pad(sink: &mut Sink, flags: &Flags, text: &str) -> Outcome<()> {
    let missing = flags.width.unwrap_or(0).saturating_sub(text.chars().count());
    let fill = if flags.zero { "0" } else { " " }.repeat(missing);
    if flags.minus {
        sink.push(text)?;
        return sink.push(&fill);
    }
    sink.push(&fill)?;
    sink.push(text)
}

/// Digits in some base, with sign, prefix, precision and zeros.
fn integer(flags: &Flags, verb: char, value: i64) -> Option<String> {
    let magnitude = value.unsigned_abs();
    let (mut digits, prefix) = match verb {
        'v' | 'd' => (magnitude.to_string(), ""),
        'b' => (format!("{magnitude:b}"), if flags.sharp { "0b" } else { "" }),
        'o' => (format!("{magnitude:o}"), if flags.sharp { "0" } else { "" }),
        'O' => (format!("{magnitude:o}"), "0o"),
        'x' => (format!("{magnitude:x}"), if flags.sharp { "0x" } else { "" }),
        'X' => (format!("{magnitude:X}"), if flags.sharp { "0X" } else { "" }),
        'c' => return Some(character(value).to_string()),
        'q' => return Some(quote(&character(value).to_string(), '\'')),
        'U' => {
            let shown = if flags.sharp && is_print(character(value)) {
                format!(" '{}'", character(value))
            } else {
                String::new()
            };
            return Some(format!("U+{:04X}{shown}", value));
        }
        _ => return None,
    };
    let sign = sign(flags, value < 0);
    let least = match (flags.precision, flags.width) {
        (Some(0), _) if value == 0 => return Some(String::new()),
        (Some(precision), _) => precision,
        // The sign takes one of the places that are filled with zeros; a prefix takes none.
        (None, Some(width)) if flags.zero => width.saturating_sub(sign.len()),
        (None, _) => 0,
    };
    if digits.len() < least {
        digits = format!("{}{digits}", "0".repeat(least - digits.len()));
    }
    let prefix = if prefix == "0" && digits.starts_with('0') { "" } else { prefix };
    Some(format!("{sign}{prefix}{digits}"))
}

fn sign(flags: &Flags, negative: bool) -> &'static str {
    match (negative, flags.plus, flags.space) {
        (true, _, _) => "-",
        (false, true, _) => "+",
        (false, false, true) => " ",
        (false, false, false) => "",
    }
}

fn character(value: i64) -> char {
    u32::try_from(value).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Without any added sign.
fn real(flags: &Flags, verb: char, value: f64) -> Option<String> {
    let precision = flags.precision.map(|precision| precision.min(MAX_PRECISION));
    Some(match verb {
        'v' | 'g' => general(value, precision, 'e'),
        'G' => general(value, precision, 'E'),
        'e' => scientific(value, precision.unwrap_or(6), 'e'),
        'E' => scientific(value, precision.unwrap_or(6), 'E'),
        'f' | 'F' => fixed(value, precision.unwrap_or(6)),
        _ => return None,
    })
}

/// A number with its sign in front of the zeros that fill it up.
fn signed(sink: &mut Sink, flags: &Flags, text: &str) -> Outcome<()> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let infinite = digits == "Inf";
    // Infinity has its sign in any case, and zeros in none.
    let sign = if infinite && !negative { "+" } else { sign(flags, negative) };
    let zero = flags.zero && !infinite && digits != "NaN";
    if zero {
        let width = flags.width.unwrap_or(0).saturating_sub(sign.len());
        sink.push(sign)?;
        return pad(sink, &Flags { width: Some(width), ..flags.clone() }, digits);
    }
    pad(sink, &Flags { zero: false, ..flags.clone() }, &format!("{sign}{digits}"))
}

fn string(flags: &Flags, verb: char, text: &str) -> Option<String> {
    let cut: String = match flags.precision {
        Some(precision) if verb != 'x' && verb != 'X' => text.chars().take(precision).collect(),
        Some(_) | None => text.to_owned(),
    };
    Some(match verb {
        'v' if flags.sharp => quote(&cut, '"'),
        'v' | 's' => cut,
        'q' if flags.sharp
            && !cut.contains(|next: char| next == '`' || (next.is_control() && next != '\t')) =>
        {
            format!("`{cut}`")
        }
        'q' => quote(&cut, '"'),
        'x' | 'X' => {
            let bytes = text.bytes().take(flags.precision.unwrap_or(usize::MAX));
            let prefix = if flags.sharp { format!("0{verb}") } else { String::new() };
            let hex: Vec<String> = bytes
                .map(|byte| if verb == 'x' { format!("{byte:02x}") } else { format!("{byte:02X}") })
                .collect();
            if flags.space {
                hex.iter().map(|byte| format!("{prefix}{byte}")).collect::<Vec<_>>().join(" ")
            } else if hex.is_empty() {
                String::new()
            } else {
                format!("{prefix}{}", hex.concat())
            }
        }
        _ => return None,
    })
}
