//! What does an Installation import, and is it there?

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pawl_api::deploy::installation::{Imports, TargetImport};
use pawl_api::deploy::{data_object, target};
use pawl_api::k8s::{CONFIG_MAP, SECRET};
use pawl_api::meta::reference::KeyRef;
use serde_json::{Map, Value, json};

use crate::object::{Key, Object};
use crate::view::View;

/// One import, as the blueprint calls it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Imported {
    pub(super) name: String,
    /// Or what is missing.
    pub(super) value: Result<Value, String>,
    /// The names of the Targets it stands for, in order.
    pub(super) targets: Vec<String>,
}

pub(super) fn read(view: &dyn View, me: &Object, imports: &Imports) -> Vec<Imported> {
    let beside = |name: &str| Key::new(me.namespace(), name);
    let data = imports.data.iter().map(|import| {
        let value = match (&import.data_ref, &import.secret_ref, &import.config_map_ref) {
            (Some(name), _, _) => match view.get(&data_object::KIND, &beside(name)) {
                Some(found) => Ok(found.raw().get("data").cloned().unwrap_or_default()),
                None => Err(format!("DataObject {name} is not there")),
            },
            (_, Some(from), _) => {
                keyed(view.get(&SECRET, &beside(&from.name)).as_deref(), "Secret", from, true)
            }
            (_, _, Some(from)) => {
                keyed(view.get(&CONFIG_MAP, &beside(&from.name)).as_deref(), "ConfigMap", from, false)
            }
            (None, None, None) => Err("it names no source".to_owned()),
        };
        Imported { name: import.name.clone(), value, targets: Vec::new() }
    });
    let targets = imports.targets.iter().map(|import| {
        let names = names_of(import);
        let one = |name: &String| match view.get(&target::KIND, &beside(name)) {
            Some(found) => Ok(json!({
                "metadata": {"name": found.name(), "namespace": found.namespace()},
                "spec": found.raw().get("spec").cloned().unwrap_or_default(),
            })),
            None => Err(format!("Target {name} is not there")),
        };
        let value = match &import.target {
            Some(name) => one(name),
            None => names.iter().map(one).collect::<Result<Vec<Value>, String>>().map(Value::Array),
        };
        Imported { name: import.name.clone(), value, targets: names }
    });
    data.chain(targets).collect()
}

fn names_of(import: &TargetImport) -> Vec<String> {
    import.target.iter().chain(import.targets.iter().flatten()).cloned().collect()
}

/// A key of a Secret or ConfigMap, as YAML; all keys where none is named.
fn keyed(found: Option<&Object>, kind: &str, from: &KeyRef, encoded: bool) -> Result<Value, String> {
    let found = found.ok_or_else(|| format!("{kind} {} is not there", from.name))?;
    let data = found.raw().get("data").and_then(Value::as_object).cloned().unwrap_or_default();
    let read = |key: &str, value: &Value| -> Result<Value, String> {
        let text = value.as_str().unwrap_or_default();
        let text = if encoded {
            let bytes =
                STANDARD.decode(text).map_err(|_| format!("{kind} {}, {key}: not base64", from.name))?;
            String::from_utf8(bytes).map_err(|_| format!("{kind} {}, {key}: not text", from.name))?
        } else {
            text.to_owned()
        };
        // Without the text: it may be secret (I6).
        serde_saphyr::from_str(&text).map_err(|_| format!("{kind} {}, {key}: not YAML", from.name))
    };
    match &from.key {
        Some(key) => {
            let value = data.get(key).ok_or_else(|| format!("{kind} {} has no key {key}", from.name))?;
            read(key, value)
        }
        None => {
            let all: Result<Map<String, Value>, String> =
                data.iter().map(|(key, value)| Ok((key.clone(), read(key, value)?))).collect();
            all.map(Value::Object)
        }
    }
}
