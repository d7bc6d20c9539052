//! How does a text of any length fit a field with a limit?

const CUT: &str = "… (cut)";

/// The beginning of a text, at most `max` characters, saying that it was cut where it was.
pub fn head(text: impl Into<String>, max: usize) -> String {
    let text = text.into();
    // There are never more characters than bytes, so most texts are not counted.
    if text.len() <= max || text.chars().count() <= max {
        return text;
    }
    let room = max.saturating_sub(CUT.chars().count());
    text.chars().take(room).chain(CUT.chars()).take(max).collect()
}

/// The end of a text, at most `max` bytes and whole characters, saying that it was cut where it was.
pub fn tail(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mut from = text.len() - max.saturating_sub(CUT.len() + 1);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    match text.get(from..) {
        Some(end) if CUT.len() < max => format!("{CUT}\n{end}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_fits_is_not_touched() {
        assert_eq!(head("abc", 3), "abc");
        assert_eq!(head("äöü", 3), "äöü");
        assert_eq!(tail("abc", 3), "abc");
    }

    #[test]
    fn what_was_cut_says_so() {
        assert_eq!(head("a".repeat(100), 10), format!("aaa{CUT}"));
        assert_eq!(tail(&format!("{}last", "x".repeat(100)), CUT.len() + 5), format!("{CUT}\nlast"));
    }

    proptest! {
        #[test]
        fn no_text_is_longer_than_its_limit(text in any::<String>(), max in 0usize..40) {
            prop_assert!(head(text.as_str(), max).chars().count() <= max);
            prop_assert!(tail(&text, max).len() <= max);
        }
    }
}
