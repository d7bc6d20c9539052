//! Which field of which message has which number?
//!
//! `fields.txt` says it for every kind that is served; it is read once, when the first such body comes.

use std::collections::HashMap;
use std::sync::LazyLock;

/// A message: a kind, or a part of one.
#[derive(Debug, Default)]
pub(super) struct Message {
    fields: Vec<(u64, Field)>,
}

/// A field of a message.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: Name,
    pub(super) of: Type,
    pub(super) many: Many,
    /// Whether a zero was meant, and is not just what was never set.
    pub(super) zero_is_shown: bool,
}

/// What a field is called in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    Own(&'static str),
    /// Nothing: the fields of its message are fields of the one around it.
    Inline,
}

/// How many values a field has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Many {
    One,
    List,
    /// By strings.
    Map,
}

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    String,
    Bytes,
    Bool,
    Int32,
    Int64,
    Double,
    /// A message, by its place among all.
    Message(usize),
    /// To the second.
    Time,
    /// To the microsecond.
    MicroTime,
    Quantity,
    IntOrString,
    /// JSON as it is.
    Raw,
    /// A list of texts in a message of its own.
    Strings,
    SchemaOrBool,
    SchemaOrArray,
}

impl Message {
    pub(super) fn field(&self, number: u64) -> Option<&Field> {
        let at = self.fields.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.fields.get(at).map(|(_, field)| field)
    }
}

/// The message of a kind.
pub(super) fn kind(api_version: &str, kind: &str) -> Option<&'static Message> {
    // The options of a deletion are of every version.
    let name = if kind == "DeleteOptions" {
        "meta:DeleteOptions".to_owned()
    } else {
        format!("{api_version}:{kind}")
    };
    ALL.names.get(name.as_str()).map(|at| message(*at))
}

/// A message by its place.
pub(super) fn message(at: usize) -> &'static Message {
    ALL.messages.get(at).unwrap_or(&NOTHING)
}

/// `JSONSchemaProps`, which two types are made of.
pub(super) fn schema() -> &'static Message {
    ALL.names.get("apiextensions.k8s.io/v1:JSONSchemaProps").map_or(&NOTHING, |at| message(*at))
}

static NOTHING: Message = Message { fields: Vec::new() };
static ALL: LazyLock<All> = LazyLock::new(|| All::read(include_str!("fields.txt")));

#[derive(Debug, Default)]
struct All {
    names: HashMap<&'static str, usize>,
    messages: Vec<Message>,
}

impl All {
    /// A line that makes no sense is passed over; a test sees to it that there is none.
    fn read(text: &'static str) -> All {
        let mut all = All::default();
        let lines = || text.lines().filter(|line| !line.starts_with('#'));
        for (at, name) in lines().filter(|line| !line.starts_with(' ')).enumerate() {
            all.names.insert(name, at);
        }
        for line in lines() {
            match line.strip_prefix(' ') {
                None => all.messages.push(Message::default()),
                Some(line) => {
                    if let (Some(field), Some(message)) = (all.field(line), all.messages.last_mut()) {
                        message.fields.push(field);
                    }
                }
            }
        }
        all
    }

    /// `number name type`
    fn field(&self, line: &'static str) -> Option<(u64, Field)> {
        let mut words = line.split(' ');
        let number = words.next()?.parse().ok()?;
        let name = match words.next()? {
            "-" => Name::Inline,
            name => Name::Own(name),
        };
        let of = words.next()?;
        let (of, zero_is_shown) = of.strip_suffix('?').map_or((of, false), |of| (of, true));
        let (of, many) = match (of.strip_prefix('['), of.strip_prefix('{')) {
            (Some(of), _) => (of, Many::List),
            (None, Some(of)) => (of, Many::Map),
            (None, None) => (of, Many::One),
        };
        Some((number, Field { name, of: self.of(of)?, many, zero_is_shown }))
    }

    fn of(&self, text: &str) -> Option<Type> {
        Some(match text {
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "bool" => Type::Bool,
            "int32" => Type::Int32,
            "int64" => Type::Int64,
            "double" => Type::Double,
            "time" => Type::Time,
            "microtime" => Type::MicroTime,
            "quantity" => Type::Quantity,
            "intorstring" => Type::IntOrString,
            "raw" => Type::Raw,
            "strings" => Type::Strings,
            "schema-or-bool" => Type::SchemaOrBool,
            "schema-or-array" => Type::SchemaOrArray,
            message => Type::Message(*self.names.get(message)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_understood() {
        let lines = include_str!("fields.txt").lines().filter(|line| line.starts_with(' '));
        for line in lines.clone() {
            assert!(ALL.field(line.trim_start()).is_some(), "{line:?}");
        }
        assert_eq!(ALL.messages.iter().map(|m| m.fields.len()).sum::<usize>(), lines.count());
        assert_eq!(ALL.messages.len(), ALL.names.len(), "no message is there twice");
        for (name, at) in &ALL.names {
            let numbers: Vec<u64> = ALL.messages[*at].fields.iter().map(|(number, _)| *number).collect();
            assert!(numbers.is_sorted_by(|a, b| a < b), "{name}: {numbers:?}");
        }
    }

    #[test]
    fn every_kind_that_can_be_written_has_a_message() {
        let registry = crate::resources::Registry::new(Default::default(), 0);
        let mut seen = 0;
        for (group, found) in registry.groups() {
            for version in &found.versions {
                for resource in version.resources.values().filter(|resource| resource.told().is_none()) {
                    let ids = &resource.ids;
                    let api_version = ids.api_version();
                    let message = kind(&api_version, &ids.kind);
                    let message = message.unwrap_or_else(|| panic!("{group} {api_version} {}", ids.kind));
                    assert!(message.fields.iter().any(|(_, field)| field.name == Name::Own("metadata")));
                    seen += 1;
                }
            }
        }
        assert!(seen > 30, "{seen} kinds");
    }
}
