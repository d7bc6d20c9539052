//! What does a body in Kubernetes' protobuf form say, in JSON?
//!
//! Clients that know their types at compile time (kubectl's `create`, Go controllers) may send `k8s\0`, then a
//! `runtime.Unknown` that names a kind, then the object as a message of that kind. Answers are never sent like that.
//!
//! ```text
//! k8s\0 ─▶ Unknown { apiVersion, kind, raw } ─▶ fields of that kind, by number ─▶ the same object in JSON
//! ```
//!
//! Read as Go does: unknown numbers are skipped, the last of several values counts, halves of a message are joined.

mod fields;
mod wire;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use serde_json::{Map, Number, Value};

use fields::{Field, Many, Message, Name, Type};
use wire::{Reader, Wire};

/// The media type.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// How every body begins.
const MAGIC: &[u8] = b"k8s\0";

/// Why a body cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtobufError {
    #[error("it does not begin with the four bytes of Kubernetes' protobuf form")]
    NoMagic,
    #[error("the message ends too early")]
    CutOff,
    #[error("a number is longer than ten bytes")]
    LongNumber,
    #[error("wire type {0} is not used here")]
    WireType(u64),
    #[error("field {0:?} has the wrong wire type")]
    WrongType(String),
    #[error("field {0:?} is not UTF-8")]
    NotUtf8(String),
    #[error("field {0:?} does not hold what it should")]
    Content(String),
    #[error("messages are nested deeper than {0} levels")]
    TooDeep(usize),
    #[error("the content encoding {0:?} is not known")]
    Encoding(String),
    #[error("no kind {kind:?} is known in version {api_version:?}")]
    UnknownKind { api_version: String, kind: String },
}

/// The object in a body, as if it had been sent in JSON.
pub(crate) fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let envelope = Envelope::read(body.strip_prefix(MAGIC).ok_or(ProtobufError::NoMagic)?)?;
    let Envelope { api_version, kind, raw } = envelope;
    let message = fields::kind(&api_version, &kind)
        .ok_or_else(|| ProtobufError::UnknownKind { api_version: api_version.clone(), kind: kind.clone() })?;
    let mut object = Map::new();
    object.insert("kind".into(), kind.into());
    object.insert("apiVersion".into(), api_version.into());
    read(message, raw, &mut object, 1)?;
    Ok(Value::Object(object))
}

/// `runtime.Unknown`, whose numbers are the one thing that must be known beforehand.
#[derive(Debug, Default)]
struct Envelope<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn read(bytes: &'a [u8]) -> Result<Envelope<'a>, ProtobufError> {
        let mut envelope = Envelope::default();
        for field in Reader::new(bytes) {
            match field? {
                (1, Wire::Bytes(types)) => {
                    for field in Reader::new(types) {
                        match field? {
                            (1, Wire::Bytes(text)) => envelope.api_version = utf8("apiVersion", text)?,
                            (2, Wire::Bytes(text)) => envelope.kind = utf8("kind", text)?,
                            _ => {}
                        }
                    }
                }
                (2, Wire::Bytes(raw)) => envelope.raw = raw,
                (3, Wire::Bytes(b"")) => {}
                (3, Wire::Bytes(encoding)) => {
                    return Err(ProtobufError::Encoding(utf8("contentEncoding", encoding)?));
                }
                _ => {}
            }
        }
        Ok(envelope)
    }
}

/// Adds a message's fields to an object.
fn read(
    message: &Message,
    bytes: &[u8],
    into: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), ProtobufError> {
    if depth > super::body::MAX_DEPTH {
        return Err(ProtobufError::TooDeep(super::body::MAX_DEPTH));
    }
    for found in Reader::new(bytes) {
        let (number, wire) = found?;
        let Some(field) = message.field(number) else { continue };
        let name = match (&field.name, field.of) {
            (Name::Inline, Type::Message(inner)) => {
                read(fields::message(inner), wire.bytes("")?, into, depth + 1)?;
                continue;
            }
            (Name::Inline, _) => continue,
            (Name::Own(name), _) => *name,
        };
        match field.many {
            Many::One => one(field, name, wire, into, depth)?,
            Many::List => {
                let list = into.entry(name).or_insert_with(|| Value::Array(Vec::new()));
                let Value::Array(list) = list else { continue };
                // Numbers may also come packed: one after the other in one piece.
                if let (Wire::Bytes(packed), Type::Int32 | Type::Int64 | Type::Bool) = (&wire, field.of) {
                    for number in Reader::numbers(packed) {
                        list.push(
                            value(field.of, name, Wire::Number(number?), None, depth)?.unwrap_or_default(),
                        );
                    }
                } else {
                    list.push(value(field.of, name, wire, None, depth)?.unwrap_or_default());
                }
            }
            Many::Map => {
                let (key, entry) = entry(field, name, wire.bytes(name)?, depth)?;
                let map = into.entry(name).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(map) = map {
                    map.insert(key, entry);
                }
            }
        }
    }
    Ok(())
}

fn one(
    field: &Field,
    name: &str,
    wire: Wire<'_>,
    into: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), ProtobufError> {
    match value(field.of, name, wire, into.remove(name), depth)? {
        Some(value) if field.zero_is_shown || !is_zero(&value) => into.insert(name.to_owned(), value),
        // Messages that are there are there, even with nothing in them.
        Some(value) if matches!(field.of, Type::Message(_)) => into.insert(name.to_owned(), value),
        Some(_) | None => None,
    };
    Ok(())
}

/// One entry of a map is a message of a key and a value; what is missing is zero.
fn entry(field: &Field, name: &str, bytes: &[u8], depth: usize) -> Result<(String, Value), ProtobufError> {
    let (mut key, mut found) = (String::new(), None);
    for part in Reader::new(bytes) {
        match part? {
            (1, Wire::Bytes(text)) => key = utf8(name, text)?,
            (2, wire) => found = value(field.of, name, wire, None, depth)?,
            _ => {}
        }
    }
    let nothing = match field.of {
        Type::String | Type::Bytes => Value::String(String::new()),
        Type::Message(_) => Value::Object(Map::new()),
        Type::Strings => Value::Array(Vec::new()),
        Type::Bool
        | Type::Int32
        | Type::Int64
        | Type::Double
        | Type::Time
        | Type::MicroTime
        | Type::Quantity
        | Type::IntOrString
        | Type::Raw
        | Type::SchemaOrBool
        | Type::SchemaOrArray => Value::Null,
    };
    Ok((key, found.unwrap_or(nothing)))
}

/// A value in JSON. `None` is a value that says nothing, such as a time that is not set.
fn value(
    of: Type,
    name: &str,
    wire: Wire<'_>,
    before: Option<Value>,
    depth: usize,
) -> Result<Option<Value>, ProtobufError> {
    Ok(Some(match of {
        Type::String => utf8(name, wire.bytes(name)?)?.into(),
        Type::Bytes => BASE64.encode(wire.bytes(name)?).into(),
        Type::Bool => (wire.number(name)? != 0).into(),
        // Negative numbers are sent in 64 bits; the rest of them is what the sender meant.
        #[expect(clippy::cast_possible_truncation, reason = "protobuf says that int32 is the low half")]
        Type::Int32 => (wire.number(name)?.cast_signed() as i32).into(),
        Type::Int64 => wire.number(name)?.cast_signed().into(),
        Type::Double => {
            let Wire::Eight(bits) = wire else { return Err(ProtobufError::WrongType(name.to_owned())) };
            double(f64::from_bits(bits)).ok_or_else(|| ProtobufError::Content(name.to_owned()))?
        }
        Type::Message(inner) => {
            let mut object = match before {
                Some(Value::Object(object)) => object,
                _ => Map::new(),
            };
            read(fields::message(inner), wire.bytes(name)?, &mut object, depth + 1)?;
            Value::Object(object)
        }
        Type::Time => return time(name, wire.bytes(name)?, 0),
        Type::MicroTime => return time(name, wire.bytes(name)?, 6),
        Type::Quantity => first(wire.bytes(name)?, name)?
            .map_or_else(|| Ok("0".to_owned()), |text| utf8(name, text))?
            .into(),
        Type::IntOrString => int_or_string(name, wire.bytes(name)?)?,
        Type::Raw => match first(wire.bytes(name)?, name)? {
            None | Some(b"") => return Ok(None),
            Some(json) => {
                serde_json::from_slice(json).map_err(|_| ProtobufError::Content(name.to_owned()))?
            }
        },
        Type::Strings => {
            let mut list = Vec::new();
            for field in Reader::new(wire.bytes(name)?) {
                if let (1, Wire::Bytes(text)) = field? {
                    list.push(utf8(name, text)?.into());
                }
            }
            Value::Array(list)
        }
        Type::SchemaOrBool => schema_or_bool(name, wire.bytes(name)?, depth)?,
        Type::SchemaOrArray => schema_or_array(name, wire.bytes(name)?, depth)?,
    }))
}

/// What Go leaves out when it was never set.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
    }
}

/// A number as Go writes it: whole ones without a point.
fn double(number: f64) -> Option<Value> {
    /// Up to here every whole number has an exact double.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "whole and in range")]
        return Some((number as i64).into());
    }
    Number::from_f64(number).map(Value::Number)
}

/// The bytes of field 1: several types are messages around a single value.
fn first<'a>(bytes: &'a [u8], name: &str) -> Result<Option<&'a [u8]>, ProtobufError> {
    let mut found = None;
    for field in Reader::new(bytes) {
        if let (1, wire) = field? {
            found = Some(wire.bytes(name)?);
        }
    }
    Ok(found)
}

/// Seconds and nanoseconds; a time that is not set is an empty message.
fn time(name: &str, bytes: &[u8], digits: usize) -> Result<Option<Value>, ProtobufError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let (mut seconds, mut nanos) = (0_i64, 0_i32);
    for field in Reader::new(bytes) {
        match field? {
            (1, Wire::Number(number)) => seconds = number.cast_signed(),
            (2, Wire::Number(number)) => nanos = i32::try_from(number).unwrap_or(0),
            _ => {}
        }
    }
    // Times are written to the second, or to the microsecond: the rest is cut off as Go cuts it.
    let nanos = if digits == 0 { 0 } else { nanos };
    let at = Timestamp::new(seconds, nanos).map_err(|_| ProtobufError::Content(name.to_owned()))?;
    let text = if digits == 0 { format!("{at:.0}") } else { format!("{at:.6}") };
    Ok(Some(text.into()))
}

fn int_or_string(name: &str, bytes: &[u8]) -> Result<Value, ProtobufError> {
    let (mut is_text, mut number, mut text) = (false, 0_u64, String::new());
    for field in Reader::new(bytes) {
        match field? {
            (1, Wire::Number(kind)) => is_text = kind == 1,
            (2, Wire::Number(found)) => number = found,
            (3, Wire::Bytes(found)) => text = utf8(name, found)?,
            _ => {}
        }
    }
    if is_text {
        Ok(text.into())
    } else {
        value(Type::Int32, name, Wire::Number(number), None, 0).map(Option::unwrap_or_default)
    }
}

/// `additionalProperties`: a schema, or whether there may be any.
fn schema_or_bool(name: &str, bytes: &[u8], depth: usize) -> Result<Value, ProtobufError> {
    let mut found = Value::Bool(false);
    for field in Reader::new(bytes) {
        match field? {
            (1, Wire::Number(allows)) if !found.is_object() => found = (allows != 0).into(),
            (2, wire) => found = schema(name, wire, depth)?,
            _ => {}
        }
    }
    Ok(found)
}

/// `items`: a schema, or several.
fn schema_or_array(name: &str, bytes: &[u8], depth: usize) -> Result<Value, ProtobufError> {
    let mut found = Value::Null;
    for field in Reader::new(bytes) {
        match field? {
            (1, wire) => found = schema(name, wire, depth)?,
            (2, wire) => {
                let next = schema(name, wire, depth)?;
                if let Value::Array(list) = &mut found {
                    list.push(next);
                } else {
                    found = Value::Array(vec![next]);
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

fn schema(name: &str, wire: Wire<'_>, depth: usize) -> Result<Value, ProtobufError> {
    let mut object = Map::new();
    read(fields::schema(), wire.bytes(name)?, &mut object, depth + 1)?;
    Ok(Value::Object(object))
}

fn utf8(name: &str, bytes: &[u8]) -> Result<String, ProtobufError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| ProtobufError::NotUtf8(name.to_owned()))
}

#[cfg(test)]
mod tests;
