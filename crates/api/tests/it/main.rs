//! What the API promises as a whole: its schemas are ones that an API server takes, and manifests written for
//! the originals are read without loss.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "all of this is test, where a panic is the answer"
)]

mod checker;
mod manifests;
mod samples;
mod schemas;

use std::sync::LazyLock;

use serde_json::Value;

/// The schema of each CRD, by kind. Deriving them takes a while, so once is enough.
static SCHEMAS: LazyLock<Vec<(String, Value)>> = LazyLock::new(|| {
    pawl_api::crds::all()
        .iter()
        .map(|crd| {
            let schema = &crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema;
            (crd.spec.names.kind.clone(), serde_json::to_value(schema.as_ref().unwrap()).unwrap())
        })
        .collect()
});

fn schemas() -> &'static [(String, Value)] {
    &SCHEMAS
}

fn schema_of(kind: &str) -> &'static Value {
    &schemas().iter().find(|(name, _)| name == kind).unwrap_or_else(|| panic!("no CRD for {kind}")).1
}

/// Calls `see` with every schema in the tree that describes a value, and where it is.
fn walk(at: &str, schema: &Value, see: &mut dyn FnMut(&str, &Value)) {
    see(at, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk(&format!("{at}.{name}"), property, see);
    }
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            walk(&format!("{at}[]"), &schema[key], see);
        }
    }
}
