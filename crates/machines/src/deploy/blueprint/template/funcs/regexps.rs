//! Sprig's functions on regular expressions. Linear in time, and their size is limited.

use regex::{Regex, RegexBuilder};

use super::{Function, exactly, int, text, texts};
use crate::deploy::blueprint::template::value::{Heap, Value};
use crate::deploy::blueprint::template::{Outcome, fault};

/// What one expression may take once it is compiled; a written one takes a few kilobytes.
const MAX_COMPILED_BYTES: usize = 1024 * 1024;

pub(super) const FUNCTIONS: &[Function] = &[
    exactly("regexMatch", 2, matches),
    exactly("mustRegexMatch", 2, matches),
    exactly("regexFind", 2, find),
    exactly("mustRegexFind", 2, find),
    exactly("regexFindAll", 3, find_all),
    exactly("mustRegexFindAll", 3, find_all),
    exactly("regexReplaceAll", 3, |heap, args| replace_all(heap, args, false)),
    exactly("mustRegexReplaceAll", 3, |heap, args| replace_all(heap, args, false)),
    exactly("regexReplaceAllLiteral", 3, |heap, args| replace_all(heap, args, true)),
    exactly("mustRegexReplaceAllLiteral", 3, |heap, args| replace_all(heap, args, true)),
    exactly("regexSplit", 3, split),
    exactly("mustRegexSplit", 3, split),
    exactly("regexQuoteMeta", 1, |heap, args| {
        let quoted = regex::escape(&text(args, 0)?);
        heap.text(quoted)
    }),
];

fn compiled(heap: &mut Heap, args: &[Value]) -> Outcome<Regex> {
    let expression = text(args, 0)?;
    // Compiling is the dear part: a loop that does it a million times is stopped by its steps.
    heap.step(100 + expression.len())?;
    match RegexBuilder::new(&expression).size_limit(MAX_COMPILED_BYTES).build() {
        Ok(regex) => Ok(regex),
        Err(why) => fault(format_args!("bad regular expression {expression:?}: {why}")),
    }
}

fn matches(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    Ok(compiled(heap, args)?.is_match(&text(args, 1)?).into())
}

fn find(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    let (regex, whole) = (compiled(heap, args)?, text(args, 1)?);
    heap.text(regex.find(&whole).map(|found| found.as_str()).unwrap_or_default())
}

fn find_all(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    let (regex, whole) = (compiled(heap, args)?, text(args, 1)?);
    let most = usize::try_from(int(args, 2)?).unwrap_or(usize::MAX);
    heap.take(whole.len())?;
    let found: Vec<String> = regex.find_iter(&whole).take(most).map(|found| found.as_str().to_owned()).collect();
    texts(heap, found)
}

fn replace_all(heap: &mut Heap, args: &[Value], literal: bool) -> Outcome<Value> {
    let (regex, whole, with) = (compiled(heap, args)?, text(args, 1)?, text(args, 2)?);
    let (mut replaced, mut end) = (String::new(), 0);
    for found in regex.captures_iter(&whole) {
        let Some(all) = found.get(0) else { continue };
        let before = replaced.len();
        replaced.push_str(whole.get(end..all.start()).unwrap_or_default());
        if literal {
            replaced.push_str(&with);
        } else {
            found.expand(&with, &mut replaced);
        }
        end = all.end();
        heap.take(replaced.len() - before)?;
    }
    replaced.push_str(whole.get(end..).unwrap_or_default());
    heap.text(replaced)
}

fn split(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    let (regex, whole) = (compiled(heap, args)?, text(args, 1)?);
    let most = usize::try_from(int(args, 2)?).unwrap_or(usize::MAX);
    heap.take(whole.len())?;
    let parts: Vec<String> = regex.splitn(&whole, most).map(str::to_owned).collect();
    texts(heap, parts)
}
