//! The part of JSONPath that manifests use: `.a.b[0]['c.d'][*]`, with or without `$` and kubectl's braces.
//!
//! No filters, slices or recursive descent: nothing that a hostile expression could make expensive.

use serde_json::Value;

/// An expression that can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Field(String),
    Index(usize),
    All,
}

/// What is wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no path that is understood here: {problem} (write .a.b[0]['c'])")]
pub(super) struct BadPath {
    text: String,
    problem: &'static str,
}

impl Path {
    /// # Errors
    /// When the expression is malformed, or uses what is not supported.
    pub(super) fn parse(text: &str) -> Result<Self, BadPath> {
        let bad = |problem| BadPath { text: text.to_owned(), problem };
        let inner = text.trim();
        let inner = inner.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(inner);
        let mut rest = inner.strip_prefix('$').unwrap_or(inner);
        let mut parts = Vec::new();
        while !rest.is_empty() {
            if let Some(bracket) = rest.strip_prefix('[') {
                let (inside, after) =
                    bracket.split_once(']').ok_or_else(|| bad("a bracket is not closed"))?;
                let quoted =
                    |quote: char| inside.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
                parts.push(match (quoted('\''), quoted('"'), inside) {
                    (Some(field), _, _) | (_, Some(field), _) => Part::Field(field.to_owned()),
                    (_, _, "*") => Part::All,
                    (_, _, number) => Part::Index(
                        number
                            .parse()
                            .map_err(|_| bad("only numbers, * and quoted names stand in brackets"))?,
                    ),
                });
                rest = after;
                continue;
            }
            let name = rest.strip_prefix('.').unwrap_or(rest);
            if name.starts_with('.') {
                return Err(bad("recursive descent is not supported"));
            }
            let end = name.find(['.', '[']).unwrap_or(name.len());
            let (field, after) = name.split_at(end);
            match field {
                "" if after.is_empty() && parts.is_empty() => {}
                "" => return Err(bad("a name is missing")),
                "*" => parts.push(Part::All),
                field => parts.push(Part::Field(field.to_owned())),
            }
            rest = after;
        }
        Ok(Self(parts))
    }

    /// All that it leads to, in order.
    pub(super) fn find<'a>(&self, root: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![root];
        for part in &self.0 {
            found = found.into_iter().flat_map(|value| step(value, part)).collect();
        }
        found
    }
}

fn step<'a>(value: &'a Value, part: &Part) -> Vec<&'a Value> {
    match (part, value) {
        (Part::Field(field), Value::Object(fields)) => fields.get(field).into_iter().collect(),
        (Part::Index(index), Value::Array(items)) => items.get(*index).into_iter().collect(),
        (Part::All, Value::Array(items)) => items.iter().collect(),
        (Part::All, Value::Object(fields)) => fields.values().collect(),
        (Part::Field(_) | Part::Index(_) | Part::All, _) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn paths_are_written_in_many_ways() {
        let value = json!({"a": {"b": [{"c.d": 1}, {"c.d": 2}]}, "e": "x"});
        let find =
            |text: &str| Path::parse(text).unwrap().find(&value).into_iter().cloned().collect::<Vec<_>>();
        for text in [".a.b[0]['c.d']", "$.a.b[0][\"c.d\"]", "{.a.b[0]['c.d']}", "a.b[0]['c.d']"] {
            assert_eq!(find(text), [json!(1)], "{text}");
        }
        assert_eq!(find(".a.b[*]['c.d']"), [json!(1), json!(2)]);
        assert_eq!(find(".").first(), Some(&value));
        assert!(find(".a.missing.x").is_empty());
    }

    #[test]
    fn what_is_not_understood_is_told() {
        for text in ["$..a", ".a[", ".a[?(@.b)]", ".a[1:2]", ".a..b", ".a.[0]"] {
            assert!(Path::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,40}") {
            if let Ok(path) = Path::parse(&text) {
                path.find(&json!({"a": [1, {"b": 2}]}));
            }
        }
    }
}
