//! JSON, YAML, base64 and checksums.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;
use sha2::{Digest, Sha256, Sha512};

use super::{Function, argument, exactly, text};
use crate::deploy::blueprint::template::value::{Heap, Value};
use crate::deploy::blueprint::template::{Outcome, fault};
use crate::yaml;

pub(super) const FUNCTIONS: &[Function] = &[
    exactly("toJson", 1, |heap, args| json(heap, args, true)),
    exactly("mustToJson", 1, |heap, args| json(heap, args, true)),
    exactly("toRawJson", 1, |heap, args| json(heap, args, false)),
    exactly("mustToRawJson", 1, |heap, args| json(heap, args, false)),
    exactly("toPrettyJson", 1, pretty_json),
    exactly("mustToPrettyJson", 1, pretty_json),
    exactly("fromJson", 1, from_json),
    exactly("mustFromJson", 1, from_json),
    exactly("toYaml", 1, |heap, args| {
        let exported = heap.export(argument(args, 0))?;
        match yaml::write(&exported) {
            Ok(text) => heap.text(text.trim_end_matches('\n')),
            Err(why) => fault(why),
        }
    }),
    exactly("fromYaml", 1, |heap, args| match yaml::read(&text(args, 0)?) {
        Ok(read) => heap.import(&read),
        Err(why) => fault(why),
    }),
    exactly("b64enc", 1, |heap, args| {
        let encoded = STANDARD.encode(text(args, 0)?.as_bytes());
        heap.text(encoded)
    }),
    exactly("b64dec", 1, |heap, args| match STANDARD.decode(text(args, 0)?.as_bytes()) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => heap.text(text),
            Err(_) => fault("what is encoded is no text"),
        },
        Err(why) => fault(format_args!("no base64: {why}")),
    }),
    exactly("sha256sum", 1, |heap, args| {
        let sum = hex::encode(Sha256::digest(text(args, 0)?.as_bytes()));
        heap.text(sum)
    }),
    exactly("sha512sum", 1, |heap, args| {
        let sum = hex::encode(Sha512::digest(text(args, 0)?.as_bytes()));
        heap.text(sum)
    }),
    exactly("adler32sum", 1, |heap, args| {
        let (mut low, mut high) = (1_u32, 0_u32);
        for byte in text(args, 0)?.bytes() {
            low = (low + u32::from(byte)) % 65_521;
            high = (high + low) % 65_521;
        }
        heap.text((high << 16 | low).to_string())
    }),
];

/// Go escapes what could end a script element, unless told not to.
fn json(heap: &mut Heap, args: &[Value], escapes: bool) -> Outcome<Value> {
    let exported = heap.export(argument(args, 0))?;
    let written = exported.to_string();
    heap.text(if escapes { html_escaped(&written) } else { written })
}

fn pretty_json(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    let exported = heap.export(argument(args, 0))?;
    match serde_json::to_string_pretty(&exported) {
        Ok(written) => heap.text(html_escaped(&written)),
        Err(why) => fault(why),
    }
}

/// These characters stand only within strings.
fn html_escaped(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for next in json.chars() {
        match next {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                escaped.push_str(&format!("\\u{:04x}", u32::from(next)))
            }
            next => escaped.push(next),
        }
    }
    escaped
}

fn from_json(heap: &mut Heap, args: &[Value]) -> Outcome<Value> {
    match serde_json::from_str::<Json>(&text(args, 0)?) {
        Ok(read) => heap.import(&read),
        Err(why) => fault(format_args!("no JSON: {why}")),
    }
}
