//! Sprig's functions on lists, and those that choose between values.

use std::cmp::Ordering;

use super::{Function, argument, at_least, exactly, int, list, text};
use crate::deploy::blueprint::template::printf::type_name;
use crate::deploy::blueprint::template::value::{Heap, Value};
use crate::deploy::blueprint::template::{Outcome, fault};

pub(super) const FUNCTIONS: &[Function] = &[
    at_least("list", 0, |heap, args| heap.new_list(args)),
    at_least("tuple", 0, |heap, args| heap.new_list(args)),
    exactly("first", 1, |heap, args| Ok(list(heap, args, 0)?.first().cloned().unwrap_or(Value::NIL))),
    exactly("mustFirst", 1, |heap, args| Ok(list(heap, args, 0)?.first().cloned().unwrap_or(Value::NIL))),
    exactly("last", 1, |heap, args| Ok(list(heap, args, 0)?.last().cloned().unwrap_or(Value::NIL))),
    exactly("mustLast", 1, |heap, args| Ok(list(heap, args, 0)?.last().cloned().unwrap_or(Value::NIL))),
    exactly("rest", 1, rest),
    exactly("mustRest", 1, rest),
    exactly("initial", 1, initial),
    exactly("mustInitial", 1, initial),
    exactly("append", 2, append),
    exactly("push", 2, append),
    exactly("mustAppend", 2, append),
    exactly("mustPush", 2, append),
    exactly("prepend", 2, prepend),
    exactly("mustPrepend", 2, prepend),
    at_least("concat", 0, |heap, args| {
        let mut all = Vec::new();
        for at in 0..args.len() {
            let items = list(heap, args, at)?;
            heap.step(items.len())?;
            all.extend(items.iter().cloned());
        }
        heap.new_list(all)
    }),
    exactly("reverse", 1, reverse),
    exactly("mustReverse", 1, reverse),
    exactly("uniq", 1, uniq),
    exactly("mustUniq", 1, uniq),
    at_least("without", 1, without),
    at_least("mustWithout", 1, without),
    exactly("has", 2, has),
    exactly("mustHas", 2, has),
    exactly("compact", 1, compact),
    exactly("mustCompact", 1, compact),
    exactly("chunk", 2, chunk),
    exactly("mustChunk", 2, chunk),
    at_least("until", 1, |heap, args| {
        let count = int(args, 0)?;
        steps(heap, 0, count, if count < 0 { -1 } else { 1 })
    }),
    exactly("untilStep", 3, |heap, args| steps(heap, int(args, 0)?, int(args, 1)?, int(args, 2)?)),
    at_least("seq", 0, seq),
    at_least("default", 1, |heap, args| {
        let given = args.get(1).filter(|value| heap.truth(value));
        Ok(given.unwrap_or(argument(args, 0)).clone())
    }),
    exactly("empty", 1, |heap, args| Ok((!heap.truth(argument(args, 0))).into())),
    at_least("coalesce", 0, |heap, args| {
        Ok(args.iter().find(|value| heap.truth(value)).cloned().unwrap_or(Value::NIL))
    }),
    at_least("all", 0, |heap, args| Ok(args.iter().all(|value| heap.truth(value)).into())),
    at_least("any", 0, |heap, args| Ok(args.iter().any(|value| heap.truth(value)).into())),
    exactly("ternary", 3, |_, args| match argument(args, 2) {
        Value::Bool(chosen) => Ok(argument(args, usize::from(!chosen)).clone()),
        other => fault(format_args!("the last argument must be a bool, and is {}", other.described())),
    }),
    exactly("fail", 1, |_, args| fault(text(args, 0)?)),
    exactly("required", 2, |_, args| match argument(args, 1) {
        Value::Nil(_) => fault(text(args, 0)?),
        Value::Text(given) if given.is_empty() => fault(text(args, 0)?),
        given => Ok(given.clone()),
    }),
    exactly("deepEqual", 2, |heap, args| Ok(heap.deep_equal(argument(args, 0), argument(args, 1))?.into())),
    exactly("typeOf", 1, |heap, args| heap.text(type_name(argument(args, 0)))),
    exactly("typeIs", 2, |_, args| Ok((*text(args, 0)? == *type_name(argument(args, 1))).into())),
    exactly("typeIsLike", 2, |_, args| Ok((*text(args, 0)? == *type_name(argument(args, 1))).into())),
    exactly("kindOf", 1, |heap, args| heap.text(kind_of(argument(args, 0)))),
    exactly("kindIs", 2, |_, args| Ok((*text(args, 0)? == *kind_of(argument(args, 1))).into())),
];

fn rest(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    let items = list(heap, args, 0)?;
    heap.new_list(items.get(1..).unwrap_or_default())
}

fn initial(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    let items = list(heap, args, 0)?;
    heap.new_list(items.split_last().map(|(_, items)| items).unwrap_or_default())
}

fn append(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    let mut items = list(heap, args, 0)?.to_vec();
    items.push(argument(args, 1).clone());
    heap.new_list(items)
}

fn prepend(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    let mut items = vec![argument(args, 1).clone()];
    items.extend(list(heap, args, 0)?.iter().cloned());
    heap.new_list(items)
}

fn reverse(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    let items: Vec<Value> = list(heap, args, 0)?.iter().rev().cloned().collect();
    heap.new_list(items)
}

fn uniq(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    let mut seen: Vec<Value> = Vec::new();
    for item in list(heap, args, 0)?.iter() {
        if !is_among(heap, item, &seen)? {
            seen.push(item.clone());
        }
    }
    heap.new_list(seen)
}

fn without(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    let mut kept = Vec::new();
    let omitted = args.get(1..).unwrap_or_default();
    for item in list(heap, args, 0)?.iter() {
        if !is_among(heap, item, omitted)? {
            kept.push(item.clone());
        }
    }
    heap.new_list(kept)
}

fn has(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    if argument(args, 1).is_nil() {
        return Ok(false.into());
    }
    let items = list(heap, args, 1)?;
    Ok(is_among(heap, argument(args, 0), &items)?.into())
}

fn is_among(heap: &mut Heap, wanted: &Value, items: &[Value]) -> Outcome<bool> {
    for item in items {
        if heap.deep_equal(wanted, item)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn compact(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    let items = list(heap, args, 0)?;
    let kept: Vec<Value> = items.iter().filter(|item| heap.truth(item)).cloned().collect();
    heap.new_list(kept)
}

fn chunk(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    let Some(size) = usize::try_from(int(args, 0)?).ok().filter(|size| *size > 0) else {
        return fault("a chunk has at least one item");
    };
    let items = list(heap, args, 1)?;
    let chunks: Outcome<Vec<Value>> = items.chunks(size).map(|chunk| heap.new_list(chunk)).collect();
    heap.new_list(chunks?)
}

/// Whole numbers from one up to but not including another.
fn steps(heap: &mut Heap, from: i64, to: i64, step: i64) -> Outcome<Value> {
    let mut numbers = Vec::new();
    let mut next = from;
    let ends = |next: i64| if step > 0 { next >= to } else { next <= to };
    while step != 0 && !ends(next) {
        heap.step(1)?;
        numbers.push(Value::Int(next));
        let Some(after) = next.checked_add(step) else { break };
        next = after;
    }
    heap.new_list(numbers)
}

/// As the command of that name: `seq 3`, `seq 2 5`, `seq 1 2 9`, as text.
fn seq(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    let at = |at| int(args, at);
    let (from, step, to) = match args.len() {
        0 => return heap.text(""),
        1 => (1, None, at(0)?),
        2 => (at(0)?, None, at(1)?),
        3 => (at(0)?, Some(at(1)?), at(2)?),
        count => return fault(format_args!("seq takes at most 3 arguments, and got {count}")),
    };
    let step = step.unwrap_or(if to < from { -1 } else { 1 });
    let (mut numbers, mut next) = (Vec::new(), from);
    let past = match step.cmp(&0) {
        Ordering::Greater => |next: i64, to: i64| next > to,
        Ordering::Less => |next: i64, to: i64| next < to,
        Ordering::Equal => return heap.text(""),
    };
    while !past(next, to) {
        heap.step(1)?;
        numbers.push(next.to_string());
        let Some(after) = next.checked_add(step) else { break };
        next = after;
    }
    heap.text(numbers.join(" "))
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Nil(_) => "invalid",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int",
        Value::Float(_) => "float64",
        Value::Text(_) => "string",
        Value::List(_) => "slice",
        Value::Map(_) => "map",
    }
}
