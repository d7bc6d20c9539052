//! What does kubectl's older way of applying allow and ask for?
//!
//! Client-side apply keeps the last configuration in an annotation. Whoever moves to server-side apply with
//! kubectl owns, in truth, what that annotation says: taking it is no conflict. And while the annotation is
//! there, it is kept true, so that moving back works too.

use super::compare;
use super::extract;
use super::types::Type;
use serde_json::{Value, json};
use std::collections::HashSet;

/// The field manager of `kubectl apply --server-side`.
pub(super) const MANAGER: &str = "kubectl";

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The paths the annotation holds with the value that is live: kubectl's own.
pub(super) fn last_applied(ty: Type<'_>, live: &Value) -> HashSet<String> {
    let text =
        live.pointer("/metadata/annotations").and_then(|a| a.get(LAST_APPLIED)).and_then(Value::as_str);
    let Some(Ok(last)) = text.map(serde_json::from_str::<Value>) else { return HashSet::new() };
    let changes = compare::changes(ty, &last, live);
    let same = extract::fields(ty, &last).difference(&changes.set()).difference(&changes.removed);
    same.paths().into_iter().collect()
}

/// Writes the applied configuration into the annotation, if there is one.
pub(super) fn refresh(object: &mut Value, applied: &Value) {
    let annotations = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    let Some(slot) = annotations.and_then(|a| a.get_mut(LAST_APPLIED)) else { return };
    let mut plain = applied.clone();
    if let Some(own) = plain.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        own.remove(LAST_APPLIED);
    }
    // kubectl ends the configuration with a line break.
    *slot = json!(format!("{plain}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::{ApplyError, Writer, apply, update};
    use crate::schema::builtin;
    use jiff::Timestamp;

    fn by(manager: &str) -> Writer<'_> {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        Writer { manager, api_version: "v1", subresource: "", resets: &[], now }
    }

    fn config(value: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": value}})
    }

    #[test]
    fn kubectl_takes_over_what_it_applied_the_older_way() {
        let schema = builtin("", "v1", "ConfigMap").unwrap();
        let mut live = config("1");
        live["metadata"]["annotations"] = json!({LAST_APPLIED: config("1").to_string()});
        update(None, &mut live, &schema, &by("kubectl-client-side-apply"));

        let stranger = apply(Some(&live), &config("2"), &schema, &by("other"), false);
        assert!(matches!(stranger, Err(ApplyError::Conflicts(_))));
        let taken = apply(Some(&live), &config("2"), &schema, &by("kubectl"), false).unwrap();
        assert_eq!(taken["data"]["k"], "2");
        let told: Value =
            serde_json::from_str(taken["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap()).unwrap();
        assert_eq!(told, config("2"));

        // What somebody changed since is no longer kubectl's.
        let mut changed = live.clone();
        changed["data"]["k"] = json!("3");
        update(Some(&live), &mut changed, &schema, &by("editor"));
        let clash = apply(Some(&changed), &config("2"), &schema, &by("kubectl"), false);
        assert!(matches!(clash, Err(ApplyError::Conflicts(_))));
    }
}
