//! What is kept before an action is done, so that it can be taken back (I4)?
//!
//! It stands in an immutable Secret in the executor namespace: values may be secret. The status has its name, its SHA-256
//! and what may be shown.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pawl_api::meta::{names, text};
use pawl_api::remedy::actions::PatchType;
use pawl_api::remedy::kubernetes_execution::{UndoRef, undo_name};
use pawl_api::remedy::{Action, AffectedResource, RollbackInformation, annotations};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::definition::Before;
use super::seen::Place;
use super::{Captured, Order, definition, diff};
use crate::apply::difference;
use crate::object::Key;

/// The key of the Secret under which it stands.
pub const KEY: &str = "undo.json";

/// A Job starts within seconds, and one action is a handful of requests.
const ESTIMATE: &str = "10s";

/// The longest words about one object that a status takes.
const MAX_WORDS: usize = 1024;

/// The Secret with what the execution of this UID kept.
pub fn secret(executor_namespace: &str, uid: &str) -> Key {
    Key::new(Some(executor_namespace), &undo_name(uid))
}

/// What one execution kept.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    pub uid: String,
    pub action: Action,
    /// `spec.parameters`, as they were.
    pub parameters: Map<String, Value>,
    pub undo: Undo,
    pub targets: Vec<Target>,
    /// What may be told of the targets.
    pub described: Vec<AffectedResource>,
    /// Of the fields that the action reads or writes.
    pub digest: String,
}

/// How it is taken back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Undo {
    Action {
        action: Action,
        parameters: Map<String, Value>,
    },
    /// By the same action, which puts back what is kept here.
    Restore,
    /// Not at all, and why.
    Never(String),
}

/// One target, as it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    pub place: Place,
    /// `None`: it was not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    pub restore: Restore,
}

/// What puts an object back as it was.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Restore {
    /// Nothing can, or nothing need.
    Nothing,
    /// It was not there.
    Absent,
    /// A merge patch.
    Merge(Value),
    /// A strategic merge patch.
    Strategic(Value),
    /// Whatever makes all that a manifest says of it what it is here.
    Fields(Value),
    /// What the action itself knows how to put back.
    Own(Value),
}

impl std::fmt::Debug for Restore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the content: it may be a Secret's (I6).
        f.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Absent => "Absent",
            Self::Merge(_) => "Merge",
            Self::Strategic(_) => "Strategic",
            Self::Fields(_) => "Fields",
            Self::Own(_) => "Own",
        })
    }
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kept by {}", self.uid)
    }
}

impl Undo {
    /// An action with the value of its member of the union.
    pub fn action(action: Action, parameters: Value) -> Self {
        Self::Action { action, parameters: Map::from_iter([(action.member().to_owned(), parameters)]) }
    }
}

impl Restore {
    /// What makes the object, as it is now, what it was. `None`: nothing.
    pub fn patch(&self, object: &Value) -> Option<(PatchType, Value)> {
        match self {
            Self::Nothing | Self::Absent | Self::Own(_) => None,
            Self::Merge(patch) => Some((PatchType::Merge, patch.clone())),
            Self::Strategic(patch) => Some((PatchType::Strategic, patch.clone())),
            Self::Fields(was) => difference(&diff::own(object), was).map(|patch| (PatchType::Merge, patch)),
        }
    }

    pub(super) fn into_fields(self) -> Value {
        match self {
            Self::Nothing | Self::Absent => Value::Null,
            Self::Merge(fields) | Self::Strategic(fields) | Self::Fields(fields) | Self::Own(fields) => {
                fields
            }
        }
    }
}

impl Kept {
    pub fn new(order: &Order, before: Vec<Before>, undo: Undo) -> Self {
        let parameters = match serde_json::from_str(&order.parameters) {
            Ok(Value::Object(parameters)) => parameters,
            _ => Map::new(),
        };
        let digest = digest(&before);
        let described = before.iter().map(|before| describe(order.action, before)).collect();
        let targets = before
            .into_iter()
            .map(|Before { place, uid, restore, .. }| Target { place, uid, restore })
            .collect();
        Self { uid: order.uid.clone(), action: order.action, parameters, undo, targets, described, digest }
    }

    /// What was kept of one target.
    pub fn of(&self, place: &Place) -> Option<&Target> {
        self.targets.iter().find(|target| target.place == *place)
    }

    /// As it may stand in the status; `sha256` is that of the Secret's content.
    pub fn told(&self, secret: &Key, sha256: &str) -> Captured {
        let mut information = RollbackInformation {
            undo_ref: Some(UndoRef {
                name: secret.name.clone(),
                namespace: secret.namespace.clone().unwrap_or_default(),
                sha256: sha256.to_owned(),
            }),
            ..RollbackInformation::default()
        };
        let by = match &self.undo {
            Undo::Action { action, parameters } => Ok((*action, parameters.clone())),
            Undo::Restore => Ok((self.action, self.parameters.clone())),
            Undo::Never(why) => Err(why),
        };
        match by {
            Ok((action, parameters)) => {
                information.available = true;
                information.rollback_action = Some(action);
                information.rollback_parameters = parameters;
                information.estimated_rollback_duration = Some(ESTIMATE.to_owned());
            }
            Err(why) => information.unavailable_reason.clone_from(why),
        }
        Captured { information, before: self.described.clone(), digest: self.digest.clone() }
    }
}

/// The Secret that keeps these bytes for an order. It is never changed.
pub fn manifest(order: &Order, secret: &Key, bytes: &[u8]) -> Value {
    let mut marks = order.marks();
    marks.insert("app.kubernetes.io/managed-by".to_owned(), "pawl".into());
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true,
        "metadata": {
            "name": secret.name, "namespace": secret.namespace, "labels": marks,
            "annotations": {annotations::EXECUTION: order.execution.to_string()},
        },
        "data": {KEY: STANDARD.encode(bytes)},
    })
}

/// What a target is, in the words of a status: in `before`, whichever time it is.
pub fn describe(action: Action, before: &Before) -> AffectedResource {
    AffectedResource {
        kind: before.place.kind.kind.to_string(),
        namespace: before.place.key.namespace.clone().unwrap_or_default(),
        name: before.place.key.name.clone(),
        action: definition(action).done.to_owned(),
        before: text::head(before.words.as_str(), MAX_WORDS),
        after: String::new(),
    }
}

/// What an approval is about: who the targets are, and the fields that the action reads or writes.
pub fn digest(before: &[Before]) -> String {
    let mut parts = Vec::with_capacity(before.len() * 3);
    for Before { place, uid, fields, .. } in before {
        parts.extend([
            format!("{} {}", place.kind, place.key),
            uid.clone().unwrap_or_default(),
            // The members of an object stand in the order of their names.
            fields.to_string(),
        ]);
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    names::hash(&parts, 64)
}

#[cfg(test)]
mod tests {
    use super::super::testing::order;
    use super::*;
    use pawl_api::k8s::DEPLOYMENT;

    fn before(replicas: i64) -> Before {
        Before {
            place: Place::namespaced(DEPLOYMENT, "n", "d"),
            uid: Some("u".to_owned()),
            restore: Restore::Merge(json!({"spec": {"replicas": replicas}})),
            fields: json!({"spec": {"replicas": replicas}}),
            words: format!("replicas: {replicas}"),
        }
    }

    #[test]
    fn what_is_kept_is_told_without_what_may_be_secret() {
        let order = order("update_secret", json!({"updateSecret": {"secret": "s"}}));
        let canary = "obviously-not-a-real-secret";
        let mut secret = before(1);
        secret.restore = Restore::Merge(json!({"data": {"k": canary}}));
        let kept = Kept::new(&order, vec![secret], Undo::Restore);
        let told = kept.told(&super::secret("e", "u"), "0");
        assert!(!format!("{told:?}{kept:?}").contains(canary));
        assert_eq!(told.information.rollback_action, Some(order.action));
        assert_eq!(
            Value::Object(told.information.rollback_parameters),
            json!({"updateSecret": {"secret": "s"}})
        );
        let again: Kept = serde_json::from_value(serde_json::to_value(&kept).unwrap()).unwrap();
        assert_eq!(again, kept);
    }

    #[test]
    fn the_digest_moves_with_what_the_action_reads_or_writes_and_with_nothing_else() {
        let mut reworded = before(3);
        reworded.words = "three".to_owned();
        assert_eq!(digest(&[before(3)]), digest(&[reworded]));
        assert_ne!(digest(&[before(3)]), digest(&[before(4)]));
        let mut another = before(3);
        another.uid = Some("v".to_owned());
        assert_ne!(digest(&[before(3)]), digest(&[another]));
    }
}
