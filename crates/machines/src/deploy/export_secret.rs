//! Where does what was exported lie, and how is it written and read? In Secrets (I6), under one key, as YAML.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pawl_api::deploy::EXPORT_KEY;
use pawl_api::k8s::SECRET;
use pawl_api::meta::names;
use serde_json::{Value, json};

use crate::object::{Key, Object};
use crate::plan::Step;
use crate::yaml;

/// The Secret of an object's exports; `word` tells it from others of the same object.
pub(super) fn key(me: &Object, word: &str) -> Key {
    let name = names::child(&format!("{}-{word}", me.name()), &[me.uid()], 8, names::MAX_SUBDOMAIN);
    Key::new(me.namespace(), &name)
}

/// What it says; the problem is told without the text, which may be secret.
pub(super) fn read(secret: &Object) -> Result<Value, String> {
    let text = secret.raw().pointer(&format!("/data/{EXPORT_KEY}")).and_then(Value::as_str);
    let text = text.ok_or_else(|| format!("it has no key {EXPORT_KEY}"))?;
    let bytes = STANDARD.decode(text).map_err(|_| format!("{EXPORT_KEY} is not base64"))?;
    let text = String::from_utf8(bytes).map_err(|_| format!("{EXPORT_KEY} is not text"))?;
    yaml::read(&text).map_err(|error| format!("{EXPORT_KEY} is not YAML at line {}", error.line))
}

/// Makes it say this; `None` when it does.
pub(super) fn write(me: &Object, key: &Key, there: Option<&Arc<Object>>, text: &str) -> Option<Step> {
    let data = json!({EXPORT_KEY: STANDARD.encode(text)});
    match there {
        None => {
            let manifest = json!({"metadata": {"name": key.name}, "type": "Opaque", "data": data});
            Some(Step::create_child(me, SECRET, manifest))
        }
        Some(secret) if secret.raw().get("data") == Some(&data) => None,
        Some(secret) => Some(Step::patch_unchanged(secret, json!({"data": data}))),
    }
}
