//! Sprig's functions on texts.

use super::{Function, argument, at_least, exactly, int, string, strings, text, texts};
use crate::deploy::blueprint::template::value::{Heap, Map, Value};
use crate::deploy::blueprint::template::{Outcome, fault, format};

pub(super) const FUNCTIONS: &[Function] = &[
    exactly("trim", 1, |heap, args| map_text(heap, args, 0, |text| text.trim().to_owned())),
    exactly("trimAll", 2, trim_all),
    exactly("trimall", 2, trim_all),
    exactly("trimPrefix", 2, |heap, args| {
        let prefix = text(args, 0)?;
        map_text(heap, args, 1, |text| text.strip_prefix(prefix.as_ref()).unwrap_or(text).to_owned())
    }),
    exactly("trimSuffix", 2, |heap, args| {
        let suffix = text(args, 0)?;
        map_text(heap, args, 1, |text| text.strip_suffix(suffix.as_ref()).unwrap_or(text).to_owned())
    }),
    exactly("upper", 1, |heap, args| map_text(heap, args, 0, str::to_uppercase)),
    exactly("lower", 1, |heap, args| map_text(heap, args, 0, str::to_lowercase)),
    exactly("title", 1, |heap, args| map_text(heap, args, 0, |text| each_word(text, char::to_uppercase))),
    exactly("untitle", 1, |heap, args| map_text(heap, args, 0, |text| each_word(text, char::to_lowercase))),
    exactly("swapcase", 1, |heap, args| map_text(heap, args, 0, swap_case)),
    exactly("nospace", 1, |heap, args| {
        map_text(heap, args, 0, |text| text.chars().filter(|next| !next.is_whitespace()).collect())
    }),
    exactly("initials", 1, |heap, args| {
        map_text(heap, args, 0, |text| text.split_whitespace().filter_map(|word| word.chars().next()).collect())
    }),
    exactly("camelcase", 1, |heap, args| map_text(heap, args, 0, camel_case)),
    exactly("snakecase", 1, |heap, args| map_text(heap, args, 0, |text| words_joined(text, '_'))),
    exactly("kebabcase", 1, |heap, args| map_text(heap, args, 0, |text| words_joined(text, '-'))),
    exactly("repeat", 2, repeat),
    exactly("substr", 3, substr),
    exactly("trunc", 2, trunc),
    exactly("abbrev", 2, abbrev),
    exactly("wrap", 2, |heap, args| {
        let width = int(args, 0)?;
        map_text(heap, args, 1, |text| wrapped(text, width, "\n"))
    }),
    exactly("wrapWith", 3, |heap, args| {
        let (width, line_end) = (int(args, 0)?, text(args, 1)?);
        map_text(heap, args, 2, |text| wrapped(text, width, &line_end))
    }),
    exactly("contains", 2, |_, args| Ok(text(args, 1)?.contains(text(args, 0)?.as_ref()).into())),
    exactly("hasPrefix", 2, |_, args| Ok(text(args, 1)?.starts_with(text(args, 0)?.as_ref()).into())),
    exactly("hasSuffix", 2, |_, args| Ok(text(args, 1)?.ends_with(text(args, 0)?.as_ref()).into())),
    at_least("quote", 0, |heap, args| quoted(heap, args, |text| format::quote(text, '"'))),
    at_least("squote", 0, |heap, args| quoted(heap, args, |text| format!("'{text}'"))),
    at_least("cat", 0, |heap, args| {
        let mut parts = Vec::new();
        for value in args.iter().filter(|value| !value.is_nil()) {
            parts.push(string(heap, value)?);
        }
        heap.text(parts.join(" "))
    }),
    exactly("indent", 2, |heap, args| indented(heap, args, "")),
    exactly("nindent", 2, |heap, args| indented(heap, args, "\n")),
    exactly("replace", 3, replace),
    exactly("plural", 3, |heap, args| {
        let count = int(args, 2)?;
        heap.text(text(args, usize::from(count != 1))?)
    }),
    exactly("toString", 1, |heap, args| {
        let text = string(heap, argument(args, 0))?;
        heap.text(text)
    }),
    exactly("toStrings", 1, |heap, args| {
        let parts = strings(heap, argument(args, 0))?;
        texts(heap, parts)
    }),
    exactly("join", 2, join),
    exactly("split", 2, |heap, args| {
        let (separator, whole) = (text(args, 0)?, text(args, 1)?);
        numbered(heap, pieces(&whole, &separator, usize::MAX))
    }),
    exactly("splitn", 3, |heap, args| {
        let (separator, whole) = (text(args, 0)?, text(args, 2)?);
        let most = usize::try_from(int(args, 1)?).unwrap_or(usize::MAX);
        numbered(heap, pieces(&whole, &separator, most))
    }),
    exactly("splitList", 2, |heap, args| {
        let (separator, whole) = (text(args, 0)?, text(args, 1)?);
        texts(heap, pieces(&whole, &separator, usize::MAX))
    }),
    exactly("sortAlpha", 1, |heap, args| {
        let mut parts = strings(heap, argument(args, 0))?;
        parts.sort();
        texts(heap, parts)
    }),
    exactly("base", 1, |heap, args| map_text(heap, args, 0, base)),
    exactly("dir", 1, |heap, args| map_text(heap, args, 0, dir)),
    exactly("ext", 1, |heap, args| {
        map_text(heap, args, 0, |path| {
            let name = path.rsplit('/').next().unwrap_or_default();
            name.rfind('.').and_then(|dot| name.get(dot..)).unwrap_or_default().to_owned()
        })
    }),
    exactly("isAbs", 1, |_, args| Ok(text(args, 0)?.starts_with('/').into())),
    exactly("clean", 1, |heap, args| map_text(heap, args, 0, clean)),
    exactly("parseOCIRef", 1, |heap, args| {
        let reference = text(args, 0)?;
        let (repository, version) = oci_reference(&reference);
        texts(heap, [repository.to_owned(), version.to_owned()])
    }),
    exactly("ociRefRepo", 1, |heap, args| map_text(heap, args, 0, |reference| oci_reference(reference).0.to_owned())),
    exactly("ociRefVersion", 1, |heap, args| {
        map_text(heap, args, 0, |reference| oci_reference(reference).1.to_owned())
    }),
];

/// One argument's text changed; none of these makes it more than thrice as long.
fn map_text(heap: &mut Heap, args: &[Value], at: usize, change: impl FnOnce(&str) -> String) -> Outcome<Value> {
    let whole = text(args, at)?;
    heap.take(whole.len())?;
    let changed = change(&whole);
    heap.text(changed)
}

fn trim_all(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    let any = text(args, 0)?;
    map_text(heap, args, 1, |text| text.trim_matches(|next| any.contains(next)).to_owned())
}

fn each_word<I: Iterator<Item = char>>(text: &str, change: fn(char) -> I) -> String {
    let mut changed = String::with_capacity(text.len());
    let mut in_word = false;
    for next in text.chars() {
        if in_word {
            changed.push(next);
        } else {
            changed.extend(change(next));
        }
        // An apostrophe divides words in Go as well.
        in_word = next.is_alphanumeric() || next == '_';
    }
    changed
}

fn swap_case(text: &str) -> String {
    let mut changed = String::with_capacity(text.len());
    for next in text.chars() {
        if next.is_uppercase() {
            changed.extend(next.to_lowercase());
        } else {
            changed.extend(next.to_uppercase());
        }
    }
    changed
}

fn camel_case(text: &str) -> String {
    let words = text.split(|next: char| !next.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(|word| each_word(word, char::to_uppercase)).collect()
}

/// `HTTPServerName2` and `http-server name2` are three words each.
fn words_joined(text: &str, separator: char) -> String {
    let all: Vec<char> = text.chars().collect();
    let mut changed = String::with_capacity(text.len() + 8);
    for (at, next) in all.iter().enumerate() {
        if !next.is_alphanumeric() {
            if !changed.is_empty() && !changed.ends_with(separator) {
                changed.push(separator);
            }
            continue;
        }
        let before = at.checked_sub(1).and_then(|at| all.get(at));
        let after = all.get(at + 1);
        let starts = next.is_uppercase()
            && before.is_some_and(|before| {
                before.is_lowercase()
                    || before.is_ascii_digit()
                    || (before.is_uppercase() && after.is_some_and(|after| after.is_lowercase()))
            });
        if starts && !changed.ends_with(separator) {
            changed.push(separator);
        }
        changed.extend(next.to_lowercase());
    }
    changed.trim_end_matches(separator).to_owned()
}

fn repeat(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    let (count, part) = (int(args, 0)?, text(args, 1)?);
    let Ok(count) = usize::try_from(count) else { return fault("cannot repeat less than never") };
    heap.take(part.len().saturating_mul(count))?;
    heap.text(part.repeat(count))
}

/// From one character to another; a negative end is the end.
fn substr(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    let (start, end) = (int(args, 0)?, int(args, 1)?);
    map_text(heap, args, 2, |text| {
        let length = text.len();
        let start = usize::try_from(start).unwrap_or(0).min(length);
        let end = usize::try_from(end).unwrap_or(length).min(length);
        cut(text, start, end)
    })
}

/// The first so many characters, or the last so many if negative.
fn trunc(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    let count = int(args, 0)?;
    map_text(heap, args, 1, |text| {
        let length = text.len();
        let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX).min(length);
        if count < 0 { cut(text, length - wanted, length) } else { cut(text, 0, wanted) }
    })
}

/// Bytes, as Go counts them.
fn cut(text: &str, start: usize, end: usize) -> String {
    String::from_utf8_lossy(text.as_bytes().get(start..end).unwrap_or_default()).into_owned()
}

fn abbrev(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    let width = int(args, 0)?;
    map_text(heap, args, 1, |text| match usize::try_from(width) {
        Ok(width) if width >= 4 && text.len() > width => format!("{}...", cut(text, 0, width - 3)),
        Ok(_) | Err(_) => text.to_owned(),
    })
}

/// Lines no longer than `width`, broken between words.
fn wrapped(text: &str, width: i64, line_end: &str) -> String {
    let width = usize::try_from(width).unwrap_or(1).max(1);
    let mut lines = String::with_capacity(text.len());
    let mut length = 0;
    for word in text.split(' ') {
        if length > 0 && length + 1 + word.len() > width {
            lines.push_str(line_end);
            length = 0;
        } else if length > 0 {
            lines.push(' ');
            length += 1;
        }
        lines.push_str(word);
        length += word.len();
    }
    lines
}

fn quoted(heap: &mut Heap, args: &[Value], quote: fn(&str) -> String) -> Outcome<Value> {
    let mut parts = Vec::new();
    for value in args.iter().filter(|value| !value.is_nil()) {
        let text = string(heap, value)?;
        parts.push(quote(&text));
    }
    heap.text(parts.join(" "))
}

fn indented(heap: &mut Heap, args: &[Value], before: &str) -> Outcome<Value> {
    let (count, whole) = (int(args, 0)?, text(args, 1)?);
    let Ok(count) = usize::try_from(count) else { return fault("cannot indent by less than nothing") };
    let lines = whole.matches('\n').count() + 1;
    heap.take(lines.saturating_mul(count))?;
    let pad = " ".repeat(count);
    heap.text(format!("{before}{pad}{}", whole.replace('\n', &format!("\n{pad}"))))
}

fn replace(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    let (old, new, whole) = (text(args, 0)?, text(args, 1)?, text(args, 2)?);
    let found = if old.is_empty() { whole.len() + 1 } else { whole.matches(old.as_ref()).count() };
    heap.take(found.saturating_mul(new.len()).saturating_add(whole.len()))?;
    heap.text(whole.replace(old.as_ref(), &new))
}

fn join(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    let separator = text(args, 0)?;
    let parts = strings(heap, argument(args, 1))?;
    heap.take(parts.len().saturating_mul(separator.len()))?;
    heap.text(parts.join(&separator))
}

/// An empty separator divides characters, as in Go.
fn pieces(whole: &str, separator: &str, most: usize) -> Vec<String> {
    match (separator, most) {
        (_, 0) => Vec::new(),
        ("", most) => {
            let mut rest = whole.chars();
            let mut pieces: Vec<String> = rest.by_ref().take(most - 1).map(String::from).collect();
            if !rest.as_str().is_empty() {
                pieces.push(rest.as_str().to_owned());
            }
            pieces
        }
        (separator, most) => whole.splitn(most, separator).map(str::to_owned).collect(),
    }
}

/// Sprig's `split` yields a map of `_0`, `_1`, ….
fn numbered(heap: &mut Heap, pieces: Vec<String>) -> Outcome<Value> {
    let mut entries = Map::new();
    for (at, piece) in pieces.into_iter().enumerate() {
        entries.insert(format!("_{at}").into(), heap.text(piece)?);
    }
    heap.new_map(entries)
}

fn base(path: &str) -> String {
    if path.is_empty() {
        return ".".to_owned();
    }
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    if name.is_empty() { "/".to_owned() } else { name.to_owned() }
}

fn dir(path: &str) -> String {
    clean(path.rfind('/').and_then(|slash| path.get(..=slash)).unwrap_or_default())
}

/// The shortest path that means the same.
fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        let above = parts.last().is_some_and(|last| *last != "..");
        if part == ".." && above {
            parts.pop();
        } else if part != ".." || !rooted {
            parts.push(part);
        }
    }
    match (rooted, parts.join("/")) {
        (true, path) => format!("/{path}"),
        (false, path) if path.is_empty() => ".".to_owned(),
        (false, path) => path,
    }
}

/// `host:5000/name:1.0` is a repository and a version; so is `name@sha256:…`.
fn oci_reference(reference: &str) -> (&str, &str) {
    if let Some(parts) = reference.split_once('@') {
        return parts;
    }
    match reference.rsplit_once(':') {
        Some((repository, version)) if !version.contains('/') => (repository, version),
        Some(_) | None => (reference, ""),
    }
}
