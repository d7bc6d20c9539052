//! Does everything that a schema lets through decode? An object that does not would stop a watch.
//!
//! Objects are made from the schemas by a small generator with fixed seeds.

use serde_json::{Map, Value, json};

use crate::checker::problems;
use crate::manifests::try_decode;
use crate::schemas;

const SAMPLES_PER_KIND: u64 = 60;

/// xorshift: the same objects on every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides.max(1)
    }
}

#[test]
fn everything_a_schema_lets_through_decodes() {
    for (kind, schema) in schemas() {
        for seed in 1..=SAMPLES_PER_KIND {
            let mut sample = make(schema, &mut Dice(seed * 0x9E37_79B9));
            // The rest of the object is the API server's own.
            sample["metadata"] = json!({"name": "x"});
            sample["kind"] = json!(kind);
            let body = without_envelope(&sample);
            assert_eq!(problems(schema, &body, kind), [""; 0], "the generator is wrong: {body:#}");
            if let Err(error) = try_decode(&sample) {
                panic!("seed {seed}: {kind} does not decode: {error}\n{sample:#}");
            }
        }
    }
}

fn without_envelope(sample: &Value) -> Value {
    let mut body = sample.as_object().unwrap().clone();
    body.remove("metadata");
    body.remove("kind");
    Value::Object(body)
}

fn make(schema: &Value, dice: &mut Dice) -> Value {
    if let Some(allowed) = schema["enum"].as_array() {
        return allowed[dice.roll(allowed.len() as u64) as usize].clone();
    }
    match schema["type"].as_str() {
        Some("object") => object(schema, dice),
        Some("array") => {
            let least = schema["minItems"].as_u64().unwrap_or(0);
            (0..least.max(dice.roll(3))).map(|_| make(&schema["items"], dice)).collect()
        }
        Some("string") => Value::String(text(schema, dice)),
        Some("boolean") => json!(dice.roll(2) == 1),
        Some("number") => json!(0.5),
        Some("integer") => {
            let (least, most) = match schema["format"].as_str() {
                Some("int64") => (i64::MIN as f64, i64::MAX as f64 - 1024.0),
                _ => (f64::from(i32::MIN), f64::from(i32::MAX)),
            };
            let least = schema["minimum"].as_f64().unwrap_or(least);
            let most = schema["maximum"].as_f64().unwrap_or(most);
            json!(if dice.roll(2) == 0 { least as i64 } else { most as i64 })
        }
        _ => [json!("any"), json!(1), json!([1, {"a": null}]), json!({"b": 2.5})][dice.roll(4) as usize]
            .clone(),
    }
}

fn object(schema: &Value, dice: &mut Dice) -> Value {
    let mut made = Map::new();
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if required.contains(&json!(name)) || dice.roll(2) == 0 {
            made.insert(name.clone(), make(property, dice));
        }
    }
    if let Some(last) = schema["not"]["required"].as_array().and_then(|names| names.last()) {
        made.remove(last.as_str().unwrap());
    }
    if schema["additionalProperties"].is_object() {
        for at in 0..schema["minProperties"].as_u64().unwrap_or(0).max(dice.roll(3)) {
            made.insert(format!("KEY_{at}"), make(&schema["additionalProperties"], dice));
        }
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        made.insert("unknown".into(), json!({"deep": [1, "two", null]}));
    }
    Value::Object(made)
}

/// A text that fits: the shapes our patterns ask for are tried in turn.
fn text(schema: &Value, dice: &mut Dice) -> String {
    const SHAPES: [&str; 12] = [
        "x",
        "Ünï cødé",
        "0123456789abcdef0123456789abcdef01234567",
        "999999999h999999999h",
        "0.5us",
        "none",
        "https://example.com/api",
        "/mnt/x",
        "10Gi",
        "500m",
        "Ready",
        "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    ];
    if schema["format"] == "date-time" {
        return ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123456789+02:00"][dice.roll(2) as usize]
            .to_owned();
    }
    let start = dice.roll(SHAPES.len() as u64) as usize;
    let stretched = SHAPES.iter().cycle().skip(start).take(SHAPES.len()).map(|shape| {
        let least = schema["minLength"].as_u64().unwrap_or(0) as usize;
        format!("{shape}{}", "x".repeat(least.saturating_sub(shape.chars().count())))
    });
    stretched
        .into_iter()
        .find(|shape| problems(schema, &json!(shape), "").is_empty())
        .unwrap_or_else(|| panic!("no shape fits {schema}"))
}
