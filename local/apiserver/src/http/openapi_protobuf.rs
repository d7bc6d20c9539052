//! How does the OpenAPI v2 document read in protobuf?
//!
//! kubectl asks for it in this form alone where it finds nothing in v3. What it needs is there: which kinds there are and
//! which fields they have; not the paths.

use serde_json::{Map, Value};

/// What clients call it when they ask, and what it is called in answers.
const ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
pub(super) const MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Whether a client wants it in this form.
pub(super) fn wanted(accept: &str) -> bool {
    accept.split(',').any(|media| media.split(';').next().is_some_and(|media| media.trim() == ASKED))
}

/// A v2 document, encoded.
pub(super) fn encode(document: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, document.get("swagger"));
    out.message(2, |info| {
        info.text(1, document.pointer("/info/title"));
        info.text(2, document.pointer("/info/version"));
    });
    out.message(8, |_| {});
    out.message(9, |definitions| named(definitions, 1, document.get("definitions")));
    out.0
}

fn schema(out: &mut Message, schema: &Map<String, Value>) {
    out.text(1, schema.get("$ref"));
    out.text(2, schema.get("format"));
    out.text(4, schema.get("description"));
    for required in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
        out.text(19, Some(required));
    }
    match schema.get("additionalProperties") {
        Some(Value::Object(inner)) => out.message(21, |item| item.message(1, |out| self::schema(out, inner))),
        Some(Value::Bool(true)) => out.message(21, |item| item.number(2, 1)),
        _ => {}
    }
    if let Some(kind) = schema.get("type") {
        out.message(22, |item| item.text(1, Some(kind)));
    }
    if let Some(Value::Object(inner)) = schema.get("items") {
        out.message(23, |item| item.message(1, |out| self::schema(out, inner)));
    }
    for inner in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        out.message(24, |out| inner.as_object().into_iter().for_each(|inner| self::schema(out, inner)));
    }
    if let Some(properties) = schema.get("properties") {
        out.message(25, |out| named(out, 1, Some(properties)));
    }
    for (name, value) in schema.iter().filter(|(name, _)| name.starts_with("x-")) {
        out.message(31, |out| {
            out.bytes(1, name.as_bytes());
            // JSON is YAML.
            out.message(2, |any| any.bytes(2, value.to_string().as_bytes()));
        });
    }
}

/// Schemas with names.
fn named(out: &mut Message, number: u64, schemas: Option<&Value>) {
    for (name, inner) in schemas.and_then(Value::as_object).into_iter().flatten() {
        out.message(number, |entry| {
            entry.bytes(1, name.as_bytes());
            entry.message(2, |out| inner.as_object().into_iter().for_each(|inner| schema(out, inner)));
        });
    }
}

/// A message as it grows.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        loop {
            let low = u8::try_from(number & 0x7f).unwrap_or_default();
            number >>= 7;
            self.0.push(if number == 0 { low } else { low | 0x80 });
            if number == 0 {
                return;
            }
        }
    }

    fn number(&mut self, field: u64, number: u64) {
        self.varint(field << 3);
        self.varint(number);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, field: u64, text: Option<&Value>) {
        if let Some(text) = text.and_then(Value::as_str) {
            self.bytes(field, text.as_bytes());
        }
    }

    fn message(&mut self, field: u64, fill: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_client_gets_this_form_only_if_it_asks() {
        assert!(wanted(ASKED));
        assert!(wanted(&format!("application/json, {ASKED};q=0.5")));
        assert!(!wanted("application/json") && !wanted("*/*") && !wanted(""));
    }

    #[test]
    fn numbers_are_written_seven_bits_at_a_time() {
        for (number, bytes) in
            [(0, &[0][..]), (127, &[127]), (128, &[0x80, 1]), (300, &[0xac, 2]), (1 << 14, &[0x80, 0x80, 1])]
        {
            let mut out = Message::default();
            out.varint(number);
            assert_eq!(out.0, bytes, "{number}");
        }
    }

    #[test]
    fn a_definition_is_a_named_schema() {
        let document = json!({"swagger": "2.0", "info": {"title": "t", "version": "v"},
            "definitions": {"a": {"type": "object", "x-y": 1}}});
        let schema =
            [&b"\xb2\x01\x08\x0a\x06object"[..], b"\xfa\x01\x0a\x0a\x03x-y\x12\x03\x12\x011"].concat();
        let mut want = b"\x0a\x032.0\x12\x06\x0a\x01t\x12\x01v\x42\x00".to_vec();
        let entry = [&b"\x0a\x01a\x12"[..], &[schema.len() as u8], &schema].concat();
        let definitions = [&b"\x0a"[..], &[entry.len() as u8], &entry].concat();
        want.extend([&b"\x4a"[..], &[definitions.len() as u8], &definitions].concat());
        assert_eq!(encode(&document), want);
    }
}
