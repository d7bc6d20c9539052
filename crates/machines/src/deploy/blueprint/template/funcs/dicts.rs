//! Sprig's functions on maps. `set`, `unset` and the merges change the map they are given, as in Go.

use std::sync::Arc;

use super::{Function, argument, at_least, exactly, map, string, strings, text, texts};
use crate::deploy::blueprint::template::value::{Heap, Map, MapId, Value, within_depth};
use crate::deploy::blueprint::template::{Outcome, fault};

pub(super) const FUNCTIONS: &[Function] = &[
    at_least("dict", 0, dict),
    exactly("get", 2, |heap, args| {
        let key = text(args, 1)?;
        // Sprig yields the empty text for a key that is not there.
        Ok(heap.get(map(args, 0)?, &key).cloned().unwrap_or_else(|| Value::Text("".into())))
    }),
    exactly("set", 3, |heap, args| {
        heap.set(map(args, 0)?, &text(args, 1)?, argument(args, 2).clone())?;
        Ok(argument(args, 0).clone())
    }),
    exactly("unset", 2, |heap, args| {
        heap.unset(map(args, 0)?, &text(args, 1)?);
        Ok(argument(args, 0).clone())
    }),
    exactly("hasKey", 2, |heap, args| {
        let key = text(args, 1)?;
        Ok(heap.get(map(args, 0)?, &key).is_some().into())
    }),
    at_least("keys", 1, |heap, args| {
        let mut keys = Vec::new();
        for at in 0..args.len() {
            keys.extend(heap.entries(map(args, at)?)?.into_keys().map(|key| key.to_string()));
        }
        texts(heap, keys)
    }),
    exactly("values", 1, |heap, args| {
        let values: Vec<Value> = heap.entries(map(args, 0)?)?.into_values().collect();
        heap.new_list(values)
    }),
    at_least("pluck", 1, |heap, args| {
        let key = text(args, 0)?;
        let mut found = Vec::new();
        for at in 1..args.len() {
            found.extend(heap.get(map(args, at)?, &key).cloned());
        }
        heap.new_list(found)
    }),
    at_least("pick", 1, |heap, args| {
        let keys = named(heap, args)?;
        let mut entries = heap.entries(map(args, 0)?)?;
        entries.retain(|key, _| keys.iter().any(|kept| **kept == **key));
        heap.new_map(entries)
    }),
    at_least("omit", 1, |heap, args| {
        let keys = named(heap, args)?;
        let mut entries = heap.entries(map(args, 0)?)?;
        entries.retain(|key, _| keys.iter().all(|omitted| **omitted != **key));
        heap.new_map(entries)
    }),
    at_least("merge", 1, |heap, args| merge(heap, args, false)),
    at_least("mustMerge", 1, |heap, args| merge(heap, args, false)),
    at_least("mergeOverwrite", 1, |heap, args| merge(heap, args, true)),
    at_least("mustMergeOverwrite", 1, |heap, args| merge(heap, args, true)),
    exactly("deepCopy", 1, |heap, args| heap.deep_copy(argument(args, 0))),
    exactly("mustDeepCopy", 1, |heap, args| heap.deep_copy(argument(args, 0))),
    at_least("dig", 3, dig),
];

/// Keys and values in turn; a last key without a value gets the empty text.
fn dict(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    let mut entries = Map::new();
    for pair in args.chunks(2) {
        let key = string(heap, argument(pair, 0))?;
        heap.take(key.len())?;
        entries.insert(Arc::from(key), pair.get(1).cloned().unwrap_or_else(|| Value::Text("".into())));
    }
    heap.new_map(entries)
}

/// The keys behind the map: texts, or a list of them.
fn named(heap: &mut Heap, args: &[Value]) -> Outcome<Vec<String>> {
    let mut keys = Vec::new();
    for value in args.iter().skip(1) {
        keys.extend(strings(heap, value)?);
    }
    Ok(keys)
}

fn merge(heap: &mut Heap, args: &[Value], overwrite: bool) -> Outcome<Value> {
    let into = map(args, 0)?;
    for at in 1..args.len() {
        merge_at(heap, into, map(args, at)?, overwrite, 0)?;
    }
    Ok(argument(args, 0).clone())
}

/// Maps on both sides are merged in turn; otherwise what is there stays, unless it is empty or to be overwritten.
fn merge_at(heap: &mut Heap, into: MapId, from: MapId, overwrite: bool, depth: usize) -> Outcome<()> {
    within_depth(depth)?;
    for (key, theirs) in heap.entries(from)? {
        let ours = heap.get(into, &key).cloned();
        match (ours, &theirs) {
            (Some(Value::Map(ours)), Value::Map(theirs)) if ours != *theirs => {
                merge_at(heap, ours, *theirs, overwrite, depth + 1)?;
            }
            (Some(ours), theirs) if heap.truth(&ours) && !(overwrite && heap.truth(theirs)) => {}
            (Some(_) | None, _) => heap.set(into, &key, theirs)?,
        }
    }
    Ok(())
}

/// `dig "a" "b" "default" map`
fn dig(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    let Some((whole, rest)) = args.split_last() else { return Ok(Value::NIL) };
    let Some((otherwise, path)) = rest.split_last() else { return Ok(Value::NIL) };
    let mut value = whole.clone();
    for at in 0..path.len() {
        let key = text(path, at)?;
        let Value::Map(map) = value else {
            return fault(format_args!("{key:?} is sought in {}, not in a map", value.described()));
        };
        match heap.get(map, &key) {
            Some(found) => value = found.clone(),
            None => return Ok(otherwise.clone()),
        }
    }
    Ok(value)
}
