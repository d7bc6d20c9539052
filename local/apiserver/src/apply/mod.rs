//! Who owns which field, and what does an apply make of the object?
//!
//! Server-side apply, as Kubernetes' structured-merge-diff defines it. Every write passes through one of two
//! functions, both pure: [`apply`] for apply patches, [`update`] for every other write.
//!
//! ```text
//! apply:   live ──merge── config        update:   live ──compare── new
//!            │  remove what this            │  who wrote a change owns it,
//!            │  manager applied before,     │  everyone else loses it
//!            │  does not now, and nobody    ▼
//!            │  else owns                 managedFields
//!            ▼
//!          compare with live: a change to what others own is a conflict, or taken with force
//! ```
//!
//! | file | question |
//! |---|---|
//! | `fields` | which fields does somebody own? |
//! | `types` | what is this value to its schema? |
//! | `extract` | which fields does this object have? |
//! | `compare` | what changed between two objects? |
//! | `merge` | what is the object after a configuration is laid over it? |
//! | `managed` | who owns what, as `managedFields` tells it? |
//! | `kubectl` | what does kubectl's older way of applying allow and ask for? |
//! | `strategic` | what does a strategic merge patch make of an object? |

mod compare;
mod extract;
mod fields;
mod kubectl;
mod managed;
mod merge;
pub mod strategic;
mod types;

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
mod tests;

use crate::env::to_second;
use crate::schema::Schema;
use fields::{Element, FieldSet};
use jiff::Timestamp;
use managed::{Managed, Operation, Owned, Owner};
use serde_json::{Map, Value};
use std::fmt;
use std::sync::LazyLock;
use types::Type;

pub use fields::FieldsError;

/// Who writes, through which endpoint, and when.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    /// `fieldManager`, or what the user agent says before its first slash.
    pub manager: &'a str,
    /// The version written at: `apps/v1`.
    pub api_version: &'a str,
    /// `status`, `scale`…; empty for the object itself.
    pub subresource: &'a str,
    /// Top-level fields this endpoint puts back whatever is written: `status` for the object itself where it
    /// has a status subresource, `spec` for `status`.
    pub resets: &'a [&'a str],
    pub now: Timestamp,
}

/// One field somebody else owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// `conflict with "kubectl" using v1`: the message of the cause.
    pub message: String,
    /// `.spec.replicas`: the field of the cause.
    pub field: String,
    owner: String,
}

/// Why a configuration was not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// `409 Conflict`, with a cause for each.
    #[error("{}", ConflictMessage(.0))]
    Conflicts(Vec<Conflict>),
    /// `400 BadRequest`: the request cannot be an apply.
    #[error("{0}")]
    BadRequest(String),
    /// The configuration does not fit the schema.
    #[error("failed to create typed patch object ({object}): {why}")]
    Misfit { object: String, why: String },
    /// The stored ownership cannot be read.
    #[error("failed to decode managed fields: {0}")]
    Managed(#[from] FieldsError),
}

struct ConflictMessage<'a>(&'a [Conflict]);

impl fmt::Display for ConflictMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.0 {
            return write!(f, "Apply failed with 1 conflict: {}: {}", only.message, only.field);
        }
        write!(f, "Apply failed with {} conflicts: ", self.0.len())?;
        let mut last: Option<&str> = None;
        for conflict in self.0 {
            if last != Some(conflict.owner.as_str()) {
                let line = if last.is_some() { "\n" } else { "" };
                write!(f, "{line}conflicts with {}:", conflict.owner)?;
                last = Some(&conflict.owner);
            }
            write!(f, "\n- {}", conflict.field)?;
        }
        Ok(())
    }
}

/// The owner of everything that was there before anybody was tracked.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Lays the configuration `applied` over `live` (nothing, when the object is to be created).
///
/// The answer is the whole new object with its `managedFields` and defaults. It is not defaulted again by the
/// caller: a null that removal left must reach validation, as it does on a real server.
pub fn apply(
    live: Option<&Value>,
    applied: &Value,
    schema: &Schema,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    let ty = Type::resource(schema.root());
    readable(applied, ty, writer)?;
    let mut managed = live.map(Managed::decode).transpose()?.unwrap_or_default();
    managed.reconcile(ty);
    let bare = live.map_or_else(|| Value::Object(Map::new()), without_managed_fields);
    if managed.0.is_empty() && live.is_some() {
        let empty = Value::Object(Map::new());
        let everyone = Writer { manager: BEFORE_FIRST_APPLY, ..*writer };
        track(&empty, &bare, ty, &everyone, &mut managed);
    }

    let owner = Owner::new(writer.manager, Operation::Apply, writer.api_version, writer.subresource);
    let last = managed.0.get(&owner).cloned();
    let mut wanted = extract::fields(ty, applied);
    wanted.remove_trees(&resets(writer));
    let time = last.as_ref().and_then(|l| l.time.clone());
    managed.0.insert(owner.clone(), Owned { fields: wanted, version: writer.api_version.to_owned(), time });

    let merged = merge::merge(ty, &bare, applied);
    let pruned = prune(ty, merged, &managed, &owner, last.as_ref());
    let changes = compare::changes(ty, &bare, &pruned).without(&resets(writer));
    let changed = changes.set();
    let mut conflicts = contested(&managed, &owner, &changed);
    if writer.manager == kubectl::MANAGER && !conflicts.is_empty() {
        let allowed = kubectl::last_applied(ty, &bare);
        conflicts.retain(|c| !allowed.contains(&c.field));
    }
    if !force && !conflicts.is_empty() {
        return Err(ApplyError::Conflicts(conflicts));
    }
    dispossess(&mut managed, Some(&owner), &changed, &changes.removed);
    // Only now: while pruning, the name an applier gives counts as a field it keeps.
    if let Some(mine) = managed.0.get_mut(&owner) {
        mine.fields.subtract(untracked());
    }
    managed.0.retain(|_, owned| !owned.fields.is_empty());

    // An apply that changes nothing is not dated, not even a manager's first.
    if compare::equal(&bare, &pruned) {
        let mut object = bare;
        managed.write(&mut object);
        return Ok(object);
    }
    if let Some(mine) = managed.0.get_mut(&owner) {
        mine.time = Some(to_second(writer.now));
    }
    let mut object = pruned;
    schema.fill_applied(&mut object);
    if writer.manager == kubectl::MANAGER {
        kubectl::refresh(&mut object, applied);
    }
    managed.write(&mut object);
    Ok(object)
}

/// Records in `new` who owns what after a write that is not an apply.
///
/// `live` is what the write replaces, if anything. A write may carry `managedFields` of its own (they are then
/// the starting point) or one empty entry, which gives up all ownership.
pub fn update(live: Option<&Value>, new: &mut Value, schema: &Schema, writer: &Writer<'_>) {
    let ty = Type::resource(schema.root());
    let empty = Value::Object(Map::new());
    let live_or_empty = live.unwrap_or(&empty);
    let of_live = || Managed::decode(live_or_empty).unwrap_or_default();
    let mut managed = if !writer.subresource.is_empty() {
        of_live()
    } else if is_reset(new) {
        Managed::default()
    } else {
        match Managed::decode(new) {
            Ok(managed) if !managed.0.is_empty() => managed,
            Ok(_) | Err(_) => of_live(),
        }
    };
    managed.reconcile(ty);
    track(live_or_empty, new, ty, writer, &mut managed);
    managed.cap_updaters();
    managed.write(new);
}

/// Gives the writer what it changed, and takes that from everyone else.
fn track(live: &Value, new: &Value, ty: Type<'_>, writer: &Writer<'_>, managed: &mut Managed) {
    let changes = compare::changes(ty, live, new).without(&resets(writer));
    let mut fields = changes.set();
    dispossess(managed, None, &fields, &changes.removed);
    fields.subtract(untracked());
    if fields.is_empty() {
        return;
    }
    let owner = Owner::new(writer.manager, Operation::Update, writer.api_version, writer.subresource);
    if let Some(before) = managed.0.remove(&owner) {
        fields.absorb(before.fields);
    }
    let owned = Owned { fields, version: writer.api_version.to_owned(), time: Some(to_second(writer.now)) };
    managed.0.insert(owner, owned);
}

/// Takes changed and removed fields from everyone but `keeper`; who has nothing left is gone.
fn dispossess(managed: &mut Managed, keeper: Option<&Owner>, changed: &FieldSet, removed: &FieldSet) {
    for (owner, owned) in &mut managed.0 {
        if Some(owner) != keeper {
            owned.fields.subtract(changed);
            owned.fields.subtract(removed);
        }
    }
    managed.0.retain(|_, owned| !owned.fields.is_empty());
}

/// What the change would take from others.
fn contested(managed: &Managed, mine: &Owner, changed: &FieldSet) -> Vec<Conflict> {
    let others = managed.0.iter().filter(|(owner, owned)| *owner != mine && owned.fields.meets(changed));
    others
        .flat_map(|(owner, owned)| {
            let described = owner.described();
            owned.fields.intersection(changed).paths().into_iter().map(move |field| Conflict {
                message: format!("conflict with {described}"),
                field,
                owner: described.clone(),
            })
        })
        .collect()
}

/// Removes what the manager applied last time, does not apply now, and nobody else owns.
fn prune(ty: Type<'_>, merged: Value, managed: &Managed, mine: &Owner, last: Option<&Owned>) -> Value {
    let Some(last) = last.filter(|l| !l.fields.is_empty()) else { return merged };
    // Who still applies all of it gives nothing up: by far the most applies.
    if managed.0.get(mine).is_some_and(|now| last.fields.within(&now.fields)) {
        return merged;
    }
    let named = |set: &FieldSet| extract::with_named_fields(set, ty);
    let last = named(&last.fields);
    let all = named(&extract::fields(ty, &merged));

    // Without everything applied last time…
    let pruned = removed(ty, &merged, &last);
    // …but with what anybody owns now, this manager's new configuration among it…
    let owned = managed.0.values().fold(FieldSet::default(), |all, o| all.union(&o.fields));
    let keep = named(&extract::fields(ty, &pruned)).union(&named(&owned));
    let pruned = removed(ty, &merged, &all.difference(&keep));
    // …and with what this manager never applied.
    let gone = all.difference(&named(&extract::fields(ty, &pruned))).intersection(&last);
    removed(ty, &merged, &gone)
}

fn removed(ty: Type<'_>, value: &Value, gone: &FieldSet) -> Value {
    let left = merge::remove(ty, value, gone);
    if left.is_null() { Value::Object(Map::new()) } else { left }
}

fn readable(applied: &Value, ty: Type<'_>, writer: &Writer<'_>) -> Result<(), ApplyError> {
    let text = |pointer: &str| applied.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let version = text("/apiVersion");
    if version != writer.api_version {
        return Err(ApplyError::BadRequest(format!(
            "Incorrect version specified in apply patch. Specified patch version: {version}, expected: {}",
            writer.api_version
        )));
    }
    if applied.pointer("/metadata/managedFields").is_some_and(|m| !m.is_null()) {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    let misfits = extract::misfits(ty, applied);
    if misfits.is_empty() {
        return Ok(());
    }
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let place = if namespace.is_empty() { format!("/{name}") } else { format!("{namespace}/{name}") };
    let object = format!("{place}; {version}, Kind={}", text("/kind"));
    let why = match misfits.as_slice() {
        [only] => only.clone(),
        many => format!("errors:\n  {}", many.join("\n  ")),
    };
    Err(ApplyError::Misfit { object, why })
}

/// Metadata nobody owns: identity, and what the server writes itself.
fn untracked() -> &'static FieldSet {
    static UNTRACKED: LazyLock<FieldSet> = LazyLock::new(untracked_fields);
    &UNTRACKED
}

fn untracked_fields() -> FieldSet {
    let mut set = FieldSet::default();
    for name in ["apiVersion", "kind", "metadata"] {
        set.insert(&[Element::field(name)]);
    }
    let of_meta = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    for name in of_meta {
        set.insert(&[Element::field("metadata"), Element::field(name)]);
    }
    set
}

fn resets(writer: &Writer<'_>) -> FieldSet {
    let mut set = FieldSet::default();
    for field in writer.resets {
        let path: Vec<Element> = field.split('.').map(Element::field).collect();
        set.insert(&path);
    }
    set
}

/// One empty entry: the writer asks that all ownership be forgotten.
fn is_reset(object: &Value) -> bool {
    let list = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    matches!(list.map(Vec::as_slice), Some([Value::Object(only)]) if only.values().all(Value::is_null))
}

fn without_managed_fields(object: &Value) -> Value {
    let Some(body) = object.as_object() else { return object.clone() };
    let without = |meta: &Map<String, Value>| -> Map<String, Value> {
        let kept = meta.iter().filter(|(key, _)| *key != "managedFields");
        kept.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let members = body.iter().map(|(key, value)| match (key.as_str(), value) {
        ("metadata", Value::Object(meta)) => (key.clone(), Value::Object(without(meta))),
        (_, value) => (key.clone(), value.clone()),
    });
    Value::Object(members.collect())
}
