//! Does this string match the pattern, in the dialect of Go's `regexp` (RE2)?
//!
//! The `regex` crate is RE2's close relative, with three differences that schemas can see: its `\d`, `\w`,
//! `\s` and `\b` are Unicode where Go's are ASCII, a `[` inside a class opens a nested class where Go takes
//! it literally, and `&&`, `--` and `~~` inside a class are set operations. Patterns are translated first.

use regex::{Regex, RegexBuilder};
use std::fmt;
use std::iter::Peekable;
use std::str::Chars;

/// A compiled automaton may take this much memory. The crate's own default, said here because patterns come
/// from whoever may create a CustomResourceDefinition.
const MAX_COMPILED_BYTES: usize = 10 << 20;

/// A pattern as its author wrote it, ready to run.
#[derive(Debug)]
pub(crate) struct Pattern {
    source: Box<str>,
    regex: Regex,
}

impl Pattern {
    pub(crate) fn compile(source: &str) -> Result<Self, regex::Error> {
        let regex = RegexBuilder::new(&translate(source)).size_limit(MAX_COMPILED_BYTES).build()?;
        Ok(Self { source: source.into(), regex })
    }

    /// Whether some part of the string matches: patterns are not anchored.
    pub(crate) fn is_match(&self, s: &str) -> bool {
        self.regex.is_match(s)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

fn translate(source: &str) -> String {
    let mut out = String::with_capacity(source.len() + 16);
    let mut chars = source.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => escape(&mut chars, &mut out, false),
            '[' => class(&mut chars, &mut out),
            _ => out.push(c),
        }
    }
    out
}

fn escape(chars: &mut Peekable<Chars<'_>>, out: &mut String, in_class: bool) {
    match chars.next() {
        Some('d') => out.push_str("[0-9]"),
        Some('D') => out.push_str("[^0-9]"),
        Some('w') => out.push_str("[0-9A-Za-z_]"),
        Some('W') => out.push_str("[^0-9A-Za-z_]"),
        Some('s') => out.push_str(r"[\t\n\f\r ]"),
        Some('S') => out.push_str(r"[^\t\n\f\r ]"),
        Some('b') if !in_class => out.push_str(r"(?-u:\b)"),
        Some('Q') if !in_class => literal(chars, out),
        Some(c) => {
            out.push('\\');
            out.push(c);
        }
        None => out.push('\\'),
    }
}

/// `\Q…\E` is text as it stands.
fn literal(chars: &mut Peekable<Chars<'_>>, out: &mut String) {
    let mut text = String::new();
    while let Some(c) = chars.next() {
        if c == '\\' && chars.peek() == Some(&'E') {
            chars.next();
            break;
        }
        text.push(c);
    }
    out.push_str(&regex::escape(&text));
}

/// Copies a class up to its closing bracket, with what only the crate finds special escaped.
fn class(chars: &mut Peekable<Chars<'_>>, out: &mut String) {
    out.push('[');
    if chars.peek() == Some(&'^') {
        chars.next();
        out.push('^');
    }
    let mut first = true;
    while let Some(c) = chars.next() {
        match c {
            ']' if !first => {
                out.push(']');
                return;
            }
            ']' => out.push_str(r"\]"),
            '\\' => escape(chars, out, true),
            '[' if chars.peek() == Some(&':') => posix(chars, out),
            '[' | '&' | '~' => {
                out.push('\\');
                out.push(c);
            }
            '-' if chars.peek() == Some(&'-') => out.push_str(r"\-"),
            _ => out.push(c),
        }
        first = false;
    }
}

/// `[:alpha:]` means the same in both dialects.
fn posix(chars: &mut Peekable<Chars<'_>>, out: &mut String) {
    out.push('[');
    for c in chars.by_ref() {
        out.push(c);
        if c == ']' {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_mean_what_they_mean_in_go() {
        let cases = [
            (r"^\d+$", "12", true),
            (r"^\d+$", "१२", false),
            (r"^\w+$", "é", false),
            (r"^[\w.-]+$", "a.b-c_d", true),
            (r"^[^\s]+$", "ab", true),
            (r"^[[]$", "[", true),
            (r"^[a&&b]+$", "a&b", true),
            (r"^[]a]+$", "a]", true),
            (r"^[[:alpha:]]+$", "abc", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            ("b", "abc", true),
            (r"(?i)^ABC$", "abc", true),
            (r"^[A-Za-z0-9][-A-Za-z0-9_.]*$", "My-Name_1.x", true),
            (r"^\p{L}+$", "é", true),
        ];
        for (pattern, text, want) in cases {
            assert_eq!(Pattern::compile(pattern).unwrap().is_match(text), want, "{pattern} {text}");
        }
        assert!(Pattern::compile("(").is_err());
        assert!(Pattern::compile("(?=x)").is_err());
        assert!(Pattern::compile(r"((a{1000}){1000}){1000}").is_err());
    }

    proptest! {
        #[test]
        fn no_pattern_panics(source in "[a-z\\[\\]\\\\^$.()*+?&~:dwsQE-]{0,30}") {
            let _ = Pattern::compile(&source);
        }
    }
}
