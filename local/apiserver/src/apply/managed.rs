//! Who owns what, as `metadata.managedFields` tells it?
//!
//! An entry belongs to a manager, an operation, a version and a subresource. The version of an applier is
//! not part of its identity: whoever applies again at another version is the same applier.

use super::extract;
use super::fields::{FieldSet, FieldsError};
use super::types::Type;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// How somebody came to own fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

impl Operation {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// Whose entry it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner {
    pub(crate) manager: String,
    pub(crate) operation: Operation,
    /// Empty for appliers.
    pub(crate) version: String,
    pub(crate) subresource: String,
}

impl Owner {
    pub(crate) fn new(manager: &str, operation: Operation, version: &str, subresource: &str) -> Self {
        let version = match operation {
            Operation::Apply => String::new(),
            Operation::Update => version.to_owned(),
        };
        let manager = if manager.is_empty() { "unknown" } else { manager };
        Self { manager: manager.to_owned(), operation, version, subresource: subresource.to_owned() }
    }

    /// As conflicts name it: `"kubectl" with subresource "status" using v1`.
    pub(crate) fn described(&self) -> String {
        let mut text = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        match self.operation {
            Operation::Apply => {}
            Operation::Update => text.push_str(&format!(" using {}", self.version)),
        }
        text
    }
}

/// What an owner owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) fields: FieldSet,
    pub(crate) version: String,
    /// As written, so that an entry nobody touches stays byte for byte what it was.
    pub(crate) time: Option<String>,
}

impl Owned {
    /// When it was last written, in seconds; 0 where nobody said.
    fn second(&self) -> i64 {
        let time = self.time.as_deref().and_then(|t| t.parse::<Timestamp>().ok());
        time.map_or(0, Timestamp::as_second)
    }
}

/// The owners of one object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Managed(pub(crate) BTreeMap<Owner, Owned>);

/// Updaters beyond this many are merged, the oldest first: kube-apiserver's limit, which bounds the size of
/// `managedFields` on objects that many processes write.
const MAX_UPDATERS: usize = 10;

/// The owner that merged updaters become.
const ANCIENT: &str = "ancient-changes";

impl Managed {
    pub(crate) fn decode(object: &Value) -> Result<Self, FieldsError> {
        let mut managed = Self::default();
        let list = object.pointer("/metadata/managedFields").and_then(Value::as_array);
        for entry in list.into_iter().flatten() {
            let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
            let operation = match text("operation") {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err(FieldsError::Shape),
            };
            if !matches!(text("fieldsType"), "" | "FieldsV1") {
                return Err(FieldsError::Shape);
            }
            let owner = Owner::new(text("manager"), operation, text("apiVersion"), text("subresource"));
            let fields = match entry.get("fieldsV1") {
                None | Some(Value::Null) => FieldSet::default(),
                Some(fields) => FieldSet::decode(fields)?,
            };
            let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
            managed.0.insert(owner, Owned { fields, version: text("apiVersion").to_owned(), time });
        }
        Ok(managed)
    }

    /// Reads every owner's fields with the schema of today, which may have changed since they were written.
    pub(crate) fn reconcile(&mut self, ty: Type<'_>) {
        for owned in self.0.values_mut().filter(|owned| !extract::is_reconciled(&owned.fields, ty)) {
            owned.fields = extract::reconciled(&owned.fields, ty);
        }
    }

    /// The list as Kubernetes orders it: appliers first, then by time, then by name.
    pub(crate) fn encode(&self) -> Vec<Value> {
        let mut entries: Vec<(&Owner, &Owned)> = self.0.iter().collect();
        entries.sort_by(|(a, x), (b, y)| {
            let a = (a.operation, x.second(), &a.manager, &x.version, &a.subresource);
            a.cmp(&(b.operation, y.second(), &b.manager, &y.version, &b.subresource))
        });
        entries.into_iter().map(|(owner, owned)| entry(owner, owned)).collect()
    }

    /// Writes the list into an object, or takes it out where nobody owns anything.
    pub(crate) fn write(&self, object: &mut Value) {
        let entries = self.encode();
        let Some(map) = object.as_object_mut() else { return };
        let meta = map.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        let Some(meta) = meta.as_object_mut() else { return };
        if entries.is_empty() {
            meta.remove("managedFields");
        } else {
            meta.insert("managedFields".to_owned(), Value::Array(entries));
        }
    }

    /// Merges the oldest updaters until few enough are left.
    pub(crate) fn cap_updaters(&mut self) {
        // No object has fewer owners than updaters.
        if self.0.len() <= MAX_UPDATERS {
            return;
        }
        let mut updaters: Vec<(i64, Owner)> = self
            .0
            .iter()
            .filter(|(owner, _)| owner.operation == Operation::Update)
            .map(|(owner, owned)| (owned.second(), owner.clone()))
            .collect();
        let mut count = updaters.len();
        updaters.sort();
        let mut first_of_version: BTreeMap<String, Owner> = BTreeMap::new();
        for (_, owner) in updaters {
            if count <= MAX_UPDATERS {
                return;
            }
            let version = owner.version.clone();
            let bucket = Owner::new(ANCIENT, Operation::Update, &version, "");
            let Some(first) = first_of_version.get(&version) else {
                first_of_version.insert(version, owner);
                continue;
            };
            if !self.0.contains_key(&bucket)
                && let Some(owned) = self.0.remove(first)
            {
                self.0.insert(bucket.clone(), owned);
            }
            if let (Some(owned), Some(into)) = (self.0.remove(&owner), self.0.get_mut(&bucket)) {
                into.fields = into.fields.union(&owned.fields);
                into.time = owned.time;
                count -= 1;
            }
        }
    }
}

fn entry(owner: &Owner, owned: &Owned) -> Value {
    let mut entry = json!({
        "manager": owner.manager,
        "operation": owner.operation.as_str(),
        "apiVersion": owned.version,
        "fieldsType": "FieldsV1",
        "fieldsV1": owned.fields.encode(),
    });
    if let Some(map) = entry.as_object_mut() {
        if let Some(time) = &owned.time {
            map.insert("time".to_owned(), json!(time));
        }
        if !owner.subresource.is_empty() {
            map.insert("subresource".to_owned(), json!(owner.subresource));
        }
    }
    entry
}
