//! May this text be parsed at all?
//!
//! The parser tries every kind of literal at every opening bracket, so its time doubles with each level; and it is not
//! interruptible. Brackets are therefore counted first, outside strings and comments, in one pass.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a ConfigMap may hold is a megabyte; the largest policies that people publish are a tenth of this.
pub(crate) const MAX_BYTES: usize = 256 * 1024;

/// Levels of brackets and braces. Ten take the parser some 30 ms, each further one twice as long; a rule with a
/// comprehension over literals has five.
pub(crate) const MAX_DEPTH: usize = 10;

/// Something wrong at a place of a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub struct Problem {
    /// The module's name: a path, or `configmap/key`.
    pub file: String,
    /// From 1; 0 where it is about the whole of it.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, message } = self;
        match line {
            0 => write!(f, "{file}: {message}"),
            _ => write!(f, "{file}:{line}:{column}: {message}"),
        }
    }
}

impl Problem {
    /// About a whole module.
    pub(crate) fn whole(file: &str, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line: 0, column: 0, message: message.into() }
    }
}

/// Where the scan is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum In {
    Code,
    Comment,
    Text,
    Raw,
}

/// # Errors
/// When it is too long, or nested too deeply.
pub(crate) fn scan(file: &str, text: &str) -> Result<(), Problem> {
    if text.len() > MAX_BYTES {
        let message = format!("it has {} bytes; a policy may have {MAX_BYTES}", text.len());
        return Err(Problem::whole(file, message));
    }
    let (mut line, mut column, mut depth) = (1_u32, 0_u32, 0_usize);
    let mut within = In::Code;
    let mut escaped = false;
    for character in text.chars() {
        column = column.saturating_add(1);
        within = match (within, character) {
            // Only raw strings go over lines; what is open at the end of another is the parser's to tell.
            (In::Raw, '\n') => In::Raw,
            (_, '\n') => In::Code,
            (In::Raw, '`') => In::Code,
            (In::Text, '"') if !escaped => In::Code,
            (In::Code, '#') => In::Comment,
            (In::Code, '"') => In::Text,
            (In::Code, '`') => In::Raw,
            (In::Code, '[' | '{') => {
                depth = depth.saturating_add(1);
                In::Code
            }
            (In::Code, ']' | '}') => {
                depth = depth.saturating_sub(1);
                In::Code
            }
            (same, _) => same,
        };
        escaped = within == In::Text && character == '\\' && !escaped;
        if depth > MAX_DEPTH {
            let message = format!("brackets and braces may be nested {MAX_DEPTH} deep");
            return Err(Problem { file: file.to_owned(), line, column, message });
        }
        if character == '\n' {
            (line, column) = (line.saturating_add(1), 0);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(depth: usize) -> String {
        format!("package p\n\nx := {}1{}\n", "[".repeat(depth), "]".repeat(depth))
    }

    #[test]
    fn nesting_beyond_the_limit_is_refused_with_its_place() {
        assert_eq!(scan("a.rego", &nested(MAX_DEPTH)), Ok(()));
        let problem = scan("a.rego", &nested(MAX_DEPTH + 1)).unwrap_err();
        assert_eq!(problem.to_string(), "a.rego:3:16: brackets and braces may be nested 10 deep");
    }

    #[test]
    fn brackets_in_strings_and_comments_are_text() {
        let many = "[{".repeat(20);
        for text in [
            format!("x := \"{many}\""),
            format!("x := `{many}\n{many}`"),
            format!("# {many}\nx := 1"),
            format!(r#"x := "\"{many}\\" # {many}"#),
        ] {
            assert_eq!(scan("f", &text), Ok(()), "{text}");
        }
        for text in [format!("x := \"\\\\\" {many}"), format!("# \"\n{many}"), format!("`\"` {many}")] {
            assert!(scan("f", &text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_string_that_never_ends_hides_nothing() {
        let many = "[".repeat(20);
        assert_eq!(scan("f", &format!("x := \"\n{many}")).unwrap_err().line, 2);
    }

    #[test]
    fn what_is_too_long_is_not_read() {
        assert!(scan("f", &" ".repeat(MAX_BYTES + 1)).unwrap_err().to_string().contains("bytes"));
    }
}
