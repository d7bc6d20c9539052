//! Is this object's `metadata` well-formed, and may it replace what is stored?
//!
//! Three questions in the order a server asks them: [`metadata_shape`] (does it decode at all: a `400`),
//! [`metadata`] (are the values legal: a `422`), [`metadata_update`] (may an existing object change so).

use super::names::{
    dns1035_label, dns1123_label, dns1123_subdomain, label_value, path_segment_name, qualified_name,
};
use super::{FieldError, quote};
use serde_json::{Map, Value, json};

/// All annotations of one object together, keys and values: 256 KiB, Kubernetes' own limit.
const ANNOTATIONS_MAX_BYTES: usize = 256 * 1024;

/// Finalizers that need no domain in front on built-in kinds.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// Which strings may name an object of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// Most kinds, and every custom resource.
    Subdomain,
    /// Namespaces.
    Label,
    /// Services.
    Dns1035,
    /// RBAC kinds and others whose names only must survive in a URL.
    PathSegment,
}

impl NameRule {
    /// The complaints about `name`; `prefix` when a random suffix will follow it.
    pub fn check(self, name: &str, prefix: bool) -> Vec<String> {
        let masked = match name.strip_suffix('-') {
            // "job-" is a good prefix although no name may end in a dash.
            Some(stem) if prefix && !stem.is_empty() => format!("{stem}a"),
            Some(_) | None => name.to_owned(),
        };
        match self {
            Self::Subdomain => dns1123_subdomain(&masked),
            Self::Label => dns1123_label(&masked),
            Self::Dns1035 => dns1035_label(&masked),
            Self::PathSegment => path_segment_name(&masked),
        }
    }
}

/// What the rules need to know about the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    pub name: NameRule,
    pub namespaced: bool,
    /// Built-in kinds ask finalizers for a domain; custom resources only ask for a qualified name.
    pub builtin: bool,
}

/// Everything wrong with the `metadata` of `object`, in the order the real server reports it.
pub fn metadata(object: &Value, rules: Metadata) -> Vec<FieldError> {
    let empty = Map::new();
    let meta = object.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let mut errors = Vec::new();
    names(meta, rules, &mut errors);
    if let Some(generation) = meta.get("generation").and_then(Value::as_i64).filter(|g| *g < 0) {
        let field = "metadata.generation";
        errors.push(FieldError::invalid(field, &json!(generation), "must be greater than or equal to 0"));
    }
    labels(meta, &mut errors);
    annotations(meta, &mut errors);
    owner_references(meta, &mut errors);
    finalizers(meta, rules.builtin, &mut errors);
    errors
}

/// What an update may not change in `metadata`.
pub fn metadata_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    fn text<'a>(object: &'a Value, key: &str) -> &'a Value {
        object.get("metadata").and_then(|metadata| metadata.get(key)).unwrap_or(&Value::Null)
    }
    if let (Some(now), Some(before)) = (text(new, "generation").as_i64(), text(old, "generation").as_i64())
        && now < before
    {
        errors.push(FieldError::invalid("metadata.generation", &json!(now), "must not be decremented"));
    }
    for key in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        let (now, before) = (text(new, key), text(old, key));
        if now != before {
            errors.push(FieldError::invalid(format!("metadata.{key}"), now, "field is immutable"));
        }
    }
    if !text(old, "deletionTimestamp").is_null() {
        let list = |object| strings(text(object, "finalizers").as_array());
        let before = list(old);
        let added: Vec<String> = list(new).into_iter().filter(|f| !before.contains(f)).collect();
        if !added.is_empty() {
            let shown: Vec<String> = added.iter().map(|f| quote(f)).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                shown.join(", ")
            );
            errors.push(FieldError::forbidden("metadata.finalizers", detail));
        }
    }
    errors
}

/// Does `metadata` decode into its typed form? The message is that of a failed JSON decoding.
pub fn metadata_shape(object: &Value) -> Result<(), String> {
    let Some(meta) = object.get("metadata") else { return Ok(()) };
    let Some(fields) = expect_object(meta, "ObjectMeta.metadata", "v1.ObjectMeta")? else { return Ok(()) };
    for (key, value) in fields {
        let at = format!("ObjectMeta.metadata.{key}");
        match key.as_str() {
            "name" | "generateName" | "namespace" | "selfLink" | "uid" | "resourceVersion" => {
                expect_string(value, &at)?;
            }
            "generation" | "deletionGracePeriodSeconds" => expect_integer(value, &at)?,
            "creationTimestamp" | "deletionTimestamp" => expect_time(value, &at)?,
            "labels" | "annotations" => {
                for (_, v) in expect_object(value, &at, "map[string]string")?.into_iter().flatten() {
                    expect_string(v, &at)?;
                }
            }
            "finalizers" => {
                for v in expect_array(value, &at, "[]string")? {
                    expect_string(v, &at)?;
                }
            }
            "ownerReferences" => owner_reference_shapes(value, &at)?,
            "managedFields" => managed_field_shapes(value, &at)?,
            _ => {}
        }
    }
    Ok(())
}

fn owner_reference_shapes(value: &Value, at: &str) -> Result<(), String> {
    for owner in expect_array(value, at, "[]v1.OwnerReference")? {
        for (key, v) in expect_object(owner, at, "v1.OwnerReference")?.into_iter().flatten() {
            let at = format!("{at}.{key}");
            match key.as_str() {
                "apiVersion" | "kind" | "name" | "uid" => expect_string(v, &at)?,
                "controller" | "blockOwnerDeletion" if !(v.is_boolean() || v.is_null()) => {
                    return Err(cannot_unmarshal(v, &at, "bool"));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn managed_field_shapes(value: &Value, at: &str) -> Result<(), String> {
    for entry in expect_array(value, at, "[]v1.ManagedFieldsEntry")? {
        for (key, v) in expect_object(entry, at, "v1.ManagedFieldsEntry")?.into_iter().flatten() {
            let at = format!("{at}.{key}");
            match key.as_str() {
                "manager" | "operation" | "apiVersion" | "fieldsType" | "subresource" => {
                    expect_string(v, &at)?
                }
                "time" => expect_time(v, &at)?,
                "fieldsV1" => {
                    expect_object(v, &at, "v1.FieldsV1")?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn names(meta: &Map<String, Value>, rules: Metadata, errors: &mut Vec<FieldError>) {
    let generate = text(meta, "generateName");
    if !generate.is_empty() {
        errors.extend(all_invalid("metadata.generateName", generate, rules.name.check(generate, true)));
    }
    match text(meta, "name") {
        "" => errors.push(FieldError::required("metadata.name", "name or generateName is required")),
        name => errors.extend(all_invalid("metadata.name", name, rules.name.check(name, false))),
    }
    match (rules.namespaced, text(meta, "namespace")) {
        (true, "") => errors.push(FieldError::required("metadata.namespace", "")),
        (true, namespace) => {
            errors.extend(all_invalid("metadata.namespace", namespace, dns1123_label(namespace)));
        }
        (false, "") => {}
        (false, _) => errors.push(FieldError::forbidden("metadata.namespace", "not allowed on this type")),
    }
}

fn all_invalid(field: &str, text: &str, wrong: Vec<String>) -> Vec<FieldError> {
    FieldError::each_invalid(field, &json!(text), wrong)
}

fn labels(meta: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    for (key, value) in meta.get("labels").and_then(Value::as_object).into_iter().flatten() {
        errors.extend(all_invalid("metadata.labels", key, qualified_name(key)));
        let wrong = label_value(value.as_str().unwrap_or_default());
        errors.extend(FieldError::each_invalid("metadata.labels", value, wrong));
    }
}

fn annotations(meta: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let mut total = 0;
    for (key, value) in meta.get("annotations").and_then(Value::as_object).into_iter().flatten() {
        // Annotation keys may be written in upper case; labels' may not have an upper-case prefix.
        errors.extend(all_invalid("metadata.annotations", key, qualified_name(&key.to_lowercase())));
        total += key.len() + value.as_str().map_or(0, str::len);
    }
    if total > ANNOTATIONS_MAX_BYTES {
        errors.push(FieldError::too_long("metadata.annotations", ANNOTATIONS_MAX_BYTES as u64));
    }
}

fn owner_references(meta: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let at = "metadata.ownerReferences";
    let Some(owners) = meta.get("ownerReferences").and_then(Value::as_array) else { return };
    let mut controller: Option<&str> = None;
    for owner in owners.iter().filter_map(Value::as_object) {
        let api_version = text(owner, "apiVersion");
        let version = api_version.rsplit('/').next().unwrap_or_default();
        if version.is_empty() {
            let detail = "version must not be empty";
            errors.push(FieldError::invalid(format!("{at}.apiVersion"), &json!(api_version), detail));
        }
        for key in ["kind", "name", "uid"] {
            if text(owner, key).is_empty() {
                errors.push(FieldError::invalid(format!("{at}.{key}"), &json!(""), "must not be empty"));
            }
        }
        if api_version == "v1" && text(owner, "kind") == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(at, &Value::Object(owner.clone()), detail));
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            let name = text(owner, "name");
            if let Some(first) = controller {
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                );
                errors.push(FieldError::invalid(at, &Value::Array(owners.clone()), detail));
            }
            controller = controller.or(Some(name));
        }
    }
}

fn finalizers(meta: &Map<String, Value>, builtin: bool, errors: &mut Vec<FieldError>) {
    let at = "metadata.finalizers";
    let list = strings(meta.get("finalizers").and_then(Value::as_array));
    for finalizer in &list {
        errors.extend(all_invalid(at, finalizer, qualified_name(finalizer)));
    }
    if ["orphan", "foregroundDeletion"].iter().all(|f| list.iter().any(|g| g == f)) {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(at, &json!(list), detail));
    }
    if !builtin {
        return;
    }
    for (i, finalizer) in list.iter().enumerate() {
        if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer.as_str()) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(format!("{at}[{i}]"), &json!(finalizer), detail));
        }
    }
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn strings(list: Option<&Vec<Value>>) -> Vec<String> {
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Go's wording for a JSON value that does not fit its field.
pub(crate) fn cannot_unmarshal(value: &Value, at: &str, want: &str) -> String {
    let got = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {got} into Go struct field {at} of type {want}")
}

fn expect_string(value: &Value, at: &str) -> Result<(), String> {
    if value.is_null() || value.is_string() { Ok(()) } else { Err(cannot_unmarshal(value, at, "string")) }
}

fn expect_integer(value: &Value, at: &str) -> Result<(), String> {
    if value.is_null() || value.is_i64() { Ok(()) } else { Err(cannot_unmarshal(value, at, "int64")) }
}

fn expect_time(value: &Value, at: &str) -> Result<(), String> {
    match value {
        Value::Null => Ok(()),
        Value::String(s) if s.parse::<jiff::Timestamp>().is_ok() => Ok(()),
        Value::String(s) => Err(format!(
            "parsing time {} as \"2006-01-02T15:04:05Z07:00\": cannot parse {}",
            quote(s),
            quote(s)
        )),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Err(cannot_unmarshal(value, at, "string"))
        }
    }
}

fn expect_object<'a>(
    value: &'a Value,
    at: &str,
    want: &str,
) -> Result<Option<&'a Map<String, Value>>, String> {
    match value.as_object() {
        None if !value.is_null() => Err(cannot_unmarshal(value, at, want)),
        found => Ok(found),
    }
}

fn expect_array<'a>(value: &'a Value, at: &str, want: &str) -> Result<&'a [Value], String> {
    match value.as_array() {
        None if !value.is_null() => Err(cannot_unmarshal(value, at, want)),
        found => Ok(found.map_or(&[], Vec::as_slice)),
    }
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
mod tests {
    use super::*;

    const CONFIG_MAP: Metadata = Metadata { name: NameRule::Subdomain, namespaced: true, builtin: true };

    fn fields(meta: Value) -> Vec<(String, &'static str)> {
        let errors = metadata(&json!({"metadata": meta}), CONFIG_MAP);
        errors.into_iter().map(|e| (e.field, e.reason.as_str())).collect()
    }

    #[test]
    fn a_plain_object_has_no_complaints() {
        let meta = json!({
            "name": "a", "namespace": "n", "labels": {"app.kubernetes.io/name": "x", "e": ""},
            "annotations": {"Example.com/UPPER": "anything at all"}, "finalizers": ["example.com/hold", "orphan"],
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "1", "controller": true}],
        });
        assert_eq!(fields(meta), []);
    }

    #[test]
    fn each_bad_value_names_its_field_and_reason() {
        let at = |field: &str, reason| vec![(field.to_owned(), reason)];
        let ns = |mut meta: Value| {
            meta["namespace"] = json!("n");
            fields(meta)
        };
        assert_eq!(ns(json!({"name": "Bad_Name"})), at("metadata.name", "FieldValueInvalid"));
        assert_eq!(ns(json!({})), at("metadata.name", "FieldValueRequired"));
        assert_eq!(fields(json!({"name": "a"})), at("metadata.namespace", "FieldValueRequired"));
        assert_eq!(ns(json!({"name": "a", "generateName": "job-"})), []);
        assert_eq!(
            ns(json!({"name": "a", "generateName": "_"})),
            at("metadata.generateName", "FieldValueInvalid")
        );
        assert_eq!(
            ns(json!({"name": "a", "labels": {"a b": "x"}})),
            at("metadata.labels", "FieldValueInvalid")
        );
        assert_eq!(
            ns(json!({"name": "a", "finalizers": ["hold"]})),
            at("metadata.finalizers[0]", "FieldValueInvalid")
        );
        let owner = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name, "controller": true});
        let two = json!({"name": "a", "ownerReferences": [owner("x"), owner("y")]});
        assert_eq!(ns(two), at("metadata.ownerReferences", "FieldValueInvalid"));
        let big = json!({"name": "a", "annotations": {"k": "x".repeat(ANNOTATIONS_MAX_BYTES)}});
        assert_eq!(ns(big), at("metadata.annotations", "FieldValueTooLong"));
    }

    #[test]
    fn wrong_shapes_are_decoding_errors_and_null_is_absence() {
        for (meta, part) in [
            (
                json!({"labels": ["x"]}),
                "cannot unmarshal array into Go struct field ObjectMeta.metadata.labels",
            ),
            (json!({"labels": {"a": 1}}), "of type string"),
            (json!({"name": 5}), "metadata.name of type string"),
            (json!({"generation": "1"}), "of type int64"),
            (json!({"finalizers": "x"}), "of type []string"),
            (json!({"ownerReferences": [{"controller": "yes"}]}), "of type bool"),
            (json!({"creationTimestamp": "yesterday"}), "parsing time"),
            (json!("x"), "of type v1.ObjectMeta"),
        ] {
            let error = metadata_shape(&json!({"metadata": meta})).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let fine = json!({"labels": null, "creationTimestamp": null, "name": "a", "unknown": [1]});
        assert_eq!(metadata_shape(&json!({"metadata": fine})), Ok(()));
        assert_eq!(metadata_shape(&json!({})), Ok(()));
    }

    #[test]
    fn an_object_being_deleted_takes_no_new_finalizers() {
        let old = json!({"metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}});
        let mut new = old.clone();
        new["metadata"]["finalizers"] = json!([]);
        assert_eq!(metadata_update(&new, &old), []);
        new["metadata"]["finalizers"] = json!(["a/b", "c/d"]);
        let errors = metadata_update(&new, &old);
        assert_eq!(errors[0].reason.as_str(), "FieldValueForbidden");
        new["metadata"]["finalizers"] = json!(["a/b"]);
        new["metadata"]["uid"] = json!("other");
        assert_eq!(metadata_update(&new, &old)[0].field, "metadata.uid");
    }
}
