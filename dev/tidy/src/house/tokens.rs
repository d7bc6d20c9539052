//! The words of Rust source: no comments, and of strings only what names code.

/// One word or sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    /// From 1.
    pub(crate) line: usize,
    /// A name in a string: of code in an attribute (`default = "path::name"`), or captured by a format (`{name}`).
    pub(crate) is_quoted: bool,
    pub(crate) in_attribute: bool,
}

impl Token<'_> {
    pub(crate) fn is_name(&self) -> bool {
        self.text.starts_with(is_name_start)
    }
}

/// Signs of more than one character that are told apart.
const SIGNS: &[&str] = &["#![", "#[", "::", "->", "=>", ".."];

pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (text, 1);
    // Brackets that are open since an attribute began.
    let mut brackets = 0_u32;
    while let Some(first) = rest.chars().next() {
        let (token, after) = rest.split_at(length(rest, first));
        let in_attribute = brackets > 0 || token.starts_with("#");
        let mut push = |text, is_quoted| found.push(Token { text, line, is_quoted, in_attribute });
        if string_length(token).is_some() {
            names_in(token, in_attribute).for_each(|name| push(name, true));
        } else if !first.is_whitespace() && !token.starts_with("//") && !token.starts_with("/*") {
            push(token, false);
        }
        match token {
            "#[" | "#![" => brackets += 1,
            "[" if brackets > 0 => brackets += 1,
            "]" => brackets = brackets.saturating_sub(1),
            _ => {}
        }
        line += token.matches('\n').count();
        rest = after;
    }
    found
}

/// How long the first token is.
fn length(rest: &str, first: char) -> usize {
    let until = |end: Option<usize>| end.unwrap_or(rest.len());
    if rest.starts_with("//") {
        return until(rest.find('\n'));
    }
    if rest.starts_with("/*") {
        return until(rest.find("*/").map(|at| at + 2));
    }
    if let Some(length) = string_length(rest).or_else(|| character_length(rest)) {
        return length;
    }
    // A lifetime is one token: what follows `'static` is no static.
    if is_name_start(first) || first.is_ascii_digit() || first == '\'' {
        let after_first = rest.get(first.len_utf8()..).unwrap_or_default();
        return until(
            after_first.find(|c: char| !c.is_alphanumeric() && c != '_').map(|at| first.len_utf8() + at),
        );
    }
    let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
    sign.map_or(first.len_utf8(), |sign| sign.len())
}

/// `"…"`, `b"…"`, `r#"…"#`.
fn string_length(rest: &str) -> Option<usize> {
    // No prefix is longer than a few characters.
    let start = rest.bytes().take(8).position(|byte| byte == b'"')?;
    let head = rest.get(..start)?;
    let body = rest.get(start + 1..)?;
    let hashes = head.trim_start_matches(['b', 'c', 'r']);
    if head.trim_end_matches('#').len() > 2 || !hashes.trim_matches('#').is_empty() {
        return None;
    }
    let end = if head.contains('r') {
        body.find(&format!("\"{hashes}")).map(|at| at + 1 + hashes.len())
    } else if head.contains('#') {
        return None;
    } else {
        let mut is_escaped = false;
        let closes = |c: char| {
            let closes = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            closes
        };
        body.find(closes).map(|at| at + 1)
    };
    Some(end.map_or(rest.len(), |end| start + 1 + end))
}

/// `'a'`, `b'\n'`, but not the lifetime `'a`.
fn character_length(rest: &str) -> Option<usize> {
    let quoted = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('\'')?;
    let start = rest.len() - quoted.len();
    let mut characters = quoted.char_indices();
    let (_, first) = characters.next()?;
    let (second, after) = characters.next()?;
    match first {
        '\\' => quoted
            .get(second + after.len_utf8()..)?
            .find('\'')
            .map(|at| start + second + after.len_utf8() + at + 1),
        _ if after == '\'' => Some(start + second + 1),
        _ => None,
    }
}

/// In an attribute every name in a string; elsewhere those that a format captures.
fn names_in(string: &str, in_attribute: bool) -> impl Iterator<Item = &str> {
    let pieces =
        string.split(move |c: char| if in_attribute { !c.is_alphanumeric() && c != '_' } else { c == '{' });
    pieces
        .skip(usize::from(!in_attribute))
        .map(|piece| piece.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default())
        .filter(|name| name.starts_with(is_name_start))
}

fn is_name_start(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let found: Vec<&str> = tokens(text).into_iter().map(|token| token.text).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn comments_and_the_words_of_strings_are_left_out() {
        check("a // b\n/* c\nd */ e \"f \\\" g\" h", &["a", "e", "h"]);
        check("r#\"a \" b\"# c br\"d\" b\"e\" f", &["c", "f"]);
        check(
            "0..MAX 1.5e3 '\"' b'\\'' '\\u{1F}' &'a str",
            &["0", "..", "MAX", "1", ".", "5e3", "'\"'", "b'\\''", "'\\u{1F}'", "&", "'a", "str"],
        );
        check("a::b -> c[d]", &["a", "::", "b", "->", "c", "[", "d", "]"]);
    }

    #[test]
    fn strings_name_code_in_attributes_and_in_formats() {
        check("x(\"{name:>4} {} of {OTHER}\")", &["x", "(", "name", "OTHER", ")"]);
        check("#[serde(with = \"a::b\")] \"c\"", &["#[", "serde", "(", "with", "=", "a", "b", ")", "]"]);
        assert!(
            tokens("#[a([b])] c")
                .iter()
                .map(|token| token.in_attribute)
                .eq([true, true, true, true, true, true, true, true, false])
        );
    }

    #[test]
    fn lines_are_counted_through_strings_and_comments() {
        let found = tokens("\"a\nb\" /* \n */ c\nd");
        assert_eq!(found.iter().map(|token| token.line).collect::<Vec<_>>(), [3, 4]);
    }
}
