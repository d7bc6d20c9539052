//! Which fields does a JSON document name more than once?
//!
//! The last one counts, and whoever sent the document is told. Almost none has any, so a look that costs little decides
//! whether to read it again: a document in which nothing is repeated has as many colons as it has fields.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// The paths of repeated fields in `text`, which was read as `value`.
pub(super) fn repeated(text: &[u8], value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if colons(text) != fields(value) {
        let seed = Place { path: String::new(), found: &mut found };
        // It was read once already.
        let _ = seed.deserialize(&mut serde_json::Deserializer::from_slice(text));
    }
    found
}

/// Colons outside of texts.
fn colons(text: &[u8]) -> usize {
    let (mut count, mut quoted, mut escaped) = (0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b':' if !quoted => count += 1,
            _ => {}
        }
    }
    count
}

fn fields(value: &Value) -> usize {
    match value {
        Value::Object(map) => map.len() + map.values().map(fields).sum::<usize>(),
        Value::Array(list) => list.iter().map(fields).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Somewhere in the document.
struct Place<'a> {
    path: String,
    found: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, document: D) -> Result<(), D::Error> {
        document.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let path = if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
            if !seen.insert(key) {
                self.found.push(path.clone());
            }
            map.next_value_seed(Place { path, found: self.found })?;
        }
        Ok(())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<(), S::Error> {
        let mut at = 0_usize;
        while list
            .next_element_seed(Place { path: format!("{}[{at}]", self.path), found: self.found })?
            .is_some()
        {
            at += 1;
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<(), D::Error> {
        inner.deserialize_any(IgnoredAny).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_fields_are_found_wherever_they_are() {
        for (text, want) in [
            (r#"{"a": 1, "b": {"a": 2}}"#, &[][..]),
            (r#"{"a": "x:y", "b": "\":", "c": [{"d": null}, {"d": true}]}"#, &[]),
            (r#"{"a": 1, "a": 2}"#, &["a"]),
            (r#"{"s": {"l": [{"k": 1}, {"k": 1, "k": -2.5}]}, "s": 3}"#, &["s.l[1].k", "s"]),
        ] {
            let value = serde_json::from_str(text).unwrap();
            assert_eq!(repeated(text.as_bytes(), &value), want, "{text}");
        }
    }
}
