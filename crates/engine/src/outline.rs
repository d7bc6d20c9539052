//! What can still be told of an answer that holds an object too deep to be read.
//!
//! API servers take objects nested thousands deep; our reader stops at 128, as it must, and then says nothing about
//! the rest of the text either. So that one such object cannot hide all others of its kind, a list is then cut into its
//! items without reading them, and an unreadable one is known by its name alone. No recursion, no allocation by depth.

use pawl_machines::object::Key;
use serde::Deserialize;

/// The parts of an object that matter when the rest cannot be read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Outline {
    pub(crate) metadata: Metadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Metadata {
    pub(crate) name: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) resource_version: Option<String>,
}

impl Outline {
    /// Reads what it can.
    pub(crate) fn of(text: &[u8]) -> Self {
        serde_json::from_slice(text).unwrap_or_default()
    }

    pub(crate) fn key(&self) -> Option<Key> {
        let Metadata { name, namespace, .. } = &self.metadata;
        name.as_ref().map(|name| Key::new(namespace.as_deref(), name))
    }
}

/// The text of one member of an object.
pub(crate) fn member<'a>(object: &'a [u8], wanted: &str) -> Option<&'a [u8]> {
    let mut at = expect(object, skip_space(object, 0), b'{')?;
    loop {
        let name_end = skip_value(object, at)?;
        let name = object.get(at..name_end)?;
        let value = skip_space(object, expect(object, skip_space(object, name_end), b':')?);
        let value_end = skip_value(object, value)?;
        if name.strip_prefix(b"\"").and_then(|name| name.strip_suffix(b"\"")) == Some(wanted.as_bytes()) {
            return object.get(value..value_end);
        }
        at = skip_space(object, expect(object, skip_space(object, value_end), b',')?);
    }
}

/// The texts of the elements of an array.
pub(crate) fn elements(array: &[u8]) -> Option<Vec<&[u8]>> {
    let mut found = Vec::new();
    let mut at = skip_space(array, expect(array, skip_space(array, 0), b'[')?);
    if array.get(at) == Some(&b']') {
        return Some(found);
    }
    loop {
        let end = skip_value(array, at)?;
        found.push(array.get(at..end)?);
        let next = skip_space(array, end);
        match array.get(next)? {
            b',' => at = skip_space(array, next + 1),
            b']' => return Some(found),
            _ => return None,
        }
    }
}

/// Where the value that starts here ends.
fn skip_value(text: &[u8], start: usize) -> Option<usize> {
    let (mut at, mut depth) = (start, 0_usize);
    loop {
        match text.get(at)? {
            b'"' => at = skip_string(text, at)?,
            b'{' | b'[' => {
                depth += 1;
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
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
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
        assert_eq!(Outline::of(items[1]).key(), Some(Key::new(None, "deep")));
        assert_eq!(member(list.as_bytes(), "metadata"), Some(&br#"{"resourceVersion":"9"}"#[..]));
        assert_eq!(member(list.as_bytes(), "absent"), None);
        assert_eq!(elements(b"[]"), Some(vec![]));
    }

    #[test]
    fn text_that_is_cut_anywhere_gives_nothing_or_less_and_never_panics() {
        let list = br#"{"metadata":{"x":[1,"\\\""]},"items":[{"a":1},{"b":"\u0041"}]}"#;
        for end in 0..list.len() {
            let items = member(&list[..end], "items").and_then(elements);
            assert!(items.is_none_or(|items| items.len() <= 2));
        }
        for nonsense in ["", "{", "}", "]", "[,", "{\"a\"", "{\"a\":", "[1 2]", "{:}", "\"\\"] {
            assert!(elements(nonsense.as_bytes()).is_none() && member(nonsense.as_bytes(), "a").is_none());
        }
    }
}
