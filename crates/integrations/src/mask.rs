//! What of a text must nobody see? Everything a Secret holds, in any usual spelling, and whatever looks like a credential.
//!
//! Known values come first, the longest first, so that a value which contains another is masked whole. Then come shapes
//! that are credentials wherever they stand. Masking errs on the side of too much: a log with a word too few is still a
//! log.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use regex::{Regex, RegexBuilder};

use crate::github::address::escaped;

/// What stands where something was.
pub const MASKED: &str = "***";

/// Shorter values are words like `yes`, and masking them would leave nothing to read.
const MIN_CHARS: usize = 4;

/// Parts of a value, such as what follows `password=`, must be longer to be told from ordinary words.
const MIN_PART_CHARS: usize = 8;

/// A compiled mask may not grow without bound; a Secret is at most 1 MiB, and a Job rarely has many.
const MAX_VALUES: usize = 4096;
const MAX_REGEX_BYTES: usize = 64 * 1024 * 1024;

/// The values that one Job can print.
#[derive(Clone, Debug, Default)]
pub struct Mask {
    /// All values at once; `None` where there are none.
    values: Option<Regex>,
    /// There are values that could not be looked for: then nothing may be shown.
    blind: bool,
}

impl Mask {
    /// A mask for these values, as Secrets hold them.
    pub fn of<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let spellings: BTreeSet<String> = values.into_iter().flat_map(spellings).collect();
        if spellings.is_empty() {
            return Self::default();
        }
        if spellings.len() > MAX_VALUES {
            return Self { values: None, blind: true };
        }
        // Of alternatives that match at one place, the first wins.
        let mut sorted: Vec<&String> = spellings.iter().collect();
        sorted.sort_by_key(|value| std::cmp::Reverse(value.len()));
        let pattern = sorted.into_iter().map(|value| regex::escape(value)).collect::<Vec<_>>().join("|");
        let compiled =
            RegexBuilder::new(&pattern).size_limit(MAX_REGEX_BYTES).dfa_size_limit(MAX_REGEX_BYTES).build();
        match compiled {
            Ok(values) => Self { values: Some(values), blind: false },
            Err(_) => Self { values: None, blind: true },
        }
    }

    /// The text without what must not be seen.
    pub fn apply(&self, text: &str) -> String {
        if self.blind {
            return format!("{MASKED} (more secret values than can be looked for)");
        }
        let mut text = Cow::Borrowed(text);
        if let Some(values) = &self.values {
            text = Cow::Owned(values.replace_all(&text, MASKED).into_owned());
        }
        for shape in SHAPES.iter() {
            if let Cow::Owned(masked) = shape.pattern.replace_all(&text, shape.instead) {
                text = Cow::Owned(masked);
            }
        }
        text.into_owned()
    }
}

/// Every way in which a value may be printed.
fn spellings(value: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let trimmed = value.trim_ascii();
    for bytes in [value, trimmed] {
        found.extend(
            [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD].map(|engine| engine.encode(bytes)),
        );
    }
    // Inside a longer text that was encoded, as `user:password` is, a value begins at any of three places.
    for shift in 0..3_usize {
        let padded: Vec<u8> = std::iter::repeat_n(0, shift).chain(trimmed.iter().copied()).collect();
        for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            let encoded = engine.encode(&padded);
            // The first and the last characters also depend on what stands beside the value.
            let first = if shift == 0 { 0 } else { shift + 1 };
            let whole = encoded.get(first..encoded.len().saturating_sub(1)).unwrap_or_default();
            found.extend((whole.len() >= MIN_PART_CHARS).then(|| whole.to_owned()));
        }
    }
    if let Ok(text) = std::str::from_utf8(value) {
        found.push(text.trim().to_owned());
        for line in text.lines().map(str::trim) {
            found.push(line.to_owned());
            found.extend(part(line));
        }
        found.push(escaped(text.trim()));
    }
    found.retain(|spelling| spelling.chars().count() >= MIN_CHARS);
    found
}

/// What follows the key of `key=value` and `"key": "value"`.
fn part(line: &str) -> Option<String> {
    let (_, value) = line.split_once(['=', ':'])?;
    let value = value.trim().trim_end_matches([',', ';']).trim_matches(['"', '\'']);
    (value.chars().count() >= MIN_PART_CHARS).then(|| value.to_owned())
}

/// What a credential looks like, whoever issued it.
struct Shape {
    pattern: Regex,
    instead: &'static str,
}

static SHAPES: LazyLock<Vec<Shape>> = LazyLock::new(|| {
    let shapes = [
        // Keys first: what is inside them looks like other things. One without its end goes on to the end.
        (r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)", MASKED),
        (r"(?i)\b((?:proxy-)?authorization\s*[:=]\s*)[^\r\n]+", "${1}***"),
        (r#"(?i)\b(x-(?:api-key|auth-token|vault-token)\s*[:=]\s*)[^\s'",;]+"#, "${1}***"),
        (r"(?i)\b([a-z][a-z0-9+.-]*://)[^/\s:@]*:[^/\s@]+@", "${1}***@"),
        (r"(?i)\b([a-z][a-z0-9+.-]*://)(?:x-access-token|oauth2|ghp_\w+|ghs_\w+)@", "${1}***@"),
        (r"\bgh[a-z]_[A-Za-z0-9]{16,}", MASKED),
        (r"\bgithub_pat_[A-Za-z0-9_]{16,}", MASKED),
        (r"\bglpat-[A-Za-z0-9_-]{16,}", MASKED),
        (r"\b(?:AKIA|ASIA|AGPA|AIDA|AROA)[A-Z0-9]{12,}\b", MASKED),
        (r"(?i)\b(aws_(?:secret_access_key|session_token)\s*[:=]\s*)\S+", "${1}***"),
        (r"\bxox[a-z]-[A-Za-z0-9-]{10,}", MASKED),
        (r"\bsk_(?:live|test)_[A-Za-z0-9]{10,}", MASKED),
        (r"\bhv[sbr]\.[A-Za-z0-9_-]{20,}", MASKED),
        (r"\bAIza[A-Za-z0-9_-]{30,}", MASKED),
        (r"\bey[A-Za-z0-9_-]{8,}\.ey[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*", MASKED),
    ];
    // Each is known to compile, as a test shows; one that did not would be left out rather than stop a run.
    shapes
        .into_iter()
        .filter_map(|(pattern, instead)| Some(Shape { pattern: Regex::new(pattern).ok()?, instead }))
        .collect()
});

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PASSWORD: &str = "not-a-real-password-42";

    fn masked(values: &[&str], text: &str) -> String {
        Mask::of(values.iter().map(|value| value.as_bytes())).apply(text)
    }

    #[test]
    fn a_value_is_masked_in_every_spelling() {
        let url = PASSWORD.replace('-', "%2D");
        assert_eq!(url.matches("%2D").count(), 4);
        for text in [
            format!("the password is {PASSWORD}!"),
            format!("in base64 {}", STANDARD.encode(PASSWORD)),
            format!("with a newline {}", STANDARD.encode(format!("{PASSWORD}\n"))),
            format!("for URLs {}", URL_SAFE_NO_PAD.encode(PASSWORD)),
            format!("with a user {}", STANDARD.encode(format!("user:{PASSWORD}"))),
            format!("with another {}", STANDARD.encode(format!("users:{PASSWORD}\n"))),
            format!("with a third {}", STANDARD.encode(format!("usersx:{PASSWORD}and more"))),
        ] {
            let shown = masked(&[&format!("{PASSWORD}\n")], &text);
            assert!(shown.contains(MASKED) && !shown.contains(PASSWORD), "{shown}");
            let mut words = shown.split_whitespace().flat_map(|word| word.split(MASKED));
            assert!(words.all(|word| word.len() < 20), "{text} became {shown}");
        }
        assert_eq!(masked(&["a b/fake+value"], "x=a%20b%2Ffake%2Bvalue"), "x=***");
    }

    #[test]
    fn values_of_many_lines_are_masked_line_by_line_and_by_their_parts() {
        let file = "[default]\nuser = not-secret-user\npassword = \"entirely-made-up\"\n";
        assert_eq!(masked(&[file], "got entirely-made-up"), "got ***");
        assert_eq!(masked(&[file], "line: password = \"entirely-made-up\""), "line: ***");
        assert_eq!(masked(&["first line\nsecond line"], r"first line\nsecond line"), r"***\n***");
    }

    #[test]
    fn the_longest_value_wins_and_short_words_stay() {
        assert_eq!(masked(&["fake", "fake-and-longer"], "fake-and-longer fake"), "*** ***");
        assert_eq!(masked(&["yes", ""], "yes, it is there"), "yes, it is there");
    }

    #[test]
    fn credentials_are_masked_by_their_shape_whoever_knows_them() {
        assert_eq!(SHAPES.len(), 15, "every shape compiles");
        let fake = "0123456789abcdefghij0123456789abcdef";
        for token in [
            format!("ghp_{fake}"),
            format!("ghs_{fake}"),
            format!("github_pat_{fake}_{fake}"),
            format!("AKIA{}", "FAKE".repeat(4)),
            format!("xoxb-{fake}"),
            format!("ey{fake}.ey{fake}.{fake}"),
            format!("-----BEGIN RSA PRIVATE KEY-----\n{fake}\n{fake}\n-----END RSA PRIVATE KEY-----"),
            format!("-----BEGIN PRIVATE KEY-----\n{fake}\n{fake} and no end"),
        ] {
            assert_eq!(masked(&[], &format!("a {token}")), "a ***", "{token}");
        }
        for (text, shown) in [
            ("Authorization: Bearer made-up here", "Authorization: ***"),
            ("> authorization=Basic bWFkZTp1cA==", "> authorization=***"),
            ("clone https://user:made-up@example.com/x.git", "clone https://***@example.com/x.git"),
            ("postgres://:made-up@db:5432/x", "postgres://***@db:5432/x"),
            ("https://x-access-token@example.com", "https://***@example.com"),
            ("AWS_SECRET_ACCESS_KEY=made/up", "AWS_SECRET_ACCESS_KEY=***"),
            (
                "https://example.com/a:b@c and mail me@example.com",
                "https://example.com/a:b@c and mail me@example.com",
            ),
            ("nothing to see: 12:30, ghp_short", "nothing to see: 12:30, ghp_short"),
        ] {
            assert_eq!(masked(&[], text), shown);
        }
    }

    #[test]
    fn when_not_everything_can_be_looked_for_nothing_is_shown() {
        let many: Vec<String> = (0..MAX_VALUES).map(|n| format!("made-up-value-{n}")).collect();
        let values: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(masked(&values, "text").starts_with(MASKED));
    }

    proptest! {
        #[test]
        fn no_value_survives_wherever_it_stands(value in "[ -~]{4,40}", before in any::<String>(), after in any::<String>()) {
            prop_assume!(value.trim().len() >= MIN_CHARS && !MASKED.contains(value.trim()));
            // What is left and right of a mask may spell the value anew; that is not the value being shown.
            prop_assume!(!before.contains(value.trim()) && !after.contains(value.trim()));
            let shown = masked(&[&value], &format!("{before}\u{1}{value}\u{1}{after}"));
            let there = shown.contains(&format!("\u{1}{}", value));
            prop_assert!(!there, "{shown:?}");
        }
    }
}
