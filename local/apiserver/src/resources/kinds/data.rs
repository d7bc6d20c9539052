//! What may be kept in a ConfigMap or a Secret?

#![expect(clippy::indexing_slicing, reason = "reading a Value by key never panics: what is absent is null")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value};

use super::{Hooks, NONE, set};
use crate::validation::FieldError;

/// Kubernetes' limit on what one ConfigMap or Secret holds.
const MAX_BYTES: usize = 1 << 20;
/// As long as a DNS name.
const MAX_KEY_BYTES: usize = 253;
const FROZEN: &str = "field is immutable when `immutable` is set";
/// Whose token a Secret is to hold.
const ACCOUNT: &str = "kubernetes.io/service-account.name";
/// Complaints about a secret do not tell it.
const REDACTED: &str = "<secret contents redacted>";

pub(crate) const CONFIG_MAP: Hooks = Hooks {
    validate: |object, old| {
        let mut errors = config_map(object);
        if let Some(old) = old.filter(|old| old["immutable"] == true) {
            errors.extend(frozen(object, old, &["data", "binaryData"]));
        }
        errors
    },
    ..NONE
};

pub(crate) const SECRET: Hooks = Hooks {
    default: |object| {
        let Some(body) = object.as_object_mut() else { return };
        // `stringData` is for writing alone: it ends up in `data`.
        if let Some(Value::Object(plain)) = body.remove("stringData") {
            let data = body.entry("data").or_insert_with(|| Value::Object(Map::new()));
            for (key, text) in plain {
                set(data, &key, BASE64.encode(text.as_str().unwrap_or_default()).into());
            }
        }
        body.entry("type").or_insert_with(|| "Opaque".into());
    },
    validate: |object, old| {
        let mut errors = secret(object);
        if let Some(old) = old {
            if object["type"] != old["type"] {
                errors.push(FieldError::invalid("type", &object["type"], "field is immutable"));
            }
            if old["immutable"] == true {
                errors.extend(frozen(object, old, &["data"]));
            }
        }
        errors
    },
    ..NONE
};

fn config_map(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let bags = [("data", "binaryData"), ("binaryData", "data")];
    for (bag, other) in bags {
        for key in keys(object, bag) {
            let field = format!("{bag}[{key}]");
            errors.extend(wrong_key(&field, key));
            if !object[other][key].is_null() {
                let why = format!("duplicate of key present in {other}");
                errors.push(FieldError::invalid(field, &key.into(), why));
            }
        }
    }
    let plain: usize = values(object, "data").map(str::len).sum();
    if plain + decoded_bytes(object, "binaryData") > MAX_BYTES {
        errors.push(FieldError::too_long("", MAX_BYTES as u64));
    }
    errors
}

fn secret(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for key in keys(object, "data") {
        errors.extend(wrong_key(&format!("data[{key}]"), key));
    }
    if decoded_bytes(object, "data") > MAX_BYTES {
        errors.push(FieldError::too_long("data", MAX_BYTES as u64));
    }
    let mut needs = |key: &str| {
        if object["data"][key].is_null() {
            errors.push(FieldError::required(format!("data[{key}]"), ""));
        }
    };
    match object["type"].as_str().unwrap_or_default() {
        "kubernetes.io/service-account-token" if names_no_account(object) => {
            errors.push(FieldError::required(format!("metadata.annotations[{ACCOUNT}]"), ""));
        }
        "kubernetes.io/dockercfg" => errors.extend(json_under(object, ".dockercfg")),
        "kubernetes.io/dockerconfigjson" => errors.extend(json_under(object, ".dockerconfigjson")),
        "kubernetes.io/basic-auth"
            if ["username", "password"].iter().all(|key| object["data"][*key].is_null()) =>
        {
            errors.push(FieldError::required("data[username]", ""));
            errors.push(FieldError::required("data[password]", ""));
        }
        "kubernetes.io/ssh-auth" => needs("ssh-privatekey"),
        "kubernetes.io/tls" => ["tls.crt", "tls.key"].into_iter().for_each(&mut needs),
        _ => {}
    }
    errors
}

fn names_no_account(secret: &Value) -> bool {
    secret["metadata"]["annotations"][ACCOUNT].as_str().unwrap_or_default().is_empty()
}

/// A key that must be there and hold JSON.
fn json_under(secret: &Value, key: &str) -> Option<FieldError> {
    let Some(encoded) = secret["data"][key].as_str() else {
        return Some(FieldError::required(format!("data[{key}]"), ""));
    };
    let content = BASE64.decode(encoded).unwrap_or_default();
    let wrong = serde_json::from_slice::<serde::de::IgnoredAny>(&content).err()?;
    Some(FieldError::invalid(format!("data[{key}]"), &REDACTED.into(), wrong.to_string()))
}

fn frozen(object: &Value, old: &Value, fields: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if object["immutable"] != true {
        errors.push(FieldError::forbidden("immutable", FROZEN));
    }
    let changed = fields.iter().filter(|field| object[**field] != old[**field]);
    errors.extend(changed.map(|field| FieldError::forbidden(*field, FROZEN)));
    errors
}

fn wrong_key(field: &str, key: &str) -> Option<FieldError> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let why = if key.len() > MAX_KEY_BYTES {
        format!("must be no more than {MAX_KEY_BYTES} bytes")
    } else if key.is_empty() || !key.bytes().all(legal) {
        "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
         'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
            .to_owned()
    } else if key == "." || key == ".." {
        format!("must not be '{key}'")
    } else if key.starts_with("..") {
        "must not start with '..'".to_owned()
    } else {
        return None;
    };
    Some(FieldError::invalid(field, &key.into(), why))
}

fn keys<'a>(object: &'a Value, bag: &str) -> impl Iterator<Item = &'a str> {
    object[bag].as_object().into_iter().flatten().map(|(key, _)| key.as_str())
}

fn values<'a>(object: &'a Value, bag: &str) -> impl Iterator<Item = &'a str> {
    object[bag].as_object().into_iter().flatten().filter_map(|(_, value)| value.as_str())
}

/// Three bytes in four characters, the last of which may be filling.
fn decoded_bytes(object: &Value, bag: &str) -> usize {
    values(object, bag).map(|text| text.trim_end_matches('=').len() * 3 / 4).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(errors: &[FieldError]) -> Vec<&str> {
        errors.iter().map(|error| error.field.as_str()).collect()
    }

    #[test]
    fn a_config_maps_keys_are_file_names_and_stand_once() {
        let map = json!({"data": {"a b": "", "..x": "", "ok": "", "both": ""}, "binaryData": {"both": "", "..": ""}});
        assert_eq!(
            fields(&config_map(&map)),
            ["data[..x]", "data[a b]", "data[both]", "binaryData[..]", "binaryData[both]"]
        );
        let large = json!({"data": {"k": "x".repeat(MAX_BYTES)}, "binaryData": {"b": "AAAA"}});
        assert_eq!(fields(&config_map(&large)), [""]);
        let full = json!({"data": {"k": "x".repeat(MAX_BYTES)}});
        assert_eq!(config_map(&full), []);
    }

    #[test]
    fn a_secret_holds_what_its_type_promises() {
        let of = |kind: &str, data: Value| {
            let secret = json!({"type": format!("kubernetes.io/{kind}"), "data": data, "metadata": {}});
            self::secret(&secret).iter().map(|error| error.field.clone()).collect::<Vec<_>>()
        };
        assert_eq!(of("tls", json!({"tls.crt": ""})), ["data[tls.key]"]);
        assert_eq!(of("basic-auth", json!({})), ["data[username]", "data[password]"]);
        assert_eq!(of("basic-auth", json!({"password": "eA=="})), [""; 0]);
        assert_eq!(of("ssh-auth", json!({})), ["data[ssh-privatekey]"]);
        assert_eq!(of("dockerconfigjson", json!({})), ["data[.dockerconfigjson]"]);
        assert_eq!(
            of("dockerconfigjson", json!({".dockerconfigjson": BASE64.encode("{")})),
            ["data[.dockerconfigjson]"]
        );
        assert_eq!(of("dockercfg", json!({".dockercfg": BASE64.encode("{}")})), [""; 0]);
        assert_eq!(
            of("service-account-token", json!({})),
            ["metadata.annotations[kubernetes.io/service-account.name]"]
        );
    }
}
