//! What does a CustomResourceDefinition make the server serve?

#![expect(clippy::indexing_slicing, reason = "reading a Value by key never panics: what is absent is null")]

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::builtin::RULES;
use super::columns::Column;
use super::kinds::set;
use super::{Content, Resource, Rules, Scale, Selectable};
use crate::env::to_second;
use crate::patch::merge;
use crate::schema::Schema;
use crate::store::Ids;
use crate::validation::{FieldError, dns1035_label};

/// The finalizer that keeps a definition until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// Where definitions are kept.
pub(crate) const TABLE: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// What a definition says about one version's content.
#[derive(Debug)]
pub struct Custom {
    /// The definition's name.
    pub definition: String,
    /// `openAPIV3Schema` as written, for documents.
    pub(crate) written_schema: Value,
    /// The definition is being deleted: nothing new.
    pub terminating: bool,
}

/// The resources of one definition: one per served version, none before it is established.
pub(crate) fn resources(crd: &Value) -> Vec<Resource> {
    let spec = &crd["spec"];
    if !condition_holds(crd, "Established") {
        return Vec::new();
    }
    let text = |value: &Value| Arc::<str>::from(value.as_str().unwrap_or_default());
    let texts = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    let names = &crd["status"]["acceptedNames"];
    let ids = |version: &str| Ids {
        group: text(&spec["group"]),
        version: version.into(),
        kind: text(&names["kind"]),
        plural: text(&names["plural"]),
        namespaced: spec["scope"] == "Namespaced",
    };
    let stored = Arc::new(ids(storage_version(crd).unwrap_or_default()));
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let served = versions.iter().filter(|v| v["served"] == true);
    served
        .map(|version| Resource {
            ids: Arc::new(ids(version["name"].as_str().unwrap_or_default())),
            stored: stored.clone(),
            table: stored.group_resource().into(),
            list_kind: text(&names["listKind"]),
            singular: text(&names["singular"]),
            short_names: texts(&names["shortNames"]),
            categories: texts(&names["categories"]),
            status: version["subresources"]["status"].is_object(),
            scale: scale(&version["subresources"]["scale"]),
            selectable: selectable(&version["selectableFields"]),
            columns: columns(&version["additionalPrinterColumns"]),
            rules: Rules { generation: true, unconditional_update: false, ..RULES },
            schema: schema(version),
            content: Content::Custom(Arc::new(Custom {
                definition: crd["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
                written_schema: version["schema"]["openAPIV3Schema"].clone(),
                terminating: !crd["metadata"]["deletionTimestamp"].is_null(),
            })),
        })
        .collect()
}

/// A definition's columns, or the age if it names none.
fn columns(columns: &Value) -> Vec<Column> {
    let mut out = vec![Column::name()];
    match columns.as_array().map(Vec::as_slice).unwrap_or_default() {
        [] => out.push(Column::age()),
        some => out.extend(some.iter().map(Column::custom)),
    }
    out
}

/// Fills in what a definition leaves out.
pub(crate) fn default(crd: &mut Value) {
    let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let missing = |v: Option<&Value>| v.and_then(Value::as_str).is_none_or(str::is_empty);
        if missing(names.get("singular")) {
            names.insert("singular".into(), kind.to_lowercase().into());
        }
        if missing(names.get("listKind")) {
            names.insert("listKind".into(), format!("{kind}List").into());
        }
    }
    spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
}

/// The status a definition gets: its names are taken unless `others` have them.
pub(crate) fn settle(crd: &mut Value, others: &[Bytes], now: jiff::Timestamp) {
    let conflict = name_conflict(crd, others);
    let stored = stored_versions(crd);
    let names = crd["spec"]["names"].clone();
    let was_established = condition_holds(crd, "Established");
    let (accepted, established) = match &conflict {
        None => (
            ("True", "NoConflicts", "no conflicts found".to_owned()),
            ("True", "InitialNamesAccepted", "the initial names have been accepted".to_owned()),
        ),
        Some((reason, message)) => (
            ("False", *reason, message.clone()),
            ("False", "NotAccepted", "not all names are accepted".to_owned()),
        ),
    };
    let Some(crd) = crd.as_object_mut() else { return };
    let status = crd.entry("status").or_insert_with(|| json!({}));
    set_condition(status, "NamesAccepted", accepted, now);
    // Once established a definition stays so: its objects do not vanish because names changed.
    if !was_established {
        set_condition(status, "Established", established, now);
    }
    if conflict.is_none() {
        set(status, "acceptedNames", names);
    } else if !status["acceptedNames"].is_object() {
        set(status, "acceptedNames", json!({"kind": "", "plural": ""}));
    }
    set(status, "storedVersions", stored);
}

/// Whether a definition as it is kept already says all that a merge patch would make it say.
pub(crate) fn says(kept: &Value, patch: &Value) -> bool {
    let mut patched = kept.clone();
    merge(&mut patched, patch);
    default(&mut patched);
    patched == *kept
}

/// Marks a definition as going away.
pub(crate) fn terminate(crd: &mut Value, now: jiff::Timestamp) {
    let saying = ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress".to_owned());
    let Some(crd) = crd.as_object_mut() else { return };
    let status = crd.entry("status").or_insert_with(|| json!({}));
    set_condition(status, "Terminating", saying, now);
}

/// The version new objects are kept in.
pub(crate) fn storage_version(crd: &Value) -> Option<&str> {
    let versions = crd["spec"]["versions"].as_array()?;
    versions.iter().find(|v| v["storage"] == true)?["name"].as_str()
}

/// What is wrong with a definition.
pub(crate) fn validate(crd: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &crd["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (plural, group) = (text(&spec["names"]["plural"]), text(&spec["group"]));
    for (field, value) in [
        ("spec.group", &spec["group"]),
        ("spec.scope", &spec["scope"]),
        ("spec.names.plural", &spec["names"]["plural"]),
        ("spec.names.kind", &spec["names"]["kind"]),
    ] {
        if text(value).is_empty() {
            errors.push(FieldError::required(field, ""));
        }
    }
    if !group.is_empty() && !group.contains('.') {
        let why = "should be a domain with at least one dot";
        errors.push(FieldError::invalid("spec.group", &spec["group"], why));
    }
    if spec["preserveUnknownFields"] == true {
        let why = "must be false in order to use defaults in the schema";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", &spec["preserveUnknownFields"], why));
    }
    for key in ["plural", "singular", "kind", "listKind"] {
        let (field, name) = (format!("spec.names.{key}"), text(&spec["names"][key]).to_lowercase());
        // A kind is written in capitals, a plural never.
        let name = if key == "plural" { text(&spec["names"][key]) } else { name };
        if !name.is_empty() {
            errors.extend(FieldError::each_invalid(&field, &spec["names"][key], dns1035_label(&name)));
        }
    }
    if crd["metadata"]["name"] != format!("{plural}.{group}") {
        let name = &crd["metadata"]["name"];
        errors.push(FieldError::invalid("metadata.name", name, "must be spec.names.plural+\".\"+spec.group"));
    }
    if !["Namespaced", "Cluster", ""].contains(&text(&spec["scope"]).as_str()) {
        errors.push(FieldError::not_supported("spec.scope", &spec["scope"], &["Cluster", "Namespaced"]));
    }
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if versions.iter().filter(|v| v["storage"] == true).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", &spec["versions"], detail));
    }
    if !versions.iter().any(|v| v["storage"] == true) {
        let why = "must have at least one stored version";
        errors.push(FieldError::invalid("status.storedVersions", &Value::Array(Vec::new()), why));
    }
    for (at, version) in versions.iter().enumerate() {
        let field = format!("spec.versions[{at}]");
        let (named, name) = (format!("{field}.name"), &version["name"]);
        errors.extend(FieldError::each_invalid(&named, name, dns1035_label(&text(name))));
        if versions.iter().take(at).any(|v| v["name"] == *name) {
            errors.push(FieldError::duplicate(named, name));
        }
        let field = format!("{field}.schema.openAPIV3Schema");
        let schema = &version["schema"]["openAPIV3Schema"];
        if schema.is_null() {
            errors.push(FieldError::required(field, "schemas are required"));
        } else {
            errors.extend(Schema::compile(schema, &field).err().unwrap_or_default());
        }
    }
    if let Some(old) = old.filter(|old| condition_holds(old, "Established")) {
        for (field, pointer) in [
            ("spec.group", "/spec/group"),
            ("spec.scope", "/spec/scope"),
            ("spec.names.plural", "/spec/names/plural"),
            ("spec.names.kind", "/spec/names/kind"),
        ] {
            let (now, before) = (crd.pointer(pointer), old.pointer(pointer));
            if now != before {
                errors.push(FieldError::invalid(field, now.unwrap_or(&Value::Null), "field is immutable"));
            }
        }
    }
    errors
}

/// A stored definition was validated; one from before a rule existed keeps everything.
fn schema(version: &Value) -> Schema {
    Schema::compile(&version["schema"]["openAPIV3Schema"], "").unwrap_or_else(|errors| {
        tracing::warn!(?errors, "a stored schema no longer compiles: its objects are not checked");
        Schema::anything()
    })
}

fn stored_versions(crd: &Value) -> Value {
    let mut stored: Vec<Value> = crd["status"]["storedVersions"].as_array().cloned().unwrap_or_default();
    if let Some(storage) = storage_version(crd)
        && !stored.iter().any(|v| v == storage)
    {
        stored.push(storage.into());
    }
    stored.into()
}

/// What another definition takes: its schemas, which are most of it, are not read.
#[derive(Debug, Deserialize)]
struct Rival {
    metadata: RivalMetadata,
    spec: RivalSpec,
    #[serde(default)]
    status: RivalStatus,
}

#[derive(Debug, Deserialize)]
struct RivalMetadata {
    name: String,
}

#[derive(Debug, Deserialize)]
struct RivalSpec {
    group: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RivalStatus {
    #[serde(default)]
    accepted_names: Value,
}

fn name_conflict(crd: &Value, others: &[Bytes]) -> Option<(&'static str, String)> {
    let mine = &crd["spec"]["names"];
    let others = others.iter().filter_map(|text| serde_json::from_slice::<Rival>(text).ok());
    let rivals = others
        .filter(|o| crd["metadata"]["name"] != *o.metadata.name && crd["spec"]["group"] == *o.spec.group);
    for rival in rivals {
        let taken = &rival.status.accepted_names;
        for (field, reason) in [
            ("plural", "PluralConflict"),
            ("singular", "SingularConflict"),
            ("kind", "KindConflict"),
            ("listKind", "ListKindConflict"),
        ] {
            if mine[field].is_string() && mine[field] == taken[field] {
                return Some((reason, format!("{} is already in use", mine[field])));
            }
        }
    }
    None
}

fn condition_holds(crd: &Value, kind: &str) -> bool {
    let conditions = crd["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == kind && c["status"] == "True")
}

fn set_condition(status: &mut Value, kind: &str, saying: (&str, &str, String), now: jiff::Timestamp) {
    let (holds, reason, message) = saying;
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let at = conditions.iter().position(|c| c["type"] == kind);
    let since = at
        .and_then(|at| conditions.get(at))
        .filter(|c| c["status"] == holds)
        .map_or_else(|| to_second(now).into(), |c| c["lastTransitionTime"].clone());
    let condition = json!({
        "type": kind, "status": holds, "reason": reason, "message": message, "lastTransitionTime": since,
    });
    match at.and_then(|at| conditions.get_mut(at)) {
        Some(slot) => *slot = condition,
        None => conditions.push(condition),
    }
    set(status, "conditions", conditions.into());
}

fn scale(scale: &Value) -> Option<Scale> {
    Some(Scale {
        spec: pointer(scale["specReplicasPath"].as_str()?),
        status: pointer(scale["statusReplicasPath"].as_str()?),
        selector: scale["labelSelectorPath"].as_str().map(pointer),
    })
}

fn selectable(fields: &Value) -> Vec<Selectable> {
    let paths = fields.as_array().into_iter().flatten().filter_map(|f| f["jsonPath"].as_str());
    paths
        .map(|path| Selectable {
            label: path.trim_start_matches('.').into(),
            pointer: pointer(path),
            absent: "",
        })
        .collect()
}

/// `.spec.replicas` as `/spec/replicas`: the simple JSON paths CRDs may use here.
fn pointer(path: &str) -> String {
    path.replace('.', "/")
}
