//! Is a rule shallow enough to be read?
//!
//! The parser and the interpreter recurse, and what they build is dropped by recursion too, on whatever thread. So the
//! depth of a rule's tree is bounded before there is a tree: by its brackets and conditionals, which nest, and by its
//! operators and selections, which lean on one another (`a.b.c`, `1 + 2 + 3`).

/// cel-go stops at 250 calls of its grammar, some four for each bracket.
const MAX_NESTED: usize = 64;

/// Each is a level of the tree, for which the interpreter takes some KiB of stack. Rules of a thousand characters have a
/// dozen in a row.
const MAX_LEANING: usize = 100;

/// Why a rule is not read.
pub(super) fn problem(source: &str) -> Option<String> {
    let mut open = vec![Level::default()];
    let mut leaning = 0;
    let mut rest = source.chars();
    while let Some(next) = rest.next() {
        match next {
            '\'' | '"' => rest = behind_string(source, rest.as_str(), next).chars(),
            '/' if rest.as_str().starts_with('/') => {
                rest = rest
                    .as_str()
                    .find('\n')
                    .map_or("", |at| rest.as_str().get(at..).unwrap_or_default())
                    .chars();
            }
            '(' | '[' | '{' => open.push(Level::default()),
            ')' | ']' | '}' if open.len() > 1 => {
                let closed = open.pop().unwrap_or_default();
                leaning -= closed.leaning;
                // A call or an index leans on what is before it.
                leaning += count(&mut open);
            }
            // What stands side by side: the parser makes a balanced tree of `a && b && c`.
            ',' | '&' | '|' => {
                let ended = open.last_mut().map(std::mem::take).unwrap_or_default();
                leaning -= ended.leaning;
            }
            '?' => {
                if let Some(level) = open.last_mut() {
                    level.conditionals += 1;
                }
            }
            '.' | '+' | '-' | '*' | '/' | '%' | '!' | '<' | '>' | '=' => leaning += count(&mut open),
            _ => {}
        }
        let nested = open.len() + open.iter().map(|level| level.conditionals).sum::<usize>();
        if nested > MAX_NESTED {
            return Some(format!("expression is nested more than {MAX_NESTED} deep"));
        }
        if leaning > MAX_LEANING {
            return Some(format!("expression has more than {MAX_LEANING} operators and selections in a row"));
        }
    }
    None
}

/// What was seen within one pair of brackets since the last comma, `&&` or `||`.
#[derive(Default)]
struct Level {
    leaning: usize,
    conditionals: usize,
}

fn count(open: &mut [Level]) -> usize {
    let level = open.last_mut();
    level.map_or(0, |level| {
        level.leaning += 1;
        1
    })
}

/// What follows the string that `quote` began.
fn behind_string<'a>(source: &str, text: &'a str, quote: char) -> &'a str {
    let begun = source.len() - text.len() - quote.len_utf8();
    let raw = source.get(..begun).is_some_and(|before| before.ends_with(['r', 'R']));
    let doubled: String = std::iter::repeat_n(quote, 2).collect();
    let (mut inside, end) = match text.strip_prefix(&doubled) {
        Some(inside) => (inside, format!("{quote}{doubled}")),
        None => (text, quote.to_string()),
    };
    loop {
        let Some(at) = inside.find(['\\', quote]) else { return "" };
        let (_, found) = inside.split_at(at);
        if let Some(behind) = found.strip_prefix(end.as_str()) {
            return behind;
        }
        let mut skipped = found.chars();
        let escape = skipped.next() == Some('\\') && !raw;
        if escape {
            skipped.next();
        }
        inside = skipped.as_str();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nests_or_leans_too_far_is_named() {
        assert_eq!(problem(&"(".repeat(63)), None);
        assert!(problem(&"(".repeat(64)).unwrap().contains("nested"));
        assert!(problem(&"true ? 1 : ".repeat(64)).unwrap().contains("nested"));
        assert_eq!(problem(&format!("self{}", ".a".repeat(100))), None);
        assert!(problem(&format!("self{}", ".a".repeat(101))).unwrap().contains("in a row"));
        assert!(problem(&format!("self{}", "[0]".repeat(101))).unwrap().contains("in a row"));
        assert!(problem(&"!".repeat(101)).is_some());
    }

    #[test]
    fn what_stands_side_by_side_or_in_strings_is_neither() {
        assert_eq!(problem(&format!("[{}]", "a.b + 1, ".repeat(400))), None);
        assert_eq!(problem(&format!("{}true", "self.kind == 'a' || ".repeat(400))), None);
        let many = "(((((((((( ".repeat(50);
        for quoted in
            [format!("'{many}'"), format!("\"{many}\""), format!("'''{many}''\\''''"), format!("r'{many}\\'")]
        {
            assert_eq!(problem(&quoted), None, "{quoted}");
        }
        assert!(problem(&format!("'a' + {many}")).is_some());
        assert!(problem(&format!("'' + {many}")).is_some());
        assert!(problem(&format!("'a\\'b' + {many}")).is_some());
        assert_eq!(problem(&format!("true // {many}")), None);
        assert!(problem(&format!("true // x\n {many}")).is_some());
    }
}
