//! YAML that somebody else wrote, or a template rendered: read within a budget, and written as Go's tools do.

use serde_json::Value as Json;
use serde_saphyr::Options;
use serde_saphyr::options::AliasLimits;

/// Nodes of one document: 10,000 items, the most an Execution has, of a hundred nodes each.
const MAX_NODES: usize = 1_000_000;

/// Nodes that aliases repeat. Written documents share a few small blocks; nine aliases of nine aliases of … come to
/// billions.
const MAX_REPEATED: usize = 20_000;

/// Nested collections. The API server's own JSON may be nested 128 deep.
const MAX_DEPTH: usize = 64;

/// Why a text is no YAML, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub(crate) struct YamlError {
    pub(crate) line: usize,
    pub(crate) message: String,
}

pub(crate) fn read(text: &str) -> Result<Json, YamlError> {
    serde_saphyr::from_str_with_options(text, options(1)).map_err(|error| located(&error))
}

/// Every document of a text; those that say nothing are passed over.
pub(crate) fn read_all(text: &str, max_documents: usize) -> Result<Vec<Json>, YamlError> {
    serde_saphyr::from_multiple_with_options(text, options(max_documents)).map_err(|error| located(&error))
}

fn located(error: &serde_saphyr::Error) -> YamlError {
    let line = error.location().map_or(1, |location| usize::try_from(location.line()).unwrap_or(1));
    YamlError { line, message: error.without_snippet().to_string() }
}

pub(crate) fn write(value: &Json) -> Result<String, String> {
    // Long lines stay whole: whoever indents the text later need not know where it was folded.
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    serde_saphyr::to_string_with_options(value, options).map_err(|error| error.to_string())
}

fn options(max_documents: usize) -> Options {
    let mut alias_limits = AliasLimits::default();
    alias_limits.max_total_replayed_events = MAX_REPEATED;
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 2 * MAX_NODES,
            max_nodes: MAX_NODES,
            max_recorded_anchor_events: 10 * MAX_REPEATED,
            max_depth: MAX_DEPTH,
            max_documents: max_documents,
        },
        alias_limits: alias_limits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn what_is_written_looks_as_go_writes_it() {
        let value = json!({"a": {"list": ["x", {"k": 1, "l": true}], "none": {}, "empty": []}, "text": "one\ntwo\n", "nil": null});
        assert_eq!(
            write(&value).unwrap(),
            "a:\n  empty: []\n  list:\n  - x\n  - k: 1\n    l: true\n  none: {}\nnil: null\ntext: |\n  one\n  two\n"
        );
    }

    #[test]
    fn texts_that_look_like_something_else_stay_texts() {
        for text in [
            "yes",
            "no",
            "on",
            "true",
            "null",
            "~",
            "1",
            "1e3",
            "0x10",
            "1.5",
            "",
            " x",
            "- a",
            "a: b",
            "#",
            "{",
            "'",
            "\"",
            "2026-01-01",
            "%",
        ] {
            let value = json!({"k": text});
            assert_eq!(read(&write(&value).unwrap()), Ok(value), "{text:?}");
        }
    }

    #[test]
    fn a_mistake_is_told_with_its_line() {
        let error = read("a: 1\nb: [1,\n").unwrap_err();
        assert!(error.line >= 2, "{error}");
        assert!(read("a: 1\na: 2\n").unwrap_err().to_string().contains("duplicate"));
    }

    #[test]
    fn documents_are_read_one_by_one_and_empty_ones_passed_over() {
        assert_eq!(
            read_all("a: 1\n---\n# nothing\n---\nb: 2\n", 3).unwrap(),
            [json!({"a": 1}), json!({"b": 2})]
        );
        assert!(read_all("a: 1\n---\nb: 2\n---\nc: 3\n", 2).is_err());
    }

    #[test]
    fn a_billion_laughs_are_not_laughed() {
        let mut bomb = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
        for level in 1..12 {
            let before = format!("*a{}", level - 1);
            bomb.push_str(&format!("a{level}: &a{level} [{}]\n", [before.as_str(); 9].join(", ")));
        }
        assert!(read(&bomb).is_err());
        assert!(read(&"[".repeat(100_000)).is_err());
        assert!(read(&"- ".repeat(100_000)).is_err());
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(text in "\\PC{0,20}|[ \\n:a#'\"-]{0,12}", number in any::<i64>()) {
            let value = json!({"text": text, "list": [text, {"n": number, "t": text}]});
            prop_assert_eq!(read(&write(&value).unwrap()), Ok(value));
        }
    }
}
