//! Which objects does a label or field selector choose?

use std::sync::Arc;

use serde_json::Value;

use crate::store::{Labels, Object};

/// A selector longer than this chooses nothing a person or a controller would write.
const MAX_REQUIREMENTS: usize = 1_000;

/// `labelSelector=` and `fieldSelector=` together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) labels: Vec<Requirement>,
    pub(crate) fields: Vec<FieldRequirement>,
}

/// One demand on labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Requirement {
    Exists(String),
    Absent(String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Greater(String, i64),
    Less(String, i64),
}

/// One demand on a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldRequirement {
    pub(crate) field: String,
    pub(crate) value: String,
    pub(crate) equal: bool,
}

impl Selector {
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Object) -> bool {
        self.labels.iter().all(|r| r.matches(&object.meta.labels))
            && self.fields.iter().all(|r| r.matches(object))
    }

    /// The one name the fields demand, if they do: a list of it is a get.
    pub(crate) fn exact_name(&self) -> Option<&str> {
        self.fields.iter().find(|f| f.equal && f.field == "metadata.name").map(|f| f.value.as_str())
    }
}

impl Requirement {
    pub(crate) fn matches(&self, labels: &Labels) -> bool {
        let number = |key: &String| labels.get(key).and_then(|v| v.parse::<i64>().ok());
        let among = |values: &[String], value: &str| values.iter().any(|known| known == value);
        match self {
            Requirement::Exists(key) => labels.get(key).is_some(),
            Requirement::Absent(key) => labels.get(key).is_none(),
            Requirement::In(key, values) => labels.get(key).is_some_and(|v| among(values, v)),
            Requirement::NotIn(key, values) => labels.get(key).is_none_or(|v| !among(values, v)),
            Requirement::Greater(key, bound) => number(key).is_some_and(|v| v > *bound),
            Requirement::Less(key, bound) => number(key).is_some_and(|v| v < *bound),
        }
    }
}

impl FieldRequirement {
    fn matches(&self, object: &Object) -> bool {
        let value = match self.field.as_str() {
            "metadata.name" => object.name(),
            "metadata.namespace" => object.namespace(),
            field => {
                let known = object.meta.fields.iter().find(|(label, _)| &**label == field);
                known.map_or("", |(_, value)| value.as_str())
            }
        };
        (value == self.value) == self.equal
    }
}

/// Reads `fieldSelector=`: `a=b,c!=d`, for the fields in `known`.
pub(crate) fn parse_fields(text: &str, known: &[Arc<str>]) -> Result<Vec<FieldRequirement>, String> {
    let mut out = Vec::new();
    for term in text.split(',').filter(|t| !t.is_empty()) {
        let (field, value, equal) = if let Some((field, value)) = term.split_once("!=") {
            (field, value, false)
        } else if let Some((field, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
            (field, value, true)
        } else {
            return Err(format!("invalid selector: '{text}'; can't understand '{term}'"));
        };
        let is_known =
            matches!(field, "metadata.name" | "metadata.namespace") || known.iter().any(|k| &**k == field);
        if !is_known {
            return Err(format!("field label not supported: {field}"));
        }
        out.push(FieldRequirement { field: field.to_owned(), value: value.to_owned(), equal });
    }
    Ok(out)
}

/// Reads `labelSelector=`: equality and set forms.
pub(crate) fn parse_labels(text: &str) -> Result<Vec<Requirement>, String> {
    let tokens = tokens(text);
    let mut parser = Parser { tokens: &tokens, at: 0 };
    let mut out = Vec::new();
    if tokens.is_empty() {
        return Ok(out);
    }
    loop {
        out.push(parser.requirement().map_err(|e| format!("unable to parse requirement: {e}"))?);
        if out.len() > MAX_REQUIREMENTS {
            return Err(format!("more than {MAX_REQUIREMENTS} requirements"));
        }
        match parser.next() {
            None => return Ok(out),
            Some(Token::Sign(",")) => {}
            Some(other) => return Err(format!("found {other}, expected: ',' or 'end of string'")),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Sign(&'static str),
}

impl std::fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Token::Word(word) => write!(f, "'{word}'"),
            Token::Sign(sign) => write!(f, "'{sign}'"),
        }
    }
}

const SIGNS: [&str; 9] = ["!=", "==", "=", "!", "(", ")", ",", "<", ">"];

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(&sign) = SIGNS.iter().find(|s| rest.starts_with(**s)) {
            out.push(Token::Sign(sign));
            rest = rest.get(sign.len()..).unwrap_or_default();
        } else {
            let end = rest.find(|c: char| c.is_whitespace() || "!=(),<>".contains(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            out.push(Token::Word(word));
            rest = after;
        }
        rest = rest.trim_start();
    }
    out
}

struct Parser<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Option<&'a Token<'a>> {
        let token = self.tokens.get(self.at);
        self.at += 1;
        token
    }

    fn peek(&self) -> Option<&'a Token<'a>> {
        self.tokens.get(self.at)
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        if self.peek() == Some(&Token::Sign("!")) {
            self.at += 1;
            return Ok(Requirement::Absent(self.key()?));
        }
        let key = self.key()?;
        match self.peek() {
            None | Some(Token::Sign(",")) => return Ok(Requirement::Exists(key)),
            Some(_) => {}
        }
        match self.next() {
            Some(Token::Sign("=" | "==")) => Ok(Requirement::In(key, vec![self.value()?])),
            Some(Token::Sign("!=")) => Ok(Requirement::NotIn(key, vec![self.value()?])),
            Some(Token::Sign(">")) => Ok(Requirement::Greater(key, self.number()?)),
            Some(Token::Sign("<")) => Ok(Requirement::Less(key, self.number()?)),
            Some(Token::Word("in")) => Ok(Requirement::In(key, self.values()?)),
            Some(Token::Word("notin")) => Ok(Requirement::NotIn(key, self.values()?)),
            Some(other) => Err(format!("found {other}, expected: in, notin, =, ==, !=, >, <")),
            None => Err("found end of string, expected an operator".to_owned()),
        }
    }

    fn key(&mut self) -> Result<String, String> {
        match self.next() {
            Some(Token::Word(word)) if is_label_key(word) => Ok((*word).to_owned()),
            Some(other) => Err(format!("found {other}, expected: identifier")),
            None => Err("found end of string, expected: identifier".to_owned()),
        }
    }

    /// One value; nothing at all is the empty value.
    fn value(&mut self) -> Result<String, String> {
        match self.peek() {
            None | Some(Token::Sign(",")) => Ok(String::new()),
            Some(Token::Word(word)) if is_label_value(word) => {
                self.at += 1;
                Ok((*word).to_owned())
            }
            Some(other) => Err(format!("found {other}, expected: identifier")),
        }
    }

    fn number(&mut self) -> Result<i64, String> {
        let value = self.value()?;
        value
            .parse()
            .map_err(|_| format!("for 'Gt', 'Lt' operators, the value must be an integer, not {value:?}"))
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        if self.next() != Some(&Token::Sign("(")) {
            return Err("expected: '('".to_owned());
        }
        let mut out = Vec::new();
        loop {
            match self.next() {
                Some(Token::Word(word)) if is_label_value(word) => out.push((*word).to_owned()),
                Some(Token::Sign(",")) => {
                    out.push(String::new());
                    continue;
                }
                Some(Token::Sign(")")) => {
                    out.push(String::new());
                    return Ok(out);
                }
                Some(other) => return Err(format!("found {other}, expected: ',', ')' or identifier")),
                None => return Err("found end of string, expected: ')'".to_owned()),
            }
            match self.next() {
                Some(Token::Sign(",")) => {}
                Some(Token::Sign(")")) => return Ok(out),
                Some(other) => return Err(format!("found {other}, expected: ',' or ')'")),
                None => return Err("found end of string, expected: ')'".to_owned()),
            }
        }
    }
}

fn is_label_key(key: &str) -> bool {
    let name = match key.split_once('/') {
        Some((prefix, name)) => {
            let dns = !prefix.is_empty()
                && prefix.len() <= 253
                && prefix.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b));
            if !dns {
                return false;
            }
            name
        }
        None => key,
    };
    !name.is_empty() && is_label_value(name)
}

fn is_label_value(value: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let edge = |b: Option<&u8>| b.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = value.as_bytes();
    bytes.len() <= 63 && bytes.iter().all(|&b| inner(b)) && edge(bytes.first()) && edge(bytes.last())
}

/// Whether a LabelSelector as objects carry it chooses these labels. An empty one chooses all, an absent one nothing.
pub(crate) fn selects(selector: &Value, labels: &Value) -> bool {
    let Some(selector) = selector.as_object() else { return false };
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let equal = selector.get("matchLabels").and_then(Value::as_object);
    let equal = equal.into_iter().flatten().all(|(key, value)| label(key) == value.as_str());
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    equal
        && expressions.into_iter().flatten().all(|expression| {
            let text = |key: &str| expression.get(key).and_then(Value::as_str).unwrap_or_default();
            let value = label(text("key"));
            let values = expression.get("values").and_then(Value::as_array);
            let listed =
                values.is_some_and(|values| values.iter().any(|v| value.is_some() && v.as_str() == value));
            match text("operator") {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

/// A LabelSelector as `kubectl` types it.
pub(crate) fn text(selector: &Value) -> String {
    let equal = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let equal = equal.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    let expressions = selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
    let others = expressions.map(|expression| {
        let text = |key: &str| expression.get(key).and_then(Value::as_str).unwrap_or_default();
        let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
        let values = values.filter_map(Value::as_str).collect::<Vec<_>>().join(",");
        match text("operator") {
            "In" => format!("{} in ({values})", text("key")),
            "NotIn" => format!("{} notin ({values})", text("key")),
            "DoesNotExist" => format!("!{}", text("key")),
            _ => text("key").to_owned(),
        }
    });
    equal.chain(others).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(selector: &str, labels: &[(&str, &str)]) -> Result<bool, String> {
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Ok(parse_labels(selector)?.iter().all(|r| r.matches(&labels)))
    }

    #[test]
    fn every_operator_means_what_kubernetes_means() {
        let labels = [("e", "p"), ("n", "5")];
        for (selector, want) in [
            ("", true),
            ("e=p", true),
            ("e==p", true),
            ("e!=p", false),
            ("x!=p", true),
            ("e", true),
            ("!e", false),
            ("!x", true),
            ("e in (p,q)", true),
            ("e in (q)", false),
            ("e notin (q), n", true),
            ("x notin (q)", true),
            ("n>4", true),
            ("n<5", false),
            ("e>4", false),
            ("x=", false),
            ("e = p , n = 5", true),
            ("example.com/e=p", false),
        ] {
            assert_eq!(chosen(selector, &labels), Ok(want), "{selector}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for selector in
            ["==bad", "a b", "a in", "a in (", "a in (b", "e=p,,x", "e=,=", "(", "a=b=c", "-x", "a>b", "e=p,"]
        {
            assert!(parse_labels(selector).is_err(), "{selector}");
        }
    }

    #[test]
    fn only_known_fields_can_be_asked_for() {
        assert!(parse_fields("metadata.name=a,spec.x!=b", &["spec.x".into()]).is_ok());
        assert!(parse_fields("nope=b", &[]).is_err());
        assert!(parse_fields("metadata.name", &[]).is_err());
    }
}
