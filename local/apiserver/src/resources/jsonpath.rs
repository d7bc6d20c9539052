//! What does a printer column's JSON path find?
//!
//! The part of Kubernetes' JSONPath that definitions use: `.a.b`, `['a']`, `[0]`, `[*]` and
//! `[?(@.type=="Ready")]`.

use serde_json::Value;

/// A path longer than this is not one a person wrote.
const MAX_STEPS: usize = 64;

/// A path, read once.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    All,
    /// Items whose path equals a literal (or, if not `equal`, differs).
    Where {
        path: JsonPath,
        equal: bool,
        literal: Value,
    },
}

impl JsonPath {
    /// Reads a path; `None` if it is not of the kind above.
    pub(crate) fn parse(text: &str) -> Option<JsonPath> {
        let mut rest = text.trim().trim_start_matches('$');
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if steps.len() == MAX_STEPS {
                return None;
            }
            rest = if let Some(inner) = rest.strip_prefix('[') {
                let end = closing(inner)?;
                let (inside, after) = inner.split_at(end);
                steps.push(bracket(inside.trim())?);
                after.strip_prefix(']')?
            } else {
                let (name, after) = field(rest.strip_prefix('.').unwrap_or(rest));
                match name.as_str() {
                    "*" => steps.push(Step::All),
                    // Only a bracket may follow a dot directly.
                    "" if after.starts_with('[') => {}
                    "" => return None,
                    _ => steps.push(Step::Field(name)),
                }
                after
            };
        }
        Some(JsonPath { steps })
    }

    /// Everything the path leads to.
    pub(crate) fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![value];
        for step in &self.steps {
            found = found.into_iter().flat_map(|at| step.take(at)).collect();
        }
        found
    }
}

impl Step {
    fn take<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Step::Field(name), Value::Object(map)) => map.get(name).into_iter().collect(),
            (Step::Index(at), Value::Array(list)) => {
                let at = if *at < 0 { *at + list.len() as i64 } else { *at };
                usize::try_from(at).ok().and_then(|at| list.get(at)).into_iter().collect()
            }
            (Step::All, Value::Array(list)) => list.iter().collect(),
            (Step::All, Value::Object(map)) => map.values().collect(),
            (Step::Where { path, equal, literal }, Value::Array(list)) => {
                list.iter().filter(|item| path.find(item).contains(&literal) == *equal).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// A name up to the next `.` or `[`; a backslash takes the next character as it is.
fn field(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            '.' | '[' => return (name, text.get(at..).unwrap_or_default()),
            c => name.push(c),
        }
    }
    (name, "")
}

/// Where the bracket that is open closes, quotes aside.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            (None, ']') => return Some(at),
            _ => {}
        }
    }
    None
}

fn bracket(inside: &str) -> Option<Step> {
    if inside == "*" {
        return Some(Step::All);
    }
    if let Ok(at) = inside.parse() {
        return Some(Step::Index(at));
    }
    if let Some(name) = quoted(inside) {
        return Some(Step::Field(name.replace("\\.", ".")));
    }
    let test = inside.strip_prefix("?(")?.strip_suffix(')')?;
    let (left, right, equal) = match test.split_once("==") {
        Some((left, right)) => (left, right, true),
        None => test.split_once("!=").map(|(left, right)| (left, right, false))?,
    };
    let path = left.trim().strip_prefix('@')?;
    // One filter inside another would make reading a path recursive for no one's benefit.
    if path.contains('?') {
        return None;
    }
    let right = right.trim();
    let literal = match quoted(right) {
        Some(text) => text.into(),
        None => serde_json::from_str(right).ok()?,
    };
    Some(Step::Where { path: JsonPath::parse(path)?, equal, literal })
}

fn quoted(text: &str) -> Option<&str> {
    ['\'', '"'].iter().find_map(|q| text.strip_prefix(*q)?.strip_suffix(*q))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_where_kubernetes_paths_lead() {
        let value = json!({
            "spec": {"size": 3, "list": [{"n": 1}, {"n": 2}]},
            "metadata": {"labels": {"a.b/c": "x"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]},
        });
        for (path, want) in [
            (".spec.size", vec![json!(3)]),
            ("$.spec.size", vec![json!(3)]),
            (".spec.list[1].n", vec![json!(2)]),
            (".spec.list[-1].n", vec![json!(2)]),
            (".spec.list[*].n", vec![json!(1), json!(2)]),
            (r".metadata.labels.a\.b/c", vec![json!("x")]),
            (r".metadata.labels['a\.b/c']", vec![json!("x")]),
            (r#".status.conditions[?(@.type=="Ready")].status"#, vec![json!("True")]),
            (".status.conditions[?(@.type!='Ready')].status", vec![json!("False")]),
            (".nothing.here", vec![]),
        ] {
            let found: Vec<Value> =
                JsonPath::parse(path).unwrap().find(&value).into_iter().cloned().collect();
            assert_eq!(found, want, "{path}");
        }
    }

    #[test]
    fn nonsense_is_no_path() {
        for path in ["[", "a[", "[x]", "[?(@.a)]", "[?(@.a==)]", "[?(b==1)]", "..", &".a".repeat(100)] {
            assert_eq!(JsonPath::parse(path), None, "{path}");
        }
    }
}
