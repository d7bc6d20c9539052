//! Where are the parts of an answer in its text?
//!
//! Caches keep objects as text, so an answer is cut, not read: a list into its items, an event into its object, an object
//! into its members. API servers take objects nested thousands deep; our reader stops at 128, as it must, and then says
//! nothing about the rest of the text either. So that one such object cannot hide all others of its kind, the cut goes
//! around it. No recursion, no allocation by depth. Whether what was cut out is JSON, whoever reads it finds out.

use memchr::memchr2;

/// How deep an object may be nested to be read: as deep as `serde_json` reads.
const MAX_DEPTH: usize = 127;

/// One member of an object: the texts of its name, quotes and all, and of its value.
pub(crate) type Member<'a> = (&'a [u8], &'a [u8]);

/// The members of an object, in its order; `None` also where it is nested too deep to be read.
pub(crate) fn members(object: &[u8]) -> Option<Vec<Member<'_>>> {
    let mut found = Vec::with_capacity(8);
    let mut at = expect(object, skip_space(object, 0), b'{')?;
    if object.get(at) == Some(&b'}') {
        return Some(found);
    }
    loop {
        // The object itself is one level.
        let (member, end) = member_at(object, at, MAX_DEPTH - 1)?;
        found.push(member);
        let next = skip_space(object, end);
        match object.get(next)? {
            b',' => at = skip_space(object, next + 1),
            b'}' => return Some(found),
            _ => return None,
        }
    }
}

/// The text of one member of an object.
pub(crate) fn member<'a>(object: &'a [u8], wanted: &str) -> Option<&'a [u8]> {
    let mut at = expect(object, skip_space(object, 0), b'{')?;
    loop {
        let ((name, value), end) = member_at(object, at, usize::MAX)?;
        if is_named(name, wanted) {
            return Some(value);
        }
        at = skip_space(object, expect(object, skip_space(object, end), b',')?);
    }
}

/// Whether a name, quotes and all, is this one.
pub(crate) fn is_named(name: &[u8], wanted: &str) -> bool {
    name.strip_prefix(b"\"").and_then(|name| name.strip_suffix(b"\"")) == Some(wanted.as_bytes())
}

/// The member that starts here, and where it ends.
fn member_at(object: &[u8], at: usize, deepest: usize) -> Option<(Member<'_>, usize)> {
    let name_end = skip_value(object, at, deepest)?;
    let name = object.get(at..name_end)?;
    let value = skip_space(object, expect(object, skip_space(object, name_end), b':')?);
    let end = skip_value(object, value, deepest)?;
    Some(((name, object.get(value..end)?), end))
}

/// The texts of the elements of an array.
pub(crate) fn elements(array: &[u8]) -> Option<Vec<&[u8]>> {
    let mut found = Vec::new();
    let mut at = skip_space(array, expect(array, skip_space(array, 0), b'[')?);
    if array.get(at) == Some(&b']') {
        return Some(found);
    }
    loop {
        let end = skip_value(array, at, usize::MAX)?;
        found.push(array.get(at..end)?);
        let next = skip_space(array, end);
        match array.get(next)? {
            b',' => at = skip_space(array, next + 1),
            b']' => return Some(found),
            _ => return None,
        }
    }
}

/// Where the value that starts here ends; `None` where it has no end, or is nested deeper than this.
fn skip_value(text: &[u8], start: usize, deepest: usize) -> Option<usize> {
    let (mut at, mut depth) = (start, 0_usize);
    loop {
        match text.get(at)? {
            b'"' => at = skip_string(text, at)?,
            b'{' | b'[' => {
                depth += 1;
                if depth > deepest {
                    return None;
                }
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                at += 1;
            }
            _ if depth > 0 => {
                at += 1;
                continue;
            }
            _ => at = skip_scalar(text, at)?,
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

fn skip_string(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        at += memchr2(b'"', b'\\', text.get(at..)?)?;
        match text.get(at)? {
            b'"' => return Some(at + 1),
            _ => at += 2,
        }
    }
}

/// A number, or one of the three words.
fn skip_scalar(text: &[u8], start: usize) -> Option<usize> {
    let rest = text.get(start..)?;
    let ends = |byte: &u8| matches!(byte, b',' | b':' | b'}' | b']') || byte.is_ascii_whitespace();
    let length = rest.iter().position(ends).unwrap_or(rest.len());
    (length > 0).then_some(start + length)
}

fn skip_space(text: &[u8], start: usize) -> usize {
    let rest = text.get(start..).unwrap_or_default();
    start + rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}

fn expect(text: &[u8], at: usize, byte: u8) -> Option<usize> {
    let found = text.get(at) == Some(&byte);
    found.then(|| skip_space(text, at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An object named `deep` with a field nested this deep.
    fn deep(levels: usize) -> String {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        format!(r#"{{"spec": {open}{close}, "metadata": {{"name": "deep", "resourceVersion": "7"}}}}"#)
    }

    #[test]
    fn items_are_cut_out_whatever_is_in_them() {
        let list = format!(
            r#" {{"kind":"L\"ist","n":-1.5e3 ,"metadata":{{"resourceVersion":"9"}},"items" : [ {{"a":"]}}\\"}},{},null, [1,2] ] }}"#,
            deep(9_000)
        );
        let items = elements(member(list.as_bytes(), "items").unwrap()).unwrap();
        assert_eq!(items.len(), 4);
        assert_eq!(items[0], br#"{"a":"]}\\"}"#);
        assert_eq!((items[2], items[3]), (&b"null"[..], &b"[1,2]"[..]));
        assert!(serde_json::from_slice::<serde_json::Value>(items[1]).is_err());
        assert!(member(items[1], "metadata").unwrap().starts_with(br#"{"name": "deep""#));
        assert_eq!(member(list.as_bytes(), "metadata"), Some(&br#"{"resourceVersion":"9"}"#[..]));
        assert_eq!(member(list.as_bytes(), "absent"), None);
        assert_eq!(elements(b"[]"), Some(vec![]));
    }

    #[test]
    fn what_is_too_deep_is_what_cannot_be_read() {
        for levels in [1, 125, 126, 127, 9_000] {
            let text = deep(levels);
            let readable = serde_json::from_str::<serde_json::Value>(&text).is_ok();
            assert_eq!(members(text.as_bytes()).is_some(), readable, "{levels}");
        }
        let brackets = format!(r#"{{"a":"{}\""}}"#, "[".repeat(300));
        assert!(members(brackets.as_bytes()).is_some());
    }

    #[test]
    fn text_that_is_cut_anywhere_gives_nothing_or_less_and_never_panics() {
        let list = br#"{"metadata":{"x":[1,"\\\""]},"items":[{"a":1},{"b":"\u0041"}]}"#;
        for end in 0..list.len() {
            let items = member(&list[..end], "items").and_then(elements);
            assert!(items.is_none_or(|items| items.len() <= 2));
            assert!(members(&list[..end]).is_none());
        }
        assert_eq!(members(list).unwrap().len(), 2);
        assert_eq!(members(b" { } "), Some(vec![]));
        for nonsense in ["", "{", "}", "]", "[,", "{\"a\"", "{\"a\":", "[1 2]", "{:}", "\"\\"] {
            assert!(elements(nonsense.as_bytes()).is_none() && member(nonsense.as_bytes(), "a").is_none());
        }
    }
}
