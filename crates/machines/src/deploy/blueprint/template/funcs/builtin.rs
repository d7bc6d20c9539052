//! The functions of Go's `text/template` itself.

use std::cmp::Ordering;

use super::{Function, argument, at_least, between, exactly, text};
use crate::deploy::blueprint::template::value::{Heap, Value};
use crate::deploy::blueprint::template::{Outcome, fault, format, printf};

pub(super) const FUNCTIONS: &[Function] = &[
    exactly("not", 1, |heap, args| Ok((!heap.truth(argument(args, 0))).into())),
    at_least("eq", 2, eq),
    exactly("ne", 2, |heap, args| match eq(heap, args)? {
        Value::Bool(equal) => Ok((!equal).into()),
        other => Ok(other),
    }),
    exactly("lt", 2, |_, args| Ok((order(args)? == Ordering::Less).into())),
    exactly("le", 2, |_, args| Ok((order(args)? != Ordering::Greater).into())),
    exactly("gt", 2, |_, args| Ok((order(args)? == Ordering::Greater).into())),
    exactly("ge", 2, |_, args| Ok((order(args)? != Ordering::Less).into())),
    exactly("len", 1, len),
    at_least("index", 1, index),
    between("slice", 1, 4, slice),
    at_least("call", 1, |_, args| fault(format_args!("{} is no function", argument(args, 0).described()))),
    at_least("print", 0, |heap, args| {
        args.iter().try_for_each(|value| heap.refuse_nothing(value))?;
        let text = format::print(heap, args)?;
        heap.text(text)
    }),
    at_least("println", 0, |heap, args| {
        args.iter().try_for_each(|value| heap.refuse_nothing(value))?;
        let text = format::print_line(heap, args)?;
        heap.text(text)
    }),
    at_least("printf", 1, |heap, args| {
        let form = text(args, 0)?;
        let args = args.get(1..).unwrap_or_default();
        args.iter().try_for_each(|value| heap.refuse_nothing(value))?;
        let text = printf::sprintf(heap, &form, args)?;
        heap.text(text)
    }),
    at_least("html", 0, |heap, args| escape(heap, args, html)),
    at_least("js", 0, |heap, args| escape(heap, args, js)),
    at_least("urlquery", 0, |heap, args| escape(heap, args, url_query)),
];

/// Equal to any of the others. Things of different kinds are an error, unless one is nothing.
fn eq(_: &mut Heap, arguments: &[Value]) -> Outcome<Value> {
    let Some((first, others)) = arguments.split_first() else { return Ok(false.into()) };
    for other in others {
        let equal = match (first, other) {
            (Value::Nil(_), Value::Nil(_)) => true,
            (Value::Nil(_), _) | (_, Value::Nil(_)) => false,
            (Value::Bool(left), Value::Bool(right)) => left == right,
            (Value::Int(left), Value::Int(right)) => left == right,
            (Value::Float(left), Value::Float(right)) => left == right,
            (Value::Text(left), Value::Text(right)) => left == right,
            (Value::List(_), Value::List(_)) | (Value::Map(_), Value::Map(_)) => {
                return fault(format_args!("a {} cannot be compared", first.type_name()));
            }
            _ => return incompatible(first, other),
        };
        if equal {
            return Ok(true.into());
        }
    }
    Ok(false.into())
}

fn order(arguments: &[Value]) -> Outcome<Ordering> {
    match (argument(arguments, 0), argument(arguments, 1)) {
        (Value::Int(left), Value::Int(right)) => Ok(left.cmp(right)),
        (Value::Float(left), Value::Float(right)) => Ok(left.partial_cmp(right).unwrap_or(Ordering::Greater)),
        (Value::Text(left), Value::Text(right)) => Ok(left.cmp(right)),
        (left, right) => incompatible(left, right),
    }
}

fn incompatible<T>(left: &Value, right: &Value) -> Outcome<T> {
    let hint = match (left, right) {
        (Value::Int(_), Value::Float(_)) | (Value::Float(_), Value::Int(_)) => {
            " (numbers of the values are float64: write 3.0, or use int)"
        }
        _ => "",
    };
    fault(format_args!("{} and {} cannot be compared{hint}", left.described(), right.described()))
}

fn len(heap: &mut Heap, arguments: &[Value]) -> Outcome<Value> {
    let length = match argument(arguments, 0) {
        Value::Text(text) => text.len(),
        Value::List(list) => heap.list(*list).len(),
        Value::Map(map) => heap.len(*map),
        other @ (Value::Nil(_) | Value::Bool(_) | Value::Int(_) | Value::Float(_)) => {
            return fault(format_args!("{} has no length", other.described()));
        }
    };
    Ok(Value::Int(i64::try_from(length).unwrap_or(i64::MAX)))
}

/// `index x 1 "a"` is `x[1]["a"]`. A key that a map lacks is nothing; a place that a list lacks is an error.
fn index(heap: &mut Heap, arguments: &[Value]) -> Outcome<Value> {
    let mut value = argument(arguments, 0).clone();
    if value.is_nil() {
        return fault(format_args!("nothing to look into: {}", value.described()));
    }
    for index in arguments.iter().skip(1) {
        value = match (&value, index) {
            (Value::Map(map), Value::Text(key)) => heap.at_key(*map, key),
            (Value::Map(_), other) => {
                return fault(format_args!("the keys of a map are strings, not {}", other.described()));
            }
            (Value::List(list), index) => {
                let items = heap.list(*list);
                let at = place(index, items.len())?;
                match items.get(at) {
                    Some(item) => heap.element(item),
                    None => return out_of_range(index, items.len()),
                }
            }
            (Value::Text(text), index) => match text.as_bytes().get(place(index, text.len())?) {
                Some(byte) => Value::Int(i64::from(*byte)),
                None => return out_of_range(index, text.len()),
            },
            (other, _) => return fault(format_args!("{} has no elements", other.described())),
        };
    }
    Ok(value)
}

fn slice(heap: &mut Heap, arguments: &[Value]) -> Outcome<Value> {
    let whole = argument(arguments, 0);
    let length = match whole {
        Value::Text(_) if arguments.len() == 4 => return fault("a string is cut at two places, not three"),
        Value::Text(text) => text.len(),
        Value::List(list) => heap.list(*list).len(),
        other @ (Value::Nil(_) | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Map(_)) => {
            return fault(format_args!("{} cannot be cut", other.described()));
        }
    };
    let from = arguments.get(1).map_or(Ok(0), |at| place(at, length))?;
    let to = arguments.get(2).map_or(Ok(length), |at| place(at, length))?;
    let capacity = arguments.get(3).map_or(Ok(length), |at| place(at, length))?;
    if from > to || to > capacity {
        return fault(format_args!("cannot cut from {from} to {to}"));
    }
    match whole {
        Value::List(list) => {
            let items = heap.list(*list);
            heap.new_list(items.get(from..to).unwrap_or_default().to_vec())
        }
        Value::Text(text) => {
            // Go cuts bytes; half a character could not be written to a manifest.
            let cut = String::from_utf8_lossy(text.as_bytes().get(from..to).unwrap_or_default()).into_owned();
            heap.text(cut)
        }
        Value::Nil(_) | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Map(_) => Ok(Value::NIL),
    }
}

fn place(index: &Value, length: usize) -> Outcome<usize> {
    match index {
        Value::Int(at) => match usize::try_from(*at) {
            Ok(at) if at <= length => Ok(at),
            Ok(_) | Err(_) => out_of_range(index, length),
        },
        other => fault(format_args!("an index is an int, not {}", other.described())),
    }
}

fn out_of_range<T>(index: &Value, length: usize) -> Outcome<T> {
    match index {
        Value::Int(index) => fault(format_args!("index {index} is out of range: there are {length}")),
        other => fault(format_args!("{} is no index", other.described())),
    }
}

fn escape(heap: &mut Heap, arguments: &[Value], escaped: fn(&str) -> String) -> Outcome<Value> {
    arguments.iter().try_for_each(|value| heap.refuse_nothing(value))?;
    let shown: Vec<Value> = arguments
        .iter()
        .map(|value| if value.is_nil() { Value::Text("<no value>".into()) } else { value.clone() })
        .collect();
    let text = format::print(heap, &shown)?;
    // One byte becomes six at most.
    heap.take(text.len().saturating_mul(6))?;
    heap.text(escaped(&text))
}

fn html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for next in text.chars() {
        match next {
            '\0' => escaped.push(char::REPLACEMENT_CHARACTER),
            '"' => escaped.push_str("&#34;"),
            '\'' => escaped.push_str("&#39;"),
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            next => escaped.push(next),
        }
    }
    escaped
}

fn js(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for next in text.chars() {
        match next {
            '\\' | '\'' | '"' => {
                escaped.push('\\');
                escaped.push(next);
            }
            '<' | '>' | '&' | '=' => escaped.push_str(&format!("\\u{:04X}", u32::from(next))),
            next if next.is_ascii() && !next.is_ascii_control() => escaped.push(next),
            '\u{7f}' => escaped.push(next),
            next if !next.is_ascii() && format::is_print(next) => escaped.push(next),
            next => escaped.push_str(&format!("\\u{:04X}", u32::from(next))),
        }
    }
    escaped
}

fn url_query(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => escaped.push(char::from(byte)),
            b' ' => escaped.push('+'),
            byte => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}
