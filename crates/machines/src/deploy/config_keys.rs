//! Which keys of an item's configuration does its deployer not read?
//!
//! A configuration is decoded leniently, for manifests written for Landscaper shall apply and run unchanged. What nobody
//! reads is told by name, for it may be a slip of the pen: `manifets` would deploy nothing, and say nothing.

use pawl_api::deploy::types;
use serde_json::{Map, Value};

/// What is read of a value.
enum Shape {
    /// All of it is somebody's.
    Anything,
    /// These fields.
    Fields(&'static [(&'static str, Shape)]),
    /// The same of every member; of the value itself where it is no list.
    Each(&'static Shape),
    /// An object with a policy, or, as in v1alpha1, the object itself.
    Entry,
}

use Shape::{Anything, Each, Entry, Fields};

const ENTRY: Shape = Fields(&[("policy", Anything), ("manifest", Anything)]);

const PLACE: Shape =
    Fields(&[("apiVersion", Anything), ("kind", Anything), ("name", Anything), ("namespace", Anything)]);

const CHECK: Shape = Fields(&[
    ("name", Anything),
    ("disabled", Anything),
    ("resourceSelector", Each(&PLACE)),
    ("labelSelector", Fields(&[("apiVersion", Anything), ("kind", Anything), ("matchLabels", Anything)])),
    ("requirements", Each(&Fields(&[("jsonPath", Anything), ("operator", Anything), ("values", Anything)]))),
]);

const EXPORT: Shape = Fields(&[
    ("key", Anything),
    ("jsonPath", Anything),
    ("fromResource", PLACE),
    ("fromObjectRef", Fields(&[("apiVersion", Anything), ("kind", Anything), ("jsonPath", Anything)])),
]);

const MANIFEST: Shape = Fields(&[
    ("apiVersion", Anything),
    ("kind", Anything),
    ("manifests", Each(&Entry)),
    ("updateStrategy", Anything),
    ("readinessChecks", Fields(&[("disableDefault", Anything), ("custom", Each(&CHECK))])),
    ("exports", Fields(&[("exports", Each(&EXPORT))])),
]);

const CONTAINER: Shape = Fields(&[
    ("apiVersion", Anything),
    ("kind", Anything),
    ("image", Anything),
    ("command", Anything),
    ("args", Anything),
    ("importValues", Anything),
    // Told by the deployer itself, with the reason.
    ("blueprint", Anything),
    ("componentDescriptor", Anything),
]);

const MOCK: Shape = Fields(&[
    ("apiVersion", Anything),
    ("kind", Anything),
    ("phase", Anything),
    ("initialPhase", Anything),
    ("providerStatus", Anything),
    ("export", Anything),
    ("delay", Anything),
    ("failTimes", Anything),
    ("failOnDelete", Anything),
    ("hang", Anything),
]);

/// How many are told: a configuration for another deployer would fill a status with its keys.
const MAX_TOLD: usize = 16;

/// The keys that the deployer of this type does not read, by their place in the item.
pub(super) fn unread(type_: &str, config: &Map<String, Value>) -> Vec<String> {
    let shape = match type_ {
        types::MANIFEST => MANIFEST,
        types::CONTAINER => CONTAINER,
        types::MOCK => MOCK,
        _ => return Vec::new(),
    };
    let mut found = Vec::new();
    if let Fields(known) = shape {
        of_fields(known, config, "spec.config", &mut found);
    }
    found
}

fn of_value(shape: &Shape, value: &Value, at: &str, found: &mut Vec<String>) {
    match (shape, value) {
        (Each(shape), Value::Array(members)) => {
            for (number, member) in members.iter().enumerate() {
                of_value(shape, member, &format!("{at}[{number}]"), found);
            }
        }
        (Each(shape), one) => of_value(shape, one, at, found),
        (Fields(known), Value::Object(fields)) => of_fields(known, fields, at, found),
        (Entry, Value::Object(fields)) if fields.contains_key("manifest") => {
            of_value(&ENTRY, value, at, found)
        }
        // Whatever is of another kind is the deployer's to refuse.
        (Anything | Entry | Fields(_), _) => {}
    }
}

fn of_fields(
    known: &[(&'static str, Shape)],
    fields: &Map<String, Value>,
    at: &str,
    found: &mut Vec<String>,
) {
    for (key, value) in fields {
        if found.len() >= MAX_TOLD {
            return;
        }
        let place = format!("{at}.{key}");
        match known.iter().find(|(name, _)| name == key) {
            Some((_, shape)) => of_value(shape, value, &place, found),
            None => found.push(place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(type_: &str, config: Value, expected: &[&str]) {
        let Value::Object(config) = config else { panic!("{config}") };
        assert_eq!(unread(type_, &config), expected);
    }

    #[test]
    fn what_a_deployer_does_not_read_is_named_by_its_place() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"any": "thing"}});
        let place = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "nameSpace": "n"});
        let config = json!({
            "apiVersion": "manifest.deployer.landscaper.gardener.cloud/v1alpha2", "kind": "ProviderConfiguration",
            "manifets": [], "updateStrategy": "patch",
            "manifests": [{"policy": "keep", "manifest": object, "annotateBeforeCreate": {}}, object],
            "readinessChecks": {"custom": [{"name": "c", "timeout": "1m", "resourceSelector": place}]},
            "exports": {"defaultTimeout": "1m", "exports": [{"key": "k", "jsonPath": ".a", "fromResource": place}]},
        });
        check(
            types::MANIFEST,
            config,
            &[
                "spec.config.exports.defaultTimeout",
                "spec.config.exports.exports[0].fromResource.nameSpace",
                "spec.config.manifests[0].annotateBeforeCreate",
                "spec.config.manifets",
                "spec.config.readinessChecks.custom[0].resourceSelector.nameSpace",
                "spec.config.readinessChecks.custom[0].timeout",
            ],
        );
        check(
            types::CONTAINER,
            json!({"image": "i", "importValues": {"a": 1}, "env": []}),
            &["spec.config.env"],
        );
        check(types::MOCK, json!({"export": {"a": {"b": 1}}, "dealy": "1s"}), &["spec.config.dealy"]);
        check("somebody-elses", json!({"x": 1}), &[]);
    }

    #[test]
    fn what_is_of_another_kind_or_endless_is_no_trouble() {
        check(types::MANIFEST, json!({"manifests": 7, "exports": "x", "readinessChecks": [1]}), &[]);
        let many: Map<String, Value> = (0..10_000).map(|n| (format!("k{n}"), Value::Null)).collect();
        assert_eq!(unread(types::MOCK, &many).len(), MAX_TOLD);
    }
}
