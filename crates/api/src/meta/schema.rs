//! Shapes that several kinds share in their schemas and that `schemars` cannot derive.
//!
//! Everything has a limit: the API server prices a CEL rule by the largest object the schema allows, and
//! refuses a CRD whose price is too high.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// A map of strings with at most `ENTRIES` entries whose values have at most `LEN` characters.
pub fn string_map<const ENTRIES: u32, const LEN: u32>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": ENTRIES,
        "additionalProperties": { "type": "string", "maxLength": LEN },
    })
}

/// Any JSON object, kept as it is.
pub fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// Any JSON value, kept as it is.
pub fn any_value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

/// A batch/v1 JobSpec, of which only the skeleton is in the schema: the whole would make the CRD too large
/// for the annotation in which `kubectl apply` keeps what it last applied. The API server checks the rest
/// when the Job is created, and the controller before that.
pub fn job_spec(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "required": ["template"],
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "template": {
                "description": "The pods to run.",
                "type": "object",
                "required": ["spec"],
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {
                    "spec": {
                        "description": "A core/v1 PodSpec.",
                        "type": "object",
                        "required": ["containers"],
                        "x-kubernetes-preserve-unknown-fields": true,
                        "properties": {
                            "containers": {
                                "description": "At least one core/v1 Container.",
                                "type": "array",
                                "minItems": 1,
                                "maxItems": 64,
                                "items": {
                                    "description": "A core/v1 Container.",
                                    "type": "object",
                                    "x-kubernetes-preserve-unknown-fields": true,
                                },
                            },
                        },
                    },
                },
            },
        },
    })
}

/// A CEL rule, as `x-kubernetes-validations` lists them.
pub fn rule(rule: &str, message: &str) -> Value {
    json!({ "rule": rule, "message": message })
}

/// A CEL rule that lets none of the fields change, appear or vanish.
pub fn frozen(fields: &[&str], message: &str) -> Value {
    let same: Vec<String> = fields
        .iter()
        .map(|field| {
            format!("has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})")
        })
        .collect();
    rule(&same.join(" && "), message)
}

/// Whether a switch is off, for `skip_serializing_if`.
pub(crate) fn is_false(value: &bool) -> bool {
    !*value
}
